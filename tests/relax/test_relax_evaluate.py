"""DynamicToStatic and PartialEvaluate: what can be known while compiling is."""

import numpy as np
import pytest
from pass_cases import becomes, parse, same_results, stays

from relaxvm import relax
from relaxvm.ir import PassContext, walk
from relaxvm.relax import transform
from relaxvm.relax.analysis import assert_well_formed

static = transform.DynamicToStatic()
evaluate = transform.PartialEvaluate()
X = np.arange(6, dtype="float32").reshape(2, 3)


# -- DynamicToStatic ------------------------------------------------------------------------------


def test_a_shape_that_is_computed_is_known():
    becomes(
        static,
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            s = R.shape_of(x)
            t = R.shape_to_tensor(s)
            u = R.flip(t, 0)
            v: R.Shape(ndim=2) = R.tensor_to_shape(u)
            y = R.reshape(x, v)
            z = R.exp(y)
            w = R.sum(z, axis=0)
            return w
        """,
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2,), "float32"):
            y = R.reshape(x, R.shape([3, 2]))
            z = R.exp(y)
            w = R.sum(z, axis=0)
            return w
        """,
    )


def test_what_follows_from_a_known_shape_is_known_in_the_next_round():
    made = static(
        parse(
            """
            @R.function
            def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((6, 1), "float32")):
                t: R.Tensor((1,), "int64") = R.const([6], "int64")
                s: R.Shape(ndim=1) = R.tensor_to_shape(t)
                a = R.reshape(x, s)
                b = R.shape_of(a)
                c = R.shape_to_tensor(b)
                d = R.concat((c, R.const([1], "int64")))
                e: R.Shape(ndim=2) = R.tensor_to_shape(d)
                f = R.reshape(a, e)
                g = R.add(f, y)
                return g
            """
        )
    )
    assert_well_formed(made)
    assert made["main"].ret_struct_info == relax.TensorStructInfo((6, 1), "float32")
    assert all(
        "shape" not in n.op.name.replace("reshape", "")
        for n in walk(made["main"])
        if isinstance(n, relax.Call)
    )


def test_dynamic_slices_at_constants_are_plain_ones():
    text = """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            b = R.const([0, 2], "int64")
            e = R.const([2, 0], "int64")
            s = R.const([1, -1], "int64")
            a = R.dynamic_strided_slice(x, b, e, s)
            return a
        """
    made = static(parse(text))
    assert_well_formed(made)
    assert made["main"].ret_struct_info == relax.TensorStructInfo((2, 2), "float32")
    same_results(parse(text), made, X)
    assert static(made) is made


def test_what_only_the_program_knows_stays():
    stays(
        static,
        """
        @R.function
        def main(x: R.Tensor(("n", 3), "float32"), t: R.Tensor((2,), "int64")):
            s = R.tensor_to_shape(t)
            y = R.reshape(x, s)
            return y
        """,
    )


# -- PartialEvaluate ------------------------------------------------------------------------------

POWER = """
@R.function
def main(x: R.Tensor((2, 3), "float32")):
    cls = Module
    {body}

@R.function(private=True)
def power(x: R.Tensor((2, 3), "float32"), n: R.Tensor((), "int64")) -> R.Tensor((2, 3), "float32"):
    cls = Module
    c = R.equal(n, R.const(0, "int64"))
    if c:
        r = R.ones(R.shape([2, 3]), "float32")
    else:
        m = R.subtract(n, R.const(1, "int64"))
        p = cls.power(x, m)
        r = R.multiply(x, p)
    return r
"""


def count(fn, name):
    return sum(isinstance(n, relax.Call) and n.op == relax.op.multiply.op for n in walk(fn))


@pytest.mark.parametrize("body", [
    'a = cls.power(x, R.const(3, "int64"))\n    return a',
    'with R.dataflow():\n        a = cls.power(x, R.const(3, "int64"))\n        R.output(a)\n'
    "    return a",
])  # fmt: skip
def test_a_loop_of_known_length_is_unrolled(body):
    mod = parse(POWER.format(body=body))
    made = evaluate(mod)
    assert_well_formed(made)
    calls = [n.op for n in walk(made["main"]) if isinstance(n, relax.Call)]
    assert [getattr(op, "name", "call") for op in calls].count("relax.multiply") == 3
    assert not any(isinstance(n, (relax.If, relax.GlobalVar)) for n in walk(made["main"]))
    same_results(mod, made, X)
    assert evaluate(made) is made


def test_a_branch_that_is_known_is_taken():
    becomes(
        evaluate,
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            c = R.greater(R.const(3), R.const(2))
            if c:
                with R.dataflow():
                    b = R.exp(x)
                    a = R.sin(b)
                    R.output(a)
                r = a
            else:
                r = R.cos(x)
            z = R.exp(r)
            return z
        """,
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                b = R.exp(x)
                a = R.sin(b)
                R.output(a)
            z = R.exp(a)
            return z
        """,
    )


def test_loops_of_unknown_length_and_long_ones_stay():
    body = "    n: R.Tensor((), 'int64') = R.astype(R.sum(x), 'int64')\n"
    mod = parse(POWER.format(body=body.strip() + "\n    a = cls.power(x, n)\n    return a"))
    assert evaluate(mod) is mod
    mod = parse(POWER.format(body='a = cls.power(x, R.const(9999, "int64"))\n    return a'))
    with PassContext() as ctx:
        assert evaluate(mod) is mod
    assert any("it takes more than 10,000 bindings" in d.text for d in ctx.report)
    # One that never ends is left to the program.
    mod = parse(POWER.format(body='a = cls.power(x, R.const(-1, "int64"))\n    return a'))
    assert evaluate(mod) is mod


def test_a_call_that_decides_something_unknown_too_stays():
    stays(
        evaluate,
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")):
            cls = Module
            a = cls.f(x, c, R.const(True))
            return a

        @R.function(private=True)
        def f(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), d: R.Tensor((), "bool")):
            if d:
                r = R.exp(x)
            else:
                r = x
            if c:
                s = R.exp(r)
            else:
                s = r
            return s
        """,
    )
