"""`to_onnx`: a graph function as an ONNX model, for the operators that have a counterpart.

The operators are lines of `TABLE`, which `export_ops` fills.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ....base import DataType, FrontendError, OpNotImplemented
from ....ir import FloatImm, IntImm, IRModule, Op, PrimExpr, children
from ....ir import Var as Symbol
from ....runtime import NDArray, array
from ...expr import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from ...struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from .model import library

OPSET = 21
# Types that came later -> the opset from which operators take them.
_SINCE = {"float4_e2m1fn": 23, "float8_e8m0fnu": 24, "int2": 25, "uint2": 25}

Names = Any  # the name of a value; of a tuple a list of them
Export = Callable[["Exporter", Call], Names]


TABLE: dict[str, Export] = {}


def exports(*names: str) -> Callable[[Export], Export]:
    """Mark a function that writes the operators `names`."""

    def register(function: Export) -> Export:
        TABLE.update(dict.fromkeys(names, function))
        return function

    return register


def to_onnx(mod: IRModule | Function, func_name: str = "main") -> Any:
    """The ModelProto that computes a graph function.

    mod        a module, of which `func_name` is exported, or a function. Operators are ONNX's, so
               that this is for modules before `LegalizeOps`; other functions must be inlined first
               (`InlinePrivateFunctions`).
    Parameters become inputs under their names, constants initializers, symbols named dimensions,
    branches If. A tuple that is returned becomes several outputs.

    Raises OpNotImplemented, with all of them, for calls that have no counterpart; FrontendError for
    what cannot be said otherwise (a layout, an attribute, a dimension).
    """
    fn = mod if isinstance(mod, Function) else mod[func_name]
    if not isinstance(fn, Function):
        raise FrontendError(f"to_onnx: {func_name} is no graph function: {type(fn).__name__}")
    _check_calls(fn.body)
    onnx = library()
    model = Exporter()
    inputs = []
    for param in fn.params:
        names = model.parameter(param)
        inputs += [model.value_info(n, i) for n, i in zip(_flat(names), _leaves(param.struct_info))]
    results = _flat(model.sequence(fn.body))
    outputs = []
    for name, info in zip(results, _leaves(fn.body.struct_info)):
        own = model.unique(f"{name}_out")
        model.node("Identity", [name], [own])
        outputs.append(model.value_info(own, info))
    newest = max(_SINCE.get(dtype, OPSET) for dtype in (*model.dtypes, ""))
    opsets = [onnx.helper.make_opsetid("", newest)]
    graph = onnx.helper.make_graph(model.nodes, func_name, inputs, outputs, model.weights)
    return onnx.helper.make_model(
        graph,
        producer_name="relaxvm",
        opset_imports=opsets,
        ir_version=onnx.helper.find_min_ir_version_for(opsets),
    )


def _check_calls(body: Expr) -> None:
    """Raise OpNotImplemented with every call that cannot be exported."""
    absent: collections.Counter[str] = collections.Counter()
    bodies = [body]
    for each in bodies:  # grows by the branches
        for block in each.blocks if isinstance(each, SeqExpr) else ():
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, If):
                    bodies += [value.true_branch, value.false_branch]
                elif isinstance(value, Call) and name_of(value) not in TABLE:
                    absent[name_of(value)] += 1
                elif isinstance(value, Function):
                    absent["a function inside"] += 1
    if absent:
        listed = ", ".join(f"{n} ({k} times)" for n, k in sorted(absent.items()))
        raise OpNotImplemented(f"to_onnx: no counterpart in ONNX for {listed}")


def name_of(call: Call) -> str:
    if isinstance(call.op, Op):
        return call.op.name.removeprefix("relax.")
    return f"calls of {getattr(call.op, 'name_hint', call.op)}"


def _leaves(info: StructInfo) -> list[StructInfo]:
    if isinstance(info, TupleStructInfo):
        return [leaf for field in info.fields for leaf in _leaves(field)]
    return [info]


def _flat(names: Names) -> list[str]:
    return [n for part in names for n in _flat(part)] if isinstance(names, list) else [names]


@functools.cache
def _element_types() -> dict[str, int]:
    onnx = library()
    numbers = [n for n in onnx.TensorProto.DataType.values() if n not in (0, 8)]
    return {str(onnx.helper.tensor_dtype_to_np_dtype(n).name): n for n in numbers}


class Exporter:
    """Nodes being written, and the names of what they compute."""

    def __init__(self, outer: Exporter | None = None) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = outer.weights if outer else []
        self.names: dict[int, Names] = dict(outer.names) if outer else {}
        # Symbol -> a tensor and the axis of it (of a shape: None) that has this size.
        self.symbols: dict[Symbol, tuple[str, int | None]] = dict(outer.symbols) if outer else {}
        self._used: set[str] = outer._used if outer else set()
        self._kept: list[Expr] = outer._kept if outer else []
        self._shared: dict[Any, str] = outer._shared if outer else {}
        self.dtypes: set[str] = outer.dtypes if outer else set()
        self.title = ""

    # -- names ------------------------------------------------------------------------------------

    def unique(self, name: str) -> str:
        """A name like `name` that nothing else has."""
        own, i = name, 0
        while own in self._used:
            i += 1
            own = f"{name}_{i}"
        self._used.add(own)
        return own

    def set(self, value: Expr, names: Names) -> None:
        """The names of what `value` stands for."""
        self._kept.append(value)  # so that its id stays its own
        self.names[id(value)] = names

    def parameter(self, param: Var) -> Names:
        """Names for a parameter; its dimensions are where symbols come from."""
        names = self._named(param.name_hint, param.struct_info)
        self.set(param, names)
        return names

    def _named(self, name: str, info: StructInfo) -> Names:
        if isinstance(info, TupleStructInfo):
            return [self._named(f"{name}_{i}", field) for i, field in enumerate(info.fields)]
        own = self.unique(name)
        self.learn(own, info)
        return own

    def learn(self, name: str, info: StructInfo) -> None:
        """Symbols that stand alone in what is known of a value."""
        if isinstance(info, TensorStructInfo):
            for axis, dim in enumerate(info.dims or ()):
                if isinstance(dim, Symbol):
                    self.symbols.setdefault(dim, (name, axis))
        elif isinstance(info, ShapeStructInfo):
            for axis, dim in enumerate(info.values or ()):
                if isinstance(dim, Symbol):
                    self.symbols.setdefault(dim, (f"{name}\0{axis}", None))

    def value_info(self, name: str, info: StructInfo) -> Any:
        """What ONNX is told of an input or output."""
        helper = library().helper
        if isinstance(info, ShapeStructInfo):
            return helper.make_tensor_value_info(
                name, self.element_type(DataType("int64")), [info.ndim]
            )
        if not isinstance(info, TensorStructInfo) or info.dtype is None:
            raise FrontendError(f"to_onnx: {name}: wanted a tensor of a known dtype, got {info}")
        dims = None if info.dims is None else [
            d.value if isinstance(d, IntImm) else d.name if isinstance(d, Symbol) else None
            for d in info.dims
        ]  # fmt: skip
        return helper.make_tensor_value_info(name, self.element_type(info.dtype), dims)

    def element_type(self, dtype: Any) -> int:
        """ONNX's number of a dtype."""
        number = _element_types().get(str(dtype))
        if number is None:
            raise FrontendError(f"to_onnx: ONNX has no elements of {dtype}")
        self.dtypes.add(str(dtype))
        return number

    # -- values -----------------------------------------------------------------------------------

    def value(self, e: Expr) -> Names:
        """The name of a leaf, or of a tuple of them."""
        names = self.names.get(id(e))
        if names is not None:
            return names
        if isinstance(e, Constant):
            names = self.constant(e.data)
        elif isinstance(e, Tuple):
            return [self.value(f) for f in e.fields]
        elif isinstance(e, TupleGetItem):
            return self.value(e.tuple_value)[e.index]
        elif isinstance(e, ShapeExpr):
            return self.shape(e.values)
        elif isinstance(e, PrimValue):
            return self.scalar(e.value)
        else:
            raise FrontendError(f"to_onnx: {e} has no counterpart")
        self.set(e, names)
        return names

    def constant(self, data: Any, name: str = "constant") -> str:
        """An initializer: of a runtime array or a numpy array."""
        values = data if isinstance(data, NDArray) else np.asarray(data)
        stored = np.ascontiguousarray(data.numpy() if isinstance(data, NDArray) else values)
        proto = library().TensorProto(
            name=self.unique(name), data_type=self.element_type(values.dtype), dims=values.shape
        )
        proto.raw_data = stored.astype(stored.dtype.newbyteorder("<"), copy=False).tobytes()
        self.weights.append(proto)
        return str(proto.name)

    def number(self, value: Any, dtype: Any) -> str:
        """A scalar constant; equal ones are one."""
        key = repr(value), str(dtype)
        if key not in self._shared:
            self._shared[key] = self.constant(array(value, dtype=str(dtype)))
        return self._shared[key]

    def ints(self, *values: int) -> str:
        """A vector of int64."""
        if values not in self._shared:
            self._shared[values] = self.constant(np.array(values, "int64"))
        return self._shared[values]

    def shape(self, dims: Iterable[PrimExpr]) -> str:
        """A vector of int64 with these sizes."""
        parts = list(dims)
        if all(isinstance(d, IntImm) for d in parts):
            return self.ints(*(d.value for d in parts if isinstance(d, IntImm)))
        return self.emit("Concat", *(self.size(d) for d in parts), axis=0)

    def size(self, e: PrimExpr) -> str:
        """A vector of one int64 with the value of a scalar expression."""
        if isinstance(e, IntImm):
            return self.ints(e.value)
        if isinstance(e, Symbol) and e in self.symbols:
            name, axis = self.symbols[e]
            if axis is not None:
                return self.emit("Shape", name, start=axis, end=axis + 1)
            vector, _, index = name.partition("\0")
            return self.emit("Gather", vector, self.ints(int(index)), axis=0)
        kind = ARITHMETIC.get(type(e).__name__)
        if kind is None:
            raise FrontendError(f"to_onnx: the size {e} cannot be computed from the inputs' shapes")
        return kind(
            self, *(self.size(operand) for operand in children(e) if isinstance(operand, PrimExpr))
        )

    def scalar(self, e: PrimExpr) -> str:
        """A scalar tensor with the value of a scalar expression."""
        if isinstance(e, (IntImm, FloatImm)):
            return self.number(e.value, e.dtype)
        return self.emit("Reshape", self.size(e), self.constant(np.zeros(0, "int64")))

    # -- nodes ------------------------------------------------------------------------------------

    def node(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> None:
        """Write a node."""
        settings = {n: v for n, v in attrs.items() if v is not None}
        title = self.title and f"{self.title}#{len(self.nodes)}"
        make = library().helper.make_node
        self.nodes.append(make(kind, list(inputs), list(outputs), name=title or None, **settings))

    def emit(self, kind: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        """Write a node; the name of its output, or a list of those of several."""
        names = [self.unique(kind.lower()) for _ in range(outputs)]
        self.node(kind, inputs, names, **attrs)
        return names if outputs > 1 else names[0]

    def cast(self, name: str, dtype: Any) -> str:
        """`name` with elements of `dtype`."""
        # Where floats of 8 bits end, relax.astype gives infinity or NaN, as numpy's types do.
        end = 0 if str(dtype).startswith("float8") else None
        return self.emit("Cast", name, to=self.element_type(dtype), saturate=end)

    # -- bodies -----------------------------------------------------------------------------------

    def sequence(self, body: Expr) -> Names:
        """Write bindings; the names of the result."""
        for block in body.blocks if isinstance(body, SeqExpr) else ():
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, Call):
                    self.title = value.span.name or binding.var.name_hint
                    names = TABLE[name_of(value)](self, value)
                    self.title = ""
                elif isinstance(value, If):
                    names = self.branches(value)
                else:
                    names = self.value(value)
                self.set(binding.var, names)
                info = (
                    binding.struct_info
                    if isinstance(binding, MatchCast)
                    else binding.var.struct_info
                )
                for name, leaf in zip(_flat(names), _leaves(info)):
                    self.learn(name, leaf)
        return self.value(body.body if isinstance(body, SeqExpr) else body)

    def branches(self, choice: If) -> Names:
        """An If, whose branches are graphs that see the names around them."""
        helper = library().helper
        graphs, names = [], None
        for branch in (choice.true_branch, choice.false_branch):
            inner = Exporter(self)
            names = inner.sequence(branch)
            outputs = []
            for name, info in zip(_flat(names), _leaves(branch.struct_info)):
                own = inner.unique("result")
                inner.node("Identity", [name], [own])
                outputs.append(inner.value_info(own, info))
            graphs.append(helper.make_graph(inner.nodes, "branch", [], outputs))
        results = [self.unique("if") for _ in _flat(names)]
        self.node("If", [self.value(choice.cond)], results, then_branch=graphs[0],
                  else_branch=graphs[1])  # fmt: skip
        taken = iter(results)

        def shaped(part: Names) -> Names:
            return [shaped(p) for p in part] if isinstance(part, list) else next(taken)

        return shaped(names)


ARITHMETIC: dict[str, Callable[[Exporter, str, str], str]] = {
    "Add": lambda g, a, b: g.emit("Add", a, b),
    "Sub": lambda g, a, b: g.emit("Sub", a, b),
    "Mul": lambda g, a, b: g.emit("Mul", a, b),
    "Max": lambda g, a, b: g.emit("Max", a, b),
    "Min": lambda g, a, b: g.emit("Min", a, b),
    # ONNX's Mod of integers is floored, its Div is not.
    "FloorMod": lambda g, a, b: g.emit("Mod", a, b),
    "FloorDiv": lambda g, a, b: g.emit("Div", g.emit("Sub", a, g.emit("Mod", a, b)), b),
}
