"""Shared by the tests of graph passes: modules as text before and after, and what a module
computes.
"""

from __future__ import annotations

import textwrap

import numpy as np
from relax_vm_helpers import build_interpreted, value

from relaxvm.ir import assert_structural_equal
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.script import from_source

HEAD = """
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
"""


def parse(text):
    """The module whose functions are `text`."""
    mod = from_source(HEAD + textwrap.indent(textwrap.dedent(text), "    "))
    assert_well_formed(mod)
    return mod


def becomes(run, before, after):
    """Check that the pass turns the module `before` into `after`, and leaves that alone."""
    mod = run(parse(before))
    assert_well_formed(mod)
    assert_structural_equal(mod, parse(after))
    assert run(mod) is mod
    return mod


def stays(run, text):
    """Check that the pass gives back the very module."""
    mod = parse(text)
    assert run(mod) is mod
    return mod


def results(mod, *args, disabled=(), functions=None):
    """What main gives, kernels interpreted."""
    vm = build_interpreted(mod, functions, {"disabled_pass": list(disabled)})
    return value(vm["main"](*[a.copy() if isinstance(a, np.ndarray) else a for a in args]))


def same_results(a, b, *args, functions=None):
    """Check that both modules give the same bits."""
    left, right = results(a, *args, functions=functions), results(b, *args, functions=functions)
    for x, y in zip(flat(left), flat(right), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        assert np.array_equal(x, y, equal_nan=x.dtype.kind == "f")


def flat(x):
    """The arrays in a result."""
    return [leaf for item in x for leaf in flat(item)] if isinstance(x, tuple) else [np.asarray(x)]
