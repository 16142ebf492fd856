"""`relaxvm check`: whether a model's answers are right, and where they begin to be wrong."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import Deferred, LoadError
from ..runtime import VirtualMachine, cpu
from .console import Console
from .inputs import add_input_options, inputs_of, plain
from .models import Model, add_build_options, add_model, opened

if TYPE_CHECKING:
    from .. import pipeline
    from ..relax import interp
    from ..relax.frontend import onnx as frontend
else:
    frontend = Deferred("relaxvm.relax.frontend.onnx")
    interp = Deferred("relaxvm.relax.interp")
    pipeline = Deferred("relaxvm.pipeline")

HELP = "compare a model's answers with those of another runtime"
EXAMPLES = """
    relaxvm check model.onnx                          beside onnx.reference
    relaxvm check model.onnx --against onnxruntime --input x=@x.npy
    relaxvm check program.py:Module                   beside what its operators mean
    relaxvm check model.rvm --original model.onnx
"""
_WRONG_NUMBERS = 2

# Names of outputs -> arrays.
Answers = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    add_model(parser)
    add_input_options(parser)
    parser.add_argument(
        "--against", choices=["reference", "onnxruntime"], default="reference",
        help="who is right; reference",
    )  # fmt: skip
    parser.add_argument(
        "--original", metavar="FILE", help="the ONNX model that a program came from"
    )
    parser.add_argument(
        "--tolerance", type=float, default=1e-4,
        help="greatest error, relative to the greatest value of an output; 1e-4",
    )  # fmt: skip
    parser.add_argument(
        "--repro", metavar="FOLDER", default="repro",
        help="where a model of the first node that differs is written; repro",
    )  # fmt: skip
    add_build_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Compare; on a difference look for the node where it begins."""
    if not 0 <= arguments.tolerance < float("inf"):
        raise LoadError(f"--tolerance: wanted a number from 0 on, got {arguments.tolerance}")
    model = opened(arguments, console)
    if model.is_program and arguments.original is None:
        raise LoadError(f"{arguments.model}: a program alone has nothing to be compared with; "
                        "--original model.onnx")  # fmt: skip
    program = model.program(arguments, console)
    inputs = inputs_of(arguments, program, console, model.shapes)
    values = [plain(v) for v in inputs.values()]
    with console.stage("relaxvm"):
        result = VirtualMachine(program, cpu())["main"](*inputs.values())
    if not model.is_onnx and not model.is_program:
        with console.stage("what operators mean"):
            right = interp.Evaluator(model.mod)("main", *inputs.values())
        rows = _compared(_listed(plain(right)), _listed(plain(result)))
        return _told(rows, arguments, console, None)
    path = arguments.original or model.path
    proto = frontend.model.Model(path).proto
    judge = _JUDGES[arguments.against]
    weights = {t.name for t in proto.graph.initializer}
    feeds = dict(zip((i.name for i in proto.graph.input if i.name not in weights), values))
    with console.stage(arguments.against):
        right = judge(proto, path, feeds)
    names = [o.name for o in proto.graph.output]
    rows = _compared(right, _listed(plain(result)), names)
    search = _Search(proto, path, feeds, arguments, model) if model.is_onnx else None
    return _told(rows, arguments, console, search)


def _told(
    rows: list[dict[str, Any]], arguments: argparse.Namespace, console: Console, search: Any
) -> int:
    console.table(
        ("output", "shape", "greatest error", "relative to its scale", ""),
        [(r["output"], r["shape"], f"{r['error']:.3g}", f"{r['relative']:.3g}",
          "" if r["relative"] <= arguments.tolerance else f"more than {arguments.tolerance:g}")
         for r in rows],
        left=2,
    )  # fmt: skip
    right = all(r["relative"] <= arguments.tolerance for r in rows)
    difference: dict[str, Any] = {}
    if not right and search is not None:
        with console.stage("the first node that differs"):
            difference = search.first()
        console.text(difference["text"])
    console.result({"right": right, "outputs": rows, "first_difference": difference or None})
    return 0 if right else _WRONG_NUMBERS


# -- comparing -------------------------------------------------------------------------------------


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _compared(
    right: Sequence[Any], ours: Sequence[Any], names: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """A row for each output: the greatest error, and that over the greatest value."""
    rows = []
    for i, (wanted, got) in enumerate(zip(right, ours)):
        name = names[i] if i < len(names) else f"output_{i}"
        if isinstance(wanted, (list, tuple)):
            rows += _compared(wanted, _listed(got), [f"{name}[{k}]" for k in range(len(wanted))])
            continue
        error, relative = _difference(np.asarray(wanted), np.asarray(got))
        shape = "x".join(map(str, np.shape(got))) or "scalar"
        rows.append({"output": name, "shape": shape, "error": error, "relative": relative})
    return rows


def _difference(wanted: np.ndarray, got: np.ndarray) -> tuple[float, float]:
    """The greatest error, and that over the greatest finite value; infinite where shapes, NaNs or
    infinities differ.
    """
    if wanted.shape != got.shape:
        return float("inf"), float("inf")
    if _is_text(wanted) or _is_text(got):
        same = bool(np.array_equal(wanted, got))
        return (0.0, 0.0) if same else (float("inf"), float("inf"))
    kind = "complex128" if np.iscomplexobj(wanted) or np.iscomplexobj(got) else "float64"
    a, b = wanted.astype(kind), got.astype(kind)
    finite = np.isfinite(a)
    others = ~finite
    if not np.array_equal(a[others], b[others], equal_nan=True) or not np.isfinite(b[finite]).all():
        return float("inf"), float("inf")
    error = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    scale = float(np.abs(a[finite]).max(initial=0.0))
    return error, error / scale if scale else error


def _is_text(values: np.ndarray) -> bool:
    return values.dtype.hasobject or np.issubdtype(values.dtype, np.character)


def _reference(proto: Any, path: str, feeds: Mapping[str, Any]) -> list[Any]:
    import onnx
    import onnx.reference

    try:
        if os.path.exists(path) and any(t.data_location for t in proto.graph.initializer):
            onnx.load_external_data_for_model(proto, os.path.dirname(path) or ".")
        return list(onnx.reference.ReferenceEvaluator(proto).run(None, dict(feeds)))
    except Exception as error:  # what it raises depends on the operator
        raise LoadError(f"onnx.reference cannot run it: {error!r}") from error


def _onnxruntime(proto: Any, path: str, feeds: Mapping[str, Any]) -> list[Any]:
    try:
        import onnxruntime
    except ImportError as error:
        raise LoadError("--against onnxruntime: it is not installed") from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    source: Any = path if os.path.exists(path) else proto.SerializeToString()
    try:
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        return list(session.run(None, dict(feeds)))
    except Exception as error:  # its own classes, which come and go
        raise LoadError(f"onnxruntime cannot run it: {error}") from error


_JUDGES: dict[str, Callable[[Any, str, Mapping[str, Any]], list[Any]]] = {
    "reference": _reference,
    "onnxruntime": _onnxruntime,
}


# -- where it begins -------------------------------------------------------------------------------

_REPRO = '''"""The outputs of one node differ: ``python repro.py`` shows how much."""

import pathlib

import numpy as np
import onnx.reference

import relaxvm

here = pathlib.Path(__file__).parent
with np.load(here / "inputs.npz") as arrays:
    inputs = {name: arrays[name] for name in arrays.files}
model = str(here / "model.onnx")
wanted = onnx.reference.ReferenceEvaluator(model).run(None, inputs)
got = relaxvm.load(model)["main"](*inputs.values())
for each, ours in zip(wanted, got if isinstance(got, tuple) else [got]):
    print(each.shape, np.abs(each - ours.numpy()).max())
'''


class _Search:
    """Looks for the first node whose value differs, and writes a model of it alone."""

    def __init__(
        self, proto: Any, path: str, feeds: Mapping[str, Any], arguments: argparse.Namespace,
        model: Model,
    ) -> None:  # fmt: skip
        self._proto, self._path, self._feeds = proto, path, feeds
        self._arguments, self._model = arguments, model
        self._judge = _JUDGES[arguments.against]
        self._nodes = list(proto.graph.node)

    def first(self) -> dict[str, Any]:
        """What was found, and where the repro was written."""
        names = [o for node in self._nodes for o in node.output if o]
        ours, right = self._answers(self._cut(len(self._nodes), names), names)
        index = next(
            (i for i, node in enumerate(self._nodes) if self._wrong(node, ours, right)), None
        )
        how = "with every value an output"
        if index is None:
            # Only where values are computed together: whole programs are cut shorter and shorter.
            index, how = self._bisected(), "in the program up to it"
        node = self._nodes[index]
        title = f"{node.name or node.output[0]} ({node.op_type})"
        files = self._repro(index, right)
        return {
            "node": node.name,
            "operator": node.op_type,
            "outputs": list(node.output),
            "repro": files,
            "text": f"first node that differs, {how}: {title}; {files}/repro.py shows it",
        }

    def _wrong(self, node: Any, ours: Answers, right: Answers) -> bool:
        pairs = [(right[o], ours[o]) for o in node.output if o in ours and o in right]
        return any(
            row["relative"] > self._arguments.tolerance
            for wanted, got in pairs
            for row in _compared([wanted], [got])
        )

    def _bisected(self) -> int:
        low, high = 0, len(self._nodes) - 1
        while low < high:
            middle = (low + high) // 2
            names = [o for o in self._nodes[middle].output if o]
            ours, right = self._answers(self._cut(middle + 1, names), names)
            if self._wrong(self._nodes[middle], ours, right):
                high = middle
            else:
                low = middle + 1
        return low

    def _answers(self, proto: Any, names: Sequence[str]) -> tuple[Answers, Answers]:
        right = self._judge(proto, "", self._feeds)
        mod = frontend.from_onnx(frontend.model.Model(proto, os.path.dirname(self._path) or "."),
                                 self._model.shapes)  # fmt: skip
        result = VirtualMachine(pipeline.build(mod), cpu())["main"](*self._feeds.values())
        return dict(zip(names, _listed(plain(result)))), dict(zip(names, right))

    def _cut(self, count: int, outputs: Sequence[str]) -> Any:
        """The model's first `count` nodes, with these outputs."""
        import onnx

        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        del proto.graph.node[count:]
        del proto.graph.output[:]
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        return proto

    def _repro(self, index: int, right: Answers) -> str:
        """Write the node with the values that it was given; the folder."""
        import onnx
        import onnx.helper

        node = self._nodes[index]
        weights = {t.name: t for t in self._proto.graph.initializer}
        known = {**self._feeds, **right}
        inputs = {n: np.asarray(known[n]) for n in dict.fromkeys(node.input) if n in known}
        infos = [
            onnx.helper.make_tensor_value_info(
                n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
            )
            for n, a in inputs.items()
        ]
        graph = onnx.helper.make_graph(
            [node], "one node", infos, [onnx.ValueInfoProto(name=o) for o in node.output if o],
            [weights[n] for n in dict.fromkeys(node.input) if n in weights],
        )  # fmt: skip
        model = onnx.helper.make_model(
            graph, opset_imports=list(self._proto.opset_import),
            ir_version=self._proto.ir_version, functions=list(self._proto.functions),
        )  # fmt: skip
        folder: str = self._arguments.repro
        os.makedirs(folder, exist_ok=True)
        onnx.save(model, os.path.join(folder, "model.onnx"))
        np.savez(os.path.join(folder, "inputs.npz"), **dict[str, Any](inputs))
        with open(os.path.join(folder, "repro.py"), "w", encoding="utf-8") as file:
            file.write(_REPRO)
        return folder
