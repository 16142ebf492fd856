# ruff: noqa: E501 (a line per program)
"""Graph functions with every kind of node, made by constructors."""

from __future__ import annotations

import numpy as np
from script_corpus_tir import F32, I32, I64

from relaxvm import relax
from relaxvm.ir import (
    DummyGlobalInfo,
    GlobalVar,
    IRModule,
    Min,
    Select,
    Var,
    VDevice,
    const,
)
from relaxvm.relax import (
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    ExternFunc,
    FuncStructInfo,
    Function,
    If,
    MatchCast,
    ObjectStructInfo,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    SequenceStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    TensorStructInfo,
    TupleGetItem,
    TupleStructInfo,
    VarBinding,
    call_dps_packed,
    call_packed,
    call_pure_packed,
    call_tir,
    call_tir_inplace,
    op,
)
from relaxvm.tir import (
    Evaluate,
    PrimFunc,
    decl_buffer,
)

# -- graph functions made of nodes -----------------------------------------------------------------

n, m = Var("n", I64), Var("m", I64)
T4 = TensorStructInfo((4,))
TN = TensorStructInfo((n, 4))
BOOL = TensorStructInfo((), "bool")
X, Y, C = relax.Var("x", T4), relax.Var("y", T4), relax.Var("c", BOOL)


def graph(params, bindings, result, ret=None, pure=False, dataflow=False, **attrs):
    kind = DataflowBlock if dataflow else BindingBlock
    blocks = [kind(bindings)] if bindings else []
    return Function(params, SeqExpr(blocks, result), ret, pure, {"global_symbol": "main", **attrs})


def bound(value, name="lv", info=None, kind=relax.Var):
    return VarBinding(kind(name, value.struct_info if info is None else info), value)


def graph_values():
    """Values that a binding may have, with the parameters they use."""
    one, two, many = (GlobalVar(k, FuncStructInfo.opaque_func()) for k in ("one", "two", "many"))
    t = relax.Var("t", TupleStructInfo((T4, TupleStructInfo(()), ObjectStructInfo())))
    f = relax.Var("f", FuncStructInfo((T4,), T4))
    s = relax.Var("s", ShapeStructInfo((n, 4)))
    o = relax.Var("o", ObjectStructInfo())
    yield [X], relax.Tuple((X, X))
    yield [X], relax.Tuple((X,))
    yield [X], relax.Tuple((X, relax.Tuple((X, relax.Tuple(())))))
    yield [t], TupleGetItem(t, 0)
    yield [t], TupleGetItem(t, 2)
    yield [s], ShapeExpr((n, n * 2 + 1, 4, n // 3))
    for value in (
        3,
        -1,
        n * 2,
        const(3),
        const(2.5),
        True,
        const(1.5, "float64"),
        const(-3, "int8"),
        Min(n, const(4, I64)),
        Select(n < 3, n, const(1, I64)),
    ):
        yield [s], PrimValue(value)
    yield [], relax.StringImm("a 'quoted' \"text\"\n")
    yield [], relax.DataTypeImm("bfloat16")
    yield [], ExternFunc("env.f")
    yield [X], X
    yield [f, X], relax.Call(f, (X,))
    yield [X], call_packed("env.f", X, PrimValue(1), relax.StringImm("s"), sinfo_args=T4)
    yield [X], call_packed("env.f", relax.Tuple((X,)), sinfo_args=(T4, ObjectStructInfo()))
    yield [], call_packed("env.f")
    yield [X], call_pure_packed("env.f", X, sinfo_args=TupleStructInfo((T4, T4)))
    yield [X], op.call_inplace_packed("env.f", X, inplace_indices=0, sinfo_args=T4)
    yield [X], call_dps_packed("env.f", (X, X), T4)
    yield [X], call_dps_packed("env.f", (), TupleStructInfo((T4,)))
    yield [X], call_dps_packed("env.f", (X,), [T4, TensorStructInfo((2, 3), "int8")])
    yield [X], call_tir(two, (X,), T4)
    yield [X, s], call_tir(many, (X,), [T4, TN], tir_vars=(n, n + 1))
    yield [X], call_tir_inplace(one, (X,), [0], T4)
    yield [X], op.shape_of(X)
    yield [X], op.print(X, X, format="{} {}")
    yield [C], op.assert_op(C, format="no")
    yield [C, X], op.assert_op(C, (X, X), "no {}")
    yield [X], op.null_value()
    yield [s], op.builtin.alloc_tensor(ShapeExpr((n, 2)), "int8", 0, "global")
    yield [o], op.memory.alloc_storage((64,), 0, "global", "float32")
    yield [o], op.memory.alloc_tensor(o, 0, (4,), "float32")
    yield [o], op.vm.kill_object(o)
    yield [o, X], op.invoke_closure(o, (X,), sinfo_args=(T4,))
    yield [o, X], op.invoke_pure_closure(o, (X,), sinfo_args=T4)
    yield [X], op.make_closure(one, (X,))
    yield [X], op.call_builtin_with_ctx("vm.builtin.f", (X,), sinfo_args=(T4,))
    yield [X], op.vm.call_tir_dyn(one, (X,))
    yield [X], op.to_vdevice(X, VDevice("llvm", 0))


def constants():
    for value, dtype in (
        (1.0, F32), (0.1, F32), (-3, I64), (True, "bool"), (0.1, "float16"), (0.1, "bfloat16"),
        ([1, 2, 3], "uint8"), ([[0.1, -0.0], [float("inf"), 1e-7]], F32), ([], F32), (2.0**-1074, "float64"),
        (np.arange(16).reshape(2, 2, 2, 2), I32),
    ):  # fmt: skip
        yield relax.const(value, dtype)
    yield relax.const(np.arange(17, dtype=F32))
    yield relax.const(np.zeros((0, 3), F32))
    yield relax.Constant(np.zeros(2, F32), TensorStructInfo(ndim=1))


def infos():
    yield from (
        ObjectStructInfo(),
        PrimStructInfo(I64),
        PrimStructInfo(value=n),
        PrimStructInfo(value=n + 1),
    )
    yield from (
        ShapeStructInfo((n, 4)),
        ShapeStructInfo(()),
        ShapeStructInfo(ndim=2),
        ShapeStructInfo(),
    )
    yield from (
        T4,
        TN,
        TensorStructInfo((), "int8"),
        TensorStructInfo((4,), ""),
        TensorStructInfo(None, ""),
    )
    yield from (
        TensorStructInfo(ndim=2),
        TensorStructInfo(None, "", ndim=2),
        TupleStructInfo(()),
        SequenceStructInfo(T4),
    )
    yield TupleStructInfo((T4, TupleStructInfo((ObjectStructInfo(), TN))))
    yield from (
        FuncStructInfo((T4, TN), TN),
        FuncStructInfo((), T4, False),
        FuncStructInfo.opaque_func(),
    )
    yield FuncStructInfo.opaque_func(ret=T4, purity=True)
    yield FuncStructInfo((FuncStructInfo((TN,), TN),), ObjectStructInfo())


def graph_corpus():
    for params, value in graph_values():
        binding = bound(value)
        yield graph(params, [binding], binding.var)
    for params, value in graph_values():
        call = getattr(value, "op", None)
        if getattr(call, "pure", True) and not isinstance(call, (ExternFunc, relax.Var)):
            inside, outside = bound(value, kind=DataflowVar), bound(X, "gv")
            yield graph(
                [*params, X] if X not in params else params,
                [inside, outside],
                outside.var,
                dataflow=True,
            )
    for value in constants():
        binding = bound(value)
        yield graph([], [binding], binding.var)
        yield graph([], [], relax.Tuple((value, PrimValue(1))))
    for info in infos():
        p = relax.Var("p", info)
        s = relax.Var("s", ShapeStructInfo((n,)))
        yield graph([p] if info is not PrimStructInfo(value=n + 1) else [p, s], [], p)
        yield graph([s, p, relax.Var("q", info)], [bound(p, info=ObjectStructInfo())], p)
    # Symbols bound by a cast, and known only in the body.
    x = relax.Var("x", TensorStructInfo(ndim=2))
    cast_var = relax.Var("y", TensorStructInfo((m, m + 1)))
    cast = MatchCast(cast_var, x, TensorStructInfo((m, m + 1)))
    yield graph([x], [cast, bound(ShapeExpr((m * 2,)))], cast_var, TensorStructInfo(ndim=2))
    yield graph(
        [x],
        [
            MatchCast(
                cast_var.replace(struct_info=TensorStructInfo(ndim=2)), x, TensorStructInfo((m, 3))
            )
        ],
        x,
    )
    # Blocks in a row, outputs of dataflow.
    a, b, d = bound(X, "a", kind=DataflowVar), bound(X, "b"), bound(X, "d")
    last = bound(relax.Tuple((b.var, d.var)), "last")
    body = SeqExpr(
        [BindingBlock([bound(X)]), DataflowBlock([a, b, d]), BindingBlock([last])], last.var
    )
    yield Function(
        [X], body, None, True, {"global_symbol": "main", "num_input": 1, "relax.force_pure": True}
    )
    # Private and impure functions, two variables of one name, odd names.
    yield Function([X], SeqExpr((), X), T4)
    one, two = relax.Var("x", T4), relax.Var("x", T4)
    first, second = bound(one, "lambda"), bound(two, "x")
    yield graph([one, two], [first, second], relax.Tuple((one, two, first.var, second.var)))
    # Branches.
    for yes, no in (
        (SeqExpr((), X), SeqExpr((), Y)),
        (branch(call_packed("env.f", X, sinfo_args=T4)), SeqExpr((), X)),
        (branch(X), branch(relax.Tuple((X, Y)), call_packed("env.g", Y, sinfo_args=T4))),
        (branch(If(C, branch(X), SeqExpr((), Y))), branch(Y)),
    ):
        binding = bound(If(C, yes, no))
        yield graph([X, Y, C], [binding], binding.var)
    out = bound(X, "gv")
    inner = SeqExpr([DataflowBlock([bound(X, kind=DataflowVar), out])], out.var)
    binding = bound(If(C, inner, SeqExpr((), Y)))
    yield graph([X, Y, C], [binding, bound(binding.var)], binding.var)
    # Functions as values.
    k = Var("k", I64)
    tk = TensorStructInfo((k,))
    p = relax.Var("p", tk)
    closure = Function([p], SeqExpr((), p), tk)
    f = relax.Var("inner", closure.struct_info)
    call = bound(relax.Call(f, (X,)))
    yield graph([X], [VarBinding(f, closure), call], call.var)
    itself = relax.Var("again", FuncStructInfo((tk,), tk))
    again = bound(relax.Call(itself, (p,)), "r")
    loop = Function([p], SeqExpr([BindingBlock([again])], again.var), tk)
    call = bound(relax.Call(itself, (X,)))
    yield graph([X], [VarBinding(itself, loop), call], call.var)
    # The outer symbol inside, and an impure closure that captures a variable.
    xn = relax.Var("xn", TN)
    q = relax.Var("q", TN)
    captured = bound(call_packed("env.f", xn, q, sinfo_args=TN), "r")
    closure = Function([q], SeqExpr([BindingBlock([captured])], captured.var), TN, False)
    f = relax.Var("inner", closure.struct_info)
    call = bound(relax.Call(f, (xn,)))
    yield graph([xn], [VarBinding(f, closure), call], call.var)


def branch(*values):
    bindings = [bound(v, f"b{i}") for i, v in enumerate(values)]
    return SeqExpr([BindingBlock(bindings)], bindings[-1].var)


def in_module(function):
    """The function in a module that has the loop functions it calls."""
    kernels = {}
    for name, buffers, scalars in (("one", 1, ()), ("two", 2, ()), ("many", 2, ("k", "l"))):
        params = [decl_buffer((4,), F32, f"A{i}") for i in range(buffers)]
        if scalars:
            params.append(decl_buffer((Var("rows", I64), 4), F32, "C"))
        params += [Var(v, I64) for v in scalars]
        kernels[name] = PrimFunc(params, Evaluate(const(0)), attrs={"global_symbol": name})
    return IRModule({**kernels, "main": function}, {"seed": 1}, {"d": [DummyGlobalInfo()]})


RELAX = list(graph_corpus())
