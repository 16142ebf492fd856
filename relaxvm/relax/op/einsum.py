"""einsum: sums of products by subscripts, as numpy reads them: implicit results, ellipsis, repeated
subscripts.

A label is a letter, or (for an axis under an ellipsis) how far it stands from the ellipsis' right
end. Several operands are contracted from the left, two at a time. A dimension that is known to be 1
broadcasts; others of one label must agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ... import te
from ...base import StructInfoError
from ...ir import PrimExpr, cast, const, is_const
from ..derive import common_vdevice, prove_dims
from ..expr import Call, Tuple
from ..rules import LowerBuilder, Ops
from ..struct_info import Expr, StructInfo, TensorStructInfo
from .infer import NUMBER, same_dtype, tensor_of, tensors
from .linalg import accumulator, np_accumulate
from .lower import call_te, rounded
from .manipulate import tuple_fields
from .record import missing, op
from .sizes import is_known, want_equal

Label = str | int
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def parse(subscripts: str, ranks: Sequence[int]) -> tuple[list[list[Label]], list[Label]]:
    """The labels of each operand's axes and of the result's.

    Raises StructInfoError if the subscripts make no sense or do not fit the ranks.
    """
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise StructInfoError(
            f"subscripts: {subscripts!r} is for {len(terms)} operands, got {len(ranks)}"
        )
    for term in (*terms, right):
        rest = term.replace("...", "", 1)
        bad = next((c for c in rest if c not in _LETTERS), None)
        if bad is not None:
            raise StructInfoError(
                f"subscripts: wanted letters, one '...' a term, ',' and '->'; got {bad!r} "
                f"in {subscripts!r}"
            )
    _check_result(terms, right, bool(arrow), subscripts)
    labels: list[list[Label]] = []
    for i, (term, rank) in enumerate(zip(terms, ranks)):
        letters = term.replace("...", "")
        hidden = rank - len(letters)
        if hidden < 0 or (hidden > 0 and "..." not in term):
            raise StructInfoError(
                f"operand {i}: {term!r} names {len(letters)} axes, it has {rank} dimensions"
            )
        before, _, after = term.partition("...")
        labels.append([*before, *range(hidden, 0, -1), *after] if "..." in term else list(term))
    under = max((label for t in labels for label in t if isinstance(label, int)), default=0)
    ellipsis: list[Label] = list(range(under, 0, -1))
    if not arrow:
        once = sorted(c for c in set(left) if c in _LETTERS and left.count(c) == 1)
        return labels, [*ellipsis, *once]
    if "..." in right:
        before, _, after = right.partition("...")
        return labels, [*before, *ellipsis, *after]
    if under:
        raise StructInfoError(
            f"subscripts: the result of {subscripts!r} needs '...' for the axes under the operands'"
        )
    return labels, list(right)


def _check_result(terms: list[str], right: str, explicit: bool, subscripts: str) -> None:
    if not explicit:
        return
    letters = right.replace("...", "")
    for c in letters:
        if letters.count(c) > 1:
            raise StructInfoError(f"subscripts: the result names {c!r} twice in {subscripts!r}")
        if not any(c in t for t in terms):
            raise StructInfoError(
                f"subscripts: {c!r} of the result is in no operand in {subscripts!r}"
            )


def _label_dims(
    labels: Sequence[Sequence[Label]], shapes: Sequence[Sequence[PrimExpr]]
) -> dict[Label, PrimExpr]:
    """How large each label is. Raises StructInfoError if two places certainly disagree."""
    dims: dict[Label, PrimExpr] = {}
    whose: dict[Label, int] = {}
    for i, (term, shape) in enumerate(zip(labels, shapes)):
        here: dict[Label, PrimExpr] = {}
        for label, dim in zip(term, shape):
            # Repeated subscripts never broadcast.
            text = "operand {i}: {label} stands for dimensions of {a} and {b}"
            want_equal(here.setdefault(label, dim), dim, text, i=i, label=_word(label))
        for label, dim in here.items():
            if label not in dims or is_const(dims[label], 1):
                dims[label], whose[label] = dim, i
            elif not is_const(dim, 1):
                text = "{label} is {a} in operand {first} and {b} in operand {i}"
                own = dims[label]
                want_equal(own, dim, text, label=_word(label), first=whose[label], i=i)
    return dims


def _word(label: Label) -> str:
    return f"subscript {label!r}" if isinstance(label, str) else f"axis {-label} of the ellipsis"


# -- meaning, legalisation, gradient ---------------------------------------------------------------


def _einsum_numpy(operands: Sequence[Any], *, subscripts: str) -> Any:
    arrays, result = np_accumulate(operands, None)
    return np.asarray(np.einsum(subscripts, *arrays)).astype(result)


def _einsum_lower(builder: LowerBuilder, call: Call) -> Expr:
    fields = tuple_fields(call.args[0])
    ranks = [tensor_of(f).ndim for f in fields]
    labels, result = parse(str(call.attrs["subscripts"]), ranks)
    return call_te(builder, call, _einsum_te, list(fields), labels=labels, result=result)


def _einsum_te(operands: Sequence[te.Tensor], *, labels: Any, result: Any) -> te.Tensor:
    dtype = operands[0].dtype
    wide = accumulator([dtype], dtype)
    dims: dict[Label, PrimExpr] = {}
    for x, term in zip(operands, labels):
        for label, dim in zip(term, x.shape):
            if label not in dims or is_const(dims[label], 1):
                dims[label] = dim
    total, own = operands[0], list(labels[0])
    if len(operands) == 1:
        total = _contract([(total, own)], result, dims, wide)
    for i in range(1, len(operands)):
        last = i == len(operands) - 1
        later = {label for term in labels[i + 1 :] for label in term}
        both = dict.fromkeys([*own, *labels[i]])
        keep = result if last else [b for b in both if b in later or b in result]
        total = _contract([(total, own), (operands[i], labels[i])], keep, dims, wide)
        own = list(keep)
    return rounded(total, dtype)


def _contract(
    pair: Sequence[tuple[te.Tensor, Sequence[Label]]],
    keep: Sequence[Label],
    dims: dict[Label, PrimExpr],
    wide: Any,
) -> te.Tensor:
    """The product of one or two tensors, summed over the labels not in `keep`."""
    summed = [label for label in dict.fromkeys(x for _, t in pair for x in t) if label not in keep]
    over = {label: te.reduce_axis((0, dims[label]), f"k{i}") for i, label in enumerate(summed)}

    def value(*index: PrimExpr) -> PrimExpr:
        places: dict[Label, PrimExpr] = dict(zip(keep, index))
        places.update({label: axis.var for label, axis in over.items()})
        product: Any = None
        for x, term in pair:
            own = [
                const(0, places[label].dtype) if is_const(dim, 1) else places[label]
                for label, dim in zip(term, x.shape)
            ]
            factor = cast(wide, x(*own))
            product = factor if product is None else product * factor
        if not over:
            return product
        return te.sum(product, axis=list(over.values()))

    return te.compute(tuple(dims[label] for label in keep), value, "einsum")


def _einsum_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr, ...]:
    """Operand i gets the product of gy and the others, with ones of its own for subscripts that
    only it has.
    """
    inputs: Any = call.args[0]
    fields = inputs.fields
    infos: list[Any] = [f.struct_info for f in fields]
    ranks = [i.ndim for i in infos]
    if -1 in ranks:
        raise StructInfoError("einsum: its gradient needs operands of known rank")
    terms, result = parse(str(call.attrs["subscripts"]), ranks)
    letters = iter(_LETTERS)
    names: dict[Label, str] = {}
    for label in dict.fromkeys(label for t in terms for label in t):
        names[label] = _fresh(letters)
    spelled = ["".join(names[label] for label in t) for t in terms]
    out = "".join(names[label] for label in result)
    grads = []
    for i, (x, info) in enumerate(zip(fields, infos)):
        operands = [gy, *(f for j, f in enumerate(fields) if j != i)]
        subscripts = [out, *(s for j, s in enumerate(spelled) if j != i)]
        own = ""
        for axis, c in enumerate(spelled[i]):
            if c in own:
                # A diagonal: the gradient is nothing off it.
                fresh = _fresh(letters)
                operands.append(ops.eye(info.dims[axis], dtype=info.dtype))
                subscripts.append(c + fresh)
                c = fresh
            own += c
        operands.append(ops.ones_like(x))
        subscripts.append(own)
        g = ops.einsum(tuple(operands), subscripts=f"{','.join(subscripts)}->{own}")
        have = tensor_of(g)
        same = is_known(have) and is_known(info)
        if not (same and all(prove_dims(a, b) for a, b in zip(have.dims, info.dims))):
            g = ops.collapse_sum_to(g, info.shape if info.shape is not None else ops.shape_of(x))
        grads.append(g)
    return (Tuple(tuple(grads)),)


def _fresh(letters: Iterator[str]) -> str:
    letter = next(letters, None)
    if letter is None:
        raise StructInfoError("einsum: its gradient needs more than 52 subscripts")
    return letter


@op(
    "einsum",
    numpy=_einsum_numpy,
    lower=_einsum_lower,
    grad=_einsum_grad,
    layout=missing("subscripts number axes by position"),
)
def einsum(operands: Expr, subscripts: str) -> StructInfo:
    """Sum of products by numpy's subscripts, as in ``einsum((a, b), "ij,jk->ik")``.

    Raises StructInfoError if subscripts do not parse or fit, if dtypes differ, or if dimensions of
    one letter certainly do.
    """
    infos = tensors(operands, "operands", NUMBER)
    if not infos:
        raise StructInfoError("operands: wanted at least one tensor")
    dtype = same_dtype(infos, [f"operand {i}" for i in range(len(infos))])
    labels, result = parse(subscripts, [i.ndim for i in infos])
    vdevice = common_vdevice(infos)
    dims = _label_dims(labels, [i.dims for i in infos])
    return TensorStructInfo([dims[label] for label in result], dtype, vdevice)
