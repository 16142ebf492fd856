"""Kernels with symbolic shapes are tuned at sizes of a run, and are not slower at others."""

from dataclasses import replace

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, te, tir
from relaxvm.base import ScheduleError, TIRError
from relaxvm.meta_schedule.measure import Measurer, sign_test
from relaxvm.meta_schedule.sizes import sized
from relaxvm.script import tir as T
from relaxvm.target import Target
from relaxvm.tuning import tasks_of

ONE_CORE = Target("llvm -num-cores=1")


def product(name="n"):
    """(n, 16) @ (16, 16), the left side transposed, and twice as many rows of zeros."""
    n = tir.Var(name, "int64")
    a, b = te.placeholder((16, n), "float32", "a"), te.placeholder((16, 16), "float32", "b")
    k = te.reduce_axis((0, 16), "k")
    rows = te.compute((n, 16), lambda i, j: te.sum(a[k, i] * b[j, k], [k]), "rows")
    padded = te.compute(
        (n * 2, 16), lambda i, j: tir.if_then_else(i < n, rows[tir.min(i, n - 1), j], 0.0), "out"
    )
    return te.create_prim_func([a, b, padded])


def check(mod, n):
    a, b = (np.random.default_rng(n).standard_normal(s, "float32") for s in ((16, n), (16, 16)))
    out = relaxvm.nd.array(np.ones((2 * n, 16), "float32"))
    relaxvm.build(mod)["main"](relaxvm.nd.array(a), relaxvm.nd.array(b), out)
    np.testing.assert_allclose(out.numpy()[:n], a.T @ b.T, rtol=1e-4, atol=1e-4)
    assert not out.numpy()[n:].any()


def test_sizes_of_a_kernel():
    several = sized(product(), {"n": 20})
    assert [s.told for s in several] == ["n=20", "n=5", "n=80"]
    shapes = [[int(d) for d in b.shape] for b in several[0].fn.buffer_map.values()]
    assert shapes == [[16, 20], [16, 16], [40, 16]]
    assert sized(several[0].fn, {})[0].fn is several[0].fn
    assert [s.told for s in sized(product(), {"n": 1})] == ["n=1", "n=4"]
    # What would take too much memory is left out.
    assert [s.told for s in sized(product(), {"n": 1 << 20})] == ["n=1048576", "n=262144"]
    check(relaxvm.IRModule({"main": several[1].fn}), 5)


def test_a_symbol_of_a_shape_can_be_fixed():
    fn = product()
    symbol = fn.buffer_map[fn.params[0]].shape[1]
    new = tir.specialize(fn, {symbol: 3})
    assert [int(d) for d in new.buffer_map[fn.params[2]].shape] == [6, 16]
    with pytest.raises(TIRError, match="no parameter"):
        tir.specialize(fn, {tir.Var("m", "int64"): 3})


def test_sizes_come_from_a_run_of_the_model():
    bb = relax.BlockBuilder()
    n = tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n, 8), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(relax.op.nn.softmax(x)))
    for inputs, told in (
        (None, ["n=64", "n=16", "n=256"]),
        ([np.ones((12, 8), "float32")], ["n=12", "n=3", "n=48"]),
    ):
        (task,) = tasks_of(bb.get(), ONE_CORE, inputs=inputs)
        assert [s.told for s in task.sized] == told and task.share == 1


def tuned_product(monkeypatch, speedups):
    """Tuning of a candidate, which is said to be so much faster at each size."""
    answers = iter(speedups)

    def beats(self, winner, default=None, **options):
        return sign_test([[next(answers), 1.0]] * 8, 0.95, 0.01)

    def measure(self, candidates, on_result=lambda k, measured: None):
        results = [replace(m, seconds=m.seconds and 1e-9) for m in plain(self, candidates)]
        for k, measured in enumerate(results):
            on_result(k, measured)
        return results

    plain = Measurer.measure
    monkeypatch.setattr(Measurer, "beats", beats)
    monkeypatch.setattr(Measurer, "measure", measure)
    return relaxvm.tune(product(), 30, max_trials=1, target=ONE_CORE, num_threads=1)


@pytest.mark.slow
def test_a_record_answers_for_every_size(monkeypatch):
    tuned = tuned_product(monkeypatch, [2.0, 1.0, 3.0])
    (task,) = tuned.tasks
    assert task.state == "tuned" and task.speedup == 2.0
    with tuned.database:
        mod = relax.transform.MetaScheduleApplyDatabase()(relaxvm.IRModule({"main": product("m")}))
    assert mod["main"].attrs["tir.is_scheduled"]
    for n in (1, 7, 64, 100):
        check(mod, n)


def test_what_is_slower_at_another_size_is_not_taken(monkeypatch):
    tuned = tuned_product(monkeypatch, [2.0, 0.9])
    (task,) = tuned.tasks
    assert task.state.startswith("default stays: slower at n=16") and task.speedup == 1
    assert not tuned.database.get_all_tuning_records()


def test_candidates_are_checked_at_the_size_they_are_measured_at():
    one, *others = sized(product(), {"n": 8})
    with Measurer(product(), ONE_CORE, one=one) as measurer:
        (good,) = measurer.measure([product()])
        assert good.seconds is not None
        with measurer.resized(others[0]) as other:
            assert other.default.seconds is not None


@T.prim_func
def scaled(
    A: T.Buffer((96,), "float32"), n: T.int32, alpha: T.float32, B: T.Buffer((96,), "float32")
):
    """The first n are scaled."""
    for i in range(96):
        with T.block("B"):
            v = T.axis.spatial(96, i)
            B[v] = T.if_then_else(v < n, A[v] * alpha, T.float32(7))


@T.prim_func
def shifted(A: T.Buffer((40,), "float32"), off: T.int64, B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            v = T.axis.spatial(8, i)
            B[v] = A[T.Cast("int64", v) + off]


@T.prim_func
def counted(a: T.handle, n: T.int32, flag: T.bool, b: T.handle):
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        with T.block("B"):
            v = T.axis.spatial(n, i)
            B[v] = T.if_then_else(flag, A[v], T.float32(1))


@pytest.mark.parametrize(
    ("fn", "scalars"),
    [(scaled, {"n": 64, "alpha": 0.75}), (shifted, {"off": 64}), (counted, {"n": 64, "flag": 1})],
)
def test_kernels_with_scalars_are_measured_with_numbers(fn, scalars):
    one, *others = sized(fn, {})
    assert {fn.params[k].name: value for k, value in one.scalars.items()} == scalars
    assert len(others) == (2 if fn is counted else 0)
    with Measurer(fn, ONE_CORE, one=one) as measurer:
        (good,) = measurer.measure([fn])
        assert good.seconds is not None, good.refusal
        for other in others:
            with measurer.resized(other) as resized:
                assert resized.default.seconds is not None
        wrong = tir.specialize(scaled, {"n": 40}) if fn is scaled else None
        if wrong is not None:
            wrong = wrong.replace(params=fn.params)
            (bad,) = measurer.measure([wrong])
            assert bad.refusal.kind == "wrong", bad.refusal


def test_scalars_come_from_a_run_of_the_model_and_are_tuned():
    bb = relax.BlockBuilder()
    n, x = (
        relax.Var("n", relax.PrimStructInfo("int64")),
        relax.Var("x", relax.TensorStructInfo((40,), "float32")),
    )
    gv = bb.add_func(shifted, "shifted")
    with bb.function("main", [x, n]):
        sinfo = relax.TensorStructInfo((8,), "float32")
        bb.emit_func_output(bb.emit(relax.call_tir(gv, [x, n], sinfo)))
    (task,) = tasks_of(bb.get(), ONE_CORE, inputs=[np.ones(40, "float32"), 5])
    assert [dict(task.sizes), task.sized[0].told] == [{"off": 5}, "off=5"]
    tuned = relaxvm.tune(scaled, 600, max_trials=2, target=ONE_CORE, listener=lambda *_: None)
    assert tuned.tasks[0].trials == 2 and tuned.tasks[0].refused == 0


def test_addresses_are_refused():
    @T.prim_func
    def address(p: T.handle, B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = T.float32(1)

    with pytest.raises(ScheduleError, match="p: handle"):
        sized(address, {})
