"""A loop function taken apart: some of its statements as a function of their own.

def f(A, W, C):                              def f_weight_prepack(W, W2):
    W2 = T.alloc_buffer(...)                     ...  # W2 from W
    ...  # W2 from W
    ...  # C from A and W2                   def f_prepacked(A, W2, C):
                                                 ...  # C from A and W2
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ...base import NamedTuple, Span
from ...ir import GlobalVar, PrimExpr, cast, const, is_const, substitute, walk
from ...ir import Var as TirVar
from ...tir import (
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
    fresh_copy,
    renew,
    seq,
)
from ..expr import Binding, Call, Tuple
from ..kernel_call import symbols_of_call
from ..known_ops import CALL_TIR, is_op
from ..rewriter import BindingRewriter
from ..struct_info import Expr, ShapeExpr, StructInfo, TensorStructInfo, TupleStructInfo

_OPAQUE = (AssertStmt, AttrStmt, Evaluate, LetStmt, While)


class Touched(NamedTuple):
    """The buffers that a statement reads and writes, and whether these are all it touches."""

    reads: dict[Buffer, None]
    writes: dict[Buffer, None]
    plain: bool


def touched(statement: Stmt) -> Touched:
    """What `statement` reads and writes."""
    reads: dict[Buffer, None] = {}
    writes: dict[Buffer, None] = {}
    plain = True
    for n in walk(statement, (Buffer,)):
        if isinstance(n, BufferLoad):
            reads[n.buffer] = None
        elif isinstance(n, BufferStore):
            writes[n.buffer] = None
        elif isinstance(n, Block) and (n.match_buffers or n.alloc_buffers):
            plain = False
        elif isinstance(n, _OPAQUE) or (isinstance(n, TirVar) and n.dtype.is_handle):
            plain = False
    return Touched(reads, writes, plain)


def is_root(realize: BlockRealize) -> bool:
    """Whether it only holds what a function does."""
    block = realize.block
    return is_const(realize.predicate, 1) and not (
        block.iter_vars or block.match_buffers or block.annotations or block.init
    )


def live_statements(statements: Sequence[Stmt], local: Collection[TirVar]) -> tuple[Stmt, ...]:
    """Those of `statements` that do something that is seen: all but those that only write memory
    that is `local` and that nobody reads after them.
    """
    read: set[TirVar] = set()
    live: list[Stmt] = []
    for s in reversed(statements):
        t = touched(s)
        if not t.plain or any(b.data not in local or b.data in read for b in t.writes):
            live.append(s)
            read.update(b.data for b in t.reads)
            if not t.plain:
                read.update(n for n in walk(s) if isinstance(n, TirVar) and n.dtype.is_handle)
    return tuple(reversed(live))


class Kernel:
    """A loop function as the statements of its root.

    allocated  the buffers that only they see
    """

    def __init__(self, fn: PrimFunc) -> None:
        self.fn = fn
        body: Stmt = fn.body
        self.allocated: tuple[Buffer, ...] = ()
        if isinstance(body, BlockRealize) and is_root(body):
            self.allocated, body = body.block.alloc_buffers, body.block.body
        self.statements: tuple[Stmt, ...] = body.seq if isinstance(body, SeqStmt) else (body,)

    @property
    def buffers(self) -> list[Any]:
        """The buffers of the parameters, in order; None for scalars."""
        return [self.fn.buffer_map.get(p) for p in self.fn.params]

    @property
    def is_plain(self) -> bool:
        """Whether all buffers of parameters are compact tensors."""
        known = [b for b in self.buffers if b is not None]
        return all(
            not b.strides
            and b.scope() == "global"
            and not any(isinstance(n, TirVar) for n in walk(b.elem_offset))
            for b in known
        )

    def part(self, statements: Iterable[Stmt], params: Sequence[Buffer], name: str) -> Part:
        """These statements as a function of `params`, and of the sizes and scalars that these do
        not tell. Its name, if it is to be exported, ends on `name`.
        """
        body = seq(*statements)
        mentioned = set(walk(body))
        inner = tuple(b for b in self.allocated if b not in params and b.data in mentioned)
        symbols = {p for p in self.fn.params if p not in self.fn.buffer_map}
        symbols |= {d for b in self.buffers if b is not None for d in b.shape if type(d) is TirVar}
        used = {*mentioned, *(n for b in (*params, *inner) for n in walk(b))}
        told = {d for b in params for d in b.shape if isinstance(d, TirVar)}
        scalars = tuple(s for s in sorted(symbols, key=lambda v: v.name) if s in used - told)
        values: dict[Any, Any] = {v: renew(v) for v in {*told, *scalars}}
        for b in params:
            data = values[b.data] = renew(b.data)
            values[b] = b.replace(data=data, shape=tuple(substitute(d, values) for d in b.shape))
        root = Block((), (), (), "root", body, alloc_buffers=inner)
        attrs = dict(self.fn.attrs)
        if "global_symbol" in attrs:
            attrs["global_symbol"] = f"{attrs['global_symbol']}{name}"
        fn = PrimFunc(
            (*(values[b] for b in params), *(values[s] for s in scalars)),
            fresh_copy(BlockRealize((), const(True), root), values),
            attrs=attrs,
        )
        return Part(fn, tuple(params), scalars)


class Part(NamedTuple):
    """Some statements as a function. `params` and `scalars` are what its parameters are in the
    whole.
    """

    fn: PrimFunc
    params: tuple[Buffer, ...]
    scalars: tuple[TirVar, ...]

    def call(
        self,
        gv: GlobalVar,
        values: Mapping[Buffer, Expr],
        results: StructInfo,
        known: Mapping[TirVar, PrimExpr],
        span: Span,
    ) -> Call:
        """A call as `gv`. `values` are its arguments, `known` the symbols of the whole."""
        inputs = Tuple([values[b] for b in self.params if b in values])
        tail = (shape_of(self.scalars, known),) if self.scalars else ()
        return Call(CALL_TIR, (gv, inputs, *tail), None, (results,), None, span)


class Callers(BindingRewriter):
    """Rewrites the calls of loop functions that are taken apart.

    splits  name -> what the function is split into; its `whole` is the `Kernel`
    write   (the rewriter, the binding of a call, the split, the arguments by buffer, what the
            function's symbols are for the caller) -> what stands for the binding
    used    the names of those that were called
    """

    def __init__(self, splits: Mapping[str, Any], write: Callable[..., list[Binding]]) -> None:
        self.splits = splits
        self.write = write
        self.used: dict[str, None] = {}

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        call = b.value
        if not isinstance(call, Call) or not is_op(call, CALL_TIR):
            return None
        gv, inputs = call.args[:2]
        split = self.splits.get(gv.name_hint) if isinstance(gv, GlobalVar) else None
        if split is None or not isinstance(inputs, Tuple):
            return None
        assert isinstance(gv, GlobalVar)
        self.used[gv.name_hint] = None
        values: dict[Any, Expr] = dict(zip(split.whole.buffers, inputs.fields))
        return self.write(self, b, split, values, symbols_of_call(call, split.whole.fn))


def shape_of(dims: Sequence[PrimExpr], known: Mapping[TirVar, PrimExpr]) -> ShapeExpr:
    """Sizes of a loop function as its caller sees them."""
    values = {v: cast(v.dtype, e) for v, e in known.items()}
    return ShapeExpr([cast("int64", substitute(d, values)) for d in dims])


def info_of(buffers: Sequence[Buffer], known: Mapping[TirVar, PrimExpr]) -> StructInfo:
    """The tensor, or the tuple of several tensors, that buffers are for the caller."""
    infos = [TensorStructInfo(shape_of(b.shape, known), b.dtype) for b in buffers]
    return infos[0] if len(infos) == 1 else TupleStructInfo(infos)
