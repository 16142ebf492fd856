"""From tensors to a loop function: one block per compute, reduction axes innermost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base import DataType, TIRError
from ..base import dtype as as_dtype
from ..ir import (
    LE,
    IntImm,
    Map,
    Node,
    Or,
    PassContext,
    PrimExpr,
    Range,
    Var,
    cast,
    const,
    substitute,
)
from ..ir.expr import INT32
from ..ir.walk import transform
from ..tir.analysis import get_block_access_region
from ..tir.stmt import (
    FORMULA,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    decl_buffer,
    seq,
)
from ..tir.transform import with_index_dtype
from .reducer import Reduce
from .tensor import ComputeOp, PlaceholderOp, ProducerLoad, Tensor

__all__ = ["create_prim_func"]


def create_prim_func(
    ops: Sequence[Tensor | Var], index_dtype_override: str | None = None
) -> PrimFunc:
    """The loop function that computes the tensors of `ops` that are computed, from those that are
    placeholders.

    ops                   the parameters, in order: placeholders, results and scalar variables
    index_dtype_override  integer dtype for all dimensions, loops and indices; None: that of the
                          dimensions, the widest where they differ

    Intermediate tensors become local buffers. Blocks are named by their computes, and numbered from
    the second of a name on. The function has ``tir.noalias`` and the global symbol ``main``. Raises
    TIRError if a placeholder that is read is not among `ops`.
    """
    builder = _Builder(ops)
    func, dtypes = builder.build(), builder.index_dtypes
    if index_dtype_override is not None:
        chosen = as_dtype(index_dtype_override)
    else:
        chosen = max(dtypes, key=lambda d: d.bits, default=INT32)
    if chosen.kind != "int" or chosen.lanes != 1:
        raise TIRError(f"create_prim_func: an index has a signed integer type, got {chosen}")
    # Formulas are about numbers: nobody counts on Python's ints wrapping at 32 bits.
    return func if dtypes <= {chosen} else with_index_dtype(func, chosen, exact=False)


class _Builder:
    def __init__(self, ops: Sequence[Any]) -> None:
        if not isinstance(ops, (list, tuple)):
            ops = [ops]
        self.args = list(ops)
        self.buffers: dict[Tensor, Buffer] = {}
        self.blocks: list[Stmt] = []
        self.allocated: list[Buffer] = []
        self.names: dict[str, int] = {}
        self.block_names: dict[str, int] = {"root": 1}
        self.memo: dict[int, tuple[Node, Node]] = {}
        self.index_dtypes: set[DataType] = set()

    def build(self) -> PrimFunc:
        params: list[Var] = []
        buffer_map: dict[Var, Buffer] = {}
        for arg in self.args:
            if isinstance(arg, Var):
                params.append(arg)
                continue
            if not isinstance(arg, Tensor):
                raise TIRError(
                    f"create_prim_func: wanted tensors and variables, got {type(arg).__name__}"
                )
            if arg in self.buffers:
                raise TIRError(f"create_prim_func: tensor {arg.name} is given twice")
            buffer = self.declare(arg)
            handle = Var(f"var_{arg.name}", "handle")
            params.append(handle)
            buffer_map[handle] = buffer
        for op in self.ordered():
            self.compute(op)
        if not self.blocks:
            raise TIRError("create_prim_func: none of the tensors is computed")
        body = seq(*self.blocks)
        root = Block((), (), (), "root", body, alloc_buffers=tuple(self.allocated))
        attrs: dict[str, Any] = {"global_symbol": "main"}
        if PassContext.current().get("tir.noalias"):
            attrs["tir.noalias"] = True
        body = BlockRealize((), const(True), root)
        return PrimFunc(tuple(params), body, None, Map(buffer_map), Map(attrs), FORMULA)

    def declare(self, tensor: Tensor) -> Buffer:
        buffer = decl_buffer(tensor.shape, tensor.dtype, _unique(tensor.name, self.names))
        self.buffers[tensor] = buffer
        self.index_dtypes |= {d.dtype for d in buffer.shape}
        return buffer

    def ordered(self) -> list[ComputeOp]:
        """The computes that the results need, producers first; of several producers, those that
        read nothing first: a schedule can then move what reads them to where the others are made.
        """
        order: list[ComputeOp] = []
        state: dict[Any, bool] = {}
        stack: list[tuple[Any, bool]] = [
            (a.op, False) for a in reversed(self.args) if isinstance(a, Tensor)
        ]
        while stack:
            op, ready = stack.pop()
            if ready:
                order.append(op)
                continue
            if op in state:
                continue
            state[op] = True
            if isinstance(op, PlaceholderOp):
                if op.output(0) not in self.buffers:
                    raise TIRError(
                        f"create_prim_func: placeholder {op.name} is read but is not among the "
                        f"parameters"
                    )
                continue
            stack.append((op, True))
            inputs = sorted((t.op for t in op.input_tensors), key=_reads)
            stack.extend((o, False) for o in reversed(inputs))
        return order

    def compute(self, op: ComputeOp) -> None:
        outputs = [op.output(i) for i in range(op.num_outputs)]
        for tensor in outputs:
            if tensor not in self.buffers:
                self.allocated.append(self.declare(tensor))
        buffers = [self.buffers[t] for t in outputs]
        loops: list[tuple[Var, Range]] = []
        iter_vars: list[IterVar] = []
        mapping: dict[Any, Any] = {}
        for axis in (*op.axis, *op.reduce_axis):
            assert axis.dom is not None
            begin, extent = self.index(axis.dom.min), self.index(axis.dom.extent)
            self.index_dtypes |= {extent.dtype, axis.var.dtype}
            loop = Var(axis.var.name, extent.dtype)
            block_var = Var(f"v_{axis.var.name}", extent.dtype)
            loops.append((loop, Range.from_min_extent(begin, extent)))
            iter_vars.append(
                IterVar(Range.from_min_extent(begin, extent), block_var, axis.iter_type)
            )
            mapping[axis.var] = cast(axis.var.dtype, block_var)
        body, init = self.body(op, buffers, iter_vars[: len(op.axis)], mapping)
        empty = _may_be_empty(iter_vars[len(op.axis) :])
        if init is not None and empty is not None:
            self.blocks.append(self.fill(op, buffers, empty))
        name = _unique(op.name, self.block_names)
        block = Block(tuple(iter_vars), (), (), name, body, init, annotations=op.attrs)
        reads, writes, _ = get_block_access_region(
            block, {b.data: b for b in self.buffers.values()}
        )
        block = block.replace(reads=tuple(reads), writes=tuple(writes))
        stmt: Stmt = BlockRealize(tuple(v for v, _ in loops), const(True), block)
        for loop, dom in reversed(loops):
            stmt = For(loop, dom.min, dom.extent, "serial", stmt)
        self.blocks.append(stmt)

    def fill(self, op: ComputeOp, buffers: list[Buffer], empty: PrimExpr) -> Stmt:
        """The start values on their own: where a reduction axis is empty, its loop never runs."""
        begun = ComputeOp(f"{op.name}_empty", op.tag, op.attrs, op.axis, (), op.body)
        loops: list[tuple[Var, Range]] = []
        iter_vars: list[IterVar] = []
        mapping: dict[Any, Any] = {}
        for axis in op.axis:
            assert axis.dom is not None
            begin, extent = self.index(axis.dom.min), self.index(axis.dom.extent)
            dom = Range.from_min_extent(begin, extent)
            loops.append((Var(axis.var.name, extent.dtype), dom))
            iter_vars.append(IterVar(dom, Var(f"v_{axis.var.name}", extent.dtype), "spatial"))
            mapping[axis.var] = cast(axis.var.dtype, iter_vars[-1].var)
        _, init = self.body(begun, buffers, iter_vars, mapping)
        assert init is not None
        name = _unique(begun.name, self.block_names)
        block = Block(tuple(iter_vars), (), (), name, init, annotations=op.attrs)
        _, writes, _ = get_block_access_region(block, {b.data: b for b in self.buffers.values()})
        block = block.replace(writes=tuple(writes))
        stmt: Stmt = BlockRealize(tuple(v for v, _ in loops), empty, block)
        for loop, dom in reversed(loops):
            stmt = For(loop, dom.min, dom.extent, "serial", stmt)
        return stmt

    def index(self, e: PrimExpr) -> PrimExpr:
        """An expression over tensors, over buffers instead."""

        def on_node(n: Node) -> Node | None:
            if isinstance(n, ProducerLoad):
                buffer = self.buffers[n.producer]
                indices = tuple(cast(d.dtype, i) for i, d in zip(n.indices, buffer.shape))
                return BufferLoad(buffer, indices)
            return None

        def skip(n: Node) -> Node | None:
            return n if isinstance(n, Tensor) else None

        return transform(e, on_node, pre=skip, memo=self.memo)

    def body(
        self, op: ComputeOp, buffers: list[Buffer], axes: list[IterVar], mapping: dict[Any, Any]
    ) -> tuple[Stmt, Stmt | None]:
        indices = tuple(axis.var for axis in axes)
        first = op.body[0]
        if not isinstance(first, Reduce):
            stores = [
                BufferStore(b, substitute(self.index(e), mapping), indices)
                for b, e in zip(buffers, op.body)
            ]
            return (stores[0] if len(stores) == 1 else SeqStmt(tuple(stores))), None
        starts = first.init or first.combiner.identity_element
        init = seq(
            *(
                BufferStore(b, substitute(self.index(s), mapping), indices)
                for b, s in zip(buffers, starts)
            )
        )
        source = tuple(substitute(self.index(e), mapping) for e in first.source)
        current = tuple(BufferLoad(b, indices) for b in buffers)
        combined = first.combiner.apply(current, source)
        update: Stmt
        if len(buffers) == 1:
            update = BufferStore(buffers[0], combined[0], indices)
        else:
            # All new values are computed before any is stored: each may depend on every old one.
            held = [Var(f"v_{b.name}", b.dtype) for b in buffers]
            update = seq(*(BufferStore(b, v, indices) for b, v in zip(buffers, held)))
            for v, value in reversed(list(zip(held, combined))):
                update = LetStmt(v, value, update)
        condition = substitute(self.index(first.condition), mapping)
        if condition is not const(True):
            update = IfThenElse(condition, update)
        return update, init


def _may_be_empty(axes: list[IterVar]) -> PrimExpr | None:
    """The condition under which one of the axes has no value; None if each has one."""
    found: PrimExpr | None = None
    for axis in axes:
        assert axis.dom is not None
        extent = axis.dom.extent
        if isinstance(extent, IntImm):
            if extent.value > 0:
                continue
            return const(True)
        none = LE(extent, const(0, extent.dtype))
        found = none if found is None else Or(found, none)
    return found


def _unique(name: str, taken: dict[str, int]) -> str:
    count = taken.get(name, 0)
    taken[name] = count + 1
    return name if count == 0 else _unique(f"{name}_{count}", taken)


def _reads(op: PlaceholderOp | ComputeOp) -> bool:
    return isinstance(op, ComputeOp) and bool(op.input_tensors)
