"""BindParams and BindSymbolicVars."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import VerifyError
from relaxvm.ir import GlobalVar, IRModule, Var, walk
from relaxvm.relax import transform
from relaxvm.relax.analysis import check_well_formed, free_symbolic_vars, tir_vars_in_struct_info
from relaxvm.runtime.ndarray import array

n, m = Var("n", "int64"), Var("m", "int64")
Tensor, Tuple, Shape = relax.TensorStructInfo, relax.TupleStructInfo, relax.ShapeStructInfo
Prim, Func = relax.PrimStructInfo, relax.FuncStructInfo


def linear(w_info=None, extra=(), attrs=None):
    x = relax.Var("x", Tensor((n, 64)))
    w = relax.Var("w", w_info or Tensor((64, m)))
    b = relax.BlockBuilder()
    with b.function("main", [x, w, *extra], attrs=attrs):
        with b.dataflow():
            y = b.emit(relax.call_dps_packed("env.linear", (x, w), Tensor((n, m))))
            z = b.emit_output(
                relax.call_dps_packed("env.f", (y, relax.ShapeExpr((m * 2,))), Tensor((n, m + 1)))
            )
        b.emit_func_output(z)
    return b.get()


WEIGHT = np.arange(640, dtype="float32").reshape(64, 10)


def test_a_parameter_becomes_a_constant_and_its_symbols_numbers():
    mod = linear()
    bound = transform.BindParams("main", {"w": WEIGHT})(mod)
    check_well_formed(bound)
    fn = bound["main"]
    assert [p.name_hint for p in fn.params] == ["x"]
    assert fn.ret_struct_info is Tensor((n, 11))
    constant = fn.body.blocks[0].bindings[0].value.args[1].fields[1]
    np.testing.assert_array_equal(constant.data.numpy(), WEIGHT)
    assert fn.body.blocks[0].bindings[1].value.args[1].fields[1] is relax.ShapeExpr((20,))
    assert not any(k is m for k in walk(fn))
    assert len(mod["main"].params) == 2


@pytest.mark.parametrize(
    "value",
    [WEIGHT, array(WEIGHT), relax.const(WEIGHT), WEIGHT.tolist()],
    ids=lambda v: type(v).__name__,
)
@pytest.mark.parametrize("key", ["name", "var"])
def test_parameters_are_named_or_given_in_many_forms(key, value):
    mod = linear()
    name = "w" if key == "name" else mod["main"].params[1]
    fn = transform.BindParams("main", {name: value})(mod)["main"]
    assert len(fn.params) == 1
    assert fn.ret_struct_info is Tensor((n, 11))


def test_numbers_shapes_scalars_and_tuples_can_be_bound():
    extra = [
        relax.Var("eps", Tensor((), "float16")),
        relax.Var("s", Shape((m, 3))),
        relax.Var("k", Prim("int64")),
        relax.Var("t", Tuple((Tensor((2,)), Prim("int64")))),
    ]
    values = {"eps": 1e-3, "s": (10, 3), "k": 7, "t": (np.zeros(2, "float32"), 3)}
    mod = transform.BindParams("main", values)(linear(extra=extra))
    check_well_formed(mod)
    assert [p.name_hint for p in mod["main"].params] == ["x", "w"]
    assert mod["main"].params[1].struct_info is Tensor((64, 10))


def test_num_input_counts_what_is_left():
    mod = linear(attrs={"num_input": 2})
    assert (
        transform.BindParams("main", {"x": np.zeros((3, 64), "float32")})(mod)["main"].attrs[
            "num_input"
        ]
        == 1
    )


def test_binding_nothing_is_the_same_module():
    mod = linear()
    assert transform.BindParams("main", {})(mod) is mod


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"W": WEIGHT}, r"main has no parameter 'W'; .*it has: x, w"),
        ({"weight": WEIGHT}, "no parameter 'weight'"),
        ({3: WEIGHT}, "a string or a Var, got int"),
        (
            {"w": WEIGHT.astype("float64")},
            r"parameter w of main(.|\n)*wanted.*float32(.|\n)*got.*float64",
        ),
        ({"w": WEIGHT[:, :, None]}, r"parameter w of main(.|\n)*64, m(.|\n)*64, 10, 1"),
        ({"w": WEIGHT[:5]}, r"parameter w of main(.|\n)*\(64, m\)(.|\n)*\(5, 10\)"),
        ({"w": "text"}, "parameter w"),
        ({"w": None}, "parameter w"),
        ({"w": [[1, 2], [3]]}, "parameter w"),
        ({"w": relax.Var("q")}, "parameter w.*wanted a constant"),
        ({"s": (1, 2, 3)}, "parameter s"),
        ({"s": "ab"}, "parameter s"),
        ({"t": (1,)}, "wanted 2 fields, got 1"),
        ({"k": "x"}, "parameter k"),
        ({"w": WEIGHT, "s": (9, 3)}, r"parameter s of main(.|\n)*m = 10"),
        (3, "a mapping from parameters"),
    ],
)
def test_what_does_not_fit_names_the_parameter(params, message):
    extra = [
        relax.Var("s", Shape((m, 3))),
        relax.Var("t", Tuple((Tensor((2,)), Prim("int64")))),
        relax.Var("k", Prim("int64")),
    ]
    with pytest.raises(VerifyError, match=message):
        transform.BindParams("main", params)(linear(extra=extra))


def test_twice_the_same_parameter_or_name_is_refused():
    mod = linear()
    with pytest.raises(VerifyError, match="given twice"):
        transform.BindParams("main", {"w": WEIGHT, mod["main"].params[1]: WEIGHT})(mod)
    same = relax.Function(
        [relax.Var("a", Tensor((1,))), relax.Var("a", Tensor((1,)))], relax.Tuple(())
    )
    with pytest.raises(VerifyError, match="2 parameters named a"):
        transform.BindParams("main", {"a": np.zeros(1, "float32")})(IRModule({"main": same}))


def test_an_unknown_function_is_named():
    with pytest.raises(ValueError, match="no function 'Main'"):
        transform.BindParams("Main", {})(linear())


def test_callers_follow_a_changed_signature():
    mod = linear()
    gv = mod.get_global_var("main")
    x = relax.Var("x", Tensor((5, 64)))
    fn = relax.Function([x], relax.Tuple((gv,)))
    mod["other"] = fn
    bound = transform.BindParams("main", {"w": WEIGHT})(mod)
    new = bound.get_global_var("main")
    assert new.struct_info is bound["main"].struct_info
    assert bound["other"].body.body.fields[0] is new
    assert mod.get_global_var("main") is gv


def test_symbols_are_bound_by_name_or_variable():
    mod = linear()
    for binding_map in ({"n": 8}, {n: 8}, {"n": np.int64(8)}):
        fn = transform.BindSymbolicVars(binding_map, "main")(mod)["main"]
        assert fn.params[0].struct_info is Tensor((8, 64))
        assert fn.ret_struct_info is Tensor((8, m + 1))
        assert fn.params[1] is mod["main"].params[1]
    check_well_formed(transform.BindSymbolicVars({"n": 8, "m": 10})(mod))


def test_symbols_may_become_expressions():
    k = Var("k", "int64")
    fn = transform.BindSymbolicVars({"m": k * 2}, "main")(linear())["main"]
    assert free_symbolic_vars(fn) == [k]
    assert tir_vars_in_struct_info(fn.params[1].struct_info) == [k]


@pytest.mark.parametrize(
    ("binding_map", "func_name", "message"),
    [
        ({"N": 3}, "main", r"main has no symbol 'N'; .*there are: n, m"),
        ({"q": 3}, None, "any graph function has no symbol 'q'"),
        ({"n": -1}, "main", "symbol n: a dimension is not negative"),
        ({"n": 1.5}, "main", "symbol n"),
        ({"n": "a"}, "main", "symbol n"),
        ({3: 3}, "main", "a string or a tir.Var, got int"),
        ([("n", 3)], "main", "a mapping from symbols"),
        ({"n": 3, n: 4}, "main", "given twice"),
    ],
)
def test_bad_symbol_bindings_are_named(binding_map, func_name, message):
    with pytest.raises(VerifyError, match=message):
        transform.BindSymbolicVars(binding_map, func_name)(linear())


def test_a_size_that_makes_a_dimension_negative_is_refused():
    x = relax.Var("x", Tensor((n, n - 4)))
    mod = IRModule({"main": relax.Function([x], x)})
    with pytest.raises(VerifyError, match="main does not allow n = 2"):
        transform.BindSymbolicVars({"n": 2})(mod)
    assert transform.BindSymbolicVars({"n": 6})(mod)["main"].ret_struct_info is Tensor((6, 2))


def test_one_name_for_two_symbols_is_ambiguous():
    other = Var("n", "int64")
    x = relax.Var("x", Tensor((n, other)))
    with pytest.raises(VerifyError, match="2 symbols named n"):
        transform.BindSymbolicVars({"n": 2})(IRModule({"main": relax.Function([x], x)}))


def test_a_recursive_function_keeps_calling_itself():
    x = relax.Var("x", Tensor((n,)))
    gv = GlobalVar("main", Func([Tensor((n,))], Tensor((n,))))
    y = relax.Var("y", Tensor((n,)))
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(y, gv(x))])], y)
    mod = IRModule({gv: relax.Function([x], body)})
    bound = transform.BindSymbolicVars({"n": 3})(mod)
    check_well_formed(bound)
    new = bound.get_global_var("main")
    assert bound["main"].body.blocks[0].bindings[0].value.op is new
    assert new.struct_info is Func([Tensor((3,))], Tensor((3,)))


def test_functions_bind_and_inline_by_methods():
    builder = relax.BlockBuilder()
    n = Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n,), "float32"))
    with builder.function("twice", [x], private=True):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    twice = builder.get().get_global_var("twice")
    y = relax.Var("y", relax.TensorStructInfo((n,), "float32"))
    w = relax.Var("w", relax.TensorStructInfo((n,), "float32"))
    with builder.function("main", [y, w]):
        doubled = builder.emit(relax.Call(twice, [y]))
        builder.emit_func_output(builder.emit(relax.op.multiply(doubled, w)))
    mod = builder.get()
    main = mod["main"]
    for key in ("twice", twice):
        inlined = main.inline_functions({key: mod["twice"]})
        assert "twice" not in inlined.script() and "R.add" in inlined.script()
    assert main.inline_functions({"other": mod["twice"]}) is main
    sized = main.bind_symbolic_vars({"n": 3})
    assert sized.params[0].struct_info.shape.values[0] == 3
    bound = sized.bind_params({"w": np.ones(3, "float32")})
    assert [p.name_hint for p in bound.params] == ["y"]
    with pytest.raises(VerifyError, match="no graph function"):
        main.inline_functions({"twice": 3})
