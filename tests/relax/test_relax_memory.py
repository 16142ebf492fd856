"""StaticPlanBlockMemory and LowerAllocTensor: who shares storage with whom."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relax_vm_helpers import (
    VOID,
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
from relaxvm.base import PassError, VMValueError
from relaxvm.ir import PassContext
from relaxvm.relax import (
    Call,
    ExternFunc,
    GlobalVar,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from relaxvm.relax.transform import CallTIRRewrite, LowerAllocTensor, StaticPlanBlockMemory

F = gv("f")


def plan(fn, kernels=(F,), inplace=False):
    """`fn` after planning, and {tensor's own variable: storage variable} by result variable."""
    functions = {"main": fn, **{k: elementwise(lambda a: a + 1.0, 1) for k in kernels}}
    with PassContext(config={"relax.StaticPlanBlockMemory.inplace": inplace}):
        mod = StaticPlanBlockMemory()(CallTIRRewrite()(module(functions)))
    made = mod["main"]
    storage_of = {}
    for b in bindings_of(made):
        if (
            isinstance(b.value, Call)
            and getattr(b.value.op, "name", "") == "relax.memory.alloc_tensor"
        ):
            storage_of[b.var] = b.value.args[0]
    names = {}
    for b in bindings_of(made):
        if isinstance(b.value, Var) and b.value in storage_of:
            names[b.var] = storage_of[b.value]
    return made, names


def f(b, x, shape=(4,), dtype="float32"):
    return b(call_tir(F, (x,), tensor(shape, dtype)))


def sizes(fn):
    return sorted(
        int(b.value.args[0].values[0])
        for b in bindings_of(fn)
        if isinstance(b.value, Call)
        and getattr(b.value.op, "name", "") == "relax.memory.alloc_storage"
    )


def test_chain_takes_turns():
    x, b = Var("x", tensor((4,))), Body()
    first = f(b, x)
    second = f(b, first)
    third = f(b, second)
    fourth = f(b, third)
    made, storage = plan(b.function([x], fourth))
    assert storage[first] is storage[third]
    assert storage[first] is not storage[second]
    assert fourth not in storage
    assert count_calls(made)["relax.builtin.alloc_tensor"] == 1


def test_input_of_a_call_is_not_its_output():
    x, b = Var("x", tensor((4,))), Body()
    first = f(b, x)
    second = f(b, first)
    last = f(b, second)
    _, storage = plan(b.function([x], last))
    assert storage[first] is not storage[second]


def test_result_in_a_tuple_is_not_planned():
    x, b = Var("x", tensor((4,))), Body()
    first = f(b, x)
    second = f(b, first)
    t = b(Tuple((first, Tuple((second,)))))
    made, storage = plan(b.function([x], t))
    assert storage == {}
    assert count_calls(made)["relax.memory.alloc_storage"] == 0


def test_field_of_a_tuple_keeps_the_tensor_alive():
    x, b = Var("x", tensor((4,))), Body()
    first = f(b, x)
    t = b(Tuple((first, x)))
    second = f(b, x)
    g = b(TupleGetItem(t, 0))
    third = f(b, second)
    fourth = f(b, g)
    last = f(b, fourth)
    fifth = f(b, third)
    _, storage = plan(b.function([x], Tuple((last, fifth))))
    # `first` is read through `g` when `fourth` is computed.
    assert storage[first] is not storage[second]
    assert storage[first] is not storage[third]
    assert storage[first] is not storage[fourth]


def test_match_cast_keeps_the_tensor_alive():
    x, b = Var("x", tensor((4,))), Body()
    first = f(b, x)
    y = Var("y", tensor((4,)))
    b.bindings.append(MatchCast(y, first, tensor((4,))))
    second = f(b, x)
    third = f(b, second)
    last = f(b, b(call_tir(F, (y,), tensor((4,)))))
    _, storage = plan(b.function([x], Tuple((last, third))))
    assert storage[first] is not storage[second]


def test_packed_function_may_keep_its_argument():
    x, b = Var("x", tensor((4,))), Body()
    first = f(b, x)
    b(Call(ExternFunc("env.keep"), (first,), sinfo_args=(VOID,)), "_")
    last = f(b, first)
    _, storage = plan(b.function([x], last))
    assert first not in storage


def test_dps_function_keeps_nothing():
    x, b = Var("x", tensor((4,))), Body()
    first = b(relax.call_dps_packed("env.f", (x,), tensor((4,))))
    second = b(relax.call_dps_packed("env.f", (first,), tensor((4,))))
    last = b(relax.call_dps_packed("env.f", (second,), tensor((4,))))
    _, storage = plan(b.function([x], last))
    assert set(storage) == {first, second}


def test_argument_of_a_graph_function_is_not_planned():
    x, b = Var("x", tensor((4,))), Body()
    sub = GlobalVar("sub", relax.FuncStructInfo((tensor((4,)),), tensor((4,))))
    first = f(b, x)
    y = b(Call(sub, (first,)))
    last = f(b, y)
    _, storage = plan(b.function([x], last))
    assert first not in storage


def test_tensor_used_in_a_branch_lives_until_the_branches_end():
    x, c, b = Var("x", tensor((4,))), Var("c", tensor((), "bool")), Body()
    first = f(b, x)
    t, e = Body(), Body()
    inside = f(t, x)
    more = f(t, inside)
    y = b(If(c, t.seq(f(t, more)), e.seq(f(e, first))))
    second = f(b, y)
    last = f(b, second)
    _, storage = plan(b.function([c, x], last))
    assert storage[inside] is not storage[first]
    assert storage[second] is storage[first]
    assert storage[more] is not storage[inside]


def test_branches_reuse_what_is_free_before_them():
    x, c, b = Var("x", tensor((4,))), Var("c", tensor((), "bool")), Body()
    first = f(b, x)
    second = f(b, first)
    t, e = Body(), Body()
    in_true, in_false = f(t, x), f(e, x)
    y = b(If(c, t.seq(f(t, in_true)), e.seq(f(e, in_false))))
    last = b(call_tir(gv("g"), (y, second), tensor((4,))))
    functions = b.function([c, x], last)
    _, storage = plan(functions, (F, gv("g")))
    assert storage[in_true] is storage[first]
    assert storage[in_false] is storage[first]


def test_result_of_a_branch_outlives_it():
    x, c, b = Var("x", tensor((4,))), Var("c", tensor((), "bool")), Body()
    t, e = Body(), Body()
    inner = f(t, x)
    y = b(If(c, t.seq(inner), e.seq(x)))
    last = f(b, y)
    _, storage = plan(b.function([c, x], last))
    assert inner not in storage


def test_tensor_that_passes_through_a_branch_stays_alive():
    x, c, b = Var("x", tensor((4,))), Var("c", tensor((), "bool")), Body()
    first = f(b, x)
    y = b(If(c, SeqExpr((), first), SeqExpr((), x)))
    second = f(b, x)
    third = f(b, y)
    last = b(call_tir(gv("g"), (second, third), tensor((4,))))
    _, storage = plan(b.function([c, x], last), (F, gv("g")))
    assert storage[first] is not storage[second]
    assert storage[first] is not storage[third]


def test_larger_tensor_grows_a_free_storage():
    x, b = Var("x", tensor((4,))), Body()
    first = f(b, x, (4,))
    second = f(b, first, (2,))
    third = f(b, second, (8,))
    fourth = f(b, third, (2,), "float64")
    last = f(b, fourth, (1,))
    made, storage = plan(b.function([x], last))
    assert storage[first] is storage[third]
    assert storage[second] is storage[fourth]
    assert sizes(made) == [16, 32]


def test_storage_far_too_large_is_not_used():
    x, b = Var("x", tensor((4,))), Body()
    first = f(b, x, (1000,))
    second = f(b, first, (4,))
    third = f(b, second, (4,))
    last = f(b, third, (4,))
    _, storage = plan(b.function([x], last))
    assert storage[third] is not storage[first]


def test_symbolic_sizes_that_are_provably_equal_share():
    n = tir.Var("n", "int64")
    x, b = Var("x", tensor((n,))), Body()
    first = f(b, x, (n + n, 3))
    second = f(b, first, (n,))
    third = f(b, second, (3 * n, 2))
    last = f(b, third, (n,))
    made, storage = plan(b.function([x], last))
    assert storage[first] is storage[third]
    assert storage[second] is not storage[first]


def test_symbolic_size_is_not_mixed_with_a_constant_one():
    n = tir.Var("n", "int64")
    x, b = Var("x", tensor((n,))), Body()
    first = f(b, x, (n,))
    second = f(b, first, (400,))
    third = f(b, second, (n,))
    fourth = f(b, third, (400,))
    last = f(b, fourth, (n,))
    _, storage = plan(b.function([x], last))
    assert storage[first] is storage[third]
    assert storage[second] is storage[fourth]
    assert storage[first] is not storage[second]


def test_upper_bound_makes_symbolic_sizes_static():
    n = tir.Var("n", "int64")
    x, b = Var("x", tensor((n,))), Body()
    first = f(b, x, (n, 2))
    second = f(b, first, (n,))
    third = f(b, second, (30,))
    last = f(b, third, (n,))
    fn = b.function([x], last).with_attr("tir_var_upper_bound", {"n": 16})
    made, storage = plan(fn)
    assert sizes(made) == [64, 128]
    assert storage[first] is storage[third]


def test_size_beyond_the_promised_bound_is_an_error():
    n = tir.Var("n", "int64")
    x, b = Var("x", tensor((n,))), Body()
    last = f(b, f(b, x, (n,)), (n,))
    fn = b.function([x], last).with_attr("tir_var_upper_bound", {"n": 4})
    vm = build_interpreted(module({"main": fn, F: elementwise(lambda a: a + 1.0, 1, ("m",))}))
    assert vm["main"](np.zeros(4, "float32")).numpy().tolist() == [2] * 4
    with pytest.raises(VMValueError, match="needs 20 bytes, the storage has 16"):
        vm["main"](np.zeros(5, "float32"))


@pytest.mark.parametrize("bound", [{"n": -1}, {"n": "many"}, 7, {1: 2}, {"n": 2**70}, {"n": 1.0}])
def test_senseless_upper_bound_is_refused_with_nothing_to_plan_too(bound):
    x, b = Var("x", tensor((4,))), Body()
    for fn in (b.function([x], f(b, f(b, x))), Body().function([x], x)):
        with pytest.raises(PassError, match="tir_var_upper_bound"):
            plan(fn.with_attr("tir_var_upper_bound", bound))


def test_bounds_that_leave_no_value_are_refused():
    x = Var("x", tensor((4,)))
    given = {"tir_var_upper_bound": {"n": 5}, "tir_var_lower_bound": {"n": 6}}
    with pytest.raises(PassError, match="n is 6, above its upper 5"):
        plan(Body().function([x], x).with_attr(given))


def test_allocation_left_over_gets_a_storage_of_its_own():
    n = tir.Var("n", "int64")
    x, b = Var("x", tensor((n,))), Body()
    mod = module({"main": b.function([x], f(b, x, (n, 3)))})
    made = LowerAllocTensor()(CallTIRRewrite()(mod))["main"]
    counts = count_calls(made)
    assert counts["relax.memory.alloc_storage"] == counts["relax.memory.alloc_tensor"] == 1
    assert counts["relax.builtin.alloc_tensor"] == 0


def test_ten_thousand_tensors_are_planned():
    x, b = Var("x", tensor((4,))), Body()
    y = x
    for _ in range(10_000):
        y = f(b, y)
    made, _ = plan(b.function([x], y))
    assert len(sizes(made)) == 2


def test_deeply_shared_tuples_cost_nothing():
    x, b = Var("x", tensor((4,))), Body()
    t = b(Tuple((f(b, x),)))
    for _ in range(60):
        t = b(Tuple((t, t)))
    g = t
    for _ in range(60):
        g = b(TupleGetItem(g, 0))
    y = f(b, b(TupleGetItem(g, 0)))
    last = f(b, y)
    assert isinstance(g.struct_info, TupleStructInfo)
    plan(b.function([x], last))


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 5), min_size=1, max_size=2), st.integers(1, 3)),
        min_size=1,
        max_size=25,
    ),
    st.booleans(),
)
def test_no_two_live_tensors_share_a_storage(steps, symbolic):
    """Random DAGs of kernels: storage is shared only by tensors whose lives do not meet."""
    n = tir.Var("n", "int64") if symbolic else 4
    x, b = Var("x", tensor((n,))), Body()
    values, reads = [x], []
    for args, width in steps:
        chosen = [values[max(0, len(values) - 1 - a)] for a in args]
        made = b(call_tir(F, chosen, tensor((n, width))))
        reads.append((made, chosen))
        values.append(made)
    _, storage = plan(b.function([x], values[-1]))
    position = {made: i for i, (made, _) in enumerate(reads)}
    last = dict(position)  # each is written by its own call
    for made, chosen in reads:
        for v in chosen:
            last[v] = position[made]
    for one, s in storage.items():
        for other, t in storage.items():
            if one is not other and s is t:
                a, z = sorted((one, other), key=position.__getitem__)
                assert last[a] < position[z]
    assert set(storage) == {v for v in position if v is not values[-1]}


def test_disabled_planning_gives_the_same_results():
    x, b = Var("x", tensor((4,))), Body()
    y = x
    for _ in range(6):
        y = f(b, y)
    mod = module({"main": b.function([x], y), F: elementwise(lambda a: a + 1.0, 1)})
    for disabled in ([], ["StaticPlanBlockMemory"], ["StaticPlanBlockMemory", "KillAfterLastUse"]):
        vm = build_interpreted(mod, context={"disabled_pass": disabled})
        assert vm["main"](np.zeros(4, "float32")).numpy().tolist() == [6] * 4
