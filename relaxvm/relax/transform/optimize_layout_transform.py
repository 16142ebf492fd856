"""OptimizeLayoutTransform: layouts that are undone at once are not made.

    lv = R.layout_transform(x, index_map=lambda i: (i // 4, i % 4))
    gv = R.layout_transform(lv, index_map=lambda a, b: (a * 4 + b,))          gv = x

Two that do not cancel become one, if what stands in places to which no element goes stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer
from ...base import StructInfoError, decided, declined
from ...ir import GlobalVar, IRModule, Op, PassContext, Range, cast, const
from ...ir.transform import function_pass
from ...tir import IndexMap
from .. import op as R
from ..analysis.usage import remove_all_unused
from ..derive import dims_equal
from ..expr import Binding, Call, DataflowVar, Function, Tuple, Var, VarBinding
from ..known_ops import CALL_TIR, is_op
from ..rewriter import LeafRewriter
from ..struct_info import Expr
from .alter_op_impl import OPERATOR_NAME, REMOVE_PAD

_LAYOUT_TRANSFORM = Op.get("relax.layout_transform")


@function_pass(opt_level=0)
def OptimizeLayoutTransform(
    fn: Function, mod: IRModule, ctx: PassContext, *, padding_is_read: bool = True
) -> Function:
    """Join `layout_transform`s of one another, and remove those that move nothing.

    padding_is_read  False: what stands in places to which a layout moves no element is nobody's
                     concern, so that a result from which they are cut off and put back again (as
                     between functions of `AlterOpImpl`) is passed on as it is
    """
    new = _Joiner(mod, padding_is_read).rewrite(fn)
    return fn if new is fn else remove_all_unused(new, mod)


class _Joiner(LeafRewriter):
    def __init__(self, mod: IRModule, padding_is_read: bool) -> None:
        super().__init__()
        self.mod, self.padding_is_read = mod, padding_is_read
        # By variable: what was moved, how, and whether padding was cut off then.
        self.moved: dict[Var, tuple[Expr, Call, bool]] = {}
        self.same: dict[Expr, Expr] = {}

    def leaf(self, value: Expr, out: list[Binding]) -> Expr:
        return self.same.get(value, value)

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        changed = super().binding(b)
        new = b if changed is None else changed[-1]
        value = new.value
        if not isinstance(new, VarBinding) or not isinstance(value, Call):
            return changed
        if is_op(value, _LAYOUT_TRANSFORM):
            joined = self.joined(new, value)
            if joined is not value:
                return self.bound(new, joined)
            self.remember(self.moved, new.var, (value.args[0], value, False))
        elif self.cuts(value):
            inputs: Any = value.args[1]
            before = self.moved.get(inputs.fields[0])
            if before is not None and not before[2]:
                self.remember(self.moved, new.var, (before[0], before[1], True))
        return changed

    def bound(self, b: VarBinding, value: Expr) -> Sequence[Binding]:
        """What stands for `b`, which is worth `value` now."""
        if isinstance(value, Call):
            self.remember(self.moved, b.var, (value.args[0], value, False))
        elif type(b.var) is DataflowVar:
            self.remember(self.same, b.var, value)
        return (b.replace(value=value),)

    def joined(self, b: VarBinding, call: Call) -> Expr:
        """What `call` gives, in fewer steps; the same call if there are no fewer."""
        x, info = call.args[0], call.struct_info
        if _moves_nothing(x, call.attrs["index_map"], info):
            decided("{} moves nothing", b)
            return x
        before = self.moved.get(x) if isinstance(x, Var) else None
        if before is None:
            return call
        source, first, cut = before
        if not all(c.attrs["index_map"].is_injective(_dims(c.args[0])) for c in (first, call)):
            return call  # which of several elements stays depends on their order
        whole = _composed(first, call)
        if _moves_nothing(source, whole, info):
            if not cut or not self.padding_is_read:
                decided("{} undoes {}", b, first)
                return source
            declined("{} does not undo {}: what it puts into padding may be read", b, first)
            return call
        if cut:
            return call
        new = _in_one_step(first, call, whole)
        if new is not call:
            decided("{} joined with {}", b, first)
        return new

    def cuts(self, call: Call) -> bool:
        """Whether it only gives the beginning of its argument along each axis."""
        if not is_op(call, CALL_TIR) or not isinstance(call.args[0], GlobalVar):
            return False
        fn = self.mod.get(call.args[0])
        return (
            fn is not None
            and fn.get_attr(OPERATOR_NAME) == REMOVE_PAD
            and isinstance(call.args[1], Tuple)
            and len(call.args[1].fields) == 1
        )


def _composed(first: Call, second: Call) -> IndexMap:
    """The map from where elements were before `first` to where they are after `second`."""
    one, two = first.attrs["index_map"], second.attrs["index_map"]
    analyzer = Analyzer(wrap=False)
    for v, extent in zip(one.initial_indices, _dims(first.args[0])):
        analyzer.bind(v, Range.from_min_extent(const(0, v.dtype), cast(v.dtype, extent)))
    final = [analyzer.simplify(e) for e in two.map_indices(one.final_indices)]
    return IndexMap(one.initial_indices, final)


def _moves_nothing(x: Expr, index_map: IndexMap, info: Any) -> bool:
    """Whether `index_map` leaves every element of `x` where it is, among as many others."""
    own: Any = x.struct_info
    variables = index_map.initial_indices
    return (
        own.dims is not None
        and len(variables) == len(index_map.final_indices)
        and all(a is b for a, b in zip(variables, index_map.final_indices))
        and dims_equal(own.dims, info.dims) is True
    )


def _in_one_step(first: Call, second: Call, whole: IndexMap) -> Call:
    """`second` of what `first` is made of; `second` itself if padding or sizes would change."""
    padded = [c for c in (first, second) if not c.attrs["index_map"].is_bijective(_dims(c.args[0]))]
    pads = [getattr(c.attrs["pad_value"], "value", c.attrs["pad_value"]) for c in padded]
    if len(set(map(repr, pads))) > 1:  # -0.0 is not 0.0, and nan is nan
        return second
    try:
        new = R.layout_transform(
            first.args[0],
            whole,
            pad_value=pads[0] if pads else None,
            axis_separators=second.attrs["axis_separators"],
            input_axis_separators=first.attrs["input_axis_separators"],
        )
    except StructInfoError:  # nothing is known of the sizes that such indices give
        return second
    return new if dims_equal(_dims(new), _dims(second)) is True else second


def _dims(x: Any) -> Any:
    return x.struct_info.dims
