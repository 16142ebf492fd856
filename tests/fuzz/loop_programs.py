"""Random loop programs, shared by the tests of `tir`, its passes and its code generators.

    scalar_expr(rng, dtype, variables)   an expression of `dtype` over variables
    program(rng)                         a `Program`: a well-formed PrimFunc and its arguments
    value_of(rng, dtype)                 a number; often an awkward one: extremes, NaN, infinities,
                                         -0.0, subnormals
    array_of(rng, dtype, shape)          an array of such numbers (bfloat16 as its bits)

Accesses are in bounds, loops finite and every element is written before it is read, by
construction.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxvm import tir
from relaxvm.base import DataType, float32_to_bfloat16, to_numpy_dtype
from relaxvm.ir import walk
from relaxvm.tir import const

INTS = tuple(DataType(f"{k}{b}") for k in ("int", "uint") for b in (8, 16, 32, 64))
FLOATS = tuple(map(DataType, ("float16", "bfloat16", "float32", "float64")))
BOOL = DataType("bool")
SCALARS = (BOOL, *INTS, *FLOATS)

_ARITHMETIC = (tir.Add, tir.Sub, tir.Mul, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max)
_COMPARE = (tir.EQ, tir.NE, tir.LT, tir.LE, tir.GT, tir.GE)
_FLOAT_UNARY = "exp exp2 log sqrt rsqrt tanh sigmoid erf gelu silu sin cos".split()
_EXACT_FLOAT_UNARY = "fabs floor ceil round trunc nearbyint sqrt".split()
_INT_BINARY = "bitwise_and bitwise_or bitwise_xor shift_left shift_right truncdiv truncmod".split()


# -- values ----------------------------------------------------------------------------------------


def edge_values(dtype: DataType) -> list[Any]:
    """The awkward numbers of a dtype."""
    if dtype.is_bool:
        return [False, True]
    if dtype.is_int:
        low, high = int(dtype.min_value), int(dtype.max_value)
        near = [
            v
            for v in (-2, -1, 0, 1, 2, 7, low, low + 1, high - 1, high, dtype.bits)
            if low <= v <= high
        ]
        return list(dict.fromkeys(near))
    tiny = {"float16": 6e-8, "bfloat16": 1e-40, "float32": 1e-45, "float64": 5e-324}[dtype]
    big = float(dtype.max_value)
    finite = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, tiny, -tiny, big, -big]
    return [*finite, float("inf"), float("-inf"), float("nan")]


def value_of(rng: random.Random, dtype: DataType, edges: bool = True) -> Any:
    """A Python number in the range of `dtype`; edges: an awkward one often."""
    way = rng.randrange(3 if edges else 2)
    if dtype.is_bool:
        return rng.random() < 0.5
    if way == 2:
        return rng.choice(edge_values(dtype))
    if dtype.is_int:
        low, high = int(dtype.min_value), int(dtype.max_value)
        return rng.randint(low, high) if way else rng.randint(max(low, -20), min(high, 20))
    if way and edges:
        return struct.unpack("d", rng.randbytes(8))[0]
    return rng.randint(-64, 64) / 8


def array_from(values: Sequence[Any], dtype: DataType, shape: Sequence[int]) -> np.ndarray:
    """An array with these numbers, repeated as often as needed; bfloat16 as its bits."""
    dtype = DataType(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    with np.errstate(all="ignore"):
        if dtype.kind == "bfloat":
            flat = float32_to_bfloat16(np.array(values, dtype=np.float32))
        else:
            flat = np.array(values, dtype=to_numpy_dtype(dtype))
    return np.resize(flat, count).reshape(tuple(shape)) if count else np.zeros(shape, flat.dtype)


def array_of(
    rng: random.Random, dtype: DataType, shape: Sequence[int], edges: bool = True
) -> np.ndarray:
    """An array of numbers of `dtype`."""
    values = [value_of(rng, dtype, edges) for _ in range(rng.randint(1, 24))]
    return array_from(values, dtype, shape)


# -- expressions -----------------------------------------------------------------------------------

Leaf = Callable[[DataType], tir.PrimExpr]


def constant(rng: random.Random, dtype: DataType) -> tir.PrimExpr:
    """A constant of `dtype`, rounded to it: numbers beyond its range become infinite."""
    value = value_of(rng, dtype)
    return tir.cast(dtype, const(value, "float64")) if dtype.is_float else const(value, dtype)


class Exprs:
    """Draws expressions. `leaf(dtype)` supplies what they are made of.

    inexact  whether functions such as exp may occur, where machine code may differ in the last bit
    """

    def __init__(self, rng: random.Random, leaf: Leaf, inexact: bool = True) -> None:
        self.rng, self.leaf, self.inexact = rng, leaf, inexact

    def expr(self, dtype: DataType, depth: int) -> tir.PrimExpr:
        """An expression of `dtype` at most `depth` operations deep."""
        if depth <= 0 or self.rng.randint(0, 5) == 0:
            return self.leaf(dtype)
        if self.rng.randint(0, 4) == 0:
            return self._choice(dtype, depth)
        if dtype.is_bool:
            return self._bool(depth)
        return self._int(dtype, depth) if dtype.is_int else self._float(dtype, depth)

    def _pick(self, options: Sequence[Any]) -> Any:
        return self.rng.choice(options)

    def _choice(self, dtype: DataType, depth: int) -> tir.PrimExpr:
        a, b = self.expr(dtype, depth - 1), self.expr(dtype, depth - 1)
        kind = self.rng.randint(0, 3)
        if kind == 0:
            return tir.Select(self.expr(BOOL, depth - 1), a, b)
        if kind == 1:
            return tir.if_then_else(self.expr(BOOL, depth - 1), a, b)
        if kind == 2:
            source = self._pick(SCALARS)
            return tir.cast(dtype, self.expr(source, depth - 1))
        var = tir.Var("l", dtype)
        body = Exprs(
            self.rng,
            lambda d: var if d is dtype and self.rng.random() < 0.5 else self.leaf(d),
            self.inexact,
        ).expr(dtype, depth - 1)
        return tir.Let(var, a, body)

    def _bool(self, depth: int) -> tir.PrimExpr:
        kind = self.rng.randint(0, 4)
        if kind == 0:
            return tir.And(self.expr(BOOL, depth - 1), self.expr(BOOL, depth - 1))
        if kind == 1:
            return tir.Or(self.expr(BOOL, depth - 1), self.expr(BOOL, depth - 1))
        if kind == 2:
            return tir.Not(self.expr(BOOL, depth - 1))
        dtype = self._pick(SCALARS)
        if kind == 3 and dtype.is_float:
            return getattr(tir, self._pick(["isnan", "isinf", "isfinite"]))(
                self.expr(dtype, depth - 1)
            )
        return self._pick(_COMPARE)(self.expr(dtype, depth - 1), self.expr(dtype, depth - 1))

    def _int(self, dtype: DataType, depth: int) -> tir.PrimExpr:
        a = self.expr(dtype, depth - 1)
        kind = self.rng.randint(0, 3)
        if kind == 0:
            made = getattr(tir, self._pick(["bitwise_not", "popcount", "clz", "fabs"]))(a)
            return tir.cast(dtype, made)
        b = self.expr(dtype, depth - 1)
        if kind == 1:
            # By constructor: constants divided by zero, or shifted too far, are refused elsewhere.
            name = self._pick(_INT_BINARY)
            if name.startswith("trunc"):
                return (tir.Div if name == "truncdiv" else tir.Mod)(a, b)
            return tir.call_intrin(dtype, name, a, b)
        return self._pick(_ARITHMETIC)(a, b)

    def _float(self, dtype: DataType, depth: int) -> tir.PrimExpr:
        a = self.expr(dtype, depth - 1)
        kind = self.rng.randint(0, 4)
        if kind == 0:
            names = _EXACT_FLOAT_UNARY + (_FLOAT_UNARY if self.inexact else [])
            return getattr(tir, self._pick(names))(a)
        b = self.expr(dtype, depth - 1)
        if kind == 1:
            # The sign of a NaN, and of the lesser of two zeros, is nobody's promise.
            return tir.copysign(a, tir.Select(b < 0.0, const(-1.0, dtype), const(1.0, dtype)))
        if kind == 2 and self.inexact:
            return tir.fma(a, b, self.expr(dtype, depth - 1))
        return self._pick((tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Min, tir.Max))(a, b)


def scalar_expr(
    rng: random.Random,
    dtype: DataType | None = None,
    variables: Sequence[tir.Var] = (),
    depth: int = 4,
    inexact: bool = True,
) -> tir.PrimExpr:
    """An expression of `dtype` (default: any) over `variables` and constants."""

    def leaf(want: DataType) -> tir.PrimExpr:
        fitting = [v for v in variables if v.dtype is want]
        return rng.choice(fitting) if fitting and rng.randrange(4) else constant(rng, want)

    kind = rng.choice(SCALARS) if dtype is None else DataType(dtype)
    return Exprs(rng, leaf, inexact).expr(kind, depth)


# -- programs --------------------------------------------------------------------------------------


@dataclass
class Program:
    """A function and what it takes.

    func     the PrimFunc, well formed
    shapes   per parameter: an array's shape (symbols replaced by `sizes`), or None for a scalar
    sizes    the value of each symbolic dimension, by name
    outputs  the positions of the arrays it writes
    """

    func: tir.PrimFunc
    shapes: list[tuple[int, ...] | None]
    dtypes: list[DataType]
    sizes: Mapping[str, int]
    outputs: list[int]
    notes: list[str] = field(default_factory=list)

    def arguments(self, rng: random.Random, edges: bool = True) -> list[Any]:
        """Random arguments."""
        return arguments(self.func, self.sizes, rng, edges)


def arguments(
    func: tir.PrimFunc, sizes: Mapping[str, int], rng: random.Random, edges: bool = True
) -> list[Any]:
    """Random arguments for a function; `sizes` are those of its symbols, by name."""
    made = []
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is None:
            made.append(value_of(rng, param.dtype, edges))
            continue
        symbols = [v for e in buffer.shape for v in walk(e) if isinstance(v, tir.Var)]
        known = {v: sizes[v.name] for v in symbols}
        shape = [int(tir.evaluate_expr(e, known)) for e in buffer.shape]
        made.append(array_of(rng, buffer.dtype, shape, edges))
    return made


class _Writer:
    """Draws one program: every statement writes the whole of one buffer from buffers written before
    it.
    """

    def __init__(
        self, rng: random.Random, dtypes: Sequence[DataType], inexact: bool, lowered: bool
    ) -> None:
        self.rng, self.inexact, self.lowered = rng, inexact, lowered
        self.dtypes = dtypes
        self.rank = self.rng.randint(1, 2)
        self.sizes: dict[str, int] = {}
        self.shape: list[Any] = []
        self.numbers: list[int] = []
        for axis in range(self.rank):
            number = rng.choice((3, 2, 4, 5, 1))
            if rng.randint(0, 3) == 0:
                name = f"n{axis}"
                self.sizes[name] = number
                self.shape.append(tir.Var(name, "int64"))
            else:
                self.shape.append(const(number, "int64"))
            self.numbers.append(number)
        self.count = 0
        self.ready: list[tir.Buffer] = []
        self.scalars: list[tir.Var] = []
        self.locals: list[tir.Buffer] = []
        self.notes: list[str] = []

    def fresh(self, name: str) -> str:
        self.count += 1
        return f"{name}{self.count}"

    def buffer(self, name: str, shape: Sequence[Any] | None = None) -> tir.Buffer:
        dtype = self.rng.choice(self.dtypes)
        return tir.decl_buffer(self.shape if shape is None else shape, dtype, self.fresh(name))

    # -- indices -----------------------------------------------------------------------------------

    def index(self, axes: Sequence[Any], axis: int) -> tir.PrimExpr:
        """An index of dimension `axis` that is in bounds whatever the axes are."""
        kind = self.rng.randint(0, 4)
        extent = self.shape[axis]
        if kind <= 2:
            return axes[axis]
        if kind == 3:
            # Reversed: extent - 1 - i.
            return extent - const(1, "int64") - axes[axis]
        other = self.rng.choice(list(axes))
        return tir.floormod(other + const(self.rng.randint(0, 9), "int64"), extent)

    def leaf(self, axes: Sequence[Any], readable: Sequence[tir.Buffer]) -> Leaf:
        def make(want: DataType) -> tir.PrimExpr:
            kind = self.rng.randint(0, 4)
            fitting = [b for b in readable if b.dtype is want]
            if fitting and kind <= 2:
                b = self.rng.choice(fitting)
                return b[tuple(self.index(axes, k) for k in range(self.rank))]
            if readable and kind == 3:
                b = self.rng.choice(list(readable))
                load = b[tuple(self.index(axes, k) for k in range(self.rank))]
                return tir.cast(want, load)
            scalars = [v for v in self.scalars if v.dtype is want]
            if scalars and kind == 4:
                return self.rng.choice(scalars)
            return constant(self.rng, want)

        return make

    def value(self, dtype: DataType, axes: Sequence[Any], depth: int = 3) -> tir.PrimExpr:
        return Exprs(self.rng, self.leaf(axes, self.ready), self.inexact).expr(dtype, depth)

    # -- statements --------------------------------------------------------------------------------

    def loops(self, variables: Sequence[tir.Var], extents: Sequence[Any], body: Any) -> Any:
        for k, (var, extent) in enumerate(reversed(list(zip(variables, extents)))):
            kinds = ["serial", "serial", "parallel", "unroll"]
            if k == 0 and isinstance(extent, tir.IntImm) and extent.value > 1:
                kinds.append("vectorized")
            body = tir.For(var, 0, extent, self.rng.choice(kinds), body)
        return body

    def axes(self, name: str) -> list[tir.Var]:
        return [tir.Var(self.fresh(name), "int64") for _ in range(self.rank)]

    def whole(self, target: tir.Buffer, make: Callable[[Sequence[Any]], Any]) -> Any:
        """Loops over all elements of `target` around `make(axes)`, as a block or bare."""
        loop_vars = self.axes("i")
        if self.lowered or (self.rng.random() < 0.5):
            return self.loops(loop_vars, self.shape, make(loop_vars))
        axes = self.axes("v")
        body = make(axes)
        iter_vars = [
            tir.IterVar(tir.Range.from_min_extent(const(0, "int64"), e), v)
            for v, e in zip(axes, self.shape)
        ]
        block = tir.Block(iter_vars, (), (), self.fresh("block"), body)
        if self.rng.randint(0, 3) or not isinstance(self.shape[-1], tir.IntImm):
            return self.loops(loop_vars, self.shape, tir.BlockRealize(loop_vars, True, block))
        # A last loop split with a factor that need not divide it, and a predicate.
        factor = self.rng.randint(1, 3)
        outer, inner = tir.Var(self.fresh("o"), "int64"), tir.Var(self.fresh("p"), "int64")
        index = outer * const(factor, "int64") + inner
        realize = tir.BlockRealize((*loop_vars[:-1], index), index < self.shape[-1], block)
        extents = [*self.shape[:-1], tir.ceildiv(self.shape[-1], factor), const(factor, "int64")]
        return self.loops([*loop_vars[:-1], outer, inner], extents, realize)

    def elementwise(self, target: tir.Buffer) -> Any:
        def make(axes: Sequence[Any]) -> Any:
            return tir.BufferStore(target, self.value(target.dtype, axes), axes)

        return self.whole(target, make)

    def branched(self, target: tir.Buffer) -> Any:
        def make(axes: Sequence[Any]) -> Any:
            condition = self.value(BOOL, axes, 2)
            stores = [
                tir.BufferStore(target, self.value(target.dtype, axes, 2), axes) for _ in range(2)
            ]
            return tir.IfThenElse(condition, *stores)

        return self.whole(target, make)

    def with_let(self, target: tir.Buffer) -> Any:
        def make(axes: Sequence[Any]) -> Any:
            dtype = self.rng.choice(self.dtypes)
            var = tir.Var(self.fresh("x"), dtype)
            value = self.value(dtype, axes, 2)
            self.scalars.append(var)
            body = tir.BufferStore(target, self.value(target.dtype, axes, 2), axes)
            self.scalars.remove(var)
            return tir.LetStmt(var, value, body)

        return self.whole(target, make)

    def counted(self, target: tir.Buffer) -> Any:
        """A while loop that runs a bounded number of times, with its counter in a local buffer."""
        counter = tir.decl_buffer((const(1, "int64"),), "int32", self.fresh("count"))
        self.locals.append(counter)
        zero = const(0, "int64")
        turns = self.rng.randint(0, 3)

        def make(axes: Sequence[Any]) -> Any:
            first = tir.BufferStore(target, self.value(target.dtype, axes, 1), axes)
            # Only this element of the target is written yet.
            old = target[tuple(axes)]
            step = tir.Select(self.value(BOOL, axes, 1), old, self.value(target.dtype, axes, 2))
            loop = tir.While(
                counter[zero] < turns,
                tir.seq(
                    tir.BufferStore(target, step, axes),
                    tir.BufferStore(counter, counter[zero] + 1, (zero,)),
                ),
            )
            return tir.seq(first, tir.BufferStore(counter, const(0), (zero,)), loop)

        return self.whole_serial(make)

    def whole_serial(self, make: Callable[[Sequence[Any]], Any]) -> Any:
        loop_vars = self.axes("i")
        body = make(loop_vars)
        for var, extent in reversed(list(zip(loop_vars, self.shape))):
            body = tir.For(var, 0, extent, "serial", body)
        return body

    def reduction(self, target: tir.Buffer) -> Any:
        """target[i] = sum, min or max over k of a value, with an init."""
        loop_vars, axes = self.axes("i"), self.axes("v")
        k, vk = tir.Var(self.fresh("k"), "int64"), tir.Var(self.fresh("vk"), "int64")
        extent = const(self.rng.randint(1, 4), "int64")
        kinds: list[Any] = [tir.Min, tir.Max] + ([] if target.dtype.is_bool else [tir.Add])
        combine = self.rng.choice(kinds)
        old = target[tuple(axes)]
        folded = [tir.floormod(a + vk, e) for a, e in zip(axes, self.shape)]
        update = tir.BufferStore(target, combine(old, self.value(target.dtype, folded, 2)), axes)
        start = {
            tir.Add: lambda: const(0, target.dtype),
            tir.Min: lambda: tir.max_value(target.dtype),
            tir.Max: lambda: tir.min_value(target.dtype),
        }[combine]()
        init = tir.BufferStore(target, start, axes)
        if self.lowered:
            first = tir.For(k, 0, extent, "serial", tir.LetStmt(vk, k, update))
            body = tir.seq(init, first)
            renamed = tir.substitute(body, dict(zip(axes, loop_vars)))
            for var, e in reversed(list(zip(loop_vars, self.shape))):
                renamed = tir.For(var, 0, e, "serial", renamed)
            return renamed
        zero = const(0, "int64")
        iter_vars = [
            tir.IterVar(tir.Range.from_min_extent(zero, e), v) for v, e in zip(axes, self.shape)
        ]
        iter_vars.append(tir.IterVar(tir.Range.from_min_extent(zero, extent), vk, "reduce"))
        block = tir.Block(iter_vars, (), (), self.fresh("reduce"), update, init)
        body = tir.BlockRealize((*loop_vars, k), True, block)
        body = tir.For(k, 0, extent, "serial", body)
        for var, e in reversed(list(zip(loop_vars, self.shape))):
            body = tir.For(var, 0, e, "serial", body)
        return body

    def vectors(self, target: tir.Buffer) -> Any:
        """Vector loads, arithmetic and stores along the last axis, which must be a constant."""
        lanes = self.numbers[-1]
        zero = const(0, "int64")
        loop_vars = self.axes("i")[:-1]
        ramp = tir.Ramp(zero, const(1, "int64"), lanes)
        sources = [b for b in self.ready if b.dtype is target.dtype]
        parts = [b[(*loop_vars, ramp)] for b in sources[:2]]
        parts += [
            tir.Broadcast(constant(self.rng, target.dtype), lanes) for _ in range(2 - len(parts))
        ]
        if target.dtype.is_bool:
            value: Any = self.rng.choice((tir.And, tir.Or))(*parts)
        else:
            ops: tuple[Any, ...] = (tir.Add, tir.Sub, tir.Mul, tir.Min, tir.Max)
            value = self.rng.choice(ops)(*parts)
        if self.rng.random() < 0.5:
            value = tir.Shuffle((value,), tuple(reversed(range(lanes))))
        store = tir.BufferStore(target, value, (*loop_vars, ramp))
        body: Any = store
        for var, e in reversed(list(zip(loop_vars, self.shape))):
            body = tir.For(var, 0, e, "serial", body)
        return body

    def statement(self, target: tir.Buffer) -> Any:
        """Something that writes all of `target`."""
        kinds = ["elementwise", "elementwise", "branched", "with_let", "counted", "reduction"]
        if isinstance(self.shape[-1], tir.IntImm) and self.numbers[-1] > 1:
            kinds = ["vectors", "vectors", *kinds]
        kind = self.rng.choice(kinds)
        self.notes.append(kind)
        return getattr(self, kind)(target)

    def program(self) -> Program:
        inputs = [self.buffer("in") for _ in range(self.rng.randint(1, 2))]
        self.ready = list(inputs)
        scalar = None
        if self.rng.random() < 0.5:
            scalar = tir.Var("s", self.rng.choice(self.dtypes))
            self.scalars.append(scalar)
        temporaries = [self.buffer("tmp") for _ in range(self.rng.randint(0, 1))]
        outputs = [self.buffer("out") for _ in range(self.rng.randint(1, 2))]
        body = []
        for target in (*temporaries, *outputs):
            body.append(self.statement(target))
            self.ready.append(target)
        made = tir.seq(*body)
        local = [*temporaries, *self.locals]
        if self.lowered:
            for b in reversed(local):
                made = tir.Allocate(b.data, b.dtype, b.shape, True, tir.DeclBuffer(b, made))
        else:
            made = tir.BlockRealize((), True, tir.Block((), (), (), "root", made, None, local))
        params: list[Any] = [*inputs, *outputs]
        shapes: list[Any] = [tuple(self.numbers)] * len(params)
        dtypes = [b.dtype for b in params]
        if scalar is not None:
            params.insert(0, scalar)
            shapes.insert(0, None)
            dtypes.insert(0, scalar.dtype)
        first = len(params) - len(outputs)
        func = tir.PrimFunc(params, made, attrs={"global_symbol": "random"})
        return Program(
            func, shapes, dtypes, self.sizes, list(range(first, len(params))), self.notes
        )


def program(
    rng: random.Random,
    dtypes: Sequence[DataType] = SCALARS,
    inexact: bool = True,
    lowered: bool = False,
) -> Program:
    """A random program.

    dtypes   of its buffers and scalars (expressions go through all of them by casts)
    inexact  whether functions such as exp may occur
    lowered  no blocks: allocations, loops and lets only
    """
    some = [rng.choice(list(dtypes)) for _ in range(rng.randint(1, 3))]
    return _Writer(rng, some, inexact, lowered).program()
