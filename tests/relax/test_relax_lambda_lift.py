"""LambdaLift: inner functions become functions of the module."""

import numpy as np
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
    assert {"main_f", "main_f_1"} <= {g.name_hint for g in mod}
    assert_well_formed(mod)
