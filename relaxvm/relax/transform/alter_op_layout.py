"""AlterOpLayout: each call says itself in which layouts it works best, for the target at hand.

    def conv2d(call):
        channels = call.args[0].struct_info.shape[1]
        return ["NCHW16c", "OIHW16i16o"] if channels % 16 == 0 else None

    with Target("llvm"):
        mod = AlterOpLayout({"llvm": {"relax.nn.conv2d": conv2d}})(mod)

    a = R.nn.conv2d(x, w)          x1 = R.layout_transform(x, ...)         # NCHW16c
                                   w1 = R.layout_transform(w, ...)         # OIHW16i16o
                                   a1 = R.nn.conv2d(x1, w1, data_layout="NCHW16c", ...)
                                   a = R.layout_transform(a1, ...)

What reads them follows as in `ConvertLayout`, which does all of the work. Relay had this pass under
the same name, with functions registered for operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base import PassError, add_note
from ...ir import IRModule, Op, PassContext
from ...ir.transform import module_pass
from ...target import Target
from ..derive import where
from ..expr import Call
from .convert_layout import ConvertLayout, full_name


@module_pass(opt_level=3, numerics="reassociates", obeys_numerics=True)
def AlterOpLayout(mod: IRModule, ctx: PassContext, *, layouts: Any) -> IRModule:
    """Lay the tensors of calls out as `layouts` says.

    layouts  a function of a call that gives its layouts, as `ConvertLayout` takes them (those of
             its data, of its kernel if it has one, and of its result), or None: it follows those it
             reads; or {operator: such a function, or layouts}; or {target: such a table}, where a
             target is a kind or a key ("llvm", "cpu"): the first table of the current target, or
             of this computer, that names the operator counts

    Raises PassError for what is no layout; notes name the call.
    """
    tables = _tables(layouts)

    def wanted(call: Call) -> dict[str, Any]:
        # An empty answer: nothing is wanted of this call, whatever is of others.
        if not isinstance(call.op, Op):
            return {}
        try:
            own = next((t[call.op.name] for t in tables if call.op.name in t), None)
            own = layouts if callable(layouts) else own
            answer = own(call) if callable(own) else own
        except Exception as error:
            add_note(error, f"AlterOpLayout: for {call.op.name}{where(call.span)}")
            raise
        return {} if answer is None else {call.op.name: answer}

    return ConvertLayout(desired_layouts={}, layout_cb=wanted).run(mod, ctx)


def _tables(layouts: Any) -> list[dict[str, Any]]:
    """The tables that count here: operator, by its full name -> what is wanted of it."""
    if callable(layouts):
        return []
    if not isinstance(layouts, Mapping):
        raise PassError(
            "AlterOpLayout: layouts is a function of calls or a table, got "
            f"{type(layouts).__name__}"
        )
    target = Target.or_current()
    names = (target.kind_name, *target.keys)
    own = [layouts[n] for n in names if isinstance(layouts.get(n), Mapping)]
    own.append({k: v for k, v in layouts.items() if not isinstance(v, Mapping)})
    return [{full_name(k): v for k, v in table.items()} for table in own]
