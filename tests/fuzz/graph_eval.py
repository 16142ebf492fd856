"""What a module of graph functions means, computed binding by binding in numpy: no pass and no
machine takes part.
"""

from __future__ import annotations

import numpy as np

from relaxvm import relax
from relaxvm.base import to_numpy_dtype
from relaxvm.ir import IntImm, Op
from relaxvm.ir import Var as TirVar
from relaxvm.relax.op.meaning import evaluate as operator_value
from relaxvm.relax.op.meaning import from_storage
from relaxvm.tir import evaluate_expr, interpret


class CheckFailed(Exception):
    """A value is not what a parameter or a match_cast says."""


class Closure:
    """A function with the values it captured: those around it, or given to make_closure."""

    def __init__(self, fn, env=None, captured=()):
        self.fn, self.env, self.captured = fn, env, captured


class Evaluator:
    """Runs the functions of `mod`.

    functions  packed functions by name
    printed    what R.print was given, in order
    """

    def __init__(self, mod, functions=None):
        self.mod = mod
        self.functions = functions or {}
        self.printed = []

    def __call__(self, name, *args):
        return self.call(self.mod[name], args, {})

    def call(self, fn, args, outer):
        env = dict(outer)
        if len(args) != len(fn.params):
            raise CheckFailed(f"{len(args)} arguments for {len(fn.params)} parameters")
        for p in fn.params:
            for symbol in relax.analysis.definable_tir_vars_in_struct_info(p.struct_info):
                env.pop(symbol, None)
        for p, a in zip(fn.params, args):
            self.define(p.struct_info, a, env)
        for p, a in zip(fn.params, args):
            self.check(p.struct_info, a, env)
            env[p] = a
        return self.seq(fn.body, env)

    def seq(self, seq, env):
        for block in seq.blocks:
            for b in block.bindings:
                value = self.value(b.value, env, b.var)
                if isinstance(b, relax.MatchCast):
                    self.define(b.struct_info, value, env)
                    self.check(b.struct_info, value, env)
                env[b.var] = value
        return self.leaf(seq.body, env)

    # -- struct info ------------------------------------------------------------------------------

    def define(self, info, value, env):
        for dim, size in self.dims(info, value):
            if isinstance(dim, TirVar) and dim not in env:
                env[dim] = size

    def check(self, info, value, env):
        for dim, size in self.dims(info, value):
            if self.scalar(dim, env) != size:
                raise CheckFailed(f"wanted {dim}, got {size}")

    def dims(self, info, value):
        if isinstance(info, relax.TupleStructInfo):
            return [d for f, v in zip(info.fields, value) for d in self.dims(f, v)]
        if isinstance(info, relax.TensorStructInfo):
            if info.ndim not in (-1, np.ndim(value)):
                raise CheckFailed(f"wanted {info.ndim} dimensions, got {np.ndim(value)}")
            if info.dtype != "void" and to_numpy_dtype(info.dtype) != np.asarray(value).dtype:
                raise CheckFailed(f"wanted {info.dtype}, got {np.asarray(value).dtype}")
            return [] if info.dims is None else list(zip(info.dims, np.shape(value)))
        if isinstance(info, relax.ShapeStructInfo) and info.values is not None:
            return list(zip(info.values, value))
        if isinstance(info, relax.PrimStructInfo) and info.value is not None:
            return [(info.value, value)]
        return []

    def scalar(self, expr, env):
        if isinstance(expr, IntImm):
            return expr.value
        known = {k: v for k, v in env.items() if isinstance(k, TirVar)}
        return int(evaluate_expr(expr, known))

    # -- values -----------------------------------------------------------------------------------

    def leaf(self, e, env):
        if isinstance(e, relax.Var):
            return env[e]
        if isinstance(e, relax.Tuple):
            return tuple(self.leaf(f, env) for f in e.fields)
        if isinstance(e, relax.Constant):
            return from_storage(e.data.numpy(), e.data.dtype)
        if isinstance(e, relax.ShapeExpr):
            return tuple(self.scalar(d, env) for d in e.values)
        if isinstance(e, relax.PrimValue):
            return self.scalar(e.value, env)
        if isinstance(e, relax.GlobalVar):
            return Closure(self.mod[e])
        return getattr(e, "value", e)

    def value(self, e, env, var):
        if isinstance(e, relax.If):
            branch = e.true_branch if self.leaf(e.cond, env) else e.false_branch
            return self.seq(branch, dict(env))
        if isinstance(e, relax.Function):
            made = Closure(e, dict(env))
            made.env[var] = made
            return made
        if isinstance(e, relax.TupleGetItem):
            return self.leaf(e.tuple_value, env)[e.index]
        return self.call_value(e, env) if isinstance(e, relax.Call) else self.leaf(e, env)

    def call_value(self, e, env):
        if not isinstance(e.op, Op):
            args = [self.leaf(a, env) for a in e.args]
            if isinstance(e.op, relax.ExternFunc):
                return self.functions[e.op.global_symbol](*args)
            return self.invoke(self.leaf(e.op, env), args)
        name = e.op.name.removeprefix("relax.")
        special = getattr(self, f"_{name}", None)
        if special is not None:
            return special(e, env)
        used = {v: env[v] for a in e.args for v in relax.analysis.used_vars(a)}
        symbols = {k: v for k, v in env.items() if isinstance(k, TirVar)}
        return operator_value(e, used, symbols)

    def invoke(self, closure, args):
        return self.call(closure.fn, (*args, *closure.captured), closure.env or {})

    def _print(self, e, env):
        self.printed.append([np.asarray(self.leaf(a, env)).tolist() for a in e.args[1:]])
        return ()

    def _make_closure(self, e, env):
        closure = self.leaf(e.args[0], env)
        return Closure(closure.fn, None, self.leaf(e.args[1], env))

    def _invoke_closure(self, e, env):
        return self.invoke(self.leaf(e.args[0], env), self.leaf(e.args[1], env))

    _invoke_pure_closure = _invoke_closure

    def _call_pure_packed(self, e, env):
        args = [self.leaf(a, env) for a in e.args[1:]]
        return self.functions[e.args[0].global_symbol](*args)

    _call_packed = _call_pure_packed

    def _call_tir(self, e, env):
        args = self.leaf(e.args[1], env)
        info = e.sinfo_args[0]
        outputs = info.fields if isinstance(info, relax.TupleStructInfo) else (info,)
        made = [
            np.zeros([self.scalar(d, env) for d in o.dims], to_numpy_dtype(o.dtype))
            for o in outputs
        ]
        scalars = self.leaf(e.args[2], env) if len(e.args) > 2 else ()
        if isinstance(e.args[0], relax.ExternFunc):
            self.functions[e.args[0].global_symbol](*args, *made)
        else:
            interpret(self.mod[e.args[0]], *args, *made, *scalars, module=self.mod)
        return tuple(made) if isinstance(info, relax.TupleStructInfo) else made[0]

    _call_dps_packed = _call_tir


def evaluate(mod, *args, name="main", functions=None):
    """(result, what was printed) of a function of `mod`."""
    evaluator = Evaluator(mod, functions)
    return evaluator(name, *args), evaluator.printed
