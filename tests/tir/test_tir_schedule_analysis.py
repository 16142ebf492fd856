"""What is asked before scheduling: dependencies, output blocks, layouts, what an intrinsic fits."""

import itertools

import pytest
from schedule_helpers import chain, matmul, pair

from relaxvm import te, tir
from relaxvm.script import from_source
from relaxvm.tir import IndexMap, Schedule, ScheduleError
from relaxvm.tir.schedule import (
    PRIMITIVES,
    DepKind,
    Instruction,
    InstructionKind,
    ScheduleState,
    Trace,
)
from relaxvm.tir.schedule.analysis import (
    get_auto_tensorize_mapping_info,
    get_tensorize_loop_mapping,
    has_block,
    has_sblock,
    is_output_block,
    suggest_index_map,
)

SWAP = """# from relaxvm.script import tir as T
@T.prim_func
def main(A: T.Buffer((8,)), B: T.Buffer((8,))):
    for i in range(8):
        with T.block("first"):
            vi = T.axis.spatial(8, i)
            A[vi] = B[vi]
        with T.block("second"):
            vi = T.axis.spatial(8, i)
            B[vi] = T.float32(2)
"""


def kinds(fn, src, dst):
    state = ScheduleState(fn, debug_mask="all")
    srefs = {b.name_hint: state.get_sref(b) for b in state.blocks()}
    scope = state.get_block_scope(state.get_sref(state.root()))
    found = [d.kind for d in scope.get_deps_by_src(srefs[src]) if d.dst is srefs[dst]]
    assert found == [d.kind for d in scope.get_deps_by_dst(srefs[dst]) if d.src is srefs[src]]
    return set(found)


def test_dependencies_of_a_scope():
    assert kinds(pair(), "B", "C") == {DepKind.RAW}
    assert kinds(chain(), "B", "D") == {DepKind.RAW}
    assert kinds(from_source(SWAP), "first", "second") == {DepKind.WAR}
    sch = Schedule(matmul())
    sch.decompose_reduction("C", sch.get_loops("C")[0])
    assert kinds(sch.mod["main"], "C_init", "C_update") == {DepKind.RAW, DepKind.WAW}


def test_kinds_of_instructions():
    assert InstructionKind.get("GetLoops") is InstructionKind.get("get_loops")
    assert InstructionKind.get("enter_postproc").name == "EnterPostproc"
    assert InstructionKind.get("SamplePerfectTile").is_pure
    assert not InstructionKind.get("ComputeInline").is_pure
    with pytest.raises(ScheduleError, match="no schedule primitive"):
        InstructionKind.get("Nothing")
    sch = Schedule(matmul())
    sch.get_block("C")
    assert isinstance(sch.trace.insts[0], Instruction)
    assert sch.trace.insts[0].kind is InstructionKind.get("GetBlock")
    for method in PRIMITIVES:
        assert InstructionKind.get(InstructionKind.get(method).name).method == method


def test_instructions_and_traces_are_made_as_in_tvm():
    sch = Schedule(matmul(8, 8, 8))
    (i, *_), sample = sch.get_loops("C"), InstructionKind.get("SamplePerfectTile")
    sch.split(i, sch.sample_perfect_tile(i, 2, decision=[2, 4]))
    sch.annotate(i2 := sch.get_loops("C")[0], "note", 64)
    made = Trace(
        [Instruction(s.kind, s.inputs, list(s.attrs.values()), s.outputs) for s in sch.trace.insts],
        {},
    )
    drawn = next(s for s in made.insts if s.kind is sample)
    made = Trace(made.insts, {drawn: [2, 4]})
    assert str(made) == str(sch.trace) == str(Trace(made.insts, made.decisions))
    assert made.insts[-1].inputs == [i2, 64]
    assert repr(drawn) == "_, _ = sch.sample_perfect_tile(loop=_, n=2, max_innermost_factor=16)"
    with pytest.raises(
        ScheduleError, match="SamplePerfectTile: inputs and attrs are the arguments"
    ):
        Instruction(sample, [], [2], [])
    with pytest.raises(ScheduleError, match=r"Fuse: .* too few or too many"):
        Instruction(InstructionKind.get("Fuse"), [i], [True, 3], [])


def test_output_blocks():
    sch = Schedule(chain())
    assert [is_output_block(sch, b) for b in ("B", "C", sch.get_block("D"))] == [False, False, True]
    assert not is_output_block(sch, "root")


def loops_of(**extents):
    body = tir.Evaluate(0)
    return [
        tir.For(tir.Var(n, "int32"), 0, e, tir.ForKind.SERIAL, body) for n, e in extents.items()
    ]


LAYOUTS = {
    "tiles": (
        (8, 256),
        {"i": 32, "j": 64},
        lambda i, j: (i // 16 * 4 + j // 16, i % 16 * 16 + j % 16),
        lambda x, y: (x // 4, y // 16, x % 4, y % 16),
    ),
    "turned": ((8, 6), {"j": 6, "i": 8}, lambda j, i: (i, j), lambda x, y: (y, x)),
    "fused": ((4, 6), {"f": 24}, lambda f: (f // 6, f % 6), lambda x, y: (x * 6 + y,)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_suggested_layouts(name):
    shape, extents, indices, wanted = LAYOUTS[name]
    loops = loops_of(**extents)
    at = indices(*(f.loop_var for f in loops))
    found = suggest_index_map(tir.decl_buffer(shape), at, loops, True)
    assert found.is_equivalent_to(IndexMap.from_func(wanted))
    # The loops go through memory in order.
    size = [int(e) for e in found.map_shape(shape)]
    places = []
    for values in itertools.product(*(range(e) for e in extents.values())):
        known = dict(zip((f.loop_var for f in loops), values))
        new = [tir.evaluate_expr(e, known) for e in found.map_indices(at)]
        place = 0
        for n, extent in zip(new, size):
            place = place * extent + int(n)
        places.append(place)
    assert places == sorted(places) and len(set(places)) == len(places)


@pytest.mark.parametrize(
    "indices", [lambda i, j: (i + j,), lambda i, j: (i * i,), lambda i, j: (i * 8 + j // 2,)]
)
def test_no_layout_is_suggested_for_what_is_not_one_to_one(indices):
    loops = loops_of(i=4, j=8)
    at = indices(*(f.loop_var for f in loops))
    assert suggest_index_map(tir.decl_buffer((32,)), at, loops, True) is None


def product(n, m, k, batch=0):
    """C[n, m] (of each of `batch`) as a te function, of float32."""
    lead = (batch,) if batch else ()
    a, b = te.placeholder((*lead, n, k), name="A"), te.placeholder((*lead, k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute(
        (*lead, n, m),
        lambda *i: te.sum(a[(*i[:-1], r)] * b[(*i[:-2], r, i[-1])], axis=r),
        name="C",
    )
    return te.create_prim_func([a, b, c])


def desc(n, m, k):
    sch = Schedule(product(n, m, k))
    sch.decompose_reduction("C", sch.get_loops("C")[0])
    text = sch.mod["main"].script()
    head, update = text.split("    for ")[0], text.split("    for ")[2]
    return from_source(head + "    for " + update)


def test_loops_that_fit_an_intrinsic():
    fn = desc(4, 8, 2)
    wanted = Schedule(fn).get_loops("C_update")
    for order in ((0, 1, 2), (2, 0, 1)):
        sch = Schedule(product(16, 32, 6))
        loops = sch.get_loops("C")
        sch.reorder(*(loops[k] for k in order))
        info = get_tensorize_loop_mapping(sch, "C", fn)
        assert [info.desc_loop_indexer[f] for f in info.loop_map.values()] == [2, 1, 0]
        assert [p.stmt for p in info.loop_map] == [sch.get(loops[k]) for k in (2, 1, 0)]
        assert info.block_iter_paddings is None
    assert len(wanted) == 3


def test_loops_that_fit_an_intrinsic_after_padding():
    sch = Schedule(product(13, 32, 3))
    assert get_tensorize_loop_mapping(sch, "C", desc(4, 8, 2)) is None
    info = get_tensorize_loop_mapping(sch, "C", desc(4, 8, 2), allow_padding=True)
    assert info.block_iter_paddings == [4, 1, 2]
    sch.pad_einsum("C", info.block_iter_paddings)
    assert get_tensorize_loop_mapping(sch, "C", desc(4, 8, 2)).block_iter_paddings is None


def test_axes_are_fused_for_an_intrinsic():
    def mapping(fn, block):
        info = get_auto_tensorize_mapping_info(Schedule(fn), block, desc(4, 8, 2))
        return None if info is None else info.mappings[0]

    def same(found, function):
        return found.is_equivalent_to(IndexMap.from_func(function))

    assert same(mapping(product(16, 32, 6), "C"), lambda i, j, k: (i, j, k))
    assert same(mapping(product(16, 32, 6, 3), "C"), lambda b, i, j, k: (b, i, j, k))
    x, w = te.placeholder((2, 8, 8, 4), name="X"), te.placeholder((3, 3, 4, 8), name="W")
    rh, rw, rc = (te.reduce_axis((0, e), name=n) for n, e in (("rh", 3), ("rw", 3), ("rc", 4)))
    y = te.compute(
        (2, 6, 6, 8),
        lambda n, h, v, c: te.sum(x[n, h + rh, v + rw, rc] * w[rh, rw, rc, c], axis=[rh, rw, rc]),
        name="Y",
    )
    assert same(
        mapping(te.create_prim_func([x, w, y]), "Y"),
        lambda n, h, v, c, rh, rw, rc: (n * 36 + h * 6 + v, c, rh * 12 + rw * 4 + rc),
    )
    # Another computation, or an axis that is not there.
    assert mapping(chain(), "D") is None
    a = te.placeholder((16, 6), name="A")
    k = te.reduce_axis((0, 6), name="k")
    squares = te.compute((16,), lambda i: te.sum(a[i, k] * a[i, k], axis=k), name="C")
    assert mapping(te.create_prim_func([a, squares]), "C") is None


def test_whether_a_block_is_there():
    sch = Schedule(pair())
    assert has_block(sch, "B") and has_sblock(sch, "C") and not has_block(sch, "A")
    sch.compute_inline("B")
    assert not has_block(sch, "B")
