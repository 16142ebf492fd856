"""Visitors and mutators as tutorials write them see operators by Relay's names: before types are
found, after that, and in text that was parsed.
"""

from __future__ import annotations

import numpy as np
import pytest
from random_graphs import assert_close, random_graph, run

import relaxvm as tvm
from relaxvm import relay
from relaxvm.ir import walk

FORMS = {
    "built": lambda fn: fn,
    "typed": relay.testing.run_infer_type,
    "parsed": lambda fn: relay.parse(tvm.IRModule.from_expr(fn).astext())["main"],
    "in graph form": lambda fn: relay.testing.run_opt_pass(fn, relay.transform.ToGraphNormalForm()),
    "with lets": lambda fn: relay.testing.run_opt_pass(fn, relay.transform.ToANormalForm()),
}
RNG = np.random.default_rng(0)


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


def array(*shape):
    return RNG.standard_normal(shape).astype("float32")


def conv_net():
    """Convolution, bias, ReLU, flat, dense, dropout."""
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    y = relay.nn.conv2d(x, w, kernel_size=3, channels=4, padding=1, strides=2)
    y = relay.nn.relu(relay.nn.bias_add(y, relay.const(np.arange(4), "float32")))
    weight = relay.const(np.ones((5, 64)) / 64, "float32")
    return relay.Function(
        [x, w], relay.nn.dropout(relay.nn.dense(relay.nn.batch_flatten(y), weight, units=5), 0.3)
    )


ARGUMENTS = [array(1, 3, 8, 8), array(4, 3, 3, 3)]
NAMES = ["nn.conv2d", "nn.bias_add", "nn.relu", "nn.batch_flatten", "nn.dense", "nn.dropout"]


def value(fn, arguments):
    """What a function gives, after it went through a module and its types were found."""
    return run(relay.transform.InferType()(tvm.IRModule.from_expr(fn)), arguments)


def operators(fn):
    counts = {}

    def visit(expr):
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            counts[expr.op.name] = counts.get(expr.op.name, 0) + 1

    relay.analysis.post_order_visit(fn, visit)
    return counts


def test_operators_are_counted(form):
    fn = form(conv_net())
    assert list(operators(fn)) == NAMES
    assert relay.analysis.list_op_freqs(fn) == dict.fromkeys(NAMES, 1)
    assert relay.analysis.list_op_freqs(tvm.IRModule.from_expr(fn)) == dict.fromkeys(NAMES, 1)
    seen = []
    relay.analysis.post_order_visit(fn, seen.append)
    assert seen[-1] is fn and seen[:2] == list(fn.params)
    # As in TVM, the operator of a call comes before its arguments.
    assert {op.name for op in seen if isinstance(op, tvm.ir.Op)} == set(NAMES)


def test_layers_are_collected_with_their_attributes(form):
    class Layers(relay.ExprVisitor):
        def __init__(self):
            super().__init__()
            self.found = []

        def visit_call(self, call):
            super().visit_call(call)
            attrs = call.attrs
            if call.op == relay.op.get("nn.conv2d"):
                kernel = [int(k) for k in attrs.kernel_size]
                self.found.append((kernel, int(attrs.channels), list(attrs.strides)))
                self.found.append((list(attrs.padding), attrs.data_layout, int(attrs.groups)))
                self.found.append([int(n) for n in call.args[1].checked_type.shape])
            elif call.op.name == "nn.dense":
                self.found.append((int(attrs.units), isinstance(call.args[1], relay.Constant)))
            elif call.op.name == "nn.dropout":
                self.found.append(attrs["rate"])

    layers = Layers()
    layers.visit(form(conv_net()))
    assert layers.found == [
        ([3, 3], 4, [2, 2]),
        ([1, 1, 1, 1], "NCHW", 1),
        [4, 3, 3, 3],
        (5, True),
        pytest.approx(0.3),
    ]


class ReluToTanh(relay.ExprMutator):
    def visit_call(self, call):
        call = super().visit_call(call)
        if call.op == relay.op.get("nn.relu"):
            return relay.Call(relay.op.get("tanh"), call.args)
        return call


def test_relu_is_replaced(form):
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(4, 3))
    fn = form(relay.Function([x, y], relay.nn.relu(relay.nn.dense(relay.nn.relu(x), y))))
    new = ReluToTanh().visit(fn)
    assert operators(new) == {"tanh": 2, "nn.dense": 1}
    a, b = array(2, 3), array(4, 3)
    np.testing.assert_allclose(value(new, [a, b]), np.tanh(np.tanh(a) @ b.T), rtol=1e-5)
    assert operators(fn) == {"nn.relu": 2, "nn.dense": 1}


@pytest.mark.parametrize("form", [FORMS[name] for name in FORMS if name != "with lets"])
def test_what_a_method_returns_is_seen_as_relay_has_it(form):
    class Twice(relay.ExprMutator):
        seen = ()

        def visit_call(self, call):
            call = super().visit_call(call)
            if call.op.name == "nn.relu":
                return relay.nn.dense(call.args[0], relay.const(np.eye(3), "float32"))
            if call.op.name == "exp":
                self.seen = (call.args[0].op.name, call.args[0].args[0])
                return relay.nn.relu(call.args[0])
            return call

    x = relay.var("x", shape=(2, 3))
    mutator, a = Twice(), array(2, 3)
    new = mutator.visit(form(relay.Function([x], relay.exp(relay.nn.relu(x)))))
    assert mutator.seen == ("nn.dense", new.params[0])
    np.testing.assert_allclose(value(new, [a]), np.maximum(a, 0), rtol=1e-6)


def test_multiplication_by_one_is_folded(form):
    class FoldOnes(relay.ExprMutator):
        def visit_call(self, call):
            call = super().visit_call(call)
            if isinstance(call.op, tvm.ir.Op) and call.op.name == "multiply":
                for one, other in (call.args, reversed(call.args)):
                    if isinstance(one, relay.Constant) and (one.data.numpy() == 1).all():
                        return other
            return call

    x = relay.var("x", shape=(2, 3))
    body = relay.multiply(relay.const(1.0), relay.multiply(relay.exp(x), relay.const(1.0)))
    new = FoldOnes().visit(form(relay.Function([x], body * relay.const(2.0))))
    assert operators(new) == {"exp": 1, "multiply": 1}


def test_constants_are_replaced_by_a_pass(form):
    @relay.transform.function_pass(opt_level=1)
    class Scale:
        def __init__(self, multiplier):
            self.multiplier = multiplier

        def transform_function(self, func, mod, ctx):
            outer = self

            class ReplaceConstant(relay.ExprMutator):
                def visit_constant(self, constant):
                    return relay.multiply(outer.multiplier, constant)

            return ReplaceConstant().visit(func)

    x, a = relay.var("x", shape=(1, 2)), array(1, 2)
    weight, bias = array(4, 2), array(4)
    dense = relay.nn.dense(x, relay.const(weight))
    fn = form(relay.Function([x], relay.nn.bias_add(dense, relay.const(bias))))
    new = Scale(relay.const(3, "float32"))(tvm.IRModule.from_expr(fn))
    assert operators(new["main"]) == {"multiply": 2, "nn.dense": 1, "nn.bias_add": 1}
    assert_close(run(relay.transform.InferType()(new), [a]), 3 * (a @ weight.T) + 3 * bias)


def test_variables_are_renamed(form):
    class Rename(relay.ExprMutator):
        def visit_var(self, var):
            return relay.Var(f"{var.name_hint}_new", var.type_annotation)

    new = Rename().visit(form(conv_net()))
    assert [p.name_hint for p in new.params] == ["x_new", "w_new"]
    assert relay.analysis.free_vars(new) == []
    assert_close(value(new, ARGUMENTS), value(conv_net(), ARGUMENTS))


def test_dense_becomes_batch_matmul(form):
    class ToBatch(relay.ExprMutator):
        def visit_call(self, call):
            if call.op == relay.op.get("nn.dense"):
                data, weight = (relay.expand_dims(self.visit(a), 0) for a in call.args)
                return relay.squeeze(relay.nn.batch_matmul(data, weight), [0])
            return super().visit_call(call)

    new = ToBatch().visit(form(conv_net()))
    assert "nn.dense" not in operators(new) and operators(new)["nn.batch_matmul"] == 1
    assert_close(value(new, ARGUMENTS), value(conv_net(), ARGUMENTS))


def test_casts_are_put_around_products(form):
    class Half(relay.ExprMutator):
        def visit_call(self, call):
            call = super().visit_call(call)
            if call.op.name not in ("nn.conv2d", "nn.dense"):
                return call
            args = [relay.cast(a, "float16") for a in call.args]
            return relay.cast(relay.Call(call.op, args, call.attrs), "float32")

    new = Half().visit(form(conv_net()))
    assert operators(new)["cast"] == 6
    got, wanted = (np.asarray(value(f, ARGUMENTS)) for f in (new, conv_net()))
    np.testing.assert_allclose(got, wanted, rtol=2e-2, atol=2e-2)


def test_dropout_is_removed(form):
    class NoDropout(relay.ExprMutator):
        def visit_tuple_getitem(self, item):
            call = item.tuple_value
            if isinstance(call, relay.Call) and call.op == relay.op.get("nn.dropout"):
                return self.visit(call.args[0])
            return super().visit_tuple_getitem(item)

    new = NoDropout().visit(FORMS["typed"](conv_net()))
    assert list(operators(new)) == NAMES[:-1]
    assert_close(value(new, ARGUMENTS), value(conv_net(), ARGUMENTS))


def test_branches_and_lets_are_entered(form):
    c, x, a = relay.var("c", shape=(), dtype="bool"), relay.var("x", shape=(2,)), relay.var("a")
    shared = relay.exp(x)
    choice = relay.If(c, relay.nn.relu(shared), relay.nn.relu(relay.negative(shared)))
    fn = form(relay.Function([c, x], relay.Let(a, relay.nn.relu(choice), relay.add(a, shared))))
    assert operators(fn) == {"exp": 1, "nn.relu": 3, "negative": 1, "add": 1}
    new = ReluToTanh().visit(fn)
    assert operators(new) == {"exp": 1, "tanh": 3, "negative": 1, "add": 1}
    v = array(2)
    for chosen in (True, False):
        inner = np.tanh(np.exp(v) if chosen else -np.exp(v))
        assert_close(value(new, [np.bool_(chosen), v]), np.tanh(inner) + np.exp(v))


def test_a_let_takes_the_type_of_its_new_value():
    class Narrow(relay.ExprMutator):
        def visit_call(self, call):
            call = super().visit_call(call)
            return relay.cast(call, "float16") if call.op.name == "exp" else call

    x, a = relay.var("x", shape=(2,)), relay.var("a", shape=(2,))
    fn = relay.Function([x], relay.Let(a, relay.exp(x), relay.cast(a, "float64")))
    new = relay.testing.run_infer_type(Narrow().visit(relay.testing.run_infer_type(fn)))
    assert "float16" in str(new) and new.ret_type.dtype == "float64"


def test_inner_functions_and_calls_of_functions_are_entered(form):
    mod, x = tvm.IRModule(), relay.var("x", shape=(2,))
    mod["g"] = relay.Function([x], relay.nn.relu(x))
    y, f = relay.var("y", shape=(2,)), relay.Var("f")
    inner = relay.Function([y], relay.nn.relu(y))
    z = relay.var("z", shape=(2,))
    body = relay.Let(f, inner, relay.add(relay.Call(f, [z]), relay.Call(inner, [z])))
    fn = relay.testing.run_infer_type(relay.Function([z], body))
    new = ReluToTanh().visit(form(fn))
    assert "nn.relu" not in operators(new) and "tanh" in operators(new)
    v = array(2)
    assert_close(value(new, [v]), 2 * np.tanh(v))


def test_what_has_effects_stays_in_its_place():
    source = """
    from tvm.script import ir as I, relax as R
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32")):
            y = R.nn.relu(x)
            _ = R.print(y, format="{}")
            z = R.nn.relu(y)
            return z
    """
    mod = tvm.script.from_source(source)
    new = ReluToTanh().visit(mod["main"])
    script = relay.testing.run_infer_type(new).script()
    assert script.index("R.tanh") < script.index("R.print") < script.rindex("R.tanh")
    assert script.count("R.tanh") == 2


def test_what_is_left_alone_is_the_same_object():
    x = relay.var("x", shape=(2, 3))
    kept = relay.nn.dense(x, relay.const(np.eye(3), "float32"))
    assert relay.ExprMutator().visit(kept) is kept
    new = ReluToTanh().visit(relay.add(relay.nn.relu(x), kept))
    assert new.args[1] is kept and new.args[0].op.name == "relax.tanh"
    typed = relay.testing.run_infer_type(relay.Function([x], kept))
    assert relay.ExprMutator().visit(typed) is typed


@pytest.mark.parametrize("seed", range(24))
def test_mutators_keep_the_meaning_of_random_graphs(seed):
    class Rebuild(relay.ExprMutator):
        """Everything anew."""

        def visit_call(self, call):
            args = [self.visit(a) for a in call.args]
            return relay.Call(call.op, args, call.attrs)

        def visit_constant(self, constant):
            return relay.const(constant.data.numpy())

    graph = random_graph(seed)
    for form in (FORMS["built"], FORMS["typed"], FORMS["with lets"]):
        new = Rebuild().visit(form(graph.function))
        if form is not FORMS["built"]:
            assert all(n.op.name.startswith("relax.") for n in calls_of(new))
        assert_close(run(tvm.IRModule.from_expr(new), graph.arguments), graph.expected)


def calls_of(fn):
    """The calls of operators that stand in the graph itself."""
    return [n for n in walk(fn) if isinstance(n, relay.Call) and isinstance(n.op, tvm.ir.Op)]


def test_deep_graphs_are_seen_in_a_moment():
    x = y = relay.var("x", shape=(2,))
    for _ in range(5_000):
        y = relay.nn.relu(y)
    for fn in (relay.Function([x], y), relay.testing.run_infer_type(relay.Function([x], y))):
        assert relay.analysis.list_op_freqs(fn) == {"nn.relu": 5_000}


def test_calls_are_made_again_of_all_that_they_hold():
    class Again(relay.ExprMutator):
        def visit_call(self, call):
            args = [self.visit(a) for a in call.args]
            return relay.Call(self.visit(call.op), args, call.attrs, call.type_args, call.span)

    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    fn = relay.Function([x, w], relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1))))
    tvm.ir.assert_structural_equal(Again().visit(fn), fn)
