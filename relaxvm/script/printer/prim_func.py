"""Loop functions."""

from __future__ import annotations

from typing import Any

from ...ir import IntImm, Let, Var, walk
from ...tir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    PrimFunc,
    Stmt,
)
from .buffer import (
    after_pointer,
    buffer_arguments,
    declare_buffer,
    declare_symbols,
    define_buffer,
    definition_exprs,
    is_plain_buffer,
    symbol_declaration,
    variables_of,
)
from .core import NL, Piece, Printer, comma, prints
from .literal import attr_map
from .names import identifier
from .scalar import dtype_name, var_annotation
from .stmt import alloc_buffer_lines


def function_name(func: Any, default: str = "main") -> str:
    """The name under which a function that stands alone is printed."""
    name = func.attrs.get("global_symbol", default)
    return str(name.value if hasattr(name, "value") else name)


@prints(PrimFunc)
def _prim_func(p: Printer, n: PrimFunc, _: int, __: int) -> list[Piece]:
    return prim_func_lines(p, n, function_name(n))


def prim_func_lines(p: Printer, n: PrimFunc, name: str, aliases: bool = False) -> list[Piece]:
    """The decorated definition of a loop function called `name`.

    aliases  it stands in a module whose functions it refers to
    """
    names = p.names
    names.push()
    p.loops = {}
    p.undeclared, let_vars = _loose_ends(n)
    private = "global_symbol" not in n.attrs
    head = f"@{p.T}.prim_func(private=True)" if private else f"@{p.T}.prim_func"
    params: list[list[Piece]] = []
    opening: list[Piece] = []
    plain: list[Buffer] = []
    known: set[Var] = set()
    for v in n.params:
        buffer = n.buffer_map.get(v)
        if buffer is not None and _is_sugar(p, buffer, known):
            define_buffer(p, buffer)
            plain.append(buffer)
            params.append(
                [f"{names.get(buffer)}: {p.T}.Buffer(", *buffer_arguments(p, buffer), ")"]
            )
            continue
        known.add(v)
        params.append([f"{names.define(v, v.name)}: {var_annotation(p, v)}"])
    for buffer in plain:
        opening += after_pointer(p, buffer.data)
    for v in n.params:
        buffer = n.buffer_map.get(v)
        if buffer is None:
            opening += after_pointer(p, v)
        elif names.get(buffer) is None:
            opening += _match_buffer(p, v, buffer)
    for v in let_vars:
        if names.get(v) is None:
            opening += [NL, f"{names.define(v, v.name)} = {symbol_declaration(p, v)}"]
    for buffers in _without_data(p, n):
        for buffer in buffers:
            opening += declare_buffer(p, buffer)
    attrs = n.attrs
    if not private and str(attrs["global_symbol"]) == name:
        attrs = attrs.without("global_symbol")
    lines: list[Piece] = [NL, f"{p.T}.func_attr(", *attr_map(p, attrs), ")"] if attrs else []
    if aliases:
        opening.insert(0, f"{p.options.module_alias} = {identifier(p.options.name)}")
        opening.insert(0, NL)
    result = "" if n.ret_type is None else f" -> {dtype_name(p, n.ret_type.dtype)}"
    signature = [NL, head, NL, f"def {identifier(name)}(", *comma(params), f"){result}:"]
    return [*signature, *p.suite([*lines, *opening, *_body(p, n)]), names.pop]


def _match_buffer(p: Printer, v: Var, buffer: Buffer) -> list[Piece]:
    symbols = declare_symbols(p, definition_exprs(buffer))
    arguments = buffer_arguments(p, buffer, p.names.get(buffer.data) or "")
    line = f"{define_buffer(p, buffer)} = {p.T}.match_buffer({p.names.get(v)}, "
    return [*symbols, NL, line, *arguments, ")", *after_pointer(p, buffer.data)]


def _is_sugar(p: Printer, buffer: Buffer, known: set[Var]) -> bool:
    """Whether a buffer can be a parameter itself: ``A: T.Buffer((n, 4), "float32")``."""
    return (
        p.options.syntax_sugar
        and is_plain_buffer(buffer)
        and p.names.get(buffer) is None
        and p.names.get(buffer.data) is None
        and all(v in known for v in variables_of(buffer.shape))
    )


def _body(p: Printer, n: PrimFunc) -> list[Piece]:
    root = n.body.block if isinstance(n.body, BlockRealize) else None
    if root is None or not (p.options.syntax_sugar and is_implicit_root(n.body)):
        return [(n.body, 1, 0)]
    comment = f'# with {p.T}.block("root"):'
    return [NL, comment, lambda: alloc_buffer_lines(p, root), (root.body, 1, 0)]


def is_implicit_root(body: Stmt) -> bool:
    """Whether `body` is the block that the parser puts around a function body by itself."""
    if not isinstance(body, BlockRealize):
        return False
    root = body.block
    trivial = (
        not root.iter_vars
        and not root.reads
        and not root.writes
        and root.name_hint == "root"
        and root.init is None
        and not root.match_buffers
        and not root.annotations
        and isinstance(body.predicate, IntImm)
        and bool(body.predicate.value)
    )
    if not trivial:
        return False
    if root.alloc_buffers:
        return True
    inner = root.body
    if isinstance(inner, BlockRealize):
        return bool(inner.block.iter_vars)
    return any(isinstance(each, Block) for each in walk(inner))


def _loose_ends(n: PrimFunc) -> tuple[dict[int, list[Buffer]], list[Var]]:
    """Undeclared buffers by their data variable, and the variables bound by `Let`."""
    used: dict[Buffer, None] = {}
    declared: set[Buffer] = set(n.buffer_map.values())
    let_vars: dict[Var, None] = {}
    for each in walk(n.body):
        if isinstance(each, (BufferLoad, BufferStore, BufferRegion)):
            used[each.buffer] = None
        elif isinstance(each, Block):
            declared.update(each.alloc_buffers)
            declared.update(m.buffer for m in each.match_buffers)
        elif isinstance(each, DeclBuffer):
            declared.add(each.buffer)
        elif isinstance(each, Let):
            let_vars[each.var] = None
        elif isinstance(each, Buffer):
            used[each] = None
    loose: dict[int, list[Buffer]] = {}
    for buffer in used:
        if buffer not in declared:
            loose.setdefault(id(buffer.data), []).append(buffer)
    return loose, list(let_vars)


def _without_data(p: Printer, n: PrimFunc) -> list[list[Buffer]]:
    """The undeclared buffers whose data variable nothing binds: they are declared at the top."""
    if not p.undeclared:
        return []
    bound: set[int] = set()
    for each in walk(n.body):
        if isinstance(each, Buffer):
            continue
        for field in type(each)._defs_:
            value = getattr(each, field)
            if isinstance(value, Var):
                bound.add(id(value))
            elif isinstance(value, Buffer):
                bound.add(id(value.data))
        if isinstance(each, Block):
            bound.update(id(b.data) for b in each.alloc_buffers)
            bound.update(id(m.buffer.data) for m in each.match_buffers)
    return [p.undeclared.pop(key) for key in list(p.undeclared) if key not in bound]
