"""`jit`: a module built, with its parameters and the state of its effects, ready to be called.

model.load_state_dict(weights)
run = model.jit({"forward": {"x": spec.Tensor(["n", 784], "float32")}})
y = run(x)                  # x and y: numpy arrays, torch tensors or NDArrays
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....base import FrontendError
from ....relax import build
from ....runtime import KVCache, NDArray, ShapeTuple, VirtualMachine, cpu
from . import spec as _spec
from .exporter import Exporter
from .tree import Parameter, Tree

_FORMATS = ("auto", "numpy", "torch", "raw")


def compile_module(
    module: Tree,
    spec: Any,
    target: Any = None,
    device: Any = None,
    pipeline: Any = "default",
    out_format: str = "auto",
    debug: bool = False,
    bind_params: bool = True,
) -> JITModule:
    """See `Module.jit`."""
    if out_format not in _FORMATS:
        raise FrontendError(
            f"jit: out_format: wanted one of {', '.join(_FORMATS)}, got {out_format!r}"
        )
    wanted = _spec.ModuleSpec.from_raw(spec, module)
    modes = {m.param_mode for m in wanted.method_specs} | {"plain"}
    effect_modes = {m.effect_mode for m in wanted.method_specs} | {"plain"}
    if modes != {"plain"} or effect_modes != {"plain"}:
        raise FrontendError(
            "jit: passes parameters and states itself; leave param_mode and "
            "effect_mode 'plain', or use export_tvm"
        )
    mod, params, _ = Exporter(debug).build(wanted)
    bound = _values(params) if bind_params else {}
    executable = build(mod, target, params=bound, pipeline=pipeline)
    vm = VirtualMachine(executable, _device(device))
    return JITModule(wanted, vm, {} if bind_params else dict(params), out_format)


def _device(device: Any) -> Any:
    if device is None or device == "cpu" or device == "cpu:0":
        return cpu()
    if isinstance(device, str):
        raise FrontendError(f"jit: device: only 'cpu' exists, got {device!r}")
    return device


def _values(params: list[tuple[str, Parameter]]) -> dict[str, NDArray]:
    """The values by name. Raises FrontendError naming all that are missing."""
    missing = [name for name, param in params if param.data is None]
    if missing:
        shown = ", ".join(missing[:20]) + (" ..." if len(missing) > 20 else "")
        raise FrontendError(
            f"jit: {len(missing)} of {len(params)} parameters have no value: {shown}; give them "
            "with load_state_dict, or p.data = array"
        )
    return {name: param.data for name, param in params if param.data is not None}


class JITModule:
    """A built module. ``run(x)`` calls `forward`, ``run["decode"](x)`` another method.

    Caches and other states are kept from call to call; `reset` begins anew. A call that fails
    leaves them as they were (but for a window whose oldest rows it has overwritten). Calls from
    several threads share the state: give each thread a module of its own if there is any.
    """

    def __init__(
        self,
        spec: _spec.ModuleSpec,
        vm: VirtualMachine,
        params: Mapping[str, Parameter],
        out_format: str,
    ) -> None:
        self.vm = vm
        self._methods = dict(zip(spec.method_names, spec.method_specs))
        self._params = params
        self._out_format = out_format
        self._has_state = "_initialize_effect" in vm
        self._state: tuple[Any, ...] = ()
        self.reset()

    def reset(self) -> None:
        """Begin with empty caches."""
        if self._has_state:
            self._state = tuple(self.vm["_initialize_effect"]())

    @property
    def state(self) -> tuple[Any, ...]:
        """The states of the effects, such as `KVCache`s, in the order of the functions."""
        return self._state

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call("forward", args, kwargs)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in self._methods:
            raise FrontendError(
                f"no method {name!r} was built; there are {', '.join(self._methods)}"
            )

        def method(*args: Any, **kwargs: Any) -> Any:
            return self.call(name, args, kwargs)

        method.__name__ = name
        return method

    def call(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call the method `name`; gives arrays of the kind that the arguments are."""
        spec = self._methods.get(name)
        if spec is None:
            raise FrontendError(
                f"no method {name!r} was built; there are {', '.join(self._methods)}"
            )
        inputs = self._arguments(name, spec, args, kwargs)
        weights = _values(list(self._params.items())).values() if self._params else ()
        lengths = [len(each) if isinstance(each, KVCache) else 0 for each in self._state]
        try:
            result = self.vm[name](*inputs, *self._state, *weights)
        except BaseException:
            self._take_back(lengths)
            raise
        if self._has_state:
            result, self._state = result
        return _as_kind(result, self._kind(given_kinds(args, kwargs)))

    def _take_back(self, lengths: list[int]) -> None:
        """Undo the appends of a call that failed."""
        for each, length in zip(self._state, lengths):
            if isinstance(each, KVCache) and len(each) > length:
                each.truncate(length)

    def _arguments(
        self, name: str, spec: _spec.MethodSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> list[Any]:
        names = spec.arg_names
        unknown = [key for key in kwargs if key not in names]
        if len(args) > len(names) or unknown:
            raise FrontendError(
                f"{name}: takes ({', '.join(names)}), got {len(args)} arguments"
                + (f" and {', '.join(unknown)}" if unknown else "")
            )
        bound = {**dict(zip(names, args)), **kwargs}
        missing = [key for key in names if key not in bound]
        if missing or len(bound) != len(args) + len(kwargs):
            raise FrontendError(
                f"{name}: takes ({', '.join(names)}); "
                + (f"missing: {', '.join(missing)}" if missing else "an argument is given twice")
            )
        return [_as_argument(bound[n], s) for n, s in zip(names, spec.arg_specs)]

    def _kind(self, kinds: set[str]) -> str:
        if self._out_format != "auto":
            return self._out_format
        return "torch" if "torch" in kinds else "raw" if "raw" in kinds else "numpy"

    def __repr__(self) -> str:
        return f"<JITModule: {', '.join(self._methods)}>"


def _as_argument(value: Any, spec: Any) -> Any:
    if isinstance(spec, _spec.Int) and isinstance(value, (int, np.integer)):
        return ShapeTuple([int(value)])
    if isinstance(spec, _spec.Tuple) and isinstance(value, (tuple, list)):
        return tuple([_as_argument(v, s) for v, s in zip(value, spec.elements)])
    detach = getattr(value, "detach", None)
    return value if detach is None else detach()


def given_kinds(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> set[str]:
    """Which kinds of arrays there are among arguments: "raw" (NDArray), "numpy", "torch"."""
    kinds: set[str] = set()
    torch = sys.modules.get("torch")
    todo = [*args, *kwargs.values()]
    while todo:
        each = todo.pop()
        if isinstance(each, (tuple, list)) and type(each) is not ShapeTuple:
            todo.extend(each)
        elif type(each) is NDArray:
            kinds.add("raw")
        elif isinstance(each, np.ndarray):
            kinds.add("numpy")
        elif torch is not None and isinstance(each, torch.Tensor):
            kinds.add("torch")
    return kinds


def _as_kind(value: Any, kind: str) -> Any:
    if isinstance(value, tuple) and type(value) is not ShapeTuple:
        return tuple([_as_kind(v, kind) for v in value])
    if type(value) is not NDArray or kind == "raw":
        return value
    if kind == "numpy":
        return value.numpy()
    import torch

    return torch.from_dlpack(value)
