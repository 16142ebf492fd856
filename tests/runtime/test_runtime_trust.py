from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from relaxvm.runtime import trust
from relaxvm.runtime.trust import sign, vouches


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache folder, not yet made."""
    path = tmp_path / "cache" / "relaxvm"
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(path))
    monkeypatch.setattr(trust, "_keys", {})
    return path


def forget():
    trust._keys.clear()


def test_what_this_machine_signed_is_vouched_for(folder):
    signature = sign(b"data")
    assert len(signature) == 32
    assert vouches(b"data", signature)
    forget()
    assert vouches(b"data", signature)
    assert sign(b"data") == signature


def test_nothing_else_is_vouched_for(folder):
    signature = sign(b"data")
    assert not vouches(b"datb", signature)
    assert not vouches(b"data", bytes(32))
    for wrong in (
        None,
        b"",
        signature[:-1],
        signature + b"x",
        signature.hex(),
        5,
        bytearray(signature),
    ):
        assert not vouches(b"data", wrong)


def test_another_key_does_not_vouch(folder, tmp_path, monkeypatch):
    signature = sign(b"data")
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "other"))
    assert not vouches(b"data", signature)
    assert sign(b"data") != signature


def test_looking_at_a_signature_makes_no_key(folder):
    assert not vouches(b"data", bytes(32))
    assert not folder.exists()


def test_the_key_is_for_the_user_alone(folder):
    sign(b"")
    path = folder / "trust.key"
    assert path.stat().st_size == 32
    assert [p.name for p in folder.iterdir()] == ["trust.key"]
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602])
def test_a_key_that_others_may_read_or_write_is_not_used(folder, mode):
    signature = sign(b"data")
    forget()
    (folder / "trust.key").chmod(mode)
    assert not vouches(b"data", signature)
    assert sign(b"data") is None


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
def test_a_key_in_a_folder_that_others_may_write_is_not_used(folder):
    signature = sign(b"data")
    forget()
    folder.chmod(0o777)
    assert not vouches(b"data", signature)


@pytest.mark.skipif(os.name != "posix", reason="owners are POSIX's")
def test_a_key_of_another_user_is_not_used(folder, monkeypatch):
    signature = sign(b"data")
    forget()
    mine = os.getuid()
    monkeypatch.setattr(trust.os, "getuid", lambda: mine + 1)
    assert not vouches(b"data", signature)
    assert sign(b"data") is None


@pytest.mark.skipif(os.name != "posix", reason="symbolic links")
def test_a_key_behind_a_symbolic_link_is_not_used(folder, tmp_path):
    folder.mkdir(parents=True)
    (tmp_path / "elsewhere").write_bytes(bytes(32))
    (tmp_path / "elsewhere").chmod(0o600)
    (folder / "trust.key").symlink_to(tmp_path / "elsewhere")
    assert sign(b"data") is None


@pytest.mark.parametrize("content", [b"", b"short", bytes(33)])
def test_a_key_file_of_another_size_is_not_used(folder, content):
    folder.mkdir(parents=True)
    (folder / "trust.key").write_bytes(content)
    (folder / "trust.key").chmod(0o600)
    assert sign(b"data") is None
    assert (folder / "trust.key").read_bytes() == content


def test_a_folder_that_cannot_be_used_means_no_key(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(trust, "_keys", {})
    assert sign(b"data") is None
    assert not vouches(b"data", bytes(32))


def test_without_hard_links_the_key_is_still_made(folder, monkeypatch):
    def refuse(*args):
        raise PermissionError("no links here")

    monkeypatch.setattr(trust.os, "link", refuse)
    signature = sign(b"data")
    forget()
    assert vouches(b"data", signature)
    assert [p.name for p in folder.iterdir()] == ["trust.key"]


def test_of_many_processes_all_use_one_key(folder):
    code = "from relaxvm.runtime.trust import sign; print(sign(b'data').hex())"
    runs = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    signatures = {run.communicate()[0] for run in runs}
    assert all(run.returncode == 0 for run in runs)
    assert len(signatures) == 1
