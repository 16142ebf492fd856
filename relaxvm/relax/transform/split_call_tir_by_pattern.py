"""SplitCallTIRByPattern: what a library computes of a loop function is left to that library.

    before:  gv = R.call_tir(cls.gemm_relu, (x, w), ...)
    after:   lv = R.call_dps_packed("env.gemm", (x, w), ...)
             gv = R.call_tir(cls.unfused_epilogue, (lv,), ...)

Patterns are loop functions, too: what they compute is looked for at the beginning of others, loop
nest by loop nest. Their parameters that are no buffers stand for numbers and sizes: ``alpha * x``
is also found where there is only `x`, with 1 for `alpha`, and ``x + beta`` with 0 for `beta`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ...base import (
    NamedTuple,
    NameSupply,
    PassError,
    Steps,
    add_note,
    decided,
    declined,
    in_function,
    run_steps,
)
from ...ir import (
    Add,
    Cast,
    FloatImm,
    GlobalVar,
    IntImm,
    IRModule,
    Mul,
    Node,
    PassContext,
    PrimExpr,
    cast,
    const,
    is_const,
    structural_digest,
    walk,
)
from ...ir import Var as TirVar
from ...ir.transform import module_pass
from ...runtime import register_apart
from ...tir import Block, BlockRealize, Buffer, For, ForKind, PrimFunc, Stmt
from ..expr import Binding, Function, Tuple, VarBinding
from ..op import call_dps_packed, call_tir
from ..struct_info import Expr
from .private_functions import without_unmentioned
from .split_kernel import Callers, Kernel, Part, info_of, touched


class MatchResult(NamedTuple):
    """A loop nest that is what `pattern` computes.

    symbol_values    what its parameters that are no buffers stand for: numbers, or sizes of the
                     function that is split
    matched_buffers  that function's buffers in the place of the pattern's, in order
    """

    pattern: PrimFunc
    symbol_values: tuple[PrimExpr, ...]
    matched_buffers: tuple[Buffer, ...]


@module_pass(opt_level=0, numerics="approximate")
def SplitCallTIRByPattern(
    mod: IRModule,
    ctx: PassContext,
    *,
    patterns: Sequence[PrimFunc],
    fcodegen: Callable[[list[MatchResult]], Any],
) -> IRModule:
    """Let a library compute the first loop nests of functions that `call_tir` calls.

    patterns  loop functions of one loop nest each; the first that fits counts
    fcodegen  given a `MatchResult` for each nest from the first to the last that fits: (library,
              how many of these it computes, the buffers that it is given), 0 for none. The library
              is the name of a packed function, or a callable (registered here, for this process),
              which is given these arguments and what to fill: what the last of its nests writes;
              or a PrimFunc of the same

    Raises PassError for patterns that are no loop nests, and for answers that cannot be called.
    """
    known = [_Pattern(p) for p in patterns]
    names = NameSupply(lambda: [gv.name_hint for gv in mod], "_")
    splits: dict[str, _Split] = {}
    for gv, fn in mod.items():
        if isinstance(fn, PrimFunc):
            with in_function(gv):
                split = _split(fn, gv.name_hint, known, fcodegen, names)
            if split is not None:
                splits[gv.name_hint] = split
    rewriter = Callers(splits, _written)
    result = mod.clone()
    for gv, fn in mod.items() if splits else ():
        if isinstance(fn, Function):
            with in_function(gv):
                result[gv] = rewriter.rewrite(fn)
    if not rewriter.used:
        return mod
    for name in rewriter.used:
        for callee, part in splits[name].functions:
            result[callee] = part
    return without_unmentioned(result, splits)


# -- splitting -------------------------------------------------------------------------------------


class _Split(NamedTuple):
    """A loop function of which a library computes the buffer `between`, of `given`.

    rest  the other loop nests; None if there are none
    """

    whole: Kernel
    library: Any
    given: Sequence[Buffer]
    between: Buffer
    rest: tuple[GlobalVar, Part] | None

    @property
    def functions(self) -> list[tuple[GlobalVar, PrimFunc]]:
        """What comes into the module."""
        own = [self.library] if isinstance(self.library, tuple) else []
        return own + ([] if self.rest is None else [(self.rest[0], self.rest[1].fn)])


def _split(
    fn: PrimFunc, name: str, patterns: Sequence[_Pattern], fcodegen: Any, names: NameSupply
) -> _Split | None:
    whole = Kernel(fn)
    matches: list[MatchResult] = []
    for s in whole.statements:
        match = next((m for p in patterns if (m := p.match(s)) is not None), None)
        if match is None:
            break
        matches.append(match)
    if not matches:
        return None
    try:
        library, count, between_buffers = _answer(fcodegen(list(matches)), len(matches))
    except Exception as error:
        add_note(error, f"SplitCallTIRByPattern: fcodegen, for {name}")
        raise
    if count == 0:
        declined("{} not split: fcodegen wants nothing of it", name)
        return None
    first, second = whole.statements[:count], whole.statements[count:]
    between = matches[count - 1].matched_buffers[_output_of(matches[count - 1])]
    inputs = [b for b in whole.buffers if b is not None]
    written = {b for s in whole.statements for b in touched(s).writes}
    for b in between_buffers:
        if b not in inputs or b in written:
            raise PassError(
                f"SplitCallTIRByPattern: fcodegen gives its library {getattr(b, 'name', b)!r}, "
                f"which is no input of {name}"
            )
    later = {n for s in second for n in walk(s)}
    others = {b for s in first for b in touched(s).writes} - {between}
    why = None
    if not whole.is_plain or not all(touched(s).plain for s in first):
        why = "its buffers are not plain tensors"
    elif any(b in inputs or b.data in later for b in others):
        why = "the library would have to give several results"
    elif between in {b for s in second for b in touched(s).writes}:
        why = "what the library gives is written again"
    elif (between in inputs) is bool(second) or (not second and len(written & {*inputs}) > 1):
        why = "what the library gives is not what the rest reads"
    if why is not None:
        declined(f"{{}} not split: {why}", name)
        return None
    rest = None
    if second:
        params = [b for b in inputs if b.data in later]
        part = whole.part(second, [between, *params], "")
        part = part._replace(fn=part.fn.without_attr("global_symbol"))
        rest = GlobalVar(names.fresh("unfused_epilogue")), part
    if isinstance(library, PrimFunc):
        library = GlobalVar(names.fresh(f"{name}_library")), library.without_attr("global_symbol")
    elif not isinstance(library, str):
        digest = structural_digest(fn).hex()[:12]
        library = register_apart(f"library.{name}.{digest}", library)
    return _Split(whole, library, between_buffers, between, rest)


def _output_of(match: MatchResult) -> int:
    """The place among a pattern's buffers of the one that it writes."""
    pattern = match.pattern
    buffers = [pattern.buffer_map[p] for p in pattern.params if p in pattern.buffer_map]
    (output,) = touched(pattern.body).writes
    return buffers.index(output)


def _answer(answer: Any, most: int) -> tuple[Any, int, tuple[Buffer, ...]]:
    if not isinstance(answer, (tuple, list)) or len(answer) != 3:
        raise PassError(
            "SplitCallTIRByPattern: fcodegen gives (library, number of nests, buffers), got "
            f"{answer!r}"
        )
    library, count, buffers = answer
    count = getattr(count, "value", count)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= most:
        raise PassError(
            f"SplitCallTIRByPattern: fcodegen says that its library computes {count!r} of {most} "
            "loop nests"
        )
    if count == 0:
        return library, 0, ()
    if isinstance(library, str) and not re.fullmatch(r"[\w.:]+", library):
        raise PassError(
            "SplitCallTIRByPattern: fcodegen gave text that is no name of a packed function; "
            "sources are compiled elsewhere, and registered with register_func"
        )
    if not isinstance(library, (str, PrimFunc)) and not callable(library):
        raise PassError(
            "SplitCallTIRByPattern: a library is the name of a packed function, a callable or a "
            f"PrimFunc, got {type(library).__name__}"
        )
    return library, count, tuple(buffers)


def _written(
    callers: Callers, b: Binding, split: _Split, values: dict[Any, Expr], known: Any
) -> list[Binding]:
    """What stands for a call of a function that a library computes the beginning of."""
    call: Any = b.value
    args = Tuple([values[own] for own in split.given])
    info = info_of([split.between], known) if split.rest is not None else call.sinfo_args[0]
    if isinstance(split.library, str):
        computed = call_dps_packed(split.library, args, out_sinfo=info)
        decided(f"{{}} left to {split.library}", b)
    else:
        computed = call_tir(split.library[0], args, info)
        decided(f"{{}} left to {split.library[0].name_hint}", b)
    computed = computed.replace(span=call.span)
    if split.rest is None:
        return [b.replace(value=computed)]
    var = values[split.between] = callers.local("lv", info, b.var.span)
    gv, part = split.rest
    rest = part.call(gv, values, call.sinfo_args[0], known, call.span)
    return [VarBinding(var, computed), b.replace(value=rest)]


# -- matching --------------------------------------------------------------------------------------

_MOST_STEPS = 100_000


class _Found(NamedTuple):
    """What parts of a pattern stand for: loops and axes, buffers, and its free symbols."""

    variables: dict[Any, Any]
    buffers: dict[Buffer, Buffer]
    symbols: dict[Any, PrimExpr]

    def copy(self) -> _Found:
        return _Found(*(dict(each) for each in self))


class _Pattern:
    """A loop nest to look for."""

    def __init__(self, fn: PrimFunc) -> None:
        if not isinstance(fn, PrimFunc):
            raise PassError(
                f"SplitCallTIRByPattern: patterns are PrimFuncs, got {type(fn).__name__}"
            )
        statements = Kernel(fn).statements
        if len(statements) != 1 or len(touched(fn.body).writes) != 1:
            name = fn.get_attr("global_symbol") or "a pattern"
            raise PassError(
                f"SplitCallTIRByPattern: {name} is not one loop nest that writes one buffer"
            )
        self.fn, self.nest = fn, statements[0]
        self.symbols = [p for p in fn.params if p not in fn.buffer_map]
        self.sizes = {d for b in fn.buffers for d in b.shape if isinstance(d, TirVar)}
        self.buffers = [fn.buffer_map[p] for p in fn.params if p in fn.buffer_map]

    def match(self, nest: Stmt) -> MatchResult | None:
        """How `nest` computes the pattern, or None."""
        self.steps = 0
        self.found = _Found({}, {}, {})
        if not run_steps(self._same(nest, self.nest)):
            return None
        matched = self.found
        if any(b not in matched.buffers for b in self.buffers):
            return None
        if len({b.data for b in matched.buffers.values()}) != len(matched.buffers):
            return None
        neutral = const(0, "int32")
        values = tuple(matched.symbols.get(s, cast(s.dtype, neutral)) for s in self.symbols)
        return MatchResult(self.fn, values, tuple(matched.buffers[b] for b in self.buffers))

    def _same(self, mine: Any, theirs: Any) -> Steps:
        """Whether `mine` is what `theirs`, of the pattern, stands for."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            return False
        if isinstance(theirs, TirVar):
            return self._is_variable(mine, theirs)
        if isinstance(theirs, Buffer):
            return (yield self._is_buffer(mine, theirs))
        if isinstance(theirs, (Add, Mul)):
            return (yield self._is_sum_or_product(mine, theirs))
        return (yield self._alike(mine, theirs))

    def _is_variable(self, mine: Any, theirs: TirVar) -> bool:
        if theirs in self.found.variables:
            return mine is self.found.variables[theirs]
        if theirs not in self.symbols and theirs not in self.sizes:
            return False
        inner = set(self.found.variables.values())
        fits = isinstance(mine, (IntImm, FloatImm)) or (
            isinstance(mine, PrimExpr)
            and mine.dtype.is_int
            and not any(n in inner or isinstance(n, Buffer) for n in walk(mine))
        )
        if not fits:
            return False
        known = self.found.symbols.setdefault(theirs, mine)
        return known is mine or _number(known) == _number(mine)

    def _is_buffer(self, mine: Any, theirs: Buffer) -> Steps:
        known = self.found.buffers.get(theirs)
        if known is not None or not isinstance(mine, Buffer):
            return mine is known
        if mine.dtype is not theirs.dtype or mine.ndim != theirs.ndim or mine.strides:
            return False
        self.found.buffers[theirs] = mine
        return (yield self._all_same(mine.shape, theirs.shape))

    def _is_sum_or_product(self, mine: Any, theirs: Add | Mul) -> Steps:
        """In either order; or without a factor or summand that is a free symbol."""
        ways: list[tuple[Sequence[Any], Sequence[Any]]] = []
        if type(mine) is type(theirs):
            ways = [((mine.a, mine.b), (theirs.a, theirs.b))]
            ways.append(((mine.b, mine.a), (theirs.a, theirs.b)))
        neutral = 1 if isinstance(theirs, Mul) else 0
        for symbol, other in ((theirs.a, theirs.b), (theirs.b, theirs.a)):
            if symbol in self.symbols and symbol not in self.found.symbols:
                ways.append(((const(neutral, symbol.dtype), mine), (symbol, other)))
        before = self.found
        for left, right in ways:
            self.found = before.copy()
            if (yield self._all_same(left, right)):
                return True
        self.found = before
        return False

    def _all_same(self, mine: Sequence[Any], theirs: Sequence[Any]) -> Steps:
        if len(mine) != len(theirs):
            return False
        for a, b in zip(mine, theirs):
            if not (yield self._same(a, b)):
                return False
        return True

    def _alike(self, mine: Any, theirs: Any) -> Steps:
        """Node by node, but for the names of what is defined and for regions."""
        if type(mine) is not type(theirs):
            return False
        if isinstance(mine, IntImm):
            return mine.value == theirs.value
        if not mine._fields:
            return mine is theirs
        pairs: list[tuple[Any, Any]] = []
        if isinstance(mine, For):
            plain = [f.kind is ForKind.SERIAL and not f.annotations for f in (mine, theirs)]
            if not all(plain) or not all(is_const(f.min, 0) for f in (mine, theirs)):
                return False
            self.found.variables[theirs.loop_var] = mine.loop_var
            pairs = [(mine.extent, theirs.extent), (mine.body, theirs.body)]
        elif isinstance(mine, BlockRealize):
            if not all(is_const(r.predicate, 1) for r in (mine, theirs)):
                return False
            pairs = [*zip(mine.iter_values, theirs.iter_values), (mine.block, theirs.block)]
        elif isinstance(mine, Block):
            axes = [[(a.iter_type, a.dom is None) for a in b.iter_vars] for b in (mine, theirs)]
            if axes[0] != axes[1] or (mine.init is None) is not (theirs.init is None):
                return False
            if any(b.alloc_buffers or b.match_buffers for b in (mine, theirs)):
                return False
            for a, b in zip(mine.iter_vars, theirs.iter_vars):
                self.found.variables[b.var] = a.var
                pairs += [] if a.dom is None else [(a.dom.min, b.dom.min)]
                pairs += [] if a.dom is None else [(a.dom.extent, b.dom.extent)]
            pairs += [] if mine.init is None else [(mine.init, theirs.init)]
            pairs.append((mine.body, theirs.body))
        else:
            own, other = mine._children_, theirs._children_
            if len(own) != len(other) or not _same_leaves(mine, theirs):
                return False
            pairs = list(zip(own, other))
        return (yield self._all_same([a for a, _ in pairs], [b for _, b in pairs]))


def _same_leaves(mine: Any, theirs: Any) -> bool:
    """Whether what is no node in both is equal: integers are counted in any dtype."""
    for name, kind in zip(mine._fields, mine._kinds):
        a, b = getattr(mine, name), getattr(theirs, name)
        if kind != "leaf" or name == "span" or a is b or a == b:
            continue
        if name != "dtype" or isinstance(mine, Cast) or not (a.is_int and b.is_int):
            return False
    return True


def _number(e: Node) -> Any:
    return e.value if isinstance(e, (IntImm, FloatImm)) else e
