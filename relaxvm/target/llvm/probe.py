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
from collections.abc import Callable

from ...base import CodegenError
from ...base.llvm import Function, Module, Value
from ...runtime import DiskCache
from .net import WorkerLost, llvm_answer
from .passes import Recipe

X86 = ("x86_64", "amd64", "i686", "i386")
ARM = ("aarch64", "arm64")
_SECONDS = 60.0
_answers = DiskCache("machines", 1 << 22)
_UNKNOWN = re.compile(r"'([^'\n]*)' is not a recognized (processor|feature)")


# -- the probes ------------------------------------------------------------------------------------


def _text(triple: str) -> str:
    """Functions whose assembly tells what the machine has."""
    m, architecture = Module(triple), triple.split("-")[0]
    is_x86, is_arm = architecture in X86, architecture in ARM

    def probe(name: str, result: str, kinds: tuple[str, ...], body: Callable[..., Value]) -> None:
        f = m.define(f"{result}({', '.join(kinds)})", name)
        f.ret(body(f, *f.params))

    def both(name: str, of: str, opcode: str) -> None:
        probe(name, of, (of, of), lambda f, x, y: f.op(opcode, x, y))

    def muladd(f: Function, a: Value, b: Value, c: Value) -> Value:
        return f.op("fadd contract", f.op("fmul contract", a, b), c)

    def scalar(f: Function, a: Value, b: Value, i: Value, j: Value) -> Value:
        return f.op("fadd", f.op("fdiv", a, b), f.cast("sitofp", f.op("sdiv", i, j), "double"))

    both("sum", "<16 x float>", "fadd")
    probe("muladd", "<4 x float>", ("<4 x float>",) * 3, muladd)
    probe("scalar", "double", ("double", "double", "i64", "i64"), scalar)
    if is_x86:
        both("add_i32", "<16 x i32>", "add")
        both("add_i16", "<32 x i16>", "add")
    for lanes, signs in ((16, "zz"), (16, "zs"), (32, "zs"), (64, "zs")):
        if (is_x86 and signs == "zs") or (is_arm and lanes == 16):

            def dot(f: Function, *sides: Value, n: int = lanes, signs: str = signs) -> Value:
                wide = [f.cast(f"{k}ext", x, f"<{n} x i32>") for k, x in zip(signs, sides)]
                return f.extern("i32", f"llvm.vector.reduce.add.v{n}i32", f.op("mul", *wide))

            probe(f"dot_{signs}{lanes}", "i32", (f"<{lanes} x i8>",) * 2, dot)
    for lanes in (8, 16) if is_x86 else (8,) if is_arm else ():

        def rounded(f: Function, x: Value, n: int = lanes) -> Value:
            return f.cast("bitcast", f.cast("fptrunc", x, f"<{n} x bfloat>"), f"<{n} x i16>")

        probe(f"bfloat{lanes}", f"<{lanes} x i16>", (f"<{lanes} x float>",), rounded)
    return m.text()


# -- asking ----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def assembly_of_probes(triple: str, cpu: str, features: str, producer: str) -> str:
    """What the probes became, compiled by this `producer`.

    Raises CodegenError if LLVM has no code for the machine, or does not know its CPU or one of its
    features.
    """
    text = _text(triple)
    key = repr((producer, triple, cpu, features, text)).encode()
    return _answers.kept(key, lambda: _asked(triple, cpu, features, text)).decode()


def _asked(triple: str, cpu: str, features: str, text: str) -> bytes:
    where = f"target {triple}" + (f" -mcpu={cpu}" if cpu else "")
    if "help" in (cpu, *(f.lstrip("+-") for f in features.split(","))):
        # To LLVM that is no name, but a wish for a list.
        raise CodegenError(f"{where}: 'help' names no CPU and no feature")
    request = {
        **{"triple": triple, "cpu": cpu, "features": features, "text": text},
        **{"recipe": tuple(Recipe(0, False, False, 1)), "seconds": _SECONDS},
        "emit": ("object", "asm"),
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
    return bytes(assembly)
