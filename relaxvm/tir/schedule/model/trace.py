"""The trace of a schedule: the primitives applied, as data that can be saved, replayed and changed.

As JSON a trace is ``[[[name, {argument: value}, [outputs]], ...], [[position, decision], ...]]``,
where random variables are named b0, l1, v2, ... in the order in which they appear.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....base import ScheduleError, TIRError
from ....ir import descend
from ...index_map import IndexMap, size_name
from .primitive import PLACES, PRIMITIVES, BlockRV, LoopRV, Primitive


class Instruction:
    """One application of a primitive. `args` hold random variables; `outputs` are those it made.
    Two are equal if they are the same.

    kind    a `Primitive`, as `InstructionKind.get` gives it
    inputs  the arguments that are blocks, loops or numbers to come, in the order of the primitive
    attrs   the other ones, in their order; what is left out has its default
    """

    __slots__ = ("args", "kind", "outputs")

    def __init__(
        self, kind: Primitive, inputs: Sequence[Any], attrs: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        self.kind, self.outputs = kind, tuple(outputs)
        self.args: Mapping[str, Any] = kind.arguments(inputs, attrs)

    @staticmethod
    def of(kind: Primitive, args: Mapping[str, Any], outputs: tuple[Any, ...]) -> Instruction:
        """With the arguments by name."""
        inst = Instruction.__new__(Instruction)
        inst.kind, inst.args, inst.outputs = kind, args, outputs
        return inst

    @property
    def name(self) -> str:
        return self.kind.method

    @property
    def inputs(self) -> list[Any]:
        """The arguments that may be random variables, those of lists one by one."""
        inputs: list[Any] = []
        for name, value in self.args.items():
            if self.kind.kinds[name].is_input:
                inputs += value if isinstance(value, (list, tuple)) else [value]
        return inputs

    @property
    def attrs(self) -> dict[str, Any]:
        """The other arguments by name."""
        return {k: v for k, v in self.args.items() if not self.kind.kinds[k].is_input}

    def repeat(self, sch: Any, values: dict[int, Any], decision: Any) -> None:
        """Apply it to another schedule. `values` are random variables there, by the identity of
        those here; its outputs are added.
        """
        args = {name: _replaced(v, values) for name, v in self.args.items()}
        if self.kind.random:
            args["decision"] = decision
        results = sch._run(self.kind, args)
        if len(results) != len(self.outputs):
            raise ScheduleError(
                f"{self.name} gave {len(results)} results here, the trace has {len(self.outputs)}"
            )
        values.update({id(old): new for old, new in zip(self.outputs, results)})

    def line(self, names: _Names, decision: Any = None) -> str:
        """As Python."""
        positional: list[str] = []
        named: list[str] = []
        for name, v in self.args.items():
            encoded = self.kind.kinds[name].encode(names, v)
            if self.kind.signature.parameters[name].kind.name == "VAR_POSITIONAL":
                positional += [_python(e, w) for e, w in zip(encoded, v)]
            else:
                named.append(f"{name}={_python(encoded, v)}")
        if decision is not None:
            named.append(f"decision={decision!r}")
        call = f"sch.{self.name}({', '.join([*positional, *named])})"
        outputs = ", ".join(names.define(o) for o in self.outputs)
        # A list of one is taken apart, too.
        outputs += "," if len(self.outputs) == 1 and self.kind.gives_list else ""
        return f"{outputs} = {call}" if outputs else call

    def __repr__(self) -> str:
        return self.line(_Unnamed())


def _variables(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [v for each in value for v in _variables(each)]
    if isinstance(value, dict):
        return [v for each in value.values() for v in _variables(each)]
    if isinstance(value, (BlockRV, LoopRV)):
        return [value]
    inner = [v for c in getattr(value, "_children_", ()) for v in _variables(c)]
    return [value] if type(value).__name__ in ("Var", "SizeVar") else inner


class _Names:
    """Names for random variables, given in order."""

    def __init__(self, free: Callable[[str], Any] | None = None) -> None:
        self._names: dict[int, str] = {}
        self._keep: list[Any] = []
        self._by_name: dict[str, Any] = {}
        self._free = free
        self.sizes: dict[str, None] = {}  # names of symbolic sizes, in the order of their use

    def define(self, rv: Any, name: str | None = None) -> str:
        letter = "b" if isinstance(rv, BlockRV) else "l" if isinstance(rv, LoopRV) else "v"
        if name is None:
            name = f"{letter}{len(self._names)}"
        self._names[id(rv)] = name
        self._keep.append(rv)
        self._by_name[name] = rv
        return name

    def name_of(self, rv: Any) -> str | None:
        if rv is None or isinstance(rv, str):
            return rv
        known = self._names.get(id(rv))
        if known is not None:
            return known
        name: str | None = getattr(rv, "name", None)
        if name is None:
            raise ScheduleError("the trace uses a random variable that no instruction made")
        self.sizes.setdefault(name)
        return f"${name}"

    def of_name(self, name: Any) -> Any:
        if name is None or name in PLACES:
            return name
        if not isinstance(name, str):
            raise ScheduleError(f"not the name of a random variable: {name!r}")
        if name.startswith("$") and self._free is not None:
            return self._free(name[1:])
        if name not in self._by_name:
            raise ScheduleError(f"the trace uses {name!r}, which no instruction made")
        return self._by_name[name]


class _Unnamed(_Names):
    """One name for all, where an instruction is shown alone."""

    def name_of(self, rv: Any) -> str | None:
        return rv if rv is None or isinstance(rv, str) else "_"

    def define(self, rv: Any, name: str | None = None) -> str:
        return "_"


def _parsed(
    json_obj: Any,
) -> tuple[list[tuple[Primitive, dict[str, Any], list[str]]], dict[int, Any]]:
    """(instructions, decisions) of the JSON form of a trace, of which nothing is believed."""
    data = json_obj
    if isinstance(json_obj, (str, bytes, bytearray)):
        try:
            data = json.loads(json_obj)
        except (ValueError, RecursionError) as error:
            raise ScheduleError(f"not the JSON form of a trace: {error}") from None
    _check_depth(data)
    pair = isinstance(data, (list, tuple)) and len(data) == 2
    if not (pair and all(isinstance(part, (list, tuple)) for part in data)):
        raise ScheduleError("not the JSON form of a trace: wanted [instructions, decisions]")
    rows = [_parsed_row(row) for row in data[0]]
    decisions: dict[int, Any] = {}
    for each in data[1]:
        position = each[0] if isinstance(each, (list, tuple)) and len(each) == 2 else None
        if type(position) is not int or not 0 <= position < len(rows):
            raise ScheduleError("not the JSON form of a trace: a decision is [position, decision]")
        kind = rows[position][0]
        if not kind.random or position in decisions:
            why = "has two decisions" if kind.random else "draws nothing, but has a decision"
            raise ScheduleError(f"instruction {position} of the trace, {kind.method}, {why}")
        decisions[position] = each[1]
    return rows, decisions


def _parsed_row(row: Any) -> tuple[Primitive, dict[str, Any], list[str]]:
    name, args, outputs = row if isinstance(row, (list, tuple)) and len(row) == 3 else ("", 0, 0)
    if not (
        isinstance(name, str)
        and isinstance(args, dict)
        and isinstance(outputs, (list, tuple))
        and all(isinstance(o, str) for o in outputs)
    ):
        raise ScheduleError(
            "not the JSON form of a trace: an instruction is [name, {argument: value}, [outputs]]"
        )
    kind = PRIMITIVES.get(name)
    if kind is None:
        raise ScheduleError(f"the trace has the unknown instruction {name!r}")
    unknown = [k for k in args if k not in kind.signature.parameters]
    if unknown:
        raise ScheduleError(f"{name} has no argument {', '.join(sorted(unknown))}")
    missing = kind.missing(args)
    if missing:
        raise ScheduleError(f"{name} wants the argument {', '.join(missing)}")
    return kind, args, list(outputs)


def _check_depth(data: Any) -> None:
    """Refuse what is nested so deeply that no schedule can have made it."""

    def below(item: tuple[Any, int]) -> list[tuple[Any, int]]:
        value, depth = item
        if isinstance(value, dict):
            value = value.values()
        elif not isinstance(value, (list, tuple)):
            return []
        return [(v, depth + 1) for v in value]

    if any(depth > _MOST_DEPTH for _, depth in descend((data, 0), below)):
        raise ScheduleError(f"not the JSON form of a trace: nested more than {_MOST_DEPTH} deep")


_MOST_DEPTH = 64


class Trace:
    """Instructions with the decisions of the random ones, by instruction or by its position."""

    def __init__(
        self, insts: Sequence[Instruction] = (), decisions: Mapping[Any, Any] | None = None
    ) -> None:
        self.insts: list[Instruction] = list(insts)
        # position of the instruction -> its decision
        self._decisions: dict[int, Any] = {
            k if type(k) is int else self._position(k): d for k, d in (decisions or {}).items()
        }

    @property
    def decisions(self) -> dict[Instruction, Any]:
        """Instruction -> decision."""
        return {self.insts[k]: d for k, d in self._decisions.items()}

    def copy(self) -> Trace:
        """An equal trace that grows on its own."""
        return Trace(self.insts, self._decisions)

    def append(self, inst: Instruction, decision: Any = None) -> None:
        """Add an instruction at the end."""
        if decision is not None:
            self._decisions[len(self.insts)] = decision
        self.insts.append(inst)

    def pop(self) -> Instruction | None:
        """Take the last instruction off; None if there is none."""
        if not self.insts:
            return None
        self._decisions.pop(len(self.insts) - 1, None)
        return self.insts.pop()

    def _position(self, inst: Instruction) -> int:
        for k, each in enumerate(self.insts):
            if each is inst:
                return k
        raise ScheduleError(f"the instruction {inst.name} is not in this trace")

    def get_decision(self, inst: Instruction) -> Any:
        """The decision of an instruction, or None."""
        return self._decisions.get(self._position(inst))

    def with_decision(
        self, inst: Instruction, decision: Any, remove_postproc: bool = False
    ) -> Trace:
        """A copy in which one instruction has another decision."""
        trace = self.copy()
        trace._decisions[self._position(inst)] = decision
        return trace.without_postproc() if remove_postproc else trace

    def without_postproc(self) -> Trace:
        """The part before `enter_postproc`."""
        for k, inst in enumerate(self.insts):
            if inst.name == "enter_postproc":
                kept = {n: d for n, d in self._decisions.items() if n < k}
                return Trace(self.insts[:k], kept)
        return self.copy()

    def simplified(self, remove_postproc: bool = False) -> Trace:
        """A copy without the instructions that only look and whose outputs nobody uses."""
        source = self.without_postproc() if remove_postproc else self
        used: set[int] = set()
        kept: list[int] = []
        for k in range(len(source.insts) - 1, -1, -1):
            inst = source.insts[k]
            if inst.kind.is_pure and not any(id(o) in used for o in inst.outputs):
                continue
            kept.append(k)
            used.update(id(v) for value in inst.args.values() for v in _variables(value))
        kept.reverse()
        decisions = {n: source._decisions[k] for n, k in enumerate(kept) if k in source._decisions}
        return Trace([source.insts[k] for k in kept], decisions)

    # -- replay ------------------------------------------------------------------------------------

    def apply_to_schedule(
        self,
        sch: Any,
        remove_postproc: bool = False,
        decision_provider: Callable[[Instruction, Any, Any, Any], Any] | None = None,
    ) -> None:
        """Apply the instructions to another schedule.

        decision_provider  (instruction, inputs, attrs, decision) -> decision, for the random ones
        """
        values: dict[int, Any] = {}
        for k, inst in enumerate(self.insts):
            if remove_postproc and inst.name == "enter_postproc":
                break
            decision = self._decisions.get(k)
            if inst.kind.random and decision_provider is not None:
                inputs = [_replaced(v, values) for a in inst.args.values() for v in _variables(a)]
                decision = decision_provider(inst, inputs, inst.attrs, decision)
            inst.repeat(sch, values, decision)

    def apply_what_fits(self, sch: Any) -> None:
        """Apply the instructions to a schedule of another function, without those that are about
        blocks that it does not have, or that it refuses.
        """
        values: dict[int, Any] = {}
        for k, inst in enumerate(self.insts):
            if all(id(v) in values for a in inst.args.values() for v in _variables(a)):
                with contextlib.suppress(ScheduleError):
                    inst.repeat(sch, values, self._decisions.get(k))

    # -- text --------------------------------------------------------------------------------------

    def as_json(self, remove_postproc: bool = False) -> list[Any]:
        """The trace as JSON data (see the top of this file)."""
        source = self.without_postproc() if remove_postproc else self
        names = _Names()
        rows: list[Any] = []
        for inst in source.insts:
            args = {k: inst.kind.kinds[k].encode(names, v) for k, v in inst.args.items()}
            rows.append([inst.name, args, [names.define(o) for o in inst.outputs]])
        return [rows, [[k, d] for k, d in sorted(source._decisions.items())]]

    @staticmethod
    def apply_json_to_schedule(json_obj: Any, sch: Any) -> None:
        """Apply a trace saved as JSON to a schedule. Raises ScheduleError if it is none, or if an
        instruction is refused; those before it have been applied then.
        """
        rows, decisions = _parsed(json_obj)
        names = _Names(sch.get_size)
        for position, (kind, args, outputs) in enumerate(rows):
            try:
                arguments = {k: kind.kinds[k].decode(names, v) for k, v in args.items()}
            except TIRError as error:
                raise ScheduleError(f"{kind.method} of the trace: {error}") from error
            if kind.random:
                arguments["decision"] = decisions.get(position)
            results = sch._run(kind, arguments)
            if len(results) != len(outputs):
                raise ScheduleError(
                    f"{kind.method} gave {len(results)} results here, the trace has {len(outputs)}"
                )
            for rv, output in zip(results, outputs):
                if output not in PLACES:  # as older traces name them
                    names.define(rv, output)

    def as_python(self, remove_postproc: bool = False) -> list[str]:
        """One line of Python per instruction, after one for each symbolic size that is used."""
        source = self.without_postproc() if remove_postproc else self
        names = _Names()
        lines: list[str] = []
        for k, inst in enumerate(source.insts):
            lines.append(inst.line(names, source._decisions.get(k)))
        sizes = [f"{size_name(f'${n}')} = sch.get_size({n!r})" for n in names.sizes]
        return [*sizes, *lines]

    def __str__(self) -> str:
        body = self.as_python() or ["pass"]
        head = ["# from relaxvm import tir", "def apply_trace(sch: tir.Schedule) -> None:"]
        return "\n".join([*head, *(f"  {line}" for line in body)])

    def show(self, **options: Any) -> None:
        """Print the trace as Python."""
        print(self)


def _replaced(value: Any, values: Mapping[int, Any]) -> Any:
    if id(value) in values:
        return values[id(value)]
    if isinstance(value, (list, tuple)):
        return [_replaced(v, values) for v in value]
    if isinstance(value, dict):
        return {k: _replaced(v, values) for k, v in value.items()}
    if hasattr(value, "_map_children_"):
        return value._map_children_(lambda c: _replaced(c, values))
    return value


_TREES = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%"}


def _python(encoded: Any, value: Any) -> str:
    """JSON data of an argument as Python text: names of random variables without quotes."""
    if isinstance(value, IndexMap):
        return value.to_python()
    if isinstance(encoded, str) and not isinstance(value, str):
        return size_name(encoded)
    if isinstance(encoded, list) and hasattr(value, "_children_") and len(encoded) == 3:
        a, b = _python(encoded[1], value.a), _python(encoded[2], value.b)
        if encoded[0] in _TREES:
            return f"({a} {_TREES[encoded[0]]} {b})"
        return f"{encoded[0].lower()}({a}, {b})"
    if isinstance(encoded, list) and isinstance(value, (list, tuple)):
        return f"[{', '.join(_python(e, v) for e, v in zip(encoded, value))}]"
    if isinstance(encoded, dict) and "rv" in encoded:
        return str(encoded["rv"])
    if isinstance(encoded, dict) and "dict" in encoded:
        inner = encoded["dict"].items()
        return "{" + ", ".join(f"{k!r}: {_python(e, value[k])}" for k, e in inner) + "}"
    return repr(encoded)
