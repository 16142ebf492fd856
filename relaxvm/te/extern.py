"""Tensors that statements make: `extern`, `extern_primfunc`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base import TIRError
from ..ir import Map, PrimExpr, Var
from ..tir import Block, Buffer, Evaluate, PrimFunc, Stmt, decl_buffer
from ..tir.analysis import get_block_access_region
from .operation import as_shape, current_tag
from .tensor import ExternOp, Tensor, same_size


def extern(
    shape: Any,
    inputs: Sequence[Tensor],
    fcompute: Callable[..., Any],
    name: str = "extern",
    dtype: Any = None,
    in_buffers: Any = None,
    out_buffers: Any = None,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Tensors that a statement makes.

    shape        of the result; a list of shapes for several
    inputs       the tensors that it reads
    fcompute     (ins, outs) -> a statement (such as an IR builder's ``ib.get()``) or a call of an
                 intrinsic, over buffers that stand for the inputs and the results
    dtype        of the result, or one for each; None: that of the inputs
    in_buffers, out_buffers   the buffers to hand to `fcompute`, if they shall be of a certain form

    Returns a Tensor, or a list of them for several shapes.

        C = te.extern((n,), [A], lambda ins, outs: double(ins[0], outs[0]))
    """
    what = f"extern {name}"
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for t in inputs:
        if not isinstance(t, Tensor):
            raise TIRError(f"{what}: wanted tensors as inputs, got {type(t).__name__}")
    ins = _buffers(in_buffers) or [decl_buffer(t.shape, t.dtype, t.name) for t in inputs]
    if len(ins) != len(inputs):
        raise TIRError(f"{what}: {len(inputs)} inputs but {len(ins)} in_buffers")
    for t, b in zip(inputs, ins):
        alike = b.ndim == t.ndim and b.dtype is t.dtype
        if not alike or not all(
            isinstance(d, Var) or same_size(d, e) for d, e in zip(b.shape, t.shape)
        ):
            raise TIRError(
                f"{what}: the buffer {b.name} of {_told(b)} cannot stand for the input {t.name} of "
                f"{_told(t)}"
            )
    outs = _buffers(out_buffers)
    if not outs:
        several = isinstance(shape, (list, tuple)) and any(
            isinstance(s, (list, tuple)) for s in shape
        )
        shapes = [as_shape(s, what) for s in (shape if several else [shape])]
        outs = [
            decl_buffer(s, d, name if len(shapes) == 1 else f"{name}_v{i}")
            for i, (s, d) in enumerate(zip(shapes, _dtypes(dtype, inputs, len(shapes), what)))
        ]
    body = fcompute(ins, outs)
    if isinstance(body, PrimExpr):
        body = Evaluate(body)
    if not isinstance(body, Stmt):
        raise TIRError(
            f"{what}: fcompute gives a statement or a call, got {type(body).__name__}: {body!r}"
        )
    op = ExternOp(
        name, tag or current_tag(), Map(attrs), tuple(inputs), tuple(ins), tuple(outs), body
    )
    results = [op.output(i) for i in range(len(outs))]
    return results[0] if len(results) == 1 else results


def extern_primfunc(input_tensors: Sequence[Tensor], primfunc: PrimFunc, **kwargs: Any) -> Any:
    """Tensors that a loop function makes: its buffer parameters that it reads are `input_tensors`
    in order, the others are the results.

    kwargs  further arguments of `extern`, such as `name`

    A buffer that is read and written is a result if nothing else is. Symbols of the function's
    shapes become the dimensions of the tensors. Returns a Tensor, or a list of them.
    """
    tensors = list(input_tensors)
    if not isinstance(primfunc, PrimFunc):
        raise TIRError(f"extern_primfunc: wanted a PrimFunc, got {type(primfunc).__name__}")
    reads, writes, _ = get_block_access_region(
        Block((), (), (), "body", primfunc.body), {b.data: b for b in primfunc.buffers}
    )
    read, written = {r.buffer for r in reads}, {w.buffer for w in writes}
    if not written:
        raise TIRError("extern_primfunc: the function writes none of its buffers")
    # What it neither reads nor writes comes in where an input is wanted.
    outputs = [b for b in primfunc.buffers if b in written and b not in read]
    inputs = [b for b in primfunc.buffers if b not in outputs]
    if not outputs:
        outputs = [next(b for b in reversed(inputs) if b in written)]
        inputs.remove(outputs[0])
    # A buffer that holds steps on the way is read and written, and comes after what is given.
    while len(inputs) > len(tensors) and inputs[-1] in written:
        outputs.append(inputs.pop())
    outputs.sort(key=list(primfunc.buffers).index)
    if len(inputs) != len(tensors):
        names = ", ".join(b.name for b in inputs) or "nothing"
        raise TIRError(f"extern_primfunc: the function reads {names}; got {len(tensors)} tensors")
    by_buffer = {b: p for p, b in primfunc.buffer_map.items()}
    fixed = {by_buffer[b]: decl_buffer(t.shape, t.dtype, b.name) for b, t in zip(inputs, tensors)}
    fitted = primfunc.specialize(fixed)
    ins = [fitted.buffer_map[by_buffer[b]] for b in inputs]
    outs = [fitted.buffer_map[by_buffer[b]] for b in outputs]
    return extern(
        [b.shape for b in outs],
        tensors,
        lambda *_: fitted.body,
        in_buffers=ins,
        out_buffers=outs,
        **{"name": str(primfunc.get_attr("global_symbol", "extern")), **kwargs},
    )


def _told(x: Any) -> str:
    return f"({', '.join(map(str, x.shape))}) {x.dtype}"


def _buffers(declared: Any) -> list[Buffer]:
    if declared is None:
        return []
    buffers = [declared] if isinstance(declared, Buffer) else list(declared)
    for b in buffers:
        if not isinstance(b, Buffer):
            raise TIRError(f"extern: wanted buffers, got {type(b).__name__}")
    return buffers


def _dtypes(dtype: Any, inputs: Sequence[Tensor], count: int, what: str) -> list[Any]:
    if isinstance(dtype, (list, tuple)):
        if len(dtype) != count:
            raise TIRError(f"{what}: {len(dtype)} dtypes for {count} shapes")
        return list(dtype)
    if dtype is not None:
        return [dtype] * count
    known = {t.dtype for t in inputs}
    if len(known) != 1:
        raise TIRError(f"{what}: say the dtype of the result; that of the inputs does not tell")
    return [known.pop()] * count
