"""Patterns by name, so that passes find those of one code generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..transform import FusionPattern

_patterns: dict[str, FusionPattern] = {}


def register_patterns(patterns: Sequence[Any]) -> None:
    """Let `patterns` be found by name: `FusionPattern`s, or tuples of their fields.

    One that comes later is tried earlier. A name that is taken is taken over. Raises PassError for
    what is no pattern.
    """
    for rule in [FusionPattern.of(p) for p in patterns]:
        _patterns.pop(rule.name, None)
        _patterns[rule.name] = rule


def get_patterns_with_prefix(prefix: str) -> list[FusionPattern]:
    """The patterns whose names begin with `prefix`, those that are to be tried first in front."""
    return [rule for name, rule in reversed(_patterns.items()) if name.startswith(prefix)]


def get_pattern(name: str) -> FusionPattern | None:
    """The pattern of that name, or None."""
    return _patterns.get(name)
