"""From a tensor expression over graph values to a loop function and the arguments of its
`call_tir`.

The loop function gets symbols of its own: `n` of the graph becomes another `n`, bound by its
buffers. An integer symbol that no buffer dimension determines is passed as a scalar parameter after
the outputs (`tir_vars`), a symbol of another dtype as one among the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from ..base import NameSupply, StructInfoError
from ..ir import Let, Map, PrimExpr, substitute, walk
from ..ir import Var as TirVar
from ..te import Tensor, create_prim_func, placeholder
from ..tir import Buffer, For, IterVar, LetStmt, PrimFunc, renew
from .derive import common_vdevice, substitute_struct_info
from .expr import DataTypeImm, PrimValue, StringImm, Tuple, TupleGetItem, Var
from .struct_info import (
    Expr,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)

T = TypeVar("T")


def call_te_inputs(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    closed: bool = False,
) -> tuple[PrimFunc, list[Expr], StructInfo, list[TirVar]]:
    """The loop function of ``func(*args, **kwargs)``, and the inputs, result and `tir_vars` of its
    call.

    closed  `func` is known to use no symbols but those of its arguments

    Raises StructInfoError if an argument has no known shape and dtype, or `func` gives something
    else than tensors.
    """
    if not callable(func):
        raise StructInfoError(f"emit_te: wanted a function, got {type(func).__name__}")
    inputs: Inputs[Tensor] = Inputs("emit_te", placeholder)
    te_args = [inputs.convert(a, f"argument {i}") for i, a in enumerate(args)]
    te_kwargs = {k: inputs.convert(v, f"argument {k}") for k, v in kwargs.items()}
    name = getattr(func, "__name__", "the function")
    result = func(*te_args, **te_kwargs)
    outputs = list(result) if isinstance(result, (list, tuple)) else [result]
    for each in outputs:
        if not isinstance(each, Tensor):
            raise StructInfoError(
                f"emit_te: {name} gives a te.Tensor or a list of them, got {type(each).__name__}"
            )
    prim_func = create_prim_func([*inputs.tensors, *inputs.scalars.values(), *outputs], "int64")
    prim_func = prim_func.without_attr("global_symbol")
    if not closed:
        prim_func = _with_symbols_of_its_own(prim_func, inputs)
    unbound = _unbound(prim_func, inputs)
    if unbound:
        prim_func = prim_func.replace(params=(*prim_func.params, *unbound))
    back = {mine: theirs for theirs, mine in inputs.symbols.items()}
    vdevice = common_vdevice(e.struct_info for e in inputs.exprs)
    infos = [
        substitute_struct_info(TensorStructInfo(tuple(t.shape), t.dtype, vdevice), back)
        for t in outputs
    ]
    info = infos[0] if isinstance(result, Tensor) else TupleStructInfo(tuple(infos))
    if isinstance(result, (list, tuple)) and len(infos) == 1:
        info = infos[0]
    exprs = [*inputs.exprs, *(PrimValue(v) for v in inputs.scalars)]
    return prim_func, exprs, info, [back[v] for v in unbound]


def _with_symbols_of_its_own(func: PrimFunc, inputs: Inputs[Tensor]) -> PrimFunc:
    """`func` with symbols of its own for those of the graph that its formulas were written with."""
    used: dict[TirVar, None] = {}
    defined: set[Any] = {*func.params, *inputs.symbols.values()}
    for n in walk(func):
        if isinstance(n, TirVar):
            used[n] = None
        elif isinstance(n, (IterVar, LetStmt, Let)):
            defined.add(n.var)
        elif isinstance(n, For):
            defined.add(n.loop_var)
        elif isinstance(n, Buffer):
            defined.add(n.data)
    outside = [v for v in used if v not in defined]
    if not outside:
        return func
    place = len(inputs.tensors) + len(inputs.scalars)
    more = [inputs.own(v) for v in outside if not v.dtype.is_int and v not in inputs.scalars]
    params = (*func.params[:place], *more, *func.params[place:])
    return substitute(func.replace(params=params), {v: inputs.own(v) for v in outside})


def _unbound(prim_func: PrimFunc, inputs: Inputs[Tensor]) -> list[TirVar]:
    """The loop function's symbols that no buffer dimension is."""
    bound = {id(d) for b in prim_func.buffers for d in b.shape}
    bound.update(map(id, inputs.scalars.values()))
    mine = {id(v): v for v in inputs.symbols.values() if id(v) not in bound}
    if not mine:
        return []
    used = {id(n) for n in walk(prim_func) if isinstance(n, TirVar)}
    return [v for key, v in mine.items() if key in used]


class Inputs(Generic[T]):
    """Graph values as what a loop function is written with; symbols get copies of their own.

    who     for messages
    tensor  (dimensions, dtype, name) -> what stands for a tensor
    """

    def __init__(self, who: str, tensor: Callable[[Any, Any, str], T]) -> None:
        self.who = who
        self.tensor = tensor
        self.exprs: list[Expr] = []
        self.tensors: list[T] = []
        self.symbols: dict[TirVar, TirVar] = {}
        self.scalars: dict[TirVar, TirVar] = {}
        self._names = NameSupply(joint="_")

    def convert(self, value: Any, what: str) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)([self.convert(v, what) for v in value])
        if isinstance(value, (dict, Map)):
            return {k: self.convert(v, what) for k, v in value.items()}
        if isinstance(value, PrimExpr):
            return self.scalar(value)
        if not isinstance(value, Expr):
            return value
        if isinstance(value, (StringImm, DataTypeImm)):
            return value.value
        if isinstance(value, PrimValue):
            return self.scalar(value.value)
        if isinstance(value, ShapeExpr):
            return [self.scalar(v) for v in value.values]
        if isinstance(value, Tuple):
            return [self.convert(f, what) for f in value.fields]
        return self._by_struct_info(value, value.struct_info, what)

    def _by_struct_info(self, value: Expr, info: StructInfo, what: str) -> Any:
        if isinstance(info, TensorStructInfo):
            hint = value.name_hint if isinstance(value, Var) else "A"
            self.tensors.append(self.tensor_of(info, hint, what))
            self.exprs.append(value)
            return self.tensors[-1]
        if isinstance(info, TupleStructInfo):
            return [self.convert(TupleGetItem(value, i), what) for i in range(len(info.fields))]
        if isinstance(info, ShapeStructInfo) and info.values is not None:
            return [self.scalar(v) for v in info.values]
        if isinstance(info, PrimStructInfo) and info.value is not None:
            return self.scalar(info.value)
        raise StructInfoError(
            f"{self.who}: {what}: wanted a tensor, or a shape or scalar that is known, got {info}"
        )

    def tensor_of(self, info: StructInfo, hint: str, what: str) -> T:
        """What stands for a tensor of `info`, which is not among the inputs yet."""
        if not isinstance(info, TensorStructInfo) or info.dims is None or info.dtype == "void":
            raise StructInfoError(
                f"{self.who}: {what}: wanted a tensor of known shape and dtype, got {info}; "
                "bind its shape with match_cast first"
            )
        name = self._names.fresh(hint if hint.isidentifier() else "A")
        return self.tensor([self.scalar(d) for d in info.dims], info.dtype, name)

    def scalar(self, value: PrimExpr) -> PrimExpr:
        """`value` with the loop function's symbols."""
        symbols = {n: self.own(n) for n in walk(value) if isinstance(n, TirVar)}
        return substitute(value, symbols)

    def own(self, symbol: TirVar) -> TirVar:
        """The loop function's symbol for one of the graph."""
        mine = self.symbols.get(symbol)
        if mine is None:
            mine = self.symbols[symbol] = renew(symbol)
            if not symbol.dtype.is_int:
                self.scalars[symbol] = mine
        return mine
