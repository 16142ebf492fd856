"""Sizes and numbers with which kernels are measured that have symbolic shapes or scalars."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from ..base import NamedTuple, ScheduleError, submodules, to_numpy_dtype
from ..ir import Var, walk
from ..runtime import made_up
from ..tir import PrimFunc, specialize
from .arg_info import ArgInfo

# Times the sizes of a run: where it is tuned, and where it must not be slower.
_FACTORS = (1.0, 0.25, 4.0)
_MOST_BYTES = 1 << 28
# What a scalar that is no integer counts as.
_FLOAT = 0.75


class Sized(NamedTuple):
    """A kernel with constant shapes and no scalars, which says what another one is called with; in
    words which sizes these are, "" where there is no symbol; and the other's scalars, by position.
    """

    fn: PrimFunc
    told: str = ""
    scalars: Mapping[int, int | float] = MappingProxyType({})


def sized(fn: PrimFunc, sizes: Mapping[str, int | float]) -> list[Sized]:
    """A kernel at some sizes of its symbols, those of a run first; itself if it has none. Scalars
    that are no sizes are the same everywhere.

    sizes  of symbols and scalars, by name; other integers count as `made_up.SIZE`

    Raises ScheduleError for a parameter that is an address.
    """
    shapes = [b.shape for b in fn.buffer_map.values()]
    symbols = list(dict.fromkeys(
        v for shape in shapes for dim in shape for v in walk(dim) if isinstance(v, Var)
    ))  # fmt: skip
    scalars = {p: _value_of(p, sizes) for p in fn.params if p not in fn.buffer_map}
    if not symbols and not scalars:
        return [Sized(fn)]
    several: dict[str, Sized] = {}
    for factor in _FACTORS:
        values = scalars | {s: max(1, int(_value_of(s, sizes) * factor)) for s in symbols}
        new = specialize(fn, values)
        infos = ArgInfo.from_prim_func(new)
        total = sum(math.prod(i.shape) * to_numpy_dtype(i.dtype).itemsize for i in infos)
        fits = total <= _MOST_BYTES and all(n > 0 for i in infos for n in i.shape)
        if fits or not several:
            told = ", ".join(f"{v.name}={n}" for v, n in values.items())
            own = {k: values[p] for k, p in enumerate(fn.params) if p in scalars}
            several.setdefault(told, Sized(new, told, own))
    return list(several.values())


def _value_of(param: Var, sizes: Mapping[str, int | float]) -> int | float:
    dtype = param.dtype
    if not (dtype.is_int or dtype.is_float or dtype.is_bool):
        raise ScheduleError(f"a kernel is measured with tensors and numbers; {param.name}: {dtype}")
    if dtype.is_float:
        return float(sizes.get(param.name, _FLOAT))
    return min(int(sizes.get(param.name, made_up.SIZE)), int(dtype.max_value))


__getattr__ = submodules(__name__)
