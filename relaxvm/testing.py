"""Helpers for tests of models and passes, under the names TVM's users know."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .runtime import NDArray

__all__ = ["assert_allclose", "main"]


def assert_allclose(
    actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7, verbose: bool = True
) -> None:
    """Raise AssertionError unless two arrays (NDArray, numpy or nested lists) have one shape and
    close values.
    """
    a, b = (np.asanyarray(x.numpy() if isinstance(x, NDArray) else x) for x in (actual, desired))
    np.testing.assert_allclose(a.shape, b.shape)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, verbose=verbose)


def main() -> None:
    """Run the calling test file with pytest, as ``tvm.testing.main()`` does."""
    import pytest  # an extra: only test files call this

    caller = sys._getframe(1).f_globals["__file__"]
    sys.exit(pytest.main([caller, *sys.argv[1:]]))
