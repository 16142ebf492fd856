"""relay.transform.AlterOpLayout: functions registered for operators say which layouts they want."""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relay
from relaxvm.base import DTypeError, PassError, RelaxvmError, StructInfoError
from relaxvm.relay.transform import alter_op_layout
from relaxvm.runtime.params import save_param_dict


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(alter_op_layout, "_REGISTERED", {})
    return relay.op.register_alter_op_layout


def program():
    x = relay.var("x", shape=(1, 16, 8, 8), dtype="float32")
    w = relay.const(np.random.default_rng(0).random((16, 16, 3, 3), "float32"))
    y = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1), channels=16, kernel_size=(3, 3)))
    return tvm.IRModule.from_expr(relay.Function([x], y))


def result(mod):
    x = np.random.default_rng(1).standard_normal((1, 16, 8, 8)).astype("float32")
    return relay.create_executor("vm", mod).evaluate()(x).numpy()


def blocked(attrs, inputs, tinfos, out_type):
    assert (attrs.data_layout, len(tinfos), out_type.shape[1]) == ("NCHW", 2, 16)
    new = {**dict(attrs.items()), "data_layout": "NCHW16c", "kernel_layout": "OIHW16i16o"}
    return relay.nn.conv2d(*inputs, **new)


def test_calls_work_in_the_layouts_that_were_asked_for(registered):
    registered("nn.conv2d", level=101)(blocked)
    mod = relay.transform.InferType()(program())
    text = relay.transform.AlterOpLayout()(mod).astext()
    assert 'data_layout="NCHW16c"' in text and text.count("layout_transform(") >= 2
    again = relay.parse(text)
    assert again.astext() == text
    np.testing.assert_allclose(
        result(relay.transform.AlterOpLayout()(mod)), result(mod), rtol=1e-4, atol=1e-5
    )


def test_the_function_of_the_highest_level_counts_and_none_changes_nothing(registered):
    registered("nn.conv2d", lambda *_: None, level=20)
    registered("nn.conv2d", blocked, level=11)
    mod = relay.transform.InferType()(program())
    assert "layout_transform" not in relay.transform.AlterOpLayout()(mod).astext()
    registered("nn.conv2d", blocked, level=20)
    assert "layout_transform" in relay.transform.AlterOpLayout()(mod).astext()


def test_what_changes_more_than_layouts_is_an_error(registered):
    mod = relay.transform.InferType()(program())
    for wrong in (
        lambda attrs, inputs, *_: relay.nn.conv2d(*inputs, padding=(2, 2)),
        lambda attrs, inputs, *_: relay.nn.relu(inputs[0]),
        lambda *_: 3,
    ):
        registered("nn.conv2d", wrong)
        with pytest.raises(PassError, match="AlterOpLayout: nn.conv2d: wanted a call of nn.conv2d"):
            relay.transform.AlterOpLayout()(mod)
    with pytest.raises(RelaxvmError, match="nn.conv9d"):
        registered("nn.conv9d", blocked)


def test_small_things_of_relay():

    assert relay.const(np.float64(3)).struct_info.dtype == "float64"
    assert relay.const(-1e9, "float16").data.numpy() == -np.inf
    for value, dtype in ((2**40, None), (3, "float33"), (300, "uint8"), (float("nan"), "int32")):
        with pytest.raises(DTypeError):
            relay.const(value, dtype)
    assert relay.const(2.5).struct_info.dtype == "float32"
    with pytest.raises(ValueError, match="is no name"):
        save_param_dict({"\udc80": tvm.nd.array(np.zeros(2))})
    c = relay.var("c", shape=(), dtype="bool")
    x = relay.var("x", shape=(2,), dtype="float32")
    y = relay.Function([c, x], relay.If(c, x, relay.Tuple([x, x])))
    with pytest.raises(StructInfoError, match="one branch gives"):
        relay.transform.InferType()(tvm.IRModule.from_expr(y))
