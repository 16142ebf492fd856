"""Functions that are equal, found without hashing all of them."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from ..ir import BaseFunc, GlobalVar, Op, structural_digest
from ..tir import PrimFunc
from .expr import Function, SeqExpr

T = TypeVar("T")


class Alike(Generic[T]):
    """Values by function, structurally equal ones the same.

    To hash a function takes as long as to make it, and most are like no other: those are hashed
    that look as one does that is asked for.
    """

    def __init__(self) -> None:
        self._by_look: dict[Any, list[tuple[BaseFunc, T]]] = {}
        self._by_digest: dict[bytes, list[T]] = {}

    def put(self, fn: BaseFunc, value: T) -> None:
        """Add a value of `fn`."""
        self._by_look.setdefault(_look(fn), []).append((fn, value))

    def of(self, fn: BaseFunc) -> list[T]:
        """The values of functions that are equal to `fn`, in order."""
        alike = self._by_look.get(_look(fn))
        if alike is None:
            return []
        for each, value in alike:
            self._by_digest.setdefault(structural_digest(each), []).append(value)
        alike.clear()
        return self._by_digest.get(structural_digest(fn), [])


def _look(fn: BaseFunc) -> Any:
    """What equal functions have in common, found in no time. Sizes that are symbols are each
    function's own.
    """
    if isinstance(fn, PrimFunc):
        return PrimFunc, len(fn.params), tuple((b.dtype, _sizes(b.shape)) for b in fn.buffers)
    if not isinstance(fn, Function):
        return type(fn)
    shapes = (getattr(p.struct_info, "shape", None) for p in fn.params)
    blocks = fn.body.blocks if isinstance(fn.body, SeqExpr) else ()
    called = (getattr(b.value, "op", None) for block in blocks for b in block.bindings)
    names = (op.name if isinstance(op, Op) else _name(op) for op in called)
    return Function, tuple(_sizes(getattr(s, "values", ())) for s in shapes), tuple(names)


def _name(op: Any) -> str | None:
    return op.name_hint if isinstance(op, GlobalVar) else None


def _sizes(shape: Any) -> tuple[int | None, ...]:
    return tuple(getattr(d, "value", None) for d in shape)
