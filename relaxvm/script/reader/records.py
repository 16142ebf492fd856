"""What the functions of `T`, `R` and `I` give where they stand for a statement: plain descriptions.

`T.block("b")` describes a block, `T.grid(4, 4)` two loops, `T.reads(A[0])` a declaration. The
parsers hold one table each from the class of a record to what it builds; outside script text a
record does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...tir import Buffer

__all__ = [
    "AllocBuffer",
    "Allocate",
    "AllocateConst",
    "Assert",
    "Attr",
    "Axis",
    "BlockAttr",
    "BlockSpec",
    "Dataflow",
    "DeclBuffer",
    "EnvThread",
    "Eval",
    "FuncAttr",
    "Init",
    "LaunchThread",
    "LetSpec",
    "Loop",
    "Loops",
    "MatchBuffer",
    "MatchCastSpec",
    "MetaVar",
    "ModuleAttrs",
    "ModuleGlobalInfos",
    "Output",
    "Reads",
    "Record",
    "Remap",
    "Store",
    "Where",
    "Writes",
]


class Record:
    """A description of something script text may contain. `shown` is how it is called there."""

    shown = "this"


@dataclass(eq=False)
class Loop(Record):
    """One loop: ``start .. stop`` of a kind."""

    start: Any
    stop: Any
    kind: str
    thread: str = ""
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Loops(Record):
    """Loops for a `for` statement, outermost first."""

    shown = "a loop (T.serial, T.grid, ...)"
    loops: tuple[Loop, ...]


@dataclass(eq=False)
class BlockSpec(Record):
    """``T.block(name)``"""

    shown = "T.block"
    name: str = ""
    no_realize: bool = False


class Init(Record):
    """``T.init()``"""

    shown = "T.init"


@dataclass(eq=False)
class Axis(Record):
    """``T.axis.spatial(dom, value)`` and its kin."""

    shown = "T.axis"
    kind: str
    dom: Any
    value: Any
    dtype: str | None = None


@dataclass(eq=False)
class Remap(Record):
    """``T.axis.remap(kinds, loop variables)``"""

    shown = "T.axis.remap"
    kinds: Any
    values: Any
    dtype: str | None = None


@dataclass(eq=False)
class Reads(Record):
    """``T.reads(...)``"""

    shown = "T.reads"
    regions: tuple[Any, ...]


@dataclass(eq=False)
class Writes(Record):
    """``T.writes(...)``"""

    shown = "T.writes"
    regions: tuple[Any, ...]


@dataclass(eq=False)
class Where(Record):
    """``T.where(predicate)``"""

    shown = "T.where"
    predicate: Any


@dataclass(eq=False)
class BlockAttr(Record):
    """``T.block_attr({...})``"""

    shown = "T.block_attr"
    attrs: Any


@dataclass(eq=False)
class FuncAttr(Record):
    """``T.func_attr({...})`` or ``R.func_attr({...})``"""

    shown = "func_attr"
    attrs: Any


@dataclass(eq=False)
class MatchBuffer(Record):
    """``T.match_buffer(parameter or region, ...)``; `buffer` is the new view, named when it is
    bound.
    """

    shown = "T.match_buffer"
    source: Any
    buffer: Buffer


@dataclass(eq=False)
class AllocBuffer(Record):
    """``T.alloc_buffer(...)``"""

    shown = "T.alloc_buffer"
    buffer: Buffer


@dataclass(eq=False)
class DeclBuffer(Record):
    """``T.decl_buffer(...)``; without `data` the memory is allocated too."""

    shown = "T.decl_buffer"
    buffer: Buffer
    allocates: bool


@dataclass(eq=False)
class Allocate(Record):
    """``T.allocate(...)``"""

    shown = "T.allocate"
    extents: Any
    dtype: str
    scope: str
    condition: Any
    annotations: Any


@dataclass(eq=False)
class AllocateConst(Record):
    """``T.allocate_const(...)``"""

    shown = "T.allocate_const"
    data: Any
    dtype: str
    extents: Any
    annotations: Any


@dataclass(eq=False)
class Attr(Record):
    """``T.attr(node, key, value)``"""

    shown = "T.attr"
    node: Any
    key: str
    value: Any


@dataclass(eq=False)
class Assert(Record):
    """``T.Assert(condition, message)``"""

    shown = "T.Assert"
    condition: Any
    message: Any


@dataclass(eq=False)
class LetSpec(Record):
    """``T.LetStmt(value)``"""

    shown = "T.LetStmt"
    value: Any
    var: Any = None


@dataclass(eq=False)
class Eval(Record):
    """``T.evaluate(value)``"""

    shown = "T.evaluate"
    value: Any


@dataclass(eq=False)
class Store(Record):
    """``T.buffer_store(buffer, value, indices)``"""

    shown = "T.buffer_store"
    buffer: Any
    value: Any
    indices: Any


@dataclass(eq=False)
class EnvThread(Record):
    """``T.env_thread(tag)``"""

    shown = "T.env_thread"
    tag: str
    dtype: str


@dataclass(eq=False)
class LaunchThread(Record):
    """``T.launch_thread(thread, extent)``"""

    shown = "T.launch_thread"
    thread: Any
    extent: Any


@dataclass(eq=False)
class MetaVar(Record):
    """``T.meta_var(value)``: the name stands for the expression itself."""

    shown = "T.meta_var"
    value: Any


class Dataflow(Record):
    """``R.dataflow()``"""

    shown = "R.dataflow"


@dataclass(eq=False)
class Output(Record):
    """``R.output(...)``"""

    shown = "R.output"
    values: tuple[Any, ...]


@dataclass(eq=False)
class MatchCastSpec(Record):
    """``R.match_cast(value, struct_info)``"""

    shown = "R.match_cast"
    value: Any
    struct_info: Any


@dataclass(eq=False)
class EmitTe(Record):
    """``R.emit_te(func, *args, **keywords)``"""

    shown = "R.emit_te"
    func: Any
    args: tuple[Any, ...]
    keywords: dict[str, Any]


@dataclass(eq=False)
class ModuleAttrs(Record):
    """``I.module_attrs({...})``"""

    shown = "I.module_attrs"
    attrs: Any


@dataclass(eq=False)
class ModuleGlobalInfos(Record):
    """``I.module_global_infos({...})``"""

    shown = "I.module_global_infos"
    infos: Any
