"""What operators want of sizes, and what follows where sizes are not known.

    want_equal(a.dims[-1], b.dims[-2], "inner dimensions differ: {a} in x1, {b} in x2")

A rule states such a wish once, for sizes that are known. Inference refuses the call if it is proved
never to hold. Where that is in doubt, legalisation asks the rule again (`checks`): what it still
wants then, the program checks when it runs.

Sizes and ranks that are not known are no concern of a rule: `infer_unknown` asks it for symbols in
their place, and forgets what mentions them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer
from ...base import StructInfoError
from ...ir import IntImm, Max, Min, Not, PrimExpr, Select, const, is_const, walk
from ...ir import Var as TirVar
from .. import shape_facts
from ..derive import erase_to_well_defined, plain_text, prove_dims, struct_info_lca
from ..expr import Constant, DataTypeImm, ExternFunc, GlobalVar, PrimValue, StringImm, Tuple, Var
from ..rules import LowerBuilder, operator_name
from ..struct_info import (
    Expr,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)

ZERO = const(0, "int64")
ONE = const(1, "int64")

if TYPE_CHECKING:

    class KnownTensor(TensorStructInfo):
        """Struct info of a tensor as a rule sees it: of known rank and dimensions."""

        @property
        def dims(self) -> tuple[PrimExpr, ...]: ...

else:
    KnownTensor = TensorStructInfo

# -- expressions of sizes --------------------------------------------------------------------------


def size_analyzer(*exprs: PrimExpr) -> Analyzer:
    """An analyzer that takes the symbols of `exprs` for sizes that are not negative."""
    analyzer = Analyzer(wrap=False)
    seen: set[TirVar] = set()
    for e in exprs:
        for n in walk(e):
            if isinstance(n, TirVar) and n not in seen:
                seen.add(n)
                analyzer.bind_size(n)
    return analyzer


def simplified(e: PrimExpr) -> PrimExpr:
    """A size in its simplest form."""
    return e if isinstance(e, (IntImm, TirVar)) else Analyzer(wrap=False).simplify(e)


def least(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    """The lesser of two sizes, one of them if that can be proved."""
    if analyzer.can_prove(a <= b):
        return a
    return b if analyzer.can_prove(b <= a) else Min(a, b)


def most(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    """The greater of two sizes, one of them if that can be proved."""
    if analyzer.can_prove(a >= b):
        return a
    return b if analyzer.can_prove(b >= a) else Max(a, b)


# -- what is wanted --------------------------------------------------------------------------------


class _Program:
    """The program that checks what inference leaves in doubt."""

    def __init__(self, builder: LowerBuilder, operands: Mapping[str, Expr]) -> None:
        self.builder = builder
        self.operands = operands
        self.pairs: list[tuple[PrimExpr, PrimExpr]] = []
        self.in_doubt = False

    def broadcast(
        self, shapes: Sequence[Sequence[PrimExpr]], names: Sequence[str]
    ) -> tuple[PrimExpr, ...]:
        self.in_doubt = True
        shown = " and ".join(self.shown(n, s) for n, s in zip(names, shapes))
        call = self.builder.legalising
        what = f"{operator_name(call)} of {shown}" if call is not None else shown
        return shape_facts.broadcast_dims(self.builder, shapes, what)

    def shown(self, name: str, dims: Sequence[PrimExpr]) -> str:
        """An operand and its shape: ``x (n, 4)``."""
        operand = self.operands.get(name)
        if operand is not None:
            info = operand.struct_info
            dims = info.dims or dims if isinstance(info, TensorStructInfo) else dims
            name = operand.name_hint if isinstance(operand, Var) else name
        return f"{name} ({', '.join(map(plain_text, dims))})"


_PROGRAM: ContextVar[_Program | None] = ContextVar("program", default=None)


@contextmanager
def checks(builder: LowerBuilder, operands: Mapping[str, Expr]) -> Iterator[_Program]:
    """While it is open, what rules want of sizes is made sure of by the program that `builder`
    writes, if it is not proved; `in_doubt` of what it gives tells whether anything was not.

    operands  what the call is made of, by the names that the rule has for it
    """
    program = _Program(builder, operands)
    token = _PROGRAM.set(program)
    try:
        yield program
    finally:
        _PROGRAM.reset(token)
    if program.pairs:
        shape_facts.require_equal(builder, program.pairs)


def want_equal(a: PrimExpr, b: PrimExpr, text: str, **words: Any) -> None:
    """The sizes `a` and `b` are equal. Raises StructInfoError if they never are.

    text  the message, with ``{a}``, ``{b}`` and ``{word}`` for each of `words`
    """
    if a is b:
        return
    same = prove_dims(a, b)
    if same is False:
        raise _refusal(text, {"a": a, "b": b, **words})
    if same is None:
        _leave_to_program(a, b)


def want_same(a: Sequence[PrimExpr], b: Sequence[PrimExpr], text: str, **words: Any) -> None:
    """Two shapes of one rank are equal; see `want_equal`. ``{k}`` is the number of the axis."""
    for k, (have, wanted) in enumerate(zip(a, b)):
        want_equal(have, wanted, text, k=k, **words)


def want_multiple(size: PrimExpr, of: int, text: str, **words: Any) -> None:
    """`size` is a multiple of `of`; see `want_equal`. ``{size}`` is the size."""
    if not isinstance(size, IntImm) or size.value % of:
        want_equal(size % of, ZERO, text, size=size, **words)


def want_at_most(size: PrimExpr, most: PrimExpr, text: str, **words: Any) -> None:
    """`size` does not exceed `most`; see `want_equal`. The message knows them by these names."""
    if size is most:
        return
    analyzer = size_analyzer(size, most)
    if analyzer.can_prove(size > most):
        raise _refusal(text, {"size": size, "most": most, **words})
    if not analyzer.can_prove(size <= most):
        _leave_to_program(Min(size, most), size)


def want_broadcast(size: PrimExpr, target: PrimExpr, text: str, **words: Any) -> None:
    """An axis of `size` broadcasts to `target`: it is equal, or 1; see `want_equal`."""
    if size is target or is_const(size, 1):
        return
    same = prove_dims(size, target)
    if same is False and _is_not_one(size, target):
        raise _refusal(text, {"size": size, "target": target, **words})
    if same is not True:
        either = size if isinstance(size, IntImm) else Select(size.equal(ONE), target, size)
        _leave_to_program(either, target)


def want_true(condition: PrimExpr, text: str, **words: Any) -> None:
    """A condition on sizes holds; see `want_equal`."""
    analyzer = size_analyzer(condition)
    if analyzer.can_prove(Not(condition)):
        raise _refusal(text, words)
    if not analyzer.can_prove(condition):
        _leave_to_program(Select(condition, ONE, ZERO), ONE)


def _refusal(text: str, words: Mapping[str, Any]) -> StructInfoError:
    shown = {k: plain_text(v) if isinstance(v, PrimExpr) else v for k, v in words.items()}
    return StructInfoError(text.format(**shown))


def _leave_to_program(a: PrimExpr, b: PrimExpr) -> None:
    program = _PROGRAM.get()
    if program is not None:
        program.pairs.append((a, b))
        program.in_doubt = True


def broadcast_dims(
    shapes: Sequence[Sequence[PrimExpr]], names: Sequence[str], checked: bool = False
) -> tuple[PrimExpr, ...] | None:
    """numpy's broadcast of several shapes; None where it depends on what symbols turn out to be,
    unless a program is there to tell.

    checked  whether a size other than 1 decides, beside symbols
    Raises StructInfoError naming the two arguments if dimensions certainly do not fit.
    """
    ndim = max((len(s) for s in shapes), default=0)
    result: list[PrimExpr | None] = []
    sure = True
    for k in range(-ndim, 0):
        have = [(s[k], name) for s, name in zip(shapes, names) if len(s) >= -k]
        dim, doubtful = _broadcast_dim(have, k, checked)
        result.append(dim)
        sure = sure and not doubtful
    program = None if sure else _PROGRAM.get()
    if program is not None:
        told = program.broadcast(shapes, names)
        return tuple(t if d is None else d for d, t in zip(result, told))
    return None if any(d is None for d in result) else tuple(d for d in result if d is not None)


def _broadcast_dim(
    have: list[tuple[PrimExpr, str]], axis: int, checked: bool
) -> tuple[PrimExpr | None, bool]:
    """One axis of a broadcast, None where symbols decide; and whether it is in doubt."""
    chosen, whose = have[0]
    undecided = doubtful = False
    for dim, name in have[1:]:
        if dim is chosen or is_const(dim, 1):
            continue
        if is_const(chosen, 1):
            chosen, whose = dim, name
            continue
        same = prove_dims(chosen, dim)
        if same is False and _is_not_one(chosen, dim) and _is_not_one(dim, chosen):
            raise StructInfoError(
                f"the shapes do not broadcast: dimension {axis} is {plain_text(chosen)} in {whose} "
                f"and {plain_text(dim)} in {name}; wanted equal ones, or 1"
            )
        if same is not True:
            doubtful = True
            if checked and same is None and isinstance(chosen, IntImm):
                continue
            if checked and same is None and isinstance(dim, IntImm):
                chosen, whose = dim, name
                continue
            undecided = True
    return None if undecided else chosen, doubtful


def _is_not_one(size: PrimExpr, target: PrimExpr) -> bool:
    """Whether `size` is certainly not 1, where `target`, another size, is not negative."""
    analyzer = Analyzer(wrap=False)
    with analyzer.constraint_scope(target >= 0):
        return analyzer.can_prove(size != ONE)


# -- what is not known -----------------------------------------------------------------------------

_RANKS = 8
"""An argument of unknown rank is taken to have each rank up to this."""


def is_known(info: StructInfo | None) -> bool:
    """Whether `info` says all sizes and values of what it describes."""
    if isinstance(info, TensorStructInfo):
        return info.dims is not None
    if isinstance(info, ShapeStructInfo):
        return info.values is not None
    if isinstance(info, PrimStructInfo):
        return info.value is not None
    return not isinstance(info, TupleStructInfo) or all(map(is_known, info.fields))


_CONSTANTS = frozenset(
    {ShapeExpr, PrimValue, Constant, StringImm, DataTypeImm, GlobalVar, ExternFunc}
)


def are_known(values: Sequence[Any], fields: bool = True) -> bool:
    """Whether all sizes and scalars of arguments of a call are known.

    fields  whether to look at those of a tuple, whose struct info takes a while to make
    """
    for value in values:
        kind = type(value)
        if kind in _CONSTANTS:
            continue
        if kind is Tuple and fields:
            if not are_known(value.fields, False):
                return False
            continue
        info = value.struct_info
        if type(info) is TensorStructInfo and type(info.shape) is ShapeExpr:
            continue
        if not is_known(info):
            return False
    return True


def is_constant(info: StructInfo) -> bool:
    """Whether all sizes are numbers: nothing that a rule wants of them is left in doubt."""
    if isinstance(info, TupleStructInfo):
        return all(map(is_constant, info.fields))
    if isinstance(info, TensorStructInfo):
        sizes = info.dims
    else:
        sizes = info.values if isinstance(info, ShapeStructInfo) else None
    if sizes is None:
        return False
    for size in sizes:
        if type(size) is not IntImm:
            return False
    return True


def with_symbols(info: StructInfo, rank: Callable[[], int] | None = None) -> StructInfo:
    """`info` with symbols for dimensions and values that are not known.

    rank  gives one for each that is not known; without it what has none stays as it is
    """
    if is_known(info):
        return info
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo(tuple(with_symbols(f, rank) for f in info.fields))
    if isinstance(info, PrimStructInfo):
        return PrimStructInfo(value=TirVar("s", info.dtype))
    assert isinstance(info, (TensorStructInfo, ShapeStructInfo))
    ndim = rank() if info.ndim == -1 and rank is not None else info.ndim
    if ndim == -1:
        return info
    dims = tuple(TirVar(f"d{k}", "int64") for k in range(ndim))
    if isinstance(info, ShapeStructInfo):
        return ShapeStructInfo(dims)
    return TensorStructInfo(dims, info.dtype, info.vdevice)


def infer_unknown(rule: Callable[..., StructInfo], args: Sequence[Any]) -> StructInfo:
    """What `rule` says of `args`, some of which are not known: it is asked for symbols in their
    place, and what mentions these is forgotten. For an unknown rank it is asked for several: what
    all answers share is the answer.

    Raises the StructInfoError of the rule if there is no rank that it takes.
    """
    count = sum(map(_unknown_ranks, (getattr(a, "struct_info", None) for a in args)))
    answer: StructInfo | None = None
    errors: list[StructInfoError] = []
    for least in (1, 0):
        for ranks in _ranks(count, least):
            stand_ins = _StandIns(ranks)
            known = [stand_ins.argument(a) for a in args]
            try:
                info = stand_ins.erased(rule(*known))
            except StructInfoError as error:
                errors.append(error)
                continue
            answer = info if answer is None else struct_info_lca(answer, info)
            if not count or _says_nothing_of_ranks(answer):
                return answer
        if answer is not None:
            return answer
    # What is wrong with the rank that was tried says less than what is wrong with the rest.
    kinds = [str(e).partition(":")[0] for e in errors]
    raise min(errors, key=lambda e: kinds.count(str(e).partition(":")[0]))


def _unknown_ranks(info: StructInfo | None) -> int:
    if isinstance(info, TupleStructInfo):
        return sum(map(_unknown_ranks, info.fields))
    return int(isinstance(info, (TensorStructInfo, ShapeStructInfo)) and info.ndim == -1)


def _ranks(count: int, least: int) -> Iterator[tuple[int, ...]]:
    """Ranks to try for `count` arguments: equal ones, then ones of which one is different; of 0
    only if nothing else is left.
    """
    if count < 2:
        yield from ((r,) * count for r in (range(1, 2 * _RANKS + 1) if least else (0,)))
        return
    each = range(least, _RANKS + 1)
    yield from ((r,) * count for r in each)
    for r, other in itertools.permutations(each, 2):
        for k in range(count):
            yield (*[r] * k, other, *[r] * (count - k - 1))


def _says_nothing_of_ranks(info: StructInfo) -> bool:
    if isinstance(info, TupleStructInfo):
        return all(map(_says_nothing_of_ranks, info.fields))
    if isinstance(info, PrimStructInfo):
        return info.value is None
    return not isinstance(info, (TensorStructInfo, ShapeStructInfo)) or info.ndim == -1


class _StandIns:
    """Arguments with symbols for what is not known of them, and the way back.

    originals  a shape of symbols -> the variable that holds it
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks = iter(ranks)
        self.made: dict[Any, Any] = {}
        self.originals: dict[Expr, Expr] = {}
        self.symbols: set[TirVar] = set()

    def argument(self, arg: Any) -> Any:
        if are_known((arg,)):
            return arg
        if isinstance(arg, Tuple):
            return Tuple(tuple(map(self.argument, arg.fields)))
        if arg not in self.made:
            self.made[arg] = self.stand_in(arg, arg.struct_info)
        return self.made[arg]

    def stand_in(self, arg: Any, info: StructInfo) -> Expr:
        known = with_symbols(info, lambda: next(self.ranks))
        self.note(info, known)
        if isinstance(known, ShapeStructInfo) and known.values is not None:
            shape = ShapeExpr(known.values)
            if isinstance(arg, Var):
                self.originals[shape] = arg
            return shape
        if isinstance(known, PrimStructInfo) and known.value is not None:
            return PrimValue(known.value)
        return Var(getattr(arg, "name_hint", "x"), known)

    def note(self, info: StructInfo, known: StructInfo) -> None:
        if info is known:
            return
        if isinstance(info, TupleStructInfo) and isinstance(known, TupleStructInfo):
            for field, stand_in in zip(info.fields, known.fields):
                self.note(field, stand_in)
        elif isinstance(known, PrimStructInfo):
            self.remember((known.value,))
        elif isinstance(known, ShapeStructInfo):
            self.remember(known.values or ())
        elif isinstance(known, TensorStructInfo) and isinstance(info, TensorStructInfo):
            self.remember(known.dims or ())
            if info.shape is not None and known.shape is not None:
                self.originals[known.shape] = info.shape

    def remember(self, values: Sequence[PrimExpr | None]) -> None:
        self.symbols.update(v for v in values if isinstance(v, TirVar))

    def erased(self, info: StructInfo) -> StructInfo:
        """`info` without the symbols; the shape of an argument is the variable that held it."""
        if isinstance(info, TupleStructInfo):
            return TupleStructInfo(tuple(map(self.erased, info.fields)))
        if isinstance(info, TensorStructInfo) and info.shape in self.originals:
            return TensorStructInfo(self.originals[info.shape], info.dtype, info.vdevice)
        return erase_to_well_defined(info, lambda v: None if v in self.symbols else v)
