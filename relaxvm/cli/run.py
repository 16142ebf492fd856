"""`relaxvm run`: a model's answer."""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base import LoadError
from ..runtime import VirtualMachine, cpu, write_atomically
from .console import Console
from .inputs import add_input_options, inputs_of, named, plain
from .models import add_build_options, add_model, check_writable, opened

HELP = "run a model once"
EXAMPLES = """
    relaxvm run model.onnx                              random inputs, a summary of the outputs
    relaxvm run model.rvm --input x=@x.npy --output out.npz
    relaxvm run resnet.onnx --input data=@cat.png
    relaxvm run bert.onnx --shape ids=1x128 --input ids=zeros
"""
_SHOWN = 6
_NUMBERS = "?" + np.typecodes["AllInteger"] + np.typecodes["Float"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    add_model(parser)
    add_input_options(parser)
    parser.add_argument("--output", metavar="FILE", help="write outputs to a .npz (of one: .npy)")
    parser.add_argument("--threads", type=int, help="most threads of a kernel; as many as cores")
    add_build_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the model, show or write what it gives."""
    if arguments.output and not arguments.output.endswith((".npz", ".npy")):
        raise LoadError(f"--output: wanted a name in .npz or .npy, got {arguments.output!r}")
    check_writable(arguments, "output")
    model = opened(arguments, console)
    program = model.program(arguments, console)
    vm = VirtualMachine(program, cpu(), num_threads=arguments.threads)
    inputs = inputs_of(arguments, program, console, model.shapes)
    began = time.perf_counter()
    result = vm["main"](*inputs.values())
    seconds = time.perf_counter() - began
    answers = plain(result)
    results = named([answers] if len(model.outputs) == 1 else answers, model.outputs)
    if arguments.output:
        _write(arguments.output, results)
    rows = [(n, str(a.dtype), "x".join(map(str, a.shape)) or "scalar", *_summary(a))
            for n, a in results.items()]  # fmt: skip
    console.table(("output", "dtype", "shape", "least", "mean", "greatest", "first"), rows, left=3)
    console.note(f"{'run':<44} {seconds * 1e3:8.3f} ms")
    console.result(
        {
            "seconds": seconds,
            "stages": console.stages,
            "outputs": {
                n: {"dtype": str(a.dtype), "shape": list(a.shape), "least": _number(a, np.min),
                    "mean": _number(a, np.mean), "greatest": _number(a, np.max)}
                for n, a in results.items()
            },
        }
    )  # fmt: skip
    return 0


def _summary(values: np.ndarray) -> tuple[str, ...]:
    numbers = (_number(values, f) for f in (np.min, np.mean, np.max))
    first = " ".join(f"{v:.4g}" if np.issubdtype(values.dtype, np.floating) else str(v)
                     for v in values.reshape(-1)[:_SHOWN].tolist())  # fmt: skip
    return (*("" if n is None else f"{n:.5g}" for n in numbers), first)


def _number(values: np.ndarray, function: Any) -> float | None:
    if not values.size or values.dtype.char not in _NUMBERS:
        return None
    return float(function(values.astype("float64")))


def _write(path: str, results: Mapping[str, np.ndarray]) -> None:
    file = io.BytesIO()
    if path.endswith(".npz"):
        np.savez(file, **dict[str, Any](results))
    elif len(results) == 1:
        np.save(file, next(iter(results.values())))
    else:
        raise LoadError(f"--output: {len(results)} outputs need a .npz, got {path!r}")
    write_atomically(path, [file.getbuffer()])
