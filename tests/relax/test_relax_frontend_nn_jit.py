"""nn's jit: what goes in and out, parameters bound or not, and caches that grow from one build."""

import numpy as np
import pytest
from nn_models import example, fill, model_of, transformer

from relaxvm import nd, relax
from relaxvm.base import FrontendError, RelaxvmError, VMValueError
from relaxvm.ir.transform import PassContext
from relaxvm.relax.frontend import nn
from relaxvm.relax.frontend.nn import op, spec

X = np.arange(6, dtype="float32").reshape(2, 3)
SPEC = {"forward": {"x": spec.Tensor(["n", 3], "float32")}}


def test_results_are_arrays_of_the_kind_that_came_in():
    torch = pytest.importorskip("torch")
    run = model_of(lambda x: (x + 1, (x * 2,))).jit(SPEC)
    kinds = ((X, np.ndarray), (torch.from_numpy(X), torch.Tensor), (nd.array(X), nd.NDArray))
    for given, kind in kinds:
        one, (two,) = run(given)
        assert type(one) is type(two) is kind
        np.testing.assert_array_equal(np.asarray(one), X + 1)
    grown = torch.from_numpy(X).requires_grad_()
    assert type(run(grown)[0]) is torch.Tensor
    for name, kind in (("numpy", np.ndarray), ("torch", torch.Tensor), ("raw", nd.NDArray)):
        assert type(model_of(lambda x: x + 1).jit(SPEC, out_format=name)(X)) is kind
    with pytest.raises(FrontendError, match="out_format: wanted one of"):
        model_of(lambda x: x).jit(SPEC, out_format="jax")


def test_methods_are_called_by_name_and_arguments_too():
    class Model(nn.Module):
        def forward(self, x):
            return x + 1

        def scaled(self, x, n, y):
            return op.reshape(x, [n, 1]) * y

    tensor = spec.Tensor(["n"], "float32")
    run = Model().jit({"forward": {"x": tensor}, "scaled": {"x": tensor, "n": int, "y": tensor}})
    x, y = np.ones(2, "float32"), np.full(2, 3, "float32")
    np.testing.assert_array_equal(run["forward"](x=x), x + 1)
    np.testing.assert_array_equal(run["scaled"](x, y=y, n=2), x[:, None] * y)
    assert repr(run) == "<JITModule: forward, scaled>"
    for call, message in (
        (lambda: run["other"](x), "no method 'other' was built; there are forward, scaled"),
        (lambda: run(x, x), "takes \\(x\\), got 2 arguments"),
        (lambda: run(y=x), "got 0 arguments and y"),
        (lambda: run(), "missing: x"),
        (lambda: run(x, x=x), "given twice"),
    ):
        with pytest.raises(FrontendError, match=message):
            call()
    with pytest.raises(RelaxvmError):
        run["scaled"](x, 3, y)  # n is 2
    with pytest.raises(RelaxvmError):
        run(np.ones((2, 2), "float32"))


def test_a_missing_value_is_named_before_anything_is_built():
    class Model(nn.Module):
        def __init__(self):
            self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

        def forward(self, x):
            return self.layers(x)

    model = Model()
    fill(model)
    model.layers[1].bias.data = None
    with pytest.raises(FrontendError, match="1 of 4 parameters have no value: layers.1.bias"):
        model.jit(SPEC)
    run = model.jit(SPEC, bind_params=False)
    with pytest.raises(FrontendError, match="no value: layers.1.bias"):
        run(X)


def test_unbound_parameters_are_those_of_the_moment():
    model = nn.Linear(3, 2)
    w = fill(model)
    bound, free = model.jit(SPEC), model.jit(SPEC, bind_params=False)
    before = X @ w["weight"].T + w["bias"]
    for run in (bound, free):
        np.testing.assert_allclose(run(X), before, rtol=1e-5)
    model.bias.data = w["bias"] + 1
    np.testing.assert_allclose(bound(X), before, rtol=1e-5)
    np.testing.assert_allclose(free(X), before + 1, rtol=1e-5)


def test_packed_modes_are_for_export():
    with pytest.raises(FrontendError, match="leave param_mode"):
        nn.Linear(3, 2).jit({"forward": {**SPEC["forward"], "$": {"param_mode": "packed"}}})
    with pytest.raises(FrontendError, match="only 'cpu' exists"):
        nn.ReLU().jit(SPEC, device="cuda")


class Memory(nn.Module):
    def __init__(self):
        self.cache = nn.KVCache(2, [3])

    def forward(self, x, total):
        self.cache.append(x)
        return op.sum(self.cache.view(total), axis=0)

    def window(self, x, total):
        self.cache.override(x, 4, 1)
        return self.cache.view(total)


CACHED = {**SPEC["forward"], "total": int}


@pytest.mark.vm_modes
def test_a_cache_grows_from_call_to_call_and_begins_anew():
    run = Memory().jit({"forward": CACHED})
    for _ in range(2):
        rows = np.zeros((0, 3), "float32")
        for count in (2, 1, 1, 5, 1):
            more = np.random.default_rng(count).standard_normal((count, 3)).astype("float32")
            rows = np.concatenate([rows, more])
            np.testing.assert_allclose(run(more, len(rows)), rows.sum(0), rtol=1e-4, atol=1e-5)
        assert len(run.state[0]) == 10
        run.reset()
        assert len(run.state[0]) == 0


@pytest.mark.vm_modes
def test_a_view_is_the_caches_memory_in_whatever_shape():
    class Shown(Memory):
        def forward(self, x, total):
            self.cache.append(x)
            return self.cache.view(total), self.cache.view(total, (1, 3 * total))

    run = Shown().jit({"forward": CACHED})
    first = run(X, 2)
    for each in first:
        assert np.shares_memory(each, run.state[0]._buffer)
    assert [each.shape for each in first] == [(2, 3), (1, 6)]
    run(X[:1], 3)
    for each in first:  # the program has gone on, these stay
        np.testing.assert_array_equal(each.reshape(2, 3), X)

    class Wrong(Memory):
        def forward(self, x, total):
            self.cache.append(x)
            return self.cache.view(total, (total, 4))

    with pytest.raises(RelaxvmError, match="needs 32 bytes, .* has 24"):
        Wrong().jit({"forward": CACHED})(X, 2)


@pytest.mark.vm_modes
def test_a_window_keeps_the_newest_rows():
    run = Memory().jit({"window": CACHED})
    rows = np.arange(18, dtype="float32").reshape(6, 3)
    run["window"](rows[:3], 3)
    np.testing.assert_array_equal(run["window"](rows[3:], 4), rows[[0, 4, 5, 3]])


@pytest.mark.vm_modes
def test_a_call_that_fails_leaves_the_cache_as_it_was():
    run = Memory().jit({"forward": CACHED})
    run(X, 2)
    with pytest.raises(VMValueError, match=r"cache: view: wanted \(9, 3\), the cache hold"):
        run(X, 9)
    assert len(run.state[0]) == 2
    np.testing.assert_array_equal(run(X, 4), X.sum(0) * 2)


@pytest.mark.vm_modes
def test_two_caches_of_one_shape_are_two_caches_whatever_passes_run():
    class Two(nn.Module):
        def __init__(self):
            self.a, self.b = nn.KVCache(2, [3]), nn.KVCache(2, [3])

        def forward(self, x):
            self.a.append(x)
            self.b.append(x * 2)
            self.a.append(x)
            return self.a.view(2), self.b.view(1)

    x = np.ones((1, 3), "float32")
    for level in (0, 2, 4):
        with PassContext(opt_level=level):
            run = Two().jit({"forward": {"x": spec.Tensor([1, 3], "float32")}})
        a, b = run(x)
        np.testing.assert_array_equal(a, np.ones((2, 3)))
        np.testing.assert_array_equal(b, np.full((1, 3), 2))
        assert run.state[0] is not run.state[1]


@pytest.mark.vm_modes
def test_the_programs_of_a_cache_can_be_saved_and_run_elsewhere(tmp_path):
    mod, _ = Memory().export_tvm({"forward": CACHED})
    path = tmp_path / "memory.rvm"
    relax.build(mod).export_library(str(path))
    vm = relax.VirtualMachine(str(path))
    (cache,) = vm["_initialize_effect"]()
    total, (same,) = vm["forward"](X, (2,), cache)
    np.testing.assert_array_equal(total.numpy(), X.sum(0))
    assert same is cache


# -- the transformer -------------------------------------------------------------------------------


@pytest.mark.vm_modes
def test_the_transformer_of_the_example_gives_what_numpy_does():
    ex = example()
    c = ex.Config(vocab=50, layers=2, dim=32, heads=4, kv_heads=2, hidden=48, reserve=2)
    model = ex.make_model(c)
    weights = {n: p.data.numpy() for n, p in model.named_parameters()}
    run = model.jit(ex.SPEC)
    for length in (1, 7):
        prompt = np.random.default_rng(length).integers(0, 50, length)
        text, steps = ex.generate(run, prompt, 5)
        for i, (logits, _) in enumerate(steps):
            wanted = ex.numpy_logits(c, weights, text[: length + i])
            np.testing.assert_allclose(logits, wanted, rtol=1e-3, atol=1e-4)
        assert len(run.state[0]) == length + 4


@pytest.mark.vm_modes
def test_a_prompt_may_come_in_pieces():
    ex = example()
    c = ex.Config(vocab=50, layers=1, dim=32, heads=4, kv_heads=4, hidden=48)
    run = ex.make_model(c).jit({"prefill": ex.SPEC["prefill"]})
    tokens = np.arange(9, dtype="int32")
    whole = run["prefill"](tokens, 9)
    run.reset()
    for part in np.split(tokens, [2, 3, 7]):
        pieces = run["prefill"](part, int(part[-1]) + 1)
    np.testing.assert_allclose(pieces, whole, rtol=1e-4, atol=1e-5)


def test_a_transformer_of_twelve_layers_is_exported_without_values():
    mod, params = transformer(layers=12, dim=64, heads=4, kv_heads=2, vocab=100)
    assert len(params) == 12 * 6 + 3
    assert all(p.data is None for p in params.values())
    assert {gv.name_hint for gv in mod} == {"_initialize_effect", "prefill", "decode"}
    assert len(mod["decode"].params) == 2 + 24 + len(params)


@pytest.mark.slow
@pytest.mark.vm_modes
@pytest.mark.parametrize(("level", "bind_params"), [(0, True), (2, False), (4, True)])
def test_the_transformer_is_the_same_whatever_passes_run(level, bind_params):
    ex = example()
    c = ex.Config(vocab=30, layers=1, dim=24, heads=6, kv_heads=3, hidden=20, reserve=1)
    model = ex.make_model(c, seed=level)
    weights = {n: p.data.numpy() for n, p in model.named_parameters()}
    with PassContext(opt_level=level):
        run = model.jit(ex.SPEC, bind_params=bind_params)
    text, steps = ex.generate(run, np.arange(4), 6)
    for i, (logits, _) in enumerate(steps):
        wanted = ex.numpy_logits(c, weights, text[: 4 + i])
        np.testing.assert_allclose(logits, wanted, rtol=1e-3, atol=1e-4)
