"""SimplifyInference: what layers mean once their weights are settled.

    lv = R.nn.batch_norm(x, gamma, beta, mean, var)[0]      scale = 1 / sqrt(var + epsilon) * gamma
    gv = R.nn.dropout(lv)[0]                                gv = x * scale + (beta + -mean * scale)

Relay's own forms: the scale and the shift of a batch norm are of one size a channel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir import IRModule, PassContext
from ...relax import Binding, Call, Expr, Function, Tuple, const
from ...relax import op as ops
from ...relax.rewriter import BindingRewriter
from .relay_pass import relay_pass


@relay_pass(0, "reassociates")
def SimplifyInference(mod: IRModule, ctx: PassContext) -> IRModule:
    """Write batch norms by their moving statistics, the other norms by their own, drop dropouts."""
    changed = mod.clone()
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            changed[gv] = _Simplifier().rewrite(fn)
    return changed


class _Simplifier(BindingRewriter):
    def binding(self, b: Binding) -> Sequence[Binding] | None:
        call = b.value
        rule = _RULES.get(getattr(call.op, "name", "")) if isinstance(call, Call) else None
        if rule is None or not isinstance(call, Call):
            return None
        simpler = rule(*call.args, **dict(call.attrs))
        return None if simpler is None else [b.replace(value=simpler)]


def _along(vector: Expr, like: Any, axis: int) -> Any:
    """A vector of channels as it is broadcast to `like`."""
    after = like.struct_info.ndim - 1 - axis % like.struct_info.ndim
    return ops.expand_dims(vector, tuple(range(1, 1 + after))) if after else vector


def _number(value: float, like: Any) -> Expr:
    return const(value, str(like.struct_info.dtype))


def _batch_norm(
    x: Any, gamma: Any, beta: Any, mean: Any, var: Any, *, training: bool, **attrs: Any
) -> Any:
    if training:
        return None
    deviation = ops.sqrt(ops.add(var, _number(attrs["epsilon"], var)))
    scale = ops.divide(_number(1, var), deviation)
    if attrs["scale"]:
        scale = ops.multiply(scale, gamma)
    shift = ops.multiply(ops.negative(mean), scale)
    if attrs["center"]:
        shift = ops.add(shift, beta)
    scale, shift = (_along(v, x, attrs["axis"]) for v in (scale, shift))
    return Tuple([ops.add(ops.multiply(x, scale), shift), mean, var])


def _normalised(x: Any, axes: Any, epsilon: float) -> Any:
    """By mean and variance along `axes`."""
    mean, var = ops.mean(x, axes, True), ops.variance(x, axes, True)
    return ops.divide(ops.subtract(x, mean), ops.sqrt(ops.add(var, _number(epsilon, x))))


def _scaled(x: Any, gamma: Any, beta: Any, axis: int, attrs: Any) -> Any:
    if attrs["scale"]:
        x = ops.multiply(x, _along(gamma, x, axis))
    return ops.add(x, _along(beta, x, axis)) if attrs["center"] else x


def _layer_norm(x: Any, gamma: Any, beta: Any, *, axes: Any, **attrs: Any) -> Any:
    axes = [a % x.struct_info.ndim for a in ([axes] if isinstance(axes, int) else axes)]
    if axes != list(range(axes[0], axes[0] + len(axes))):
        return None
    normalised = _normalised(x, axes, attrs["epsilon"])
    return _scaled(normalised, gamma, beta, axes[-1], attrs)


def _instance_norm(x: Any, gamma: Any, beta: Any, *, axes: Any, **attrs: Any) -> Any:
    normalised = _normalised(x, axes, attrs["epsilon"])
    return _scaled(normalised, gamma, beta, attrs["channel_axis"], attrs)


def _group_norm(x: Any, gamma: Any, beta: Any, *, num_groups: int, **attrs: Any) -> Any:
    dims, axis = list(x.struct_info.dims), attrs["channel_axis"] % x.struct_info.ndim
    if num_groups <= 0 or list(attrs["axes"]) != list(range(axis + 1, len(dims))):
        return None
    groups = ops.reshape(x, [*dims[:axis], num_groups, dims[axis] // num_groups, *dims[axis + 1 :]])
    axes = list(range(axis + 1, len(dims) + 1))
    normalised = ops.reshape(_normalised(groups, axes, attrs["epsilon"]), dims)
    return _scaled(normalised, gamma, beta, axis, attrs)


_RULES: dict[str, Callable[..., Any]] = {
    "relax.nn.batch_norm": _batch_norm,
    "relax.nn.layer_norm": _layer_norm,
    "relax.nn.instance_norm": _instance_norm,
    "relax.nn.group_norm": _group_norm,
    "relax.nn.dropout": lambda x, **_: Tuple([x, x]),
}
