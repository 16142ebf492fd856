"""Kernels to schedule, and the comparison of a schedule with what it started from."""

import json

import numpy as np

from relaxvm import te, tir
from relaxvm.ir import assert_structural_equal
from relaxvm.runtime import array
from relaxvm.script import tir as T
from relaxvm.target import build
from relaxvm.tir import PrimFunc, Schedule
from relaxvm.tir.analysis import verify_well_formed
from relaxvm.tir.schedule import Trace


def placeholder(shape, name, dtype="float32"):
    return te.placeholder(shape, dtype, name=name)


# -- kernels ---------------------------------------------------------------------------------------


def chain(n=6, m=5):
    a = placeholder((n, m), "A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + a[i, j], name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] - b[i, j] * 3.0, name="D")
    return te.create_prim_func([a, d])


def pair(n=4, m=6):
    a = placeholder((n, m), "A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, m), lambda i, j: tir.max(b[i, j], 0.0), name="C")
    return te.create_prim_func([a, c])


def broadcast(n=4, m=7):
    a, b = placeholder((n, m), "A"), placeholder((m,), "B")
    c = te.compute((m,), lambda j: b[j] + 1.0, name="C")
    d = te.compute((n, m), lambda i, j: a[i, j] * c[j], name="D")
    return te.create_prim_func([a, b, d])


def matmul(n=4, m=5, k=6):
    a, b = placeholder((n, k), "A"), placeholder((k, m), "B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] + 1.0, name="D")
    return te.create_prim_func([a, b, d])


def row_max(n=5, m=8):
    a = placeholder((n, m), "A")
    r, s = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="k2")
    b = te.compute((n,), lambda i: te.max(a[i, r], axis=r), name="B")
    c = te.compute((n, m), lambda i, j: a[i, j] - b[i], name="C")
    d = te.compute((n,), lambda i: te.sum(c[i, s], axis=s), name="D")
    return te.create_prim_func([a, d])


def conv1d(n=9, k=3, co=3, ci=2):
    x, w = placeholder((ci, n), "X"), placeholder((co, ci, k), "W")
    pad = te.compute(
        (ci, n + 2),
        lambda c, i: tir.if_then_else(tir.all(i >= 1, i < n + 1), x[c, i - 1], 0.0),
        name="P",
    )
    rc, rk = te.reduce_axis((0, ci), name="rc"), te.reduce_axis((0, k), name="rk")
    y = te.compute(
        (co, n + 2 - k + 1),
        lambda o, i: te.sum(pad[rc, i + rk] * w[o, rc, rk], axis=[rc, rk]),
        name="Y",
    )
    z = te.compute(
        (co, n + 2 - k + 1),
        lambda o, i: te.max(y[o, i], axis=[]) if False else tir.max(y[o, i], 0.0),
        name="Z",
    )
    return te.create_prim_func([x, w, z])


def conv2d(n=1, ci=2, co=4, h=5, w=4):
    x, k = placeholder((n, ci, h + 2, w + 2), "X"), placeholder((co, ci, 3, 3), "W")
    axes = [te.reduce_axis((0, e), name=name) for e, name in ((ci, "c"), (3, "r"), (3, "s"))]

    def value(i, o, y, z):
        c, r, s = (a.var for a in axes)
        return te.sum(x[i, c, y + r, z + s] * k[o, c, r, s], axis=axes)

    return te.create_prim_func([x, k, te.compute((n, co, h, w), value, name="Y")])


def transpose(n=4, m=6):
    a = placeholder((n, m), "A")
    b = te.compute((m, n), lambda i, j: a[j, i], name="B")
    c = te.compute((m * n,), lambda i: b[i // n, i % n] + 1.0, name="C")
    return te.create_prim_func([a, c])


def full_sum(n=5, m=4):
    a = placeholder((n, m), "A")
    r, s = te.reduce_axis((0, n), name="r"), te.reduce_axis((0, m), name="s")
    b = te.compute((1,), lambda i: te.sum(a[r, s], axis=[r, s]), name="B")
    c = te.compute((n, m), lambda i, j: a[i, j] / b[0], name="C")
    return te.create_prim_func([a, c])


@T.prim_func
def symbolic_matmul(a: T.handle, b: T.handle, d: T.handle):
    n, m, k = T.int32(), T.int32(), T.int32()
    A = T.match_buffer(a, (n, k), "float32")
    B = T.match_buffer(b, (k, m), "float32")
    D = T.match_buffer(d, (n, m), "float32")
    C = T.alloc_buffer((n, m), "float32")
    for i, j, r in T.grid(n, m, k):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, r])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(n, m):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = C[vi, vj] * T.float32(2)


@T.prim_func
def stencil(a: T.handle, c: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n + 2,), "float32")
    C = T.match_buffer(c, (n,), "float32")
    B = T.alloc_buffer((n + 2,), "float32")
    for i in range(n + 2):
        with T.block("B"):
            vi = T.axis.spatial(n + 2, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = B[vi] + B[vi + 1] + B[vi + 2]


@T.prim_func
def running_sum(A: T.Buffer((8, 3), "float32"), B: T.Buffer((8, 3), "float32")):
    # Iterations depend on each other: almost nothing is legal.
    for i, j in T.grid(8, 3):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.if_then_else(
                vi > 0, B[T.max(vi - 1, 0), vj], T.float32(0), dtype="float32"
            )


@T.prim_func
def in_place(A: T.Buffer((6, 4), "float32"), B: T.Buffer((6, 4), "float32")):
    for i, j in T.grid(6, 4):
        with T.block("A1"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(6, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
    for i, j in T.grid(6, 4):
        with T.block("A2"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi, vj] = T.float32(0)


@T.prim_func
def matmul_onto(
    A: T.Buffer((5, 6), "float32"), B: T.Buffer((6, 4), "float32"), C: T.Buffer((5, 4), "float32")
):
    D = T.alloc_buffer((5, 4), "float32")
    E = T.alloc_buffer((5, 4), "float32")
    for i, j, r in T.grid(5, 4, 6):
        with T.block("D"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, r])
            with T.init():
                D[vi, vj] = T.float32(0)
            D[vi, vj] = D[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(5, 4):
        with T.block("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = C[vi, vj] * T.float32(3)
    for i, j in T.grid(5, 4):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = C[vi, vj] + D[vi, vj] - E[vi, vj]


def bytes_matmul(n=4, m=5, k=6):
    a, b = placeholder((n, k), "A", "uint8"), placeholder((k, m), "B", "int8")
    r = te.reduce_axis((0, k), name="k")
    product = lambda i, j: a[i, r].astype("int32") * b[r, j].astype("int32")  # noqa: E731
    c = te.compute((n, m), lambda i, j: te.sum(product(i, j), axis=r), name="C")
    return te.create_prim_func([a, b, c])


KERNELS = {
    "chain": chain,
    "chain_prime": lambda: chain(7, 3),
    "chain_one": lambda: chain(1, 5),
    "chain_zero": lambda: chain(0, 3),
    "pair": pair,
    "broadcast": broadcast,
    "matmul": matmul,
    "matmul_prime": lambda: matmul(5, 7, 3),
    "matmul_one": lambda: matmul(1, 1, 4),
    "matmul_no_reduction": lambda: matmul(2, 3, 0),
    "row_max": row_max,
    "conv1d": conv1d,
    "conv2d": conv2d,
    "transpose": transpose,
    "full_sum": full_sum,
    "symbolic_matmul": lambda: symbolic_matmul,
    "stencil": lambda: stencil,
    "running_sum": lambda: running_sum,
    "in_place": lambda: in_place,
    "matmul_onto": lambda: matmul_onto,
    "bytes_matmul": bytes_matmul,
}
SYMBOLS = {
    "symbolic_matmul": [(4, 5, 6), (1, 3, 7), (5, 0, 2), (3, 3, 0)],
    "stencil": [(7,), (1,), (0,), (8,)],
}


# -- running ---------------------------------------------------------------------------------------


def arguments(fn: PrimFunc, rng, sizes=()):
    """Random arrays for the parameters; symbols take `sizes` in the order in which they appear."""
    values: dict = {}
    left = list(sizes)
    arrays = []
    for b in fn.buffers:
        shape = []
        for e in b.shape:
            for v in sorted(_variables(e), key=lambda v: v.name):
                if v not in values:
                    values[v] = _size_of(fn, v, left)
            shape.append(int(tir.evaluate_expr(e, values)))
        arrays.append(np.asarray(rng.integers(-4, 5, shape), dtype=str(b.dtype)))
    return arrays


def _variables(e):
    found = []
    tir.post_order_visit(e, lambda n: found.append(n) if isinstance(n, tir.Var) else None)
    return found


def _size_of(fn, v, left):
    names = {"n": 0, "m": 1, "k": 2}
    return left[names[v.name]]


def check_same(before: PrimFunc, after: PrimFunc, name: str = "", seed: int = 0, run=None):
    """Both functions give the same, for all the sizes of the kernel."""
    run = run or tir.interpret
    for sizes in SYMBOLS.get(name, [()]):
        rng = np.random.default_rng(seed)
        wanted = arguments(before, rng, sizes)
        got = [a.copy() for a in wanted]
        tir.interpret(before, *wanted)
        run(after, *got)
        for w, g in zip(wanted, got):
            # What nobody had written before (NaN) may be anything now.
            g[w != w] = w[w != w]
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)


def by_machine(fn: PrimFunc, *arrays):
    """As `tir.interpret`, with machine code."""
    lib = build(fn.with_attr("global_symbol", "main"), "llvm")
    given = [array(a) for a in arrays]
    lib["main"](*given)
    for mine, theirs in zip(arrays, given):
        mine[...] = theirs.numpy()


def same(wanted, got):
    for w, g in zip(wanted, got):
        # What nobody had written before (NaN) may be anything now.
        g[w != w] = w[w != w]
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4)


def check(fn, sch, arguments, run=tir.interpret):
    """The schedule computes what `fn` does, and its trace replays: as JSON, and as Python."""
    after = sch.mod["main"]
    verify_well_formed(after)
    for arrays in arguments:
        wanted, got = [a.copy() for a in arrays], [a.copy() for a in arrays]
        tir.interpret(fn, *wanted)
        run(after, *got)
        same(wanted, got)
    again = Schedule(fn)
    Trace.apply_json_to_schedule(json.dumps(sch.trace.as_json()), again)
    assert_structural_equal(again.mod["main"], after)
    scope: dict = {}
    exec(str(sch.trace), {"tir": tir}, scope)
    again = Schedule(fn)
    scope["apply_trace"](again)
    assert_structural_equal(again.mod["main"], after)
