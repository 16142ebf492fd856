# ruff: noqa: E501 (golden text is as wide as the program)
"""Statements, buffers and loop functions as text."""

from __future__ import annotations

import textwrap

import pytest

from relaxvm.ir import IRModule, PointerType, PrimType, Range, SizeVar, Var, const
from relaxvm.script import print_script
from relaxvm.tir import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferLoad,
    BufferRegion,
    BufferStore,
    Call,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    Let,
    LetStmt,
    MatchBufferRegion,
    PrimFunc,
    SeqStmt,
    While,
    decl_buffer,
)

A = decl_buffer((16,), "float32", "A")
B = decl_buffer((16,), "float32", "B")
I = Var("i")
X = Var("x")
COPY = BufferStore(B, A[I], [I])
NOTHING = Evaluate(const(0))


def same(got: str, wanted: str) -> None:
    assert got == textwrap.dedent(wanted).strip("\n")


def point(buffer, *indices):
    return BufferRegion(buffer, [Range.from_min_extent(i, const(1)) for i in indices])


def test_matmul_uses_every_short_form():
    n = 8
    a, b = (decl_buffer((n, n), "float32", name) for name in "AB")
    c, y = decl_buffer((n, n), "float32", "C"), decl_buffer((n, n), "float32", "Y")
    i, j, k = Var("i"), Var("j"), Var("k")
    vi, vj, vk = Var("vi"), Var("vj"), Var("vk")
    axes = [
        IterVar(Range.from_min_extent(0, n), v, kind) for v, kind in ((vi, 0), (vj, 0), (vk, 2))
    ]
    block = Block(
        axes,
        [point(a, vi, vk), point(b, vk, vj)],
        [point(y, vi, vj)],
        "Y",
        BufferStore(y, y[vi, vj] + a[vi, vk] * b[vk, vj], [vi, vj]),
        BufferStore(y, 0.0, [vi, vj]),
    )
    body = BlockRealize([i, j, k], True, block)
    for v in (k, j, i):
        body = For(v, 0, n, "serial", body)
    i1, j1, ui, uj = Var("i"), Var("j"), Var("vi"), Var("vj")
    axes = [IterVar(Range.from_min_extent(0, n), ui), IterVar(Range.from_min_extent(0, n), uj)]
    relu = Block(
        axes, [point(y, ui, uj)], [point(c, ui, uj)], "C", BufferStore(c, y[ui, uj], [ui, uj])
    )
    copy = For(i1, 0, n, 0, For(j1, 0, n, 0, BlockRealize([i1, j1], True, relu)))
    root = Block([], [], [], "root", SeqStmt([body, copy]), alloc_buffers=[y])
    func = PrimFunc([a, b, c], BlockRealize([], True, root), attrs={"global_symbol": "mm_relu"})
    same(
        print_script(func),
        """
        # from relaxvm.script import tir as T

        @T.prim_func
        def mm_relu(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
            # with T.block("root"):
            Y = T.alloc_buffer((8, 8), "float32")
            for i, j, k in T.grid(8, 8, 8):
                with T.block("Y"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    T.reads(A[vi, vk], B[vk, vj])
                    T.writes(Y[vi, vj])
                    with T.init():
                        Y[vi, vj] = T.float32(0)
                    Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
            for i, j in T.grid(8, 8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(Y[vi, vj])
                    T.writes(C[vi, vj])
                    C[vi, vj] = Y[vi, vj]
        """,
    )
    same(
        print_script(func, syntax_sugar=False, tir_prefix="tir", indent_spaces=2),
        """
        # from relaxvm.script import tir as tir

        @tir.prim_func
        def mm_relu(A: tir.handle, B: tir.handle, C: tir.handle):
          A_1 = tir.match_buffer(A, (8, 8), "float32")
          B_1 = tir.match_buffer(B, (8, 8), "float32")
          C_1 = tir.match_buffer(C, (8, 8), "float32")
          with tir.block("root"):
            tir.reads()
            tir.writes()
            Y = tir.alloc_buffer((8, 8), "float32")
            for i in range(8):
              for j in range(8):
                for k in range(8):
                  with tir.block("Y"):
                    vi = tir.axis.spatial(8, i)
                    vj = tir.axis.spatial(8, j)
                    vk = tir.axis.reduce(8, k)
                    tir.reads(A_1[vi, vk], B_1[vk, vj])
                    tir.writes(Y[vi, vj])
                    with tir.init():
                      Y[vi, vj] = tir.float32(0)
                    Y[vi, vj] = Y[vi, vj] + A_1[vi, vk] * B_1[vk, vj]
            for i in range(8):
              for j in range(8):
                with tir.block("C"):
                  vi = tir.axis.spatial(8, i)
                  vj = tir.axis.spatial(8, j)
                  tir.reads(Y[vi, vj])
                  tir.writes(C_1[vi, vj])
                  C_1[vi, vj] = Y[vi, vj]
        """,
    )


def test_symbolic_shapes_are_declared_and_matched():
    n, m = Var("n", "int64"), SizeVar("m", "int64")
    s, off = Var("s", "int64"), Var("off", "int64")
    a = decl_buffer((n, m), "float32", "A", strides=(s, 1), elem_offset=off, scope="shared")
    k = Var("k", "int64")
    b = decl_buffer((k, 4), "int8", "B", data_alignment=16, offset_factor=2)
    handle = Var("a", "handle")
    func = PrimFunc([handle, k, b], NOTHING, PrimType("int32"), {handle: a}, {"tir.noalias": True})
    same(
        print_script(func),
        """
        # from relaxvm.script import tir as T

        @T.prim_func(private=True)
        def main(a: T.handle, k: T.int64, B: T.handle) -> T.int32:
            T.func_attr({"tir.noalias": True})
            n = T.int64()
            m = T.int64(is_size_var=True)
            s = T.int64()
            off = T.int64()
            A = T.match_buffer(a, (n, m), "float32", strides=(s, 1), elem_offset=off, scope="shared")
            B_1 = T.match_buffer(B, (k, 4), "int8", elem_offset=T.int64(0), align=16, offset_factor=2)
            T.evaluate(0)
        """,
    )


def test_a_plain_buffer_over_a_scalar_parameter_before_it_stays_in_the_signature():
    k = Var("k")
    b = decl_buffer((k,), "float32", "B")
    assert 'def main(k: T.int32, B: T.Buffer((k,), "float32")):' in print_script(
        PrimFunc([k, b], NOTHING)
    )
    assert "T.match_buffer" in print_script(PrimFunc([b, k], NOTHING))


STATEMENTS = [
    (COPY, "B[i] = A[i]"),
    (BufferStore(decl_buffer((), "int32", "S"), const(3), []), "S[()] = 3"),
    (NOTHING, "T.evaluate(0)"),
    (Evaluate(Call("int32", "tir.call_extern", ("f", X))), 'T.call_extern("int32", "f", x)'),
    (For(I, 0, 16, "serial", COPY), "for i in range(16):\n    B[i] = A[i]"),
    (For(I, 2, 16, "serial", COPY), "for i in range(2, 18):\n    B[i] = A[i]"),
    (For(I, 0, X, "parallel", COPY), "for i in T.parallel(x):\n    B[i] = A[i]"),
    (For(I, 0, 4, "vectorized", COPY), "for i in T.vectorized(4):\n    B[i] = A[i]"),
    (For(I, X, 4, "unroll", COPY), "for i in T.unroll(x, x + 4):\n    B[i] = A[i]"),
    (
        For(I, 0, 4, "serial", COPY, None, {"pragma": 1, "names": ["a", const(2)]}),
        'for i in T.serial(4, annotations={"pragma": 1, "names": ["a", T.int32(2)]}):\n    B[i] = '
        "A[i]",
    ),
    (
        For(I, 0, 4, "thread_binding", COPY, IterVar(None, Var("t"), "thread", "threadIdx.x")),
        'for i in T.thread_binding(4, thread="threadIdx.x"):\n    B[i] = A[i]',
    ),
    (While(X < 3, COPY), "while x < 3:\n    B[i] = A[i]"),
    (
        IfThenElse(X < 1, COPY, IfThenElse(X < 2, NOTHING, COPY)),
        "if x < 1:\n    B[i] = A[i]\nelif x < 2:\n    T.evaluate(0)\nelse:\n    B[i] = A[i]",
    ),
    (LetStmt(X, I + 1, Evaluate(X)), "x: T.int32 = i + 1\nT.evaluate(x)"),
    (
        SeqStmt([LetStmt(X, I + 1, Evaluate(X)), COPY]),
        "with T.LetStmt(i + 1) as x:\n    T.evaluate(x)\nB[i] = A[i]",
    ),
    (AssertStmt(X < 3, "too large", COPY), 'assert x < 3, "too large"\nB[i] = A[i]'),
    (
        SeqStmt([AssertStmt(X < 3, "too large", COPY), NOTHING]),
        'with T.Assert(x < 3, "too large"):\n    B[i] = A[i]\nT.evaluate(0)',
    ),
    (AttrStmt(A, "key", const(1), COPY), 'T.attr(A, "key", 1)\nB[i] = A[i]'),
    (
        SeqStmt([AttrStmt("who", "key", X, COPY), NOTHING]),
        'with T.attr("who", "key", x):\n    B[i] = A[i]\nT.evaluate(0)',
    ),
    (
        AttrStmt(
            IterVar(Range.from_min_extent(0, 4), X, 1, "blockIdx.x"),
            "thread_extent",
            const(4),
            NOTHING,
        ),
        'x = T.launch_thread("blockIdx.x", 4)\nT.evaluate(0)',
    ),
    (
        AttrStmt(
            IterVar(Range.from_min_extent(0, 4), X, 1, "vthread"),
            "virtual_thread",
            const(4),
            NOTHING,
        ),
        'x = T.int32()\nT.attr(T.iter_var(x, I.Range(0, 4), "ThreadIndex", "vthread"), '
        '"virtual_thread", 4)\n'
        "T.evaluate(0)",
    ),
]


@pytest.mark.parametrize(
    ("stmt", "text"), STATEMENTS, ids=[t.split("\n")[0] for _, t in STATEMENTS]
)
def test_statement_prints_as(stmt, text):
    assert print_script(stmt) == str(stmt) == text


def test_allocations_are_lines_or_scopes():
    p = Var("p", PointerType(PrimType("float32"), "shared"))
    q = Var("q", PointerType(PrimType("int32")))
    view = decl_buffer((4, 4), "float32", "V", data=p)
    use = Evaluate(BufferLoad(view, (0, 1)))
    inner = DeclBuffer(view, AllocateConst(q, "int32", (2,), (1, -2), use, {"k": 1}))
    alloc = Allocate(p, "float32", (16,), X < 3, inner)
    same(
        print_script(alloc),
        """
        p = T.allocate([16], "float32", "shared", condition=x < 3)
        V = T.decl_buffer((4, 4), "float32", data=p, scope="shared")
        q = T.allocate_const([1, -2], "int32", [2], annotations={"k": 1})
        T.evaluate(V[0, 1])
        """,
    )
    same(
        print_script(SeqStmt([alloc, NOTHING])),
        """
        with T.allocate([16], "float32", "shared", condition=x < 3) as p:
            V = T.decl_buffer((4, 4), "float32", data=p, scope="shared")
            q = T.allocate_const([1, -2], "int32", [2], annotations={"k": 1})
            T.evaluate(V[0, 1])
        T.evaluate(0)
        """,
    )


def test_block_prints_every_part():
    vi, vj, v0 = Var("vi"), Var("vj"), Var("v0")
    s = Var("s")
    sub = decl_buffer((4,), "float32", "sub", strides=(s,))
    match = MatchBufferRegion(sub, BufferRegion(A, [Range.from_min_extent(vi * 4, 4)]))
    own = decl_buffer((2,), "float32", "own")
    block = Block(
        [
            IterVar(Range.from_min_extent(0, 16), vi),
            IterVar(Range.from_min_extent(1, 4), vj, "reduce"),
            IterVar(Range.from_min_extent(0, X), v0, "opaque"),
        ],
        [BufferRegion(A, [Range.from_min_extent(vi * 4, 4)]), BufferRegion.full_region(B)],
        [],
        "update",
        Evaluate(sub[0]),
        None,
        [own],
        [match],
        {"meta": [1, 2.5, True, None, "s"]},
    )
    realize = BlockRealize([I + 1, 2, X], I < 3, block)
    same(
        print_script(For(I, 0, 16, "serial", realize)),
        """
        for i in range(16):
            with T.block("update"):
                vi = T.axis.spatial(16, i + 1)
                vj = T.axis.reduce((1, 5), 2)
                v0 = T.axis.opaque(x, x)
                T.where(i < 3)
                T.reads(A[vi * 4:vi * 4 + 4], B[0:16])
                T.writes()
                T.block_attr({"meta": [1, 2.5, True, None, "s"]})
                own = T.alloc_buffer((2,), "float32")
                s = T.int32()
                sub = T.match_buffer(A[vi * 4:vi * 4 + 4], (4,), "float32", strides=(s,))
                T.evaluate(sub[0])
        """,
    )


def test_grid_stops_where_an_extent_depends_on_an_outer_loop():
    j = Var("j")
    inner = For(j, 0, I + 1, "serial", NOTHING)
    assert print_script(For(I, 0, 4, "serial", inner)).split("\n")[:2] == [
        "for i in range(4):",
        "    for j in range(i + 1):",
    ]


def test_names_are_free_again_after_their_scope():
    i, j = Var("i"), Var("i")
    loops = SeqStmt([For(i, 0, 4, 0, Evaluate(i)), For(j, 0, 4, 0, Evaluate(j))])
    assert print_script(loops).count("for i in range(4):") == 2
    nested = For(i, 0, 4, 1, For(j, 0, 4, 1, Evaluate(i - j)))
    assert "T.evaluate(i - i_1)" in print_script(nested)


def test_a_buffer_nobody_declares_is_declared_over_its_pointer():
    flat = decl_buffer((16,), "float32", "A", data=A.data)
    p = Var("p", PointerType(PrimType("float32")))
    late = decl_buffer((4,), "float32", "L", data=p)
    stranger = decl_buffer((2,), "float32", "S")
    body = SeqStmt(
        [
            BufferStore(flat, 1.0, [3]),
            BufferStore(stranger, 1.0, [0]),
            Allocate(p, "float32", (4,), True, BufferStore(late, 2.0, [0])),
        ]
    )
    same(
        print_script(PrimFunc([A], body)),
        """
        # from relaxvm.script import tir as T

        @T.prim_func(private=True)
        def main(A: T.Buffer((16,), "float32")):
            A_1 = T.Buffer((16,), "float32", data=A.data)
            S = T.Buffer((2,), "float32")
            A_1[3] = T.float32(1)
            S[0] = T.float32(1)
            p = T.allocate([4], "float32", "global")
            L = T.Buffer((4,), "float32", data=p)
            L[0] = T.float32(2)
        """,
    )


def test_variables_of_let_expressions_are_declared_at_the_top():
    func = PrimFunc([A], BufferStore(A, Let(X, const(1), A[X]), [0]))
    assert print_script(func).split("\n")[-2:] == [
        "    x = T.int32()",
        "    A[0] = T.Let(A[x], where={x: 1})",
    ]


def test_fragments_print_by_name():
    assert print_script(A) == 'A: T.Buffer((16,), "float32")'
    assert print_script(BufferRegion.full_region(A)) == "A[0:16]"
    assert print_script(PointerType(PrimType("int8"), "shared")) == 'T.handle("int8", "shared")'
    assert print_script(PrimType("int8")) == "T.int8"
    assert print_script(A.data) == "A"


def test_a_statement_of_many_parts_prints_without_recursion():
    flat = SeqStmt([COPY] * 10_000)
    assert print_script(flat).count("\n") == 9_999
    deep = COPY
    for n in range(3_000):
        deep = LetStmt(Var("x"), const(n), deep)
    text = print_script(deep)
    assert "x_2999: T.int32 = 0" in text
    nest = COPY
    for _ in range(1_200):
        nest = IfThenElse(X < 1, nest)
    assert print_script(nest, indent_spaces=1).count("if ") == 1_200


def test_kernels_of_a_module_call_each_other_by_the_module():
    module = IRModule({"f": PrimFunc([A], NOTHING, attrs={"global_symbol": "f"})})
    call = Evaluate(Call("void", module.get_global_var("f"), (A.data,)))
    module["g"] = PrimFunc([A], call, attrs={"global_symbol": "other"})
    same(
        print_script(module, name="M"),
        """
        # from relaxvm.script import ir as I
        # from relaxvm.script import tir as T

        @I.ir_module
        class M:
            @T.prim_func
            def f(A: T.Buffer((16,), "float32")):
                T.evaluate(0)

            @T.prim_func
            def g(A: T.Buffer((16,), "float32")):
                T.func_attr({"global_symbol": "other"})
                cls = M
                cls.f(A.data)
        """,
    )
