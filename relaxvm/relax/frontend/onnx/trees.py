"""Decision trees as ONNX lists their nodes, laid out as `relax.op.tree_ensemble` walks them.

Each tree becomes a run of records, level by level, in which a node's children stand side by side,
the false one first. All comparisons become `at most` or `equal`: the others are these with another
threshold or with the children exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....base import FrontendError, NamedTuple
from ...op.trees import EQUAL, MISSING

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "MEMBER")
"""In the order of TreeEnsemble's numbers; the older operators have no MEMBER."""
_LT, _GTE, _GT, _EQ, _NEQ, _MEMBER = range(1, 7)

# Elements of the leaves' values beyond one for each weight.
_MOST_PADDING = 1 << 26


_Array = Any


class Trees(NamedTuple):
    """Nodes of all trees, by number.

    roots        the first node of each tree
    is_leaf      [nodes]; of leaves the next six mean nothing
    mode, feature, threshold, missing_true, true, false  [nodes]
    leaf, target, weight  for each weight the node that it belongs to, and what it is for
    name         what a node is called in errors
    members      of each node of mode MEMBER, in order: its values
    """

    roots: _Array
    is_leaf: _Array
    mode: _Array
    feature: _Array
    threshold: _Array
    missing_true: _Array
    true: _Array
    false: _Array
    leaf: _Array
    target: _Array
    weight: _Array
    name: Callable[[int], str]
    members: Sequence[_Array] = ()


def trees_by_keys(attributes: Mapping[str, Any], prefix: str, dtype: str) -> Trees:
    """The trees of TreeEnsembleClassifier and TreeEnsembleRegressor, whose nodes have the number
    of a tree and one within it.

    prefix  "class" or "target", which the names of the weights' attributes begin with
    """
    tree = _numbers(attributes, "nodes_treeids")
    count = len(tree)
    if not count:
        raise FrontendError("attribute nodes_treeids: the ensemble has no trees")
    own = _numbers(attributes, "nodes_nodeids", count)
    modes = _text_numbers(attributes, "nodes_modes", count)
    is_leaf = modes < 0
    keys = _Keys(tree, own)
    children = []
    for name in ("nodes_truenodeids", "nodes_falsenodeids"):
        wanted = _numbers(attributes, name, count)
        child = keys.find(tree, wanted)
        lost = np.flatnonzero((child < 0) & ~is_leaf)
        if len(lost):
            k = lost[0]
            raise FrontendError(
                f"attribute {name}: {keys.name(k)} leads to {wanted[k]}, which its tree has not"
            )
        children.append(child)
    features = _numbers(attributes, "nodes_featureids", count)
    _want_range(np.where(is_leaf, 0, features), None, "nodes_featureids")
    missing = _tracks(attributes, count)
    weights = _floats(attributes, f"{prefix}_weights", dtype)
    of_tree = _numbers(attributes, f"{prefix}_treeids", len(weights))
    of_node = _numbers(attributes, f"{prefix}_nodeids", len(weights))
    leaf = keys.find(of_tree, of_node)
    if (leaf < 0).any():
        k = np.flatnonzero(leaf < 0)[0]
        raise FrontendError(
            f"attribute {prefix}_nodeids: tree {of_tree[k]} has no node {of_node[k]}"
        )
    return Trees(
        np.unique(tree, return_index=True)[1],
        is_leaf,
        modes,
        features,
        _floats(attributes, "nodes_values", dtype, count),
        missing,
        children[0],
        children[1],
        leaf,
        _numbers(attributes, f"{prefix}_ids", len(weights)),
        weights,
        keys.name,
    )


def trees_by_numbers(attributes: Mapping[str, Any], dtype: str) -> Trees:
    """The trees of TreeEnsemble, whose inner nodes and whose leaves are numbered each for
    themselves.
    """
    splits = _floats(attributes, "nodes_splits", dtype)
    count = len(splits)
    modes = _numbers(attributes, "nodes_modes", count)
    _want_range(modes, len(MODES), "nodes_modes")
    weights = _floats(attributes, "leaf_weights", dtype)
    leaves = len(weights)
    roots = _numbers(attributes, "tree_roots")
    if not len(roots):
        raise FrontendError("attribute tree_roots: the ensemble has no trees")
    _want_range(roots, count, "tree_roots")
    children = []
    for side in ("true", "false"):
        child = _numbers(attributes, f"nodes_{side}nodeids", count)
        to_leaf = _numbers(attributes, f"nodes_{side}leafs", count) != 0
        _want_range(child[to_leaf], leaves, f"nodes_{side}nodeids")
        _want_range(child[~to_leaf], count, f"nodes_{side}nodeids")
        children.append(_behind(np.where(to_leaf, child + count, child), leaves))
    features = _numbers(attributes, "nodes_featureids", count)
    _want_range(features, None, "nodes_featureids")
    missing = _tracks(attributes, count)
    return Trees(
        roots,
        np.arange(count + leaves) >= count,
        _behind(modes, leaves),
        _behind(features, leaves),
        _behind(splits, leaves),
        _behind(missing, leaves),
        children[0],
        children[1],
        np.arange(leaves) + count,
        _numbers(attributes, "leaf_targetids", leaves),
        weights,
        lambda k: f"node {k}",
        _sets(attributes, dtype, int((modes == _MEMBER).sum())),
    )


def _behind(array: _Array, more: int) -> _Array:
    """`array` of inner nodes, with zeros for `more` leaves."""
    return np.concatenate([array, np.zeros(more, array.dtype)])


def _sets(attributes: Mapping[str, Any], dtype: str, count: int) -> list[_Array]:
    """What stands between the NaNs of `membership_values`."""
    values = _floats(attributes, "membership_values", dtype)
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) != count or (count and ends[-1] != len(values) - 1):
        raise FrontendError(
            f"attribute membership_values: wanted {count} sets, each with a NaN behind it, for as "
            f"many nodes of mode MEMBER, got {len(ends)} NaNs"
        )
    return [part[~np.isnan(part)] for part in np.split(values, ends)[:count]]


class _Keys:
    """Finds nodes by the number of their tree and theirs within it."""

    def __init__(self, tree: _Array, own: _Array) -> None:
        self.tree, self.own = tree, own
        self.trees, self.owns = np.unique(tree), np.unique(own)
        keys = self.keys(tree, own)
        self.order = np.argsort(keys, kind="stable")
        self.sorted = keys[self.order]
        twice = np.flatnonzero(self.sorted[1:] == self.sorted[:-1])
        if len(twice):
            raise FrontendError(
                f"attribute nodes_nodeids: {self.name(self.order[twice[0]])} is listed twice"
            )

    def keys(self, tree: _Array, own: _Array) -> _Array:
        """One number for each two; -1 where one of them is in no node."""
        key, there = np.zeros(len(tree), "int64"), np.ones(len(tree), bool)
        for known, wanted in ((self.trees, tree), (self.owns, own)):
            place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
            key, there = key * len(known) + place, there & (known[place] == wanted)
        return np.where(there, key, -1)

    def name(self, k: int) -> str:
        return f"node {self.own[k]} of tree {self.tree[k]}"

    def find(self, tree: _Array, own: _Array) -> _Array:
        """The numbers of nodes; -1 where there is none."""
        wanted = self.keys(tree, own)
        place = np.minimum(np.searchsorted(self.sorted, wanted), len(self.order) - 1)
        return np.where(self.sorted[place] == wanted, self.order[place], -1)


# -- attributes -----------------------------------------------------------------------------------


def _plain(value: Any) -> _Array:
    return np.zeros(0) if value is None else np.asarray(getattr(value, "numpy", lambda: value)())


def _of_length(name: str, array: _Array, count: int | None) -> _Array:
    if array.ndim != 1 or (count is not None and len(array) != count):
        wanted = "a vector" if count is None else f"{count} elements"
        raise FrontendError(f"attribute {name}: wanted {wanted}, got shape {list(array.shape)}")
    return array


def _numbers(attributes: Mapping[str, Any], name: str, count: int | None = None) -> _Array:
    """An attribute of integers, of `count` elements."""
    return _of_length(name, _plain(attributes[name]).astype("int64"), count)


def _floats(
    attributes: Mapping[str, Any], name: str, dtype: str, count: int | None = None
) -> _Array:
    """An attribute of numbers, or the one that has them as a tensor."""
    tensor = attributes.get(f"{name}_as_tensor")
    values = _plain(attributes[name] if tensor is None else tensor)
    return _of_length(name, values.astype(dtype), count)


def _tracks(attributes: Mapping[str, Any], count: int) -> _Array:
    """Whether a missing value goes to the true child of each node."""
    name = "nodes_missing_value_tracks_true"
    return _numbers(attributes, name, count) > 0 if attributes[name] else np.zeros(count, bool)


def base_numbers(attributes: Mapping[str, Any], targets: int) -> _Array | None:
    """What is added to the sums: one number for each target or one for all, if there are any."""
    base = _floats(attributes, "base_values", "float64")
    if len(base) not in (0, 1, targets):
        raise FrontendError(
            f"attribute base_values: wanted 1 or {targets} numbers, got {len(base)}"
        )
    return base if len(base) else None


def _text_numbers(attributes: Mapping[str, Any], name: str, count: int) -> _Array:
    """Modes as their places in `MODES`, -1 for a leaf."""
    place = {"LEAF": -1, **{mode: k for k, mode in enumerate(MODES[:_MEMBER])}}
    modes = attributes[name] or ()
    wrong = next((m for m in modes if m not in place), None)
    if wrong is not None:
        raise FrontendError(f"attribute {name}: wanted one of {', '.join(place)}, got {wrong!r}")
    return _of_length(name, np.array([place[m] for m in modes], "int64"), count)


def _want_range(numbers: _Array, size: int | None, name: str) -> None:
    size = np.iinfo("int32").max if size is None else size
    wrong = numbers[(numbers < 0) | (numbers >= size)]
    if len(wrong):
        raise FrontendError(
            f"attribute {name}: wanted numbers from 0 to {size - 1}, got {wrong[0]}"
        )


# -- layout ---------------------------------------------------------------------------------------


def laid_out(trees: Trees, num_targets: int, aggregate: str) -> dict[str, Any]:
    """The arguments of `relax.op.tree_ensemble`, but for x, as arrays.

    Raises FrontendError, which names a node, for what is no forest, and for what is too large.
    """
    _want_range(trees.target, num_targets, "of targets or classes")
    _want_forest(trees)
    roots, which = np.unique(trees.roots, return_inverse=True)
    steps = np.ones(len(trees.mode), "int64")
    steps[np.flatnonzero(trees.mode == _MEMBER)] = [max(1, len(m)) for m in trees.members]
    depths = _levels(trees, roots, steps)[2]
    trees = _canonical(_without_members(trees))
    source, tree, _, pair = _levels(trees, roots, np.ones(len(trees.mode), "int64"))
    # Tree by tree; the levels of each stay in order.
    order = np.argsort(tree, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    source = source[order]
    rests = trees.is_leaf[source]
    used, leaf = np.unique(source[rests], return_inverse=True)
    leaves = np.zeros(len(order), "int64")
    leaves[rests] = leaf
    targets, values = _leaf_values(trees, used, num_targets, aggregate)
    arrays = {
        "children": np.where(rests, np.arange(len(order)), place[np.where(rests, 0, pair[source])]),
        "features": np.where(rests, 0, trees.feature[source]),
        "leaves": leaves,
        "roots": place[which],
        "depths": depths[which],
        "targets": targets,
    }
    rules = np.where(rests, 0, trees.mode[source] | trees.missing_true[source] * MISSING)
    return {
        **{name: array.astype("int32") for name, array in arrays.items()},
        "thresholds": np.where(rests, np.nan, trees.threshold[source]).astype(values.dtype),
        "values": values,
        "rules": rules.astype("uint8") if rules.any() else None,
    }


def _want_forest(trees: Trees) -> None:
    """Every node that branches is the child of one other at most, and roots are of none. Then no
    cycle can be reached from them.
    """
    inner = np.flatnonzero(~trees.is_leaf)
    children = np.concatenate([trees.true[inner], trees.false[inner]])
    parents = np.bincount(children, minlength=len(trees.is_leaf))
    parents[trees.is_leaf] = 0
    if parents.max(initial=0) > 1:
        name = trees.name(int(parents.argmax()))
        raise FrontendError(f"{name} is the child of {parents.max()} nodes; wanted trees")
    if parents[trees.roots].any():
        name = trees.name(int(trees.roots[parents[trees.roots].argmax()]))
        raise FrontendError(f"{name} begins a tree and is a child as well: the nodes form a cycle")


def _levels(trees: Trees, roots: _Array, steps: _Array) -> tuple[_Array, ...]:
    """Nodes level by level, the two children of a node side by side, the false one first. A node
    that several lead to comes again, but what is below it once.

    steps    [nodes]: how many steps are from a node to its children
    returns  the number and the tree of each, the most steps in each tree, and for each node where
             its children stand
    """
    source, tree = [roots], [np.arange(len(roots))]
    pair = np.full(len(trees.is_leaf), -1)
    depths = np.zeros(len(roots), "int64")
    way, count = np.zeros(len(roots), "int64"), len(roots)
    while len(source[-1]):
        nodes = source[-1]
        first = np.zeros(len(nodes), bool)
        first[np.unique(nodes, return_index=True)[1]] = True
        branch = first & ~trees.is_leaf[nodes] & (pair[nodes] < 0)
        nodes, owner = nodes[branch], tree[-1][branch]
        way = np.repeat(way[branch] + steps[nodes], 2)
        pair[nodes] = count + 2 * np.arange(len(nodes))
        count += 2 * len(nodes)
        source.append(np.stack([trees.false[nodes], trees.true[nodes]], -1).reshape(-1))
        tree.append(np.repeat(owner, 2))
        np.maximum.at(depths, tree[-1], way)
    return np.concatenate(source), np.concatenate(tree), depths, pair


def _without_members(trees: Trees) -> Trees:
    """Nodes of mode MEMBER as chains of nodes, one for each member."""
    nodes = np.flatnonzero(trees.mode == _MEMBER)
    if not len(nodes):
        return trees
    fields = {
        k: list(getattr(trees, k))
        for k in ("is_leaf", "mode", "feature", "threshold", "missing_true", "true", "false")
    }
    for node, members in zip(nodes, trees.members):
        fields["mode"][node] = _EQ
        fields["threshold"][node] = members[0] if len(members) else np.nan
        last = node
        for member in members[1:]:
            for column in fields.values():
                column.append(column[node])
            fields["threshold"][-1] = member
            fields["false"][-1] = fields["false"][last]
            fields["false"][last] = len(fields["false"]) - 1
            last = fields["false"][last]
    arrays: Any = {k: np.array(v, getattr(trees, k).dtype) for k, v in fields.items()}
    return trees._replace(**arrays)


def _canonical(trees: Trees) -> Trees:
    """With `mode` 0 or EQUAL, and missing_true of what is then the true child."""
    mode, threshold = trees.mode, trees.threshold
    turned = np.isin(mode, (_GTE, _GT, _NEQ))
    below = np.where(
        threshold == -np.inf, np.nan, np.nextafter(threshold, threshold.dtype.type(-np.inf))
    )
    least = np.where(np.isin(mode, (_LT, _GTE)), below, threshold)
    equal = np.isin(mode, (_EQ, _NEQ))
    # Nothing compares with NaN: also of what is turned round, the false child is the way.
    least = np.where(turned & ~equal & np.isnan(threshold), np.inf, least)
    return trees._replace(
        mode=equal * EQUAL,
        threshold=least,
        # NaN differs from everything.
        missing_true=np.where(mode == _NEQ, False, trees.missing_true ^ turned),
        true=np.where(turned, trees.false, trees.true),
        false=np.where(turned, trees.true, trees.false),
    )


_COMBINE: dict[str, Any] = {"SUM": np.add, "AVERAGE": np.add, "MIN": np.minimum, "MAX": np.maximum}
_NOTHING = {"MIN": np.inf, "MAX": -np.inf}


def _leaf_values(
    trees: Trees, used: _Array, num_targets: int, aggregate: str
) -> tuple[_Array, _Array]:
    """For the leaves `used`: the first target of each, and the values from there on."""
    row = np.minimum(np.searchsorted(used, trees.leaf), len(used) - 1)
    there = used[row] == trees.leaf
    row, target, weight = row[there], trees.target[there], trees.weight[there]
    low, high = np.full(len(used), num_targets - 1), np.zeros(len(used), "int64")
    np.minimum.at(low, row, target)
    np.maximum.at(high, row, target)
    across = max(1, int((high - low).max() + 1))
    if len(used) * across > len(weight) + _MOST_PADDING:
        raise FrontendError(
            f"{len(used)} leaves with weights for {across} targets each take too much memory"
        )
    first = np.minimum(low, num_targets - across)
    values = np.full((len(used), across), _NOTHING.get(aggregate, 0.0), trees.weight.dtype)
    _COMBINE[aggregate].at(values, (row, target - first[row]), weight)
    return first, values
