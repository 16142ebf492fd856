"""Operators as ONNX nodes, for `to_onnx`.

An operator is a line of `TABLE` (or a function marked `@exports`), which writes the nodes: mostly
one, under the operator's own name and attributes; a few where ONNX has no single operator.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

from ....base import DataType, FrontendError, OpNotImplemented
from ....ir import IntImm, PrimExpr
from ...expr import Call, Expr, PrimValue, ShapeExpr, Tuple, Var
from ...struct_info import TensorStructInfo, TupleStructInfo
from .export import ARITHMETIC, TABLE, Export, Exporter, Names, exports, name_of
from .export import to_onnx as to_onnx

_INT64_MIN = -(1 << 63)


# -- one node, the same meaning --------------------------------------------------------------------


def _same(kind: str, **attrs: str) -> Export:
    """The operator `kind` on the same arguments; attrs: {ONNX's attribute: ours}. Other attributes
    must have their defaults, but for the result's dtype, which follows from the arguments.
    """

    def export(g: Exporter, c: Call) -> Names:
        op: Any = c.op
        for name, parameter in inspect.signature(op.function).parameters.items():
            usual, value = parameter.default, c.attrs.get(name, parameter.default)
            if name not in (*attrs.values(), "out_dtype") and value != usual:
                raise OpNotImplemented(
                    f"to_onnx: {op.name} with {name}={value!r}: ONNX's {kind} has {usual!r} only"
                )
        settings = {name: _plain(c.attrs[ours]) for name, ours in attrs.items()}
        return g.emit(kind, *(g.value(a) for a in c.args), **settings)

    return export


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return int(value) if isinstance(value, bool) else getattr(value, "value", value)


_SAME = """
    abs Abs  acos Acos  acosh Acosh  asin Asin  asinh Asinh  atan Atan  atanh Atanh  ceil Ceil
    cos Cos  cosh Cosh  erf Erf  exp Exp  floor Floor  isnan IsNaN  isinf IsInf  log Log
    negative Neg  round Round  sigmoid Sigmoid  sign Sign  sin Sin  sinh Sinh  sqrt Sqrt  tan Tan
    tanh Tanh  where Where  add Add  subtract Sub  multiply Mul  divide Div  power Pow
    maximum Max  minimum Min  equal Equal  greater Greater  less Less  nonzero NonZero
    greater_equal GreaterOrEqual  less_equal LessOrEqual  shape_of Shape  size Size
    shape_to_tensor Identity  tensor_to_shape Identity  matmul_integer MatMulInteger
    qlinear_matmul QLinearMatMul  nn.relu Relu  nn.gelu Gelu  nn.selu Selu  nn.mish Mish
    nn.hardswish HardSwish
""".split()
TABLE |= {ours: _same(theirs) for ours, theirs in zip(_SAME[::2], _SAME[1::2])}
TABLE |= {
    "gather_elements": _same("GatherElements", axis="axis"),
    "gather_nd": _same("GatherND", batch_dims="batch_dims"),
    "permute_dims": lambda g, c: g.emit("Transpose", g.value(c.args[0]), perm=_axes(c, "axes")),
    "nn.softmax": _same("Softmax", axis="axis"),
    "nn.log_softmax": _same("LogSoftmax", axis="axis"),
    "nn.leakyrelu": _same("LeakyRelu", alpha="alpha"),
    "nn.elu": _same("Elu", alpha="alpha"),
    "nn.celu": _same("Celu", alpha="alpha"),
    "nn.hardsigmoid": _same("HardSigmoid", alpha="alpha", beta="beta"),
    "einsum": lambda g, c: g.emit(
        "Einsum", *g.value(c.args[0]), equation=str(c.attrs["subscripts"])
    ),
    "concat": lambda g, c: g.emit("Concat", *g.value(c.args[0]), axis=c.attrs["axis"] or 0),
    "nn.gelu_tanh": lambda g, c: g.emit("Gelu", g.value(c.args[0]), approximate="tanh"),
    "astype": lambda g, c: g.cast(g.value(c.args[0]), c.attrs["dtype"]),
    "expand_dims": lambda g, c: g.emit(
        "Unsqueeze", g.value(c.args[0]), g.ints(*_as_tuple(c.attrs["axis"]))
    ),
    "squeeze": lambda g, c: _reshaped(g, c, g.value(c.args[0])),
    "reshape": lambda g, c: _reshaped(g, c, g.value(c.args[0])),
    "flatten": lambda g, c: g.emit("Reshape", g.value(c.args[0]), g.ints(-1)),
    "broadcast_to": lambda g, c: g.emit("Expand", g.value(c.args[0]), _shape_of_result(g, c)),
    "logical_not": lambda g, c: g.emit("Not", _bools(g, c)[0]),
    "logical_and": lambda g, c: g.emit("And", *_bools(g, c)),
    "logical_or": lambda g, c: g.emit("Or", *_bools(g, c)),
    "logical_xor": lambda g, c: g.emit("Xor", *_bools(g, c)),
    "not_equal": lambda g, c: g.emit("Not", g.emit("Equal", *_values(g, c))),
    "isfinite": lambda g, c: g.emit(
        "Not", g.emit("Or", g.emit("IsNaN", _values(g, c)[0]), g.emit("IsInf", _values(g, c)[0]))
    ),
    "square": lambda g, c: g.emit("Mul", _values(g, c)[0], _values(g, c)[0]),
    "rsqrt": lambda g, c: g.emit("Reciprocal", g.emit("Sqrt", _values(g, c)[0])),
    "trunc": lambda g, c: g.emit(
        "Mul", g.emit("Sign", _values(g, c)[0]), g.emit("Floor", g.emit("Abs", _values(g, c)[0]))
    ),
    "log2": lambda g, c: _divided(g, c, "Log", math.log(2)),
    "log10": lambda g, c: _divided(g, c, "Log", math.log(10)),
    "ewise_fma": lambda g, c: g.emit("Add", g.emit("Mul", *_values(g, c)[:2]), _values(g, c)[2]),
    "nn.relu6": lambda g, c: _clipped(g, c, 0, 6),
    "clip": lambda g, c: g.emit(
        "Clip", g.value(c.args[0]), *(_scalar(g, c, e) for e in c.args[1:])
    ),
    "nn.silu": lambda g, c: g.emit("Mul", _values(g, c)[0], g.emit("Sigmoid", _values(g, c)[0])),
    "mod": lambda g, c: g.emit("Mod", *_values(g, c), fmod=1),
    "stack": lambda g, c: g.emit(
        "Concat",
        *(g.emit("Unsqueeze", x, g.ints(c.attrs["axis"] or 0)) for x in g.value(c.args[0])),
        axis=c.attrs["axis"] or 0,
    ),
    "tril": lambda g, c: g.emit("Trilu", g.value(c.args[0]), g.value(c.args[1]), upper=0),
    "triu": lambda g, c: g.emit("Trilu", g.value(c.args[0]), g.value(c.args[1]), upper=1),
    "full": lambda g, c: _filled(g, c, g.value(c.args[1])),
    "full_like": lambda g, c: _filled(g, c, g.value(c.args[1])),
    "zeros": lambda g, c: _filled(g, c, g.number(0, _dtype(c))),
    "zeros_like": lambda g, c: _filled(g, c, g.number(0, _dtype(c))),
    "ones": lambda g, c: _filled(g, c, g.number(1, _dtype(c))),
    "ones_like": lambda g, c: _filled(g, c, g.number(1, _dtype(c))),
    "arange": lambda g, c: g.emit(
        "Range", *(g.cast(g.value(a), _dtype(c)) for a in c.args)
    ),
    "quantize": _same("QuantizeLinear", axis="axis"),
    "dequantize": _same("DequantizeLinear", axis="axis"),
    "nn.depth_to_space": _same("DepthToSpace", blocksize="block_size", mode="mode"),
    "nn.space_to_depth": _same("SpaceToDepth", blocksize="block_size"),
    "nn.pixel_shuffle": lambda g, c: g.emit(
        "DepthToSpace", g.value(c.args[0]), blocksize=c.attrs["upscale_factor"], mode="CRD"
    ),
    "nn.global_avg_pool1d": _same("GlobalAveragePool"),
    "nn.global_avg_pool2d": _same("GlobalAveragePool"),
    "nn.global_avg_pool3d": _same("GlobalAveragePool"),
    "nn.global_max_pool1d": _same("GlobalMaxPool"),
    "nn.global_max_pool2d": _same("GlobalMaxPool"),
    "nn.global_max_pool3d": _same("GlobalMaxPool"),
}  # fmt: skip


# -- what the lines above say ----------------------------------------------------------------------


def _values(g: Exporter, c: Call) -> list[Names]:
    return [g.value(a) for a in c.args]


def _tensor(e: Expr) -> TensorStructInfo:
    info = e.struct_info
    if not isinstance(info, TensorStructInfo) or info.ndim < 0:
        raise FrontendError(f"to_onnx: wanted a tensor of a known rank, got {info}")
    return info


def _dtype(c: Call) -> DataType:
    return DataType(str(_tensor(c).dtype))


def _as_tuple(value: Any) -> tuple[int, ...]:
    return tuple(map(int, value)) if isinstance(value, (tuple, list)) else (int(value),)


def _axes(c: Call, name: str) -> list[int]:
    """The axes of an attribute; None are all in reverse."""
    axes = c.attrs[name]
    return list(range(_tensor(c.args[0]).ndim))[::-1] if axes is None else list(_as_tuple(axes))


def _shape_of_result(g: Exporter, c: Call) -> str:
    dims = _tensor(c).dims
    return g.value(c.args[1]) if dims is None and len(c.args) > 1 else g.shape(dims or ())


def _reshaped(g: Exporter, c: Call, x: str) -> str:
    """`x` in the shape of the result, in which 0 is a size."""
    return g.emit("Reshape", x, _shape_of_result(g, c), allowzero=1)


def _bools(g: Exporter, c: Call) -> list[str]:
    return [
        g.value(a) if str(_tensor(a).dtype) == "bool" else g.cast(g.value(a), "bool")
        for a in c.args
    ]


def _divided(g: Exporter, c: Call, kind: str, by: float) -> str:
    return g.emit("Div", g.emit(kind, g.value(c.args[0])), g.number(by, _dtype(c)))


def _clipped(g: Exporter, c: Call, least: Any, most: Any) -> str:
    ends = (g.number(each, _dtype(c)) for each in (least, most))
    return g.emit("Clip", g.value(c.args[0]), *ends)


def _scalar(g: Exporter, c: Call, e: Expr) -> str:
    """A scalar of the result's dtype."""
    value = getattr(getattr(e, "value", None), "value", None)
    return g.cast(g.value(e), _dtype(c)) if value is None else g.number(value, _dtype(c))


def _filled(g: Exporter, c: Call, value: str) -> str:
    """A tensor of the result's shape with one value."""
    return g.emit("Expand", g.cast(value, _dtype(c)), g.shape(_tensor(c).dims or ()))


def _want(c: Call, name: str, *allowed: Any) -> None:
    if c.attrs[name] not in allowed:
        raise FrontendError(f"to_onnx: {name_of(c)}: {name}={c.attrs[name]!r} has no counterpart")


# -- several nodes, or conditions ------------------------------------------------------------------


@exports("floor_mod")
def _floor_mod(g: Exporter, c: Call) -> Names:
    a, b = _values(g, c)
    if not _dtype(c).is_float:
        return g.emit("Mod", a, b)
    # The remainder has the sign of `a`; where it should have that of `b`, it is one step further.
    rest, zero = g.emit("Mod", a, b, fmod=1), g.number(0, _dtype(c))
    other = g.emit("Xor", g.emit("Less", rest, zero), g.emit("Less", b, zero))
    wrong = g.emit("And", other, g.emit("Not", g.emit("Equal", rest, zero)))
    return g.emit("Where", wrong, g.emit("Add", rest, b), rest)


@exports("floor_divide")
def _floor_divide(g: Exporter, c: Call) -> Names:
    a, b = _values(g, c)
    return (
        g.emit("Floor", g.emit("Div", a, b))
        if _dtype(c).is_float
        else ARITHMETIC["FloorDiv"](g, a, b)
    )


@exports("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")
def _bitwise(g: Exporter, c: Call) -> Names:
    word = name_of(c).removeprefix("bitwise_").capitalize()
    return g.emit(word if str(_dtype(c)) == "bool" else f"Bitwise{word}", *_values(g, c))


@exports("left_shift", "right_shift")
def _shift(g: Exporter, c: Call) -> Names:
    if not str(_dtype(c)).startswith("uint"):
        raise FrontendError(f"to_onnx: ONNX shifts unsigned integers only, not {_dtype(c)}")
    return g.emit("BitShift", *_values(g, c), direction=name_of(c).split("_")[0].upper())


@exports("matmul")
def _matmul(g: Exporter, c: Call) -> Names:
    wide = [g.value(a) if _tensor(a).dtype == _dtype(c) else g.cast(g.value(a), _dtype(c))
            for a in c.args]  # fmt: skip
    return g.emit("MatMul", *wide)


@exports("split")
def _split(g: Exporter, c: Call) -> Names:
    axis = int(c.attrs["axis"])
    fields = [_tensor(f) for f in _fields(c)]
    sizes = g.shape([(f.dims or ())[axis] for f in fields])
    names = g.emit("Split", g.value(c.args[0]), sizes, outputs=len(fields), axis=axis)
    return names if isinstance(names, list) else [names]


def _fields(c: Call) -> list[Expr]:
    info = c.struct_info
    assert isinstance(info, TupleStructInfo)
    return [Var("field", field) for field in info.fields]


_REDUCE = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin",
           "prod": "ReduceProd", "logsumexp": "ReduceLogSumExp"}  # fmt: skip


def _reduced(g: Exporter, c: Call, kind: str, x: str, keepdims: bool) -> str:
    axis = c.attrs["axis"]
    if axis is not None and not _as_tuple(axis):
        return g.emit("Identity", x)
    axes = () if axis is None else (g.ints(*_as_tuple(axis)),)
    return g.emit(kind, x, *axes, keepdims=int(keepdims))


@exports(*_REDUCE)
def _reduce(g: Exporter, c: Call) -> Names:
    x = g.value(c.args[0])
    return _reduced(g, c, _REDUCE[name_of(c)], x, bool(c.attrs["keepdims"]))


@exports("variance", "std")
def _variance(g: Exporter, c: Call) -> Names:
    x = g.value(c.args[0])
    rest = g.emit("Sub", x, _reduced(g, c, "ReduceMean", x, True))
    mean = _reduced(g, c, "ReduceMean", g.emit("Mul", rest, rest), bool(c.attrs["keepdims"]))
    return g.emit("Sqrt", mean) if name_of(c) == "std" else mean


@exports("argmax", "argmin")
def _argmax(g: Exporter, c: Call) -> Names:
    kind = "ArgMax" if name_of(c) == "argmax" else "ArgMin"
    x, axis, keep = g.value(c.args[0]), c.attrs["axis"], int(bool(c.attrs["keepdims"]))
    if axis is None:
        place = g.emit(kind, g.emit("Reshape", x, g.ints(-1)), axis=0, keepdims=0)
        return g.emit("Reshape", place, g.shape(_tensor(c).dims or ()))
    return g.emit(kind, x, axis=int(axis), keepdims=keep)


@exports("cumsum")
def _cumsum(g: Exporter, c: Call) -> Names:
    x, axis = g.value(c.args[0]), c.attrs["axis"]
    if _tensor(c.args[0]).dtype != _dtype(c):
        x = g.cast(x, _dtype(c))
    if axis is None:
        x, axis = g.emit("Reshape", x, g.ints(-1)), 0
    return g.emit(
        "CumSum", x, g.number(int(axis), "int64"), exclusive=int(bool(c.attrs["exclusive"]))
    )


@exports("take")
def _take(g: Exporter, c: Call) -> Names:
    _want(c, "mode", "fast")
    x, places = _values(g, c)
    if c.attrs["axis"] is None:
        x = g.emit("Reshape", x, g.ints(-1))
    if str(_tensor(c.args[1]).dtype) not in ("int32", "int64"):
        places = g.cast(places, "int64")
    return g.emit("Gather", x, places, axis=c.attrs["axis"] or 0)


@exports("scatter_elements", "scatter_nd")
def _scatter(g: Exporter, c: Call) -> Names:
    _want(c, "reduction", "update", "add", "mul", "max", "min")
    how = {"update": "none"}.get(c.attrs["reduction"], c.attrs["reduction"])
    if name_of(c) == "scatter_nd":
        return g.emit("ScatterND", *_values(g, c), reduction=how)
    return g.emit("ScatterElements", *_values(g, c), axis=c.attrs["axis"], reduction=how)


@exports("one_hot")
def _one_hot(g: Exporter, c: Call) -> Names:
    on, off = (g.emit("Unsqueeze", g.value(a), g.ints(0)) for a in c.args[1:3])
    depth = g.number(int(c.attrs["depth"]), "int64")
    values = g.emit("Concat", off, on, axis=0)
    return g.emit("OneHot", g.value(c.args[0]), depth, values, axis=c.attrs["axis"])


@exports("topk")
def _topk(g: Exporter, c: Call) -> Names:
    k, axis = int(c.attrs["k"]), int(c.attrs["axis"])
    count = g.ints(k) if k > 0 else g.shape([(_tensor(c.args[0]).dims or ())[axis]])
    largest = int(bool(c.attrs["largest"]))
    both = g.emit("TopK", g.value(c.args[0]), count, outputs=2, axis=axis, largest=largest)
    both[1] = g.cast(both[1], c.attrs["dtype"])
    return {"both": both, "values": both[0], "indices": both[1]}[c.attrs["ret_type"]]


@exports("sort", "argsort")
def _sort(g: Exporter, c: Call) -> Names:
    axis = int(c.attrs["axis"])
    count = g.shape([(_tensor(c.args[0]).dims or ())[axis]])
    largest = int(bool(c.attrs["descending"]))
    both = g.emit("TopK", g.value(c.args[0]), count, outputs=2, axis=axis, largest=largest)
    return both[0] if name_of(c) == "sort" else g.cast(both[1], c.attrs["dtype"])


@exports("flip")
def _flip(g: Exporter, c: Call) -> Names:
    axes = _as_tuple(c.attrs["axis"])
    begin, end, step = (g.ints(*[v] * len(axes)) for v in (-1, _INT64_MIN, -1))
    return g.emit("Slice", g.value(c.args[0]), begin, end, g.ints(*axes), step)


def _elements(e: Expr) -> list[PrimExpr]:
    """The scalar expressions of a tuple of them, or of a shape."""
    if isinstance(e, Tuple):
        return [f.value for f in e.fields if isinstance(f, PrimValue)]
    if isinstance(e, ShapeExpr):
        return list(e.values)
    raise FrontendError(f"to_onnx: wanted a tuple of scalars, got {e}")


@exports("strided_slice")
def _strided_slice(g: Exporter, c: Call) -> Names:
    axes, begin, end, *step = (g.shape(_elements(a)) for a in c.args[1:])
    return g.emit("Slice", g.value(c.args[0]), begin, end, axes, *step)


@exports("dynamic_strided_slice")
def _dynamic_slice(g: Exporter, c: Call) -> Names:
    x, begin, end, step = _values(g, c)
    return g.emit("Slice", x, begin, end, g.ints(*range(_tensor(c.args[0]).ndim)), step)


@exports("tile")
def _tile(g: Exporter, c: Call) -> Names:
    repeats, info = _as_tuple(c.attrs["repeats"]), _tensor(c.args[0])
    x = g.value(c.args[0])
    if len(repeats) > info.ndim:
        x = g.emit("Unsqueeze", x, g.ints(*range(len(repeats) - info.ndim)))
    return g.emit("Tile", x, g.ints(*[1] * (info.ndim - len(repeats)), *repeats))


@exports("repeat")
def _repeat(g: Exporter, c: Call) -> Names:
    x, axis, info = g.value(c.args[0]), c.attrs["axis"], _tensor(c.args[0])
    if axis is None:
        x, axis, ndim = g.emit("Reshape", x, g.ints(-1)), 0, 1
    else:
        ndim = info.ndim
    after = int(axis) % ndim + 1
    times = [1] * (ndim + 1)
    times[after] = int(c.attrs["repeats"])
    wide = g.emit("Tile", g.emit("Unsqueeze", x, g.ints(after)), g.ints(*times))
    return _reshaped(g, c, wide)


@exports("nn.pad")
def _pad(g: Exporter, c: Call) -> Names:
    width = _as_tuple(c.attrs["pad_width"])
    mode = {"replicate": "edge", "circular": "wrap"}.get(c.attrs["pad_mode"], c.attrs["pad_mode"])
    value = g.number(c.attrs["pad_value"], _dtype(c))
    return g.emit("Pad", g.value(c.args[0]), g.ints(*width[::2], *width[1::2]), value, mode=mode)


@exports("nn.prelu")
def _prelu(g: Exporter, c: Call) -> Names:
    rank, axis = _tensor(c.args[0]).ndim, int(c.attrs["axis"])
    x, slope = _values(g, c)
    if _tensor(c.args[1]).ndim == 1:
        after = rank - 1 - axis % rank
        slope = g.emit("Reshape", slope, g.ints(-1, *[1] * after))
    return g.emit("PRelu", x, slope)


@exports("nn.softplus")
def _softplus(g: Exporter, c: Call) -> Names:
    _want(c, "beta", 1.0)
    return g.emit("Softplus", g.value(c.args[0]))


# -- norms -----------------------------------------------------------------------------------------


def _trailing(c: Call, name: str = "axes") -> int:
    """The first of axes that are the last ones."""
    rank = _tensor(c.args[0]).ndim
    axes = sorted(a % rank for a in _as_tuple(c.attrs[name]))
    if axes != list(range(axes[0], rank)):
        raise FrontendError(f"to_onnx: {name_of(c)} over axes {axes}, which are not the last ones")
    return axes[0] - rank


def _scale_and_shift(g: Exporter, c: Call) -> list[str]:
    """The second and third argument; ones and zeros where they are switched off."""
    names = []
    for argument, name, neutral in zip(c.args[1:3], ("scale", "center"), (1, 0)):
        if c.attrs[name]:
            names.append(g.value(argument))
        else:
            dims = _tensor(argument).dims or ()
            names.append(
                g.emit("Expand", g.number(neutral, _tensor(argument).dtype), g.shape(dims))
            )
    return names


@exports("nn.layer_norm")
def _layer_norm(g: Exporter, c: Call) -> Names:
    x, affine = g.value(c.args[0]), _scale_and_shift(g, c)
    epsilon = c.attrs["epsilon"]
    return g.emit("LayerNormalization", x, *affine, axis=_trailing(c), epsilon=epsilon)


@exports("nn.rms_norm")
def _rms_norm(g: Exporter, c: Call) -> Names:
    x, weight = _values(g, c)
    rank, first = _tensor(c.args[0]).ndim, _trailing(c)
    # As exporters write it, and as other runtimes look for it.
    power = g.emit("Pow", x, g.number(2, _dtype(c)))
    mean = g.emit("ReduceMean", power, g.ints(*range(first + rank, rank)), keepdims=1)
    root = g.emit("Sqrt", g.emit("Add", mean, g.number(c.attrs["epsilon"], _dtype(c))))
    return g.emit("Mul", g.emit("Div", x, root), weight)


@exports("nn.batch_norm")
def _batch_norm(g: Exporter, c: Call) -> Names:
    _want(c, "training", False)
    rank, axis, epsilon = _tensor(c.args[0]).ndim, int(c.attrs["axis"]), c.attrs["epsilon"]
    x, mean, variance = (g.value(c.args[i]) for i in (0, 3, 4))
    statistics = [*_scale_and_shift(g, c), mean, variance]
    if axis % rank == 1:
        return [g.emit("BatchNormalization", x, *statistics, epsilon=epsilon), mean, variance]
    after = g.ints(-1, *[1] * (rank - 1 - axis % rank))
    scale, shift, middle, spread = (g.emit("Reshape", each, after) for each in statistics)
    root = g.emit("Sqrt", g.emit("Add", spread, g.number(epsilon, _tensor(c.args[4]).dtype)))
    scaled = g.emit("Mul", g.emit("Div", g.emit("Sub", x, middle), root), scale)
    return [g.emit("Add", scaled, shift), mean, variance]


@exports("nn.group_norm", "nn.instance_norm")
def _group_norm(g: Exporter, c: Call) -> Names:
    rank = _tensor(c.args[0]).ndim
    axes = sorted(a % rank for a in _as_tuple(c.attrs["axes"]))
    if axes != list(range(2, rank)) or int(c.attrs["channel_axis"]) % rank != 1:
        raise FrontendError(f"to_onnx: {name_of(c)}: ONNX has it over [n, c, ...] only")
    names, settings = [g.value(c.args[0]), *_scale_and_shift(g, c)], {"epsilon": c.attrs["epsilon"]}
    if name_of(c) == "nn.instance_norm":
        return g.emit("InstanceNormalization", *names, **settings)
    return g.emit("GroupNormalization", *names, num_groups=int(c.attrs["num_groups"]), **settings)


# -- windows ---------------------------------------------------------------------------------------


def _window(c: Call, **attrs: str) -> dict[str, Any]:
    """The attributes of a convolution or pool; layouts must be ONNX's."""
    for name, prefixes in (("data_layout", "N"), ("layout", "N"), ("kernel_layout", "OI")):
        layout = c.attrs.get(name)
        wanted = {"N": ("NCW", "NCHW", "NCDHW")}.get(prefixes, ("OIW", "OIHW", "OIDHW", "IOW",
                                                                 "IOHW", "IODHW"))  # fmt: skip
        if layout is not None:
            _want(c, name, *wanted)
    return {theirs: _plain(c.attrs[ours]) for theirs, ours in attrs.items()}


@exports("nn.conv1d", "nn.conv2d", "nn.conv3d")
def _conv(g: Exporter, c: Call) -> Names:
    if c.attrs["out_dtype"] and _tensor(c.args[0]).dtype != _dtype(c):
        raise FrontendError(f"to_onnx: {name_of(c)} of {_tensor(c.args[0]).dtype} to {_dtype(c)}")
    settings = _window(c, strides="strides", pads="padding", dilations="dilation", group="groups")
    return g.emit("Conv", *_values(g, c), **settings)


@exports("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def _conv_transpose(g: Exporter, c: Call) -> Names:
    settings = _window(c, strides="strides", pads="padding", dilations="dilation", group="groups",
                    output_padding="output_padding")  # fmt: skip
    return g.emit("ConvTranspose", *_values(g, c), **settings)


@exports("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")
def _max_pool(g: Exporter, c: Call) -> Names:
    settings = _window(c, kernel_shape="pool_size", strides="strides", pads="padding",
                    dilations="dilation", ceil_mode="ceil_mode")  # fmt: skip
    return g.emit("MaxPool", *_values(g, c), **settings)


@exports("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d")
def _avg_pool(g: Exporter, c: Call) -> Names:
    settings = _window(c, kernel_shape="pool_size", strides="strides", pads="padding",
                    dilations="dilation", ceil_mode="ceil_mode",
                    count_include_pad="count_include_pad")  # fmt: skip
    return g.emit("AveragePool", *_values(g, c), **settings)


@exports(*(f"nn.adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3)))
def _adaptive_pool(g: Exporter, c: Call) -> Names:
    if any(size != 1 for size in _as_tuple(_plain(c.attrs["output_size"] or 0))):
        raise FrontendError(f"to_onnx: {name_of(c)} to {c.attrs['output_size']}; ONNX has it to 1")
    _window(c)
    kind = "GlobalAveragePool" if "avg" in name_of(c) else "GlobalMaxPool"
    return g.emit(kind, g.value(c.args[0]))


@exports("image.resize2d", "image.resize")
def _resize(g: Exporter, c: Call) -> Names:
    a = c.attrs
    if len(c.args) > 2 or a.get("scales") is not None or any(a.get("roi") or ()):
        raise FrontendError("to_onnx: resize by scales or within a region has no counterpart here")
    if "layout" in a:
        _want(c, "layout", "NCHW")
    mode = {"nearest_neighbor": "nearest"}.get(a["method"], a["method"])
    axes = _as_tuple(a["axes"]) if a.get("axes") is not None else (2, 3)
    sizes = g.shape(_elements(c.args[1]))
    return g.emit("Resize", g.value(c.args[0]), "", "", sizes, axes=axes, mode=mode,
                  coordinate_transformation_mode=a["coordinate_transformation_mode"],
                  nearest_mode=(a["rounding_method"] or None) if mode == "nearest" else None,
                  cubic_coeff_a=a["cubic_alpha"], exclude_outside=int(a["cubic_exclude"]),
                  extrapolation_value=a["extrapolation_value"],
                  antialias=int(bool(a.get("antialias", False))))  # fmt: skip


@exports("image.grid_sample")
def _grid_sample(g: Exporter, c: Call) -> Names:
    _want(c, "layout", "NCHW", "NCDHW")
    if c.attrs.get("in_pixels"):
        raise FrontendError("to_onnx: image.grid_sample: ONNX's grids are not in pixels")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(c.attrs["method"], c.attrs["method"])
    return g.emit("GridSample", *_values(g, c), mode=mode, padding_mode=c.attrs["padding_mode"],
                  align_corners=int(bool(c.attrs["align_corners"])))  # fmt: skip


@exports("nn.attention", "nn.attention_bias")
def _attention(g: Exporter, c: Call) -> Names:
    """[b, s, n, h] each; keys and values may have fewer heads."""
    _want(c, "causal_mask", None)
    _want(c, "window_size", None)
    q, k, v, *bias = _values(g, c)
    batch, many, heads, size = _tensor(c.args[0]).dims or ()
    _, rows, shared, width = _tensor(c.args[2]).dims or ()
    known = [d.value for d in (heads, size, shared) if isinstance(d, IntImm)]
    if len(known) < 3:
        raise FrontendError("to_onnx: attention with a number of heads that is not known")
    scale = c.attrs["scale"]
    scale = known[1] ** -0.5 if scale is None else float(scale)
    q = g.emit("Mul", g.emit("Transpose", q, perm=[0, 2, 1, 3]), g.number(scale, _dtype(c)))
    k, v = g.emit("Transpose", k, perm=[0, 2, 3, 1]), g.emit("Transpose", v, perm=[0, 2, 1, 3])
    # Heads that share keys are rows of one product.
    grouped, joined = known[0] != known[2], many * IntImm("int64", known[0] // known[2])
    if grouped:
        q = g.emit("Reshape", q, g.shape([batch, shared, joined, size]))
    scores = g.emit("MatMul", q, k)
    if grouped and bias:
        scores = g.emit("Reshape", scores, g.shape([batch, heads, many, rows]))
    for each in bias:
        scores = g.emit("Add", scores, each)
    if grouped and bias:
        scores = g.emit("Reshape", scores, g.shape([batch, shared, joined, rows]))
    mixed = g.emit("MatMul", g.emit("Softmax", scores, axis=-1), v)
    if grouped:
        mixed = g.emit("Reshape", mixed, g.shape([batch, heads, many, width]))
    return g.emit("Transpose", mixed, perm=[0, 2, 1, 3])
