"""From the nodes of an ONNX graph to the bindings of a graph function."""

from __future__ import annotations

import functools
import re
import warnings
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from .... import tir
from ....base import FrontendError, InternalError, OpNotImplemented, RelaxvmError, Span, add_note
from ....ir import IRModule, PrimExpr
from ....runtime import NDArray, array
from ...block_builder import BlockBuilder
from ...expr import Call, Constant, Tuple, TupleGetItem, Var, is_leaf
from ...op.sizes import with_symbols
from ...struct_info import (
    Expr,
    SequenceStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ...transform.convert_to_dataflow import ConvertToDataflow
from . import ops as ops
from .model import (
    Model,
    canonical_domain,
    element_dtype,
    imported_opsets,
    library,
    want_known,
)
from .reference import by_reference, has_reference, is_valid, one_node, type_proto
from .registry import Translation, attributes_for, find, op, schema_of
from .values import ABSENT, Elements, NeedsConstant, as_size, constant_of, dims_of, folded, numbers

Scope = MutableMapping[str, Expr]

# Nodes of a model whose functions are inlined: they may be as many as two to the power of the file.
NODES_AT_MOST = 1_000_000
# Letters of a symbol's name.
NAME_AT_MOST = 100


def from_onnx(
    model: Any,
    shape_dict: Mapping[str, Iterable[Any]] | None = None,
    dtype_dict: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
    *,
    constants: Mapping[str, Any] | None = None,
    fallback: str | None = None,
) -> IRModule:
    """The graph function `main` that computes an ONNX model.

    model       a path, bytes or a ModelProto; external tensors are found beside the path only
    shape_dict  {input: shape}, instead of what the model says; a str in it is a symbol. Of a
                sequence: a list of its elements' shapes, of which its length is known; else run
                time decides that
    dtype_dict  {input: dtype} for inputs whose element type the model leaves open; or one for all
    opset       the version of the standard operators, instead of the model's
    keep_params_in_input  the model's weights become parameters behind its inputs, and their values
                the function's attribute "params" (see `relax.frontend.detach_params`)
    sanitize_input_names  parameters get names that are Python's
    constants   {input: array}: inputs that are known and no parameters; None: an optional without
                a value
    fallback    "reference": operators without a translation are run by onnx's own evaluator, each
                as a call of ``env.onnx_reference``; a warning names them

    `main` gives the model's output, or a tuple of several; its attribute "num_input" counts the
    inputs. A named dimension of the model is a symbol of that name, an unnamed one a fresh one.
    Raises OpNotImplemented, with all of them, if there are operators without a translation;
    NeedsConstant where something must be known that an input gives; FrontendError, which names the
    node, for whatever is wrong with the model.
    """
    source = model if isinstance(model, Model) else Model(model)
    opsets = source.opsets() | ({} if opset is None else want_known({"": opset}))
    if fallback not in (None, "reference"):
        raise FrontendError(f"fallback: wanted None or 'reference', got {fallback!r}")
    try:
        graph = Importer(source, opsets)
        graph.check_operators(fallback)
        return graph.function(
            shape_dict or {},
            dtype_dict,
            keep_params_in_input,
            sanitize_input_names,
            constants or {},
        )
    except RecursionError as error:
        raise FrontendError(
            "the model's graphs and functions stand too deep in one another"
        ) from error


class Importer:
    """One import: the module being written and what is known of its values."""

    def __init__(self, model: Model, opsets: dict[str, int]) -> None:
        self.model = model
        self.opsets = opsets
        self.builder = BlockBuilder()
        self.elements = Elements()
        self.symbols: dict[str, tir.Var] = {}
        self._symbol_names: set[str] = set()
        # The model's functions that are being inlined, outermost first.
        self.inlined: list[tuple[str, str, str]] = []
        # Random nodes without a seed so far.
        self.seeds = 0
        # In the body of a loop: the position of the loop around, and the iteration's number.
        self.stream: tuple[Expr | None, Expr] | None = None
        # The lists of nodes that are being imported, outermost first.
        self.bodies: list[list[Any]] = []
        # Value or symbol -> the model's inputs that it is computed from: what can be asked for as
        # constants.
        self._inputs_of: dict[int, tuple[Any, frozenset[str]]] = {}
        self.functions = {
            (canonical_domain(f.domain), f.name, getattr(f, "overload", "")): f
            for f in model.proto.functions
        }

    # -- what there is ----------------------------------------------------------------------------

    def check_operators(self, fallback: str | None = None) -> None:
        """Raise OpNotImplemented with every operator that cannot be imported.

        fallback  see `from_onnx`
        """
        count = self._inlined(self.model.proto.graph.node, {}, ())
        if count > NODES_AT_MOST:
            raise FrontendError(
                f"the model's functions, which call one another, stand for {count} nodes; at most "
                f"{NODES_AT_MOST} are imported"
            )
        absent: dict[tuple[str, str, int], list[str]] = {}
        seen: set[tuple[str, str, str]] = set()
        bodies = [(self.model.proto.graph.node, self.opsets)]
        # Grows while it is read: by the functions that are used.
        for protos, opsets in bodies:
            for proto in all_nodes(protos):
                _want_text(proto.op_type, proto.domain, proto.name, *proto.input, *proto.output)
                key = _key(proto)
                domain = key[0]
                if key in self.functions:
                    if key not in seen:
                        seen.add(key)
                        body = self.functions[key]
                        bodies.append((body.node, imported_opsets(body)))
                    continue
                version = opsets.get(domain, 0)
                if version and find(domain, proto.op_type, version) is not None:
                    continue
                schema = schema_of(domain, proto.op_type, version) if version else None
                if schema is None or not has_body(schema):
                    absent.setdefault((domain, proto.op_type, version), []).append(_title(proto))
        if fallback is not None:
            left = {key: nodes for key, nodes in absent.items() if has_reference(*key)}
            if left:
                names = ", ".join(f"{key[1]} ({len(nodes)} times)" for key, nodes in left.items())
                text = f"onnx.reference runs, slowly, what has no translation: {names}"
                warnings.warn(text, UserWarning, stacklevel=3)
            absent = {key: nodes for key, nodes in absent.items() if key not in left}
        if absent:
            raise OpNotImplemented(_absent_text(absent))

    def _inlined(
        self, protos: Iterable[Any], counts: dict[Any, int], around: tuple[Any, ...]
    ) -> int:
        """How many nodes these are when the model's functions are inlined.

        counts  those of functions so far
        around  the functions that these nodes stand in
        """
        total = 0
        for proto in all_nodes(protos):
            key = _key(proto)
            # That a function calls itself is told by the node that does.
            if key in self.functions and key not in around:
                if key not in counts:
                    body = self.functions[key].node
                    counts[key] = self._inlined(body, counts, (*around, key))
                total += counts[key]
            total += 1
        return total

    @functools.cached_property
    def is_random(self) -> bool:
        """Whether the model has nodes that give random numbers."""
        functions = (f.node for f in self.model.proto.functions)
        return any(
            proto.op_type.startswith("Random") or proto.op_type in _RANDOM
            for nodes in (self.model.proto.graph.node, *functions)
            for proto in all_nodes(nodes)
        )

    def position(self) -> Expr | None:
        """Which iteration of all loops around this is; None outside of loops, and where nothing is
        random.
        """
        if self.stream is None or not self.is_random:
            return None
        outer, i = self.stream
        if outer is None:
            return i
        return self.emit(op.add(op.multiply(outer, Constant(array(np.int64(_LOOPS_APART)))), i))

    # -- the function -----------------------------------------------------------------------------

    def function(
        self,
        shape_dict: Mapping[str, Iterable[Any]],
        dtype_dict: str | Mapping[str, str],
        keep_params: bool,
        sanitize: bool,
        constants: Mapping[str, Any],
    ) -> IRModule:
        """The module with the function `main`."""
        graph = self.model.proto.graph
        _want_text(*(x.name for x in (*graph.input, *graph.output, *graph.initializer)))
        weights = self.model.initializers()
        scope: dict[str, Expr] = {}
        params: list[Var] = []
        names: set[str] = set()
        for info in graph.input:
            if info.name in weights or info.name in constants:
                continue
            what = f"input {info.name}"
            if info.name in scope:
                raise FrontendError(f"{what}: there are two of this name")
            sinfo = self.type_info(
                info.type, what, shape_dict.get(info.name), _for(info.name, dtype_dict)
            )
            var = Var(_sanitized(info.name, names) if sanitize else info.name, sinfo)
            scope[info.name] = var
            self.made_from(var, frozenset([info.name]))
            params.append(var)
        for name, value in constants.items():
            scope[name] = ABSENT if value is None else Constant(array(np.asarray(value)))
        count, kept = len(params), dict[str, NDArray]()
        for name, value in weights.items():
            if keep_params and name not in constants:
                info = TensorStructInfo(value.shape, value.dtype)
                var = Var(_sanitized(name, names) if sanitize else name, info)
                scope[name] = var
                params.append(var)
                kept[name] = value
            elif name not in constants:
                scope[name] = Constant(value)
        attrs: dict[str, Any] = {"num_input": count}
        if keep_params:
            attrs["params"] = list(kept.values())
        with self.builder.function("main", params, attrs=attrs):
            self.nodes(graph.node, scope, self.opsets)
            outputs = [self.lookup(scope, o.name, f"output {o.name}") for o in graph.output]
            if not outputs:
                raise FrontendError("the model has no outputs")
            for declared, value in zip(graph.output, outputs):
                self.want_as_declared(declared, value.struct_info, not shape_dict)
            self.builder.emit_func_output(outputs[0] if len(outputs) == 1 else Tuple(outputs))
        return ConvertToDataflow(min_size=1)(self.builder.get())

    def type_info(
        self, proto: Any, what: str, shape: Iterable[Any] | None = None, dtype: str | None = None
    ) -> StructInfo:
        """The struct info that a TypeProto says."""
        kind = proto.WhichOneof("value")
        if kind == "optional_type":
            return self.type_info(proto.optional_type.elem_type, what, shape, dtype)
        if kind == "sequence_type":
            element = proto.sequence_type.elem_type
            if shape is None:
                if element.WhichOneof("value") == "tensor_type":
                    if not element.tensor_type.HasField("shape"):
                        kind = element_dtype(element.tensor_type.elem_type, what)
                        return SequenceStructInfo(TensorStructInfo(None, kind))
                return SequenceStructInfo(self.type_info(element, what, None, dtype))
            return TupleStructInfo([self.type_info(element, what, each, dtype) for each in shape])
        if kind == "map_type":
            # Keys and values, in any order.
            elements = proto.map_type.key_type, proto.map_type.value_type.tensor_type.elem_type
            size = self.symbol(f"{what.split()[-1]}_size")
            return TupleStructInfo(
                [TensorStructInfo((size,), element_dtype(e, what)) for e in elements]
            )
        if kind not in (None, "tensor_type"):
            raise FrontendError(f"{what}: wanted a tensor, a sequence or an optional, got {kind}")
        tensor = proto.tensor_type
        element = (
            dtype if tensor.elem_type == 0 and dtype else element_dtype(tensor.elem_type, what)
        )
        if shape is None:
            if not tensor.HasField("shape"):
                raise FrontendError(f"{what}: its rank is unknown; pass shape_dict")
            shape = [
                d.dim_value if d.HasField("dim_value") else d.dim_param or f"{what.split()[-1]}_{i}"
                for i, d in enumerate(tensor.shape.dim)
            ]
        dims = tuple(self.symbol(d) if isinstance(d, str) else d for d in shape)
        for d in dims:
            if isinstance(d, int) and d < 0:
                raise FrontendError(f"{what}: a dimension is negative: {list(dims)}")
        return TensorStructInfo(dims, element)

    def want_as_declared(self, declared: Any, info: StructInfo, sizes: bool) -> None:
        """Raise FrontendError if an output is not what the model declares it to be.

        sizes  whether they are declared for the inputs' shapes
        """
        kind = declared.type.tensor_type
        if declared.type.WhichOneof("value") != "tensor_type" or not isinstance(
            info, TensorStructInfo
        ):
            return
        dims = [d.dim_value or None for d in kind.shape.dim] if kind.HasField("shape") else None
        dtype = element_dtype(kind.elem_type, declared.name) if kind.elem_type else info.dtype
        fits = dtype is info.dtype and (dims is None or info.ndim in (-1, len(dims)))
        if fits and dims is not None and info.dims is not None and sizes:
            # Some exporters write -1 for what is not known.
            pairs = [(w, getattr(d, "value", w)) for w, d in zip(dims, info.dims)]
            fits = all(w is None or w < 0 or w == n for w, n in pairs)
        if not fits:
            graph = self.model.proto.graph
            maker = next((n for n in graph.node if declared.name in n.output), None)
            by = "an input or an initializer is" if maker is None else f"{_title(maker)} makes it"
            shape = "any shape" if dims is None else f"shape {dims}".replace("None", "?")
            raise FrontendError(
                f"output {declared.name}: the model declares {dtype} of {shape}, {by} {info}"
            )

    def symbol(self, name: str) -> tir.Var:
        """The symbol of a named dimension."""
        if name not in self.symbols:
            plain = _sanitized(name[:NAME_AT_MOST], self._symbol_names)
            self.symbols[name] = tir.Var(plain, "int64")
        return self.symbols[name]

    def inputs_of(self, value: Any) -> frozenset[str]:
        """The names of the model's inputs that a value (or a symbol) is computed from."""
        return self._inputs_of.get(id(value), (None, frozenset[str]()))[1]

    def made_from(self, value: Any, inputs: frozenset[str]) -> None:
        """`value` is computed from the model's `inputs`."""
        if inputs:
            self._inputs_of[id(value)] = value, inputs

    # -- nodes ------------------------------------------------------------------------------------

    def lookup(self, scope: Mapping[str, Expr], name: str, what: str) -> Expr:
        """The value called `name`."""
        value = scope.get(name)
        if value is None:
            raise FrontendError(
                f"{what}: {name!r} is made by no node before it, nor is it an input or an "
                "initializer; nodes must stand in an order in which each comes after what it needs"
            )
        return value

    def nodes(
        self,
        protos: Iterable[Any],
        scope: Scope,
        opsets: Mapping[str, int],
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Import nodes; their results are added to `scope`.

        attributes  in the body of a function: what its attributes are worth
        """
        protos = list(protos)
        self.bodies.append(protos)
        for proto in protos:
            try:
                self.node(proto, scope, opsets, attributes or {})
            except RelaxvmError as error:
                add_note(error, f"  in {_title(proto)}")
                raise
        self.bodies.pop()

    def node(
        self, proto: Any, scope: Scope, opsets: Mapping[str, int], attributes: Mapping[str, Any]
    ) -> None:
        """Import one node."""
        title = _title(proto)
        inputs = [self.lookup(scope, name, title) if name else None for name in proto.input]
        inputs = [None if x is ABSENT else x for x in inputs]
        own = {a.name: a for a in proto.attribute}
        for name, attribute in list(own.items()):
            if attribute.ref_attr_name:
                actual = attributes.get(attribute.ref_attr_name)
                if actual is None:
                    del own[name]
                else:
                    own[name] = type(attribute)()
                    own[name].CopyFrom(actual)
                    own[name].name = name
        key = _key(proto)
        domain = key[0]
        if key in self.functions:
            if key in self.inlined:
                raise FrontendError("the function calls itself, which ONNX does not allow")
            self.inlined.append(key)
            body = self.functions[key]
            results = self.inline(body, inputs, own, imported_opsets(body) or opsets)
            self.inlined.pop()
        else:
            version = opsets[domain]
            translation = find(domain, proto.op_type, version)
            schema = schema_of(domain, proto.op_type, version)
            if schema is not None and not schema.min_input <= len(inputs) <= schema.max_input:
                least, most = schema.min_input, schema.max_input
                raise FrontendError(f"wanted {least} to {most} inputs, got {len(inputs)}")
            for formal, x in zip(schema.inputs if schema is not None else (), inputs):
                if x is None and formal.option == type(formal.option).Single:
                    raise FrontendError(f"its input {formal.name} is missing")
            if translation is not None:
                for name, x in zip_longest(translation.needs if schema is None else (), inputs):
                    if name is not None and x is None:
                        raise FrontendError(f"its input {name} is missing")
                if len(inputs) > translation.most_inputs:
                    raise FrontendError(f"wanted {translation.most_inputs} inputs at most")
                node = Node(self, proto, scope, opsets, attributes, translation)
                keywords = attributes_for(translation, schema, own, self.model.tensor)
                try:
                    outcome = translation.function(node, *inputs, **keywords)
                except (RelaxvmError, RecursionError):
                    raise
                except Exception as error:
                    whole = one_node(proto, inputs, own, opsets)
                    raise _blamed(error, keywords, inputs, whole) from error
                results = list(outcome) if isinstance(outcome, (tuple, list)) else [outcome]
            elif schema is None or not has_body(schema):
                results = by_reference(proto, inputs, own, opsets)
            else:
                body, body_opsets = self.schema_body(schema, proto, inputs, own, version)
                results = self.inline(body, inputs, own, body_opsets, schema)
        if len(results) < len(proto.output):
            raise FrontendError(f"wanted {len(results)} outputs at most, got {len(proto.output)}")
        span = Span(name=title)
        sources = frozenset[str]().union(*map(self.inputs_of, inputs))
        for name, value in zip(proto.output, results):
            if not name:
                continue
            if name in scope and not (isinstance(scope, ChainMap) and name not in scope.maps[0]):
                raise FrontendError(f"{name!r} is made twice")
            if value is None:
                raise FrontendError(f"its output {name!r} is not imported yet")
            scope[name] = self.emit(value, name, span)
            if id(scope[name]) not in self._inputs_of:
                self.made_from(scope[name], sources)

    def schema_body(
        self, schema: Any, proto: Any, inputs: list[Any], own: Mapping[str, Any], version: int
    ) -> tuple[Any, dict[str, int]]:
        """The function that an operator's schema defines it by, and the opsets it is written in."""
        onnx = library()
        try:
            if schema.has_function:
                versions = [v for v in schema.function_opset_versions if v <= version]
                data = schema.get_function_with_opset_version(max(versions, default=version))
            else:
                made_for = schema.context_dependent_function_opset_versions
                versions = [v for v in made_for if v <= version]
                plain = type(proto)()
                plain.CopyFrom(proto)
                del plain.attribute[:]
                plain.attribute.extend(own.values())
                types = [
                    b"" if x is None else type_proto(x.struct_info).SerializeToString()
                    for x in inputs
                ]
                data = schema.get_context_dependent_function_with_opset_version(
                    max(versions, default=version), plain.SerializeToString(), types
                )
        except (RuntimeError, UnicodeDecodeError) as error:
            raise FrontendError(f"onnx cannot make the operator's function: {error}") from error
        body = onnx.FunctionProto()
        body.ParseFromString(data)
        return body, {**self.opsets, **imported_opsets(body)}

    def inline(
        self,
        body: Any,
        inputs: list[Expr | None],
        given: Mapping[str, Any],
        opsets: Mapping[str, int],
        schema: Any = None,
    ) -> list[Expr | None]:
        """What a FunctionProto gives for these inputs."""
        attributes = {a.name: a for a in getattr(body, "attribute_proto", ())}
        if schema is not None:
            defaults = {n: a.default_value for n, a in schema.attributes.items()}
            attributes.update({n: d for n, d in defaults.items() if d.type})
        attributes.update(given)
        scope: Scope = {n: x for n, x in zip(body.input, inputs) if x is not None}
        for name in list(body.input):
            scope.setdefault(name, ABSENT)
        self.nodes_of_function(body, scope, opsets, attributes)
        return [scope.get(name) for name in body.output]

    def nodes_of_function(
        self, body: Any, scope: Scope, opsets: Mapping[str, int], attributes: Mapping[str, Any]
    ) -> None:
        """The nodes of a function, in which an input that is left out is an empty name."""
        left_out = {name for name, value in scope.items() if value is ABSENT}
        for name in left_out:
            del scope[name]
        protos = []
        for proto in body.node:
            if left_out.intersection(proto.input):
                copy = type(proto)()
                copy.CopyFrom(proto)
                copy.input[:] = ["" if n in left_out else n for n in proto.input]
                proto = copy
            protos.append(proto)
        self.nodes(protos, scope, opsets, attributes)

    # -- bindings ---------------------------------------------------------------------------------

    def emit(self, value: Any, name: str = "", span: Span | None = None) -> Expr:
        """Bind an expression, nested in any way. What is known of it stays known: a call on small
        constants becomes a constant, and one that moves or combines known elements has such.
        """
        if isinstance(value, Tuple):
            return Tuple(tuple(self.emit(f, "", span) for f in value.fields))
        if isinstance(value, TupleGetItem):
            whole = self.emit(value.tuple_value, "", span)
            if isinstance(whole, Tuple):
                return whole.fields[value.index]
            item = self.bound(TupleGetItem(whole, value.index), name)
            fields = self.elements.of(whole)
            if fields is not None and item is not whole:
                self.elements.set(item, fields[value.index])
            return item
        if value is ABSENT:
            return value
        if not isinstance(value, Call):
            return value if is_leaf(value) else self.bound(value, name)
        args = tuple(self.emit(a, "", span) for a in value.args)
        if span is not None or any(a is not b for a, b in zip(args, value.args)):
            value = value.replace(args=args, **({} if span is None else {"span": span}))
        constant = folded(value)
        if constant is not None:
            return constant
        elements = self.elements.of_call(value)
        known = numbers(elements)
        if known is not None:
            return constant_of(known, value.struct_info)
        var = self.bound(value, name)
        if elements is not None:
            self.elements.set(var, elements)
        return var

    def bound(self, value: Expr, name: str = "") -> Var:
        """A variable for `value`, whose unknown dimensions get symbols, bound at run time."""
        var = self.builder.emit(value, _plain(name))
        info = with_symbols(var.struct_info) if _has_unknown(var.struct_info) else var.struct_info
        if info is not var.struct_info:
            return self.builder.match_cast(var, info, _plain(name))
        return var

    def needs(self, what: str, *values: Any) -> NeedsConstant:
        """An error to raise where values or symbols must be known when the model is imported."""
        inputs = tuple(sorted(frozenset[str]().union(*map(self.inputs_of, values))))
        hint = ", ".join(f"{name!r}: ..." for name in inputs)
        hint = f"; pass constants={{{hint}}}" if inputs else ""
        return NeedsConstant(f"its {what} must be known when the model is imported{hint}", inputs)

    def sizes(self, x: Expr, what: str = "shape") -> tuple[PrimExpr, ...]:
        """The elements of an integer tensor of known rank and size as scalar expressions; symbols
        bound at run time where they are unknown.
        """
        elements = self.elements.of(x)
        if elements is None:
            info = x.struct_info
            if not isinstance(info, TensorStructInfo) or info.dims is None or info.ndim > 1:
                raise FrontendError(f"{what}: wanted a vector of integers, got {info}")
            count = 1 if not info.dims else getattr(info.dims[0], "value", None)
            if count is None:
                raise self.needs(f"{what}'s length", x)
            flat = op.reshape(op.astype(x, "int64"), (count,))
            shape = self.bound(op.tensor_to_shape(self.emit(flat)))
            fresh = tuple(tir.Var(f"{_plain(what) or 'k'}_{i}", "int64") for i in range(count))
            self.builder.match_cast(shape, ShapeStructInfo(fresh))
            elements = np.empty(count, object)
            elements[:] = fresh
            elements = elements.reshape(() if not info.dims else (count,))
            for symbol in fresh:
                self.made_from(symbol, self.inputs_of(x))
            self.elements.set(x, elements)
        return tuple(as_size(e) for e in np.asarray(elements).reshape(-1))


class Node:
    """What a translation sees of the node it translates."""

    def __init__(
        self,
        graph: Importer,
        proto: Any,
        scope: Scope,
        opsets: Mapping[str, int],
        attributes: Mapping[str, Any],
        translation: Translation,
    ) -> None:
        self.graph = graph
        self.proto = proto
        self.scope = scope
        self.opsets = opsets
        self.attributes = attributes
        self.translation = translation
        self.span = Span(name=_title(proto))

    @property
    def opset(self) -> int:
        """The version of the node's domain."""
        return self.opsets[canonical_domain(self.proto.domain)]

    def wants(self, index: int) -> bool:
        """Whether the output `index` is used under a name."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    def emit(self, value: Any) -> Any:
        """`value`, bound; a translation needs it for what it uses several times."""
        return self.graph.emit(value, "", self.span)

    def sized(self, value: Any, *dims: Any) -> Any:
        """`value`, bound, with the dimensions `dims`, of which it is checked at run time; None: one
        that only data decides.
        """
        value = self.emit(value)
        if isinstance(value, Constant):
            return value
        info = value.struct_info
        wanted = [h if d is None else d for d, h in zip(dims, dims_of(value))]
        return self.graph.builder.match_cast(value, TensorStructInfo(wanted, info.dtype))

    def known(self, x: Expr, what: str) -> np.ndarray:
        """The numbers in `x`. Raises NeedsConstant, which names the input, if they are unknown."""
        if isinstance(x, Constant):
            return x.data.numpy()
        values = numbers(self.graph.elements.of(x))
        if values is None:
            raise self.needs(what, x)
        return values

    def needs(self, what: str, *values: Any) -> NeedsConstant:
        """An error to raise (see `Importer.needs`)."""
        return self.graph.needs(what, *values)

    def ints(self, x: Expr, what: str) -> tuple[int, ...]:
        """The integers in `x`, flat. Raises NeedsConstant if they are unknown."""
        return tuple(int(v) for v in self.known(x, what).reshape(-1))

    def number(self, x: Expr | None, what: str, default: Any = None) -> Any:
        """The one number in `x`, or `default` for an input that is left out."""
        if x is None:
            return default
        values = self.known(x, what).reshape(-1)
        if len(values) != 1:
            raise FrontendError(f"its {what}: wanted one number, got {len(values)}")
        return values[0].item()

    def seed(self, seed: float | None) -> Any:
        """What random numbers of this node follow from; without a `seed` that of no other node."""
        if seed is not None:
            return self.anew(int(np.float32(seed).view("uint32")))
        self.graph.seeds += 1
        return self.anew((1 << 32) + self.graph.seeds)

    def anew(self, seed: int) -> Any:
        """`seed` in the first iteration of a loop, and another number in each one after it."""
        position = self.graph.position()
        if position is None:
            return seed
        step, first = (Constant(array(np.int64(n))) for n in (_ITERATIONS_APART, seed))
        return self.emit(op.add(first, op.multiply(position, step)))

    def is_known(self, x: Expr) -> bool:
        """Whether the elements of `x` are known, as numbers or as expressions."""
        return isinstance(x, Constant) or self.graph.elements.of(x) is not None

    def sizes(self, x: Expr, what: str = "shape") -> tuple[PrimExpr, ...]:
        """The elements of an integer vector as expressions (see `Importer.sizes`)."""
        return self.graph.sizes(x, what)

    def dims(self, x: Expr) -> tuple[PrimExpr, ...]:
        """The dimensions of a tensor."""
        return dims_of(x)

    def error(self, message: str) -> FrontendError:
        """An error to raise; what it is about is added on the way."""
        return FrontendError(message)


def _blamed(
    error: Exception, attributes: Mapping[str, Any], inputs: Sequence[Any], node: Any
) -> RelaxvmError:
    """What to raise where a translation failed by a Python error: an axis beyond the rank, a count
    that does not fit and the like are the model's faults; a node that onnx finds in order is ours.
    """
    shown = ", ".join("nothing" if x is None else str(x.struct_info) for x in inputs)
    with_what = f"{error!r}; attributes {dict(attributes)}, inputs {shown}"
    rank = getattr(inputs[0].struct_info, "ndim", -1) if inputs and inputs[0] is not None else -1
    # Which axes there are, onnx does not always look at.
    axis = attributes.get("axis")
    beyond = isinstance(axis, int) and rank >= 0 and not -rank <= axis <= rank
    if is_valid(node) and not beyond:
        return InternalError(f"the translation failed: {with_what}")
    return FrontendError(f"its attributes and inputs do not fit: {with_what}")


def has_body(schema: Any) -> bool:
    """Whether a schema defines its operator as a function of others."""
    return bool(schema.has_function or schema.has_context_dependent_function)


def all_nodes(protos: Iterable[Any]) -> Iterator[Any]:
    """Nodes, and those of the graphs in their attributes."""
    # Grows while it is read.
    nodes = list(protos)
    for proto in nodes:
        yield proto
        for attribute in proto.attribute:
            for graph in (attribute.g, *attribute.graphs):
                nodes += graph.node


def _key(proto: Any) -> tuple[str, str, str]:
    """What a node calls: domain, name and overload."""
    return canonical_domain(proto.domain), proto.op_type, getattr(proto, "overload", "")


def _want_text(*names: Any) -> None:
    """Refuse names that are not UTF-8, which protobuf gives as bytes."""
    for name in names:
        if not isinstance(name, str):
            raise FrontendError(f"the model is damaged: the name {name!r} is no text")


# What is random beside RandomNormal and its kin.
_RANDOM = frozenset({"Bernoulli", "BiasDropout", "Dropout", "Multinomial"})
# Odd numbers, so that 2**64 positions have as many seeds.
_ITERATIONS_APART, _LOOPS_APART = 0x5851F42D4C957F2D, 0x14057B7EF767814F


def _has_unknown(info: Any) -> bool:
    if isinstance(info, TupleStructInfo):
        return any(map(_has_unknown, info.fields))
    return isinstance(info, TensorStructInfo) and info.dims is None and info.ndim >= 0


def _title(proto: Any) -> str:
    name = proto.name or next((o for o in proto.output if o), "")
    domain = canonical_domain(proto.domain)
    kind = f"{domain}.{proto.op_type}" if domain else proto.op_type
    return f"ONNX node {name} ({kind})"


# Domains of layouts that onnxruntime chooses by the machine it runs on.
_OF_ONE_MACHINE = ("com.microsoft.nchwc", "com.ms.internal.nhwc")


def _absent_text(absent: Mapping[tuple[str, str, int], list[str]]) -> str:
    lines = ["operators of the model that are not imported:"]
    for (domain, name, version), nodes in sorted(absent.items()):
        shown = ", ".join(nodes[:3]) + (", ..." if len(nodes) > 3 else "")
        if domain in _OF_ONE_MACHINE:
            why = (
                "onnxruntime's optimiser wrote it for one machine; optimise at level extended, or "
                "import the model as it was before"
            )
        elif not version:
            why = "the model imports no such domain, and has no such function"
        elif schema_of(domain, name, version) is None:
            why = "no such operator is known; a model-local function of its name would define it"
        else:
            why = 'write its translation: relax.frontend.onnx.onnx("' + name + '")'
            if has_reference(domain, name, version):
                why += ', or pass fallback="reference"'
        lines.append(
            f"  {domain or 'ai.onnx'} {version or '?'}: {name}, {len(nodes)} times ({shown}); {why}"
        )
    return "\n".join(lines)


def _for(name: str, dtypes: str | Mapping[str, str]) -> str | None:
    return dtypes if isinstance(dtypes, str) else dtypes.get(name)


def _plain(name: str) -> str:
    name = re.sub(r"\W", "_", name)
    return f"_{name}" if name[:1].isdigit() else name


def _sanitized(name: str, used: set[str]) -> str:
    """A name like `name` that is Python's, and no other parameter's."""
    base = _plain(name) or "input"
    plain, i = base, 0
    while plain in used:
        i += 1
        plain = f"{base}_{i}"
    used.add(plain)
    return plain
