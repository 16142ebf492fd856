"""Scalar and vector expressions to C, each the text of one C expression.

The text of a vector is that of its lane `lane`; where all lanes are wanted at once it becomes an
array. What is used more than once, or grows long, becomes a variable of its own, so that texts are
bounded and nothing is computed twice. Nodes whose sides are evaluated conditionally become `?:`, or
`if` where a side needs statements.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer
from ...base import CodegenError, DataType, NamedTuple, Steps
from ...ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    Div,
    FloatImm,
    GlobalVar,
    IntImm,
    Intrinsic,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    SizeVar,
    StringImm,
    Sub,
    Var,
    first_nodes,
    post_order,
    structural_equal,
    wrap_int,
)
from ...tir import BufferLoad
from .intrinsics import INTRINSIC_EMITTERS, call_name
from .text import (
    ATOM,
    CHOICE,
    PRODUCT,
    RELATION,
    SUM,
    UNARY,
    Code,
    constant,
    identifier,
    storage_type,
    value_type,
)

if TYPE_CHECKING:
    from .module import ModuleText

MAX_LANES = 256
MAX_LINES = 200_000
# Of characters; longer expressions are cut up.
_LONG = 100
# What is written again rather than named: a few names and numbers, without calls and memory.
_SHORT = 24
# Of nodes.
_FEW = 64
_COSTLY = re.compile(r"[\w]\(|[\[?/%]")
_INDENT = "    "
_LANE = re.compile(r"\blane\b")
_ARRAY = re.compile(r"\w+\[lane\]")


class Pointer(NamedTuple):
    """A pointer variable, and the C type of the elements that it points to."""

    name: str
    element: str


class ExprEmitter:
    """Emits expressions into one function.

    env       values of variables
    pointers  what the data variables of buffers are in C

    unrolled_lines  how many lines the C compiler has when loops are unrolled
    branches        whether a choice may be a branch; else both values are computed
    """

    def __init__(self, module: ModuleText, branches: bool = True) -> None:
        self.module = module
        self.branches = branches
        self.env: dict[Var, Code] = {}
        self.pointers: dict[Var, Pointer] = {}
        self.lines: list[str] = []
        self.analyzer = Analyzer(wrap=True)
        self._indent = 1
        self._names: set[str] = set()
        self._temporaries = 0
        self._written = 0
        self.unrolled_lines = 0
        self._memo: dict[int, Code] = {}
        # Holding the nodes keeps their ids from being given to others.
        self._log: list[PrimExpr] = []
        self._uses: Counter[int] = Counter()
        self._ordered = False

    # -- lines and names ---------------------------------------------------------------------------

    def emit(self, line: str) -> None:
        """Append a line. Raises CodegenError beyond what a C compiler takes in one function."""
        self.lines.append(_INDENT * self._indent + line)
        self._written += 1
        self.unrolled_lines += 1
        if self._written > MAX_LINES:
            raise CodegenError(f"more than {MAX_LINES} lines of C; split the function")

    def open(self, line: str) -> None:
        """Append a line after which lines are indented."""
        self.emit(line)
        self._indent += 1

    def close(self, line: str = "}") -> None:
        """Append a line that ends what `open` began."""
        self._indent -= 1
        self.emit(line)

    def name(self, hint: str, fallback: str = "v") -> str:
        """A name that nothing in scope has; it is in scope until `release`."""
        stem = identifier(hint, fallback)
        name, number = stem, 1
        while name in self._names or name in self.module.functions_named:
            name, number = f"{stem}_{number}", number + 1
        self._names.add(name)
        return name

    def release(self, name: str) -> None:
        """End the scope of a name."""
        self._names.discard(name)

    def temporary(self) -> str:
        """A name for a value."""
        self._temporaries += 1
        return self.name(f"t{self._temporaries}")

    # -- evaluation --------------------------------------------------------------------------------

    def forget(self, *roots: PrimExpr) -> None:
        """Start a new statement, in which `roots` are evaluated: memory may have changed."""
        self._memo, self._log = {}, []
        self._uses = Counter()
        self._ordered = False
        for root in roots:
            self._uses[id(root)] += 1
            for n in post_order(root, _operands):
                self._uses.update(map(id, _operands(n)))
                self._ordered = self._ordered or _has_effects(n)

    def value(self, node: PrimExpr) -> Steps:
        """The text of `node`. To be run by `run_steps`, or yielded by what is."""
        known = self._memo.get(id(node))
        if known is not None:
            return known
        branching = _BRANCHING.get(type(node))
        if branching is not None:
            code = yield branching(self, node)
        elif type(node) is Call and node.op is _IF_THEN_ELSE:
            code = yield _if_then_else(self, node)
        else:
            parts = []
            for child in _operands(node):
                parts.append((yield self.value(child)))
            emitter = _EMITTERS.get(type(node))
            if emitter is None:
                raise CodegenError(f"no code for {type(node).__name__}; lower the function first")
            code = emitter(self, node, parts)
        if self._is_kept(node, code):
            code = self.kept(node.dtype, code)
        self._memo[id(node)] = code
        self._log.append(node)
        return code

    def _is_kept(self, node: PrimExpr, code: Code) -> bool:
        """Whether the value becomes a variable."""
        if node.dtype.is_handle or code.number is not None or code.text.isidentifier():
            return False
        if type(node) in (Broadcast, Ramp, FloatImm):
            return False
        if self._ordered and (type(node) is BufferLoad or _has_effects(node)):
            return True
        if len(code.text) < _SHORT and not _COSTLY.search(code.text):
            return False
        return self._uses[id(node)] > 1 or len(code.text) > _LONG

    def kept(self, dtype: DataType, code: Code) -> Code:
        """A value as a variable; a vector as an array."""
        name = self.temporary()
        if dtype.lanes == 1:
            self.emit(f"const {value_type(dtype)} {name} = {code.text};")
            return Code(name)
        self._declare(dtype, name)
        self.each_lane(dtype.lanes, f"{name}[lane] = {code.text};")
        return Code(f"{name}[lane]")

    def _declare(self, dtype: DataType, name: str) -> None:
        if dtype.lanes > MAX_LANES:
            raise CodegenError(
                f"a vector of {dtype.lanes} lanes: the limit is {MAX_LANES}; split the loop first"
            )
        lanes = f"[{dtype.lanes}]" if dtype.lanes > 1 else ""
        self.emit(f"{value_type(dtype)} {name}{lanes};")

    def each_lane(self, lanes: int, *lines: str) -> None:
        """A loop over the lanes of a vector."""
        self.open(f"for (int lane = 0; lane < {lanes}; ++lane) {{")
        for line in lines:
            self.emit(line)
        self.close()

    def lanes_of(self, dtype: DataType, code: Code) -> Callable[[int | str], str]:
        """The text of one lane, by its number or another variable."""
        if dtype.lanes == 1 or not _LANE.search(code.text):
            return lambda i: code.within(UNARY)
        if not _ARRAY.fullmatch(code.text):
            code = self.kept(dtype, code)
        name = code.text.removesuffix("[lane]")
        return lambda i: f"{name}[{i}]"

    def mark(self) -> int:
        """Where `drop` goes back to."""
        return len(self._log)

    def drop(self, mark: int) -> None:
        """Forget what was evaluated since `mark`: it is out of scope in what follows."""
        for node in self._log[mark:]:
            self._memo.pop(id(node), None)
        del self._log[mark:]

    def aside(self, node: PrimExpr) -> Steps:
        """(value, the lines that it needs), not yet emitted."""
        mark, outer = self.mark(), self.lines
        self.lines = []
        self._indent += 1
        code = yield self.value(node)
        self._indent -= 1
        inner, self.lines = self.lines, outer
        self.drop(mark)
        return code, inner

    # -- facts -------------------------------------------------------------------------------------

    def bounds(self, e: PrimExpr) -> tuple[int, int]:
        """The least and the greatest value that a scalar integer may have, as far as known."""
        least, most = int(e.dtype.min_value), int(e.dtype.max_value)
        if e.dtype.lanes > 1:
            return least, most
        bound = self.analyzer.const_int_bound(e)
        return max(least, bound.min_value), min(most, bound.max_value)

    def cannot_wrap(self, node: Any) -> bool:
        """Whether the mathematical result of an addition, subtraction or product of integers fits
        its dtype.
        """
        (a, b), (c, d) = self.bounds(node.a), self.bounds(node.b)
        if type(node) is Add:
            low, high = a + c, b + d
        elif type(node) is Sub:
            low, high = a - d, b - c
        else:
            ends = (a * c, a * d, b * c, b * d)
            low, high = min(ends), max(ends)
        return int(node.dtype.min_value) <= low and high <= int(node.dtype.max_value)

    def need_failure(self, message: str) -> int:
        """The number of a failure this function may leave with."""
        raise CodegenError("a check cannot stand in the dimension of a parameter")

    def fail_unless(self, condition: Code, code: int | str, why: str = "") -> None:
        """Leave the function with `code` unless `condition` holds."""
        raise CodegenError("a check cannot stand in the dimension of a parameter")

    # -- memory ------------------------------------------------------------------------------------

    def pointer(self, handle: Any) -> Pointer:
        """The pointer behind a buffer's data variable."""
        pointer = self.pointers.get(handle)
        if pointer is None:
            raise CodegenError(
                f"buffer data {handle.name} is not a parameter and was not allocated here"
            )
        return pointer

    def load(self, dtype: DataType, handle: Var, index: Code) -> Code:
        """An element of memory as a value."""
        pointer, kind = self.pointer(handle), storage_type(dtype)
        if pointer.element == kind:
            raw = f"{pointer.name}[{index.text}]"
        else:
            load = self.module.helpers.memory("load", kind, dtype.element.itemsize)
            raw = f"{load}({pointer.name}, {index.text})"
        return self.from_storage(dtype, raw)

    def from_storage(self, dtype: DataType, raw: str) -> Code:
        """What memory holds, as a value."""
        if dtype.is_bool:
            return Code(f"{raw} != 0", RELATION)
        if dtype.is_float and dtype.bits < 32:
            return Code(f"{self.module.helpers.of('from', dtype)}({raw})")
        return Code(raw)

    def to_storage(self, dtype: DataType, code: Code) -> str:
        """A value as memory holds it."""
        if dtype.is_bool:
            return code.text if code.number is not None else f"(uint8_t){code.within(UNARY)}"
        if dtype.is_float and dtype.bits < 32:
            return f"{self.module.helpers.of('to', dtype)}({code.text})"
        return code.text

    def store(self, dtype: DataType, handle: Var, index: Code, raw: str) -> str:
        """The statement that stores what `to_storage` gave."""
        pointer, kind = self.pointer(handle), storage_type(dtype)
        if pointer.element == kind:
            return f"{pointer.name}[{index.text}] = {raw};"
        store = self.module.helpers.memory("store", kind, dtype.element.itemsize)
        return f"{store}({pointer.name}, {index.text}, {raw});"

    # -- arithmetic --------------------------------------------------------------------------------

    def rounded(self, dtype: DataType, code: Code) -> Code:
        """A float rounded to a float of 8 or 16 bits; other dtypes pass through."""
        if not dtype.is_float or dtype.bits >= 32:
            return code
        return Code(f"{self.module.helpers.of('round', dtype)}({code.text})")

    def as_type(self, dtype: DataType, code: Code) -> Code:
        """An expression that C may have promoted, as a value of the dtype."""
        if dtype.is_int and dtype.bits < 32:
            return Code(f"({value_type(dtype)}){code.within(UNARY)}", UNARY)
        return code

    def helper(self, name: str, dtype: DataType, *args: Code) -> Code:
        """A call of a helper for `dtype`."""
        function = self.module.helpers.of(name, dtype.element)
        return Code(f"{function}({', '.join(a.text for a in args)})")

    def divide(self, dtype: DataType, a: Code, b: Code, remainder: bool) -> Code:
        """C's quotient or remainder; 0 where b is 0, and the least integer divided by -1 wraps."""
        if dtype.is_bool:
            if remainder:
                return Code("false", ATOM, 0)
            return Code(f"{a.within(RELATION)} && {b.within(RELATION)}", CHOICE)
        if b.number in (None, 0, -1):
            return self.helper("mod" if remainder else "div", dtype, a, b)
        sign = "%" if remainder else "/"
        code = Code(f"{a.within(PRODUCT)} {sign} {b.within(UNARY)}", PRODUCT)
        return self.as_type(dtype, code)

    def cast(self, source: DataType, to: DataType, code: Code) -> Code:
        """A value converted by the rules at the top of `ir/expr.py`."""
        if source.element is to.element:
            return code
        if to.is_bool:
            return Code(f"{code.within(SUM)} != 0", RELATION)
        if not (source.is_float or source.is_int or source.is_bool) or to.is_handle:
            raise CodegenError(f"no cast from {source} to {to}")
        if to.is_int:
            if source.is_float:
                return Code(
                    f"{self.module.helpers.to_integer(source.element, to.element)}({code.text})"
                )
            if code.number is not None:
                return constant(wrap_int(code.number, to.element), to.element)
        elif to.bits < 32 and source.bits > 16:
            return self._narrowed(source, to, code)
        elif to.bits < 32:
            wide = code if source.is_float else self._plainly("float", code)
            return self.rounded(to, wide)
        elif source.is_float and (source.bits == 64) is (to.bits == 64):
            return code
        return self._plainly(value_type(to), code)

    def _plainly(self, kind: str, code: Code) -> Code:
        return Code(f"({kind}){code.within(UNARY)}", UNARY)

    def _narrowed(self, source: DataType, to: DataType, code: Code) -> Code:
        """A wide number rounded once to 8 or 16 bits."""
        if source.is_float and source.bits == 32:
            return self.rounded(to, code)
        if source.is_int and source.bits == 64:
            code = self.helper("squeeze", source, code)
        if source.is_int:
            code = self._plainly("double", code)
        return self.rounded(to, Code(f"{self.module.helpers.plain('odd_float')}({code.text})"))


# -- the tables ------------------------------------------------------------------------------------

_IF_THEN_ELSE = Intrinsic.get("tir.if_then_else")


def _operands(node: Any) -> tuple[Any, ...]:
    """The subexpressions that `node` evaluates."""
    kind = type(node)
    if kind is BufferLoad:
        return tuple(node.indices)
    if kind is Call:
        if isinstance(node.op, Intrinsic) and node.op.name == "tir.address_of":
            return _operands(node.args[0]) if isinstance(node.args[0], BufferLoad) else ()
        if isinstance(node.op, Intrinsic) and node.op.name == "tir.tvm_access_ptr":
            return node.args[1:3]
        return tuple(a for a in node.args if not isinstance(a, StringImm))
    if kind is Shuffle:
        return tuple(node.vectors)
    return tuple(node._children_)


def _has_effects(node: Any) -> bool:
    """Whether evaluating the node may change memory: what stands beside it keeps its place."""
    if type(node) is not Call:
        return False
    if isinstance(node.op, GlobalVar):
        return True
    return isinstance(node.op, Intrinsic) and node.op.effect == "opaque"


def _let(g: ExprEmitter, node: Let) -> Steps:
    code = yield g.value(node.value)
    if not (code.text.isidentifier() or code.number is not None):
        code = g.kept(node.value.dtype, code)
    former, saved = g.env.get(node.var), (g._memo, g._log)
    if former is not None:
        # Bound twice: expressions of the variable mean another thing inside.
        g._memo, g._log = {}, []
    mark = g.mark()
    g.env[node.var] = code
    result = yield g.value(node.body)
    g.drop(mark)
    if former is None:
        del g.env[node.var]
    else:
        g.env[node.var] = former
        g._memo, g._log = saved
    return result


def _short_circuit(g: ExprEmitter, node: And | Or) -> Steps:
    first = yield g.value(node.a)
    is_and = type(node) is And
    sign = "&&" if is_and else "||"
    if node.dtype.lanes > 1:
        second = yield g.value(node.b)
        return Code(f"{first.within(RELATION)} {sign} {second.within(RELATION)}", CHOICE)
    second, lines = yield g.aside(node.b)
    if not lines:
        return Code(f"{first.within(RELATION)} {sign} {second.within(RELATION)}", CHOICE)
    name = g.temporary()
    g.emit(f"bool {name} = {first.text};")
    g.open(f"if ({name if is_and else '!' + name}) {{")
    g.lines += lines
    g.emit(f"{name} = {second.text};")
    g.close()
    return Code(name)


def _select(g: ExprEmitter, node: Select) -> Steps:
    condition = yield g.value(node.condition)
    if node.condition.dtype.lanes > 1 or not g.branches or _both_are_cheap(node):
        yes = yield g.value(node.true_value)
        no = yield g.value(node.false_value)
        if node.dtype in ("float32", "float64"):
            return g.helper("choose", node.dtype, condition, yes, no)
        return _choice(node.dtype, condition, yes, no)
    code = yield _chosen(g, node.dtype, condition, node.true_value, node.false_value)
    return code


def _both_are_cheap(node: Select) -> bool:
    """Whether both values may be computed: few steps over what the condition reads, too."""
    if node.dtype not in ("float32", "float64"):
        return False
    reads = [n for n in first_nodes(node.condition, _FEW) if isinstance(n, BufferLoad)]
    sides = [n for side in (node.true_value, node.false_value) for n in first_nodes(side, _FEW)]
    return len(sides) < _FEW and all(
        any(structural_equal(n, r) for r in reads)
        if isinstance(n, BufferLoad)
        else not _has_effects(n)
        for n in sides
    )


def _if_then_else(g: ExprEmitter, node: Call) -> Steps:
    condition, yes, no = node.args
    if yes.dtype is not node.dtype or no.dtype is not node.dtype or condition.dtype != "bool":
        raise CodegenError(
            f"if_then_else: {condition.dtype} ? {yes.dtype} : {no.dtype} as {node.dtype}"
        )
    holds = yield g.value(condition)
    code = yield _chosen(g, node.dtype, holds, yes, no)
    return code


def _choice(dtype: DataType, condition: Code, yes: Code, no: Code) -> Code:
    sides = f"{yes.within(SUM)} : {no.within(CHOICE)}"
    code = Code(f"{condition.within(RELATION)} ? {sides}", CHOICE)
    constants = yes.number is not None and no.number is not None
    if dtype.is_int and (constants or dtype.bits < 32):
        # Constants are of C's int, and narrower integers are promoted to it.
        return Code(f"({value_type(dtype)})({code.text})", UNARY)
    return code


def _chosen(g: ExprEmitter, dtype: DataType, holds: Code, yes: PrimExpr, no: PrimExpr) -> Steps:
    """One of two values, of which only one is evaluated."""
    if holds.number is not None:
        code = yield g.value(yes if holds.number else no)
        return code
    a, a_lines = yield g.aside(yes)
    b, b_lines = yield g.aside(no)
    if not a_lines and not b_lines and len(a.text) + len(b.text) <= 2 * _LONG:
        return _choice(dtype, holds, a, b)
    name = g.temporary()
    g._declare(dtype, name)
    place = name if dtype.lanes == 1 else f"{name}[lane]"
    g.open(f"if ({holds.text}) {{")
    for code, lines, end in ((a, a_lines, "} else {"), (b, b_lines, "}")):
        g.lines += lines
        if dtype.lanes == 1:
            g.emit(f"{place} = {code.text};")
        else:
            g.each_lane(dtype.lanes, f"{place} = {code.text};")
        g.close(end)
        g._indent += end != "}"
    return Code(place)


def _variable(g: ExprEmitter, node: Var, parts: list[Code]) -> Code:
    if node.dtype.is_handle and node in g.pointers:
        return Code(g.pointer(node).name)
    code = g.env.get(node)
    if code is None:
        raise CodegenError(f"variable {node.name} has no value here")
    return code


def _number(g: ExprEmitter, node: Any, parts: list[Code]) -> Code:
    return constant(node.value, node.dtype)


_SIGN = {Add: "+", Sub: "-", Mul: "*"}
_OF_BOOLS = {Add: "||", Sub: "!=", Mul: "&&", Min: "&&", Max: "||"}


def _of_bools(node: Any, a: Code, b: Code) -> Code:
    return Code(f"{a.within(SUM)} {_OF_BOOLS[type(node)]} {b.within(SUM)}", CHOICE)


def _arithmetic(g: ExprEmitter, node: Any, parts: list[Code]) -> Code:
    (a, b), dtype, kind = parts, node.dtype, type(node)
    if dtype.is_bool:
        return _of_bools(node, a, b)
    if dtype.is_int:
        if a.number is not None and b.number is not None:
            value = {Add: int.__add__, Sub: int.__sub__, Mul: int.__mul__}[kind](a.number, b.number)
            return constant(wrap_int(value, dtype.element), dtype.element)
        wide = dtype.bits >= 32
        if wide and dtype.is_signed and not g.cannot_wrap(node):
            return g.helper(kind.__name__.lower(), dtype, a, b)
        if kind is Mul and dtype.bits == 16 and not dtype.is_signed:
            # C would promote to int, which the product may not fit.
            a, b = (g._plainly("uint32_t", each) for each in (a, b))
    if kind is Mul:
        code = Code(f"{a.within(PRODUCT)} * {b.within(UNARY)}", PRODUCT)
    else:
        # Additions keep their order: what stands on the right has parentheses.
        code = Code(f"{a.within(SUM)} {_SIGN[kind]} {b.within(PRODUCT)}", SUM)
    return g.rounded(dtype, g.as_type(dtype, code))


def _division(g: ExprEmitter, node: Any, parts: list[Code]) -> Code:
    (a, b), dtype = parts, node.dtype
    if not dtype.is_float:
        return g.divide(dtype, a, b, type(node) is Mod)
    if type(node) is Mod:
        name = "fmod" if dtype.bits == 64 else "fmodf"
        return g.rounded(dtype, Code(f"{name}({a.text}, {b.text})"))
    return g.rounded(dtype, Code(f"{a.within(PRODUCT)} / {b.within(UNARY)}", PRODUCT))


_RELATION = {EQ: "==", NE: "!=", LT: "<", LE: "<=", GT: ">", GE: ">="}
_TRUTH: dict[type, Callable[[int, int], bool]] = {
    LT: int.__lt__,
    LE: int.__le__,
    GT: int.__gt__,
    GE: int.__ge__,
}
_MIRRORED: dict[type, type] = {LT: GT, LE: GE, GT: LT, GE: LE, EQ: EQ, NE: NE}


def _comparison(g: ExprEmitter, node: Any, parts: list[Code]) -> Code:
    (a, b), dtype, kind = parts, node.a.dtype, type(node)
    if dtype.is_bool and kind not in (EQ, NE):
        if kind in (GT, GE):
            a, b = b, a
        sign = "&&" if kind in (LT, GT) else "||"
        return Code(f"!{a.within(UNARY)} {sign} {b.within(RELATION)}", CHOICE)
    if dtype.is_int:
        known = _known(g, kind, (node.a, a), (node.b, b))
        if known is not None:
            return constant(known, DataType("bool"))
    return Code(f"{a.within(SUM)} {_RELATION[kind]} {b.within(SUM)}", RELATION)


def _known(
    g: ExprEmitter, kind: type, one: tuple[PrimExpr, Code], other: tuple[PrimExpr, Code]
) -> bool | None:
    """What a comparison with a constant says of everything that the other side may be: C compilers
    warn of it.
    """
    (x, a), (_, b) = one, other
    if b.number is None:
        return None if a.number is None else _known(g, _MIRRORED[kind], other, one)
    least, most = (a.number, a.number) if a.number is not None else g.bounds(x)
    if kind in (EQ, NE):
        differs = not least <= b.number <= most
        return kind is NE if differs else kind is EQ if least == most else None
    always, never = (_TRUTH[kind](end, b.number) for end in (least, most))
    return always if always is never else None


def _extreme(g: ExprEmitter, node: Any, parts: list[Code]) -> Code:
    if node.dtype.is_bool:
        return _of_bools(node, *parts)
    kind = node.dtype.element
    if kind.is_float and kind.bits < 64:
        kind = DataType("float32")
    return g.helper(type(node).__name__.lower(), kind, *parts)


def _not(g: ExprEmitter, node: Not, parts: list[Code]) -> Code:
    return Code(f"!{parts[0].within(UNARY)}", UNARY)


def _cast(g: ExprEmitter, node: Cast, parts: list[Code]) -> Code:
    return g.cast(node.value.dtype, node.dtype, parts[0])


def _ramp(g: ExprEmitter, node: Ramp, parts: list[Code]) -> Code:
    base, stride = parts
    dtype = node.base.dtype
    if node.lanes > MAX_LANES or (dtype.bits == 8 and node.lanes > 128):
        raise CodegenError(f"a ramp of {node.lanes} lanes in {dtype}")
    (low, high), (least, most) = g.bounds(node.base), g.bounds(node.stride)
    last = node.lanes - 1
    fits = low + min(0, least * last) >= dtype.min_value
    fits = fits and high + max(0, most * last) <= dtype.max_value
    plain = dtype.bits >= 32 and dtype.is_signed
    lane = Code("lane") if plain else Code(f"({value_type(dtype)})lane", UNARY)
    if plain and not fits:
        if stride.number != 1:
            lane = g.helper("mul", dtype, stride, lane)
        return g.helper("add", dtype, base, lane)
    if stride.number != 1:
        lane = Code(f"{stride.within(PRODUCT)} * {lane.within(UNARY)}", PRODUCT)
    if base.number == 0 and plain:
        return lane
    return g.as_type(dtype, Code(f"{base.within(SUM)} + {lane.within(PRODUCT)}", SUM))


def _broadcast(g: ExprEmitter, node: Broadcast, parts: list[Code]) -> Code:
    if node.lanes > MAX_LANES:
        raise CodegenError(f"a vector of {node.lanes} lanes: the limit is {MAX_LANES}")
    return parts[0]


def _shuffle(g: ExprEmitter, node: Shuffle, parts: list[Code]) -> Code:
    picks = []
    for vector, part in zip(node.vectors, parts):
        one = g.lanes_of(vector.dtype, part)
        picks += [one(i) for i in range(vector.dtype.lanes)]
    # All of them are constants: the node takes no others.
    chosen = [picks[i.value] for i in node.indices if isinstance(i, IntImm)]
    if len(chosen) == 1:
        return Code(chosen[0], UNARY)
    name = g.temporary()
    if len(chosen) > MAX_LANES:
        raise CodegenError(f"a vector of {len(chosen)} lanes: the limit is {MAX_LANES}")
    listed = ", ".join(chosen)
    g.emit(f"const {value_type(node.dtype)} {name}[{len(chosen)}] = {{{listed}}};")
    return Code(f"{name}[lane]")


def _load(g: ExprEmitter, node: BufferLoad, parts: list[Code]) -> Code:
    if len(parts) != 1:
        raise CodegenError(f"an access with {len(parts)} indices; FlattenBuffer has not run")
    return g.load(node.buffer.dtype.element, node.buffer.data, parts[0])


def _call(g: ExprEmitter, node: Call, parts: list[Code]) -> Code:
    if isinstance(node.op, GlobalVar):
        return g.module.call_function(g, node, parts)
    emitter = INTRINSIC_EMITTERS.get(call_name(node)) if isinstance(node.op, Intrinsic) else None
    if emitter is None:
        raise CodegenError(
            f"{getattr(node.op, 'name', node.op)} has no code in C, or it cannot stand here"
        )
    return emitter(g, node, parts)


_BRANCHING: dict[type, Callable[[ExprEmitter, Any], Steps]] = {
    Let: _let,
    And: _short_circuit,
    Or: _short_circuit,
    Select: _select,
}
_EMITTERS: dict[type, Callable[[ExprEmitter, Any, list[Code]], Code]] = {
    Var: _variable,
    SizeVar: _variable,
    IntImm: _number,
    FloatImm: _number,
    **dict.fromkeys((Add, Sub, Mul), _arithmetic),
    **dict.fromkeys((Div, Mod), _division),
    **dict.fromkeys((EQ, NE, LT, LE, GT, GE), _comparison),
    **dict.fromkeys((Min, Max), _extreme),
    Not: _not,
    Cast: _cast,
    Ramp: _ramp,
    Broadcast: _broadcast,
    Shuffle: _shuffle,
    BufferLoad: _load,
    Call: _call,
}
