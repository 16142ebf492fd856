"""What IR is: nodes, scalar expressions, modules, equality, saving, passes.

Enters: constructors' arguments, saved IR. Leaves: immutable nodes, `IRModule`s, `Pass`es.
Not done here: the loop language (`tir`), the graph language (`relax`), proofs (`arith`), text
(`script`).
"""

import typing

from ..base import submodules as _submodules
from . import instrument as instrument
from . import transform as transform
from .access_path import AccessPath as AccessPath
from .env_func import EnvFunc as EnvFunc
from .equal import assert_structural_equal as assert_structural_equal
from .equal import get_first_structural_mismatch as get_first_structural_mismatch
from .equal import structural_digest as structural_digest
from .equal import structural_equal as structural_equal
from .equal import structural_hash as structural_hash
from .expr import EQ as EQ
from .expr import GE as GE
from .expr import GT as GT
from .expr import INT32 as INT32
from .expr import INT64 as INT64
from .expr import INT_MEANING as INT_MEANING
from .expr import LE as LE
from .expr import LT as LT
from .expr import NE as NE
from .expr import Add as Add
from .expr import And as And
from .expr import ArithmeticExpr as ArithmeticExpr
from .expr import BinaryExpr as BinaryExpr
from .expr import Broadcast as Broadcast
from .expr import Call as Call
from .expr import Cast as Cast
from .expr import CompareExpr as CompareExpr
from .expr import Div as Div
from .expr import FloatImm as FloatImm
from .expr import FloorDiv as FloorDiv
from .expr import FloorMod as FloorMod
from .expr import FuncType as FuncType
from .expr import IntImm as IntImm
from .expr import Let as Let
from .expr import Max as Max
from .expr import Min as Min
from .expr import Mod as Mod
from .expr import Mul as Mul
from .expr import Not as Not
from .expr import Or as Or
from .expr import PointerType as PointerType
from .expr import PrimExpr as PrimExpr
from .expr import PrimType as PrimType
from .expr import Ramp as Ramp
from .expr import Range as Range
from .expr import (
    ScalarLike as ScalarLike,
)
from .expr import Select as Select
from .expr import Shuffle as Shuffle
from .expr import SizeVar as SizeVar
from .expr import StringImm as StringImm
from .expr import Sub as Sub
from .expr import TupleType as TupleType
from .expr import Type as Type
from .expr import Var as Var
from .expr import as_condition as as_condition
from .expr import as_expr as as_expr
from .expr import binary as binary
from .expr import call_intrinsic as call_intrinsic
from .expr import cast as cast
from .expr import const as const
from .expr import divide as divide
from .expr import double_bits as double_bits
from .expr import fold_int as fold_int
from .expr import is_const as is_const
from .expr import match as match
from .expr import saturate as saturate
from .expr import shift as shift
from .expr import trunc_div as trunc_div
from .expr import trunc_mod as trunc_mod
from .expr import wrap_int as wrap_int
from .leaf import LeafCodec as LeafCodec
from .leaf import register_leaf as register_leaf
from .module import CALL_MAKERS as CALL_MAKERS
from .module import RELAY as RELAY
from .module import BaseFunc as BaseFunc
from .module import DummyGlobalInfo as DummyGlobalInfo
from .module import GlobalInfo as GlobalInfo
from .module import GlobalVar as GlobalVar
from .module import IRModule as IRModule
from .module import VDevice as VDevice
from .module import print_ir as print_ir
from .node import Map as Map
from .node import Node as Node
from .node import children as children
from .node import derive as derive
from .node import derived as derived
from .node import make_node as make_node
from .node import map_children as map_children
from .node import node as node
from .node import node_types as node_types
from .node import type_key as type_key
from .node import value_key as value_key
from .op import INTRINSICS as INTRINSICS
from .op import Intrinsic as Intrinsic
from .op import Op as Op
from .op import bound_failure as bound_failure
from .op import register_op_attr as register_op_attr
from .op import why_no_dot as why_no_dot
from .serialize import load_json as load_json
from .serialize import load_msgpack as load_msgpack
from .serialize import save_json as save_json
from .serialize import save_msgpack as save_msgpack
from .transform import PassContext as PassContext
from .walk import Substitution as Substitution
from .walk import derived_from as derived_from
from .walk import descend as descend
from .walk import enter_leave as enter_leave
from .walk import first_nodes as first_nodes
from .walk import nodes_of as nodes_of
from .walk import post_order as post_order
from .walk import substitute as substitute
from .walk import walk as walk

Array: typing.Any = tuple
"""TVM's name for a sequence in the IR."""
DictAttrs = Map
"""TVM's name for the attributes of a function or module."""

__getattr__ = _submodules(__name__, files="analysis instrument transform walk")
