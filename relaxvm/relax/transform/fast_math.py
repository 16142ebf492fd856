"""FastMath: identities that hold for numbers, and not for every float.

    a = R.sqrt(v)                              a = R.rsqrt(v)
    y = R.divide(x, a)                         y = R.multiply(x, a)

exp, tanh, erf and softmax stay what they are: their kernels are within an ulp at the speed of
approximations.
"""

from __future__ import annotations

from ...ir import IRModule, PassContext
from ...ir.transform import function_pass
from .. import op as R
from ..expr import Call, Function
from ..struct_info import Expr
from . import div_to_mul, simplify_expr
from .rule_text import rewritten, rule


def _log_softmax(p: Call, x: Expr) -> Expr:
    return R.nn.log_softmax(x, p.attrs["axis"])


RULES = (
    rule("approximate", "divide(x, sqrt(y))", lambda x, y: R.multiply(x, R.rsqrt(y))),
    rule("approximate", "divide(x, rsqrt(y))", lambda x, y: R.multiply(x, R.sqrt(y))),
    rule("approximate", "divide(x, exp(y))", lambda x, y: R.multiply(x, R.exp(R.negative(y)))),
    rule("approximate", "multiply(exp(x), exp(y))", lambda x, y: R.exp(R.add(x, y))),
    rule("approximate", "multiply(sqrt(x), sqrt(x))", lambda x: x),
    rule("approximate", "square(sqrt(x))", lambda x: x),
    rule("approximate", "sqrt(square(x))", lambda x: R.abs(x)),
    rule("approximate", "sqrt(multiply(x, x))", lambda x: R.abs(x)),
    rule("approximate", "exp(log(x))", lambda x: x),
    rule("approximate", "log(exp(x))", lambda x: x),
    rule("approximate", "log(p := nn.softmax(x))", _log_softmax),
    rule("approximate", "nn.gelu(x)", lambda x: R.nn.gelu_tanh(x)),
    *simplify_expr.RULES,
    *div_to_mul.RULES,
)


@function_pass(opt_level=4, numerics="approximate")
def FastMath(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Apply identities of real numbers: results differ in the last digits, and where something
    overflows, is NaN or a signed zero.
    """
    return rewritten(fn, mod, ctx, RULES, "approximate")


FastMathTransform = FastMath
