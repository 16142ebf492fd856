"""`relay.build`: a module as a graph, the kernels that it calls, and parameters.

    lib = relay.build(mod, target="llvm", params=params)
    m = graph_executor.GraphModule(lib["default"](dev))

The stages are those of `relax.build`, but for what a graph in TVM's form cannot say: a reduction
ends its kernel, as in Relay, and each tensor has a storage from its beginning. Kernels have TVM's
names: ``tvmgen_default_fused_nn_conv2d_add``.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Mapping
from typing import Any

from ..base import NameSupply, PassError, VerifyError
from ..ir import GlobalVar, IRModule, substitute
from ..ir.transform import Pass, Sequential, module_pass
from ..pipeline import BUILD, packed, reachable_kernels, run_stages, well_formed
from ..relax import Function, op
from ..relax import transform as graph_passes
from ..runtime import (
    GraphExecutorFactoryModule,
    Module,
    NDArray,
    as_ndarray,
    check_graph,
    read_graph,
)
from ..target import Target, compile_kernels, cpu_model, llvm_at_hand
from ..tir import PrimFunc
from ..tir.schedule.rules import DefaultSchedule
from .graph_codegen import GraphWriter
from .transform import InferType

_MOST_LETTERS = 80
# Ours -> Relay's, where they differ by more than the "nn." before it.
_RELAY_NAMES = {"permute_dims": "transpose", "concat": "concatenate", "astype": "cast"}
_NUMBERED = re.compile(r"(.*?)_?\d+")
_ENDS_IN_A_NUMBER = ("log2", "log10", "exp2", "exp10", "expm1", "log1p", "atan2")


@llvm_at_hand()
def build(
    ir_mod: Any,
    target: Any = None,
    target_host: Any = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
) -> GraphExecutorFactoryModule:
    """Compile the function ``main`` of a module for a graph executor, under the current
    PassContext.

    target       a text, a Target, or {device: target}; None: the current one, else this computer
    target_host  where the calling code runs; `Target(target, host=...)` is the present spelling
    params       arrays of parameters of ``main``, by name; other names mean nothing
    mod_name     what the module is called: ``lib[mod_name](dev)``; part of the kernels' names

    Raises ValueError for arguments of other types, CodegenError for what only the virtual machine
    runs.
    """
    mod, target = _arguments(ir_mod, target, target_host, params)
    planned = lowered(mod, target, mod_name)
    schedule = DefaultSchedule(cpu=cpu_model(target))
    kernels = compile_kernels(reachable_kernels(planned), target, schedule)
    writer = GraphWriter(planned, "main")
    constants, linked = writer.params, target.options.get("link-params", False)
    lib = Module(kernels.section, sources=kernels.sources, params=constants if linked else None)
    graph = read_graph(writer.text)
    check_graph(graph, lib)
    return GraphExecutorFactoryModule(
        graph, lib, mod_name, {} if linked else constants, mod, target
    )


def optimize(
    mod: Any, target: Any = None, params: Mapping[str, Any] | None = None
) -> tuple[IRModule, dict[str, NDArray]]:
    """A module after the passes over operators that a build runs, and the parameters that are not
    constants in it: none.
    """
    mod, _ = _arguments(mod, target, None, params)
    *passes, last = BUILD[0].passes
    assert last.info.name == "LegalizeOps"
    optimized: IRModule = Sequential(passes, name="optimize")(_typed(mod))
    return optimized, {}


def bind_params_by_name(func: Function, params: Mapping[str, Any]) -> Function:
    """`func` with parameters turned into constants; names that it does not have mean nothing.

    Raises ValueError for a name that several parameters have.
    """
    names = [p.name_hint for p in func.params]
    for name in params:
        if names.count(name) > 1:
            raise VerifyError(f"bind_params_by_name: several parameters are called {name!r}")
    here = {name: value for name, value in params.items() if name in names}
    if not here:
        return func
    bound: Function = graph_passes.BindParams("main", here)(IRModule({"main": func}))["main"]
    return bound


class BuildModule:
    """`build` in steps, as TVM has it."""

    def __init__(self) -> None:
        self._built: GraphExecutorFactoryModule | None = None
        self._params: dict[str, Any] = {}

    def build(
        self,
        mod: Any,
        target: Any = None,
        target_host: Any = None,
        params: Mapping[str, Any] | None = None,
        mod_name: str = "default",
    ) -> tuple[str, Module, dict[str, NDArray]]:
        """The graph's JSON, the module with its functions, and its parameters; see `build`."""
        self._built = build(mod, target, target_host, {**self._params, **(params or {})}, mod_name)
        return self.get_json(), self.get_module(), self.get_params()

    def optimize(
        self, mod: Any, target: Any = None, params: Mapping[str, Any] | None = None
    ) -> tuple[IRModule, dict[str, NDArray]]:
        """See `optimize`."""
        return optimize(mod, target, {**self._params, **(params or {})})

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Parameters of all builds from now on."""
        self._params = {name: as_ndarray(value) for name, value in params.items()}

    def _result(self) -> GraphExecutorFactoryModule:
        if self._built is None:
            raise PassError("BuildModule: nothing is built yet; call build first")
        return self._built

    def get_json(self) -> str:
        """The graph of the last build."""
        return self._result().graph_json_str

    get_graph_json = get_json

    def get_module(self) -> Module:
        """The functions of the last build."""
        return self._result().lib

    def get_params(self) -> dict[str, NDArray]:
        """The parameters of the last build."""
        return self._result().params


# -- arguments -------------------------------------------------------------------------------------


def _arguments(
    mod: Any, target: Any, target_host: Any, params: Mapping[str, Any] | None
) -> tuple[IRModule, Target]:
    if not isinstance(mod, (IRModule, Function)):
        raise VerifyError(
            f"Type of input parameter mod must be tvm.IRModule, got {type(mod).__name__}"
        )
    if isinstance(mod, Function):
        warnings.warn(
            "relay.build(function): wanted a module; write IRModule.from_expr(function)",
            DeprecationWarning,
            stacklevel=4,
        )
        mod = IRModule.from_expr(mod)
    if "main" not in mod or not isinstance(mod["main"], Function):
        names = ", ".join(gv.name_hint for gv in mod) or "none"
        raise VerifyError(f"relay.build: wanted a function main; the module has: {names}")
    if target_host is not None:
        if not isinstance(target_host, (str, Target)):
            raise PassError(
                "target host must be the type of str, tvm.target.Target, or None, got "
                f"{type(target_host).__name__}"
            )
        warnings.warn(
            "relay.build: target_host: write target=Target(target, host=...)",
            DeprecationWarning,
            stacklevel=4,
        )
    if params:
        mod = mod.clone()
        mod["main"] = bind_params_by_name(mod["main"], params)
    return mod, _target(target, target_host)


def _target(target: Any, target_host: Any) -> Target:
    chosen, _ = Target.check_and_update_host_consist(target, target_host, False)
    return Target.or_current(chosen)


# -- lowering --------------------------------------------------------------------------------------


def lowered(mod: IRModule, target: Target, mod_name: str) -> IRModule:
    """`mod` at stage PLANNED, as a graph can say it, with TVM's names of kernels."""
    mod = well_formed(_typed(_in_one_function(mod)))
    mod = packed(run_stages(mod, _STAGES), target)
    return _with_names(mod, _kernel_names(mod, mod_name))


def _typed(mod: IRModule) -> IRModule:
    typed: IRModule = InferType()(mod)
    return typed


def _in_one_function(mod: IRModule) -> IRModule:
    """`mod` with what ``main`` calls put in its place, but for functions that are kernels."""
    marked = mod.clone()
    for gv, fn in mod.items():
        if isinstance(fn, Function) and gv.name_hint != "main" and not fn.get_attr("Primitive"):
            marked[gv] = fn.with_attr("inline", True)
    inline, remove = graph_passes.Inline(), graph_passes.DeadCodeElimination(["main"])
    passes = Sequential((graph_passes.Normalize(), inline, remove), name="in_one_function")
    one: IRModule = passes(marked) if len(mod.functions) > 1 else mod
    return one


@module_pass(opt_level=0)
def RelayKernelNames(mod: IRModule, ctx: Any) -> IRModule:
    """Loop functions under the names of Relay's operators: ``conv2d`` is ``nn_conv2d``."""
    ours = _names_of_nn()
    names = NameSupply(lambda: [gv.name_hint for gv in mod], "_")
    renamed: dict[GlobalVar, GlobalVar] = {}
    for gv, fn in mod.items():
        stem = _stem(gv.name_hint)
        relays = f"nn_{stem}" if stem in ours else _RELAY_NAMES.get(stem, stem)
        if stem == "matmul" and isinstance(fn, PrimFunc):
            ndim = len(fn.buffer_map[fn.params[-1]].shape) if fn.params else 0
            relays = {2: "nn_dense", 3: "nn_batch_matmul"}.get(ndim, "nn_matmul")
        if isinstance(fn, PrimFunc) and relays != stem:
            renamed[gv] = GlobalVar(names.fresh(relays))
    return _with_names(mod, renamed)


def _names_of_nn() -> set[str]:
    return {name for name in vars(op.nn) if not name.startswith("_")}


def _stem(name: str) -> str:
    """A name without the number that tells it from others."""
    numbered = None if name.endswith(_ENDS_IN_A_NUMBER) else _NUMBERED.fullmatch(name)
    return name if numbered is None else numbered[1]


def _kernel_names(mod: IRModule, mod_name: str) -> dict[GlobalVar, GlobalVar]:
    """TVM's names of the loop functions, which it makes in the order in which they are called."""
    names = NameSupply(joint="_")
    renamed = {}
    for gv, fn in mod.items():
        if isinstance(fn, PrimFunc):
            # Of a function inside of another, the other's name stands before it.
            stem = f"fused_{_stem(gv.name_hint).rpartition('fused_')[2]}"
            if len(stem) > _MOST_LETTERS:
                digest = hashlib.sha256(stem.encode()).hexdigest()[:16]
                stem = f"{stem[:_MOST_LETTERS]}_{digest}_"
            renamed[gv] = GlobalVar(names.fresh(f"tvmgen_{mod_name}_{stem}"))
    return renamed


def _with_names(mod: IRModule, renamed: Mapping[GlobalVar, GlobalVar]) -> IRModule:
    if not renamed:
        return mod
    functions = {renamed.get(gv, gv): substitute(fn, renamed) for gv, fn in mod.items()}
    return mod.clone(functions)


def _as_relay(each: Pass) -> list[Pass]:
    """What a build for graphs runs in the place of a pass."""
    if each.info.name == "LegalizeOps":
        return [each, RelayKernelNames()]
    if each.info.name == "FuseOps":
        return [graph_passes.FuseOps(fuse_opt_level=1, as_relay=True)]
    if each.info.name == "StaticPlanBlockMemory":
        return [graph_passes.StaticPlanBlockMemory(whole_storages=True)]
    return [each]


_STAGES = tuple(
    Sequential([new for each in stage.passes for new in _as_relay(each)], name=stage.info.name)
    for stage in BUILD
)
