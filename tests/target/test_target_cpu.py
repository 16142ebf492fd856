"""`cpu_model`: what schedules are told about a CPU."""

from __future__ import annotations

import dataclasses
import struct

import pytest

from relaxvm import te, tir
from relaxvm.base import CpuModel, PassError, Rates
from relaxvm.ir import assert_structural_equal
from relaxvm.runtime.cpu_budget import usable_cores
from relaxvm.runtime.host import data_caches
from relaxvm.runtime.kernel import NativeCode
from relaxvm.runtime.native import fits, host
from relaxvm.script import ir as I
from relaxvm.script import tir as T
from relaxvm.target import Target, compile_prim_funcs, cpu_model
from relaxvm.target.measure import measured_rates
from relaxvm.target.rates import RATES
from relaxvm.tir.schedule.plans import plans_for, schedule_function

ELF_MACHINE = {"x86_64": 62, "aarch64": 183, "riscv64": 243}


@I.ir_module
class AddOne:
    @T.prim_func
    def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in T.parallel(64):
            B[i] = T.exp(A[i]) + T.float32(1)


def test_this_computer_is_described():
    model = cpu_model()
    assert model == cpu_model("native")
    assert model.vector_bits in (64, 128, 256, 512)
    assert model.vector_registers in (16, 32)
    assert model.cores == usable_cores()
    assert 1 << 10 <= model.l1_bytes <= model.l2_bytes
    assert model.lanes(32) == max(1, model.vector_bits // 32)


@pytest.mark.parametrize(
    ("target", "bits", "registers", "fma"),
    [
        ("llvm -mcpu=x86-64", 128, 16, False),
        ("x86-64-v2", 128, 16, False),
        ("x86-64-v3", 256, 16, True),
        ("x86-64-v4", 512, 32, True),
        ("intel/haswell", 256, 16, True),
        ("amd/zen4", 512, 32, True),
        ("arm/neoverse-n1", 128, 32, True),
        ("raspberry-pi/4b-aarch64", 128, 32, True),
        ("riscv64/generic", 64, 32, False),
        ("llvm -mtriple=riscv64-linux-gnu -mattr=+v,+d", 128, 32, True),
    ],
)
def test_vector_units_of_named_cpus(target, bits, registers, fma):
    triple = Target(target).options.get("mtriple", "x86_64-linux-gnu")
    if "mtriple" not in Target(target).options:
        target = Target(Target(target).export() | {"mtriple": triple})
    model = cpu_model(target)
    assert (model.vector_bits, model.vector_registers, model.fma) == (bits, registers, fma)


def test_dot_products_of_named_cpus_are_known():
    assert cpu_model("intel/sapphirerapids -mtriple=x86_64-linux-gnu").has(
        "avx512vnni", "avx512bf16"
    )
    assert not cpu_model("intel/skylake-avx512 -mtriple=x86_64-linux-gnu").has("avx512vnni")
    assert not cpu_model("intel/cascadelake -mattr=-avx512vnni").has("avx512vnni")
    assert cpu_model("arm/neoverse-v1").has("i8mm", "dotprod")


def test_what_the_target_states_counts():
    model = cpu_model(
        "llvm -vector-width=256 -num-vector-registers=8 -num-cores=3 "
        "-l1-cache-bytes=16384 -l2-cache-bytes=131072 -l3-cache-bytes=1000000"
    )
    assert (model.vector_bits, model.vector_registers, model.cores) == (256, 8, 3)
    assert (model.l1_bytes, model.l2_bytes, model.l3_bytes) == (16384, 131072, 1000000)
    with pytest.raises(PassError, match="at least 1"):
        Target("llvm -num-cores=0")


def test_the_current_target_is_the_default():
    with Target("llvm -num-cores=7"):
        assert cpu_model().cores == 7


def test_caches_are_read_from_the_system(tmp_path):
    for i, (level, kind, size) in enumerate(
        [
            (1, "Data", "48K"),
            (1, "Instruction", "32K"),
            (2, "Unified", "2048K"),
            (3, "Unified", "1G"),
        ]
    ):
        folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{i}"
        folder.mkdir(parents=True)
        for name, text in (("level", str(level)), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    broken = tmp_path / "sys/devices/system/cpu/cpu0/cache/index9"
    broken.mkdir()
    (broken / "size").write_text("many")
    assert data_caches(tmp_path) == {1: 48 << 10, 2: 2 << 20, 3: 1 << 30}
    assert data_caches(tmp_path / "nowhere") == {}


def test_tags_stand_for_targets():
    target = Target("amd/zen4")
    assert target.mcpu == "znver4"
    assert target.options["tag"] == "amd/zen4"
    assert Target(str(target)) is target
    assert Target("amd/zen4 -num-cores=2").options["num-cores"] == 2
    assert set(Target.list_tags()) >= {"x86-64-v3", "raspberry-pi/4b-aarch64"}
    with pytest.raises(PassError, match="did you mean amd/zen4"):
        Target("amd/zen44")


@pytest.mark.parametrize("tag", ["raspberry-pi/4b-aarch64", "riscv64/generic", "x86-64-v3"])
def test_objects_for_other_machines_are_emitted(tag):
    target = Target(tag)
    section = compile_prim_funcs(AddOne, target)
    code = section.native[0]
    assert code.object[:4] == b"\x7fELF"
    wanted = ELF_MACHINE[code.triple.split("-")[0]]
    assert struct.unpack_from("<H", code.object, 18)[0] == wanted


def test_a_model_is_plain_data():
    assert CpuModel() == CpuModel()
    assert CpuModel(vector_bits=512).lanes(32) == 16
    assert CpuModel(vector_bits=64).lanes(128) == 1


@pytest.mark.parametrize(
    ("target", "has", "lacks"),
    [
        ("x86_64-linux-gnu -mcpu=alderlake", {"avxvnni"}, {"avx512vnni"}),
        ("x86_64-linux-gnu -mcpu=cascadelake -mattr=-avx512f", set(), {"avx512vnni", "avxvnni"}),
        ("x86_64-linux-gnu -mcpu=haswell", set(), {"avx512vnni", "avxvnni", "avx512bf16"}),
        ("x86_64-linux-gnu -mcpu=znver4", {"avx512vnni", "avx512bf16"}, set()),
        ("aarch64-linux-gnu -mattr=+dotprod", {"dotprod"}, {"i8mm", "bf16"}),
        ("aarch64-linux-gnu -mcpu=neoverse-v1 -mattr=-bf16", {"dotprod", "i8mm"}, {"bf16"}),
        ("arm64-apple-macos -mcpu=apple-m1", {"dotprod"}, {"bf16"}),
    ],
)
def test_dot_products_are_what_llvm_makes_use_of(target, has, lacks):
    model = cpu_model(f"llvm -mtriple={target}")
    assert has <= model.features
    assert not lacks & model.features


def test_vectors_of_apple_cpus_are_known():
    model = cpu_model("llvm -mtriple=arm64-apple-macos")
    assert (model.vector_bits, model.fma) == (128, True)


def test_code_of_another_cpu_is_not_run_here():
    """A feature in -mattr does not stand for all that the named CPU implies."""
    here = host()
    some = sorted(here.features)[0]
    code = NativeCode(here.triple, "another-cpu", f"+{some}", b"code", "test")
    assert not fits(code)
    assert fits(dataclasses.replace(code, cpu=here.cpu))
    assert fits(dataclasses.replace(code, features=here.features_text))


def test_rates_are_those_of_the_table_or_common_ones_and_change_no_schedule():
    named = cpu_model("llvm -mtriple=x86_64-linux-gnu -mcpu=znver3")
    assert named.rates == RATES["znver3"] != Rates()
    assert cpu_model("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell").rates == Rates()
    a = te.placeholder((64, 64), name="A")
    k = te.reduce_axis((0, 64))
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * a[k, j], axis=k))
    fn = te.create_prim_func([a, c])
    slow = dataclasses.replace(named, rates=Rates(1e9, 1.0, 1.0, 1.0))
    assert_structural_equal(schedule_function(fn, named), schedule_function(fn, slow))


KINDS_OF_CPUS = (
    "znver2 znver3 znver4 znver5 skylake skylake-avx512 cascadelake icelake-server sapphirerapids "
    "apple-m1 apple-m2 apple-m3 apple-m4 neoverse-n1 neoverse-n2 neoverse-v1 neoverse-v2"
).split()


@pytest.mark.parametrize("name", KINDS_OF_CPUS)
def test_predictions_for_common_cpus_lie_between_what_they_can_and_plain_loops(name):
    bits = 128 if name.startswith(("apple", "neoverse")) else 512
    cpu = CpuModel(vector_bits=bits, vector_registers=32, fma=True, rates=RATES[name])
    a, b = te.placeholder((256, 256), name="A"), te.placeholder((256, 256), name="B")
    k = te.reduce_axis((0, 256), name="k")
    c = te.compute((256, 256), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    choices = plans_for(tir.Schedule(te.create_prim_func([a, b, c])), "C", cpu)
    least = 256**3 / (cpu.lanes(32) * cpu.rates.products * cpu.rates.hertz)
    seconds = [choice.cost.seconds for choice in choices if choice.cost is not None]
    assert least <= seconds[0] < 2 * least < 256**3 / cpu.rates.hertz
    assert min(seconds) > 0.9 * seconds[0] and max(seconds) > 2 * seconds[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS_OF_CPUS)
def test_llvm_knows_the_cpus_of_the_table(name):
    arm = name.startswith(("apple", "neoverse"))
    model = cpu_model(f"llvm -mtriple={'aarch64' if arm else 'x86_64'}-linux-gnu -mcpu={name}")
    assert model.rates is RATES[name] and model.fma


def test_measured_rates_fall_from_cache_to_cache():
    rates = measured_rates()
    assert rates.hertz > 1e8
    assert rates.l2 >= rates.l3 >= rates.memory > 0
    assert rates.latency > 0
