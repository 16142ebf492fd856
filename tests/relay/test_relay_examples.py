"""The programs of examples/relay print what tutorials of Relay's passes show."""

import inspect
import re
import runpy
from pathlib import Path

import pytest

import relaxvm as tvm

EXAMPLES = Path(__file__).parents[2] / "examples" / "relay"


@pytest.fixture
def printed(capsys):
    """What a program prints, in parts: a comment begins a part."""

    def run(name):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return re.split(r"^# .*\n", capsys.readouterr().out, flags=re.M)

    return run


def operators(text):
    """The operators and functions that are called, in order."""
    return re.findall(r"(?:^|= )\s*([@%]?[a-z_][\w.]*)\(", text, re.M)


def functions(text):
    return re.findall(r"^def @(\w+)", text, re.M)


def test_every_program_is_tested():
    assert {f"test_{p.stem}" for p in EXAMPLES.glob("*.py")} <= set(globals())


def test_remove_unused_functions(printed):
    before, after, *_ = printed("remove_unused_functions")
    assert functions(before) == ["helper", "unused", "main"]
    assert functions(after) == ["helper", "main"]
    assert operators(after) == ["tanh", "@helper"]


def test_simplify_inference(printed):
    before, scaled, plain = printed("simplify_inference")
    assert operators(before) == ["nn.batch_norm", "nn.dropout"]
    gamma = "add sqrt divide multiply expand_dims multiply".split()
    beta = "negative multiply add expand_dims add".split()
    assert operators(scaled) == gamma + beta
    assert "multiply(%2, %gamma)" in scaled
    assert "add(%7, %beta)" in scaled
    gamma.remove("multiply")
    beta.remove("add")
    assert operators(plain) == gamma + beta
    assert re.findall("%gamma|%beta", plain.partition("\n")[2]) == []


def test_inline(printed):
    before, after = printed("inline")
    assert functions(before) == ["leaf", "middle", "kept", "main"]
    assert before.count("Inline=1") == 2
    assert functions(after) == ["kept", "main"]
    assert operators(after) == ["tanh", "negative", "exp", "@kept", "add"]


def test_devices(printed):
    before, after, *kernels, out = printed("devices")
    words = "add sqrt annotation.on_device log subtract exp annotation.on_device"
    assert operators(before) == words.split()
    words = "add device_copy sqrt device_copy log subtract device_copy exp"
    assert operators(after) == words.split()
    assert re.findall(r"device_copy\((%\d).*dst_device=\"(.*?)\"", after) == [
        ("%0", "cpu:1"),
        ("%2", "cpu:0"),
        ("%5", "cpu:1"),
    ]


def test_fuse_ops(printed):
    program = runpy.run_path(str(EXAMPLES / "fuse_ops.py"))
    chain, summed = (program[name]() for name in ("chain", "with_a_sum"))
    assert program["kernels"](chain) == ["tvmgen_default_fused_add_add_add_add_add_exp"]
    assert program["kernels"](summed) == [
        "tvmgen_default_fused_add_add_sum",
        "tvmgen_default_fused_add",
    ]
    one, two, _ = printed("fuse_ops")
    before, after = one.split("\n\n")[:2]
    assert operators(before) == operators(after) == ["add"] * 5 + ["exp"]
    assert [text.count("Primitive=1") for text in (before, after, two)] == [0, 1, 2]
    assert operators(two) == ["add", "add", "sum", "add"]


def test_c_source(printed):
    (text,) = printed("c_source")
    names = ["tvmgen_default_fused_add_nn_relu_sum", "tvmgen_default_fused_exp"]
    assert re.findall(r"^int32_t \w*?(tvmgen_\w+)\(const float \*", text, re.M) == names
    bounds = re.findall(r"for \(int64_t (\w+) = 0; \1 < (\d+); \+\+\1\)", text)
    assert {int(extent) for _, extent in bounds} == {4, 8}
    assert "expf(" in text


def test_fold_scale_axis(printed):
    before, after, one, forward = printed("fold_scale_axis")
    assert operators(before) == ["nn.conv2d", "nn.relu", "multiply"]
    into_weight = ["squeeze", "expand_dims", "multiply"]
    assert operators(after) == [*into_weight, "nn.conv2d", "nn.relu"]
    assert operators(one) == ["nn.conv2d", "nn.relu"]
    assert [t.count("meta[relay.Constant][") for t in (before, after, one)] == [2, 2, 1]
    assert operators(forward) == ["nn.relu", *into_weight, "nn.conv2d"]


def test_combine_parallel(printed):
    dense, rest, convolution = printed("combine_parallel")
    combined, convolutions = rest.split("\n\n", 1)
    assert operators(dense) == ["nn.dense", "nn.dense"]
    words = "stack stack nn.batch_matmul split squeeze squeeze"
    assert operators(combined) == words.split()
    assert "transpose_b=True" in combined
    assert operators(convolutions) == ["nn.conv2d"] * 3
    words = "concatenate nn.conv2d strided_slice strided_slice nn.conv2d"
    assert operators(convolution) == words.split()


@pytest.mark.parametrize("name", [p.stem for p in EXAMPLES.glob("*.py")])
def test_modules_are_read_again_from_their_text(name):
    program = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    builders = [f for f in program.values() if inspect.isfunction(f) and _takes_nothing(f)]
    mods = [getattr(mod, "ir_mod", mod) for mod in (f() for f in builders)]
    mods = [mod for mod in mods if isinstance(mod, tvm.IRModule)]
    assert mods
    for mod in mods:
        typed = tvm.relay.transform.InferType()(mod)
        for each in (mod, typed):
            again = tvm.relay.parse(each.astext())
            assert tvm.relay.transform.InferType()(again).astext() == typed.astext()
            assert tvm.relay.parse(again.astext()).astext() == again.astext()
        assert tvm.relay.parse(typed.astext()).astext() == typed.astext()


def _takes_nothing(f):
    parameters = inspect.signature(f).parameters.values()
    return all(p.kind is p.VAR_KEYWORD or p.default is not p.empty for p in parameters)
