"""What users write: placeholders, axes, formulas."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..base import TIRError
from ..base import dtype as as_dtype
from ..ir import IntImm, Map, PrimExpr, Range, SizeVar, Var, as_expr, cast
from ..ir import const as _const
from ..tir import IterVar
from .reducer import Reduce
from .tensor import ComputeOp, PlaceholderOp, Tensor

_tag: ContextVar[str] = ContextVar("relaxvm_te_tag", default="")


def var(name: str = "tindex", dtype: str = "int32") -> Var:
    """A new variable, such as a symbolic dimension."""
    return Var(name, dtype)


def size_var(name: str = "size", dtype: str = "int32") -> SizeVar:
    """A new variable that is never negative."""
    return SizeVar(name, as_dtype(dtype))


def const(value: Any, dtype: str | None = None) -> PrimExpr:
    """A constant."""
    return _const(value, dtype)


def current_tag() -> str:
    """The tag that `tag_scope` gives."""
    return _tag.get()


def as_shape(shape: Any, what: str) -> tuple[PrimExpr, ...]:
    """The dimensions with one integer dtype: int64 if any is int64, else int32."""
    if not isinstance(shape, (tuple, list)):
        values = getattr(shape, "values", None)
        shape = values if isinstance(values, tuple) else (shape,)
    dims = [as_expr(d) for d in shape]
    for d in dims:
        if not d.dtype.is_int or d.dtype.lanes != 1:
            raise TIRError(f"{what}: a dimension is an integer, got {d.dtype}")
        if isinstance(d, IntImm) and d.value < 0:
            raise TIRError(f"{what}: a dimension is not negative, got {d.value}")
    wide = "int64" if any(d.dtype.bits == 64 for d in dims) else "int32"
    return tuple(cast(wide, d) for d in dims)


def placeholder(shape: Any, dtype: str = "float32", name: str = "placeholder") -> Tensor:
    """A tensor given from outside.

    shape  dimensions: ints or integer expressions
    """
    return PlaceholderOp(name, as_shape(shape, f"placeholder {name}"), as_dtype(dtype)).output(0)


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "", span: Any = None) -> IterVar:
    """An axis to reduce over. dom: (begin, end), or a Range."""
    if not isinstance(dom, Range):
        if not isinstance(dom, (tuple, list)) or len(dom) != 2:
            raise TIRError(f"reduce_axis {name}: wanted (begin, end) or a Range, got {dom!r}")
        begin, end = as_expr(dom[0]), as_expr(dom[1])
        dom = Range.from_min_extent(begin, end - begin)
    return IterVar(dom, Var(name, dom.extent.dtype), "reduce", thread_tag)


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> IterVar:
    """An axis bound to a hardware thread; accepted for TVM's sake (the CPU has none to bind)."""
    if isinstance(dom, str):
        dom, tag = None, dom
    if dom is not None and not isinstance(dom, Range):
        dom = Range(*dom) if isinstance(dom, (tuple, list)) else Range.from_min_extent(0, dom)
    return IterVar(dom, Var(name or tag, "int32"), "thread", tag)


@contextmanager
def tag_scope(tag: str) -> Iterator[None]:
    """Give the computes made inside the `with` a tag."""
    if _tag.get():
        raise TIRError("tag scopes do not nest")
    token = _tag.set(tag)
    try:
        yield
    finally:
        _tag.reset(token)


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Any = None,
) -> Any:
    """The tensor whose element at i, j, ... is ``fcompute(i, j, ...)``.

    shape     dimensions of the result
    fcompute  gets one index per axis; returns an expression, a reduction (`te.sum(...)`), or a
              tuple of either

    Returns a Tensor, or a list of them if `fcompute` returned several values.
    """
    dims = as_shape(shape, f"compute {name}")
    names = _axis_names(fcompute, len(dims), name, varargs_names)
    axes = tuple(
        IterVar(Range.from_min_extent(_const(0, d.dtype), d), Var(n, d.dtype), "spatial")
        for n, d in zip(names, dims)
    )
    elements = fcompute(*(axis.var for axis in axes))
    several = isinstance(elements, (tuple, list))
    body = tuple(as_expr(e) for e in (elements if several else (elements,)))
    reduces = [e for e in body if isinstance(e, Reduce)]
    reduce_axes: tuple[IterVar, ...] = ()
    if reduces:
        first = reduces[0]
        same = all(
            isinstance(e, Reduce) and e.combiner is first.combiner and e.value_index == i
            for i, e in enumerate(body)
        )
        if len(reduces) != len(body) or not same:
            raise TIRError(
                f"compute {name}: several results may be the results of one reducer, or none a "
                f"reduction"
            )
        reduce_axes = first.axis
    for e in body:
        _no_inner_reduction(e, name)
    op = ComputeOp(name, tag or _tag.get(), Map(attrs), axes, reduce_axes, body)
    outputs = [op.output(i) for i in range(len(body))]
    return outputs if several else outputs[0]


def _axis_names(fcompute: Any, ndim: int, name: str, varargs_names: Any) -> list[str]:
    if not callable(fcompute):
        raise TIRError(f"compute {name}: fcompute is a function of the indices, got {fcompute!r}")
    names: list[str] = []
    variadic = False
    for p in inspect.signature(fcompute).parameters.values():
        if p.kind is inspect.Parameter.VAR_POSITIONAL:
            variadic = True
        elif p.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            # Further parameters with defaults hold values captured by a lambda in a loop.
            if p.default is inspect.Parameter.empty or len(names) < ndim:
                names.append(p.name)
    if variadic:
        rest = list(varargs_names or ())
        names += rest or [f"i{k}" for k in range(len(names), ndim)]
    names = names[:ndim] if variadic else names
    if len(names) != ndim:
        raise TIRError(f"compute {name}: the shape has {ndim} axes, fcompute takes {len(names)}")
    return names


def _no_inner_reduction(e: PrimExpr, name: str) -> None:
    stack = [c for c in e._children_ if isinstance(c, PrimExpr)]
    seen: set[int] = set()
    while stack:
        n = stack.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        if isinstance(n, Reduce):
            raise TIRError(
                f"compute {name}: a reduction must be the whole formula; give it a compute of its "
                f"own"
            )
        stack.extend(c for c in n._children_ if isinstance(c, PrimExpr))
