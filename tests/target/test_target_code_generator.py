"""Kinds of targets that somebody registers."""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import te
from relaxvm.base import CodegenError, PassError
from relaxvm.target import Target, code_generator, llvm
from relaxvm.target.target import KINDS


@pytest.fixture
def kind():
    yield "own"
    KINDS[:] = [name for name in KINDS if name != "own"]


def doubled():
    a = te.placeholder((4,), name="A")
    return te.create_prim_func([a, te.compute((4,), lambda i: a[i] * 2.0, name="B")])


def test_the_code_generator_gets_loops_target_and_schedule(kind):
    seen = []

    @code_generator(kind)
    def compile_own(loops, target, schedule):
        seen.append(([gv.name_hint for gv in loops], target, schedule))
        return llvm.compile_kernels(loops, "llvm", schedule)

    x, y = np.ones(4, "float32"), np.empty(4, "float32")
    tvm.build(doubled(), "own -num-cores=3")["main"](x, y)
    assert y.tolist() == [2.0] * 4
    ((names, target, schedule),) = seen
    assert names == ["main"]
    assert (target.kind.name, target.max_num_threads) == ("own", 3)
    assert schedule.info.name == "DefaultSchedule"


def test_the_newer_of_two_generators_is_asked(kind):
    for text in ("older", "newer"):

        @code_generator(kind)
        def compile_own(loops, target, schedule, text=text):
            raise CodegenError(text)

    with pytest.raises(CodegenError, match="newer"):
        tvm.build(doubled(), kind)
    assert Target.list_kinds().count(kind) == 1


def test_what_is_no_kernels_is_refused(kind):
    code_generator(kind)(lambda loops, target, schedule: b"code")
    with pytest.raises(CodegenError, match="the code generator of own gave bytes, not Kernels"):
        tvm.build(doubled(), kind)


@pytest.mark.parametrize("name", ["llvm", "", "two words", "a-b"])
def test_names_that_are_taken_or_none_are_refused(name):
    with pytest.raises(PassError, match="wanted a name that is free"):
        code_generator(name)
