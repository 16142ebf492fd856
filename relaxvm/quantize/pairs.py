"""Scales for what layers read, and the function with values rounded to them.

    lv = R.nn.conv2d(x, w)       x_q = R.quantize(x, sx, zx)
    gv = R.nn.relu(lv)           x_r = R.dequantize(x_q, sx, zx)
                                 w_r = R.dequantize(w_q, sw, 0, axis=0)
                                 lv = R.nn.conv2d(x_r, w_r)
                                 gv = R.nn.relu(lv)

That is `calibrate`: still floats, but with the error of 8 bits in them. `realize` puts integers for
it, by `FakeQuantizationToInteger`; `quantize` is both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..ir import GlobalVar, IRModule
from ..relax import (
    Binding,
    Call,
    Constant,
    Function,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    const,
    op,
    transform,
)
from ..relax.flow import map_leaves
from ..relax.rewriter import BindingRewriter
from .config import QConfig, current_qconfig
from .layers import Layer, Layers, is_real, main_of, prepared
from .observed import Observed, arguments, observe
from .ranges import Grid, grid_of, weight_grid


def quantize(
    mod: IRModule, params: Mapping[str, Any] | None = None, dataset: Iterable[Any] | None = None
) -> IRModule:
    """`mod` with products and convolutions of its main function in 8 bits, under the current
    `qconfig`.

    params   {name: array}, bound first: weights should be constants
    dataset  inputs like those that the model will see, each a dict {name: array}, a tuple, or the
             only input; only calibrate_mode="global_scale" does without

    What has no form in integers stays in floats (`mod.explain()` says why), and so do the skipped
    layers. Raises PassError for a data set that is empty, or has other inputs or NaN in it.
    """
    return realize(calibrate(mod, dataset, params))


def calibrate(
    mod: IRModule, dataset: Iterable[Any] | None = None, params: Mapping[str, Any] | None = None
) -> IRModule:
    """`mod`, simplified, with what layers read rounded to 8 bits: a pair of `quantize` and
    `dequantize` around each. Arguments as for `quantize`.
    """
    config, mod = current_qconfig(), prepared(mod, params)
    gv = main_of(mod)
    layers = Layers.of(mod, gv)
    seen = ranges(mod, gv, layers, layers.chosen(config), dataset, config)
    return annotate(mod, layers, layers.chosen(config), seen, config)


def realize(mod: IRModule) -> IRModule:
    """`mod` with integers between its pairs of `quantize` and `dequantize`."""
    for each in (
        transform.ToNonDataflow(),
        transform.FakeQuantizationToInteger(use_qat=True),
        transform.FoldConstant(),  # what is added to sums, and weights that are turned
        transform.ConvertToDataflow(1),
    ):
        mod = each(mod)
    return mod


def ranges(
    mod: IRModule,
    gv: GlobalVar,
    layers: Layers,
    chosen: Sequence[Layer],
    dataset: Iterable[Any] | None,
    config: QConfig,
) -> dict[Any, Observed]:
    """What the values are that `chosen` layers need."""
    stored = layers.stored(chosen)
    added = [v for c in chosen for v in layers.beside.get(c.var, ()) if isinstance(v, Var)]
    if config.calibrate_mode == "global_scale":
        limit = float(config.global_scale)
        return {v: Observed(-limit, limit) for v in (*stored, *added)}
    rows = arguments(layers.fn, () if dataset is None else dataset)
    counted = () if config.calibrate_mode == "min_max" else stored
    return observe(mod, gv, [*stored, *(v for v in added if is_real(v.struct_info))], rows, counted)


def annotate(
    mod: IRModule,
    layers: Layers,
    chosen: Sequence[Layer],
    seen: Mapping[Any, Observed],
    config: QConfig,
) -> IRModule:
    """`mod`, whose function `layers` were read from, with what `chosen` ones read rounded to 8
    bits; `seen` says what it was.
    """
    grids = {v: grid_of(seen[v], config) for v in layers.stored(chosen)}
    gv = main_of(mod)
    rounded = _Pairs(layers, chosen, grids, seen, config).rewrite(layers.fn)
    annotated: IRModule = transform.ConvertToDataflow(1)(mod.clone({**mod.functions, gv: rounded}))
    return annotated


class _Pairs(BindingRewriter):
    """Rounds what layers read.

    real  variable -> the one that is read in its place
    """

    def __init__(
        self,
        layers: Layers,
        chosen: Sequence[Layer],
        grids: Mapping[Any, Grid],
        seen: Mapping[Any, Observed],
        config: QConfig,
    ) -> None:
        self.layers, self.grids, self.seen, self.config = layers, grids, seen, config
        self.chosen = {layer.var: layer for layer in chosen}
        self.real: dict[Any, Any] = {}
        self.first: list[Binding] = []

    def begin(self, fn: Function) -> None:
        for p in fn.params:
            if p in self.grids:
                self.first += self.pair(p)

    def prologue(self, fn: Function) -> Sequence[Binding]:
        return self.first

    def pair(self, x: Var) -> list[Binding]:
        """The bindings that round `x`."""
        grid = self.grids[x]
        parameters = const(grid.scale), const(grid.zero)
        down = op.quantize(x, *parameters, out_dtype=grid.dtype)
        stored = VarBinding(Var(f"{x.name_hint}_q", down.struct_info), down)
        up = op.dequantize(stored.var, *parameters)
        real = VarBinding(Var(f"{x.name_hint}_r", up.struct_info), up)
        self.real[x] = real.var
        return [stored, real]

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        value: Any = b.value
        out: list[Binding] = []
        if isinstance(value, (Call, Tuple, TupleGetItem)):
            value = map_leaves(value, lambda leaf: self.real.get(leaf, leaf))
        layer = self.chosen.get(b.var)
        if layer is not None:
            args = [
                self.weight(layer, a, k, out) if isinstance(a, Constant) else a
                for k, a in enumerate(value.args)
            ]
            value = value.replace(args=tuple(args))
        if value is b.value and b.var not in self.grids:
            return None
        out.append(b.replace(value=value))
        return [*out, *self.pair(b.var)] if b.var in self.grids else out

    def weight(self, layer: Layer, weight: Constant, place: int, out: list[Binding]) -> Var:
        """The weight of `layer`, rounded."""
        array = weight.data.numpy()
        axis = layer.axis if self.config.per_channel and place == 1 else None
        # What is added to the sums has to fit int32 in their scale, with room to add it.
        scales = [float(self.grids[self.layers.root(x)].scale) for x in layer.inputs]
        added = max((self.limit(e) for e in self.layers.beside.get(layer.var, ())), default=0.0)
        grid = weight_grid(array, axis, self.config, added / (min(scales) * 2**29))
        along = -1 if axis is None else axis
        stored = const(grid.stored(array, along))
        up = op.dequantize(stored, const(grid.scale), const(grid.zero), axis=along)
        out.append(VarBinding(Var(f"{layer.var.name_hint}_w", up.struct_info), up))
        return out[-1].var

    def limit(self, e: Any) -> float:
        """The greatest magnitude of what is added."""
        if isinstance(e, Constant):
            array = e.data.numpy()
            return float(np.abs(array).max(initial=0.0)) if np.isfinite(array).all() else 0.0
        return float(self.seen[e].limit) if e in self.seen else 0.0
