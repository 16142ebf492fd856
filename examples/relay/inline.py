"""Inline: functions with the attribute Inline, callees first; others stay as calls.

python examples/relay/inline.py
"""

import relaxvm as tvm
from relaxvm import relay


def module():
    mod = tvm.IRModule()

    def function(name, body, inline=False):
        x = relay.var("x", shape=(4,))
        fn = relay.Function([x], body(x))
        if inline:
            fn = fn.with_attr("Inline", tvm.tir.IntImm("int32", 1))
        gv = relay.GlobalVar(name)
        mod[gv] = fn
        return gv

    leaf = function("leaf", relay.exp, inline=True)
    middle = function("middle", lambda x: relay.Call(leaf, [relay.negative(x)]), inline=True)
    kept = function("kept", relay.tanh)
    function("main", lambda x: relay.Call(middle, [x]) + relay.Call(kept, [x]))
    return mod


if __name__ == "__main__":
    print(module())
    after = relay.transform.Inline()(module())
    print("# middle and leaf are gone; kept has no attribute")
    print(after)
