"""`Schedule`: the face of the primitives, with random variables and a trace."""

from __future__ import annotations

import contextlib
import inspect
import random as random_numbers
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from typing import Any, NoReturn, TypeVar

from ...arith import Analyzer
from ...base import UNKNOWN, DTypeError, RelaxvmError, ScheduleError, TIRError
from ...ir import INT32, GlobalVar, IntImm, IRModule, PrimExpr, Var, as_expr, descend, substitute
from ..analysis import verify_well_formed
from ..stmt import FORMULA, Block, PrimFunc
from .model.nest import picture
from .model.primitive import PRIMITIVES, BlockRV, ExprRV, LoopRV, Primitive
from .model.state import Path, State, free_variables, start
from .model.trace import Instruction, Trace
from .primitives import (
    cache,
    fewer_products,
    inline,
    layout,
    lookup,
    loops,
    marks,
    moving,
    packing,
    padding,
    reductions,
    reindexing,
    rolling,
    sampling,
    tensorize,
    windows,
)

F = TypeVar("F", bound=Callable[..., Any])
_LEVELS = ("detail", "fast", "none")
_MASKS = ("all", "none")


def face(function: F) -> Any:
    """The method that applies a primitive, with its signature and docstring."""
    kind = PRIMITIVES[function.__name__]

    def method(self: Schedule, *args: Any, **kwargs: Any) -> Any:
        return self._call(kind, args, kwargs)

    method.__name__ = method.__qualname__ = kind.method
    method.__doc__ = function.__doc__
    method.__signature__ = kind.signature.replace(  # type: ignore[attr-defined]
        parameters=[_SELF, *kind.signature.parameters.values()]
    )
    return method


_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Schedule:
    """Changes the loops of one or several loop functions, step by step.

    mod                 a PrimFunc, or an IRModule of them
    seed                of the random primitives; None: another one each time
    debug_mask          "all": verify the function after each step
    error_render_level  "detail": messages show the loop nest; "fast": the reason; "none": its kind
    enable_check        accepted as in TVM; the checks always run

    Blocks, loops and numbers are named by random variables, which stay valid while what they name
    is there. A primitive that refuses raises ScheduleError and has changed nothing.
    """

    def __init__(
        self,
        mod: PrimFunc | IRModule,
        *,
        seed: int | None = None,
        debug_mask: str | int = "none",
        error_render_level: str = "detail",
        enable_check: bool = True,
    ) -> None:
        if isinstance(mod, PrimFunc):
            mod = IRModule({"main": mod})
        elif not isinstance(mod, IRModule):
            raise TIRError(f"Schedule: wanted a PrimFunc or an IRModule, got {type(mod).__name__}")
        if error_render_level not in _LEVELS:
            raise ScheduleError(
                f"error_render_level is one of {', '.join(_LEVELS)}, got {error_render_level!r}"
            )
        if debug_mask not in _MASKS and not (
            isinstance(debug_mask, int) and type(debug_mask) is not bool
        ):
            raise ScheduleError(
                f'debug_mask is "all", "none" or a number as in TVM, got {debug_mask!r}'
            )
        self._base = mod
        self._states: dict[str, State] = {}
        for gv, fn in mod.functions.items():
            if isinstance(fn, PrimFunc):
                # Whoever makes a schedule wants its loops, as they are at the end.
                fn = fn.replace(span=UNKNOWN) if fn.span is FORMULA else fn
                self._states[gv.name_hint] = start(fn)
        names = list(self._states)
        self._working: str | None = names[0] if len(names) == 1 else None
        if "main" in self._states:
            self._working = "main"
        self._table: dict[Any, tuple[str, Any]] = {}
        self._block_rvs: list[BlockRV] = []  # those in the table
        self._seed = seed
        self._rng: random_numbers.Random | None = None  # most schedules draw nothing
        self._debug = debug_mask not in ("none", 0)
        self._render = error_render_level
        self._current: str = self._working or ""
        self._trace = Trace()

    @property
    def trace(self) -> Trace:
        """The steps so far."""
        return self._trace

    # -- what is there -----------------------------------------------------------------------------

    @property
    def mod(self) -> IRModule:
        """The module as it is now."""
        mod = self._base
        changed = {name: s.fn for name, s in self._states.items() if self._base[name] is not s.fn}
        if changed:
            mod = IRModule(mod.functions, mod.attrs, mod.global_infos)
            for name, fn in changed.items():
                mod[name] = fn
        return mod

    @property
    def func_working_on(self) -> GlobalVar | None:
        """The function that `get_block` looks into by default."""
        return None if self._working is None else self._base.get_global_var(self._working)

    def work_on(self, func_name: str | GlobalVar) -> None:
        """Let `get_block` look into the function `func_name` from here on."""
        named = func_name.name_hint if isinstance(func_name, GlobalVar) else func_name
        self._working = self._known(named)

    @property
    def state(self) -> State:
        """The state of the function that is worked on (see `tir/schedule/model/state.py`)."""
        return self._states[self._function()]

    def show(self, **options: Any) -> None:
        """Print the module, and the trace as Python."""
        self.mod.show(**options)
        self.trace.show()

    def __repr__(self) -> str:
        return f"Schedule({', '.join(self._states)}; {len(self._trace.insts)} steps)"

    def _known(self, func_name: str) -> str:
        if not isinstance(func_name, str) or func_name not in self._states:
            there = ", ".join(self._states) or "none"
            raise ScheduleError(f"no loop function is named {func_name!r}; there are: {there}")
        return func_name

    def _function(self) -> str:
        if self._working is None:
            there = ", ".join(self._states) or "none"
            raise ScheduleError(
                f"which function? there are: {there}; call work_on, or pass func_name"
            )
        return self._working

    # -- random variables --------------------------------------------------------------------------

    def get(self, rand_var_or_sref: Any) -> Any:
        """What a random variable stands for now: a `Block`, a `For`, or a number; "root" or
        "inline" for a drawn place that is no loop.

        An expression of random numbers gives its value.
        """
        rv = rand_var_or_sref
        if isinstance(rv, Path):
            return rv.stmt
        if isinstance(rv, PrimExpr):
            value = self.resolve_expr(rv, "get")
            return value.value if isinstance(value, IntImm) else value
        function, what = self._entry(rv, "get")
        state = self._states[function]
        if isinstance(rv, LoopRV):
            return what if isinstance(what, str) else state.loop(what)
        state.check(what)
        return what

    def has_block(self, block: BlockRV) -> bool:
        """Whether the block that `block` stands for is still in its function."""
        function, stmt = self._entry(block, "has_block")
        return self._states[function].has(stmt)

    def get_sref(self, rand_var_or_stmt: Any) -> Path:
        """Where a block or loop is: its path, with `stmt`, `parent` and `scope`."""
        if isinstance(rand_var_or_stmt, (BlockRV, LoopRV)):
            function, _ = self._entry(rand_var_or_stmt, "get_sref")
            return self._states[function].path(self.get(rand_var_or_stmt))
        for state in self._states.values():
            if state.has(rand_var_or_stmt):
                return state.path(rand_var_or_stmt)
        raise ScheduleError("get_sref: the statement is not in the functions being scheduled")

    def remove_rv(self, rand_var: Any) -> None:
        """Forget a random variable."""
        if self._table.pop(rand_var, None) is None:
            raise ScheduleError("remove_rv: this schedule does not know the random variable")
        self._block_rvs = [rv for rv in self._block_rvs if rv is not rand_var]

    def _entry(self, rv: Any, what: str) -> tuple[str, Any]:
        entry = self._table.get(rv) if isinstance(rv, (BlockRV, LoopRV, Var)) else None
        if entry is None:
            wanted = "a random variable of this schedule"
            raise ScheduleError(f"{what}: wanted {wanted}, got {type(rv).__name__}")
        return entry

    # Used by the kinds of `primitive.py`.

    def resolve_block(self, rv: Any, what: str) -> Block:
        if not isinstance(rv, BlockRV):
            raise ScheduleError(f"{what}: wanted a block (of get_block), got {type(rv).__name__}")
        function, block = self._entry(rv, what)
        if function != self._current:
            self._stay_in(function, what)
        self._states[function].check(block)
        node: Block = block
        return node

    def resolve_loop(self, rv: Any, what: str) -> Var:
        loop = self.resolve_place(rv, what)
        if isinstance(loop, str):
            raise ScheduleError(f"{what}: wanted a loop, got a drawn place that is none: {loop}")
        return loop

    def resolve_place(self, rv: Any, what: str) -> Var | str:
        if not isinstance(rv, LoopRV):
            raise ScheduleError(f"{what}: wanted a loop (of get_loops), got {type(rv).__name__}")
        function, place = self._entry(rv, what)
        if function != self._current:
            self._stay_in(function, what)
        if not isinstance(place, str):
            self._states[function].loop(place)
        drawn: Var | str = place
        return drawn

    def _stay_in(self, function: str, what: str) -> NoReturn:
        raise ScheduleError(
            f"{what}: one argument is of function {self._current}, another of {function}"
        )

    def resolve_expr(self, value: Any, what: str) -> PrimExpr:
        if isinstance(value, bool) or not isinstance(value, (int, PrimExpr)):
            try:
                value = int(value.__index__())
            except AttributeError:
                raise ScheduleError(
                    f"{what}: wanted an integer or a sampled number, got {value!r}"
                ) from None
        e = as_expr(value)
        values = {}
        for v in free_variables(e):
            entry = self._table.get(v)
            if entry is not None:
                values[v] = as_expr(entry[1], v.dtype)
        unknown = set(free_variables(e)) - set(values)
        if unknown:
            self._check_known(unknown, what)
        if not values:
            return e
        return Analyzer(wrap=True).simplify(substitute(e, values))

    def _check_known(self, variables: Iterable[Var], what: str) -> None:
        """Raise ScheduleError for variables that have no value where the function begins."""
        sizes = set(_sizes(self._states[self._current].fn))
        for v in variables:
            if v not in sizes:
                raise ScheduleError(
                    f"{what}: {v.name} is neither a size nor a scalar parameter of function "
                    f"{self._current}"
                )

    def new_block(self, block: Block) -> BlockRV:
        rv = BlockRV()
        self._table[rv] = (self._current, block)
        self._block_rvs.append(rv)
        return rv

    def new_loop(self, loop: Var | str) -> LoopRV:
        rv = LoopRV()
        self._table[rv] = (self._current, loop)
        return rv

    def new_expr(self, value: int) -> Var:
        rv = ExprRV("v", INT32)
        self._table[rv] = (self._current, int(value))
        return rv

    def state_now(self) -> State:
        return self._states[self._current]

    def block_given(self, value: Any) -> Any:
        return self.get_block(value) if isinstance(value, str) else value

    def get_size(self, name: str) -> Var:
        """The symbolic size, or scalar parameter, of that name of the function worked on."""
        for v in _sizes(self.state.fn):
            if v.name == name:
                return v
        raise ScheduleError(f"get_size: the function has no size {name!r}")

    # -- applying primitives -----------------------------------------------------------------------

    def _call(self, kind: Primitive, args: Any, kwargs: Any) -> Any:
        try:
            bound = kind.bound(args, kwargs)
        except TypeError as error:
            raise ScheduleError(f"{kind.method}: {error}") from None
        if isinstance(bound.get("func_name"), GlobalVar):
            bound["func_name"] = bound["func_name"].name_hint
        arguments = {}
        for name, value in bound.items():
            arguments[name] = kind.kinds[name].given(self, value, f"{kind.method}: {name}")
        return self._apply(kind, arguments)[0]

    def _run(self, kind: Primitive, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
        """Apply a recorded instruction; returns its outputs."""
        return self._apply(kind, dict(arguments))[1]

    def _apply(self, kind: Primitive, arguments: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        function = self._current = self._function_of(arguments)
        state = self._states[function].fresh()
        try:
            for name in filter(arguments.__contains__, kind.completes):
                value, what = arguments[name], f"{kind.method}: {name}"
                completed = kind.kinds[name].complete(self, value, arguments, what)
                arguments = {**arguments, name: completed}
            result, decision = self._perform(kind, arguments, state)
        except ScheduleError as error:
            raise self._rendered(kind, error, state, function) from None
        except (TIRError, DTypeError) as error:
            # What the arguments asked for cannot be built: a number beyond int32, an unknown dtype.
            refusal = ScheduleError(str(error))
            raise self._rendered(kind, refusal, state, function) from error
        except RelaxvmError as error:
            error.add_note(f"in {kind.method} of function {function}")
            raise
        wrapped = None if kind.gives is None else kind.gives.wrap(self, result)
        outputs = tuple(kind.outputs(wrapped))
        recorded = (
            {k: v for k, v in arguments.items() if k != "decision"} if kind.random else arguments
        )
        if "func_name" in arguments and arguments["func_name"] is None:
            recorded = {**recorded, "func_name": function}
        self._trace.append(Instruction.of(kind, recorded, outputs), decision)
        return wrapped, outputs

    def _perform(self, kind: Primitive, arguments: dict[str, Any], state: State) -> tuple[Any, Any]:
        named = {}
        for name, value in arguments.items():
            named[name] = kind.kinds[name].resolve(self, value, f"{kind.method}: {name}")
        positional = named.pop(kind.rest or "", None) or ()
        decision = None
        if kind.random:
            new, result, decision = kind.function(state, *positional, **named, rng=self._numbers())
        else:
            new, result = kind.function(state, *positional, **named)
        if new is not state:
            if self._debug:
                verify_well_formed(new.fn)
            self.commit(new)
        return result, decision

    def commit(self, new: State) -> None:
        """Go on with the function as `new` has it: of a primitive, or of a rule that knows more
        than a primitive could check.
        """
        function = self._current
        self._states[function] = new
        if not new.moved:
            return
        for rv in self._block_rvs:
            owner, block = self._table[rv]
            pair = new.moved.get(id(block))
            if pair is not None and owner == function:
                self._table[rv] = (owner, pair[1])

    def _function_of(self, arguments: Mapping[str, Any]) -> str:
        name = arguments.get("func_name")
        if name is not None or len(self._states) == 1:
            return self._known(name) if name is not None else self._function()
        every: Any = list(arguments.values())
        for value in descend(every, lambda v: v if isinstance(v, (list, tuple)) else ()):
            if isinstance(value, (BlockRV, LoopRV)) and value in self._table:
                return self._table[value][0]
        return self._function()

    def _rendered(
        self, kind: Primitive, error: ScheduleError, state: State, function: str
    ) -> ScheduleError:
        if self._render == "none":
            return ScheduleError(f"{kind.method} is not possible here")
        reason = str(error)
        text = reason if reason.startswith(f"{kind.method}:") else f"{kind.method}: {reason}"
        if self._render == "detail":
            text += f"\n  in function {function}:\n{picture(state, error.sites)}"
        return ScheduleError(text)

    # -- copies and seeds --------------------------------------------------------------------------

    def copy(self) -> Schedule:
        """A schedule of its own in the same state; the random variables are valid in both."""
        duplicate = Schedule.__new__(Schedule)
        duplicate.__dict__.update(self.__dict__)
        duplicate._states = dict(self._states)
        duplicate._table = dict(self._table)
        duplicate._block_rvs = list(self._block_rvs)
        duplicate._rng = copy(self._rng)
        duplicate._trace = self._trace.copy()
        return duplicate

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """What is done inside is done whole or, where anything is raised, not at all."""
        before = self.copy()
        try:
            yield
        except BaseException:
            self.__dict__.update(before.__dict__)
            raise

    def seed(self, seed: int | None) -> None:
        """Start the random primitives again from `seed`."""
        self._seed, self._rng = seed, None

    def _numbers(self) -> random_numbers.Random:
        if self._rng is None:
            self._rng = random_numbers.Random(self._seed)
        return self._rng

    def fork_seed(self) -> int:
        """A seed for another schedule."""
        return self._numbers().randrange(1, 1 << 31)

    # -- the primitives ----------------------------------------------------------------------------

    get_block = get_sblock = face(lookup.get_block)
    get_loops = face(lookup.get_loops)
    get_child_blocks = face(lookup.get_child_blocks)
    get_producers = face(lookup.get_producers)
    get_consumers = face(lookup.get_consumers)
    get_output_blocks = face(lookup.get_output_blocks)

    sample_categorical = face(sampling.sample_categorical)
    sample_perfect_tile = face(sampling.sample_perfect_tile)
    sample_partitioned_tile = face(sampling.sample_partitioned_tile)
    sample_compute_location = face(sampling.sample_compute_location)

    split = face(loops.split)
    fuse = face(loops.fuse)
    reorder = face(loops.reorder)
    reorder_block_iter_var = face(loops.reorder_block_iter_var)
    add_unit_loop = face(loops.add_unit_loop)
    loop_partition = face(loops.loop_partition)
    merge = face(loops.merge)

    parallel = face(marks.parallel)
    vectorize = face(marks.vectorize)
    unroll = face(marks.unroll)
    bind = face(marks.bind)
    annotate = face(marks.annotate)
    unannotate = face(marks.unannotate)

    compute_inline = face(inline.compute_inline)
    reverse_compute_inline = face(inline.reverse_compute_inline)
    compute_at = face(moving.compute_at)
    reverse_compute_at = face(moving.reverse_compute_at)
    read_at = face(cache.read_at)
    write_at = face(cache.write_at)

    cache_read = face(cache.cache_read)
    cache_write = face(cache.cache_write)
    cache_inplace = face(cache.cache_inplace)
    cache_index = face(cache.cache_index)
    reindex = face(reindexing.reindex)
    reindex_cache_read = face(reindexing.reindex_cache_read)
    reindex_cache_write = face(reindexing.reindex_cache_write)

    decompose_reduction = face(reductions.decompose_reduction)
    rfactor = face(reductions.rfactor)
    fuse_reduction_epilogue = face(reductions.fuse_reduction_epilogue)
    separate_window = face(windows.separate_window)
    decompose_padding = face(padding.decompose_padding)
    pad_einsum = face(padding.pad_einsum)
    pack_contraction = face(packing.pack_contraction)
    fewer_products = face(fewer_products.fewer_products)

    blockize = face(tensorize.blockize)
    tensorize = face(tensorize.tensorize)

    transform_layout = face(layout.transform_layout)
    transform_block_layout = face(layout.transform_block_layout)
    annotate_buffer_access = face(layout.annotate_buffer_access)
    unsafe_hide_buffer_access = face(layout.unsafe_hide_buffer_access)
    rolling_buffer = face(rolling.rolling_buffer)

    set_scope = face(marks.set_scope)
    storage_align = face(marks.storage_align)
    set_axis_separator = face(marks.set_axis_separator)
    unsafe_set_dtype = face(marks.unsafe_set_dtype)
    enter_postproc = face(marks.enter_postproc)


def _sizes(fn: PrimFunc) -> Iterator[Var]:
    """The symbolic sizes and the parameters of a function."""
    for e in (e for b in fn.buffers for e in (*b.shape, *b.strides, b.elem_offset)):
        yield from free_variables(e)
    yield from fn.params
