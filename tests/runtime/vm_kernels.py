"""Kernels for tests of the VM in both modes: like those of `kernel_fixture`, but compiled from loop
functions, which compiled mode needs.
"""

from __future__ import annotations

import functools

from relaxvm.runtime.kernel import KernelSection
from relaxvm.script import from_source
from relaxvm.target import compile_prim_funcs

SCALARS = ["bool", "int8", "int32", "int64", "uint8", "uint64", "float32", "float64", "bfloat16"]


def _vector(name: str, dtype: str, value: str) -> str:
    return f"""
    @T.prim_func
    def {name}(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64()
        x = T.match_buffer(a, (n,), "{dtype}")
        y = T.match_buffer(b, (n,), "{dtype}")
        out = T.match_buffer(c, (n,), "{dtype}")
        for i in range(n):
            out[i] = {value}
"""


_SOURCE = f"""
@I.ir_module
class Kernels:
{_vector("add", "float32", "x[i] + y[i]")}
{_vector("mul", "float64", "x[i] * y[i]")}
    @T.prim_func
    def echo({", ".join(f"s{i}: T.{d}" for i, d in enumerate(SCALARS))}, o: T.handle):
        out = T.match_buffer(o, ({len(SCALARS)},), "int64")
{"".join(f"        out[{i}] = T.cast(s{i}, 'int64'){chr(10)}" for i in range(len(SCALARS)))}
    @T.prim_func
    def fails(a: T.handle):
        n = T.int64()
        x = T.match_buffer(a, (n,), "float32")
        assert n % 2 == 0, "n must be even"
        x[0] = T.float32(1)

    @T.prim_func
    def copy_bf16(a: T.handle, b: T.handle):
        n = T.int64()
        x = T.match_buffer(a, (n,), "bfloat16")
        y = T.match_buffer(b, (n,), "bfloat16")
        for i in range(n):
            y[i] = x[i]
"""


@functools.lru_cache(maxsize=1)
def section() -> KernelSection:
    """add (float32), mul (float64), echo (scalars), fails and copy_bf16."""
    return compile_prim_funcs(from_source(_SOURCE))
