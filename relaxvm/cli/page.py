"""One HTML page about a program: it needs no network and no script, and stays small to look at, as
what is long is folded away.

From a node of the model a link leads to its instruction, from there to its kernel, with the loop
function, its LLVM and its assembly.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..runtime import Executable, ShapeTuple, bytecode, instruction_text
from .console import size_text
from .stages import Stages, nodes_of_instructions

_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em }
table { border-collapse: collapse } td, th { padding: 1px 10px; text-align: left }
td.n { text-align: right } tr:nth-child(even), pre { background: #f4f4f4 }
pre { overflow-x: auto; max-height: 40em; padding: 6px } code, pre { font-size: 12px }
:target { outline: 2px solid #d80 } summary { cursor: pointer } svg { background: #f4f4f4 }
"""
_WIDE, _HIGH = 900, 260
_COLOURS = ("#69c", "#c96", "#6b8", "#b8b", "#bb6", "#8bb")
_MOST_TENSORS = 4000


def page(
    title: str,
    program: Executable,
    facts: Mapping[str, Any],
    stages: Stages,
    times: Mapping[tuple[str, int], float] | None = None,
) -> str:
    """The page.

    times  {(function, instruction): microseconds} of a profile
    """
    nodes = nodes_of_instructions(program, stages)
    section = program.kernels
    kernels = {info.name for info in (section.infos if section is not None else ())}
    parts = [_table(("", ""), [(_text(k), _text(v)) for k, v in facts.items()])]
    if nodes:
        parts += ["<h2>Nodes of the model</h2>", _nodes(program, nodes, times or {})]
    parts.append("<h2>Memory over time</h2>")
    parts += [_memory(program, info) for info in program.vm_functions]
    parts.append("<h2>Instructions</h2>")
    for info in program.vm_functions:
        rows = []
        for pc, each in enumerate(program.instructions(info)):
            text = _text(" ".join(instruction_text(program, each).split()))
            name = program.functions[each.func].name if isinstance(each, bytecode.Call) else ""
            if name in kernels:
                text = text.replace(_text(name), f'<a href="#{_anchor(name)}">{_text(name)}</a>', 1)
            took = (times or {}).get((info.name, pc))
            rows.append((f'<a id="{_place(info.name, pc)}">{pc}</a>', f"<code>{text}</code>",
                         "" if took is None else f"{took:.2f} us"))  # fmt: skip
        parts.append(_folded(info.signature(), _table(("at", "instruction", "time"), rows)))
    parts += ["<h2>Kernels</h2>", *_kernels(program, stages)]
    parts.append("<h2>The module at each stage of the build</h2>")
    parts += [_folded(name, _code(str(mod))) for name, mod in stages.modules.items()]
    if program.explain():
        parts += ["<h2>Decisions of passes</h2>", _folded("all", _code(str(program.explain())))]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head>\n<body><h1>{_text(title)}</h1>\n{body}\n</body></html>\n"
    )


def _text(value: Any) -> str:
    return html.escape(str(value))


def _anchor(kernel: str) -> str:
    return f"kernel-{_text(kernel)}"


def _place(function: str, pc: int) -> str:
    return f"at-{_text(function)}-{pc}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML."""
    lines = ["<table>", "<tr>" + "".join(f"<th>{_text(h)}</th>" for h in heads) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    return "\n".join([*lines, "</table>"])


def _folded(title: str, inner: str, anchor: str = "") -> str:
    name = f' id="{anchor}"' if anchor else ""
    return f"<details{name}><summary>{_text(title)}</summary>\n{inner}\n</details>"


def _code(text: str) -> str:
    return f"<pre>{_text(text)}</pre>"


def _nodes(program: Executable, nodes: Mapping[tuple[str, int], Any], times: Any) -> str:
    rows = []
    for (function, pc), names in nodes.items():
        each = program.instructions(program.function(function))[pc]
        assert isinstance(each, bytecode.Call)
        kernel, took = program.functions[each.func].name, times.get((function, pc))
        rows.append((
            _text(" + ".join(n.removeprefix("ONNX node ") for n in names)),
            f'<a href="#{_place(function, pc)}">{_text(function)}:{pc}</a>',
            f'<a href="#{_anchor(kernel)}">{_text(kernel)}</a>',
            "" if took is None else f"{took:.2f} us",
        ))  # fmt: skip
    return _table(("nodes", "instruction", "kernel", "time"), rows)


# -- kernels ---------------------------------------------------------------------------------------


def _kernels(program: Executable, stages: Stages) -> list[str]:
    loops: Any = stages.modules.get("packed", {})
    llvm, assembly = (_by_kernel(program, kind) for kind in ("llvm", "asm"))
    parts = []
    for info in program.kernels.infos if program.kernels is not None else ():
        inner = [_table(("parameter",), [(_text(p),) for p in info.params])]
        if info.name in loops:
            inner.append(_folded("loop function", _code(str(loops[info.name]))))
        for title, texts in (("LLVM", llvm), ("assembly", assembly)):
            if info.name in texts:
                inner.append(_folded(title, _code(texts[info.name])))
        parts.append(_folded(info.name, "\n".join(inner), _anchor(info.name)))
    return parts


_FUNCTIONS = {
    "llvm": re.compile(r"^define [^\n]*@relaxvm_inner_(\w+)\(.*?^}$", re.M | re.S),
    "asm": re.compile(r"^relaxvm_inner_(\w+):.*?^\.Lfunc_end", re.M | re.S),
}


def _by_kernel(program: Executable, kind: str) -> dict[str, str]:
    """The text of each kernel; none for a program from a file, which keeps no sources."""
    if kind not in program.sources:
        return {}
    return {m[1]: m[0] for m in _FUNCTIONS[kind].finditer(program.sources[kind])}


# -- memory ----------------------------------------------------------------------------------------


def _memory(program: Executable, info: Any) -> str:
    """A picture of storages above each other and the tensors in them from left to right in time."""
    instructions = program.instructions(info)
    tensors, height = _tensors(program, instructions)
    if not tensors or len(tensors) > _MOST_TENSORS:
        plan = program.memory_plan()[info.name]
        return f"<p>{_text(info.name)}: {len(plan.storages)} storages of sizes that calls say</p>"
    x, y = _WIDE / max(len(instructions), 1), _HIGH / height
    shapes = [
        f'<rect x="{begin * x:.1f}" y="{low * y:.1f}" width="{max((end - begin) * x, 1):.1f}" '
        f'height="{max(size * y, 1):.1f}" fill="{_COLOURS[i % len(_COLOURS)]}" stroke="#fff">'
        f"<title>%{register}: {size_text(size)}, instructions {begin} to {end}</title></rect>"
        for i, (register, begin, end, low, size) in enumerate(tensors)
    ]
    return (
        f"<p>{_text(info.name)}: {size_text(height)} in all, from left to right in time</p>\n"
        f'<svg width="{_WIDE}" height="{_HIGH}">{"".join(shapes)}</svg>'
    )


def _tensors(program: Executable, instructions: Sequence[Any]) -> tuple[list[Any], int]:
    """(register, from, to, offset, bytes) of the tensors in storages of known sizes, and the bytes
    of all storages; none if a size is not known.
    """
    bases: dict[int, int] = {}
    alive: dict[int, tuple[int, int, int]] = {}
    tensors, height = [], 0
    for pc, each in enumerate(instructions):
        name = program.functions[each.func].name if isinstance(each, bytecode.Call) else ""
        values = [_value(program, a) for a in each.args] if name.startswith("vm.builtin.") else []
        if name == "vm.builtin.alloc_storage":
            if not isinstance(values[0], ShapeTuple):
                return [], 0
            bases[each.dst] = height
            height += int(values[0][0])
        elif name == "vm.builtin.alloc_tensor":
            if not isinstance(values[2], ShapeTuple) or each.args[0].value not in bases:
                return [], 0
            size = int(values[3].itemsize)
            for extent in values[2]:
                size *= int(extent)
            alive[each.dst] = pc, bases[each.args[0].value] + int(values[1] or 0), size
        elif name == "vm.builtin.kill_object" and each.args[0].value in alive:
            begin, low, size = alive.pop(each.args[0].value)
            tensors.append((each.args[0].value, begin, pc, low, size))
    end = len(instructions)
    tensors += [(r, begin, end, low, size) for r, (begin, low, size) in alive.items()]
    return tensors, height


def _value(program: Executable, argument: bytecode.Arg) -> Any:
    if argument.kind == bytecode.ArgKind.CONSTANT:
        return program.constants[argument.value]
    return argument.value if argument.kind == bytecode.ArgKind.IMMEDIATE else None
