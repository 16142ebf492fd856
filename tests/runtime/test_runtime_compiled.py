"""Compiled functions: the same as the interpreter in all that can be seen, and nothing leaks."""

import dataclasses
import gc
import signal
import sys
import threading

import msgpack
import numpy as np
import pytest
from fuzz.random_bytecode import (
    compiled,
    machines,
    random_program,
)
from leak_check import growth, peak

from relaxvm.base import DataType, LimitError, LoadError, VMTypeError, VMValueError
from relaxvm.runtime import (
    DimProgram,
    ExecBuilder,
    NDArray,
    ObjectInfo,
    PrimInfo,
    TensorInfo,
    TupleInfo,
    VirtualMachine,
    VMInstrumentReturnKind,
    array,
    load,
)

F32, I64, BOOL = DataType("float32"), DataType("int64"), DataType("bool")
VECTOR = TensorInfo(F32, 1, (("$n",),))


def vector(b, register, heap, slot=0, name="x"):
    """Check that a register is a vector of floats, and store its size."""
    what = f"main: parameter {name}: Tensor((n,), float32)"
    b.emit_call("vm.builtin.check_tensor_info", [register, 1, F32, what])
    b.emit_call("vm.builtin.match_shape", [register, heap, what, 1, slot])


def like(b, heap, storage, tensor, shape):
    """Allocate a vector of the size in slot 0."""
    b.emit_call("vm.builtin.shape_expr", [heap, 1, DimProgram(("$0", 4, "*"))])
    b.emit_call("vm.builtin.make_shape", [heap, 1, 1], shape)
    b.emit_call("vm.builtin.alloc_storage", [shape, 0, F32, "global"], storage)
    b.emit_call("vm.builtin.make_shape", [heap, 1, 0], shape)
    b.emit_call("vm.builtin.alloc_tensor", [storage, 0, shape, F32], tensor)


def doubled():
    """main(x) = env.twice written into a new vector; env.look sees a vector in between."""
    b = ExecBuilder()
    with b.function("main", 1, ["x"], [VECTOR], VECTOR):
        heap, shape = b.r(1), b.r(4)
        b.emit_call("vm.builtin.alloc_shape_heap", [2], heap)
        vector(b, b.r(0), heap)
        like(b, heap, b.r(2), b.r(3), shape)
        b.emit_call("env.twice", [b.r(0), b.r(3)])
        b.emit_call("env.look", [b.r(3)], b.r(5))
        like(b, heap, b.r(6), b.r(7), shape)
        b.emit_call("env.twice", [b.r(3), b.r(7)])
        b.emit_ret(b.r(7))
    return compiled(b)


def twice(x, out):
    out.array[...] = x.array * 2


def both(ex, functions, **options):
    modes = ("compiled", "bytecode")
    return [VirtualMachine(ex, functions=functions, exec_mode=m, **options) for m in modes]


def test_hand_written_bytecode_is_compiled():
    ex = doubled()
    seen = []
    for vm in both(ex, {"env.twice": twice, "env.look": lambda x: seen.append(x.shape)}):
        for n in (3, 0, 5, 1):
            x = np.arange(n, dtype="float32")
            assert vm["main"](x).numpy().tolist() == (x * 4).tolist()
            assert vm["main"](array(x)).numpy().tolist() == (x * 4).tolist()
    vm = VirtualMachine(ex, functions={"env.twice": twice, "env.look": len})
    assert vm.explain("main").mode == "compiled"
    assert {row.where for row in vm.explain("main")} == {"native", "python"}
    assert len(seen) == 16


def test_a_tensor_of_constant_size_lies_in_a_storage_of_any_size():
    b = ExecBuilder()
    with b.function("main", 1, ["x"], [VECTOR], TensorInfo(F32, 1, (2,))):
        heap, shape = b.r(1), b.r(2)
        b.emit_call("vm.builtin.alloc_shape_heap", [2], heap)
        vector(b, b.r(0), heap)
        b.emit_call("vm.builtin.shape_expr", [heap, 1, DimProgram(("$0", 4, "*"))])
        b.emit_call("vm.builtin.make_shape", [heap, 1, 1], shape)
        b.emit_call("vm.builtin.alloc_storage", [shape, 0, F32, "global"], b.r(3))
        b.emit_call("vm.builtin.alloc_tensor", [b.r(3), 8, (2,), F32], b.r(4))
        b.emit_call("env.fill", [b.r(4)])
        b.emit_ret(b.r(4))
    vms = both(compiled(b), {"env.fill": lambda out: out.array.fill(3)})
    assert vms[0].explain("main").mode == "compiled"
    for vm in vms:
        assert vm["main"](np.zeros(4, "float32")).numpy().tolist() == [3, 3]
        with pytest.raises(VMValueError, match="needs 16 bytes, the storage has 12"):
            vm["main"](np.zeros(3, "float32"))


def test_what_has_too_many_arguments_to_check_is_interpreted(monkeypatch):
    monkeypatch.setattr("relaxvm.target.llvm.vm_entry.MAX_INSTRUCTIONS", 1000)
    b = ExecBuilder()
    for name, count in (("few", 2), ("many", 100)):
        with b.function(name, count, [f"x{i}" for i in range(count)], [VECTOR] * count, VECTOR):
            b.emit_ret(b.r(count - 1))
    vm = VirtualMachine(compiled(b))
    assert [vm.explain(name).mode for name in ("few", "many")] == ["compiled", "bytecode"]
    xs = [np.full(3, i, "float32") for i in range(100)]
    assert vm["few"](*xs[:2]).numpy().tolist() == [1, 1, 1]
    assert vm["many"](*xs).numpy().tolist() == [99, 99, 99]


def test_memory_that_an_extern_keeps_is_not_used_again():
    kept = []
    vm = VirtualMachine(
        doubled(), functions={"env.twice": twice, "env.look": lambda x: kept.append(x) or 0}
    )
    for n in (3, 3, 4, 2, 3):
        vm["main"](np.full(n, n, "float32"))
    values = [np.asarray(x.numpy()).tolist() for x in kept]
    assert values == [[2.0 * n] * n for n in (3, 3, 4, 2, 3)]


def test_memory_under_a_view_that_an_extern_keeps_is_not_used_again():
    kept = []
    vm = VirtualMachine(
        doubled(), functions={"env.twice": twice, "env.look": lambda x: kept.append(x.numpy()) or 0}
    )
    for n in (3, 3, 2, 3):
        vm["main"](np.full(n, n + len(kept), "float32"))
    assert [x[0] for x in kept] == [6.0, 8.0, 8.0, 12.0]


def constant_sizes():
    """Prepared storages, one shown to an extern, and a tuple of results."""
    b = ExecBuilder()
    x = TensorInfo(F32, 1, (4,))
    with b.function("main", 1, ["x"], [x], TupleInfo((x, x))):
        what = "main: parameter x: Tensor((4,), float32)"
        b.emit_call("vm.builtin.check_tensor_info", [b.r(0), 1, F32, what])
        b.emit_call("vm.builtin.match_shape", [b.r(0), b.void_arg(), what, 0, 4])
        for i in range(1, 7, 2):
            b.emit_call("vm.builtin.alloc_storage", [16, 0, F32, "global"], b.r(i))
            b.emit_call("vm.builtin.alloc_tensor", [b.r(i), 0, (4,), F32], b.r(i + 1))
        b.emit_call("env.twice", [b.r(0), b.r(2)])
        b.emit_call("env.twice", [b.r(2), b.r(4)])
        b.emit_call("env.twice", [b.r(4), b.r(6)])
        b.emit_call("vm.builtin.make_tuple", [b.r(4), b.r(6)], b.r(7))
        b.emit_ret(b.r(7))
    return compiled(b)


def test_results_share_no_memory_with_later_calls():
    for vm in both(constant_sizes(), {"env.twice": twice}):
        first = vm["main"](np.ones(4, "float32"))
        second = vm["main"](np.full(4, 3, "float32"))
        assert [r.numpy()[0] for r in (*first, *second)] == [4.0, 8.0, 12.0, 24.0]
        assert all(type(r) is NDArray and r.array.flags.writeable for r in first)


def test_an_extern_that_fails_leaves_nothing_behind():
    x = array(np.ones(4, "float32"))

    def fails(x, out):
        raise KeyError("no")

    for functions in ({"env.twice": twice}, {"env.twice": fails}):
        vm = VirtualMachine(constant_sizes(), functions=functions)
        call = vm["main"]
        before = sys.getrefcount(x), sys.getrefcount(x.array)

        def work(call=call):
            for _ in range(300):
                try:
                    call(x)
                except KeyError:
                    pass

        # The smallest object has 16 bytes.
        assert growth(work) < 300 * 16
        assert (sys.getrefcount(x), sys.getrefcount(x.array)) == before


WRONG = [
    ((np.ones(3, "float32"),), VMValueError),
    ((np.ones((4, 1), "float32"),), VMTypeError),
    ((np.ones(4, "int32"),), VMTypeError),
    ((None,), VMTypeError),
    ((), VMTypeError),
    ((1, 2), VMTypeError),
]


@pytest.mark.parametrize(("args", "kind"), WRONG)
def test_refused_calls_leave_nothing_behind(args, kind):
    vm = VirtualMachine(constant_sizes(), functions={"env.twice": twice})
    call = vm["main"]

    def work():
        for _ in range(100):
            with pytest.raises(kind):
                call(*args)

    assert growth(work) < 100 * 16


@pytest.mark.slow
def test_a_hundred_thousand_calls_leave_nothing_behind():
    sizes = (0, 3, 7, 2)
    given = [array(np.arange(n, dtype="float32")) for n in sizes]
    vm = VirtualMachine(doubled(), functions={"env.twice": twice, "env.look": lambda x: x})
    call = vm["main"]
    before = [sys.getrefcount(x) for x in given]

    def work():
        for i in range(12_500):
            call(given[i & 3])

    assert growth(work) < 4000
    assert [sys.getrefcount(x) for x in given] == before


def one_result():
    b = ExecBuilder()
    x = TensorInfo(F32, 1, (4,))
    with b.function("main", 1, ["x"], [x], x):
        what = "main: parameter x: Tensor((4,), float32)"
        b.emit_call("vm.builtin.check_tensor_info", [b.r(0), 1, F32, what])
        b.emit_call("vm.builtin.match_shape", [b.r(0), b.void_arg(), what, 0, 4])
        b.emit_call("vm.builtin.alloc_storage", [16, 0, F32, "global"], b.r(1))
        b.emit_call("vm.builtin.alloc_tensor", [b.r(1), 0, (4,), F32], b.r(2))
        b.emit_call("env.twice", [b.r(0), b.r(2)])
        b.emit_ret(b.r(2))
    return compiled(b)


def test_results_are_computed_right_in_the_memory_given():
    seen = []

    def looks(x, out):
        seen.append(out.array.ctypes.data)
        twice(x, out)

    vm = VirtualMachine(one_result(), functions={"env.twice": looks})
    x = np.arange(4, dtype="float32")
    for target in (np.zeros(4, "float32"), array(np.zeros(4, "float32"))):
        assert vm["main"](x, out=target) is target
        assert np.asarray(target).tolist() == [0.0, 2.0, 4.0, 6.0]
        place = target.array if type(target) is NDArray else target
        assert seen[-1] == place.ctypes.data
    # Memory that is read is not written over: the result takes a detour.
    assert vm["main"](x, out=x) is x
    assert x.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert seen[-1] != x.ctypes.data


@pytest.mark.parametrize(
    "target",
    [
        np.zeros(5, "float32"),
        np.zeros(4, "float64"),
        np.zeros((2, 2), "float32"),
        np.broadcast_to(np.float32(0), (4,)),
        "no",
    ],
)
def test_destinations_that_do_not_fit_are_refused_alike(target):
    x = np.arange(4, dtype="float32")
    found = []
    for vm in both(one_result(), {"env.twice": twice}):
        with pytest.raises((VMTypeError, VMValueError)) as info:
            vm["main"](x, out=target)
        found.append((type(info.value), str(info.value)))
    assert found[0] == found[1]


def test_a_parameter_may_be_called_out():
    b = ExecBuilder()
    x = TensorInfo(F32, 1, (4,))
    with b.function("main", 2, ["x", "out"], [x, x], x):
        b.emit_call("env.twice", [b.r(0), b.r(1)])
        b.emit_ret(b.r(1))
    for vm in both(compiled(b), {"env.twice": twice}):
        x, y = array(np.ones(4, "float32")), array(np.zeros(4, "float32"))
        assert vm["main"](x, out=y).numpy().tolist() == [2.0] * 4
        with pytest.raises(VMTypeError, match="out is given twice"):
            vm["main"](x, y, out=y)


def test_an_extern_may_be_given_the_machine():
    b = ExecBuilder()
    with b.function("main", 0):
        b.emit_call("env.name", [b.vm_state()], b.r(0))
        b.emit_ret(b.r(0))
    for vm in both(compiled(b), {"env.name": lambda vm: type(vm).__name__}):
        assert vm["main"]() == "VirtualMachine"


def test_a_symbolic_result_is_written_or_refused_alike():
    functions = {"env.twice": twice, "env.look": lambda x: None}
    for vm in both(doubled(), functions):
        target = np.zeros(3, "float32")
        assert vm["main"](np.ones(3, "float32"), out=target) is target
        assert target.tolist() == [4.0] * 3
        with pytest.raises(VMValueError, match="out"):
            vm["main"](np.ones(2, "float32"), out=target)


def recursion():
    """down(n) = n == 0 ? 0 : 1 + ... through env.minus_one, not in tail position."""
    b = ExecBuilder()
    with b.function("down", 1, ["n"], [PrimInfo(I64)], ObjectInfo()):
        end = b.label()
        b.emit_if(b.r(0), end)
        b.emit_call("env.minus_one", [b.r(0)], b.r(1))
        b.emit_call("down", [b.r(1)], b.r(2))
        b.emit_call("vm.builtin.make_tuple", [b.r(2)], b.r(3))
        b.emit_call("env.check", [b.r(1)], b.r(4))
        b.emit_ret(b.r(2))
        b.place(end)
        b.emit_ret(b.imm(0))
    return compiled(b)


def check(n):
    if n == 7:
        raise ValueError("seven")
    return n


def test_recursion_needs_no_c_stack_and_counts_its_depth():
    externs = {"env.minus_one": lambda n: n - 1, "env.check": lambda n: n}
    found = []
    for vm in both(recursion(), externs, max_depth=3000):
        assert vm["down"](3000) == 0
        with pytest.raises(LimitError) as info:
            vm["down"](3002)
        notes = [n for n in info.value.__notes__ if "more VM frames" not in n]
        found.append((str(info.value), notes))
    assert found[0] == found[1]


@pytest.mark.parametrize("depth", [8, 9, 20, 30])
def test_errors_deep_inside_name_the_same_frames(depth):
    externs = {"env.minus_one": lambda n: n - 1, "env.check": check}
    found = []
    for vm in both(recursion(), externs):
        with pytest.raises(ValueError, match="seven") as info:
            vm["down"](depth)
        found.append(info.value.__notes__)
    assert found[0] == found[1]


def loop():
    """grow(n, x): n times x = twice(x), round and round in one frame."""
    b = ExecBuilder()
    with b.function("grow", 2, ["n", "x"], [PrimInfo(I64), VECTOR], VECTOR):
        begin, end = b.label(), b.label()
        heap, shape = b.r(2), b.r(5)
        b.place(begin)
        b.emit_call("vm.builtin.alloc_shape_heap", [2], heap)
        vector(b, b.r(1), heap)
        b.emit_if(b.r(0), end)
        like(b, heap, b.r(3), b.r(4), shape)
        b.emit_call("env.twice", [b.r(1), b.r(4)])
        b.emit_call("env.minus_one", [b.r(0)], b.r(6))
        b.emit_call("vm.builtin.move", [b.r(4)], b.r(1))
        b.emit_call("vm.builtin.move", [b.r(6)], b.r(0))
        b.emit_call("vm.builtin.kill_object", [b.r(3)])
        b.emit_goto(begin)
        b.place(end)
        b.emit_ret(b.r(1))
    return compiled(b)


def test_loops_let_go_of_what_each_round_made():
    externs = {"env.twice": twice, "env.minus_one": lambda n: n - 1}
    for vm in both(loop(), externs):
        x = np.full(1000, 0.0, "float32")
        assert vm["grow"](3, np.ones(2, "float32")).numpy().tolist() == [8.0, 8.0]
        assert vm["grow"](0, np.ones(2, "float32")).numpy().tolist() == [1.0, 1.0]
        assert peak(lambda vm=vm, x=x: vm["grow"](200, x)) < 40_000
    assert VirtualMachine(loop(), functions=externs).explain("grow").mode == "compiled"


def endless():
    b = ExecBuilder()
    with b.function("forever", 1, ["x"], [ObjectInfo()], ObjectInfo()):
        begin = b.label()
        b.place(begin)
        b.emit_call("vm.builtin.is_null", [b.r(0)], b.r(1))
        b.emit_goto(begin)
    return compiled(b)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers")
def test_signals_and_other_threads_reach_endless_loops():
    class Stop(Exception):
        pass

    def stop(number, frame):
        raise Stop

    former = signal.signal(signal.SIGALRM, stop)
    ticks = []
    try:
        for vm in both(endless(), {}):
            done = threading.Event()

            def tick(done=done):
                while not done.wait(0.001):
                    ticks.append(1)

            thread = threading.Thread(target=tick)
            thread.start()
            before = len(ticks)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(Stop):
                vm["forever"](None)
            done.set()
            thread.join()
            assert len(ticks) > before + 2
    finally:
        signal.signal(signal.SIGALRM, former)


def test_an_instrument_sees_calls_of_functions_held_since_before():
    vm = VirtualMachine(one_result(), functions={"env.twice": twice})
    call, x = vm["main"], np.ones(4, "float32")
    call(x)
    names = []

    def instrument(func, name, before, result, *args):
        names.append(name)
        return VMInstrumentReturnKind.NO_OP

    vm.set_instrument(instrument)
    call(x)
    assert "env.twice" in names
    count = len(names)
    vm.set_instrument(None)
    call(x)
    assert len(names) == count


def test_many_threads_share_one_machine():
    vm = VirtualMachine(doubled(), functions={"env.twice": twice, "env.look": lambda x: x})
    call, wrong = vm["main"], []

    def work(n):
        x = np.full(n, n, "float32")
        for _ in range(200):
            if call(x).numpy().tolist() != [4.0 * n] * n:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(i % 5 + 1,)) for i in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_machine_and_its_functions_may_go_in_any_order():
    vm = VirtualMachine(one_result(), functions={"env.twice": twice})
    call, x = vm["main"], np.ones(4, "float32")
    del vm
    gc.collect()
    assert call(x).numpy().tolist() == [2.0] * 4
    result = call(x)
    del call
    gc.collect()
    assert result.numpy().tolist() == [2.0] * 4


def test_a_file_keeps_the_compiled_functions():
    ex = constant_sizes()
    data = ex.to_bytes(sign=False)
    # Two objects: its own functions, and those that all programs share.
    assert msgpack.unpackb(data)["version"] == 3
    for trust, source in (("native", "native"), ("portable", "rebuilt")):
        loaded = load(data, trust=trust)
        assert loaded.to_bytes(sign=False) == data
        vm = VirtualMachine(loaded, functions={"env.twice": twice})
        assert vm.kernel_source == source
        assert vm.explain("main").mode == "compiled"
        assert vm["main"](np.ones(4, "float32"))[1].numpy().tolist() == [8.0] * 4


def changed(ex, **fields):
    """The file of `ex` with other compiled functions."""
    section = ex.kernels
    code = section.native[0]
    functions = dataclasses.replace(code.functions, **fields)
    native = (dataclasses.replace(code, functions=functions),)
    ex.kernels = dataclasses.replace(section, native=native)
    return ex.to_bytes(sign=False)


@pytest.mark.parametrize(
    "fields",
    [
        {"words": ("careful", "max_depth", "threads", "py:Py_Nothing")},
        {"words": ("careful", "max_depth", "threads", "odd:thing")},
        {"words": ("careful", "max_depth", "threads", "arg:0:99:0")},
        {"words": ("careful", "max_depth", "threads", "type:NDArrays")},
        {"functions": ()},
        {"sites": ((0, 99, ()),)},
    ],
)
def test_compiled_functions_that_do_not_fit_are_refused(fields):
    if fields.get("functions") == ():
        fields = {"functions": (), "sites": ()}
    with pytest.raises(LoadError):
        VirtualMachine(
            load(changed(constant_sizes(), **fields), trust="native"),
            functions={"env.twice": twice},
        )


def test_a_damaged_list_of_compiled_functions_is_no_program():
    document = msgpack.unpackb(constant_sizes().to_bytes(sign=False), strict_map_key=False)
    native = document["kernels"]["native"][0]
    for damage in (
        {"words": [1]},
        {"words": ["careful", "careful"]},
        {"functions": [["main", "bad symbol", "", [], []]]},
        {"functions": [["main", "f", "", [], [[9, ""]]]]},
        {"sites": [[0, "x", []]]},
        {"sites": [[5, 0, []]]},
        {"extra": []},
    ):
        kept = native["functions"]
        native["functions"] = {**kept, **damage}
        with pytest.raises(LoadError):
            load(msgpack.packb(document))
        native["functions"] = kept
    document["version"] = 1
    with pytest.raises(LoadError, match="version 1"):
        load(msgpack.packb(document))


@pytest.mark.parametrize("seed", range(2))
def test_most_random_bytecode_is_compiled(seed):
    vm, _ = machines(random_program(seed, 12))
    modes = [vm.explain(name).mode for name in vm.function_names]
    assert modes.count("compiled") > len(modes) // 2
