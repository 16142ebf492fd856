"""Buffers, regions and axes of the loop language."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir import IntImm, PrimExpr, Range, Var, const, is_const, walk
from ...tir import Buffer, BufferLoad, BufferRegion, IterVar, MatchBufferRegion
from .core import FREE, NL, Piece, Printer, comma, parens, prints
from .literal import quote
from .scalar import ATOM, range_end, range_ends, var_annotation

_NO_OFFSET = const(0, "int64")


def buffer_name(p: Printer, buffer: Buffer) -> str:
    """The name of a buffer where it is used; one that is declared nowhere gets a name now."""
    return p.names.get(buffer) or define_buffer(p, buffer, outermost=True)


def define_buffer(p: Printer, buffer: Buffer, outermost: bool = False) -> str:
    """A name for a buffer; its data variable is called ``name.data`` unless it has a name."""
    name = p.names.define(buffer, buffer.name, outermost)
    p.names.alias(buffer.data, f"{name}.data")
    return name


def variables_of(exprs: Iterable[PrimExpr]) -> list[Var]:
    """The variables in `exprs`, in order."""
    variables: dict[Var, None] = {}
    for e in exprs:
        if not isinstance(e, IntImm):
            variables.update((n, None) for n in walk(e) if isinstance(n, Var))
    return list(variables)


def symbol_declaration(p: Printer, v: Var) -> str:
    """The right side of the line that declares a variable, such as ``T.int64()``."""
    text = var_annotation(p, v)
    return text if text.endswith(")") else f"{text}()"


def declare_symbols(p: Printer, exprs: Iterable[PrimExpr]) -> list[Piece]:
    """A line ``n = T.int64()`` for each variable that has no name yet."""
    out: list[Piece] = []
    for v in variables_of(exprs):
        if p.names.get(v) is None:
            name = p.names.define(v, v.name)
            out += [NL, f"{name} = {symbol_declaration(p, v)}"]
    return out


def definition_exprs(buffer: Buffer) -> tuple[PrimExpr, ...]:
    """The expressions that say how a buffer lies in memory."""
    return (*buffer.shape, *buffer.strides, buffer.elem_offset)


def is_plain_buffer(buffer: Buffer) -> bool:
    """Whether shape and dtype say everything about a buffer."""
    return (
        not buffer.strides
        and buffer.elem_offset is _NO_OFFSET
        and buffer.scope() == "global"
        and buffer.data_alignment == 64
        and buffer.offset_factor == 0
        and buffer.buffer_type == "default"
        and not buffer.axis_separators
    )


def buffer_arguments(p: Printer, buffer: Buffer, data: str = "") -> list[Piece]:
    """``(shape), "dtype"`` and, where they are not the usual ones, the other properties."""
    out: list[Piece] = parens([[(e, 0, FREE)] for e in buffer.shape])
    if buffer.dtype != p.options.buffer_dtype:
        out.append(f", {quote(buffer.dtype)}")
    if data:
        out.append(f", data={data}")
    if buffer.strides:
        out += [", strides=", *parens([[(e, 0, FREE)] for e in buffer.strides])]
    if buffer.elem_offset is not _NO_OFFSET or buffer.offset_factor:
        out += [", elem_offset=", (buffer.elem_offset, 0, FREE)]
    if buffer.scope() != "global":
        out.append(f", scope={quote(buffer.scope())}")
    if buffer.data_alignment != 64:
        out.append(f", align={buffer.data_alignment}")
    if buffer.offset_factor != 0:
        out.append(f", offset_factor={buffer.offset_factor}")
    if buffer.buffer_type != "default":
        out.append(f", buffer_type={quote(buffer.buffer_type)}")
    if buffer.axis_separators:
        out.append(f", axis_separators={list(buffer.axis_separators)}")
    return out


def after_pointer(p: Printer, data: Var) -> list[Piece]:
    """Declarations of the buffers behind `data` that no statement declares."""
    out: list[Piece] = []
    for buffer in p.undeclared.pop(id(data), ()):
        out += declare_buffer(p, buffer)
    return out


def declare_buffer(p: Printer, buffer: Buffer) -> list[Piece]:
    """A line ``B = T.Buffer((16,), "float32", data=A.data)``: a name, not a statement."""
    data = p.names.get(buffer.data) or ""
    lines = declare_symbols(p, definition_exprs(buffer))
    arguments = buffer_arguments(p, buffer, data)
    return [*lines, NL, f"{define_buffer(p, buffer)} = {p.T}.Buffer(", *arguments, ")"]


@prints(Buffer)
def _buffer(p: Printer, n: Buffer, need: int, how: int) -> list[Piece]:
    return [buffer_name(p, n)]


@prints(BufferLoad)
def _load(p: Printer, n: BufferLoad, need: int, how: int) -> list[Piece]:
    return access(p, n.buffer, n.indices)


def access(p: Printer, buffer: Any, indices: tuple[PrimExpr, ...]) -> list[Piece]:
    """``A[i, j]``"""
    inner = comma([(i, 0, FREE)] for i in indices) if indices else ["()"]
    return [(buffer, ATOM, FREE), "[", *inner, "]"]


@prints(BufferRegion)
def _region(p: Printer, n: BufferRegion, need: int, how: int) -> list[Piece]:
    groups: list[list[Piece]] = []
    for r in n.region:
        if isinstance(r.extent, IntImm) and r.extent is const(1, r.min.dtype):
            groups.append([(r.min, 0, FREE)])
        else:
            groups.append([(r.min, 0, FREE), ":", *range_end(r)])
    return [(n.buffer, ATOM, FREE), "[", *(comma(groups) or ["()"]), "]"]


@prints(MatchBufferRegion)
def _match_buffer(p: Printer, n: MatchBufferRegion, need: int, how: int) -> list[Piece]:
    return [
        *declare_symbols(p, definition_exprs(n.buffer)),
        NL,
        f"{define_buffer(p, n.buffer)} = {p.T}.match_buffer(",
        (n.source, 0, FREE),
        ", ",
        *buffer_arguments(p, n.buffer),
        ")",
        lambda: after_pointer(p, n.buffer.data),
    ]


_AXES = {"spatial": "spatial", "reduce": "reduce", "ordered": "scan", "opaque": "opaque"}
_KIND_NAMES = {
    "spatial": "DataPar",
    "thread": "ThreadIndex",
    "reduce": "CommReduce",
    "ordered": "Ordered",
    "opaque": "Opaque",
}


@prints(IterVar)
def _iter_var(p: Printer, n: IterVar, need: int, how: int) -> list[Piece]:
    # As it stands in an attribute; axes of blocks are written by `axis`.
    dom: list[Piece] = ["None"] if n.dom is None else [(n.dom, 0, FREE)]
    tail = f", {quote(_KIND_NAMES[n.iter_type])}, {quote(n.thread_tag)})"
    return [f"{p.T}.iter_var(", (n.var, 0, FREE), ", ", *dom, tail]


def axis_domain(dom: Range | None) -> list[Piece]:
    """The domain of an axis: its extent, or (begin, end) if it does not begin at 0."""
    if dom is None:
        return ["None"]
    if is_const(dom.min, 0):
        return [(dom.extent, 0, FREE)]
    return ["(", *range_ends(dom), ")"]


def axis(p: Printer, n: IterVar, value: PrimExpr | None) -> list[Piece]:
    """``vi = T.axis.spatial(128, i)``"""
    kind = _AXES.get(n.iter_type, n.iter_type)
    out: list[Piece] = [NL, f"{p.names.define(n.var, n.var.name)} = {p.T}.axis.{kind}("]
    out += axis_domain(n.dom)
    if value is not None:
        out += [", ", (value, 0, FREE)]
    return [*out, ")"]
