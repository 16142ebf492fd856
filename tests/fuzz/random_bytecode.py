"""Random programs that verify, mostly senseless: both ways to run them must do the same."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np

from relaxvm.base import DataType, VerifyError
from relaxvm.ir import IRModule
from relaxvm.runtime import (
    DimProgram,
    ExecBuilder,
    Executable,
    NDArray,
    ObjectInfo,
    PrimInfo,
    ShapeInfo,
    ShapeTuple,
    TensorInfo,
    TupleInfo,
    VirtualMachine,
    array,
)
from relaxvm.target import compile_kernels, compile_program

F32, I64, BOOL = DataType("float32"), DataType("int64"), DataType("bool")
PARAMS = (
    TensorInfo(F32, 2, (("$n",), 4)),
    TensorInfo(F32, 1),
    TensorInfo(),
    PrimInfo(I64),
    PrimInfo(BOOL),
    ShapeInfo(2),
    TupleInfo((TensorInfo(F32, 1), PrimInfo(I64))),
    ObjectInfo(),
)
DIMS = (
    ("$0", 2, "*"),
    ("$0", "$1", "+"),
    ("$0", 3, "//"),
    ("$0", -3, "%"),
    ("$1", "$0", "max", 1, "-"),
    ("$0", 4, "<", "$1", 7, "select"),
    ("$0", 60, "shl"),
    ("$1", "neg", "abs"),
    ("$0", "$1", "truncdiv", "$0", "$1", "truncmod", "ceildiv"),
)


def compiled(builder: ExecBuilder) -> Executable:
    """The program of a builder, with its functions compiled."""

    return compile_program(builder.get(), compile_kernels(IRModule({})))


def double(x: NDArray, *rest: Any) -> Any:
    """An extern that looks at what it gets."""
    if type(x) is NDArray and not x.dtype.is_bool:
        return x.numpy() * 2
    return (x, *rest)


def fill(*given: Any) -> None:
    """An extern that writes into its last argument."""
    if given and type(given[-1]) is NDArray and given[-1].array.flags.writeable:
        given[-1].array[...] = len(given)


EXTERNS = {"env.double": double, "env.fill": fill, "env.same": lambda x: x}


class _Function:
    def __init__(self, rng: random.Random, b: ExecBuilder, names: list[str]) -> None:
        self.rng, self.b, self.names = rng, b, names

    def emit(self, name: str, count: int) -> None:
        rng, b = self.rng, self.b
        infos = [rng.choice(PARAMS) for _ in range(count)]
        with b.function(name, count, None, infos, ObjectInfo()):
            self.defined = list(range(count))
            self.kinds = {i: _kind_of(info) for i, info in enumerate(infos)}
            self.heap: list[int] = []
            pending: list[tuple[Any, int]] = []
            if rng.random() < 0.8:
                self.heap = [count]
                b.emit_call("vm.builtin.alloc_shape_heap", [rng.randint(2, 3)], b.r(count))
                if rng.random() < 0.9:
                    what = "main: parameter x: Tensor((n, m), float32)"
                    b.emit_call("vm.builtin.match_shape", [WEIGHT, b.r(count), what, 1, 0, 1, 1])
            self.next = count + 1
            branch: list[int] | None = None
            for _ in range(rng.randint(3, 22)):
                if pending and rng.random() < 0.3:
                    label, size = pending.pop()
                    b.place(label)
                    self.defined = self.defined[:size]
                elif rng.random() < 0.08 and self.defined:
                    label = b.label()
                    b.emit_if(self.condition(), label)
                    pending.append((label, len(self.defined)))
                else:
                    self.instruction()
            del branch
            while pending:
                label, size = pending.pop()
                b.place(label)
                self.defined = self.defined[:size]
            b.emit_ret(self.any() if self.defined else b.imm(7))

    def condition(self) -> Any:
        fitting = [r for r in self.defined if self.kinds.get(r) == "int"]
        if not fitting:
            self.b.emit_call("vm.builtin.is_null", [self.some()], self.b.r(self.next))
            self.kinds[self.next] = "int"
            fitting.append(self.next)
            self.defined.append(self.next)
            self.next += 1
        return self.b.r(self.rng.choice(fitting))

    def any(self) -> Any:
        return self.b.r(self.rng.choice(self.defined)) if self.defined else self.b.imm(1)

    def some(self, kind: str = "") -> Any:
        """A register, mostly one of that kind, or a constant."""
        rng = self.rng
        if kind and rng.random() < 0.99:
            fitting = [r for r in self.defined if self.kinds.get(r) == kind]
            if fitting:
                return self.b.r(rng.choice(fitting))
            if kind in _CONSTANTS:
                return _CONSTANTS[kind]
        if self.defined and rng.random() < 0.85:
            return self.any()
        return rng.choice(
            [
                3,
                -1,
                True,
                2.5,
                ShapeTuple((2, 4)),
                WEIGHT,
                "text",
                self.b.void_arg(),
                ShapeTuple(()),
            ]
        )

    def target(self, kind: str = "") -> Any:
        rng = self.rng
        if self.defined and rng.random() < 0.25:
            again = rng.choice(self.defined)
            self.kinds[again] = kind
            return self.b.r(again)
        if rng.random() < 0.08:
            return self.b.void_arg()
        made = self.next
        self.next += 1
        self.defined.append(made)
        self.kinds[made] = kind
        return self.b.r(made)

    def pairs(self, codes: tuple[int, ...], count: int) -> list[int]:
        found: list[int] = []
        for _ in range(count):
            code = self.rng.choice(codes)
            most = 4 if code in (0, 2) and codes != (0, 1) else 2
            found += [code, self.rng.randint(0, most)]
        return found

    def instruction(self) -> None:
        rng, b = self.rng, self.b
        name = "vm.builtin." + rng.choice(
            "match_shape make_shape shape_expr make_prim_value match_prim_value alloc_storage "
            "alloc_tensor check_tensor_info check_tensor_info check_shape_info "
            "check_prim_value_info check_tuple_info make_tuple make_tuple tuple_getitem move "
            "shape_of reshape is_null read_if_cond kill_object copy call env env env".split()
        )
        heap = b.r(self.heap[0]) if self.heap else b.void_arg()
        what = f"main: parameter x: Tensor((n, {rng.randint(1, 3)}), float32)"
        kind = name.removeprefix("vm.builtin.")
        if kind == "match_shape":
            b.emit_call(
                name,
                [
                    self.some("tensor"),
                    heap,
                    what,
                    *self.pairs((1, 1, 1, 2, 2, 2, 2, 3), rng.choice([2, 2, 2, 2, 1])),
                ],
            )
        elif kind == "make_shape":
            given = [heap, *self.pairs((0, 1), rng.randint(0, 3))]
            b.emit_call(name, given, self.target("shape"))
        elif kind == "shape_expr":
            b.emit_call(name, [heap, rng.randint(0, 2), DimProgram(rng.choice(DIMS))])
        elif kind == "make_prim_value":
            b.emit_call(name, [heap, *self.pairs((0, 1), 1)], self.target("int"))
        elif kind == "match_prim_value":
            b.emit_call(name, [self.some("int"), heap, what, *self.pairs((1, 1, 2, 0, 3), 1)])
        elif kind == "alloc_storage":
            size = (
                self.some("shape")
                if rng.random() < 0.5
                else rng.choice([64, 64, 128, 7, ShapeTuple((4, 16))])
            )
            b.emit_call(name, [size, 0, F32, "global"], self.target("storage"))
            if rng.random() < 0.8 and self.defined:
                self.tensor(b.r(self.defined[-1]))
        elif kind == "alloc_tensor":
            if "storage" not in self.kinds.values():
                return
            self.tensor(self.some("storage"))
        elif kind == "check_tensor_info":
            dtype = rng.choice([F32] * 7 + [I64, b.void_arg(), b.void_arg()])
            b.emit_call(
                name, [self.some("tensor"), rng.choice([2, 2, 2, 2, 2, -1, -1, 1]), dtype, what]
            )
        elif kind in ("check_shape_info", "check_tuple_info"):
            least = 0 if kind == "check_tuple_info" else -1
            b.emit_call(
                name, [self.some("shape" if least else "tuple"), rng.choice([least, 2, 2, 1]), what]
            )
        elif kind == "check_prim_value_info":
            dtype = rng.choice([I64] * 6 + [BOOL, F32, DataType("int8"), DataType("uint64")])
            b.emit_call(name, [self.some("int"), dtype, what])
        elif kind == "make_tuple":
            b.emit_call(name, [self.some() for _ in range(rng.randint(1, 3))], self.target("tuple"))
        elif kind == "tuple_getitem":
            b.emit_call(
                name, [self.some("tuple"), rng.choice([0] * 9 + [1, 1, 2, -1])], self.target()
            )
        elif kind == "reshape":
            shape = (
                self.some("shape") if rng.random() < 0.5 else ShapeTuple((rng.choice([2, 4, 0]), 2))
            )
            b.emit_call(name, [self.some("tensor"), shape], self.target("tensor"))
        elif kind == "kill_object":
            if self.defined and rng.random() < 0.5:
                killed = rng.choice(self.defined)
                b.emit_call(name, [b.r(killed)])
                self.defined.remove(killed)
        elif kind == "call":
            if self.names:
                callee = rng.choice(self.names)
                count = int(callee.rsplit("_", 1)[1])
                b.emit_call(callee, [self.some() for _ in range(count)], self.target())
        elif kind == "env":
            callee = rng.choice(list(EXTERNS))
            count = 1 if callee == "env.same" else rng.randint(1, 3)
            b.emit_call(callee, [self.some("tensor") for _ in range(count)], self.target("tensor"))
        else:
            wanted = {"shape_of": "tensor", "copy": "tensor", "read_if_cond": "int"}.get(kind, "")
            given = {"shape_of": "shape", "copy": "tensor"}.get(kind, "int")
            b.emit_call(name, [self.some(wanted)], self.target(given))

    def tensor(self, storage: Any) -> None:
        rng = self.rng
        shape = (
            self.some("shape")
            if rng.random() < 0.4
            else ShapeTuple(rng.choice([(4,), (2, 2), (2, 2), (2, 4), (0, 3), ()]))
        )
        offset = rng.choice([0, 0, 0, 4, 16])
        self.b.emit_call(
            "vm.builtin.alloc_tensor", [storage, offset, shape, F32], self.target("tensor")
        )


def _kind_of(info: Any) -> str:
    kinds = {TensorInfo: "tensor", PrimInfo: "int", ShapeInfo: "shape", TupleInfo: "tuple"}
    return kinds.get(type(info), "")


WEIGHT = array(np.arange(8, dtype="float32").reshape(2, 4))


_CONSTANTS: dict[str, Any] = {"tensor": WEIGHT, "shape": ShapeTuple((2, 4)), "int": 3}


def random_program(seed: int, functions: int) -> Executable:
    """Up to `functions` functions, named f<i>_<number of parameters>; those that verify."""
    rng = random.Random(seed)
    kept: list[tuple[int, int]] = []
    for i in range(functions):
        count, inner = rng.randint(0, 3), rng.getrandbits(60)
        try:
            _build([*kept, (count, inner)]).get()
        except VerifyError:
            continue
        kept.append((count, inner))
        del i
    return compiled(_build(kept))


def _build(recipe: list[tuple[int, int]]) -> ExecBuilder:
    b = ExecBuilder()
    names: list[str] = []
    for i, (count, seed) in enumerate(recipe):
        name = f"f{i}_{count}"
        own = [*names, name] if seed % 5 == 0 else list(names)
        _Function(random.Random(seed), b, own).emit(name, count)
        names.append(name)
    return b


def random_arguments(rng: random.Random, infos: Any) -> list[Any]:
    """Mostly what the parameters want."""
    return [_argument(rng, info) for info in infos]


def _argument(rng: random.Random, info: Any) -> Any:
    if rng.random() < 0.1:
        info = rng.choice(PARAMS)
    kind = type(info)
    if kind is TensorInfo:
        rows = rng.choice([0, 1, 2, 3, 4])
        shape = {1: (rows,), 2: (rows, 4)}.get(info.ndim, rng.choice([(), (3,), (1, 2)]))
        made = np.arange(int(np.prod(shape)), dtype="float32").reshape(shape)
        return rng.choice([made, array(made), array(made.astype("int64"))][: rng.choice([2, 2, 3])])
    if kind is PrimInfo:
        return rng.choice([True, False]) if info.dtype is BOOL else rng.choice([0, 1, 2, -1, 5])
    if kind is ShapeInfo:
        return ShapeTuple(rng.choice([(2, 4), (0, 3), (1, 1), (-1, 2)]))
    if kind is TupleInfo:
        return (array(np.ones(rng.randint(0, 3), "float32")), rng.randint(0, 3))
    return rng.choice([None, 3, "x", array(np.ones((2, 4), "float32")), (1, 2)])


def outcome(call: Any, args: list[Any]) -> Any:
    """What a call gives, comparable: the result, or the error with its notes."""
    try:
        return _plain(call(*args))
    except Exception as error:
        # Numbers from memory nobody wrote.
        text = re.sub(r"float \S+", "float", str(error))
        return type(error), text, getattr(error, "__notes__", [])


def _plain(value: Any) -> Any:
    if type(value) is NDArray:
        # Memory nobody wrote is different every time.
        return "tensor", str(value.dtype), value.shape
    if isinstance(value, tuple):
        return type(value).__name__, [_plain(v) for v in value]
    return type(value).__name__, repr(value)


def machines(ex: Executable) -> tuple[VirtualMachine, VirtualMachine]:
    """The same program in both modes."""
    modes = ("compiled", "bytecode")
    first, second = (
        VirtualMachine(ex, functions=EXTERNS, exec_mode=m, max_depth=40) for m in modes
    )
    return first, second
