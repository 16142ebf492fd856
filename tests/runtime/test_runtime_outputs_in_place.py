"""Fields of tuples that machine code computes right in the caller's memory."""

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import DataType, VMValueError
from relaxvm.runtime import (
    ExecBuilder,
    PrimInfo,
    TensorInfo,
    TupleInfo,
    VirtualMachine,
    array,
)
from relaxvm.runtime.outputs import Destination
from relaxvm.script import from_source
from relaxvm.target import compile_kernels, compile_program

pytestmark = pytest.mark.vm_modes

SOURCE = """
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @R.function
    def pair(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")):
        a = R.add(x, y)
        b = R.multiply(a, y)
        return (a, (b, R.subtract(x, y)))

    @R.function
    def twice(x: R.Tensor((3, 4), "float32")):
        a = R.add(x, x)
        return (a, a)

    @R.function
    def seen(x: R.Tensor((3, 4), "float32")):
        a = R.add(x, x)
        return (a, R.reshape(a, (4, 3)))

    @R.function
    def given(x: R.Tensor((3, 4), "float32"), t: R.Tuple(R.Tensor((3, 4), "float32"))):
        return (R.add(x, t[0]), t[0])
"""

TURN = """
@I.ir_module
class Kernels:
    @T.prim_func
    def turn(x: T.Buffer((1000,), "float32"), y: T.Buffer((1000,), "float32")):
        T.func_attr({"tir.noalias": True})
        for i in range(1000):
            y[i] = x[999 - i] + T.float32(1)
"""


@pytest.fixture(scope="module")
def executable():
    return relax.build(from_source(SOURCE), "llvm")


@pytest.fixture
def vm(executable):
    return VirtualMachine(executable)


@pytest.fixture
def placed(monkeypatch):
    """The addresses of the results of each call."""
    found = []
    write = Destination.write

    def spy(self, value):
        waiting, leaves = [value], []
        while waiting:
            each = waiting.pop(0)
            waiting[:0] = each if type(each) is tuple else []
            leaves += [] if type(each) is tuple else [each.array.ctypes.data]
        found.append(leaves)
        return write(self, value)

    monkeypatch.setattr(Destination, "write", spy)
    return found


def ramp(*shape, start=1.0):
    return np.arange(start, start + np.prod(shape), dtype="float32").reshape(shape)


def fresh(*shape):
    return np.full(shape, -1, "float32")


def check_pair(out, x, y):
    a, (b, c) = (np.asarray(out[0]), tuple(np.asarray(o) for o in out[1]))
    np.testing.assert_array_equal(a, x + y)
    np.testing.assert_array_equal(b, (x + y) * y)
    np.testing.assert_array_equal(c, x - y)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_fields_are_computed_where_they_are_wanted(vm, vm_mode, placed, rows):
    x, y = ramp(rows, 4), ramp(rows, 4, start=5)
    out = (fresh(rows, 4), (array(fresh(rows, 4)), fresh(rows, 4)))
    assert vm["pair"](x, y, out=out) is out
    check_pair(out, x, y)
    wanted = [out[0].ctypes.data, out[1][0].numpy().ctypes.data, out[1][1].ctypes.data]
    assert (placed[0] == wanted) == (vm_mode == "compiled" and rows > 0)


def test_a_field_that_is_not_given_is_a_new_one(vm):
    x, y = ramp(3, 4), ramp(3, 4, start=5)
    first = fresh(3, 4)
    a, (b, c) = vm["pair"](x, y, out=(first, (None, None)))
    assert a is first
    check_pair((a, (b, c)), x, y)
    again = vm["pair"](y, x, out=(first, (None, None)))
    check_pair(again, y, x)
    np.testing.assert_array_equal(b.numpy(), (x + y) * y)


def test_destinations_may_share_memory_with_arguments(vm, placed):
    x, y = ramp(3, 4), ramp(3, 4, start=5)
    kept = x.copy(), y.copy()
    out = (x, (y, fresh(3, 4)))
    vm["pair"](x, y, out=out)
    check_pair(out, *kept)
    assert x.ctypes.data not in placed[0]
    whole = ramp(6, 4)
    x, y = whole[:3], whole[2:5]
    kept = x.copy(), y.copy()
    out = (whole[1:4], (fresh(3, 4), fresh(3, 4)))
    vm["pair"](x, y, out=out)
    check_pair(out, *kept)


def test_destinations_with_gaps_are_copied_to(vm):
    x, y = ramp(3, 4), ramp(3, 4, start=5)
    out = (fresh(3, 8)[:, ::2], (fresh(4, 3).T, fresh(3, 4)[::-1]))
    vm["pair"](x, y, out=out)
    check_pair(out, x, y)


def test_what_is_returned_twice_or_seen_otherwise_is_copied(vm):
    x = ramp(3, 4)
    a, b = fresh(3, 4), fresh(3, 4)
    vm["twice"](x, out=(a, b))
    np.testing.assert_array_equal(a, x + x)
    np.testing.assert_array_equal(b, x + x)
    _, other = vm["seen"](x, out=(a, None))
    a[...] = 0
    np.testing.assert_array_equal(other.numpy(), (x + x).reshape(4, 3))


def test_arrays_inside_of_tuples_are_apart_or_copied(vm):
    x, t = ramp(3, 4), ramp(3, 4, start=5)
    held, a = array(t), fresh(3, 4)
    for first in (a, held):
        b = fresh(3, 4)
        vm["given"](x, (held,), out=(first, b))
        np.testing.assert_array_equal(np.asarray(first), x + t)
        np.testing.assert_array_equal(b, t)
        held = array(t)


def test_memory_of_the_same_size_and_another_shape_is_refused(vm):
    with pytest.raises(VMValueError, match=r"wanted shape \(3, 4\), got \(6, 2\)|axis 1: wanted 4"):
        vm["pair"](ramp(3, 4), ramp(3, 4), out=(fresh(6, 2), (None, None)))


def test_stateful_calls_write_there_too(vm, vm_mode, placed):
    x, y = ramp(3, 4), ramp(3, 4, start=5)
    out = (fresh(3, 4), (fresh(3, 4), fresh(3, 4)))
    vm.set_input("pair", x, y)
    vm.set_output("pair", out)
    for _ in range(2):
        vm.invoke_stateful("pair")
    check_pair(vm.get_outputs("pair"), x, y)
    assert (placed[1][0] == out[0].ctypes.data) == (vm_mode == "compiled")


def turning(returns):
    """main(x, flag), which turns `x` round where flag holds, else turns that round again: one
    return for each, or a tuple of what both are after a branch.
    """
    size, f32 = 1000, DataType("float32")
    kernels = compile_kernels(from_source(TURN))
    b, x = ExecBuilder(), TensorInfo(f32, 1, (size,))
    b.add_kernels(kernels.section)

    def turned(of, to):
        storage = [4 * size, 0, DataType("uint8"), "global"]
        b.emit_call("vm.builtin.alloc_storage", storage, b.r(to + 1))
        b.emit_call("vm.builtin.alloc_tensor", [b.r(to + 1), 0, (size,), f32], b.r(to))
        b.emit_call("turn", [b.r(of), b.r(to)])

    ret = x if returns else TupleInfo((x, x))
    with b.function("main", 2, ["x", "flag"], [x, PrimInfo(DataType("bool"))], ret):
        turned(0, 2)
        b.emit_if(b.r(1), 2)
        if returns:
            b.emit_ret(b.r(2))
        else:
            b.emit_goto(1)
        turned(2, 4)
        if returns:
            b.emit_ret(b.r(4))
        else:
            b.emit_call("vm.builtin.make_tuple", [b.r(2), b.r(4)], b.r(6))
            b.emit_ret(b.r(6))
    return VirtualMachine(compile_program(b.get(), kernels))["main"]


@pytest.mark.parametrize("flag", [True, False])
def test_only_one_of_the_results_of_several_returns_takes_the_destination(flag):
    main, x, out = turning(True), ramp(1000), fresh(1000)
    assert main(x, flag, out=out) is out
    np.testing.assert_array_equal(out, x[::-1] + 1 if flag else x + 2)
    np.testing.assert_array_equal(main(x, flag).numpy(), out)


@pytest.mark.parametrize("flag", [True, False])
def test_fields_of_several_blocks_are_computed_where_they_are_wanted(vm_mode, placed, flag):
    main, x, out = turning(False), ramp(1000), (fresh(1000), fresh(1000))
    assert main(x, flag, out=out) is out
    np.testing.assert_array_equal(out[0], x[::-1] + 1)
    np.testing.assert_array_equal(out[1], x + 2)
    assert (placed[0] == [each.ctypes.data for each in out]) == (vm_mode == "compiled")
