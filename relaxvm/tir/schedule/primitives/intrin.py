"""Tensor intrinsics: a small computation, as a specification and as what the target has for it."""

from __future__ import annotations

from collections.abc import Callable

from ....base import ScheduleError
from ...stmt import PrimFunc
from ...transform.rewriter import constant

_REGISTERED: dict[str, TensorIntrin] = {}
# Those that default schedules use: how they are made, and those of them that somebody asked for.
_MAKERS: dict[str, Callable[[], tuple[PrimFunc, PrimFunc]]] = {}
_BUILTIN: dict[str, TensorIntrin] = {}


class TensorIntrin:
    """`desc` says what is computed, `impl` how; their parameters are the same buffers in order.

    desc  a loop function of one nest with one block, over buffers of constant shape
    impl  a loop function over the same buffers, with any statements
    """

    def __init__(self, desc: PrimFunc, impl: PrimFunc) -> None:
        for what, fn in (("desc", desc), ("impl", impl)):
            if not isinstance(fn, PrimFunc):
                raise ScheduleError(f"TensorIntrin: {what} is a PrimFunc, got {type(fn).__name__}")
        if len(desc.buffers) != len(impl.buffers):
            raise ScheduleError(
                f"TensorIntrin: desc has {len(desc.buffers)} buffers, impl {len(impl.buffers)}"
            )
        for a, b in zip(desc.buffers, impl.buffers):
            if a.dtype is not b.dtype or len(a.shape) != len(b.shape):
                raise ScheduleError(
                    f"TensorIntrin: buffer {a.name} is {a.dtype} of {a.ndim} dimensions in desc, "
                    f"{b.dtype} of {b.ndim} in impl"
                )
            sizes, impl_sizes = ([constant(e) for e in buffer.shape] for buffer in (a, b))
            if None in sizes or sizes != impl_sizes:
                left, right = (", ".join(map(str, buffer.shape)) for buffer in (a, b))
                raise ScheduleError(
                    f"TensorIntrin: buffer {a.name} has the shape ({left}) in desc and ({right}) "
                    "in impl; wanted the same constants"
                )
        self.desc, self.impl = desc, impl

    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> TensorIntrin:
        """Make an intrinsic known by name. Raises ScheduleError if the name is taken, unless
        `override`.

        `desc` is the specification that blocks are compared with. That `impl` does the same is not
        proved: `interpret` both on the same arrays.
        """
        if not isinstance(name, str):
            raise ScheduleError(f"TensorIntrin: a name is text, got {type(name).__name__}")
        if (name in _REGISTERED or name in _MAKERS) and not override:
            raise ScheduleError(f"TensorIntrin: {name!r} is registered already; pass override=True")
        intrin = _REGISTERED[name] = TensorIntrin(desc, impl)
        return intrin

    @staticmethod
    def get(name: str, allow_missing: bool = False) -> TensorIntrin | None:
        """The intrinsic of that name. Raises ScheduleError if there is none, or gives None."""
        intrin = _REGISTERED.get(name)
        if intrin is None and name in _MAKERS:
            intrin = _REGISTERED[name] = _BUILTIN[name] = TensorIntrin(*_MAKERS[name]())
        if intrin is None and not allow_missing:
            there = ", ".join({**_MAKERS, **_REGISTERED}) or "none"
            raise ScheduleError(f"TensorIntrin: {name!r} is not registered; there are: {there}")
        return intrin


def register_builtin(name: str, make: Callable[[], tuple[PrimFunc, PrimFunc]]) -> None:
    """`TensorIntrin.register` for what default schedules use.

    make  gives desc and impl when the intrinsic is first asked for
    """
    _MAKERS[name] = make


OWN_RULES: list[str] = []
"""Names of the rules that somebody registered beside ours, by `rules.block_rule`."""


def builtins_replaced() -> bool:
    """Whether default schedules of this process differ from those of others, because somebody
    registered a rule, or another intrinsic under the name of a built-in one.
    """
    return bool(OWN_RULES) or any(
        _REGISTERED.get(name) is not _BUILTIN.get(name) for name in _MAKERS
    )
