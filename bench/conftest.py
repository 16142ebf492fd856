"""Benches compare in one run on one machine; read the ratios. Nothing here is a test."""

import pathlib
import sys

import figures
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "examples"))


@pytest.fixture(scope="session")
def digits():
    """(module, parameters, images) of the digits network, with made-up weights."""
    import numpy as np
    from digits_mlp import Digits

    rng = np.random.default_rng(0)

    def f(*shape):
        return (rng.standard_normal(shape) * 0.1).astype("float32")

    params = {"w0": f(128, 64), "b0": f(128), "w1": f(10, 128), "b1": f(10)}
    return Digits, params, rng.random((450, 64), dtype="float32")


def pytest_terminal_summary(terminalreporter):
    rows = figures.table()
    if rows:
        terminalreporter.section("figures and their targets (medians of this run)")
        for row in rows:
            terminalreporter.write_line(row)
