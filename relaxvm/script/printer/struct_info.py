"""Struct info as script text: ``R.Tensor((n, 4), dtype="float32")`` and its kin.

In a signature a dimension over symbols not known yet is written as a string, which makes the parser
create them: ``R.Tensor(("n", "n * 2"), dtype="float32")``.
"""

from __future__ import annotations

from typing import Any

from ...ir import IntImm, PrimExpr, VDevice, walk
from ...ir import Var as TirVar
from ...relax import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    SequenceStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .core import ARG, DIM, Piece, Printer, comma, parens, prints
from .literal import quote

# First argument of struct info handlers: whether unknown symbols are written as strings.
SIGNATURE = 1


def _dim(p: Printer, e: PrimExpr, signature: int, how: int = DIM) -> list[Piece]:
    if not signature or isinstance(e, IntImm):
        return [(e, 0, how)]
    unknown = [v for v in walk(e) if isinstance(v, TirVar) and not p.is_declared(v)]
    if not unknown:
        return [(e, 0, how)]
    for v in unknown:
        if p.names.get(v) is None:
            p.names.define(v, v.name)
    return [quote(p.text([(e, 0, how)]))]


def dims(p: Printer, values: Any, signature: int = 0) -> list[list[Piece]]:
    """Each dimension as pieces."""
    return [_dim(p, e, signature) for e in values]


@prints(ObjectStructInfo)
def _object(p: Printer, n: ObjectStructInfo, signature: int, _: int) -> list[Piece]:
    return [f"{p.R}.Object"]


@prints(PrimStructInfo)
def _prim(p: Printer, n: PrimStructInfo, signature: int, _: int) -> list[Piece]:
    if n.value is None:
        return [f"{p.R}.Prim({quote(n.dtype)})"]
    return [f"{p.R}.Prim(value=", *_dim(p, n.value, signature, ARG), ")"]


@prints(ShapeStructInfo)
def _shape(p: Printer, n: ShapeStructInfo, signature: int, _: int) -> list[Piece]:
    if n.values is None:
        return [f"{p.R}.Shape(ndim={n.ndim})" if n.ndim != -1 else f"{p.R}.Shape"]
    return [f"{p.R}.Shape([", *comma(dims(p, n.values, signature)), "])"]


@prints(TensorStructInfo)
def _tensor(p: Printer, n: TensorStructInfo, signature: int, _: int) -> list[Piece]:
    groups: list[list[Piece]] = []
    if n.shape is not None:
        if isinstance(n.shape, ShapeExpr):
            groups.append(parens(dims(p, n.shape.values, signature)))
        else:
            groups.append([(n.shape, 0, 0)])
    if n.dtype != "void":
        groups.append([f"dtype={quote(n.dtype)}"])
    if n.ndim != -1 and n.dims is None:
        groups.append([f"ndim={n.ndim}"])
    if n.vdevice is not None:
        groups.append(["vdevice=", *_vdevice(p, n.vdevice)])
    return [f"{p.R}.Tensor(", *comma(groups), ")"] if groups else [f"{p.R}.Tensor"]


def _vdevice(p: Printer, n: VDevice) -> list[Piece]:
    """``"llvm:0"`` counts the module's devices of that kind; others are spelled out."""
    same = [v for v in p.vdevices if isinstance(v, VDevice) and v.kind == n.kind]
    if n in same and n.kind and n.kind != "vdevice" and ":" not in n.kind:
        return [quote(f"{n.kind}:{same.index(n)}")]
    return [(n, 0, 0)]


@prints(TupleStructInfo)
def _tuple(p: Printer, n: TupleStructInfo, signature: int, _: int) -> list[Piece]:
    if not n.fields:
        return [f"{p.R}.Tuple"]
    return [f"{p.R}.Tuple(", *comma([(f, signature, 0)] for f in n.fields), ")"]


@prints(SequenceStructInfo)
def _sequence(p: Printer, n: SequenceStructInfo, signature: int, _: int) -> list[Piece]:
    return [f"{p.R}.Sequence(", (n.element, signature, 0), ")"]


@prints(FuncStructInfo)
def _func(p: Printer, n: FuncStructInfo, signature: int, _: int) -> list[Piece]:
    if n.derive_func is not None:
        name = quote(n.derive_func.name)
        return [f"{p.R}.Callable(derive_func={name}, purity={n.purity})"]
    if n.params is None:
        return [f"{p.R}.Callable(None, ", (n.ret, signature, 0), f", {n.purity})"]
    params = parens([[(i, signature, 0)] for i in n.params])
    return [f"{p.R}.Callable(", *params, ", ", (n.ret, signature, 0), f", {n.purity})"]
