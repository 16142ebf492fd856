"""CombineParallelDense: dense layers of one value become one product, batched or flat.

    a = relay.nn.dense(x, w1)              y = relay.nn.batch_matmul(relay.stack((x, x), 0),
    b = relay.nn.dense(x, w2)                                        relay.stack((w1, w2), 0))
                                           a, b = (relay.squeeze(p, [0]) for p in
                                                   relay.split(y, 2, 0))

What is combined says `relax.transform.CombineParallelDense`; this writes it as Relay does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir import IRModule, Op, PassContext
from ...relax import Binding, Call, DataflowVar, Function, Tuple, TupleGetItem, Var, VarBinding
from ...relax import op as ops
from ...relax import transform as graph
from ...relax.flow import BINDS, events
from ...relax.known_ops import is_op
from ...relax.rewriter import BindingRewriter
from .relay_pass import relay_pass

_PRODUCT, _TRANSPOSE = Op.get("relax.matmul"), Op.get("relax.permute_dims")
_STACK, _CONCAT = Op.get("relax.stack"), Op.get("relax.concat")
_SLICE, _SQUEEZE = Op.get("relax.strided_slice"), Op.get("relax.squeeze")


@relay_pass(4)
def CombineParallelDense(
    mod: IRModule, ctx: PassContext, *, min_num_branches: int = 3, to_batch: bool = True
) -> IRModule:
    """Combine dense layers of one matrix, with the biases and activations after them.

    min_num_branches  fewer are left alone
    to_batch          whether weights of one shape are stacked to one batch of products; else they
                      are put side by side, and may differ in how many rows they have
    """
    combine = graph.CombineParallelDense.configured(
        min_num_branches=min_num_branches, to_batch=to_batch
    )
    combined = combine.run(mod, ctx)
    if combined is mod:
        return mod
    spelled = combined.clone()
    for gv, fn in combined.items():
        before = mod[gv]
        if isinstance(fn, Function) and isinstance(before, Function) and fn is not before:
            spelled[gv] = _Batches(fn, before).rewrite(fn)
    return spelled


class _Batches(BindingRewriter):
    """Spells what is new in a function: what is stacked and taken apart along the first axis."""

    def __init__(self, fn: Function, before: Function) -> None:
        old = {e.node.var for e in events(before, inner=True) if e.kind in BINDS}
        self.bound = {e.node.var: e.value for e in events(fn, inner=True) if e.kind in BINDS}
        self.is_new = {v for v in self.bound if v not in old}
        self.parts: dict[Var, Var] = {}

    def call(self, value: Any, op: Any) -> Any:
        """The call of `op` that `value`, something new, is bound to."""
        call = self.bound.get(value) if value in self.is_new else None
        return call if isinstance(call, Call) and call.op is op else None

    def named(self, name: str, value: Any, out: list[Binding]) -> Any:
        kind = DataflowVar if self.local is DataflowVar else Var
        out.append(VarBinding(kind(name, value.struct_info), value))
        return out[-1].var

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        call, out = b.value, list[Binding]()
        if not isinstance(call, Call):
            return None
        if call.op is _PRODUCT and isinstance(call.args[1], Var):
            product = self.product(call, self.bound.get(call.args[1]), out)
            return None if product is None else [*out, b.replace(value=product)]
        if call.op is _SQUEEZE and (cut := self.call(call.args[0], _SLICE)) is not None:
            part = self.part(cut, out)
            return [*out, b.replace(value=ops.squeeze(part, (0,)))]
        return None

    def product(self, call: Any, joined: Any, out: list[Binding]) -> Any:
        """`call`, a product with transposed matrices `joined`, with these joined as they are."""
        if call.args[1] not in self.is_new or getattr(joined, "op", None) not in (_STACK, _CONCAT):
            return None
        fields = getattr(joined.args[0], "fields", ())
        transposed: list[Any] = [self.bound.get(t) for t in fields]
        if not transposed or not all(is_op(t, _TRANSPOSE) for t in transposed):
            return None
        x, weights = call.args[0], Tuple([t.args[0] for t in transposed])
        if joined.op is _STACK:
            data = ops.stack(Tuple([x] * len(transposed)), 0)
            x = self.named("data", data, out)
            weight = self.named("weight", ops.stack(weights, 0), out)
        else:
            weight = self.named("weight", ops.concat(weights, 0), out)
        axes = (0, 2, 1) if joined.op is _STACK else None
        columns = self.named("columns", ops.permute_dims(weight, axes), out)
        return ops.matmul(x, columns, call.attrs["out_dtype"])

    def part(self, cut: Any, out: list[Binding]) -> Any:
        """The part of `cut`'s argument that `cut` takes."""
        whole, begin = cut.args[0], cut.args[2].fields[0].value.value
        if whole not in self.parts:
            count = whole.struct_info.dims[0].value
            self.parts[whole] = self.named("parts", ops.split(whole, count, 0), out)
        return self.named("part", TupleGetItem(self.parts[whole], begin), out)
