from __future__ import annotations

import gc
import struct
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_fixture import SCALARS, linked

from relaxvm.base import DataType, InternalError, VMTypeError, VMValueError
from relaxvm.runtime import host, native, storage, trampoline
from relaxvm.runtime import ndarray as nd
from relaxvm.runtime.kernel import Failure, KernelInfo, KernelParam
from relaxvm.runtime.native import set_call_path


@pytest.fixture(params=["fast", "generic"])
def kernels(request):
    """The kernels of the fixture, entered by each path."""
    former = set_call_path(request.param)
    try:
        return linked()
    finally:
        set_call_path(former)


def vectors(n=4, dtype="float32"):
    return [nd.array(np.arange(n), dtype=dtype) for _ in range(3)]


# The raw entry


def test_a_kernel_computes_in_place_and_returns_none(kernels):
    x, y, out = vectors()
    assert kernels["add"].call(x, y, out) is None
    assert out.tolist() == [0, 2, 4, 6]
    assert kernels["mul"].call(*vectors(3, "float64")) is None


def test_numpy_arrays_are_taken_as_they_are(kernels):
    x, y, out = (np.arange(5, dtype="float32") for _ in range(3))
    assert kernels["add"].call(x, nd.array(y), out) is None
    assert out.tolist() == [0, 2, 4, 6, 8]


def test_a_failed_check_gives_its_number_and_writes_nothing(kernels):
    add = kernels["add"]
    x, y, out = vectors()
    code = add.call(x, nd.array(np.arange(3), dtype="float32"), out)
    assert add.info.failures[code - 1] == Failure("shape", 1, 0)
    code = add.call(x, y, nd.empty((4,), "float64"))
    assert add.info.failures[code - 1] == Failure("dtype", 2)
    assert out.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("count", [0, 1, 2, 4, 50])
def test_a_wrong_count_has_its_own_code(kernels, count):
    args = [nd.empty((2,))] * count
    assert kernels["add"].call(*args) == trampoline.CODE_COUNT
    with pytest.raises(VMTypeError, match=f"wanted 3 arguments, got {count}"):
        kernels["add"](*args)


class Subclass(np.ndarray):
    pass


@pytest.mark.parametrize(
    "bad",
    [None, 1, 1.5, "x", [1.0], object(), np.float32(1), np.zeros(4).view(Subclass), int, nd.NDArray,
     np.ma.zeros(4), np.zeros(4, np.dtype("float32").newbyteorder())],
    ids=lambda x: type(x).__name__,
)  # fmt: skip
@pytest.mark.parametrize("position", [0, 1, 2])
def test_what_is_no_array_fails_by_its_position(kernels, bad, position):
    args = vectors()
    args[position] = bad
    call = kernels["add"].call
    assert call(*args) == -(position + 1)
    before = sys.getrefcount(bad)
    for _ in range(100):
        call(*args)
    # Shared constants such as None may move by a few on their own.
    assert abs(sys.getrefcount(bad) - before) < 50


def test_an_array_of_objects_fails_by_its_dtype(kernels):
    add = kernels["add"]
    code = add.call(np.array([None] * 4), *vectors()[1:])
    assert add.info.failures[code - 1].kind == "dtype"


def test_an_unset_slot_is_no_array(kernels):
    args = vectors()
    args[1] = object.__new__(nd.NDArray)
    if type(kernels["add"].call).__name__ == "builtin_function_or_method":
        assert kernels["add"].call(*args) == -2


def test_reference_counts_are_as_before(kernels):
    add, echo = kernels["add"], kernels["echo"]
    x, y, out = vectors()
    big, real = 2**62 + 1, 1.5e300
    outs = nd.empty((len(SCALARS),), "int64")
    scalars = [True, -5, 2**31 - 1, big, 200, 2**63 + 5, real, real, 7]
    watched = [x, y, out, x.array, out.array, big, real, outs, scalars[5], None, True]
    calls = [
        (add, (x, y, out)),
        (add, (x, y)),
        (add, (x, None, out)),
        (add, (x, y, nd.empty((9,)))),
        (echo, (*scalars, outs)),
        (echo, (*scalars[:4], 300, *scalars[5:], outs)),
        (echo, (*scalars[:3], 2**70, *scalars[4:], outs)),
        (kernels["fails"], ()),
    ]
    for function, args in calls:
        function.call(*args)
    before = [sys.getrefcount(w) for w in watched]
    for _ in range(200):
        for function, args in calls:
            function.call(*args)
    after = [sys.getrefcount(w) for w in watched]
    # Immortal and shared constants may move by a few; a leak would show as hundreds.
    assert all(abs(a - b) < 20 for a, b in zip(after, before)), list(zip(before, after))


def test_no_error_is_left_behind(kernels):
    outs = nd.empty((len(SCALARS),), "int64")
    scalars = [True, 1, 1, 2**70, 1, 1, 1.0, 1.0, 1.0]
    assert kernels["echo"].call(*scalars, outs) == -4
    scalars = [True, 1, 1, 1, 1, -1, 1.0, 1.0, 1.0]
    assert kernels["echo"].call(*scalars, outs) == -6
    scalars = [True, 1, 1, 1, 1, 1, 10**400, 1.0, 1.0]
    assert kernels["echo"].call(*scalars, outs) == -7


def payload(value, dtype):
    if dtype.is_float:
        return struct.unpack("=q", struct.pack("=d", float(value)))[0]
    return ((int(value) + 2**63) & (2**64 - 1)) - 2**63


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_scalars_arrive_as_64_bits_or_fail_by_position(data):
    values = []
    for name in SCALARS:
        dtype = DataType(name)
        if dtype.is_bool:
            values.append(data.draw(st.booleans()))
        elif dtype.is_float:
            values.append(data.draw(st.one_of(st.floats(allow_nan=False), st.integers(-9, 2**70))))
        else:
            edges = [dtype.min_value, dtype.max_value, dtype.min_value - 1, dtype.max_value + 1]
            edges += [-1, 0, 2**63, 2**64 - 1, 2**64, -(2**63) - 1]
            values.append(data.draw(st.one_of(st.sampled_from(edges), st.integers(-3, 3))))
    wanted = None
    for i, (value, name) in enumerate(zip(values, SCALARS)):
        dtype = DataType(name)
        if dtype.is_int and not dtype.min_value <= value <= dtype.max_value:
            wanted = -(i + 1)
            break
    for path in ("fast", "generic"):
        former = set_call_path(path)
        echo = linked()["echo"]
        set_call_path(former)
        out = nd.empty((len(SCALARS),), "int64")
        assert echo.call(*values, out) == wanted
        if wanted is None:
            expected = [payload(v, DataType(d)) for v, d in zip(values, SCALARS)]
            assert out.tolist() == expected


@pytest.mark.parametrize(
    ("position", "bad"),
    [(0, 1), (0, None), (0, np.bool_(True)), (1, 1.0), (1, "1"), (1, np.int8(1)), (3, None),
     (6, "1"), (6, np.float32(1)), (6, 1j), (7, None), (8, [1.0])],
    ids=repr,
)  # fmt: skip
def test_the_raw_entry_takes_plain_numbers_only(kernels, position, bad):
    values = [True, 1, 1, 1, 1, 1, 1.0, 1.0, 1.0]
    values[position] = bad
    assert kernels["echo"].call(*values, nd.empty((9,), "int64")) == -(position + 1)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.arange(12.0).reshape(3, 4)[::-1, ::-2],
        np.arange(12.0).reshape(3, 4).T,
        np.zeros((0, 5)),
        np.broadcast_to(np.float64(1), (3, 5)),
        np.zeros((1, 1)),
    ],
    ids=["plain", "negative", "transposed", "empty", "broadcast", "one"],
)
def test_the_wrapper_sees_numpys_own_header(kernels, array):
    out = nd.empty((7,), "int64")
    seen = nd.as_ndarray(array)
    for given_, flags in ((array, array.flags), (seen, seen.array.flags)):
        assert kernels["describe"].call(given_, out) is None
        (d0, d1), (s0, s1) = array.shape, array.strides
        assert out.tolist() == [2, 12, flags.num, d0, s0, d1, s1]


def test_arrays_of_zero_elements_are_fine(kernels):
    assert kernels["add"].call(*(nd.empty((0,)) for _ in range(3))) is None


def test_eight_threads_on_one_kernel_do_not_disturb_each_other(kernels):
    add, wrong = kernels["add"], []
    barrier = threading.Barrier(8)

    def work(seed):
        n = 50 + seed if seed % 2 else 20_000 + seed
        x = nd.array(np.full(n, seed, "float32"))
        out = nd.empty((n,))
        barrier.wait()
        for i in range(150):
            y = nd.array(np.full(n, i, "float32"))
            if add.call(x, y, out) is not None or not (out.numpy() == seed + i).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_large_work_on_numpy_arrays_asks_for_ndarrays():
    former = set_call_path("fast")
    add = linked()["add"]
    set_call_path(former)
    n = trampoline.RELEASE_GIL_ELEMENTS
    x, y, out = (np.ones(n, "float32") for _ in range(3))
    assert add.call(x, y, out) == trampoline.CODE_WANTS_NDARRAY
    add(x, y, out)
    assert (out == 2).all()
    with pytest.raises(VMTypeError, match="wanted NDArrays"):
        add.raise_failure(trampoline.CODE_WANTS_NDARRAY, (x, y, out))


def test_the_raw_entry_keeps_the_code_alive(kernels):
    call = linked()["add"].call
    gc.collect()
    x, y, out = vectors()
    assert call(x, y, out) is None
    assert out.tolist() == [0, 2, 4, 6]


def test_the_layout_is_as_expected_here():
    assert trampoline.fast_path_problem() is None


@pytest.mark.parametrize("offset", ["ND_DATA", "ND_NDIM", "ND_DIMS", "ND_STRIDES", "ND_DESCR",
                                    "ND_FLAGS", "DESCR_TYPE_NUM", "DESCR_BYTEORDER", "SLOT_ARRAY",
                                    "SLOT_DTYPE", "BYTES_DATA", "TP_FLAGS"])  # fmt: skip
def test_another_layout_is_noticed_and_the_generic_path_serves(monkeypatch, offset):
    layout = trampoline.pyabi
    monkeypatch.setattr(layout, offset, getattr(layout, offset) + 8)
    trampoline.fast_path_problem.cache_clear()
    try:
        assert "layout" in trampoline.fast_path_problem()
        x, y, out = vectors()
        linked()["add"](x, y, out)
        assert out.tolist() == [0, 2, 4, 6]
        former = set_call_path("fast")
        try:
            with pytest.raises(Exception, match="no native entry here: the layout"):
                linked()
        finally:
            set_call_path(former)
    finally:
        monkeypatch.undo()
        trampoline.fast_path_problem.cache_clear()


def test_an_unknown_call_path_is_refused():
    with pytest.raises(VMValueError, match="'auto', 'fast' or 'generic'"):
        set_call_path("quick")
    assert native.call_path() == "auto"


# The checked call


class Foreign:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


def test_the_checked_call_takes_whatever_is_an_array(kernels):
    add = kernels["add"]
    out = bytearray(12)
    add(
        np.float32([1, 2, 3]),
        nd.array([1.0, 1.0, 1.0]),
        memoryview(out).cast("f"),
    )
    assert np.frombuffer(out, "float32").tolist() == [2, 3, 4]

    target = np.zeros(3, "float32")
    add(Foreign(np.float32([1, 2, 3])), np.float32([1, 1, 1]).view(Subclass), Foreign(target))
    assert target.tolist() == [2, 3, 4]


def test_strided_and_swapped_arrays_work_through_copies(kernels):
    add = kernels["add"]
    x = np.arange(8, dtype="float32")[::-2]
    y = np.arange(4, dtype=np.dtype("float32").newbyteorder())
    target = np.zeros((4, 3), "float32")
    add(x, y, target[:, 1])
    assert target[:, 1].tolist() == [7, 6, 5, 4]
    assert not target[:, ::2].any()
    swapped = np.zeros(4, np.dtype("float32").newbyteorder())
    add(x, y, swapped)
    assert swapped.tolist() == [7, 6, 5, 4]
    raw = np.zeros(17, "uint8")
    misaligned = raw[1:].view("float32")
    for target in (misaligned, memoryview(misaligned), Foreign(misaligned)):
        raw[...] = 0
        add(nd.as_ndarray(x), y, target)
        assert misaligned.tolist() == [7, 6, 5, 4]
    long_long = np.zeros(4, np.longlong)
    kernels["addi"](np.arange(4, dtype=np.longlong), np.arange(4), long_long)
    assert long_long.tolist() == [0, 2, 4, 6]


def test_numbers_are_converted_for_scalars(kernels):
    out = nd.empty((9,), "int64")
    values = [np.bool_(True), np.int8(-1), nd.array(7), np.uint64(9), 1, 2**64 - 1]
    kernels["echo"](*values, np.float32(0.5), nd.array(2.5), True, out)
    expected = [1, -1, 7, 9, 1, -1, *(payload(v, DataType("float64")) for v in (0.5, 2.5, 1.0))]
    assert out.tolist() == expected


def _echo(**changes):
    values = [True, 1, 1, 1, 1, 1, 1.0, 1.0, 1.0]
    for key, value in changes.items():
        values[int(key[1:])] = value
    return (*values, nd.empty((9,), "int64"))


F = np.float32


@pytest.mark.parametrize(
    ("name", "args", "error", "parts"),
    [
        ("add", (1, F([1]), F([1])), VMTypeError, ["add: argument 0 (x)", "got int"]),
        ("add", ([1.0], F([1]), F([1])), VMTypeError, ["argument 0 (x)", "got list"]),
        ("add", (F([1]), None, F([1])), VMTypeError, ["argument 1 (y)", "got NoneType"]),
        ("add", (np.ones(2), F([1]), F([1])), VMTypeError,
         ["argument 0 (x): wanted Tensor((n,), float32), got Tensor((2,), float64)"]),
        ("add", (F([[1]]), F([1]), F([1])), VMTypeError, ["wanted Tensor((n,), float32)", "1, 1)"]),
        ("add", (np.array([None]), F([1]), F([1])), VMTypeError, ["argument 0 (x)", "object"]),
        ("add", (np.ma.ones(1), F([1]), F([1])), VMTypeError, ["argument 0 (x)", "masked"]),
        ("add", (F([1, 2]), F([1]), F([1, 1])), VMValueError,
         ["argument 1 (y)", "axis 0: wanted n = 2, got 1", "n is 2 from x.shape[0]"]),
        ("add", (F([1]), F([1]), b"1234"), VMTypeError, ["argument 2 (out)", "uint8"]),
        ("add", (F([1]), F([1]), memoryview(b"1234").cast("f")), VMValueError,
         ["argument 2 (out)", "writeable", "read-only"]),
        ("fails", (), VMValueError, ["fails: assertion failed: n must be even"]),
        ("echo", _echo(_0=2), VMTypeError, ["argument 0 (s0)", "bool", "got int 2"]),
        ("echo", _echo(_0=np.ones(3)), VMTypeError, ["argument 0 (s0)"]),
        ("echo", _echo(_1=128), VMValueError, ["argument 1 (s1)", "int8 (-128 to 127), got 128"]),
        ("echo", _echo(_3=2**63), VMValueError, ["argument 3 (s3)", "int64", f"got {2**63}"]),
        ("echo", _echo(_4=-1), VMValueError, ["argument 4 (s4)", "uint8 (0 to 255), got -1"]),
        ("echo", _echo(_1=1.0), VMTypeError, ["argument 1 (s1)", "got float 1.0"]),
        ("echo", _echo(_6="x"), VMTypeError, ["argument 6 (s6)", "got str 'x'"]),
        ("echo", _echo(_6=10**400), VMValueError, ["argument 6 (s6)", "wanted a float32 (-3.4"]),
        ("copy_bf16", (np.zeros(2, "uint16"), np.zeros(2, "uint16")), VMTypeError,
         ["argument 0 (x)", "bfloat16", "uint16", "nd.array(bits"]),
        ("addi", (np.ones(2), np.ones(2), np.ones(2)), VMTypeError, ["int64", "float64"]),
    ],
)  # fmt: skip
def test_errors_name_kernel_parameter_wanted_and_got(kernels, name, args, error, parts):
    with pytest.raises(error) as caught:
        kernels[name](*args)
    for part in parts:
        assert part in str(caught.value)


def test_an_overlap_is_refused_whatever_the_layout(kernels):
    add = kernels["add"]
    base = np.arange(12, dtype="float32")
    for x, out in ((base[:4], base[2:6]), (base[::2], base[1:7]), (base[:4], base[3::-1])):
        before = base.copy()
        with pytest.raises(VMValueError, match=r"parameters (x|out) and (x|out) overlap in memory"):
            add(x, np.zeros_like(x), out)
        assert (base == before).all()
    add(base[::2], np.zeros(6, "float32"), base[1::2])
    assert base[1::2].tolist() == [0, 2, 4, 6, 8, 10]


def test_copies_do_not_hide_an_overlap_that_the_kernel_allows(kernels):
    base = nd.array(np.arange(8), dtype="bfloat16")
    with pytest.raises(VMValueError, match="overlap in memory"):
        kernels["copy_bf16"](base[::2], base[1:5])
    kernels["copy_bf16"](base[::2], base[1::2])
    assert base.tolist() == [0, 0, 2, 2, 4, 4, 6, 6]


def test_a_strided_read_only_output_is_refused(kernels):
    frozen = np.zeros(8, "float32")
    frozen.flags.writeable = False
    with pytest.raises(VMValueError, match=r"argument 2 \(out\): wanted a writeable array"):
        kernels["add"](F([1, 1, 1, 1]), F([1, 1, 1, 1]), frozen[::2])
    swapped = np.zeros(4, np.dtype("float32").newbyteorder())
    swapped.flags.writeable = False
    with pytest.raises(VMValueError, match="writeable"):
        kernels["add"](F([1, 1, 1, 1]), F([1, 1, 1, 1]), swapped)


def test_bfloat16_goes_through_and_uint16_does_not_take_it(kernels):
    x, out = nd.array([1.5, -2.0], dtype="bfloat16"), nd.empty((2,), "bfloat16")
    kernels["copy_bf16"](x, out)
    assert out.tolist() == [1.5, -2.0]
    assert kernels["copy_bf16"].call(nd.as_ndarray(np.zeros(2, "uint16")), out) == -1
    extension = storage.extension_dtype(DataType("bfloat16"))
    if extension is not None:
        target = np.zeros(2, extension)
        kernels["copy_bf16"](np.array([3, 4], extension), target)
        assert target.tolist() == [3, 4]


def test_unknown_failure_numbers_are_internal_errors(kernels):
    add = kernels["add"]
    for code in (999, -999):
        with pytest.raises(InternalError, match="unknown number"):
            add.raise_failure(code, vectors())


def test_messages_for_failures_of_every_kind():
    f32 = DataType("float32")
    params = (
        KernelParam("k", "scalar", DataType("int64")),
        KernelParam("x", "tensor", f32, (("$n",), ("$m",)), (("$s",), 1)),
        KernelParam("y", "tensor", f32, (("$n", "$k", "*"), 4), None, "w"),
    )
    failures = (
        Failure("shape", 2, 0),
        Failure("shape", 2, 1),
        Failure("strides", 1, 1),
        Failure("strides", 2),
        Failure("align", 1),
        Failure("ndim", 1),
        Failure("kind", 0),
        Failure("readonly", 2, message="because"),
        Failure("alias", 1, other=2),
        Failure("assert"),
    )
    info = KernelInfo("f", "f", params, failures, True)
    function = native.KernelFunction(info, 0, None)
    args = (3, nd.empty((2, 5)), nd.empty((7, 9)))
    expected = [
        "axis 0: wanted n * k = 6, got 7 (n is 2 from x.shape[0]; k is 3 from argument k)",
        "axis 1: wanted 4, got 9",
        "wanted strides (s, 1) in elements, got Tensor((2, 5), float32) with "
        "strides (20, 4) in bytes",
        "wanted a C-contiguous array",
        "not aligned to its 4-byte elements",
        "f: argument 1 (x): wanted Tensor((n, m), float32), got Tensor((2, 5), float32)",
        "f: argument 0 (k): wanted a Python number for int64, got int 3",
        "read-only one\n  because",
        "parameters x and y overlap",
        "no message",
    ]
    for number, text in enumerate(expected, start=1):
        with pytest.raises((VMTypeError, VMValueError)) as caught:
            function.raise_failure(number, args)
        assert text in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="only what Linux says of a CPU is a key")
def test_what_llvm_said_of_another_cpu_is_not_believed(monkeypatch, tmp_path):
    """Of another, and of this one as an emulator shows it: valgrind knows no AVX-512."""
    asked = []

    class LLVM:
        def get_host_cpu_features():
            asked.append(1)
            return {"a": True, "b": False}

        def get_default_triple():
            return "x86_64-linux"

        def get_host_cpu_name():
            return f"cpu{len(asked)}"

    def told():
        native.host.cache_clear()
        return native.host().cpu

    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("RELAXVM_CACHE", raising=False)
    monkeypatch.setattr(native, "started_llvm", lambda: LLVM)
    able = (np.__dict__.get("_core") or np.core)._multiarray_umath
    first_core = host._first_core
    try:
        assert [told(), told()] == ["cpu1", "cpu1"]
        features = able.__cpu_features__
        changed = {name: not has for name, has in features.items()}
        monkeypatch.setattr(able, "__cpu_features__", changed)
        assert [told(), told()] == ["cpu2", "cpu2"]
        monkeypatch.setattr(host, "_first_core", lambda root: "model name: another")
        assert [told(), told()] == ["cpu3", "cpu3"]
        monkeypatch.setattr(host, "_first_core", lambda root: "")
        assert [told(), told()] == ["cpu4", "cpu5"]
        monkeypatch.setattr(able, "__cpu_features__", features)
        monkeypatch.setattr(host, "_first_core", first_core)
        assert told() == "cpu1"
    finally:
        native.host.cache_clear()
