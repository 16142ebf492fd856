"""Tune the dense layer of a small network, put the schedule that was found in its place, and run.

    python examples/tune_and_swap.py [--trials 64]

The first layer of a network for 28 x 28 images: 784 inputs, 128 outputs, one image at a time.
"""

import argparse
import tempfile

import numpy as np

import relaxvm as tvm
from relaxvm import meta_schedule as ms
from relaxvm import relax
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

TARGET = "llvm --num-cores=1"


@I.ir_module
class Network:
    @T.prim_func
    def linear0(
        X: T.Buffer((1, 784), "float32"),
        W: T.Buffer((128, 784), "float32"),
        B: T.Buffer((128,), "float32"),
        Z: T.Buffer((1, 128), "float32"),
    ):
        T.func_attr({"global_symbol": "linear0", "tir.noalias": True})
        Y = T.alloc_buffer((1, 128), "float32")
        for i, j, k in T.grid(1, 128, 784):
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
        x: R.Tensor((1, 784), "float32"),
        w: R.Tensor((128, 784), "float32"),
        b: R.Tensor((128,), "float32"),
    ):
        with R.dataflow():
            z = R.call_tir(Network.linear0, (x, w, b), R.Tensor((1, 128), "float32"))
            R.output(z)
        return z


def seconds_of(mod, arrays):
    """(seconds of a call, its result)"""
    vm = relax.VirtualMachine(relax.build(mod, TARGET), tvm.cpu())
    took = vm.time_evaluator("main", tvm.cpu(), number=100, repeat=5)(*arrays).median
    return took, vm["main"](*arrays).numpy()


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=64)
    trials = parser.parse_args(arguments).trials

    rng = np.random.default_rng(0)
    shapes = ((1, 784), (128, 784), (128,))
    arrays = [tvm.nd.array(rng.standard_normal(s).astype("float32")) for s in shapes]
    before, wanted = seconds_of(Network, arrays)

    # The loops are somebody's own, which builds leave as they are; tuning starts from them.
    mod = tvm.IRModule.from_expr(Network["linear0"].with_attr("global_symbol", "main"))
    with tempfile.TemporaryDirectory() as folder:
        sch = ms.tune_tir(
            mod=mod,
            target=TARGET,
            config=ms.TuneConfig(max_trials_global=trials, num_trials_per_iter=min(trials, 16)),
            work_dir=folder,
            task_name="main",
        )
    swapped = Network.clone()
    gv = swapped.get_global_var("linear0")
    swapped.update_func(gv, sch.mod["main"].with_attr("global_symbol", "linear0"))
    after, result = seconds_of(swapped, arrays)

    np.testing.assert_allclose(result, wanted, rtol=1e-3, atol=1e-3)
    print(f"as written {before * 1e6:.1f} us, tuned {after * 1e6:.1f} us: the results agree")


if __name__ == "__main__":
    main()
