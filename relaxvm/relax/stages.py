"""What a module may contain at each stage of a build, and the check of it.

GRAPH     what users write: operators, calls of loop and packed functions, inner functions
LEGAL     no operator that is not a call or something the virtual machine does itself
FUSED     loop functions are final; functions are all of the module
PLANNED   memory is explicit, shapes are computed and checked: what the code generator takes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..base import PassError, VerifyError, record
from ..ir import IRModule, Op
from .expr import Call, DataflowBlock, DataflowVar, Function
from .flow import CLOSE, ENTER, RESULT, events, is_symbolic
from .known_ops import (
    CALL_BUILTIN_WITH_CTX,
    CALL_TIR_DYN,
    INVOKE_CLOSURE,
    INVOKE_PURE_CLOSURE,
    RESHAPE,
    VM_ALLOC_STORAGE,
    VM_ALLOC_TENSOR,
    VM_KILL_OBJECT,
)
from .transform.legalize_ops import why_not_legal


@record
class Stage:
    """What a module may contain at a stage.

    op        whether an operator may be called
    dataflow  whether there may be dataflow blocks
    inner     whether there may be inner functions
    symbolic  whether shapes and scalars may be expressions
    """

    name: str
    op: Callable[[Op], bool]
    dataflow: bool
    inner: bool
    symbolic: bool
    advice: str


_PLANNED_OPS = (
    VM_ALLOC_STORAGE,
    VM_ALLOC_TENSOR,
    VM_KILL_OBJECT,
    CALL_TIR_DYN,
    CALL_BUILTIN_WITH_CTX,
    INVOKE_CLOSURE,
    INVOKE_PURE_CLOSURE,
)


def _needs_no_legalisation(op: Op) -> bool:
    """Whether an operator is no computation, or one that the virtual machine does itself."""
    return op is RESHAPE or not callable(getattr(op, "lower", None))


STAGES: Mapping[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage("GRAPH", lambda op: True, True, True, True, ""),
        Stage("LEGAL", _needs_no_legalisation, True, True, True, "run LegalizeOps"),
        Stage("FUSED", _needs_no_legalisation, True, False, True, "run LambdaLift"),
        Stage(
            "PLANNED",
            lambda op: op in _PLANNED_OPS,
            False,
            False,
            False,
            "run the default_build pipeline; is one of its passes disabled?",
        ),
    )
}


def verify_stage(mod: IRModule, name: str) -> None:
    """Raise VerifyError, naming function and binding, unless `mod` may be at the stage `name`."""
    stage = STAGES.get(name)
    if stage is None:
        raise PassError(f"unknown stage {name!r}; there are {', '.join(STAGES)}")
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            _verify_function(gv.name_hint, fn, stage)


def _verify_function(name: str, fn: Function, stage: Stage) -> None:
    def refuse(where: str, what: str) -> VerifyError:
        advice = f"; {stage.advice}" if stage.advice else ""
        return VerifyError(f"{name}: {where}: {what} at stage {stage.name}{advice}")

    if not stage.dataflow and any(isinstance(b, DataflowBlock) for b in fn.body.blocks):
        raise refuse("body", "there may be no dataflow block")
    for e in events(fn):
        if e.kind in (ENTER, CLOSE):
            continue
        value, where = e.value, "result"
        if e.kind is not RESULT:
            where = f"binding of {e.node.var.name_hint}"
            if isinstance(value, Function) and not stage.inner:
                raise refuse(where, "there may be no inner function")
            if isinstance(value, Call) and isinstance(value.op, Op) and not stage.op(value.op):
                unknown = why_not_legal(value)
                if unknown is not None:
                    raise VerifyError(f"{name}: {where}: {value.op.name}: {unknown}")
                raise refuse(where, f"{value.op.name} may not be called")
            if not stage.dataflow and isinstance(e.node.var, DataflowVar):
                raise refuse(where, "there may be no dataflow variable")
        if not stage.symbolic and is_symbolic(value):
            raise refuse(where, "shapes and scalars are constants or computed by the machine")
