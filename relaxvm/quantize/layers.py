"""Which calls of a function can be computed in integers, and what has to be stored for that.

lv = nn.conv2d(x, w)        a layer: its input is x, its weight w
lv1 = nn.relu(lv)           stored
lv2 = nn.max_pool2d(lv1)    what only moves elements moves the stored ones
lv3 = nn.conv2d(lv2, w1)    a layer: its input comes of lv1
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Any

import numpy as np

from ..base import PassError, declined, in_function, reachable, record
from ..ir import GlobalVar, IntImm, IRModule, Map, Op
from ..relax import Call, Constant, Function, TensorStructInfo, TupleGetItem, Var, transform
from ..relax.flow import leaves, name_of
from ..relax.known_ops import ops_named
from ..relax.transform.fake_quantization_to_integer import MOVES, RULES
from .config import QConfig

CONVOLUTIONS = ops_named("nn.conv1d nn.conv2d nn.conv3d nn.conv2d_transpose")
_MATMUL, _PAD = Op.get("relax.matmul"), Op.get("relax.nn.pad")
_OF_STORED = ops_named("nn.avg_pool2d nn.global_avg_pool2d mean concat")
"""Operators that are computed in integers if what they read is stored."""
_SUMS = ops_named("add subtract")

PREPARE = (
    transform.Normalize(),
    transform.InlinePrivateFunctions(),
    transform.DecomposeOpsForInference(),  # batch norms by their statistics; no dropout
    transform.CanonicalizeBindings(),
    transform.FoldConstant(),  # weights that are computed are constants, too
    transform.SimplifyExpr(),
    transform.FoldBatchnormToConv2D(),  # before quantising: factors of weights cost nothing then
    transform.FoldScaleAxis(),
    transform.FoldConstant(),
    transform.DeadCodeElimination(),
    transform.ToNonDataflow(),  # so that every value can be a result
)


def prepared(mod: IRModule, params: Any = None) -> IRModule:
    """`mod` as `Layers` reads it, and `quantize` goes on with: simplified for inference, with
    `params` ({name: array}) bound.
    """
    if not isinstance(mod, IRModule):
        raise PassError(f"quantize: wanted an IRModule, got {type(mod).__name__}")
    simple: Any = mod if not params else transform.BindParams(main_of(mod).name_hint, params)(mod)
    for each in PREPARE:
        simple = each(simple)
    return simple


def main_of(mod: IRModule) -> GlobalVar:
    """The function to quantise: `main`, or the only graph function."""
    graphs = [gv for gv, fn in mod.items() if isinstance(fn, Function)]
    chosen = [gv for gv in graphs if gv.name_hint == "main"] or graphs
    if len(chosen) != 1:
        names = ", ".join(gv.name_hint for gv in graphs) or "none"
        raise PassError(
            f"quantize: wanted a function main, or only one graph function; got {names}"
        )
    return chosen[0]


@record
class Layer:
    """A product or convolution.

    axis     of its weight, along which channels go; None: they have one scale
    """

    name: str
    var: Var
    call: Call
    axis: int | None

    @property
    def operator(self) -> str:
        """The name of its operator."""
        return name_of(self.call.op).removeprefix("relax.")

    @property
    def inputs(self) -> list[Var]:
        """The variables among its arguments."""
        return [a for a in self.call.args if isinstance(a, Var)]


@record(frozen=False)
class Layers:
    """The layers of a function in order, those in branches aside.

    every    the layers
    _root    variable -> what it has the elements of
    _needs   variable -> what is to be stored if it is
    beside   layer's variable -> what is added to it
    """

    fn: Function
    every: list[Layer] = field(default_factory=list)
    beside: dict[Any, list[Any]] = field(default_factory=dict)
    _root: dict[Any, Any] = field(default_factory=dict)
    _needs: dict[Any, list[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, mod: IRModule, gv: GlobalVar) -> Layers:
        """Those of the function `gv`."""
        fn = mod[gv]
        assert isinstance(fn, Function)
        with in_function(gv):
            return cls(fn)

    def __post_init__(self) -> None:
        names: dict[str, int] = {}
        owner: dict[Any, frozenset[Any]] = {}
        for block in self.fn.body.blocks:
            for b in block.bindings:
                if isinstance(b.value, (Call, TupleGetItem)):
                    self._follow(b.var, b.value)
                if not isinstance(b.value, Call) or not isinstance(b.value.op, Op):
                    continue
                if b.value.op is _MATMUL or b.value.op in CONVOLUTIONS:
                    why = _unfit(b.value)
                    if why:
                        declined("{} stays in floats: " + why, b)
                        continue
                    hint = b.var.name_hint
                    again = names[hint] = names.get(hint, 0) + 1
                    name = hint if again == 1 else f"{hint}#{again}"
                    self.every.append(Layer(name, b.var, b.value, _channels(b.value)))
                    owner[b.var] = frozenset((b.var,))
                elif b.value.op in RULES:
                    self._added(b.var, b.value, owner)

    def _follow(self, var: Var, value: Any) -> None:
        """Note what `var` has the elements of, or what it is computed of in integers."""
        if isinstance(value, TupleGetItem):
            self._root[var] = self._root.get(value.tuple_value, var)
        elif value.op in MOVES or (value.op is _PAD and _pads_zeros(value.attrs)):
            first = value.args[0]
            if isinstance(first, Var) and is_real(first.struct_info):
                self._root[var] = self.root(first)
        elif value.op in _OF_STORED:
            read = [v for v in leaves(value) if isinstance(v, Var)]
            self._needs[var] = [self.root(v) for v in read if is_real(v.struct_info)]

    def _added(self, var: Var, call: Call, owner: dict[Any, frozenset[Any]]) -> None:
        """Note what is added to sums of products, until something else is stored."""
        owners = [owner.get(a, frozenset()) for a in call.args]
        for mine, other in zip(owners, reversed(call.args)) if call.op in _SUMS else ():
            for layer in mine:
                self.beside.setdefault(layer, []).append(other)
        mine = frozenset().union(*owners)
        if mine:
            # Of sums of many layers, the last few: the others were added to these.
            owner[var] = mine if len(mine) <= 8 else max(owners, key=len)

    def root(self, x: Any) -> Any:
        """What is stored where `x` is read."""
        return self._root.get(x, x)

    def stored(self, layers: Iterable[Layer]) -> list[Var]:
        """The variables to store so that `layers` can be computed in integers."""
        roots = [self.root(x) for layer in layers for x in layer.inputs]
        return list(reachable(roots, lambda v: self._needs.get(v, ())))

    def chosen(self, config: QConfig) -> list[Layer]:
        """Those that `config` does not skip. Raises PassError for a name that no layer has."""
        known = [layer.name for layer in self.every]
        unknown = [n for n in config.skip_layers if n not in known]
        if unknown:
            raise PassError(
                f"qconfig: skip_layers: no layer is called {unknown[0]!r}; "
                f"there are {', '.join(known) or 'none'}"
            )
        convolutions = [layer for layer in self.every if layer.call.op in CONVOLUTIONS]
        skipped = {*config.skip_layers}
        skipped |= {
            convolutions[k].name for k in config.skip_conv_layers if k in range(len(convolutions))
        }
        skipped |= {*known[: int(config.skip_first)], *known[len(known) - int(config.skip_last) :]}
        if config.skip_dense_layer:
            skipped |= {layer.name for layer in self.every if layer.call.op is _MATMUL}
        return [layer for layer in self.every if layer.name not in skipped]


def is_real(info: Any) -> bool:
    """Whether `info` is of a tensor of float32 with known dimensions."""
    return (
        isinstance(info, TensorStructInfo)
        and info.dims is not None
        and str(info.dtype) == "float32"
    )


def _pads_zeros(attrs: Map) -> bool:
    return attrs["pad_mode"] != "constant" or attrs["pad_value"] == 0


def _unfit(call: Any) -> str:
    """Why a product or convolution cannot be a layer; "" if it can."""
    infos: list[Any] = [a.struct_info for a in call.args]
    if not all(is_real(i) for i in (*infos, call.struct_info)):
        return "it is not of float32 with known dimensions"
    if call.op is _MATMUL and min(len(i.dims) for i in infos) < 2:
        return "a vector is multiplied"
    if not any(isinstance(a, Var) for a in call.args):
        return "it is constant"
    if any(isinstance(a, Constant) and not np.isfinite(a.data.numpy()).all() for a in call.args):
        return "its weight is not finite"
    terms = _terms(call, infos)
    if terms is not None and terms * 255 * 128 >= 2**31:
        return f"int32 does not hold sums of {terms} products"
    return ""


def _terms(call: Any, infos: list[Any]) -> int | None:
    """How many products are summed, if that is known."""
    if call.op is _MATMUL:
        dims = infos[0].dims[-1:]
    else:
        letters = str(call.attrs["kernel_layout"])
        dims = [d for d, c in zip(infos[1].dims, letters) if c != "O"]
    known = all(isinstance(d, IntImm) for d in dims)
    return int(np.prod([d.value for d in dims])) if known else None


def _channels(call: Any) -> int | None:
    """The axis of output channels of a weight that may have a scale for each."""
    if not isinstance(call.args[1], Constant):
        return None
    if call.op is _MATMUL:
        return 1 if call.args[1].data.numpy().ndim == 2 else None
    transposed = call.op is Op.get("relax.nn.conv2d_transpose")
    axis = str(call.attrs["kernel_layout"]).find("O")
    return None if axis < 0 or (transposed and call.attrs["groups"] != 1) else axis
