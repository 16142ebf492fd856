"""FakeQuantizationToInteger: what lies between dequantize and quantize is computed in integers.

    lv = R.dequantize(x, sx, zx)            lv = R.qnn.conv2d(x, w, zx, zw, sx, sw)
    lv1 = R.dequantize(w, sw, zw)           lv1 = R.maximum(lv, 0)
    lv2 = R.nn.conv2d(lv, lv1)              gv = R.qnn.requantize(lv1, sx * sw, 0, sy, zy)
    lv3 = R.nn.relu(lv2)
    gv = R.quantize(lv3, sy, zy)

A value that comes of `dequantize` is followed through the function in a second form, of integers
with a scale and a zero point, as long as each operator has a rule for that. Where it is quantised
again, that form is requantised, and the floats are dead. Operators without a rule stay as they are,
and with them what leads to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np

from ...base import PassError, StructInfoError, decided, declined, in_function, record
from ...ir import IntImm, IRModule, Op, PassContext
from ...ir.transform import module_pass
from ..analysis.usage import remove_all_unused
from ..expr import Binding, Call, Constant, Function, Tuple, TupleGetItem, Var, VarBinding, const
from ..flow import BIND, events, name_of
from ..known_ops import ops_named
from ..op.names import ops
from ..op.qnn.parameters import BY_TABLE
from ..rewriter import ShadowRewriter
from ..struct_info import Expr, TensorStructInfo
from .signature import replace_functions

QUANTIZE, DEQUANTIZE = Op.get("relax.quantize"), Op.get("relax.dequantize")
OPTIONAL = ops_named("nn.softmax")
"""Operators with a rule that is used where `optional_qnn_ops` names them: it loses digits."""


@module_pass(opt_level=0, numerics="approximate")
def FakeQuantizationToInteger(
    mod: IRModule,
    ctx: PassContext,
    *,
    hard_fail: bool = False,
    use_qat: bool = False,
    optional_qnn_ops: Sequence[str] | None = None,
) -> IRModule:
    """Compute in integers what lies between `dequantize` and `quantize`.

    hard_fail         raise PassError, which names the operator, where one in between has no rule
    use_qat           also where no `quantize` follows: what was computed in integers is then
                      dequantized
    optional_qnn_ops  operators to convert that are not by default: "nn.softmax"
    """
    if isinstance(optional_qnn_ops, str):
        optional_qnn_ops = (optional_qnn_ops,)
    named = {f"relax.{n.removeprefix('relax.')}" for n in optional_qnn_ops or ()}
    unknown = named - {o.name for o in OPTIONAL}
    if unknown:
        raise PassError(
            "FakeQuantizationToInteger: optional_qnn_ops: wanted some of "
            f"{', '.join(sorted(o.name for o in OPTIONAL))}; got {', '.join(sorted(unknown))}"
        )
    optional = frozenset(o for o in OPTIONAL if o.name in named)
    changed: dict[Any, Any] = {}
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            with in_function(gv):
                changed[gv] = _Integers(hard_fail, use_qat, optional).function(fn)
    return replace_functions(mod, changed)


@record
class Affine:
    """Integers that stand for reals: (value - zero) * scale.

    axis  along which scale or zero are vectors; None: they are scalars
    """

    value: Expr
    scale: Expr
    zero: Expr
    axis: int | None = None

    @property
    def info(self) -> Any:
        return self.value.struct_info

    @property
    def dtype(self) -> str:
        return str(self.info.dtype)

    @property
    def is_small(self) -> bool:
        """Whether sums of products of such values fit int32."""
        return self.dtype in ("int8", "uint8")

    @property
    def from_end(self) -> int:
        """The axis counted from the end."""
        return -1 if self.axis is None else self.axis - int(self.info.ndim)


Shadow: TypeAlias = Affine | list[Affine]
"""The second form of a tensor, or of a tuple of tensors."""


@record
class _Target:
    """What `quantize` wants of a value."""

    scale: Constant
    zero: Constant
    dtype: str


class _Integers(ShadowRewriter[Shadow]):
    """Rebuilds one function.

    shadow   variable -> its second form
    blocked  variable -> why it has none, though something that it was computed of has
    wanted   variable -> the one scale and zero point that it is quantised to, at last
    """

    def __init__(self, hard_fail: bool, use_qat: bool, optional: frozenset[Op]) -> None:
        super().__init__()
        self.hard_fail, self.use_qat, self.optional = hard_fail, use_qat, optional
        self.blocked: dict[Any, str] = {}
        self.wanted: dict[Any, _Target | None] = {}
        self.changed = False

    def function(self, fn: Function) -> Function:
        """`fn` in integers; the same object if there was nothing to do."""
        bindings = [e.node for e in events(fn) if e.kind is BIND]
        if not any(_calls(b.value, DEQUANTIZE) for b in bindings):
            return fn
        for b in reversed(bindings):
            self._want(b)
        rebuilt = self.rewrite(fn)
        return remove_all_unused(rebuilt) if self.changed else fn

    def _want(self, b: Binding) -> None:
        """Note what the arguments of `b` are quantised to."""
        call: Any = b.value
        if _calls(call, QUANTIZE):
            x, scale, zero = call.args
            constant = isinstance(scale, Constant) and isinstance(zero, Constant)
            single = constant and scale.data.shape == zero.data.shape == ()
            target = _Target(scale, zero, str(call.attrs["out_dtype"])) if single else None
        elif isinstance(call, Call) and call.op in _FOLLOWS and b.var in self.wanted:
            x, target = call.args[0], self.wanted[b.var]
        else:
            return
        known = self.wanted.setdefault(x, target)
        if known is not target and (
            known is None or target is None or not _same_target(known, target)
        ):
            self.wanted[x] = None

    # -- bindings ----------------------------------------------------------------------------------

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        if type(b) is not VarBinding:
            return None
        self.out = []
        value = b.value
        if isinstance(value, Var) and value in self.shadow:
            self.remember(b.var, self.shadow[value])
        elif isinstance(value, TupleGetItem):
            held = self.shadow.get(value.tuple_value)
            if isinstance(held, list):
                self.remember(b.var, held[value.index])
        elif isinstance(value, Call) and isinstance(value.op, Op):
            return self.call(b, value)
        return None

    def call(self, b: VarBinding, call: Call) -> Sequence[Binding] | None:
        """What stands for the binding of a call of an operator."""
        if call.op is DEQUANTIZE:
            self.remember(b.var, _dequantized(call))
            return None
        if call.op is QUANTIZE:
            return self.quantized(b, call)
        shadows = [self.form(a) for a in call.args]
        if not any(shadows):
            self._pass_on(b, call)
            return None
        affine, why = self.converted(b, call, shadows)
        if affine is None:
            # What was emitted for it is not used, and goes.
            self.blocked[b.var] = f"{name_of(call.op)} at {call.span}: {why}"
            return None
        self.remember(b.var, affine)
        if self.use_qat and isinstance(affine, Affine):
            decided("{} computed in integers", b)
            self.changed = True
            return [*self.out, b.replace(value=_as_real(affine, b.var.struct_info))]
        return [*self.out, b]

    def _pass_on(self, b: VarBinding, call: Call) -> None:
        """`b` has no second form because something that it reads has none."""
        blocker = next((self.blocked[a] for a in call.args if a in self.blocked), None)
        if blocker is not None:
            self.blocked[b.var] = blocker

    def converted(
        self, b: VarBinding, call: Call, shadows: list[Shadow | None]
    ) -> tuple[Shadow | None, str]:
        """The second form of a call, or why it has none."""
        rule = RULES.get(call.op)
        if rule is None or (call.op in OPTIONAL and call.op not in self.optional):
            return None, "it has no rule for integers"
        try:
            affine = rule(self, call, shadows, self.wanted.get(b.var))
        except StructInfoError as error:
            return None, str(error).splitlines()[0]
        return affine, "its arguments have not the form that the rule wants"

    def quantized(self, b: VarBinding, call: Call) -> Sequence[Binding] | None:
        """`quantize` of something that has a second form: another scale for that."""
        x, scale, zero = call.args
        form = self.shadow.get(x)
        if not isinstance(form, Affine):
            if x in self.blocked:
                if self.hard_fail:
                    raise PassError(f"FakeQuantizationToInteger: {self.blocked[x]}")
                declined("{} stays: " + self.blocked[x].replace("{", "{{").replace("}", "}}"), b)
            return None
        axis = int(call.attrs["axis"])
        ndim = int(form.info.ndim)
        own = None if _single(scale) and _single(zero) else axis % max(ndim, 1)
        if own is not None and form.axis not in (None, own):
            declined("{} stays: its scales go along two axes", b)
            return None
        out = str(call.attrs["out_dtype"])
        same = form.dtype == out and _equal(form.scale, scale) and _equal(form.zero, zero)
        along = -1 if form.axis is None and own is None else own if own is not None else form.axis
        value = form.value if same else ops.qnn.requantize(
            form.value, form.scale, form.zero, scale, zero, axis=along, out_dtype=out
        )  # fmt: skip
        decided("{} computed in integers", b)
        self.changed = True
        return [b.replace(value=value)]

    # -- values ------------------------------------------------------------------------------------

    def form(self, value: Any) -> Shadow | None:
        """The second form of an argument, where there is one."""
        if isinstance(value, Tuple):
            fields = [self.shadow.get(f) for f in value.fields]
            known = [f for f in fields if isinstance(f, Affine)]
            return known if known and len(known) == len(fields) else None
        return self.shadow.get(value)

    def emit(self, value: Any, name: str = "q") -> Any:
        """`value` bound to a new variable; leaves stay."""
        return value if isinstance(value, (Var, Constant)) else self.new(name, value)

    def product(self, one: Expr, other: Expr) -> Expr:
        """The product of two scales."""
        if isinstance(one, Constant) and isinstance(other, Constant):
            return const(np.asarray(one.data.numpy() * other.data.numpy()))
        return self.emit(ops.multiply(one, other), "scale")

    def distance(self, x: Affine) -> Expr:
        """value - zero in int32."""
        wide = self.emit(ops.astype(x.value, "int32"))
        if isinstance(x.zero, Constant) and not x.zero.data.numpy().any():
            return wide
        return self.emit(ops.subtract(wide, self.emit(ops.astype(x.zero, "int32"))))

    def in_int32(self, x: Affine, scale: Expr, axis: int | None) -> Affine:
        """`x` in another scale, with the zero point 0, in int32."""
        along = axis if axis is not None else x.axis
        widened = ops.qnn.requantize(
            x.value, x.scale, x.zero, scale, _ZERO, axis=-1 if along is None else along,
            out_dtype="int32",
        )  # fmt: skip
        return Affine(self.emit(widened), scale, _ZERO, axis)


_ZERO = const(0, "int32")
Rule = Callable[[_Integers, Any, list[Any], _Target | None], Shadow | None]
"""(rewriter, call, second forms of its arguments, what it is quantised to at last) -> its own"""


def _calls(value: Any, op: Op) -> bool:
    return isinstance(value, Call) and value.op is op


def _single(x: Any) -> bool:
    """Whether a parameter is certainly a scalar."""
    return bool(x.struct_info.ndim == 0 or x.struct_info.dims == (1,))


def _equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if not isinstance(one, Constant) or not isinstance(other, Constant):
        return False
    return bool(np.array_equal(one.data.numpy(), other.data.numpy()))


def _same_target(one: _Target, other: _Target) -> bool:
    equal = _equal(one.scale, other.scale) and _equal(one.zero, other.zero)
    return one.dtype == other.dtype and equal


def _dequantized(call: Any) -> Affine:
    x, scale, zero = call.args
    ndim = int(x.struct_info.ndim)
    single = _single(scale) and _single(zero)
    return Affine(x, scale, zero, None if single else int(call.attrs["axis"]) % max(ndim, 1))


def _as_real(x: Affine, info: Any) -> Expr:
    real: Expr = ops.dequantize(
        x.value, x.scale, x.zero, axis=x.from_end, out_dtype=str(info.dtype)
    )
    return real


# -- rules: what moves elements --------------------------------------------------------------------


def _moved(it: _Integers, call: Any, args: list[Any], wanted: Any) -> Shadow | None:
    """Operators that give elements of their first argument, as they are."""
    x = args[0]
    if not isinstance(x, Affine) or any(a is not None for a in args[1:]):
        return None
    moved = call.replace(args=(x.value, *call.args[1:]), struct_info=None)
    axis = None if x.axis is None else _axis_after(call, x)
    if axis is None and x.axis is not None:
        return None
    value = it.emit(moved)
    if isinstance(value.struct_info, TensorStructInfo):
        return replace(x, value=value, axis=axis)
    return [
        replace(x, value=it.emit(TupleGetItem(value, k)), axis=axis)
        for k in range(len(value.struct_info.fields))
    ]


def _axis_after(call: Any, x: Affine) -> int | None:
    """Where the axis of `x` is after `call`; None if it is not known, or no axis of its own."""
    assert x.axis is not None
    if call.op in _KEEPS_CHANNELS:
        return x.axis if x.axis == str(call.attrs["layout"]).find("C") else None
    if call.op is Op.get("relax.permute_dims"):
        axes = call.attrs["axes"]
        ndim = int(x.info.ndim)
        order = list(range(ndim))[::-1] if axes is None else [int(a) % ndim for a in axes]
        return order.index(x.axis)
    if call.op not in _RESHAPES:
        return None
    before, after = x.info.dims, call.struct_info.dims
    if before is None or after is None or not all(isinstance(d, IntImm) for d in (*before, *after)):
        return None
    old, new = ([d.value for d in dims] for dims in (before, after))
    first = int(np.prod(old[: x.axis]))
    places = [k for k, n in enumerate(new) if n == old[x.axis] and np.prod(new[:k]) == first]
    return places[0] if places else None


def _resized(it: _Integers, call: Any, args: list[Any], wanted: Any) -> Shadow | None:
    nearest = call.attrs["method"] == "nearest_neighbor" and call.attrs["out_dtype"] is None
    return _moved(it, call, args, wanted) if nearest else None


def _padded(it: _Integers, call: Any, args: list[Any], wanted: Any) -> Shadow | None:
    x = args[0]
    if call.attrs["pad_mode"] == "constant":
        fill = _stored(x, float(call.attrs["pad_value"]))
        if fill is None or fill.size != 1:
            return None
        call = call.replace(attrs=call.attrs.with_(pad_value=float(fill.item())))
    return _moved(it, call, args, wanted)


def _stored(x: Affine, real: float) -> np.ndarray | None:
    """The integers that are nearest to a real number; None if parameters are no constants."""
    if not isinstance(x.zero, Constant) or not (isinstance(x.scale, Constant) or real == 0):
        return None
    zero = x.zero.data.numpy().astype("float64")
    scale = x.scale.data.numpy().astype("float64") if isinstance(x.scale, Constant) else 1.0
    limits = np.iinfo(x.dtype)
    levels = np.clip(np.rint(real / scale) + zero, limits.min, limits.max)
    return np.asarray(levels).astype(x.dtype)


def _that_tells(it: _Integers, x: Affine, real: float, wanted: _Target | None) -> Affine:
    """`x`; if its bytes miss the number `real` by more than the last ones will, at their scale and
    zero point. (Storing keeps the order, so that limits may be applied behind it.)
    """
    stored = _stored(x, real) if wanted is not None and x.is_small else None
    if wanted is None or stored is None or not isinstance(x.scale, Constant):
        return x
    scale, zero = (c.data.numpy().astype("float64") for c in (x.scale, cast(Constant, x.zero)))
    missed = np.abs((stored - zero) * scale - real).max(initial=0.0)
    if missed <= float(wanted.scale.data.numpy()) / 2:
        return x
    along = -1 if x.axis is None else x.axis
    moved = ops.qnn.requantize(
        x.value, x.scale, x.zero, wanted.scale, wanted.zero, axis=along, out_dtype=wanted.dtype
    )
    return Affine(it.emit(moved), wanted.scale, wanted.zero)


# -- rules: limits ---------------------------------------------------------------------------------


def _between(low: Any, high: Any) -> Rule:
    """Values cut off at `low` and `high`, numbers or functions of a call that give them."""

    def rule(it: _Integers, call: Any, args: list[Any], wanted: Any) -> Shadow | None:
        x = args[0]
        for limit, cut in ((low, ops.maximum), (high, ops.minimum)):
            real = limit(call) if callable(limit) else limit
            if real is None:
                continue
            x = _that_tells(it, x, real, wanted)
            bound = _stored(x, real)
            if bound is None:
                return None
            if bound.ndim and x.axis is not None:
                shape = [1] * int(x.info.ndim)
                shape[x.axis] = -1
                bound = bound.reshape(shape)
            x = replace(x, value=it.emit(cut(x.value, const(bound))))
        return x

    return rule


def _number(which: int) -> Callable[[Any], float]:
    return lambda call: float(call.args[which].value.value)


# -- rules: products -------------------------------------------------------------------------------


def _convolved(it: _Integers, call: Any, args: list[Any], wanted: Any) -> Shadow | None:
    x, w = args
    attrs = dict(call.attrs)
    if not _are_factors(x, w) or attrs.pop("out_dtype") not in (None, "", "void", "float32"):
        return None
    if w.axis not in (None, str(attrs["kernel_layout"]).find("O")):
        return None
    convolution = getattr(ops.qnn, call.op.name.rpartition(".")[2])
    sums = convolution(x.value, w.value, x.zero, w.zero, x.scale, w.scale, **attrs)
    axis = str(attrs["out_layout"] or attrs["data_layout"]).find("C")
    scale = it.product(x.scale, w.scale)
    return Affine(it.emit(sums), scale, _ZERO, None if w.axis is None else axis)


def _multiplied(it: _Integers, call: Any, args: list[Any], wanted: Any) -> Shadow | None:
    x, w = args
    if not _are_factors(x, w) or min(x.info.ndim, w.info.ndim) < 2:
        return None
    if call.attrs["out_dtype"] not in (None, "", "void", "float32"):
        return None
    columns = int(w.info.ndim) - 1
    if w.axis not in (None, columns) or (w.axis is not None and columns != 1):
        return None
    turned = it.emit(ops.permute_dims(w.value, axes=[*range(columns - 1), columns, columns - 1]))
    product = ops.qnn.dense if columns == 1 else ops.qnn.batch_matmul
    sums = it.emit(product(x.value, turned, x.zero, w.zero, x.scale, w.scale))
    scale = it.product(x.scale, w.scale)
    axis = None if w.axis is None else int(sums.struct_info.ndim) - 1
    return Affine(sums, scale, _ZERO, axis)


def _are_factors(x: Any, w: Any) -> bool:
    return all(isinstance(e, Affine) and e.is_small for e in (x, w)) and x.axis is None


# -- rules: two operands ---------------------------------------------------------------------------


def _sum_rule(name: str) -> Rule:
    def rule(it: _Integers, call: Any, args: list[Any], wanted: Any) -> Shadow | None:
        one, other = (
            a if isinstance(a, Affine) else _constant(it, e, b)
            for a, b, e in zip(args, reversed(args), call.args)
        )
        if one is None or other is None:
            return None
        small = one.is_small and other.is_small and one.dtype == other.dtype
        if small and wanted is not None and wanted.dtype == one.dtype and _in_rank(one, other):
            sums = getattr(ops.qnn, name)(
                one.value, other.value, one.scale, one.zero, other.scale, other.zero,
                wanted.scale, wanted.zero, lhs_axis=one.from_end, rhs_axis=other.from_end,
            )  # fmt: skip
            return Affine(it.emit(sums), wanted.scale, wanted.zero)
        pair = _at_one_scale(it, one, other)
        if pair is None:
            return None
        total = it.emit(getattr(ops, name)(pair[0].value, pair[1].value))
        first = max(pair, key=lambda p: (p.axis is not None, p.info.ndim))
        axis = first.axis
        if axis is not None:
            axis += int(total.struct_info.ndim) - int(first.info.ndim)
        return Affine(total, first.scale, _ZERO, axis)

    return rule


def _in_rank(one: Affine, other: Affine) -> bool:
    return one.axis is None and other.axis is None


def _constant(it: _Integers, value: Any, beside: Any) -> Affine | None:
    """The second form of a constant of floats, fine enough for what it is added to."""
    if not isinstance(value, Constant) or not isinstance(beside, Affine):
        return None
    array = value.data.numpy()
    if array.dtype != np.float32 or not np.isfinite(array).all():
        return None
    if not beside.is_small and beside.axis is None:
        scale = beside.scale
    elif isinstance(beside.scale, Constant):
        most = max(
            float(np.abs(array).max(initial=0.0)) / 127, float(beside.scale.data.numpy().max())
        )
        scale = const(np.float32(most / 2**16))
    else:
        return None
    return Affine(it.emit(ops.quantize(value, scale, _ZERO, out_dtype="int32")), scale, _ZERO)


def _at_one_scale(it: _Integers, one: Affine, other: Affine) -> tuple[Affine, Affine] | None:
    """Both operands in int32, with one scale and the zero point 0."""
    wide = [x for x in (one, other) if x.dtype == "int32" and _equal(x.zero, _ZERO)]
    if wide:
        # Sums of products keep their scale: it is fine.
        kept = max(wide, key=lambda x: (x.axis is not None, x.info.ndim))
        moved = other if kept is one else one
        if not (_equal(moved.scale, kept.scale) and moved in wide):
            along = _along_same(kept, moved)
            if along is None:
                return None
            moved = it.in_int32(moved, kept.scale, along if kept.axis is not None else None)
        return (one, moved) if kept is one else (moved, other)
    scales: list[Any] = [one.scale, other.scale]
    if not all(isinstance(s, Constant) for s in scales) or not (one.is_small and other.is_small):
        return None
    # 8 bits at the coarser scale, with 16 more for what the finer one tells.
    most = max(float(s.data.numpy().max()) for s in scales)
    scale = const(np.float32(most / 2**16))
    return it.in_int32(one, scale, None), it.in_int32(other, scale, None)


def _along_same(kept: Affine, moved: Affine) -> int | None:
    """The axis of `moved` that meets that of `kept`, -1 if that has none; None if none meets it."""
    if kept.axis is None:
        return -1 if moved.axis is None else moved.axis
    axis = kept.from_end + int(moved.info.ndim)
    if axis < 0 or moved.axis not in (None, axis) or moved.info.dims is None:
        return None
    size = kept.info.dims[kept.axis] if kept.info.dims is not None else None
    return axis if size is not None and moved.info.dims[axis] is size else None


def _multiplied_each(it: _Integers, call: Any, args: list[Any], wanted: Any) -> Shadow | None:
    if all(isinstance(a, Affine) for a in args):
        one, other = args
        if not (one.is_small and other.is_small and _in_rank(one, other)):
            return None
        products = ops.multiply(it.distance(one), it.distance(other))
        return Affine(it.emit(products), it.product(one.scale, other.scale), _ZERO)
    x = next(a for a in args if a is not None)
    factor = call.args[1 - args.index(x)]
    return _scaled(it, x, factor, lambda s, f: s * f)


def _divided(it: _Integers, call: Any, args: list[Any], wanted: Any) -> Shadow | None:
    return None if args[0] is None else _scaled(it, args[0], call.args[1], lambda s, f: s / f)


def _scaled(it: _Integers, x: Affine, factor: Any, f: Callable[[Any, Any], Any]) -> Affine | None:
    """A positive constant factor is one of the scale."""
    if not isinstance(factor, Constant) or not isinstance(x.scale, Constant):
        return None
    value = factor.data.numpy()
    if value.ndim or not (np.isfinite(value) and value > 0):
        return None
    return replace(x, scale=const(np.asarray(f(x.scale.data.numpy(), value)).astype("float32")))


def _joined(it: _Integers, call: Any, args: list[Any], wanted: Any) -> Shadow | None:
    fields = args[0]
    if not isinstance(fields, list) or any(f.axis is not None for f in fields):
        return None
    first = fields[0]
    values = Tuple([f.value for f in fields])
    if any(f.dtype != first.dtype for f in fields):
        return None
    if all(_equal(f.scale, first.scale) and _equal(f.zero, first.zero) for f in fields):
        joined = call.replace(args=(values,), struct_info=None)
        return replace(first, value=it.emit(joined))
    if wanted is None or wanted.dtype != first.dtype:
        return None
    joined = ops.qnn.concatenate(
        values, Tuple([f.scale for f in fields]), Tuple([f.zero for f in fields]),
        wanted.scale, wanted.zero, axis=call.attrs["axis"] or 0,
    )  # fmt: skip
    return Affine(it.emit(joined), wanted.scale, wanted.zero)


# -- rules: functions and averages -----------------------------------------------------------------


def _by_table(own: Any, **more: Any) -> Rule:
    """Operators of one quantised tensor that are given the scale of their result."""

    def rule(it: _Integers, call: Any, args: list[Any], wanted: Any) -> Shadow | None:
        x = args[0]
        if wanted is None or x.axis is not None or not x.is_small or wanted.dtype != x.dtype:
            return None
        attrs = {key: call.attrs[key] for key in more}
        mapped = own(x.value, x.scale, x.zero, wanted.scale, wanted.zero, **attrs)
        return Affine(it.emit(mapped), wanted.scale, wanted.zero)

    return rule


def _averaged(it: _Integers, call: Any, args: list[Any], wanted: Any) -> Shadow | None:
    """An average is the sum in a finer scale."""
    x = args[0]
    dims = x.info.dims
    if dims is None or x.axis is not None or not x.is_small:
        return None
    if call.op is Op.get("relax.mean"):
        axis, keepdims = call.attrs["axis"], bool(call.attrs["keepdims"])
    else:
        layout = str(call.attrs["layout"])
        same = call.attrs["out_layout"] in (None, layout)
        if not same or sorted(layout) != sorted("NCHW"):
            return None
        axis, keepdims = [layout.index(c) for c in "HW"], True
    axes = range(len(dims)) if axis is None else [axis] if isinstance(axis, int) else axis
    over = [dims[a] for a in axes]
    if not all(isinstance(d, IntImm) for d in over) or not isinstance(x.scale, Constant):
        return None
    count = int(np.prod([d.value for d in over]))
    if not 0 < count < 1 << 22:
        return None
    total = ops.sum(it.distance(x), axis=axis, keepdims=keepdims)
    return Affine(it.emit(total), const(np.float32(x.scale.data.numpy() / count)), _ZERO)


_POOL = {key: None for key in (
    "pool_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad", "layout",
    "out_layout",
)}  # fmt: skip
_KEEPS_CHANNELS = ops_named("nn.max_pool1d nn.max_pool2d nn.max_pool3d image.resize2d")
_RESHAPES = ops_named("reshape flatten squeeze expand_dims")
MOVES = ops_named(
    "reshape flatten squeeze expand_dims permute_dims broadcast_to strided_slice take repeat tile "
    "flip roll split max min nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.depth_to_space "
    "nn.space_to_depth nn.pixel_shuffle layout_transform"
)
_FOLLOWS = MOVES | ops_named("nn.relu nn.relu6 clip nn.pad image.resize2d")
"""Operators whose result has the scale of their first argument."""


def _rules() -> dict[Any, Rule]:
    named: dict[str, Rule] = {
        "nn.conv1d nn.conv2d nn.conv3d nn.conv2d_transpose": _convolved,
        "matmul": _multiplied,
        "add": _sum_rule("add"),
        "subtract": _sum_rule("subtract"),
        "multiply": _multiplied_each,
        "divide": _divided,
        "concat": _joined,
        "nn.relu": _between(0.0, None),
        "nn.relu6": _between(0.0, 6.0),
        "clip": _between(_number(1), _number(2)),
        "nn.pad": _padded,
        "image.resize2d": _resized,
        "nn.leakyrelu": _by_table(ops.qnn.leaky_relu, alpha=None),
        "nn.softmax": _by_table(ops.qnn.softmax, axis=None),
        "nn.avg_pool2d": _by_table(ops.qnn.avg_pool2d, **_POOL),
        "nn.global_avg_pool2d mean": _averaged,
    }
    rules: dict[Any, Rule] = {op: _moved for op in MOVES}
    rules |= {op: rule for names, rule in named.items() for op in ops_named(names)}
    return rules | {Op.get(real): _by_table(own) for real, own in BY_TABLE.items()}


RULES = _rules()
