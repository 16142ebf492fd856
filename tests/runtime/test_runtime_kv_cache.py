"""The cache of rows: what its builtins do, what they refuse, and that views stay what they were."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxvm import nd
from relaxvm.base import LimitError, VMTypeError, VMValueError
from relaxvm.runtime import ShapeTuple
from relaxvm.runtime import kv_cache as kv
from relaxvm.runtime.builtin import TABLE
from relaxvm.runtime.limits import Account, Limits

RNG = np.random.default_rng(0)


def rows(count, *unit, dtype="float32"):
    return nd.array(RNG.standard_normal((count, *(unit or (2, 3)))).astype(dtype))


def new(reserve=4, *unit, **options):
    unit = unit or (2, 3)
    return kv.create(None, rows(0, *unit), ShapeTuple((reserve, *unit)), **options)


def seen(cache):
    return kv.view(cache, ShapeTuple(cache.shape))


@given(
    st.integers(0, 5),
    st.lists(
        st.tuples(
            st.sampled_from(["append", "pop", "clear", "update", "view", "drop"]), st.integers(0, 9)
        ),
        max_size=40,
    ),
)
def test_any_sequence_of_changes_is_that_of_a_list_and_no_view_changes(reserve, steps):
    cache, model, views, number = new(reserve, 1), [], [], 0
    for what, count in steps:
        if what == "append":
            more = [float(number + i) for i in range(count)]
            kv.append(None, cache, nd.array(np.array(more, "float32").reshape(-1, 1)))
            model, number = model + more, number + count
        elif what == "pop":
            gone = min(count, len(model))
            kv.popn(cache, gone)
            model = model[: len(model) - gone]
        elif what == "clear":
            kv.clear(cache)
            model = []
        elif what == "update":
            model = [value + 0.5 for value in model]
            kv.update(None, cache, nd.array(np.array(model, "float32").reshape(-1, 1)))
        elif what == "view":
            view = seen(cache).numpy()[: count + 1]  # part of one holds on to it too
            views.append((view, view.copy()))
        elif views:
            views.pop(count % len(views))
        assert cache.numpy()[:, 0].tolist() == model
        for view, before in views:
            np.testing.assert_array_equal(view, before)


def test_rows_come_back_in_order_however_they_were_appended():
    cache, wanted = new(2), np.zeros((0, 2, 3), "float32")
    for count in (1, 0, 5, 1, 1, 17, 2):
        more = rows(count)
        assert kv.append(None, cache, more) is cache
        wanted = np.concatenate([wanted, more.numpy()])
        np.testing.assert_array_equal(seen(cache).numpy(), wanted)
        np.testing.assert_array_equal(cache.numpy(), wanted)
    assert len(cache) == 27
    assert cache.shape == (27, 2, 3)


def test_the_buffer_doubles_so_that_appends_copy_each_row_about_once():
    cache, moves = new(1), 0
    for _ in range(1000):
        before = cache._buffer
        kv.append(None, cache, rows(1))
        moves += cache._buffer is not before
    assert moves == 10
    assert cache.capacity == 1024


def test_a_view_is_the_memory_of_the_cache():
    cache = kv.append(None, new(8), rows(3))
    view = seen(cache)
    assert np.shares_memory(view.numpy(), cache._buffer)
    assert view.numpy().ctypes.data % 64 == 0


def test_appending_changes_no_view():
    cache = kv.append(None, new(4), rows(3))
    view = seen(cache)
    before = view.numpy().copy()
    for count in (1, 1, 9):  # with and without a new buffer
        kv.append(None, cache, rows(count))
        np.testing.assert_array_equal(view.numpy(), before)


def test_a_row_taken_back_is_not_overwritten_under_a_view():
    cache = kv.append(None, new(8), rows(4))
    view = seen(cache)
    before = view.numpy().copy()
    kv.popn(cache, 2)
    kv.append(None, cache, rows(2))
    np.testing.assert_array_equal(view.numpy(), before)
    np.testing.assert_array_equal(cache.numpy()[:2], before[:2])
    assert not np.array_equal(cache.numpy()[2:], before[2:])


def test_a_row_taken_back_is_overwritten_in_place_when_nobody_looks():
    cache = kv.append(None, new(8), rows(4))
    seen(cache)  # and forgotten
    kv.popn(cache, 2)
    buffer = cache._buffer
    kv.append(None, cache, rows(2))
    assert cache._buffer is buffer


def test_clear_keeps_the_memory_and_forgets_the_rows():
    cache = kv.append(None, new(8), rows(4))
    assert kv.clear(cache) is cache
    assert len(cache) == 0
    assert cache.capacity == 8
    assert kv.append(None, cache, rows(1)).shape == (1, 2, 3)


def test_create_takes_the_rows_it_is_told_to():
    init = rows(3)
    cases = ((-1, 3), (0, 0), (2, 2), (3, 3))
    for length, kept in cases:
        cache = kv.create(None, init, ShapeTuple((5, 2, 3)), length)
        np.testing.assert_array_equal(cache.numpy(), init.numpy()[:kept])
        assert cache.capacity == 5
    cache = kv.create(None, init, ShapeTuple((0, 2, 3)))
    assert cache.capacity == 3
    kv.append(None, cache, rows(1))
    assert not np.shares_memory(cache._buffer, init.numpy())


def test_update_replaces_all_rows():
    cache = kv.append(None, new(4), rows(3))
    view = seen(cache)
    before, fresh = view.numpy().copy(), rows(3)
    assert kv.update(None, cache, fresh) is cache
    np.testing.assert_array_equal(cache.numpy(), fresh.numpy())
    np.testing.assert_array_equal(view.numpy(), before)
    with pytest.raises(VMValueError, match="wanted 3 rows, got 2"):
        kv.update(None, cache, rows(2))


@pytest.mark.parametrize("sinks", [0, 1, 3])
def test_a_window_holds_the_newest_rows_and_the_sinks(sinks):
    size = 5
    cache, model = new(1, 1), []
    at = sinks  # where a full window goes on, row by row
    for count in (1, 2, 1, 3, 1, 1, 12, 2, 0, 7):
        more = rows(count, 1)
        kv.override_window(None, cache, more, size, sinks)
        for value in more.numpy()[:, 0]:
            if len(model) < size:
                model.append(value)
            else:
                model[at] = value
                at = sinks + (at + 1 - sinks) % (size - sinks)
        np.testing.assert_array_equal(cache.numpy()[:, 0], np.array(model, "float32"))
        seen(cache)


def test_a_window_that_rolls_on_changes_no_view():
    cache = kv.override_window(None, new(4), rows(4), 4)
    view = seen(cache)
    before = view.numpy().copy()
    kv.override_window(None, cache, rows(2), 4)
    np.testing.assert_array_equal(view.numpy(), before)
    with pytest.raises(VMValueError, match="rolled on"):
        kv.append(None, cache, rows(1))
    with pytest.raises(VMValueError, match="rolled on"):
        kv.popn(cache, 1)
    kv.clear(cache)
    kv.append(None, cache, rows(1))


def test_arrays_of_caches_lose_rows_together():
    caches = tuple(kv.append(None, new(4), rows(3)) for _ in range(3))
    kv.array_popn(caches, 2)
    assert [len(c) for c in caches] == [1, 1, 1]
    kv.array_clear(caches)
    assert [len(c) for c in caches] == [0, 0, 0]


def test_a_copy_goes_its_own_way():
    cache = kv.append(None, new(4), rows(3))
    other = cache.copy()
    kv.append(None, cache, rows(1))
    kv.popn(other, 1)
    assert (len(cache), len(other)) == (4, 2)
    assert seen(other).numpy().ctypes.data % 64 == 0
    buffer = other._buffer
    kv.append(None, other, rows(1))
    assert other._buffer is buffer
    kv.popn(other, 1)
    np.testing.assert_array_equal(cache.numpy()[:2], other.numpy())


def test_bfloat16_rows_keep_their_bits():
    more = nd.array(np.array([[1.5, -2.25]], "float32"), dtype="bfloat16")
    cache = kv.create(None, more, ShapeTuple((4, 2)))
    kv.append(None, cache, more)
    np.testing.assert_array_equal(seen(cache).astype("float32").numpy(), [[1.5, -2.25]] * 2)


def test_wrong_rows_are_refused_and_nothing_is_changed():
    cache = kv.create(None, rows(1), ShapeTuple((4, 2, 3)), -1, "layers.0.keys")
    cases = (
        (None, VMTypeError, "wanted a tensor, got None"),
        (np.zeros((1, 2, 3), "float32"), VMTypeError, "wanted a tensor, got Tensor"),
        (rows(1, dtype="float64"), VMTypeError, "wanted dtype float32, got Tensor"),
        (rows(1, 3, 2), VMValueError, r"wanted rows of \(n, 2, 3\), got Tensor\(\(1, 3, 2\)"),
        (rows(2), None, ""),
        (nd.array(np.float32(1)), VMValueError, "wanted rows"),
    )
    for value, error, message in cases:
        before = len(cache)
        if error is None:
            kv.append(None, cache, value)
            continue
        with pytest.raises(error, match=message) as caught:
            kv.append(None, cache, value)
        assert "layers.0.keys: append" in str(caught.value)
        assert len(cache) == before


def test_a_view_of_another_length_is_refused():
    cache = kv.append(None, new(4, name="keys"), rows(3))
    for shape in ((4, 2, 3), (3, 2), (3, 3, 2), (0, 2, 3)):
        with pytest.raises(VMValueError, match=r"keys: view: wanted .* holds \(3, 2, 3\)"):
            kv.view(cache, ShapeTuple(shape))
    with pytest.raises(VMTypeError, match="wanted a shape, got int"):
        kv.view(cache, 3)


@pytest.mark.parametrize("name", sorted(n for n in TABLE if "attention_kv_cache" in n))
def test_every_builtin_refuses_what_is_no_cache(name):
    entry = TABLE[name]
    count = entry.min_args
    for wrong in (None, 7, "cache", (), ShapeTuple((1,)), rows(1), object(), (1, 2)):
        given = [wrong] * count
        if name.endswith(("array_clear", "array_popn")) and wrong == ():
            continue
        with pytest.raises((VMTypeError, VMValueError)):
            entry.function(*([None] if entry.account else []), *given)


def test_wrong_sizes_are_refused():
    cache = kv.append(None, new(4), rows(3))
    for count in (-1, 4, 1 << 70):
        with pytest.raises(VMValueError, match="wanted 0 to 3 rows"):
            kv.popn(cache, count)
    with pytest.raises(VMTypeError, match="wanted an int"):
        kv.popn(cache, 1.0)
    for size, sinks in ((0, 0), (-1, 0), (2, 2), (4, -1)):
        with pytest.raises(VMValueError, match="window_override: wanted a size"):
            kv.override_window(None, cache, rows(1), size, sinks)
    with pytest.raises(VMValueError, match="wanted at most 2 rows, there are 3"):
        kv.override_window(None, cache, rows(1), 2)
    with pytest.raises(VMValueError, match="wanted 0 to 1 rows, got 2"):
        kv.create(None, rows(1), ShapeTuple((4, 2, 3)), 2)
    with pytest.raises(VMValueError, match="one axis more"):
        kv.create(None, rows(1), ShapeTuple((4, 3, 2)))
    with pytest.raises(VMValueError, match="one axis more"):
        kv.create(None, nd.array(np.float32(0)), ShapeTuple(()))
    with pytest.raises(VMTypeError, match="wanted a shape"):
        kv.create(None, rows(1), (4, -2, 3))


def test_sizes_beyond_memory_are_a_limit_error():
    with pytest.raises((LimitError, VMValueError)):
        kv.create(None, rows(0, 1 << 20), ShapeTuple((1 << 39, 1 << 20)))


def test_growth_is_charged_to_the_run_and_refused_beyond_its_limit():
    account = Account(Limits(max_bytes=4096))
    cache = kv.create(account, rows(0), ShapeTuple((16, 2, 3)))  # 384 bytes
    kv.append(account, cache, rows(32))
    held = cache.nbytes
    assert account._live_bytes >= held
    with pytest.raises(LimitError, match="max_bytes=4096"):
        kv.append(account, cache, rows(1000))
    assert (len(cache), cache.nbytes) == (32, held)


def test_threads_append_whole_rows():
    cache = new(1, 64)

    def work(value):
        block = nd.array(np.full((3, 64), value, "float32"))
        for _ in range(50):
            kv.append(None, cache, block)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    made = cache.numpy().reshape(-1, 3, 64)
    assert len(cache) == 600
    assert (made == made[:, :1, :1]).all()
    assert sorted(made[:, 0, 0].tolist()) == sorted([0.0, 1.0, 2.0, 3.0] * 50)
