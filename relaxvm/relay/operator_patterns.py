"""Patterns of Relay's operators: of the operators of the graph language that these write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ..base import record
from ..relax.dpl import (
    AttrPattern,
    CallPattern,
    DFPattern,
    Match,
    enter,
    is_expr,
    is_tuple_get_item,
    wildcard,
)
from ..relax.dpl import is_op as graph_op
from .spelling import Spelled, get
from .view import View

# Relay's name -> that of the one operator it is.
_RENAMED = {
    "transpose": "permute_dims",
    "concatenate": "concat",
    "cast": "astype",
    "reverse": "flip",
    "nn.leaky_relu": "nn.leakyrelu",
    "nn.batch_flatten": "reshape",
    "nn.global_avg_pool1d": "nn.adaptive_avg_pool1d",
    "nn.global_avg_pool2d": "nn.adaptive_avg_pool2d",
    "nn.global_avg_pool3d": "nn.adaptive_avg_pool3d",
    "nn.global_max_pool1d": "nn.adaptive_max_pool1d",
    "nn.global_max_pool2d": "nn.adaptive_max_pool2d",
    "nn.global_max_pool3d": "nn.adaptive_max_pool3d",
}


def _named(name: str) -> Callable[..., DFPattern]:
    op = graph_op(f"relax.{name}")
    return lambda *args: op(*args, varg_default_wildcard=True)


def _dense(data: Any, weight: Any) -> DFPattern:
    return _named("matmul")(data, _named("permute_dims")(weight))


def _batch_matmul(a: Any, b: Any) -> DFPattern:
    return _dense(a, b) | _named("matmul")(a, b)


def _bias_add(data: Any, bias: Any) -> DFPattern:
    along = bias | _named("expand_dims")(bias) | _named("reshape")(bias)
    return _named("add")(data, along)


# Relay's name -> what its operands make it: several operators.
_PARTS: dict[str, Callable[..., DFPattern]] = {
    "nn.dense": _dense,
    "nn.batch_matmul": _batch_matmul,
    "nn.bias_add": _bias_add,
    "nn.dropout": lambda data: is_tuple_get_item(_named("nn.dropout")(data), 0),
}


@record(values=False)
class SpelledPattern(DFPattern):
    """A call of an operator of Relay, as visitors see it or as the graph language has it."""

    spelled: DFPattern
    graph: DFPattern
    around: ClassVar[tuple[str, ...]] = ("spelled", "graph")

    def step(self, match: Match, place: Any, rest: Any) -> Any:
        is_spelled = isinstance(getattr(match.value(place), "op", None), Spelled)
        return enter, self.spelled if is_spelled else self.graph, place, rest

    def heads(self, inner: list[Any]) -> Any:
        spelled, graph = inner
        return None if spelled is None or graph is None else spelled | graph

    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern:
        """This, with these attributes: those of Relay's operator."""
        return _SpelledAttrPattern(self, attrs)


class _SpelledAttrPattern(AttrPattern):
    def holds(self, match: Match, place: Any) -> bool:
        value = match.value(place)
        seen = View().of(value)
        return super().holds(match, seen) or super().holds(match, value)


def is_op(op_name: str) -> Callable[..., DFPattern]:
    """What makes the pattern of a call of the operator that Relay calls `op_name`.

    Raises StructInfoError if there is none.
    """
    op = get(op_name)
    graph = _PARTS.get(op_name) or _named(_RENAMED.get(op_name, op_name))

    def call(*args: DFPattern) -> DFPattern:
        return SpelledPattern(CallPattern(is_expr(op), args, True), graph(*args))

    return call


def any_call(op_name: str) -> DFPattern:
    """A call of that operator, whatever its operands are."""
    takes = {"nn.dropout": 1} | dict.fromkeys(_PARTS.keys() - {"nn.dropout"}, 2)
    return is_op(op_name)(*(wildcard() for _ in range(takes.get(op_name, 0))))
