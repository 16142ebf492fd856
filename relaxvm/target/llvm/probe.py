"""What a machine can do, as LLVM would use it: width of vectors, FMA, dot products.

Lists of CPUs grow old, and features given by hand may contradict each other; worse, LLVM ends the
process for a CPU that does not fit the triple, and for an intrinsic of an instruction that the
machine lacks. So LLVM is asked, in a process of its own (`net.py`): it compiles a few lines for the
machine, and the instructions in the assembly tell. The answer is kept on disk. Of this computer the
features are known without.
"""

from __future__ import annotations

import functools
import re

from ...base import CodegenError
from ...runtime import DiskCache
from .net import WorkerLost, llvm_answer
from .passes import Recipe

X86 = ("x86_64", "amd64", "i686", "i386")
ARM = ("aarch64", "arm64")
_SECONDS = 60.0
_answers = DiskCache("machines", 1 << 22)
_UNKNOWN = re.compile(r"'([^'\n]*)' is not a recognized (processor|feature)")


# -- the texts -------------------------------------------------------------------------------------

_VECTORS = """
define <16 x float> @sum(<16 x float> %a, <16 x float> %b) {
  %c = fadd <16 x float> %a, %b
  ret <16 x float> %c
}
define <4 x float> @muladd(<4 x float> %a, <4 x float> %b, <4 x float> %c) {
  %m = fmul contract <4 x float> %a, %b
  %s = fadd contract <4 x float> %m, %c
  ret <4 x float> %s
}
"""
_SCALARS = """
define double @scalar(double %a, double %b, i64 %i, i64 %j) {
  %q = sdiv i64 %i, %j
  %x = sitofp i64 %q to double
  %d = fdiv double %a, %b
  %s = fadd double %x, %d
  ret double %s
}
"""


def _sum_of_products(lanes: int, a: str, b: str) -> str:
    wide, narrow = f"<{lanes} x i32>", f"<{lanes} x i8>"
    return f"""
define i32 @{a}{b}{lanes}({narrow} %a, {narrow} %b) {{
  %x = {a} {narrow} %a to {wide}
  %y = {b} {narrow} %b to {wide}
  %m = mul {wide} %x, %y
  %r = call i32 @llvm.vector.reduce.add.v{lanes}i32({wide} %m)
  ret i32 %r
}}
"""


def _round_to_bfloat(lanes: int) -> str:
    return f"""
define <{lanes} x i16> @bfloat{lanes}(<{lanes} x float> %x) {{
  %h = fptrunc <{lanes} x float> %x to <{lanes} x bfloat>
  %r = bitcast <{lanes} x bfloat> %h to <{lanes} x i16>
  ret <{lanes} x i16> %r
}}
"""


def _add(lanes: int, element: str) -> str:
    of = f"<{lanes} x {element}>"
    return f"""
define {of} @add_{element}({of} %x, {of} %y) {{
  %r = add {of} %x, %y
  ret {of} %r
}}
"""


_DECLARED = "".join(
    f"declare i32 @llvm.vector.reduce.add.v{n}i32(<{n} x i32>)\n" for n in (16, 32, 64)
)
_OF_X86 = (
    _add(16, "i32"),
    _add(32, "i16"),
    *(_sum_of_products(n, "zext", "sext") for n in (16, 32, 64)),
    *(_round_to_bfloat(n) for n in (8, 16)),
    _DECLARED,
)
_OF_ARM = (
    _sum_of_products(16, "zext", "zext"),
    _sum_of_products(16, "zext", "sext"),
    _round_to_bfloat(8),
    _DECLARED,
)


def _text(triple: str) -> str:
    architecture = triple.split("-")[0]
    more = _OF_X86 if architecture in X86 else _OF_ARM if architecture in ARM else ()
    return "".join((f'target triple = "{triple}"\n', _VECTORS, _SCALARS, *more))


# -- asking ----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def assembly_of_probes(triple: str, cpu: str, features: str, producer: str) -> str:
    """What the probes became, compiled by this `producer`.

    Raises CodegenError if LLVM has no code for the machine, or does not know its CPU or one of its
    features.
    """
    text = _text(triple)
    key = repr((producer, triple, cpu, features, text)).encode()
    known = _answers.get(key)
    if known is not None:
        return known.decode()
    assembly = _asked(triple, cpu, features, text)
    _answers.put(key, assembly.encode())
    return assembly


def _asked(triple: str, cpu: str, features: str, text: str) -> str:
    where = f"target {triple}" + (f" -mcpu={cpu}" if cpu else "")
    if "help" in (cpu, *(f.lstrip("+-") for f in features.split(","))):
        # To LLVM that is no name, but a wish for a list.
        raise CodegenError(f"{where}: 'help' names no CPU and no feature")
    request = {
        "triple": triple,
        "cpu": cpu,
        "features": features,
        "text": text,
        "straight": "",
        "emit": ("object", "asm"),
        "verify": False,
        "recipe": tuple(Recipe(0, False, False, 1)),
        "seconds": _SECONDS,
    }
    reason = None
    try:
        _, _, assembly, noise = llvm_answer(request, None)
    except OSError as error:
        raise CodegenError(f"{where}: could not be checked: {error}") from None
    except WorkerLost as lost:
        noise = lost.noise
        lines = [line for line in noise.splitlines() if line.strip()]
        reason = next((x for x in lines if x.startswith("LLVM ERROR:")), (lines or [str(lost)])[-1])
    except RuntimeError as error:
        noise, reason = "", str(error)
    unknown = _UNKNOWN.search(noise)
    if unknown is not None:
        name, what = unknown[1].lstrip("+-"), unknown[2]
        option = "-mcpu" if what == "processor" else "-mattr"
        raise CodegenError(
            f"{where}: LLVM knows no {what} {name!r} for this architecture; correct {option}, or "
            "give the triple that it belongs to (-mtriple=aarch64-linux-gnu, ...)"
        )
    if reason is not None:
        raise CodegenError(
            f"{where}: LLVM has no code for this machine: "
            f"{reason.removeprefix('LLVM ERROR: ')[:300]}"
            + (f"\n  with the features {features[:500]}" if features else "")
        )
    return str(assembly.decode())
