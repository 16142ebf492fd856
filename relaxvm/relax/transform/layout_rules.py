"""How operators follow tensors whose axes are laid out in another order, as one short rule for each
kind of operator.

    rule_of(op)(call, orders)       # of R.mean(x, axis=(2, 3)), x [n, c, h, w] laid out as NHWC
    Layouts(args=(NHWC,), result=None, attrs={"axis": (1, 2)})

Most rules follow from what records say: what works element by element says so, attributes that
number axes are renumbered, attributes that name a layout get another name. The rest stands in
`_TABLE`. A record may bring a rule of its own, of the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from ...base import record
from ...ir import IntImm, Op, const, is_const
from ..derive import dims_equal, prove_dims, tensor_dims
from ..expr import Call, PrimValue, Tuple
from ..known_ops import ops_named
from ..op.faces import scalars
from ..op.infer import axes_of, axis_of
from ..op.nn.layout import Layout
from ..op.record import ELEMENTWISE, Missing
from ..op.record import Op as Record
from ..op.sizes import simplified
from ..struct_info import Expr, ShapeExpr, StructInfo, TupleStructInfo

# -- orders ---------------------------------------------------------------------------------------


@record
class Order:
    """How the dimensions of a tensor as it is laid out stand for its axes as they were written.

    parts  of each dimension: which axis it holds, and of which block of it (0: all, or all blocks).
           [n, c, h, w] as NHWC: (0, 0), (2, 0), (3, 0), (1, 0); as NCHW16c: (0, 0), (1, 0), (2, 0),
           (3, 0), (1, 16).
    None stands for the order as written.
    """

    parts: tuple[tuple[int, int], ...]

    @cached_property
    def blocks(self) -> dict[int, int]:
        """axis -> block size, for the axes that have one"""
        return {axis: block for axis, block in self.parts if block}

    @cached_property
    def axes(self) -> list[int]:
        """The axes as they follow one another, blocks aside."""
        return [axis for axis, block in self.parts if not block]

    def position(self, axis: int) -> int:
        """The dimension that holds the axis, or its blocks."""
        return self.parts.index((axis, 0))

    def shape(self, dims: Sequence[Any], spread: bool = False) -> list[Any] | None:
        """The dimensions of a tensor of `dims`; None if its sizes do not divide.

        spread  it is broadcast to a tensor laid out so: it may have fewer axes, and axes of size 1
                need not divide
        """
        lead = len(self.axes) - len(dims)
        if lead and not (spread and lead > 0):
            return None
        sizes: list[Any] = []
        for axis, block in self.parts:
            dim = dims[axis - lead] if axis >= lead else 1
            whole = self.blocks.get(axis, 1)
            if whole == 1 or (spread and is_one(dim)):
                sizes.append(1 if block else dim)
            elif not divides(dim, whole):
                return None
            else:
                sizes.append(
                    block or (dim // whole if isinstance(dim, int) else simplified(dim // whole))
                )
        return sizes

    def renumbered(self, number: Mapping[int, int]) -> Order:
        """The same for a tensor whose axes have other numbers; those without one are gone."""
        return Order(tuple((number[axis], b) for axis, b in self.parts if axis in number))

    def with_axes(self, axis: int, count: int = 1) -> Order:
        """The same for a tensor with `count` more axes, the first of which is `axis`."""
        moved = self.renumbered({a: a + count * (a >= axis) for a in self.axes})
        place = moved.position(axis - 1) + 1 if axis else 0
        new = tuple((axis + k, 0) for k in range(count))
        return Order((*moved.parts[:place], *new, *moved.parts[place:]))


def plain(ndim: int) -> Order:
    """The order as written."""
    return Order(tuple((axis, 0) for axis in range(ndim)))


def canonical(order: Any) -> Any:
    """`order`, or None if it is that as written; of tuples, of each."""
    if isinstance(order, tuple):
        each = tuple(map(canonical, order))
        return each if any(o is not None for o in each) else None
    return None if order is None or order == plain(len(order.axes)) else order


def is_one(dim: Any) -> bool:
    """Whether a dimension is known to be 1."""
    return dim == 1 if isinstance(dim, int) else is_const(dim, 1)


def divides(dim: Any, block: int) -> bool:
    """Whether a dimension is certainly a multiple of `block`."""
    if isinstance(dim, (int, IntImm)):
        return (dim if isinstance(dim, int) else dim.value) % block == 0
    return prove_dims(dim % block, const(0, "int64")) is True


def same_sequence(a: Order, b: Order, dims: Sequence[Any]) -> bool:
    """Whether the elements of a tensor of `dims` follow one another alike in both orders: no axes
    but those of one element change places.
    """

    def sequence(order: Order) -> list[tuple[int, int]]:
        shape = order.shape(dims, spread=True) or ()
        kept: list[tuple[int, int]] = []
        for (axis, block), dim in zip(order.parts, shape):
            if block and (kept[-1:] == [(axis, 0)] or is_one(shape[order.position(axis)])):
                block = 0  # all of the axis
            if not is_one(dim) and kept[-1:] != [(axis, block)]:
                kept.append((axis, block))
        return kept

    return sequence(a) == sequence(b)


def order_named(name: str, written: str) -> Order | None:
    """The order that a tensor written in one layout has in another of the same axes; None if only
    one of them has these blocks, and both have some.
    """
    new, old = Layout(name), Layout(written)
    if not old.blocks:
        return Order(tuple((old.plain.index(a.upper()), b) for a, b in new.parts))
    if sorted(new.parts) != sorted(old.parts):
        return None
    return Order(tuple((old.parts.index(part), 0) for part in new.parts))


def name_of_order(order: Order | None, written: str) -> str | None:
    """The reverse of `order_named`: the layout that a tensor written in `written` is in."""
    if order is None:
        return written
    old = Layout(written)
    if not old.blocks:
        letters = ((old.plain[axis], b) for axis, b in order.parts)
        return "".join(f"{b}{a.lower()}" if b else a for a, b in letters)
    if order.blocks:
        return None
    return "".join(f"{b or ''}{a}" for a, b in (old.parts[axis] for axis in order.axes))


# -- rules ----------------------------------------------------------------------------------------


@record
class Layouts:
    """What a rule answers.

    args    what each argument has to be: an `Order`, None for as written, a tuple of these for a
            tuple, or an expression that takes its place
    result  the order that the result is in then, of a tuple the order of each field
    attrs   attributes that change
    same    the result is the first argument as it is laid out: nothing is computed
    exact   whether every sum has the order of summation that it had
    """

    args: tuple[Any, ...]
    result: Any
    attrs: Mapping[str, Any] = field(default_factory=dict)
    same: bool = False
    exact: bool = True


Rule = Callable[[Call, Sequence[Any]], "Layouts | str | None"]
"""(call, the order each argument is in) -> how the call follows; or why it cannot."""


def _ndim(value: Expr | StructInfo) -> int:
    dims = tensor_dims(value)
    return -1 if dims is None else len(dims)


def _results(call: Call) -> list[StructInfo]:
    info = call.struct_info
    return list(info.fields) if isinstance(info, TupleStructInfo) else [info]


def _of_results(call: Call, orders: Sequence[Any]) -> Any:
    return tuple(orders) if isinstance(call.struct_info, TupleStructInfo) else orders[0]


def _others(call: Call) -> tuple[None, ...]:
    return (None,) * (len(call.args) - 1)


def _elementwise(call: Call, orders: Sequence[Any]) -> Layouts | str:
    """All tensors in one order: that of the first with all axes of the result."""
    out = tensor_dims(_results(call)[0])
    if out is None:
        return "the shape of its result is not known"
    for order, arg in zip(orders, call.args):
        dims = tensor_dims(arg)
        if isinstance(order, Order) and dims is not None and len(dims) == len(out):
            if dims_equal([dims[a] for a in order.blocks], [out[a] for a in order.blocks]):
                break
    else:
        return "what is laid out is broadcast"
    args: list[Any] = []
    for arg in call.args:
        dims = tensor_dims(arg)
        if dims is not None and order.shape(dims, spread=True) is None:
            return "another operand does not divide into blocks"
        args.append(order if dims else None)
    return Layouts(tuple(args), _of_results(call, [order] * len(_results(call))))


_PLACES = ops_named("argmax argmin")
_NUMBERS = ("axis", "axes", "channel_axis", "seq_axis", "batch_axis")


def _numbered(call: Call, orders: Sequence[Any]) -> Layouts | str:
    """Attributes that number the axes of the first argument are renumbered. Tensors of its rank
    follow it, but not weights of several axes: theirs follow one another as `axes` has them.
    """
    ndim = _ndim(call.args[0])
    alone = "axes" in call.attrs
    of_rank = [_ndim(arg) == ndim and not (alone and k) for k, arg in enumerate(call.args)]
    order = next((o for o, fits in zip(orders, of_rank) if fits and isinstance(o, Order)), None)
    if order is None:
        return "its first argument is not laid out"
    touched: list[int] = []
    attrs: dict[str, Any] = {}
    reduces = "keepdims" in call.attrs
    for name in set(_NUMBERS) & call.attrs.keys():
        value = call.attrs[name]
        axes = axes_of(value, ndim, name)
        touched += axes
        if value is not None:
            new = tuple(order.position(a) for a in axes)
            attrs[name] = new[0] if isinstance(value, int) else new
        elif not reduces or call.op in _PLACES:
            return "it takes elements in row-major order"
    if any(a in order.blocks for a in touched):
        return "it works along an axis that is in blocks"
    result = order
    if reduces and not call.attrs["keepdims"]:
        rest = [a for a in range(ndim) if a not in touched]
        result = order.renumbered({a: k for k, a in enumerate(rest)})
    fields = [result if _ndim(info) == len(result.axes) else None for info in _results(call)]
    args = tuple(order if fits else None for fits in of_rank)
    kept = [a for a in order.axes if a in touched] == sorted(touched)
    return Layouts(args, _of_results(call, fields), attrs, exact=kept)


def _batch_norm(call: Call, orders: Sequence[Any]) -> Layouts | str:
    """Sums run over all axes but that of the channels."""
    layouts = _numbered(call, orders)
    if isinstance(layouts, str):
        return layouts
    axis, order = axis_of(call.attrs["axis"], len(layouts.result[0].axes)), layouts.result[0]
    others = [a for a in order.axes if a != axis]
    return replace(layouts, exact=not order.blocks and others == sorted(others))


_NAMES = ("data_layout", "layout")


def layout_attributes(op: Op) -> dict[str, Any]:
    """The attributes of an operator that name layouts, and their defaults, in the order in which
    wanted layouts are given: of data, of the kernel, of the result.
    """
    names = (*_NAMES, "kernel_layout", "out_layout")
    params = {p.name: p.default for p in op.params} if isinstance(op, Record) else {}
    return {name: params[name] for name in names if name in params}


def named_layouts(call: Call) -> dict[str, str]:
    """The layouts that a call says its data, its kernel and its result are in."""
    assert isinstance(call.op, Op)
    layouts = {name: call.attrs[name] for name in layout_attributes(call.op)}
    data = next(layouts[name] for name in _NAMES if name in layouts)
    return {name: value or data for name, value in layouts.items()}


def with_named(call: Call, wanted: Mapping[str, str]) -> Layouts | str:
    """`call` with layouts by the names of their attributes; its result is laid out as its data is
    where nothing else is said. Blocks into which sizes do not divide are left out.
    """
    now = named_layouts(call)
    data = next(iter(now))
    new = {**now, **wanted}
    if "out_layout" in now and "out_layout" not in wanted:
        new["out_layout"] = new[data]
    assert isinstance(call.op, Record)
    names = [p.name for p in call.op.params if p.form is not None]
    gradient = "output_grad" in names
    of = {"data": data, "weight": "kernel_layout", "output_grad": "out_layout"}
    if "out_layout" not in now:
        of["output_grad"] = data
    result = data if gradient else of["output_grad"]
    places: list[tuple[str, Any]] = [(of[n], x) for n, x in zip(names, call.args) if n in of]
    places.append((result, _results(call)[0]))
    for key, value in places:
        if new[key] != now[key]:
            new[key] = _dividing(new[key], now[key], tensor_dims(value) or ())
    orders = {key: order_named(new[key], now[key]) for key in now}
    if None in orders.values():
        return f"it is in the blocks {', '.join(now.values())} already"
    args = tuple(orders[of[n]] if n in of else None for n, _ in zip(names, call.args))
    fields = [orders[result], *(None for _ in _results(call)[1:])]
    return Layouts(args, _of_results(call, fields), new)


def _dividing(name: str, written: str, dims: Sequence[Any]) -> str:
    """The layout `name` without the blocks that the sizes of a tensor do not divide into."""
    sizes = dict(zip(Layout(written).plain, dims))
    layout = Layout(name)
    return "".join(
        f"{block or ''}{letter}"
        for letter, block in layout.parts
        if not block or (letter.upper() in sizes and divides(sizes[letter.upper()], block))
    )


def _layout_named(call: Call, orders: Sequence[Any]) -> Layouts | str:
    """Data takes any order; attributes name it."""
    assert isinstance(call.op, Record)
    names = [p.name for p in call.op.params if p.form is not None]
    now = named_layouts(call)
    data = next(iter(now))
    for arg, key in (("data", data), ("output_grad", "out_layout"), ("output_grad", data)):
        order = orders[names.index(arg)] if arg in names else None
        if isinstance(order, Order) and key in now:
            name = name_of_order(order, now[key])
            if name is None:
                return f"it is in the blocks {now[key]} already"
            return with_named(call, {data: name})
    return "its data is not laid out"


def _permute(call: Call, orders: Sequence[Any]) -> Layouts:
    """Nothing moves: the axes have other numbers."""
    (order,) = orders
    return Layouts((order,), order.renumbered(permuted(call)), same=True)


def permuted(call: Call) -> dict[int, int]:
    """axis of the argument of permute_dims -> axis of the result"""
    ndim = _ndim(call.args[0])
    axes = call.attrs["axes"]
    order = range(ndim)[::-1] if axes is None else axes_of(axes, ndim, "axes")
    return {a: k for k, a in enumerate(order)}


def _expand(call: Call, orders: Sequence[Any]) -> Layouts:
    order, out, axis = orders[0], _ndim(call), call.attrs["axis"]
    attrs: list[int] = []
    for a in sorted(axes_of(axis, out, "axis")):
        order = order.with_axes(a)
    attrs = [order.position(a) for a in axes_of(axis, out, "axis")]
    return Layouts(tuple(orders), order, {"axis": attrs[0] if isinstance(axis, int) else attrs})


def _squeeze(call: Call, orders: Sequence[Any]) -> Layouts | str:
    order, dims, axis = orders[0], tensor_dims(call.args[0]), call.attrs["axis"]
    if dims is None:
        return "the shape of its argument is not known"
    gone = [k for k, d in enumerate(dims) if is_one(d)]
    if axis is not None:
        gone = list(axes_of(axis, len(dims)))
    rest = [a for a in range(len(dims)) if a not in gone]
    result = order.renumbered({a: k for k, a in enumerate(rest)})
    return Layouts(tuple(orders), result, {"axis": [order.position(a) for a in gone]})


def _fields(call: Call, orders: Sequence[Any]) -> tuple[Order | None, list[Any]]:
    """The order that most fields of a tuple are in, and their dimensions."""
    info = call.args[0].struct_info
    infos = info.fields if isinstance(info, TupleStructInfo) else ()
    known = [o for o in orders[0] or () if isinstance(o, Order)]
    most = max(known, key=known.count) if known else None
    return most, [tensor_dims(i) for i in infos]


def _concat(call: Call, orders: Sequence[Any]) -> Layouts | str:
    order, dims = _fields(call, orders)
    axis = call.attrs["axis"]
    if order is None or axis is None:
        return "it takes elements in row-major order"
    if any(d is None or order.shape(d) is None for d in dims):
        return "what it joins does not divide into blocks"
    place = order.position(axis_of(axis, len(order.axes)))
    return Layouts(((order,) * len(dims),), order, {"axis": place})


def _stack(call: Call, orders: Sequence[Any]) -> Layouts | str:
    order, dims = _fields(call, orders)
    if order is None:
        return "what it stacks is not laid out"
    axis = axis_of(call.attrs["axis"], len(order.axes), extra=1)
    result = order.with_axes(axis)
    return Layouts(((order,) * len(dims),), result, {"axis": result.position(axis)})


def _split(call: Call, orders: Sequence[Any]) -> Layouts | str:
    order, cuts = orders[0], call.attrs["indices_or_sections"]
    axis = axis_of(call.attrs["axis"], len(order.axes))
    block = order.blocks.get(axis, 1)
    pieces = [tensor_dims(info) for info in _results(call)]
    whole = all(divides(d[axis], block) for d in pieces if d is not None)
    if block > 1 and not (whole and isinstance(cuts, int)):
        if isinstance(cuts, int) or any(c % block for c in cuts):
            return "it cuts through blocks"
        cuts = tuple(c // block for c in cuts)
    attrs = {"axis": order.position(axis), "indices_or_sections": cuts}
    return Layouts(tuple(orders), (order,) * len(pieces), attrs)


def _slice(call: Call, orders: Sequence[Any]) -> Layouts | str:
    order = orders[0]
    numbers = [v.value for v in scalars(call.args[1], "axes") if isinstance(v, IntImm)]
    axes = axes_of(numbers, len(order.axes), "axes")
    if any(a in order.blocks for a in axes):
        return "it cuts through blocks"
    new = Tuple([PrimValue(order.position(a)) for a in axes])
    return Layouts((order, new, *_others(call)[1:]), order)


def _pad(call: Call, orders: Sequence[Any]) -> Layouts | str:
    order, widths = orders[0], call.attrs["pad_width"]
    all_widths: list[int] = []
    for axis, block in order.parts:
        whole, pair = order.blocks.get(axis, 1), widths[2 * axis : 2 * axis + 2]
        if whole > 1 and any(pair) and call.attrs["pad_mode"] != "constant":
            return "it pads within blocks"
        if any(w % whole for w in pair):
            return "it pads within blocks"
        all_widths += [0 if block else w // whole for w in pair]
    return Layouts(tuple(orders), order, {"pad_width": tuple(all_widths)})


def _tile(call: Call, orders: Sequence[Any]) -> Layouts | str:
    order, repeats = orders[0], call.attrs["repeats"]
    times = (repeats,) if isinstance(repeats, int) else tuple(repeats)
    if len(times) > len(order.axes):
        return "its result has more axes"
    times = (1,) * (len(order.axes) - len(times)) + times
    counts = tuple(1 if block else times[axis] for axis, block in order.parts)
    return Layouts(tuple(orders), order, {"repeats": counts})


def _broadcast_to(call: Call, orders: Sequence[Any]) -> Layouts | str:
    order, out = orders[0], tensor_dims(call)
    if out is None or len(out) != len(order.axes):
        return "its result has more axes"
    shape = order.shape(out)
    return (
        "its sizes are no multiples" if shape is None else Layouts((order, ShapeExpr(shape)), order)
    )


def _take(call: Call, orders: Sequence[Any]) -> Layouts | str:
    order, axis, count = orders[0], call.attrs["axis"], _ndim(call.args[1])
    if not isinstance(order, Order) or axis is None or count < 0:
        return "it takes elements in row-major order"
    axis = axis_of(axis, len(order.axes))
    if axis in order.blocks:
        return "it works along an axis that is in blocks"
    place = order.position(axis)
    result = order.renumbered({a: a + (count - 1) * (a > axis) for a in order.axes if a != axis})
    new = tuple((axis + k, 0) for k in range(count))
    result = Order((*result.parts[:place], *new, *result.parts[place:]))
    return Layouts((order, None), result, {"axis": place})


def _triangle(call: Call, orders: Sequence[Any]) -> Layouts | str:
    order = orders[0]
    last = len(order.axes) - 1
    if order.parts[-2:] != ((last - 1, 0), (last, 0)):
        return "rows and columns are its last two axes"
    return Layouts((order, *_others(call)), order)


def _row_major(call: Call, orders: Sequence[Any]) -> Layouts | str:
    order, dims = orders[0], tensor_dims(call.args[0])
    if dims is None or not same_sequence(order, plain(len(dims)), dims):
        return "it takes elements in row-major order"
    return Layouts((order, *_others(call)), None)


_TABLE: tuple[tuple[str, Rule], ...] = (
    ("permute_dims", _permute),
    ("nn.batch_norm", _batch_norm),
    ("expand_dims", _expand),
    ("squeeze", _squeeze),
    ("concat", _concat),
    ("stack", _stack),
    ("split", _split),
    ("strided_slice", _slice),
    ("nn.pad", _pad),
    ("tile", _tile),
    ("broadcast_to", _broadcast_to),
    ("take", _take),
    ("tril triu", _triangle),
    ("reshape flatten", _row_major),
    ("zeros_like ones_like full_like nn.dropout builtin.stop_lift_params", _elementwise),
    ("hint_on_device to_vdevice", _elementwise),
)
_OURS = f"{__name__.rpartition('.transform.')[0]}.op."
_RULES: Mapping[Op, Rule] = {op: rule for names, rule in _TABLE for op in ops_named(names)}


def rule_of(op: Any) -> Rule | Missing:
    """How calls of an operator follow what their arguments are laid out as; or why they do not."""
    if op in _RULES:
        return _RULES[op]
    declared = op.layout if isinstance(op, Record) else Missing("what it does is not known")
    if declared == ELEMENTWISE:
        return _elementwise
    if isinstance(declared, Missing) or callable(declared):
        return declared
    if not op.rule.__module__.startswith(_OURS):
        return Missing("it does not say how")
    if layout_attributes(op):
        return _layout_named
    if any(p.name in _NUMBERS for p in op.params):
        return _numbered
    return Missing("its attributes say nothing of axes")
