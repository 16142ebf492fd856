"""Which buffers a function reads and writes, and of which it reads what data says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir import INTRINSICS, Call, GlobalVar, IntImm, Let, Node, Var, walk
from ..stmt import Buffer, BufferLoad, BufferStore, LetStmt, MatchBufferRegion, PrimFunc, body_nodes

_KINDS = frozenset({Buffer, BufferLoad, BufferStore, Call, Let, LetStmt, MatchBufferRegion})


def access_nodes(func: PrimFunc) -> list[Any]:
    """What `buffer_accesses` and `gathered_data` look at, for who asks both."""
    return [n for n in body_nodes(func) if type(n) in _KINDS]


def buffer_accesses(func: PrimFunc, nodes: Iterable[Any] | None = None) -> dict[Buffer, str]:
    """How each buffer that `func` touches is used: "r", "w" or "rw".

    nodes  its `access_nodes`, if they are at hand

    Views of one memory (match_buffer, declared buffers, pointers kept in lets) count for each
    other. A buffer whose address leaves the function counts as "rw".
    """
    groups = _Groups()
    used: dict[int, set[str]] = {}
    buffers: dict[int, Buffer] = {id(b): b for b in func.buffer_map.values()}

    def mark(data: Var, how: str) -> None:
        used.setdefault(id(data), set()).update(how)

    for n in access_nodes(func) if nodes is None else nodes:
        if isinstance(n, Buffer):
            buffers[id(n)] = n
        elif isinstance(n, BufferLoad):
            mark(n.buffer.data, "r")
        elif isinstance(n, BufferStore):
            mark(n.buffer.data, "w")
        elif isinstance(n, MatchBufferRegion):
            groups.join(n.buffer.data, n.source.buffer.data)
        elif isinstance(n, LetStmt) and n.var.dtype.is_handle:
            for inner in walk(n.value):
                if isinstance(inner, Var) and inner.dtype.is_handle:
                    groups.join(n.var, inner)
        elif isinstance(n, Call):
            for data, how in _escaping(n):
                mark(data, how)
    total: dict[int, set[str]] = {}
    for key, hows in used.items():
        total.setdefault(groups.root(key), set()).update(hows)
    result = {}
    for b in buffers.values():
        ways = total.get(groups.root(id(b.data)))
        if ways:
            result[b] = "rw" if len(ways) == 2 else "".join(ways)
    return result


def gathered_data(func: PrimFunc, nodes: Iterable[Any] | None = None) -> set[Var]:
    """The data of buffers that `func` reads only at places that data says: a gather's table.

    nodes  its `access_nodes`, if they are at hand
    """
    told: set[Var] = set()  # variables whose values depend on data

    def by_data(index: Node) -> bool:
        return any(isinstance(n, BufferLoad) or n in told for n in walk(index))

    loads: dict[Var, bool] = {}
    for n in access_nodes(func) if nodes is None else nodes:
        if isinstance(n, (Let, LetStmt)) and by_data(n.value):
            told.add(n.var)
        elif isinstance(n, BufferLoad) and loads.get(n.buffer.data, True):
            loads[n.buffer.data] = any(by_data(i) for i in n.indices)
    return {data for data, gathered in loads.items() if gathered}


def _escaping(n: Call) -> list[tuple[Any, str]]:
    """The memory that a call gets hold of, and what it may do with it."""
    if n.op is INTRINSICS["address_of"] and isinstance(n.args[0], BufferLoad):
        return [(n.args[0].buffer.data, "rw")]
    if n.op is INTRINSICS["tvm_access_ptr"]:
        mask = n.args[4]
        how = {1: "r", 2: "w"}.get(mask.value, "rw") if isinstance(mask, IntImm) else "rw"
        return [(n.args[1], how)] if isinstance(n.args[1], Var) else []
    handles: list[tuple[Any, str]] = []
    for a in n.args:
        # Node, because a call of a loop function may be given a whole buffer.
        arg: Node = a
        if isinstance(arg, Buffer):
            handles.append((arg.data, "rw"))
        elif isinstance(arg, Var) and arg.dtype.is_handle:
            handles.append((arg, "rw"))
    return handles if isinstance(n.op, GlobalVar) or handles else []


class _Groups:
    """Variables that point into the same memory, joined."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def root(self, key: int) -> int:
        while self._parent.get(key, key) != key:
            self._parent[key] = self._parent.get(self._parent[key], self._parent[key])
            key = self._parent[key]
        return key

    def join(self, a: Node, b: Node) -> None:
        self._parent[self.root(id(a))] = self.root(id(b))
