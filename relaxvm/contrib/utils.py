"""Folders for what a program writes meanwhile."""

from __future__ import annotations

import os
import tempfile


class TempDirectory:
    """A new folder, which goes with this object, or when the program ends.

    custom_path  the folder to use in place of a new one; it stays
    """

    def __init__(self, custom_path: str | None = None) -> None:
        self._folder = None if custom_path else tempfile.TemporaryDirectory()
        self.temp_dir = custom_path or (self._folder.name if self._folder else "")
        os.makedirs(self.temp_dir, exist_ok=True)

    @property
    def path(self) -> str:
        """Where it is."""
        return self.temp_dir

    def remove(self) -> None:
        """Remove the folder now."""
        if self._folder is not None:
            self._folder.cleanup()

    def __truediv__(self, name: str) -> str:
        return self.relpath(name)

    def relpath(self, name: str) -> str:
        """The path of a file in the folder."""
        return os.path.join(self.temp_dir, name)

    def listdir(self) -> list[str]:
        """The names of what is in it."""
        return os.listdir(self.temp_dir)

    def __enter__(self) -> TempDirectory:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def tempdir(custom_path: str | None = None) -> TempDirectory:
    """A new folder for files that nobody keeps."""
    return TempDirectory(custom_path)
