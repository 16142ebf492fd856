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
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ...base import BuilderError
from ...tir import Buffer

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:
    # Part of `typing` since Python 3.11; only type checkers read it.
    def dataclass_transform(**_):
        return lambda cls: cls


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


@dataclass_transform(eq_default=False)
class Record:
    """A description of something script text may contain. `shown` is how it is called there.

    A class of records is a dataclass, compared by identity; without a docstring, ``shown(...)``.
    Inside ``with IRBuilder():`` those that have a body are entered: ``with T.block("b"):``.
    """

    shown = "this"

    def __init_subclass__(cls, shown: str = "this") -> None:
        cls.shown, cls.__doc__ = shown, cls.__doc__ or f"``{shown}(...)``"
        dataclass(eq=False)(cls)

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


class Loop(Record):
    """One loop: ``start .. stop`` of a kind."""

    start: Any
    stop: Any
    kind: str
    thread: str = ""
    step: Any = None
    annotations: Mapping[str, Any] = field(default_factory=dict)


class Loops(Record, shown="a loop (T.serial, T.grid, ...)"):
    """Loops for a `for` statement, outermost first."""

    loops: tuple[Loop, ...]


class BlockSpec(Record, shown="T.block"):
    name: str = ""
    no_realize: bool = False


class Init(Record, shown="T.init"):
    """``T.init()``"""


class Axis(Record, shown="T.axis"):
    """``T.axis.spatial(dom, value)`` and its kin."""

    kind: str
    dom: Any
    value: Any
    dtype: str | None = None


class Remap(Record, shown="T.axis.remap"):
    kinds: Any
    values: Any
    dtype: str | None = None


class Reads(Record, shown="T.reads"):
    regions: tuple[Any, ...]


class Writes(Record, shown="T.writes"):
    regions: tuple[Any, ...]


class Where(Record, shown="T.where"):
    predicate: Any


class BlockAttr(Record, shown="T.block_attr"):
    attrs: Any


class FuncAttr(Record, shown="func_attr"):
    """``T.func_attr({...})`` or ``R.func_attr({...})``"""

    attrs: Any


class MatchBuffer(Record, shown="T.match_buffer"):
    """``T.match_buffer(parameter or region, ...)``; `buffer` is the new view, named when it is
    bound.
    """

    source: Any
    buffer: Buffer


class AllocBuffer(Record, shown="T.alloc_buffer"):
    buffer: Buffer


class DeclBuffer(Record, shown="T.decl_buffer"):
    """``T.decl_buffer(...)``; without `data` the memory is allocated too."""

    buffer: Buffer
    allocates: bool


class Allocate(Record, shown="T.allocate"):
    extents: Any
    dtype: str
    scope: str
    condition: Any
    annotations: Any


class AllocateConst(Record, shown="T.allocate_const"):
    data: Any
    dtype: str
    extents: Any
    annotations: Any


class Attr(Record, shown="T.attr"):
    node: Any
    key: str
    value: Any


class Assert(Record, shown="T.Assert"):
    condition: Any
    message: Any


class LetSpec(Record, shown="T.LetStmt"):
    value: Any
    var: Any = None


class Realize(Record, shown="T.realize"):
    region: Any
    scope: str
    condition: Any


class Jump(Record, shown="a jump"):
    """``T.break_loop()``, ``T.continue_loop()``"""

    leaves: bool


class Eval(Record, shown="T.evaluate"):
    value: Any


class Store(Record, shown="T.buffer_store"):
    buffer: Any
    value: Any
    indices: Any
    predicate: Any = None


class EnvThread(Record, shown="T.env_thread"):
    tag: str
    dtype: str


class LaunchThread(Record, shown="T.launch_thread"):
    thread: Any
    extent: Any


class MetaVar(Record, shown="T.meta_var"):
    """``T.meta_var(value)``: the name stands for the expression itself."""

    value: Any


class Dataflow(Record, shown="R.dataflow"):
    """``R.dataflow()``; `output_vars` are the variables an IRBuilder has made its outputs."""

    output_vars: tuple[Any, ...] = ()


class Output(Record, shown="R.output"):
    values: tuple[Any, ...]


class MatchCastSpec(Record, shown="R.match_cast"):
    value: Any
    struct_info: Any


class EmitTe(Record, shown="R.emit_te"):
    func: Any
    args: tuple[Any, ...]
    keywords: dict[str, Any]


class ModuleAttrs(Record, shown="I.module_attrs"):
    attrs: Any


class ModuleGlobalInfos(Record, shown="I.module_global_infos"):
    infos: Any
