"""Shared by the tests of lowering and building: small kernels, and a build whose kernels the
interpreter runs.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from relaxvm import relax, tir
from relaxvm.ir import GlobalVar, IRModule, Map, Op, PassContext, walk
from relaxvm.ir.instrument import PassInstrument
from relaxvm.pipeline import run_stages
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.expr import (
    Binding,
    BindingBlock,
    Call,
    Function,
    SeqExpr,
    Var,
    VarBinding,
)
from relaxvm.relax.struct_info import TensorStructInfo, TupleStructInfo
from relaxvm.relax.vm_codegen import emit_functions
from relaxvm.runtime import ExecBuilder, VirtualMachine, get_global_func
from relaxvm.tir import PrimFunc, interpret
from relaxvm.tir.stmt import Buffer, BufferLoad, BufferStore, For, decl_buffer

VOID = TupleStructInfo(())
F32 = "float32"


def dims_of(shape, symbols):
    """`shape` with strings replaced by symbols, the same one for the same name."""
    return [symbols.setdefault(d, tir.Var(d, "int64")) if isinstance(d, str) else d for d in shape]


def elementwise(make, n_inputs, shape=(4,), dtype=F32, out_dtype=None, scalars=0, noalias=True):
    """A loop function: out[i, ...] = make(*in[i, ...], *scalars). String dimensions are symbols."""
    symbols = {}
    dims = dims_of(shape, symbols)
    buffers = [decl_buffer(dims, dtype, f"in{i}") for i in range(n_inputs)]
    out = decl_buffer(dims, out_dtype or dtype, "out")
    extra = [tir.Var(f"s{i}", "int64") for i in range(scalars)]
    loops = [tir.Var(f"i{k}", "int64") for k in range(len(dims))]
    value = make(*[BufferLoad(b, loops) for b in buffers], *extra)
    body = BufferStore(out, value, loops)
    for loop, extent in reversed(list(zip(loops, dims))):
        body = For(loop, tir.const(0, "int64"), extent, 0, body)
    return prim_func([*buffers, out], body, extra, noalias)


def prim_func(buffers: list[Buffer], body, extra=(), noalias=True):
    handles = [tir.Var(f"{b.name}_handle", "handle") for b in buffers]
    attrs = {"tir.noalias": True} if noalias else {}
    return PrimFunc([*handles, *extra], body, None, Map(dict(zip(handles, buffers))), attrs)


def tensor(shape, dtype=F32):
    return TensorStructInfo(shape, dtype)


def call_tir(gv, args, out, tir_vars=None):
    return relax.call_tir(gv, args, out, tir_vars)


class Body:
    """Writes a function body binding by binding."""

    def __init__(self):
        self.bindings = []

    def __call__(self, value, name="lv"):
        var = Var(name, value.struct_info)
        self.bindings.append(VarBinding(var, value))
        return var

    def seq(self, result):
        return SeqExpr((BindingBlock(self.bindings),) if self.bindings else (), result)

    def function(self, params, result, name="main", **options):
        attrs = {"global_symbol": name} if name else {}
        return Function(params, self.seq(result), attrs=attrs, **options)


def module(functions):
    """An IRModule of {GlobalVar or name: function}."""
    return IRModule({k: v for k, v in functions.items()})


class WellFormedAfterEach(PassInstrument):
    """Checks the module after every pass."""

    def run_after_pass(self, mod, info):
        assert_well_formed(mod)


def lowered(mod, **context):
    """`mod` at stage PLANNED, well formed after every pass on the way."""
    assert_well_formed(mod)
    with PassContext(instruments=[WellFormedAfterEach()], **context):
        return run_stages(mod)


def emit(mod):
    builder = ExecBuilder()
    emit_functions(mod, builder)
    return builder.get()


def kernels_of(mod):
    """The loop functions of `mod` as Python functions that interpret them."""
    found = {}
    for gv, fn in mod.items():
        if isinstance(fn, PrimFunc):

            def run(*args, fn=fn):
                interpret(fn, *[a.array if hasattr(a, "array") else a for a in args], module=mod)

            found[gv.name_hint] = run
    return found


def build_interpreted(mod, functions=None, context=None, **options):
    """A VM for `mod` whose kernels are interpreted."""
    low = lowered(mod, **(context or {}))
    ex = emit(low)
    granted = {**kernels_of(low), **(functions or {})}
    for name in ex.needs():
        if name not in granted:
            granted[name] = get_global_func(name)
    return VirtualMachine(ex, functions=granted, **options)


def bindings_of(fn):
    """All bindings of a function, branches included."""
    return [n for n in walk(fn) if isinstance(n, Binding)]


def count_calls(fn):
    """How often each operator or packed function is called."""
    counts = Counter()
    for b in bindings_of(fn):
        if isinstance(b.value, Call):
            op = b.value.op
            name = op.name if isinstance(op, Op) else getattr(op, "global_symbol", None)
            counts[name or op.name_hint] += 1
    return counts


def gv(name):
    return GlobalVar(name)


def value(x):
    """A result as plain numpy and Python values."""
    if isinstance(x, tuple) and type(x) is tuple:
        return tuple(value(v) for v in x)
    return np.asarray(x.numpy()) if hasattr(x, "numpy") else x
