"""Functions of `te.Tensor`s from operators of graphs.

    softmax = of(lambda x, axis=-1: ops.nn.softmax(x, axis=axis))

The lambda gives the operators for arguments that stand for the tensors: they infer and check as in
a graph. Their legalisation then gives the formulas, through a builder that takes te functions as
they are and loop functions as `te.extern_primfunc`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..relax import Formulas
from ..relax import op as ops
from ..relax.op import Op


def of(operators: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors by ``operators(*arguments)``, which gives an operator's call (or
    several inside one another, or a tuple of them) on graph variables of the tensors' shapes and
    dtypes.

    The function gives a `te.Tensor`, a list of them, or a scalar expression if it got no tensor.
    """

    @functools.wraps(operators)
    def formula(*args: Any, **keywords: Any) -> Any:
        return formulas_of(operators, *args, **keywords)

    return formula


def named(namespace: dict[str, Any]) -> list[str]:
    """The names of the functions that a module with this `namespace` makes; those that `of` made
    get theirs, for messages and `help`.
    """
    public = []
    for name, value in namespace.items():
        if getattr(value, "__module__", "") != namespace["__name__"] or name.startswith("_"):
            continue
        public.append(name)
        if value.__name__ == "<lambda>":
            for function in (value, value.__wrapped__):
                function.__name__ = function.__qualname__ = name
            value.__doc__ = _meaning(value.__wrapped__.__code__.co_names, namespace)
    return public


def _meaning(words: tuple[str, ...], namespace: dict[str, Any]) -> str:
    """The docstring of a function whose lambda uses these names: that of its operator, or of the
    helper in `namespace` that it calls.
    """
    operator: Any = ops
    for word in words:
        helper = namespace.get(word) if word.startswith("_") else None
        if helper is not None and helper.__doc__:
            return str(helper.__doc__)
        operator = getattr(operator, word, ops)
        if isinstance(getattr(operator, "op", None), Op):
            return f"{(operator.__doc__ or '').strip()}\n\nIt is {operator.op.name} of tensors."
    return "The same tensor, as another one."


def formulas_of(operators: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """What ``operators(*args, **keywords)`` computes, in formulas."""
    builder = Formulas()
    values = [builder.argument(a) for a in args]
    graph = operators(*values, **{k: builder.argument(v) for k, v in keywords.items()})
    return builder.result(graph)
