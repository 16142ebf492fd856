"""Large results take memory again that nobody holds any more; what nobody wants is let go."""

import gc
import os
import resource
import threading

import numpy as np
import pytest
from ten_graphs import small

from relaxvm import relax
from relaxvm.runtime import VirtualMachine, result_memory
from relaxvm.script import from_source

SIZE = 300_000


@pytest.fixture
def table():
    """The table, empty at first."""
    with result_memory._lock:
        result_memory._drop_all()
    return result_memory


@pytest.fixture(scope="module")
def executable():
    """main(x) = (x + 1, x * 2) over ("n",)"""
    return relax.build(
        from_source(
            """
from relaxvm.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        with R.dataflow():
            a = R.add(x, R.const(1, "float32"))
            b = R.multiply(x, R.const(2, "float32"))
            R.output(a, b)
        return (a, b)
"""
        ),
        "llvm",
    )


def x_of(size=SIZE):
    return np.arange(size, dtype="float32")


def address(array):
    return array.numpy().ctypes.data


pytestmark = pytest.mark.vm_modes


def test_results_that_died_lend_their_memory_to_the_next(executable, table):
    main = VirtualMachine(executable)["main"]
    first = {address(a) for a in main(x_of())}
    assert {address(a) for a in main(x_of())} == first
    held = table.held_bytes()
    for _ in range(5):
        main(x_of())
    assert table.held_bytes() == held


def test_results_of_many_calls_that_all_live_are_apart(executable, table):
    main = VirtualMachine(executable)["main"]
    kept = [main(x_of() + k) for k in range(6)]
    for k, (a, b) in enumerate(kept):
        np.testing.assert_array_equal(a.numpy(), x_of() + k + 1)
        np.testing.assert_array_equal(b.numpy(), (x_of() + k) * 2)


@pytest.mark.parametrize(
    "export",
    [
        lambda a: a.numpy()[5:],
        lambda a: np.from_dlpack(a)[5:],
        lambda a: memoryview(a.numpy())[5:],
        lambda a: a[5:],
        lambda a: a.numpy().reshape(2, -1).reshape(-1)[5:],
    ],
    ids=["view", "dlpack", "memoryview", "part", "view of a view"],
)
def test_whatever_looks_at_a_result_keeps_its_memory(executable, table, export):
    main = VirtualMachine(executable)["main"]
    seen = export(main(x_of())[0])
    for k in range(3):
        main(x_of() * -k)
    np.testing.assert_array_equal(np.asarray(seen), x_of()[5:] + 1)


def test_a_result_that_grows_by_a_row_stays_in_the_same_blocks(executable, table):
    main = VirtualMachine(executable)["main"]
    for rows in range(40):
        main(x_of(SIZE + 256 * rows))
    assert sum(size > 0 for size in table._sizes) <= 4


def test_steady_calls_ask_the_system_for_no_pages(executable, table):
    main, x = VirtualMachine(executable)["main"], x_of(1 << 22)
    for _ in range(3):
        main(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        main(x)
    # Two results of 16 MiB are 8,192 pages a call.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 1000


@pytest.fixture(scope="module")
def decode():
    """A GPT-2's next token, with the cache given back a row longer; and with that donated."""
    mod = small("gpt2_decode")[0]
    return relax.build(mod, "llvm"), relax.build(mod, "llvm", donate=["cache"])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("donated", [False, True])
def test_decoding_takes_no_new_pages_after_the_first_calls(decode, table, threads, donated):
    main = VirtualMachine(decode[donated], num_threads=threads)["main"]
    token, place = np.array([[3]], "int32"), np.array([[5]], "int32")
    cache = tuple(np.zeros((1, 8_000, 2, 8), "float32") for _ in range(4))
    for _ in range(4):
        _, cache = main(token, place, cache)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        _, cache = main(token, place, cache)
    # Four results of 0.5 MB are 500 pages a call.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 500


def test_what_nobody_wants_for_two_sweeps_is_let_go(executable, table):
    main = VirtualMachine(executable)["main"]
    a, _ = main(x_of())
    assert table.sweep()
    assert table.sweep() is False
    assert table.held_bytes() == 0
    np.testing.assert_array_equal(a.numpy(), x_of() + 1)


def test_the_table_is_bounded(executable, table, monkeypatch):
    monkeypatch.setattr(table, "MOST_BYTES", 5_000_000)
    main = VirtualMachine(executable)["main"]
    kept = []
    for k in range(12):
        kept.append(main(x_of(SIZE + 60_000 * k)))
        assert table.held_bytes() <= 5_000_000
    for k, (a, _) in enumerate(kept):
        np.testing.assert_array_equal(a.numpy(), x_of(SIZE + 60_000 * k) + 1)


def test_more_results_than_the_table_has_slots(executable, table):
    main, x = VirtualMachine(executable)["main"], x_of(20_000)
    kept = [main(x + k) for k in range(table.SLOTS // 2 + 10)]
    for k, (a, _) in enumerate(kept):
        np.testing.assert_array_equal(a.numpy(), x + k + 1)


def test_threads_never_get_the_same_memory(executable, table):
    vm, wrong = VirtualMachine(executable), []

    def work(k):
        for i in range(60):
            x = np.full(SIZE // 4, k * 1000 + i, "float32")
            a, b = vm["main"](x)
            if a.numpy().max() != x[0] + 1 or b.numpy().min() != x[0] * 2:
                wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_begins_with_an_empty_table(executable, table):
    main = VirtualMachine(executable, num_threads=1)["main"]
    a, b = main(x_of())
    child = os.fork()
    if child == 0:
        good = table.held_bytes() == 0
        c, _ = main(x_of() + 1)
        good &= bool((c.numpy() == x_of() + 2).all() and (a.numpy() == x_of() + 1).all())
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(b.numpy(), x_of() * 2)


def test_a_machine_that_is_gone_leaves_its_results(executable, table):
    vm = VirtualMachine(executable)
    a, _ = vm["main"](x_of())
    del vm
    gc.collect()
    np.testing.assert_array_equal(a.numpy(), x_of() + 1)


def test_counted_runs_take_no_shared_memory(executable, table):
    vm = VirtualMachine(executable, max_bytes=1 << 24)
    for _ in range(3):
        vm["main"](x_of())
    assert table.held_bytes() == 0
