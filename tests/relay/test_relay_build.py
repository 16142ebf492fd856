"""`relay.build`: the graph's JSON, names of kernels, parameters, and what the executor gives."""

import json

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, relay
from relaxvm.base import CodegenError, PassError, VMValueError
from relaxvm.contrib import graph_executor
from relaxvm.relax.interp import Evaluator
from relaxvm.runtime import load_module, load_param_dict, save_param_dict
from relaxvm.target import Target
from tests.ten_graphs import NAMES, flat, small

RNG = np.random.default_rng(0)
X = RNG.standard_normal((10, 10)).astype("float32")
W = RNG.standard_normal((7, 10)).astype("float32")


def module_of(build, **shapes):
    """A module of ``build(*variables)``."""
    variables = [relay.var(name, shape=shape) for name, shape in shapes.items()]
    return tvm.IRModule.from_expr(relay.Function(variables, build(*variables)))


def dense(x, w):
    return relay.nn.relu(relay.nn.dense(x, w))


def calls(lib):
    """The functions that a graph calls, in order."""
    nodes = json.loads(lib.get_graph_json())["nodes"]
    return [node["attrs"]["func_name"] for node in nodes if node["op"] == "tvm_op"]


def run(lib, **inputs):
    """What a graph gives, as numpy arrays."""
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.run(**inputs)
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


# -- the graph -------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1, 2, 3, 10])
def test_additions_and_an_exp_are_one_node_at_every_level(level):
    def build(x):
        y = x
        for _ in range(5):
            y = relay.add(y, relay.const(1.0))
        return relay.exp(y)

    with tvm.transform.PassContext(opt_level=level, disabled_pass=["SimplifyExpr", "FoldConstant"]):
        lib = relay.build(module_of(build, x=(10, 10)), target="llvm")
    assert calls(lib) == ["tvmgen_default_fused_add_add_add_add_add_exp"]
    np.testing.assert_allclose(run(lib, x=X)[0], np.exp(X + 5), rtol=1e-6)


@pytest.mark.parametrize("level", [0, 3])
def test_a_sum_ends_its_group(level):
    def build(x):
        y = relay.add(relay.add(x, x), x)
        return relay.add(relay.sum(y, axis=1, keepdims=True), x)

    with tvm.transform.PassContext(opt_level=level):
        lib = relay.build(module_of(build, x=(20, 20)), target="llvm")
    assert calls(lib) == ["tvmgen_default_fused_add_add_sum", "tvmgen_default_fused_add"]


def test_the_json_is_of_tvm_s_form():
    lib = relay.build(module_of(dense, x=(10, 10), w=(7, 10)), "llvm", params={"w": W})
    graph = json.loads(lib.get_graph_json())
    assert graph.keys() == {"nodes", "arg_nodes", "heads", "attrs", "node_row_ptr"}
    name = "tvmgen_default_fused_nn_dense_nn_relu"
    assert [(n["op"], n["name"], n["inputs"]) for n in graph["nodes"]] == [
        ("null", "x", []),
        ("null", "p0", []),
        ("tvm_op", name, [[0, 0, 0], [1, 0, 0]]),
    ]
    assert graph["nodes"][2]["attrs"] == {
        "num_outputs": "1",
        "num_inputs": "2",
        "flatten_data": "0",
        "func_name": name,
    }
    assert (graph["arg_nodes"], graph["heads"]) == ([0, 1], [[2, 0, 0]])
    assert graph["attrs"]["dltype"] == ["list_str", ["float32"] * 3]
    assert graph["attrs"]["storage_id"] == ["list_int", [0, 1, 2]]
    assert graph["attrs"]["device_index"] == ["list_int", [1, 1, 1]]
    assert graph["attrs"]["shape"][0] == "list_shape"
    assert graph["attrs"]["shape"][1][2] == [10, 7]
    assert graph["node_row_ptr"] == [0, 1, 2, 3]
    assert name in lib.get_lib().get_source("ll")
    assert lib.get_lib().get_source("asm")


def test_a_product_that_reads_a_matrix_turned_round_has_relays_name():
    lib = relay.build(module_of(dense, x=(1, 10), w=(7, 10)), "llvm")
    assert calls(lib) == ["tvmgen_default_fused_nn_dense_nn_relu"]


def test_functions_that_are_primitive_stay_one_node():
    def build(x):
        return relay.exp(relay.add(relay.add(x, relay.const(1.0)), relay.const(2.0)))

    fused = relay.transform.FuseOps(fuse_opt_level=2)(module_of(build, x=(10, 10)))
    with tvm.transform.PassContext(opt_level=0):
        lib = relay.build(fused, target="llvm")
    assert calls(lib) == ["tvmgen_default_fused_add_add_exp"]
    np.testing.assert_allclose(run(lib, x=X)[0], np.exp(X + 3), rtol=1e-6)


def test_storage_ids_show_the_memory_plan():
    def build(x):
        for axis in (0, 1) * 3:
            x = relay.add(relay.sum(x, axis=axis, keepdims=True), x)
        return x

    lib = relay.build(module_of(build, x=(8, 8)), "llvm")
    storages = json.loads(lib.get_graph_json())["attrs"]["storage_id"][1]
    assert len(storages) == 13
    assert len(set(storages)) <= 6
    want = Evaluator(module_of(build, x=(8, 8)))("main", X[:8, :8])
    np.testing.assert_allclose(run(lib, x=X[:8, :8])[0], want, rtol=1e-5)


def test_equal_names_are_told_apart_and_long_ones_are_cut():
    def build(x):
        a = relay.sum(x, axis=0)
        b = relay.sum(x, axis=1)
        for _ in range(30):
            b = relay.add(relay.multiply(b, relay.const(1.5)), a)
        return b

    with tvm.transform.PassContext(disabled_pass=["SimplifyExpr"]):
        first, second, long = calls(relay.build(module_of(build, x=(10, 10)), "llvm"))
    assert (first, second) == ("tvmgen_default_fused_sum", "tvmgen_default_fused_sum_1")
    assert long.startswith("tvmgen_default_fused_multiply_add_multiply_add_")
    assert len(long) == len("tvmgen_default_") + 80 + 1 + 16 + 1


def test_the_module_s_name_is_part_of_the_kernels_names():
    lib = relay.build(module_of(relay.exp, x=(4,)), "llvm", mod_name="small")
    assert calls(lib) == ["tvmgen_small_fused_exp"]
    assert graph_executor.GraphModule(lib["small"](tvm.cpu())).get_num_inputs() == 1
    with pytest.raises(VMValueError, match="no function 'default'; it has: small"):
        lib["default"]


def test_parameters_of_one_name_are_told_apart():
    a, b = relay.var("x", shape=(2,)), relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([a, b], relay.subtract(a, b)))
    lib = relay.build(mod, "llvm")
    (made,) = run(lib, x=np.float32([5, 7]), x_1=np.float32([1, 2]))
    assert made.tolist() == [4, 5]
    with pytest.raises(ValueError, match="several parameters are called 'x'"):
        relay.build(mod, "llvm", params={"x": np.zeros(2, "float32")})


def test_functions_that_main_calls_are_part_of_the_graph():
    mod = tvm.IRModule()
    g, y = relay.GlobalVar("g"), relay.var("y", shape=(3,))
    mod[g] = relay.Function([y], relay.exp(y))
    x = relay.var("x", shape=(3,))
    mod["main"] = relay.Function([x], relay.add(relay.Call(g, [x]), x))
    x = np.float32([1, 2, 3])
    np.testing.assert_allclose(run(relay.build(mod, "llvm"), x=x)[0], np.exp(x) + x, rtol=1e-6)


def test_types_are_found_by_the_build():
    x = relay.var("x", shape=(2, 3))
    w = relay.var("w")
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    lib = relay.build(mod, "llvm", params={"w": np.ones((4, 3), "float32")})
    assert run(lib, x=np.ones((2, 3), "float32"))[0].tolist() == [[3] * 4] * 2


def test_results_may_be_tuples_inputs_and_views():
    def build(x):
        y = relay.reshape(relay.exp(x), (4, 25))
        return relay.Tuple([y, relay.Tuple([x, relay.add(y, y)]), relay.const(np.arange(3))])

    a, b, c, d = run(relay.build(module_of(build, x=(10, 10)), "llvm"), x=X)
    np.testing.assert_allclose(a, np.exp(X).reshape(4, 25), rtol=1e-6)
    assert np.array_equal(b, X)
    assert np.array_equal(c, a + a)
    assert d.tolist() == [0, 1, 2]


def test_functions_of_the_library_are_nodes_too():
    from relaxvm.script import ir as I
    from relaxvm.script import relax as R

    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((4, 5), "float32")):
            with R.dataflow():
                y = R.sort(x, axis=1)
                z = R.add(y, y)
                R.output(z)
            return z

    lib = relay.build(Model, "llvm")
    x = X[:4, :5].copy()
    assert np.array_equal(run(lib, x=x)[0], np.sort(x, 1) * 2)
    assert "vm.library.sort" in calls(lib)


def unrolled_lstm():
    """Four steps of an LSTM, as Relay's programs write it: (module, inputs)."""
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal(s).astype("float32") / 4 for s in ((32, 6), (32, 8), (32,))]
    xs = relay.var("x", shape=(4, 1, 6))
    w, r, b = rest = [relay.var("w", shape=a.shape) for a in weights]
    h = c = relay.zeros((1, 8), "float32")
    for step in relay.split(xs, 4):
        whole = relay.nn.dense(relay.squeeze(step, [0]), w) + relay.nn.dense(h, r)
        i, f, g, o = relay.split(relay.nn.bias_add(whole, b), 4, axis=1)
        c = relay.sigmoid(f) * c + relay.sigmoid(i) * relay.tanh(g)
        h = relay.sigmoid(o) * relay.tanh(c)
    mod = tvm.IRModule.from_expr(relay.Function([xs, *rest], relay.Tuple([h, c])))
    return mod, [rng.standard_normal((4, 1, 6)).astype("float32"), *weights]


_LARGE = ("resnet50", "mobilenet_v2", "unet")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in _LARGE else n for n in NAMES]
)
def test_ten_graphs_give_what_the_virtual_machine_gives_to_the_bit(name):
    mod, inputs, _ = small(name)
    if name == "lstm":  # of any length, by a function that calls itself
        with pytest.raises(CodegenError, match="xs has the shape"):
            relay.build(mod, "llvm")
        mod, inputs = unrolled_lstm()
    symbols = {"past": 5} if name == "gpt2_decode" else {}
    if symbols:
        mod = relax.transform.BindSymbolicVars(symbols)(mod)
    lib = relay.build(mod, "llvm")
    shapes, _ = graph_executor.GraphModule(lib["default"](tvm.cpu())).get_input_info()
    made = run(lib, **dict(zip(shapes, flat(inputs), strict=True)))
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    for a, b in zip(made, flat(vm["main"](*inputs)), strict=True):
        assert np.array_equal(a, b)


# -- arguments of the build ------------------------------------------------------------------------


def test_a_function_is_taken_with_a_warning():
    x = relay.var("x", shape=(3,))
    with pytest.warns(DeprecationWarning, match="IRModule.from_expr"):
        lib = relay.build(relay.Function([x], relay.add(x, x)), "llvm")
    assert run(lib, x=np.ones(3, "float32"))[0].tolist() == [2, 2, 2]


def test_the_three_parts_are_unpacked_with_a_warning():
    with pytest.warns(DeprecationWarning, match="GraphModule"):
        graph, lib, params = relay.build(
            module_of(dense, x=(10, 10), w=(7, 10)), "llvm", params={"w": W}
        )
    module = graph_executor.create(graph, lib, tvm.cpu())
    module.load_params(save_param_dict(params))
    module.set_input("x", X)
    module.run()
    np.testing.assert_allclose(module.get_output(0).numpy(), np.maximum(X @ W.T, 0), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("text", "llvm"), ValueError, "Type of input parameter mod must be tvm.IRModule"),
        ((tvm.IRModule(), "llvm"), ValueError, "wanted a function main; the module has: none"),
        ((None, "llvm", 3), ValueError, "target host must be the type of str"),
        ((None, "llvm -host=llvm", "llvm -mcpu=x86-64"), PassError, "a host of its own"),
        ((None, None, "llvm"), PassError, "of no target"),
        ((None, "cuda"), PassError, "unknown kind 'cuda'"),
        ((None, None, None, [1.0]), ValueError, "params: wanted a dictionary by name, got list"),
    ],
)
@pytest.mark.filterwarnings("ignore:relay.build. target_host")
def test_arguments_that_do_not_fit_are_named(arguments, error, message):
    mod = module_of(relay.exp, x=(4,)) if arguments[0] is None else arguments[0]
    with pytest.raises(error, match=message):
        relay.build(mod, *arguments[1:])


def test_a_host_is_part_of_the_target():
    with pytest.warns(DeprecationWarning, match="target_host"):
        lib = relay.build(module_of(relay.exp, x=(4,)), "llvm", "llvm")
    assert lib.target == Target("llvm", host="llvm")
    update = Target.check_and_update_host_consist
    assert update(None) == (None, None)
    assert update({"llvm": 1}, "llvm") == ({Target("llvm", host="llvm"): 1}, Target("llvm"))
    assert update({"cpu": "llvm"}, None, False) == ({"cpu": Target("llvm")}, None)
    assert update(Target("llvm", host="llvm")) == (Target("llvm", host="llvm"), Target("llvm"))


def test_what_only_the_virtual_machine_runs_is_an_error_that_says_so():
    n, x = relay.Any(), relay.var("x", shape=(2,))
    c = relay.var("c", "bool")
    y = relay.var("y", shape=(n, 2))
    for params, body, what in (
        ([y], relay.exp(y), "y has the shape"),
        ([c, x], relay.If(c, relay.exp(x), x), "is a If"),
    ):
        mod = tvm.IRModule.from_expr(relay.Function(params, body))
        with pytest.raises(CodegenError, match=rf"main: .*{what}.*relay.vm.compile"):
            relay.build(mod, "llvm")


# -- parameters and files --------------------------------------------------------------------------


def test_a_saved_module_is_loaded_and_gives_the_same(tmp_path):
    lib = relay.build(module_of(dense, x=(10, 10), w=(7, 10)), "llvm", params={"w": W})
    want = run(lib, x=X)[0]
    for name in ("model.so", "model.tar"):
        lib.export_library(str(tmp_path / name))
        loaded = load_module(str(tmp_path / name))
        assert np.array_equal(run(loaded, x=X)[0], want)
        assert loaded.get_graph_json() == lib.get_graph_json()
    data = bytearray((tmp_path / "model.tar").read_bytes())
    at = data.index(b'"nodes"')
    data[at : at + 7] = b'"knots"'
    (tmp_path / "bad.tar").write_bytes(data)
    with pytest.raises(ValueError, match="bad.tar: graph: 'nodes' is missing"):
        load_module(tmp_path / "bad.tar")


@pytest.mark.parametrize("flag", ["-link-params", "--link-params=1"])
def test_linked_parameters_are_in_the_library(tmp_path, flag):
    mod = module_of(dense, x=(10, 10), w=(7, 10))
    lib = relay.build(mod, f"llvm {flag}", params={"w": W})
    assert lib.get_params() == {}
    want = run(relay.build(mod, "llvm", params={"w": W}), x=X)[0]
    assert np.array_equal(run(lib, x=X)[0], want)
    lib.get_lib().export_library(tmp_path / "kernels.so")
    module = graph_executor.create(
        lib.get_graph_json(), load_module(tmp_path / "kernels.so"), tvm.cpu()
    )
    module.run(x=X)
    assert np.array_equal(module.get_output(0).numpy(), want)
    assert module.get_input_info()[0] == {"x": (10, 10)}
    # The library's own array is not written into.
    module.set_input("p0", np.zeros_like(module.get_input("p0").numpy()))
    module.run()
    assert not module.get_output(0).numpy().any()
    assert np.array_equal(run(lib, x=X)[0], want)


def test_parameters_are_kept_by_their_names_in_the_graph():
    lib = relay.build(module_of(dense, x=(10, 10), w=(7, 10)), "llvm", params={"w": W, "no": W})
    assert list(lib.get_params()) == ["p0"]
    again = load_param_dict(save_param_dict(lib.get_params()))
    assert np.array_equal(again["p0"].numpy(), lib.get_params()["p0"].numpy())


def test_a_build_module_builds_in_steps():
    built = relay.build_module.BuildModule()
    mod = module_of(dense, x=(10, 10), w=(7, 10))
    with pytest.raises(PassError, match="call build first"):
        built.get_json()
    built.set_params({"w": W})
    optimized, left = built.optimize(mod, "llvm")
    assert left == {}
    assert "R.matmul" in optimized.script()
    graph, lib, params = built.build(mod, "llvm")
    assert graph == built.get_json() == built.get_graph_json()
    assert lib is built.get_module()
    assert params is built.get_params()
    assert calls(relay.build(mod, "llvm", params={"w": W})) == [
        n["name"] for n in json.loads(graph)["nodes"] if n["op"] == "tvm_op"
    ]
