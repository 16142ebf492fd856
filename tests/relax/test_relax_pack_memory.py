"""Blocks of memory in one arena: apart while both are in use, and little more than is needed."""

from __future__ import annotations

import random

import numpy as np
import pytest
from pass_cases import parse
from ten_graphs import NAMES, small

from relaxvm import pipeline, relax
from relaxvm.relax.transform import join_memory
from relaxvm.relax.transform.pack_memory import Block, pack
from relaxvm.runtime import VirtualMachine


def block(size, birth, death):
    made = Block(size, birth)
    made.death = death
    return made


def most_alive(blocks):
    """The most bytes in use at one time: no arena is smaller."""
    blocks = [piece for b in blocks for piece in b.pieces()]
    times = {b.birth for b in blocks}
    return max(sum(b.size for b in blocks if b.birth <= t <= b.death) for t in times)


def check(blocks):
    """The bytes that `pack` needs; no two blocks in use at one time share any."""
    total = pack(blocks)
    blocks = [piece for b in blocks for piece in b.pieces()]
    for k, a in enumerate(blocks):
        assert a.offset % 64 == 0 and 0 <= a.offset and a.offset + a.size <= total
        for b in blocks[:k]:
            if a.birth <= b.death and b.birth <= a.death:
                assert a.offset + a.size <= b.offset or b.offset + b.size <= a.offset
    return total


def test_blocks_of_a_chain_take_turns():
    sizes = [1024, 4096, 1024, 2048, 512]
    assert check([block(s, k, k + 1) for k, s in enumerate(sizes)]) == 5120


def test_a_small_block_does_not_hold_a_large_place():
    blocks = [block(4096, 0, 1), block(64, 1, 9), block(4096, 2, 3), block(4096, 4, 5)]
    assert check(blocks) == 4160


def test_none_and_empty_blocks():
    assert pack([]) == 0
    assert check([block(0, 0, 5), block(0, 1, 2)]) == 0


def test_random_blocks_lie_apart_and_close():
    rng = random.Random(3)
    for _ in range(40):
        blocks = []
        for _ in range(rng.randrange(1, 30)):
            birth = rng.randrange(30)
            size = 64 * rng.randrange(0, 40)
            blocks.append(block(size, birth, birth + rng.randrange(8)))
        assert check(blocks) <= 1.5 * most_alive(blocks)


def whole(*parts):
    """A block that is made up of others."""
    made = block(sum(p.size for p in parts), min(p.birth for p in parts), 0)
    made.death = max(p.death for p in parts)
    made.parts = parts
    return made


def test_parts_lie_one_behind_the_other_and_leave_their_place_to_others():
    late = block(1024, 6, 9)
    inner = whole(block(1024, 0, 9), late)
    outer = whole(inner, block(2048, 3, 9))
    others = [block(1024, 1, 2), block(2048, 1, 2), block(1024, 4, 5)]
    assert check([outer, *others]) == 4096
    assert late.offset == outer.offset + 1024
    assert inner.offset == outer.offset


def test_random_blocks_of_parts_lie_apart_and_in_a_row():
    rng = random.Random(5)
    for _ in range(200):
        free = []
        for _ in range(rng.randrange(2, 24)):
            birth = rng.randrange(30)
            free.append(block(64 * rng.randrange(1, 40), birth, birth + rng.randrange(8)))
        for _ in range(rng.randrange(4)):
            parts = [free.pop(rng.randrange(len(free))) for _ in range(min(3, len(free)))]
            free.append(whole(*parts))
        check(free)
        for b in free:
            at = b.offset
            for part in b.parts:
                assert part.offset == at
                at += part.size


def test_many_blocks_are_packed_or_refused_in_time_that_grows_with_their_number():
    chain = [block(64 * (k % 7 + 1), k, k + 3) for k in range(10_000)]
    assert pack(chain) is not None
    assert pack([block(64, 0, 10_000) for _ in range(10_000)]) is None


@pytest.mark.parametrize("name", NAMES)
def test_the_ten_graphs_take_little_more_than_is_alive_at_once(name, monkeypatch):
    packed = []

    def spy(blocks):
        total = pack(blocks)
        packed.append((total, most_alive(blocks)))
        return total

    monkeypatch.setattr(join_memory, "pack", spy)
    pipeline.run_stages(small(name)[0])
    for total, least in packed:
        # Each block may be followed by as many bytes as bring the next to a multiple of 64.
        assert total <= 1.05 * least + 64 * 8


CHAIN = """
@R.function
def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 512), "float32"),
         v: R.Tensor((512, 64), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)
        b = R.matmul(a, v)
        c = R.matmul(b, w)
        d = R.matmul(c, v)
        e = R.add(R.matmul(d, w), R.sum(b))
        R.output(e)
    return e
"""


def test_programs_in_one_arena_give_what_storages_of_their_own_give(monkeypatch):
    executable = relax.build(parse(CHAIN), "llvm")
    monkeypatch.setattr(join_memory, "pack", lambda blocks: None)
    apart = relax.build(parse(CHAIN), "llvm")
    ours, theirs = (e.memory_plan()["main"] for e in (executable, apart))
    assert ours.total < theirs.total
    assert len(ours.storages) == 2
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s, "float32") for s in ((64, 64), (64, 512), (512, 64))]
    wanted = VirtualMachine(apart)["main"](*args).numpy()
    for mode in ("compiled", "bytecode"):
        assert np.array_equal(VirtualMachine(executable, exec_mode=mode)["main"](*args), wanted)


def test_functions_with_branches_or_calls_keep_storages_of_their_own():
    text = """
@R.function(private=True)
def deeper(x: R.Tensor((64, 64), "float32"), n: R.Prim("int64")) -> R.Tensor((64, 64), "float32"):
    if R.prim_value(True):
        r = cls.main(x)
    else:
        r = x
    return r

@R.function
def main(x: R.Tensor((64, 64), "float32")) -> R.Tensor((64, 64), "float32"):
    a = R.matmul(x, x)
    b = R.matmul(a, a)
    c = R.matmul(b, R.matmul(b, b))
    r = cls.deeper(c, R.prim_value(1))
    return r
"""
    planned = pipeline.run_stages(parse(text)).script()
    assert planned.count("alloc_storage") > 2
