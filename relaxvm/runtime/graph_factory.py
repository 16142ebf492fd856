"""What `relay.build` gives: a graph, the functions that it calls, and its parameters, as one module
and one file.

    lib = relay.build(mod, "llvm", params=params)
    lib.export_library("model.so");  lib = runtime.load_module("model.so")
    m = graph_executor.GraphModule(lib["default"](dev))
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgpack

from ..base import LoadError, VMValueError
from . import shared_library
from .device import Device
from .files import open_document
from .graph_executor import GraphExecutor
from .graph_json import Graph, read_graph
from .module import Module
from .ndarray import NDArray
from .params import load_param_dict, save_param_dict
from .reader import Decoder, fields_of

GRAPH_MAGIC = "relaxvm.graph"
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "magic": str,
    "format": int,
    "name": str,
    "graph": str,
    "params": bytes,
    "library": bytes,
}


class GraphExecutorFactoryModule:
    """A graph with everything that it needs: ``lib["default"](dev)`` runs it.

    graph_json_str  the graph, in TVM's JSON form
    lib             the module with its functions
    libmod_name     what the whole is called: "default"
    params          the arrays of its parameters, by their names in the graph
    ir_mod, target  what it was built from, and for; None for one that was loaded
    """

    type_key = "GraphExecutorFactory"
    imported_modules: tuple[object, ...] = ()

    def __init__(
        self,
        graph: Graph,
        lib: Module,
        libmod_name: str,
        params: Mapping[str, NDArray],
        ir_mod: Any = None,
        target: Any = None,
    ) -> None:
        self.graph = graph
        self.graph_json_str = graph.text
        self.lib = lib
        self.libmod_name = libmod_name
        self.params = dict(params)
        self.ir_mod = ir_mod
        self.target = target
        self.iter_cnt = 0

    @property
    def module(self) -> GraphExecutorFactoryModule:
        """TVM's view of it as a module: itself."""
        return self

    def get_graph_json(self) -> str:
        """The graph, in TVM's JSON form."""
        return self.graph_json_str

    get_executor_config = get_graph_json

    def get_params(self) -> dict[str, NDArray]:
        """The parameters by name."""
        return self.params

    def get_lib(self) -> Module:
        """The module with the functions that the graph calls."""
        return self.lib

    def get_source(self, fmt: str = "") -> str:
        """The text of the functions; see `Module.get_source`."""
        return self.lib.get_source(fmt)

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """What makes an executor of a device, under the name of the whole; or a function by TVM's
        name. Raises VMValueError listing those that exist.
        """
        functions: dict[str, Callable[..., Any]] = {
            self.libmod_name: self._create,
            "debug_create": lambda name, *devices: self.get_function(name)(*devices),
            "get_graph_json": self.get_graph_json,
            "remove_params": self._without_params,
        }
        if name not in functions:
            raise VMValueError(
                f"this module has no function {name!r}; it has: {', '.join(functions)}"
            )
        return functions[name]

    __getitem__ = get_function

    def _create(self, *devices: Device) -> GraphExecutor:
        executor = GraphExecutor(self.graph, self.lib, devices or None)
        executor.set_params(self.params)
        return executor

    def _without_params(self) -> GraphExecutorFactoryModule:
        return GraphExecutorFactoryModule(
            self.graph, self.lib, self.libmod_name, {}, self.ir_mod, self.target
        )

    def __iter__(self) -> Iterator[Any]:
        warnings.warn(
            "graph, lib, params = relay.build(...): keep the module in one piece, "
            'GraphModule(lib["default"](dev)), or take get_graph_json(), get_lib(), get_params()',
            DeprecationWarning,
            stacklevel=2,
        )
        return iter((self.graph_json_str, self.lib, self.params))

    def export_library(
        self,
        path: str | os.PathLike[str],
        fcompile: Callable[..., object] | None = None,
        **options: Any,
    ) -> None:
        """Write the whole to one file, or to a folder or an archive with C, which `load_module`
        reads; as `Module.export_library`.
        """
        plain = {
            "magic": GRAPH_MAGIC,
            "format": 1,
            "name": self.libmod_name,
            "graph": self.graph_json_str,
            "params": save_param_dict(self.params),
            # It carries its own signature. What stands beside it is checked when it is read.
            "library": self.lib.to_bytes(),
        }
        document = msgpack.packb(plain, use_bin_type=True)
        lib = self.lib
        shared_library.export(path, [document], lib.section, fcompile, lib.sources, **options)

    save = export_library

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], trust: str | None = None
    ) -> GraphExecutorFactoryModule:
        """Read a file that `export_library` wrote; `trust` as in `Module.from_bytes`.

        Raises LoadError for other files, OSError for those that cannot be read.
        """
        with open_document(path) as file:
            data = file.read()
        try:
            decoder = Decoder(memoryview(data))
            plain = decoder.value()
            decoder.end()
            magic, form, name, graph, params, library = fields_of(plain, _FIELDS, "graph module")
            if magic != GRAPH_MAGIC or form != 1:
                raise LoadError(f"not a graph module of format 1: {magic[:40]!r} of {form}")
            module = Module.from_bytes(library, trust)
            return cls(read_graph(graph), module, name, load_param_dict(params))
        except LoadError as error:
            raise LoadError(f"{os.fsdecode(path)}: {error}") from None

    def __repr__(self) -> str:
        return f"<GraphExecutorFactoryModule {self.libmod_name}: {self.lib!r}>"
