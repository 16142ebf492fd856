"""What passes may do: `PassInfo` describes a pass, `PassContext` says which run and with what
options.
"""

from __future__ import annotations

import contextvars
import copy
import difflib
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base import PassError, Report, telling

NUMERICS = ("exact", "reassociates", "approximate")


class PassInfo:
    """What is known about a pass.

    opt_level  the least optimisation level at which a `Sequential` runs it
    required   names of passes that run before it
    numerics   "exact" (bit for bit), "reassociates" (sums in another order) or "approximate"
    obeys_numerics  whether it keeps to what a context allows of these: it runs under any
    """

    __slots__ = ("name", "numerics", "obeys_numerics", "opt_level", "required", "traceable")

    def __init__(
        self,
        opt_level: int,
        name: str,
        required: Sequence[str] = (),
        traceable: bool = False,
        numerics: str = "exact",
        obeys_numerics: bool = False,
    ) -> None:
        if numerics not in NUMERICS:
            raise PassError(
                f"pass {name}: numerics is one of {', '.join(NUMERICS)}, got {numerics!r}"
            )
        if not isinstance(opt_level, int):
            raise PassError(f"pass {name}: opt_level is an int, got {opt_level!r}")
        self.opt_level = opt_level
        self.name = name
        self.required = tuple(required or ())
        self.traceable = traceable
        self.numerics = numerics
        self.obeys_numerics = obeys_numerics

    def at_level(self, opt_level: int) -> PassInfo:
        """The same at another level."""
        made = copy.copy(self)
        made.opt_level = opt_level
        return made

    def __repr__(self) -> str:
        return f"PassInfo({self.name}, opt_level={self.opt_level}, numerics={self.numerics})"


# -- the context -----------------------------------------------------------------------------------


class _Option:
    __slots__ = ("check", "default", "doc", "kind", "name")

    def __init__(self, name: str, kind: type, default: Any, doc: str, check: Any) -> None:
        self.name, self.kind, self.default, self.doc, self.check = name, kind, default, doc, check


_OPTIONS: dict[str, _Option] = {}


def register_config(
    name: str, kind: type, default: Any, doc: str, check: Callable[[Any], bool] | None = None
) -> None:
    """Declare a key of `PassContext(config={...})`: its type, its default and what it does."""
    _OPTIONS[name] = _Option(name, kind, default, doc, check)


register_config(
    "numerics",
    str,
    "approximate",
    "the loosest numerics label a pass may have: exact, reassociates or approximate",
    lambda value: value in NUMERICS,
)
register_config(
    "target.llvm_seconds",
    float,
    20.0,
    "after this LLVM compiles a kernel again with fewer passes (large ones have more time); 0: "
    "never",
    lambda value: 0 <= value < 1e6,
)


class PassContext:
    """What passes may do while it is entered.

    opt_level      passes of a higher level do not run (0 correctness, 1 clean-up, 2 folding, 3
                   layout, 4 wider rewrites)
    required_pass  names that run whatever their level
    disabled_pass  names that never run; this beats `required_pass`
    instruments    objects called around passes (`ir.instrument`)
    config         options of passes; unknown keys and wrong types are errors. Those of one pass
                   may stand together: {"tir.UnrollLoop": {"auto_max_step": 16}} is
                   {"tir.UnrollLoop.auto_max_step": 16}

    `report` tells what the passes that ran while it was entered decided, and why.

    Contexts nest; each thread (and asyncio task) has its own current one.
    """

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[Any] | None = None,
        config: Mapping[str, Any] | None = None,
        trace_stack: Any = None,
        make_traceable: Any = None,
    ) -> None:
        if not isinstance(opt_level, int) or isinstance(opt_level, bool):
            raise PassError(f"PassContext: opt_level is an int, got {opt_level!r}")
        self.opt_level = opt_level
        self.required_pass = _names(required_pass, "required_pass")
        self.disabled_pass = _names(disabled_pass, "disabled_pass")
        self.instruments = list(_items(instruments, "instruments"))
        self.config = _checked_config({} if config is None else config)
        self.report = Report()

    @staticmethod
    def current() -> PassContext:
        """The innermost context entered in this thread, or one with the defaults."""
        entered = _entered.get()
        return entered[-1][0] if entered else _DEFAULT

    def again(self) -> PassContext:
        """A context like this one, to be entered elsewhere: with a report of its own, and without
        the instruments.
        """
        return PassContext(
            self.opt_level, self.required_pass, self.disabled_pass, None, self.config
        )

    @staticmethod
    def list_configs() -> dict[str, dict[str, Any]]:
        """All config keys: type, default and meaning."""
        for room in _ROOMS.values():
            importlib.import_module(room)
        return {
            o.name: {"type": o.kind.__name__, "default": o.default, "doc": o.doc}
            for o in sorted(_OPTIONS.values(), key=lambda o: o.name)
        }

    list_config_names = list_configs

    def get(self, key: str) -> Any:
        """The value of a config key, or its default. Raises PassError for an unknown key."""
        return self.config.get(key, _option(key).default)

    def pass_enabled(self, info: Any) -> bool:
        """Whether a `Sequential` under this context runs the pass."""
        info = getattr(info, "info", info)
        if info.name in self.disabled_pass:
            return False
        if not (info.obeys_numerics or self.allows(info.numerics)):
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level

    def allows(self, numerics: str) -> bool:
        """Whether what is done to numbers may be as loose as that."""
        return NUMERICS.index(numerics) <= NUMERICS.index(self.get("numerics"))

    def override_instruments(self, instruments: Sequence[Any] | None) -> None:
        """Replace the instruments: the old ones see the context's exit, the new ones its entry."""
        self._each("exit_pass_ctx")
        self.instruments = list(instruments or ())
        self._each("enter_pass_ctx")

    def _each(self, event: str, *args: Any) -> None:
        for instrument in self.instruments:
            method = getattr(instrument, event, None)
            if method is not None:
                method(*args)

    def __enter__(self) -> PassContext:
        scope = telling(self.report)
        scope.__enter__()
        _entered.set((*_entered.get(), (self, scope)))
        try:
            self._each("enter_pass_ctx")
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._each("exit_pass_ctx")
        finally:
            self._leave()

    @staticmethod
    def _leave() -> None:
        *outer, (_, scope) = _entered.get()
        _entered.set(tuple(outer))
        scope.__exit__()

    def __repr__(self) -> str:
        return (
            f"PassContext(opt_level={self.opt_level}, required_pass={list(self.required_pass)}, "
            f"disabled_pass={list(self.disabled_pass)}, config={self.config}, "
            f"instruments={self.instruments})"
        )


# Those entered, the innermost last, each with what opened its report.
_entered: contextvars.ContextVar[tuple[tuple[PassContext, telling], ...]] = contextvars.ContextVar(
    "relaxvm_pass_context", default=()
)


def _names(values: Any, what: str) -> tuple[str, ...]:
    if isinstance(values, str):
        raise PassError(f"PassContext: {what} is a list of names, got the string {values!r}")
    return _items(values, what)


def _items(values: Any, what: str) -> tuple[Any, ...]:
    if values is None:
        return ()
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise PassError(f"PassContext: {what} is a list, got {type(values).__name__}: {values!r}")
    return tuple(values)


# Where the passes live that declare keys of these beginnings.
_ROOMS = {"relax": "relaxvm.relax.transform", "tir": "relaxvm.tir.transform"}


def _option(key: str) -> _Option:
    if key not in _OPTIONS:
        room = _ROOMS.get(key.partition(".")[0])
        if room is not None:
            importlib.import_module(room)
    found = _OPTIONS.get(key)
    if found is None:
        near = difflib.get_close_matches(key, _OPTIONS, n=3)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        room, _, name = key.partition(".")
        why = importlib.import_module("relaxvm._absent").reason(
            f"tvm.{room}.transform.{name.partition('.')[0]}"
        )
        if why is not None:
            hint = f"there is no such pass here: {why}; "
        raise PassError(
            f"PassContext: unknown config key {key!r}; {hint}known: {', '.join(sorted(_OPTIONS))}"
        )
    return found


def _single_keys(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The options one by one, whether those of a pass stand together or not."""
    for key, value in config.items():
        if not isinstance(key, str):
            raise PassError(f"PassContext: config keys are text, got {key!r}")
        # As newer releases of TVM spell the room.
        room, dot, rest = key.partition(".")
        key = f"tir.{rest}" if dot and room in ("s_tir", "tirx") else key
        if isinstance(value, Mapping) and (key not in _OPTIONS or _option(key).kind is not dict):
            for name, each in value.items():
                yield f"{key}.{name}", each
        else:
            yield key, value


def _checked_config(config: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(config, Mapping):
        raise PassError(f"PassContext: config is a dictionary, got {type(config).__name__}")
    checked = {}
    for key, value in _single_keys(config):
        option = _option(key)
        if option.kind is bool and type(value) is int and value in (0, 1):
            value = bool(value)
        kinds = (float, int) if option.kind is float else option.kind
        if not isinstance(value, kinds) or (isinstance(value, bool) and option.kind is not bool):
            raise PassError(
                f"PassContext: config {key!r} is a {option.kind.__name__}, "
                f"got {type(value).__name__}: {value!r}"
            )
        if option.check is not None and not option.check(value):
            raise PassError(f"PassContext: config {key!r} cannot be {value!r}; it is {option.doc}")
        checked[key] = value
    return checked


_DEFAULT = PassContext()
