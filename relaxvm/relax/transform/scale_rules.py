"""What becomes of an operator's result when its arguments are scaled, as one short rule for each
operator.

    relation = relation_of(call)              # of R.nn.conv2d(x, w), NCHW and OIHW
    relation.ways(OUT, s)                     # s: [1, c, 1, 1]
    [{1: s as [c, 1, 1, 1]}]                  # conv2d(x, w * s) is conv2d(x, w) * s

A scale is an array of a tensor's rank, of size 1 along the axes that it is the same along. A slot
is the position of an operand among the leaves of a call's arguments, or `OUT`, its result. Rules
give labels to the axes of every slot; what holds of one slot holds of others along axes of the same
label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from ...ir import Op
from ..derive import prove_dims, tensor_dims
from ..expr import Call, Constant, PrimValue, Tuple
from ..flow import leaves
from ..known_ops import ops_named
from ..op.infer import FLOAT, axes_of, axis_of
from ..op.nn.layout import Layout
from ..struct_info import Expr, TensorStructInfo

OUT = -1
"""The slot of a call's result."""
Scale = np.ndarray
Way = Mapping[int, Scale]
"""By slot: how it has to be scaled; what is not in it stays as it is."""


class View:
    """How the dimensions of a tensor stand for the labels of a rule.

    axes    the labels of each axis, outer first; "": no scale may vary along it
    dims    the size of each dimension, None where that is no constant
    sizes   of labels that are not the first of their axis
    groups  the dimensions that hold each axis, outer first; None: one for each
    """

    def __init__(
        self,
        axes: Sequence[str],
        dims: Sequence[int | None],
        sizes: Mapping[str, int] | None = None,
        groups: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.axes, self.dims, self.sizes = axes, dims, sizes or {}
        self.groups = groups or [(k,) for k in range(len(dims))]
        self.labels = "".join(axes)
        self.order = [k for group in self.groups for k in group]

    def labelled(self, scale: Scale) -> tuple[str, np.ndarray] | None:
        """`scale` with an axis for each label, and these; None if it varies where it may not."""
        shape, split = list(scale.shape), []
        for labels, group in zip(self.axes, self.groups):
            if all(shape[k] == 1 for k in group):
                split += [1] * len(labels)
                continue
            whole = self._filled(group, shape)
            if whole is None or not labels:
                return None
            split += self._parts(labels, whole)
        spread = np.broadcast_to(scale, shape).transpose(self.order)
        return self.labels, spread.reshape(split)

    def scale(self, labels: str, array: np.ndarray) -> Scale | None:
        """The reverse of `labelled`; None if the array varies along a label that is not here."""
        place = {label: k for k, label in enumerate(labels)}
        if any(n > 1 and label not in self.labels for label, n in zip(labels, array.shape)):
            return None
        own = [place[label] for label in self.labels if label in place]
        rest = [k for k, label in enumerate(labels) if label not in self.labels]
        sizes = {label: array.shape[k] for label, k in place.items()}
        spread = array.transpose([*own, *rest])
        spread = spread.reshape([sizes.get(label, 1) for label in self.labels])
        full, split = [], [1] * len(self.dims)
        for axis, group in zip(self.axes, self.groups):
            have = [sizes.get(label, 1) for label in axis]
            if math.prod(have) > 1:
                whole = self._filled(group, split)
                if whole is None:
                    return None
                have = self._parts(axis, whole)
            full += have
        spread = np.broadcast_to(spread, full).reshape([split[k] for k in self.order])
        return spread.transpose(np.argsort(self.order))

    def _filled(self, group: Sequence[int], shape: list[int]) -> int | None:
        """The size of the axis that `group` holds, whose dimensions are put into `shape`."""
        for k in group:
            size = self.dims[k]
            if size is None:
                return None
            shape[k] = size
        return math.prod(shape[k] for k in group)

    def _parts(self, labels: str, whole: int) -> list[int]:
        inner = [self.sizes[label] for label in labels[1:]]
        return [whole // max(math.prod(inner), 1), *inner]


class Relation(Protocol):
    """How the scales of a call's slots belong together."""

    def ways(self, slot: int, scale: Scale) -> Sequence[Way]:
        """If `slot` is scaled so, what else may be scaled so that the call still holds."""


class Together:
    """The result is scaled if all of its `views` are, alike: sums, selections, moves."""

    def __init__(self, views: Mapping[int, View]) -> None:
        self.views = views

    def ways(self, slot: int, scale: Scale) -> Sequence[Way]:
        """All slots at once."""
        labelled = self.views[slot].labelled(scale) if slot in self.views else None
        if labelled is None:
            return ()
        way: dict[int, Scale] = {}
        for k, view in self.views.items():
            own = view.scale(*labelled)
            if own is None:
                return ()
            if k != slot:
                way[k] = own
        return (way,)


class Rising(Together):
    """So are greatest values and what is linear on either side of 0, by scales that are not
    negative.
    """

    def ways(self, slot: int, scale: Scale) -> Sequence[Way]:
        """All slots at once, if the scale is not negative."""
        return () if (scale < 0).any() else super().ways(slot, scale)


class Product:
    """The result is scaled as any one of the factors is.

    inverse  the slots that it is divided by
    """

    def __init__(self, views: Mapping[int, View], inverse: Sequence[int] = ()) -> None:
        self.views, self.inverse = views, inverse

    def ways(self, slot: int, scale: Scale) -> Sequence[Way]:
        """The result, or one other factor that makes up for it."""
        if slot not in self.views:
            return ()
        if slot in self.inverse:
            scale = 1.0 / scale
        labelled = self.views[slot].labelled(scale)
        ways = []
        for k, view in self.views.items():
            if labelled is None or k == slot:
                continue
            labels, array = labelled
            if (OUT in (k, slot)) == (k in self.inverse):
                array = 1.0 / array
            other_scale = view.scale(labels, array)
            if other_scale is not None:
                ways.append({k: other_scale})
        return ways


class Joined:
    """The result is made of the arguments, one after the other along `axis`, of these sizes."""

    def __init__(self, axis: int, sizes: Sequence[int]) -> None:
        self.axis, self.sizes = axis, sizes

    def ways(self, slot: int, scale: Scale) -> Sequence[Way]:
        """What stands in the result is scaled where it came from."""
        ends = np.cumsum(self.sizes)
        if slot != OUT:
            shape = list(scale.shape)
            shape[self.axis] = int(ends[-1])
            whole = np.ones(shape)
            part = [slice(None)] * scale.ndim
            part[self.axis] = slice(int(ends[slot]) - self.sizes[slot], int(ends[slot]))
            whole[tuple(part)] = scale
            return ({OUT: whole},)
        if scale.shape[self.axis] == 1:
            return (dict.fromkeys(range(len(self.sizes)), scale),)
        return (dict(enumerate(np.split(scale, ends[:-1].tolist(), self.axis))),)


# -- views ----------------------------------------------------------------------------------------


def operand_dims(value: Expr) -> tuple[Any, ...] | None:
    """The dimensions of an operand: a scalar value has none. None if they are not known."""
    return () if isinstance(value, PrimValue) else tensor_dims(value)


def _sizes(dims: Sequence[Any]) -> list[int | None]:
    return [getattr(d, "value", None) for d in dims]


def _letters(count: int) -> list[str]:
    return [chr(ord("a") + k) for k in range(count)]


def _broadcast(value: Expr, out: Sequence[Any], letters: Sequence[str]) -> View | None:
    """The view of an operand that is broadcast to `out`, whose axes have these labels. A constant
    may vary along every axis: it grows.
    """
    dims = operand_dims(value)
    if dims is None or len(dims) > len(out):
        return None
    first = len(out) - len(dims)
    if isinstance(value, (Constant, PrimValue)):
        return View(letters, _sizes(out))
    pairs = zip(dims, out[first:], letters[first:])
    return View([label if prove_dims(d, o) else "" for d, o, label in pairs], _sizes(dims))


def _laid_out(dims: Sequence[Any], layout: Layout, axes: Mapping[str, str], **sizes: int) -> View:
    """The view of a tensor of `layout`, of whose axes some have labels."""
    groups = [
        [layout.position(a), *(k for k, (b, n) in enumerate(layout.parts) if n and b.upper() == a)]
        for a in layout.plain
    ]
    return View([axes.get(a, "") for a in layout.plain], _sizes(dims), sizes, groups)


# -- rules ----------------------------------------------------------------------------------------

Rule = Callable[[Call, Sequence[Any]], "Relation | None"]
"""(call, the dimensions of its result) -> how its slots belong together."""


def _elementwise(slots: Sequence[int], make: Callable[[dict[int, View]], Relation]) -> Rule:
    """A rule for operands that are broadcast to the result."""

    def rule(call: Call, out: Sequence[Any]) -> Relation | None:
        letters = _letters(len(out))
        views = {OUT: View(letters, _sizes(out))}
        for k in slots:
            view = _broadcast(call.args[k], out, letters)
            if view is None:
                return None
            views[k] = view
        return make(views)

    return rule


_one = _elementwise((0,), Together)


def _conv(call: Call, out: Sequence[Any]) -> Relation | None:
    """The channels of the result are those of the groups, one after the other."""
    data, weight = map(tensor_dims, call.args)
    attrs, transposed = call.attrs, "output_padding" in call.attrs
    if data is None or weight is None:
        return None
    x, w, y = (Layout(attrs[f"{n}_layout"]) for n in ("data", "kernel", "out"))
    known = _sizes(weight)
    if None in known:
        return None
    kernel_sizes = w.sizes(known)
    groups, o, i = attrs["groups"], kernel_sizes["O"], kernel_sizes["I"]
    each = {"O": o, "I": i // groups} if transposed else {"O": o // groups, "I": i}
    kernel = {"O": "O", "I": "GI"} if transposed else {"O": "GO", "I": "I"}
    return Product(
        {
            1: _laid_out(weight, w, kernel, **each),
            0: _laid_out(data, x, {"N": "N", "C": "GI"}, **each),
            OUT: _laid_out(out, y, {"N": "N", "C": "GO"}, **each),
        }
    )


def _matmul(call: Call, out: Sequence[Any]) -> Relation | None:
    one, two = map(tensor_dims, call.args)
    if one is None or two is None:
        return None
    rows, columns = ["M"] * (len(one) > 1), ["N"] * (len(two) > 1)
    batch = len(out) - len(rows) - len(columns)
    letters = _letters(batch)
    views = {OUT: View([*letters, *rows, *columns], _sizes(out))}
    for k, own, last in ((1, two, ["K", *columns]), (0, one, [*rows, "K"])):
        leading = own[: len(own) - len(last)]
        first = batch - len(leading)
        pairs = zip(leading, out[first:batch], letters[first:])
        axes = [label if prove_dims(d, o) else "" for d, o, label in pairs]
        views[k] = View([*axes, *last], _sizes(own))
    return Product(views)


def _pool(kind: type[Together]) -> Rule:
    def rule(call: Call, out: Sequence[Any]) -> Relation | None:
        dims, attrs = tensor_dims(call.args[0]), call.attrs
        if dims is None:
            return None
        kept = {"N": "N", "C": "C"}
        layout = attrs["layout"]
        result = attrs.get("out_layout") or layout
        views = {
            0: _laid_out(dims, Layout(layout), kept),
            OUT: _laid_out(out, Layout(result), kept),
        }
        return kind(views)

    return rule


def _permute(call: Call, out: Sequence[Any]) -> Relation | None:
    dims = tensor_dims(call.args[0])
    if dims is None:
        return None
    letters = _letters(len(dims))
    axes = call.attrs["axes"]
    order = range(len(dims))[::-1] if axes is None else axes_of(axes, len(dims), "axes")
    return Together(
        {0: View(letters, _sizes(dims)), OUT: View([letters[k] for k in order], _sizes(out))}
    )


def _reshape(call: Call, out: Sequence[Any]) -> Relation | None:
    """Axes before and after those that change keep their scales."""
    dims = tensor_dims(call.args[0])
    if dims is None:
        return None
    letters = _letters(max(len(dims), len(out)))
    views = []
    shorter = min(len(dims), len(out))
    same = [bool(prove_dims(a, b)) for a, b in zip(dims, out)]
    first = same.index(False) if False in same else shorter
    ends = [bool(prove_dims(a, b)) for a, b in zip(dims[::-1], out[::-1])][: shorter - first]
    last = ends.index(False) if False in ends else len(ends)
    for own in (dims, out):
        middle = [""] * (len(own) - first - last)
        axes = [*letters[:first], *middle, *letters[len(letters) - last :]]
        views.append(View(axes, _sizes(own)))
    return Together({0: views[0], OUT: views[1]})


def _reduce(kind: type[Together]) -> Rule:
    def rule(call: Call, out: Sequence[Any]) -> Relation | None:
        dims, axis = tensor_dims(call.args[0]), call.attrs["axis"]
        if dims is None:
            return None
        gone = range(len(dims)) if axis is None else axes_of(axis, len(dims), "axis")
        axes = ["" if k in gone else label for k, label in enumerate(_letters(len(dims)))]
        kept = axes if call.attrs["keepdims"] else [a for k, a in enumerate(axes) if k not in gone]
        return kind({0: View(axes, _sizes(dims)), OUT: View(kept, _sizes(out))})

    return rule


def _pad(call: Call, out: Sequence[Any]) -> Relation | None:
    attrs = call.attrs
    if attrs["pad_mode"] == "constant" and attrs["pad_value"] != 0:
        return None
    return _one(call, out)


def _concat(call: Call, out: Sequence[Any]) -> Relation | None:
    fields = call.args[0]
    if not isinstance(fields, Tuple) or call.attrs["axis"] is None:
        return None
    axis = axis_of(call.attrs["axis"], len(out))
    sizes: list[int] = []
    for field in fields.fields:
        size = _sizes(tensor_dims(field) or ())[axis:][:1]
        if not size or size[0] is None:
            return None
        sizes.append(size[0])
    return Joined(axis, sizes)


_TABLE: tuple[tuple[str, Rule], ...] = (
    ("add subtract", _elementwise((0, 1), Together)),
    ("maximum minimum", _elementwise((0, 1), Rising)),
    ("where", _elementwise((1, 2), Together)),
    ("multiply", _elementwise((0, 1), Product)),
    ("divide", _elementwise((0, 1), partial(Product, inverse=(1,)))),
    ("negative broadcast_to", _one),
    ("abs nn.relu nn.leakyrelu nn.prelu", _elementwise((0,), Rising)),
    ("nn.pad", _pad),
    ("matmul", _matmul),
    ("nn.conv1d nn.conv2d nn.conv3d", _conv),
    ("nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose", _conv),
    ("nn.max_pool1d nn.max_pool2d nn.max_pool3d", _pool(Rising)),
    ("nn.adaptive_max_pool1d nn.adaptive_max_pool2d nn.adaptive_max_pool3d", _pool(Rising)),
    ("nn.global_max_pool1d nn.global_max_pool2d nn.global_max_pool3d", _pool(Rising)),
    ("nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d", _pool(Together)),
    ("nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d", _pool(Together)),
    ("nn.global_avg_pool1d nn.global_avg_pool2d nn.global_avg_pool3d", _pool(Together)),
    ("permute_dims", _permute),
    ("reshape flatten squeeze expand_dims", _reshape),
    ("sum mean", _reduce(Together)),
    ("max min", _reduce(Rising)),
    ("concat", _concat),
)
RULES: dict[Op, Rule] = {op: rule for names, rule in _TABLE for op in ops_named(names)}


def relation_of(call: Call) -> Relation | None:
    """How the scales of the operands of `call` and of its result belong together; None if they do
    not, as far as is known. All are tensors of one floating dtype.
    """
    op: Any = call.op
    rule, info = RULES.get(op), call.struct_info
    if rule is None or not isinstance(info, TensorStructInfo) or info.dims is None:
        return None
    if info.dtype.kind not in FLOAT:
        return None
    operands: list[Any] = leaves(call)[1:]
    kinds = {getattr(a.struct_info, "dtype", None) for a in operands}
    if any(k is not None and not k.is_bool and k is not info.dtype for k in kinds):
        return None
    return rule(call, info.dims)
