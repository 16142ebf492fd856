"""Questions about LLVM that programs ask, under TVM's names."""

from __future__ import annotations

from llvmlite import binding as llvm

from .llvm.intrinsics import LLVM_INTRINSIC_IDS


def llvm_lookup_intrinsic_id(name: str) -> int:
    """A number that `call_llvm_intrin` takes for the intrinsic `name` ("llvm.fma"); 0 if there is
    none that kernels may call.

    It is not LLVM's own, which changes from version to version.
    """
    return next((i for i, known in LLVM_INTRINSIC_IDS.items() if known == name), 0)


def llvm_get_intrinsic_name(intrin_id: int) -> str:
    """The name behind a number of `llvm_lookup_intrinsic_id`; "" if there is none."""
    return LLVM_INTRINSIC_IDS.get(int(intrin_id), "")


def llvm_version_major(allow_none: bool = False) -> int:
    """The first number of LLVM's version. `allow_none` is TVM's; there is always an LLVM here."""
    return int(llvm.llvm_version_info[0])
