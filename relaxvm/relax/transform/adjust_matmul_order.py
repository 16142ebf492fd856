"""AdjustMatmulOrder: of three matrices, those are multiplied first that make less work.

    lv = R.matmul(a, b)  # [512, 8] x [8, 512]     lv = R.matmul(b, x)
    gv = R.matmul(lv, x) # x [512, 1]              gv = R.matmul(a, lv)

Two that are known before the function runs, constants and weights (parameters from "num_input"
on), come together first: their product need not be computed in each call. A product that was
transposed is the product of its transposed factors in reverse.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...arith import Analyzer
from ...base import decided
from ...ir import IRModule, PassContext, PrimExpr, Range, const, walk
from ...ir import Var as TirVar
from ...ir.transform import function_pass
from ..analysis.purity import is_pure_call
from ..derive import tensor_dims
from ..dpl import DFPattern, PatternMatchingRewriter, is_op, wildcard
from ..expr import Call, Constant, Function, Var
from ..flow import bindings_of, vars_in
from ..op.infer import axes_of
from ..op.names import ops
from ..struct_info import Expr
from .lazy_inputs import num_input


@function_pass(opt_level=4, numerics="reassociates")
def AdjustMatmulOrder(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Multiply three matrices in the order of fewer operations, where that holds for all sizes.

    A product that something else reads too counts as computed.
    """
    order = _Order(fn, mod)
    a, b, c = wildcard(), wildcard(), wildcard()
    product = is_op("relax.matmul")(a, b)
    turned = is_op("relax.permute_dims")(product)

    def rule(first: DFPattern, left: bool) -> PatternMatchingRewriter:
        operands = (first, c) if left else (c, first)

        def other(call: Any, matched: Any) -> Expr | None:
            factors = [matched[a], matched[b]]
            if first is turned:
                if not swaps_last(matched[turned]):
                    return None
                factors = [swapped(f) for f in reversed(factors)]
            three = (*factors, matched[c]) if left else (matched[c], *factors)
            better = order.better(call, matched[product], three, left)
            if better is not None:
                decided("{} of {}: the other two come together first", call, matched[product])
            return better

        return PatternMatchingRewriter.from_pattern(is_op("relax.matmul")(*operands), other)

    rules = rule(product, True) | rule(product, False) | rule(turned, True) | rule(turned, False)
    return rules.rewrite(fn, mod)


class _Order:
    """Knows what is computed anyway."""

    def __init__(self, fn: Function, mod: IRModule) -> None:
        self.weights = weights_of(fn, mod)
        reads = Counter(v for b in bindings_of(fn) for v in vars_in(b.value))
        self.shared = {id(b.value) for b in bindings_of(fn) if reads[b.var] > 1}

    def better(self, call: Any, product: Any, three: tuple[Any, ...], left: bool) -> Expr | None:
        """The other order of `three`, of which two are multiplied first now, the left ones or
        not; None if it is no better.
        """
        a, b, c = three
        dims = [tensor_dims(x) for x in three]
        if any(d is None or len(d) < 2 for d in dims):
            return None
        if len({str(x.struct_info.dtype) for x in (*three, product, call)}) > 1:
            return None
        first, middle, last = (is_known(x, self.weights) for x in three)
        inner = ops.matmul(b, c) if left else ops.matmul(a, b)
        new = ops.matmul(a, inner) if left else ops.matmul(inner, c)
        if first and middle and last:
            return None
        if middle and (first or last):
            # Known ones come together: the left two, or the right two.
            return new if left != first else None
        now = [call] if id(product) in self.shared else [call, product]
        before, after = _operations(now), _operations([inner, new])
        if before is None or after is None:
            return None
        analyzer = _analyzer(before, after)
        better = analyzer.can_prove(after <= before) and not analyzer.can_prove(before <= after)
        return new if better else None


def _analyzer(*costs: PrimExpr) -> Analyzer:
    """One that takes sizes for 1 at least: where one is 0, no order costs anything."""
    analyzer = Analyzer(wrap=False)
    for symbol in {n for cost in costs for n in walk(cost) if isinstance(n, TirVar)}:
        analyzer.bind(symbol, Range.from_min_extent(const(1, symbol.dtype), 1 << 30))
    return analyzer


def _operations(products: list[Any]) -> PrimExpr | None:
    """How many pairs of numbers are multiplied in all."""
    total: PrimExpr = const(0, "int64")
    for product in products:
        inner, dims = tensor_dims(product.args[0]), tensor_dims(product)
        if inner is None or dims is None:
            return None
        work: PrimExpr = const(1, "int64")
        for d in (*dims, inner[-1]):
            work = work * d.astype("int64")
        total = total + work
    return total


# -- what is known before a function runs ---------------------------------------------------------


def weights_of(fn: Function, mod: IRModule) -> set[Var]:
    """The variables of `fn` that depend on nothing but constants and weights: the parameters after
    those that the attribute "num_input" counts.
    """
    inputs = num_input(fn, "the function")
    known = set() if inputs is None else set(fn.params[inputs:])
    for b in bindings_of(fn):
        value = b.value
        if isinstance(value, Call) and is_pure_call(value, mod) and is_known(value, known):
            known.add(b.var)
    return known


def is_known(value: Expr, weights: set[Var]) -> bool:
    """Whether `value` is a constant, or computed of `weights` alone."""
    return isinstance(value, (Constant, Var, Call)) and weights.issuperset(vars_in(value))


def swaps_last(turn: Any) -> bool:
    """Whether a permute_dims exchanges the last two axes, and only these."""
    dims, axes = tensor_dims(turn), turn.attrs["axes"]
    if dims is None or len(dims) < 2:
        return False
    rank = len(dims)
    order = list(range(rank))[::-1] if axes is None else list(axes_of(axes, rank, "axes"))
    return order == [*range(rank - 2), rank - 1, rank - 2]


def swapped(x: Expr) -> Expr:
    """`x` with its last two axes exchanged; of at least two."""
    rank = len(tensor_dims(x) or ())
    return ops.permute_dims(x, axes=[*range(rank - 2), rank - 1, rank - 2]) if rank > 1 else x
