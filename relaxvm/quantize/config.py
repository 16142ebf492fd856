"""How to quantise: `qconfig(...)`, which a `with` enters as it does a PassContext."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from ..base import PassError, did_you_mean, record

_CHOICES = {
    "calibrate_mode": ("min_max", "percentile", "kl_divergence", "global_scale"),
    "weight_scale": ("max", "power2"),
    "dtype_input": ("int8", "uint8"),
    "dtype_weight": ("int8", "uint8"),
}
_FLAGS = ("per_channel", "symmetric", "skip_first", "skip_last", "skip_dense_layer")


@record
class QConfig:
    """Options of quantisation.

    calibrate_mode    the greatest magnitude that a value is to hold exactly: "min_max" the greatest
                      there is, "percentile" what so many percent of the elements do not exceed,
                      "kl_divergence" the one that loses least information, "global_scale" a number
                      for all, for which no inputs are needed
    percentile        that of the mode, in (0, 100]
    global_scale      that of the mode, a positive number
    weight_scale      of weights, by their greatest magnitude: "max", or "power2" the power of two
                      that is not below it
    dtype_input       what values are stored in, "int8" or "uint8"
    dtype_weight      what weights are stored in
    per_channel       one scale for each output channel of a weight, or one for all
    symmetric         zero is stored in the middle of the integers; else the range of the values is
                      spread over all of them. Weights are always symmetric.
    skip_layers       names of layers (variables) that stay in floats
    skip_first, skip_last  the first, the last layer stays in floats
    skip_conv_layers  which convolutions stay, counted from 0
    skip_dense_layer  all matrix products stay
    """

    calibrate_mode: str = "min_max"
    percentile: float = 99.99
    global_scale: float = 8.0
    weight_scale: str = "max"
    dtype_input: str = "int8"
    dtype_weight: str = "int8"
    per_channel: bool = True
    symmetric: bool = False
    skip_layers: Sequence[str] = ()
    skip_first: bool = False
    skip_last: bool = False
    skip_conv_layers: Sequence[int] = ()
    skip_dense_layer: bool = False

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            _want(getattr(self, name) in choices, name, f"one of {', '.join(choices)}", self)
        for name in _FLAGS:
            _want(type(getattr(self, name)) is bool, name, "True or False", self)
        for name, most in (("percentile", 100.0), ("global_scale", 3e38)):
            number = getattr(self, name)
            plain = isinstance(number, (int, float)) and not isinstance(number, bool)
            _want(plain and 0 < number <= most, name, f"a number in (0, {most:g}]", self)
        for name, kind in (("skip_layers", str), ("skip_conv_layers", int)):
            each = getattr(self, name)
            listed = isinstance(each, (list, tuple)) and all(isinstance(e, kind) for e in each)
            _want(listed, name, f"a list of {kind.__name__}", self)

    def __enter__(self) -> QConfig:
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        _entered.set(_entered.get()[:-1])


def _want(right: bool, name: str, wanted: str, config: QConfig) -> None:
    if not right:
        raise PassError(f"qconfig: {name}: wanted {wanted}; got {getattr(config, name)!r}")


_entered: contextvars.ContextVar[tuple[QConfig, ...]] = contextvars.ContextVar(
    "qconfig", default=()
)
_DEFAULT = QConfig()


def qconfig(**options: Any) -> QConfig:
    """The options of `QConfig`, for what a `with` of it encloses. Raises PassError for an unknown
    option, or one that has not such a value.
    """
    known = [f.name for f in fields(QConfig)]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known) or f"; known: {', '.join(known)}"
            raise PassError(f"qconfig: unknown option {name!r}{hint}")
    return QConfig(**options)


def current_qconfig(default: QConfig = _DEFAULT) -> QConfig:
    """The innermost configuration entered in this thread, or `default`."""
    return _entered.get()[-1] if _entered.get() else default
