"""The examples run, and check themselves."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("name", ["lstm_recursion", "beam_search"])
def test_example_runs_and_agrees_with_numpy(name, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert "as numpy" in capsys.readouterr().out


def test_a_transformer_with_a_cache_agrees_with_numpy_at_every_step(capsys):
    program = runpy.run_path(str(EXAMPLES / "transformer_kv_cache.py"), run_name="example")
    program["main"](["--layers", "2", "--dim", "64", "--tokens", "4"])
    out = capsys.readouterr().out
    assert "all equal to numpy" in out
    assert "the caches hold 26 tokens" in out
