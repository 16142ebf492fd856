"""Patterns: what a value of a graph function has to look like.

    Pattern ::= wildcard() | is_var(name) | is_dfv(name) | is_gv(name) | is_const()
              | is_op(name) | is_expr(expr) | ExternFuncPattern(name) | is_shape(dims)
              | Pattern(Pattern, ...)                           a call
              | is_tuple([Pattern, ...]) | is_tuple_get_item(Pattern, index)
              | FunctionPattern([Pattern, ...], Pattern)
              | Pattern | Pattern      either          Pattern & Pattern      both
              | ~Pattern               not this
              | Pattern.has_dtype(d) | .has_shape(dims) | .has_attr({...}) | .has_struct_info(s)

Patterns are immutable and compared by identity: one object that stands twice in a pattern stands
for one and the same value. Inside a `with PatternContext()` they may be joined to a graph:

    a ^ b      a.used_by(b)        b reads what a gives
    a >> b     a.only_used_by(b)   ... and nothing else does
    a.same_shape_as(b)

Each kind says with what it matches in `step`, a step of the machine in `match.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, TypeVar

from ...base import DataType, PatternError, record
from ...base import dtype as as_dtype
from ...ir import GlobalVar, Node, Op, PrimExpr, descend, post_order, structural_equal
from ..expr import (
    Call,
    Constant,
    DataflowVar,
    ExternFunc,
    Function,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from ..struct_info import Expr, PrimStructInfo, StructInfo, TensorStructInfo
from ..symbols import known_dims
from .context import PatternContext
from .match import FAIL, Goals, Heads, Match, enter, enter_all, matches_in

P = TypeVar("P", bound="DFPattern")


class DFPattern:
    """A pattern; see the top of this file for the kinds."""

    def __call__(
        self, *args: DFPattern, varg_default_wildcard: bool = False, add_constraint: bool = True
    ) -> CallPattern:
        """A call of what this pattern matches; for the options see `CallPattern`."""
        return CallPattern(self, args, varg_default_wildcard, add_constraint)

    def __or__(self, other: DFPattern) -> OrPattern:
        return OrPattern(self, other)

    def __and__(self, other: DFPattern) -> AndPattern:
        return AndPattern(self, other)

    def __invert__(self) -> NotPattern:
        return NotPattern(self)

    def __add__(self, other: DFPattern) -> CallPattern:
        return is_op("relax.add")(self, other)

    def __sub__(self, other: DFPattern) -> CallPattern:
        return is_op("relax.subtract")(self, other)

    def __mul__(self, other: DFPattern) -> CallPattern:
        return is_op("relax.multiply")(self, other)

    def __truediv__(self, other: DFPattern) -> CallPattern:
        return is_op("relax.divide")(self, other)

    def optional(self, more: Callable[[DFPattern], DFPattern]) -> OrPattern:
        """This, or ``more(this)`` where that matches."""
        return more(self) | self

    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern:
        """This, with these attributes: of a call, an operator or a function."""
        return AttrPattern(self, attrs)

    def has_struct_info(self, struct_info: StructInfo) -> StructInfoPattern:
        """This, if it is certainly an instance of `struct_info`. Symbols in it stand for any size,
        each for the same one throughout the pattern.
        """
        return StructInfoPattern(self, struct_info)

    def has_dtype(self, dtype: DataType | str) -> DataTypePattern:
        """This, if it is a tensor (or scalar) of `dtype`."""
        return DataTypePattern(self, as_dtype(dtype))

    def has_shape(self, shape: Sequence[Any]) -> ShapePattern:
        """This, if it is a tensor whose shape is provably `shape`."""
        return ShapePattern(self, _dims(shape, "has_shape"))

    def match(self, expr: Node, var2val: Mapping[Var, Expr] | None = None) -> bool:
        """Whether `expr` looks like this.

        var2val  what variables are bound to (`relax.analysis.get_var2val`); what it knows is looked
                 through
        """
        return Match(var2val).run(self, expr)

    def extract_matched_expr(
        self, expr: Node, var2val: Mapping[Var, Expr] | None = None
    ) -> dict[DFPattern, Expr] | None:
        """What each part of this pattern stands for if `expr` looks like it, else None. Variables
        that `var2val` knows are given as their values.
        """
        match = Match(var2val)
        return match.values() if match.run(self, expr) else None

    def matches_all(self, where: Any) -> list[dict[DFPattern, Expr]]:
        """What `extract_matched_expr` gives for each binding in `where`, a function or a block,
        whose value looks like this, from top to bottom. Takes time linear in the bindings.
        """
        return [match.values() for _, match in matches_in(self, where)]

    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """What this matches is read by what `other` matches.

        index  which of the values that it reads, functions left out; -1 for any
        """
        return PatternSeq((self,)).used_by(other, index)

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """As `used_by`, and by nothing else: a variable visible outside of the block is not."""
        return PatternSeq((self,)).only_used_by(other, index)

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)

    def fork_to(self, *args: DFPattern | PatternSeq) -> None:
        """What this matches is read by each of `args`."""
        for each in args:
            self.used_by(each)

    def same_shape_as(self, *args: DFPattern) -> SameShapeConstraint:
        """What this and `args` match, in the current context, provably has one shape."""
        return SameShapeConstraint(self, *args)

    def dup(self: P) -> P:
        """A pattern like this of new objects, down to the last: it may match something else."""
        copy: P = _copies([self])[self]
        return copy

    # -- what each kind says

    around: ClassVar[tuple[str, ...]] = ()
    """The fields that hold patterns of the very same value."""

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        """The goals that are left of matching `place`, which end in `rest`; or FAIL."""
        raise NotImplementedError

    def heads(self, inner: list[Heads]) -> Heads:
        """The operators of calls that may match (see `match.heads`); `inner` are those of
        `head_parts`.
        """
        return inner[0] if inner else None

    @property
    def head_parts(self) -> tuple[DFPattern, ...]:
        """The parts that say what operator a call must have."""
        return tuple(getattr(self, name) for name in self.around)

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """The patterns that this is made of."""
        parts: list[DFPattern] = []
        for value in vars(self).values():
            each = value if isinstance(value, tuple) else (value,)
            parts += [p for p in each if isinstance(p, DFPattern)]
        return tuple(parts)

    def __repr__(self) -> str:
        shown = []
        for name, value in vars(self).items():
            if isinstance(value, DFPattern):
                value = f"<{type(value).__name__}>"
            elif isinstance(value, tuple):
                value = f"<{len(value)}>"
            shown.append(f"{name}={value}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _copies(patterns: Iterable[DFPattern]) -> dict[DFPattern, Any]:
    """pattern -> its copy, for `patterns` and all their parts"""
    copies: dict[DFPattern, Any] = {}

    def copied(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(copied, value))
        return copies[value] if isinstance(value, DFPattern) else value

    for root in patterns:
        for each in post_order(root, lambda p: p.parts):
            if each not in copies:
                held = [copied(getattr(each, f.name)) for f in fields(each)]
                copies[each] = type(each)(*held)
    return copies


def _checked(value: Any, what: str) -> DFPattern:
    if not isinstance(value, DFPattern):
        shown = f"{type(value).__name__}: {value!r}"
        raise PatternError(f"{what}: wanted a pattern, got {shown[:80]}; is_expr(...) makes one")
    return value


def _patterns(values: Any, what: str) -> tuple[DFPattern, ...]:
    if isinstance(values, DFPattern) or not isinstance(values, Iterable):
        raise PatternError(f"{what}: wanted a list of patterns, got {type(values).__name__}")
    return tuple(_checked(value, what) for value in values)


def _kept(pattern: DFPattern, name: str, value: Any) -> None:
    """Set a field to what it was checked to be."""
    object.__setattr__(pattern, name, value)


# -- leaves ---------------------------------------------------------------------------------------


@record(values=False)
class WildcardPattern(DFPattern):
    """Anything."""

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        return rest


@record(values=False)
class ExprPattern(DFPattern):
    """What is structurally equal to `expr`, often an operator."""

    expr: Any

    def __post_init__(self) -> None:
        if not isinstance(self.expr, (Expr, Op, GlobalVar)):
            raise PatternError(f"is_expr: wanted an expression, got {type(self.expr).__name__}")

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        value = match.value(place)
        if place is self.expr or value is self.expr:
            return rest
        alike = type(value) is type(self.expr) and not isinstance(value, Op)
        return rest if alike and structural_equal(value, self.expr) else FAIL

    def heads(self, inner: list[Heads]) -> Heads:
        return frozenset((self.expr,)) if isinstance(self.expr, Op) else None


@record(values=False)
class VarPattern(DFPattern):
    """A variable, bound or not, of the name `name_hint` ("" for any)."""

    name_hint: str = ""
    _kind: ClassVar[type[Var]] = Var

    def __post_init__(self) -> None:
        if not isinstance(self.name_hint, str):
            raise PatternError(f"a name is a string, got {type(self.name_hint).__name__}")

    @property
    def name(self) -> str:
        """The same as `name_hint`."""
        return self.name_hint

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        named = isinstance(place, self._kind) and self.name_hint in ("", place.name_hint)
        return rest if named else FAIL


class DataflowVarPattern(VarPattern):
    """A variable that is visible in its dataflow block only."""

    _kind = DataflowVar


class GlobalVarPattern(VarPattern):
    """A function of the module whose name contains `name_hint`."""

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        value = match.value(place)
        return rest if isinstance(value, GlobalVar) and self.name_hint in value.name_hint else FAIL


@record(values=False)
class ExternFuncPattern(DFPattern):
    """The packed function `global_symbol` ("" for any)."""

    global_symbol: str = ""

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        value = match.value(place)
        if isinstance(value, ExternFunc) and self.global_symbol in ("", value.global_symbol):
            return rest
        return FAIL


@record(values=False)
class ConstantPattern(DFPattern):
    """A constant array."""

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        return rest if isinstance(match.value(place), Constant) else FAIL


@record(values=False)
class PrimArrPattern(DFPattern):
    """A shape, as an argument is one, that is provably `fields`."""

    fields: tuple[PrimExpr, ...]

    def __post_init__(self) -> None:
        _kept(self, "fields", _dims(self.fields, "is_shape"))

    def __getitem__(self, index: int) -> PrimExpr:
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        value = match.value(place)
        if isinstance(value, ShapeExpr) and match.equal_dims(self.fields, value.values):
            return rest
        return FAIL


def _dims(shape: Any, what: str) -> tuple[PrimExpr, ...]:
    if not isinstance(shape, (list, tuple)):
        raise PatternError(f"{what}: wanted a list of dimensions, got {type(shape).__name__}")
    return ShapeExpr(shape).values


# -- calls, tuples, functions ---------------------------------------------------------------------

_EITHER_WAY = frozenset({"relax.add", "relax.multiply", "add", "multiply"})


@record(values=False)
class CallPattern(DFPattern):
    """A call of `op` with `args`; `relax.add` and `relax.multiply` either way around.

    varg_default_wildcard  further arguments may follow
    add_constraint         in a `PatternContext`: the call is used by what it is an argument of
    """

    op: DFPattern
    args: tuple[DFPattern, ...]
    varg_default_wildcard: bool = False
    add_constraint: bool = True

    def __post_init__(self) -> None:
        _checked(self.op, "a call")
        _kept(self, "args", _patterns(self.args, "a call"))
        context = PatternContext.current() if self.add_constraint else None
        if context is not None:
            for operand in operand_patterns(self):
                context.add_use(operand, self, None)

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        call = match.value(place)
        if not isinstance(call, Call):
            return FAIL
        wanted, args = self.args, call.args
        if len(args) != len(wanted) and not (
            self.varg_default_wildcard and len(args) > len(wanted)
        ):
            return FAIL
        first = enter, self.op, call.op, enter_all(wanted, args, rest)
        if getattr(call.op, "name", None) in _EITHER_WAY and len(wanted) == 2:
            swapped = enter, self.op, call.op, enter_all(wanted, args[::-1], rest)
            return match.alternatives((first, swapped))
        return first

    @property
    def head_parts(self) -> tuple[DFPattern, ...]:
        return (self.op,)


@record(values=False)
class TuplePattern(DFPattern):
    """A tuple of `fields`, in this order."""

    fields: tuple[DFPattern, ...]

    def __post_init__(self) -> None:
        _kept(self, "fields", _patterns(self.fields, "is_tuple"))

    def __getitem__(self, index: int | None) -> TupleGetItemPattern:
        if index is not None:
            if not -len(self.fields) <= index < len(self.fields):
                raise IndexError(f"a pattern of {len(self.fields)} fields has no field {index}")
            index %= len(self.fields)
        return TupleGetItemPattern(self, index)

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(len(self))])

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        value = match.value(place)
        if not isinstance(value, Tuple) or len(value.fields) != len(self.fields):
            return FAIL
        return enter_all(self.fields, value.fields, rest)


class UnorderedTuplePattern(TuplePattern):
    """A tuple of `fields`, in any order."""

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        value = match.value(place)
        if not isinstance(value, Tuple) or len(value.fields) != len(self.fields):
            return FAIL
        return _assign(match, self.fields, value.fields, rest)


def _assign(match: Match, patterns: Any, places: Any, rest: Goals) -> Goals:
    """Each of `patterns` matches another of `places`."""
    if not patterns:
        return rest
    return match.alternatives(
        [
            (enter, patterns[0], place, (_assign, patterns[1:], places[:i] + places[i + 1 :], rest))
            for i, place in enumerate(places)
        ]
    )


def operand_patterns(pattern: DFPattern) -> list[DFPattern]:
    """What the value that `pattern` matches reads, functions left out and tuples opened."""
    args: tuple[DFPattern, ...] = ()
    if isinstance(pattern, (CallPattern, TuplePattern)):
        args = pattern.args if isinstance(pattern, CallPattern) else pattern.fields
    elif isinstance(pattern, TupleGetItemPattern):
        args = (pattern.tuple_value,)
    opened = [p for arg in args for p in descend(arg, _opened)]
    return [p for p in opened if not isinstance(p, TuplePattern)]


def _opened(pattern: DFPattern) -> tuple[DFPattern, ...]:
    return pattern.fields if isinstance(pattern, TuplePattern) else ()


@record(values=False)
class TupleGetItemPattern(DFPattern):
    """Field `index` (None: any) of a tuple."""

    tuple_value: DFPattern
    index: int | None = None

    def __post_init__(self) -> None:
        _checked(self.tuple_value, "is_tuple_get_item")
        if self.index == -1:  # TVM's way to say any
            _kept(self, "index", None)

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        value = match.value(place)
        if not isinstance(value, TupleGetItem) or self.index not in (None, value.index):
            return FAIL
        return enter, self.tuple_value, value.tuple_value, rest


@record(values=False)
class FunctionPattern(DFPattern):
    """A function of `params` whose result is `body`."""

    params: tuple[DFPattern, ...]
    body: DFPattern

    def __post_init__(self) -> None:
        _kept(self, "params", _patterns(self.params, "FunctionPattern"))
        _checked(self.body, "FunctionPattern")

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        fn = match.value(place)
        if not isinstance(fn, Function) or len(fn.params) != len(self.params):
            return FAIL
        return enter_all((*self.params, self.body), (*fn.params, fn.body), rest)


# -- of the same value ----------------------------------------------------------------------------


@record(values=False)
class OrPattern(DFPattern):
    """What `left` matches, or else `right`."""

    left: DFPattern
    right: DFPattern
    around: ClassVar[tuple[str, ...]] = ("left", "right")

    def __post_init__(self) -> None:
        _checked(self.left, "|")
        _checked(self.right, "|")

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        either = self.left, self.right
        return match.alternatives([(enter, each, place, rest) for each in either])

    def heads(self, inner: list[Heads]) -> Heads:
        left, right = inner
        return None if left is None or right is None else left | right


@record(values=False)
class AndPattern(DFPattern):
    """What both `left` and `right` match."""

    left: DFPattern
    right: DFPattern
    around: ClassVar[tuple[str, ...]] = ("left", "right")

    def __post_init__(self) -> None:
        _checked(self.left, "&")
        _checked(self.right, "&")

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        return enter_all((self.left, self.right), (place, place), rest)

    def heads(self, inner: list[Heads]) -> Heads:
        left, right = inner
        return right if left is None else left if right is None else left & right


@record(values=False)
class NotPattern(DFPattern):
    """What `to_reject` does not match."""

    to_reject: DFPattern

    def __post_init__(self) -> None:
        _checked(self.to_reject, "~")

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        return match.unless(self.to_reject, place, rest)


@record(values=False)
class _Refined(DFPattern):
    pattern: DFPattern
    around: ClassVar[tuple[str, ...]] = ("pattern",)

    def holds(self, match: Match, place: Any) -> bool:
        """Whether `place` has what this asks for besides its pattern."""
        raise NotImplementedError

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        # After the pattern: what stands inside may say what symbols are.
        return enter, self.pattern, place, (_check, self, place, rest)


def _check(match: Match, pattern: _Refined, place: Any, rest: Goals) -> Goals:
    return rest if pattern.holds(match, place) else FAIL


@record(values=False)
class StructInfoPattern(_Refined):
    """What `pattern` matches, if it is certainly an instance of `struct_info`."""

    struct_info: StructInfo

    def __post_init__(self) -> None:
        _checked(self.pattern, "has_struct_info")
        if not isinstance(self.struct_info, StructInfo):
            shown = type(self.struct_info).__name__
            raise PatternError(f"has_struct_info: wanted struct info, got {shown}")

    def holds(self, match: Match, place: Any) -> bool:
        info = match.info(place)
        return info is not None and match.fits(self.struct_info, info)


@record(values=False)
class DataTypePattern(_Refined):
    """What `pattern` matches, if it is a tensor or scalar of `dtype`."""

    dtype: DataType

    def __post_init__(self) -> None:
        _checked(self.pattern, "has_dtype")
        _kept(self, "dtype", as_dtype(self.dtype))

    def holds(self, match: Match, place: Any) -> bool:
        info = match.info(place)
        return isinstance(info, (TensorStructInfo, PrimStructInfo)) and info.dtype is self.dtype


@record(values=False)
class ShapePattern(_Refined):
    """What `pattern` matches, if it is a tensor whose shape is provably `shape`."""

    shape: tuple[PrimExpr, ...]

    def __post_init__(self) -> None:
        _checked(self.pattern, "has_shape")
        _kept(self, "shape", _dims(self.shape, "has_shape"))

    def holds(self, match: Match, place: Any) -> bool:
        info = match.info(place)
        return isinstance(info, TensorStructInfo) and match.equal_dims(self.shape, info.dims)


@record(values=False)
class AttrPattern(_Refined):
    """What `pattern` matches, if it has these `attrs`: of a call, an operator, a function."""

    attrs: Mapping[str, Any]

    def __post_init__(self) -> None:
        _checked(self.pattern, "has_attr")
        if not isinstance(self.attrs, Mapping):
            raise PatternError(f"has_attr: wanted a dict, got {type(self.attrs).__name__}")
        _kept(self, "attrs", {name: _plain(value) for name, value in self.attrs.items()})

    def holds(self, match: Match, place: Any) -> bool:
        value = match.value(place)
        if isinstance(value, Op):
            return all(_same(v, _plain(value.get_attr(k))) for k, v in self.attrs.items())
        if not isinstance(value, (Call, Function, ExternFunc)):
            return False
        has: Mapping[str, Any] = value.attrs or {}
        return all(k in has and _same(v, _plain(has[k])) for k, v in self.attrs.items())


def _plain(value: Any) -> Any:
    """An attribute as it is compared: sequences are tuples, constants are numbers and strings."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    held = getattr(value, "value", None) if isinstance(value, Node) else None
    return held if isinstance(held, (int, float, str)) else value


def _same(wanted: Any, got: Any) -> bool:
    if isinstance(wanted, tuple) and isinstance(got, tuple):
        return len(wanted) == len(got) and all(map(_same, wanted, got))
    if isinstance(wanted, Node) or isinstance(got, Node):
        return isinstance(wanted, Node) and isinstance(got, Node) and structural_equal(wanted, got)
    return bool(got == wanted)


# -- graphs of patterns ---------------------------------------------------------------------------


class DFConstraint:
    """Something that has to hold between what several patterns match."""


class SameShapeConstraint(DFConstraint):
    """What `args` match provably has one shape; noted in the current `PatternContext`."""

    def __init__(self, *args: DFPattern) -> None:
        self.args = _patterns(args, "same_shape_as")
        context = PatternContext.current()
        if context is None:
            raise PatternError("same_shape_as: stands inside `with PatternContext():`")
        context.add_check(self)

    def holds(self, match: Match) -> bool:
        """Whether it holds, now that all are matched."""
        first, *others = [_shape_of(match.info(match.bound[p])) for p in self.args]
        return first is not None and all(match.equal_dims(first, dims) for dims in others)


def _shape_of(info: StructInfo | None) -> tuple[PrimExpr, ...] | None:
    if info is None or isinstance(info, TensorStructInfo):
        return None if info is None else info.dims
    return known_dims(info)


class PatternSeq:
    """Patterns of which each is used by the next; noted in the current `PatternContext`.

    only_use  by the next only
    """

    def __init__(self, patterns: Sequence[DFPattern], only_use: bool = False) -> None:
        self.patterns = _patterns(patterns, "PatternSeq")
        if not self.patterns:
            raise PatternError("PatternSeq: wanted at least one pattern")
        self._links = ((-1, only_use),) * (len(self.patterns) - 1)
        self._note()

    def _note(self) -> None:
        context = PatternContext.current()
        if context is not None:
            for a, b, (index, only) in zip(self.patterns, self.patterns[1:], self._links):
                context.add_use(a, b, index, only)

    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """The last is used by (the first of) `other`; the longer sequence."""
        return self._joined(other, (index, False))

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """The last is used by (the first of) `other` only; the longer sequence."""
        return self._joined(other, (index, True))

    def _joined(self, other: DFPattern | PatternSeq, link: tuple[int, bool]) -> PatternSeq:
        after = other if isinstance(other, PatternSeq) else PatternSeq((other,))
        return _sequence((*self.patterns, *after.patterns), (*self._links, link, *after._links))

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)

    def __getitem__(self, index: int) -> DFPattern:
        return self.patterns[index]

    def __len__(self) -> int:
        return len(self.patterns)

    def dup(self) -> PatternSeq:
        """A sequence like this of new patterns."""
        copies = _copies(self.patterns)
        return _sequence(tuple(copies[p] for p in self.patterns), self._links)


def _sequence(patterns: tuple[DFPattern, ...], links: Any) -> PatternSeq:
    sequence = object.__new__(PatternSeq)
    sequence.patterns, sequence._links = patterns, links
    sequence._note()
    return sequence


# -- short words ----------------------------------------------------------------------------------


def wildcard() -> WildcardPattern:
    """Anything."""
    return WildcardPattern()


def is_var(name: str = "") -> VarPattern:
    """A variable; `name` "" for any."""
    return VarPattern(name)


def is_dfv(name: str = "") -> DataflowVarPattern:
    """A variable that is visible in its dataflow block only; `name` "" for any."""
    return DataflowVarPattern(name)


def is_gv(name: str = "") -> GlobalVarPattern:
    """A function of the module whose name contains `name`."""
    return GlobalVarPattern(name)


def is_const() -> ConstantPattern:
    """A constant array."""
    return ConstantPattern()


def is_expr(expr: Any) -> ExprPattern:
    """What is structurally equal to `expr`."""
    return ExprPattern(expr)


def is_op(op_name: str) -> ExprPattern:
    """The operator ``"relax.nn.conv2d"``, to be called: ``is_op(...)(x, w)``. Raises TIRError if
    there is none of that name.
    """
    return ExprPattern(Op.get(op_name))


def is_tuple(fields: Sequence[DFPattern], unordered: bool = False) -> TuplePattern:
    """A tuple; `unordered`: of these fields in any order."""
    kind = UnorderedTuplePattern if unordered else TuplePattern
    return kind(_patterns(fields, "is_tuple"))


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """Field `index` (None: any) of a tuple."""
    return TupleGetItemPattern(tuple_value, index)


def is_shape(shape: Sequence[Any]) -> PrimArrPattern:
    """A shape as an argument, provably `shape`. For the shape of a tensor see `has_shape`."""
    return PrimArrPattern(_dims(shape, "is_shape"))


def has_dtype(dtype: DataType | str, pattern: DFPattern | None = None) -> DataTypePattern:
    """`pattern` (None: anything) of `dtype`."""
    return DataTypePattern(wildcard() if pattern is None else pattern, as_dtype(dtype))


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """`pattern` (None: anything) with attributes."""
    return AttrPattern(wildcard() if pattern is None else pattern, attrs)


def reject(pattern: DFPattern) -> NotPattern:
    """What `pattern` does not match."""
    return NotPattern(pattern)


_Args = Sequence[DFPattern] | TuplePattern | None


def _tuple_of(args: _Args) -> DFPattern:
    if args is None:
        return wildcard()
    return args if isinstance(args, DFPattern) else TuplePattern(_patterns(args, "arguments"))


def is_call_tir(
    func_name: str, args: _Args = None, tir_vars: DFPattern | None = None
) -> CallPattern:
    """A `call_tir` of a function whose name contains `func_name`.

    args      None: any
    tir_vars  None: there are none
    """
    more = () if tir_vars is None else (tir_vars,)
    called = (GlobalVarPattern(func_name), _tuple_of(args), *more)
    return is_op("relax.call_tir")(*called, add_constraint=False)


def is_call_dps_packed(func_name: str, args: _Args = None) -> CallPattern:
    """A `call_dps_packed` of the function `func_name`; `args` None: of any."""
    called = ExternFuncPattern(func_name), _tuple_of(args)
    return is_op("relax.call_dps_packed")(*called, add_constraint=False)


def is_call_packed(func_name: str, args: Sequence[DFPattern] | None = None) -> CallPattern:
    """A `call_packed` of the function `func_name`; `args` None: of any."""
    called = ExternFuncPattern(func_name)
    if args is None:
        return called(varg_default_wildcard=True, add_constraint=False)
    return called(*args)


def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None
) -> CallPattern:
    """``activation(op(x, w) + bias)``, the parts that are asked for: "relax.nn.conv2d" with
    "relax.nn.relu".
    """
    out = is_op(op_name)(wildcard(), wildcard())
    if with_bias:
        out = is_op("relax.add")(out, wildcard())
    return out if activation is None else is_op(activation)(out)
