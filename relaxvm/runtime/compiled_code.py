"""What the compiler says about compiled functions: plain data, from the code generator through the
file.

The machine code holds no addresses of this process. It reads everything it needs from a table of
64-bit words, the context, which the linker fills by the names in `words`:

    careful, max_depth, threads, free:F         what a machine sets; free frames of function F
    results                                     the table of `result_memory`
    py:X, np:X                                  functions of Python's and numpy's C APIs
    type:X, obj:X, dtype:X, descr:X             types, singletons, DataTypes, numpy dtypes
    const:I, data:I                             constant I, and the address of its data
    op:F:PC, arg:F:PC:K, linked:F               what an instruction calls, an operand, a function
    call:X, slow:F                              Python helpers; the slow call of function F
"""

from __future__ import annotations

import re
from typing import Any

from ..base import VerifyError, record
from .plain import Plain

MODES = ("native", "python", "interpreter")
NATIVE, PYTHON, INTERPRETER = range(len(MODES))
_MAX_WORDS = 1 << 20
_MAX_SITES = 1 << 20
_WORD = re.compile(r"[A-Za-z]+(_[a-z]+)?(:[A-Za-z0-9_]+){0,3}")
SYMBOL = re.compile(r"[A-Za-z_.$][A-Za-z0-9_.$]{0,511}")


@record
class CompiledInfo(Plain, form="list"):
    """One VM function.

    name     its name
    symbol   of its entry; "" if it is not compiled, and `reason` says why
    layout   what the code takes to be prepared in its frames (see `compiled_frame`)
    steps    for each instruction, where it runs (an index into MODES) and why not natively
    """

    name: str
    symbol: str
    reason: str
    layout: tuple[Any, ...]
    steps: tuple[tuple[int, str], ...]

    def __post_init__(self) -> None:
        if self.symbol and not SYMBOL.fullmatch(self.symbol):
            raise VerifyError(f"compiled function {self.name[:80]!r}: symbol is not a symbol")
        if not all(0 <= mode < len(MODES) for mode, _ in self.steps):
            raise VerifyError(f"compiled function {self.name[:80]!r}: a step is damaged")


@record
class CompiledCode(Plain):
    """The compiled functions of one object file.

    words  the names of the context's words, in order
    sites  the places where a function may leave for the interpreter: (function, instruction, how
           to find the registers), see `compiled_state`
    """

    words: tuple[str, ...]
    functions: tuple[CompiledInfo, ...]
    sites: tuple[tuple[Any, ...], ...]

    def __post_init__(self) -> None:
        if len(self.words) > _MAX_WORDS or len(self.sites) > _MAX_SITES:
            raise VerifyError("compiled functions: too many words or sites")
        if not all(map(_WORD.fullmatch, self.words)):
            raise VerifyError("compiled functions: a word's name is damaged")
        if len(set(self.words)) != len(self.words):
            raise VerifyError("compiled functions: two words have the same name")
        for site in self.sites:
            fine = type(site) is tuple and len(site) == 3 and type(site[2]) is tuple
            if not fine or type(site[0]) is not int or type(site[1]) is not int:
                raise VerifyError("compiled functions: a site is damaged")
            if not 0 <= site[0] < len(self.functions):
                raise VerifyError("compiled functions: a site is in no function")

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of all entries."""
        return tuple(f.symbol for f in self.functions if f.symbol)
