"""Products and convolutions of bytes, requantised in the same kernel, beside float32 and, where it
is installed, onnxruntime's QLinear operators.

    python bench/bench_quantised.py             a table: microseconds, and float32 over integers
    make bench                                  the same kernels one by one, as benches
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contestants import Kernel, medians, runner

from relaxvm import relax
from relaxvm.relax import op as R

RNG = np.random.default_rng(0)
ZERO_POINT, SCALE, OUT = 3, 0.05, (0.5, 10)


def _bytes(*shape: int) -> np.ndarray:
    return RNG.integers(-127, 128, shape).astype("int8")


def _requantised(total: Any, scales: np.ndarray, axis: int) -> Any:
    scale = relax.const(scales * np.float32(SCALE))
    return R.qnn.requantize(total, scale, 0, *OUT, axis=axis, out_dtype="uint8")


def _pair(name: str, x: np.ndarray, w: np.ndarray) -> tuple[Kernel, Kernel]:
    """A product (weight [n, k]) or convolution with bias and relu: in float32, and of bytes."""
    is_conv = x.ndim == 4
    n, axis = w.shape[0], 1 if is_conv else -1
    padding = w.shape[-1] // 2 if is_conv else 0
    scales = RNG.uniform(0.001, 0.002, n).astype("float32")
    b = RNG.integers(-999, 999, n).astype("int32")
    bias = relax.const(b.reshape(1, n, 1, 1) if is_conv else b)
    real = relax.const(bias.data.numpy().astype("float32"))

    def of_floats(x: Any, w: Any) -> Any:
        y = R.nn.conv2d(x, w, padding=padding) if is_conv else R.matmul(x, w)
        return R.nn.relu(R.add(y, real))

    def of_bytes(x: Any) -> Any:
        given = relax.const(w), ZERO_POINT, 0, SCALE, relax.const(scales)
        y = R.qnn.conv2d(x, *given, padding=padding) if is_conv else R.qnn.dense(x, *given)
        return _requantised(R.add(y, bias), scales, axis)

    y = [np.float32(OUT[0]), np.uint8(OUT[1])]
    first = [np.float32(SCALE), np.uint8(ZERO_POINT)]
    weight = [w if is_conv else w.T.copy(), scales, np.zeros(n, "int8")]
    onnx = (
        ("QLinearConv", {"pads": [padding] * 4}, [*first, *weight, *y, b])
        if is_conv
        else ("QLinearMatMul", {}, [*first, *weight, *y])
    )
    floats = [x.astype("float32"), (w if is_conv else w.T.copy()).astype("float32")]
    return (
        Kernel(f"{name}, float32", of_floats, floats, constant=1),
        Kernel(f"{name}, bytes", of_bytes, [x], onnx=onnx),
    )


def _rows(m: int, k: int, n: int) -> tuple[Kernel, Kernel]:
    x = RNG.integers(0, 256, (m, k)).astype("uint8")
    return _pair(f"product {m} x {k} x {n}", x, _bytes(n, k))


def _image(c: int, size: int, o: int, window: int) -> tuple[Kernel, Kernel]:
    x = RNG.integers(0, 256, (1, c, size, size)).astype("uint8")
    name = f"convolution {window}x{window}, {c} to {o} channels, {size}x{size}"
    return _pair(name, x, _bytes(o, c, window, window))


PAIRS = [
    _rows(1, 1024, 1024), _rows(64, 256, 512), _rows(256, 768, 768),
    _image(64, 56, 64, 3), _image(64, 56, 256, 1), _image(256, 14, 256, 3),
]  # fmt: skip


@pytest.mark.parametrize("what", ["relaxvm", "onnxruntime"])
@pytest.mark.parametrize("kernel", [k for pair in PAIRS for k in pair], ids=str)
def bench_kernel(benchmark, kernel, what):
    benchmark.group = str(kernel).partition(", ")[0]
    benchmark(runner(kernel, what))


def main() -> None:
    print("| kernel | float32 | bytes | float32 / bytes | onnxruntime |")
    print("| --- | --- | --- | --- | --- |")
    for floats, integers in PAIRS:
        runs = {"f": runner(floats, "relaxvm"), "q": runner(integers, "relaxvm")}
        try:
            runs["o"] = runner(integers, "onnxruntime")
        except pytest.skip.Exception:
            pass
        times = medians(runs)
        other = f"{times['o'] * 1e6:.0f}" if "o" in times else "-"
        name = str(integers).removesuffix(", bytes")
        f, q = times["f"] * 1e6, times["q"] * 1e6
        print(f"| {name} | {f:.0f} | {q:.0f} | {f / q:.2f} | {other} |")


if __name__ == "__main__":
    main()
