"""Patterns that code generators have in common. Those with names for their parts come as (pattern,
{name: part}), as `FusionPattern` takes them.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..dpl import DFPattern, is_op, wildcard
from ..dpl import make_fused_bias_activation_pattern as make_fused_bias_activation_pattern

Annotated = tuple[DFPattern, Mapping[str, DFPattern]]


def _with_bias_and_activation(
    out: DFPattern, parts: dict[str, DFPattern], with_bias: bool, activation: str | None
) -> Annotated:
    parts["root"] = out
    if with_bias:
        parts["bias"] = wildcard()
        out = is_op("relax.add")(out, parts["bias"])
    return (out if activation is None else is_op(activation)(out)), parts


def make_conv2d_pattern(with_bias: bool = False, activation: str | None = None) -> Annotated:
    """``activation(conv2d(input, weight) + bias)``, the parts asked for.

    activation  the name of an operator, such as "relax.nn.relu"
    """
    parts: dict[str, DFPattern] = {"input": wildcard(), "weight": wildcard()}
    out = is_op("relax.nn.conv2d")(parts["input"], parts["weight"])
    return _with_bias_and_activation(out, parts, with_bias, activation)


def make_matmul_pattern(
    with_bias: bool = False, activation: str | None = None, transposed_rhs: bool = False
) -> Annotated:
    """``activation(matmul(lhs, rhs) + bias)``, the parts asked for.

    transposed_rhs  of ``permute_dims(rhs)``
    """
    parts: dict[str, DFPattern] = {"lhs": wildcard(), "rhs": wildcard()}
    rhs = is_op("relax.permute_dims")(parts["rhs"]) if transposed_rhs else parts["rhs"]
    return _with_bias_and_activation(
        is_op("relax.matmul")(parts["lhs"], rhs), parts, with_bias, activation
    )


def make_attention_pattern(with_bias: bool = False) -> Annotated:
    """``nn.attention(query, key, value)``, or with a `bias` that is added to the scores."""
    names = ("query", "key", "value", *(("bias",) if with_bias else ()))
    parts: dict[str, DFPattern] = {name: wildcard() for name in names}
    op = "relax.nn.attention_bias" if with_bias else "relax.nn.attention"
    return is_op(op)(*parts.values()), parts


def make_layer_norm_pattern() -> Annotated:
    """``nn.layer_norm(input, gamma, beta)``"""
    parts: dict[str, DFPattern] = {name: wildcard() for name in ("input", "gamma", "beta")}
    return is_op("relax.nn.layer_norm")(*parts.values()), parts


def make_rms_norm_pattern() -> Annotated:
    """``nn.rms_norm(input, weight)``"""
    parts: dict[str, DFPattern] = {name: wildcard() for name in ("input", "weight")}
    return is_op("relax.nn.rms_norm")(*parts.values()), parts


def make_residual_block_pattern(
    node_output: DFPattern | Annotated,
    binary_op: str = "relax.add",
    activation: str | None = None,
) -> Annotated:
    """``activation(binary_op(node_output, residual))``, either way around.

    node_output  a pattern, or what another function of this file gives
    """
    pattern, known = node_output if isinstance(node_output, tuple) else (node_output, {})
    parts = {**known, "residual": wildcard()}
    op = is_op(binary_op)
    out: DFPattern = op(pattern, parts["residual"]) | op(parts["residual"], pattern)
    return (out if activation is None else is_op(activation)(out)), parts
