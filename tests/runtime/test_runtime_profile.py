"""vm.profile: counts, shares, bytes and operations, and the files it writes."""

import json
import resource
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import VMTypeError, VMValueError
from relaxvm.runtime import VirtualMachine
from relaxvm.runtime.machine_roof import machine_roof
from relaxvm.runtime.profile import ProfileReport
from relaxvm.script import from_source

SOURCE = """
from relaxvm.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def mm(a: T.handle, w: T.Buffer((8, 8), "float32"), c: T.handle):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        A = T.match_buffer(a, (n, 8), "float32")
        C = T.match_buffer(c, (n, 8), "float32")
        for i, j, k in T.grid(n, 8, 8):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * w[vk, vj]
    @R.function
    def inner(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
        n = T.int64()
        cls = Module
        y = R.call_tir(cls.mm, (x, w), out_sinfo=R.Tensor((n, 8), "float32"))
        return y
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
        n = T.int64()
        cls = Module
        a = R.call_tir(cls.mm, (x, w), out_sinfo=R.Tensor((n, 8), "float32"))
        b = R.call_dps_packed("env.twice", (a,), out_sinfo=R.Tensor((n, 8), "float32"))
        c = cls.inner(b, w)
        return c
"""


def twice(x, out):
    out.numpy()[...] = x.numpy() * 2


@pytest.fixture(scope="module")
def ex():
    return relax.build(from_source(SOURCE), tir_pipeline=None)


def machine(ex, **options):
    return VirtualMachine(ex, functions={"env.twice": twice}, **options)


def arguments(n=5):
    rng = np.random.default_rng(n)
    return rng.random((n, 8), dtype="float32"), rng.random((8, 8), dtype="float32")


@pytest.fixture(scope="module")
def report(ex):
    return machine(ex, profile=True).profile("main", *arguments())


def row(report, name):
    (found,) = [r for r in report.calls if r.name == name]
    return found


def test_the_result_is_what_a_call_gives(ex, report):
    x, w = arguments()
    np.testing.assert_array_equal(report.result.numpy(), machine(ex)["main"](x, w).numpy())
    np.testing.assert_allclose(report.result.numpy(), (x @ w * 2) @ w, rtol=1e-5)


def test_calls_are_counted_with_bytes_and_operations(report):
    mm = row(report, "mm")
    assert (mm.kind, mm.count) == ("kernel", 2)
    # Twice: x and w read, y read and written (a reduction accumulates in it).
    assert mm.size_bytes in (2 * (160 + 256 + 160), 2 * (160 + 256 + 2 * 160))
    # 5 * 8 * 8 multiplications and additions each.
    assert mm.flops == 2 * (2 * 5 * 8 * 8)
    assert mm.gigaflops == mm.flops / mm.total_ns
    assert mm.roof_share > 0
    extern = row(report, "env.twice")
    assert (extern.kind, extern.count, extern.flops, extern.size_bytes) == ("extern", 1, None, None)
    assert row(report, "vm.builtin.alloc_tensor").kind == "builtin"


def test_of_a_table_the_rows_that_are_read_count():
    table = relax.Var("table", relax.TensorStructInfo((5000, 64), "float32"))
    rows = relax.Var("rows", relax.TensorStructInfo((7,), "int32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [table, rows]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.take(table, rows, 0))
        builder.emit_func_output(out)
    vm = VirtualMachine(relax.build(builder.get(), "llvm"))
    x, at = np.ones((5000, 64), "float32"), np.arange(7, dtype="int32")
    (kernel,) = [r for r in vm.profile("main", x, at).calls if r.kind == "kernel"]
    assert kernel.size_bytes == 2 * 7 * 64 * 4 + 7 * 4


def test_pages_of_new_memory_are_there_before_a_kernel_writes(ex):
    vm, (x, w) = machine(ex), arguments(1 << 19)
    kernels = []

    def look(func, name, before, value, *args):
        if name == "mm":
            kernels.append((before, resource.getrusage(resource.RUSAGE_SELF).ru_minflt))

    vm.set_instrument(look)
    vm.profile("main", x, w)
    # 16 MiB are 4096 pages; the first kernel writes as many.
    assert kernels[1][1] - kernels[0][1] < 1000


def test_a_program_without_kernels_has_no_roof():
    ex = relax.build(
        from_source("""
from relaxvm.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return x
""")
    )
    report = VirtualMachine(ex).profile("main", np.ones(4, "float32"))
    assert report.roof is None
    assert "there are no kernels" in str(report)
    assert json.loads(report.to_json())["roof"] is None


def test_times_add_up(report):
    assert sum(r.total_ns for r in report.calls) == sum(r.total_ns for r in report.instructions)
    assert 0 < report.calls_ns <= report.wall_ns
    assert sum(r.share for r in report.calls) == pytest.approx(report.calls_ns / report.wall_ns)


def test_instructions_are_named_by_place_and_text(report):
    kernels = [r for r in report.instructions if r.name == "mm"]
    assert {r.function for r in kernels} == {"main", "inner"}
    assert all(r.count == 1 and r.text.startswith("call mm") for r in kernels)


def test_the_table_shows_every_callee(report):
    text = str(report)
    for wanted in ("mm", "env.twice", "GFLOP/s", "of roof", "by instruction:", "measured", "clock"):
        assert wanted in text
    lines = report.table(aggregate=False, col_sums=False).splitlines()
    assert len(lines) == 1 + len(report.instructions)
    assert report.csv().splitlines()[0].startswith("name,kind,function,instruction")
    assert repr(report).startswith("<ProfileReport of main")


def test_json_holds_the_rows(report, tmp_path):
    path = tmp_path / "profile.json"
    report.save_json(path)
    read = json.loads(path.read_text())
    assert read == json.loads(report.to_json())
    assert {r["name"]: r["count"] for r in read["calls"]}["mm"] == 2
    assert read["roof"]["flops_per_second"] > 0


def test_trace_nests_calls_in_their_functions(report, tmp_path):
    path = tmp_path / "trace.json"
    report.save_trace(path)
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    by_name = {e["name"]: e for e in events}
    outer, inner = by_name["main"], by_name["inner"]
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    assert sum(e["name"] == "mm" for e in events) == 2
    assert all(e["dur"] >= 0 and e["pid"] and e["tid"] for e in events)


def test_keywords_stateful_module_and_zero_sizes_work(ex):
    x, w = arguments(0)
    vm = machine(ex)
    report = vm.module["profile"]("main", x, w=w)
    assert isinstance(report, ProfileReport)
    assert report.result.shape == (0, 8)
    assert row(report, "mm").flops == 0


def test_errors_are_those_of_a_call(ex):
    vm = machine(ex)
    with pytest.raises(VMTypeError, match="wanted 2 arguments"):
        vm.profile("main", arguments()[0])
    with pytest.raises(VMValueError, match="no function 'nain'"):
        vm.profile("nain")
    with pytest.raises(VMValueError, match="wanted 8"):
        vm.profile("main", np.zeros((2, 8), "float32"), np.zeros((8, 9), "float32"))


def test_threads_measure_the_roof_one_after_the_other(monkeypatch):
    inside, most = [], []

    def measured():
        inside.append(0)
        time.sleep(0.01)
        most.append(len(inside))
        inside.pop()
        return most

    monkeypatch.setattr("relaxvm.runtime.machine_roof._measured", measured)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: machine_roof.__wrapped__(), range(3)))
    assert most == [1, 1, 1]


def test_the_roof_is_measured_once_and_falls_with_size():
    roof = machine_roof()
    assert roof is machine_roof()
    rates = [rate for _, rate in roof.bytes_per_second]
    assert rates == sorted(rates, reverse=True)
    assert roof.bandwidth(1) == rates[0]
    assert roof.bandwidth(1 << 40) == rates[-1]
    assert roof.least_seconds(0, None) == 0
    assert roof.least_seconds(0, roof.flops_per_second) == pytest.approx(1)
