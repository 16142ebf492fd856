"""Scalar expressions as Python closures: `compile_expr(e)` gives a function of the frame that
returns `e`'s value.

A frame is a list of slots: one per variable, buffer view and remembered value. Expressions are
graphs, because equal expressions are one object: a node that stands in several places is evaluated
once per evaluation of its root, and a deep expression is evaluated piece by piece, so that neither
work nor stack grows with how it is written.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..base import DataType, NamedTuple, TIRError, VMError, VMValueError
from ..ir import (
    INTRINSICS,
    Add,
    And,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    FloatImm,
    GlobalVar,
    IntImm,
    Intrinsic,
    Let,
    Mul,
    Node,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Var,
    bound_failure,
    descend,
    post_order,
    why_no_dot,
)
from .interp_scalar import (
    bfloat16_bits,
    bfloat16_values,
    lane_binary,
    lane_bits,
    lane_cast,
    lane_intrinsic,
    lane_of_bits,
    lane_of_number,
    reinterpret_lanes,
)
from .stmt import Buffer, BufferLoad

Frame = list[Any]
Run = Callable[[Frame], Any]

# Closures nest this deep before a piece of the expression is evaluated ahead of the rest.
_PIECE = 30
# Nesting of parts that are evaluated only if needed cannot be cut into pieces.
_DEEPEST = 120


class _Piece(NamedTuple):
    """A compiled node.

    run    gives its value, if the values `ahead` of it were remembered
    depth  how deep the closures nest
    ahead  nodes to evaluate first to keep the nesting low
    """

    run: Run
    depth: int
    ahead: tuple[PrimExpr, ...]


class ExprCompiler:
    """Compiles the expressions of one function. Slots of variables and buffers come from `slot_of`.

    where  the function's name, for messages
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.size = 1  # slot 0 holds the context: module and call depth
        self._slots: dict[int, tuple[Node, int]] = {}
        self.scope: set[int] = set()
        self._trail: list[int] = []  # what was added to the scope, in order

    # -- slots -------------------------------------------------------------------------------------

    def new_slot(self) -> int:
        """A fresh slot."""
        self.size += 1
        return self.size - 1

    def slot_of(self, thing: Node) -> int:
        """The slot of a variable or buffer."""
        entry = self._slots.get(id(thing))
        if entry is None:
            entry = self._slots[id(thing)] = (thing, self.new_slot())
        return entry[1]

    def define(self, thing: Node) -> int:
        """The slot of a variable or buffer that is defined from here on."""
        if id(thing) not in self.scope:
            self.scope.add(id(thing))
            self._trail.append(id(thing))
        return self.slot_of(thing)

    def mark(self) -> int:
        """What is in scope now, to come back to with `leave`."""
        return len(self._trail)

    def leave(self, mark: int) -> None:
        """Forget what was defined since `mark`."""
        while len(self._trail) > mark:
            self.scope.discard(self._trail.pop())

    # -- expressions -------------------------------------------------------------------------------

    def compile(self, root: PrimExpr) -> Run:
        """The closure that evaluates `root`. Raises TIRError for what has no meaning."""
        kind = type(root)
        if isinstance(root, (IntImm, FloatImm)):
            return _constant(lane_of_number(root.value, root.dtype))
        if kind is Var or isinstance(root, Var):
            return self._variable(root)
        return _Expression(self, root).run()

    def _variable(self, var: Any) -> Run:
        if id(var) not in self.scope:
            raise TIRError(f"{self.where}: variable {var.name} is used but not defined here")
        return operator.itemgetter(self.slot_of(var))

    def view(self, buffer: Buffer) -> Run:
        """The closure that gives the numpy view of a buffer. Overridden where views can be made
        late.
        """
        if id(buffer) not in self.scope:
            raise TIRError(f"{self.where}: buffer {buffer.name} is used but not defined here")
        return operator.itemgetter(self.slot_of(buffer))

    def pointer(self, buffer: Buffer) -> Run:
        """The closure that gives the memory behind a buffer."""
        raise TIRError(f"{self.where}: the address of {buffer.name} is not known here")

    def call_function(
        self, gv: GlobalVar, args: list[Run], dtypes: list[DataType], result: DataType
    ) -> Run:
        """The closure that calls another function of the module."""
        raise TIRError(f"{self.where}: {gv.name_hint} cannot be called here")


class _Expression:
    """One root expression on its way to a closure."""

    def __init__(self, owner: ExprCompiler, root: PrimExpr) -> None:
        self.owner, self.root = owner, root
        self.pieces: dict[int, _Piece] = {}
        self.deep: dict[int, _Piece] = {}  # what the deep nodes need ahead of themselves
        self.remembered: list[int] = []
        self.order = _evaluated(root)
        self.uses: dict[int, int] = {}
        for n in self.order:
            for child in _operands(n):
                self.uses[id(child)] = self.uses.get(id(child), 0) + 1
        self.inner = {id(c) for n in self.order for c in self._continuations(n)}
        self.unsteady = self._find_unsteady()

    def _continuations(self, n: Any) -> list[PrimExpr]:
        """The operands that only go on with what `n` does: they are compiled as one with it."""
        kind = type(n)
        if (kind is And or kind is Or) and n.dtype.lanes == 1:
            return [c for c in (n.a, n.b) if type(c) is kind and self.uses[id(c)] == 1]
        if _is_call(n, "if_then_else"):
            last = n.args[2]
            return [last] if _is_call(last, "if_then_else") and self.uses[id(last)] == 1 else []
        if kind is Let:
            return [n.body] if type(n.body) is Let and self.uses[id(n.body)] == 1 else []
        return []

    def _find_unsteady(self) -> set[int]:
        """The nodes whose value may differ between two places of this expression: they are not
        remembered.
        """
        unsteady: set[int] = set()
        bound: set[int] = set()
        opaque = any(_is_opaque(n) for n in self.order)
        for n in self.order:
            if isinstance(n, Let):
                self.owner.define(n.var)
                if id(n.var) in bound or opaque:
                    unsteady.add(id(n.var))
                bound.add(id(n.var))
        for n in self.order:
            loads = opaque and isinstance(n, BufferLoad)
            if loads or _is_opaque(n) or any(id(c) in unsteady for c in _operands(n)):
                unsteady.add(id(n))
        return unsteady

    def run(self) -> Run:
        for n in self.order:
            if id(n) not in self.inner:
                self.pieces[id(n)] = self._remember(n, self._compile(n))
        evaluate, depth = self._region(self.root)
        if depth > _DEEPEST:
            raise TIRError(
                f"{self.owner.where}: an expression nests more than {_DEEPEST} conditional parts; "
                "store an intermediate value in a buffer or a let"
            )
        slots = self.remembered
        if not slots:
            return evaluate

        def forget_and_run(env: Frame) -> Any:
            for slot in slots:
                env[slot] = None
            return evaluate(env)

        return forget_and_run

    def _remember(self, n: PrimExpr, piece: _Piece) -> _Piece:
        deep = piece.depth > _PIECE
        shared = self.uses.get(id(n), 0) > 1 and piece.depth > 1
        if not (deep or shared) or id(n) in self.unsteady:
            return piece
        slot, compute = self.owner.new_slot(), piece.run
        self.remembered.append(slot)

        def remembered(env: Frame) -> Any:
            value = env[slot]
            if value is None:
                value = env[slot] = compute(env)
            return value

        if not deep:
            return _Piece(remembered, piece.depth + 1, piece.ahead)
        self.deep[id(n)] = piece
        return _Piece(remembered, 1, (n,))

    def _region(self, root: PrimExpr, known: tuple[PrimExpr, ...] = ()) -> tuple[Run, int]:
        """The closure for `root` where it is evaluated on its own, and how deep it nests.

        known  deep nodes that are evaluated before in any case
        """
        piece = self.pieces[id(root)]
        done = {id(n) for n in known}
        if all(id(n) in done for n in piece.ahead):
            return piece.run, piece.depth
        steps: list[Run] = []
        depth = piece.depth

        def ahead(n: PrimExpr) -> list[PrimExpr]:
            return [m for m in self.deep[id(n)].ahead if id(m) not in done]

        for first in piece.ahead:
            for n in post_order(first, ahead) if id(first) not in done else ():
                done.add(id(n))
                steps.append(self.pieces[id(n)].run)
                depth = max(depth, self.deep[id(n)].depth + 1)
        final = piece.run

        def in_steps(env: Frame) -> Any:
            for step in steps:
                step(env)
            return final(env)

        return in_steps, depth + 1

    # -- nodes -------------------------------------------------------------------------------------

    def _compile(self, n: PrimExpr) -> _Piece:
        handler = _HANDLERS.get(type(n))
        if handler is not None:
            return handler(self, n)
        if isinstance(n, BinaryExpr):
            return self._binary(n)
        if isinstance(n, Var):
            return _Piece(self.owner._variable(n), 1, ())
        raise TIRError(f"{self.owner.where}: the interpreter has no meaning for {type(n).__name__}")

    def _strict(self, children: list[PrimExpr], make: Callable[..., Run]) -> _Piece:
        """A node all of whose operands are evaluated."""
        pieces = [self.pieces[id(c)] for c in children]
        ahead = tuple(dict.fromkeys(n for p in pieces for n in p.ahead))
        depth = 1 + max((p.depth for p in pieces), default=0)
        return _Piece(make(*[p.run for p in pieces]), depth, ahead)

    def _binary(self, n: Any) -> _Piece:
        operation: Any = type(n)
        meaning = lane_binary(operation, n.a.dtype.element)
        return self._strict([n.a, n.b], lambda a, b: _lift2(meaning, a, b, n.a.dtype.lanes))

    def _constant(self, n: Any) -> _Piece:
        return _Piece(_constant(lane_of_number(n.value, n.dtype)), 1, ())

    def _string(self, n: Any) -> _Piece:
        return _Piece(_constant(n.value), 1, ())

    def _cast(self, n: Any) -> _Piece:
        meaning = lane_cast(n.value.dtype.element, n.dtype.element)
        return self._strict([n.value], lambda v: _lift1(meaning, v, n.dtype.lanes))

    def _not(self, n: Any) -> _Piece:
        return self._strict([n.a], lambda a: _lift1(operator.not_, a, n.dtype.lanes))

    def _logical(self, n: Any) -> _Piece:
        is_and: bool = type(n) is And
        if n.dtype.lanes > 1:
            meaning: Any = operator.and_ if is_and else operator.or_
            return self._strict([n.a, n.b], lambda a, b: _lift2(meaning, a, b, n.dtype.lanes))

        def joined(each: Any) -> Sequence[Any]:
            inside = each is n or (id(each) in self.inner and type(each) is type(n))
            return (each.a, each.b) if inside else ()

        terms = [each for each in descend(n, joined) if not joined(each)]
        first = self.pieces[id(terms[0])]
        rest = [self._region(t, first.ahead) for t in terms[1:]]
        runs = [first.run] + [run for run, _ in rest]
        decisive: bool = not is_and

        def run(env: Frame) -> bool:
            for term in runs:
                if term(env) is decisive:
                    return decisive
            return not decisive

        return _Piece(run, 1 + max(first.depth, *[d for _, d in rest]), first.ahead)

    def _select(self, n: Any) -> _Piece:
        vector_condition = n.condition.dtype.lanes > 1

        def make(condition: Run, true_value: Run, false_value: Run) -> Run:
            def run(env: Frame) -> Any:
                # Both sides, because machine code may evaluate both: an access out of bounds must
                # show.
                chosen, yes, no = condition(env), true_value(env), false_value(env)
                if vector_condition:
                    return [x if c else y for c, x, y in zip(chosen, yes, no)]
                return yes if chosen else no

            return run

        return self._strict([n.condition, n.true_value, n.false_value], make)

    def _let(self, n: Any) -> _Piece:
        first = self.pieces[id(n.value)]
        steps = [(self.owner.slot_of(n.var), first.run)]
        depths = [first.depth]
        body = n.body
        while id(body) in self.inner:
            value, depth = self._region(body.value, first.ahead)
            steps.append((self.owner.slot_of(body.var), value))
            depths.append(depth)
            body = body.body
        last, depth = self._region(body, first.ahead)

        def run(env: Frame) -> Any:
            for slot, value in steps:
                env[slot] = value(env)
            return last(env)

        return _Piece(run, 1 + max(depth, *depths), first.ahead)

    def _ramp(self, n: Any) -> _Piece:
        add = lane_binary(Add, n.base.dtype)
        multiply = lane_binary(Mul, n.base.dtype)
        lanes = range(n.lanes)

        def make(base: Run, stride: Run) -> Run:
            def run(env: Frame) -> list[Any]:
                start, step = base(env), stride(env)
                return [add(start, multiply(step, i)) for i in lanes]

            return run

        return self._strict([n.base, n.stride], make)

    def _broadcast(self, n: Any) -> _Piece:
        lanes = n.lanes
        return self._strict([n.value], lambda v: lambda env: [v(env)] * lanes)

    def _shuffle(self, n: Any) -> _Piece:
        picks = [int(i.value) for i in n.indices]
        widths = [v.dtype.lanes for v in n.vectors]

        def make(*vectors: Run) -> Run:
            def run(env: Frame) -> Any:
                joined: list[Any] = []
                for vector, width in zip(vectors, widths):
                    value = vector(env)
                    joined.extend(value if width > 1 else [value])
                return [joined[i] for i in picks] if len(picks) > 1 else joined[picks[0]]

            return run

        return self._strict(list(n.vectors), make)

    def _load(self, n: Any) -> _Piece:
        view = self.owner.view(n.buffer)
        return self._strict(
            list(n.indices), lambda *indices: _load(self.owner.where, n, view, indices)
        )

    def _call(self, n: Any) -> _Piece:
        if isinstance(n.op, GlobalVar):
            return self._call_function(n)
        if not isinstance(n.op, Intrinsic):
            raise TIRError(f"{self.owner.where}: the interpreter cannot call {n.op!r}")
        name = n.op.name.removeprefix("tir.")
        special = _SPECIAL_CALLS.get(name)
        return special(self, n) if special is not None else self._intrinsic(name, n)

    def _intrinsic(self, name: str, n: Any) -> _Piece:
        lanes = n.dtype.lanes
        for a in n.args:
            if a.dtype.lanes != lanes:
                raise TIRError(
                    f"{self.owner.where}: tir.{name} gives {n.dtype}, an argument is "
                    f"{a.dtype}: the lanes differ"
                )
        meaning = lane_intrinsic(name, n.args[0].dtype.element)

        def make(*args: Run) -> Run:
            if lanes > 1:
                return lambda env: [meaning(*each) for each in zip(*[a(env) for a in args])]
            if len(args) == 1:
                return _lift1(meaning, args[0], 1)
            if len(args) == 2:
                return _lift2(meaning, args[0], args[1], 1)
            return lambda env: meaning(*[a(env) for a in args])

        return self._strict(list(n.args), make)

    def _if_then_else(self, n: Any) -> _Piece:
        cases: list[tuple[Run, Run]] = []
        depths: list[int] = []
        ahead = self.pieces[id(n.args[0])].ahead
        last: Any = n
        while True:
            condition, value, last = last.args
            if not condition.dtype.is_bool or condition.dtype.lanes != 1:
                raise TIRError(
                    f"{self.owner.where}: if_then_else wants a scalar bool condition, "
                    f"got {condition.dtype}"
                )
            if value.dtype is not n.dtype or last.dtype is not n.dtype:
                raise TIRError(
                    f"{self.owner.where}: if_then_else of {n.dtype} chooses between "
                    f"{value.dtype} and {last.dtype}"
                )
            if cases:
                test, test_depth = self._region(condition, ahead)
            else:
                test, test_depth = self.pieces[id(condition)].run, self.pieces[id(condition)].depth
            taken, taken_depth = self._region(value, ahead)
            cases.append((test, taken))
            depths += (test_depth, taken_depth)
            if id(last) not in self.inner or not _is_call(last, "if_then_else"):
                break
        otherwise, depth = self._region(last, ahead)

        def run(env: Frame) -> Any:
            for test, taken in cases:
                if test(env):
                    return taken(env)
            return otherwise(env)

        return _Piece(run, 1 + max(depth, *depths), ahead)

    def _reinterpret(self, n: Any) -> _Piece:
        (value,) = n.args
        source, to = value.dtype, n.dtype
        if source.bits * source.lanes != to.bits * to.lanes or "handle" in (source.kind, to.kind):
            raise TIRError(f"{self.owner.where}: reinterpret of {source} as {to}: the sizes differ")

        def make(v: Run) -> Run:
            def run(env: Frame) -> Any:
                lanes = v(env) if source.lanes > 1 else [v(env)]
                seen = reinterpret_lanes(lanes, source.element, to.element)
                return seen if to.lanes > 1 else seen[0]

            return run

        return self._strict([value], make)

    def _dot_accumulate(self, n: Any) -> _Piece:
        acc, a, b = n.args
        wrong = why_no_dot(n.dtype, acc.dtype, a.dtype, b.dtype)
        if wrong:
            raise TIRError(f"{self.owner.where}: dot_accumulate: {wrong}")
        lanes, group = n.dtype.lanes, a.dtype.lanes // n.dtype.lanes
        add = lane_binary(Add, n.dtype.element)
        multiply = lane_binary(Mul, n.dtype.element)
        of_a = lane_cast(a.dtype.element, n.dtype.element)
        of_b = lane_cast(b.dtype.element, n.dtype.element)

        def make(*parts: Run) -> Run:
            def run(env: Frame) -> Any:
                sums, x, y = (part(env) for part in parts)
                sums = list(sums) if lanes > 1 else [sums]
                for i in range(lanes):
                    for k in range(group * i, group * i + group):
                        sums[i] = add(sums[i], multiply(of_a(x[k]), of_b(y[k])))
                return sums if lanes > 1 else sums[0]

            return run

        return self._strict([acc, a, b], make)

    def _half(self, n: Any) -> _Piece:
        (value,) = n.args
        half = value.dtype.lanes // 2
        high = n.op.name == "tir.vectorhigh"
        if half * 2 != value.dtype.lanes or value.dtype.with_lanes(half) is not n.dtype:
            raise TIRError(f"{self.owner.where}: half of {value.dtype} is not {n.dtype}")
        part: slice | int = slice(half, None) if high else slice(None, half)
        if half == 1:
            part = 1 if high else 0
        return self._strict([value], lambda v: lambda env: v(env)[part])

    def _undef(self, n: Any) -> _Piece:
        value = lane_of_number(0, n.dtype.element)
        return _Piece(_constant(value if n.dtype.lanes == 1 else [value] * n.dtype.lanes), 1, ())

    def _assume(self, n: Any) -> _Piece:
        where = self.owner.where

        def make(condition: Run) -> Run:
            def run(env: Frame) -> bool:
                if not condition(env):
                    raise VMError(f"{where}: an assumption (T.assume) does not hold")
                return True

            return run

        return self._strict(list(n.args), make)

    def _bound_check(self, n: Any) -> _Piece:
        """An index that a pass has guarded: it must be at least 0 and less than the limit."""
        name = n.args[2].value if isinstance(n.args[2], StringImm) else "?"
        where, lanes = self.owner.where, n.dtype.lanes

        def make(index: Run, limit: Run) -> Run:
            def run(env: Frame) -> Any:
                position, end = index(env), limit(env)
                for i in position if lanes > 1 else (position,):
                    if not 0 <= i < end:
                        raise VMValueError(f"{where}: {bound_failure(name)}: {i} of 0..{end - 1}")
                return position

            return run

        return self._strict(list(n.args[:2]), make)

    def _ret(self, n: Any) -> _Piece:
        raise TIRError(
            f"{self.owner.where}: T.ret leaves the function and cannot stand inside an expression"
        )

    def _address_of(self, n: Any) -> _Piece:
        load = n.args[0]
        if not isinstance(load, BufferLoad):
            raise TIRError(f"{self.owner.where}: address_of wants a buffer element")
        view = self.owner.view(load.buffer)
        pointer = self.owner.pointer(load.buffer)
        where = self.owner.where

        def make(*indices: Run) -> Run:
            def run(env: Frame) -> Any:
                array, memory = view(env), pointer(env)
                position = tuple(i(env) for i in indices)
                find_element(where, "address_of", load.buffer, array, position)
                start = _address(array) - _address(memory)
                return memory[start + sum(i * s for i, s in zip(position, array.strides)) :]

            return run

        return self._strict(list(load.indices), make)

    def _access_ptr(self, n: Any) -> _Piece:
        size = n.args[0].dtype.itemsize
        where = self.owner.where

        def make(data: Run, offset: Run, extent: Run) -> Run:
            def run(env: Frame) -> Any:
                memory, start, count = data(env), offset(env) * size, extent(env) * size
                if start < 0 or count < 0 or start + count > memory.nbytes:
                    raise VMValueError(
                        f"{where}: tvm_access_ptr to bytes {start}..{start + count} "
                        f"of {memory.nbytes}"
                    )
                return memory[start : start + count]

            return run

        return self._strict(list(n.args[1:4]), make)

    def _call_extern(self, n: Any) -> _Piece:
        callee = n.args[0]
        name = callee.value if isinstance(callee, StringImm) else "?"
        known = _libm(name, n.dtype)
        if known is None or any(a.dtype is not n.dtype for a in n.args[1:]):
            raise TIRError(
                f"{self.owner.where}: the interpreter cannot call the extern {name!r}; "
                "it knows C's mathematical functions only"
            )
        if INTRINSICS[known].arity != len(n.args) - 1:
            raise TIRError(f"{self.owner.where}: {name} takes {INTRINSICS[known].arity} arguments")
        return self._intrinsic(known, n.replace(args=n.args[1:]))

    def _call_function(self, n: Any) -> _Piece:
        # A buffer as an argument passes its view, any expression its value.
        views = {i: self.owner.view(a) for i, a in enumerate(n.args) if isinstance(a, Buffer)}
        scalars = [a for a in n.args if not isinstance(a, Buffer)]

        def make(*operands: Run) -> Run:
            rest = iter(operands)
            args = [views[i] if i in views else next(rest) for i in range(len(n.args))]
            return self.owner.call_function(n.op, args, [a.dtype for a in n.args], n.dtype)

        return self._strict(scalars, make)


# -- pieces of closures ----------------------------------------------------------------------------


def _constant(value: Any) -> Run:
    return lambda env: value


def _lift1(meaning: Callable[[Any], Any], a: Run, lanes: int) -> Run:
    if lanes > 1:
        return lambda env: [meaning(x) for x in a(env)]
    return lambda env: meaning(a(env))


def _lift2(meaning: Callable[[Any, Any], Any], a: Run, b: Run, lanes: int) -> Run:
    if lanes > 1:
        return lambda env: [meaning(x, y) for x, y in zip(a(env), b(env))]
    return lambda env: meaning(a(env), b(env))


def _is_call(n: Any, name: str) -> bool:
    return type(n) is Call and n.op is INTRINSICS[name]


def _is_opaque(n: Any) -> bool:
    return type(n) is Call and getattr(n.op, "effect", "opaque") == "opaque"


def _operands(n: Any) -> list[PrimExpr]:
    """The expressions evaluated for `n`, where all of it is evaluated."""
    kind = type(n)
    if kind is BufferLoad:
        return list(n.indices)
    if kind is Let:
        return [n.value, n.body]
    if kind is Call:
        if _is_call(n, "address_of"):
            return list(n.args[0].indices) if isinstance(n.args[0], BufferLoad) else []
        if _is_call(n, "tvm_access_ptr"):
            return list(n.args[1:4])
        return [a for a in n.args if isinstance(a, PrimExpr)]
    return [c for c in n._children_ if isinstance(c, PrimExpr)]


def _evaluated(root: PrimExpr) -> list[Any]:
    """Every expression that evaluating `root` may evaluate, operands first, shared ones once."""
    return post_order(root, _operands)


# C's names of functions that mean the same here. (C's `round` does not: it rounds ties away from
# zero.)
_LIBM = {
    **{
        name: name
        for name in (
            "exp exp2 expm1 log log2 log10 log1p sqrt tanh erf sin cos tan asin acos atan sinh "
            "cosh asinh acosh atanh floor ceil trunc nearbyint fabs pow atan2 fmod copysign hypot "
            "nextafter fma"
        ).split()
    },
    "rint": "nearbyint",
}


def _libm(name: str, dtype: DataType) -> str | None:
    if dtype == "float64":
        return _LIBM.get(name)
    return _LIBM.get(name[:-1]) if dtype == "float32" and name.endswith("f") else None


# -- memory ----------------------------------------------------------------------------------------


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def find_element(
    where: str, what: str, buffer: Buffer, array: np.ndarray, place: tuple[int, ...]
) -> None:
    """Raise VMValueError unless `place` is an element of the view `array` of `buffer`."""
    for axis, (i, extent) in enumerate(zip(place, array.shape)):
        if not 0 <= i < extent:
            shape = array.shape[: buffer.ndim]
            raise VMValueError(
                f"{where}: {what} of {buffer.name}[{', '.join(map(str, place))}] is out of bounds: "
                f"axis {axis} of shape {shape} has the indices 0..{extent - 1}"
            )


def _read_int(array: np.ndarray, position: tuple[int, ...]) -> Any:
    return array.item(position)


def _read_bfloat16(array: np.ndarray, position: tuple[int, ...]) -> Any:
    return bfloat16_values()[array.item(position)]


def _byte_access(dtype: DataType) -> tuple[Any, Any]:
    def read(array: np.ndarray, position: tuple[int, ...]) -> Any:
        return lane_of_bits(array.item(position)[0], dtype)

    def write(array: np.ndarray, position: tuple[int, ...], value: Any) -> None:
        array[position] = bytes([lane_bits(value, dtype)])

    return read, write


def _write_bfloat16(array: np.ndarray, position: tuple[int, ...], value: Any) -> None:
    array[position] = bfloat16_bits(value)


def view_storage(dtype: DataType) -> tuple[Callable[..., Any], Callable[..., None]]:
    """How one lane of the element type `dtype` is read from a numpy array, and written to it."""
    if dtype.is_bfloat:
        return _read_bfloat16, _write_bfloat16
    if dtype.is_byte:
        return _byte_access(dtype)
    if dtype.is_float:
        return operator.getitem, operator.setitem
    return _read_int, operator.setitem


def lanes_at(indices: tuple[Any, ...], values: list[Any], lanes: int) -> list[tuple[int, ...]]:
    """The index tuples of a vector access: one per lane of its vector indices."""
    return [
        tuple([v[k] if i.dtype.lanes > 1 else v for i, v in zip(indices, values)])
        for k in range(lanes)
    ]


def _load(where: str, n: BufferLoad, view: Run, indices: tuple[Run, ...]) -> Run:
    read, _ = view_storage(n.buffer.dtype.element)
    inner = n.buffer.dtype.lanes
    if n.dtype.lanes == 1:

        def run(env: Frame) -> Any:
            array, position = view(env), tuple([i(env) for i in indices])
            try:
                if position and min(position) < 0:
                    raise IndexError
                return read(array, position)
            except IndexError:
                find_element(where, "load", n.buffer, array, position)
                raise

        return run
    lanes = n.dtype.lanes // inner

    def run_vector(env: Frame) -> list[Any]:
        array, values = view(env), [i(env) for i in indices]
        out = []
        for position in lanes_at(n.indices, values, lanes):
            find_element(where, "load", n.buffer, array, position)
            places = [position] if inner == 1 else [(*position, k) for k in range(inner)]
            out.extend([read(array, place) for place in places])
        return out

    return run_vector


_HANDLERS: dict[type, Callable[[_Expression, Any], _Piece]] = {
    IntImm: _Expression._constant,
    FloatImm: _Expression._constant,
    StringImm: _Expression._string,
    Cast: _Expression._cast,
    Not: _Expression._not,
    And: _Expression._logical,
    Or: _Expression._logical,
    Select: _Expression._select,
    Let: _Expression._let,
    Ramp: _Expression._ramp,
    Broadcast: _Expression._broadcast,
    Shuffle: _Expression._shuffle,
    BufferLoad: _Expression._load,
    Call: _Expression._call,
}
_SPECIAL_CALLS: dict[str, Callable[[_Expression, Any], _Piece]] = {
    "if_then_else": _Expression._if_then_else,
    "reinterpret": _Expression._reinterpret,
    "dot_accumulate": _Expression._dot_accumulate,
    "vectorlow": _Expression._half,
    "vectorhigh": _Expression._half,
    "undef": _Expression._undef,
    "assume": _Expression._assume,
    "bound_check": _Expression._bound_check,
    "ret": _Expression._ret,
    "address_of": _Expression._address_of,
    "tvm_access_ptr": _Expression._access_ptr,
    "call_extern": _Expression._call_extern,
    "call_pure_extern": _Expression._call_extern,
}
