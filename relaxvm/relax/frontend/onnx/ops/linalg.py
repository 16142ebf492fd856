"""Determinants, Fourier transforms, and pictures in files."""

from __future__ import annotations

from typing import Any

from ..model import element_dtype
from ..registry import direct, onnx, op
from ..values import dims_of, shape_expr

direct({"Det": op.linalg.det}, since=11)


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
