"""HoistRowProducts: what a recursion computes of its rows alone is computed of all rows before."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax
from relaxvm.ir import assert_structural_equal
from relaxvm.ir.transform import PassContext
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.transform import BindParams, HoistRowProducts
from relaxvm.runtime import VirtualMachine
from relaxvm.script import from_source

hoist = HoistRowProducts()
RNG = np.random.default_rng(0)

# {...} are the places that tests change.
RECURRENT = """
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @R.function({private})
    def steps(
        step: R.Prim(value="i"),
        xs: R.Tensor(("n", 1, 32), "float32"),
        h: R.Tensor((1, 4), "float32"),
        w: R.Tensor((32, 4), "float32"),
        b: R.Tensor((4,), "float32"),
        u: R.Tensor((4, 4), "float32"),
    ) -> R.Tensor((1, 4), "float32"):
        i = T.int64()
        n = T.int64()
        if R.prim_value({cond}):
            row = R.strided_slice(xs, axes=[{axis}], begin=[i], end=[{end}], assume_inbound=True)
            flat = R.reshape({row}, (1, 32))
            with R.dataflow():
                product = R.matmul(flat, w)
                biased = R.add({biased})
                state = R.matmul(h, u)
                both = R.add(biased, state)
                new = R.tanh(both)
                R.output(new)
            last = Module.steps(R.prim_value({next}), {xs}, new, {w}, b, u)
        else:
            last = h
        return last

    @R.function
    def main(
        xs: R.Tensor(("n", 1, 32), "float32"),
        h: R.Tensor((1, 4), "float32"),
        w: R.Tensor((32, 4), "float32"),
        b: R.Tensor((4,), "float32"),
        u: R.Tensor((4, 4), "float32"),
    ) -> R.Tensor((1, 4), "float32"):
        last = Module.steps(R.prim_value({first}), xs, h, w, b, u)
        return last
"""
PLACES = {
    "private": "private=True", "cond": "i < n", "axis": "0", "end": "i + 1", "next": "i + 1",
    "xs": "xs", "w": "w", "first": "0", "biased": "product, b", "row": "row",
}  # fmt: skip


def recurrent(text=RECURRENT, **changes):
    for place, there in {**PLACES, **changes}.items():
        text = text.replace(f"{{{place}}}", there)
    return from_source(text)


def inputs(n):
    return [RNG.standard_normal(s, "float32") for s in ((n, 1, 32), (1, 4), (32, 4), (4,), (4, 4))]


def meaning(xs, h, w, b, u):
    for x in xs:
        h = np.tanh(x @ w + b + h @ u)
    return h


def main_of(mod, exec_mode=None):
    executable = relax.build(mod, "llvm", exec_mode=exec_mode)
    return VirtualMachine(executable, tvm.cpu())["main"]


def products_in(fn):
    return fn.script().count("R.matmul")


def test_the_product_of_a_row_stands_before_the_recursion():
    made = hoist(recurrent())
    expected = from_source(
        """
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @R.function(private=True)
    def steps(
        step: R.Prim(value="i"),
        xs: R.Tensor(("n", 1, 32), "float32"),
        h: R.Tensor((1, 4), "float32"),
        w: R.Tensor((32, 4), "float32"),
        b: R.Tensor((4,), "float32"),
        u: R.Tensor((4, 4), "float32"),
        rows: R.Tensor(("n", 4), "float32"),
    ) -> R.Tensor((1, 4), "float32"):
        i = T.int64()
        n = T.int64()
        if R.prim_value(i < n):
            row = R.strided_slice(xs, axes=[0], begin=[i], end=[i + 1], assume_inbound=True)
            flat = R.reshape(row, (1, 32))
            with R.dataflow():
                product = R.matmul(flat, w)
                biased = R.strided_slice(rows, [0], [i], [i + 1], assume_inbound=True)
                state = R.matmul(h, u)
                both = R.add(biased, state)
                new = R.tanh(both)
                R.output(new)
            last = Module.steps(R.prim_value(i + 1), xs, new, w, b, u, rows)
        else:
            last = h
        return last

    @R.function
    def main(
        xs: R.Tensor(("n", 1, 32), "float32"),
        h: R.Tensor((1, 4), "float32"),
        w: R.Tensor((32, 4), "float32"),
        b: R.Tensor((4,), "float32"),
        u: R.Tensor((4, 4), "float32"),
    ) -> R.Tensor((1, 4), "float32"):
        n = T.int64()
        rows = R.reshape(xs, (n, 32))
        rows_1 = R.matmul(rows, w)
        rows_2 = R.add(rows_1, b)
        last = Module.steps(R.prim_value(0), xs, h, w, b, u, rows_2)
        return last
"""
    )
    assert_well_formed(made)
    assert_structural_equal(made, expected)


@pytest.mark.parametrize("exec_mode", ["compiled", "bytecode"])
@pytest.mark.parametrize("bound", [False, True])
def test_builds_give_the_same_for_no_row_one_and_many(bound, exec_mode):
    mod, given = recurrent(), inputs(0)
    if bound:
        mod = BindParams("main", dict(zip("wbu", given[2:])))(mod)
    run = main_of(mod, exec_mode)
    for n in (0, 1, 2, 37):
        given[0] = inputs(n)[0]
        got = run(*given[: 2 if bound else 5]).numpy()
        np.testing.assert_allclose(got, meaning(*given), rtol=1e-5, atol=1e-6)


def test_a_build_has_one_product_less_in_each_step():
    given = inputs(5)
    mod = BindParams("main", dict(zip("wbu", given[2:])))(recurrent())
    executable = relax.build(mod, "llvm")
    report = VirtualMachine(executable, tvm.cpu()).profile("main", *given[:2])
    counts = [r.count for r in report.calls if "matmul" in r.name]
    assert sorted(counts) == [1, 5]


@pytest.mark.parametrize(
    "changes",
    [
        {"first": "1"},
        {"next": "i + 2"},
        {"cond": "i <= n"},
        {"cond": "i + 1 < n"},
        {"end": "i + 2", "row": "R.sum(row, 0)"},
        {"axis": "1", "row": "R.sum(row, 0)"},
        {"xs": "R.add(xs, xs)"},
        {"w": "R.add(w, w)", "biased": "product, h"},
        {"private": ""},
    ],
    ids=str,
)
def test_other_recursions_stay(changes):
    mod = relax.transform.Normalize()(recurrent(**changes))
    assert hoist(mod) is mod


@pytest.mark.parametrize("written", ["xs", "w"])
def test_rows_and_weights_that_are_written_between_two_rows_are_read_then(written):
    @tvm.register_global_func("tests.double", override=True)
    def double(x):
        x.copyfrom(x.numpy() * 2)

    text = RECURRENT.replace("({private})", "({private}, pure=False)")
    text = text.replace("@R.function\n", "@R.function(pure=False)\n")
    write = f'R.call_packed("tests.double", {written}, sinfo_args=[R.Tuple()])'
    text = text.replace("last = Module", f"done = {write}\n            last = Module", 1)
    mod = relax.transform.Normalize()(recurrent(text))
    assert hoist(mod) is mod
    xs, h, w, b, u = inputs(4)
    want, scale = h, 1
    for x in xs:
        want = np.tanh(scale * x @ w + b + want @ u)
        scale *= 2
    np.testing.assert_allclose(main_of(mod)(xs, h, w, b, u).numpy(), want, rtol=1e-5, atol=1e-6)


def test_what_is_added_of_the_state_is_not_taken_along():
    made = hoist(recurrent(biased="product, h"))
    assert "R.add(rows" not in made["main"].script()
    given = inputs(6)
    want = given[1]
    for x in given[0]:
        want = np.tanh(x @ given[2] + want + want @ given[4])
    np.testing.assert_allclose(main_of(made)(*given).numpy(), want, rtol=1e-5, atol=1e-6)


def test_the_pass_may_run_twice_and_leaves_its_input_alone():
    mod = recurrent()
    before = mod.script()
    once = relax.transform.DeadCodeElimination()(hoist(mod))
    assert mod.script() == before
    assert hoist(once) is once


def test_not_where_numerics_are_exact():
    with PassContext(config={"numerics": "exact"}):
        given = inputs(3)
        mod = recurrent()
        assert tvm.ir.transform.Sequential([hoist])(mod) is mod
        np.testing.assert_allclose(main_of(mod)(*given).numpy(), meaning(*given), rtol=1e-5)


def test_very_wide_rows_are_computed_one_by_one():
    text = RECURRENT.replace("(32, 4)", "(32, 20000)").replace("(4,)", "(20000,)")
    mod = recurrent(text.replace("R.add(biased, state)", "R.add(R.sum(biased), state)"))
    with PassContext() as context:
        assert hoist(mod) is mod
    assert "20,000 columns are much for all rows" in str(context.report)


def test_products_of_short_rows_are_quicker_than_what_would_be_kept_of_them():
    mod = recurrent(RECURRENT.replace("32", "31").replace("float31", "float32"))
    with PassContext() as context:
        assert hoist(mod) is mod
    assert "a row of 31 numbers is quick" in str(context.report)
