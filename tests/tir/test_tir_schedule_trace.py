"""Traces, random variables, sampling, copies, several functions, messages."""

import json

import numpy as np
import pytest
from schedule_helpers import chain, check_same, matmul

import relaxvm as tvm
from relaxvm import tir
from relaxvm.ir import IRModule, Range, Var, assert_structural_equal, const, substitute
from relaxvm.tir import IndexMap, Schedule, ScheduleError
from relaxvm.tir.schedule import PRIMITIVES, BlockRV, LoopRV, ScheduleDebugMask, Trace


def tiled(fn=None):
    sch = Schedule(fn or matmul(8, 8, 8), seed=1)
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    i0, i1 = sch.split(i, sch.sample_perfect_tile(i, 2, 4))
    sch.reorder(i0, j, k, i1)
    sch.annotate(i0, "pragma_auto_unroll_max_step", sch.sample_categorical([0, 16], [0.5, 0.5]))
    sch.transform_layout(c, ("write", 0), lambda a, b: (b, a))
    sch.parallel(i0)
    return sch


def test_a_trace_is_saved_and_replayed():
    sch = tiled()
    text = json.dumps(sch.trace.as_json())
    again = Schedule(matmul(8, 8, 8))
    Trace.apply_json_to_schedule(text, again)
    assert_structural_equal(again.mod, sch.mod)
    assert again.trace.as_python() == sch.trace.as_python()
    third = Schedule(matmul(8, 8, 8))
    sch.trace.apply_to_schedule(third)
    assert_structural_equal(third.mod, sch.mod)


def test_a_trace_printed_as_python_makes_the_same():
    sch = Schedule(matmul(8, 8, 8), seed=1)
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    a, b = sch.sample_perfect_tile(i, 2, 4)
    i0, i1 = sch.split(i, [a, b])
    sch.split(j, [None, b * 2])
    sch.reorder(k, i1)
    sch.annotate(i0, "x", {"y": [1, b]})
    scope: dict = {}
    exec(str(sch.trace), {"tir": tir}, scope)
    again = Schedule(matmul(8, 8, 8))
    scope["apply_trace"](again)
    assert_structural_equal(again.mod, sch.mod)


def test_the_text_of_a_trace():
    sch = Schedule(chain())
    b = sch.get_block("B")
    i, _ = sch.get_loops(b)
    sch.split(i, [None, 2])
    sch.compute_inline("C")
    assert sch.trace.as_python() == [
        "b0 = sch.get_block(name='B', func_name='main')",
        "l1, l2 = sch.get_loops(block=b0)",
        "l3, l4 = sch.split(loop=l1, factors=[None, 2], preserve_unit_iters=True, "
        "disable_predication=False)",
        "b5 = sch.get_block(name='C', func_name='main')",
        "sch.compute_inline(block=b5)",
    ]


def test_decisions_can_be_changed():
    sch = tiled()
    inst = next(i for i in sch.trace.insts if i.name == "sample_perfect_tile")
    assert np.prod(sch.trace.get_decision(inst)) == 8
    other = sch.trace.with_decision(inst, [2, 4])
    again = Schedule(matmul(8, 8, 8))
    other.apply_to_schedule(again)
    assert [int(again.get(o)) for o in again.trace.insts[2].outputs] == [2, 4]
    assert inst in sch.trace.decisions
    provided = Schedule(matmul(8, 8, 8))
    sch.trace.apply_to_schedule(
        provided, decision_provider=lambda inst, inputs, attrs, old: [2, 4] if inputs else old
    )
    assert_structural_equal(provided.mod, again.mod)


def test_a_decision_for_another_extent_is_fitted():
    sch = Schedule(matmul(8, 8, 8))
    i = sch.get_loops(sch.get_block("C"))[0]
    factors = sch.sample_perfect_tile(i, 3, 16, decision=[1, 3, 5])
    assert np.prod([sch.get(f) for f in factors]) == 8


def test_simplified_drops_what_nobody_uses():
    sch = Schedule(chain())
    sch.get_consumers(sch.get_block("B"))
    sch.get_loops(sch.get_block("D"))
    sch.compute_inline(sch.get_block("C"))
    assert [i.name for i in sch.trace.simplified().insts] == ["get_block", "compute_inline"]


def test_postprocessing_is_left_out():
    sch = Schedule(chain())
    sch.compute_inline(sch.get_block("C"))
    sch.enter_postproc()
    sch.compute_inline(sch.get_block("B"))
    assert len(sch.trace.without_postproc().insts) == 2
    again = Schedule(chain())
    sch.trace.apply_to_schedule(again, remove_postproc=True)
    assert len(again.get_child_blocks(again.get_block("root"))) == 2


@pytest.mark.parametrize(
    "data",
    [
        "[]",
        "[1, 2]",
        '[[["nothing", {}, []]], []]',
        '[[["get_block", {"x": 1}, ["b0"]]], []]',
        '[[["parallel", {"loop": "l9"}, []]], []]',
        '[[["get_block", {"name": "C"}, []]], []]',
    ],
)
def test_bad_traces_are_refused(data):
    with pytest.raises(ScheduleError):
        Trace.apply_json_to_schedule(data, Schedule(matmul()))


def test_sampling_follows_the_seed():
    def factors(seed):
        sch = Schedule(matmul(64, 8, 8), seed=seed)
        i = sch.get_loops(sch.get_block("C"))[0]
        return [sch.get(f) for f in sch.sample_perfect_tile(i, 4)]

    assert factors(3) == factors(3)
    assert len({tuple(factors(s)) for s in range(20)}) > 5
    sch = Schedule(matmul(), seed=1)
    first = sch.fork_seed()
    sch.seed(1)
    assert sch.fork_seed() == first


def test_sampled_numbers_are_expressions():
    sch = Schedule(matmul(8, 8, 8), seed=2)
    i, j, _ = sch.get_loops(sch.get_block("C"))
    v = sch.sample_categorical([2, 4], [0.5, 0.5])
    assert sch.get(v * 2) == 2 * sch.get(v)
    sch.split(i, [None, v])
    sch.split(j, [None, v * 2])
    check_same(matmul(8, 8, 8), sch.mod["main"])


def test_sample_compute_location():
    sch = Schedule(chain(), seed=0)
    c = sch.get_block("C")
    assert sch.get(sch.sample_compute_location(c, decision=-1)) == "root"
    inline = sch.sample_compute_location(c, decision=-2)
    assert sch.get(inline) == "inline"
    with pytest.raises(ScheduleError, match="a drawn place that is none: inline"):
        sch.unroll(inline)
    loop = sch.sample_compute_location(c, decision=1)
    sch.compute_at(c, loop)
    sch.compute_at(sch.get_block("B"), sch.sample_compute_location(sch.get_block("B")))
    check_same(chain(), sch.mod["main"])
    again = Schedule(chain())
    again.trace.apply_json_to_schedule(sch.trace.as_json(), again)
    assert_structural_equal(again.mod, sch.mod)


def test_places_are_drawn_anew_when_a_trace_is_replayed():
    sch = Schedule(chain())
    c = sch.get_block("C")
    sch.compute_at(c, sch.sample_compute_location(c, decision=-1))
    sch.get_block("root")
    drawn = next(i for i in sch.trace.insts if i.kind.random)
    moved = Schedule(chain())
    sch.trace.with_decision(drawn, 1).apply_to_schedule(moved)
    around = [moved.get(moved.get_loops(moved.get_block(name))[0]) for name in "CD"]
    assert around[0] is around[1]
    data = sch.trace.as_json()
    data[0][1][2], data[0][2][1]["loop"] = ["root"], "root"  # as older traces have it
    again = Schedule(chain())
    again.trace.apply_json_to_schedule(data, again)
    assert_structural_equal(again.mod, sch.mod)


# -- random variables ------------------------------------------------------------------------------


def test_random_variables_stay_valid():
    sch = Schedule(chain())
    b, c = sch.get_block("B"), sch.get_block("C")
    i, j = sch.get_loops(c)
    assert isinstance(b, BlockRV)
    assert isinstance(i, LoopRV)
    sch.parallel(i)
    sch.cache_read(c, "A", "local")
    assert sch.get(b).name_hint == "B"
    assert sch.get(j).loop_var.name == "j"
    assert sch.get_sref(i).stmt is sch.get(i)
    sch.split(i, [None, 2])
    with pytest.raises(ScheduleError, match="loop i is no longer in the function"):
        sch.get(i)
    sch.remove_rv(b)
    with pytest.raises(ScheduleError, match="wanted a random variable of this schedule"):
        sch.get(b)


def test_a_copy_goes_its_own_way():
    sch = Schedule(chain())
    b = sch.get_block("B")
    other = sch.copy()
    i, _ = other.get_loops(b)
    other.parallel(i)
    assert "parallel" not in sch.mod["main"].script()
    assert "parallel" in other.mod["main"].script()
    assert len(sch.trace.insts) == 1
    assert sch.get(b).name_hint == "B"


def test_several_functions():
    mod = IRModule({"f": chain(), "g": matmul()})
    sch = Schedule(mod)
    with pytest.raises(ScheduleError, match="which function"):
        sch.get_block("B")
    b = sch.get_block("B", func_name="f")
    sch.work_on("g")
    assert sch.func_working_on.name_hint == "g"
    c = sch.get_block("C")
    sch.compute_inline(b)
    sch.parallel(sch.get_loops(c)[0])
    with pytest.raises(ScheduleError, match="no loop function is named 'h'"):
        sch.work_on("h")
    assert sch.mod["f"] is not mod["f"]
    check_same(mod["f"], sch.mod["f"])
    check_same(mod["g"], sch.mod["g"])


def test_looking_around():
    sch = Schedule(chain())
    b, c, d = (sch.get_block(n) for n in "BCD")

    def names(found):
        return [sch.get(x).name_hint for x in found]

    assert names(sch.get_consumers(b)) == ["C", "D"]
    assert names(sch.get_producers(d)) == ["B", "C"]
    assert names(sch.get_output_blocks("root")) == ["D"]
    assert names(sch.get_child_blocks("root")) == ["B", "C", "D"]
    assert names(sch.get_child_blocks(sch.get_loops(c)[0])) == ["C"]
    assert sch.get_loops("root") == []
    assert sch.get_sblock("B") is not b


# -- messages --------------------------------------------------------------------------------------


def test_a_message_names_the_loop_and_shows_the_nest():
    sch = Schedule(matmul())
    k = sch.get_loops(sch.get_block("C"))[2]
    with pytest.raises(ScheduleError) as error:
        sch.parallel(k)
    text = str(error.value)
    assert text.startswith("parallel: loop k cannot be parallel: it moves the reduce axis v_k of")
    assert ">       for k in range(6):" in text
    fast = Schedule(matmul(), error_render_level="fast")
    with pytest.raises(ScheduleError) as error:
        fast.get_block("Z")
    assert str(error.value) == "get_block: no block is named 'Z'; there are: C, D, root"


def test_a_refused_primitive_changes_nothing():
    sch = Schedule(matmul())
    before, count = sch.mod["main"], len(sch.trace.insts)
    i, j, k = sch.get_loops(sch.get_block("C"))
    with pytest.raises(ScheduleError):
        sch.fuse(i, k)
    assert sch.mod["main"] is before
    assert len(sch.trace.insts) == count + 2


@pytest.mark.parametrize(
    "call",
    [
        lambda sch: sch.split(1, [2]),
        lambda sch: sch.split(sch.get_loops("C")[0], 3),
        lambda sch: sch.split(sch.get_loops("C")[0], [None, "x"]),
        lambda sch: sch.get_loops(sch.get_loops("C")[0]),
        lambda sch: sch.parallel(),
        lambda sch: sch.cache_read("C", 0),
        lambda sch: sch.transform_layout("C", "nothing", lambda i, j: (j, i)),
        lambda sch: sch.transform_layout("C", ("write", 0), lambda **i: i),
        lambda sch: sch.sample_categorical([1], [-1.0]),
        lambda sch: sch.sample_perfect_tile(sch.get_loops("C")[0], 0),
        lambda sch: sch.blockize(Schedule(matmul()).get_loops("C")[0]),
    ],
)
def test_wrong_arguments_are_refused(call):
    with pytest.raises(ScheduleError):
        call(Schedule(matmul()))


def test_a_schedule_wants_a_function():
    with pytest.raises(tvm.TVMError, match="wanted a PrimFunc or an IRModule"):
        Schedule(1)
    with pytest.raises(ScheduleError, match="error_render_level is one of"):
        Schedule(matmul(), error_render_level="loud")
    with pytest.raises(ScheduleError, match="debug_mask is"):
        Schedule(matmul(), debug_mask="loud")
    mask = ScheduleDebugMask.VERIFY_SREF_TREE
    assert str(Schedule(matmul(), debug_mask=mask)) == "Schedule(main; 0 steps)"


def test_every_primitive_says_what_it_does():
    for kind in PRIMITIVES.values():
        assert kind.function.__doc__, kind.method
        assert hasattr(Schedule, kind.method), kind.method
        # Before → after, except for those that change nothing.
        changes = not kind.method.startswith(("get_", "sample_", "enter_"))
        assert ("→" in kind.function.__doc__) is changes, kind.method


def test_arguments_by_position_as_in_tvm():
    sch = Schedule(matmul(8, 8, 8))
    i, j, k = sch.get_loops("C")
    sch.compute_at(sch.cache_read("C", 0, "local"), i, False, -1)
    sch.reverse_compute_at("D", i, False, -2)
    sch.split(i, [None, 4], True, False)
    sch.loop_partition(j, [2, None], False)
    check_same(matmul(8, 8, 8), sch.mod["main"])


def test_functions_are_named_by_text_or_global_variable():
    mod = IRModule({"f": chain(), "g": matmul()})
    sch = Schedule(mod)
    sch.compute_inline(sch.get_block("B", mod.get_global_var("f")))
    sch.work_on(mod.get_global_var("g"))
    sch.parallel(sch.get_loops("C")[0])
    again = Schedule(mod)
    Trace.apply_json_to_schedule(json.dumps(sch.trace.as_json()), again)
    assert_structural_equal(again.mod, sch.mod)


def test_verification_after_each_step():
    sch = Schedule(matmul(), debug_mask="all")
    sch.parallel(sch.get_loops(sch.get_block("C"))[0])


# -- index maps ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda i, j: (i // 4, j, i % 4), (8, 3)),
        (lambda i, j: (j, i), (5, 3)),
        (lambda i, j: (i * 3 + j,), (4, 3)),
        (lambda i, j: ((i * 6 + j) // 4, (i * 6 + j) % 4), (4, 6)),
        (lambda i: (i // 6, i // 2 % 3, i % 2), (12,)),
        (lambda i, j: (i // 4, j, i % 4), (7, 3)),
        (lambda i: (i // 4, i % 4), (14,)),
        (lambda i: ((i + 2) // 4, (i + 2) % 4), (14,)),
        (lambda i: ((i + 5) // 4, (i + 5) % 4), (13,)),
        (lambda i, j: (j + 3, i * 2), (3, 4)),
        (lambda i, j: (i * 8 + j,), (4, 6)),
    ],
)
def test_the_inverse_of_an_index_map(function, shape):
    index_map = IndexMap.from_func(function)
    assert index_map.is_injective(shape)
    final = [int(e) for e in index_map.map_shape(shape)]
    bijective = np.prod(shape) == np.prod(final)
    assert index_map.is_bijective(shape) == bijective
    back, padding = index_map.non_surjective_inverse(shape)
    if bijective:
        assert index_map.inverse(shape).is_equivalent_to(back)
    else:
        with pytest.raises(ScheduleError, match="leaves places unused"):
            index_map.inverse(shape)
    images = set()
    for point in np.ndindex(*shape):
        image = [int(tir.evaluate_expr(e)) for e in index_map.map_indices([int(p) for p in point])]
        again = [int(tir.evaluate_expr(e)) for e in back.map_indices(image)]
        assert again == list(point)
        images.add(tuple(image))
    for place in np.ndindex(*final):
        values = dict(zip(back.initial_indices, map(const, place)))
        assert bool(tir.evaluate_expr(substitute(padding, values))) == (place not in images)


def test_ranges_of_an_index_map_begin_at_0():
    index_map = IndexMap.from_func(lambda i: (i // 4, i % 4))
    assert [r.extent for r in index_map.map_ranges([Range(14)])] == [4, 4]
    with pytest.raises(ScheduleError, match="begin at 0"):
        index_map.inverse([Range(2, 18)])


def test_an_index_map_that_loses_something_has_no_inverse():
    index_map = IndexMap.from_func(lambda i, j: (i + j,))
    assert not index_map.is_injective((4, 4))
    with pytest.raises(ScheduleError, match="not shown to be invertible"):
        index_map.inverse((4, 4))


def test_axis_separators():
    made, cuts = IndexMap.from_func_with_separators(
        lambda i, j: (i, IndexMap.AXIS_SEPARATOR, j), index_dtype="int64"
    )
    assert cuts == [1]
    assert str(made.final_indices[0].dtype) == "int64"


@pytest.mark.parametrize(
    "change",
    [
        lambda s, e: s.transform_layout(
            "C", ("write", 0), lambda i, j: (i, j // 3, j % 3), pad_value=lambda i, j, k: e * 1.0
        ),
        lambda s, e: s.transform_layout("C", ("write", 0), lambda i, j: (i, j + e)),
        lambda s, e: s.transform_block_layout("C", lambda i, j, k: (i + e - e, j, k)),
        lambda s, e: s.split(s.get_loops("C")[0], [None, e]),
        lambda s, e: s.annotate("C", "key", [{"e": e}]),
    ],
)
@pytest.mark.parametrize(
    "foreign", [Var("q", "int32"), tir.decl_buffer((4,), "int32", "q")[0]], ids=["var", "load"]
)
def test_expressions_that_read_what_the_function_does_not_have_are_refused(change, foreign):
    sch = Schedule(matmul(8, 8, 8))
    with pytest.raises(ScheduleError, match="q is neither a size nor a scalar parameter"):
        change(sch, foreign)
    assert_structural_equal(sch.mod["main"], matmul(8, 8, 8))


@pytest.mark.parametrize(
    "error", [ScheduleError("refused"), ValueError("a fault"), KeyboardInterrupt()]
)
def test_an_attempt_that_ends_in_any_error_leaves_the_schedule_as_it_was(error):
    sch = Schedule(matmul(8, 8, 8))
    before, steps = sch.mod["main"], len(sch.trace.insts)

    def halfway():
        sch.split(sch.get_loops(sch.get_block("C"))[0], [None, 2])
        raise error

    with pytest.raises(type(error)), sch.attempt():
        halfway()
    assert sch.mod["main"] is before and len(sch.trace.insts) == steps
