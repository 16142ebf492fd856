"""KernelFunction: a linked kernel as Python calls it, raw or checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ..base import InternalError, VMTypeError, VMValueError
from .binding import bind_by_name
from .check import number_of, plain_number
from .dims import Scalar
from .kernel import Failure, KernelInfo
from .kernel_errors import raise_for_failure, raise_wrong_kind, wanted_text, where_text
from .ndarray import NDArray, as_ndarray, empty, memory_of
from .pyabi import fast_path_problem
from .storage import memory_overlaps
from .trampoline import (
    CODE_COUNT,
    CODE_WANTS_NDARRAY,
    make_fast_call,
    make_generic_call,
)

_call_path = "auto"


def set_call_path(path: str) -> str:
    """Choose how kernels linked from now on are entered; returns the former setting.

    "auto"     the native entry where it works, else the generic one
    "fast"     the native entry, or an error       "generic"  through ctypes
    """
    global _call_path
    if path not in ("auto", "fast", "generic"):
        raise VMValueError(f"set_call_path: wanted 'auto', 'fast' or 'generic', got {path!r}")
    former, _call_path = _call_path, path
    return former


def call_path() -> str:
    """The current setting of `set_call_path`."""
    return _call_path


class KernelFunction:
    """A kernel that can be called.

    info  what it is
    call  the raw entry: takes NDArrays (or numpy arrays) and Python numbers of exactly the right
          kinds, writes its outputs in place and returns None, or an int for `raise_failure`
    returns  whether a call has a value, which the raw entry stores in a last argument
    """

    __slots__ = ("_owner", "address", "call", "info", "returns")

    info: KernelInfo
    call: Callable[..., int | None]
    address: int

    def __init__(self, info: KernelInfo, address: int, owner: object, num_threads: int = 0) -> None:
        self.info = info
        self.returns = info.returns
        self.address = address
        self._owner = owner
        generic = _call_path == "generic" or (
            _call_path == "auto" and fast_path_problem() is not None
        )
        # The native entry tells arrays apart by numpy's types, which raw bytes share.
        generic = generic or any(p.dtype.is_byte for p in info.params)
        make = make_generic_call if generic else make_fast_call
        self.call = make(address, info, owner, num_threads)

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.info.name

    def __repr__(self) -> str:
        return f"<kernel {self.info}>"

    def __call__(self, *args: Any, **named: Any) -> int | float | bool | None:
        """Run on whatever `as_ndarray` accepts, and Python numbers for scalars.

        Arguments may be given by the names of the parameters. Outputs are written in place.
        Strided, misaligned or byte-swapped arrays that the kernel cannot take work through a copy
        (outputs are copied back). The value of a function that returns one is a Python number.
        Raises VMTypeError or VMValueError naming kernel, parameter, wanted and got.
        """
        if named:
            names = [param.name for param in self.info.params[: -1 if self.returns else None]]
            args = bind_by_name(self.info.name, names, self.info.__str__, args, named)
        args = (*args, *self.place())
        code = self.call(*args)
        if code is not None:
            if code > 0 and not self._copies_help(code):
                self.raise_failure(code, args)
            _Bound(self, args).run()
        return args[-1].item() if self.returns else None

    def place(self) -> tuple[NDArray, ...]:
        """The last argument of the raw entry, where a call returns a value."""
        return (empty((), self.info.params[-1].dtype),) if self.returns else ()

    def _copies_help(self, code: int) -> bool:
        failures = self.info.failures
        # "dtype": C's long and long long are one type to us and two numbers to numpy.
        return code <= len(failures) and failures[code - 1].kind in ("strides", "align", "dtype")

    def convert(self, args: Sequence[object]) -> list[Any]:
        """`args` as `call` takes them: NDArrays over the same memory where possible, and Python
        numbers.

        Raises VMTypeError or VMValueError for a wrong count or an argument of the wrong kind.
        """
        info = self.info
        if len(args) != len(info.params):
            self.raise_failure(CODE_COUNT, args)
        return [
            (_as_scalar if param.kind == "scalar" else _as_tensor)(info, i, arg)
            for i, (param, arg) in enumerate(zip(info.params, args))
        ]

    def raise_failure(self, code: int, args: Sequence[object]) -> NoReturn:
        """Turn what `call(*args)` returned into the error that says what was wrong."""
        info = self.info
        if code == CODE_COUNT:
            wanted, got = (count - self.returns for count in (len(info.params), len(args)))
            raise VMTypeError(f"{info.name}: wanted {wanted} arguments, got {got}\n  {info}")
        if code == CODE_WANTS_NDARRAY:
            raise VMTypeError(
                f"{info.name}: wanted NDArrays for a call of this size, got numpy arrays"
            )
        if code < 0:
            if -code > len(info.params):
                raise InternalError(f"kernel {info.name} failed with the unknown number {code}")
            raise_wrong_kind(info, -code - 1, args[-code - 1])
        if code > len(info.failures):
            raise InternalError(f"kernel {info.name} failed with the unknown number {code}")
        raise_for_failure(info, info.failures[code - 1], args)


class _Bound:
    """One call, its arguments converted; `run` retries with copies where the kernel wants them."""

    def __init__(self, function: KernelFunction, args: tuple[object, ...]) -> None:
        self._function = function
        self._info = function.info
        self._given = function.convert(args)
        # The caller's memory of each tensor. Where the kernel was given a copy, it is another's.
        self._originals: dict[int, np.ndarray] = {}
        for i, converted in enumerate(self._given):
            if type(converted) is NDArray:
                memory = converted.array if converted is args[i] else memory_of(args[i])[0]
                shared = np.may_share_memory(memory, converted.array)
                self._originals[i] = converted.array if shared else memory
        if self._copied():
            self._check_targets()

    def run(self) -> None:
        code = self._function.call(*self._given)
        if code is not None and code > 0 and self._function._copies_help(code):
            if self._make_plain():
                code = self._function.call(*self._given)
        if code is not None:
            self._function.raise_failure(code, self._given)
        self._copy_back()

    def _make_plain(self) -> bool:
        """Replace tensors that are not C-contiguous, where the kernel needs them so, by copies;
        whether there are any.
        """
        plain = [p.kind == "tensor" and p.strides is None for p in self._info.params]
        gaps = [i for i, each in enumerate(plain) if each and not self._given[i].is_contiguous()]
        for i in gaps:
            self._given[i] = self._given[i].__copy__()
        if gaps:
            self._check_targets()
        return bool(gaps)

    def _copied(self) -> list[int]:
        """The tensors of which the kernel was given a copy."""
        return [i for i, o in self._originals.items() if o is not self._given[i].array]

    def _check_targets(self) -> None:
        """Refuse what cannot go through copies: read-only outputs, and memory that is shared.

        The latter even if the kernel allows it, because two copies do not see each other's writes.
        """
        for i in self._copied():
            written = self._info.params[i].written
            if written and not self._originals[i].flags.writeable:
                raise_for_failure(self._info, Failure("readonly", i), self._given)
            for j, other in self._originals.items():
                if i != j and (written or self._info.params[j].written):
                    if memory_overlaps(self._originals[i], other):
                        raise_for_failure(self._info, Failure("alias", i, other=j), self._given)

    def _copy_back(self) -> None:
        for i in self._copied():
            if self._info.params[i].written:
                self._originals[i][...] = self._given[i].array


def _as_tensor(info: KernelInfo, i: int, arg: object) -> NDArray:
    param = info.params[i]
    try:
        tensor = as_ndarray(arg)
    except VMTypeError as error:
        raise VMTypeError(f"{where_text(info, i)}: wanted {wanted_text(param)}: {error}") from error
    if param.written and isinstance(arg, np.generic):
        # What would be written is a copy of numpy's scalar.
        raise_for_failure(info, Failure("readonly", i), [None] * i + [tensor])
    if tensor.dtype is not param.dtype and (tensor.dtype.is_bits or param.dtype.is_bits):
        raise_for_failure(info, Failure("dtype", i), [None] * i + [tensor])
    return tensor


def _as_scalar(info: KernelInfo, i: int, arg: Any) -> Scalar:
    """`arg` as the Python number that the kernel's entry takes for parameter `i`."""
    value = plain_number(arg)
    try:
        number = number_of(value, info.params[i].dtype)
    except OverflowError:
        raise_wrong_kind(info, i, value)
    if number is None:
        raise_wrong_kind(info, i, arg)
    return number
