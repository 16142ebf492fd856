"""Loop functions with every kind of node, made by constructors."""

from __future__ import annotations

from relaxvm import tir
from relaxvm.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Map,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PointerType,
    PrimType,
    Ramp,
    Range,
    Select,
    Shuffle,
    SizeVar,
    Sub,
    Var,
    const,
)
from relaxvm.tir import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    Call,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    MatchBufferRegion,
    PrimFunc,
    SeqStmt,
    While,
    decl_buffer,
)

# -- loop functions made of nodes ------------------------------------------------------------------

F32, I32, I64 = "float32", "int32", "int64"
A = decl_buffer((16, 16), F32, "A")
B = decl_buffer((16, 16), I32, "B")
D = decl_buffer((64,), F32, "D")
BITS = decl_buffer((4,), "bool", "bits")
I, J = Var("i"), Var("j")


def func(body, params=(A, B, D, BITS, Var("s"), Var("n", I64), Var("t", F32)), **more):
    """A function whose scalar parameters are called s, n and t."""
    return PrimFunc(params, body, attrs={"global_symbol": "main"}, **more)


S, N, T = Var("s"), Var("n", I64), Var("t", F32)
SCALARS = (A, B, D, BITS, S, N, T)


def holding(*exprs):
    """A function that evaluates each expression."""
    stmts = [Evaluate(e) for e in exprs]
    return func(stmts[0] if len(stmts) == 1 else SeqStmt(stmts), SCALARS)


def scalar_corpus():
    x, size = Var("x"), SizeVar("size")
    p, q = S < 3, T > 0.0
    yield holding(S + 1, S - 1, S * 2, S // 3, S % 4, Div(S, const(2)), Mod(S, const(2)), T / T)
    yield holding(Min(S, const(1)), Max(T, T * 2.0), S == 1, S != 1, S < 1, S <= 1, S > 1, S >= 1)
    yield holding(
        And(p, q), Or(p, And(q, p)), Not(p), Not(And(p, q)), And(p, const(True)), Not(const(False))
    )
    yield holding(Or(Or(p, q), p), And(p, And(q, p)), EQ(p, q), NE(p, const(True)))
    for c in (Add, Sub, Mul, Div, Mod, FloorDiv, FloorMod, Min, Max, EQ, NE, LT, LE, GT, GE):
        yield holding(
            c(const(1), const(2)), c(const(0), S), c(S, const(0)), c(const(1), S), c(S, const(1))
        )
        yield holding(c(const(-1), S), c(S, const(-3)), c(N, const(1, I64)), c(const(0, I64), N))
        if c is not Mod:
            yield holding(c(T, const(0.5)), c(const(1.5), T), c(const(1.0), const(2.0)))
    for dtype in ("int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64"):
        low, high = IntImm(dtype, 0), IntImm(dtype, 2 ** (int(dtype.strip("uint")) - 1) - 1)
        yield holding(low, high, Add(low, high), Cast(dtype, S), Min(Cast(dtype, S), high))
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        values = (0.0, -0.0, 1.0, 0.1, -2.5e-3, 1e4, 65504.0, float("inf"), float("-inf"))
        yield holding(
            *(FloatImm(dtype, v) for v in values), Cast(dtype, T), Cast(I32, FloatImm(dtype, 2.0))
        )
    yield holding(
        IntImm("bool", 1), IntImm(I64, -(2**63)), IntImm("uint64", 2**64 - 1), IntImm(I32, -(2**31))
    )
    yield holding(Select(p, S, const(1)), Select(p, T, const(0.0)), Cast("bool", S), Cast(I32, p))
    ramp = Ramp(S, const(2), 4)
    yield holding(
        ramp,
        Broadcast(T, 4),
        D[ramp],
        Add(ramp, Broadcast(const(1), 4)),
        Select(LT(ramp, Broadcast(S, 4)), D[ramp], Broadcast(T, 4)),
    )
    yield holding(
        Shuffle([Broadcast(T, 2), T], [2, 0]),
        And(LT(ramp, ramp), LT(ramp, ramp)),
        Not(LT(ramp, ramp)),
    )
    yield holding(Let(x, S + 1, x * x), Let(x, S + 1, Let(Var("x"), const(2), x)))
    yield func(LetStmt(size, S, Evaluate(Add(size, LT(S, size).astype(I32)))), SCALARS)
    yield holding(A[S, 3], B[S, B[0, S]], BITS[0], A[S // 2, S % 16])


def call_corpus():
    one = {"float": T, "same": T, "int": S, "bool": T}
    others = {"assume": (S < 1,), "likely": (S < 1,), "ldexp": (T, S)}
    for name, intrinsic in sorted(tir.INTRINSICS.items()):
        if intrinsic.arity is not None and intrinsic.result in one:
            args = others.get(name, (one[intrinsic.result],) * intrinsic.arity)
            dtype = "bool" if intrinsic.result == "bool" else args[0].dtype
            yield holding(Call(dtype, f"tir.{name}", args))
    yield holding(
        Call(I32, "tir.if_then_else", (S < 1, S, const(1))),
        Call(I32, "tir.if_then_else", (S < 1, const(2), const(1))),
        Call(I32, "tir.reinterpret", (T,)),
        Call(F32, "tir.undef", ()),
        Call("float32x2", "tir.vectorlow", (Broadcast(T, 4),)),
        Call(I32, "tir.call_extern", ("f", S, D.data)),
        Call(F32, "tir.call_pure_extern", ("f",)),
        Call("handle", "tir.address_of", (D[S],)),
        Call(I32, "tir.truncdiv", (const(1), const(2))),
        Call(I32, "tir.bitwise_and", (const(1), const(2))),
        Call(F32, "tir.ret", (T,)),
        Call(I32, "tir.ret", (const(0),)),
        Call("handle", "tir.tvm_access_ptr", (T, D.data, S, const(4), const(1))),
    )


def stmt_corpus():
    x, store = Var("x"), BufferStore(A, 1.0, [I, J])
    nothing = Evaluate(const(0))
    yield func(For(I, 0, 16, "serial", For(J, 0, 16, "serial", store)))
    yield func(For(I, 0, 16, "serial", For(J, 0, I + 1, "serial", store)))
    yield func(For(I, 2, 5, "parallel", For(J, I, 4, "vectorized", store)))
    yield func(For(I, S, S * 2, "unroll", For(J, S + 1, N.astype(I32), "serial", store)), SCALARS)
    yield func(For(I, S - 1, S + 1, "serial", For(J, S * S, 3, "serial", store)), SCALARS)
    big = Var("k", I64)
    yield func(For(big, const(0, I64), N, "serial", BufferStore(D, 2.0, [big])), SCALARS)
    yield func(For(big, const(1, I64), N + 2, "serial", BufferStore(D, 2.0, [big])), SCALARS)
    notes = {
        "pragma_unroll": 1,
        "s": "x",
        "f": 0.5,
        "b": True,
        "l": [1, [2, "a"]],
        "i": const(3),
        "m": {"k": None},
    }
    for kind in ("serial", "parallel", "vectorized", "unroll"):
        yield func(For(I, 0, 16, kind, BufferStore(D, 1.0, [I]), None, notes))
    thread = IterVar(None, Var("", I32), "thread", "threadIdx.x")
    yield func(For(I, 0, 16, "thread_binding", BufferStore(D, 1.0, [I]), thread))
    yield func(While(D[0] < 3.0, SeqStmt([BufferStore(D, D[0] + 1.0, [0]), nothing])))
    yield func(
        IfThenElse(S < 1, nothing, IfThenElse(S < 2, nothing, IfThenElse(S < 3, nothing))), SCALARS
    )
    yield func(IfThenElse(const(True), BufferStore(D, 1.0, [0]), BufferStore(D, 2.0, [0])))
    yield func(LetStmt(x, S + 1, Evaluate(x)), SCALARS)
    yield func(
        SeqStmt([LetStmt(x, S + 1, Evaluate(x)), LetStmt(Var("x"), S + 2, nothing)]), SCALARS
    )
    pointer = Var("p", PointerType(PrimType(F32), "global"))
    use = Evaluate(Call(I32, "tir.call_extern", ("f", pointer)))
    make = Call("handle", "tir.address_of", (D[0],))
    yield func(SeqStmt([LetStmt(pointer, make, use), nothing]))
    yield func(LetStmt(pointer, make, use))
    yield func(AssertStmt(S < 3, 'the "message"', nothing), SCALARS)
    yield func(SeqStmt([AssertStmt(S < 3, "it's", nothing), nothing]), SCALARS)
    yield func(AttrStmt(A, "buffer_key", const(1), AttrStmt("text", "key", S, nothing)), SCALARS)
    yield func(SeqStmt([AttrStmt(D.data, "key", const(1), nothing), nothing]))
    axis = IterVar(Range.from_min_extent(0, 4), Var("bx"), "thread", "blockIdx.x")
    yield func(AttrStmt(axis, "thread_extent", const(4), Evaluate(axis.var + 1)))
    yield func(
        SeqStmt([AttrStmt(axis, "thread_extent", const(4), Evaluate(axis.var + 1)), nothing])
    )
    yield func(AttrStmt(axis, "virtual_thread", const(4), Evaluate(axis.var + 1)))
    view = decl_buffer((4, 4), F32, "V", data=pointer)
    body = BufferStore(view, 1.0, [0, 1])
    for condition in (const(True), S < 3):
        alloc = Allocate(
            pointer,
            F32,
            (S, 4),
            condition,
            DeclBuffer(view, body),
            {"k": 1},
        )
        yield func(alloc, SCALARS)
        yield func(SeqStmt([alloc, nothing]), SCALARS)
    table = Var("table", PointerType(PrimType(I32)))
    seen = decl_buffer((2, 2), I32, "seen", data=table)
    constants = AllocateConst(
        table, I32, (2, 2), (1, -2, 3, 4), DeclBuffer(seen, Evaluate(seen[0, 1]))
    )
    yield func(constants)
    yield func(SeqStmt([constants, nothing]))
    floats = Var("floats", PointerType(PrimType("float64")))
    yield func(AllocateConst(floats, "float64", (3,), (0.1, float("inf"), -0.0), Evaluate(floats)))
    yield func(
        SeqStmt(
            [
                nothing,
                DeclBuffer(decl_buffer((8,), F32, "E", data=D.data, elem_offset=const(8)), nothing),
                nothing,
            ]
        )
    )
    flat = decl_buffer((256,), F32, "A", data=A.data)
    yield func(SeqStmt([BufferStore(flat, 1.0, [3]), BufferStore(A, 1.0, [0, 3])]))
    vector = decl_buffer((4,), "float32x4", "W", data=D.data)
    yield func(DeclBuffer(vector, BufferStore(vector, Broadcast(T, 4), [0])), SCALARS)
    yield func(BufferStore(D, D[Ramp(0, 1, 4)] * Broadcast(const(2.0), 4), [Ramp(4, 1, 4)]))
    yield func(BufferStore(BITS, const(True), [0]))
    yield func(BufferStore(B, const(1), [0, 0]))
    yield PrimFunc(
        [],
        Evaluate(Call(I32, "tir.ret", (const(0),))),
        PrimType(I32),
        attrs={"global_symbol": "main"},
    )
    yield PrimFunc(
        [D],
        Evaluate(const(0)),
        attrs=Map({"tir.noalias": True, "depth": 2, "names": ["a"], "f": 0.25}),
    )


def buffer_corpus():
    n, m, k = Var("n", I64), SizeVar("m", I64), Var("k")
    s0, off = Var("s0", I64), Var("off", I64)
    nothing = Evaluate(const(0))
    handle = Var("a", "handle")
    for buffer in (
        decl_buffer((n, m), F32, "A"),
        decl_buffer((n, n * 2 + 1, 4), F32, "A"),
        decl_buffer((n, 4), "int8", "A", strides=(s0, const(1, I64))),
        decl_buffer((n,), F32, "A", elem_offset=off, offset_factor=4),
        decl_buffer((4,), F32, "A", offset_factor=4),
        decl_buffer((4,), F32, "A", scope="shared", data_alignment=16),
        decl_buffer((4, 4), F32, "A", axis_separators=(1,)),
        decl_buffer((4, 4), F32, "A", buffer_type="auto_broadcast"),
        decl_buffer((), F32, "A"),
        decl_buffer((4,), "bfloat16", "buffer"),
    ):
        body = Evaluate(buffer[(0,) * buffer.ndim])
        yield PrimFunc([handle], body, None, {handle: buffer}, {"global_symbol": "main"})
    yield func(nothing, [k, decl_buffer((k, 4), F32, "A")])
    yield func(nothing, [decl_buffer((k, 4), F32, "A"), k])
    yield func(
        nothing,
        [
            decl_buffer((n,), F32, "A"),
            decl_buffer((n,), F32, "A"),
            decl_buffer((n + 1,), F32, "for"),
        ],
    )
    yield func(
        nothing, [SizeVar("k"), Var("p", PointerType(PrimType(F32), "global")), Var("h", "handle")]
    )


def block_corpus():
    vi, vj, vk = Var("vi"), Var("vj"), Var("vk")
    axes = [
        IterVar(Range.from_min_extent(0, 16), vi),
        IterVar(Range.from_min_extent(0, 16), vj),
        IterVar(Range.from_min_extent(0, 16), vk, "reduce"),
    ]
    point = [Range.from_min_extent(vi, 1), Range.from_min_extent(vj, 1)]
    k = Var("k")
    block = Block(
        axes,
        [BufferRegion(A, [Range.from_min_extent(vi, 1), Range.from_min_extent(vk, 1)])],
        [BufferRegion(B, point)],
        "mm",
        BufferStore(B, B[vi, vj] + A[vi, vk].astype(I32), [vi, vj]),
        BufferStore(B, const(0), [vi, vj]),
        annotations={"schedule_rule": "x", "tile": [4, 4]},
    )

    def loops(realize):
        return For(I, 0, 16, 0, For(J, 0, 16, 0, For(k, 0, 16, 0, realize)))

    def root(body, **more):
        return BlockRealize([], True, Block([], [], [], "root", body, **more))

    full = loops(BlockRealize([I, J, k], True, block))
    yield func(root(full))
    yield func(root(loops(BlockRealize([J, I, k], I < 3, block))))
    yield func(root(loops(BlockRealize([I + J, J, const(0)], True, block))))
    own = decl_buffer((16, 16), F32, "own")
    yield func(root(SeqStmt([full, BufferStore(own, 1.0, [0, 0])]), alloc_buffers=[own]))
    yield func(root(Evaluate(own[0, 0]), alloc_buffers=[own]))
    yield func(root(full, annotations={"a": 1}))
    cut = tir.IndexMap.from_func(
        lambda i: (i // 4, i % 4), inverse_index_map=lambda a, b: a * 4 + b
    )
    yield func(root(full)).with_attr("layout", cut)
    yield func(BlockRealize([], True, Block([], [BufferRegion.full_region(A)], [], "root", full)))
    yield func(BlockRealize([], True, Block([], [], [], "other", full)))
    yield func(root(Evaluate(const(0))))
    big = Var("i", I64)
    wide = Var("vi", I64)
    long = Block(
        [IterVar(Range.from_min_extent(const(0, I64), N), wide)],
        [],
        [BufferRegion(D, [Range.from_min_extent(wide, const(1, I64))])],
        "w",
        BufferStore(D, 0.0, [wide]),
    )
    yield func(root(For(big, const(0, I64), N, 0, BlockRealize([big], True, long))), SCALARS)
    # Axes that begin elsewhere, other kinds, odd regions, views and buffers of the block.
    s0, off = Var("s0"), Var("off")
    sub = decl_buffer((4, 4), F32, "sub", strides=(s0, const(1)), elem_offset=off)
    region = BufferRegion(
        A, [Range.from_min_extent(vi * 4, 4), Range.from_min_extent(vj, const(4))]
    )
    odd = Block(
        [
            IterVar(Range.from_min_extent(2, 6), vi),
            IterVar(Range.from_min_extent(S, S * 2), vj, "ordered"),
            IterVar(Range.from_min_extent(0, 3), vk, "opaque"),
        ],
        [
            region,
            BufferRegion(D, [Range.from_min_extent(S + 1, S * 3)]),
            BufferRegion(D, [Range.from_min_extent(0, 64)]),
        ],
        [BufferRegion(B, [Range.from_min_extent(0, S), Range.from_min_extent(1, 3)])],
        "odd",
        BlockRealize([], S < 2, Block([], [], [], "inner", BufferStore(sub, 1.0, [0, 0]))),
        match_buffers=[MatchBufferRegion(sub, region)],
        alloc_buffers=[decl_buffer((2,), F32, "tmp", scope="local")],
    )
    yield func(root(loops(BlockRealize([I, J, k], S > 1, odd))), SCALARS)


TIR = [
    *scalar_corpus(),
    *call_corpus(),
    *stmt_corpus(),
    *buffer_corpus(),
    *block_corpus(),
]
