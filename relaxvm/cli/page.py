"""One HTML page about a program, which needs no network and stays usable for thousands of nodes.

A node of the model leads to its bindings, its instructions and its kernel; a kernel to its loop
function, LLVM and assembly; an instruction to both, and each of them back. With a profile there are
times beside them, and a flame graph. Without its script the page is the same, but that it does not
filter and sort, and that long texts stay packed where there are many.
"""

from __future__ import annotations

import base64
import collections
import html
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base import UNKNOWN, NamedTuple
from ..runtime import (
    TABLE,
    Builtins,
    Executable,
    ProfileReport,
    ProfileRow,
    ShapeTuple,
    bytecode,
    instruction_text,
)
from .console import size_text
from .stages import Stages, nodes_of_instructions

# Texts that lie in the page as they are; those beyond are packed.
_PLAIN_CHARACTERS = 1_500_000
_LONGEST_BINDING = 300
# The printer says so behind an expression with constants that are too long for it.
_METADATA = "# Metadata omitted"
_WIDE, _HIGH, _LEFT, _BOTTOM = 1200, 320, 76, 34
_ROW, _LETTER = 18, 6.2
_DEEPEST, _NARROWEST = 24, 0.5
_COLOURS = 6
_MOST_TENSORS = 4000


class _Call(NamedTuple):
    """An instruction that computes something: a call of a kernel or of a function from outside."""

    function: str
    pc: int
    callee: str
    nodes: tuple[str, ...]
    row: ProfileRow | None


def page(
    title: str,
    program: Executable,
    facts: Mapping[str, Any],
    stages: Stages,
    report: ProfileReport | None = None,
) -> str:
    """The page.

    facts   {what: text}, at its top
    report  times of a run
    """
    whole = _Page(program, stages, report)
    overview = _table(("", ""), [(_text(k), _text(v)) for k, v in facts.items()])
    parts = (
        ("Overview", "", overview),
        ("Time", " in a run", whole.flames()),
        ("Nodes", " of the model", whole.nodes()),
        ("Kernels", "", whole.kernels()),
        ("Memory", " over time", whole.memory()),
        ("Instructions", "", whole.instructions()),
        ("Stages", " of the build", whole.stages()),
        ("Decisions", " of passes", whole.decisions()),
    )
    body = "\n".join(
        f'<section id="{name.lower()}"><h2>{name}{more}</h2>\n{inner}\n</section>'
        for name, more, inner in parts
        if inner
    )
    links = "\n".join(f'<a href="#{name.lower()}">{name}</a>' for name, _, inner in parts if inner)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{_text(title)}</title>\n<style>\n{_file('page.css')}</style></head>\n<body>\n"
        f"<header><h1>{_text(title)}</h1>\n<nav>{links}</nav></header>\n{body}\n"
        f"<script>\n{_file('page.js')}</script>\n</body></html>\n"
    )


def _file(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


class _Page:
    """What the parts of the page share: who calls what for which node, and anchors of each."""

    def __init__(self, program: Executable, stages: Stages, report: ProfileReport | None) -> None:
        self._program, self._stages, self._report = program, stages, report
        self._room = _PLAIN_CHARACTERS
        section = program.kernels
        self._infos = () if section is None else section.infos
        self._kernel_ids = {info.name: f"k{i}" for i, info in enumerate(self._infos)}
        self._function_ids = {info.name: f"f{i}" for i, info in enumerate(program.vm_functions)}
        rows = {(r.function, r.instruction): r for r in report.instructions} if report else {}
        sources = nodes_of_instructions(program)
        self._calls: dict[tuple[str, int], _Call] = {}
        for info in program.vm_functions:
            for pc, each in enumerate(program.instructions(info)):
                if isinstance(each, bytecode.Call):
                    callee, place = program.functions[each.func].name, (info.name, pc)
                    if callee in self._kernel_ids or place in sources:
                        self._calls[place] = _Call(
                            *place, callee, sources.get(place, ()), rows.get(place)
                        )
        self._rows = rows
        self._bindings = _bindings(stages)
        named = [n for call in self._calls.values() for n in call.nodes]
        self._node_ids = {
            n: f"n{i}" for i, n in enumerate(dict.fromkeys([*self._bindings, *named]))
        }
        self._calls_of_nodes: dict[str, list[_Call]] = collections.defaultdict(list)
        self._calls_of_kernels: dict[str, list[_Call]] = collections.defaultdict(list)
        for call in self._calls.values():
            self._calls_of_kernels[call.callee].append(call)
            for name in dict.fromkeys(call.nodes):
                self._calls_of_nodes[name].append(call)

    # -- links ------------------------------------------------------------------------------------

    def _place(self, function: str, pc: int) -> str:
        return f"{self._function_ids[function]}-{pc}"

    def _link_of(self, call: _Call) -> str:
        where = self._place(call.function, call.pc)
        return f'<a href="#{where}">{_text(call.function)}:{call.pc}</a>'

    def _kernel_link(self, name: str) -> str:
        anchor = self._kernel_ids.get(name)
        return _text(name) if anchor is None else f'<a href="#{anchor}">{_text(name)}</a>'

    def _node_links(self, names: Iterable[str]) -> str:
        return " + ".join(f'<a href="#{self._node_ids[n]}">{_text(_short(n))}</a>' for n in names)

    def _code(self, text: str) -> str:
        """A text; packed where the page would grow too long."""
        self._room -= len(text)
        if self._room >= 0:
            return f"<pre>{_text(text)}</pre>"
        packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
        return f'<pre data-z="{packed}">packed: a browser that runs scripts shows it</pre>'

    # -- nodes ------------------------------------------------------------------------------------

    def nodes(self) -> str:
        """A row for each node of the model."""
        if not self._node_ids:
            return ""
        heads = ["node", "in the graph", "instruction", "kernel"]
        if self._report:
            heads += ["us", "share", "of roof"]
        rows = []
        for name, anchor in self._node_ids.items():
            calls = self._calls_of_nodes.get(name, [])
            shown = "<br>".join(f"<code>{_text(b)}</code>" for b in self._bindings.get(name, ()))
            kernels = dict.fromkeys(call.callee for call in calls)
            row = [
                f'<span id="{anchor}">{_text(_short(name))}</span>',
                shown,
                "<br>".join(map(self._link_of, calls)) or "none of its own",
                "<br>".join(map(self._kernel_link, kernels)),
            ]
            rows.append([*row, *self._times([call.row for call in calls])])
        note = "The time of an instruction that computes several nodes stands at each of them."
        return (f'<p class="dim">{note}</p>' if self._report else "") + _sorted(
            heads, rows, numbers=3 if self._report else 0
        )

    def _times(self, rows: Sequence[ProfileRow | None]) -> list[str]:
        """The cells of a profile: microseconds, share, share of the roof."""
        if self._report is None:
            return []
        total = sum(row.total_ns for row in rows if row)
        roofs = [(row.roof_share * row.total_ns, row.total_ns) for row in rows
                 if row and row.roof_share is not None]  # fmt: skip
        spent = sum(ns for _, ns in roofs)
        share = 100 * total / max(self._report.calls_ns, 1)
        return [
            f"{total / 1e3:.2f}" if total else "",
            f"{share:.1f}%" if total else "",
            f"{100 * sum(least for least, _ in roofs) / spent:.1f}%" if spent else "",
        ]

    # -- kernels ----------------------------------------------------------------------------------

    def kernels(self) -> str:
        """A table of all kernels, and what there is of each, folded."""
        if not self._infos:
            return ""
        rows, folded = [], []
        loops: Any = self._stages.modules.get("packed", {})
        llvm, assembly = (_by_kernel(self._program, kind) for kind in ("llvm", "asm"))
        for info in self._infos:
            calls = self._calls_of_kernels.get(info.name, [])
            row = [self._kernel_link(info.name), str(len(calls))]
            times = [call.row for call in calls]
            if self._report:
                row += [*self._times(times), *_rates([r for r in times if r])]
            rows.append(row)
            computes = [
                (self._link_of(c), self._node_links(c.nodes), *self._times([c.row])[:1])
                for c in calls
            ]
            inner = [_table(("called at", "for", "us")[: 3 if self._report else 2], computes)]
            inner.append(
                _table(("parameters",), [(f"<code>{_text(p)}</code>",) for p in info.params])
            )
            texts = {"loop function": str(loops[info.name]) if info.name in loops else ""}
            texts |= {"LLVM": llvm.get(info.name, ""), "assembly": assembly.get(info.name, "")}
            inner += [_folded(k, self._code(text)) for k, text in texts.items() if text]
            names = " ".join([info.name, *(n for call in calls for n in call.nodes)])
            folded.append(
                f'<details class="kernel" id="{self._kernel_ids[info.name]}" data-name="'
                f'{_text(names)}"><summary>{_text(info.name)}</summary>\n'
                + "\n".join(inner) + "</details>"
            )  # fmt: skip
        heads = ["kernel", "calls"]
        if self._report:
            heads += ["us", "share", "of roof", "GB/s", "GFLOP/s"]
        roof = f'<p class="dim">roof: {_text(self._report.roof)}</p>' if self._report else ""
        return roof + _sorted(heads, rows, numbers=len(heads) - 1) + "\n" + "\n".join(folded)

    # -- instructions, stages, decisions ----------------------------------------------------------

    def instructions(self) -> str:
        """The instructions of each function, folded."""
        program, parts = self._program, []
        heads = ["at", "instruction", "for", *(["us"] if self._report else [])]
        for info in program.vm_functions:
            rows = []
            for pc, each in enumerate(program.instructions(info)):
                text = _text(" ".join(instruction_text(program, each).split()))
                call = self._calls.get((info.name, pc))
                if call is not None and call.callee in self._kernel_ids:
                    linked = self._kernel_link(call.callee)
                    text = text.replace(_text(call.callee), linked, 1)
                row = [
                    f'<span id="{self._place(info.name, pc)}">{pc}</span>',
                    f"<code>{text}</code>",
                    self._node_links(call.nodes) if call else "",
                ]
                rows.append([*row, *self._times([self._rows.get((info.name, pc))])[:1]])
            table = _sorted(heads, rows, numbers=1 if self._report else 0)
            parts.append(_folded(info.signature(), table))
        return "\n".join(parts)

    def stages(self) -> str:
        """The module at each stage, folded."""
        return "\n".join(
            _folded(name, self._code(str(mod))) for name, mod in self._stages.modules.items()
        )

    def decisions(self) -> str:
        """What passes did, folded."""
        decisions = self._program.explain()
        return _folded("all", self._code(str(decisions))) if decisions else ""

    # -- pictures ---------------------------------------------------------------------------------

    def flames(self) -> str:
        """The time of all calls from left to right; under each other the parts of nodes' names."""
        if self._report is None:
            return ""
        root = _Flame("")
        for row in self._report.instructions:
            call = self._calls.get((row.function, row.instruction))
            nodes = call.nodes if call is not None else ()
            scopes = _scopes(nodes) if nodes else ["no node of the model"]
            root.add([row.function, *scopes], row, self._place(row.function, row.instruction))
        boxes = list(root.boxes(_WIDE / max(root.total_ns, 1)))
        high = (1 + max((depth for _, depth, *_ in boxes), default=0)) * _ROW
        shapes = []
        for x, depth, wide, flame in boxes:
            y = depth * _ROW
            share = 100 * flame.total_ns / max(root.total_ns, 1)
            about = f"{flame.name}: {flame.total_ns / 1e3:.2f} us, {share:.1f}%"
            label = flame.name[: int((wide - 6) / _LETTER)] if wide > 3 * _LETTER else ""
            shapes.append(
                f'<a{_href(flame.anchor)}><rect class="c{_colour(flame.name)}" x="{x:.1f}" '
                f'y="{y}" width="{wide:.1f}" height="{_ROW}"><title>{_text(about)}</title></rect>'
                + (f'<text x="{x + 3:.1f}" y="{y + 13}">{_text(label)}</text>' if label else "")
                + "</a>"
            )
        about = (
            f"{root.total_ns / 1e3:.1f} us in calls of the fastest run, one thread. "
            "A box leads to its instruction."
        )
        return f'<p class="dim">{about}</p>\n{_svg(_WIDE, high, shapes)}'

    def memory(self) -> str:
        """For each function a picture of its storages; where sizes are not known, a table."""
        parts = []
        plans = self._program.memory_plan()
        for info in self._program.vm_functions:
            instructions = self._program.instructions(info)
            tensors, height = _tensors(self._program, instructions)
            if tensors and len(tensors) <= _MOST_TENSORS:
                parts.append(
                    f'<p class="dim">{_text(info.name)}: {size_text(height)} for values between '
                    "instructions</p>\n" + self._lifetimes(info.name, tensors, height)
                )
                continue
            rows = [
                (f'<a href="#{self._place(info.name, s.instruction)}">{s.instruction}</a>',
                 _text(size_text(s.size_bytes)), _text(", ".join(map(str, s.tensors))))
                for s in plans[info.name].storages
            ]  # fmt: skip
            if rows:
                parts.append(
                    f'<p class="dim">{_text(info.name)}: sizes that calls decide</p>\n'
                    + _sorted(("at", "bytes", "tensors that share it"), rows)
                )
        return "\n".join(parts)

    def _lifetimes(self, function: str, tensors: Sequence[Any], height: int) -> str:
        """Storages above each other, and the tensors in them from left to right in time."""
        end = max(end for _, _, end, _, _ in tensors)
        x, y = (_WIDE - _LEFT - 8) / max(end, 1), (_HIGH - _BOTTOM - 8) / height
        base = _HIGH - _BOTTOM
        shapes = []
        for tick in _ticks(height, 5):
            level = base - tick * y
            shapes.append(
                f'<line x1="{_LEFT}" x2="{_WIDE - 8}" y1="{level:.1f}" y2="{level:.1f}"/>'
                f'<text x="{_LEFT - 6}" y="{level + 4:.1f}" text-anchor="end">'
                f"{size_text(tick)}</text>"
            )
        for tick in _ticks(end, 10):
            shapes.append(
                f'<text x="{_LEFT + tick * x:.1f}" y="{base + 14}" text-anchor="middle">{tick}'
                "</text>"
            )
        shapes.append(
            f'<text class="dim" x="{(_LEFT + _WIDE) / 2}" y="{_HIGH - 4}" text-anchor="middle">'
            "instruction</text>"
        )
        for register, begin, until, low, size in tensors:
            about = f"%{register}: {size_text(size)}, instructions {begin} to {until}"
            shapes.append(
                f'<a{_href(self._place(function, begin))}><rect class="c{register % _COLOURS}" '
                f'x="{_LEFT + begin * x:.1f}" y="{base - (low + size) * y:.1f}" '
                f'width="{max((until - begin) * x, 1):.1f}" height="{max(size * y, 1):.1f}">'
                f"<title>{_text(about)}</title></rect></a>"
            )
        return _svg(_WIDE, _HIGH, shapes)


# -- HTML ------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    return html.escape(str(value))


def _short(node: str) -> str:
    return node.removeprefix("ONNX node ")


def _href(anchor: str) -> str:
    return f' href="#{anchor}"' if anchor else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """Cells are HTML; the last `numbers` columns are numbers."""
    text = len(heads) - numbers

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}>{c}</{tag}>" if i < text else f'<{tag} class="n">{c}</{tag}>'
            for i, c in enumerate(row)
        )

    head = f"<thead><tr>{cells('th', heads)}</tr></thead>\n" if any(heads) else ""
    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table>{head}<tbody>\n{body}\n</tbody></table>"


def _sorted(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A long table, which the script sorts and filters."""
    table = _table(heads, rows, numbers).replace("<table>", '<table class="sorts">', 1)
    return f'<div class="scroll">{table}</div>'


def _folded(title: str, inner: str) -> str:
    return f"<details><summary>{_text(title)}</summary>\n{inner}\n</details>"


def _svg(wide: int, high: int, shapes: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {wide} {high}" role="img">\n{chr(10).join(shapes)}\n</svg>'


def _ticks(most: int, count: int) -> list[int]:
    """Round numbers from 0 on, about `count` of them."""
    step = 1
    while most / step > count:
        # 1, 2, 5, 10, ...
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return list(range(0, most + 1, step))


def _colour(name: str) -> int:
    return zlib.crc32(name.encode()) % _COLOURS


# -- what is in it ---------------------------------------------------------------------------------


def _bindings(stages: Stages) -> dict[str, list[str]]:
    """{node: bindings of the graph that it became}, before any pass."""
    bindings: dict[str, list[str]] = {}
    mod: Any = stages.modules.get("graph")
    for function in mod.functions.values() if mod is not None else ():
        for binding in _bindings_in(getattr(function, "body", None)):
            span = getattr(binding.value, "span", UNKNOWN)
            text = f"{binding.var.name_hint} = {binding.value}".partition(_METADATA)[0]
            if len(text) > _LONGEST_BINDING:
                text = f"{text[:_LONGEST_BINDING]} ..."
            for part in (span.parts or (span,)) if span is not UNKNOWN else ():
                bindings.setdefault(str(part), []).append(text)
    return bindings


def _bindings_in(body: Any) -> Iterator[Any]:
    for block in getattr(body, "blocks", ()):
        for binding in block.bindings:
            yield binding
            for branch in ("true_branch", "false_branch"):
                yield from _bindings_in(getattr(binding.value, branch, None))


_FUNCTIONS = {
    "llvm": re.compile(r"^define [^\n]*@relaxvm_inner_(\w+)[.\w]*\(.*?^}$", re.M | re.S),
    "asm": re.compile(r"^relaxvm_inner_(\w+)[.\w]*:.*?^\.Lfunc_end", re.M | re.S),
}


def _by_kernel(program: Executable, kind: str) -> dict[str, str]:
    """The text of each kernel, the bodies of its parallel loops too; none for a program from a
    file, which keeps no sources.
    """
    texts: dict[str, str] = {}
    if kind in program.sources:
        for match in _FUNCTIONS[kind].finditer(program.sources[kind]):
            texts[match[1]] = f"{texts.get(match[1], '')}{match[0]}\n\n"
    return texts


def _rates(rows: Sequence[ProfileRow]) -> list[str]:
    """GB/s and GFLOP/s of calls."""
    cells = []
    for amounts in ([r.size_bytes for r in rows], [r.flops for r in rows]):
        known = [(a, r.total_ns) for a, r in zip(amounts, rows) if a is not None]
        spent = sum(ns for _, ns in known)
        cells.append(f"{sum(a for a, _ in known) / spent:.2f}" if spent else "")
    return cells


def _scopes(nodes: Sequence[str]) -> list[str]:
    """The parts that the names of nodes begin with, all the same."""
    paths = [re.split(r"[/]+", _short(n).strip("/")) for n in nodes]
    scopes = []
    for parts in zip(*(path[:-1] for path in paths)):
        if len(set(parts)) > 1:
            break
        scopes.append(parts[0])
    return [*scopes, " + ".join(path[-1] for path in paths)]


class _Flame:
    """A box of the flame graph and those under it, in the order in which they ran first."""

    def __init__(self, name: str) -> None:
        self.name, self.anchor, self.total_ns = name, "", 0
        self._inner: dict[str, _Flame] = {}

    def add(self, path: Sequence[str], row: ProfileRow, anchor: str) -> None:
        """The time of an instruction."""
        flame = self
        flame.total_ns += row.total_ns
        for name in [*path, row.short_name]:
            flame = flame._inner.setdefault(name, _Flame(name))
            flame.total_ns += row.total_ns
        flame.anchor = flame.anchor or anchor

    def boxes(self, scale: float) -> Iterator[tuple[float, int, float, _Flame]]:
        """(x, depth, width, box) of all inside that can be seen."""
        level = [(0.0, self)]
        for depth in range(_DEEPEST):
            below = []
            for x, flame in level:
                for inner in flame._inner.values():
                    wide = inner.total_ns * scale
                    if wide >= _NARROWEST:
                        yield x, depth, wide, inner
                        below.append((x, inner))
                    x += wide
            level = below


# -- memory ----------------------------------------------------------------------------------------


def _tensors(program: Executable, instructions: Sequence[Any]) -> tuple[list[Any], int]:
    """(register, from, to, offset, bytes) of the tensors in storages of known sizes, and the bytes
    of all storages; none if a size is not known.
    """
    bases: dict[int, int] = {}
    alive: dict[int, tuple[int, int, int]] = {}
    tensors, height = [], 0
    for pc, each in enumerate(instructions):
        if not isinstance(each, bytecode.Call):
            continue
        row = TABLE.get(program.functions[each.func].name)
        values = [_value(program, a) for a in each.args]
        if row is Builtins.ALLOC_STORAGE:
            if not isinstance(values[0], ShapeTuple):
                return [], 0
            bases[each.dst] = height
            height += int(values[0][0])
        elif row is Builtins.ALLOC_TENSOR:
            if not isinstance(values[2], ShapeTuple) or each.args[0].value not in bases:
                return [], 0
            size = int(values[3].itemsize)
            for extent in values[2]:
                size *= int(extent)
            alive[each.dst] = pc, bases[each.args[0].value] + int(values[1] or 0), size
        elif row is Builtins.KILL_OBJECT and each.args[0].value in alive:
            begin, low, size = alive.pop(each.args[0].value)
            tensors.append((each.args[0].value, begin, pc, low, size))
    end = len(instructions)
    tensors += [(r, begin, end, low, size) for r, (begin, low, size) in alive.items()]
    return tensors, height


def _value(program: Executable, argument: bytecode.Arg) -> Any:
    if argument.kind == bytecode.ArgKind.CONSTANT:
        return program.constants[argument.value]
    return argument.value if argument.kind == bytecode.ArgKind.IMMEDIATE else None
