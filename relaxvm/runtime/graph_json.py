"""Graphs in TVM's JSON form: what each kernel reads and where its results lie.

    nodes         {"op": "null" (an argument) or "tvm_op", "name", "inputs": [[node, output, 0], …],
                  "attrs": {"func_name", "num_inputs", "num_outputs", "flatten_data": "0"}}
    arg_nodes     the arguments       heads  the results, [[node, output, 0], …]
    node_row_ptr  where the outputs of each node begin in the lists of `attrs`
    attrs         per output: "dltype", "shape", "storage_id", "device_index" (may be missing)

Nodes stand in the order in which they run. Outputs of one storage id share memory. The function
``__nop`` gives its input another shape, ``__copy`` brings it to another device. An attribute "call"
of a node, which only relaxvm writes, lists the arguments of a function that takes other things
than arrays: numbers, texts, and {"entry": k} for the k-th of its inputs and outputs.

`read_graph` checks all of this, so that running needs no checks: whatever a file says, no value is
overwritten before it has been read for the last time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import DataType, LoadError, VMTypeError, record
from .storage import array_dtype

NOP, COPY = "__nop", "__copy"
_MAX_BYTES = 1 << 48
_MAX_NDIM = 64
_MOST_VALUES = 1 << 24
_FOREVER = 1 << 62


@record
class Node:
    """An argument (`function` is ""), or a call.

    inputs   what it reads, and
    outputs  what it gives, as numbers of values
    call     the arguments, if they are not the inputs and then the outputs
    returns  whether the function returns its result, in place of writing it into its last argument
    """

    name: str
    function: str
    inputs: tuple[int, ...]
    outputs: range
    call: tuple[Any, ...] | None = None
    returns: bool = False


@record
class Value:
    """An array of a graph.

    storage  the memory it lies in      device  as TVM counts kinds of devices: 1 is the CPU
    root     the value that it is another name of; its own number if it is none
    """

    shape: tuple[int, ...]
    dtype: DataType
    storage: int
    device: int
    root: int

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@record
class Graph:
    """A graph that may be run.

    arguments  the nodes that are arguments     heads  its results, as numbers of values
    text       the JSON it was read from
    """

    nodes: tuple[Node, ...]
    values: tuple[Value, ...]
    arguments: tuple[int, ...]
    heads: tuple[int, ...]
    text: str

    def node_of(self, value: int) -> Node:
        """The node that gives a value."""
        return next(n for n in self.nodes if value in n.outputs)


def read_graph(text: str | bytes) -> Graph:
    """The graph in a JSON text. Raises LoadError naming the node for what may not be run."""
    if not isinstance(text, (str, bytes)):
        raise VMTypeError(f"graph: wanted its JSON as text, got {type(text).__name__}")
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LoadError(f"graph: not JSON: {error}") from None
    text = text if isinstance(text, str) else text.decode()
    listed = _list(_field(plain, "nodes", "graph"), "graph: nodes")
    names = [_text(_field(n, "name", f"graph: node {i}"), "name") for i, n in enumerate(listed)]
    first = _row_pointers(plain, len(listed))
    nodes = [
        _node(plain_node, i, names, first, f"graph: node {i} ({names[i]})")
        for i, plain_node in enumerate(listed)
    ]
    values = _values(_field(plain, "attrs", "graph"), nodes, first[-1])
    arguments = tuple(_ints(_field(plain, "arg_nodes", "graph"), "graph: arg_nodes"))
    _check_arguments(arguments, nodes)
    heads = [
        _reference(each, "graph: heads", len(nodes), names, first)
        for each in _list(_field(plain, "heads", "graph"), "graph: heads")
    ]
    _check_memory(nodes, values, heads)
    return Graph(tuple(nodes), tuple(values), arguments, tuple(heads), text)


# -- nodes -----------------------------------------------------------------------------------------


def _row_pointers(plain: Mapping[str, Any], count: int) -> list[int]:
    rows = _ints(_field(plain, "node_row_ptr", "graph"), "graph: node_row_ptr")
    good = len(rows) == count + 1 and rows[0] == 0 and rows == sorted(rows)
    if not good or rows[-1] > _MOST_VALUES:
        raise LoadError(
            f"graph: node_row_ptr: wanted {count + 1} numbers from 0 to {_MOST_VALUES} that do not "
            f"fall, for {count} nodes"
        )
    return rows


def _node(plain: Any, i: int, names: list[str], first: list[int], where: str) -> Node:
    kind = _field(plain, "op", where)
    inputs = [
        _reference(each, f"{where}: input {k}", i, names, first)
        for k, each in enumerate(_list(plain.get("inputs", []), f"{where}: inputs"))
    ]
    outputs = range(first[i], first[i + 1])
    if kind == "null":
        if inputs or len(outputs) != 1:
            raise LoadError(f"{where}: an argument reads nothing and is one array")
        return Node(names[i], "", (), outputs)
    if kind != "tvm_op":
        raise LoadError(f"{where}: wanted the op 'null' or 'tvm_op', got {str(kind)[:40]!r}")
    attrs = _field(plain, "attrs", where)
    function = _text(_field(attrs, "func_name", where), f"{where}: func_name")
    for name, count in (("num_inputs", len(inputs)), ("num_outputs", len(outputs))):
        said = attrs.get(name, str(count))
        if said != str(count):
            raise LoadError(f"{where}: {name} is {str(said)[:40]}, but there are {count}")
    if str(attrs.get("flatten_data", "0")) != "0":
        raise LoadError(f"{where}: flatten_data: arrays keep their shapes here")
    if function in ("", NOP, COPY) and (len(inputs), len(outputs)) != (1, 1):
        raise LoadError(f"{where}: wanted one input and one output of {function!r}")
    call = _call(attrs["call"], len(inputs) + len(outputs), where) if "call" in attrs else None
    returns = attrs.get("returns") == "1"
    if returns and len(outputs) != 1:
        raise LoadError(f"{where}: what returns its result has one output")
    return Node(names[i], function or NOP, tuple(inputs), outputs, call, returns)


def _call(text: Any, count: int, where: str) -> tuple[Any, ...]:
    try:
        listed = json.loads(_text(text, f"{where}: call"))
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{where}: call: not JSON: {error}") from None
    items = []
    for item in _list(listed, f"{where}: call"):
        if isinstance(item, dict):
            entry = item.get("entry")
            if type(entry) is not int or not 0 <= entry < count:
                raise LoadError(f"{where}: call: entries count from 0 to {count - 1}")
            item = (entry,)
        elif not isinstance(item, (int, float, str)):
            raise LoadError(f"{where}: call: wanted numbers, texts and entries")
        items.append(item)
    return tuple(items)


def _reference(plain: Any, where: str, before: int, names: list[str], first: list[int]) -> int:
    """The number of the value that ``[node, output, version]`` names, of a node `before` one."""
    numbers = _ints(plain, where)
    if len(numbers) not in (2, 3):
        raise LoadError(f"{where}: wanted [node, output, 0], got {len(numbers)} numbers")
    node, output = numbers[:2]
    if not 0 <= node < len(names):
        raise LoadError(f"{where}: there is no node {node}; there are {len(names)}")
    if node >= before:
        raise LoadError(
            f"{where}: it reads node {node} ({names[node]}), which does not come before it: nodes "
            "stand in the order in which they run, and none reads itself in a circle"
        )
    if not 0 <= output < first[node + 1] - first[node]:
        raise LoadError(f"{where}: node {node} ({names[node]}) has no output {output}")
    return first[node] + output


def _check_arguments(arguments: Sequence[int], nodes: Sequence[Node]) -> None:
    wanted = {i for i, n in enumerate(nodes) if not n.function}
    for i in arguments:
        if i not in wanted:
            raise LoadError(f"graph: arg_nodes: {i} is no argument: wanted a node with op 'null'")
    if len(set(arguments)) != len(arguments) or wanted != set(arguments):
        left = ", ".join(nodes[i].name for i in sorted(wanted - set(arguments)))
        raise LoadError(f"graph: arg_nodes: wanted each argument once; missing: {left or 'none'}")
    seen: dict[str, int] = {}
    for i in arguments:
        if seen.setdefault(nodes[i].name, i) != i:
            raise LoadError(
                f"graph: nodes {seen[nodes[i].name]} and {i} are both called {nodes[i].name!r}"
            )


# -- values ----------------------------------------------------------------------------------------


def _values(attrs: Any, nodes: Sequence[Node], count: int) -> list[Value]:
    shapes = _attr(attrs, "shape", count)
    dtypes = _attr(attrs, "dltype", count)
    storages = _ints(_attr(attrs, "storage_id", count), "graph: storage_id")
    devices = [1] * count
    if "device_index" in attrs:
        devices = _ints(_attr(attrs, "device_index", count), "graph: device_index")
    values: list[Value] = []
    for i, node in enumerate(nodes):
        where = f"graph: node {i} ({node.name})"
        for k in node.outputs:
            shape = tuple(_ints(shapes[k], f"{where}: shape"))
            try:
                dtype = array_dtype(dtypes[k])
            except VMTypeError as error:
                raise LoadError(f"{where}: {error}") from None
            value = Value(shape, dtype, storages[k], devices[k], k)
            if len(shape) > _MAX_NDIM or min(shape, default=0) < 0 or storages[k] < 0:
                raise LoadError(f"{where}: no shape {shape[:8]} and storage {storages[k]}")
            if value.size_bytes >= _MAX_BYTES:
                raise LoadError(f"{where}: the shape {shape[:8]} is too large")
            values.append(value)
        _check_places(node, values, where)
    return values


def _check_places(node: Node, values: list[Value], where: str) -> None:
    """Raise LoadError for inputs on another device; note what is another name of its input."""
    if node.function in (NOP, COPY):
        source, result = values[node.inputs[0]], values[node.outputs[0]]
        same = source.shape == result.shape or node.function == NOP
        if source.dtype is not result.dtype or source.size_bytes != result.size_bytes or not same:
            raise LoadError(
                f"{where}: {node.function} makes {result.dtype} {result.shape} of {source.dtype} "
                f"{source.shape}"
            )
    if node.function == NOP:
        if source.storage != result.storage or source.device != result.device:
            raise LoadError(f"{where}: {NOP} copies nothing: its output is in its input's storage")
        values[-1] = Value(result.shape, result.dtype, result.storage, result.device, source.root)
    if node.function == COPY:
        return
    places = {values[k].device: k for k in (*node.outputs, *reversed(node.inputs))}
    if len(places) > 1:
        kinds = ", ".join(map(str, sorted(places)))
        raise LoadError(
            f"{where}: what it reads and writes lies on several devices ({kinds}); a node with "
            f"the function {COPY!r} brings a value to another"
        )


def _check_memory(nodes: Sequence[Node], values: Sequence[Value], heads: Sequence[int]) -> None:
    """Raise LoadError where a value would be written over another that is read later."""
    # Of each value in memory of its own: when it is written, and when read for the last time.
    born: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, node in enumerate(nodes):
        for k in node.inputs:
            last[values[k].root] = max(i, last[values[k].root])
        for k in node.outputs:
            root = values[k].root
            born.setdefault(root, i)
            # Arguments are there before the first node, and for the next run.
            last[root] = last.get(root, i) if node.function else _FOREVER
            if not node.function:
                born[root] = -1
    for k in heads:
        last[values[k].root] = _FOREVER
    owner: dict[int, int] = {}
    holder = {k: node for node in nodes for k in node.outputs}
    for root in sorted(born, key=born.__getitem__):
        value = values[root]
        former = owner.setdefault(value.storage, root)
        if former != root:
            if values[former].device != value.device:
                raise LoadError(f"graph: storage {value.storage} lies on several devices")
            if last[former] >= born[root]:
                raise LoadError(
                    f"graph: node {holder[root].name} writes into storage {value.storage}, where "
                    f"the value of {holder[former].name} lies, which is needed still"
                )
        owner[value.storage] = root


# -- plain data ------------------------------------------------------------------------------------


def _field(plain: Any, name: str, where: str) -> Any:
    if not isinstance(plain, dict) or name not in plain:
        raise LoadError(f"{where}: {name!r} is missing")
    return plain[name]


def _attr(attrs: Any, name: str, count: int) -> list[Any]:
    """TVM writes ``[kind, [...]]``."""
    pair = _list(_field(attrs, name, "graph: attrs"), f"graph: {name}")
    listed = _list(pair[1] if len(pair) == 2 else None, f"graph: {name}")
    if len(listed) != count:
        raise LoadError(f"graph: {name}: wanted {count}, one per value, got {len(listed)}")
    return listed


def _list(plain: Any, where: str) -> list[Any]:
    if not isinstance(plain, list):
        raise LoadError(f"{where}: wanted a list, got {type(plain).__name__}")
    return plain


def _ints(plain: Any, where: str) -> list[int]:
    listed = _list(plain, where)
    if not all(type(n) is int for n in listed):
        raise LoadError(f"{where}: wanted integers")
    return listed


def _text(plain: Any, where: str) -> str:
    if not isinstance(plain, str):
        raise LoadError(f"{where}: wanted a text, got {type(plain).__name__}")
    return plain
