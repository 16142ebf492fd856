"""The builtins that compiled functions do themselves.

Each follows `runtime.builtin` on values that are as expected, and leaves for the interpreter on
all others. Here: tuples, tensors, conditions; memory is in `vm_memory`, shapes in `vm_checks`.
"""

from __future__ import annotations

from collections.abc import Callable

from ...base import llvm, to_numpy_dtype
from ...runtime import Builtin, builtin_named
from ...runtime import pyabi as abi
from .vm_body import Body
from .vm_checks import CHECKS
from .vm_dims import product
from .vm_memory import MOST_BYTES, alloc_storage, alloc_tensor, at_least_one, wanted_sizes
from .vm_values import Boolean, Heap, Integer, Memory, Nothing, Obj, Shape, Tensor, TupleOf, Value


def make_tuple(body: Body) -> None:
    objects = [body.boxed_operand(k) for k in range(len(body.ops[body.pc].args))]
    items: list[Value | None] = []
    for k, box in enumerate(objects):
        item = body.operand(k).copied()
        item.box = box
        items.append(None if isinstance(item, (Heap, Memory)) else item)
    whole = body.call("PyTuple_New", len(objects))
    body.fail_if_null(whole)
    for i, box in enumerate(objects):
        body.count(box)
        field = body.text.at(whole, abi.TUPLE_ITEMS + 8 * i)
        body.text.store(box, field)
    body.set(TupleOf(whole, tuple(items)), [whole])


def tuple_getitem(body: Body) -> None:
    index = body.static()[1]
    value = body.operand(0)
    if type(index) is not int:
        body.leave("the index of a tuple is not constant")
    if isinstance(value, Shape):
        if not 0 <= index < len(value.dims):
            body.leave("the index is out of range")
        body.set(Integer(value=value.dims[index]))
        return
    if isinstance(value, TupleOf):
        box = body.boxed(value, None)
        if not 0 <= index < len(value.items):
            body.leave("the index is out of range")
        known = value.items[index]
        if known is not None:
            body.share(known)
            return
    else:
        box = body.object_of(0, "tuple", "it is no tuple")
        if index < 0:
            body.leave("the index is out of range")
        length = body.field(box, abi.TUPLE_SIZE, "i64")
        body.guard(body.text.op("icmp sle", length, index))
    item = body.field(box, abi.TUPLE_ITEMS + 8 * index)
    body.share(Obj(item))


def move(body: Body) -> None:
    value = body.operand(0)
    if isinstance(value, (Heap, Memory)) and body.ops[body.pc].dst in body.flow.crossing:
        body.leave("a storage or shape heap is moved")
    body.share(value)


def null_value(body: Body) -> None:
    body.set(Nothing(body.in_context("obj:None")))


def is_null(body: Body) -> None:
    value = body.operand(0)
    if isinstance(value, Nothing):
        body.set(Boolean(value=llvm.constant(True, "i1")))
    elif isinstance(value, Obj) and not value.kind:
        box = body.boxed(value, None)
        body.set(Boolean(value=body.text.op("icmp eq", box, body.word("obj:None"))))
    else:
        body.set(Boolean(value=llvm.constant(False, "i1")))


def shape_of(body: Body) -> None:
    value = body.known_as(0, Tensor, "the rank of a tensor is not known")
    body.set(Shape(dims=value.dims))


def reshape(body: Body) -> None:
    value = body.known_as(0, Tensor, "the tensor is not known")
    if value.dtype is None:
        body.leave("the dtype of a tensor is not known")
    dims = wanted_sizes(body, body.static()[1])
    nonzero = tuple(at_least_one(body, d) for d in dims)
    body.refuse("ugt", product(body, nonzero), MOST_BYTES)
    body.refuse("ne", product(body, value.dims), product(body, dims))
    reshaped = value.copied()
    reshaped.dims = dims
    holder = value.holder
    if isinstance(value.box, llvm.Value):
        # Not the object: whoever donates it has to see that others look at its memory.
        holder = body.field(value.box, abi.SLOT_ARRAY)
    elif value.box is not None:
        # The object keeps the memory; numpy gives views the same root.
        holder = value.box
    assert holder is not None
    reshaped.box, reshaped.holder, reshaped.data = None, holder, value.data
    body.set_sharing(reshaped, holder)


def condition(body: Body, k: int) -> llvm.Value:
    """Argument `k` as a condition (i1)."""
    value = body.operand(k)
    text = body.text
    if isinstance(value, Boolean):
        return value.value
    if isinstance(value, Integer):
        return text.op("icmp ne", llvm.constant(value.value, "i64"), 0)
    if isinstance(value, Tensor) and value.dtype is not None:
        if all(extent == 1 for extent in value.dims) and not value.dtype.is_float:
            bits = to_numpy_dtype(value.dtype).itemsize * 8
            loaded = text.load(f"i{bits}", body.load(value.data), 1)
            return text.op("icmp ne", loaded, 0)
    if not isinstance(value, (Obj, Tensor)):
        body.leave("it is no condition")
    box = body.boxed(value, None)
    yes, plain = body.truth_of(box)
    ask, known = text.label("ask"), text.label("known")
    before = text.block
    text.branch(plain, known, ask)
    text.start(ask)
    truth = body.python(body.word("call:condition"), [box])
    answer = text.op("icmp eq", truth, body.word("obj:True"))
    body.drop(truth)
    after = text.block
    text.enter(known)
    return text.phi("i1", (yes, before), (answer, after))


def read_if_cond(body: Body) -> None:
    body.set(Boolean(value=condition(body, 0)))


def kill_object(body: Body) -> None:
    """Of no register: nothing."""


EMITTERS: dict[Builtin, Callable[[Body], None]] = {
    builtin_named(function.__name__): function
    for function in (
        *CHECKS,
        alloc_storage,
        alloc_tensor,
        make_tuple,
        tuple_getitem,
        move,
        null_value,
        is_null,
        shape_of,
        reshape,
        read_if_cond,
        kill_object,
    )
}
