"""FlattenAtrousConv: a convolution between space-to-batch and batch-to-space is a dilated one.

    a = R.reshape(x, (n, c, h // 2, 2, w // 2, 2))         y = R.nn.conv2d(x, w, dilation=(2, 2))
    b = R.permute_dims(a, (3, 5, 0, 1, 2, 4))
    d = R.reshape(b, (4 * n, c, h // 2, w // 2))
    e = R.nn.conv2d(d, w)
    f = R.reshape(e, (2, 2, n, o, r, s))
    g = R.permute_dims(f, (2, 3, 4, 0, 5, 1))
    y = R.reshape(g, (n, o, 2 * r, 2 * s))

In layouts NCHW and NHWC. Padding before, and what is cropped after it, stay; FoldExplicitPadding
and SimplifyExpr know about these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir import IRModule, PassContext
from ...ir.transform import function_pass
from ..expr import Call, Function
from ..struct_info import Expr
from .rule_text import rewritten, rule, static_sizes

# Layout -> order of the axes (block h, block w, batch, channels, h, w) in the tensor of six axes,
# and where they come from; the same for the way back.
_ORDERS = {
    "NCHW": ((3, 5, 0, 1, 2, 4), (2, 3, 4, 0, 5, 1)),
    "NHWC": ((2, 4, 0, 1, 3, 5), (2, 3, 0, 4, 1, 5)),
}


def _split(sizes: Sequence[int], layout: str, block: Mapping[str, int]) -> list[int]:
    """The sizes of a tensor whose spatial axes are split into blocks."""
    pairs = ([n // block[a], block[a]] if a in block else [n] for a, n in zip(layout, sizes))
    return [size for pair in pairs for size in pair]


def _dilated(
    call: Call, q: Call, b: Call, c: Call, d: Call, p: Call, a: Call, x: Expr
) -> Expr | None:
    layout = c.attrs["data_layout"]
    plain = not any(c.attrs["padding"]) and {*c.attrs["strides"], *c.attrs["dilation"]} == {1}
    if layout not in _ORDERS or c.attrs["out_layout"] != layout or not plain:
        return None
    there, back = _ORDERS[layout]
    shapes = [static_sizes(e) for e in (x, a, d, c, b, call)]
    first, split, small, result, six, last = (shape or [] for shape in shapes)
    if p.attrs["axes"] != there or q.attrs["axes"] != back or len(first) != 4 or len(six) != 6:
        return None
    block = {"H": six[0], "W": six[1]}
    batch = six[0] * six[1] * first[0]
    same = (
        split == _split(first, layout, block)
        and small == [batch, *(split[k] for k in there[3:])]
        and six[2:] == [first[0], *result[1:]]
        and result[0] == batch
        and _split(last, layout, block) == [six[k] for k in back]
    )
    attrs = {**c.attrs, "dilation": (six[0], six[1])}
    return Call(c.op, (x, c.args[1]), attrs, span=c.span) if same else None


RULES = (
    rule(
        "exact",
        "reshape(q := permute_dims(b := reshape(c := nn.conv2d("
        "d := reshape(p := permute_dims(a := reshape(x)))))))",
        _dilated,
    ),
)


@function_pass(opt_level=2)
def FlattenAtrousConv(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Dilate convolutions instead of moving every n-th row and column together."""
    return rewritten(fn, mod, ctx, RULES)
