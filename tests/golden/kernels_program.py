"""The program of the golden files: kernels, symbols, a branch, an extern, constants.

    python tests/golden/kernels_program.py

writes the file of the newest format anew. The files are kept as they are for as long as their
formats are readable, which is for ever: version 1; version 2, which has compiled functions; and
version 3, which has an object for each kernel.
"""

import pathlib

import numpy as np

from relaxvm import relax
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

FILE = pathlib.Path(__file__).with_name("executable_v1_kernels.rvm")
FILE_2 = pathlib.Path(__file__).with_name("executable_v2_compiled.rvm")
FILE_3 = pathlib.Path(__file__).with_name("executable_v3_objects.rvm")


@I.ir_module
class Golden:
    @T.prim_func(private=True)
    def linear(x: T.handle, W: T.Buffer((3, 4), "float32"), y: T.handle):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        X = T.match_buffer(x, (n, 4), "float32")
        Y = T.match_buffer(y, (n, 3), "float32")
        for i, j, k in T.grid(n, 3, 4):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + X[vi, vk] * W[vj, vk]

    @T.prim_func(private=True)
    def tanh(x: T.handle, y: T.handle):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        X = T.match_buffer(x, (n, 3), "float32")
        Y = T.match_buffer(y, (n, 3), "float32")
        for i, j in T.grid(n, 3):
            with T.block("Y"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = T.tanh(X[vi, vj])

    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),
        w: R.Tensor((3, 4), "float32"),
        squash: R.Tensor((), "bool"),
    ) -> R.Tensor(("n", 3), "float32"):
        n = T.int64()
        cls = Golden
        h = R.call_tir(cls.linear, (x, w), R.Tensor((n, 3), "float32"))
        if squash:
            out = R.call_tir(cls.tanh, (h,), R.Tensor((n, 3), "float32"))
        else:
            out = R.call_dps_packed("golden.double", (h,), R.Tensor((n, 3), "float32"))
        return out


WEIGHT = (np.arange(12, dtype="float32").reshape(3, 4) - 5) / 8


def double(x, out):
    """The extern that the program needs."""
    np.multiply(x.numpy(), 2, out=out.numpy())


def expected(x, squash):
    """What the program computes, in numpy."""
    h = x @ WEIGHT.T
    return np.tanh(h) if squash else h * 2


def build():
    """The program as this version builds it."""
    return relax.build(relax.transform.BindParams("main", {"w": WEIGHT})(Golden), target="llvm")


if __name__ == "__main__":
    build().export_library(str(FILE_3), sign=False)
