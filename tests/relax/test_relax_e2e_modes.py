"""The two ways to run a program: bit for bit the same results, the same errors; what runs where."""

import gc
import itertools
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from vm_modes import MODES, VARIANTS, variant

import relaxvm as tvm
from relaxvm import relax
from relaxvm.base import LimitError, VMTypeError, VMValueError
from relaxvm.runtime import VMInstrumentReturnKind
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

pytestmark = pytest.mark.vm_modes


@I.ir_module
class Program:
    @T.prim_func
    def add(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        C = T.match_buffer(c, (n,), "float32")
        for i in range(n):
            C[i] = A[i] + B[i]

    @T.prim_func
    def dec(a: T.Buffer((), "int64"), b: T.Buffer((), "int64")):
        b[()] = a[()] - T.int64(1)

    @T.prim_func
    def positive(a: T.Buffer((), "int64"), b: T.Buffer((), "bool")):
        b[()] = a[()] > T.int64(0)

    @R.function(pure=False)
    def main(
        count: R.Tensor((), "int64"), x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")
    ) -> R.Tuple(R.Tensor(("n",), "float32"), R.Shape(["n"])):
        n = T.int64()
        cls = Program
        z = R.call_tir(cls.add, (x, y), R.Tensor((n,), "float32"))
        w = R.call_dps_packed("env.double", (z,), R.Tensor((n,), "float32"))
        t = cls.times(count, w, x)
        s = R.call_packed("env.seen", t, sinfo_args=(R.Tensor((n,), "float32"),))
        return (s, R.shape([n]))

    @R.function
    def times(
        count: R.Tensor((), "int64"),
        x: R.Tensor(("n",), "float32"),
        acc: R.Tensor(("n",), "float32"),
    ) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        cls = Program
        more = R.call_tir(cls.positive, (count,), R.Tensor((), "bool"))
        if more:
            left = R.call_tir(cls.dec, (count,), R.Tensor((), "int64"))
            rest: R.Tensor((n,), "float32") = cls.times(left, x, acc)
            result: R.Tensor((n,), "float32") = R.call_tir(
                cls.add, (x, rest), R.Tensor((n,), "float32")
            )
        else:
            result: R.Tensor((n,), "float32") = acc
        return result

    @R.function(pure=False)
    def outer(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = Program
        y = R.call_tir(cls.add, (x, x), R.Tensor((2,), "float32"))
        z = cls.middle(y)
        return z

    @R.function(pure=False)
    def middle(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = Program
        y = R.call_tir(cls.add, (x, x), R.Tensor((2,), "float32"))
        z: R.Tensor((2,), "float32") = cls.inner(y)
        w = R.call_tir(cls.add, (z, y), R.Tensor((2,), "float32"))
        return w

    @R.function(pure=False)
    def inner(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        z = R.call_packed("env.faulty", x, sinfo_args=(R.Tensor((2,), "float32"),))
        return z


class Faulty(Exception):
    pass


def double(x, out):
    out.numpy()[...] = x.numpy() * 2


def faulty(x):
    if x.numpy()[0] > 100:
        raise Faulty(f"too large: {x.numpy()[0]}")
    return x


EXTERNS = {"env.double": double, "env.seen": lambda x: x, "env.faulty": faulty}


@pytest.fixture(scope="module")
def executable():
    return relax.build(Program, target="llvm")


@pytest.fixture
def vm(executable, vm_mode):
    return relax.VirtualMachine(executable, tvm.cpu(), functions=EXTERNS)


def meaning(count, x, y):
    return x + (x + y) * 2 * count


@pytest.mark.parametrize(("count", "n"), [(0, 3), (1, 0), (5, 1), (50, 40)])
def test_branches_recursion_externs_and_symbols(vm, count, n):
    x, y = np.arange(n, dtype="float32"), np.ones(n, "float32")
    for _ in range(3):
        result, shape = vm["main"](np.array(count), x, y)
        np.testing.assert_array_equal(result.numpy(), meaning(count, x, y))
        assert shape == (n,)


def test_deep_recursion_runs_until_the_limit(executable, vm_mode):
    x = np.ones(2, "float32")
    vm = relax.VirtualMachine(executable, functions=EXTERNS)
    assert vm["times"](np.array(9_000), x, x).tolist() == [9_001, 9_001]
    with pytest.raises(LimitError, match="more than max_depth=10000") as caught:
        vm["times"](np.array(20_000), x, x)
    assert "more VM frames" in "\n".join(caught.value.__notes__)
    shallow = relax.VirtualMachine(executable, functions=EXTERNS, max_depth=5)
    assert shallow["times"](np.array(5), x, x).tolist() == [6, 6]
    with pytest.raises(LimitError, match="max_depth=5"):
        shallow["times"](np.array(6), x, x)
    assert vm["times"](np.array(2), x, x).tolist() == [3, 3]


def test_errors_of_externs_pass_through_three_frames(executable):
    found = []
    for mode, path in VARIANTS:
        with variant(mode, path):
            vm = relax.VirtualMachine(executable, functions=EXTERNS)
        for _ in range(2):
            assert vm["outer"](np.array([1, 2], "float32")).tolist() == [8, 16]
            with pytest.raises(Faulty, match="too large: 400") as caught:
                vm["outer"](np.array([100, 2], "float32"))
            found.append(caught.value.__notes__)
    assert all(notes == found[0] for notes in found), found
    assert [note.split(",")[0] for note in found[0]] == [
        "  in VM function inner",
        "  in VM function middle",
        "  in VM function outer",
    ]
    assert "call env.faulty" in found[0][0]


def test_an_instrument_is_seen_by_functions_held_since_before(vm):
    outer, x = vm["outer"], np.array([1, 2], "float32")
    assert outer(x).tolist() == [8, 16]
    seen = []

    def watch(function, symbol, before, result, *args):
        seen.append((symbol, before))
        return VMInstrumentReturnKind.NO_OP

    vm.set_instrument(watch)
    assert "an instrument is set" in vm.explain("outer").reason
    assert outer(x).tolist() == [8, 16]
    assert [s for s, before in seen if before and not s.startswith("vm.")] == [
        "add",
        "middle",
        "add",
        "inner",
        "env.faulty",
        "add",
    ]
    vm.set_instrument(None)
    seen.clear()
    assert outer(x).tolist() == [8, 16]
    assert vm["outer"](x).tolist() == [8, 16]
    assert not seen


def test_limits_hold_in_both_modes(executable, vm_mode):
    x = np.ones(2, "float32")

    def limited(**limits):
        return relax.VirtualMachine(executable, functions=EXTERNS, **limits)

    assert limited(max_instructions=10_000)["times"](np.array(3), x, x).tolist() == [4, 4]
    with pytest.raises(LimitError, match="max_instructions=50"):
        limited(max_instructions=50)["times"](np.array(1000), x, x)
    with pytest.raises(LimitError, match="max_seconds"):
        limited(max_seconds=0.0)["times"](np.array(1000), x, x)
    with pytest.raises(LimitError, match="max_bytes=64"):
        limited(max_bytes=64)["times"](np.array(100), x, x)
    vm = limited(max_instructions=50, memory_limit_bytes=1 << 20)
    reason = vm.explain("outer").reason
    assert "max_instructions=50 is watched" in reason
    assert "memory_limit_bytes is watched" in reason


def test_32_threads_share_one_vm(vm):
    failures, barrier = [], threading.Barrier(32)

    def work(number):
        rng = np.random.default_rng(number)
        barrier.wait()
        try:
            for turn in range(25):
                n, count = int(rng.integers(0, 50)), int(rng.integers(0, 6))
                x = rng.integers(0, 9, n).astype("float32")
                y = rng.integers(0, 9, n).astype("float32")
                out = np.zeros(n, "float32")
                if turn % 3 == 2:
                    result, shape = vm["main"](np.array(count), x, y=y, out=(out, None))
                    assert result is out
                else:
                    result, shape = vm["main"](np.array(count), x, y)
                np.testing.assert_array_equal(np.asarray(result), meaning(count, x, y))
                assert shape == (n,)
                if turn % 5 == 4:
                    with pytest.raises(Faulty):
                        vm["outer"](np.array([200, 0], "float32"))
                    with pytest.raises(VMValueError, match="parameter y"):
                        vm["main"](np.array(1), x, np.zeros(n + 1, "float32"))
        except BaseException as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        workers = [threading.Thread(target=work, args=(i,)) for i in range(32)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures, failures[:3]


def test_closures_and_saved_functions_run_in_both_modes(vm):
    x = np.array([1, 2], "float32")
    vm.save_function("outer", "kept", x)
    assert vm["kept"]().tolist() == [8, 16]
    vm.set_input("outer", x)
    vm.set_output("outer", out := np.zeros(2, "float32"))
    vm.invoke_stateful("outer")
    assert out.tolist() == [8, 16]
    assert vm.profile("outer", x).result.tolist() == [8, 16]
    assert vm.module.time_evaluator("outer", number=2)(x).mean > 0


# What runs where


def test_explanations_say_what_runs_where(executable, vm_mode):
    vm = relax.VirtualMachine(executable, functions=EXTERNS)
    for name in ("main", "times", "outer"):
        explained = vm.explain(name)
        rows = list(explained)
        assert explained.name == name
        assert [row.pc for row in rows] == list(range(len(rows)))
        assert sum(explained.counts.values()) == len(explained) == len(rows)
        text = str(explained)
        assert text.startswith(f"{name}: {explained.mode}")
        assert all(str(row.pc) in text for row in rows)
        assert explained.mode == vm_mode
        if vm_mode == "bytecode":
            assert explained.reason == "exec_mode='bytecode' was chosen"
            assert set(explained.counts) == {"interpreter"}
        else:
            assert explained.reason == ""
            kernels = [row for row in rows if "call add" in row.text]
            assert kernels
            assert all(row.where == "native" for row in kernels)
            python = [row for row in rows if row.text.startswith("call env.")]
            assert all(row.where == "python" for row in python)
    with pytest.raises(VMValueError, match="no function 'nope'"):
        vm.explain("nope")
    assert str(vm.module["explain"]("outer")) == str(vm.explain("outer"))


def test_modes_are_chosen_by_the_vm_then_by_the_build():
    built = {mode: relax.build(Program, "llvm", exec_mode=mode) for mode in MODES}
    for mode, ex in built.items():
        assert (
            relax.VirtualMachine(ex, functions=EXTERNS, exec_mode=None).explain("outer").mode
            == mode
        )
        for chosen in MODES:
            vm = relax.VirtualMachine(ex, functions=EXTERNS, exec_mode=chosen)
            assert vm["outer"](np.array([1, 2], "float32")).tolist() == [8, 16]
    chosen = relax.VirtualMachine(built["compiled"], functions=EXTERNS, exec_mode="bytecode")
    assert chosen.explain("outer").mode == "bytecode"
    with pytest.raises(VMValueError, match="exec_mode: wanted 'compiled', 'bytecode' or None"):
        relax.VirtualMachine(built["compiled"], functions=EXTERNS, exec_mode="fast")


def test_the_generic_path_and_naive_memory_are_reasons(executable):
    with variant("compiled", "generic"):
        vm = relax.VirtualMachine(executable, functions=EXTERNS)
    assert "set_call_path('generic')" in vm.explain("outer").reason
    with variant("compiled", "auto"):
        vm = relax.VirtualMachine(executable, functions=EXTERNS, memory_cfg="naive")
    assert vm.explain("outer").reason in ("", "memory_cfg='naive' was chosen")
    assert vm["outer"](np.array([1, 2], "float32")).tolist() == [8, 16]


# Beside the rest of the process


PRELUDE = """
import os, sys, threading
import numpy as np
def run(path, mode):
    import relaxvm.runtime as rt
    vm = rt.VirtualMachine(path, functions={
        "env.double": lambda x, out: out.numpy().__setitem__(..., x.numpy() * 2),
        "env.seen": lambda x: x, "env.faulty": lambda x: x}, exec_mode=mode)
    x = np.arange(5, dtype="float32")
    def check(vm=vm):
        for _ in range(3):
            got = vm["main"](np.array(4), x, x)[0].numpy()
            assert got.tolist() == (x + x * 16).tolist(), got
    check()
    return check
"""


def run_python(code, path, mode):
    text = f"{PRELUDE}\nPATH, MODE = {str(path)!r}, {mode!r}\n{code}"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def saved(executable, tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "program.rvm"
    executable.export_library(path)
    return path


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_parent_and_child_of_a_fork_go_on(saved, vm_mode):
    code = """
import warnings
warnings.simplefilter("ignore")
check = run(PATH, MODE)
other = threading.Thread(target=check)
other.start(); other.join()
child = os.fork()
check()
if child == 0:
    check(); run(PATH, MODE)()
    others = [threading.Thread(target=check) for _ in range(4)]
    [o.start() for o in others]; [o.join() for o in others]
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
check()
print("fine")
"""
    assert run_python(code, saved, vm_mode) == "fine\n"


USE = {
    "relaxvm": "check = run(PATH, MODE)",
    "torch": "import torch; assert (torch.ones(64, 64) @ torch.ones(64, 64))[0, 0] == 64",
    "numba": "import numba; assert numba.njit(lambda a: a + 1)(2) == 3",
}


def orders(count):
    return [" ".join(order) for order in itertools.permutations(USE, count) if "relaxvm" in order]


def check_import_order(order, saved, vm_mode):
    libraries = order.split()
    for name in libraries:
        pytest.importorskip(name)
    code = "\n".join([USE[name] for name in libraries] * 2 + ["check()", "print('fine')"])
    assert run_python(code, saved, vm_mode) == "fine\n"


@pytest.mark.parametrize("order", ["torch relaxvm", "relaxvm torch"])
def test_works_beside_torch_in_either_order(order, saved, vm_mode):
    check_import_order(order, saved, vm_mode)


@pytest.mark.slow
@pytest.mark.parametrize("order", [*orders(2), *orders(3)])
def test_works_beside_other_libraries_in_any_order(order, saved, vm_mode):
    check_import_order(order, saved, vm_mode)


def test_a_vm_and_its_functions_may_outlive_each_other(executable, vm_mode):
    outer = relax.VirtualMachine(executable, functions=EXTERNS)["outer"]
    assert outer(np.array([1, 2], "float32")).tolist() == [8, 16]
    with pytest.raises(VMTypeError, match="outer: parameter x"):
        outer(3)
    del outer


def test_vms_that_nobody_holds_are_freed(executable, vm_mode):
    freed = []
    for _ in range(3):
        vm = relax.VirtualMachine(executable, functions=EXTERNS)
        outer = vm["outer"]
        assert outer(np.array([1, 2], "float32")).tolist() == [8, 16]
        with pytest.raises(Faulty):
            outer(np.array([100, 2], "float32"))
        freed.append(weakref.ref(vm))
        del vm, outer
    gc.collect()
    assert [ref() for ref in freed] == [None] * 3


def test_an_extern_may_call_its_own_vm_and_change_its_instrument(executable, vm_mode):
    x, inside = np.array([1, 2], "float32"), []

    def again(value):
        if len(inside) < 3:
            inside.append(1)
            vm.set_instrument(lambda *args: None)
            result = vm["outer"](value).numpy()
            vm.set_instrument(None)
            return result
        return value

    vm = relax.VirtualMachine(executable, functions=EXTERNS | {"env.faulty": again})
    # outer(x) is inner(4 x) + 4 x, and three times inner is outer.
    assert vm["outer"](x).tolist() == [596, 1192]
    assert vm["outer"](x).tolist() == [8, 16]


def test_programs_end_while_others_run(saved, vm_mode):
    code = """
check = run(PATH, MODE)
def endless():
    while True: check()
for _ in range(3): threading.Thread(target=endless, daemon=True).start()
check(); print("fine", flush=True)
"""
    assert run_python(code, saved, vm_mode) == "fine\n"
