"""LiftTransformParams: what depends on weights alone moves into a function of its own."""

from __future__ import annotations

import random

import numpy as np
import pytest
from pass_cases import parse, random_model, results

from relaxvm import relax, tir
from relaxvm.base import PassError
from relaxvm.ir import PassContext, assert_structural_equal
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.transform import LiftTransformParams
from relaxvm.runtime import VirtualMachine

M = 'R.Tensor((4, 4), "float32")'
HEAD = f"""
@R.function
def main(x: {M}, w1: {M}, w2: {M}):
    R.func_attr({{"num_input": 1}})
"""
RNG = np.random.default_rng(0)
X, W1, W2 = RNG.random((3, 4, 4), dtype="float32")


def lifted(text, **options):
    mod = parse(text)
    before = dict(mod.functions)
    made = LiftTransformParams(**options)(mod)
    assert dict(mod.functions) == before
    assert_well_formed(made)
    return mod, made


def check(text, expected=None, weights=(W1, W2), name="main"):
    mod, made = lifted(text)
    if expected is not None:
        assert_structural_equal(made, parse(expected))
    same(mod, made, name, f"{name}_transform_params", weights)
    return made


def same(mod, made, name, transform, weights):
    with PassContext(config={"numerics": "exact"}):
        lifted_program, whole = relax.build(made, "llvm"), relax.build(mod, "llvm")
    for mode in ("compiled", "bytecode"):
        vm = VirtualMachine(lifted_program, exec_mode=mode)
        got = vm[name](X, *vm[transform](tuple(weights)))
        wanted = VirtualMachine(whole)[name](X, *weights)
        np.testing.assert_array_equal(got.numpy(), wanted.numpy())


def test_what_is_computed_of_weights_is_a_parameter():
    check(
        HEAD
        + """
    with R.dataflow():
        t = R.permute_dims(w1)
        y = R.matmul(x, t)
        gv = R.add(y, w2)
        R.output(gv)
    return gv
""",
        f"""
@R.function
def main(x: {M}, w2: {M}, t: {M}):
    R.func_attr({{"num_input": 1}})
    with R.dataflow():
        y = R.matmul(x, t)
        gv = R.add(y, w2)
        R.output(gv)
    return gv
@R.function
def main_transform_params(params: R.Tuple({M}, {M})):
    R.func_attr({{"num_input": 0}})
    with R.dataflow():
        w1 = params[0]
        w2 = params[1]
        t = R.permute_dims(w1)
        gv = (w2, t)
        R.output(gv)
    return gv
""",
    )


def test_chains_tuples_and_what_is_read_twice():
    made = check(
        HEAD
        + """
    with R.dataflow():
        one = R.const([1.0, 2, 3, 4], "float32")
        a = R.add(w1, one)
        p = (a, w2)
        b = p[0]
        c = R.multiply(b, w1)
        s = R.split(c, 2, axis=0)
        u = s[0]
        v = s[1]
        cat = R.concat((v, u), axis=0)
        y = R.matmul(x, cat)
        z = R.add(y, one)
        k = R.matmul(z, a)
        gv = R.matmul(k, w2)
        R.output(gv)
    return gv
"""
    )
    assert [p.name_hint for p in made["main"].params] == ["x", "w2", "a", "cat"]


def test_results_that_are_weights_or_lifted():
    check(
        HEAD
        + """
    t = R.permute_dims(w1)
    return t
"""
    )
    check(HEAD + "    return w2\n")


def test_a_mark_stops_it_and_branches_stay():
    made = check(
        HEAD
        + """
    t = R.permute_dims(w1)
    s = R.builtin.stop_lift_params(t)
    u = R.exp(s)
    c = R.greater(R.sum(x), R.const(0, "float32"))
    if c:
        r = R.add(u, w2)
    else:
        r = R.exp(t)
    return r
"""
    )
    assert [p.name_hint for p in made["main"].params] == ["x", "w2", "t"]


def test_what_is_written_over_stays():
    _, made = lifted(
        """
@T.prim_func(private=True)
def double(A: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(4, 4):
        A[i, j] = A[i, j] * T.float32(2)
"""
        + HEAD
        + f"""
    cls = Module
    with R.dataflow():
        t = R.exp(w1)
        u = R.call_tir_inplace(cls.double, (t,), inplace_indices=[0], out_sinfo={M})
        v = R.exp(w2)
        y = R.add(u, v)
        gv = R.add(y, x)
        R.output(gv)
    return gv
"""
    )
    assert [p.name_hint for p in made["main"].params] == ["x", "w1", "v"]


@pytest.mark.parametrize("n", [1, 5])
def test_symbols_that_only_weights_bind(n):
    text = f"""
@R.function
def main(x: {M}, w: R.Tensor(("n", 4), "float32"), v: R.Tensor(("n*2",), "float32")):
    R.func_attr({{"num_input": 1}})
    n = T.int64()
    with R.dataflow():
        t = R.permute_dims(w)
        y = R.matmul(x, t)
        z = R.concat((v, v), axis=0)
        s = R.sum(z)
        o = R.full((4, n), s, "float32")
        gv = R.add(y, o)
        R.output(gv)
    return gv
"""
    weights = RNG.random((n, 4), dtype="float32"), RNG.random(2 * n, dtype="float32")
    check(text, weights=weights)


def test_inputs_only_and_functions_that_say_nothing_stay():
    text = f"""
@R.function
def main(x: {M}, w: {M}):
    t = R.exp(w)
    return t
"""
    mod, made = lifted(text)
    assert made is mod
    mod, made = lifted(text.replace("    t =", '    R.func_attr({"num_input": 2})\n    t ='))
    assert made is mod


PAIR = f"""
@R.function
def one(x: {M}, w1: {M}, w2: {M}):
    R.func_attr({{"num_input": 1}})
    with R.dataflow():
        t = R.permute_dims(w1)
        u = R.exp(w2)
        y = R.matmul(x, t)
        gv = R.add(y, u)
        R.output(gv)
    return gv
@R.function
def two(x: {M}, a: {M}, b: {M}):
    R.func_attr({{"num_input": 1}})
    with R.dataflow():
        s = R.sin(b)
        q = R.permute_dims(a)
        y = R.matmul(q, x)
        gv = R.add(y, s)
        R.output(gv)
    return gv
"""


def test_a_shared_transform_computes_what_all_functions_need():
    mod, made = lifted(PAIR, shared_transform=True)
    for name in ("one", "two"):
        assert len(made[name].params) == 3
        same(mod, made, name, "transform_params", (W1, W2))
    assert sorted(gv.name_hint for gv in made) == ["one", "transform_params", "two"]
    mod, made = lifted(PAIR, shared_transform=["two"])
    assert sorted(gv.name_hint for gv in made) == ["one", "transform_params", "two"]
    same(mod, made, "two", "transform_params", (W1, W2))


def test_a_shared_transform_of_other_weights_is_an_error():
    with pytest.raises(PassError, match="one and two .* differ"):
        lifted(PAIR.replace(f"b: {M}", 'b: R.Tensor((4, 1), "float32")'), shared_transform=True)
    with pytest.raises(PassError, match="named three"):
        lifted(PAIR, shared_transform=["three"])


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_give_the_same_bits(seed):
    """Of [x, y, w], the last one or two are weights."""
    rng = random.Random(seed)
    mod, n = random_model(rng)
    count = rng.choice((0, 1, 2))
    gv = mod.get_global_var("main")
    mod[gv] = mod[gv].with_attr("num_input", count)
    made = LiftTransformParams()(mod)
    assert_well_formed(made)
    numbers = np.random.default_rng(seed)
    for rows in (0, 1, 4) if isinstance(n, tir.Var) else (n,):
        args = [numbers.standard_normal(s).astype("float32") for s in ((rows, 6),) * 2 + ((6, 6),)]
        transform = relax.build(made, "llvm")
        vm = VirtualMachine(transform)
        got = vm["main"](*args[:count], *vm["main_transform_params"](tuple(args[count:])))
        for a, b in zip(got, results(mod, *args)):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-5, atol=1e-5)
