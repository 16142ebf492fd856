"""Where blocks of memory lie in one arena: those that are alive at the same time side by side, the
others over each other.

The largest is placed first, each into the smallest gap that is large enough among those that are
alive together with it (greedy by size, best fit: Pisarchyk and Lee, "Efficient Memory Management
for Deep Neural Net Inference", 2020).
"""

from __future__ import annotations

from collections.abc import Sequence

ALIGNMENT_BYTES = 64
_MAX_PAIRS_EACH = 64


class Block:
    """Memory of `size` bytes that is in use from time `birth` to time `death`, both included."""

    __slots__ = ("birth", "death", "offset", "size")

    def __init__(self, size: int, birth: int) -> None:
        self.size = size
        self.birth = birth
        self.death = birth
        self.offset = 0


def pack(blocks: Sequence[Block]) -> int | None:
    """The bytes of an arena for `blocks`, whose `offset` is set; None if so many of them live at
    the same time that comparing them would take long.
    """
    together = _together(blocks)
    if together is None:
        return None
    placed: set[Block] = set()
    total = 0
    for block in sorted(blocks, key=lambda b: (-b.size, b.birth)):
        near = sorted((b for b in together[block] if b in placed), key=lambda b: b.offset)
        block.offset = _best_gap(near, _aligned(block.size))
        placed.add(block)
        total = max(total, block.offset + block.size)
    return total


def _together(blocks: Sequence[Block]) -> dict[Block, list[Block]] | None:
    """For each block, the others that are alive at some time of its life."""
    found: dict[Block, list[Block]] = {block: [] for block in blocks}
    alive: list[Block] = []
    pairs = 0
    for block in sorted(blocks, key=lambda b: b.birth):
        alive = [b for b in alive if b.death >= block.birth]
        pairs += len(alive)
        if pairs > _MAX_PAIRS_EACH * len(blocks):
            return None
        for other in alive:
            found[block].append(other)
            found[other].append(block)
        alive.append(block)
    return found


def _best_gap(near: list[Block], size: int) -> int:
    """The start of the smallest gap between blocks, in order of their offsets, that holds `size`
    bytes; else the end of the last.
    """
    best, best_size, end = -1, 0, 0
    for block in near:
        gap = block.offset - end
        if gap >= size and (best < 0 or gap < best_size):
            best, best_size = end, gap
        end = max(end, block.offset + _aligned(block.size))
    return end if best < 0 else best


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
