"""Determinants, Fourier transforms, and pictures in files."""

from __future__ import annotations

from typing import Any

from ..model import element_dtype
from ..registry import direct, onnx, op
from ..values import dims_of, shape_expr

direct({"Det": op.linalg.det}, since=11)


@onnx("Inverse", domain="com.microsoft")
def inverse(node: Any, x: Any) -> Any:
    return op.linalg.inv(x)


@onnx("DFT", since=20)
def dft(
    node: Any,
    x: Any,
    length: Any = None,
    axis: Any = None,
    *,
    inverse: int,
    onesided: int,
) -> Any:
    along = int(node.number(axis, "axis", -2))
    size = None if length is None else shape_expr(node.sizes(length, "dft_length"))
    return op.signal.dft(x, size, along, bool(inverse), bool(onesided))


@onnx("DFT", since=17)
def dft_17(node: Any, x: Any, length: Any = None, *, axis: int, inverse: int, onesided: int) -> Any:
    size = None if length is None else shape_expr(node.sizes(length, "dft_length"))
    return op.signal.dft(x, size, axis, bool(inverse), bool(onesided))


@onnx("Rfft Irfft", domain="com.microsoft")
def real_transform(
    node: Any, x: Any, *, signal_ndim: int, normalized: int = 0, onesided: int = 1
) -> Any:
    """Transforms of real signals along the last axes, or back; onnxruntime takes no other settings.

    What is transformed has real and imaginary parts as one more axis.
    """
    if normalized or not onesided or not 1 <= signal_ndim <= 3:
        raise node.error(
            "wanted normalized 0, onesided 1 and signal_ndim 1 to 3, got "
            f"{normalized}, {onesided} and {signal_ndim}"
        )
    axes = [-2 - k for k in range(signal_ndim)]
    if node.proto.op_type == "Rfft":
        y = op.signal.dft(op.expand_dims(x, -1), None, axes[0], False, True)
        for axis in axes[1:]:
            y = op.signal.dft(y, None, axis, False, False)
        return y
    for axis in axes[:0:-1]:
        x = op.signal.dft(x, None, axis, True, False)
    return op.squeeze(op.signal.dft(x, None, axes[0], True, True), -1)


@onnx("STFT", since=17)
def stft(
    node: Any, x: Any, step: Any, window: Any = None, length: Any = None, *, onesided: int
) -> Any:
    if len(dims_of(x)) == 2:
        x = op.expand_dims(x, 2)
    size = None if length is None else int(node.number(length, "frame_length"))
    return op.signal.stft(x, window, int(node.number(step, "frame_step")), size, bool(onesided))


@onnx("MelWeightMatrix", since=17)
def mel_weight_matrix(
    node: Any, bins: Any, length: Any, rate: Any, lower: Any, upper: Any, *, output_datatype: int
) -> Any:
    return op.signal.mel_weight_matrix(
        *(
            int(node.number(x, what))
            for x, what in ((bins, "num_mel_bins"), (length, "dft_length"), (rate, "sample_rate"))
        ),
        *(
            float(node.number(x, what))
            for x, what in ((lower, "lower_edge_hertz"), (upper, "upper_edge_hertz"))
        ),
        element_dtype(output_datatype, "output_datatype"),
    )


@onnx("ImageDecoder", since=20)
def image_decoder(node: Any, data: Any, *, pixel_format: str) -> Any:
    return op.image.decode(data, pixel_format)
