"""Programs of models kept on disk: found again where nothing changed, else built again."""

import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxvm
import relaxvm.pipeline
from relaxvm import program_cache
from relaxvm.ir.transform import PassContext
from relaxvm.relax.frontend.onnx import registry
from relaxvm.runtime import NDArray, disk_cache

SIZE = 160  # 100 kB of weights
X = np.linspace(-1, 1, SIZE, dtype="float32").reshape(1, SIZE)


def weights(seed):
    return np.random.default_rng(seed).standard_normal((SIZE, SIZE)).astype("float32")


def model(seed):
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n" + n, SIZE]) for n in "xy")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
             helper.make_node("Add", ["p", "b"], ["y"])]  # fmt: skip
    tensors = [numpy_helper.from_array(weights(seed), "w"),
               numpy_helper.from_array(np.full((SIZE, SIZE), seed, "float32"), "b")]  # fmt: skip
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def wanted(seed):
    return np.broadcast_to(X @ weights(seed) + seed, (SIZE, SIZE))


def save(path, seed=0, external=False):
    beside = {"save_as_external_data": True, "location": f"{path.name}.data"} if external else {}
    if external:
        (path.parent / f"{path.name}.data").unlink(missing_ok=True)
    onnx.save(model(seed), path, **beside)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "cache"))
    # Whoever edits the compiler while its tests run has no cache.
    monkeypatch.setattr(program_cache, "_compiler", lambda: "these sources")
    yield tmp_path
    program_cache.settle()


@pytest.fixture
def large(monkeypatch):
    """Files count as large, which are not read to be recognised."""
    monkeypatch.setattr(disk_cache, "_WHOLE_BYTES", 1 << 14)


@pytest.fixture
def builds(monkeypatch):
    """What was built, not taken from the cache."""
    made, build = [], relaxvm.pipeline.build_held
    monkeypatch.setattr(
        relaxvm.pipeline, "build_held", lambda *a, **o: (made.append(a[0]), build(*a, **o))[1]
    )
    return made


def check(path, seed=0, **options):
    program = relaxvm.load(path, **options)
    np.testing.assert_allclose(program["main"](X).numpy(), wanted(seed), rtol=1e-3, atol=1e-3)
    return program


def settle():
    program_cache.settle()
    time.sleep(0.025)  # a file that was written just now is not trusted


def entry(folder, suffix):
    program_cache.settle()
    (path,) = (folder / "cache" / "programs").glob(f"*{suffix}")
    return path


@pytest.mark.parametrize("external", [False, True])
def test_a_model_is_built_once(folder, builds, large, external):
    path = folder / "model.onnx"
    save(path, 1, external)
    settle()
    first, again = check(path, 1), check(str(path), 1)
    assert len(builds) == 1
    assert again.as_text() == first.as_text()
    arrays = [c.array for c in again.constants if type(c) is NDArray and c.nbytes > 1 << 16]
    assert len(arrays) == 2
    assert not any(a.flags.writeable for a in arrays)
    beside = entry(folder, ".data").stat().st_size
    # What the passes left alone is where it was, if it is aligned there.
    assert beside < (1.3 if external else 2.3) * 4 * SIZE * SIZE
    again.export_library(folder / "again.rvm")
    check(folder / "again.rvm", 1)
    assert len(builds) == 1


def test_the_first_result_does_not_wait_for_the_cache(folder, builds, monkeypatch):
    path, written, may_write = folder / "model.onnx", program_cache._written, threading.Event()
    monkeypatch.setattr(program_cache, "_written", lambda *a: (may_write.wait(60), written(*a))[1])
    save(path)
    first = check(path)
    assert not list((folder / "cache" / "programs").glob("*.entry"))
    # What is being written, nobody can change.
    (weight, *_) = (c for c in first.constants if type(c) is NDArray and c.nbytes > 1 << 16)
    with pytest.raises(ValueError, match="read-only"):
        weight.numpy()[0] = 1
    threading.Timer(0.05, may_write.set).start()
    check(path)
    assert len(builds) == 1


def test_where_no_thread_can_be_started_the_program_is_kept_at_once(folder, builds, monkeypatch):
    def none_left(thread):
        raise RuntimeError("can't start new thread")

    save(folder / "model.onnx")
    with monkeypatch.context() as patch:
        patch.setattr(program_cache.threading.Thread, "start", none_left)
        relaxvm.load(folder / "model.onnx")
    assert entry(folder, ".entry")
    check(folder / "model.onnx")
    assert len(builds) == 1


@pytest.mark.slow
def test_another_process_needs_no_compiler(folder):
    path = folder / "model.onnx"
    save(path)
    code = (
        "import sys, numpy, relaxvm\n"
        "from relaxvm.base import config\n"
        "config.LOADED_AT = 1e12\n"
        f"relaxvm.load({str(path)!r})['main'](numpy.ones((1, {SIZE}), 'float32'))\n"
        "print(*sorted({m.split('.')[1] for m in sys.modules if m.startswith('relaxvm.')}))\n"
        "print('onnx' in sys.modules)"
    )
    run = [sys.executable, "-c", code]
    first, second = (
        subprocess.run(run, check=True, capture_output=True, text=True).stdout.splitlines()
        for _ in range(2)
    )
    assert "relax" in first[0].split()
    assert second == ["_aliases base loading program_cache runtime", "False"]


@pytest.mark.slow
def test_what_only_a_build_knows_is_told_nevertheless(folder, builds):
    path = folder / "model.onnx"
    save(path)
    first, again = relaxvm.load(path), relaxvm.load(path)
    assert len(builds) == 1
    assert str(again.explain()) == str(first.explain())
    assert len(builds) == 2
    assert again.get_source("ll") == first.get_source("ll")
    assert list(again.sources) == list(first.sources)
    with pytest.raises(relaxvm.RelaxvmError, match="no source 'c'"):
        again.get_source("c")
    assert len(builds) == 2


@pytest.mark.slow
def test_options_lead_to_programs_of_their_own(folder, builds):
    path = folder / "model.onnx"
    save(path)
    target = {"target": "llvm -opt-level=1"}
    for options in ({}, {"shape_dict": {"x": [1, SIZE]}}, {"exec_mode": "bytecode"}, target):
        check(path, **options)
        check(path, **options)
    assert len(builds) == 4
    with PassContext(opt_level=3, config={"numerics": "exact"}):
        check(path)
        check(path)
    with PassContext(disabled_pass=["FuseOps"]):
        check(path)
    assert len(builds) == 6
    with PassContext():
        check(path)
    assert len(builds) == 6


@pytest.mark.slow
def test_what_belongs_to_this_process_is_not_cached(folder, builds, monkeypatch):
    path = folder / "model.onnx"
    save(path)
    check(path)

    class Watch:
        def run_before_pass(self, mod, info): ...

    with PassContext(instruments=[Watch()]):
        check(path)
    assert len(builds) == 2
    for options in ({"cache": False}, {"mmap": False}, {"pipeline": "zero"}):
        check(path, **options)
    assert len(builds) == 5
    monkeypatch.setenv("RELAXVM_PROGRAM_CACHE", "0")
    check(path)
    monkeypatch.delenv("RELAXVM_PROGRAM_CACHE")
    monkeypatch.setenv("RELAXVM_CACHE", "0")
    check(path)
    monkeypatch.delenv("RELAXVM_CACHE")
    assert len(builds) == 7
    check(path)
    assert len(builds) == 7
    registry.onnx("Mine", domain="of.mine")(lambda node, x: x)
    try:
        check(path)
        assert len(builds) == 8
    finally:
        del registry._ALL["of.mine", "Mine"]
    from relaxvm.ir import Op
    from relaxvm.relax.transform.legalize_ops import register_legalize

    former = Op.get("relax.exp").lower
    register_legalize("relax.exp", lambda builder, call: former(builder, call))
    try:
        check(path)
        assert len(builds) == 9
    finally:
        object.__setattr__(Op.get("relax.exp"), "lower", former)
    check(path)
    assert len(builds) == 9


@pytest.mark.slow
@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("old_time", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_changed_model_is_built_again(folder, builds, large, in_place, old_time, external):
    path = folder / "model.onnx"
    save(path, 1, external)
    settle()
    check(path, 1)
    changed = folder / "model.onnx.data" if external else path
    status = changed.stat()
    save(folder / "model.onnx.new", 2, external)
    source = folder / ("model.onnx.new.data" if external else "model.onnx.new")
    assert source.stat().st_size == status.st_size or external
    if in_place:
        # Of the same size and the same node; what mapped it before reads other weights now.
        changed.write_bytes(source.read_bytes())
    else:
        os.replace(source, changed)
    if old_time:
        os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))
    check(path, 2)
    assert len(builds) == 2
    settle()
    check(path, 2)
    check(path, 2)
    assert len(builds) in (2, 3)


def test_a_model_that_changes_while_it_is_built_is_not_kept(folder, builds, large, monkeypatch):
    path = folder / "model.onnx"
    save(path, 1)
    settle()
    build = relaxvm.pipeline.build_held

    def slow(*args, **options):
        save(path, 2)
        return build(*args, **options)

    monkeypatch.setattr(relaxvm.pipeline, "build_held", slow)
    check(path, 1)
    monkeypatch.setattr(relaxvm.pipeline, "build", build)
    settle()
    check(path, 2)
    check(path, 2)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_model_that_was_another_while_it_was_read_is_not_kept(folder, monkeypatch, in_place):
    """Of a small file the contents tell which it is, and these are there again."""
    path = folder / "model.onnx"
    save(path)
    first, file = path.read_bytes(), relaxvm.runtime.OnnxFile

    def put(data):
        if in_place:
            path.write_bytes(data)
        else:
            (folder / "new").write_bytes(data)
            os.replace(folder / "new", path)

    def read(*args, **options):
        time.sleep(0.025)
        put(model(1).SerializeToString())
        opened = file(*args, **options)
        opened.weights()
        put(first)
        return opened

    with monkeypatch.context() as patch:
        patch.setattr(relaxvm.runtime, "OnnxFile", read)
        relaxvm.load(path)
    settle()
    check(path)


@pytest.mark.slow
def test_links_to_a_model_lead_to_what_they_lead_to(folder, builds, large):
    path, link, hard = (folder / n for n in ("model.onnx", "link.onnx", "hard.onnx"))
    save(path, 1)
    os.link(path, hard)
    link.symlink_to(path)
    settle()
    for each in (path, link, hard):
        check(each, 1)
    save(folder / "other.onnx", 2)
    settle()
    link.unlink()
    link.symlink_to(folder / "other.onnx")
    check(link, 2)
    with hard.open("r+b") as file:
        file.write((folder / "other.onnx").read_bytes())
    settle()
    for each in (path, hard):
        check(each, 2)


@pytest.mark.parametrize("suffix", [".entry", ".data"])
def test_a_damaged_cache_is_not_read(folder, builds, suffix):
    path = folder / "model.onnx"
    save(path)
    check(path)
    size = entry(folder, suffix).stat().st_size
    count = 1
    places = [0, 1, 31, 32, 40, size // 2, size - 1]
    for place in [*places, *(-p for p in (1, size // 2, size))]:
        damaged = entry(folder, suffix)
        status, data = damaged.stat(), bytearray(damaged.read_bytes())
        if place < 0:
            del data[place:]
        else:
            data[place] ^= 1
        with damaged.open("r+b") as file:  # the same node, as a disk would do it
            file.write(data)
            file.truncate(len(data))
        os.utime(damaged, ns=(status.st_atime_ns, status.st_mtime_ns))
        check(path)
        count += 1
        assert len(builds) == count, place
    check(path)
    assert len(builds) == count
    entry(folder, suffix).unlink()
    check(path)
    assert len(builds) == count + 1
    check(path)
    assert len(builds) == count + 1
    # What belonged to older entries is gone.
    assert len(os.listdir(folder / "cache" / "programs")) == 2


def test_an_entry_of_another_machine_is_not_used(folder, builds, monkeypatch):
    path = folder / "model.onnx"
    save(path)
    check(path)
    here = program_cache.native.host()
    other = type(here)(here.triple, "another-cpu", here.features)
    monkeypatch.setattr(program_cache.native, "host", lambda: other)
    check(path)
    assert len(builds) == 2


def _load(path, answers):
    answers.put(relaxvm.load(path)["main"](X).numpy())


def test_two_processes_may_write_at_once(folder):
    path = folder / "model.onnx"
    save(path)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    workers = [context.Process(target=_load, args=(path, answers)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for _ in workers:
        np.testing.assert_allclose(answers.get(timeout=120), wanted(0), rtol=1e-3, atol=1e-3)
    for worker in workers:
        worker.join()
    check(path)


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_does_not_matter(folder, builds, monkeypatch):
    path = folder / "model.onnx"
    save(path)
    (folder / "cache").write_text("no folder")
    check(path)
    program_cache.settle()
    (folder / "cache").unlink()
    programs = folder / "cache" / "programs"
    programs.parent.mkdir(mode=0o700)
    programs.write_text("no folder")
    check(path)
    program_cache.settle()
    programs.unlink()
    pieces = program_cache.fileformat.pieces
    monkeypatch.setattr(program_cache.fileformat, "pieces", _full)
    check(path)
    program_cache.settle()
    assert not os.listdir(programs)
    monkeypatch.setattr(program_cache.fileformat, "pieces", pieces)
    check(path)
    assert len(builds) == 4
    check(path)
    assert len(builds) == 4


def _full(*args):
    raise OSError(28, "no space left on device")


@pytest.mark.slow
def test_the_cache_stays_below_its_size(folder, builds, monkeypatch):
    monkeypatch.setenv("RELAXVM_PROGRAM_CACHE", "1")
    paths = [folder / f"{i}.onnx" for i in range(6)]
    for i, path in enumerate(paths):
        save(path, i)
        check(path, i)
        settle()
    programs = folder / "cache" / "programs"
    assert sum(p.stat().st_size for p in programs.iterdir()) <= 1 << 20
    assert len(builds) == 6
    check(paths[5], 5)
    assert len(builds) == 6
    check(paths[0], 0)
    assert len(builds) == 7
    # A program that would drive out the others is not kept.
    monkeypatch.setattr(disk_cache.DiskCache, "_most", 10)
    check(paths[1], 1)
    check(paths[1], 1)
    assert len(builds) == 9
    # Files that a writer left behind go after an hour.
    left = programs / f"{'0' * 40}.{'0' * 16}.data"
    shutil.copy(next(programs.glob("*.data")), left)
    os.utime(left, (time.time() - 7200,) * 2)
    disk_cache.DiskCache("programs", 1 << 20).prune()
    assert not left.exists()


def test_sources_that_changed_since_the_start_switch_it_off(monkeypatch):
    # The real function, which the other tests go around.
    scan = program_cache._compiler.__wrapped__
    monkeypatch.setattr(program_cache.config, "LOADED_AT", time.time() + 1)
    assert scan() == scan() is not None
    monkeypatch.setattr(program_cache.config, "LOADED_AT", 0.0)
    assert scan() is None
