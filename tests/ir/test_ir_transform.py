"""Passes, contexts and instruments."""

import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    registered_passes,
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


@pytest.mark.parametrize(
    "code",
    [
        "PassContext(disabled_pass=['FastMath'], required_pass=['SplitArgs'])",
        "p = Pass(PassInfo(0, 'first', ['DivToMul']), lambda mod, ctx: mod)\n"
        "Sequential([p])(IRModule({}))",
    ],
)
def test_passes_that_are_loaded_when_asked_for_are_known_by_their_names(code):
    head = "from relaxvm.ir import IRModule, PassContext\n"
    head += "from relaxvm.ir.transform import Pass, PassInfo, Sequential\n"
    subprocess.run([sys.executable, "-c", head + code], check=True)


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


# -- names of passes and keys of TVM's -------------------------------------------------------------


def test_a_name_that_no_pass_has_is_an_error_with_the_nearest():
    for options in ({"disabled_pass": ["FoldConstnt"]}, {"required_pass": ["tir.FoldConstnt"]}):
        ctx = PassContext(**options)
        with pytest.raises(PassError, match=r"no pass is named 'FoldConstnt'; did you mean FoldC"):
            ctx.__enter__()
    assert PassContext.current().opt_level == 2


def test_passes_of_ones_own_are_known_by_name_or_as_they_are_once_they_are_made():
    ctx = PassContext(disabled_pass=["Later"])
    with pytest.raises(PassError, match="a pass of one's own is known once it is made"):
        ctx.__enter__()

    @module_pass(opt_level=0, name="Later")
    def later(mod, ctx):
        raise AssertionError("it is disabled")

    for name in ("Later", later, later()):
        with PassContext(disabled_pass=[name]) as ctx:
            Sequential([later])(module())
        assert ctx.disabled_pass == ("Later",)


def test_names_may_have_the_room_that_tvm_gives_them():
    with PassContext(disabled_pass=["tir.Tag", "relax.FoldConstant", "tir.UnrollLoop"]) as ctx:
        assert ctx.disabled_pass == ("Tag", "FoldConstant", "UnrollLoop")
        assert tag(Sequential([Tag()])(module())) is None


def test_a_name_that_is_no_text_is_an_error():
    with pytest.raises(PassError, match="list of names, got 3 in it"):
        PassContext(required_pass=[3])


def test_passes_that_only_tvm_has_are_warned_of_once():
    name = "ThreadSync" if "ThreadSync" not in registered_passes() else "InjectDoubleBuffer"
    with pytest.warns(UserWarning, match=f"disabled_pass: '{name}' changes nothing: "):
        PassContext(disabled_pass=[name]).__enter__().__exit__()
    PassContext(disabled_pass=[name]).__enter__().__exit__()  # warnings are errors here


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"relay.fallback_device_type": 1}, "relax"),
        ({"relax.backend.use_cuda_graph": True}, "CPUs"),
        ({"tir.usmp.enable": True}, "StaticPlanBlockMemory"),
        ({"tir.disable_storage_rewrite": True}, "StorageRewrite"),
    ],
)
def test_keys_of_tvm_that_mean_nothing_here_give_one_warning(config, why):
    with pytest.warns(UserWarning, match=f"{next(iter(config))}' changes nothing: .*{why}") as seen:
        PassContext(config=config)
    assert seen[0].filename == __file__
    assert PassContext(config=config).config == {}


@given(
    st.integers(0, 4),
    st.lists(st.sampled_from(["Tag", "Loose", "Log"])),
    st.lists(st.sampled_from(["Tag", "Loose", "Log"])),
    st.sampled_from(["exact", "reassociates", "approximate"]),
)
def test_disabled_beats_numerics_beats_required_beats_level(level, required, disabled, numerics):
    ran = []

    class Watch(PassInstrument):
        def run_before_pass(self, mod, info):
            ran.append(info.name)

    passes = [log, Tag(), Loose()]
    with PassContext(level, required, disabled, [Watch()], {"numerics": numerics}):
        Sequential(passes)(module())
    wanted = [
        p.info.name
        for p in passes
        if p.info.name not in disabled
        and (numerics == "approximate" or p.info.numerics == "exact")
        and (p.info.name in required or level >= p.info.opt_level)
    ]
    assert ran == ["sequential", *wanted]
