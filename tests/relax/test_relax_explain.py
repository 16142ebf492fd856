"""What a build tells about its decisions: mod.explain(), ex.explain(), ctx.report."""

import inspect

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import config
from relaxvm.ir import PassContext
from relaxvm.runtime import load
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@I.ir_module
class Model:
    @R.function(private=True)
    def twice(x: R.Tensor((64, 96), "float32")) -> R.Tensor((64, 96), "float32"):
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        return y

    @R.function(private=True)
    def count(n: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
        if R.less(n, R.const(1)):
            m = n
        else:
            m = Model.count(R.subtract(n, R.const(1)))
        return m

    @R.function
    def main(x: R.Tensor((64, 128), "float32"), w: R.Tensor((128, 96), "float32")):
        with R.dataflow():
            product = R.matmul(x, w)
            total = R.add(product, R.const(1.0))
            table = R.add(R.const(np.ones((4, 4), "float32")), R.const(2.0))
            big = R.broadcast_to(R.const(1.0), (1024, 1024))
            again = R.matmul(x, w)
            difference = R.subtract(total, again)
            doubled = Model.twice(difference)
            R.output(doubled, table, big)
        n = Model.count(R.const(3))
        return doubled, table, big, n


def line_of(text):
    lines, first = inspect.getsourcelines(inspect.getmodule(line_of))
    return next(i for i, line in enumerate(lines, first or 1) if text in line)


def lines(report):
    return [f"{d.function} {d}" for d in report]


@pytest.fixture(scope="module")
def told():
    # As one kernel there is less to decide of these few.
    config = {"relax.FoldConstant.max_bytes": 1 << 10}
    with PassContext(opt_level=3, disabled_pass=["FuseOps"], config=config) as ctx:
        ex = relax.build(Model, "llvm")
        again = relax.build(Model, "llvm")
        before = Model.explain()
    return ex, again, before, ctx


@pytest.mark.parametrize(
    "wanted",
    [
        "main InlinePrivateFunctions: twice at {}:{doubled = Model.} inlined",
        " InlinePrivateFunctions: count at {}:{def count} not inlined: it calls itself",
        "main FoldConstant: add at {}:{table = R.add} computed while compiling",
        "main FoldConstant: broadcast_to at {}:{big = R.} not computed while compiling: 4,194,304 "
        "bytes, and relax.FoldConstant.max_bytes and its arguments are 1,024",
        "main EliminateCommonSubexpr: matmul at {}:{again = R.} not computed again: it is product "
        "at :{product = R.}",
        "main StaticPlanBlockMemory: add at {}:{total = R.add} not written over its input matmul "
        "at :{product = R.} + :{again = R.}: that is read again",
        "main StaticPlanBlockMemory: subtract1 at {}:{difference = R.} written over its input add "
        "at :{total = R.add}",
        "matmul DefaultSchedule: block matmul taken by Tile(",
    ],
)
def test_decisions_name_pass_function_line_and_reason(told, wanted):
    file = __file__.rpartition("/")[2]
    parts = wanted.replace("{}", file).split("{")
    text = parts[0] + "".join(
        str(line_of(part.split("}")[0])) + part.partition("}")[2] for part in parts[1:]
    )
    for report in (told[0].explain(), told[2]):
        assert any(line.startswith(text) for line in lines(report)), str(report)


def test_kernels_taken_from_the_disk_tell_what_was_decided_of_them(told):
    assert config.cache_enabled()
    assert lines(told[1].explain()) == lines(told[0].explain())


def test_explaining_before_and_after_building_is_the_same(told):
    assert sorted(lines(told[2])) == sorted(lines(told[0].explain()))


def test_the_context_has_it_too_for_each_build(told):
    ex, again, _, ctx = told
    assert lines(ctx.report) == lines(ex.explain()) + lines(again.explain())


def test_a_build_without_a_context_is_told():
    assert "FoldConstant: add at " in str(relax.build(Model, "llvm").explain())


def test_a_loaded_program_has_nothing_to_tell(told):
    assert str(load(told[0].to_bytes()).explain()) == "no pass had anything to decide"


def test_constants_brought_into_a_layout_are_told():
    @I.ir_module
    class Product:
        @R.function
        def main(x: R.Tensor((64, 128), "float32")):
            return R.matmul(x, R.const(np.ones((128, 96), "float32")))

    report = Product.explain()
    assert str(report.of("PackConstants")) == (
        "matmul\n  PackConstants: argument 1 packed into the layout that the kernel reads"
    )
    with PassContext(disabled_pass=["PackConstants"]):
        assert not Product.explain().of("PackConstants")


def test_mixed_precision_says_what_stays_in_float32():
    @I.ir_module
    class Attend:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")):
            with R.dataflow():
                product = R.matmul(x, w)
                positive = R.nn.relu(product)
                soft = R.nn.softmax(positive)
                large = R.matmul(x, R.const(np.full((8, 8), 1e9, "float32")))
                R.output(soft, large)
            return soft, large

    with PassContext() as ctx:
        relax.transform.ToMixedPrecision()(Attend)
    said = [(d.done, d.text.split(" at ")[0], d.text.partition(":")[2]) for d in ctx.report]
    assert [s[:2] for s in said] == [
        (True, "matmul"),
        (True, "relu"),
        (False, "softmax"),
        (False, "matmul"),
    ]
    assert ctx.report[2].text.endswith("stays in float32: float16 would lose digits or range")
    assert ctx.report[3].text.endswith("stays in float32: a constant is beyond float16")
