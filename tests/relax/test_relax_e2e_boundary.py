"""The call boundary: what it takes and what it refuses, alike in both modes and on both paths."""

import array as stdlib_array
import gc
import re
import sys

import numpy as np
import pytest
from leak_check import growth
from numpy.lib.stride_tricks import as_strided
from vm_modes import VARIANTS, variant

import relaxvm as tvm
from relaxvm import relax
from relaxvm.base import LimitError, RelaxvmError, VMTypeError, VMValueError
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T


@I.ir_module
class Model:
    @T.prim_func
    def combine(x: T.handle, y: T.handle, z: T.handle):
        n = T.int64()
        X = T.match_buffer(x, (n, 4), "float32")
        Y = T.match_buffer(y, (n * 2,), "float32")
        Z = T.match_buffer(z, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            Z[i, j] = X[i, j] + Y[i * 2]

    @T.prim_func
    def add(
        a: T.Buffer((3,), "float32"), b: T.Buffer((3,), "float32"), c: T.Buffer((3,), "float32")
    ):
        for i in range(3):
            c[i] = a[i] + b[i]

    @T.prim_func
    def twice(a: T.Buffer((), "int64"), b: T.Buffer((), "int64")):
        b[()] = a[()] * T.int64(2)

    @T.prim_func
    def fill(z: T.handle, k: T.int64):
        n = T.int64()
        Z = T.match_buffer(z, (n,), "int64")
        for i in range(n):
            Z[i] = k

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n * 2",), "float32")) -> R.Tensor(
        ("n", 4), "float32"
    ):
        n = T.int64()
        with R.dataflow():
            z = R.call_tir(Model.combine, (x, y), R.Tensor((n, 4), "float32"))
            R.output(z)
        return z

    @R.function
    def reversed(y: R.Tensor(("n * 2",), "float32"), x: R.Tensor(("n", 4), "float32")) -> R.Tensor(
        ("n", 4), "float32"
    ):
        n = T.int64()
        with R.dataflow():
            z = R.call_tir(Model.combine, (x, y), R.Tensor((n, 4), "float32"))
            R.output(z)
        return z

    @R.function
    def pair(
        t: R.Tuple(R.Tensor((3,), "float32"), R.Tensor((3,), "float32")),
    ) -> R.Tuple(R.Tensor((3,), "float32"), R.Tensor((3,), "float32")):
        with R.dataflow():
            z = R.call_tir(Model.add, (t[0], t[1]), R.Tensor((3,), "float32"))
            r = (z, t[0])
            R.output(r)
        return r

    @R.function
    def scalar(x: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        with R.dataflow():
            z = R.call_tir(Model.twice, (x,), R.Tensor((), "int64"))
            R.output(z)
        return z

    @R.function
    def filled(k: R.Prim(value="m"), s: R.Shape(["n"])) -> R.Tensor(("n",), "int64"):
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            z = R.call_tir(Model.fill, (), R.Tensor((n,), "int64"), tir_vars=R.shape([m]))
            R.output(z)
        return z


@pytest.fixture(scope="module")
def vms():
    executable = relax.build(Model, target="llvm")
    made = {}
    for mode, path in VARIANTS:
        with variant(mode, path):
            made[mode, path] = relax.VirtualMachine(executable, tvm.cpu())
    return made


@pytest.fixture(scope="module")
def modules():
    """The kernels as a `relaxvm.build` module, linked by both paths."""
    wanted = ("combine", "fill", "twice")
    kernels = {gv: fn for gv, fn in Model.items() if gv.name_hint in wanted}
    made = {}
    for path in ("auto", "generic"):
        rt = tvm.build(tvm.IRModule(kernels), "llvm")
        with variant("bytecode", path):
            assert rt.linked
        made[path] = rt
    return made


def x(n=2, dtype="float32"):
    return np.arange(n * 4).reshape(n, 4).astype(dtype)


def y(n=2, dtype="float32"):
    return np.arange(n * 2).astype(dtype) * 10


def read_only(a):
    a.flags.writeable = False
    return a


def misaligned(a):
    raw = np.zeros(a.nbytes + 1, "uint8")
    made = raw[1:].view(a.dtype).reshape(a.shape)
    made[...] = a
    return made


class Sub(np.ndarray):
    """A subclass of numpy's array."""


# What is taken, and equals a plain call on the same values.
TAKEN = {
    "ndarray": lambda: (x(), y()),
    "NDArray": lambda: (tvm.nd.array(x()), tvm.nd.array(y())),
    "mixed": lambda: (x(), tvm.nd.array(y())),
    "no rows": lambda: (x(0), y(0)),
    "one row": lambda: (x(1), y(1)),
    "many rows": lambda: (x(1 << 18), y(1 << 18)),
    "negative strides": lambda: (x()[::-1, ::-1], y()[::-1]),
    "fortran order": lambda: (np.asfortranarray(x()), y()),
    "gaps": lambda: (np.repeat(x(), 2, axis=1)[:, ::2], np.repeat(y(), 3)[::3]),
    "broadcast": lambda: (np.broadcast_to(np.float32(3), (2, 4)), y()),
    "byte-swapped": lambda: (x().astype(">f4"), y().astype(">f4")),
    "misaligned": lambda: (misaligned(x()), misaligned(y())),
    "read-only": lambda: (read_only(x()), read_only(y())),
    "subclass": lambda: (x().view(Sub), y().view(np.memmap)),
    "matrix": lambda: (x().view(Sub), y()),
    "memoryview": lambda: (memoryview(x()), stdlib_array.array("f", y())),
    "strided NDArray": lambda: (tvm.nd.array(x(4))[::2], tvm.nd.array(y(4))[::2]),
    "the same memory": lambda: (x(2), x(2).reshape(-1)[:4]),
}


@pytest.mark.parametrize("name", TAKEN)
def test_arrays_of_every_kind_are_taken(vms, name):
    a, b = TAKEN[name]()
    va, vb = (np.asarray(v.numpy() if hasattr(v, "numpy") else v) for v in (a, b))
    want = (va + vb[::2, None]).astype("float32")
    for vm in vms.values():
        results = [vm["main"](a, b), vm["main"](x=a, y=b), vm["main"](a, y=b), vm["reversed"](b, a)]
        for got in results:
            assert type(got) is tvm.nd.NDArray
            assert got.dtype == "float32"
            np.testing.assert_array_equal(got.numpy(), want)
            assert not np.shares_memory(got.numpy(), va)


def test_dlpack_producers_are_taken(vms):
    torch = pytest.importorskip("torch")
    a, b = torch.arange(8.0).reshape(2, 4), torch.arange(4.0) * 10
    want = x() + y()[::2, None]
    for vm in vms.values():
        for first in (a, a.t().contiguous().t(), torch.from_numpy(x())):
            np.testing.assert_array_equal(vm["main"](first, b).numpy(), want)
        out = torch.zeros(2, 4)
        assert vm["main"](a, b, out=out) is out
        assert out.tolist() == want.tolist()
        with pytest.raises(VMTypeError, match="parameter x: .*float64"):
            vm["main"](a.double(), b)
        with pytest.raises(VMTypeError, match=r"parameter x: wanted Tensor.*got Parameter"):
            vm["main"](torch.nn.Parameter(a), b)
        # numpy itself reads this one without its sign.
        negated = torch.view_as_complex(torch.ones(2, 4, 2)).conj().imag
        with pytest.raises(VMTypeError, match=r"parameter x: .*resolve_neg"):
            vm["main"](negated, b)
        assert vm["main"](negated.resolve_neg(), b)[0, 0].item() == -1
        with pytest.raises(VMTypeError, match=r"parameter x: .*does not say where"):
            vm["main"](torch.ones(2, 4, device="meta"), b)


@pytest.mark.parametrize("given", [5, np.int64(5), np.array(5), np.uint8(5), True])
def test_scalars_are_taken_for_prim_parameters(vms, given):
    for vm in vms.values():
        for shape in ((3,), [3], tvm.runtime.ShapeTuple((3,)), (np.int64(3),)):
            assert vm["filled"](given, shape).tolist() == [int(given)] * 3
        assert vm["filled"](s=(0,), k=given).tolist() == []


def test_tuples_lists_and_numpy_scalars_are_taken(vms):
    a, b = np.ones(3, "float32"), np.arange(3, dtype="float32")
    for vm in vms.values():
        for given in ((a, b), [a, b], (tvm.nd.array(a), b), (a[::-1], b)):
            total, first = vm["pair"](given)
            assert total.tolist() == [1, 2, 3]
            assert first.tolist() == [1, 1, 1]
        for given in (np.int64(4), np.array(4), tvm.nd.array(np.array(4)), np.array([4])[0]):
            assert vm["scalar"](given).item() == 8


# What is refused: (function, arguments, keywords, error, message)
A, B, ONE = x(), y(), np.ones(3, "float32")
ENDLESS = np.broadcast_to(np.float32(1), (1 << 50, 4))
SWAPPED = np.broadcast_to(np.zeros((), ">f4"), (1 << 50, 4))
STRUCTURED = np.zeros(2, [("a", "f4")])
WRONG = {
    "no arguments": ("main", (), {}, VMTypeError, "wanted 2 arguments, got 0; missing: x, y"),
    "one missing": ("main", (A,), {}, VMTypeError, "wanted 2 arguments, got 1; missing: y"),
    "one too many": ("main", (A, B, B), {}, VMTypeError, "wanted 2 arguments, got 3"),
    "too many in all": ("main", (A, B, B), {"x": A}, VMTypeError, "wanted 2 arguments, got 4"),
    "unknown keyword": ("main", (A,), {"z": B}, VMTypeError, "no parameter is called 'z'"),
    "given twice": ("main", (A,), {"x": A}, VMTypeError, "parameter x is given twice"),
    "missing keyword": ("main", (), {"y": B}, VMTypeError, "got 1; missing: x"),
    "float64": ("main", (x(2, "float64"), B), {}, VMTypeError, "x: .*wanted dtype float32.*64"),
    "int32": ("main", (A, y(2, "int32")), {}, VMTypeError, "y: .*wanted dtype float32.*int32"),
    "float16": ("main", (x(2, "float16"), B), {}, VMTypeError, "wanted dtype float32.*float16"),
    "bool": ("main", (x(2, "bool"), B), {}, VMTypeError, "wanted dtype float32.*bool"),
    "complex": ("main", (x(2, "complex64"), B), {}, VMTypeError, "x: wanted Tensor.*complex"),
    "objects": ("main", (x().astype(object), B), {}, VMTypeError, "x: .*dtype object"),
    "texts": (
        "main",
        (np.array(["a"]), B),
        {},
        VMTypeError,
        "x: .*wanted dtype float32, got .*string",
    ),
    "dates": ("main", (x().astype("M8[s]"), B), {}, VMTypeError, "x: wanted Tensor.*datetime"),
    "structured": ("main", (STRUCTURED, B), {}, VMTypeError, "x: wanted Tensor"),
    "bfloat16": (
        "main",
        (tvm.nd.array(A, dtype="bfloat16"), B),
        {},
        VMTypeError,
        "float32.*bfloat16",
    ),
    "masked": ("main", (np.ma.masked_array(A), B), {}, VMTypeError, "x: .*masked"),
    "rank 1": ("main", (A[0], B), {}, VMTypeError, "x: .*wanted 2 dimensions, got Tensor"),
    "rank 0": ("main", (np.float32(1), B), {}, VMTypeError, "x: .*wanted 2 dimensions"),
    "rank 3": ("main", (A[None], B), {}, VMTypeError, "x: .*wanted 2 dimensions"),
    "constant size": ("main", (A[:, :3], B), {}, VMValueError, "x: .*axis 1: wanted 4, got 3"),
    "related size": ("main", (A, B[:3]), {}, VMValueError, "y: .*axis 0: .*wanted .*4.*got 3"),
    "related size, odd": ("reversed", (B[:3], A), {}, VMValueError, "y: .*axis 0: .*got 3"),
    "related to none": ("main", (x(0), B), {}, VMValueError, "y: .*axis 0.*got 4"),
    "None": ("main", (None, B), {}, VMTypeError, "x: wanted Tensor.*got None"),
    "an int": ("main", (3, B), {}, VMTypeError, "x: wanted Tensor.*got int 3"),
    "a list": ("main", (A.tolist(), B), {}, VMTypeError, "x: wanted Tensor.*got list"),
    "a text": ("main", ("x" * 500, B), {}, VMTypeError, "x: wanted Tensor.*got str"),
    "a tuple": ("main", ((A, B), B), {}, VMTypeError, "x: wanted Tensor.*a tuple of 2"),
    "a class": ("main", (np.ndarray, B), {}, VMTypeError, "x: wanted Tensor.*got type"),
    "float for int": ("filled", (1.5, (3,)), {}, VMTypeError, "k: wanted Prim.*got float 1.5"),
    "text for int": ("filled", ("1", (3,)), {}, VMTypeError, "k: wanted Prim.*got str 1"),
    "None for int": ("filled", (None, (3,)), {}, VMTypeError, "k: wanted Prim.*got None"),
    "huge int": ("filled", (1 << 63, (3,)), {}, VMValueError, "k: int .* does not fit int64"),
    "wide array": ("filled", (np.array([1]), (3,)), {}, VMTypeError, "k: wanted Prim"),
    "int for shape": ("filled", (1, 3), {}, VMTypeError, "s: wanted Shape.*got int 3"),
    "long shape": ("filled", (1, (3, 4)), {}, (VMTypeError, VMValueError), "s: .*"),
    "float in shape": ("filled", (1, (3.0,)), {}, VMTypeError, "s: wanted Shape.*float"),
    "huge size": ("filled", (1, (1 << 70,)), {}, VMValueError, "s: axis 0: .*does not fit int64"),
    "too large to copy": ("main", (ENDLESS, B), {}, LimitError, "cannot copy an array with gaps"),
    "too large to swap": ("main", (SWAPPED, B), {}, VMValueError, "cannot allocate"),
    "array for shape": ("filled", (1, ONE), {}, VMTypeError, "s: wanted Shape.*Tensor"),
    "negative size": (
        "filled",
        (1, (-1,)),
        {},
        VMValueError,
        "axis 0 would have the negative size -1",
    ),
    "array for tuple": ("pair", (ONE,), {}, VMTypeError, "t: wanted Tuple.*got Tensor"),
    "short tuple": ("pair", ((ONE,),), {}, VMTypeError, "t: wanted a tuple of 2, got 1"),
    "long tuple": ("pair", ((ONE,) * 3,), {}, VMTypeError, "t: wanted a tuple of 2, got 3"),
    "None in tuple": ("pair", ((ONE, None),), {}, VMTypeError, r"t\[1\]: wanted Tensor.*None"),
    "size in tuple": ("pair", ((ONE, ONE[:2]),), {}, VMValueError, "axis 0: wanted 3, got 2"),
    "dtype in tuple": ("pair", ((ONE, ONE.astype("f8")),), {}, VMTypeError, "dtype float32"),
    "rank for scalar": ("scalar", (np.array([4]),), {}, VMTypeError, "wanted 0 dimensions"),
    "python int": ("scalar", (4,), {}, VMTypeError, "x: wanted Tensor.*got int 4"),
    "out: dtype": ("main", (A, B), {"out": x(2, "f8")}, VMTypeError, "out: wanted dtype float32"),
    "out: rank": ("main", (A, B), {"out": A[0].copy()}, VMTypeError, "out: wanted 2 dimensions"),
    "out: size": ("main", (A, B), {"out": x(2)[:, :3]}, VMValueError, "out: axis 1: wanted 4"),
    "out: symbol": ("main", (A, B), {"out": x(3)}, VMValueError, r"out: wanted shape \(2, 4\)"),
    "out: read-only": ("main", (A, B), {"out": read_only(x())}, VMValueError, "read-only"),
    "out: numpy scalar": (
        "scalar",
        (np.array(4),),
        {"out": np.int64(3)},
        VMValueError,
        "read-only",
    ),
    "out: an int": ("main", (A, B), {"out": 3}, VMTypeError, "out: wanted an array"),
    "out: objects": ("main", (A, B), {"out": x().astype(object)}, VMTypeError, "dtype object"),
    "out: tuple": ("main", (A, B), {"out": (x(),)}, VMTypeError, "out: wanted Tensor"),
    "out: one for two": ("pair", ((ONE, ONE),), {"out": ONE.copy()}, VMTypeError, "a tuple of 2"),
    "out: itself": (
        "main",
        (A, B),
        {"out": as_strided(x(), (2, 4), (0, 4))},
        VMValueError,
        "share memory",
    ),
}


def refusal(call, args, kwargs):
    """The error of a call as (type, message, notes)."""
    try:
        call(*args, **kwargs)
    except RelaxvmError as error:
        return type(error), str(error), getattr(error, "__notes__", [])
    pytest.fail("nothing was raised")


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls_are_refused_alike(vms, name):
    function, args, kwargs, kind, message = WRONG[name]
    found = [refusal(vm[function], args, kwargs) for vm in vms.values()]
    assert issubclass(found[0][0], kind)
    assert re.search(message, found[0][1], re.DOTALL), found[0][1]
    assert all(each == found[0] for each in found), found
    # And nothing is broken by it.
    for vm in vms.values():
        np.testing.assert_array_equal(vm["main"](A, B).numpy(), A + B[::2, None])


def test_refused_calls_leak_nothing(vms):
    cases = [case for case in WRONG.values() if case[0] == "main"]
    held = [v for _, args, kwargs, _, _ in cases for v in [*args, *kwargs.values()]] + [A, B]

    def calls(count):
        for vm in vms.values():
            for _, args, kwargs, _, _ in cases:
                for _ in range(count):
                    refusal(vm["main"], args, kwargs)
        gc.collect()

    calls(1)
    before = [sys.getrefcount(value) for value in held]
    calls(20)
    assert [sys.getrefcount(value) for value in held] == before


def test_taken_calls_leak_nothing(vms):
    given = [TAKEN[name]() for name in TAKEN if name != "many rows"]
    out = np.zeros((2, 4), "float32")
    shape, t = (3,), (ONE, ONE)
    for vm in vms.values():
        main, pair, filled = vm["main"], vm["pair"], vm["filled"]

        def calls(count, main=main, pair=pair, filled=filled):
            for _ in range(count):
                for a, b in given:
                    main(a, y=b)
                    main(a, b)
                main(A, B, out=out)
                pair(t)
                filled(1 << 40, shape)

        calls(5)
        gc.collect()
        held = [v for pair_ in given for v in pair_] + [out, shape, t, ONE, A, B, 1 << 40]
        before = [sys.getrefcount(value) for value in held]
        # One object that each of the two calls of one kind leaves behind would show.
        assert growth(lambda: calls(15)) < 15 * 2 * 48
        assert [sys.getrefcount(value) for value in held] == before


def test_results_own_their_memory(vms):
    for vm in vms.values():
        results = [vm["main"](A + i, B) for i in range(8)]
        for i, result in enumerate(results):
            np.testing.assert_array_equal(result.numpy(), A + i + B[::2, None])
        for i, first in enumerate(results):
            assert not any(np.shares_memory(first.numpy(), r.numpy()) for r in results[i + 1 :])
        assert all(r.array.ctypes.data % 64 == 0 for r in results)
        assert all(r.numpy().flags.writeable for r in results)


# The kernels of `relaxvm.build`


WRONG_KERNEL = {
    "count": ((A, B), {}, VMTypeError, "combine: wanted 3 arguments, got 2"),
    "no arguments": ((), {}, VMTypeError, "combine: wanted 3 arguments, got 0"),
    "unknown keyword": ((A, B), {"out": A}, VMTypeError, "no parameter is called 'out'"),
    "given twice": ((A, B, A), {"X": A}, VMTypeError, "parameter X is given twice"),
    "dtype": ((x(2, "f8"), B, x()), {}, VMTypeError, "argument 0 .*float32.*float64"),
    "rank": ((A[0], B, x()), {}, VMTypeError, "argument 0 .*got Tensor"),
    "size": ((A, B, x(3)), {}, VMValueError, "argument 2 .*axis 0: wanted .*2.*got 3"),
    "related": ((A, B[:3], x()), {}, VMValueError, "argument 1 .*axis 0: wanted .*4.*got 3"),
    "None": ((None, B, x()), {}, VMTypeError, "argument 0 .*None"),
    "objects": ((x().astype(object), B, x()), {}, VMTypeError, "argument 0 .*dtype object"),
    "masked": ((np.ma.masked_array(A), B, x()), {}, VMTypeError, "argument 0 .*masked"),
    "an int": ((A, B, 3), {}, VMTypeError, "argument 2 .*int"),
    "read-only": ((A, B, read_only(x())), {}, VMValueError, "argument 2 .*read-only"),
    "read-only copy": (
        (A, B, read_only(misaligned(x()))),
        {},
        VMValueError,
        "argument 2 .*read-only",
    ),
}


@pytest.mark.parametrize("name", WRONG_KERNEL)
def test_wrong_calls_of_kernels_are_refused_alike(modules, name):
    args, kwargs, kind, message = WRONG_KERNEL[name]
    found = [refusal(rt["combine"], args, kwargs) for rt in modules.values()]
    assert issubclass(found[0][0], kind)
    assert re.search(message, found[0][1], re.DOTALL), found[0][1]
    assert all(each == found[0] for each in found), found


@pytest.mark.parametrize("name", TAKEN)
def test_kernels_take_arrays_of_every_kind(modules, name):
    a, b = TAKEN[name]()
    va, vb = (np.asarray(v.numpy() if hasattr(v, "numpy") else v) for v in (a, b))
    for rt in modules.values():
        for make in (np.zeros, lambda s, d: np.zeros(s, ">f4"), lambda s, d: np.zeros(s, d, "F")):
            out = make(va.shape, "float32")
            rt["combine"](a, Z=out, Y=b)
            np.testing.assert_array_equal(out, va + vb[::2, None])


def test_kernels_take_dlpack_and_scalars(modules):
    torch = pytest.importorskip("torch")
    for rt in modules.values():
        out = torch.zeros(2, 4)
        rt["combine"](torch.from_numpy(x()), B, out)
        assert out.tolist() == (A + B[::2, None]).tolist()
        for k in (7, np.int64(7), np.array(7), tvm.nd.array(np.array(7))):
            made = np.zeros(2, "int64")
            rt["fill"](made, k)
            rt["fill"](k=k, Z=made)
            assert made.tolist() == [7, 7]
        for k in (7.0, "7", None, 1 << 63, np.ones(2)):
            with pytest.raises((VMTypeError, VMValueError), match=r"fill: argument 1 \(k\)"):
                rt["fill"](made, k)


def test_a_numpy_scalar_is_no_output_of_a_kernel(modules):
    for rt in modules.values():
        out = np.array(0)
        rt["twice"](np.int64(4), out)
        assert out == 8
        with pytest.raises(VMValueError, match=r"twice: argument 1 \(b\).*read-only"):
            rt["twice"](np.int64(4), np.int64(0))
