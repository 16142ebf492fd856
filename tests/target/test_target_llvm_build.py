"""Machine code of whole functions: statements, memory, calls, vectors, other machines, texts."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm.base import CodegenError, VMValueError
from relaxvm.ir import Call, GlobalVar, IRModule, PrimType, Ramp, Var, const
from relaxvm.runtime import Module
from relaxvm.script import from_source
from relaxvm.target import Target, build, codegen, compile_prim_funcs
from relaxvm.target.llvm import generate_llvm
from relaxvm.target.llvm.intrinsics import LLVM_INTRINSIC_IDS, LLVM_INTRINSICS
from relaxvm.tir import (
    Allocate,
    BufferStore,
    Evaluate,
    For,
    LetStmt,
    PrimFunc,
    call_extern,
    call_llvm_pure_intrin,
    decl_buffer,
    interpret,
    ret,
    seq,
    sqrt,
)


def parse(text):
    return from_source("# from relaxvm.script import tir as T\n@T.prim_func\n" + text)


def both(fn, *args):
    """Arrays after the interpreter and after machine code; asserts they agree."""
    kept = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    interpret(fn, *kept)
    build(fn)(*args)
    for got, want in zip(args, kept):
        if isinstance(got, np.ndarray):
            np.testing.assert_array_equal(got, want)
    return args


MATMUL = """
def mm(A: T.Buffer((8, 16), "float32"), B: T.Buffer((16, 4), "float32"), C: T.Buffer((8, 4),
"float32")):
    T.func_attr({"global_symbol": "mm", "tir.noalias": True})
    for i, j, k in T.grid(8, 4, 16):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def test_matmul_by_name_and_by_entry():
    rt = build(parse(MATMUL), target="llvm")
    a, b = np.random.default_rng(0).random((2, 64), dtype="float32")
    a, b = np.tile(a, 2).reshape(8, 16), b.reshape(16, 4)
    c, d = np.zeros((8, 4), "float32"), np.zeros((8, 4), "float32")
    rt["mm"](a, b, c)
    rt(a, b, d)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    assert (c == d).all()


def test_a_module_of_functions_and_the_name_argument():
    mod = IRModule({"one": parse(MATMUL), "two": parse(MATMUL)})
    rt = build(mod)
    assert isinstance(rt, Module)
    assert set(rt.section.names) == {"one", "two"}
    assert build(parse(MATMUL), name="other").section.names == ("other",)


def test_while_assert_and_early_return():
    fn = parse("""
def f(A: T.Buffer((4,), "int32"), n: T.int32):
    while A[0] * A[0] < n:
        A[0] = A[0] + 1
    assert n < 1000, "n is too large"
    if n == 9:
        T.evaluate(T.ret(0))
    A[1] = 7
""")
    a = np.zeros(4, "int32")
    rt = build(fn)
    rt(a, 50)
    assert list(a) == [8, 7, 0, 0]
    a[:] = 0
    rt(a, 9)
    assert list(a) == [3, 0, 0, 0]
    with pytest.raises(VMValueError, match="n is too large"):
        rt(a, 2000)


def test_local_memory_small_large_and_symbolic():
    fn = parse("""
def f(A: T.Buffer((4,), "float32"), n: T.int32):
    small = T.alloc_buffer((4,), "float32")
    large = T.alloc_buffer((100000,), "float32")
    sized = T.alloc_buffer((n, 3), "float32")
    for i in range(4):
        small[i] = A[i] + T.float32(1)
        large[i * 1000] = small[i] * T.float32(2)
    for i in range(n):
        sized[i, 2] = large[i * 1000]
    for i in range(n):
        A[i] = sized[i, 2]
""")
    a, _ = both(fn, np.arange(4, dtype="float32"), 3)
    assert list(a) == [2, 4, 6, 3]


@pytest.mark.parametrize(
    ("scope", "size", "allocated"), [("local", 384, 0), ("global", 384, 1), ("local", 2048, 1)]
)
def test_tiles_that_are_to_be_registers_are_on_the_stack_beside_what_fills_it(
    scope, size, allocated
):
    fn = from_source(f"""
@T.prim_func
def main(A: T.Buffer((4096,), "float32"), B: T.Buffer(({size},), "float32")):
    packed = T.alloc_buffer((4096,), "float32")
    tile = T.alloc_buffer(({size},), "float32", scope="{scope}")
    for i in range(4096):
        packed[4095 - i] = A[i]
    for j in range({size}):
        tile[j] = T.float32(0)
    for i in range({4096 // size}):
        for j in range({size}):
            tile[j] = tile[j] + packed[i * {size} + j]
    for j in range({size}):
        B[j] = tile[j]
""")
    rt = build(fn)
    a = np.arange(4096, dtype="float32")
    b = np.zeros(size, "float32")
    rt["main"](a, b)
    whole = 4096 // size * size
    np.testing.assert_array_equal(b, a[::-1][:whole].reshape(-1, size).sum(0))
    assert rt.get_source("ll").count("call noalias ptr @malloc") == allocated


def test_memory_that_cannot_be_had_is_a_failure():
    fn = parse("""
def f(A: T.Buffer((4,), "float32"), n: T.int64):
    B = T.alloc_buffer((n, n), "float32")
    for i in range(n):
        B[i, n - 1 - i] = A[0] + T.Cast("float32", i)
    for i in range(n):
        A[1] = A[1] + B[n - 1 - i, i]
""")
    rt = build(fn)
    a = np.ones(4, "float32")
    with pytest.raises(VMValueError, match="out of memory"):
        rt(a, 1 << 40)
    with pytest.raises(VMValueError, match="out of memory"):
        rt(a, 1 << 29)
    rt(a, 4)


def test_memory_is_freed_when_an_assertion_leaves():
    fn = parse("""
def f(A: T.Buffer((4,), "float32"), n: T.int32):
    for i in range(4):
        with T.block("b"):
            B = T.alloc_buffer((50000000,), "float32")
            for j in range(n):
                B[j] = A[0]
            assert n < 1, "always"
            A[0] = B[n]
""")
    rt = build(fn)
    for _ in range(200):
        with pytest.raises(VMValueError, match="always"):
            rt(np.ones(4, "float32"), 5)


def test_constant_memory():
    from relaxvm.tir import AllocateConst, DeclBuffer

    for dtype, data in (
        ("float32", (1.5, 2.5, -3.0)),
        ("int8", (1, -2, 3)),
        ("float16", (0.5, 1.0, 65504.0)),
        ("bool", (1, 0, 1)),
        ("bfloat16", (1.0, 2.0, 3.140625)),
    ):
        t = decl_buffer((3,), dtype, "t")
        out = decl_buffer((3,), "float32", "out")
        i = Var("i")
        body = For(i, 0, 3, "serial", BufferStore(out, t[i].astype("float32"), (i,)))
        fn = PrimFunc(
            [out],
            AllocateConst(t.data, dtype, (3,), data, DeclBuffer(t, body)),
            attrs={"global_symbol": "f"},
        )
        (got,) = both(fn, np.zeros(3, "float32"))
        assert list(got) == list(data)


def test_a_store_to_constant_memory_is_refused():
    from relaxvm.tir import AllocateConst, DeclBuffer

    t = decl_buffer((1,), "int32", "t")
    body = DeclBuffer(t, BufferStore(t, const(1), (0,)))
    fn = PrimFunc(
        [], AllocateConst(t.data, "int32", (1,), (5,), body), attrs={"global_symbol": "f"}
    )
    with pytest.raises(CodegenError, match="f: store to t, which is constant"):
        build(fn)


def test_functions_of_a_module_call_each_other():
    x = Var("x", "float32")
    square = PrimFunc([x], Evaluate(ret(x * x)), PrimType("float32"))
    g = GlobalVar("square")
    a, h = decl_buffer((4,), "float32", "a"), Var("h", "handle")
    i = Var("i")
    scale = PrimFunc(
        [h],
        For(i, 0, 4, "serial", BufferStore(a, Call("float32", g, (a[i],)) + 1.0, (i,))),
        None,
        {h: a},
        {"global_symbol": "scale"},
    )
    gs = GlobalVar("scale")
    b, hb = decl_buffer((4,), "float32", "b"), Var("h", "handle")
    main = PrimFunc(
        [hb], Evaluate(Call("int32", gs, (b.data,))), None, {hb: b}, {"global_symbol": "main"}
    )
    mod = IRModule({g: square, gs: scale, "main": main})
    rt = build(mod)
    assert set(rt.section.names) == {"scale", "main"}
    v = np.array([1, 2, 3, 4], "float32")
    want = v.copy()
    interpret(main, want, module=mod)
    rt["main"](v)
    assert list(v) == list(want) == [2, 5, 10, 17]


def test_a_failure_in_a_callee_reaches_the_caller():
    n = Var("n", "int32")
    inner = parse("""
def inner(n: T.int32):
    assert n < 5, "n is not below five"
    T.evaluate(0)
""")
    g = GlobalVar("inner")
    a = decl_buffer((1,), "int32", "a")
    outer = PrimFunc(
        [a, n],
        seq(Evaluate(Call("int32", g, (n,))), BufferStore(a, const(1), (0,))),
        attrs={"global_symbol": "o"},
    )
    rt = build(IRModule({g: inner, "outer": outer}))
    out = np.zeros(1, "int32")
    rt["outer"](out, 4)
    assert out[0] == 1
    out[0] = 0
    with pytest.raises(VMValueError, match="outer: assertion failed: n is not below five"):
        rt["outer"](out, 6)
    assert out[0] == 0


def test_recursion_among_loop_functions_is_refused():
    g = GlobalVar("f")
    n = Var("n", "int32")
    fn = PrimFunc([n], Evaluate(Call("int32", g, (n,))))
    with pytest.raises(CodegenError, match="in a circle"):
        compile_prim_funcs(IRModule({g: fn}))


def test_vector_statements():
    for lanes in (2, 4, 7, 64):
        a, b = decl_buffer((lanes * 2,), "float32", "a"), decl_buffer((lanes * 2,), "float32", "b")
        near, far = Ramp(0, 1, lanes), Ramp(1, 2, lanes)
        body = seq(
            BufferStore(b, a[near] * 2.0, (near,)),
            BufferStore(b, sqrt(a[far]) + b[near], (Ramp(lanes, 1, lanes),)),
            BufferStore(b, const(1.0, "float32"), (Ramp(2 * lanes - 1, -2, lanes),)),
        )
        fn = PrimFunc([a, b], body, attrs={"global_symbol": "f"})
        both(fn, np.arange(lanes * 2, dtype="float32"), np.zeros(lanes * 2, "float32"))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float64"])
def test_vectorized_loops_of_every_storage(dtype):
    from target_helpers import as_argument, edge_values

    values = edge_values(dtype)[:2] if dtype == "bool" else edge_values(dtype)
    n = len(values) // 2 * 2
    fn = parse(f"""
def f(A: T.Buffer(({n},), "{dtype}"), B: T.Buffer(({n},), "{dtype}"), C: T.Buffer(({n},), "int32")):
    for i in T.vectorized({n}):
        B[i] = A[i]
        C[i] = T.Cast("int32", A[i]) // 3 + i
""")
    a = values[:n].copy()
    want, got = (
        [a.copy(), np.zeros_like(a), np.zeros(n, "int32")],
        [a.copy(), np.zeros_like(a), np.zeros(n, "int32")],
    )
    interpret(fn, *want)
    given = [as_argument(x, d) for x, d in zip(got, (dtype, dtype, "int32"))]
    build(fn)(*given)
    np.testing.assert_array_equal(getattr(given[1], "array", given[1]), want[1])
    np.testing.assert_array_equal(given[2], want[2])


def test_extern_functions_are_looked_up_when_compiling():
    a = decl_buffer((1,), "float64", "a")

    def calls(name):
        return PrimFunc(
            [a],
            BufferStore(a, call_extern("float64", name, a[0]), (0,)),
            attrs={"global_symbol": "f"},
        )

    v = np.array([8.0])
    build(calls("cbrt"))(v)
    assert v[0] == 2
    with pytest.raises(CodegenError, match="no C function named 'no_such_function'"):
        build(calls("no_such_function"))


def test_llvm_intrinsics_by_name_are_a_known_list():
    a = decl_buffer((3,), "float32", "a")

    def calls(name, *args):
        value = call_llvm_pure_intrin("float32", name, *args)
        return PrimFunc([a], BufferStore(a, value, (0,)), attrs={"global_symbol": "f"})

    v = np.array([2, 3, 4], "float32")
    build(calls("llvm.fma", const(3, "uint32"), a[0], a[1], a[2]))(v)
    assert v[0] == 10
    build(calls("llvm.maxnum.f32", a[0], a[1]))(v)
    assert v[0] == 10
    for bad in ("llvm.trap", "llvm.nothing", "memcpy"):
        with pytest.raises(CodegenError, match="is not supported"):
            build(calls(bad, a[0]))
    with pytest.raises(CodegenError, match="takes 3 arguments"):
        build(calls("llvm.fma", a[0]))


def test_llvm_intrinsics_by_number():
    number = codegen.llvm_lookup_intrinsic_id("llvm.fma")
    assert number > 0
    assert codegen.llvm_get_intrinsic_name(number) == "llvm.fma"
    assert codegen.llvm_lookup_intrinsic_id("llvm.trap") == 0
    assert codegen.llvm_get_intrinsic_name(1) == ""
    assert codegen.llvm_version_major() >= 15
    a = decl_buffer((3,), "float32", "a")
    for named in (number, const(number, "uint32")):
        value = call_llvm_pure_intrin("float32", named, const(3, "uint32"), a[0], a[1], a[2])
        v = np.array([2, 3, 4], "float32")
        build(PrimFunc([a], BufferStore(a, value, (0,)), attrs={"global_symbol": "f"}))(v)
        assert v[0] == 10
    store = BufferStore(a, call_llvm_pure_intrin("float32", 1, a[0]), (0,))
    with pytest.raises(CodegenError, match="is not supported"):
        build(PrimFunc([a], store, attrs={"global_symbol": "f"}))


def test_numbers_of_llvm_intrinsics_are_distinct():
    assert len(LLVM_INTRINSIC_IDS) == len(LLVM_INTRINSICS)


def test_errors_name_the_function_and_the_statement():
    a = decl_buffer((1 << 14,), "float32", "a")
    i = Ramp(0, 1, 512)
    fn = PrimFunc([a], BufferStore(a, a[i] + 1.0, (i,)), attrs={"global_symbol": "wide"})
    with pytest.raises(
        CodegenError, match=r"(?s)wide: a vector of 512 lanes.*in statement BufferStore"
    ):
        build(fn)


def test_parameters_that_cannot_be_passed():
    with pytest.raises(CodegenError, match="bare handle"):
        build(PrimFunc([Var("p", "handle")], Evaluate(const(0)), attrs={"global_symbol": "f"}))
    n = Var("n", "int32")
    a = decl_buffer((n + 1,), "float32", "a")
    with pytest.raises((CodegenError, ValueError), match="n"):
        build(PrimFunc([a], BufferStore(a, const(1.0), (0,)), attrs={"global_symbol": "f"}))


def test_the_same_input_gives_the_same_text():
    mod = IRModule({"b": parse(MATMUL), "a": parse(MATMUL)})
    again = IRModule({"b": parse(MATMUL), "a": parse(MATMUL)})
    assert generate_llvm(mod) == generate_llvm(again)
    assert compile_prim_funcs(mod).native[0].object == compile_prim_funcs(again).native[0].object
    assert compile_prim_funcs(mod).portable == compile_prim_funcs(again).portable


@pytest.mark.parametrize(
    ("value", "count", "wide"),
    [
        ("T.gelu(A[i])", 4096, True),
        ("T.exp(A[i])", 4096, True),
        ("T.exp(A[i])", 48, False),
        ("A[i] * A[i] + A[i]", 4096, False),
    ],
)
def test_long_loops_that_compute_ask_for_wide_vectors(value, count, wide):
    text = f"""
def f(A: T.Buffer(({count},), "float32"), B: T.Buffer(({count},), "float32")):
    T.func_attr({{"global_symbol": "f", "tir.noalias": True}})
    for i in range({count}):
        B[i] = {value}
"""
    assert ('"prefer-vector-width"="512"' in generate_llvm(IRModule({"f": parse(text)}))) == wide


@pytest.mark.parametrize(("inner", "around"), [("9", True), ("n", True), ("8", False)])
def test_llvm_writes_out_no_loop_around_one_that_stays(inner, around):
    text = f"""
@T.prim_func(private=True)
def f(A: T.Buffer((4, 9), "float32"), n: T.int64, B: T.Buffer((4, 9), "float32")):
    for i, j in T.grid(4, {inner}):
        B[i, j] = A[i, j]
"""
    llvm = generate_llvm(IRModule({"f": parse(text)}))
    assert llvm.count(", !llvm.loop ") == llvm.count('!"llvm.loop.unroll.disable"') == around


def test_texts_can_be_read():
    rt = build(parse(MATMUL))
    assert "define" in rt.get_source("llvm")
    assert "relaxvm_kernel_mm" in rt.get_source("asm")


@pytest.mark.parametrize(
    ("triple", "machine"),
    [("aarch64-linux-gnu", 183), ("riscv64-linux-gnu", 243), ("x86_64-linux-gnu", 62)],
)
def test_other_machines_get_objects(triple, machine):
    section = compile_prim_funcs(IRModule({"mm": parse(MATMUL)}), Target(f"llvm -mtriple={triple}"))
    (code,) = section.native
    assert code.triple == triple
    assert code.object[:4] == b"\x7fELF"
    assert int.from_bytes(code.object[18:20], "little") == machine


def test_a_machine_llvm_does_not_know_is_refused():
    with pytest.raises(CodegenError, match="no code generator for the triple"):
        compile_prim_funcs(IRModule({"mm": parse(MATMUL)}), "llvm -mtriple=pdp11-unknown-unix")


def test_half_precision_without_hardware_support():
    from target_helpers import assert_same, edge_values

    fn = parse("""
def f(A: T.Buffer((64,), "float16"), B: T.Buffer((64,), "float16"), C: T.Buffer((64,), "float32")):
    for i in range(64):
        B[i] = A[i] * T.float16(1.001)
        C[i] = T.Cast("float32", A[i])
""")
    values = np.resize(edge_values("float16"), 64)
    text = generate_llvm(IRModule({"f": fn}), "llvm -mcpu=x86-64")
    assert "half" not in text
    want_b, got_b = np.zeros(64, "float16"), np.zeros(64, "float16")
    want_c, got_c = np.zeros(64, "float32"), np.zeros(64, "float32")
    interpret(fn, values.copy(), want_b, want_c)
    build(fn, "llvm -mcpu=x86-64")(values.copy(), got_b, got_c)
    assert_same(got_b, want_b, "float16")
    assert_same(got_c, want_c, "float32")


def test_optimisation_levels_agree():
    a, b = (
        np.random.default_rng(0).random((8, 16), dtype="float32"),
        np.random.default_rng(1).random((16, 4), dtype="float32"),
    )
    results = []
    for level in range(4):
        c = np.zeros((8, 4), "float32")
        build(parse(MATMUL), f"llvm -opt-level={level}")(a, b, c)
        results.append(c)
    assert all((c == results[0]).all() for c in results)


def test_long_functions_and_deep_expressions():
    n = 1000
    a = decl_buffer((n,), "float32", "a")
    total = a[0]
    for i in range(1, n):
        total = total + a[i]
    shared = a[0]
    for _ in range(60):
        shared = shared + shared
    lets = BufferStore(a, shared, (2,))
    for k in range(500):
        lets = LetStmt(Var(f"x{k}", "float32"), a[k] + 1.0, lets)
    body = seq(
        BufferStore(a, total, (1,)), lets, *[BufferStore(a, a[i] + 1.0, (i,)) for i in range(3, n)]
    )
    fn = PrimFunc([a], body, attrs={"global_symbol": "f"})
    v = np.ones(n, "float32")
    build(fn, "llvm -opt-level=0")(v)
    assert v[1] == n
    assert v[2] == 2.0**60
    assert (v[3:] == 2).all()


def test_unused_allocations_of_no_elements():
    a = decl_buffer((1,), "float32", "a")
    b = decl_buffer((0,), "float32", "b")
    fn = PrimFunc(
        [a],
        Allocate(b.data, "float32", (0,), const(True), BufferStore(a, const(2.0), (0,))),
        attrs={"global_symbol": "f"},
    )
    v = np.zeros(1, "float32")
    build(fn)(v)
    assert v[0] == 2


def test_what_build_does_not_take():
    with pytest.raises(CodegenError, match="wanted a PrimFunc or an IRModule"):
        build("main")
    with pytest.raises(CodegenError, match="no functions"):
        build(IRModule())
