"""The C text itself: readable, of bounded size, and unharmed by any name."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest
from c_library import COMPILER, STRICT, compile_library, needs_compiler

import relaxvm as tvm
from relaxvm import tir
from relaxvm.base import CodegenError
from relaxvm.ir import IRModule, Var, const
from relaxvm.script import tir as T
from relaxvm.target import Target, compile_kernels
from relaxvm.target.c.text import comment, identifier, string
from relaxvm.tir import AssertStmt, BufferStore, For, PrimFunc, decl_buffer

ELSEWHERE = "c -mtriple=aarch64-linux-gnu"
HOSTILE = (
    'a"b', "a'b", "*/ int x; /*", "??/", "int", "restrict", "1st", "", "ü", "名", "a\nb", "a\\",
    "__FILE__", "NULL", "INT_MAX", "relaxvm_inner_f", "lane", "expf", "memcpy", "errno", "x" * 5000,
    "M_PI", "a b", "main", "I", "t1", "result", "/* */", "exp", "max_f32", "//", "%s", "\0",
    "uint8_t", "class", "new", "xor",
)  # fmt: skip


def sources(functions):
    return compile_kernels(IRModule(functions), ELSEWHERE).sources


def compiles(files, folder):
    """Compile the files, with every warning an error."""
    for name, text in files.items():
        (folder / name).write_text(text)
    names = [name for name in files if name.endswith(".c")]
    command = [*COMPILER, *STRICT, "-Werror=comment", "-c", *names]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[:3000]


def copy_of(name, dtype="float32", message="fine"):
    """B[i] = A[i] * A[i] where everything is called `name`."""
    n, i = Var(name, "int64"), Var(name, "int64")
    a, b = decl_buffer((n,), dtype, name), decl_buffer((n,), dtype, name)
    store = BufferStore(b, a[i] * a[i], (i,))
    check = AssertStmt(n < 1000, message or "?", store)
    handles = [Var(name, "handle"), Var(name, "handle")]
    attrs = {"global_symbol": "f", "tir.noalias": True}
    loop = For(i, const(0, "int64"), n, "serial", check)
    return PrimFunc(handles, loop, None, dict(zip(handles, (a, b))), attrs)


@needs_compiler
def test_no_name_breaks_out_of_the_text(tmp_path):
    # A NUL is refused wherever kernels have names.
    names = [name for name in HOSTILE if "\0" not in name]
    functions = {f"f{k}": copy_of(name, message=name) for k, name in enumerate(names)}
    functions |= {name: copy_of("a") for name in names if name and len(name) < 200}
    compiles(sources(functions).files, tmp_path)


def test_names_comments_and_strings_are_plain_c():
    for name in HOSTILE:
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,80}", identifier(name)), name
        assert not re.search(r"\*/|/\*|\?\?|[^ -~]", comment(name)), name
        assert re.fullmatch(r'"(?:[^"\\?\n]|\\[0-7]{3})*"', string(name)), name


def test_the_same_input_gives_the_same_text():
    first, second = (sources({"f": copy_of("a")}).files for _ in range(2))
    assert first == second


@needs_compiler
def test_buffers_may_be_called_like_functions_that_the_code_calls(tmp_path):
    functions = {}
    for name in (
        "exp",
        "expf",
        "relaxvm_expf",
        "relaxvm_tanhf",
        "choose_f32",
        "max_f32",
        "to_f16",
        "add_i32",
        "div_i64",
        "sqrt",
    ):
        a, b = decl_buffer((4,), "float64", name), decl_buffer((4,), "float16", f"{name}_")
        i = Var(name, "int64")
        value = tir.cast("float32", tir.Max(a[i], const(0.5, "float64")))
        value = tir.cast("float16", tir.exp(tir.tanh(tir.sqrt(value))))
        store = BufferStore(b, value, (tir.truncmod(i * i * i, i),))
        handles = [Var(name, "handle"), Var(name, "handle")]
        loop = For(i, const(0, "int64"), const(4, "int64"), "serial", store)
        attrs = {"global_symbol": name}
        functions[name] = PrimFunc(handles, loop, None, dict(zip(handles, (a, b))), attrs)
    compiles(sources(functions).files, tmp_path)


@needs_compiler
def test_shared_subexpressions_and_long_ones_stay_bounded(tmp_path):
    a = decl_buffer((4,), "float32", "A")
    shared = a[0]
    for _ in range(60):
        shared = tir.Select(shared < const(9.0, "float32"), shared * shared, shared + shared)
    long = a[1]
    for k in range(2000):
        long = long + a[k % 4] * const(float(k), "float32")
    nested = a[2]
    for k in range(8):
        nested = tir.if_then_else(a[k % 4] < nested, a[(k + 1) % 4] + nested, const(0.5, "float32"))
    handle = Var("A", "handle")
    functions = {}
    for name, value in {"shared": shared, "long": long, "nested": nested}.items():
        store = BufferStore(a, value, (const(3, "int64"),))
        functions[name] = PrimFunc([handle], store, None, {handle: a}, {"global_symbol": name})
    files = sources(functions).files
    assert len(files["kernels.c"]) < 1_000_000
    assert max(map(len, files["kernels.c"].splitlines())) < 2000
    compiles(files, tmp_path)


def test_many_statements_are_refused_by_name(monkeypatch):
    monkeypatch.setattr("relaxvm.target.c.expr.MAX_LINES", 100)
    a = decl_buffer((4,), "float32", "A")
    stores = [BufferStore(a, const(float(k), "float32"), (const(0, "int64"),)) for k in range(200)]
    handle = Var("A", "handle")
    fn = PrimFunc([handle], tir.seq(*stores), None, {handle: a}, {"global_symbol": "f"})
    with pytest.raises(CodegenError, match="f: more than 100 lines of C; split the function"):
        sources({"f": fn})


def test_index_arithmetic_that_cannot_wrap_is_plain_and_other_is_not():
    @T.prim_func
    def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((256,), "int32")):
        for i, j in T.grid(T.int64(16), T.int64(16)):
            A[i, j] = A[i, j] + T.float32(1)
            B[i * T.int64(16) + j] = B[i] * B[j] + 1

    text = sources({"main": main})["c"]
    assert "A[i * 16 + j] = A[i * 16 + j] + 1.0f;" in text
    assert "B[i * 16 + j] = add_i32(mul_i32(B[i], B[j]), 1);" in text


def test_a_build_leaves_the_module_and_the_target_is_printed_and_parsed():
    mod = IRModule({"f": copy_of("a")})
    before = mod.script()
    sources(dict(mod.items()))
    assert mod.script() == before
    assert str(Target("c -num-cores=2")) == "c -num-cores=2"
    assert "c" in Target.list_kinds()


@needs_compiler
def test_where_a_loop_begins_is_evaluated_once():
    @T.prim_func
    def main(A: T.Buffer((2,), "int32"), B: T.Buffer((32,), "int32")):
        for i in T.serial(A[0], A[0] + A[1]):
            A[0] = A[0] + 1
            B[i] = i

    given, want = ([np.array([2, 4], "int32"), np.zeros(32, "int32")] for _ in range(2))
    tvm.build(IRModule({"main": main}), "c")(*given)
    tir.interpret(main, *want)
    assert want[1][2:7].tolist() == [2, 3, 4, 5, 0]
    assert [x.tolist() for x in given] == [x.tolist() for x in want]


@needs_compiler
def test_what_holds_for_all_values_of_a_dtype_is_not_compared(tmp_path):
    @T.prim_func
    def main(A: T.Buffer((64,), "uint8"), B: T.Buffer((256,), "int32")):
        for i in range(64):
            B[T.int64(A[i])] = T.int32(A[i]) + 1
            if T.int32(A[i]) < 256 and T.int32(A[i]) != -1:
                B[T.int64(A[i]) % T.int64(7)] = 3

    compiles(sources({"main": main}).files, tmp_path)


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler here")
def test_the_header_is_read_by_cpp(tmp_path):
    functions = {name: copy_of(name) for name in ("class", "new", "xor", "template", "plain")}
    (tmp_path / "kernels.h").write_text(sources(functions).files["kernels.h"])
    (tmp_path / "main.cpp").write_text('#include "kernels.h"\n')
    run = subprocess.run(["c++", "-fsyntax-only", "main.cpp"], cwd=tmp_path, check=False)
    assert run.returncode == 0


@needs_compiler
def test_parallel_loops_carry_a_hint_unless_they_may_leave(tmp_path):
    @T.prim_func
    def plain(A: T.Buffer((64,), "float32")):
        for i in T.parallel(64):
            A[i] = A[i] + T.float32(1)

    @T.prim_func
    def leaves(A: T.Buffer((64,), "float32")):
        for i in T.parallel(64):
            assert A[i] > T.float32(0), "positive"
            A[i] = A[i] + T.float32(1)

    assert "    RELAXVM_PARALLEL\n    for (" in sources({"plain": plain})["c"]
    assert "RELAXVM_PARALLEL" not in sources({"leaves": leaves})["c"]
    compiles(sources({"plain": plain, "leaves": leaves}).files, tmp_path)


@needs_compiler
def test_loops_for_vectors_and_registers_carry_hints(tmp_path):
    @T.prim_func
    def main(x: T.Buffer((8, 16), "float32"), y: T.Buffer((8, 16), "float32")):
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        for i in T.unroll(8):
            for j in T.vectorized(16):
                y[i, j] = x[i, j] + T.float32(1)
        for i in T.unroll(8):
            for j in range(16):
                y[i, j] = y[i, j] * x[i, j]
        for i in T.unroll(8):
            for j in T.vectorized(16):
                assert x[i, j] > T.float32(0), "positive"
                y[i, j] = y[i, j] + x[i, j]
        for i in T.unroll(8):
            for _j in T.unroll(1000):
                y[i, 0] = y[i, 0] + x[i, 0]

    text = sources({"main": main})["c"]
    lines = [line.strip().partition(" < ")[0] for line in text.partition("/* main")[2].split("\n")]
    loops = [k for k, line in enumerate(lines) if line.startswith("for (")]
    hints = [lines[k - 1] if "RELAXVM" in lines[k - 1] else "" for k in loops]
    assert hints == ["RELAXVM_UNROLL(8)", "RELAXVM_VECTOR", *6 * [""]]
    compile_library(sources({"main": main}).files, str(tmp_path), "-O3")
    assert "RELAXVM_VECTOR" not in sources({"main": main.without_attr("tir.noalias")})["c"]


@needs_compiler
def test_values_of_which_bounds_leave_no_use_are_no_warning(tmp_path):
    @T.prim_func
    def main(flag: T.bool, A: T.Buffer((4,), "uint64"), B: T.Buffer((4,), "int32")):
        T.func_attr({"global_symbol": "main"})
        for i in range(4):
            bits = T.clz(A[i]) * 7 % 9
            B[i] = T.Select(bits < 20 and bits > -20, 5, 7)

    compile_library(sources({"main": main}).files, str(tmp_path))


@needs_compiler
def test_functions_call_each_other_and_memory_on_the_heap_is_freed():
    @tvm.script.ir_module
    class Mod:
        @T.prim_func
        def half(x: T.float32) -> T.float32:
            T.ret(x * T.float32(0.5))

        @T.prim_func
        def main(a: T.handle, b: T.handle):
            T.func_attr({"global_symbol": "main"})
            n = T.int64()
            A = T.match_buffer(a, (n,), "float32")
            B = T.match_buffer(b, (n,), "float32")
            scratch = T.alloc_buffer((n,), "float32")
            for i in range(n):
                scratch[i] = A[i] + T.float32(1)
            for i in range(n):
                assert scratch[i] > T.float32(0), "positive"
                B[i] = Mod.half(scratch[i])

    rt = tvm.build(Mod, "c")
    x = np.arange(5000, dtype="float32")
    y = np.empty_like(x)
    rt["main"](x, y)
    np.testing.assert_array_equal(y, (x + 1) / 2)
    x[4000] = -7
    with pytest.raises(tvm.error.VMError, match="positive"):
        rt["main"](x, y)
    assert "free(heap_0);" in rt.get_source("c")
