"""Every stage of a build, in order, on one screen.

    GRAPH     what users write: operators, calls of loop and packed functions, inner functions
    LEGAL     no operator that is not a call or something the virtual machine does itself
    FUSED     loop functions are final; functions are all of the module
    PLANNED   memory is explicit, shapes are computed and checked: what the code generator takes

`build` runs the passes below from GRAPH on, under the current PassContext: levels, disabled and
required passes and instruments apply. Modules are verified where they come in and before code is
generated; with checks on, after every stage. Of a module at PLANNED it then makes an `Executable`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from .base import PassError, Report, VerifyError, collected, collecting_seldom
from .base.config import checks_enabled
from .choices import Choices, choices_for
from .ir import IRModule, PassContext
from .ir.instrument import blame
from .ir.transform import Pass, Sequential, module_pass
from .relax import transform
from .relax.analysis import assert_well_formed, called_operators
from .relax.donate import with_donated
from .relax.named_pipelines import get_pipeline, register_pipeline
from .relax.stages import STAGES as STAGES
from .relax.stages import verify_stage
from .relax.transform.combine_parallel import constant_weights
from .relax.transform.legalize_ops.common import legalizations_replaced
from .relax.vm_build import (
    assemble,
    bind_params,
    check_devices,
    module_to_build,
)
from .relax.vm_build import reachable_kernels as reachable_kernels
from .relax.vm_codegen import emit_functions
from .runtime import Executable, rows_replaced
from .target import (
    Target,
    compile_ahead,
    compile_kernels,
    compile_program,
    cpu_model,
    llvm_at_hand,
    support_at_hand,
)
from .target import worker_at_hand as worker_at_hand
from .tir import PrimFunc
from .tir.schedule import builtins_replaced
from .tir.schedule.plans import SOURCES, ApplyTuned, DefaultSchedule, WidenIndices, ready_kernel
from .tir.transform import LOWER_TIR as LOWER_TIR

GRAPH_TO_LEGAL = Sequential(
    (
        transform.Normalize(),  # every later pass sees bindings of flat values only
        transform.InlinePrivateFunctions().at_level(1),  # first: nothing below looks across calls
        transform.LegalizeQnn(),  # so that what follows from scales and weights is folded
        transform.CanonicalizeBindings(),  # one name for one value, so that equal calls look equal
        transform.FoldConstant(),  # while operators still have a meaning that needs no compiler
        transform.SimplifyExpr(),  # after folding: what is neutral is a constant then
        transform.FoldBatchnormToConv2D(),  # statistics and weights are constants, too
        transform.FoldScaleAxis(),  # after that: what stays of batch norms is products, too
        # After folding: equal constants make more calls equal.
        transform.EliminateCommonSubexpr().at_level(3),
        # After that, so that no product is joined with itself.
        transform.CombineParallelConv2D(check=constant_weights),
        transform.CombineParallelMatmul(check=constant_weights),
        transform.HoistRowProducts(),  # recursions whole and weights constant; rows are unused then
        transform.ExpandTupleArguments(),  # so that each field can be found unused below
        transform.RemoveUnusedOutputs(),  # callers first: what computed them is dead then
        transform.DeadCodeElimination(),  # while calls are still known to be pure
        transform.RemoveUnusedParameters(),  # what dead code read is unused only now
        transform.DeadCodeElimination(),  # what was computed for those is dead only now
        transform.FuseAttention(),  # once masks and scales are as simple as they get
        transform.CanonicalizeCast(),  # equal calls are one now: these are meant to be several
        transform.LegalizeOps(),  # operators become loop functions: what is left is calls
    ),
    name="graph_to_legal",
)
LEGAL_TO_FUSED = Sequential(
    (
        transform.LambdaLift(),  # the VM has no functions inside functions
        transform.FuseOps(),  # once every kernel stands in a function of the module
        transform.FuseTIR(),  # groups become kernels, of which memory is planned below
        transform.RewriteDataflowReshape(),  # what is left of reshapes is views, not kernels
        transform.ReuseDonatedParams(),  # after that: views of what is written are no copies
    ),
    name="legal_to_fused",
)
_EXPLICIT = (
    transform.ToNonDataflow(),  # what follows has effects, which dataflow blocks must not hold
    transform.ComputeFloatScalars(),  # by kernels, whose outputs are planned with the others
    transform.RemovePurityChecking(),  # for the same reason; packed calls become plain ones
    transform.CallTIRRewrite(),  # outputs are allocated explicitly: now there is memory to plan
)
_PLANNED = (
    transform.StaticPlanBlockMemory(),  # tensors that never live at once share storage
    transform.LowerAllocTensor(),  # those left over get storage of their own
    transform.KillAfterLastUse(),  # while storages and tensors can still be told from other values
    transform.VMBuiltinLower(),  # operators of the VM get its names; new scalars appear (tir_vars)
    transform.ComputePrimValue(),  # so scalars are bound after that
    transform.VMShapeLower(),  # last: shapes and scalars are computed, everything else is known
    transform.AttachGlobalSymbol(),  # names under which the executable shows its functions
)
FUSED_TO_PLANNED = Sequential((*_EXPLICIT, *_PLANNED), name="fused_to_planned")


def build_stages() -> tuple[Sequential, ...]:
    """What a build runs."""
    return GRAPH_TO_LEGAL, LEGAL_TO_FUSED, FUSED_TO_PLANNED


def build(
    mod: IRModule,
    target: Any = None,
    params: Mapping[Any, Any] | None = None,
    pipeline: Any = "default",
    tir_pipeline: Any = "default",
    exec_mode: str | None = None,
    *,
    donate: Sequence[str] = (),
    relax_pipeline: Any = None,
    system_lib: bool | None = None,
) -> Executable:
    """Compile a module into an `Executable`, which a `VirtualMachine` runs and a file holds. Also
    `relax.build`, `relax.vm.build` and `relaxvm.compile`.

    mod        graph functions, and the loop functions they call; others are left out
    target     "llvm", a `Target`, or None for the current target (else the machine this runs on)
    params     {parameter name: array}, bound in every graph function with such a parameter
    pipeline   passes that run first: a name for `get_pipeline`, a `Pass`, or None for a module
               lowered already. What a pipeline leaves to do, the default one does.
               `relax_pipeline` is its newer name.
    tir_pipeline  what schedules the loop functions: "default" (`tir.schedule.plans`), a `Pass`, or
               None to leave them as they are
    exec_mode  "compiled" (as None): graph functions become machine code too; "bytecode": they do
               not, the build is faster, and a VM interprets them
    donate     names of parameters whose arguments a call uses up, to compute results there

    Raises VerifyError for ill-formed modules, CodegenError for what cannot be compiled; notes name
    pass and function.
    """
    held = [mod]
    del mod
    return build_held(
        held, target, params, pipeline, tir_pipeline, exec_mode, donate=donate,
        relax_pipeline=relax_pipeline, system_lib=system_lib,
    )  # fmt: skip


@collecting_seldom()
@llvm_at_hand()
def build_held(
    held: list[IRModule],
    target: Any = None,
    params: Mapping[Any, Any] | None = None,
    pipeline: Any = "default",
    tir_pipeline: Any = "default",
    exec_mode: str | None = None,
    *,
    donate: Sequence[str] = (),
    relax_pipeline: Any = None,
    system_lib: bool | None = None,
) -> Executable:
    """`build` of the only item of `held`, which is taken out: weights that nobody else holds go,
    one by one, when what they are packed into is there. Else they are in memory twice.
    """
    mod = module_to_build(held.pop(), tir_pipeline, exec_mode, system_lib)
    target = Target.or_current(target)
    mod = with_donated(bind_params(mod, params or {}), donate)
    pipeline = pipeline if relax_pipeline is None else relax_pipeline
    # A module that is lowered already was built as a whole by somebody else.
    chosen = Choices() if pipeline is None else choices_for(mod, target)
    target, exec_mode = chosen.target(target), exec_mode or chosen.exec_mode
    with collected() as report, chosen.passes(), worker_at_hand(called_operators(mod)):
        if exec_mode != "bytecode":
            support_at_hand(target)
        schedule = None
        if tir_pipeline == "default":
            # Run with LOWER_TIR on each unit of functions that is not on disk.
            schedule = DefaultSchedule(cpu=cpu_model(target))
        with transform.kernels_told(partial(_begin, target, schedule)):
            mod, passes = _planned(chosen.converted(mod), pipeline)
        if schedule is not None:
            mod = packed(mod, target)
        loops = reachable_kernels(mod)
        if isinstance(tir_pipeline, Pass):
            loops = tir_pipeline(loops)
        bytecode = emit_functions(mod)
        del mod
        kernels = compile_kernels(loops, target, schedule)
    program = assemble(bytecode, kernels.section, target, passes, wait=False)
    if exec_mode != "bytecode":
        # While weights are copied.
        program = compile_program(program, kernels)
    bytecode.finish()
    program.report, program.sources = report, kernels.sources
    return program


def _begin(
    target: Target, schedule: Pass | None, name: str, fn: PrimFunc, constants: tuple[int, ...]
) -> None:
    """Have a kernel that is not on its way through all passes yet compiled as it will be."""
    if schedule is not None and not SOURCES.get():
        ready = partial(ready_kernel, constants=constants, cpu=cpu_model(target))
        # Named as `AttachGlobalSymbol` will name it.
        compile_ahead(name, fn.with_attr("global_symbol", name), target, schedule, ready)


def settings() -> str | None:
    """What builds follow in this thread besides their arguments: "" where it is nothing; None if it
    is something that another process may not have, such as a rule that somebody registered.
    """
    context, target = PassContext.current(), Target.current()
    own = context.instruments or context.get("tir.add_lower_pass") or SOURCES.get()
    if own or rows_replaced() or builtins_replaced() or legalizations_replaced():
        return None
    usual = PassContext()
    chosen = [
        (c.opt_level, c.required_pass, c.disabled_pass, sorted(c.config.items()))
        for c in (context, usual)
    ]
    return "" if chosen[0] == chosen[1] and target is None else f"{chosen[0]} {target}"


def explain(mod: IRModule, target: Any = None) -> Report:
    """What the passes of a build for `target` decide about `mod`, and why, under the current
    PassContext; nothing is compiled. Also `mod.explain()`.
    """
    target = Target.or_current(target)
    with PassContext.current().again() as context:
        schedule = DefaultSchedule(cpu=cpu_model(target))
        Sequential((schedule,), name="schedule")(reachable_kernels(ready_to_schedule(mod, target)))
    return context.report


def ready_to_schedule(mod: IRModule, target: Target) -> IRModule:
    """`mod` as a build for `target` has it when it chooses schedules; ``build(..., pipeline=None)``
    does the rest.
    """
    mod, _ = _planned(module_to_build(mod, "default", None, None), "default")
    return packed(mod, target)


def packed(mod: IRModule, target: Target) -> IRModule:
    """`mod` with constants as kernels scheduled for `target` read them."""
    pack = transform.PackConstants(cpu=cpu_model(target))
    # Functions are tuned as they are written, or as the rules get them: with constants packed.
    tuned = ApplyTuned(target=target)
    passes = (tuned, WidenIndices(), pack, tuned)
    return Sequential(passes, name="pack")(mod)


def _planned(mod: IRModule, pipeline: Any) -> tuple[IRModule, tuple[str, ...]]:
    """`mod` at stage PLANNED, and the names of the passes that brought it there."""
    if pipeline is None:
        assert_well_formed(mod)
        verify_stage(mod, "PLANNED")
        return mod, ()
    mod, names = well_formed(mod), []
    if pipeline not in ("default", "default_build"):
        first = get_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
        if not isinstance(first, Pass):
            raise PassError(f"build: pipeline is a name or a Pass, got {type(first).__name__}")
        changed = first(mod)
        names = _enabled(first)
        if changed is not mod:
            try:
                mod = well_formed(changed)
            except VerifyError:
                blame(first, mod)
                raise
    check_devices(mod)
    return run_stages(mod), (*names, *(n for stage in build_stages() for n in _enabled(stage)))


def _enabled(passes: Pass) -> list[str]:
    if not isinstance(passes, Sequential):
        return [passes.info.name]
    context = PassContext.current()
    return [p.info.name for p in passes.passes if context.pass_enabled(p)]


def well_formed(mod: IRModule) -> IRModule:
    """`mod` in normal form. Raises VerifyError for what is ill formed."""
    mod = transform.Normalize()(mod)
    assert_well_formed(mod)
    return mod


def run_stages(mod: IRModule, stages: Sequence[Pass] = ()) -> IRModule:
    """`mod` brought from GRAPH to PLANNED, by other `stages` if given, under the PassContext."""
    stages = stages or build_stages()
    for passes, reached in zip(stages, ("LEGAL", "FUSED", "PLANNED"), strict=True):
        mod = passes(mod)
        if checks_enabled() or reached == "PLANNED":
            verify_stage(mod, reached)
    return mod


# -- pipelines by name, as TVM has them -----------------------------------------------------------


@module_pass(opt_level=0, name="default_build_pipeline")
def default_build_pipeline(mod: IRModule, ctx: PassContext) -> IRModule:
    """Everything between what users write and what the code generator takes."""
    return run_stages(well_formed(mod))


@module_pass(opt_level=0, name="zero_pipeline")
def zero_pipeline(mod: IRModule, ctx: PassContext) -> IRModule:
    """The part of a build that stays within the graph language, to be printed, changed, built."""
    return GRAPH_TO_LEGAL(well_formed(mod))


for _name in ("default", "default_build"):
    register_pipeline(_name)(default_build_pipeline)
register_pipeline("zero")(zero_pipeline)


@register_pipeline("static_shape_tuning")
def static_shape_tuning_pipeline(
    total_trials: int,
    target: Any,
    work_dir: str = "tuning_logs",
    cpu_weight_prepack: bool = False,
    max_trials_per_task: int | None = None,
) -> Pass:
    """A pass to stage PLANNED, with what was tuned: measures up to `total_trials` candidates (0:
    none) for `target`, and applies the records of the folder `work_dir`.

    cpu_weight_prepack  parameters after the first "num_input" are wanted in the layouts that
                        kernels read best: ``vm["main_transform_params"](weights)`` brings them
                        there. Constants always are.
    max_trials_per_task  how many of `total_trials` one kernel may have; None: any
    """
    target = Target.or_current(target)

    @module_pass(opt_level=0, name="static_shape_tuning_pipeline")
    def tuned(mod: IRModule, ctx: PassContext) -> IRModule:
        mod = LEGAL_TO_FUSED(GRAPH_TO_LEGAL(well_formed(mod)))
        if cpu_weight_prepack:
            mod = transform.RewriteWeightLayouts(cpu=cpu_model(target))(mod)
            mod = transform.LiftTransformParams()(mod)
        mod = packed(run_stages(mod), target)
        with target:
            if total_trials:
                limits = (total_trials, max_trials_per_task)
                tune = transform.MetaScheduleTuneIRMod({}, work_dir, *limits)
                mod = tune(mod)
            if os.path.isdir(work_dir):
                mod = transform.MetaScheduleApplyDatabase(work_dir)(mod)
        return mod

    return tuned


def library_dispatch_passes(target: Any = None) -> list[Pass]:
    """Passes that hand work to libraries before anything is legalised: none so far."""
    return []


def legalize_passes(target: Any = None) -> list[Pass]:
    """Passes up to stage FUSED, as a list to build pipelines from."""
    return [*GRAPH_TO_LEGAL.passes, *LEGAL_TO_FUSED.passes]


def dataflow_lower_passes(target: Any = None) -> list[Pass]:
    """Passes that make effects and outputs explicit."""
    return list(_EXPLICIT)


def finalize_passes(target: Any = None) -> list[Pass]:
    """Passes that plan memory and lower to what the code generator takes."""
    return list(_PLANNED)


def get_default_pipeline(target: Any = None) -> Pass:
    """The pipeline that a build for `target` runs."""
    return default_build_pipeline
