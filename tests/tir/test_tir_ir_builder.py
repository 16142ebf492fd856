"""`tir.ir_builder` against the same statements as script text, interpreted and compiled."""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import tir
from relaxvm.base import TIRError
from relaxvm.ir import assert_structural_equal
from relaxvm.script import tir as T


def function_of(buffers, body):
    handles = [tir.Var(b.name, "handle") for b in buffers]
    return tir.PrimFunc(handles, body, None, dict(zip(handles, buffers)))


def test_every_scope_gives_the_statement_of_the_text():
    ib = tir.ir_builder.create()
    a = tir.decl_buffer((8,), "float32", "a")
    A = ib.buffer_ptr(a)
    t = ib.allocate("float32", (2, 4), "t", scope="local")
    ib.scope_attr(t, "remark", "text")
    with ib.for_range(0, 8, kind="parallel") as i:
        t[1, 2] = 3.0
        with ib.if_scope(ib.likely(i % 2 == 0)):
            A[i] = A[i] + t[6]
        with ib.else_scope():
            A[i] = 0.0
    with ib.new_scope():
        x = ib.let("x", A[0] * 2)
        A[0] = x
    k = ib.allocate("int32", 1, "k")
    k[0] = 0
    with ib.while_loop(k[0] < 3):
        A[k[0]] = A[k[0]] * 2.0
        k[0] += 1
    ib.emit(tir.call_extern("int32", "f", k))
    ib.emit(tir.Evaluate(1))

    @T.prim_func(private=True)
    def expected(a: T.Buffer((8,), "float32")):
        t = T.allocate([2, 4], "float32", "local")
        T.attr(t, "remark", "text")
        t_1 = T.Buffer((2, 4), "float32", data=t, scope="local")
        for i in T.parallel(8):
            t_1[1, 2] = T.float32(3)
            if T.likely(i % 2 == 0):
                a[i] = a[i] + t_1[1, 2]
            else:
                a[i] = T.float32(0)
        with T.LetStmt(a[0] * T.float32(2)) as x:
            a[0] = x
        k = T.allocate([1], "int32", "")
        k_1 = T.Buffer((1,), "int32", data=k)
        k_1[0] = 0
        while k_1[0] < 3:
            a[k_1[0]] = a[k_1[0]] * T.float32(2)
            k_1[0] = k_1[0] + 1
        T.evaluate(T.call_extern("int32", "f", k))
        T.evaluate(1)

    assert_structural_equal(function_of([a], ib.get()), expected)


def test_a_sieve_runs_interpreted_and_compiled():
    n = tir.Var("n", "int32")
    a = tir.decl_buffer((n,), "int32", "a")
    ib = tir.ir_builder.create()
    A = ib.buffer_ptr(a)
    with ib.for_range(0, n) as i:
        A[i] = tir.Cast("int32", i > 1)
    at = ib.allocate("int32", 1, "at")
    with ib.for_range(2, n) as i:
        with ib.if_scope(A[i]):
            at[0] = 2 * i
            with ib.while_loop(at[0] < n):
                A[at[0]] = 0
                at[0] += i
    sieve = function_of([a], ib.get()).with_attr("global_symbol", "sieve")
    wanted = [int(k in (2, 3, 5, 7, 11, 13, 17, 19)) for k in range(20)]
    interpreted, compiled = np.zeros(20, "int32"), tvm.nd.array(np.zeros(20, "int32"))
    tir.interpret(sieve, interpreted)
    tvm.build(sieve)(compiled)
    assert interpreted.tolist() == compiled.numpy().tolist() == wanted


@pytest.mark.parametrize("strides", [(), (12, 4, 1)])
def test_one_index_counts_the_elements_row_by_row(strides):
    a = tir.decl_buffer((2, 3, 4), "int32", "a", strides=strides)
    ib = tir.ir_builder.create()
    with ib.for_range(0, 24) as i:
        ib.buffer_ptr(a)[i] = i
    x = np.zeros((2, 3, 4), "int32")
    tir.interpret(function_of([a], ib.get()), x)
    assert x.ravel().tolist() == list(range(24))


def test_a_vector_dtype_counts_vectors():
    ib = tir.ir_builder.create()
    a = tir.decl_buffer((8,), "float32", "a")
    v = ib.allocate("float32x4", (2,), "v")
    v[1] = tir.Broadcast(tir.const(2.0), 4)
    ib.emit(a.vstore([4], v[1]))
    x = np.zeros(8, "float32")
    tir.interpret(function_of([a], ib.get()), x)
    assert x.tolist() == [0, 0, 0, 0, 2, 2, 2, 2]


def test_a_bare_pointer_has_a_typed_variable():
    ib = tir.ir_builder.create()
    p = ib.pointer("float16", "p", scope="global")
    p[100] = p[99]
    store = ib.get()
    assert store.buffer.data is p.asobject()
    assert str(p.asobject().type_annotation.element_type.dtype) == "float16"


def test_loops_without_a_name_are_called_i_j_k():
    ib = tir.ir_builder.create()
    names = []
    for _ in range(5):
        with ib.for_range(0, 2) as v:
            names.append(v.name)
    assert names == ["i", "j", "k", "i_0", "i_1"]


def test_a_loop_that_does_not_begin_at_zero_runs_to_its_end():
    ib = tir.ir_builder.create()
    with ib.for_range(3, 10, dtype="int64") as i:
        ib.emit(tir.Evaluate(i))
    loop = ib.get()
    assert (loop.min.value, loop.extent.value, str(loop.loop_var.dtype)) == (3, 7, "int64")


def test_mistakes_say_what_is_wrong():
    ib = tir.ir_builder.create()
    A = ib.allocate("float32", (2, 4), "A")
    with pytest.raises(RuntimeError, match="else_scope.*only follow an if_scope"):
        ib.else_scope()
    with pytest.raises(TIRError, match="A has 2 dimensions, got 3 indices"):
        A[0, 1, 2] = 1.0
    with pytest.raises(ValueError, match="A holds float32, the value is int32; cast it"):
        A[0] = tir.Var("i", "int32")
    with pytest.raises(TIRError, match="for_range: wanted"), ib.for_range(0, 4, kind="threads"):
        pass
    with pytest.raises(TIRError, match="emit: wanted a statement"):
        ib.emit(3)
    with pytest.raises(TypeError):
        list(A)
    with ib.if_scope(tir.Var("c", "bool")), pytest.raises(RuntimeError, match="scope is still"):
        ib.get()


def test_a_scope_that_raises_leaves_nothing():
    ib = tir.ir_builder.create()

    def write():
        with ib.for_range(0, 4):
            ib.emit(tir.For(tir.Var("i", "int32"), 0, 4, "serial", tir.Evaluate(1)))
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert isinstance(ib.get(), tir.Evaluate)


def test_access_ptr_is_the_address_of_an_element_and_how_much_may_be_touched():
    def parts(call):
        simplify = tvm.arith.Analyzer().simplify
        return [simplify(call.args[k]).value for k in (2, 3, 4)]

    a = tir.decl_buffer((4, 8), "float32", "a")
    call = a.access_ptr("rw")
    assert call.op.name == "tir.tvm_access_ptr" and call.args[1] is a.data
    assert str(call.args[0].dtype) == "float32" and str(call.dtype) == "handle"
    assert parts(call) == [0, 32, 3]
    assert parts(a.access_ptr(tir.Buffer.READ, offset=8)) == [8, 24, 1]
    assert parts(a.access_ptr("w", offset=8, extent=4)) == [8, 4, 2]
    vectors = a.access_ptr("r", content_lanes=4, offset=8)
    assert parts(vectors) == [2, 6, 1] and str(vectors.args[0].dtype) == "float32x4"
    part = tir.decl_buffer((4, 8), "float32", "a", strides=(16, 1), elem_offset=32)
    assert parts(part.access_ptr("r")) == [32, 64, 1]
    with pytest.raises(TIRError, match='wanted "r", "w" or "rw"'):
        a.access_ptr("x")
