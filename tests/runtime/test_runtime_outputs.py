"""Destinations of results: ``out=``, `set_output`."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from vm_kernels import section
from vm_modes import precompiled

from relaxvm.base import DataType, VMTypeError, VMValueError
from relaxvm.runtime import (
    ExecBuilder,
    NDArray,
    ObjectInfo,
    PrimInfo,
    ShapeInfo,
    TensorInfo,
    TupleInfo,
    VirtualMachine,
    array,
)

pytestmark = pytest.mark.vm_modes

F32, U8 = DataType("float32"), DataType("uint8")
VECTOR = TensorInfo(F32, 1, (("$n",),))


def four(*values):
    return np.array(values or (0, 0, 0, 0), "float32")


def adder(ret=None) -> ExecBuilder:
    """main(x, y) = x + y on four floats; pair gives (x + y, (x,)); count gives 7."""
    ib = ExecBuilder()
    ib.add_kernels(section())
    tensor = TensorInfo(F32, 1, (4,))
    with ib.function("main", 2, ["x", "y"], [tensor, tensor], ret or tensor):
        ib.emit_call("vm.builtin.alloc_storage", [16, 0, U8, "global"], ib.r(2))
        ib.emit_call("vm.builtin.alloc_tensor", [ib.r(2), 0, (4,), F32], ib.r(3))
        ib.emit_call("add", [ib.r(0), ib.r(1), ib.r(3)])
        ib.emit_ret(ib.r(3))
    pair = TupleInfo((tensor, TupleInfo((tensor,))))
    for name, info in (("pair", pair), ("loose", ObjectInfo())):
        with ib.function(name, 2, ["x", "y"], [tensor, tensor], info):
            ib.emit_call("main", [ib.r(0), ib.r(1)], ib.r(2))
            ib.emit_call("vm.builtin.make_tuple", [ib.r(0)], ib.r(3))
            ib.emit_call("vm.builtin.make_tuple", [ib.r(2), ib.r(3)], ib.r(2))
            ib.emit_ret(ib.r(2))
    with ib.function("count", 0, [], [], PrimInfo(DataType("int64"))):
        ib.emit_ret(ib.imm(7))
    with ib.function("sized", 1, ["x"], [VECTOR], VECTOR):
        ib.emit_ret(ib.r(0))
    with ib.function("shape", 1, ["x"], [VECTOR], ShapeInfo(1)):
        ib.emit_call("vm.builtin.shape_of", [ib.r(0)], ib.r(1))
        ib.emit_ret(ib.r(1))
    with ib.function("named", 1, ["out"], [VECTOR], VECTOR):
        ib.emit_ret(ib.r(0))
    return ib


@functools.lru_cache(maxsize=1)
def executable():
    return precompiled(adder().get())


@pytest.fixture(params=[{}, {"max_instructions": 1000}], ids=["fast", "careful"])
def vm(request, vm_mode):
    return VirtualMachine(executable(), **request.param)


def test_the_result_is_written_there_and_the_object_comes_back(vm):
    main = vm["main"]
    for out in (four(), array(four())):
        assert main(four(1, 2, 3, 4), four(), out=out) is out
        assert np.asarray(out).tolist() == [1, 2, 3, 4]
        assert main(y=four(1, 1, 1, 1), x=four(), out=out) is out
        assert np.asarray(out).tolist() == [1, 1, 1, 1]
    assert type(main(four(), four(), out=None)) is NDArray


def test_any_writable_memory_of_the_right_kind_will_do(vm):
    rows = np.zeros((4, 3), "float32")
    raw = np.zeros(17, "uint8")
    outs = [
        rows[:, 1],
        four()[::-1],
        np.zeros(4, ">f4"),
        raw[1:].view("float32"),
        four().view(np.memmap),
    ]
    for out in outs:
        assert vm["main"](four(1, 2, 3, 4), four(), out=out) is out
        assert out.tolist() == [1, 2, 3, 4]
    assert rows[:, [0, 2]].any() == np.False_


def test_a_torch_tensor_is_written_through_dlpack(vm):
    torch = pytest.importorskip("torch")
    out = torch.zeros(4)
    assert vm["main"](torch.ones(4), four(1, 2, 3, 4), out=out) is out
    assert out.tolist() == [2, 3, 4, 5]
    with pytest.raises(VMTypeError, match="main: out: DLPack: Tensor refused"):
        vm["main"](four(), four(), out=torch.zeros(4, requires_grad=True))


def test_tuples_are_written_part_by_part(vm):
    x, y = four(1, 2, 3, 4), four(1, 1, 1, 1)
    for name in ("pair", "loose"):
        a, b = four(), four()
        out = (a, [array(b)])
        assert vm[name](x, y, out=out) is out
        assert a.tolist() == [2, 3, 4, 5]
        assert out[1][0].numpy().tolist() == [1, 2, 3, 4]
        whole = vm[name](x, y, out=(None, (b,)))
        assert whole[0].numpy().tolist() == [2, 3, 4, 5]
        assert whole[1][0] is b
        first = vm[name](x, y, out=(a, None))
        assert first[0] is a
        assert first[1][0].numpy().tolist() == [1, 2, 3, 4]


def test_a_destination_may_share_memory_with_an_argument(vm):
    x = four(1, 2, 3, 4)
    assert vm["main"](x, x, out=x).tolist() == [2, 4, 6, 8]
    base = np.arange(5, dtype="float32")
    vm["main"](base[:4], base[:4], out=base[1:])
    assert base.tolist() == [0, 0, 2, 4, 6]
    # The second result is x itself, over which the first is written.
    x, b = four(1, 2, 3, 4), four()
    vm["pair"](x, four(1, 1, 1, 1), out=(x, (b,)))
    assert x.tolist() == [2, 3, 4, 5]
    assert b.tolist() == [1, 2, 3, 4]


def test_interleaved_destinations_are_apart(vm):
    both = np.zeros(8, "float32")
    vm["pair"](four(1, 2, 3, 4), four(), out=(both[::2], (both[1::2],)))
    assert both.tolist() == [1, 1, 2, 2, 3, 3, 4, 4]


def read_only():
    made = four()
    made.flags.writeable = False
    return made


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (3, VMTypeError, "main: out: wanted an array .*got int"),
        ("text", VMTypeError, "main: out: wanted an array .*got str"),
        ([four()], VMTypeError, r"main: out: wanted Tensor\(\(4,\), float32\), got a tuple of 1"),
        (np.zeros(4), VMTypeError, r"out: wanted dtype float32, got Tensor\(\(4,\), float64\)"),
        (np.zeros(4, object), VMTypeError, "out: .*dtype object: int at element 0"),
        (np.zeros((2, 2), "float32"), VMTypeError, "out: wanted 1 dimensions, got Tensor"),
        (np.zeros((), "float32"), VMTypeError, "out: wanted 1 dimensions, got Tensor"),
        (np.zeros(5, "float32"), VMValueError, "out: axis 0: wanted 4, got 5"),
        (np.zeros(0, "float32"), VMValueError, "out: axis 0: wanted 4, got 0"),
        (read_only(), VMValueError, "out: the array is read-only"),
        (np.broadcast_to(np.float32(1), 4), VMValueError, "out: the array is read-only"),
        (np.float32(1), VMValueError, "out: the array is read-only"),
        (as_strided(four(), (4,), (0,)), VMValueError, "out: elements of the array share memory"),
        (as_strided(four(), (4,), (2,)), VMValueError, "out: elements of the array share memory"),
        (np.ma.masked_array(four()), VMTypeError, "out: .*masked"),
        (b"0123456789abcdef", VMTypeError, "out: wanted dtype|out: the array is read-only"),
    ],
)
def test_what_cannot_take_the_result_is_refused_before_anything_runs(vm, out, error, message):
    with pytest.raises((error, VMValueError), match=message):
        vm["main"](four(1, 1, 1, 1), four(), out=out)
    if isinstance(out, np.ndarray) and out.dtype == "float32":
        assert np.all(out == out.ravel()[0] if out.size else True)


def test_destinations_of_tuples_are_checked_by_field(vm):
    x, a = four(1, 1, 1, 1), four()
    cases = [
        ((a,), "pair: out: wanted a tuple of 2, got 1"),
        ((a, a), r"pair: out\[1\]: wanted a tuple of 1, got Tensor"),
        ((a, (a,)), r"pair: out\[0\] and pair: out\[1\]\[0\] overlap in memory"),
        ((a, (np.zeros(4),)), r"pair: out\[1\]\[0\]: wanted dtype float32"),
        (a, "pair: out: wanted a tuple of 2, got Tensor"),
    ]
    for out, message in cases:
        with pytest.raises((VMTypeError, VMValueError), match=message):
            vm["pair"](x, x, out=out)
    # Where nothing is known before, the result itself decides, and nothing is written.
    cases = [
        ((a, four()), r"loose: out\[1\]: got an array to write, but the result is a tuple of 1"),
        ((a, (four(), None)), r"loose: out\[1\]: got a tuple of 2 to write.*a tuple of 1"),
        ((a, (np.zeros(4),)), r"loose: out\[1\]\[0\]: wanted dtype float32, got Tensor.*float64"),
        (((a,), None), r"loose: out\[0\]: got a tuple of 1 to write, but the result is Tensor"),
    ]
    for out, message in cases:
        with pytest.raises((VMTypeError, VMValueError), match=message):
            vm["loose"](x, x, out=out)
    assert not a.any()


def test_what_is_no_tensor_has_no_destination(vm):
    with pytest.raises(VMTypeError, match=r"count: out: the result is Prim\(int64\)"):
        vm["count"](out=four())
    with pytest.raises(VMTypeError, match=r"shape: out: the result is Shape\(ndim=1\)"):
        vm["shape"](four(), out=np.zeros(1, "int64"))
    assert vm["count"](out=None) == 7
    assert vm["shape"](four(), out=None) == (4,)


def test_symbolic_sizes_are_compared_with_the_result(vm):
    x, out = np.ones(3, "float32"), np.zeros(3, "float32")
    assert vm["sized"](x, out=out) is out
    assert out.all()
    with pytest.raises(VMValueError, match=r"sized: out: wanted shape \(3,\), got \(4,\)"):
        vm["sized"](x, out=four())


def test_endless_destinations_are_refused(vm):
    endless: list[object] = []
    endless.append(endless)
    wide: object = (None, None)
    for _ in range(40):
        wide = (wide, wide)
    for out in (endless, wide):
        with pytest.raises(VMTypeError, match="loose: out: "):
            vm["loose"](four(), four(), out=out)


def test_a_parameter_called_out_is_a_parameter(vm):
    x = four(1, 2, 3, 4)
    result = vm["named"](out=x)
    assert type(result) is NDArray
    assert result.numpy().tolist() == [1, 2, 3, 4]


def test_a_misdeclared_result_is_refused_where_it_is_written():
    vm = VirtualMachine(adder(ObjectInfo()).get())
    assert vm["main"](four(1, 2, 3, 4), four(), out=four()).tolist() == [1, 2, 3, 4]
    with pytest.raises(VMTypeError, match="main: out: wanted dtype float32"):
        vm["main"](four(), four(), out=np.zeros(4))
    with pytest.raises(VMValueError, match=r"main: out: wanted shape \(4,\), got \(5,\)"):
        vm["main"](four(), four(), out=np.zeros(5, "float32"))


def test_set_output_gives_invoke_stateful_a_destination(vm):
    out = four()
    vm.set_input("main", four(1, 2, 3, 4), four(1, 1, 1, 1))
    vm.set_output("main", out)
    vm.invoke_stateful("main")
    assert vm.get_outputs("main") is out
    assert out.tolist() == [2, 3, 4, 5]
    vm.module["set_output"]("main", None)
    vm.invoke_stateful("main")
    assert type(vm.get_outputs("main")) is NDArray
    with pytest.raises(VMTypeError, match="main: out: wanted dtype"):
        vm.set_output("main", np.zeros(4))
    with pytest.raises(VMValueError, match="no function 'nope'"):
        vm.set_output("nope", out)


def test_saved_functions_and_profiles_write_to_a_destination(vm):
    out = four()
    vm.save_function("main", "kept", four(1, 2, 3, 4), four(), out=out)
    assert vm["kept"]() is out
    assert out.tolist() == [1, 2, 3, 4]
    out[:] = 0
    assert vm.profile("main", four(1, 2, 3, 4), four(), out=out).result is out
    assert out.tolist() == [1, 2, 3, 4]


def test_bits_of_bfloat16_need_an_array_that_says_so():
    ib = ExecBuilder()
    bf16 = DataType("bfloat16")
    with ib.function("main", 1, ["x"], [TensorInfo(bf16, 1)], TensorInfo(bf16, 1)):
        ib.emit_ret(ib.r(0))
    main = VirtualMachine(ib.get())["main"]
    x, out = array([1.0, 2.0], dtype="bfloat16"), array([0.0, 0.0], dtype="bfloat16")
    assert main(x, out=out) is out
    assert out.tolist() == [1, 2]
    with pytest.raises(VMTypeError, match="out: wanted dtype bfloat16, got .*uint16"):
        main(x, out=np.zeros(2, "uint16"))


def test_refused_destinations_leak_nothing(vm):
    import sys

    out, x = np.zeros(4), four()
    before = sys.getrefcount(out), sys.getrefcount(x)
    for _ in range(100):
        with pytest.raises(VMTypeError):
            vm["main"](x, x, out=out)
    assert (sys.getrefcount(out), sys.getrefcount(x)) == before
