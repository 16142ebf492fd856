"""Running a graph node by node, with a clock: ``contrib.debugger.debug_executor``.

    m = debug_executor.create(lib.get_graph_json(), lib, dev, dump_root="/tmp/look")
    m.set_input("x", x)
    m.run()                     # prints a table: what each node took, its shape, what it reads

The folder `dump_root` gets, in a folder for the device, ``_tvmdbg_graph_dump.json`` (the graph with
times), ``_tvmdbg_execution_trace.json`` (for chrome://tracing) and ``output_tensors.params`` (what
every node gave).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from typing import Any

from ..base import VMValueError, table
from . import timing
from .graph_executor import GraphExecutor, GraphModule, node_named
from .graph_json import Node
from .ndarray import NDArray
from .params import save_param_dict_to_file
from .timing import BenchmarkResult

_HEADS = ("Node Name", "Ops", "Time(us)", "Time(%)", "Shape", "Inputs", "Outputs")


def create(
    graph_json_str: str, libmod: Any, device: Any, dump_root: str | None = None
) -> GraphModuleDebug:
    """The graph of a JSON text, run by the functions of `libmod` on a device, node by node."""
    executor = GraphExecutor(graph_json_str, libmod, device)
    executor.set_params(getattr(libmod, "params", {}) if libmod is not executor.lib else {})
    return GraphModuleDebug(executor, device, executor.graph.text, dump_root)


class GraphModuleDebug(GraphModule):
    """A graph executor that tells what its nodes took and gave.

    dump_root  the folder for what `run` writes; None: a new one, which `exit` removes
    """

    def __init__(
        self,
        module: GraphExecutor,
        device: Any = None,
        graph_json_str: str | None = None,
        dump_root: str | None = None,
    ) -> None:
        super().__init__(module)
        self._own_folder = dump_root is None
        self._dump_root = dump_root
        self._seconds: list[tuple[Node, BenchmarkResult]] = []
        self._given: dict[str, NDArray] = {}

    def run(self, number: int = 1, repeat: int = 1, **input_dict: Any) -> None:
        """Run the graph, with these inputs set before, timing each node as `timing.measure` does,
        whose options may be among them; write the folder and print the table.
        """
        options = timing.options_in(input_dict, number=number, repeat=repeat)
        self.set_input(**input_dict)
        self._measure(options)
        self._dump()
        print(self.get_debug_result())

    def _measure(self, options: dict[str, Any]) -> None:
        """Run every node, as often as the options say: it writes over nothing that it reads."""
        module = self.module
        module.check_inputs()
        steps = {step.node: step for step in module.steps}
        self._seconds, self._given = [], {}
        for i, node in enumerate(module.graph.nodes):
            if node in steps:
                self._seconds.append((node, timing.measure(steps[node].run, **options)))
            for j, array in enumerate(module.outputs_of(node)):
                self._given[f"{node.name}____topo-index:{i}____output-num:{j}"] = array

    def run_individual(
        self, number: int = 10, repeat: int = 1, **options: Any
    ) -> list[list[float]]:
        """Seconds per call of each node, one per repeat: 0 for those that do nothing."""
        self._measure({"number": number, "repeat": repeat, **options})
        took = {node: list(result.results) for node, result in self._seconds}
        return [took.get(node, [0.0] * repeat) for node in self.module.graph.nodes]

    def run_individual_node(
        self, index: int | str, number: int = 10, repeat: int = 1, **options: Any
    ) -> BenchmarkResult:
        """How long a node takes, by number or name; those before it are run once."""
        node = node_named(self.module.graph, index)
        self.module.debug_get_output(node.name)
        step = next((s for s in self.module.steps if s.node is node), None)
        if step is None:
            return BenchmarkResult([0.0] * repeat)
        return timing.measure(step.run, number=number, repeat=repeat, **options)

    def get_debug_result(self, sort_by_time: bool = True) -> str:
        """The table of the last run. Raises VMValueError if there was none."""
        if not self._seconds:
            raise VMValueError("get_debug_result: nothing has been run yet")
        total = sum(result.mean for _, result in self._seconds) or 1.0
        values = self.module.graph.values
        timed = list(self._seconds)
        if sort_by_time:
            timed.sort(key=lambda row: -row[1].mean)
        rows = [
            (
                node.name,
                node.function,
                f"{result.mean * 1e6:.3f}",
                f"{result.mean / total * 100:.3f}",
                str(values[node.outputs[0]].shape),
                str(len(node.inputs)),
                str(len(node.outputs)),
            )
            for node, result in timed
        ]
        rows.append(("Total_time", "-", f"{total * 1e6:.3f}", *"----"))
        lines = table([_HEADS, ["-" * len(head) for head in _HEADS], *rows])
        return "\n".join(lines)

    def profile(self, collectors: Any = None, **input_dict: Any) -> str:
        """Run once with a clock around each node; the table. There are no other collectors."""
        self.set_input(**input_dict)
        self._measure({"number": 1})
        return self.get_debug_result()

    # -- the folder --------------------------------------------------------------------------------

    @property
    def dump_path(self) -> str:
        """The folder that `run` writes into."""
        if self._dump_root is None:
            self._dump_root = tempfile.mkdtemp(prefix="tvmdbg_")
        device = next(iter(self.module.devices.values()), "cpu(0)")
        return os.path.join(self._dump_root, f"_tvmdbg_device_{device}".replace(":", "_"))

    def _dump(self) -> None:
        os.makedirs(self.dump_path, exist_ok=True)
        plain = json.loads(self.module.graph.text)
        took = {node.name: result for node, result in self._seconds}
        events, start_us = [], 0.0
        for node in plain["nodes"]:
            result = took.get(node["name"])
            if result is not None:
                node["attrs"]["time_us"] = result.mean * 1e6
                event = {"name": node["name"], "pid": 1, "tid": 1, "cat": "node"}
                events.append({**event, "ph": "B", "ts": start_us})
                start_us += result.mean * 1e6
                events.append({**event, "ph": "E", "ts": start_us})
        for name, content in (
            ("_tvmdbg_graph_dump.json", plain),
            ("_tvmdbg_execution_trace.json", {"displayTimeUnit": "ns", "traceEvents": events}),
        ):
            with open(os.path.join(self.dump_path, name), "w", encoding="utf-8") as file:
                json.dump(content, file, indent=2)
        path = os.path.join(self.dump_path, "output_tensors.params")
        save_param_dict_to_file(self._given, path)

    def exit(self) -> None:
        """Remove the folder, unless the caller named it."""
        if self._own_folder and self._dump_root is not None:
            shutil.rmtree(self._dump_root, ignore_errors=True)
            self._dump_root = None
