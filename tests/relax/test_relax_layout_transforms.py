"""`suggest_layout_transforms`: the suggestions, applied, keep what the function does."""

import numpy as np
import pytest

from relaxvm import arith, relax, tir
from relaxvm.base import TVMError
from relaxvm.ir import assert_structural_equal
from relaxvm.relax.analysis import suggest_layout_transforms
from relaxvm.script import tir as T


def applied(func, maps):
    sch = tir.Schedule(func)
    for block, found in suggest_layout_transforms(func, maps).items():
        rv = sch.get_block(block.name_hint)
        for place, index_map in found.items():
            if isinstance(place, tir.Block):
                sch.transform_block_layout(rv, index_map)
            else:
                sch.transform_layout(rv, place, index_map)
    return sch.mod["main"]


@T.prim_func(private=True)
def relu(x: T.Buffer((2, 8, 5, 6), "float32"), y: T.Buffer((2, 8, 5, 6), "float32")):
    for i0, i1, i2, i3 in T.grid(2, 8, 5, 6):
        with T.block("compute"):
            n, c, h, w = T.axis.remap("SSSS", [i0, i1, i2, i3])
            y[n, c, h, w] = T.max(x[n, c, h, w], T.float32(0))


@T.prim_func(private=True)
def pool(x: T.Buffer((2, 4, 9, 9), "float32"), y: T.Buffer((2, 4, 4, 8), "float32")):
    for a, b, c, d, p, q in T.grid(2, 4, 4, 8, 2, 2):
        with T.block("pool"):
            n, k, h, w, i, j = T.axis.remap("SSSSRR", [a, b, c, d, p, q])
            with T.init():
                y[n, k, h, w] = T.float32(-100)
            y[n, k, h, w] = T.max(y[n, k, h, w], x[n, k, h * 2 + i, w + j])


@T.prim_func(private=True)
def row_sums(x: T.Buffer((2, 3, 8, 5), "float32"), y: T.Buffer((2, 8), "float32")):
    for a, p, b, q in T.grid(2, 3, 8, 5):
        with T.block("sum"):
            n, i, c, j = T.axis.remap("SRSR", [a, p, b, q])
            with T.init():
                y[n, c] = T.float32(0)
            y[n, c] = y[n, c] + x[n, i, c, j]


@T.prim_func(private=True)
def bias(
    x: T.Buffer((2, 8, 5), "float32"),
    b: T.Buffer((8, 1), "float32"),
    y: T.Buffer((2, 8, 5), "float32"),
):
    for i0, i1, i2 in T.grid(2, 8, 5):
        with T.block("add"):
            n, c, w = T.axis.remap("SSS", [i0, i1, i2])
            y[n, c, w] = x[n, c, w] + b[c, 0]


@T.prim_func(private=True)
def halves(
    x: T.Buffer((2, 8, 5), "float32"),
    y: T.Buffer((2, 4, 5), "float32"),
    z: T.Buffer((2, 4, 5), "float32"),
):
    for i0, i1, i2 in T.grid(2, 4, 5):
        with T.block("first"):
            n, c, w = T.axis.remap("SSS", [i0, i1, i2])
            y[n, c, w] = x[n, c, w]
    for i0, i1, i2 in T.grid(2, 4, 5):
        with T.block("second"):
            n, c, w = T.axis.remap("SSS", [i0, i1, i2])
            z[n, c, w] = x[n, c + 4, w]


@T.prim_func(private=True)
def transposed(x: T.Buffer((2, 8, 5), "float32"), y: T.Buffer((2, 5, 8), "float32")):
    for i0, i1, i2 in T.grid(2, 5, 8):
        with T.block("copy"):
            n, w, c = T.axis.remap("SSS", [i0, i1, i2])
            y[n, w, c] = x[n, c, w]


def channels_last(*axes):
    n, c, *rest = axes
    return (n, *rest, c)


def blocked(*axes):
    n, c, *rest = axes
    return (n, *rest, c // 4, c % 4)


def laid_out(array, index_map):
    """`array` in the layout that `index_map` gives."""
    simplify = arith.Analyzer().simplify
    out = np.zeros([int(simplify(e)) for e in index_map.map_shape(array.shape)], array.dtype)
    for index in np.ndindex(*array.shape):
        out[tuple(int(simplify(e)) for e in index_map.map_indices(index))] = array[index]
    return out


@pytest.mark.parametrize(
    ("func", "of", "outputs", "moved"),
    [
        (relu, channels_last, 1, ["compute", "x", "y"]),
        (relu, blocked, 1, ["compute", "x", "y"]),
        (pool, channels_last, 1, ["pool", "x", "y"]),
        (pool, blocked, 1, ["pool", "x", "y"]),
        (row_sums, blocked, 1, ["sum", "x", "y"]),
        (bias, channels_last, 1, ["add", "b", "x", "y"]),
        (bias, blocked, 1, ["add", "b", "x", "y"]),
        (halves, channels_last, 2, ["first", "second", "x", "y", "z"]),
        (halves, blocked, 2, ["first", "second", "x", "y", "z"]),
        (transposed, channels_last, 1, ["copy", "y"]),
    ],
)
def test_what_is_suggested_keeps_what_the_function_does(func, of, outputs, moved):
    suggested = suggest_layout_transforms(func, [of_rank(func, of, k) for k in range(-outputs, 0)])
    maps = {place: m for found in suggested.values() for place, m in found.items()}
    names = [getattr(p, "name_hint", None) or p.name for p in maps]
    assert sorted(names) == sorted(moved)
    rng = np.random.default_rng(0)
    before = [rng.random([int(e) for e in b.shape], "float32") for b in func.buffer_map.values()]
    buffers = list(func.buffer_map.values())
    after = [laid_out(a, maps[b]) if b in maps else a.copy() for a, b in zip(before, buffers)]
    tir.interpret(func, *before)
    new = applied(func, [of_rank(func, of, k) for k in range(-outputs, 0)])
    tir.interpret(new, *after)
    for wanted, got, buffer in zip(before, after, buffers):
        expected = laid_out(wanted, maps[buffer]) if buffer in maps else wanted
        np.testing.assert_array_equal(got, expected)


def of_rank(func, of, at):
    buffer = func.buffer_map[func.params[at]]
    return tir.IndexMap.from_func(of, ndim=buffer.ndim)


def test_a_symbolic_function_is_transformed():
    @T.prim_func(private=True)
    def before(a: T.handle, b: T.handle):
        n, c, h = T.int64(), T.int64(), T.int64()
        A = T.match_buffer(a, (n, c, h))
        B = T.match_buffer(b, (n, c, h))
        for i, j, k in T.grid(n, c, h):
            with T.block("compute"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                B[vi, vj, vk] = A[vi, vj, vk] + T.float32(1)

    @T.prim_func(private=True)
    def after(a: T.handle, b: T.handle):
        n, c, h = T.int64(), T.int64(), T.int64()
        A = T.match_buffer(a, (n, h, c))
        B = T.match_buffer(b, (n, h, c))
        for i, k, j in T.grid(n, h, c):
            with T.block("compute"):
                vi, vk, vj = T.axis.remap("SSS", [i, k, j])
                B[vi, vk, vj] = A[vi, vk, vj] + T.float32(1)

    assert_structural_equal(applied(before, [lambda n, c, h: (n, h, c)]), after)


def test_packing_two_axes_keeps_the_unpacked_one_in_reads():
    @T.prim_func(private=True)
    def before(x: T.Buffer((8, 4), "float32"), y: T.Buffer((4, 8), "float32")):
        for a, b, c in T.grid(4, 8, 4):
            with T.block("compute"):
                va, vb, vc = T.axis.remap("SSS", [a, b, c])
                y[va, vb] = x[vb, vc]

    (found,) = suggest_layout_transforms(before, [lambda a, b: (a * 8 + b,)]).values()
    assert sorted(getattr(p, "name_hint", None) or p.name for p in found) == ["compute", "y"]


def test_nothing_is_suggested_where_the_order_is_not_clear():
    @T.prim_func(private=True)
    def products(x: T.Buffer((8, 4), "float32"), y: T.Buffer((32, 3), "float32")):
        for a, b, c in T.grid(8, 4, 3):
            with T.block("compute"):
                va, vb, vc = T.axis.remap("SSS", [a, b, c])
                y[va * vb, vc] = x[va, vb]

    @T.prim_func(private=True)
    def flat(x: T.Buffer((4, 4), "float32"), y: T.Buffer((16,), "float32")):
        for a, b in T.grid(4, 4):
            with T.block("flatten"):
                va, vb = T.axis.remap("SS", [a, b])
                y[va * 4 + vb] = x[va, vb]

    @T.prim_func(private=True)
    def nested(x: T.Buffer((4, 4), "float32"), y: T.Buffer((4, 4), "float32")):
        for a in range(4):
            with T.block("outer"):
                va = T.axis.spatial(4, a)
                T.reads(x[va, 0:4])
                T.writes(y[va, 0:4])
                for b in range(4):
                    with T.block("inner"):
                        vb = T.axis.spatial(4, b)
                        y[va, vb] = x[va, vb]

    assert suggest_layout_transforms(products, [lambda a, b: (b, a)]) == {}
    assert suggest_layout_transforms(flat, [lambda a: (a // 4, a % 4)]) == {}
    assert suggest_layout_transforms(nested, [lambda a, b: (b, a)]) == {}
    # 8 channels are no whole number of blocks of 5.
    uneven = suggest_layout_transforms(relu, [lambda n, c, h, w: (n, c // 5, c % 5, h, w)])
    assert uneven == {}
    assert suggest_layout_transforms(relu, []) == {}


def test_maps_that_do_not_fit_are_refused():
    swap = lambda n, c, h, w: (n, h, w, c)  # noqa: E731
    with pytest.raises(TVMError, match="Incompatible PrimFunc and write_transformations"):
        suggest_layout_transforms(relu, [swap, swap, swap])
    with pytest.raises(TVMError, match="Mismatch between output buffer shape and index map"):
        suggest_layout_transforms(relu, [lambda n, h, w: (n, w, h)])
    with pytest.raises(TypeError, match="wanted an IndexMap or a function, got int"):
        relax.analysis.suggest_layout_transforms(relu, write_buffer_transforms=[2])
