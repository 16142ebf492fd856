"""Symbols in struct info: which there are, what is known about them, and how they are replaced or
forgotten.

Recursion is over nested tuples and signatures only, whose depth is limited (`MAX_NESTING`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..arith import Analyzer
from ..base import UNKNOWN, Span
from ..ir import INT64, GlobalVar, IntImm, Node, PrimExpr, walk
from ..ir import Var as TirVar
from ..ir.walk import transform
from .struct_info import (
    Expr,
    FuncStructInfo,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    parts,
)

# Of what a kernel was fused of.
_SHOWN_PARTS = 4


def where(span: Span) -> str:
    """The place and source line of `span`, to end an error message with; empty if unknown."""
    if span is UNKNOWN or not isinstance(span, Span):
        return ""
    pointer = span.pointer()
    return f"\n  at {span}" + (f"\n{pointer}" if pointer else "")


def source_place(span: Span) -> str:
    """The place and source line of `span` for a message of the program; empty if unknown."""
    if span is UNKNOWN or not isinstance(span, Span):
        return ""
    places = ""
    for part in (span.parts or (span,))[:_SHOWN_PARTS]:
        text = part.source_line()
        places += f"\n  at {part}" + (f": {text.strip()}" if text else "")
    return places


def made_at(value: Any) -> str:
    """A line for a message that says which source line made `value`; empty if unknown."""
    return source_place(getattr(value, "span", UNKNOWN)).replace("\n  at ", "\n    from ", 1)


def plain_text(expr: PrimExpr) -> str:
    """A scalar expression as text, constants without their dtype."""
    if isinstance(expr, IntImm):
        return str(expr.value)
    if expr.dtype is not INT64:
        return str(expr)
    return str(ShapeExpr((expr,))).removeprefix("R.shape([").removesuffix("])")


# -- scalar proofs --------------------------------------------------------------------------------


def prove_dims(a: PrimExpr, b: PrimExpr, wrap: bool = False) -> bool | None:
    """True if `a` and `b` are equal for all symbols, False if for none, else None.

    wrap  whether their arithmetic may overflow: that of scalars may, that of sizes does not
    """
    if a is b:
        return True
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value == b.value
    if a.dtype is not b.dtype:
        a, b = a.astype("int64"), b.astype("int64")
    analyzer = Analyzer(wrap)
    if analyzer.can_prove_equal(a, b):
        return True
    if analyzer.can_prove(a != b):
        return False
    return None


def dims_equal(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool | None:
    """True if two shapes are provably the same, False if they provably differ, None if neither is
    known.
    """
    if len(a) != len(b):
        return False
    answer: bool | None = True
    for x, y in zip(a, b):
        same = prove_dims(x, y)
        if same is False:
            return False
        if same is None:
            answer = None
    return answer


# -- symbols --------------------------------------------------------------------------------------


def _unique(items: Iterable[Any]) -> list[Any]:
    return list({id(item): item for item in items}.values())


def tir_vars_in_struct_info(sinfo: StructInfo) -> list[TirVar]:
    """Every symbol that occurs free in `sinfo`, in order of first appearance.

    The symbols that a signature (`FuncStructInfo`) binds in its own parameters do not count.
    """
    symbols: list[TirVar] = []
    for each in parts(sinfo):
        if isinstance(each, FuncStructInfo):
            symbols.extend(_free_in_signature(each))
        elif isinstance(each, (StructInfo, Expr, PrimExpr)):
            symbols.extend(n for n in walk(each) if isinstance(n, TirVar))
    return _unique(symbols)


def _free_in_signature(info: FuncStructInfo) -> list[TirVar]:
    bound = {id(v) for p in info.params or () for v in definable_tir_vars_in_struct_info(p)}
    mentioned = (*(info.params or ()), info.ret)
    return [v for each in mentioned for v in tir_vars_in_struct_info(each) if id(v) not in bound]


symbolic_vars = tir_vars_in_struct_info


def definable_tir_vars_in_struct_info(sinfo: StructInfo) -> list[TirVar]:
    """The symbols that a value of `sinfo` determines: those standing alone as a dimension or
    scalar value.
    """
    symbols: list[TirVar] = []
    for each in parts(sinfo):
        if isinstance(each, PrimStructInfo):
            if isinstance(each.value, TirVar):
                symbols.append(each.value)
        else:
            symbols.extend(d for d in known_dims(each) or () if isinstance(d, TirVar))
    return _unique(symbols)


def known_dims(info: StructInfo) -> tuple[PrimExpr, ...] | None:
    if isinstance(info, ShapeStructInfo):
        return info.values
    if isinstance(info, TensorStructInfo) and isinstance(info.shape, ShapeExpr):
        return info.shape.values
    return None


def tensor_dims(value: Expr | StructInfo) -> tuple[Any, ...] | None:
    """The dimensions of a tensor; None if they are not known, or `value` is no tensor."""
    info = value.struct_info if isinstance(value, Expr) else value
    return info.dims if isinstance(info, TensorStructInfo) else None


def substitute_struct_info(sinfo: StructInfo, mapping: Mapping[Any, Any]) -> StructInfo:
    """`sinfo` with symbols (and variables) replaced and the dimensions simplified.

    The symbols that a nested signature binds itself are left alone. Raises StructInfoError if a
    dimension becomes a negative constant.
    """
    by_id = {id(k): v for k, v in mapping.items()}
    if not by_id:
        return sinfo
    return transform(sinfo, simplify_dims, pre=lambda n: replaced_by(n, by_id))


def replaced_by(n: Node, by_id: Mapping[int, Any]) -> Node | None:
    """What `n` becomes if the nodes of these ids are replaced; None if that is decided below it.

    The `pre` of a `transform`. Names of module functions stay, and so do symbols inside the
    signature that binds them.
    """
    if id(n) in by_id:
        new: Node = by_id[id(n)]
        return new
    if isinstance(n, GlobalVar):
        return n
    if isinstance(n, FuncStructInfo) and n.params:
        own = {id(v) for p in n.params for v in definable_tir_vars_in_struct_info(p)}
        if own & by_id.keys():
            inner = {k: v for k, v in by_id.items() if k not in own}
            # The same rule for what stands inside; `pre` must not see `n` itself again.
            return n._map_children_(
                lambda c: transform(c, simplify_dims, pre=lambda m: replaced_by(m, inner))
            )
    return None


def simplify_dims(n: Node) -> Node | None:
    """A shape or scalar struct info with its expressions simplified; None if nothing is to be
    done.
    """
    if isinstance(n, (ShapeExpr, ShapeStructInfo)):
        values = n.values
        if values is None or all(isinstance(v, (IntImm, TirVar)) for v in values):
            return None
        analyzer = Analyzer(wrap=False)
        return n.replace(values=tuple(analyzer.simplify(v) for v in values))
    if isinstance(n, PrimStructInfo) and n.value is not None:
        if isinstance(n.value, (IntImm, TirVar)):
            return None
        return PrimStructInfo(value=Analyzer(wrap=True).simplify(n.value))
    return None


# -- erasure --------------------------------------------------------------------------------------

ShapeMap = Mapping[TirVar, PrimExpr] | Callable[[TirVar], PrimExpr | None] | None
VarMap = Mapping[Expr, Expr] | Callable[[Any], Expr | None] | None


def erase_to_well_defined(
    sinfo: StructInfo, shape_var_map: ShapeMap = None, var_map: VarMap = None
) -> StructInfo:
    """`sinfo` in terms of the symbols and variables that the maps know; what needs others is
    forgotten.

    shape_var_map  symbol -> the expression it is outside (a mapping, or a function giving None for
                   unknown ones)
    var_map        variable bound to a shape -> the expression that gives it outside
    """
    symbol_of = _lookup(shape_var_map)
    var_of = _lookup(var_map)
    return erase_with(sinfo, symbol_of, var_of)


def _lookup(values: Any) -> Callable[[Any], Any]:
    if values is None:
        return lambda key: None
    if callable(values):
        return values
    by_id = {id(k): v for k, v in values.items()}
    return lambda key: by_id.get(id(key))


def erase_with(
    info: StructInfo, symbol_of: Callable[[Any], Any], var_of: Callable[[Any], Any]
) -> StructInfo:
    if isinstance(info, PrimStructInfo):
        if info.value is None:
            return info
        value = _visible((info.value,), symbol_of, wrap=True)
        return PrimStructInfo(info.dtype) if value is None else PrimStructInfo(value=value[0])
    if isinstance(info, ShapeStructInfo):
        if info.values is None:
            return info
        values = _visible(info.values, symbol_of)
        return ShapeStructInfo(values, info.ndim)
    if isinstance(info, TensorStructInfo):
        if info.shape is None:
            return info
        shape: Expr | None
        if isinstance(info.shape, ShapeExpr):
            dims = _visible(info.shape.values, symbol_of)
            shape = None if dims is None else ShapeExpr(dims)
        else:
            shape = var_of(info.shape)
            if shape is None and info.dims is not None:
                dims = _visible(info.dims, symbol_of)
                shape = None if dims is None else ShapeExpr(dims)
        return TensorStructInfo(shape, info.dtype, info.vdevice, info.ndim)
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo(tuple(erase_with(f, symbol_of, var_of) for f in info.fields))
    if isinstance(info, FuncStructInfo):
        own = {id(v) for p in info.params or () for v in definable_tir_vars_in_struct_info(p)}

        def inner(v: TirVar) -> Any:
            return v if id(v) in own else symbol_of(v)

        params = info.params and tuple(erase_with(p, inner, var_of) for p in info.params)
        return info.replace(params=params, ret=erase_with(info.ret, inner, var_of))
    return info


def _visible(
    exprs: tuple[PrimExpr, ...], symbol_of: Callable[[Any], Any], wrap: bool = False
) -> tuple[PrimExpr, ...] | None:
    """The expressions with every symbol translated, or None if one of them is unknown."""
    mapping: dict[int, Any] = {}
    changed = False
    for expr in exprs:
        if isinstance(expr, IntImm):
            continue
        for n in (expr,) if isinstance(expr, TirVar) else walk(expr):
            if isinstance(n, TirVar) and id(n) not in mapping:
                value = symbol_of(n)
                if value is None:
                    return None
                mapping[id(n)] = value
                changed = changed or value is not n
    if not changed:
        return exprs
    analyzer = Analyzer(wrap)

    def translate(expr: PrimExpr) -> PrimExpr:
        translated = transform(expr, lambda n: None, pre=lambda n: mapping.get(id(n)))
        return (
            translated
            if isinstance(translated, (IntImm, TirVar))
            else analyzer.simplify(translated)
        )

    return tuple(translate(e) for e in exprs)


def erase_unbound(
    info: StructInfo,
    params: Iterable[StructInfo],
    is_known: Callable[[TirVar], bool] = lambda v: False,
) -> StructInfo:
    """`info` without the symbols and variables that values of `params` do not determine: what a
    caller can rely on.

    is_known  whether callers know another symbol, which the function captures
    """
    bound = {id(v) for p in params for v in definable_tir_vars_in_struct_info(p)}
    return erase_with(info, lambda v: v if id(v) in bound or is_known(v) else None, lambda v: None)
