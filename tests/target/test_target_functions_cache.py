"""The compiled functions of programs on disk, and those compiled quickly."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import VMTypeError
from relaxvm.runtime import VirtualMachine
from relaxvm.script import from_source
from relaxvm.target.llvm import build

X = np.ones(4, "float32")


PROGRAM = """
from relaxvm.script import ir as I, relax as R, tir as T
@I.ir_module
class M:
    @R.function
    def main(
        x: R.Tensor(({size},), "float32"), w: R.Tensor(({size},), "float32")
    ) -> R.Tensor(({size},), "float32"):
        with R.dataflow():
            y = R.add(x, w)
            R.output(y)
        return y
    @R.function
    def number(n: R.Prim("int64")) -> R.Prim("int64"):
        return R.prim_value({number})
"""


def program(size=4, constant=1.0, number=7, step=0.0):
    """The executable of `main`, which adds `constant` to the first element and `step` more to each
    that follows (0: a number in the kernel, else an array beside it), and `number`.
    """
    mod = from_source(PROGRAM.format(size=size, number=number))
    return relax.build(mod, params={"w": constant + step * np.arange(size, dtype="float32")})


def test_what_is_on_disk_is_not_translated_again(cache, monkeypatch):
    first = program(step=1.0)

    def never(*args, **options):
        raise AssertionError("called")

    for name in ("compile_functions", "compile_glue"):
        monkeypatch.setattr(build, name, never)
    assert program(step=1.0).to_bytes(sign=False) == first.to_bytes(sign=False)
    # What tensors hold is no matter of the code, all else is.
    other = VirtualMachine(program(constant=2.0, step=1.0))
    assert other["main"](X).numpy().tolist() == [3.0, 4.0, 5.0, 6.0]
    for other in ({"number": 8}, {"size": 5}):
        with pytest.raises(AssertionError, match="called"):
            program(step=1.0, **other)


def test_programs_that_differ_share_no_code(cache):
    for _ in range(2):
        for size, constant, number in ((4, 1.0, 7), (4, 2.0, 7), (4, 1.0, 8), (5, 1.0, 7)):
            vm = VirtualMachine(program(size, constant, number))
            x = np.ones(size, "float32")
            assert vm["main"](x).numpy().tolist() == [1 + constant] * size
            assert vm["number"](0) == number


def test_kernels_that_differ_are_not_called_by_the_same_code(cache, monkeypatch):
    # The same bytecode and names; only what the kernels are differs.
    for sign in ("add", "subtract", "add"):
        with monkeypatch.context() as patch:
            text = PROGRAM.replace("R.add(", f"R.{sign}(")
            patch.setattr(sys.modules[__name__], "PROGRAM", text)
            made = VirtualMachine(program())["main"](X).numpy().tolist()
        assert made == [2.0 if sign == "add" else 0.0] * 4


@pytest.mark.parametrize("how", ["garbage", "cut", "empty"])
def test_damaged_entries_are_translated_again(cache, how):
    first = program()
    for file in (cache / "objects").iterdir():
        whole = file.read_bytes()
        file.write_bytes({"garbage": b"\xff" * len(whole), "cut": whole[:-9], "empty": b""}[how])
    assert program().to_bytes(sign=False) == first.to_bytes(sign=False)


@pytest.mark.parametrize("size", [1, 200])
def test_code_made_well_and_code_made_fast_do_the_same(monkeypatch, size):
    # Large programs are compiled quickly.
    monkeypatch.setattr("relaxvm.target.llvm.machine._LARGE_GLUE", 1 if size == 200 else 1 << 30)
    vm = VirtualMachine(program(size))
    assert vm["main"](np.ones(size, "float32")).numpy().tolist() == [2.0] * size
    assert vm["number"](0) == 7
    with pytest.raises(VMTypeError):
        vm["main"](np.ones(size, "int32"))
    with pytest.raises(ValueError, match="main"):
        vm["main"](np.ones(size + 1, "float32"))
