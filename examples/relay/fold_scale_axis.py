"""BackwardFoldScaleAxis and ForwardFoldScaleAxis: a product after, or before, a convolution goes
into its weight; FoldConstant leaves one constant.

python examples/relay/fold_scale_axis.py
"""

import numpy as np

import relaxvm as tvm
from relaxvm import relay

WEIGHT = relay.const(np.random.default_rng(0).standard_normal((6, 4, 3, 3)).astype("float32"))


def scale(channels):
    return relay.const(np.arange(1, channels + 1, dtype="float32").reshape(channels, 1, 1))


def after_a_convolution():
    x = relay.var("x", shape=(1, 4, 8, 8))
    y = relay.nn.relu(relay.nn.conv2d(x, WEIGHT, padding=(1, 1)))
    return tvm.IRModule.from_expr(relay.Function([x], relay.multiply(y, scale(6))))


def before_a_convolution():
    x = relay.var("x", shape=(1, 4, 8, 8))
    y = relay.nn.relu(relay.multiply(x, scale(4)))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.conv2d(y, WEIGHT)))


if __name__ == "__main__":
    print(after_a_convolution().astext(show_meta_data=False))
    folded = relay.transform.BackwardFoldScaleAxis()(after_a_convolution())
    print("# squeeze, expand_dims, multiply")
    print(folded.astext(show_meta_data=False))
    print("# one constant")
    print(relay.transform.FoldConstant()(folded).astext(show_meta_data=False))
    folded = relay.transform.ForwardFoldScaleAxis()(before_a_convolution())
    print("# from before the convolution")
    print(folded.astext(show_meta_data=False))
