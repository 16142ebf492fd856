"""No loop function ends the process in LLVM, or keeps it there: workers that die, hang or cannot
be started; and what once made them.
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
from test_target_units import many, run
from test_target_units import scaled as scaled_by

import relaxvm
from relaxvm import relax, te, tir, topi
from relaxvm.base import CodegenError, DataType
from relaxvm.ir import Broadcast, IRModule, PassContext, Ramp, Var, const
from relaxvm.runtime import Module
from relaxvm.target import build, compile_kernels, cpu_model
from relaxvm.target.llvm import build as build_file
from relaxvm.target.llvm import machine, net, passes, units
from relaxvm.target.llvm.build import machine_of
from relaxvm.target.llvm.machine import compile_text, host_machine
from relaxvm.tir import Allocate, BufferLoad, BufferStore, For, PrimFunc, decl_buffer, seq
from relaxvm.tir.schedule.plans import DefaultSchedule

TEXT = "define i32 @f(i32 %x) {\n  %y = add i32 %x, 1\n  ret i32 %y\n}\n"

# A worker in which LLVM has a fault of its own: it runs these lines before it compiles.
FAULTY = """
import importlib.util, os, sys, time
sys.path[:] = sys.argv[1:]
spec = importlib.util.spec_from_file_location("passes", {path!r})
passes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(passes)
work = passes.work
def faulty(binding, request, alone):
    recipe = passes.Recipe(*request["recipe"])
    {fault}
    return work(binding, request, alone)
passes.work = faulty
passes.serve()
"""


@pytest.fixture
def faulty(cache, tmp_path, monkeypatch):
    """Makes workers that do as they are told."""

    def use(fault):
        program = tmp_path / "faulty.py"
        program.write_text(FAULTY.format(path=str(passes.__file__), fault=fault or "pass"))
        net._end()
        monkeypatch.setattr(net, "_PROGRAM", program)

    monkeypatch.setattr(net, "_here", False)
    yield use
    net._end()


def a_long_loop():
    """Of which LLVM makes vectors."""
    return IRModule({"scale0": scaled_by(0.0, size=1024)})


def maxima():
    """out[i, j] = max over k in range(1) of a[j * 2 + 1]; rows[i] = sum over j of out[i, j]."""
    a = te.placeholder((17,), "uint64", "a")
    k, j = te.reduce_axis((0, 1), "k"), te.reduce_axis((0, 7), "j")
    out = te.compute((8, 7), lambda i, j: te.max(a[j * 2 + 1], axis=k), "out")
    rows = te.compute((8,), lambda i: te.sum(out[i, j], axis=j), "rows")
    return IRModule({"main": te.create_prim_func([a, out, rows])})


def copies(rows, dtype, step):
    """The same without a reduction, and wider."""
    a = te.placeholder((30,), dtype, "a")
    out = te.compute((rows, 7), lambda i, j: a[j * step + 1], "out")
    j = te.reduce_axis((0, 7), "j")
    sums = te.compute((rows,), lambda i: te.sum(out[i, j], axis=j), "sums")
    return IRModule({"main": te.create_prim_func([a, out, sums])})


def split_maximum(dtype):
    """out[y, i, j] = max over k of a[y + 2, k], k split by 3; then row sums."""
    a = te.placeholder((5, 17), dtype, "a")
    k, last = te.reduce_axis((0, 17), "k"), te.reduce_axis((0, 15), "j")
    out = te.compute((3, 17, 15), lambda y, i, j: te.max(a[y + 2, k], axis=k), "out")
    rows = te.compute((3, 17), lambda y, i: te.sum(out[y, i, last], axis=last), "rows")
    schedule = tir.Schedule(IRModule({"main": te.create_prim_func([a, out, rows])}))
    schedule.split(schedule.get_loops(schedule.get_block("out"))[-1], [None, 3])
    return schedule.mod


# -- the known cases, without the net --------------------------------------------------------------


@pytest.mark.parametrize("cpu", ["znver4", "znver5", "sapphirerapids", "skylake-avx512", "haswell"])
@pytest.mark.parametrize(
    "mod", [maxima(), copies(16, "uint64", 2), copies(24, "float64", 2)], ids=["max", "16", "24"]
)
def test_stores_seven_apart_that_are_read_again_compile_for_every_cpu(cache, cpu, mod):
    with warnings.catch_warnings(), PassContext(config={"target.llvm_seconds": 60.0}):
        # A warning of the net would be an error.
        warnings.simplefilter("error")
        compile_kernels(mod, f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")


def test_stores_seven_apart_give_what_numpy_gives():
    a = np.arange(17, dtype="uint64") * 3
    out, rows = np.zeros((8, 7), "uint64"), np.zeros(8, "uint64")
    build(maxima())["main"](a, out, rows)
    want = np.broadcast_to(a[np.arange(7) * 2 + 1], (8, 7))
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(rows, want.sum(axis=1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_a_split_maximum_is_no_riddle_for_llvm(cache, dtype):
    mod = split_maximum(dtype)
    a = np.random.default_rng(0).integers(-9, 9, (5, 17)).astype(dtype)
    out, rows = np.zeros((3, 17, 15), dtype), np.zeros((3, 17), dtype)
    # It took 40 s; nothing warns, so a twentieth of that was enough.
    with PassContext(config={"target.llvm_seconds": 20.0}):
        build(mod)["main"](a, out, rows)
    want = np.broadcast_to(a[2:].max(axis=1)[:, None, None], out.shape)
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(rows, want.sum(axis=2))


@pytest.mark.parametrize("cpu", ["", " -mcpu=haswell", " -mcpu=x86-64-v4"])
@pytest.mark.parametrize(("narrow", "wide"), [("int8", "int32"), ("float32", "float32")])
def test_zeros_written_one_by_one_into_vectors_are_not_lost(narrow, wide, cpu):
    """In registers that LLVM put aside: 2 to 4 sums of 256 went on from those of another column."""
    a, b = (te.placeholder((16, 24), narrow, name) for name in "ab")
    k = te.reduce_axis((0, 24), "k")
    out = te.compute(
        (16, 16), lambda i, j: te.sum(a[i, k].astype(wide) * b[j, k].astype(wide), axis=k), "out"
    )
    sch = tir.Schedule(te.create_prim_func([a, b, out]))
    block = sch.get_block("out")
    i, j, k = sch.get_loops(block)
    j, columns = sch.split(j, [None, 6])
    sch.reorder(j, k, columns, i)
    copy = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(copy, j)
    for each in (block, copy, sch.decompose_reduction(block, k)):
        *_, outer, inner = sch.get_loops(each)
        sch.vectorize(inner)
        sch.unroll(outer)
    if any(unit not in host_machine().features for unit in _NEEDS[cpu]):
        pytest.skip("this processor lacks what the code is for")
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-100, 100, (16, 24)).astype(narrow) for _ in "xy")
    got = np.zeros((16, 16), wide)
    build(sch.mod, target=f"llvm{cpu}", schedule=False)["main"](x, y, got)
    np.testing.assert_array_equal(got, x.astype(wide) @ y.astype(wide).T)


_NEEDS = {"": (), " -mcpu=haswell": ("+avx2", "+fma"), " -mcpu=x86-64-v4": ("+avx512vl",)}


def test_a_chain_of_maxima_uses_each_value_once():
    text = units.generate_module(split_maximum("float32"), units.Settings(machine_of(None))).text()
    assert "@llvm.maximum.f32" in text
    assert "fcmp" not in text


# -- workers that fail -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "tried", "instead"),
    [
        ("if recipe.slp: os.abort()", "level 2 it ended", "level 2 without SLP "),
        ("if recipe.loops: os.abort()", "without SLP it ended", "vectorised loops and unrolling "),
        ("if recipe.level == 2: os._exit(3)", "unrolling it ended", "with level 1 "),
        ("if recipe.level: os.abort()", "with level 1 it ended", "with level 0 "),
    ],
)
def test_a_kernel_that_llvm_dies_of_is_compiled_with_fewer_passes(faulty, fault, tried, instead):
    faulty("sys.stderr.write('Node is not in map!'); sys.stderr.flush()\n    " + fault)
    with pytest.warns(RuntimeWarning) as caught:
        section = compile_kernels(a_long_loop()).section
    (message,) = (str(w.message) for w in caught)
    assert message.startswith("scale0: LLVM failed")
    assert tried in message
    assert instead in message
    file = pathlib.Path(message.split("attach ")[1].split(";")[0])
    text = file.read_text()
    assert "; kernel scale0\n; machine " in text
    assert "; Node is not in map!" in text
    assert "define hidden i32 @relaxvm_inner_scale" in text
    run(section, "scale0", 0, 1024)


def test_a_kernel_that_llvm_dies_of_whatever_it_does_is_an_error(faulty):
    faulty("os.abort()")
    with pytest.raises(CodegenError, match="scale0: LLVM failed.*level 0.*nothing safer"):
        compile_kernels(many(1))
    # The next is another matter.
    faulty("")
    run(compile_kernels(many(1)).section, "scale0", 0)


def test_a_kernel_that_keeps_llvm_busy_is_compiled_with_fewer_passes(faulty):
    faulty("recipe.loops and time.sleep(1000)")
    with (
        PassContext(config={"target.llvm_seconds": 0.3}),
        pytest.warns(RuntimeWarning, match=r"level 2 it took more than 0\.3 s.*unrolling instead"),
    ):
        section = compile_kernels(a_long_loop()).section
    run(section, "scale0", 0, 1024)


def test_a_kernel_that_never_ends_is_an_error_that_names_the_limit(faulty):
    faulty("time.sleep(1000)")
    with (
        PassContext(config={"target.llvm_seconds": 0.02}),
        pytest.raises(CodegenError, match=r"scale0.*took more.*target\.llvm_seconds"),
    ):
        compile_kernels(many(1))


def test_functions_of_the_virtual_machine_have_the_same_net(faulty):
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    b = relax.BlockBuilder()
    with b.function("main", [x]):
        b.emit_func_output(b.emit(relax.op.add(x, x)))
    faulty("if recipe.level is None: os.abort()")
    with pytest.warns(RuntimeWarning, match=r"VM functions: LLVM failed.*level 0 instead"):
        vm = relax.VirtualMachine(relax.build(b.get(), "llvm"), relaxvm.cpu())
    np.testing.assert_array_equal(vm["main"](np.ones(4, "float32")).numpy(), 2 * np.ones(4))


def test_what_llvm_refuses_is_refused_once(faulty):
    faulty("")
    with pytest.raises(CodegenError, match="LLVM refuses the generated module"):
        compile_text("this is no module", host_machine())
    assert compile_text(TEXT, host_machine()).object


def test_a_worker_that_was_killed_while_it_waited_is_replaced_without_a_word(cache):
    assert compile_text(TEXT, host_machine()).object
    assert compile_text(TEXT, host_machine()).object
    net._worker.kill()
    net._worker._process.wait()
    assert compile_text(TEXT, host_machine()).object


def test_workers_serve_one_build_after_the_other(cache):
    compile_text(TEXT, host_machine())
    first = net._worker
    compile_kernels(many(3))
    assert net._worker is first
    assert first.asked >= 4


def seen_while_building(monkeypatch, watched):
    """Whether there is a worker when a build begins to compile, and whether there is one after."""
    seen = []
    inner = watched._compile
    monkeypatch.setattr(
        watched, "_compile", lambda *args: seen.append(net._worker is not None) or inner(*args)
    )
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    b = relax.BlockBuilder()
    with b.function("main", [x]):
        b.emit_func_output(b.emit(relax.op.negative(x)))
    relax.build(b.get(), "llvm")
    return [*seen, net._worker is not None]


@pytest.mark.parametrize(
    ("running", "average", "idle"),
    [
        ("1/99", 3.0, True),
        ("3/99", 3.0, False),
        ("3/99", 0.5, True),
        ("2/99", 3.0, True),
        ("what", 3.0, False),
    ],
)
def test_a_core_is_idle_now_or_was_in_the_last_minute(monkeypatch, running, average, idle):
    """Two threads of this process count for one: what they do is soon done."""
    monkeypatch.setattr(net, "usable_cores", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (average,) * 3)
    text = f"{average} {average} {average} {running} 7"
    states = iter(["1 (a) R 1 R", "2 (b) (R) S 1", "3 (c) R 1"])
    tasks = [pathlib.Path(f"/proc/self/task/{k}/stat") for k in (1, 2, 3)]
    monkeypatch.setattr(net.pathlib.Path, "glob", lambda path, pattern: tasks)
    monkeypatch.setattr(
        net.pathlib.Path, "read_text", lambda path: next(states) if path in tasks else text
    )
    assert net.idle_core() is idle


@pytest.mark.parametrize("idle", [True, False])
def test_a_build_starts_a_worker_early_where_a_core_is_idle_and_ends_one_it_did_not_need(
    faulty, monkeypatch, idle
):
    faulty("")
    monkeypatch.setattr(net, "_in_vain", False)
    monkeypatch.setattr(net, "idle_core", lambda: idle)
    assert seen_while_building(monkeypatch, build_file) == [idle, True]
    net._end()
    # Everything is on disk now.
    assert seen_while_building(monkeypatch, build_file) == [idle, False]
    # That was in vain, so the next does not begin with it.
    assert seen_while_building(monkeypatch, build_file) == [False, False]
    monkeypatch.setattr(net, "_in_vain", False)
    monkeypatch.setenv("RELAXVM_CACHE", "0")
    assert seen_while_building(monkeypatch, build_file) == [True, True]


@pytest.mark.parametrize("fault", ["", "os._exit(1)", "print('hello' * 9, flush=True)"])
def test_without_a_worker_llvm_runs_here(faulty, tmp_path, monkeypatch, fault):
    faulty("")
    # No such program; one that ends at once; one that says something else.
    program = tmp_path / "broken.py"
    if fault:
        program.write_text(f"import os\n{fault}")
    monkeypatch.setattr(net, "_PROGRAM", program)
    run(compile_kernels(many(1)).section, "scale0", 0)


@pytest.mark.parametrize("error", [OSError(1, "not permitted"), BlockingIOError(), ValueError()])
def test_where_no_process_can_be_started_llvm_runs_here(faulty, monkeypatch, error):
    faulty("")

    def refuse(*args, **options):
        raise error

    monkeypatch.setattr("subprocess.Popen", refuse)
    run(compile_kernels(many(1)).section, "scale0", 0)


def test_within_another_program_llvm_runs_here(faulty, monkeypatch):
    faulty("os.abort()")
    monkeypatch.setattr(sys, "executable", "/usr/bin/some-program")
    run(compile_kernels(many(1)).section, "scale0", 0)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="sends a signal")
def test_an_interrupt_ends_the_worker(faulty):
    faulty("time.sleep(1000)")
    main = threading.main_thread().ident
    timer = threading.Timer(1.0, lambda: signal.pthread_kill(main, signal.SIGINT))
    # What a shell starts in the background ignores it.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            compile_kernels(many(1))
    finally:
        timer.join()
        signal.signal(signal.SIGINT, former)
    faulty("")
    run(compile_kernels(many(1)).section, "scale0", 0)


def test_where_no_folder_can_be_written_the_warning_says_so(faulty, monkeypatch, tmp_path):
    faulty("if recipe.slp: os.abort()")
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(nowhere / "cache"))
    monkeypatch.setattr(net.tempfile, "gettempdir", lambda: str(nowhere))
    with pytest.warns(RuntimeWarning, match="no folder"):
        run(compile_kernels(a_long_loop()).section, "scale0", 0, 1024)


# -- what is spared --------------------------------------------------------------------------------


def product(size):
    a, b = (te.placeholder((size, size), "float32", name) for name in "ab")
    k = te.reduce_axis((0, size), "k")
    return a, b, te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "c")


def scaled(size):
    a = te.placeholder((size, size), "float32", "a")
    return a, te.compute((size, size), lambda i, j: a[i, j] * 2.0, "c")


@pytest.mark.parametrize(("formula", "spared"), [(product, True), (scaled, False)])
def test_only_kernels_of_vectors_that_are_written_out_leave_loops_to_nobody(
    cache, monkeypatch, formula, spared
):
    ladders = []

    def noted(request, recipes, *rest):
        ladders.append(recipes)
        return net.compile_safely(request, recipes, *rest)

    monkeypatch.setattr(machine, "compile_safely", noted)
    *inputs, out = formula(96)
    mod = IRModule({"main": te.create_prim_func([*inputs, out])})
    mod = DefaultSchedule(cpu=cpu_model("llvm -mcpu=x86-64-v4"))(mod)
    section = compile_kernels(mod).section
    assert (ladders[0][0] == machine._VECTORS) is spared
    rng = np.random.default_rng(0)
    arrays = [rng.random((96, 96), "float32") for _ in inputs]
    got = np.zeros((96, 96), "float32")
    Module(section)["main"](*arrays, got)
    want = arrays[0] @ arrays[1] if spared else arrays[0] * 2
    np.testing.assert_allclose(got, want, rtol=1e-5)


def convolution(size):
    x = te.placeholder((1, 16, 18, 18), "float32", "x")
    w = te.placeholder((32, 16, 3, 3), "float32", "w")
    return x, w, topi.nn.conv2d(x, w, 1, 0, 1)


def sums(place):
    """C[i, j] = sum(A[i, k] * B[k, j], axis=k) of 8, 24 and 64 vectors of 16, added up in C itself
    or in memory of its own: at constant places, or where i says.
    """
    i, k = Var("i", "int64"), Var("k", "int64")
    a, b = decl_buffer((192,), "float32", "A"), decl_buffer((24576,), "float32", "B")
    c = decl_buffer((8192,), "float32", "C")
    own = decl_buffer((1024 if place == "own" else 8192,), "float32", "own", scope="local")

    def vector(buffer, at):
        return buffer, (Ramp(at, const(1, "int64"), 16),)

    def store(to, value):
        return BufferStore(to[0], value, to[1])

    def load(of):
        return BufferLoad(*of)

    zero = Broadcast(const(0, "float32"), 16)
    tile = own if place != "out" else c
    at = [(const(0, "int64") if place == "own" else i * 1024) + j for j in range(0, 1024, 16)]
    begin = [store(vector(tile, p), zero) for p in at]
    step = [
        store(
            vector(tile, p),
            load(vector(tile, p))
            + Broadcast(BufferLoad(a, (i * 24 + k,)), 16) * load(vector(b, k * 1024 + 16 * j)),
        )
        for j, p in enumerate(at)
    ]
    end = [store(vector(c, i * 1024 + 16 * j), load(vector(tile, p))) for j, p in enumerate(at)]
    inner = For(k, const(0, "int64"), const(24, "int64"), "serial", seq(*step))
    body = For(i, const(0, "int64"), const(8, "int64"), "serial", seq(*begin, inner, *end))
    if place != "out":
        body = Allocate(own.data, DataType("float32"), own.shape, const(True), body)
    handles = [Var(name, "handle") for name in "abc"]
    attrs = {"global_symbol": "main", "tir.noalias": True}
    return IRModule({"main": PrimFunc(handles, body, None, dict(zip(handles, (a, b, c))), attrs)})


def scheduled(formula):
    return lambda: DefaultSchedule(cpu=cpu_model("llvm -mcpu=x86-64-v4"))(
        IRModule({"main": te.create_prim_func(list(formula(96)))})
    )


SHAPES = {
    "product": (scheduled(product), ((96, 96), (96, 96), (96, 96)), False),
    "convolution": (
        scheduled(convolution),
        ((1, 16, 18, 18), (32, 16, 3, 3), (1, 32, 16, 16)),
        False,
    ),
    **{
        place: (lambda place=place: sums(place), ((192,), (24576,), (8192,)), promotes)
        for place, promotes in (("own", False), ("where i says", True), ("out", True))
    },
}


@pytest.mark.parametrize("kind", SHAPES)
def test_llvm_finds_registers_for_sums_in_memory_and_does_less_where_there_are_none(
    cache, monkeypatch, kind
):
    make, shapes, promotes = SHAPES[kind]
    chosen = []

    def forced(**changes):
        def noted(request, recipes, *rest):
            chosen.append(recipes[0])
            return net.compile_safely(request, [recipes[0]._replace(**changes)], *rest)

        monkeypatch.setattr(machine, "compile_safely", noted)

    monkeypatch.setenv("RELAXVM_CACHE", "0")
    rng = np.random.default_rng(0)
    arrays = [rng.random(shape, "float32") for shape in shapes]
    results = []
    for changes in ({}, {"promotes": False}, {"promotes": True}):
        forced(**changes)
        results.append(np.full_like(arrays[-1], np.nan))
        Module(compile_kernels(make()).section)["main"](*arrays[:-1], results[-1])
    assert chosen == [machine._VECTORS._replace(lsr=chosen[0].lsr, promotes=promotes)] * 3
    assert np.isfinite(results[0]).all()
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()


def a_loop(body, iterations=100, name="loop3"):
    return (
        f"start:\n  br label %{name}\n{name}:\n{body}"
        f"  %v9 = icmp ne i64 %v8, {iterations}\n  br i1 %v9, label %{name}, label %end4\nend4:\n"
    )


STORE = "  store float %v1, ptr %v2, align 4\n"
VECTOR = "  store <4 x float> %v3, ptr %v4, align 4\n"


@pytest.mark.parametrize(
    ("text", "scalars"),
    [
        (a_loop(STORE), True),
        (a_loop(STORE * 49), False),  # written out already
        (a_loop(VECTOR + STORE), False),  # a border of rows
        (STORE + a_loop(VECTOR), False),
        (a_loop(STORE + a_loop(VECTOR, name="loop5")), False),
        (a_loop(VECTOR + a_loop(STORE, name="loop5")), True),
        (a_loop("  store i64 %v1, ptr %v2, align 8\n  %v5 = call i32 @f(i64 7)\n"), False),
    ],
)
def test_a_loop_of_scalars_is_an_innermost_one_that_llvm_may_make_vectors_of(text, scalars):
    assert machine._has_loops_of_scalars(text) is scalars


@pytest.mark.parametrize(
    ("text", "reduced"),
    [
        (a_loop(VECTOR * 100), False),
        (a_loop(VECTOR * 100, 7), True),
        (a_loop(VECTOR * 10, 7), False),
        (a_loop(VECTOR * 1000, 7), False),
        ("  %v1 = sdiv i64 %v2, 7\n  %v3 = srem i64 %v2, 7\n" * 4, True),
        ("  %v1 = sdiv i64 %v2, 7\n" * 4, False),
    ],
)
def test_strength_is_reduced_where_addresses_or_beginnings_are_many(text, reduced):
    assert machine._gains_by_strength_reduction(text) is reduced


@pytest.mark.parametrize(
    ("text", "level", "wanted"),
    [
        (a_loop(VECTOR * 60), 2, machine._VECTORS),
        (a_loop(VECTOR * 60) + a_loop(STORE, name="loop5"), 2, machine._MIXED),
        (a_loop(VECTOR * 60) + a_loop(STORE, name="loop5"), 3, machine.Recipe(3, False, True, 3)),
        (a_loop(VECTOR * 9) + a_loop(STORE, name="loop5"), 2, machine.Recipe(2, False, True, 2)),
        (a_loop(STORE), 2, machine.Recipe(2, True, True, 2)),
    ],
)
def test_what_llvm_is_asked_for_first(monkeypatch, text, level, wanted):
    chosen = []
    monkeypatch.setattr(
        machine, "_compiled", lambda text, to, recipes, *rest: chosen.extend(recipes)
    )
    machine.compile_text(text, replace(machine.host_machine(), opt_level=level))
    assert chosen[0] == wanted
    # If LLVM does not survive that, it is asked for less and less.
    assert str(chosen[0]) != str(chosen[1])
    assert len(set(chosen)) == len(chosen)


# -- processes of every kind -----------------------------------------------------------------------

PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
import test_target_units as t
def work(i=0):
    t.run(t.compile_kernels(t.many(i + 1)).section, f"scale{i}", i)
"""
KINDS = {
    "closed stdin, stdout and stderr": "[os.close(fd) for fd in (0, 1, 2)]\nwork()",
    "fork": (
        "work()\npid = os.fork()\nwork(1)\nif pid == 0: os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0\nwork(2)"
    ),
    "a daemon of multiprocessing": (
        "import multiprocessing\nwork()\n"
        "p = multiprocessing.get_context('fork').Process(target=work, args=(1,), daemon=True)\n"
        "p.start(); p.join(); assert p.exitcode == 0"
    ),
    # The worker does not import the program, which has no guard.
    "spawn without a guard": "work()",
    "children that nobody waits for": (
        "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwork()"
    ),
    "no temporary folder": "import tempfile\ntempfile.tempdir = '/nonexistent'\nwork()",
    "threads": (
        "import threading\nfailed = []\n"
        "threading.excepthook = lambda a: failed.append(repr(a.exc_value))\n"
        "ts = [threading.Thread(target=work, args=(i,)) for i in range(4)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]\nassert not failed, failed"
    ),
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_process_compiles_and_leaves_nobody_behind(kind, tmp_path):
    program = tmp_path / "program.py"
    show = "\nfrom relaxvm.target.llvm import net\nwith open(sys.argv[2], 'w') as file:\n"
    show += "    file.write(str(net._worker._process.pid))\n"
    program.write_text(textwrap.dedent(PROGRAM) + KINDS[kind] + show)
    root = os.path.dirname(os.path.dirname(relaxvm.__file__))
    done = subprocess.run(
        [sys.executable, "-W", "error", program, os.path.dirname(__file__), tmp_path / "pid"],
        env={**os.environ, "PYTHONPATH": root, "RELAXVM_CACHE": "0"},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()[-900:]
    assert done.stderr == b""
    worker = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 20
    while os.path.exists(f"/proc/{worker}") and time.monotonic() < until:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{worker}")


# -- growth ----------------------------------------------------------------------------------------


def test_recipes_get_safer_and_large_kernels_begin_with_safe_ones():
    def names(level, lines):
        return [str(recipe) for recipe in machine._recipes(level, lines)]

    every = [
        "level 2",
        "level 2 without SLP",
        "level 2 without SLP, vectorised loops and unrolling",
        "level 1",
        "level 0",
    ]
    assert names(2, 10_000) == every
    assert names(2, 30_000) == every[2:]
    assert names(2, 50_000) == ["level 0"]
    assert names(1, 10) == ["level 1", "level 0"]
    assert names(0, 10)[-1] == "level 0"


def statements(count):
    """B[k] = A[(i + k) % 64] % A[(3 * i + k) % 64] for all k, over i."""
    i = Var("i", "int64")
    a, b = decl_buffer((64,), "int32", "A"), decl_buffer((count,), "int32", "B")
    stores = [
        BufferStore(b, tir.floormod(a[(i + k) % 64], a[(i * 3 + k) % 64]), (const(k, "int64"),))
        for k in range(count)
    ]
    body = For(i, const(0, "int64"), const(64, "int64"), "serial", seq(*stores))
    handles = [Var("A", "handle"), Var("B", "handle")]
    attrs = {"global_symbol": "main", "tir.noalias": True}
    return IRModule({"main": PrimFunc(handles, body, None, dict(zip(handles, (a, b))), attrs)})


def test_llvm_gets_twice_the_lines_for_twice_the_statements():
    settings = units.Settings(machine_of(None))
    lines = [units.generate_module(statements(n), settings).text().count("\n") for n in (100, 200)]
    assert lines[1] < 2.05 * lines[0]


@pytest.mark.slow
def test_a_kernel_of_many_statements_is_compiled(cache):
    mod = statements(5000)
    a, b = np.arange(3, 67, dtype="int32"), np.zeros(5000, "int32")
    build(mod)["main"](a, b)
    k = np.arange(5000)
    np.testing.assert_array_equal(b, a[(63 + k) % 64] % a[(63 * 3 + k) % 64])


def test_unrolling_has_a_budget_for_the_whole_function():
    a = decl_buffer((1 << 20,), "int32", "A")
    loops = []
    for base in range(0, 40_000, 1000):
        k = Var("k", "int64")
        store = BufferStore(a, a[k * 3 + base] + 1, (k * 3 + base,))
        loops.append(For(k, const(0, "int64"), const(400, "int64"), "unroll", store))
    handle = Var("A", "handle")
    fn = PrimFunc([handle], seq(*loops), None, {handle: a}, {"global_symbol": "main"})
    text = units.generate_module(IRModule({"main": fn}), units.Settings(machine_of(None))).text()
    # 40 loops of 400 iterations are 16,000 stores.
    assert text.count("store i32") < 8000
    assert text.count("br i1") > 10


def test_only_the_first_build_of_an_installation_loads_llvm_here(tmp_path):
    """What machine this is, and which LLVM there is, is known then; kernels have their process."""
    program = """
import sys
import numpy as np
import relaxvm as tvm
from relaxvm import relax

size = int(sys.argv[1])
x = relax.Var("x", relax.TensorStructInfo((size,), "float32"))
b = relax.BlockBuilder()
with b.function("main", [x]):
    b.emit_func_output(b.emit(relax.op.negative(x)))
vm = relax.VirtualMachine(relax.build(b.get(), "llvm"), tvm.cpu())
assert (vm["main"](np.ones(size, "float32")).numpy() == -1).all()
print("llvmlite.binding" in sys.modules)
"""
    env = {**os.environ, "RELAXVM_CACHE_DIR": str(tmp_path)}
    env.pop("RELAXVM_CACHE", None)
    loaded = [
        subprocess.run(
            [sys.executable, "-c", program, size],
            env=env,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for size in ("70", "80")
    ]
    assert loaded == ["True\n", "False\n"]
