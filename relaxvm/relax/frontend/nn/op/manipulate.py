"""Operators that move elements, and those that make tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....base import FrontendError, submodules
from .....ir import FloatImm, IntImm, PrimExpr
from .....ir import Var as TirVar
from ....block_builder import BlockBuilder
from ....expr import Tuple
from ....op import arange as _arange
from ....op import concat as _concat
from ....op import full as _full
from ....op import stack as _stack
from ....op import take as _take
from ....op import zeros as _zeros
from ....op.builtin import alloc_tensor
from ....op.sizes import size_analyzer
from ....struct_info import ShapeExpr, TensorStructInfo, as_dim
from ..tensor import Tensor, apply, current_builder, operand, wrap_nested
from ..tree import get_default_dtype

__getattr__ = submodules(__name__)


def matmul(a: Tensor, b: Tensor, out_dtype: Any = None, name: str = "matmul") -> Tensor:
    """Matrix product [..., m, k] x [..., k, n] -> [..., m, n]; leading axes broadcast.

    out_dtype  the dtype of sums and result; None: that of the inputs
    """
    return apply("matmul", a, b, out_dtype=out_dtype, hint=name)


def reshape(x: Tensor, shape: Sequence[Any], name: str = "reshape") -> Tensor:
    """The elements of `x` in row-major order in another shape; one -1 stands for what is left."""
    return apply("reshape", x, shape=list(shape), hint=name)


def flatten(x: Tensor, name: str = "flatten") -> Tensor:
    """The elements of `x` along one axis."""
    return apply("flatten", x, hint=name)


def permute_dims(x: Tensor, axes: Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """The axes of `x` in another order; reversed for None."""
    return apply("permute_dims", x, axes=axes, hint=name or "permute_dims")


def permute(x: Tensor, axes: Sequence[int] | None, name: str = "permute") -> Tensor:
    """The same as `permute_dims`."""
    return permute_dims(x, axes, name)


def broadcast_to(x: Tensor, shape: Sequence[Any], name: str = "broadcast_to") -> Tensor:
    """`x` repeated along its axes of size 1 (and new leading ones) to `shape`."""
    return apply("broadcast_to", x, shape=list(shape), hint=name)


def repeat(x: Tensor, repeats: int, axis: int | None = None, name: str = "repeat") -> Tensor:
    """Each element of `x` `repeats` times along `axis`; None: of the flattened tensor."""
    return apply("repeat", x, repeats=repeats, axis=axis, hint=name)


def squeeze(x: Tensor, axis: int | Sequence[int] | None = -1, name: str = "squeeze") -> Tensor:
    """`x` without the axes `axis`, which have size 1 (None: all of size 1)."""
    return apply("squeeze", x, axis=axis, hint=name)


def unsqueeze(x: Tensor, dim: int, name: str = "unsqueeze") -> Tensor:
    """`x` with an axis of size 1 put in at `dim`."""
    return apply("expand_dims", x, axis=dim, hint=name)


def expand_dims(x: Tensor, axis: int | Sequence[int], name: str = "expand_dims") -> Tensor:
    """`x` with axes of size 1 put in at `axis`."""
    return apply("expand_dims", x, axis=axis, hint=name)


def astype(x: Tensor, dtype: Any, name: str = "astype") -> Tensor:
    """`x` converted to `dtype`; itself if it has it already."""
    if x.dtype == dtype:
        return x
    return apply("astype", x, dtype=dtype, hint=name)


def take(
    x: Tensor, indices: Tensor, axis: int | None = None, name: str = "take", mode: str = "fast"
) -> Tensor:
    """The elements of `x` at `indices` along `axis`: that axis gets the shape of `indices`.

    mode  "fast": indices must be right; "clip", "wrap", "nan": what else is meant by wrong ones
    """
    call = _take(operand(x, None, name), operand(indices, None, name), axis=axis, mode=mode)
    return wrap_nested(call, name)


def _fields(tensors: Any, what: str) -> Tuple:
    if isinstance(tensors, Tensor) or not isinstance(tensors, (list, tuple)):
        raise FrontendError(f"{what}: wanted a list of tensors, got {type(tensors).__name__}")
    return Tuple(tuple(operand(t, None, f"{what}: item {i}") for i, t in enumerate(tensors)))


def concat(x: Sequence[Tensor], dim: int, name: str = "concat") -> Tensor:
    """The tensors one after the other along `dim`; their other dimensions are equal."""
    return wrap_nested(_concat(_fields(x, name), axis=dim), name)


def stack(x: Sequence[Tensor], dim: int = 0, name: str = "stack") -> Tensor:
    """The tensors, of one shape, along a new axis `dim`."""
    return wrap_nested(_stack(_fields(x, name), axis=dim), name)


def split(
    ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0, name: str = "split"
) -> tuple[Tensor, ...]:
    """Parts of a tensor along `axis`: so many equal ones, or cut before each of the indices."""
    parts: Any = indices_or_sections
    if not isinstance(parts, int):
        parts = [int(p) for p in parts]
    return apply("split", ary, indices_or_sections=parts, axis=axis, hint=name)


def chunk(x: Tensor, chunks: int, dim: int = 0, name: str = "chunk") -> tuple[Tensor, ...]:
    """`chunks` parts of a tensor along `dim`, of equal size but for the last."""
    return apply("split", x, indices_or_sections=chunks, axis=dim, hint=name)


def pad(
    x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0, name: str = "pad"
) -> Tensor:
    """`x` with `pad` = [before, after of axis 0, before, after of axis 1, ...] elements around it.

    mode  "constant" (of `value`), "reflect", "replicate" or "circular"
    """
    return apply("nn.pad", x, pad_width=list(pad), pad_mode=mode, pad_value=value, hint=name)


def triu(x: Tensor, diagonal: int = 0, name: str = "triu") -> Tensor:
    """The upper triangle of each matrix, from the diagonal of that number on; 0 elsewhere."""
    return apply("triu", x, k=diagonal, hint=name)


def tril(x: Tensor, diagonal: int = 0, name: str = "tril") -> Tensor:
    """The lower triangle of each matrix, up to the diagonal of that number; 0 elsewhere."""
    return apply("tril", x, k=diagonal, hint=name)


# -- new tensors ----------------------------------------------------------------------------------


def full(shape: Sequence[Any], fill_value: Any, dtype: Any = "float32", name: str = "full") -> Any:
    """A tensor of one value: a number, a scalar constant, or a tensor of one element."""
    if isinstance(fill_value, (IntImm, FloatImm)):
        fill_value = fill_value.value
    if isinstance(fill_value, (bool, int, float)):
        fill_value = Tensor.from_scalar(fill_value, dtype)
    if not isinstance(fill_value, Tensor):
        raise FrontendError(f"full: wanted a number or a Tensor, got {type(fill_value).__name__}")
    return wrap_nested(_full(ShapeExpr(list(shape)), fill_value._expr, dtype), name)


def zeros(shape: Sequence[Any], dtype: Any = "float32", name: str = "zeros") -> Tensor:
    """A tensor of zeros."""
    return wrap_nested(_zeros(ShapeExpr(list(shape)), dtype), name)


def ones(shape: Sequence[Any], dtype: Any = "float32", name: str = "ones") -> Tensor:
    """A tensor of ones."""
    return full(shape, 1, dtype, name)


def zeros_like(x: Tensor, dtype: Any = None, name: str = "zeros_like") -> Tensor:
    """Zeros of the shape (and dtype) of `x`."""
    return zeros(x.shape, dtype or x.dtype, name)


def ones_like(x: Tensor, dtype: Any = None, name: str = "ones_like") -> Tensor:
    """Ones of the shape (and dtype) of `x`."""
    return ones(x.shape, dtype or x.dtype, name)


def empty(shape: Sequence[Any], dtype: Any = "float32", name: str = "empty") -> Tensor:
    """A tensor whose elements nobody set."""
    builder: BlockBuilder = current_builder("empty")
    return Tensor(_expr=builder.emit(alloc_tensor(ShapeExpr(list(shape)), dtype), name))


def arange(
    start: Any, end: Any = None, step: Any = 1, dtype: Any = None, name: str = "arange"
) -> Tensor:
    """start, start + step, ... as long as below `end`; ``arange(n)`` begins at 0.

    Bounds may be sizes such as ``x.shape[0]``. dtype None: the default float dtype.
    """
    for value in (start, end, step):
        if value is not None and not isinstance(value, (int, float, PrimExpr)):
            raise FrontendError(f"arange: wanted a number, got {type(value).__name__}")
    call = _arange(start, end, step, dtype or get_default_dtype())
    info = call.struct_info
    assert isinstance(info, TensorStructInfo)
    dims = info.dims
    if end is None or step != 1 or dims is None or isinstance(dims[0], (IntImm, TirVar)):
        return wrap_nested(call, name)
    # Symbols are sizes here, so that max(n, 0) is n; the program checks it.
    count = as_dim(end) - as_dim(start)
    analyzer = size_analyzer(count)
    if not analyzer.can_prove(count >= 0):
        return wrap_nested(call, name)
    info = TensorStructInfo([analyzer.simplify(count)], info.dtype)
    return Tensor(_expr=current_builder("arange").match_cast(call, info, name))
