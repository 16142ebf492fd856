"""A planned module as a graph in TVM's JSON form (`runtime.graph_json` says what stands in it).

    storage = R.vm.alloc_storage(R.shape([400]), …)             {"op": "tvm_op", "name": "add", …
    alloc = R.vm.alloc_tensor(storage, R.prim_value(0), …)  →    "inputs": [[0, 0, 0], [0, 0, 0]]}
    _ = cls.add(x, x, alloc)                                    storage_id: [0, 1]

One function, of known shapes and without branches: the rest is for the virtual machine.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import Any

from ..base import CodegenError, NameSupply
from ..ir import FloatImm, GlobalVar, IntImm, IRModule, Op
from ..relax import (
    Call,
    Constant,
    Expr,
    ExternFunc,
    Function,
    PrimValue,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from ..runtime import TABLE, Builtins, NDArray, device_kind, graph_json
from ..tir import PrimFunc


class _Place:
    """Memory that a call is going to write: then it is the value `number`."""

    __slots__ = ("info", "number", "storage")

    def __init__(self, storage: int, info: TensorStructInfo) -> None:
        self.storage = storage
        self.info = info
        self.number: int | None = None


class GraphWriter:
    """Writes the graph of the function `name` of a module at stage PLANNED.

    text    the JSON
    params  the constants, by the names they have there
    """

    def __init__(self, mod: IRModule, name: str) -> None:
        self.mod = mod
        self.name = name
        self.params: dict[str, NDArray] = {}
        self._nodes: list[dict[str, Any]] = []
        self._first = [0]
        self._values: list[tuple[list[int], str, int, int]] = []
        self._names = NameSupply(joint="_")
        self._known: dict[Var, Any] = {}
        self._constants: dict[tuple[int, int], tuple[Constant, int]] = {}
        self._storages = 0
        fn = mod[name]
        assert isinstance(fn, Function)
        for p in fn.params:
            self._known[p] = self._argument(p, p.name_hint or "arg", p.struct_info)
        for block in fn.body.blocks:
            for b in block.bindings:
                self._bind(b.var, b.value)
        results = _flat(self._value(fn.body.body, "the result"))
        if not all(isinstance(k, int) for k in results):
            raise self._fail("the result is no array that something computed")
        self.text = self._json([self._reference(k) for k in results])

    # -- nodes and values --------------------------------------------------------------------------

    def _fail(self, what: str) -> CodegenError:
        return CodegenError(
            f"{self.name}: {what}: a graph executor runs calls on arrays of known shapes, one "
            'after the other; relay.vm.compile, or create_executor("vm", ...), takes everything'
        )

    def _argument(self, p: Var, name: str, info: StructInfo) -> Any:
        """The numbers of an argument: a tuple has one for each of its fields."""
        if isinstance(info, TupleStructInfo):
            return [self._argument(p, f"{name}_{i}", f) for i, f in enumerate(info.fields)]
        if not isinstance(info, TensorStructInfo):
            raise self._fail(f"parameter {p.name_hint} is {info}")
        return self._null(self._names.fresh(name), self._described(info, p))

    def _described(self, info: TensorStructInfo, var: Var) -> tuple[list[int], str, int]:
        dims = info.dims
        sizes = [int(d.value) for d in dims or () if isinstance(d, IntImm)]
        if dims is None or len(sizes) != len(dims):
            raise self._fail(f"{var.name_hint} has the shape {info.shape}")
        return sizes, str(info.dtype), _device(info)

    def _null(self, name: str, described: tuple[list[int], str, int]) -> int:
        return self._node({"op": "null", "name": name, "inputs": []}, [(*described, self._new())])

    def _new(self) -> int:
        self._storages += 1
        return self._storages - 1

    def _node(self, plain: dict[str, Any], outputs: list[tuple[list[int], str, int, int]]) -> int:
        """Append a node; the number of its first value."""
        self._nodes.append(plain)
        number = len(self._values)
        self._values += outputs
        self._first.append(len(self._values))
        return number

    def _reference(self, value: int) -> list[int]:
        node = bisect_right(self._first, value) - 1
        return [node, value - self._first[node], 0]

    # -- bindings ----------------------------------------------------------------------------------

    def _bind(self, var: Var, value: Expr) -> None:
        if isinstance(value, Call):
            self._known[var] = self._call(var, value)
        elif isinstance(value, (Var, Constant, Tuple, TupleGetItem)):
            self._known[var] = self._value(value, var.name_hint)
        else:
            raise self._fail(f"{var.name_hint} is a {type(value).__name__}")

    def _value(self, value: Expr, what: str) -> Any:
        """A number of a value, a `_Place`, or a list of these."""
        if isinstance(value, Tuple):
            return [self._value(f, what) for f in value.fields]
        if isinstance(value, TupleGetItem):
            return self._value(value.tuple_value, what)[value.index]
        if isinstance(value, Constant):
            return self._constant(value)
        if not isinstance(value, Var) or value not in self._known:
            raise self._fail(f"{what} is {value}")
        known = self._known[value]
        return known.number if isinstance(known, _Place) and known.number is not None else known

    def _constant(self, value: Constant, device: int = 1) -> int:
        """The argument that a constant is, on the device where it is read."""
        known = self._constants.get((id(value.data), device))
        if known is None:
            array = value.data
            name = self._names.fresh(f"p{len(self.params)}")
            number = self._null(name, ([*array.shape], str(array.dtype), device))
            self.params[name] = array
            known = self._constants[id(value.data), device] = value, number
        return known[1]

    def _call(self, var: Var, call: Call) -> Any:
        op = call.op
        if isinstance(op, Op):
            return self._memory(var, call)
        if isinstance(op, GlobalVar) and isinstance(self.mod.get(op), PrimFunc):
            return self._operate(var, op.name_hint, call.args)
        if not isinstance(op, ExternFunc):
            raise self._fail(f"{var.name_hint} calls {getattr(op, 'name_hint', type(op).__name__)}")
        name = op.global_symbol
        row = TABLE.get(name)
        if row is None:
            return self._operate(var, name, call.args)
        if row is Builtins.RESHAPE:
            return self._view(var, call.args[0])
        if row in (Builtins.MOVE, Builtins.COPY):
            return self._value(call.args[0], var.name_hint)
        # Executors check their inputs themselves.
        if row is Builtins.NULL_VALUE or (row.checks and row is not Builtins.ALLOC_SHAPE_HEAP):
            return None
        raise self._fail(f"{var.name_hint} calls {name}")

    def _memory(self, var: Var, call: Call) -> Any:
        assert isinstance(call.op, Op)
        what = call.op.name.rpartition(".")[2]
        if what == "alloc_storage":
            return self._new()
        if what == "alloc_tensor":
            storage, offset = call.args[:2]
            assert isinstance(storage, Var)
            assert isinstance(offset, PrimValue)
            if not isinstance(offset.value, IntImm) or offset.value.value:
                raise self._fail(f"{var.name_hint} does not begin where its storage does")
            assert isinstance(var.struct_info, TensorStructInfo)
            return _Place(self._known[storage], var.struct_info)
        if what == "kill_object":
            return None
        raise self._fail(f"{var.name_hint} calls {call.op.name}")

    def _operate(self, var: Var, function: str, args: Any) -> Any:
        """A node that calls a function: memory that nobody wrote yet is what it gives."""
        items: list[Any] = []
        inputs: list[int] = []
        places: list[_Place] = []
        known = [self._known.get(arg) for arg in args if isinstance(arg, Var)]
        device = next((_device(p.info) for p in known if isinstance(p, _Place)), 1)
        for arg in args:
            if isinstance(arg, Constant) and function != graph_json.COPY:
                items.append((len(inputs),))
                inputs.append(self._constant(arg, device))
            elif isinstance(arg, PrimValue) and isinstance(arg.value, (IntImm, FloatImm)):
                items.append(arg.value.value)
            elif isinstance(arg, StringImm):
                items.append(arg.value)
            else:
                for value in _flat(self._value(arg, var.name_hint)):
                    items.append(value if isinstance(value, _Place) else (len(inputs),))
                    (places if isinstance(value, _Place) else inputs).append(value)
        returns = not places
        if returns:
            if not isinstance(var.struct_info, TensorStructInfo):
                raise self._fail(f"{var.name_hint} calls {function}, which gives no array")
            items.append(_Place(self._new(), var.struct_info))
            places.append(items[-1])
        attrs = _attrs(function, len(inputs), len(places))
        entries: list[Any] = [
            item[0]
            if type(item) is tuple
            else len(inputs) + places.index(item)
            if isinstance(item, _Place)
            else None
            for item in items
        ]
        if entries != [*range(len(inputs) + len(places))]:
            listed = [i if e is None else {"entry": e} for i, e in zip(items, entries)]
            attrs["call"] = json.dumps(listed)
        if returns:
            attrs["returns"] = "1"
        references = [self._reference(k) for k in inputs]
        plain = {
            "op": "tvm_op",
            "name": self._names.fresh(function),
            "attrs": attrs,
            "inputs": references,
        }
        described = [self._described(p.info, var) for p in places]
        number = self._node(plain, [(*d, p.storage) for d, p in zip(described, places)])
        for k, place in enumerate(places):
            place.number = number + k
        return number if returns else None

    def _view(self, var: Var, source: Expr) -> int:
        value = self._value(source, var.name_hint)
        assert isinstance(value, int)
        assert isinstance(var.struct_info, TensorStructInfo)
        plain = {
            "op": "tvm_op",
            "name": self._names.fresh("reshape_nop"),
            "attrs": _attrs(graph_json.NOP, 1, 1),
            "inputs": [self._reference(value)],
        }
        return self._node(plain, [(*self._described(var.struct_info, var), self._values[value][3])])

    # -- the whole ---------------------------------------------------------------------------------

    def _json(self, heads: list[list[int]]) -> str:
        columns: Any = zip(*self._values) if self._values else ([],) * 4
        shapes, dtypes, devices, storages = map(list, columns)
        # Storages as they are first written: those of memory that nobody wrote leave no gaps.
        order = {s: i for i, s in enumerate(dict.fromkeys(storages))}
        plain = {
            "nodes": self._nodes,
            "arg_nodes": [i for i, n in enumerate(self._nodes) if n["op"] == "null"],
            "heads": heads,
            "attrs": {
                "dltype": ["list_str", dtypes],
                "device_index": ["list_int", devices],
                "storage_id": ["list_int", [order[s] for s in storages]],
                "shape": ["list_shape", shapes],
            },
            "node_row_ptr": self._first,
        }
        return json.dumps(plain, indent=2)


def _device(info: TensorStructInfo) -> int:
    """Where TVM would say that it is: the kind's number; what is beyond the first counts on."""
    if info.vdevice is None:
        return 1
    return device_kind(info.vdevice.kind) + (info.vdevice.vdevice_id << 8)


def _attrs(function: str, inputs: int, outputs: int) -> dict[str, str]:
    return {
        "num_outputs": str(outputs),
        "num_inputs": str(inputs),
        "flatten_data": "0",
        "func_name": function,
    }


def _flat(value: Any) -> list[Any]:
    return [leaf for each in value for leaf in _flat(each)] if isinstance(value, list) else [value]
