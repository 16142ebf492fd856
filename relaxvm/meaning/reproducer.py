"""Programs that show what differs."""

from __future__ import annotations

import itertools
import pathlib
import re
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import DataType, to_numpy_dtype
from ..ir import IRModule, save_json, structural_equal
from ..runtime import (
    NDArray,
    ShapeTuple,
    wrap_unchecked,
)
from ..script import from_source

_PROGRAM = '''"""{about}

Run this file: it ends with the difference.
"""

import numpy as np

from relaxvm import ir
from relaxvm.meaning import assert_same_meaning, array
from relaxvm.script import from_source

BEFORE = {before}
AFTER = {after}
INPUTS = [{inputs}]

if __name__ == "__main__":
    assert_same_meaning(BEFORE, AFTER, INPUTS, {function!r}, {numerics!r})
'''


def write_reproducer(
    folder: str | pathlib.Path | None,
    about: str,
    before: IRModule,
    after: IRModule | str,
    function: str,
    inputs: Sequence[Any],
    numerics: str,
) -> pathlib.Path | None:
    """A program that shows what differs; None if it cannot be written."""
    values = [f"    {_literal(x)},\n" for x in inputs]
    text = _PROGRAM.format(
        about=re.sub(r'\\|"""', " ", about),
        before=_module_text(before),
        after=repr(after) if isinstance(after, str) else _module_text(after),
        inputs=f"\n{''.join(values)}" if values else "",
        function=function,
        numerics=numerics,
    )
    try:
        path = pathlib.Path(folder or tempfile.mkdtemp(prefix="relaxvm-meaning-"))
        path.mkdir(parents=True, exist_ok=True)
        stem = re.sub(r"\W+", "_", f"{about.partition(' (')[0]}")[:60]
        file = next(
            f for n in itertools.count() if not (f := path / f"{stem}{n or ''}.py").exists()
        )
        file.write_text(text, encoding="utf-8")
    except OSError:
        return None
    return file


def _module_text(mod: IRModule) -> str:
    """An expression that gives the module again: its script if that says all."""
    text = mod.script(show_meta=True)
    try:
        whole = '"""' not in text and "\\" not in text and structural_equal(from_source(text), mod)
    except Exception:
        whole = False
    return f'from_source("""\n{text}\n""")' if whole else f"ir.load_json({save_json(mod)!r})"


def _literal(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return f"array({str(x.dtype)!r}, {list(x.shape)}, {x.tobytes().hex()!r})"
    if isinstance(x, NDArray):
        return f"array({str(x.dtype)!r}, {list(x.shape)}, {x.array.tobytes().hex()!r})"
    if type(x) in (tuple, list):
        return f"({''.join(f'{_literal(each)}, ' for each in x)})"
    return repr(tuple(x)) if isinstance(x, ShapeTuple) else repr(x)


def array(dtype: str, shape: Sequence[int], data: str) -> NDArray:
    """The array whose memory is `data`, in hexadecimal digits."""
    kind = DataType(dtype)
    memory = np.frombuffer(bytearray.fromhex(data), to_numpy_dtype(kind))
    return wrap_unchecked(memory.reshape(shape), kind)
