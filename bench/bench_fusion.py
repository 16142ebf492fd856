"""Groups of operators as one kernel, beside the same as kernels of their own.

    python bench/bench_fusion.py [WORD ...]    a table; groups whose names hold a word
    make bench                                 the same groups one by one, as benches

What `FuseOps` makes one is to be no slower than its parts: a ratio of 1 or more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from contestants import Kernel, runner

from relaxvm import relax
from relaxvm.ir import IRModule, PassContext
from relaxvm.relax import op as R
from relaxvm.relax.transform import BindParams

nn = R.nn


@dataclass
class Chain:
    """Operators one after the other: `make` of graph variables, on arrays of `shapes`; the last
    `constant` of them are weights.
    """

    name: str
    make: Callable[..., Any]
    shapes: Sequence[tuple[int, ...]]
    constant: int = 0

    def __str__(self) -> str:
        return self.name

    def kernel(self) -> Kernel:
        rng = np.random.default_rng(0)
        arrays = [rng.uniform(0.1, 1, s).astype("float32") for s in self.shapes]
        params = [
            relax.Var(f"x{k}", relax.TensorStructInfo(s, "float32"))
            for k, s in enumerate(self.shapes)
        ]
        builder = relax.BlockBuilder()
        with builder.function("main", params):
            with builder.dataflow():
                out = builder.emit_output(self.make(*params))
            builder.emit_func_output(out)
        mod: IRModule = builder.get()
        first = len(arrays) - self.constant
        if self.constant:
            weights = {f"x{k}": arrays[k] for k in range(first, len(arrays))}
            mod = BindParams("main", weights)(mod)
        return Kernel(self.name, mod, arrays[:first])

    def runner(self, fused: bool, threads: int = 1) -> Callable[[], Any]:
        """What runs it, as one kernel or as several."""
        with PassContext(disabled_pass=[] if fused else ["FuseOps"]):
            return runner(self.kernel(), "relaxvm", threads)


def _bias(y: Any, b: Any) -> Any:
    channels = int(b.struct_info.dims[0])
    return R.add(y, R.reshape(b, (1, channels, 1, 1)) if y.struct_info.ndim == 4 else b)


def _hard_swish(y: Any) -> Any:
    gate = R.clip(R.add(y, relax.const(3.0)), 0.0, 6.0)
    return R.divide(R.multiply(y, gate), relax.const(6.0))


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": nn.relu,
    "clip": lambda y: R.clip(y, 0.0, 6.0),
    "gelu": nn.gelu,
    "silu": nn.silu,
    "hard swish": _hard_swish,
}
IMAGES = {
    "3x3 64 at 56x56": ((1, 64, 56, 56), (64, 64, 3, 3), 1, 1, (1, 64, 56, 56)),
    "3x3 512 at 7x7": ((1, 512, 7, 7), (512, 512, 3, 3), 1, 1, (1, 512, 7, 7)),
    "1x1 64>256 at 56x56": ((1, 64, 56, 56), (256, 64, 1, 1), 0, 1, (1, 256, 56, 56)),
    "depthwise 96 at 56x56": ((1, 96, 56, 56), (96, 1, 3, 3), 1, 96, (1, 96, 56, 56)),
}
CHAINS = [
    *(
        Chain(
            f"conv {size}, bias, {name}",
            lambda x, w, b, f=f, p=p, g=g: f(_bias(nn.conv2d(x, w, padding=p, groups=g), b)),
            [x, w, w[:1]], 2,
        )
        for size, (x, w, p, g, _) in IMAGES.items()
        for name, f in ACTIVATIONS.items()
    ),
    *(
        Chain(
            f"conv {size}, bias, residual, relu",
            lambda x, s, w, b, p=p, g=g: nn.relu(
                R.add(_bias(nn.conv2d(x, w, padding=p, groups=g), b), s)
            ),
            [x, y, w, w[:1]], 2,
        )
        for size, (x, w, p, g, y) in IMAGES.items()
    ),
    *(
        Chain(
            f"product {m}x{k}x{n}, bias, {name}", lambda x, w, b, f=f: f(_bias(R.matmul(x, w), b)),
            [(m, k), (k, n), (n,)], 2,
        )
        for m, k, n in ((128, 768, 3072), (1, 768, 3072), (64, 256, 257))
        for name, f in ACTIVATIONS.items()
    ),
    Chain(
        "product 128x3072x768, bias, residual",
        lambda x, s, w, b: R.add(_bias(R.matmul(x, w), b), s),
        [(128, 3072), (128, 768), (3072, 768), (768,)], 2,
    ),
    Chain(
        "scores 12x128x64, scale, mask",
        lambda q, k, m: R.add(R.multiply(R.matmul(q, k), relax.const(0.125)), m),
        [(12, 128, 64), (12, 64, 128), (1, 128, 128)],
    ),
    Chain(
        "max pool 64 at 112x112, relu",
        lambda x: nn.relu(nn.max_pool2d(x, (3, 3), (2, 2), (1, 1))), [(1, 64, 112, 112)],
    ),
    Chain(
        "average pool 64 at 56x56, scale",
        lambda x: R.multiply(nn.avg_pool2d(x, (2, 2), (2, 2)), relax.const(2.0)), [(1, 64, 56, 56)],
    ),
    *(
        Chain(
            f"sum, layer norm, gelu of {rows}x768",
            lambda x, y, g: nn.gelu(nn.layer_norm(R.add(x, y), g, g, axes=-1)),
            [(rows, 768), (rows, 768), (768,)], 1,
        )
        for rows in (1, 128, 2048)
    ),
    Chain(
        "sum that goes on, rms norm of 128x1024",
        lambda x, y, g: relax.Tuple([z := R.add(x, y), nn.rms_norm(z, g, axes=-1)]),
        [(128, 1024), (128, 1024), (1024,)], 1,
    ),
    *(
        Chain(
            f"softmax of 12x{n}x{n} with scale and mask",
            lambda x, m: nn.softmax(R.add(R.multiply(x, relax.const(0.125)), m)),
            [(12, n, n), (n, n)],
        )
        for n in (64, 128, 512)
    ),
    *(
        Chain(
            f"ten elementwise operators on {size}",
            lambda x, y: nn.relu(
                R.add(R.multiply(R.subtract(R.multiply(R.add(R.multiply(nn.relu(
                    R.add(R.multiply(x, y), y)), y), x), y), x), y), x)
            ),
            [shape, shape],
        )
        for size, shape in (("64x56x56", (1, 64, 56, 56)), ("7x7x7", (1, 7, 7, 7)))
    ),
    Chain(
        "elementwise operators of three results",
        lambda x, y: relax.Tuple([a := R.add(x, y), b := nn.relu(a), R.multiply(b, y)]),
        [(256, 4096), (256, 4096)],
    ),
    Chain(
        "gate of halves of 128x8192",
        lambda x: R.multiply(nn.silu((s := R.split(x, 2, axis=1))[0]), s[1]), [(128, 8192)],
    ),
    Chain("slice, exp", lambda x: R.exp(R.strided_slice(x, [1], [64], [960])), [(512, 1024)]),
    Chain("every second, exp", lambda x: R.exp(R.strided_slice(x, [1], [0], [1024], [2])),
          [(512, 1024)]),
    Chain("transpose, sum", lambda x, y: R.add(R.permute_dims(x), y), [(512, 768), (768, 512)]),
    Chain("relu, transpose", lambda x: R.permute_dims(nn.relu(x)), [(512, 768)]),
    Chain("gelu, transpose", lambda x: R.permute_dims(nn.gelu(x)), [(512, 768)]),
    Chain(
        "heads apart, scaled",
        lambda x: R.multiply(
            R.permute_dims(R.reshape(x, (1, 128, 12, 64)), [0, 2, 1, 3]), relax.const(0.125)
        ),
        [(1, 128, 768)],
    ),
    Chain("concat, relu", lambda x, y: nn.relu(R.concat((x, y), axis=1)),
          [(1, 64, 28, 28), (1, 64, 28, 28)]),
    Chain("relus, concat", lambda x, y: R.concat((nn.relu(x), nn.relu(y)), axis=1),
          [(1, 64, 28, 28), (1, 64, 28, 28)]),
    Chain("gelus, concat of rows", lambda x, y: R.concat((nn.gelu(x), nn.gelu(y)), axis=1),
          [(128, 768), (128, 768)]),
    Chain("pad, relu", lambda x: nn.relu(nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1])), [(1, 64, 56, 56)]),
    Chain("relu, pad", lambda x: nn.pad(nn.relu(x), [0, 0, 0, 0, 1, 1, 1, 1]), [(1, 64, 56, 56)]),
    Chain("squares of a difference, row sums",
          lambda x, y: R.sum(R.multiply(d := R.subtract(x, y), d), axis=-1),
          [(512, 1024), (512, 1024)]),
    Chain("squares of a difference, sums of columns",
          lambda x, y: R.sum(R.multiply(d := R.subtract(x, y), d), axis=0),
          [(512, 1024), (512, 1024)]),
    Chain("squares, sum of everything", lambda x: R.sum(R.multiply(x, x)), [(1024, 1024)]),
    Chain("exp, mean of rows, log", lambda x: R.log(R.mean(R.exp(x), axis=-1)), [(512, 1024)]),
]  # fmt: skip


@pytest.mark.parametrize("way", ["one", "parts"])
@pytest.mark.parametrize("chain", CHAINS, ids=str)
def bench_fusion(benchmark, chain, way):
    benchmark.group = f"{chain}, one thread"
    benchmark(chain.runner(way == "one"))


def seconds_of(chain: Chain, seconds: float, threads: int) -> tuple[float, float]:
    """Seconds of the fastest call as one kernel and as parts, which take turns."""
    runs = [chain.runner(fused, threads) for fused in (True, False)]
    times: list[list[float]] = [[], []]
    for run in runs:
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for run, own in zip(runs, times):
            start = time.perf_counter()
            for _ in range(8):
                run()
            own.append((time.perf_counter() - start) / 8)
    return min(times[0]), min(times[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only groups whose names hold one of these")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each group")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    print("| group | parts | one | ratio |\n|---|---|---|---|")
    for chain in CHAINS:
        if given.words and not any(w in chain.name for w in given.words):
            continue
        one, parts = seconds_of(chain, given.seconds, given.threads)
        cells = (f"{parts * 1e6:.1f} us", f"{one * 1e6:.1f} us", f"{parts / one:.2f}")
        print(f"| {chain.name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
