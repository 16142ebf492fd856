"""Donated arguments: a call uses them up, and nobody else sees their memory change."""

from __future__ import annotations

import os
import pickle
import threading

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import VMValueError
from relaxvm.runtime import VirtualMachine, array, empty, load
from relaxvm.runtime.ndarray import from_dlpack, from_numpy
from relaxvm.script import from_source

pytestmark = pytest.mark.vm_modes
HEAD = "from relaxvm.script import ir as I, relax as R\n@I.ir_module\nclass Module:\n"
STEP = """
    @R.function
    def main(cache: R.Tensor(("n", 4), "float32"), place: R.Tensor((1, 1), "int64"),
             row: R.Tensor((1, 4), "float32")):
        R.func_attr({"donate": ["cache"]})
        with R.dataflow():
            c = R.scatter_nd(cache, place, row)
            R.output(c)
        return c
"""
GROW = """
    @R.function
    def main(cache: R.Tuple(R.Tensor((1, "n", 4), "float32"), R.Tensor((1, "n", 4), "float32")),
             row: R.Tensor((1, "m", 4), "float32")):
        R.func_attr({"donate": ["cache"]})
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            a = cache[0]
            b = cache[1]
            c = R.concat([a, row], axis=1)
            d = R.concat([b, row], axis=1)
            R.output(c, d)
        return (c, d)
"""
FLAT = """
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        with R.dataflow():
            y = R.reshape(x, R.shape([n * 4]))
            R.output(y)
        return y
"""


def built(text):
    head = HEAD.replace("relax as R", "relax as R, tir as T")
    return relax.build(from_source(head + text), "llvm")


@pytest.fixture(scope="module")
def step():
    return built(STEP)


@pytest.fixture(scope="module")
def grow():
    return built(GROW)


ROW = np.full((1, 4), 9, "float32")
AT = np.array([[1]])


def address(x):
    return x.numpy().ctypes.data


def fresh(rows=40):
    return array(np.zeros((rows, 4), "float32"))


def test_a_donated_array_is_written_where_it_lies_and_used_up(step):
    main, cache = VirtualMachine(step)["main"], fresh()
    where = address(cache)
    made = main(cache, AT, ROW)
    assert address(made) == where
    assert made.numpy().sum() == 36
    message = "this array was given to main as cache, which uses it up"
    for use in (
        lambda: cache.numpy(),
        lambda: cache.shape,
        lambda: cache[0],
        lambda: np.asarray(cache),
        lambda: np.from_dlpack(cache),
        lambda: from_dlpack(cache),
        lambda: array(cache),
        lambda: pickle.dumps(cache),
        lambda: cache.copyto(made),
        lambda: main(cache, AT, ROW),
        lambda: main(made, AT, cache),
        lambda: main(fresh(), AT, ROW, out=cache),
    ):
        with pytest.raises(VMValueError, match=message):
            use()
    assert message in repr(cache)


def test_rounds_write_in_one_place_and_give_what_copies_give(step):
    main, cache, wanted = VirtualMachine(step)["main"], fresh(), np.zeros((40, 4), "float32")
    where = address(cache)
    for k in range(20):
        row = np.full((1, 4), k, "float32")
        cache = main(cache, np.array([[k]]), row)
        wanted[k] = k
        assert address(cache) == where
    assert np.array_equal(cache.numpy(), wanted)


def views():
    yield "a numpy array", lambda: np.zeros((40, 4), "float32"), lambda x: x
    yield "its view", lambda: array(np.zeros((40, 4), "float32")), lambda x: x.numpy()
    yield "a view of a part", fresh, lambda x: x[2:]
    yield "another shape", fresh, lambda x: x.view((4, 40))
    yield "a capsule", fresh, lambda x: np.from_dlpack(x)
    yield "memory lent", fresh, lambda x: from_dlpack(x)
    yield "a reshape by a program", fresh, lambda x: VirtualMachine(built(FLAT))["main"](x)
    yield "an array around ours", lambda: np.zeros((40, 4), "float32"), lambda x: array(x).view


@pytest.mark.parametrize(("make", "look"), [v[1:] for v in views()], ids=[v[0] for v in views()])
def test_who_else_sees_the_memory_sees_no_change(step, make, look):
    main, cache = VirtualMachine(step)["main"], make()
    seen = look(cache)
    made = main(cache, AT, ROW)
    assert made.numpy().sum() == 36
    if not callable(seen):
        assert np.asarray(seen.numpy() if hasattr(seen, "numpy") else seen).sum() == 0


def test_read_only_memory_and_arrays_with_gaps_are_copied(step):
    main = VirtualMachine(step)["main"]
    frozen = np.zeros((40, 4), "float32")
    frozen.flags.writeable = False
    wide = np.zeros((40, 8), "float32")[:, ::2]
    for cache in (frozen, wide, np.frombuffer(bytes(640), "float32").reshape(40, 4)):
        assert main(cache, AT, ROW).numpy().sum() == 36
        assert cache.sum() == 0


def test_a_cache_does_not_grow_into_memory_that_is_read_only(grow):
    memory = np.zeros(4000, "uint8")
    cache = from_numpy(memory[:64].view("float32").reshape(1, 4, 4))
    memory.flags.writeable = False
    del memory
    made = VirtualMachine(grow)["main"]((cache, np.zeros((1, 4, 4), "float32")), ROW[None])
    assert made[0].numpy().sum() == 36


def test_an_array_given_twice_is_copied(step, grow):
    cache = array(np.ones((1, 4), "float32"))
    made = VirtualMachine(step)["main"](cache, np.array([[0]]), cache)
    assert np.array_equal(made.numpy(), np.ones((1, 4)))
    half = array(np.ones((1, 3, 4), "float32"))
    c, d = VirtualMachine(grow)["main"]((half, half), array(np.zeros((1, 1, 4), "float32")))
    assert c.numpy().sum() == d.numpy().sum() == 12
    assert address(c) != address(d)


def test_a_cache_that_grows_by_rows_is_copied_a_bounded_number_of_times(grow):
    main = VirtualMachine(grow)["main"]
    cache = (np.zeros((1, 1, 4), "float32"), np.zeros((1, 1, 4), "float32"))
    places, row = [], np.ones((1, 1, 4), "float32")
    for k in range(400):
        cache = main(cache, row * k)
        places.append(address(cache[0]))
    assert np.array_equal(cache[1].numpy()[0, :, 0], [0, *range(400)])
    assert len(set(places)) < 16


def test_branches_of_a_cache_do_not_see_each_other(grow):
    """A view of the cache keeps its memory from being grown into twice."""
    main = VirtualMachine(grow)["main"]
    start = main((np.zeros((1, 1, 4), "float32"),) * 2, np.zeros((1, 1, 4), "float32"))
    parts = tuple(x.view(x.shape) for x in start)
    one = main(start, np.full((1, 1, 4), 1, "float32"))
    two = main(parts, np.full((1, 1, 4), 2, "float32"))
    assert [x.numpy()[0, -1, 0] for x in (*one, *two)] == [1, 1, 2, 2]


def test_saved_files_keep_what_is_donated(step, tmp_path):
    path = tmp_path / "step.rvm"
    step.export_library(str(path))
    assert load(str(path)).function("main").donated == (0,)
    main, cache = VirtualMachine(str(path))["main"], fresh()
    where = address(cache)
    assert address(main(cache, AT, ROW)) == where


def test_saved_calls_stateful_calls_and_profiles_take_their_arguments(step):
    vm = VirtualMachine(step)
    vm.save_function("main", "once", fresh(), AT, ROW)
    assert vm["once"]().numpy().sum() == 36
    with pytest.raises(VMValueError, match="uses it up"):
        vm["once"]()
    cache = fresh()
    vm.set_input("main", cache, AT, ROW)
    vm.invoke_stateful("main")
    assert vm.get_outputs("main").numpy().sum() == 36
    cache = fresh()
    assert vm.profile("main", cache, AT, ROW).result.numpy().sum() == 36
    with pytest.raises(VMValueError, match="uses it up"):
        cache.numpy()


def test_results_go_where_out_says(step):
    main, cache, out = VirtualMachine(step)["main"], fresh(), empty((40, 4))
    assert main(cache, AT, ROW, out=out) is out
    assert out.numpy().sum() == 36
    mine = np.zeros((40, 4), "float32")
    assert main(mine, AT, ROW, out=mine) is mine
    assert mine.sum() == 36


def test_limited_and_named_calls_donate_too(step):
    cache = fresh()
    made = VirtualMachine(step, max_instructions=10_000)["main"](row=ROW, place=AT, cache=cache)
    assert made.numpy().sum() == 36
    with pytest.raises(VMValueError, match="uses it up"):
        cache.numpy()


def test_wrong_arguments_are_named_as_ever(step):
    main = VirtualMachine(step)["main"]
    with pytest.raises(ValueError, match="scatter_nd: an index is out of bounds"):
        main(fresh(), np.array([[40]]), ROW)
    with pytest.raises((TypeError, ValueError), match="main: parameter cache"):
        main(np.zeros((3, 5), "float32"), AT, ROW)
    with pytest.raises(TypeError, match="main: parameter cache"):
        main("cache", AT, ROW)


def test_threads_that_take_one_array_get_it_once_and_never_half(step):
    main, cache = VirtualMachine(step)["main"], fresh()
    made, refused = [], []

    def take(k):
        try:
            made.append(main(cache, AT, np.full((1, 4), k + 1, "float32")))
        except VMValueError as error:
            refused.append(error)

    threads = [threading.Thread(target=take, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) + len(refused) == 8 and made
    assert len({address(x) for x in made}) == len(made)
    for x in made:
        assert x.numpy().sum() == 4 * x.numpy()[1, 0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_of_fork_has_caches_of_its_own(grow):
    main = VirtualMachine(grow)["main"]
    cache = main((np.zeros((1, 30, 4), "float32"),) * 2, np.zeros((1, 1, 4), "float32"))
    child = os.fork()
    if child == 0:
        made = main(cache, np.full((1, 1, 4), 5, "float32"))
        os._exit(0 if made[0].numpy()[0, -1, 0] == 5 else 1)
    made = main(cache, np.full((1, 1, 4), 6, "float32"))
    assert os.waitpid(child, 0)[1] == 0
    assert made[1].numpy()[0, -1, 0] == 6
