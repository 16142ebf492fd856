"""Which operator of Relay stands for operators of `relax.op`: what the text form is written and
read by.

    spelled_as(R.matmul(x, R.permute_dims(w)))  ->  nn.dense, {data: x, weight: w, units: 10}
    called("nn.dense", [x, w], {"units": 10})   ->  R.matmul(x, R.permute_dims(w))

A row of `_ROWS` only proposes: what it says is built, and taken where it gives the very call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..base import DataType, NamedTuple, RelaxvmError, StructInfoError
from ..base import dtype as as_dtype
from ..ir import IntImm, Op, PrimExpr, VDevice, structural_equal
from ..relax import (
    Call,
    Constant,
    Expr,
    PrimValue,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    const,
    is_leaf,
)
from ..tir import IndexMap
from .spelling import CALLS, Place, Said, Spelled, arguments, operand, parts_of

Values = dict[str, Any]
Inner = Callable[[Any], Any]
"""What computes an operand: a call, or None."""


class Spelling(NamedTuple):
    """A call in Relay's words.

    args      its operands in order
    attrs     what else it takes, in the order of its signature
    absorbed  operands of the original call, that this one computes itself
    """

    name: str
    args: list[Any]
    attrs: Values
    absorbed: list[Any]


# -- what the text leaves out ----------------------------------------------------------------------

# Attributes that are left out at another value than the operator's own default.
_DEFAULTS: dict[str, Values] = {
    "concatenate": {"axis": 0},
    "stack": {"axis": 0},
    "nn.batch_matmul": {"transpose_b": False},
    "nn.leaky_relu": {"alpha": 0.25},
    "cumsum": {"exclusive": False},
    "cumprod": {"exclusive": False},
    "nn.upsampling": {"scale_h": 1.0, "scale_w": 1.0},
    "image.resize2d": {"rounding_method": "round"},
}
_CONV, _POOL = ("padding",), ("pool_size", "padding")
# Attributes that are always written.
_SHOWN: dict[str, tuple[str, ...]] = {
    "nn.dense": ("units",),
    "nn.matmul": ("units",),
    "transpose": ("axes",),
    "strided_slice": ("begin", "end", "strides", "axes"),
    "full": ("shape", "dtype"),
    "image.resize2d": ("size", "roi"),
    "qnn.quantize": ("out_dtype",),
    "qnn.requantize": ("out_dtype",),
    "qnn.dense": ("units", "out_dtype"),
    "qnn.batch_matmul": ("out_dtype",),
    "qnn.conv2d": ("padding", "out_dtype"),
    "qnn.conv2d_transpose": ("padding", "out_dtype"),
    **{f"nn.conv{n}d{kind}": _CONV for n in (1, 2, 3) for kind in ("", "_transpose")},
    **{f"nn.{kind}_pool{n}d": _POOL for n in (1, 2, 3) for kind in ("max", "avg")},
}
_MISSING = inspect.Parameter.empty


def _default(op: Spelled, key: str) -> Any:
    """The value at which the text leaves an attribute out."""
    if key in _SHOWN.get(op.name, ()):
        return _MISSING
    own = op.signature.parameters[key].default
    return _DEFAULTS.get(op.name, {}).get(key, own)


def _spelling(op: Spelled, values: Mapping[str, Any], absorbed: Iterable[Any] = ()) -> Spelling:
    """`values` by name as operands, and what differs from the defaults of the text."""
    args, attrs = [], {}
    for key in op.signature.parameters:
        value = values[key]
        if isinstance(value, Expr):
            args.append(value)
        elif not _equal(value, _default(op, key)):
            attrs[key] = value
    return Spelling(op.name, args, attrs, list(absorbed))


def _equal(value: Any, default: Any) -> bool:
    """Whether `value` is the default; a number stands for a list of it."""
    if isinstance(value, list) and type(default) is int:
        return bool(value) and all(type(v) is int and v == default for v in value)
    if isinstance(default, tuple):
        return isinstance(value, list) and value == list(default)
    return type(value) is type(default) and bool(value == default)


# -- calls of what the text names -----------------------------------------------------------------

# How much of something an attribute may ask for, so that a number in a text makes nobody count
# for ever.
_MOST = 4096
_COUNTS = ("num_newaxis", "indices_or_sections", "size")


def called(name: str, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """The expression for ``name(*args, **attrs)`` in the text: operands stand for what the
    attributes leave.

    Raises StructInfoError for what the operator does not take.
    """
    op = operator(name)
    settings = dict(attrs)
    for key in _COUNTS:
        if isinstance(settings.get(key), int) and settings[key] > _MOST:
            raise StructInfoError(f"{name}: {key}: wanted at most {_MOST}, got {settings[key]}")
    if op is None:
        return _part(name, args, settings)
    params = op.signature.parameters
    if len(args) > sum(key not in settings for key in params):
        # TVM writes what is an expression as an operand and as an attribute.
        settings = {key: value for key, value in settings.items() if not isinstance(value, Expr)}
    rest = iter(args)
    for key, param in params.items():
        if param.kind is param.VAR_POSITIONAL:
            return operand(CALLS[name](*settings.values(), *rest))
        if key not in settings:
            value = next(rest, _DEFAULTS.get(name, {}).get(key, _MISSING))
            if value is not _MISSING:
                settings[key] = value
    if next(rest, None) is not None:
        raise StructInfoError(f"{name}: {len(args)} operands are more than it takes")
    return operand(CALLS[name](**settings))


def operator(name: str) -> Spelled | None:
    """The operator that Relay calls `name`, None if there is none."""
    op: Spelled | None = getattr(CALLS.get(name), "op", None)
    return op


# Attributes that stand as texts.
_READ_FROM_TEXT: dict[type, Callable[[Any], Any]] = {
    DataType: as_dtype,
    VDevice: VDevice.from_name,
    IndexMap: lambda text: IndexMap.from_text(text, index_dtype="int64"),
}


def _part(name: str, args: Sequence[Any], attrs: Mapping[str, Any]) -> Call:
    """A call of an operator of `relax.op`, by its whole name."""
    op: Any = Op.get(name)
    rest = {key: value for key, value in attrs.items() if key != "sinfo_args"}
    for p in op.params:
        if isinstance(rest.get(p.name), str):
            for kind, read in _READ_FROM_TEXT.items():
                rest[p.name] = read(rest[p.name]) if kind in p.types else rest[p.name]
    return Call(op, args, rest, attrs.get("sinfo_args", ()))


# -- calls of what the graph has -------------------------------------------------------------------


def spelled_as(call: Call, inner: Inner, reads: Callable[[Any], int]) -> Spelling | None:
    """What Relay calls `call`, None if it has no word for it.

    inner  says what computes an operand, as far as it may be part of what the call is called
    reads  how often an operand is read
    """
    if isinstance(call.op, Spelled):
        return _spelling(call.op, arguments(call))
    known = recognised(call, inner, reads)
    return None if known is None else _spelling(*known)


def recognised(
    call: Call, inner: Inner, reads: Callable[[Any], int]
) -> tuple[Spelled, Values, list[Any]] | None:
    """The operator of Relay that writes `call`, all its arguments by name, and the operands that it
    computes itself.
    """
    if not isinstance(call.op, Op) or not call.op.name.startswith("relax."):
        return None
    short = call.op.name.removeprefix("relax.")
    values = _values_of(call)
    # What it was called when it was written, if that is known, comes first.
    said_so = call.span.name
    rows = sorted(_ROWS.get(short, _same_name)(call, values, inner), key=lambda r: r[0] != said_so)
    proposed: list[tuple[str, Values | None, bool]]
    proposed = [(name, words, False) for name, words in rows]
    if isinstance(call.span, Said):
        # Rows write the attributes as Relay shows them.
        first = sum(name == said_so for name, _ in rows) if short in _ROWS else 0
        proposed.insert(first, (said_so, _as_said(call, inner), True))
    for name, words, whole in proposed:
        op = operator(name)
        if op is None or words is None or (name in _ONLY_IF_SAID and name != said_so):
            continue
        # What the row does not say has the operator's name, or is the next argument.
        said = words if whole else {**_by_name(op, values, call.args, words), **words}
        try:
            built = operand(op.build(**said))
        except (RelaxvmError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
            continue
        absorbed = _computed_by(built, call, inner, reads)
        if absorbed is not None:
            return op, {key: said[key] for key in op.signature.parameters}, absorbed
    return None


def _as_said(call: Call, inner: Inner) -> Values | None:
    """The arguments that `call` was written with, its operands as they are now; None if they are
    not there any more, or no text says them.
    """

    def found(place: Place) -> Any:
        value: Any = call
        for index in place:
            value = parts_of(inner(value) if isinstance(value, Var) else value)[index]
        return value

    def told(value: Any) -> Any:
        if isinstance(value, Place):
            return found(value)
        if isinstance(value, (list, tuple)):
            values = [told(v) for v in value]
            return Tuple(values) if any(isinstance(v, Expr) for v in values) else values
        if isinstance(value, (np.dtype, DataType, type)):
            return str(as_dtype(value))
        if isinstance(value, np.generic):
            return value.item()
        if value is None or isinstance(value, _IN_TEXT):
            return value
        raise TypeError(type(value).__name__)

    assert isinstance(call.span, Said)
    try:
        return {key: told(value) for key, value in call.span.given.items()}
    except (RelaxvmError, TypeError, LookupError):
        return None


# What attributes of the text may be.
_IN_TEXT = (bool, int, float, str, PrimExpr, Constant, VDevice)


def _values_of(call: Call) -> Values:
    """Arguments and attributes by the names that `relax.op` has for them."""
    op: Any = call.op
    named = [p.name for p in op.params if p.form is not None and not p.variadic]
    return {**dict(zip(named, map(_plain, call.args))), **dict(call.attrs.items())}


def _plain(arg: Any) -> Any:
    """What stands as an attribute in Relay: shapes, numbers, tuples of numbers."""
    if isinstance(arg, ShapeExpr):
        return [_number(v) for v in arg.values]
    if isinstance(arg, PrimValue):
        return _number(arg.value)
    if type(arg) is Tuple and len(arg):
        fields = [f for f in arg.fields if isinstance(f, PrimValue)]
        return [_number(f.value) for f in fields] if len(fields) == len(arg) else arg
    return arg


def _number(value: PrimExpr) -> Any:
    return getattr(value, "value", value)


def _by_name(op: Spelled, values: Values, args: Sequence[Any], words: Values) -> Values:
    used = [v for v in words.values() if isinstance(v, Expr)]
    rest = iter([a for a in args if isinstance(_plain(a), Expr) and not any(a is u for u in used)])
    said = {}
    for key, param in op.signature.parameters.items():
        if key in words:
            continue
        if key in values:
            said[key] = _as_relay_says(values[key], param.default)
            if isinstance(said[key], Expr):
                next(rest, None)
        elif param.default is not _MISSING:
            said[key] = param.default
        else:
            said[key] = next(rest, None)
    return said


def _as_relay_says(value: Any, default: Any) -> Any:
    if value is None and default == "":
        return ""
    if isinstance(value, DataType):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _computed_by(
    built: Any, call: Call, inner: Inner, reads: Callable[[Any], int]
) -> list[Any] | None:
    """The operands of `call` and of what computes them that `built` computes itself; None if it is
    another call, or if others read them too.
    """
    absorbed: dict[int, Any] = {}
    seen: dict[int, int] = {}
    alike: set[tuple[int, int]] = set()

    # As deep as the operator is written with others.
    def same(new: Any, old: Any) -> bool:
        if new is old:
            return True
        if old is not call and (isinstance(old, Var) or not is_leaf(old)):
            absorbed[id(old)] = old
            seen[id(old)] = seen.get(id(old), 0) + 1
        if isinstance(old, Var) and not isinstance(new, Var):
            old = inner(old)
        if type(new) is not type(old):
            return False
        if (id(new), id(old)) in alike:
            return True
        if isinstance(new, Call):
            if (new.op, new.attrs, new.sinfo_args) != (old.op, old.attrs, old.sinfo_args):
                return False
        elif isinstance(new, TupleGetItem):
            if new.index != old.index:
                return False
        elif not isinstance(new, Tuple):
            return not isinstance(new, Var) and structural_equal(new, old, map_free_vars=False)
        news, olds = parts_of(new), parts_of(old)
        alike.add((id(new), id(old)))
        return len(news) == len(olds) and all(map(same, news, olds))

    if not same(built, call) or any(reads(v) != seen[key] for key, v in absorbed.items()):
        return None
    return [v for v in absorbed.values() if isinstance(v, Var)]


# -- the rows: operator of `relax.op` -> names of Relay's operators, and what they take ------------

# What may as well have been written with the operators that it stands for.
_ONLY_IF_SAID = {"nn.bias_add", "nn.batch_flatten", "nn.upsampling"}

Row = Iterator[tuple[str, Values]]
_Rule = Callable[[Call, Values, Inner], Row]


def _same_name(call: Call, v: Values, inner: Inner) -> Row:
    assert isinstance(call.op, Op)
    yield call.op.name.removeprefix("relax."), {}


def _named(name: str, **words: str) -> _Rule:
    """Another name; `words` say which attribute is called what."""

    def rule(call: Call, v: Values, inner: Inner) -> Row:
        yield name, {ours: _as_relay_says(v[theirs], None) for ours, theirs in words.items()}

    return rule


def _reduction(call: Call, v: Values, inner: Inner) -> Row:
    """Axes are a list; one that is none is kept too."""
    axis = v["axis"]
    name = next(_same_name(call, v, inner))[0]
    yield name, {"axis": [axis] if isinstance(axis, int) else _as_relay_says(axis, None)}
    yield name, {"axis": axis}


def _matmul(call: Call, v: Values, inner: Inner) -> Row:
    a, b = call.args
    # Products whose operands are transposed by calls of their own.
    left, right = (_transposed(inner(x)) for x in (a, b))
    for first, second in ((a, right), (left, right), (left, b), (a, b)):
        if first is None or second is None:
            continue
        flips = {"transpose_a": first is not a, "transpose_b": second is not b}
        if second is not b and first is a:
            yield "nn.dense", {"data": a, "weight": second, "units": _size(second, 0)}
        operands = {"tensor_a": first, "tensor_b": second, **flips}
        if getattr(a.struct_info, "ndim", -1) == 3:
            yield "nn.batch_matmul", operands
        yield "nn.matmul", operands


def _transposed(call: Any) -> Any:
    name = getattr(getattr(call, "op", None), "name", "")
    return call.args[0] if name == "relax.permute_dims" else None


def _size(x: Any, axis: int) -> int | None:
    """A size of `x`, where it is known."""
    dims = getattr(x.struct_info, "dims", None)
    size = dims[axis] if dims else None
    return size.value if isinstance(size, IntImm) else None


def _add(call: Call, v: Values, inner: Inner) -> Row:
    data, bias = call.args
    wide: Any = inner(bias)
    if isinstance(wide, Call) and isinstance(wide.op, Op) and wide.op.name == "relax.expand_dims":
        axis = getattr(data.struct_info, "ndim", 0) - getattr(wide.struct_info, "ndim", 0)
        yield "nn.bias_add", {"data": data, "bias": wide.args[0], "axis": axis}
    yield "nn.bias_add", {"data": data, "bias": bias, "axis": -1}
    yield "add", {}


def _convolution(call: Call, v: Values, inner: Inner) -> Row:
    name = next(_same_name(call, v, inner))[0]
    layout, weight, transposed = v["kernel_layout"], v["weight"], name.endswith("transpose")
    # Blocks have sizes in their names; what they make up is left to the kernel's shape.
    plain = layout.isalpha()
    spatial = [_size(weight, layout.index(a)) for a in "DHW"[5 - len(layout) :] if plain]
    channels = _size(weight, layout.index("O")) if plain else None
    words = {"out_layout": "" if v["out_layout"] == v["data_layout"] else v["out_layout"]}
    if channels is not None and None not in spatial:
        channels *= v["groups"] if transposed else 1
        yield name, {**words, "channels": channels, "kernel_size": spatial}
    yield name, words


def _pool(call: Call, v: Values, inner: Inner) -> Row:
    name = next(_same_name(call, v, inner))[0]
    words = {"out_layout": "" if v["out_layout"] == v["layout"] else v["out_layout"]}
    if set(v.get("output_size") or ()) == {1}:
        yield name.replace("adaptive", "global"), words
    yield name, words


def _reshape(call: Call, v: Values, inner: Inner) -> Row:
    yield "nn.batch_flatten", {}
    yield "reshape", {"newshape": v["shape"]}


def _expand_dims(call: Call, v: Values, inner: Inner) -> Row:
    axes = (v["axis"],) if isinstance(v["axis"], int) else v["axis"]
    yield "expand_dims", {"axis": axes[0], "num_newaxis": len(axes)}


def _astype(call: Call, v: Values, inner: Inner) -> Row:
    place: Any = inner(call.args[0])
    name = getattr(getattr(place, "op", None), "name", "").removeprefix("relax.")
    if name in ("argmax", "argmin"):
        for axis in ([place.attrs["axis"]], place.attrs["axis"]):
            yield name, {"data": place.args[0], "axis": axis, "keepdims": place.attrs["keepdims"]}
    yield "cast", {}


def _strided_slice(call: Call, v: Values, inner: Inner) -> Row:
    name = "strided_slice"
    words = {"strides": [1] * len(v["begin"]), **v}
    words = {key: words[key] for key in ("begin", "end", "strides")}
    if v["axes"] == list(range(len(v["axes"]))):
        yield name, {**words, "axes": None}
    yield name, {**words, "axes": v["axes"]}


def _resize2d(call: Call, v: Values, inner: Inner) -> Row:
    dims, layout = v["data"].struct_info.dims, v["layout"]
    before = [getattr(dims[layout.index(a)], "value", 0) for a in "HW"] if dims else []
    if all(before) and all(isinstance(s, int) for s in v["size"]):
        scales = [float(s // b) for s, b in zip(v["size"], before)]
        methods = {"nearest_neighbor": "nearest_neighbor", "linear": "bilinear", "cubic": "bicubic"}
        for corners in (False, True):
            yield (
                "nn.upsampling",
                {
                    **dict(zip(("scale_h", "scale_w"), scales)),
                    "method": methods[v["method"]],
                    "align_corners": corners,
                },
            )
    yield "image.resize2d", {}


def _on_device(call: Call, v: Values, inner: Inner) -> Row:
    yield "annotation.on_device", {"device": v["dst_vdevice"]}


def _device_copy(call: Call, v: Values, inner: Inner) -> Row:
    to = v["dst_vdevice"]
    kind = {"llvm": "cpu"}.get(to.kind, to.kind)
    # From where is what the type of the operand says.
    yield "device_copy", {"src_device": None, "dst_device": f"{kind}:{to.vdevice_id}"}


def _gather_nd(call: Call, v: Values, inner: Inner) -> Row:
    places = _transposed(inner(call.args[1]))
    for indices in (places, call.args[1]):
        if indices is not None:
            yield "gather_nd", {"data": call.args[0], "indices": indices}


def _pad(call: Call, v: Values, inner: Inner) -> Row:
    flat = v["pad_width"]
    value = const(v["pad_value"], v["data"].struct_info.dtype)
    pairs = [list(pair) for pair in zip(flat[::2], flat[1::2])]
    mode = {"replicate": "edge"}.get(v["pad_mode"], v["pad_mode"])
    yield "nn.pad", {"pad_width": pairs, "pad_value": value, "pad_mode": mode}


_ROWS: dict[str, _Rule] = {
    **dict.fromkeys(("sum", "prod", "mean", "max", "min", "logsumexp", "variance"), _reduction),
    **{f"nn.conv{n}d{kind}": _convolution for n in (1, 2, 3) for kind in ("", "_transpose")},
    **{
        f"nn.{kind}_pool{n}d": _pool
        for n in (1, 2, 3)
        for kind in ("max", "avg", "adaptive_max", "adaptive_avg")
    },
    "add": _add,
    "astype": _astype,
    "clip": _named("clip", a_min="min", a_max="max"),
    "concat": _named("concatenate"),
    "expand_dims": _expand_dims,
    "flip": _named("reverse"),
    "gather_elements": _named("gather"),
    "gather_nd": _gather_nd,
    "hint_on_device": _on_device,
    "image.resize2d": _resize2d,
    "matmul": _matmul,
    "nn.group_norm": _named("nn.group_norm", axis="channel_axis"),
    "nn.instance_norm": _named("nn.instance_norm", axis="channel_axis"),
    "nn.layer_norm": _named("nn.layer_norm", axis="axes"),
    "nn.leakyrelu": _named("nn.leaky_relu"),
    "nn.pad": _pad,
    "permute_dims": _named("transpose"),
    "reshape": _reshape,
    "strided_slice": _strided_slice,
    "tile": _named("tile", reps="repeats"),
    "to_vdevice": _device_copy,
}
