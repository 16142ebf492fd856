# ruff: noqa: E501 (golden text is as wide as the program)
"""Struct info, graph functions and modules as text."""

from __future__ import annotations

import sys
import textwrap

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import LoadError
from relaxvm.ir import (
    DummyGlobalInfo,
    GlobalVar,
    IRModule,
    VDevice,
    structural_equal,
)
from relaxvm.ir import (
    Var as TirVar,
)
from relaxvm.ir import (
    const as prim_const,
)
from relaxvm.relax import (
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    ExternFunc,
    FuncStructInfo,
    Function,
    If,
    MatchCast,
    ObjectStructInfo,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    StringImm,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
    call_dps_packed,
    call_packed,
    call_pure_packed,
    call_tir,
    call_tir_inplace,
    const,
    op,
)
from relaxvm.script import from_source, print_script, read_metadata, show_script
from relaxvm.tir import Evaluate, PrimFunc, decl_buffer

N, M = TirVar("n", "int64"), TirVar("m", "int64")
T4 = TensorStructInfo((4,))
X = Var("x", T4)
C = Var("c", TensorStructInfo((), "bool"))


def same(got: str, wanted: str) -> None:
    assert got == textwrap.dedent(wanted).strip("\n")


INFOS = [
    (ObjectStructInfo(), "R.Object"),
    (PrimStructInfo("int64"), 'R.Prim("int64")'),
    (PrimStructInfo(value=N + 1), "R.Prim(value=n + 1)"),
    (PrimStructInfo(value=prim_const(3, "int64")), "R.Prim(value=T.int64(3))"),
    (ShapeStructInfo((N, 4, N * 2 + 1)), "R.Shape([n, 4, n * 2 + 1])"),
    (ShapeStructInfo(ndim=2), "R.Shape(ndim=2)"),
    (ShapeStructInfo(), "R.Shape"),
    (TensorStructInfo((2, N)), 'R.Tensor((2, n), dtype="float32")'),
    (TensorStructInfo((2,), ""), "R.Tensor((2,))"),
    (TensorStructInfo((), "int8"), 'R.Tensor((), dtype="int8")'),
    (TensorStructInfo(None, "int8", ndim=2), 'R.Tensor(dtype="int8", ndim=2)'),
    (TensorStructInfo(None, ""), "R.Tensor"),
    (
        TensorStructInfo(Var("s", ShapeStructInfo(ndim=2)), "int8"),
        'R.Tensor(s, dtype="int8", ndim=2)',
    ),
    (
        TensorStructInfo((2,), "int8", VDevice("llvm", 1)),
        'R.Tensor((2,), dtype="int8", vdevice=I.vdevice("llvm", 1, "global"))',
    ),
    (
        TupleStructInfo((ObjectStructInfo(), T4)),
        'R.Tuple(R.Object, R.Tensor((4,), dtype="float32"))',
    ),
    (TupleStructInfo(()), "R.Tuple"),
    (
        FuncStructInfo((T4,), ObjectStructInfo()),
        'R.Callable((R.Tensor((4,), dtype="float32"),), R.Object, True)',
    ),
    (FuncStructInfo.opaque_func(), "R.Callable(None, R.Object, False)"),
]


@pytest.mark.parametrize(("info", "text"), INFOS, ids=[t for _, t in INFOS])
def test_struct_info_prints_as(info, text):
    assert print_script(info) == str(info) == text


GV = GlobalVar("f", None)
OUT = TensorStructInfo((N, 4))
EXPRS = [
    (Tuple((X,)), "(x,)"),
    (Tuple(()), "R.tuple()"),
    (Tuple((X, Tuple((X, X)))), "(x, (x, x))"),
    (TupleGetItem(Var("t", TupleStructInfo((T4,))), 0), "t[0]"),
    (ShapeExpr((N, 4)), "R.shape([n, 4])"),
    (PrimValue(3), "R.prim_value(3)"),
    (PrimValue(prim_const(3)), "R.prim_value(T.int32(3))"),
    (PrimValue(N * 2), "R.prim_value(n * 2)"),
    (PrimValue(True), "R.prim_value(T.bool(True))"),
    (StringImm("a"), 'R.str("a")'),
    (DataTypeImm("int8"), 'R.dtype("int8")'),
    (ExternFunc("env.f"), 'R.ExternFunc("env.f")'),
    (
        call_tir(GV, (X,), OUT),
        'R.call_tir(cls.f, (x,), out_sinfo=R.Tensor((n, 4), dtype="float32"))',
    ),
    (
        call_tir(GV, (X,), [T4, T4], tir_vars=(N,)),
        'R.call_tir(cls.f, (x,), out_sinfo=[R.Tensor((4,), dtype="float32"), '
        'R.Tensor((4,), dtype="float32")], tir_vars=R.shape([n]))',
    ),
    (
        call_tir(GV, (X,), TupleStructInfo((T4,))),
        'R.call_tir(cls.f, (x,), out_sinfo=R.Tuple(R.Tensor((4,), dtype="float32")))',
    ),
    (
        call_tir_inplace(GV, (X,), 0, T4),
        "R.call_tir_inplace(cls.f, (x,), inplace_indices=[0], out_sinfo=R.Tensor((4,), "
        'dtype="float32"))',
    ),
    (
        call_dps_packed("env.f", (X, X), T4),
        'R.call_dps_packed("env.f", (x, x), out_sinfo=R.Tensor((4,), dtype="float32"))',
    ),
    (
        call_packed("env.f", X, prim_const(1, "int64"), sinfo_args=T4),
        'R.call_packed("env.f", x, R.prim_value(1), sinfo_args=(R.Tensor((4,), dtype="float32"),))',
    ),
    (call_packed("env.f"), 'R.call_packed("env.f")'),
    (
        call_pure_packed("env.f", X, sinfo_args=ObjectStructInfo()),
        'R.call_pure_packed("env.f", x, sinfo_args=(R.Object,))',
    ),
    (op.shape_of(X), "R.shape_of(x)"),
    (op.print(X, format="{}"), 'R.print(x, format="{}")'),
    (op.assert_op(C, (X,), "no"), 'R.assert_op(c, [x], format="no")'),
    (
        op.builtin.alloc_tensor((2, N), "int8"),
        'R.builtin.alloc_tensor(R.shape([2, n]), R.dtype("int8"), R.prim_value(0), '
        'R.str("global"))',
    ),
    (Call(Var("g", FuncStructInfo((T4,), T4)), (X,)), "g(x)"),
]


@pytest.mark.parametrize(("expr", "text"), EXPRS, ids=[t for _, t in EXPRS])
def test_graph_expression_prints_as(expr, text):
    assert print_script(expr) == str(expr) == text


CONSTANTS = [
    (const(1.0), 'R.const(1.0, "float32")'),
    (const(1, "int64"), 'R.const(1, "int64")'),
    (const(True), 'R.const(True, "bool")'),
    (const(np.float32(0.1)), 'R.const(0.1, "float32")'),
    (const([[1, 2], [3, 4]], "int8"), 'R.const([[1, 2], [3, 4]], "int8")'),
    (const([0.1, -0.0, float("inf"), float("nan")], "float16"),
     'R.const([0.1, -0.0, float("inf"), float("nan")], "float16")'),
    (const([0.1], "bfloat16"), 'R.const([0.1], "bfloat16")'),
    (const(np.zeros((0,), "float32")), 'R.const([], "float32")'),
    (const(np.zeros((0, 3), "float32")), 'metadata["relax.expr.Constant"][0]'),
    (const(np.zeros(17, "float32")), 'metadata["relax.expr.Constant"][0]'),
    (Constant(np.zeros(2, "float32"), TensorStructInfo(ndim=1)), 'metadata["relax.expr.Constant"][0]'),
]  # fmt: skip


@pytest.mark.parametrize(("expr", "text"), CONSTANTS, ids=[str(i) for i in range(len(CONSTANTS))])
def test_constant_prints_as(expr, text):
    assert print_script(expr).split("\n")[0] == text


def test_large_constants_are_kept_beside_the_text_on_request():
    big, other = const(np.arange(100, dtype="int32")), const(np.ones((5, 5), "float32"))
    both = Tuple((big, other, big))
    plain = print_script(both)
    same(
        plain,
        """
        (metadata["relax.expr.Constant"][0], metadata["relax.expr.Constant"][1], metadata["relax.expr.Constant"][0])

        # Metadata omitted. Use show_meta=True in script() method to show it.
        """,
    )
    assert len(read_metadata(plain)) == 0
    found = read_metadata(print_script(both, show_meta=True))["relax.expr.Constant"]
    assert len(found) == 2
    assert structural_equal(found[0], big)
    assert structural_equal(found[1], other)
    with pytest.raises(LoadError):
        read_metadata("x\n# metadata = {}")
    with pytest.raises(LoadError):
        read_metadata("x\n# metadata = [1")


def test_function_with_symbols_dataflow_and_match_cast():
    x = Var("x", TensorStructInfo((N, 4)))
    s = Var("s", ShapeStructInfo((N, N * 2)))
    f = Var("f", FuncStructInfo((TensorStructInfo((M,)),), TensorStructInfo((M,))))
    out = TensorStructInfo((N, 4))
    lv, gv = DataflowVar("lv", out), Var("gv", out)
    cast_info = TensorStructInfo((M, 4))
    mc = Var("mc", cast_info)
    last = Var("lv", ShapeStructInfo((M + N,)))
    body = SeqExpr(
        [
            DataflowBlock(
                [
                    VarBinding(lv, call_dps_packed("env.relu", (x,), out)),
                    VarBinding(gv, lv),
                ]
            ),
            BindingBlock(
                [
                    MatchCast(mc, gv, cast_info),
                    VarBinding(last, ShapeExpr((M + N,))),
                ]
            ),
        ],
        Tuple((mc, last)),
    )
    func = Function(
        [x, s, f],
        body,
        TupleStructInfo((TensorStructInfo(None, ndim=2), ShapeStructInfo(ndim=1))),
        False,
        {"global_symbol": "main", "num_input": 1},
    )
    same(
        print_script(func),
        """
        # from relaxvm.script import tir as T
        # from relaxvm.script import relax as R

        @R.function(pure=False)
        def main(x: R.Tensor(("n", 4), dtype="float32"), s: R.Shape(["n", "n * 2"]), f: R.Callable((R.Tensor(("m",), dtype="float32"),), R.Tensor(("m",), dtype="float32"), True)) -> R.Tuple(R.Tensor(dtype="float32", ndim=2), R.Shape(ndim=1)):
            n = T.int64()
            m = T.int64()
            R.func_attr({"num_input": 1})
            with R.dataflow():
                lv = R.call_dps_packed("env.relu", (x,), out_sinfo=R.Tensor((n, 4), dtype="float32"))
                gv: R.Tensor((n, 4), dtype="float32") = lv
                R.output(gv)
            mc: R.Tensor((m, 4), dtype="float32") = R.match_cast(gv, R.Tensor((m, 4), dtype="float32"))
            lv_1: R.Shape([m + n]) = R.shape([m + n])
            return (mc, lv_1)
        """,
    )
    assert "gv = lv" in print_script(func, show_all_struct_info=False)


def test_branches_bind_one_variable():
    y, yes, no = Var("y", T4), Var("t", T4), Var("y", T4)
    a = Var("a", T4)
    true_branch = SeqExpr(
        [
            BindingBlock(
                [
                    VarBinding(a, call_packed("env.f", X, sinfo_args=T4)),
                    VarBinding(yes, call_packed("env.g", a, sinfo_args=T4)),
                ]
            )
        ],
        yes,
    )
    inner = If(C, SeqExpr((), X), SeqExpr((), X))
    false_branch = SeqExpr([BindingBlock([VarBinding(no, inner)])], no)
    func = Function(
        [X, C],
        SeqExpr([BindingBlock([VarBinding(y, If(C, true_branch, false_branch))])], y),
        T4,
        False,
    )
    same(
        print_script(func),
        """
        # from relaxvm.script import relax as R

        @R.function(private=True, pure=False)
        def main(x: R.Tensor((4,), dtype="float32"), c: R.Tensor((), dtype="bool")) -> R.Tensor((4,), dtype="float32"):
            if c:
                a: R.Tensor((4,), dtype="float32") = R.call_packed("env.f", x, sinfo_args=(R.Tensor((4,), dtype="float32"),))
                y: R.Tensor((4,), dtype="float32") = R.call_packed("env.g", a, sinfo_args=(R.Tensor((4,), dtype="float32"),))
            else:
                if c:
                    y = x
                else:
                    y = x
            return y
        """,
    )


def test_functions_nest_and_call_themselves():
    p = Var("p", TensorStructInfo((M,)))
    info = FuncStructInfo((TensorStructInfo((M,)),), TensorStructInfo((M,)))
    inner, r, z = Var("inner", info), Var("r", TensorStructInfo((M,))), Var("z", T4)
    closure = Function(
        [p], SeqExpr([BindingBlock([VarBinding(r, Call(inner, (p,)))])], r), TensorStructInfo((M,))
    )
    func = Function(
        [X],
        SeqExpr([BindingBlock([VarBinding(inner, closure), VarBinding(z, Call(inner, (X,)))])], z),
        T4,
        attrs={"global_symbol": "main"},
    )
    same(
        print_script(func),
        """
        # from relaxvm.script import tir as T
        # from relaxvm.script import relax as R

        @R.function
        def main(x: R.Tensor((4,), dtype="float32")) -> R.Tensor((4,), dtype="float32"):
            m = T.int64()
            @R.function
            def inner(p: R.Tensor((m,), dtype="float32")) -> R.Tensor((m,), dtype="float32"):
                r: R.Tensor((m,), dtype="float32") = inner(p)
                return r
            z: R.Tensor((4,), dtype="float32") = inner(x)
            return z
        """,
    )


def test_module_prints_every_part():
    a = decl_buffer((4,), "float32", "A")
    kernel = PrimFunc([a], Evaluate(prim_const(0)))
    device = VDevice("llvm", 0, "global")
    x = Var("x", TensorStructInfo((4,), "float32", device))
    module = IRModule(
        {"k": kernel},
        attrs={"seed": 1, "names": ["a", {"b": 2.0}]},
        global_infos={
            "vdevice": [VDevice("cuda", 0), VDevice("llvm", 1), device],
            "d": [DummyGlobalInfo()],
        },
    )
    gv = module.get_global_var("k")
    y = Var("y", T4)
    module["main"] = Function(
        [x],
        SeqExpr([BindingBlock([VarBinding(y, call_tir(gv, (), T4))])], y),
        T4,
        attrs={"global_symbol": "main"},
    )
    same(
        module.script(),
        """
        # from relaxvm.script import ir as I
        # from relaxvm.script import tir as T
        # from relaxvm.script import relax as R

        @I.ir_module
        class Module:
            I.module_attrs({"seed": 1, "names": ["a", {"b": 2.0}]})
            I.module_global_infos({"vdevice": [I.vdevice("cuda", 0, "global"), I.vdevice("llvm", 1, "global"), I.vdevice("llvm", 0, "global")], "d": [I.dummy_global_info()]})

            @T.prim_func(private=True)
            def k(A: T.Buffer((4,), "float32")):
                T.evaluate(0)

            @R.function
            def main(x: R.Tensor((4,), dtype="float32", vdevice="llvm:1")) -> R.Tensor((4,), dtype="float32"):
                cls = Module
                y = R.call_tir(cls.k, R.tuple(), out_sinfo=R.Tensor((4,), dtype="float32"))
                return y
        """,
    )
    assert str(IRModule()).endswith("class Module:\n    pass")


def test_ill_formed_ir_prints_all_the_same():
    stray = Var("stray", T4)
    func = Function([X], SeqExpr([BindingBlock([])], stray), T4)
    assert print_script(func).endswith("return stray")
    # Values where normal form has none.
    nested = Tuple((If(C, X, X), SeqExpr([BindingBlock([VarBinding(X, X)])], X), func))
    assert (
        print_script(nested)
        == "(<if c: x else: x>, <1 binding, then x>, <function of 1 parameter>)"
    )
    dead_end = Function([C, X], If(C, X, X), T4)
    assert print_script(dead_end).endswith("if c:\n        return x\n    else:\n        return x")
    returns_function = Function([C], SeqExpr((), func), ObjectStructInfo())
    assert print_script(returns_function).endswith("return inner")
    y = Var("y", T4)
    chained = VarBinding(y, SeqExpr([BindingBlock([VarBinding(Var("z", T4), X)])], X))
    assert print_script(chained).split("\n") == [
        'z: R.Tensor((4,), dtype="float32") = x',
        "y = x",
    ]
    assert print_script(GV) == "cls.f"
    assert print_script(None) == "None"
    assert print_script((X, {"a": X})).startswith("(x, {")


def test_a_function_of_many_bindings_prints_without_recursion():
    bindings, at = [], X
    for _ in range(10_000):
        v = Var("lv", T4)
        bindings.append(VarBinding(v, call_dps_packed("env.f", (at,), T4)))
        at = v
    func = Function([X], SeqExpr([BindingBlock(bindings)], at), T4)
    text = print_script(func)
    assert text.count("\n") == 10_004
    assert text.endswith("return lv_9999")


def test_show_prints_the_script(capsys):
    show_script(T4)
    T4.shape.show()
    assert capsys.readouterr().out == 'R.Tensor((4,), dtype="float32")\nR.shape([4])\n'


def test_show_is_in_colour_on_a_terminal_with_pygments(capsys, monkeypatch):
    pytest.importorskip("pygments")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_script(T4, style="light")
    assert "\x1b[" in capsys.readouterr().out


def test_printing_is_reachable_from_the_graph_language():
    assert relax.const(1).script() == 'R.const(1, "int32")'


def test_a_function_that_calls_another_keeps_its_own_name():
    mod = from_source(
        """
@I.ir_module
class Module:
    @R.function(private=True)
    def inner(x: R.Tensor((2,), "float32")):
        return R.exp(x)

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        return Module.inner(x)
"""
    )
    text = mod["main"].script()
    assert "def main(" in text
    assert "cls.inner(x)" in text
    assert "global_symbol" not in text
