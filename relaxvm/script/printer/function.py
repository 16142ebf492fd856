"""Bindings, blocks and functions of the graph language. Every line begins with `NL`."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...ir import GlobalVar, Node, walk
from ...ir import Var as TirVar
from ...relax import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    FuncStructInfo,
    Function,
    If,
    MatchCast,
    SeqExpr,
    StructInfo,
    Var,
    VarBinding,
    erase_unbound,
    is_leaf,
)
from ...relax.analysis import is_base_of
from ...tir import IndexMap
from .buffer import symbol_declaration
from .core import NL, Piece, Printer, comma, prints
from .graph import has_declared_result
from .literal import attr_map
from .names import identifier
from .struct_info import SIGNATURE


def function_lines(
    p: Printer, n: Function, name: str, nested: bool = False, aliases: bool = False
) -> list[Piece]:
    """The decorated definition of a graph function called `name`.

    nested   it is a value inside another function
    aliases  it stands in a module whose functions it refers to
    """
    names = p.names
    names.push()
    former = set(p.declared)
    options = []
    if not nested and "global_symbol" not in n.attrs:
        options.append("private=True")
        if _is_coarser(n):
            options.append("keep_ret=True")
    if not n.is_pure:
        options.append("pure=False")
    decorator = f"{p.R}.function" + (f"({', '.join(options)})" if options else "")
    params: list[list[Piece]] = []
    for v in n.params:
        text = names.define(v, v.name_hint)
        params.append([f"{text}: ", (v.struct_info, SIGNATURE, 0)])
    attrs = n.attrs
    if not nested and str(attrs.get("global_symbol")) == name:
        attrs = attrs.without("global_symbol")
    lines: list[Piece] = [NL, f"{p.R}.func_attr(", *attr_map(p, attrs), ")"] if attrs else []

    def body() -> list[Piece]:
        # Called when the signature is written, so that its symbols keep their names.
        out = _symbols(p, n)
        if aliases and uses_module(n):
            out += [NL, f"{p.options.module_alias} = {identifier(p.options.name)}"]
        return [*out, *lines, *result_lines(p, n.body, "return ")]

    def close() -> None:
        p.declared = former
        names.pop()

    signature = [NL, f"@{decorator}", NL, f"def {identifier(name)}(", *comma(params), ") -> "]
    return [*signature, (n.ret_struct_info, SIGNATURE, 0), ":", *p.suite([body]), close]


def _is_coarser(n: Function) -> bool:
    """Whether a function says less of its result than callers could know."""
    known = erase_unbound(n.body.struct_info, [v.struct_info for v in n.params])
    return n.ret_struct_info is not known and is_base_of(n.ret_struct_info, known)


def _symbols(p: Printer, n: Function) -> list[Piece]:
    out: list[Piece] = []
    for v in _symbols_in(n.body):
        if not p.is_declared(v):
            name = p.names.get(v) or p.names.define(v, v.name)
            p.declared.add(id(v))
            out += [NL, f"{name} = {symbol_declaration(p, v)}"]
    return out


def _symbols_in(root: Node) -> list[TirVar]:
    """The scalar variables under `root`, in order; signatures of global functions aside, and maps
    of indices, which hold only what they bind.
    """
    symbols = (n for n in walk(root, without=(GlobalVar, IndexMap)) if isinstance(n, TirVar))
    return list(dict.fromkeys(symbols))


def uses_module(root: Node) -> bool:
    """Whether a function refers to a function of the module."""
    return any(isinstance(n, GlobalVar) for n in walk(root))


def result_lines(p: Printer, value: Any, prefix: str) -> list[Piece]:
    """The bindings of `value`, then a line with `prefix` and its result."""
    out: list[Piece] = []
    while isinstance(value, SeqExpr):
        out += [(b, 0, 0) for b in value.blocks]
        value = value.body
    if isinstance(value, If):
        return [*out, *_if_lines(p, value, lambda body: result_lines(p, body, prefix))]
    if isinstance(value, Function):
        return [*out, lambda: _nested_result(p, value, prefix)]
    return [*out, NL, prefix, (value, 0, 0)]


def _nested_result(p: Printer, value: Function, prefix: str) -> list[Piece]:
    name = p.names.define(value, "inner")
    return [*function_lines(p, value, name, nested=True), NL, f"{prefix}{name}"]


@prints(BindingBlock)
def _block(p: Printer, n: BindingBlock, _: int, __: int) -> list[Piece]:
    return [(b, 0, 0) for b in n.bindings]


@prints(DataflowBlock)
def _dataflow(p: Printer, n: DataflowBlock, _: int, __: int) -> list[Piece]:
    outputs = [b.var for b in n.bindings if not isinstance(b.var, DataflowVar)]
    # No scope of names: the outputs live on.
    body = [*((b, 0, 0) for b in n.bindings), NL, f"{p.R}.output("]
    body += [*comma([(v, 0, 0)] for v in outputs), ")"]
    return [NL, f"with {p.R}.dataflow():", *_indented(p, body)]


def _indented(p: Printer, pieces: list[Piece]) -> list[Piece]:
    first, *_, last = p.suite([])
    return [first, *pieces, last]


@prints(VarBinding)
def _binding(p: Printer, n: VarBinding, _: int, __: int) -> list[Piece]:
    return _bind(p, n, _define(p, n.var))


def _define(p: Printer, v: Var) -> str:
    return p.names.define(v, v.name_hint)


def _bind(p: Printer, n: Binding, name: str) -> list[Piece]:
    """The line (or lines) that give `name` its value."""
    value: Any = n.value
    annotation: list[Piece] = [": ", (n.var.struct_info, 0, 0)]
    if isinstance(n, MatchCast):
        cast = [f" = {p.R}.match_cast(", (value, 0, 0), ", ", (n.struct_info, 0, 0), ")"]
        return [NL, name, *annotation, *cast]
    if isinstance(value, Function):
        return function_lines(p, value, name, nested=True)
    if isinstance(value, If):
        return _if_lines(p, value, lambda body: _branch(p, body, name, n.var))
    if isinstance(value, SeqExpr):
        return _branch(p, value, name, n.var)
    inferred = getattr(value, "struct_info", None) is n.var.struct_info
    if has_declared_result(value, n.var.struct_info) or (
        inferred and (not p.options.show_all_struct_info or _binds_symbols(n.var.struct_info))
    ):
        annotation = []
    return [NL, name, *annotation, " = ", (value, 0, 0)]


def _binds_symbols(info: StructInfo) -> bool:
    """Whether symbols of `info` are its own: written once more they would be others."""
    return any(
        isinstance(part, FuncStructInfo) and any(isinstance(n, TirVar) for n in walk(part))
        for part in walk(info)
    )


@prints(MatchCast)
def _match_cast(p: Printer, n: MatchCast, _: int, __: int) -> list[Piece]:
    return _bind(p, n, _define(p, n.var))


def _if_lines(p: Printer, n: If, branch: Any) -> list[Piece]:
    yes = p.suite([lambda: branch(n.true_branch)])
    no = p.suite([lambda: branch(n.false_branch)])
    return [NL, "if ", (n.cond, 0, 0), ":", *yes, NL, "else:", *no]


def _branch(p: Printer, n: Any, name: str, var: Var) -> list[Piece]:
    """The bindings of a branch; its last line gives `name` the value of the branch.

    There ``y = x`` of a leaf x makes no binding: x itself is the value.
    """
    out: list[Piece] = []
    while isinstance(n, SeqExpr):
        last = _last_binding(n)
        if last is not None and last.var is n.body:
            out += [(b, 0, 0) for b in n.blocks[:-1]]
            out += [(b, 0, 0) for b in n.blocks[-1].bindings[:-1]]
            p.names.alias(last.var, name)
            return [*out, partial(_bind, p, last, name)]
        out += [(b, 0, 0) for b in n.blocks]
        n = n.body
    if is_leaf(n):
        return [*out, NL, f"{name} = ", (n, 0, 0)]
    return [*out, partial(_bind, p, VarBinding(_result(n, var), n), name)]


def _last_binding(n: SeqExpr) -> Binding | None:
    """The last binding, if it can be the last line of a branch."""
    if n.blocks and not isinstance(n.blocks[-1], DataflowBlock) and n.blocks[-1].bindings:
        last = n.blocks[-1].bindings[-1]
        return None if isinstance(last, VarBinding) and is_leaf(last.value) else last
    return None


def _result(value: Any, var: Var) -> Var:
    info = getattr(value, "struct_info", None)
    return Var(var.name_hint, info if isinstance(info, StructInfo) else var.struct_info)
