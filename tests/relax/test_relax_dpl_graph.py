"""Patterns joined to graphs, matched with dataflow blocks."""

import pytest
from pass_cases import parse

from relaxvm.base import PatternError
from relaxvm.relax.dpl import (
    PatternContext,
    is_call_dps_packed,
    is_op,
    is_tuple_get_item,
    is_var,
    wildcard,
)

P = is_call_dps_packed


def block(*lines, output):
    """A block of calls ``name = f(a, b)`` of packed functions on 32x32 tensors."""
    text = [
        "@R.function",
        'def main(x: R.Tensor((32, 32), "float32"), w: R.Tensor((32, 32), "float32")):',
        "    with R.dataflow():",
    ]
    for line in lines:
        name, value = line.split(" = ")
        f, args = value.rstrip(")").split("(")
        text.append(
            f'        {name} = R.call_dps_packed("{f}", ({args},), '
            'out_sinfo=R.Tensor((32, 32), "float32"))'
        )
    text += [f"        R.output({output})", f"    return {output}"]
    return parse("\n".join(text))["main"].body.blocks[0]


def names(found):
    return {p: v.name_hint for p, v in found.items()}


CHAIN = block("a = mm(x, w)", "b = relu(a)", output="b")
DIAMOND = block("a = mm(x, w)", "b = relu(a)", "c = sig(a)", "d = add(b, c)", output="d")
FORK = block("a = relu(x)", "b = add(a, a)", output="b")
TWICE = block("a = relu(x)", "b = relu(x)", "c = add(a, b)", output="c")
TWO_CHAINS = block(
    *("a = conv(x, w)", "b = bias(a, w)", "c = relu(b)"),
    *("d = conv(x, w)", "e = bias(d, w)", "f = relu(e)", "g = cat(c, f)"),
    output="g",
)


def test_used_by_and_only_used_by():
    with PatternContext() as ctx:
        a, b = P("mm"), P("relu")
        a >> b
        assert names(ctx.match_dfb(CHAIN)) == {a: "a", b: "b"}
        assert ctx.match_dfb(DIAMOND) is None
    with PatternContext() as ctx:
        a, b = P("mm"), P("relu")
        a ^ b
        assert names(ctx.match_dfb(DIAMOND)) == {a: "a", b: "b"}
    with PatternContext() as ctx:
        v, u = is_var("x"), wildcard()
        v ^ u
        assert names(ctx.match_dfb(CHAIN)) == {v: "x", u: "a"}
    with PatternContext() as ctx:
        P("relu") ^ P("mm")
        assert ctx.match_dfb(CHAIN) is None


def test_a_value_that_the_block_gives_out_is_not_only_used_in_it():
    given_out = block("a = mm(x, w)", "b = relu(a)", output="a, b")
    with PatternContext() as ctx:
        P("mm") >> P("relu")
        assert ctx.match_dfb(given_out) is None


def test_a_diamond():
    with PatternContext() as ctx:
        a, b, c, d = P("mm"), P("relu"), P("sig"), P("add")
        a.fork_to(b, c)
        b >> d
        c >> d
        assert names(ctx.match_dfb(DIAMOND)) == {a: "a", b: "b", c: "c", d: "d"}
        a >> b
        assert ctx.match_dfb(DIAMOND) is None


def test_different_patterns_match_different_variables():
    with PatternContext() as ctx:
        fork, join = P("relu"), P("add")
        fork.only_used_by(join, index=0)
        fork.only_used_by(join, index=1)
        assert ctx.match_dfb(FORK) and ctx.match_dfb(TWICE) is None
    with PatternContext() as ctx:
        join = P("add")
        P("relu") >> join
        P("relu") >> join
        assert ctx.match_dfb(TWICE) and ctx.match_dfb(FORK) is None


def test_sequences_are_duplicated_with_their_links():
    with PatternContext() as ctx:
        one = P("conv") >> P("bias") >> P("relu")
        two = one.dup()
        assert len(two) == 3 and {*one.patterns}.isdisjoint(two.patterns)
        is_var("x").fork_to(one, two)
        found = names(ctx.match_dfb(TWO_CHAINS))
        assert [found[p] for p in one.patterns] == ["a", "b", "c"]
        assert [found[p] for p in two.patterns] == ["d", "e", "f"]
    with PatternContext() as ctx:
        one = P("conv") >> P("relu")
        one.dup()
        assert ctx.match_dfb(TWO_CHAINS) is None


def test_a_match_may_be_asked_to_include_a_variable():
    d = TWO_CHAINS.bindings[3].var
    with PatternContext() as ctx:
        chain = P("conv") >> P("bias") >> P("relu")
        assert ctx.match_dfb(TWO_CHAINS, start_hint=d)[chain[0]] is d
        assert ctx.match_dfb(TWO_CHAINS)[chain[0]] is TWO_CHAINS.bindings[0].var
        g = TWO_CHAINS.bindings[6].var
        assert ctx.match_dfb(TWO_CHAINS, start_hint=g)
        assert ctx.match_dfb(TWO_CHAINS, start_hint=g, must_include_hint=True) is None


def test_contexts_nest_and_may_start_with_what_is_demanded_outside():
    a, b, c = P("conv"), P("bias"), P("relu")
    with PatternContext() as outer:
        a >> b
        with PatternContext() as apart:
            P("conv") >> P("relu")
            assert PatternContext.current() is apart
            assert apart.match_dfb(TWO_CHAINS) is None
        with PatternContext(incremental=True) as more:
            b >> c
            assert names(more.match_dfb(TWO_CHAINS)) == {a: "a", b: "b", c: "c"}
            b >> P("cat")
            assert more.match_dfb(TWO_CHAINS) is None
        assert PatternContext.current() is outer
        assert names(outer.match_dfb(TWO_CHAINS)) == {a: "a", b: "b"}
    assert PatternContext.current() is None
    with pytest.raises(PatternError, match="no context"):
        PatternContext(incremental=True)


QKV = """
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), q: R.Tensor((4, 4), "float32"),
             k: R.Tensor((4, 4), "float32"), v: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.matmul(x, q)
            r = R.nn.relu(a)
            b = R.matmul(x, k)
            c = R.matmul(x, v)
            d = R.concat((r, b, c), axis=1)
            R.output(d)
        return d
"""


def test_calls_of_patterns_are_joined_by_their_arguments():
    dfb = parse(QKV)["main"].body.blocks[0]
    with PatternContext() as ctx:
        x = wildcard()
        first, second = (is_op("relax.matmul")(x, wildcard()) for _ in range(2))
        found = ctx.match_dfb(dfb)
        assert names(found)[x] == "x"
        assert (names(found)[first], names(found)[second]) == ("a", "b")
    with PatternContext() as ctx:
        x = wildcard()
        first, second = (is_op("relax.matmul")(x, wildcard()) for _ in range(2))
        second.same_shape_as(first)
        third = is_op("relax.matmul")(x, wildcard())
        assert {names(ctx.match_dfb(dfb))[p] for p in (first, second)} == {"a", "b"}
        third.same_shape_as(first)
        assert ctx.match_dfb(dfb) is None


def test_what_refines_a_pattern_matches_the_same_variable():
    dfb = parse(QKV)["main"].body.blocks[0]
    with PatternContext() as ctx:
        plain = is_op("relax.matmul")(wildcard(), wildcard())
        sized = plain.has_shape((2, 8))
        sized ^ is_op("relax.concat")(wildcard())
        found = ctx.match_dfb(dfb)
        assert found[plain] is found[sized] and found[sized].name_hint == "c"


def test_fields_of_tuples():
    dfb = parse(
        """
        @R.function
        def main(x: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                s = R.split(x, 2, axis=0)
                a = s[0]
                b = s[1]
                c = R.add(b, a)
                R.output(c)
            return c
        """
    )["main"].body.blocks[0]
    with PatternContext() as ctx:
        split = wildcard()
        fields = [is_tuple_get_item(split, i).has_shape([2, 4]) for i in (0, 1)]
        split.fork_to(*fields)
        total = is_op("relax.add")(*fields)
        for f in fields:
            f >> total
        found = names(ctx.match_dfb(dfb))
        assert (found[split], found[fields[0]], found[total]) == ("s", "a", "c")


def test_malformed_graphs_are_errors():
    p = wildcard()
    with PatternContext() as ctx:
        with pytest.raises(PatternError, match="by itself"):
            p ^ p
        with pytest.raises(PatternError, match="block"):
            ctx.match_dfb(3)
    with pytest.raises(PatternError, match="PatternContext"):
        p.same_shape_as(wildcard())
    with PatternContext() as ctx:
        p.same_shape_as(wildcard())
        with pytest.raises(PatternError, match="none of the patterns"):
            ctx.match_dfb(CHAIN)
    with PatternContext() as ctx:
        assert ctx.match_dfb(CHAIN) is None
