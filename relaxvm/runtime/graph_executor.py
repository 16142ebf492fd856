"""Running graphs in TVM's JSON form: ``contrib.graph_executor``.

    lib = relay.build(mod, "llvm", params=params)
    m = graph_executor.GraphModule(lib["default"](dev))
    m.set_input("x", x)
    m.run()
    y = m.get_output(0)

A `GraphExecutor` owns the memory of its values, one block per storage id, and calls one function
after the other; `GraphModule` is what users call. Only arrays of known shapes, no branches: that is
what the form can say. The virtual machine runs everything.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any

import numpy as np

from ..base import LoadError, RelaxvmError, VMTypeError, VMValueError, add_note, to_numpy_dtype
from . import timing
from .device import Device, cpu
from .graph_json import COPY, NOP, Graph, Node, Value, read_graph
from .kernel import KernelInfo
from .kernel_function import KernelFunction
from .library import LIBRARY
from .module import Module
from .ndarray import NDArray, array, as_ndarray, memory_of, wrap_unchecked
from .params import load_param_dict
from .registry import get_global_func, nearest_names
from .storage import aligned_empty
from .timing import BenchmarkResult


def create(graph_json_str: str, libmod: Any, device: Any) -> GraphModule:
    """The graph of a JSON text, run by the functions of `libmod` on a device, or on several.

    Raises LoadError naming the node for a graph that cannot be run.
    """
    return GraphModule(GraphExecutor(graph_json_str, libmod, device))


class _Step:
    """A node that does something: `call` on `args`, which `values` says the arrays of."""

    __slots__ = ("args", "call", "function", "node", "values")

    def __init__(self, node: Node, function: Any, call: Callable[..., Any]) -> None:
        self.node = node
        self.function = function
        self.call = call
        self.values: tuple[int, ...] = (*node.inputs, *node.outputs)
        self.args: tuple[Any, ...] = ()

    def bind(self, arrays: Sequence[NDArray]) -> None:
        """Take the arrays as they are now."""
        operands = [arrays[k] for k in self.values]
        call = self.node.call
        if call is not None:
            operands = [operands[item[0]] if type(item) is tuple else item for item in call]
        if isinstance(self.function, KernelFunction):
            operands = self.function.convert(operands)
        self.args = tuple(operands)

    def run(self) -> None:
        """Raises what went wrong, with the name of the node."""
        try:
            failure = self.call(*self.args)
            if failure is not None:
                self.function.raise_failure(failure, self.args)
        except Exception as error:
            add_note(error, f"in the graph's node {self.node.name}")
            raise


class GraphExecutor:
    """A graph, the functions that it calls, and its memory: what ``lib["default"](dev)`` gives.

    graph   a JSON text in TVM's form, or a graph that was read from one
    lib     the module with its functions
    device  one, or one for each device that the graph knows: by kind, else in that order
    """

    type_key = "GraphExecutor"

    def __init__(self, graph: Graph | str, lib: Any, device: Any) -> None:
        self.graph = graph if isinstance(graph, Graph) else read_graph(graph)
        self.lib = library_of(lib)
        self.devices = _devices(self.graph, device)
        self._arrays = self._allocated()
        self._names = {self.graph.nodes[n].name: n for n in self.graph.arguments}
        self._missing = set(self._names)
        self._loaded: set[str] = set()
        self._heads = list(self.graph.heads)
        check_graph(self.graph, self.lib)
        self.steps = [s for s in map(self._step, self.graph.nodes) if s is not None]
        self._readers: dict[int, list[_Step]] = {}
        for step in self.steps:
            for k in dict.fromkeys(step.values):
                self._readers.setdefault(k, []).append(step)
        # Inputs that lie in somebody else's memory, which is not written.
        self._borrowed: set[int] = set()
        linked = self.lib.params
        for name in [n for n in self._names if n in linked]:
            memory = linked[name].array.view()
            memory.flags.writeable = False
            self.set_input_zero_copy(name, wrap_unchecked(memory, linked[name].dtype))
            self._loaded.add(name)

    def _allocated(self) -> list[NDArray]:
        sizes: dict[int, int] = {}
        values = self.graph.values
        for value in values:
            sizes[value.storage] = max(sizes.get(value.storage, 1), value.size_bytes)
        blocks = {s: aligned_empty((size,), np.dtype("uint8")) for s, size in sizes.items()}
        arrays = []
        for value in values:
            stored = to_numpy_dtype(value.dtype)
            memory = np.ndarray(value.shape, stored, blocks[value.storage], 0)
            arrays.append(wrap_unchecked(memory, value.dtype, self.devices[value.device]))
        return arrays

    def _step(self, node: Node) -> _Step | None:
        if node.function in ("", NOP):
            return None
        if node.function == COPY:
            step = _Step(node, None, _copy)
        elif self.lib.implements_function(node.function):
            kernel = self.lib[node.function]
            step = _Step(node, kernel, kernel.call)
        else:
            step = _Step(node, None, _packed(node, self.lib))
        try:
            step.bind(self._arrays)
        except RelaxvmError as error:
            raise LoadError(f"graph: node {node.name}: {error}") from None
        return step

    # -- arguments and results ---------------------------------------------------------------------

    def _argument(self, key: Any) -> int:
        """The number of the value of an argument, by its name or its place."""
        node = self._names.get(key) if isinstance(key, str) else None
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            node = self.graph.arguments[_place(key, self._names, "input")]
        if node is None:
            raise VMValueError(
                f"the graph has no input {str(key)[:80]!r}{nearest_names(key, list(self._names))}; "
                f"it has: {', '.join([*self._names][:20]) or 'none'}"
            )
        return self.graph.nodes[node].outputs[0]

    def _name(self, value: int) -> str:
        return self.graph.node_of(value).name

    def set_input(self, key: Any = None, value: Any = None, **params: Any) -> None:
        """Copy `value` into the input `key`, a name or a place; and others by name.

        Raises VMValueError for an input that does not exist, or another shape; dtypes are converted
        as `NDArray.copyfrom` does.
        """
        if key is not None:
            self._set(self._argument(key), value)
        for name, value_of_name in params.items():
            self._set(self._argument(name), value_of_name)

    def _set(self, k: int, value: Any) -> None:
        name = self._name(k)
        if k in self._borrowed:
            self._replace(k, array(self._arrays[k], self._arrays[k].device), name)
            self._borrowed.discard(k)
        try:
            self._arrays[k].copyfrom(value)
        except RelaxvmError as error:
            raise type(error)(f"input {name}: {error}") from None
        self._missing.discard(name)

    def set_input_zero_copy(self, key: Any, value: Any) -> None:
        """Read the input `key` from the memory of `value`, now and in later runs.

        Raises VMTypeError or VMValueError unless it has the dtype and shape, without gaps.
        """
        k = self._argument(key)
        self._replace(k, as_ndarray(value), f"input {self._name(k)}")
        self._borrowed.add(k)
        self._missing.discard(self._name(k))

    def set_output_zero_copy(self, key: Any, value: Any) -> None:
        """Write the result number `key` into the memory of `value`, now and in later runs.

        Raises VMTypeError or VMValueError unless it has the dtype and shape, without gaps.
        """
        i = _place(key, self._heads, "output")
        k = self._heads[i]
        root = self.graph.values[k].root
        destination = as_ndarray(value)
        if not self.graph.node_of(root).function:
            raise VMValueError(
                f"output {i}: it is the input {self._name(root)}, which nobody writes"
            )
        if not destination.array.flags.writeable:
            raise VMValueError(f"output {i}: the array is read-only")
        self._replace(k, destination, f"output {i}")

    def _replace(self, k: int, storage: NDArray, what: str) -> None:
        """Let value `k`, and all that are names of it, lie in the memory of `memory`."""
        wanted = self._arrays[k]
        if storage.dtype is not wanted.dtype:
            raise VMTypeError(f"{what}: wanted {wanted.dtype}, got {storage.dtype}")
        if storage.shape != wanted.shape or not storage.is_contiguous():
            gaps = "" if storage.is_contiguous() else " with gaps"
            raise VMValueError(f"{what}: wanted shape {wanted.shape}, got {storage.shape}{gaps}")
        values = self.graph.values
        changed = {
            j: storage.array.reshape(values[j].shape)
            for j in range(len(values))
            if values[j].root == values[k].root
        }
        for j, memory in changed.items():
            self._arrays[j] = wrap_unchecked(memory, values[j].dtype, wanted.device)
        for step in {id(s): s for j in changed for s in self._readers.get(j, ())}.values():
            step.bind(self._arrays)

    def load_params(self, params_bytes: Any) -> None:
        """Set the inputs that a parameter file (`save_param_dict`) holds."""
        self.set_params(load_param_dict(params_bytes))

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Set inputs by name; `get_input_info` leaves them out."""
        for name, value in params.items():
            self._set(self._argument(name), value)
        self._loaded.update(params)

    def share_params(self, other: GraphExecutor, params_bytes: Any) -> None:
        """Read the inputs that a parameter file names from the memory of `other`."""
        for name in load_param_dict(params_bytes):
            self.set_input_zero_copy(name, other._arrays[other._argument(name)])
            self._loaded.add(name)

    def get_input(self, key: Any, out: Any = None) -> Any:
        """The array of an input, which may be written; or copied into `out`."""
        k = self._argument(key)
        self._missing.discard(self._name(k))
        return self._arrays[k] if out is None else _into(out, self._arrays[k])

    def get_output(self, index: Any, out: Any = None) -> Any:
        """A copy of a result, or `out` with it."""
        return _into(out, self._arrays[self._heads[_place(index, self._heads, "output")]])

    def get_num_inputs(self) -> int:
        """How many inputs there are, parameters included."""
        return len(self._names)

    def get_num_outputs(self) -> int:
        """How many results there are."""
        return len(self._heads)

    def get_input_index(self, name: str) -> int:
        """The place of an input, -1 if there is none of this name."""
        return [*self._names].index(name) if name in self._names else -1

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """Shapes and dtypes of the inputs by name, without the parameters."""
        arrays = {
            name: self._arrays[self._argument(name)]
            for name in self._names
            if name not in self._loaded
        }
        return {n: a.shape for n, a in arrays.items()}, {n: str(a.dtype) for n, a in arrays.items()}

    # -- running -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Call every function once. Raises VMValueError while an input was never set."""
        self.check_inputs()
        for step in self.steps:
            step.run()

    def check_inputs(self) -> None:
        """Raise VMValueError while an input was never set."""
        if self._missing:
            names = [name for name in self._names if name in self._missing]
            raise VMValueError(f"run: inputs were never set: {', '.join(names[:20])}")

    def run_from_inputs(self, inputs: Mapping[str, Any]) -> list[NDArray]:
        """Set inputs, run, and copy the results out."""
        self.set_input(**inputs)
        self.run()
        return [self.get_output(i) for i in range(len(self._heads))]

    def debug_get_output(self, node: str | int, out: Any = None) -> Any:
        """Run up to a node, by name or number, and copy what it gives first."""
        last = node_named(self.graph, node)
        self.check_inputs()
        for step in self.steps:
            if step.node.outputs.start > last.outputs.start:
                break
            step.run()
        return _into(out, self._arrays[last.outputs[0]])

    def outputs_of(self, node: Node) -> list[NDArray]:
        """Copies of what a node gave, until others write into its memory."""
        return [_into(None, self._arrays[k]) for k in node.outputs]

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """A method by TVM's name. Raises VMValueError listing those that exist."""
        if name not in _FUNCTIONS:
            raise VMValueError(
                f"a graph executor has no function {name!r}; it has: {', '.join(_FUNCTIONS)}"
            )
        method: Callable[..., Any] = getattr(self, name)
        return method

    __getitem__ = get_function

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, f_preproc: str = "", **options: Any
    ) -> Callable[..., BenchmarkResult]:
        """A callable that measures one of the functions; options as in `timing.measure`."""
        return timing.time_evaluator(self.get_function(func_name), f_preproc, **options)

    def __repr__(self) -> str:
        return f"<GraphExecutor of {len(self.steps)} calls, inputs {', '.join(self._names)}>"


_FUNCTIONS = (
    "set_input set_input_zero_copy set_output_zero_copy get_input get_input_index get_input_info "
    "get_num_inputs get_output get_num_outputs debug_get_output load_params share_params run "
    "run_from_inputs"
).split()


class GraphModule:
    """A graph executor as users call it.

    module  what ``lib["default"](dev)`` gives
    """

    def __init__(self, module: GraphExecutor) -> None:
        if not isinstance(module, GraphExecutor):
            raise VMTypeError(
                'GraphModule: wanted lib["default"](dev), a graph executor, got '
                f"{type(module).__name__}"
            )
        self.module = module

    def __getattr__(self, name: str) -> Any:
        """The executor's functions."""
        if name not in _FUNCTIONS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.module, name)

    def run(self, **input_dict: Any) -> None:
        """Run the graph, with these inputs set before."""
        self.set_input(**input_dict)
        self.module.run()

    def share_params(self, other: GraphModule, params_bytes: Any) -> None:
        """Read the inputs that a parameter file names from the memory of `other`."""
        self.module.share_params(other.module, params_bytes)

    def __getitem__(self, key: str) -> Callable[..., Any]:
        return self.module[key]

    def benchmark(
        self,
        device: Device | None = None,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        *,
        end_to_end: bool = False,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """How long a run takes; with `end_to_end`, setting the inputs and copying the results out
        included. `kwargs` are inputs by name, and options as in `timing.measure`.
        """
        options = timing.options_in(kwargs, repeat=repeat, number=number)
        if kwargs and not end_to_end:
            self.set_input(**kwargs)
        call = functools.partial(self.module.run_from_inputs, kwargs) if end_to_end else None
        return timing.measure(call or self.module[func_name], **options)


# -- what a graph is run with ----------------------------------------------------------------------


def library_of(lib: Any) -> Module:
    """The kernels of a module: itself, or those of what `relay.build` gave."""
    inner = getattr(lib, "lib", lib)
    if not isinstance(inner, Module):
        raise VMTypeError(f"graph executor: wanted a module of functions, got {type(lib).__name__}")
    return inner


def _devices(graph: Graph, device: Any) -> dict[int, Device]:
    """Which device stands for each of the graph's."""
    devices = list(device) if isinstance(device, (list, tuple)) else [device or cpu()]
    for each in devices:
        if not isinstance(each, Device):
            raise VMTypeError(
                f"graph executor: device: wanted a Device such as cpu(), got {type(each).__name__}"
            )
    wanted = list(dict.fromkeys(v.device for v in graph.values))
    if len(devices) < len(wanted):
        kinds = ", ".join(map(str, wanted))
        raise VMValueError(
            f"graph executor: the graph's values lie on {len(wanted)} devices (of kinds {kinds}), "
            f"got {len(devices)}: {', '.join(map(str, devices))}"
        )
    chosen: dict[int, Device] = {}
    for kind in wanted:
        same = [d for d in devices if d.device_type + (d.index << 8) == kind]
        if same:
            chosen[kind] = same[0]
            devices.remove(same[0])
    for kind in wanted:
        if kind not in chosen:
            chosen[kind] = devices.pop(0)
    return chosen


def check_graph(graph: Graph, lib: Module) -> None:
    """Raise LoadError for a node whose kernel takes other arrays than it has."""
    infos = {info.name: info for info in lib.section.infos}
    for node in graph.nodes:
        if node.function in infos:
            _check_kernel(node, infos[node.function], graph.values)


def _check_kernel(node: Node, info: KernelInfo, values: Sequence[Value]) -> None:
    """Raise LoadError for a kernel that takes other arrays than the node has."""
    places = (*node.inputs, *node.outputs)
    count = len(places) if node.call is None else len(node.call)
    where = f"graph: node {node.name}"
    if len(info.params) != count:
        raise LoadError(f"{where}: {info.name} takes {len(info.params)} arguments, not {count}")
    for param, k in zip(info.params, places if node.call is None else ()):
        value = values[k]
        sizes = [a for a in zip(param.shape, value.shape) if type(a[0]) is int]
        if (
            param.dtype is not value.dtype
            or len(param.shape) != len(value.shape)
            or any(a != b for a, b in sizes)
            or param.written is not (k in node.outputs)
        ):
            raise LoadError(
                f"{where}: {info.name} takes {param}, the graph has {value.dtype} {value.shape}"
            )


def _copy(source: NDArray, target: NDArray) -> None:
    target.array[...] = source.array


def _packed(node: Node, lib: Module) -> Callable[..., None]:
    """A registered function that writes its outputs, or gives its result."""
    function = LIBRARY.get(node.function) or get_global_func(node.function, allow_missing=True)
    if function is None:
        known = list(lib.section.names)
        raise LoadError(
            f"graph: node {node.name}: there is no function {node.function!r}"
            f"{nearest_names(node.function, known)}, neither in the library nor registered"
        )
    count = len(node.inputs) + len(node.outputs) if node.call is None else len(node.call)
    try:
        inspect.signature(function).bind(*range(count - node.returns))
    except TypeError as error:
        raise LoadError(f"graph: node {node.name}: {node.function}: {error}") from None
    except ValueError:
        pass  # Python knows no signature of some functions in C.
    if not node.returns:

        def call(*args: Any) -> None:
            function(*args)
    else:

        def call(*args: Any) -> None:
            *args_before, out = args
            as_ndarray(function(*args_before)).copyto(out)

    return call


def node_named(graph: Graph, key: Any) -> Node:
    """A node by name or number. Raises VMValueError if there is none."""
    if isinstance(key, int) and 0 <= key < len(graph.nodes):
        return graph.nodes[key]
    for node in graph.nodes:
        if node.name == key:
            return node
    names = [n.name for n in graph.nodes]
    raise VMValueError(f"the graph has no node {str(key)[:80]!r}{nearest_names(key, names)}")


def _place(index: Any, among: Sized, what: str) -> int:
    count = len(among)
    if not isinstance(index, (int, np.integer)) or isinstance(index, bool):
        raise VMTypeError(f"{what}: wanted its number, got {type(index).__name__}")
    if not 0 <= index < count:
        raise VMValueError(f"there is no {what} {index}; the graph has {count}")
    return int(index)


def _into(out: Any, result: NDArray) -> Any:
    """`out` with a copy of `result`; without it, a new array."""
    if out is None:
        return array(result, result.device)
    target = as_ndarray(out)
    if not np.may_share_memory(target.array, memory_of(out)[0]):
        raise VMTypeError("out: wanted an array that can be written as it is: native and aligned")
    target.copyfrom(result)
    return out
