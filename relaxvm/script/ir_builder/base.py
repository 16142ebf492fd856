"""`IRBuilder`: carries out at once what the functions of `I`, `R` and `T` describe."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ...base import BuilderError
from ...relax import BlockBuilder
from ..reader import records as rec
from ..reader.checks import check_function
from ..reader.records import current_builder, only_describing
from .writers import Entered, GraphWriter, LoopWriter, ModuleWriter, Place, named

IRBuilderFrame = rec.Record
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_BODIES = (
    rec.BlockSpec,
    rec.Init,
    rec.Loops,
    rec.Allocate,
    rec.AllocateConst,
    rec.Attr,
    rec.Assert,
    rec.DeclBuffer,
    rec.LaunchThread,
    rec.LetSpec,
    rec.Dataflow,
)
_BODY_STEPS = ("while_", "if_", "then", "otherwise_")


class IRBuilder:
    """Writes a module, a function or a statement (see the top of this file)."""

    def __init__(self) -> None:
        self._module: ModuleWriter | None = None
        self._writers: list[Any] = []
        self._entered: list[tuple[rec.Record, Entered]] = []
        # Descriptions that wait to be entered.
        self._waiting: dict[int, rec.Record] = {}
        self._result: Any = None

    # -- what users call

    def __enter__(self) -> IRBuilder:
        self._token = current_builder.set(self)
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        current_builder.reset(self._token)
        if kind is None and self._result is None and self._writers:
            self._result = self._writers.pop().loose_statement()

    def get(self) -> Any:
        """The module, function or statement written inside ``with IRBuilder()``."""
        for record in self._waiting.values():
            raise BuilderError(f"{record.shown} is not entered: write `with {record.shown}(...):`")
        if self._result is None:
            raise BuilderError("IRBuilder.get: nothing has been written inside `with IRBuilder():`")
        return self._result

    @staticmethod
    def current() -> IRBuilder:
        """The builder whose `with` we are in. Raises BuilderError if there is none."""
        builder = current_builder.get()
        if builder is None:
            raise BuilderError("no IRBuilder is current; write inside `with IRBuilder():`")
        return builder

    @staticmethod
    def is_in_scope() -> bool:
        """Whether there is a current builder."""
        return current_builder.get() is not None

    @staticmethod
    def name(name: str, value: Any) -> Any:
        """`value`, a variable or buffer that the builder has just made, under that name."""
        return named(name, value)

    @staticmethod
    def name_many(names: Sequence[str], values: Sequence[Any]) -> list[Any]:
        """`values` under `names`."""
        if len(names) != len(values):
            raise BuilderError(f"name_many: {len(names)} names for {len(values)} values")
        return [named(name, value) for name, value in zip(names, values)]

    # -- what the records call

    def take(self, record: rec.Record) -> Any:
        """Carry `record` out and give its value; one with a body is given back, to be entered."""
        if isinstance(record, _BODIES) or getattr(record, "method", "") in _BODY_STEPS:
            self._waiting[id(record)] = record
            return record
        with only_describing():
            return self._writer_for(record).take(record, self._place())

    def enter(self, record: rec.Record) -> Any:
        """Begin the body of `record`; gives what ``as`` binds."""
        self._waiting.pop(id(record), None)
        place = self._place()
        if isinstance(record, rec.Definition):
            body = self._definition(record, place)
        else:
            body = self._writer_for(record).within(record, place)
        value = body.__enter__()
        self._entered.append((record, body))
        return value

    def leave(self, record: rec.Record, *error: Any) -> None:
        """End the body of `record`."""
        if not self._entered or self._entered[-1][0] is not record:
            raise BuilderError(f"{record.shown} ends before what was begun inside it")
        self._entered.pop()[1].__exit__(*error)

    def _place(self) -> Place:
        frame: Any = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
            frame = frame.f_back
        return Place(frame.f_code.co_filename, frame.f_lineno)

    def _writer_for(self, record: rec.Record) -> Any:
        if record.shown.startswith("I."):
            if self._module is None:
                raise BuilderError(f"{record.shown} stands inside `with I.ir_module():`")
            return self._module
        if not self._writers:
            if record.shown.startswith("R."):
                raise BuilderError(f"{record.shown} stands inside `with R.function():`")
            writer = LoopWriter(self._place())
            writer.begin()
            self._writers.append(writer)
        writer = self._writers[-1]
        if record.shown[:2] in ("T.", "R.") and record.shown[:2] != writer.letter:
            raise BuilderError(f"{record.shown} does not stand in a function of {writer.letter[0]}")
        return writer

    def _definition(self, record: rec.Definition, place: Place) -> Entered:
        if record.shown == "I.ir_module":
            return self._ir_module(place)
        kind = LoopWriter if record.shown == "T.prim_func" else GraphWriter
        return self._function(kind(place), record.options, place)

    @contextlib.contextmanager
    def _ir_module(self, place: Place) -> Iterator[None]:
        if self._entered:
            raise BuilderError("I.ir_module stands inside nothing else")
        self._module = ModuleWriter()
        try:
            yield
            self._result = self._module.finish(place)
        finally:
            self._module = None

    @contextlib.contextmanager
    def _function(self, writer: Any, options: Any, place: Place) -> Iterator[None]:
        unknown = options.keys() - {"private", "is_private", "pure", "is_pure", "check_well_formed"}
        if unknown:
            raise BuilderError(f"a function has no option {', '.join(sorted(unknown))}")
        if self._writers:
            raise BuilderError("a function does not stand inside another")
        writer.private = bool(options.get("private", options.get("is_private", False)))
        writer.pure = bool(options.get("pure", options.get("is_pure", True)))
        writer.graphs = self._module.builder if self._module is not None else BlockBuilder()
        self._writers.append(writer)
        try:
            with writer.writing():
                yield
            function = writer.function
        finally:
            self._writers.remove(writer)
        if self._module is not None:
            self._module.add(writer.name, function)
            return
        if options.get("check_well_formed", True):
            check_function(place.source, place, function)
        self._result = function
