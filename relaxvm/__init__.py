"""relaxvm: a whole machine-learning compiler and virtual machine in readable Python.

``import relaxvm as tvm`` gives the names that TVM Unity's users know. Everything is loaded when it
is first used, so that importing the package costs next to nothing; `relaxvm.runtime` alone runs
saved programs and never loads the compiler.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import _aliases

__version__ = "0.1.0"

# name -> (module, attribute in it, or None for the module itself)
_LAZY: dict[str, tuple[str, str | None]] = {
    **{
        room: (f"relaxvm.{room}", None)
        for room in (
            "arith base driver ffi ir pipeline quantize relax runtime script target te testing "
            "tir topi"
        ).split()
    },
    "DataType": ("relaxvm.base", "DataType"),
    "DataTypeCode": ("relaxvm.base", "DataTypeCode"),
    "IRModule": ("relaxvm.ir", "IRModule"),
    "RelaxvmError": ("relaxvm.base", "RelaxvmError"),
    "TVMError": ("relaxvm.base", "RelaxvmError"),
    "build": ("relaxvm.driver", "build"),
    "compile": ("relaxvm.driver", "compile"),
    "load": ("relaxvm.loading", "load"),
    "lower": ("relaxvm.driver", "lower"),
    "onnx": ("relaxvm.relax.frontend.onnx", None),
    "cpu": ("relaxvm.runtime", "cpu"),
    "device": ("relaxvm.runtime", "device"),
    "get_global_func": ("relaxvm.runtime", "get_global_func"),
    "tune": ("relaxvm.tuning", "tune"),
    "register_func": ("relaxvm.runtime", "register_func"),
    "register_global_func": ("relaxvm.runtime", "register_global_func"),
}

_MOVED = {alias.partition(".")[2] for alias in _aliases.MODULES if alias.count(".") == 1}

__all__ = ["__version__", *sorted({*_LAZY, *(m for m in _MOVED if not m.startswith("_"))})]

_aliases.install()


def __getattr__(name: str) -> Any:
    home = _LAZY.get(name)
    if home is not None:
        with importlib.import_module("relaxvm.base").collecting_seldom():
            module = importlib.import_module(home[0])
        value = module if home[1] is None else getattr(module, home[1])
        globals()[name] = value
        return value
    if name.startswith("__"):
        raise AttributeError(f"module 'relaxvm' has no attribute {name!r}")
    try:
        return importlib.import_module(f"relaxvm.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"relaxvm.{name}":
            raise
    try:
        return importlib.import_module("relaxvm._deprecated").renamed("relaxvm", name)
    except AttributeError:
        raise importlib.import_module("relaxvm._absent").no_such_name("relaxvm", name) from None


def __dir__() -> list[str]:
    return __all__
