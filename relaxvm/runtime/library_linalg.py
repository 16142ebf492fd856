"""Library functions of matrices and signals: `vm.library.det`, `vm.library.inv`, `vm.library.dft`.

What they compute is also what the operators of `relax.op.linalg` and `relax.op.signal` mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base import VMValueError
from .constants import integer
from .library import axis_of, fill, library, values_of


def _matrices(x: np.ndarray, what: str) -> np.ndarray:
    """Square matrices in the dtype that LAPACK computes in."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2] or not np.issubdtype(x.dtype, np.floating):
        raise VMValueError(f"{what}: wanted square matrices of floats, got {x.shape} of {x.dtype}")
    return x if x.dtype == np.float64 else x.astype("float32")


def det_values(x: np.ndarray) -> np.ndarray:
    """The determinants of the matrices [..., n, n]."""
    return np.asarray(np.linalg.det(_matrices(x, "det"))).astype(x.dtype)


def inv_values(x: np.ndarray) -> np.ndarray:
    """The inverses of the matrices [..., n, n]. Raises VMValueError if one has none."""
    try:
        return np.asarray(np.linalg.inv(_matrices(x, "inv"))).astype(x.dtype)
    except np.linalg.LinAlgError:
        raise VMValueError("inv: a matrix is singular, and has no inverse") from None


def dft_values(x: np.ndarray, axis: int, length: int, inverse: bool, onesided: bool) -> np.ndarray:
    """The Fourier transform of `x` [..., 1 or 2], real and imaginary parts in the last axis, along
    `axis`, cut or filled with zeros to `length`. See `relax.op.signal.dft`.
    """
    if x.ndim < 2 or x.shape[-1] not in (1, 2) or length < 1 or axis == x.ndim - 1:
        raise VMValueError(
            "dft: wanted [..., 1 or 2], another axis than the last and a length of 1 or more, got "
            f"{x.shape}, axis {axis} and {length}"
        )
    wide = np.complex128 if x.dtype == np.float64 else np.complex64
    numbers = x[..., 0] if x.shape[-1] == 1 else (x[..., 0] + 1j * x[..., 1]).astype(wide)
    if inverse and onesided:
        return np.fft.irfft(numbers, length, axis)[..., None].astype(x.dtype)
    if inverse:
        result = np.fft.ifft(numbers, length, axis)
    elif onesided and x.shape[-1] == 1:
        result = np.fft.rfft(numbers, length, axis)
    else:
        result = np.fft.fft(numbers, length, axis)
        if onesided:
            result = np.take(result, np.arange(length // 2 + 1), axis)
    return np.stack([result.real, result.imag], -1).astype(x.dtype)


def _float(x: Any, what: str) -> np.ndarray:
    values = values_of(x, what)
    if not np.issubdtype(values.dtype, np.floating):
        raise VMValueError(f"{what}: wanted floats, got {values.dtype}")
    return values


@library("det")
def det(x: Any, out: Any) -> None:
    """`det_values` into `out`."""
    fill(out, det_values(_float(x, "det: x")), "det")


@library("inv")
def inv(x: Any, out: Any) -> None:
    """`inv_values` into `out`."""
    fill(out, inv_values(_float(x, "inv: x")), "inv")


@library("dft")
def dft(x: Any, axis: Any, length: Any, inverse: Any, onesided: Any, out: Any) -> None:
    """`dft_values` into `out`."""
    values = _float(x, "dft: data")
    result = dft_values(
        values,
        axis_of(axis, values.ndim, "dft: axis"),
        integer(length, "dft: length"),
        bool(integer(inverse, "dft: inverse")),
        bool(integer(onesided, "dft: onesided")),
    )
    fill(out, result, "dft")
