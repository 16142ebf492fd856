"""A ResNet from an ONNX file: imported, checked, saved, loaded again, measured.

    python examples/onnx_resnet.py [model.onnx] [--side 224]

Without a file the network is made here, with random weights: a small one of residual blocks, as any
exporter would write it. With onnxruntime installed its answer and its time stand beside.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile
import time

import numpy as np
import onnx
from onnx import helper, numpy_helper

import relaxvm
from relaxvm.runtime import VirtualMachine, cpu


def residual_network(side, widths=(16, 32, 64), blocks=2, classes=10):
    """An ONNX model: images [n, 3, side, side] to [n, classes]."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []

    def emit(kind, *inputs, **attributes):
        nodes.append(helper.make_node(kind, inputs, [f"v{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def weight(values):
        name = f"w{len(weights)}"
        weights.append(numpy_helper.from_array(np.asarray(values, "float32"), name))
        return name

    def convolved(x, inputs, outputs, size, stride):
        kernel = rng.standard_normal((outputs, inputs, size, size)) / np.sqrt(inputs * size * size)
        y = emit("Conv", x, weight(kernel), strides=[stride] * 2, pads=[size // 2] * 4)
        settings = (np.ones(outputs), np.zeros(outputs), np.zeros(outputs), np.ones(outputs))
        return emit("BatchNormalization", y, *map(weight, settings))

    x, inputs = emit("Relu", convolved("image", 3, widths[0], 3, 1)), widths[0]
    for stage, outputs in enumerate(widths):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = emit("Relu", convolved(x, inputs, outputs, 3, stride))
            y = convolved(y, outputs, outputs, 3, 1)
            straight = stride == 1 and inputs == outputs
            shortcut = x if straight else convolved(x, inputs, outputs, 1, stride)
            x, inputs = emit("Relu", emit("Add", y, shortcut)), outputs
    flat = emit("Flatten", emit("GlobalAveragePool", x))
    matrix, bias = weight(rng.standard_normal((classes, inputs)) / 8), weight(np.zeros(classes))
    y = emit("Softmax", emit("Gemm", flat, matrix, bias, transB=1), axis=1)
    image = helper.make_tensor_value_info("image", 1, ["n", 3, side, side])
    result = helper.make_tensor_value_info(y, 1, ["n", classes])
    graph = helper.make_graph(nodes, "resnet", [image], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def timed(call, seconds=0.5):
    """The median of the milliseconds that calls take."""
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return float(np.median(times)) * 1e3


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument(
        "--side", type=int, default=32, help="of images, where the model leaves it open"
    )
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(options.model or pathlib.Path(folder, "resnet.onnx"))
        if options.model is None:
            onnx.save(residual_network(options.side), path)

        mod = relaxvm.onnx.from_onnx(path)
        print(mod["main"].struct_info)

        began = time.perf_counter()
        program = relaxvm.load(path)  # import and build
        print(f"built in {time.perf_counter() - began:.1f} s")
        program.export_library(pathlib.Path(folder, "resnet.rvm"))

        began = time.perf_counter()
        program = relaxvm.load(pathlib.Path(folder, "resnet.rvm"))
        main_function = VirtualMachine(program, cpu(), num_threads=1)["main"]
        print(f"ready from its file in {(time.perf_counter() - began) * 1e3:.0f} ms")

        rng = np.random.default_rng(0)
        # One image, of the size that the model wants.
        wanted = program.function("main").params[0].shape
        sizes = zip(wanted, (1, 3, options.side, options.side), strict=True)
        shape = [dim if isinstance(dim, int) else size for dim, size in sizes]
        images = rng.standard_normal(shape, "float32")
        answer = main_function(images).numpy()
        took = timed(lambda: main_function(images))
        print(f"most likely class {answer.argmax()}, {took:.3f} ms")

        try:
            import onnxruntime
        except ImportError:
            return
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, settings)
        feeds = {session.get_inputs()[0].name: images}
        error = np.abs(session.run(None, feeds)[0] - answer).max()
        took = timed(lambda: session.run(None, feeds))
        print(f"onnxruntime: differs by {error:.1e}, {took:.3f} ms")


if __name__ == "__main__":
    main()
