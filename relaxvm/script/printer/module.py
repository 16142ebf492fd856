"""Modules."""

from __future__ import annotations

from typing import Any

from ...ir import BaseFunc, DummyGlobalInfo, IRModule, VDevice
from ...relax import Function
from ...tir import PrimFunc
from .core import FREE, NL, Piece, Printer, prints
from .function import function_lines, uses_module
from .literal import attr_map, quote
from .names import identifier
from .prim_func import prim_func_lines


@prints(IRModule)
def _module(p: Printer, n: IRModule, _: int, __: int) -> list[Piece]:
    p.module_functions(gv.name_hint for gv in n)
    while identifier(p.options.name) in p.functions.values():
        # Inside the class that name means the function.
        p.options.name = f"{p.options.name}_"
        p.names.reserve(p.options.name)
    p.return_dtypes = {
        gv.name_hint: "void" if f.ret_type is None else f.ret_type.dtype
        for gv, f in n.items()
        if isinstance(f, PrimFunc)
    }
    infos = n.global_infos.get("vdevice", ())
    p.vdevices = tuple(infos) if isinstance(infos, (tuple, list)) else ()
    lines: list[Piece] = []
    if n.attrs:
        lines += [NL, f"{p.I}.module_attrs(", *attr_map(p, n.attrs), ")"]
    if n.global_infos:
        lines += [NL, f"{p.I}.module_global_infos(", *attr_map(p, n.global_infos), ")"]
    for gv, function in n.items():
        if lines:
            lines.append("\n")
        lines.append(_member(p, p.function_text(gv.name_hint), function))
    head = [NL, f"@{p.I}.ir_module", NL, f"class {identifier(p.options.name)}:"]
    return [*head, *p.suite(lines or [NL, "pass"])]


def _member(p: Printer, name: str, function: BaseFunc) -> Any:
    if isinstance(function, Function):
        return lambda: p.marked(function, function_lines(p, function, name, aliases=True))
    if isinstance(function, PrimFunc):
        return lambda: p.marked(
            function, prim_func_lines(p, function, name, aliases=uses_module(function))
        )
    return lambda: [NL, f"{name} = ", (function, 0, FREE)]


@prints(VDevice)
def _vdevice(p: Printer, n: VDevice, _: int, __: int) -> list[Piece]:
    target = "None" if n.target is None else quote(n.target)
    return [f"{p.I}.vdevice({target}, {n.vdevice_id}, {quote(n.memory_scope)})"]


@prints(DummyGlobalInfo)
def _dummy(p: Printer, n: DummyGlobalInfo, _: int, __: int) -> list[Piece]:
    return [f"{p.I}.dummy_global_info()"]
