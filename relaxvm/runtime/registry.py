"""Packed functions by name: what `R.call_packed("env.f", ...)` finds at link time.

A registered function is an ordinary Python callable and stays one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeVar, overload

from ..base import VMTypeError, VMValueError, did_you_mean
from .locks import lock

# Without parameters, so that `isinstance` takes it.
PackedFunc = Callable  # type: ignore[type-arg]
"""TVM's name for a function that can be registered: any callable."""

_F = TypeVar("_F", bound=Callable[..., Any])
_lock = lock()
_functions: dict[str, Callable[..., Any]] = {}


@overload
def register_func(name: str, f: None = None, override: bool = False) -> Callable[[_F], _F]: ...
@overload
def register_func(name: str, f: _F, override: bool = False) -> _F: ...
@overload
def register_func(name: _F, f: None = None, override: bool = False) -> _F: ...
def register_func(name: Any, f: Any = None, override: bool = False) -> Any:
    """Register `f` under `name`; without `f`, a decorator. A bare decorator uses the function's own
    name.

    Raises VMValueError if the name is taken and `override` is false, VMTypeError for a non-
    callable.
    """
    if not isinstance(name, str):
        if f is not None or not callable(name):
            raise VMTypeError(f"register_func: wanted a name, got {type(name).__name__}")
        own_name = getattr(name, "__name__", None)
        if not isinstance(own_name, str):
            raise VMTypeError("register_func: the callable has no __name__; give a name first")
        return _register(own_name, name, override)
    if f is None:
        return lambda function: _register(name, function, override)
    return _register(name, f, override)


register_global_func = register_func


def _register(name: str, function: _F, override: bool) -> _F:
    if not name or "\0" in name:
        raise VMValueError(f"register_func: wanted a name without NUL characters, got {name!r}")
    if not callable(function):
        raise VMTypeError(
            f"register_func({name!r}): wanted a callable, got {type(function).__name__}"
        )
    with _lock:
        if name in _functions and not override:
            raise VMValueError(
                f"register_func({name!r}): already registered; give override=True to replace it"
            )
        _functions[name] = function
    return function


def register_apart(name: str, function: Callable[..., Any]) -> str:
    """Register `function` under `name`, or under the first of ``name.1``, ``name.2``, ... where
    no other stands: what was built to call the others still does. Gives the name.
    """
    with _lock:
        names = itertools.chain((name,), (f"{name}.{k}" for k in itertools.count(1)))
        free = next(n for n in names if _functions.get(n, function) is function)
        _functions[free] = function
    return free


def get_global_func(name: str, allow_missing: bool = False) -> Callable[..., Any] | None:
    """The function registered as `name`.

    Raises VMValueError naming the nearest registered names if there is none; `allow_missing` gives
    None instead.
    """
    function = _functions.get(name)
    if function is not None or allow_missing:
        return function
    raise VMValueError(
        f"no function is registered as {name!r}{nearest_names(name)}; register one with "
        "register_func"
    )


def nearest_names(name: str, candidates: list[str] | None = None) -> str:
    """`did_you_mean` of `candidates`, by default the registered functions."""
    names = list_global_func_names() if candidates is None else candidates
    return did_you_mean(name, names) if isinstance(name, str) else ""


def list_global_func_names() -> list[str]:
    """The names of all registered functions, sorted."""
    with _lock:
        return sorted(_functions)


def remove_global_func(name: str) -> None:
    """Forget the function registered as `name`. Raises VMValueError if there is none."""
    with _lock:
        function = _functions.pop(name, None)
    if function is None:
        raise VMValueError(f"no function is registered as {name!r}{nearest_names(name)}")
