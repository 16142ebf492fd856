"""Helpers for tests of models and passes, under the names TVM's users know."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .base import submodules
from .runtime import NDArray, cpu

# They see the whole house.
__getattr__ = submodules(__name__, {"relaxvm.meaning": "CheckMeaning assert_same_meaning bisect"})


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


def parameter(
    *values: Any, ids: Sequence[str] | Callable[[Any], str] | None = None, by_dict: Any = None
) -> Any:
    """A pytest fixture that takes each of `values` in turn: ``size = tvm.testing.parameter(1, 8)``.

    ids      names of the values in test names, or a function that gives them
    by_dict  {name: value} instead of `values` and `ids`
    """
    import pytest  # an extra: only test files call this

    if by_dict is not None:
        if values or ids is not None:
            raise TypeError("parameter: give values (and ids), or by_dict, not both")
        ids, values = [str(name) for name in by_dict], tuple(by_dict.values())

    @pytest.fixture(params=values, ids=ids)
    def each(request: Any) -> Any:
        """One of the values."""
        return request.param

    return each


def parameters(*value_sets: Iterable[Any], ids: Sequence[str] | None = None) -> list[Any]:
    """Fixtures whose values change together: ``x, y = tvm.testing.parameters((1, 2), (8, 9))``.

    Call it at the top level of a test file: pytest finds the fixture that they share there.
    """
    import pytest  # an extra: only test files call this

    rows = [tuple(row) for row in value_sets]
    if not rows or len({len(row) for row in rows}) != 1:
        sizes = ", ".join(str(len(row)) for row in rows) or "none"
        raise TypeError(f"parameters: wanted sets of one length, got lengths: {sizes}")
    scope = sys._getframe(1).f_globals
    shared = f"_parameters_{sum(name.startswith('_parameters_') for name in scope)}"
    scope[shared] = pytest.fixture(params=rows, ids=ids)(lambda request: request.param)
    # pytest asks for fixtures by the names of parameters.
    signature = inspect.Signature([inspect.Parameter(shared, inspect.Parameter.KEYWORD_ONLY)])

    def member(index: int) -> Any:
        def each(**row: Any) -> Any:
            """One value of the row."""
            return row[shared][index]

        vars(each)["__signature__"] = signature
        return pytest.fixture(each)

    return [member(index) for index in range(len(rows[0]))]


def fixture(func: Any = None, *, cache_return_value: bool = False) -> Any:
    """A pytest fixture; with `cache_return_value` made once for all tests of a session."""
    import pytest  # an extra: only test files call this

    make = pytest.fixture(scope="session" if cache_return_value else "function")
    return make if func is None else make(func)


def parametrize_targets(*targets: Any) -> Any:
    """Run a test that takes `target` and `dev` for each of `targets` (usually: "llvm"). May stand
    bare: ``@tvm.testing.parametrize_targets``.
    """
    import pytest  # an extra: only test files call this

    bare = len(targets) == 1 and callable(targets[0])
    names = ["llvm"] if bare or not targets else [str(t) for t in targets]
    skip = pytest.mark.skip(reason="code is made for CPUs here")
    rows = [
        pytest.param(name, cpu(), marks=() if name.split()[0] in ("llvm", "c") else skip, id=name)
        for name in names
    ]
    mark = pytest.mark.parametrize(("target", "dev"), rows)
    return mark(targets[0]) if bare else mark


def _requires(what: str, missing: bool) -> Callable[..., Any]:
    def requires(func: Any = None) -> Any:
        import pytest  # an extra: only test files call this

        if not missing:
            return func if func is not None else lambda f: f
        mark = pytest.mark.skip(reason=f"needs {what}")
        return mark if func is None else mark(func)

    requires.__doc__ = f"Skip a test (or class) where {what} is missing."
    return requires


requires_llvm = _requires("LLVM", missing=False)
requires_gpu = _requires("a GPU, for which no code is made here", missing=True)
requires_cuda = requires_gpu


def requires_package(*packages: str) -> Any:
    """Skip a test (or class) where one of these Python packages is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return _requires(" and ".join(missing), bool(missing))()
