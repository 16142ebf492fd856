"""``python -m relaxvm.topi --markdown [FILE]``: docs/topi.md, the functions of this room."""

from __future__ import annotations

import argparse
import inspect
import pathlib
import sys
from collections.abc import Sequence
from types import ModuleType

import relaxvm.topi

_HEAD = """# topi

Functions from `te.Tensor`s to `te.Tensor`s, with TVM's names and arguments: the formulas that the
[operators](ops.md) of graphs legalise to. This file is made by `python -m relaxvm.topi --markdown`;
a test holds it up to date.

```python
A = te.placeholder((n, 16), name="A")
B = topi.nn.softmax(topi.add(A, 1.0))
func = relaxvm.build(te.create_prim_func([A, B]))
```

- Sizes that must be equal are written with the same symbol: what cannot be proved is refused.
- Elementwise operands of two dtypes are cast to the one that holds both; numbers take the tensor's.
- `fast_exp`, `fast_tanh`, `fast_erf`, `fast_softmax` are the exact functions, which are fast.
- `sort`, `argsort`, `topk` compare every two elements of an axis; graphs call a library for them.
"""


def as_markdown() -> str:
    """The page."""
    room = relaxvm.topi
    modules: list[ModuleType] = [room, room.nn, room.image, room.utils]
    lines = [_HEAD]
    for module in modules:
        lines += [
            f"## {module.__name__.removeprefix('relaxvm.')}\n",
            "| function | meaning |",
            "| --- | --- |",
        ]
        for name in sorted(module.__all__):
            value = getattr(module, name)
            names = [
                p.name if p.default is p.empty else f"{p.name}={p.default!r}"
                for p in inspect.signature(value).parameters.values()
            ]
            first = " ".join((value.__doc__ or "").partition("\n\n")[0].split()).replace("|", "\\|")
            lines.append(f"| `{name}({', '.join(names)})` | {first} |")
        lines.append("")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(prog="python -m relaxvm.topi", description=__doc__)
    parser.add_argument("--markdown", nargs="?", const="docs/topi.md", metavar="FILE")
    options = parser.parse_args(argv)
    if options.markdown is None:
        sys.stdout.write(as_markdown())
    else:
        pathlib.Path(options.markdown).write_text(as_markdown(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
