"""`relaxvm check`: whether a model's answers are right, and where they begin to be wrong."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import Deferred, LoadError, RelaxvmError
from ..runtime import VirtualMachine, cpu
from .console import Console
from .inputs import add_input_options, inputs_of, plain
from .models import (
    Model,
    add_build_options,
    add_model,
    build,
    opened,
    pass_settings,
    target_text,
)  # fmt: skip

if TYPE_CHECKING:
    from ..relax import interp
    from ..relax.frontend import onnx as frontend
else:
    frontend = Deferred("relaxvm.relax.frontend.onnx")
    interp = Deferred("relaxvm.relax.interp")

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
    program = model.program(arguments, console, fresh=True)
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
    source = frontend.model.Model(path) if arguments.original else model.source
    proto = source.complete()
    if any(t.data_location for t in proto.graph.initializer):
        with console.stage("data beside the model"):
            _load_external(proto, path)
    judge = _JUDGES[arguments.against]
    weights = {t.name for t in proto.graph.initializer}
    feeds = dict(zip((i.name for i in proto.graph.input if i.name not in weights), values))
    with console.stage(arguments.against):
        right = judge(proto, path, feeds)
    names = [o.name for o in proto.graph.output]
    rows = _compared(right, _listed(plain(result)), names)
    search = _Search(proto, feeds, arguments, model) if model.is_onnx else None
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
    if right:
        console.text(f"right: every output is within {arguments.tolerance:g} of its scale")
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


def _load_external(proto: Any, path: str) -> None:
    """The importer has looked at the places already."""
    import onnx

    onnx.load_external_data_for_model(proto, os.path.dirname(path) or ".")


def _reference(proto: Any, path: str, feeds: Mapping[str, Any]) -> list[Any]:
    import onnx.reference

    try:
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

_REPRO = '''"""{title}: its answers differ from those of onnx.reference.

``python repro.py`` shows how much.
"""

import pathlib

import numpy as np
import onnx.reference

import relaxvm

here = pathlib.Path(__file__).parent
with np.load(here / "inputs.npz") as arrays:
    inputs = {{name: arrays[name] for name in arrays.files}}
evaluator = onnx.reference.ReferenceEvaluator(str(here / "model.onnx"))
wanted = evaluator.run(None, inputs)
with relaxvm.transform.PassContext(**{settings}):
    program = relaxvm.load(here / "model.onnx", {target!r})
got = program["main"](*inputs.values())
for name, each, ours in zip(
    evaluator.output_names, wanted, got if isinstance(got, tuple) else [got]
):
    error = np.abs(each - ours.numpy()).max()
    print(name, each.shape, f"greatest error {{error:.3g}} of {{np.abs(each).max():.3g}}")
'''


class _Search:
    """Looks for the first node whose value differs, and writes a short model that shows it."""

    def __init__(
        self, proto: Any, feeds: Mapping[str, Any], arguments: argparse.Namespace, model: Model
    ) -> None:
        self._proto, self._arguments, self._model = proto, arguments, model
        self._judge = _JUDGES[arguments.against]
        self._nodes = list(self._proto.graph.node)
        # What is known of values; the inputs, then every value as the judge has it.
        self._values = dict(feeds)
        self._every_value = True

    def first(self) -> dict[str, Any]:
        """What was found, and where the repro was written."""
        last = len(self._nodes) - 1
        ours, right = self._answers(0, last)
        wrong = (i for i, node in enumerate(self._nodes) if self._differs(node, ours, right))
        index = next(wrong, None)
        how = "with every value an output"
        if index is None:
            # Only where values are computed together: whole programs are cut shorter and shorter.
            self._every_value = False
            index = _least(0, last, lambda i: self._shows(0, i))
            how = "in the program up to it"
        self._values |= right
        count = 1
        while count <= index and not self._shows(index + 1 - count, index):
            count *= 2
        count = min(count, index + 1)
        count = _least(count // 2 + 1, count, lambda n: self._shows(index + 1 - n, index))
        node = self._nodes[index]
        title = f"{node.name or node.output[0]} ({node.op_type})"
        folder = self._repro(index + 1 - count, index, title)
        shown = "the node alone" if count == 1 else f"the {count} nodes up to it"
        return {
            "node": node.name,
            "operator": node.op_type,
            "outputs": list(node.output),
            "nodes": count,
            "repro": folder,
            "text": f"first node that differs, {how}: {title}\n"
            f"{os.path.join(folder, 'repro.py')} shows it with {shown}",
        }

    def _shows(self, first: int, last: int) -> bool:
        """Whether a program of these nodes alone differs at its end."""
        try:
            return self._differs(self._nodes[last], *self._answers(first, last))
        except (RelaxvmError, LookupError):
            return False  # what a part lacks, its whole has

    def _differs(self, node: Any, ours: Answers, right: Answers) -> bool:
        pairs = [(right[o], ours[o]) for o in node.output if o in ours and o in right]
        return any(
            row["relative"] > self._arguments.tolerance
            for wanted, got in pairs
            for row in _compared([wanted], [got])
        )

    def _answers(self, first: int, last: int) -> tuple[Answers, Answers]:
        """Ours and the judge's of these nodes."""
        proto, feeds = self._part(first, last)
        right = self._judge(proto, "", feeds)
        folder = os.path.dirname(self._model.path) or "."
        shapes = self._model.shapes if first == 0 else {}
        mod = frontend.from_onnx(frontend.model.Model(proto, folder), shapes)
        program = build([mod], self._arguments)
        result = VirtualMachine(program, cpu())["main"](*feeds.values())
        names = [o.name for o in proto.graph.output]
        ours = [plain(result)] if len(names) == 1 else _listed(plain(result))
        return dict(zip(names, ours)), dict(zip(names, right))

    def _part(self, first: int, last: int) -> tuple[Any, Answers]:
        """The model of some nodes, and what it is given. From the first node on, the model's own
        inputs; else the values that come into these nodes, with the shapes that they have.
        """
        import onnx
        import onnx.helper

        nodes = self._nodes[first : last + 1]
        shown = nodes if self._every_value else nodes[-1:]
        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        graph = proto.graph
        del graph.node[:], graph.output[:], graph.value_info[:]
        graph.node.extend(nodes)
        graph.output.extend(onnx.ValueInfoProto(name=o) for n in shown for o in n.output if o)
        weights = {t.name for t in graph.initializer}
        weights |= {t.values.name for t in graph.sparse_initializer}
        names = [i.name for i in graph.input if i.name not in weights]
        if first:
            del graph.input[:]
            used = dict.fromkeys(name for node in nodes for name in _used(node))
            inner = {o for node in nodes for o in node.output}
            names = [n for n in used if n in self._values and n not in inner | weights]
            for name in names:
                value = np.asarray(self._values[name])
                dtype = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
                info = onnx.helper.make_tensor_value_info(name, dtype, value.shape)
                graph.input.append(info)
            for i in reversed(range(len(graph.initializer))):
                if graph.initializer[i].name not in used:
                    del graph.initializer[i]
        return proto, {name: self._values[name] for name in names}

    def _repro(self, first: int, last: int, title: str) -> str:
        """Write these nodes and what they were given; the folder."""
        import onnx

        folder: str = self._arguments.repro
        proto, feeds = self._part(first, last)
        os.makedirs(folder, exist_ok=True)
        onnx.save(proto, os.path.join(folder, "model.onnx"))
        np.savez(os.path.join(folder, "inputs.npz"), **dict[str, Any](feeds))
        text = _REPRO.format(
            title=title.replace("\\", "").replace('"', ""),
            settings=pass_settings(self._arguments),
            target=target_text(self._arguments.target),
        )
        with open(os.path.join(folder, "repro.py"), "w", encoding="utf-8") as file:
            file.write(text)
        return folder


def _used(node: Any) -> Iterator[str]:
    """The values that a node uses, those that its subgraphs use from outside too."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _used(inner)
            yield from (o.name for o in graph.output)


def _least(low: int, high: int, test: Callable[[int], bool]) -> int:
    """The least number of the interval that passes a test which the greatest passes."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if test(middle) else (middle + 1, high)
    return low
