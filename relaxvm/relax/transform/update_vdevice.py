"""UpdateVDevice: another device in place of one that the module declares.

I.module_global_infos({"vdevice": [I.vdevice("llvm", 0)]})     UpdateVDevice(VDevice("llvm", 1), 0)
I.module_global_infos({"vdevice": [I.vdevice("llvm", 1)]})     # and so in all struct info
"""

from __future__ import annotations

from ...base import PassError
from ...ir import IRModule, PassContext, VDevice, substitute
from ...ir.transform import module_pass
from ..expr import Function
from .signature import replace_functions


@module_pass(opt_level=0)
def UpdateVDevice(mod: IRModule, ctx: PassContext, *, new_vdevice: VDevice, index: int) -> IRModule:
    """Put `new_vdevice` for number `index` of the virtual devices that the module declares, in all
    its graph functions too.

    Raises PassError if there is none of that number.
    """
    declared = tuple(mod.global_infos.get("vdevice", ()))
    if not isinstance(new_vdevice, VDevice):
        raise PassError(f"UpdateVDevice: wanted a VDevice, got {new_vdevice!r}")
    if not isinstance(index, int) or not 0 <= index < len(declared):
        raise PassError(
            f"UpdateVDevice: the module declares {len(declared)} virtual devices, got {index!r}"
        )
    old = declared[index]
    changed = {
        gv: substitute(fn, {old: new_vdevice}) for gv, fn in mod.items() if isinstance(fn, Function)
    }
    moved = replace_functions(mod, changed)
    if moved is mod:
        moved = mod.clone()
    moved.update_global_info("vdevice", (*declared[:index], new_vdevice, *declared[index + 1 :]))
    return moved
