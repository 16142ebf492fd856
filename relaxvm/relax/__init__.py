"""The graph language: expressions, struct info, operators, the builder, analyses, passes, and the
build for the VM.

Enters: expressions built by hand, by `BlockBuilder`, or by `script`. Leaves: checked functions in
normal form. Not done here: loop functions (`tir`, `te`), text (`script`), running (`runtime`).
"""

from ..base import submodules as _submodules
from ..ir import VDevice as VDevice
from . import expr as expr
from . import flow as flow
from . import known_ops as known_ops
from . import normal_form as normal_form
from . import op as op
from . import operators as operators
from . import rewriter as rewriter
from . import sources as sources
from . import struct_info as struct_info
from .derive import BaseCheckResult as BaseCheckResult
from .derive import erase_unbound as erase_unbound
from .expr import Binding as Binding
from .expr import BindingBlock as BindingBlock
from .expr import Call as Call
from .expr import Constant as Constant
from .expr import DataflowBlock as DataflowBlock
from .expr import DataflowVar as DataflowVar
from .expr import DataTypeImm as DataTypeImm
from .expr import ExternFunc as ExternFunc
from .expr import Function as Function
from .expr import GlobalVar as GlobalVar
from .expr import If as If
from .expr import MatchCast as MatchCast
from .expr import PrimValue as PrimValue
from .expr import SeqExpr as SeqExpr
from .expr import StringImm as StringImm
from .expr import Tuple as Tuple
from .expr import TupleGetItem as TupleGetItem
from .expr import Var as Var
from .expr import VarBinding as VarBinding
from .expr import as_relax as as_relax
from .expr import const as const
from .expr import extern as extern
from .expr import get_shape_of as get_shape_of
from .expr import is_leaf as is_leaf
from .formulas import Formulas as Formulas
from .op import call_builtin_with_ctx as call_builtin_with_ctx
from .op import call_dps_packed as call_dps_packed
from .op import call_inplace_packed as call_inplace_packed
from .op import call_packed as call_packed
from .op import call_pure_packed as call_pure_packed
from .op import call_tir as call_tir
from .op import call_tir_inplace as call_tir_inplace
from .op import call_tir_with_grad as call_tir_with_grad
from .op import invoke_closure as invoke_closure
from .op import invoke_pure_closure as invoke_pure_closure
from .op import make_closure as make_closure
from .op import null_value as null_value
from .op import shape_of as shape_of
from .operators import Axes as Axes
from .operators import DtypeParts as DtypeParts
from .shape_facts import ShapeFacts as ShapeFacts
from .struct_info import Expr as Expr
from .struct_info import FuncStructInfo as FuncStructInfo
from .struct_info import ObjectStructInfo as ObjectStructInfo
from .struct_info import PrimStructInfo as PrimStructInfo
from .struct_info import SequenceStructInfo as SequenceStructInfo
from .struct_info import ShapeExpr as ShapeExpr
from .struct_info import ShapeStructInfo as ShapeStructInfo
from .struct_info import StructInfo as StructInfo
from .struct_info import TensorStructInfo as TensorStructInfo
from .struct_info import TupleStructInfo as TupleStructInfo

# What sees rooms that the graph language itself must not import, or comes late in the import order.
_LATER = {
    "block_builder": "BlockBuilder",
    "expr_functor": "ExprFunctor PyExprMutator PyExprVisitor",
    "static_type": "FuncType ObjectType PackedFuncType ShapeType TensorType TupleType Type",
    "vm_build": "VMExecutable",
    "relaxvm.pipeline": "build get_pipeline",
    "relaxvm.runtime": "ExecBuilder Executable VMInstrumentReturnKind VirtualMachine",
}
_FILES = (
    "expr flow interp known_ops normal_form op operators rewriter static_type struct_info "
    "substitute utils vm_build"
)
__getattr__ = _submodules(__name__, _LATER, _FILES)


def __dir__() -> list[str]:
    files = "analysis block_builder expr_functor pipeline transform vm vm_build"
    return sorted({*globals(), *" ".join([files, *_LATER.values()]).split()})
