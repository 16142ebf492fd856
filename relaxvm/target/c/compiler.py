"""The system's C compiler: which one it is, and object code from it."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import warnings

from ...base import CodegenError, config
from ...runtime import DiskCache
from ..llvm import Machine, host_machine

HOW_TO_GET_ONE = (
    "install one (Debian and Ubuntu: apt install gcc; Fedora: dnf install gcc; macOS: "
    "xcode-select --install), or name one in the variable CC"
)
_COMPILERS = ("cc", "gcc", "clang")
# C99 without what the standard leaves to the compiler: products and sums are rounded one by one,
# and nothing reads errno or the floating-point exceptions.
DIALECT = ("-std=c99", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
VECTORS = ("-fopenmp-simd", "-DRELAXVM_SIMD")
_OBJECT = (
    *("-c", "-fPIC", "-fvisibility=hidden", "-fno-stack-protector", "-w", "-x", "c"),
    "-fno-asynchronous-unwind-tables",
)
_LEVELS = ("-O0", "-O1", "-O3", "-O3")
# Of right loops with conditions GCC 12 makes wrong code with masked loads.
NO_MASKS = "-fno-tree-loop-if-convert"
_SECONDS = 600
_objects = DiskCache("c_objects", 1 << 28)


def find_compiler() -> list[str] | None:
    """The command of the C compiler: what CC says, else cc, gcc or clang; None if there is none.

    Warns if CC names a program that is not there. Raises CodegenError if CC is no command.
    """
    wanted = config.c_compiler()
    for command in (wanted, *_COMPILERS):
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise CodegenError(f"CC={command!r}: {error}") from None
        if words and shutil.which(words[0]):
            if wanted.strip() and command is not wanted:
                warnings.warn(
                    f"CC={wanted!r}: there is no such program; {command} compiles in its place",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return words
    return None


def compile_object(text: str, compiler: list[str], machine: Machine) -> bytes:
    """Object code of a C file for this computer.

    Raises CodegenError with what the compiler says.
    """
    here = host_machine()
    version = _run([*compiler, "--version"], "").stdout
    flags = [*DIALECT, *VECTORS, *_OBJECT, _LEVELS[machine.opt_level]]
    if "clang" not in version:
        flags.append(NO_MASKS)
    if machine.cpu == here.cpu:
        flags.append(
            "-mcpu=native" if machine.triple.startswith(("aarch64", "arm")) else "-march=native"
        )
        if "+avx512f" in machine.features.split(","):
            # As wide as schedules count on.
            flags.append("-mprefer-vector-width=512")

    def compiled() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            result = os.path.join(folder, "kernels.o")
            run = _run([*compiler, *flags, "-", "-o", result], text)
            if run.returncode:
                said = run.stderr.strip()[:4000] or f"it ended with status {run.returncode}"
                raise CodegenError(f"{compiler[0]} could not compile the kernels: {said}")
            with open(result, "rb") as file:
                return file.read()

    key = repr((text, compiler, flags, version, here)).encode()
    return _objects.kept(key, compiled)


def _run(command: list[str], source: str) -> subprocess.CompletedProcess[str]:
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise CodegenError(f"{command[0]}: {error}") from error
    with process:
        try:
            said = process.communicate(source, _SECONDS)
        except BaseException as error:
            # Programs that the compiler has started hold its pipes.
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise CodegenError(
                f"{command[0]} did not end within {_SECONDS} seconds; name another compiler in the "
                "variable CC, or split the functions"
            ) from None
    return subprocess.CompletedProcess(command, process.returncode, *said)
