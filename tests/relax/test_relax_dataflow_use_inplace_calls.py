"""DataflowUseInplaceCalls: kernels write over arguments that are dead after them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from pass_cases import parse, random_model, same_results, stays

from relaxvm import relax, tir
from relaxvm.ir import PassContext, walk
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.transform import DataflowUseInplaceCalls, TopologicalSort
from relaxvm.runtime import VirtualMachine
from relaxvm.testing import CheckMeaning

V = 'R.Tensor(("n", 4), "float32")'
X = np.array([[1, -2, 3, 4], [5, 6, -7, 8]], "float32")
Y = X * 3


def main(*lines, result="c", params=f"x: {V}, y: {V}"):
    body = "".join(f"        {line}\n" for line in lines)
    return f"""
@R.function
def main({params}):
    with R.dataflow():
{body}        R.output({result})
    return {result}
"""


def inplace(mod):
    """The names of the results that are written over an argument, and the argument's number."""
    return {
        n.var.name_hint: tuple(n.value.attrs["inplace_indices"])
        for fn in mod.functions.values()
        for n in walk(fn)
        if isinstance(n, relax.VarBinding) and "inplace_indices" in getattr(n.value, "attrs", {})
    }


def check(text, wanted):
    mod = parse(text)
    before = dict(mod.functions)
    made = DataflowUseInplaceCalls()(mod)
    assert dict(mod.functions) == before
    assert_well_formed(made)
    assert inplace(made) == wanted
    same_results(mod, made, X, Y)
    executable = relax.build(made, "llvm")
    for mode in ("compiled", "bytecode"):
        x, y = X.copy(), Y.copy()
        VirtualMachine(executable, exec_mode=mode)["main"](x, y)
        assert np.array_equal(x, X)
        assert np.array_equal(y, Y)
    return made


def test_a_dead_argument_holds_the_result():
    made = check(
        main("a = R.add(x, y)", "b = R.multiply(y, a)", "c = R.nn.silu(b)"),
        {"b": (1,), "c": (0,)},
    )
    assert "R.add(x, y)" in made["main"].script()


def test_arguments_of_the_function_are_never_written():
    stays(DataflowUseInplaceCalls(), main("c = R.add(x, y)"))


def test_what_is_read_later_stays():
    check(
        main("a = R.add(x, y)", "b = R.multiply(a, y)", "c = R.subtract(b, a)"),
        {"c": (0,)},
    )
    stays(
        DataflowUseInplaceCalls(),
        main("a = R.add(x, y)", "b = R.multiply(a, y)", "c = (a, b)"),
    )


def test_what_has_another_name_or_stands_in_a_tuple_stays():
    for lines in (
        ("a = R.add(x, y)", "t = (a, y)", "u = t[0]", "b = R.nn.relu(a)", "c = (b, u)"),
        ("a = R.add(x, y)", "u = a", "b = R.nn.relu(a)", "c = (b, u)"),
        ("a = R.add(x, y)", "u = R.reshape(a, (4, n))", "b = R.nn.relu(a)", "c = (b, u)"),
    ):
        text = main(*lines).replace("    with", "    n = T.int64()\n    with", 1)
        stays(DataflowUseInplaceCalls(), text)


def test_one_argument_twice_and_a_wider_result_stay():
    stays(DataflowUseInplaceCalls(), main("a = R.add(x, y)", "c = R.multiply(a, a)"))
    check(
        main("s = R.sum(x, axis=1, keepdims=True)", "c = R.add(s, y)"),
        {},
    )


def test_what_was_computed_outside_of_the_block_stays():
    text = f"""
@R.function
def main(x: {V}, y: {V}):
    a = R.add(x, y)
    with R.dataflow():
        c = R.nn.relu(a)
        R.output(c)
    return c
"""
    stays(DataflowUseInplaceCalls(), text)


def test_a_kernel_of_the_user():
    text = main(
        "a = R.exp(x)",
        'c = R.call_tir(cls.scaled, (y, a), out_sinfo=R.Tensor((n, 4), "float32"))',
    ).replace("    with", "    cls = Module\n    n = T.int64()\n    with", 1)
    check(
        """
@T.prim_func
def scaled(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 4), "float32")
    B = T.match_buffer(b, (n, 4), "float32")
    C = T.match_buffer(c, (n, 4), "float32")
    for i, j in T.grid(n, T.int64(4)):
        C[i, j] = A[i, T.int64(3) - j] * B[i, j]
"""
        + text,
        {"c": (1,)},
    )


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_give_the_same_bits(seed):
    rng = random.Random(seed)
    mod, n = random_model(rng)
    made = DataflowUseInplaceCalls()(mod)
    assert_well_formed(made)
    numbers = np.random.default_rng(seed)
    for rows in (0, 1, 4) if isinstance(n, tir.Var) else (n,):
        args = [numbers.standard_normal(s).astype("float32") for s in ((rows, 6),) * 2 + ((6, 6),)]
        same_results(mod, made, *args)


def test_sorting_leaves_a_block_with_a_call_in_place_as_it_is():
    mod = parse(main("a = R.exp(x)", "b = R.sin(a)", "d = R.add(a, y)", "c = R.multiply(b, d)"))
    made = DataflowUseInplaceCalls()(mod)
    assert inplace(made)
    assert TopologicalSort("breadth-first", "from-outputs")(made) is made
    with PassContext(instruments=[CheckMeaning()]):
        TopologicalSort()(DataflowUseInplaceCalls()(mod))
