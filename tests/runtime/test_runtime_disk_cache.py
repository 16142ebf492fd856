"""DiskCache: entries survive, damage does not count, the size is bounded."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import time

import pytest

from relaxvm.base import digest_of
from relaxvm.runtime.disk_cache import DiskCache


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "cache"))
    os.makedirs(tmp_path / "cache", mode=0o700)
    return DiskCache("kernels", 1 << 20)


def test_what_was_put_is_found_again(cache):
    assert cache.get(b"key") is None
    cache.put(b"key", b"content")
    cache.put(b"empty", b"")
    assert cache.get(b"key") == b"content"
    assert cache.get(b"empty") == b""
    assert DiskCache("kernels", 1 << 20).get(b"key") == b"content"
    assert DiskCache("others", 1 << 20).get(b"key") is None
    cache.put(b"key", b"newer")
    assert cache.get(b"key") == b"newer"


@pytest.mark.parametrize("how", ["cut", "flip", "empty", "swap", "folder"])
def test_a_damaged_entry_is_no_entry(cache, how):
    cache.put(b"key", b"content" * 10)
    cache.put(b"other", b"another")
    path, other = cache._path(digest_of(b"key")), cache._path(digest_of(b"other"))
    whole = path.read_bytes()
    if how == "cut":
        path.write_bytes(whole[:-1])
    elif how == "flip":
        path.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "swap":
        # An entry that is whole, but of another key.
        path.write_bytes(other.read_bytes())
    else:
        path.unlink()
        path.mkdir()
    assert cache.get(b"key") is None
    cache.put(b"key", b"again")
    if how != "folder":
        assert cache.get(b"key") == b"again"


def test_the_oldest_entries_go_when_it_is_full(tmp_path, monkeypatch):
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path))
    os.chmod(tmp_path, 0o700)
    cache = DiskCache("small", 100_000)
    for i in range(20):
        cache.put(b"%d" % i, bytes(10_000))
        os.utime(cache._path(digest_of(b"%d" % i)), (1000 + i, 1000 + i))
    os.utime(cache._path(digest_of(b"0")), (5000, 5000))
    cache.prune()
    held = [i for i in range(20) if cache.get(b"%d" % i) is not None]
    assert 0 in held
    assert held[1:] == list(range(20 - len(held) + 1, 20))
    assert sum(f.stat().st_size for f in cache.folder.iterdir()) <= 100_000
    cache.put(b"huge", bytes(90_000))
    assert cache.get(b"huge") is None
    cache.clear()
    assert list(cache.folder.iterdir()) == []


def test_drafts_left_behind_are_removed(cache):
    cache.put(b"key", b"content")
    draft = cache.folder / f".{'0' * 40}.entry.123.{'f' * 16}"
    draft.write_bytes(b"half")
    os.utime(draft, (1, 1))
    cache.prune()
    assert not draft.exists()
    assert cache.get(b"key") == b"content"


def _hammer(folder, seed):
    os.environ["RELAXVM_CACHE_DIR"] = folder
    cache = DiskCache("kernels", 1 << 20)
    for i in range(200):
        content = bytes([i % 251]) * (100 + 37 * seed)
        cache.put(b"%d" % (i % 7), content)
        found = cache.get(b"%d" % (i % 7))
        assert found is None or len(set(found)) == 1


def test_many_writers_never_show_a_torn_entry(cache):
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_hammer, args=(str(cache.folder.parent), i)) for i in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]


def test_a_pipe_or_a_huge_file_is_no_entry(cache):
    cache.put(b"key", b"content")
    path = cache._path(digest_of(b"key"))
    path.unlink()
    os.mkfifo(path)
    assert cache.get(b"key") is None
    path.unlink()
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    assert cache.get(b"key") is None
    cache.put(b"key", b"content")
    assert cache.get(b"key") == b"content"


def test_it_can_be_turned_off(cache, monkeypatch):
    cache.put(b"key", b"content")
    monkeypatch.setenv("RELAXVM_CACHE", "0")
    assert cache.get(b"key") is None
    cache.put(b"other", b"content")
    monkeypatch.setenv("RELAXVM_CACHE", "1")
    assert cache.get(b"key") == b"content"
    assert cache.get(b"other") is None


def test_a_read_only_folder_is_read_and_a_full_disk_keeps_nothing(cache, monkeypatch):
    cache.put(b"key", b"content")

    def refuse(*args, **options):
        raise OSError(errno.ENOSPC, "no space left on device")

    # The user of the tests may be root, whom permissions do not stop.
    monkeypatch.setattr("os.utime", refuse)
    monkeypatch.setattr("os.replace", refuse)
    assert cache.get(b"key") == b"content"
    cache.put(b"other", b"content")
    assert cache.get(b"other") is None
    monkeypatch.setattr("pathlib.Path.write_bytes", refuse)
    cache.put(b"other", b"content")
    assert [p.suffix for p in cache.folder.iterdir()] == [".entry"]


def test_a_folder_that_vanishes_is_made_again(cache):
    cache.put(b"key", b"content")
    shutil.rmtree(cache.folder)
    assert cache.get(b"key") is None
    cache.put(b"key", b"content")
    assert cache.get(b"key") == b"content"


def test_where_nothing_can_be_kept_it_is_silent(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(blocked))
    cache = DiskCache("kernels", 1 << 20)
    cache.put(b"key", b"content")
    cache.prune()
    cache.clear()
    assert cache.get(b"key") is None


def test_files_of_others_in_the_folder_stay(tmp_path, monkeypatch):
    # Somebody keeps what is theirs where the cache would be.
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path))
    os.chmod(tmp_path, 0o700)
    cache = DiskCache("objects", 1000)
    cache.put(b"key", b"content")
    theirs = [cache.folder / name for name in ("thesis.txt", "a.entry", ".x.entry.1", "0" * 40)]
    for file in theirs:
        file.write_bytes(bytes(2000))
        os.utime(file, (1, 1))
    cache.prune()
    cache.clear()
    assert sorted(cache.folder.iterdir()) == sorted(theirs)


def test_times_to_come_are_no_merit(tmp_path, monkeypatch):
    # The clock went back: what was used "next year" must not drive out what is used now.
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path))
    os.chmod(tmp_path, 0o700)
    cache = DiskCache("small", 100_000)
    later = time.time() + 1e7
    for i in range(9):
        cache.put(b"%d" % i, bytes(10_000))
        os.utime(cache._path(digest_of(b"%d" % i)), (later, later))
    for i in range(9, 30):
        cache.put(b"%d" % i, bytes(10_000))
        cache.prune()
        assert sum(f.stat().st_size for f in cache.folder.iterdir()) <= 100_000
    held = [i for i in range(30) if cache.get(b"%d" % i) is not None]
    # All are used "now" for a folder full of files from the future; what comes after them counts.
    assert held


@pytest.mark.skipif(os.name != "posix", reason="how homes are found is the system's")
@pytest.mark.parametrize("home", [None, "relative"])
def test_a_user_without_a_home_can_build(tmp_path, monkeypatch, home):
    def nobody(*args):
        raise KeyError("no such user")

    monkeypatch.delenv("RELAXVM_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    if home is None:
        monkeypatch.delenv("HOME", raising=False)
    else:
        monkeypatch.setenv("HOME", home)
    cache = DiskCache("kernels", 1 << 20)
    assert cache.folder.is_relative_to(tmp_path / f"relaxvm-{os.getuid()}")
    assert cache.get(b"key") is None
    cache.put(b"key", b"content")
    assert cache.get(b"key") == b"content"


def test_a_relative_folder_of_the_system_is_not_one(monkeypatch):
    monkeypatch.delenv("RELAXVM_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert DiskCache("kernels", 1 << 20).folder.is_absolute()


@pytest.mark.slow
def test_a_writer_killed_in_the_middle_leaves_no_entry(cache):
    context = multiprocessing.get_context("spawn")
    for pause in (0.0, 0.02, 0.05):
        writer = context.Process(target=_write_for_ever, args=(str(cache.folder.parent),))
        writer.start()
        while not cache.folder.exists():
            time.sleep(0.01)
        time.sleep(pause)
        writer.kill()
        writer.join()
        found = cache.get(b"key")
        assert found is None or (len(found) == 200_000 and len(set(found)) == 1)
        shutil.rmtree(cache.folder)


def _write_for_ever(folder):
    os.environ["RELAXVM_CACHE_DIR"] = folder
    cache, i = DiskCache("kernels", 1 << 20), 0
    while True:
        cache.put(b"key", bytes([i % 251]) * 200_000)
        i += 1
