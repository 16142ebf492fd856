"""SimplifyInference: a batch norm whose statistics are settled is a scale and a shift, a dropout
nothing.

python examples/relay/simplify_inference.py
"""

import relaxvm as tvm
from relaxvm import relay


def module(**options):
    x = relay.var("x", shape=(1, 4, 8, 8))
    gamma, beta, mean, var = (relay.var(n, shape=(4,)) for n in ("gamma", "beta", "mean", "var"))
    out, _, _ = relay.nn.batch_norm(x, gamma, beta, mean, var, **options)
    return tvm.IRModule.from_expr(
        relay.Function([x, gamma, beta, mean, var], relay.nn.dropout(out, rate=0.25))
    )


if __name__ == "__main__":
    print(module())
    print("# x * (gamma / sqrt(var + epsilon)) + (beta - mean * ...)")
    print(relay.transform.SimplifyInference()(module()))
    print("# without scale and center")
    print(relay.transform.SimplifyInference()(module(scale=False, center=False)))
