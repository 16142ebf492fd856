"""LiftTransformParams: what depends on weights alone is computed once, by a function of its own.

    before:  def main(x, w1, w2):                                    # {"num_input": 1}
                 t = R.permute_dims(w1); y = R.matmul(x, t); z = R.add(y, w2); return z
    after:   def main(x, w2, t): y = R.matmul(x, t); z = R.add(y, w2); return z
             def main_transform_params(params):
                 w2 = params[1]; w1 = params[0]; t = R.permute_dims(w1); return (w2, t)

The attribute "num_input" says how many of the first parameters are no weights. The new function
takes all weights as a tuple and gives, in order, what `main` takes after its inputs: weights that
it still reads itself, then what was computed of them. What is computed of constants alone is for
FoldConstant, what `R.builtin.stop_lift_params` gives stays. Functions that others call stay whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import NameSupply, PassError
from ...ir import GlobalVar, IRModule, PassContext, structural_equal, walk
from ...ir import Var as TirVar
from ...ir.analysis import collect_call_map
from ...ir.transform import module_pass
from ..analysis import free_symbolic_vars, is_pure_call, maybe_written_vars
from ..derive import definable_tir_vars_in_struct_info, tir_vars_in_struct_info
from ..expr import (
    Binding,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..flow import Uses, vars_in
from ..known_ops import ops_named
from ..rewriter import Dropper
from ..struct_info import TupleStructInfo
from ..substitute import copy_with_new_vars, substitute_graph
from .lazy_inputs import num_input
from .signature import replace_functions
from .value_keys import ValueKeys

_STOPS = ops_named("builtin.stop_lift_params")


@module_pass(opt_level=0)
def LiftTransformParams(
    mod: IRModule, ctx: PassContext, *, shared_transform: bool | Sequence[str] = False
) -> IRModule:
    """Move what is computed of weights alone into functions ``<name>_transform_params``.

    shared_transform  True, or the names of functions: these have one ``transform_params`` for all,
                      of what they all compute of the same weights, and all take all its results.
                      Raises PassError if their weights differ.
    """
    called = {gv for mentioned in collect_call_map(mod).values() for gv in mentioned}
    wanted: list[GlobalVar] = []
    for gv, fn in mod.items():
        if isinstance(fn, Function) and gv not in called and fn.get_attr("global_symbol"):
            count = num_input(fn, gv.name_hint)
            if count is not None and count < len(fn.params):
                wanted.append(gv)
    groups: list[tuple[str, list[GlobalVar]]] = []
    if shared_transform is False:
        groups = [(f"{gv.name_hint}_transform_params", [gv]) for gv in wanted]
    else:
        names = None if shared_transform is True else set(shared_transform)
        shared = [gv for gv in wanted if names is None or gv.name_hint in names]
        unknown = sorted((names or set()) - {gv.name_hint for gv in shared})
        if unknown:
            raise PassError(
                "LiftTransformParams: shared_transform: no public function with weights (attribute "
                f'"num_input") is named {", ".join(unknown)}'
            )
        groups = [("transform_params", shared)] if shared else []
    supply = NameSupply(lambda: [gv.name_hint for gv in mod])
    lifted = mod
    for name, group in groups:
        functions, transform = _lifted(mod, group)
        lifted = replace_functions(lifted, functions)
        if lifted is mod:
            lifted = mod.clone()
        name = supply.fresh(name)
        lifted[GlobalVar(name, transform.struct_info)] = transform.with_attr("global_symbol", name)
    return lifted


def _lifted(mod: IRModule, group: list[GlobalVar]) -> tuple[dict[GlobalVar, Function], Function]:
    """The functions without what is lifted, and the function that computes it."""
    keys = ValueKeys()
    numbers: dict[Any, int] = {}
    users: list[_User] = []
    for gv in group:
        fn = mod[gv]
        assert isinstance(fn, Function)
        users.append(_User(fn, gv.name_hint, mod, keys, numbers))
    first = users[0]
    for other in users[1:]:
        infos = [[p.struct_info for p in u.weights] for u in (first, other)]
        if len(infos[0]) != len(infos[1]) or not all(
            structural_equal(a, b, map_free_vars=True) for a, b in zip(*infos)
        ):
            raise PassError(
                f"LiftTransformParams: {first.name} and {other.name} are to share their weights, "
                "which differ in number, shape or dtype"
            )
    common = set.intersection(*(user.lifted() for user in users))
    kept: set[int] = set()
    frontier: set[int] = set()
    for user in users:
        user.split(common, kept, frontier)
    order = sorted(frontier)
    for user in users:
        kept |= user.for_symbols(sorted(kept), order)
    functions = {gv: user.without(sorted(kept), order) for gv, user in zip(group, users)}
    return functions, first.transform(sorted(kept), order)


class _User:
    """A function with weights. What is computed of them has numbers, the same for the same; weights
    are numbered by their places, below 0.
    """

    def __init__(
        self, fn: Function, name: str, mod: IRModule, keys: ValueKeys, numbers: dict[Any, int]
    ) -> None:
        self.fn = fn
        self.name = name
        count = num_input(fn, name)
        assert count is not None
        self.inputs, self.weights = fn.params[:count], fn.params[count:]
        self.uses = Uses()
        self.bindings = [b for block in fn.body.blocks for b in block.bindings]
        self.number = {p: k - len(self.weights) for k, p in enumerate(self.weights)}
        keys.numbers.update(self.number)
        # What is made of constants alone, by its number too, but neither lifted nor looked up.
        self.constant: set[Var] = set()
        self.first: dict[int, Var] = {}
        self.dropped: set[Var] = set()
        written = maybe_written_vars(fn, mod)
        known = {s for p in self.weights for s in definable_tir_vars_in_struct_info(p.struct_info)}
        for b in self.bindings:
            if not isinstance(b, VarBinding) or b.var in written or not _is_plain(b.value, mod):
                continue
            read = self.uses.of(b)
            if not all(v in self.number and v not in written for v in read):
                continue
            if not known.issuperset(n for n in walk(b.value) if isinstance(n, TirVar)):
                continue
            if not known.issuperset(tir_vars_in_struct_info(b.var.struct_info)):
                continue
            if all(v in self.constant for v in read):
                self.constant.add(b.var)
            value: Any = b.value
            if isinstance(value, Var):
                number = self.number[value]
            else:
                number = numbers.setdefault(_key(keys, value), len(numbers))
            self.number[b.var] = keys.numbers[b.var] = number
            self.first.setdefault(number, b.var)

    def lifted(self) -> set[int]:
        """The numbers of what may be computed elsewhere."""
        return {
            self.number[b.var]
            for b in self.bindings
            if b.var in self.number and b.var not in self.constant
        }

    def split(self, common: set[int], kept: set[int], frontier: set[int]) -> None:
        """Drop what is computed elsewhere, or for that alone. The weights that are still read are
        added to `kept`, what is read of the rest to `frontier`.
        """
        needed = set(vars_in(self.fn.body.body))
        for b in reversed(self.bindings):
            number = self.number.get(b.var)
            movable = number in common or b.var in self.constant
            if movable and (b.var not in needed or (b.var not in self.constant and _is_work(b))):
                self.dropped.add(b.var)
                if b.var in needed:
                    assert number is not None
                    frontier.add(number)
                continue
            needed.update(self.uses.of(b))
            if isinstance(b.value, (If, Function)):
                needed.update(n for n in walk(b.value) if isinstance(n, Var))
        kept.update(k for k, p in enumerate(self.weights) if p in needed)

    def for_symbols(self, kept: Sequence[int], frontier: Sequence[int]) -> set[int]:
        """The weights whose shapes bind symbols that nothing else would."""
        missing = set(free_symbolic_vars(self.without(kept, frontier)))
        needed: set[int] = set()
        for k, p in enumerate(self.weights):
            own = missing.intersection(definable_tir_vars_in_struct_info(p.struct_info))
            if own:
                needed.add(k)
                missing -= own
        return needed

    def without(self, kept: Sequence[int], frontier: Sequence[int]) -> Function:
        """The function, with what is lifted as parameters."""
        first = [self.first[n] for n in frontier]
        params = [Var(v.name_hint, v.struct_info, v.span) for v in first]
        by_number = dict(zip(frontier, params))
        body = Dropper({id(v): None for v in self.dropped}).rewrite(self.fn).body
        mapping = {
            v: by_number[n] for v, n in self.number.items() if n in by_number and v in self.dropped
        }
        return self.fn.replace(
            params=(*self.inputs, *(self.weights[k] for k in kept), *params),
            body=substitute_graph(body, mapping),
        )

    def transform(self, kept: Sequence[int], frontier: Sequence[int]) -> Function:
        """The function that gives the kept weights and what is lifted."""
        needed = {self.first[n] for n in frontier}
        lifted: list[Binding] = []
        for b in reversed(self.bindings):
            if b.var in needed and b.var in self.number:
                lifted.append(b)
                needed.update(self.uses.of(b))
        lifted.reverse()
        params = Var("params", TupleStructInfo([p.struct_info for p in self.weights]))
        items = [
            VarBinding(p, TupleGetItem(params, k))
            for k, p in enumerate(self.weights)
            if k in kept or p in needed
        ]
        result = Tuple([*(self.weights[k] for k in kept), *(self.first[n] for n in frontier)])
        out = Var("gv", result.struct_info)
        bindings = (*items, *lifted)
        block = DataflowBlock((*bindings, VarBinding(out, result)))
        inner = {b.var: DataflowVar(b.var.name_hint, b.var.struct_info) for b in bindings}
        body = substitute_graph(SeqExpr([block], out), inner)
        return copy_with_new_vars(Function([params], body, attrs={"num_input": 0}))


def _is_plain(value: Any, mod: IRModule) -> bool:
    """Whether `value` may be computed elsewhere."""
    if isinstance(value, Call):
        return is_pure_call(value, mod) and value.op not in _STOPS
    return isinstance(value, (Var, Tuple, TupleGetItem, Constant))


def _is_work(b: Binding) -> bool:
    return isinstance(b.value, Call)


def _key(keys: ValueKeys, value: Any) -> Any:
    if isinstance(value, Call):
        return keys.call(value)
    if isinstance(value, TupleGetItem):
        return "item", keys.leaf(value.tuple_value), value.index
    return "leaf", keys.leaf(value)
