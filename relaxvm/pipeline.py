"""Every stage of a build, in order, on one screen.

    GRAPH     what users write: operators, calls of loop and packed functions, inner functions
    LEGAL     no operator that is not a call or something the virtual machine does itself
    FUSED     loop functions are final; functions are all of the module
    PLANNED   memory is explicit, shapes are computed and checked: what the code generator takes

A build starts at GRAPH and runs the passes below under the current PassContext: levels, disabled
and required passes and instruments apply. Modules are verified where they come in and before code
is generated; with checks on, after every stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .base import PassError, VerifyError
from .base.config import checks_enabled
from .ir import IRModule, Op, PassContext
from .ir.transform import Pass, Sequential, module_pass
from .relax.analysis import assert_well_formed
from .relax.expr import (
    Call,
    DataflowBlock,
    DataflowVar,
    Function,
)
from .relax.transform import (
    AttachGlobalSymbol,
    CallTIRRewrite,
    CanonicalizeBindings,
    ComputeFloatScalars,
    ComputePrimValue,
    DeadCodeElimination,
    EliminateCommonSubexpr,
    ExpandTupleArguments,
    FoldConstant,
    InlinePrivateFunctions,
    KillAfterLastUse,
    LambdaLift,
    LegalizeOps,
    LowerAllocTensor,
    Normalize,
    RemovePurityChecking,
    RemoveUnusedOutputs,
    RemoveUnusedParameters,
    StaticPlanBlockMemory,
    ToNonDataflow,
    VMBuiltinLower,
    VMShapeLower,
)
from .relax.transform.legalize_ops import why_not_legal
from .relax.transform.scopes import RESULT, is_symbolic, linearise

__all__ = [
    "GRAPH_TO_LEGAL",
    "LEGAL_TO_FUSED",
    "FUSED_TO_PLANNED",
    "STAGES",
    "dataflow_lower_passes",
    "default_build_pipeline",
    "finalize_passes",
    "get_default_pipeline",
    "get_pipeline",
    "legalize_passes",
    "library_dispatch_passes",
    "register_pipeline",
    "run_stages",
    "verify_stage",
    "zero_pipeline",
]

GRAPH_TO_LEGAL = Sequential(
    (
        Normalize(),  # every later pass sees bindings of flat values only
        InlinePrivateFunctions().at_level(3),  # first: nothing below looks across calls
        CanonicalizeBindings(),  # one name for one value, so that equal calls look equal
        FoldConstant(),  # while operators still have a meaning that needs no compiler
        EliminateCommonSubexpr().at_level(
            3
        ),  # after folding: equal constants make more calls equal
        ExpandTupleArguments(),  # so that each field can be found unused below
        RemoveUnusedOutputs(),  # callers first: what computed an unread output is dead then
        DeadCodeElimination(),  # before anything is lowered, while calls are still known to be pure
        RemoveUnusedParameters(),  # what dead code read is unused only now
        DeadCodeElimination(),  # and what was computed for unused parameters is dead only now
        LegalizeOps(),  # operators become loop functions: what is left is calls
    ),
    name="graph_to_legal",
)
LEGAL_TO_FUSED = Sequential(
    (
        LambdaLift(),  # the VM has no functions inside functions
    ),
    name="legal_to_fused",
)
FUSED_TO_PLANNED = Sequential(
    (
        ToNonDataflow(),  # what follows has effects, which dataflow blocks must not hold
        ComputeFloatScalars(),  # by kernels, whose outputs are planned with the others
        RemovePurityChecking(),  # for the same reason; and pure packed calls become plain ones
        CallTIRRewrite(),  # outputs are allocated explicitly: now there is memory to plan
        StaticPlanBlockMemory(),  # tensors that never live at once share storage
        LowerAllocTensor(),  # those left over get storage of their own
        KillAfterLastUse(),  # while storages and tensors can still be told from other values
        VMBuiltinLower(),  # operators of the VM get its names; new scalars appear (tir_vars)
        ComputePrimValue(),  # so scalars are bound after that
        VMShapeLower(),  # last: shapes and scalars are computed, everything else is known
        AttachGlobalSymbol(),  # names under which the executable shows its functions
    ),
    name="fused_to_planned",
)

# -- what each stage allows -----------------------------------------------------------------------


@dataclass(frozen=True)
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


_PLANNED_OPS = frozenset(
    {
        "relax.vm.alloc_storage",
        "relax.vm.alloc_tensor",
        "relax.vm.kill_object",
        "relax.vm.call_tir_dyn",
        "relax.call_builtin_with_ctx",
        "relax.invoke_closure",
        "relax.invoke_pure_closure",
    }
)


def _needs_no_legalisation(op: Op) -> bool:
    """Whether an operator is no computation, or one that the virtual machine does itself."""
    return not callable(getattr(op, "lower", None))


STAGES: Mapping[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage("GRAPH", lambda op: True, True, True, True, ""),
        Stage("LEGAL", _needs_no_legalisation, True, True, True, "run LegalizeOps"),
        Stage("FUSED", _needs_no_legalisation, True, False, True, "run LambdaLift"),
        Stage(
            "PLANNED",
            lambda op: op.name in _PLANNED_OPS,
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
    for e in linearise(fn):
        if e.kind == RESULT:
            values, where = [e.node], "result"
        else:
            value = e.node.value
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
            values = list(value.args) if isinstance(value, Call) else [value]
        if not stage.symbolic and any(map(is_symbolic, values)):
            raise refuse(where, "shapes and scalars are constants or computed by the machine")


# -- pipelines by name ----------------------------------------------------------------------------


def run_stages(mod: IRModule) -> IRModule:
    """`mod` brought from GRAPH to PLANNED under the current PassContext."""
    for passes, reached in (
        (GRAPH_TO_LEGAL, "LEGAL"),
        (LEGAL_TO_FUSED, "FUSED"),
        (FUSED_TO_PLANNED, "PLANNED"),
    ):
        mod = passes(mod)
        if checks_enabled() or reached == "PLANNED":
            verify_stage(mod, reached)
    return mod


@module_pass(opt_level=0, name="default_build_pipeline")
def default_build_pipeline(mod: IRModule, ctx: PassContext) -> IRModule:
    """Everything between what users write and what the code generator takes."""
    mod = Normalize()(mod)
    assert_well_formed(mod)
    return run_stages(mod)


@module_pass(opt_level=0, name="zero_pipeline")
def zero_pipeline(mod: IRModule, ctx: PassContext) -> IRModule:
    """The part of a build that stays within the graph language and can be printed, changed and
    built further.
    """
    mod = Normalize()(mod)
    assert_well_formed(mod)
    return GRAPH_TO_LEGAL(mod)  # type: ignore[no-any-return]


_PIPELINES: dict[str, Any] = {
    "default_build": default_build_pipeline,
    "default": default_build_pipeline,
    "zero": zero_pipeline,
}


def register_pipeline(name: str) -> Callable[[Any], Any]:
    """Decorator: make a pipeline (a pass, or a function that returns one) known to
    `get_pipeline`.
    """
    if name in _PIPELINES:
        raise PassError(f"a pipeline named {name!r} exists already")

    def register(pipeline: Any) -> Any:
        _PIPELINES[name] = pipeline
        return pipeline

    return register


def get_pipeline(name: str = "zero", **options: Any) -> Pass:
    """The pipeline of that name; `options` go to the function that makes it. Raises PassError
    listing the names.
    """
    found = _PIPELINES.get(name)
    if found is None:
        raise PassError(f"no pipeline is named {name!r}; there are {', '.join(_PIPELINES)}")
    made: Any = found(**options) if options or not isinstance(found, Pass) else found
    return made  # type: ignore[no-any-return]


def library_dispatch_passes(target: Any = None) -> list[Pass]:
    """Passes that hand work to libraries before anything is legalised: none so far."""
    return []


def legalize_passes(target: Any = None) -> list[Pass]:
    """Passes up to stage FUSED, as a list to build pipelines from."""
    return [*GRAPH_TO_LEGAL.passes, *LEGAL_TO_FUSED.passes]


def dataflow_lower_passes(target: Any = None) -> list[Pass]:
    """Passes that make effects and outputs explicit."""
    return list(FUSED_TO_PLANNED.passes[:_EXPLICIT])


def finalize_passes(target: Any = None) -> list[Pass]:
    """Passes that plan memory and lower to what the code generator takes."""
    return list(FUSED_TO_PLANNED.passes[_EXPLICIT:])


_EXPLICIT = 1 + [p.info.name for p in FUSED_TO_PLANNED.passes].index("CallTIRRewrite")


def get_default_pipeline(target: Any = None) -> Pass:
    """The pipeline that a build for `target` runs."""
    return default_build_pipeline  # type: ignore[no-any-return]
