"""LambdaLift: inner functions become functions of the module."""

import numpy as np
from pass_cases import parse, results
from relax_vm_helpers import (
    F32,
    Body,
    bindings_of,
    build_interpreted,
    call_tir,
    count_calls,
    elementwise,
    gv,
    module,
    tensor,
)

from relaxvm import relax, tir
from relaxvm.ir import walk
from relaxvm.relax import Call, ExternFunc, Function, If, SeqExpr, Tuple, Var
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.transform import LambdaLift

ADD = gv("add")


def adder(x, info):
    """The function y -> x + y."""
    y, inner = Var("y", info), Body()
    return Function([y], inner.seq(inner(call_tir(ADD, (x, y), info))))


def with_kernel(main, shape=(2,)):
    return module({"main": main, ADD: elementwise(lambda a, b: a + b, 2, shape)})


def f32(*values):
    return np.array(values, F32)


def test_module_without_inner_functions_is_the_same_object():
    x = Var("x", tensor((2,)))
    mod = with_kernel(Body().function([x], x))
    assert LambdaLift()(mod) is mod


def test_captured_values_are_the_last_parameters_and_known_calls_are_direct():
    x, b = Var("x", tensor((2,))), Body()
    f = b(adder(x, tensor((2,))), "f")
    y = b(Call(f, (x,)))
    mod = LambdaLift()(with_kernel(b.function([x], y)))
    assert_well_formed(mod)
    lifted = mod["main_f"]
    assert [p.name_hint for p in lifted.params] == ["y", "x"]
    assert lifted.get_attr("global_symbol") is None
    (call,) = (b.value for b in bindings_of(mod["main"]))
    assert call.op.name_hint == "main_f"
    assert call.args == (x, x)


def test_closure_is_made_only_where_it_is_a_value():
    x, b = Var("x", tensor((2,))), Body()
    f = b(adder(x, tensor((2,))), "f")
    b(Call(f, (x,)))
    r = b(Call(ExternFunc("t.apply"), (f, x), sinfo_args=(tensor((2,)),)))
    mod = LambdaLift()(with_kernel(b.function([x], r, is_pure=False)))
    assert_well_formed(mod)
    assert count_calls(mod["main"]) == {"relax.make_closure": 1, "main_f": 1, "t.apply": 1}


def test_hidden_symbols_are_passed_as_a_shape():
    n = tir.Var("n", "int64")
    x, b, inner = Var("x", tensor((n,))), Body(), Body()
    y = Var("y", tensor((2,)))
    made = inner(call_tir(gv("fill"), (), tensor((n + 1,))))
    f = b(Function([y], inner.seq(made)), "f")
    z = b(Call(f, (b(relax.const(f32(0, 0))),)))
    fill = elementwise(lambda: tir.const(3.0, F32), 0, ("m",))
    vm = build_interpreted(module({"main": b.function([x], z), gv("fill"): fill}))
    assert vm["main"](f32(1, 2, 3)).numpy().tolist() == [3] * 4


def test_function_within_a_function_within_a_function():
    x, b = Var("x", tensor((2,))), Body()
    y, outer = Var("y", tensor((2,))), Body()
    z, inner = Var("z", tensor((2,))), Body()
    s = inner(call_tir(ADD, (x, z), tensor((2,))))
    deep = outer(Function([z], inner.seq(inner(call_tir(ADD, (s, y), tensor((2,)))))), "deep")
    f = b(Function([y], outer.seq(outer(Call(deep, (y,))))), "f")
    r = b(Call(f, (x,)))
    mod = with_kernel(b.function([x], r))
    lifted = LambdaLift()(mod)
    assert_well_formed(lifted)
    assert "main_f_deep" in lifted
    assert build_interpreted(mod)["main"](f32(1, 2)).numpy().tolist() == [3, 6]


def test_closures_are_returned_and_captured():
    x, b = Var("x", tensor((2,))), Body()
    f = b(adder(x, tensor((2,))), "f")
    y, g_body = Var("y", tensor((2,))), Body()
    g = b(Function([y], g_body.seq(g_body(Call(f, (g_body(Call(f, (y,))),))))), "g")
    mod = with_kernel(b.function([x], Tuple((f, g))))
    vm = build_interpreted(mod)
    first, second = vm["main"](f32(1, 2))
    assert first(f32(10, 10)).numpy().tolist() == [11, 12]
    assert second(f32(10, 10)).numpy().tolist() == [12, 14]


def test_inner_function_in_a_branch_and_in_a_dataflow_block():
    x, c, b, t = Var("x", tensor((2,))), Var("c", tensor((), "bool")), Body(), Body()
    f = t(adder(x, tensor((2,))), "f")
    y = b(If(c, t.seq(t(Call(f, (x,)))), SeqExpr((), x)))
    vm = build_interpreted(with_kernel(b.function([c, x], y)))
    assert vm["main"](np.array(True), f32(1, 2)).numpy().tolist() == [2, 4]
    assert vm["main"](np.array(False), f32(1, 2)).numpy().tolist() == [1, 2]
    f2 = relax.DataflowVar("f", f.struct_info)
    call = Call(f2, (x,))
    z = Var("z", call.struct_info)
    block = relax.DataflowBlock(
        [relax.VarBinding(f2, adder(x, tensor((2,)))), relax.VarBinding(z, call)]
    )
    main = Function([x], SeqExpr([block], z), attrs={"global_symbol": "main"})
    assert build_interpreted(with_kernel(main))["main"](f32(1, 2)).numpy().tolist() == [2, 4]


def test_names_do_not_collide():
    x, b = Var("x", tensor((2,))), Body()
    first = b(adder(x, tensor((2,))), "f")
    second = b(adder(x, tensor((2,))), "f")
    y = b(Call(second, (b(Call(first, (x,))),)))
    mod = LambdaLift()(with_kernel(b.function([x], y)))
    assert {"main_f", "main_f1"} <= {g.name_hint for g in mod}
    assert_well_formed(mod)


# -- written as text ------------------------------------------------------------------------------


def run_text(text, *args, **options):
    mod = parse(text)
    lifted = LambdaLift()(mod)
    assert_well_formed(lifted)
    assert not any(
        isinstance(n, Function) and n is not fn
        for fn in lifted.functions.values()
        if isinstance(fn, Function)
        for n in walk(fn)
    )
    return lifted, results(mod, *args, **options)


def test_a_local_function_that_calls_itself_captures_once():
    lifted, got = run_text(
        """
        @R.function
        def main(x: R.Tensor((2,), "int64"), n: R.Tensor((), "int64")) -> R.Tensor((2,), "int64"):
            @R.function
            def loop(
                i: R.Tensor((), "int64"),
                acc: R.Tensor((2,), "int64"),
            ) -> R.Tensor((2,), "int64"):
                c = R.less(i, n)
                if c:
                    j = R.add(i, R.const(1, "int64"))
                    more = R.add(acc, x)
                    r: R.Tensor((2,), "int64") = loop(j, more)
                else:
                    r: R.Tensor((2,), "int64") = acc
                return r
            y = loop(R.const(0, "int64"), x)
            return y
        """,
        np.array([1, 2]),
        np.array(5),
    )
    assert got.tolist() == [6, 12]
    assert "make_closure" not in lifted.script()


def test_functions_that_call_each_other_need_no_closures():
    lifted, got = run_text(
        """
        @R.function
        def main(x: R.Tensor((), "int64"), n: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
            @R.function
            def even(i: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
                @R.function
                def odd(k: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
                    m = R.subtract(k, R.const(1, "int64"))
                    c1 = R.less(k, R.const(1, "int64"))
                    if c1:
                        r1: R.Tensor((), "int64") = R.negative(x)
                    else:
                        r1: R.Tensor((), "int64") = even(m)
                    return r1
                c = R.less(i, R.const(1, "int64"))
                if c:
                    r: R.Tensor((), "int64") = x
                else:
                    j = R.subtract(i, R.const(1, "int64"))
                    r: R.Tensor((), "int64") = odd(j)
                return r
            y = even(n)
            return y
        """,
        np.array(7),
        np.array(9),
    )
    assert int(got) == -7
    assert "make_closure" not in lifted.script()


def test_a_function_called_only_by_another_is_not_made_a_closure():
    lifted, got = run_text(
        """
        @R.function
        def main(x: R.Tensor((2,), "int64"), y: R.Tensor((2,), "int64")) -> R.Tensor((2,), "int64"):
            @R.function
            def f(a: R.Tensor((2,), "int64")) -> R.Tensor((2,), "int64"):
                r = R.multiply(a, x)
                return r
            @R.function
            def g(a: R.Tensor((2,), "int64")) -> R.Tensor((2,), "int64"):
                b = f(a)
                d = f(b)
                r = R.add(d, y)
                return r
            z = g(x)
            return z
        """,
        np.array([2, 3]),
        np.array([1, 1]),
    )
    assert got.tolist() == [9, 28]
    assert "make_closure" not in lifted.script()


def test_functions_are_chosen_by_branches_and_kept_in_tuples():
    text = """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((2,), "int64")) -> R.Tensor((2,), "int64"):
            @R.function
            def f(a: R.Tensor((2,), "int64")) -> R.Tensor((2,), "int64"):
                r = R.multiply(a, x)
                return r
            @R.function
            def g(a: R.Tensor((2,), "int64")) -> R.Tensor((2,), "int64"):
                r = R.add(a, x)
                return r
            if c:
                h = f
            else:
                h = g
            t = (h, f)
            k = t[0]
            y = k(x)
            z = h(y)
            return z
        """
    for c, want in ((True, [8, 27]), (False, [6, 9])):
        assert run_text(text, np.array(c), np.array([2, 3]))[1].tolist() == want


def test_functions_are_given_to_functions_and_returned_by_them():
    _, got = run_text(
        """
        @R.function
        def main(x: R.Tensor((2,), "int64")) -> R.Tensor((2,), "int64"):
            @R.function
            def add_to(a: R.Tensor((2,), "int64")):
                @R.function
                def inner(b: R.Tensor((2,), "int64")) -> R.Tensor((2,), "int64"):
                    r = R.add(a, b)
                    return r
                return inner
            @R.function
            def twice(
                f: R.Callable((R.Tensor((2,), "int64"),), R.Tensor((2,), "int64")),
                a: R.Tensor((2,), "int64"),
            ) -> R.Tensor((2,), "int64"):
                b = f(a)
                d = f(b)
                return d
            plus = add_to(x)
            y = twice(plus, x)
            return y
        """,
        np.array([2, 3]),
    )
    assert got.tolist() == [6, 9]


def test_symbols_of_the_outside_are_captured_with_what_shows_them():
    _, got = run_text(
        """
        @R.function
        def main(x: R.Tensor(("n",), "int64"), y: R.Tensor(("m",), "int64")):
            n, m = T.int64(), T.int64()
            @R.function
            def f(a: R.Tensor(("n",), "int64")) -> R.Tensor((n + m,), "int64"):
                r = R.full((n + m,), R.const(1, "int64"), "int64")
                return r
            @R.function
            def g(a: R.Tensor(("n",), "int64")):
                r = f(a)
                s = R.full((m,), R.const(2, "int64"), "int64")
                return (r, s)
            z = g(x)
            return z
        """,
        np.zeros(3, "int64"),
        np.zeros(2, "int64"),
    )
    assert [a.tolist() for a in got] == [[1] * 5, [2] * 2]


def test_many_functions_of_one_name_get_names_in_linear_time():
    x, b = Var("x", tensor((2,))), Body()
    for _ in range(400):
        b(adder(x, tensor((2,))), "f")
    mod = LambdaLift()(with_kernel(b.function([x], x)))
    assert len(mod) == 402


def test_functions_nested_deeply_need_no_stack():
    x = Var("x", tensor((2,)))
    inner = Function([Var("y", tensor((2,)))], x)
    for _ in range(60):
        body = Body()
        f = body(inner, "f")
        inner = Function([y := Var("y", tensor((2,)))], body.seq(body(Call(f, (y,)))))
    b = Body()
    f = b(inner, "f")
    mod = with_kernel(b.function([x], b(Call(f, (x,)))))
    lifted = LambdaLift()(mod)
    assert_well_formed(lifted)
    assert build_interpreted(mod)["main"](f32(1, 2)).numpy().tolist() == [1, 2]
