"""Executables of old formats, made once and checked in, still load and compute the same."""

import pathlib
import sys

import numpy as np
import pytest

from relaxvm import runtime

sys.path.insert(0, str(pathlib.Path(__file__).parent / "golden"))
from kernels_program import FILE, FILE_2, FILE_3, build, double, expected

FILES = [FILE, FILE_2, FILE_3]
X = np.linspace(-2, 2, 20, dtype="float32").reshape(5, 4)


def check(ex):
    vm = runtime.VirtualMachine(ex, runtime.cpu(), functions={"golden.double": double})
    for squash in (True, False):
        for rows in (5, 1, 0):
            got = vm["main"](X[:rows], np.array(squash)).numpy()
            np.testing.assert_allclose(got, expected(X[:rows], squash), rtol=1e-5, atol=1e-6)
    return vm


@pytest.mark.parametrize("trust", [None, "portable"])
@pytest.mark.parametrize("file", FILES, ids=["version 1", "version 2", "version 3"])
def test_the_golden_files_are_rebuilt_and_run(file, trust):
    # Made on another machine: nobody vouches for the machine code in it, so it is not run.
    vm = check(runtime.load(str(file), trust=trust))
    assert vm.kernel_source == "rebuilt"
    assert vm.explain("main").mode == "compiled"


@pytest.mark.parametrize("file", FILES[1:], ids=["version 2", "version 3"])
def test_a_golden_file_written_again_is_the_same(file):
    # That of format 1 carries a signature.
    assert runtime.load(str(file)).to_bytes(sign=False) == file.read_bytes()


@pytest.mark.parametrize("file", FILES, ids=["version 1", "version 2", "version 3"])
def test_what_a_golden_file_needs_is_known_without_loading_it(file):
    assert "golden.double" in runtime.requirements(str(file))


def test_the_program_built_today_computes_the_same():
    check(build())
