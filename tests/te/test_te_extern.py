"""Tensors made by statements and row by row; slices and arithmetic of tensors."""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import te
from relaxvm.script import tir as T
from relaxvm.tir.interp import interpret

RNG = np.random.default_rng(3)


def floats(*shape):
    return RNG.uniform(-2, 2, shape).astype("float32")


def run(args, arrays, *shapes):
    """What the machine code of the tensors computes; the interpreter says the same."""
    func = te.create_prim_func(args)
    outs = [tvm.nd.array(np.full(s, 9, "float32")) for s in shapes]
    tvm.build(func)(*map(tvm.nd.array, arrays), *outs)
    meant = [np.full(s, 9, "float32") for s in shapes]
    interpret(func, *arrays, *meant)
    for out, mean in zip(outs, meant):
        np.testing.assert_allclose(out.numpy(), mean, rtol=1e-5, atol=1e-5)
    return [o.numpy() for o in outs]


# -- extern ----------------------------------------------------------------------------------------


def doubled(source, target, n):
    i = tvm.tir.Var("i", "int32")
    body = tvm.tir.BufferStore(target, source[i] * 2 + 1, [i])
    return tvm.tir.For(i, 0, n, "serial", body)


def test_extern_by_a_statement_between_formulas():
    a = te.placeholder((6,), name="a")
    b = te.compute((6,), lambda i: a[i] + 1, "b")
    c = te.extern((6,), [b], lambda ins, outs: doubled(ins[0], outs[0], 6), name="c")
    d = te.compute((6,), lambda i: c[i] * a[i], "d")
    x = floats(6)
    (got,) = run([a, d], [x], (6,))
    np.testing.assert_allclose(got, ((x + 1) * 2 + 1) * x, rtol=1e-6)
    assert c.op.input_tensors == (b,) and c.op.name == "c" and c.dtype == "float32"
    assert isinstance(c.op, te.ExternOp) and c.shape == b.shape


def test_extern_of_several_results_and_symbols():
    n = te.var("n")
    a = te.placeholder((n,), name="a")

    def fill(ins, outs):
        return tvm.tir.SeqStmt([doubled(ins[0], o, n) for o in outs])

    b, c = te.extern([(n,), (n,)], [a], fill, dtype=["float32", "float32"])
    assert (b.value_index, c.value_index) == (0, 1) and b.op is c.op
    for size in (1, 5):
        x = floats(size)
        for got in run([a, b, c], [x], (size,), (size,)):
            np.testing.assert_allclose(got, x * 2 + 1, rtol=1e-6)


def test_extern_takes_buffers_of_a_form_and_calls():
    a = te.placeholder((2, 3), name="a")
    stride = te.var("s")
    form = tvm.tir.decl_buffer((2, 3), "float32", strides=[stride, 1])

    def fill(ins, outs):
        i = tvm.tir.Var("i", "int32")
        value = ins[0][1, i] + tvm.tir.Cast("float32", stride)
        return tvm.tir.For(i, 0, 3, "serial", tvm.tir.BufferStore(outs[0], value, [i]))

    b = te.extern((3,), [a], fill, in_buffers=[form])
    x = floats(2, 3)
    np.testing.assert_allclose(run([a, b], [x], (3,))[0], x[1] + 3, rtol=1e-6)
    with pytest.raises(tvm.TVMError, match="statement or a call"):
        te.extern((3,), [a], lambda ins, outs: None)
    with pytest.raises(tvm.TVMError, match="dtype"):
        te.extern((3,), [], lambda ins, outs: fill(ins, outs))
    for shape in ((2,), (2, 4)):
        with pytest.raises(tvm.TVMError, match="cannot stand for"):
            te.extern((3,), [a], fill, in_buffers=[tvm.tir.decl_buffer(shape, "float32")])


def test_extern_by_an_ir_builder():
    n = te.var("n")
    a = te.placeholder((n,), name="a")

    def fill(ins, outs):
        ib = tvm.tir.ir_builder.create()
        source, target = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, n, name="i") as i:
            target[i] = source[n - 1 - i] * 3.0
        return ib.get()

    b = te.extern((n,), [a], fill, name="turned", dtype="float32")
    x = floats(7)
    np.testing.assert_allclose(run([a, b], [x], (7,))[0], x[::-1] * 3, rtol=1e-6)


@T.prim_func
def scaled_rows(a: T.handle, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, 4), "float32")
    B = T.match_buffer(b, (n, 4), "float32")
    for i, j in T.grid(n, 4):
        with T.block("rows"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[v, w] * T.Cast("float32", v)


def test_extern_primfunc_stands_among_formulas_and_is_scheduled():
    a = te.placeholder((3, 4), name="a")
    b = te.compute((3, 4), lambda i, j: a[i, j] + 1, "b")
    c = te.extern_primfunc([b], scaled_rows)
    d = te.extern_primfunc([c], scaled_rows)
    x, rows = floats(3, 4), np.arange(3, dtype="float32")[:, None]
    np.testing.assert_allclose(run([a, d], [x], (3, 4))[0], (x + 1) * rows * rows, rtol=1e-6)
    sch = tvm.tir.Schedule(te.create_prim_func([a, d]))
    sch.compute_inline(sch.get_block("b"))
    outer, _ = sch.split(sch.get_loops(sch.get_block("rows"))[1], [2, 2])
    sch.get_block("rows_1")
    with pytest.raises(tvm.TVMError, match="got 2 tensors"):
        te.extern_primfunc([a, b], scaled_rows)
    with pytest.raises(tvm.TVMError):
        te.extern_primfunc([te.placeholder((3, 5))], scaled_rows)


def test_extern_primfunc_of_a_function_that_sums_into_its_result():
    @T.prim_func
    def product(A: T.Buffer((3, 4), "float32"), B: T.Buffer((4, 2), "float32"),
                C: T.Buffer((3, 2), "float32")):  # fmt: skip
        for i, j, k in T.grid(3, 2, 4):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    a, b = te.placeholder((3, 4), name="a"), te.placeholder((4, 2), name="b")
    x, y = floats(3, 4), floats(4, 2)
    (got,) = run([a, b, te.extern_primfunc([a, b], product)], [x, y], (3, 2))
    np.testing.assert_allclose(got, x @ y, rtol=1e-5, atol=1e-6)


# -- scan ------------------------------------------------------------------------------------------


def test_scan_sums_columns():
    m, n = te.var("m"), te.var("n")
    x = te.placeholder((m, n), name="X")
    state = te.placeholder((m, n), name="state")
    first = te.compute((1, n), lambda _, i: x[0, i])
    step = te.compute((m, n), lambda t, i: state[t - 1, i] + x[t, i], name="step")
    sums = te.scan(first, step, state, inputs=[x])
    assert isinstance(sums.op, te.ScanOp) and sums.op.scan_axis.iter_type == "ordered"
    after = te.compute((m, n), lambda i, j: sums[i, j] * 2, name="after")
    for shape in ((1, 3), (5, 4)):
        data = floats(*shape)
        got, twice = run([x, sums, after], [data], shape, shape)
        np.testing.assert_allclose(got, data.cumsum(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(twice, 2 * data.cumsum(0), rtol=1e-5, atol=1e-6)


def test_scan_of_two_states_with_a_product_and_a_step_between():
    rows, n = 6, 4
    w, x = te.placeholder((n, n), name="W"), te.placeholder((rows, n), name="X")
    h, c = (te.placeholder((rows, n), name=s) for s in "hc")
    k = te.reduce_axis((0, n), "k")
    half = te.compute((n, n), lambda i, j: w[i, j] / 2, "half")
    prod = te.compute((rows, n), lambda t, i: te.sum(h[t - 1, k] * half[i, k], k), "prod")
    next_c = te.compute((rows, n), lambda t, i: c[t - 2, i] + prod[t, i], "next_c")
    next_h = te.compute((rows, n), lambda t, i: te.tanh(next_c[t, i]) + x[t, i], "next_h")
    start = te.compute((2, n), lambda t, i: x[t, i], "start")
    got_h, got_c = te.scan([start, start], [next_h, next_c], [h, c])
    ws, xs = floats(n, n), floats(rows, n)
    hs, cs = xs.copy(), xs.copy()
    for t in range(2, rows):
        cs[t] = cs[t - 2] + ws / 2 @ hs[t - 1]
        hs[t] = np.tanh(cs[t]) + xs[t]
    out_h, out_c = run([w, x, got_h, got_c], [ws, xs], (rows, n), (rows, n))
    np.testing.assert_allclose(out_c, cs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out_h, hs, rtol=1e-4, atol=1e-5)


def test_scan_refuses_rows_that_are_not_there_yet():
    x, s = te.placeholder((5, 3), name="x"), te.placeholder((5, 3), name="s")
    first = te.compute((1, 3), lambda t, i: x[t, i])

    def made(step):
        return te.create_prim_func([x, te.scan(first, te.compute((5, 3), step), s)])

    made(lambda t, i: s[t - 1, i])
    for step in (lambda t, i: s[t, i], lambda t, i: s[t - 2, i], lambda t, i: s[i + 1, 0]):
        with pytest.raises(tvm.TVMError, match="not known to lie before"):
            made(step)
    between = te.compute((5, 3), lambda t, i: s[t - 1, i])
    with pytest.raises(tvm.TVMError, match="another row"):
        made(lambda t, i: between[t - 1, i])
    with pytest.raises(tvm.TVMError, match="differ"):
        te.scan(first, te.compute((5, 4), lambda t, i: x[t, 0]), s)
    with pytest.raises(tvm.TVMError, match="placeholder"):
        te.scan(
            first, te.compute((5, 3), lambda t, i: x[t, i]), te.compute((5, 3), lambda *i: x(*i))
        )


# -- slices and arithmetic -------------------------------------------------------------------------


def test_slices_take_indices_one_by_one():
    a = te.placeholder((3, 4, 5), name="a")
    i = te.var("i")
    assert a[i][1][2] is a[i, 1, 2] and a[i, 1][2] is a[i, 1, 2]
    assert isinstance(a[i], te.TensorSlice) and a[i].dtype == "float32"
    b = te.compute((3, 4), lambda i, j: a[i][j][0] + a[i, j][1])
    x = floats(3, 4, 5)
    np.testing.assert_allclose(run([a, b], [x], (3, 4))[0], x[..., 0] + x[..., 1], rtol=1e-6)
    with pytest.raises(tvm.TVMError, match="3 dimensions"):
        te.compute((3,), lambda i: a[i])
    with pytest.raises(tvm.TVMError, match="3 dimensions"):
        a[i][1][2, 3]


def test_arithmetic_of_tensors_is_by_element_and_broadcasts():
    n = te.var("n")
    a, b = te.placeholder((n, 4), name="a"), te.placeholder((4,), name="b")
    k = te.placeholder((n, 1), "int32", name="k")
    made = [
        a + b, a - 1, 2.0 - a, a * b, 3 * a, a / b, 1 / b + a, -a, a + k, (a * 2.0) // b, a % b,
        k.astype("float32") * a, te.const(3.0) * a, te.const(1.0) / b - a,
    ]  # fmt: skip
    x, y, z = (
        floats(3, 4),
        RNG.uniform(1, 2, 4).astype("float32"),
        np.array([[1], [2], [3]], "int32"),
    )
    want = [
        x + y, x - 1, 2 - x, x * y, 3 * x, x / y, 1 / y + x, -x, x + z, x * 2 // y, x % y, z * x,
        3 * x, 1 / y - x,
    ]  # fmt: skip
    use = [te.compute(t.shape, lambda *i, t=t: t(*i).astype("float32")) for t in made]
    got = run([a, b, k, *use], [x, y, z], *(w.shape for w in want))
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)
    with pytest.raises(tvm.TVMError, match="do not broadcast"):
        a + te.placeholder((3,))


def test_operations_say_what_they_are():
    a = te.placeholder((4, 3), name="a")
    k = te.reduce_axis((0, 3), "k")
    with te.tag_scope("mine"):
        b = te.compute((4,), lambda i: te.sum(a[i, k], k), name="b", attrs={"x": 1})
    assert b.op.tag == "mine" and b.op.attrs["x"] == 1 and b.op.name == "b"
    assert [x.var.name for x in b.op.axis] == ["i"] and list(b.op.reduce_axis) == [k]
    assert list(b.op.input_tensors) == [a] and list(a.op.input_tensors) == []
    assert (b.ndim, b.value_index, b.op.num_outputs) == (1, 0, 1)
    assert b == b.op.output(0) and a.op.tag == ""
