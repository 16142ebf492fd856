"""What tutorials for Relay ask for beside expressions and passes."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, relay
from relaxvm.base import PassError, StructInfoError, TIRError
from relaxvm.relay.backend import Executor, Runtime
from relaxvm.relay.loops import while_loop
from relaxvm.relay.testing import check_grad
from relaxvm.relay.testing.temp_op_attr import TempOpAttr


def small():
    x = relay.var("x", shape=(2, 3))
    weight = relay.const(np.arange(12).reshape(4, 3), "float32")
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.dense(x, weight))))


def test_a_build_takes_an_executor_and_a_runtime():
    plain = relay.build(small(), "llvm", executor=Executor("graph"), runtime=Runtime("cpp"))
    linked = relay.build(small(), "llvm", executor=Executor("graph", {"link-params": True}))
    assert plain.get_params() and not linked.get_params()
    results = []
    for lib in (plain, linked):
        module = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
        module.set_input("x", np.ones((2, 3), "float32"))
        module.run()
        results.append(module.get_output(0).numpy())
    np.testing.assert_array_equal(*results)
    with pytest.raises(PassError, match=r"wanted one of graph, got 'aot'"):
        Executor("aot")
    with pytest.raises(PassError, match="no option is named 'link'"):
        Executor("graph", {"link": 1})
    with pytest.raises(PassError, match=r"wanted a relay.backend.Executor, got str"):
        relay.build(small(), "llvm", executor="graph")
    with pytest.raises(PassError, match='wants target "c"'):
        relay.build(small(), "llvm", runtime=Runtime("crt"))
    assert Executor("graph") == Executor("graph") != Executor("graph", {"link-params": True})


def test_an_executable_is_saved_in_two_parts():
    executable = relay.vm.compile(small(), "llvm")
    code, lib = executable.save()
    assert isinstance(code, bytes) and lib is not None
    again = tvm.runtime.vm.Executable.load_exec(code, lib)
    x = np.ones((2, 3), "float32")
    for each in (executable, again):
        got = tvm.runtime.vm.VirtualMachine(each, tvm.cpu())["main"](x).numpy()
        np.testing.assert_array_equal(got, [[3, 12, 21, 30]] * 2)


def test_an_attribute_of_an_operator_ends_with_its_block():
    op = relay.op.get("nn.relu")
    op.set_attr("once", 1)
    with TempOpAttr("nn.relu", "once", 2), TempOpAttr("nn.relu", "twice", 3):
        assert op.get_attr("once") == 2 and op.get_attr("twice") == 3
    assert op.get_attr("once") == 1 and not op.has_attr("twice")
    op.reset_attr("once")
    with pytest.raises(TIRError, match="no operation is named"):
        TempOpAttr("nn.relo", "once", 2)


def test_gradients_are_checked_by_differences():
    x, y = (relay.var(n, shape=(2, 3), dtype="float64") for n in "xy")
    check_grad(relay.Function([x, y], relay.tanh(x) * relay.exp(y)))
    arrays = [np.ones((2, 3)), np.zeros((2, 3))]
    check_grad(relay.Function([x, y], x * y), arrays, test_inputs=arrays[1:])
    with pytest.raises(AssertionError, match="the gradient by x"):
        # It has a step where it is looked at.
        check_grad(relay.Function([x], relay.nn.relu(x)), [np.zeros((2, 3))])


def test_gradients_go_through_functions_that_stand_in_a_function():
    x, p, q = (relay.var(n, shape=(2, 3), dtype="float64") for n in "xpq")
    inner = relay.Function([q], relay.tanh(q)).with_attr("Primitive", 1)
    outer = relay.Function([p], relay.exp(relay.Call(inner, [p])) * x)
    check_grad(relay.Function([x], relay.Call(outer, [x * x])))


def test_gradients_have_two_modes():
    x = relay.var("x", shape=(2,))
    with pytest.raises(PassError, match="mode: wanted higher_order or first_order, got 'second'"):
        relay.transform.gradient(relay.Function([x], x), mode="second")


@pytest.mark.parametrize("kind", ["vm", "debug"])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_loop_goes_on_while_its_condition_holds(kind, count):
    i = relay.var("i", "int32")
    rows = relay.var("rows", shape=(relay.Any(), 1), dtype="int32")

    def body(i, rows):
        return i + relay.const(1), relay.concatenate([rows, relay.reshape(i, (1, 1))], axis=0)

    loop = while_loop(lambda i, rows: relay.less(i, relay.const(count)), [i, rows], body)
    x = relay.var("x", shape=(1, 1), dtype="int32")
    whole = relay.Function([x], relay.TupleGetItem(loop(relay.const(0), x), 1))
    mod = tvm.IRModule.from_expr(whole)
    got = relay.create_executor(kind, mod).evaluate()(np.int32([[9]])).numpy()
    assert got.tolist() == [[9], *([n] for n in range(count))]
    text = relay.transform.InferType()(mod).astext()
    assert relay.parse(text).astext() == text


def test_a_loop_has_a_next_value_for_each_variable():
    i, n = relay.var("i", "int32"), relay.var("n", "int32")
    with pytest.raises(StructInfoError, match="wanted 2 next values.*got 1"):
        while_loop(lambda i, n: relay.less(i, n), [i, n], lambda i, n: [i])


def test_an_adjoint_that_exists_is_not_replaced():
    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    main = relax.Function([x], relax.op.sum(x))
    mod = relax.transform.Normalize()(tvm.IRModule({"main": main, "main_adjoint": main}))
    with pytest.raises(PassError, match="has a function main_adjoint; rename it"):
        relax.transform.Gradient("main")(mod)
