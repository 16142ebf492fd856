"""Train a network on real handwritten digits, compile it, and run the saved program elsewhere.

    python examples/digits_mlp.py [--out digits.rvm]

scikit-learn trains a 64-128-10 network on the 8x8 images it ships. relaxvm builds a program whose
first layer is a loop function and whose other layers are Python functions registered by the user,
and saves it. A fresh process that imports nothing but `relaxvm.runtime` (examples/digits_serve.py)
loads the program and classifies images it has not seen.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from relaxvm import relax
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T


@I.ir_module
class Digits:
    @T.prim_func
    def linear0(
        X: T.Buffer((1, 64), "float32"),
        W: T.Buffer((128, 64), "float32"),
        B: T.Buffer((128,), "float32"),
        Z: T.Buffer((1, 128), "float32"),
    ):
        T.func_attr({"global_symbol": "linear0", "tir.noalias": True})
        Y = T.alloc_buffer((1, 128), "float32")
        for i, j, k in T.grid(1, 128, 64):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + X[vi, vk] * W[vj, vk]
        for i, j in T.grid(1, 128):
            with T.block("Z"):
                vi, vj = T.axis.remap("SS", [i, j])
                Z[vi, vj] = Y[vi, vj] + B[vj]

    @R.function
    def main(
        x: R.Tensor((1, 64), "float32"),
        w0: R.Tensor((128, 64), "float32"),
        b0: R.Tensor((128,), "float32"),
        w1: R.Tensor((10, 128), "float32"),
        b1: R.Tensor((10,), "float32"),
    ) -> R.Tensor((1, 10), "float32"):
        with R.dataflow():
            lv0 = R.call_tir(linear0, (x, w0, b0), R.Tensor((1, 128), "float32"))
            lv1 = R.call_tir("env.relu", (lv0,), R.Tensor((1, 128), "float32"))
            out = R.call_tir("env.linear", (lv1, w1, b1), R.Tensor((1, 10), "float32"))
            R.output(out)
        return out


def train():
    """A trained network, and the images and labels it has not seen."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype("float32")
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=0.25, random_state=0
    )
    network = MLPClassifier(hidden_layer_sizes=(128,), max_iter=300, random_state=0)
    network.fit(train_x, train_y)
    print(
        f"trained on {len(train_x)} images; scikit-learn's own accuracy on {len(test_x)} others: "
        f"{network.score(test_x, test_y):.4f}\n"
    )
    return network, test_x, test_y


def main() -> None:
    """Train, compile, save, and run in a second process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=pathlib.Path, help="where to keep the program (default: a temporary folder)"
    )
    out = parser.parse_args().out

    network, test_x, test_y = train()
    params = {
        "w0": np.ascontiguousarray(network.coefs_[0].T, "float32"),
        "b0": network.intercepts_[0].astype("float32"),
        "w1": np.ascontiguousarray(network.coefs_[1].T, "float32"),
        "b1": network.intercepts_[1].astype("float32"),
    }
    print("== the module ==\n")
    print(Digits.script(), "\n")

    start = time.perf_counter()
    bound = relax.transform.BindParams("main", params)(Digits)
    ex = relax.vm.build(bound, target="llvm")
    print(f"== built in {time.perf_counter() - start:.3f} s; the bytecode ==\n")
    print(ex.as_text(), "\n")
    print("== what is in the program ==\n")
    print(ex.stats(), "\n", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        program = out or pathlib.Path(folder) / "digits.rvm"
        data = pathlib.Path(folder) / "held_out.npz"
        ex.export_library(str(program))
        np.savez(
            data,
            images=test_x,
            labels=test_y,
            probabilities=network.predict_proba(test_x),
            **params,
        )
        serve = pathlib.Path(__file__).with_name("digits_serve.py")
        print(
            f"== a fresh process loads {program.name} ({program.stat().st_size} bytes) ==\n",
            flush=True,
        )
        subprocess.run([sys.executable, str(serve), str(program), str(data)], check=True)


if __name__ == "__main__":
    main()
