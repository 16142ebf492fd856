"""From the compiler's words to the runtime's: scalar expressions as dimension programs, struct
info as plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base import CodegenError, DataType, NameSupply
from ..ir import (
    Call,
    Cast,
    IntImm,
    Let,
    PrimExpr,
    Var,
    post_order,
    substitute,
)
from ..runtime import (
    FuncInfo,
    Info,
    ObjectInfo,
    PrimInfo,
    SequenceInfo,
    ShapeInfo,
    TensorInfo,
    TupleInfo,
)
from ..runtime.dims import MAX_LENGTH, Dim
from ..tir import dim_operator
from .struct_info import (
    FuncStructInfo,
    PrimStructInfo,
    SequenceStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)

Program = tuple[Any, ...]

_MAY_LEAVE_RANGE = {"+", "-", "*", "shl", "abs", "//", "truncdiv"}


def bare_symbol(expr: PrimExpr) -> Var | None:
    """The symbol that a dimension is, looking through a widening to int64; None for anything
    else.
    """
    if isinstance(expr, Cast) and expr.dtype == "int64" and expr.value.dtype.is_int:
        expr = expr.value
    return expr if isinstance(expr, Var) else None


def expand_lets(expr: PrimExpr) -> PrimExpr:
    """`expr` without `Let`s: each variable is replaced by its (shared) value."""
    while True:
        lets = [n for n in post_order(expr) if isinstance(n, Let)]
        if not lets:
            return expr
        innermost = lets[0]
        body = substitute(innermost.body, {innermost.var: innermost.value})
        expr = substitute(expr, {innermost: body})


def combine(expr: PrimExpr, operands: Sequence[Program]) -> Program:
    """The program of `expr` from those of its operands. Raises CodegenError where the machine has
    no operation.

    Integers narrower than 64 bits wrap, as everywhere; those of 64 bits that overflow are an error
    at run time.
    """
    if isinstance(expr, IntImm):
        return (int(expr.value),)
    flat = tuple(item for operand in operands for item in operand)
    kind = type(expr)
    if not (expr.dtype.is_int or expr.dtype.is_bool) or expr.dtype.lanes != 1:
        raise _no_operation(expr)
    if kind is Cast:
        return _cast(expr, flat)
    name = getattr(expr.op, "name", "") if isinstance(expr, Call) else ""
    if name == "tir.likely":
        return flat
    if name == "tir.bitwise_not":
        return _wrapped((*flat, -1, "bitxor"), expr.dtype)
    operator = dim_operator(expr)
    if operator is None:
        raise _no_operation(expr)
    program = (*flat, operator)
    return _wrapped(program, expr.dtype) if operator in _MAY_LEAVE_RANGE else program


def _cast(expr: Any, flat: Program) -> Program:
    source, to = expr.value.dtype, expr.dtype
    if not (source.is_int or source.is_bool):
        raise _no_operation(expr)
    if to.is_bool:
        return flat if source.is_bool else (*flat, 0, "!=")
    fits = to.min_value <= source.min_value and source.max_value <= to.max_value
    return flat if fits else _wrapped(flat, to)


def _wrapped(program: Program, to: DataType) -> Program:
    if to.bits == 64 or not to.is_int:
        if to.kind == "uint":
            raise CodegenError("a computed value of dtype uint64 cannot be wrapped; use int64")
        return program
    mask = (1 << to.bits) - 1
    if to.kind == "uint":
        return (*program, mask, "bitand")
    half = 1 << (to.bits - 1)
    return (*program, half, "+", mask, "bitand", half, "-")


def _no_operation(expr: PrimExpr) -> CodegenError:
    name = getattr(getattr(expr, "op", None), "name", type(expr).__name__)
    return CodegenError(
        f"{name} of dtype {expr.dtype} cannot be computed by the virtual machine, which knows "
        f"integer arithmetic, comparisons and selection; compute it in a loop function"
    )


def to_dim(expr: PrimExpr, name_of: Callable[[Var], str]) -> Dim | None:
    """`expr` as a dimension over named symbols; None if it is too long to be worth describing."""
    if isinstance(expr, IntImm):
        return int(expr.value)
    programs: dict[int, Program] = {}
    expr = expand_lets(expr)
    for n in post_order(expr):
        if isinstance(n, Var):
            programs[id(n)] = (f"${name_of(n)}",)
        elif isinstance(n, PrimExpr):
            program = combine(n, [programs[id(c)] for c in n._children_ if id(c) in programs])
            if len(program) > MAX_LENGTH // 16:
                return None
            programs[id(n)] = program
    return programs[id(expr)]


class Names(Mapping[Var, str]):
    """Names for symbols: their own, numbered where two symbols share one."""

    def __init__(self) -> None:
        self._names: dict[Var, str] = {}
        self._supply = NameSupply(joint="_")

    def __call__(self, v: Var) -> str:
        return self[v]

    def __getitem__(self, v: Var) -> str:
        name = self._names.get(v)
        if name is None:
            name = self._names[v] = self._supply.fresh(v.name[:200] or "_")
        return name

    def __iter__(self) -> Any:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


_MAX_DEPTH = 12
_MAX_AXES = 32


def runtime_info(info: StructInfo, name_of: Callable[[Var], str], depth: int = 0) -> Info:
    """`info` as the executable describes it. What cannot be said there is left open."""
    if depth > _MAX_DEPTH:
        return ObjectInfo()
    if isinstance(info, TensorStructInfo):
        dtype = None if info.dtype.bits == 0 else info.dtype
        dims = _dims(info.dims, name_of)
        return TensorInfo(dtype, min(info.ndim, _MAX_AXES), dims)
    if isinstance(info, ShapeStructInfo):
        dims = _dims(info.values, name_of)
        return ShapeInfo(info.ndim if info.ndim <= _MAX_AXES else -1, dims)
    if isinstance(info, PrimStructInfo):
        value = None if info.value is None else _dim_or_none(info.value, name_of)
        return PrimInfo(info.dtype, value)
    if isinstance(info, TupleStructInfo):
        return TupleInfo(tuple(runtime_info(f, name_of, depth + 1) for f in info.fields))
    if isinstance(info, SequenceStructInfo):
        return SequenceInfo(runtime_info(info.element, name_of, depth + 1))
    if isinstance(info, FuncStructInfo):
        if info.params is None:
            return FuncInfo(None, None)
        params = tuple(runtime_info(p, name_of, depth + 1) for p in info.params)
        return FuncInfo(params, runtime_info(info.ret, name_of, depth + 1))
    return ObjectInfo()


def _dims(dims: Any, name_of: Callable[[Var], str]) -> tuple[Dim, ...] | None:
    if dims is None or len(dims) > _MAX_AXES:
        return None
    each = [_dim_or_none(d, name_of) for d in dims]
    known = tuple(d for d in each if d is not None)
    return known if len(known) == len(each) else None


def _dim_or_none(expr: PrimExpr, name_of: Callable[[Var], str]) -> Dim | None:
    if not (expr.dtype.is_int or expr.dtype.is_bool):
        return (f"${name_of(expr)}",) if isinstance(expr, Var) else None
    try:
        return to_dim(expr, name_of)
    except CodegenError:
        return None
