"""`script.ir_builder`: each function written by calls equals the one written as text."""

import pytest

from relaxvm import ir, relax, te, tir
from relaxvm.base import BuilderError, ParseError
from relaxvm.ir import assert_structural_equal
from relaxvm.script import from_source
from relaxvm.script.ir_builder import IRBuilder
from relaxvm.script.ir_builder import ir as I
from relaxvm.script.ir_builder import relax as R
from relaxvm.script.ir_builder import tir as T

# -- loop functions


def test_a_loop_function_with_blocks():
    with IRBuilder() as ib:
        with T.prim_func():
            T.func_name("main")
            T.func_attr({"remark": 1})
            A = T.arg("A", T.Buffer((16, 8), "float32"))
            b = T.arg("b", T.handle())
            B = T.match_buffer(b, (16,), "float32")
            C = IRBuilder.name("C", T.alloc_buffer((16,), "float32"))
            with T.grid(16, 8) as (i, j):
                IRBuilder.name_many(["i", "j"], [i, j])
                with T.block("sum"):
                    vi, vj = T.axis.remap("SR", [i, j])
                    T.where(i < 9)
                    T.block_attr({"key": "value"})
                    with T.init():
                        T.buffer_store(C, 0.0, [vi])
                    T.buffer_store(C, C[vi] + A[vi, vj], [vi])
            with T.parallel(16) as i:
                with T.block("copy"):
                    vi = T.axis.spatial(16, i)
                    T.reads(C[vi])
                    T.writes(B[vi])
                    T.buffer_store(B, C[vi], [vi])
    func = ib.get()

    @T.prim_func
    def main(A: T.Buffer((16, 8), "float32"), b: T.handle):
        T.func_attr({"remark": 1})
        B = T.match_buffer(b, (16,), "float32")
        C = T.alloc_buffer((16,), "float32")
        for i, j in T.grid(16, 8):
            with T.block("sum"):
                vi, vj = T.axis.remap("SR", [i, j])
                T.where(i < 9)
                T.block_attr({"key": "value"})
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vj]
        for i in T.parallel(16):
            with T.block("copy"):
                vi = T.axis.spatial(16, i)
                T.reads(C[vi])
                T.writes(B[vi])
                B[vi] = C[vi]

    assert_structural_equal(func, main)
    assert [p.name for p in func.params] == ["A", "b"]
    assert {n.name for n in ir.walk(func) if isinstance(n, tir.Buffer)} >= {"A", "C"}
    assert 'main(A: T.Buffer((16, 8), "float32")' in func.script()


def test_a_loop_function_without_blocks():
    with IRBuilder() as ib:
        with T.prim_func(is_private=True):
            A = T.arg("A", T.Buffer((16,), "int32"))
            n = T.arg("n", T.int32())
            T.func_ret("int32")
            with T.Assert(n < 16, "n is small"):
                with T.LetStmt(n * 2) as m:
                    with T.allocate([4], "int32", "global") as p:
                        P = T.Buffer((4,), "int32", data=p)
                        with T.attr(p, "remark", 1):
                            T.buffer_store(P, m, [0])
                        with T.decl_buffer((4,), "int32") as Q:
                            T.buffer_store(Q, P[0], [1])
                            with T.While(P[0] > 0):
                                T.buffer_store(P, P[0] - 1, [0])
                            with T.If(Q[1] < 4):
                                with T.Then():
                                    with T.If(n < 2):
                                        with T.Then():
                                            T.buffer_store(A, 1, [n])
                                        with T.Else():
                                            T.buffer_store(A, 2, [n])
                            with T.If(Q[1] < 5):
                                with T.Then():
                                    T.buffer_store(A, 3, [n])
                                with T.Else():
                                    T.evaluate(T.ret(0))
                with T.allocate_const([1, 2], "int32", [2]):
                    T.evaluate(T.ret(1))

    @T.prim_func(private=True)
    def expected(A: T.Buffer((16,), "int32"), n: T.int32) -> T.int32:
        assert n < 16, "n is small"
        with T.LetStmt(n * 2) as m:
            with T.allocate([4], "int32", "global") as p:
                P = T.Buffer((4,), "int32", data=p)
                with T.attr(p, "remark", 1):
                    P[0] = m
                Q = T.decl_buffer((4,), "int32")
                Q[1] = P[0]
                while P[0] > 0:
                    P[0] = P[0] - 1
                if Q[1] < 4:
                    if n < 2:
                        A[n] = 1
                    else:
                        A[n] = 2
                if Q[1] < 5:
                    A[n] = 3
                else:
                    return 0
        with T.allocate_const([1, 2], "int32", [2]) as _:
            return 1

    assert_structural_equal(ib.get(), expected)


def test_loops_of_every_kind_and_threads():
    with IRBuilder() as ib:
        with T.prim_func():
            T.func_name("main")
            with T.serial(4, annotations={"a": 1}):
                with T.vectorized(2), T.unroll(1, 3):
                    with T.thread_binding(8, thread="threadIdx.x"):
                        brow = T.env_thread("blockIdx.y")
                        with T.launch_thread(brow, 2), T.launch_thread("blockIdx.x", 3) as x:
                            T.evaluate(x)

    @T.prim_func
    def main():
        for _i in T.serial(4, annotations={"a": 1}):
            for _j in T.vectorized(2):
                for _k in T.unroll(1, 3):
                    for _t in T.thread_binding(8, thread="threadIdx.x"):
                        brow = T.env_thread("blockIdx.y")
                        with T.launch_thread(brow, 2):
                            with T.launch_thread("blockIdx.x", 3) as x:
                                T.evaluate(x)

    assert_structural_equal(ib.get(), main)


def test_statements_in_no_function():
    a, e = T.int64(), T.Buffer((128, 128), "float32")
    with IRBuilder() as ib:
        with T.block("block"):
            T.where(a > 1)
            T.alloc_buffer((128, 128), "float32")
            T.match_buffer(e[0:32, 0:32], (32, 32), "float32")
            T.axis.spatial(128, T.int32())
            T.axis.reduce(16, T.int32())
            T.axis.scan(32, T.int32())
            T.axis.opaque(64, T.int32())
            T.evaluate(0)
    realize = ib.get()
    kinds = [axis.iter_type for axis in realize.block.iter_vars]
    assert kinds == ["spatial", "reduce", "ordered", "opaque"]
    assert len(realize.block.alloc_buffers) == len(realize.block.match_buffers) == 1
    with IRBuilder() as ib:
        T.evaluate(1)
        T.evaluate(2)
    assert_structural_equal(ib.get(), tir.SeqStmt([tir.Evaluate(1), tir.Evaluate(2)]))


def test_text_read_inside_a_builder_is_text():
    with IRBuilder() as ib:
        with T.prim_func():

            @T.prim_func
            def other(A: T.Buffer((4,), "float32")):
                B = T.alloc_buffer((4,), "float32")
                for i in range(4):
                    with T.block("b"):
                        vi = T.axis.spatial(4, i)
                        B[vi] = A[vi]

            again = from_source(other.script())
            T.evaluate(0)
    assert_structural_equal(again, other)
    assert isinstance(ib.get().body, tir.Evaluate)


# -- graph functions


def test_a_graph_function_with_a_dataflow_block():
    info = relax.TensorStructInfo((128, 128), "float32")
    with IRBuilder() as ib:
        with R.function():
            R.func_name("foo")
            R.func_attr({"Primitive": True})
            x = R.arg("x", info)
            R.func_ret_struct_info(relax.TensorStructInfo(dtype="float32", ndim=2))
            with R.dataflow() as df:
                lv0 = R.emit(R.call_dps_packed("extern_func", x, info))
                IRBuilder.name("lv0", lv0)
                gv = R.emit(R.add(lv0, lv0))
                IRBuilder.name("gv", gv)
                hv = R.emit(R.multiply(gv, lv0))
                R.output(gv, hv)
            gv, hv = df.output_vars
            out = IRBuilder.name("out", R.emit(R.add(gv, hv)))
            R.func_ret_value(out)

    @R.function
    def foo(x: R.Tensor((128, 128), "float32")) -> R.Tensor(ndim=2, dtype="float32"):
        R.func_attr({"Primitive": True})
        with R.dataflow():
            lv0 = R.call_dps_packed("extern_func", x, R.Tensor((128, 128), "float32"))
            gv = R.add(lv0, lv0)
            hv = R.multiply(gv, lv0)
            R.output(gv, hv)
        out = R.add(gv, hv)
        return out

    assert_structural_equal(ib.get(), foo)
    assert ib.get().body.body.name_hint == "out"
    assert "gv: R.Tensor" in ib.get().script()


def test_casts_bindings_made_by_hand_and_shapes():
    m, n = tir.Var("m", "int64"), tir.Var("n", "int64")
    with IRBuilder() as ib:
        with R.function(is_pure=False):
            R.func_name("foo")
            x = R.arg("x", relax.TensorStructInfo(ndim=-1, dtype="float32"))
            y = R.arg("y", R.Tensor(dtype="float32"))
            R.emit_match_cast(x, relax.TensorStructInfo((m,), "float32"))
            y1 = R.match_cast(y, R.Tensor((n,), "float32"))
            v = relax.Var("v", relax.TensorStructInfo((n,), "float32"))
            v = R.emit_var_binding(relax.VarBinding(v, y1))
            args = [relax.extern("f"), v]
            R.emit(R.emit_with_sinfo("relax.call_pure_packed", args, [R.Object()]))
            w = R.emit(v, R.Tensor(dtype="float32", ndim=1))
            R.func_ret_value(R.tuple(w, relax.ShapeExpr([m, n * 2])))

    @R.function(pure=False)
    def foo(x: R.Tensor(dtype="float32"), y: R.Tensor(dtype="float32")):
        m, n = T.int64(), T.int64()
        x1 = R.match_cast(x, R.Tensor((m,), "float32"))
        y1 = R.match_cast(y, R.Tensor((n,), "float32"))
        v: R.Tensor((n,), "float32") = y1
        z = R.call_pure_packed("f", v, sinfo_args=R.Object())
        w: R.Tensor(dtype="float32", ndim=1) = v
        return (w, R.shape([m, n * 2]))

    assert_structural_equal(ib.get(), foo)


def test_a_branch():
    with IRBuilder() as ib:
        with R.function(private=True):
            c = R.arg("c", R.Tensor((), "bool"))
            x = R.arg("x", R.Tensor(("n",), "float32"))
            with R.If(c) as choice:
                with R.Then():
                    y = R.emit(R.exp(x))
                    r = IRBuilder.name("r", R.emit(R.add(y, y)))
                with R.Else():
                    r = R.emit(R.sin(x))
            assert choice.var.name_hint == "r" and choice.var is not r
            R.func_ret_value(choice.var)

    @R.function(private=True)
    def expected(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")):
        if c:
            y = R.exp(x)
            r = R.add(y, y)
        else:
            r = R.sin(x)
        return r

    assert_structural_equal(ib.get(), expected)


# -- modules


def test_a_module_of_both_languages():
    with IRBuilder() as ib:
        with I.ir_module():
            I.module_attrs({"remark": 1})
            I.module_global_infos({"dummy": [I.dummy_global_info()]})
            with T.prim_func():
                T.func_name("twice")
                A = T.arg("A", T.Buffer((4,), "float32"))
                B = T.arg("B", T.Buffer((4,), "float32"))
                with T.serial(4) as i:
                    T.buffer_store(B, A[i] * 2.0, [i])
            x = relax.Var("x", R.Tensor((4,), "float32"))
            twice = I.decl_function("called", relax.Function([x], x, x.struct_info))
            with R.function():
                R.func_name("main")
                x = R.arg("x", R.Tensor((4,), "float32"))
                y = R.emit(R.call_tir(ir.GlobalVar("twice"), x, R.Tensor((4,), "float32")))
                z = R.emit(twice(y))
                w = R.emit_te(lambda a: te.compute((4,), lambda i: a[i] + 1.0, name="plus"), z)
                R.func_ret_value(w)
            with R.function():
                R.func_name("called")
                x = R.arg("x", R.Tensor((4,), "float32"))
                R.func_ret_value(R.emit(R.exp(x)))
    mod = ib.get()
    assert [gv.name_hint for gv in mod] == ["twice", "main", "called", "te_func"]
    assert mod.attrs["remark"] == 1 and len(mod.global_infos["dummy"]) == 1
    assert_structural_equal(from_source(mod.script(show_meta=True)), mod)


# -- mistakes


def test_mistakes_in_loop_functions_show_the_line_of_the_caller():
    def write():
        with IRBuilder(), T.prim_func():
            A = T.arg("A", T.Buffer((4,), "int32"))
            T.buffer_store(A, T.float32(1), [0])  # this line

    with pytest.raises(ParseError, match="holds int32") as caught:
        write()
    assert caught.value.filename == __file__
    assert "# this line" in caught.value.text


def said(write):
    def build():
        with IRBuilder() as ib:
            write()
        return ib.get()

    with pytest.raises((BuilderError, ParseError)) as caught:
        build()
    assert IRBuilder.is_in_scope() is False
    return str(caught.value)


def test_each_misuse_says_what_to_do():
    def then_alone():
        with T.prim_func(), T.Then():
            pass

    def otherwise_first():
        with T.If(T.int32() < 1), T.Else():
            pass

    def no_arm():
        with T.If(T.int32() < 1):
            T.evaluate(0)

    def between_arms():
        with T.If(T.int32() < 1):
            with T.Then():
                T.evaluate(0)
            T.evaluate(1)
            with T.Else():
                T.evaluate(0)

    def not_entered():
        T.Assert(T.int32() < 1, "no")
        T.evaluate(0)

    def no_value():
        with R.function():
            R.emit(relax.const(1))

    def one_arm():
        with R.function():
            c = R.arg("c", R.Tensor((), "bool"))
            with R.If(c), R.Then():
                R.emit(c)

    def no_name():
        with I.ir_module(), T.prim_func():
            T.evaluate(0)

    def twice():
        with I.ir_module():
            for _ in range(2):
                with T.prim_func():
                    T.func_name("f")
                    T.evaluate(0)

    def undefined():
        with I.ir_module():
            I.decl_function("f", tir.PrimFunc([], tir.Evaluate(0)))

    def nested():
        with T.prim_func(), R.function():
            pass

    def wrong_language():
        with R.function():
            T.evaluate(0)

    def not_an_output():
        with R.function():
            x = R.arg("x", R.Tensor((4,), "float32"))
            with R.dataflow():
                R.output(x)

    def unbound():
        with T.prim_func():
            T.func_name("f")
            T.evaluate(T.Var("n", "int32") + 1)

    for outside in (
        lambda: T.alloc_buffer((4,)),
        lambda: T.func_attr({"a": 1}),
        lambda: T.func_name("f"),
        lambda: T.func_ret("int32"),
        lambda: T.arg("n", T.int32()),
    ):
        assert "`with T.prim_func():`" in said(outside)
    assert "T.reads stands directly inside a block" in said(lambda: T.reads([]))
    assert "T.Then stands" in said(then_alone)
    assert "T.Else follows" in said(otherwise_first)
    assert "T.If holds" in said(no_arm)
    assert "T.Else follows" in said(between_arms)
    assert "T.Assert is not entered: write `with T.Assert(...):`" in said(not_entered)
    assert "R.func_ret_value is missing" in said(no_value)
    assert "R.If holds" in said(one_arm)
    assert "needs T.func_name" in said(no_name)
    assert "has a function f already" in said(twice)
    assert "declared but not defined: f" in said(undefined)
    assert "does not stand inside another" in said(nested)
    assert "does not stand in a function of R" in said(wrong_language)
    assert "wanted variables of an open dataflow block" in said(not_an_output)
    assert "not well formed" in said(unbound)
    assert "nothing has been written" in said(lambda: None)
    assert "I.module_attrs stands inside" in said(lambda: I.module_attrs({}))


def test_without_a_builder_the_names_only_describe():
    with pytest.raises(BuilderError, match="inside `with IRBuilder"), T.block("b"):
        pass
    with pytest.raises(BuilderError, match="no IRBuilder is current"):
        IRBuilder.current()
    assert R.emit(3) == 3
    with pytest.raises(ValueError, match="the annotation stands at the name"):
        R.emit(3, R.Object())
    for text in (
        "@T.prim_func\ndef f():\n    T.If(1)\n",
        '@T.prim_func\ndef f():\n    T.arg("x", 1)\n',
        '@R.function\ndef f(x: R.Tensor):\n    R.func_name("g")\n    return x\n',
    ):
        with pytest.raises(ParseError, match="does not stand here"):
            from_source(text)
