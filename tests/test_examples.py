"""The examples run, and check themselves."""

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("name", ["lstm_recursion", "beam_search"])
def test_example_runs_and_agrees_with_numpy(name, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert "as numpy" in capsys.readouterr().out


@pytest.mark.slow
def test_a_layer_is_tuned_and_swapped(capsys):
    program = runpy.run_path(str(EXAMPLES / "tune_and_swap.py"), run_name="example")
    program["main"](["--trials", "4"])
    assert "the results agree" in capsys.readouterr().out


def test_a_transformer_with_a_cache_agrees_with_numpy_at_every_step(capsys):
    program = runpy.run_path(str(EXAMPLES / "transformer_kv_cache.py"), run_name="example")
    program["main"](["--layers", "2", "--dim", "64", "--tokens", "4"])
    out = capsys.readouterr().out
    assert "all equal to numpy" in out
    assert "the caches hold 26 tokens" in out


@pytest.mark.slow
def test_the_digits_network_in_8_bits_is_as_accurate(capsys, monkeypatch):
    rng = np.random.default_rng(0)
    drawn = rng.random((10, 1, 8, 8)) < 0.5
    labels = rng.integers(0, 10, 640)
    images = (drawn[labels] * 0.6 + 0.4 * rng.random((640, 1, 8, 8))).astype("float32")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    program = runpy.run_path(str(EXAMPLES / "quantize_digits.py"), run_name="example")
    program["show"](images[:512], images[512:], labels[:512], labels[512:], epochs=2)
    out = capsys.readouterr().out
    assert "accuracy on 128 images: float32 1.0000, int8 1.0000" in out
    report = out.partition("and time ==\n\n")[2].splitlines()
    assert [line.split()[0] for line in report[:7]] == [
        *("layer", "lv", "lv4", "lv8", "lv14", "lv20", "all")
    ]


def test_a_resnet_from_an_onnx_file_is_built_saved_and_run(capsys):
    pytest.importorskip("onnx", reason="reads and writes ONNX models")
    runpy.run_path(str(EXAMPLES / "onnx_resnet.py"), run_name="example")["main"](["--side", "16"])
    out = capsys.readouterr().out
    assert "ready from its file" in out
    assert "most likely class" in out
    difference = out.partition("differs by ")[2]
    assert not difference or float(difference.split(",")[0]) < 1e-5
