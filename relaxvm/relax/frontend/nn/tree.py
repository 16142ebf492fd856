"""The tree that a model is: `Parameter`, `Effect`, lists of them, and what a module knows of its
own attributes.
"""

from __future__ import annotations

import contextvars
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ....base import DataType, FrontendError, RelaxvmError, add_note
from ....base import dtype as as_dtype
from ....ir import Var as TirVar
from ....runtime import NDArray, as_ndarray
from ...expr import Var
from ...struct_info import TensorStructInfo
from .containers import DictOf, ListOf
from .subroutine import SubroutineMixin
from .tensor import Tensor, dims_of_spec

_default_dtype: contextvars.ContextVar[str] = contextvars.ContextVar(
    "relaxvm_nn_default_dtype", default="float32"
)

module_paths: contextvars.ContextVar[Mapping[int, str]] = contextvars.ContextVar(
    "relaxvm_nn_module_paths", default=types.MappingProxyType({})
)
"""The names of the modules by id, of the model that is being exported."""


def get_default_dtype() -> str:
    """The dtype of parameters that are given none: "float32" unless `set_default_dtype` said
    otherwise.
    """
    return _default_dtype.get()


def set_default_dtype(dtype: Any) -> None:
    """Set the dtype of parameters that are given none, in this thread (or task)."""
    _default_dtype.set(as_dtype(dtype))


def as_value(data: Any, what: str) -> NDArray:
    """An array of any kind (NDArray, numpy, torch, DLPack, buffer) over the same memory.

    Raises FrontendError for anything else.
    """
    detach = getattr(data, "detach", None)
    if detach is not None:
        # torch hands out no memory of what it still differentiates.
        data = detach()
    try:
        return as_ndarray(data)
    except RelaxvmError as error:
        raise FrontendError(f"{what}: {error}") from None


class Parameter(Tensor):
    """A weight: a tensor that a module has, with or without a value.

    shape  ints, names of symbolic dimensions or scalar expressions
    dtype  None: the default dtype

    ``p.data = array`` gives it a value, without a copy; ``p.data = None`` takes it away.
    """

    _data: NDArray | None

    def __init__(self, shape: Sequence[Any], dtype: Any = None) -> None:
        dims = dims_of_spec(shape, "Parameter: shape")
        chosen = get_default_dtype() if dtype is None else dtype
        super().__init__(_expr=Var("param", TensorStructInfo(dims, chosen)))
        self._data = None
        self._name = ""

    @property
    def data(self) -> NDArray | None:
        """The value, or None."""
        return self._data

    @data.setter
    def data(self, data: Any) -> None:
        if data is None:
            self._data = None
            return
        what = f"parameter {self._name}" if self._name else "Parameter.data"
        value = as_value(data, what)
        fits = value.ndim == self.ndim and all(
            not isinstance(want, int) or want == have for want, have in zip(self.shape, value.shape)
        )
        if not fits:
            raise FrontendError(f"{what}: wanted shape {_shape_text(self)}, got {value.shape}")
        if value.dtype != self.dtype:
            raise FrontendError(
                f"{what}: wanted dtype {self.dtype}, got {value.dtype}; convert the array first, "
                "or the model with to(dtype)"
            )
        self._data = value

    def to(self, dtype: Any = None) -> None:
        """Change the dtype. Raises FrontendError if the parameter has a value, which would lose
        precision: convert the model before its values are set.
        """
        if dtype is None or as_dtype(dtype) is self.dtype:
            return
        if self._data is not None:
            raise FrontendError(
                f"parameter {self._name or '(without a name)'}: it has a value of {self.dtype}; "
                f"call to({str(dtype)!r}) before the values are set, and convert the arrays"
            )
        self._expr = Var("param", TensorStructInfo(self.struct_info.dims, dtype))

    def __repr__(self) -> str:
        has = "without a value" if self._data is None else "with a value"
        return f'Parameter({_shape_text(self)}, "{self.dtype}", {has})'


def _shape_text(tensor: Tensor) -> str:
    shown = [d.name if isinstance(d, TirVar) else str(d) for d in tensor.shape]
    return f"({', '.join(shown)}{',' if len(shown) == 1 else ''})"


class Effect:
    """State that methods change besides their result: the order of prints, a cache.

    It is threaded through every exported method: the function takes the state's values after its
    inputs, and gives the changed ones beside its result. `_initialize_effect` makes the first ones.
    """

    def emit_init(self, name_hint: str, builder: Any) -> list[Var]:
        """Emit what makes the state, in `_initialize_effect`; gives its variables."""
        raise NotImplementedError(f"{type(self).__name__}.emit_init")

    def create(self, name_hint: str) -> list[Var]:
        """The parameters by which a method takes the state."""
        raise NotImplementedError(f"{type(self).__name__}.create")

    def set_state(self, state_vars: list[Var]) -> None:
        """What the state is now."""
        raise NotImplementedError(f"{type(self).__name__}.set_state")

    def finalize(self) -> list[Var]:
        """The state as the method leaves it; the effect forgets it."""
        raise NotImplementedError(f"{type(self).__name__}.finalize")

    def to(self, dtype: Any = None) -> None:
        """Change the dtype, of effects that have one."""


class Tree(SubroutineMixin):
    """What a `Module` is but for its export: attributes by name, and the call of `forward`."""

    def __init__(self) -> None:
        pass

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter) and not value._name:
            value._name = name
        object.__setattr__(self, name, value)

    def children(self) -> Iterator[tuple[str, Any]]:
        """The attributes by name."""
        return iter(list(self.__dict__.items()))

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """The parameters by name, such as ``layers.0.weight``, in the order of assignment.

        One that several modules share comes once, under its first name.
        """
        seen: set[int] = set()
        for name, param in find(self, prefix, lambda item: isinstance(item, Parameter)):
            if id(param) not in seen:
                seen.add(id(param))
                yield name, param

    def parameters(self) -> Iterator[Parameter]:
        """The parameters."""
        for _, param in self.named_parameters():
            yield param

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Tree]]:
        """This module under the name `prefix`, and those below it by theirs."""
        yield prefix, self
        head = f"{prefix}." if prefix else ""
        for name, item in self.children():
            if isinstance(item, Tree):
                yield from item.named_modules(head + name)

    def has_effects(self) -> bool:
        """Whether an `Effect` is somewhere below."""
        return any(True for _ in find(self, "", lambda item: isinstance(item, Effect)))

    def state_dict(
        self, *, prefix: str = "", destination: dict[str, Parameter] | None = None
    ) -> dict[str, Parameter]:
        """{name: parameter}, in a new dictionary or added to `destination`; all names of those
        that are shared.
        """
        state = {} if destination is None else destination
        state.update(find(self, prefix, lambda item: isinstance(item, Parameter)))
        return state

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True
    ) -> tuple[list[str], list[str]]:
        """Give parameters the values in `state_dict`: {name: array or Parameter with a value}.

        Gives (names without a value in it, names that the module has not). Raises FrontendError if
        there are such and `strict` is set, or if a value does not fit; then nothing is changed.
        """
        if not isinstance(state_dict, Mapping) or not all(isinstance(k, str) for k in state_dict):
            raise FrontendError(
                "load_state_dict: wanted {name: array}, got "
                f"{type(state_dict).__name__}: {state_dict!r}"[:300]
            )
        mine = self.state_dict()
        loaded = {id(mine[name]) for name in state_dict if name in mine}
        missing = [name for name, param in mine.items() if id(param) not in loaded]
        unexpected = [name for name in state_dict if name not in mine]
        if strict and (missing or unexpected):
            raise FrontendError(
                f"load_state_dict: missing: {', '.join(missing) or 'none'}; "
                f"unexpected: {', '.join(unexpected) or 'none'}"
            )
        before = {name: param._data for name, param in mine.items()}
        try:
            for name, value in state_dict.items():
                if name in mine:
                    _load(mine[name], name, value)
        except BaseException:
            for name, param in mine.items():
                param._data = before[name]
            raise
        return missing, unexpected

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply `forward`."""
        forward = getattr(self, "forward", None)
        if forward is None:
            raise FrontendError(f"{type(self).__name__} has no method `forward`")
        try:
            return forward(*args, **kwargs)
        except RelaxvmError as error:
            path = module_paths.get().get(id(self), "")
            _note_once(error, f"in module {path or '(the model)'} ({type(self).__name__}.forward)")
            raise

    def _parameter(self, name: str, shape: Sequence[Any], dtype: Any = None) -> None:
        """Assign a parameter; its name stands in the message if it cannot be made."""
        try:
            param = Parameter(shape, dtype)
        except RelaxvmError as error:
            raise type(error)(f"{type(self).__name__}.{name}: {error}") from None
        setattr(self, name, param)

    def to(self, dtype: Any = None) -> None:
        """Change the dtype of all parameters and effects below; see `Parameter.to`."""
        for _, item in self.children():
            if isinstance(item, (Tree, Parameter, Effect, ParameterList, ParameterDict)):
                item.to(dtype=dtype)
        if dtype is not None and isinstance(getattr(self, "dtype", None), str):
            self.dtype = DataType(dtype)

    def __repr__(self) -> str:
        parts = []
        for name, item in self.children():
            if isinstance(item, (Tree, Parameter, Effect)):
                parts.append(f"  ({name}): " + repr(item).replace("\n", "\n  "))
        body = "\n" + "\n".join(parts) + "\n" if parts else ""
        return f"{type(self).__name__}({body})"


def _load(param: Parameter, name: str, value: Any) -> None:
    if isinstance(value, Parameter):
        if value.data is None:
            raise FrontendError(f"load_state_dict: {name} in the given state has no value")
        value = value.data
    param._name = name
    param.data = value


def find(
    root: Any, prefix: str, wanted: Callable[[Any], bool], inside: tuple[int, ...] = ()
) -> Iterator[tuple[str, Any]]:
    """Attributes below the module `root` that are `wanted`, by their dotted names.

    Raises FrontendError for a module that contains itself.
    """
    if id(root) in inside:
        raise FrontendError(
            f"module {prefix.rstrip('.')} ({type(root).__name__}) contains itself; keep parents "
            "out of the attributes of modules"
        )
    for name, item in root.children():
        if wanted(item):
            yield prefix + name, item
        elif isinstance(item, (Tree, ParameterList, ParameterDict)):
            yield from find(item, f"{prefix}{name}.", wanted, (*inside, id(root)))


class ParameterList(ListOf):
    """Parameters by number."""

    _kind, _kind_name = Parameter, "a Parameter"

    def __init__(self, parameters: Any = ()) -> None:
        self._fill(parameters)

    def to(self, dtype: Any = None) -> None:
        """Change the dtype of all of them; see `Parameter.to`."""
        for param in self._items:
            param.to(dtype)


class ParameterDict(DictOf):
    """Parameters by name."""

    _kind, _kind_name = Parameter, "a Parameter"

    def __init__(self, parameters: Mapping[str, Parameter] | None = None) -> None:
        self._fill(parameters)

    def to(self, dtype: Any = None) -> None:
        """Change the dtype of all of them; see `Parameter.to`."""
        for param in self._items.values():
            param.to(dtype)


def _note_once(error: BaseException, note: str) -> None:
    """Say where in the model an error arose: the innermost module."""
    if not any(n.startswith("in module ") for n in getattr(error, "__notes__", ())):
        add_note(error, note)
