"""The loop language: its nodes, the functions that build expressions, the interpreter, analyses and
passes.

Enters: nodes made by hand, by `script` or by `te`. Leaves: `PrimFunc`s, checked, interpreted,
rewritten. `interpret` defines what a loop function means.
Loaded when first used: `transform`, `schedule`. Not done here: proofs about expressions (`arith`),
machine code (`target`), text (`script`).
"""

import typing

from ..base import ScheduleError as ScheduleError
from ..base import submodules as _submodules
from ..ir import EQ as EQ
from ..ir import GE as GE
from ..ir import GT as GT
from ..ir import INTRINSICS as INTRINSICS
from ..ir import LE as LE
from ..ir import LT as LT
from ..ir import NE as NE
from ..ir import Add as Add
from ..ir import And as And
from ..ir import BinaryExpr as BinaryExpr
from ..ir import Broadcast as Broadcast
from ..ir import Call as Call
from ..ir import Cast as Cast
from ..ir import CompareExpr as CompareExpr
from ..ir import Div as Div
from ..ir import FloatImm as FloatImm
from ..ir import FloorDiv as FloorDiv
from ..ir import FloorMod as FloorMod
from ..ir import GlobalVar as GlobalVar
from ..ir import IntImm as IntImm
from ..ir import Let as Let
from ..ir import Max as Max
from ..ir import Min as Min
from ..ir import Mod as Mod
from ..ir import Mul as Mul
from ..ir import Not as Not
from ..ir import Op as Op
from ..ir import Or as Or
from ..ir import PointerType as PointerType
from ..ir import PrimExpr as PrimExpr
from ..ir import PrimType as PrimType
from ..ir import Ramp as Ramp
from ..ir import Range as Range
from ..ir import Select as Select
from ..ir import Shuffle as Shuffle
from ..ir import SizeVar as SizeVar
from ..ir import StringImm as StringImm
from ..ir import Sub as Sub
from ..ir import Var as Var
from ..ir import as_expr as as_expr
from ..ir import cast as cast
from ..ir import const as const
from . import analysis as analysis
from . import op as op
from . import stmt_functor as stmt_functor
from .copies import fresh_copy as fresh_copy
from .copies import renew as renew
from .dims import dim_operator as dim_operator
from .elementary import ELEMENTARY as ELEMENTARY
from .index_map import IndexMap as IndexMap
from .index_map import IndexMapError as IndexMapError
from .interp import evaluate_expr as evaluate_expr
from .interp import interpret as interpret
from .op import *
from .specialize import specialize as specialize
from .stmt import FORMULA as FORMULA
from .stmt import NONTEMPORAL as NONTEMPORAL
from .stmt import PREFETCH as PREFETCH
from .stmt import PREFETCH_PANEL as PREFETCH_PANEL
from .stmt import REASSOCIATE as REASSOCIATE
from .stmt import Allocate as Allocate
from .stmt import AllocateConst as AllocateConst
from .stmt import AssertStmt as AssertStmt
from .stmt import AttrStmt as AttrStmt
from .stmt import Block as Block
from .stmt import BlockRealize as BlockRealize
from .stmt import Buffer as Buffer
from .stmt import BufferLoad as BufferLoad
from .stmt import BufferRegion as BufferRegion
from .stmt import BufferStore as BufferStore
from .stmt import DeclBuffer as DeclBuffer
from .stmt import Evaluate as Evaluate
from .stmt import For as For
from .stmt import ForKind as ForKind
from .stmt import IfThenElse as IfThenElse
from .stmt import IterVar as IterVar
from .stmt import LetStmt as LetStmt
from .stmt import MatchBufferRegion as MatchBufferRegion
from .stmt import PrimFunc as PrimFunc
from .stmt import SeqStmt as SeqStmt
from .stmt import Stmt as Stmt
from .stmt import While as While
from .stmt import body_nodes as body_nodes
from .stmt import decl_buffer as decl_buffer
from .stmt import is_no_op as is_no_op
from .stmt import seq as seq
from .stmt import statements_below as statements_below
from .stmt_functor import ir_transform as ir_transform
from .stmt_functor import post_order_visit as post_order_visit
from .stmt_functor import pre_order_visit as pre_order_visit
from .stmt_functor import renew_defs as renew_defs
from .stmt_functor import stmt_list as stmt_list
from .stmt_functor import substitute as substitute
from .stmt_writer import StmtWriter as StmtWriter
from .stmt_writer import Suite as Suite

if typing.TYPE_CHECKING:
    from .layouts import BijectiveLayout as BijectiveLayout
    from .layouts import Layout as Layout
    from .layouts import bijective_layout as bijective_layout
    from .layouts import layout as layout

# Rooms inside this one that are large, or build on the rest of it: `transform`, `schedule`.
_submodule = _submodules(
    __name__,
    {
        "functor": "PyStmtExprMutator PyStmtExprVisitor",
        "layouts": "BijectiveLayout Layout bijective_layout layout",
        # TVM's names for what rooms above this one have.
        "relaxvm.te": "Reduce",
        "relaxvm.target": "build",
    },
    "analysis op stmt_functor",
)
_OF_SCHEDULE = {"Schedule", "ScheduleState", "StmtSRef", "TensorIntrin"}


def __getattr__(name: str) -> typing.Any:
    if name in _OF_SCHEDULE:
        return getattr(_submodule("schedule"), name)
    return _submodule(name)
