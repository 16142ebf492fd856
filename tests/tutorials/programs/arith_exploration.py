"""Scalar reasoning: simplification, bounds, residues, sets, constraints, proofs, iteration maps,
linear systems; then a brute-force look at what was said.
"""

import itertools

import tvm
from tvm import arith, te, tir

analyzer = tvm.arith.Analyzer()
x, y, z = te.var("x"), te.var("y"), te.var("z")
fld, flm = tvm.te.floordiv, tvm.te.floormod
tdiv, tmod = tvm.tir.truncdiv, tvm.tir.truncmod

# --- simplify
print(
    analyzer.simplify(x + y - x),
    analyzer.simplify(flm(x * 4 + 2, 4)),
    analyzer.simplify(tir.min(x, x + 1)),
)
tvm.ir.assert_structural_equal(analyzer.rewrite_simplify(x - x), tir.IntImm("int32", 0))
tvm.ir.assert_structural_equal(analyzer.canonical_simplify(fld(x * 8 + y - y, 4)), x * 2)
tvm.ir.assert_structural_equal(analyzer.simplify(fld(x, 8) * 8 + flm(x, 8)), x)
tvm.ir.assert_structural_equal(analyzer.simplify(tvm.tir.max(x + 1, x)), x + 1)
assert analyzer.can_prove_equal(fld(fld(x, 2), 3), fld(x, 6))
assert analyzer.can_prove(tir.any(x >= y, x < y))

# --- constant bounds
analyzer.update(x, tvm.arith.ConstIntBound(-9, 9))
analyzer.update(y, tvm.arith.ConstIntBound(4, 10))
for expr in (
    x + y,
    x - y,
    x * y,
    fld(x, 2),
    flm(x, y),
    tir.max(x, y),
    tir.Select(x > 1, y < 0, y > 1),
):
    bound = analyzer.const_int_bound(expr)
    print(expr, "in", [bound.min_value, bound.max_value])
unknown = analyzer.const_int_bound(z)
assert unknown.max_value in (arith.ConstIntBound.POS_INF, 2**31 - 1)
assert not analyzer.const_int_bound_is_bound(z)
assert analyzer.const_int_bound_is_bound(x)
analyzer.update(x, tvm.arith.ConstIntBound(0, 3), True)
assert analyzer.const_int_bound(x).max_value == 3

# --- residues
analyzer = tvm.arith.Analyzer()
m = analyzer.modular_set(4 * x + 8 * y + 2)
print(m.coeff, m.base)
m = analyzer.modular_set(flm(6 * x + 3, 4))
print(m.coeff, m.base)
with analyzer.constraint_scope(flm(x, 4) == 3):
    m = analyzer.modular_set(x + 2)
    print(m.coeff, m.base)
    tvm.ir.assert_structural_equal(analyzer.simplify(flm(x, 4)), tir.IntImm("int32", 3))
m = analyzer.modular_set(x)
assert (m.coeff, m.base) == (1, 0)

# --- bindings and constraints
analyzer = tvm.arith.Analyzer()
analyzer.bind(x, tvm.ir.Range(0, 16))
analyzer.bind(y, tvm.ir.Range.from_min_extent(0, 4))
tvm.ir.assert_structural_equal(analyzer.simplify(fld(x * 4 + y, 4)), x)
tvm.ir.assert_structural_equal(analyzer.simplify(flm(x * 4 + y, 4)), y)
assert analyzer.can_prove(x * 4 + y < 64)
assert analyzer.can_prove_greater_equal(x, 0)
assert analyzer.can_prove_less(x, 16)
assert not analyzer.can_prove(x < 15)
with analyzer.constraint_scope(z < 10):
    with analyzer.constraint_scope(z >= 8):
        assert analyzer.can_prove(fld(z, 2) == 4)
assert not analyzer.can_prove(fld(z, 2) == 4)
assert analyzer.can_prove(x * x >= 0, arith.ProofStrength.SYMBOLIC_BOUND)

# --- sets
dom = {x: tvm.arith.IntervalSet(0, 10), y: tvm.arith.IntervalSet(-4, 1)}
for expr in (x + y, 2 * x + 1, fld(x, 3)):
    s = analyzer.int_set(expr, dom)
    print(expr, s.min_value, s.max_value)
assert arith.IntSet.single_point(3).min_value == 3
region = [tvm.ir.Range.from_min_extent(x * 4 + y, 1)]
(tight,) = arith.estimate_region_lower_bound(
    region, {x: tvm.ir.Range(0, 4), y: tvm.ir.Range(0, 4)}, predicate=tir.const(True, "bool")
)
print(tight.min_value, tight.max_value)

# --- bounds from inequalities, coefficients from expressions
a, b, c, d = (te.var(name) for name in "abcd")
b_s, c_s, d_s = arith.IntervalSet(2, 3), arith.IntervalSet(10, 15), arith.IntervalSet(-3, -1)
e = (-b) * a + c - d
res = arith.deduce_bound(a, e >= 0, {b: b_s, c: c_s, d: d_s}, {})
print(res.max_value)
print([int(i) for i in arith.detect_linear_equation(a * 2 + b * 3 + 5, [a, b])])
low, high = arith.detect_clip_bound(tvm.tir.all(a <= 10, a >= 3), [a])
print(analyzer.simplify(low), analyzer.simplify(high))
solution = arith.solve_linear_equations([tir.EQ(x + y, 10), tir.EQ(x - y, 2)], [x, y], {})
print([int(solution.src_to_dst[v]) for v in (x, y)])
loose = arith.solve_linear_inequalities([a <= 7, a >= 2], [a], {a: tvm.ir.Range(0, 100)})
assert loose is not None

# --- iteration maps: a fusion and a split of loops
i, j, k = (tir.Var(name, "int32") for name in "ijk")
dom = {i: tvm.ir.Range(0, 4), j: tvm.ir.Range(0, 8)}
result = arith.detect_iter_map([fld(i * 8 + j, 16), flm(i * 8 + j, 16)], dom)
print([int(split.extent) for split in (e.args[0] for e in result.indices)], len(result.errors))
assert not arith.detect_iter_map([flm(i + j, 8)], dom).indices
simple = arith.iter_map_simplify([fld(i * 8 + j, 8), flm(i * 8 + j, 8)], dom)
tvm.ir.assert_structural_equal(list(simple), [i, j])
res = arith.detect_iter_map([i * 8 + j], dom)
inverse = arith.inverse_affine_iter_map(res.indices, [k])
print({v.name: analyzer.simplify(inverse[v]) for v in (i, j)})
div = arith.subspace_divide([i * 8 + j], dom, [j])
assert len(div) == 2

# --- trust, and look: every value of small variables
env = {x: range(-5, 6), y: range(1, 4)}
for expr in (
    fld(x, y) * y + flm(x, y),
    tir.max(tir.min(x, 3), tir.min(x, 2)),
    tdiv(x * 6, 3) - x * 2,
    fld(x + 7, 4) - fld(x + 3, 4),
    tmod(x * 2, 2),
):
    analyzer = tvm.arith.Analyzer()
    analyzer.bind(y, tvm.ir.Range(1, 4))
    simple = analyzer.simplify(expr)
    for values in itertools.product(*env.values()):
        at = dict(zip(env, (tir.const(v, "int32") for v in values)))
        left, right = (
            tvm.arith.Analyzer().simplify(tir.stmt_functor.substitute(side, at))
            for side in (expr, simple)
        )
        assert int(left) == int(right), (expr, simple, values)
    print(expr, "->", simple)
