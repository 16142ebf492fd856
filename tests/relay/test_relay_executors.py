"""`relay.vm`, `relay.create_executor`, and graphs on several devices."""

import json

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relay, runtime
from relaxvm.base import CodegenError, LoadError, PassError, VMValueError
from relaxvm.contrib import graph_executor
from relaxvm.ir import VDevice
from relaxvm.relax.op import hint_on_device

X, Y = np.random.default_rng(0).random((2, 2, 3)).astype("float32") + 1


def two():
    return relay.var("x", shape=(2, 3)), relay.var("y", shape=(2, 3))


def sums():
    x, y = two()
    return tvm.IRModule.from_expr(relay.Function([x, y], relay.Tuple([x + y, x - y])))


@pytest.mark.parametrize("kind", ["graph", "vm", "debug"])
def test_an_executor_evaluates_main_functions_and_expressions(kind):
    executor = relay.create_executor(kind, sums(), tvm.cpu(), "llvm")
    for args, named in (((X, Y), {}), ((X,), {"y": Y})):
        total, difference = executor.evaluate()(*args, **named)
        assert np.array_equal(total.numpy(), X + Y)
        assert np.array_equal(difference.numpy(), X - Y)
    x, y = two()
    call = executor.evaluate(relay.Function([x, y], relay.multiply(x, y)))
    assert np.array_equal(call(X, Y).numpy(), X * Y)
    assert relay.create_executor(kind).evaluate(relay.const(1) + relay.const(2)).numpy() == 3
    bound = relay.create_executor(kind, sums(), params={"y": Y}).evaluate()(X)
    assert np.array_equal(bound[0].numpy(), X + Y)


@pytest.mark.parametrize("kind", ["graph", "vm", "debug"])
def test_an_executor_takes_numbers(kind):
    n, x = relay.var("n", "int32"), relay.var("x", "float32")
    call = relay.create_executor(kind).evaluate(
        relay.Function([n, x], relay.cast(n, "float32") * x)
    )
    assert call(3, 0.5).numpy() == call(3, x=0.5).numpy() == 1.5


@pytest.mark.parametrize("kind", ["vm", "debug"])
def test_an_executor_takes_tuples_of_numbers_and_bools(kind):
    pair = relay.var(
        "pair", relay.TupleType([relay.scalar_type("bool"), relay.scalar_type("int32")])
    )
    body = relay.If(pair[0], pair[1], relay.const(7))
    call = relay.create_executor(kind).evaluate(relay.Function([pair], body))
    assert call((True, 3)).numpy() == 3 and call([False, 3]).numpy() == 7


def test_another_kind_of_executor_is_refused():
    with pytest.raises(ValueError, match="one of graph, vm, debug"):
        relay.create_executor("aot", sums())


def test_programs_for_relay_s_virtual_machine_run():
    exe = relay.vm.compile(sums(), target="llvm", params={"y": Y})
    machine = runtime.vm.VirtualMachine(exe, tvm.cpu())
    machine.set_input("main", X)
    for made in (machine.run(), machine.invoke("main"), machine.run(X), machine.invoke("main", X)):
        assert np.array_equal(made[0].numpy(), X + Y)
    machine.invoke_stateful("main")
    assert np.array_equal(machine.get_outputs()[0].numpy(), X + Y)
    assert machine.get_input_index("x") == 0
    with pytest.raises(VMValueError, match="no parameter 'z'; it has: x"):
        machine.get_input_index("z")
    assert len(machine.benchmark(tvm.cpu(), X, repeat=2, number=1).results) == 2


def test_the_virtual_machine_runs_what_graphs_cannot_say():
    n = relay.Any()
    x = relay.var("x", shape=(n, 2))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    machine = runtime.VirtualMachine(relay.vm.compile(mod, "llvm"))
    assert machine.run(np.zeros((5, 2), "float32")).numpy().tolist() == [[1, 1]] * 5


# -- devices ---------------------------------------------------------------------------------------


def annotated():
    """exp(sqrt(x + y) - log(x + y)), sqrt and exp on a second device."""
    x, y = two()
    total = relay.add(x, y)
    root = hint_on_device(relay.sqrt(total), VDevice("cuda", 0))
    whole = relay.subtract(root, relay.log(total))
    last = hint_on_device(relay.exp(whole), VDevice("cuda", 0))
    return tvm.IRModule.from_expr(relay.Function([x, y], last))


def test_two_devices_have_memory_of_their_own_and_copies_between_them():
    lib = relay.build(annotated(), {"cpu": "llvm", "cuda": "llvm"})
    graph = json.loads(lib.get_graph_json())
    functions = [n.get("attrs", {}).get("func_name") for n in graph["nodes"]]
    assert functions.count("__copy") == 3
    devices, storages = (graph["attrs"][k][1] for k in ("device_index", "storage_id"))
    assert set(devices) == {1, 2}
    assert len({*zip(storages, devices)}) == len({*storages})
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0), tvm.cpu(1)))
    module.run(x=X, y=Y)
    np.testing.assert_allclose(
        module.get_output(0).numpy(), np.exp(np.sqrt(X + Y) - np.log(X + Y)), rtol=1e-5
    )
    assert module.get_output(0).device == tvm.cpu(1)
    with pytest.raises(VMValueError, match=r"lie on 2 devices \(of kinds 1, 2\), got 1"):
        lib["default"](tvm.cpu())


def test_a_copy_that_is_missing_is_an_error():
    lib = relay.build(annotated(), {"cpu": "llvm", "cuda": "llvm"})
    plain = json.loads(lib.get_graph_json())
    nodes = plain["nodes"]
    copied = next(i for i, n in enumerate(nodes) if n["name"] == "__copy")
    reader = next(n for n in nodes if n["inputs"] == [[copied, 0, 0]])
    reader["inputs"] = nodes[copied]["inputs"]
    with pytest.raises(LoadError, match="fused_sqrt.*several devices .1, 2."):
        graph_executor.create(json.dumps(plain), lib, [tvm.cpu(0), tvm.cpu(1)])


def test_devices_without_a_target_are_named():
    with pytest.raises(CodegenError, match=r"cuda.*the targets are for .*llvm.*dictionary"):
        relay.build(annotated(), "llvm")
    with pytest.raises(PassError, match="one target for all devices"):
        relay.build(annotated(), {"cpu": "llvm", "cuda": "llvm -mcpu=x86-64"})


def test_constants_are_where_they_are_read():
    x = relay.var("x", shape=(3,))
    here = relay.add(x, relay.const(np.float32([1, 2, 3])))
    there = hint_on_device(
        relay.multiply(here, relay.const(np.float32([1, 2, 3]))), VDevice("llvm", 1)
    )
    mod = tvm.IRModule.from_expr(relay.Function([x], there))
    lib = relay.build(mod, {tvm.cpu(0): "llvm", tvm.cpu(1): "llvm"})
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0), tvm.cpu(1)))
    module.run(x=[1, 1, 1])
    assert module.get_output(0).numpy().tolist() == [2, 6, 12]
    assert module.get_output(0).device == tvm.cpu(1)
