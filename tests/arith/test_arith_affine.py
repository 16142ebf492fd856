"""Affine facts against brute force: small iteration spaces, with negative steps and minima,
divisions of negative numbers, symbolic extents, empty loops and the ends of int32.
"""

import itertools
import random

import pytest

from relaxvm.arith import Analyzer, IterMapper, Numbers, interval_of, linear_in, number_of, stride
from relaxvm.ir import Cast, IntImm, Max, Min, Range, Select, Var, const
from relaxvm.tir import evaluate_expr

i, j, k, n = (Var(name) for name in "ijkn")


def worth(e, env):
    return e if isinstance(e, int) else int(evaluate_expr(e, env))


def index(draw, depth, digits=(1, 2, 3, 4, 6), variables=(i, j, k)):
    """A sum of multiples of variables, divided by constants here and there."""
    if depth == 0 or draw.random() < 0.15:
        return draw.choice([*variables, const(draw.randint(-5, 5))])
    one, two = (index(draw, depth - 1, digits, variables) for _ in "ab")
    c = draw.choice(digits)
    return draw.choice([one + two, one - two, one * c, one * -c, one // c, one % c, one + c])


def loops(draw, least=1):
    """{variable: (minimum, extent)}"""
    return {v: (draw.choice([0, 0, 0, -3, 2]), draw.randint(least, 6)) for v in (i, j, k)}


def points(ranges):
    for values in itertools.product(*[range(m, m + e) for m, e in ranges.values()]):
        yield dict(zip(ranges, values))


@pytest.mark.parametrize("seed", range(80))
def test_an_interval_covers_every_value(seed):
    draw = random.Random(seed)
    e = index(draw, 3)
    e = draw.choice([e, Min(e, i * 2), Max(e, j - n), Select(i < j, e, k), Cast("int64", e) + n])
    known = Analyzer(wrap=False)
    known.bind(n, Range(1, 100))
    ranges = {i: (const(-2), n), j: (n - 1, n + 1), k: (const(-3), const(4))}
    found = interval_of(e, {**ranges, i: (ranges[i][0], ranges[i][0] + n - 1)}, known)
    for size in (1, 2, 5):
        low, high = (None, None) if found is None else (worth(f, {n: size}) for f in found)
        for env in points({i: (-2, size), j: (size - 1, 3), k: (-3, 8)}):
            assert low is None or low <= worth(e, {**env, n: size}) <= high, (str(e), found, env)


def test_an_interval_is_exact_for_a_sum_of_different_variables():
    known = Analyzer(wrap=False)
    found = interval_of(
        i * -3 + j * 2 - k // -2, {i: (const(-1), n), j: (n, n + 4), k: (n, n)}, known
    )
    assert found is not None
    assert [worth(f, {n: 6}) for f in found] == [-18 + 12 + 3, 3 + 20 + 3]


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
def test_nothing_is_known_of_constants_that_wrap(dtype):
    v, known = Var("v", dtype), Analyzer(wrap=True)
    for top in (v.dtype.min_value, v.dtype.max_value):
        first = max(top - 3, v.dtype.min_value)
        last = min(first + 3, v.dtype.max_value)
        for c in (1, 2, 3, 4, 5):
            for e in (v + c, v - c, v * c, (v + c) // 2, (v - c) % 5, v // c, v % c, Min(v + c, v)):
                ends = const(first, dtype), const(last, dtype)
                found = interval_of(e, {v: ends}, known)
                got = [worth(e, {v: x}) for x in range(first, last + 1)]
                assert found is None or worth(found[0], {}) <= min(got), str(e)
                assert found is None or max(got) <= worth(found[1], {}), str(e)


@pytest.mark.parametrize("seed", range(60))
def test_steps_of_an_index(seed):
    draw = random.Random(seed)
    e = Analyzer(wrap=False).simplify(index(draw, 3))
    ranges = loops(draw)
    for v in (i, j, k):
        step, terms = stride(e, v), linear_in(e, v)
        assert terms is None or terms[0] == step
        for env in points(ranges):
            here = worth(e, env)
            if step is not None:
                assert worth(e, {**env, v: env[v] + 1}) - here == step, (str(e), env)
            if terms is not None:
                assert terms[0] * env[v] + worth(terms[1], {**env, v: 99}) == here, (str(e), env)


def test_a_step_is_found_behind_products_and_casts_and_in_a_large_graph():
    wide = Cast("int64", (i * 2 + j) * 3 - i) * 4
    assert (stride(wide, i), stride(wide, j), stride(wide, k)) == (20, 12, 0)
    assert stride(Cast("int8", i), i) is None
    e = i + j
    for _ in range(60):
        e = e + e
    assert stride(e, i) == 2**60


@pytest.mark.parametrize("seed", range(100))
def test_the_range_of_a_sum_and_whether_all_of_it_is_taken(seed):
    draw = random.Random(seed)
    ranges = loops(draw, least=0 if seed % 5 == 0 else 1)
    e = index(draw, draw.randint(1, 3), (2, 3, 4), draw.choice([(i,), (i, j), (i, j, k)]))
    mapper, width = IterMapper(ranges), draw.randint(1, 3)
    total = mapper.sum_of(e)
    got = {worth(e, env) + w for env in points(ranges) for w in range(width)}
    if total is None:
        return
    span, ends, rising = mapper.span(total, width), mapper.ends(total), mapper.rising(total)
    assert all(ends[0] <= g <= ends[1] + width - 1 for g in got), (str(e), ranges, ends)
    if span is not None:
        assert all(span[0] <= g < span[0] + span[1] for g in got), (str(e), ranges, span)
    dense = mapper.dense_extent(rising, width)
    if dense is not None and got:  # without iterations nothing is said
        assert got == set(range(rising.base, rising.base + dense)), (str(e), ranges, dense)


@pytest.mark.parametrize("seed", range(100))
def test_independent_sums_take_all_combinations(seed):
    draw = random.Random(seed)
    ranges = loops(draw)
    pool = (i,) if seed % 3 else (i, j)
    exprs = [index(draw, 2, (2, 3, 4), pool) for _ in range(2)]
    mapper = IterMapper(ranges)
    totals = [mapper.sum_of(e) for e in exprs]
    if None in totals or not mapper.independent(totals):
        return
    got = {tuple(worth(e, env) for e in exprs) for env in points(ranges)}
    assert len(got) == len({a for a, _ in got}) * len({b for _, b in got}), (exprs, ranges)


def test_digits_of_a_range_that_they_do_not_fill():
    mapper = IterMapper({i: (0, 9)})
    two = mapper.sum_of(i // 8 * 2 + i % 2)  # i = 9 would be the place 3
    assert mapper.dense_extent(two) is None
    assert IterMapper({i: (0, 10)}).dense_extent(mapper.sum_of(i // 8 * 2 + i % 2)) is None
    full = IterMapper({i: (0, 10)})
    assert full.dense_extent(full.sum_of(i // 8 * 2 + i % 2)) == 4
    # Rising and falling digits of one loop are no digits of one number.
    both = IterMapper({i: (0, 6)})
    total = both.sum_of(i // 4 * 4 - i % 4)
    assert both.ends(total) == (-3, 4)
    assert both.dense_extent(both.rising(total)) is None


def test_parts_of_an_axis():
    numbers = Numbers(Analyzer(wrap=False))
    numbers.analyzer.bind_size(n)

    def taken(span, size):
        low = worth(span[0], {n: size})
        return set(range(low, low + worth(span[1], {n: size})))

    lows = [const(0), const(-2), const(3), n, n + 2, n - 1]
    spans = [(low, number_of(e)) for low in lows for e in (0, 1, 4, n, n + 1)]
    answers = set()
    for a, b in itertools.product(spans, spans):
        facts = numbers.inside(a, b), numbers.before(a, b), numbers.same(a, b), numbers.hull(a, b)
        answers.add(facts[:3])
        for size in (0, 1, 2, 7):
            one, two = taken(a, size), taken(b, size)
            assert not facts[0] or one <= two, (a, b, size)
            assert not facts[1] or not one or not two or max(one) < min(two), (a, b, size)
            assert not facts[2] or one == two, (a, b, size)
            assert facts[3] is None or one | two <= taken(facts[3], size), (a, b, size)
    assert {(True, False, False), (False, True, False), (True, False, True)} <= answers
    assert numbers.hull((n, 2), (n + 3, number_of(IntImm("int32", 4))))[1] == 7


def test_a_constant_beyond_the_dtype_of_the_other_number_stays_what_it_is():
    numbers, large = Numbers(), 2**40
    for got, wanted in (
        (numbers.add(i, large), large + 3),
        (numbers.sub(-large, i), -large - 3),
        (numbers.mul(large, i), large * 3),
        (numbers.floordiv(i, large), 0),
    ):
        assert worth(got, {i: 3}) == wanted
    assert not numbers.inside((i, large), (i, 8)) and numbers.inside((i, 8), (i, large))
