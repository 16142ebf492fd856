"""FuseOps: operators that run better as one become a function of their own, called where it stands.

    b = relay.add(x, y)                    f = fn (p0, p1, Primitive=1) { exp(add(p0, p1)) }
    return relay.exp(b)                    return f(x, y)

Which do is what `relax.transform.FuseOps` says of the loops they are, but that a reduction ends a
group, as in Relay; an operator that is alone is a function, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...ir import IRModule, Op, PassContext
from ...relax import (
    Binding,
    Call,
    Function,
    TupleGetItem,
    Var,
    VarBinding,
)
from ...relax import transform as graph
from ...relax.flow import BIND, events
from ...relax.known_ops import CALL_TIR, is_op
from ...relax.rewriter import Dropper
from ...relax.transform.fuse_ops import groups_of
from ...relax.transform.outline import function_of
from .relay_pass import relay_pass


@relay_pass(0)
def FuseOps(
    mod: IRModule, ctx: PassContext, *, fuse_opt_level: int = -1, link_params: bool = False
) -> IRModule:
    """Make functions marked "Primitive" of operators.

    fuse_opt_level  0: of single operators only; else of groups with one result
    link_params     whether constant tensors are inside of them; numbers are
    """
    lowered = graph.LegalizeOps.run(mod, ctx)
    changed = mod.clone()
    for gv, fn in mod.items():
        if isinstance(fn, Function) and not fn.get_attr("Primitive"):
            kernels = lowered[gv]
            assert isinstance(kernels, Function)
            groups = groups_of(kernels, lowered, ctx, False, True) if fuse_opt_level else ()
            changed[gv] = _fused(fn, kernels, groups, link_params)
    return changed


@relay_pass(3)
def DefuseOps(mod: IRModule, ctx: PassContext) -> IRModule:
    """Put the bodies of functions marked "Primitive" where they are called."""
    return graph.DefuseOps.run(graph.LambdaLift.run(mod, ctx), ctx)


def _fused(fn: Function, kernels: Function, groups: Sequence[Any], link_params: bool) -> Function:
    """`fn` with functions for the operators whose loops are `kernels`."""
    row = [e.node for e in events(fn, inner=True) if e.kind is BIND and type(e.node) is VarBinding]
    own: dict[Any, Any] = {
        b.var: b.value for b in row if isinstance(getattr(b.value, "op", None), Op)
    }
    readers: dict[Var, list[Any]] = {}
    for e in events(fn, inner=True):
        for v in e.reads():
            readers.setdefault(v, []).append(getattr(e.node, "var", None))
    of_kernel = _operators(kernels, own)
    groups_of_var: dict[Any, list[Any]] = {v: [v] for v in dict.fromkeys(of_kernel.values())}
    for group in groups:
        members = {of_kernel[k.binding.var] for k in group.members}
        inside = {k for k, v in of_kernel.items() if v in members}
        if inside == {k.binding.var for k in group.members}:
            _join(groups_of_var, members)
    for v, value in own.items():  # a product with a transposed matrix is one operator in Relay
        reader, *others = readers.get(v, [None])
        if value.op is _TRANSPOSE and not others and getattr(own.get(reader), "op", 0) is _PRODUCT:
            if v in groups_of_var and reader in groups_of_var:
                _join(groups_of_var, [v, reader])
    for v, value in [(b.var, b.value) for b in row if isinstance(b.value, TupleGetItem)]:
        group = groups_of_var.get(value.tuple_value, ())
        if len(group) > 1 and all(reader in group for reader in readers.get(v, ())):
            groups_of_var[v] = group
            group.append(v)
    changes: dict[int, Any] = {}
    for members in {id(g): set(g) for g in groups_of_var.values()}.values():
        bindings = [b for b in row if b.var in members]
        changes.update((id(b.var), None) for b in bindings)
        changes[id(bindings[-1].var)] = _call(bindings, own, link_params)
    return Dropper(changes).rewrite(fn)


_TRANSPOSE, _PRODUCT = Op.get("relax.permute_dims"), Op.get("relax.matmul")


def _operators(kernels: Function, own: Mapping[Var, Any]) -> dict[Var, Var]:
    """The variable of each kernel -> that of the operator of `own` that it is a part of."""
    groups: dict[Var, Var] = {}
    before: list[Var] = []
    for e in events(kernels, inner=True):
        if e.kind is BIND and is_op(e.value, CALL_TIR):
            before.append(e.node.var)
            if e.node.var in own:
                groups.update(dict.fromkeys(before, e.node.var))
                before = []
    return groups


def _join(groups: dict[Any, list[Any]], members: Iterable[Any]) -> None:
    joined = [v for m in members for v in groups[m]]
    groups.update(dict.fromkeys(joined, joined))


def _call(bindings: Sequence[Any], own: Mapping[Var, Any], link_params: bool) -> list[Binding]:
    """What stands for the last of `bindings`: a function of them all, and its call."""
    last = bindings[-1].var
    calls = [own[b.var] for b in bindings if b.var in own]
    inner, args = function_of(
        bindings,
        [last],
        {"Primitive": 1},
        lambda c: link_params or not c.data.ndim,
        parameters="p",
    )
    fn = Var("_".join(["fused", *_words(calls)]), inner.struct_info)
    call = Call(fn, args, struct_info=last.struct_info, span=bindings[-1].value.span)
    return [VarBinding(fn, inner), VarBinding(last, call, bindings[-1].span)]


def _words(calls: Sequence[Any]) -> list[str]:
    """Relay's names of operators, as TVM writes them in names of kernels."""
    words = []
    for k, call in enumerate(calls):
        name = call.op.name.removeprefix("relax.")
        if call.op is _TRANSPOSE and any(c.op is _PRODUCT for c in calls[k + 1 :]):
            continue
        if call.op is _PRODUCT:
            name = {2: "nn.dense", 3: "nn.batch_matmul"}.get(call.args[1].struct_info.ndim, name)
        words.append(_RENAMED.get(name, name).replace(".", "_"))
    return words


_RENAMED = {"permute_dims": "transpose", "concat": "concatenate", "astype": "cast"}
