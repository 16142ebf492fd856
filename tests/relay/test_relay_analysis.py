"""relay.analysis, Relay's visitors and mutators, relay.testing."""

from __future__ import annotations

import numpy as np
import pytest
from random_graphs import assert_close, random_graph, run

import relaxvm as tvm
from relaxvm import relax, relay
from relaxvm.base import VerifyError
from relaxvm.relax.interp import Evaluator


def conv_net():
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    y = relay.nn.relu(relay.nn.conv2d(x, w, padding=1))
    return relay.Function(
        [x, w], relay.nn.dense(relay.nn.batch_flatten(y), relay.const(np.ones((5, 256), "float32")))
    )


def test_free_variables_are_in_the_order_in_which_they_are_read():
    x, weights = relay.var("x", shape=(1, 4)), [relay.var(f"w{i}", shape=(4, 4)) for i in range(3)]
    y = x
    for w in weights:  # y is read twice: by the layer and around it
        y = relay.add(relay.nn.dense(relay.nn.relu(y), w), y)
    assert relay.analysis.free_vars(y) == [x, *weights]


def test_passes_that_print_show_relays_text(capsys):
    mod = tvm.IRModule.from_expr(conv_net())
    with tvm.transform.PassContext(instruments=[tvm.instrument.PrintBeforeAll(["InferType"])]):
        relay.transform.InferType()(mod)
    tvm.transform.PrintIR()(mod)
    assert capsys.readouterr().out.count("= nn.conv2d(%x, %w, padding=[1, 1, 1, 1]") == 2


def test_questions_about_expressions_are_answered():
    fn = conv_net()
    typed = relay.testing.run_infer_type(fn)
    for each in (fn, typed):
        assert relay.analysis.get_total_mac_number(each) == 4 * 27 * 64 + 256 * 5
        assert relay.analysis.count_layers(each, ["nn.conv2d", "nn.dense"]) == 2
        assert relay.analysis.all_dtypes(each) == {"float32"}
        assert relay.analysis.free_vars(each) == [] == relay.analysis.free_type_vars(each)
    counts = relay.analysis.list_op_freqs(tvm.IRModule.from_expr(fn))
    assert counts["nn.conv2d"] == counts["nn.dense"] == 1
    features = relay.analysis.detect_feature(fn)
    assert relay.analysis.Feature.fConstant in features
    assert relay.analysis.Feature.fIf not in features
    assert relay.analysis.check_constant(relay.Tuple([relay.const(1), relay.const(2)]))
    assert not relay.analysis.check_constant(relay.Tuple([relay.const(1), fn.params[0]]))
    assert relay.analysis.check_kind(relay.TensorType((1,))) == "Type"


class Doubled(relay.ExprMutator):
    """Every constant twice itself."""

    def visit_constant(self, constant):
        return relay.multiply(relay.const(2.0), constant)


class Calls(relay.ExprVisitor):
    def __init__(self):
        super().__init__()
        self.seen = []

    def visit_call(self, call):
        super().visit_call(call)
        self.seen.append((call.op.name, [type(a).__name__ for a in call.args]))


def test_a_mutator_rebuilds_what_it_changes():
    x = relay.var("x", shape=(2,))
    fn = relay.Function([x], relay.add(x, relay.const([1.0, 2.0])))
    for each in (fn, relay.testing.run_infer_type(fn)):
        new = Doubled().visit(each)
        assert run(tvm.IRModule.from_expr(new), [np.zeros(2, "float32")]).tolist() == [2, 4]
    assert relay.ExprMutator().visit(fn) is fn


def test_a_visitor_sees_a_graph_before_and_after_types_are_found():
    x = relay.var("x", shape=(2,))
    fn = relay.Function([x], relay.add(relay.exp(x), relay.exp(x)))
    wanted = [("exp", ["Var"]), ("exp", ["Var"]), ("add", ["Call", "Call"])]
    for each in (fn, relay.testing.run_infer_type(fn)):
        calls = Calls()
        calls.visit(each)
        assert calls.seen == wanted


def test_a_visitor_without_a_method_says_so():
    with pytest.raises(VerifyError, match="visits no Constant"):
        relay.ExprFunctor().visit(relay.const(1))


@pytest.mark.parametrize("mutator", [relay.ExprMutator, relay.MixedModeMutator])
@pytest.mark.parametrize("seed", range(8))
def test_a_mutator_that_changes_nothing_keeps_the_meaning(mutator, seed):
    graph = random_graph(seed)
    for fn in (graph.function, relay.testing.run_infer_type(graph.function)):
        new = mutator().visit(fn)
        assert_close(run(tvm.IRModule.from_expr(new), graph.arguments), graph.expected)


def test_graphs_may_be_as_deep_as_they_like():
    x = y = relay.var("x", shape=(2,))
    for _ in range(10_000):
        y = relay.nn.relu(y)
    fn = relay.Function([x], y)
    assert relay.analysis.count_layers(fn, ["nn.relu"]) == 10_000
    seen = []

    class Count(relay.MixedModeVisitor):
        def visit_call(self, call):
            seen.append(call)

    class Tanh(relay.MixedModeMutator):
        def visit_call(self, call):
            return relay.tanh(self.visit(call.args[0]))

    Count().visit(fn)
    assert len(seen) == 10_000
    assert relay.analysis.list_op_freqs(Tanh().visit(fn)) == {"tanh": 10_000}


def test_a_pass_of_one_s_own_by_relay_s_decorator():
    @relay.transform.function_pass(opt_level=1)
    class Scaled:
        def transform_function(self, func, mod, ctx):
            return Doubled().visit(func)

    x = relay.var("x", shape=(2,))
    fn = relay.Function([x], relay.add(x, relay.const([1.0, 2.0])))
    got = relay.testing.run_opt_pass(fn, Scaled())
    assert run(tvm.IRModule.from_expr(got), [np.zeros(2, "float32")]).tolist() == [2, 4]


SMALL = {"num_layers": 8, "image_shape": (3, 16, 16), "num_classes": 10}
MODELS = {
    "mlp": ({}, (1, 1, 28, 28), (1, 10), 109_386),
    "resnet": (
        {"num_layers": 8, "image_shape": (3, 16, 16), "num_classes": 10},
        (1, 3, 16, 16),
        (1, 10),
        None,
    ),
    "mobilenet": ({"image_shape": (3, 32, 32), "num_classes": 7}, (1, 3, 32, 32), (1, 7), None),
    "lstm": ({"iterations": 3, "num_hidden": 4}, (1, 4), (1, 4), 2 * (16 * 4 + 16)),
    "vgg": ({"image_shape": (3, 32, 32), "batch_norm": True}, (1, 3, 32, 32), (1, 1000), None),
    "squeezenet": (
        {"version": "1.1", "image_shape": (3, 40, 40)},
        (1, 3, 40, 40),
        (1, 1000),
        1_235_496,
    ),
    "densenet": (
        {"classes": 10, "batch_size": 1, "image_shape": (3, 32, 32)},
        (1, 3, 32, 32),
        (1, 10),
        None,
    ),
    "dqn": ({}, (1, 4, 84, 84), (1, 18), 1_693_362),
    "dcgan": ({"ngf": 2}, (1, 100), (1, 3, 64, 64), None),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_have_parameters_of_the_types_that_their_layers_say(name):
    options, shape, result, size = MODELS[name]
    mod, params = getattr(relay.testing, name).get_workload(**options)
    assert mod["main"].ret_struct_info.dims == result
    assert size is None or sum(p.numpy().size for p in params.values()) == size
    fn = relax.transform.BindParams("main", params)(mod)
    got = Evaluator(fn)("main", np.ones(shape, "float32"))
    assert got.shape == result and np.isfinite(got).all()


@pytest.mark.parametrize("layers", [18, 50])
def test_a_resnet_of_whole_images_is_found_its_types(layers):
    mod, params = relay.testing.resnet.get_workload(num_layers=layers)
    wanted = {18: 11_699_112, 50: 25_575_912}[layers]
    trained = [p for n, p in params.items() if "moving" not in n]
    assert abs(sum(int(np.prod(p.shape)) for p in trained) - wanted) < 40_000
