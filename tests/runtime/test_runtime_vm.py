"""The virtual machine: calling, linking, control flow, closures, state, instruments, memory reuse,
errors.
"""

from __future__ import annotations

import gc
import traceback
import weakref

import numpy as np
import pytest
from vm_kernels import section

from relaxvm.base import (
    DataType,
    LimitError,
    LinkError,
    RelaxvmError,
    VMTypeError,
    VMValueError,
)
from relaxvm.runtime import (
    ExecBuilder,
    FuncInfo,
    NDArray,
    ObjectInfo,
    PrimInfo,
    ShapeInfo,
    ShapeTuple,
    TensorInfo,
    TupleInfo,
    VirtualMachine,
    VMClosure,
    VMInstrumentReturnKind,
    array,
    cpu,
    from_numpy,
    load,
    register_func,
    remove_global_func,
)

pytestmark = pytest.mark.vm_modes

F32, U8 = DataType("float32"), DataType("uint8")


def add(a, b):
    return array(a.numpy() + b.numpy())


def mul(a, b):
    return array(a.numpy() * b.numpy())


EXTERNS = {
    "test.vm.add": add,
    "test.vm.mul": mul,
    "test.vm.identity": lambda x: x,
    "test.vm.add_scalar": lambda a, b: a + b,
    "test.vm.fill": lambda x, value: x.copyfrom(np.full(x.shape, value, x.dtype)),
}


def machine(builder: ExecBuilder, **options) -> VirtualMachine:
    return VirtualMachine(builder.get(), cpu(), functions=EXTERNS, **options)


def ones(n=4):
    return np.ones(n, "float32")


# The programs of TVM's own tests of its VM


def test_execute():
    ib = ExecBuilder()
    with ib.function("func0", num_inputs=2):
        ib.emit_call("test.vm.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    vm = machine(ib)
    a, b = array(ones()), array(ones() * 3)
    np.testing.assert_array_equal(vm["func0"](a, b).numpy(), ones() * 4)
    vm.save_function("func0", "saved", a, b)
    np.testing.assert_array_equal(vm["saved"]().numpy(), ones() * 4)


def test_multiple_functions():
    ib = ExecBuilder()
    for name, callee in (("func0", "test.vm.add"), ("func1", "test.vm.mul")):
        with ib.function(name, num_inputs=2):
            ib.emit_call(callee, args=[ib.r(0), ib.r(1)], dst=ib.r(2))
            ib.emit_ret(ib.r(2))
    vm = machine(ib)
    a, b = ones() * 2, ones() * 5
    np.testing.assert_array_equal(vm["func0"](a, b).numpy(), a + b)
    np.testing.assert_array_equal(vm["func1"](a, b).numpy(), a * b)


def test_negative_immediate():
    ib = ExecBuilder()
    with ib.function("func0", num_inputs=1):
        ib.emit_call("test.vm.add_scalar", args=[ib.imm(-3), ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    vm = machine(ib)
    assert vm["func0"](1) == -2
    assert vm["func0"](-3) == -6


def test_shape_of_a_constant():
    ib = ExecBuilder()
    with ib.function("main", num_inputs=0):
        ib.emit_call("vm.builtin.shape_of", args=[np.zeros((32, 16))], dst=ib.r(0))
        ib.emit_ret(ib.r(0))
    result = machine(ib)["main"]()
    assert result == (32, 16)
    assert type(result) is ShapeTuple


def test_storage_with_the_vm_state_passed_first():
    ib = ExecBuilder()
    with ib.function("main", num_inputs=0):
        ib.emit_call(
            "vm.builtin.alloc_storage",
            args=[ib.vm_state(), (96,), ib.convert_constant(0), F32, "global"],
            dst=ib.r(1),
        )
        ib.emit_call("vm.builtin.alloc_tensor", [ib.r(1), ib.imm(0), (4, 6), F32], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    result = machine(ib)["main"]()
    assert (result.device, result.shape, result.dtype) == (cpu(), (4, 6), F32)


def test_goto():
    ib = ExecBuilder()
    with ib.function("main", num_inputs=2):
        ib.emit_call("test.vm.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_goto(2)
        ib.emit_call("test.vm.mul", args=[ib.r(2), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    np.testing.assert_array_equal(machine(ib)["main"](ones(), ones()).numpy(), ones() * 2)


def branching() -> ExecBuilder:
    ib = ExecBuilder()
    with ib.function("main", num_inputs=3):
        ib.emit_if(ib.r(0), 3)
        ib.emit_call("test.vm.add", args=[ib.r(1), ib.r(2)], dst=ib.r(3))
        ib.emit_goto(2)
        ib.emit_call("test.vm.mul", args=[ib.r(1), ib.r(2)], dst=ib.r(3))
        ib.emit_ret(ib.r(3))
    return ib


def test_if_takes_ints_bools_and_bool_tensors():
    a, b = ones() * 3, ones() * 2
    for options in ({}, {"max_instructions": 100}):
        f = machine(branching(), **options)["main"]
        for false in (0, False, np.array(False), array(np.array([0]))):
            np.testing.assert_array_equal(f(false, a, b).numpy(), a * b)
        for true in (1, True, 7, np.array([True]), np.bool_(True)):
            np.testing.assert_array_equal(f(true, a, b).numpy(), a + b)
        for other in ("yes", ones(), None, (1,), np.float32(1)):
            with pytest.raises(VMTypeError, match="if: wanted a bool"):
                f(other, a, b)


def test_closures_take_their_last_arguments_with_them():
    ib = ExecBuilder()
    with ib.function("lifted_func_1", num_inputs=4):
        ib.emit_call("vm.builtin.make_tuple", [ib.r(i) for i in range(4)], ib.r(4))
        ib.emit_ret(ib.r(4))
    with ib.function("main", num_inputs=2):
        ib.emit_call(
            "vm.builtin.make_closure",
            args=[ib.vm_state(), ib.f("lifted_func_1"), ib.r(0), ib.r(1)],
            dst=ib.r(2),
        )
        ib.emit_ret(ib.r(2))
    with ib.function("use", num_inputs=2):
        ib.emit_call("vm.builtin.make_tuple", [3, 4], ib.r(2))
        ib.emit_call("vm.builtin.invoke_closure", [ib.r(0), ib.r(2)], ib.r(3))
        ib.emit_ret(ib.r(3))
    for options in ({}, {"max_instructions": 100}):
        vm = machine(ib, **options)
        closure = vm["main"](1, 2)
        assert type(closure) is VMClosure
        assert vm.invoke_closure(closure, 8, 9) == (8, 9, 1, 2)
        assert closure(8, 9) == (8, 9, 1, 2)
        assert vm["use"](closure, None) == (3, 4, 1, 2)
        # Any callable will do as a function value, and a closure of another VM.
        assert vm["use"](lambda a, b: [a, (b, 7)], 0) == (3, (4, 7))
        assert machine(ib)["use"](closure, None) == (3, 4, 1, 2)
        with pytest.raises(VMTypeError, match="takes 2 arguments, got 1"):
            vm.invoke_closure(closure, 1)
        with pytest.raises(VMTypeError, match="takes 4 arguments, got 2 and 3 captured"):
            vm["use"](VMClosure(closure.function, (1, 2, 3)), 0)
        with pytest.raises(VMTypeError, match="wanted a closure"):
            vm.invoke_closure(3)
        with pytest.raises(VMTypeError, match="wanted a function, got int 3"):
            vm["use"](3, 0)


# Arguments and results


def typed() -> ExecBuilder:
    ib = ExecBuilder()
    infos = [
        TensorInfo(F32, 2, (("$n",), 4)),
        PrimInfo(DataType("int32")),
        ShapeInfo(2),
        TupleInfo((TensorInfo(F32), TupleInfo((PrimInfo(DataType("float32")),)))),
        PrimInfo(DataType("bool")),
        FuncInfo(),
    ]
    with ib.function("main", 6, ["x", "k", "s", "t", "b", "f"], infos, ObjectInfo()):
        ib.emit_call("vm.builtin.make_tuple", [ib.r(i) for i in range(6)], ib.r(6))
        ib.emit_ret(ib.r(6))
    return ib


X = np.ones((2, 4), "float32")
GOOD = {"x": X, "k": 3, "s": (1, 2), "t": [X, [1]], "b": True, "f": len}


def test_arguments_are_converted_by_struct_info():
    vm = machine(typed())
    x, k, s, t, b, f = vm["main"](**GOOD)
    assert type(x) is NDArray
    assert np.shares_memory(x.numpy(), X)
    assert (k, s, b, f) == (3, (1, 2), True, len)
    assert type(s) is ShapeTuple
    assert type(t[1][0]) is float
    assert vm["main"](X, 3, [1, 2], (X, (1.0,)), f=len, b=np.True_)[1] == 3
    assert vm["main"](**(GOOD | {"k": np.int64(5)}))[1] == 5
    assert type(vm["main"](**(GOOD | {"k": np.array(5)}))[1]) is int


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": [1.0]}, r"main: parameter x: wanted Tensor\(\(n, 4\), float32\), got list"),
        ({"x": 1.0}, r"parameter x: wanted Tensor.*got float 1.0"),
        ({"x": None}, r"parameter x: .*got None"),
        ({"x": np.array([object()])}, "parameter x: .*object"),
        ({"k": 1.5}, r"parameter k: wanted Prim\(int32\), got float 1.5"),
        ({"k": "1"}, r"parameter k: wanted Prim\(int32\), got str 1"),
        ({"k": 1 << 31}, r"parameter k: int 2147483648 does not fit int32"),
        ({"k": 10**5000}, r"parameter k: int of more than 127 bits does not fit"),
        ({"s": 3}, r"parameter s: wanted Shape\(ndim=2\), a tuple of ints, got int 3"),
        ({"s": (1.5,)}, r"parameter s: wanted Shape"),
        ({"t": X}, r"parameter t: wanted Tuple\(Tensor"),
        ({"t": (X,)}, "parameter t: wanted a tuple of 2, got 1"),
        ({"t": (X, (X,))}, r"parameter t\[1\]\[0\]: wanted Prim\(float32\), got Tensor"),
        ({"t": (X, (10**400,))}, r"parameter t\[1\]\[0\]: .*does not fit float32"),
        ({"b": 2}, r"parameter b: wanted Prim\(bool\), got int 2"),
        ({"f": 3}, "parameter f: wanted a function, got int 3"),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(changes, message):
    with pytest.raises((VMTypeError, VMValueError), match=message):
        machine(typed())["main"](**(GOOD | changes))


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "main: wanted 2 arguments, got 0; missing: x, y"),
        ((1,), {}, "wanted 2 arguments, got 1; missing: y"),
        ((1, 2, 3), {}, "wanted 2 arguments, got 3"),
        ((1,), {"z": 2}, "no parameter is called 'z'"),
        ((1,), {"x": 2}, "parameter x is given twice"),
        ((1, 2, 3), {"x": 2}, "wanted 2 arguments, got 4"),
    ],
)
def test_wrong_counts_and_keywords_show_the_signature(args, kwargs, message):
    ib = ExecBuilder()
    with ib.function("main", 2, ["x", "y"]):
        ib.emit_ret(ib.r(0))
    with pytest.raises(VMTypeError, match=message) as caught:
        machine(ib)["main"](*args, **kwargs)
    assert "main(x, y)" in str(caught.value)


def identity(info=None) -> VirtualMachine:
    ib = ExecBuilder()
    with ib.function("main", 1, ["x"], None if info is None else [info]):
        ib.emit_ret(ib.r(0))
    return machine(ib)


def test_arrays_with_gaps_are_copied_at_the_boundary():
    grid = np.arange(12, dtype="float32").reshape(3, 4)
    for info in (None, TensorInfo()):
        for value in (grid.T, grid[:, ::2], array(grid)[:, 1:3], grid[::-1]):
            result = identity(info)["main"](value)
            assert result.is_contiguous()
            np.testing.assert_array_equal(result.numpy(), np.asarray(value))


def test_values_of_unknown_kind_pass_and_nest():
    f = identity()["main"]
    marker = object()
    for value in (1, 1.5, "text", None, True, marker, len):
        assert f(value) is value or f(value) == value
    assert type(f([1, [ones()]])[1][0]) is NDArray
    loop = [1]
    loop.append(loop)
    with pytest.raises(VMTypeError, match="contains itself"):
        f(loop)


def test_results_of_externs_become_values_of_the_program():
    ib = ExecBuilder()
    with ib.function("main", 1):
        ib.emit_call("env.make", [ib.r(0)], ib.r(1))
        ib.emit_ret(ib.r(1))
    grid = np.arange(6, dtype="float32").reshape(2, 3)
    made = {}
    vm = VirtualMachine(ib.get(), functions={"env.make": lambda key: made[key]})
    made |= {0: grid.T, 1: [grid, 1], 2: np.float32(1.5), 3: np.int8(2), 4: None, 5: "x"}
    made |= {6: np.bool_(True), 7: vm, 8: (1, (2,))}
    assert type(vm["main"](0)) is NDArray
    assert vm["main"](0).is_contiguous()
    np.testing.assert_array_equal(vm["main"](0).numpy(), grid.T)
    assert type(vm["main"](1)[0]) is NDArray
    assert [vm["main"](i) for i in range(2, 9)] == [1.5, 2, None, "x", True, vm, (1, (2,))]


def doubling(wide: bool) -> ExecBuilder:
    """A tuple of tuples, each holding the one below once, or twice (2**levels leaves)."""
    ib = ExecBuilder()
    ib.add_kernels(section())
    parts = [ib.r(2), ib.r(2)] if wide else [ib.r(2)]
    for name in ("main", "echo", "show", "kernel"):
        with ib.function(f"run_{name}", 2):
            top, end = ib.label(), ib.label()
            ib.emit_call("vm.builtin.make_tuple", [ib.r(1)], ib.r(2))
            ib.place(top)
            ib.emit_if(ib.r(0), end)
            ib.emit_call("vm.builtin.make_tuple", parts, ib.r(2))
            ib.emit_call("test.vm.add_scalar", [ib.r(0), -1], ib.r(0))
            ib.emit_goto(top)
            ib.place(end)
            if name == "echo":
                ib.emit_call("test.vm.identity", [ib.r(2)], ib.r(2))
            elif name == "show":
                ib.emit_call("vm.builtin.assert_op", [0, "{}", ib.r(2)])
            elif name == "kernel":
                ib.emit_call("add", [ib.r(2), ib.r(2), ib.r(2)])
            ib.emit_ret(ib.r(2))
    return ib


@pytest.mark.parametrize(("levels", "wide"), [(100, True), (50_000, False)])
def test_deep_and_shared_tuples_cost_what_they_are_made_of(levels, wide):
    vm = machine(doubling(wide))
    constant = array(np.zeros(2, "float32"))
    for name in ("run_main", "run_echo"):
        value = vm[name](levels, constant)
        again = machine(scratch("test.vm.identity"))["inner"](value)
        for nest in (value, again):
            for _ in range(levels):
                assert len(nest) == 1 + wide
                assert nest[0] is nest[-1]
                nest = nest[0]
            assert nest[0] is constant
    with pytest.raises(AssertionError, match=r"assertion failed: \({10}.*\.\.\.") as failed:
        vm["run_show"](levels, constant)
    assert len(str(failed.value)) < 10_000
    with pytest.raises(VMTypeError, match=r"add: argument 0 \(x\)"):
        vm["run_kernel"](levels, constant)


def test_a_returned_constant_is_a_copy():
    ib = ExecBuilder()
    constant = array(np.zeros(4, "float32"))
    with ib.function("main", 0):
        ib.emit_ret(constant)
    with ib.function("nested", 0):
        ib.emit_call("vm.builtin.reshape", [constant, (2, 2)], ib.r(0))
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0), 1], ib.r(1))
        ib.emit_ret(ib.r(1))
    for vm in (machine(ib), VirtualMachine(load(ib.get().to_bytes()))):
        vm["main"]()[...] = 7
        vm["nested"]()[0][...] = 7
        assert not vm["main"]().numpy().any()
        assert not vm["nested"]()[0].numpy().any()


# Linking


def test_missing_externs_are_listed_all_at_once_with_near_names():
    ib = ExecBuilder()
    with ib.function("main", 1):
        ib.emit_call("env.reluu", [ib.r(0)], ib.r(1))
        ib.emit_call("env.other", [ib.r(1)], ib.r(1))
        ib.emit_ret(ib.r(1))
    with pytest.raises(LinkError) as caught:
        VirtualMachine(ib.get(), functions={"env.relu": len})
    text = str(caught.value)
    assert "needs 2 functions" in text
    assert "env.reluu; did you mean env.relu?" in text
    assert "\n  env.other\n" in text
    with pytest.raises(LinkError, match="not registered"):
        VirtualMachine(ib.get())
    with pytest.raises(VMTypeError, match=r"functions\['env.other'\]: wanted a callable"):
        VirtualMachine(ib.get(), functions={"env.reluu": len, "env.other": 3})


def test_externs_come_from_the_registry_unless_granted():
    ib = ExecBuilder()
    with ib.function("main", 0):
        ib.emit_call("test.r2.extern", [], ib.r(0))
        ib.emit_ret(ib.r(0))
    ex = ib.get()
    register_func("test.r2.extern", lambda: 1)
    try:
        vm = VirtualMachine(ex)
        assert vm["main"]() == 1
        register_func("test.r2.extern", lambda: 2, override=True)
        assert (vm["main"](), VirtualMachine(ex)["main"]()) == (1, 2)
        assert VirtualMachine(ex, functions={"test.r2.extern": lambda: 3})["main"]() == 3
        with pytest.raises(LinkError, match="not granted"):
            VirtualMachine(ex, functions={})
    finally:
        remove_global_func("test.r2.extern")


def test_an_unknown_function_lists_those_that_exist():
    with pytest.raises(VMValueError, match=r"no function 'mian'.*did you mean main.*has: main"):
        identity()["mian"]
    with pytest.raises(VMValueError, match="no function 3"):
        identity()[3]
    deep = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(VMValueError, match=r"no function \[\[.*\.\.\."):
        identity().explain(deep)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cpu"}, "wanted a Device"),
        ({"device": []}, "at least one Device"),
        ({"exec_mode": "fast"}, "exec_mode: wanted 'compiled', 'bytecode' or None, got 'fast'"),
        ({"memory_cfg": "huge"}, "wanted 'naive' or 'pooled'"),
        ({"profile": 1}, "profile: wanted a bool"),
        ({"max_depth": 0}, "max_depth: wanted at least 1"),
        ({"max_depth": None}, "max_depth: wanted a number"),
        ({"max_bytes": -1}, "max_bytes"),
        ({"max_instructions": 1.5}, "max_instructions: wanted a number"),
        ({"max_seconds": "1"}, "max_seconds: wanted a number"),
        ({"trust": "maybe"}, "trust"),
    ],
)
def test_wrong_options_are_refused(options, message):
    ib = ExecBuilder()
    with ib.function("main", 0):
        ib.emit_ret(None)
    with pytest.raises((VMTypeError, VMValueError), match=message):
        VirtualMachine(ib.get(), **options)


def test_what_is_no_program_is_refused():
    with pytest.raises(VMTypeError, match="wanted an Executable, a path or bytes, got int"):
        VirtualMachine(3)


def test_a_vm_takes_executables_modules_paths_and_bytes(tmp_path):
    ib = ExecBuilder()
    with ib.function("main", 0):
        ib.emit_ret(ib.imm(5))
    ex = ib.get()
    ex.export_library(tmp_path / "a.rvm")
    for source in (ex, ex.mod, tmp_path / "a.rvm", str(tmp_path / "a.rvm"), ex.to_bytes()):
        assert VirtualMachine(source, [cpu(0)])["main"]() == 5


# Kernels


def chain(length: int) -> ExecBuilder:
    """out = x + length * y, by one kernel call and one storage per step."""
    ib = ExecBuilder()
    ib.add_kernels(section())
    with ib.function("main", 2, ["x", "y"]):
        last = ib.r(0)
        for i in range(length):
            storage, tensor = ib.r(2 + 2 * i), ib.r(3 + 2 * i)
            ib.emit_call("vm.builtin.alloc_storage", [16, 0, U8, "global"], storage)
            ib.emit_call("vm.builtin.alloc_tensor", [storage, 0, (4,), F32], tensor)
            ib.emit_call("vm.builtin.kill_object", [storage])
            ib.emit_call("add", [last, ib.r(1), tensor])
            if i:
                ib.emit_call("vm.builtin.kill_object", [last])
            last = tensor
        ib.emit_ret(last)
    return ib


@pytest.mark.parametrize("options", [{}, {"memory_cfg": "naive"}, {"max_instructions": 1000}])
def test_a_chain_of_kernels_gives_the_same_every_time(options):
    vm = machine(chain(100), **options)
    first = vm["main"](ones(), ones())
    second = vm["main"](ones(), 2 * ones())
    np.testing.assert_array_equal(first.numpy(), 101 * ones())
    np.testing.assert_array_equal(second.numpy(), 201 * ones())
    assert vm.kernel_source in ("native", "rebuilt")


def test_errors_of_kernels_name_kernel_parameter_and_vm_function():
    vm = machine(chain(3))
    with pytest.raises(VMValueError, match=r"add: argument 1 \(y\)") as caught:
        vm["main"](ones(4), ones(5))
    assert "in VM function main, instruction 3: call add" in "\n".join(caught.value.__notes__)
    with pytest.raises(VMTypeError, match="wanted .*float32.*got .*float64"):
        vm["main"](ones(4), np.ones(4))
    np.testing.assert_array_equal(vm["main"](ones(), ones()).numpy(), 4 * ones())


def test_errors_of_kernels_are_the_same_in_both_loops():
    ib = ExecBuilder()
    ib.add_kernels(section())
    with ib.function("run_copy", 2):
        ib.emit_call("copy_bf16", [ib.r(0), ib.r(1)])
        ib.emit_ret(ib.r(1))
    with ib.function("run_echo", 2):
        ib.emit_call("echo", [True, -2, 3, ib.r(0), 5, 6, 7.5, 8.5, 0.5, ib.r(1)])
        ib.emit_ret(ib.r(1))
    with ib.function("run_fails", 1):
        ib.emit_call("fails", [ib.r(0)])
        ib.emit_ret(None)
    for options in ({}, {"max_instructions": 100}):
        vm = machine(ib, **options)
        bits = array(np.array([0x3F80, 0x4000], "uint16"), dtype="bfloat16")
        out = array(np.zeros(2, "uint16"), dtype="bfloat16")
        np.testing.assert_array_equal(vm["run_copy"](bits, out).array, bits.array)
        assert vm["run_echo"](4, np.zeros(9, "int64")).numpy()[3] == 4
        with pytest.raises(VMTypeError, match="copy_bf16"):
            vm["run_copy"](bits, 3)
        with pytest.raises(VMTypeError, match="echo: argument 3"):
            vm["run_echo"]("x", np.zeros(9, "int64"))
        with pytest.raises(VMValueError, match="n must be even"):
            vm["run_fails"](ones(3))


@pytest.mark.parametrize("bad", [0, 1, 63, 64, 127, 128, 129])
def test_a_kernel_that_fails_in_a_row_of_kernels_is_named(bad):
    ib = ExecBuilder()
    ib.add_kernels(section())
    with ib.function("main", 2):
        for k in range(130):
            ib.emit_call("fails", [ib.r(int(k == bad))])
        ib.emit_ret(ib.r(0))
    vm, good = machine(ib), array(np.zeros(2, "float32"))
    assert vm["main"](good, good).tolist() == [1, 0]
    for wrong, kind, told in [
        (array(ones(3)), VMValueError, "n must be even"),
        (3, VMTypeError, "fails: argument 0"),
    ]:
        with pytest.raises(kind, match=told) as caught:
            vm["main"](good, wrong)
        assert f"instruction {bad}: call fails" in "\n".join(caught.value.__notes__)


def test_kernels_with_many_arguments_lie_in_rows_too():
    ib = ExecBuilder()
    ib.add_kernels(section())
    with ib.function("main", 4):
        for k in range(3):
            ib.emit_call("add", [ib.r(0), ib.r(0), ib.r(0)])
            ib.emit_call("echo", [True, 1, 2, ib.r(k), 4, 5, 1.5, 2.5, 3.5, ib.r(3)])
        ib.emit_ret(ib.r(3))
    vm, seen = machine(ib), array(np.zeros(9, "int64"))
    x = array(ones(2))
    with pytest.raises(VMTypeError, match="echo: argument 3") as caught:
        vm["main"](x, 7, 8, seen)
    assert "instruction 1: call echo" in "\n".join(caught.value.__notes__)
    assert x.tolist() == [2, 2]


def test_each_check_is_made_where_it_stands_for_arguments_that_do_not_fit():
    ib = ExecBuilder()
    info, seen = TensorInfo(F32, 1), []
    with ib.function("main", 2, ["x", "y"], [info, info]):
        for place, name in enumerate("xy"):
            ib.emit_call("vm.builtin.check_tensor_info", [ib.r(place), 1, F32, name])
            ib.emit_call("vm.builtin.match_shape", [ib.r(place), None, name, 0, 4])
            ib.emit_call("env.see", [ib.r(place)])
        ib.emit_ret(ib.r(1))
    vm = VirtualMachine(ib.get(), functions={"env.see": seen.append})
    good, x = array(ones()), array(ones(5))
    assert vm["main"](good, good) is good and len(seen) == 2
    for args, where, count in [
        ((array(np.ones(4)), good), "instruction 0: call vm.builtin.check_tensor_info", 2),
        ((x, good), "instruction 1: call vm.builtin.match_shape", 2),
        ((good, x), "instruction 4: call vm.builtin.match_shape", 3),
        ((good[::2], good), "instruction 1: call vm.builtin.match_shape", 3),
    ]:
        with pytest.raises(RelaxvmError) as caught:
            vm["main"](*args)
        assert where in "\n".join(caught.value.__notes__) and len(seen) == count


def test_numpy_arrays_are_taken_as_they_are_or_converted_whatever_their_memory_looks_like():
    ib = ExecBuilder()
    ib.add_kernels(section())
    info = TensorInfo(F32, 1)
    with ib.function("main", 2, ["x", "y"], [info, info]):
        for place, name in enumerate("xy"):
            ib.emit_call("vm.builtin.check_tensor_info", [ib.r(place), 1, F32, name])
            ib.emit_call("vm.builtin.match_shape", [ib.r(place), None, name, 0, 4])
        ib.emit_call("vm.builtin.alloc_storage", [16, 0, U8, "global"], ib.r(2))
        ib.emit_call("vm.builtin.alloc_tensor", [ib.r(2), 0, (4,), F32], ib.r(3))
        ib.emit_call("add", [ib.r(0), ib.r(1), ib.r(3)])
        ib.emit_ret(ib.r(3))
    with ib.function("same", 1, ["x"], [info]):
        ib.emit_call("vm.builtin.check_tensor_info", [ib.r(0), 1, F32, "x"])
        ib.emit_ret(ib.r(0))
    vm = VirtualMachine(ib.get())
    plain = np.arange(4, dtype="float32")
    frozen, shifted = plain.copy(), np.zeros(17, "uint8")[1:].view("float32")
    frozen.flags.writeable = False
    shifted[:] = plain
    others = [plain.astype(">f4"), np.repeat(plain, 2)[::2], frozen, shifted]
    for x in [plain, *others, plain.view(np.matrix).A1, array(plain)]:
        assert vm["main"](x, plain).tolist() == vm["main"](plain, x).tolist() == [0, 2, 4, 6]
    for x in (plain.astype("float64"), np.zeros((4, 1), "float32"), np.zeros(5, "float32")):
        with pytest.raises(RelaxvmError, match="^y: "):
            vm["main"](plain, x)
    # A view is taken: what the caller does to the array's shape does not show.
    same = vm["same"](plain)
    plain.shape = (2, 2)
    assert same.shape == (4,) and np.shares_memory(same.numpy(), plain)


# Memory reuse


def scratch(callee: str, returned: bool = False) -> ExecBuilder:
    """A tensor in a storage that `callee` sees, then x + that tensor; or the tensor itself."""
    ib = ExecBuilder()
    ib.add_kernels(section())
    with ib.function("main", 2):
        for place in (2, 4):
            ib.emit_call("vm.builtin.alloc_storage", [16, 0, U8, "global"], ib.r(place))
            ib.emit_call("vm.builtin.alloc_tensor", [ib.r(place), 0, (4,), F32], ib.r(place + 1))
        ib.emit_call("test.vm.fill", [ib.r(3), ib.r(1)])
        ib.emit_call(callee, [ib.r(3)], ib.r(6))
        ib.emit_call("add", [ib.r(0), ib.r(3), ib.r(5)])
        ib.emit_ret(ib.r(6) if returned else ib.r(5))
    with ib.function("inner", 1):
        ib.emit_ret(ib.r(0))
    return ib


def test_memory_of_intermediates_is_reused():
    seen = []
    grant = EXTERNS | {"env.peek": lambda x: seen.append(x.array.ctypes.data)}
    vm = VirtualMachine(scratch("env.peek").get(), functions=grant)
    results = [vm["main"](ones(), i) for i in range(5)]
    assert len(set(seen)) == 1
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result.numpy(), ones() + i)


keeps = pytest.mark.parametrize(
    "keep",
    [
        lambda x: x,
        lambda x: x.numpy(),
        lambda x: x.numpy()[1:],
        lambda x: memoryview(x.numpy()),
        lambda x: np.from_dlpack(x),
        lambda x: x[1:3],
        lambda x: {"deep": [x]},
    ],
    ids=["array", "numpy", "slice", "memoryview", "dlpack", "part", "nested"],
)


@keeps
def test_a_small_result_is_written_over_only_when_nobody_looks_at_it(keep):
    main, kept, x = machine(chain(1))["main"], [], array(ones())
    for i in range(9):
        kept.append(keep(main(x, array(i * ones()))))
        if i % 3 == 2:
            kept.pop(i % 2)
    values = [v["deep"][0] if isinstance(v, dict) else v for v in kept]
    assert [float(np.asarray(v).ravel()[0]) for v in values] == [4.0, 5.0, 6.0, 7.0, 8.0, 9.0]


@keeps
def test_memory_that_an_extern_keeps_is_not_reused(keep):
    kept = []
    grant = EXTERNS | {"env.keep": lambda x: kept.append(keep(x))}
    vm = VirtualMachine(scratch("env.keep").get(), functions=grant)
    for i in range(4):
        vm["main"](ones(), i)
        # Every other call's memory is let go, and may be used again.
        if i == 1:
            kept.pop()
    values = [v["deep"][0] if isinstance(v, dict) else v for v in kept]
    assert [float(np.asarray(v).ravel()[0]) for v in values] == [0.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "callee", ["test.vm.identity", "inner", "vm.builtin.make_tuple", "vm.builtin.move"]
)
def test_results_never_share_memory_with_later_calls(callee):
    vm = machine(scratch(callee, returned=True))
    results = [vm["main"](ones(), i) for i in range(4)]
    for i, result in enumerate(results):
        value = result[0] if type(result) is tuple else result
        np.testing.assert_array_equal(value.numpy(), np.full(4, i))


def test_an_exception_leaves_no_half_used_memory():
    calls = []

    def sometimes(x):
        calls.append(x)
        if len(calls) % 2:
            raise KeyError("not now")

    vm = VirtualMachine(
        scratch("env.sometimes").get(), functions=EXTERNS | {"env.sometimes": sometimes}
    )
    for i in range(6):
        if i % 2 == 0:
            with pytest.raises(KeyError):
                vm["main"](ones(), i)
        else:
            np.testing.assert_array_equal(vm["main"](ones(), i).numpy(), ones() + i)
    assert [float(x.numpy()[0]) for x in calls] == [0, 1, 2, 3, 4, 5]


def test_a_storage_allocated_in_a_loop_is_new_each_time():
    ib = ExecBuilder()
    with ib.function("main", 1):
        top, end = ib.label(), ib.label()
        ib.emit_call("vm.builtin.make_tuple", [], ib.r(4))
        ib.place(top)
        ib.emit_if(ib.r(0), end)
        ib.emit_call("vm.builtin.alloc_storage", [16, 0, U8, "global"], ib.r(1))
        ib.emit_call("vm.builtin.alloc_tensor", [ib.r(1), 0, (4,), F32], ib.r(2))
        ib.emit_call("test.vm.fill", [ib.r(2), ib.r(0)])
        ib.emit_call("vm.builtin.make_tuple", [ib.r(2), ib.r(4)], ib.r(4))
        ib.emit_call("test.vm.add_scalar", [ib.r(0), -1], ib.r(0))
        ib.emit_goto(top)
        ib.place(end)
        ib.emit_ret(ib.r(4))
    value, found = machine(ib)["main"](4), []
    while value:
        found.append(float(value[0].numpy()[0]))
        value = value[1]
    assert found == [1.0, 2.0, 3.0, 4.0]


def test_killed_registers_free_their_memory():
    alive = []

    def make():
        made = np.zeros(100)
        alive.append(weakref.ref(made))
        return from_numpy(made)

    def check():
        gc.collect()
        return [ref() is not None for ref in alive]

    ib = ExecBuilder()
    with ib.function("main", 0):
        ib.emit_call("env.make", [], ib.r(0))
        ib.emit_call("env.make", [], ib.r(1))
        ib.emit_call("vm.builtin.kill_object", [ib.r(0)])
        ib.emit_call("env.check", [], ib.r(2))
        ib.emit_call("vm.builtin.null_value", [], ib.r(1))
        ib.emit_call("env.check", [], ib.r(3))
        ib.emit_call("vm.builtin.make_tuple", [ib.r(2), ib.r(3)], ib.r(2))
        ib.emit_ret(ib.r(2))
    vm = VirtualMachine(ib.get(), functions={"env.make": make, "env.check": check})
    assert vm["main"]() == ((False, True), (False, False))


# Recursion and errors


def countdown() -> ExecBuilder:
    ib = ExecBuilder()
    with ib.function("main", 1):
        end = ib.label()
        ib.emit_if(ib.r(0), end)
        ib.emit_call("test.vm.add_scalar", [ib.r(0), -1], ib.r(1))
        ib.emit_call("main", [ib.r(1)], ib.r(1))
        ib.emit_call("test.vm.add_scalar", [ib.r(1), 1], ib.r(1))
        ib.emit_ret(ib.r(1))
        ib.place(end)
        ib.emit_ret(ib.imm(0))
    return ib


def test_vm_functions_call_each_other_deeply_without_python_recursion():
    assert machine(countdown())["main"](9_999) == 9_999
    assert machine(countdown(), max_instructions=10**6)["main"](9_999) == 9_999


@pytest.mark.parametrize("options", [{}, {"max_instructions": 10**6}])
def test_endless_recursion_ends_with_a_limit_error(options):
    with pytest.raises(LimitError, match="more than max_depth=10000") as caught:
        machine(countdown(), **options)["main"](-1)
    assert "more VM frames" in "\n".join(caught.value.__notes__)
    assert len(caught.value.__notes__) < 30
    with pytest.raises(LimitError, match="max_depth=5"):
        machine(countdown(), max_depth=5, **options)["main"](6)
    assert machine(countdown(), max_depth=5, **options)["main"](5) == 5


def test_endless_recursion_through_python_ends_with_a_limit_error():
    ib = ExecBuilder()
    with ib.function("main", 1):
        ib.emit_call("env.again", [ib.r(0)], ib.r(0))
        ib.emit_ret(ib.r(0))
    vm = VirtualMachine(ib.get(), functions={"env.again": lambda x: vm["main"](x)})
    with pytest.raises(LimitError, match="call each other deeper than Python"):
        vm["main"](1)


def test_an_extern_may_overflow_the_stack_by_itself():
    def endless(x):
        return endless(x)

    ib = ExecBuilder()
    with ib.function("main", 1):
        ib.emit_call("env.endless", [ib.r(0)], ib.r(0))
        ib.emit_ret(ib.r(0))
    with pytest.raises(RecursionError):
        VirtualMachine(ib.get(), functions={"env.endless": endless})["main"](1)


@pytest.mark.parametrize("options", [{}, {"max_instructions": 100}])
def test_an_exception_of_an_extern_keeps_type_traceback_and_names_vm_frames(options):
    class Mine(Exception):
        pass

    def faulty(x):
        raise Mine("inside")

    ib = ExecBuilder()
    with ib.function("main", 1):
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0)], ib.r(1))
        ib.emit_call("helper", [ib.r(0)], ib.r(1))
        ib.emit_ret(ib.r(1))
    with ib.function("helper", 1):
        ib.emit_call("env.faulty", [ib.r(0)], ib.r(1))
        ib.emit_ret(ib.r(1))
    vm = VirtualMachine(ib.get(), functions={"env.faulty": faulty}, **options)
    with pytest.raises(Mine, match="inside") as caught:
        vm["main"](1)
    assert caught.value.__notes__ == [
        "  in VM function helper, instruction 0: call env.faulty in: %0 dst: %1",
        "  in VM function main, instruction 1: call helper in: %0 dst: %1",
    ]
    assert any(frame.name == "faulty" for frame in traceback.extract_tb(caught.value.__traceback__))


# TVM's stateful interface


def test_save_function_converts_once_and_may_drop_the_result():
    ib = ExecBuilder()
    calls = []
    with ib.function("main", 2, ["x", "y"]):
        ib.emit_call("env.count", [ib.r(0), ib.r(1)], ib.r(2))
        ib.emit_ret(ib.r(2))
    vm = VirtualMachine(ib.get(), functions={"env.count": lambda x, y: calls.append(1) or x})
    vm.save_function("main", "saved", ones(), y=2, include_return=False)
    assert vm["saved"]() is None
    assert vm.module["saved"]() is None
    assert len(calls) == 2
    assert "saved" in vm.function_names
    for taken in ("saved", "main"):
        with pytest.raises(VMValueError, match="is a function already"):
            vm.save_function("main", taken, 1, 2)
    with pytest.raises(VMTypeError, match="missing: y"):
        vm.save_function("main", "other", 1)
    with pytest.raises(VMValueError, match="no function 'nope'"):
        vm.save_function("nope", "other")


def test_set_input_invoke_stateful_and_get_outputs():
    ib = ExecBuilder()
    with ib.function("main", 2, ["x", "y"]):
        ib.emit_call("test.vm.add", [ib.r(0), ib.r(1)], ib.r(2))
        ib.emit_call("vm.builtin.make_tuple", [ib.r(2), ib.r(0)], ib.r(2))
        ib.emit_ret(ib.r(2))
    vm = machine(ib)
    with pytest.raises(VMValueError, match="no inputs are set"):
        vm.invoke_stateful("main")
    with pytest.raises(VMValueError, match="no outputs yet"):
        vm.get_outputs("main")
    with pytest.raises(VMTypeError, match="missing: y"):
        vm.set_input("main", ones())
    vm.set_input("main", ones(), y=ones())
    vm.invoke_stateful("main")
    np.testing.assert_array_equal(vm.get_outputs("main")[0].numpy(), 2 * ones())
    vm.module["set_input"]("main", ones(), 2 * ones())
    np.testing.assert_array_equal(vm.get_outputs("main")[0].numpy(), 2 * ones())
    vm.module["invoke_stateful"]("main")
    np.testing.assert_array_equal(vm.module["get_output"]("main")[0].numpy(), 3 * ones())
    for call in (vm.set_input, vm.invoke_stateful, vm.get_outputs):
        with pytest.raises(VMValueError, match="no function 'nope'"):
            call("nope")


def test_a_function_without_parameters_needs_no_inputs():
    ib = ExecBuilder()
    with ib.function("main", 0):
        ib.emit_ret(ib.imm(4))
    vm = machine(ib)
    vm.invoke_stateful("main")
    assert vm.get_outputs("main") == 4


def test_an_instrument_sees_every_call_and_may_skip_it():
    ib = chain(1)
    with ib.function("outer", 2):
        ib.emit_call("main", [ib.r(0), ib.r(1)], ib.r(2))
        ib.emit_call("test.vm.identity", [ib.r(2)], ib.r(2))
        ib.emit_ret(ib.r(2))
    vm = machine(ib)
    events = []

    def watch(func, symbol, before, result, *args):
        events.append((symbol, before, len(args)))
        skipped = before and symbol == "test.vm.identity"
        return VMInstrumentReturnKind.SKIP_RUN if skipped else VMInstrumentReturnKind.NO_OP

    vm.set_instrument(watch)
    assert vm["outer"](ones(), ones()) is None
    assert [event[:2] for event in events] == [
        ("main", True),
        ("vm.builtin.alloc_storage", True),
        ("vm.builtin.alloc_storage", False),
        ("vm.builtin.alloc_tensor", True),
        ("vm.builtin.alloc_tensor", False),
        ("add", True),
        ("add", False),
        ("main", False),
        ("test.vm.identity", True),
    ]
    assert ("add", True, 3) in events
    vm.set_instrument(None)
    np.testing.assert_array_equal(vm["outer"](ones(), ones()).numpy(), 2 * ones())
    assert len(events) == 9
    vm.set_instrument(lambda *args: "maybe")
    with pytest.raises(VMTypeError, match="wanted VMInstrumentReturnKind"):
        vm["outer"](ones(), ones())
    with pytest.raises(VMTypeError, match="wanted a function"):
        vm.set_instrument(3)
    with pytest.raises(VMValueError, match="registered"):
        vm.set_instrument("no.such.function")


def test_time_evaluator_measures_a_call():
    vm = machine(chain(2))
    evaluators = (
        vm.time_evaluator("main", cpu(), number=2, repeat=3),
        vm.module.time_evaluator("main", cpu(0), number=2, repeat=3, min_repeat_ms=0),
    )
    for evaluate in evaluators:
        result = evaluate(ones(), ones())
        assert len(result.results) == 3
        assert result.min <= result.median <= result.max
        assert result.mean > 0
    vm.save_function("main", "timed", ones(), ones())
    assert len(vm.time_evaluator("timed", cpu(), repeat=2)().results) == 2
    seen = []
    register_func("test.vm.flush", lambda *args: seen.append(len(args)))
    try:
        vm.time_evaluator("main", number=2, repeat=3, f_preproc="test.vm.flush")(ones(), ones())
    finally:
        remove_global_func("test.vm.flush")
    assert seen == [2, 2, 2]
    with pytest.raises(VMValueError, match="no function 'nope'"):
        vm.time_evaluator("nope")
    with pytest.raises(VMValueError, match="number"):
        vm.time_evaluator("main", number=0)


def test_the_vm_and_its_functions_describe_themselves():
    vm = machine(chain(1))
    assert "main" in vm
    assert "nope" not in vm
    assert repr(vm) == f"<VirtualMachine on cpu(0): main; kernels {vm.kernel_source}>"
    assert vm["main"].__name__ == "main"
    assert vm["main"].__doc__ == "main(x, y)"
    assert vm["main"] is vm["main"]
    assert vm.module.implements_function("main")
    assert "VirtualMachine" in repr(vm.module)
    assert isinstance(RelaxvmError("x"), Exception)
