"""relay.transform.InferType: what follows from operators, functions, calls and branches."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relay
from relaxvm.base import StructInfoError
from relaxvm.relax.interp import Evaluator


def inferred(fn):
    mod = fn if isinstance(fn, tvm.IRModule) else tvm.IRModule.from_expr(fn)
    typed = relay.transform.InferType()(mod)
    assert "relay." not in typed.script() and "R.Object" not in typed.script()
    assert relay.transform.InferType()(typed) is typed
    return typed


def shapes(fn, *wanted):
    """Whether the parameters after the first are of these shapes."""
    got = [p.struct_info for p in fn.params[1:]]
    assert [info.dims for info in got] == list(wanted)
    assert all(info.dtype == fn.params[0].struct_info.dtype for info in got)


X4 = (2, 6, 8, 9)


@pytest.mark.parametrize(
    ("shape", "build", "wanted"),
    [
        ((5, 4), lambda x, w: relay.nn.dense(x, w, units=3), [(3, 4)]),
        ((2, 5, 4), lambda x, w: relay.nn.dense(x, w, units=3), [(3, 4)]),
        ((5, 4), lambda x, w: relay.nn.matmul(x, w, units=3, transpose_a=True), [(5, 3)]),
        ((5, 4), lambda x, w: relay.nn.matmul(x, w, units=3, transpose_b=True), [(3, 4)]),
        ((5, 4), lambda x, b: relay.nn.bias_add(x, b), [(4,)]),
        (X4, lambda x, b: relay.nn.bias_add(x, b, axis=-2), [(8,)]),
        (X4, lambda x, a: relay.nn.prelu(x, a), [(6,)]),
        (X4, lambda x, *w: relay.nn.batch_norm(x, *w)[0], [(6,)] * 4),
        (X4, lambda x, *w: relay.nn.batch_norm(x, *w, axis=3)[0], [(9,)] * 4),
        (X4, lambda x, *w: relay.nn.layer_norm(x, *w), [(9,)] * 2),
        (X4, lambda x, *w: relay.nn.instance_norm(x, *w), [(6,)] * 2),
        (X4, lambda x, *w: relay.nn.group_norm(x, *w, num_groups=3), [(6,)] * 2),
        ((1, 4, 9), lambda x, w: relay.nn.conv1d(x, w, channels=3, kernel_size=2), [(3, 4, 2)]),
        (
            (1, 9, 4),
            lambda x, w: relay.nn.conv1d(
                x, w, channels=3, kernel_size=(2,), data_layout="NWC", kernel_layout="WIO"
            ),
            [(2, 4, 3)],
        ),
        (X4, lambda x, w: relay.nn.conv2d(x, w, channels=4, kernel_size=(3, 2)), [(4, 6, 3, 2)]),
        (
            X4,
            lambda x, w: relay.nn.conv2d(x, w, channels=12, groups=6, kernel_size=3),
            [(12, 1, 3, 3)],
        ),
        (
            (2, 8, 9, 6),
            lambda x, w: relay.nn.conv2d(
                x, w, channels=4, kernel_size=(3, 2), data_layout="NHWC", kernel_layout="HWIO"
            ),
            [(3, 2, 6, 4)],
        ),
        (
            (1, 2, 4, 4, 4),
            lambda x, w: relay.nn.conv3d(x, w, channels=3, kernel_size=(1, 2, 3)),
            [(3, 2, 1, 2, 3)],
        ),
        (
            (1, 4, 9),
            lambda x, w: relay.nn.conv1d_transpose(x, w, channels=3, kernel_size=2),
            [(4, 3, 2)],
        ),
        (
            X4,
            lambda x, w: relay.nn.conv2d_transpose(x, w, channels=4, groups=2, kernel_size=(3, 2)),
            [(6, 2, 3, 2)],
        ),
        (
            (1, 2, 4, 4, 4),
            lambda x, w: relay.nn.conv3d_transpose(x, w, channels=3, kernel_size=(1, 2, 3)),
            [(2, 3, 1, 2, 3)],
        ),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_weights_are_what_their_operator_says(shape, build, wanted, dtype):
    params = [relay.var("x", shape=shape, dtype=dtype), *map(relay.var, "abcd"[: len(wanted)])]
    typed = inferred(relay.Function(params, build(*params)))
    shapes(typed["main"], *wanted)


def test_a_weight_that_was_read_before_is_known_there_too():
    x, w = relay.var("x", shape=(4, 8)), relay.var("w")
    body = relay.Tuple([relay.sum(relay.exp(w)), relay.nn.dense(x, w, units=3)])
    shapes(inferred(relay.Function([x, w], body))["main"], (3, 8))


def test_sizes_that_are_not_known_stay_symbols():
    x, w = relay.var("x", shape=(relay.Any(), 8)), relay.var("w")
    typed = inferred(relay.Function([x, w], relay.nn.dense(x, w, units=3)))["main"]
    assert typed.ret_struct_info.dims == (x.struct_info.dims[0], 3)


def module_of(**functions):
    mod = tvm.IRModule()
    for name, fn in functions.items():
        mod[relay.GlobalVar(name)] = fn
    return mod


def test_parameters_of_functions_are_what_they_are_called_with():
    x, a, b = relay.var("x", shape=(2, 3)), relay.var("a"), relay.var("b")
    first, second = relay.GlobalVar("first"), relay.GlobalVar("second")
    mod = tvm.IRModule()
    mod["main"] = relay.Function([x], relay.nn.relu(first(x)))
    mod[first] = relay.Function([a], relay.exp(second(a)))
    mod[second] = relay.Function([b], relay.negative(b))
    typed = inferred(mod)
    for name in ("main", "first", "second"):
        assert typed[name].params[0].struct_info is x.struct_info
        assert typed.get_global_var(name).struct_info is typed[name].struct_info
    value = np.array([[1, 2, -3]] * 2, "float32")
    assert np.allclose(Evaluator(typed)("main", value), np.exp(-value))


def powers(call, n, acc):
    """acc doubled n times, by `call`."""
    again = call(n - relay.const(1), relay.add(acc, acc))
    return relay.Function([n, acc], relay.If(relay.equal(n, relay.const(0)), acc, again))


@pytest.mark.parametrize("last", [False, True])
def test_a_function_that_calls_itself_gives_what_its_other_branch_gives(last):
    n, acc = relay.var("n", "int32"), relay.var("acc", shape=(2,))
    m, z = relay.var("m", "int32"), relay.var("z", shape=(2,))
    gv, var = relay.GlobalVar("f"), relay.var("f")
    names = {"f": powers(gv, n, acc)}
    whole = {"main": relay.Function([m, z], relay.exp(gv(m, z)))}
    inner = relay.Function([m, z], relay.Let(var, powers(var, n, acc), relay.exp(var(m, z))))
    both = {**whole, **names} if last else {**names, **whole}
    for mod in (module_of(**both), tvm.IRModule.from_expr(inner)):
        mod = inferred(_same_global(mod, gv) if "f" in mod else mod)
        got = Evaluator(mod)("main", np.array(2, "int32"), np.ones(2, "float32"))
        np.testing.assert_allclose(got, np.exp([4, 4]), rtol=1e-5)


def _same_global(mod, gv):
    mod[gv] = mod["f"]
    return mod


def test_local_functions_and_lets_take_their_types_from_what_is_given():
    z, p, held = relay.var("z", shape=(2,)), relay.var("p"), relay.var("held")
    inner = relay.Call(relay.Function([p], relay.add(p, z)), [z])
    body = relay.Let(held, inner, relay.multiply(held, held))
    typed = inferred(relay.Function([z], body))
    assert Evaluator(typed)("main", np.ones(2, "float32")).tolist() == [4, 4]


def test_tuples_are_taken_apart():
    x, w = relay.var("x", shape=(4, 8)), relay.var("w")
    pair = relay.Tuple([relay.nn.dense(x, w, units=3), relay.Tuple([x, w])])
    inner = relay.TupleGetItem(relay.TupleGetItem(pair, 1), 1)
    fn = relay.Function([x, w], relay.Tuple([relay.split(inner, 2, axis=1)[1], pair]))
    assert inferred(fn)["main"].ret_struct_info.fields[0].dims == (3, 4)


def test_what_is_declared_is_checked():
    x, w = relay.var("x", shape=(4, 8)), relay.var("w")
    dense = relay.nn.dense(x, w, units=3)
    right = relay.Function([x, w], dense, relay.TensorType((4, 3)))
    assert inferred(right)["main"].ret_struct_info is relay.TensorType((4, 3))
    assert "match_cast" not in inferred(right).script()
    held = relay.var("held", shape=(9, 9))
    for wrong, message in (
        (relay.Function([x, w], dense, relay.TensorType((4, 9))), "wanted .*9.*, got .*3"),
        (relay.Function([x], relay.exp(x), relay.TensorType((4, 9))), "main: it is declared"),
        (relay.Function([x, w], relay.Let(held, dense, held)), "held: it is declared"),
    ):
        with pytest.raises(StructInfoError, match=message):
            inferred(wrong)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x, w: relay.nn.dense(x, w), r"relay.nn.dense: .* argument weight \(w\)"),
        (lambda x, w: relay.nn.dense(w, x, units=3), r"relay.nn.dense: .* argument data \(w\)"),
        (lambda x, w: relay.nn.conv2d(x, w, kernel_size=3), r"nn.conv2d: .* weight \(w\)"),
        (lambda x, w: relay.nn.bias_add(x, w, axis=9), r"nn.bias_add: .* bias \(w\)"),
        (lambda x, w: relay.add(x, w), r"relay.add: .* \(w\)"),
    ],
)
def test_what_does_not_follow_is_an_error_that_names_it(build, message):
    x, w = relay.var("x", shape=(1, 4, 5, 5)), relay.var("w")
    with pytest.raises(StructInfoError, match=message):
        inferred(relay.Function([x, w], build(x, w)))


def test_a_function_that_does_not_exist_is_an_error():
    x = relay.var("x", shape=(2,))
    with pytest.raises(StructInfoError, match="no function @helper; there are: main"):
        inferred(relay.Function([x], relay.GlobalVar("helper")(x)))


def test_a_function_without_an_end_is_an_error():
    x, f = relay.var("x", shape=(2,)), relay.GlobalVar("f")
    mod = tvm.IRModule()
    mod[f] = relay.Function([x], relay.exp(f(x)))
    with pytest.raises(StructInfoError, match=r"relay.exp"):
        inferred(mod)
    y = relay.var("y", shape=(2,))
    c = relay.var("c", "bool")
    mod[f] = relay.Function([c, y], relay.If(c, y, relay.Tuple([f(c, y), y])))
    with pytest.raises(StructInfoError):
        inferred(mod)


def test_graphs_may_be_long():
    x = y = relay.var("x", shape=(2,))
    w = relay.var("w")
    y = relay.nn.bias_add(relay.reshape(y, (1, 2)), w)
    for _ in range(10_000):
        y = relay.add(y, y)
    typed = inferred(relay.Function([x, w], y))
    assert sum(len(b.bindings) for b in typed["main"].body.blocks) > 10_000
