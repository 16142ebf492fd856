"""Scalar operators in C on the values at which they go wrong: the cases of machine code's tests, in
one library, compiled with every warning an error and run under sanitizers.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import test_target_llvm_ops as cases
from c_library import SANITIZERS, argument, compile_library, needs_compiler, replay
from target_helpers import assert_same, elementwise, numpy_dtype

from relaxvm import tir
from relaxvm.ir import IRModule
from relaxvm.target import compile_kernels
from relaxvm.target.c.intrinsics import INTRINSIC_EMITTERS
from relaxvm.target.llvm.intrinsics import INTRINSIC_EMITTERS as OF_LLVM

# Sources alone: of the library, object code is made here.
ELSEWHERE = "c -mtriple=aarch64-linux-gnu"


class Collected:
    """Stands for `check` of the machine code's tests."""

    def __init__(self):
        self.all = []

    def __call__(self, inputs, outputs, ulps=None):
        self.all.append((inputs, outputs, ulps or {}))


def collect(monkeypatch, wanted):
    found = Collected()
    monkeypatch.setattr(cases, "check", found)
    for name, test in vars(cases).items():
        if not name.startswith("test_") or "machines" in name:
            continue
        marks = [m for m in getattr(test, "pytestmark", ()) if m.name == "parametrize"]
        for values in marks[0].args[1] if marks else [()]:
            values = values if isinstance(values, tuple) else (values,)
            if wanted(values):
                test(*values)
    return found.all


def check_in_c(found, folder):
    functions, calls, wanted = {}, [], []
    for i, (inputs, outputs, _) in enumerate(found):
        kinds = [(k, d) for k, (d, _) in inputs.items()]
        functions[f"f{i}"] = elementwise(kinds, list(outputs.values()), name=f"f{i}")
    sources = compile_kernels(IRModule(functions), ELSEWHERE).sources
    for i, (inputs, outputs, _) in enumerate(found):
        n = len(next(iter(inputs.values()))[1])
        args = [(values, d) for d, values in inputs.values()]
        args += [(np.zeros(n, numpy_dtype(d)), d) for d, _ in outputs.values()]
        passed = [argument(copy.copy(values), d) for values, d in args]
        calls.append((sources.entry_names[f"f{i}"], passed))
        tir.interpret(functions[f"f{i}"], *[values for values, _ in args])
        wanted.append([values for values, _ in args][len(inputs) :])
    library = compile_library(sources.files, str(folder), "-O1", *SANITIZERS)
    answers = replay(library, calls, str(folder))
    for (inputs, outputs, ulps), want, (message, got) in zip(found, wanted, answers):
        assert not message
        for (name, (d, _)), w, g in zip(outputs.items(), want, got[len(inputs) :]):
            assert_same(g, w, d, ulps.get(name, 0), f"{name} of {list(inputs.values())[0][0]}")


@needs_compiler
def test_some_operators_on_edge_values(monkeypatch, tmp_path):
    found = collect(monkeypatch, lambda values: values in (("int8",), ("uint64",), ("bfloat16",)))
    assert len(found) > 8
    check_in_c(found, tmp_path)


@needs_compiler
@pytest.mark.slow
def test_every_operator_on_edge_values(monkeypatch, tmp_path):
    found = collect(monkeypatch, lambda values: True)
    assert len(found) > 80
    check_in_c(found, tmp_path)


def test_every_intrinsic_that_has_machine_code_has_c():
    assert OF_LLVM.keys() <= INTRINSIC_EMITTERS.keys()
