"""The portable form of kernels: the scheduled functions, from which any machine can compile them.

    portable ::= document | {"relaxvm_kernels": 1, "units": [document...], "kernels": [where...]}
    where    ::= [name, position in units, name in that document]

A document is IR as `ir.save_msgpack` writes it, one for each unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from ...base import LoadError
from ...ir import IRModule, load_msgpack
from ...tir import PrimFunc
from .units import CompiledUnit, Unit

_PACK = "relaxvm_kernels"
_MOST = 1 << 16
_PACK_HEAD: bytes = b"\x83" + msgpack.packb(_PACK)


def pack_portable(units: Sequence[tuple[Unit, CompiledUnit]]) -> bytes:
    """The portable forms of units as one: a document of IR, or a list of such documents and where
    in them each kernel is.
    """
    kernels = [
        [name, i, unit.inside(gv)]
        for i, (unit, _) in enumerate(units)
        for gv, names in unit.names.items()
        for name in names
    ]
    if len(units) == 1 and all(name == inside for name, _, inside in kernels):
        return units[0][1].portable
    packed: bytes = msgpack.packb(
        {_PACK: 1, "units": [compiled.portable for _, compiled in units], "kernels": kernels},
        use_bin_type=True,
    )
    return packed


def unpack_portable(portable: bytes) -> IRModule:
    """The module of all functions in a portable form. Raises LoadError; nothing is trusted."""
    if not portable.startswith(_PACK_HEAD):
        return _document(portable) if portable else IRModule({})
    try:
        plain = msgpack.unpackb(portable, strict_map_key=True)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise LoadError(f"portable kernels: damaged: {error}") from None
    if plain.keys() != {_PACK, "units", "kernels"} or plain[_PACK] != 1:
        raise LoadError("portable kernels: wanted version 1, units and kernels")
    documents, kernels = plain["units"], plain["kernels"]
    if type(documents) is not list or not all(type(d) is bytes for d in documents):
        raise LoadError("portable kernels: wanted a list of documents")
    if type(kernels) is not list or len(kernels) > _MOST:
        raise LoadError("portable kernels: wanted a list of kernels")
    units = [_document(d) for d in documents]
    functions: dict[Any, Any] = {}
    names: set[str] = set()
    for unit in units:
        if len(unit) > 1:
            # They know each other by their global variables.
            functions.update(unit.items())
            names.update(gv.name_hint for gv in unit)
    for kernel in kernels:
        fine = type(kernel) is list and list(map(type, kernel)) == [str, int, str]
        if not fine or not 0 <= kernel[1] < len(units):
            raise LoadError("portable kernels: wanted name, unit and function of each kernel")
        name, unit = kernel[0], units[kernel[1]]
        if len(unit) > 1 and name == kernel[2] and name in unit:
            continue
        if len(unit) != 1 or kernel[2] not in unit or name in names:
            raise LoadError(f"portable kernels: {name[:200]} is not where the list says")
        names.add(name)
        functions[name] = unit[kernel[2]]
    if len(names) != len(functions):
        raise LoadError("portable kernels: two functions have the same name")
    return IRModule(functions)


def _document(data: bytes) -> IRModule:
    mod = load_msgpack(data)
    if not isinstance(mod, IRModule):
        raise LoadError(f"portable kernels: wanted a module, got {type(mod).__name__}")
    strange = [gv.name_hint for gv, fn in mod.items() if not isinstance(fn, PrimFunc)]
    if strange:
        raise LoadError(f"portable kernels: {', '.join(strange)[:200]} are no loop functions")
    return mod
