"""Memory that is asked for before it is read: the next row, while there is much to compute on this
one.

    for jo in range(16):                          for jo in range(16):
        for ji in range(256):                         prefetch A[i * 4096 + jo * 256 + 4096], ...
            ... A[i * 4096 + jo * 256 + ji]   →      for ji in range(256): ...
    # annotation tir.prefetch: 4096

Where what a step reads is straight code, its whole vectors are asked for, into the second cache: it
is too much for the first one beside what is computed on, such as the next panel of weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...base import CodegenError
from ...base.llvm import Value, constant
from ...ir import Call, IntImm, Intrinsic, Ramp, Var, walk
from ...tir import PREFETCH, PREFETCH_PANEL, BufferLoad, For, Stmt
from ...tir.transform import WRITTEN_OUT
from .access import access_index
from .text import value_type

if TYPE_CHECKING:
    from .stmt import KernelEmitter


_LINE = 64
# How close to the core lines are brought, as LLVM counts.
_FIRST_CACHE, _SECOND_CACHE = 3, 2
# Parts of a panel that passes share, as a power of two: a step asks for one line or less then.
_MOST_PARTS = 4
# Bytes asked for at one step; no core waits for more lines.
_MOST = 64 * _LINE


def ask_ahead(g: KernelEmitter, stmt: For) -> None:
    """At a step of a loop with the annotation tir.prefetch: ask for the lines that the loops inside
    will read so many elements later.
    """
    ahead = stmt.annotations[PREFETCH]
    if g.module.confined:
        return
    if not isinstance(ahead, (int, IntImm)):
        raise CodegenError(f"annotation {PREFETCH}: wanted an integer, got {ahead!r}")
    seen: set[int] = set()
    loops = [n for n in walk(stmt.body) if isinstance(n, For) and n.loop_var not in g.env]
    written = [n for n in loops if WRITTEN_OUT in n.annotations]
    for loop in loops:
        if WRITTEN_OUT in loop.annotations:
            first: Any = loop.min
            g.take_copy(loop.loop_var, int(first))
        else:
            of = value_type(loop.loop_var.dtype)
            g.env[loop.loop_var], g.wide[loop.loop_var] = constant(0, of), constant(0, "i64")
    for loop in reversed(loops):
        if not isinstance(loop.extent, IntImm) or WRITTEN_OUT in loop.annotations:
            continue
        for load in _foreseen(g, loop.body):
            if id(load) not in seen and loop.loop_var in walk(access_index(load.indices)):
                seen.add(id(load))
                for index in _copies(g, written, load):
                    _ask(g, load, index, int(ahead), loop.extent.value, _FIRST_CACHE)
    if not seen:
        _ask_for_vectors(g, stmt, written, int(ahead))
    for loop in loops:
        g.leave_copies(loop.loop_var)
    g.rebind()
    g.forget()


def _foreseen(g: KernelEmitter, body: Stmt) -> Iterator[BufferLoad]:
    """What `body` reads of memory from outside, one by one or side by side, at places that are
    known here.
    """
    for load in (n for n in walk(body) if isinstance(n, BufferLoad)):
        handle, place = load.buffer.data, access_index(load.indices)
        is_outside = handle in g.env and not g.is_local(handle)
        if is_outside and place.dtype.lanes == 1 and all(_is_known(g, n) for n in walk(place)):
            yield load


def _is_known(g: KernelEmitter, n: Any) -> bool:
    """Whether a node of an index means something outside of the loops that use it, and of their
    conditions: what these forbid to read, or a check, could end the run.
    """
    if isinstance(n, Var):
        return n in g.env
    if isinstance(n, Call):
        return isinstance(n.op, Intrinsic) and n.op.effect == "pure"
    return not isinstance(n, BufferLoad)


def _copies(g: KernelEmitter, written: Sequence[For], load: BufferLoad) -> Iterator[Value]:
    """Where `load` begins to read (i64), in each copy of what is written out that moves it."""
    used = set(walk(access_index(load.indices)))
    moving: list[Any] = [loop for loop in written if loop.loop_var in used]
    ranges = (range(int(n.min), int(n.min) + int(n.extent)) for n in moving)
    access, pointer = g.access(load.indices), g.pointer(load.buffer.data)
    for values in itertools.product(*ranges):
        for loop, i in zip(moving, values):
            g.take_copy(loop.loop_var, i)
        g.forget()
        yield g.whole_index(pointer, access, g.evaluate(access.rest))


def _ask_for_vectors(g: KernelEmitter, stmt: For, written: Sequence[For], ahead: int) -> None:
    """The same where what the loop reads in a step is straight code, or written out."""
    loads: dict[Var, dict[Ramp, BufferLoad]] = {}
    for load in _foreseen(g, stmt.body):
        run = load.indices[0]
        if type(run) is Ramp:
            loads.setdefault(load.buffer.data, {}).setdefault(run, load)
    panel = stmt.annotations.get(PREFETCH_PANEL)
    if panel is not None and not (isinstance(panel, (int, IntImm)) and int(panel) > 0):
        raise CodegenError(f"annotation {PREFETCH_PANEL}: wanted a positive integer, got {panel!r}")
    for runs in loads.values():
        # Straight copies read with variables of their own, and at one place perhaps.
        places = {index: load for load in runs.values() for index in _copies(g, written, load)}
        if panel is not None and _ask_for_share(g, places, int(panel)):
            continue
        for index, load in places.items():
            _ask(g, load, index, ahead, load.dtype.lanes, _SECOND_CACHE)


def _ask_for_share(g: KernelEmitter, places: dict[Value, BufferLoad], panel: int) -> bool:
    """At a step that reads runs of a panel, which begin at `places` (i64), ask for as large a part
    of the next panel as this pass over the panel is of all passes. False if there is only one pass.
    """
    place, load = next(iter(places.items()))
    used = set(walk(access_index(load.indices)))
    # Variables stand in the order of their loops: those of the sums are used, those of passes not.
    inner = itertools.dropwhile(used.__contains__, (v for v in reversed(g.env) if v in g.extents))
    passes, number = 1, constant(0, "i64")
    for v in itertools.takewhile(lambda v: v not in used, inner):
        extent = g.extents[v]
        if not isinstance(extent, IntImm):
            break
        index = g.widened(v, g.env[v])
        number = g.text.op("add", number, g.text.op("mul", index, passes))
        passes *= extent.value
    parts = min(passes.bit_length() - 1, _MOST_PARTS)
    if parts < 1:
        return False
    within = g.text.op("urem", place, panel)
    start = g.text.op("sub", place, within)
    skipped = g.text.op("mul", number, panel >> parts)
    part = g.text.op("add", skipped, g.text.op("lshr", within, parts))
    count = max(1, sum(read.dtype.lanes for read in places.values()) >> parts)
    _ask(g, load, g.text.op("add", start, part), panel, count, _SECOND_CACHE)
    return True


def _ask(
    g: KernelEmitter, load: BufferLoad, index: Value, ahead: int, count: int, closeness: int
) -> None:
    """Ask for `count` elements, so many ahead of the i64 value `index`."""
    size = load.buffer.dtype.element.itemsize
    start = g.text.op("mul", index, size)
    for line in range(0, min(count * size, _MOST), _LINE):
        # As addresses are, modulo 2**64.
        offset = g.text.op("add", start, (ahead * size + line) % (1 << 64))
        # It may lie behind the end: nobody reads it.
        far = g.text.at(g.pointer(load.buffer.data), offset)
        g.module.declare("llvm.prefetch.p0", "void", ("ptr", "i32", "i32", "i32"))
        g.text.call("llvm.prefetch.p0", far, 0, closeness, 1)
