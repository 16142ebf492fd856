"""Where blocks of memory lie in one arena: those that are alive at the same time side by side, the
others over each other.

The largest is placed first, each into the smallest gap that is large enough among those that are
alive together with it (greedy by size, best fit: Pisarchyk and Lee, "Efficient Memory Management
for Deep Neural Net Inference", 2020).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import descend

ALIGNMENT_BYTES = 64
_MAX_PAIRS_EACH = 64


class Block:
    """Memory of `size` bytes that is in use from time `birth` to time `death`, both included.

    parts  the blocks that make it up, one behind the other, each in use for a time of its own
    """

    __slots__ = ("birth", "death", "offset", "parts", "size")

    def __init__(self, size: int, birth: int) -> None:
        self.size = size
        self.birth = birth
        self.death = birth
        self.offset = 0
        self.parts: tuple[Block, ...] = ()

    def place(self, offset: int) -> None:
        """Lay the block there, and its parts with it."""
        self.offset = offset
        for block in descend(self, _parts_of):
            start = block.offset
            for part in block.parts:
                part.offset = start
                start += part.size

    def pieces(self) -> list[Block]:
        """The blocks without parts that make it up."""
        return [block for block in descend(self, _parts_of) if not block.parts]


def _parts_of(block: Block) -> Sequence[Block]:
    return block.parts


def pack(blocks: Sequence[Block]) -> int | None:
    """The bytes of an arena for `blocks`, whose `offset` is set; None if so many of them live at
    the same time that comparing them would take long.
    """
    together = _together(blocks)
    if together is None:
        return None
    placed: dict[Block, list[Block]] = {}
    total = 0
    for block in sorted(blocks, key=lambda b: (-b.size, b.birth)):
        block.place(0)
        pieces = block.pieces()
        # Where the block may not begin: so that a piece would meet one that is alive then, too.
        forbidden = [
            (other.offset - piece.offset - _aligned(piece.size), end - piece.offset)
            for near in together[block]
            for other in placed.get(near, ())
            for end in (other.offset + _aligned(other.size),)
            for piece in pieces
            if other.birth <= piece.death and piece.birth <= other.death
        ]
        block.place(_best_gap(forbidden))
        placed[block] = pieces
        total = max(total, block.offset + block.size)
    return total


def _together(blocks: Sequence[Block]) -> dict[Block, list[Block]] | None:
    """For each block, the others that are alive at some time of its life."""
    live: dict[Block, list[Block]] = {block: [] for block in blocks}
    alive: list[Block] = []
    pairs = 0
    for block in sorted(blocks, key=lambda b: b.birth):
        alive = [b for b in alive if b.death >= block.birth]
        pairs += len(alive)
        if pairs > _MAX_PAIRS_EACH * len(blocks):
            return None
        for other in alive:
            live[block].append(other)
            live[other].append(block)
        alive.append(block)
    return live


def _best_gap(forbidden: list[tuple[int, int]]) -> int:
    """The offset in none of the open ranges, but at the end of one or 0, behind which the least is
    left until the next begins; else the end of the last.
    """
    best, best_left, end = -1, 0, 0
    for first, last in sorted(forbidden):
        left = first - end
        if left >= 0 and (best < 0 or left < best_left):
            best, best_left = end, left
        end = max(end, last)
    return end if best < 0 else best


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
