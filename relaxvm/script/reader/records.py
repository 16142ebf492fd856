"""What the functions of `T`, `R` and `I` give where they stand for a statement: plain descriptions.

`T.block("b")` describes a block, `T.grid(4, 4)` two loops, `T.reads(A[0])` a declaration. The
parsers hold one table each from the class of a record to what it builds. Inside ``with
IRBuilder():`` a record is carried out as soon as it is made; outside both it does nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from ...base import BuilderError
from ...tir import Buffer

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

current_builder: contextvars.ContextVar[Any] = contextvars.ContextVar(
    "relaxvm_ir_builder", default=None
)


def statement(describe: Callable[P, Any]) -> Callable[P, Any]:
    """A function of `T`, `R` or `I` that gives a record; the record is carried out at once, and
    the result given, while an IRBuilder is current.
    """

    @functools.wraps(describe)
    def said(*args: P.args, **keywords: P.kwargs) -> Any:
        record, builder = describe(*args, **keywords), current_builder.get()
        return record if builder is None or not isinstance(record, Record) else builder.take(record)

    return said


def marked(**marks: Any) -> Callable[[F], F]:
    """What a parser asks of a function before it calls it.

    script_language  the decorator makes what it stands on this: "tir", "relax", "module", "macro"
    takes_regions    elements of buffers among the arguments stand for regions
    """

    def mark(function: F) -> F:
        vars(function).update(marks)
        return function

    return mark


@contextlib.contextmanager
def only_describing() -> Iterator[None]:
    """Inside, records are for a parser, even if an IRBuilder is current."""
    token = current_builder.set(None)
    try:
        yield
    finally:
        current_builder.reset(token)


class Record:
    """A description of something script text may contain. `shown` is how it is called there.

    Inside ``with IRBuilder():`` those that have a body are entered: ``with T.block("b"):``.
    """

    shown = "this"

    def __enter__(self) -> Any:
        builder = current_builder.get()
        if builder is None:
            raise BuilderError(
                f"with {self.shown}: stands in script text, or inside `with IRBuilder():`"
            )
        return builder.enter(self)

    def __exit__(self, *error: Any) -> None:
        builder = current_builder.get()
        if builder is not None:
            builder.leave(self, *error)


class Definition(Record):
    """``T.prim_func(...)`` and its kin with options: a decorator; inside ``with IRBuilder():`` what
    the function is written under.
    """

    def __init__(
        self, shown: str, decorate: Callable[[Any, dict[str, Any]], Any], options: dict[str, Any]
    ) -> None:
        self.shown = shown
        self.options = options
        self._decorate = decorate

    def __call__(self, definition: Any) -> Any:
        return self._decorate(definition, self.options)


class Step(Record):
    """What only an IRBuilder carries out: the method of its writer, and the arguments."""

    def __init__(self, shown: str, method: str, args: tuple[Any, ...] = ()) -> None:
        self.shown = shown
        self.method = method
        self.args = args


@dataclass(eq=False)
class Loop(Record):
    """One loop: ``start .. stop`` of a kind."""

    start: Any
    stop: Any
    kind: str
    thread: str = ""
    step: Any = None
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
class Realize(Record):
    """``T.realize(region, scope, condition)``"""

    shown = "T.realize"
    region: Any
    scope: str
    condition: Any


@dataclass(eq=False)
class Jump(Record):
    """``T.break_loop()``, ``T.continue_loop()``"""

    shown = "a jump"
    leaves: bool


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
    predicate: Any = None


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
    """``R.dataflow()``; `output_vars` are the variables an IRBuilder has made its outputs."""

    shown = "R.dataflow"
    output_vars: tuple[Any, ...] = ()


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
