"""Intervals, residues, regions, deduced bounds, solved systems: each against plain enumeration."""

import itertools
import random

import pytest

from relaxvm import arith, tir
from relaxvm.arith import (
    Analyzer,
    ConstIntBound,
    IntervalSet,
    IntSet,
    ModularSet,
    deduce_bound,
    detect_clip_bound,
    detect_common_subexpr,
    detect_linear_equation,
    estimate_region_lower_bound,
    estimate_region_strict_bound,
    estimate_region_upper_bound,
    solve_linear_equations,
    solve_linear_inequalities,
)
from relaxvm.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    And,
    Cast,
    Let,
    Max,
    Min,
    Not,
    Ramp,
    Range,
    Select,
    Var,
    const,
    substitute,
)
from relaxvm.tir import evaluate_expr, truncdiv, truncmod

a, b, c, x, y, z = (Var(name) for name in "abcxyz")
INF = (arith.int_set.neg_inf(), arith.int_set.pos_inf())


def worth(e, env):
    return int(evaluate_expr(e, env))


def ends(s, env):
    """The least and greatest value of a set."""
    low = -(10**9) if s.min_value is INF[0] else worth(s.min_value, env)
    return low, 10**9 if s.max_value is INF[1] else worth(s.max_value, env)


def random_expr(draw, depth):
    if depth == 0 or draw.random() < 0.15:
        return draw.choice([x, y, z, const(draw.randint(-5, 5))])
    one, two = random_expr(draw, depth - 1), random_expr(draw, depth - 1)
    k = const(draw.choice([1, 2, 3, 4, 6, 8]))
    return draw.choice(
        [one + two, one - two, one * k, one * -k, one // k, one % k, truncdiv(one, k)]
        + [truncmod(one, k), Min(one, two), Max(one, two), Select(one < two, one, two)]
    )


@pytest.mark.parametrize("seed", range(150))
def test_an_interval_and_residues_cover_every_value(seed):
    draw = random.Random(seed)
    e = random_expr(draw, 3)
    domains = {x: (-2, 4), y: (0, 5)}
    known = Analyzer()
    found = known.int_set(e, {v: IntervalSet(*s) for v, s in domains.items()})
    residues = known.modular_set(e)
    for values in itertools.product(range(-2, 5), range(6), (-7, 3)):
        env = dict(zip((x, y, z), values))
        low, high = ends(found, {z: env[z], x: 0, y: 0})
        got = worth(e, env)
        assert low <= got <= high, (str(e), found, env)
        assert (
            (got - residues.base) % residues.coeff == 0
            if residues.coeff
            else (got == residues.base)
        )


def test_sets_have_tvms_constructors_and_questions():
    assert IntSet.single_point(2).is_single_point()
    s = IntSet.vector(Ramp(10, 3, 2))
    assert (s.min_value.value, s.max_value.value) == (10, 13)
    s = IntSet.vector(Ramp(10, -3, 2))
    assert (s.min_value.value, s.max_value.value) == (7, 10)
    assert IntSet.everything().is_everything()
    assert IntSet.nothing().is_nothing()
    assert IntervalSet(3, 2).is_nothing()
    assert not IntervalSet(x, y).is_nothing()
    assert str(INF[0]) == "neg_inf"
    assert str(INF[1]) == "pos_inf"
    joined = arith.int_set.union_lower_bound([IntervalSet(INF[0], 0), IntervalSet(1, INF[1])])
    assert joined.is_everything()
    apart = arith.int_set.union_lower_bound([IntervalSet(0, 3), IntervalSet(9, 11)])
    assert apart.max_value.value == 3


def test_bound_of_what_is_not_known():
    known = Analyzer()
    wide, small = Var("w", "int64"), Var("s", "int8")
    assert known.const_int_bound(wide) == (ConstIntBound.NEG_INF, ConstIntBound.POS_INF)
    assert known.const_int_bound(small) == (-128, 127)
    assert not known.const_int_bound_is_bound(wide)
    known.update(wide, ConstIntBound(0, ConstIntBound.POS_INF))
    assert known.const_int_bound_is_bound(wide)
    assert known.const_int_bound(1 - wide) == (ConstIntBound.NEG_INF, 1)
    known.update(small, IntervalSet(3, 7))
    assert known.const_int_bound(small) == (3, 7)
    with known.constraint_scope(And(1 <= wide % 58, wide % 58 < 57)):
        assert known.const_int_bound(wide % 58 - 1) == (0, 55)


@pytest.mark.parametrize(
    ("expr", "coeff", "base"),
    [
        (x * 6 + y * 4, 2, 0),
        ((x * 4 + 2) * (y * 6 + 1), 4, 2),
        ((x * 128 + y * 4) % 256, 4, 0),
        (truncdiv(x * 4 + 2, 2), 1, 0),
        ((x * 4 + 2) >> 1, 2, 1),
        ((x * 4 + 2) // 2, 2, 1),
        (truncmod(x * 4 + 1, 4), 1, 0),
        (truncmod(x * 4, 4), 4, 0),
        ((x * 4 + 3) % 8, 4, 3),
        (Max(x * 3 + 1, y * 9 + 4), 3, 1),
        (Select(x > 0, x * 3 + 1, y * 9 + 2), 1, 0),
        ((x * 12 + 1) - (y * 3 * 7 + 2), 3, 2),
        (Let(z, x * 10, z + 1), 10, 1),
        ((x * 16 + y * 4) & 31, 4, 0),
        (Ramp(x * 8 + 1, 4, 4), 4, 1),
    ],
    ids=str,
)
def test_residues(expr, coeff, base):
    assert Analyzer().modular_set(expr) == ModularSet(coeff, base)


def test_residues_are_learned_from_conditions_and_forgotten():
    known = Analyzer()
    with known.constraint_scope(EQ(truncmod(a, 3), 2)), known.constraint_scope(EQ(a % 5, 3)):
        with known.constraint_scope(EQ(a % 7, 2)):
            assert known.modular_set(a) == (105, 23)
            assert known.can_prove((a + 1) % 3 == 0)
        assert known.modular_set(a + 1) == (15, 9)
    assert known.modular_set(a) == (1, 0)
    # A cast to float32 rounds large numbers: the residue is lost.
    small = Var("s", "int8")
    assert known.modular_set(Cast("int32", Cast("float32", small * 3 + 1))) != (3, 1)
    assert known.modular_set(Cast("int32", Cast("float32", a * 3))) == (1, 0)


def covered(region, dom, predicate):
    """The points of the region, and of its dimensions."""
    points = set()
    names = list(dom)
    spans = [range(int(r.min), int(r.min + r.extent)) for r in dom.values()]
    for values in itertools.product(*spans):
        env = dict(zip(names, values))
        if evaluate_expr(predicate, env):
            spans = [
                range(worth(r.min, env), worth(r.min, env) + worth(r.extent, env)) for r in region
            ]
            points.update(itertools.product(*spans))
    return points


def random_region(seed):
    draw = random.Random(seed)
    dom = {x: Range(0, draw.randint(1, 8)), y: Range(draw.randint(0, 2), draw.randint(3, 7))}
    forms = [x, y, x * 4 + y, x // 2, x % 2, 5 - x, y * 2 + x, x * 3, (x * 4 + y) // 3]
    region = [
        Range.from_min_extent(draw.choice(forms) + draw.randint(-2, 2), draw.choice([1, 1, 2, 4]))
        for _ in range(draw.choice([1, 1, 2]))
    ]
    condition = draw.choice(
        [const(True), x * 4 + y < 9, And(x >= 1, x < 4), y > 3, x + y < 5, EQ(x % 2, 1)]
    )
    return region, dom, condition


@pytest.mark.parametrize("seed", range(200))
def test_regions_cover_what_is_reached(seed):
    region, dom, condition = random_region(seed)
    points = covered(region, dom, condition)
    upper = estimate_region_upper_bound(region, dom, condition)
    boxes = [ends(s, dict.fromkeys(dom, 0)) for s in upper]
    assert all(low <= p <= high for point in points for p, (low, high) in zip(point, boxes))
    exact = estimate_region_strict_bound(region, dom, condition)
    if exact is not None:
        sides = [range(low, high + 1) for low, high in (ends(s, {}) for s in exact)]
        assert set(itertools.product(*sides)) == points, (region, condition)


def test_exact_regions_are_found_where_programs_need_them():
    i, j, h = Var("i"), Var("j"), Var("h")

    def lower(pairs, dom, predicate=True):
        region = [Range.from_min_extent(p, Analyzer().simplify(q - p)) for p, q in pairs]
        found = estimate_region_lower_bound(region, dom, predicate)
        return None if found is None else [(str(s.min_value), str(s.max_value)) for s in found]

    dom = {i: Range(0, 64)}
    assert lower([(i * 4, i * 4 + 8)], dom) == [("0", "259")]
    assert lower([(i * 4, i * 4 + 2)], dom) is None
    assert lower([(i, i + 2), (i + 2, i + 4)], dom) is None
    flat = i * 4 + j
    dom = {i: Range(0, 16), j: Range(0, 4)}
    assert lower([(flat * 4, flat * 4 + 8)], dom, flat < 63) == [("0", "255")]
    column = i % 16 // 4 * 8 + i % 4 + j // 32 * 4
    dom = {i: Range(0, 32), j: Range(0, 64)}
    indices = [(i // 16, i // 16 + 1), (column, column + 1), (j % 32, j % 32 + 1)]
    assert lower(indices, dom) == [("0", "1"), ("0", "31"), ("0", "31")]
    tiled = h * 8 + j
    found = lower([(tiled, tiled + 1)], {j: Range(0, 10)}, And(1 <= tiled, tiled < 224))
    assert found == [("T.max(h * 8, 1)", "T.min(h * 8 + 9, 223)")]
    # A condition on other digits than the region's leaves no box.
    dom = {i: Range(0, 5), j: Range(0, 2)}
    whole = h * 8 + j * 5 + i
    assert lower([(whole, whole + 1)], dom, h * 8 + i * 2 + j < 224) is None


def test_linear_equations_are_read():
    def read(e, variables):
        return [str(p) for p in detect_linear_equation(e, variables)]

    assert read(a * 4 + b * 6 + 7, [a]) == ["4", "b * 6 + 7"]
    assert read(a * 4 * (a + 1) + b * 6 + 7, [a]) == []
    assert read(a * b + 7, [a]) == ["b", "7"]
    assert read(b * 7, [a]) == ["0", "b * 7"]
    assert read(b * 7, []) == ["b * 7"]
    assert read(((x * b + y) * 8 + z + 1) * 2, [x, y, z]) == ["b * 16", "16", "2", "2"]
    assert read(a // 2 + b, [a]) == []


def test_clips_are_read():
    def read(e, variables):
        return [None if p is None else str(p) for p in detect_clip_bound(e, variables)]

    assert read(And(a * 1 < b * 6, a - 1 > 0), [a]) == ["2", "b * 6 - 1"]
    assert read(And(a * 1 < b * 6, a - 1 > 0), [a, b]) == []
    assert read(And(a + 10 * c <= 20, b - 1 > 0), [a, b]) == [None, "20 - c * 10", "2", None]
    assert read(And(Not(a * 1 > b * 6), a - 1 > 0), [a]) == ["2", "b * 6"]
    assert read(And(Min(a, b) > 3, a - 10 < 0), [a, b]) == ["4", "9", "4", None]
    assert read(EQ(b, 3), [a, b]) == [None, None, "3", "3"]
    assert read(And(a * 3 < 10, a * -2 <= 7), [a]) == ["-3", "3"]


def test_common_parts_are_counted_as_they_are_written():
    e = (x + y) * z + (x + y) + Min(x + y, z)
    assert detect_common_subexpr(e, 2) == {x + y: 3}
    assert detect_common_subexpr(e, 4) == {}


@pytest.mark.parametrize("seed", range(150))
def test_a_deduced_bound_is_where_the_condition_holds(seed):
    draw = random.Random(seed)
    spans = {b: (2, 4), c: (-3, -1)}
    sets = {v: IntervalSet(*s) for v, s in spans.items()}
    e = a
    for _ in range(draw.randint(1, 3)):
        k = draw.choice([b, c, const(draw.choice([-8, -3, 1, 2, 5]))])
        e = draw.choice([e + k, e - k, k - e, e * k, e // k])
    right = const(draw.randint(-20, 20))
    condition = draw.choice([LT, LE, GT, GE])(e, right)
    relaxed = draw.random() < 0.5
    found = deduce_bound(a, condition, sets, sets if relaxed else {})
    for bv, cv in itertools.product(range(2, 5), range(-3, 0)):
        env = {b: bv, c: cv}
        low, high = ends(found, env) if not found.is_nothing() else (1, 0)
        for value in range(-30, 31):
            holds = worth(condition, env | {a: value})
            if low <= value <= high:
                assert holds, (str(condition), found, env, value)
            elif not relaxed and not found.is_nothing():
                assert not holds, (str(condition), found, env, value)


def test_bounds_that_cannot_be_deduced_are_nothing():
    for e in (a % 16, Min(a, 16), a * 2 - a, tir.exp(Cast("float32", a)), a * b, 8 // a):
        condition = e < (const(10.0) if e.dtype.is_float else const(10))
        assert deduce_bound(a, condition, {}, {}).is_nothing()
    assert deduce_bound(a, a + b, {}, {}).is_nothing()
    assert deduce_bound(a, EQ(4 * a, b), {}, {}).is_nothing()
    point = deduce_bound(a, EQ(a - c, b + x), {}, {})
    assert Analyzer().can_prove_equal(point.min_value, b + x + c)
    assert point.is_single_point()


def solutions(relations, variables, ranges):
    spans = [range(int(ranges[v].min), int(ranges[v].min + ranges[v].extent)) for v in variables]
    found = set()
    for values in itertools.product(*spans):
        env = dict(zip(variables, values))
        if all(evaluate_expr(e, env) for e in relations):
            found.add(values)
    return found


def random_system(seed, equations):
    draw = random.Random(seed)
    variables = [Var(f"x{k}") for k in range(draw.randint(1, 3))]
    ranges = {v: Range(-4, 5) for v in variables}

    def side():
        total = const(draw.randint(-4, 4))
        for v in variables:
            total = total + v * draw.randint(-3, 3)
        return total

    kinds = [EQ, EQ, LE, GT] if equations else [LE, LT, GE, GT, EQ]
    relations = [draw.choice(kinds)(side(), side()) for _ in range(draw.randint(1, 3))]
    return relations, variables, ranges


@pytest.mark.parametrize("seed", range(120))
def test_equations_have_the_solutions_that_their_new_variables_run_over(seed):
    relations, variables, ranges = random_system(seed, True)
    solution = solve_linear_equations(relations, variables, ranges)
    want = solutions(relations, variables, ranges)
    new = solution.dst
    if not solution.src_to_dst:
        assert not want
        return
    wide = {v: new.ranges.get(v, Range(-60, 61)) for v in new.variables}
    got = set()
    for values in solutions(new.relations, new.variables, wide):
        env = dict(zip(new.variables, values))
        point = tuple(worth(solution.src_to_dst[v], env) for v in variables)
        back = dict(zip(variables, point))
        assert all(worth(solution.dst_to_src[v], back) == env[v] for v in new.variables)
        got.add(point)
    assert got == want


@pytest.mark.parametrize("deskew", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_inequalities_keep_their_solutions(seed, deskew):
    relations, variables, ranges = random_system(1000 + seed, False)
    want = solutions(relations, variables, ranges)
    found = solve_linear_inequalities(relations, variables, ranges, deskew_range=deskew)
    if not deskew:
        facts = list(found.relations)
        for v, r in found.ranges.items():
            facts += [v >= r.min, v < r.min + r.extent]
        assert solutions(facts, variables, ranges) == want
        return
    if not found.src_to_dst:
        assert not want
        return
    for point in want:
        env = dict(zip(variables, point))
        new = {v: worth(found.dst_to_src[v], env) for v in found.dst.variables}
        assert all(0 <= new[v] < worth(r.extent, new) for v, r in found.dst.ranges.items())
        assert all(evaluate_expr(e, new) for e in found.dst.relations)
        assert all(worth(found.src_to_dst[v], new) == env[v] for v in variables)


def test_two_variables_bound_each_other():
    problem = [LE(x + y, 20), GE(x - y, 10)]
    found = solve_linear_inequalities(problem, [x, y], {x: Range(-100, 100), y: Range(0, 10)})
    assert (int(found.ranges[y].min), int(found.ranges[y].extent)) == (0, 6)
    assert found.ranges[x].min is Analyzer().simplify(y + 10)
    assert int(found.ranges[x].extent) == 11
    point = solve_linear_inequalities([x + y >= 10, x - y >= 2, x <= 6], [x, y], deskew_range=True)
    assert {v.name: int(e) for v, e in point.src_to_dst.items()} == {"x": 6, "y": 4}
    nothing = solve_linear_inequalities([x < 3, x > 5], [x])
    assert [e.value for e in nothing.relations] == [0]


def test_what_is_bound_in_a_scope_stays_and_what_is_assumed_goes():
    known = Analyzer()
    with known.constraint_scope(y > 0):
        known.bind(x, Range.from_min_extent(0, 100))
        assert known.can_prove(And(x < 100, y > 0))
    assert not known.can_prove(y > 0)
    assert known.can_prove(x < 100)
    with known.constraint_scope(x < y), known.constraint_scope(y < z):
        assert known.can_prove(x + 2 <= z)
        assert known.can_prove(substitute(x < a, {a: z}))
    assert not known.can_prove(x < z)
