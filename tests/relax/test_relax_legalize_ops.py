"""LegalizeOps, DecomposeOpsForInference and DecomposeOpsForTraining."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm import relax, relay, te  # noqa: F401, relay: with its names known
from relaxvm.base import PassError, StructInfoError, TIRError, VerifyError
from relaxvm.ir import IRModule, Op, Var, assert_structural_equal, walk
from relaxvm.pipeline import get_pipeline, verify_stage
from relaxvm.relax import op as R
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.op import missing, op
from relaxvm.relax.op.lower import elementwise, te_lower
from relaxvm.relax.transform import (
    DecomposeOpsForInference,
    DecomposeOpsForTraining,
    LegalizeOps,
)
from relaxvm.relax.transform.legalize_ops import register_legalize
from relaxvm.runtime import VirtualMachine, cpu
from relaxvm.script import ir as I
from relaxvm.script import relax as RS
from relaxvm.script import tir as T
from relaxvm.tir import PrimFunc

F32 = "float32"
N = Var("n", "int64")


def tensor(*shape, dtype=F32):
    return relax.TensorStructInfo(shape, dtype)


def module(make, *infos, dataflow=True, name="main"):
    """A module whose function gives what `make` makes of its parameters."""
    params = [relax.Var(f"p{i}", info) for i, info in enumerate(infos)]
    builder = relax.BlockBuilder()
    with builder.function(name, params):
        if dataflow:
            with builder.dataflow():
                out = builder.emit_output(make(*params))
        else:
            out = builder.emit(make(*params))
        builder.emit_func_output(out)
    return builder.get()


def called(mod):
    """The short names of the operators that `mod` calls."""
    return sorted(
        n.op.short
        for fn in mod.functions.values()
        if isinstance(fn, relax.Function)
        for n in walk(fn)
        if isinstance(n, relax.Call) and isinstance(n.op, Op)
    )


def kernels(mod):
    return [gv.name_hint for gv, fn in mod.items() if isinstance(fn, PrimFunc)]


def run(mod, *args):
    return VirtualMachine(relax.build(mod), cpu())["main"](*args)


identity = relax.op.op(
    "test.legal_identity",
    numpy=lambda x: x,
    lower=te_lower(lambda x: elementwise(x, lambda v: v)),
    grad=missing("a test"),
    layout=missing("a test"),
)


@identity
def legal_identity(x: relax.Expr):
    """x"""
    return x.struct_info


# -- what it makes ---------------------------------------------------------------------------------


def test_operators_become_calls_of_loop_functions():
    @I.ir_module
    class Before:
        @RS.function
        def main(x: RS.Tensor(("n", 4), "float32"), y: RS.Tensor((4,), "float32")):
            with RS.dataflow():
                lv = RS.add(x, y)
                gv = RS.exp(lv)
                RS.output(gv)
            return gv

    @I.ir_module
    class After:
        @RS.function
        def main(x: RS.Tensor(("n", 4), "float32"), y: RS.Tensor((4,), "float32")):
            n = T.int64()
            cls = After
            with RS.dataflow():
                lv = RS.call_tir(cls.add, (x, y), out_sinfo=RS.Tensor((n, 4), "float32"))
                gv = RS.call_tir(cls.exp, (lv,), out_sinfo=RS.Tensor((n, 4), "float32"))
                RS.output(gv)
            return gv

        @T.prim_func(private=True)
        def add(var_x: T.handle, y: T.Buffer((T.int64(4),), "float32"), var_z: T.handle):
            T.func_attr({"tir.noalias": True})
            n = T.int64()
            x = T.match_buffer(var_x, (n, T.int64(4)), "float32")
            z = T.match_buffer(var_z, (n, T.int64(4)), "float32")
            for i, j in T.grid(n, T.int64(4)):
                with T.block("compute"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    z[vi, vj] = x[vi, vj] + y[vj]

        @T.prim_func(private=True)
        def exp(var_x: T.handle, var_z: T.handle):
            T.func_attr({"tir.noalias": True})
            n = T.int64()
            x = T.match_buffer(var_x, (n, T.int64(4)), "float32")
            z = T.match_buffer(var_z, (n, T.int64(4)), "float32")
            for i, j in T.grid(n, T.int64(4)):
                with T.block("compute"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    z[vi, vj] = T.exp(x[vi, vj])

    assert_structural_equal(LegalizeOps()(Before), After)


def test_what_is_legal_stays_the_same_object():
    mod = LegalizeOps()(module(lambda x: R.exp(x), tensor(4)))
    assert LegalizeOps()(mod) is mod
    assert LegalizeOps()(IRModule()) is not None


def test_equal_operators_share_a_loop_function():
    mod = module(lambda x: R.exp(R.exp(R.exp(x))), tensor(N, 4))
    assert kernels(LegalizeOps()(mod)) == ["exp"]


def test_loop_functions_are_shared_only_where_everything_is_the_same():
    k = Var("n", "int64")

    def make(x, y):
        parts = [
            R.sum(x, axis=0),
            R.sum(x, axis=1),
            R.sum(y, axis=0),
            R.sum(x, axis=0, keepdims=True),
        ]
        parts += [R.add(x, x), R.add(x, 1.0), R.add(x, 2.0), R.add(x, 2.0), R.sum(x, axis=0)]
        return relax.Tuple(parts)

    mod = module(make, tensor(N, 4), tensor(k, 4))
    legal = LegalizeOps()(mod)
    # sum: three attributes' worth (y's is that of x but for the symbol's name); add: with
    # itself, 1.0 and 2.0
    assert len(kernels(legal)) == 6
    x, y = np.arange(12, dtype=F32).reshape(3, 4), np.arange(8, dtype=F32).reshape(2, 4)
    got = [g.numpy() for g in run(mod, x, y)]
    want = [
        x.sum(0),
        x.sum(1),
        y.sum(0),
        x.sum(0, keepdims=True),
        x + x,
        x + 1,
        x + 2,
        x + 2,
        x.sum(0),
    ]
    assert all(np.array_equal(g, w) for g, w in zip(got, want))


def test_what_was_in_no_doubt_is_not_asked_again(monkeypatch):
    asked = []
    softmax = R.nn.softmax.op
    rule = softmax.rule
    mod = module(lambda x: R.nn.softmax(R.nn.softmax(R.nn.softmax(x)), axis=0), tensor(N, 4))
    monkeypatch.setattr(softmax, "rule", lambda x, axis: asked.append(axis) or rule(x, axis=axis))
    LegalizeOps()(mod)
    assert asked == [-1, 0]


def test_what_is_in_doubt_is_checked_by_each_function():
    def make(x, y):
        return R.add(R.add(x, y), R.add(x, y))

    infos = [tensor(N, 4), tensor(Var("m", "int64"), 4)]
    mod = module(make, *infos, name="one")
    mod.update(module(make, *infos, name="two"))
    vm = VirtualMachine(relax.build(mod), cpu())
    x, y = np.ones((3, 4), F32), np.ones((2, 4), F32)
    for name in ("one", "two"):
        assert np.array_equal(vm[name](x, x).numpy(), x * 4)
        with pytest.raises(ValueError, match="broadcast"):
            vm[name](x, y)


def test_variables_and_struct_info_stay():
    before = module(lambda x: R.exp(x), tensor(N, 4))
    after = LegalizeOps()(before)
    old, new = before["main"].body.blocks[0].bindings, after["main"].body.blocks[0].bindings
    assert [b.var for b in old] == [b.var for b in new]
    assert after["main"].ret_struct_info is before["main"].ret_struct_info
    assert before["main"].body.blocks[0].bindings[0].value.op is R.exp.op


def test_spans_stay():
    mod = module(lambda x: R.exp(x), tensor(4))
    span = mod["main"].body.blocks[0].bindings[0].value.span
    assert LegalizeOps()(mod)["main"].body.blocks[0].bindings[0].value.span is span


def test_names_in_the_module_are_not_taken_twice():
    base = module(lambda x: R.exp(x), tensor(4), name="exp")
    after = LegalizeOps()(base)
    assert sorted(gv.name_hint for gv in after) == ["exp", "exp1"]


# -- what is not known -----------------------------------------------------------------------------


def test_a_tensor_of_known_rank_gets_symbols():
    mod = module(lambda x: R.exp(x), relax.TensorStructInfo(None, F32, ndim=2))
    legal = LegalizeOps()(mod)
    assert_well_formed(legal)
    assert called(legal) == ["call_tir"]
    assert any(isinstance(b, relax.MatchCast) for b in legal["main"].body.blocks[0].bindings)
    x = np.random.default_rng(0).normal(size=(3, 5)).astype(F32)
    np.testing.assert_allclose(run(mod, x).numpy(), np.exp(x), 1e-6)


def test_a_tensor_of_unknown_rank_is_left_and_the_build_says_so():
    mod = module(lambda x: R.exp(x), relax.TensorStructInfo(None, F32))
    assert LegalizeOps()(mod) is mod
    with pytest.warns(UserWarning, match="relax.exp stays: the rank or dtype of an argument"):
        LegalizeOps(enable_warning=True)(mod)
    with pytest.raises(
        VerifyError, match=r"relax.exp( may not be called|: the rank of p0 is not known)"
    ):
        relax.build(mod)


def test_branches_and_inner_functions_are_legalised():
    @I.ir_module
    class Mod:
        @RS.function
        def main(c: RS.Tensor((), "bool"), x: RS.Tensor((3,), "float32")) -> RS.Tensor(
            (3,), "float32"
        ):
            if c:
                y = RS.exp(x)
                z = RS.add(y, x)
            else:
                z = RS.negative(x)
            return z

    legal = LegalizeOps()(Mod)
    assert called(legal) == ["call_tir"] * 3
    x = np.array([1, 2, 3], F32)
    assert run(Mod, np.bool_(False), x).numpy().tolist() == [-1, -2, -3]
    np.testing.assert_allclose(run(Mod, np.bool_(True), x).numpy(), np.exp(x) + x, 1e-6)


# -- options ---------------------------------------------------------------------------------------


def test_skipped_operators_stay():
    mod = module(lambda x: R.add(R.exp(x), x), tensor(4))
    assert called(LegalizeOps(skip_ops=["relax.exp"])(mod)) == ["call_tir", "exp"]
    assert called(LegalizeOps(skip_ops=[Op.get("relax.exp"), "relax.add"])(mod)) == ["add", "exp"]


def test_a_custom_rule_is_used_instead():
    def twice(builder, call):
        x = call.args[0]
        return builder.call_te(lambda a: te.compute(a.shape, lambda i: a[i] * 2, "twice"), x,
                               primfunc_name_hint="twice")  # fmt: skip

    mod = module(lambda x: R.exp(x), tensor(4))
    legal = LegalizeOps(customize_legalize_map={"relax.exp": twice})(mod)
    assert kernels(legal) == ["twice"]
    assert run(legal, np.ones(4, F32)).numpy().tolist() == [2.0] * 4


def test_a_custom_rule_may_call_a_packed_function_or_other_operators():
    def packed(builder, call):
        return relax.call_dps_packed("env.exp", call.args, call.struct_info)

    def others(builder, call):
        x = builder.emit(R.add(call.args[0], call.args[0]))
        return R.multiply(x, x)

    mod = module(lambda x: R.exp(x), tensor(4))
    assert called(LegalizeOps(customize_legalize_map={"relax.exp": packed})(mod)) == [
        "call_dps_packed"
    ]
    legal = LegalizeOps(customize_legalize_map={"relax.exp": others})(mod)
    assert sorted(kernels(legal)) == ["add", "multiply"]
    assert run(legal, np.full(4, 3, F32)).numpy().tolist() == [36.0] * 4


def test_rules_that_give_one_another_are_found():
    def back(builder, call):
        return R.log(call.args[0])

    def forth(builder, call):
        return R.exp(call.args[0])

    mod = module(lambda x: R.exp(x), tensor(4))
    with pytest.raises(
        PassError, match=r"still operators to legalise: relax\.(exp|log); do their rules"
    ):
        LegalizeOps(customize_legalize_map={"relax.exp": back, "relax.log": forth})(mod)


def test_an_error_in_a_rule_names_the_operator():
    def fails(builder, call):
        raise ValueError("no")

    mod = module(lambda x: R.exp(x), tensor(4))
    with pytest.raises(ValueError, match="no") as found:
        LegalizeOps(customize_legalize_map={"relax.exp": fails})(mod)
    assert any("while legalising relax.exp" in note for note in found.value.__notes__)


def test_a_rule_that_gives_something_else_is_told_of():
    mod = module(R.nn.relu, tensor(2, 3))
    for rule, got in (
        (lambda b, call: R.reshape(call.args[0], (3, 2)), r"R.Tensor\(\(3, 2\)"),
        (lambda b, call: R.astype(call.args[0], "float16"), "float16"),
        (lambda b, call: relax.Tuple((call.args[0],)), "R.Tuple"),
        (lambda b, call: 3, "R.Prim"),
    ):
        with pytest.raises(PassError, match=rf"the rule of relax.nn.relu gave .*{got}.*wanted"):
            LegalizeOps({"relax.nn.relu": rule})(mod)


def test_a_rule_may_know_more_or_less_of_the_result():
    x = relax.TensorStructInfo((N, 3), F32)
    mod = LegalizeOps({"relax.nn.relu": lambda b, c: R.call_dps_packed("env.f", c.args, x)})(
        module(R.nn.relu, x)
    )
    assert called(mod) == ["call_dps_packed"]
    loose = relax.TensorStructInfo(None, F32, ndim=2)
    mod = LegalizeOps(
        {"relax.nn.relu": lambda b, c: R.call_pure_packed("env.f", *c.args, sinfo_args=loose)}
    )(module(R.nn.relu, x))
    assert called(mod) == ["call_pure_packed"]


def test_options_are_checked():
    mod = module(R.exp, tensor(2))
    with pytest.raises(PassError, match="customize_legalize_map: wanted operator name -> .*list"):
        LegalizeOps(["relax.exp"])(mod)
    with pytest.raises(PassError, match="skip_ops: wanted operator names, got int"):
        LegalizeOps(skip_ops=3)(mod)
    mod = module(lambda x: R.exp(x), tensor(4))
    for options, kind, message in (
        ({"skip_ops": ["relax.exq"]}, TIRError, "did you mean relax.exp"),
        ({"customize_legalize_map": {"relax.exp": 3}}, PassError, r"a function \(builder, call\)"),
        (
            {"customize_legalize_map": {"exp": lambda b, c: c}},
            TIRError,
            "no operation is named 'exp'",
        ),
        ({"skip_ops": [3]}, PassError, "named by a string such as 'relax.add'"),
    ):
        with pytest.raises(kind, match=message):
            LegalizeOps(**options)(mod)


def test_register_legalize_replaces_the_rule_of_an_operator():
    record = legal_identity.op
    old = record.lower
    try:

        @register_legalize("relax.test.legal_identity")
        def rule(builder, call):
            return R.negative(call.args[0])

        assert record.lower is rule
        mod = module(lambda x: legal_identity(x), tensor(2))
        assert kernels(LegalizeOps()(mod)) == ["negative"]
    finally:
        register_legalize("relax.test.legal_identity", old)
    assert kernels(LegalizeOps()(module(lambda x: legal_identity(x), tensor(2)))) == [
        "legal_identity"
    ]
    with pytest.raises(PassError, match="no operator of the graph language"):
        register_legalize("tir.exp", old)


def test_the_zero_pipeline_ends_legal():
    mod = get_pipeline("zero")(module(lambda x: R.exp(x) + 1.0, tensor(N, 4)))
    verify_stage(mod, "LEGAL")
    assert called(mod) == ["call_tir"] * 2


def test_a_function_of_3000_operators_is_legalised_without_deep_recursion():
    def chain(count):
        def make(x):
            for _ in range(count):
                x = R.exp(x)
            return x

        return module(make, tensor(4))

    legal = LegalizeOps()(chain(3000))
    assert len(called(legal)) == 3000


# -- decomposition ---------------------------------------------------------------------------------


def _decompose(builder, call, training):
    x = call.args[0]
    if call.attrs["keep"]:
        return None
    half = builder.emit(R.multiply(x, 0.5))
    return R.add(half, half) if training else half


@op(
    "test.composite",
    numpy=lambda x, keep: x,
    lower=missing("decomposed"),
    grad=missing("a test"),
    layout=missing("a test"),
    decompose=_decompose,
)
def composite(x: relax.Expr, keep: bool = False):
    """x, or half of it"""
    return x.struct_info


def test_decomposition_differs_in_training():
    mod = module(lambda x: R.exp(composite(x)), tensor(N, 4))
    assert called(DecomposeOpsForInference()(mod)) == ["exp", "multiply"]
    assert called(DecomposeOpsForTraining()(mod)) == ["add", "exp", "multiply"]
    for made in (DecomposeOpsForInference()(mod), DecomposeOpsForTraining()(mod)):
        assert_well_formed(made)


def test_a_rule_may_keep_the_call():
    mod = module(lambda x: composite(x, keep=True), tensor(4))
    assert DecomposeOpsForInference()(mod) is mod
    plain = module(lambda x: R.exp(x), tensor(4))
    assert DecomposeOpsForTraining()(plain) is plain


def test_one_function_can_be_chosen():
    a = module(lambda x: composite(x), tensor(4), name="a")
    b = module(lambda x: composite(x), tensor(4), name="b")
    both = IRModule({**dict(a.functions), **dict(b.functions)})
    made = DecomposeOpsForInference(func_name="a")(both)
    assert called(made) == ["multiply", "test.composite"]
    legal = LegalizeOps()(module(lambda x: R.exp(x), tensor(4)))
    with pytest.raises(PassError, match="exp is no graph function but a PrimFunc"):
        DecomposeOpsForInference(func_name="exp")(legal)


# -- operators in script ---------------------------------------------------------------------------


def test_python_operators_in_script():
    @I.ir_module
    class Mod:
        @RS.function
        def main(x: RS.Tensor(("n", 4), "float32"), y: RS.Tensor((4,), "float32")):
            with RS.dataflow():
                z = -(x * y + 2.0) / RS.exp(y) - x**2
                RS.output(z)
            return z

    x = np.random.default_rng(1).normal(size=(2, 4)).astype(F32)
    y = np.arange(4).astype(F32)
    np.testing.assert_allclose(run(Mod, x, y).numpy(), -(x * y + 2) / np.exp(y) - x**2, 1e-5, 1e-6)


def test_a_mistake_in_script_points_at_its_line():
    with pytest.raises(Exception, match=r"add: the dtypes differ") as found:

        @RS.function
        def main(x: RS.Tensor((4,), "float32"), y: RS.Tensor((4,), "int32")):
            z = RS.add(x, y)
            return z

    assert "RS.add(x, y)" in str(found.value)
    assert not isinstance(found.value, StructInfoError) or "test_relax_legalize" in str(found.value)


def test_concatenations_of_like_tensors_are_one_loop_function():
    b = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorStructInfo((2,), "float32")) for name in "xy")
    with b.function("main", [x, y]):
        made = [
            b.emit(relax.op.concat(parts))
            for parts in ((x, y), (y, x), (x, x), (x, y, x), (b.emit(relax.Tuple([y, y]))[0], x))
        ]
        b.emit_func_output(relax.Tuple(made))
    legal = LegalizeOps()(b.get())
    assert [gv.name_hint for gv in legal if gv.name_hint != "main"] == ["concat", "concat1"]
    vm = VirtualMachine(relax.build(legal, "llvm", exec_mode="bytecode"), cpu())
    got = vm["main"](np.array([1, 2], "float32"), np.array([3, 4], "float32"))
    assert [v.numpy().tolist() for v in got] == [
        [1, 2, 3, 4],
        [3, 4, 1, 2],
        [1, 2, 1, 2],
        [1, 2, 3, 4, 1, 2],
        [3, 4, 1, 2],
    ]
