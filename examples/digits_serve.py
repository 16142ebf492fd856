"""Load a saved program with nothing but the runtime, and classify images. Run by digits_mlp.py.

python examples/digits_serve.py digits.rvm held_out.npz
"""

from __future__ import annotations

import sys
import time

import numpy as np

from relaxvm import runtime


@runtime.register_func("env.relu")
def relu(x, out):
    """out = max(x, 0)"""
    np.maximum(x.numpy(), 0, out=out.numpy())


@runtime.register_func("env.linear")
def linear(x, w, b, out):
    """out = x @ w.T + b"""
    np.matmul(x.numpy(), w.numpy().T, out=out.numpy())
    out.numpy()[...] += b.numpy()


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of each row."""
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def us_per_image(classify, images: np.ndarray) -> float:
    """The median over five runs of the time of one image, in microseconds."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for i in range(len(images)):
            classify(images[i : i + 1])
        times.append((time.perf_counter() - start) / len(images) * 1e6)
    return sorted(times)[2]


def main(program: str, data: str) -> None:
    """Classify the held-out images and compare with scikit-learn."""
    held_out = np.load(data)
    images, labels = held_out["images"], held_out["labels"]
    w0, b0, w1, b1 = (held_out[name] for name in ("w0", "b0", "w1", "b1"))

    start = time.perf_counter()
    ex = runtime.load_module(program)
    vm = runtime.VirtualMachine(ex, runtime.cpu())
    main_function = vm["main"]
    loaded_ms = (time.perf_counter() - start) * 1e3
    compiler_rooms = (
        "relaxvm.ir",
        "relaxvm.tir",
        "relaxvm.relax",
        "relaxvm.target",
        "relaxvm.script",
    )
    compiler_loaded = any(room in sys.modules for room in compiler_rooms)

    logits = np.concatenate([main_function(images[i : i + 1]).numpy() for i in range(len(images))])
    accuracy = float(np.mean(logits.argmax(axis=1) == labels))
    difference = float(np.abs(softmax(logits) - held_out["probabilities"]).max())

    def with_numpy(x: np.ndarray) -> np.ndarray:
        return np.maximum(x @ w0.T + b0, 0) @ w1.T + b1

    ours, theirs = us_per_image(main_function, images), us_per_image(with_numpy, images)
    print(
        f"loaded and linked in {loaded_ms:.1f} ms; kernels: {vm.kernel_source}; "
        f"compiler imported: {'yes' if compiler_loaded else 'no'}"
    )
    print(f"accuracy on {len(images)} held-out images: {accuracy:.4f}")
    print(f"largest difference from scikit-learn's probabilities: {difference:.2e}")
    print(f"{ours:.1f} us per image (numpy: {theirs:.1f} us)")
    if accuracy < 0.95 or difference > 1e-4:
        sys.exit("the program does not agree with scikit-learn")


if __name__ == "__main__":
    main(*sys.argv[1:])
