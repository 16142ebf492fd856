"""What is proven about shapes when a program is built, and what the program checks when it runs."""

import numpy as np
import pytest
from relax_vm_helpers import bindings_of, build_interpreted, count_calls, lowered

from relaxvm import cpu, relax, tir
from relaxvm.base import DiagnosticError, StructInfoError, VerifyError, VMTypeError, VMValueError
from relaxvm.ir import IRModule
from relaxvm.relax import (
    BlockBuilder,
    MatchCast,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    TensorStructInfo,
    Var,
)
from relaxvm.relax.shape_facts import broadcast_dims, require_equal
from relaxvm.relax.transform import LegalizeOps
from relaxvm.runtime import ShapeTuple, VirtualMachine
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

CHECK = "vm.builtin.broadcast_shape"


def f32(*shape):
    return np.arange(np.prod(shape, dtype=int), dtype="float32").reshape(shape)


def sym(*names):
    return [tir.Var(n, "int64") for n in names]


def tensor(*shape, dtype="float32"):
    return TensorStructInfo(shape, dtype)


def checks(mod, name="main"):
    """How many checks of shapes the legalised function makes."""
    fn = LegalizeOps()(mod)[name]
    casts = [b for b in bindings_of(fn) if isinstance(b, MatchCast)]
    packed = [b for b in bindings_of(fn) if _is_check(b.value)]
    return len(packed), len(casts)


def _is_check(value):
    args = getattr(value, "args", ())
    return bool(args) and getattr(args[0], "global_symbol", "") == CHECK


# -- proofs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (lambda n, m: (n,), lambda n, m: (1,)),
        (lambda n, m: (2 * n,), lambda n, m: (n + n,)),
        (lambda n, m: (n * m,), lambda n, m: (m * n,)),
        (lambda n, m: (n * (m + 1),), lambda n, m: (n * m + n,)),
        (lambda n, m: ((n + 1) * (m + 2),), lambda n, m: (n * m + 2 * n + m + 2,)),
        (lambda n, m: (n, 1, m), lambda n, m: (1, 4, 1)),
    ],
)
def test_what_is_provable_needs_no_check(one, two):
    n, m = sym("n", "m")
    x, y = Var("x", tensor(*one(n, m))), Var("y", tensor(*two(n, m)))
    shown = Var("s", ShapeStructInfo((n, m)))
    b = BlockBuilder()
    with b.function("main", [shown, x, y]):
        z = b.emit(relax.op.add(x, y))
        b.emit_func_output(z)
    assert z.struct_info.dims is not None
    assert checks(b.get()) == (0, 0)


def test_sizes_in_doubt_are_checked_once_for_all_uses():
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
            with R.dataflow():
                a = R.add(x, y)
                b = R.multiply(a, y)
                c = R.subtract(R.exp(b), x)
                d = R.add(R.add(y, x), a)
                R.output(c, d)
            return (c, d)

    assert M["main"].ret_struct_info.fields[0].ndim == 1
    assert checks(M) == (1, 1)
    vm = build_interpreted(M)
    for x, y in ((f32(3), f32(3)), (f32(1), f32(3)), (f32(3), f32(1))):
        a = x + y
        c, d = vm["main"](x, y)
        np.testing.assert_allclose(c.numpy(), np.exp(a * y) - x, rtol=1e-6)
        np.testing.assert_array_equal(d.numpy(), y + x + a)
    with pytest.raises(VMValueError, match=r"add of x \(n\) and y \(m\): .*\(4,\) and \(3,\)"):
        vm["main"](f32(4), f32(3))


def test_a_check_in_a_branch_does_not_count_after_it():
    @I.ir_module
    class M:
        @R.function
        def main(
            c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")
        ):
            if c:
                a = R.add(x, y)
                b = R.sum(R.add(a, y))
            else:
                b = R.sum(x)
            d = R.add(x, y)
            return R.add(d, b)

    assert checks(M)[0] == 2
    vm = build_interpreted(M)
    got = vm["main"](np.array(True), f32(3), f32(3)).numpy()
    np.testing.assert_array_equal(got, f32(3) * 2 + 9)
    for condition in (True, False):
        with pytest.raises(VMValueError, match="do not broadcast"):
            vm["main"](np.array(condition), f32(2), f32(3))


def test_a_check_before_a_branch_counts_inside():
    @I.ir_module
    class M:
        @R.function
        def main(
            c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")
        ):
            d = R.add(x, y)
            if c:
                b = R.sum(R.add(y, x))
            else:
                b = R.sum(R.multiply(x, y))
            return R.add(d, b)

    assert checks(M)[0] == 1


def test_a_symbol_beside_a_number_gives_the_number_and_is_checked():
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor((4,), "float32")):
            z = R.add(x, y)
            return R.multiply(z, x)

    assert M["main"].ret_struct_info is tensor(4)
    assert checks(M)[0] == 1
    vm = build_interpreted(M)
    for n in (1, 4):
        x = f32(n) + 1
        np.testing.assert_array_equal(vm["main"](x, f32(4)).numpy(), (x + f32(4)) * x)
    with pytest.raises(VMValueError, match="do not broadcast"):
        vm["main"](f32(3), f32(4))


def test_products_of_matrices_in_doubt_are_checked_before_any_kernel_runs():
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32"), y: R.Tensor(("p", "k"), "float32")):
            a = R.matmul(x, y)
            b = R.matmul(R.negative(x), R.negative(y))
            return R.add(a, b)

    assert checks(M) == (0, 1)
    vm = build_interpreted(M)
    np.testing.assert_allclose(
        vm["main"](f32(2, 3), f32(3, 2)).numpy(), 2 * (f32(2, 3) @ f32(3, 2))
    )
    with pytest.raises(VMValueError) as caught:
        vm["main"](f32(2, 3), f32(4, 2))
    assert "of Shape((m,)): Shape((p,)): axis 0: wanted p = 4" in str(caught.value)
    assert "(from axis 0 of parameter y: Tensor((p, k), float32)), got 3" in str(caught.value)


def test_facts_follow_from_facts():
    n, m, k = sym("n", "m", "k")
    b = BlockBuilder()
    with b.function("main", [Var("s", ShapeStructInfo((n, m, k)))]):
        require_equal(b, [(n, m)])
        require_equal(b, [(m, k)])
        scope = b._frames[-1].normal.scopes[-1].block
        before = len(scope.bindings)
        require_equal(b, [(n, k), (k, n), (n * 2, k + m), (n + 1, 1 + k)])
        assert len(scope.bindings) == before
        require_equal(b, [(n, 2 * k)])
        assert len(scope.bindings) == before + 1
        b.emit_func_output(ShapeExpr((n,)))


def test_broadcasts_of_broadcasts_are_known():
    n, m, k = sym("n", "m", "k")
    one = tir.const(1, "int64")
    b = BlockBuilder()
    with b.function("main", [Var("s", ShapeStructInfo((n, m, k)))]):
        (nm,) = broadcast_dims(b, [(n,), (m,)], "x and y")
        (nmk,) = broadcast_dims(b, [(nm,), (k,)], "x and y")
        assert nmk not in (n, m, k, nm)
        assert broadcast_dims(b, [(nmk,), (n,), (m,)], "again") == (nmk,)
        assert broadcast_dims(b, [(m,), (nmk,), (nm,), (one,)], "again") == (nmk,)
        assert broadcast_dims(b, [(n,), (m,)], "again") != (n,)
        b.emit_func_output(ShapeExpr((n,)))


# -- what can never hold --------------------------------------------------------------------------


def test_a_relation_that_cannot_hold_is_refused_with_the_lines_of_both_sides():
    with pytest.raises(DiagnosticError) as caught:

        @R.function
        def main(x: R.Tensor((3,), "float32"), y: R.Tensor((4,), "float32")):
            left = R.concat([y, y])
            right = R.exp(x)
            return R.add(left, right)

    text = str(caught.value)
    for part in ("8 in x1 and 3 in x2", "left = R.concat", "right = R.exp", "R.add(left, right)"):
        assert part in text, text


def test_a_cast_that_cannot_hold_shows_both_lines():
    with pytest.raises(DiagnosticError) as caught:

        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            twice = R.concat([x, x])
            y = R.match_cast(twice, R.Tensor((n * 2 + 1,), "float32"))
            return y

    text = str(caught.value)
    assert "can never be" in text and "twice = R.concat" in text and "n * 2 + 1" in text


def _add_of_two_sizes(b, x, y):
    with b.function("main", [x, y]):
        left = b.emit(relax.op.exp(x))
        right = b.emit(relax.op.exp(y))
        b.emit(relax.op.add(left, right))


def _cast_to_another_size(b, x, y):
    with b.function("main", [x, y]):
        made = b.emit(relax.op.concat([x, y]))
        b.match_cast(made, tensor(8))


def test_the_builder_shows_the_lines_that_emitted_both_sides():
    x, y = Var("x", tensor(3)), Var("y", tensor(4))
    with pytest.raises(StructInfoError) as caught:
        _add_of_two_sizes(BlockBuilder(), x, y)
    text = str(caught.value)
    assert "left = b.emit(relax.op.exp(x))" in text and "right = b.emit(relax.op.exp(y))" in text
    with pytest.raises(StructInfoError) as caught:
        _cast_to_another_size(BlockBuilder(), x, y)
    text = str(caught.value)
    assert "made = b.emit(" in text and "b.match_cast(made, tensor(8))" in text


def test_an_argument_that_cannot_fit_a_parameter_shows_where_it_was_made():
    with pytest.raises(DiagnosticError) as caught:

        @I.ir_module
        class M:
            @R.function
            def f(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
                return x

            @R.function
            def main(x: R.Tensor((3,), "float32")):
                long = R.concat([x, x])
                return M.f(long)

    assert "long = R.concat" in str(caught.value) and "M.f(long)" in str(caught.value)


def test_the_builder_refuses_unbound_variables_and_symbols_by_name_and_line():
    x, q = Var("x", tensor(3)), Var("q", tensor(3))
    b = BlockBuilder()
    with (
        pytest.raises(VerifyError, match=r"main: q is used, but(?s:.)*b\.emit\(relax"),
        b.function("main", [x]),
    ):
        b.emit_func_output(b.emit(relax.op.add(x, q)))
    (n,) = sym("n")
    b = BlockBuilder()
    with b.function("main", [x]):
        b.emit_func_output(b.emit(relax.op.reshape(x, (n,))))
    with pytest.raises(VerifyError, match=r"symbol n is not bound(?s:.)*b\.emit\(relax\.op\.resh"):
        relax.build(b.get(), "llvm")


def test_the_builder_refuses_effects_in_dataflow_blocks_by_name_and_line():
    x = Var("x", tensor(3))
    call = relax.op.call_packed("env.noisy", x, sinfo_args=tensor(3))
    b = BlockBuilder()
    with pytest.raises(VerifyError, match=r"env\.noisy may have effects(?s:.)*b\.emit\(call\)"):
        with b.function("main", [x]), b.dataflow():
            b.emit(call)
    b = BlockBuilder()
    with b.function("main", [x], attrs={"relax.force_pure": True}):
        b.emit_func_output(b.emit(call))


# -- what is checked when the program runs --------------------------------------------------------


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_a_size_that_comes_out_negative_names_function_axis_and_line(mode):
    @I.ir_module
    class M:
        @R.function
        def one(x: R.Tensor((1, 3, "m", 5), "float32"), w: R.Tensor((3, 3, 1, 1), "float32")):
            return R.nn.conv2d_transpose(x, w, strides=(2, 1))

        @R.function
        def two(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            y = R.zeros(R.shape([n - 2, n - 3]), "float32")
            return R.add(y, y)

        @R.function
        def three(x: R.Tensor(("n",), "float32"), o: R.Prim(value="k")):
            k = T.int64()
            y = R.call_dps_packed("fill", x, R.Tensor((3, k), "float32"))
            return y

    program = relax.build(M, "llvm", exec_mode=mode)
    filled = []
    vm = VirtualMachine(program, cpu(), functions={"fill": lambda *a: filled.append(a)})
    w = f32(3, 3, 1, 1)
    assert vm["one"](f32(1, 3, 2, 5), w).shape == (1, 3, 3, 5)
    assert vm["two"](f32(4)).shape == (2, 1)
    assert vm["three"](f32(4), 0).shape == (3, 0)
    for name, args, axis, size, line in (
        ("one", (f32(1, 3, 0, 5), w), 2, -1, "R.nn.conv2d_transpose"),
        ("two", (f32(1),), 0, -1, "R.zeros"),
        ("two", (f32(2),), 1, -1, "R.zeros"),
        ("three", (f32(2), -7), 1, -7, "R.call_dps_packed"),
    ):
        with pytest.raises(VMValueError) as caught:
            vm[name](*args)
        text = str(caught.value)
        assert text.startswith(f"{name}: ")
        assert f"axis {axis} would have the negative size {size}" in text
        assert f"{__file__}:" in text
        assert line in text
    assert len(filled) == 1


def test_sizes_that_cannot_be_negative_are_not_checked():
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        y = R.add(x, x)
        z = R.strided_slice(y, (0,), (0,), (n // 2,))
        return R.concat((z, y))

    assert "gives" not in lowered(IRModule.from_expr(main)).script()


def test_a_clash_says_where_each_symbol_got_its_value():
    @I.ir_module
    class M:
        @R.function
        def main(
            x: R.Tensor(("n",), "float32"),
            y: R.Tensor((4, "n"), "float32"),
            z: R.Tensor(("n * 2 + 1",), "float32"),
            t: R.Tuple(R.Tensor(("k",), "float32"), R.Tensor(("T.min(n, k)",), "float32")),
        ):
            return z

    vm = build_interpreted(M)
    good = [f32(3), f32(4, 3), f32(7), (f32(2), f32(2))]
    vm["main"](*good)
    cases = {
        1: (f32(4, 5), "parameter y", "axis 1: wanted n = 3 (from axis 0 of parameter x"),
        2: (
            f32(8),
            "parameter z",
            "axis 0: wanted n * 2 + 1 = 7 (n = 3 from axis 0 of parameter x",
        ),
        3: (
            (f32(2), f32(3)),
            "parameter t",
            "wanted min(n, k) = 2 (n = 3 from axis 0 of parameter x",
        ),
    }
    for i, (wrong, where, what) in cases.items():
        with pytest.raises(VMValueError) as caught:
            vm["main"](*good[:i], wrong, *good[i + 1 :])
        assert where in str(caught.value) and what in str(caught.value), str(caught.value)
    assert "k = 2 from axis 0 of parameter t" in str(caught.value)


def test_a_clash_of_scalars_says_where_the_symbol_got_its_value():
    (n,) = sym("n")
    p, x = Var("p", PrimStructInfo(value=n)), Var("x", tensor(n))
    b = BlockBuilder()
    with b.function("main", [p, x]):
        b.emit_func_output(x)
    vm = build_interpreted(b.get())
    with pytest.raises(VMValueError, match=r"wanted n = 3 \(from parameter p.*got 4"):
        vm["main"](3, f32(4))


def test_results_of_packed_functions_are_checked_against_what_is_declared():
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            k = T.int64()
            y = R.call_pure_packed("f", x, sinfo_args=R.Tensor((n,), "float32"))
            z = R.call_pure_packed(
                "g", y, sinfo_args=R.Tuple(R.Tensor((n,), "int32"), R.Shape([n]))
            )
            w = R.match_cast(z[0], R.Tensor((k,), "int32"))
            return (y, w)

    def run(f=lambda x: x.numpy() * 2, g=None):
        g = g or (lambda x: (x.numpy().astype("int32"), ShapeTuple(x.shape)))
        return build_interpreted(M, functions={"f": f, "g": g})["main"](f32(3))

    y, w = run()
    np.testing.assert_array_equal(w.numpy(), [0, 2, 4])
    wrong = [
        ({"f": lambda x: f32(5)}, VMValueError, r"result of f: .*axis 0: wanted n = 3 .*got 5"),
        ({"f": lambda x: f32(3, 1)}, VMTypeError, "result of f: .*wanted 1 dimensions"),
        ({"f": lambda x: 3}, VMTypeError, "result of f: .*wanted a tensor, got int 3"),
        ({"f": lambda x: np.zeros(3, "int8")}, VMTypeError, "result of f: .*wanted dtype float32"),
        ({"g": lambda x: x}, VMTypeError, "result of g: .*wanted a tuple of 2"),
        (
            {"g": lambda x: (f32(3), ShapeTuple(x.shape))},
            VMTypeError,
            "result of g.*field 0.*dtype int32",
        ),
        ({"g": lambda x: (np.zeros(3, "int32"), relax.op)}, VMTypeError, "result of g.*field 1"),
    ]
    for functions, error, message in wrong:
        with pytest.raises(error, match=message):
            run(**functions)


def test_results_of_functions_that_work_in_place_are_checked_too():
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            y = R.add(x, x)
            return R.call_inplace_packed(
                "f", y, inplace_indices=0, sinfo_args=R.Tensor((n,), "float32")
            )

    def twice(x):
        x.numpy()[...] *= 2
        return x

    assert build_interpreted(M, functions={"f": twice})["main"](f32(3)).numpy().tolist() == [
        0,
        4,
        8,
    ]
    with pytest.raises(VMTypeError, match="result of f"):
        build_interpreted(M, functions={"f": lambda x: None})["main"](f32(3))


def test_only_one_check_is_left_in_the_bytecode():
    (n, m) = sym("n", "m")
    x, y = Var("x", tensor(n)), Var("y", tensor(m))
    b = BlockBuilder()
    with b.function("main", [x, y]):
        z = x
        for _ in range(5):
            z = b.emit(relax.op.add(z, y))
        b.emit_func_output(z)
    assert count_calls(LegalizeOps()(b.get())["main"])["relax.call_pure_packed"] == 1


# -- branches -------------------------------------------------------------------------------------


def test_branches_that_both_cast_to_a_symbol_known_before_them_keep_it():
    @I.ir_module
    class Casts:
        @R.function
        def main(
            x: R.Tensor(("n",), "float32"),
            y: R.Tensor(("m",), "float32"),
            z: R.Tensor(("p",), "float32"),
            c: R.Tensor((), "bool"),
        ):
            n = T.int64()
            if c:
                w = R.match_cast(y, R.Tensor((n,), "float32"))
            else:
                w = R.match_cast(z, R.Tensor((n,), "float32"))
            return R.add(w, x)

    fn = Casts["main"]
    assert fn.ret_struct_info == fn.params[0].struct_info
    assert checks(Casts) == (0, 2)  # the casts; adding needs none
    vm = build_interpreted(Casts)
    x = f32(3)
    for c in (True, False):
        assert vm["main"](x, x + 1, x + 2, np.array(c)).numpy().tolist() == (
            (x + x + (1 if c else 2)).tolist()
        )
    with pytest.raises(VMValueError, match=r"wanted n = 3 \(from axis 0 of parameter x.*got 4"):
        vm["main"](x, f32(4), x, np.array(True))


def test_branches_that_cast_to_a_symbol_of_their_own_do_not_let_it_out():
    @I.ir_module
    class Casts:
        @R.function
        def main(
            x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32"), c: R.Tensor((), "bool")
        ):
            k = T.int64()
            if c:
                w = R.match_cast(x, R.Tensor((k,), "float32"))
            else:
                w = R.match_cast(y, R.Tensor((k,), "float32"))
            return w

    assert Casts["main"].ret_struct_info == TensorStructInfo(None, "float32", ndim=1)
    vm = build_interpreted(Casts)
    assert vm["main"](f32(3), f32(4), np.array(False)).shape == (4,)


def test_a_cast_before_the_branches_and_functions_around_them_count_too():
    @I.ir_module
    class Casts:
        @R.function
        def main(x: R.Object, y: R.Tensor(("m",), "float32"), c: R.Tensor((), "bool")):
            n = T.int64()
            k = T.int64()
            x1 = R.match_cast(x, R.Tensor((n,), "float32"))

            @R.function
            def inner(d: R.Tensor((), "bool")):
                if d:
                    a = R.match_cast(y, R.Tensor((n,), "float32"))
                else:
                    a = R.match_cast(x1, R.Tensor((n,), "float32"))
                return a

            if c:
                w = R.match_cast(y, R.Tensor((n,), "float32"))
            else:
                if c:
                    w = R.match_cast(y, R.Tensor((n,), "float32"))
                else:
                    w = R.match_cast(y, R.Tensor((k,), "float32"))
            return (w, inner(c))

    w, called = Casts["main"].body.body.fields
    assert w.struct_info == TensorStructInfo(None, "float32", ndim=1)  # k is the branch's own
    bindings = {b.var.name_hint: b.var for b in bindings_of(Casts["main"])}
    assert called.struct_info == bindings["x1"].struct_info
    vm = build_interpreted(Casts)
    assert [v.shape for v in vm["main"](f32(3), f32(3), np.array(True))] == [(3,), (3,)]


def test_the_builder_joins_branches_in_terms_of_what_is_bound():
    n, m = sym("n", "m")
    x, y, c = Var("x", tensor(n)), Var("y", tensor(m)), Var("c", tensor(dtype="bool"))
    b = BlockBuilder()

    def branch(symbol):
        b.begin_scope()
        return b.end_scope(b.match_cast(y, tensor(symbol)))

    with b.function("main", [x, y, c]):
        same = b.emit(relax.If(c, branch(n), branch(n)))
        k = sym("k")[0]
        own = b.emit(relax.If(c, branch(k), branch(k)))
        given = b.emit(relax.If(c, branch(n), branch(n), relax.ObjectStructInfo()))
        b.emit_func_output(relax.Tuple([same, own, given]))
    assert same.struct_info == tensor(n)
    assert own.struct_info == TensorStructInfo(None, "float32", ndim=1)
    assert given.struct_info == relax.ObjectStructInfo()
    assert b.get()["main"].ret_struct_info.fields[0] == tensor(n)


def test_messages_show_sizes_without_the_dtype_of_constants():
    n, m = sym("n", "m")
    with pytest.raises(StructInfoError, match=r"dimension -2 of x2 is m \+ 1") as caught:
        relax.op.matmul(Var("a", tensor(n, m)), Var("b", tensor(m + 1, n)))
    assert "T.int64" not in str(caught.value)
