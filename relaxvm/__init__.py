"""relaxvm: a whole machine-learning compiler and virtual machine in readable Python.

``import relaxvm as tvm`` gives the names that TVM Unity's users know. Everything is loaded when it
is first used, so that
importing the package costs next to nothing; `relaxvm.runtime` alone runs saved programs and never
loads the compiler.
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
        for room in ("arith base ir pipeline relax runtime script target te testing tir").split()
    },
    "DataType": ("relaxvm.base", "DataType"),
    "IRModule": ("relaxvm.ir", "IRModule"),
    "RelaxvmError": ("relaxvm.base", "RelaxvmError"),
    "TVMError": ("relaxvm.base", "RelaxvmError"),
    "build": ("relaxvm.driver", "build"),
    "compile": ("relaxvm.driver", "compile"),
    "container": ("relaxvm.ir", None),
    "driver": ("relaxvm.driver", None),
    "cpu": ("relaxvm.runtime", "cpu"),
    "device": ("relaxvm.runtime", "device"),
    "error": ("relaxvm.base.errors", None),
    "get_global_func": ("relaxvm.runtime", "get_global_func"),
    "instrument": ("relaxvm.ir.instrument", None),
    "nd": ("relaxvm.runtime.ndarray", None),
    "ndarray": ("relaxvm.runtime.ndarray", None),
    "register_func": ("relaxvm.runtime", "register_func"),
    "register_global_func": ("relaxvm.runtime", "register_global_func"),
    "s_tir": ("relaxvm.tir", None),
    "tirx": ("relaxvm.tir", None),
    "transform": ("relaxvm.ir.transform", None),
}

__all__ = ["__version__", *sorted(_LAZY)]

_aliases.install()


def __getattr__(name: str) -> Any:
    found = _LAZY.get(name)
    if found is None:
        raise AttributeError(f"module 'relaxvm' has no attribute {name!r}")
    module = importlib.import_module(found[0])
    value = module if found[1] is None else getattr(module, found[1])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
