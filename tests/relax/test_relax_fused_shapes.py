"""What ends as one kernel in a default build, and gives the same bits as its parts."""

import numpy as np
import pytest
from pass_cases import parse
from relax_vm_helpers import build_interpreted, value

from relaxvm import relax
from relaxvm.ir import PassContext
from relaxvm.pipeline import GRAPH_TO_LEGAL, LEGAL_TO_FUSED


def f32(*shape):
    sizes = ", ".join(f'"{d}"' if isinstance(d, str) else str(d) for d in shape)
    return f'R.Tensor(({sizes},), "float32")'


IMAGE, WEIGHT = f32(1, 4, 6, 6), f32(8, 4, 3, 3)
CONV = "a = R.nn.conv2d(x, w, padding=1)"
BIAS = "b = R.add(a, R.reshape(v, (1, 8, 1, 1)))"
CONV_PARAMS = f"x: {IMAGE}, w: {WEIGHT}, v: {f32(8)}, s: {f32(1, 8, 6, 6)}"
ROWS = f"x: {f32('n', 8)}, w: {f32(8, 16)}, v: {f32(16)}, s: {f32('n', 16)}"
SAME = f"x: {f32('n', 8)}, y: {f32('n', 8)}, g: {f32(8)}"
HARD_SWISH = [
    "h = R.clip(R.add(b, R.const(3.0)), 0.0, 6.0)",
    "r = R.divide(R.multiply(b, h), R.const(6.0))",
]
ACTIVATIONS = {
    "relu": ["r = R.nn.relu(b)"],
    "clip": ["r = R.clip(b, 0.0, 6.0)"],
    "gelu": ["r = R.nn.gelu(b)"],
    "silu": ["r = R.nn.silu(b)"],
    "silu by hand": ["r = R.multiply(b, R.sigmoid(b))"],
    "hard swish": HARD_SWISH,
    "residual and relu": ["d = R.add(b, s)", "r = R.nn.relu(d)"],
    "scale, residual before the activation": [
        "c = R.multiply(b, R.const(0.5))",
        "d = R.add(s, c)",
        "r = R.nn.gelu(d)",
    ],
}
# name -> (parameters, bindings, kernels)
SHAPES = {
    **{
        f"convolution, bias, {n}": (CONV_PARAMS, [CONV, BIAS, *f], 1)
        for n, f in ACTIVATIONS.items()
    },
    **{
        f"product, bias, {n}": (ROWS, ["a = R.matmul(x, w)", "b = R.add(a, v)", *f], 1)
        for n, f in ACTIVATIONS.items()
    },
    "convolution, batch norm, residual, relu": (
        CONV_PARAMS,
        [
            CONV,
            "n = R.nn.batch_norm(a, v, v, v, v, axis=1, training=False)",
            "b = R.add(n[0], s)",
            "r = R.nn.relu(b)",
        ],
        1,
    ),
    "depthwise convolution and clip": (
        f"x: {IMAGE}, w: {f32(4, 1, 3, 3)}",
        ["a = R.nn.conv2d(x, w, padding=1, groups=4)", "r = R.clip(a, 0.0, 6.0)"],
        1,
    ),
    "pool and relu": (
        f"x: {IMAGE}",
        ["a = R.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1))", "r = R.nn.relu(a)"],
        1,
    ),
    "average pool, scale and sum": (
        f"x: {IMAGE}, y: {f32(1, 4, 3, 3)}",
        [
            "a = R.nn.avg_pool2d(x, (2, 2), (2, 2))",
            "b = R.multiply(a, R.const(2.0))",
            "r = R.add(b, y)",
        ],
        1,
    ),
    "layer norm of a sum, scaled after": (
        SAME,
        ["a = R.add(x, y)", "b = R.nn.layer_norm(a, g, g, axes=[-1])", "r = R.nn.gelu(b)"],
        1,
    ),
    "a sum that goes on, and its norm": (
        SAME,
        ["a = R.add(x, y)", "b = R.nn.rms_norm(a, g, axes=[-1])", "r = (a, b)"],
        1,
    ),
    "group norm and silu": (
        f"x: {f32(1, 8, 4, 4)}, g: {f32(8)}",
        [
            "a = R.nn.group_norm(x, g, g, num_groups=2, channel_axis=1, axes=[2, 3])",
            "r = R.nn.silu(a)",
        ],
        1,
    ),
    "softmax with scale and mask": (
        SAME,
        [
            "a = R.multiply(x, R.const(0.25))",
            "b = R.where(R.less(y, R.const(0.0)), R.const(-1e9), a)",
            "r = R.nn.softmax(b)",
        ],
        1,
    ),
    "softmax and a scale after": (SAME, ["a = R.nn.softmax(x)", "r = R.multiply(a, y)"], 1),
    "thirty elementwise operators": (
        SAME,
        [
            f"a{i} = R.{('add', 'multiply', 'maximum')[i % 3]}({f'a{i - 1}' if i else 'x'}, y)"
            for i in range(29)
        ]
        + ["r = R.subtract(a28, g)"],
        1,
    ),
    "elementwise operators of several results": (
        SAME,
        ["a = R.add(x, y)", "b = R.nn.relu(a)", "c = R.multiply(b, g)", "r = (a, b, c)"],
        1,
    ),
    "a cell of an LSTM": (
        f"x: {f32('n', 8)}, y: {f32('n', 8)}, z: {f32('n', 8)}, o: {f32('n', 8)}, c: {f32('n', 8)}",
        [
            "k = R.add(R.multiply(R.sigmoid(x), c), R.multiply(R.sigmoid(y), R.tanh(z)))",
            "h = R.multiply(R.sigmoid(o), R.tanh(k))",
            "r = (h, k)",
        ],
        1,
    ),
    "a gather, a sum and a norm": (
        f'x: {f32(9, 8)}, i: R.Tensor((5,), "int64"), y: {f32(5, 8)}, g: {f32(8)}',
        [
            "a = R.take(x, i, axis=0)",
            "b = R.add(a, y)",
            "r = R.nn.layer_norm(b, g, g, axes=[-1])",
        ],
        1,
    ),
    "a gather, scaled": (
        f'x: {f32(9, 8)}, i: R.Tensor((5,), "int64")',
        ["a = R.take(x, i, axis=0)", "r = R.multiply(a, R.const(2.0))"],
        1,
    ),
    "halves of a row multiplied": (
        f"x: {f32('n', 8)}",
        ["a = R.split(x, 2, axis=1)", "b = R.nn.silu(a[0])", "r = R.multiply(b, a[1])"],
        1,
    ),
    "a slice read by what follows": (
        SAME,
        ["a = R.strided_slice(x, [1], [0], [8], [2])", "r = R.exp(a)"],
        1,
    ),
    "a transpose read by what follows": (
        SAME,
        ["a = R.permute_dims(x)", "b = R.permute_dims(y)", "r = R.add(a, b)"],
        1,
    ),
    "a sum of squares of a difference": (
        SAME,
        ["a = R.subtract(x, y)", "b = R.multiply(a, a)", "r = R.sum(b, axis=1)"],
        1,
    ),
    "a mean of what an exponential gives, and its logarithm": (
        SAME,
        ["a = R.exp(x)", "b = R.mean(a, axis=1)", "r = R.log(b)"],
        1,
    ),
}


def module(params, bindings):
    symbols = ["n = T.int64()"] if '"n"' in params else []
    lines = "\n            ".join(bindings)
    head = "\n        ".join(symbols)
    return parse(f"""
    @R.function
    def main({params}):
        {head}
        with R.dataflow():
            {lines}
            R.output(r)
        return r
    """)


def kernels(mod):
    """The kernels that main calls."""
    fused = LEGAL_TO_FUSED(GRAPH_TO_LEGAL(mod))
    calls = [b.value for block in fused["main"].body.blocks for b in block.bindings]
    return [
        c.args[0].name_hint
        for c in calls
        if isinstance(c, relax.Call) and c.op.name == "relax.call_tir"
    ]


def argument(param, rng, n):
    info = param.struct_info
    shape = [getattr(d, "value", n) for d in info.dims]
    if info.dtype == "int64":
        return rng.integers(0, 9, shape)
    return rng.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("name", SHAPES)
def test_these_end_as_one_kernel(name):
    params, bindings, count = SHAPES[name]
    mod = module(params, bindings)
    names = kernels(mod)
    assert len(names) == count, names
    rng = np.random.default_rng(0)
    for n in (0, 1, 3) if '"n"' in params else (3,):
        args = [argument(p, rng, n) for p in mod["main"].params]
        one = value(build_interpreted(mod)["main"](*args))
        parts = value(build_interpreted(mod, None, {"disabled_pass": ["FuseOps"]})["main"](*args))
        for a, b in zip(one, parts) if isinstance(one, tuple) else [(one, parts)]:
            assert np.array_equal(a, b, equal_nan=True)


@pytest.mark.parametrize("name", [n for n in SHAPES if "relu" in n or "norm" in n or "LSTM" in n])
def test_compiled_they_give_the_same_bits_where_nothing_may_differ(name):
    params, bindings, _ = SHAPES[name]
    mod = module(params, bindings)
    rng = np.random.default_rng(0)
    args = [argument(p, rng, 3) for p in mod["main"].params]
    results = []
    for disabled in ([], ["FuseOps"]):
        with PassContext(disabled_pass=disabled, config={"numerics": "exact"}):
            vm = relax.VirtualMachine(relax.build(mod, "llvm", exec_mode="bytecode"))
        result = value(vm["main"](*args))
        results.append(result if isinstance(result, tuple) else (result,))
    for a, b in zip(*results):
        assert np.array_equal(a, b, equal_nan=True)
