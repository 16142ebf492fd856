"""Inlining: of places that differ from iteration to iteration, under conditions, past pointers."""

import numpy as np
import pytest
from schedule_helpers import arguments, by_machine, check

from relaxvm.script import from_source
from relaxvm.tir import Schedule, ScheduleError

HEAD = """# from relaxvm.script import tir as T
@T.prim_func
def main({parameters}):
    {alloc}
"""


def nest(name, extents, store, where=""):
    """A block with one loop for each axis: vi over i, vj over j, ..."""
    loops = "ijkl"[: len(extents)]
    lines = [f"for {', '.join(loops)} in T.grid({', '.join(map(str, extents))}):"]
    lines.append(f'    with T.block("{name}"):')
    lines += [f"        T.where({where})"] if where else []
    lines += [f"        v{x} = T.axis.spatial({e}, {x})" for x, e in zip(loops, extents)]
    return "\n".join(f"    {line}" for line in [*lines, f"        {store}"]) + "\n"


def pair(producer, consumer, b=(8, 8), c=(8, 8), more=""):
    """A (8, 8), D (8, 8) -> B, a temporary of shape `b` -> C of shape `c`."""
    shapes = {"A": (8, 8), "D": (8, 8), "C": c}
    parameters = ", ".join(f'{n}: T.Buffer({s}, "float32")' for n, s in shapes.items())
    head = HEAD.format(parameters=parameters, alloc=f'B = T.alloc_buffer({b}, "float32")')
    return from_source(head + producer + more + consumer)


PLAIN = nest("B", (8, 8), "B[vi, vj] = A[vi, vj] * T.float32(2)")
# What the consumer does, in how many iterations, into which shape.
CONSUMERS = {
    "several_reads": ((8, 8), "C[vi, vj] = B[vi, vj] * B[vi, vj] + D[vj, vi]", ""),
    "turned": ((8, 8), "C[vi, vj] = B[vj, vi]", ""),
    "flat": ((64,), "C[vi] = B[vi // 8, vi % 8] + T.float32(1)", ""),
    "digits": ((2, 4, 8), "C[vi, vj, vk] = B[vi * 4 + vj, vk] + D[vj, vk]", ""),
    "one_iteration": ((1, 8, 8), "C[vi, vj, vk] = B[vj, vk] + D[vi, vj]", ""),
    "shifted": ((7, 6), "C[vi, vj] = B[vi + 1, vj + 2]", ""),
    "a_corner": ((5, 6), "C[vi, vj] = B[vi, vj]", ""),
    "a_row": ((8,), "C[vi] = B[3, vi] + T.float32(1)", ""),
    "every_other": ((4, 8), "C[vi, vj] = B[vi * 2 + 1, vj]", ""),
    "wide_indices": ((8, 8), 'C[vi, vj] = B[T.cast(vi, "int64"), T.cast(vj, "int64")]', ""),
    "cast_values": ((8, 8), 'C[vi, vj] = T.cast(T.cast(B[vi, vj], "int32"), "float32")', ""),
    "condition": ((8, 8), "C[vi, vj] = B[vi, vj]", "i < 5"),
    "condition_of_both": ((8, 8), "C[vi, vj] = B[vj, vi]", "i + j < 9"),
    "guarded_value": (
        (8, 8),
        "C[vi, vj] = T.if_then_else(vi < 4, B[vi, vj], T.float32(0))",
        "",
    ),
}


@pytest.mark.parametrize("name", CONSUMERS)
def test_reverse_compute_inline(name):
    extents, store, where = CONSUMERS[name]
    fn = pair(PLAIN, nest("C", extents, store, where), c=extents)
    sch = Schedule(fn)
    sch.reverse_compute_inline("C")
    check(fn, sch, [arguments(fn, np.random.default_rng(0))])


PRODUCERS = {
    "fused": ((64,), "B[vi // 8, vi % 8] = A[vi // 8, vi % 8]", ""),
    "digits": ((4, 2, 8), "B[vi * 2 + vj, vk] = A[vi * 2 + vj, vk]", ""),
    "turned": ((8, 8), "B[vj, vi] = A[vi, vj]", ""),
    "condition": ((9, 8), "B[vi, vj] = A[vi, vj]", "i < 8"),
    "wide_indices": ((8, 8), 'B[T.cast(vi, "int64"), vj] = A[vi, vj]', ""),
}


@pytest.mark.parametrize("name", PRODUCERS)
@pytest.mark.parametrize("consumer", ["turned", "flat", "a_corner", "a_row", "condition_of_both"])
def test_reverse_compute_inline_into_producers(name, consumer):
    extents, store, where = CONSUMERS[consumer]
    fn = pair(nest("B", *PRODUCERS[name]), nest("C", extents, store, where), c=extents)
    sch = Schedule(fn)
    sch.reverse_compute_inline("C")
    check(fn, sch, [arguments(fn, np.random.default_rng(0))])


def test_a_chain_is_inlined_from_its_end():
    second = nest("C2", (2, 4, 8), "E[vi, vj, vk] = B[vi * 4 + vj, vk] + T.float32(1)")
    last = nest("C", (1, 2, 3, 8), "C[vi, vj, vk, vl] = E[vj, vk, vl] * T.float32(3)")
    alloc = '    E = T.alloc_buffer((2, 4, 8), "float32")\n'
    fn = pair(alloc + PLAIN, second + last, c=(1, 2, 3, 8))
    sch = Schedule(fn)
    sch.reverse_compute_inline("C2")
    sch.reverse_compute_inline("C")
    assert [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_block("root"))] == ["B"]
    check(fn, sch, [arguments(fn, np.random.default_rng(0))], by_machine)


def test_the_producer_keeps_to_the_domain_of_what_it_took_in():
    fn = pair(PLAIN, nest("C", (5, 8), "C[vi, vj] = B[vi + 1, vj]"), c=(5, 8))
    sch = Schedule(fn)
    sch.reverse_compute_inline("C")
    assert "vi = T.axis.spatial((1, 6), i)" in sch.mod["main"].script()
    sch.parallel(sch.get_loops("B")[0])
    check(fn, sch, [arguments(fn, np.random.default_rng(0))])


REFUSED = {
    # Of what B has at one place, C uses several, or the other way round.
    "two_places": ((8, 8), "C[vi, vj] = B[vi, vj] + B[vj, vi]", ""),
    "diagonal": ((2, 4, 8), "C[vi, vj, vk] = B[vi * 4 + vj, vi * 4 + vj]", ""),
    "broadcast": ((4, 8), "C[vi, vj] = B[0, vj]", ""),
    "overlapping": ((4, 8), "C[vi, vj] = B[vi // 2, vj]", ""),
    # Not all of it is written.
    "beyond": ((9, 8), "C[vi, vj] = T.if_then_else(vi < 8, B[vi, vj], T.float32(0))", ""),
    "behind_a_guard": (
        (16, 8),
        "C[vi, vj] = T.if_then_else(vi >= 8, B[vi - 8, vj], T.float32(0))",
        "",
    ),
    # A condition that reads memory would be asked earlier.
    "data_dependent": ((8, 8), "C[vi, vj] = B[vi, vj]", "D[i, j] > T.float32(0)"),
    "own_data": ((8, 8), "C[vi, vj] = B[vi, vj]", "B[i, j] > T.float32(0)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_reverse_compute_inline_refuses(name):
    extents, store, where = REFUSED[name]
    sch = Schedule(pair(PLAIN, nest("C", extents, store, where), c=extents))
    with pytest.raises(ScheduleError, match="cannot be inlined|several places|is shown to write"):
        sch.reverse_compute_inline("C")


def test_what_is_not_written_under_a_condition_is_not_read():
    producer = nest("B", (8, 8), "B[vi, vj] = A[vi, vj]", "i < 5")
    sch = Schedule(pair(producer, nest("C", (6, 8), "C[vi, vj] = B[vi, vj]"), c=(6, 8)))
    with pytest.raises(ScheduleError, match="more than block B is shown to write"):
        sch.reverse_compute_inline("C")


@pytest.mark.parametrize("name", [*PRODUCERS][:3])
def test_compute_inline_of_any_places(name):
    fn = pair(
        nest("B", *PRODUCERS[name]),
        nest("C", (7, 8), "C[vi, vj] = B[vi, vj] - B[vj, vi + 1]"),
        c=(7, 8),
    )
    sch = Schedule(fn)
    sch.compute_inline("B")
    check(fn, sch, [arguments(fn, np.random.default_rng(0))])


def test_compute_inline_reads_nothing_for_places_that_were_not_written():
    # Of 12 columns every third is written; the consumer copies all of them, and uses those.
    more = nest("E", (8, 12), "E[vi, vj] = B[vi, vj]")
    fn = pair(
        '    E = T.alloc_buffer((8, 12), "float32")\n'
        + nest("B", (8, 4), "B[vi, vj * 3] = A[vi, vj]"),
        nest("C", (8, 4), "C[vi, vj] = E[vi, vj * 3]"),
        b=(8, 12),
        c=(8, 4),
        more=more,
    )
    sch = Schedule(fn)
    sch.compute_inline("B")
    check(fn, sch, [arguments(fn, np.random.default_rng(0))])


def test_compute_inline_into_a_predicate():
    fn = pair(PLAIN, nest("C", (8, 8), "C[vi, vj] = B[vi, vj]", "B[i, j] > T.float32(1)"))
    sch = Schedule(fn)
    sch.compute_inline("B")
    assert "A[i, j] * T.float32(2) > T.float32(1)" in sch.mod["main"].script()
    check(fn, sch, [arguments(fn, np.random.default_rng(0))])


@pytest.mark.parametrize("how", ["parallel", "vectorize"])
def test_what_a_predicate_reads_is_not_written_in_the_same_loop(how):
    fn = from_source(
        HEAD.format(
            parameters="A: T.Buffer((8,)), C: T.Buffer((8,))", alloc="B = T.alloc_buffer(8)"
        )
        + """    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
    for i in range(8):
        with T.block("B2"):
            vi = T.axis.spatial(8, i)
            B[vi] = T.float32(0)
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            T.where(B[7 - i] < T.float32(1))
            C[vi] = T.float32(1)
"""
    )
    sch = Schedule(fn)
    with pytest.raises(ScheduleError, match="which iterations of block C are run is read from B"):
        getattr(sch, how)(sch.get_loops("C")[0])


@pytest.mark.parametrize("declared", ["A[0:8, 0:8]", ""])
def test_inlining_sees_what_is_written_by_way_of_pointers(declared):
    call = f"""    with T.block("call"):
        T.reads()
        T.writes({declared})
        T.evaluate(T.call_extern("clear", A.data, dtype="int32"))
"""
    sch = Schedule(pair(PLAIN, nest("C", (8, 8), "C[vi, vj] = B[vi, vj]"), more=call))
    with pytest.raises(ScheduleError, match="block call writes A, which it reads"):
        sch.compute_inline("B")


def test_inlining_keeps_what_is_declared_of_pointers():
    use = """    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            T.reads(D[0:8, 0:8], B[vi, 0])
            T.writes(C[vi, 0])
            T.evaluate(T.call_extern("table", D.data, dtype="int32"))
            C[vi, 0] = B[vi, 0]
"""
    sch = Schedule(pair(PLAIN, use))
    sch.compute_inline("B")
    assert {r.buffer.name for r in sch.get(sch.get_block("C")).reads} == {"A", "D"}


@pytest.mark.parametrize("seed", range(40))
def test_random_places(seed):
    """Producer and consumer go over parts of one space by random digits, turns and offsets."""
    rng = np.random.default_rng(seed)
    sides = []
    for buffer in ("write", "read"):
        cut = bool(rng.integers(2))
        index = ["vi * 4 + vj", "vk"] if cut else ["vi", "vj"]
        extents = [2, 4, 8] if cut else [8, 8]
        if buffer == "read":
            extents = [int(rng.integers(1, e + 1)) for e in extents]
            shift = int(rng.integers(0, 9 - extents[-1]))
            index[-1] += f" + {shift}"
        index = index[::-1] if rng.integers(2) else index
        sides.append((extents, ", ".join(index)))
    (n, write), (m, read) = sides
    value = "A[vi, vj]" if len(n) == 2 else "A[vi * 4 + vj, vk]"
    axes = ", ".join(f"v{x}" for x in "ijk"[: len(m)])
    where = rng.choice(["", f"i + j < {rng.integers(1, 9)}", f"j >= {rng.integers(0, 4)}"])
    fn = pair(
        nest("B", n, f"B[{write}] = {value}"),
        nest("C", m, f"C[{axes}] = B[{read}] + T.float32(1)", where),
        c=tuple(m),
    )
    for how, block in (("reverse_compute_inline", "C"), ("compute_inline", "B")):
        sch = Schedule(fn)
        getattr(sch, how)(block)
        check(fn, sch, [arguments(fn, rng)])
