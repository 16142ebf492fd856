"""What passes may do: `PassInfo` describes a pass, `PassContext` says which run and with what
options.
"""

from __future__ import annotations

import contextvars
import copy
import importlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base import PassError, Report, did_you_mean, telling

NUMERICS = ("exact", "reassociates", "approximate")
# Of every pass there is, users' own included.
_PASS_NAMES: set[str] = set()


_MENDS: list[Callable[[Any, Any], Any]] = []


def after_each_pass(f: Callable[[Any, Any], Any]) -> Any:
    """Decorates what mends a module after every pass: of those before and after, it gives the
    latter as it should be.
    """
    _MENDS.append(f)
    return f


def mended(before: Any, after: Any) -> Any:
    """The module `after`, which a pass made of `before`, as it should be."""
    for mend in _MENDS:
        after = mend(before, after)
    return after


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
        _PASS_NAMES.add(name)

    def at_level(self, opt_level: int) -> PassInfo:
        """The same at another level."""
        info = copy.copy(self)
        info.opt_level = opt_level
        return info

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
    disabled_pass  names that never run; this beats `required_pass`. A `Pass` may stand for its
                   name in both. A name that no pass has is an error when the context is entered.
    instruments    objects called around passes (`ir.instrument`)
    config         options of passes; unknown keys and wrong types are errors. Those of one pass
                   may stand together: {"tir.UnrollLoop": {"auto_max_step": 16}} is
                   {"tir.UnrollLoop.auto_max_step": 16}. Keys of TVM's that mean nothing here give
                   one warning that says why

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
        self._names_known = False

    @staticmethod
    def current() -> PassContext:
        """The innermost context entered in this thread, or one with the defaults."""
        entered = _entered.get()
        return entered[-1][0] if entered else _DEFAULT

    def again(self) -> PassContext:
        """A context like this one, to be entered elsewhere: with a report of its own, and without
        the instruments.
        """
        context = PassContext(
            self.opt_level, self.required_pass, self.disabled_pass, None, self.config
        )
        context._names_known = True
        return context

    @staticmethod
    def list_configs() -> dict[str, dict[str, Any]]:
        """All config keys: type, default and meaning."""
        load_passes(*_ROOMS.values())
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
        exact = info.numerics == NUMERICS[0]
        if not (exact or info.obeys_numerics or self.allows(info.numerics)):
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
        if not self._names_known:
            _check_names(self.required_pass, "required_pass")
            _check_names(self.disabled_pass, "disabled_pass")
            self._names_known = True
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
    names = [getattr(v, "__name__", v) for v in _items(values, what)]
    for name in names:
        if not isinstance(name, str):
            raise PassError(f"PassContext: {what} is a list of names, got {name!r} in it")
    return tuple(map(_without_room, names))


def _without_room(name: str) -> str:
    """The name of a pass that TVM knows with its room, as in "tir.UnrollLoop"."""
    room, _, bare = name.partition(".")
    return bare if room in (*_ROOMS, "s_tir", "tirx") and name not in _PASS_NAMES else name


def _check_names(names: Sequence[str], what: str) -> None:
    """Raise PassError for a name that no pass has; warn of those that TVM has and this has not."""
    if not all(name in _PASS_NAMES for name in names):
        load_passes()
    for name in names:
        if name in _PASS_NAMES:
            continue
        why = next(filter(None, (_absent(f"{r}.transform.{name}") for r in _ROOMS)), None)
        if why is None:
            raise PassError(
                f"PassContext: {what}: no pass is named {name!r}"
                f"{did_you_mean(name, _PASS_NAMES)}; a pass of one's own is known once it is made"
            )
        _warn_once(f"{what}: {name!r} changes nothing: {why}")


def _absent(path: str) -> str | None:
    """Why a name of TVM's does not exist here, if it is one."""
    why: str | None = importlib.import_module("relaxvm._absent").reason(f"tvm.{path}")
    return why


_warned: set[str] = set()


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(f"PassContext: {text}", stacklevel=4)


def _items(values: Any, what: str) -> tuple[Any, ...]:
    if values is None:
        return ()
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise PassError(f"PassContext: {what} is a list, got {type(values).__name__}: {values!r}")
    return tuple(values)


# Where the passes live that declare keys of these beginnings.
_ROOMS = {"relax": "relaxvm.relax.transform", "tir": "relaxvm.tir.transform"}
_ALL_PASSES = (*_ROOMS.values(), "relaxvm.tir.schedule.plans", "relaxvm.pipeline")


def load_passes(*rooms: str) -> None:
    """Import the passes of these rooms, or of all: names and keys are known once they are made, and
    a room may import some of its passes only when they are asked for.
    """
    for room in rooms or _ALL_PASSES:
        module = importlib.import_module(room)
        for name in getattr(module, "__all__", ()):
            getattr(module, name)


def _option(key: str) -> _Option:
    if key not in _OPTIONS:
        room = _ROOMS.get(key.partition(".")[0])
        if room is not None:
            load_passes(room)
    option = _OPTIONS.get(key)
    if option is None:
        raise PassError(
            f"PassContext: unknown config key {key!r}{did_you_mean(key, (*_OPTIONS, *_NO_EFFECT))}"
            f" (known: {', '.join(sorted(_OPTIONS))})"
        )
    return option


_CPU = "kernels run on CPUs"
_RELAY = "a program of Relay's is built as one of relax, which needs no such option"
# Keys of TVM's, as far as they are no options here, and why they change nothing.
_NO_EFFECT = {
    "ir.enable_si_builder": "nodes keep their spans in any case",
    "relax.backend.use_cuda_graph": _CPU,
    "relax.fallback_device_type": "what has no device is on the CPU",
    "relay": _RELAY,
    "te.keep_schedule_record": "schedules are those of tir, which keep a trace",
    "testing.immutable_module": "passes never change the module they are given",
    "tir.debug_keep_trivial_loop": "loops of one iteration cost nothing once compiled",
    "tir.detect_global_barrier": _CPU,
    "tir.disable_assert": "assertions of kernels are how their errors are told",
    "tir.disable_storage_rewrite": "no build runs StorageRewrite",
    "tir.dma_bypass_cache": _CPU,
    "tir.enable_buffer_level_predication": "VectorizeLoop chooses itself",
    "tir.enable_debug": "functions are traced with vm.set_instrument",
    "tir.experimental_dma_bypass_cache": _CPU,
    "tir.instrument_lwp": "kernels are timed with vm.profile",
    "tir.is_entry_func": "every public function can be called",
    "tir.merge_static_smem": _CPU,
    "tir.ptx_ldg32": _CPU,
    "tir.use_async_copy": _CPU,
    "tir.usmp": "memory is planned by relax's StaticPlanBlockMemory",
    "tir.vtcm_capacity": _CPU,
}


def _no_effect(key: str) -> str | None:
    """Why a key of TVM's changes nothing here; None for an option, and for unknown keys."""
    if key in _OPTIONS:
        return None
    room, _, name = key.partition(".")
    why = _NO_EFFECT.get(key) or _NO_EFFECT.get(f"{room}.{name.partition('.')[0]}")
    if why is None and room in _ROOMS and "." in name:
        why = _absent(f"{room}.transform.{name.partition('.')[0]}")
    return why or _NO_EFFECT.get(room)


def _single_keys(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The options one by one, whether those of a pass stand together or not."""
    for key, value in config.items():
        if not isinstance(key, str):
            raise PassError(f"PassContext: config keys are text, got {key!r}")
        # As newer releases of TVM spell the room.
        room, dot, rest = key.partition(".")
        key = f"tir.{rest}" if dot and room in ("s_tir", "tirx") else key
        key = f"relax.{rest}" if room == "relay" and rest.startswith("FuseOps") else key
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
        why = _no_effect(key)
        if why is not None:
            _warn_once(f"config {key!r} changes nothing: {why}")
            continue
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
