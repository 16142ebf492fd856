"""Arguments given by position and by name, in the order of the parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base import VMTypeError

_MISSING = object()


def bind_by_name(
    function: str,
    names: Sequence[str],
    signature: Callable[[], str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> tuple[Any, ...]:
    """`args` and `kwargs` in the order of the parameters `names`.

    Raises VMTypeError showing `signature()`: a wrong count, an unknown name, one given twice.
    """
    if len(args) > len(names):
        raise VMTypeError(
            f"{function}: wanted {len(names)} arguments, got {len(args) + len(kwargs)}\n"
            f"  {signature()}"
        )
    bound = [*args, *[_MISSING] * (len(names) - len(args))]
    for name, value in kwargs.items():
        places = [i for i, known in enumerate(names) if known == name]
        if len(places) != 1:
            many = f"{len(places)} parameters are" if places else "no parameter is"
            raise VMTypeError(f"{function}: {many} called {name!r}\n  {signature()}")
        if bound[places[0]] is not _MISSING:
            raise VMTypeError(f"{function}: parameter {name} is given twice\n  {signature()}")
        bound[places[0]] = value
    missing = [name for name, value in zip(names, bound) if value is _MISSING]
    if missing:
        raise VMTypeError(
            f"{function}: wanted {len(names)} arguments, got {len(names) - len(missing)}; "
            f"missing: {', '.join(missing)}\n  {signature()}"
        )
    return tuple(bound)
