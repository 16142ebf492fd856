"""LazyGetInput, LazySetOutput: a function asks for each weight when it needs it, and hands over
each result when it has it, so that they need not all be in memory at once.

    before:  def main(A, B): C = R.multiply(A, A); D = R.add(C, B); return (D, C)
    get:     def main(fget_param):
                 a = fget_param(0, "A"); A = R.match_cast(a, ...); C = R.multiply(A, A)
                 b = fget_param(1, "B"); B = R.match_cast(b, ...); D = R.add(C, B); return (D, C)
    set:     def main(A, B, fset_output):
                 C = R.multiply(A, A); fset_output(1, C); D = R.add(C, B); fset_output(0, D)
                 return ()

Functions that others of the module call, and private ones, stay as they are. The attribute
"num_input" says how many of the first parameters are no weights; the callback comes after them and
is counted among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...base import VerifyError
from ...ir import IntImm, IRModule, Node, PassContext, walk
from ...ir import Var as TirVar
from ...ir.analysis import collect_call_map
from ...ir.transform import module_pass
from ..derive import definable_tir_vars_in_struct_info
from ..expr import (
    Binding,
    BindingBlock,
    Function,
    MatchCast,
    PrimValue,
    SeqExpr,
    StringImm,
    Tuple,
    Var,
    VarBinding,
)
from ..normal_form import join_plain_blocks
from ..struct_info import (
    Expr,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    TupleStructInfo,
)
from .signature import replace_functions
from .to_non_dataflow import ToNonDataflow

_INDEX = PrimStructInfo("int64")
_GET = FuncStructInfo((_INDEX, ObjectStructInfo()), ObjectStructInfo())
_SET = FuncStructInfo((_INDEX, ObjectStructInfo()), TupleStructInfo(()), False)


@module_pass(opt_level=0)
def LazyGetInput(mod: IRModule, ctx: PassContext) -> IRModule:
    """Replace weights by a callback `fget_param(index, name)`, called just before the first use."""
    return each_entry(mod, _getting)


@module_pass(opt_level=0)
def LazySetOutput(mod: IRModule, ctx: PassContext) -> IRModule:
    """Hand each field of the result to a callback `fset_output(index, value)` once it is there."""
    return each_entry(ToNonDataflow.run(mod, ctx), _setting)


def each_entry(mod: IRModule, make: Callable[[Function, int | None], Function]) -> IRModule:
    """`mod` with `make(fn, num_input(fn))` for each public function that no other one calls."""
    called = {gv for mentioned in collect_call_map(mod).values() for gv in mentioned}
    changed = {}
    for gv, fn in mod.items():
        if isinstance(fn, Function) and gv not in called and fn.get_attr("global_symbol"):
            changed[gv] = make(fn, num_input(fn, gv.name_hint))
    return replace_functions(mod, changed)


def num_input(fn: Function, name: str) -> int | None:
    """How many of the first parameters of `fn`, called `name`, are no weights, if it says so."""
    number = fn.get_attr("num_input")
    number = number.value if isinstance(number, IntImm) else number
    if number is not None and not (isinstance(number, int) and 0 <= number <= len(fn.params)):
        raise VerifyError(
            f'{name}: the attribute "num_input" is a number of parameters, up to {len(fn.params)}, '
            f"got {number!r}"
        )
    return number


def _getting(fn: Function, num_input: int | None) -> Function:
    inputs, weights = fn.params[: num_input or 0], fn.params[num_input or 0 :]
    callback = Var("fget_param", _GET)
    body = fetching(
        fn.body,
        inputs,
        weights,
        lambda k: callback(PrimValue(IntImm("int64", k)), StringImm(weights[k].name_hint)),
    )
    attrs = fn.attrs.with_({"num_input": len(inputs) + 1})
    return Function((*inputs, callback), body, None, fn.is_pure, attrs, fn.span)


def fetching(
    seq: SeqExpr, inputs: Sequence[Var], weights: Sequence[Var], fetch: Callable[[int], Expr]
) -> SeqExpr:
    """`seq`, which reads `weights`, with the k-th bound to what `fetch(k)` gives just before it is
    used first. What `inputs` bind is there.
    """
    # A symbol that only a weight's shape says is a use of that weight.
    bound = {v for p in inputs for v in definable_tir_vars_in_struct_info(p.struct_info)}
    source: dict[Node, int] = {}
    for k, p in enumerate(weights):
        source[p] = k
        for symbol in definable_tir_vars_in_struct_info(p.struct_info):
            if symbol not in bound:
                source.setdefault(symbol, k)
    waiting = set(range(len(weights)))

    def fetched(n: Node) -> list[Binding]:
        """What must stand before `n`."""
        needed: set[int] = set()
        todo = [n]
        for root in todo:  # grows while it is read
            for each in walk(root):
                k = source.get(each) if isinstance(each, (Var, TirVar)) else None
                if k in waiting:
                    waiting.discard(k)
                    needed.add(k)
                    todo.append(weights[k].struct_info)
        out: list[Binding] = []
        for k in sorted(needed):
            p = weights[k]
            untyped = Var(p.name_hint, ObjectStructInfo())
            out.append(VarBinding(untyped, fetch(k)))
            out.append(MatchCast(p, untyped, p.struct_info))
        return out

    blocks = [
        block.replace(bindings=[each for b in block.bindings for each in (*fetched(b), b)])
        for block in seq.blocks
    ]
    last = fetched(seq.body)
    return SeqExpr([*blocks, *([BindingBlock(last)] if last else [])], seq.body)


def _setting(fn: Function, num_input: int | None) -> Function:
    callback = Var("fset_output", _SET)
    body = handing(fn, lambda k, value: callback(PrimValue(IntImm("int64", k)), value))
    place = len(fn.params) if num_input is None else num_input
    attrs = fn.attrs if num_input is None else fn.attrs.with_({"num_input": num_input + 1})
    params = (*fn.params[:place], callback, *fn.params[place:])
    return Function(params, body, None, False, attrs, fn.span)


def handing(fn: Function, hand: Callable[[int, Expr], Expr]) -> SeqExpr:
    """The body of `fn` with ``hand(k, field)`` for the k-th field of the result as soon as it is
    there, and the empty tuple as result.
    """
    value_of = {b.var: b.value for block in fn.body.blocks for b in block.bindings}
    result = fn.body.body
    while isinstance(result, Var) and isinstance(value_of.get(result), (Var, Tuple)):
        result = value_of[result]
    fields: Sequence[Expr] = result.fields if isinstance(result, Tuple) else (result,)
    places: dict[Expr, list[int]] = {}
    for k, field in enumerate(fields):
        places.setdefault(field, []).append(k)

    def handed(values: Iterable[Expr]) -> list[Binding]:
        calls = [hand(k, value) for value in values for k in places.pop(value, ())]
        return [VarBinding(Var("_", call.struct_info), call) for call in calls]

    blocks = [BindingBlock(handed(fn.params))]
    for block in fn.body.blocks:
        each = [e for b in block.bindings for e in (b, *handed([b.var]))]
        blocks.append(block.replace(bindings=each))
    blocks.append(BindingBlock(handed(list(places))))
    return SeqExpr(join_plain_blocks([b for b in blocks if b.bindings]), Tuple(()))
