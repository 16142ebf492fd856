"""Small results of compiled functions take arrays again that nobody can see any more."""

import random
import threading
import weakref

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.runtime import VirtualMachine, result_memory
from relaxvm.script import from_source


@pytest.fixture(scope="module")
def vm():
    """halves(x) = (x + 1, x * 2) and one(x) = x + 1 over ("n", "m"), flat(x) = x + 1 over (4,)"""
    return VirtualMachine(
        relax.build(
            from_source(
                """
from relaxvm.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def halves(x: R.Tensor(("n", "m"), "float32")):
        with R.dataflow():
            a = R.add(x, R.const(1, "float32"))
            b = R.multiply(x, R.const(2, "float32"))
            R.output(a, b)
        return (a, b)

    @R.function
    def one(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
        with R.dataflow():
            a = R.add(x, R.const(1, "float32"))
            R.output(a)
        return a

    @R.function
    def flat(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            a = R.add(x, R.const(1, "float32"))
            R.output(a)
        return a
"""
            ),
            "llvm",
        ),
        exec_mode="compiled",
    )


def x_of(start=0, shape=(4,)):
    return np.arange(start, start + np.prod(shape), dtype="float32").reshape(shape)


def headers(function, *shapes):
    """Which array objects the results of calls one after another have."""
    return [id(function(x_of(k, shape)).array) for k, shape in enumerate(shapes)]


def test_a_result_that_died_is_the_next_array(vm):
    assert len(set(headers(vm["flat"], *[(4,)] * 6))) == 1
    assert len(set(headers(vm["one"], *[(3, 5)] * 6))) == 1


def test_two_results_in_turn_are_two_arrays(vm):
    identities, y = set(), None
    for k in range(8):
        y = vm["flat"](x_of(k))
        identities.add(id(y.array))
        assert y.tolist() == [k + 1, k + 2, k + 3, k + 4]
    assert len(identities) == 2


def test_other_shapes_of_as_many_bytes_have_headers_of_their_own(vm):
    for k, shape in enumerate([(2, 6), (3, 4), (6, 2), (2, 6), (12, 1), (1, 12), (0, 3), (3, 0)]):
        y = vm["one"](x_of(k, shape))
        assert y.shape == shape and y.array.strides == x_of(0, shape).strides
        np.testing.assert_array_equal(y.numpy(), x_of(k + 1, shape))


def watch(y):
    array = y.array
    watcher = weakref.ref(array)
    return lambda: np.array(array) if watcher() is array else None


@pytest.mark.parametrize(
    "look",
    [
        lambda y: y.numpy,
        lambda y: lambda view=y.numpy(): view,
        lambda y: lambda array=y.array: array,
        lambda y: lambda row=y.array[:]: row,
        lambda y: lambda memory=memoryview(y.array): np.asarray(memory),
        lambda y: lambda other=np.from_dlpack(y): other,
        watch,
    ],
    ids=["itself", "numpy", "array", "slice", "buffer", "dlpack", "weak"],
)
def test_whoever_looks_at_a_result_keeps_it(vm, look):
    seen = look(vm["flat"](x_of(10)))
    for k in range(6):
        assert vm["flat"](x_of(k)).tolist() == [k + 1, k + 2, k + 3, k + 4]
    np.testing.assert_array_equal(seen(), x_of(11))


def test_an_array_that_is_watched_is_not_taken_again(vm):
    watcher = weakref.ref(vm["flat"](x_of(20)).array)
    vm["flat"](x_of(30))
    assert watcher().tolist() == [21, 22, 23, 24]


def test_weak_references_to_results_die_with_them(vm):
    y = vm["flat"](x_of())
    watcher = weakref.ref(y)
    del y
    assert watcher() is None


def spoil_shape(array):
    array.shape = (2, 2)


def spoil_dtype(array):
    array.dtype = "int32"


def spoil_flags(array):
    array.flags.writeable = False


@pytest.mark.parametrize("spoil", [spoil_shape, spoil_dtype, spoil_flags])
def test_a_header_that_somebody_changed_is_not_taken_again(vm, spoil):
    for k in range(3):
        spoil(vm["flat"](x_of(k)).array)
        y = vm["flat"](x_of(k))
        assert (y.shape, y.array.dtype, y.array.flags.writeable) == ((4,), np.float32, True)
        assert y.tolist() == [k + 1, k + 2, k + 3, k + 4]


def test_large_results_are_not_kept_here(vm):
    side = int((result_memory.AGAIN_BYTES / 4) ** 0.5) + 1
    kept = {word for word in result_memory._headers if word}
    array = vm["one"](x_of(0, (side, side))).array
    assert {word for word in result_memory._headers if word} == kept
    assert array.shape == (side, side)


def test_random_lives_of_results(vm):
    rng = random.Random(5)
    shapes = [(4, 1), (2, 2), (3, 3), (1, 9)]
    alive = []
    for step in range(1500):
        shape = rng.choice(shapes)
        x = x_of(step, shape)
        if rng.random() < 0.5:
            results = [(vm["one"](x), x + 1)]
        else:
            a, b = vm["halves"](x)
            results = [(a, x + 1), (b, x * 2)]
        for y, wanted in results:
            np.testing.assert_array_equal(y.numpy(), wanted)
            if rng.random() < 0.4:
                alive.append((rng.choice([y, y.numpy(), y.array, y.array.T.T]), wanted))
        while len(alive) > 3:
            seen, wanted = alive.pop(rng.randrange(len(alive)))
            np.testing.assert_array_equal(np.asarray(seen), wanted)


def test_threads_never_get_the_same_array(vm):
    wrong = []

    def calls(start):
        before = None
        for k in range(start, start + 400):
            y = vm["flat"](x_of(k))
            if before is not None and before[0].tolist() != before[1]:
                wrong.append(before)
            before = y, [k + 1, k + 2, k + 3, k + 4]

    threads = [threading.Thread(target=calls, args=(1000 * t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
