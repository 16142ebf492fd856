"""What goes wrong while a program runs names the ONNX node, or the line of the source, in both
modes, also for a program from a file.
"""

import functools
import linecache

import numpy as np
import pytest
from onnx import TensorProto, helper

import relaxvm
from relaxvm import relax
from relaxvm.base import LimitError, VMValueError
from relaxvm.relax.frontend.onnx import from_onnx, graph
from relaxvm.runtime import VirtualMachine, cpu, load

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
MODES = ("compiled", "bytecode")


def node(kind, inputs, output, name, **attributes):
    return helper.make_node(kind, inputs, [output], name, **attributes)


def model(nodes, inputs, dtype=FLOAT):
    infos = [helper.make_tensor_value_info(name, *each) for name, each in inputs.items()]
    result = helper.make_tensor_value_info(nodes[-1].output[0], dtype, None)
    whole = helper.make_graph(nodes, "g", infos, [result])
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


# Of what goes wrong: the model, arguments, the message, which nodes are told.
CASES = {
    "shapes that do not broadcast": (
        model(
            [node("Add", ["x", "y"], "s", "sum1"), node("Exp", ["s"], "z", "exp1")],
            {"x": (FLOAT, ["a"]), "y": (FLOAT, ["b"])},
        ),
        [np.ones(3, "float32"), np.ones(4, "float32")],
        "do not broadcast",
        "ONNX node sum1 (Add)",
    ),
    "a shape that does not fit": (
        model(
            [node("Reshape", ["x", "s"], "r", "reshape1"), node("Exp", ["r"], "z", "exp1")],
            {"x": (FLOAT, ["n"]), "s": (INT64, [2])},
        ),
        [np.ones(7, "float32"), np.array([2, 3])],
        "wanted shape_0 . shape_1 = 6",
        "ONNX node reshape1 (Reshape)",
    ),
    "an allocation that is too large": (
        model(
            [node("Expand", ["x", "s"], "r", "expand1"), node("Exp", ["r"], "z", "exp1")],
            {"x": (FLOAT, [1]), "s": (INT64, [2])},
        ),
        [np.ones(1, "float32"), np.array([1 << 30, 1 << 30])],
        "alloc_storage: wanted a size",
        "ONNX node expand1 (Expand) + ONNX node exp1 (Exp)",
    ),
    "a size that overflows": (
        model([node("ConstantOfShape", ["s"], "z", "fill1")], {"s": (INT64, [2])}),
        [np.array([1 << 40, 1 << 40])],
        "does not fit 64 bits",
        "ONNX node fill1 (ConstantOfShape)",
    ),
    "an index that is out of range, in a kernel of several nodes": (
        model(
            [node("Gather", ["x", "i"], "g", "gather1"), node("Exp", ["g"], "z", "exp1")],
            {"x": (FLOAT, ["n"]), "i": (INT64, [2])},
        ),
        [np.ones(7, "float32"), np.array([20, 3])],
        "out of bounds",
        "ONNX node gather1 (Gather) + ONNX node exp1 (Exp)",
    ),
    "a step of nothing": (
        model(
            [node("Range", ["a", "b", "c"], "z", "range1")],
            {name: (INT64, []) for name in "abc"},
            INT64,
        ),
        [np.array(0), np.array(5), np.array(0)],
        "match_cast arange_sizes",
        "ONNX node range1 (Range)",
    ),
}


@functools.cache
def built(name):
    return relaxvm.load(CASES[name][0])


def sources_of(error):
    """What the notes of VM frames say that instructions come from."""
    notes = [n for n in error.__notes__ if n.startswith("  in VM function")]
    return [n.partition("\n    from ")[2] for n in notes]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_what_goes_wrong_names_the_node(name, mode):
    _, args, message, nodes = CASES[name]
    for program in (built(name), load(built(name).to_bytes())):
        with pytest.raises(VMValueError, match=message) as caught:
            VirtualMachine(program, cpu(), exec_mode=mode)["main"](*args)
        assert sources_of(caught.value) == [nodes]
    with pytest.raises(VMValueError, match=message) as caught:
        VirtualMachine(built(name).stripped(), cpu(), exec_mode=mode)["main"](*args)
    assert sources_of(caught.value) == [""]


@pytest.mark.parametrize("name", list(CASES)[:2])
def test_limits_and_instruments_name_it_too(name):
    _, args, message, nodes = CASES[name]
    for options in ({"max_instructions": 1000}, {"memory_cfg": "naive"}):
        vm = VirtualMachine(built(name), cpu(), **options)
        with pytest.raises(VMValueError, match=message) as caught:
            vm["main"](*args)
        assert sources_of(caught.value) == [nodes]


@pytest.mark.parametrize("mode", MODES)
def test_a_node_that_onnx_itself_runs_is_named(monkeypatch, mode):
    nodes = [node("Exp", ["x"], "e", "exp1"), node("Det", ["e"], "z", "det1")]
    proto = model(nodes, {"x": (FLOAT, [2, 2])})
    real = graph.find
    monkeypatch.setattr(graph, "find", lambda d, n, v: None if n == "Det" else real(d, n, v))
    with pytest.warns(UserWarning, match="onnx.reference"):
        program = relax.build(from_onnx(proto, fallback="reference"))
    (extern,) = program.needs()

    class Mine(Exception):
        pass

    def raising(*args):
        raise Mine("inside")

    vm = VirtualMachine(program, cpu(), functions={extern: raising}, exec_mode=mode)
    with pytest.raises(Mine) as caught:
        vm["main"](np.ones((2, 2), "float32"))
    assert sources_of(caught.value) == ["ONNX node det1 (Det)"]


SCRIPT = """
from relaxvm.script import ir as I, relax as R

@I.ir_module
class Model:
    @R.function
    def main(
        x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32"), c: R.Tensor((), "bool")
    ):
        n = T.int64()
        a = R.exp(x)
        if c:
            r = helper(a, y)
        else:
            r = R.call_pure_packed("env.mine", a, sinfo_args=R.Tensor(ndim=1, dtype="float32"))
        return r

    @R.function
    def helper(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
        n = T.int64()
        z = R.match_cast(y, R.Tensor((n,), "float32"))
        return R.add(x, z)

    @R.function
    def down(x: R.Tensor((), "int64"), y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        if R.less(x, R.const(0, "int64")):
            r = R.call_pure_packed("env.mine", y, sinfo_args=R.Tensor((2,), "float32"))
        else:
            s = down(R.subtract(x, R.const(1, "int64")), y)
            r = R.add(s, s)
        return r
""".replace("relax as R\n", "relax as R, tir as T\n")


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("scripts") / "model.py"
    path.write_text(SCRIPT)
    linecache.checkcache(str(path))
    space = {}
    exec(compile(SCRIPT, str(path), "exec"), space)
    return relax.build(space["Model"])


def lines_of(error):
    return [each.partition("model.py:")[2].partition(":")[0] for each in sources_of(error)]


X, TRUE, FALSE = np.ones(2, "float32"), np.array(True), np.array(False)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("saved", [False, True])
def test_a_module_of_a_python_file_names_its_lines(script, mode, saved):
    program = load(script.to_bytes()) if saved else script

    class Mine(Exception):
        pass

    def raising(x):
        raise Mine("inside")

    vm = VirtualMachine(program, cpu(), functions={"env.mine": raising}, exec_mode=mode)
    with pytest.raises(VMValueError, match="match_cast z") as caught:
        vm["main"](X, np.ones(3, "float32"), TRUE)
    helper_line, main_line = lines_of(caught.value)
    assert SCRIPT.splitlines()[int(helper_line) - 1].strip().startswith("z = R.match_cast")
    assert SCRIPT.splitlines()[int(main_line) - 1].strip() == "r = helper(a, y)"
    with pytest.raises(Mine, match="inside") as caught:
        vm["main"](X, X, FALSE)
    (line,) = lines_of(caught.value)
    assert "env.mine" in SCRIPT.splitlines()[int(line) - 1]
    assert caught.traceback[-1].name == "raising"


@pytest.mark.parametrize("mode", MODES)
def test_a_deep_recursion_leaves_few_notes(script, mode):
    def raising(x):
        raise ValueError("inside")

    vm = VirtualMachine(script, cpu(), functions={"env.mine": raising}, exec_mode=mode)
    with pytest.raises(ValueError, match="inside") as caught:
        vm["down"](np.array(200), X)
    notes = caught.value.__notes__
    assert len(notes) == 17 and sum("more VM frames" in n for n in notes) == 1
    assert "env.mine" in SCRIPT.splitlines()[int(lines_of(caught.value)[0]) - 1]
    with pytest.raises(LimitError, match="max_depth") as caught:
        VirtualMachine(
            script, cpu(), functions={"env.mine": raising}, exec_mode=mode, max_depth=50
        )["down"](np.array(2000), X)
    assert len(caught.value.__notes__) == 17
