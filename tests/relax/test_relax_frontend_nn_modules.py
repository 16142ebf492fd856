"""nn's layers: the graph each becomes, in the text TVM's users know, and what it computes."""

import numpy as np
import pytest
from nn_models import fill

from relaxvm import relax, tir
from relaxvm.base import FrontendError, RelaxvmError
from relaxvm.ir import assert_structural_equal
from relaxvm.relax.frontend import nn
from relaxvm.relax.frontend.nn import spec
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

RNG = np.random.default_rng(7)


def normal(*shape):
    return RNG.standard_normal(shape).astype("float32")


def exported(module, **specs):
    mod, _ = module.export_tvm(spec={"forward": specs}, debug=True)
    return mod["forward"]


# -- the graph -------------------------------------------------------------------------------------


def test_linear_is_a_product_with_the_transposed_weight():
    @R.function
    def forward(
        x: R.Tensor((1, 4), dtype="float32"),
        _io: R.Object,
        weight: R.Tensor((8, 4), dtype="float32"),
        bias: R.Tensor((8,), dtype="float32"),
    ) -> R.Tuple(R.Tensor((1, 8), dtype="float32"), R.Tuple(R.Object)):
        R.func_attr({"num_input": 2})
        with R.dataflow():
            permute_dims: R.Tensor((4, 8), dtype="float32") = R.permute_dims(weight, axes=None)
            matmul: R.Tensor((1, 8), dtype="float32") = R.matmul(x, permute_dims)
            add: R.Tensor((1, 8), dtype="float32") = R.add(matmul, bias)
            gv1: R.Tuple(R.Tensor((1, 8), dtype="float32"), R.Tuple(R.Object)) = add, (_io,)
            R.output(gv1)
        return gv1

    got = exported(nn.Linear(4, 8), x=spec.Tensor((1, 4), "float32"))
    assert_structural_equal(got, forward, True)


def test_conv2d_of_symbolic_sizes_keeps_the_parameters_symbol():
    @R.function
    def forward(
        x: R.Tensor(("n", "c", "h", "w"), dtype="float32"),
        _io: R.Object,
        weight: R.Tensor((32, "in_channels", 3, 3), dtype="float32"),
        bias: R.Tensor((32,), dtype="float32"),
    ) -> R.Tuple(R.Tensor(("n", 32, "h - 2", "w - 2"), dtype="float32"), R.Tuple(R.Object)):
        n = T.int64()
        h = T.int64()
        w = T.int64()
        c = T.int64()
        in_channels = T.int64()
        R.func_attr({"num_input": 2})
        with R.dataflow():
            lv1: R.Tensor((n, 32, h - 2, w - 2), dtype="float32") = R.nn.conv2d(x, weight)
            lv2: R.Tensor((1, 32, 1, 1), dtype="float32") = R.reshape(bias, R.shape([1, 32, 1, 1]))
            conv2d: R.Tensor((n, 32, h - 2, w - 2), dtype="float32") = R.add(lv1, lv2)
            gv1 = conv2d, (_io,)
            R.output(gv1)
        return gv1

    layer = nn.Conv2D(tir.Var("in_channels", "int64"), 32, 3, bias=True)
    got = exported(layer, x=spec.Tensor(["n", "c", "h", "w"], "float32"))
    assert_structural_equal(got, forward, True)


def test_layer_norm_rms_norm_and_group_norm_name_their_axes():
    @R.function
    def layer(
        x: R.Tensor((2, 4, 8), "float32"),
        w: R.Tensor((8,), "float32"),
        b: R.Tensor((8,), "float32"),
    ):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.nn.layer_norm(x, w, b, axes=[-1], epsilon=1e-5, center=True, scale=True)
            gv = y
            R.output(gv)
        return gv

    @R.function
    def rms(x: R.Tensor((2, 4, 8), "float32"), w: R.Tensor((8,), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.nn.rms_norm(x, w, axes=[2], epsilon=1e-5)
            gv = y
            R.output(gv)
        return gv

    @R.function
    def group(
        x: R.Tensor((2, 4, 8), "float32"),
        w: R.Tensor((4,), "float32"),
        b: R.Tensor((4,), "float32"),
    ):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.nn.group_norm(x, w, b, num_groups=2, channel_axis=1, axes=[2])
            gv = y
            R.output(gv)
        return gv

    x = {"forward": {"x": spec.Tensor((2, 4, 8), "float32")}}
    cases = ((nn.LayerNorm(8), layer), (nn.RMSNorm(8, [2], bias=False), rms))
    for module, wanted in (*cases, (nn.GroupNorm(2, 4), group)):
        mod, _ = module.export_tvm(x)
        got = mod["forward"].without_attr("global_symbol")
        assert_structural_equal(got, wanted.without_attr("global_symbol"), True)


def test_embedding_flattens_indices_of_several_axes():
    @R.function
    def forward(
        x: R.Tensor((1, 4), dtype="int32"), _io: R.Object, weight: R.Tensor((4, 8), "float32")
    ) -> R.Tuple(R.Tensor((1, 4, 8), dtype="float32"), R.Tuple(R.Object)):
        R.func_attr({"num_input": 2})
        with R.dataflow():
            reshape: R.Tensor((4,), dtype="int32") = R.reshape(x, R.shape([4]))
            take: R.Tensor((4, 8), dtype="float32") = R.take(weight, reshape, axis=0)
            reshape1: R.Tensor((1, 4, 8), dtype="float32") = R.reshape(take, R.shape([1, 4, 8]))
            gv1: R.Tuple(R.Tensor((1, 4, 8), dtype="float32"), R.Tuple(R.Object)) = reshape1, (_io,)
            R.output(gv1)
        return gv1

    got = exported(nn.Embedding(4, 8, "float32"), x=spec.Tensor((1, 4), "int32"))
    assert_structural_equal(got, forward, True)


def test_a_kv_cache_is_threaded_through_the_function():
    @I.ir_module
    class Wanted:
        @R.function
        def _initialize_effect() -> R.Tuple(R.Object, R.Object):
            with R.dataflow():
                _io: R.Object = R.null_value()
                lv: R.Tensor((8, 2, 4), dtype="float32") = R.zeros(R.shape([8, 2, 4]), "float32")
                cache: R.Object = R.call_pure_packed(
                    "vm.builtin.attention_kv_cache_create",
                    lv,
                    R.shape([8, 2, 4]),
                    R.prim_value(0),
                    R.str("cache"),
                    sinfo_args=[R.Object()],
                )
                lv1 = _io, cache
                gv = lv1
                R.output(gv)
            return gv

        @R.function
        def forward(
            x: R.Tensor((2, 2, 4), dtype="float32"), _io: R.Object, cache: R.Object
        ) -> R.Tuple(R.Tensor((4, 2, 4), dtype="float32"), R.Tuple(R.Object, R.Object)):
            R.func_attr({"num_input": 3})
            with R.dataflow():
                lv2: R.Object = R.call_inplace_packed(
                    "vm.builtin.attention_kv_cache_append",
                    cache,
                    x,
                    inplace_indices=[0],
                    sinfo_args=[R.Object()],
                )
                lv3: R.Tensor((4, 2, 4), dtype="float32") = R.call_pure_packed(
                    "vm.builtin.attention_kv_cache_view",
                    lv2,
                    R.shape([4, 2, 4]),
                    sinfo_args=(R.Tensor((4, 2, 4), dtype="float32"),),
                )
                gv1 = lv3, (_io, lv2)
                R.output(gv1)
            return gv1

    class Cached(nn.Module):
        def __init__(self):
            self.cache = nn.KVCache(8, [2, 4])

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            self.cache.append(x)
            return self.cache.view(4)

    specs = {"forward": {"x": spec.Tensor((2, 2, 4), "float32")}}
    mod, _ = Cached().export_tvm(spec=specs, debug=True)
    assert_structural_equal(mod, Wanted, True)


# -- what they compute -----------------------------------------------------------------------------


def gives(module, x, wanted, rtol=1e-4, **more):
    """Check what a module, filled already, computes."""
    specs = {"x": spec.Tensor(["n", *x.shape[1:]], str(x.dtype))}
    got = module.jit({"forward": specs})(x, **more)
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=1e-4)


def test_linear_and_multi_linear_compute_what_numpy_does():
    x = normal(3, 4)
    linear = nn.Linear(4, 6)
    w = fill(linear)
    gives(linear, x, x @ w["weight"].T + w["bias"])
    multi = nn.MultiLinear(4, [2, 3, 1])
    w = fill(multi)
    made = multi.jit({"forward": {"x": spec.Tensor(["n", 4], "float32")}})(x)
    wanted = np.split(x @ w["weight"].T + w["bias"], [2, 5], axis=1)
    assert [m.shape for m in made] == [(3, 2), (3, 3), (3, 1)]
    for m, v in zip(made, wanted):
        np.testing.assert_allclose(m, v, rtol=1e-4, atol=1e-5)


def test_linear_of_halves_can_sum_in_float32():
    linear = nn.Linear(64, 3, dtype="float16", out_dtype="float32")
    w = fill(linear)
    x = normal(2, 64).astype("float16")
    wanted = x.astype("float32") @ w["weight"].astype("float32").T + w["bias"]
    specs = {"forward": {"x": spec.Tensor((2, 64), "float16")}}
    made = linear.jit(specs)(x)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)


def test_activations_compute_what_numpy_does():
    x = normal(3, 5)
    gives(nn.ReLU(), x, np.maximum(x, 0))
    gives(nn.SiLU(), x, x / (1 + np.exp(-x)))
    gives(nn.Identity(), x, x)


def test_norms_compute_what_numpy_does():
    x = normal(3, 4, 8)
    layer, rms, group = nn.LayerNorm((4, 8)), nn.RMSNorm(8), nn.GroupNorm(2, 4)
    w = fill(layer)
    mean, var = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
    gives(layer, x, (x - mean) / np.sqrt(var + 1e-5) * w["weight"] + w["bias"])
    w = fill(rms)
    scaled = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    gives(rms, x, scaled * w["weight"] + w["bias"])
    w = fill(group)
    parts = x.reshape(3, 2, -1)
    parts = (parts - parts.mean(-1, keepdims=True)) / np.sqrt(parts.var(-1, keepdims=True) + 1e-5)
    gives(group, x, parts.reshape(x.shape) * w["weight"][:, None] + w["bias"][:, None])
    plain = nn.LayerNorm(8, elementwise_affine=False)
    assert not list(plain.parameters())
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    gives(plain, x, (x - mean) / np.sqrt(var + 1e-5))


def test_embedding_looks_rows_up():
    layer = nn.Embedding(10, 3)
    w = fill(layer)
    for shape in ((4,), (2, 3)):
        x = RNG.integers(0, 10, shape).astype("int32")
        specs = {"forward": {"x": spec.Tensor(shape, "int32")}}
        np.testing.assert_array_equal(layer.jit(specs)(x), w["weight"][x])


def test_convolutions_compute_what_torch_does():
    torch = pytest.importorskip("torch")
    cases = (
        (nn.Conv1D(4, 6, 3, 2, 1, 2, 2), torch.nn.Conv1d(4, 6, 3, 2, 1, 2, 2), normal(2, 4, 9)),
        (nn.Conv2D(4, 6, 3, 1, 1), torch.nn.Conv2d(4, 6, 3, 1, 1), normal(2, 4, 6, 5)),
        (nn.Conv2D(2, 4, (1, 3)), torch.nn.Conv2d(2, 4, (1, 3)), normal(1, 2, 3, 5)),
        (
            nn.Conv3D(2, 3, 2, bias=False),
            torch.nn.Conv3d(2, 3, 2, bias=False),
            normal(1, 2, 3, 3, 3),
        ),
        (
            nn.ConvTranspose1D(3, 4, 3, 2, 1, 1),
            torch.nn.ConvTranspose1d(3, 4, 3, 2, 1, 1),
            normal(2, 3, 5),
        ),
    )
    for mine, other, x in cases:
        mine.load_state_dict(other.state_dict())
        with torch.no_grad():
            wanted = other(torch.from_numpy(x)).numpy()
        specs = {"forward": {"x": spec.Tensor(x.shape, "float32")}}
        np.testing.assert_allclose(mine.jit(specs)(x), wanted, rtol=1e-4, atol=1e-4)


def test_conv2d_with_channels_last_computes_the_same():
    first, last = nn.Conv2D(3, 4, 3), nn.Conv2D(3, 4, 3, data_layout="NHWC")
    w = fill(first)
    last.weight.data = np.ascontiguousarray(w["weight"].transpose(0, 2, 3, 1))
    last.bias.data = w["bias"]
    x = normal(1, 3, 5, 6)
    wanted = first.jit({"forward": {"x": spec.Tensor(x.shape, "float32")}})(x)
    y = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    got = last.jit({"forward": {"x": spec.Tensor(y.shape, "float32")}})(y)
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), wanted, rtol=1e-4, atol=1e-4)


def test_attention_computes_what_torch_does():
    torch = pytest.importorskip("torch")
    mine = nn.Attention(16, cross_attention_dim=12, heads=4, norm_num_groups=2)
    w = {k: torch.from_numpy(v) for k, v in fill(mine).items()}
    x, y = normal(2, 5, 16), normal(2, 3, 12)
    F = torch.nn.functional
    tx, ty = torch.from_numpy(x), torch.from_numpy(y)
    tx = F.group_norm(tx.transpose(1, 2), 2, w["group_norm.weight"], w["group_norm.bias"])
    tx = tx.transpose(1, 2)
    q, k, v = (
        F.linear(t, w[f"to_{n}.weight"]).reshape(2, -1, 4, 4).transpose(1, 2)
        for t, n in ((tx, "q"), (ty, "k"), (ty, "v"))
    )
    made = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 5, 16)
    wanted = F.linear(made, w["to_out.0.weight"], w["to_out.0.bias"]).numpy()
    specs = {
        "hidden_states": spec.Tensor((2, "s", 16), "float32"),
        "encoder_hidden_states": spec.Tensor((2, "t", 12), "float32"),
    }
    got = mine.jit({"forward": specs})(x, y)
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)


def test_timestep_layers_compute_what_numpy_does():
    class Both(nn.Module):
        def __init__(self):
            self.steps = nn.Timesteps(8, flip_sin_to_cos=True, downscale_freq_shift=0)
            self.embedding = nn.TimestepEmbedding(8, 6, cond_proj_dim=3)

        def forward(self, x, condition):
            return self.embedding(self.steps(x), condition)

    module = Both()
    w = {k.removeprefix("embedding."): v for k, v in fill(module).items()}
    x, c = np.array([0, 3, 250], "float32"), normal(3, 3)
    angle = x[:, None] * np.exp(-np.log(10000) * np.arange(4) / 4)
    steps = np.concatenate([np.cos(angle), np.sin(angle)], 1) + c @ w["cond_proj.weight"].T
    hidden = steps @ w["linear_1.weight"].T + w["linear_1.bias"]
    hidden = hidden / (1 + np.exp(-hidden))
    wanted = hidden @ w["linear_2.weight"].T + w["linear_2.bias"]
    specs = {"x": spec.Tensor(["n"], "float32"), "condition": spec.Tensor(["n", 3], "float32")}
    got = module.jit({"forward": specs})(x, c)
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)


# -- what is refused -------------------------------------------------------------------------------


def test_a_shape_that_does_not_fit_names_the_module_and_the_method():
    class Model(nn.Module):
        def __init__(self):
            self.layers = nn.ModuleList([nn.Linear(4, 8), nn.Linear(4, 8)])

        def forward(self, x):
            return self.layers(x)

    with pytest.raises(RelaxvmError, match="matmul") as caught:
        Model().export_tvm({"forward": {"x": spec.Tensor([2, 4], "float32")}})
    notes = caught.value.__notes__
    assert "in module layers.1 (Linear.forward)" in notes
    assert "while exporting Model.forward" in notes
    assert sum(n.startswith("in module") for n in notes) == 1


def test_a_failed_export_leaves_the_module_as_it_was():
    layer = nn.Linear(4, 8)
    before = layer.weight._expr
    with pytest.raises(RelaxvmError):
        layer.export_tvm({"forward": {"x": spec.Tensor([2, 5], "float32")}})
    assert layer.weight._expr is before
    assert relax.BlockBuilder.current() is None
    layer.export_tvm({"forward": {"x": spec.Tensor([2, 4], "float32")}})
    assert layer.weight._expr is before


def test_cache_misuse_is_refused_while_it_is_written():
    class Cached(nn.Module):
        def __init__(self, use):
            self.cache = nn.KVCache(8, [2, 4])
            self.use = use

        def forward(self, x):
            self.use(self.cache, x)
            return x

    cases = (
        (lambda c, x: c.append(x.reshape(2, 8)), r"wanted shape \(n, 2, 4\), got \[2, 8\]"),
        (lambda c, x: c.append(x.astype("float16")), "wanted dtype float32, got float16"),
        (lambda c, x: c.append(1.0), "append: wanted a Tensor, got float"),
        (lambda c, x: c.view(1.5), "wanted an int"),
    )
    for use, message in cases:
        model = Cached(use)
        with pytest.raises(RelaxvmError, match=message):
            model.export_tvm({"forward": {"x": spec.Tensor([2, 2, 4], "float32")}})
        assert model.cache.cache is None
    with pytest.raises(FrontendError, match="only inside a method that is being exported"):
        nn.KVCache(8, [2, 4]).view(3)
