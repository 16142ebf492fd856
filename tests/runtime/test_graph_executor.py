"""Graphs in TVM's JSON form: what is refused, and how they run."""

import copy
import json
import random

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relay
from relaxvm.base import LoadError, RelaxvmError, VMTypeError, VMValueError
from relaxvm.contrib import graph_executor, utils
from relaxvm.contrib.debugger import debug_executor
from relaxvm.runtime import load_param_dict_from_file, read_graph, register_func, save_param_dict

X = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")


@pytest.fixture(scope="module")
def lib():
    """exp(x) in another shape, times a constant, summed: four nodes."""
    x = relay.var("x", shape=(4, 6))
    y = relay.reshape(relay.exp(x), (6, 4))
    y = relay.nn.dense(y, relay.const(np.ones((5, 4), "float32")))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.sum(y, axis=1)))
    return relay.build(mod, "llvm")


@pytest.fixture
def plain(lib):
    return json.loads(lib.get_graph_json())


@pytest.fixture
def module(lib):
    return graph_executor.GraphModule(lib["default"](tvm.cpu()))


WANTED = np.exp(X).reshape(6, 4).sum(1) * 5


def create(plain, lib):
    return graph_executor.create(json.dumps(plain), lib, tvm.cpu())


def test_the_graph_has_four_calls_and_a_view(plain):
    names = [node["name"].removeprefix("tvmgen_default_fused_") for node in plain["nodes"]]
    assert names == ["x", "exp", "reshape_nop", "p0", "nn_dense", "sum"]
    assert plain["attrs"]["storage_id"][1] == [0, 1, 1, 2, 3, 4]


def edit(path, value):
    """A change of a graph: `value` at `path`, or `value` is a function of what is there."""

    def apply(plain):
        at = plain
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value(at[path[-1]]) if callable(value) else value

    return apply


def one_storage_for_two_that_live(plain):
    plain["attrs"]["storage_id"][1][4] = 1


def a_result_that_is_overwritten(plain):
    plain["heads"].append([1, 0, 0])
    plain["attrs"]["storage_id"][1][5] = 1


BROKEN = {
    "a circle": (edit(("nodes", 1, "inputs"), [[5, 0, 0]]), r"exp\): input 0: it reads node 5"),
    "itself": (edit(("nodes", 1, "inputs"), [[1, 0, 0]]), r"exp\): input 0: it reads node 1"),
    "a node that is not there": (edit(("nodes", 4, "inputs", 0), [9, 0, 0]), "there is no node 9"),
    "an output that is not there": (edit(("heads", 0), [5, 1, 0]), r"sum\) has no output 1"),
    "storage of a value that is read": (one_storage_for_two_that_live, "dense writes into storage"),
    "storage of a result": (a_result_that_is_overwritten, "sum writes into storage 1, where the"),
    "storage of an input": (
        edit(("attrs", "storage_id", 1, 4), 0),
        "dense writes into storage 0, where the value of x lies",
    ),
    "a view elsewhere": (edit(("attrs", "storage_id", 1, 2), 9), "__nop copies nothing"),
    "a view of another size": (edit(("attrs", "shape", 1, 2), [6, 5]), r"__nop makes float32 \(6"),
    "another shape": (edit(("attrs", "shape", 1, 4), [6, 6]), r"dense takes .*\(6, 6\)"),
    "another dtype": (edit(("attrs", "dltype", 1, 4), "int32"), "dense takes .* int32"),
    "no dtype": (edit(("attrs", "dltype", 1, 4), "float33"), "dense.*float33"),
    "a size below zero": (edit(("attrs", "shape", 1, 0), [-1, 6]), r"node 0 \(x\)"),
    "a size beyond memory": (edit(("attrs", "shape", 1, 0), [1 << 60, 6]), "is too large"),
    "too few shapes": (edit(("attrs", "shape", 1), lambda s: s[1:]), "shape: wanted 6"),
    "no function": (edit(("nodes", 5, "attrs", "func_name"), "tvmgen_x"), "no function 'tvmgen_x'"),
    "a function of other arguments": (
        edit(("nodes", 5, "attrs", "func_name"), "vm.library.sort"),
        r"node .*sum: vm.library.sort: missing a required argument",
    ),
    "another count": (edit(("nodes", 5, "attrs", "num_inputs"), "2"), "num_inputs is 2, but"),
    "another kind": (edit(("nodes", 5, "op"), "tf_op"), "'null' or 'tvm_op', got 'tf_op'"),
    "an argument that is none": (edit(("arg_nodes",), [0, 1]), "1 is no argument"),
    "an argument left out": (edit(("arg_nodes",), [0]), "missing: p0"),
    "two of a name": (edit(("nodes", 3, "name"), "x"), "nodes 0 and 3 are both called 'x'"),
    "rows that fall": (edit(("node_row_ptr",), [0, 1, 2, 1, 4, 5, 6]), "node_row_ptr"),
    "an input twice used as output": (
        edit(("nodes", 5, "attrs", "func_name"), "tvmgen_default_fused_exp"),
        "exp takes",
    ),
    "a missing copy": (edit(("attrs", "device_index", 1, 4), 2), r"several devices \(1, 2\)"),
    "flattened arrays": (edit(("nodes", 5, "attrs", "flatten_data"), "1"), "flatten_data"),
    "a field": (lambda plain: plain.pop("heads"), "'heads' is missing"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_graph_that_may_not_run_is_an_error_that_names_the_node(what, plain, lib):
    change, message = BROKEN[what]
    change(plain)
    with pytest.raises(LoadError, match=message):
        create(plain, lib)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000, '{"nodes": 1}', "\ud800"])
def test_text_that_is_no_graph_is_refused(text):
    with pytest.raises(LoadError, match="graph"):
        read_graph(text)


def test_graphs_with_anything_changed_are_refused_or_run(plain, lib):
    rng = random.Random(0)
    odd = [
        None,
        True,
        -1,
        0,
        1,
        2,
        7,
        1 << 70,
        1.5,
        "",
        "x",
        "__nop",
        "__copy",
        [],
        {},
        [[0, 0, 0]],
    ]
    refused = 0
    for _ in range(1500):
        changed = copy.deepcopy(plain)
        for _ in range(rng.choice((1, 1, 2))):
            at = changed
            while True:
                keys = list(at) if isinstance(at, dict) else range(len(at))
                if not keys:
                    break
                key = rng.choice(list(keys))
                if isinstance(at[key], (dict, list)) and at[key] and rng.random() < 0.85:
                    at = at[key]
                    continue
                at[key] = rng.choice(odd)
                break
        try:
            made = create(changed, lib)
            made.run(**{n: np.zeros(s, d) for (n, s), d in _inputs(made)})
        except RelaxvmError:
            refused += 1
    assert refused > 1000


def _inputs(module):
    shapes, dtypes = module.get_input_info()
    return zip(shapes.items(), dtypes.values())


def test_inputs_are_set_by_name_by_place_and_together(module):
    for give in (
        lambda: module.set_input("x", X),
        lambda: module.set_input(0, X),
        lambda: module.set_input(x=X.tolist()),
        lambda: module.set_input_zero_copy("x", X),
        lambda: module.get_input("x").copyfrom(X),
    ):
        module.set_input("x", np.zeros_like(X))
        give()
        module.run()
        np.testing.assert_allclose(module.get_output(0).numpy(), WANTED, rtol=1e-5)
    assert (module.get_num_inputs(), module.get_num_outputs()) == (2, 1)
    assert module.get_input_index("p0") == 1
    assert module.get_input_index("nobody") == -1
    assert module.get_input_info() == ({"x": (4, 6)}, {"x": "float32"})


def test_results_stay_as_they_were_and_may_be_written_elsewhere(module):
    module.run(x=X)
    first, into = module.get_output(0), np.empty(6, "float32")
    module.run(x=X * 0)
    np.testing.assert_allclose(first.numpy(), WANTED, rtol=1e-5)
    assert module.get_output(0, into) is into
    assert into.tolist() == [20] * 6
    mine = tvm.nd.empty((6,))
    module.set_output_zero_copy(0, mine)
    module.run(x=X)
    np.testing.assert_allclose(mine.numpy(), WANTED, rtol=1e-5)
    view = module.debug_get_output("reshape_nop").numpy()
    np.testing.assert_allclose(view.sum(1) * 5, WANTED, rtol=1e-5)


def test_memory_that_was_given_is_read_and_not_written(module):
    mine = X.copy()
    module.set_input_zero_copy("x", mine)
    module.run()
    mine[:] = 0
    module.run()
    assert module.get_output(0).numpy().tolist() == [20] * 6


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda m: m.set_input("z", X), VMValueError, "no input 'z'; it has: x, p0"),
        (lambda m: m.set_input(2, X), VMValueError, "no input 2; the graph has 2"),
        (lambda m: m.set_input("x", X.T), VMValueError, r"input x: .*\(4, 6\)"),
        (lambda m: m.set_input_zero_copy("x", X[:, ::2]), VMValueError, "input x: wanted shape"),
        (lambda m: m.set_input_zero_copy("x", X.astype("float64")), VMTypeError, "wanted float32"),
        (lambda m: m.get_output(1), VMValueError, "no output 1; the graph has 1"),
        (lambda m: m.run(), VMValueError, "inputs were never set: x"),
        (lambda m: m["walk"], VMValueError, "no function 'walk'; it has: set_input"),
        (lambda m: m.debug_get_output("nobody"), VMValueError, "no node 'nobody'"),
        (lambda m: graph_executor.GraphModule(m), VMTypeError, r'wanted lib\["default"\]\(dev\)'),
    ],
)
def test_uses_that_do_not_fit_are_named(module, use, error, message):
    with pytest.raises(error, match=message):
        use(module)


def test_parameters_are_loaded_and_shared(lib):
    data = save_param_dict(lib.get_params())
    one = graph_executor.create(lib.get_graph_json(), lib, tvm.cpu())
    with pytest.raises(VMValueError, match="never set: x, p0"):
        one.run()
    one.load_params(data)
    other = graph_executor.create(lib.get_graph_json(), lib.get_lib(), tvm.cpu())
    other.share_params(one, data)
    one.get_input("p0").copyfrom(np.zeros_like(one.get_input("p0").numpy()))
    other.run(x=X)
    assert not other.get_output(0).numpy().any()
    with pytest.raises(VMValueError, match="no input 'p7'"):
        one.load_params(save_param_dict({"p7": X}))


def test_runs_are_measured(module):
    module.set_input("x", X)
    assert len(module.benchmark(tvm.cpu(), repeat=2, number=1).results) == 2
    assert module.benchmark(end_to_end=True, repeat=1, number=1, x=X).mean > 0
    timer = module.module.time_evaluator("run", tvm.cpu(), number=1, repeat=3)
    assert len(timer().results) == 3


def test_a_graph_of_tvm_s_own_writing_runs_with_registered_functions():
    """As TVM writes it, without device_index and with attributes that mean nothing here."""
    register_func("test.graph.add", lambda a, b, out: out.copyfrom(a.numpy() + b.numpy()), True)
    plain = {
        "nodes": [
            {"op": "null", "name": "a", "inputs": []},
            {"op": "null", "name": "b", "inputs": []},
            {
                "op": "tvm_op",
                "name": "add",
                "attrs": {
                    "func_name": "test.graph.add",
                    "flatten_data": "0",
                    "num_inputs": "2",
                    "num_outputs": "1",
                    "hash": "d1f0",
                },
                "inputs": [[0, 0, 0], [1, 0, 0]],
            },
        ],
        "arg_nodes": [0, 1],
        "heads": [[2, 0, 0]],
        "attrs": {
            "shape": ["list_shape", [[3], [3], [3]]],
            "dltype": ["list_str", ["float32"] * 3],
            "storage_id": ["list_int", [0, 1, 2]],
        },
        "node_row_ptr": [0, 1, 2, 3],
    }
    x = relay.var("x", shape=(1,))
    module = create(plain, relay.build(tvm.IRModule.from_expr(relay.Function([x], x)), "llvm"))
    module.run(a=[1, 2, 3], b=[4, 5, 6])
    assert module.get_output(0).numpy().tolist() == [5, 7, 9]


# -- node by node ----------------------------------------------------------------------------------


def test_a_debug_executor_tells_what_each_node_took_and_gave(lib, capsys):
    folder = utils.tempdir()
    module = debug_executor.create(
        lib.get_graph_json(), lib, tvm.cpu(), dump_root=folder.relpath("look")
    )
    module.run(x=X)
    table = capsys.readouterr().out
    assert "tvmgen_default_fused_nn_dense" in table
    assert "Total_time" in table
    np.testing.assert_allclose(module.get_output(0).numpy(), WANTED, rtol=1e-5)
    given = load_param_dict_from_file(f"{module.dump_path}/output_tensors.params")
    exp = given["tvmgen_default_fused_exp____topo-index:1____output-num:0"]
    np.testing.assert_allclose(exp.numpy(), np.exp(X), rtol=1e-6)
    with open(f"{module.dump_path}/_tvmdbg_graph_dump.json", encoding="utf-8") as file:
        assert json.load(file)["nodes"][1]["attrs"]["time_us"] > 0
    with open(f"{module.dump_path}/_tvmdbg_execution_trace.json", encoding="utf-8") as file:
        assert len(json.load(file)["traceEvents"]) == 2 * 3
    took = module.run_individual(number=1, repeat=2)
    assert [len(each) for each in took] == [2] * 6
    assert took[2] == [0.0, 0.0]
    assert module.run_individual_node("reshape_nop").mean == 0
    assert module.run_individual_node(1, number=1).mean > 0
    assert "Total_time" in module.profile(x=X)
    module.exit()
    assert utils.tempdir(folder.path).listdir() == ["look"]
    folder.remove()


def test_a_debug_executor_is_made_of_the_module_too(lib):
    module = debug_executor.GraphModuleDebug(
        lib["debug_create"]("default", tvm.cpu()), [tvm.cpu()], lib.get_graph_json(), None
    )
    with pytest.raises(VMValueError, match="nothing has been run yet"):
        module.get_debug_result()
    with pytest.raises(VMValueError, match="inputs were never set: x"):
        module.run()
