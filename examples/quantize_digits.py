"""The digits network in 8 bits: accuracy and time before and after.

    python examples/quantize_digits.py [--epochs 5] [--mode min_max]

The network of `digits_convnet.py` is trained, calibrated with some of the images that it has seen,
and quantised. A report says what each layer costs and gains; accuracy is that on images that it has
not seen.
"""

from __future__ import annotations

import argparse
import statistics

import digits_convnet as digits
import numpy as np

from relaxvm import quantize, relax
from relaxvm.runtime import cpu


def main() -> None:
    """Take scikit-learn's images, three quarters of them to learn from."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--mode", default="min_max", help="calibrate_mode")
    options = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype("float32").reshape(-1, 1, 8, 8)
    split = train_test_split(images, labels, test_size=0.25, random_state=0)
    show(*split, options.epochs, options.mode)


def show(
    train_x: np.ndarray,
    test_x: np.ndarray,
    train_y: np.ndarray,
    test_y: np.ndarray,
    epochs: int,
    mode: str = "min_max",
) -> None:
    """Train on images [n, 1, 8, 8] and their labels, quantise, and compare on those held out."""
    rng = np.random.default_rng(0)
    layers = digits.network(rng)
    digits.train(layers, train_x, train_y, epochs, rng)
    mod = digits.to_relax(layers)
    samples = [{"images": train_x[k : k + 64]} for k in range(0, 512, 64)]

    with quantize.qconfig(calibrate_mode=mode):
        report = quantize.sensitivity(mod, samples, metric=changed)
        integers = quantize.quantize(mod, dataset=samples)
    print("\n== each layer alone: share of answers that change, and time ==\n")
    print(report)

    machines = [
        relax.VirtualMachine(relax.build(m, target="llvm"), cpu())
        for m in (relax.transform.DecomposeOpsForInference()(mod), integers)
    ]
    before, after = ((vm["main"](test_x).numpy().argmax(1) == test_y).mean() for vm in machines)
    turns = [
        [vm.time_evaluator("main", number=1, repeat=1)(test_x).mean for vm in machines]
        for _ in range(15)
    ]
    slow, fast = (statistics.median(column) * 1e6 for column in zip(*turns))
    print(f"\naccuracy on {len(test_x)} images: float32 {before:.4f}, int8 {after:.4f}")
    print(f"time for all of them: float32 {slow:.0f} us, int8 {fast:.0f} us")
    if after < before - 0.02:
        raise SystemExit("quantising costs more than two hundredths of accuracy")


def changed(result: np.ndarray, wanted: np.ndarray) -> float:
    """The share of rows whose greatest element is another."""
    return float((result.argmax(1) != wanted.argmax(1)).mean())


if __name__ == "__main__":
    main()
