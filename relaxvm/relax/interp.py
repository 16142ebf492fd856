"""What a module of graph functions means, at any stage of a build, computed binding by binding: no
pass, no bytecode and no machine code takes part.

    Evaluator(mod)("main", x, y)

Operators are what their records say in numpy, loop functions what `tir.interpret` gives. Where
memory is explicit, storages are memory, tensors share it as planned, and the virtual machine's own
functions are run as they are. Memory that nobody wrote holds rubbish, and what was killed cannot be
read, so that a module that depends on either differs or fails.

Values may be nested (`ToGraphNormalForm`): functions are run in normal form.

Inside, an array is a runtime array (`NDArray`), a shape a tuple of ints, a scalar a Python number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..base import DataType, LimitError, VMError, VMTypeError, VMValueError, to_numpy_dtype
from ..ir import BaseFunc, GlobalVar, IntImm, IRModule, Op, PrimExpr
from ..ir import Var as TirVar
from ..runtime import (
    TABLE,
    Builtins,
    DimProgram,
    NDArray,
    ShapeTuple,
    Storage,
    VMSequence,
    as_ndarray,
    get_global_func,
    wrap_unchecked,
)
from ..tir import PrimFunc, evaluate_expr, interpret
from .analysis.written import may_share
from .derive import definable_tir_vars_in_struct_info
from .expr import (
    Binding,
    Call,
    Constant,
    DataTypeImm,
    ExternFunc,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
)
from .flow import vars_in
from .normal_form import Normalizer, names_in
from .op.meaning import evaluate as operator_value
from .op.meaning import from_storage, to_storage, value_dtype
from .struct_info import (
    PrimStructInfo,
    SequenceStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)

RunKernel = Callable[[PrimFunc, tuple[Any, ...], IRModule], None]
"""Runs a loop function of a module on arrays and numbers, the arrays it writes among them."""


def run_kernel(fn: PrimFunc, args: tuple[Any, ...], mod: IRModule) -> None:
    """`fn` as the loop language means it."""
    interpret(fn, *args, module=mod)


class CheckFailed(VMValueError):
    """A value is not what a parameter or a match_cast says."""


class _Dead:
    """What a variable holds after it was killed."""


_RUBBISH = 0xA5


class _Closure:
    """A function with the values around it, and those given to make_closure."""

    __slots__ = ("captured", "evaluator", "fn", "frame")

    def __init__(
        self,
        evaluator: Evaluator,
        fn: Any,
        frame: _Frame | None = None,
        captured: tuple[Any, ...] = (),
    ) -> None:
        self.evaluator, self.fn, self.frame, self.captured = evaluator, fn, frame, captured

    def __call__(self, *args: Any) -> Any:
        operands = (*args, *self.captured)
        if isinstance(self.fn, PrimFunc):
            return self.evaluator.kernel(self.fn, operands)
        return self.evaluator.call(self.fn, operands, self.frame)


class _Frame:
    """The variables and symbols of a call."""

    __slots__ = ("name", "symbols", "values")

    def __init__(self, name: str, values: dict[Var, Any], symbols: dict[TirVar, Any]) -> None:
        self.name, self.values, self.symbols = name, values, symbols


class Evaluator:
    """Runs the functions of `mod`.

    functions  packed functions by name; others are those registered
    kernels    what runs loop functions
    observe    given the function's name, the binding and the value of each
    printed    what R.print was given, in order
    operators  how many calls were of an operator's meaning in numpy

    Raises what running the module raises: errors of VMError's classes, most of them.
    """

    def __init__(
        self,
        mod: IRModule,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        kernels: RunKernel = run_kernel,
        observe: Callable[[str, Binding, Any], None] | None = None,
    ) -> None:
        self.mod = mod
        self.functions = functions or {}
        self.printed: list[Any] = []
        self.operators = 0
        self._kernels = kernels
        self._observe = observe
        self._constants: dict[int, tuple[Constant, NDArray]] = {}
        self._normal: dict[int, tuple[Function, Function]] = {}

    def __call__(self, name: str, *args: Any) -> Any:
        """The result of a function, arrays as numpy arrays of its values (bfloat16 as float32)."""
        return values_of(self.run(name, *args))

    def run(self, name: str, *args: Any) -> Any:
        """The result of a function as the machine would give it."""
        fn = self._graph_function(self.mod[name], name)
        if len(args) == len(fn.params):
            args = tuple(_taken(p.struct_info, a) for p, a in zip(fn.params, args))
        try:
            return self.call(fn, args, None, name)
        except RecursionError:
            raise LimitError(f"{name}: calls nest too deep") from None

    @staticmethod
    def _graph_function(fn: BaseFunc, name: str) -> Function:
        if not isinstance(fn, Function):
            raise VMTypeError(f"{name}: wanted a graph function, got {type(fn).__name__}")
        return fn

    def call(
        self, fn: Function, args: tuple[Any, ...], outer: _Frame | None, name: str = ""
    ) -> Any:
        """`fn` on values; `outer` is the frame around an inner function."""
        frame = _Frame(name, {}, {})
        if outer is None:
            known = self._normal.get(id(fn)) or (fn, Normalizer(names_in(fn)).function(fn))
            self._normal[id(fn)] = known
            fn = known[1]
        else:
            frame = _Frame(outer.name, dict(outer.values), dict(outer.symbols))
        if len(args) != len(fn.params):
            raise CheckFailed(f"{len(args)} arguments for {len(fn.params)} parameters")
        for p in fn.params:
            for symbol in definable_tir_vars_in_struct_info(p.struct_info):
                frame.symbols.pop(symbol, None)
        for p, a in zip(fn.params, args):
            self._define(p.struct_info, a, frame)
        for p, a in zip(fn.params, args):
            self._check(p.struct_info, a, frame)
            frame.values[p] = a
        return self._seq(fn.body, frame)

    def kernel(self, fn: PrimFunc, args: Iterable[Any]) -> None:
        """A loop function on values, shapes spread into their sizes."""
        self._kernels(fn, tuple(args), self.mod)

    def _seq(self, seq: SeqExpr, frame: _Frame) -> Any:
        for block in seq.blocks:
            for b in block.bindings:
                value = self._value(b.value, frame, b.var)
                if isinstance(b, MatchCast):
                    self._define(b.struct_info, value, frame)
                    self._check(b.struct_info, value, frame)
                frame.values[b.var] = value
                if self._observe is not None:
                    self._observe(frame.name, b, value)
        return self._leaf(seq.body, frame)

    # -- struct info ------------------------------------------------------------------------------

    def _define(self, info: StructInfo, value: Any, frame: _Frame) -> None:
        for dim, size in _dims(info, value):
            if isinstance(dim, TirVar):
                frame.symbols.setdefault(dim, size)

    def _check(self, info: StructInfo, value: Any, frame: _Frame) -> None:
        for dim, size in _dims(info, value):
            if self._scalar(dim, frame) != size and not dim.dtype.is_float:
                raise CheckFailed(f"wanted {dim}, got {size}")

    def _scalar(self, e: PrimExpr, frame: _Frame) -> Any:
        return e.value if isinstance(e, IntImm) else evaluate_expr(e, frame.symbols).item()

    # -- values -----------------------------------------------------------------------------------

    def _leaf(self, e: Any, frame: _Frame) -> Any:
        if isinstance(e, Var):
            value = frame.values[e]
            if value is _Dead:
                raise VMError(f"{e.name_hint} is read after it was killed")
            return value
        if isinstance(e, Tuple):
            return tuple(self._leaf(f, frame) for f in e.fields)
        if isinstance(e, Constant):
            return self._constant(e)
        if isinstance(e, ShapeExpr):
            return ShapeTuple([self._scalar(d, frame) for d in e.values])
        if isinstance(e, PrimValue):
            return self._scalar(e.value, frame)
        if isinstance(e, GlobalVar):
            return _Closure(self, self.mod[e])
        if isinstance(e, ExternFunc):
            return self._packed(e.global_symbol)
        return e.value if isinstance(e, (StringImm, DataTypeImm)) else e

    def _constant(self, e: Constant) -> NDArray:
        """Its array, that may not be written."""
        known = self._constants.get(id(e))
        if known is None:
            view = e.data.array.view()
            view.flags.writeable = False
            known = self._constants[id(e)] = e, wrap_unchecked(view, e.data.dtype)
        return known[1]

    def _value(self, e: Any, frame: _Frame, var: Var) -> Any:
        if isinstance(e, If):
            branch = e.true_branch if bool(self._leaf(e.cond, frame)) else e.false_branch
            # What a branch casts to is not known after it.
            return self._seq(branch, _Frame(frame.name, frame.values, dict(frame.symbols)))
        if isinstance(e, Function):
            closure = _Closure(self, e, frame)
            frame.values[var] = closure
            return closure
        if isinstance(e, TupleGetItem):
            return self._leaf(e.tuple_value, frame)[e.index]
        return self._call(e, frame) if isinstance(e, Call) else self._leaf(e, frame)

    def _call(self, e: Call, frame: _Frame) -> Any:
        op = e.op
        if isinstance(op, Op):
            special = _SPECIAL.get(op.name.removeprefix("relax."))
            return self._operator(e, frame) if special is None else special(self, e, frame)
        args = [self._leaf(a, frame) for a in e.args]
        if isinstance(op, GlobalVar):
            callee = self.mod[op]
            if isinstance(callee, PrimFunc):
                return self.kernel(callee, args)
            callee = self._graph_function(callee, op.name_hint)
            return self.call(callee, tuple(args), None, op.name_hint)
        return _as_values(self._leaf(op, frame)(*args))

    def _operator(self, e: Call, frame: _Frame) -> Any:
        """A call by its meaning in numpy: a value of its own, but where the operator may share."""
        self.operators += 1
        read = {v: self._leaf(v, frame) for a in e.args for v in vars_in(a)}
        used = {v: values_of(x, v.struct_info) for v, x in read.items()}
        result = operator_value(e, used, frame.symbols)
        shared = list(may_share(e))
        return _runtime_value(e.struct_info, result, () if shared else _arrays(used.values()))

    def _packed(self, name: str) -> Callable[..., Any]:
        own = self.functions.get(name)
        if own is not None:
            return own
        row = TABLE.get(name)
        if row is None:
            registered = get_global_func(name)
            assert registered is not None
            return registered
        special = _SPECIAL_BUILTINS.get(name)
        if special is not None:
            return functools.partial(special, self)
        function = row.function
        return (lambda *args: function(None, *args)) if row.account else function

    # -- operators that are no computation --------------------------------------------------------

    def _print_values(self, *args: Any) -> Any:
        # The first is the format.
        self.printed.append([np.asarray(values_of(a)).tolist() for a in args[1:]])
        return ()

    def _print(self, e: Call, frame: _Frame) -> Any:
        return self._print_values(*(self._leaf(a, frame) for a in e.args))

    def _make_closure(self, e: Call, frame: _Frame) -> Any:
        closure, captured = (self._leaf(a, frame) for a in e.args)
        return _Closure(self, closure.fn, closure.frame, (*captured, *closure.captured))

    def _call_with_tuple(self, e: Call, frame: _Frame) -> Any:
        function, args = (self._leaf(a, frame) for a in e.args)
        return _as_values(function(*args))

    def _call_packed(self, e: Call, frame: _Frame) -> Any:
        function, *args = (self._leaf(a, frame) for a in e.args)
        return _as_values(function(*args))

    def _call_tir(self, e: Call, frame: _Frame) -> Any:
        """`call_tir`, `call_tir_inplace` and `call_dps_packed`."""
        function, args = self._leaf(e.args[0], frame), list(self._leaf(e.args[1], frame))
        info = e.sinfo_args[0]
        outputs: tuple[Any, ...] = info.fields if isinstance(info, TupleStructInfo) else (info,)
        places = e.attrs.get("inplace_indices", (-1,) * len(outputs))
        results, fresh = [], []
        for output, place in zip(outputs, places):
            if place >= 0:
                if not args[place].array.flags.writeable:
                    # A constant: builds copy it.
                    args[place] = wrap_unchecked(args[place].array.copy(), args[place].dtype)
                results.append(args[place])
                continue
            array = self._alloc(tuple(self._scalar(d, frame) for d in output.dims), output.dtype)
            results.append(array)
            fresh.append(array)
        scalars = self._leaf(e.args[2], frame) if len(e.args) > 2 else ()
        function(*args, *fresh, *scalars)
        return tuple(results) if isinstance(info, TupleStructInfo) else results[0]

    def _call_tir_dyn(self, e: Call, frame: _Frame) -> Any:
        function, (*args, sizes) = (self._leaf(a, frame) for a in e.args)
        return function(*args, *sizes)

    # -- memory -----------------------------------------------------------------------------------

    def _alloc(self, shape: tuple[int, ...], dtype: DataType) -> NDArray:
        if any(size < 0 for size in shape):
            raise VMValueError(f"a tensor of shape {shape} cannot be")
        memory = np.empty(shape, to_numpy_dtype(dtype))
        memory.reshape(-1).view(np.uint8)[...] = 1 if dtype.is_bool else _RUBBISH
        return wrap_unchecked(memory, dtype)

    def _alloc_tensor(self, e: Call, frame: _Frame) -> NDArray:
        shape, dtype = (self._leaf(a, frame) for a in e.args[:2])
        return self._alloc(tuple(shape), dtype)

    def _new_storage(self, *args: Any) -> Storage:
        storage: Storage = Builtins.ALLOC_STORAGE.function(None, *args)
        storage.raw[...] = _RUBBISH
        return storage

    def _alloc_storage(self, e: Call, frame: _Frame) -> Storage:
        return self._new_storage(self._leaf(e.args[0], frame))

    def _shape_expr(self, heap: Any, slot: Any, program: Any) -> Any:
        return Builtins.SHAPE_EXPR.function(heap, slot, DimProgram(program))

    def _alloc_in_storage(self, e: Call, frame: _Frame) -> Any:
        args = (self._leaf(a, frame) for a in e.args[:4])
        return self._packed(Builtins.ALLOC_TENSOR.name)(*args)

    def _kill(self, e: Call, frame: _Frame) -> Any:
        for v in vars_in(e):
            frame.values[v] = _Dead
        return ()

    def _view(self, e: Call, frame: _Frame) -> Any:
        data, *parts = (self._leaf(a, frame) for a in e.args)
        shape, dtype, offset = [*parts, None, None, None][:3]
        shape = data.shape if shape is None else shape
        return self._packed(Builtins.VIEW.name)(data, shape, dtype or data.dtype, offset or 0)

    def _assert(self, e: Call, frame: _Frame) -> Any:
        return self._packed(Builtins.ASSERT_OP.name)(*(self._leaf(a, frame) for a in e.args))


_SPECIAL: dict[str, Callable[[Evaluator, Call, _Frame], Any]] = {
    "assert_op": Evaluator._assert,
    "builtin.alloc_tensor": Evaluator._alloc_tensor,
    "call_builtin_with_ctx": Evaluator._call_with_tuple,
    "call_dps_packed": Evaluator._call_tir,
    "call_inplace_packed": Evaluator._call_packed,
    "call_pure_packed": Evaluator._call_packed,
    "call_tir": Evaluator._call_tir,
    "call_tir_inplace": Evaluator._call_tir,
    "call_tir_with_grad": Evaluator._call_tir,
    "invoke_closure": Evaluator._call_with_tuple,
    "invoke_pure_closure": Evaluator._call_with_tuple,
    "make_closure": Evaluator._make_closure,
    "memory.alloc_storage": Evaluator._alloc_storage,
    "memory.alloc_tensor": Evaluator._alloc_in_storage,
    "memory.kill_storage": Evaluator._kill,
    "memory.kill_tensor": Evaluator._kill,
    "memory.view": Evaluator._view,
    "print": Evaluator._print,
    "vm.alloc_storage": Evaluator._alloc_storage,
    "vm.alloc_tensor": Evaluator._alloc_in_storage,
    "vm.call_tir_dyn": Evaluator._call_tir_dyn,
    "vm.kill_object": Evaluator._kill,
}
_SPECIAL_BUILTINS: dict[str, Callable[..., Any]] = {
    Builtins.ALLOC_STORAGE.name: Evaluator._new_storage,
    Builtins.PRINT.name: Evaluator._print_values,
    Builtins.SHAPE_EXPR.name: Evaluator._shape_expr,
}


# -- values ----------------------------------------------------------------------------------------


def values_of(x: Any, info: StructInfo | None = None) -> Any:
    """A runtime value as operators' meanings take it (see `relax.op.meaning`)."""
    if isinstance(x, NDArray):
        return from_storage(x.array, x.dtype)
    if isinstance(x, ShapeTuple):
        return tuple(x)
    if isinstance(x, (tuple, VMSequence)):
        fields = info.fields if isinstance(info, TupleStructInfo) else [None] * len(x)
        return tuple(values_of(each, f) for each, f in zip(x, fields))
    if isinstance(info, PrimStructInfo):
        return value_dtype(info.dtype).type(x)
    return x


def _taken(info: StructInfo, x: Any) -> Any:
    """An argument as the machine takes it."""
    if isinstance(info, TupleStructInfo) and isinstance(x, (tuple, list)):
        return tuple(_taken(f, each) for f, each in zip(info.fields, x))
    if isinstance(info, SequenceStructInfo):
        return VMSequence(_taken(info.element, each) for each in x)
    if isinstance(info, TensorStructInfo):
        array = as_ndarray(x)
        bits = info.dtype.is_bits and to_numpy_dtype(info.dtype) == array.array.dtype
        return wrap_unchecked(array.array, info.dtype) if bits else array
    if isinstance(info, ShapeStructInfo):
        return ShapeTuple(x)
    return x


def _as_values(x: Any) -> Any:
    """What a packed function gave."""
    if isinstance(x, (np.ndarray, np.generic)):
        return as_ndarray(x)
    if type(x) in (tuple, list):
        return tuple(map(_as_values, x))
    return x


def _runtime_value(info: StructInfo, value: Any, others: list[np.ndarray] | tuple[()]) -> Any:
    """What a meaning gave, in memory that `others` do not have."""
    if isinstance(info, TupleStructInfo):
        return tuple(_runtime_value(f, m, others) for f, m in zip(info.fields, value))
    if isinstance(info, SequenceStructInfo):
        return VMSequence(_runtime_value(info.element, m, others) for m in value)
    if isinstance(value, np.ndarray):
        dtype = as_ndarray(value).dtype
        if isinstance(info, TensorStructInfo) and info.dtype != "void":
            value, dtype = to_storage(value, info.dtype), info.dtype
        if any(np.may_share_memory(value, other) for other in others):
            value = value.copy()
        return wrap_unchecked(np.ascontiguousarray(value).reshape(value.shape), dtype)
    if isinstance(info, ShapeStructInfo):
        return ShapeTuple(value)
    return value.item() if isinstance(value, np.generic) else value


def _arrays(values: Iterable[Any]) -> list[np.ndarray]:
    """The arrays among values, those in tuples included."""
    out: list[np.ndarray] = []
    for x in values:
        if isinstance(x, tuple):
            out += _arrays(x)
        elif isinstance(x, np.ndarray):
            out.append(x)
    return out


def _dims(info: StructInfo, value: Any) -> list[tuple[PrimExpr, Any]]:
    """The dimensions that `info` declares beside those of the value. Raises CheckFailed."""
    if isinstance(info, TupleStructInfo):
        if not isinstance(value, tuple) or len(value) != len(info.fields):
            raise CheckFailed(f"wanted {info}, got {type(value).__name__}")
        return [d for f, v in zip(info.fields, value) for d in _dims(f, v)]
    if isinstance(info, TensorStructInfo):
        if not isinstance(value, NDArray):
            raise CheckFailed(f"wanted {info}, got {type(value).__name__}")
        if info.ndim not in (-1, value.ndim):
            raise CheckFailed(f"wanted {info.ndim} dimensions, got {value.ndim}")
        if info.dtype != "void" and info.dtype is not value.dtype:
            raise CheckFailed(f"wanted {info.dtype}, got {value.dtype}")
        return [] if info.dims is None else list(zip(info.dims, value.shape))
    if isinstance(info, ShapeStructInfo) and info.values is not None:
        return list(zip(info.values, value))
    if isinstance(info, PrimStructInfo) and info.value is not None:
        return [(info.value, value)]
    return []
