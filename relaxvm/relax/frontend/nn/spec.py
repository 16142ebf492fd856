"""What a module is exported for: its methods, and the shapes and dtypes of their arguments.

    {
        "prefill": {"tokens": spec.Tensor(["n"], "int32"), "total": int},
        "decode": {"tokens": spec.Tensor([1], "int32"), "total": int},
    }

A name in a shape is a symbolic dimension: the same name is the same size throughout a method. An
`int` argument is a size too: it is passed as a shape of one dimension, and methods see its symbol.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....base import FrontendError
from ....base import dtype as as_dtype
from .tensor import Object as _Object
from .tensor import dims_of_spec

_MODES = ("plain", "packed", "none")


class Int:
    """An integer argument: a size."""

    def __repr__(self) -> str:
        return "int"


class Tensor:
    """A tensor argument.

    shape  ints, names of symbolic dimensions, or scalar expressions
    """

    def __init__(self, shape: Sequence[Any], dtype: Any) -> None:
        dims_of_spec(shape, "spec.Tensor: shape")
        self.shape = list(shape)
        self.dtype = as_dtype(dtype)

    def __repr__(self) -> str:
        return f"Tensor([{', '.join(str(d) for d in self.shape)}], '{self.dtype}')"


class Object:
    """An argument of which nothing is known; the method gets an `object_type`."""

    def __init__(self, object_type: type = _Object) -> None:
        if not (isinstance(object_type, type) and issubclass(object_type, _Object)):
            raise FrontendError(f"spec.Object: wanted a subclass of nn.Object, got {object_type!r}")
        self.object_type = object_type

    def __repr__(self) -> str:
        return "object"


class Tuple:
    """A tuple argument, or a list: the method gets what `elements` is."""

    def __init__(self, name: str, elements: Any) -> None:
        if not isinstance(elements, (tuple, list)):
            raise FrontendError(
                f"spec.Tuple: wanted a tuple or list of specs, got {type(elements).__name__}"
            )
        self.name = name
        self.elements = elements

    def __repr__(self) -> str:
        return repr(self.elements)


def as_spec(raw: Any, name: str) -> Any:
    """The spec of one argument as users write it: a spec, `int`, "int", or a tuple or list.

    Raises FrontendError for anything else.
    """
    if raw is Int or raw is int or raw == "int":
        return Int()
    if isinstance(raw, (Int, Tensor, Object)):
        return raw
    if isinstance(raw, Tuple):
        raw, name = raw.elements, raw.name
    if isinstance(raw, (tuple, list)):
        elements = [as_spec(each, f"{name}_{i}") for i, each in enumerate(raw)]
        return Tuple(name, type(raw)(elements))
    raise FrontendError(
        f"argument {name}: wanted spec.Tensor(shape, dtype), int, spec.Object() or a tuple or "
        f"list of them, got {raw!r}"[:300]
    )


class MethodSpec:
    """How one method is exported.

    param_mode   "plain": the function takes each parameter after its inputs; "packed": a tuple of
                 them; "none": none
    effect_mode  the same for the states of effects
    """

    def __init__(
        self,
        method: Callable[..., Any],
        arg_names: Sequence[str],
        arg_specs: Sequence[Any],
        param_mode: str = "plain",
        effect_mode: str = "plain",
    ) -> None:
        for name, mode in (("param_mode", param_mode), ("effect_mode", effect_mode)):
            if mode not in _MODES:
                raise FrontendError(f"{name}: wanted one of {', '.join(_MODES)}, got {mode!r}")
        if len(arg_names) != len(arg_specs):
            raise FrontendError(
                f"MethodSpec: {len(arg_names)} arguments but {len(arg_specs)} specs"
            )
        self.method = method
        self.arg_names = list(arg_names)
        self.arg_specs = [as_spec(s, n) for s, n in zip(arg_specs, arg_names)]
        self.param_mode = param_mode
        self.effect_mode = effect_mode

    @staticmethod
    def from_raw(spec: Any, method: Callable[..., Any]) -> MethodSpec:
        """From {argument: spec}; "$" may hold {"param_mode": ..., "effect_mode": ...}.

        Raises FrontendError for arguments that the method has not, and for those it needs and that
        are missing.
        """
        if isinstance(spec, MethodSpec):
            return spec
        name = getattr(method, "__qualname__", getattr(method, "__name__", "the method"))
        if not isinstance(spec, Mapping):
            raise FrontendError(
                f"{name}: wanted {{argument: spec}}, got {type(spec).__name__}: {spec!r}"[:300]
            )
        modes = dict(spec.get("$", {}))
        specs = {key: value for key, value in spec.items() if key != "$"}
        params = inspect.signature(method).parameters
        unknown = [key for key in specs if key not in params]
        if unknown:
            raise FrontendError(
                f"{name}: has no argument {', '.join(map(repr, unknown))}; "
                f"it takes ({', '.join(params)})"
            )
        missing = [
            key
            for key, param in params.items()
            if key not in specs
            and param.default is param.empty
            and param.kind not in (param.VAR_POSITIONAL, param.VAR_KEYWORD)
        ]
        if missing:
            raise FrontendError(f"{name}: the spec of argument {', '.join(missing)} is missing")
        unused = [key for key in modes if key not in ("param_mode", "effect_mode")]
        if unused:
            raise FrontendError(f"{name}: '$' holds param_mode and effect_mode, got {unused[0]!r}")
        names = [key for key in params if key in specs]
        return MethodSpec(method, names, [specs[key] for key in names], **modes)

    @staticmethod
    def from_torch(args: Sequence[Any], method: Callable[..., Any]) -> MethodSpec:
        """From example arguments (torch tensors, arrays and ints), with the shapes they have."""
        names = list(inspect.signature(method).parameters)[: len(args)]
        specs = [_spec_of(arg, name) for arg, name in zip(args, names)]
        return MethodSpec.from_raw(dict(zip(names, specs)), method)

    def __repr__(self) -> str:
        return self.text("MethodSpec")

    def text(self, name: str) -> str:
        """``name(argument: spec, ...)``"""
        args = ", ".join(f"{n}: {s!r}" for n, s in zip(self.arg_names, self.arg_specs))
        return f"{name}({args})"


def _spec_of(example: Any, name: str) -> Any:
    if isinstance(example, int):
        return Int()
    if isinstance(example, (tuple, list)):
        return type(example)([_spec_of(e, name) for e in example])
    if hasattr(example, "shape") and hasattr(example, "dtype"):
        return Tensor(tuple(example.shape), str(example.dtype).removeprefix("torch."))
    raise FrontendError(f"argument {name}: wanted a tensor or an int, got {type(example).__name__}")


class ModuleSpec:
    """How a module is exported: its methods, by the names of the functions they become."""

    def __init__(
        self, module: Any, method_names: Sequence[str], method_specs: Sequence[MethodSpec]
    ) -> None:
        self.module = module
        self.method_names = list(method_names)
        self.method_specs = list(method_specs)

    @staticmethod
    def from_raw(spec: Any, module: Any) -> ModuleSpec:
        """From {method: {argument: spec}}. Raises FrontendError for methods that are not there."""
        if isinstance(spec, ModuleSpec):
            return spec
        if not isinstance(spec, Mapping):
            raise FrontendError(
                f"wanted {{method: {{argument: spec}}}}, got {type(spec).__name__}: {spec!r}"[:300]
            )
        specs = []
        for name, each in spec.items():
            if isinstance(each, MethodSpec):
                specs.append(each)
                continue
            method = getattr(module, name, None) if isinstance(name, str) else None
            if not callable(method):
                raise FrontendError(f"{type(module).__name__} has no method {name!r}")
            specs.append(MethodSpec.from_raw(each, method))
        return ModuleSpec(module, list(spec), specs)

    def __repr__(self) -> str:
        methods = zip(self.method_names, self.method_specs)
        return "ModuleSpec:\n" + "\n".join(f"  {spec.text(name)}" for name, spec in methods)
