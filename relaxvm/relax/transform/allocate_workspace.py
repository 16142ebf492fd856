"""AllocateWorkspace: memory that external kernels need while they run comes from their callers.

    before:  def fused_attention(q, k):                                  # {"Codegen": "lib"}
                 def local(q, k): ...                    # {"Composite": ..., "WorkspaceSize": 64}
                 gv = local(q, k); return gv
             def main(q, k): gv = cls.fused_attention(q, k); return gv
    after:   def fused_attention(q, k, workspace):
                 def local(q, k, workspace): ...
                 gv = local(q, k, workspace); return gv
             def main(q, k):
                 workspace_main = R.builtin.alloc_tensor(R.shape([64]), "uint8", 0)
                 gv = cls.fused_attention(q, k, workspace_main); return gv

The attribute "WorkspaceSize" is in bytes. All calls share one workspace of the largest size: the
machine runs one kernel after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import PassError
from ...ir import BaseFunc, GlobalVar, IntImm, IRModule, PassContext
from ...ir.transform import module_pass
from ..expr import Binding, Call, Function, Var, VarBinding
from ..flow import bindings_of
from ..known_ops import alloc_tensor
from ..rewriter import BindingRewriter, Dropper
from ..struct_info import TensorStructInfo
from .signature import replace_functions

_SIZE = "WorkspaceSize"


@module_pass(opt_level=0)
def AllocateWorkspace(mod: IRModule, ctx: PassContext) -> IRModule:
    """Give functions with the attribute "Codegen", and those inside them with "WorkspaceSize", a
    last parameter for their workspace, and allocate it once in each function that calls them.
    """
    sizes = {
        gv.name_hint: max(_size(gv, each) for each in (fn, *_inner(fn)))
        for gv, fn in mod.items()
        if isinstance(fn, Function) and fn.get_attr("Codegen") is not None
    }
    external = {name for name, size in sizes.items() if size > 0}
    if not external:
        return mod
    info = TensorStructInfo((max(sizes.values()),), "uint8")
    changed: dict[GlobalVar, BaseFunc] = {}
    for gv, fn in mod.items():
        if not isinstance(fn, Function):
            continue
        if gv.name_hint in external:
            changed[gv] = _Taking(info).taking(fn)
            continue
        workspace = Var("workspace_main", info)
        changes = {
            id(b.var): b.replace(value=b.value.replace(args=(*b.value.args, workspace)))
            for b in bindings_of(fn)
            if isinstance(b.value, Call)
            and isinstance(b.value.op, GlobalVar)
            and b.value.op.name_hint in external
        }
        if changes:
            allocated = VarBinding(workspace, alloc_tensor(info))
            changed[gv] = Dropper(changes, [allocated]).rewrite(fn)
    return replace_functions(mod, changed)


def _inner(fn: Function) -> list[Function]:
    return [b.value for b in bindings_of(fn) if isinstance(b.value, Function)]


def _size(gv: GlobalVar, fn: Function) -> int:
    size = fn.get_attr(_SIZE, 0)
    size = size.value if isinstance(size, IntImm) else size
    if not isinstance(size, int) or size < 0:
        raise PassError(
            f'AllocateWorkspace: {gv.name_hint}: the attribute "{_SIZE}" is a number of bytes, got '
            f"{size!r}"
        )
    return size


class _Taking(BindingRewriter):
    """Rebuilds an external function with a workspace, handed on to those inside that want it."""

    def __init__(self, info: TensorStructInfo) -> None:
        self.info = info
        self.workspace = Var("workspace", info)
        self.renewed: dict[Any, Var] = {}

    def taking(self, fn: Function) -> Function:
        body = self.rewrite(fn).body
        return fn.replace(params=(*fn.params, self.workspace), body=body)

    def local_function(self, b: Binding) -> Sequence[Binding] | None:
        fn = b.value
        assert isinstance(fn, Function)
        if not fn.get_attr(_SIZE):
            return None
        fn = fn.replace(params=(*fn.params, Var("workspace", self.info)))
        self.renewed[b.var] = type(b.var)(b.var.name_hint, fn.struct_info, b.var.span)
        return (b.replace(var=self.renewed[b.var], value=fn),)

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        call = b.value
        if (
            not isinstance(call, Call)
            or not isinstance(call.op, Var)
            or call.op not in self.renewed
        ):
            return None
        new = self.renewed[call.op]
        return (b.replace(value=call.replace(op=new, args=(*call.args, self.workspace))),)
