"""From tensors to a loop function: one block per compute, reduction axes innermost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..base import DataType, Deferred, TIRError
from ..base import dtype as as_dtype
from ..ir import (
    INT32,
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
from ..ir.walk import transform
from ..tir import (
    FORMULA,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    decl_buffer,
    fresh_copy,
    seq,
)
from ..tir.analysis import get_block_access_region
from .reducer import Reduce
from .scan import check_row, read_by, row_operations
from .tensor import (
    ComputeOp,
    ExternOp,
    Operation,
    PlaceholderOp,
    ProducerLoad,
    ScanOp,
    Tensor,
    broadcast_compute,
)

if TYPE_CHECKING:
    from ..tir import transform as loop_passes
else:
    loop_passes = Deferred("relaxvm.tir.transform")


def create_prim_func(
    ops: Sequence[Tensor | Var], index_dtype_override: str | None = None
) -> PrimFunc:
    """The loop function that computes the tensors of `ops` that are computed, from those that are
    placeholders.

    ops                   the parameters, in order: placeholders, results and scalar variables
    index_dtype_override  integer dtype for all dimensions, loops and indices; None: that of the
                          dimensions, the widest where they differ

    Intermediate tensors become local buffers. Blocks are named by their computes, and numbered from
    the second of a name on. What `extern` makes is done by its statement as it is; a scan is a
    serial loop around the blocks of its rows. The function has ``tir.noalias`` and the global
    symbol ``main``. Raises TIRError if a placeholder that is read is not among `ops`, or a scan
    reads rows that are not there yet.
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
    return func if dtypes <= {chosen} else loop_passes.with_index_dtype(func, chosen, exact=False)


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
        for op in self.ordered(self.args):
            self.emit(op)
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

    def ordered(self, roots: Sequence[Any], row: frozenset[Operation] | None = None) -> list[Any]:
        """The operations that `roots` need, producers first; of several producers, those that
        read nothing first: a schedule can then move what reads them to where the others are made.

        row  only these, the parts of a scan's row
        """
        order: list[Any] = []
        state: dict[Any, bool] = {}
        stack: list[tuple[Any, bool]] = [
            (a.op, False) for a in reversed(roots) if isinstance(a, Tensor)
        ]
        while stack:
            op, ready = stack.pop()
            if ready:
                order.append(op)
                continue
            if op in state or (row is not None and op not in row):
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
            needs = (
                op.input_tensors if row is not None or not isinstance(op, ScanOp) else read_by(op)
            )
            inputs = sorted((t.op for t in needs), key=_reads)
            stack.extend((o, False) for o in reversed(inputs))
        return order

    def emit(self, op: Any) -> None:
        for tensor in map(op.output, range(op.num_outputs)):
            if tensor not in self.buffers:
                self.allocated.append(self.declare(tensor))
        if isinstance(op, ScanOp):
            self.scan(op)
        elif isinstance(op, ExternOp):
            self.extern(op)
        else:
            self.blocks.extend(self.compute(op))

    def compute(self, op: ComputeOp, row: Var | None = None) -> list[Stmt]:
        """The loops of `op`; of its row `row`, if that is given."""
        buffers = [self.buffers[op.output(i)] for i in range(op.num_outputs)]
        nest = _Nest(self, (*op.axis, *op.reduce_axis), row)
        body, init = self.body(op, buffers, nest.iter_vars[: len(op.axis)], nest.mapping)
        empty = _may_be_empty(nest.iter_vars[len(op.axis) :])
        stmts: list[Stmt] = []
        if init is not None and empty is not None:
            # The start values on their own: where a reduction axis is empty, its loop never runs.
            begun = ComputeOp(f"{op.name}_empty", op.tag, op.attrs, op.axis, (), op.body)
            start = _Nest(self, op.axis, row)
            _, only = self.body(begun, buffers, start.iter_vars, start.mapping)
            assert only is not None
            stmts.append(start.stmt(begun, only, None, empty))
        return [*stmts, nest.stmt(op, body, init, const(True))]

    def extern(self, op: ExternOp) -> None:
        """The statement of `op` over the buffers, in a block of its own if it has none."""
        mapping: dict[Any, Any] = {}
        tensors = (*op.inputs, *map(op.output, range(op.num_outputs)))
        for stands, tensor in zip((*op.input_placeholders, *op.output_placeholders), tensors):
            buffer = self.buffers[tensor]
            mapping[stands], mapping[stands.data] = buffer, buffer.data
            for have, want in zip(
                (*stands.shape, *stands.strides, stands.elem_offset),
                (*buffer.shape, *_compact(buffer, len(stands.strides)), buffer.elem_offset),
            ):
                if isinstance(have, Var) and have not in mapping and have is not want:
                    mapping[have] = cast(have.dtype, want)
        body: Any = fresh_copy(op.body, mapping)
        if isinstance(body, BlockRealize) and _is_plain_root(body):
            # The blocks of a whole loop function stand beside the others, for schedules to see.
            self.allocated.extend(body.block.alloc_buffers)
            self.blocks.append(transform(body.block.body, self.renamed))
            return
        regions = tuple(BufferRegion.full_region(self.buffers[t]) for t in dict.fromkeys(tensors))
        count = len(dict.fromkeys(op.inputs))
        name = _unique(op.name, self.block_names)
        block = Block((), regions[:count], regions[count:], name, body, annotations=op.attrs)
        self.blocks.append(BlockRealize((), const(True), block))

    def renamed(self, n: Node) -> Node | None:
        if isinstance(n, Block):
            return n.replace(name_hint=_unique(n.name_hint, self.block_names))
        return None

    def scan(self, op: ScanOp) -> None:
        """The first rows copied, then a serial loop around the blocks of a row."""
        results = [self.buffers[op.output(i)] for i in range(op.num_outputs)]
        for first, result in zip(op.init, results):
            copy: Any = broadcast_compute(lambda x: x, (first,)).op
            copy = copy.replace(name=f"{op.name}_init")
            self.buffers[copy.output(0)] = result
            self.blocks.extend(self.compute(copy))
        inner = row_operations(op)
        self.buffers.update(zip(op.state_placeholder, results))
        self.buffers.update(zip(op.update, results))
        dom = op.scan_axis.dom
        assert dom is not None
        begin, extent = self.index(dom.min), self.index(dom.extent)
        row = Var(op.scan_axis.var.name, extent.dtype)
        steps: list[Stmt] = []
        for each in self.ordered(op.update, inner):
            check_row(each, op, inner)
            for tensor in map(each.output, range(each.num_outputs)):
                if tensor not in self.buffers:
                    self.allocated.append(self.declare(tensor))
            steps.extend(self.compute(each, row))
        self.blocks.append(For(row, begin, extent, "serial", seq(*steps)))

    def index(self, e: PrimExpr) -> PrimExpr:
        """An expression over tensors, over buffers instead."""

        def on_node(n: Node) -> Node | None:
            if isinstance(n, ProducerLoad):
                buffer = self.buffers[n.producer]
                indices = tuple(cast(d.dtype, i) for i, d in zip(n.indices, buffer.shape))
                return BufferLoad(buffer, indices)
            return None

        return transform(e, on_node, memo=self.memo, without=(Tensor,))

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


class _Nest:
    """The loops and block axes of a compute; `row`: the loop variable that its first axis is, that
    of a scan.
    """

    def __init__(self, builder: _Builder, axes: Sequence[IterVar], row: Var | None) -> None:
        self.builder = builder
        self.loops: list[tuple[Var, Range]] = []
        self.iter_vars: list[IterVar] = []
        self.mapping: dict[Any, Any] = {}
        self.values: list[PrimExpr] = []
        for k, axis in enumerate(axes):
            assert axis.dom is not None
            begin, extent = builder.index(axis.dom.min), builder.index(axis.dom.extent)
            builder.index_dtypes |= {extent.dtype, axis.var.dtype}
            dom = Range.from_min_extent(begin, extent)
            follows = row is not None and k == 0
            if row is not None and k == 0:
                self.values.append(cast(extent.dtype, row))
            else:
                loop = Var(axis.var.name, extent.dtype)
                self.loops.append((loop, dom))
                self.values.append(loop)
            var = Var(f"v_{axis.var.name}", extent.dtype)
            # Rows of a scan follow one another.
            self.iter_vars.append(IterVar(dom, var, "opaque" if follows else axis.iter_type))
            self.mapping[axis.var] = cast(axis.var.dtype, var)

    def stmt(self, op: ComputeOp, body: Stmt, init: Stmt | None, predicate: PrimExpr) -> Stmt:
        """The block of `op` with this body in its loops."""
        builder = self.builder
        name = _unique(op.name, builder.block_names)
        block = Block(tuple(self.iter_vars), (), (), name, body, init, annotations=op.attrs)
        reads, writes, _ = get_block_access_region(
            block, {b.data: b for b in builder.buffers.values()}
        )
        block = block.replace(reads=tuple(reads), writes=tuple(writes))
        stmt: Stmt = BlockRealize(tuple(self.values), predicate, block)
        for loop, dom in reversed(self.loops):
            stmt = For(loop, dom.min, dom.extent, "serial", stmt)
        return stmt


def _compact(buffer: Buffer, count: int) -> list[PrimExpr]:
    """The strides that C-contiguous elements have; none if none are asked for."""
    strides = [const(1, "int64")] if count else []
    for d in reversed(buffer.shape[1:] if count else ()):
        strides.insert(0, strides[0] * cast("int64", d))
    return list(strides)


def _is_plain_root(realize: BlockRealize) -> bool:
    block = realize.block
    return not (block.iter_vars or block.match_buffers or block.annotations or block.init)


def _may_be_empty(axes: list[IterVar]) -> PrimExpr | None:
    """The condition under which one of the axes has no value; None if each has one."""
    condition: PrimExpr | None = None
    for axis in axes:
        assert axis.dom is not None
        extent = axis.dom.extent
        if isinstance(extent, IntImm):
            if extent.value > 0:
                continue
            return const(True)
        none = LE(extent, const(0, extent.dtype))
        condition = none if condition is None else Or(condition, none)
    return condition


def _unique(name: str, taken: dict[str, int]) -> str:
    count = taken.get(name, 0)
    taken[name] = count + 1
    return name if count == 0 else _unique(f"{name}_{count}", taken)


def _reads(op: Operation) -> bool:
    return bool(op.input_tensors)
