"""Parts of a concatenation are computed in their places in the whole, so that nothing is copied.

Possible for a kernel that only puts tensors one behind the other (`inputs_in_a_row`), all of the
function's own memory and of known size, where nobody could tell: what is read again behind the
concatenation, parts or the whole while parts are read, is not written any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from ...base import NamedTuple, declined
from ..expr import Binding, Call, Var
from ..flow import BIND, Event
from .pack_memory import ALIGNMENT_BYTES, Block, pack
from .tensor_lifetimes import Lifetimes


class Kernels(Protocol):
    """What is known of the loop functions of a module."""

    def inputs_in_a_row(self, call: Call) -> tuple[int, ...]: ...
    def only_reads(self, call: Any, tensor: Callable[[Any], bool]) -> bool: ...


class Whole(NamedTuple):
    """The call bound to `binding` puts parts one behind the other. `home` says in which memory."""

    binding: Binding
    home: int
    block: Block
    parts: tuple[Block, ...]


def find_wholes(
    row: list[Event],
    lives: Lifetimes,
    kernels: Kernels,
    blocks: Mapping[Var, Block],
    home: Mapping[Var, int],
    inplace: Collection[Var],
    overwritten: Collection[Var],
) -> list[Whole]:
    """The concatenations in a row of events without branches that need not copy.

    blocks       the memory of each planned tensor, `home` the pool that it comes from
    inplace      what is bound to calls that write over an input, `overwritten` those inputs
    """
    uses: dict[Any, list[int]] = {}
    for position, e in enumerate(row):
        for v in e.reads():
            uses.setdefault(lives.root.get(v, v), []).append(position)

    def reads_only(reader: int, tensors: set[Any]) -> bool:
        value = row[reader].node.value if row[reader].kind is BIND else None
        return isinstance(value, Var) or kernels.only_reads(
            value, lambda a: lives.root.get(a, a) in tensors
        )

    def stays(position: int, tensors: set[Any]) -> bool:
        """Whether nothing writes `tensors` after `position`."""
        return not any(v in overwritten or v in lives.shared for v in tensors) and all(
            reads_only(reader, tensors) for v in tensors for reader in uses[v] if reader > position
        )

    taken: set[Any] = set()
    wholes = []
    for position, e in enumerate(row):
        call: Any = e.node.value if e.kind is BIND else None
        order = kernels.inputs_in_a_row(call) if isinstance(call, Call) else ()
        if not order or e.node.var in uses or e.node.var in inplace:
            continue
        args: list[Any] = [lives.root.get(a, a) for a in call.args]
        whole, parts = args[-1], [args[k] for k in order]
        if not all(v in home and v not in taken for v in (whole, *parts)):
            why_not = "the memory of one is not the function's own, or in another concatenation"
        elif len({*parts, whole}) <= len(parts) or uses[whole][0] != position:
            why_not = "one comes twice"
        elif len({home[v] for v in (whole, *parts)}) > 1:
            why_not = "they are in several memories"
        elif any(blocks[v].size % ALIGNMENT_BYTES for v in parts[:-1]):
            why_not = f"one is no multiple of {ALIGNMENT_BYTES} bytes"
        elif sum(blocks[v].size for v in parts) != blocks[whole].size:
            why_not = "a size is not known"
        else:
            again = {v for v in parts if blocks[v].death > position}
            why_not = "a part is read again, and one may be written over by then"
            if not again or stays(position, {whole, *again}):
                taken.update(parts)
                inner = tuple(blocks[v] for v in parts)
                wholes.append(Whole(e.node, home[whole], blocks[whole], inner))
                continue
        declined("{} copies its parts: {}", e.node, why_not)
    return wholes


def pack_joined(blocks: list[Block], wholes: list[Whole]) -> tuple[int | None, list[Whole]]:
    """The bytes of an arena for `blocks`, and those of `wholes` that lie in it together with their
    parts: all, unless that takes more memory. None as for `pack`.
    """
    apart = pack(blocks)
    if apart is None or not wholes:
        return apart, []
    lives = [(block.birth, block.death) for block in blocks]
    inner = {part for whole in wholes for part in whole.parts}
    # A whole that is part of another comes before that one.
    for whole in wholes:
        whole.block.parts = whole.parts
        whole.block.birth = min(part.birth for part in whole.parts)
    for whole in reversed(wholes):
        for part in whole.parts:
            part.death = max(part.death, whole.block.death)
    for whole in wholes:
        whole.block.death = max(part.death for part in whole.parts)
    together = pack([block for block in blocks if block not in inner])
    if together is not None and together <= apart:
        return together, wholes
    for block, (birth, death) in zip(blocks, lives):
        block.birth, block.death, block.parts = birth, death, ()
    return pack(blocks), []
