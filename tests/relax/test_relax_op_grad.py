"""Operators that gradients are made of: against their meanings, and against differences of what
they are gradients of.
"""

from __future__ import annotations

import numpy as np
import pytest
from op_table import FLOATS, SIZES, Case, Instance, T, check, check_errors, check_gradients

from relaxvm import relax, te, tir
from relaxvm.base import VMError
from relaxvm.ir import assert_structural_equal
from relaxvm.relax import op as R
from relaxvm.relax.op.grad import register_te_gradient
from relaxvm.relax.op.meaning import evaluate
from relaxvm.relax.op.names import ops
from relaxvm.runtime import VirtualMachine, cpu
from relaxvm.script import from_source

G = R.grad


@register_te_gradient("test_o3_product")
def product_gradient(output_grad, x, y, scale):
    return [
        te.compute(x.shape, lambda *i: output_grad(*i) * y(*i) * te.const(scale, x.dtype)),
        te.compute(y.shape, lambda *i: output_grad(*i) * x(*i) * te.const(scale, x.dtype)),
    ]


@register_te_gradient("test_o3_square")
def square_gradient(output_grad, x):
    return te.compute(x.shape, lambda *i: output_grad(*i) * x(*i) * te.const(2, x.dtype))


def distinct(rng, shape):
    return rng.permutation(np.prod(shape, dtype=int)).reshape(shape) * 0.5 - 2


def classes(*shape, high=3):
    return T(*shape, dtype="int64", low=0, high=high)


POOL = dict(pool_size=(2, 3), strides=(2, 1), padding=(1, 0, 0, 2))

CASES = [
    Case(G.no_grad, T("n", 4)),
    Case(G.start_checkpoint, T("n", 4)),
    Case(G.end_checkpoint, T()),
    Case(G.nll_loss_backward, T(), T("n", 4), classes("n"), count=3),
    Case(G.nll_loss_backward, T(), T("n", 4), classes("n"), T(4, low=0.5), count=3),
    Case(G.nll_loss_backward, T("n", 2), T("n", 4, 2), classes("n", 2), T(4), reduction="none"),
    Case(
        G.nll_loss_backward,
        T(),
        T(3, 4),
        T(3, dtype="int32", data=[1, 2, 3]),
        T(4),
        reduction="sum",
        ignore_index=2,
    ),
    Case(G.nll_loss_backward, T(), T(3, 4), T(3, dtype="int32", data=[1, 7, -1]), reduction="sum"),
    Case(G.nll_loss_backward, T(), T(3, 4), T(3, dtype="int32", data=[1, 7, -1]), slow=True),
    Case(G.nll_loss_backward, T(), T(4), classes(), T(4, low=0.5), slow=True),
    Case(G.nll_loss_backward, T(0), T(0, 4), classes(0), reduction="none", slow=True),
    Case(
        G.max_pool2d_backward,
        T("n", 2, 2, 3),
        T("n", 2, 4, 5, data=distinct),
        pool_size=2,
        strides=(2, 2),
        ceil_mode=True,
    ),
    Case(G.max_pool2d_backward, T(1, 2, 2, 5), T(1, 2, 4, 5, data=distinct), **POOL),
    Case(
        G.max_pool2d_backward,
        T(1, 3, 3, 1),
        T(1, 5, 5, 1),
        pool_size=(2, 2),
        dilation=2,
        layout="NHWC",
        count=4,
    ),
    Case(
        G.max_pool2d_backward,
        T(1, 1, 2, 2),
        T(1, 1, 3, 3, data=[[[[1, 1, 1], [1, 1, 1], [np.nan, 1, -np.inf]]]]),
        pool_size=2,
        count=4,
    ),
    Case(G.max_pool2d_backward, T(0, 1, 2, 2), T(0, 1, 3, 3), pool_size=2, slow=True),
    Case(
        G.max_pool1d_backward,
        T("n", 2, 3),
        T("n", 2, 6, data=distinct),
        pool_size=3,
        strides=2,
        padding=1,
    ),
    Case(
        G.max_pool3d_backward,
        T(1, 2, 3, 1, 2),
        T(1, 1, 3, 4, 2, 2, data=distinct),
        pool_size=2,
        layout="NCDHW2c",
        out_layout="NDHWC",
    ),
    Case(
        G.avg_pool1d_backward,
        T(1, 2, "k"),
        T(1, 2, "n"),
        pool_size=3,
        dilation=2,
        padding=2,
        sizes={"k": 3, "n": 3},
        count=4,
    ),
    Case(G.avg_pool3d_backward, T(1, 1, 1, 2, 2), T(1, 1, 2, 3, 2), pool_size=(2, 2, 1), count=4),
    Case(G.adaptive_max_pool1d_backward, T(1, 2, 4), T(1, 2, "n", data=distinct), output_size=4),
    Case(
        G.adaptive_max_pool2d_backward,
        T("n", 2, 2, 3),
        T("n", 2, 5, 4, data=distinct),
        output_size=(2, 3),
        count=4,
    ),
    Case(G.adaptive_max_pool3d_backward, T(1, 1, 1, 1, 1), T(1, 1, 2, 3, "m"), output_size=1),
    Case(G.adaptive_avg_pool1d_backward, T(1, 2, "n"), T(1, 2, "n")),
    Case(
        G.adaptive_avg_pool2d_backward,
        T(1, 3, 2, 2),
        T(1, 2, 5, 3),
        output_size=(3, 2),
        out_layout="NHWC",
        count=4,
    ),
    Case(G.adaptive_avg_pool3d_backward, T(1, 1, 2, 2, 1), T(1, 1, 3, 2, 5), output_size=(2, 2, 1)),
    Case(
        G.avg_pool2d_backward,
        T("n", 2, 2, 3),
        T("n", 2, 4, 5),
        pool_size=2,
        strides=(2, 2),
        ceil_mode=True,
    ),
    Case(G.avg_pool2d_backward, T(1, 2, 2, 5), T(1, 2, 4, 5), **POOL, count=6),
    Case(
        G.avg_pool2d_backward, T(1, 2, 2, 5), T(1, 2, 4, 5), **POOL, count_include_pad=True, count=6
    ),
    Case(
        G.avg_pool2d_backward,
        T(1, 5, "k", 1),
        T(1, 5, "m", 1),
        pool_size=(2, 2),
        dilation=2,
        padding=1,
        layout="NHWC",
        sizes={"k": 5, "m": 5},
        count=4,
        slow=True,
    ),
    Case(
        G.take_backward, T("n", 2), T(5, 2), T("n", dtype="int32", low=-5, high=4), axis=0, count=3
    ),
    Case(
        G.take_backward,
        T(2, 3, 4),
        T(2, "k", 4),
        T(3, dtype="int64", data=[1, 1, 0]),
        axis=1,
        count=2,
    ),
    Case(
        G.take_backward,
        T(2, 2, 3),
        T(2, 5),
        T(2, 3, dtype="int64", low=0, high=4),
        axis=-1,
        count=3,
    ),
    Case(G.take_backward, T(2, 3), T(2, 5), T(2, 3, dtype="int64", low=0, high=9), count=3),
    Case(G.take_backward, T(4), T(4, 3), T(dtype="int64", data=1), axis=1, slow=True),
    Case(G.take_backward, T(0, 3), T(2, 3), T(0, dtype="int64"), axis=0, slow=True),
    Case(
        G.te_gradient, T("n"), T("n"), te_grad_name="test_o3_square", dtypes=("float32", "float64")
    ),
    Case(
        G.te_gradient,
        T(3),
        T(3),
        T(3),
        te_grad_name="test_o3_product",
        te_grad_kwargs={"scale": 3},
        dtypes=("float32", "float64"),
    ),
]


def test_backward_operators_agree_with_their_meanings():
    check(CASES, dtypes=("float32", "bfloat16"))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.slow
def test_backward_operators_agree_on_every_dtype(dtype):
    check(CASES, dtypes=(dtype,), slow=True)


def test_gradient_of_take_backward():
    check_gradients([c for c in CASES if c.op is G.take_backward])


def test_gradients_flow_through_checkpoints_and_not_through_no_grad():
    x, g = variable("x", 3), variable("g", 3)
    assert G.no_grad.op.grad(ops, G.no_grad(x), x, g) == (None,)
    assert G.start_checkpoint.op.grad(ops, G.start_checkpoint(x), x, g) == (g,)
    assert G.end_checkpoint.op.grad(ops, G.end_checkpoint(x), x, g) == (g,)


# What each is the gradient of: the forward case whose differences it must agree with.
FORWARD = [
    (
        G.nll_loss_backward,
        "nll_loss",
        (T(3, 4, 2), classes(3, 2), T(4, low=0.5)),
        dict(reduction="mean"),
    ),
    (
        G.nll_loss_backward,
        "nll_loss",
        (T(3, 4), classes(3)),
        dict(reduction="none", ignore_index=1),
    ),
    (G.nll_loss_backward, "nll_loss", (T(4), classes()), dict(reduction="sum")),
    (
        G.max_pool2d_backward,
        "max_pool2d",
        (T(1, 2, 4, 5, data=distinct),),
        dict(**POOL, ceil_mode=True),
    ),
    (
        G.max_pool2d_backward,
        "max_pool2d",
        (T(1, 5, 5, 2, data=distinct),),
        dict(pool_size=(3, 2), dilation=(1, 2), layout="NHWC"),
    ),
    (G.avg_pool2d_backward, "avg_pool2d", (T(1, 2, 4, 5),), dict(**POOL)),
    (G.avg_pool2d_backward, "avg_pool2d", (T(1, 2, 4, 5),), dict(**POOL, count_include_pad=True)),
    (
        G.avg_pool2d_backward,
        "avg_pool2d",
        (T(1, 1, 5, 5),),
        dict(pool_size=2, strides=2, ceil_mode=True),
    ),
]


@pytest.mark.parametrize(("backward", "name", "args", "attrs"), FORWARD)
def test_backward_operators_are_gradients_of_the_forward_ones(backward, name, args, attrs):
    one = Instance(Case(getattr(R.nn, name), *args, **attrs), "float64")
    env = one.env()
    y = evaluate(one.call, env, SIZES)
    g = relax.Var("g", one.call.struct_info)
    weight = one.rng.uniform(-1, 1, np.shape(y))
    got = evaluate(backward(g, *one.call.args, **attrs), {**env, g: weight})
    x, step = one.params[0], 1e-5
    want = np.zeros_like(got)
    for at in np.ndindex(*got.shape):
        sides = []
        for sign in (1, -1):
            moved = env[x].copy()
            moved[at] += sign * step
            sides.append(np.sum(weight * evaluate(one.call, {**env, x: moved})))
        want[at] = (sides[0] - sides[1]) / (2 * step)
    assert np.allclose(got, want, 1e-4, 1e-4)


def variable(name, *shape, dtype="float32"):
    return relax.Var(name, relax.TensorStructInfo(shape, dtype))


def run(params, make):
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(builder, *params))
        builder.emit_func_output(out)
    return VirtualMachine(relax.build(builder.get(), target="llvm"), cpu())["main"]


def test_take_backward_refuses_an_index_out_of_bounds_before_it_writes():
    params = [variable("g", 2), variable("x", 5), variable("i", 2, dtype="int64")]
    main = run(params, lambda b, g, x, i: G.take_backward(g, x, i, axis=0))
    g, x = np.ones(2, "float32"), np.zeros(5, "float32")
    assert main(g, x, np.array([-1, 4])).numpy().tolist() == [0, 0, 0, 0, 2]
    for bad in (5, -6):
        with pytest.raises(VMError, match="index is out of bounds"):
            main(g, x, np.array([0, bad]))
        with pytest.raises(VMError, match="index is out of bounds"):
            evaluate(
                G.take_backward(*params, axis=0), dict(zip(params, (g, x, np.array([0, bad]))))
            )


def product_kernel(builder, x, y):
    a, b = te.placeholder((4,), name="a"), te.placeholder((4,), name="b")
    func = te.create_prim_func(
        [a, b, te.compute((4,), lambda i: a(i) * b(i) * te.const(3.0, "float32"))]
    )
    return builder.add_func(func.without_attr("global_symbol"), "product")


def test_call_tir_with_grad_runs_as_call_tir():
    def make(builder, x, y):
        return R.call_tir_with_grad(
            product_kernel(builder, x, y),
            (x, y),
            relax.TensorStructInfo((4,), "float32"),
            te_grad_name="test_o3_product",
            te_grad_kwargs={"scale": 3},
        )

    main = run([variable("x", 4), variable("y", 4)], make)
    x, y = np.arange(4, dtype="float32"), np.full(4, 2.0, "float32")
    assert main(x, y).numpy().tolist() == [0, 6, 12, 18]


def test_call_tir_with_grad_reads_back_from_script():
    x, y = variable("x", 4), variable("y", 4)
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            kernel = product_kernel(builder, x, y)
            out = R.call_tir_with_grad(
                kernel,
                (x, y),
                x.struct_info,
                te_grad_name="test_o3_product",
                te_grad_kwargs={"scale": 3},
            )
            out = builder.emit_output(out)
        builder.emit_func_output(out)
    mod = builder.get()
    assert_structural_equal(from_source(mod.script()), mod)


def test_the_gradient_of_call_tir_with_grad_is_the_registered_one():
    x, y, gy = (variable(n, 4) for n in ("x", "y", "gy"))
    gv = product_kernel(relax.BlockBuilder(), x, y)
    call = R.call_tir_with_grad(
        gv, (x, y), relax.TensorStructInfo((4,), "float32"), "test_o3_product", {"scale": 3}
    )
    nothing, gradients = call.op.grad(ops, call, variable("out", 4), gy)
    assert nothing is None
    values = {v: np.arange(4, dtype="float32") + k for k, v in enumerate((x, y, gy))}
    got = evaluate(gradients, values)
    assert np.allclose(got[0], values[gy] * values[y] * 3)
    assert np.allclose(got[1], values[gy] * values[x] * 3)


def test_output_gradients_of_the_wrong_size_at_run_time_are_refused():
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    params = [variable("g", n), variable("p", m, 4), variable("t", m, dtype="int64")]
    main = run(params, lambda b, *a: G.nll_loss_backward(*a, reduction="none"))
    ones, zeros = np.ones, np.zeros
    assert main(ones(2, "float32"), ones((2, 4), "float32"), zeros(2, "int64")).shape == (2, 4)
    with pytest.raises(VMError):
        main(ones(1, "float32"), ones((2, 4), "float32"), zeros(2, "int64"))


def test_mistakes_in_backward_operators_are_explained():
    p, t, g = variable("p", 3, 4), variable("t", 3, dtype="int64"), variable("g")
    image, out = variable("image", 1, 2, 4, 4), variable("out", 1, 2, 2, 2)
    i, x = variable("i", 2, dtype="int32"), variable("x", 5, 4)
    check_errors(
        [
            (
                lambda: G.nll_loss_backward(g, p, p),
                "grad.nll_loss_backward: targets: wanted an integer dtype",
            ),
            (
                lambda: G.nll_loss_backward(g, p, variable("t", 2, dtype="int64")),
                "targets: wanted size 3 along axis 0, got 2",
            ),
            (lambda: G.nll_loss_backward(t, p, t), "output_grad: wanted a floating dtype"),
            (lambda: G.nll_loss_backward(p, p, t), "output_grad: wanted 0 dimensions, got 2"),
            (
                lambda: G.nll_loss_backward(g, p, t, variable("w", 3)),
                "weights: wanted size 4, got 3",
            ),
            (
                lambda: G.nll_loss_backward(g, p, t, reduction="avg"),
                "reduction: wanted one of none, sum, mean, got 'avg'",
            ),
            (
                lambda: G.max_pool2d_backward(out, image, pool_size=(2, 2)),
                r"output_grad: wanted shape \(1, 2, 3, 3\), got \(1, 2, 2, 2\)",
            ),
            (
                lambda: G.avg_pool2d_backward(out, image, 2, 2, layout="NCHW4c"),
                "data: wanted 5 dimensions, got 4",
            ),
            (
                lambda: G.avg_pool2d_backward(out, image, 2, 0),
                r"strides: wanted an int or 2 ints, each >= 1 and < 2\*\*31; got 0",
            ),
            (
                lambda: G.take_backward(p, x, i, axis=0),
                r"output_grad: wanted shape \(2, 4\), got \(3, 4\)",
            ),
            (
                lambda: G.take_backward(p, x, i, axis=2),
                "axis: wanted -2 to 1 for 2 dimensions, got 2",
            ),
            (lambda: G.take_backward(p, x, p, axis=0), "indices: wanted an integer dtype"),
            (
                lambda: G.te_gradient(g, g, te_grad_name="no such"),
                "te_grad_name: 'no such' is not registered",
            ),
            (
                lambda: register_te_gradient("test_o3_square", lambda *a: None),
                "'test_o3_square' is registered already",
            ),
            (
                lambda: R.call_tir_with_grad("env.f", (x,), x.struct_info, "test_o3_square"),
                "call_tir_with_grad: ",
            ),
        ]
    )
