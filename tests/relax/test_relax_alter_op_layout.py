"""AlterOpLayout: calls say themselves which layouts they want."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from pass_cases import model

from relaxvm import relax
from relaxvm.base import PassError
from relaxvm.ir import PassContext, assert_structural_equal
from relaxvm.meaning import assert_same_meaning
from relaxvm.relax import op
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.transform import AlterOpLayout, ConvertLayout
from relaxvm.target import Target

CONV = "relax.nn.conv2d"
NHWC = ["NHWC", "OHWI"]
BLOCKED = ["NCHW4c", "OIHW4i4o"]


def net(*channels, dtype="float32"):
    """Convolutions from so many channels to so many, with what may stand between them."""

    def build(e, x, *weights):
        for k, w in enumerate(weights):
            x = e(op.nn.conv2d(x, w, padding=1))
            x = e(op.nn.relu(x)) if k % 2 else e(op.nn.max_pool2d(x, (2, 2), padding=1))
        return x

    sizes = [(o, i, 3, 3) for i, o in pairwise(channels)]
    return model(build, (2, channels[0], 6, 6), *sizes, dtype=dtype)


def altered(mod, layouts):
    before = mod.script()
    new = AlterOpLayout(layouts=layouts)(mod)
    assert mod.script() == before
    assert_well_formed(new)
    rng = np.random.default_rng(0)
    shapes = [[int(d) for d in p.struct_info.dims] for p in mod["main"].params]
    args = [rng.standard_normal(s).astype("float32") for s in shapes]
    assert_same_meaning(mod, new, args, "main", "reassociates")
    return new


def layouts_of(mod):
    """The data layouts of the convolutions of main, in order."""
    values = [b.value for b in mod["main"].body.blocks[0].bindings]
    calls = [v for v in values if isinstance(v, relax.Call) and v.op.name == CONV]
    return [c.attrs["data_layout"] for c in calls]


def test_a_table_of_layouts_is_what_convert_layout_takes():
    mod = net(4, 8, 4)
    new = altered(mod, {CONV: NHWC})
    assert_structural_equal(new, ConvertLayout({CONV: NHWC})(mod))
    assert_structural_equal(new, altered(mod, {"nn.conv2d": NHWC}))
    assert layouts_of(new) == ["NHWC", "NHWC"]


def test_each_call_may_want_its_own():
    def of(call):
        sizes = [int(d) for d in call.args[1].struct_info.dims[:2]]
        return BLOCKED if all(c % 4 == 0 for c in sizes) else None

    mod = net(3, 8, 4, 6)  # the last one follows
    for layouts in ({CONV: of}, lambda call: of(call) if call.op.name == CONV else None):
        assert layouts_of(altered(mod, layouts)) == ["NCHW", "NCHW4c", "NCHW4c"]


def test_the_table_of_the_current_target_counts():
    mod = net(4, 8)
    layouts = {"llvm": {CONV: NHWC}, "cpu": {CONV: BLOCKED}, CONV: BLOCKED, "c": {CONV: ["NCHW"]}}
    with Target("llvm"):
        assert layouts_of(altered(mod, layouts)) == ["NHWC"]
    del layouts["llvm"]
    with Target("llvm"):
        assert layouts_of(altered(mod, layouts)) == ["NCHW4c"]
    assert altered(mod, {"c": {CONV: NHWC}}) is mod


def test_what_nobody_wants_otherwise_stays():
    mod = net(4, 8)
    for layouts in ({}, {CONV: lambda call: None}, lambda call: None, {"nn.conv3d": ["NDHWC"]}):
        assert altered(mod, layouts) is mod


def test_it_runs_from_level_3_on_and_tells_what_it_did():
    info = AlterOpLayout(layouts={}).info
    assert info.opt_level == 3
    with PassContext() as ctx:
        altered(net(4, 8), {CONV: NHWC})
    assert ctx.report.of("AlterOpLayout")


@pytest.mark.parametrize(
    ("layouts", "message"),
    [
        (3, "got int"),
        ({CONV: ["NXYZ"]}, "NXYZ"),
        ({CONV: NHWC * 3}, "layouts"),
        ({CONV: lambda call: ["HELLO"]}, "HELLO"),
        (lambda call: NHWC, "OHWI"),
    ],
)
def test_what_is_no_layout_is_an_error(layouts, message):
    mod = net(4, 4, 4)
    before = mod.script()
    with pytest.raises(PassError, match=message):
        AlterOpLayout(layouts=layouts)(mod)
    assert mod.script() == before


def test_a_fault_of_the_callback_names_the_call():
    def of(call):
        raise KeyError("no")

    with pytest.raises(KeyError) as error:
        AlterOpLayout(layouts={CONV: of})(net(4, 8))
    assert any("relax.nn.conv2d" in note for note in error.value.__notes__)


@pytest.mark.parametrize("seed", range(12))
def test_random_wishes_mean_the_same(seed):
    rng = random.Random(seed)
    wishes = [
        None,
        NHWC,
        BLOCKED,
        ["HWNC", "HWIO"],
        ["NCHW", "OHWI"],
        ["default", "default", "NHWC"],
    ]
    mod = net(*(rng.choice((3, 4, 8)) for _ in range(rng.randint(2, 4))))
    altered(mod, {CONV: lambda call: rng.choice(wishes)})
