"""Tensor intrinsics: a small computation, as a specification and as what the target has for it.
Those for dot products are a few factors times a register of packed ones:

    dot_16x4_uint8_int8     C[i] += A[k] * B[4 * i + k]     16 sums of 4 products

`A` is the same for all sums, `B` lies in memory in the order in which registers take it. The
implementation is one `dot_accumulate`; which instruction that is, the code generator decides for
its machine (VNNI, AVX512-BF16, Arm's dot products, else plain arithmetic). Those by TVM's names
(`tir.tensor_intrin`) have a row of `B` for each sum, B[i, k].
"""

from __future__ import annotations

from collections.abc import Callable

from ....base import DataType, NamedTuple, ScheduleError
from ....ir import INT32, Broadcast, PrimExpr, Ramp, cast, const
from ...op import dot_accumulate, reinterpret
from ...stmt import Block, Buffer, BufferLoad, BufferStore, PrimFunc, decl_buffer
from ...transform.rewriter import constant
from .nests import function_over, looped, new_axis

_REGISTERED: dict[str, TensorIntrin] = {}
# Those that default schedules use: how they are made, and those of them that somebody asked for.
_MAKERS: dict[str, Callable[[], tuple[PrimFunc, PrimFunc]]] = {}
_BUILTIN: dict[str, TensorIntrin] = {}


class TensorIntrin:
    """`desc` says what is computed, `impl` how; their parameters are the same buffers in order.

    desc  a loop function of one nest with one block, over buffers of constant shape
    impl  a loop function over the same buffers, with any statements
    """

    def __init__(self, desc: PrimFunc, impl: PrimFunc) -> None:
        for what, fn in (("desc", desc), ("impl", impl)):
            if not isinstance(fn, PrimFunc):
                raise ScheduleError(f"TensorIntrin: {what} is a PrimFunc, got {type(fn).__name__}")
        if len(desc.buffers) != len(impl.buffers):
            raise ScheduleError(
                f"TensorIntrin: desc has {len(desc.buffers)} buffers, impl {len(impl.buffers)}"
            )
        for a, b in zip(desc.buffers, impl.buffers):
            if a.dtype is not b.dtype or len(a.shape) != len(b.shape):
                raise ScheduleError(
                    f"TensorIntrin: buffer {a.name} is {a.dtype} of {a.ndim} dimensions in desc, "
                    f"{b.dtype} of {b.ndim} in impl"
                )
            sizes, impl_sizes = ([constant(e) for e in buffer.shape] for buffer in (a, b))
            if None in sizes or sizes != impl_sizes:
                left, right = (", ".join(map(str, buffer.shape)) for buffer in (a, b))
                raise ScheduleError(
                    f"TensorIntrin: buffer {a.name} has the shape ({left}) in desc and ({right}) "
                    "in impl; wanted the same constants"
                )
        self.desc, self.impl = desc, impl

    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> TensorIntrin:
        """Make an intrinsic known by name. Raises ScheduleError if the name is taken, unless
        `override`.

        `desc` is the specification that blocks are compared with. That `impl` does the same is not
        proved: `interpret` both on the same arrays.
        """
        if not isinstance(name, str):
            raise ScheduleError(f"TensorIntrin: a name is text, got {type(name).__name__}")
        if (name in _REGISTERED or name in _MAKERS) and not override:
            raise ScheduleError(f"TensorIntrin: {name!r} is registered already; pass override=True")
        intrin = _REGISTERED[name] = TensorIntrin(desc, impl)
        return intrin

    @staticmethod
    def get(name: str, allow_missing: bool = False) -> TensorIntrin | None:
        """The intrinsic of that name. Raises ScheduleError if there is none, or gives None."""
        intrin = _REGISTERED.get(name)
        if intrin is None and name in _MAKERS:
            intrin = _REGISTERED[name] = _BUILTIN[name] = TensorIntrin(*_MAKERS[name]())
        if intrin is None and not allow_missing:
            there = ", ".join({**_MAKERS, **_REGISTERED}) or "none"
            raise ScheduleError(f"TensorIntrin: {name!r} is not registered; there are: {there}")
        return intrin


def register_builtin(name: str, make: Callable[[], tuple[PrimFunc, PrimFunc]]) -> None:
    """`TensorIntrin.register` for what default schedules use.

    make  gives desc and impl when the intrinsic is first asked for
    """
    _MAKERS[name] = make


OWN_RULES: list[str] = []
"""Names of the rules that somebody registered beside ours, by `rules.block_rule`."""


def builtins_replaced() -> bool:
    """Whether default schedules of this process differ from those of others, because somebody
    registered a rule, or another intrinsic under the name of a built-in one.
    """
    return bool(OWN_RULES) or any(
        _REGISTERED.get(name) is not _BUILTIN.get(name) for name in _MAKERS
    )


# -- dot products ----------------------------------------------------------------------------------


_LANES = (4, 8, 16)
# (dtype of A, dtype of B, sums in); four bytes of each are in one lane of the sums.
_KINDS = (
    ("uint8", "int8", "int32"),
    ("int8", "uint8", "int32"),
    ("int8", "int8", "int32"),
    ("uint8", "uint8", "int32"),
    ("int16", "int16", "int32"),
    ("bfloat16", "bfloat16", "float32"),
)


def dot_intrin(lanes: int, a: str, b: str) -> str:
    """The name of the intrinsic of `lanes` sums for those dtypes."""
    group = 32 // DataType(a).bits
    return f"dot_{lanes}x{group}_{a}_{b}"


class _Dots(NamedTuple):
    """`lanes` sums in `out` of products of a and b.

    rows  whether each sum has a row of the second factors
    """

    lanes: int
    a: str
    b: str
    out: str
    rows: bool = False

    @property
    def group(self) -> int:
        """The products of a sum."""
        return 32 // DataType(self.a).bits

    def buffers(self) -> tuple[Buffer, Buffer, Buffer]:
        size: tuple[int, ...] = (self.lanes * self.group,)
        if self.rows:
            size = (self.group,) if self.lanes == 1 else (self.lanes, self.group)
        return (
            decl_buffer((self.group,), self.a, "A"),
            decl_buffer(size, self.b, "B"),
            decl_buffer((self.lanes,), self.out, "C"),
        )

    def place(self, sum: PrimExpr, step: PrimExpr) -> tuple[PrimExpr, ...]:
        """Where the second factor of a product is."""
        if not self.rows:
            return (sum * self.group + step,)
        return (step,) if self.lanes == 1 else (sum, step)

    def functions(self) -> tuple[PrimFunc, PrimFunc]:
        """What they are, and how they are computed."""
        return self._description(), self._implementation()

    def _description(self) -> PrimFunc:
        buffers = x, y, acc = self.buffers()
        axes = new_axis("i", self.lanes, INT32), new_axis("k", self.group, INT32, "reduce")
        i, k = (a.var for a in axes)
        product = cast(self.out, BufferLoad(x, (k,)))
        product = product * cast(self.out, BufferLoad(y, self.place(i, k)))
        store = BufferStore(acc, BufferLoad(acc, (i,)) + product, (i,))
        return function_over(buffers, looped(Block(axes, (), (), "dot", store)))

    def _implementation(self) -> PrimFunc:
        buffers = x, y, acc = self.buffers()
        size, lanes = self.lanes * self.group, self.lanes
        # The four bytes are one number to the machine, which it copies into every lane.
        factors = reinterpret("int32", BufferLoad(x, (_lanes(self.group),)))
        if lanes > 1:
            factors = Broadcast(factors, lanes)
        every, group = _lanes(size), Broadcast(const(self.group), size)
        place = self.place(every // group, every % group) if self.rows and lanes > 1 else (every,)
        into = (_lanes(lanes) if lanes > 1 else const(0),)
        # Sums that wrap are the same bits, signed or not.
        many = f"x{lanes}" if lanes > 1 else ""
        sums = dot_accumulate(
            cast(("float32" if self.out == "float32" else "int32") + many, BufferLoad(acc, into)),
            reinterpret(f"{self.a}x{size}", factors),
            BufferLoad(y, place),
        )
        return function_over(buffers, BufferStore(acc, cast(self.out + many, sums), into))


def _lanes(count: int) -> PrimExpr:
    return Ramp(const(0), const(1), count)


for _a, _b, _out in _KINDS:
    for _count in _LANES:
        register_builtin(dot_intrin(_count, _a, _b), _Dots(_count, _a, _b, _out).functions)

# TVM's name -> what it is.
_KNOWN = {
    "dot_16x4_vnni": (16, "uint8", "int8", "int32"),
    "dot_16x4_avx512": (16, "uint8", "int8", "int32"),
    "dot_4x4_i8i8s32_neon": (4, "int8", "int8", "int32"),
    "dot_4x4_i8i8s32_sdot": (4, "int8", "int8", "int32"),
    "dot_4x4_u8u8u32_udot": (4, "uint8", "uint8", "uint32"),
    "dot_4x4_u8u8i32_hdot": (4, "uint8", "uint8", "int32"),
    "dp4a_s8s8s32": (1, "int8", "int8", "int32"),
    "dp4a_u8s8s32": (1, "uint8", "int8", "int32"),
    "dp4a_s8u8s32": (1, "int8", "uint8", "int32"),
    "dp4a_u8u8u32": (1, "uint8", "uint8", "uint32"),
}
for _name, _kind in _KNOWN.items():
    register_builtin(_name, _Dots(*_kind, rows=True).functions)
