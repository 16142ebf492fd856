"""Signals: dft, stft, mel_weight_matrix."""

from __future__ import annotations

import numpy as np
from op_table import Case, Sh, T, check, check_errors, check_gradients

from relaxvm import relax
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate

signal = R.signal

CASES = [
    *(
        Case(signal.dft, T(2, "k", parts), *length, inverse=inverse, rtol=2e-2, atol=1e-2)
        for parts in (1, 2)
        for length in ((), (Sh("n"),), (Sh(8),))
        for inverse in (False, True)
    ),
    *(
        Case(signal.dft, T(2, 5, 2, parts), *length, axis=1, onesided=True, rtol=2e-2, atol=1e-2)
        for parts in (1, 2)
        for length in ((), (Sh(4),), (Sh(9),))
    ),
    *(
        Case(
            signal.dft,
            T("k", 3, 2),
            *length,
            axis=0,
            onesided=True,
            inverse=True,
            rtol=2e-2,
            atol=1e-2,
        )
        for length in ((), (Sh(7),), (Sh(12),), (Sh(4),))
    ),
    Case(signal.dft, T("zero", 4, 2)),
    Case(signal.stft, T(2, 16, 1), T(6), frame_step=3, rtol=2e-2, atol=1e-2),
    Case(
        signal.stft,
        T(1, "k", 2),
        frame_step=2,
        frame_length=4,
        onesided=False,
        rtol=2e-2,
        atol=1e-2,
    ),
    Case(
        signal.mel_weight_matrix,
        num_mel_bins=4,
        dft_length=16,
        sample_rate=8192,
        lower=0.0,
        upper=4096.0,
        dtypes=("float32",),
    ),
]


def test_signals_mean_the_same_to_numpy_the_interpreter_and_llvm():
    check(CASES)


def test_gradients_of_signals():
    check_gradients(CASES)


def test_a_transform_there_and_back_is_where_it_was():
    x = relax.Var("x", relax.TensorStructInfo((3, 8, 2), "float64"))
    data = np.random.default_rng(0).standard_normal((3, 8, 2))
    there_and_back = signal.dft(signal.dft(x), inverse=True)
    np.testing.assert_allclose(evaluate(there_and_back, {x: data}), data, atol=1e-12)


def test_frames_of_a_signal_are_transformed_each_by_itself():
    x = relax.Var("x", relax.TensorStructInfo((1, 9, 1), "float64"))
    data = np.random.default_rng(1).standard_normal((1, 9, 1))
    got = evaluate(signal.stft(x, frame_step=2, frame_length=4), {x: data})
    want = np.stack([np.fft.rfft(data[0, k : k + 4, 0]) for k in (0, 2, 4)])
    np.testing.assert_allclose(got[0, ..., 0] + 1j * got[0, ..., 1], want, atol=1e-12)


def test_mistakes_are_told():
    x = relax.Var("x", relax.TensorStructInfo((1, 4, 2), "float32"))
    three = relax.Var("t", relax.TensorStructInfo((1, 4, 3), "float32"))
    ints = relax.Var("i", relax.TensorStructInfo((1, 4, 2), "int32"))
    check_errors(
        [
            (lambda: signal.dft(ints), "data: wanted a floating dtype, got int32"),
            (lambda: signal.dft(three), "data: wanted 1 or 2 numbers in the last axis, got 3"),
            (lambda: signal.dft(x, axis=-1), "axis: the last one holds real and imaginary parts"),
            (lambda: signal.dft(x, (0,)), "length: wanted 1 or more, got 0"),
            (lambda: signal.dft(x, (2, 2)), "length: wanted one number"),
            (lambda: signal.stft(x), "wanted a vector as window, or frame_length"),
            (lambda: signal.stft(x, frame_step=0, frame_length=2), "frame_step: wanted 1 or more"),
            (lambda: signal.stft(x, frame_length=5), "a frame of 5 is longer than data, of 4"),
            (
                lambda: signal.mel_weight_matrix(0, 16, 8192, 0.0, 4096.0),
                "wanted num_mel_bins, dft_length and sample_rate from 1",
            ),
            (
                lambda: signal.mel_weight_matrix(4, 16, 8192, 0.0, 5000.0),
                "wanted 0 <= lower < upper <= sample_rate / 2",
            ),
        ]
    )
