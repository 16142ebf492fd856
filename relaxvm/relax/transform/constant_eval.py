"""The value of a call whose arguments are all constants, computed while compiling.

Loop functions are compiled (once each) and run, so that the bits are those that the program would
have computed. An operator is legalised first, and its loop functions are run; one that only moves
elements or works on integers has exactly one meaning and is evaluated in numpy, without a compiler.
"""

from __future__ import annotations

import atexit
import math
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...arith import Analyzer
from ...base import RelaxvmError, declined, telling
from ...ir import Call as PrimCall
from ...ir import (
    GlobalVar,
    IntImm,
    Intrinsic,
    IRModule,
    PassContext,
    Range,
    descend,
    structural_digest,
    walk,
)
from ...runtime import NDArray, empty, wrap_unchecked
from ...runtime import array as as_array
from ...target import Target
from ...target import build as build_kernels
from ...tir import Block, For, PrimFunc, Stmt, While, decl_buffer, specialize
from ..derive import is_base_of
from ..expr import (
    BindingBlock,
    Call,
    Constant,
    DataTypeImm,
    Function,
    PrimValue,
    SeqExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    is_leaf,
)
from ..flow import is_symbolic, leaves
from ..known_ops import CALL_TIR, ops_named
from ..op.meaning import evaluate, to_storage
from ..op.record import Op
from ..struct_info import (
    Expr,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    parts,
)
from .legalize_ops import LegalizeOps
from .value_keys import ValueKeys

_MAX_STEPS = 1 << 28
"""A loop function of more iterations is not run while compiling."""
# Constants of at least so many bytes may be views of others.
_VIEWED_BYTES = 1 << 16
_CACHED_KERNELS = 256
_HARMLESS = frozenset({"tir.ret"})
# Operators that only move, select or convert elements: numpy's result is the only one.
_MOVES = ops_named(
    "reshape flatten squeeze expand_dims broadcast_to permute_dims concat split stack "
    "strided_slice dynamic_strided_slice take gather_elements gather_nd scatter_elements "
    "scatter_nd slice_scatter index_put index_tensor tile repeat flip roll tril triu zeros "
    "ones full zeros_like ones_like full_like eye eye_like where astype layout_transform "
    "one_hot meshgrid nn.pad nn.depth_to_space nn.space_to_depth nn.pixel_shuffle "
    "reverse_sequence shape_of tensor_to_shape shape_to_tensor size sort argsort topk unique "
    "nonzero argmax argmin max min equal not_equal less less_equal greater greater_equal "
    "isnan isinf isfinite bucketize searchsorted negative abs nn.relu maximum minimum"
)
# Never computed here: what they give depends on more than their arguments' values.
_NEVER = ("relax.builtin.", "relax.memory.", "relax.vm.", "relax.inspect.", "relax.grad.")


class ConstantEvaluator:
    """Computes calls on constants for the functions of `mod`, equal ones once.

    max_bytes  results larger than this and than the constants they are made of are not computed
    """

    def __init__(self, mod: IRModule, ctx: PassContext, max_bytes: int) -> None:
        self.mod = mod
        self.ctx = ctx
        self.max_bytes = max_bytes
        self.exact = ctx.get("numerics") == "exact"
        self._keys = ValueKeys()
        # By key: the call, which keeps alive what the key is made of, and its value.
        self._values: dict[Any, tuple[Call, Expr | None]] = {}

    def value(self, call: Call) -> Expr | None:
        """A constant (or tuple of constants, or shape) equal to `call`, or None if it is better
        left to run time.
        """
        key = self._keys.call(call)
        entry = self._values.get(key)
        if entry is None:
            entry = self._values[key] = (call, self._value(call))
        return entry[1]

    def _value(self, call: Call) -> Expr | None:
        allowed = max(self.max_bytes, _bytes_of(call.args))
        if call.op is CALL_TIR:
            constant = self._kernel_call(call, self.mod, allowed)
        elif isinstance(call.op, Op):
            constant = self._operator(call, allowed)
        else:
            return None
        if constant is None or not is_base_of(call.struct_info, constant.struct_info):
            return None
        return constant if _is_allowed(call, _constant_bytes(constant), allowed) else None

    # -- operators --------------------------------------------------------------------------------

    def _operator(self, call: Call, allowed: int) -> Expr | None:
        op: Any = call.op
        if not op.pure or not callable(op.numpy) or op.name.startswith(_NEVER):
            return None
        size = _result_bytes(call.struct_info)
        if size is None:
            # Sized by the data: never more than a few times that.
            size = 4 * _bytes_of(call.args)
        if not _is_allowed(call, size, allowed):
            return None
        if op in _MOVES or not _has_floats(call):
            return self._meaning(call)
        constant = self._legalised(call, allowed)
        if constant is None and not self.exact:
            return self._meaning(call)
        return constant

    def _meaning(self, call: Call) -> Expr | None:
        try:
            return _as_constant(evaluate(call), call.struct_info)
        except Exception:
            # What has no value (an index out of range) fails where it runs, if it runs.
            return None

    def _legalised(self, call: Call, allowed: int) -> Expr | None:
        """`call` by the loop functions that stand for it; None if more than these do."""
        out = Var("out", call.struct_info)
        body = SeqExpr((BindingBlock((VarBinding(out, call),)),), out)
        try:
            mod = LegalizeOps.run(IRModule({"main": Function((), body)}), self.ctx)
        except RelaxvmError:
            return None
        main = mod["main"]
        assert isinstance(main, Function)
        known: dict[Var, Expr] = {}
        for block in main.body.blocks:
            for b in block.bindings:
                if type(b) is not VarBinding:
                    return None
                constant = self._simple(_resolved(b.value, known), mod, allowed)
                if constant is None:
                    return None
                known[b.var] = constant
        result = _resolved(main.body.body, known)
        return result if is_constant(result) else None

    def _simple(self, value: Expr, mod: IRModule, allowed: int) -> Expr | None:
        if isinstance(value, Call):
            if value.op is CALL_TIR:
                return self._kernel_call(value, mod, allowed)
            return self._meaning(value) if _is_move(value) else None
        return value if is_constant(value) else None

    # -- loop functions ---------------------------------------------------------------------------

    def _kernel_call(self, call: Call, mod: IRModule, allowed: int) -> Expr | None:
        fn = mod.get(call.args[0])
        args: Any = call.args[1].fields if isinstance(call.args[1], Tuple) else (call.args[1],)
        info = call.sinfo_args[0]
        declared = info.fields if isinstance(info, TupleStructInfo) else (info,)
        outputs = [o for o in declared if isinstance(o, TensorStructInfo)]
        size = _result_bytes(info)
        if not isinstance(fn, PrimFunc) or size is None or size > allowed:
            return None
        tir_vars: Any = call.args[2:]
        scalars = [int(d.value) for shape in tir_vars for d in shape.values]
        if len(outputs) != len(declared):
            return None
        try:
            inputs = [a.data if isinstance(a, Constant) else int(a.value.value) for a in args]
            shapes = [tuple(a.shape) if isinstance(a, NDArray) else a for a in inputs]
            results = [empty(_dims(o), o.dtype) for o in outputs]
            operands = [*shapes, *(r.shape for r in results), *scalars]
            if not _may_run(fn, operands):
                return None
            _compiled(fn)(*inputs, *results, *scalars)
        except (RelaxvmError, AttributeError, TypeError, ValueError):
            # The call is checked where it runs; what is wrong with it is said there.
            return None
        constants = [Constant(r) for r in results]
        return Tuple(constants) if isinstance(info, TupleStructInfo) else constants[0]


def is_constant(value: Any) -> bool:
    """Whether `value` is a leaf whose value is known: an array, a number, a shape, a text, or a
    tuple of such.
    """
    return is_leaf(value) and all(map(_is_known, leaves(value)))


def _is_known(leaf: Any) -> bool:
    if isinstance(leaf, Constant):
        return getattr(leaf.struct_info, "vdevice", None) is None
    if isinstance(leaf, (PrimValue, ShapeExpr)):
        return not is_symbolic(leaf)
    return isinstance(leaf, (StringImm, DataTypeImm))


def _resolved(value: Any, known: dict[Var, Expr]) -> Any:
    """`value` with the variables in `known` replaced; deep tuples only where they are flat."""
    if isinstance(value, Var):
        return known.get(value, value)
    if isinstance(value, Tuple):
        return value.replace(fields=tuple([_resolved_leaf(f, known) for f in value.fields]))
    if isinstance(value, TupleGetItem):
        held = _resolved_leaf(value.tuple_value, known)
        return held.fields[value.index] if isinstance(held, Tuple) else value
    if isinstance(value, Call):
        return value.replace(args=tuple([_resolved(a, known) for a in value.args]))
    return value


def _resolved_leaf(value: Any, known: dict[Var, Expr]) -> Any:
    return known.get(value, value) if isinstance(value, Var) else value


# -- sizes and dtypes -----------------------------------------------------------------------------


def _bytes_of(values: Iterable[Any]) -> int:
    return sum(
        int(v.data.numpy().nbytes)
        for value in values
        for v in leaves(value)
        if isinstance(v, Constant)
    )


def _constant_bytes(value: Expr) -> int:
    return _bytes_of((value,))


def _is_allowed(call: Call, size: int, allowed: int) -> bool:
    if size > allowed:
        declined(
            "{} not computed while compiling: {} bytes, and relax.FoldConstant.max_bytes and its "
            "arguments are {}",
            call,
            size,
            allowed,
        )
    return size <= allowed


def _result_bytes(info: StructInfo) -> int | None:
    """The bytes of a value of `info`; None if they are not known, or it is none of ours."""
    if isinstance(info, TupleStructInfo):
        sizes = [size for f in info.fields if (size := _result_bytes(f)) is not None]
        return sum(sizes) if len(sizes) == len(info.fields) else None
    if isinstance(info, (ShapeStructInfo, PrimStructInfo)):
        return 0
    if not isinstance(info, TensorStructInfo) or info.vdevice is not None:
        return 1 << 62
    dims = [d.value for d in info.dims or () if isinstance(d, IntImm)]
    if info.dims is None or len(dims) != len(info.dims):
        return None
    return math.prod(dims) * ((info.dtype.bits + 7) // 8)


def _dims(info: Any) -> tuple[int, ...]:
    return tuple(int(d.value) for d in info.dims)


def _has_floats(call: Call) -> bool:
    infos = (call.struct_info, *(a.struct_info for a in call.args))
    return any(
        not (part.dtype.is_int or part.dtype.is_bool)
        for info in infos
        for part in parts(info)
        if isinstance(part, (TensorStructInfo, PrimStructInfo))
    )


def _is_move(call: Call) -> bool:
    op = call.op
    return isinstance(op, Op) and op in _MOVES and callable(op.numpy)


def _as_constant(value: Any, info: StructInfo) -> Expr | None:
    """What a meaning gave, as a constant expression."""
    if isinstance(info, TupleStructInfo):
        known = (_as_constant(v, f) for v, f in zip(value, info.fields))
        fields = [field for field in known if field is not None]
        return Tuple(fields) if len(fields) == len(info.fields) else None
    if isinstance(info, ShapeStructInfo):
        return ShapeExpr(tuple(int(d) for d in value))
    if isinstance(info, TensorStructInfo) and info.dtype != "void":
        stored = to_storage(np.asarray(value), info.dtype)
        if _is_all_of_a_large_array(stored):
            # A weight in another order stays a view: whatever packs it reads it once, and what is
            # not packed is copied when code is generated.
            return Constant(wrap_unchecked(stored, info.dtype))
        return Constant(as_array(stored, dtype=info.dtype))
    return None


def _is_all_of_a_large_array(value: np.ndarray) -> bool:
    base: Any = value.base
    while isinstance(base, np.ndarray) and isinstance(base.base, np.ndarray):
        base = base.base
    large = value.nbytes >= _VIEWED_BYTES and isinstance(base, np.ndarray)
    return large and value.nbytes + _VIEWED_BYTES >= base.nbytes


# -- compiled loop functions ----------------------------------------------------------------------

_kernels: OrderedDict[bytes, Any] = OrderedDict()
_lock = threading.Lock()
# Machine code is let go of while what it needs for that is still there.
atexit.register(_kernels.clear)


def _compiled(fn: PrimFunc) -> Any:
    """`fn` as a function of arrays; compiled once per process."""
    digest = structural_digest(fn.without_attr("global_symbol"))
    with _lock:
        known = _kernels.get(digest)
        if known is not None:
            _kernels.move_to_end(digest)
            return known
    with telling(None):
        kernel = build_kernels(fn, Target("llvm"), name="folded")["folded"]
    with _lock:
        _kernels[digest] = kernel
        while len(_kernels) > _CACHED_KERNELS:
            _kernels.popitem(last=False)
    return kernel


def _may_run(fn: PrimFunc, operands: list[Any]) -> bool:
    """Whether `fn` only computes, and ends soon, on arrays of these shapes and these scalars."""
    for n in walk(fn.body):
        if isinstance(n, While):
            return False
        if type(n) is PrimCall:
            if isinstance(n.op, GlobalVar):
                return False
            if isinstance(n.op, Intrinsic) and n.op.effect == "opaque":
                if n.op.name not in _HARMLESS:
                    return False
    fixed: dict[Any, Any] = {}
    for param, value in zip(fn.params, operands):
        buffer = fn.buffer_map.get(param)
        if buffer is None:
            fixed[param] = value
        elif not all(isinstance(d, IntImm) for d in buffer.shape):
            fixed[param] = decl_buffer(value, buffer.dtype, buffer.name)
    return _steps(specialize(fn, fixed) if fixed else fn) <= _MAX_STEPS


def _steps(fn: PrimFunc) -> float:
    """The most iterations that the loops of `fn` can make in all; infinite if nothing bounds
    them.
    """
    analyzer = Analyzer(wrap=False)
    total = 0.0

    def inside(item: tuple[Any, float]) -> list[tuple[Any, float]]:
        nonlocal total
        s, times = item
        if isinstance(s, For):
            bound = analyzer.const_int_bound(s.extent).max_value
            times = times * bound if bound is not None and bound < 1 << 40 else math.inf
            total += times
            analyzer.bind(s.loop_var, Range.from_min_extent(s.min, s.extent), allow_override=True)
        return [(c, times) for c in s._children_ if isinstance(c, (Stmt, Block))]

    for _ in descend((fn.body, 1.0), inside):
        if total > _MAX_STEPS:
            break
    return total
