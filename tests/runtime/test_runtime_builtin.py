"""The `vm.builtin.*` functions, each alone and through bytecode."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm.base import DataType, LimitError, VMError, VMTypeError, VMValueError
from relaxvm.runtime import (
    TABLE,
    DimProgram,
    ExecBuilder,
    FuncInfo,
    ObjectInfo,
    PrimInfo,
    ShapeHeap,
    ShapeInfo,
    ShapeTuple,
    Storage,
    TensorInfo,
    TupleInfo,
    VirtualMachine,
    VMAssertionError,
    VMClosure,
    array,
    get_global_func,
)

F32, I32, VOID = DataType("float32"), DataType("int32"), DataType("void")
CTX = "main: parameter x: Tensor((n, 4), float32)"


def call(name, *args):
    """The builtin as a plain function; those that take an account get none."""
    entry = TABLE[f"vm.builtin.{name}"]
    return entry.function(None, *args) if entry.account else entry.function(*args)


def tensor(*shape, dtype="float32"):
    return array(np.zeros(shape, dtype))


def heap(*values) -> ShapeHeap:
    made = ShapeHeap(len(values))
    made.values[:] = values
    return made


def test_every_builtin_has_a_docstring_and_a_consistent_row():
    for name, entry in TABLE.items():
        assert name.startswith("vm.builtin.")
        assert entry.function.__doc__ or entry.function.__name__ == "as_condition", name
        assert entry.dynamic <= len(entry.fixed)


# Shape heap


def test_match_shape_refuses_negative_sizes():
    refuse = [4, 0, 2, 0, 4, 0]
    call("match_shape", (1, -5, 0), None, "f gives y\n  at here", *refuse)
    for shape, axis, size in (((-1, 2, 3), 0, -1), ((1, 2, -3), 2, -3)):
        message = f"^f gives y: axis {axis} would have the negative size {size}\n  at here$"
        with pytest.raises(VMValueError, match=message):
            call("match_shape", shape, None, "f gives y\n  at here", *refuse)
    with pytest.raises(VMTypeError, match="wanted sizes"):
        call("match_shape", (1, 2, "x"), None, "f", *refuse)
    with pytest.raises(VMValueError, match="a scalar may be negative"):
        call("match_prim_value", 3, None, "f", 4, 0)


def test_match_shape_stores_and_compares():
    slots = ShapeHeap(2)
    call("match_shape", tensor(3, 4), slots, CTX, 1, 0, 0, 4)
    assert slots.values == [3, None]
    call("match_shape", ShapeTuple([3, 9]), slots, CTX, 3, 0, 2, 0)
    call("match_shape", tensor(), slots, CTX)
    # Where all sizes are constant there need be no heap.
    call("match_shape", tensor(3, 4), None, CTX, 2, 0, 0, 4)
    with pytest.raises(VMValueError, match="axis 1: wanted 4, got 5"):
        call("match_shape", tensor(3, 5), None, CTX, 2, 0, 0, 4)


@pytest.mark.parametrize(
    ("value", "pairs", "error", "message"),
    [
        (tensor(3, 5), (2, 0, 0, 4), VMValueError, "axis 1: wanted 4, got 5 in Tensor"),
        (tensor(3), (2, 0, 0, 4), VMTypeError, r"wanted 2 dimensions, got Tensor\(\(3,\)"),
        (7, (2, 0), VMTypeError, "wanted a tensor or a shape, got int 7"),
        (tensor(8), (3, 0), VMValueError, r"wanted n = 7 \(from axis 0 of parameter w\), got 8"),
        (tensor(8), (3, 1), VMValueError, "slot 1 of the shape heap has no value"),
        (tensor(8), (3, 5), VMValueError, "slot 5 is outside a shape heap of 2"),
        (tensor(8), (1, 5), VMValueError, "slot 5 is outside a shape heap of 2"),
    ],
)
def test_match_shape_says_what_differs(value, pairs, error, message):
    slots = ShapeHeap(2)
    call("match_shape", tensor(7), slots, "main: parameter w", 1, 0)
    with pytest.raises(error, match=message) as caught:
        call("match_shape", value, slots, CTX, *pairs)
    assert str(caught.value).startswith(CTX)


def test_a_shape_heap_is_wanted_where_one_is_used():
    for name, args in (
        ("match_shape", (tensor(2), 3, CTX, 1, 0)),
        ("match_prim_value", (2, None, CTX, 1, 0)),
        ("make_shape", ("x", 1, 0)),
        ("make_prim_value", ("x", 1, 0)),
        ("shape_expr", (4, 0, DimProgram(3))),
    ):
        with pytest.raises(VMTypeError, match="wanted a shape heap"):
            call(name, *args)


def test_match_prim_value_stores_and_compares():
    slots = ShapeHeap(1)
    call("match_prim_value", 5, slots, CTX, 1, 0)
    call("match_prim_value", 5, slots, CTX, 3, 0)
    call("match_prim_value", 6, slots, CTX, 0, 6)
    call("match_prim_value", "anything", slots, CTX, 2, 0)
    with pytest.raises(VMValueError, match=r"wanted n = 5 \(from parameter x.*\), got 6"):
        call("match_prim_value", 6, slots, CTX, 3, 0)
    with pytest.raises(VMValueError, match="wanted 1, got 6"):
        call("match_prim_value", 6, slots, CTX, 0, 1)
    with pytest.raises(VMTypeError, match="wanted an int, got float 1.5"):
        call("match_prim_value", 1.5, slots, CTX, 0, 1)
    with pytest.raises(VMValueError, match="wanted a 64-bit int"):
        call("match_prim_value", 1 << 63, slots, CTX, 1, 0)


def test_shapes_and_values_are_made_from_slots():
    slots = heap(3, 5)
    assert call("make_shape", slots, 0, 7, 1, 1, 1, 0) == ShapeTuple([7, 5, 3])
    assert call("make_shape", slots) == ()
    assert call("make_prim_value", slots, 1, 1) == 5
    assert call("make_prim_value", slots, 0, -2) == -2
    with pytest.raises(VMValueError, match="slot 0 of the shape heap has no value"):
        call("make_shape", ShapeHeap(1), 1, 0)
    with pytest.raises(VMValueError, match="pairs"):
        call("make_shape", slots, 1)


@pytest.mark.parametrize(
    ("program", "value"),
    [
        (("$0", 2, "*", "$1", "+"), 11),
        (("$0", 0, "//"), 0),
        (("$0", "$1", "<"), 1),
        (("$1", "$0", "%"), 2),
        (9, 9),
    ],
)
def test_shape_expr_computes_into_a_slot(program, value):
    slots = heap(3, 5, None)
    call("shape_expr", slots, 2, DimProgram(program))
    assert slots.values[2] == value
    assert type(slots.values[2]) is int


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (("$4",), "symbol '4' has no value"),
        (("$2",), "symbol '2' has no value"),
        ((2.5,), "wanted a 64-bit int, got float"),
        ((1 << 62, 4, "*"), "does not fit 64 bits"),
    ],
)
def test_shape_expr_refuses_what_has_no_value(program, message):
    with pytest.raises(VMValueError, match=message):
        call("shape_expr", heap(1, 2, None), 0, DimProgram(program))


# Checks


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "check_tensor_info",
            [(tensor(2, 3), 2, F32), (tensor(2), -1, None), (tensor(), 0, VOID)],
            [
                (tensor(2), 2, F32),
                (tensor(2, dtype="int8"), 1, F32),
                (None, -1, None),
                (1.5, 0, F32),
            ],
        ),
        (
            "check_shape_info",
            [(ShapeTuple([1]), 1), (ShapeTuple([]), -1)],
            [(ShapeTuple([1]), 2), ((1,), 1), (tensor(1), 1)],
        ),
        (
            "check_prim_value_info",
            [(3, I32), (1.5, F32), (3, F32), (True, DataType("bool")), (1, DataType("bool"))],
            [(1.5, I32), (True, I32), ("3", I32), (2, DataType("bool")), (1 << 31, I32)],
        ),
        ("check_tuple_info", [((1, 2), 2), ((), 0)], [((1,), 2), (ShapeTuple([1, 2]), 2), (3, 1)]),
        ("check_func_info", [(len,), (VMClosure(len),)], [(3,), (None,)]),
    ],
)
def test_checks_pass_what_fits_and_name_what_does_not(name, good, bad):
    for args in good:
        assert call(name, *args, CTX) is None
    for args in bad:
        with pytest.raises((VMTypeError, VMValueError)) as caught:
            call(name, *args, CTX)
        assert str(caught.value).startswith(CTX)
        assert "wanted" in str(caught.value) or "does not fit" in str(caught.value)


def test_check_result_compares_with_struct_info():
    square = TensorInfo(F32, 2, (("$n",), ("$n",)))
    value = tensor(3, 3)
    assert call("check_result", value, square, CTX) is value
    with pytest.raises(VMValueError, match="dimension 1: wanted n = 3, got Tensor"):
        call("check_result", tensor(3, 4), square, CTX)
    nested = TupleInfo((square, ShapeInfo(1, (("$n", 2, "*"),)), PrimInfo(I32, 4), ObjectInfo()))
    call("check_result", (value, ShapeTuple([6]), 4, "x"), nested, CTX)
    for wrong in (
        (value, ShapeTuple([7]), 4, 0),
        (value, ShapeTuple([6]), 5, 0),
        (value, ShapeTuple([6]), 4),
        (tensor(2), ShapeTuple([6]), 4, 0),
    ):
        with pytest.raises((VMTypeError, VMValueError), match="main: parameter x"):
            call("check_result", wrong, nested, CTX)
    with pytest.raises(VMTypeError, match="element 1: wanted a function"):
        call("check_result", (1, 2), TupleInfo((ObjectInfo(), FuncInfo())), CTX)
    with pytest.raises(VMValueError, match="wanted 0 = 4"):
        call("check_result", tensor(3), TensorInfo(F32, 1, (("$0",),)), CTX, heap(4))
    call("check_result", tensor(8), TensorInfo(F32, 1, (("$0", 2, "*"),)), CTX, heap(4))


# Memory


def test_storages_are_aligned_and_bounded():
    for size in (0, 1, 63, 64, 1000):
        storage = call("alloc_storage", size, 0, F32, "global")
        assert type(storage) is Storage
        if size:
            view = call("alloc_tensor", storage, 0, (size,), DataType("uint8"))
            assert view.array.ctypes.data % 64 == 0
    assert call("alloc_storage", ShapeTuple([3, 5])).size_bytes == 15
    for size in (-1, 1 << 60, (1 << 30, 1 << 30), (-1,)):
        with pytest.raises(VMValueError, match="wanted a size"):
            call("alloc_storage", size)
    for size in ("x", None, 1.5, (1.5,)):
        with pytest.raises(VMTypeError):
            call("alloc_storage", size)


def test_memory_that_does_not_exist_is_a_limit_error():
    with pytest.raises(LimitError, match="cannot allocate"):
        call("alloc_storage", (1 << 48) - 1)


def test_tensors_share_their_storage_within_its_bounds():
    storage = call("alloc_storage", 32, 0, F32, "global")
    a = call("alloc_tensor", storage, 0, (2, 2), F32)
    b = call("alloc_tensor", storage, 8, (6,), F32)
    a.array[...] = 1
    b.array[...] = 2
    np.testing.assert_array_equal(a.numpy(), [[1, 1], [2, 2]])
    assert call("alloc_tensor", storage, 32, (0, 7), F32).shape == (0, 7)
    bits = call("alloc_tensor", storage, 2, (3,), DataType("bfloat16"))
    assert (bits.dtype, bits.array.dtype) == ("bfloat16", np.uint16)
    for offset, shape, message in (
        (0, (9,), "needs 36 bytes, the storage has 32"),
        (4, (8,), "needs 36 bytes"),
        (1 << 40, (1,), "the storage has 32"),
        (-4, (1,), "multiple of 4"),
        (2, (1,), "multiple of 4"),
        (0, (-1,), "at least 0"),
        (0, (1,) * 33, "too large"),
    ):
        with pytest.raises(VMValueError, match=message):
            call("alloc_tensor", storage, offset, shape, F32)
    for bad in ((None, 0, (1,), F32), (storage, 0, 3, F32), (storage, 0, (1,), "float32")):
        with pytest.raises(VMTypeError, match="alloc_tensor"):
            call("alloc_tensor", *bad)


# Tensors, shapes, tuples


def test_reshape_keeps_memory_and_elements():
    source = array(np.arange(6, dtype="float32"))
    result = call("reshape", source, (2, 3))
    assert np.shares_memory(source.numpy(), result.numpy())
    np.testing.assert_array_equal(result.numpy(), np.arange(6).reshape(2, 3))
    columns = call("reshape", array(np.arange(6).reshape(2, 3))[:, ::2], (4,))
    np.testing.assert_array_equal(columns.numpy(), [0, 2, 3, 5])
    with pytest.raises(VMValueError, match=r"\(6,\) has 6 elements, \(4,\) wants 4"):
        call("reshape", source, (4,))
    with pytest.raises(VMTypeError, match="wanted a tensor"):
        call("reshape", 3, (4,))
    with pytest.raises(VMTypeError, match="wanted a shape"):
        call("reshape", source, 6)


def test_shapes_and_tensors_turn_into_each_other():
    assert call("shape_of", tensor(2, 3)) == ShapeTuple([2, 3])
    assert call("tensor_to_shape", array(np.array([4, 5], "int32"))) == ShapeTuple([4, 5])
    made = call("shape_to_tensor", ShapeTuple([4, 5]))
    assert (made.dtype, made.numpy().tolist()) == ("int64", [4, 5])
    for bad in (tensor(2), array(np.zeros((1, 1), "int64")), array(np.zeros(5000, "int64")), 3):
        with pytest.raises(VMTypeError, match="tensor_to_shape"):
            call("tensor_to_shape", bad)
    with pytest.raises(VMValueError, match="64 bits"):
        call("tensor_to_shape", array(np.array([1 << 63], "uint64")))
    with pytest.raises(VMTypeError, match="shape_to_tensor"):
        call("shape_to_tensor", 3)
    with pytest.raises(VMTypeError, match="shape_of"):
        call("shape_of", (1, 2))


def test_copy_has_memory_of_its_own():
    source = array(np.arange(6.0).reshape(2, 3))
    made = call("copy", source[:, 1:])
    assert not np.shares_memory(source.numpy(), made.numpy())
    np.testing.assert_array_equal(made.numpy(), source.numpy()[:, 1:])
    assert call("to_device", source, 1, 0) is source
    with pytest.raises(VMValueError, match=r"only cpu\(0\) exists"):
        call("to_device", source, 2, 0)


def test_tuples_are_made_taken_apart_and_emptied():
    values = call("make_tuple", 1, "x", None)
    assert call("tuple_getitem", values, 1) == "x"
    assert call("tuple_reset_item", values, 1) == (1, None, None)
    assert call("tuple_getitem", ShapeTuple([4, 5]), 1) == 5
    for index in (3, -1):
        with pytest.raises(VMValueError, match="wanted an index of 0 to 2"):
            call("tuple_getitem", values, index)
    for bad in ((3, 0), (values, "0"), (values, True)):
        with pytest.raises(VMTypeError, match="tuple_getitem"):
            call("tuple_getitem", *bad)
    assert call("null_value") is None
    assert call("is_null", None) is True
    assert call("is_null", 0) is False


# Functions, conditions, messages


def test_closures_of_python_functions():
    closure = call("make_closure", lambda *args: args, 3)
    assert call("invoke_closure", closure, (1, 2)) == (1, 2, 3)
    assert call("make_closure", closure, 9)(1) == (1, 9, 3)
    assert "1 captured" in repr(closure)
    with pytest.raises(VMTypeError, match="wanted a function, got int"):
        call("make_closure", 3)
    for bad in ((3, ()), (len, 3)):
        with pytest.raises(VMTypeError, match="wanted a function and a tuple"):
            call("invoke_closure", *bad)


def test_call_tir_dyn_passes_sizes_one_by_one():
    seen = []
    kernel = lambda *args: seen.append(args)  # noqa: E731
    call("call_tir_dyn", kernel, "a", "b", ShapeTuple([5, 6]))
    call("call_tir_dyn", kernel, ("a", "b"), ShapeTuple([5, 6]))
    assert seen == [("a", "b", 5, 6)] * 2
    for bad in ((kernel,), (kernel, 3), (3, ShapeTuple([1]))):
        with pytest.raises(VMTypeError, match="call_tir_dyn"):
            call("call_tir_dyn", *bad)


def test_conditions_are_bools_ints_or_single_elements():
    for value in (True, 1, array(np.array(True)), array(np.array([[3]]))):
        assert call("read_if_cond", value) is True
    for value in (False, 0, array(np.array(0, "uint8"))):
        assert call("read_if_cond", value) is False
    for bad in (None, "x", 1.5, tensor(1), array(np.array([True, False]))):
        with pytest.raises(VMTypeError, match="wanted a bool"):
            call("read_if_cond", bad)


def test_assert_op_raises_with_its_message():
    call("assert_op", True, "fine")
    with pytest.raises(VMAssertionError, match=r"assertion failed: n is 3, not \{4\}"):
        call("assert_op", False, "n is {}, not {{{}}}", 3, 4)
    with pytest.raises(AssertionError, match="^assertion failed$"):
        call("assert_op", array(np.array(False)))


def test_print_formats_values(capsys):
    call("print", "x={} y={1} z={0}", 1, array(np.array([1, 2])))
    call("print", "", 1, "two")
    assert capsys.readouterr().out == "x=1 y=[1 2] z=1\n1 two\n"


@pytest.mark.parametrize(
    "template",
    ["{0.__class__}", "{0[0]}", "{:>999999999}", "{!r}", "{", "{x}", "{9}", "{²}", "{0:{1}}"],
)
def test_templates_of_files_reach_nothing_else_of_python(template):
    with pytest.raises(VMValueError, match="message"):
        call("print", template, 1, 2)
    with pytest.raises(VMTypeError, match="wanted a text"):
        call("print", 3, 4)


# Through bytecode: constant arguments are digested at link time, others are not


def test_arguments_may_be_registers_where_constants_are_usual():
    b = ExecBuilder()
    with b.function("main", 5, ["size", "offset", "shape", "index", "tensor"]):
        b.emit_call("vm.builtin.alloc_storage", [b.r(0), 0, F32, "global"], b.r(5))
        b.emit_call("vm.builtin.alloc_tensor", [b.r(5), b.r(1), b.r(2), F32], b.r(6))
        b.emit_call("vm.builtin.reshape", [b.r(4), b.r(2)], b.r(7))
        b.emit_call("vm.builtin.make_tuple", [b.r(6), b.r(7)], b.r(8))
        b.emit_call("vm.builtin.tuple_getitem", [b.r(8), b.r(3)], b.r(9))
        b.emit_ret(b.r(9))
    vm = VirtualMachine(b.get())
    x = np.arange(4, dtype="float32")
    assert vm["main"](16, 0, (2, 2), 0, x).shape == (2, 2)
    np.testing.assert_array_equal(vm["main"](32, 16, (2, 2), 1, x).numpy(), x.reshape(2, 2))
    for args in (
        (8, 0, (2, 2), 0, x),
        (16, 0, (2, 2), 5, x),
        (16, 0, (3,), 0, x),
        ("", 0, 0, 0, x),
    ):
        with pytest.raises(VMError, match="vm.builtin|wanted|needs|index|size") as caught:
            vm["main"](*args)
        assert "VM function main" in caught.value.__notes__[0]


def test_symbolic_shapes_run_through_a_function():
    b = ExecBuilder()
    with b.function("main", 2, ["x", "y"]):
        slots = b.r(2)
        b.emit_call("vm.builtin.alloc_shape_heap", [b.vm_state(), 3], slots)
        b.emit_call("vm.builtin.check_tensor_info", [b.r(0), 2, F32, "main: parameter x"])
        b.emit_call("vm.builtin.match_shape", [b.r(0), slots, "main: parameter x", 1, 0, 1, 1])
        b.emit_call("vm.builtin.check_tensor_info", [b.r(1), 1, b.void_arg(), "main: parameter y"])
        b.emit_call("vm.builtin.match_shape", [b.r(1), slots, "main: parameter y", 3, 0])
        b.emit_call("vm.builtin.shape_expr", [slots, 2, DimProgram(("$0", "$1", "*"))])
        b.emit_call("vm.builtin.make_shape", [slots, 1, 2], b.r(3))
        b.emit_call("vm.builtin.reshape", [b.r(0), b.r(3)], b.r(4))
        b.emit_ret(b.r(4))
    f = VirtualMachine(b.get())["main"]
    for n in (2, 5, 0):
        assert f(np.zeros((n, 3), "float32"), np.zeros(n)).shape == (n * 3,)
    message = r"main: parameter y: axis 0: wanted 2 \(from axis 0 of parameter x\), got 3"
    with pytest.raises(VMValueError, match=message):
        f(np.zeros((2, 3), "float32"), np.zeros(3))
    with pytest.raises(VMTypeError, match="main: parameter x: wanted dtype float32, got .*float64"):
        f(np.zeros((2, 3)), np.zeros(2))


def test_builtins_may_be_passed_as_functions():
    b = ExecBuilder()
    with b.function("main", 1):
        b.emit_call("vm.builtin.make_tuple", [b.r(0)], b.r(1))
        for place, name in ((2, "copy"), (3, "shape_of")):
            b.emit_call(
                "vm.builtin.invoke_closure", [b.f(f"vm.builtin.{name}"), b.r(1)], b.r(place)
            )
        b.emit_call("vm.builtin.make_tuple", [b.r(2), b.r(3)], b.r(4))
        b.emit_ret(b.r(4))
    copied, shape = VirtualMachine(b.get())["main"](np.ones((2, 3)))
    np.testing.assert_array_equal(copied.numpy(), np.ones((2, 3)))
    assert shape == (2, 3)


def test_builtins_as_values_check_their_arguments_when_called():
    b = ExecBuilder()
    with b.function("main", 2, ["function", "args"]):
        b.emit_call("vm.builtin.invoke_closure", [b.r(0), b.r(1)], b.r(2))
        b.emit_ret(b.r(2))
    with b.function("give", 0):
        b.emit_call("vm.builtin.make_closure", [b.f("vm.builtin.alloc_tensor")], b.r(0))
        b.emit_ret(b.r(0))
    vm = VirtualMachine(b.get())
    with pytest.raises(VMTypeError, match="alloc_tensor takes the arguments"):
        vm["main"](vm["give"](), (1,))
    with pytest.raises(VMTypeError, match="argument 3: wanted a constant dtype, got int"):
        vm["main"](vm["give"](), (1, 2, 3, 4))


def test_the_global_function_counts_elements_as_tvm_does():
    alloc = get_global_func("vm.builtin.alloc_storage")
    assert alloc((24,), 0, "float32").size_bytes == 96
    assert alloc((3, 5), 0, DataType("float16"), "global").size_bytes == 30
    assert alloc((24,)).size_bytes == alloc(24, 0, "uint8").size_bytes == 24
    with pytest.raises(ValueError, match="unknown dtype"):
        alloc((24,), 0, "float33")
