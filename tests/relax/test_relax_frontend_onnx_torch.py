"""Models as torch's two exporters write them give what torch gives."""

import contextlib
import io
import warnings

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.relax.frontend.onnx import from_onnx
from relaxvm.runtime import VirtualMachine, cpu

onnx = pytest.importorskip("onnx", reason="reading ONNX models needs the extra onnx")
torch = pytest.importorskip("torch", reason="it exports the models: the extra peers")
pytest.importorskip("onnxscript", reason="torch's exporter needs it: the extra peers")
nn, F = torch.nn, torch.nn.functional
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class Squeezed(nn.Module):
    def __init__(self):
        super().__init__()
        self.few, self.many = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x):
        mean = F.adaptive_avg_pool2d(x, 1)
        return x * F.hardsigmoid(self.many(F.relu(self.few(mean))))


def convnet():
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish()),
        *(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.SiLU(), Squeezed(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 6, 1), nn.ReLU6(), nn.Upsample(scale_factor=2, mode="bilinear")),
        *(nn.ConvTranspose2d(6, 4, 2, 2), nn.GroupNorm(2, 4), nn.Mish(), nn.AvgPool2d(3, 2, 1)),
        *(nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(), nn.Dropout(), nn.Linear(16, 5)),
    )


class Encoder(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.words = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **settings)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens, hidden):
        return self.layers(self.words(tokens), src_key_padding_mask=hidden).mean(1)


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.norm = nn.Embedding(20, 16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 20)

    def forward(self, tokens):
        x = self.words(tokens)
        n, s, dim = x.shape
        parts = self.qkv(self.norm(x)).view(n, s, 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        return self.out(x + y.transpose(1, 2).reshape(n, s, dim))


class Tagger(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.words, self.out = nn.Embedding(20, 8), nn.Linear(12, 4)
        self.layers = getattr(nn, kind)(8, 6, 2, batch_first=True, bidirectional=True)

    def forward(self, tokens):
        return self.out(self.layers(self.words(tokens))[0])


class Indexed(nn.Module):
    def forward(self, x, rows):
        y = x.clone()
        y[:, 1:3] = x[:, rows[:2]]
        return torch.cumsum(y, 1), *torch.topk(y, 3, -1), y.std(-1), y[y > 0.2]


def tokens():
    return torch.randint(0, 20, (2, 7))


def masked_tokens():
    return tokens(), torch.arange(14).reshape(2, 7) % 7 > 4


# Name -> module, its arguments, and which of their dimensions are dynamic.
CASES = {
    "convnet": (convnet, lambda: (torch.randn(2, 3, 32, 32),), [(0,)]),
    "encoder": (lambda: Encoder(activation="gelu"), masked_tokens, [(0, 1), (0, 1)]),
    "norms first": (lambda: Encoder(norm_first=True), masked_tokens, [(0, 1), (0, 1)]),
    "causal": (Causal, lambda: (tokens(),), [(0, 1)]),
    **{
        kind: (lambda kind=kind: Tagger(kind), lambda: (tokens(),), [(0, 1)])
        for kind in ("LSTM", "GRU", "RNN")
    },
    "indexed": (Indexed, lambda: (torch.randn(2, 5, 6), torch.tensor([3, 0, 1])), [(0,), ()]),
}


def exported(module, args, dynamic, dynamo):
    names = [f"x{k}" for k in range(len(args))]
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            free = torch.export.Dim.DYNAMIC
            shapes = tuple(dict.fromkeys(axes, free) for axes in dynamic) if dynamic else None
            program = torch.onnx.export(
                module, args, dynamo=True, input_names=names, dynamic_shapes=shapes, verbose=False
            )
            return program.model_proto
        axes = {n: {a: f"{n}_{a}" for a in each} for n, each in zip(names, dynamic)}
        file = io.BytesIO()
        torch.onnx.export(module, args, file, dynamo=False, input_names=names, dynamic_axes=axes)
        return onnx.load_from_string(file.getvalue())


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_module_that_torch_exports_gives_what_torch_gives(name, static, dynamo):
    make, inputs, dynamic = CASES[name]
    if dynamo and not static and name in ("LSTM", "GRU", "RNN"):
        pytest.skip("torch exports recurrent layers of one length only, this way")
    torch.manual_seed(0)
    module, args = make().eval(), inputs()
    with torch.no_grad():
        wanted = module(*args)
    proto = exported(module, args, [] if static else dynamic, dynamo)
    got = VirtualMachine(relax.build(from_onnx(proto), "llvm"), cpu())["main"](
        *(a.numpy() for a in args)
    )
    flat = [v if isinstance(v, tuple) else (v,) for v in (wanted, got)]
    for theirs, ours in zip(*flat, strict=True):
        scale = float(theirs.abs().max())
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=0, atol=1e-4 * scale)
