"""Arguments to a command, and errors to exit codes."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import textwrap
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from .. import __version__
from ..base import InternalError, OpNotImplemented, RelaxvmError
from . import bench, check, compile, inspect, ops, profile, run, tune
from .console import Console

USER_MISTAKE, WRONG_NUMBERS, MISSING_OPERATOR = 1, 2, 3
_COMMANDS: dict[str, Any] = {
    module.__name__.rpartition(".")[2]: module
    for module in (compile, run, bench, check, inspect, profile, tune, ops)
}
_EPILOG = """\
examples:
  relaxvm bench digits --beside onnxruntime      digits: a small model that is built in
  relaxvm check model.onnx
  relaxvm compile model.onnx -o model.rvm
  relaxvm run model.rvm --input x=@x.npy --output y.npz
  relaxvm profile model.onnx --html model.html

`relaxvm COMMAND -h` tells more of each.
exit codes: 0 well, 1 a mistake of yours, 2 wrong numbers, 3 an operator that cannot be imported"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USER_MISTAKE, f"{self.prog}: error: {message}\n")


def parser() -> argparse.ArgumentParser:
    """What reads the arguments."""
    whole = _Parser(
        prog="relaxvm",
        description="Compile, run, measure and check models.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"relaxvm {__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="command")
    for name, module in _COMMANDS.items():
        each = commands.add_parser(
            name,
            help=module.HELP,
            description=f"{module.HELP[0].upper()}{module.HELP[1:]}.",
            epilog=f"examples:\n{textwrap.indent(textwrap.dedent(module.EXAMPLES).strip(), '  ')}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(each)
        each.add_argument("--json", action="store_true", help="the result as JSON, for machines")
    return whole


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    # They may be closed (`>&-`): then what is told goes nowhere.
    sys.stdout = sys.stdout or open(os.devnull, "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")
    arguments_parser = parser()
    try:
        import argcomplete
    except ImportError:
        pass
    else:
        argcomplete.autocomplete(arguments_parser)
    try:
        arguments = arguments_parser.parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    console = Console(arguments.json)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: console.warn(str(message))
        try:
            code: int = _COMMANDS[arguments.command].run(arguments, console)
            console.close()
            return code
        except InternalError:
            raise
        except (RelaxvmError, OSError, MemoryError) as error:
            if isinstance(error, BrokenPipeError):
                return _reader_left()
            console.fail(error)
            return MISSING_OPERATOR if isinstance(error, OpNotImplemented) else USER_MISTAKE
        except KeyboardInterrupt:
            return 128 + signal.SIGINT


def _reader_left() -> int:
    """Whoever read the output has enough of it (`relaxvm ops | head`)."""
    # Python would flush to the closed pipe when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
