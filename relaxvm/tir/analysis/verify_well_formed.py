"""`verify_well_formed`: whether a loop function follows the rules that every pass and code
generator relies on.

- every variable and buffer is used only where it is defined, and defined once on every path to its
use
- a block's body uses its own axes, not the loops around it
- conditions are scalar bools, operands have matching dtypes, calls have the right arguments
- a vectorised loop has a constant extent, a thread loop names its thread
- `T.ret` stands alone in a statement and gives the declared type
"""

from __future__ import annotations

from typing import Any, NoReturn

from ...base import DataType, VerifyError
from ...ir import (
    INTRINSICS,
    BaseFunc,
    BinaryExpr,
    Call,
    CompareExpr,
    GlobalVar,
    IntImm,
    Intrinsic,
    IRModule,
    Max,
    Min,
    Mod,
    PrimExpr,
    Var,
    why_no_dot,
)
from ..stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    BlockRealize,
    Buffer,
    BufferLoad,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    PrimFunc,
    Stmt,
    While,
)
from .scope import Place, ScopeWalker, shared_size

_DEEPEST = 100
_MOST_STATEMENTS = 5_000_000
_MAX_LANES = 1024


def verify_well_formed(obj: Any, assert_mode: bool = True) -> bool:
    """Whether a PrimFunc, or every PrimFunc of an IRModule, is well formed.

    assert_mode  raise VerifyError naming function, statement and source position instead of
                 returning False
    """
    if isinstance(obj, IRModule):
        pairs = [(gv.name_hint, f) for gv, f in obj.items() if isinstance(f, PrimFunc)]
        module: IRModule | None = obj
    elif isinstance(obj, PrimFunc):
        pairs, module = [(str(obj.get_attr("global_symbol", "main")), obj)], None
    else:
        raise VerifyError(f"wanted a PrimFunc or an IRModule, got {type(obj).__name__}")
    try:
        for name, func in pairs:
            _verify(func, name, module)
    except VerifyError:
        if assert_mode:
            raise
        return False
    return True


def _verify(func: PrimFunc, name: str, module: IRModule | None) -> None:
    place = Place(name, None, func.span, 0)
    if len(set(func.params)) != len(func.params):
        _fail(place, "a parameter stands twice in the list")
    buffers = list(func.buffer_map.values())
    for p, b in func.buffer_map.items():
        if not p.dtype.is_handle:
            _fail(
                place,
                f"parameter {p.name} stands for a buffer, so it must be a handle, not {p.dtype}",
            )
        _check_buffer(b, place)
    if len({id(b.data) for b in buffers}) != len(buffers):
        _fail(place, "two parameters have the same buffer or the same data variable")
    if shared_size(func.body) > _MOST_STATEMENTS:
        _fail(place, f"more than {_MOST_STATEMENTS} statements")
    _Verifier(func, module).walk_function(func, name)


def _fail(place: Place, problem: str) -> NoReturn:
    span = place.nearest_span()
    lines = [f"{problem}", f"  in {place}"]
    text = str(span)
    if text != "unknown place":
        lines.append(f"  at {text}")
        pointer = span.pointer()
        if pointer:
            lines.append(pointer)
    raise VerifyError("\n".join(lines))


def _check_buffer(buffer: Any, place: Place) -> None:
    if not isinstance(buffer, Buffer):
        _fail(place, f"wanted a Buffer, got {type(buffer).__name__}")
    if buffer.dtype.kind in ("handle", "void"):
        _fail(place, f"buffer {buffer.name} cannot hold {buffer.dtype}")
    if not isinstance(buffer.data, Var) or not buffer.data.dtype.is_handle:
        _fail(place, f"buffer {buffer.name}: its data variable must be a handle")
    for e in (*buffer.shape, *buffer.strides, buffer.elem_offset):
        if e.dtype.lanes != 1:
            _fail(place, f"buffer {buffer.name}: shape, strides and offset are scalars")
        if isinstance(e, IntImm) and e.value < 0 and e not in buffer.strides:
            _fail(place, f"buffer {buffer.name} has the negative size {e.value}")


class _Verifier(ScopeWalker):
    def __init__(self, func: PrimFunc, module: IRModule | None) -> None:
        super().__init__()
        self.module = module
        self.result: DataType | None = None if func.ret_type is None else func.ret_type.dtype
        # How many blocks with axes are around here, and were around where each loop variable was
        # defined.
        self.blocks = 0
        self.loops: dict[int, int] = {}

    def on_undefined(self, what: Any, place: Place) -> None:
        kind = "buffer" if isinstance(what, Buffer) else "variable"
        _fail(place, f"{kind} {what.name} is used but not defined here")

    def on_defined(self, what: Any, place: Place, again: bool) -> None:
        if again:
            _fail(place, f"{what.name} is defined a second time where it is defined already")
        if isinstance(what, Buffer):
            _check_buffer(what, place)

    def on_used(self, var: Any, place: Place) -> None:
        if self.loops.get(id(var), self.blocks) < self.blocks:
            _fail(
                place,
                f"a block's body uses the loop variable {var.name} from outside the block; "
                "bind it to an axis of the block",
            )

    def on_block_body(self, entering: bool, realize: BlockRealize) -> None:
        if realize.block.iter_vars:
            self.blocks += 1 if entering else -1

    # -- statements --------------------------------------------------------------------------------

    def on_stmt(self, s: Any, place: Place) -> None:
        if place.depth > _DEEPEST:
            _fail(place, f"statements nest more than {_DEEPEST} deep")
        check = _CHECKS.get(type(s))
        if check is not None:
            check(self, s, place)
        elif not isinstance(s, Stmt) or type(s).__name__ == "Block":
            _fail(place, f"a {type(s).__name__} cannot stand here as a statement")

    def _check_for(self, s: For, place: Place) -> None:
        self.loops[id(s.loop_var)] = self.blocks
        here = place.below(f"for {s.loop_var.name}", s.span)
        if s.loop_var.dtype.lanes != 1:
            _fail(here, f"the loop variable is a {s.loop_var.dtype}, not a scalar")
        if s.kind == ForKind.VECTORIZED and not isinstance(s.extent, IntImm):
            _fail(here, "a vectorized loop needs a constant extent")
        if s.kind == ForKind.THREAD_BINDING and s.thread_binding is None:
            _fail(here, "a thread_binding loop does not say which thread it is bound to")

    def _condition(self, s: Any, place: Place) -> None:
        if s.condition.dtype != "bool":
            _fail(
                place.below(type(s).__name__, s.span),
                f"the condition is a {s.condition.dtype}, not a scalar bool",
            )

    def _check_evaluate(self, s: Evaluate, place: Place) -> None:
        value = s.value
        if type(value) is Call and value.op is INTRINSICS["ret"]:
            got = value.args[0].dtype
            if self.result is not None and got is not self.result:
                _fail(
                    place.below("return", s.span),
                    f"returns {got}, but the function is declared to return {self.result}",
                )

    def _check_allocate(self, s: Allocate, place: Place) -> None:
        self._allocation(s, place)
        self._condition(s, place)

    def _allocation(self, s: Any, place: Place) -> None:
        here = place.below(f"allocate {s.buffer_var.name}", s.span)
        if not isinstance(s.buffer_var, Var) or not s.buffer_var.dtype.is_handle:
            _fail(here, "the variable for allocated memory must be a handle")
        if s.dtype.kind in ("handle", "void"):
            _fail(here, f"memory cannot hold {s.dtype}")
        for e in s.extents:
            if e.dtype.lanes != 1 or (isinstance(e, IntImm) and e.value < 0):
                _fail(here, "extents must be scalars that are not negative")

    def _check_allocate_const(self, s: AllocateConst, place: Place) -> None:
        self._allocation(s, place)
        here = place.below(f"allocate_const {s.buffer_var.name}", s.span)
        count = s.dtype.lanes
        for e in s.extents:
            if not isinstance(e, IntImm):
                _fail(here, "the extents of a constant must be constant")
            count *= e.value
        if len(s.data) != count:
            _fail(here, f"the shape has {count} elements, the data {len(s.data)}")
        element = s.dtype.element
        for v in s.data:
            if not isinstance(v, (bool, int, float)):
                _fail(here, f"the data holds a {type(v).__name__}, not only numbers")
            if not element.is_float and (
                isinstance(v, float) or not element.min_value <= v <= element.max_value
            ):
                _fail(here, f"{v!r} is no {element}")

    def _check_block(self, s: BlockRealize, place: Place) -> None:
        block = s.block
        here = place.below(f"block {block.name_hint}", block.span)
        if s.predicate.dtype != "bool":
            _fail(here, f"the predicate is a {s.predicate.dtype}, not a scalar bool")
        for axis, value in zip(block.iter_vars, s.iter_values):
            name = axis.var.name
            if axis.dom is None:
                _fail(here, f"axis {name} has no domain")
            if axis.iter_type == "thread":
                _fail(here, f"axis {name} is a thread; a block's axes are spatial, reduce, …")
            if not axis.var.dtype.is_int or axis.var.dtype.lanes != 1:
                _fail(here, f"axis {name} is a {axis.var.dtype}, not an integer")
            if value.dtype is not axis.var.dtype:
                _fail(here, f"axis {name} is a {axis.var.dtype}, its value a {value.dtype}")
        for m in block.match_buffers:
            source = m.source.buffer
            if m.buffer.dtype is not source.dtype or m.buffer.ndim > source.ndim:
                _fail(here, f"match_buffer {m.buffer.name} does not fit its source {source.name}")

    # -- expressions -------------------------------------------------------------------------------

    def on_expr(self, n: Any, place: Place, root: bool) -> None:
        if n.dtype.lanes > _MAX_LANES:
            _fail(place, f"a vector of {n.dtype.lanes} lanes; at most {_MAX_LANES} are supported")
        if isinstance(n, BinaryExpr):
            self._binary(n, place)
        elif type(n) is Call:
            self._call(n, place, root)

    def _binary(self, n: BinaryExpr, place: Place) -> None:
        dtype = n.a.dtype
        if dtype.kind in ("handle", "void"):
            _fail(place, f"{type(n).__name__} of {dtype}s")
        if isinstance(n, (CompareExpr, Min, Max)) or (
            n.dtype.is_bool and n.symbol in ("and", "or")
        ):
            return
        if dtype.is_bool:
            _fail(place, f"{type(n).__name__} of bools; cast them to an integer type first")
        if type(n) is Mod and dtype.is_float:
            _fail(place, "Mod is of integers; use T.fmod for floats")

    def _call(self, n: Call, place: Place, root: bool) -> None:
        if isinstance(n.op, GlobalVar):
            self._call_function(n, n.op, place)
            return
        if not isinstance(n.op, Intrinsic):
            _fail(place, f"a loop function cannot call {n.op!r}")
        name = n.op.name.removeprefix("tir.")
        args: tuple[Any, ...] = n.args
        for a in args:
            if not isinstance(a, PrimExpr):
                _fail(place, f"{name}: an argument is a {type(a).__name__}, not an expression")
        dtypes = [a.dtype for a in args]
        if name == "ret":
            if not root or not place.label == "evaluate":
                _fail(place, "T.ret leaves the function; it must be a statement of its own")
        elif name == "if_then_else":
            if dtypes[0] != "bool":
                _fail(place, f"if_then_else wants a scalar bool condition, got {dtypes[0]}")
            if dtypes[1] is not n.dtype or dtypes[2] is not n.dtype:
                _fail(
                    place,
                    f"if_then_else gives {n.dtype}, its sides are {dtypes[1]} and {dtypes[2]}",
                )
        elif name == "reinterpret":
            (source,) = n.args
            if source.dtype.bits * source.dtype.lanes != n.dtype.bits * n.dtype.lanes:
                _fail(place, f"reinterpret of {source.dtype} as {n.dtype}: the sizes differ")
        elif name == "dot_accumulate":
            wrong = why_no_dot(n.dtype, *dtypes)
            if wrong:
                _fail(place, f"dot_accumulate: {wrong}")
        elif name == "address_of":
            if not isinstance(n.args[0], BufferLoad):
                _fail(place, "address_of wants a buffer element")
        elif name == "ldexp":
            if not dtypes[1].is_int or dtypes[1].lanes != n.dtype.lanes:
                _fail(place, f"ldexp wants an integer exponent, got {dtypes[1]}")
        elif name in ("vectorlow", "vectorhigh"):
            (vector,) = dtypes
            if vector.lanes % 2 or vector.with_lanes(vector.lanes // 2) is not n.dtype:
                _fail(place, f"{name} of {vector} is not {n.dtype}")
        elif n.op.result != "given" and any(d is not dtypes[0] for d in dtypes):
            _fail(place, f"{name}: the arguments' dtypes differ: {', '.join(map(str, dtypes))}")

    def _call_function(self, n: Call, gv: GlobalVar, place: Place) -> None:
        if self.module is None:
            return
        callee: BaseFunc | None = self.module.get(gv)
        if not isinstance(callee, PrimFunc):
            _fail(place, f"calls {gv.name_hint}, which is no loop function of this module")
        if len(callee.params) != len(n.args):
            _fail(
                place,
                f"calls {gv.name_hint} with {len(n.args)} arguments; "
                f"it has {len(callee.params)} parameters",
            )
        for p, a in zip(callee.params, n.args):
            if isinstance(a, Buffer):
                if p not in callee.buffer_map:
                    _fail(place, f"calls {gv.name_hint} with a buffer for {p.name}, a {p.dtype}")
            elif a.dtype is not p.dtype:
                _fail(place, f"calls {gv.name_hint} with a {a.dtype} for {p.name}, a {p.dtype}")


_CHECKS: dict[type, Any] = {
    For: _Verifier._check_for,
    While: _Verifier._condition,
    IfThenElse: _Verifier._condition,
    AssertStmt: _Verifier._condition,
    Evaluate: _Verifier._check_evaluate,
    Allocate: _Verifier._check_allocate,
    AllocateConst: _Verifier._check_allocate_const,
    BlockRealize: _Verifier._check_block,
}
