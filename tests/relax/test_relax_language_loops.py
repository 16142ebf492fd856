"""Recursion as loops: tail calls need no depth and no memory."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxvm import cpu, relax
from relaxvm.base import LimitError, VMValueError
from relaxvm.relax.tail_calls import ordered_moves
from relaxvm.runtime import ExecBuilder, VirtualMachine
from relaxvm.runtime.bytecode import Arg, ArgKind, Call, Goto
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T


def f32(*values):
    return np.array(values, "float32")


def instructions(ex, name):
    return ex.instructions(ex.function(name))


@I.ir_module
class Loops:
    @R.function
    def count(i: R.Tensor((), "int64"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        go = R.greater(i, R.const(0, "int64"))
        if go:
            y = R.add(x, R.const(1.0, "float32"))
            r = Loops.count(R.subtract(i, R.const(1, "int64")), y)
        else:
            r = x
        return r

    @R.function
    def even(i: R.Tensor((), "int64"), x: R.Tensor(("n",), "float32")) -> R.Tensor(
        ("n",), "float32"
    ):
        go = R.greater(i, R.const(0, "int64"))
        if go:
            r = Loops.odd(R.subtract(i, R.const(1, "int64")), x)
        else:
            r = x
        return r

    @R.function
    def odd(i: R.Tensor((), "int64"), x: R.Tensor(("n",), "float32")) -> R.Tensor(
        ("n",), "float32"
    ):
        go = R.greater(i, R.const(0, "int64"))
        if go:
            r = Loops.even(R.subtract(i, R.const(1, "int64")), R.negative(x))
        else:
            r = R.negative(x)
        return r

    @R.function
    def grow(left: R.Prim(value="i"), x: R.Tensor(("n",), "float32")) -> R.Tensor(
        dtype="float32", ndim=1
    ):
        i = T.int64()
        if R.prim_value(i > 0):
            r = Loops.grow(R.prim_value(i - 1), R.concat([x, x]))
        else:
            r = x
        return r

    @R.function
    def rotate(
        left: R.Prim(value="i"),
        x: R.Tensor(("n",), "float32"),
        y: R.Tensor(("m",), "float32"),
        z: R.Tensor(("k",), "float32"),
    ) -> R.Tuple(
        R.Tensor(dtype="float32", ndim=1),
        R.Tensor(dtype="float32", ndim=1),
        R.Tensor(dtype="float32", ndim=1),
    ):
        i = T.int64()
        if R.prim_value(i > 0):
            r = Loops.rotate(R.prim_value(i - 1), y, z, x)
        else:
            r = (x, y, z)
        return r

    @R.function
    def collatz(left: R.Prim(value="i"), steps: R.Prim(value="s")) -> R.Prim("int64"):
        i = T.int64()
        s = T.int64()
        if R.prim_value(i > 1):
            if R.prim_value(T.floormod(i, 2) == 0):
                r = Loops.collatz(R.prim_value(T.floordiv(i, 2)), R.prim_value(s + 1))
            else:
                r = Loops.collatz(R.prim_value(i * 3 + 1), R.prim_value(s + 1))
            q = r
        else:
            q = R.prim_value(s)
        return q

    @R.function
    def deep(i: R.Tensor((), "int64"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        go = R.greater(i, R.const(0, "int64"))
        if go:
            r = Loops.deep(R.subtract(i, R.const(1, "int64")), x)
            y = R.add(r, R.const(1.0, "float32"))
        else:
            y = x
        return y


@pytest.fixture(scope="module")
def executable():
    return relax.build(Loops, "llvm")


@pytest.fixture(params=["bytecode", "careful", "compiled"])
def vm(executable, request):
    if request.param == "careful":
        return VirtualMachine(executable, cpu(), max_depth=5, max_instructions=10**9)
    return VirtualMachine(executable, cpu(), max_depth=5, exec_mode=request.param)


def test_a_self_tail_call_becomes_a_jump_to_the_beginning(executable):
    names = [f.name for f in executable.functions]
    for name, jumps in (("count", 1), ("grow", 1), ("rotate", 1), ("collatz", 2), ("even", 1)):
        code = instructions(executable, name)
        called = [names[c.func] for c in code if type(c) is Call]
        assert name not in called and "odd" not in called
        assert sum(type(c) is Goto and c.offset < 0 for c in code) == jumps, name
    called = [names[c.func] for c in instructions(executable, "deep") if type(c) is Call]
    assert called.count("deep") == 1


def test_tail_calls_take_no_depth(vm):
    assert vm["count"](np.array(1000), f32(0, 1)).numpy().tolist() == [1000, 1001]
    assert vm["even"](np.array(1000), f32(1, 2, 3)).numpy().tolist() == [1, 2, 3]
    assert vm["even"](np.array(997), f32(1, 2, 3)).numpy().tolist() == [-1, -2, -3]
    assert vm["collatz"](27, 0) == 111


def test_shapes_may_differ_from_round_to_round(vm):
    assert vm["grow"](6, f32(1, 2)).numpy().tolist() == [1, 2] * 64


@pytest.mark.parametrize("rounds", range(4))
def test_arguments_are_moved_at_once(vm, rounds):
    given = [f32(1), f32(2, 2), f32(3, 3, 3)]
    got = vm["rotate"](rounds, *given)
    assert [g.numpy().tolist() for g in got] == [given[(rounds + k) % 3].tolist() for k in range(3)]


def test_calls_whose_value_is_used_do_take_depth(executable):
    vm = VirtualMachine(executable, cpu(), max_depth=5, exec_mode="bytecode")
    assert vm["deep"](np.array(5), f32(0, 0)).numpy().tolist() == [5, 5]
    with pytest.raises(LimitError, match="max_depth=5"):
        vm["deep"](np.array(6), f32(0, 0))


@pytest.mark.parametrize("name", ["count", "even"])
def test_memory_does_not_grow_with_the_number_of_rounds(executable, name):
    vm = VirtualMachine(executable, cpu(), exec_mode="bytecode")
    peaks = []
    for rounds in (100, 4000):
        vm[name](np.array(rounds), f32(0, 1))
        tracemalloc.start()
        vm[name](np.array(rounds), f32(0, 1))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 4096


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_a_million_rounds(executable, mode):
    vm = VirtualMachine(executable, cpu(), max_depth=2, exec_mode=mode)
    got = vm["count"](np.array(10**6), f32(0, 1)).numpy()
    assert got.tolist() == [1000000, 1000001]
    assert vm["even"](np.array(10**6), f32(3)).numpy().tolist() == [3]


def test_an_instrument_sees_the_value_of_every_tail_call(monkeypatch):
    monkeypatch.setattr("relaxvm.relax.tail_calls._MOST_EVENTS", 0)  # none becomes a jump
    vm = VirtualMachine(relax.build(Loops, "llvm", exec_mode="bytecode"), cpu(), max_depth=5)
    seen = []

    def instrument(function, name, before, value, *args):
        if name in ("even", "odd"):
            seen.append((name, before))

    vm.set_instrument(instrument)
    assert vm["even"](np.array(5), f32(1)).numpy().tolist() == [-1]
    assert len(seen) == 10 and sum(before for _, before in seen) == 5
    vm.set_instrument(None)
    assert vm["even"](np.array(8), f32(1)).numpy().tolist() == [1]


def test_a_wrong_shape_in_a_later_round_is_refused_by_the_parameter():
    @I.ir_module
    class M:
        @R.function
        def main(
            left: R.Prim(value="i"), x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")
        ) -> R.Tensor(dtype="float32", ndim=1):
            i = T.int64()
            if R.prim_value(i > 0):
                r = M.main(R.prim_value(i - 1), R.concat([x, x]), y)
            else:
                r = R.add(x, y)
            return r

    vm = VirtualMachine(relax.build(M, "llvm"), cpu())
    assert vm["main"](0, f32(1, 2), f32(1, 2)).numpy().tolist() == [2, 4]
    message = r"parameter y.*wanted n = 4 \(from axis 0 of parameter x.*got 2"
    with pytest.raises(VMValueError, match=message):
        vm["main"](1, f32(1, 2), f32(1, 2))


def test_a_tensor_kept_by_an_extern_is_not_written_in_the_next_round():
    @I.ir_module
    class M:
        @R.function(pure=False)
        def main(i: R.Tensor((), "int64"), x: R.Tensor((2,), "float32")) -> R.Tensor(
            (2,), "float32"
        ):
            go = R.greater(i, R.const(0, "int64"))
            if go:
                y = R.add(x, R.const(1.0, "float32"))
                _ = R.call_packed("keep", y, sinfo_args=R.Object)
                z = R.multiply(y, R.const(2.0, "float32"))
                r = M.main(R.subtract(i, R.const(1, "int64")), z)
            else:
                r = x
            return r

    for mode in ("bytecode", "compiled"):
        kept = []
        vm = VirtualMachine(
            relax.build(M, "llvm"), cpu(), functions={"keep": kept.append}, exec_mode=mode
        )
        assert vm["main"](np.array(3), f32(0, 1)).numpy().tolist() == [14, 22]
        assert [k.numpy().tolist() for k in kept] == [[1, 2], [3, 5], [7, 11]]


def test_a_function_may_return_itself_called_last_in_every_branch():
    @I.ir_module
    class M:
        @R.function
        def main(left: R.Prim(value="i")) -> R.Prim("int64"):
            i = T.int64()
            if R.prim_value(i > 100):
                r = R.prim_value(i)
            else:
                if R.prim_value(i < 0):
                    q = M.main(R.prim_value(-i))
                else:
                    q = M.main(R.prim_value(i * 2 + 1))
                r = q
            return r

    for mode in ("bytecode", "compiled"):
        vm = VirtualMachine(relax.build(M, "llvm"), cpu(), exec_mode=mode)
        assert vm["main"](-3) == 127
        assert vm["main"](500) == 500


def test_hand_written_tail_calls_run_through_closures():
    ib = ExecBuilder()
    with ib.function("main", 2):
        done = ib.label()
        ib.emit_if(ib.r(0), done)
        ib.emit_call("minus_one", [ib.r(0)], ib.r(2))
        ib.emit_call("vm.builtin.make_tuple", [ib.r(2), ib.f("main")], ib.r(3))
        ib.emit_call("vm.builtin.invoke_closure", [ib.r(1), ib.r(3)], ib.r(4))
        ib.emit_call("vm.builtin.kill_object", [ib.r(3)])
        ib.emit_ret(ib.r(4))
        ib.place(done)
        ib.emit_ret(ib.imm(7))
    vm = VirtualMachine(ib.get(), functions={"minus_one": lambda i: i - 1}, max_depth=3)
    assert vm["main"](500, vm["main"]) == 7


# -- moves ----------------------------------------------------------------------------------------


def _reference(pairs, start):
    after = dict(start)
    for to, source in pairs:
        after[to] = start[source.value] if source.kind == ArgKind.REGISTER else -source.value
    return after


@given(st.lists(st.integers(0, 9), min_size=10, max_size=10), st.integers(0, 9))
def test_ordered_moves_do_what_moves_at_once_do(sources, constants):
    pairs = [
        (i, Arg(ArgKind.CONSTANT if i < constants else ArgKind.REGISTER, s))
        for i, s in enumerate(sources)
    ]
    start = {i: 100 + i for i in range(10)}
    spare = iter(range(10, 100))
    registers = dict(start)
    for to, source in ordered_moves(pairs, lambda: next(spare)):
        value = -source.value
        if source.kind == ArgKind.REGISTER:
            value = registers[source.value]
        registers[to] = value
    assert {i: registers[i] for i in range(10)} == _reference(pairs, start)


def test_moves_of_many_parameters_are_ordered_in_time_linear_in_them():
    count = 20_000
    pairs = [(i, Arg(ArgKind.REGISTER, i ^ 1)) for i in range(count)]
    made = ordered_moves(pairs, lambda: count)
    assert len(made) == count + count // 2


@I.ir_module
class Ring:
    """Three functions in a ring, with products, so that a round must not write what it reads."""

    @R.function
    def first(
        left: R.Prim(value="i"), x: R.Tensor((2, 2), "float32"), w: R.Tensor((2, 2), "float32")
    ) -> R.Tensor((2, 2), "float32"):
        i = T.int64()
        if R.prim_value(i > 0):
            y = R.matmul(x, w)
            r = Ring.second(R.matmul(y, w), R.prim_value(i - 1), (w, y))
        else:
            r = x
        return r

    @R.function
    def second(
        x: R.Tensor((2, 2), "float32"),
        left: R.Prim(value="i"),
        pair: R.Tuple(R.Tensor((2, 2), "float32"), R.Tensor((2, 2), "float32")),
    ) -> R.Tensor((2, 2), "float32"):
        i = T.int64()
        y = R.add(x, pair[1])
        if R.prim_value(i > 0):
            z = R.matmul(y, pair[0])
            r = Ring.third(pair[0], z, R.prim_value(i - 1))
        else:
            r = R.negative(y)
        return r

    @R.function
    def third(
        w: R.Tensor((2, 2), "float32"), x: R.Tensor((2, 2), "float32"), left: R.Prim(value="i")
    ) -> R.Tensor((2, 2), "float32"):
        i = T.int64()
        if R.prim_value(i > 0):
            if R.prim_value(i % 2 == 0):
                r = Ring.third(w, R.matmul(w, x), R.prim_value(i - 1))
            else:
                r = Ring.first(R.prim_value(i - 1), w, R.matmul(x, w))
        else:
            r = R.matmul(x, x)
        return r


def ring(name, left, x, w, y=None):
    """The meaning of `Ring`."""
    while True:
        if name == "first":
            if left <= 0:
                return x
            y = x @ w
            name, left, x = "second", left - 1, y @ w
        elif name == "second":
            x = x + y
            if left <= 0:
                return -x
            name, left, x = "third", left - 1, x @ w
        elif left <= 0:
            return x @ x
        elif left % 2 == 0:
            left, x = left - 1, w @ x
        else:
            name, left, x, w = "first", left - 1, w, x @ w


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_functions_that_call_one_another_in_turn_are_one_loop(mode):
    vm = VirtualMachine(relax.build(Ring, "llvm", exec_mode=mode), cpu(), max_depth=2)
    x, w = f32([0.5, -0.25], [0.75, 0.5]), f32([0.25, 0.5], [-0.5, 0.75])
    for left in range(12):
        np.testing.assert_allclose(
            vm["first"](left, x, w).numpy(), ring("first", left, x, w), rtol=1e-5, atol=1e-7
        )
        np.testing.assert_allclose(
            vm["third"](w, x, left).numpy(), ring("third", left, x, w), rtol=1e-5, atol=1e-7
        )
    assert vm["first"](30_000, x, w).shape == (2, 2)
    if mode == "compiled":
        # No call of one another is left that would have to go back to the interpreter.
        assert all("interpreter" not in str(vm.explain(name)) for name in ("first", "third"))


def test_large_circles_stay_functions_of_their_own(monkeypatch):
    monkeypatch.setattr("relaxvm.relax.tail_calls._MOST_EVENTS", 3)
    ex = relax.build(Ring, "llvm", exec_mode="bytecode")
    calls = {ex.functions[i.func].name for i in instructions(ex, "first") if type(i) is Call}
    assert "second" in calls
    vm = VirtualMachine(ex, cpu(), max_depth=2)
    x = f32([0.5, -0.25], [0.75, 0.5])
    np.testing.assert_allclose(vm["first"](9, x, x).numpy(), ring("first", 9, x, x), rtol=1e-5)


def test_a_wrong_argument_in_a_later_round_names_the_function_it_was_for():
    @I.ir_module
    class Bad:
        @R.function
        def ping(x: R.Tensor(("n",), "float32"), m: R.Tensor((2,), "float32")) -> R.Object:
            r = Bad.pong(R.concat([x, x]), x)
            return r

        @R.function
        def pong(x: R.Tensor(("n",), "float32"), m: R.Tensor(("k",), "float32")) -> R.Object:
            k = T.int64()
            y = R.match_cast(x, R.Tensor((k * 2,), "float32"))
            r = Bad.ping(y, m)
            return r

    for mode in ("bytecode", "compiled"):
        vm = VirtualMachine(relax.build(Bad, "llvm", exec_mode=mode), cpu())
        with pytest.raises(VMValueError, match=r"ping: parameter m: .* wanted 2, got 3"):
            vm["ping"](f32(1, 2, 3), f32(1, 2))
