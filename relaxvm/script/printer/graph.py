"""Expressions of the graph language. Handlers take (printer, expression, unused, unused).

What cannot stand inside an expression of script text (an `If`, a function, bindings) is shown in
angle brackets there: that happens only for IR that is not in normal form.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir import GlobalVar, Op
from ...relax import (
    Call,
    Constant,
    DataTypeImm,
    ExternFunc,
    FuncStructInfo,
    Function,
    If,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from ...te import CommReducer
from ...tir import IndexMap
from .core import ATTR, DIM, FREE, Piece, Printer, comma, parens, prints
from .literal import attr_value, python_float, quote
from .names import identifier
from .scalar import ATOM
from .struct_info import dims

# Constants of up to this many elements stand in the text.
_INLINE_ELEMENTS = 16


@prints(Var)
def _var(p: Printer, n: Var, _: int, __: int) -> list[Piece]:
    return [p.names.get(n) or p.names.define(n, n.name_hint, outermost=True)]


@prints(GlobalVar)
def _global_var(p: Printer, n: GlobalVar, _: int, __: int) -> list[Piece]:
    if n.name_hint == p.itself:
        return [identifier(n.name_hint)]
    return [f"{p.options.module_alias}.{p.function_text(n.name_hint)}"]


@prints(Op)
def _op(p: Printer, n: Op, _: int, __: int) -> list[Piece]:
    room, rest = n.name.partition(".")[::2]
    if room == "relax" and rest:
        return [f"{p.R}.{rest}"]
    return [f"{p.T}.{rest}" if room == "tir" and rest else n.name]


@prints(ExternFunc)
def _extern(p: Printer, n: ExternFunc, _: int, __: int) -> list[Piece]:
    if n.struct_info == FuncStructInfo.opaque_func():
        return [f"{p.R}.ExternFunc({quote(n.global_symbol)})"]
    return [f"{p.R}.ExternFunc({quote(n.global_symbol)}, ", (n.struct_info, 0, 0), ")"]


@prints(PrimValue)
def _prim_value(p: Printer, n: PrimValue, _: int, __: int) -> list[Piece]:
    return [f"{p.R}.prim_value(", (n.value, 0, DIM), ")"]


@prints(StringImm)
def _string(p: Printer, n: StringImm, _: int, __: int) -> list[Piece]:
    return [f"{p.R}.str({quote(n.value)})"]


@prints(DataTypeImm)
def _dtype(p: Printer, n: DataTypeImm, _: int, __: int) -> list[Piece]:
    return [f"{p.R}.dtype({quote(n.value)})"]


@prints(ShapeExpr)
def _shape(p: Printer, n: ShapeExpr, _: int, __: int) -> list[Piece]:
    return [f"{p.R}.shape([", *comma(dims(p, n.values)), "])"]


@prints(Tuple)
def _tuple(p: Printer, n: Tuple, _: int, __: int) -> list[Piece]:
    return parens([[(f, 0, 0)] for f in n.fields]) if n.fields else [f"{p.R}.tuple()"]


@prints(TupleGetItem)
def _item(p: Printer, n: TupleGetItem, _: int, __: int) -> list[Piece]:
    return [(n.tuple_value, ATOM, 0), f"[{n.index}]"]


@prints(Constant)
def _constant(p: Printer, n: Constant, _: int, __: int) -> list[Piece]:
    data = n.data
    shape = tuple(int(d) for d in data.shape)
    usual = n.struct_info is TensorStructInfo(ShapeExpr(shape), data.dtype)
    if usual and data.size <= _INLINE_ELEMENTS and (data.size or shape == (0,)):
        return [f"{p.R}.const({_nested(data.tolist(), data.dtype)}, {quote(data.dtype)})"]
    index = p.metadata_index.setdefault(id(n), len(p.metadata))
    if index == len(p.metadata):
        p.metadata.append(n)
    return [f'metadata["relax.expr.Constant"][{index}]']


def _nested(value: Any, dtype: Any) -> str:
    # As deep as the array has axes.
    if isinstance(value, list):
        return f"[{', '.join(_nested(v, dtype) for v in value)}]"
    return python_float(value, dtype) if isinstance(value, float) else repr(value)


# -- calls ----------------------------------------------------------------------------------------


@prints(Call)
def _call(p: Printer, n: Call, _: int, __: int) -> list[Piece]:
    if isinstance(n.op, ExternFunc):
        return _packed(p, "call_packed", n.op, n.args, n)
    if isinstance(n.op, Op):
        special = _SPECIAL.get(n.op.name)
        shown = special(p, n) if special is not None else None
        if shown is not None:
            return shown
    groups = [[(a, 0, 0)] for a in n.args]
    return [(n.op, ATOM, FREE), "(", *comma([*groups, *_keywords(p, n)]), ")"]


def _keywords(p: Printer, n: Call) -> list[list[Piece]]:
    groups = [[f"{name}=", *attr_value(p, value)] for name, value in n.attrs.items()]
    if n.sinfo_args:
        groups.append(["sinfo_args=", *_infos(n.sinfo_args)])
    return groups


def _infos(infos: Iterable[StructInfo]) -> list[Piece]:
    return parens([[(i, 0, 0)] for i in infos])


def _callee(n: Any) -> list[Piece]:
    """A callee: packed functions by their bare name."""
    return [quote(n.global_symbol)] if isinstance(n, ExternFunc) else [(n, ATOM, FREE)]


def _packed(p: Printer, name: str, callee: Any, args: Iterable[Any], n: Call) -> list[Piece]:
    groups = [_callee(callee), *([(a, 0, 0)] for a in args), *_keywords(p, n)]
    return [f"{p.R}.{name}(", *comma(groups), ")"]


def _out_sinfo(info: StructInfo) -> list[Piece]:
    if isinstance(info, TupleStructInfo) and len(info.fields) > 1:
        return ["[", *comma([(f, 0, 0)] for f in info.fields), "]"]
    return [(info, 0, 0)]


def _call_out(p: Printer, n: Call) -> list[Piece] | None:
    """``R.call_tir(cls.f, (x, y), out_sinfo=R.Tensor(...))`` and its kin."""
    if len(n.args) not in (2, 3) or len(n.sinfo_args) != 1:
        return None
    assert isinstance(n.op, Op)
    short = n.op.name.removeprefix("relax.")
    groups = [_callee(n.args[0]), [(n.args[1], 0, 0)]]
    groups += [[f"{key}=", *attr_value(p, value)] for key, value in n.attrs.items()]
    groups.append(["out_sinfo=", *_out_sinfo(n.sinfo_args[0])])
    if len(n.args) == 3:
        groups.append(["tir_vars=", (n.args[2], 0, 0)])
    return [f"{p.R}.{short}(", *comma(groups), ")"]


def _call_callee_first(p: Printer, n: Call) -> list[Piece] | None:
    if not n.args:
        return None
    assert isinstance(n.op, Op)
    short = n.op.name.removeprefix("relax.")
    return _packed(p, short, n.args[0], n.args[1:], n)


def _print(p: Printer, n: Call) -> list[Piece] | None:
    if not n.args or n.attrs or not isinstance(n.args[0], StringImm):
        return None
    values = [[(a, 0, 0)] for a in n.args[1:]]
    return [f"{p.R}.print(", *comma([*values, [f"format={quote(n.args[0].value)}"]]), ")"]


def _assert_op(p: Printer, n: Call) -> list[Piece] | None:
    if len(n.args) < 2 or n.attrs or not isinstance(n.args[1], StringImm):
        return None
    groups: list[list[Piece]] = [[(n.args[0], 0, 0)]]
    if len(n.args) > 2:
        groups.append(["[", *comma([(a, 0, 0)] for a in n.args[2:]), "]"])
    return [f"{p.R}.assert_op(", *comma([*groups, [f"format={quote(n.args[1].value)}"]]), ")"]


_SPECIAL: dict[str, Any] = {
    "relax.call_tir": _call_out,
    "relax.call_tir_inplace": _call_out,
    "relax.call_tir_with_grad": _call_out,
    "relax.call_dps_packed": _call_out,
    "relax.call_pure_packed": _call_callee_first,
    "relax.call_inplace_packed": _call_callee_first,
    "relax.call_builtin_with_ctx": _call_callee_first,
    "relax.print": _print,
    "relax.assert_op": _assert_op,
}
_DECLARED = {
    "relax.call_tir",
    "relax.call_tir_inplace",
    "relax.call_tir_with_grad",
    "relax.call_dps_packed",
}


def has_declared_result(n: Any, info: StructInfo) -> bool:
    """Whether a bound value says its struct info itself: the variable needs no annotation."""
    return (
        isinstance(n, Call)
        and isinstance(n.op, Op)
        and n.op.name in _DECLARED
        and len(n.sinfo_args) == 1
        and n.sinfo_args[0] is info
    )


# -- not in normal form ---------------------------------------------------------------------------


@prints(If)
def _if(p: Printer, n: If, _: int, __: int) -> list[Piece]:
    return [
        "<if ",
        (n.cond, 0, 0),
        ": ",
        (n.true_branch, 0, 0),
        " else: ",
        (n.false_branch, 0, 0),
        ">",
    ]


@prints(SeqExpr)
def _seq(p: Printer, n: SeqExpr, _: int, __: int) -> list[Piece]:
    count = sum(len(b.bindings) for b in n.blocks)
    if not count:
        return [(n.body, 0, 0)]
    return [f"<{count} binding{'s' * (count > 1)}, then ", (n.body, 0, 0), ">"]


@prints(Function)
def _function(p: Printer, n: Function, _: int, __: int) -> list[Piece]:
    return [f"<function of {len(n.params)} parameter{'s' * (len(n.params) != 1)}>"]


@prints(IndexMap)
def _index_map(p: Printer, n: IndexMap, first: int, second: int) -> list[Piece]:
    if second != ATTR:
        return [quote(n.text())]
    dtypes = {v.dtype for v in n.initial_indices}
    other = [f", index_dtype={quote(d)}" for d in dtypes if d != "int64"]
    if n.inverse_index_map is not None:
        other.insert(0, f", inverse_index_map={n.inverse_index_map.text()}")
    return [f"{p.T}.index_map({n.text()}", *other, ")"]


@prints(CommReducer)
def _reducer(p: Printer, n: CommReducer, first: int, second: int) -> list[Piece]:
    p.names.push()
    names = ", ".join(p.names.define(v, v.name) for v in (*n.lhs, *n.rhs))
    result = (
        parens([[(e, 0, FREE)] for e in n.result])
        if len(n.result) > 1
        else [(n.result[0], 0, FREE)]
    )
    starts = comma([(e, 0, ATTR)] for e in n.identity_element)
    return [f"{p.T}.comm_reducer(lambda {names}: ", *result, p.names.pop, ", [", *starts, "])"]
