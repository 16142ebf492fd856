"""What models are made of: `Module`, `Parameter`, containers of them, and `Effect`.

A module is a tree of attributes, as in PyTorch: parameters, effects and modules assigned to `self`
are found by their names, ``layers.0.weight``. Its methods run once, when it is exported, on
tensors without values (`Tensor`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....base import FrontendError
from ....ir import IRModule
from .containers import DictOf, ListOf
from .exporter import Exporter
from .jit import compile_module
from .spec import ModuleSpec
from .tensor import Object as Object
from .tensor import Tensor as Tensor
from .tensor import unwrap_nested as unwrap_nested
from .tensor import wrap_nested as wrap_nested
from .tree import Effect as Effect
from .tree import Parameter as Parameter
from .tree import ParameterDict as ParameterDict
from .tree import ParameterList as ParameterList
from .tree import Tree
from .tree import get_default_dtype as get_default_dtype
from .tree import set_default_dtype as set_default_dtype


class Module(Tree):
    """A part of a model. Subclass it, assign parameters and other modules to attributes in
    `__init__`, and write `forward` (and other methods) with `nn.op`.
    """

    def export_tvm(self, spec: Any, debug: bool = False, allow_extern: bool = False) -> Any:
        """The module as graph functions.

        spec          {method: {argument: spec}}; see `nn.spec`
        debug         whether methods may print (`nn.op.print_`); functions then take and give one
                      more state
        allow_extern  whether it may use external modules (`nn.add_extern`)

        Gives (IRModule, [(name, Parameter)]), and the external modules as a third if `allow_extern`
        is set. Raises FrontendError for a spec that does not fit; errors in methods name the module
        they arose in.
        """
        wanted = ModuleSpec.from_raw(spec, self)
        mod, params, extern_mods = Exporter(debug).build(wanted)
        if allow_extern:
            return mod, params, extern_mods
        if extern_mods:
            raise FrontendError(
                f"export_tvm: the module uses {len(extern_mods)} external modules; "
                "set allow_extern=True"
            )
        return mod, params

    def export(self, spec: Any, debug: bool = False) -> tuple[IRModule, dict[str, Parameter]]:
        """(IRModule, {name: Parameter}): `export_tvm` with the parameters as a dictionary."""
        mod, params = self.export_tvm(spec, debug)
        return mod, dict(params)

    def jit(
        self,
        spec: Any,
        target: Any = None,
        device: Any = None,
        pipeline: Any = "default",
        out_format: str = "auto",
        debug: bool = False,
        bind_params: bool = True,
    ) -> Any:
        """The module built for this machine, ready to be called: a `JITModule`.

        out_format   what results are: "numpy", "torch", "raw" (NDArray), or "auto": as arguments
        bind_params  whether the parameters' values become part of the program, which may then
                     compute with them beforehand. If not, each call takes those they have then.

        Raises FrontendError naming the parameters that have no value.
        """
        return compile_module(self, spec, target, device, pipeline, out_format, debug, bind_params)


class ModuleList(ListOf, Module):
    """Modules by number. Applied to a tensor, they run one after the other."""

    _kind, _kind_name = Module, "a Module"

    def __init__(self, modules: Any = ()) -> None:
        self._fill(modules)

    def forward(self, x: Any) -> Any:
        """``modules[n](...modules[1](modules[0](x)))``"""
        for module in self._items:
            x = module(x)
        return x


class ModuleDict(DictOf, Module):
    """Modules by name."""

    _kind, _kind_name = Module, "a Module"

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        self._fill(modules)
