"""The ways out of a compiled VM function: a result, an error, or the interpreter.

Where a check fails that the compiler expects to hold, the function *leaves*: the live registers are
written to memory and the interpreter goes on from the same instruction, so that errors are its own,
word for word.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from ...base import llvm
from ...runtime import INTERPRETER, NATIVE, Described, FrameLayout, ResolvedFunction
from .vm_emit import CTX, DEPTH, SCRATCH, SLOTS, SPILL, Pieces
from .vm_flow import flow_of
from .vm_values import (
    Boolean,
    Heap,
    Integer,
    Memory,
    Nothing,
    Obj,
    Place,
    Real,
    Shape,
    Size,
    Tensor,
    Value,
)

if TYPE_CHECKING:
    from .vm_program import Unit


MAX_SPILLED = 400_000
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "ne": operator.ne,
    "slt": operator.lt,
    "sgt": operator.gt,
    "ugt": lambda a, b: a % (1 << 64) > b % (1 << 64),
}


class Untranslatable(Exception):
    """The whole function stays with the interpreter."""


class Leaves(Exception):
    """From here on the interpreter runs the function: nothing more to emit in this block."""


class Exits(Pieces):
    """Emits a function with flow, registers and a frame, whose context is ``%ctx``.

    frame  the address of its frame, null as long as it has none
    known  what has been computed of sizes, or shown of them, on every way to here
    pc     the instruction being emitted
    steps  for each instruction where it runs, and why not natively
    env    what is known about the registers here
    exits  the results and the blocks they come from
    """

    def __init__(
        self, unit: Unit, text: llvm.Function, index: int, function: ResolvedFunction
    ) -> None:
        super().__init__(text, unit.words)
        self.unit = unit
        self.frame = llvm.constant(None, "ptr")
        self.known: dict[Any, llvm.Value] = {}
        self.index = index
        self.ops = function.ops
        self.registers = function.info.register_file_size
        flow = flow_of(self.ops, function.info.num_inputs, self.registers)
        if flow is None:
            raise Untranslatable("its control flow is too tangled")
        self.flow = flow
        self.layout = FrameLayout(function.plan)
        self.pc = 0
        self.steps: list[tuple[int, str]] = [(NATIVE, "")] * len(self.ops)
        self.env: dict[int, Value] = {}
        self.exits: list[tuple[llvm.Operand, str]] = []
        self._errors: list[tuple[int, str]] = []
        self._cold: list[str] = []
        self._leave = ""
        self._restart = ""
        self._only_checked = False
        self._start_env: dict[int, Value] = {}
        self._live: list[frozenset[int]] = []
        self._block = 0
        self._slots = 0
        self._scratch = 0
        self._canonical: dict[int, int] = {}
        self._spilled = 0
        self._spill_words = 0

    def fill(self, memory: llvm.Value, size_bytes: int, byte: int) -> None:
        """Set all bytes of `memory`."""
        if size_bytes:
            kinds = ("ptr", "i8", "i64", "i1")
            self.unit.generator.declare("llvm.memset.p0.i64", "void", kinds)
            self.text.call("llvm.memset.p0.i64", memory, byte, size_bytes, False)

    def load(self, place: Place, kind: str = "ptr") -> llvm.Value:
        """What lies at `place`."""
        if isinstance(place, llvm.Value):
            return place
        base, offset = place
        return self.field(self.ctx if base == "ctx" else self.frame, offset, kind)

    def in_context(self, name: str) -> Place:
        """The place of a word of the context."""
        return ("ctx", self.words[name])

    def scratch(self, count: int) -> llvm.Value:
        """Memory for `count` words, until the next call of this."""
        self._scratch = max(self._scratch, count)
        return SCRATCH

    def row(self, values: Sequence[llvm.Operand], kind: str = "ptr") -> llvm.Value:
        """The scratch memory holding these."""
        place = self.scratch(max(1, len(values)))
        for i, value in enumerate(values):
            self.text.store(value, self.text.at(place, 8 * i), 8, of=kind)
        return place

    def _canonical_place(self, register: int) -> llvm.Value:
        slot = self._canonical.get(register)
        if slot is None:
            slot = self._canonical[register] = self._slots
            self._slots += 1
        return self.text.at(SLOTS, 8 * slot)

    def load_canonical(self, register: int) -> llvm.Value:
        """The object of a register that lives in memory."""
        return self.text.load("ptr", self._canonical_place(register))

    def guard(self, bad: bool | llvm.Value) -> None:
        """Leave where `bad` (i1) holds. Before anything of the instruction has an effect."""
        if bad is False:
            return
        if bad is True:
            self.leave("what it checks never holds")
        self.go_if(bad, self.leave_label())

    def refuse(self, how: str, a: Size, b: Size) -> None:
        """The same where ``a how b``, which is not asked again: it does not hold from there on."""
        if a == b:
            a = b = 0
        if isinstance(a, int) and isinstance(b, int):
            self.guard(_COMPARISONS[how](a, b))
        elif (how, a, b) not in self.known:
            bad = self.known[how, a, b] = self.text.op(f"icmp {how}", a, b)
            self.guard(bad)

    def leave(self, reason: str) -> NoReturn:
        """Leave in any case."""
        self.steps[self.pc] = (INTERPRETER, reason)
        self.text.jump(self.leave_label())
        raise Leaves

    def leave_label(self) -> str:
        if self._only_checked:
            return self._restart_label()
        if not self._leave:
            self._leave = self.text.label("leave")
            with self.aside(self._leave):
                self.go_on_outside()
        return self._leave

    def _restart_label(self) -> str:
        """Where the checks of the arguments leave to: the interpreter begins from the start. One
        way out for all of them: each writes down every argument.
        """
        if not self._restart:
            self._restart = self.text.label("restart")
            now = self.pc, self.env
            self.pc, self.env = 0, self._start_env
            with self.aside(self._restart):
                self.go_on_outside()
            self.pc, self.env = now
        return self._restart

    def go_on_outside(self, code: llvm.Operand = 0) -> None:
        """End the block: the interpreter goes on, or, if it is not 0, raises what failure `code`
        (i64) of the kernel here means.
        """
        site = self._spill()
        result = self.text.call("relaxvm_vm_leave", CTX, site, code, SPILL, self.frame, DEPTH)
        self.exits.append((result, self.text.block))
        self.text.jump("exit")

    @contextmanager
    def aside(self, label: str) -> Iterator[None]:
        """What is emitted inside goes to the end of the function, under `label`."""
        lines: list[str] = []
        with self.text.into(lines, ""):
            self.text.start(label)
            yield
        self._cold += lines

    def _spill(self) -> int:
        """Write down the live registers; gives the number of the site."""
        words: dict[Place, int] = {}
        live = self._live[self.pc - self.flow.blocks[self._block][0]]
        described = []
        for register in sorted(live):
            if register in self.layout.objects:
                continue
            value = self.env.get(register)
            if value is None:
                # Loaded here, off the main path: not to be remembered.
                value = Obj(self.load_canonical(register))
            described.append((register, self._described(value, words)))
        for place, i in words.items():
            self.text.store(self.load(place), self.text.at(SPILL, 8 * i), 8)
        self._spill_words = max(self._spill_words, len(words), 1)
        self._spilled += len(words) + 1
        if self._spilled > MAX_SPILLED:
            raise Untranslatable("too many values are alive at once")
        return self.unit.site(self.index, self.pc, tuple(described))

    def _described(self, value: Value, words: dict[Place, int]) -> tuple[Any, ...]:
        """How to rebuild `value` from the words, see `runtime.compiled_state`."""

        def word(place: Place) -> int:
            return words.setdefault(place, len(words))

        def sized(value: Size) -> Any:
            return value if isinstance(value, int) else (Described.WORD, word(value))

        def holder(arena: int, place: Place | None) -> tuple[Any, ...]:
            if arena >= 0:
                return (Described.ARENA, arena)
            assert place is not None
            return (Described.OBJECT, word(place))

        if value.box is not None:
            return (Described.OBJECT, word(value.box))
        if isinstance(value, Nothing):
            return (Described.NONE,)
        if isinstance(value, Integer):
            return (Described.INT, sized(value.value))
        if isinstance(value, Boolean):
            return (Described.BOOL, word(self.text.cast("zext", value.value, "i64")))
        if isinstance(value, Real):
            return (Described.FLOAT, word(value.value))
        if isinstance(value, Shape):
            return (Described.SHAPE, tuple(map(sized, value.dims)))
        if isinstance(value, Tensor):
            dims = tuple(map(sized, value.dims))
            kept = holder(value.arena, value.holder)
            return (Described.TENSOR, str.__str__(value.dtype), dims, word(value.data), kept)
        if isinstance(value, Memory):
            kept = holder(value.arena, value.holder)
            return (Described.STORAGE, sized(value.size), word(value.base), kept, value.scope)
        assert isinstance(value, Heap)
        return (Described.HEAP, value.size, word(value.memory))

    def fail_if_null(self, pointer: llvm.Value) -> None:
        """Go to the error path where `pointer` is null: an error is set."""
        self.fail_if(self.text.op("icmp eq", pointer, None))

    def fail_if(self, failed: llvm.Value) -> None:
        """Go to the error path where `failed` (i1) holds: an error is set."""
        self._errors.append((self.pc, self.text.block))
        self.go_if(failed, "error")
