"""Every rule of the default schedules against axes of 0 and 1: kernels large enough to be worth a
schedule, with one axis after the other (or two) that is not.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from op_table import Case, T, check, instances, module_of

from relaxvm import relax
from relaxvm.base import CpuModel, StructInfoError, TIRError
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import from_storage
from relaxvm.relax.transform import BindParams, LegalizeOps
from relaxvm.runtime import VirtualMachine, array, cpu
from relaxvm.tir.analysis import verify_well_formed
from relaxvm.tir.schedule.plans import DefaultSchedule

nn = R.nn
FLOATS = ("float32", "float16", "bfloat16", "float64")
BYTES = ("int8", "uint8")


def wide(op, **attrs):
    """`op` of bytes, summed in int32; of others as they are."""

    def call(*args):
        narrow = args[0].struct_info.dtype in BYTES
        return op(*args, **attrs, out_dtype="int32" if narrow else None)

    return call


def in_bytes(op, **attrs):
    """`op` summed in int32, by way of wider copies."""

    def call(*args):
        if args[0].struct_info.dtype in BYTES:
            args = [R.astype(a, "int32") for a in args]
        return op(*args, **attrs)

    return call


# name -> (operator, shapes by the names of axes, sizes, dtypes)
KINDS = {
    "matmul": (wide(R.matmul), ["mk", "kn"], {"m": 65, "k": 31, "n": 33}, FLOATS + BYTES),
    "even matmul": (wide(R.matmul), ["mk", "kn"], {"m": 32, "k": 64, "n": 64}, FLOATS + BYTES),
    "batched": (
        wide(R.matmul), ["bmk", "bkn"], {"b": 2, "m": 33, "k": 15, "n": 32}, FLOATS + BYTES,
    ),
    "one right side": (
        wide(R.matmul), ["bmk", "kn"], {"b": 2, "m": 65, "k": 15, "n": 32}, FLOATS + BYTES,
    ),
    "matvec": (R.matmul, ["mk", "k"], {"m": 40, "k": 200}, FLOATS),
    "vecmat": (R.matmul, ["k", "kn"], {"k": 100, "n": 96}, FLOATS),
    "transposed": (
        lambda a, b: R.einsum((a, b), "mk,nk->mn"), ["mk", "nk"], {"m": 34, "k": 48, "n": 35},
        FLOATS,
    ),
    "conv2d": (
        wide(nn.conv2d, padding=1), ["ichw", "ocrs"],
        {"i": 1, "c": 16, "h": 12, "w": 12, "o": 16, "r": 3, "s": 3}, FLOATS + BYTES,
    ),
    "strided conv2d": (
        wide(nn.conv2d, padding=1, strides=2), ["ichw", "ocrs"],
        {"i": 2, "c": 3, "h": 15, "w": 16, "o": 17, "r": 3, "s": 3}, FLOATS + BYTES,
    ),
    "conv2d by channels": (
        wide(nn.conv2d, data_layout="NHWC", kernel_layout="HWIO"), ["ihwc", "rsco"],
        {"i": 1, "c": 16, "h": 10, "w": 12, "o": 16, "r": 3, "s": 3}, FLOATS + BYTES,
    ),
    "conv1d": (
        wide(nn.conv1d, padding=1), ["icw", "ocs"], {"i": 2, "c": 8, "w": 40, "o": 24, "s": 3},
        FLOATS,
    ),
    "depthwise": (
        lambda x, w: nn.conv2d(x, w, padding=1, groups=int(x.struct_info.shape[1])),
        ["ichw", "cors"], {"i": 1, "c": 16, "h": 14, "w": 16, "o": 1, "r": 3, "s": 3}, FLOATS,
    ),
    "max_pool2d": (
        lambda x: nn.max_pool2d(x, 3, 2, padding=1), ["ichw"],
        {"i": 1, "c": 9, "h": 17, "w": 16}, (*FLOATS, "int8"),
    ),
    "avg_pool2d": (
        lambda x: nn.avg_pool2d(x, 2), ["ichw"], {"i": 1, "c": 9, "h": 17, "w": 16}, FLOATS,
    ),
    "softmax": (nn.softmax, ["bmn"], {"b": 2, "m": 17, "n": 65}, FLOATS),
    "softmax of columns": (lambda x: nn.softmax(x, 1), ["bmn"], {"b": 2, "m": 17, "n": 65}, FLOATS),
    "layer_norm": (
        lambda x, g, b: nn.layer_norm(x, g, b, axes=-1), ["mn", "n", "n"], {"m": 33, "n": 65},
        FLOATS,
    ),
    "rms_norm": (lambda x, g: nn.rms_norm(x, g), ["mn", "n"], {"m": 33, "n": 65}, FLOATS),
    "row sum": (in_bytes(R.sum, axis=-1), ["bmn"], {"b": 2, "m": 33, "n": 65}, FLOATS + BYTES),
    "column max": (lambda x: R.max(x, axis=0), ["mn"], {"m": 65, "n": 66}, FLOATS + BYTES),
    "sum in the middle": (
        in_bytes(R.sum, axis=1), ["bmn"], {"b": 5, "m": 33, "n": 34}, FLOATS + BYTES,
    ),
    "argmax": (lambda x: R.argmax(x, axis=-1), ["mn"], {"m": 33, "n": 65}, FLOATS + BYTES),
    "cumsum": (lambda x: R.cumsum(x, axis=1), ["mn"], {"m": 33, "n": 65}, ("float32", "int32")),
    "transpose": (
        lambda x: R.permute_dims(x, [0, 2, 1]), ["bmn"], {"b": 2, "m": 33, "n": 65},
        FLOATS + BYTES,
    ),
    "reversed": (R.permute_dims, ["bmn"], {"b": 7, "m": 33, "n": 17}, FLOATS + BYTES),
    "broadcast": (R.add, ["bmn", "mo"], {"b": 3, "m": 33, "n": 65, "o": 1}, FLOATS + BYTES),
    "elementwise": (R.exp, ["bmn"], {"b": 3, "m": 33, "n": 65}, FLOATS),
}  # fmt: skip
WITH_WEIGHTS = ("matmul", "even matmul", "one right side", "conv2d", "conv2d by channels")


def cases(names, count=1, symbols=False):
    """A case for each kind and each `count` of its axes at 0 or 1.

    symbols  sizes that only the run tells
    """
    made = []
    for name in names:
        op, shapes, sizes, dtypes = KINDS[name]
        for axes in itertools.combinations(sizes, count):
            for values in itertools.product((0, 1), repeat=count):
                edges = dict(zip(axes, values))
                if any(sizes[a] == v for a, v in edges.items()):
                    continue
                here = {**sizes, **edges}
                # A program is legal with symbols where it is with the sizes that they take.
                ways = [here, {a: a for a in sizes}] if symbols else [here]
                found = [
                    Case(
                        op, *(T(*(dims[a] for a in s), low=-2, high=2) for s in shapes),
                        dtypes=dtypes, sizes=here, name=f"{name} {edges}",
                        count=max(64, here.get("k", 64)), atol=5e-2 if count > 1 else None,
                    )
                    for dims in ways
                ]  # fmt: skip
                if all(map(_is_legal, found)):
                    made.append(found[-1])
    return made


def _is_legal(case):
    try:
        instances([case], case.dtypes[:1])
    except (StructInfoError, TIRError, TypeError, ValueError):
        return False
    return True


CPUS = (
    CpuModel("x86_64", 512, 32, True, frozenset({"avx512vnni", "avx512bf16"})),
    CpuModel("x86_64", 256, 16, True),
    CpuModel("aarch64", 128, 32, True, frozenset({"dotprod", "i8mm", "bf16"})),
)


def test_every_rule_of_every_cpu_takes_an_axis_of_0():
    empty = [c for c in cases(KINDS) if "0}" in c.name]
    mod = LegalizeOps()(module_of(instances(empty, in_turn=True)))
    for cpu_of_rules in CPUS:
        verify_well_formed(DefaultSchedule(cpu=cpu_of_rules)(mod))


def test_one_axis_of_0_or_1():
    check(cases(KINDS)[::9], interpret=False, in_turn=True)


def test_one_symbol_of_0_or_1():
    # Equal functions are compiled once: it is the runs that differ.
    check(cases(["matmul", "softmax"], symbols=True), ["float32"], False)


@pytest.mark.parametrize("name", ["matmul", "conv2d by channels"])
def test_one_axis_of_0_or_1_beside_weights(name):
    check_with_weights(instances(cases([name]), in_turn=True)[:4])


def check_with_weights(group):
    """The last array is a constant, in the layout that its kernel wants."""
    mod = module_of(group)
    for i, one in enumerate(group):
        last = one.params[-1]
        weights = array(one.arrays[-1], dtype=last.struct_info.dtype)
        mod = BindParams(f"f{i}", {last.name_hint: weights})(mod)
    vm = VirtualMachine(relax.build(mod, exec_mode="bytecode"), cpu())
    free = VirtualMachine(relax.build(module_of(group), exec_mode="bytecode"), cpu())
    for i, one in enumerate(group):
        given = [array(a, dtype=p.struct_info.dtype) for a, p in zip(one.arrays, one.params)]
        results = vm[f"f{i}"](*given[:-1]), free[f"f{i}"](*given)
        got, want = (from_storage(r.numpy(), str(r.dtype)) for r in results)
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2, err_msg=one.label)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_axes_of_0_and_1_of_every_dtype(name):
    check(cases([name]), interpret=False)
    if with_symbols := cases([name], symbols=True):
        check(with_symbols, interpret=False)
    if len(KINDS[name][2]) > 1:
        check(cases([name], 2), interpret=False, in_turn=True)
    if name in WITH_WEIGHTS:
        check_with_weights(instances(cases([name])))
