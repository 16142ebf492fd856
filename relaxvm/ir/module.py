"""`IRModule`: the one mutable thing in the IR, a container of immutable functions under global
names.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..base import UNKNOWN, RelaxvmError, Report, Span, VerifyError, did_you_mean
from .node import Map, Node, node, relay_text
from .node import print_ir as print_ir
from .node import show_ir as show_ir
from .walk import substitute


@node
class GlobalVar(Node):
    """The name of a function of a module.

    Compared by identity in Python; two modules match their functions by `name_hint`. `struct_info`
    is the signature as the callers may rely on it (a `relax.FuncStructInfo`), None for functions
    that graph code does not call directly.
    """

    name_hint: str
    struct_info: Node | None = None
    span: Span = UNKNOWN

    @property
    def name(self) -> str:
        """The name."""
        return self.name_hint

    def __call__(self, *args: Any) -> Node:
        """A call of this function: of a loop function if the arguments are scalars, else of a
        graph function.
        """
        return _call_global(self, args)

    def __str__(self) -> str:
        return f"@{self.name_hint}"


RELAY = Span(name="Relay")
"""Where functions come from that are written in Relay's spelling: ``print`` shows them in it."""


def written_in_relay(function: BaseFunc) -> bool:
    """Whether `function` was made by Relay's constructors, or of what was."""
    span: Span = getattr(function, "span", UNKNOWN)
    return any(part.name == RELAY.name for part in span.parts or (span,))


CALL_MAKERS: list[Callable[[GlobalVar, tuple[Any, ...]], Node | None]] = []


def _call_global(gv: GlobalVar, args: tuple[Any, ...]) -> Node:
    for make in CALL_MAKERS:
        call = make(gv, args)
        if call is not None:
            return call
    raise VerifyError(f"{gv.name_hint} cannot be called on {[type(a).__name__ for a in args]}")


class BaseFunc(Node):
    """A function of a module: a loop function (`tir.PrimFunc`), a graph function
    (`relax.Function`) or an extern.
    """

    __slots__ = ()
    attrs: Map

    def _for_callers_(self) -> Node | None:
        """The struct info of a GlobalVar of this function."""
        return getattr(self, "struct_info", None)

    def with_attr(self, key_or_map: str | Mapping[str, Any], value: Any = None) -> Any:
        """A copy with one attribute, or all of a mapping, added or replaced."""
        new = {key_or_map: value} if isinstance(key_or_map, str) else key_or_map
        return self.replace(attrs=self.attrs.with_(new))

    def with_attrs(self, attrs: Mapping[str, Any]) -> Any:
        """A copy with exactly these attributes."""
        return self.replace(attrs=Map(attrs))

    def without_attr(self, key: str) -> Any:
        """A copy without one attribute; the same object if it has none of that name."""
        return self.replace(attrs=self.attrs.without(key))

    def get_attr(self, key: str, default: Any = None) -> Any:
        """The attribute, or `default`."""
        return self.attrs.get(key, default)

    def __str__(self) -> str:
        return relay_text("pretty_print", self) if written_in_relay(self) else self.script()


class GlobalInfo(Node):
    """Something a module declares for its functions to refer to."""

    __slots__ = ()


@node
class DummyGlobalInfo(GlobalInfo):
    """A global info without content, for tests."""


@node(interned=True)
class VDevice(GlobalInfo):
    """A device that tensors can be annotated with. Interned, since struct info contains it.

    target  its kind and options as text, such as "cuda -arch=sm_80" (also given as a mapping or a
            `Target`), of any machine; None: not said, so it is like no device at all
    """

    target: str | None = None
    vdevice_id: int = 0
    memory_scope: str = "global"

    @staticmethod
    def _normalise_(target: Any, vdevice_id: Any, memory_scope: Any) -> tuple[Any, ...]:
        number = getattr(vdevice_id, "value", vdevice_id)
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise VerifyError(f"vdevice: wanted a number of at least 0, got {vdevice_id!r}")
        if not isinstance(memory_scope, str):
            raise VerifyError(f"vdevice: wanted the name of a memory, got {memory_scope!r}")
        return _target_text(target), number, memory_scope

    @staticmethod
    def from_name(name: Any) -> VDevice:
        """The device called "llvm", "llvm:1" or "llvm:1:global" where no module declares any."""
        kind, *rest = name.split(":") if isinstance(name, str) else [""]
        if not kind or len(rest) > 2 or (rest and not rest[0].isdecimal()):
            raise VerifyError(
                f"vdevice: wanted a name such as 'llvm:0' or I.vdevice(...), got {name!r}"
            )
        return VDevice(kind, int(rest[0][:9]) if rest else 0, *rest[1:])

    @property
    def kind(self) -> str:
        """The first word of `target`, such as "llvm"; "" if there is none."""
        return self.target.split()[0] if self.target else ""


def _target_text(target: Any) -> str | None:
    if target is None:
        return None
    options = dict(target) if isinstance(target, Mapping) else {}
    if isinstance(options.get("kind"), str):
        words = [options.pop("kind")]
        for key, value in sorted(options.items()):
            many = isinstance(value, (list, tuple))
            words.append(f"-{key}={','.join(map(str, value)) if many else value}")
        return " ".join(words)
    if not isinstance(target, Node) and not isinstance(target, str):
        raise VerifyError(f"vdevice: wanted a target such as 'llvm', got {target!r}")
    text = str(target).strip()
    if not text:
        raise VerifyError("vdevice: wanted a target such as 'llvm', got an empty text")
    return text


class IRModule:
    """Functions by global name, with module attributes.

    functions     {GlobalVar or str: function} to start with
    attrs         attributes of the module
    global_infos  {name: [GlobalInfo, ...]}

    The container is mutable (`mod["f"] = ...`, `update_func`, `update`); the functions in it are
    not. Passes return a new module that shares the functions they left alone. A module made of a
    class has its `__name__`.
    """

    __slots__ = ("__name__", "__weakref__", "_by_name", "_functions", "attrs", "global_infos")
    __name__: str

    def __init__(
        self,
        functions: Mapping[Any, BaseFunc] | None = None,
        attrs: Mapping[str, Any] | None = None,
        global_infos: Mapping[str, Any] | None = None,
    ) -> None:
        self._functions: dict[GlobalVar, BaseFunc] = {}
        self._by_name: dict[str, GlobalVar] = {}
        self.attrs = Map.of(attrs)
        self.global_infos = Map.of(global_infos)
        for key, function in (functions or {}).items():
            self[key] = function

    @staticmethod
    def from_expr(
        function: Any, functions: Mapping[Any, BaseFunc] | None = None, type_defs: None = None
    ) -> IRModule:
        """A module of one function, under its ``global_symbol`` or ``main``, and perhaps more.

        function  or an expression of the graph language, whose free variables become parameters;
                  or a module, which is given back
        """
        if isinstance(function, IRModule):
            return function
        module = IRModule(functions)
        if not isinstance(function, BaseFunc):
            as_function = getattr(function, "_as_function_", None)
            if as_function is None:
                kind = type(function).__name__
                raise VerifyError(f"from_expr: wanted a function or an expression, got {kind}")
            function = as_function()
        module[str(function.get_attr("global_symbol", "main"))] = function
        return module

    @property
    def functions(self) -> Mapping[GlobalVar, BaseFunc]:
        """All functions by global variable, in the order they were added."""
        return dict(self._functions)

    def functions_items(self) -> list[tuple[GlobalVar, BaseFunc]]:
        """(global variable, function) pairs, by name."""
        return sorted(self._functions.items(), key=lambda item: item[0].name_hint)

    def items(self) -> list[tuple[GlobalVar, BaseFunc]]:
        """(global variable, function) pairs, in the order they were added."""
        return list(self._functions.items())

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(list(self._functions))

    def __len__(self) -> int:
        return len(self._functions)

    def _resolve(self, name: Any) -> GlobalVar:
        text = name.name_hint if isinstance(name, GlobalVar) else name
        gv = self._by_name.get(text) if isinstance(text, str) else None
        if gv is None:
            raise GlobalNameError(
                f"the module has no function {text!r}{did_you_mean(text, self._by_name)}; it has: "
                f"{', '.join(self._by_name) or 'none'}"
            )
        return gv

    def __getitem__(self, name: Any) -> BaseFunc:
        return self._functions[self._resolve(name)]

    def __contains__(self, name: Any) -> bool:
        return (name.name_hint if isinstance(name, GlobalVar) else name) in self._by_name

    def get(self, name: Any, default: Any = None) -> Any:
        """The function of that name, or `default`."""
        return self[name] if name in self else default

    def __setitem__(self, name: Any, function: BaseFunc) -> None:
        if not isinstance(function, BaseFunc):
            raise VerifyError(
                f"a module holds functions, got {type(function).__name__} for {name!r}"
            )
        if isinstance(name, GlobalVar):
            gv = name
        elif isinstance(name, str) and name:
            gv = self._by_name.get(name) or GlobalVar(name, function._for_callers_())
        else:
            raise VerifyError(f"a function's name is a string or a GlobalVar, got {name!r}")
        if not gv.name_hint.isascii() and any("\ud800" <= c <= "\udfff" for c in gv.name_hint):
            raise VerifyError(f"a function's name is text, got half a character: {gv.name_hint!r}")
        old = self._by_name.get(gv.name_hint)
        if old is not None and old is not gv:
            # Keep the place in the order when a function is replaced under a new GlobalVar.
            self._functions = {(gv if k is old else k): v for k, v in self._functions.items()}
        self._by_name[gv.name_hint] = gv
        self._functions[gv] = function

    def __delitem__(self, name: Any) -> None:
        gv = self._resolve(name)
        del self._functions[gv]
        del self._by_name[gv.name_hint]

    def update_func(self, var: GlobalVar | str, func: BaseFunc) -> None:
        """Put `func` under `var`, replacing what is there."""
        self[var] = func

    def update(self, other: IRModule | Mapping[Any, BaseFunc]) -> None:
        """Add all functions of `other`, replacing those of the same name."""
        for key, function in other.items():
            self[key] = function

    def get_global_var(self, name: str) -> GlobalVar:
        """The global variable of that name. Raises a KeyError and ValueError listing the names if
        there is none.
        """
        return self._resolve(name)

    def get_global_vars(self) -> list[GlobalVar]:
        """All global variables, in the order they were added."""
        return list(self._functions)

    def replace_global_vars(self, names: Mapping[Any, Any]) -> IRModule:
        """A copy with functions renamed, in their definitions and in every call."""
        mapping = {}
        for old, new in names.items():
            gv = self._resolve(old)
            new_gv = new if isinstance(new, GlobalVar) else gv.replace(name_hint=new)
            mapping[gv] = new_gv
        renamed = self.clone(functions={})
        for gv, function in self._functions.items():
            target = mapping.get(gv, gv)
            function = substitute(function, mapping)
            if target is not gv and function.get_attr("global_symbol") == gv.name_hint:
                function = function.with_attr("global_symbol", target.name_hint)
            renamed[target] = function
        return renamed

    def clone(self, functions: Mapping[Any, BaseFunc] | None = None) -> IRModule:
        """A module with the same attributes and the given functions (default: the same ones)."""
        return IRModule(
            self._functions if functions is None else functions, self.attrs, self.global_infos
        )

    def with_attr(self, key: str, value: Any) -> IRModule:
        """A copy with one attribute added or replaced."""
        copy = self.clone()
        copy.attrs = copy.attrs.with_({key: value})
        return copy

    def with_attrs(self, attrs: Mapping[str, Any]) -> IRModule:
        """A copy with attributes added or replaced."""
        copy = self.clone()
        copy.attrs = copy.attrs.with_(attrs)
        return copy

    def without_attr(self, key: str) -> IRModule:
        """A copy without one attribute."""
        copy = self.clone()
        copy.attrs = copy.attrs.without(key)
        return copy

    def get_attr(self, key: str, default: Any = None) -> Any:
        """The attribute, or `default`."""
        return self.attrs.get(key, default)

    def update_global_info(self, name: str, global_info: Any) -> None:
        """Set the global infos kept under `name`."""
        self.global_infos = self.global_infos.with_({name: tuple(global_info)})

    def script(self, **options: Any) -> str:
        """The module as script text that parses back to it."""
        return print_ir(self, **options)

    def show(self, **options: Any) -> None:
        """Print the script text."""
        show_ir(self, **options)

    def explain(self, target: Any = None) -> Report:
        """What the passes of a build for `target` decide about this module, and why, with source
        lines; to be printed. Nothing is compiled.
        """
        report: Report = importlib.import_module("relaxvm.pipeline").explain(self, target)
        return report

    def astext(self, show_meta_data: bool = True, annotate: Any = None, **options: Any) -> str:
        """The module in Relay's text form, which `relay.parse` reads: see `relay.printer`."""
        return relay_text("astext", self, show_meta_data, annotate, **options)

    def __str__(self) -> str:
        if any(map(written_in_relay, self._functions.values())):
            return relay_text("pretty_print", self)
        return self.script()

    def __repr__(self) -> str:
        return f"IRModule({', '.join(self._by_name)})"

    def __copy__(self) -> IRModule:
        return self.clone()


class GlobalNameError(RelaxvmError, KeyError, ValueError):
    """A function name that the module does not have."""

    def __str__(self) -> str:
        return str(self.args[0])
