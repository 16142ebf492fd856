"""`relay.analysis`: questions about expressions and modules."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator
from typing import Any

from ..base import submodules
from ..ir import (
    GlobalVar,
    IntImm,
    IRModule,
    Op,
    post_order,
    structural_hash,
    walk,
)
from ..relax import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    SeqExpr,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from ..relax.analysis import all_vars as all_vars
from ..relax.analysis import bound_vars as bound_vars
from ..relax.analysis import free_vars as free_vars
from ..relax.analysis import well_formed as well_formed
from ..relax.static_type import of_static_type
from .view import operands, visited


class Feature(enum.Enum):
    """What a program may make use of."""

    fVar = "variable"
    fGlobalVar = "global variable"
    fConstant = "constant"
    fTuple = "tuple"
    fTupleGetItem = "field of a tuple"
    fFunction = "function"
    fOp = "operator"
    fCall = "call"
    fLet = "let"
    fIf = "branch"
    fGraph = "value that is read more than once"


_FEATURES: dict[type, Feature] = {
    Var: Feature.fVar,
    GlobalVar: Feature.fGlobalVar,
    Constant: Feature.fConstant,
    Tuple: Feature.fTuple,
    TupleGetItem: Feature.fTupleGetItem,
    Function: Feature.fFunction,
    Op: Feature.fOp,
    Call: Feature.fCall,
    If: Feature.fIf,
}


def _all(what: Any) -> Iterator[Any]:
    roots = list(what.functions.values()) if isinstance(what, IRModule) else [what]
    for root in roots:
        yield from walk(root)


def detect_feature(a: Any, b: Any = None) -> set[Feature]:
    """What an expression (or a module) makes use of; `b` may be its module, in either order."""
    features: set[Feature] = set()
    for part in (a, b):
        for n in _all(part) if part is not None else ():
            features |= {f for kind, f in _FEATURES.items() if isinstance(n, kind)}
            if isinstance(n, SeqExpr) and any(block.bindings for block in n.blocks):
                features.add(Feature.fLet)
    return features


def check_constant(expr: Any) -> bool:
    """Whether an expression is made of constants alone: tuples and functions without free
    variables.
    """
    if isinstance(expr, Function):
        return not free_vars(expr)
    return all(isinstance(n, (Constant, Tuple)) for n in post_order(expr, operands))


def all_dtypes(expr: Any) -> set[str]:
    """The dtypes of all tensors in an expression."""
    infos: list[Any] = [n.struct_info for n in _all(expr) if isinstance(n, Expr)]
    dtypes = set()
    for info in infos:
        if isinstance(info, TupleStructInfo):
            infos.extend(info.fields)
        elif isinstance(info, TensorStructInfo) and info.dtype != "void":
            dtypes.add(str(info.dtype))
    return dtypes


def free_type_vars(expr: Any, mod: Any = None) -> list[Any]:
    """No expression has any here: types of the graph language have no variables."""
    return []


bound_type_vars = all_type_vars = free_type_vars


def post_order_visit(expr: Any, fvisit: Callable[[Any], Any]) -> None:
    """Call `fvisit` on every expression below `expr`, operands first, each shared one once; on
    operators, too.
    """
    for n in visited(expr):
        fvisit(n)


def _calls(what: Any) -> Iterator[Any]:
    for root in what.functions.values() if isinstance(what, IRModule) else [what]:
        yield from (n for n in visited(root) if isinstance(n, Call) and isinstance(n.op, Op))


def list_op_freqs(mod: Any) -> dict[str, int]:
    """How often each operator is called."""
    counts: dict[str, int] = {}
    for call in _calls(mod):
        name = call.op.name
        counts[name] = counts.get(name, 0) + 1
    return counts


def count_layers(expr: Any, valid_ops: Any) -> int:
    """The most calls of these operators, by name, that follow one another."""
    root = expr.body if isinstance(expr, Function) else expr
    depth: dict[Any, int] = {}
    for n in visited(root):
        below = max((depth[o] for o in operands(n)), default=0)
        is_layer = isinstance(n, Call) and getattr(n.op, "name", "") in valid_ops
        depth[n] = below + is_layer
    return depth[n]


def _product(dims: Any) -> int:
    return math.prod(d.value if isinstance(d, IntImm) else 1 for d in dims)


def get_total_mac_number(expr: Any) -> int:
    """How many multiplications with an addition the convolutions and products of an expression
    are. Sizes that are not known count as one.
    """
    total = 0
    calls: list[Any] = [n for n in _all(expr) if isinstance(n, Call) and isinstance(n.op, Op)]
    for call in calls:
        info: Any = call.struct_info
        name = call.op.name.removeprefix("relax.")
        if name == "matmul":
            total += _product(info.dims) * _product(call.args[0].struct_info.dims[-1:])
        elif name.startswith("nn.conv"):
            data, weight = (a.struct_info for a in call.args[:2])
            # Each weight meets each place of the result, or, transposed, of the data.
            layout, side = ("data_layout", data) if "transpose" in name else ("out_layout", info)
            words = call.attrs[layout] or call.attrs["data_layout"]
            places = [d for axis, d in zip(words, side.dims) if axis != "C"]
            total += _product(weight.dims) * _product(places)
    return total


def extract_fused_functions(mod: IRModule) -> dict[int, Function]:
    """By structural hash, the functions that fusion has made (attribute "Primitive")."""
    fused = [n for n in _all(mod) if isinstance(n, Function) and n.get_attr("Primitive")]
    return {structural_hash(fn): fn for fn in fused}


def check_kind(t: Any, mod: Any = None) -> str:
    """The kind of a type: "Type" for all that values have. Raises StructInfoError for no type."""
    of_static_type(t)
    return "Type"


__getattr__ = submodules(__name__)
