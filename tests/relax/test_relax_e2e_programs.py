"""Whole programs through every lowering pass and the VM; the interpreter runs the kernels."""

import numpy as np
import pytest
from relax_vm_helpers import (
    F32,
    VOID,
    Body,
    build_interpreted,
    call_tir,
    count_calls,
    elementwise,
    gv,
    lowered,
    module,
    tensor,
    value,
)

from relaxvm import relax, tir
from relaxvm.base import LimitError, VMError, VMTypeError, VMValueError
from relaxvm.relax import (
    Call,
    ExternFunc,
    Function,
    If,
    MatchCast,
    ObjectStructInfo,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    const,
)

pytestmark = pytest.mark.vm_modes

ADD, MUL, ADD1 = gv("add"), gv("mul"), gv("add1")


def f32(*values):
    return np.array(values, dtype="float32")


def symbol(name="n"):
    return tir.Var(name, "int64")


def test_chain_of_kernels():
    x, b = Var("x", tensor((4,))), Body()
    y = x
    for _ in range(3):
        y = b(call_tir(ADD1, (y,), tensor((4,))))
    vm = build_interpreted(
        module({"main": b.function([x], y), ADD1: elementwise(lambda a: a + 1.0, 1)})
    )
    assert vm["main"](f32(0, 1, 2, 3)).numpy().tolist() == [3, 4, 5, 6]


def test_results_of_two_calls_share_no_memory():
    x, b = Var("x", tensor((4,))), Body()
    y = b(call_tir(ADD1, (x,), tensor((4,))))
    z = b(call_tir(ADD1, (y,), tensor((4,))))
    vm = build_interpreted(
        module({"main": b.function([x], z), ADD1: elementwise(lambda a: a + 1.0, 1)})
    )
    first = vm["main"](f32(0, 0, 0, 0))
    second = vm["main"](f32(5, 5, 5, 5))
    assert first.numpy().tolist() == [2, 2, 2, 2]
    assert second.numpy().tolist() == [7, 7, 7, 7]


# -- symbolic shapes ------------------------------------------------------------------------------


def test_symbolic_size_goes_through_kernels():
    n = symbol()
    x, b = Var("x", tensor((n, 2))), Body()
    y = b(call_tir(ADD, (x, x), tensor((n, 2))))
    z = b(call_tir(ADD, (y, x), tensor((n, 2))))
    vm = build_interpreted(
        module({"main": b.function([x], z), ADD: elementwise(lambda a, c: a + c, 2, ("n", 2))})
    )
    for rows in (0, 1, 5):
        given = np.arange(rows * 2, dtype="float32").reshape(rows, 2)
        assert np.array_equal(vm["main"](given).numpy(), given * 3)


def test_symbols_must_agree_between_parameters():
    n = symbol()
    x, y, b = Var("x", tensor((n,))), Var("y", tensor((n,))), Body()
    z = b(call_tir(ADD, (x, y), tensor((n,))))
    vm = build_interpreted(
        module({"main": b.function([x, y], z), ADD: elementwise(lambda a, c: a + c, 2, ("n",))})
    )
    assert vm["main"](f32(1, 2), f32(3, 4)).numpy().tolist() == [4, 6]
    with pytest.raises(VMValueError, match=r"(?s)main: parameter y.*wanted n = 2.*x.*got 3"):
        vm["main"](f32(1, 2), f32(1, 2, 3))


def test_related_sizes_are_verified_in_any_order():
    n = symbol()
    w, x, b = Var("w", tensor((n * 2,))), Var("x", tensor((n,))), Body()
    y = b(call_tir(ADD1, (w,), tensor((n * 2,))))
    mod = module({"main": b.function([w, x], y), ADD1: elementwise(lambda a: a + 1.0, 1, ("n",))})
    vm = build_interpreted(mod)
    assert vm["main"](f32(1, 2), f32(0)).numpy().tolist() == [2, 3]
    with pytest.raises(VMValueError, match=r"parameter w.*wanted 2.*got 3|parameter w"):
        vm["main"](f32(1, 2, 3), f32(0))


def test_wrong_dtype_rank_and_size_name_function_parameter_wanted_and_got():
    x, b = Var("x", tensor((2, 3))), Body()
    vm = build_interpreted(module({"main": b.function([x], x)}))
    with pytest.raises(
        VMTypeError, match=r"main: parameter x: Tensor\(\(2, 3\), float32\).*float64"
    ):
        vm["main"](np.zeros((2, 3)))
    with pytest.raises(VMTypeError, match=r"parameter x.*wanted 2 dimensions"):
        vm["main"](f32(1, 2))
    with pytest.raises(VMValueError, match=r"parameter x.*axis 1: wanted 3, got 4"):
        vm["main"](np.zeros((2, 4), "float32"))


def test_shape_is_returned_and_computed():
    n, m = symbol("n"), symbol("m")
    x, b = Var("x", tensor((n, m))), Body()
    s = b(relax.op.shape_of(x))
    result = Tuple((s, ShapeExpr((n + 1, m * 2 - n, 7)), PrimValue(n * m)))
    vm = build_interpreted(module({"main": b.function([x], result)}))
    shape, made, prim = vm["main"](np.zeros((3, 5), "float32"))
    assert tuple(shape) == (3, 5)
    assert tuple(made) == (4, 7, 7)
    assert prim == 15


def test_allocation_of_computed_size():
    n = symbol()
    x, b = Var("x", tensor((n,))), Body()
    ones = gv("ones")
    y = b(call_tir(ones, (), tensor((n * 2 + 1,))))
    mod = module(
        {"main": b.function([x], y), ones: elementwise(lambda: tir.const(1.0, F32), 0, ("m",))}
    )
    vm = build_interpreted(mod)
    assert vm["main"](f32(0, 0, 0)).numpy().tolist() == [1.0] * 7


def test_prim_parameter_binds_a_symbol():
    n = symbol()
    size, b = Var("size", PrimStructInfo(value=n)), Body()
    ones = gv("ones")
    y = b(call_tir(ones, (), tensor((n,))))
    mod = module(
        {"main": b.function([size], y), ones: elementwise(lambda: tir.const(1.0, F32), 0, ("m",))}
    )
    vm = build_interpreted(mod)
    assert vm["main"](3).numpy().tolist() == [1, 1, 1]
    with pytest.raises((VMTypeError, VMValueError), match="size"):
        vm["main"]("three")


def test_float_prim_parameter_reaches_a_packed_function():
    f = symbol("f").replace(dtype="float32")
    p, b = Var("p", PrimStructInfo(value=f)), Body()
    y = b(Call(ExternFunc("t.double"), (PrimValue(f),), sinfo_args=(PrimStructInfo("float32"),)))
    vm = build_interpreted(
        module({"main": b.function([p], y, is_pure=False)}), {"t.double": lambda v: v * 2}
    )
    assert vm["main"](1.5) == 3.0


def test_shape_parameter_binds_symbols():
    n, m = symbol("n"), symbol("m")
    s, b = Var("s", ShapeStructInfo((n, m))), Body()
    zeros = gv("zeros")
    y = b(call_tir(zeros, (), tensor((m, n))))
    mod = module(
        {"main": b.function([s], y), zeros: elementwise(lambda: tir.const(0.0, F32), 0, ("a", "b"))}
    )
    assert build_interpreted(mod)["main"]((2, 3)).shape == (3, 2)


def test_match_cast_binds_and_checks():
    n, m = symbol("n"), symbol("m")
    x, b = Var("x", tensor((n,))), Body()
    info = TupleStructInfo((tensor((m, n)), ObjectStructInfo()))
    r = b(Call(ExternFunc("t.grid"), (x,), sinfo_args=(ObjectStructInfo(),)))
    t = Var("t", info)
    b.bindings.append(MatchCast(t, r, info))
    g = b(TupleGetItem(t, 0))
    y = b(call_tir(ADD1, (g,), tensor((m, n))))
    result = Tuple((y, ShapeExpr((m, m + n))))
    mod = module(
        {
            "main": b.function([x], result, is_pure=False),
            ADD1: elementwise(lambda a: a + 1.0, 1, ("a", "b")),
        }
    )
    vm = build_interpreted(mod, {"t.grid": lambda x: (np.zeros((4, x.shape[0]), "float32"), "any")})
    y, s = vm["main"](f32(1, 2, 3))
    assert y.numpy().tolist() == [[1.0] * 3] * 4
    assert tuple(s) == (4, 7)
    bad = build_interpreted(mod, {"t.grid": lambda x: (np.zeros((4, 9), "float32"), 0)})
    with pytest.raises(VMValueError, match=r"match_cast t.*field 0.*wanted n = 3.*got 9"):
        bad["main"](f32(1, 2, 3))
    none = build_interpreted(mod, {"t.grid": lambda x: 5})
    with pytest.raises(VMTypeError, match=r"match_cast t.*wanted a tuple of 2"):
        none["main"](f32(1, 2, 3))


def test_computed_scalars_reach_packed_functions():
    n = symbol()
    x, b = Var("x", tensor((n,))), Body()
    args = [n, n + 1, tir.Select(n > 2, n * 10, 0 - n), n // 2, n % 3, tir.max(n, 4), n > 1]
    call = Call(
        ExternFunc("t.list"), [PrimValue(a) for a in args], sinfo_args=(ObjectStructInfo(),)
    )
    y = b(call)
    mod = module({"main": b.function([x], y, is_pure=False)})
    vm = build_interpreted(mod, {"t.list": lambda *a: tuple(a)})
    assert vm["main"](np.zeros(5, "float32")) == (5, 6, 50, 2, 2, 5, 1)
    assert vm["main"](np.zeros(1, "float32")) == (1, 2, -1, 0, 1, 4, 0)


def test_very_long_dimension_expression_is_computed():
    n = symbol()
    total = n
    for i in range(5000):
        total = total + n * (i % 7)
    x, b = Var("x", tensor((n,))), Body()
    vm = build_interpreted(module({"main": b.function([x], PrimValue(total))}))
    assert vm["main"](np.zeros(3, "float32")) == 3 + sum(3 * (i % 7) for i in range(5000))


def test_shared_subexpressions_are_computed_once():
    n = symbol()
    total = n + 1
    for _ in range(40):
        total = total * total % 1000003
    x, b = Var("x", tensor((n,))), Body()
    vm = build_interpreted(module({"main": b.function([x], PrimValue(total))}))
    want = 4
    for _ in range(40):
        want = want * want % 1000003
    assert vm["main"](np.zeros(3, "float32")) == want


def test_tir_vars_are_passed_as_scalars():
    n = symbol()
    x, b = Var("x", tensor((n,))), Body()
    scale = gv("scale")
    y = b(call_tir(scale, (x,), tensor((n,)), tir_vars=(n + 1,)))
    kernel = elementwise(lambda a, s: a * tir.Cast(F32, s), 1, ("m",), scalars=1)
    vm = build_interpreted(module({"main": b.function([x], y), scale: kernel}))
    assert vm["main"](f32(1, 2)).numpy().tolist() == [3, 6]


# -- control flow ---------------------------------------------------------------------------------


def branchy(true_value, false_value, params, extra=None):
    c = Var("c", tensor((), "bool"))
    b = Body()
    y = b(If(c, true_value, false_value))
    return module({"main": b.function([c, *params], y), **(extra or {})})


def test_if_takes_one_branch():
    x = Var("x", tensor((2,)))
    t, f = Body(), Body()
    mod = branchy(
        t.seq(t(call_tir(ADD1, (x,), tensor((2,))))),
        f.seq(f(call_tir(ADD, (x, x), tensor((2,))))),
        [x],
        {
            ADD1: elementwise(lambda a: a + 1.0, 1, (2,)),
            ADD: elementwise(lambda a, b: a + b, 2, (2,)),
        },
    )
    vm = build_interpreted(mod)
    assert vm["main"](np.array(True), f32(5, 6)).numpy().tolist() == [6, 7]
    assert vm["main"](np.array(False), f32(5, 6)).numpy().tolist() == [10, 12]


def test_branches_may_give_parameters_constants_and_tuples():
    x, y = Var("x", tensor((2,))), Var("y", tensor((2,)))
    vm = build_interpreted(branchy(SeqExpr((), x), SeqExpr((), y), [x, y]))
    assert vm["main"](np.array(True), f32(1, 2), f32(3, 4)).numpy().tolist() == [1, 2]
    assert vm["main"](np.array(False), f32(1, 2), f32(3, 4)).numpy().tolist() == [3, 4]
    vm = build_interpreted(branchy(SeqExpr((), const(f32(7, 8))), SeqExpr((), x), [x]))
    assert vm["main"](np.array(True), f32(1, 2)).numpy().tolist() == [7, 8]
    vm = build_interpreted(branchy(SeqExpr((), Tuple((x, y))), SeqExpr((), Tuple((y, x))), [x, y]))
    assert value(vm["main"](np.array(False), f32(1, 2), f32(3, 4)))[0].tolist() == [3, 4]


def test_nested_ifs_and_use_after_the_branch():
    x, d = Var("x", tensor((2,))), Var("d", tensor((), "bool"))
    inner_t, inner_f, t, b = Body(), Body(), Body(), Body()
    a = inner_t(call_tir(ADD1, (x,), tensor((2,))))
    bb = inner_f(call_tir(ADD, (x, x), tensor((2,))))
    inner = t(If(d, inner_t.seq(a), inner_f.seq(bb)))
    c = Var("c", tensor((), "bool"))
    y = b(If(c, t.seq(inner), SeqExpr((), x)))
    z = b(call_tir(ADD, (y, x), tensor((2,))))
    mod = module(
        {
            "main": b.function([c, d, x], z),
            ADD1: elementwise(lambda a: a + 1.0, 1, (2,)),
            ADD: elementwise(lambda a, b: a + b, 2, (2,)),
        }
    )
    vm = build_interpreted(mod)
    got = {
        (p, q): vm["main"](np.array(p), np.array(q), f32(1, 2)).numpy().tolist()
        for p in (True, False)
        for q in (True, False)
    }
    assert got == {
        (True, True): [3, 5],
        (True, False): [3, 6],
        (False, True): [2, 4],
        (False, False): [2, 4],
    }


def test_if_on_a_symbolic_condition():
    n = symbol()
    x, b = Var("x", tensor((n,))), Body()
    y = b(If(PrimValue(n > 2), SeqExpr((), PrimValue(n)), SeqExpr((), PrimValue(0 - n))))
    vm = build_interpreted(module({"main": b.function([x], y)}))
    assert vm["main"](np.zeros(3, "float32")) == 3
    assert vm["main"](np.zeros(2, "float32")) == -2


def test_if_nested_a_thousand_deep():
    x, c = Var("x", tensor((2,))), Var("c", tensor((), "bool"))
    seq = SeqExpr((), x)
    for _ in range(1000):
        t = Body()
        seq = t.seq(t(If(c, seq, SeqExpr((), x))))
    fn = Function([c, x], seq, attrs={"global_symbol": "main"})
    vm = build_interpreted(module({"main": fn}))
    assert vm["main"](np.array(True), f32(1, 2)).numpy().tolist() == [1, 2]


# -- functions ------------------------------------------------------------------------------------


def countdown(step, tail=True):
    """f(i, acc) = acc if i == 0 else f(i - step, acc + 1), on scalar tensors; if not `tail`, the
    value of the inner call is worked on.
    """
    i, acc = Var("i", tensor((), "int64")), Var("acc", tensor((2,)))
    me = relax.GlobalVar(
        "down", relax.FuncStructInfo((i.struct_info, acc.struct_info), tensor((2,)), True)
    )
    b, f = Body(), Body()
    c = b(call_tir(gv("is_zero"), (i,), tensor((), "bool")))
    j = f(call_tir(gv("dec"), (i,), tensor((), "int64")))
    more = f(call_tir(ADD1, (acc,), tensor((2,))))
    again = f(Call(me, (j, more)))
    if not tail:
        again = f(call_tir(ADD1, (again,), tensor((2,))))
    y = b(If(c, SeqExpr((), acc), f.seq(again)))
    return module(
        {
            me: Function(
                [i, acc], b.seq(y), ret_struct_info=tensor((2,)), attrs={"global_symbol": "down"}
            ),
            gv("is_zero"): elementwise(lambda a: a == 0, 1, (), "int64", "bool"),
            gv("dec"): elementwise(lambda a: a - step, 1, (), "int64"),
            ADD1: elementwise(lambda a: a + 1.0, 1, (2,)),
        }
    )


def test_recursion():
    vm = build_interpreted(countdown(1))
    assert vm["down"](np.array(6), f32(0, 1)).numpy().tolist() == [6, 7]


def test_endless_recursion_is_a_limit_error():
    vm = build_interpreted(countdown(0, tail=False), max_depth=50)
    with pytest.raises(LimitError, match="max_depth=50"):
        vm["down"](np.array(1), f32(0, 1))


def test_functions_call_each_other_with_symbols():
    n, m = symbol("n"), symbol("m")
    x, z = Var("x", tensor((n,))), Var("z", tensor((m,)))
    inner, outer = Body(), Body()
    callee = inner.function([z], inner(call_tir(ADD, (z, z), tensor((m,)))), name=None)
    twice = relax.GlobalVar("twice", callee.struct_info)
    a = outer(Call(twice, (x,)))
    y = outer(Call(twice, (a,)))
    mod = module(
        {
            "main": outer.function([x], y),
            twice: callee,
            ADD: elementwise(lambda a, b: a + b, 2, ("k",)),
        }
    )
    vm = build_interpreted(mod)
    assert vm["main"](f32(1, 2, 3)).numpy().tolist() == [4, 8, 12]


def test_function_as_argument_is_called():
    x = Var("x", tensor((2,)))
    f = Var("f", relax.FuncStructInfo((tensor((2,)),), tensor((2,)), True))
    apply, inc, main = Body(), Body(), Body()
    y = apply(Call(f, (x,)))
    apply_fn = apply.function([f, x], apply(Call(f, (y,))), name=None)
    p = Var("p", tensor((2,)))
    inc_fn = inc.function([p], inc(call_tir(ADD1, (p,), tensor((2,)))), name=None)
    apply_gv = relax.GlobalVar("apply", apply_fn.struct_info)
    inc_gv = relax.GlobalVar("inc", inc_fn.struct_info)
    q = Var("q", tensor((2,)))
    z = main(Call(apply_gv, (inc_gv, q)))
    mod = module(
        {
            "main": main.function([q], z),
            apply_gv: apply_fn,
            inc_gv: inc_fn,
            ADD1: elementwise(lambda a: a + 1.0, 1, (2,)),
        }
    )
    vm = build_interpreted(mod)
    assert vm["main"](f32(1, 2)).numpy().tolist() == [3, 4]
    with pytest.raises(VMError):
        vm["apply"](lambda v: np.zeros(3, "float32"), f32(1, 2))


def closure_module(call_inside):
    """main(x) with inner(y) = x + y; called, or given to a packed function."""
    n = symbol()
    x, y = Var("x", tensor((n,))), Var("y", tensor((n,)))
    inner, b = Body(), Body()
    fn = Function([y], inner.seq(inner(call_tir(ADD, (x, y), tensor((n,))))))
    f = b(fn, "inner")
    if call_inside:
        r = b(Call(f, (x,)))
    else:
        r = b(Call(ExternFunc("t.apply"), (f, x), sinfo_args=(tensor((n,)),)))
    return module(
        {
            "main": b.function([x], r, is_pure=call_inside),
            ADD: elementwise(lambda a, b: a + b, 2, ("m",)),
        }
    )


def test_inner_function_captures():
    vm = build_interpreted(closure_module(True))
    assert vm["main"](f32(1, 2, 3)).numpy().tolist() == [2, 4, 6]


def test_closure_is_called_by_a_packed_function():
    vm = build_interpreted(closure_module(False), {"t.apply": lambda f, x: f(f(x))})
    assert vm["main"](f32(1, 2)).numpy().tolist() == [3, 6]


def test_inner_function_calls_itself():
    i, x = Var("i", tensor((), "int64")), Var("x", tensor((2,)))
    me = Var("loop", relax.FuncStructInfo((tensor((), "int64"),), tensor((2,)), True))
    body, f, main = Body(), Body(), Body()
    c = body(call_tir(gv("is_zero"), (i,), tensor((), "bool")))
    j = f(call_tir(gv("dec"), (i,), tensor((), "int64")))
    again = f(Call(me, (j,)))
    more = f(call_tir(ADD1, (again,), tensor((2,))))
    y = body(If(c, SeqExpr((), x), f.seq(more)))
    fn = Function([i], body.seq(y), ret_struct_info=tensor((2,)))
    main.bindings.append(relax.VarBinding(me, fn))
    k = Var("k", tensor((), "int64"))
    r = main(Call(me, (k,)))
    mod = module(
        {
            "main": main.function([k, x], r),
            gv("is_zero"): elementwise(lambda a: a == 0, 1, (), "int64", "bool"),
            gv("dec"): elementwise(lambda a: a - 1, 1, (), "int64"),
            ADD1: elementwise(lambda a: a + 1.0, 1, (2,)),
        }
    )
    vm = build_interpreted(mod)
    assert vm["main"](np.array(4), f32(0, 1)).numpy().tolist() == [4, 5]


# -- tuples, effects, packed functions ------------------------------------------------------------


def test_nested_tuples_in_and_out():
    t2 = tensor((2,))
    p = Var("p", TupleStructInfo((t2, TupleStructInfo((t2, t2)))))
    b = Body()
    first = b(TupleGetItem(p, 0))
    pair = b(TupleGetItem(p, 1))
    second = b(TupleGetItem(pair, 1))
    total = b(call_tir(ADD, (first, second), t2))
    vm = build_interpreted(
        module(
            {
                "main": b.function([p], Tuple((pair, Tuple((total, first))))),
                ADD: elementwise(lambda a, b: a + b, 2, (2,)),
            }
        )
    )
    got = value(vm["main"]((f32(1, 2), [f32(3, 4), f32(5, 6)])))
    assert [v.tolist() for v in got[0]] == [[3, 4], [5, 6]]
    assert [v.tolist() for v in got[1]] == [[6, 8], [1, 2]]
    with pytest.raises(
        VMError, match=r"main: parameter p.*field 1.*field 1.*axis 0: wanted 2, got 3"
    ):
        vm["main"]((f32(1, 2), (f32(3, 4), f32(5, 6, 7))))


def test_kernel_with_several_results():
    from relax_vm_helpers import prim_func

    from relaxvm.tir.stmt import BufferLoad, BufferStore, For, decl_buffer, seq

    a, s, d = (decl_buffer((2,), F32, name) for name in ("a", "s", "d"))
    i = tir.Var("i", "int64")
    body = For(
        i,
        tir.const(0, "int64"),
        tir.const(2, "int64"),
        0,
        seq(
            BufferStore(s, BufferLoad(a, [i]) + 1.0, [i]),
            BufferStore(d, BufferLoad(a, [i]) * 2.0, [i]),
        ),
    )
    both = gv("both")
    x, b = Var("x", tensor((2,))), Body()
    t = b(call_tir(both, (x,), [tensor((2,)), tensor((2,))]))
    d1 = b(TupleGetItem(t, 1))
    y = b(call_tir(ADD, (d1, d1), tensor((2,))))
    mod = module(
        {
            "main": b.function([x], Tuple((t, y))),
            both: prim_func([a, s, d], body),
            ADD: elementwise(lambda a, b: a + b, 2, (2,)),
        }
    )
    (first, second), third = value(build_interpreted(mod)["main"](f32(1, 2)))
    assert first.tolist() == [2, 3]
    assert second.tolist() == [2, 4]
    assert third.tolist() == [4, 8]


def test_inplace_kernel_overwrites_its_argument():
    inc = gv("inc")
    from relax_vm_helpers import prim_func

    from relaxvm.tir.stmt import BufferLoad, BufferStore, For, decl_buffer

    a = decl_buffer((2,), F32, "a")
    i = tir.Var("i", "int64")
    body = For(
        i,
        tir.const(0, "int64"),
        tir.const(2, "int64"),
        0,
        BufferStore(a, BufferLoad(a, [i]) + 1.0, [i]),
    )
    x, b = Var("x", tensor((2,))), Body()
    y = b(call_tir(ADD, (x, x), tensor((2,))))
    z = b(relax.call_tir_inplace(inc, (y,), 0, tensor((2,))))
    w = b(call_tir(ADD, (z, z), tensor((2,))))
    mod = module(
        {
            "main": b.function([x], Tuple((z, w))),
            inc: prim_func([a], body),
            ADD: elementwise(lambda a, b: a + b, 2, (2,)),
        }
    )
    vm = build_interpreted(mod)
    x_given = f32(1, 2)
    z, w = value(vm["main"](x_given))
    assert z.tolist() == [3, 5]
    assert w.tolist() == [6, 10]
    assert x_given.tolist() == [1, 2]


def test_packed_functions_run_in_order_with_effects():
    log = []
    x, b = Var("x", tensor((2,))), Body()
    for k in range(4):
        b(Call(ExternFunc("t.log"), (PrimValue(k), x), sinfo_args=(VOID,)), "_")
    b(relax.op.print(x, format="x is {}"), "_")
    vm = build_interpreted(
        module({"main": b.function([x], x, is_pure=False)}), {"t.log": lambda k, x: log.append(k)}
    )
    vm["main"](f32(1, 2))
    assert log == [0, 1, 2, 3]


def test_packed_function_that_keeps_its_argument_keeps_its_value():
    kept = []
    x, b = Var("x", tensor((2,))), Body()
    y = b(call_tir(ADD1, (x,), tensor((2,))))
    b(Call(ExternFunc("t.keep"), (y,), sinfo_args=(VOID,)), "_")
    z = b(call_tir(ADD1, (y,), tensor((2,))))
    w = b(call_tir(ADD1, (z,), tensor((2,))))
    v = b(call_tir(ADD1, (w,), tensor((2,))))
    mod = module(
        {
            "main": b.function([x], v, is_pure=False),
            ADD1: elementwise(lambda a: a + 1.0, 1, (2,)),
        }
    )
    vm = build_interpreted(mod, {"t.keep": kept.append})
    for base in (0, 10, 20):
        vm["main"](f32(base, base))
    assert [k.numpy().tolist() for k in kept] == [[1, 1], [11, 11], [21, 21]]


def test_dps_packed_functions():
    def relu(x, out):
        np.maximum(x.array, 0, out=out.array)

    x, b = Var("x", tensor((3,))), Body()
    y = b(relax.call_dps_packed("t.relu", (x,), tensor((3,))))
    z = b(relax.call_dps_packed("t.relu", (y,), tensor((3,))))
    vm = build_interpreted(module({"main": b.function([x], z)}), {"t.relu": relu})
    assert vm["main"](f32(-1, 0, 2)).numpy().tolist() == [0, 0, 2]


def test_result_of_a_packed_function_is_checked():
    x, b = Var("x", tensor((2,))), Body()
    y = b(Call(ExternFunc("t.f"), (x,), sinfo_args=(tensor((2,)),)))
    mod = module({"main": b.function([x], y, is_pure=False)})
    good = build_interpreted(mod, {"t.f": lambda x: x.numpy() * 2})
    assert good["main"](f32(1, 2)).numpy().tolist() == [2, 4]
    with pytest.raises(
        VMValueError, match=r"main: result of t\.f: Tensor\(\(2,\), float32\).*got 3"
    ):
        build_interpreted(mod, {"t.f": lambda x: np.zeros(3, "float32")})["main"](f32(1, 2))
    with pytest.raises(VMTypeError, match=r"result of t\.f.*wanted a tensor"):
        build_interpreted(mod, {"t.f": lambda x: "no"})["main"](f32(1, 2))


def test_assert_op_stops_the_program():
    n = symbol()
    x, b = Var("x", tensor((n,))), Body()
    b(relax.op.assert_op(PrimValue(n > 1), [PrimValue(n)], format="n is {}"), "_")
    vm = build_interpreted(module({"main": b.function([x], x, is_pure=False)}))
    assert vm["main"](f32(1, 2)).shape == (2,)
    with pytest.raises(AssertionError, match="n is 1"):
        vm["main"](f32(1))


def test_shape_tensor_round_trip():
    s, b = Var("s", ShapeStructInfo(ndim=2)), Body()
    t = b(relax.op.shape_to_tensor(s))
    back = b(relax.op.tensor_to_shape(t))
    vm = build_interpreted(module({"main": b.function([s], Tuple((t, back)))}))
    t, back = vm["main"]((3, 4))
    assert t.numpy().tolist() == [3, 4]
    assert tuple(back) == (3, 4)


def test_several_public_functions():
    x, y = Var("x", tensor((2,))), Var("y", tensor((2,)))
    a, b = Body(), Body()
    fa = a.function([x], a(call_tir(ADD1, (x,), tensor((2,)))), name="inc")
    fb = b.function([y], b(call_tir(ADD, (y, y), tensor((2,)))), name="twice")
    mod = module(
        {
            "inc": fa,
            "twice": fb,
            ADD1: elementwise(lambda a: a + 1.0, 1, (2,)),
            ADD: elementwise(lambda a, b: a + b, 2, (2,)),
        }
    )
    vm = build_interpreted(mod)
    assert vm["inc"](f32(1, 2)).numpy().tolist() == [2, 3]
    assert vm["twice"](f32(1, 2)).numpy().tolist() == [2, 4]


def test_long_chain_uses_one_storage():
    x, b = Var("x", tensor((4,))), Body()
    y = x
    for _ in range(500):
        y = b(call_tir(ADD1, (y,), tensor((4,))))
    mod = module({"main": b.function([x], y), ADD1: elementwise(lambda a: a + 1.0, 1)})
    low = lowered(mod)
    # One that is overwritten again and again, and the result's own.
    assert count_calls(low["main"])["relax.vm.alloc_storage"] == 2
    vm = build_interpreted(mod)
    assert vm["main"](f32(0, 0, 0, 0)).numpy().tolist() == [500] * 4


def test_void_function_result_of_a_constant():
    b = Body()
    fn = b.function([], const(f32(1, 2)))
    assert build_interpreted(module({"main": fn}))["main"]().numpy().tolist() == [1, 2]


def double_in_place():
    from relax_vm_helpers import prim_func

    from relaxvm.tir.stmt import BufferLoad, BufferStore, For, decl_buffer

    a = decl_buffer((2,), F32, "a")
    i = tir.Var("i", "int64")
    return prim_func([a], For(i, 0, 2, 0, BufferStore(a, BufferLoad(a, [i]) * 2.0, [i])))


@pytest.mark.parametrize("named", [False, True])
def test_constant_is_not_overwritten_in_place(named):
    given = relax.const(f32(1, 2))
    b = Body()
    start = b(given) if named else given
    y = b(relax.call_tir_inplace(gv("double"), (start,), 0, tensor((2,))))
    mod = module({"main": b.function([], Tuple((y, given))), gv("double"): double_in_place()})
    vm = relax.VirtualMachine(relax.build(mod, "llvm"))
    for _ in range(3):
        doubled, kept = value(vm["main"]())
        assert doubled.tolist() == [2, 4]
        assert kept.tolist() == [1, 2]
    assert given.data.numpy().tolist() == [1, 2]


def test_constant_that_reaches_an_in_place_kernel_unseen_is_refused():
    c, b = Var("c", tensor((), "bool")), Body()
    given = relax.const(f32(1, 2))
    start = b(If(c, SeqExpr((), given), SeqExpr((), const(f32(3, 4)))))
    y = b(relax.call_tir_inplace(gv("double"), (start,), 0, tensor((2,))))
    mod = module({"main": b.function([c], y), gv("double"): double_in_place()})
    vm = relax.VirtualMachine(relax.build(mod, "llvm"))
    with pytest.raises(VMError, match="read-only"):
        vm["main"](np.array(True))
    assert given.data.numpy().tolist() == [1, 2]
