"""Analyses: variables, symbols, purity, recursion, use chains."""

from __future__ import annotations

import pytest

from relaxvm import relax
from relaxvm.base import VerifyError
from relaxvm.ir import GlobalVar, IRModule, PassContext, Var
from relaxvm.ir.transform import Sequential
from relaxvm.relax import analysis
from relaxvm.script import from_source
from relaxvm.tir import PrimFunc

n, m = Var("n", "int64"), Var("m", "int64")
Tensor, Tuple, Shape, Func = (
    relax.TensorStructInfo,
    relax.TupleStructInfo,
    relax.ShapeStructInfo,
    relax.FuncStructInfo,
)
OUT = Tensor((n, 4))


def call(*args, out=OUT):
    return relax.call_dps_packed("env.f", args, out)


@pytest.fixture
def parts():
    x, c = relax.Var("x", OUT), relax.Var("c", Tensor((), "bool"))
    free = relax.Var("free", OUT)
    lv, y, t, z = (
        relax.DataflowVar("lv", OUT),
        relax.Var("y", OUT),
        relax.Var("t", OUT),
        relax.Var("z", OUT),
    )
    flow = relax.DataflowBlock([relax.VarBinding(lv, call(x)), relax.VarBinding(y, call(lv, x))])
    branch = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(t, call(free))])], t)
    plain = relax.BindingBlock([relax.VarBinding(z, relax.If(c, branch, relax.SeqExpr([], y)))])
    fn = relax.Function([x, c], relax.SeqExpr([flow, plain], z))
    return {"fn": fn, "flow": flow, "names": [x, c, lv, y, free, t, z]}


def names(variables):
    return {v.name_hint for v in variables}


def test_variables(parts):
    fn = parts["fn"]
    assert names(analysis.all_vars(fn)) == {"x", "c", "lv", "y", "free", "t", "z"}
    assert names(analysis.bound_vars(fn)) == {"x", "c", "lv", "y", "t", "z"}
    assert names(analysis.free_vars(fn)) == {"free"}
    assert names(analysis.used_vars(fn)) == {"x", "lv", "y", "free", "t", "z", "c"}
    unused = relax.Function([relax.Var("q", OUT)], relax.Tuple(()))
    assert analysis.used_vars(unused) == []


def test_a_variable_used_as_a_shape_is_used():
    s = relax.Var("s", Shape(ndim=2))
    y = relax.Var("y", Tensor(s))
    assert names(analysis.used_vars(relax.Function([s, y], y))) == {"s", "y"}
    assert analysis.free_vars(relax.Function([y], y)) == [s]


def test_bindings_by_variable_and_name(parts):
    values = analysis.get_var2val(parts["fn"])
    assert names(values) == {"lv", "y", "t", "z"}
    assert isinstance(next(v for k, v in values.items() if k.name_hint == "z"), relax.If)
    by_name = analysis.name_to_binding(parts["fn"])
    assert [b.var.name_hint for b in by_name["y"]] == ["y"]


def test_use_chain_of_a_block(parts):
    chain = {
        k.name_hint: [v.name_hint for v in users]
        for k, users in analysis.udchain(parts["flow"]).items()
    }
    assert chain == {"x": ["lv", "y"], "lv": ["y"], "y": []}


def test_post_order_visits_operands_first(parts):
    seen = []
    analysis.post_order_visit(parts["fn"], seen.append)
    x = parts["names"][0]
    calls = [i for i, e in enumerate(seen) if isinstance(e, relax.Call)]
    assert seen.index(x) < calls[0]
    assert seen[-1] is parts["fn"]
    assert len({id(e) for e in seen}) == len(seen)


def test_symbols():
    x, y = relax.Var("x", Tensor((n,))), relax.Var("y", Tensor((m * 2,)))
    k = Var("k", "int64")
    cast = relax.MatchCast(relax.Var("z", Tensor((k,))), x, Tensor((k,)))
    fn = relax.Function([x, y], relax.SeqExpr([relax.BindingBlock([cast])], cast.var))
    assert analysis.defined_symbolic_vars(fn) == [n, k]
    assert analysis.free_symbolic_vars(fn) == [m]
    signature = relax.Function(
        [relax.Var("f", Func([Tensor((m,))], Tensor((m, k))))], relax.Tuple(())
    )
    assert analysis.free_symbolic_vars(signature) == [k]


def test_global_vars_in_order():
    f, g = GlobalVar("f", Func([OUT], OUT)), GlobalVar("g", Func([OUT], OUT))
    x = relax.Var("x", OUT)
    assert analysis.all_global_vars(relax.Function([x], g(f(x)))) in ([f, g], [g, f])
    assert analysis.all_global_vars(relax.Function([x], x)) == []


@pytest.mark.parametrize(
    ("build", "impure"),
    [
        (lambda x: call(x), False),
        (lambda x: relax.call_packed("env.f", x, sinfo_args=OUT), True),
        (lambda x: relax.call_pure_packed("env.f", x, sinfo_args=OUT), False),
        (lambda x: relax.op.print(x), True),
        (lambda x: GlobalVar("g", Func([OUT], OUT, False))(x), True),
        (lambda x: GlobalVar("g", Func([OUT], OUT, True))(x), False),
        (lambda x: GlobalVar("main", Func([OUT], OUT, False))(x), False),
        (lambda x: relax.Var("f", relax.ObjectStructInfo())(x), True),
        (lambda x: relax.Tuple((call(relax.call_packed("env.f", x)),)), True),
        (lambda x: relax.Function([], relax.call_packed("env.f", x), is_pure=False), False),
    ],
)
def test_impure_calls_are_found_anywhere(build, impure):
    x = relax.Var("x", OUT)
    fn = relax.Function([x], build(x))
    assert analysis.contains_impure_call(fn, own_name="main") is impure


def test_recursion_groups():
    def chain(*callees):
        x = relax.Var("x", OUT)
        value = x
        for name in callees:
            value = GlobalVar(name, Func([OUT], OUT))(value)
        return relax.Function([x], value)

    mod = IRModule(
        {
            "a": chain("b"),
            "b": chain("c", "leaf"),
            "c": chain("a"),
            "leaf": chain(),
            "self": chain("self", "a"),
            "top": chain("self"),
        }
    )
    groups = [[gv.name_hint for gv in group] for group in analysis.detect_recursion(mod)]
    assert groups == [["a", "b", "c"], ["self"]]


def test_recursion_of_a_long_cycle_does_not_overflow():
    size = 3000
    mod = IRModule()
    for i in range(size):
        x = relax.Var("x", OUT)
        mod[f"f{i}"] = relax.Function([x], GlobalVar(f"f{(i + 1) % size}", Func([OUT], OUT))(x))
    assert [len(g) for g in analysis.detect_recursion(mod)] == [size]


def test_compile_time_values():
    x, w = relax.Var("x", OUT), relax.Var("w", Tensor((8,)))
    a, b, c, d = (relax.Var(k, Tensor((8,))) for k in "abcd")
    block = relax.BindingBlock(
        [
            relax.VarBinding(a, call(w, out=Tensor((8,)))),
            relax.VarBinding(b, call(a, x, out=Tensor((8,)))),
            relax.VarBinding(c, relax.call_packed("env.f", a, sinfo_args=Tensor((8,)))),
            relax.VarBinding(d, call(a, a, out=Tensor((8,)))),
        ]
    )
    fn = relax.Function([x, w], relax.SeqExpr([block], d), is_pure=False)
    assert analysis.computable_at_compile_time(fn) == []
    late = fn.with_attr("num_input", 1)
    assert [v.name_hint for v in analysis.computable_at_compile_time(late)] == ["w", "a", "d"]


# -- memory ---------------------------------------------------------------------------------------


def memory_module():
    a, b = relax.Var("a", Tensor((4, 8))), relax.Var("b", Tensor((n, 8)))
    builder = relax.BlockBuilder()
    with builder.function("main", [a, b]):
        for x in (a, b):
            y = builder.emit(relax.op.exp(relax.op.sin(relax.op.exp(x))))
        builder.emit_func_output(y)
    return builder.get()


def test_memory_is_estimated_before_and_after_planning():
    mod = memory_module()
    before = analysis.memory_estimates(mod)["main"]
    assert (before.tensors, before.tensor_bytes, before.dynamic_tensors) == (3, 3 * 128, 3)
    assert not before.planned
    with PassContext(opt_level=0):  # so that what is not used stays
        planned = Sequential(
            [
                relax.transform.LegalizeOps(),
                relax.transform.ToNonDataflow(),
                relax.transform.RemovePurityChecking(),
                relax.transform.CallTIRRewrite(),
                relax.transform.StaticPlanBlockMemory(),
            ]
        )(mod)
    after = analysis.memory_estimates(planned)["main"]
    assert after.planned
    assert (after.tensors, after.tensor_bytes) == (before.tensors, before.tensor_bytes)
    assert after.storages < after.tensors and after.storage_bytes < after.tensor_bytes
    assert after.dynamic_storages < after.dynamic_tensors == 3


def test_the_memory_estimate_is_text_as_in_tvm():
    text = analysis.estimate_memory_usage(memory_module())
    assert text.splitlines()[:3] == [
        "Memory usage estimation:",
        "- Function main:",
        " * Without memory planning, there are 3 constant-size memory allocation(s) with total "
        "size 3.576e-07 GB and 3 dynamic-size memory allocation(s).",
    ]
    with pytest.raises(VerifyError, match="wanted an IRModule, got int"):
        analysis.estimate_memory_usage(3)


# -- written values -------------------------------------------------------------------------------


def test_values_that_may_be_written_are_found_with_what_they_share_memory_with():
    x, y, t, u, p = (relax.Var(k, OUT) for k in "xytup")
    t = relax.Var("t", Tuple((OUT, OUT)))
    block = relax.BindingBlock(
        [
            relax.VarBinding(y, call(x)),
            relax.VarBinding(t, relax.Tuple((y, x))),
            relax.VarBinding(u, relax.TupleGetItem(t, 0)),
            relax.VarBinding(p, relax.call_packed("env.f", u, sinfo_args=OUT)),
        ]
    )
    fn = relax.Function([x], relax.SeqExpr([block], p), is_pure=False)
    assert names(analysis.maybe_written_vars(fn)) == {"x", "y", "t", "u", "p"}
    quiet = relax.BindingBlock([*block.bindings[:3], relax.VarBinding(p, call(u))])
    assert analysis.maybe_written_vars(relax.Function([x], relax.SeqExpr([quiet], p))) == set()


def kernel_of(make, *shape):
    """The loop function of one operator."""
    x = relax.Var("x", Tensor(shape, "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(make(x)))
    functions = relax.transform.LegalizeOps()(bb.get()).functions.values()
    return next(f for f in functions if isinstance(f, PrimFunc))


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda x: relax.op.reshape(x, (4, 6)), (2, 3, 4)),
        (lambda x: relax.op.reshape(x, (2, 3, 4)), (24,)),
        (lambda x: relax.op.expand_dims(x, [0, 2]), (3, 4)),
        (lambda x: relax.op.squeeze(x, [1]), (3, 1, 4)),
        (relax.op.flatten, (2, 3, 4)),
        (lambda x: relax.op.reshape(x, (n * 4,)), (n, 4)),
        (lambda x: relax.op.reshape(x, (n, 2, 2)), (n, 4)),
        (lambda x: relax.op.permute_dims(x, [1, 0]), (1, 4)),
    ],
)
def test_reshapes_have_the_reshape_pattern(make, shape):
    assert analysis.has_reshape_pattern(kernel_of(make, *shape))


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda x: relax.op.permute_dims(x, [1, 0]), (3, 4)),
        (lambda x: relax.op.flip(x, 0), (4,)),
        (relax.op.nn.relu, (3, 4)),
        (lambda x: relax.op.strided_slice(x, [0], [0], [2]), (4, 3)),
        (lambda x: relax.op.broadcast_to(x, (2, 3)), (1, 3)),
        (lambda x: relax.op.sum(x, 0), (1, 3)),
        (lambda x: relax.op.astype(x, "float16"), (3,)),
    ],
)
def test_other_operators_do_not(make, shape):
    assert not analysis.has_reshape_pattern(kernel_of(make, *shape))


COPY = """
@T.prim_func
def f(A: T.Buffer((2, 6), "float32"), B: T.Buffer((3, 4), "float32")):
    for i, j in T.grid({0}, {1}):
        with T.block("b"):
            {2}
            vi, vj = T.axis.remap("SS", [i, j])
            {3}
"""
PUT = "B[(vi * 6 + vj) // 4, (vi * 6 + vj) % 4] = A[vi, vj]"
GET = "B[vi, vj] = A[(vi * 4 + vj) // 6, (vi * 4 + vj) % 6]"


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        (COPY.format(2, 6, "", PUT), True),
        (COPY.format(3, 4, "", GET), True),
        # Half of the elements; a shift of one; not everywhere; the axes of the other side.
        (COPY.format(1, 6, "", PUT), False),
        (COPY.format(3, 4, "", GET.replace("vj) //", "vj + 1) //")), False),
        (COPY.format(3, 4, "T.where(i < 2)", GET), False),
        (COPY.format(2, 6, "", GET), False),
    ],
)
def test_the_pattern_is_of_loops_over_all_elements(text, holds):
    assert analysis.has_reshape_pattern(from_source(text)) is holds


def test_extents_are_what_cannot_be_negative():
    info = Tuple([Tensor((n, 4, n - m)), Shape([m, n]), relax.PrimStructInfo(value=n - 7)])
    assert analysis.collect_non_negative_expressions(info) == [n, n - m, m]
    assert analysis.collect_non_negative_expressions(Tensor(ndim=2)) == []


def test_functions_that_are_called_and_those_that_are_handed_on():
    mod = from_source("""
@I.ir_module
class Module:
    @T.prim_func
    def kernel(A: T.Buffer((3,), "float32"), B: T.Buffer((3,), "float32")):
        B[0] = A[0]

    @R.function
    def other(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        return x

    @R.function
    def main(x: R.Tensor((3,), "float32")):
        y = R.call_tir(Module.kernel, (x,), R.Tensor((3,), "float32"))
        return Module.other(Module.other(y))
""")
    names = [gv.name_hint for gv in analysis.called_global_vars(mod["main"])]
    assert names == ["other"]
    assert [gv.name_hint for gv in analysis.all_global_vars(mod["main"])] == ["kernel", "other"]
