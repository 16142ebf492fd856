"""Relay's spelling of `relaxvm.quantize`.

    with relay.quantize.qconfig(calibrate_mode="kl_divergence", weight_scale="max"):
        mod = relay.quantize.quantize(mod, params, dataset=samples)

Its defaults are Relay's: one scale for all values, the first convolution and all matrix products
stay in floats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..base import PassError, submodules
from ..ir import IRModule, PassContext
from ..ir.transform import Pass, module_pass
from ..quantize import QConfig as QConfig
from ..quantize import calibrate as _calibrate
from ..quantize import current_qconfig as _current
from ..quantize import prepared
from ..quantize import qconfig as _qconfig
from ..quantize import quantize as _quantize
from ..quantize import realize as _realize
from .build_module import taken_module, typed

# What is always so here.
_FIXED: dict[str, Any] = {
    "nbit_input": 8,
    "nbit_weight": 8,
    "nbit_activation": 32,
    "dtype_activation": "int32",
    "do_simulation": False,
    "round_for_shift": True,
    "rounding": "UPWARD",
    "store_lowbit_output": True,
    "debug_enabled_ops": None,
    "partition_conversions": "disabled",
}
_OWN: dict[str, Any] = {
    "calibrate_mode": "global_scale",
    "weight_scale": "power2",
    "symmetric": True,
    "per_channel": False,
    "skip_conv_layers": (0,),
    "skip_dense_layer": True,
}


def qconfig(**options: Any) -> QConfig:
    """`relaxvm.quantize.qconfig` with Relay's defaults. Options of Relay that have one value here
    may be given that; `calibrate_chunk_by` changes no result. Raises PassError for others.
    """
    for name in _FIXED.keys() & options.keys():
        if options[name] != _FIXED[name]:
            raise PassError(f"qconfig: {name}: only {_FIXED[name]!r}; got {options[name]!r}")
    left = {k: v for k, v in options.items() if k not in (*_FIXED, "calibrate_chunk_by")}
    if "skip_conv_layers" in left and left["skip_conv_layers"] is None:
        left["skip_conv_layers"] = ()
    return _qconfig(**{**_OWN, **left})


def current_qconfig() -> QConfig:
    """The innermost configuration entered in this thread, or Relay's defaults."""
    return _current(_DEFAULT)


_DEFAULT = qconfig()


def prerequisite_optimize(mod: Any, params: Mapping[str, Any] | None = None) -> IRModule:
    """`mod` simplified for inference, with `params` bound: what `quantize` begins with."""
    return prepared(typed(taken_module(mod, params)))


def calibrate(dataset: Iterable[Any] | None = None) -> Pass:
    """A pass that rounds what layers read to 8 bits, still in floats; `realize` goes on."""

    @module_pass(opt_level=2, name="QuantizeCalibrate", numerics="approximate")
    def step(mod: IRModule, ctx: PassContext) -> IRModule:
        with current_qconfig():
            return _calibrate(mod, dataset)

    return step()


def realize() -> Pass:
    """A pass that puts integers for what `calibrate` has rounded."""

    @module_pass(opt_level=2, name="QuantizeRealize", numerics="approximate")
    def step(mod: IRModule, ctx: PassContext) -> IRModule:
        return _realize(mod)

    return step()


def quantize(
    mod: Any, params: Mapping[str, Any] | None = None, dataset: Iterable[Any] | None = None
) -> IRModule:
    """`relaxvm.quantize.quantize` under the current `qconfig`, or Relay's defaults."""
    with current_qconfig():
        return _quantize(typed(taken_module(mod, params)), dataset=dataset)


__getattr__ = submodules(__name__)
