"""Convolutions as loop functions, with what they mean in numpy."""

from __future__ import annotations

import dataclasses

import numpy as np

from relaxvm import te, tir
from relaxvm.base import CpuModel
from relaxvm.tir.schedule.plans import View, convolution, convolution_channels

AVX2 = CpuModel(vector_bits=256, vector_registers=16, fma=True)
AVX512 = dataclasses.replace(AVX2, vector_bits=512, vector_registers=32)


def tiled(fn, cpu):
    """`fn` with the default plan for its convolution alone carried out; None if there is none."""
    sch = tir.Schedule(fn, error_render_level="fast")
    blocks = [View(sch, rv) for rv in sch.get_child_blocks(sch.get_block("root"))]
    (view,) = (v for v in blocks if v.convolution is not None)
    classes = convolution_channels.AlongChannels, convolution.AlongPixels, convolution.AlongWidth
    plan = next((p for c in classes if (p := c.choose(view, cpu)) is not None), None)
    if plan is None:
        return None
    tir.schedule.apply_plan(sch, view.rv, plan)
    return next(iter(sch.mod.functions.values()))


@dataclasses.dataclass(frozen=True)
class Case:
    data: tuple[int, int, int, int]
    channels: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    after: str = ""
    symbolic: bool = False

    def function(self):
        """The loop function (data, weight, [bias or residual], result)."""
        n, c, h, w = self.data
        batch = tir.Var("n", "int64") if self.symbolic else n
        x = te.placeholder((batch, c, h, w), "float32", name="X")
        k = te.placeholder((self.channels, c // self.groups, *self.kernel), "float32", name="W")
        made = self.formula(x, k)
        conv, args = made, [x, k]
        if self.after == "bias":
            b = te.placeholder((self.channels,), "float32", name="B")
            made = te.compute(conv.shape, lambda *i: tir.max(conv(*i) + b[i[1]], 0.0), name="out")
            args.append(b)
        elif self.after == "residual":
            r = te.placeholder(conv.shape, "float32", name="R")
            made = te.compute(conv.shape, lambda *i: conv(*i) + r(*i), name="out")
            args.append(r)
        elif self.after == "residual of one image":
            r = te.placeholder(conv.shape, "float32", name="R")
            made = te.compute(conv.shape, lambda i, *j: conv(0, *j) + r(0, *j), name="out")
            args.append(r)
        elif self.after == "exp":
            b = te.placeholder((self.channels,), "float32", name="B")
            made = te.compute(
                conv.shape, lambda *i: te.exp(tir.min(conv(*i) + b[i[1]], 1.0)), name="out"
            )
            args.append(b)
        return te.create_prim_func([*args, made]).with_attr("tir.noalias", True)

    def arrays(self, rng):
        shapes = [self.data, (self.channels, self.data[1] // self.groups, *self.kernel)]
        x, k = (rng.standard_normal(s).astype("float32") for s in shapes)
        want = self.meaning(x, k)
        args = [x, k]
        if self.after == "bias":
            args.append(rng.standard_normal(self.channels).astype("float32"))
            want = np.maximum(want + args[2][:, None, None], 0)
        elif self.after.startswith("residual"):
            args.append(rng.standard_normal(want.shape).astype("float32"))
            want = want + args[2]
        elif self.after == "exp":
            args.append(rng.standard_normal(self.channels).astype("float32"))
            want = np.exp(np.minimum(want + args[2][:, None, None], 1))
        return [*args, np.full(want.shape, np.nan, "float32")], want

    def formula(self, x, k):
        (top, left), (down, right), (rows, columns) = self.padding, self.strides, self.kernel
        (high, wide), n = self.dilation, x.shape[0]
        each, many = self.data[1] // self.groups, self.channels // self.groups
        if top or left:
            x = self.padded(x)
        rc = te.reduce_axis((0, each), "rc")
        rh, rw = te.reduce_axis((0, rows), "rh"), te.reduce_axis((0, columns), "rw")
        height = (self.data[2] + 2 * top - (rows - 1) * high - 1) // down + 1
        width = (self.data[3] + 2 * left - (columns - 1) * wide - 1) // right + 1

        def value(i, o, y, z):
            first = 0 if self.groups == 1 else o // many * each
            place = (y * down + rh.var * high, z * right + rw.var * wide)
            return te.sum(
                x[(i, rc.var + first, *place)] * k[o, rc.var, rh.var, rw.var], [rc, rh, rw]
            )

        return te.compute((n, self.channels, height, width), value, name="conv")

    def padded(self, x):
        (top, left), (n, c, h, w) = self.padding, x.shape

        def value(i, j, y, z):
            inside = tir.all(y - top >= 0, y - top < h, z - left >= 0, z - left < w)
            return tir.if_then_else(inside, x[i, j, y - top, z - left], 0.0)

        return te.compute((n, c, h + 2 * top, w + 2 * left), value, name="padded")

    def meaning(self, x, k):
        (top, left), (down, right), (high, wide) = self.padding, self.strides, self.dilation
        x = np.pad(x.astype("float64"), [(0, 0), (0, 0), (top, top), (left, left)])
        reach = [(s - 1) * d + 1 for s, d in zip(self.kernel, self.dilation)]
        views = np.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
        views = views[:, :, ::down, ::right, ::high, ::wide]
        each = k.shape[1]
        views = views.reshape(len(x), self.groups, each, *views.shape[2:])
        k = k.astype("float64").reshape(self.groups, -1, *k.shape[1:])
        made = np.einsum("ngchwrs,gocrs->ngohw", views, k)
        return made.reshape(len(x), self.channels, *made.shape[3:])
