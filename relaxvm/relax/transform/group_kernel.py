"""A group of kernel calls as one kernel.

    fused_add_exp(x, y):                                 fused_add_exp(x, y, gv: buffers):
        lv = R.call_tir(cls.add, (x, y), ...)      ->        lv = T.alloc_buffer((n, 4))
        gv = R.call_tir(cls.exp, (lv,), ...)                 ...  # the blocks of add
        return gv                                            ...  # the blocks of exp

What one kernel does to a buffer the next one sees, as if they were called one after the other: a
kernel that works in place makes the new one do so. Symbols that no buffer determines become scalar
parameters. Loops that stand in no block are put into one that says what it reads and writes, since
schedules see no others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NoReturn, TypeAlias

from ...arith import Analyzer
from ...base import UNKNOWN, NamedTuple, NameSupply, PassError, Span
from ...ir import (
    INTRINSICS,
    Cast,
    GlobalVar,
    IntImm,
    IRModule,
    Node,
    PrimExpr,
    cast,
    const,
    descend,
    substitute,
    walk,
)
from ...ir import Call as PrimCall
from ...ir import Var as TirVar
from ...tir import (
    FORMULA,
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    body_nodes,
    decl_buffer,
    fresh_copy,
    seq,
)
from ...tir.analysis import buffer_accesses
from ...tir.schedule.plans import SCHEDULED
from ...tir.transform import MAX_SIZE, fold, reads_memory, size_bounds, with_index_dtype
from ..derive import bind_symbols, prove_dims, tir_vars_in_struct_info
from ..expr import (
    Call,
    Constant,
    Function,
    PrimValue,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..kernel_call import KERNEL_CALLS
from ..known_ops import CALL_TIR_INPLACE
from ..struct_info import (
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .split_kernel import is_root, live_statements


class NotMerged(PassError):
    """Why a group stays a graph function."""


# What a variable of a group stands for in its kernel: memory, a scalar, the sizes of a shape, or
# the fields of a tuple.
_Value: TypeAlias = "Buffer | PrimExpr | tuple[PrimExpr, ...] | list[Any]"


class Place(NamedTuple):
    """Where a caller has an argument: a field in a field of the argument numbered `param`."""

    param: int
    fields: tuple[int, ...] = ()


class GroupKernel(NamedTuple):
    """A group as one loop function.

    group     as it was
    function  None if nothing is computed
    inputs    where its arguments come from
    outputs   its results, in the symbols of `group`; `inplace` is the input that each overwrites
    scalars   the symbols of `group` that are its last parameters
    result    what the group returns: the number of an output, the `Place` of an argument, or the
              list of the fields
    parts     the loop functions that are in it
    span      where they were called
    """

    group: Function
    function: PrimFunc | None
    inputs: tuple[Place | Constant, ...]
    outputs: tuple[TensorStructInfo, ...]
    inplace: tuple[int, ...]
    scalars: tuple[TirVar, ...]
    result: Any
    parts: tuple[GlobalVar, ...]
    span: Span

    def symbols(self, call: Call) -> dict[TirVar, PrimExpr]:
        """What the group's symbols are in `call`."""
        return bind_symbols(
            (p.struct_info, a.struct_info) for p, a in zip(self.group.params, call.args)
        )

    def constants(self, known: Collection[int]) -> tuple[int, ...]:
        """The numbers of the inputs that are constants, where the group's arguments `known` are."""
        places = enumerate(self.inputs)
        return tuple(k for k, p in places if isinstance(p, Constant) or p.param in known)

    def can_serve(self, call: Call) -> bool:
        """Whether the sizes of results and the scalars are known where `call` stands, and no
        argument that is written is given twice.
        """
        known = self.symbols(call)
        wanted = {v for info in self.outputs for v in tir_vars_in_struct_info(info)}
        if len(call.args) != len(self.group.params) or not known.keys() >= {*wanted, *self.scalars}:
            return False
        return all(self._apart(i, call) for i in self.inplace if i >= 0)

    def _apart(self, written: int, call: Call) -> bool:
        """Whether no other input of the kernel is the one that is written, or may be."""
        here = self.inputs[written]
        others = (p for k, p in enumerate(self.inputs) if k != written)
        return all(
            isinstance(p, Constant)
            or isinstance(here, Constant)
            or not (here.fields or p.fields or call.args[p.param] is call.args[here.param])
            for p in others
        )


def kernel_of_group(fn: Function, mod: IRModule) -> GroupKernel:
    """The group `fn` as one kernel. Raises NotMerged if its meaning would not be kept."""
    return _Group(fn, mod).kernel()


class _Group:
    """The kernel of `fn` as it is built, binding by binding."""

    def __init__(self, fn: Function, mod: IRModule) -> None:
        self.fn = fn
        self.mod = mod
        self.symbols: dict[TirVar, TirVar] = {}  # of the group -> of the kernel
        self.values: dict[Var, _Value] = {}
        self.inputs: list[tuple[TirVar | Buffer, Place | Constant]] = []
        self.infos: dict[Buffer, TensorStructInfo] = {}  # the results of parts
        self.allocated: list[Buffer] = []  # these, and what parts allocate
        self.written: dict[Buffer, None] = {}  # over an input of a part
        self.constants: dict[Constant, Buffer] = {}
        self.names = NameSupply(joint="_")
        self.statements: list[Stmt] = []
        self.parts: dict[GlobalVar, PrimFunc] = {}
        self.bounds: dict[TirVar, int] = {}
        self.spans: list[Span] = []

    def kernel(self) -> GroupKernel:
        """All of it."""
        fn = self.fn
        for k, p in enumerate(fn.params):
            self.values[p] = self.parameter(p.name_hint, p.struct_info, Place(k))
        for block in fn.body.blocks:
            for b in block.bindings:
                if not isinstance(b, VarBinding):
                    self.refuse(f"{b.var.name_hint} is a match_cast")
                self.values[b.var] = self.value(b)
        outputs: dict[Buffer, int] = {}
        tree = self.result(self.value_of(fn.body.body), outputs)
        # An argument that is written over is a result, read or not.
        for own, _ in self.inputs:
            if own in self.written:
                assert isinstance(own, Buffer)
                outputs.setdefault(own, len(outputs))
        return self.finish(tree, list(outputs))

    def refuse(self, why: str) -> NoReturn:
        """Leave the group as it is."""
        raise NotMerged(why)

    # -- parameters and values ---------------------------------------------------------------------

    def parameter(self, name: str, info: StructInfo, place: Place) -> _Value:
        if isinstance(info, TupleStructInfo):
            fields = enumerate(info.fields)
            return [
                self.parameter(f"{name}_{i}", f, place._replace(fields=(*place.fields, i)))
                for i, f in fields
            ]
        if isinstance(info, TensorStructInfo):
            buffer = self.buffer(name, info)
            self.inputs.append((buffer, place))
            return buffer
        if isinstance(info, PrimStructInfo):
            scalar = TirVar(name, info.dtype) if info.value is None else self.own(info.value)
            if isinstance(scalar, TirVar) and (info.value is None or not scalar.dtype.is_int):
                if all(own is not scalar for own, _ in self.inputs):
                    self.inputs.append((scalar, place))
            return scalar
        if isinstance(info, ShapeStructInfo) and info.values is not None:
            return tuple(map(self.own, info.values))
        self.refuse(f"parameter {name} is {info}")

    def buffer(self, name: str, info: StructInfo) -> Buffer:
        if not isinstance(info, TensorStructInfo) or info.dims is None or info.dtype == "void":
            self.refuse(f"the shape or dtype of {name} is not known: {info}")
        return decl_buffer([self.own(d) for d in info.dims], info.dtype, name)

    def own(self, e: PrimExpr) -> PrimExpr:
        """`e` in the symbols of the kernel."""
        for v in walk(e):
            if isinstance(v, TirVar) and v not in self.symbols:
                self.symbols[v] = TirVar(v.name, v.dtype)
        return substitute(e, self.symbols)

    def value(self, b: VarBinding) -> _Value:
        if isinstance(b.value, Call):
            return self.call(b.var.name_hint, b.value)
        return self.value_of(b.value)

    def value_of(self, e: Any) -> _Value:
        if isinstance(e, Var) and e in self.values:
            return self.values[e]
        if isinstance(e, Tuple):
            return [self.value_of(f) for f in e.fields]
        if isinstance(e, TupleGetItem):
            fields = self.value_of(e.tuple_value)
            assert isinstance(fields, list)
            return fields[e.index]
        if isinstance(e, PrimValue):
            return self.own(e.value)
        if isinstance(e, ShapeExpr):
            return tuple(map(self.own, e.values))
        if isinstance(e, Constant):
            if e not in self.constants:
                self.constants[e] = self.buffer("const", e.struct_info)
                self.inputs.append((self.constants[e], e))
            return self.constants[e]
        self.refuse(f"it holds a {type(e).__name__}")

    def result(self, value: _Value, outputs: dict[Buffer, int]) -> Any:
        """The `result` of a `GroupKernel`; buffers in it that parts wrote are added to `outputs`
        under their numbers.
        """
        if isinstance(value, list):
            return [self.result(v, outputs) for v in value]
        if not isinstance(value, Buffer):
            self.refuse("it returns a scalar or a shape")
        if value in self.infos:
            return outputs.setdefault(value, len(outputs))
        return next(place for own, place in self.inputs if own is value)

    # -- parts -------------------------------------------------------------------------------------

    def call(self, name: str, call: Call) -> _Value:
        """The results of `call`, whose statements are appended."""
        callee: Any = call.args[0] if call.op in KERNEL_CALLS else None
        part = self.mod.functions.get(callee) if isinstance(callee, GlobalVar) else None
        if not isinstance(part, PrimFunc):
            self.refuse(f"{name} is no call of a loop function")
        operands = self.value_of(call.args[1])
        if not isinstance(operands, list):
            self.refuse(f"the arguments of {name} are no tuple")
        info = call.sinfo_args[0]
        fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
        inplace = call.attrs["inplace_indices"] if call.op is CALL_TIR_INPLACE else ()
        results: list[Any] = []
        fresh: list[Buffer] = []
        for k, field in enumerate(fields):
            assert isinstance(field, TensorStructInfo)
            if k < len(inplace) and inplace[k] >= 0:
                results.append(operands[inplace[k]])
                self.written[results[-1]] = None
            else:
                fresh.append(self.buffer(name, field))
                results.append(fresh[-1])
            self.infos[results[-1]] = field
        scalars = self.value_of(call.args[2]) if len(call.args) > 2 else ()
        if not isinstance(scalars, tuple):
            self.refuse(f"the scalars of {name} are no shape")
        self.append(callee, self.widened(callee, part), (*operands, *fresh, *scalars))
        self.allocated += fresh
        self.spans.append(call.span)
        return results if isinstance(info, TupleStructInfo) else results[0]

    def widened(self, callee: GlobalVar, part: PrimFunc) -> PrimFunc:
        """`part` with indices of the graph's type, so that no buffer is read in two."""
        if callee not in self.parts:
            if part.ret_type is not None or any(
                isinstance(n, PrimCall) and n.op is INTRINSICS["ret"] for n in body_nodes(part)
            ):
                self.refuse(f"{callee.name_hint} returns early")
            self.parts[callee] = with_index_dtype(part, "int64")
        return self.parts[callee]

    def append(self, callee: GlobalVar, part: PrimFunc, operands: Sequence[_Value]) -> None:
        """Append the statements of `part` on these arguments."""
        mapping = self.arguments(callee.name_hint, part, operands)
        body: Any = fresh_copy(part.body, mapping, body_nodes(part), self.tidy)
        allocated: tuple[Buffer, ...] = ()
        if isinstance(body, BlockRealize) and is_root(body):
            allocated, body = body.block.alloc_buffers, body.block.body
            if _is_nest_of_blocks(body):
                self.allocated += allocated
                self.statements.append(body)
                return
        access = buffer_accesses(part)
        reads, writes = (
            _regions(mapping[b] for b in part.buffers if how in access.get(b, "")) for how in "rw"
        )
        name = self.names.fresh(callee.name_hint)
        block = Block((), reads, writes, name, body, alloc_buffers=allocated)
        self.statements.append(BlockRealize((), const(True), block))

    def tidy(self, n: Any) -> Node | None:
        """A block under a name of its own, an integer expression with what is known now."""
        if isinstance(n, Block):
            # What stands for two parameters is read once.
            reads = {(r.buffer, *((x.min, x.extent) for x in r.region)): r for r in n.reads}
            name = self.names.fresh(n.name_hint)
            return n.replace(name_hint=name, reads=tuple(reads.values()))
        if isinstance(n, Cast) and isinstance(n.value, IntImm):
            return cast(n.dtype, n.value)
        return fold(n)

    def arguments(
        self, name: str, part: PrimFunc, operands: Sequence[_Value]
    ) -> dict[TirVar | Buffer, Any]:
        """What parameters, their buffers and the symbols of `part` are. Refuses where that is not
        certain to be what its signature asks for.
        """
        if len(operands) != len(part.params):
            self.refuse(f"{name} takes {len(part.params)} parameters")
        mapping: dict[Any, Any] = {}
        equal: list[tuple[PrimExpr, PrimExpr]] = []
        for p, value in zip(part.params, operands):
            buffer = part.buffer_map.get(p)
            if buffer is None:
                if not isinstance(value, PrimExpr) or p.dtype.is_handle:
                    self.refuse(f"parameter {p.name} of {name} is a pointer")
                fits = isinstance(value, IntImm) and p.dtype.is_int
                if value.dtype is not p.dtype and not (fits and cast(p.dtype, value) == value):
                    self.refuse(f"parameter {p.name} of {name} is {p.dtype}, not {value.dtype}")
                mapping[p] = cast(p.dtype, value)
                continue
            if not isinstance(value, Buffer) or not _is_plain(buffer):
                self.refuse(f"parameter {p.name} of {name} is no plain buffer")
            if value.dtype is not buffer.dtype or value.ndim != buffer.ndim:
                self.refuse(f"parameter {p.name} of {name} is another tensor")
            mapping[buffer], mapping[buffer.data] = value, value.data
            equal += zip(buffer.shape, value.shape)
            equal += zip(buffer.strides, _compact(value))
            equal.append((buffer.elem_offset, const(0, buffer.elem_offset.dtype)))
        for wanted, value in equal:
            if isinstance(wanted, TirVar):
                mapping.setdefault(wanted, cast(wanted.dtype, value))
        for wanted, value in equal:
            if prove_dims(substitute(wanted, mapping), value) is not True:
                self.refuse(f"{name} wants the size {wanted}, which may not be {value}")
        for symbol, top in size_bounds(part).items():
            if top < MAX_SIZE:
                self.bound(name, mapping[symbol], top)
        return mapping

    def bound(self, name: str, size: PrimExpr, top: int) -> None:
        """Have it checked, when the kernel is called, that `size` is at most `top`."""
        size = size.value if isinstance(size, Cast) else size
        if isinstance(size, IntImm) and size.value <= top:
            return
        if not isinstance(size, TirVar):
            self.refuse(f"{name} takes sizes up to {top}, {size} may be more")
        self.bounds[size] = min(top, self.bounds.get(size, top))

    # -- the whole ---------------------------------------------------------------------------------

    def finish(self, tree: Any, outputs: Sequence[Buffer]) -> GroupKernel:
        body = seq(*self.statements)
        local = {b.data for b in self.allocated if b not in outputs}
        if isinstance(body, SeqStmt):
            body = seq(*(live_statements(body.seq, local) or body.seq))
        mentioned = {*walk(body), *outputs}
        self.drop_inputs(mentioned)
        places = {own: k for k, (own, _) in enumerate(self.inputs)}
        self.check_sizes([b for b in self.infos if b not in places and b not in outputs], outputs)
        params = [own for own, _ in self.inputs] + [b for b in outputs if b not in places]
        bound = {d for p in params if isinstance(p, Buffer) for d in p.shape}
        inner = tuple(b for b in self.allocated if b.data in local & mentioned)
        root = Block((), (), (), "root", body, alloc_buffers=inner)
        used = {*walk(root), *(n for p in params for n in walk(p))} - {*params, *bound}
        scalars = {s: own for s, own in self.symbols.items() if own in used}
        function = None
        if self.statements:
            function = PrimFunc(
                (*params, *scalars.values()),
                BlockRealize((), const(True), root),
                attrs=self.attrs(bound),
                span=FORMULA if all(f.span is FORMULA for f in self.parts.values()) else UNKNOWN,
            )
        return GroupKernel(
            group=self.fn,
            function=function,
            inputs=tuple(place for _, place in self.inputs),
            outputs=tuple(self.infos[b] for b in outputs),
            inplace=tuple(places.get(b, -1) for b in outputs),
            scalars=tuple(scalars),
            result=tree,
            parts=tuple(self.parts),
            span=Span.merge(*self.spans),
        )

    def drop_inputs(self, used: set[Any]) -> None:
        """Leave out arguments that nothing reads any more, if they say nothing about sizes."""

        def stays(own: TirVar | Buffer) -> bool:
            if not isinstance(own, Buffer) or own in used or own.data in used:
                return True
            return not all(isinstance(d, IntImm) for d in own.shape)

        self.inputs = [(own, place) for own, place in self.inputs if stays(own)]

    def check_sizes(self, inner: Iterable[Buffer], outputs: Iterable[Buffer]) -> None:
        """Refuse if a size of a buffer inside may be negative, for which the call that made it was
        an error. Those of the results are checked where the kernel is called.
        """
        analyzer = Analyzer(wrap=False)
        sure: set[PrimExpr] = set()
        for b in (*(own for own, _ in self.inputs if isinstance(own, Buffer)), *outputs):
            sure.update(b.shape)
        for d in sure:
            if isinstance(d, TirVar):
                analyzer.bind_size(d)
        for d in {d for b in inner for d in b.shape} - sure:
            if not analyzer.can_prove(d >= 0):
                self.refuse(f"the size {d} of an intermediate result may be negative")

    def attrs(self, bound: set[PrimExpr]) -> dict[str, Any]:
        """The group's own attributes, and those that all its parts agree on."""
        parts = [f.attrs for f in self.parts.values()]
        if len({p.get("target") for p in parts}) > 1:
            self.refuse("its parts are for several targets")
        attrs = {k: v for k, v in parts[0].items() if all(p.get(k) == v for p in parts)}
        attrs.update(self.fn.attrs)
        if any(p.get(SCHEDULED) for p in parts):
            attrs[SCHEDULED] = True
        limits = {v.name: top for v, top in self.bounds.items()}
        if not bound >= self.bounds.keys() or len(limits) < len(self.bounds):
            self.refuse("a bound of a size cannot be checked")
        for key in _NOT_OF_KERNELS:
            attrs.pop(key, None)
        return {**attrs, _BOUND: limits} if limits else attrs


_BOUND = "tir_var_upper_bound"
_NOT_OF_KERNELS = ("Primitive", "global_symbol", "tir_var_lower_bound", _BOUND)


def _is_plain(b: Buffer) -> bool:
    """Whether `b` asks of its memory what that of any tensor is."""
    alignment, *rest = b.data_alignment, b.buffer_type, b.axis_separators, b.scope()
    return alignment <= 64 and rest == ["default", (), "global"]


def _compact(b: Buffer) -> list[PrimExpr]:
    """The strides of C-contiguous elements."""
    strides: list[PrimExpr] = []
    step: PrimExpr = const(1, "int64")
    for d in reversed(b.shape):
        strides.insert(0, step)
        step = step * cast("int64", d)
    return strides


def _is_nest_of_blocks(body: Stmt) -> bool:
    """Whether all that `body` does is done in blocks."""

    def below(s: Stmt) -> Sequence[Stmt]:
        return s.seq if isinstance(s, SeqStmt) else (s.body,) if isinstance(s, For) else ()

    return all(
        isinstance(s, (SeqStmt, BlockRealize))
        or (isinstance(s, For) and not any(map(reads_memory, (s.min, s.extent))))
        for s in descend(body, below)
    )


def _regions(buffers: Iterable[Any]) -> tuple[BufferRegion, ...]:
    return tuple(map(BufferRegion.full_region, dict.fromkeys(buffers)))
