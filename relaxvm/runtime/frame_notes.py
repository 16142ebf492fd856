"""What an exception that leaves a VM says of the VM frames it came through.

    ValueError: negative
      in VM function main, instruction 7: call env.check in: %3 dst: %4
        from ONNX node check1 (Check)

Its type and its traceback stay as they are: each frame is a note, the innermost first. Of deep
recursions only the first frames and the last are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..base import Deferred, LimitError, add_note
from .debug_table import source_text
from .link import LinkedFunction

if TYPE_CHECKING:
    from . import disasm
else:
    disasm = Deferred("relaxvm.runtime.disasm")

_SHOWN_FRAMES = 16
_SHOWN_TEXT = 200


def name_frames(
    error: BaseException, places: Sequence[tuple[LinkedFunction, int | None]], max_depth: int
) -> None:
    """Name the VM frames on `error`, innermost first. Raises a LimitError in place of Python's
    RecursionError, if that came through a VM.
    """
    try:
        nested = _came_through_vm(error)
        _annotate(error, places)
    except Exception:
        # Attributes of somebody's exception may do anything; it leaves as it is.
        return
    if nested and type(error) is RecursionError:
        raise _nested_too_deep(max_depth) from error


def too_deep(callee: LinkedFunction, max_depth: int) -> LimitError:
    """The error of a call that goes beyond `max_depth`."""
    return LimitError(
        f"calling {callee.name}: more than max_depth={max_depth} VM functions are inside each "
        "other; is a recursion without end? Else give the VirtualMachine a larger max_depth"
    )


def _nested_too_deep(max_depth: int) -> LimitError:
    return LimitError(
        "VM functions and Python functions call each other deeper than Python's stack allows; "
        f"calls among VM functions alone may be max_depth={max_depth} deep"
    )


_NOTE = "  in VM function"


def _came_through_vm(error: BaseException) -> bool:
    """Whether an inner run of a VM has put its notes on `error`; asked before this one does."""
    return any(note.startswith(_NOTE) for note in getattr(error, "__notes__", ()))


def _annotate(error: BaseException, shown: Sequence[tuple[LinkedFunction, int | None]]) -> None:
    left_out = len(shown) - _SHOWN_FRAMES
    for i, (fn, pc) in enumerate(shown):
        if left_out > 0 and i == _SHOWN_FRAMES - 1:
            add_note(error, f"  ... {left_out} more VM frames ...")
        if left_out <= 0 or i < _SHOWN_FRAMES - 1 or i == len(shown) - 1:
            add_note(error, f"  in {_described(fn, pc)}")


def _described(fn: LinkedFunction, pc: int | None) -> str:
    if pc is None:
        return f"VM function {fn.name}"
    text = disasm.instruction_line(fn.program, fn.info, pc)[:_SHOWN_TEXT]
    source = source_text(fn.program.source_of(fn.name, pc))
    origin = f"\n    from {source}" if source else ""
    return f"VM function {fn.name}, instruction {pc}: {text}{origin}"
