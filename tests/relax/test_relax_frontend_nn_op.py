"""nn.op: every operator built and run, against numpy; the graph of calls; what is refused."""

import math

import numpy as np
import pytest
from nn_models import model_of, run, spec_of

from relaxvm import register_func, te, tir
from relaxvm.base import FrontendError, RelaxvmError, StructInfoError
from relaxvm.ir import assert_structural_equal
from relaxvm.relax.frontend import nn
from relaxvm.relax.frontend.nn import Tensor, op, spec
from relaxvm.relax.op import nonzero
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

RNG = np.random.default_rng(3)
X = RNG.standard_normal((2, 3, 4)).astype("float32")
Y = RNG.uniform(0.5, 2, (3, 4)).astype("float32")


def check(forward, wanted, rtol=1e-5, **arrays):
    """`forward` gives a tuple; `wanted` is what numpy says, in the same order."""
    got = run(forward, **arrays)
    assert len(got) == len(wanted)
    for i, (g, w) in enumerate(zip(got, wanted)):
        w = np.asarray(w)
        assert g.shape == w.shape, i
        assert w.dtype.kind != "b" or g.dtype == bool, i
        np.testing.assert_allclose(g, w, rtol=rtol, atol=1e-5, err_msg=str(i))


def test_arithmetic_and_comparison_broadcast():
    def forward(x, y):
        return (
            op.add(x, y),
            op.subtract(x, y),
            op.multiply(x, 2),
            op.divide(1, y),
            op.floor_divide(x, y),
            op.power(y, x),
            op.maximum(x, y),
            op.minimum(x, 0.5),
            op.less(x, y),
            op.less_equal(x, x),
            op.greater(x, 0),
            op.greater_equal(x, y),
            op.equal(x, x),
            op.not_equal(x, x),
        )

    wanted = (
        X + Y,
        X - Y,
        X * 2,
        1 / Y,
        X // Y,
        Y**X,
        np.maximum(X, Y),
        np.minimum(X, 0.5),
        X < Y,
        X <= X,
        X > 0,
        X >= Y,
        X == X,
        X != X,
    )
    check(forward, wanted, x=X, y=Y)


def test_pythons_operators_apply_them():
    def forward(x, y):
        return (
            *(x + y, 1 + x, x - y, 1 - x, x * y, 2 * x, x / y, 1 / y, x // y, x % y, y**2, 2**x),
            *(-x, abs(x), x < y, x <= 0, x > y, x >= 0, x @ y.permute_dims()),
            *(x.maximum(0), x.minimum(y), x.reshape(6, -1), x.reshape((4, 6))),
            *(x.permute_dims(2, 0, 1), x.permute_dims([1, 0, 2]), x.permute_dims()),
            *(x.repeat(2, 1), x.astype("float64"), x.astype("float32")),
        )

    wanted = (
        *(X + Y, 1 + X, X - Y, 1 - X, X * Y, 2 * X, X / Y, 1 / Y, X // Y, X % Y, Y**2, 2**X),
        *(-X, abs(X), X < Y, X <= 0, X > Y, X >= 0, X @ Y.T),
        *(np.maximum(X, 0), np.minimum(X, Y), X.reshape(6, -1), X.reshape(4, 6)),
        *(X.transpose(2, 0, 1), X.transpose(1, 0, 2), X.transpose()),
        *(X.repeat(2, 1), X.astype("float64"), X),
    )
    check(forward, wanted, x=X, y=Y)


def test_functions_of_one_number():
    names = "ceil cos exp floor negative round sin square tan tanh".split()
    positive = "sqrt log".split()

    def forward(x, y):
        made = [getattr(op, n)(x) for n in names] + [getattr(op, n)(y) for n in positive]
        erf = op.erf(x)
        return (*made, op.abs(x), op.rsqrt(y), op.sigmoid(x), erf, op.clip(x, -0.5, 0.25))

    erf = np.vectorize(math.erf)
    wanted = [getattr(np, n)(X) for n in names] + [getattr(np, n)(Y) for n in positive]
    wanted += [np.abs(X), 1 / np.sqrt(Y), 1 / (1 + np.exp(-X)), erf(X), np.clip(X, -0.5, 0.25)]
    check(forward, wanted, rtol=1e-4, x=X, y=Y)


def test_bools_are_combined_and_choose():
    def forward(x, y):
        a, b = x > 0, op.less(x, y)
        return (
            *(op.logical_and(a, b), op.logical_or(a, b), op.logical_not(a)),
            *(op.where(a, x, y), op.where(a, x, 0.0), op.where(a, 1.0, y)),
        )

    a, b = X > 0, X < Y
    wanted = (a & b, a | b, ~a, np.where(a, X, Y), np.where(a, X, 0), np.where(a, 1, Y))
    check(forward, wanted, x=X, y=Y)


def test_reductions():
    names = "sum max min mean prod".split()

    def forward(x):
        made = [getattr(op, n)(x, axis=[0, 2], keepdims=True) for n in names]
        made += [getattr(op, n)(x, axis=1) for n in names]
        made += [op.sum(x), op.std(x, axis=2), op.variance(x, axis=-1)]
        return tuple(made)

    wanted = [getattr(np, n)(X, axis=(0, 2), keepdims=True) for n in names]
    wanted += [getattr(np, n)(X, axis=1) for n in names]
    wanted += [X.sum(), X.std(axis=2), X.var(axis=-1)]
    check(forward, wanted, rtol=1e-4, x=X)


def test_elements_are_moved():
    def forward(x, i):
        a, b, c = op.split(x, [1, 3], axis=2)
        d, e = op.chunk(x, 2, dim=0)
        return (
            *(op.broadcast_to(op.sum(x, 1, True), [2, 5, 4]), op.permute(x, [2, 1, 0])),
            *(op.permute_dims(x), op.reshape(x, [4, 6]), op.flatten(x), op.repeat(x, 2, 1)),
            *(op.squeeze(op.unsqueeze(x, 0), 0), op.expand_dims(x, [0, 2]), op.concat([x, x], 1)),
            *(op.stack([x, x], 1), a, b, c, d, e, *op.split(x, 3, axis=1)),
            *(op.take(x, i, axis=1), op.pad(x, [0, 0, 1, 2, 0, 1]), op.triu(x, 1), op.tril(x)),
            *(op.pad(x, [0, 0, 0, 0, 2, 1], mode="reflect"), op.matmul(x, x.reshape(2, 4, 3))),
        )

    i = np.array([2, 0, 0], "int64")
    wanted = (
        *(np.broadcast_to(X.sum(1, keepdims=True), (2, 5, 4)), X.transpose(2, 1, 0)),
        *(X.transpose(), X.reshape(4, 6), X.reshape(-1), X.repeat(2, 1)),
        *(X, X.reshape(1, 2, 1, 3, 4), np.concatenate([X, X], 1)),
        *(np.stack([X, X], 1), X[..., :1], X[..., 1:3], X[..., 3:], X[:1], X[1:]),
        *np.split(X, 3, 1),
        *(X[:, i], np.pad(X, ((0, 0), (1, 2), (0, 1))), np.triu(X, 1), np.tril(X)),
        *(np.pad(X, ((0, 0), (0, 0), (2, 1)), mode="reflect"), X @ X.reshape(2, 4, 3)),
    )
    check(forward, wanted, x=X, i=i)


def test_tensors_are_made():
    def forward(x):
        n = x.shape[0]
        return (
            *(op.full([2, n], 7, "int32"), op.full([n], tir.FloatImm("float32", 2.5))),
            *(op.full([3], Tensor.from_scalar(4, "float16"), "float16"), op.zeros([n, 2])),
            *(op.ones([2], "int8"), op.zeros_like(x), op.ones_like(x, "float64")),
            *(op.arange(n, dtype="int64"), op.arange(1, 8, 3), op.arange(n + 1, 2 * n + 1)),
            Tensor.from_const(np.arange(3)) + 1,
        )

    model = model_of(forward).jit({"forward": {"x": spec.Tensor(["n", 3], "float32")}})
    for n in (1, 4):
        x = np.ones((n, 3), "float32")
        wanted = (
            *(np.full((2, n), 7, "int32"), np.full(n, 2.5, "float32"), np.full(3, 4, "float16")),
            *(np.zeros((n, 2), "float32"), np.ones(2, "int8"), 0 * x, np.ones((n, 3))),
            *(
                np.arange(n),
                np.arange(1, 8, 3, "float32"),
                np.arange(n + 1, 2 * n + 1, 1, "float32"),
            ),
            np.arange(3) + 1,
        )
        for got, want in zip(model(x), wanted, strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_array_equal(got, want)


def test_arange_between_sizes_has_the_length_of_their_difference():
    def forward(x, total):
        n = x.shape[0]
        made = op.arange(total - n, total)
        assert made.shape == [n]
        return made + x

    specs = {"forward": {"x": spec.Tensor(["n"], "float32"), "total": int}}
    model = model_of(forward).jit(specs)
    np.testing.assert_array_equal(model(np.zeros(3, "float32"), 10), [7, 8, 9])


def test_activations_and_softmax():
    def forward(x):
        return (
            *(op.relu(x), op.relu6(x * 4), op.leakyrelu(x, 0.1), op.silu(x), op.gelu(x)),
            *(op.gelu(x, "tanh"), op.softplus(x), op.softmax(x, 1), op.log_softmax(x)),
            op.prelu(x, Tensor.from_const(np.array([0.1, 0.2, 0.3], "float32"))),
        )

    erf = np.vectorize(math.erf)
    inner = np.sqrt(2 / np.pi) * (X + 0.044715 * X**3)
    share = np.exp(X) / np.exp(X).sum(1, keepdims=True)
    alpha = np.array([0.1, 0.2, 0.3], "float32")[:, None]
    wanted = (
        *(np.maximum(X, 0), np.clip(X * 4, 0, 6), np.where(X > 0, X, 0.1 * X)),
        *(X / (1 + np.exp(-X)), X * 0.5 * (1 + erf(X / np.sqrt(2)))),
        *(0.5 * X * (1 + np.tanh(inner)), np.log1p(np.exp(X)), share),
        X - np.log(np.exp(X).sum(-1, keepdims=True)),
        np.where(X > 0, X, alpha * X),
    )
    check(forward, wanted, rtol=1e-4, x=X)


def test_norms_with_and_without_weights():
    def forward(x, w):
        return (
            *(op.layer_norm(x, 4), op.layer_norm(x, 4, w), op.layer_norm(x, [4], w, w, eps=1e-3)),
            op.rms_norm(x, w, [-1]),
            op.group_norm(x, 3, None, None, axes=[2]),
        )

    w = Y[0]
    plain = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5)
    other = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-3)
    rms = X / np.sqrt((X * X).mean(-1, keepdims=True) + 1e-5) * w
    check(forward, (plain, plain * w, other * w + w, rms, plain), rtol=1e-3, x=X, w=w)


def test_attention_with_masks_and_shared_heads():
    def forward(q, k, v, m):
        return (
            op.scaled_dot_product_attention(q, k, v),
            op.scaled_dot_product_attention(q, k, v, m, scale=0.3),
            op.scaled_dot_product_attention(q, k, v, is_causal=True),
            op.scaled_dot_product_attention(q, k, v, causal_mask="BottomRight"),
        )

    q, k, v = (
        RNG.standard_normal(s).astype("float32") for s in ((2, 3, 4, 8), (2, 5, 2, 8), (2, 5, 2, 8))
    )
    m = RNG.standard_normal((2, 4, 3, 5)).astype("float32")

    def reference(scale, bias=0.0, seen=True):
        wide = [np.repeat(t, 2, axis=2) for t in (k, v)]
        scores = np.einsum("bihd,bjhd->bhij", q, wide[0]) * scale + bias
        scores = np.where(seen, scores, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("bhij,bjhd->bihd", share / share.sum(-1, keepdims=True), wide[1])

    r = 8**-0.5
    top, bottom = np.tri(3, 5, dtype=bool), np.tri(3, 5, 2, dtype=bool)
    wanted = (reference(r), reference(0.3, m), reference(r, seen=top), reference(r, seen=bottom))
    check(forward, wanted, rtol=1e-4, q=q, k=k, v=v, m=m)


def test_interpolate_as_torch_does():
    torch = pytest.importorskip("torch")
    x = RNG.standard_normal((1, 2, 4, 5)).astype("float32")

    def forward(x):
        return (
            *(op.interpolate(x, size=[8, 10]), op.interpolate(x, scale_factor=2)),
            *(op.interpolate(x, 7, mode="bilinear"), op.interpolate(x, (3, 9), mode="bicubic")),
            op.interpolate(x, (7, 9), mode="bilinear", align_corners=True),
        )

    f, t = torch.nn.functional.interpolate, torch.from_numpy(x)
    wanted = (
        *(f(t, size=(8, 10)), f(t, scale_factor=2), f(t, (7, 7), mode="bilinear")),
        *(f(t, (3, 9), mode="bicubic"), f(t, (7, 9), mode="bilinear", align_corners=True)),
    )
    check(forward, [w.numpy() for w in wanted], rtol=1e-3, x=x)


def test_sorting_and_searching():
    def forward(x):
        return (
            *(op.sort(x, 1, descending=True), op.argsort(x), *op.topk(x, 2, axis=-1)),
            *(op.topk(x, 1, ret_type="indices"), op.argmax(x, 1), op.argmin(x)),
            *(op.cumsum(x, 2), op.cumsum(x, 2, exclusive=True)),
            op.gather_elements(x, op.argsort(x, dtype="int64"), axis=2),
        )

    order = np.argsort(X)
    top = order[..., ::-1][..., :2]
    sums = np.cumsum(X, 2)
    wanted = (
        *(-np.sort(-X, 1), order, np.take_along_axis(X, top, -1), top),
        *(top[..., :1], X.argmax(1), np.int64(X.argmin())),
        *(sums, sums - X, np.sort(X)),
    )
    check(forward, wanted, x=X)


def test_tokens_are_chosen_as_the_probabilities_say():
    prob = np.array([[0.5, 0.1, 0.4], [0.3, 0.3, 0.4]], "float32")
    order = np.argsort(-prob, kind="stable", axis=1)
    ranked = np.take_along_axis(prob, order, 1)
    u = np.array([[0.49], [0.51], [0.99], [0.0], [0.69], [0.71]], "float32")
    rows = np.array([[0], [0], [0], [1], [1], [1]], "int64")
    top_p, top_k = np.array([[0.6], [1.0]], "float32"), np.array([[3], [2]], "int64")

    def forward(prob, ranked, order, u, rows, top_p, top_k):
        return (
            op.multinomial_from_uniform(prob, u, rows),
            op.sample_top_p_top_k_from_sorted_prob(ranked, order, top_p, top_k, u, rows),
            op.renormalize_top_p_top_k_prob(prob, ranked, top_p, top_k),
        )

    def draw(p, x):
        return int(np.argmax(np.cumsum(p) / p.sum() > x))

    # Row 0 keeps tokens 0 and 2 (0.5 is below 0.6, 0.9 is not), row 1 the first two of its order.
    kept = np.array([[0.5, 0, 0.4], [0.3, 0, 0.4]], "float32")
    sampled = [
        [order[r][draw(np.where(np.arange(3) < 2, ranked[r], 0), x)]]
        for r, x in zip(rows[:, 0], u[:, 0])
    ]
    # Ties in renormalize are all kept: token 1 of row 1 is as likely as token 0.
    kept[1, 1] = 0.3
    wanted = (
        [[draw(prob[r], x)] for r, x in zip(rows[:, 0], u[:, 0])],
        sampled,
        kept / kept.sum(1, keepdims=True),
    )
    arrays = {"prob": prob, "ranked": ranked, "order": order, "u": u, "rows": rows}
    check(forward, wanted, **arrays, top_p=top_p, top_k=top_k)


# -- calls -----------------------------------------------------------------------------------------


def test_a_tensor_expression_becomes_a_loop_function_of_its_name():
    def forward(x):
        return op.tensor_expr_op(plus_one, "add_one", [x], attrs={"note": 1})

    def plus_one(x):
        return te.compute(x.shape, lambda *i: x(*i) + 1.0, "plus")

    model = model_of(forward)
    specs = {"forward": {"x": spec.Tensor(["n", 3], "float32")}}
    mod, _ = model.export_tvm(specs)
    assert mod["add_one"].attrs["note"] == 1
    np.testing.assert_array_equal(model.jit(specs)(X[0][:, :3].copy()), X[0][:, :3] + 1)


@T.prim_func(private=True)
def shifted(var_x: T.handle, var_y: T.handle, offset: T.int64):
    n = T.int64()
    x = T.match_buffer(var_x, (n, 3), "float32")
    y = T.match_buffer(var_y, (n, 3), "float32")
    for i, j in T.grid(n, 3):
        with T.block("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, vj] + T.Cast("float32", offset)


@T.prim_func(private=True)
def put(var_x: T.handle, var_y: T.handle):
    n = T.int64()
    x = T.match_buffer(var_x, (n, 3), "float32")
    y = T.match_buffer(var_y, (n, 3), "float32")
    for i, j in T.grid(n, 3):
        with T.block("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = y[vi, vj] + x[vi, vj]


def test_loop_functions_are_called_with_scalars_and_in_place():
    def forward(x, offset):
        y = op.tensor_ir_op(
            shifted, "shift", [x, offset], out=Tensor.placeholder(x.shape, "float32")
        )
        (z,) = (op.tensor_ir_op(shifted, "shift", [x, 5], [Tensor.placeholder(x.shape, x.dtype)]),)
        return op.tensor_ir_inplace_op(put, "put", [y, z], 1, Tensor.placeholder(x.shape, x.dtype))

    model = model_of(forward)
    specs = {"forward": {"x": spec.Tensor(["n", 3], "float32"), "offset": int}}
    mod, _ = model.export_tvm(specs)
    assert {gv.name_hint for gv in mod} == {"forward", "shift", "put"}
    x = np.ones((4, 3), "float32")
    np.testing.assert_array_equal(model.jit(specs)(x, 2), 2 * x + 7)
    np.testing.assert_array_equal(x, 1)


def test_extern_is_a_call_that_fills_its_output():
    class Model(nn.Module):
        def forward(self, q):
            b, s = q.shape
            out = Tensor.placeholder((b, s * 2), dtype="float32")
            return op.extern("test.nn.double", [q, 0, 1.5, "text"], out)

    @I.ir_module
    class Wanted:
        @R.function
        def forward(q: R.Tensor((2, "s"), "float32")) -> R.Tensor((2, "s * 2"), "float32"):
            s = T.int64()
            R.func_attr({"num_input": 1})
            with R.dataflow():
                y = R.call_dps_packed(
                    "test.nn.double",
                    (q, R.prim_value(0), R.prim_value(T.float64(1.5)), R.str("text")),
                    out_sinfo=R.Tensor((2, s * 2), dtype="float32"),
                )
                gv = y
                R.output(gv)
            return gv

    seen = []

    @register_func("test.nn.double", override=True)
    def double(q, zero, half, text, out):
        seen.append((zero, half, text))
        out.copyfrom(np.concatenate([q.numpy()] * 2, 1))

    specs = {"forward": {"q": spec.Tensor([2, "s"], "float32")}}
    mod, _ = Model().export_tvm(specs)
    assert_structural_equal(mod["forward"], Wanted["forward"], True)
    got = Model().jit(specs)(np.ones((2, 3), "float32"))
    assert got.shape == (2, 6)
    assert seen == [(0, 1.5, "text")]


@pytest.mark.vm_modes
def test_prints_show_the_line_and_stay_in_order(capsys):
    calls = []

    @register_func("test.nn.note", override=True)
    def note(line, *values):
        calls.append(
            (line.rpartition(":")[0], [v if isinstance(v, int) else v.shape for v in values])
        )
        print("note", len(calls))

    def forward(x):
        op.print_(x)
        op.debug_func("test.nn.note", x, 3)
        op.print_(x + 1)
        op.debug_func("test.nn.note")
        return x

    model = model_of(forward).jit(spec_of(x=Y), debug=True)
    np.testing.assert_array_equal(model(Y), Y)
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("note")] == ["note 1", "note 2"]
    assert out.count("shape = (3, 4), dtype = float32, data =") == 2
    assert out.index("data =") < out.index("note 1") < out.rindex("data =") < out.index("note 2")
    assert calls == [(__file__, [(3, 4), 3]), (__file__, [])]
    with pytest.raises(FrontendError, match="debug=True"):
        model_of(forward).export_tvm(spec_of(x=Y))


def test_an_empty_tensor_has_the_shape_it_was_given():
    model = model_of(lambda: op.empty([10, 10], "float16"))
    assert model.jit({"forward": {}})().shape == (10, 10)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: op.concat(x, 0), "wanted a list of tensors, got Tensor"),
        (lambda x: op.concat([x, 1], 0), "concat: item 1: wanted a Tensor"),
        (lambda x: op.matmul(x, x), "matmul"),
        (lambda x: op.reshape(x, [5, 5]), "reshape"),
        (lambda x: op.gelu(x, "sin"), "approximate"),
        (lambda x: op.conv2d(x, x, data_layout="CHWN"), "data_layout"),
        (lambda x: op.conv3d(x, x, data_layout="NDHWC"), "data_layout"),
        (lambda x: op.interpolate(x, 3, mode="cubic"), "mode"),
        (lambda x: op.interpolate(x), "size or scale_factor"),
        (lambda x: op.interpolate(x, 3, antialias=True), "antialias"),
        (lambda x: op.full([2], "a"), "wanted a number or a Tensor"),
        (lambda x: op.arange("n"), "arange: wanted a number"),
        (lambda x: op.tensor_ir_op(len, "f", [x], x), "wanted a T.prim_func"),
        (lambda x: op.tensor_ir_op(put, "f", [1, x], x), "tensors stand before scalars"),
        (lambda x: op.tensor_ir_op(put, "f", [x, x], None), "out: wanted Tensor.placeholder"),
        (lambda x: op.tensor_ir_op(put, "f", [[x]], x), "argument 0: wanted a Tensor"),
        (lambda x: op.tensor_expr_op(lambda a: 1, "f", [x]), "emit_te"),
        (lambda x: op.extern("f", [None], x), "argument 0: wanted a Tensor, a number or a text"),
        (lambda x: op.get_timestep_embedding(x, 1), "at least 2"),
        (
            lambda x: op.scaled_dot_product_attention(
                x, x, x, is_causal=True, causal_mask="BottomRight"
            ),
            "TopLeft",
        ),
    ],
)
def test_wrong_arguments_are_refused_with_the_operators_name(wrong, message):
    with pytest.raises(RelaxvmError, match=message):
        model_of(wrong).export_tvm(spec_of(x=X))


def test_values_known_only_at_run_time_are_refused():
    def forward(x):
        return nn.wrap_nested(nonzero(x._expr), "found")

    with pytest.raises(StructInfoError, match="known only when the program runs"):
        model_of(forward).export_tvm(spec_of(x=X))


def test_every_operator_has_a_docstring_and_is_reachable_from_nn():
    for name in op.__all__:
        assert getattr(op, name).__doc__, name
        assert hasattr(nn, name), name
