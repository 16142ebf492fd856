"""RewriteAnnotatedOps, PlanDevices: copies on exactly the edges between devices.

Two devices of this computer stand for a CPU and an accelerator; each has memory of its own.

python examples/relay/devices.py
"""

import json

import numpy as np

import relaxvm as tvm
from relaxvm import relay
from relaxvm.contrib import graph_executor

HERE, THERE = tvm.cpu(0), tvm.cpu(1)


def module():
    x, y = relay.var("x", shape=(4,)), relay.var("y", shape=(4,))
    both = relay.add(x, y)
    root = relay.annotation.on_device(relay.sqrt(both), THERE)
    difference = relay.subtract(root, relay.log(both))
    out = relay.annotation.on_device(relay.exp(difference), THERE)
    return tvm.IRModule.from_expr(relay.Function([x, y], out))


if __name__ == "__main__":
    print(module())
    after = relay.transform.RewriteAnnotatedOps(HERE)(module())
    print("# add -> sqrt, sqrt -> subtract, subtract -> exp")
    print(after)
    assert after.astext().count("device_copy") == 3
    planned = relay.transform.PlanDevices(HERE)(module())
    assert tvm.ir.structural_equal(planned, after)

    lib = relay.build(module(), {HERE: "llvm", THERE: "llvm"})
    for node in json.loads(lib.get_graph_json())["nodes"]:
        if node["op"] == "tvm_op":
            print("#", node["attrs"]["func_name"])
    x = y = np.arange(1, 5, dtype="float32")
    program = graph_executor.GraphModule(lib["default"](HERE, THERE))
    program.run(x=x, y=y)
    out = program.get_output(0)
    np.testing.assert_allclose(out.numpy(), np.exp(np.sqrt(x + y) - np.log(x + y)), rtol=1e-5)
    print("# on", out.device, "as numpy")
