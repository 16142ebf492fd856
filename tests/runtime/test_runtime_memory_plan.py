"""What a program will allocate, known before it runs, enforced, and kept from call to call."""

import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxvm.base import DataType, LimitError, VMTypeError, VMValueError
from relaxvm.runtime import DimProgram, Effect, ExecBuilder, TensorInfo, VirtualMachine
from relaxvm.runtime.dims import check, evaluate
from relaxvm.runtime.formula import Formula, Peak
from relaxvm.runtime.heap import MakeCode, MatchCode
from relaxvm.runtime.memory_trace import _symbol_in, _Tracer

pytestmark = pytest.mark.vm_modes

F32 = DataType("float32")
ALLOC, TENSOR, KILL = (f"vm.builtin.{n}" for n in ("alloc_storage", "alloc_tensor", "kill_object"))


def allocate(b, storage, tensor, count):
    b.emit_call(ALLOC, [count * 4, 0, F32, "global"], b.r(storage))
    b.emit_call(TENSOR, [b.r(storage), 0, (count,), F32], b.r(tensor))


def kill(b, *registers):
    for r in registers:
        b.emit_call(KILL, [b.r(r)])


def static_program():
    """400 and 800 bytes at once, then 400 freed, then 80 more: a peak of 1200."""
    b = ExecBuilder()
    with b.function("main", 0):
        allocate(b, 0, 1, 100)
        allocate(b, 2, 3, 200)
        kill(b, 1, 0)
        allocate(b, 4, 5, 20)
        b.emit_call("vm.builtin.shape_of", [b.r(5)], b.r(6))
        b.emit_ret(b.r(6))
    return b.get()


def symbolic_program(show=False):
    """main(x: (n, 4)): a storage of 16 n bytes for a copy of x by an extern, and a fresh result."""
    b = ExecBuilder()
    info = TensorInfo(F32, 2, (("$n",), 4))
    with b.function("main", 1, param_names=["x"], params_sinfo=[info]):
        context = "main: parameter x: Tensor((n, 4), float32)"
        b.emit_call("vm.builtin.alloc_shape_heap", [2], b.r(1))
        pairs = [MatchCode.STORE_TO_HEAP, 0, MatchCode.ASSERT_EQUAL_TO_IMM, 4]
        b.emit_call("vm.builtin.match_shape", [b.r(0), b.r(1), context, *map(int, pairs)])
        program = b.convert_constant(DimProgram(("$0", 16, "*")))
        b.emit_call("vm.builtin.shape_expr", [b.r(1), 1, program])
        b.emit_call("vm.builtin.make_shape", [b.r(1), int(MakeCode.LOAD_SHAPE), 1], b.r(2))
        load, imm = int(MakeCode.LOAD_SHAPE), int(MakeCode.USE_IMM)
        b.emit_call("vm.builtin.make_shape", [b.r(1), load, 0, imm, 4], b.r(3))
        b.emit_call(ALLOC, [b.r(2), 0, F32, "global"], b.r(4))
        b.emit_call(TENSOR, [b.r(4), 0, b.r(3), F32], b.r(5))
        b.emit_call("env.copy_into", [b.r(0), b.r(5)], b.r(8))
        b.emit_call(ALLOC, [b.r(2), 0, F32, "global"], b.r(6))
        b.emit_call(TENSOR, [b.r(6), 0, b.r(3), F32], b.r(7))
        b.emit_call("env.copy_into", [b.r(5), b.r(7)], b.r(8))
        b.emit_ret(b.r(7))
    return b.get()


KEPT = []


def copy_into(x, out):
    out.numpy()[...] = x.numpy()


def copy_and_keep(x, out):
    out.numpy()[...] = x.numpy()
    KEPT.append((out, x.numpy().copy()))


def test_static_plan_is_exact():
    plan = static_program().memory_plan()
    main = plan["main"]
    assert main.peak == main.peak_bytes() == 1200
    assert [s.size_bytes for s in main.storages] == [400, 800, 80]
    assert main.storages[1].tensors == ("%3: Tensor((200,), float32)",)
    assert main.total == 1280
    text = str(plan)
    assert "main: 3 storages, peak 1200 bytes" in text
    assert "800  %3: Tensor((200,), float32)" in text
    with pytest.raises(VMValueError, match="no symbol 'n'"):
        main.peak_bytes(n=1)


def test_symbolic_plan_is_a_formula():
    main = symbolic_program().memory_plan()["main"]
    assert main.peak == "32 * n"
    assert main.symbols == ("n",)
    assert main.late_symbols == ()
    assert main.peak_bytes(n=128) == 4096
    with pytest.raises(VMValueError, match="values are needed for n"):
        main.peak_bytes()
    with pytest.raises(VMTypeError, match="wanted an int"):
        main.peak_bytes(n="1")
    with pytest.raises(VMValueError, match="at least 0"):
        main.peak_bytes(n=-1)


def branching_program():
    """One branch takes 400 bytes, the other 100 and 600; what both leave is their result."""
    b = ExecBuilder()
    with b.function("main", 1):
        otherwise, after = b.label(), b.label()
        b.emit_if(b.r(0), otherwise)
        allocate(b, 1, 2, 100)
        b.emit_call("vm.builtin.move", [b.r(2)], b.r(7))
        kill(b, 2, 1)
        b.emit_goto(after)
        b.place(otherwise)
        allocate(b, 3, 4, 25)
        allocate(b, 5, 6, 150)
        b.emit_call("vm.builtin.move", [b.r(6)], b.r(7))
        kill(b, 6, 5, 4, 3)
        b.place(after)
        allocate(b, 8, 9, 10)
        b.emit_call("vm.builtin.make_tuple", [b.r(7), b.r(9)], b.r(10))
        b.emit_ret(b.r(10))
    return b.get()


def test_branches_count_as_the_larger_one():
    # 100 + 600 in the second branch; after it the larger result, 600, and 40.
    assert branching_program().memory_plan()["main"].peak == 700


def calling_program(recursive=False, loop=False):
    b = ExecBuilder()
    with b.function("inner", 0):
        allocate(b, 0, 1, 50)
        allocate(b, 2, 3, 10)
        if recursive:
            b.emit_call("main", [], b.r(4))
        b.emit_ret(b.r(3))
    with b.function("main", 0):
        allocate(b, 0, 1, 100)
        b.emit_call("inner", [], b.r(2))
        kill(b, 1, 0)
        top = b.label()
        b.place(top)
        allocate(b, 3, 4, 90)
        if loop:
            b.emit_call("vm.builtin.is_null", [b.r(4)], b.r(5))
            skip = b.label()
            b.emit_if(b.r(5), skip)
            b.emit_goto(top)
            b.place(skip)
        b.emit_ret(b.r(2))
    return b.get()


def test_callees_are_part_of_the_peak():
    plan = calling_program().memory_plan()
    assert plan["inner"].peak == 240
    assert plan["main"].peak == 400 + 240


@pytest.mark.parametrize(
    ("options", "message"),
    [({"recursive": True}, "calls itself"), ({"loop": True}, "jumps back")],
)
def test_unbounded_programs_have_no_peak(options, message):
    plan = calling_program(**options).memory_plan()["main"]
    assert plan.peak is None
    assert message in plan.problem
    assert message in str(plan)
    with pytest.raises(VMValueError, match=message):
        plan.peak_bytes()


def test_limit_is_checked_before_anything_runs():
    ex = symbolic_program()
    ran = []

    def spy(x, out):
        ran.append(1)
        copy_into(x, out)

    vm = VirtualMachine(ex, functions={"env.copy_into": spy}, memory_limit_bytes=320)
    x = np.ones((10, 4), "float32")
    np.testing.assert_array_equal(vm["main"](x).numpy(), x)
    assert len(ran) == 2
    bigger = np.ones((11, 4), "float32")
    for call in (
        lambda: vm["main"](bigger),
        lambda: vm["main"](x=bigger),
        lambda: vm.profile("main", bigger),
        lambda: (vm.set_input("main", bigger), vm.invoke_stateful("main")),
        lambda: (vm.save_function("main", "saved", bigger), vm["saved"]()),
    ):
        with pytest.raises(LimitError, match=r"main: needs 352 bytes .*32 \* n with n = 11.*=320"):
            call()
    assert len(ran) == 2


def test_static_limit_is_exact():
    ex = static_program()
    assert VirtualMachine(ex, memory_limit_bytes=1200)["main"]() == (20,)
    with pytest.raises(LimitError, match="needs 1200 bytes at once, more than memory_limit_bytes"):
        VirtualMachine(ex, memory_limit_bytes=1199)["main"]()


def test_limit_holds_while_running_where_no_plan_says_it():
    vm = VirtualMachine(calling_program(recursive=True), memory_limit_bytes=10_000)
    with pytest.raises(LimitError, match="more than max_bytes=10000"):
        vm["main"]()


@pytest.mark.parametrize("limit", [-1, 1.5, "1", True])
def test_senseless_limit_is_refused(limit):
    with pytest.raises((VMTypeError, VMValueError), match="memory_limit_bytes"):
        VirtualMachine(static_program(), memory_limit_bytes=limit)


@pytest.mark.parametrize("program", [static_program, branching_program, calling_program])
def test_plan_agrees_with_what_a_run_allocates(program):
    """The byte counter of the careful loop accepts the plan's peak; one byte less is too little on
    some path.
    """
    ex = program()
    peak = ex.memory_plan()["main"].peak
    needs = ex.function("main").num_inputs

    def fits(limit, cond):
        try:
            VirtualMachine(ex, max_bytes=limit)["main"](*[cond] * needs)
        except LimitError:
            return False
        return True

    assert fits(peak, True)
    assert fits(peak, False)
    assert not (fits(peak - 1, True) and fits(peak - 1, False))


def test_memory_of_symbolic_size_is_used_again():
    seen = []

    def spy(x, out):
        copy_into(x, out)
        seen.append(out.numpy().ctypes.data)

    vm = VirtualMachine(symbolic_program(), functions={"env.copy_into": spy})
    for n in (8, 3, 8, 1, 0, 7):
        x = np.full((n, 4), n, "float32")
        np.testing.assert_array_equal(vm["main"](x).numpy(), x)
    inner = [a for a, n in zip(seen[::2], (8, 3, 8, 1, 0, 7)) if n]
    assert len(set(inner)) == 1


def test_what_an_extern_keeps_is_not_written_again():
    KEPT.clear()
    vm = VirtualMachine(symbolic_program(), functions={"env.copy_into": copy_and_keep})
    for n in (4, 4, 9, 2, 4):
        vm["main"](np.full((n, 4), n + 0.5, "float32"))
    for out, copy in KEPT:
        np.testing.assert_array_equal(out.numpy(), copy)
    KEPT.clear()


def test_threads_have_arenas_of_their_own():
    vm = VirtualMachine(symbolic_program(), functions={"env.copy_into": copy_into})
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(100):
            x = rng.random((int(rng.integers(0, 40)), 4), dtype="float32")
            if not np.array_equal(vm["main"](x).numpy(), x):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no /proc/self/statm here")
def test_ten_thousand_calls_of_random_sizes_keep_memory_flat():
    vm = VirtualMachine(symbolic_program(), functions={"env.copy_into": copy_into})
    main, rng = vm["main"], np.random.default_rng(0)
    x = np.ones((4096, 4), "float32")
    main(x)
    for n in rng.integers(0, 4097, 1000):
        main(x[:n])
    grown = []
    for _ in range(3):
        before = resident_bytes()
        for n in rng.integers(0, 4097, 3_333):
            main(x[:n])
        grown.append(resident_bytes() - before)
    # One leaked 64 KiB buffer per hundred calls would be 2 MiB each time.
    assert min(grown) < 1 << 20


def test_sizes_that_explode_are_given_up_and_not_followed():
    b = ExecBuilder()
    info = TensorInfo(F32, 2, (("$n",), ("$m",)))
    square = b.convert_constant(DimProgram(("$0", "$0", "*", "$1", "+")))
    with b.function("main", 1, param_names=["x"], params_sinfo=[info]):
        b.emit_call("vm.builtin.alloc_shape_heap", [2], b.r(1))
        store = int(MatchCode.STORE_TO_HEAP)
        b.emit_call("vm.builtin.match_shape", [b.r(0), b.r(1), "main", store, 0, store, 1])
        for _ in range(200):
            b.emit_call("vm.builtin.shape_expr", [b.r(1), 0, square])
        b.emit_call("vm.builtin.make_shape", [b.r(1), int(MakeCode.LOAD_SHAPE), 0], b.r(2))
        b.emit_call(ALLOC, [b.r(2), 0, F32, "global"], b.r(3))
        b.emit_ret(b.r(0))
    ex = b.get()
    plan = ex.memory_plan()["main"]
    assert plan.peak is None
    assert "the size of the storage at instruction 203 is not known" in plan.problem
    vm = VirtualMachine(ex, memory_limit_bytes=100)
    with pytest.raises(VMValueError, match="does not fit 64 bits"):
        vm["main"](np.zeros((2, 2), "float32"))
    assert vm["main"](np.zeros((1, 0), "float32")).shape == (1, 0)


def test_many_different_sizes_are_followed_in_linear_time():
    b = ExecBuilder()
    with b.function("main", 1):
        for i in range(3000):
            allocate(b, 1 + 2 * (i % 900), 2 + 2 * (i % 900), i)
        b.emit_ret(b.r(0))
    plan = b.get().memory_plan()["main"]
    # The last 900 live together, and the one that is replaced until the new one is there.
    assert plan.peak == 4 * sum(range(2099, 3000))


NAMES = ["n", "m"]
leaves = st.integers(0, 9) | st.sampled_from([f"${n}" for n in NAMES])
steps = st.lists(
    st.tuples(leaves, st.sampled_from(["+", "-", "*", "//", "min", "%"]), st.booleans()), max_size=5
)


def program(first, following):
    """A postfix program that takes one operand after the other, on either side."""
    made = (first,)
    for leaf, name, after in following:
        made = (*made, leaf, name) if after else (leaf, *made, name)
    return made


dims = st.builds(program, leaves, steps)


@settings(max_examples=150, deadline=None)
@given(dims, dims, st.integers(0, 12), st.integers(0, 12))
def test_formulas_mean_what_the_programs_mean(a, b, n, m):
    values = {"n": n, "m": m}
    f, g = Formula.from_dim(a), Formula.from_dim(b)
    assert f.evaluate(values) == evaluate(a, values)
    assert evaluate(f.to_dim(), values) == evaluate(a, values)
    check(f.to_dim())
    assert (f + g).evaluate(values) == f.evaluate(values) + g.evaluate(values)
    assert (f * g).evaluate(values) == f.evaluate(values) * g.evaluate(values)
    peak = Peak([f, g])
    assert peak.evaluate(values) == max(f.evaluate(values), g.evaluate(values))
    replaced = f.substitute({"n": Formula.symbol("m") + Formula.of(1), "m": Formula.symbol("m")})
    assert replaced.evaluate({"m": m}) == f.evaluate({"n": m + 1, "m": m})
    assert str(f)


def test_formulas_are_shown_in_order():
    n = Formula.symbol("n")
    assert str(n.scaled(3) + Formula.of(5)) == "3 * n + 5"
    assert str(n * n + n.scaled(-2)) == "n * n - 2 * n"
    assert str(n.scaled(-1)) == "-1 * n"
    assert str(Peak([n.scaled(2), n, Formula.of(7)])) == "max(2 * n, 7)"
    assert n + n == n.scaled(2)
    assert Formula.of(0).constant == 0


def test_symbols_of_checks_are_found_in_their_text():
    assert _symbol_in("main: y: Tensor((m, 4), float32)", 0) == "m"
    assert _symbol_in("main: y: Tensor((m, 4), float32)", 1) is None
    assert _symbol_in("main: y: Prim(int64, value=k)", 0) == "k"
    assert _symbol_in(None, 0) is None


def test_each_effect_is_followed_by_a_method_of_its_name():
    names = {effect.name.lower() for effect in Effect} - {"unknown"}
    assert names <= vars(_Tracer).keys()
