"""image.resize, image.resize2d and image.grid_sample."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from op_table import NUMBERS, Case, Sh, T, check, check_errors, check_gradients, thinned

from relaxvm import relax, tir
from relaxvm.base import VMValueError
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.runtime import VirtualMachine, cpu

resize, resize2d, grid_sample = R.image.resize, R.image.resize2d, R.image.grid_sample
MODES = (
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
)
METHODS = ("nearest_neighbor", "linear", "cubic")
ROUNDINGS = ("round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "")


def grid(*shape: object) -> T:
    return T(*shape, 2, low=-1.5, high=1.5)


def bitmap(height: int, width: int) -> np.ndarray:
    """The bytes of a BMP file of 24 bits."""
    rows = np.random.default_rng(0).integers(0, 256, (height, -(-width * 3 // 4) * 4), "uint8")
    size = 54 + rows.size
    head = struct.pack("<2sIII", b"BM", size, 0, 54)
    about = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, rows.size, 0, 0, 0, 0)
    return np.frombuffer(head + about + rows.tobytes(), "uint8")


FILE = bitmap(3, 5)
CASES = [
    *(
        Case(R.image.decode, T(len(FILE), data=FILE), dtypes=("uint8",), pixel_format=p, exact=True)
        for p in ("RGB", "BGR", "Grayscale")
    ),
    *(
        Case(
            resize2d,
            T(1, 2, 4, 3),
            Sh(*size),
            method=method,
            coordinate_transformation_mode=mode,
            count=16,
        )
        for method in METHODS
        for mode in MODES
        for size in ((7, 5), (2, 1))
    ),
    *(
        Case(
            resize2d,
            T(1, 1, 4, 6),
            Sh(2, 9),
            method="nearest_neighbor",
            rounding_method=r,
            coordinate_transformation_mode=mode,
        )
        for r in ROUNDINGS
        for mode in ("half_pixel", "asymmetric")
    ),
    *(
        Case(
            resize2d,
            T(1, 1, 5, 6),
            Sh(4, 3),
            roi=(0.1, -0.2, 0.9, 1.2),
            method=method,
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=7.5,
            count=16,
        )
        for method in METHODS
    ),
    Case(resize2d, T("n", 2, "m", "k"), Sh(3, "n"), method="linear", count=4),
    Case(resize2d, T("n", "zero", 3, 2), Sh("k", 4), method="cubic", count=4),
    Case(resize2d, T(1, 2, 0, 2), Sh(0, 4)),
    Case(
        resize2d,
        T(1, 3, 4, 2),
        Sh(5, 4),
        layout="NHWC",
        method="cubic",
        cubic_alpha=-0.5,
        cubic_exclude=1,
        count=16,
    ),
    Case(resize2d, T(1, 1, 3, 4, 2), Sh(2, 5), layout="NCHW2c", count=4),
    Case(
        resize2d,
        T(1, 1, 3, 4, low=0, high=100),
        Sh(5, 3),
        method="nearest_neighbor",
        dtypes=NUMBERS,
    ),
    Case(resize2d, T(1, 1, 3, 4, low=0, high=120), Sh(5, 3), dtypes=("uint8", "int8", "int32")),
    Case(
        resize2d,
        T(1, 1, 3, 4, low=-120, high=120),
        Sh(5, 3),
        method="cubic",
        dtypes=("int8", "int16"),
    ),
    Case(
        resize2d,
        T(1, 1, 3, 4, dtype="uint8", high=255),
        Sh(5, 3),
        out_dtype="float32",
        dtypes=("float32",),
    ),
    *(
        Case(resize, T(5), Sh(3), scales=(0.7,), coordinate_transformation_mode=mode, method=method)
        for method in METHODS
        for mode in (*MODES, "half_pixel_symmetric", "tf_crop_and_resize")
    ),
    *(
        Case(
            resize,
            T(3, "n", 7),
            Sh("k", 4),
            axes=(-2, 2),
            method=method,
            antialias=True,
            cubic_exclude=exclude,
            count=64,
        )
        for method in METHODS
        for exclude in (0, 1)
    ),
    Case(resize, T(7, 2), Sh(3), axes=(0,), scales=(0.45,), antialias=True, count=16),
    Case(resize, T("zero", 2), Sh("m"), axes=(0,), antialias=True, count=16),
    Case(resize, T(2, 3, 4, 3), Sh(3, 2, 5, 4), method="linear", count=16),
    Case(
        resize,
        T(4, 3, 5),
        Sh(6, 2),
        axes=(2, 0),
        method="cubic",
        extrapolation_value=9.0,
        count=32,
        coordinate_transformation_mode="tf_crop_and_resize",
        roi=(0.2, -0.1, 1.1, 0.8),
    ),
    Case(resize, T(2, 6, low=0, high=200), Sh(4), axes=(1,), antialias=True, dtypes=("uint8",)),
    Case(resize, T(2, 3, 4, low=-9, high=9), Sh(5, 5, 5), dtypes=("int32", "int64")),
    *(
        Case(
            grid_sample,
            T("n", 2, 4, 5),
            grid("n", 3, 2),
            method=method,
            padding_mode=padding,
            align_corners=align,
            count=16,
        )
        for method in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
        for align in (False, True)
    ),
    Case(grid_sample, T(1, "m", "k", 2), grid(1, "n", "m"), layout="NHWC", count=16),
    *(
        Case(
            grid_sample,
            T(1, 2, 3, "k", 4),
            T(1, 2, 3, "m", 3, low=-1.3, high=1.3),
            method=method,
            layout="NCDHW",
            padding_mode=padding,
            count=64,
        )
        for method, padding in (("bilinear", "zeros"), ("nearest", "border"))
    ),
    Case(grid_sample, T(1, 2, 3, 4), T(1, "n", 3, 2, low=-1, high=4), in_pixels=True, count=16),
    Case(grid_sample, T("n", 2, "zero", "m", 3), T("n", 2, 2, 2, 3), layout="NCDHW"),
    Case(grid_sample, T(1, 2, 1, 1), grid(1, 2, 3), padding_mode="reflection", align_corners=True),
    Case(grid_sample, T(1, 2, "zero", 3), grid(1, 2, 3)),
    Case(
        grid_sample,
        T(1, 1, 3, 3),
        T(1, 1, 3, 2, data=[[[[np.nan, 0], [np.inf, 0], [1e30, -1e30]]]]),
        grad=False,
    ),
    *(
        Case(
            grid_sample,
            T(1, 1, 3, 3),
            T(1, 1, 3, 2, data=[[[[np.nan, 0], [np.inf, 0], [1e30, -np.inf]]]]),
            method=method,
            padding_mode=padding,
            grad=False,
        )
        for method in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
    ),
]

BACKWARD = R.grad.grid_sample_backward
BACKWARDS = [
    *(
        Case(
            BACKWARD,
            T("n", 2, 3, 2),
            T("n", 2, 4, 5),
            grid("n", 3, 2),
            method=method,
            padding_mode=padding,
            align_corners=align,
            count=32,
        )
        for method in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
        for align in (False, True)
    ),
    Case(BACKWARD, T(1, 2, "m", 2), T(1, 3, "k", 2), grid(1, 2, "m"), layout="NHWC", count=16),
    Case(BACKWARD, T(1, 1, 2, 2), T(1, 1, 3, 3), T(1, 2, 2, 2, dtype="float16"), count=16),
    Case(BACKWARD, T(1, 1, 2, 2), T(1, 1, "zero", 3), grid(1, 2, 2)),
    *(
        Case(
            BACKWARD,
            T(1, 2, 2, 3, "m"),
            T(1, 2, 3, "k", 4),
            T(1, 2, 3, "m", 3, low=-1.3, high=1.3),
            layout="NCDHW",
            method=method,
            count=64,
        )
        for method in ("bilinear", "nearest")
    ),
    Case(
        BACKWARD,
        T(1, 1, 2, 2),
        T(1, 1, 3, 3),
        T(1, 2, 2, 2, low=0, high=2),
        in_pixels=True,
        count=16,
    ),
    Case(BACKWARD, T(0, 1, 2, 2), T(0, 1, 2, 3), grid(0, 2, 2)),
]
RESIZE = R.grad.resize2d_backward
RESIZE_BACKWARDS = [
    *(
        Case(
            RESIZE,
            T("n", 2, 3, "k"),
            T("n", 2, "m", 4),
            method=method,
            coordinate_transformation_mode=mode,
            roi=(0.1, -0.2, 0.9, 1.2),
            count=32,
        )
        for method in METHODS
        for mode in ("half_pixel", "align_corners", "tf_crop_and_resize")
    ),
    Case(
        RESIZE,
        T(1, 5, 2, 4),
        T(1, 3, "k", 4),
        layout="NHWC",
        method="cubic",
        cubic_exclude=1,
        count=16,
    ),
    Case(RESIZE, T(1, 1, 2, 2, 2), T(1, 1, 3, 1, 2), layout="NCHW2c", count=16),
    Case(RESIZE, T(1, 1, 2, 2), T(1, 1, "zero", 3)),
]
CASES += BACKWARDS + RESIZE_BACKWARDS


def test_images_mean_the_same_to_numpy_the_interpreter_and_llvm():
    check(thinned(CASES, 4), dtypes=("float32", "uint8"), in_turn=True)


@pytest.mark.slow
def test_images_of_every_dtype():
    check(CASES, slow=True)


def test_gradients_of_images():
    for op in (resize, resize2d, grid_sample):
        check_gradients([c for c in CASES if c.op is op][::5])
    check_gradients(RESIZE_BACKWARDS[::2])


def test_gradients_of_symbolic_pictures():
    check_gradients([c for c in CASES if c.op is resize2d and "m" in c.args[0].shape])


def value(call: relax.Call, x: relax.Var, data: object) -> np.ndarray:
    return evaluate(call, {x: np.asarray(data, "float32")})


def test_antialias_looks_at_all_that_lies_under_a_pixel():
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    for exclude, want in ((0, [0.0, 4.0]), (1, [0.0, 24 / 7])):
        call = resize(x, (2,), antialias=True, cubic_exclude=exclude)
        np.testing.assert_allclose(value(call, x, [0, 0, 0, 8]), want, rtol=1e-6)


def test_what_does_not_fit_is_cut_off_behind_or_on_both_sides():
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    for mode, want in (("half_pixel", 7 / 6), ("half_pixel_symmetric", 1.5)):
        call = resize(x, (1,), scales=(0.3,), coordinate_transformation_mode=mode)
        np.testing.assert_allclose(value(call, x, [0, 1, 2, 3]), [want], rtol=1e-6)


def test_linear_doubling_is_what_paper_and_pencil_say():
    x = relax.Var("x", relax.TensorStructInfo((1, 1, 1, 2), "float32"))
    got = value(resize2d(x, (1, 4)), x, [[[[0, 4]]]])
    np.testing.assert_array_equal(got[0, 0, 0], [0, 1, 3, 4])


def test_ties_of_nearest_go_as_the_rounding_method_says():
    x = relax.Var("x", relax.TensorStructInfo((1, 1, 1, 4), "float32"))
    wanted = {"round": [0, 2], "round_prefer_floor": [0, 2], "round_prefer_ceil": [1, 3]}
    for rounding, want in wanted.items():
        call = resize2d(x, (1, 2), method="nearest_neighbor", rounding_method=rounding)
        assert value(call, x, [[[[0, 1, 2, 3]]]])[0, 0, 0].tolist() == want


@pytest.mark.parametrize(
    ("mode", "rounding", "want"),
    [
        ("asymmetric", "round", [0, 0, 1, 1, 2, 2, 3, 3]),
        ("asymmetric", "round_prefer_ceil", [0, 1, 1, 2, 2, 3, 3, 3]),
        ("asymmetric", "", [0, 0, 1, 1, 2, 2, 3, 3]),
        ("align_corners", "", [0, 0, 1, 1, 2, 2, 3, 3]),
        ("half_pixel", "round", [0, 0, 1, 1, 2, 2, 3, 3]),
    ],
)
def test_a_picture_of_twice_the_size_shows_every_pixel_twice(mode, rounding, want):
    x = relax.Var("x", relax.TensorStructInfo((1, 1, 1, 4), "float32"))
    call = resize2d(
        x,
        (1, 8),
        method="nearest_neighbor",
        coordinate_transformation_mode=mode,
        rounding_method=rounding,
    )
    assert value(call, x, [[[[0, 1, 2, 3]]]])[0, 0, 0].tolist() == want


def test_a_grid_of_the_pixels_centres_gives_the_picture():
    x = relax.Var("x", relax.TensorStructInfo((1, 1, 2, 2), "float32"))
    g = relax.Var("g", relax.TensorStructInfo((1, 2, 2, 2), "float32"))
    data = np.arange(4, dtype="float32").reshape(1, 1, 2, 2)
    centres = np.array([[[[-0.5, -0.5], [0.5, -0.5]], [[-0.5, 0.5], [0.5, 0.5]]]], "float32")
    np.testing.assert_array_equal(evaluate(grid_sample(x, g), {x: data, g: centres}), data)


def test_places_beyond_all_numbers_are_the_outermost_pixels():
    x = relax.Var("x", relax.TensorStructInfo((1, 1, 1, 3), "float32"))
    g = relax.Var("g", relax.TensorStructInfo((1, 1, 3, 2), "float32"))
    data = np.array([1.0, 2.0, 3.0], "float32").reshape(1, 1, 1, 3)
    far = np.array([[-np.inf, 0], [np.inf, 0], [1e38, 0]], "float32").reshape(1, 1, 3, 2)
    for method in ("bilinear", "nearest"):
        call = grid_sample(x, g, method=method, padding_mode="border")
        assert evaluate(call, {x: data, g: far}).ravel().tolist() == [1.0, 3.0, 3.0]
    outside = evaluate(grid_sample(x, g, method="nearest"), {x: data, g: far})
    assert outside.ravel().tolist() == [0.0, 0.0, 0.0]


def test_a_file_is_a_picture():
    pillow = pytest.importorskip("PIL.Image", reason="decoding needs the extra images")
    picture = np.random.default_rng(0).integers(0, 256, (5, 4, 3), "uint8")
    file = io.BytesIO()
    pillow.fromarray(picture).save(file, "PNG")
    data = np.frombuffer(file.getvalue(), "uint8")
    x = relax.Var("x", relax.TensorStructInfo((tir.Var("n", "int64"),), "uint8"))
    gray = np.asarray(pillow.fromarray(picture).convert("L"))[:, :, None]
    for pixels, want in (("RGB", picture), ("BGR", picture[:, :, ::-1]), ("Grayscale", gray)):
        bb = relax.BlockBuilder()
        with bb.function("main", [x]):
            bb.emit_func_output(bb.emit(R.image.decode(x, pixels)))
        vm = VirtualMachine(relax.build(bb.get(), "llvm"), cpu())
        np.testing.assert_array_equal(vm["main"](data).numpy(), want)
        np.testing.assert_array_equal(evaluate(R.image.decode(x, pixels), {x: data}), want)
    with pytest.raises(VMValueError, match="image.decode: "):
        vm["main"](data[:20].copy())


def test_one_number_is_both_height_and_width():
    x = relax.Var("x", relax.TensorStructInfo((1, 2, 3, 4), "float32"))
    assert resize2d(x, 5).struct_info == relax.TensorStructInfo((1, 2, 5, 5), "float32")


def test_mistakes_are_told():
    x = relax.Var("x", relax.TensorStructInfo((1, 2, 3, 4), "float32"))
    empty = relax.Var("e", relax.TensorStructInfo((1, 2, 0, 4), "float32"))
    three = relax.Var("g", relax.TensorStructInfo((1, 2, 3, 3), "float32"))
    other = relax.Var("o", relax.TensorStructInfo((2, 2, 3, 2), "float32"))
    ints = relax.Var("i", relax.TensorStructInfo((1, 2, 3, 2), "int32"))
    check_errors(
        [
            (lambda: resize2d(x, (1, 2, 3)), r"size: wanted \(height, width\), got 3 dimensions"),
            (
                lambda: resize2d(x, (2, 2), method="best"),
                "method: wanted one of nearest_neighbor, linear",
            ),
            (
                lambda: resize2d(x, (2, 2), coordinate_transformation_mode="a"),
                "wanted one of half_pixel",
            ),
            (
                lambda: resize2d(x, (2, 2), rounding_method="up"),
                "rounding_method: wanted one of round",
            ),
            (lambda: resize2d(x, (2, 2), roi=(1, 2)), "roi: wanted 4 numbers"),
            (lambda: R.image.decode(ints), "data: wanted uint, got int32"),
            (lambda: grid_sample(x, other, layout="NCDHW"), "data: wanted 5 dimensions, got 4"),
            (lambda: resize(x, (2, 2)), "size: wanted 4 dimensions, one for each axis"),
            (lambda: resize(x, (2,), axes=(3,), scales=(0,)), "scales: wanted numbers above 0"),
            (lambda: resize(x, (2,), axes=(3,), roi=(0, 1, 2)), "roi: wanted 1 begins and 1 ends"),
            (lambda: resize(x, (2,), axes=(4,)), "axes: wanted -4 to 3 for 4 dimensions, got 4"),
            (
                lambda: resize(empty, (2,), axes=(2,)),
                "size: wanted 0 along axis 2, where data is empty",
            ),
            (lambda: resize2d(x, (2, 2), layout="NWC"), "layout: wanted the axes NCHW"),
            (lambda: resize2d(empty, (2, 2)), "size: wanted 0 along H, where data is empty"),
            (lambda: resize2d(x, (2, 2), out_dtype="bool"), "out_dtype: wanted a number's dtype"),
            (lambda: resize2d(x, (2, 2), roi=(0, 0, np.nan, 1)), "roi: wanted 4 numbers"),
            (
                lambda: resize2d(x, (2, 2), out_dtype="f"),
                "image.resize2d: out_dtype: unknown dtype",
            ),
            (
                lambda: BACKWARD(
                    x, x, relax.Var("g", relax.TensorStructInfo((1, 2, 3, 2), "float32"))
                ),
                r"output_grad: wanted shape \(1, 2, 2, 3\), got \(1, 2, 3, 4\)",
            ),
            (lambda: RESIZE(other, x), "output_grad: wanted .*1.* samples, as data has; got .*2"),
            (lambda: RESIZE(x, x, method="best"), "grad.resize2d_backward: method: wanted one of"),
            (lambda: grid_sample(x, three), "grid: wanted size 2 along the last axis"),
            (lambda: grid_sample(x, other), "grid: wanted .*1.* samples, as data has; got .*2"),
            (lambda: grid_sample(x, ints), "grid: wanted a floating dtype"),
            (lambda: grid_sample(x, other, method="linear"), "method: wanted one of bilinear"),
            (
                lambda: grid_sample(x, other, padding_mode="wrap"),
                "padding_mode: wanted one of zeros",
            ),
        ]
    )
