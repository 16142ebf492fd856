"""BlockBuilder: what it writes, and what it refuses."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest

from relaxvm import relax, te, tir
from relaxvm.base import StructInfoError, VerifyError
from relaxvm.ir import GlobalVar, IRModule, Op, Var, assert_structural_equal
from relaxvm.relax.analysis import check_well_formed
from relaxvm.runtime import cpu
from relaxvm.tir import PrimFunc

n, m = Var("n", "int64"), Var("m", "int64")
Tensor, Tuple = relax.TensorStructInfo, relax.TupleStructInfo
OUT = Tensor((n, 4))


def param(name="x", info=OUT):
    return relax.Var(name, info)


def f(*args, out=OUT):
    return relax.call_dps_packed("env.f", args, out)


def add_one(a):
    return te.compute(a.shape, lambda *i: a(*i) + 1.0, name="plus")


def test_a_function_with_a_dataflow_block():
    b, x = relax.BlockBuilder(), param()
    with b.function("main", [x]):
        with b.dataflow():
            lv = b.emit(f(x))
            gv = b.emit_output(f(lv))
        b.emit_func_output(gv)
    fn = b.get()["main"]
    assert isinstance(lv, relax.DataflowVar)
    assert not isinstance(gv, relax.DataflowVar)
    assert (lv.name_hint, gv.name_hint) == ("lv", "gv")
    assert fn.attrs["global_symbol"] == "main"
    assert fn.ret_struct_info is OUT
    assert [type(k) for k in fn.body.blocks] == [relax.DataflowBlock]
    check_well_formed(b.get())


def test_nested_calls_become_bindings_in_order():
    b, x = relax.BlockBuilder(), param()
    with b.function("main", [x]):
        y = b.emit(f(f(x), relax.Tuple((f(x, x), x))))
        b.emit_func_output(y)
    bindings = b.get()["main"].body.blocks[0].bindings
    assert [len(v.value.args[1].fields) for v in bindings] == [1, 2, 2]
    assert bindings[2].value.args[1].fields[0] is bindings[0].var
    assert bindings[2].value.args[1].fields[1].fields[0] is bindings[1].var
    assert [v.var.name_hint for v in bindings] == ["gv", "gv1", "gv2"]


def test_a_shared_expression_is_computed_once():
    b, x = relax.BlockBuilder(), param()
    shared = f(x)
    with b.function("main", [x]):
        b.emit_func_output(f(shared, shared))
    assert len(b.get()["main"].body.blocks[0].bindings) == 2
    b = relax.BlockBuilder()
    with b.function("main", [x]):
        y = b.emit(shared)
        z = b.emit(f(shared))
        b.emit_func_output(z)
    assert b.get()["main"].body.blocks[0].bindings[1].value.args[1].fields == (y,)


def test_deep_nesting_and_long_functions_do_not_overflow():
    b, x = relax.BlockBuilder(), param()
    deep = x
    for _ in range(5000):
        deep = f(deep)
    with b.function("main", [x]):
        with b.dataflow():
            y = b.emit_output(deep)
            with pytest.raises(VerifyError, match="open dataflow block"):
                b.emit_func_output(y)
        b.emit_func_output(y)
    assert len(b.get()["main"].body.blocks[0].bindings) == 5000
    check_well_formed(b.get())


def test_plain_blocks_around_a_dataflow_block():
    b, x = relax.BlockBuilder(), param()
    with b.function("main", [x], pure=False):
        first = b.emit(relax.call_packed("env.log", x, sinfo_args=OUT))
        with b.dataflow():
            y = b.emit_output(f(first))
        b.emit(relax.op.print(y))
        b.emit_func_output(y)
    fn = b.get()["main"]
    kinds = [type(k) for k in fn.body.blocks]
    assert kinds == [relax.BindingBlock, relax.DataflowBlock, relax.BindingBlock]
    assert not fn.is_pure
    check_well_formed(b.get())


def test_an_empty_dataflow_block_leaves_nothing():
    b, x = relax.BlockBuilder(), param()
    with b.function("main", [x]):
        with b.dataflow():
            pass
        b.emit_func_output(x)
    assert b.get()["main"].body.blocks == ()


def test_names_are_unique_and_hints_are_kept():
    b, x = relax.BlockBuilder(), param("y")
    with b.function("main", [x]):
        made = [
            b.emit(f(x), "y").name_hint,
            b.emit(f(x), "y").name_hint,
            b.emit(f(x), "y1").name_hint,
        ]
        assert b.get_unique_name("y") == "y3"
        b.emit_func_output(x)
    assert made == ["y1", "y2", "y1_1"]
    assert b.get_unique_name("main") == "main1"


def test_emit_output_of_several_values_is_a_tuple():
    b, x = relax.BlockBuilder(), param()
    with b.function("main", [x]):
        with b.dataflow():
            out = b.emit_output((f(x), x))
        b.emit_func_output(out)
    assert out.struct_info is Tuple((OUT, OUT))


def test_match_cast_binds_symbols():
    b, x = relax.BlockBuilder(), param("x", Tensor(None, ndim=2))
    with b.function("main", [x]):
        y = b.match_cast(x, Tensor((n, m)))
        z = b.emit(relax.call_dps_packed("env.f", y, Tensor((m, n))))
        b.emit_func_output(z)
    fn = b.get()["main"]
    assert isinstance(fn.body.blocks[0].bindings[0], relax.MatchCast)
    assert fn.ret_struct_info is Tensor(None, ndim=2)
    check_well_formed(b.get())


def test_match_cast_that_cannot_hold_is_refused():
    b, x = relax.BlockBuilder(), param("x", Tensor((3,)))
    with b.function("main", [x]):
        with pytest.raises(StructInfoError, match="can never be that"):
            b.match_cast(x, Tensor((4,)))
        with pytest.raises(StructInfoError, match="wanted struct info"):
            b.match_cast(x, (4,))
        b.emit_func_output(x)


def test_branches_are_scopes():
    b, x, c = relax.BlockBuilder(), param(), relax.Var("c", Tensor((), "bool"))
    with b.function("main", [c, x]):
        b.begin_scope()
        true_branch = b.end_scope(f(x))
        b.begin_scope()
        y = b.emit(f(x))
        false_branch = b.end_scope(f(y))
        z = b.emit(relax.If(c, true_branch, false_branch))
        b.emit_func_output(z)
    assert [len(s.blocks[0].bindings) for s in (true_branch, false_branch)] == [1, 2]
    assert z.struct_info is OUT
    check_well_formed(b.get())


def test_nested_if_expressions_are_normalised():
    b, x, c = relax.BlockBuilder(), param(), relax.Var("c", Tensor((), "bool"))
    inner = relax.If(c, f(f(x)), x)
    with b.function("main", [c, x]):
        b.emit_func_output(f(inner))
    check_well_formed(b.get())
    assert len(b.get()["main"].body.blocks[0].bindings) == 2


def test_emit_te_adds_a_private_kernel_and_calls_it():
    b, x = relax.BlockBuilder(), param()
    with b.function("main", [x]):
        with b.dataflow():
            y = b.emit_te(add_one, x)
            z = b.emit_te(add_one, y, name_hint="z")
            w = b.emit_te(add_one, z, primfunc_name_hint="other")
            out = b.emit_output(w)
            assert b.lookup_binding(y).args[0] is b.lookup_binding(w).args[0]
        b.emit_func_output(out)
    mod = b.get()
    assert [gv.name_hint for gv in mod] == ["add_one", "main"]
    kernel = mod["add_one"]
    assert isinstance(kernel, PrimFunc)
    assert "global_symbol" not in kernel.attrs
    assert z.name_hint == "z"
    assert z.struct_info is OUT


@pytest.fixture
def finished():
    b, x = relax.BlockBuilder(), param()
    w = relax.Var("w", Tensor((4, m)))

    def matmul(a, c):
        k = te.reduce_axis((0, a.shape[1]), "k")
        return te.compute((a.shape[0], c.shape[1]), lambda i, j: te.sum(a[i, k] * c[k, j], axis=k))

    with b.function("main", [x, w]):
        with b.dataflow():
            y = b.emit_te(matmul, x, w)
            out = b.emit_output(b.call_te(add_one, y))
        b.emit_func_output(out)
    return b.finalize()


def test_emit_te_keeps_symbols_of_graph_and_kernel_apart(finished):
    check_well_formed(finished)
    assert finished["main"].ret_struct_info is Tensor((n, m))
    for kernel in (finished["matmul"], finished["add_one"]):
        assert all(d is not n and d is not m for buffer in kernel.buffers for d in buffer.shape)


def test_emit_te_passes_symbols_that_no_buffer_determines():
    b, x = relax.BlockBuilder(), param("x", Tensor((n * 2,)))
    s = relax.Var("s", relax.ShapeStructInfo((n,)))

    def scale(a, k):
        return te.compute(a.shape, lambda i: a[i] * k.astype("float32"))

    with b.function("main", [x, s]):
        y = b.emit_te(scale, x, n)
        b.emit_func_output(y)
    call = b.get()["main"].body.blocks[0].bindings[0].value
    assert call.args[2] is relax.ShapeExpr((n,))
    kernel = b.get()["scale"]
    assert len(kernel.params) == 3
    assert kernel.params[2].dtype == "int64"
    check_well_formed(b.get())


def test_a_formula_may_use_symbols_that_it_was_not_given():
    b, x = relax.BlockBuilder(), param("x", Tensor((n,)))
    y = param("y", Tensor((m,)))
    f = tir.Var("f", "float32")
    factor = relax.Var("factor", relax.PrimStructInfo(value=f))
    with b.function("main", [x, y, factor]):
        twice = b.emit_te(lambda a: te.compute((n + n,), lambda i: a[i % n] * f), x)
        cut = b.emit_te(lambda a: te.compute((n,), lambda i: a[tir.min(i, m - 1)]), x)
        b.emit_func_output(relax.Tuple([twice, cut]))
    mod = b.get()
    check_well_formed(mod)
    vm = relax.VirtualMachine(relax.build(mod), cpu())
    given = np.arange(5, dtype="float32")
    first, second = vm["main"](given, given[:3], 2.0)
    np.testing.assert_array_equal(first.numpy(), np.tile(given, 2) * 2)
    np.testing.assert_array_equal(second.numpy(), [0, 1, 2, 2, 2])


def test_emit_te_takes_lists_scalars_and_shapes_apart():
    b = relax.BlockBuilder()
    x, t = param("x", Tensor((4,))), relax.Var("t", Tuple((Tensor((4,)), Tensor((4,)))))
    seen = []

    def total(a, rest, shape, scale, word):
        seen.append((len(rest), [int(d) for d in shape], scale, word))
        return te.compute(a.shape, lambda i: a[i] + rest[0][i] + rest[1][i] * scale)

    with b.function("main", [x, t]):
        out = b.emit_te(total, x, t, relax.ShapeExpr((2, 3)), 2.0, relax.StringImm("w"))
        b.emit_func_output(out)
    assert seen == [(2, [2, 3], 2.0, "w")]
    check_well_formed(b.get())


@pytest.mark.parametrize(
    ("arg", "func", "message"),
    [
        (relax.Var("q", Tensor(None, ndim=2)), add_one, "known shape"),
        (relax.Var("q", relax.ObjectStructInfo()), add_one, "wanted a tensor"),
        (relax.Var("q", Tensor((2,))), lambda a: 3, "gives a te.Tensor"),
        (relax.Var("q", Tensor((2,))), 3, "wanted a function"),
    ],
)
def test_emit_te_misuse(arg, func, message):
    b = relax.BlockBuilder()
    with b.function("main", [arg]):
        with pytest.raises(StructInfoError, match=message):
            b.emit_te(func, arg)
        b.emit_func_output(arg)


def test_add_func_uses_an_equal_function_that_is_there(finished):
    b = relax.BlockBuilder(finished)
    kernel = finished["matmul"]
    assert b.add_func(kernel, "again").name_hint == "matmul"
    changed = kernel.with_attr("marked", True)
    assert b.add_func(changed, "matmul").name_hint == "matmul1"
    assert b.add_func(changed, "matmul").name_hint == "matmul1"
    assert "matmul1" not in finished


def test_add_func_gives_a_public_function_the_name_it_gets():
    b = relax.BlockBuilder()
    fn = relax.Function([param()], relax.Tuple(()), attrs={"global_symbol": "main"})
    assert b.add_func(fn, "g").name_hint == "g"
    assert b.get()["g"].attrs["global_symbol"] == "g"


def test_update_func_replaces_and_wants_a_name_that_exists():
    b = relax.BlockBuilder()
    fn = relax.Function([param()], relax.Tuple(()))
    gv = b.add_func(fn, "g")
    new = relax.Function([param()], relax.Tuple((relax.const(1),)))
    b.update_func(gv, new)
    assert b.get()["g"] is new
    with pytest.raises(ValueError, match="no function 'h'"):
        b.update_func("h", new)


def test_update_func_adds_under_a_global_var_that_is_new():
    b = relax.BlockBuilder()
    gv = GlobalVar("f")
    b.update_func(gv, relax.Function([], relax.Tuple(())))
    assert b.get().get_global_vars() == [gv]


def test_a_call_tir_is_checked_against_a_known_kernel(finished):
    b = relax.BlockBuilder(finished)
    kernel = finished.get_global_var("add_one")
    x, bad = param("x", Tensor((3, 4))), param("bad", Tensor((3, 4), "float16"))
    with b.function("f", [x, bad]):
        with pytest.raises(
            StructInfoError, match=r"call_tir add_one: argument 0 \(bad\)(.|\n)*float16"
        ):
            b.emit(relax.call_tir(kernel, bad, Tensor((3, 4))))
        with pytest.raises(StructInfoError, match="output 0 does not fit buffer"):
            b.emit(relax.call_tir(kernel, x, Tensor((3, 5))))
        with pytest.raises(StructInfoError, match="2 parameters"):
            b.emit(relax.call_tir(kernel, (x, x), Tensor((3, 4))))
        b.emit_func_output(b.emit(relax.call_tir(kernel, x, Tensor((3, 4)))))
    check_well_formed(b.get())


# -- misuse ---------------------------------------------------------------------------------------


def test_nothing_can_be_emitted_outside_a_function():
    b, x = relax.BlockBuilder(), param()
    for attempt in (
        lambda: b.emit(x),
        lambda: b.emit_output(x),
        lambda: b.match_cast(x, OUT),
        lambda: b.emit_func_output(x),
        lambda: b.end_scope(),
        lambda: b.normalize(f(f(x))),
        lambda: b._end_block(),
    ):
        with pytest.raises(VerifyError, match="no function is open"):
            attempt()


def test_misuse_is_a_runtime_error():
    b, x = relax.BlockBuilder(), param()

    def second_output():
        with b.function("main", [x]):
            b.emit_func_output(x)
            b.emit_func_output(x)

    def params_twice():
        with b.function("main", [x]):
            b.emit_func_output(x, [x])

    def no_params():
        with b.function("main"):
            b.emit_func_output(relax.const(1))

    def no_output():
        with b.function("main", [x]):
            b.emit(f(x))

    def no_output_inside():
        with b.function("outer", [x]):
            with b.function("main", [param()]):
                b.emit(f(x))
            b.emit_func_output(x)

    for misuse in (params_twice, no_params, no_output, no_output_inside, second_output):
        with pytest.raises(RuntimeError):
            misuse()
        assert relax.BlockBuilder.current() is None
    with b.function("other", [x]):
        b.emit_func_output(x)


def test_blocks_can_be_written_outside_of_functions():
    b, x = relax.BlockBuilder(), param()
    b._begin_binding_block()
    first = b.emit(f(x))
    b._begin_dataflow_block()
    lv = b.emit(f(first))
    out = b.emit_output(f(lv))
    inner = b._end_block()
    last = b.emit(f(out))
    with pytest.raises(VerifyError, match="in no function"):
        b.emit_func_output(last)
    outer = b._end_block()
    assert isinstance(inner, relax.DataflowBlock)
    assert [v.name_hint for v in (first, lv, out, last)] == ["gv", "lv", "gv1", "gv2"]
    assert [bind.var for bind in inner.bindings] == [lv, out]
    assert type(outer) is relax.BindingBlock
    assert [bind.var for bind in outer.bindings] == [first, last]
    with b.dataflow():
        assert isinstance(b.emit(f(x)), relax.DataflowVar)
        with pytest.raises(VerifyError, match="holds no other blocks"):
            b._begin_binding_block()
    with pytest.raises(VerifyError, match="no function is open"):
        b.emit(x)
    assert len(b.finalize()) == 0


def test_a_testing_scope_knows_its_symbols():
    b, k = relax.BlockBuilder(), Var("k", "int64")
    x = relax.Var("x", Tensor((k, 4)))
    with b.testing_scope(def_vars=[k]):
        assert b.is_bound_symbol(k)
        nested = b.normalize(relax.op.add(x, relax.op.add(x, x)))
        assert nested.struct_info is Tensor((k, 4))
        assert isinstance(b.emit(nested), relax.DataflowVar)
    assert not b.is_bound_symbol(k)
    with pytest.raises(ValueError, match="wanted symbols"), b.testing_scope(["k"]):
        pytest.fail("the body must not run")


def test_functions_that_a_body_adds_get_other_names_than_its_own():
    b, x = relax.BlockBuilder(), param("x", Tensor((2, 4)))
    with b.function("main", [x]):
        b.emit_func_output(b.emit_te(add_one, x, primfunc_name_hint="main"))
    assert sorted(gv.name_hint for gv in b.finalize()) == ["main", "main1"]
    check_well_formed(b.get())
    with b.function("main", [y := param()], private=True):
        assert b.emit_func_output(y).name_hint == "main2"


def test_function_output_only_once():
    b, x = relax.BlockBuilder(), param()
    with b.function("main", [x]):
        b.emit_func_output(x)
        with pytest.raises(VerifyError, match="has its output already"):
            b.emit_func_output(x)
        with pytest.raises(VerifyError, match="has its output already"):
            b.emit(x)


def test_a_function_needs_an_output():
    b, x = relax.BlockBuilder(), param()
    with pytest.raises(VerifyError, match="emit_func_output is missing"):
        with b.function("main", [x]):
            b.emit(f(x))
    assert "main" not in b.get()
    assert relax.BlockBuilder.current() is None


def test_emit_output_only_in_a_dataflow_block():
    b, x = relax.BlockBuilder(), param()
    with b.function("main", [x]):
        with pytest.raises(VerifyError, match="not in a dataflow block"):
            b.emit_output(x)
        b.emit_func_output(x)


def test_a_dataflow_variable_cannot_leave_its_block():
    b, x = relax.BlockBuilder(), param()
    with b.function("main", [x]):
        with b.dataflow():
            lv = b.emit(f(x))
        for attempt in (lambda: b.emit(f(lv)), lambda: b.emit_func_output(lv), lambda: b.emit(lv)):
            with pytest.raises(VerifyError, match="dataflow variable of another block"):
                attempt()
        with b.dataflow(), pytest.raises(VerifyError, match="another block"):
            b.emit(f(lv))
        b.emit_func_output(x)


def test_dataflow_blocks_do_not_nest_and_have_no_branches():
    b, x, c = relax.BlockBuilder(), param(), relax.Var("c", Tensor((), "bool"))
    with b.function("main", [c, x]):
        with b.dataflow():
            with pytest.raises(VerifyError, match="cannot stand in another"):
                b.dataflow().__enter__()
            with pytest.raises(VerifyError, match="no branches"):
                b.begin_scope()
            with pytest.raises(VerifyError, match="If cannot stand in a dataflow block"):
                b.emit(relax.If(c, x, x))
        b.emit_func_output(x)


def test_scopes_must_be_closed():
    b, x = relax.BlockBuilder(), param()
    with b.function("main", [x]):
        with pytest.raises(VerifyError, match="no scope is open"):
            b.end_scope()
        b.begin_scope()
        with pytest.raises(VerifyError, match="open scope"):
            b.emit_func_output(x)
        assert b.end_scope() is None
        b.emit_func_output(x)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([relax.DataflowVar("a", OUT)], "parameter is a relax.Var"),
        ([relax.const(1)], "parameter is a relax.Var"),
        ([relax.Var("a", OUT)] * 2, "stands twice"),
    ],
)
def test_bad_parameters(params, message):
    b = relax.BlockBuilder()
    with pytest.raises(VerifyError, match=message), b.function("main", params):
        pytest.fail("the body must not run")
    assert relax.BlockBuilder.current() is None


def test_params_may_be_given_at_the_end():
    b, x = relax.BlockBuilder(), param()
    with b.function("main"):
        with pytest.raises(VerifyError, match="needs params="):
            b.emit_func_output(x)
        b.emit_func_output(f(x), params=[x])
    assert b.get()["main"].params == (x,)


def test_an_exception_in_the_body_leaves_no_state():
    b, x = relax.BlockBuilder(), param()

    def fail(*scopes):
        with contextlib.ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(scope())
            b.emit(f(x))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail(lambda: b.function("main", [x]), b.dataflow)
    assert relax.BlockBuilder.current() is None
    assert "main" not in b.get()
    with b.function("main", [x]):
        with pytest.raises(ZeroDivisionError):
            fail(b.dataflow)
        assert not b.current_block_is_dataflow()
        b.emit_func_output(x)
    assert b.get()["main"].body.blocks == ()


def test_a_failed_emit_binds_nothing_in_an_open_scope():
    b, x = relax.BlockBuilder(), param()
    c = relax.Var("c", Tensor((), "bool"))
    bad = relax.If(c, f(relax.If(c, x, x)), relax.SeqExpr([], x))
    with b.function("main", [c, x]):
        with b.dataflow():
            with pytest.raises(VerifyError):
                b.emit(bad)
            out = b.emit_output(f(x))
        b.emit_func_output(out)
    check_well_formed(b.get())


def test_a_name_can_be_declared_first_and_defined_later():
    b, x = relax.BlockBuilder(), param()
    gv = b.add_func(relax.Function.create_empty([param()], OUT), "main")
    with b.function("main", [x]):
        y = b.emit(gv(x))
        b.emit_func_output(y)
    assert b.get().get_global_var("main") is gv
    check_well_formed(b.get())
    with pytest.raises(VerifyError, match="already"), b.function("main", [x]):
        pytest.fail("the body must not run")


def test_functions_may_be_written_inside_one_another():
    b, x, y = relax.BlockBuilder(), param("x"), param("y")
    with b.function("outer", [x]):
        with b.function("inner", [y], private=True):
            gv = b.emit_func_output(f(y))
        b.emit_func_output(b.emit(gv(x)))
    assert [g.name_hint for g in b.finalize()] == ["inner", "outer"]
    assert "global_symbol" not in b.get()["inner"].attrs
    check_well_formed(b.get())


def test_finalize_wants_complete_functions():
    b, x = relax.BlockBuilder(), param()
    with b.function("main", [x]):
        with pytest.raises(VerifyError, match="main is not complete"):
            b.finalize()
        b.emit_func_output(x)
    assert "main" in b.finalize()


def test_get_gives_a_module_of_its_own():
    b = relax.BlockBuilder()
    b.get()["f"] = relax.Function([], relax.Tuple(()))
    assert len(b.get()) == 0
    with pytest.raises(VerifyError, match="wanted an IRModule"):
        relax.BlockBuilder(3)


def test_current_is_per_thread():
    b, x = relax.BlockBuilder(), param()
    seen = []
    with b.function("main", [x]):
        assert relax.BlockBuilder.current() is b
        thread = threading.Thread(target=lambda: seen.append(relax.BlockBuilder.current()))
        thread.start()
        thread.join()
        b.emit_func_output(x)
    assert seen == [None]


def test_emit_normalized_checks_its_place():
    b, x = relax.BlockBuilder(), param()
    lv = relax.DataflowVar("lv", OUT)
    with b.function("main", [x]):
        with pytest.raises(VerifyError, match="outside a dataflow block"):
            b.emit_normalized(relax.VarBinding(lv, f(x)))
        with pytest.raises(VerifyError, match="not in normal form"):
            b.emit_normalized(relax.VarBinding(relax.Var("v", OUT), f(f(x))))
        with pytest.raises(VerifyError, match="wanted a binding"):
            b.emit_normalized(x)
        v = b.emit_normalized(relax.VarBinding(relax.Var("v", OUT), f(x)))
        b.emit_func_output(v)
    check_well_formed(b.get())


def test_the_same_program_built_twice_is_equal():
    def build():
        b, x = relax.BlockBuilder(), param("x", Tensor((2, 4)))
        with b.function("main", [x]):
            with b.dataflow():
                y = b.emit_te(add_one, x)
                out = b.emit_output(f(y, relax.const(np.ones(2, "float32")), out=Tensor((2, 4))))
            b.emit_func_output(out)
        return b.get()

    first, second = build(), build()
    assert isinstance(first, IRModule)
    assert_structural_equal(first, second)
    assert first["main"].body.blocks[0].bindings[0].value.op is Op.get("relax.call_tir")


def test_variables_of_all_functions_of_a_builder_have_names_of_their_own():
    b = relax.BlockBuilder()
    names = []
    for name in ("f", "g"):
        x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
        with b.function(name, [x]):
            with b.dataflow():
                lv = b.emit(relax.op.add(x, x))
                gv = b.emit_output(lv)
            b.emit_func_output(gv)
        names += [x.name_hint, lv.name_hint, gv.name_hint]
    assert names == ["x", "lv", "gv", "x", "lv1", "gv1"]
