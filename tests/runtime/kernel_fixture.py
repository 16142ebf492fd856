"""Kernels for tests of the runtime; their wrappers are LLVM IR written by hand after the ABI.

No code generator is involved: what is tested with these is the boundary.
"""

from __future__ import annotations

import functools

from relaxvm.base import DataType
from relaxvm.runtime.kernel import Failure, KernelInfo, KernelParam, KernelSection, NativeCode
from relaxvm.runtime.linking import started_llvm
from relaxvm.runtime.native import LinkedKernels, host, link
from relaxvm.runtime.trampoline import parse_ir

F32, F64, I64, BF16, U16 = (
    DataType(d) for d in ("float32", "float64", "int64", "bfloat16", "uint16")
)

# Arg: data 0, shape 8, strides 16, ndim 24, type_num 28, flags 32.
_HELPERS = """
define internal ptr @data(ptr %args, i64 %i) alwaysinline {
  %at = getelementptr [40 x i8], ptr %args, i64 %i
  %p = load ptr, ptr %at
  ret ptr %p
}
define internal i64 @payload(ptr %args, i64 %i) alwaysinline {
  %at = getelementptr [40 x i8], ptr %args, i64 %i
  %v = load i64, ptr %at
  ret i64 %v
}
define internal i32 @int_field(ptr %args, i64 %i, i64 %offset) alwaysinline {
  %at = getelementptr [40 x i8], ptr %args, i64 %i
  %f = getelementptr i8, ptr %at, i64 %offset
  %v = load i32, ptr %f
  ret i32 %v
}
define internal i64 @dim(ptr %args, i64 %i, i64 %axis) alwaysinline {
  %at = getelementptr [40 x i8], ptr %args, i64 %i
  %f = getelementptr i8, ptr %at, i64 8
  %shape = load ptr, ptr %f
  %d = getelementptr i64, ptr %shape, i64 %axis
  %v = load i64, ptr %d
  ret i64 %v
}
define internal i64 @stride(ptr %args, i64 %i, i64 %axis) alwaysinline {
  %at = getelementptr [40 x i8], ptr %args, i64 %i
  %f = getelementptr i8, ptr %at, i64 16
  %strides = load ptr, ptr %f
  %d = getelementptr i64, ptr %strides, i64 %axis
  %v = load i64, ptr %d
  ret i64 %v
}
"""


class _Checks:
    """Builds a wrapper body: a chain of checks, each leaving with its failure number."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failures: list[Failure] = []

    def fail_unless(self, setup: str, condition: str, failure: Failure) -> None:
        self.failures.append(failure)
        n = len(self.failures)
        self.lines += [
            setup,
            f"  br i1 {condition}, label %ok{n}, label %bad{n}",
            f"bad{n}:",
            f"  ret i32 {n}",
        ]
        self.lines.append(f"ok{n}:")

    def tensor(self, i: int, type_num: int, itemsize: int, written: bool) -> None:
        """Kind, rank 1, dtype, alignment, writeability and contiguity of argument `i`."""
        self.field_is(i, 24, 1, Failure("ndim", i))
        self.field_is(i, 28, type_num, Failure("dtype", i))
        n = len(self.failures)
        self.fail_unless(
            f"  %low{n} = call i64 @payload(ptr %args, i64 {i})\n"
            f"  %rest{n} = and i64 %low{n}, {itemsize - 1}\n"
            f"  %aligned{n} = icmp eq i64 %rest{n}, 0",
            f"%aligned{n}",
            Failure("align", i),
        )
        if written:
            n = len(self.failures)
            self.fail_unless(
                f"  %flags{n} = call i32 @int_field(ptr %args, i64 {i}, i64 32)\n"
                f"  %bit{n} = and i32 %flags{n}, 1024\n"
                f"  %writeable{n} = icmp ne i32 %bit{n}, 0",
                f"%writeable{n}",
                Failure("readonly", i),
            )

    def field_is(self, i: int, offset: int, value: int, failure: Failure) -> None:
        n = len(self.failures)
        self.fail_unless(
            f"  %f{n} = call i32 @int_field(ptr %args, i64 {i}, i64 {offset})\n"
            f"  %c{n} = icmp eq i32 %f{n}, {value}",
            f"%c{n}",
            failure,
        )

    def contiguous(self, i: int, itemsize: int) -> None:
        n = len(self.failures)
        self.fail_unless(
            f"  %s{n} = call i64 @stride(ptr %args, i64 {i}, i64 0)\n"
            f"  %d{n} = call i64 @dim(ptr %args, i64 {i}, i64 0)\n"
            f"  %dense{n} = icmp eq i64 %s{n}, {itemsize}\n  %short{n} = icmp ule i64 %d{n}, 1\n"
            f"  %plain{n} = or i1 %dense{n}, %short{n}",
            f"%plain{n}",
            Failure("strides", i),
        )

    def same_dim(self, i: int, j: int) -> None:
        n = len(self.failures)
        self.fail_unless(
            f"  %a{n} = call i64 @dim(ptr %args, i64 {i}, i64 0)\n"
            f"  %b{n} = call i64 @dim(ptr %args, i64 {j}, i64 0)\n"
            f"  %same{n} = icmp eq i64 %a{n}, %b{n}",
            f"%same{n}",
            Failure("shape", j, 0),
        )

    def apart(self, i: int, j: int, itemsize: int) -> None:
        """Arguments `i` and `j`, equally long and contiguous, do not overlap (empty: never)."""
        n = len(self.failures)
        self.fail_unless(
            f"""  %pi{n} = call i64 @payload(ptr %args, i64 {i})
  %pj{n} = call i64 @payload(ptr %args, i64 {j})
  %len{n} = call i64 @dim(ptr %args, i64 {i}, i64 0)
  %bytes{n} = mul i64 %len{n}, {itemsize}
  %ei{n} = add i64 %pi{n}, %bytes{n}
  %ej{n} = add i64 %pj{n}, %bytes{n}
  %before{n} = icmp ule i64 %ei{n}, %pj{n}
  %after{n} = icmp ule i64 %ej{n}, %pi{n}
  %none{n} = icmp eq i64 %len{n}, 0
  %either{n} = or i1 %before{n}, %after{n}
  %apart{n} = or i1 %either{n}, %none{n}""",
            f"%apart{n}",
            Failure("alias", i, other=j),
        )


def _loop(body: str) -> str:
    """A loop over %k in 0..%n around `body`."""
    return f"""
  %n = call i64 @dim(ptr %args, i64 0, i64 0)
  %empty = icmp eq i64 %n, 0
  br i1 %empty, label %end, label %head
head:
  br label %body
body:
  %k = phi i64 [ 0, %head ], [ %k1, %body ]
{body}
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %n
  br i1 %more, label %body, label %end
end:
  ret i32 0
"""


def _binary(
    name: str, dtype: DataType, llvm_type: str, op: str, type_num: int
) -> tuple[KernelInfo, str]:
    """out[n] = x[n] op y[n]"""
    checks, size = _Checks(), dtype.itemsize
    for i in range(3):
        checks.tensor(i, type_num, size, written=i == 2)
    for i in (1, 2):
        checks.same_dim(0, i)
    for i in range(3):
        checks.contiguous(i, size)
    for i in range(2):
        checks.apart(2, i, size)
    body = f"""
  %pa = getelementptr {llvm_type}, ptr %x, i64 %k
  %pb = getelementptr {llvm_type}, ptr %y, i64 %k
  %pc = getelementptr {llvm_type}, ptr %z, i64 %k
  %va = load {llvm_type}, ptr %pa
  %vb = load {llvm_type}, ptr %pb
  %vc = {op} {llvm_type} %va, %vb
  store {llvm_type} %vc, ptr %pc"""
    loads = "\n".join(f"  %{n} = call ptr @data(ptr %args, i64 {i})" for i, n in enumerate("xyz"))
    text = _wrapper(name, checks, loads + _loop(body))
    params = (_vector("x", dtype), _vector("y", dtype), _vector("out", dtype, "w"))
    return KernelInfo(name, name, params, tuple(checks.failures), True, ("$n",)), text


def _vector(name: str, dtype: DataType, access: str = "r") -> KernelParam:
    return KernelParam(name, "tensor", dtype, (("$n",),), None, access)


def _wrapper(name: str, checks: _Checks, rest: str) -> str:
    body = "\n".join(checks.lines)
    return f"define i32 @{name}(ptr %args) {{\nstart:\n{body}\n{rest}\n}}\n"


def _echo_scalars(name: str, dtypes: list[str]) -> tuple[KernelInfo, str]:
    """out[i] = the 64-bit payload of scalar i (int64 tensor of as many elements)."""
    checks = _Checks()
    out = len(dtypes)
    checks.tensor(out, 7, 8, written=True)
    stores = [f"  %out = call ptr @data(ptr %args, i64 {out})"]
    for i in range(out):
        stores.append(f"  %v{i} = call i64 @payload(ptr %args, i64 {i})")
        stores.append(f"  %p{i} = getelementptr i64, ptr %out, i64 {i}")
        stores.append(f"  store i64 %v{i}, ptr %p{i}")
    params = tuple(KernelParam(f"s{i}", "scalar", DataType(d)) for i, d in enumerate(dtypes))
    params += (KernelParam("out", "tensor", I64, (out,), None, "w"),)
    text = _wrapper(name, checks, "\n".join(stores) + "\n  ret i32 0")
    return KernelInfo(name, name, params, tuple(checks.failures), True), text


def _failing(name: str) -> tuple[KernelInfo, str]:
    """Always leaves by a T.Assert."""
    info = KernelInfo(name, name, (), (Failure("assert", message="n must be even"),), True)
    return info, f"define i32 @{name}(ptr %args) {{\n  ret i32 1\n}}\n"


def _describe(name: str) -> tuple[KernelInfo, str]:
    """out = ndim, type_num, flags, then (dim, stride) of both axes of x, any float64 matrix."""
    lines = ["  %out = call ptr @data(ptr %args, i64 1)"]
    values = []
    for i, offset in enumerate((24, 28, 32)):
        lines.append(
            f"  %i{i} = call i32 @int_field(ptr %args, i64 0, i64 {offset})\n"
            f"  %v{i} = sext i32 %i{i} to i64"
        )
        values.append(f"%v{i}")
    for axis in (0, 1):
        for what in ("dim", "stride"):
            lines.append(f"  %{what}{axis} = call i64 @{what}(ptr %args, i64 0, i64 {axis})")
            values.append(f"%{what}{axis}")
    for i, value in enumerate(values):
        lines.append(
            f"  %p{i} = getelementptr i64, ptr %out, i64 {i}\n  store i64 {value}, ptr %p{i}"
        )
    strides = (("$sa",), ("$sb",))
    params = (
        KernelParam("x", "tensor", F64, (("$a",), ("$b",)), strides),
        KernelParam("out", "tensor", I64, (7,), None, "w"),
    )
    text = _wrapper(name, _Checks(), "\n".join(lines) + "\n  ret i32 0")
    return KernelInfo(name, name, params, (), False), text


def _double_bits(name: str) -> tuple[KernelInfo, str]:
    """out[n] = x[n], bfloat16 bits."""
    checks = _Checks()
    checks.tensor(0, 4, 2, written=False)
    checks.tensor(1, 4, 2, written=True)
    checks.same_dim(0, 1)
    checks.contiguous(0, 2)
    checks.contiguous(1, 2)
    body = """
  %pa = getelementptr i16, ptr %x, i64 %k
  %pb = getelementptr i16, ptr %y, i64 %k
  %va = load i16, ptr %pa
  store i16 %va, ptr %pb"""
    loads = "\n".join(f"  %{n} = call ptr @data(ptr %args, i64 {i})" for i, n in enumerate("xy"))
    params = (_vector("x", BF16), _vector("out", BF16, "w"))
    return KernelInfo(name, name, params, tuple(checks.failures), False), _wrapper(
        name, checks, loads + _loop(body)
    )


SCALARS = ["bool", "int8", "int32", "int64", "uint8", "uint64", "float32", "float64", "bfloat16"]


@functools.lru_cache(maxsize=1)
def section() -> KernelSection:
    """add (float32), mul (float64), addi (int64), echo (scalars), fails, describe and copy_bf16."""
    made = [
        _binary("add", F32, "float", "fadd", 11),
        _binary("mul", F64, "double", "fmul", 12),
        _binary("addi", I64, "i64", "add", 7),
        _echo_scalars("echo", SCALARS),
        _failing("fails"),
        _describe("describe"),
        _double_bits("copy_bf16"),
    ]
    return KernelSection(
        tuple(info for info, _ in made), b"", (compile_ir(_HELPERS + "".join(t for _, t in made)),)
    )


def compile_ir(text: str) -> NativeCode:
    """Object code of LLVM IR for this very machine."""
    llvm = started_llvm()
    here = host()
    features = ",".join(f"+{f}" for f in sorted(here.features))
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=here.cpu, features=features, opt=2, reloc="pic"
    )
    module = parse_ir(llvm, text)
    module.triple = here.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    return NativeCode(here.triple, here.cpu, features, machine.emit_object(module), "test")


def linked() -> LinkedKernels:
    """The kernels of `section`, linked by the current call path."""
    return link(section(), trust=True)
