"""What `relay.build` adds to a library of C: the graph, and of linked parameters (`-link-params`) a
constant DLTensor each.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace

from ...base import DataType, NameSupply
from ...runtime import NDArray
from .build import Sources
from .entry import ENDING
from .module import MAX_CONSTANT_ELEMENTS, ModuleText
from .text import comment, identifier

_HEAD = "/* Parameters: arguments of the entries that are always the same. */"


def with_graph(sources: Sources, graph: str, params: Mapping[str, NDArray]) -> Sources:
    """`sources` with a file graph.json, which says in which order the entries are called on what,
    and with the parameters that are constants.
    """
    added = replace(sources, files={**sources.files, "graph.json": graph})
    return with_parameters(added, params) if params else added


def with_parameters(sources: Sources, params: Mapping[str, NDArray]) -> Sources:
    """`sources` with a file parameters.c, in which ``relaxvm_p0`` is the parameter ``p0``.

    With more than `MAX_CONSTANT_ELEMENTS` elements they are too much for C compilers: a
    RuntimeWarning says so, and they are in the library's document only.
    """
    total = sum(array.numpy().size for array in params.values())
    if total > MAX_CONSTANT_ELEMENTS:
        warnings.warn(
            f"target c: {total} elements of parameters are too much for a file in C (at most "
            f"{MAX_CONSTANT_ELEMENTS}); they are in library.relaxvm, and arguments of the entries",
            RuntimeWarning,
            stacklevel=4,
        )
        return sources
    text, supply = ModuleText(), NameSupply(joint="_")
    for taken in sources.entry_names.values():
        supply.reserve(taken)
    declared, defined = [], []
    for name, array in params.items():
        symbol = supply.fresh(f"relaxvm_{identifier(name, 'parameter')}")
        dtype = DataType(str(array.dtype))
        elements = array.numpy().reshape(-1)
        data = text.constant(name, DataType(str(elements.dtype)), elements)
        sizes = ", ".join(map(str, array.shape)) or "0"
        kind = f"{{{int(dtype.type_code)}, {max(8, dtype.bits)}, 1}}"
        defined += [
            f"static int64_t {symbol}_shape[] = {{{sizes}}};",
            f"const DLTensor {symbol} = {{",
            f"    (void *){data}, {{1, 0}}, {len(array.shape)}, {kind}, {symbol}_shape, NULL, 0",
            "};",
        ]
        declared.append(f"/* {comment(name)} */\nextern const DLTensor {symbol};\n")
    head = [_HEAD, "#include <math.h>", "#include <stddef.h>", "", '#include "kernels.h"', ""]
    files = {
        **sources.files,
        "kernels.h": sources.files["kernels.h"].removesuffix(ENDING)
        + "\n".join(["", *declared])
        + ENDING,
        "parameters.c": "\n".join([*head, *text.constants(), "", *defined, ""]),
        "Makefile": sources.files["Makefile"].replace("entries.o", "entries.o parameters.o"),
    }
    return replace(sources, files=files)
