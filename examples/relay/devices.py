"""RewriteAnnotatedOps, PlanDevices: copies on exactly the edges between devices.

Two devices of this computer stand for a CPU and an accelerator; each has memory of its own.

python examples/relay/devices.py
"""

import relaxvm as tvm
from relaxvm import relay


def module():
    x, y = relay.var("x", shape=(4,)), relay.var("y", shape=(4,))
    both = relay.add(x, y)
    root = relay.annotation.on_device(relay.sqrt(both), tvm.cpu(1))
    difference = relay.subtract(root, relay.log(both))
    out = relay.annotation.on_device(relay.exp(difference), tvm.cpu(1))
    return tvm.IRModule.from_expr(relay.Function([x, y], out))


if __name__ == "__main__":
    print(module())
    after = relay.transform.RewriteAnnotatedOps(tvm.cpu(0))(module())
    print("# add -> sqrt, sqrt -> subtract, subtract -> exp")
    print(after)
    assert after.astext().count("device_copy") == 3
    planned = relay.transform.PlanDevices(tvm.cpu(0))(module())
    assert tvm.ir.structural_equal(planned, after)
