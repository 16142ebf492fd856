"""AlterOpLayout: operators in the layouts that functions registered for them ask for.

@relay.op.register_alter_op_layout("nn.conv2d", level=101)
def alter_conv2d(attrs, inputs, tinfos, out_type):
    return relay.nn.conv2d(*inputs, **{**attrs, "data_layout": "NCHW16c"})

%0 = nn.conv2d(%x, %w)             %0 = layout_transform(%x)
nn.relu(%0)                        %1 = nn.conv2d(%0, %w, data_layout="NCHW16c")
                                   %2 = nn.relu(%1)
                                   layout_transform(%2)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...base import PassError
from ...relax import Call, Var
from ...relax import transform as graph
from ..spelling import UNTYPED, Spelled
from ..spelling import get as get_op
from ..view import View
from .relay_pass import by_name

# By operator, the level of what was registered, and a function as TVM has it.
_REGISTERED: dict[str, tuple[int, Callable[..., Any]]] = {}
_LAYOUTS = ("data_layout", "layout", "kernel_layout", "out_layout")


def register_alter_op_layout(op_name: str, alter_layout: Any = None, level: int = 10) -> Any:
    """Let `alter_layout` say in which layouts calls of an operator work; a decorator without it.

    alter_layout  ``f(attrs, inputs, tinfos, out_type)`` gives a call of the operator on `inputs`
                  with other layouts among its attributes, or None: it stays
    level         of several functions for an operator the one of the highest level counts, of
                  equal levels the last

    Raises StructInfoError if there is no such operator.
    """
    get_op(op_name)

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        if level >= _REGISTERED.get(op_name, (level,))[0]:
            _REGISTERED[op_name] = level, f
        return f

    return register if alter_layout is None else register(alter_layout)


def registered_layouts(call: Call) -> list[str] | None:
    """The layouts of data, kernel and result that the function registered for a call asks for.

    Raises PassError if that changes more than layouts.
    """
    seen = View().of(call)
    if not isinstance(seen.op, Spelled):
        return None
    name = seen.op.name.removeprefix("relay.")
    if name not in _REGISTERED:
        return None
    # A call of what has no type yet is not written out: its attributes are there to read.
    inputs = [Var(f"p{i}", UNTYPED) for i in range(len(seen.args))]
    types = [getattr(arg, "checked_type", None) for arg in call.args]
    new = _REGISTERED[name][1](seen.attrs, inputs, types, call.checked_type)
    if new is None:
        return None
    same = isinstance(new, Call) and new.op is seen.op and list(new.args) == inputs
    if not same or _others(new) != _others(seen):
        raise PassError(
            f"AlterOpLayout: {name}: wanted a call of {name} on the same inputs, with other "
            f"layouts only, got {new}"
        )
    data, *rest = [new.attrs[key] for key in _LAYOUTS if key in new.attrs]
    kernel = rest[:1] if "kernel_layout" in new.attrs else []
    return [data, *kernel, new.attrs.get("out_layout") or data]


def _others(call: Call) -> dict[str, Any]:
    """The attributes of a call but its layouts, and what says again what the kernel says."""
    left_out = {*_LAYOUTS, "channels", "kernel_size"}
    return {
        key: list(value) if isinstance(value, (list, tuple)) else value or None
        for key, value in call.attrs.items()
        if key not in left_out
    }


AlterOpLayout = by_name(graph.AlterOpLayout, 3, layouts=registered_layouts)
