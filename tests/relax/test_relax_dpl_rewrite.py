"""Functions rewritten where patterns match."""

import functools
import itertools
import operator
import random

import numpy as np
import pytest
from fuzz import graph_programs, graphs
from pass_cases import parse, same_results

from relaxvm import relax
from relaxvm import transform as passes
from relaxvm.base import PatternError, VerifyError
from relaxvm.ir import IRModule, PassContext, assert_structural_equal
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.dpl import (
    PatternContext,
    PatternMatchingRewriter,
    TupleRewriter,
    is_op,
    is_tuple,
    rewrite_bindings,
    rewrite_call,
    wildcard,
)
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R

TWO = R.const(2.0, "float32")


def rewritten(rewrite, before, after):
    """Check what `rewrite` makes of main, and that the module before stays as it was."""
    mod = parse(before)
    text = mod.script()
    new = IRModule({"main": rewrite(mod["main"])})
    assert_well_formed(new)
    assert_structural_equal(new, parse(after))
    assert mod.script() == text
    assert rewrite(new["main"]) is new["main"]
    return mod, new


def double(fn):
    x = wildcard()
    return rewrite_call(
        is_op("relax.add")(x, x), lambda call, found: relax.op.multiply(found[x], TWO), fn
    )


def test_a_call_is_replaced_and_what_it_reads_stays_bound():
    mod, new = rewritten(
        double,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, a)
                c = R.add(b, a)
                d = R.add(c, c)
                R.output(d)
            return d
        """,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.multiply(a, R.const(2.0, "float32"))
                c = R.add(b, a)
                d = R.multiply(c, R.const(2.0, "float32"))
                R.output(d)
            return d
        """,
    )
    same_results(mod, new, np.arange(4, dtype="float32"))


def test_a_value_that_is_known_already_takes_the_place_of_the_match():
    rewritten(
        lambda fn: rewrite_call(
            is_op("relax.exp")(is_op("relax.log")(a := wildcard())), lambda c, found: found[a], fn
        ),
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.log(a)
                c = R.exp(b)
                d = R.add(c, x)
                R.output(d)
            return d
        """,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.nn.relu(x)
                d = R.add(a, x)
                R.output(d)
            return d
        """,
    )


def test_results_are_looked_at_again_and_matches_go_through_them():
    x = wildcard()
    negative = is_op("relax.negative")
    rewritten(
        lambda fn: rewrite_call(negative(negative(x)), lambda call, found: found[x], fn),
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.negative(x)
            b = R.negative(a)
            c = R.negative(b)
            d = R.negative(c)
            e = R.negative(d)
            return e
        """,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            e = R.negative(x)
            return e
        """,
    )


def test_the_matched_value_may_stand_in_the_new_one():
    mod = parse(
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            b = R.exp(a)
            return b
        """
    )
    new = rewrite_call(
        is_op("relax.exp")(wildcard()), lambda call, _: relax.op.nn.relu(call), mod["main"]
    )
    text = new.script()
    assert text.count("R.exp") == 2 and text.count("R.nn.relu") == 2
    assert_well_formed(IRModule({"main": new}))


def test_a_rule_may_leave_what_it_is_given():
    fn = parse(
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.add(x, x)
            return a
        """
    )["main"]
    p = is_op("relax.add")(wildcard(), wildcard())
    assert rewrite_call(p, lambda call, _: call, fn) is fn
    assert rewrite_call(p, lambda call, _: None, fn) is fn
    assert rewrite_call(is_op("relax.exp")(wildcard()), lambda call, _: 1 / 0, fn) is fn


def test_branches_inner_functions_and_several_blocks():
    mod, new = rewritten(
        double,
        """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
            with R.dataflow():
                lv = R.exp(x)
                a = R.sin(lv)
                R.output(a)
            @R.function
            def inner(y: R.Tensor((4,), "float32")):
                z = R.add(y, y)
                return z
            if c:
                b = R.add(a, a)
                r = R.exp(b)
            else:
                d = inner(a)
                r = R.add(d, d)
            return r
        """,
        """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
            with R.dataflow():
                lv = R.exp(x)
                a = R.sin(lv)
                R.output(a)
            @R.function
            def inner(y: R.Tensor((4,), "float32")):
                z = R.multiply(y, R.const(2.0, "float32"))
                return z
            if c:
                b = R.multiply(a, R.const(2.0, "float32"))
                r = R.exp(b)
            else:
                d = inner(a)
                r = R.multiply(d, R.const(2.0, "float32"))
            return r
        """,
    )
    same_results(mod, new, np.array(False), np.arange(4, dtype="float32"))


def test_a_dataflow_variable_that_is_needed_outside_becomes_visible():
    x = wildcard()
    p = is_op("relax.negative")(is_op("relax.exp")(x))
    rewritten(
        lambda fn: rewrite_call(p, lambda call, found: relax.op.sin(found[x]), fn),
        """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                lv = R.nn.relu(x)
                a = R.exp(lv)
                R.output(a)
            R.print(format="now")
            with R.dataflow():
                b = R.negative(a)
                R.output(b)
            return b
        """,
        """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                lv = R.nn.relu(x)
                R.output(lv)
            R.print(format="now")
            with R.dataflow():
                b = R.sin(lv)
                R.output(b)
            return b
        """,
    )


def test_nothing_is_read_later_than_something_may_write_it():
    fn = parse(
        """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            R.call_packed("fill", x, sinfo_args=R.Tuple())
            b = R.negative(a)
            return b
        """
    )["main"]
    x = wildcard()
    p = is_op("relax.negative")(is_op("relax.exp")(x))
    assert rewrite_call(p, lambda call, found: relax.op.sin(found[x]), fn) is fn


def test_what_is_not_known_of_the_new_value_is_checked_when_it_runs():
    before = parse(
        """
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            a = R.add(x, x)
            return a
        """
    )
    unknown = relax.TensorStructInfo(ndim=1, dtype="float32")

    def rewriter(call, found):
        return relax.op.call_pure_packed("double", *call.args[:1], sinfo_args=unknown)

    new = rewrite_call(is_op("relax.add")(wildcard(), wildcard()), rewriter, before["main"])
    assert_well_formed(IRModule({"main": new}))
    assert "R.match_cast" in new.script()


FN = """
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.negative(a)
            R.output(b)
        return b
"""


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda call, _: relax.const([1.0]), "another kind of value for a"),
        (lambda call, _: relax.op.astype(call.args[0], "int32"), "wanted: R.Tensor"),
        (lambda call, _: object(), "gave object"),
        (lambda call, _: relax.op.exp(call.args[0]), "keeps matching its own results at a"),
    ],
)
def test_a_rule_that_gives_what_cannot_stand_there_is_an_error(rule, message):
    mod = parse(FN)
    rewriter = PatternMatchingRewriter.from_pattern(is_op("relax.exp")(wildcard()), rule)
    with pytest.raises(PatternError, match=message) as caught:
        rewriter(mod)
    notes = "\n".join(caught.value.__notes__)
    assert "in function main" in notes and "pass ExprPatternRewriter" in notes


def test_what_a_rule_raises_says_where():
    rewriter = PatternMatchingRewriter.from_pattern(
        is_op("relax.exp")(wildcard()), lambda call, _: 1 / 0
    )
    with pytest.raises(ZeroDivisionError) as caught:
        rewriter(parse(FN))
    assert "while rewriting a" in "\n".join(caught.value.__notes__)


# -- several bindings -----------------------------------------------------------------------------

QKV = """
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), q: R.Tensor((4, 2), "float32"),
             k: R.Tensor((4, 2), "float32"), v: R.Tensor((4, 2), "float32")):
        n = T.int64()
        with R.dataflow():
            a = R.matmul(x, q)
            r = R.nn.relu(a)
            b = R.matmul(x, k)
            w = R.exp(v)
            c = R.matmul(x, w)
            d = R.concat((r, b, c), axis=1)
            R.output(d)
        return d
"""


def combine(fn, how=None):
    with PatternContext() as ctx:
        x, weights = wildcard(), [wildcard() for _ in range(3)]
        products = [is_op("relax.matmul")(x, w) for w in weights]

        def rewriter(found, bindings):
            assert bindings[found[products[0]]].op.name == "relax.matmul"
            if how is not None:
                return how([found[p] for p in products], bindings)
            weight = relax.op.concat([found[w] for w in weights], axis=1)
            parts = relax.op.split(relax.op.matmul(found[x], weight), 3, axis=1)
            return {found[p]: parts[i] for i, p in enumerate(products)}

        return rewrite_bindings(ctx, rewriter, fn)


def test_three_products_become_one_each_value_after_what_it_needs():
    mod, new = rewritten(
        combine,
        QKV,
        """
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), q: R.Tensor((4, 2), "float32"),
                 k: R.Tensor((4, 2), "float32"), v: R.Tensor((4, 2), "float32")):
            n = T.int64()
            with R.dataflow():
                w = R.exp(v)
                wide = R.concat((q, k, w), axis=1)
                all = R.matmul(x, wide)
                s = R.split(all, 3, axis=1)
                a = s[0]
                r = R.nn.relu(a)
                b = s[1]
                c = s[2]
                d = R.concat((r, b, c), axis=1)
                R.output(d)
            return d
        """,
    )
    rng = np.random.default_rng(0)
    weights = [rng.integers(-4, 4, (4, 2)).astype("float32") for _ in range(2)]
    for rows in (0, 1, 3):
        x = rng.integers(-4, 4, (rows, 4)).astype("float32")
        same_results(mod, new, x, *weights, np.zeros((4, 2), "float32"))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda found, _: 3, "wanted {variable"),
        (lambda found, _: {"a": found[0]}, "which the block does not bind"),
        (lambda found, _: {found[0]: relax.const(1.0)}, "another kind of value for a"),
        (lambda found, _: {found[0]: relax.op.exp(found[0])}, "need one another"),
        (
            lambda found, _: {found[0]: relax.op.exp(found[1]), found[1]: relax.op.exp(found[0])},
            "need one another",
        ),
    ],
)
def test_wrong_answers_are_errors(how, message):
    with pytest.raises((PatternError, VerifyError), match=message):
        combine(parse(QKV)["main"], how)


def test_nothing_given_is_nothing_done():
    fn = parse(QKV)["main"]
    assert combine(fn, lambda found, _: {}) is fn
    assert combine(fn, lambda found, bindings: {v: bindings[v] for v in found}) is fn


def test_a_block_with_casts_keeps_symbols_before_their_use():
    before = """
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            with R.dataflow():
                a = R.exp(x)
                z = R.match_cast(y, R.Tensor((n,), "float32"))
                b = R.exp(z)
                c = (a, b)
                R.output(c)
            return c
    """
    forever = False
    with PatternContext() as ctx:
        u, v = wildcard(), wildcard()
        first, second = is_op("relax.exp")(u), is_op("relax.exp")(v)
        first.fork_to(joined := is_tuple([first, second]))
        second ^ joined

        def rewriter(found, bindings):
            both = relax.op.concat([found[u], found[v]], axis=0)
            some = relax.op.strided_slice(both, [0], [0], [4])
            value = relax.op.exp(some) if forever else relax.op.sin(some)
            return {found[first]: value}

        new = rewrite_bindings(ctx, rewriter, parse(before)["main"])
        forever = True
        with pytest.raises(PatternError, match="keeps matching its own results"):
            rewrite_bindings(ctx, rewriter, parse(before)["main"])
    assert_well_formed(IRModule({"main": new}))
    assert new.script().index("match_cast") < new.script().index("R.concat")


# -- rewriters ------------------------------------------------------------------------------------


@R.rewriter
class FoldScale:
    @R.function
    def pattern(
        x: R.Tensor(("n", "k"), "float32"), w: R.Tensor(("k", "m"), "float32"), s: R.Tensor(())
    ):
        y = R.matmul(x, w)
        return R.multiply(y, s)

    @R.function
    def replacement(
        x: R.Tensor(("n", "k"), "float32"), w: R.Tensor(("k", "m"), "float32"), s: R.Tensor(())
    ):
        scaled = R.multiply(w, s)
        return R.matmul(x, scaled)


SCALED = """
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 3), "float32"),
             s: R.Tensor((), "float32"), t: R.Tensor((3,), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.multiply(s, a)
            c = R.multiply(b, t)
            R.output(c)
        return c
"""
SCALED_AFTER = """
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 3), "float32"),
             s: R.Tensor((), "float32"), t: R.Tensor((3,), "float32")):
        with R.dataflow():
            lv = R.multiply(w, s)
            b = R.matmul(x, lv)
            c = R.multiply(b, t)
            R.output(c)
        return c
"""


def test_rules_are_written_as_two_functions():
    assert isinstance(FoldScale, PatternMatchingRewriter)
    mod = parse(SCALED)
    new = FoldScale(mod)
    assert_structural_equal(new, parse(SCALED_AFTER))
    assert FoldScale(new) is new
    assert_structural_equal(FoldScale(mod["main"]), parse(SCALED_AFTER)["main"])


def test_a_rewriter_is_a_pass():
    mod = parse(SCALED)
    both = passes.Sequential([FoldScale, relax.transform.DeadCodeElimination()])
    assert_structural_equal(both(mod), parse(SCALED_AFTER))
    with PassContext(config={"numerics": "exact"}):
        assert both(mod) is mod


def test_rewriters_are_joined():
    x = wildcard()
    exp_log = PatternMatchingRewriter.from_pattern(
        is_op("relax.exp")(is_op("relax.log")(x)), lambda call, found: found[x]
    )
    log_exp = PatternMatchingRewriter.from_pattern(
        is_op("relax.log")(is_op("relax.exp")(x)), lambda call, found: found[x]
    )
    mod = parse(
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            b = R.log(a)
            c = R.log(b)
            d = R.exp(c)
            e = R.sin(d)
            return e
        """
    )
    new = (exp_log | log_exp)(mod)
    assert [b.value.op.name for b in new["main"].body.blocks[0].bindings] == ["relax.sin"]
    expr = relax.op.exp(relax.op.log(mod["main"].params[0]))
    assert exp_log(expr).body is mod["main"].params[0]


def test_the_rules_of_tuples_replace_several_bindings_together():
    @R.rewriter
    class SumAndDifference:
        @R.function
        def pattern(a: R.Tensor, b: R.Tensor):
            return R.add(a, b), R.subtract(a, b)

        @R.function
        def replacement(a: R.Tensor, b: R.Tensor):
            both = R.call_pure_packed(
                "both",
                a,
                b,
                sinfo_args=R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")),
            )
            return both[0], both[1]

    mod = parse(
        """
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            with R.dataflow():
                d = R.subtract(x, y)
                e = R.subtract(y, x)
                f = R.exp(d)
                s = R.add(x, y)
                t = (s, f, e)
                R.output(t)
            return t
        """
    )
    new = SumAndDifference(mod)
    assert_well_formed(new)
    text = new.script()
    # One sum and one difference, the first, are replaced by one call.
    assert text.count("call_pure_packed") == 1 and text.count("R.subtract") == 1
    assert "R.add" not in text


def test_a_rule_for_several_bindings_gives_a_value_for_each():
    a = wildcard()
    one = TupleRewriter(
        [is_op("relax.exp")(a), is_op("relax.negative")(a)], lambda v, f: v.fields[:1]
    )
    mod = parse(FN.replace("R.negative(a)", "R.negative(x)").replace("output(b)", "output(a, b)"))
    with pytest.raises(PatternError, match="gives as many"):
        one(mod)


def test_functions_that_a_rule_calls_come_along_under_names_of_their_own():
    @I.ir_module
    class Rule:
        @R.function(private=True)
        def helper(a: R.Tensor((4,), "float32")):
            return R.sin(a)

        @R.function
        def pattern(a: R.Tensor((4,), "float32")):
            return R.exp(a)

        @R.function
        def replacement(a: R.Tensor((4,), "float32")):
            return Rule.helper(a)

    mod = parse(
        """
        @R.function(private=True)
        def helper(x: R.Tensor((4,), "float32")):
            return R.cos(x)

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            a = R.exp(x)
            b = cls.helper(a)
            return b
        """
    )
    new = PatternMatchingRewriter.from_module(Rule)(mod)
    assert_well_formed(new)
    assert {gv.name_hint for gv in new} == {"main", "helper", "helper1"}
    x = np.arange(4, dtype="float32")
    same_results(
        new,
        parse(
            """
            @R.function
            def main(x: R.Tensor((4,), "float32")):
                a = R.sin(x)
                b = R.cos(a)
                return b
            """
        ),
        x,
    )


RULE = """
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @R.function
    def pattern({0}):
        {1}

    @R.function
    def replacement({2}):
        {3}
"""
ARG = 'a: R.Tensor((4,), "float32")'


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((ARG, "return R.exp(a)", f"{ARG}, b: R.Tensor", "return a"), "take the same"),
        (
            (f"{ARG}, b: R.Tensor", "return R.exp(a)", f"{ARG}, b: R.Tensor", "return a"),
            "not use its parameter b",
        ),
        ((ARG, "return a", ARG, "return R.exp(a)"), "match anything"),
    ],
)
def test_what_is_no_rule_is_an_error(parts, message):
    mod = from_source(RULE.format(*parts))
    with pytest.raises(PatternError, match=message):
        PatternMatchingRewriter.from_module(mod)


def test_a_rule_needs_both_functions_well_formed():
    mod = parse(FN)
    with pytest.raises(PatternError, match="pattern"):
        R.rewriter(mod)
    with pytest.raises(PatternError, match="module"):
        PatternMatchingRewriter.from_module(3)
    v = relax.Var("v", relax.TensorStructInfo((4,), "float32"))
    w = relax.Var("w", relax.TensorStructInfo((4,), "float32"))
    twice = [relax.VarBinding(w, relax.op.exp(v)), relax.VarBinding(w, relax.op.sin(v))]
    fn = relax.Function([v], relax.SeqExpr([relax.BindingBlock(twice)], w))
    with pytest.raises(VerifyError, match="w"):
        PatternMatchingRewriter.from_module(IRModule({"pattern": fn, "replacement": fn}))
    c = relax.Var("c", relax.TensorStructInfo((), "bool"))
    r = relax.Var("r", v.struct_info)
    branch = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(r, relax.If(c, v, v))])], r)
    fn = relax.Function([c, v], branch)
    with pytest.raises(PatternError, match="row of calls"):
        PatternMatchingRewriter.from_module(IRModule({"pattern": fn, "replacement": fn}))


# -- any function ---------------------------------------------------------------------------------


def exact_rules():
    """Rules that change no bit, and match much."""
    x, y = wildcard(), wildcard()
    rules = [
        (is_op("relax.negative")(is_op("relax.negative")(x)), lambda _, found: found[x]),
        (
            is_op("relax.subtract")(x, y),
            lambda call, found: relax.op.add(found[x], relax.op.negative(found[y])),
        ),
        (is_op("relax.multiply")(x, x), lambda _, found: relax.op.square(found[x])),
    ]
    rewriters = itertools.starmap(PatternMatchingRewriter.from_pattern, rules)
    return functools.reduce(operator.or_, rewriters)


@pytest.mark.parametrize("seed", range(12))
def test_random_functions_give_the_same_with_and_without(seed):
    rng = random.Random(seed)
    mod = from_source(graph_programs.program(rng.getrandbits(40), 25))
    new = exact_rules()(mod)
    assert_well_formed(new)
    for i in range(2):
        args = graph_programs.inputs(i, mod)
        assert graphs.meaning(new, args) == graphs.meaning(mod, args)


def long_row(n):
    v = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    last, bindings = v, []
    for i in range(n):
        value = (relax.op.add, relax.op.multiply)[i % 2](last, last if i % 4 == 0 else v)
        last = relax.DataflowVar(f"v{i}", value.struct_info)
        bindings.append(relax.VarBinding(last, value))
    out = relax.Var("out", v.struct_info)
    bindings.append(relax.VarBinding(out, last))
    return relax.Function([v], relax.SeqExpr([relax.DataflowBlock(bindings)], out))


def test_ten_thousand_bindings_are_rewritten_in_one_go():
    fn = long_row(10_000)
    new = double(fn)
    assert new.script().count("R.multiply") == 7_500
    x, y = wildcard(), wildcard()
    with PatternContext() as ctx:
        a = is_op("relax.add")(x, x)
        a >> (m := is_op("relax.multiply")(a, y))
        new = rewrite_bindings(
            ctx, lambda found, _: {found[m]: relax.op.subtract(found[x], found[y])}, fn
        )
    # All but the first: there both would be the same variable.
    assert new.script().count("R.subtract") == 2_499
