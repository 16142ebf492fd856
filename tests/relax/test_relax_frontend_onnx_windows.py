"""ONNX's windows, pictures, signals and matrices where the official tests do not look: sizes that
are known at run time, and settings that meet. What is right is said by onnx.reference.
"""

import warnings

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import FrontendError, RelaxvmError
from relaxvm.relax.frontend.onnx import from_onnx
from relaxvm.relax.interp import Evaluator
from relaxvm.runtime import VirtualMachine, cpu

onnx = pytest.importorskip("onnx", reason="reading ONNX models needs the extra onnx")
helper = onnx.helper


def single(op_type, inputs, known=(), outputs=1, opset=22, symbolic=True, **attrs):
    """A model of one node and what to run it with: {name: array}, of which `known` are weights;
    None is an input that is left out. With `symbolic`, the dimensions of inputs are names.
    """
    infos, weights = [], []
    for name, x in inputs.items():
        if name in known:
            weights.append(onnx.numpy_helper.from_array(x, name))
        elif x is not None:
            dims = [f"{name}{k}" for k in range(x.ndim)] if symbolic else x.shape
            kind = helper.np_dtype_to_tensor_dtype(x.dtype)
            infos.append(helper.make_tensor_value_info(name, kind, dims))
    names = [n if x is not None else "" for n, x in inputs.items()]
    results = [f"y{k}" for k in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, results, **attrs)],
        "g",
        infos,
        [onnx.ValueInfoProto(name=r) for r in results],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return model, {n: x for n, x in inputs.items() if x is not None and n not in known}


def close(op_type, inputs, want=None, rtol=1e-5, build=False, **settings):
    """The importer's module gives what onnx.reference does (or `want`)."""
    model, given = single(op_type, inputs, **settings)
    if want is None:
        from onnx.reference import ReferenceEvaluator

        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            want = ReferenceEvaluator(model).run(None, given)
    mod = from_onnx(model)
    runs = [lambda *x: Evaluator(mod)("main", *x)]
    if build:
        runs.append(VirtualMachine(relax.build(mod, "llvm"), cpu())["main"])
    for run in runs:
        got = run(*given.values())
        for g, w in zip(got if isinstance(got, tuple) else [got], want):
            g = g.numpy() if hasattr(g, "numpy") else g
            np.testing.assert_allclose(g, w, rtol=rtol, atol=rtol, strict=True)


def numbers(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# -- resize ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("factor", [2.0, 0.5, 0.7, 1.3])
def test_a_resize_by_factors_takes_sizes_of_run_time(mode, factor):
    scales = np.float32([1, 1, factor, 1.5])
    close("Resize", {"x": numbers(1, 2, 5, 6), "r": None, "s": scales}, known="s", mode=mode)


def test_a_resize_to_sizes_takes_them_from_an_input():
    sizes = np.int64([3, 8])
    inputs = {"x": numbers(4, 5), "r": None, "s": None, "z": sizes}
    model, given = single("Resize", inputs, symbolic=True, mode="linear")
    del model.graph.input[1].type.tensor_type.shape.dim[:]
    model.graph.input[1].type.tensor_type.shape.dim.add().dim_value = 2
    from onnx.reference import ReferenceEvaluator

    got = Evaluator(from_onnx(model))("main", *given.values())
    np.testing.assert_allclose(got, ReferenceEvaluator(model).run(None, given)[0], rtol=1e-5)


@pytest.mark.parametrize("coordinates", ["half_pixel_symmetric", "align_corners", "asymmetric"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("factors", [(0.7, 1.3), (2.0, 0.3)])
def test_a_resize_takes_factors_from_an_input(mode, coordinates, factors):
    settings = dict(mode=mode, coordinate_transformation_mode=coordinates)
    settings["antialias"] = int(mode != "nearest")
    inputs = {"x": numbers(3, 5, 6), "r": None, "s": np.float32(factors)}
    close("Resize", inputs, axes=[2, 1], build=factors[0] < 1.0, **settings)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("sizes", [(3, 9), (1, 2)])
@pytest.mark.parametrize("known", ["z", ""])
def test_proportions_are_kept_of_sizes_of_run_time(policy, sizes, known):
    settings = dict(keep_aspect_ratio_policy=policy, mode="linear", antialias=1, known=known)
    inputs = {"x": numbers(4, 7), "r": None, "s": None, "z": np.int64(sizes)}
    close("Resize", inputs, build=True, **settings)


@pytest.mark.parametrize("factor", [-1.0, np.nan, np.inf, 0.0])
def test_factors_of_run_time_that_are_none_end_in_an_error_or_in_nothing(factor):
    inputs = {"x": numbers(4, 7), "r": None, "s": np.float32([1.0, factor])}
    mod = from_onnx(single("Resize", inputs, mode="linear")[0])
    built = VirtualMachine(relax.build(mod, "llvm"), cpu())["main"]
    if factor in (-1.0, np.inf):
        with pytest.raises(RelaxvmError, match="negative size -7|does not fit 64 bits"):
            built(inputs["x"], inputs["s"])
    else:
        assert tuple(built(inputs["x"], inputs["s"]).shape) == (4, 0)


def test_a_policy_for_proportions_that_is_none_is_refused():
    inputs = {"x": numbers(4, 5), "r": None, "s": None, "z": np.int64([3, 8])}
    bad, _ = single("Resize", inputs, known="z", symbolic=False, keep_aspect_ratio_policy="best")
    with pytest.raises(FrontendError, match="wanted stretch, not_larger or not_smaller, got"):
        from_onnx(bad)


# -- pools -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage_order", [0, 1])
def test_indices_of_a_maximum_count_in_either_order(storage_order):
    x = numbers(2, 3, 5, 7)
    close(
        "MaxPool", {"x": x}, outputs=2, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1],
        storage_order=storage_order, build=True,
    )  # fmt: skip


def test_a_norm_over_windows_that_hang_over_counts_what_is_there():
    x = np.float32([[[1, 2, 3, 4, 5]]])
    settings = dict(kernel_shape=[2], strides=[2], ceil_mode=1, p=2)
    want = np.sqrt(np.float32([[[5, 25, 25]]]))
    close("LpPool", {"x": x}, [want], **settings)
    close("LpPool", {"x": x}, [want], symbolic=False, build=True, **settings)


def test_integers_are_convolved_along_one_axis():
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 255, (2, 4, 9), "uint8"), rng.integers(0, 255, (6, 2, 3), "uint8")
    settings = dict(strides=[2], pads=[1, 2], dilations=[2], group=2)
    mod = from_onnx(single("Conv", {"x": x * 1.0 - 7, "w": w * 1.0}, known="w", **settings)[0])
    want = Evaluator(mod)("main", x * 1.0 - 7).astype("int32")
    zero = np.uint8(7)
    inputs = {"x": x, "w": w, "z": zero}
    close("ConvInteger", inputs, [want], known="wz", build=True, **settings)
    scales = {"xs": np.float32(1), "z": zero, "w": w, "ws": np.float32(1), "wz": np.uint8(0)}
    inputs = {"x": x, **scales, "ys": np.float32(99), "yz": np.uint8(3)}
    rounded = np.clip(np.rint(want / np.float32(99)) + 3, 0, 255).astype("uint8")
    known = ("w", *scales, "ys", "yz")
    close("QLinearConv", inputs, [rounded], known=known, build=True, **settings)


def test_unpooling_puts_back_what_pooling_took():
    x = numbers(1, 2, 4, 6)
    mod = from_onnx(single("MaxPool", {"x": x}, outputs=2, kernel_shape=[2, 2], strides=[2, 2])[0])
    values, places = Evaluator(mod)("main", x)
    inputs = {"v": values, "i": places}
    want = np.where(np.isin(np.arange(x.size).reshape(x.shape), places), x, 0)
    close("MaxUnpool", inputs, [want], kernel_shape=[2, 2], strides=[2, 2], build=True)


def test_windows_may_deform_over_sizes_that_are_not_known():
    x, w, o = numbers(1, 2, 5, 5), numbers(2, 2, 2, 2, seed=1), numbers(1, 8, 4, 4, seed=2)
    close("DeformConv", {"x": x, "w": w, "o": o}, known="w", kernel_shape=[2, 2], rtol=1e-4)


def test_columns_become_images_of_a_size_that_is_known_late():
    inputs = {"x": numbers(1, 8, 12), "i": np.int64([4, 5]), "b": np.int64([2, 2])}
    model, given = single("Col2Im", inputs, known="b", symbolic=False)
    mod = from_onnx(model)
    want = Evaluator(from_onnx(single("Col2Im", inputs, known="bi")[0]))("main", inputs["x"])
    np.testing.assert_array_equal(Evaluator(mod)("main", *given.values()), want)
    with pytest.raises(RelaxvmError):
        Evaluator(mod)("main", inputs["x"], np.int64([4, 4]))


# -- signals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("inverse", [0, 1])
def test_a_transform_takes_its_length_from_an_input(inverse):
    inputs = {"x": numbers(2, 7, 2), "n": np.int64(5)}
    model, given = single("DFT", inputs, symbolic=False, axis=1, opset=17, inverse=inverse)
    got = Evaluator(from_onnx(model))("main", *given.values())
    numbers_of = inputs["x"][..., 0] + 1j * inputs["x"][..., 1]
    want = (np.fft.ifft if inverse else np.fft.fft)(numbers_of, 5, 1)
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, rtol=1e-4, atol=1e-5)


# -- detection and caches --------------------------------------------------------------------------


def test_bounds_of_a_suppression_may_be_inputs():
    boxes = np.abs(numbers(1, 6, 4))
    scores = np.abs(numbers(1, 2, 6, seed=1))
    bounds = {"m": np.int64([2]), "i": np.float32([0.4]), "s": np.float32([0.1])}
    inputs = {"b": boxes, "c": scores, **bounds}
    close("NonMaxSuppression", inputs, symbolic=False, build=True)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_a_cache_of_unknown_sizes_is_written_where_an_input_says(mode):
    inputs = {"c": numbers(2, 3, 6, 2), "u": numbers(2, 3, 2, 2, seed=1), "i": np.int64([1, 4])}
    model, given = single("TensorScatter", inputs, opset=24, symbolic=False, mode=mode)
    close("TensorScatter", inputs, opset=24, mode=mode, build=True)
