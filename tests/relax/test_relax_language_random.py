"""Random programs with branches, recursion, closures, tuples and symbolic shapes: the machine and
numpy agree, with passes and without.
"""

import contextlib
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from language_programs import PACKED, Writer, inputs, meaning
from relax_vm_helpers import build_interpreted

from relaxvm import relax
from relaxvm.base import VMValueError
from relaxvm.ir import PassContext
from relaxvm.runtime import VirtualMachine
from relaxvm.script import from_source

SEED = int(os.environ.get("RELAXVM_TEST_SEED", "0"))


def plain(value):
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def assert_same(got, wanted, text):
    got, wanted = plain(got), plain(wanted)
    assert type(got) is type(wanted), text
    if isinstance(wanted, tuple):
        assert len(got) == len(wanted), text
        for a, b in zip(got, wanted):
            assert_same(a, b, text)
    else:
        np.testing.assert_array_equal(got, wanted, err_msg=text)


def check(text, functions, seeds):
    """Each of `functions` (versions of `main`) gives what numpy gives. Where that fails they fail,
    or have left out what failed: it may be dead code.
    """
    numpy_main = meaning(text).main
    answered = 0
    for seed in seeds:
        args = inputs(seed)
        try:
            wanted = numpy_main(*args)
        except ValueError:
            for main in functions:
                with contextlib.suppress(VMValueError):
                    main(*args)
            continue
        answered += 1
        for main in functions:
            assert_same(main(*args), wanted, f"{text}\nseed {seed}")
    return answered


def machines(mod, levels, exec_modes=("bytecode", "compiled")):
    made = []
    for level in levels:
        with PassContext(opt_level=level):
            ex = relax.build(mod, "llvm")
        for mode in exec_modes:
            made.append(VirtualMachine(ex, functions=PACKED, exec_mode=mode)["main"])
    return made


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.integers(0, 10**6))
def test_interpreted_kernels_agree_with_numpy(seed):
    text = Writer(seed, size=5).program()
    mod = from_source(text)
    main = build_interpreted(mod, functions=PACKED)["main"]
    check(text, [main], range(seed, seed + 3))


def test_programs_are_not_all_refused():
    answered = sum(
        check(text, [], range(4)) for text in (Writer(s, size=5).program() for s in range(20))
    )
    assert answered > 30


@pytest.mark.parametrize("seed", range(3))
def test_compiled_kernels_agree_with_numpy_with_and_without_passes(seed):
    text = Writer(seed + 1000, size=4).program()
    mains = machines(from_source(text), (0, 2))
    check(text, mains, range(4))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + 60))
def test_long_random_programs_agree_in_every_way_of_running_them(seed):
    text = Writer(seed, size=8).program()
    mod = from_source(text)
    mains = [*machines(mod, (0, 1, 2, 4))]
    mains.append(build_interpreted(mod, functions=PACKED)["main"])
    check(text, mains, range(8))
