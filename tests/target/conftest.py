"""What several tests of code generation need."""

from __future__ import annotations

import os

import pytest

from relaxvm.target.llvm import units


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, in which sources that somebody edits meanwhile do not count."""
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "cache"))
    os.makedirs(tmp_path / "cache", mode=0o700)
    monkeypatch.setattr(units, "fingerprint", lambda: "these sources")
    return tmp_path / "cache"
