"""Random schedules: `random_schedule(fn, rng, steps)`."""

from relaxvm import tir
from relaxvm.script import tir as T
from relaxvm.tir import Schedule
from relaxvm.tir.schedule import IndexMap


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
    if [str(w.buffer.dtype) for w in sch.get(block).writes][:1] == ["float32"]:
        sch.unsafe_set_dtype(block, 0, "float64")


def _tensorize(sch, rng, block, loops):
    sch = sch.copy() if len(loops) < 2 else sch
    _, inner = sch.split(loops[-1], [None, 2])
    sch.tensorize(inner, "schedule_helpers.double")


def _pack(sch, rng, block, loops):
    lanes = int(rng.choice([4, 8]))
    sch.pack_contraction(block, [1, 2], 4, [1, lanes], ["uint8", "int8"])


def _fewer_products(sch, rng, block, loops):
    sch.fewer_products(block, int(rng.choice([2, 4])), 2)


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


def _annotate_access(sch, rng, block, loops):
    how = ("read", "write")[int(rng.integers(2))]
    regions = getattr(sch.get(block), f"{how}s")
    which = int(rng.integers(max(1, len(regions))))
    shape = regions[which].buffer.shape if regions else ()
    sch.annotate_buffer_access(block, which, how, lambda *axes: [(0, n) for n in shape])


def _roll(sch, rng, block, loops):
    consumers = sch.get_consumers(block)
    if consumers and sch.get_loops(consumers[0]) and rng.integers(2):
        outer = sch.get_loops(consumers[0])
        if len(outer) > 1 and rng.integers(2):
            sch.split(outer[0], [None, int(rng.integers(1, 4))])
            outer = sch.get_loops(consumers[0])
        sch.compute_at(block, outer[int(rng.integers(len(outer)))])
    sch.rolling_buffer(block, 0)


def _fuse_epilogue(sch, rng, block, loops):
    consumers = sch.get_consumers(block)
    sch.fuse_reduction_epilogue(block, consumers[0] if consumers else block)


def _copied_at(name):
    def step(sch, rng, block, loops):
        getattr(sch, name)(loops[int(rng.integers(len(loops)))], block, 0, "local")

    return step


def _hide(sch, rng, block, loops):
    if not isinstance(sch.get(block).body, tir.BufferStore):
        raise tir.ScheduleError("what a call does behind pointers is not to be hidden")
    sch.unsafe_hide_buffer_access(block, ("read", "write")[int(rng.integers(2))], [0])


STEPS = {
    "fuse_reduction_epilogue": _fuse_epilogue,
    "read_at": _copied_at("read_at"),
    "write_at": _copied_at("write_at"),
    "unsafe_hide_buffer_access": _hide,
    "rolling_buffer": _roll,
    "annotate_buffer_access": _annotate_access,
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
    "fewer_products": _fewer_products,
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
        if not blocks:
            break
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
