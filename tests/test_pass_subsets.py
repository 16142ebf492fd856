"""Any optional passes left out, at any level: the ten graphs mean the same after every pass, down
to lowered loops.
"""

import random

import pytest
from fuzz.graphs import OPTIONAL
from fuzz.passes import QUICK
from ten_graphs import NAMES, small

from relaxvm import relax
from relaxvm.ir import PassContext
from relaxvm.pipeline import run_stages
from relaxvm.relax.transform import Normalize
from relaxvm.testing import CheckMeaning


def context(name, inputs, seed, limit):
    rng = random.Random(f"{name} {seed}")
    check = CheckMeaning(inputs, limit=limit)
    disabled = [n for n in OPTIONAL if rng.random() < 0.3]
    level = rng.randrange(5)
    return check, PassContext(opt_level=level, disabled_pass=disabled, instruments=[check])


@pytest.mark.parametrize("name", QUICK)
def test_passes_over_a_graph_keep_its_meaning(name):
    mod, inputs, _ = small(name)
    check, passes = context(name, inputs, 0, 120)
    with passes:
        run_stages(Normalize()(mod))
    assert {"LegalizeOps", "CallTIRRewrite", "VMShapeLower"} <= {*check.checked}
    assert check.unchecked == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_a_whole_build_keeps_the_meaning_of_a_graph(name, seed):
    mod, inputs, _ = small(name)
    check, passes = context(name, inputs, seed, 600)
    with passes:
        relax.build(mod, "llvm", exec_mode="bytecode")
    assert {"LegalizeOps", "CallTIRRewrite", "VMShapeLower", "FlattenBuffer"} <= {*check.checked}
