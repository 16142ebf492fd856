"""Iteration maps against brute force: sums, digits, what is determined, what is dense."""

import itertools

import numpy as np
import pytest

from relaxvm import arith
from relaxvm.arith import IterMapper, IterMark, IterSplitExpr, IterSumExpr, detect_iter_map
from relaxvm.ir import And, Range, SizeVar, Var
from relaxvm.tir import evaluate_expr


def loops(**extents):
    return {Var(name): (0, n) for name, n in extents.items()}


def points(iters, predicate=None):
    """Every iteration as {variable: value}."""
    names = list(iters)
    for values in itertools.product(*[range(m, m + n) for m, n in iters.values()]):
        env = dict(zip(names, values))
        if predicate is None or evaluate_expr(predicate, env):
            yield env


def random_expr(rng, variables, depth=3):
    if depth == 0 or rng.integers(4) == 0:
        return variables[rng.integers(len(variables))]
    a = random_expr(rng, variables, depth - 1)
    kind, k = rng.integers(5), int(rng.integers(1, 7))
    if kind == 0:
        return a // k
    if kind == 1:
        return a % k
    if kind == 2:
        return a * k
    return a * k + random_expr(rng, variables, depth - 1) if kind == 3 else a + k


@pytest.mark.parametrize("seed", range(300))
def test_a_sum_is_worth_what_the_expression_is(seed):
    rng = np.random.default_rng(seed)
    iters = loops(i=int(rng.integers(1, 6)), j=int(rng.integers(1, 6)))
    e = random_expr(rng, list(iters))
    mapper = IterMapper(iters)
    total = mapper.sum_of(e)
    if total is None:
        return
    again = mapper.to_expr(total, "int32")
    for env in points(iters):
        assert evaluate_expr(again, env) == evaluate_expr(e, env), (str(e), str(again), env)


@pytest.mark.parametrize("seed", range(300))
def test_determined_and_dense_hold_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    iters = loops(i=int(rng.integers(1, 5)), j=int(rng.integers(1, 5)), k=int(rng.integers(1, 4)))
    exprs = [random_expr(rng, list(iters), 2) for _ in range(rng.integers(1, 4))]
    mapper = IterMapper(iters)
    seen = {}
    found = mapper.determined(exprs)
    for env in points(iters):
        key = tuple(int(evaluate_expr(e, env)) for e in exprs)
        kept = tuple(env[v] for v in iters if v in found)
        assert seen.setdefault(key, kept) == kept, [str(e) for e in exprs]
    for e in exprs:
        total = mapper.sum_of(e)
        extent = None if total is None else mapper.dense_extent(total)
        if extent is not None:
            values = {int(evaluate_expr(e, env)) for env in points(iters)}
            assert values == set(range(total.base, total.base + extent)), str(e)


@pytest.mark.parametrize("limit", [3, 7, 10, 12])
def test_a_condition_limits_the_extent(limit):
    iters = loops(i=3, j=4)
    i, j = iters
    mapper = IterMapper(iters)
    mapper.constrain(i * 4 + j < limit)
    total = mapper.sum_of(i * 4 + j)
    assert mapper.dense_extent(total) == min(limit, 12)
    halves = mapper.sum_of((i * 4 + j) // 3)
    assert mapper.dense_extent(halves) == -(-min(limit, 12) // 3)


def test_what_plain_split_and_fuse_make_is_recognised():
    iters = loops(f=12)
    (f,) = iters
    mapper = IterMapper(iters)
    assert mapper.determined([f // 4, f % 4]) == {f}
    assert mapper.determined([f // 4]) == set()
    assert mapper.determined([f % 5]) == set()
    assert mapper.determined([(f // 4) * 4 + f % 4]) == {f}


@pytest.mark.parametrize(("a", "b"), list(itertools.product(range(2, 8), range(2, 8))))
def test_a_digit_of_a_digit_that_does_not_divide(a, b):
    iters = loops(f=40)
    (f,) = iters
    mapper = IterMapper(iters)
    for e in (f % a // b, f % a % b, f // 3 % a // b, f // 3 % a % b):
        total = mapper.sum_of(e)
        again = mapper.to_expr(total, "int32")
        for env in points(iters):
            assert evaluate_expr(again, env) == evaluate_expr(e, env), (str(e), str(again), env)


def test_symbolic_digits():
    n, m, f = SizeVar("n"), SizeVar("m"), Var("f")
    mapper = IterMapper({f: (0, n * m)})
    assert mapper.determined([f // m, f % m]) == {f}
    assert mapper.dense_extent(mapper.sum_of(f // m)) is n
    assert mapper.dense_extent(mapper.sum_of(f % m)) is m


def test_overlapping_windows_determine_nothing():
    i, h = Var("i"), Var("h")
    mapper = IterMapper({i: (0, 4), h: (0, 6)})
    assert mapper.determined([i * 4 + h]) == set()
    assert mapper.dense_extent(mapper.sum_of(i * 4 + h)) == 18


def test_iterators_of_one_iteration_are_put_in():
    u, i = Var("u"), Var("i")
    mapper = IterMapper({u: (2, 1), i: (0, 4)})
    total = mapper.sum_of(u * 3 + i)
    assert total.base == 6
    assert mapper.sum_of((u + 5) // 2).base == 3


def test_detect_iter_map_says_why_not():
    i, j = Var("i"), Var("j")
    ranges = {i: Range(0, 4), j: Range(0, 3)}
    assert len(detect_iter_map([i * 3 + j], ranges).indices) == 1
    assert "do not determine j" in detect_iter_map([i], ranges).errors[0]
    assert "leave out values" in detect_iter_map([i * 8 + j], ranges).errors[0]
    assert detect_iter_map([i * 8 + j], ranges, check_level="injective").indices
    assert "no sum" in detect_iter_map([i * j], ranges).errors[0]


def int_loops(**extents):
    return {Var(name): Range(0, n) for name, n in extents.items()}


@pytest.mark.parametrize("seed", range(150))
def test_what_is_rewritten_is_worth_the_same(seed):
    rng = np.random.default_rng(seed)
    iters = loops(i=int(rng.integers(1, 9)), j=int(rng.integers(1, 6)))
    ranges = {v: Range(m, m + n) for v, (m, n) in iters.items()}
    e = random_expr(rng, list(iters)) + int(rng.integers(-3, 4))
    short = arith.iter_map_simplify([e], ranges)[0]
    as_sum = arith.normalize_iter_map_to_expr(arith.normalize_to_iter_sum(e, ranges))
    for env in points(iters):
        want = evaluate_expr(e, env)
        assert evaluate_expr(short, env) == want, (str(e), str(short), env)
        assert evaluate_expr(as_sum, env) == want, (str(e), str(as_sum), env)


@pytest.mark.parametrize("seed", range(60))
def test_an_inverse_gives_the_iterators_back(seed):
    rng = np.random.default_rng(seed)
    a, b = 2 ** int(rng.integers(1, 4)), 2 ** int(rng.integers(1, 4))
    ranges = int_loops(i=a * 4, j=b * 2)
    i, j = ranges
    forms = [[i // a, i % a, j], [i % a * (2 * b) + j, i // a], [(i * 2 * b + j) // 4, j % 4]]
    forms += [[j % b * 4 + i // a, j // b, i % a + 3], [(i * 2 * b + j) % 8, (i * 2 * b + j) // 8]]
    indices = forms[seed % len(forms)]
    found = detect_iter_map(indices, ranges, check_level="bijective")
    if not found.indices:
        return
    outputs = [Var(f"o{k}") for k in range(len(indices))]
    inverse = arith.inverse_affine_iter_map(found.indices, outputs)
    for env in points({v: (0, int(r.extent)) for v, r in ranges.items()}):
        values = {o: evaluate_expr(e, env) for o, e in zip(outputs, indices)}
        for v in ranges:
            assert evaluate_expr(inverse[v], values) == env[v]


def test_symbolic_fusions_simplify_to_what_they_fuse():
    x, y, n = Var("x", "int64"), Var("y", "int64"), SizeVar("n", "int64")

    def short(e, **kw):
        return str(arith.iter_map_simplify([e], **kw)[0])

    def through(e):
        return (e // (n * n) * n + e % (n * n) // n) * n + e % n

    assert short(through(x), input_iters={x: Range(0, n * n * 32)}) == "x"
    z = x * 32 + y
    ranges = {x: Range(0, (n + 1) // 2), y: Range(0, 32)}
    fused = z // n * n + z % n
    assert short(fused, input_iters=ranges, predicate=z < n * 16) == "x * T.int64(32) + y"


def divided(*args):
    """The pairs of `subspace_divide` as text."""
    found = arith.subspace_divide(*args)
    as_text = arith.normalize_iter_map_to_expr
    pairs = [tuple(str(as_text(p.source)) for p in pair) for pair in found[:-1]]
    return pairs + [tuple(str(p.extent) for p in pair) for pair in found[-1:]]


def test_a_space_is_divided_into_outer_and_inner_iterators():
    ranges = int_loops(x=3, y=4, z=5)
    x, y, z = ranges
    c = SizeVar("c")
    true = "T.bool(True)"
    flat = z * 12 + y * 3 + x + c
    assert divided([flat], ranges, [x]) == [("z * 4 + y", "x + c"), (true, true)]
    condition = z * 4 + y < 18
    assert divided([flat], ranges, [x], condition)[1] == ("z * 4 + y < 18", true)
    assert divided([flat], ranges, [y]) == []
    ranges = int_loops(i=4, j=8, k=2)
    i, j, k = ranges
    outer, inner = i * 2 + j // 4, j % 4 * 2 + k
    assert divided([outer, inner], ranges, [k]) == [
        ("i * 2 + j // 4", "0"),
        ("j % 4", "k"),
        (true, true),
    ]
    assert divided([outer, inner], ranges, [i, k]) == []
    assert divided([outer, inner], ranges, [k], And(outer < 7, inner < 7)) == []


def test_marks_and_splits_can_be_built():
    x, y = Var("x"), Var("y")
    split = IterSplitExpr(IterMark(x * y + 1, 1024), 1, 1024, 1)
    assert isinstance(split, arith.IterMapExpr)
    assert arith.normalize_iter_map_to_expr(split) is arith.Analyzer().simplify(x * y + 1)
    low = IterSplitExpr(IterMark(x, 12), 1, 4, 3)
    assert str(arith.normalize_iter_map_to_expr(IterSumExpr((low,), 5))) == "x % 4 * 3 + 5"
