"""The prepared memory of a compiled function, as its code sees it: a row of 64-bit words.

    next · extra · for each prepared storage or tensor: data, object, the object that holds the
    memory · for each arena: data, size, holder · for each object that others may keep: object,
    its reference count

Code generator and linker both derive the places of the words from `Plan`, so they agree.
"""

from __future__ import annotations

import ctypes
from typing import Any

from .builtin import Storage
from .frame import Arena, Frames, Plan
from .pyabi import address_of_data, reference_count

NEXT, EXTRA, HEADER = 0, 1, 2


def layout_plain(plan: Plan) -> tuple[Any, ...]:
    """What of a plan the code relies on, for comparing it with the plan of the linker."""
    storages = tuple((place, tuple(t for t, _ in tensors)) for place, _, tensors in plan.storages)
    arenas = tuple((pc, scope, seen) for pc, (scope, seen) in plan.arenas.items())
    return (storages, tuple(sorted(plan.skipped)), tuple(plan.watched), arenas)


class FrameLayout:
    """Where things lie in a frame.

    objects  register -> word of its data; object and holder are the next words
    arenas   instruction -> word of its data; size and holder are the next words
    watch    first word of the watched objects, `watched` of them
    """

    __slots__ = ("arenas", "objects", "size", "watch", "watched")

    def __init__(self, plan: Plan) -> None:
        word = HEADER
        self.objects: dict[int, int] = {}
        for place, _, tensors in plan.storages:
            for register in (place, *(t for t, _ in tensors)):
                self.objects[register] = word
                word += 3
        self.arenas: dict[int, int] = {}
        for pc in plan.arenas:
            self.arenas[pc] = word
            word += 3
        self.watch = word
        seen_arenas = sum(seen for _, seen in plan.arenas.values())
        self.watched = 2 * len(plan.watched) + seen_arenas
        self.size = word + 2 * self.watched

    @property
    def needed(self) -> bool:
        """Whether there is anything in it."""
        return self.size > HEADER


class NativeFrame:
    """One frame: its words, and the register file (see `frame.Frames`) that keeps alive what they
    point to.
    """

    __slots__ = ("_arenas", "_plan", "_watched_arenas", "address", "layout", "registers", "words")

    def __init__(self, frames: Frames, plan: Plan, layout: FrameLayout) -> None:
        self.registers, _ = frames.take()
        self.layout = layout
        self.words = (ctypes.c_int64 * layout.size)()
        self.address = ctypes.addressof(self.words)
        self._plan = plan
        for register, word in layout.objects.items():
            value = self.registers[register]
            if type(value) is Storage:
                data, holder = address_of_data(value.raw) + value.start, value.raw
            else:
                data, holder = address_of_data(value.array), value.array
            self.words[word], self.words[word + 1] = data, id(value)
            self.words[word + 2] = id(holder)
            del value, holder
        places = [place for place, _, _ in plan.places]
        self._arenas: dict[int, Arena] = {
            pc: self.registers[place] for pc, place in zip(plan.arenas, places)
        }
        position = layout.watch
        for register in plan.watched:
            value = self.registers[register]
            memory = value.raw if type(value) is Storage else value.array
            for one in (value, memory):
                self.words[position] = id(one)
                position += 2
            del value, memory, one
        for k in range(layout.watch, position, 2):
            self.words[k + 1] = reference_count(self.words[k])
        self._watched_arenas: dict[int, int] = {}
        for pc, (_, seen) in plan.arenas.items():
            if seen:
                self._watched_arenas[pc] = position
                position += 2
        self.refresh()

    def refresh(self) -> None:
        """Look again where the arenas are: they grow."""
        for pc, arena in self._arenas.items():
            word = self.layout.arenas[pc]
            if arena.raw is None:
                self.words[word], self.words[word + 1], self.words[word + 2] = 0, -1, 0
            else:
                data = address_of_data(arena.raw) + arena.start
                self.words[word], self.words[word + 1] = data, arena.size_bytes
                self.words[word + 2] = id(arena.raw)
            watched = self._watched_arenas.get(pc)
            if watched is None:
                continue
            fresh = self.words[word + 2] != self.words[watched]
            if fresh:
                self.words[watched] = self.words[word + 2]
                self.words[watched + 1] = 1

    def arena(self, pc: int) -> Arena:
        """The arena of an instruction."""
        return self._arenas[pc]
