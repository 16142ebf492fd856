"""The meaning of graph functions, at every stage of a build."""

import random

import numpy as np
import pytest
from fuzz import graphs
from pass_cases import parse

from relaxvm import relax
from relaxvm.base import VMError
from relaxvm.ir import PassContext
from relaxvm.ir.instrument import PassInstrument
from relaxvm.pipeline import run_stages
from relaxvm.relax.interp import CheckFailed, Evaluator
from relaxvm.script import from_source

V = 'R.Tensor((4,), "float32")'
DOUBLE = """
@T.prim_func
def double(A: T.Buffer(4, "float32")):
    for i in range(4):
        A[i] = A[i] * T.float32(2)
"""
X = np.arange(4, dtype="float32")


class AfterEach(PassInstrument):
    """The modules after each pass, with its name."""

    def __init__(self):
        self.seen = []

    def run_after_pass(self, mod, info):
        self.seen.append((info.name, mod))


@pytest.mark.parametrize("number", range(6))
def test_a_module_means_the_same_after_every_pass_of_a_build(number):
    case = graphs.make(random.Random(f"stages {number}"))
    mod = from_source("\n".join(case["lines"]) + "\n")
    programs = graphs.language_programs if case["language"] else graphs.graph_programs
    calls = [programs.inputs(seed, mod) for seed in case["inputs"]]
    wanted = [graphs.meaning(mod, args) for args in calls]
    steps = AfterEach()
    with PassContext(opt_level=number % 5, instruments=[steps]):
        run_stages(mod)
    last = None
    for name, each in steps.seen:
        if each is last:
            continue
        last = each
        for args, want in zip(calls, wanted):
            if want is not None:
                assert graphs.meaning(each, args) == want, name


def inplace(body, result):
    return parse(f"""{DOUBLE}
@R.function
def main(x: {V}):
    cls = Module
{body}
    return {result}
""")


def test_a_call_in_place_changes_its_argument():
    mod = inplace(
        f"    y = R.call_tir_inplace(cls.double, (x,), inplace_indices=[0], out_sinfo=[{V}])",
        "(x, y)",
    )
    x = X.copy()
    seen, made = Evaluator(mod)("main", x)
    assert seen.tolist() == made.tolist() == x.tolist() == [0, 2, 4, 6]


def test_a_call_in_place_works_on_a_copy_of_a_constant():
    mod = inplace(
        f"""    a = R.const([1, 2, 3, 4], "float32")
    b = a
    y = R.call_tir_inplace(cls.double, (b,), inplace_indices=[0], out_sinfo=[{V}])""",
        "(a, y)",
    )
    for _ in range(2):
        assert [a.tolist() for a in Evaluator(mod)("main", X)] == [[1, 2, 3, 4], [2, 4, 6, 8]]


def test_what_a_view_shares_is_seen_through_it():
    mod = inplace(
        f"""    a = R.add(x, x)
    b = R.reshape(a, R.shape([2, 2]))
    y = R.call_tir_inplace(cls.double, (a,), inplace_indices=[0], out_sinfo=[{V}])""",
        "b",
    )
    assert Evaluator(mod)("main", X).tolist() == [[0, 4], [8, 12]]


def test_what_was_killed_cannot_be_read():
    mod = parse(f"""
@R.function(pure=False)
def main(x: {V}):
    a = R.add(x, x)
    _ = R.memory.kill_tensor(a)
    b = R.add(a, x)
    return b
""")
    with pytest.raises(VMError, match="a is read after it was killed"):
        Evaluator(mod)("main", X)


def test_memory_that_nobody_wrote_is_no_zero():
    mod = parse(f"""
@R.function(pure=False)
def main(x: {V}):
    a = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
    return a
""")
    assert (Evaluator(mod)("main", X) != 0).all()


def test_arguments_are_checked_and_bind_symbols():
    mod = parse("""
@R.function
def main(x: R.Tensor(("n",), "bfloat16"), y: R.Tensor(("n",), "bfloat16")):
    z = R.add(x, y)
    return z
""")
    x = np.array([0x3F80, 0x4000], "uint16")
    assert Evaluator(mod)("main", x, x).tolist() == [2, 4]
    with pytest.raises(CheckFailed, match="wanted n, got 1"):
        Evaluator(mod)("main", x, x[:1])
    with pytest.raises(CheckFailed, match="wanted 1 dimensions, got 0"):
        Evaluator(mod)("main", x, x[0])


def test_the_machines_own_functions_run_in_a_planned_module():
    mod = parse("""
@R.function
def main(x: R.Tensor(("n",), "float32"), s: R.Shape(["n"])):
    y = R.concat((x, R.ones(s, "float32")))
    z = R.multiply(y, y)
    return z
""")
    with PassContext(disabled_pass=["FoldConstant"]):
        planned = run_stages(relax.transform.Normalize()(mod))
    for size in (0, 1, 5):
        x = np.arange(size, dtype="float32") + 3
        want = np.concatenate([x * x, np.ones(size, "float32")])
        np.testing.assert_array_equal(Evaluator(planned)("main", x, (size,)), want)


def test_nested_values_mean_what_their_bindings_meant():
    mod = parse(
        f"""
        @R.function
        def main(t: R.Tuple({V}, {V}), y: {V}):
            with R.dataflow():
                a = t[0]
                b = R.negative(a)
                gv = (y, (t[1], b))
                R.output(gv)
            return gv
        """
    )
    nested = relax.transform.ToGraphNormalForm()(mod)
    assert "b =" not in nested.script()
    y, (last, b) = Evaluator(nested)("main", (X, X + 1), X + 2)
    for got, want in ((y, X + 2), (last, X + 1), (b, -X)):
        assert np.array_equal(got, want)
