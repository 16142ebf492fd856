"""relay.dataflow_pattern: rewriting and partitioning by patterns of Relay's operators."""

from __future__ import annotations

import numpy as np
import pytest
from random_graphs import assert_close, random_graph, run

import relaxvm as tvm
from relaxvm import relay
from relaxvm.base import PassError, PatternError
from relaxvm.relay.dataflow_pattern import (
    DFPatternCallback,
    dominates,
    has_shape,
    has_type,
    is_constant,
    is_if,
    is_let,
    is_op,
    is_tuple_get_item,
    is_var,
    partition,
    rewrite,
    wildcard,
)

FORMS = {
    "built": lambda fn: fn,
    "typed": relay.testing.run_infer_type,
    "parsed": lambda fn: relay.parse(tvm.IRModule.from_expr(fn).astext())["main"],
}
RNG = np.random.default_rng(0)


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


def array(*shape):
    return RNG.standard_normal(shape).astype("float32")


def value(fn, *arguments):
    return run(relay.transform.InferType()(tvm.IRModule.from_expr(fn)), list(arguments))


def names(fn):
    return list(relay.analysis.list_op_freqs(fn))


class BatchNorm(DFPatternCallback):
    """(x - mean) / sqrt(var + eps) * gamma + beta"""

    def __init__(self):
        super().__init__()
        self.x, self.var, self.mean = wildcard(), wildcard(), wildcard()
        self.beta, self.gamma, self.eps = wildcard(), wildcard(), is_constant()
        spread = is_op("sqrt")(self.var + self.eps)
        self.pattern = self.gamma * (self.x - self.mean) / spread + self.beta

    def callback(self, pre, post, node_map):
        eps = float(node_map[self.eps][0].data.numpy())
        places = (self.x, self.gamma, self.beta, self.mean, self.var)
        return relay.nn.batch_norm(*(node_map[p][0] for p in places), epsilon=eps)[0]


def test_a_normalisation_written_out_becomes_one_operator(form):
    x, *rest = (relay.var(n, shape=s) for n, s in zip("xvmbg", [(2, 3), (3,), (3,), (3,), (3,)]))
    var, mean, beta, gamma = rest
    body = gamma * (x - mean) / relay.sqrt(var + relay.const(1e-3)) + beta
    fn = form(relay.Function([x, *rest], relay.nn.relu(body)))
    new = rewrite(BatchNorm(), fn)
    assert names(new) == ["nn.batch_norm", "nn.relu"]
    arguments = [array(2, 3), np.abs(array(3)), array(3), array(3), array(3)]
    np.testing.assert_allclose(value(new, *arguments), value(fn, *arguments), rtol=1e-4, atol=1e-5)


class FoldRelu(DFPatternCallback):
    def __init__(self, **options):
        super().__init__(**options)
        self.x = wildcard()
        self.pattern = is_op("nn.relu")(is_op("nn.relu")(self.x))

    def callback(self, pre, post, node_map):
        assert post.op == relay.op.get("nn.relu") == pre.op
        return relay.nn.relu(node_map[self.x][0])


def test_rewriting_goes_on_until_nothing_changes(form):
    x = y = relay.var("x", shape=(2,))
    for _ in range(6):
        y = relay.nn.relu(y)
    fn = form(relay.Function([x], relay.tanh(y)))
    count = relay.analysis.list_op_freqs
    assert count(rewrite(FoldRelu(), fn)) == {"nn.relu": 1, "tanh": 1}
    assert count(FoldRelu(rewrite_once=True).rewrite(fn)) == {"nn.relu": 3, "tanh": 1}
    assert count(rewrite([FoldRelu(require_type=True)], fn)) == {"nn.relu": 1, "tanh": 1}
    unchanged = relay.Function([x], relay.tanh(x))
    assert rewrite(FoldRelu(), unchanged) is unchanged


def test_what_others_read_inside_of_it_keeps_a_part_as_it_is(form):
    x = relay.var("x", shape=(2,))
    inner = relay.nn.relu(x)
    fn = form(relay.Function([x], relay.add(relay.nn.relu(inner), relay.exp(inner))))
    new = rewrite(FoldRelu(), fn)
    assert relay.analysis.list_op_freqs(new)["nn.relu"] == 2


def test_attributes_are_relays_own(form):
    class Pointwise(DFPatternCallback):
        def __init__(self):
            super().__init__()
            self.x, self.w = wildcard(), wildcard()
            conv = is_op("nn.conv2d")(self.x, self.w)
            self.pattern = conv.has_attr({"kernel_size": [1, 1], "channels": 4})
            self.seen = 0

        def callback(self, pre, post, node_map):
            self.seen += 1
            assert list(pre.attrs.strides) == [1, 1]
            return relay.nn.relu(relay.nn.conv2d(*(node_map[p][0] for p in (self.x, self.w))))

    x, w = relay.var("x", shape=(1, 3, 6, 6)), relay.var("w", shape=(4, 3, 1, 1))
    k = relay.var("k", shape=(4, 4, 3, 3))
    y = relay.nn.conv2d(x, w, channels=4, kernel_size=1)
    y = relay.nn.conv2d(y, k, channels=4, kernel_size=(3, 3))
    pointwise = Pointwise()
    pointwise.rewrite_once = True
    new = rewrite(pointwise, form(relay.Function([x, w, k], y)))
    assert pointwise.seen == 1
    assert relay.analysis.list_op_freqs(new) == {"nn.conv2d": 2, "nn.relu": 1}


def test_results_of_several_values_and_functions_with_branches_are_rewritten():
    class NoDropout(DFPatternCallback):
        def __init__(self):
            super().__init__()
            self.x = wildcard()
            # What the pattern stands for is the first result.
            self.pattern = is_tuple_get_item(relay.dataflow_pattern.any_call("split"), 0)

        def callback(self, pre, post, node_map):
            data = pre.tuple_value.args[0]
            return relay.strided_slice(data, [0], [2])

    c, x = relay.var("c", shape=(), dtype="bool"), relay.var("x", shape=(4,))
    first = relay.split(relay.exp(x), 2)[0]
    fn = relay.Function([c, x], relay.If(c, relay.nn.relu(first), relay.tanh(relay.exp(first))))
    for each in (fn, relay.testing.run_infer_type(fn)):
        new = rewrite(NoDropout(), each)
        assert "split" not in names(new) and "strided_slice" in names(new)
        a = array(4)
        for chosen in (True, False):
            assert_close(value(new, np.bool_(chosen), a), value(fn, np.bool_(chosen), a))


def conv_net(build=lambda x: x):
    x, w, b = (
        relay.var(n, shape=s) for n, s in (("x", (1, 3, 8, 8)), ("w", (4, 3, 3, 3)), ("b", (4,)))
    )
    y = relay.nn.relu(relay.nn.bias_add(build(relay.nn.conv2d(x, w)), b))
    return relay.Function([x, w, b], relay.nn.global_avg_pool2d(y))


CONV = is_op("nn.relu")(
    is_op("nn.bias_add")(is_op("nn.conv2d")(wildcard(), wildcard()), wildcard())
)
ARGUMENTS = [array(1, 3, 8, 8), array(4, 3, 3, 3), array(4)]


def inner_functions(fn):
    found = []

    def visit(expr):
        if isinstance(expr, relay.Function) and expr is not fn:
            found.append(expr)

    relay.analysis.post_order_visit(fn, visit)
    return found


def test_what_matches_becomes_a_function(form):
    fn = form(conv_net())
    new = partition(CONV, fn, {"Composite": "lib.conv"})
    (inner,) = inner_functions(new)
    assert inner.attrs["PartitionedFromPattern"] == "nn.conv2d_nn.bias_add_nn.relu_"
    assert inner.attrs["Composite"] == "lib.conv" and len(inner.params) == 3
    assert names(inner) == ["nn.conv2d", "nn.bias_add", "nn.relu"]
    assert_close(value(new, *ARGUMENTS), value(fn, *ARGUMENTS))
    # What is in such a function is not looked at again.
    assert len(inner_functions(partition(is_op("nn.relu")(wildcard()), new))) == 1
    assert partition(CONV, fn, check=lambda expr: expr.op.name != "nn.relu") is fn


def test_parts_that_are_read_elsewhere_or_overlap_stay():
    shared = partition(CONV, conv_net(lambda y: relay.add(y, relay.exp(y))))
    assert not inner_functions(shared)
    x = y = relay.var("x", shape=(2,))
    for _ in range(5):
        y = relay.nn.relu(y)
    new = partition(FoldRelu().pattern, relay.Function([x], y))
    assert len(inner_functions(new)) == 2
    assert_close(value(new, ARGUMENTS[2][:2]), np.maximum(ARGUMENTS[2][:2], 0))


def test_constants_of_a_pattern_are_part_of_the_function():
    x = relay.var("x", shape=(2,))
    fn = relay.Function([x], relay.exp(x) * relay.const(2.0))
    (inner,) = inner_functions(partition(wildcard() * is_constant(), fn))
    assert len(inner.params) == 1
    (inner,) = inner_functions(partition(wildcard() * wildcard(), fn))
    assert len(inner.params) == 2


@pytest.mark.parametrize("seed", range(16))
def test_random_graphs_mean_the_same(seed):
    class Same(DFPatternCallback):
        def __init__(self, name, arity):
            super().__init__(rewrite_once=True)
            self.args = [wildcard() for _ in range(arity)]
            self.pattern = is_op(name)(*self.args)

        def callback(self, pre, post, node_map):
            return relay.Call(pre.op, [node_map[a][0] for a in self.args], pre.attrs)

    graph = random_graph(seed)
    fn = relay.testing.run_infer_type(graph.function)
    same = [Same("add", 2), Same("nn.dense", 2), Same("tanh", 1), Same("nn.relu", 1)]
    for new in (
        rewrite(same, graph.function),
        rewrite(same, fn),
        partition(wildcard() + wildcard(), fn),
        partition(is_op("tanh")(wildcard()) | is_op("nn.relu")(wildcard()), graph.function),
    ):
        assert_close(value(new, *graph.arguments), graph.expected)


def test_wrong_callbacks_are_errors():
    x = relay.var("x", shape=(2,))
    fn = relay.Function([x], relay.nn.relu(x))
    plain = DFPatternCallback()
    with pytest.raises(PatternError, match="wanted a pattern in its field pattern"):
        rewrite(plain, fn)
    plain.pattern = is_op("nn.relu")(wildcard())
    with pytest.raises(PatternError, match="has no method callback"):
        rewrite(plain, fn)
    plain.callback = lambda pre, post, node_map: 3
    with pytest.raises(PatternError, match="wanted an expression, got int"):
        rewrite(plain, fn)
    plain.callback = lambda pre, post, node_map: relay.nn.relu(relay.exp(post))
    with pytest.raises(PassError, match="matches still after .* rounds"):
        rewrite(plain, fn)


def branches_of_a_convolution(left=relay.nn.relu, right=relay.nn.leaky_relu):
    x, w = relay.var("x", shape=(1, 4, 3, 3)), relay.var("w", shape=(4, 4, 1, 1))
    conv = relay.nn.conv2d(x, w)
    return conv, relay.add(left(conv), right(conv))


def diamond():
    conv = is_op("nn.conv2d")(wildcard(), wildcard())
    path = is_op("nn.relu")(wildcard()) | is_op("nn.leaky_relu")(wildcard())
    return dominates(conv, path, is_op("add")(wildcard(), wildcard()))


def test_every_path_up_leads_to_the_value_that_dominates(form):
    conv, whole = branches_of_a_convolution()
    assert diamond().match(whole) and not diamond().match(relay.nn.relu(conv))
    _, longer = branches_of_a_convolution(lambda y: relay.nn.relu(relay.nn.relu(y)))
    assert diamond().match(longer)
    _, past = branches_of_a_convolution(relay.exp)
    assert not diamond().match(past)
    other, _ = branches_of_a_convolution()
    assert not diamond().match(relay.nn.relu(conv) + relay.nn.relu(other))
    assert not diamond().match(relay.nn.relu(conv) + relay.var("z", shape=(1, 4, 3, 3)))
    fn = form(relay.Function(relay.analysis.free_vars(whole), whole))
    (inner,) = inner_functions(partition(diamond(), fn))
    assert names(inner) == ["nn.conv2d", "nn.relu", "nn.leaky_relu", "add"]
    assert len(inner.params) == 2


def test_a_graph_of_many_paths_is_walked_once():
    y, _ = branches_of_a_convolution()
    for _ in range(200):
        y = relay.add(y, y)
    add = is_op("add")(wildcard(), wildcard())
    assert dominates(is_op("nn.conv2d")(wildcard(), wildcard()), add, add.dup()).match(y)


def test_lets_branches_types_and_shapes_match():
    x, v = relay.var("x", shape=(2,)), relay.var("v", shape=(2,))
    relu = is_op("nn.relu")(wildcard())
    assert is_if(wildcard(), relu, is_var("x")).match(
        relay.If(relay.const(True), relay.nn.relu(x), x)
    )
    assert not is_if(wildcard(), relu, relu).match(relay.If(relay.const(True), relay.nn.relu(x), x))
    let = relay.Let(v, relay.nn.relu(x), relay.exp(v))
    assert is_let(is_var("v"), relu, is_op("exp")(is_var("v"))).match(let)
    assert not is_let(is_var("x"), wildcard(), wildcard()).match(let)
    assert has_type(relay.TensorType((2,), "float32")).match(x)
    assert not has_type(relay.TensorType((2,), "float16")).match(x)
    assert has_shape((2,), relu).match(relay.nn.relu(x)) and not has_shape((3,)).match(x)


def test_attributes_are_those_of_relay_s_operator(form):
    fn = form(conv_net())
    conv = is_op("nn.conv2d")(wildcard(), wildcard())
    for attrs, count in (({"kernel_size": [3, 3], "channels": 4}, 1), ({"kernel_size": [1, 1]}, 0)):
        assert len(inner_functions(partition(conv.has_attr(attrs), fn))) == count
