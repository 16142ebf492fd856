"""ToMixedPrecision: the heavy operators work on float16."""

import numpy as np
import pytest
from pass_cases import becomes, flat, parse, results, stays

from relaxvm.base import PassError
from relaxvm.ir import PassContext
from relaxvm.ir.transform import Sequential
from relaxvm.relax import transform
from relaxvm.relax.analysis import assert_well_formed

run = transform.ToMixedPrecision()
NETWORK = """
    @R.function
    def main(
        x: R.Tensor(("n", 8), "float32"),
        w: R.Tensor((8, 4), "float32"),
        b: R.Tensor((4,), "float32"),
    ):
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.add(lv, b)
            lv2 = R.nn.relu(lv1)
            gv = R.nn.softmax(lv2)
            R.output(gv)
        return gv
"""


def test_matmul_takes_float16_what_follows_stays_there_and_softmax_does_not():
    becomes(
        run,
        NETWORK,
        """
        @R.function
        def main(
            x: R.Tensor(("n", 8), "float32"),
            w: R.Tensor((8, 4), "float32"),
            b: R.Tensor((4,), "float32"),
        ):
            with R.dataflow():
                x1 = R.astype(x, "float16")
                w1 = R.astype(w, "float16")
                lv = R.matmul(x1, w1, out_dtype="float32")
                lv_1 = R.astype(lv, "float16")
                b1 = R.astype(b, "float16")
                lv1 = R.add(lv_1, b1)
                lv2 = R.nn.relu(lv1)
                lv2_1 = R.astype(lv2, "float32")
                gv = R.nn.softmax(lv2_1)
                R.output(gv)
            return gv
        """,
    )


def test_sums_may_be_kept_in_float16():
    mod = transform.ToMixedPrecision(out_dtype="float16")(parse(NETWORK))
    assert_well_formed(mod)
    assert 'R.matmul(x_1, w_1, out_dtype="float16")' in mod.script().replace("x1", "x_1").replace(
        "w1", "w_1"
    )


def test_results_are_those_of_float32_up_to_what_float16_holds():
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s).astype("float32") for s in [(3, 8), (8, 4), (4,)]]
    mod = parse(NETWORK)
    want = flat(results(mod, *args))[0]
    for dtype in ("float32", "float16"):
        got = flat(results(transform.ToMixedPrecision(out_dtype=dtype)(mod), *args))[0]
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, atol=2e-2)


def test_inputs_that_are_named_become_float16():
    mod = transform.ToMixedPrecision(fp16_input_names=["w", "b"])(parse(NETWORK))
    assert_well_formed(mod)
    assert [str(p.struct_info.dtype) for p in mod["main"].params] == [
        "float32",
        "float16",
        "float16",
    ]
    assert mod.script().count("astype") == 3  # x down, the sums down, the result up


def test_names_that_fit_no_parameter_are_errors():
    with pytest.raises(PassError, match="no function has a float32 parameter named q"):
        transform.ToMixedPrecision(fp16_input_names=["q"])(parse(NETWORK))
    ints = NETWORK.replace('"float32"', '"int32"').replace("R.nn.softmax", "R.negative")
    with pytest.raises(PassError, match="wanted a float32 tensor"):
        transform.ToMixedPrecision(fp16_input_names=["w"])(
            parse(ints.replace("R.nn.relu", "R.abs"))
        )
    with pytest.raises(PassError, match="out_dtype is float32 or float16"):
        transform.ToMixedPrecision(out_dtype="int8")(parse(NETWORK))


def test_without_heavy_operators_nothing_changes():
    stays(
        run,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32"), k: R.Tensor((4, 4), "float64")):
            a = R.add(x, x)
            b = R.exp(a)
            c = R.matmul(k, k)
            return (b, c)
        """,
    )


def test_constants_are_converted_now_unless_float16_cannot_hold_them():
    text = """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            a = R.matmul(x, R.const([[1.0, 2.0], [3.0, 4.0]], "float32"))
            b = R.multiply(a, R.const(1e6, "float32"))
            c = R.multiply(a, R.const(2.0, "float32"))
            return (b, c)
        """
    mod = run(parse(text))
    assert_well_formed(mod)
    script = mod.script()
    assert script.count("astype") == 3  # x down, a down for c, c up
    assert 'R.const(1e+06, "float32")' in script or 'R.const(1000000.0, "float32")' in script


def test_tuples_branches_and_inner_functions():
    text = """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4, 4), "float32")):
            @R.function
            def inner(y: R.Tensor((4, 4), "float32")):
                a = R.matmul(y, x)
                b = R.split(a, 2)
                d = b[0]
                e = R.nn.relu(d)
                return (e, b)
            m = R.matmul(x, x)
            if c:
                p = R.nn.relu(m)
                r = R.add(p, m)
            else:
                r = R.exp(m)
            s = inner(r)
            return (s, m, r)
        """
    mod = parse(text)
    made = run(mod)
    assert_well_formed(made)
    x = np.random.default_rng(1).standard_normal((4, 4)).astype("float32") / 4
    for c in (True, False):
        got, want = (flat(results(m, np.array(c), x)) for m in (made, mod))
        for a, b in zip(got, want, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, atol=2e-2)


def test_a_context_may_forbid_it():
    mod = parse(NETWORK)
    with PassContext(config={"numerics": "reassociates"}):
        assert Sequential([run])(mod) is mod


def test_inputs_that_are_float16_already_stay():
    mod = parse(NETWORK)
    name = mod["main"].params[0].name_hint
    lower = transform.ToMixedPrecision(fp16_input_names=[name])
    once = lower(mod)
    assert once["main"].params[0].struct_info.dtype == "float16"
    assert lower(once) is once
