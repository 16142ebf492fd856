"""RemoveUnusedFunctions: what `main`, or the given functions, reach through global variables stays.

python examples/relay/remove_unused_functions.py
"""

import relaxvm as tvm
from relaxvm import relay


def module():
    mod = tvm.IRModule()
    helper, unused = relay.GlobalVar("helper"), relay.GlobalVar("unused")
    x = relay.var("x", shape=(2, 3))
    mod[helper] = relay.Function([x], relay.tanh(x))
    x = relay.var("x", shape=(2, 3))
    mod[unused] = relay.Function([x], relay.Call(helper, [relay.exp(x)]))
    x = relay.var("x", shape=(2, 3))
    mod["main"] = relay.Function([x], relay.Call(helper, [x]))
    return mod


if __name__ == "__main__":
    before = module()
    print(before)
    after = relay.transform.RemoveUnusedFunctions()(before)
    print("# what main reaches")
    print(after)
    assert [gv.name_hint for gv in after.get_global_vars()] == ["helper", "main"]
    after = relay.transform.RemoveUnusedFunctions(["unused"])(before)
    print("# what unused reaches:", ", ".join(gv.name_hint for gv in after.get_global_vars()))
