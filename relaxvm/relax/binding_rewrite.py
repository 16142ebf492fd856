"""`DataflowBlockRewrite`: bindings of one dataflow block added, removed and renamed by hand.

    rwt = DataflowBlockRewrite(block, fn)
    rwt.replace_all_uses(old, new)
    rwt.remove_unused(old)
    mod = rwt.mutate_irmodule(mod)

The function is not changed: `mutated_root_fn` is a new one.
"""

from __future__ import annotations

import collections

from ..base import VerifyError
from ..ir import IRModule, Node, substitute, walk
from ..ir.walk import transform
from .analysis.usage import remove_all_unused
from .analysis.vars import used_vars
from .derive import is_base_of
from .expr import Binding, DataflowBlock, DataflowVar, Function, SeqExpr, Var, VarBinding, as_relax
from .normal_form import names_in
from .struct_info import Expr


class DataflowBlockRewrite:
    """Rewrites the block `dfb` of the function `root_fn`."""

    def __init__(self, dfb: DataflowBlock, root_fn: Function) -> None:
        if not isinstance(dfb, DataflowBlock):
            raise VerifyError(f"wanted a dataflow block, got {type(dfb).__name__}")
        if not any(n is dfb for n in walk(root_fn)):
            raise VerifyError("DataflowBlockRewrite: the block is no part of the function")
        self._first_fn = root_fn
        self._names = names_in(root_fn)
        self._begin(root_fn, dfb)

    def _begin(self, fn: Function, block: DataflowBlock) -> None:
        self._fn, self._block, self._gone = fn, block, False
        # What is to stand in the block, by the identity of the variable.
        self._bindings = {id(b.var): b for b in block.bindings}
        # How many bindings of the block use a variable; what the rest of the function uses.
        self._inside = collections.Counter(id(v) for b in block.bindings for v in used_vars(b))
        rest = transform(fn, None, pre=lambda n: DataflowBlock(()) if n is block else None)
        self._outside = {id(v) for v in used_vars(rest)}
        self._bound = {id(n.var) for n in walk(fn) if isinstance(n, Binding)}
        self._bound.update(id(p) for n in walk(fn) if isinstance(n, Function) for p in n.params)

    # -- changes

    def replace_all_uses(self, old_var: Var, new_var: Var) -> None:
        """Let `new_var` stand wherever the function uses `old_var`; the binding of that stays.

        Raises VerifyError if less is known of `new_var`, or if it belongs to the block and
        `old_var` is used outside.
        """
        if id(old_var) not in self._bound:
            raise VerifyError(f"replace_all_uses: the function does not bind {old_var.name_hint}")
        if not is_base_of(old_var.struct_info, new_var.struct_info):
            raise VerifyError(
                f"replace_all_uses: {new_var.name_hint} cannot stand for {old_var.name_hint}\n"
                f"  wanted: {old_var.struct_info}\n  got:    {new_var.struct_info}"
            )
        if isinstance(new_var, DataflowVar) and id(old_var) in self._outside:
            raise VerifyError(
                f"replace_all_uses: {old_var.name_hint} is used outside the block, where "
                f"{new_var.name_hint} is not visible"
            )
        self._settle()
        fn = _with_uses_replaced(self._fn, old_var, new_var)
        self._begin(fn, self._version_in(fn))

    def _version_in(self, fn: Function) -> DataflowBlock:
        """What has become of the block in `fn`."""
        for n in walk(fn):
            if n is self._block:
                return self._block
            if isinstance(n, DataflowBlock) and n.bindings:
                if id(n.bindings[0].var) in self._bindings:
                    return n
        return DataflowBlock(())

    def add_binding(self, binding: Binding) -> None:
        """Add a binding at the end of the block."""
        if id(binding.var) in self._bound:
            raise VerifyError(f"add: {binding.var.name_hint} is bound already")
        if self._gone:
            raise VerifyError("add: nothing is left of the block; add before remove_all_unused")
        self._bindings[id(binding.var)] = binding
        self._bound.add(id(binding.var))
        self._inside.update(id(v) for v in used_vars(binding))

    def add(self, expr: Expr, name: str | None = None, is_dfvar: bool = False) -> None:
        """Bind `expr` at the end of the block.

        name      of the variable; default: "tmp" with a number
        is_dfvar  whether it is used in the block only
        """
        value = as_relax(expr)
        kind = DataflowVar if is_dfvar else Var
        chosen = self._names.fresh("tmp") if name is None else name
        self.add_binding(VarBinding(kind(chosen, value.struct_info), value))

    def remove_unused(self, var: Var, allow_undef: bool = False) -> None:
        """Remove the binding of `var`, which nothing uses.

        allow_undef  do nothing if the block does not bind `var`
        Raises VerifyError if it is used, or not bound in the block.
        """
        binding = self._bindings.get(id(var))
        if binding is None:
            if allow_undef:
                return
            raise VerifyError(f"remove_unused: the block does not bind {var.name_hint}")
        if self._inside[id(var)] or id(var) in self._outside:
            raise VerifyError(f"remove_unused: {var.name_hint} is used")
        del self._bindings[id(var)]
        self._bound.discard(id(var))
        self._inside.subtract(id(v) for v in used_vars(binding))

    def remove_all_unused(self) -> None:
        """Remove every binding of the function that nothing uses and that has no effect."""
        self._settle()
        fn = remove_all_unused(self._fn)
        self._begin(fn, self._version_in(fn))
        self._gone = not self._bindings

    # -- what comes of them

    def _settle(self) -> None:
        """Put the bindings as they are now into the function."""
        new, old = tuple(self._bindings.values()), self._block
        if len(new) == len(old.bindings) and all(a is b for a, b in zip(new, old.bindings)):
            return
        self._block = old.replace(bindings=new)
        self._fn = transform(self._fn, None, pre=lambda n: self._block if n is old else None)

    def mutated_dfb(self) -> DataflowBlock:
        """The block as it is now."""
        self._settle()
        return self._block

    def mutated_root_fn(self) -> Function:
        """The function as it is now; an empty block leaves no trace."""
        self._settle()
        return self._fn if self._block.bindings else transform(self._fn, _without_empty_blocks)

    def mutate_irmodule(self, irmodule: IRModule) -> IRModule:
        """A module like `irmodule` with the function as it is now in the place of the old one."""
        for gv, fn in irmodule.items():
            if fn is self._first_fn:
                new = irmodule.clone()
                new.update_func(gv, self.mutated_root_fn())
                return new
        raise VerifyError("mutate_irmodule: the module does not have the function")


def _with_uses_replaced(fn: Function, old: Var, new: Var) -> Function:
    def pre(n: Node) -> Node | None:
        if n is old:
            return new
        if isinstance(n, Binding) and n.var is old:
            return n.replace(value=substitute(n.value, {old: new}))
        if isinstance(n, Function) and any(p is old for p in n.params):
            return n.replace(body=transform(n.body, None, pre=pre))
        return None

    return transform(fn, None, pre=pre)


def _without_empty_blocks(n: Node) -> Node | None:
    if isinstance(n, SeqExpr) and not all(b.bindings for b in n.blocks):
        return n.replace(blocks=tuple(b for b in n.blocks if b.bindings))
    return None
