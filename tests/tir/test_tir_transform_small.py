"""Passes that are in no pipeline: canonical loops, single definitions, lazy choices, shared memory,
inlined functions. `fuzz.loops` runs them on random functions.
"""

from __future__ import annotations

import numpy as np
import pytest
from memory_programs import SIZE, program
from transform_helpers import check, parse

from relaxvm import te, tir
from relaxvm.ir import IRModule, assert_structural_equal, walk
from relaxvm.script import from_source
from relaxvm.tir.analysis import verify_well_formed
from relaxvm.tir.transform import (
    CanonicalizeLoop,
    ConvertSSA,
    FlattenBuffer,
    InlinePrivateFunctions,
    LowerOpaqueBlock,
    RewriteUnsafeSelect,
    StorageRewrite,
)


def test_loops_begin_at_0():
    check(
        CanonicalizeLoop(),
        """
def main(A: T.Buffer((16,), "int32"), n: T.int32):
    for i in range(2, 10):
        for j in range(i, n + i):
            A[j] = i
    for i in range(A[0], 3):
        A[i] = 1
""",
        """
def main(A: T.Buffer((16,), "int32"), n: T.int32):
    for i in range(8):
        for j in range(n):
            A[j + (i + 2)] = i + 2
    start: T.int32 = A[0]
    for i in range(3 - A[0]):
        A[i + start] = 1
""",
    )


def test_regions_of_blocks_follow_their_loops():
    check(
        CanonicalizeLoop(),
        """
def main(A: T.Buffer((16,), "int32")):
    for i in range(2, 10):
        with T.block("b"):
            T.reads()
            T.writes(A[i])
            A[i] = 1
""",
        """
def main(A: T.Buffer((16,), "int32")):
    for i in range(8):
        with T.block("b"):
            T.reads()
            T.writes(A[i + 2])
            A[i + 2] = 1
""",
    )


def test_a_variable_is_defined_once():
    i, x = tir.Var("i", "int32"), tir.Var("x", "int32")
    A = tir.decl_buffer((8,), "int32", "A")
    store = tir.BufferStore(A, x, (i,))
    loop = tir.For(i, 0, 8, "serial", tir.LetStmt(x, i + 1, store))
    inner = tir.For(i, 0, 2, "serial", tir.BufferStore(A, i, (i,)))
    shadow = tir.For(i, 0, 8, "serial", tir.seq(inner, tir.BufferStore(A, i, (i,))))
    handle = tir.Var("a", "handle")
    fn = tir.PrimFunc([handle], tir.seq(loop, loop, shadow), buffer_map={handle: A})
    once = ConvertSSA()(IRModule({"main": fn, "other": fn}))
    defined = [
        n.loop_var if isinstance(n, tir.For) else n.var
        for f in once.functions.values()
        for n in walk(f.body)
        if isinstance(n, (tir.For, tir.LetStmt))
    ]
    assert len(defined) == len(set(defined)) == 12
    assert not set(once["main"].params) & set(once["other"].params)
    for f in once.functions.values():
        got = np.zeros(8, "int32")
        tir.interpret(f, got)
        assert (got == np.arange(8)).all()
    assert ConvertSSA()(once) is once


def test_blocks_that_are_repeated_have_buffers_of_their_own():
    text = """
def main(A: T.Buffer((4,), "int32")):
    with T.block("b"):
        B = T.alloc_buffer((4,), "int32")
        V = T.match_buffer(A[0:4], (4,), "int32")
        W = T.decl_buffer((4,), "int32", data=A.data)
        for i in range(4):
            B[i] = V[i] + 1
        for i in range(4):
            W[i] = B[3 - i]
"""
    fn = parse(text)
    twice = fn.replace(body=tir.seq(fn.body, fn.body))
    made = ConvertSSA()(IRModule({"main": twice}))
    verify_well_formed(made)
    got = np.arange(4, dtype="int32")
    tir.interpret(made["main"], got)
    assert got.tolist() == [2, 3, 4, 5]
    names = [n.name_hint for n in walk(made["main"].body) if isinstance(n, tir.Block)]
    assert names.count("b") == 2


def test_only_the_wanted_side_of_an_unsafe_select_is_evaluated():
    check(
        RewriteUnsafeSelect(),
        """
def main(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32"), n: T.int32):
    for i in range(16):
        B[i] = T.Select(i > 0, A[i - 1], T.Select(n > 0, 4 // n, 1)) + T.Select(i > 2, i, n)
""",
        """
def main(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32"), n: T.int32):
    for i in range(16):
        B[i] = T.if_then_else(i > 0, A[i - 1], T.if_then_else(n > 0, 4 // n, 1)) + T.Select(
            i > 2, i, n
        )
""",
    )


SHARED = """
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for r in range(2):
        B = T.decl_buffer((8,), "float32")
        D = T.decl_buffer((6,), "float32")
        E = T.decl_buffer((8,), "float32")
        for i in range(8):
            B[i] = A[i] + T.float32(1)
        for i in range(8):
            E[i] = B[7 - i]
        for i in range(6):
            D[i] = E[i] * T.float32(2)
        for i in range(6):
            C[i] += D[5 - i]
"""


def allocations(fn):
    return [int(n.extents[0]) for n in walk(fn.body) if isinstance(n, tir.Allocate)]


def test_buffers_that_are_not_needed_together_share_memory():
    fn = FlattenBuffer()(IRModule({"main": parse(SHARED)}))["main"]
    made = StorageRewrite()(IRModule({"main": fn}))["main"]
    # D takes the place of B.
    assert sorted(allocations(fn)) == [6, 8, 8] and allocations(made) == [8, 8]
    results = []
    for each in (fn, made):
        args = [np.arange(8, dtype="float32"), np.zeros(8, "float32")]
        tir.interpret(each, *args)
        results.append(args[1])
    assert (results[0] == results[1]).all()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Wanted in the next iteration, in another memory, at an address that is given away.
        ("    for r in range(2):\n        B = T.decl_buffer((8,), \"float32\")",
         "    B = T.decl_buffer((8,), \"float32\")\n    for r in range(2):"),
        ("D = T.decl_buffer((6,), \"float32\")",
         "D = T.decl_buffer((6,), \"float32\", scope=\"local\")"),
        ("        for i in range(6):\n            D[i]",
         "        T.evaluate(T.call_extern(\"int32\", \"f\", B.data))\n"
         "        for i in range(6):\n            D[i]"),
    ],
)  # fmt: skip
def test_what_may_be_needed_together_stays_apart(old, new):
    assert old in SHARED
    text = SHARED.replace(old, new)
    fn = FlattenBuffer()(IRModule({"main": parse(text)}))["main"]
    made = StorageRewrite()(IRModule({"main": fn}))["main"]
    assert sorted(allocations(made)) == [6, 8, 8]


def test_iterations_of_a_parallel_loop_share_nothing():
    fn = parse(SHARED.replace("range(2)", "T.parallel(2)"))
    mod = StorageRewrite()(FlattenBuffer()(IRModule({"main": fn})))
    (loop,) = (n for n in walk(mod["main"].body) if isinstance(n, tir.For) and n.kind == 1)
    assert allocations(mod["main"]) == [8, 8] and isinstance(loop.body, tir.Allocate)


def test_a_chain_of_tensors_takes_the_memory_of_two():
    A = te.placeholder((16,), "float32", "A")
    stage = A
    for k in range(12):
        stage = te.compute((16,), lambda i, s=stage: s[15 - i] + 1.0, name=f"s{k}")
    fn = te.create_prim_func([A, stage])
    mod = FlattenBuffer()(LowerOpaqueBlock()(tir.transform.ConvertBlocksToOpaque()(
        tir.transform.LowerInitBlock()(IRModule({"main": fn})))))  # fmt: skip
    made = StorageRewrite()(mod)
    assert len(allocations(mod["main"])) == 11 and allocations(made["main"]) == [16, 16]
    x, out = np.arange(16, dtype="float32"), np.zeros(16, "float32")
    tir.interpret(made["main"], x, out)
    assert (out == x + 12).all()


@pytest.mark.parametrize("seed", range(60))
def test_random_stores_and_loads_stay_what_they_are(seed):
    mod = IRModule({"main": parse(program(seed))})
    wanted = None
    passes = (CanonicalizeLoop(), ConvertSSA(), RewriteUnsafeSelect(), StorageRewrite())
    for each in (None, *passes):
        made = mod if each is None else each(mod)
        verify_well_formed(made)
        a, b = np.arange(SIZE, dtype="int32"), np.ones(SIZE, "int32")
        tir.interpret(made["main"], a, b, 3, 4)
        wanted = (a, b) if wanted is None else wanted
        assert all((x == y).all() for x, y in zip(wanted, (a, b)))


PRIVATE = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def store(p: T.handle("int32"), i: T.int32, v: T.int32):
        P = T.decl_buffer((8,), "int32", data=p)
        for k in range(2):
            P[i] = P[i] + v

    @T.prim_func(private=True)
    def twice(p: T.handle("int32"), i: T.int32):
        Module.store(p, i, i)
        Module.store(p, i, 1)

    @T.prim_func
    def main(A: T.Buffer((8,), "int32")):
        for i in range(8):
            Module.twice(A.data, A[i] % 8)
"""


def test_private_functions_stand_where_they_were_called():
    mod = from_source(PRIVATE)
    made = InlinePrivateFunctions()(mod)
    assert [gv.name_hint for gv in made] == ["main"]
    verify_well_formed(made)
    got, wanted = np.arange(8, dtype="int32"), np.arange(8, dtype="int32")
    tir.interpret(made["main"], got)
    tir.interpret(mod["main"], wanted, module=mod)
    assert (got == wanted).all() and (got != np.arange(8)).any()


@pytest.mark.parametrize("line", ["Module.store(p, i, v)", "T.ret(T.int32(1))"])
def test_a_function_that_calls_itself_or_returns_early_stays(line):
    text = PRIVATE.replace(
        "        for k in range(2):\n", f"        {line}\n        for k in range(2):\n"
    )
    mod = from_source(text.replace("def store(p", "def store(p", 1))
    made = InlinePrivateFunctions()(mod)
    assert {gv.name_hint for gv in made} == {"store", "main"}
    assert_structural_equal(made["store"], mod["store"])
