"""Documents inside shared libraries: what ``export_library("model.so")`` writes, and C with one
beside it: ``export_library("model.tar")`` of a build for the target "c".

The system's linker makes a library of the object code, for programs in C that open it themselves.
Behind its last byte follows the document that any other file name would have got, and a trailer
that says how long it is. Loading reads the document alone: no code of the library runs, and the
document's own signature says whether the machine code in it may.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base import LinkError, VMTypeError, VMValueError
from .constants import ALIGNMENT
from .files import DOCUMENT, trailer, write_atomically
from .kernel import KernelSection

ENDINGS = (".so", ".dylib", ".dll")
_LINKERS = ("cc", "gcc", "clang")
_OPTIONS = {"cc", "options", "workspace_dir", "addons"}


def export(
    path: str | os.PathLike[str],
    document: Iterable[Any],
    kernels: KernelSection | None,
    fcompile: Callable[..., object] | None = None,
    sources: Mapping[str, str] | None = None,
    **options: Any,
) -> None:
    """Write `document` to `path`, whole or not at all; as a shared library where the ending asks
    for one. With files in C, `path` may be a folder, or an archive that ends in ".tar": these files
    and the document, which `load_module` finds in either.

    kernels   whose object code makes the library; of several variants, the first
    sources   texts by format; `sources.files`, if there, are the files in C by name
    fcompile  called as ``fcompile(file, object_files, options=...)`` in place of the linker
    options   cc: the compiler driver that links; options: arguments for it, a list of texts;
              workspace_dir: where objects are written meanwhile; addons: more files to link

    Raises VMValueError for other options, LinkError if the linker fails. Without a linker, or
    without object code, warns and writes the document alone, which loads as well.
    """
    unknown = options.keys() - _OPTIONS
    if unknown:
        raise VMValueError(
            f"export_library: unknown options {', '.join(sorted(unknown))}; known: fcompile, "
            f"{', '.join(sorted(_OPTIONS))}"
        )
    if fcompile is not None and not callable(fcompile):
        raise VMTypeError(f"export_library: fcompile: wanted a function, got {fcompile!r}")
    name = os.fsdecode(path) if isinstance(path, (str, os.PathLike)) else ""
    files = getattr(sources, "files", None)
    if files and (name.endswith((".tar", "/", os.sep)) or os.path.isdir(name)):
        _write_files(name, {**{k: v.encode() for k, v in files.items()}, DOCUMENT: document})
        return
    if not name.endswith(ENDINGS):
        write_atomically(path, document)
        return
    objects = kernels.native[0].objects if kernels is not None and kernels.native else ()
    linker = options.get("cc") or next(filter(None, map(shutil.which, _LINKERS)), None)
    if not objects or (linker is None and fcompile is None):
        lack = "there is no object code for one" if not objects else "no C compiler was found"
        warnings.warn(
            f"export_library: {name} is not a shared library, as {lack}: it is a file for "
            "load_module, whatever its ending says",
            stacklevel=3,
        )
        write_atomically(path, document)
        return
    try:
        with tempfile.TemporaryDirectory(dir=options.get("workspace_dir")) as folder:
            library = _linked(folder, objects, linker, fcompile, options)
    except OSError as error:
        raise LinkError(f"export_library: {name}: {error}") from error
    write_atomically(path, _with_document(library, document))


def _write_files(name: str, files: Mapping[str, Any]) -> None:
    """A folder, or an archive, of these files; the same bytes each time."""
    contents = {k: v if isinstance(v, bytes) else b"".join(map(bytes, v)) for k, v in files.items()}
    if not name.endswith(".tar"):
        os.makedirs(name, exist_ok=True)
        for file, data in contents.items():
            write_atomically(os.path.join(name, file), [data])
        return
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for file, data in contents.items():
            entry = tarfile.TarInfo(file)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    write_atomically(name, [packed.getvalue()])


def _linked(
    folder: str,
    objects: Sequence[bytes],
    linker: str | None,
    fcompile: Callable[..., object] | None,
    options: dict[str, Any],
) -> bytes:
    files = [os.path.join(folder, f"kernels{k}.o") for k in range(len(objects))]
    for file, data in zip(files, objects):
        with open(file, "wb") as out:
            out.write(data)
    files += map(os.fspath, options.get("addons") or ())
    flags, result = list(options.get("options") or ()), os.path.join(folder, "library")
    if fcompile is not None:
        fcompile(result, files, options=flags)
    else:
        command = [str(linker), "-shared", "-o", result, *files, *flags]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise LinkError(
                f"export_library: {linker} could not link the objects: {run.stderr.strip()[:2000]}"
            )
    with open(result, "rb") as linked:
        return linked.read()


def _with_document(library: bytes, document: Iterable[Any]) -> Iterator[Any]:
    # The document begins where its constants can be mapped aligned.
    yield library + bytes(-len(library) % ALIGNMENT)
    size = 0
    for part in document:
        size += len(part)
        yield part
    yield trailer(size)
