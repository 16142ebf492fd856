"""nn's export: specs, modes, symbolic dimensions, effects, subroutines, mutators, externs."""

import numpy as np
import pytest
from nn_models import fill, model_of, spec_of

from relaxvm import register_func, relax, tir
from relaxvm.base import FrontendError, RelaxvmError
from relaxvm.ir import assert_structural_equal
from relaxvm.relax.frontend import nn
from relaxvm.relax.frontend.nn import Tensor, core, op, spec
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R


class Layer(nn.Module):
    def __init__(self):
        self.weight = nn.Parameter(("k", 4))
        self.cache = nn.KVCache(2, [4])

    def forward(self, x, total):
        self.cache.append(x)
        return op.matmul(x, op.permute_dims(self.weight)), self.cache.view(total)


SPEC = {"x": spec.Tensor(["n", 4], "float32"), "total": int}


def params_of(mod, name="forward"):
    fn = mod[name]
    return [p.name_hint for p in fn.params], int(fn.attrs["num_input"])


# -- modes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("modes", "names", "inputs"),
    [
        ({}, ["x", "total", "cache", "weight"], 3),
        ({"param_mode": "packed"}, ["x", "total", "cache", "packed_params"], 3),
        ({"effect_mode": "packed"}, ["x", "total", "packed_effects", "weight"], 3),
        (
            {"param_mode": "packed", "effect_mode": "packed"},
            ["x", "total", "packed_effects", "packed_params"],
            3,
        ),
    ],
)
def test_modes_say_how_parameters_and_states_are_passed(modes, names, inputs):
    given = {**SPEC, "$": modes}
    mod, params = Layer().export_tvm({"forward": given})
    assert params_of(mod) == (names, inputs)
    assert [name for name, _ in params] == ["weight"]
    assert given["$"] == modes  # the spec is the user's
    ex = relax.build(mod)
    vm = relax.VirtualMachine(ex)
    (cache,) = vm["_initialize_effect"]()
    x, w = np.ones((3, 4), "float32"), np.full((2, 4), 0.5, "float32")
    state = (cache,) if modes.get("effect_mode") == "packed" else cache
    weight = (w,) if modes.get("param_mode") == "packed" else w
    (y, rows), (after,) = vm["forward"](x, (3,), state, weight)
    np.testing.assert_array_equal(y.numpy(), x @ w.T)
    np.testing.assert_array_equal(rows.numpy(), x)
    assert after is cache


def test_a_mode_of_none_leaves_them_out_and_says_if_they_are_missed():
    model = Layer()
    with pytest.raises(FrontendError, match="weight is used.*param_mode is 'none'"):
        model.export_tvm({"forward": {**SPEC, "$": {"param_mode": "none"}}})
    with pytest.raises(FrontendError, match="effect_mode 'none'"):
        model.export_tvm({"forward": {**SPEC, "$": {"effect_mode": "none"}}})
    model.plain = lambda x: x + 1
    modes = {"param_mode": "none", "effect_mode": "none"}
    mod, _ = model.export_tvm({"plain": {"x": spec.Tensor([2], "float32"), "$": modes}})
    assert params_of(mod, "plain") == (["x"], 1)


def test_parts_in_a_plain_list_are_not_found_and_the_error_says_so():
    class Model(nn.Module):
        def __init__(self, parts):
            self.parts = parts

        def forward(self, x):
            if isinstance(self.parts[0], nn.KVCache):
                self.parts[0].append(x)
                return x
            return self.parts[0](x)

    specs = {"forward": {"x": spec.Tensor([2, 4], "float32")}}
    with pytest.raises(RelaxvmError) as caught:
        Model([nn.Linear(4, 4)]).export_tvm(specs)
    assert "not in plain lists" in "".join(caught.value.__notes__)
    with pytest.raises(FrontendError, match="in a plain list"):
        Model([nn.KVCache(1, [4])]).export_tvm(specs)
    Model([nn.ReLU()]).export_tvm(specs)


class Count(nn.Effect):
    """A state of one's own: a number that grows."""

    def emit_init(self, name_hint, builder):
        return [builder.emit(relax.op.zeros(relax.ShapeExpr([]), "int32"), name_hint)]

    def create(self, name_hint):
        return [relax.Var(name_hint, relax.TensorStructInfo([], "int32"))]

    def set_state(self, state_vars):
        (self.var,) = state_vars

    def finalize(self):
        return [self.var]

    def next(self):
        made = Tensor(_expr=self.var) + 1
        self.var = made._expr
        return made


@pytest.mark.vm_modes
def test_an_effect_of_ones_own_is_threaded_through_every_method():
    class Model(nn.Module):
        def __init__(self):
            self.count = Count()

        def forward(self, x):
            return x * self.count.next().astype("float32") + self.count.next().astype("float32")

        def skip(self, x):
            self.count.next()
            return x

    tensor = {"x": spec.Tensor([2], "float32")}
    run = Model().jit({"forward": tensor, "skip": tensor})
    x = np.ones(2, "float32")
    np.testing.assert_array_equal(run(x), [3, 3])
    np.testing.assert_array_equal(run["skip"](x), x)
    np.testing.assert_array_equal(run(x), [9, 9])
    assert int(run.state[0].item()) == 5
    run.reset()
    np.testing.assert_array_equal(run(x), [3, 3])


def test_debug_adds_the_order_of_prints_to_every_method():
    @I.ir_module
    class Wanted:
        @R.function
        def _initialize_effect() -> R.Tuple(R.Object):
            with R.dataflow():
                _io: R.Object = R.null_value()
                lv: R.Tuple(R.Object) = (_io,)
                gv: R.Tuple(R.Object) = lv
                R.output(gv)
            return gv

        @R.function
        def forward(
            x: R.Tuple(R.Tensor((10, 5), "float32"), R.Tensor((10, 5), "float32")), _io: R.Object
        ):
            R.func_attr({"num_input": 2})
            with R.dataflow():
                lv1: R.Tensor((10, 5), dtype="float32") = x[0]
                lv2: R.Tensor((10, 5), dtype="float32") = x[1]
                add: R.Tensor((10, 5), dtype="float32") = R.add(lv1, lv2)
                subtract: R.Tensor((10, 5), dtype="float32") = R.subtract(lv1, lv2)
                gv1 = (add, subtract), (_io,)
                R.output(gv1)
            return gv1

    for kind in (tuple, list):

        class Sums(nn.Module):
            def forward(self, x):
                assert type(x) is kind  # noqa: B023
                return kind([nn.add(x[0], x[1]), nn.subtract(x[0], x[1])])  # noqa: B023

        pair = kind([spec.Tensor([10, 5], "float32"), spec.Tensor([10, 5], "float32")])
        mod, _ = Sums().export_tvm({"forward": {"x": pair}}, debug=True)
        assert_structural_equal(mod, Wanted)


# -- specs -----------------------------------------------------------------------------------------


def test_one_name_is_one_symbol_in_inputs_and_parameters():
    class Model(nn.Module):
        def __init__(self):
            self.a = nn.Parameter(("n", 4))
            self.b = nn.Parameter((tir.Var("n", "int64"),))

        def forward(self, x, m, y):
            assert self.a.shape[0] is self.b.shape[0] is x.shape[0] is y.shape[1]
            assert y.shape[0] is m
            return op.matmul(x.reshape(1, x.shape[0]), self.a), y + self.b

    specs = {
        "x": spec.Tensor(["n"], "float32"),
        "m": int,
        "y": spec.Tensor(["m", "n"], "float32"),
    }
    mod, _ = Model().export_tvm({"forward": specs, "other": MethodTwin.of(Model(), specs)})
    got = mod["forward"].ret_struct_info.fields
    assert [str(f) for f in got[:1]] == ['R.Tensor((1, 4), dtype="float32")']


class MethodTwin:
    """The same method under another name, given as a ready MethodSpec."""

    @staticmethod
    def of(module, specs):
        def other(x, m, y):
            return x + 1, y

        return spec.MethodSpec.from_raw(specs, other)


def test_symbols_may_be_given_as_variables_and_expressions():
    batch = tir.Var("batch", "int64")
    shape = (batch, batch * 2, "batch")
    model = model_of(lambda x: op.sum(x, axis=1))
    mod, _ = model.export_tvm({"forward": {"x": spec.Tensor(shape, "float32")}})
    info = mod["forward"].params[0].struct_info
    assert info.dims[0] is info.dims[2]
    assert [str(d) for d in mod["forward"].ret_struct_info.dims] == ["batch", "batch"]


def test_objects_are_handed_on():
    class Box(nn.Object):
        def size(self):
            return nn.wrap_nested(
                relax.call_pure_packed(
                    "test.nn.size", self._expr, sinfo_args=relax.TensorStructInfo((), "int64")
                ),
                "size",
            )

    @register_func("test.nn.size", override=True)
    def size(value):
        return np.array(len(value))

    model = model_of(lambda box, x: (box.size(), x))
    specs = {"box": spec.Object(Box), "x": spec.Object()}
    got = model.jit({"forward": specs})({"a": 1}, "text")
    assert got[0] == 1
    assert got[1] == "text"


def test_specs_come_from_examples():
    torch = pytest.importorskip("torch")

    class Model(nn.Module):
        def forward(self, x, pair, n, flag=None):
            return x + pair[0]

    x = torch.zeros(2, 3)
    made = spec.MethodSpec.from_torch([x, [x, np.zeros(2)], 4], Model().forward)
    assert repr(made) == (
        "MethodSpec(x: Tensor([2, 3], 'float32'), pair: [Tensor([2, 3], 'float32'), "
        "Tensor([2], 'float64')], n: int)"
    )
    mod, _ = Model().export_tvm({"forward": made})
    assert params_of(mod) == (["x", "pair", "n"], 3)
    assert "ModuleSpec:\n  forward(x: Tensor" in repr(
        spec.ModuleSpec.from_raw({"forward": made}, Model())
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backward": {}}, "Model has no method 'backward'"),
        ({"forward": {"x": int, "z": int}}, r"has no argument 'z'; it takes \(x, y\)"),
        ({"forward": {"y": int}}, "the spec of argument x is missing"),
        ({"forward": {"x": "float32"}}, r"argument x: wanted spec.Tensor\(shape, dtype\)"),
        ({"forward": {"x": [int, 3]}}, "argument x_1: wanted spec.Tensor"),
        ({"forward": 3}, "wanted {argument: spec}, got int"),
        (3, "wanted {method: {argument: spec}}, got int"),
        ({"forward": {"x": int, "$": {"param_mode": "all"}}}, "param_mode: wanted one of"),
        ({"forward": {"x": int, "$": {"mode": "packed"}}}, "'\\$' holds param_mode"),
    ],
)
def test_a_wrong_spec_is_refused(given, message):
    class Model(nn.Module):
        def forward(self, x, y=None):
            return x

    with pytest.raises(FrontendError, match=message):
        Model().export_tvm(given)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [(3, "float32"), ("n", "float32"), ([-1], "float32"), (["n m"], "float32"), ([2], "f32x")],
)
def test_a_wrong_tensor_spec_is_refused(shape, dtype):
    with pytest.raises(RelaxvmError):
        spec.Tensor(shape, dtype)


def test_a_result_that_is_no_tensor_is_refused():
    for wrong, message in ((lambda x: None, "got NoneType"), (lambda x: (x, 3), r"\[1\].*got int")):
        with pytest.raises(FrontendError, match=message):
            model_of(wrong).export_tvm({"forward": {"x": spec.Tensor([2], "float32")}})


def test_names_that_stand_twice_are_refused():
    class Model(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter((2,))

        def forward(self, weight):
            return weight + self.weight

    with pytest.raises(FrontendError, match="two parameters of the function are called 'weight'"):
        Model().export_tvm({"forward": {"weight": spec.Tensor([2], "float32")}})


def test_exports_do_not_nest():
    def forward(x):
        nn.Linear(2, 2).export_tvm({"forward": {"x": spec.Tensor([2, 2], "float32")}})
        return x

    with pytest.raises(FrontendError, match="being exported already"):
        model_of(forward).export_tvm({"forward": {"x": spec.Tensor([2], "float32")}})


def test_export_gives_the_parameters_by_name_and_parses_back():
    mod, params = Layer().export({"forward": SPEC})
    assert list(params) == ["weight"]
    assert isinstance(params["weight"], core.Parameter)
    assert_structural_equal(from_source(mod.script()), mod, True)


# -- subroutines -----------------------------------------------------------------------------------


def test_subroutines_are_private_functions_shared_by_equal_layers():
    class Activation(nn.Module):
        define_subroutine = True

        def forward(self, state):
            return op.silu(state)

    class RMSLayer(nn.Module):
        define_subroutine = True

        def __init__(self, rows, columns):
            self.weights = nn.Parameter((rows, columns), dtype="float32")
            self.activation = Activation()

        def forward(self, input):
            return self.activation(op.matmul(input, self.weights))

    class Model(nn.Module):
        def __init__(self):
            self.layers = nn.ModuleList([RMSLayer(8, 8), RMSLayer(8, 8), RMSLayer(8, 3)])

        def forward(self, x):
            return self.layers(x)

    model = Model()
    w = fill(model)
    specs = {"forward": {"x": spec.Tensor(["n", 8], "float32")}}
    mod, params = model.export_tvm(specs)
    names = sorted(gv.name_hint for gv in mod)
    assert names == ["activation", "activation1", "forward", "rms_layer", "rms_layer1"]
    assert mod["rms_layer"].get_attr("global_symbol") is None
    assert len(params) == 3
    x = np.random.default_rng(0).standard_normal((2, 8)).astype("float32")
    wanted = x
    for i in range(3):
        y = wanted @ w[f"layers.{i}.weights"]
        wanted = y / (1 + np.exp(-y))
    np.testing.assert_allclose(model.jit(specs)(x), wanted, rtol=1e-4, atol=1e-5)


def test_a_subroutine_is_told_the_sizes_its_inputs_do_not_show():
    class Twice(nn.Module):
        define_subroutine = True

        def forward(self, x, total, pair, flag=True):
            assert flag
            return x.reshape(total, 2) + pair[0], pair[1]

    inner = Twice()

    def forward(x, y, total):
        return inner(x, total, (y, x), flag=True)

    specs = {
        "x": spec.Tensor([tir.Var("t", "int64") * 2], "float32"),
        "y": spec.Tensor(["t", 2], "float32"),
        "total": int,
    }

    class Model(nn.Module):
        def __init__(self):
            self.inner = inner

        def forward(self, x, y, t):
            return forward(x, y, t)

    specs["t"] = specs.pop("total")
    model = Model()
    mod, _ = model.export_tvm({"forward": specs})
    assert "twice" in {gv.name_hint for gv in mod}
    x, y = np.arange(6, dtype="float32"), np.ones((3, 2), "float32")
    got = model.jit({"forward": specs})(x, y, 3)
    np.testing.assert_array_equal(got[0], x.reshape(3, 2) + 1)
    np.testing.assert_array_equal(got[1], x)


def test_a_subroutine_with_state_is_written_in_place_and_one_cannot_print():
    class Cached(Layer):
        define_subroutine = True

    mod, _ = Cached().export_tvm({"forward": SPEC})
    assert {gv.name_hint for gv in mod} == {"_initialize_effect", "forward"}

    class Printing(nn.Module):
        define_subroutine = True

        def forward(self, x):
            op.print_(x)
            return x

    with pytest.raises(FrontendError, match="subroutine of Printing cannot print"):
        Printing().export_tvm({"forward": {"x": spec.Tensor([2], "float32")}}, debug=True)


# -- mutators and externs --------------------------------------------------------------------------


def test_a_mutator_sees_every_part_by_its_path_and_replaces_it():
    class Part(nn.Module):
        def __init__(self):
            self.linear = nn.Linear(2, 2)
            self.cache = nn.KVCache(1, [1])

    class Whole(nn.Module):
        def __init__(self):
            self.top = nn.Linear(2, 2, bias=False)
            self.list = nn.ModuleList([Part(), nn.ModuleList([nn.ReLU()])])
            self.dict = nn.ModuleDict({"k": Part()})
            self.params = nn.ParameterList([nn.Parameter((1,))])
            self.named = nn.ParameterDict({"p": nn.Parameter((1,))})
            self.number = 3

    seen = []

    class Watch(nn.Mutator):
        def visit_module(self, name, node):
            seen.append(("module", name))
            if isinstance(node, nn.ReLU):
                return nn.SiLU()
            return self.visit(name, node)

        def visit_param(self, name, node):
            seen.append(("param", name))
            return nn.Parameter((7,)) if name in ("params.0", "named.p", "top.weight") else node

        def visit_effect(self, name, node):
            seen.append(("effect", name))
            return node

    whole = Whole()
    assert Watch().visit_module("", whole) is whole
    assert [n for k, n in seen if k == "param"] == [
        "top.weight",
        "list.0.linear.weight",
        "list.0.linear.bias",
        "dict.k.linear.weight",
        "dict.k.linear.bias",
        "params.0",
        "named.p",
    ]
    assert [n for k, n in seen if k == "effect"] == ["list.0.cache", "dict.k.cache"]
    assert ("module", "list.1.0") in seen
    assert isinstance(whole.list[1][0], nn.SiLU)
    for param in (whole.params[0], whole.named["p"], whole.top.weight):
        assert param.shape == [7]


def test_external_modules_are_listed_when_they_are_allowed():
    sort = nn.ExternModule({"test.nn.sort": lambda x: nn.Tensor.placeholder(x.shape, x.dtype)})

    @register_func("test.nn.sort", override=True)
    def fill_sorted(x, out):
        out.copyfrom(np.sort(x.numpy()))

    def forward(x):
        nn.add_extern(sort)
        nn.add_extern(sort)
        return sort["test.nn.sort"](x)

    model, x = model_of(forward), np.array([3, 1, 2], "float32")
    with pytest.raises(FrontendError, match="1 external modules; set allow_extern=True"):
        model.export_tvm(spec_of(x=x))
    _, _, mods = model.export_tvm(spec_of(x=x), allow_extern=True)
    assert mods == [sort]
    np.testing.assert_array_equal(model.jit(spec_of(x=x))(x), np.sort(x))
    with pytest.raises(FrontendError, match="no function 'f'; there are test.nn.sort"):
        sort["f"]
    with pytest.raises(FrontendError, match="wanted {name: function"):
        nn.ExternModule({"f": 3})

    def twice(x):
        nn.add_extern(sort)
        nn.add_extern(nn.ExternModule(sort.symbols))
        return x

    with pytest.raises(FrontendError, match="test.nn.sort: there already"):
        model_of(twice).export_tvm(spec_of(x=x), allow_extern=True)
