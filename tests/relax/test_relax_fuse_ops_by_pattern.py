"""FuseOpsByPattern and MergeCompositeFunctions: groups for external code generators."""

import random

import numpy as np
import pytest
from fuzz import graph_programs, graphs
from pass_cases import becomes, parse, same_results, stays

from relaxvm import relax
from relaxvm import transform as passes
from relaxvm.base import PassError, RelaxvmError
from relaxvm.relax import transform
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.dpl import is_const, is_op, make_fused_bias_activation_pattern, wildcard
from relaxvm.script import from_source

T44 = 'R.Tensor((4, 4), "float32")'
MATMUL_RELU = make_fused_bias_activation_pattern("relax.matmul", activation="relax.nn.relu")
MATMUL = is_op("relax.matmul")(wildcard(), wildcard())
EXP = is_op("relax.exp")(wildcard())


def fuse(*patterns, **options):
    return transform.FuseOpsByPattern(patterns, **options)


BEFORE = f"""
    @R.function
    def main(x: {T44}, w: {T44}, v: {T44}):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.matmul(b, v)
            d = R.exp(c)
            R.output(d)
        return d
"""
AFTER = f"""
    @R.function(private=True)
    def fused_relax_matmul_relax_nn_relu(x: {T44}, w: {T44}):
        R.func_attr({{"Composite": "blas.matmul_relu", "Primitive": True}})
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            R.output(b)
        return b

    @R.function(private=True)
    def fused_relax_matmul(x: {T44}, w: {T44}):
        R.func_attr({{"Composite": "blas.matmul", "Primitive": True}})
        with R.dataflow():
            a = R.matmul(x, w)
            R.output(a)
        return a

    @R.function
    def main(x: {T44}, w: {T44}, v: {T44}):
        cls = Module
        with R.dataflow():
            b = cls.fused_relax_matmul_relax_nn_relu(x, w)
            c = cls.fused_relax_matmul(b, v)
            d = R.exp(c)
            R.output(d)
        return d
"""


def test_the_first_pattern_that_matches_takes_the_bindings():
    run = fuse(("blas.matmul_relu", MATMUL_RELU), ("blas.matmul", MATMUL))
    mod = becomes(run, BEFORE, AFTER)
    x, w, v = np.random.default_rng(0).integers(-3, 3, (3, 4, 4)).astype("float32")
    same_results(parse(BEFORE), mod, x, w, v)


def test_equal_groups_are_one_function():
    mod = becomes(
        fuse(("blas.matmul", MATMUL)),
        f"""
        @R.function
        def main(x: {T44}, w: {T44}):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.matmul(a, w)
                R.output(b)
            return b
        """,
        f"""
        @R.function(private=True)
        def fused_relax_matmul(x: {T44}, w: {T44}):
            R.func_attr({{"Composite": "blas.matmul", "Primitive": True}})
            with R.dataflow():
                a = R.matmul(x, w)
                R.output(a)
            return a

        @R.function
        def main(x: {T44}, w: {T44}):
            cls = Module
            with R.dataflow():
                a = cls.fused_relax_matmul(x, w)
                b = cls.fused_relax_matmul(a, w)
                R.output(b)
            return b
        """,
    )
    assert len(mod) == 2


def test_constants_stay_inside_or_become_arguments():
    before = parse(
        f"""
        @R.function
        def main(x: {T44}):
            with R.dataflow():
                a = R.multiply(x, R.const(2.0, "float32"))
                R.output(a)
            return a
        """
    )
    pattern = is_op("relax.multiply")(wildcard(), is_const())
    bound = fuse(("blas.scale", pattern))(before)
    assert len(bound["fused_relax_multiply"].params) == 1
    free = fuse(("blas.scale", pattern), bind_constants=False)(before)
    assert len(free["fused_relax_multiply"].params) == 2
    x = np.ones((4, 4), "float32")
    same_results(before, bound, x)
    same_results(before, free, x)


def test_what_is_read_outside_too_is_a_second_result_where_it_is_read_later():
    before = f"""
        @R.function
        def main(x: {T44}, w: {T44}):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.nn.relu(a)
                c = R.exp(a)
                d = R.add(b, c)
                R.output(d)
            return d
    """
    run = fuse(("blas.matmul_relu", MATMUL_RELU))
    new = run(parse(before))
    assert_well_formed(new)
    assert len(new["fused_relax_matmul_relax_nn_relu"].ret_struct_info.fields) == 2
    x, w = np.random.default_rng(0).integers(-3, 3, (2, 4, 4)).astype("float32") / 8
    same_results(parse(before), new, x, w)
    # Read before the group is done, it cannot be given by it.
    b, c = "b = R.nn.relu(a)", "c = R.exp(a)"
    stays(run, before.replace(b, "?").replace(c, b).replace("?", c))


def test_a_check_sees_the_match_and_may_refuse_it():
    seen = []

    def check(context):
        seen.append(context)
        (product,) = (v for v, e in context.matched_bindings.items() if e.op.name == "relax.matmul")
        return len(context.var_usages[product]) == 1

    lhs, rhs = wildcard(), wildcard()
    pattern = is_op("relax.nn.relu")(product := is_op("relax.matmul")(lhs, rhs))
    parts = {"lhs": lhs, "rhs": rhs, "product": product}
    run = fuse(("blas.matmul_relu", pattern, parts, check))
    mod = parse(BEFORE)
    assert len(run(mod)) == 2
    (context,) = seen
    assert context.annotated_expr["lhs"] is mod["main"].params[0]
    assert context.annotated_expr["product"].op.name == "relax.matmul"
    assert context.matched_expr.op.name == "relax.nn.relu"
    assert context.value_to_bound_var[context.matched_expr].name_hint == "b"
    leaking = BEFORE.replace("d = R.exp(c)", "d = R.add(c, a)")
    stays(run, leaking)


def test_attributes_come_from_the_match():
    lhs = wildcard()
    rule = transform.FusionPattern(
        "blas.matmul",
        is_op("relax.matmul")(lhs, wildcard()),
        {"lhs": lhs},
        None,
        lambda found: {"rows": int(found["lhs"].struct_info.shape[0])},
    )
    assert fuse(rule)(parse(BEFORE))["fused_relax_matmul"].attrs["rows"] == 4


def test_functions_for_code_generators():
    mod = becomes(
        fuse(("blas.exp", EXP), annotate_codegen=True),
        BEFORE,
        BEFORE.replace("with R.d", "cls = Module\n        with R.d").replace(
            "R.exp(c)", "cls.fused_relax_exp_blas(c)"
        )
        + f"""
    @R.function
    def fused_relax_exp_blas(x: {T44}):
        R.func_attr({{"Codegen": "blas"}})
        @R.function(private=True)
        def local_func(x: {T44}):
            R.func_attr({{"Composite": "blas.exp", "Primitive": True}})
            with R.dataflow():
                y = R.exp(x)
                R.output(y)
            return y
        output = local_func(x)
        return output
        """,
    )
    assert mod["fused_relax_exp_blas"].attrs["global_symbol"] == "fused_relax_exp_blas"
    same_results(parse(BEFORE), mod, *np.ones((3, 4, 4), "float32"))


def test_entry_functions_branches_and_inner_functions():
    before = parse(
        f"""
        @R.function
        def other(x: {T44}):
            return R.exp(x)

        @R.function
        def main(c: R.Tensor((), "bool"), x: {T44}):
            @R.function
            def inner(y: {T44}):
                z = R.exp(y)
                return z
            if c:
                with R.dataflow():
                    a = R.exp(x)
                    R.output(a)
                b = a
            else:
                b = inner(x)
            return b
        """
    )
    new = fuse(("blas.exp", EXP), entry_functions=["main"])(before)
    assert_well_formed(new)
    assert new["other"] is before["other"] and "R.exp" not in new["main"].script()
    x = np.ones((4, 4), "float32")
    for c in (True, False):
        same_results(before, new, np.array(c), x)
    with pytest.raises(RelaxvmError, match="nowhere"):
        fuse(("blas.exp", EXP), entry_functions=["nowhere"])(before)


def test_symbolic_sizes():
    before = """
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32"), w: R.Tensor(("m", 3), "float32")):
            n, m = T.int64(), T.int64()
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.reshape(a, R.shape([n * 3]))
                c = R.zeros(R.shape([n * 3]), "float32")
                d = R.add(b, c)
                R.output(d)
            return d
    """
    product = is_op("relax.reshape")(MATMUL, wildcard())
    zeros = is_op("relax.zeros")(wildcard())
    mod = parse(before)
    new = fuse(("blas.rows", product), ("blas.zeros", zeros))(mod)
    assert_well_formed(new)
    assert len(new) == 3
    rng = np.random.default_rng(0)
    for rows in (0, 1, 5):
        x, w = rng.integers(-3, 3, (rows, 4)), rng.integers(-3, 3, (4, 3))
        same_results(mod, new, x.astype("float32"), w.astype("float32"))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (("blas.exp",), "wanted a FusionPattern"),
        (3, "wanted a FusionPattern"),
        (("blas.exp", "relax.exp"), "its pattern is a pattern"),
        ((3, EXP), "its name is a string"),
        (("blas.exp", EXP, [EXP]), "annotation_patterns"),
        (("blas.exp", EXP, {}, 3), "check"),
    ],
)
def test_what_is_no_pattern_is_an_error(rule, message):
    with pytest.raises(PassError, match=message):
        fuse(rule)(parse(BEFORE))


def test_an_error_of_a_check_says_where():
    with pytest.raises(ZeroDivisionError) as caught:
        fuse(("blas.exp", EXP, {}, lambda context: 1 / 0))(parse(BEFORE))
    assert "FuseOpsByPattern" in "\n".join(caught.value.__notes__)


# -- merging --------------------------------------------------------------------------------------


def merge(text, *patterns):
    mod = parse(text)
    fused = fuse(*patterns)(mod)
    new = transform.MergeCompositeFunctions()(fused)
    assert_well_formed(new)
    assert transform.MergeCompositeFunctions()(new) is new
    return mod, new


def generators(mod):
    """The calls of main that have their own code generators, in order."""
    row = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    names = [getattr(call.op, "name_hint", None) for call in row if isinstance(call, relax.Call)]
    return [mod[n].attrs["Codegen"] for n in names if n is not None]


def test_composites_that_follow_one_another_become_one_function():
    becomes(
        passes.Sequential(
            [fuse(("blas.matmul", MATMUL), ("blas.exp", EXP)), transform.MergeCompositeFunctions()]
        ),
        f"""
        @R.function
        def main(x: {T44}, w: {T44}):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.exp(a)
                R.output(b)
            return b
        """,
        f"""
        @R.function
        def main(x: {T44}, w: {T44}):
            cls = Module
            with R.dataflow():
                b = cls.fused_relax_matmul_blas(x, w)
                R.output(b)
            return b

        @R.function
        def fused_relax_matmul_blas(x: {T44}, w: {T44}):
            R.func_attr({{"Codegen": "blas"}})
            with R.dataflow():
                @R.function(private=True)
                def product(x: {T44}, w: {T44}):
                    R.func_attr({{"Composite": "blas.matmul", "Primitive": True}})
                    with R.dataflow():
                        a = R.matmul(x, w)
                        R.output(a)
                    return a
                a = product(x, w)
                @R.function(private=True)
                def exponential(x: {T44}):
                    R.func_attr({{"Composite": "blas.exp", "Primitive": True}})
                    with R.dataflow():
                        a = R.exp(x)
                        R.output(a)
                    return a
                b = exponential(a)
                R.output(b)
            return b
        """,
    )


def test_other_generators_are_not_merged_and_nothing_waits_for_itself():
    text = f"""
        @R.function
        def main(x: {T44}, w: {T44}):
            with R.dataflow():
                a = R.exp(x)
                b = R.nn.relu(a)
                c = R.matmul(a, b)
                d = R.exp(c)
                R.output(d)
            return d
    """
    mod, new = merge(text, ("blas.exp", EXP), ("blas.matmul", MATMUL))
    # relu, which is in no group, stands between exp and matmul.
    assert generators(new) == ["blas", "blas"]
    x, w = np.random.default_rng(0).integers(-3, 3, (2, 4, 4)).astype("float32") / 8
    same_results(mod, new, x, w)
    mod, new = merge(text, ("one.exp", EXP), ("two.matmul", MATMUL))
    assert generators(new) == ["one", "two", "one"]
    same_results(mod, new, x, w)


def test_a_reader_that_stands_between_comes_after_the_merged_call():
    text = f"""
        @R.function
        def main(x: {T44}, w: {T44}):
            with R.dataflow():
                a = R.exp(x)
                b = R.nn.relu(a)
                c = R.exp(a)
                d = R.add(b, c)
                R.output(d)
            return d
    """
    mod, new = merge(text, ("blas.exp", EXP))
    assert generators(new) == ["blas"]
    same_results(mod, new, *np.ones((2, 4, 4), "float32") / 4)


def test_merging_through_two_regions_makes_no_circle():
    # a, c for one; b, d for two: whichever pair is merged, the other must not be.
    text = f"""
        @R.function
        def main(x: {T44}, y: {T44}):
            with R.dataflow():
                a = R.exp(x)
                b = R.sin(y)
                c = R.exp(b)
                e = R.add(c, a)
                d = R.sin(a)
                f = R.add(e, d)
                R.output(f)
            return f
    """
    sin = is_op("relax.sin")(wildcard())
    mod, new = merge(text, ("one.exp", EXP), ("two.sin", sin))
    assert_well_formed(new)
    same_results(mod, new, *np.ones((2, 4, 4), "float32") / 4)


def test_a_call_that_reads_a_result_and_what_another_generator_makes_of_it_stays_apart():
    text = f"""
        @R.function
        def main(x: {T44}, w: {T44}):
            with R.dataflow():
                a = R.exp(x)
                b = R.sin(a)
                c = R.matmul(a, b)
                R.output(c)
            return c
    """
    sin = is_op("relax.sin")(wildcard())
    mod, new = merge(text, ("one.exp", EXP), ("two.sin", sin), ("one.matmul", MATMUL))
    assert generators(new) == ["one", "two", "one"]
    same_results(mod, new, *np.ones((2, 4, 4), "float32") / 4)


PATTERNS = [
    ("one.pair", is_op("relax.add")(is_op("relax.multiply")(wildcard(), wildcard()), wildcard())),
    ("one.add", is_op("relax.add")(wildcard(), wildcard())),
    ("two.multiply", is_op("relax.multiply")(wildcard(), wildcard())),
    ("two.abs", is_op("relax.abs")(wildcard())),
    ("one.relu", is_op("relax.nn.relu")(wildcard())),
]


@pytest.mark.parametrize("seed", range(12))
def test_random_functions_mean_the_same(seed):
    rng = random.Random(seed)
    mod = from_source(graph_programs.program(rng.getrandbits(40), 25))
    rng.shuffle(patterns := list(PATTERNS))
    fused = transform.FuseOpsByPattern(patterns)(mod)
    assert_well_formed(fused)
    merged = transform.MergeCompositeFunctions()(fused)
    assert_well_formed(merged)
    for i in range(2):
        args = graph_programs.inputs(i, mod)
        wanted = graphs.meaning(mod, args)
        assert graphs.meaning(fused, args) == wanted
        assert graphs.meaning(merged, args) == wanted


def ten_thousand_bindings():
    """A module, and a pattern for half of what it calls."""
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    last, bindings = x, []
    for i in range(10_000):
        value = relax.op.exp(last) if i % 2 else relax.op.add(last, x)
        last = relax.DataflowVar(f"v{i}", value.struct_info)
        bindings.append(relax.VarBinding(last, value))
    out = relax.Var("out", x.struct_info)
    bindings.append(relax.VarBinding(out, relax.op.sin(last)))
    fn = relax.Function([x], relax.SeqExpr([relax.DataflowBlock(bindings)], out))
    mod = relax.BlockBuilder().get().clone({"main": fn.with_attr("global_symbol", "main")})
    return mod, is_op("relax.add")(wildcard(), wildcard())


def test_ten_thousand_bindings():
    mod, add = ten_thousand_bindings()
    fused = transform.FuseOpsByPattern([("a.pair", is_op("relax.exp")(add))])(mod)
    # The first adds x to itself: a function of its own.
    assert len(fused) == 3 and len(fused["main"].body.blocks[0].bindings) == 5_001
    merged = transform.MergeCompositeFunctions()(fused)
    assert len(merged["main"].body.blocks[0].bindings) == 2


@pytest.mark.slow
def test_ten_thousand_bindings_become_one_function():
    mod, add = ten_thousand_bindings()
    together = transform.FuseOpsByPattern([("a.exp", EXP), ("a.add", add)])(mod)
    assert len(transform.MergeCompositeFunctions()(together)) == 2
    apart = transform.FuseOpsByPattern([("a.exp", EXP), ("b.add", add)])(mod)
    # Equal ones are one, so there are three besides main.
    assert len(transform.MergeCompositeFunctions()(apart)) == 4


def test_calls_with_effects_are_left_where_they_are():
    stays(
        fuse(("any.call", wildcard()(wildcard()))),
        """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            a = R.call_packed("f", x, sinfo_args=R.Tensor((4,), "float32"))
            return a
        """,
    )


def test_modules_are_left_alone_where_nothing_matches():
    stays(fuse(("blas.sin", is_op("relax.sin")(wildcard()))), BEFORE)
    stays(transform.MergeCompositeFunctions(), BEFORE)
