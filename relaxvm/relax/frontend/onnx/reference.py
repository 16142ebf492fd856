"""Nodes that no translation covers, as calls of ``env.onnx_reference``: onnx's own evaluator.

The call holds the node as a model of one node, so that a saved program needs nothing but the
package onnx, and this file imported, where it runs.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....base import FrontendError, RelaxvmError, VMError
from ....runtime import NDArray, array, register_func
from ...derive import elements
from ...expr import ExternFunc, StringImm
from ...op.call import call_pure_packed
from ...struct_info import Expr, StructInfo, TensorStructInfo, TupleStructInfo
from .model import element_dtype, library

FUNCTION = "env.onnx_reference"


def has_reference(domain: str, name: str, version: int) -> bool:
    """Whether onnx's evaluator can run an operator."""
    from onnx.reference.ops import load_op

    try:
        load_op(domain, name, version)
    except Exception:  # its errors for what it lacks are of several classes
        return False
    return True


def type_proto(info: StructInfo) -> Any:
    """The TypeProto that says what struct info does; of a sequence's elements the first."""
    onnx = library()
    if elements(info):
        return onnx.helper.make_sequence_type_proto(type_proto(elements(info)[0]))
    if not isinstance(info, TensorStructInfo):
        raise FrontendError(f"wanted a tensor or a sequence that is not empty, got {info}")
    dims = None if info.dims is None else [getattr(d, "value", None) for d in info.dims]
    return onnx.helper.make_tensor_type_proto(_element_type(str(info.dtype)), dims)


@functools.cache
def _element_type(dtype: str) -> int:
    for number in library().TensorProto.DataType.values():
        try:
            if number and str(element_dtype(number, dtype)) == dtype:
                return int(number)
        except RelaxvmError:
            continue
    raise FrontendError(f"ONNX has no elements of {dtype}")


def one_node(
    proto: Any, inputs: Sequence[Expr | None], own: Mapping[str, Any], opsets: Mapping[str, int]
) -> Any:
    """A model of this one node.

    own  its attributes, by name
    """
    onnx = library()
    node = type(proto)()
    node.CopyFrom(proto)
    del node.attribute[:]
    node.attribute.extend(own.values())
    node.input[:] = [f"x{k}" if x is not None else "" for k, x in enumerate(inputs)]
    node.output[:] = [f"y{k}" if name else "" for k, name in enumerate(proto.output)]
    values = [
        onnx.ValueInfoProto(name=f"x{k}", type=type_proto(x.struct_info))
        for k, x in enumerate(inputs)
        if x is not None
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "node", values, outputs)
    versions = [onnx.helper.make_opsetid(d, v) for d, v in opsets.items()]
    return onnx.helper.make_model(graph, opset_imports=versions)


def is_valid(model: Any) -> bool:
    """Whether onnx finds nothing wrong with a model of one node."""
    library()
    from onnx.shape_inference import infer_shapes

    try:
        infer_shapes(model, check_type=True, strict_mode=True)
    except Exception:  # its errors are of several classes
        return False
    return True


def by_reference(
    proto: Any, inputs: Sequence[Expr | None], own: Mapping[str, Any], opsets: Mapping[str, int]
) -> list[Any]:
    """The outputs of a node, computed by onnx's evaluator when the program runs."""
    library()
    from onnx.shape_inference import infer_shapes

    if any(a.HasField("g") or a.graphs for a in own.values()):
        raise FrontendError("onnx.reference does not run what has graphs inside")
    model = one_node(proto, inputs, own, opsets)
    inferred = infer_shapes(model)
    infos = [_info(o) for o in inferred.graph.output]
    text = StringImm(base64.b64encode(model.SerializeToString()).decode())
    given = [x for x in inputs if x is not None]
    declared = infos[0] if len(infos) == 1 else TupleStructInfo(infos)
    call = call_pure_packed(ExternFunc(FUNCTION), text, *given, sinfo_args=declared)
    results: list[Any] = [call] if len(infos) == 1 else [call[k] for k in range(len(infos))]
    places = iter(results)
    return [next(places) if name else None for name in proto.output]


def _info(output: Any) -> StructInfo:
    kind = output.type.tensor_type
    if output.type.WhichOneof("value") != "tensor_type" or not kind.elem_type:
        raise FrontendError("onnx does not say what its result is; onnx.reference cannot run it")
    dtype = element_dtype(kind.elem_type, output.name)
    if not kind.HasField("shape"):
        raise FrontendError("onnx does not say its result's rank; onnx.reference cannot run it")
    dims = kind.shape.dim
    if not all(d.HasField("dim_value") for d in dims):
        return TensorStructInfo(dtype=dtype, ndim=len(dims))
    return TensorStructInfo([d.dim_value for d in dims], dtype)


@functools.lru_cache(maxsize=256)
def _evaluator(text: str) -> Any:
    from onnx.reference import ReferenceEvaluator

    model = library().ModelProto()
    model.ParseFromString(base64.b64decode(text))
    return ReferenceEvaluator(model)


@register_func(FUNCTION, override=True)
def run_node(text: str, *args: NDArray) -> Any:
    """Run a node.

    text  a model of one node, in base 64
    """
    evaluator = _evaluator(text)
    proto = evaluator.proto_.graph.node[0]
    try:
        results = evaluator.run(None, dict(zip(evaluator.input_names, (a.numpy() for a in args))))
    except Exception as error:  # it raises whatever numpy does
        raise VMError(
            f"onnx.reference: {proto.domain or 'ai.onnx'}.{proto.op_type}: {error}"
        ) from error
    values = tuple(array(np.asarray(r)) for r in results)
    return values[0] if len(values) == 1 else values
