"""Library functions of matrices and signals: `vm.library.det`, `vm.library.inv`, `vm.library.dft`.

What they compute is also what the operators of `relax.op.linalg` and `relax.op.signal` mean.
"""

from __future__ import annotations

import numpy as np

from ..base import VMValueError
from .library import Axis, numeric


def _matrices(x: np.ndarray, what: str) -> np.ndarray:
    """Square matrices in the dtype that LAPACK computes in."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2] or not np.issubdtype(x.dtype, np.floating):
        raise VMValueError(f"{what}: wanted square matrices of floats, got {x.shape} of {x.dtype}")
    return x if x.dtype == np.float64 else x.astype("float32")


@numeric("det", outs=1)
def det_values(x: np.ndarray) -> np.ndarray:
    """The determinants of the matrices [..., n, n]."""
    return np.asarray(np.linalg.det(_matrices(x, "det"))).astype(x.dtype)


@numeric("inv", outs=1)
def inv_values(x: np.ndarray) -> np.ndarray:
    """The inverses of the matrices [..., n, n]. Raises VMValueError if one has none."""
    try:
        return np.asarray(np.linalg.inv(_matrices(x, "inv"))).astype(x.dtype)
    except np.linalg.LinAlgError:
        raise VMValueError("inv: a matrix is singular, and has no inverse") from None


@numeric("dft", outs=1)
def dft_values(
    data: np.ndarray, axis: Axis, length: int, inverse: bool, onesided: bool
) -> np.ndarray:
    """The Fourier transform of `data` [..., 1 or 2], real and imaginary parts in the last axis,
    along `axis`, cut or filled with zeros to `length`. See `relax.op.signal.dft`.
    """
    x = data
    if not np.issubdtype(x.dtype, np.floating):
        raise VMValueError(f"dft: data: wanted floats, got {x.dtype}")
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
