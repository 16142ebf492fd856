"""Kernels to schedule, random steps, and the comparison of a schedule with what it started from."""

import json

import numpy as np

from relaxvm import te, tir
from relaxvm.ir import assert_structural_equal
from relaxvm.runtime import array
from relaxvm.script import tir as T
from relaxvm.target import build
from relaxvm.tir import PrimFunc, Schedule
from relaxvm.tir.analysis import verify_well_formed
from relaxvm.tir.schedule import IndexMap, Trace


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
    "transpose": transpose,
    "full_sum": full_sum,
    "symbolic_matmul": lambda: symbolic_matmul,
    "stencil": lambda: stencil,
    "running_sum": lambda: running_sum,
    "in_place": lambda: in_place,
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


# -- random steps ----------------------------------------------------------------------------------


def _blocks(sch):
    return [b for b in sch.get_child_blocks(sch.get_block("root"))]


def _loop(sch, rng):
    blocks = _blocks(sch)
    loops = sch.get_loops(blocks[rng.integers(len(blocks))])
    return loops[rng.integers(len(loops))] if loops else None


def _split(sch, rng, block, loops):
    loop = loops[rng.integers(len(loops))]
    factors = [int(rng.integers(1, 5)) for _ in range(rng.integers(1, 3))]
    factors.insert(int(rng.integers(len(factors) + 1)), None)
    sch.split(loop, factors, preserve_unit_iters=bool(rng.integers(2)))


def _fuse(sch, rng, block, loops):
    k = int(rng.integers(len(loops)))
    sch.fuse(*loops[k : k + 2], preserve_unit_iters=bool(rng.integers(2)))


def _reorder(sch, rng, block, loops):
    picked = rng.permutation(len(loops))[: rng.integers(2, 4)]
    sch.reorder(*[loops[k] for k in picked])


def _one_loop(name):
    def step(sch, rng, block, loops):
        getattr(sch, name)(loops[rng.integers(len(loops))])

    return step


def _add_unit(sch, rng, block, loops):
    sch.add_unit_loop(block if rng.integers(2) else loops[rng.integers(len(loops))])


def _partition(sch, rng, block, loops):
    sch.loop_partition(loops[rng.integers(len(loops))], [int(rng.integers(1, 3)), None])


def _inline(sch, rng, block, loops):
    sch.compute_inline(block)


def _reverse_inline(sch, rng, block, loops):
    sch.reverse_compute_inline(block)


def _at(name):
    def step(sch, rng, block, loops):
        others = sch.get_consumers(block) if name == "compute_at" else sch.get_producers(block)
        target = _loop(sch, rng)
        if others:
            near = sch.get_loops(others[rng.integers(len(others))])
            target = near[rng.integers(len(near))] if near else target
        getattr(sch, name)(block, target, bool(rng.integers(2)), index=int(rng.choice([-1, -2])))

    return step


def _cache(name):
    def step(sch, rng, block, loops):
        scope = "local" if rng.integers(2) else "global"
        getattr(sch, name)(block, int(rng.integers(2)), scope)

    return step


def _decompose(sch, rng, block, loops):
    sch.decompose_reduction(block, loops[rng.integers(len(loops))])


def _rfactor(sch, rng, block, loops):
    sch.rfactor(loops[rng.integers(len(loops))], int(rng.integers(-1, 2)))


def _separate(sch, rng, block, loops):
    sch.separate_window(block, [loops[rng.integers(len(loops))]], bool(rng.integers(2)))


def _blockize(sch, rng, block, loops):
    sch.blockize(loops[rng.integers(len(loops))], bool(rng.integers(2)))


def _layout(sch, rng, block, loops):
    b = sch.get(block)
    what = "write" if rng.integers(2) else "read"
    side = b.writes if what == "write" else b.reads
    if not side:
        return
    buffer = side[0].buffer
    if any(buffer is p for p in sch.state.fn.buffers):
        return
    sch.transform_layout(block, (what, 0), _index_map(rng, buffer.ndim))


def _index_map(rng, ndim):
    factor = int(rng.integers(1, 4))
    variables = [tir.Var(f"i{k}", "int32") for k in range(ndim)]
    final = list(variables)
    rng.shuffle(final)
    if ndim and rng.integers(2):
        v = final.pop()
        final = [v // factor, *final, v % factor]
    return IndexMap(variables, final)


def _block_layout(sch, rng, block, loops):
    axes = sch.get(block).iter_vars
    index_map = _index_map(rng, len(axes))
    if len(axes) == 2 and rng.integers(2):
        extent = axes[1].dom.extent
        v = [tir.Var(f"i{k}", "int32") for k in range(2)]
        index_map = IndexMap(v, [v[0] * extent + v[1]])
    sch.transform_block_layout(block, index_map)


def _merge(sch, rng, block, loops):
    sch.merge(loops[0], _loop(sch, rng))


def _reindex(sch, rng, block, loops):
    sch.reindex(block, ("write" if rng.integers(2) else "read", 0))


def _reindex_cache(sch, rng, block, loops):
    axes = len(sch.get(block).iter_vars)
    if rng.integers(2):
        sch.reindex_cache_read(block, 0, "local", _index_map(rng, axes))
    else:
        sch.reindex_cache_write(block, 0, "local", _index_map(rng, axes))


def _cache_inplace(sch, rng, block, loops):
    sch.cache_inplace(block, 0, "local")


def _decompose_padding(sch, rng, block, loops):
    sch.decompose_padding(block, loops[rng.integers(len(loops))])


def _pad_einsum(sch, rng, block, loops):
    axes = len(sch.get(block).iter_vars)
    sch.pad_einsum(block, [int(p) for p in rng.integers(1, 5, axes)])


def _axis_order(sch, rng, block, loops):
    axes = len(sch.get(block).iter_vars)
    sch.reorder_block_iter_var(block, [int(k) for k in rng.permutation(axes)])


def _mark(sch, rng, block, loops):
    way = rng.integers(6)
    if way == 0:
        sch.set_scope(block, 0, "local")
    elif way == 1:
        sch.annotate(loops[0], "pragma_auto_unroll_max_step", 16)
    elif way == 2:
        sch.annotate(block, "remark", [1, {"a": 2}])
        sch.unannotate(block, "remark")
    elif way == 3:
        sch.storage_align(block, 0, 0, 4, 1)
    elif way == 4:
        sch.set_axis_separator(block, ("write", 0), [1])
    else:
        sch.enter_postproc()


def _bind(sch, rng, block, loops):
    sch.bind(loops[rng.integers(len(loops))], str(rng.choice(["blockIdx.x", "threadIdx.x"])))


def _wider(sch, rng, block, loops):
    # No value of these kernels is lost in float64.
    if str(sch.get(block).writes[0].buffer.dtype) == "float32":
        sch.unsafe_set_dtype(block, 0, "float64")


def _tensorize(sch, rng, block, loops):
    sch = sch.copy() if len(loops) < 2 else sch
    _, inner = sch.split(loops[-1], [None, 2])
    sch.tensorize(inner, "schedule_helpers.double")


def _pack(sch, rng, block, loops):
    lanes = int(rng.choice([4, 8]))
    sch.pack_contraction(block, [1, 2], 4, [1, lanes], ["uint8", "int8"])


@T.prim_func
def double_desc(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (2,), "float32")
    B = T.match_buffer(b, (2,), "float32")
    with T.block("root"):
        for i in range(2):
            with T.block("double"):
                vi = T.axis.spatial(2, i)
                B[vi] = A[vi] * T.float32(2)


@T.prim_func
def double_impl(a: T.handle, b: T.handle):
    s, t = T.int32(), T.int32()
    A = T.match_buffer(a, (2,), "float32", strides=[s], offset_factor=1)
    B = T.match_buffer(b, (2,), "float32", strides=[t], offset_factor=1)
    with T.block("root"):
        for i in range(2):
            B[1 - i] = A[1 - i] + A[1 - i]


tir.TensorIntrin.register("schedule_helpers.double", double_desc, double_impl, override=True)


def _join(sch, rng, block, loops):
    blocks = _blocks(sch)
    first = int(rng.integers(len(blocks)))
    sch.blockize(blocks[first : first + 2], bool(rng.integers(2)))


def _cache_index(sch, rng, block, loops):
    sch.cache_index(block, "local", int(rng.integers(3)))


def _sampled_split(sch, rng, block, loops):
    loop = loops[rng.integers(len(loops))]
    if not rng.integers(3):
        sch.split(loop, sch.sample_partitioned_tile(loop, 2, 1, int(rng.integers(1, 4))))
    elif rng.integers(2):
        sch.split(loop, sch.sample_perfect_tile(loop, int(rng.integers(1, 4)), 4))
    else:
        sch.split(loop, [None, sch.sample_categorical([1, 2, 3], [0.2, 0.3, 0.5])])


def _sampled_place(sch, rng, block, loops):
    sch.compute_at(block, sch.sample_compute_location(block))


STEPS = {
    "split": _split,
    "fuse": _fuse,
    "reorder": _reorder,
    "parallel": _one_loop("parallel"),
    "vectorize": _one_loop("vectorize"),
    "unroll": _one_loop("unroll"),
    "add_unit_loop": _add_unit,
    "loop_partition": _partition,
    "compute_inline": _inline,
    "reverse_compute_inline": _reverse_inline,
    "compute_at": _at("compute_at"),
    "reverse_compute_at": _at("reverse_compute_at"),
    "cache_read": _cache("cache_read"),
    "cache_write": _cache("cache_write"),
    "decompose_reduction": _decompose,
    "rfactor": _rfactor,
    "separate_window": _separate,
    "blockize": _blockize,
    "transform_layout": _layout,
    "transform_block_layout": _block_layout,
    "merge": _merge,
    "reindex": _reindex,
    "reindex_cache": _reindex_cache,
    "cache_inplace": _cache_inplace,
    "decompose_padding": _decompose_padding,
    "pad_einsum": _pad_einsum,
    "reorder_block_iter_var": _axis_order,
    "mark": _mark,
    "bind": _bind,
    "unsafe_set_dtype": _wider,
    "tensorize": _tensorize,
    "pack_contraction": _pack,
    "join": _join,
    "cache_index": _cache_index,
    "sampled_split": _sampled_split,
    "sampled_place": _sampled_place,
}


def random_schedule(fn, rng, steps=8, allowed=tuple(STEPS)):
    """A schedule after up to `steps` random primitives, and how often each was accepted."""
    sch = Schedule(fn, seed=int(rng.integers(1 << 30)), error_render_level="fast")
    done: list[str] = []
    for _ in range(steps * 3):
        name = str(rng.choice(allowed))
        blocks = _blocks(sch)
        block = blocks[rng.integers(len(blocks))]
        loops = sch.get_loops(block)
        if not loops:
            continue
        try:
            STEPS[name](sch, rng, block, loops)
        except tir.ScheduleError as error:
            done.append(f"# {name}: {error}")
            continue
        done.append(name)
        if sum(not d.startswith("#") for d in done) >= steps:
            break
    return sch, done
