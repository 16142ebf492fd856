"""Rules of algebra over the graph's operators, one line each.

    rule("exact", "permute_dims(p := permute_dims(x))", lambda call, p, x: ...)

The text is what is looked for, written as a call. A name stands for any value, and where it stands
twice for the same one; a number for a scalar or an array of nothing else (0 is not -0.0); and `p :=
...` names a part; `uniform` is any scalar or array of one number, (x, y) a tuple, and `each` one of
any length. A name in `GROUPS` stands for any operator of the group. Arguments that are left out may
be anything. The function asks for parts by their names, `call` being the whole, and gives what
stands for it, or None. A result that is not certainly of the struct info of `call` is not taken:
rules need not say that a zero must not be the larger operand.

Of `each` the function gets ``[(field, its value, the value it is a field of)]``.

A rule's numerics are a pass's: "exact" means the same bits, but for the sign of a NaN.
"""

from __future__ import annotations

import ast
import functools
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...base import DataType, PassError, decided, record
from ...ir import IntImm, Op, PassContext
from ...ir.transform import NUMERICS
from ..derive import is_base_of
from ..dpl import DFPattern, ExprPatternRewriter, PatternMatchingRewriter, is_tuple, wildcard
from ..dpl.match import FAIL, Goals, Heads, Match, enter_all
from ..expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from ..known_ops import ops_named
from ..renamings import drop_renamings
from ..struct_info import TensorStructInfo, TupleStructInfo
from ..symbols import known_dims

GROUPS = {
    "reshaped": "reshape flatten expand_dims squeeze",
    "moved": """
        reshape flatten expand_dims squeeze permute_dims broadcast_to strided_slice flip tile repeat
        roll
    """,
    "binary": """
        add subtract multiply divide power floor_divide floor_mod mod maximum minimum equal
        not_equal less less_equal greater greater_equal logical_and logical_or logical_xor
        bitwise_and bitwise_or bitwise_xor left_shift right_shift
    """,
    "unary": """
        abs acos acosh asin asinh atan atanh bitwise_not clip cos cosh erf exp expm1 isfinite isinf
        isnan log log10 log1p log2 logical_not negative rsqrt sigmoid sign sin sinh sqrt square tan
        tanh nn.gelu nn.gelu_tanh nn.hardsigmoid nn.hardswish nn.leakyrelu nn.relu nn.relu6 nn.silu
    """,
    "rounded": "floor ceil round trunc",
    "idempotent": "abs sign nn.relu nn.relu6",
    "involution": "negative bitwise_not logical_not",
    "ring": "add multiply",
    "convolution": "nn.conv1d nn.conv2d nn.conv3d",
    "max_pool": "nn.max_pool1d nn.max_pool2d nn.max_pool3d",
    "avg_pool": "nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d",
    "filled": "zeros ones zeros_like ones_like full_like",
    "either": "maximum minimum bitwise_and bitwise_or logical_and logical_or",
}


_EITHER_WAY = ops_named("add multiply")


@record(values=False)
class Rule:
    """One rule; see the top of this file."""

    numerics: str
    text: str
    pattern: DFPattern
    parts: Mapping[str, DFPattern]
    result: Callable[..., Any]

    @property
    def __name__(self) -> str:
        return f"for {self.text}"

    def __call__(self, call: Call, matched: Mapping[Any, Any]) -> Any:
        """What stands for `call`, given what the parts of the pattern are."""
        if not _has_sizes(call.struct_info):
            return None  # any value would be an instance of it
        arguments = {
            name: part.given(matched) if isinstance(part, _Each) else matched[part]
            for name, part in self.parts.items()
        }
        replacement = self.result(**arguments)
        if replacement is None or not is_base_of(call.struct_info, replacement.struct_info):
            return None
        decided("{} is an instance of {}", call, self.text)
        return replacement


def rule(numerics: str, text: str, result: Callable[..., Any]) -> Rule:
    """A rule; see the top of this file."""
    parser = _Parser()
    parser.parts["call"] = pattern = parser.pattern(ast.parse(text, mode="eval").body)
    wanted = {name: parser.parts[name] for name in inspect.signature(result).parameters}
    return Rule(numerics, text, pattern, wanted, result)


def rewritten(
    fn: Function, mod: Any, ctx: PassContext, rules: tuple[Rule, ...], numerics: str = "exact"
) -> Function:
    """`fn` with `rules` applied until none does anything, as far as they are no looser than
    `numerics` and the context allow; the same object if there is nothing to do.

    Takes time linear in the bindings. Raises PatternError naming rules that undo each other.
    """
    if numerics not in NUMERICS:
        raise PassError(f"numerics is one of {', '.join(NUMERICS)}, got {numerics!r}")
    loosest = min(NUMERICS.index(n) for n in (numerics, ctx.get("numerics")))
    new = _rewriter(rules, loosest).rewrite(fn, mod)
    return fn if new is fn else drop_renamings(new)


@functools.cache
def _rewriter(rules: tuple[Rule, ...], loosest: int) -> PatternMatchingRewriter:
    chosen = [r for r in rules if NUMERICS.index(r.numerics) <= loosest]
    each = [ExprPatternRewriter(r.pattern, r) for r in chosen]
    return functools.reduce(operator.or_, each)


# -- patterns -------------------------------------------------------------------------------------


class _Parser:
    """Makes the pattern of a rule's text."""

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}

    def pattern(self, e: ast.expr) -> Any:
        if isinstance(e, ast.NamedExpr):
            return self.parts.setdefault(e.target.id, self.pattern(e.value))
        if isinstance(e, ast.Name):
            kind = {"each": _Each, "uniform": _Number}.get(e.id, wildcard)
            return self.parts.setdefault(e.id, kind())
        if isinstance(e, ast.Tuple):
            return is_tuple([self.pattern(f) for f in e.elts])
        if isinstance(e, ast.Call):
            name = ast.unparse(e.func)
            args = tuple(self.pattern(a) for a in e.args)
            return _Apply(ops_named(GROUPS.get(name, name)), args)
        return _Number(ast.literal_eval(e))


class _Quick(DFPattern):
    """A pattern that most values are seen at once not to match."""

    def may_match(self, value: Any) -> bool:
        """Whether `value` may match."""
        raise NotImplementedError


@record(values=False)
class _Apply(_Quick):
    """A call of one of `ops` with at least `args`; add and multiply either way around."""

    ops: frozenset[Op]
    args: tuple[DFPattern, ...]

    def may_match(self, value: Any) -> bool:
        return type(value) is Call and value.op in self.ops

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        call = match.value(place)
        if not self.may_match(call) or len(call.args) < len(self.args):
            return FAIL
        goals = self.goals(match, call.args, rest)
        if not self.ops <= _EITHER_WAY:
            return goals
        both = (goals, self.goals(match, call.args[::-1], rest))
        return match.alternatives([each for each in both if each is not FAIL])

    def goals(self, match: Match, places: tuple[Any, ...], rest: Goals) -> Goals:
        for part, place in zip(self.args, places):
            if isinstance(part, _Quick) and not part.may_match(match.value(place)):
                return FAIL
        return enter_all(self.args, places, rest)

    def heads(self, inner: list[Heads]) -> Heads:
        return self.ops


@record(values=False)
class _Number(_Quick):
    """A scalar or an array of nothing but `number`, or one number."""

    number: Any = None

    def may_match(self, value: Any) -> bool:
        single = splat(value)
        if self.number is None:
            return single is not None
        if single is None or isinstance(self.number, bool) != isinstance(single, np.bool_):
            return False
        wanted, number = float(self.number), float(single)
        return number == wanted and np.signbit(number) == np.signbit(wanted)

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        return rest


@record(values=False)
class _Each(DFPattern):
    """A tuple of any length, whose fields are looked through, and tuples that they are taken of."""

    def step(self, match: Match, place: Any, rest: Goals) -> Goals:
        value = match.value(place)
        if not isinstance(value, Tuple):
            return FAIL
        for field in value.fields:
            item = match.value(field)
            held = item.tuple_value if isinstance(item, TupleGetItem) else None
            for each in (field, held):
                if isinstance(each, Var) and (self, each) not in match.bound:
                    match.bind((self, each), each)
        return rest

    def given(self, matched: Mapping[Any, Any]) -> list[tuple[Any, Any, Any]]:
        """What a rule is given of it."""
        fields = []
        for field in matched[self].fields:
            value = matched.get((self, field), field)
            held = value.tuple_value if isinstance(value, TupleGetItem) else None
            fields.append((field, value, matched.get((self, held), held)))
        return fields


# -- what rules ask -------------------------------------------------------------------------------


def dims_of(value: Any) -> Any:
    """The dimensions of a tensor, or None if they are not known."""
    info = value.struct_info
    return known_dims(info) if isinstance(info, TensorStructInfo) else None


def _has_sizes(info: Any) -> bool:
    """Whether each dimension of the tensors in `info` is a number or has a name."""
    if isinstance(info, TupleStructInfo):
        return all(map(_has_sizes, info.fields))
    return not isinstance(info, TensorStructInfo) or known_dims(info) is not None


def static_sizes(value: Any) -> list[int] | None:
    """The dimensions of a tensor if all are numbers."""
    dims = dims_of(value)
    if dims is None or not all(isinstance(d, IntImm) for d in dims):
        return None
    return [int(d.value) for d in dims]


def dtype_of(value: Any) -> DataType:
    return getattr(value.struct_info, "dtype", DataType("void"))


_ONES = ops_named("ones ones_like")
_ZEROS = ops_named("zeros zeros_like")
_FULL = ops_named("full full_like")


def splat(value: Any) -> Any:
    """The numpy scalar that each element of a constant, or of what `full`, `zeros` and the like
    give, is. None for other values, empty arrays, and dtypes that numpy does not have.
    """
    if isinstance(value, Call):
        info: Any = value.struct_info
        if value.op in _FULL:
            filling = splat(value.args[1])
            same = filling is not None and isinstance(info, TensorStructInfo)
            return filling if same and str(info.dtype) == filling.dtype.name else None
        if value.op in _ONES or value.op in _ZEROS:
            dtype = numpy_dtype(info)
            return None if dtype is None else dtype.type(value.op in _ONES)
        return None
    if not isinstance(value, Constant) or numpy_dtype(value.struct_info) is None:
        return None
    flat = value.data.numpy().reshape(-1)
    if not flat.size or not _alike(flat[0], flat[-1]):
        return None
    return flat[0] if flat.size == 1 or _alike(flat, flat[0]) else None


def numpy_dtype(info: Any) -> Any:
    """The numpy dtype of tensors of `info`, or None if numpy has none."""
    if not isinstance(info, TensorStructInfo) or info.dtype == "void":
        return None
    dtype = info.dtype
    if dtype.is_bits or dtype.is_string or dtype.lanes > 1 or dtype.bits == 1 != dtype.is_bool:
        return None
    return np.dtype(str(dtype))


def _alike(a: Any, b: Any) -> bool:
    """Whether all numbers are equal, zeros with their signs."""
    same = np.all(a == b)
    if not same or not np.issubdtype(a.dtype, np.floating):
        return bool(same)
    return bool(np.all(np.signbit(a) == np.signbit(b)))
