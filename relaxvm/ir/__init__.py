"""What IR is: nodes, scalar expressions, modules, equality, saving, passes.

Enters: constructors' arguments, saved IR. Leaves: immutable nodes, `IRModule`s, `Pass`es.
Not done here: the loop language (`tir`), the graph language (`relax`), proofs (`arith`), text
(`script`).
"""

from typing import Any

from ..base import submodules
from . import instrument, transform
from .access_path import AccessPath
from .env_func import EnvFunc
from .equal import (
    assert_structural_equal,
    get_first_structural_mismatch,
    structural_digest,
    structural_equal,
    structural_hash,
)
from .expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    FuncType,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PointerType,
    PrimExpr,
    PrimType,
    Ramp,
    Range,
    Select,
    Shuffle,
    SizeVar,
    StringImm,
    Sub,
    TupleType,
    Type,
    Var,
    as_expr,
    cast,
    const,
)
from .expr import (
    ScalarLike as ScalarLike,
)
from .leaf import LeafCodec, register_leaf
from .module import BaseFunc, DummyGlobalInfo, GlobalInfo, GlobalVar, IRModule, VDevice, print_ir
from .node import Map, Node, children, make_node, map_children, node, node_types, type_key
from .op import INTRINSICS, Intrinsic, Op, register_op_attr
from .serialize import load_json, load_msgpack, save_json, save_msgpack
from .transform import PassContext
from .walk import Visitor, on, post_order, rewrite, rule, substitute, walk

Array: Any = tuple
"""TVM's name for a sequence in the IR."""
DictAttrs = Map
"""TVM's name for the attributes of a function or module."""

__getattr__ = submodules(__name__)

__all__ = [
    "AccessPath",
    "EQ",
    "GE",
    "GT",
    "INTRINSICS",
    "LE",
    "LT",
    "NE",
    "Add",
    "And",
    "Array",
    "BaseFunc",
    "BinaryExpr",
    "Broadcast",
    "Call",
    "Cast",
    "CompareExpr",
    "DictAttrs",
    "Div",
    "DummyGlobalInfo",
    "FloatImm",
    "FloorDiv",
    "FloorMod",
    "FuncType",
    "GlobalInfo",
    "GlobalVar",
    "IRModule",
    "IntImm",
    "Intrinsic",
    "LeafCodec",
    "Let",
    "Map",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Node",
    "Not",
    "Op",
    "Or",
    "PassContext",
    "PointerType",
    "PrimExpr",
    "PrimType",
    "Ramp",
    "Range",
    "Select",
    "Shuffle",
    "SizeVar",
    "StringImm",
    "Sub",
    "TupleType",
    "Type",
    "EnvFunc",
    "VDevice",
    "Var",
    "Visitor",
    "as_expr",
    "assert_structural_equal",
    "cast",
    "children",
    "const",
    "get_first_structural_mismatch",
    "instrument",
    "load_json",
    "load_msgpack",
    "make_node",
    "map_children",
    "node",
    "node_types",
    "on",
    "post_order",
    "print_ir",
    "register_leaf",
    "register_op_attr",
    "rewrite",
    "rule",
    "save_json",
    "save_msgpack",
    "structural_digest",
    "structural_equal",
    "structural_hash",
    "substitute",
    "transform",
    "type_key",
    "walk",
]
