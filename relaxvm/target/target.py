"""`Target`: for which kind of machine to compile.

    Target("llvm")                               this computer
    Target("llvm -mcpu=haswell -num-cores=4")    options as TVM writes them
    Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    with Target("llvm"): ...                     Target.current()

Equal targets are the identical object; `str(target)` parses back to it.
"""

from __future__ import annotations

import contextvars
import json
import shlex
from collections.abc import Mapping
from typing import Any

from ..base import PassError, did_you_mean
from ..ir import Map, Node, node

# Option: how its text is read. A list is written with commas.
_OPTIONS: dict[str, type] = {
    "mtriple": str,
    "mcpu": str,
    "mattr": list,
    "num-cores": int,
    "opt-level": int,
    "keys": list,
    "libs": list,
    "tag": str,
    "model": str,
    "device": str,
    # Of `relay.build`: whether parameters lie in the library.
    "link-params": bool,
    # What schedules read (`cpu_model`); detected for this computer, else modest.
    "vector-width": int,
    "num-vector-registers": int,
    "l1-cache-bytes": int,
    "l2-cache-bytes": int,
    "l3-cache-bytes": int,
}
# Least and greatest of a number. (How far opt-level goes, the code generator says.)
_LIMITS = {
    "num-cores": (1, 1 << 16),
    # Arm's SVE goes up to 2048 bits; kernels for wider registers would only be long.
    "vector-width": (64, 2048),
    "num-vector-registers": (1, 1 << 10),
    "l1-cache-bytes": (1 << 10, 1 << 40),
    "l2-cache-bytes": (1 << 10, 1 << 40),
    "l3-cache-bytes": (1 << 10, 1 << 40),
}
_MOST_TEXT = 1 << 16
# Kinds of targets: LLVM, C, and code generators that somebody registered (`code_generator`).
KINDS: list[str] = ["llvm", "c"]
_ALIASES = {"native": "llvm", "cpu": "llvm"}

# Names for whole targets.
_ARM64 = "llvm -mtriple=aarch64-linux-gnu"
_TAGS = {
    "x86-64-v2": "llvm -mcpu=x86-64-v2",
    "x86-64-v3": "llvm -mcpu=x86-64-v3",
    "x86-64-v4": "llvm -mcpu=x86-64-v4",
    "intel/haswell": "llvm -mcpu=haswell",
    "intel/skylake-avx512": "llvm -mcpu=skylake-avx512",
    "intel/cascadelake": "llvm -mcpu=cascadelake",
    "intel/icelake-server": "llvm -mcpu=icelake-server",
    "intel/sapphirerapids": "llvm -mcpu=sapphirerapids",
    "amd/zen2": "llvm -mcpu=znver2",
    "amd/zen3": "llvm -mcpu=znver3",
    "amd/zen4": "llvm -mcpu=znver4",
    "arm/neoverse-n1": f"{_ARM64} -mcpu=neoverse-n1",
    "arm/neoverse-v1": f"{_ARM64} -mcpu=neoverse-v1",
    "raspberry-pi/4b-aarch64": f"{_ARM64} -mcpu=cortex-a72 -mattr=+neon -num-cores=4",
    "riscv64/generic": "llvm -mtriple=riscv64-linux-gnu -mattr=+m,+a,+f,+d,+c",
}

_current: contextvars.ContextVar[tuple[Target, ...]] = contextvars.ContextVar(
    "relaxvm_target", default=()
)


class TargetKind(str):
    """The name of a kind of target; `.name` as in TVM."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str.__str__(self)


@node(interned=True)
class Target(Node):
    """A kind of code generator and its options. `host` is where the calling code runs, if that is
    elsewhere.
    """

    kind_name: str
    options: Map = Map()
    host: Any = None

    @staticmethod
    def _normalise_(kind_name: Any, options: Any, host: Any) -> tuple[str, Map, Any]:
        try:
            if isinstance(options, (str, Target)) and host is None:
                # As TVM writes it: Target("llvm -mtriple=...", "llvm").
                options, host = None, options
            text, stated = _parse(kind_name)
            stated.update(options or {})
            inner_host = stated.pop("host", None)
            host = inner_host if host is None else host
            if host is not None and not isinstance(host, Target):
                host = Target(host)
        except RecursionError:
            raise PassError(
                "Target: nested too deeply; a target has a host, and that has none"
            ) from None
        if host is not None and host.host is not None:
            raise PassError(f"Target: the host {host} has a host of its own; a host runs by itself")
        if text not in KINDS:
            hint = did_you_mean(text, (*KINDS, *_ALIASES, *_TAGS))
            raise PassError(
                f"Target: unknown kind {text!r}{hint}; known: {', '.join((*KINDS, *_ALIASES))}, "
                "and the tags of Target.list_tags()"
            )
        strange = [name for name in stated if not isinstance(name, str)]
        if strange:
            raise PassError(f"Target: options are named by text, got {strange[0]!r}")
        checked = {name: _checked(name, stated[name]) for name in sorted(stated)}
        return text, Map(checked), host

    @property
    def kind(self) -> TargetKind:
        """The code generator: "llvm", "c", or one that somebody registered."""
        return TargetKind(self.kind_name)

    @property
    def attrs(self) -> Map:
        """The options."""
        return self.options

    @property
    def keys(self) -> tuple[str, ...]:
        """What schedules may be looked up by."""
        return (*self.options.get("keys", ()), "cpu")

    @property
    def mcpu(self) -> str:
        """The CPU's name, "" for the default."""
        return str(self.options.get("mcpu", ""))

    @property
    def mattr(self) -> tuple[str, ...]:
        """CPU features to add or take away."""
        return tuple(self.options.get("mattr", ()))

    @property
    def mtriple(self) -> str:
        """Architecture, vendor and system; "" if it is not stated: this computer."""
        return str(self.options.get("mtriple", ""))

    @property
    def libs(self) -> tuple[str, ...]:
        """Names of libraries: a remark, as in TVM."""
        return tuple(self.options.get("libs", ()))

    @property
    def model(self) -> str:
        """The model of the device: a remark, as in TVM."""
        return str(self.options.get("model", ""))

    @property
    def device_name(self) -> str:
        """The name of the device: a remark, as in TVM."""
        return str(self.options.get("device", ""))

    @property
    def max_num_threads(self) -> int:
        """How many threads a kernel is shared out among, 1 if that is not stated."""
        return int(self.options.get("num-cores", 1))

    def export(self) -> dict[str, Any]:
        """As a dictionary that `Target` takes."""
        exported: dict[str, Any] = {"kind": self.kind_name}
        exported.update(
            {k: list(v) if isinstance(v, tuple) else v for k, v in self.options.items()}
        )
        if self.host is not None:
            exported["host"] = self.host.export()
        return exported

    def with_host(self, host: Any) -> Target:
        """This target, called from `host`."""
        return Target(self.kind_name, self.options, Target(host))

    def __str__(self) -> str:
        parts = [self.kind_name]
        for name, value in self.options.items():
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            text = str(int(value)) if isinstance(value, bool) else text
            parts.append(f"-{name}={shlex.quote(text)}")
        if self.host is not None:
            parts.append(f"-host={shlex.quote(str(self.host))}")
        return " ".join(parts)

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def __enter__(self) -> Target:
        _current.set((*_current.get(), self))
        return self

    def __exit__(self, *exc: object) -> None:
        _current.set(_current.get()[:-1])

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The innermost target entered in this thread. Raises PassError if there is none and that
        is not allowed.
        """
        stack = _current.get()
        if not stack and not allow_none:
            raise PassError('no target: enter one with `with Target("llvm"):`')
        return stack[-1] if stack else None

    @staticmethod
    def or_current(target: Any = None) -> Target:
        """`target` as a Target; for None the current one, else this computer."""
        if target is None:
            return Target.current() or Target("llvm")
        return target if isinstance(target, Target) else Target(target)

    @staticmethod
    def check_and_update_host_consist(
        target: Any, host: Any = None, target_is_dict_key: bool = True
    ) -> tuple[Any, Any]:
        """(`target` called from `host`, that host): `target` is None, a target in any form, or a
        dictionary of targets, keys (or values, by `target_is_dict_key`) of something.

        Raises PassError if `target` has another host, or is None and `host` is not.
        """
        host = None if host is None else Target(host)
        if target is None:
            if host is not None:
                raise PassError(f"Target: a host, {host}, of no target")
            return None, None
        if isinstance(target, Mapping) and "kind" not in target:
            whole: dict[Any, Any] = {}
            for key, value in target.items():
                of, what = (key, value) if target_is_dict_key else (value, key)
                of, host = Target.check_and_update_host_consist(of, host)
                whole.update({of: what} if target_is_dict_key else {what: of})
            return whole, host
        called = Target(target)
        if host is None or called.host is host:
            return called, called.host
        if called.host is not None:
            raise PassError(f"Target: {called} has a host of its own, which is not {host}")
        return called.with_host(host), host

    @staticmethod
    def from_device(device: Any) -> Target:
        """The target of a device of this computer."""
        return Target("llvm")

    @staticmethod
    def list_kinds() -> list[str]:
        """The kinds there are."""
        return list(KINDS)

    @staticmethod
    def list_tags() -> dict[str, str]:
        """Names for whole targets, and what they stand for: ``Target("amd/zen4")``."""
        return dict(_TAGS)


def _parse(text: Any) -> tuple[str, dict[str, Any]]:
    """(kind, options) of text, a dictionary or a Target."""
    if isinstance(text, Target):
        return text.kind_name, {
            **text.options,
            **({"host": text.host} if text.host is not None else {}),
        }
    if isinstance(text, str) and text.lstrip().startswith("{"):
        try:
            text = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PassError(f"Target: not JSON: {error}") from None
    if isinstance(text, Mapping):
        options: dict[str, Any] = dict(text)
        kind = options.pop("kind", None)
        if not isinstance(kind, str):
            raise PassError(f'Target: the dictionary has no "kind"; got {sorted(map(str, text))}')
        name, more = _parse(kind)
        return name, {**more, **options}
    if not isinstance(text, str):
        raise PassError(f"Target: wanted text, a dictionary or a Target, got {type(text).__name__}")
    if len(text) > _MOST_TEXT:
        raise PassError(f"Target: a text of {len(text)} characters; at most {_MOST_TEXT}")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise PassError(f"Target: {text!r}: {error}") from None
    if not words:
        raise PassError('Target: the text is empty; wanted one such as "llvm -mcpu=haswell"')
    options = {}
    tagged = _TAGS.get(words[0])
    if tagged is not None:
        name, options = _parse(tagged)
        options["tag"] = words[0]
        words[0] = name
    seen: set[str] = set()
    i = 1
    while i < len(words):
        name, equals, value = words[i].lstrip("-").partition("=")
        if _OPTIONS.get(name) is bool and not equals:
            equals, value = "=", "1"
        if not words[i].startswith("-"):
            raise PassError(f"Target: {words[i]!r} is no option; options are written -name=value")
        if not equals:
            i += 1
            if i >= len(words):
                raise PassError(f"Target: option -{name} has no value")
            value = words[i]
        if name in seen:
            raise PassError(f"Target: option -{name} is given twice")
        seen.add(name)
        options[name] = value
        i += 1
    return _ALIASES.get(words[0], words[0]), options


def _checked(name: str, value: Any) -> Any:
    kind = _OPTIONS.get(name)
    if kind is None:
        hint = did_you_mean(name, _OPTIONS)
        raise PassError(
            f"Target: unknown option {name!r}{hint}; known: {', '.join(sorted(_OPTIONS))}"
        )
    if kind is list:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple)) or not all(_is_text(p) for p in parts):
            raise PassError(f"Target: option {name} is a list of words, got {value!r}")
        words = tuple(p.strip() for p in parts if p.strip())
        if name == "mattr":
            _check_features(words)
        return words
    if kind is bool:
        if str(value) not in ("0", "1", "False", "True"):
            raise PassError(f"Target: option {name} is 0 or 1, got {value!r}")
        return str(value) in ("1", "True")
    if kind is int:
        return _number(name, value)
    if not _is_text(value):
        raise PassError(f"Target: option {name} is text, got {value!r}")
    return value


def _is_text(value: Any) -> bool:
    """Whether it is text that can be printed, and so given to LLVM and written to files."""
    return isinstance(value, str) and value.isprintable()


def _check_features(words: tuple[str, ...]) -> None:
    """Refuse a feature that is both asked for and taken away."""
    wanted: dict[str, bool] = {}
    for word in words:
        name, there = word.lstrip("+-"), not word.startswith("-")
        if not name:
            raise PassError(
                f"Target: option mattr: {word!r} names no feature; write +avx2 or -avx2"
            )
        if wanted.setdefault(name, there) is not there:
            raise PassError(f"Target: option mattr has both +{name} and -{name}")


def _number(name: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or isinstance(value, bool) or (isinstance(value, float) and number != value):
        raise PassError(f"Target: option {name} is a number, got {value!r}")
    if name in _LIMITS:
        least, most = _LIMITS[name]
        if not least <= number <= most:
            raise PassError(
                f"Target: option {name} is at least {least} and at most {most}, got {number}"
            )
    if name == "vector-width" and number & (number - 1):
        raise PassError(f"Target: option vector-width is a power of two, in bits; got {number}")
    return number
