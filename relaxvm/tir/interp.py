"""The meaning of the loop language, in plain numpy: `interpret(func, a, b, ...)` runs a loop
function on arrays.

Every pass, schedule and code generator is tested against it. A function is compiled once to nested
Python closures (`interp_expr.py`, `interp_stmt.py`) over the meanings of `interp_scalar.py`;
`T.parallel`, vectorised, unrolled and thread loops run in serial order. Every access is checked
against the buffer's shape.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base import DataType, LimitError, NamedTuple, TIRError, VMError, VMTypeError, VMValueError
from ..ir import FloatImm, GlobalVar, IntImm, IRModule, Map, PrimExpr, Var, post_order
from .analysis import buffer_accesses, verify_well_formed
from .interp_expr import ExprCompiler, Frame, Run
from .interp_memory import Argument, Pointer, array_of, memory_of
from .interp_scalar import lane_of_number, to_numpy_value
from .interp_stmt import StmtCompiler
from .stmt import Block, Buffer, BufferLoad, BufferStore, DeclBuffer, PrimFunc

_MAX_CALLS = 30


class _Context(NamedTuple):
    module: IRModule | None
    depth: int


def interpret(func: PrimFunc, *args: Any, module: IRModule | None = None) -> Any:
    """Run `func` on numpy arrays (or runtime arrays) and numbers, changing the arrays it writes.

    args    one per parameter: an array per buffer or handle (bfloat16 as its bits in uint16), a
            number per scalar
    module  where functions that `func` calls are found
    returns what `T.ret` gives as a numpy scalar, else None

    An array that is not contiguous is worked on by way of a copy, unless the buffer declares
    strides. Raises VMTypeError or VMValueError naming the parameter for arguments that do not fit,
    VMError for a failed assertion or an access out of bounds, VerifyError or TIRError for a
    function that means nothing.
    """
    if not isinstance(func, PrimFunc):
        raise VMTypeError(f"interpret: wanted a PrimFunc, got {type(func).__name__}")
    compiled = _compiled(func)
    try:
        with np.errstate(all="ignore"):
            left = compiled.call(_Context(module, 0), args)
    except RecursionError:
        raise LimitError(f"{compiled.name}: calls and statements nest too deep") from None
    return None if left is None else to_numpy_value(*left)


def evaluate_expr(expr: PrimExpr, env: Mapping[Any, Any] | None = None) -> Any:
    """The value of `expr`: a numpy scalar of its dtype, a 1-D array for a vector (bfloat16:
    float32).

    env  variable -> number, and buffer -> array (bfloat16 as bits in uint16). Raises TIRError for
         an unbound variable.
    """
    compiler = ExprCompiler("expression")
    values: list[tuple[int, Any]] = []
    for key, value in (env or {}).items():
        if isinstance(key, Buffer):
            array = array_of("expression", key.name, key.dtype, value)
            values.append((compiler.define(key), array))
        elif isinstance(key, Var):
            values.append((compiler.define(key), _variable_value(key, value)))
        else:
            raise TIRError(f"evaluate_expr: wanted a Var or Buffer, got {type(key).__name__}")
    run = compiler.compile(expr)
    frame: Frame = [None] * compiler.size
    for slot, value in values:
        frame[slot] = value
    with np.errstate(all="ignore"):
        return to_numpy_value(run(frame), expr.dtype)


def _variable_value(var: Var, value: Any) -> Any:
    if var.dtype.lanes == 1:
        return _number("expression", var.name, var.dtype, value)
    lanes = list(value)
    if len(lanes) != var.dtype.lanes:
        raise TIRError(f"evaluate_expr: {var.name} has {var.dtype.lanes} lanes, got {len(lanes)}")
    return [_number("expression", var.name, var.dtype.element, lane) for lane in lanes]


def _number(where: str, name: str, dtype: DataType, value: Any) -> Any:
    """A number as the lane value of `dtype`. Raises VMTypeError or VMValueError."""
    if isinstance(value, (IntImm, FloatImm)):
        value = value.value
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if not isinstance(value, (bool, int, float, np.number, np.bool_)) or isinstance(value, complex):
        raise VMTypeError(
            f"{where}: parameter {name}: wanted a number ({dtype}), got {type(value).__name__}"
        )
    if dtype.is_float:
        with np.errstate(all="ignore"):
            return lane_of_number(value, dtype)
    if isinstance(value, (float, np.floating)):
        raise VMTypeError(f"{where}: parameter {name}: wanted {dtype}, got the float {value!r}")
    if not dtype.min_value <= int(value) <= dtype.max_value:
        raise VMValueError(
            f"{where}: parameter {name}: {int(value)} is outside {dtype}, "
            f"{dtype.min_value}..{dtype.max_value}"
        )
    return lane_of_number(value, dtype)


# -- functions -------------------------------------------------------------------------------------


class _Equation(NamedTuple):
    """A number that an array argument has must be bound to a slot, or equal an expression.

    kind   "shape", "strides" or "offset"
    """

    param: int
    kind: str
    axis: int
    slot: int
    wanted: Run | None


class _Compiled(NamedTuple):
    """A function as closures. Holds nothing of the PrimFunc itself, so that the cache does not keep
    it alive.
    """

    name: str
    params: tuple[Var, ...]
    buffer_map: Map
    slots: tuple[int, ...]
    written: tuple[bool, ...]
    binds: tuple[_Equation, ...]
    checks: tuple[_Equation, ...]
    setup: tuple[Run, ...]
    body: Run
    size: int
    noalias: bool
    result: DataType | None

    def call(self, context: _Context, args: Any) -> Any:
        """Run on arguments: arrays, numbers, pointers. Returns (value, dtype) or None."""
        if len(args) != len(self.params):
            raise VMTypeError(
                f"{self.name}: wanted {len(self.params)} arguments "
                f"({', '.join(p.name for p in self.params)}), got {len(args)}"
            )
        env: Frame = [None] * self.size
        env[0] = context
        arrays = [self._take(env, i, value) for i, value in enumerate(args)]
        self._check_aliases(arrays)
        for each in self.binds:
            pair = arrays[each.param]
            if pair is not None:
                env[each.slot] = self._measured(each, pair.array)
        self._bind_the_rest(env, arrays)
        for each in self.checks:
            pair = arrays[each.param]
            if pair is not None:
                self._check(env, each, pair.array)
        for step in self.setup:
            step(env)
        left = self.body(env)
        for pair in arrays:
            if pair is not None and pair.back is not None:
                pair.back[...] = pair.array
        if left is not None and self.result is not None and left[1] is not self.result:
            raise TIRError(f"{self.name}: returns {left[1]}, declared {self.result}")
        return left

    def _take(self, env: Frame, i: int, value: Any) -> Argument | None:
        param, slot = self.params[i], self.slots[i]
        buffer = self.buffer_map.get(param)
        if buffer is None and not param.dtype.is_handle:
            env[slot] = _number(self.name, param.name, param.dtype, value)
            return None
        if isinstance(value, Pointer):
            env[slot] = value.memory
            return None
        if buffer is None:
            array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
            if not isinstance(value, np.ndarray) and not hasattr(value, "numpy"):
                raise VMTypeError(
                    f"{self.name}: parameter {param.name}: wanted an array, "
                    f"got {type(value).__name__}"
                )
            if not array.flags.c_contiguous:
                raise VMValueError(
                    f"{self.name}: parameter {param.name}: a bare handle wants a contiguous array"
                )
            env[slot] = memory_of(self.name, param.name, array)
            return None
        return self._take_array(env, i, buffer, value)

    def _take_array(self, env: Frame, i: int, buffer: Buffer, value: Any) -> Argument:
        name = buffer.name
        array = array_of(self.name, name, buffer.dtype, value)
        ndim = buffer.ndim + (buffer.dtype.lanes > 1)
        if array.ndim != ndim:
            raise VMTypeError(
                f"{self.name}: parameter {name}: wanted {ndim} dimensions, "
                f"got shape {array.shape} of {array.ndim}"
            )
        if buffer.dtype.lanes > 1 and array.shape[-1] != buffer.dtype.lanes:
            raise VMValueError(
                f"{self.name}: parameter {name}: the last axis holds the "
                f"{buffer.dtype.lanes} lanes of {buffer.dtype}, got shape {array.shape}"
            )
        if self.written[i] and not array.flags.writeable:
            raise VMValueError(
                f"{self.name}: parameter {name} is written, but the array is read-only"
            )
        back = None
        if not buffer.strides and not array.flags.c_contiguous:
            back = array if self.written[i] else None
            array = np.ascontiguousarray(array)
        env[self.slots[i]] = memory_of(self.name, name, array)
        return Argument(array, back)

    def _check_aliases(self, arrays: list[Argument | None]) -> None:
        if not self.noalias:
            return
        real = [
            (i, pair.array if pair.back is None else pair.back)
            for i, pair in enumerate(arrays)
            if pair is not None and pair.array.size
        ]
        for i, a in real:
            for j, b in real:
                if i != j and self.written[i] and np.may_share_memory(a, b):
                    raise VMValueError(
                        f"{self.name}: parameter {self.params[i].name} is written and overlaps "
                        f"{self.params[j].name} in memory; pass a copy"
                    )

    def _measured(self, each: _Equation, array: np.ndarray) -> int:
        buffer = self.buffer_map[self.params[each.param]]
        if each.kind == "shape":
            number = array.shape[each.axis]
            var = buffer.shape[each.axis]
        elif each.kind == "strides":
            number = array.strides[each.axis] // buffer.dtype.itemsize
            var = buffer.strides[each.axis]
        else:
            number, var = 0, buffer.elem_offset
        if number > var.dtype.max_value:
            raise VMValueError(
                f"{self.name}: parameter {buffer.name}: {each.kind} {number} "
                f"does not fit {var.dtype}"
            )
        return int(number)

    def _bind_the_rest(self, env: Frame, arrays: list[Argument | None]) -> None:
        """A symbol whose own array is a bare pointer takes its value from the checks of another
        one.
        """
        for each in self.binds:
            if env[each.slot] is None:
                for other in self.checks:
                    pair = arrays[other.param]
                    if other.slot == each.slot and pair is not None:
                        env[each.slot] = self._measured(other, pair.array)
                        break
                else:
                    param = self.params[each.param]
                    raise VMValueError(
                        f"{self.name}: parameter {param.name} is passed as a pointer, so the "
                        f"{each.kind} of its buffer must follow from the other arguments"
                    )

    def _check(self, env: Frame, each: _Equation, array: np.ndarray) -> None:
        if each.kind == "strides" and (array.shape[each.axis] == 1 or not array.size):
            return
        assert each.wanted is not None
        wanted, got = each.wanted(env), self._measured(each, array)
        if wanted != got:
            buffer = self.buffer_map[self.params[each.param]]
            place = f"{each.kind}[{each.axis}]" if each.kind != "offset" else "offset"
            raise VMValueError(
                f"{self.name}: parameter {buffer.name}: {place} must be {wanted}, got {got} "
                f"(the array has shape {array.shape})"
            )


_cache: weakref.WeakKeyDictionary[PrimFunc, _Compiled] = weakref.WeakKeyDictionary()


def _compiled(func: PrimFunc) -> _Compiled:
    compiled = _cache.get(func)
    if compiled is None:
        compiled = _cache[func] = _compile(func)
    return compiled


def _compile(func: PrimFunc) -> _Compiled:
    verify_well_formed(func)
    name = str(func.get_attr("global_symbol", "main"))
    compiler = StmtCompiler(name, _call_other)
    compiler.expect_late_views(_undeclared_buffers(func))
    slots = [
        compiler.define(func.buffer_map[p].data if p in func.buffer_map else p) for p in func.params
    ]
    binds, checks = _equations(func, compiler)
    setup: list[Run] = []
    for p in func.params:
        if p in func.buffer_map:
            setup.append(compiler.declare(func.buffer_map[p]))
            setup.extend(compiler.late_views(func.buffer_map[p].data))
        else:
            setup.extend(compiler.late_views(p))
    access = buffer_accesses(func)
    written = [
        "w" in access.get(func.buffer_map[p], "") if p in func.buffer_map else False
        for p in func.params
    ]
    return _Compiled(
        name,
        func.params,
        func.buffer_map,
        tuple(slots),
        tuple(written),
        tuple(binds),
        tuple(checks),
        tuple(setup),
        compiler.stmt(func.body),
        compiler.size,
        bool(func.get_attr("tir.noalias", False)),
        None if func.ret_type is None else func.ret_type.dtype,
    )


def _equations(func: PrimFunc, compiler: StmtCompiler) -> tuple[list[_Equation], list[_Equation]]:
    """Which numbers of the arguments bind symbols, and which must equal expressions of them."""
    binds: list[_Equation] = []
    later: list[tuple[int, str, int, PrimExpr]] = []
    for i, p in enumerate(func.params):
        if p not in func.buffer_map:
            continue
        buffer = func.buffer_map[p]
        numbers = [("shape", axis, e) for axis, e in enumerate(buffer.shape)]
        numbers += [("strides", axis, e) for axis, e in enumerate(buffer.strides)]
        numbers.append(("offset", 0, buffer.elem_offset))
        for kind, axis, e in numbers:
            if isinstance(e, Var) and id(e) not in compiler.scope:
                binds.append(_Equation(i, kind, axis, compiler.define(e), None))
            else:
                later.append((i, kind, axis, e))
    checks = [
        _Equation(
            i, kind, axis, compiler.slot_of(e) if isinstance(e, Var) else -1, compiler.compile(e)
        )
        for i, kind, axis, e in later
    ]
    return binds, checks


def _undeclared_buffers(func: PrimFunc) -> list[Buffer]:
    """The buffers of the body that no parameter, block or declaration introduces."""
    declared: set[int] = {id(b) for b in func.buffer_map.values()}
    used: dict[int, Buffer] = {}
    for n in post_order(func.body):
        if isinstance(n, (BufferLoad, BufferStore)):
            used[id(n.buffer)] = n.buffer
        elif isinstance(n, DeclBuffer):
            declared.add(id(n.buffer))
        elif isinstance(n, Block):
            declared.update(id(b) for b in n.alloc_buffers)
            declared.update(id(m.buffer) for m in n.match_buffers)
    return [b for key, b in used.items() if key not in declared]


def _call_other(
    context: _Context, gv: GlobalVar, args: list[Any], dtypes: list[DataType], result: DataType
) -> Any:
    if context.module is None or gv not in context.module:
        raise VMError(f"the function {gv.name_hint} is not there: pass module= to interpret")
    func = context.module[gv]
    if not isinstance(func, PrimFunc):
        raise VMError(f"{gv.name_hint} is a {type(func).__name__}, no loop function")
    if context.depth >= _MAX_CALLS:
        raise LimitError(f"{gv.name_hint}: calls nest more than {_MAX_CALLS} deep")
    compiled = _compiled(func)
    for param, dtype in zip(func.params, dtypes):
        if param not in func.buffer_map and param.dtype is not dtype:
            raise TIRError(
                f"{gv.name_hint}: parameter {param.name} is {param.dtype}, the argument {dtype}"
            )
    left = compiled.call(_Context(context.module, context.depth + 1), args)
    if left is None:
        return lane_of_number(0, result.element) if result.kind not in ("handle", "void") else None
    if left[1] is not result:
        raise TIRError(f"{gv.name_hint} returns {left[1]}, the call says {result}")
    return left[0]
