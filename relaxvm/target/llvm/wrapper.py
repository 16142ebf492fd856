"""The wrapper of a kernel: every check of the boundary, then the call. The interface is
`runtime/kernel.py`'s.

Checks come in three rounds, each with one branch on the good path: kinds, ranks and types; layouts
and shapes; overlaps. Only when a round fails is it found out which check it was.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np

from ...base import DataType, to_numpy_dtype
from ...ir import IntImm, PrimExpr, Var, is_const
from ...runtime import Failure
from ...tir.transform import lower_intrinsics
from .expr import ExprEmitter
from .signature import Parameter, Signature
from .text import scalar_type

# struct Arg, as the runtime fills it in.
ARG_BYTES = 40
_DATA, _SHAPE, _STRIDES, _NDIM, _TYPE, _FLAGS = 0, 8, 16, 24, 28, 32
_WRITEABLE = 0x400
_MAX_PAIRS_IN_LINE = 16
_MAX_ALIAS_FAILURES = 4096
_INT64 = DataType("int64")


@dataclass
class _Tensor:
    """A tensor argument, as far as it is loaded."""

    index: int
    param: Parameter
    data: str = ""
    dims: tuple[str, ...] = ()
    strides: tuple[str, ...] = ()
    not_empty: str = "true"


class _Wrapper:
    def __init__(self, g: ExprEmitter, signature: Signature) -> None:
        self.g = g
        self.signature = signature
        self.failures: list[Failure] = []
        self.exits: list[tuple[str, str]] = []
        self._round: list[tuple[str, int]] = []
        self._lowered: list[PrimExpr] = []
        self.tensors = [
            _Tensor(i, p) for i, p in enumerate(signature.params) if p.buffer is not None
        ]

    # -- checks ------------------------------------------------------------------------------------

    def check(self, bad: str, failure: Failure) -> None:
        """Note that the call fails with `failure` where `bad` (i1) holds."""
        if bad == "false":
            return
        self.failures.append(failure)
        self._round.append((bad, len(self.failures)))

    def end_round(self) -> None:
        """Branch away if one of the checks since the last round failed."""
        if not self._round:
            return
        g, text = self.g, self.g.text
        some = self._round[0][0]
        for bad, _ in self._round[1:]:
            some = g.op("or", "i1", some, bad)
        which, fine = text.label("which"), text.label("fine")
        text.branch(some, which, fine)
        text.start(which)
        code = str(self._round[-1][1])
        for bad, number in reversed(self._round[:-1]):
            code = text.op(f"select i1 {bad}, i32 {number}, i32 {code}")
        self.exits.append((code, which))
        text.jump("exit")
        text.start(fine)
        self._round = []

    # -- loading -----------------------------------------------------------------------------------

    def field(self, index: int, offset: int, of: str) -> str:
        """A field of an argument's `Arg`."""
        place = self.at("%args", index * ARG_BYTES + offset)
        return self.g.text.op(f"load {of}, ptr {place}, align {4 if of == 'i32' else 8}")

    def at(self, pointer: str, offset: int) -> str:
        return (
            pointer
            if offset == 0
            else self.g.text.op(f"getelementptr inbounds i8, ptr {pointer}, i64 {offset}")
        )

    def vector(self, pointer: str, count: int) -> tuple[str, ...]:
        return tuple(
            self.g.text.op(f"load i64, ptr {self.at(pointer, 8 * i)}, align 8")
            for i in range(count)
        )

    def value(self, e: PrimExpr) -> str:
        """An expression over what is bound, as i64."""
        lowered = lower_intrinsics(e)
        # What was emitted is remembered by identity: a node must live as long as that memory.
        self._lowered.append(lowered)
        return self.g.widened(lowered, self.g.evaluate(lowered))

    # -- the rounds --------------------------------------------------------------------------------

    def kinds(self) -> None:
        g = self.g
        for i, param in enumerate(self.signature.params):
            ndim = self.field(i, _NDIM, "i32")
            if param.buffer is None:
                self.check(g.op("icmp ne", "i32", ndim, "-1"), Failure("kind", i))
                self._bind_scalar(i, param)
                continue
            self.check(g.op("icmp slt", "i32", ndim, "0"), Failure("kind", i))
            self.check(
                g.op("icmp ne", "i32", ndim, str(len(param.buffer.shape))), Failure("ndim", i)
            )
            number = type_number(param.dtype, g.module.triple)
            self.check(
                g.op("icmp ne", "i32", self.field(i, _TYPE, "i32"), str(number)),
                Failure("dtype", i),
            )
        self.end_round()

    def _bind_scalar(self, i: int, param: Parameter) -> None:
        g, dtype = self.g, param.dtype
        payload = self.field(i, _DATA, "i64")
        if dtype.is_float:
            double = g.convert("bitcast", "i64", payload, "double")
            g.env[param.var] = g.cast(DataType("float64"), dtype, double)
        elif dtype.is_bool:
            g.env[param.var] = g.op("icmp ne", "i64", payload, "0")
        else:
            g.env[param.var] = g.convert("trunc", "i64", payload, scalar_type(dtype))
            if dtype.bits < 64:
                back = g.cast(dtype, _INT64, g.env[param.var])
                self.check(g.op("icmp ne", "i64", back, payload), Failure("dtype", i))
                g.wide[param.var] = back

    def layouts(self) -> None:
        for tensor in self.tensors:
            self._load(tensor)
        pending: list[tuple[_Tensor, int, PrimExpr]] = []
        for tensor in self.tensors:
            assert tensor.param.buffer is not None
            for axis, e in enumerate(tensor.param.buffer.shape):
                if isinstance(e, Var) and e not in self.g.env:
                    self._bind_symbol(e, tensor.dims[axis], Failure("shape", tensor.index, axis))
                else:
                    pending.append((tensor, axis, e))
        for tensor in self.tensors:
            self._bind_strides(tensor)
        for tensor, axis, e in pending:
            bad = self.g.op("icmp ne", "i64", tensor.dims[axis], self.value(e))
            self.check(bad, Failure("shape", tensor.index, axis))
        for tensor in self.tensors:
            self._check_layout(tensor)
        self.end_round()

    def _load(self, tensor: _Tensor) -> None:
        g, i = self.g, tensor.index
        assert tensor.param.buffer is not None
        shape = tensor.param.buffer.shape
        tensor.data = self.field(i, _DATA, "ptr")
        if shape:
            tensor.dims = self.vector(self.field(i, _SHAPE, "ptr"), len(shape))
            tensor.strides = self.vector(self.field(i, _STRIDES, "ptr"), len(shape))
        if any(is_const(e, 0) for e in shape):
            tensor.not_empty = "false"
        for e, dim in zip(shape, tensor.dims):
            if not isinstance(e, IntImm) and tensor.not_empty != "false":
                some = g.op("icmp ne", "i64", dim, "0")
                tensor.not_empty = (
                    some
                    if tensor.not_empty == "true"
                    else g.op("and", "i1", tensor.not_empty, some)
                )

    def _bind_symbol(self, symbol: Var, value: str, failure: Failure) -> None:
        g = self.g
        g.env[symbol] = g.convert("trunc", "i64", value, scalar_type(symbol.dtype))
        g.wide[symbol] = value
        top = self.signature.tops.get(symbol)
        if top is not None:
            message = f"{symbol.name} is at most {top}"
            bad = g.op("icmp ugt", "i64", value, str(top))
            self.check(bad, Failure(failure.kind, failure.param, failure.axis, message=message))
        elif symbol.dtype.bits < 64:
            back = g.cast(symbol.dtype, _INT64, g.env[symbol])
            self.check(g.op("icmp ne", "i64", back, value), failure)

    def _bind_strides(self, tensor: _Tensor) -> None:
        assert tensor.param.buffer is not None
        for axis, e in enumerate(tensor.param.buffer.strides):
            if isinstance(e, Var) and e not in self.g.env:
                elements = self.g.op(
                    "sdiv", "i64", tensor.strides[axis], str(tensor.param.dtype.itemsize)
                )
                self._bind_symbol(e, elements, Failure("strides", tensor.index, axis))

    def _check_layout(self, tensor: _Tensor) -> None:
        g, i, buffer = self.g, tensor.index, tensor.param.buffer
        assert buffer is not None
        size = tensor.param.dtype.itemsize
        if size > 1 and tensor.not_empty != "false":
            address = g.text.op(f"ptrtoint ptr {tensor.data} to i64")
            low = g.op("and", "i64", address, str(size - 1))
            self.check(
                self._where_any(tensor, g.op("icmp ne", "i64", low, "0")), Failure("align", i)
            )
        if "w" in tensor.param.access:
            flag = g.op("and", "i32", self.field(i, _FLAGS, "i32"), str(_WRITEABLE))
            self.check(g.op("icmp eq", "i32", flag, "0"), Failure("readonly", i))
        if tensor.not_empty == "false":
            return
        expected = str(size)
        for axis in range(len(buffer.shape) - 1, -1, -1):
            e, dim = buffer.shape[axis], tensor.dims[axis]
            if buffer.strides:
                expected = g.op("mul", "i64", self.value(buffer.strides[axis]), str(size))
            if not is_const(e, 1):
                self.check(self._wrong_stride(tensor, axis, expected), Failure("strides", i, axis))
            if isinstance(e, IntImm) and not expected.startswith("%"):
                expected = str(int(expected) * e.value)
                if int(expected) >= 1 << 63:
                    # No array is so large, whatever its strides say: the shape check fails first.
                    return
            elif not buffer.strides:
                expected = g.op("mul", "i64", expected, dim)

    def _wrong_stride(self, tensor: _Tensor, axis: int, expected: str) -> str:
        g = self.g
        assert tensor.param.buffer is not None
        bad = g.op("icmp ne", "i64", tensor.strides[axis], expected)
        if not isinstance(tensor.param.buffer.shape[axis], IntImm):
            bad = g.op("and", "i1", bad, g.op("icmp ne", "i64", tensor.dims[axis], "1"))
        return self._where_any(tensor, bad)

    def _where_any(self, tensor: _Tensor, bad: str) -> str:
        """`bad`, which is about where elements lie, for a tensor that may have none."""
        if tensor.not_empty == "true":
            return bad
        return self.g.op("and", "i1", bad, tensor.not_empty)

    def overlaps(self) -> None:
        if not self.signature.noalias:
            return
        g = self.g
        written = [t for t in self.tensors if "w" in t.param.access]
        if not written:
            return
        others = [t for t in self.tensors if "w" not in t.param.access]
        if len(written) * len(self.tensors) > _MAX_PAIRS_IN_LINE:
            self._overlaps_in_loops(written, others)
            return
        ranges = {t.index: self._range(t) for t in self.tensors}
        for position, one in enumerate(written):
            for other in (*written[position + 1 :], *others):
                if "false" in (one.not_empty, other.not_empty):
                    continue
                (low, high), (low2, high2) = ranges[one.index], ranges[other.index]
                bad = g.op(
                    "and",
                    "i1",
                    g.op("icmp ult", "i64", low, high2),
                    g.op("icmp ult", "i64", low2, high),
                )
                for tensor in (one, other):
                    if tensor.not_empty != "true":
                        bad = g.op("and", "i1", bad, tensor.not_empty)
                self.check(bad, Failure("alias", one.index, other=other.index))
        self.end_round()

    def _overlaps_in_loops(self, written: list[_Tensor], others: list[_Tensor]) -> None:
        """The same for many tensors: code that grows with their number, not with its square."""
        g, text = self.g, self.g.text
        order = [*written, *others]
        count = len(order)
        lows, highs = (text.alloca("i64", 8, count) for _ in range(2))
        for k, tensor in enumerate(order):
            low, high = self._range(tensor)
            if tensor.not_empty != "true":
                # An empty tensor overlaps nothing: it starts at the end of memory.
                low = text.op(f"select i1 {tensor.not_empty}, i64 {low}, i64 -1")
                high = text.op(f"select i1 {tensor.not_empty}, i64 {high}, i64 0")
            text.emit(f"  store i64 {low}, ptr {self.at(lows, 8 * k)}, align 8")
            text.emit(f"  store i64 {high}, ptr {self.at(highs, 8 * k)}, align 8")
        each = len(written) * count <= _MAX_ALIAS_FAILURES
        base = len(self.failures) + 1
        for one in written:
            if each:
                self.failures += [Failure("alias", one.index, other=t.index) for t in order]
            else:
                other = others[0] if others else next(t for t in written if t is not one)
                message = "or another of the arguments"
                self.failures.append(
                    Failure("alias", one.index, other=other.index, message=message)
                )
        outer, inner, body, hit = (text.label(hint) for hint in ("outer", "inner", "pair", "hit"))
        inner_next, outer_next, fine = text.label("skip"), text.label("next"), text.label("fine")
        first, second, first_next, second_next = (text.fresh() for _ in range(4))
        before = text.block
        text.jump(outer)
        text.start(outer)
        text.emit(f"  {first} = phi i64 [ 0, %{before} ], [ {first_next}, %{outer_next} ]")
        low, high = self._element(lows, first), self._element(highs, first)
        text.emit(f"  {first_next} = add nuw nsw i64 {first}, 1")
        text.jump(inner)
        text.start(inner)
        text.emit(
            f"  {second} = phi i64 [ {first_next}, %{outer} ], [ {second_next}, %{inner_next} ]"
        )
        text.branch(g.op("icmp ult", "i64", second, str(count)), body, outer_next)
        text.start(body)
        low2, high2 = self._element(lows, second), self._element(highs, second)
        bad = g.op(
            "and", "i1", g.op("icmp ult", "i64", low, high2), g.op("icmp ult", "i64", low2, high)
        )
        text.branch(bad, hit, inner_next)
        text.start(inner_next)
        text.emit(f"  {second_next} = add nuw nsw i64 {second}, 1")
        text.jump(inner)
        text.start(outer_next)
        text.branch(g.op("icmp ult", "i64", first_next, str(len(written))), outer, fine)
        text.start(hit)
        number = (
            g.op("add", "i64", g.op("mul", "i64", first, str(count)), second) if each else first
        )
        code = g.convert("trunc", "i64", g.op("add", "i64", number, str(base)), "i32")
        self.exits.append((code, hit))
        text.jump("exit")
        text.start(fine)

    def _element(self, array: str, index: str) -> str:
        place = self.g.text.op(f"getelementptr inbounds i64, ptr {array}, i64 {index}")
        return self.g.text.op(f"load i64, ptr {place}, align 8")

    def _range(self, tensor: _Tensor) -> tuple[str, str]:
        """First byte and the byte after the last."""
        g, buffer = self.g, tensor.param.buffer
        assert buffer is not None
        low = g.text.op(f"ptrtoint ptr {tensor.data} to i64")
        size = tensor.param.dtype.itemsize
        extents = [e.value for e in buffer.shape if isinstance(e, IntImm)]
        if len(extents) == len(buffer.shape) and not buffer.strides:
            size *= math.prod(extents)
            return low, g.op("add", "i64", low, str(min(size, 1 << 62)))
        high = g.op("add", "i64", low, str(size))
        for dim, stride in zip(tensor.dims, tensor.strides):
            reach = g.op("mul", "i64", g.op("sub", "i64", dim, "1"), stride)
            low = g.op("add", "i64", low, g.min_max("lt", _INT64, reach, "0"))
            high = g.op("add", "i64", high, g.min_max("gt", _INT64, reach, "0"))
        return low, high

    # -- the call ----------------------------------------------------------------------------------

    def call(self, symbol: str, inner_failures: list[int], threads: bool) -> None:
        g, text = self.g, self.g.text
        typed: list[str] = []
        result: list[str] = []
        by_index = {t.index: t for t in self.tensors}
        for i, param in enumerate(self.signature.params):
            if param.buffer is None:
                typed.append(f"{scalar_type(param.dtype)} {g.env[param.var]}")
            elif param.access == "ret":
                result = [f"ptr {by_index[i].data}"]
            else:
                typed.append(f"ptr {by_index[i].data}")
        typed += [f"i64 {g.wide[s]}" for s in self.signature.symbols] + result
        if threads:
            typed.append(f"i64 {self._threads()}")
        failed = text.op(f"call i32 @{symbol}({', '.join(typed)})")
        self.exits.append(("0", text.block))
        if not inner_failures:
            text.jump("exit")
        else:
            cases = []
            for position, number in enumerate(inner_failures):
                label = text.label("inner")
                cases.append((label, number, len(self.failures) + position + 1))
            listed = " ".join(f"i32 {number}, label %{label}" for label, number, _ in cases)
            text.emit(f"  switch i32 {failed}, label %exit [ {listed} ]")
            for label, _, code in cases:
                text.start(label)
                self.exits.append((str(code), label))
                text.jump("exit")
        text.start("exit")
        answer = text.op(
            "phi i32 " + ", ".join(f"[ {value}, %{block} ]" for value, block in self.exits)
        )
        text.emit(f"  ret i32 {answer}")

    def _threads(self) -> str:
        """Most threads of a parallel loop: the caller leaves it in the first argument."""
        if not self.signature.params:
            return "0"
        place = self.g.text.op("getelementptr inbounds i8, ptr %args, i64 36")
        return self.g.text.op(
            f"sext i32 {self.g.text.op(f'load i32, ptr {place}, align 4')} to i64"
        )


def type_number(dtype: DataType, triple: str) -> int:
    """numpy's number of the storage type, on the system of `triple`."""
    here = sys.platform == "win32"
    there = "windows" in triple
    if here == there or dtype.bits < 32 or not dtype.is_int:
        return int(np.dtype(to_numpy_dtype(dtype)).num)
    signed = 0 if dtype.kind == "int" else 1
    return {(32, True): 7, (64, True): 9, (32, False): 5, (64, False): 7}[
        (dtype.bits, there)
    ] + signed


def emit_wrapper(
    g: ExprEmitter,
    signature: Signature,
    symbol: str,
    inner_failures: list[int],
    threads: bool = False,
) -> list[Failure]:
    """Emit the body of a wrapper that calls `symbol`; returns the meanings of its own failure
    numbers.

    The numbers `inner_failures` that the inner kernel may return follow after those. threads:
    whether it takes a number of threads after its symbols.
    """
    wrapper = _Wrapper(g, signature)
    for zero in signature.zeros:
        g.env[zero] = "0"
    wrapper.kinds()
    wrapper.layouts()
    wrapper.overlaps()
    wrapper.call(symbol, inner_failures, threads)
    return wrapper.failures
