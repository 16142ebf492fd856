"""Gradient: functions that give their gradients, compared with differences."""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, relay
from relaxvm.base import PassError
from relaxvm.relax import op as R
from relaxvm.relax.interp import Evaluator
from relaxvm.relax.transform import Gradient
from relaxvm.script import from_source


def tensor(*shape, dtype="float64"):
    return relax.TensorStructInfo(shape, dtype)


def module(build, *shapes, dataflow=True):
    """main(x0, x1, ...) of ``build(emit, x0, ...)``."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", tensor(*s)) for i, s in enumerate(shapes)]
    with builder.function("main", params):
        if dataflow:
            with builder.dataflow():
                out = builder.emit_output(build(builder.emit, *params))
        else:
            out = builder.emit(build(builder.emit, *params))
        builder.emit_func_output(out)
    return builder.get()


def differences(mod, args, step=1e-6):
    """The gradients by central differences."""
    call = Evaluator(mod)

    def loss():
        value = call("main", *args)
        return float(np.sum(value[0] if isinstance(value, tuple) else value))

    found = []
    for a in args:
        if a.dtype.kind != "f":
            continue
        gradient = np.zeros_like(a)
        for k in np.ndindex(a.shape):
            kept = a[k]
            a[k] = kept + step
            above = loss()
            a[k] = kept - step
            gradient[k] = (above - loss()) / (2 * step)
            a[k] = kept
        found.append(gradient)
    return found


def check(mod, *args, **options):
    adjoint = Gradient("main", **options)(mod)
    assert relax.analysis.well_formed(adjoint)
    result, gradients = Evaluator(adjoint)("main_adjoint", *args)
    for a, b in zip(np.atleast_1d(result), np.atleast_1d(Evaluator(mod)("main", *args))):
        assert np.array_equal(a, b)
    wanted = differences(mod, args)
    for got, want in zip(gradients, wanted, strict="require_grads" not in options):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)
    return adjoint


def arrays(*shapes):
    rng = np.random.default_rng(1)
    return [rng.uniform(0.3, 1.5, s) for s in shapes]


GRAPHS = {
    "a layer": (
        lambda e, x, w, b: R.sum(e(R.nn.gelu(e(R.add(e(R.matmul(x, w)), b))))),
        [(3, 4), (4, 5), (5,)],
    ),
    "what is read twice": (
        lambda e, x: R.sum(e(R.multiply(e(R.exp(x)), e(R.sin(x))))),
        [(2, 3)],
    ),
    "a softmax": (lambda e, x, y: R.sum(e(R.multiply(e(R.nn.softmax(x)), y))), [(2, 5), (2, 5)]),
    "a convolution": (
        lambda e, x, w: R.sum(e(R.tanh(e(R.nn.conv2d(x, w, padding=1))))),
        [(1, 2, 4, 4), (3, 2, 3, 3)],
    ),
    "parts of a tuple": (
        lambda e, x: R.sum(
            e(
                R.concat(
                    (
                        e(R.exp(e(relax.TupleGetItem(e(R.split(x, 3, 0)), 2)))),
                        e(R.sin(e(relax.TupleGetItem(e(R.split(x, 3, 0)), 0)))),
                    ),
                    0,
                )
            )
        ),
        [(3, 2)],
    ),
    "shapes": (
        lambda e, x: R.sum(e(R.exp(e(R.permute_dims(e(R.reshape(x, (4, 3)))))))),
        [(2, 6)],
    ),
    "what nothing depends on": (lambda e, x, y: R.sum(e(R.exp(x))), [(2,), (3,)]),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("dataflow", [True, False])
def test_gradients_are_what_differences_say(name, dataflow):
    build, shapes = GRAPHS[name]
    mod = module(build, *shapes, dataflow=dataflow)
    text = mod.script()
    adjoint = check(mod, *arrays(*shapes))
    assert mod.script() == text and adjoint["main"] is mod["main"]
    assert ("R.dataflow" in adjoint["main_adjoint"].script()) is dataflow


BRANCHES = """
@I.ir_module
class Module:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((3,), "float64"), y: R.Tensor((3,), "float64")):
        z = R.exp(x)
        if c:
            a = R.multiply(z, y)
            out = R.sum(a)
        else:
            b = R.sin(x)
            out = R.sum(b)
        return R.add(out, out)
"""


@pytest.mark.parametrize("choice", [True, False])
def test_branches_are_differentiated_by_the_same_choice(choice):
    check(from_source(BRANCHES), np.array(choice), *arrays((3,), (3,)))


def test_compiled_gradients_are_those_that_are_meant():
    mod = module(lambda e, x, w: R.sum(e(R.tanh(e(R.matmul(x, w))))), (8, 16), (16, 4))
    adjoint = Gradient("main")(mod)
    vm = relax.VirtualMachine(relax.build(adjoint))
    x, w = arrays((8, 16), (16, 4))
    _, got = vm["main_adjoint"](x, w)
    _, want = Evaluator(adjoint)("main_adjoint", x, w)
    for a, b in zip(got, want):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-12, atol=1e-14)


def test_symbolic_sizes_stay_symbolic():
    n = tvm.tir.Var("n", "int64")
    mod = module(lambda e, x: R.sum(e(R.multiply(x, x))), (n, 3))
    adjoint = Gradient("main")(mod)
    for rows in (0, 1, 5):
        x = np.ones((rows, 3))
        _, (gradient,) = Evaluator(adjoint)("main_adjoint", x)
        assert np.array_equal(gradient, 2 * x)


def test_parameters_are_chosen_and_one_of_several_results():
    mod = module(lambda e, x, w: R.sum(e(R.multiply(x, w))), (3,), (3,))
    x, w = arrays((3,), (3,))
    for chosen in ("x1", ["x1"], mod["main"].params[1]):
        adjoint = Gradient("main", require_grads=chosen)(mod)
        _, gradients = Evaluator(adjoint)("main_adjoint", x, w)
        assert len(gradients) == 1 and np.array_equal(gradients[0], x)
    pair = from_source(
        BRANCHES.replace("return R.add(out, out)", "other = R.sum(y)\n        return (out, other)")
    )
    adjoint = Gradient("main", target_index=1)(pair)
    _, (gx, gy) = Evaluator(adjoint)("main_adjoint", np.array(True), *arrays((3,), (3,)))
    assert not gx.any() and (gy == 1).all()


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (lambda e, x: R.exp(x), {}, "a target that is a scalar of floats"),
        (
            lambda e, x: R.sum(x),
            {"require_grads": "w"},
            "w is no parameter of floats; these are: x0",
        ),
        (lambda e, x: R.sum(x), {"target_index": 2}, "target_index 2 of 1 results"),
        (
            lambda e, x: R.sum(e(R.call_pure_packed("env.f", x, sinfo_args=tensor(3)))),
            {},
            "call_pure_packed .* is not differentiated: what the function does is not",
        ),
    ],
)
def test_what_cannot_be_differentiated_is_said(build, options, message):
    with pytest.raises(PassError, match=message):
        Gradient("main", **options)(module(build, (3,)))


def test_gradients_of_a_deep_graph_take_no_deep_stack():
    def build(e, x):
        for _ in range(2000):
            x = e(R.sin(x))
        return R.sum(x)

    adjoint = Gradient("main")(module(build, (2,)))
    assert len(adjoint["main_adjoint"].body.blocks[0].bindings) > 6000


def test_relay_s_gradient_gives_the_result_and_the_gradients():
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))
    g, p = relay.GlobalVar("g"), relay.var("p", shape=(2, 4))
    mod = tvm.IRModule()
    mod[g] = relay.Function([p], relay.tanh(p))
    mod["main"] = relay.Function([x, w], relay.Call(g, [relay.nn.dense(x, w)]))
    args = [a.astype("float32") for a in arrays((2, 3), (4, 3))]
    result, (gx, gw) = Evaluator(relay.transform.FirstOrderGradient()(mod))("main", *args)
    inner = 1 - np.tanh(args[0] @ args[1].T) ** 2
    np.testing.assert_allclose(result, np.tanh(args[0] @ args[1].T), rtol=1e-5)
    np.testing.assert_allclose(gx, inner @ args[1], rtol=1e-4)
    np.testing.assert_allclose(gw, inner.T @ args[0], rtol=1e-4)
    alone = relay.transform.gradient(relay.Function([x, w], relay.nn.dense(x, w)))
    assert len(alone.params) == 2


TUPLES = """
@I.ir_module
class Module:
    @R.function
    def main(
        c: R.Tensor((), "bool"),
        i: R.Tensor((3,), "int64"),
        x: R.Tensor((3,), "float64"),
        y: R.Tensor((3,), "float64"),
    ):
        known = (R.exp(y), R.shape([3]))
        if c:
            parts = ((R.sin(x), i, known[0]), R.less(x, y), R.shape([3]))
        else:
            parts = ((y, R.add(i, i), R.reshape(x, known[1])), R.less(y, x), R.shape([3]))
        first = parts[0]
        again = parts[0]
        product = R.multiply(first[0], R.multiply(again[0], again[2]))
        chosen = R.where(parts[1], product, R.multiply(product, R.astype(first[1], "float64")))
        return R.sum(R.reshape(chosen, parts[2]))
"""


@pytest.mark.parametrize("choice", [True, False])
def test_tuples_in_tuples_are_read_twice_and_hold_what_has_no_gradient(choice):
    mod = relax.transform.Normalize()(from_source(TUPLES))
    check(mod, np.array(choice), np.array([1, 2, 3]), *arrays((3,), (3,)))


def test_a_tensor_of_unknown_rank_has_no_gradient():
    x = relax.Var("x", relax.TensorStructInfo(dtype="float32"))
    main = relax.Function([x], relax.op.sum(x))
    mod = relax.transform.Normalize()(tvm.IRModule({"main": main}))
    with pytest.raises(PassError, match=r"Gradient: gv: sum: .* a tensor of known rank"):
        relax.transform.Gradient("main")(mod)
