"""RewriteDataflowReshape: a kernel that only gives a tensor another shape becomes a view.

    before:  lv1 = R.call_tir(cls.reshape, (lv,), out_sinfo=R.Tensor((n, 2, 2), "float32"))
    after:   lv1 = R.reshape(lv, R.shape([n, 2, 2]))

reshape, expand_dims, squeeze, flatten cost nothing then: the machine gives the same memory another
shape, and the memory plan knows that it is the same. A kernel stays where that could be seen: if
the tensor or the view is written over later, or is handed out of the function so that two results,
or a result and an argument, would share memory.
"""

from __future__ import annotations

from typing import Any

from ...base import decided, declined
from ...ir import GlobalVar, IRModule, PassContext, PrimExpr, substitute
from ...ir import Var as TirVar
from ...ir.transform import function_pass
from ...tir import PrimFunc
from ..analysis import has_reshape_pattern, maybe_written_vars
from ..derive import place_of, prove_dims
from ..expr import Binding, Call, Function, Tuple, TupleGetItem, Var, VarBinding
from ..flow import BIND, BINDS, events
from ..known_ops import CALL_DPS_PACKED, CALL_TIR, RESHAPE, is_op
from ..rewriter import Dropper
from ..struct_info import TensorStructInfo
from .tensor_lifetimes import Lifetimes


@function_pass(opt_level=0)
def RewriteDataflowReshape(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Make views of the results of kernels that only reshape, where nobody can tell them apart."""
    patterns = _Patterns(mod)
    row = events(fn)
    reshapes = {
        e.node
        for e in row
        if e.kind is BIND and isinstance(e.node, VarBinding) and patterns.is_reshape(e.node.value)
    }
    if not reshapes:
        return fn
    written = maybe_written_vars(fn, mod)
    escaped = Lifetimes(row, mod).escaped
    # What each variable shares memory with: what a kernel made, or None for an argument. What comes
    # from elsewhere may change without a word.
    roots: dict[Any, Var | None] = dict.fromkeys(fn.params)
    changes: dict[int, Binding] = {}
    for e in row:
        if e.kind not in BINDS:
            continue
        b, value = e.node, e.node.value
        if is_op(value, CALL_TIR) or is_op(value, CALL_DPS_PACKED):
            roots[b.var] = b.var
        elif isinstance(value, (Var, TupleGetItem)):
            whole = value.tuple_value if isinstance(value, TupleGetItem) else value
            if whole in roots:
                roots[b.var] = roots[whole]
        if b not in reshapes:
            continue
        source = value.args[1].fields[0]
        why_not = ""
        if source in written or b.var in written:
            why_not = "one of the two is written over"
        elif source not in roots:
            why_not = "its argument is not known to stay as it is"
        elif b.var in escaped:
            root = roots[source]
            if root is None:
                why_not = "a result would share memory with an argument"
            elif root in escaped or source in escaped:
                why_not = "two results would share memory"
            else:
                escaped.add(root)
        if why_not:
            declined("{} copies: {}", b, why_not)
            continue
        decided("{} is a view", b)
        roots[b.var] = roots[source]
        info = value.sinfo_args[0]
        view = Call(RESHAPE, (source, info.shape), struct_info=info, span=value.span)
        changes[id(b.var)] = b.replace(value=view)
    return Dropper(changes).rewrite(fn)


class _Patterns:
    """Which calls only reshape; each loop function is looked at once."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.known: dict[PrimFunc, bool] = {}

    def is_reshape(self, call: Any) -> bool:
        """Whether `call` reshapes one tensor, of the size that its kernel wants for certain."""
        if not is_op(call, CALL_TIR) or not isinstance(call.args[0], GlobalVar):
            return False
        args, part = call.args[1], self.mod.get(call.args[0])
        if not isinstance(part, PrimFunc) or not isinstance(args, Tuple) or len(args.fields) != 1:
            return False
        have, wanted = args.fields[0].struct_info, call.sinfo_args[0]
        if not isinstance(args.fields[0], Var) or not isinstance(wanted, TensorStructInfo):
            return False
        if part not in self.known:
            self.known[part] = has_reshape_pattern(part)
        return self.known[part] and place_of(have) is place_of(wanted) and _fits(part, have, wanted)


def _fits(part: PrimFunc, have: Any, want: TensorStructInfo) -> bool:
    """Whether a call of `part` on a tensor of `have` cannot fail on its sizes."""
    infos = (have, want)
    if not all(isinstance(i, TensorStructInfo) and i.dims is not None for i in infos):
        return False
    pairs = [
        (wanted, dim)
        for buffer, info in zip(part.buffers, infos)
        for wanted, dim in zip(buffer.shape, info.dims)
    ]
    values: dict[TirVar, PrimExpr] = {}
    for wanted, dim in pairs:
        if isinstance(wanted, TirVar):
            values.setdefault(wanted, dim.astype(wanted.dtype))
    return [b.ndim for b in part.buffers] == [i.ndim for i in infos] and all(
        prove_dims(substitute(wanted, values), dim) is True for wanted, dim in pairs
    )
