"""Decisions that passes tell."""

import asyncio
import threading

import pytest

from relaxvm.base import PassError, Report, Span, collected, decided, declined, in_function
from relaxvm.ir import GlobalVar, IRModule, PassContext, Var, const
from relaxvm.ir.transform import Sequential, module_pass, prim_func_pass
from relaxvm.tir.stmt import Evaluate, PrimFunc


def module():
    return IRModule({"f": PrimFunc([], Evaluate(const(1) + Var("x")))})


@prim_func_pass(opt_level=0)
def Choose(fn, mod, ctx, *, about=Var("n"), why="it is late"):
    decided("{} kept in {} bytes", about, 4096)
    declined("{} not moved: {}", about, why)
    return fn


def test_a_context_tells_what_passes_under_it_decided():
    with PassContext() as ctx:
        Choose()(module())
        Sequential([Choose(why="it is {early}")])(module())
    assert [(d.pass_name, d.function, d.done) for d in ctx.report] == [
        ("Choose", "f", True),
        ("Choose", "f", False),
    ] * 2
    assert ctx.report[0].text == "n kept in 4,096 bytes"
    assert ctx.report[3].text == "n not moved: it is {early}"
    assert str(ctx.report) == (
        "f\n  Choose: n kept in 4,096 bytes (2 times)\n  Choose: n not moved: it is late\n"
        "  Choose: n not moved: it is {early}"
    )
    assert len(ctx.report.of("Choose")) == 4
    assert not ctx.report.of("Other")


def test_a_second_place_in_the_same_file_is_a_line_only():
    a = GlobalVar("conv2d", span=Span("/home/me/model.py", 12, 3))
    b = GlobalVar("add", span=Span("/home/me/model.py", 14, 3))
    c = GlobalVar("relu", span=Span.merge(b.span, Span("/home/me/other.py", 1)))
    with collected() as report:
        declined("{} not fused with {}: {} wants it", a, b, c)
    assert report[0].text == (
        "conv2d at model.py:12 not fused with add at :14: relu at :14 + other.py:1 wants it"
    )
    assert report[0].spans == (a.span, b.span, c.span)


def test_a_place_without_lines_is_its_name():
    with collected() as report:
        decided("{} folded", GlobalVar("w", span=Span(name="encoder/MatMul (onnx node 41)")))
    assert report[0].text == "w at encoder/MatMul (onnx node 41) folded"


def test_only_the_innermost_context_is_told():
    with PassContext() as outer:
        with PassContext() as inner:
            Choose()(module())
        assert len(inner.report) == 2
        Choose()(module())
    assert (len(outer.report), len(inner.report)) == (2, 2)


def test_nothing_is_kept_where_no_report_is_open():
    Choose()(module())
    assert not PassContext.current().report


def test_what_is_collected_is_told_outside_too_even_after_an_error():
    @module_pass(opt_level=0)
    def Fails(mod, ctx):
        decided("begun")
        raise PassError("late")

    with PassContext() as ctx:
        with pytest.raises(PassError), collected() as report:
            Fails()(module())
        assert len(report) == len(ctx.report) == 1


def test_threads_and_tasks_have_reports_of_their_own():
    def run(name, ctx):
        with ctx, in_function(name):
            for _ in range(100):
                decided("done")

    contexts = [PassContext() for _ in range(4)]
    threads = [threading.Thread(target=run, args=(str(i), c)) for i, c in enumerate(contexts)]
    with PassContext() as outer:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not outer.report
    for i, ctx in enumerate(contexts):
        assert [d.function for d in ctx.report] == [str(i)] * 100


def test_one_context_may_be_entered_by_tasks_that_interleave():
    ctx = PassContext(opt_level=3)

    async def task(pauses):
        with ctx:
            for _ in range(pauses):
                await asyncio.sleep(0)
            assert PassContext.current() is ctx
        assert PassContext.current() is not ctx

    async def both():
        await asyncio.gather(task(1), task(3), task(2))

    asyncio.run(both())


def test_a_context_whose_instrument_refuses_it_is_not_entered():
    class Refuses:
        def enter_pass_ctx(self):
            raise PassError("no")

    with pytest.raises(PassError, match="no"), PassContext(opt_level=0, instruments=[Refuses()]):
        pass
    assert PassContext.current().opt_level == 2


def test_an_empty_report_says_so():
    assert str(Report()) == "no pass had anything to decide"


def test_a_pass_may_tell_outside_of_any_function():
    @module_pass(opt_level=0, name="Whole")
    def whole(mod, ctx):
        decided("two functions became one")
        return mod

    with PassContext() as ctx:
        whole()(module())
    assert str(ctx.report) == "(the module)\n  Whole: two functions became one"
