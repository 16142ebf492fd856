"""What schedules are changed on: a function as a tree with paths, what is known of its blocks and
loops, and the trace of how it came about.

Enters: loop functions. Leaves: facts (regions, dependences, bindings of axes), or a refusal that
shows where. Not done here: changing anything (`primitives`), choosing what to change (`plans`).
"""

from ....base import submodules as _submodules

__getattr__ = _submodules(__name__)
