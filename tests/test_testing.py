"""`relaxvm.testing`: fixtures in TVM's spelling."""

import re
import subprocess
import sys

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import testing

width, total = tvm.testing.parameters((2, 4), (3, 9), ids=["small", "large"])
name, letters = tvm.testing.parameters(("a", 1), ("bcd", 3))

FILE = """
import relaxvm as tvm

size = tvm.testing.parameter(1, 8)
kind = tvm.testing.parameter(by_dict={"half": "float16", "single": "float32"})
low, high = tvm.testing.parameters((0, 1), (2, 3), ids=["first", "second"])


def test_it(size, kind, low, high):
    print("got", size, kind, low, high)
"""


def test_fixtures_take_every_value_in_every_combination(tmp_path):
    file = tmp_path / "test_it.py"
    file.write_text(FILE)
    options = ["-s", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", "/dev/null"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-v", str(file)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout
    got = set(re.findall(r"got (.*)", done.stdout))
    pairs = ["0 1", "2 3"]
    assert got == {f"{s} {k} {p}" for s in (1, 8) for k in ("float16", "float32") for p in pairs}
    assert len(re.findall(r"(?:half|single)", done.stdout)) == 8
    assert "second" in done.stdout


def test_values_of_one_call_change_together(width, total, name, letters):
    assert total == width**2
    assert len(name) == letters


def test_sets_of_different_lengths_are_refused():
    with pytest.raises(TypeError, match="1, 2"):
        tvm.testing.parameters((1,), (1, 2))
    with pytest.raises(TypeError, match="not both"):
        tvm.testing.parameter(1, by_dict={"a": 1})


def test_enabled_says_what_can_run_here():
    assert tvm.runtime.enabled("llvm")
    assert tvm.runtime.enabled("llvm -mcpu=haswell")
    assert not tvm.runtime.enabled("cuda")
    assert not tvm.runtime.enabled("")


def test_to_dlpack_gives_a_capsule_of_the_same_memory():
    x = tvm.nd.array(np.arange(4, dtype="float32"))
    assert "dltensor" in repr(x.to_dlpack())


@testing.requires_llvm
@testing.requires_package("numpy")
@testing.parametrize_targets("llvm")
def test_marks_of_what_is_there_run_the_test(target, dev):
    assert target == "llvm" and dev == tvm.cpu()


@pytest.mark.parametrize("mark", [testing.requires_gpu, testing.requires_package("no_such_one")])
def test_marks_of_what_is_missing_skip_the_test(mark):
    def test():
        raise AssertionError

    reason = mark(test).pytestmark[0].kwargs["reason"]
    assert "a GPU" in reason or "no_such_one" in reason


@testing.parametrize_targets
def test_targets_need_not_be_named(target, dev):
    assert target == "llvm"


calls = []


@testing.fixture(cache_return_value=True)
def costly():
    calls.append(1)
    return len(calls)


@pytest.mark.parametrize("_", range(2))
def test_a_cached_fixture_is_made_once(costly, _):
    assert costly == 1
