"""FuseAttention: attention that is written in parts becomes one kernel, of which the scores are
never in memory as a whole (`te/attention.py`).

    lv = R.matmul(q, k)                      gv = R.call_tir(cls.attention, (q, k, mask, v), ...)
    lv1 = R.divide(lv, R.const(8.0))
    lv2 = R.add(lv1, mask)
    lv3 = R.nn.softmax(lv2, axis=-1)
    gv = R.matmul(lv3, v)

Any operators may stand between the first product and softmax that work element by element: scales,
masks, biases, caps. Where keys and values are transposed, broadcast or repeated they are read as
they lie in memory. A mask that hides what comes after a position is known as such, and what it
hides is not computed.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import inf, isfinite, nan
from typing import Any

import numpy as np

from ...arith import Analyzer
from ...base import DataType, NamedTuple, PassError, RelaxvmError, decided, declined, in_function
from ...ir import (
    Add,
    FloatImm,
    FloorDiv,
    IntImm,
    IRModule,
    Node,
    Not,
    Op,
    PassContext,
    PrimExpr,
    Range,
    Select,
    cast,
    const,
    is_const,
    substitute,
    walk,
)
from ...ir import Var as TirVar
from ...ir.transform import module_pass
from ...ir.walk import transform
from ...te import ComputeOp, ProducerLoad, Tensor, attention, compute, placeholder
from ..analysis import maybe_written_vars
from ..block_builder import BlockBuilder
from ..derive import dims_equal, tensor_dims
from ..dpl import DFPattern, is_op, rewrite_call, wildcard
from ..emit_te import call_te_inputs
from ..expr import Call, Constant, Function, PrimValue, TupleGetItem, Var
from ..flow import bindings_of, events
from ..formulas import Formulas
from ..known_ops import ops_named
from ..op import call_tir
from ..op.lower import wide_dtype
from ..op.names import ops
from ..struct_info import Expr, ShapeExpr, TensorStructInfo
from .value_keys import ValueKeys

_MOVES = ops_named("permute_dims expand_dims squeeze reshape broadcast_to repeat")
_MAKES = ops_named("arange full zeros ones tril triu")
_ELEMENTWISE = ops_named(
    "add subtract multiply divide maximum minimum negative where clip tanh astype equal not_equal "
    "less less_equal greater greater_equal logical_and logical_or logical_not"
)
_SEEN_THROUGH = _MAKES | _ELEMENTWISE | _MOVES
_AFTER_SOFTMAX = ops_named("astype nn.dropout")
_SCALES = ops_named("multiply divide")
_SOFTMAX, _PRODUCT, _DIVIDE = (Op.get(f"relax.{n}") for n in ("nn.softmax", "matmul", "divide"))
_TENSORS = (Var, Constant)
_STEPS = 8
# Weights of what is this low are 0 beside any other; the same as minus infinity.
_LOW = -1e9


@module_pass(opt_level=0, numerics="reassociates")
def FuseAttention(mod: IRModule, ctx: PassContext) -> IRModule:
    """Make one loop function of each softmax(f(q k^T)) v of known rank, f element by element, whose
    scores and weights nothing else reads.

    Scores are added up, and weights divided by their sum, in another order than before.
    """
    candidates = {gv: fn for gv, fn in mod.items() if isinstance(fn, Function) and _has_softmax(fn)}
    if not candidates:
        return mod
    builder, changed = BlockBuilder(mod), {}
    kernels = _Kernels(builder)
    weights, values = wildcard(), wildcard()
    product = is_op("relax.matmul")(weights, values)
    for gv, fn in candidates.items():
        new = fn
        with in_function(gv):
            for pattern in (is_op("relax.permute_dims")(product), product):
                new = rewrite_call(pattern, _Parts(new, mod, kernels, product).fused, new)
        if new is not fn:
            changed[gv] = new
    for gv, new in changed.items():
        builder.update_func(gv, new)
    return builder.get() if changed else mod


def _has_softmax(fn: Function) -> bool:
    return any(isinstance(b.value, Call) and b.value.op is _SOFTMAX for b in bindings_of(fn))


class _Parts:
    """Finds the parts of attention in a function."""

    def __init__(self, fn: Function, mod: IRModule, kernels: _Kernels, product: DFPattern) -> None:
        self.kernels, self.product = kernels, product
        self.value: dict[Any, Any] = {b.var: b.value for b in bindings_of(fn)}
        # How many bindings and results read a variable.
        self.readers = Counter(v for e in events(fn, inner=True) for v in set(e.reads()))
        self.written = maybe_written_vars(fn, mod)
        self._keys = ValueKeys()

    def fused(self, call: Any, matched: Any) -> Expr | None:
        """What stands for `call`, the second product or that with rows before heads."""
        turned = call.op is not _PRODUCT
        second = matched[self.product] if turned else call
        between = [call.args[0]] if turned else []
        softmax = self._softmax(second.args[0], between)
        path = None if softmax is None else self._path(softmax.args[0], _STEPS)
        if path is None:
            return None
        if turned and list(call.attrs["axes"] or ()) != [0, 2, 1, 3]:
            return None
        first = self.value[path[-1]]
        for var in (*between, *path):
            if self.readers[var] > 1:
                text = "{} and {} not fused to attention: {} is read elsewhere, too"
                declined(text, first, second, var)
                return None
        try:
            kernel_call = _Attention(self, between, path, second).lowered(call)
        except RelaxvmError as error:
            declined("{} and {} not fused to attention: {}", first, second, str(error))
            return None
        decided("{} fused with {} to attention", first, second)
        return kernel_call

    def _softmax(self, weights: Expr, between: list[Any]) -> Any:
        """The softmax over the last axis that `weights` are of; variables in between are noted."""
        for _ in range(_STEPS):
            between.append(weights)
            value = self.value.get(weights)
            if isinstance(value, TupleGetItem) and value.index == 0:
                value = value.tuple_value
            elif not isinstance(value, Call):
                return None
            elif value.op is _SOFTMAX:
                dims = tensor_dims(value)
                return value if dims and value.attrs["axis"] in (-1, len(dims) - 1) else None
            elif value.op in _AFTER_SOFTMAX:
                value = value.args[0]
            else:
                return None
            weights = value
        return None

    def _path(self, x: Any, steps: int) -> list[Any] | None:
        """The variables from scores to the product that they are made of element by element."""
        value = self.value.get(x)
        if not isinstance(value, Call) or not steps:
            return None
        if value.op is _PRODUCT:
            return [x]
        if value.op not in _ELEMENTWISE:
            return None
        for arg in dict.fromkeys(value.args):
            if isinstance(arg, Var) and len(tensor_dims(arg) or ()) >= 2:
                rest = self._path(arg, steps - 1)
                if rest is not None:
                    return [x, *rest]
        return None

    def likeness(self, path: list[Any], inputs: Sequence[Any]) -> tuple[Any, dict[Any, Any]]:
        """What is the same for parts of which all formulas are, as long as those parts live: the
        values that formulas may read, and the calls that they see through.
        """
        keys, seen = self._keys, dict[Any, Any]()
        # First what the scores are made of up to the product, then what only moves its inputs.
        for roots, through in ((path, _SEEN_THROUGH), (inputs, _MOVES)):
            # Each by itself: one ends where the other may go on.
            todo, entered = [(x, 0) for x in roots], set[Any]()
            for x, depth in todo:
                if x in entered:
                    continue
                entered.add(x)
                seen.setdefault(x, None)
                if depth < 2 * _STEPS and isinstance(call := self.value.get(x), Call):
                    if call.op in through:
                        seen[x] = call
                        todo += [(a, depth + 1) for a in call.args if isinstance(a, _TENSORS)]
        keys.numbers = {x: number for number, x in enumerate(seen)}
        return (
            tuple(keys.numbers[x] for x in inputs),
            *[
                (
                    keys.leaf(x) if isinstance(x, Constant) else id(x.struct_info),
                    None if value is None else keys.call(value),
                    x in self.written,
                )
                for x, value in seen.items()
            ],
        ), seen

    def is_of_positions(self, x: Any, steps: int = _STEPS) -> bool:
        """Whether the elements of `x` follow from where they stand."""
        value = self.value.get(x)
        return (
            isinstance(value, Call)
            and steps > 0
            and value.op in _SEEN_THROUGH
            and all(
                self.is_of_positions(a, steps - 1) if isinstance(a, Var) else _is_number(a)
                for a in value.args
            )
        )


def _is_number(x: Any) -> bool:
    """Whether `x` is no tensor but a number, or what says a shape or dtype."""
    return not isinstance(x, Constant) or not x.data.shape


# -- loop functions --------------------------------------------------------------------------------

# Indices in the formulas of elements: (batch, head, query, key, in a key, in a value).
_B, _H, _I, _J, _D, _E = (TirVar(name, "int64") for name in "bhijde")


@functools.cache
def _made(dtype: DataType) -> TirVar:
    """What stands for the product of a query and a key in the formula of a score."""
    return TirVar("made", dtype)


class _View(NamedTuple):
    """A tensor whose elements stand elsewhere."""

    shape: tuple[PrimExpr, ...]
    dtype: Any
    at: Callable[..., PrimExpr]

    def __call__(self, *index: PrimExpr) -> PrimExpr:
        return self.at(*index)


class _Formula(NamedTuple):
    """What decides a loop function.

    query, key, value  elements of the inputs, at the indices above
    score        of the product `_made`; None: that product
    seen         whether a key counts for a query; None: all do
    sizes        (batch, heads, queries, keys, in a key, in a value, heads of keys)
    group        how many heads read one head of keys
    factor       what products are multiplied by
    """

    query: PrimExpr
    key: PrimExpr
    value: PrimExpr
    score: PrimExpr | None
    seen: PrimExpr | None
    sizes: tuple[PrimExpr, ...]
    group: PrimExpr
    factor: float
    dtype: DataType
    heads_first: bool

    @property
    def identity(self) -> tuple[Any, ...]:
        """What is equal for equal ones; expressions are interned."""
        parts = [p for x in self for p in (x if isinstance(x, tuple) else (x,))]
        return tuple([id(p) if isinstance(p, Node) else p for p in parts])

    def written(self, inputs: Sequence[Tensor], outer: Sequence[Tensor]) -> Tensor:
        """The formula of all, with tensors and symbols `outer` in the place of `inputs`."""
        own: dict[Any, Any] = dict(zip(inputs, outer))
        for old, new in zip(inputs, outer):
            own.update((n, m) for n, m in zip(old.shape, new.shape) if isinstance(n, TirVar))
        batch, heads, rows, columns, inner, width, few = (_renamed(n, own) for n in self.sizes)
        wide = wide_dtype(self.dtype)

        def view(x: PrimExpr, shape: Any, *index: TirVar) -> _View:
            return _View(
                shape,
                self.dtype,
                lambda *indices: _renamed(x, {**own, **dict(zip(index, indices))}),
            )

        def score(*index: PrimExpr) -> PrimExpr:
            *place, product = index
            table = {**own, **dict(zip((_B, _H, _I, _J), place))}
            table[_made(self.dtype)] = cast(self.dtype, product)
            shown = cast(wide, _renamed(self.score, table))
            if self.seen is None:
                return shown
            return Select(_renamed(self.seen, table), shown, const(-inf, wide))

        return attention(
            view(self.query, (batch, rows, heads, inner), _B, _I, _H, _D),
            view(self.key, (batch, columns, few, inner), _B, _J, _H, _D),
            view(self.value, (batch, columns, few, width), _B, _J, _H, _E),
            factor=const(self.factor, wide),
            group=_renamed(self.group, own),
            score=None if self.score is None else score,
            hidden=nan,
            heads_first=self.heads_first,
        )


class _Kernels:
    """The loop functions of a module, one for equal formulas.

    alike  by likeness: a formula, where its tensors are among the parts, and those parts
    """

    def __init__(self, builder: BlockBuilder) -> None:
        self.builder = builder
        self.inputs: dict[Any, Tensor] = {}
        self.alike: dict[Any, tuple[_Formula, list[tuple[int, Tensor]], Any]] = {}
        self._known: dict[Any, Any] = {}

    def input(self, number: int, dims: Sequence[Any], dtype: DataType, name: str) -> Tensor:
        """The same tensor for equal arguments, so that formulas of it are the same."""
        key = (number, tuple(map(id, dims)), dtype)
        if key not in self.inputs:
            self.inputs[key] = placeholder(dims, dtype, name)
        return self.inputs[key]

    def called(self, formula: _Formula, inputs: dict[Any, Tensor], call: Call) -> Expr:
        """A call of the loop function of `formula` on values, given with the tensors for them."""
        key = formula.identity
        if key not in self._known:
            tensors = tuple(inputs.values())
            func, args, info, symbols = call_te_inputs(
                lambda *outer: formula.written(tensors, outer), tuple(inputs), {}
            )
            gv = self.builder.add_func(func, "attention")
            # With the formula: the identities in the key are its parts' as long as they live.
            self._known[key] = gv, args[len(inputs) :], info, symbols, formula
        gv, scalars, info, symbols, _ = self._known[key]
        as_is = len(_dims(call)) == 4
        info = call.struct_info if as_is else info
        kernel = call_tir(gv, [*inputs, *scalars], info, symbols or None, span=call.span)
        return kernel if as_is else ops.reshape(kernel, ShapeExpr(_dims(call)))


# -- from graph to formulas ------------------------------------------------------------------------


class _Attention:
    """One attention, with the symbols of the graph."""

    def __init__(self, parts: _Parts, between: list[Any], path: list[Any], second: Call) -> None:
        self.parts, self.path = parts, path
        self.formulas = Formulas()
        # What is read: {value: (what stands for it in formulas, its tensor)}
        self.leaves: dict[Any, tuple[Var, Tensor]] = {}
        first = parts.value[path[-1]]
        self.q, self.k, self.v = first.args[0], first.args[1], second.args[1]
        *lead, rows, columns = _dims(path[0])
        if not _same(_dims(path[-1]), (*lead, rows, columns)):
            raise PassError("what is added to the product broadcasts it")
        if not _same(_dims(second)[:-2], lead) or len(_dims(second)) != len(lead) + 2:
            raise PassError("values are of more batches than scores")
        infos: list[Any] = [x.struct_info for x in (self.q, self.k, self.v, path[-1], second)]
        self.dtype: DataType = infos[0].dtype
        kinds = {str(info.dtype) for info in infos}
        if len(kinds) > 1:
            raise PassError(f"the dtypes differ: {', '.join(sorted(kinds))}")
        if not self.dtype.is_float or len(lead) > 3:
            raise PassError("wanted floats of at most three dimensions before the matrices")
        for var in between:
            dtype = getattr(var.struct_info, "dtype", self.dtype)
            if dtype is not self.dtype and not (dtype.is_float and dtype.bits > self.dtype.bits):
                raise PassError(f"weights are rounded to {dtype} in between")
        one = const(1, "int64")
        batch = lead[0] if lead else one
        heads = lead[1] if len(lead) == 2 else lead[1] * lead[2] if len(lead) == 3 else one
        self.lead = lead
        self.sizes = (batch, heads, rows, columns, _dims(self.q)[-1], _dims(self.v)[-1])

    @functools.cached_property
    def analyzer(self) -> Analyzer:
        """Knows the ranges of the indices."""
        analyzer = Analyzer(wrap=False)
        for var, size in zip((_B, _H, _I, _J, _D, _E), self.sizes):
            analyzer.bind(var, Range.from_min_extent(const(0, "int64"), size))
        return analyzer

    def of_lead(self, dims: Sequence[Any]) -> list[PrimExpr]:
        """The indices before a matrix of an operand with these dimensions before its matrices."""
        split: tuple[PrimExpr, ...] = (_B, _H)[: len(self.lead)]
        if len(self.lead) > 2:
            split = (_B, _H // self.lead[-1], _H % self.lead[-1])
        own: list[PrimExpr] = []
        for dim, size, i in zip(reversed(dims), reversed(self.lead), reversed(split)):
            if not is_const(dim, 1) and not _same((dim,), (size,)):
                raise PassError(f"sizes {dim} and {size} are not known to be equal")
            own.insert(0, const(0, "int64") if is_const(dim, 1) else i)
        return own

    def leaf(self, x: Any) -> Tensor:
        """The tensor of a variable or constant."""
        if x not in self.leaves:
            if isinstance(x, Var) and x in self.parts.written:
                raise PassError(f"{x.name_hint} may be written in between")
            info = x.struct_info
            name = getattr(x, "name_hint", "mask")
            tensor = self.parts.kernels.input(len(self.leaves), _dims(x), info.dtype, name)
            after = _after_a_diagonal(x)
            if after is not None:
                tensor = compute(tensor.shape, after, "mask")
            var = Var("leaf", TensorStructInfo(info.dims, info.dtype))
            self.formulas.tensors[var] = tensor
            self.leaves[x] = var, tensor
        return self.leaves[x][1]

    def tensor(self, x: Any, inside: Callable[[Any], bool]) -> Tensor:
        """The formula of `x`, with the calls that are `inside` taken as a part of it."""
        tensor: Tensor = self.formulas.tensor(self.formulas.value(self._nested(x, inside)))
        return tensor

    def _nested(self, e: Any, inside: Callable[[Any], bool]) -> Any:
        if e not in self.leaves and isinstance(e, Var) and inside(e):
            call = self.parts.value[e]
            args = tuple(self._nested(a, inside) for a in call.args)
            return Call(call.op, args, call.attrs, call.sinfo_args, None, call.span)
        if isinstance(e, Var) or not _is_number(e):
            self.leaf(e)
            return self.leaves[e][0]
        return e

    def view(self, x: Any, *matrix: PrimExpr) -> PrimExpr:
        """The element of `x` in its matrix, read from where it was moved from, if that is plain."""
        if len(_dims(x)) < 2:
            raise PassError("vectors are multiplied")
        index = [*self.of_lead(_dims(x)[:-2]), *matrix]
        moved = [x]
        while len(moved) < _STEPS and isinstance(value := self.parts.value.get(moved[-1]), Call):
            if value.op not in _MOVES or not isinstance(value.args[0], Var):
                break
            moved.append(value.args[0])
        while True:
            source = moved.pop()
            if source in self.parts.written and moved:
                continue
            element = self.analyzer.simplify(_element(self.tensor(x, moved.__contains__), index))
            if not moved or (isinstance(element, ProducerLoad) and _is_plain(element.indices)):
                return element

    def score(self, path: list[Any]) -> tuple[PrimExpr | None, PrimExpr | None]:
        """Which keys count, and the score of those, made of the product along `path`."""
        if len(path) < 2:
            return None, None
        product = path[-1]
        stand_for, name = _made(self.dtype), Var("product", product.struct_info)
        stand_in = placeholder(_dims(product), self.dtype, "product")
        self.formulas.tensors[name] = stand_in
        self.leaves[product] = name, stand_in
        inside = set(path)
        tensor = self.tensor(path[0], lambda x: x in inside or self.parts.is_of_positions(x))
        del self.leaves[product]
        score = transform(
            _element(tensor, [*self.of_lead(self.lead), _I, _J]),
            None,
            pre=lambda n: stand_for if getattr(n, "producer", None) is stand_in else None,
        )
        return _masked(self.analyzer.simplify(score), self.analyzer)

    def lowered(self, call: Call) -> Expr:
        """A call of the loop function that stands for `call`."""
        heads_first = call.op is _PRODUCT
        alike = self.parts.kernels.alike
        likeness, seen = self.parts.likeness(self.path, (self.q, self.k, self.v))
        values = list(seen)
        if (heads_first, likeness) not in alike:
            formula, tensors = self._formula(heads_first)
            # In the order of the formula's, which others may have that see other values.
            places = [(values.index(x), tensor) for x, tensor in tensors.items()]
            alike[heads_first, likeness] = formula, places, seen
        formula, places, _ = alike[heads_first, likeness]
        return self.parts.kernels.called(formula, {values[i]: t for i, t in places}, call)

    def _formula(self, heads_first: bool) -> tuple[_Formula, dict[Any, Tensor]]:
        """What decides the loop function, and what it reads."""
        query, key = self.view(self.q, _I, _D), self.view(self.k, _D, _J)
        value, heads = self.view(self.v, _J, _E), self.sizes[1]
        groups = [_group(x, heads) for x in (key, value)]
        group, few = const(1, "int64"), heads
        if groups[0] is groups[1] and not is_const(groups[0], 1):
            group, few = groups[0], self.analyzer.simplify(heads // groups[0])
            each = Analyzer(wrap=False)
            each.bind(_H, Range.from_min_extent(const(0, "int64"), few))
            key, value = (each.simplify(substitute(x, {_H: _H * group})) for x in (key, value))
        number = None if len(self.path) < 2 else self.scale(*self.path[-2:])
        seen, score = self.score(self.path if number is None else self.path[:-1])
        formula = _Formula(
            query,
            key,
            value,
            score,
            seen,
            (*self.sizes, few),
            group,
            1.0 if number is None else number,
            self.dtype,
            heads_first,
        )
        elements = [x for x in (query, key, value, score, seen) if x is not None]
        used = {n.producer for x in elements for n in walk(x) if isinstance(n, ProducerLoad)}
        return formula, {x: tensor for x, (_, tensor) in self.leaves.items() if tensor in used}

    def scale(self, x: Any, product: Any) -> float | None:
        """The number that `x` is a multiple of `product` by, where that is of no other rounding
        than that of queries; else None.
        """
        call = self.parts.value[x]
        if call.op not in _SCALES or wide_dtype(self.dtype) is not self.dtype:
            return None
        other = call.args[1 if call.args[0] is product else 0]
        if other is product or (call.op is _DIVIDE and call.args[0] is not product):
            return None
        if isinstance(other, Constant) and not other.data.shape:
            number = float(other.data.numpy())
        elif isinstance(other, PrimValue) and isinstance(other.value, (FloatImm, IntImm)):
            number = float(other.value.value)
        else:
            return None
        if number == 0 or not isfinite(number) or not isfinite(1 / number):
            return None
        return 1 / number if call.op is _DIVIDE else number


# -- formulas --------------------------------------------------------------------------------------


def _dims(x: Expr) -> tuple[Any, ...]:
    dims = tensor_dims(x)
    if dims is None:
        raise PassError("a shape is not known")
    return dims


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and dims_equal(a, b) is True


def _renamed(e: Any, table: dict[Any, Any]) -> Any:
    return transform(
        e, None, pre=lambda n: table.get(n) if isinstance(n, (Tensor, TirVar)) else None
    )


def _element(tensor: Tensor, index: Sequence[PrimExpr]) -> PrimExpr:
    """The formula of an element, of what is given from outside."""
    op = tensor.op
    if not isinstance(op, ComputeOp):
        return tensor(*index)
    if op.reduce_axis:
        raise PassError("sums stand between the product and softmax")
    body = substitute(op.body[tensor.value_index], dict(zip([a.var for a in op.axis], index)))

    def pre(n: Node) -> Node | None:
        return _element(n.producer, n.indices) if isinstance(n, ProducerLoad) else None

    return transform(body, None, pre=pre)


def _is_plain(indices: Sequence[PrimExpr]) -> bool:
    """Whether each index is an axis, a fixed place, or an axis of which several share one."""
    return all(
        isinstance(i, (TirVar, IntImm))
        or (isinstance(i, FloorDiv) and isinstance(i.a, TirVar) and isinstance(i.b, IntImm))
        for i in indices
    )


def _group(element: PrimExpr, heads: PrimExpr) -> PrimExpr:
    """How many heads in a row read the same keys, as far as that is plain."""
    indices = [n.indices for n in walk(element) if isinstance(n, ProducerLoad)]
    uses = [x for each in indices for x in each if any(n is _H for n in walk(x))]
    if not uses:
        return heads
    (first, *rest) = uses
    if not rest and isinstance(first, FloorDiv) and first.a is _H and isinstance(first.b, IntImm):
        return first.b
    return const(1, "int64")


# -- masks -----------------------------------------------------------------------------------------


def _after_a_diagonal(x: Any) -> Callable[..., PrimExpr] | None:
    """The formula of a constant that has one number up to a diagonal, and one after it; None if it
    is no such.
    """
    if not isinstance(x, Constant) or len(x.data.shape) < 2:
        return None
    info: Any = x.struct_info
    array = x.data.numpy()
    rows, columns = array.shape[-2:]
    flat = array.reshape(-1, rows, columns)
    if len(flat) != 1 or rows < 2 or columns < 2:
        return None
    first = flat[0][-1, 0]
    seen = (flat[0] == first).sum(axis=1)
    shift = int(seen[-1]) - rows
    want = np.clip(np.arange(rows) + shift + 1, 0, columns)
    after = np.arange(columns)[None, :] >= want[:, None]
    if not after.any() or after.all():
        return None
    last = flat[0][after][0]
    if not np.array_equal(flat[0], np.where(after, last, first)):
        return None
    shown, low = (const(n.item(), info.dtype) for n in (first, last))
    return lambda *index: Select(index[-1] <= index[-2] + shift, shown, low)


def _masked(score: PrimExpr, analyzer: Analyzer) -> tuple[PrimExpr | None, PrimExpr]:
    """Which keys count for a query, as far as a mask over positions in `score` says so, and the
    score of those; None if nothing is known.
    """
    for mask, other in _masks_in(score):
        for seen, shown, low in (
            (mask.condition, mask.true_value, mask.false_value),
            (Not(mask.condition), mask.false_value, mask.true_value),
        ):
            if not isinstance(low, FloatImm) or not _is_low(low):
                continue
            seen = analyzer.simplify(seen)
            if any(isinstance(n, ProducerLoad) for n in walk(seen)):
                continue
            # Where all keys of a query are as low as one another, none of them is hidden: neither
            # by positions, of another mask either, nor by what is read.
            first = substitute(seen, {_J: const(0, "int64")})
            rest = [shown] if other is None else [shown, other]
            lower = any(isinstance(n, ProducerLoad) or _is_low(n) for x in rest for n in walk(x))
            if low.value == -inf or (not lower and analyzer.can_prove(first)):
                if other is None:
                    return seen, shown
                added = isinstance(shown, FloatImm) and shown.value == 0
                return seen, other if added else other + shown
    return None, score


def _is_low(x: Node) -> bool:
    return isinstance(x, FloatImm) and x.value <= max(_LOW, x.dtype.min_value)


def _masks_in(score: PrimExpr) -> Iterator[tuple[Select, PrimExpr | None]]:
    """Choices that `score` is, or that are added to what else it is."""
    if isinstance(score, Select):
        yield score, None
    elif isinstance(score, Add):
        for mask, other in ((score.a, score.b), (score.b, score.a)):
            if isinstance(mask, Select):
                yield mask, other
