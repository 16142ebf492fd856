"""The target "c": readable C for the fused functions.

python examples/relay/c_source.py
"""

import relaxvm as tvm
from relaxvm import relay


def library():
    x = relay.var("x", shape=(4, 8))
    total = relay.sum(relay.nn.relu(x + relay.const(1.0)), axis=1)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(total)))
    with tvm.transform.PassContext(opt_level=0):
        return relay.build(mod, target="c")


if __name__ == "__main__":
    print(library().get_lib().get_source("c"))
