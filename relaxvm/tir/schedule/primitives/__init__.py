"""The primitives: functions from a `State` and arguments to a new state, one family a file.

Enters: a state of a function, its blocks and loops. Leaves: a state that computes the same, or a
`ScheduleError` that says why not. Not done here: facts (`model`), choosing (`plans`).
"""

from ....base import submodules as _submodules

__getattr__ = _submodules(__name__)
