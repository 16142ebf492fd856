"""Products with constants go into the constants of what stands before and after them.

    y = conv2d(x, w); z = y * s        z = conv2d(x, w')              backward: y is made scaled
    y = x * s; z = conv2d(relu(y), w)  z = conv2d(relu(x), w')        forward: y is made unscaled

To scale a variable, the operator that gives it and all that read it have to go along: each by its
rule (`scale_rules`) absorbs the scale in a constant, or asks for other variables to be scaled. If
all that are asked agree, the constants change and the product is gone; else nothing happens.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from ...base import DataType, decided, declined, in_function
from ...ir import FloatImm, IRModule, Op, PassContext
from ...runtime import empty, is_given_away, side_by_side, wrap_unchecked
from ..analysis.written import maybe_written_vars
from ..derive import tensor_dims
from ..expr import Binding, Call, Constant, Function, PrimValue, Var, VarBinding
from ..flow import BIND, BINDS, events, leaves, map_leaves, name_of
from ..normal_form import Normalizer, names_in
from ..op.meaning import from_storage, to_storage
from ..op.names import ops
from ..rewriter import Dropper, SameVars
from ..struct_info import Expr
from ..substitute import substitute_graph
from .constant_eval import is_constant
from .scale_rules import OUT, RULES, Product, Scale, Way, relation_of
from .signature import replace_functions

MOST_PLACES = 64
"""A scale is carried on to no more operands and results than this."""
_SHARED_BYTES = 1 << 16
"""A constant that others read too is not copied if it is larger than this."""
_MULTIPLY, _DIVIDE = Op.get("relax.multiply"), Op.get("relax.divide")

Place = tuple[Var, int]
"""A slot of the call that a variable is bound to."""
Prepare = Callable[[Function], "tuple[Function, Collection[Var]]"]


def fold_scales(
    mod: IRModule,
    *,
    backward: bool,
    forward: bool,
    prepare: Prepare | None = None,
    written: bool = False,
) -> IRModule:
    """`mod` with products by constants folded where they can be.

    prepare  rewrites a function first, and says which variables of it are the products to fold
             (else all are)
    written  whether weights and biases are scaled by operators, and may be parameters; else they
             are constants, and scaled while compiling
    """
    uses = Counter(
        id(leaf.data)
        for fn in mod.functions.values()
        if isinstance(fn, Function)
        for e in events(fn, inner=True)
        if e.value is not None
        for leaf in leaves(e.value)
        if isinstance(leaf, Constant)
    )
    changed: dict[Any, Any] = {}
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            with in_function(gv), np.errstate(all="ignore"):
                new, products = (fn, None) if prepare is None else prepare(fn)
                folding = (_Written if written else _Folding)(new, mod, uses)
                changed[gv] = folding.folded(backward, forward, products)
    return replace_functions(mod, changed)


class _Plan:
    """What has to change for a product to go.

    scales     the variables that are scaled, and by how much
    constants  by place: what the constants there are scaled by
    scaled     the same, scaled
    chosen     whether it might have been done in another way
    why        why it cannot be, "" if it can
    """

    def __init__(self) -> None:
        self.scales: dict[Var, Scale] = {}
        self.constants: dict[Place, Scale] = {}
        self.scaled: dict[Place, Constant] = {}
        self.chosen = False
        self.why = ""


class _Folding:
    """Folds the products of one function.

    calls    the operators with rules, by their variables, as they are now
    readers  variable -> who reads it: variables of `calls`; None for anything else
    gone     variables of products that were folded -> what stands for them
    scaled   the constants that were scaled, as they were, and by how much in all
    waiting  those of them that are scaled at the end, where they are
    """

    def __init__(self, fn: Function, mod: IRModule, uses: Counter[int]) -> None:
        self.fn, self.mod, self.uses = fn, mod, uses
        self.calls: dict[Var, Call] = {}
        self.readers: dict[Var, dict[Var | None, None]] = {}
        self.gone: dict[Var, Var] = {}
        self.bound: dict[Var, tuple[Binding, Any]] = {}
        self.scaled: dict[Place, tuple[Any, Scale]] = {}
        self.waiting: set[Place] = set()
        self._written: set[Var] | None = None
        for e in events(fn, inner=True):
            reader = None
            if e.kind in BINDS:
                self.bound[e.node.var] = e.node, e.block
            if e.kind is BIND and type(e.node) is VarBinding and type(e.value) is Call:
                if e.value.op in RULES:
                    reader = e.node.var
                    self.calls[reader] = e.value
            for var in e.reads():
                self.readers.setdefault(var, {})[reader] = None

    def folded(self, backward: bool, forward: bool, products: Collection[Var] | None) -> Function:
        """The function with `products` folded where they can be."""
        for var in list(self.calls) if products is None else products:
            product = self.product(var)
            if product is None:
                continue
            slot, x, scale = product
            plans = [self.plan(x, scale, (var, slot))] if backward else []
            if forward and (not plans or plans[0].why):
                plans.append(self.plan(var, 1.0 / scale, (var, OUT)))
            plan = plans[-1]
            if plan.why:
                declined("{} stays: {}", self.bound[var][0], plans[0].why)
                continue
            decided("{} folded into {} constants", self.bound[var][0], len(plan.constants))
            self.apply(plan, var, x)
        return self.rebuilt() if self.gone else self.fn

    def rebuilt(self) -> Function:
        """The function as it is now."""
        for var, slot in self.waiting:
            if var in self.calls:
                scaled = _scaled_in_place(*self.scaled[var, slot])
                self.calls[var] = _with_leaf(self.calls[var], slot, scaled)
        changes: dict[int, Binding | None] = {id(var): None for var in self.gone}
        for var in {var for var, _ in self.scaled} & self.calls.keys():
            changes[id(var)] = self.bound[var][0].replace(value=self.calls[var])
        same = SameVars()
        for var, (_, block) in self.bound.items():
            same.bound(var, block)
            if var in self.gone:
                same.merge(self.gone[var], var, block)
        return substitute_graph(Dropper(changes).rewrite(self.fn), same.mapping())

    def product(self, var: Var) -> tuple[int, Var, Scale] | None:
        """The slot, variable and scale of the product or quotient that `var` is bound to."""
        call = self.calls[var]
        if call.op is not _MULTIPLY and call.op is not _DIVIDE:
            return None
        slot = 0 if isinstance(call.args[0], Var) else 1
        x, scale = self.operand((var, slot)), array_of(call.args[1 - slot])
        if not isinstance(x, Var) or scale is None or (call.op is _DIVIDE and slot == 1):
            return None
        dims = tensor_dims(x)
        if x.struct_info is not var.struct_info or dims is None or relation_of(call) is None:
            return None
        if scale.ndim > len(dims) or not np.isfinite(scale).all():
            return None
        scale = scale.reshape((1,) * (len(dims) - scale.ndim) + scale.shape)
        scale = _least(scale.astype("float64"))
        return slot, x, 1.0 / scale if call.op is _DIVIDE else scale

    def operand(self, place: Place) -> Any:
        """What stands at a place."""
        var, slot = place
        if slot == OUT:
            return var
        value: Any = leaves(self.calls[var])[1 + slot]
        while value in self.gone:
            value = self.gone[value]
        return value

    def is_settled(self, place: Place) -> bool:
        """Whether what stands at a place is scaled itself, not what gives it."""
        return not isinstance(self.operand(place), Var)

    # -- planning ---------------------------------------------------------------------------------

    def plan(self, var: Var, scale: Scale, settled: Place) -> _Plan:
        """What has to change for `var` to be scaled; the place `settled` takes it as it comes."""
        first = self.attempt(var, scale, settled, 0)
        if not first.why or not first.chosen:
            return first
        second = self.attempt(var, scale, settled, -1)
        return first if second.why else second

    def attempt(self, var: Var, scale: Scale, settled: Place, pick: int) -> _Plan:
        """The plan that takes the first way, or the last, where there are several."""
        plan, answered, todo = _Plan(), {settled}, [(var, scale)]
        for var, scale in todo:  # grows while it is read
            known = plan.scales.get(var)
            if known is not None:
                if np.allclose(known, scale, rtol=1e-12, atol=0):
                    continue
                plan.why = f"{var.name_hint} would have to be scaled in two ways"
                return plan
            plan.scales[var] = scale
            plan.why = self.why_not(var, scale)
            if len(answered) + len(self.readers.get(var, ())) > MOST_PLACES:
                plan.why = "too many operators would have to change"
            if plan.why:
                return plan
            for place in self.places(var):
                if place in answered:
                    continue
                ways = self.ways(place, scale, answered) if place[0] is not settled[0] else ()
                if not ways:
                    user = self.calls[place[0]]
                    plan.why = f"{name_of(user.op)} ({place[0].name_hint}) cannot go along"
                    return plan
                way = ways[pick]
                plan.chosen |= len(ways) > 1
                answered.add(place)
                for k, own in way.items():
                    other = place[0], k
                    answered.add(other)
                    if not self.is_settled(other):
                        todo.append((self.operand(other), own))
                    else:
                        plan.constants[other] = own * plan.constants.get(other, 1.0)
        plan.why = self.scale_constants(plan)
        return plan

    def why_not(self, var: Var, scale: Scale) -> str:
        """Why `var` cannot be scaled, whatever else is; "" if it can."""
        if var not in self.calls:
            return f"{var.name_hint} is given by nothing that can be scaled"
        if None in self.readers.get(var, ()):
            return f"{var.name_hint} is needed as it is, too"
        if not np.isfinite(scale).all():
            return "it divides by zero"
        if self._written is None:
            self._written = maybe_written_vars(self.fn, self.mod)
        return f"{var.name_hint} may be written into" if var in self._written else ""

    def places(self, var: Var) -> Iterator[Place]:
        """Every place where `var` stands: as a result, and as operands."""
        yield var, OUT
        for user in self.readers.get(var, ()):
            assert user is not None
            for slot in range(len(leaves(self.calls[user])) - 1):
                if self.operand((user, slot)) is var:
                    yield user, slot

    def ways(self, place: Place, scale: Scale, answered: set[Place]) -> Sequence[Way]:
        """What may be scaled if a place is: constants alone where that is enough."""
        user, slot = place
        relation = relation_of(self.calls[user])
        ways = () if relation is None else relation.ways(slot, scale)
        absorbed = [way for way in ways if all(self.is_settled((user, k)) for k in way)]
        if isinstance(relation, Product):
            # Scales of factors multiply: that of one may be passed on, others end here.
            if any(var is user for var, _ in answered):
                ways = absorbed
            operand = self.operand(place)
            if sum(self.operand((user, k)) is operand for k in relation.views) > 1:
                return ()
        return absorbed[:1] or ways

    def scale_constants(self, plan: _Plan) -> str:
        """Put the scaled constants into `plan`; why one cannot be, "" if all can."""
        for place, scale in plan.constants.items():
            old = self.operand(place)
            if isinstance(old, Constant) and place not in self.scaled:
                if self.uses[id(old.data)] > 1 and old.data.numpy().nbytes > _SHARED_BYTES:
                    return "a large constant is used elsewhere, too"
            new = self.constant(place, scale)
            if new is None:
                return "a constant would grow, overflow or lose digits"
            plan.scaled[place] = new
        return ""

    # -- constants --------------------------------------------------------------------------------

    def constant(self, place: Place, scale: Scale) -> Constant | None:
        """The constant at `place` scaled once more; None if it would be no good one."""
        first, factor = self.factor(place, scale)
        # What products multiply by is looked at again.
        is_factor = self.calls[place[0]].op in (_MULTIPLY, _DIVIDE)
        ours = not is_factor and self.is_ours(first)
        value = array_of(first)
        if value is None:
            return None
        shape = np.broadcast_shapes(value.shape, factor.shape)
        grown = len(shape) - value.ndim
        if math.prod(shape[:grown]) == 1:
            shape = shape[grown:]
            factor = factor.reshape(factor.shape[grown:])
        if math.prod(shape) > max(value.size, _SHARED_BYTES):
            return None
        if ours and shape == value.shape:
            kept: Constant = first
            return kept if _fits(kept, value, factor) else None
        return constant_like(first, value, factor)

    def is_ours(self, weight: Any) -> bool:
        """Whether `weight` is for this build alone, and nobody looks at modules as they were."""
        if not isinstance(weight, Constant) or weight.data.dtype.is_bits:
            return False
        seen = self.uses[id(weight.data)] != 1 or PassContext.current().instruments
        return not seen and is_given_away(weight)

    def factor(self, place: Place, scale: Scale) -> tuple[Any, Scale]:
        """The constant at `place` as it was first, and what it is to be scaled by in all."""
        if place not in self.scaled:
            return self.operand(place), scale
        first, before = self.scaled[place]
        return first, before * scale

    def apply(self, plan: _Plan, product: Var, x: Var) -> None:
        """Change the constants, and let `x` stand for `product`."""
        for place, scale in plan.constants.items():
            var, slot = place
            self.scaled[place] = self.factor(place, scale)
            self.calls[var] = _with_leaf(self.calls[var], slot, plan.scaled[place])
            self.waiting.discard(place)
            if plan.scaled[place] is self.scaled[place][0]:
                self.waiting.add(place)
        self.unbind(product, x)

    def unbind(self, product: Var, x: Var) -> None:
        """Let `x` stand for `product`."""
        del self.calls[product]
        self.gone[product] = x
        readers = self.readers[x]
        del readers[product]
        readers.update(self.readers.get(product, {}))


class _Written(_Folding):
    """Folds products by operators that scale weights and biases, constants or parameters.

    factors  by place: the constants that it is scaled by, as arrays that are broadcast to it
    vectors  by id of a constant: itself without axes of size 1
    """

    def __init__(self, fn: Function, mod: IRModule, uses: Counter[int]) -> None:
        super().__init__(fn, mod, uses)
        self.params = frozenset(fn.params)
        self.factors: dict[Place, list[tuple[Expr, Scale]]] = {}
        self.vectors: dict[int, Expr] = {}

    def is_settled(self, place: Place) -> bool:
        if self.operand(place) not in self.params:
            return super().is_settled(place)
        # What a product has on the left is no weight.
        return place[1] > 0 or not isinstance(relation_of(self.calls[place[0]]), Product)

    def scale_constants(self, plan: _Plan) -> str:
        if not all(np.isfinite(scale).all() for scale in plan.constants.values()):
            return "it divides by zero"
        for place, scale in plan.constants.items():
            least, most = _RANGE[str(self.operand(place).struct_info.dtype)]
            if ((np.abs(scale) > most) | (np.abs(scale) < least) & (scale != 0)).any():
                return "a scale would overflow or lose digits"
        return ""

    def apply(self, plan: _Plan, product: Var, x: Var) -> None:
        call = self.calls[product]
        scale = call.args[1 if self.operand((product, 0)) is x else 0]
        for place, factor in plan.constants.items():
            self.factors.setdefault(place, []).append((scale, factor))
        self.unbind(product, x)

    def rebuilt(self) -> Function:
        for (var, slot), factors in self.factors.items():
            if var not in self.calls:
                continue
            operand = leaves(self.calls[var])[1 + slot]
            for scale, factor in factors:
                operand = ops.multiply(operand, self.spread(scale, factor))
            self.calls[var] = _with_leaf(self.calls[var], slot, operand)
            self.scaled[var, slot] = operand, np.ones(())
        return Normalizer(names_in(self.fn)).function(super().rebuilt())

    def spread(self, scale: Any, factor: Scale) -> Expr:
        """The constant `scale` in the shape of `factor`, if it holds the same numbers."""
        array: Any = array_of(scale)
        shape = factor.shape[-_rank(factor) :]
        same = array.size == factor.size
        if not same or not np.allclose(np.ravel(array), np.ravel(factor), rtol=1e-12, atol=0):
            constant = constant_like(scale, factor.reshape(shape))
            assert constant is not None
            return constant
        ones = [k for k, d in enumerate(array.shape) if d == 1] if factor.size > 1 else []
        if ones and id(scale) not in self.vectors:
            self.vectors[id(scale)] = ops.squeeze(scale, axis=ones)
        vector: Expr = self.vectors.get(id(scale), scale)
        axes = [k for k, d in enumerate(shape) if d == 1] if factor.size > 1 else []
        return ops.expand_dims(vector, axis=axes) if axes else vector


def _rank(factor: Scale) -> int:
    """How many axes `factor` has but those of size 1 in front."""
    return max(len(factor.shape) - next((k for k, d in enumerate(factor.shape) if d > 1), 0), 1)


_RANGE = {
    "float16": (6.104e-05, 65504.0),
    "float32": (1.176e-38, 3.4e38),
    "bfloat16": (1.176e-38, 3.38e38),
    "float64": (2.226e-308, 1.79e308),
}
"""By dtype: the least magnitude that has all digits, and the largest."""
# How many elements of a constant are scaled at once: a cache holds them until they are checked.
_PIECE = 1 << 16


def array_of(value: Any) -> np.ndarray | None:
    """The numbers of a constant; None if it is none, or of another device."""
    if isinstance(value, PrimValue) and isinstance(value.value, FloatImm):
        return np.asarray(value.value.value)
    if not isinstance(value, Constant) or not is_constant(value):
        return None
    info: Any = value.struct_info
    return from_storage(value.data.numpy(), str(info.dtype))


def constant_like(first: Any, value: np.ndarray, factor: Any = 1.0) -> Constant | None:
    """A constant of the dtype of `first`: `value * factor`, in double precision, rounded once. None
    if that is not finite there, or loses digits that `value` has.
    """
    if not _fits(first, value, factor):
        return None
    dtype = str(first.struct_info.dtype)
    scaled = empty(np.broadcast_shapes(np.shape(value), np.shape(factor)), dtype)
    as_bits = DataType(dtype).is_bits
    new = np.empty(scaled.shape) if as_bits else scaled.numpy()
    _multiply(value, factor, new)
    if as_bits:
        scaled.array[...] = to_storage(new, dtype)
    return Constant(scaled, span=first.span)


def _scaled_in_place(weight: Constant, factor: Scale) -> Constant:
    """`constant_like` in the memory of `weight`, which is gone then."""
    data = weight.data
    factor = factor.reshape(factor.shape[max(0, factor.ndim - len(data.shape)) :])
    _multiply(data.array, factor, data.array)
    return Constant(wrap_unchecked(data.array, data.dtype, data.device), span=weight.span)


def _multiply(value: np.ndarray, factor: Any, out: np.ndarray) -> None:
    def fill(value: np.ndarray, factor: np.ndarray, out: np.ndarray) -> None:
        np.multiply(value, factor, out, dtype="float64", casting="same_kind")

    _piecewise(fill, value, factor, out)


def _fits(first: Any, value: np.ndarray, factor: Any) -> bool:
    """Whether `value * factor` is finite in the dtype of `first` and loses no digits of `value`."""
    least, most = _RANGE[str(first.struct_info.dtype)]
    refused = []

    def look(value: np.ndarray, factor: np.ndarray) -> None:
        sizes, scales = np.abs(value), np.abs(factor)
        bounds = [float(f(sizes)) * float(f(scales)) for f in (np.min, np.max)]
        if least <= bounds[0] and bounds[1] <= most:
            return
        magnitude = np.multiply(sizes, scales, dtype="float64")
        lost = (magnitude < least) & (sizes >= least) & (scales != 0)
        if not magnitude.max() <= most or lost.any():
            refused.append(True)

    _piecewise(look, value, factor)
    return not refused


def _piecewise(work: Callable[..., object], *arrays: Any) -> None:
    """Do `work` on the same piece of each of `arrays`, which are broadcast, by several threads."""
    shape = np.broadcast_shapes(*map(np.shape, arrays))
    size = math.prod(shape)
    places: list[Any] = [...] if size else []
    if size > _PIECE:
        rows = max(1, _PIECE * shape[0] // size)
        places = [slice(k, k + rows) for k in range(0, shape[0], rows)]
    whole = [a if np.shape(a) == shape else np.broadcast_to(a, shape) for a in arrays]

    def part(place: Any) -> None:
        # Of numpy before 2, threads do not share what errors are to do.
        with np.errstate(all="ignore"):
            work(*(np.asarray(a)[place] for a in whole))

    side_by_side(part, places)


def _least(scale: Scale) -> Scale:
    """`scale` of size 1 along the axes that it is the same along."""
    for axis in range(scale.ndim):
        first = scale.take([0], axis) if scale.shape[axis] else scale
        if (scale == first).all():
            scale = first
    return scale


def _with_leaf(call: Call, slot: int, new: Any) -> Call:
    """`call` with another leaf in a slot."""
    numbers = count()
    changed: Call = map_leaves(call, lambda leaf: new if next(numbers) == slot else leaf)
    return changed
