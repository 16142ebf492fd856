from __future__ import annotations

import copy
import functools
import threading
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_fixture import section

from relaxvm.base import DataType, LoadError, VerifyError, record
from relaxvm.runtime import plain
from relaxvm.runtime.kernel import Failure, KernelInfo, KernelParam, KernelSection, NativeCode

F32 = DataType("float32")


def vector(name="x", **changes):
    return KernelParam(
        **{"name": name, "kind": "tensor", "dtype": F32, "shape": (("$n",),), **changes}
    )


def info(**changes):
    fields = {
        "name": "f",
        "symbol": "f",
        "params": (vector(), vector("y", access="w")),
        "failures": (Failure("shape", 1, 0),),
        "noalias": True,
        "flops": ("$n", 2, "*"),
    }
    return KernelInfo(**{**fields, **changes})


def test_a_section_survives_the_round_trip():
    made = section()
    assert KernelSection.from_plain(made.to_plain()) == made
    assert KernelSection.from_plain(KernelSection((), b"x", ()).to_plain()).portable == b"x"


def test_a_kernel_reads_like_a_signature():
    scalar = KernelParam("a", "scalar", DataType("int64"))
    matrix = vector("m", shape=(("$a", 2, "*"), 4))
    made = info(params=(scalar, vector(), matrix), failures=())
    assert str(made) == "f(a: int64, x: Tensor((n,), float32), m: Tensor((a * 2, 4), float32))"
    assert made.bound_symbols() == {"a", "n"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: vector(""), "name: wanted a text"),
        (lambda: vector("a\0b"), "NUL"),
        (lambda: vector(kind="thing"), "kind 'thing'"),
        (lambda: vector(access="rw!"), "access"),
        (lambda: vector(dtype="float32"), "no parameter has dtype"),
        (lambda: vector(dtype=DataType("handle")), "no parameter has dtype handle"),
        (lambda: vector(dtype=DataType("float32x4")), "float32x4"),
        (lambda: vector(shape=[1]), "at most 64 axes"),
        (lambda: vector(shape=(1,) * 65), "at most 64 axes"),
        (lambda: vector(shape=(("$n", "+"),)), "wants 2 operands"),
        (lambda: vector(strides=(1, 2)), "one stride per axis"),
        (lambda: vector(kind="scalar"), "a scalar has no shape"),
        (lambda: vector(kind="scalar", shape=(), access="w"), "a scalar has no"),
        (lambda: Failure("explode", 0), "failure kind"),
        (lambda: Failure("shape"), "names no parameter"),
        (lambda: Failure("alias", 0), "no second parameter"),
        (lambda: Failure("shape", True), "out of range"),
        (lambda: Failure("shape", -2), "out of range"),
        (lambda: Failure("assert", message=3), "wanted a text"),
        (lambda: info(symbol="a b"), "symbol"),
        (lambda: info(symbol=""), "symbol"),
        (lambda: info(noalias=1), "noalias"),
        (lambda: info(params=[vector()]), "parameters"),
        (lambda: info(params=(vector(), vector())), "same name"),
        (lambda: info(params=(vector(shape=(("$n", 1, "+"),)),), failures=()), "'n' is not bound"),
        (lambda: info(flops=("$q",)), "'q' is not bound"),
        (lambda: info(failures=(Failure("shape", 2),)), "out of range"),
        (lambda: info(failures=(Failure("alias", 0, other=2),)), "out of range"),
        (lambda: info(failures=(Failure("shape", 0, 1),)), "axis"),
        (lambda: info(failures=[]), "failures"),
        (lambda: NativeCode("", "", "", b"x", ""), "triple"),
        (lambda: NativeCode("t", "", "", b"", ""), "object file"),
        (lambda: NativeCode("t", "", "", bytearray(b"x"), ""), "object file"),
        (lambda: KernelSection((info(), info(symbol="g")), b"", ()), "same name"),
        (lambda: KernelSection((info(), info(name="g", noalias=False)), b"", ()), "share a symbol"),
        (lambda: NativeCode("t", "", "", b"x", "", more=[b"y"]), "tuple of objects"),
        (lambda: NativeCode("t", "", "", b"x", "", more=(b"",)), "object file"),
        (lambda: KernelSection([info()], b"", ()), "tuple of kernels"),
        (lambda: KernelSection((), "x", ()), "as bytes"),
    ],
)
def test_what_does_not_fit_together_cannot_be_made(make, message):
    with pytest.raises(VerifyError, match=message):
        make()


def test_a_symbol_may_be_bound_by_a_scalar_or_a_stride():
    scalar = KernelParam("n", "scalar", DataType("int32"))
    assert info(params=(scalar, vector(shape=(("$n", 1, "+"),))), failures=(), flops=None)
    assert info(params=(vector(shape=(2,), strides=(("$s",),)),), failures=(), flops=("$s",))
    real = KernelParam("n", "scalar", F32)
    with pytest.raises(VerifyError, match="not bound"):
        info(params=(real, vector(shape=(("$n", 1, "+"),))), failures=(), flops=None)


def _plain():
    made = KernelSection((info(),), b"portable", (NativeCode("t", "c", "+a", b"code", "p"),))
    return made.to_plain()


def _paths(plain, prefix=()):
    """Every place in nested plain data."""
    items = plain.items() if isinstance(plain, dict) else enumerate(plain)
    for key, value in items:
        yield (*prefix, key)
        if isinstance(value, (dict, list)):
            yield from _paths(value, (*prefix, key))


def _parent(plain, path):
    for key in path[:-1]:
        plain = plain[key]
    return plain


_junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.just([]),
    st.just({}),
    st.just([["$n", "+"]]),
    st.just({"name": 1}),
)


@given(st.sampled_from(sorted(_paths(_plain()), key=repr)), _junk)
@settings(max_examples=200, deadline=None)
def test_any_change_of_the_plain_form_is_read_or_refused(path, value):
    plain = copy.deepcopy(_plain())
    _parent(plain, path)[path[-1]] = value
    try:
        made = KernelSection.from_plain(plain)
    except LoadError:
        return
    assert KernelSection.from_plain(made.to_plain()) == made


@pytest.mark.parametrize("path", sorted(_paths(_plain()), key=repr), ids=repr)
def test_a_missing_field_is_refused(path):
    plain = _plain()
    holder = _parent(plain, path)
    if isinstance(holder, dict):
        del holder[path[-1]]
        with pytest.raises(LoadError, match="wanted the keys"):
            KernelSection.from_plain(plain)
        holder["surplus"] = 1
        with pytest.raises(LoadError, match="surplus"):
            KernelSection.from_plain(plain)
    else:
        assert isinstance(holder, list)


def test_damaged_object_code_is_noticed():
    plain = _plain()
    plain["native"][0]["object"] = b"cOde"
    with pytest.raises(LoadError, match="damaged"):
        KernelSection.from_plain(plain)


@pytest.mark.parametrize("name", ["float032", "Float32", "float32x4", "handle", "", "x" * 99, 3])
def test_only_the_canonical_name_of_a_dtype_is_read(name):
    plain = _plain()
    plain["infos"][0]["params"][0]["dtype"] = name
    with pytest.raises(LoadError):
        KernelSection.from_plain(plain)


def test_failures_that_are_the_same_are_one_object_and_true_is_no_number():
    made = [Failure.from_plain(["shape", 1, 0, -1, ""]) for _ in range(2)]
    assert made[0] is made[1] == Failure("shape", 1, 0)
    with pytest.raises(LoadError, match="param"):
        Failure.from_plain(["shape", True, 0, -1, ""])
    for _ in range(2):
        with pytest.raises(LoadError, match="out of range"):
            Failure.from_plain(["shape", -2, 0, -1, ""])


def test_a_class_may_be_read_by_another_thread_while_it_is_looked_at_first(monkeypatch):
    @record
    class Pair(plain.Plain, form="list"):
        first: int
        second: int

    read = []

    def meanwhile(size):
        monkeypatch.undo()
        thread = threading.Thread(target=lambda: read.append(Pair.from_plain([1, 2])))
        thread.start()
        thread.join()
        return functools.lru_cache(size)

    monkeypatch.setattr(plain, "functools", types.SimpleNamespace(lru_cache=meanwhile))
    assert [Pair.from_plain([1, 2]), *read] == [Pair(1, 2)] * 2
