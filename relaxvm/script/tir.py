"""`T`: the loop language as script text writes it.

Inside ``@T.prim_func`` these names build statements; the same objects work outside too:
``T.float32(1)`` is a constant, ``T.exp(x)`` an expression, ``T.Buffer((16,), "float32")`` a buffer.
What stands for a statement (``T.block``, ``T.grid``, ``T.reads``, ...) only describes it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

from .. import target as _target
from ..base import SMALL_FLOATS, TIRError, submodules
from ..base import dtype as as_dtype
from ..ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    SizeVar,
    StringImm,
    Sub,
    Var,
    as_expr,
)
from ..ir import Call as _Call
from ..ir import Let as _Let
from ..ir import Range as _Range
from ..ir import cast as _cast
from ..target import Target as _Target
from ..te import CommReducer
from ..tir import BufferLoad, BufferRegion, IndexMap, IterVar
from ..tir import op as _op
from ..tir.op import *  # noqa: F403
from .reader import (
    VALUES,
    BufferArguments,
    BufferFunction,
    DTypeFunction,
    HandleFunction,
    buffer_arguments,
    decorate_function,
    decorate_macro,
    of_buffer,
    records,
)
from .reader.records import Step, marked, statement
from .reader.tir_suite import between, region_of

# -- functions


@marked(script_language="tir")
def prim_func(func: Any = None, **options: Any) -> Any:
    """Make a loop function out of a Python function.

    private            it has no public name
    check_well_formed  check it when it is read (default: True)
    Raises ParseError, pointing into the source, for text that is not in the language.
    """
    if func is None:
        return records.Definition("T.prim_func", _prim_func, options)
    return decorate_function(func, sys._getframe(1), "tir", options)


def _prim_func(func: Any, options: Any) -> Any:
    return decorate_function(func, sys._getframe(2), "tir", options)


@marked(script_language="macro")
def macro(func: Any = None, **options: Any) -> Any:
    """Make statements that are put in place wherever a loop function calls them.

    hygienic  free names mean what they mean at the definition (default), not at the call
    """
    if func is None:
        return lambda f: decorate_macro(f, options)
    return decorate_macro(func, options)


@statement
def func_attr(attrs: Mapping[str, Any]) -> records.FuncAttr:
    """Attributes of the function."""
    return records.FuncAttr(attrs)


# -- dtypes

bool = DTypeFunction("bool")
boolean = bool
int8 = DTypeFunction("int8")
int16 = DTypeFunction("int16")
int32 = DTypeFunction("int32")
int64 = DTypeFunction("int64")
uint1 = bool
uint8 = DTypeFunction("uint8")
uint16 = DTypeFunction("uint16")
uint32 = DTypeFunction("uint32")
uint64 = DTypeFunction("uint64")
float16 = DTypeFunction("float16")
bfloat16 = DTypeFunction("bfloat16")
float32 = DTypeFunction("float32")
float64 = DTypeFunction("float64")
void = DTypeFunction("void")
handle = HandleFunction("handle")
Ptr = handle


def ptr(dtype: Any, storage_scope: str = "", is_size_var: Any = False) -> Var:
    """A typed pointer variable."""
    return handle(dtype, storage_scope)


def var(dtype: str, name: str = "") -> Var:
    """A variable; it takes the name it is assigned to."""
    return Var(name, dtype)


_absent = submodules(__name__)


def __getattr__(name: str) -> Any:
    # Vector dtypes and small types: T.float32x4, T.float8_e4m3fn, T.int4.
    if _is_dtype(name):
        return DTypeFunction(name)
    return _absent(name)


def _is_dtype(name: str) -> Any:
    head, _, lanes = name.partition("x")
    if name in _SMALL:
        return True
    return (
        (head in _SCALARS or head in _SMALL)
        and 0 < len(lanes) <= 5
        and lanes.isdigit()
        and int(lanes) > 1
    )


_SMALL = {*SMALL_FLOATS, "int2", "int4", "uint2", "uint4"}
_SCALARS = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64",
}  # fmt: skip

# The names besides `__all__` that text may use.
_offers = _is_dtype

# -- buffers

Buffer = BufferFunction()
buffer = Buffer


@marked(takes_regions=True)
@statement
def match_buffer(
    param: Any,
    shape: Any = None,
    dtype: Any = None,
    *args: Any,
    **keywords: Any,
) -> records.MatchBuffer:
    """The buffer behind the parameter `param`, or a view of the region `param` inside a block; its
    arguments are those of `T.Buffer`.

    Variables first met in the shape, strides and offset are bound by what is matched.
    """
    source = param
    if isinstance(param, (BufferLoad, BufferRegion)):
        source = region_of(param)
        dtype = source.buffer.dtype if dtype is None else dtype
        shape = [r.extent for r in source.region] if shape is None else shape
    elif not isinstance(param, Var):
        raise TIRError(
            f"T.match_buffer: wanted a parameter or a region, got {type(param).__name__}"
        )
    if shape is None:
        raise TIRError("T.match_buffer of a parameter needs a shape")
    dtype = "float32" if dtype is None else dtype
    arguments = buffer_arguments("match_buffer", shape, dtype, *args, **keywords)
    return records.MatchBuffer(source, arguments.buffer())


@statement
@of_buffer(BufferArguments)
def alloc_buffer(arguments: BufferArguments) -> records.AllocBuffer:
    """A new buffer that belongs to the enclosing block (at the top: to the root block)."""
    return records.AllocBuffer(arguments.buffer())


sblock_alloc_buffer = alloc_buffer


@statement
@of_buffer(BufferArguments)
def decl_buffer(arguments: BufferArguments) -> records.DeclBuffer:
    """A buffer over the memory `data`; without `data` that memory is allocated too."""
    return records.DeclBuffer(arguments.buffer(), arguments.data is None)


@statement
def allocate(
    extents: Any,
    dtype: Any,
    scope: str = "global",
    condition: Any = None,
    annotations: Mapping[str, Any] | None = None,
) -> records.Allocate:
    """Memory of `extents` elements; gives the pointer."""
    return records.Allocate(extents, _dtype_of(dtype), scope, condition, annotations)


@statement
def allocate_const(
    data: Any, dtype: Any, extents: Any, annotations: Mapping[str, Any] | None = None
) -> records.AllocateConst:
    """Constant memory with the numbers `data`; gives the pointer."""
    return records.AllocateConst(data, _dtype_of(dtype), extents, annotations)


@statement
def buffer_store(buffer: Any, value: Any, indices: Any, predicate: Any = None) -> records.Store:
    """``buffer[indices] = value``; of a vector only the lanes where `predicate` is true."""
    return records.Store(buffer, value, indices, predicate)


def _dtype_of(dtype: Any) -> Any:
    return as_dtype(dtype.dtype if isinstance(dtype, DTypeFunction) else dtype)


# -- blocks


@statement
def block(name: str = "", no_realize: Any = False) -> records.BlockSpec:
    """A block: a unit of computation over axes."""
    return records.BlockSpec(name, no_realize)


sblock = block


@statement
def init() -> records.Init:
    """What a block does before the first iteration of its reduce axes."""
    return records.Init()


@statement
def where(predicate: Any) -> records.Where:
    """The block runs only where `predicate` holds."""
    return records.Where(predicate)


@marked(takes_regions=True)
@statement
def reads(*regions: Any) -> records.Reads:
    """What the block reads."""
    return records.Reads(regions)


@marked(takes_regions=True)
@statement
def writes(*regions: Any) -> records.Writes:
    """What the block writes."""
    return records.Writes(regions)


def target(config: Any, host: Any = None) -> _Target:
    """A target, as a value of attributes: ``T.func_attr({"target": T.target("llvm")})``."""
    described = _Target(config)
    return described if host is None else described.with_host(host)


@statement
def block_attr(attrs: Mapping[str, Any]) -> records.BlockAttr:
    """Annotations of the block."""
    return records.BlockAttr(attrs)


sblock_attr = block_attr


class _AxisFunctions:
    """``T.axis``: the iteration variables of a block."""

    @staticmethod
    @statement
    def spatial(dom: Any, value: Any = None, dtype: str | None = None) -> records.Axis:
        """An axis whose iterations are independent, bound to `value`."""
        return records.Axis("spatial", dom, value, dtype)

    @staticmethod
    @statement
    def reduce(dom: Any, value: Any = None, dtype: str | None = None) -> records.Axis:
        """An axis over which the block accumulates."""
        return records.Axis("reduce", dom, value, dtype)

    @staticmethod
    @statement
    def scan(dom: Any, value: Any = None, dtype: str | None = None) -> records.Axis:
        """An axis that must run in order."""
        return records.Axis("ordered", dom, value, dtype)

    @staticmethod
    @statement
    def opaque(dom: Any, value: Any = None, dtype: str | None = None) -> records.Axis:
        """An axis of which nothing is known."""
        return records.Axis("opaque", dom, value, dtype)

    @staticmethod
    @statement
    def remap(kinds: str, bindings: Any, dtype: str | None = None) -> records.Remap:
        """Axes over whole loops: one of `kinds`, "S" or "R", per loop variable."""
        return records.Remap(kinds, bindings, dtype)

    S = spatial
    R = reduce


axis = _AxisFunctions()
VALUES[_AxisFunctions] = "spatial reduce scan opaque remap S R"

# -- loops


def _loops(
    start: Any, stop: Any, kind: str, annotations: Any, thread: str = "", step: Any = None
) -> records.Loops:
    if stop is None:
        start, stop = 0, start
    return records.Loops((records.Loop(start, stop, kind, thread, step, annotations or {}),))


@statement
def serial(
    start: Any, stop: Any = None, *, annotations: Any = None, step: Any = None
) -> records.Loops:
    """A loop in order."""
    return _loops(start, stop, "serial", annotations, step=step)


@statement
def parallel(
    start: Any, stop: Any = None, *, annotations: Any = None, step: Any = None
) -> records.Loops:
    """A loop whose iterations are independent and may run at once."""
    return _loops(start, stop, "parallel", annotations, step=step)


@statement
def vectorized(
    start: Any, stop: Any = None, *, annotations: Any = None, step: Any = None
) -> records.Loops:
    """A loop of constant length that becomes vector operations."""
    return _loops(start, stop, "vectorized", annotations, step=step)


@statement
def unroll(
    start: Any, stop: Any = None, *, annotations: Any = None, step: Any = None
) -> records.Loops:
    """A loop that is written out."""
    return _loops(start, stop, "unroll", annotations, step=step)


@statement
def thread_binding(
    start: Any, stop: Any = None, thread: str | None = None, *, annotations: Any = None
) -> records.Loops:
    """A loop over the threads of a device, such as "threadIdx.x"."""
    if thread is None:
        if not isinstance(stop, str):
            raise TIRError('T.thread_binding needs thread="threadIdx.x" or another thread name')
        stop, thread = None, stop
    if not isinstance(thread, str):
        raise TIRError(f"T.thread_binding: thread is a string, got {thread!r}")
    return _loops(start, stop, "thread_binding", annotations, thread)


@statement
def grid(*extents: Any) -> records.Loops:
    """Nested loops, one per extent (or (begin, end))."""
    loops = []
    for extent in extents:
        start, stop = extent if isinstance(extent, (tuple, list)) else (0, extent)
        loops.append(records.Loop(start, stop, "serial"))
    if not loops:
        raise TIRError("T.grid needs at least one extent")
    return records.Loops(tuple(loops))


# -- other statements


@statement
def Assert(condition: Any, message: Any) -> records.Assert:
    """Leave with `message` unless `condition` holds."""
    return records.Assert(condition, message)


@statement
def attr(node: Any, attr_key: str, value: Any) -> records.Attr:
    """A remark about `node` for the statements under it."""
    return records.Attr(node, attr_key, value)


@statement
def LetStmt(value: Any, type_annotation: Any = None, *, var: Any = None) -> records.LetSpec:
    """A variable with that value: ``x = T.LetStmt(1)``, ``with T.LetStmt(1) as x:``, or the
    variable `var` made before: ``with T.LetStmt(1, var=x):``, ``T.LetStmt(1, var=x)``.
    """
    return records.LetSpec(value, type_annotation if var is None else var)


@marked(takes_regions=True)
@statement
def realize(buffer_slice: Any, storage_scope: str = "", condition: Any = True) -> records.Realize:
    """Memory for a buffer that has been declared, while what follows runs. All of the buffer gets
    memory, whatever part of it is named.
    """
    return records.Realize(region_of(buffer_slice), storage_scope, condition)


@statement
def break_loop() -> records.Jump:
    """Leave the loop, as ``break`` does."""
    return records.Jump(True)


@statement
def continue_loop() -> records.Jump:
    """Go on with the next iteration, as ``continue`` does."""
    return records.Jump(False)


@statement
def evaluate(value: Any) -> records.Eval:
    """Evaluate `value` for what it does."""
    return records.Eval(value)


@statement
def meta_var(value: Any) -> records.MetaVar:
    """``x = T.meta_var(e)``: x stands for the expression e itself, no variable is made."""
    return records.MetaVar(value)


@statement
def env_thread(thread_tag: str, dtype: str = "int32") -> records.EnvThread:
    """A thread of the device."""
    return records.EnvThread(thread_tag, dtype)


@statement
def launch_thread(thread: Any, extent: Any) -> records.LaunchThread:
    """Run what follows on `extent` threads."""
    return records.LaunchThread(thread, extent)


# -- what only an IRBuilder writes; text has Python's own statements for it


@statement
def arg(name: str, obj: Any) -> Step:
    """A parameter: ``A = T.arg("A", T.Buffer((16,), "float32"))``."""
    return Step("T.arg", "arg", (name, obj))


@statement
def func_name(name: str) -> Step:
    """The name of the function."""
    return Step("T.func_name", "func_name", (name,))


@statement
def func_ret(ret_type: Any) -> Step:
    """The dtype of what the function returns."""
    return Step("T.func_ret", "func_ret", (ret_type,))


@statement
def While(condition: Any) -> Step:
    """``with T.While(condition):`` a loop as long as `condition` holds."""
    return Step("T.While", "while_", (condition,))


@statement
def If(condition: Any) -> Step:
    """``with T.If(condition):``, and inside it `T.Then` and, if wanted, `T.Else`."""
    return Step("T.If", "if_", (condition,))


@statement
def Then() -> Step:
    """``with T.Then():`` what runs if the condition of `T.If` holds."""
    return Step("T.Then", "then")


@statement
def Else() -> Step:
    """``with T.Else():`` what runs if it does not."""
    return Step("T.Else", "otherwise_")


# -- expressions


def cast(value: Any, dtype: Any) -> PrimExpr:
    """`value` converted to `dtype`; constants are converted at once. ``T.cast("float32", x)`` is
    understood too.
    """
    if isinstance(value, (str, DTypeFunction)):
        value, dtype = dtype, value
    return _cast(_dtype_of(dtype), value)


def Let(expr: Any, where: Any = None, *rest: Any) -> PrimExpr:
    """``T.Let(body, where={x: value})``, or ``T.Let(x, value, body)``."""
    if rest:
        return _Let(expr, where, rest[0])
    if not isinstance(where, Mapping) or not where:
        raise TIRError("T.Let: wanted T.Let(body, where={x: value})")
    body = as_expr(expr)
    for name, value in reversed(list(where.items())):
        if not isinstance(name, Var):
            raise TIRError(f"T.Let: wanted a variable as the key, got {name!r}")
        body = _Let(name, as_expr(value, name.dtype), body)
    return body


def Call(dtype: Any, op: Any, args: Any) -> PrimExpr:
    """A call with everything said: ``T.Call("float32", "tir.exp", [x])``."""
    return _Call(_dtype_of(dtype), op, tuple(args))


def comm_reducer(combiner: Any, identity: Any) -> CommReducer:
    """A reducer as a value of attributes, such as
    ``T.comm_reducer(lambda x, y: x + y, [T.float32(0)])``.

    combiner  takes the values on the left, then those on the right; gives the combined ones
    identity  the value, or each of the values, to start from
    """
    starts = [as_expr(e) for e in (identity if isinstance(identity, (list, tuple)) else [identity])]
    names = list(inspect.signature(combiner).parameters)
    if len(names) != 2 * len(starts):
        raise TIRError(
            f"T.comm_reducer: {len(starts)} values need a combiner of {2 * len(starts)} arguments, "
            f"got {len(names)}"
        )
    variables = [Var(name, start.dtype) for name, start in zip(names, [*starts, *starts])]
    combined = combiner(*variables)
    results = combined if isinstance(combined, (list, tuple)) else [combined]
    left, right = variables[: len(starts)], variables[len(starts) :]
    result = [as_expr(e, start.dtype) for e, start in zip(results, starts)]
    if len(results) != len(starts) or [e.dtype for e in result] != [e.dtype for e in starts]:
        raise TIRError("T.comm_reducer: the combiner gives one value for each to start from")
    return CommReducer(tuple(left), tuple(right), tuple(result), tuple(starts))


def llvm_lookup_intrinsic_id(name: str) -> int:
    """See `target.codegen.llvm_lookup_intrinsic_id`."""
    return _target.codegen.llvm_lookup_intrinsic_id(name)


def index_map(
    mapping: Any, *, inverse_index_map: Any = None, index_dtype: str = "int64"
) -> IndexMap:
    """A map of indices as a value: ``T.index_map(lambda i, j: (i // 4, j, i % 4))``.

    inverse_index_map  the map back, where it does not follow from the map
    """
    if isinstance(mapping, IndexMap):
        return mapping
    index_map_of, _ = IndexMap.from_func_with_separators(
        mapping, inverse_index_map=inverse_index_map, index_dtype=index_dtype
    )
    return index_map_of.only_arithmetic()


def Range(begin: Any, end: Any = None) -> _Range:
    """The integers from `begin` up to `end`; from 0 to `begin` if that is all."""
    return _Range.from_min_extent(*(between(0, begin) if end is None else between(begin, end)))


def ramp(base: Any, stride: Any, lanes: Any) -> PrimExpr:
    """The vector base, base + stride, ... of `lanes` elements."""
    return Ramp(base, stride, lanes)


def iter_var(var: Any, dom: Any, iter_type: str, thread_tag: str = "") -> IterVar:
    """An axis by itself, as attributes may mention one. `iter_type` is TVM's name, such as
    "DataPar".
    """
    kinds = {
        "DataPar": "spatial",
        "ThreadIndex": "thread",
        "CommReduce": "reduce",
        "Ordered": "ordered",
        "Opaque": "opaque",
    }
    return IterVar(dom, var, kinds.get(iter_type, iter_type), thread_tag)


__all__ = [
    "Add",
    "And",
    "Assert",
    "Broadcast",
    "Buffer",
    "Call",
    "Cast",
    "Div",
    "EQ",
    "Else",
    "FloatImm",
    "FloorDiv",
    "FloorMod",
    "GE",
    "GT",
    "If",
    "IntImm",
    "IterVar",
    "LE",
    "LT",
    "Let",
    "LetStmt",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "NE",
    "Not",
    "Or",
    "Ptr",
    "Ramp",
    "Range",
    "Select",
    "Shuffle",
    "SizeVar",
    "StringImm",
    "Sub",
    "Then",
    "Var",
    "While",
    "alloc_buffer",
    "allocate",
    "allocate_const",
    "arg",
    "attr",
    "axis",
    "bfloat16",
    "block",
    "block_attr",
    "bool",
    "boolean",
    "break_loop",
    "buffer",
    "buffer_store",
    "cast",
    "comm_reducer",
    "continue_loop",
    "decl_buffer",
    "env_thread",
    "evaluate",
    "float16",
    "float32",
    "float64",
    "func_attr",
    "func_name",
    "func_ret",
    "grid",
    "handle",
    "index_map",
    "init",
    "int16",
    "int32",
    "int64",
    "int8",
    "iter_var",
    "launch_thread",
    "llvm_lookup_intrinsic_id",
    "macro",
    "match_buffer",
    "meta_var",
    "parallel",
    "prim_func",
    "ptr",
    "ramp",
    "reads",
    "realize",
    "sblock",
    "sblock_alloc_buffer",
    "sblock_attr",
    "serial",
    "target",
    "thread_binding",
    "uint1",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "unroll",
    "var",
    "vectorized",
    "void",
    "where",
    "writes",
]
__all__ += _op.__all__
# Bounds are checked where a buffer is indexed, and a choice is written `T.Select`.
__all__.remove("bound_check")
__all__.remove("select")
del bound_check, select  # noqa: F821
