"""C libraries in tests: compiled with every warning an error, and run under sanitizers in a process
of their own.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from relaxvm.base import DataType
from relaxvm.target.c import find_compiler
from relaxvm.target.c.compiler import VECTORS

COMPILER = find_compiler()
STRICT = ("-std=c99", "-ffp-contract=off", "-Wall", "-Wextra", "-Wconversion", "-Werror")
SANITIZERS = ("-fsanitize=undefined,address", "-fno-sanitize-recover=all", "-g")

REPLAY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "c_replay.py")

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")


def compile_library(files, folder, *flags):
    """The path of a shared library of the files in C, compiled strictly. Fails with what the
    compiler says.
    """
    os.makedirs(folder, exist_ok=True)
    for name, text in files.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    library = os.path.join(folder, "library.so")
    sources = [name for name in files if name.endswith(".c")]
    flags = [*VECTORS, *flags, "-fPIC", "-shared", "-o", library]
    command = [*COMPILER, *STRICT, *flags, *sources, "-lm"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{' '.join(command)}\n{run.stderr[:4000]}"
    return library


def sanitizer_runtimes():
    """The libraries that a Python must load first to run code with SANITIZERS; skips the test if
    the compiler has none.
    """
    paths = []
    for name in ("libasan.so", "libubsan.so"):
        command = [*COMPILER, f"-print-file-name={name}"]
        path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        if not os.path.isabs(path):
            pytest.skip(f"the C compiler has no {name}")
        paths.append(path)
    return paths


def replay(library, calls, folder):
    """Run calls (entry, arguments) of a sanitized library, in another process; what the arguments
    are afterwards. Arguments are arrays with the name of their dtype, or (number, dtype).
    """
    given, taken = os.path.join(folder, "calls"), os.path.join(folder, "results")
    with open(given, "wb") as file:
        pickle.dump(calls, file)
    env = {
        **os.environ,
        "LD_PRELOAD": " ".join(sanitizer_runtimes()),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    command = [sys.executable, REPLAY, library, given, taken]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    with open(taken, "rb") as file:
        return pickle.load(file)


def calls_of(vm):
    """Have a VM note its calls of kernels: a list of (kernel, arguments before, and after)."""
    noted = []

    def watch(function, name, before, result, *args):
        if before:
            noted.append((name, [_copied(a) for a in args], None))
        elif noted and noted[-1][0] == name:
            noted[-1] = (*noted[-1][:2], [_copied(a) for a in args])

    vm.set_instrument(watch)
    return noted


def _copied(arg):
    if hasattr(arg, "dtype") and hasattr(arg, "numpy"):
        return np.array(arg.numpy()), str(arg.dtype)
    return arg


def argument(value, kind):
    """An argument of `replay`."""
    dtype = DataType(kind)
    return value, kind, int(dtype.type_code), max(8, dtype.bits)
