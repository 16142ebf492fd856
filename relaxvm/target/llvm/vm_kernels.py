"""Calls of kernels from compiled functions: no wrapper, no argument structs.

What the wrapper would check (`wrapper.py`) is known here, or compared here; where something does
not hold, the function leaves, and the wrapper says what is wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from ...base import DataType, llvm
from ...ir import IntImm, PrimExpr, Var
from ...runtime import pyabi as abi
from ...runtime import release_elements
from ...tir.transform import lower_intrinsics
from .expr import ExprEmitter
from .text import scalar_type
from .vm_body import Body
from .vm_dims import product, sum_of
from .vm_values import Integer, Real, Size, Tensor
from .wrapper import overlap

_MAX_PAIRS = 64
_Emit = Callable[[], llvm.Value]
_Range = tuple[llvm.Value, llvm.Value, llvm.Value]


def call_kernel(body: Body, function: Any, info: Any) -> None:
    """Emit a call of the kernel `function` (see `codegen`), which `info` describes."""
    signature = function.signature
    params = signature.params
    if any(p.buffer is not None and p.buffer.strides for p in params):
        body.leave("a parameter of the kernel has strides")
    g = ExprEmitter(body.unit.generator, body.text)
    for zero in signature.zeros:
        g.env[zero] = llvm.constant(0, scalar_type(zero.dtype))
    tensors: dict[int, Tensor] = {}
    for i, param in enumerate(params):
        if param.buffer is None:
            _scalar(body, g, i, param)
            continue
        tensor = body.tensor(i, param.dtype, len(param.buffer.shape))
        assert tensor is not None
        tensors[i] = tensor
    _shapes(body, g, signature, tensors)
    for i, tensor in tensors.items():
        if "w" in params[i].access and not tensor.writeable:
            _check_writeable(body, tensor)
    if signature.noalias:
        _check_overlaps(body, params, tensors)
    args: list[llvm.Value] = []
    for i, param in enumerate(params):
        args.append(g.env[param.var] if param.buffer is None else body.load(tensors[i].data))
    args += [g.wide[s] for s in signature.symbols]
    if function.threads:
        args.append(body.word("threads", "i64"))
    # It is in an object of its own, with which this one is linked.
    generator = body.unit.generator
    generator.declare(function.symbol, "hidden i32", tuple(a.type for a in args), "nounwind")

    def call() -> llvm.Value:
        return body.text.call(function.symbol, *args)

    elements = sum_of(body, (product(body, tensor.dims, True) for tensor in tensors.values()))
    code = _call(body, call, elements, release_elements(info))
    inner = function.failures
    if inner:
        _check_code(body, code, inner, len(info.failures) - len(inner))


def _scalar(body: Body, g: ExprEmitter, i: int, param: Any) -> None:
    dtype = param.dtype
    if dtype.is_bool:
        g.env[param.var] = body.boolean(i)
    elif dtype.is_float:
        g.env[param.var] = g.cast(DataType("float64"), dtype, _double(body, i))
    else:
        number = body.integer(i)
        body.check_range(number, dtype)
        g.bind_symbol(param.var, llvm.constant(number, "i64"))


def _double(body: Body, i: int) -> llvm.Value:
    value = body.operand(i)
    if isinstance(value, Real):
        return value.value
    if isinstance(value, Integer):
        return body.text.cast("sitofp", llvm.constant(value.value, "i64"), "double")
    box = body.object_of(i, "float", "a scalar argument of the kernel is no number")
    number = body.call("PyFloat_AsDouble", box)
    body.refine(i, Real(value.box, number))
    return number


def _shapes(body: Body, g: ExprEmitter, signature: Any, tensors: dict[int, Tensor]) -> None:
    """Bind the symbols, check the sizes that follow from them."""
    pending: list[tuple[Size, PrimExpr]] = []
    for i, tensor in tensors.items():
        for e, size in zip(signature.params[i].buffer.shape, tensor.dims):
            if isinstance(e, IntImm):
                body.refuse("ne", size, e.value)
            elif isinstance(e, Var) and e not in g.env:
                if e in signature.tops:
                    body.refuse("ugt", size, signature.tops[e])
                else:
                    body.check_range(size, e.dtype)
                g.bind_symbol(e, llvm.constant(size, "i64"))
            else:
                pending.append((size, e))
    for size, e in pending:
        bound = g.wide.get(e) if isinstance(e, Var) else None
        wanted = bound or g.wide_value(lower_intrinsics(e))
        body.refuse("ne", llvm.constant(size, "i64"), wanted)


def _check_writeable(body: Body, tensor: Tensor) -> None:
    if tensor.region.kind == "constant":
        body.leave("the kernel writes a constant")
    assert tensor.box is not None
    array = body.field(body.load(tensor.box), abi.SLOT_ARRAY)
    flags = body.field(array, abi.ND_FLAGS, "i32", 4)
    flag = body.text.op("and", flags, abi.WRITEABLE)
    body.guard(body.text.op("icmp eq", flag, 0))


def _check_overlaps(body: Body, params: Any, tensors: dict[int, Tensor]) -> None:
    pairs = []
    done = set()
    for i, one in tensors.items():
        if "w" not in params[i].access:
            continue
        done.add(i)
        for j, other in tensors.items():
            if j not in done and _may_overlap(one, other):
                pairs.append((one, other))
    if len(pairs) > _MAX_PAIRS:
        body.leave("the kernel has very many arguments of unknown memory")
    ranges: dict[int, _Range] = {}
    for one, other in pairs:
        *range1, some = _range(body, one, ranges)
        *range2, some2 = _range(body, other, ranges)
        bad = overlap(body.text, range1, range2)
        for filled in (some, some2):
            if filled != "true":
                bad = body.text.op("and", bad, filled)
        body.guard(bad)


def _may_overlap(one: Tensor, other: Tensor) -> bool:
    if one.region is other.region:
        known = one.end >= 0 and other.end >= 0 and not _is_outside(one)
        return not known or (one.start < other.end and other.start < one.end)
    if 0 in one.dims or 0 in other.dims:
        return False
    if _is_outside(one) is _is_outside(other):
        return _is_outside(one)
    return (other if _is_outside(one) else one).region.shown


def _is_outside(tensor: Tensor) -> bool:
    return tensor.region.kind in ("foreign", "constant")


def _range(body: Body, tensor: Tensor, ranges: dict[int, _Range]) -> _Range:
    """First byte, the byte after the last, and whether there is any."""
    span = ranges.get(id(tensor))
    if span is None:
        text = body.text
        low = text.cast("ptrtoint", body.load(tensor.data), "i64")
        assert tensor.dtype is not None
        size = product(body, (*tensor.dims, tensor.dtype.itemsize), True)
        high = text.op("add", low, size)
        some = llvm.constant(True, "i1")
        if not isinstance(size, int) or not size:
            some = text.op("icmp ne", llvm.constant(size, "i64"), 0)
        span = ranges[id(tensor)] = (low, high, some)
    return span


def _call(body: Body, call: _Emit, elements: Size, release: int) -> llvm.Value:
    """The call, without the GIL where the work is worth it."""
    text = body.text
    if isinstance(elements, int):
        return _unlocked(body, call) if elements >= release else call()
    few, many, done = text.label("few"), text.label("many"), text.label("done")
    text.branch(text.op("icmp ult", elements, release), few, many)
    with body.aside(many):
        unlocked = _unlocked(body, call)
        text.jump(done)
    text.start(few)
    locked = call()
    text.enter(done)
    return text.phi("i32", (locked, few), (unlocked, many))


def _unlocked(body: Body, call: _Emit) -> llvm.Value:
    state = body.call("PyEval_SaveThread")
    code = call()
    body.call("PyEval_RestoreThread", state)
    return code


def _check_code(body: Body, code: llvm.Value, inner: tuple[int, ...], own_failures: int) -> None:
    text = body.text
    failed, fine = text.label("failed"), text.label("fine")
    text.branch(text.op("icmp ne", code, 0), failed, fine)
    with body.aside(failed):
        # The numbers ascend, most of them by one: those of the wrapper are so far from them.
        shift = llvm.constant(own_failures + 1 - inner[0], "i64")
        for position, (before, each) in enumerate(itertools.pairwise(inner), 1):
            if each != before + 1:
                further = text.op("icmp uge", code, each)
                shift = text.select(further, own_failures + 1 + position - each, shift)
        body.go_on_outside(text.op("add", text.cast("zext", code, "i64"), shift))
    text.start(fine)
