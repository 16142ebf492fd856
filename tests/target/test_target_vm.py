"""Compiled VM functions call kernels directly: what the wrapper checks holds there too, and the
errors are its own.
"""

import gc
import threading
import time

import numpy as np
import pytest

from relaxvm import relax, tir
from relaxvm.base import DataType, VMTypeError, VMValueError
from relaxvm.runtime import (
    ExecBuilder,
    ObjectInfo,
    VirtualMachine,
    array,
    load,
)
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T
from relaxvm.target import compile_kernels, compile_program

F32 = DataType("float32")
MODES = ("compiled", "bytecode")


@I.ir_module
class Kernels:
    @T.prim_func
    def add(a: T.handle, b: T.handle, c: T.handle):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n * 2,), "float32")
        C = T.match_buffer(c, (n,), "float32")
        for i in range(n):
            C[i] = A[i] + B[i * 2]

    @T.prim_func
    def narrow(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, 3), "float32")
        B = T.match_buffer(b, (n * 3,), "float32")
        for i, j in T.grid(n, 3):
            B[i * 3 + j] = A[i, j]

    @T.prim_func
    def scalars(
        a: T.Buffer((4,), "float64"),
        k: T.int8,
        u: T.uint64,
        f: T.float32,
        flag: T.bool,
        b: T.Buffer((4,), "float64"),
    ):
        for i in range(4):
            B_k = T.Cast("float64", k) * 10000.0 + T.Cast("float64", u)
            b[i] = T.if_then_else(flag, a[i] + B_k + T.Cast("float64", f), 0.0)

    @T.prim_func
    def half(a: T.Buffer((3,), "bfloat16"), b: T.Buffer((3,), "bfloat16")):
        for i in range(3):
            b[i] = a[i] + a[i]

    @T.prim_func
    def checked(a: T.Buffer((2,), "int32"), b: T.Buffer((2,), "int32")):
        for i in range(2):
            assert a[i] > 0, "must be positive"
            b[i] = a[i]

    @T.prim_func
    def strided(a: T.handle, b: T.Buffer((2,), "float32")):
        s = T.int64()
        A = T.match_buffer(a, (2,), "float32", strides=(s,))
        for i in range(2):
            b[i] = A[i]

    @T.prim_func
    def long(a: T.Buffer((1,), "int64"), b: T.Buffer((1,), "int64")):
        b[0] = T.int64(0)
        for i in range(200000000):  # noqa: B007
            b[0] = b[0] * T.int64(3) + a[0]


def calls(**kernels):
    """A program with a function per kernel, whose parameters are those of the kernel; it returns
    the last one.
    """

    compiled = compile_kernels(Kernels)
    b = ExecBuilder()
    b.add_kernels(compiled.section)
    for name, count in kernels.items():
        with b.function(f"call_{name}", count, None, [ObjectInfo()] * count):
            b.emit_call(name, [b.r(i) for i in range(count)])
            b.emit_ret(b.r(count - 1))
    return compile_program(b.get(), compiled)


@pytest.fixture(scope="module")
def machines():
    ex = calls(add=3, narrow=2, scalars=6, half=2, checked=2, strided=2, long=2)
    data = ex.to_bytes(sign=False)
    return [
        VirtualMachine(ex),
        VirtualMachine(load(data, trust="portable")),
        VirtualMachine(ex, exec_mode="bytecode"),
    ]


def outcomes(machines, name, make):
    """What each machine makes of fresh arguments."""
    found = []
    for vm in machines:
        args = make()
        try:
            result = vm[f"call_{name}"](*args)
            found.append((result.dtype, result.shape, result.array.tobytes()))
        except (VMTypeError, VMValueError) as error:
            found.append((type(error), str(error), tuple(error.__notes__)))
    return found


def test_all_but_the_last_are_compiled(machines):
    modes = [vm.explain("call_add").mode for vm in machines]
    assert modes == ["compiled", "compiled", "bytecode"]
    where = {row.where for row in machines[0].explain("call_add")}
    assert where == {"native"}


def zeros(*shape, dtype="float32"):
    return array(np.zeros(shape, dtype))


def ramp(*shape, dtype="float32"):
    return array(np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape))


GOOD = {
    "add": lambda: (ramp(3), ramp(6), zeros(3)),
    "narrow": lambda: (ramp(2, 3), zeros(6)),
    "scalars": lambda: (ramp(4, dtype="float64"), -3, 7, 0.5, True, zeros(4, dtype="float64")),
    "half": lambda: (array(np.ones(3), dtype="bfloat16"), array(np.ones(3), dtype="bfloat16")),
    "checked": lambda: (array(np.ones(2, "int32")), zeros(2, dtype="int32")),
}


@pytest.mark.parametrize("name", GOOD)
def test_kernels_are_called_with_what_they_want(machines, name):
    found = outcomes(machines, name, GOOD[name])
    assert type(found[0][0]) is DataType
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("n", [0, 1])
def test_empty_and_single_sizes(machines, n):
    cases = {
        "add": lambda: (ramp(n), ramp(2 * n), zeros(n)),
        "narrow": lambda: (ramp(n, 3), zeros(3 * n)),
    }
    for name, make in cases.items():
        found = outcomes(machines, name, make)
        assert type(found[0][0]) is DataType
        assert found[0] == found[1] == found[2]


WRONG = {
    "related size": ("add", lambda: (ramp(3), ramp(5), zeros(3))),
    "same symbol": ("add", lambda: (ramp(3), ramp(6), zeros(4))),
    "rank": ("add", lambda: (ramp(3), ramp(3, 2), zeros(3))),
    "dtype": ("add", lambda: (ramp(3), ramp(6, dtype="float64"), zeros(3))),
    "kind": ("add", lambda: (ramp(3), 6, zeros(3))),
    "none": ("add", lambda: (None, ramp(6), zeros(3))),
    "read-only output": ("add", lambda: (ramp(3), ramp(6), array(read_only(3))[...])),
    "overlap": ("add", lambda: overlapping()),
    "narrow size": ("narrow", lambda: (ramp(2, 3), zeros(7))),
    "int too large": ("scalars", lambda: scalars(k=128)),
    "negative unsigned": ("scalars", lambda: scalars(u=-1)),
    "huge unsigned": ("scalars", lambda: scalars(u=1 << 64)),
    "float for int": ("scalars", lambda: scalars(k=1.0)),
    "int for bool": ("scalars", lambda: scalars(flag=1)),
    "text for float": ("scalars", lambda: scalars(f="x")),
    "bits for bfloat16": ("half", lambda: (zeros(3, dtype="uint16"), zeros(3, dtype="uint16"))),
    "assertion": ("checked", lambda: (array(np.array([1, 0], "int32")), zeros(2, dtype="int32"))),
}


def scalars(k=1, u=1, f=1.0, flag=True):
    return (ramp(4, dtype="float64"), k, u, f, flag, zeros(4, dtype="float64"))


def read_only(n):
    made = np.zeros(n, "float32")
    made.flags.writeable = False
    return made


def overlapping():
    whole = array(np.zeros(9, "float32"))
    return whole[:3], whole[3:9], whole[2:5]


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_give_the_errors_of_the_wrapper(machines, case):
    name, make = WRONG[case]
    found = outcomes(machines, name, make)
    if case != "read-only output":
        assert issubclass(found[0][0], (VMTypeError, VMValueError))
    assert found[0] == found[2]
    assert found[1][:2] == found[2][:2]


def test_other_scalars_that_fit(machines):
    for change in ({"k": True}, {"u": (1 << 63) + 9}, {"f": 3}, {"k": -1}, {"flag": False}):
        found = outcomes(machines, "scalars", lambda: scalars(**change))  # noqa: B023
        assert type(found[0][0]) is DataType
        assert found[0] == found[1] == found[2]


def test_kernels_with_strides_are_the_interpreters(machines):
    found = outcomes(machines, "strided", lambda: (ramp(2), zeros(2)))
    assert found[0] == found[2]
    assert "interpreter" in {row.where for row in machines[0].explain("call_strided")}


def test_a_long_kernel_lets_other_threads_run(machines):
    ticks = []
    done = threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(1)
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        before = len(ticks)
        machines[0]["call_long"](ramp(1, dtype="int64"), zeros(1, dtype="int64"))
        assert len(ticks) > before + 1
    finally:
        done.set()
        thread.join()


@I.ir_module
class Flow:
    @R.function(pure=False)
    def main(
        x: R.Tensor(("n", 2), "float32"),
        flag: R.Tensor((), "bool"),
        pair: R.Tuple(R.Object, R.Shape(["m"])),
    ) -> R.Object:
        n, m = T.int64(), T.int64()
        cls = Flow
        y = R.add(x, x)
        if flag:
            z = R.concat((y, x), axis=0)
            w: R.Tensor((n * 2, 2), "float32") = cls.scale(z)
            r: R.Tensor(ndim=2, dtype="float32") = w
        else:
            s: R.Tensor((n, 2), "float32") = R.multiply(y, y)
            r: R.Tensor(ndim=2, dtype="float32") = s
        t = R.reshape(y, (n * 2,))
        return (r, (t, pair, R.shape([n, m + 1])))

    @R.function(private=True)
    def scale(x: R.Tensor(("k", 2), "float32")) -> R.Tensor(("k", 2), "float32"):
        k = T.int64()
        return R.multiply(x, R.const(3.0, "float32"))


def test_branches_calls_tuples_and_shapes():
    ex = relax.build(Flow)
    vms = [VirtualMachine(ex, exec_mode=mode) for mode in MODES]
    assert vms[0].explain("main").mode == "compiled"
    for flag in (True, False):
        for n in (0, 1, 3):
            x = np.arange(2 * n, dtype="float32").reshape(n, 2)
            shown = []
            for vm in vms:
                r, (t, pair, shape) = vm["main"](x, np.array(flag), (None, (5,)))
                shown.append((r.numpy().tolist(), t.numpy().tolist(), pair, tuple(shape)))
            assert shown[0] == shown[1]
            want = np.concatenate([x * 2, x]) * 3 if flag else x * x * 4
            assert shown[0][0] == want.tolist()
            assert shown[0][3] == (n, 6)


def test_constants_that_are_returned_are_copies():
    b = ExecBuilder()
    with b.function("main", 0):
        b.emit_ret(array(np.ones(3, "float32")))
    kernels = compile_kernels(Kernels)
    b.add_kernels(kernels.section)
    ex = compile_program(b.get(), kernels)
    vm = VirtualMachine(ex)
    assert vm.explain("main").mode == "compiled"
    first = vm["main"]()
    first.array[...] = 7
    assert vm["main"]().numpy().tolist() == [1.0] * 3
    del vm
    gc.collect()
    assert first.numpy().tolist() == [7.0] * 3


def one_after_another(count):
    """`count` kernels on tensors whose sizes only a call knows."""
    n, m = (tir.Var(name, "int64") for name in "nm")
    x, b = relax.Var("x", relax.TensorStructInfo((n, m, 4), "float32")), relax.BlockBuilder()
    with b.function("main", [x]):
        with b.dataflow():
            y = x
            for _ in range(count):
                y = b.emit(relax.op.nn.softmax(y))
            y = b.emit_output(y)
        b.emit_func_output(y)
    return relax.build(b.get())


def test_what_a_check_has_shown_of_sizes_is_not_checked_again():
    few, many = one_after_another(4), one_after_another(12)
    sites = [len(ex.kernels.native[0].functions.sites) for ex in (few, many)]
    assert sites[0] == sites[1] > 0
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    for n in (2, 0):
        results = [VirtualMachine(many, exec_mode=mode)["main"](x[:n]) for mode in MODES]
        assert results[0].shape == (n, 3, 4)
        assert results[0].numpy().tolist() == results[1].numpy().tolist()


def test_what_a_check_has_shown_in_a_branch_is_checked_in_the_other():
    compiled, b = compile_kernels(Kernels), ExecBuilder()
    b.add_kernels(compiled.section)
    with b.function("main", 4, None, [ObjectInfo()] * 4):
        args = [b.r(0), b.r(1), b.r(2)]
        b.emit_if(b.r(3), 3)
        b.emit_call("add", args)
        b.emit_goto(2)
        b.emit_call("add", args)
        b.emit_call("add", args)
        b.emit_ret(b.r(2))
    main = VirtualMachine(compile_program(b.get(), compiled))["main"]
    for chosen in (True, False):
        assert main(ramp(3), ramp(6), zeros(3), chosen).numpy().tolist() == [0, 3, 6]
        with pytest.raises(VMValueError):
            main(ramp(3), ramp(5), zeros(3), chosen)


def asserting(name, body):
    return f"""
    @T.prim_func
    def {name}(a: T.Buffer((1,), "int32"), b: T.Buffer((1,), "int32")):
        {body}
        b[0] = a[0]
"""


ASSERTING = "@I.ir_module\nclass M:" + "".join(
    asserting(name, "\n        ".join(lines))
    for name, lines in {
        "first": ['assert a[0] != 1, "one"'],
        "second": ['assert a[0] != 2, "two"'],
        "third": ["M.first(a.data, b.data)", 'assert a[0] != 3, "three"'],
        "fourth": ["M.second(a.data, b.data)", "M.third(a.data, b.data)"],
        "fifth": ["M.second(a.data, b.data)", *(f'assert a[0] != {k}, "{k}"' for k in (4, 5))],
    }.items()
)


@pytest.mark.parametrize("name", ["third", "fourth", "fifth"])
def test_an_assertion_that_fails_is_told_by_its_number(name):
    compiled, b = compile_kernels(from_source(ASSERTING)), ExecBuilder()
    b.add_kernels(compiled.section)
    with b.function("main", 2, None, [ObjectInfo()] * 2):
        b.emit_call(name, [b.r(0), b.r(1)])
        b.emit_ret(b.r(1))
    ex, found = compile_program(b.get(), compiled), []
    for mode in MODES:
        main = VirtualMachine(ex, exec_mode=mode)["main"]
        found.append([])
        for value in range(1, 7):
            try:
                found[-1].append(main(array(np.full(1, value, "int32")), zeros(1, dtype="int32")))
            except VMValueError as error:
                found[-1].append(str(error))
    shown = [[one if type(one) is str else one.numpy()[0] for one in row] for row in found]
    assert shown[0] == shown[1]
    failures = {"third": {1, 3}, "fourth": {1, 2, 3}, "fifth": {2, 4, 5}}[name]
    assert {k for k, one in enumerate(shown[0], 1) if type(one) is str} == failures
    assert len({one for one in shown[0] if type(one) is str}) == len(failures)
