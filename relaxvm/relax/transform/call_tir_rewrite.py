"""`call_tir` and its kin become an allocation and a call that writes into it.

    before:  lv = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((n, 4), "float32"))
    after:   alloc = R.builtin.alloc_tensor(R.shape([n, 4]), R.dtype("float32"), R.prim_value(0))
             _ = cls.exp(x, alloc)
             lv = alloc

Several results give several allocations and a tuple. `call_tir_inplace` allocates only the results
that are not written over an argument (and works on a copy of a constant). Symbols that a kernel
takes as scalars (`tir_vars`) make it a `R.vm.call_tir_dyn`. A function with dataflow blocks leaves
with plain ones, since its calls now have effects.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...arith import Analyzer
from ...base import VerifyError
from ...ir import IntImm, IRModule, PassContext, PrimExpr
from ...ir import Var as PrimVar
from ...ir.transform import function_pass
from ...runtime import Builtins, MatchCode
from ..derive import source_place
from ..expr import (
    Binding,
    Call,
    Constant,
    Function,
    MatchCast,
    PrimValue,
    StringImm,
    Tuple,
    Var,
    VarBinding,
)
from ..flow import name_of
from ..known_ops import (
    CALL_DPS_PACKED,
    CALL_TIR,
    CALL_TIR_DYN,
    CALL_TIR_INPLACE,
    DPS,
    VOID,
    alloc_tensor,
    builtin,
    discard,
)
from ..rewriter import RememberingRewriter
from ..struct_info import Expr, ShapeExpr, StructInfo, TensorStructInfo, TupleStructInfo
from .to_non_dataflow import without_dataflow


@function_pass(opt_level=0)
def CallTIRRewrite(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Make the outputs of kernel calls explicit: allocate them, then pass them as last
    arguments.
    """
    rewritten = _Rewriter().rewrite(fn)
    # Its calls have effects now.
    return fn if rewritten is fn else without_dataflow(rewritten)


class _Rewriter(RememberingRewriter):
    """State: the analyzer, which takes what stands alone as a dimension for a size, and the sizes
    that are checked at this point, which no proof shows to be at least 0.
    """

    def __init__(self) -> None:
        super().__init__()
        self.constants: set[Expr] = set()
        self.analyzer = Analyzer(wrap=False)
        self.checked: dict[PrimExpr, bool] = {}
        self.proven: set[PrimExpr] = set()

    def begin(self, fn: Function) -> None:
        for p in fn.params:
            self._sizes_of(p.struct_info)

    def _sizes_of(self, info: StructInfo) -> None:
        for part in info.fields if isinstance(info, TupleStructInfo) else (info,):
            for dim in (part.dims or ()) if isinstance(part, TensorStructInfo) else ():
                if isinstance(dim, PrimVar):
                    self.analyzer.bind_size(dim)

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        call = b.value
        if isinstance(b, MatchCast):
            self._sizes_of(b.struct_info)
        if isinstance(call, Constant) or call in self.constants:
            self.constants.add(b.var)
        if not isinstance(call, Call) or call.op not in (
            CALL_TIR,
            CALL_TIR_INPLACE,
            CALL_DPS_PACKED,
        ):
            return None
        out: list[Binding] = []
        if call.op is CALL_TIR_INPLACE:
            call = self._with_own_memory(call, out)
        self._check_sizes(b.var, call, out)
        result = _lower_call(b.var, call, out)
        if isinstance(b, MatchCast):
            out.append(b.replace(value=result))
        else:
            out.append(VarBinding(b.var, result, b.span))
        return out

    def _check_sizes(self, var: Var, call: Call, out: list[Binding]) -> None:
        """Append checks that no size of the results is negative, where that is not certain."""
        info = call.sinfo_args[0]
        for each in info.fields if isinstance(info, TupleStructInfo) else (info,):
            dims = (each.dims or ()) if isinstance(each, TensorStructInfo) else ()
            doubtful = [self._is_doubtful(d) for d in dims]
            if not any(doubtful):
                continue
            place = source_place(call.span)
            text = f"{name_of(call.args[0])} gives {var.name_hint}: {each}{place}"
            codes = [MatchCode.ASSERT_NOT_NEGATIVE if d else MatchCode.NO_OP for d in doubtful]
            pairs = [PrimValue(n) for code in codes for n in (int(code), 0)]
            args = (ShapeExpr(dims), PrimValue(0), StringImm(text), *pairs)
            out.append(discard(builtin(Builtins.MATCH_SHAPE, args, VOID), call.span))

    def _is_doubtful(self, dim: PrimExpr) -> bool:
        if isinstance(dim, IntImm) or dim in self.checked or dim in self.proven:
            return False
        if self.analyzer.can_prove(dim >= 0):
            self.proven.add(dim)
            return False
        self.remember(self.checked, dim, True)
        return True

    def _with_own_memory(self, call: Call, out: list[Binding]) -> Call:
        """An in-place `call` with constants copied, so that it does not overwrite them."""
        inputs = list(_fields(call.args[1]))
        for index, value in enumerate(inputs):
            if isinstance(value, Constant) or value in self.constants:
                copy = Var("copy", value.struct_info, call.span)
                copied = builtin(Builtins.COPY, (value,), value.struct_info, call.span)
                out.append(VarBinding(copy, copied, call.span))
                inputs[index] = copy
        if not out:
            return call
        return call.replace(args=(call.args[0], Tuple(inputs), *call.args[2:]))


def _lower_call(var: Var, call: Call, out: list[Binding]) -> Expr:
    """Append allocations and the call to `out`; the expression that holds the results."""
    callee, inputs = call.args[0], _fields(call.args[1])
    info = call.sinfo_args[0]
    outputs: tuple[StructInfo, ...] = info.fields if isinstance(info, TupleStructInfo) else (info,)
    indices = _inplace_indices(call, len(inputs), len(outputs), var)
    results: list[Expr] = []
    fresh: list[Expr] = []
    for position, each in enumerate(outputs):
        if indices[position] >= 0:
            results.append(inputs[indices[position]])
            continue
        if not isinstance(each, TensorStructInfo) or each.shape is None or each.dtype.bits == 0:
            raise VerifyError(
                f"{var.name_hint} = {name_of(call.op)}(...): result {position} must be a tensor of "
                f"known shape and dtype to be allocated, got {each!r}; say both in out_sinfo"
            )
        target = Var("alloc", each, call.span)
        out.append(VarBinding(target, alloc_tensor(each, call.span), call.span))
        results.append(target)
        fresh.append(target)
    args = (*inputs, *fresh)
    if call.op is CALL_DPS_PACKED:
        lowered = Call(callee, args, DPS, (VOID,), VOID, call.span)
    elif len(call.args) > 2:
        lowered = Call(CALL_TIR_DYN, (callee, Tuple((*args, call.args[2]))), struct_info=VOID)
        lowered = lowered.replace(span=call.span)
    else:
        lowered = Call(callee, args, struct_info=VOID, span=call.span)
    out.append(discard(lowered, call.span))
    return Tuple(results) if isinstance(info, TupleStructInfo) else results[0]


def _fields(args: Expr) -> tuple[Expr, ...]:
    return args.fields if isinstance(args, Tuple) else (args,)


def _inplace_indices(call: Call, n_inputs: int, n_outputs: int, var: Var) -> list[int]:
    if call.op is not CALL_TIR_INPLACE:
        return [-1] * n_outputs
    declared = call.attrs["inplace_indices"]
    indices = [int(i) for i in (declared if isinstance(declared, tuple) else (declared,))]
    if len(indices) != n_outputs or any(not -1 <= i < n_inputs for i in indices):
        raise VerifyError(
            f"{var.name_hint} = call_tir_inplace(...): inplace_indices wants {n_outputs} numbers "
            f"between -1 (a new result) and {n_inputs - 1}, got {indices}"
        )
    return indices
