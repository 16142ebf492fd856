"""What the house knows of one `vm.builtin.*` function: a row of the table in `builtin`.

Verifier, linker, interpreter, memory tracer, disassembler, compiled VM and the compiler's passes
read rows; none of them lists names.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import cached_property
from typing import Any

from ..base import record

PREFIX = "vm.builtin."
ARGUMENT_KINDS = frozenset({"any", "imm", "text", "dtype", "dtype?", "info", "dim"})


class Effect(Enum):
    """What a call does to memory, and what is known of its result without running it."""

    UNKNOWN = auto()
    """No more than the row's `aliases` and `calls` say."""
    ALLOCATE = auto()
    """A storage of as many bytes as argument 0 says."""
    PLACE = auto()
    """A tensor in the storage of argument 0, of shape 2 and dtype 3."""
    KILL = auto()
    """The register given is empty afterwards."""
    INVOKE = auto()
    """Argument 0 is called with those in the tuple that argument 1 is."""
    SAME = auto()
    """Argument 0 itself."""
    RESHAPE = auto()
    """The memory of argument 0, in the shape that argument 1 is."""
    SHAPE = auto()
    """The shape of argument 0."""
    COPY = auto()
    """New memory, as much as argument 0 has."""
    SHAPE_TENSOR = auto()
    """New memory, for the sizes of the shape that argument 0 is."""
    TUPLE = auto()
    """A tuple of the arguments."""
    ITEM = auto()
    """Element 1 of the tuple or shape 0."""
    CLOSURE = auto()
    """Function 0, which holds the other arguments."""
    MATCH_SHAPE = auto()
    """The sizes of argument 0 are compared, or stored in the shape heap 1."""
    MATCH_NUMBER = auto()
    """The same of a number."""
    COMPUTE_SLOT = auto()
    """A slot of the shape heap 0 is computed from others."""
    LOAD_SHAPE = auto()
    """A shape of constants and slots of the shape heap 0."""
    LOAD_NUMBER = auto()
    """A number of these."""
    COMMON_SHAPE = auto()
    """The shape that all arguments are stretched to."""
    OUTLIVE = auto()
    """Memory that stays with an object from call to call, and grows."""


@record(values=False, frozen=False)
class Builtin:
    """One row of the table.

    args     what each argument must be: any, imm (an int constant), text, dtype, dtype? (or void),
             info, dim (all constants); "(a b)*" repeats; a trailing "=" marks an optional one
    pure     no effect besides its result
    aliases  whether the result may share memory with an argument or keep it alive
    calls    whether it calls a function it is given, which sees the arguments and may keep them
    bind     factory over the constant arguments after the first `dynamic`
    account  whether it is given the call's account first
    partly   where `bind` lacks constants: which arguments are left to the call, and a factory over
             the others
    effect   what it does to memory
    raises   whether it may raise an error
    checks   it only compares its arguments, or fills the call's own shape heap: as after pure ones,
             a call that has come no further may begin again
    native   emits machine code for a call, on a `target.llvm` function's `Body`; those of the
             house's own rows are in `target/llvm/vm_builtins.py`
    name     set by the table
    """

    function: Callable[..., Any]
    args: str
    pure: bool = False
    aliases: bool = False
    calls: bool = False
    bind: Callable[..., Callable[..., Any]] | None = None
    dynamic: int = 0
    account: bool = False
    partly: tuple[tuple[int, ...], Callable[..., Callable[..., Any]]] | None = None
    effect: Effect = Effect.UNKNOWN
    raises: bool = True
    checks: bool = False
    native: Callable[[Any], None] | None = None
    name: str = ""

    def __set_name__(self, table: type, attribute: str) -> None:
        self.name = PREFIX + attribute.lower()

    @property
    def keeps_nothing(self) -> bool:
        """Whether nobody holds an argument's memory after the call who did not before."""
        return not (self.aliases or self.calls)

    @cached_property
    def fixed(self) -> tuple[str, ...]:
        """Kinds of the arguments before the repeated part."""
        return tuple(self.args.partition("(")[0].split())

    @cached_property
    def repeated(self) -> tuple[str, ...]:
        """Kinds of the repeated part, or ()."""
        return tuple(self.args.partition("(")[2].rstrip(")*").split())

    @cached_property
    def min_args(self) -> int:
        """The least number of arguments."""
        return sum(not kind.endswith("=") for kind in self.fixed)


def bound(
    bind: Callable[..., Callable[..., Any]],
    args: str,
    dynamic: int = 1,
    account: bool = False,
    **known: Any,
) -> Builtin:
    """A row whose function is `bind` of the constants, called with what stands before them."""
    first = dynamic + account

    def function(*values: Any) -> Any:
        return bind(*values[first:])(*values[:first])

    function.__name__ = bind.__name__.removesuffix("_of")
    function.__doc__ = bind.__doc__
    return Builtin(function, args, bind=bind, dynamic=dynamic, account=account, **known)


def short_name(name: str) -> str:
    """A function's name as listings show it: of a builtin, without "vm.builtin."."""
    return name.removeprefix(PREFIX)
