"""LazyGetInput and LazySetOutput: weights asked for, results handed over, one by one."""

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import VerifyError
from relaxvm.ir import assert_structural_equal
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.transform import LazyGetInput, LazySetOutput
from relaxvm.script import from_source

TENSOR = 'R.Tensor((4, 4), "float32")'
GET = 'fget_param: R.Callable([R.Prim("int64"), R.Object], R.Object)'
SET = 'fset_output: R.Callable([R.Prim("int64"), R.Object], R.Tuple([]), purity=False)'


def module(text):
    return from_source("@I.ir_module\nclass M:\n" + text)


def check(lazy, before, expected):
    made = lazy()(module(before))
    assert_well_formed(made)
    assert_structural_equal(made, module(expected))
    return made


def test_each_weight_is_fetched_before_its_first_use():
    check(
        LazyGetInput,
        f"""
    @R.function
    def main(A: {TENSOR}, B: {TENSOR}):
        C = R.multiply(A, R.const(2, "float32"))
        D = R.add(C, B)
        return (D, B)
""",
        f"""
    @R.function
    def main({GET}):
        R.func_attr({{"num_input": 1}})
        a = fget_param(R.prim_value(0), R.str("A"))
        A = R.match_cast(a, {TENSOR})
        C = R.multiply(A, R.const(2, "float32"))
        b = fget_param(R.prim_value(1), R.str("B"))
        B = R.match_cast(b, {TENSOR})
        D = R.add(C, B)
        return (D, B)
""",
    )


def test_inputs_stay_parameters_and_unused_weights_are_not_fetched():
    check(
        LazyGetInput,
        f"""
    @R.function
    def main(x: {TENSOR}, unused: {TENSOR}, w: {TENSOR}):
        R.func_attr({{"num_input": 1}})
        with R.dataflow():
            y = R.matmul(x, w)
            R.output(y)
        return y
    @R.function(private=True)
    def helper(x: {TENSOR}):
        return x
""",
        f"""
    @R.function
    def main(x: {TENSOR}, {GET}):
        R.func_attr({{"num_input": 2}})
        with R.dataflow():
            o = fget_param(R.prim_value(1), R.str("w"))
            w = R.match_cast(o, {TENSOR})
            y = R.matmul(x, w)
            R.output(o, w, y)
        return y
    @R.function(private=True)
    def helper(x: {TENSOR}):
        return x
""",
    )


def test_a_symbol_of_a_weights_shape_is_a_use_of_it():
    made = LazyGetInput()(
        module("""
    @R.function
    def main(A: R.Tensor(("m", "n"), "float32"), B: R.Tensor(("n", "k"), "float32")):
        m = T.int64()
        n = T.int64()
        k = T.int64()
        z = R.zeros(R.shape([m, k]), "float32")
        return R.add(R.matmul(A, B), z)
""")
    )
    assert_well_formed(made)
    names = [b.var.name_hint for b in made["main"].body.blocks[0].bindings]
    assert names[:5] == ["A", "A", "B", "B", "z"]


def test_each_result_is_handed_over_when_it_is_there():
    check(
        LazySetOutput,
        f"""
    @R.function
    def main(A: {TENSOR}, B: {TENSOR}):
        with R.dataflow():
            C = R.multiply(A, R.const(2, "float32"))
            D = R.add(C, B)
            R.output(C, D)
        return (D, C, B, R.const(1, "float32"), C)
""",
        f"""
    @R.function(pure=False)
    def main(A: {TENSOR}, B: {TENSOR}, {SET}) -> R.Tuple([]):
        _ = fset_output(R.prim_value(2), B)
        C = R.multiply(A, R.const(2, "float32"))
        _1 = fset_output(R.prim_value(1), C)
        _2 = fset_output(R.prim_value(4), C)
        D = R.add(C, B)
        _3 = fset_output(R.prim_value(0), D)
        _4 = fset_output(R.prim_value(3), R.const(1, "float32"))
        return R.tuple()
""",
    )


@pytest.mark.vm_modes
def test_both_together_run():
    mod = module(f"""
    @R.function
    def main(x: {TENSOR}, A: {TENSOR}, B: {TENSOR}):
        R.func_attr({{"num_input": 1}})
        C = R.add(x, A)
        D = R.multiply(C, B)
        return (D, C)
""")
    mod = LazySetOutput()(LazyGetInput()(mod))
    assert [p.name_hint for p in mod["main"].params] == ["x", "fget_param", "fset_output"]
    vm = relax.VirtualMachine(relax.build(mod))
    rng = np.random.default_rng(0)
    x, a, b = rng.standard_normal((3, 4, 4)).astype("float32")
    asked, given = [], {}

    def get(index, name):
        asked.append((index, name))
        return (a, b)[index]

    vm["main"](x, get, lambda index, value: given.update({index: value.numpy()}))
    assert asked == [(0, "A"), (1, "B")]
    np.testing.assert_allclose(given[1], x + a, rtol=1e-6)
    np.testing.assert_allclose(given[0], (x + a) * b, rtol=1e-6)


def test_a_wrong_num_input_is_named():
    mod = module(f"""
    @R.function
    def main(x: {TENSOR}):
        R.func_attr({{"num_input": 2}})
        return x
""")
    with pytest.raises(VerifyError, match="main.*num_input.*up to 1, got 2"):
        LazyGetInput()(mod)


def test_a_function_that_another_one_calls_keeps_its_parameters():
    mod = module(f"""
    @R.function
    def inner(x: {TENSOR}):
        return x
    @R.function
    def main(x: {TENSOR}):
        y: {TENSOR} = M.inner(x)
        return y
""")
    made = LazyGetInput()(mod)
    assert [p.name_hint for p in made["inner"].params] == ["x"]
    assert [p.name_hint for p in made["main"].params] == ["fget_param"]
    assert_well_formed(made)


def test_detached_params_leave_the_module():
    values = [np.ones(3, "float32")]
    mod = module(f"""
    @R.function
    def main(x: {TENSOR}):
        return x
""")
    mod["main"] = mod["main"].with_attr("params", values)
    bare, params = relax.frontend.detach_params(mod)
    assert "params" not in bare["main"].attrs
    assert "params" in mod["main"].attrs
    assert list(params) == ["main"]
    np.testing.assert_array_equal(np.asarray(params["main"][0]), values[0])
