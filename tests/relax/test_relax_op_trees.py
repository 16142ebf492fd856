"""tree_ensemble: decision trees, walked and summed up."""

from __future__ import annotations

import numpy as np
import pytest
from op_table import Case, T, check, check_errors, thinned

from relaxvm import relax
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.runtime import VirtualMachine, cpu

F32 = ("float32",)


def forest(depths, leaf_values=1, features=4, seed=0, rules=False):
    """Arrays of whole trees of the given depths; some of their inner nodes are leaves instead."""
    rng = np.random.default_rng(seed)
    children, thresholds, roots = [], [], []
    for depth in depths:
        roots.append(len(children))
        level = [len(children)]
        children.append(level[0])
        for below in range(depth):
            following = []
            for node in level:
                if below and rng.random() < 0.3:
                    continue
                children[node] = len(children)
                following += [len(children), len(children) + 1]
                children += following[-2:]
            level = following
    nodes = len(children)
    at_rest = np.array(children) == np.arange(nodes)
    thresholds = np.where(at_rest, np.nan, rng.integers(-2, 3, nodes))
    leaves = np.where(at_rest, np.cumsum(at_rest) - 1, 0)
    count = max(int(at_rest.sum()), 1)
    kinds = np.where(at_rest, 0, rng.integers(0, 4, nodes)).astype("uint8")
    arrays = [
        T(nodes, dtype="int32", data=children), T(nodes, dtype="int32", low=0, high=features - 1),
        T(nodes, data=thresholds), T(nodes, dtype="int32", data=leaves),
        T(len(roots), dtype="int32", data=roots), T(len(roots), dtype="int32", data=depths),
    ]  # fmt: skip
    return (
        *arrays,
        T(count, dtype="int32", data=rng.integers(0, 3, count)),
        T(count, leaf_values),
        *([T(nodes, dtype="uint8", data=kinds)] if rules else []),
    )


def whole_numbers(rng, shape):
    """Numbers that meet thresholds, and NaN."""
    return np.where(rng.random(shape) < 0.2, np.nan, rng.integers(-3, 4, shape))


def leaves(rng, shape):
    """Nodes that are their own children."""
    return np.arange(*shape)


def no_thresholds(rng, shape):
    return np.full(shape, np.nan)


X = T("n", 4, data=whole_numbers)

CASES = [
    Case(R.tree_ensemble, X, *forest([3] * 20), num_targets=3, count=20),
    Case(R.tree_ensemble, X, *forest([2, 9, 0, 20]), num_targets=3, dtypes=F32),
    Case(R.tree_ensemble, X, *forest([3, 1, 2], 3, rules=True), num_targets=3, dtypes=F32),
    Case(R.tree_ensemble, X, *forest([4] * 17, 2, rules=True), num_targets=5, count=17),
    *(
        Case(R.tree_ensemble, X, *forest([3] * 5, 2, rules=True), num_targets=4, mode=mode)
        for mode in ("min", "max")
    ),
    Case(R.tree_ensemble, T(130, 4), *forest([3] * 3), num_targets=3, dtypes=F32),
    Case(
        R.tree_ensemble,
        T("n", "k"),
        *(T("m", dtype="int32", data=leaves), T("m", dtype="int32", low=0, high=9)),
        *(T("m", data=no_thresholds), T("m", dtype="int32", data=leaves)),
        *(T("n", dtype="int32", low=0, high=1), T("n", dtype="int32", low=0, high=3)),
        *(T("one", dtype="int32", low=0, high=0), T("one", "m")),
        T("m", dtype="uint8", low=0, high=0),
        num_targets=2,
    ),
    Case(R.tree_ensemble, T("zero", 4), *forest([3] * 3), num_targets=3, dtypes=F32),
]


def test_numpy_loops_and_native_code_agree():
    check(thinned(CASES, 2))


@pytest.mark.slow
def test_numpy_loops_and_native_code_agree_on_every_case():
    check(CASES)


def test_what_does_not_fit_is_refused():
    def var(*shape, dtype="float32"):
        return relax.Var("v", relax.TensorStructInfo(shape, dtype))

    i3, f3 = var(3, dtype="int32"), var(3)
    good = [var(5, 4), i3, i3, f3, i3, var(2, dtype="int32"), var(2, dtype="int32"), i3, var(3, 1)]

    def call(place, value, **attrs):
        return lambda: R.tree_ensemble(*good[:place], value, *good[place + 1 :], **attrs)

    check_errors(
        [
            (call(0, var(5, 0)), "x: wanted a feature at least"),
            (call(0, var(5, 4, dtype="float64")), "the dtypes differ"),
            (call(0, var(5)), "x: wanted 2 dimensions, got 1"),
            (call(1, var(3, dtype="int64")), "children: wanted int32, got int64"),
            (call(2, var(4, dtype="int32")), "features: wanted 3 nodes as children has, got 4"),
            (call(3, var(4)), "thresholds: wanted 3 nodes as children has, got 4"),
            (call(6, i3), "depths: wanted 2 trees as roots has, got 3"),
            (call(7, var(2, dtype="int32")), "targets: wanted 3 leaves as values has, got 2"),
            (call(8, var(3, 2)), "values: 2 columns, but num_targets is 1"),
            (call(9, i3), "rules: wanted"),
            (call(9, var(2, dtype="uint8")), "rules: wanted 3 nodes as children has, got 2"),
            (call(0, good[0], mode="mean"), "mode: wanted one of sum, min, max, got 'mean'"),
            (call(0, good[0], num_targets=0), "num_targets: wanted at least 1, got 0"),
        ]
    )


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_arrays_that_are_no_trees_read_nothing_outside_of_them(exec_mode):
    rng = np.random.default_rng(0)
    sizes = (50, 50, 50, 50, 20, 20, 7, (7, 2), 50)
    dtypes = ("int32", "int32", "float32", "int32", "int32", "int32", "int32", "float32", "uint8")
    wild = [
        rng.integers(-(1 << 31), 1 << 31, size).astype(dtype) if dtype != "uint8"
        else rng.integers(0, 256, size).astype(dtype)
        for size, dtype in zip(sizes, dtypes)
    ]  # fmt: skip
    x = rng.standard_normal((9, 4)).astype("float32")
    params = [relax.Var(f"a{k}", relax.TensorStructInfo(a.shape, str(a.dtype)))
              for k, a in enumerate([x, *wild])]  # fmt: skip
    call = R.tree_ensemble(*params, num_targets=3)
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(call))
    vm = VirtualMachine(relax.build(builder.get(), "llvm"), cpu(), exec_mode=exec_mode)
    assert vm["main"](x, *wild).numpy().shape == (9, 3)
    constants = [relax.const(a) for a in (x, *wild)]
    assert evaluate(R.tree_ensemble(*constants, num_targets=3)).shape == (9, 3)
