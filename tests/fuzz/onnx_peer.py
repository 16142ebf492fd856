"""onnxruntime, and onnx's inference of shapes, in a process of their own, which some models end."""

from __future__ import annotations

import functools
import importlib.util
import os
import pickle
import subprocess
import sys
from typing import Any


def run(data: bytes, inputs: dict[str, Any]) -> tuple[Any, Any]:
    """The outputs of a model and None; or None and the kind of error, None where onnxruntime is not
    installed.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        return None, None
    return _ask("run", data, inputs) or (None, "crash")


def inferred(data: bytes) -> list[tuple[int, list[int | None] | None]] | None:
    """The element type and the shape that onnx infers of each output; None if it complains."""
    return _ask("inferred", data)  # type: ignore[no-any-return]


def _ask(*request: Any) -> Any:
    process = _process()
    try:
        pickle.dump(request, process.stdin)
        process.stdin.flush()
        return pickle.load(process.stdout)
    except (EOFError, BrokenPipeError):
        process.communicate()
        _process.cache_clear()
        return None


@functools.cache
def _process() -> Any:
    pipe = subprocess.PIPE
    command = [sys.executable, __file__]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)


def _answer_run(data: bytes, inputs: dict[str, Any]) -> tuple[Any, Any]:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        providers = ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(data, options, providers=providers)
        return session.run(None, inputs), None
    except Exception as error:
        return None, type(error).__name__


def _answer_inferred(data: bytes) -> Any:
    import onnx

    model = onnx.ModelProto.FromString(data)
    try:
        model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except Exception:
        return None
    kinds = [o.type.tensor_type for o in model.graph.output]
    size = lambda d: d.dim_value if d.HasField("dim_value") else None  # noqa: E731
    return [
        (k.elem_type, [size(d) for d in k.shape.dim] if k.HasField("shape") else None)
        for k in kinds
    ]


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    while True:
        try:
            question, *arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer = {"run": _answer_run, "inferred": _answer_inferred}[question](*arguments)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    _serve()
