"""`import tvm` answered by this package, for programs written for TVM (0.23 and older).

    import relaxvm.as_tvm                           at the top of a program, before `import tvm`
    python -m relaxvm.as_tvm program.py args...     a program as it is; also -m module, -c code
    %load_ext relaxvm.as_tvm                        a notebook
    pytest -p relaxvm.as_tvm                        a test suite

Afterwards ``tvm.relax`` *is* ``relaxvm.relax``, the same object, and so for every module and for
`tvm_ffi`. ``tvm.__name__`` is "relaxvm" and ``tvm.__version__`` relaxvm's own. A name that does not
exist here gives an ImportError or AttributeError with the reason; docs/tvm_names.md lists them.
A process that multiprocessing starts anew (spawn) knows nothing of the command line: there, put the
import into the program.
Raises ImportError if another `tvm` or `tvm_ffi` is imported already.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import linecache
import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any

from . import _aliases

_USAGE = "usage: python -m relaxvm.as_tvm (program.py | -m module | -c code) [arguments]"

_aliases.answer_tvm()


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext relaxvm.as_tvm`` in a notebook."""
    _aliases.answer_tvm()


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext relaxvm.as_tvm``: `tvm` is what Python finds under that name."""
    _aliases.forget_tvm()


def main(argv: Sequence[str]) -> int:
    """Run a program as ``python argv[0] ...`` runs it. Returns the exit status."""
    if not argv or argv[0] in ("-h", "--help") or (argv[0] in ("-m", "-c") and len(argv) < 2):
        print(_USAGE, file=sys.stdout if argv and argv[0] in ("-h", "--help") else sys.stderr)
        return 0 if argv and argv[0] in ("-h", "--help") else 2
    program = ModuleType("__main__")
    program.__dict__["__builtins__"] = builtins
    try:
        if argv[0] == "-m":
            code = _of_module(argv[1], program)
            sys.argv[:] = [code.co_filename, *argv[2:]]
        elif argv[0] == "-c":
            code = _of_text(argv[1])
            sys.argv[:] = ["-c", *argv[2:]]
        else:
            code = _of_file(argv[0], program)
            sys.argv[:] = argv
            # `-m` has put the current folder there, unless Python was told not to (-P).
            if not getattr(sys.flags, "safe_path", False):
                place = os.path.realpath(argv[0])
                sys.path[0] = place if os.path.isdir(place) else os.path.dirname(place)
    except (OSError, ImportError) as error:
        print(f"relaxvm.as_tvm: cannot run {' '.join(argv[:2])}: {error}", file=sys.stderr)
        return 2
    # It stays: threads and functions called at exit may pickle what is defined there.
    sys.modules["__main__"] = program
    exec(code, program.__dict__)
    return 0


def _of_file(path: str, program: ModuleType) -> CodeType:
    if os.path.isdir(path):
        path = os.path.join(path, "__main__.py")
    program.__file__ = path
    with io.open_code(os.path.abspath(path)) as file:
        return compile(file.read(), path, "exec")


def _of_text(text: str) -> CodeType:
    # Known to `linecache`: decorators read the source of what they decorate.
    name = "<relaxvm.as_tvm -c>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return compile(text, name, "exec")


def _of_module(name: str, program: ModuleType) -> CodeType:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    # Declared of loaders that can show code alone; what finds files has it.
    loader: Any = None if spec is None else spec.loader
    code: CodeType | None = None
    if spec is not None and loader is not None:
        code = loader.get_code(spec.name)
    if spec is None or code is None:
        raise ImportError(f"there is no module {name} that can be run")
    program.__file__, program.__spec__ = spec.origin, spec
    program.__package__, program.__loader__ = spec.parent, spec.loader
    return code


def _run(argv: Sequence[str]) -> int:
    try:
        return main(argv)
    except SystemExit:
        raise
    except BaseException as error:
        # The user's traceback begins in the user's program.
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        error.__traceback__ = trace
        sys.excepthook(type(error), error, trace)
        return 130 if isinstance(error, KeyboardInterrupt) else 1


if __name__ == "__main__":
    status = _run(sys.argv[1:])
    if status:
        sys.exit(status)
