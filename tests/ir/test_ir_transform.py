"""Passes, contexts and instruments."""

import subprocess
import sys
import threading

import pytest

from relaxvm.base import PassError, VerifyError
from relaxvm.ir import IRModule, Var, const
from relaxvm.ir.instrument import (
    PassInstrument,
    PassTimingInstrument,
    VerifyAfterAll,
    pass_instrument,
)
from relaxvm.ir.transform import (
    PassContext,
    Sequential,
    function_pass,
    module_pass,
    prim_func_pass,
    register_config,
)
from relaxvm.tir.stmt import Evaluate, PrimFunc

register_config("test.number", int, 3, "a number for tests")


def module():
    return IRModule({"f": PrimFunc([], Evaluate(const(1) + Var("x")))})


@prim_func_pass(opt_level=1)
def Tag(fn, mod, ctx, *, value=1):
    """Set an attribute."""
    return fn.with_attr("tag", value)


@prim_func_pass(opt_level=3, numerics="approximate")
def Loose(fn, mod, ctx):
    return fn.with_attr("loose", True)


@module_pass(opt_level=0, name="Log")
def log(mod, ctx):
    return mod


@function_pass(opt_level=0)
class NeverRuns:
    def transform_function(self, func, mod, ctx):
        raise AssertionError("there is no graph function here")


def tag(mod):
    return mod["f"].attrs.get("tag")


def test_a_decorated_function_runs_and_takes_options():
    mod = module()
    assert tag(Tag(mod)) == 1
    assert tag(Tag()(mod)) == 1
    assert tag(Tag(value=5)(mod)) == 5
    assert tag(Tag(7)(mod)) == 7
    assert tag(mod) is None
    assert repr(Tag(value=5)) == "Tag{value=5}"
    assert Tag.__doc__ == "Set an attribute."


def test_a_sequence_may_run_a_pass_from_another_level_on():
    later = Sequential([Tag(value=5).at_level(3)])
    assert tag(later(module())) is None
    assert later.passes[0].info.name == "Tag" and Tag.info.opt_level == 1
    with PassContext(opt_level=3):
        assert tag(later(module())) == 5
    with PassContext(required_pass=["Tag"]):
        assert tag(later(module())) == 5


def test_wrong_options_are_named():
    with pytest.raises(PassError, match="did you mean value"):
        Tag(valu=3)
    with pytest.raises(PassError, match="takes 1 options"):
        Tag(1, 2)
    with pytest.raises(PassError, match="options go first"):
        Tag(module(), value=2)


def test_a_required_option_must_be_given():
    @prim_func_pass(opt_level=0)
    def Needs(fn, mod, ctx, name):
        return fn.with_attr("name", name)

    with pytest.raises(PassError, match="Needs needs name"):
        Needs(module())
    assert Needs("x")(module())["f"].attrs["name"] == "x"


def test_a_class_becomes_a_pass_class():
    assert NeverRuns()(module()) is not None

    @module_pass(opt_level=2)
    class Add:
        def __init__(self, k):
            self.k = k

        def transform_module(self, mod, ctx):
            return mod.with_attr("k", self.k)

    p = Add(4)
    assert p(module()).attrs["k"] == 4
    assert p.info.name == "Add"


def test_a_pass_that_changes_nothing_returns_the_same_module():
    @prim_func_pass(opt_level=0)
    def Same(fn, mod, ctx):
        return fn

    mod = module()
    assert Same(mod) is mod


def test_a_function_pass_may_remove_functions_but_not_return_rubbish():
    @prim_func_pass(opt_level=0)
    def Drop(fn, mod, ctx):
        return None

    @prim_func_pass(opt_level=0)
    def Rubbish(fn, mod, ctx):
        return 3

    assert len(Drop(module())) == 0
    with pytest.raises(PassError, match="returns a function"):
        Rubbish(module())


def test_sequential_obeys_level_required_and_disabled():
    s = Sequential([log, Tag(value=9)])
    assert tag(s(module())) == 9
    with PassContext(opt_level=0):
        assert tag(s(module())) is None
        assert tag(Tag(module())) == 1  # asked for directly
    with PassContext(opt_level=0, required_pass=["Tag"]):
        assert tag(s(module())) == 9
    with PassContext(opt_level=0, required_pass=["Tag"], disabled_pass=["Tag"]):
        assert tag(s(module())) is None


def test_numerics_labels_are_enforced():
    s = Sequential([Loose()])
    with PassContext(opt_level=3):
        assert "loose" in s(module())["f"].attrs
    with PassContext(opt_level=3, config={"numerics": "exact"}):
        assert "loose" not in s(module())["f"].attrs


def test_required_passes_run_first():
    seen = []

    @module_pass(opt_level=0, required=["Tag"])
    def After(mod, ctx):
        seen.append(tag(mod))
        return mod

    Sequential([After])(module())
    assert seen == [1]


def test_config_keys_and_types_are_checked():
    with pytest.raises(PassError, match="did you mean test.number"):
        PassContext(config={"test.numbr": 1})
    with pytest.raises(PassError, match="is a int"):
        PassContext(config={"test.number": "x"})
    with pytest.raises(PassError, match="is a int"):
        PassContext(config={"test.number": True})
    with pytest.raises(PassError):
        PassContext(config={"numerics": "sloppy"})
    assert PassContext(config={"test.number": 8}).get("test.number") == 8
    assert PassContext().get("test.number") == 3
    assert "test.number" in PassContext.list_configs()
    with pytest.raises(PassError, match="list of names"):
        PassContext(disabled_pass="Tag")


def test_configs_are_listed_before_the_passes_that_declare_them_are_loaded():
    code = (
        "from relaxvm.ir import PassContext; names = PassContext.list_configs()\n"
        "assert {'tir.noalias', 'relax.FoldConstant.max_bytes'} <= {*names}, [*names]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_each_thread_has_its_own_context():
    seen = []
    with PassContext(opt_level=4):
        t = threading.Thread(target=lambda: seen.append(PassContext.current().opt_level))
        t.start()
        t.join()
        assert PassContext.current().opt_level == 4
        with PassContext(opt_level=1):
            assert PassContext.current().opt_level == 1
        assert PassContext.current().opt_level == 4
    assert seen == [2]
    assert PassContext.current().opt_level == 2


def test_instruments_see_every_event_and_can_skip():
    events = []

    @pass_instrument
    class Watch:
        def enter_pass_ctx(self):
            events.append("enter")

        def exit_pass_ctx(self):
            events.append("exit")

        def should_run(self, mod, info):
            return info.name != "Log"

        def run_before_pass(self, mod, info):
            events.append(f"before {info.name}")

        def run_after_pass(self, mod, info):
            events.append(f"after {info.name}")

    with PassContext(instruments=[Watch()]):
        Sequential([log, Tag()], name="all")(module())
    assert events == ["enter", "before all", "before Tag", "after Tag", "after all", "exit"]


def test_timing_shows_nested_passes():
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        Sequential([Tag()], name="all")(module())
        lines = timing.render().splitlines()
    assert lines[0].startswith("all: ")
    assert lines[1].startswith("  Tag: ")
    assert timing.render() == ""


def test_verifying_names_the_pass_at_fault():
    def verify(mod):
        if tag(mod) == 5:
            raise VerifyError("five is bad")

    with PassContext(instruments=[VerifyAfterAll(verify)]):
        Tag(value=4)(module())
        with pytest.raises(VerifyError) as caught:
            Tag(value=5)(module())
    assert any("after pass Tag" in note for note in caught.value.__notes__)


def test_errors_name_the_pass_and_the_function():
    @prim_func_pass(opt_level=0)
    def Broken(fn, mod, ctx):
        raise VerifyError("no")

    with pytest.raises(VerifyError) as caught:
        Broken(module())
    notes = " ".join(caught.value.__notes__)
    assert "Broken" in notes
    assert "f" in notes


def test_a_failing_pass_leaves_the_context_as_it_was():
    with pytest.raises(RuntimeError), PassContext(opt_level=0):
        raise RuntimeError
    assert PassContext.current().opt_level == 2


def test_instruments_can_be_replaced_inside_a_context():
    class Count(PassInstrument):
        n = 0

        def run_after_pass(self, mod, info):
            self.n += 1

    first, second = Count(), Count()
    with PassContext(instruments=[first]) as ctx:
        Tag(module())
        ctx.override_instruments([second])
        Tag(module())
    assert (first.n, second.n) == (1, 1)


def test_sequential_wants_passes():
    with pytest.raises(PassError, match="wanted passes"):
        Sequential([lambda m: m])


def test_decorators_need_a_level():
    with pytest.raises(PassError, match="opt_level"):
        module_pass(lambda m, c: m)
