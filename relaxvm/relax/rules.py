"""What the rules of an operator are given: other operators (`Ops`), a builder (`LowerBuilder`), and
a call, of which `operator_name` tells the name.

Families of operators do not import one another, and a builder stands above them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..base import Span
from ..ir import BaseFunc, GlobalVar, Op
from .expr import Call
from .struct_info import Expr, StructInfo

if TYPE_CHECKING:
    from .shape_facts import ShapeFacts


def operator_name(call: Call) -> str:
    """The name of the operator that is called, without ``relax.``."""
    assert isinstance(call.op, Op)
    return call.op.name.removeprefix("relax.")


class Ops(Protocol):
    """Every operator by its name: ``ops.exp(x)``, ``ops.nn.softmax(x)``."""

    def __getattr__(self, name: str) -> Ops: ...

    def __call__(self, *args: Any, **keywords: Any) -> Call: ...


class LowerBuilder(Protocol):
    """What legalisation writes with: a `BlockBuilder`, or what `topi` has in its place."""

    legalised: dict[Any, Any]
    legalising: Call | None

    def emit(self, expr: Any, name_hint: str = "", /) -> Expr: ...

    def match_cast(
        self, value: Any, struct_info: StructInfo, name_hint: str = "", span: Span = ..., /
    ) -> Expr: ...

    def add_func(self, func: BaseFunc, func_name: str, /) -> GlobalVar: ...

    def shape_facts(self) -> Iterator[ShapeFacts]: ...


Lower: TypeAlias = Callable[[LowerBuilder, Call], Expr | None]
"""(builder, call) -> what stands for the call; None or the call itself if it must stay."""
Grad: TypeAlias = Callable[[Ops, Call, Expr, Expr], Sequence[Expr | None]]
"""(ops, call, y, gy) -> the gradient of each argument, or None, given that of the result."""
Decompose: TypeAlias = Callable[[LowerBuilder, Call, bool], Expr | None]
"""(builder, call, training) -> the call in simpler operators; None if it must stay."""
Layout: TypeAlias = Callable[[Call, Any], Any]
"""(call, orders of the arguments' axes) -> `Layouts`, or None."""
