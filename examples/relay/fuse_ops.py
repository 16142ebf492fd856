"""FuseOps: chains become one function; a sum ends a group. `relay.build` shows the kernels by name.

python examples/relay/fuse_ops.py
"""

import json

import relaxvm as tvm
from relaxvm import relay


def chain():
    x = relay.var("x", shape=(10, 20))
    y = x
    for _ in range(5):
        y = relay.add(y, relay.const(1.0))
    return tvm.IRModule.from_expr(relay.Function([x], relay.exp(y)))


def with_a_sum():
    x, y = relay.var("x", shape=(20, 20)), relay.var("y", shape=(20, 20))
    total = relay.sum(relay.add(relay.add(x, y), y), axis=1, keepdims=True)
    return tvm.IRModule.from_expr(relay.Function([x, y], relay.add(total, y)))


def kernels(mod):
    with tvm.transform.PassContext(opt_level=0):
        lib = relay.build(mod, target="llvm")
    return [n["name"] for n in json.loads(lib.get_graph_json())["nodes"] if n["op"] == "tvm_op"]


if __name__ == "__main__":
    print(chain())
    print(relay.transform.FuseOps()(chain()))
    print("# kernels:", *kernels(chain()))
    print(relay.transform.FuseOps()(with_a_sum()))
    print("# kernels:", *kernels(with_a_sum()))
