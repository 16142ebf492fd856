"""The kinds of loop functions, derived from what they do."""

import pytest

from relaxvm import te, tir
from relaxvm.ir import IRModule
from relaxvm.relax import transform
from relaxvm.script import from_source
from relaxvm.script import tir as T
from relaxvm.tir.analysis import OpPatternKind, op_pattern

ELEMWISE, BROADCAST, INJECTIVE, COMM_REDUCE, FUSABLE, _, OPAQUE = OpPatternKind


def lowered(text):
    """The first loop function of what a graph function's operator becomes."""
    mod = from_source(
        "from relaxvm.script import ir as I, relax as R\n@I.ir_module\nclass M:\n"
        "    @R.function\n"
        f"    def main({text}\n        return y\n"
    )
    mod = transform.LegalizeOps()(mod)
    return next(fn for fn in mod.functions.values() if isinstance(fn, tir.PrimFunc))


F = 'R.Tensor(({}), "float32")'.format
KINDS = [
    (f"x: {F('4, 5')}):\n        y = R.exp(x)", ELEMWISE, [ELEMWISE]),
    (f"x: {F('4, 5')}, b: {F('5,')}):\n        y = R.add(x, b)", ELEMWISE, [ELEMWISE, BROADCAST]),
    (f"x: {F('4, 1')}, b: {F('5,')}):\n        y = R.add(x, b)", BROADCAST, [BROADCAST] * 2),
    (f"x: {F('1, 4, 1')}):\n        y = R.nn.relu(x)", ELEMWISE, [ELEMWISE]),
    (f"x: {F('4, 5')}):\n        y = R.permute_dims(x)", INJECTIVE, [INJECTIVE]),
    (f"x: {F('4, 5')}):\n        y = R.reshape(x, (20,))", INJECTIVE, [INJECTIVE]),
    (f"x: {F('4, 5')}):\n        y = R.reshape(x, (1, 4, 5))", ELEMWISE, [ELEMWISE]),
    (f"x: {F('4, 5')}):\n        y = R.broadcast_to(x, (3, 4, 5))", BROADCAST, [BROADCAST]),
    (f"x: {F('4, 5')}):\n        y = R.concat((x, x), axis=1)", INJECTIVE, [INJECTIVE] * 2),
    (f"x: {F('4, 5')}):\n        y = R.split(x, 5, axis=1)", INJECTIVE, [INJECTIVE]),
    (
        f'x: {F("4, 5")}, i: R.Tensor((3,), "int64")):\n        y = R.take(x, i, axis=0)',
        INJECTIVE,
        [INJECTIVE, BROADCAST],
    ),
    (f"x: {F('4, 5')}):\n        y = R.sum(x, axis=1)", COMM_REDUCE, [COMM_REDUCE]),
    (f"x: {F('4, 5')}):\n        y = R.mean(x, keepdims=True)", COMM_REDUCE, [COMM_REDUCE]),
    (f"x: {F('4, 5')}):\n        y = R.argmax(x, axis=1)", FUSABLE, [COMM_REDUCE]),
    (f"x: {F('4, 5')}):\n        y = R.nn.softmax(x)", FUSABLE, [COMM_REDUCE]),
    (
        f"x: {F('4, 5')}, g: {F('5,')}):\n        y = R.nn.layer_norm(x, g, g, axes=[-1])",
        FUSABLE,
        [COMM_REDUCE, BROADCAST, BROADCAST],
    ),
    (f"x: {F('4, 5')}, w: {F('5, 6')}):\n        y = R.matmul(x, w)", FUSABLE, [FUSABLE] * 2),
    (
        f"x: {F('1, 3, 8, 8')}, w: {F('4, 3, 3, 3')}):\n        y = R.nn.conv2d(x, w, padding=1)",
        FUSABLE,
        [FUSABLE] * 2,
    ),
    (f"x: {F('1, 3, 8, 8')}):\n        y = R.nn.max_pool2d(x, (2, 2))", FUSABLE, [FUSABLE]),
    (f"x: {F('4, 5')}):\n        y = R.cumsum(x, axis=0)", OPAQUE, []),
]


@pytest.mark.parametrize(
    ("text", "kind", "reads"), KINDS, ids=[k[0].split("R.")[-1] for k in KINDS]
)
def test_kinds_of_operators(text, kind, reads):
    found = op_pattern(lowered(text))
    assert found.kind is kind
    assert list(found.reads.values()) == reads
    assert found.plain or kind is OPAQUE


def test_casts_of_indices_and_symbolic_sizes_do_not_count():
    @T.prim_func
    def f(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(4)), "float32")
        B = T.match_buffer(b, (n, T.int64(4)), "float32")
        for i, j in T.grid(T.Cast("int32", n), 4):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[T.Cast("int64", vi), vj] = A[T.Cast("int64", vi), vj] + T.float32(1)

    assert op_pattern(f).kind is ELEMWISE


def test_a_users_product_is_told_from_a_sum_by_what_it_multiplies():
    n, k = te.var("n", "int64"), te.reduce_axis((0, 8))
    a, b = te.placeholder((n, 8), name="a"), te.placeholder((n, 8), name="b")
    dots = te.compute((n,), lambda i: te.sum(a[i, k] * b[i, k], axis=k))
    squares = te.compute((n,), lambda i: te.sum(a[i, k] * a[i, k], axis=k))
    assert op_pattern(te.create_prim_func([a, b, dots])).kind is FUSABLE
    assert op_pattern(te.create_prim_func([a, squares])).kind is COMM_REDUCE


@T.prim_func
def scan(A: T.Buffer(8, "float32"), B: T.Buffer(8, "float32")):
    for i in range(7):
        with T.block("b"):
            vi = T.axis.spatial(7, i)
            B[vi + 1] = B[vi] + A[vi]


@T.prim_func
def loops_only(A: T.Buffer(8, "float32"), B: T.Buffer(8, "float32")):
    for i in range(8):
        B[i] = A[i]


@T.prim_func
def outside(A: T.Buffer(8, "float32"), B: T.Buffer(8, "float32")):
    for i in range(8):
        with T.block("b"):
            vi = T.axis.spatial(8, i)
            B[vi] = T.call_extern("float32", "f", A[vi])


@T.prim_func
def nothing(A: T.Buffer(8, "float32")):
    T.evaluate(0)


@pytest.mark.parametrize("fn", [scan, loops_only, outside, nothing])
def test_what_is_not_understood_is_opaque(fn):
    assert op_pattern(fn).kind is OPAQUE


def test_a_stated_kind_is_kept():
    fn = lowered(f"x: {F('4, 5')}):\n        y = R.exp(x)")
    stated = fn.with_attr("op_pattern", 8)
    assert op_pattern(stated).kind is OPAQUE
    mod = transform.AnnotateTIROpPattern()(IRModule({"a": stated, "b": fn}))
    assert [f.attrs["op_pattern"] for f in mod.functions.values()] == [8, 0]
    assert transform.AnnotateTIROpPattern()(mod) is mod
