# PYTHON_ARGCOMPLETE_OK
"""The command `relaxvm`: whole models from a shell.

Enters: arguments, and models in files. Leaves: text or JSON on standard output, progress and errors
on standard error, files that were asked for, and an exit code: 0 well, 1 a mistake of the user's, 2
wrong numbers, 3 an operator that cannot be imported. Not done here: anything that a program could
not do by `relaxvm.load`, `relax.build` and the virtual machine.

Each command is a file with `HELP`, `EXAMPLES`, `add_arguments` and `run`.
"""

from ..base import submodules as _submodules
from .entry import main as main

__getattr__ = _submodules(__name__)
