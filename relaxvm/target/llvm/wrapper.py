"""The wrapper of a kernel: every check of the boundary, then the call. The interface is
`runtime/kernel.py`'s.

Checks come in three rounds, each with one branch on the good path: kinds, ranks and types; layouts
and shapes; overlaps. Only when a round fails is it found out which check it was.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from ...base import DataType, record, to_numpy_dtype
from ...base.llvm import Function, Operand, Value, constant, value
from ...ir import IntImm, PrimExpr, Var, is_const
from ...runtime import Failure
from ...tir import Buffer
from ...tir.transform import lower_intrinsics
from .expr import ExprEmitter
from .signature import Parameter, Signature
from .text import constant_size, scalar_type

# struct Arg, as the runtime fills it in.
ARG_BYTES = 40
_DATA, _SHAPE, _STRIDES, _NDIM, _TYPE, _FLAGS = 0, 8, 16, 24, 28, 32
_WRITEABLE = 0x400
_MAX_PAIRS_IN_LINE = 16
_MAX_ALIAS_FAILURES = 4096
_INT64 = DataType("int64")
_ARGS = value("%args", "ptr")
_NULL, _TRUE = constant(None, "ptr"), constant(True, "i1")


@record(frozen=False)
class _Tensor:
    """A tensor argument, as far as it is loaded."""

    index: int
    param: Parameter
    buffer: Buffer
    data: Value = _NULL
    dims: tuple[Value, ...] = ()
    strides: tuple[Value, ...] = ()
    not_empty: Value = _TRUE


class _Wrapper:
    def __init__(self, g: ExprEmitter, signature: Signature) -> None:
        self.g = g
        self.signature = signature
        self.failures: list[Failure] = []
        self.exits: list[tuple[Operand, str]] = []
        self._round: list[tuple[Value, int]] = []
        self.tensors = [
            _Tensor(i, p, p.buffer) for i, p in enumerate(signature.params) if p.buffer is not None
        ]

    # -- checks ------------------------------------------------------------------------------------

    def check(self, bad: Value, failure: Failure) -> None:
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
            some = g.text.op("or", some, bad)
        which, fine = text.label("which"), text.label("fine")
        text.branch(some, which, fine)
        text.start(which)
        code = constant(self._round[-1][1], "i32")
        for bad, number in reversed(self._round[:-1]):
            code = text.select(bad, number, code)
        self.exits.append((code, which))
        text.jump("exit")
        text.start(fine)
        self._round = []

    # -- loading -----------------------------------------------------------------------------------

    def field(self, index: int, offset: int, of: str) -> Value:
        """A field of an argument's `Arg`."""
        place = self.at(_ARGS, index * ARG_BYTES + offset)
        return self.g.text.load(of, place, 4 if of == "i32" else 8)

    def at(self, pointer: Value, offset: int) -> Value:
        return self.g.text.at(pointer, offset, inbounds=True)

    def vector(self, pointer: Value, count: int) -> tuple[Value, ...]:
        return tuple(self.g.text.load("i64", self.at(pointer, 8 * i)) for i in range(count))

    def value(self, e: PrimExpr) -> Value:
        """An expression over what is bound, as i64."""
        return self.g.wide_value(e if type(e) is IntImm else lower_intrinsics(e))

    # -- the rounds --------------------------------------------------------------------------------

    def kinds(self) -> None:
        g = self.g
        for i, param in enumerate(self.signature.params):
            ndim = self.field(i, _NDIM, "i32")
            if param.buffer is None:
                self.check(g.text.op("icmp ne", ndim, -1), Failure("kind", i))
                self._bind_scalar(i, param)
                continue
            self.check(g.text.op("icmp slt", ndim, 0), Failure("kind", i))
            self.check(g.text.op("icmp ne", ndim, len(param.buffer.shape)), Failure("ndim", i))
            number = type_number(param.dtype, g.module.triple)
            self.check(
                g.text.op("icmp ne", self.field(i, _TYPE, "i32"), number),
                Failure("dtype", i),
            )
        self.end_round()

    def _bind_scalar(self, i: int, param: Parameter) -> None:
        g, dtype = self.g, param.dtype
        payload = self.field(i, _DATA, "i64")
        if dtype.is_float:
            double = g.text.cast("bitcast", payload, "double")
            g.env[param.var] = g.cast(DataType("float64"), dtype, double)
        elif dtype.is_bool:
            g.env[param.var] = g.text.op("icmp ne", payload, 0)
        else:
            g.env[param.var] = g.text.cast("trunc", payload, scalar_type(dtype))
            if dtype.bits < 64:
                back = g.cast(dtype, _INT64, g.env[param.var])
                self.check(g.text.op("icmp ne", back, payload), Failure("dtype", i))
                g.wide[param.var] = back

    def layouts(self) -> None:
        for tensor in self.tensors:
            self._load(tensor)
        pending: list[tuple[_Tensor, int, PrimExpr]] = []
        for tensor in self.tensors:
            for axis, e in enumerate(tensor.buffer.shape):
                if isinstance(e, Var) and e not in self.g.env:
                    self._bind_symbol(e, tensor.dims[axis], Failure("shape", tensor.index, axis))
                else:
                    pending.append((tensor, axis, e))
        for tensor in self.tensors:
            self._bind_strides(tensor)
        for tensor, axis, e in pending:
            bad = self.g.text.op("icmp ne", tensor.dims[axis], self.value(e))
            self.check(bad, Failure("shape", tensor.index, axis))
        for tensor in self.tensors:
            self._check_layout(tensor)
        self.end_round()

    def _load(self, tensor: _Tensor) -> None:
        g, i = self.g, tensor.index
        shape = tensor.buffer.shape
        tensor.data = self.field(i, _DATA, "ptr")
        if shape:
            tensor.dims = self.vector(self.field(i, _SHAPE, "ptr"), len(shape))
            tensor.strides = self.vector(self.field(i, _STRIDES, "ptr"), len(shape))
        if any(is_const(e, 0) for e in shape):
            tensor.not_empty = constant(False, "i1")
        for e, dim in zip(shape, tensor.dims):
            if not isinstance(e, IntImm) and tensor.not_empty != "false":
                some = g.text.op("icmp ne", dim, 0)
                tensor.not_empty = (
                    some if tensor.not_empty == "true" else g.text.op("and", tensor.not_empty, some)
                )

    def _bind_symbol(self, symbol: Var, value: Value, failure: Failure) -> None:
        g = self.g
        g.bind_symbol(symbol, value)
        top = self.signature.tops.get(symbol)
        if top is not None:
            message = f"{symbol.name} is at most {top}"
            bad = g.text.op("icmp ugt", value, top)
            self.check(bad, Failure(failure.kind, failure.param, failure.axis, message=message))
        elif symbol.dtype.bits < 64:
            back = g.cast(symbol.dtype, _INT64, g.env[symbol])
            self.check(g.text.op("icmp ne", back, value), failure)

    def _bind_strides(self, tensor: _Tensor) -> None:
        for axis, e in enumerate(tensor.buffer.strides):
            if isinstance(e, Var) and e not in self.g.env:
                itemsize = tensor.param.dtype.itemsize
                elements = self.g.text.op("sdiv", tensor.strides[axis], itemsize)
                self._bind_symbol(e, elements, Failure("strides", tensor.index, axis))

    def _check_layout(self, tensor: _Tensor) -> None:
        g, i, buffer = self.g, tensor.index, tensor.buffer
        size = tensor.param.dtype.itemsize
        if size > 1 and tensor.not_empty != "false":
            address = g.text.cast("ptrtoint", tensor.data, "i64")
            low = g.text.op("and", address, size - 1)
            self.check(self._where_any(tensor, g.text.op("icmp ne", low, 0)), Failure("align", i))
        if "w" in tensor.param.access:
            flag = g.text.op("and", self.field(i, _FLAGS, "i32"), _WRITEABLE)
            self.check(g.text.op("icmp eq", flag, 0), Failure("readonly", i))
        if tensor.not_empty == "false":
            return
        expected: int | Value = size
        for axis in range(len(buffer.shape) - 1, -1, -1):
            e, dim = buffer.shape[axis], tensor.dims[axis]
            if buffer.strides:
                expected = g.text.op("mul", self.value(buffer.strides[axis]), size)
            if not is_const(e, 1):
                self.check(self._wrong_stride(tensor, axis, expected), Failure("strides", i, axis))
            if isinstance(e, IntImm) and isinstance(expected, int):
                expected *= e.value
                if expected >= 1 << 63:
                    # No array is so large, whatever its strides say: the shape check fails first.
                    return
            elif not buffer.strides:
                expected = g.text.op("mul", expected, dim)

    def _wrong_stride(self, tensor: _Tensor, axis: int, expected: int | Value) -> Value:
        g = self.g
        bad = g.text.op("icmp ne", tensor.strides[axis], expected)
        if not isinstance(tensor.buffer.shape[axis], IntImm):
            bad = g.text.op("and", bad, g.text.op("icmp ne", tensor.dims[axis], 1))
        return self._where_any(tensor, bad)

    def _where_any(self, tensor: _Tensor, bad: Value) -> Value:
        """`bad`, which is about where elements lie, for a tensor that may have none."""
        if tensor.not_empty == "true":
            return bad
        return self.g.text.op("and", bad, tensor.not_empty)

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
                bad = overlap(g.text, ranges[one.index], ranges[other.index])
                bad = self._where_any(other, self._where_any(one, bad))
                self.check(bad, Failure("alias", one.index, other=other.index))
        self.end_round()

    def _overlaps_in_loops(self, written: list[_Tensor], others: list[_Tensor]) -> None:
        """The same for many tensors: code that grows with their number, not with its square."""
        text = self.g.text
        order = [*written, *others]
        count = len(order)
        lows, highs = (text.alloca("i64", 8, count) for _ in range(2))
        for k, tensor in enumerate(order):
            low, high = self._range(tensor)
            if tensor.not_empty != "true":
                # An empty tensor overlaps nothing: it starts at the end of memory.
                low = text.select(tensor.not_empty, low, -1)
                high = text.select(tensor.not_empty, high, 0)
            text.store(low, self.at(lows, 8 * k), of="i64")
            text.store(high, self.at(highs, 8 * k), of="i64")
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
        with text.for_(len(written), guard="") as first:
            low, high = self._element(lows, first), self._element(highs, first)
            following = text.op("add nuw nsw", first, 1)
            some = text.op("icmp ult", following, count)
            with text.if_(some), text.for_(count, following) as second:
                low2, high2 = self._element(lows, second), self._element(highs, second)
                with text.if_(overlap(text, (low, high), (low2, high2))):
                    number = text.op("add", text.op("mul", first, count), second) if each else first
                    code = text.cast("trunc", text.op("add", number, base), "i32")
                    self.exits.append((code, text.block))
                    text.jump("exit")

    def _element(self, array: Value, index: Value) -> Value:
        place = self.g.text.element("i64", array, index, inbounds=True)
        return self.g.text.load("i64", place)

    def _range(self, tensor: _Tensor) -> tuple[Value, Value]:
        """First byte and the byte after the last."""
        g, buffer = self.g, tensor.buffer
        low = g.text.cast("ptrtoint", tensor.data, "i64")
        size = tensor.param.dtype.itemsize
        whole = None if buffer.strides else constant_size(buffer.shape, size)
        if whole is not None:
            return low, g.text.op("add", low, min(whole, 1 << 62))
        high = g.text.op("add", low, size)
        for dim, stride in zip(tensor.dims, tensor.strides):
            reach = g.text.op("mul", g.text.op("sub", dim, 1), stride)
            low = g.text.op("add", low, g.min_max("lt", _INT64, reach, 0))
            high = g.text.op("add", high, g.min_max("gt", _INT64, reach, 0))
        return low, high

    # -- the call ----------------------------------------------------------------------------------

    def call(self, symbol: str, inner_failures: list[int], threads: bool) -> None:
        g, text = self.g, self.g.text
        passed: list[Value] = []
        result: list[Value] = []
        by_index = {t.index: t for t in self.tensors}
        for i, param in enumerate(self.signature.params):
            if param.buffer is None:
                passed.append(g.env[param.var])
            elif param.access == "ret":
                result = [by_index[i].data]
            else:
                passed.append(by_index[i].data)
        passed += [g.wide[s] for s in self.signature.symbols] + result
        if threads:
            passed.append(self._threads())
        failed = text.call(symbol, *passed)
        self.exits.append((0, text.block))
        if not inner_failures:
            text.jump("exit")
        else:
            cases = {number: text.label("inner") for number in inner_failures}
            text.switch(failed, "exit", cases)
            for position, label in enumerate(cases.values()):
                text.start(label)
                self.exits.append((len(self.failures) + position + 1, label))
                text.jump("exit")
        text.start("exit")
        text.ret(text.phi("i32", *self.exits))

    def _threads(self) -> Value:
        """Most threads of a parallel loop: the caller leaves it in the first argument."""
        if not self.signature.params:
            return constant(0, "i64")
        place = self.g.text.at(_ARGS, 36, inbounds=True)
        return self.g.text.cast("sext", self.g.text.load("i32", place), "i64")


def overlap(text: Function, a: Sequence[Value], b: Sequence[Value]) -> Value:
    """i1: whether two ranges of addresses, (first, one after the last), have one in common."""
    (low, high), (low2, high2) = a, b
    return text.op("and", text.op("icmp ult", low, high2), text.op("icmp ult", low2, high))


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
        g.env[zero] = constant(0, scalar_type(zero.dtype))
    wrapper.kinds()
    wrapper.layouts()
    wrapper.overlaps()
    wrapper.call(symbol, inner_failures, threads)
    return wrapper.failures
