"""`relay.create_executor`: a module, or an expression, evaluated at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..base import VerifyError
from ..ir import IRModule
from ..relax import Expr, Function, GlobalVar
from ..runtime import Device, GraphModule, VirtualMachine, cpu
from . import vm
from .build_module import bind_params_by_name, build, entry_of
from .expr import const

_KINDS = ("graph", "vm", "debug")


def create_executor(
    kind: str = "debug",
    mod: IRModule | None = None,
    device: Device | None = None,
    target: Any = "llvm",
    params: Mapping[str, Any] | None = None,
) -> Executor:
    """What evaluates functions of `mod`.

    kind  "graph": `relay.build` and a graph executor; "vm": the virtual machine; "debug": it
          interprets its bytecode

    Raises ValueError for another kind.
    """
    if kind not in _KINDS:
        raise VerifyError(f"create_executor: kind: wanted one of {', '.join(_KINDS)}: {kind!r}")
    return Executor(kind, IRModule() if mod is None else mod, device or cpu(), target, params)


class Executor:
    """See `create_executor`."""

    def __init__(self, kind: str, mod: IRModule, device: Device, target: Any, params: Any) -> None:
        self.mod, self.device, self.target = mod, device, target
        self._of_graph = kind == "graph"
        self._exec_mode = "bytecode" if kind == "debug" else None
        self.params: Mapping[str, Any] = params or {}

    def evaluate(self, expr: Any = None, binds: Mapping[Any, Any] | None = None) -> Any:
        """A Python function that runs ``main``, or the function `expr`; the value of any other
        expression, whose free variables `binds` gives.
        """
        mod = self.mod.clone()
        is_function = expr is None or isinstance(expr, (Function, GlobalVar))
        if isinstance(expr, GlobalVar):
            expr = mod[expr]
        if isinstance(expr, Expr):
            function = expr if isinstance(expr, Function) else Function([*(binds or {})], expr)
            mod["main"] = function
        if self.params:
            mod["main"] = bind_params_by_name(entry_of(mod), self.params)
        call = self._call(mod)
        return call if is_function else call(*(binds or {}).values())

    def _call(self, mod: IRModule) -> Callable[..., Any]:
        if self._of_graph:
            module = GraphModule(build(mod, self.target)["default"](self.device))
            names = [*module.get_input_info()[0]]

            def call(*args: Any, **kwargs: Any) -> Any:
                if len(args) > len(names):
                    raise VerifyError(f"main takes {len(names)} arguments, got {len(args)}")
                module.run(**dict(zip(names, args)), **kwargs)
                results = [module.get_output(i) for i in range(module.get_num_outputs())]
                return results[0] if len(results) == 1 else results

            return call
        program = vm.compile(mod, self.target, exec_mode=self._exec_mode)
        main = VirtualMachine(program, self.device)["main"]
        return lambda *args, **kwargs: main(
            *map(_tensor, args), **{name: _tensor(value) for name, value in kwargs.items()}
        )


def _tensor(value: Any) -> Any:
    """A Python number, also in tuples, as the constant that it is in Relay."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(_tensor, value))
    return const(value).data if isinstance(value, (bool, int, float)) else value
