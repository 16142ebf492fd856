"""`dot_accumulate`: the interpreter, this machine's code, other machines' instructions."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import tir
from relaxvm.base import TIRError, float32_to_bfloat16
from relaxvm.ir import IRModule, Ramp, Var, const
from relaxvm.target import Target, compile_kernels
from relaxvm.tir import BufferLoad, BufferStore, PrimFunc, decl_buffer, interpret

X86, ARM = "llvm -mtriple=x86_64-linux-gnu", "llvm -mtriple=aarch64-linux-gnu"
CASES = [
    ("int32", "uint8", "int8", 4),
    ("int32", "int8", "uint8", 4),
    ("int32", "int8", "int8", 4),
    ("int32", "uint8", "uint8", 4),
    ("int32", "int16", "int16", 2),
    ("int32", "int16", "uint8", 2),
    ("float32", "bfloat16", "bfloat16", 2),
    ("float32", "float16", "float16", 2),
]


def dot(out, a, b, group, lanes):
    """C[0:lanes] = dot_accumulate(C, A, B), as a loop function."""
    buffers = [
        decl_buffer((n,), dtype, name)
        for name, dtype, n in (("A", a, group * lanes), ("B", b, group * lanes), ("C", out, lanes))
    ]

    def whole(buffer):
        n = buffer.shape[0].value
        return (const(0) if n == 1 else Ramp(const(0), const(1), n),)

    x, y, acc = (BufferLoad(f, whole(f)) for f in buffers)
    body = BufferStore(buffers[2], tir.dot_accumulate(acc, x, y), whole(buffers[2]))
    handles = [Var(f"p{i}", "handle") for i in range(3)]
    return PrimFunc(tuple(handles), body, None, dict(zip(handles, buffers)))


def operand(rng, dtype, n):
    """(the array to pass, its values)"""
    if dtype == "bfloat16":
        bits = float32_to_bfloat16(rng.standard_normal(n).astype("float32"))
        return bits, (bits.astype("uint32") << 16).view("float32")
    if dtype == "float16":
        made = rng.standard_normal(n).astype(dtype)
        return made, made.astype("float32")
    limits = np.iinfo(dtype)
    made = rng.integers(limits.min, limits.max, n, dtype, endpoint=True)
    # The extremes, where an instruction that saturates would give itself away.
    made[: n // 2] = rng.choice([limits.min, limits.max], n // 2)
    return made, made.astype("int64")


@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16, 32])
@pytest.mark.parametrize(("out", "a", "b", "group"), CASES)
def test_code_agrees_with_the_interpreter_and_numpy(out, a, b, group, lanes):
    rng = np.random.default_rng(lanes)
    fn = dot(out, a, b, group, lanes)
    x, x_values = operand(rng, a, group * lanes)
    y, y_values = operand(rng, b, group * lanes)
    # At the ends of int32 sums wrap, too.
    ends = [-(2**31), 2**31 - 1] if out == "int32" else range(-9, 9)
    acc = rng.choice(ends, lanes).astype(out)
    want = acc + (x_values * y_values).reshape(lanes, group).sum(-1)
    expected, got = acc.copy(), tvm.nd.array(acc)
    interpret(fn, x.copy(), y.copy(), expected)
    wrap = tvm.nd.array
    as_given = [
        wrap(v, dtype="bfloat16") if d == "bfloat16" else wrap(v) for d, v in ((a, x), (b, y))
    ]
    tvm.build(fn, target="llvm")["main"](*as_given, got)
    if out == "int32":
        np.testing.assert_array_equal(expected, want.astype("int32"))
        np.testing.assert_array_equal(got.numpy(), expected)
    else:
        np.testing.assert_allclose(expected, want, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)


def assembly(fn, target):
    return compile_kernels(IRModule({"main": fn}), Target(target)).sources["asm"]


@pytest.mark.parametrize(
    ("target", "case", "lanes", "instruction"),
    [
        (f"{X86} -mcpu=cascadelake", 0, 16, "vpdpbusd\t(%rsi), %zmm"),
        (f"{X86} -mcpu=cascadelake", 1, 16, "vpdpbusd\t"),
        (f"{X86} -mcpu=cascadelake", 4, 16, "vpdpwssd\t"),
        (f"{X86} -mcpu=alderlake", 0, 8, "vpdpbusd\t"),
        (f"{X86} -mcpu=haswell", 4, 8, "vpmaddwd\t"),
        (f"{X86} -mcpu=x86-64", 4, 4, "pmaddwd\t"),
        (f"{X86} -mcpu=sapphirerapids", 6, 16, "vdpbf16ps\t"),
        (f"{X86} -mcpu=znver4", 6, 32, "vdpbf16ps\t"),
        (f"{ARM} -mattr=+dotprod", 2, 4, "sdot\t"),
        (f"{ARM} -mattr=+dotprod", 3, 8, "udot\t"),
        (f"{ARM} -mattr=+dotprod,+i8mm", 0, 4, "usdot\t"),
        (f"{ARM} -mattr=+bf16", 6, 4, "bfdot\t"),
    ],
)
def test_machines_use_their_instruction(target, case, lanes, instruction):
    assert instruction in assembly(dot(*CASES[case], lanes), target)


@pytest.mark.parametrize(
    ("target", "case", "instruction"),
    [
        (f"{X86} -mcpu=cascadelake -mattr=-avx512vnni", 0, "vpdpbusd"),
        (f"{X86} -mcpu=cascadelake -mattr=-avx512f", 0, "vpdpbusd"),
        (f"{X86} -mcpu=cascadelake -mattr=-avx512vl", 0, "ymm"),
        (f"{X86} -mcpu=sapphirerapids -mattr=-avx512bf16", 6, "vdpbf16ps"),
        (f"{X86} -mcpu=knl", 4, "vpmaddwd\t%zmm"),
        (f"{X86} -mcpu=x86-64 -mattr=+avxvnniint8,-avx2", 0, "vpdpbusd"),
        (ARM, 2, "sdot"),
        (f"{ARM} -mcpu=neoverse-v1 -mattr=-bf16", 6, "bfdot"),
        (f"{ARM} -mcpu=neoverse-v1 -mattr=-dotprod", 2, "sdot"),
        ("llvm -mtriple=riscv64-linux-gnu -mattr=+v,+d", 0, "dot"),
    ],
)
def test_machines_without_it_get_plain_code(target, case, instruction):
    """LLVM would end the process for an intrinsic that the machine lacks."""
    for lanes in (4, 8, 16):
        text = assembly(dot(*CASES[case], lanes), target)
        assert instruction not in text or instruction == "ymm"


def test_dtypes_that_make_no_dot_product_are_refused():
    def vector(dtype, lanes):
        return Var("v", f"{dtype}x{lanes}" if lanes > 1 else dtype)

    for acc, a, b in [
        (("int32", 4), ("int8", 16), ("int8", 8)),
        (("int32", 4), ("int8", 12), ("int8", 12)),
        (("int64", 4), ("int8", 16), ("int8", 16)),
        (("int32", 4), ("int32", 8), ("int32", 8)),
        (("float32", 4), ("float16", 8), ("bfloat16", 8)),
        (("float32", 4), ("float32", 8), ("float32", 8)),
    ]:
        with pytest.raises(TIRError, match="dot_accumulate"):
            tir.dot_accumulate(vector(*acc), vector(*a), vector(*b))
