"""tree_ensemble: what the leaves of decision trees say of each row, summed up."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import tir
from ...base import StructInfoError, VMValueError
from ...ir import IntImm, Max, Min, Not, PrimExpr, Select, cast, const
from ...tir import Buffer, ForKind, IfThenElse, Stmt, seq
from ..derive import dims_equal
from ..expr import Call
from ..rules import LowerBuilder
from ..struct_info import Expr, StructInfo, TensorStructInfo
from .infer import FLOAT, same_dtype, tensor, tensor_of, want_word
from .loops import Names, call_loops, call_sums, for_each, load, store
from .record import missing, op
from .sizes import ONE, want_at_most, want_equal

EQUAL, MISSING = 1, 2
"""Bits of `rules`: whose feature equals the threshold, not whose is at most that, goes to the true
child; and so does whose feature is NaN."""

_LANES = 16
"""Trees that are walked at once: each step waits for memory, and so many of them wait together."""
_STEPS = 8
"""Steps after which it is asked whether any of the lanes has still to walk."""

_EMPTY = {"sum": 0.0, "min": float("inf"), "max": float("-inf")}
_COMBINE: dict[str, Callable[[Any, Any], PrimExpr]] = {
    "sum": lambda a, b: a + b,
    "min": Min,
    "max": Max,
}
_AT: dict[str, Any] = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def _clipped(index: Any, size: int) -> Any:
    return np.minimum(index.astype("uint32"), size - 1)


def _numpy(
    x: Any,
    children: Any,
    features: Any,
    thresholds: Any,
    leaves: Any,
    roots: Any,
    depths: Any,
    targets: Any,
    values: Any,
    rules: Any = None,
    *,
    num_targets: int,
    mode: str = "sum",
) -> Any:
    for name, size in (("x", x.shape[1]), ("children", len(children)), ("values", len(values))):
        if size == 0:
            raise VMValueError(f"{name}: wanted one at least, got none")
    wide = np.float64 if x.dtype == np.float64 else np.float32
    result = np.full((len(x), num_targets), _EMPTY[mode], wide)
    rows, columns = np.arange(len(x)), np.arange(values.shape[1])
    for root, depth in zip(roots, depths):
        node = np.broadcast_to(_clipped(root, len(children)), len(x))
        for _ in range(min(int(depth), len(children))):
            value, threshold = x[rows, _clipped(features[node], x.shape[1])], thresholds[node]
            true = value <= threshold
            if rules is not None:
                true = np.where(rules[node] & EQUAL, value == threshold, true)
                true |= (rules[node] & MISSING).astype(bool) & np.isnan(value)
            before, node = node, _clipped(children[node] + true, len(children))
            if (before == node).all():
                break
        leaf = _clipped(leaves[node], len(values))
        first = _clipped(targets[leaf], num_targets - len(columns) + 1)
        place = rows[:, None], np.add.outer(first, columns)
        _AT[mode].at(result, place, values[leaf].astype(wide))
    return result.astype(x.dtype)


def _within(index: PrimExpr, size: PrimExpr) -> PrimExpr:
    """`index`, or the last place of an axis of `size` where there is none such: negative ones are
    beyond all as well.
    """
    return cast("int32", Min(cast("uint32", index), cast("uint32", size - 1)))


def _walk(
    x: Buffer,
    children: Buffer,
    features: Buffer,
    thresholds: Buffer,
    leaves: Buffer,
    roots: Buffer,
    depths: Buffer,
    targets: Buffer,
    values: Buffer,
    rules: Buffer | None = None,
    *,
    out: list[Buffer],
    scratch: list[Buffer],
    mode: str,
) -> Stmt:
    """Combine what the leaves say with what is in `out`. Blocks of rows in parallel; for each, as
    many trees as there are lanes, for these row after row, so that the trees stay in the cache.
    """
    (result,), (node,) = out, scratch
    count, trees, nodes = x.shape[0], roots.shape[0], children.shape[0]
    block = max(64, 32768 // trees.value) if isinstance(trees, IntImm) and trees.value else 64
    lanes = node.shape[0]
    assert isinstance(lanes, IntImm)
    each = [const(k, "int64") for k in range(lanes.value)]

    def each_lane(body: Callable[[PrimExpr], Stmt]) -> Stmt:
        return for_each([lanes], body, "lane", ForKind.UNROLLED)

    def step(row: PrimExpr, lane: PrimExpr) -> Stmt:
        names = Names()
        place = names.of(load(node, lane))
        value = names.of(load(x, row, _within(load(features, place), x.shape[1])))
        threshold = names.of(load(thresholds, place))
        true = cast("int32", value <= threshold)
        if rules is not None:
            rule = names.of(cast("int32", load(rules, place)))
            equal = cast("int32", value.equal(threshold))
            missing = cast("int32", tir.isnan(value)) & (rule >> 1)
            true = Select((rule & EQUAL).equal(0), true, equal) | missing
        return names.within(store(node, _within(load(children, place) + true, nodes), lane))

    def add(row: PrimExpr, lane: PrimExpr, tree: PrimExpr) -> Stmt:
        names = Names()
        leaf = names.of(_within(load(leaves, load(node, lane)), values.shape[0]))
        first: PrimExpr = const(0, "int32")
        if dims_equal(values.shape[1:], result.shape[1:]) is not True:
            first = _within(load(targets, leaf), result.shape[1] - values.shape[1] + 1)
        first = names.of(cast("int64", first))

        def combine(k: PrimExpr) -> Stmt:
            value = cast(result.dtype, load(values, leaf, k))
            old = load(result, row, first + k)
            return store(result, _COMBINE[mode](old, value), row, first + k)

        return IfThenElse(tree < trees, names.within(for_each([values.shape[1]], combine, "k")))

    def group(rows: PrimExpr, begin: PrimExpr, number: PrimExpr) -> Stmt:
        """Of the trees of all lanes."""

        def tree(lane: PrimExpr) -> PrimExpr:
            return Min(number * lanes + lane, trees - 1)

        names = Names("depth")
        deepest = functools.reduce(Max, [load(depths, tree(k)) for k in each])
        depth = names.of(Min(cast("int64", deepest), nodes))

        def one(number_of_row: PrimExpr) -> Stmt:
            row = begin + number_of_row

            def steps(part: PrimExpr) -> Stmt:
                places = [load(node, k) for k in each]
                at_rest = [load(children, place).equal(place) for place in places]
                left = Min(depth - part * _STEPS, const(_STEPS, "int64"))
                walk = for_each([left], lambda _: each_lane(lambda k: step(row, k)), "step")
                return IfThenElse(Not(tir.all(*at_rest)), walk)

            start = each_lane(lambda k: store(node, _within(load(roots, tree(k)), nodes), k))
            walk = for_each([tir.floordiv(depth + (_STEPS - 1), _STEPS)], steps, "part")
            return seq(start, walk, each_lane(lambda k: add(row, k, number * lanes + k)))

        return names.within(for_each([rows], one, "row"))

    def of_block(number: PrimExpr) -> Stmt:
        begin = number * block
        rows = Min(count - begin, const(block, "int64"))
        groups = tir.floordiv(trees + (lanes - 1), lanes)
        return for_each([groups], lambda number: group(rows, begin, number), "group")

    blocks = tir.floordiv(count + (block - 1), block)
    return for_each([blocks], of_block, "block", ForKind.PARALLEL)


def _lower(builder: LowerBuilder, call: Call) -> Expr:
    mode = call.attrs["mode"]
    trees = tensor_of(call.args[5]).dims[0]
    lanes = max(1, min(_LANES, trees.value)) if isinstance(trees, IntImm) else _LANES
    nodes = [((const(lanes, "int64"),), "int32")]
    walk = functools.partial(_walk, mode=mode)
    if mode == "sum":
        return call_sums(builder, call, walk, *call.args, scratch=nodes)

    def fill(*arrays: Buffer, out: list[Buffer], scratch: list[Buffer]) -> Stmt:
        empty = const(_EMPTY[mode], out[0].dtype)
        return seq(
            for_each(out[0].shape, lambda *i: store(out[0], empty, *i)),
            walk(*arrays, out=out, scratch=scratch),
        )

    return call_loops(builder, call, fill, *call.args, scratch=nodes)


@op(
    "tree_ensemble",
    numpy=_numpy,
    lower=_lower,
    grad=missing("is piecewise constant"),
    layout=missing("its axes have fixed meanings"),
)
def tree_ensemble(
    x: Expr,
    children: Expr,
    features: Expr,
    thresholds: Expr,
    leaves: Expr,
    roots: Expr,
    depths: Expr,
    targets: Expr,
    values: Expr,
    rules: Expr | None = None,
    num_targets: int = 1,
    mode: str = "sum",
) -> StructInfo:
    """What decision trees say of each row, combined.

    x           [rows, features]
    children    int32 [nodes]: the false child, behind which stands the true one; of a leaf: itself
    features    int32 [nodes]: what of a row is compared
    thresholds  [nodes]: a row whose feature is at most that goes to the true child; of a leaf: NaN
    leaves      int32 [nodes]: which row of `values` a leaf has
    roots       int32 [trees]: the node each tree begins with
    depths      int32 [trees]: steps after which every row is in a leaf
    targets     int32 [leaves]: the column that the first of a leaf's values goes to
    values      [leaves, k]: what is combined into k columns of the result
    rules       uint8 [nodes], without them all 0: bit 0: a row goes to the true child whose feature
                equals the threshold; bit 1: also one whose feature is NaN, which else goes to the
                false child
    mode        "sum"; "min", "max", where a column that no leaf says anything of is infinite
    returns     [rows, num_targets]

    An index beyond an axis means the last of it.
    Sums are taken tree after tree, those of the 16-bit floats in float32.
    """
    want_word("mode", mode, _EMPTY)
    if num_targets < 1:
        raise StructInfoError(f"num_targets: wanted at least 1, got {num_targets}")
    info = tensor(x, "x", FLOAT, 2)
    numbers = tensor(thresholds, "thresholds", FLOAT, 1), tensor(values, "values", FLOAT, 2)
    same_dtype((info, *numbers), ("x", "thresholds", "values"))
    want_at_most(ONE, info.dims[1], "x: wanted a feature at least, got none")
    nodes = _indices(children, "children")
    same = {"features": features, "leaves": leaves}
    sizes = {name: _indices(array, name) for name, array in same.items()}
    sizes["thresholds"] = numbers[0].dims[0]
    if rules is not None:
        sizes["rules"] = tensor(rules, "rules", {"uint"}, 1).dims[0]
    for name, size in sizes.items():
        want_equal(nodes, size, "{name}: wanted {a} nodes as children has, got {b}", name=name)
    trees = _indices(roots, "roots")
    want_equal(trees, _indices(depths, "depths"), "depths: wanted {a} trees as roots has, got {b}")
    rows, across = numbers[1].dims
    want_equal(
        rows, _indices(targets, "targets"), "targets: wanted {a} leaves as values has, got {b}"
    )
    for size, name in ((nodes, "children"), (rows, "values")):
        want_at_most(ONE, size, "{name}: wanted a node at least, got none", name=name)
    columns = const(num_targets, "int64")
    want_at_most(across, columns, "values: {size} columns, but num_targets is {most}")
    return TensorStructInfo((info.dims[0], columns), info.dtype, info.vdevice)


def _indices(x: Expr, name: str) -> PrimExpr:
    """The length of a vector of int32."""
    info = tensor(x, name, {"int"}, 1)
    if info.dtype not in ("int32", "void"):
        raise StructInfoError(f"{name}: wanted int32, got {info.dtype}")
    return info.dims[0]
