"""HoistRowProducts: products of the rows that a recursion takes one by one become one product.

    before:  def main(xs, h): last = cls.steps(0, xs, h); return last
             def steps(i, xs, h):
                 if i < n:
                     row = R.strided_slice(xs, (0,), (i,), (i + 1,))
                     gv = R.matmul(row, w)
                     lv = R.add(gv, b)
                     new = R.tanh(R.add(lv, R.matmul(h, u)))
                     last = cls.steps(i + 1, xs, new)
                 ...
    after:   def main(xs, h):
                 lv = R.add(R.matmul(xs, w), b)
                 last = cls.steps(0, xs, h, lv); return last
             def steps(i, xs, h, rows):
                 if i < n:
                     lv = R.strided_slice(rows, (0,), (i,), (i + 1,))
                     ...

So a recurrent network reads the weights of its inputs once for all steps: as much as the weights of
its state, which would have to share a cache with them. It keeps a result for each row. Done where
the recursion takes every row, from the first to the last; weights are constants, or parameters that
are handed on as they are and that nothing may write into.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from ...base import NamedTuple, decided, declined, in_function
from ...ir import GT, LT, IntImm, IRModule, Op, PassContext, is_const, walk
from ...ir.transform import module_pass
from ..analysis.written import maybe_written_vars
from ..derive import bind_symbols, is_base_of, prove_dims, substitute_struct_info, tensor_dims
from ..expr import (
    Binding,
    Call,
    Constant,
    Function,
    If,
    PrimValue,
    SeqExpr,
    Tuple,
    Var,
    VarBinding,
)
from ..normal_form import names_in
from ..op.names import ops
from ..rewriter import Dropper
from ..struct_info import Expr, PrimStructInfo, TensorStructInfo
from .private_functions import Site, function_of, private_calls
from .signature import replace_functions

_SLICE, _PRODUCT = Op.get("relax.strided_slice"), Op.get("relax.matmul")
_MOVES = tuple(Op.get(f"relax.{name}") for name in ("reshape", "squeeze", "expand_dims"))
_WITH_KNOWN = tuple(Op.get(f"relax.{name}") for name in ("add", "subtract", "multiply"))
_MOST_COLUMNS = 1 << 14
"""Of results that are kept for all rows: more than gates have, less than a vocabulary."""
_LEAST_INNER = 32
"""Of rows of fewer numbers the product is as fast as reading what was kept: 1.3 to 3 times slower
with the pass for 1 to 16, 0.76 for 32 (1024 columns)."""


@module_pass(opt_level=2, numerics="reassociates")
def HoistRowProducts(mod: IRModule, ctx: PassContext) -> IRModule:
    """Multiply all rows by weights before a recursion that multiplies one in each step."""
    changes: dict[str, dict[int, Any]] = {}
    params: dict[str, tuple[Var, ...]] = {}
    calls = private_calls(mod)
    for name, sites in calls.items():
        steps = _steps(mod, name, [s for s in sites if s.caller == name])
        outside = [s for s in sites if s.caller != name]
        if steps is None or not outside or not all(_begins(steps, s) for s in outside):
            continue
        chains = _chains(steps)
        if not chains:
            continue
        names = names_in(steps.fn)
        added = [Var(names.fresh("rows"), _all_rows(c, v)) for v, c in chains.items()]
        params[name] = (*steps.fn.params, *added)
        mine = changes.setdefault(name, {})
        for (var, chain), rows in zip(chains.items(), added):
            with in_function(name):
                decided("{} computed of all rows at once, before the recursion", chain.calls[-1])
            mine[id(var)] = _row_of(steps, rows, var)
        mine[id(steps.own.binding.var)] = _with_args(steps.own, added)
        for site in outside:
            before: list[Binding] = []
            args = [_hoisted(steps, site, chain, before) for chain in chains.values()]
            after = [*before, _with_args(site, args)]
            changes.setdefault(site.caller, {})[id(site.binding.var)] = after
    changed = {}
    for gv, fn in mod.items():
        if isinstance(fn, Function) and gv.name_hint in changes:
            hoisted = Dropper(changes[gv.name_hint]).rewrite(fn)
            changed[gv] = hoisted.replace(params=params.get(gv.name_hint, hoisted.params))
    return replace_functions(mod, changed)


class _Steps(NamedTuple):
    """A recursion that takes the rows of parameters from the first to the last.

    own     its call of itself
    body    the branch that takes a row
    step    which parameter counts, as the symbol `i`
    rows    the parameters with the rows
    handed  the parameters that all steps share, and find as they were
    """

    fn: Function
    own: Site
    body: SeqExpr
    step: int
    i: Any
    rows: tuple[Var, ...]
    handed: frozenset[Var]


class _Chain(NamedTuple):
    """What is computed of a row of `rows`; calls that only change its shape are left out."""

    rows: Var
    calls: tuple[Call, ...]


def _steps(mod: IRModule, name: str, own: Sequence[Site]) -> _Steps | None:
    fn = function_of(mod, name)
    if len(own) != 1 or not isinstance(fn.body, SeqExpr):
        return None
    args = own[0].call.args
    written = maybe_written_vars(fn, mod)
    handed = frozenset(p for p, a in zip(fn.params, args) if a is p and p not in written)
    for b in (b for block in fn.body.blocks for b in block.bindings):
        value = b.value
        if not (isinstance(value, If) and isinstance(value.cond, PrimValue)):
            continue
        body, less = value.true_branch, value.cond.value
        if not isinstance(body, SeqExpr) or not isinstance(less, (LT, GT)):
            continue
        i, n = (less.a, less.b) if isinstance(less, LT) else (less.b, less.a)
        step = next((k for k, p in enumerate(fn.params) if _is_scalar(p.struct_info, i)), None)
        rows = tuple(p for p in fn.params if p in handed and _has_rows(p, n))
        if step is None or not rows or own[0].binding not in _bindings(body):
            continue
        following = args[step]
        if isinstance(following, PrimValue) and prove_dims(following.value, i + 1):
            return _Steps(fn, own[0], body, step, i, rows, handed)
    return None


def _bindings(body: SeqExpr) -> list[Binding]:
    return [b for block in body.blocks for b in block.bindings]


def _is_scalar(info: Any, symbol: Any) -> bool:
    return isinstance(info, PrimStructInfo) and info.value is symbol


def _has_rows(p: Var, count: Any) -> bool:
    dims = tensor_dims(p)
    static = dims is not None and len(dims) > 1 and all(isinstance(d, IntImm) for d in dims[1:])
    return static and dims is not None and bool(prove_dims(dims[0], count))


def _begins(steps: _Steps, site: Site) -> bool:
    """Whether a call from outside takes the first row first, of rows that fit."""
    first = site.call.args[steps.step]
    infos = [(p.struct_info, a.struct_info) for p, a in zip(steps.fn.params, site.call.args)]
    sizes = bind_symbols(infos)
    fits = (is_base_of(substitute_struct_info(p, sizes), a) for p, a in infos)
    return isinstance(first, PrimValue) and is_const(first.value, 0) and all(fits)


# -- what a step computes of its row --------------------------------------------------------------


def _chains(steps: _Steps) -> dict[Var, _Chain]:
    """What is computed of a row alone, with a product, and read by something else."""
    slices: dict[Any, Var] = {}
    chains: dict[Any, _Chain] = {}
    read: set[Any] = set(walk(steps.body.body))
    for b in _bindings(steps.body):
        call = b.value
        dims = tensor_dims(b.var) if isinstance(b, VarBinding) else None
        if isinstance(call, Call) and dims is not None and call.args:
            rows = _sliced(steps, call) or (slices.get(call.args[0]) if call.op in _MOVES else None)
            if rows is not None:
                slices[b.var] = rows
                if _is_row(dims):
                    chains[b.var] = _Chain(rows, ())
                continue
            if _is_row(dims) and (chain := _longer(steps, chains, call)) is not None:
                chains[b.var] = chain
                continue
        read.update(n for n in walk(b.value) if isinstance(n, Var))
    products = {v: c for v, c in chains.items() if any(x.op is _PRODUCT for x in c.calls)}
    return {v: c for v, c in products.items() if v in read and _pays(v, c)}


def _longer(steps: _Steps, chains: dict[Any, _Chain], call: Call) -> _Chain | None:
    """The chain that `call` ends; None if it is of anything but a row and what is known before."""
    of = [a for a in call.args if a in chains]
    if len(of) != 1:
        return None
    chain = chains[of[0]]
    if call.op in _MOVES:
        return chain
    others = [a for a in call.args if a is not of[0]]
    if len(others) != 1 or not (isinstance(others[0], Constant) or others[0] in steps.handed):
        return None
    dims = tensor_dims(others[0])
    if dims is None or len(dims) > 2 or not all(isinstance(d, IntImm) for d in dims):
        return None
    if call.op is _PRODUCT:
        fits = len(dims) == 2 and call.args[0] is of[0]
    else:
        row = tensor_dims(of[0])
        last = row is not None and (not dims or is_const(dims[-1], 1) or dims[-1] is row[-1])
        fits = call.op in _WITH_KNOWN and last and all(is_const(d, 1) for d in dims[:-1])
    return chain._replace(calls=(*chain.calls, call)) if fits else None


def _sliced(steps: _Steps, call: Call) -> Var | None:
    """The parameter of which `call` takes the row of this step."""
    rows = call.args[0]
    if call.op is not _SLICE or not isinstance(rows, Var) or rows not in steps.rows:
        return None
    places = [a.fields for a in call.args[1:] if isinstance(a, Tuple)]
    values = [f.value for fields in places for f in fields if isinstance(f, PrimValue)]
    if len(values) != 3 or not is_const(values[0], 0) or values[1] is not steps.i:
        return None
    return rows if prove_dims(values[2], steps.i + 1) else None


def _is_row(dims: Sequence[Any]) -> bool:
    """Whether all but the last of some dimensions are 1, and that is known."""
    return bool(dims) and all(is_const(d, 1) for d in dims[:-1]) and isinstance(dims[-1], IntImm)


def _pays(row: Var, chain: _Chain) -> bool:
    columns = (tensor_dims(row) or ())[-1].value
    weights = next(c.args[1] for c in chain.calls if c.op is _PRODUCT)
    inner = (tensor_dims(weights) or ())[0].value
    if columns > _MOST_COLUMNS:
        declined("{} computed row by row: {} columns are much for all rows", row, columns)
    elif inner < _LEAST_INNER:
        declined("{} computed row by row: a row of {} numbers is quick", row, inner)
    return bool(columns <= _MOST_COLUMNS and inner >= _LEAST_INNER)


# -- the new calls --------------------------------------------------------------------------------


def _all_rows(chain: _Chain, row: Var) -> TensorStructInfo:
    """What all rows are together of which one is `row`."""
    rows, one = (cast(TensorStructInfo, v.struct_info) for v in (chain.rows, row))
    assert rows.dims is not None
    assert one.dims is not None
    return TensorStructInfo((rows.dims[0], one.dims[-1]), one.dtype)


def _row_of(steps: _Steps, rows: Var, var: Var) -> list[Binding]:
    """The row of this step, of what was computed of all rows, as `var`."""
    place = [Tuple((PrimValue(e),)) for e in (0, steps.i, steps.i + 1)]
    call = Call(_SLICE, (rows, *place), {"assume_inbound": True})
    dims = tensor_dims(var)
    if len(dims or ()) == 2:
        return [VarBinding(var, call)]
    row = type(var)(f"{var.name_hint}_row", call.struct_info)
    return [VarBinding(row, call), VarBinding(var, ops.reshape(row, dims))]


def _hoisted(steps: _Steps, site: Site, chain: _Chain, out: list[Binding]) -> Expr:
    """The calls of a chain, of all rows that a call from outside gives; bound in `out`."""
    kind = type(site.binding.var)
    arguments: dict[Any, Expr] = dict(zip(steps.fn.params, site.call.args))
    rows = arguments[chain.rows]
    dims = tensor_dims(rows)
    assert dims is not None

    def emit(call: Expr, name: str) -> Var:
        var = kind(name, call.struct_info)
        out.append(VarBinding(var, call))
        return var

    value: Expr = rows
    if len(dims) != 2:
        value = emit(ops.reshape(rows, (dims[0], math.prod(d.value for d in dims[1:]))), "rows")
    for call in chain.calls:
        # All but the row is a constant or a parameter.
        args = [a if type(a) is Constant else arguments.get(a, value) for a in call.args]
        value = emit(Call(call.op, args, call.attrs, span=call.span), "rows")
    return value


def _with_args(site: Site, more: Sequence[Expr]) -> Binding:
    return site.binding.replace(value=site.call.replace(args=(*site.call.args, *more)))
