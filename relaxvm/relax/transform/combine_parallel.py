"""Products of one value with several weights become one product with all of them.

    q = R.matmul(x, wq)                        lv = R.matmul(x, [wq, wk])
    q1 = R.add(q, bq)                          lv1 = R.add(lv, [bq, bk])
    k = R.matmul(x, wk)                        q1 = R.strided_slice(lv1, ...)
    k1 = R.add(k, bk)                          k1 = R.strided_slice(lv1, ...)

Branches are alike in operator, attributes and the shapes of their weights but for the channels.
What follows in all of them alike, element by element, is done once: biases are joined as weights
are, constants while compiling. The joined product stands where the first branch did; what computes
weights of others moves there, and a branch takes part only if that can be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...base import NamedTuple, Span, decided, declined, in_function
from ...ir import IntImm, IRModule, Op, is_const, value_key, walk
from ...ir import Var as TirVar
from ...runtime import array as as_array
from ..analysis.purity import is_pure_call
from ..analysis.written import maybe_written_vars
from ..derive import definable_tir_vars_in_struct_info, tensor_dims
from ..expr import (
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Function,
    MatchCast,
    Tuple,
    Var,
    VarBinding,
)
from ..flow import BIND, BINDS, events, vars_in
from ..known_ops import ops_named
from ..op.names import ops
from ..rewriter import Dropper
from ..struct_info import Expr, TensorStructInfo
from .constant_eval import is_constant
from .scale_rules import operand_dims
from .signature import replace_functions
from .value_keys import ValueKeys

_FOLLOW = ops_named(
    "add subtract multiply divide maximum minimum negative abs exp log sqrt rsqrt square tanh "
    "sigmoid erf clip nn.relu nn.relu6 nn.leakyrelu nn.gelu nn.gelu_tanh nn.silu nn.elu nn.selu "
    "nn.celu nn.softplus nn.mish nn.hardswish nn.hardsigmoid"
)
"""Element by element: done once for all branches."""

_ADD = Op.get("relax.add")

_MOST_MOVED = 16
"""So many operators that compute one operand move up."""

Check = Callable[[Var, Sequence[Expr], Mapping[int, Expr], Mapping[Var, Expr]], bool]
"""(shared operand, weights, biases by branch, what variables are bound to) -> whether to combine"""


class Kind(NamedTuple):
    """Which calls are combined, and how.

    axes   call -> the axes of the weight and of the result that are joined, counted from the end;
           None if it is not combined
    stack  whether weights are stacked along a new first axis instead
    """

    axes: Callable[[Call], tuple[int, int] | None]
    stack: bool = False


def combine_parallel(
    mod: IRModule, kind: Kind, least: int = 2, check: Check | None = None
) -> IRModule:
    """`mod` with products of one value, at least `least` of them, made one where `check` wants."""
    changed: dict[Any, Any] = {}
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            with in_function(gv):
                changed[gv] = _Combining(fn, mod, kind).combined(max(least, 2), check)
    return replace_functions(mod, changed)


def constant_weights(
    shared: Var, weights: Sequence[Expr], biases: Mapping[int, Expr], values: Mapping[Var, Expr]
) -> bool:
    """The check that wants weights that can be joined while compiling."""
    return all(map(is_constant, weights))


class _Combining:
    """Combines the products of one function."""

    def __init__(self, fn: Function, mod: IRModule, kind: Kind) -> None:
        self.fn, self.mod, self.kind = fn, mod, kind
        self.keys = ValueKeys()
        # By variable (of symbols too): where it is bound. Its binding and block, and what reads it.
        self.position: dict[Any, int] = {}
        self.bound: dict[Var, Any] = {}
        self.block: dict[Var, Any] = {}
        self.readers: dict[Var, list[Any]] = {}
        self.changes: dict[int, Any] = {}

    def combined(self, least: int, check: Check | None) -> Function:
        """The function with groups of at least `least` branches combined."""
        groups: dict[Any, list[VarBinding]] = {}
        for i, e in enumerate(events(self.fn, inner=True)):
            for var in e.reads():
                self.readers.setdefault(var, []).append(e.node)
            if e.kind in BINDS:
                self.position[e.node.var] = i
                self.bound[e.node.var] = e.node
                self.block[e.node.var] = e.block
                if isinstance(e.node, MatchCast):
                    symbols = definable_tir_vars_in_struct_info(e.node.struct_info)
                    self.position.update(dict.fromkeys(symbols, i))
            if e.kind is BIND and type(e.node) is VarBinding and isinstance(e.value, Call):
                key = self.key(e.value)
                if key is not None:
                    groups.setdefault((id(e.block), key), []).append(e.node)
        groups = {key: group for key, group in groups.items() if len(group) >= least}
        if not groups:
            return self.fn
        self.written = maybe_written_vars(self.fn, self.mod)
        self.branches = {b.var for group in groups.values() for b in group}
        self.values = {var: b.value for var, b in self.bound.items()}
        for group in groups.values():
            self.combine(group, least, check)
        return Dropper(self.changes).rewrite(self.fn) if self.changes else self.fn

    def key(self, call: Call) -> Any:
        """What calls that may be combined have in common; None if this one may not be."""
        axes = self.kind.axes(call)
        if axes is None or not isinstance(call.args[0], Var):
            return None
        weight, dims = tensor_dims(call.args[1]), tensor_dims(call)
        if weight is None or dims is None or not isinstance(dims[axes[1]], IntImm):
            return None
        joined = None if self.kind.stack else len(weight) + axes[0]
        same = tuple(d for k, d in enumerate(weight) if k != joined)
        info: Any = call.args[1].struct_info
        return call.op, call.args[0], value_key(call.attrs), info.dtype, axes, same

    def combine(self, group: list[VarBinding], least: int, check: Check | None) -> None:
        """Combine the branches of a group that can be."""
        first = group[0]
        self.moved: dict[Var, None] = {}
        group = [b for b in group if self.is_ready(b, 0, first) and self.is_ready(b, 1, first)]
        calls: list[Any] = [b.value for b in group]
        if len(group) < least or group[0] is not first:
            return
        shared, weights = calls[0].args[0], [c.args[1] for c in calls]
        if check is not None:
            if not check(shared, weights, self.biases(group), self.values):
                declined("{} products of {} stay: so wants the check", len(group), shared)
                return
        weight_axis, axis = self.kind.axes(calls[0]) or (0, 0)
        sizes = [c.struct_info.dims[axis].value for c in calls]
        dataflow = isinstance(self.block[first.var], DataflowBlock)
        joint = _Joint(self.kind.stack, sizes, DataflowVar if dataflow else Var, self.keys)
        weight = joint.joined(weights, weight_axis, grow=False)
        if weight is None:
            return
        joint.bind(calls, (shared, weight))
        gone: list[VarBinding] = []
        last: Sequence[VarBinding] = group
        while (users := self.followers(last, first)) is not None:
            args = joint.arguments(
                [u.value for u in users], users[0].value.args.index(last[0].var), axis
            )
            if args is None:
                break
            joint.bind([user.value for user in users], args)
            gone += last
            last = users
        ends = [joint.part(b, k, axis) for k, b in enumerate(last)]
        if any(end is None for end in ends):
            return
        self.changes.update((id(b.var), None) for b in gone)
        self.changes.update((id(b.var), end) for b, end in zip(last, ends))
        self.changes.update((id(v), None) for v in self.moved)
        moved = [self.bound[v] for v in sorted(self.moved, key=self.position.__getitem__)]
        self.changes[id(first.var)] = [*moved, *joint.out, *(self.changes[id(first.var)] or ())]
        after = len(gone) // len(group)
        decided(
            "{} products of {} combined, with {} operators after each", len(group), shared, after
        )

    def is_ready(self, b: VarBinding, k: int, first: VarBinding) -> bool:
        """Whether operand `k` of `b` is there before `first`, or can be `moved` there, and nothing
        writes into these.
        """
        call: Any = b.value
        variables = vars_in(call.args[k])
        if not self.written.isdisjoint((b.var, *variables)):
            return False
        block, start = self.block[first.var], self.position[first.var]

        def late(variables: Sequence[Any]) -> list[Any]:
            return [v for v in variables if self.position.get(v, -1) >= start]

        moved: dict[Var, None] = {}
        todo = late(variables)
        for v in todo:  # grows while it is read
            if v in moved:
                continue
            binding = self.bound.get(v)  # a symbol has none
            if type(binding) is not VarBinding or not isinstance(binding.value, Call):
                return False
            value = binding.value
            if not is_pure_call(value, self.mod) or self.block[v] is not block:
                return False
            if v in self.branches or id(v) in self.changes or value.op is call.op:
                return False  # what is made one with others, or follows one that is
            if len(moved) > _MOST_MOVED:
                return False
            reads = [*vars_in(value), *(n for n in walk(value) if isinstance(n, TirVar))]
            if not self.written.isdisjoint((v, *reads)):
                return False
            moved[v] = None
            todo += late(reads)
        self.moved.update(moved)
        return True

    def biases(self, group: Sequence[VarBinding]) -> dict[int, Expr]:
        """By branch: what is added to it, if that is all that is done with it."""
        users = {k: self.only_reader(b) for k, b in enumerate(group)}
        return {
            k: user.value.args[1 - user.value.args.index(group[k].var)]
            for k, user in users.items()
            if user is not None and user.value.op is _ADD
        }

    def only_reader(self, b: VarBinding) -> Any:
        """The binding of the operator that follows `b`, if nothing else reads that."""
        readers = self.readers.get(b.var, ())
        user = readers[0] if len(readers) == 1 else None
        if type(user) is not VarBinding or not isinstance(user.value, Call):
            return None
        follows = user.value.op in _FOLLOW and user.var.struct_info is b.var.struct_info
        return user if follows and self.block[user.var] is self.block[b.var] else None

    def followers(self, last: Sequence[VarBinding], first: VarBinding) -> list[Any] | None:
        """What follows each of `last`, if it is the same for all."""
        users = [self.only_reader(b) for b in last]
        if None in users:
            return None
        calls = [user.value for user in users]
        slots = [call.args.index(b.var) for call, b in zip(calls, last)]
        alike = {(c.op, value_key(c.attrs), slot) for c, slot in zip(calls, slots)}
        others = [k for k in range(len(calls[0].args)) if k != slots[0]]
        if len(alike) > 1 or not all(self.is_ready(u, k, first) for u in users for k in others):
            return None
        return users


class _Joint:
    """The bindings of what stands for several branches.

    sizes  the size of each branch along the axis that is joined
    out    the bindings so far; the last one is that of the result
    """

    def __init__(self, stack: bool, sizes: Sequence[int], kind: type[Var], keys: ValueKeys) -> None:
        self.stack, self.sizes, self.kind, self.keys = stack, sizes, kind, keys
        self.out: list[VarBinding] = []

    def bind(self, calls: Sequence[Any], args: Sequence[Expr]) -> None:
        """Bind a call of `args` that stands for `calls`: that is the result from here on."""
        span = Span.merge(*(call.span for call in calls))
        self.bound(Call(calls[0].op, tuple(args), calls[0].attrs, span=span))

    def bound(self, value: Expr) -> Var:
        """A new variable bound to `value`."""
        var = self.kind("combined", value.struct_info)
        self.out.append(VarBinding(var, value))
        return var

    def arguments(self, calls: Sequence[Any], slot: int, axis: int) -> list[Expr] | None:
        """What the joint call reads for those of `calls`: in `slot`, the result so far; None if
        others cannot be joined.
        """
        mark = len(self.out)
        args: list[Expr] = [self.out[-1].var] * len(calls[0].args)
        for k in range(len(args)):
            if k != slot:
                joined = self.joined([c.args[k] for c in calls], axis)
                if joined is None:
                    del self.out[mark:]
                    return None
                args[k] = joined
        return args

    def joined(self, operands: Sequence[Any], axis: int, grow: bool = True) -> Expr | None:
        """What the joint call reads for the `operands` of the branches; None if there is nothing.

        grow  whether an operand is broadcast to the size of its branch
        """
        every = [operand_dims(o) for o in operands]
        dims = [d for d in every if d is not None]
        if len(dims) < len(every) or len({str(o.struct_info.dtype) for o in operands}) > 1:
            return None
        alike = len({self.keys.leaf(o) for o in operands}) == 1
        if alike and grow and (self.stack or len(dims[0]) < -axis or is_const(dims[0][axis], 1)):
            shared: Expr = operands[0]
            return shared
        if all(isinstance(o, Constant) and is_constant(o) for o in operands):
            return self._constant(operands, axis, grow)
        rank = len(dims[0])
        if not all(isinstance(o.struct_info, TensorStructInfo) for o in operands):
            return None
        others = {() if self.stack else d[:axis] + d[len(d) + axis + 1 :] for d in dims}
        if len(others) > 1 or any(len(d) != rank for d in dims):
            return None
        if self.stack:
            if rank not in (1, 2) or len(set(dims)) > 1:
                return None
            var = self.bound(ops.stack(Tuple(operands), axis=0))
            return var if rank == 2 else self.bound(ops.expand_dims(var, axis=1))
        if rank < -axis:
            return None
        if grow:
            # A bias, as weights are: what is as large as the result is not copied to join it.
            whole = all(is_const(d[axis], n) for d, n in zip(dims, self.sizes))
            if not whole or not all(is_const(d, 1) for d in others.pop()):
                return None
        return self.bound(ops.concat(Tuple(operands), axis=rank + axis))

    def _constant(self, operands: Sequence[Any], axis: int, grow: bool) -> Constant | None:
        """Constants joined."""
        arrays = [o.data.numpy() for o in operands]
        rank = max(2 if self.stack else -axis, *(a.ndim for a in arrays))
        arrays = [a.reshape((1,) * (rank - a.ndim) + a.shape) for a in arrays]
        if self.stack:
            fits = len({a.shape for a in arrays}) == 1
        else:
            for k, size in enumerate(self.sizes if grow else ()):
                if arrays[k].shape[axis] == 1:
                    arrays[k] = np.repeat(arrays[k], size, axis)
            fits = len({a.shape[:axis] + a.shape[rank + axis + 1 :] for a in arrays}) == 1
        if not fits:
            return None
        value = np.stack(arrays) if self.stack else np.concatenate(arrays, axis)
        return Constant(as_array(value, dtype=str(operands[0].struct_info.dtype)))

    def part(self, b: VarBinding, k: int, axis: int) -> list[VarBinding] | None:
        """The bindings of branch `k`, which is what `b` was; None if less would be known of it."""
        var = self.out[-1].var
        info: Any = var.struct_info
        place = 0 if self.stack else axis + info.ndim
        begin, size = (k, 1) if self.stack else (sum(self.sizes[:k]), self.sizes[k])
        value = ops.strided_slice(var, axes=[place], begin=[begin], end=[begin + size], span=b.span)
        out = []
        if self.stack:
            slice_ = VarBinding(self.kind("part", value.struct_info), value)
            out, value = [slice_], ops.squeeze(slice_.var, axis=0, span=b.span)
        return [*out, b.replace(value=value)] if value.struct_info is b.var.struct_info else None
