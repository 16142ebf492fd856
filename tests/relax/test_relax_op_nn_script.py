"""The operators of nn, image and vision as script text."""

from __future__ import annotations

from relaxvm import relax, tir
from relaxvm.ir import assert_structural_equal
from relaxvm.relax import op
from relaxvm.script import from_source

nn, image, vision = op.nn, op.image, op.vision


def var(name: str, *shape: object) -> relax.Var:
    return relax.Var(name, relax.TensorStructInfo(shape, "float32"))


def test_text_of_the_operators_reads_back_as_the_same():
    n = tir.Var("n", "int64")
    x, w, g = var("x", n, 4, 8, 8), var("w", 4, 4, 3, 3), var("g", 4)
    grid, rois = var("grid", n, 3, 3, 2), var("rois", 3, 5)
    boxes, scores = var("boxes", 1, 6, 4), var("scores", 1, 2, 6)
    calls = [
        nn.conv2d(x, w, padding=1, out_dtype="float32"),
        nn.conv2d_transpose(x, w, strides=2, output_padding=1),
        nn.max_pool2d(x, 2, layout="NCHW"),
        nn.avg_pool2d(x, (2, 3), ceil_mode=True),
        nn.adaptive_avg_pool2d(x, (3, 4)),
        nn.adaptive_max_pool2d(x),
        nn.global_avg_pool2d(x),
        nn.batch_norm(x, g, g, g, g, axis=1, training=False),
        nn.group_norm(x, g, g, 2, 1, [2, 3]),
        nn.layer_norm(x, g, g, axes=[1]),
        nn.pad(x, [0, 0, 0, 0, 1, 1, 2, 2], "reflect"),
        nn.softplus(x, beta=0.5),
        nn.prelu(x, g),
        nn.dropout(x, 0.3),
        nn.depth_to_space(x, 2),
        image.resize2d(x, (n, 5), method="cubic"),
        image.grid_sample(x, grid),
        vision.all_class_non_max_suppression(boxes, scores, 3, 0.5, 0.25),
        vision.non_max_suppression(boxes, scores, 3, 0.5, 0.25),
        vision.roi_align(x, rois, 2, 0.5),
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w, g, grid, rois, boxes, scores]):
        with builder.dataflow():
            made = [builder.emit(call) for call in calls]
            out = builder.emit_output(made[0])
        builder.emit_func_output(out)
    mod = builder.get()
    assert_structural_equal(from_source(mod.script()), mod)
