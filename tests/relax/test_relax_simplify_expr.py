"""SimplifyExpr and the other passes that are rules: one line of algebra each."""

import warnings

import numpy as np
import pytest
from pass_cases import becomes, parse, same_results, stays
from simplify_cases import random_module

from relaxvm import relax
from relaxvm.base import PassError, PatternError
from relaxvm.ir import IRModule, PassContext, structural_equal
from relaxvm.relax import op as R
from relaxvm.relax import transform
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.interp import Evaluator
from relaxvm.relax.transform import rule_text, simplify_expr

run = transform.SimplifyExpr()


def main(params, results, *lines):
    """A main of dataflow bindings."""
    body = "\n".join(f"        {line}" for line in (*lines, f"R.output({results})"))
    return (
        f"@R.function\ndef main({params}):\n    with R.dataflow():\n{body}\n    return {results}\n"
    )


X = 'x: R.Tensor((2, 3, 4), "float32")'
N = 'x: R.Tensor(("n", 4), "float32")'
INT = 'x: R.Tensor((6,), "int32")'
# name -> (parameters, bindings before, bindings after)
CASES = {
    "reshapes become one": (X, "a = R.reshape(x, (6, 4)); b = R.reshape(a, (24,))",
                            "b = R.reshape(x, (24,))"),
    "reshapes with symbols become one": (
        N, "a = R.expand_dims(x, 0); b = R.reshape(a, (4 * n,))", "b = R.reshape(x, (4 * n,))"),
    "expand and squeeze are undone": (
        X, "a = R.expand_dims(x, 1); b = R.squeeze(a, 1); c = R.exp(b)", "c = R.exp(x)"),
    "transposes become one": (
        X, "a = R.permute_dims(x, (1, 2, 0)); b = R.permute_dims(a, (1, 0, 2))",
        "b = R.permute_dims(x, (2, 1, 0))"),
    "transposes are undone": (
        X, "a = R.permute_dims(x); b = R.permute_dims(a); c = R.exp(b)", "c = R.exp(x)"),
    "a transpose of unit axes is a reshape": (
        'x: R.Tensor((1, 3, 4), "float32")', "a = R.permute_dims(x, (1, 0, 2))",
        "a = R.reshape(x, (3, 1, 4))"),
    "casts to what holds everything are undone": (
        'x: R.Tensor((4,), "float16")',
        'a = R.astype(x, "float32"); b = R.astype(a, "float16"); c = R.exp(b)', "c = R.exp(x)"),
    "a scalar stands for an array of one number": (
        X, "o = R.full(R.shape([2, 3, 4]), R.const(3.0)); b = R.maximum(x, o)",
        "b = R.maximum(x, R.const(3.0))"),
    "divisions by powers of two are products": (
        X, "b = R.divide(x, R.const(8.0))", "b = R.multiply(x, R.const(0.125))"),
    "integer constants meet": (
        INT, "a = R.add(x, R.const(2147483647)); b = R.add(R.const(2), a)",
        "b = R.add(x, R.const(-2147483647))"),
    "slices of everything in order are the whole": (
        INT, "a = R.strided_slice(x, (0,), (0,), (4,)); b = R.strided_slice(x, (0,), (4,), (6,));"
        " c = R.concat((a, b)); d = R.exp(R.astype(c, 'float32'))",
        "c = R.astype(x, 'float32'); d = R.exp(c)"),
    "a split joined again is the whole": (
        X, "t = R.split(x, 3, axis=1); a = t[0]; b = t[1]; c = t[2];"
        " d = R.concat((a, b, c), axis=1); e = R.exp(d)", "e = R.exp(x)"),
    "slices of slices become one": (
        X, "a = R.strided_slice(x, (2,), (1,), (4,)); b = R.strided_slice(a, (2,), (1,), (2,))",
        "b = R.strided_slice(x, (2,), (2,), (3,), (1,))"),
    "a row of indices is a slice": (
        X, "a = R.take(x, R.const([1, 2]), axis=1)",
        "a = R.strided_slice(x, (1,), (1,), (3,), (1,))"),
    "indices of arange are a slice": (
        X, 'i = R.arange(0, 4, 2, "int64"); a = R.take(x, i, axis=2)',
        "a = R.strided_slice(x, (2,), (0,), (3,), (2,))"),
    "pads become one": (
        INT, "a = R.nn.pad(x, (1, 2)); b = R.nn.pad(a, (3, 0))", "b = R.nn.pad(x, (4, 2))"),
    "a choice that is known": (
        X, "a = R.where(R.const(False), R.exp(x), x); b = R.sin(a)", "b = R.sin(x)"),
    "two signs": (X, "a = R.negative(x); b = R.negative(a); c = R.exp(b)", "c = R.exp(x)"),
    "limits meet": (
        X, "a = R.clip(x, 0, 6); b = R.clip(a, 1, 9)", "b = R.clip(x, 1, 6)"),
    "broadcasts are the binary operator's": (
        X, "a = R.broadcast_to(R.const([1.0, 2.0, 3.0, 4.0]), (2, 3, 4)); b = R.add(x, a)",
        "b = R.add(x, R.const([1.0, 2.0, 3.0, 4.0]))"),
}  # fmt: skip


def result_of(lines):
    return lines.split(";")[-1].split("=")[0].strip()


def written(params, lines):
    body = ["n = T.int64()"] if '"n"' in params else []
    return main(params, result_of(lines), *body, *(line.strip() for line in lines.split(";")))


@pytest.mark.parametrize("op", ["reshape", "broadcast_to"])
def test_sizes_of_what_is_alike_everywhere_are_still_checked_at_run_time(op):
    text = f"y = R.{op}(R.full(R.shape([4]), R.const(3.0)), R.shape([n]))"
    stays(run, main('x: R.Tensor(("n",), "float32")', "y", text))


@pytest.mark.parametrize("name", CASES)
def test_rule(name):
    params, before, after = CASES[name]
    becomes(run, written(params, before), written(params, after))


F, I, B = (
    f'x: R.Tensor((4, 1), "{t}"), y: R.Tensor((4, 1), "{t}")' for t in ("float32", "int32", "bool")
)
SHORT = [
    (F, "R.add(x, R.const(-0.0))", "x"),
    (F, "R.subtract(x, R.const(0.0))", "x"),
    (F, "R.multiply(R.const([[1.0]]), x)", "x"),
    (F, "R.divide(x, R.const(1.0))", "x"),
    (F, "R.add(x, R.negative(y))", "R.subtract(x, y)"),
    (F, "R.subtract(x, R.negative(y))", "R.add(x, y)"),
    (F, "R.multiply(R.negative(x), R.negative(y))", "R.multiply(x, y)"),
    (F, "R.divide(R.negative(x), R.negative(y))", "R.divide(x, y)"),
    (F, "R.abs(R.negative(x))", "R.abs(x)"),
    (F, "R.square(R.negative(x))", "R.square(x)"),
    (F, "R.square(R.abs(x))", "R.square(x)"),
    (F, "R.nn.relu(R.nn.relu(x))", "R.nn.relu(x)"),
    (F, "R.floor(R.round(x))", "R.round(x)"),
    (F, "R.maximum(x, x)", "x"),
    (F, "R.where(R.const(True), x, y)", "x"),
    (F, "R.where(R.greater(x, y), y, y)", "y"),
    (F, "R.divide(R.broadcast_to(x, (4, 2)), R.exp(R.broadcast_to(y, (4, 2))))",
     "R.divide(x, R.exp(R.broadcast_to(y, (4, 2))))"),
    (F, "R.broadcast_to(x, (4, 1))", "x"),
    (F, "R.broadcast_to(R.broadcast_to(x, (4, 2)), (3, 4, 2))", "R.broadcast_to(x, (3, 4, 2))"),
    (F, "R.add(R.broadcast_to(x, (4, 2)), R.broadcast_to(y, (4, 2)))",
     "R.add(R.broadcast_to(x, (4, 2)), y)"),
    (F, "R.collapse_sum_to(x, (4, 1))", "x"),
    (F, "R.collapse_sum_like(x, y)", "x"),
    (F, "R.flip(R.flip(x, 0), -2)", "x"),
    (F, "R.tile(x, (1, 1))", "x"),
    (F, "R.repeat(x, 1, 0)", "x"),
    (F, "R.nn.pad(x, (0, 0, 0, 0))", "x"),
    (F, "R.concat((x,))", "x"),
    (F, "R.strided_slice(x, (0,), (0,), (4,))", "x"),
    (F, "R.strided_slice(R.concat((x, y)), (0,), (5,), (7,))",
     "R.strided_slice(y, (0,), (1,), (3,), (1,))"),
    (F, "R.permute_dims(R.full(R.shape([1, 4]), R.const(3.0)))",
     "R.full(R.shape([4, 1]), R.const(3.0))"),
    (I, "R.add(x, R.const(0))", "x"),
    (I, "R.multiply(x, R.const(0))", 'R.zeros(R.shape([4, 1]), "int32")'),
    (I, "R.subtract(x, x)", 'R.zeros(R.shape([4, 1]), "int32")'),
    (I, "R.bitwise_xor(x, x)", 'R.zeros(R.shape([4, 1]), "int32")'),
    (I, "R.multiply(R.multiply(x, R.const(3)), R.const(5))", "R.multiply(x, R.const(15))"),
    (I, "R.floor_divide(x, R.const(1))", "x"),
    (I, "R.power(x, R.const(1))", "x"),
    (I, "R.left_shift(x, R.const(0))", "x"),
    (I, "R.right_shift(x, R.const(0))", "x"),
    (I, "R.bitwise_or(x, R.const(0))", "x"),
    (I, "R.bitwise_xor(x, R.const(0))", "x"),
    (I, "R.bitwise_and(x, R.const(-1))", "x"),
    (I, "R.bitwise_not(R.bitwise_not(x))", "x"),
    (B, "R.logical_and(x, R.const(True))", "x"),
    (B, "R.logical_and(R.const(True), x)", "x"),
    (B, "R.logical_or(x, R.const(False))", "x"),
    (B, "R.logical_or(R.const(False), x)", "x"),
    (B, "R.logical_and(x, R.const(False))", 'R.zeros(R.shape([4, 1]), "bool")'),
    (B, "R.logical_or(x, R.const(True))", 'R.ones(R.shape([4, 1]), "bool")'),
    (B, "R.where(R.logical_not(x), x, y)", "R.where(x, y, x)"),
]  # fmt: skip
LOOSER = [
    (F, "R.add(x, R.const(0.0))", "x"),
    (F, "R.subtract(x, R.const(-0.0))", "x"),
    (F, "R.multiply(x, R.const(0.0))", 'R.zeros(R.shape([4, 1]), "float32")'),
    (F, "R.subtract(x, x)", 'R.zeros(R.shape([4, 1]), "float32")'),
    (F, "R.power(x, R.const(1.0))", "x"),
    (F, "R.power(x, R.const(2.0))", "R.multiply(x, x)"),
    (F, "R.power(x, R.const(0.5))", "R.sqrt(x)"),
    (F, "R.power(x, R.const(-0.5))", "R.rsqrt(x)"),
    (F, "R.add(R.add(x, R.const(1.0)), R.const(2.0))", "R.add(x, R.const(3.0))"),
]


@pytest.mark.parametrize(("params", "before", "after"), SHORT)
def test_short_rule(params, before, after):
    becomes(run, *(main(params, "b", f"b = ({value}, y)") for value in (before, after)))


@pytest.mark.parametrize(("params", "before", "after"), LOOSER)
def test_looser_rule(params, before, after):
    before, after = (main(params, "b", f"b = ({value}, y)") for value in (before, after))
    becomes(transform.SimplifyExpr(numerics="approximate"), before, after)
    if "power" not in before:
        stays(run, before)


STAYS = {
    "a sum with 0.0 loses the sign of -0.0": (X, "a = R.add(x, R.const(0.0))"),
    "a float times 0 may be NaN": (X, "a = R.multiply(x, R.const(0.0))"),
    "a difference may be NaN": (X, "a = R.subtract(x, x)"),
    "a cast to less loses": ('x: R.Tensor((4,), "float32")',
                             'a = R.astype(x, "float16"); b = R.astype(a, "float32")'),
    "integers wrap where floats saturate": (
        INT, 'a = R.astype(x, "float64"); b = R.astype(a, "int8")'),
    "integers are rounded in float32": (
        INT, 'a = R.astype(x, "float32"); b = R.astype(a, "int32")'),
    "a third has no exact reciprocal": (X, "a = R.divide(x, R.const(3.0))"),
    "a zero may be the larger operand": (
        'x: R.Tensor((4,), "int32")', "a = R.add(x, R.const([[0] * 4] * 2, 'int32'))"),
    "a slice may turn around": (
        'x: R.Tensor((4,), "float32")', "a = R.strided_slice(x, (0,), (3,), (-5,), (-1,))"),
    "pieces in another order": (
        X, "t = R.split(x, 3, axis=1); a = t[0]; b = t[1]; c = t[2]; d = R.concat((a, c, b), 1)"),
    "pieces along another axis": (
        'x: R.Tensor((2, 2), "float32")',
        "t = R.split(x, 2, axis=0); a = t[0]; b = t[1]; c = R.concat((a, b), 1)"),
    "indices beyond the end are for the program to report": (
        X, "a = R.take(x, R.const([2, 3]), axis=1)"),
    "sums of floats are rounded in order": (
        X, "a = R.add(x, R.const(1.0)); b = R.add(a, R.const(2.0))"),
    "pads of other values": (
        X, "a = R.nn.pad(x, (1, 1, 0, 0, 0, 0)); "
        'b = R.nn.pad(a, (1, 1, 0, 0, 0, 0), "constant", 1.0)'),
}  # fmt: skip


@pytest.mark.parametrize("name", STAYS)
def test_no_rule_because(name):
    params, lines = STAYS[name]
    stays(run, written(params, lines))


def test_looser_rules_run_where_they_are_asked_for_and_allowed():
    text = main(X, "b", "a = R.add(x, R.const(0.0))", "b = R.power(a, R.const(2.0))")
    after = main(X, "b", "b = R.multiply(x, x)")
    becomes(transform.SimplifyExpr(numerics="approximate"), text, after)
    with PassContext(config={"numerics": "exact"}):
        stays(transform.SimplifyExpr(numerics="approximate"), text)
    with pytest.raises(PassError, match="numerics is one of exact, reassociates, approximate"):
        transform.SimplifyExpr(numerics="loose")(parse(text))


def test_what_something_writes_into_is_not_read_later():
    stays(
        run,
        """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            a = R.negative(x)
            z = R.call_inplace_packed("fill", a, inplace_indices=[0],
                                      sinfo_args=R.Tensor((4,), "float32"))
            b = R.negative(a)
            return (b, z)
        """,
    )


def test_rules_that_undo_each_other_are_named():
    rules = (
        rule_text.rule("exact", "exp(x)", lambda x: R.sin(x)),
        rule_text.rule("exact", "sin(x)", lambda x: R.exp(x)),
    )
    mod = parse(main(X, "a", "a = R.exp(x)"))
    with pytest.raises(PatternError, match=r"for sin\(x\) and .* for exp\(x\) undo each"):
        rule_text.rewritten(mod["main"], mod, PassContext(), rules)


def test_what_was_simplified_is_told():
    with PassContext() as ctx:
        run(parse(main(X, "b", "b = R.divide(x, R.const(8.0))")))
    assert any("divide" in d.text and "divide(x, c)" in d.text for d in ctx.report)


# -- random graphs --------------------------------------------------------------------------------


def bits(values):
    """What two results must have alike: dtypes, shapes, numbers, signs of zeros."""
    made = []
    for value in values:
        a = np.asarray(value)
        signs = np.signbit(a) & ~np.isnan(a) if a.dtype.kind == "f" else ()
        numbers = np.where(np.isnan(a), 0, a) if a.dtype.kind == "f" else a
        made.append(
            (a.dtype.str, a.shape, numbers.tolist(), np.isnan(a).tolist(), list(np.ravel(signs)))
        )
    return made


PASSES = {
    "SimplifyExpr": run,
    "RemoveRedundantReshape": transform.RemoveRedundantReshape(),
    "CanonicalizeOps": transform.CanonicalizeOps(),
    "CanonicalizeCast": transform.CanonicalizeCast(),
    "FoldExplicitPadding": transform.FoldExplicitPadding(),
}


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("symbolic", [False, True])
def test_random_graphs_have_the_same_bits(name, symbolic):
    change = PASSES[name]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(10):
            mod, args = random_module(seed, symbolic)
            new = change(mod)
            assert_well_formed(new)
            assert name == "CanonicalizeCast" or change(new) is new, f"seed {seed} is not settled"
            got, wanted = (Evaluator(m)("main", *args) for m in (new, mod))
            assert bits(got) == bits(wanted), f"seed {seed}"


def test_every_rule_is_used_here():
    told = set()
    texts = [written(params, before) for params, before, _ in CASES.values()]
    texts += [main(params, "b", f"b = {before}") for params, before, _ in (*SHORT, *LOOSER)]
    for text in texts:
        with PassContext() as ctx:
            transform.SimplifyExpr(numerics="approximate")(parse(text))
        told.update(d.subjects[1] for d in ctx.report)
    missing = {r.text for r in simplify_expr.RULES} - told
    assert not missing


def test_ten_thousand_bindings():
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    last, bindings = x, []
    for i in range(10_000):
        value = (R.negative, R.abs, lambda v: R.multiply(v, relax.const(1.0)))[i % 3](last)
        last = relax.Var(f"v{i}", value.struct_info)
        bindings.append(relax.VarBinding(last, value))
    fn = relax.Function([x], relax.SeqExpr([relax.BindingBlock(bindings)], last))
    mod = IRModule({"main": fn.with_attr("global_symbol", "main")})
    made = run(mod)
    assert len(made["main"].body.blocks[0].bindings) <= 2
    assert structural_equal(run(made), made)


# -- the other passes -----------------------------------------------------------------------------


def test_quotients_become_products():
    becomes(
        transform.DivToMul(),
        main(
            X + ', y: R.Tensor((4,), "float32")',
            "b",
            "a = R.divide(x, R.const(5.0))",
            "b = R.divide(a, y)",
        ),
        main(
            X + ', y: R.Tensor((4,), "float32")',
            "b",
            "a = R.multiply(x, R.const(0.2))",
            "c = R.divide(R.const(1.0), y)",
            "b = R.multiply(a, c)",
        ),
    )
    stays(transform.DivToMul(), main(X, "b", "b = R.divide(x, x)"))


def test_fast_math_uses_identities_of_real_numbers():
    becomes(
        transform.FastMath(),
        main(X + ', v: R.Tensor((4,), "float32")', "b", "a = R.sqrt(v)", "b = R.divide(x, a)"),
        main(X + ', v: R.Tensor((4,), "float32")', "b", "a = R.rsqrt(v)", "b = R.multiply(x, a)"),
    )
    assert transform.FastMathTransform is transform.FastMath
    with PassContext(config={"numerics": "exact"}):
        stays(transform.FastMath(), main(X, "b", "a = R.exp(x)", "b = R.log(a)"))


def test_gradients_of_zeros_and_ones_are_never_made():
    becomes(
        transform.LazyGradientInit(),
        main(
            X,
            "d",
            "a = R.zeros_like(x)",
            "b = R.add(a, x)",
            "c = R.multiply(b, R.ones_like(x))",
            "d = R.exp(c)",
        ),
        main(X, "d", "d = R.exp(x)"),
    )


def test_one_operator_stands_for_those_that_say_the_same():
    becomes(
        transform.CanonicalizeOps(),
        main(
            X, "c", "a = R.expand_dims(x, 0)", "b = R.square(a)", "c = R.subtract(b, R.const(1.0))"
        ),
        main(
            X,
            "c",
            "a = R.reshape(x, (1, 2, 3, 4))",
            "b = R.multiply(a, a)",
            "c = R.add(b, R.const(-1.0))",
        ),
    )


def test_each_reader_widens_for_itself():
    params = 'x: R.Tensor((4,), "int8"), y: R.Tensor((4,), "int32")'
    lines = ['a = R.astype(x, "int32")', "b = R.multiply(a, a)"]
    after = main(
        params, "d", *lines, 'e = R.astype(x, "int32")', "c = R.add(e, y)", "d = R.multiply(b, c)"
    )
    becomes(
        transform.CanonicalizeCast(),
        main(params, "d", *lines, "c = R.add(a, y)", "d = R.multiply(b, c)"),
        after,
    )


CONV = 'x: R.Tensor((1, 2, 6, 6), "float32"), w: R.Tensor((3, 2, 3, 3), "float32")'


def test_convolutions_and_pools_pad_themselves():
    fold = transform.FoldExplicitPadding()
    pad = "a = R.nn.pad(x, (0, 0, 0, 0, 1, 2, 3, 0))"
    becomes(
        fold,
        main(CONV, "b", pad, "b = R.nn.conv2d(a, w, padding=(1, 0, 0, 1))"),
        main(CONV, "b", "b = R.nn.conv2d(x, w, padding=(2, 3, 2, 1))"),
    )
    becomes(
        fold,
        main(CONV, "b", pad, "b = R.nn.avg_pool2d(a, (2, 2))"),
        main(
            CONV,
            "b",
            "b = R.nn.avg_pool2d(x, (2, 2), padding=(1, 3, 2, 0), count_include_pad=True)",
        ),
    )
    becomes(
        fold,
        main(
            CONV,
            "b",
            pad.replace("0))", '0), "constant", float("-inf"))'),
            "b = R.nn.max_pool2d(a, (2, 2))",
        ),
        main(CONV, "b", "b = R.nn.max_pool2d(x, (2, 2), padding=(1, 3, 2, 0))"),
    )
    for text in (
        main(CONV, "b", pad, "b = R.nn.max_pool2d(a, (2, 2))"),
        main(CONV, "b", pad, "b = R.nn.avg_pool2d(a, (2, 2), padding=(1, 1))"),
        main(CONV, "b", pad.replace("0))", '0), "reflect")'), "b = R.nn.conv2d(a, w)"),
        main(CONV, "b", "a = R.nn.pad(x, (1, 1, 0, 0, 0, 0, 0, 0))", "b = R.nn.conv2d(a, w)"),
    ):
        stays(fold, text)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_space_to_batch_around_a_convolution_dilates_it(layout):
    if layout == "NCHW":
        params = 'x: R.Tensor((2, 3, 8, 12), "float32"), w: R.Tensor((5, 3, 3, 3), "float32")'
        shapes = "(2, 3, 4, 2, 4, 3)", "(12, 3, 4, 4)", "(2, 3, 2, 5, 2, 2)", "(2, 5, 4, 6)"
        there, back = (3, 5, 0, 1, 2, 4), (2, 3, 4, 0, 5, 1)
        words = ""
    else:
        params = 'x: R.Tensor((2, 8, 12, 3), "float32"), w: R.Tensor((5, 3, 3, 3), "float32")'
        shapes = "(2, 4, 2, 4, 3, 3)", "(12, 4, 4, 3)", "(2, 3, 2, 2, 2, 5)", "(2, 4, 6, 5)"
        there, back = (2, 4, 0, 1, 3, 5), (2, 3, 0, 4, 1, 5)
        words = ', data_layout="NHWC", kernel_layout="OHWI"'
    before = main(
        params,
        "g",
        f"a = R.reshape(x, {shapes[0]})",
        f"b = R.permute_dims(a, {there})",
        f"c = R.reshape(b, {shapes[1]})",
        f"d = R.nn.conv2d(c, w{words})",
        f"e = R.reshape(d, {shapes[2]})",
        f"f = R.permute_dims(e, {back})",
        f"g = R.reshape(f, {shapes[3]})",
    )
    made = becomes(
        transform.FlattenAtrousConv(),
        before,
        main(params, "g", f"g = R.nn.conv2d(x, w, dilation=(2, 3){words})"),
    )
    rng = np.random.default_rng(0)
    args = [
        rng.integers(-4, 5, [int(d) for d in p.struct_info.shape]).astype("float32")
        for p in made["main"].params
    ]
    same_results(parse(before), made, *args)
    # Blocks put back another way around are something else.
    other = (back[0], back[1], back[4], back[3], back[2], back[5])
    stays(transform.FlattenAtrousConv(), before.replace(str(back), str(other)))


@pytest.mark.parametrize(
    "body",
    [
        "R.repeat(x, 3, 1)",
        "R.tile(x, (2, 3))",
        "R.nn.pad(x, (1, 0, 2, 1))",
        "R.add(x, R.zeros((3, 3), 'float32'))",
    ],
)
def test_what_has_unknown_sizes_stays(body):
    mod = parse(
        f"""
@R.function
def main(x: R.Tensor(ndim=2, dtype="float32")):
    with R.dataflow():
        r = {body}
        R.output(r)
    return r
"""
    )
    assert transform.SimplifyExpr()(mod) is mod
