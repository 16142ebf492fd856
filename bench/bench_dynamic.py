"""Kernels whose sizes are known only when they run, beside the same with these sizes fixed.

    python bench/bench_dynamic.py [WORD ...]    a table; kernels whose names hold a word
    make bench                                  the same kernels one by one, as benches

A build with symbols is to be at most a tenth slower: a ratio of 0.9 or more. Kernels are timed in
turns in one run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from contestants import Run, medians

from relaxvm import relax, tir
from relaxvm.relax import op as R
from relaxvm.relax.transform import BindParams
from relaxvm.runtime import VirtualMachine, cpu

nn = R.nn
_LEAST_RATIO = 0.9


@dataclass
class Sized:
    """An operator: `make` of graph variables of `shapes`, in which names are sizes that `sizes`
    gives; the last `constant` of them are weights.
    """

    name: str
    make: Callable[..., Any]
    shapes: Sequence[tuple[int | str, ...]]
    sizes: dict[str, int]
    constant: int = 0

    def __str__(self) -> str:
        return self.name

    def run(self, symbolic: bool, threads: int = 1) -> Run:
        """A function that runs it once, its sizes known when it is built or not."""
        values: dict[Any, Any] = dict(self.sizes)
        if symbolic:
            values = {name: tir.Var(name, "int64") for name in self.sizes}
        params = [
            relax.Var(f"x{k}", relax.TensorStructInfo([values.get(n, n) for n in shape], "float32"))
            for k, shape in enumerate(self.shapes)
        ]
        builder = relax.BlockBuilder()
        with builder.function("main", params):
            with builder.dataflow():
                out = builder.emit_output(self.make(*params))
            builder.emit_func_output(out)
        rng = np.random.default_rng(0)
        arrays = [
            rng.uniform(-1, 1, [self.sizes.get(n, n) for n in shape]).astype("float32")
            for shape in self.shapes
        ]
        count = len(arrays) - self.constant
        weights = {f"x{k}": arrays[k] for k in range(count, len(arrays))}
        executable = relax.build(BindParams("main", weights)(builder.get()), target="llvm")
        main = VirtualMachine(executable, cpu(), num_threads=threads)["main"]
        result = main(*arrays[:count])
        return lambda: main(*arrays[:count], out=result)


def _conv(x: Any, w: Any, stride: int = 1, groups: int = 1) -> Any:
    side = int(w.struct_info.shape[-1]) // 2
    return nn.relu(nn.conv2d(x, w, padding=[side] * 4, strides=[stride] * 2, groups=groups))


def _image(
    name: str, n: Any, h: Any, channels: int, out: int, size: int, stride: int = 1, groups: int = 1
) -> Sized:
    """A convolution; of a batch `n` and of height and width `h`, (symbol, value) or a number."""
    sizes = dict(s for s in (n, h) if isinstance(s, tuple))
    batch, side = (s[0] if isinstance(s, tuple) else s for s in (n, h))
    shapes = [(batch, channels, side, side), (out, channels // groups, size, size)]
    make = lambda x, w: _conv(x, w, stride, groups)  # noqa: E731
    return Sized(f"conv2d {name}", make, shapes, sizes, 1)


def _attention(name: str, heads: int, length: int, depth: int) -> Sized:
    shape = (1, "n", heads, depth)
    return Sized(f"attention {name}", nn.attention, [shape] * 3, {"n": length})


def _normed(x: Any, g: Any, b: Any) -> Any:
    return nn.layer_norm(x, g, b, axes=[-1])


KERNELS = [
    *(
        Sized(f"matmul {n}x{k}x{m}, rows, constant right side", R.matmul,
              [("n", k), (k, m)], {"n": n}, 1)
        for n, k, m in ((1, 768, 768), (4, 768, 3072), (16, 768, 768), (128, 768, 3072),
                        (512, 512, 512), (100, 256, 10))
    ),
    *(
        Sized(f"matmul {n}x{n}x{n}, {', '.join(which)}", R.matmul,
              [tuple(s if s in which else n for s in pair) for pair in (("n", "k"), ("k", "m"))],
              dict.fromkeys(which, n))
        for n, which in ((128, "n"), (512, "n"), (512, "m"), (512, "k"), (512, "nkm"))
    ),
    Sized("batched matmul 12x128x64x128, batch", R.matmul,
          [("b", 128, 64), ("b", 64, 128)], {"b": 12}),
    Sized("batched matmul 12x128x64x128, rows and columns", R.matmul,
          [(12, "n", 64), (12, 64, "m")], {"n": 128, "m": 128}),
    _image("3x3 64>64, 56x56, batch", ("n", 1), 56, 64, 64, 3),
    _image("3x3 256>256, 14x14, batch", ("n", 1), 14, 256, 256, 3),
    _image("3x3 256>256, 14x14, batch of 8", ("n", 8), 14, 256, 256, 3),
    _image("3x3 32>64, 4x4, batch of 16", ("n", 16), 4, 32, 64, 3),
    _image("1x1 256>64, 56x56, batch", ("n", 1), 56, 256, 64, 1),
    _image("depthwise 3x3, 96, 56x56, batch", ("n", 1), 56, 96, 96, 3, groups=96),
    _image("3x3 64>64, 56x56, height and width", 1, ("h", 56), 64, 64, 3),
    _image("3x3/2 64>128, 56x56, height and width", 1, ("h", 56), 64, 128, 3, 2),
    _image("1x1 256>64, 56x56, height and width", 1, ("h", 56), 256, 64, 1),
    _image("7x7/2 3>64, 224x224, height and width", 1, ("h", 224), 3, 64, 7, 2),
    _image("depthwise 3x3, 96, 56x56, height and width", 1, ("h", 56), 96, 96, 3, groups=96),
    _attention("12 heads, 128 tokens", 12, 128, 64),
    _attention("12 heads, 512 tokens", 12, 512, 64),
    Sized("softmax 128x768, rows", nn.softmax, [("n", 768)], {"n": 128}),
    Sized("softmax 128x768, columns", nn.softmax, [(128, "n")], {"n": 768}),
    Sized("layer norm 128x768, rows", _normed, [("n", 768), (768,), (768,)], {"n": 128}, 2),
]  # fmt: skip


@pytest.mark.parametrize("which", ["symbolic", "fixed"])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def bench_dynamic(benchmark, kernel, which):
    benchmark(kernel.run(which == "symbolic"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each of two")
    options = parser.parse_args()
    print(f"{'kernel':55} {'fixed us':>10} {'symbolic us':>11}  ratio")
    for kernel in KERNELS:
        if options.words and not any(word in kernel.name for word in options.words):
            continue
        runs = {"fixed": kernel.run(False, options.threads),
                "symbolic": kernel.run(True, options.threads)}  # fmt: skip
        times = medians(runs, options.threads, options.seconds)
        ratio = times["fixed"] / times["symbolic"]
        missed = "" if ratio >= _LEAST_RATIO else "  missed"
        print(f"{kernel.name:55} {times['fixed'] * 1e6:10.1f} {times['symbolic'] * 1e6:11.1f}  "
              f"{ratio:.2f}{missed}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
