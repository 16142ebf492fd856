"""What runs where: the instructions of a VM function, and who carries each out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ..base import NamedTuple, record, table
from .compiled_code import MODES
from .disasm import instruction_line
from .link import LinkedFunction
from .ops import OpKind

_CARRIED_OUT = {
    OpKind.BUILTIN: "a builtin, called by the interpreter",
    OpKind.KERNEL: "a kernel, called by the interpreter",
    OpKind.EXTERN: "an extern, called by the interpreter",
    OpKind.FUNCTION: "a VM function, entered by the interpreter",
    OpKind.INVOKE: "a closure, entered by the interpreter",
}
_SHOWN_TEXT = 60


class ExplainedInstruction(NamedTuple):
    """One instruction.

    where  "native" (machine code made for this function), "python" (a Python function that the
           machine code calls) or "interpreter"
    """

    pc: int
    text: str
    where: str
    reason: str


@record
class Explanation:
    """What `vm.explain` says; printing it gives a table.

    name          the function
    mode          "compiled" or "bytecode": how a call made now runs
    reason        why it is not compiled, "" if it is
    instructions  one row each
    """

    name: str
    mode: str
    reason: str
    instructions: tuple[ExplainedInstruction, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many instructions run where."""
        return dict(Counter(row.where for row in self.instructions))

    def __iter__(self) -> Iterator[ExplainedInstruction]:
        return iter(self.instructions)

    def __len__(self) -> int:
        return len(self.instructions)

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        counts = ", ".join(f"{count} {where}" for where, count in self.counts.items())
        rows = [("at", "instruction", "where", "why")]
        for row in self.instructions:
            text = row.text
            if len(text) > _SHOWN_TEXT:
                text = text[: _SHOWN_TEXT - 3] + "..."
            rows.append((str(row.pc), text, row.where, row.reason))
        lines = [f"{counts or 'no'} instructions", *table(rows, right={0})]
        return "\n  ".join([f"{self.name}: {self.mode}{why}", *lines])


def explain_function(
    fn: LinkedFunction, reason: str, compiled: Sequence[tuple[int, str]] = ()
) -> Explanation:
    """The explanation of a function.

    reason    why the interpreter runs it, "" if machine code does
    compiled  what the compiler says of each instruction then: where (of MODES), why not natively
    """
    steps = [("interpreter", _CARRIED_OUT.get(op.kind, "")) for op in fn.ops]
    if not reason:
        steps = [(MODES[mode], why) for mode, why in compiled]
    rows = [
        ExplainedInstruction(pc, instruction_line(fn.program, fn.info, pc), *step)
        for pc, step in enumerate(steps)
    ]
    return Explanation(fn.name, "bytecode" if reason else "compiled", reason, tuple(rows))
