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

from ..base import CodegenError, NameSupply, PassError, VerifyError, submodules
from ..ir import GlobalVar, IRModule, Op, VDevice, substitute, walk
from ..ir.transform import Pass, Sequential, module_pass
from ..ir.walk import transform as transform_nodes
from ..pipeline import build_stages, packed, reachable_kernels, run_stages, well_formed
from ..relax import Call, Function, TensorStructInfo, call_dps_packed, op
from ..relax import transform as graph_passes
from ..runtime import (
    GraphExecutorFactoryModule,
    Module,
    NDArray,
    as_ndarray,
    check_graph,
    device_name,
    graph_json,
    read_graph,
)
from ..target import Target, c, compile_kernels, cpu_model, llvm_at_hand
from ..tir import PrimFunc
from ..tir.schedule.plans import DefaultSchedule
from .backend import Executor, Runtime
from .graph_codegen import GraphWriter
from .transform import InferType, PlanDevices

# It is made of this and of `relay.vm`.
__getattr__ = submodules(__name__, {"relaxvm.relay.executors": "create_executor"})

HINT_ON_DEVICE, TO_VDEVICE = Op.get("relax.hint_on_device"), Op.get("relax.to_vdevice")
_MOST_LETTERS = 80
# Ours -> Relay's, where they differ by more than the "nn." before it.
_RELAY_NAMES = {"permute_dims": "transpose", "concat": "concatenate", "astype": "cast"}
# A product with a transposed matrix is one operator in Relay.
_TURNED = re.compile("transpose_(?=nn_(dense|batch_matmul|matmul))")
_NUMBERED = re.compile(r"(.*?)_?\d+")
_ENDS_IN_A_NUMBER = ("log2", "log10", "exp2", "exp10", "expm1", "log1p", "atan2")


@llvm_at_hand()
def build(
    ir_mod: Any,
    target: Any = None,
    target_host: Any = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
    executor: Executor | None = None,
    runtime: Runtime | None = None,
) -> GraphExecutorFactoryModule:
    """Compile the function ``main`` of a module for a graph executor, under the current
    PassContext.

    target       a text, a Target, or {device: target}; None: the current one, else this computer
    target_host  where the calling code runs; `Target(target, host=...)` is the present spelling
    params       arrays of parameters of ``main``, by name; other names mean nothing
    mod_name     what the module is called: ``lib[mod_name](dev)``; part of the kernels' names
    executor     its option "link-params" is what the target's option of that name is
    runtime      the one of the target runs it; "crt" wants target "c"

    Raises ValueError for arguments of other types, CodegenError for what only the virtual machine
    runs.
    """
    for choice, kind in ((executor, Executor), (runtime, Runtime)):
        if choice is not None and not isinstance(choice, kind):
            raise PassError(
                f"relay.build: wanted a relay.backend.{kind.__name__}, got {type(choice).__name__}"
            )
    mod = taken_module(ir_mod, params)
    devices, target = _devices(target), one_target(target, target_host)
    in_c = target.kind_name == "c"
    if runtime is not None and runtime.name == "crt" and not in_c:
        raise PassError(f'relay.build: Runtime("crt") wants target "c", got {target.kind_name!r}')
    planned = lowered(mod, target, mod_name, devices)
    schedule = DefaultSchedule(cpu=cpu_model(target))
    kernels = compile_kernels(reachable_kernels(planned), target, schedule)
    writer = GraphWriter(planned, "main")
    constants, linked = writer.params, target.options.get("link-params", False)
    linked = linked or bool(executor is not None and executor.options.get("link-params"))
    sources = kernels.sources
    if target.kind_name == "c":
        sources = c.with_graph(sources, writer.text, constants if linked else {})
    lib = Module(kernels.section, sources=sources, params=constants if linked else None)
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
    one_target(target, None)
    mod = taken_module(mod, params)
    *passes, last = build_stages()[0].passes
    assert last.info.name == "LegalizeOps"
    optimized: IRModule = Sequential(passes, name="optimize")(typed(mod))
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


def taken_module(mod: Any, params: Mapping[str, Any] | None) -> IRModule:
    """The module to build, with `params` bound in ``main``. Raises ValueError for what is none."""
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
    entry = entry_of(mod)
    if params is not None and not isinstance(params, Mapping):
        raise VerifyError(
            f"relay.build: params: wanted a dictionary by name, got {type(params).__name__}"
        )
    if params:
        mod = mod.clone()
        mod["main"] = bind_params_by_name(entry, params)
    return mod


def entry_of(mod: IRModule) -> Function:
    """The function ``main``. Raises VerifyError if there is none."""
    main = mod["main"] if "main" in mod else None
    if not isinstance(main, Function):
        names = ", ".join(gv.name_hint for gv in mod) or "none"
        raise VerifyError(f"relay.build: wanted a function main; the module has: {names}")
    return main


def one_target(target: Any, target_host: Any) -> Target:
    """The target of all kernels, of any form that `build` takes."""
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
    chosen, _ = Target.check_and_update_host_consist(target, target_host, False)
    if isinstance(chosen, dict):
        each = list(dict.fromkeys(chosen.values()))
        if len(each) != 1:
            listed = ", ".join(f"{device}: {one}" for device, one in chosen.items())
            raise PassError(f"relay.build: wanted one target for all devices, got {listed or '{}'}")
        return each[0]
    return Target.or_current(chosen)


def _devices(target: Any) -> list[VDevice] | None:
    """The devices of a dictionary, the first of which is where everything is by default."""
    if not isinstance(target, Mapping) or "kind" in target:
        return None
    named: list[Any] = [device_name(getattr(key, "value", key)) for key in target]
    return [VDevice("llvm" if kind == "cpu" else kind, index) for kind, index in named]


# -- lowering --------------------------------------------------------------------------------------


def lowered(
    mod: IRModule, target: Target, mod_name: str, devices: list[VDevice] | None = None
) -> IRModule:
    """`mod` at stage PLANNED, as a graph can say it, with TVM's names of kernels.

    devices  those that there are; None: the CPU
    """
    mod = well_formed(typed(_in_one_function(mod)))
    used = {n.vdevice for n in walk(mod["main"]) if isinstance(n, TensorStructInfo)} - {None}
    hints = any(isinstance(n, Call) and n.op is HINT_ON_DEVICE for n in walk(mod["main"]))
    if used or hints:
        mod = _with_copies(mod, devices or [VDevice("llvm", 0)])
    mod = packed(run_stages(mod, _STAGES), target)
    return _with_names(mod, _kernel_names(mod, mod_name))


def typed(mod: IRModule) -> IRModule:
    """`mod`, whose types are found."""
    typed_mod: IRModule = InferType()(mod)
    return typed_mod


def _with_copies(mod: IRModule, devices: list[VDevice]) -> IRModule:
    """`mod` with annotations obeyed, and with a call for each copy from device to device.

    Raises CodegenError for a device that is none of `devices`.
    """
    mod = PlanDevices(devices[0])(mod)

    def called(n: Any) -> Any:
        device = n.vdevice if isinstance(n, TensorStructInfo) else None
        if device is not None and device not in devices:
            known = ", ".join(d.script() for d in devices)
            raise CodegenError(
                f"relay.build: something is on {device.script()}, the targets are for {known}; "
                'give a dictionary of all devices: target={"cpu": "llvm", "cuda": "llvm"}'
            )
        if isinstance(n, Call) and n.op is TO_VDEVICE:
            return call_dps_packed(graph_json.COPY, n.args, n.struct_info)
        return None

    main = transform_nodes(mod["main"], called)
    changed = mod.clone()
    changed["main"] = main
    return well_formed(changed)


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
            stem = _TURNED.sub("", stem)
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
    for stage in build_stages()
)
