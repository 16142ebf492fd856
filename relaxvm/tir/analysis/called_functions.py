"""Which functions of the module a loop function calls."""

from __future__ import annotations

import weakref

from ...ir import GlobalVar
from ..stmt import PrimFunc, body_nodes

_known: weakref.WeakKeyDictionary[PrimFunc, tuple[GlobalVar, ...]] = weakref.WeakKeyDictionary()


def called_functions(fn: PrimFunc) -> tuple[GlobalVar, ...]:
    """The functions that `fn` mentions, each once.

    Looked for once: several steps of a build ask.
    """
    called = _known.get(fn)
    if called is None:
        mentioned = (n for n in body_nodes(fn) if isinstance(n, GlobalVar))
        called = _known[fn] = tuple(dict.fromkeys(mentioned))
    return called
