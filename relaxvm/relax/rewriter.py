"""What passes are written on: a graph function rebuilt binding by binding, without recursion.

    class Twice(BindingRewriter):
        def binding(self, b):
            return [b, copy_of(b)]

    Twice().rewrite(fn)

`RememberingRewriter` has tables that hold as long as a scope, `ShadowRewriter` follows values in a
second form, `LeafRewriter` looks at operands one by one, `Dropper` takes what an analysis found.
What is left alone stays the same object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from ..base import UNKNOWN, Steps, run_steps
from .derive import is_base_of
from .expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Var,
    VarBinding,
    joined_branches,
    source_of,
)
from .flow import map_leaves
from .normal_form import join_plain_blocks
from .struct_info import Expr

_Parts = Sequence[Binding | BindingBlock]
Form = TypeVar("Form")


class BindingRewriter:
    """Rebuilds a function. Subclasses say what becomes of each binding."""

    def begin(self, fn: Function) -> None:
        """Called before anything else."""

    def prologue(self, fn: Function) -> Sequence[Binding]:
        """Bindings to put before the body; asked for after the body is done."""
        return ()

    def binding(self, b: Binding) -> _Parts | None:
        """What stands for `b` (None: `b` itself). The branches of an `If` and the body of an inner
        function are already rebuilt. A block among the answers stands between what comes before it
        and after it.
        """
        return None

    def local_function(self, b: Binding) -> _Parts | None:
        """What stands for the binding of an inner function that is not to be entered; None to
        enter it.
        """
        return None

    def operand(self, value: Expr, out: list[Binding]) -> Expr:
        """What stands for a condition or a result; bindings it needs are appended to `out`."""
        return value

    def sequence_result(self, seq: SeqExpr, out: list[Binding]) -> Expr:
        """What stands for the result of the sequence `seq`; see `operand`."""
        return self.operand(seq.body, out)

    def enter(self, fn: Function | None) -> None:
        """Called before a branch, or before the body of the inner function `fn`."""

    def leave(self) -> None:
        """Called after it."""

    def begin_block(self, block: BindingBlock) -> None:
        """Called before the bindings of `block`."""

    def end_block(self, block: BindingBlock) -> None:
        """Called after them."""

    @property
    def local(self) -> type[Var]:
        """The class of variables that only the block being read needs."""
        return DataflowVar if isinstance(self._open[-1], DataflowBlock) else Var

    def rewrite(self, fn: Function) -> Function:
        """`fn` rebuilt; the same object if nothing changed."""
        return fn.replace(body=self.rewritten_body(fn))

    def rewritten_body(self, fn: Function) -> SeqExpr:
        """The body of `fn` rebuilt, whatever `fn` says that it gives."""
        self._open: list[BindingBlock] = []
        self.begin(fn)
        body = run_steps(self._seq(fn.body))
        first = tuple(self.prologue(fn))
        if first:
            body = body.replace(blocks=join_plain_blocks((BindingBlock(first), *body.blocks)))
        return body

    def _seq(self, seq: SeqExpr) -> Steps:
        blocks: list[BindingBlock] = []
        for block in seq.blocks:
            self._open.append(block)
            self.begin_block(block)
            # What stands for the block so far: blocks, and the bindings after the last of them.
            parts: list[BindingBlock] = []
            current: list[Binding] = []
            changed = False
            for b in block.bindings:
                kind = type(b.value)
                if kind is If:
                    after = yield self._branches(b)
                elif kind is Function:
                    after = yield self._function(b)
                else:
                    after = self.binding(b)
                if after is None:
                    current.append(b)
                    continue
                changed = True
                source = source_of(b)
                for each in after:
                    if isinstance(each, BindingBlock):
                        parts += [block.replace(bindings=tuple(current)), each]
                        current = []
                    elif source is UNKNOWN or source_of(each) is not UNKNOWN:
                        current.append(each)
                    else:
                        current.append(each.replace(span=source))
            self.end_block(block)
            self._open.pop()
            blocks += [*parts, block.replace(bindings=tuple(current)) if changed else block]
        extra: list[Binding] = []
        result = self.sequence_result(seq, extra)
        if extra:
            blocks.append(BindingBlock(extra))
        if len(blocks) != len(seq.blocks) or any(a is not b for a, b in zip(blocks, seq.blocks)):
            kept = join_plain_blocks(b for b in blocks if b.bindings)
            return seq.replace(blocks=kept, body=result)
        return seq.replace(body=result)

    def _branches(self, b: Binding) -> Steps:
        value = b.value
        assert isinstance(value, If)
        extra: list[Binding] = []
        cond = self.operand(value.cond, extra)
        branches = []
        for branch in (value.true_branch, value.false_branch):
            self.enter(None)
            branches.append((yield self._seq(branch)))
            self.leave()
        rebuilt = b.replace(
            value=value.replace(cond=cond, true_branch=branches[0], false_branch=branches[1])
        )
        after = self.binding(rebuilt)
        if after is None and rebuilt is b and not extra:
            return None
        return [*extra, *((rebuilt,) if after is None else after)]

    def _function(self, b: Binding) -> Steps:
        value = b.value
        assert isinstance(value, Function)
        instead = self.local_function(b)
        if instead is not None:
            return instead
        self.enter(value)
        body = yield self._seq(value.body)
        self.leave()
        rebuilt = b.replace(value=value.replace(body=body))
        after = self.binding(rebuilt)
        return (rebuilt,) if after is None and rebuilt is not b else after


class RememberingRewriter(BindingRewriter):
    """A rewriter with tables that hold for what follows in the same scope: what was entered in a
    branch or an inner function is forgotten at its end.
    """

    def __init__(self) -> None:
        self._entered: list[tuple[dict[Any, Any], Any]] = []
        self._marks: list[int] = []

    def remember(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Enter `value` in `table`; the key is not there yet."""
        table[key] = value
        self._entered.append((table, key))

    def enter(self, fn: Function | None) -> None:
        self._marks.append(len(self._entered))

    def leave(self) -> None:
        mark = self._marks.pop()
        for table, key in self._entered[mark:]:
            del table[key]
        del self._entered[mark:]


class ShadowRewriter(BindingRewriter, Generic[Form]):
    """A rewriter that follows values in a second form beside their own, computed as it goes.

    shadow  variable -> its second form, where there is one in scope
    out     the bindings that stand for the one being read, so far
    """

    def __init__(self) -> None:
        self.shadow: dict[Any, Form] = {}
        self.out: list[Binding] = []
        # Of each block being read: what is forgotten when it ends.
        self._ends: list[list[Var]] = []

    def begin_block(self, block: BindingBlock) -> None:
        self._ends.append([])

    def end_block(self, block: BindingBlock) -> None:
        for var in self._ends.pop():
            self.shadow.pop(var, None)

    def remember(self, var: Var, form: Form) -> None:
        """`form` is the second form of `var`, until the block ends."""
        self.shadow[var] = form
        self._ends[-1].append(var)

    def new(self, name: str, value: Any) -> Var:
        """A new variable of the block, bound to `value`."""
        var = self.local(name, value.struct_info)
        self.out.append(VarBinding(var, value))
        return var


class LeafRewriter(RememberingRewriter):
    """A rewriter that looks at arguments, fields, conditions and results one by one."""

    def leaf(self, value: Expr, out: list[Binding]) -> Expr:
        """What stands for `value`; bindings it needs are appended to `out`."""
        return value

    def operand(self, value: Expr, out: list[Binding]) -> Expr:
        return map_leaves(value, lambda leaf: self.leaf(leaf, out))

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        if isinstance(b.value, (ShapeExpr, PrimValue, If, Function)):
            return None
        out: list[Binding] = []
        value = self.operand(b.value, out)
        return None if value is b.value else [*out, b.replace(value=value)]


class Inferring(BindingRewriter):
    """A rewriter that puts other leaves in, and infers again what follows from them.

    replaced  variable -> what stands for it; bound variables whose struct info changes are added
    """

    def __init__(self, replaced: dict[Any, Any]) -> None:
        self.replaced = replaced

    def operand(self, value: Expr, out: list[Binding]) -> Expr:
        """What stands for an operand or result; of a call, with what it calls."""
        new = map_leaves(value, self.leaf)
        return new.replace(op=self.leaf(new.op)) if isinstance(new, Call) else new

    def leaf(self, leaf: Any) -> Any:
        """What stands for a leaf."""
        return self.replaced.get(leaf, leaf)

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        """`b` with its value inferred again, if what it reads has changed."""
        value = self.value(b.value)
        if value is b.value:
            return None
        var = b.var
        if not isinstance(b, MatchCast) and value.struct_info is not b.value.struct_info:
            var = self.replaced[b.var] = b.var.replace(struct_info=value.struct_info)
        return (b.replace(var=var, value=value),)

    def value(self, value: Expr) -> Expr:
        """What stands for a value; its bodies are rebuilt already."""
        if isinstance(value, (If, Function)):
            if isinstance(value, If):
                got = joined_branches(value.true_branch, value.false_branch)
                return value.replace(struct_info=got) if self.replaced else value
            fits = is_base_of(value.ret_struct_info, value.body.struct_info)
            return value if fits else value.replace(ret_struct_info=None)
        new = self.operand(value, [])
        return new.replace(struct_info=None) if isinstance(new, Call) and new is not value else new

    def function(self, fn: Function, params: Sequence[Var]) -> Function:
        """`fn` rebuilt with other parameters; its result is inferred again if it changes."""
        self.replaced.update((a, b) for a, b in zip(fn.params, params) if a is not b)
        new = self.rewrite(fn)
        if new is fn and not self.replaced:
            return fn
        same = new.body.struct_info is fn.body.struct_info
        ret = fn.ret_struct_info if same else None
        return fn.replace(params=tuple(params), body=new.body, ret_struct_info=ret)


class Dropper(BindingRewriter):
    """Rebuilds a function with some bindings changed or gone.

    changes   id of a binding's variable -> the new binding, several, or None to drop it
    prologue  bindings to put before the body
    """

    def __init__(self, changes: Mapping[int, Any], prologue: Sequence[Binding] = ()) -> None:
        self.changes = changes
        self.first = prologue

    def prologue(self, fn: Function) -> Sequence[Binding]:
        """What goes before the body of `fn`."""
        return self.first

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        """What stands for `b`."""
        if id(b.var) not in self.changes:
            return None
        new = self.changes[id(b.var)]
        if new is None:
            return ()
        return (new,) if isinstance(new, Binding) else new


class SameVars:
    """Groups of variables that stand for the same value; one of each group stays."""

    def __init__(self) -> None:
        self._parent: dict[Var, Var] = {}
        self._block: dict[Var, Any] = {}

    def bound(self, var: Var, block: Any) -> None:
        """Note that `var` is bound in `block`."""
        if type(var) is DataflowVar:
            self._block[var] = block

    def find(self, var: Var) -> Var:
        """The variable that stays for `var`."""
        root = var
        while (up := self._parent.get(root)) is not None:
            root = up
        while var is not root:
            self._parent[var], var = root, self._parent[var]
        return root

    def merge(self, old: Var, new: Var, block: Any) -> None:
        """`new`, bound in `block`, is what `old`, bound before it, is. Its binding is to go."""
        root = self.find(old)
        if self.find(new) is root:
            return  # bound twice, which is not well formed
        if type(root) is not DataflowVar or (
            type(new) is DataflowVar and self._block.get(root) is block
        ):
            self._parent[new] = root
        elif type(new) is not DataflowVar:
            # It is seen outside the block: the binding of `root` becomes one of `new`.
            self._parent[root] = new
        else:
            outside = Var(root.name_hint, root.struct_info, root.span)
            self._parent[root] = self._parent[new] = outside

    def mapping(self) -> dict[Any, Any]:
        """variable -> the variable that stays for it"""
        return {var: self.find(var) for var in self._parent}
