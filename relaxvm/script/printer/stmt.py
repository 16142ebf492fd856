"""Statements of the loop language. Handlers take (printer, statement, whether it ends its suite).

A statement that binds something for its body (`LetStmt`, `Allocate`, ...) is one line if its body
runs to the end of the suite, and a ``with`` otherwise. Every statement begins with `NL`.
"""

from __future__ import annotations

from typing import Any

from ...ir import Call, IntImm, PointerType, PrimExpr, SizeVar, Var, is_const, walk
from ...tir import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    IterVar,
    LetStmt,
    SeqStmt,
    While,
)
from .buffer import (
    access,
    after_pointer,
    axis,
    buffer_arguments,
    declare_symbols,
    define_buffer,
    definition_exprs,
)
from .core import FREE, NL, Piece, Printer, comma, prints
from .literal import attr_map, attr_value, python_float, quote
from .scalar import range_ends, var_annotation

_KINDS = {
    ForKind.SERIAL: "serial",
    ForKind.PARALLEL: "parallel",
    ForKind.VECTORIZED: "vectorized",
    ForKind.UNROLLED: "unroll",
    ForKind.THREAD_BINDING: "thread_binding",
}


def _scoped(
    p: Printer, last: int, line: list[Piece], header: list[Piece], inside: Any, body: Any
) -> list[Piece]:
    """`line` and the body after it, or ``with header:`` around it; `inside` comes between."""
    if last:
        return [NL, *line, inside, (body, 1, 0)]
    return [NL, "with ", *header, ":", *p.suite([inside, (body, 1, 0)])]


def _pointer_defined(p: Printer, v: Var) -> Any:
    return lambda: after_pointer(p, v)


@prints(SeqStmt)
def _seq(p: Printer, n: SeqStmt, last: int, _: int) -> list[Piece]:
    if not n.seq:
        return [NL, f"{p.T}.evaluate(0)"]
    return [*((s, 0, 0) for s in n.seq[:-1]), (n.seq[-1], last, 0)]


@prints(BufferStore)
def _store(p: Printer, n: BufferStore, last: int, _: int) -> list[Piece]:
    return [NL, *access(p, n.buffer, n.indices), " = ", (n.value, 0, FREE)]


@prints(Evaluate)
def _evaluate(p: Printer, n: Evaluate, last: int, _: int) -> list[Piece]:
    if isinstance(n.value, Call):
        return [NL, (n.value, 0, FREE)]
    return [NL, f"{p.T}.evaluate(", (n.value, 0, FREE), ")"]


@prints(LetStmt)
def _let(p: Printer, n: LetStmt, last: int, _: int) -> list[Piece]:
    annotation = var_annotation(p, n.var)
    if last:
        name = p.names.define(n.var, n.var.name)
        line = [f"{name}: {annotation} = ", (n.value, 0, FREE)]
        return [NL, *line, _pointer_defined(p, n.var), (n.body, 1, 0)]
    p.names.push()
    name = p.names.define(n.var, n.var.name)
    header: list[Piece] = [f"{p.T}.LetStmt(", (n.value, 0, FREE)]
    if isinstance(n.var, SizeVar) or isinstance(n.var.type_annotation, PointerType):
        header.append(f", type_annotation={annotation}")
    header.append(f") as {name}")
    inside = [_pointer_defined(p, n.var), (n.body, 1, 0)]
    return [NL, "with ", *header, ":", *p.suite(inside), p.names.pop]


@prints(AssertStmt)
def _assert(p: Printer, n: AssertStmt, last: int, _: int) -> list[Piece]:
    line = ["assert ", (n.condition, 0, FREE), ", ", (n.message, 0, FREE)]
    header = [f"{p.T}.Assert(", (n.condition, 0, FREE), ", ", (n.message, 0, FREE), ")"]
    return _scoped(p, last, line, header, _nothing, n.body)


def _nothing() -> None:
    return None


@prints(AttrStmt)
def _attr(p: Printer, n: AttrStmt, last: int, _: int) -> list[Piece]:
    if isinstance(n.node, IterVar):
        if _is_launch(p, n):
            launch = [f"{p.T}.launch_thread({quote(n.node.thread_tag)}, ", (n.value, 0, FREE), ")"]
            return _binding(p, n.node.var, last, launch, n.body, [])
        before = declare_symbols(p, [n.node.var])
    else:
        before = []
    node = attr_value(p, n.node)
    text = [f"{p.T}.attr(", *node, f", {quote(n.attr_key)}, ", (n.value, 0, FREE), ")"]
    return [*before, *_scoped(p, last, text, text, _nothing, n.body)]


def _is_launch(p: Printer, n: AttrStmt) -> bool:
    """Whether ``x = T.launch_thread(tag, extent)`` says everything about a thread axis."""
    dom = n.node.dom
    return (
        p.options.syntax_sugar
        and n.attr_key == "thread_extent"
        and n.node.iter_type == "thread"
        and p.names.get(n.node.var) is None
        and dom is not None
        and is_const(dom.min, 0)
        and dom.extent is n.value
        and n.node.var.dtype is n.value.dtype
    )


def _binding(
    p: Printer, v: Var, last: int, right: list[Piece], body: Any, before: list[Piece]
) -> list[Piece]:
    """``v = right`` for the rest of the suite, or ``with right as v:``."""
    if last:
        name = p.names.define(v, v.name)
        return [*before, NL, f"{name} = ", *right, _pointer_defined(p, v), (body, 1, 0)]
    p.names.push()
    name = p.names.define(v, v.name)
    inside = [_pointer_defined(p, v), (body, 1, 0)]
    return [*before, NL, "with ", *right, f" as {name}:", *p.suite(inside), p.names.pop]


@prints(Allocate)
def _allocate(p: Printer, n: Allocate, last: int, _: int) -> list[Piece]:
    right: list[Piece] = [f"{p.T}.allocate([", *comma([(e, 0, FREE)] for e in n.extents)]
    right.append(f"], {quote(n.dtype)}, {quote(n.buffer_var.storage_scope)}")
    if not (isinstance(n.condition, IntImm) and n.condition.value):
        right += [", condition=", (n.condition, 0, FREE)]
    right += [*_annotations(p, n.annotations), ")"]
    return _binding(p, n.buffer_var, last, right, n.body, [])


def _annotations(p: Printer, annotations: Any) -> list[Piece]:
    return [", annotations=", *attr_map(p, annotations)] if annotations else []


@prints(AllocateConst)
def _allocate_const(p: Printer, n: AllocateConst, last: int, _: int) -> list[Piece]:
    data = ", ".join(python_float(x) if isinstance(x, float) else repr(x) for x in n.data)
    right: list[Piece] = [f"{p.T}.allocate_const([{data}], {quote(n.dtype)}, ["]
    right += [*comma([(e, 0, FREE)] for e in n.extents), "]", *_annotations(p, n.annotations), ")"]
    return _binding(p, n.buffer_var, last, right, n.body, [])


@prints(DeclBuffer)
def _decl_buffer(p: Printer, n: DeclBuffer, last: int, _: int) -> list[Piece]:
    buffer = n.buffer
    # Without a pointer the parser would allocate one.
    before = declare_symbols(p, (buffer.data, *definition_exprs(buffer)))
    data = p.names.get(buffer.data) or ""
    right = [f"{p.T}.decl_buffer(", *buffer_arguments(p, buffer, data), ")"]
    if last:
        return [*before, NL, f"{define_buffer(p, buffer)} = ", *right, (n.body, 1, 0)]
    p.names.push()
    header = ["with ", *right, f" as {define_buffer(p, buffer)}:"]
    return [*before, NL, *header, *p.suite([(n.body, 1, 0)]), p.names.pop]


@prints(While)
def _while(p: Printer, n: While, last: int, _: int) -> list[Piece]:
    return [NL, "while ", (n.condition, 0, FREE), ":", *p.suite([(n.body, 1, 0)])]


@prints(IfThenElse)
def _if(p: Printer, n: IfThenElse, last: int, _: int) -> list[Piece]:
    out: list[Piece] = [NL, "if "]
    branch: Any = n
    while True:
        out += [(branch.condition, 0, FREE), ":", *p.suite([(branch.then_case, 1, 0)])]
        if branch.else_case is None:
            return out
        if not isinstance(branch.else_case, IfThenElse):
            return [*out, NL, "else:", *p.suite([(branch.else_case, 1, 0)])]
        branch = branch.else_case
        out += [NL, "elif "]


# -- loops ----------------------------------------------------------------------------------------


def _is_grid_loop(n: Any) -> bool:
    return (
        type(n) is For
        and n.kind == ForKind.SERIAL
        and n.thread_binding is None
        and not n.annotations
        and is_const(n.min, 0)
    )


def _uses(e: PrimExpr, variables: set[Var]) -> bool:
    return not isinstance(e, IntImm) and any(n in variables for n in walk(e))


@prints(For)
def _for(p: Printer, n: For, last: int, _: int) -> list[Piece]:
    loops = [n]
    if p.options.syntax_sugar and _is_grid_loop(n):
        variables = {n.loop_var}
        inner: Any = n.body
        while (
            _is_grid_loop(inner)
            and inner.loop_var not in variables
            and not _uses(inner.extent, variables)
        ):
            loops.append(inner)
            variables.add(inner.loop_var)
            inner = inner.body
    if len(loops) > 1:
        domain = [f"{p.T}.grid(", *comma([(f.extent, 0, FREE)] for f in loops), ")"]
    else:
        domain = _loop_domain(p, n)
    p.names.push()
    names = []
    for f in loops:
        p.loops[id(f.loop_var)] = (f.min, f.extent)
        names.append(p.names.define(f.loop_var, f.loop_var.name))
    body = p.suite([(loops[-1].body, 1, 0)])
    return [NL, f"for {', '.join(names)} in ", *domain, ":", *body, p.names.pop]


def _loop_domain(p: Printer, n: For) -> list[Piece]:
    ends: list[Piece]
    if is_const(n.min, 0):
        ends = [(n.extent, 0, FREE)]
    else:
        ends = range_ends(n)
    if n.kind == ForKind.SERIAL and not n.annotations and n.thread_binding is None:
        return ["range(", *ends, ")"]
    out: list[Piece] = [f"{p.T}.{_KINDS[ForKind(n.kind)]}(", *ends]
    if n.thread_binding is not None:
        out.append(f", thread={quote(n.thread_binding.thread_tag)}")
    return [*out, *_annotations(p, n.annotations), ")"]


# -- blocks ---------------------------------------------------------------------------------------


@prints(BlockRealize)
def _realize(p: Printer, n: BlockRealize, last: int, _: int) -> list[Piece]:
    return _with_block(p, n.block, n)


@prints(Block)
def _block(p: Printer, n: Block, last: int, _: int) -> list[Piece]:
    return _with_block(p, n, None)


def _with_block(p: Printer, block: Block, realize: BlockRealize | None) -> list[Piece]:
    header = f"with {p.T}.block({quote(block.name_hint)}):"
    return [NL, header, *p.suite([lambda: _block_lines(p, block, realize)])]


def _block_lines(p: Printer, block: Block, realize: BlockRealize | None) -> list[Piece]:
    out: list[Piece] = _axes(p, block, realize)
    if realize is not None and not (
        isinstance(realize.predicate, IntImm) and realize.predicate.value
    ):
        out += [NL, f"{p.T}.where(", (realize.predicate, 0, FREE), ")"]
    regions: list[Piece] = []
    for name, each in (("reads", block.reads), ("writes", block.writes)):
        regions += [NL, f"{p.T}.{name}(", *comma([(r, 0, FREE)] for r in each), ")"]
    if block.annotations:
        regions += [NL, f"{p.T}.block_attr(", *attr_map(p, block.annotations), ")"]
    inner = [
        lambda: alloc_buffer_lines(p, block),
        *((m, 0, FREE) for m in block.match_buffers),
    ]
    own = {*block.alloc_buffers, *(m.buffer for m in block.match_buffers)}
    if any(r.buffer in own for r in (*block.reads, *block.writes)):
        out += inner + regions
    else:
        out += regions + inner
    if block.init is not None:
        out += [NL, f"with {p.T}.init():", *p.suite([(block.init, 1, 0)])]
    return [*out, (block.body, 1, 0)]


def alloc_buffer_lines(p: Printer, block: Block) -> list[Piece]:
    """The lines that allocate a block's buffers."""
    out: list[Piece] = []
    for buffer in block.alloc_buffers:
        out += declare_symbols(p, definition_exprs(buffer))
        arguments = buffer_arguments(p, buffer)
        out += [NL, f"{define_buffer(p, buffer)} = {p.T}.alloc_buffer(", *arguments, ")"]
        out += after_pointer(p, buffer.data)
    return out


def _axes(p: Printer, block: Block, realize: BlockRealize | None) -> list[Piece]:
    out: list[Piece] = []
    values: list[Any] = list(realize.iter_values) if realize else [None] * len(block.iter_vars)
    pairs = list(zip(block.iter_vars, values))
    start = 0
    while start < len(pairs):
        end = start
        while p.options.syntax_sugar and end < len(pairs) and _is_remap(p, *pairs[end]):
            end += 1
        if end - start < 2:
            out += axis(p, *pairs[start])
            start += 1
            continue
        run = pairs[start:end]
        kinds = "".join("S" if iv.iter_type == "spatial" else "R" for iv, _ in run)
        loops = comma([(value, 0, FREE)] for _, value in run)
        names = ", ".join(p.names.define(iv.var, iv.var.name) for iv, _ in run)
        out += [NL, f'{names} = {p.T}.axis.remap("{kinds}", [', *loops, "])"]
        start = end
    return out


def _is_remap(p: Printer, iv: Any, value: Any) -> bool:
    """Whether an axis runs exactly over the loop whose variable is its value."""
    if iv.iter_type not in ("spatial", "reduce") or not isinstance(value, Var) or iv.dom is None:
        return False
    domain = p.loops.get(id(value))
    return (
        domain is not None
        and domain[0] is iv.dom.min
        and domain[1] is iv.dom.extent
        and value.dtype is iv.var.dtype
        and p.names.get(value) is not None
    )
