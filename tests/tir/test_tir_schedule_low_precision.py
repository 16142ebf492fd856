"""Contractions of narrow numbers: the packing primitive, the rule, other machines' code."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, te, tir
from relaxvm.base import CpuModel, ScheduleError, float32_to_bfloat16
from relaxvm.ir import IRModule, PassContext, structural_equal
from relaxvm.ir.transform import Sequential
from relaxvm.target import Target, compile_kernels, cpu_model
from relaxvm.tir import Schedule, interpret
from relaxvm.tir.analysis import verify_well_formed
from relaxvm.tir.schedule.plans import DefaultSchedule, View, schedule_function
from relaxvm.tir.schedule.plans.low_precision import LowPrecision, way_of
from relaxvm.tir.schedule.primitives.intrin import dot_intrin

X86, ARM = "llvm -mtriple=x86_64-linux-gnu", "llvm -mtriple=aarch64-linux-gnu"
VNNI = CpuModel("x86_64", 512, 32, True, frozenset({"avx512vnni", "avx512bf16"}))
AVX2 = CpuModel("x86_64", 256, 16, True)
NEON = CpuModel("aarch64", 128, 32, True)
DOTPROD = CpuModel("aarch64", 128, 32, True, frozenset({"dotprod", "bf16"}))


def matmul(m, n, k, a, b, out="int32", zero_points=False, transposed=False):
    """C = (A - za) @ (B - zb), as a loop function."""
    rows = te.size_var("m") if m is None else m
    A = te.placeholder((rows, k), a, name="A")
    B = te.placeholder((n, k) if transposed else (k, n), b, name="B")
    inputs = [A, B]
    if zero_points:
        inputs += [te.placeholder((), a, name="za"), te.placeholder((n,), b, name="zb")]
    r = te.reduce_axis((0, k), name="k")

    def value(i, j):
        x, y = A[i, r].astype(out), (B[j, r] if transposed else B[r, j]).astype(out)
        if zero_points:
            x, y = x - inputs[2]().astype(out), y - inputs[3][j].astype(out)
        return te.sum(x * y, axis=r)

    return te.create_prim_func([*inputs, te.compute((rows, n), value, name="C")])


def operands(fn, rows, rng):
    """Arrays for the parameters of `fn` but the last, and their values."""
    made, values = [], []
    for buffer in fn.buffers[:-1]:
        shape = tuple(getattr(e, "value", rows) for e in buffer.shape)
        dtype = str(buffer.dtype)
        if dtype in ("bfloat16", "float16"):
            array = rng.standard_normal(shape).astype("float32")
            if dtype == "bfloat16":
                bits = float32_to_bfloat16(array)
                values.append((bits.astype("uint32") << 16).view("float32"))
                made.append(tvm.nd.array(bits, dtype="bfloat16"))
                continue
            array = array.astype("float16")
        else:
            limits = np.iinfo(dtype)
            array = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        made.append(array)
        values.append(array)
    return made, values


def expected(values, transposed, out):
    kind = "int64" if out == "int32" else "float64"
    a, b, *zeros = (v.astype(kind) for v in values)
    if zeros:
        a, b = a - zeros[0], b - (zeros[1][:, None] if transposed else zeros[1])
    return (a @ (b.T if transposed else b)).astype(out)


# -- the primitive ---------------------------------------------------------------------------------

PACKINGS = [
    # dtypes, group, tile, packed dtypes, zero points, transposed
    ("uint8", "int8", 4, [1, 8], ["uint8", "int8"], False, False),
    ("int8", "int8", 4, [1, 4], ["uint8", "int8"], False, False),
    ("int8", "int8", 4, [2, 4], ["uint8", "int8"], True, True),
    ("uint8", "uint8", 2, [1, 4], ["int16", "int16"], True, False),
    ("uint8", "int8", 2, [1, 4], ["int16", "int16"], True, True),
    ("int8", "int16", 2, [1, 4], ["int16", "int16"], True, False),
    ("uint8", "uint8", 4, [2, 2], ["int8", "uint8"], True, False),
    ("int16", "int8", 1, [2, 2], ["int32", "int32"], False, True),
]


@pytest.mark.parametrize(("a", "b", "group", "tile", "packed", "zeros", "transposed"), PACKINGS)
@pytest.mark.parametrize(("m", "n", "k"), [(5, 8, 8), (3, 7, 6), (2, 1, 1)])
def test_packing_changes_no_result(m, n, k, a, b, group, tile, packed, zeros, transposed):
    fn = matmul(m, n, k, a, b, "int32", zeros, transposed)
    sch = Schedule(fn)
    sch.pack_contraction(sch.get_block("C"), [1, 2], group, tile, packed)
    made = sch.mod["main"]
    verify_well_formed(made)
    arrays, values = operands(fn, m, np.random.default_rng(m))
    got = np.zeros((m, n), "int32")
    interpret(made, *arrays, got)
    np.testing.assert_array_equal(got, expected(values, transposed, "int32"))


def test_packing_is_replayed_from_its_trace():
    fn = matmul(5, 8, 8, "int8", "int8")
    sch = Schedule(fn)
    sch.pack_contraction(sch.get_block("C"), [1, 2], 4, [1, 8], ["uint8", "int8"])
    again = Schedule(fn)
    type(sch.trace).apply_json_to_schedule(sch.trace.as_json(), again)
    assert structural_equal(again.mod["main"], sch.mod["main"])


@pytest.mark.parametrize(
    ("axes", "group", "tile", "dtypes", "message"),
    [
        ([0, 2], 4, [1, 4], ["uint8", "int8"], "is not the last index"),
        ([1, 0], 4, [1, 4], ["uint8", "int8"], "a spatial axis and a reduce axis"),
        ([1, 7], 4, [1, 4], ["uint8", "int8"], "the positions"),
        ([1, 2], 0, [1, 4], ["uint8", "int8"], "wanted a group"),
        ([1, 2], 4, [4], ["uint8", "int8"], "wanted a group"),
        ([1, 2], 4, [1, 4], ["float32", "int8"], "does not hold every uint8"),
    ],
)
def test_packing_refuses_what_it_cannot_do(axes, group, tile, dtypes, message):
    sch = Schedule(matmul(4, 8, 8, "uint8", "int8"))
    with pytest.raises(ScheduleError, match=message):
        sch.pack_contraction(sch.get_block("C"), axes, group, tile, dtypes)


def test_packing_refuses_another_computation():
    A = te.placeholder((4, 8), "int8", name="A")
    r = te.reduce_axis((0, 8), name="k")
    square = te.compute((4,), lambda i: te.sum(A[i, r].astype("int32"), axis=r), name="C")
    sch = Schedule(te.create_prim_func([A, square]))
    with pytest.raises(ScheduleError, match="no sum of products"):
        sch.pack_contraction(sch.get_block("C"), [0, 1], 4, [1, 4], ["int8", "int8"])


# -- the intrinsics --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        dot_intrin(4, "uint8", "int8"),
        dot_intrin(8, "int16", "int16"),
        *(v for k, v in vars(tir.tensor_intrin).items() if k.endswith("_INTRIN")),
    ],
)
def test_an_intrinsic_does_what_it_says(name):
    intrin = tir.TensorIntrin.get(name)
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(
            0 if b.dtype.startswith("uint") else -99, 99, [int(n) for n in b.shape]
        ).astype(str(b.dtype))
        for b in intrin.desc.buffers
    ]
    wanted, got = [v.copy() for v in arrays], [v.copy() for v in arrays]
    interpret(intrin.desc, *wanted)
    interpret(intrin.impl, *got)
    np.testing.assert_array_equal(got[2], wanted[2])
    compiled = [v.copy() for v in arrays]
    tvm.build(intrin.impl, target="llvm")["main"](*compiled)
    np.testing.assert_array_equal(compiled[2], wanted[2])


def test_a_product_is_made_of_an_intrinsic_by_its_known_name():
    a, b = te.placeholder((5, 64), "uint8", "A"), te.placeholder((2, 16, 16, 4), "int8", "B")
    ko, ki = te.reduce_axis((0, 16), "ko"), te.reduce_axis((0, 4), "ki")

    def term(i, jo, ji):
        left, right = a[i, ko * 4 + ki].astype("int32"), b[jo, ko, ji, ki].astype("int32")
        return te.sum(left * right, axis=[ko, ki])

    fn = te.create_prim_func([a, b, te.compute((5, 2, 16), term, "C")])
    for name in (tir.tensor_intrin.VNNI_DOT_16x4_INTRIN, tir.tensor_intrin.AVX512_DOT_16x4_INTRIN):
        sch = Schedule(fn)
        i, jo, ji, ko_loop, ki_loop = sch.get_loops("C")
        sch.reorder(ko_loop, ji, ki_loop)
        sch.decompose_reduction("C", ko_loop)
        sch.tensorize(ji, name)
        assert "dot_accumulate" in sch.mod["main"].script()
        rng = np.random.default_rng(3)
        x, y = (
            rng.integers(0, 255, (5, 64), "uint8"),
            rng.integers(-128, 127, (2, 16, 16, 4), "int8"),
        )
        want = np.einsum("ikl,jkml->ijm", x.reshape(5, 16, 4).astype(int), y.astype(int))
        for run in (interpret, lambda f, *arrays: tvm.build(f, target="llvm")["main"](*arrays)):
            got = np.zeros((5, 2, 16), "int32")
            run(sch.mod["main"], x, y, got)
            np.testing.assert_array_equal(got, want)
    sch = Schedule(fn)
    with pytest.raises(ScheduleError, match="dp4a"):
        sch.tensorize(sch.get_loops("C")[4], tir.tensor_intrin.DP4A_S8S8S32_INTRIN)


# -- the rule --------------------------------------------------------------------------------------

DTYPES = [
    ("uint8", "int8", "int32"),
    ("int8", "int8", "int32"),
    ("uint8", "uint8", "int32"),
    ("int8", "uint8", "int32"),
    ("int16", "int16", "int32"),
    ("bfloat16", "bfloat16", "float32"),
    ("float16", "float16", "float32"),
]


def run(fn, rows, out, transposed=False, code=True):
    """What `fn` computes, by compiled code or by the interpreter, must be what numpy does."""
    arrays, values = operands(fn, rows, np.random.default_rng(7))
    want = expected(values, transposed, out)
    got = np.zeros(want.shape, out)
    if code:
        tvm.build(fn, target="llvm")["main"](*arrays, got)
    else:
        bare = [v.numpy() if isinstance(v, tvm.nd.NDArray) else v for v in arrays]
        interpret(fn, *bare, got)
    if out == "int32":
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("a", "b", "out"), DTYPES)
@pytest.mark.parametrize(("m", "n", "k"), [(13, 21, 19)])
def test_the_rule_changes_no_result_on_this_machine(m, n, k, a, b, out):
    fn = matmul(m, n, k, a, b, out)
    made = schedule_function(fn, dataclasses.replace(cpu_model(), cores=1))
    assert "_packed" in made.script()
    run(made, m, out)


@pytest.mark.slow
@pytest.mark.parametrize(("a", "b", "out"), DTYPES)
@pytest.mark.parametrize("cpu", [VNNI, AVX2, NEON, DOTPROD], ids=["vnni", "avx2", "neon", "dot"])
def test_schedules_for_other_machines_mean_the_same(cpu, a, b, out):
    """Run here: what the machine has no instruction for, the code generator writes out."""
    made = schedule_function(matmul(9, 18, 30, a, b, out), cpu)
    assert "_packed" in made.script()
    run(made, 9, out)


@pytest.mark.parametrize("cpu", [VNNI, AVX2], ids=["vnni", "avx2"])
def test_schedules_mean_the_same_to_the_interpreter(cpu):
    fn = matmul(5, 20, 42, "int8", "int8", zero_points=True)
    made = schedule_function(fn, cpu)
    assert "dot_accumulate" in made.script()
    run(made, 5, "int32", code=False)


@pytest.mark.slow
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("a", "b"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("cpu", [VNNI, AVX2], ids=["vnni", "avx2"])
def test_zero_points_are_taken_out_of_the_products(cpu, a, b, transposed):
    fn = matmul(11, 17, 25, a, b, "int32", True, transposed)
    made = schedule_function(fn, cpu)
    # 16 bits have room for the zero point of a byte.
    assert ("A_sum" in made.script()) == (cpu is VNNI)
    run(made, 11, "int32", transposed)


def test_64_bit_indices_change_nothing():
    """The graph's products have them; an intrinsic is written with others."""
    size = tir.IntImm("int64", 32)
    made = schedule_function(matmul(size, size, size, "uint8", "int8"), VNNI)
    assert "dot_accumulate" in made.script()


def test_rows_known_only_later():
    made = schedule_function(matmul(None, 24, 20, "uint8", "int8"), AVX2)
    assert "dot_accumulate" in made.script()
    for rows in (1, 6, 7, 40):
        run(made, rows, "int32")


def test_batches_are_packed_one_by_one():
    A, B = (te.placeholder(s, "int8", name=n) for s, n in (((3, 8, 12), "A"), ((3, 12, 20), "B")))
    r = te.reduce_axis((0, 12), name="k")
    C = te.compute(
        (3, 8, 20),
        lambda b, i, j: te.sum(A[b, i, r].astype("int32") * B[b, r, j].astype("int32"), axis=r),
        name="C",
    )
    made = schedule_function(te.create_prim_func([A, B, C]), AVX2)
    assert "dot_accumulate" in made.script()
    run(made, None, "int32")


@pytest.mark.slow
def test_a_convolution_of_bytes():
    X, W = (
        te.placeholder(s, d, name=n)
        for s, d, n in (((1, 6, 12, 12), "uint8", "X"), ((8, 6, 3, 3), "int8", "W"))
    )
    c, r, s = (te.reduce_axis((0, n), name=x) for n, x in ((6, "c"), (3, "r"), (3, "s")))
    C = te.compute(
        (1, 8, 10, 10),
        lambda n, o, h, w: te.sum(
            X[n, c, h + r, w + s].astype("int32") * W[o, c, r, s].astype("int32"), axis=[c, r, s]
        ),
        name="C",
    )
    fn = te.create_prim_func([X, W, C])
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (1, 6, 12, 12)).astype("uint8")
    w = rng.integers(-128, 128, (8, 6, 3, 3)).astype("int8")
    views = np.lib.stride_tricks.sliding_window_view(x.astype("int32"), (3, 3), (2, 3))
    want = np.einsum("nchwrs,ocrs->nohw", views, w.astype("int32"))
    for cpu in (AVX2, VNNI):
        sch = Schedule(fn)
        view = View(sch, sch.get_block("C"))
        LowPrecision.choose(view, cpu).apply(view)
        made = sch.mod["main"]
        assert "dot_accumulate" in made.script()
        got = np.zeros((1, 8, 10, 10), "int32")
        tvm.build(made, target="llvm")["main"](x, w, got)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "fn",
    [
        matmul(2, 64, 64, "uint8", "int8"),
        matmul(4, 8, 8, "uint8", "int8"),
        matmul(64, 64, 64, "int32", "int32"),
        matmul(64, 64, 64, "float32", "float32", "float32"),
    ],
    ids=["few rows", "little work", "int32", "float32"],
)
def test_the_rule_leaves_what_is_not_its_own(fn):
    assert "_packed" not in schedule_function(fn, VNNI).script()


def test_what_the_machine_has_decides():
    def way(a, b, out, cpu):
        found = way_of(a, b, out, cpu)
        return found and (found.broadcast, found.streamed, found.group)

    assert way("uint8", "int8", "int32", VNNI) == ("uint8", "int8", 4)
    assert way("int8", "int8", "int32", VNNI) == ("uint8", "int8", 4)
    assert way("uint8", "uint8", "int32", VNNI) == ("int8", "uint8", 4)
    assert way("int16", "int8", "int32", VNNI) == ("int16", "int16", 2)
    assert way("int8", "int8", "int32", AVX2) == ("int16", "int16", 2)
    assert way("int8", "int8", "int32", DOTPROD) == ("int8", "int8", 4)
    assert way("uint8", "int8", "int32", DOTPROD) == ("int8", "int8", 4)
    assert way("uint8", "int8", "int32", NEON) == ("int16", "int16", 1)
    assert way("bfloat16", "bfloat16", "float32", VNNI) == ("bfloat16", "bfloat16", 2)
    assert way("bfloat16", "bfloat16", "float32", AVX2) == ("float32", "float32", 1)
    assert way("float16", "float16", "float32", VNNI) == ("float32", "float32", 1)
    assert way("float32", "float32", "float32", VNNI) is None
    assert way("int8", "int8", "int64", VNNI) is None


@pytest.mark.parametrize("numerics", ["approximate", "reassociates", "exact"])
def test_bfloat16_keeps_subnormal_numbers_unless_it_may_be_approximate(numerics):
    fn = matmul(16, 64, 64, "bfloat16", "bfloat16", "float32")
    with PassContext(config={"numerics": numerics}):
        scheduled = Sequential((DefaultSchedule(cpu=VNNI),))(IRModule({"main": fn}))["main"]
        built = tvm.build(scheduled, target="llvm")
        hidden = tvm.build(IRModule({"main": fn}), target="llvm", schedule=False)
    assert ("dot_accumulate" in scheduled.script()) == (numerics == "approximate")
    tiny, infinity, one = 0x0001, 0x7F80, 0x3F80
    a, b = np.full((16, 64), tiny, "uint16"), np.full((64, 64), one, "uint16")
    b[:, 0] = infinity
    want = np.full((16, 64), np.float32(64 * 2.0**-133))
    want[:, 0] = np.inf
    got = np.zeros((16, 64), "float32")
    for kernel in (hidden, built)[: 1 if numerics == "approximate" else 2]:
        kernel["main"](*(tvm.nd.array(v, dtype="bfloat16") for v in (a, b)), got)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["matmul", "einsum", "conv2d"])
def test_infinity_times_a_subnormal_is_infinity_without_approximation(dtype, layout):
    """Through the graph's operators, on this machine's instructions."""
    x = relax.Var(
        "x", relax.TensorStructInfo((1, 16, 8, 8) if layout == "conv2d" else (64, 16), dtype)
    )
    w = relax.Var(
        "w", relax.TensorStructInfo((32, 16, 1, 1) if layout == "conv2d" else (16, 32), dtype)
    )
    bb = relax.BlockBuilder()
    with bb.function("main", [x, w]):
        if layout == "conv2d":
            made = relax.op.nn.conv2d(x, w, out_dtype="float32")
        elif layout == "matmul":
            made = relax.op.matmul(x, w, out_dtype="float32")
        else:
            made = relax.op.astype(relax.op.einsum((x, w), "ij,jk->ik"), "float32")
        bb.emit_func_output(bb.emit(made))
    with PassContext(config={"numerics": "reassociates"}):
        vm = relax.VirtualMachine(relax.build(bb.get(), target="llvm"), tvm.cpu())
    infinity = 0x7F80 if dtype == "bfloat16" else 0x7C00
    arrays = [
        np.full([d.value for d in v.struct_info.shape], bits, "uint16")
        for v, bits in ((x, 1), (w, infinity))
    ]
    if dtype == "float16":
        arrays = [tvm.nd.array(a.view("float16")) for a in arrays]
    else:
        arrays = [tvm.nd.array(a, dtype="bfloat16") for a in arrays]
    assert np.isposinf(vm["main"](*arrays).numpy()).all()


# -- other machines' code --------------------------------------------------------------------------

LOOPS = [
    (f"{X86} -mcpu=cascadelake", "uint8", "int8", "int32", "vpdpbusd"),
    (f"{X86} -mcpu=cascadelake", "int8", "int8", "int32", "vpdpbusd"),
    (f"{X86} -mcpu=sapphirerapids", "uint8", "int8", "int32", "vpdpbusd"),
    (f"{X86} -mcpu=sapphirerapids", "bfloat16", "bfloat16", "float32", "vdpbf16ps"),
    (f"{X86} -mcpu=znver4", "bfloat16", "bfloat16", "float32", "vdpbf16ps"),
    (f"{X86} -mcpu=alderlake", "uint8", "int8", "int32", "vpdpbusd"),
    (f"{X86} -mcpu=haswell", "uint8", "int8", "int32", "vpmaddwd"),
    (f"{X86} -mcpu=haswell", "float16", "float16", "float32", "vfmadd"),
    (f"{ARM} -mattr=+dotprod", "int8", "int8", "int32", "sdot"),
    (f"{ARM} -mattr=+dotprod", "uint8", "uint8", "int32", "udot"),
    (f"{ARM} -mattr=+dotprod,+i8mm", "uint8", "int8", "int32", "usdot"),
    (f"{ARM} -mattr=+bf16", "bfloat16", "bfloat16", "float32", "bfdot"),
    (ARM, "int8", "int8", "int32", "smlal"),
]


def inner_loops(asm):
    """The instructions of each loop that has no loop inside."""
    found, label = [], None
    for line in asm.splitlines():
        start = re.match(r"(\.LBB\w+):", line)
        if start:
            label, body = start[1], []
        elif label is not None and line.startswith("\t") and not line.startswith("\t."):
            body.append(line)
            if re.match(rf"\t(j\w+|b\.\w+|cbnz)\s.*{re.escape(label)}$", line):
                found.append(body)
                label = None
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("target", "a", "b", "out", "instruction"), LOOPS)
def test_the_inner_loop_is_the_instruction_without_spills(target, a, b, out, instruction):
    cpu = dataclasses.replace(cpu_model(target), cores=1)
    fn = schedule_function(matmul(48, 96, 64, a, b, out), cpu)
    asm = compile_kernels(IRModule({"main": fn}), Target(target)).sources["asm"]
    loops = [x for x in inner_loops(asm) if any(instruction in line for line in x)]
    assert loops
    longest = max(loops, key=len)
    assert sum(instruction in line for line in longest) >= 8
    spills = [line for line in longest if re.search(r"\(%rsp|\(%rbp|\[sp", line)]
    assert not [line for line in spills if re.search(r"[xyz]mm|\bq\d", line)], longest
