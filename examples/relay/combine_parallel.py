"""CombineParallelDense and CombineParallelConv2D: layers of one input become one.

python examples/relay/combine_parallel.py
"""

import relaxvm as tvm
from relaxvm import relay


def dense_layers():
    x = relay.var("x", shape=(3, 5))
    weights = [relay.var(f"w{i}", shape=(4, 5)) for i in (1, 2)]
    layers = relay.Tuple([relay.nn.dense(x, w) for w in weights])
    return tvm.IRModule.from_expr(relay.Function([x, *weights], layers))


def convolutions():
    x = relay.var("x", shape=(1, 3, 8, 8))
    weights = [relay.var(f"w{n}", shape=(n, 3, 1, 1)) for n in (4, 6)]
    other = relay.var("other", shape=(2, 3, 3, 3))
    layers = relay.Tuple([relay.nn.conv2d(x, w) for w in (*weights, other)])
    return tvm.IRModule.from_expr(relay.Function([x, *weights, other], layers))


if __name__ == "__main__":
    print(dense_layers())
    combined = relay.transform.CombineParallelDense(min_num_branches=2)(dense_layers())
    print("# stack, stack, batch_matmul, split, squeeze")
    print(combined)
    print(convolutions())
    combined = relay.transform.CombineParallelConv2D(min_num_branches=2)(convolutions())
    print("# one convolution and two slices; what has another kernel stays")
    print(combined)
