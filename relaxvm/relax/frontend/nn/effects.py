"""The effects there are: `IOEffect`, which keeps prints in order, and `KVCache`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....base import FrontendError
from ....base import dtype as as_dtype
from ....ir import IntImm, PrimExpr
from ....runtime import Builtins
from ...derive import prove_dims
from ...expr import ExternFunc, PrimValue, StringImm, Var
from ...op import call_inplace_packed, call_pure_packed, null_value, zeros
from ...op.memory import view
from ...struct_info import ObjectStructInfo, ShapeExpr, TensorStructInfo
from .tensor import Tensor, current_builder, dims_of_spec
from .tree import Effect, get_default_dtype

_OBJECT = ObjectStructInfo()


class IOEffect(Effect):
    """The order of what a program shows: each call that prints hands it to the next."""

    def __init__(self) -> None:
        self.effect: Var | None = None

    def emit_init(self, name_hint: str, builder: Any) -> list[Var]:
        """No value at all."""
        return [builder.emit(null_value(), f"{name_hint}_io")]

    def create(self, name_hint: str) -> list[Var]:
        """One parameter."""
        return [Var(f"{name_hint}_io", _OBJECT)]

    def set_state(self, state_vars: list[Var]) -> None:
        """What the last call gave on."""
        (self.effect,) = state_vars

    def finalize(self) -> list[Var]:
        """What the last call gave on; then nothing."""
        effect, self.effect = self.effect, None
        assert effect is not None
        return [effect]

    def call(self, name: str, line: str, args: Sequence[Any]) -> None:
        """Call the packed function `name` with the source line and `args`, after all before it."""
        operands = (self.effect, ExternFunc(name), StringImm(line), *args)
        self.effect = current_builder(name).emit(
            call_pure_packed(Builtins.INVOKE_DEBUG_FUNC.name, *operands, sinfo_args=_OBJECT), "_io"
        )


class KVCache(Effect):
    """Rows that grow from call to call, such as the keys a decoder has seen.

    init_seq_len  rows to reserve memory for (more are taken as they come)
    unit_shape    shape of a row, such as (heads, head dimension)
    dtype         None: the default dtype

        def forward(self, k: Tensor, total: tir.Var):      # k [n, heads, dim]
            self.cache.append(k)
            keys = self.cache.view(total)                  # [total, heads, dim], no copy
    """

    def __init__(self, init_seq_len: int, unit_shape: Sequence[int], dtype: Any = None) -> None:
        dims = dims_of_spec([init_seq_len, *unit_shape], "KVCache")
        if not all(isinstance(d, int) for d in dims):
            raise FrontendError(f"KVCache: wanted a row of known shape, got {list(unit_shape)}")
        self.init_seq_len: int = dims[0]
        self.unit_shape: list[int] = dims[1:]
        self.dtype = as_dtype(get_default_dtype() if dtype is None else dtype)
        self.cache: Var | None = None
        self._name = "cache"

    def emit_init(self, name_hint: str, builder: Any) -> list[Var]:
        """A cache without rows, and with room for `init_seq_len`."""
        shape = ShapeExpr([self.init_seq_len, *self.unit_shape])
        start = builder.emit(zeros(shape, self.dtype))
        # The name also keeps two caches of one shape apart: equal pure calls may be merged.
        call = call_pure_packed(
            Builtins.ATTENTION_KV_CACHE_CREATE.name,
            start,
            shape,
            PrimValue(0),
            StringImm(name_hint),
            sinfo_args=_OBJECT,
        )
        return [builder.emit(call, name_hint)]

    def create(self, name_hint: str) -> list[Var]:
        """One parameter."""
        self._name = name_hint
        return [Var(name_hint, _OBJECT)]

    def set_state(self, state_vars: list[Var]) -> None:
        """The cache as the last change left it."""
        (self.cache,) = state_vars

    def finalize(self) -> list[Var]:
        """The cache as the method leaves it; then nothing."""
        cache, self.cache = self.cache, None
        assert cache is not None
        return [cache]

    def to(self, dtype: Any = None) -> None:
        """Change the dtype of the rows."""
        if dtype is not None:
            self.dtype = as_dtype(dtype)

    def append(self, new_element: Tensor) -> None:
        """Add rows: [n, *unit_shape], of the cache's dtype.

        Raises FrontendError for other shapes and dtypes.
        """
        state = self._state("append")
        what = f"KVCache {self._name}: append"
        if not isinstance(new_element, Tensor):
            raise FrontendError(f"{what}: wanted a Tensor, got {type(new_element).__name__}")
        if new_element.dtype != self.dtype:
            raise FrontendError(f"{what}: wanted dtype {self.dtype}, got {new_element.dtype}")
        dims = new_element.struct_info.dims or ()
        fits = len(dims) == len(self.unit_shape) + 1 and all(
            prove_dims(have, IntImm("int64", want)) is not False
            for have, want in zip(dims[1:], self.unit_shape)
        )
        if not fits:
            rows = ", ".join(["n", *map(str, self.unit_shape)])
            raise FrontendError(f"{what}: wanted shape ({rows}), got {new_element.shape}")
        call = call_inplace_packed(
            Builtins.ATTENTION_KV_CACHE_APPEND.name,
            state,
            new_element._expr,
            inplace_indices=[0],
            sinfo_args=_OBJECT,
        )
        self.cache = current_builder("KVCache.append").emit(call, self._name)

    def view(self, seq_len: int | PrimExpr, shape: Sequence[Any] | None = None) -> Tensor:
        """All rows: [seq_len, *unit_shape]. That there are so many is checked when it runs.

        shape  the same elements in another shape, such as (1, seq_len, heads, dim): no copy either
        """
        what = f"KVCache {self._name}: view"
        dims = dims_of_spec([seq_len, *self.unit_shape], what)
        info = TensorStructInfo(dims, self.dtype)
        state, builder = self._state("view"), current_builder("KVCache.view")
        call = call_pure_packed(
            Builtins.ATTENTION_KV_CACHE_VIEW.name, state, ShapeExpr(dims), sinfo_args=info
        )
        rows = builder.emit(call, f"{self._name}_view")
        if shape is not None:
            rows = builder.emit(view(rows, ShapeExpr(dims_of_spec(shape, what))))
        return Tensor(_expr=rows)

    def override(self, new_element: Tensor, max_cache_size: int, num_sinks: int = 0) -> None:
        """Add rows, but keep no more than `max_cache_size`: the oldest but the first `num_sinks`
        are overwritten.
        """
        call = call_inplace_packed(
            Builtins.ATTENTION_KV_CACHE_WINDOW_OVERRIDE_WITH_SINKS.name,
            self._state("override"),
            new_element._expr,
            PrimValue(max_cache_size),
            PrimValue(num_sinks),
            inplace_indices=[0],
            sinfo_args=_OBJECT,
        )
        self.cache = current_builder("KVCache.override").emit(call, self._name)

    def _state(self, what: str) -> Var:
        if self.cache is None:
            raise FrontendError(
                f"KVCache {self._name}: {what}: the cache has its state only inside a method that "
                "is being exported; is the effect_mode 'none', or the cache in a plain list "
                "instead of an attribute of a module?"
            )
        return self.cache

    def __repr__(self) -> str:
        return f"KVCache({self.init_seq_len}, {self.unit_shape}, '{self.dtype}')"
