"""AlterOpImpl: loop functions of named operators give way to others, which may want other layouts.

    lv = R.call_tir(cls.add, (x, y), R.Tensor((16,)))  # T.func_attr({"operator_name": "relax.add"})

becomes, with ``{"relax.add": add_blocked}`` and ``lambda i: (i // 4, i % 4)`` for each buffer,

    lv = R.layout_transform(x, index_map=lambda i: (i // 4, i % 4))
    lv1 = R.layout_transform(y, index_map=lambda i: (i // 4, i % 4))
    lv2 = R.call_tir(cls.relax_add_replacement, (lv, lv1), R.Tensor((4, 4)))
    lv = R.layout_transform(lv2, index_map=lambda a, b: (a * 4 + b,))

Where a layout has places to which no element goes, they hold 0 in inputs; of a result they are cut
off by a loop function `remove_pad`. `OptimizeLayoutTransform` removes what cancels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...base import (
    DataType,
    NameSupply,
    PassError,
    StructInfoError,
    add_note,
    decided,
    declined,
    in_function,
)
from ...ir import GlobalVar, IRModule, PassContext, structural_equal
from ...ir import Var as TirVar
from ...ir.transform import module_pass
from ...te import compute, create_prim_func, placeholder
from ...tir import IndexMap, PrimFunc
from .. import op as R
from ..derive import where
from ..expr import Binding, Call, Function, Tuple, TupleGetItem, VarBinding
from ..kernel_call import check_kernel_call
from ..known_ops import CALL_TIR, is_op
from ..rewriter import BindingRewriter
from ..struct_info import Expr, StructInfo, TensorStructInfo, TupleStructInfo

OPERATOR_NAME = "operator_name"
"""The attribute of a loop function that says which operator it computes."""
REMOVE_PAD = "remove_pad"
"""The operator of the loop functions that give the beginning of their argument along each axis."""

_INDEX = DataType("int64")


@module_pass(opt_level=0, numerics="approximate")
def AlterOpImpl(
    mod: IRModule,
    ctx: PassContext,
    *,
    op_impl_map: Mapping[str, PrimFunc],
    op_buffer_transforms: Mapping[str, Sequence[Any]],
    op_buffer_axis_separators: Mapping[str, Any] | None = None,
    op_buffer_input_axis_separators: Mapping[str, Any] | None = None,
) -> IRModule:
    """Let `call_tir` call other loop functions in the place of those with the attribute
    ``operator_name``.

    op_impl_map           operator name -> the loop function to call
    op_buffer_transforms  operator name -> for each parameter, inputs first, how the layout in the
                          graph becomes the one that the new function wants: an `IndexMap`, a
                          function of indices, what `IndexMap.from_func_with_separators` gives, or
                          None; an empty sequence: all layouts stay
    op_buffer_axis_separators, op_buffer_input_axis_separators
                          operator name -> for each parameter the attributes `axis_separators` and
                          `input_axis_separators` of its `layout_transform`

    What a new function computes is its author's to answer for. Raises PassError for one that does
    not fit the calls, and for a map that is not shown to keep elements apart.
    """
    for name, fn in op_impl_map.items():
        if not isinstance(fn, PrimFunc):
            raise PassError(
                f"AlterOpImpl: op_impl_map[{name!r}] is a PrimFunc, got {type(fn).__name__}"
            )
    separators = op_buffer_axis_separators or {}, op_buffer_input_axis_separators or {}
    kinds = {
        name: _Replacement(name, fn, op_buffer_transforms.get(name) or (), separators)
        for name, fn in op_impl_map.items()
    }
    rewriter = _Callers(mod, kinds)
    for gv, caller in mod.items():
        if isinstance(caller, Function):
            with in_function(gv):
                rewriter.result[gv] = rewriter.rewrite(caller)
    return rewriter.result if rewriter.used else mod


class _Replacement:
    """What stands for an operator. `maps` are by parameter; None: the layout stays."""

    def __init__(self, name: str, fn: PrimFunc, transforms: Sequence[Any], separators: Any) -> None:
        self.name = name
        self.fn = fn.without_attr("global_symbol").with_attr(OPERATOR_NAME, name)
        count = len(fn.params)
        if transforms and len(transforms) != count:
            raise PassError(
                f"AlterOpImpl: op_buffer_transforms[{name!r}] has {len(transforms)} maps for the "
                f"{count} parameters of its function; give one for each, or none"
            )
        self.maps = [_index_map(each, name) for each in transforms] or [None] * count
        self.separators: list[dict[str, Any]] = [{} for _ in range(count)]
        for key, of in zip(("axis_separators", "input_axis_separators"), separators):
            own = of.get(name) or ()
            if own and len(own) != count:
                raise PassError(
                    f"AlterOpImpl: {key} of {name!r}: wanted one sequence for each of {count} "
                    f"parameters, got {len(own)}"
                )
            for known, each in zip(self.separators, own):
                if each is not None and len(each):
                    known[key] = tuple(int(k) for k in each)


def _index_map(transform: Any, name: str) -> IndexMap | None:
    if isinstance(transform, tuple) and transform:
        transform = transform[0]
    if isinstance(transform, IndexMap):
        return transform.widened(_INDEX)
    if transform is None:
        return None
    if not callable(transform):
        raise PassError(
            f"AlterOpImpl: op_buffer_transforms[{name!r}] holds IndexMaps, functions of indices "
            f"and None, got {type(transform).__name__}"
        )
    return IndexMap.from_func_with_separators(transform, index_dtype="int64")[0]


class _Callers(BindingRewriter):
    def __init__(self, mod: IRModule, kinds: Mapping[str, _Replacement]) -> None:
        self.mod, self.kinds = mod, kinds
        self.result = mod.clone()
        self.names = NameSupply(lambda: [gv.name_hint for gv in mod], "_")
        self.used: dict[str, GlobalVar] = {}
        self.cut: dict[tuple[int, str], GlobalVar] = {}

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        call = b.value
        if not isinstance(call, Call) or not is_op(call, CALL_TIR):
            return None
        callee, inputs = call.args[:2]
        fn = self.mod.get(callee) if isinstance(callee, GlobalVar) else None
        if not isinstance(fn, PrimFunc) or not isinstance(inputs, Tuple):
            return None
        kind = self.kinds.get(str(fn.get_attr(OPERATOR_NAME)))
        if kind is None or structural_equal(fn.without_attr("global_symbol"), kind.fn):
            return None
        try:
            return self.replaced(b, call, fn, kind)
        except Exception as error:
            call_site = f"AlterOpImpl: {kind.name}, called at {b.var.name_hint}"
            if isinstance(error, StructInfoError):
                error = PassError(
                    f"{call_site}: its new function or op_buffer_transforms do not fit (sizes that "
                    f"a layout does not divide grow to the next multiple): {error}"
                ).with_traceback(error.__traceback__)
            add_note(error, f"{call_site}{where(b.span)}")
            raise error

    def replaced(
        self, b: Binding, call: Call, fn: PrimFunc, kind: _Replacement
    ) -> Sequence[Binding] | None:
        """The bindings that stand for `b`, a call of `fn`."""
        if len(fn.params) != len(kind.fn.params):
            raise PassError(
                f"the new function has {len(kind.fn.params)} parameters, the old one "
                f"{len(fn.params)}"
            )
        inputs: Any = call.args[1]
        info = call.sinfo_args[0]
        results = info.fields if isinstance(info, TupleStructInfo) else (info,)
        first = len(inputs.fields)
        infos = [*(v.struct_info for v in inputs.fields), *results]
        for each, index_map in zip(infos, kind.maps):
            if index_map is None:
                continue
            dims = each.dims if isinstance(each, TensorStructInfo) else None
            if dims is None:
                declined("{} stays: a shape is not known, {}", b, str(each))
                return None
            if not index_map.is_injective(dims):
                raise PassError(
                    f"{index_map} is not shown to map different elements of {each} to different "
                    "places"
                )
        out: list[Binding] = []
        moved = [
            v if index_map is None else self.bound(_moved(v, index_map, more), "lv", out)
            for v, index_map, more in zip(inputs.fields, kind.maps, kind.separators)
        ]
        altered = [
            each if index_map is None else _mapped(each, index_map)
            for each, index_map in zip(results, kind.maps[first:])
        ]
        gv = self.replacement(kind)
        new_call = R.call_tir(
            gv, Tuple(moved), altered if isinstance(info, TupleStructInfo) else altered[0]
        )
        args = (*new_call.args[:2], *call.args[2:])
        altered_call = new_call.replace(args=args, span=call.span, struct_info=None)
        check_kernel_call(altered_call, kind.fn)
        new: Expr = altered_call
        decided("{} replaced by " + gv.name_hint, b)
        if not any(kind.maps[first:]):
            return [*out, b.replace(value=new)]
        new = self.bound(new, b.var.name_hint, out)
        undone: list[Expr] = []
        for k, each in enumerate(results):
            own = new
            if isinstance(info, TupleStructInfo):
                own = self.bound(TupleGetItem(new, k), b.var.name_hint, out)
            undone.append(self.undone(own, each, kind, first + k, out))
        if not isinstance(info, TupleStructInfo):
            return [*out, b.replace(value=undone[0])]
        fields = [self.bound(v, b.var.name_hint, out) for v in undone]
        return [*out, b.replace(value=Tuple(fields))]

    def undone(
        self, value: Expr, info: Any, kind: _Replacement, which: int, out: list[Binding]
    ) -> Expr:
        """`value` in the layout of the graph, `info`."""
        index_map = kind.maps[which]
        if index_map is None:
            return value
        back = index_map.left_inverse(info.dims)
        shape = index_map.map_shape(info.dims)
        if not back.is_bijective(shape):
            raise PassError(
                f"{index_map} leaves places of {info} unused that lie between others; only what "
                "lies behind them can be cut off"
            )
        plain = _moved(value, back, kind.separators[which])
        if index_map.is_bijective(info.dims):
            return plain
        args = (self.remove_pad(info), Tuple([self.bound(plain, "lv", out)]))
        return Call(CALL_TIR, args, None, (info,), None)

    def bound(self, value: Expr, name: str, out: list[Binding]) -> Expr:
        """A variable of `value`, bound in `out`; what is one already, as it is."""
        if not isinstance(value, (Call, Tuple, TupleGetItem)):
            return value
        var = self.local(name, value.struct_info)
        out.append(VarBinding(var, value))
        return var

    def replacement(self, kind: _Replacement) -> GlobalVar:
        """The function of the module that stands for an operator."""
        if kind.name not in self.used:
            gv = GlobalVar(self.names.fresh(re.sub(r"\W", "_", f"{kind.name}_replacement")))
            self.result[gv] = kind.fn
            self.used[kind.name] = gv
        return self.used[kind.name]

    def remove_pad(self, info: Any) -> GlobalVar:
        """The function of the module that cuts off what lies behind the sizes of its result."""
        key = info.ndim, str(info.dtype)
        if key not in self.cut:
            have, want = (
                [TirVar(f"{letter}{k}", "int64") for k in range(info.ndim)] for letter in "pi"
            )
            x = placeholder(have, info.dtype, "input")
            fn = create_prim_func([x, compute(want, lambda *i: x(*i), "output")])
            gv = self.cut[key] = GlobalVar(self.names.fresh(REMOVE_PAD))
            fn = fn.without_attr("global_symbol").with_attr(OPERATOR_NAME, REMOVE_PAD)
            self.result[gv] = fn
        return self.cut[key]


def _moved(value: Expr, index_map: IndexMap, separators: Mapping[str, Any]) -> Expr:
    """`value` in the layout that `index_map` gives; 0 where no element goes."""
    info: Any = value.struct_info
    pad = None if index_map.is_bijective(info.dims) else 0
    return R.layout_transform(value, index_map, pad_value=pad, **separators)


def _mapped(info: StructInfo, index_map: IndexMap) -> TensorStructInfo:
    assert isinstance(info, TensorStructInfo)
    assert info.dims is not None
    return TensorStructInfo(index_map.map_shape(info.dims), info.dtype, info.vdevice)
