"""Every operator's kernels in C: right in the virtual machine, and clean under every warning and
sanitizer that the C compiler has.
"""

from __future__ import annotations

import numpy as np
import pytest
from c_library import (
    SANITIZERS,
    argument,
    calls_of,
    compile_library,
    needs_compiler,
    replay,
    sanitizer_runtimes,
)
from op_table import FAMILIES, _differences, _to_argument, cases_of, instances, module_of, thinned

from relaxvm import relax
from relaxvm.runtime import VirtualMachine, cpu

BATCH = 60
QUICK = ("elementwise_binary", "statistical", "index", "qdq")

pytestmark = needs_compiler


def check_in_c(todo, folder):
    """The results of instances of cases against their meaning; then the same calls of the kernels
    in a library that reports undefined behaviour and memory errors, with the same answers.
    """
    wrong = []
    for start in range(0, len(todo), BATCH):
        group = todo[start : start + BATCH]
        program = relax.build(module_of(group), "c -opt-level=0", exec_mode="bytecode")
        vm = VirtualMachine(program, cpu())
        noted = calls_of(vm)
        for i, one in enumerate(group):
            got = vm[f"f{i}"](*map(_to_argument, one.arrays, one.params))
            wrong += [f"{one.label}: {w}" for w in _differences(one, got, one.expected())]
        wrong += clean_differences(program, noted, str(folder / str(start)))
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:40])


def clean_differences(program, noted, folder):
    """What a sanitized library of the program's kernels gives otherwise than the calls noted."""
    if program.kernels is None:
        return
    infos = {info.name: info for info in program.kernels.infos}
    names = program.sources.entry_names
    made = [(name, before, after) for name, before, after in noted if name in infos]
    calls = []
    for name, before, _ in made:
        kinds = [str(p.dtype) for p in infos[name].params]
        values = [a[0] if isinstance(a, tuple) else a for a in before]
        calls.append((names[name], [argument(v, k) for v, k in zip(values, kinds)]))
    library = compile_library(program.sources.files, folder, "-O1", *SANITIZERS)
    for (name, _, after), (message, arrays) in zip(made, replay(library, calls, folder)):
        if message:
            yield f"{name}: {message}"
        for one, other in zip([a[0] for a in after if isinstance(a, tuple)], arrays):
            if one.tobytes() != other.tobytes() and not np.array_equal(one, other, equal_nan=True):
                yield f"{name}: another answer under sanitizers"


def test_some_operators_of_several_kinds(tmp_path):
    sanitizer_runtimes()
    todo = []
    for family in QUICK:
        cases = thinned(cases_of(f"test_relax_op_{family}"), 1 << 30)
        todo += instances(cases, in_turn=True)[:4]
    check_in_c(todo, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_operator_on_every_dtype(family, tmp_path):
    sanitizer_runtimes()
    check_in_c(instances(cases_of(family)), tmp_path)
