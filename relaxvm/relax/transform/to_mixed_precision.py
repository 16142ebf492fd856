"""ToMixedPrecision: the heavy operators work on float16.

    lv = R.matmul(x, w)            lv = R.astype(x, "float16")
    lv1 = R.nn.relu(lv)            lv1 = R.astype(w, "float16")
    gv = R.nn.softmax(lv1)         lv2 = R.matmul(lv, lv1, out_dtype="float32")
                                   lv3 = R.astype(lv2, "float16")
                                   lv4 = R.nn.relu(lv3)
                                   lv5 = R.astype(lv4, "float32")
                                   gv = R.nn.softmax(lv5)

Operators of the class `always` take float16; those of `follow` do where what they work on is
float16 already; all others get float32 as before, and so does everything that is no operator: the
results of functions and branches, arguments of calls, fields of tuples that are given on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base import DataType, PassError, decided, declined, in_function
from ...base import dtype as as_dtype
from ...ir import IRModule, Op, PassContext
from ...ir.transform import module_pass
from ..analysis.usage import remove_all_unused
from ..analysis.vars import all_global_vars
from ..expr import (
    Binding,
    Call,
    Constant,
    Function,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    const,
)
from ..known_ops import ops_named
from ..op.names import ops
from ..rewriter import ShadowRewriter
from ..struct_info import Expr, TensorStructInfo, TupleStructInfo
from .signature import replace_functions

HIGH, LOW = as_dtype("float32"), as_dtype("float16")

ALWAYS = ops_named(
    "matmul einsum dot nn.conv1d nn.conv2d nn.conv3d nn.conv1d_transpose nn.conv2d_transpose "
    "nn.conv3d_transpose nn.attention nn.attention_bias"
)
"""Where the time goes, and where sums can be kept in `out_dtype`."""

FOLLOW = ops_named(
    "add subtract multiply divide maximum minimum negative abs sign clip floor ceil round "
    "trunc sigmoid tanh nn.relu nn.relu6 nn.leakyrelu nn.prelu nn.gelu nn.gelu_tanh nn.silu "
    "nn.hardswish nn.hardsigmoid where reshape flatten squeeze expand_dims broadcast_to "
    "permute_dims concat stack split strided_slice take tile repeat flip roll tril triu "
    "nn.pad layout_transform nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.dropout "
    "nn.depth_to_space nn.space_to_depth nn.pixel_shuffle max min"
)
"""As good in float16 as in float32, if their arguments are. Exponentials, logarithms, powers, sums
and norms are not among them: they leave float16's range, or lose digits."""


@module_pass(opt_level=0, numerics="approximate")
def ToMixedPrecision(
    mod: IRModule,
    ctx: PassContext,
    *,
    out_dtype: str = "float32",
    fp16_input_names: Sequence[str] | None = None,
) -> IRModule:
    """Let matmul, convolutions and attention work on float16, and what follows them as far as it is
    safe.

    out_dtype         dtype in which matmul and convolutions give their sums: float32 or float16
    fp16_input_names  parameters that become float16 themselves, in every function that no other
                      function calls. Raises PassError for a name that no such function has.
    """
    try:
        chosen = as_dtype(out_dtype)
    except (TypeError, ValueError) as error:
        raise PassError(f"ToMixedPrecision: out_dtype: {error}") from None
    if chosen not in (HIGH, LOW):
        raise PassError(f"ToMixedPrecision: out_dtype is float32 or float16, got {out_dtype!r}")
    if isinstance(fp16_input_names, str):
        fp16_input_names = (fp16_input_names,)
    names = frozenset(fp16_input_names or ())
    called = {
        g.name_hint
        for fn in mod.functions.values()
        if isinstance(fn, Function)
        for g in all_global_vars(fn)
    }
    changed: dict[Any, Any] = {}
    inputs_met: set[str] = set()
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            inputs = names if gv.name_hint not in called else frozenset()
            inputs_met.update(p.name_hint for p in fn.params if p.name_hint in inputs)
            with in_function(gv):
                changed[gv] = _Lowering(chosen, inputs).function(fn)
    if names - inputs_met:
        raise PassError(
            f"ToMixedPrecision: fp16_input_names: no function has a float32 parameter named "
            f"{', '.join(sorted(names - inputs_met))}"
        )
    return replace_functions(mod, changed)


def _is_high(info: Any) -> bool:
    return isinstance(info, TensorStructInfo) and info.dtype is HIGH


def _with_dtype(info: TensorStructInfo, dtype: DataType) -> TensorStructInfo:
    return TensorStructInfo(info.shape, dtype, info.vdevice, info.ndim)


class _Lowering(ShadowRewriter[Expr]):
    """Rebuilds one function.

    shadow   variable -> its float16 value, where there is one in scope
    natural  variables that an operator gave in float16, or that are sums kept in `out_dtype`: who
             follows them works in float16
    """

    def __init__(self, out_dtype: DataType, inputs: frozenset[str]) -> None:
        super().__init__()
        self.out_dtype = out_dtype
        self.inputs = inputs
        self.natural: set[Var] = set()
        self.outside: set[Var] = set()
        self.first: list[Binding] = []
        # By identity of the array; the constant itself is kept alive with what it became.
        self.constants: dict[int, tuple[Constant, Constant | None]] = {}
        self.changed = False

    def function(self, fn: Function) -> Function:
        """`fn` in mixed precision; the same object if there was nothing to do."""
        params = tuple(map(self.param, fn.params))
        self.first = [
            VarBinding(old, ops.astype(new, "float32"))
            for old, new in zip(fn.params, params)
            if old is not new
        ]
        self.outside = set(fn.params)
        rebuilt = self.rewrite(fn)
        return remove_all_unused(rebuilt.replace(params=params)) if self.changed else fn

    def prologue(self, fn: Function) -> Sequence[Binding]:
        return self.first

    def param(self, p: Var) -> Var:
        if p.name_hint not in self.inputs:
            return p
        if isinstance(p.struct_info, TensorStructInfo) and p.struct_info.dtype is LOW:
            return p
        if not _is_high(p.struct_info):
            raise PassError(
                f"ToMixedPrecision: fp16_input_names: parameter {p.name_hint} is {p.struct_info}; "
                "wanted a float32 tensor"
            )
        new = Var(p.name_hint, _with_dtype(p.struct_info, LOW), p.span)  # type: ignore[arg-type]
        self.shadow[p] = new
        self.natural.add(p)
        self.changed = True
        return new

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        if type(b) is not VarBinding:
            return None
        self.out = []
        if self.operator(b, b.value):
            return self.out
        return [*self.out, b] if self.out else None

    # -- operators --------------------------------------------------------------------------------

    def operator(self, b: VarBinding, value: Expr) -> bool:
        """Bind `b` by a call in float16, if it is one that should be; whether it was."""
        if isinstance(value, TupleGetItem):
            return self.field(b, value)
        if isinstance(value, Var):
            return self.renamed(b, value)
        if not isinstance(value, Call) or not isinstance(value.op, Op):
            return False
        if not self.gives_high(value):
            return False
        if value.op in ALWAYS:
            return self.always(b, value)
        if value.op in FOLLOW and self.may_follow(value):
            return self.in_low(b, value)
        if any(isinstance(a, Var) and a in self.natural for a in _tensors(value.args)):
            declined("{} stays in float32: float16 would lose digits or range", b)
        return False

    def gives_high(self, call: Call) -> bool:
        info = call.struct_info
        if isinstance(info, TupleStructInfo):
            return bool(info.fields) and all(map(_is_high, info.fields))
        return _is_high(info)

    def always(self, b: VarBinding, call: Call) -> bool:
        tensors = [a for a in _tensors(call.args) if _is_high(a.struct_info)]
        if not tensors or any(self.cast(a) is None for a in tensors):
            if tensors:
                declined("{} stays in float32: a constant is beyond float16", b)
            return False
        if "out_dtype" not in call.attrs:
            return self.in_low(b, call)
        if call.attrs["out_dtype"] not in (None, "", "void", HIGH, "float32"):
            declined("{} stays in float32: it is to give {}", b, str(call.attrs["out_dtype"]))
            return False
        attrs = call.attrs.with_(out_dtype="float16" if self.out_dtype is LOW else "float32")
        low_call = Call(call.op, self.low_args(call), attrs, call.sinfo_args, None, call.span)
        if self.out_dtype is LOW:
            self.give(b, low_call)
        else:
            self.out.append(VarBinding(b.var, low_call, b.span))
            self.natural.add(b.var)
        decided("{} works on float16", b)
        self.changed = True
        return True

    def may_follow(self, call: Call) -> bool:
        """Whether some argument of `call` is float16 by nature, and no other has to lose digits."""
        tensors = [a for a in _tensors(call.args) if _is_high(a.struct_info)]
        natural = [a for a in tensors if isinstance(a, Var) and a in self.natural]
        others = [a for a in tensors if not (isinstance(a, Var) and a in self.natural)]
        if not natural:
            return False
        if not all(isinstance(a, Constant) or a in self.outside for a in others):
            return False
        return all(self.cast(a) is not None for a in tensors)

    def in_low(self, b: VarBinding, call: Call) -> bool:
        low_call = Call(call.op, self.low_args(call), call.attrs, call.sinfo_args, None, call.span)
        self.give(b, low_call)
        decided("{} works on float16", b)
        self.changed = True
        return True

    def field(self, b: VarBinding, value: TupleGetItem) -> bool:
        held = value.tuple_value
        if not isinstance(held, Var) or held not in self.natural or held not in self.shadow:
            return False
        if not _is_high(b.var.struct_info):
            return False
        self.give(b, TupleGetItem(self.shadow[held], value.index, span=value.span))
        return True

    def renamed(self, b: VarBinding, value: Var) -> bool:
        if value not in self.natural or value not in self.shadow or not _is_high(value.struct_info):
            return False
        self.out.append(b)
        self.natural.add(b.var)
        self.remember(b.var, self.shadow[value])
        return True

    # -- values in float16 ------------------------------------------------------------------------

    def give(self, b: VarBinding, value: Expr) -> None:
        """Bind float16 `value` to a new variable, and the variable of `b` to it in float32."""
        low = self.new(b.var.name_hint, value)
        self.natural.add(b.var)
        if isinstance(value.struct_info, TupleStructInfo):
            fields: list[Expr] = []
            for i in range(len(value.struct_info.fields)):
                item = self.new(f"{b.var.name_hint}_{i}", TupleGetItem(low, i))
                fields.append(self.new(item.name_hint, ops.astype(item, "float32")))
            self.out.append(VarBinding(b.var, Tuple(fields), b.span))
        else:
            self.out.append(VarBinding(b.var, ops.astype(low, "float32"), b.span))
        self.remember(b.var, low)

    def cast(self, value: Any) -> Expr | None:
        """`value` in float16, cast here if need be; None for a constant beyond float16's range."""
        if isinstance(value, Constant):
            return self.constant(value)
        low = self.shadow.get(value)
        if low is None:
            low = self.new(value.name_hint, ops.astype(value, "float16"))
            self.remember(value, low)
        return low

    def constant(self, value: Constant) -> Constant | None:
        known = self.constants.get(id(value))
        if known is None:
            array = value.data.numpy()
            with np.errstate(over="ignore"):
                low = array.astype("float16")
            fits = bool(np.all(np.isfinite(low) | ~np.isfinite(array)))
            known = self.constants[id(value)] = (value, const(low) if fits else None)
        return known[1]

    def low_args(self, call: Call) -> tuple[Any, ...]:
        return tuple(
            Tuple([self.low_leaf(f) for f in a.fields])
            if isinstance(a, Tuple)
            else self.low_leaf(a)
            for a in call.args
        )

    def low_leaf(self, value: Any) -> Any:
        if isinstance(value, (Var, Constant)) and _is_high(value.struct_info):
            return self.cast(value)
        return value


def _tensors(args: Sequence[Any]) -> list[Any]:
    """The variables and constants among the arguments, and in tuples written out there."""
    tensors: list[Any] = []
    for a in args:
        for each in a.fields if isinstance(a, Tuple) else (a,):
            if isinstance(each, (Var, Constant)):
                tensors.append(each)
    return tensors
