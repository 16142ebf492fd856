"""vision.all_class_non_max_suppression, vision.non_max_suppression, vision.roi_align."""

from __future__ import annotations

import numpy as np
import pytest
from op_table import Case, T, check, check_errors, check_gradients

from relaxvm import relax
from relaxvm.base import RelaxvmError, VMError
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.runtime import VirtualMachine, array, cpu, get_global_func

vision = R.vision


def corners(rng, shape):
    """Boxes that overlap a good deal; every other one has its corners the other way round."""
    low = rng.uniform(0, 3, (*shape[:-1], 2))
    boxes = np.concatenate([low, low + rng.uniform(0.5, 3, low.shape)], -1)
    boxes[..., ::2, :] = boxes[..., ::2, :][..., [2, 3, 0, 1]]
    return boxes


def regions(rng, shape):
    low = rng.uniform(-2, 6, (shape[0], 2))
    batch = rng.integers(0, 2, (shape[0], 1))
    return np.concatenate([batch, low, low + rng.uniform(0, 7, low.shape)], -1)


BOXES, SCORES = T(2, "k", 4, data=corners), T(2, 3, "k", low=0.0, high=1.0)
NUMBER = T(dtype="int64", data=2), T(1, data=[0.3]), T(data=0.2)

CASES = [
    Case(vision.all_class_non_max_suppression, BOXES, SCORES, *NUMBER),
    Case(vision.all_class_non_max_suppression, BOXES, SCORES, 3, 0.5, 0.0),
    Case(vision.all_class_non_max_suppression, BOXES, SCORES, *NUMBER, output_format="tensorflow"),
    Case(vision.all_class_non_max_suppression, T(1, 0, 4), T(1, 2, 0), *NUMBER),
    Case(vision.non_max_suppression, BOXES, SCORES, *NUMBER),
    Case(vision.non_max_suppression, BOXES, SCORES, 5, 0.9, 0.1, center_point_box=1),
    Case(vision.non_max_suppression, BOXES, SCORES),
    *(
        Case(
            vision.roi_align,
            T(2, 2, 6, 7),
            T("n", 5, data=regions),
            pooled_size=(2, 3),
            spatial_scale=0.75,
            sample_ratio=ratio,
            aligned=aligned,
            mode=mode,
            count=32,
        )
        for ratio in (-1, 2)
        for aligned in (False, True)
        for mode in ("avg", "max", "max_corner")
    ),
    Case(
        vision.roi_align,
        T(2, 5, "k", 2),
        T(3, 5, data=regions),
        pooled_size=2,
        spatial_scale=1.0,
        sample_ratio=1,
        layout="NHWC",
        count=32,
    ),
    Case(
        vision.roi_align,
        T(2, 5, "k", 2),
        T(3, 5, data=regions),
        pooled_size=2,
        spatial_scale=1.0,
        layout="NHWC",
        count=32,
    ),
    Case(
        vision.roi_align,
        T(2, 2, 4, 4),
        T("zero", 5),
        pooled_size=2,
        spatial_scale=1.0,
        sample_ratio=2,
    ),
    Case(
        vision.roi_align,
        T(1, 1, 4, 4),
        T(2, 5, data=[[5, 0, 0, 2, 2], [0, 0, 0, np.nan, 2]]),
        pooled_size=1,
        spatial_scale=1.0,
        sample_ratio=2,
        grad=False,
    ),
]

BACKWARD = R.grad.roi_align_backward
CASES += [
    *(
        Case(
            BACKWARD,
            T("n", 2, 2, 3),
            T(2, 2, 6, 7),
            T("n", 5, data=regions),
            pooled_size=(2, 3),
            spatial_scale=0.75,
            sample_ratio=ratio,
            aligned=aligned,
            mode=mode,
            count=64,
            atol=1e-5,
        )
        for ratio in (-1, 2)
        for aligned in (False, True)
        for mode in ("avg", "max", "max_corner")
    ),
    Case(
        BACKWARD,
        T(2, 1, 1, 1),
        T(1, 4, "k", 1),
        T(2, 5, data=[[5, 0, 0, 2, 2], [0, 0, 0, np.nan, 2]]),
        pooled_size=1,
        spatial_scale=1.0,
        layout="NHWC",
    ),
    Case(BACKWARD, T(1, 1, 2, 2), T(1, 1, "zero", 2), T(1, 5), pooled_size=2, spatial_scale=1.0),
]


def test_detection_means_the_same_to_numpy_the_interpreter_and_llvm():
    check(CASES, dtypes=("float32",))


def test_gradients_of_regions():
    check_gradients(CASES)


def test_a_region_without_end_stops_the_backward_program():
    g, x = (relax.Var(n, relax.TensorStructInfo((1, 1, 2, 2), "float32")) for n in "gx")
    r = relax.Var("r", relax.TensorStructInfo((1, 5), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [g, x, r]):
        with builder.dataflow():
            out = builder.emit_output(BACKWARD(g, x, r, 2, 1.0))
        builder.emit_func_output(out)
    vm = VirtualMachine(relax.build(builder.get(), target="llvm"), cpu())
    ones = np.ones((1, 1, 2, 2), "float32")
    with pytest.raises(VMError, match="needs too many samples; give a sample_ratio"):
        vm["main"](ones, ones, np.array([[0, 0, 0, 1e30, 1]], "float32"))


@pytest.mark.slow
def test_detection_of_every_dtype():
    check(CASES, slow=True)


def kept(boxes, scores, most, iou, least, **more):
    b = relax.Var("b", relax.TensorStructInfo(np.shape(boxes), "float32"))
    s = relax.Var("s", relax.TensorStructInfo(np.shape(scores), "float32"))
    env = {b: np.asarray(boxes, "float32"), s: np.asarray(scores, "float32")}
    return evaluate(vision.non_max_suppression(b, s, most, iou, least, **more), env).tolist()


def test_of_two_boxes_that_overlap_the_better_one_is_kept():
    boxes = [[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3]]]
    assert kept(boxes, [[[0.6, 0.9, 0.3]]], 9, 0.5, 0.0) == [[0, 0, 1], [0, 0, 2]]
    assert kept(boxes, [[[0.6, 0.9, 0.3]]], 9, 0.5, 0.4) == [[0, 0, 1]]
    assert kept(boxes, [[[0.6, 0.9, 0.3]]], 9, 0.9, 0.0) == [[0, 0, 1], [0, 0, 0], [0, 0, 2]]
    assert kept(boxes, [[[0.6, 0.6, 0.6]]], 1, 0.5, 0.0) == [[0, 0, 0]]


def test_boxes_given_by_their_centres_are_the_same_boxes():
    boxes = [[[0.5, 0.5, 1, 1], [0.6, 0.5, 1, 1], [2.5, 0.5, 1, 1]]]
    assert kept(boxes, [[[0.6, 0.9, 0.3]]], 9, 0.5, 0.0, center_point_box=1) == [
        [0, 0, 1],
        [0, 0, 2],
    ]


def test_the_average_of_a_constant_region_is_that_constant():
    x = relax.Var("x", relax.TensorStructInfo((1, 1, 4, 4), "float32"))
    r = relax.Var("r", relax.TensorStructInfo((1, 5), "float32"))
    env = {x: np.full((1, 1, 4, 4), 3, "float32"), r: np.array([[0, 0, 0, 3, 3]], "float32")}
    got = evaluate(vision.roi_align(x, r, 2, 1.0), env)
    np.testing.assert_allclose(got, np.full((1, 1, 2, 2), 3.0))


def test_mistakes_are_told():
    boxes = relax.Var("b", relax.TensorStructInfo((1, 6, 4), "float32"))
    scores = relax.Var("s", relax.TensorStructInfo((1, 2, 6), "float32"))
    fewer = relax.Var("f", relax.TensorStructInfo((1, 2, 5), "float32"))
    x = relax.Var("x", relax.TensorStructInfo((1, 1, 4, 4), "float32"))
    rois = relax.Var("r", relax.TensorStructInfo((3, 5), "float32"))
    nms = vision.all_class_non_max_suppression
    check_errors(
        [
            (lambda: nms(scores, scores, 1, 0.5, 0.0), r"boxes: wanted \[batch, boxes, 4\]"),
            (lambda: nms(boxes, fewer, 1, 0.5, 0.0), "scores: wanted .*6.* along axis 2"),
            (
                lambda: nms(boxes, scores, scores, 0.5, 0.0),
                "max_output_boxes_per_class: wanted one number",
            ),
            (
                lambda: nms(boxes, scores, 1, 0.5, 0.0, output_format="x"),
                "wanted onnx or tensorflow",
            ),
            (
                lambda: vision.non_max_suppression(boxes, scores, 1, 0.5, 0.0, center_point_box=2),
                "center_point_box: wanted 0 or 1",
            ),
            (lambda: vision.roi_align(x, scores, 2, 1.0), "rois: wanted 2 dimensions"),
            (lambda: vision.roi_align(x, rois, 0, 1.0), "pooled_size: wanted an int or 2 ints"),
            (
                lambda: vision.roi_align(x, rois, 2, 1.0, mode="min"),
                "mode: wanted avg, max or max_",
            ),
            (
                lambda: vision.roi_align(x, rois, 2, 1.0, layout="NCHW2c"),
                "layout: wanted NCHW or NHWC",
            ),
        ]
    )


def test_the_library_functions_check_what_any_program_may_give_them():
    suppress = get_global_func("vm.library.non_max_suppression")
    align = get_global_func("vm.library.roi_align")
    good = array(np.zeros((1, 3, 4), "float32")), array(np.zeros((1, 1, 3), "float32"))
    out = array(np.zeros((1, 1, 1, 1), "float32"))
    picture = array(np.zeros((1, 1, 4, 4), "float32"))
    far = array(np.array([[0, 0, 0, 1e9, 1e9]], "float32"))
    for call in (
        lambda: suppress(good[0], good[0], 1, 0.5, 0.0, 0),
        lambda: suppress(1, good[1], 1, 0.5, 0.0, 0),
        lambda: suppress(*good, good[0], 0.5, 0.0, 0),
        lambda: suppress(*good, 1, 0.5, "a", 0),
        lambda: align(picture, good[0], 1, 1, 1.0, -1, 0, 0, out),
        lambda: align(picture, far, 0, 1, 1.0, -1, 0, 0, out),
        lambda: align(picture, far, 1, 1, 1.0, -1, 0, 0, out),
        lambda: align(picture, far, 1, 1, 1.0, 1, 0, 0, good[0]),
        lambda: align(picture, far, 1, 1, 1.0, 1, 0, 3, out),
    ):
        with pytest.raises(RelaxvmError):
            call()
