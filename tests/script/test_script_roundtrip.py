# ruff: noqa: E501 (script text is as wide as the program)
"""What the printer writes, the parser reads back as the same IR."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from script_corpus_relax import RELAX, T4, C, X, bound, graph, in_module
from script_corpus_tir import F32, I32, SCALARS, TIR, A, B, D, S, T, func, holding

from relaxvm import relax
from relaxvm.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Cast,
    Div,
    DummyGlobalInfo,
    FloorDiv,
    FloorMod,
    GlobalVar,
    IRModule,
    Map,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PointerType,
    PrimType,
    Range,
    Select,
    SizeVar,
    Sub,
    Var,
    VDevice,
    assert_structural_equal,
    const,
    node_types,
    walk,
)
from relaxvm.relax import (
    BindingBlock,
    FuncStructInfo,
    Function,
    If,
    MatchCast,
    ObjectStructInfo,
    SeqExpr,
    TensorStructInfo,
    TupleGetItem,
    TupleStructInfo,
    call_dps_packed,
    call_packed,
    call_pure_packed,
)
from relaxvm.script import from_source, print_script
from relaxvm.tir import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    Call,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
    While,
    decl_buffer,
)


def round_trip(what, **options):
    """Parse the text of `what`; equal, and printed again the same."""
    text = print_script(what, **options)
    again = from_source(text)
    assert_structural_equal(again, what)
    assert print_script(again, **options) == text
    return text


@pytest.mark.parametrize("function", TIR, ids=[str(i) for i in range(len(TIR))])
def test_loop_function_round_trips(function):
    round_trip(function)
    round_trip(function, syntax_sugar=False)


@pytest.mark.parametrize("function", RELAX, ids=[str(i) for i in range(len(RELAX))])
def test_graph_function_round_trips(function):
    module = in_module(function)
    round_trip(module, show_meta=True)
    round_trip(module, show_meta=True, name="Other", module_alias="mod")
    if not any(isinstance(n, GlobalVar) for n in walk(function)):
        round_trip(function, show_meta=True)


def test_modules_round_trip_with_attributes_and_devices():
    device = VDevice("llvm", 1, "global")
    x = relax.Var("x", TensorStructInfo((4,), F32, device))
    module = in_module(graph([x], [], x))
    module.attrs = Map({"a": 1, "b": [1.5, "x", True, None], "c": {"d": "e"}})
    module.update_global_info("vdevice", [VDevice("llvm", 0), device, VDevice("cuda", 0, "shared")])
    gv = GlobalVar("caller")
    call = Evaluate(Call("void", module.get_global_var("one"), (D.data,)))
    module[gv] = PrimFunc([D], call)
    renamed = func(Evaluate(const(0)), [decl_buffer((4,), F32, "A")])
    module["other"] = renamed.with_attr("global_symbol", "public")
    text = round_trip(module)
    assert 'vdevice="llvm:1"' in text
    round_trip(IRModule())


def test_functions_that_call_each_other_round_trip():
    info = FuncStructInfo((T4,), T4)
    even, odd = GlobalVar("even", info), GlobalVar("odd", info)
    functions = {}
    for this, other in ((even, odd), (odd, even)):
        x = relax.Var("x", T4)
        call = bound(relax.Call(other, (x,)))
        made = graph([x], [call], call.var, T4, True)
        functions[this] = made.with_attr("global_symbol", this.name_hint)
    round_trip(IRModule(functions))


# -- script text -----------------------------------------------------------------------------------

TEXTS = [
    """
    @I.ir_module
    class MyModule:
        @T.prim_func
        def linear0(x: T.handle, w: T.handle, b: T.handle, z: T.handle):
            m, n, k = T.int64(), T.int64(), T.int64()
            X = T.match_buffer(x, (1, m), "float32")
            W = T.match_buffer(w, (n, m), "float32")
            B = T.match_buffer(b, (n,), "float32")
            Z = T.match_buffer(z, (1, n), "float32")
            Y = T.alloc_buffer((1, n), "float32")
            for i, j, k in T.grid(1, n, m):
                with T.block("Y"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        Y[vi, vj] = T.float32(0)
                    Y[vi, vj] = Y[vi, vj] + X[vi, vk] * W[vj, vk]
            for i, j in T.grid(1, n):
                with T.block("Z"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    Z[vi, vj] = Y[vi, vj] + B[vj]

        @R.function
        def main(x: R.Tensor((1, "m"), "float32"), w: R.Tensor(("n", "m"), "float32"), b: R.Tensor(("n",), "float32")):
            n = T.int64()
            with R.dataflow():
                lv0 = R.call_tir(linear0, (x, w, b), (1, n), dtype="float32")
                lv1 = R.call_tir("env.relu", (lv0,), (1, n), dtype="float32")
                out = R.call_dps_packed("env.linear", (lv1, w), out_sinfo=R.Tensor((1, n), "float32"))
                R.output(out)
            return out
    """,
    """
    @T.prim_func
    def split(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32"), n: T.int32):
        for i_0 in T.parallel(n):
            for i_1 in T.vectorized(4):
                with T.block("B"):
                    vi = T.axis.spatial(128, i_0 * 4 + i_1)
                    T.where(i_0 * 4 + i_1 < 128)
                    B[vi] = T.if_then_else(A[vi] > T.float32(0), T.exp(A[vi]), T.max(A[vi], T.float32(-1)))
    """,
    """
    @T.prim_func
    def lowered(A: T.Buffer((128,), "float32"), B: T.Buffer((4, 32), "float32")):
        T.func_attr({"tir.noalias": True})
        scratch = T.allocate([128], "float32", "global")
        S = T.decl_buffer((128,), data=scratch)
        for i in range(128):
            x: T.float32 = A[i] * T.float32(2)
            S[i] = x
            if i % 32 == 0:
                S[i] += T.float32(1)
            elif i > 3 and i < 9:
                S[i] = T.Cast("float32", i)
            else:
                T.evaluate(0)
        assert B[0, 0] > T.float32(0), "B starts positive"
        B[0, 0:32:1] = S[T.ramp(0, 1, 32)]
        while B[0, 0] < T.float32(3):
            B[0, 0] = B[0, 0] + T.float32(1)
    """,
    """
    @I.ir_module
    class Module:
        @R.function(private=True)
        def helper(x: R.Tensor(("n", 4), "float32"), k: R.Shape(["n", "m"])) -> R.Tensor(("n", 4), "float32"):
            return x

        @R.function(pure=False)
        def main(x: R.Tensor(ndim=2, dtype="float32"), c: R.Tensor((), "bool")) -> R.Object:
            n = T.int64()
            cls = Module
            y = R.match_cast(x, R.Tensor((n, 4), "float32"))
            z: R.Tensor((n, 4), "float32") = cls.helper(y, R.shape([n, n * 2]))
            if c:
                t = R.call_packed("env.f", z, sinfo_args=(R.Tensor,))
                w = R.call_packed("env.g", t, sinfo_args=(R.Tensor((n, 4), "float32"),))
            else:
                w = z
            _ = R.print(w, format="{}")
            return (w, R.shape([n]), R.const([1, 2], "int64"))
    """,
]


@pytest.mark.parametrize("text", TEXTS, ids=[str(i) for i in range(len(TEXTS))])
def test_what_was_parsed_round_trips(text):
    round_trip(from_source(text))
    round_trip(from_source(text), syntax_sugar=False)


# -- all node kinds --------------------------------------------------------------------------------


def test_the_corpus_has_every_kind_of_node_that_can_stand_in_script():
    rooms = ("relaxvm.ir.", "relaxvm.tir.", "relaxvm.relax.expr", "relaxvm.relax.struct_info")
    wanted = {key for key, cls in node_types().items() if f"{cls.__module__}.".startswith(rooms)}
    found = {
        type(n)._type_key
        for f in (*TIR, *RELAX, DummyGlobalInfo(), VDevice("llvm"))
        for n in walk(f)
    }
    # Types of whole functions stand in no text; what is in them does. Nor does what text could call.
    assert sorted(wanted - found) == ["ir.EnvFunc", "ir.FuncType", "ir.TupleType"]


def test_every_part_of_every_program_prints_by_itself():
    seen = set()
    for function in (*TIR, *RELAX):
        for part in walk(function):
            if id(part) not in seen:
                seen.add(id(part))
                text = print_script(part)
                assert text
                assert "object at 0x" not in text


# -- random programs -------------------------------------------------------------------------------

_INTS = st.sampled_from([S, const(0), const(1), const(-1), const(7), B[0, 1]])
_FLOATS = st.sampled_from([T, const(0.0), const(1.0), const(-0.5), A[0, 1]])


def _expressions(leaves, classes):
    return st.recursive(
        leaves,
        lambda inner: st.builds(lambda c, a, b: c(a, b), st.sampled_from(classes), inner, inner),
        max_leaves=10,
    )


_INT = _expressions(_INTS, [Add, Sub, Mul, FloorDiv, FloorMod, Div, Mod, Min, Max])
_FLOAT = _expressions(_FLOATS, [Add, Sub, Mul, Div, Min, Max])
_COMPARED = st.builds(
    lambda c, a, b: c(a, b), st.sampled_from([EQ, NE, LT, LE, GT, GE]), _INT, _INT
)
_BOOL = st.recursive(
    st.one_of(_COMPARED, st.just(const(True))),
    lambda inner: st.one_of(
        st.builds(And, inner, inner),
        st.builds(Or, inner, inner),
        st.builds(Not, inner),
        st.builds(EQ, inner, inner),
    ),
    max_leaves=6,
)
_ANY = st.one_of(
    _INT,
    _FLOAT,
    _BOOL,
    st.builds(Select, _BOOL, _INT, _INT),
    st.builds(lambda e: Cast("int64", e), _INT),
    st.builds(lambda a, b: B[a, b], _INT, _INT),
    st.builds(lambda c, a, b: Call(I32, "tir.if_then_else", (c, a, b)), _BOOL, _INT, _INT),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(_ANY, min_size=1, max_size=6))
def test_random_expressions_round_trip(exprs):
    round_trip(holding(*exprs))


_NAMES = st.sampled_from(
    ["x", "x_1", "i", "s", "T", "cls", "Module", "for", "", "A", "buffer", "range", "a.b"]
)


@st.composite
def _statements(draw, depth=3):
    kinds = ["store", "evaluate"]
    if depth:
        kinds += ["for", "if", "let", "assert", "while", "seq", "alloc", "attr", "block"]
    kind = draw(st.sampled_from(kinds))
    inner = _statements(depth=depth - 1)
    if kind == "store":
        return BufferStore(B, draw(_INT), [draw(_INTS), draw(_INTS)])
    if kind == "evaluate":
        return Evaluate(draw(_ANY))
    name = draw(_NAMES)
    if kind == "for":
        loop = draw(st.sampled_from(["serial", "parallel", "unroll"]))
        return For(Var(name), draw(st.integers(0, 2)), draw(st.integers(0, 9)), loop, draw(inner))
    if kind == "if":
        return IfThenElse(draw(_BOOL), draw(inner), draw(st.one_of(st.none(), inner)))
    if kind == "let":
        return LetStmt(draw(st.sampled_from([Var, SizeVar]))(name), draw(_INT), draw(inner))
    if kind == "assert":
        return AssertStmt(draw(_BOOL), draw(st.text(max_size=5)), draw(inner))
    if kind == "while":
        return While(draw(_BOOL), draw(inner))
    if kind == "attr":
        return AttrStmt(D, "key", draw(_INT), draw(inner))
    if kind == "alloc":
        pointer = Var(name, PointerType(PrimType(F32), "global"))
        buffer = decl_buffer((4,), F32, draw(_NAMES), data=pointer)
        return Allocate(pointer, F32, (4,), True, DeclBuffer(buffer, draw(inner)))
    if kind == "block":
        v = Var(name)
        block = Block(
            [IterVar(Range.from_min_extent(0, 4), v)],
            [],
            [],
            draw(st.text(max_size=3)),
            draw(inner),
        )
        return BlockRealize([draw(_INT)], draw(_BOOL), block)
    parts = draw(
        st.lists(inner.filter(lambda s: not isinstance(s, SeqStmt)), min_size=2, max_size=3)
    )
    return SeqStmt(parts)


@settings(deadline=None, max_examples=60)
@given(_statements())
def test_random_statements_round_trip(stmt):
    root = BlockRealize(
        [], True, Block([], [], [], "root", stmt, alloc_buffers=[decl_buffer((1,), F32, "own")])
    )
    round_trip(func(root, SCALARS))


PAIR = relax.Var("pair", TupleStructInfo((T4, T4)))


@st.composite
def _branches(draw, tensors, depth):
    """A SeqExpr over the tensors in scope."""
    known, bindings = list(tensors), []
    for _ in range(draw(st.integers(0, 3))):
        x, y = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        values = [
            call_packed("env.f", x, y, sinfo_args=T4),
            call_dps_packed("env.g", (x, y), T4),
            call_pure_packed("env.h", relax.Tuple((x, relax.const(1))), sinfo_args=T4),
            TupleGetItem(PAIR, 1),
            x,
        ]
        if depth:
            inner = _branches(known, depth - 1)
            values.append(If(C, draw(inner), draw(inner)))
        value = draw(st.sampled_from(values))
        name = draw(_NAMES)
        if draw(st.booleans()):
            bindings.append(MatchCast(relax.Var(name, T4), x, T4))
        else:
            bindings.append(bound(value, name))
        if bindings[-1].var.struct_info is T4:
            known.append(bindings[-1].var)
    blocks = [BindingBlock(bindings)] if bindings else []
    return SeqExpr(blocks, draw(st.sampled_from(known)))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_random_graph_functions_round_trip(data):
    p = [relax.Var(data.draw(_NAMES), T4), relax.Var("y", T4), C, PAIR]
    body = data.draw(_branches(p[:2], 2))
    round_trip(Function(p, body, ObjectStructInfo(), False, {"global_symbol": "main"}))


# -- size ------------------------------------------------------------------------------------------


def test_long_functions_round_trip():
    stmts = [BufferStore(D, const(float(i)), [i % 64]) for i in range(2_000)]
    total = D[0]
    for i in range(1_500):
        total = total + D[i % 64]
    round_trip(func(SeqStmt([*stmts, BufferStore(D, total, [0])])))
    bindings, at = [], X
    for _ in range(1_000):
        bindings.append(bound(call_dps_packed("env.f", (at,), T4)))
        at = bindings[-1].var
    round_trip(graph([X], bindings, at))


@pytest.mark.parametrize(
    "text",
    [
        # A lone function that calls itself, whose name its variables would like to have.
        """
@R.function
def A_1(A: R.Tensor((3,), "float32")):
    A = R.add(A, A)
    A = R.add(A, A)
    return A_1(A)
""",
        """
@R.function(private=True)
def y(x: R.Tensor(("n",), "float32")):
    y = y(x)
    y = R.shape([1, 2])
    return y
""",
        # Functions that call each other and say nothing of their results.
        """
@I.ir_module
class Module:
    @R.function(private=True)
    def f(x: R.Tensor((3,), "float32")):
        y = Module.g(x)
        return (y, x)

    @R.function(private=True)
    def g(x: R.Tensor((3,), "float32")):
        y = Module.f(x)
        return x
""",
        # A private function that is taken for one that calls another, by a parameter's name.
        """
@I.ir_module
class Module:
    @R.function(private=True)
    def f(g: R.Object):
        y = R.match_cast(g, R.Shape(ndim=2))
        return y

    @R.function
    def g(x: R.Object):
        return Module.f(x)
""",
    ],
)
def test_results_that_nobody_declares_print_as_they_are_read(text):
    function = from_source(text)
    assert_structural_equal(from_source(function.script()), function)


def test_a_private_function_may_say_less_than_its_body():
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    fn = relax.Function([x], x, ret_struct_info=relax.ObjectStructInfo())
    mod = IRModule({"f": fn})
    assert "@R.function(private=True, keep_ret=True)" in mod.script()
    assert_structural_equal(from_source(mod.script()), mod)
