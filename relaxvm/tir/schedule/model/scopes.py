"""Which blocks of a scope depend on each other, and how: `ScheduleState.get_block_scope`."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from ....base import NamedTuple, ScheduleError
from ....ir import IRModule
from ...stmt import PrimFunc
from .facts import facts_of
from .state import Path, State, start


class DepKind(IntEnum):
    """RAW: the second reads what the first writes; WAW: both write it; WAR: the second writes what
    the first reads; OPAQUE: never given, since pointers are resolved by what blocks declare.
    """

    RAW = 0
    WAW = 1
    WAR = 2
    OPAQUE = 3


class Dependency(NamedTuple):
    """The block at `dst` runs after that at `src`, because of memory that both touch."""

    src: Path
    dst: Path
    kind: DepKind


class BlockScope:
    """The dependencies among the blocks directly in one block, in program order."""

    def __init__(self, state: State, scope: Path) -> None:
        self.dependencies: list[Dependency] = []
        blocks = [r.block for r in state.child_realizes(scope.stmt)]
        touched = []
        for b in blocks:
            facts = facts_of(state, b)
            own = facts.write_data() if facts.updates else set()
            touched.append((facts.read_data() | own, facts.write_data()))
        for k, (reads, writes) in enumerate(touched):
            for n in range(k + 1, len(blocks)):
                later_reads, later_writes = touched[n]
                ways = (
                    (DepKind.RAW, writes & later_reads),
                    (DepKind.WAW, writes & later_writes),
                    (DepKind.WAR, reads & later_writes - writes),
                )
                pair = state.path(blocks[k]), state.path(blocks[n])
                self.dependencies += [Dependency(*pair, kind) for kind, shared in ways if shared]

    def get_deps_by_src(self, block: Path) -> list[Dependency]:
        """What depends on a block."""
        return [d for d in self.dependencies if d.src.stmt is block.stmt]

    def get_deps_by_dst(self, block: Path) -> list[Dependency]:
        """What a block depends on."""
        return [d for d in self.dependencies if d.dst.stmt is block.stmt]


class ScheduleState(State):
    """Where the loops and blocks of a function are, and what depends on what.

    mod  a PrimFunc, or an IRModule with one
    """

    __slots__ = ()

    def __init__(
        self, mod: PrimFunc | IRModule, *, debug_mask: Any = "none", enable_check: bool = True
    ) -> None:
        functions = [mod] if isinstance(mod, PrimFunc) else []
        if isinstance(mod, IRModule):
            functions = [fn for fn in mod.functions.values() if isinstance(fn, PrimFunc)]
        if len(functions) != 1:
            raise ScheduleError(f"ScheduleState: wanted one loop function, got {len(functions)}")
        super().__init__(start(functions[0]).fn)

    @property
    def mod(self) -> IRModule:
        """The function, as "main" of a module."""
        return IRModule({"main": self.fn})

    def get_block_scope(self, block_sref: Path) -> BlockScope:
        """The dependencies among the blocks directly in a block."""
        return BlockScope(self, self.path(block_sref.stmt))

    get_sblock_scope = get_block_scope
