"""The cases of the op table in forms that their authors did not write: on every other dtype, with
all symbols 0 or 1, and with shapes of which only the rank is known.

A dtype that an operator does not take is refused when the call is built, by an error that begins
with the operator's name. What is built gives the meaning's result, or an error where the meaning
raises one.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
from op_table import (
    ALL,
    FAMILIES,
    Case,
    Instance,
    Sh,
    T,
    _build,
    _check_info,
    _differences,
    _flat,
    _to_argument,
    cases_of,
    module_of,
    thinned,
)

from relaxvm import relax
from relaxvm.base import RelaxvmError, StructInfoError

BATCH = 40
# Operators whose meaning needs more than the arrays: numpy has no bfloat16, and a stride of an
# empty array is what its maker chose.
ABOUT_STORAGE = ("inspect.tensor_dtype_code", "inspect.tensor_dtype_bits")
STRIDES = ("inspect.tensor_stride_i",)
# The sizes of what they index, or of their scales, are part of what is computed: they must be known
# to build.
NEEDS_SIZES = (
    "gather_nd", "scatter_nd", "squeeze", "quantize", "dequantize", "requantize", "matmul_integer",
    "conv2d_integer", "qlinear_matmul", "qlinear_conv2d", "matmul_nbits",
)  # fmt: skip


def table():
    return [c for f in FAMILIES for c in cases_of(f) if isinstance(c, Case) and not c.slow]


def other_dtypes(case):
    for kind in ALL:
        if kind not in case.dtypes and case.op.op.short not in ABOUT_STORAGE:
            yield case, kind


def all_symbols(size):
    def variants(case):
        made = copy.copy(case)
        made.sizes = {name: size for name in case.sizes}
        symbolic = any(
            isinstance(d, str)
            for a in _flat(case.args)
            if isinstance(a, (T, Sh))
            for d in (a.shape if isinstance(a, T) else a.dims)
        )
        if symbolic and case.op.op.short not in (STRIDES if size == 0 else ()):
            yield made, case.dtypes[0]

    return variants


def only_ranks(case):
    def conceal(arg):
        if isinstance(arg, (tuple, list)):
            return tuple(map(conceal, arg))
        if not isinstance(arg, T) or arg.info is not None:
            return arg
        made = copy.copy(arg)
        made.info = lambda kind: relax.TensorStructInfo(None, kind, ndim=len(arg.shape))
        return made

    made = copy.copy(case)
    made.args = tuple(map(conceal, case.args))
    if case.op.op.short not in NEEDS_SIZES and any(isinstance(a, T) for a in _flat(case.args)):
        yield made, case.dtypes[0]


OTHERS = ("nn", "grad", "image", "vision")


def is_of_networks(case):
    return case.op.op.short.partition(".")[0] in OTHERS


def built(variants, cases=None):
    """The instances of the variants; what a dtype rules out must say so by name."""
    for case in cases or [c for c in table() if not is_of_networks(c)]:
        for variant, kind in variants(case):
            try:
                with np.errstate(all="ignore"):
                    yield Instance(variant, kind)
            except StructInfoError as error:
                if not str(error).startswith(case.op.op.short):
                    raise
            except ZeroDivisionError:
                pass  # the case's own elements cannot be made in this shape


def outcome(make):
    try:
        with np.errstate(all="ignore"):
            return make(), None
    except RelaxvmError as error:
        return None, error
    except (ValueError, IndexError) as error:
        return None, error


def wrong(group):
    vm = _build(module_of(group))
    for i, one in enumerate(group):
        want, refused = outcome(one.expected)
        arguments = map(_to_argument, one.arrays, one.params)
        got, error = outcome(lambda i=i, a=arguments: vm[f"f{i}"](*a))
        if error is not None and not isinstance(error, RelaxvmError):
            yield f"{one.label}: {type(error).__name__}: {error}"
        elif (error is None) != (refused is None):
            yield f"{one.label}: the program: {error}; the meaning: {refused}"
        elif error is None:
            yield from (f"{one.label}: inferred: {w}" for w in _check_info(one, want))
            yield from (f"{one.label}: {w}" for w in _differences(one, got, want))


def sweep(variants, but=(), cases=None):
    todo = list(built(variants, cases))
    assert len(todo) > (300 if cases is None else 0)
    found = []
    for start in range(0, len(todo), BATCH):
        found += [w for w in wrong(todo[start : start + BATCH]) if not w.startswith(but)]
    assert not found, f"{len(found)} of {len(todo)} are wrong:\n" + "\n".join(found[:40])


@pytest.mark.slow
def test_every_case_on_every_other_dtype():
    sweep(other_dtypes)


@pytest.mark.slow
def test_every_case_with_symbols_of_no_elements():
    sweep(all_symbols(0))


# Of one label, numpy stretches a size that turns out to be 1; einsum wants to know it is 1.
STRETCHED = "einsum("


@pytest.mark.slow
def test_every_case_with_symbols_of_one_element():
    sweep(all_symbols(1), but=(STRETCHED,))


@pytest.mark.slow
def test_every_case_of_which_only_ranks_are_known():
    sweep(only_ranks, but=(STRETCHED,))


@pytest.mark.slow
def test_network_operators_of_which_only_ranks_are_known():
    """Their sizes are also in test_relax_op_nn_sizes.py: here the first case of each."""
    firsts = thinned([c for c in table() if is_of_networks(c)], 10**6)
    assert len(firsts) > 80
    sweep(only_ranks, cases=firsts)
