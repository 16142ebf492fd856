"""Pipelines by name, as `relax.build` and `relax.get_pipeline` take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import PassError
from ..ir import transform

_PIPELINES: dict[str, Any] = {}


def register_pipeline(name: str) -> Callable[[Any], Any]:
    """Decorator: a pipeline (a pass, or a function that returns one) for `get_pipeline`."""
    if name in _PIPELINES:
        raise PassError(f"a pipeline named {name!r} exists already")

    def register(pipeline: Any) -> Any:
        _PIPELINES[name] = pipeline
        return pipeline

    return register


def get_pipeline(name: str = "zero", **options: Any) -> transform.Pass:
    """The pipeline of that name; `options` go to the function that makes it. Raises PassError
    listing the names.
    """
    named = _PIPELINES.get(name)
    if named is None:
        raise PassError(f"no pipeline is named {name!r}; there are {', '.join(_PIPELINES)}")
    pipeline: transform.Pass = (
        named(**options) if options or not isinstance(named, transform.Pass) else named
    )
    return pipeline
