"""Kernels of nn, image, vision and qdq beside numpy (their meaning), torch and onnxruntime, and how
long they take to legalise.

    make bench                          as benches
    python bench/bench_ops_nn.py        one table of medians and ratios
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from contestants import RUNS, Kernel, runner

from relaxvm.relax import op as R
from relaxvm.relax.transform import LegalizeOps

nn, RNG = R.nn, np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("float32")


def i8(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape).astype("int8")


def scalar(value: float, kind: str) -> np.ndarray:
    return np.asarray(value, kind)


PICTURE, FILTERS = f32(1, 32, 28, 28), f32(32, 32, 3, 3)
ROWS, WIDE = f32(128, 768), f32(256, 1024)
LAST = [f32(768), f32(768)]
CHANNELS = [f32(32), f32(32)]
SAME = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}


class Attention:
    """One attention of [1, tokens, heads * size], as each contestant writes it."""

    def __init__(self, queries: int, keys: int, count: int, shared: int, size: int, causal=False):
        self.counts, self.size, self.causal = (count, shared, shared), size, causal
        lengths = zip((queries, keys, keys), self.counts)
        self.arrays = [f32(1, n, heads * size) for n, heads in lengths]
        self.name = f"attention {queries} of {keys}, {count}/{shared}x{size}" + " causal" * causal

    def heads(self, reshape: Any, *arrays: Any) -> list[Any]:
        """The arrays as [1, tokens, heads, size]."""
        lengths = (a.shape[1] for a in self.arrays)
        return [reshape(x, (1, n, h, self.size)) for x, n, h in zip(arrays, lengths, self.counts)]

    def ours(self, *arrays: Any) -> Any:
        mask = "TopLeft" if self.causal else None
        return nn.attention(*self.heads(R.reshape, *arrays), causal_mask=mask)

    def torch(self, f: Any, *arrays: Any) -> Any:
        q, k, v = (x.transpose(1, 2) for x in self.heads(lambda x, s: x.reshape(s), *arrays))
        made = f.scaled_dot_product_attention(
            q, k, v, is_causal=self.causal, enable_gqa=q.shape[1] != k.shape[1]
        )
        return made.transpose(1, 2)

    @property
    def onnx(self) -> Any:
        count, shared, _ = self.counts
        sizes = {"q_num_heads": count, "kv_num_heads": shared, "is_causal": int(self.causal)}
        return "Attention", sizes, []


# Encoders; decoders that read a text; a decoder's step beside its cache, and one whose heads share
# keys.
ATTENTIONS = [
    Attention(128, 128, 12, 12, 64), Attention(512, 512, 12, 12, 64),
    *(Attention(n, n, 4, 4, 64, causal=True) for n in (512, 1024, 4096)),
    Attention(1, 1024, 12, 12, 64), Attention(1, 1024, 32, 8, 128),
]  # fmt: skip
GRID = RNG.uniform(-1, 1, (1, 28, 28, 2)).astype("float32")
SCALES = [scalar(0.05, "float32"), scalar(3, "int8")]
CORNERS = np.sort(RNG.uniform(0, 1, (1, 200, 2, 2)), 2).astype("float32").reshape(1, 200, 4)


KERNELS = [
    Kernel(
        "conv2d 3x3, 32 channels", lambda x, w: nn.conv2d(x, w, padding=1), [PICTURE, FILTERS],
        lambda f, x, w: f.conv2d(x, w, padding=1), ("Conv", SAME, []),
    ),
    Kernel(
        "conv2d depthwise", lambda x, w: nn.conv2d(x, w, padding=1, groups=32),
        [PICTURE, f32(32, 1, 3, 3)], lambda f, x, w: f.conv2d(x, w, padding=1, groups=32),
        ("Conv", {**SAME, "group": 32}, []),
    ),
    Kernel(
        "conv1d", lambda x, w: nn.conv1d(x, w, padding=1), [f32(1, 64, 256), f32(64, 64, 3)],
        lambda f, x, w: f.conv1d(x, w, padding=1),
        ("Conv", {"pads": [1, 1], "kernel_shape": [3]}, []),
    ),
    Kernel(
        "conv2d_transpose, stride 2", lambda x, w: nn.conv2d_transpose(x, w, strides=2),
        [f32(1, 32, 14, 14), f32(32, 16, 2, 2)],
        lambda f, x, w: f.conv_transpose2d(x, w, stride=2),
        ("ConvTranspose", {"strides": [2, 2]}, []),
    ),
    Kernel(
        "max_pool2d 3x3", lambda x: nn.max_pool2d(x, 3, 2, 1), [f32(1, 32, 56, 56)],
        lambda f, x: f.max_pool2d(x, 3, 2, 1), ("MaxPool", {**SAME, "strides": [2, 2]}, []),
    ),
    Kernel(
        "avg_pool2d 2x2", lambda x: nn.avg_pool2d(x, 2, 2), [f32(1, 32, 56, 56)],
        lambda f, x: f.avg_pool2d(x, 2),
        ("AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}, []),
    ),
    Kernel(
        "adaptive_avg_pool2d to 7x7", lambda x: nn.adaptive_avg_pool2d(x, 7), [PICTURE],
        lambda f, x: f.adaptive_avg_pool2d(x, 7),
    ),
    Kernel(
        "max_pool2d_backward 2x2", lambda g, x: R.grad.max_pool2d_backward(g, x, 2, 2),
        [f32(1, 32, 14, 14), PICTURE],
    ),
    Kernel("relu", nn.relu, [WIDE], lambda f, x: f.relu(x), ("Relu", {}, [])),
    Kernel("gelu", nn.gelu, [WIDE], lambda f, x: f.gelu(x), ("Gelu", {}, [])),
    Kernel("silu", nn.silu, [WIDE], lambda f, x: f.silu(x)),
    Kernel("softplus", nn.softplus, [WIDE], lambda f, x: f.softplus(x), ("Softplus", {}, [])),
    Kernel("softmax", nn.softmax, [WIDE], lambda f, x: f.softmax(x, -1), ("Softmax", {}, [])),
    Kernel(
        "log_softmax", nn.log_softmax, [WIDE], lambda f, x: f.log_softmax(x, -1),
        ("LogSoftmax", {}, []),
    ),
    Kernel(
        "layer_norm", lambda x, g, b: nn.layer_norm(x, g, b, axes=-1), [ROWS, *LAST],
        lambda f, x, g, b: f.layer_norm(x, (768,), g, b), ("LayerNormalization", {}, []),
    ),
    Kernel(
        "rms_norm", nn.rms_norm, [ROWS, LAST[0]],
        lambda f, x, g: f.rms_norm(x, (768,), g, 1e-5),
    ),
    Kernel(
        "group_norm", lambda x, g, b: nn.group_norm(x, g, b, 8, 1, [2, 3]), [PICTURE, *CHANNELS],
        lambda f, x, g, b: f.group_norm(x, 8, g, b),
        ("GroupNormalization", {"num_groups": 8}, []), opset=21,
    ),
    Kernel(
        "batch_norm, inference", lambda x, *v: nn.batch_norm(x, *v, axis=1, training=False),
        [PICTURE, *CHANNELS, f32(32), np.abs(f32(32)) + 1],
        lambda f, x, g, b, m, v: f.batch_norm(x, m, v, g, b), ("BatchNormalization", {}, []),
    ),
    *(
        Kernel(a.name, a.ours, a.arrays, a.torch, a.onnx, slow_meaning=True, opset=23)
        for a in ATTENTIONS
    ),
    Kernel(
        "pad, reflect", lambda x: nn.pad(x, [0, 0, 0, 0, 2, 2, 2, 2], "reflect"), [PICTURE],
        lambda f, x: f.pad(x, (2, 2, 2, 2), "reflect"),
        ("Pad", {"mode": "reflect"}, [np.array([0, 0, 2, 2, 0, 0, 2, 2])]),
    ),
    Kernel(
        "pixel_shuffle", lambda x: nn.pixel_shuffle(x, 2), [PICTURE],
        lambda f, x: f.pixel_shuffle(x, 2),
        ("DepthToSpace", {"blocksize": 2, "mode": "CRD"}, []),
    ),
    Kernel(
        "nll_loss", nn.nll_loss, [f32(512, 100), RNG.integers(0, 100, 512)],
        lambda f, p, t: f.nll_loss(p, t), ("NegativeLogLikelihoodLoss", {}, []),
    ),
    Kernel(
        "resize2d, linear", lambda x: R.image.resize2d(x, (56, 56)), [PICTURE],
        lambda f, x: f.interpolate(x, (56, 56), mode="bilinear"),
        ("Resize", {"mode": "linear"}, [None, None, np.array([1, 32, 56, 56])]),
    ),
    Kernel(
        "resize2d, cubic", lambda x: R.image.resize2d(x, (56, 56), method="cubic"), [PICTURE],
        lambda f, x: f.interpolate(x, (56, 56), mode="bicubic"),
        ("Resize", {"mode": "cubic"}, [None, None, np.array([1, 32, 56, 56])]),
    ),
    Kernel(
        "grid_sample", R.image.grid_sample, [PICTURE, GRID],
        lambda f, x, g: f.grid_sample(x, g, align_corners=False), ("GridSample", {}, []),
    ),
    Kernel(
        "roi_align", lambda x, r: R.vision.roi_align(x, r, 7, 1.0, sample_ratio=2),
        [PICTURE, np.tile(np.array([[0, 2, 3, 20, 18]], "float32"), (16, 1))],
    ),
    Kernel(
        "non_max_suppression",
        lambda b, s: R.vision.non_max_suppression(b, s, 50, 0.5, 0.1),
        [CORNERS, RNG.uniform(size=(1, 3, 200)).astype("float32")], None,
        ("NonMaxSuppression", {}, [
            np.array([50]), np.array([0.5], "float32"), np.array([0.1], "float32")
        ]),
    ),
    Kernel(
        "quantize", lambda x, s, z: R.quantize(x, s, z), [WIDE, *SCALES], None,
        ("QuantizeLinear", {}, []),
    ),
    Kernel(
        "dequantize", lambda x, s, z: R.dequantize(x, s, z), [i8(256, 1024), *SCALES], None,
        ("DequantizeLinear", {}, []),
    ),
    Kernel(
        "matmul_integer 128 x 256 x 256", lambda a, b: R.matmul_integer(a, b),
        [i8(128, 256), i8(256, 256)], None, ("MatMulInteger", {}, []),
    ),
    Kernel(
        "conv2d_integer 3x3", lambda x, w: R.conv2d_integer(x, w, padding=1),
        [RNG.integers(0, 256, (1, 32, 28, 28)).astype("uint8"), i8(32, 32, 3, 3)], None,
        ("ConvInteger", SAME, []),
    ),
]  # fmt: skip


@pytest.mark.parametrize("what", RUNS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def bench_kernel(benchmark, kernel, what):
    benchmark.group = f"operator: {kernel}"
    benchmark(runner(kernel, what))


@pytest.mark.benchmark(group="LegalizeOps of one operator")
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def bench_legalisation(benchmark, kernel):
    mod = kernel.module()
    benchmark(lambda: LegalizeOps()(mod))


# -- one table ------------------------------------------------------------------------------------


def median_us(run: Callable[[], Any]) -> float:
    """The median of 5 to 200 runs in a fifth of a second or more, in microseconds of this process:
    all run on one thread, and what else the machine does is not counted.
    """
    run()
    times: list[float] = []
    end = time.perf_counter() + 0.2
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 200):
        start = time.process_time_ns()
        run()
        times.append((time.process_time_ns() - start) / 1000)
    return statistics.median(times)


def main() -> None:
    """Print every kernel's median, and how many times as long it takes as the others (below 1:
    faster).
    """
    print(f"{'operator':34}{'legalise us':>12}{'us':>10}{'/numpy':>9}{'/torch':>9}{'/onnx':>9}")
    legalisation = []
    for kernel in KERNELS:
        mod = kernel.module()
        legalisation.append(median_us(lambda mod=mod: LegalizeOps()(mod)))
        found: dict[str, float] = {}
        for what in RUNS:
            with contextlib.suppress(pytest.skip.Exception):
                found[what] = median_us(runner(kernel, what))
        own = found["relaxvm"]
        ratios = [f"{own / found[w]:9.2f}" if w in found else f"{'':9}" for w in list(RUNS)[1:]]
        print(f"{kernel.name:34}{legalisation[-1]:12.0f}{own:10.0f}{''.join(ratios)}", flush=True)
    print(f"legalisation: median {statistics.median(legalisation):.0f} us, "
          f"worst {max(legalisation):.0f} us")  # fmt: skip


if __name__ == "__main__":
    main()
