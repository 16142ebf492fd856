"""For which machines LLVM makes code, and the code of a module."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ...base import CodegenError, LinkError, config, record
from ...ir import PassContext
from ...runtime import address_in_process, native, rest_while_forking
from ..target import Target
from . import passes
from .net import compile_safely
from .passes import Recipe
from .probe import assembly_of_probes

# About twenty calls of kernels: beyond, code is made fast rather than well. That saves 15 ms and
# more, and costs a run some 0.2 ns for each of them.
_LARGE_GLUE = 1 << 15
# Of LLVM text. Kernels of operators have up to 10,000 lines. Up to the first of these numbers LLVM
# does all it can, up to the second it makes no vectors, beyond it only makes code.
_USUAL_LINES, _MOST_LINES = 20_000, 40_000
# Of stores in a kernel: so many of vectors to each of a scalar in the basic block that has most of
# these, and it is one of vectors.
_VECTORS_PER_SCALAR = 16
# More than moving memory and finding the places for it, or than calling a parallel loop.
_COMPUTES = re.compile(
    r" = (?!load |getelementptr |phi |[\w ]+ i64 |call i32 @relaxvm|icmp eq i32 )"
)
# What is in a loop of scalars, and how often before it is one that is written out already. Not a
# constant: beside vectors, those are the few zeros around an image.
_SCALAR_STORE = re.compile(r"^  store (?!<|ptr )\S+ %", re.M)
_WRITTEN_OUT = 16
# What no loop has that LLVM makes vectors of: vectors, and calls of functions.
_NOT_SCALARS = re.compile(r"  store <| = call i32 ")
# For kernels without such loops, written out to so many stores that unrolling gives no more.
_VECTORS, _MANY_VECTORS = Recipe(1, False, False, 2, lsr=False, promotes=False), 48
# For those with some loops of scalars among them: such loops become vectors, and no more is done to
# the rest. That takes LLVM two fifths of the time of level 2, and the kernels run as fast.
_MIXED = Recipe(1, False, True, 2, unrolls=False, lsr=False)
# An attribute of functions that store again and again at one place that is no register of theirs:
# LLVM has to find it one.
SUMS_IN_MEMORY = '"relaxvm-sums-in-memory"'
# Where strength reduction pays: with so many divisions, the pixels of a tile are in rows that only
# the running kernel knows, and their addresses are too many for the registers if each is a sum of
# its own. A loop of few iterations begins often, if it is too long to be written out and not so
# long that it does not matter.
_DIVISION, _MANY_DIVISIONS = re.compile(r" = [su](?:div|rem) "), 8
_FEW_ITERATIONS, _SOME_LINES = re.compile(r"icmp ne i64 \S+ [4-8]\n.*\Z"), range(64, 512)
_DEFAULT_OPT_LEVEL = 2
# No passes at all.
_PLAIN = Recipe(0, False, False, 0)


@functools.lru_cache(maxsize=1)
def llvm() -> Any:
    """The llvmlite binding with all its targets ready."""
    try:
        binding = passes.prepare()
    except (ImportError, OSError) as error:
        raise CodegenError(
            f"cannot compile: the code generator needs llvmlite: {error}; pip install llvmlite"
        ) from error
    if not hasattr(binding, "create_pass_builder"):
        raise CodegenError(f"llvmlite {_version()} is too old: wanted 0.44 or later")
    rest_while_forking(binding)
    return binding


def _version() -> str:
    import llvmlite

    return str(llvmlite.__version__)


def _llvm_version() -> tuple[int, ...]:
    """Without loading LLVM, which takes 30 ms and 50 MB, if it was loaded here before."""
    version: tuple[int, ...] = ()
    with contextlib.suppress(LinkError, ImportError, OSError):
        version = native.llvm_version()
    # That of llvmlite 0.44. What is missing or too old, it says itself.
    return version if version >= (15,) else tuple(llvm().llvm_version_info)


@functools.lru_cache(maxsize=1)
def producer() -> str:
    """Who makes the object code."""
    version = ".".join(map(str, _llvm_version()))
    return f"llvmlite {_version()}, LLVM {version}"


@functools.lru_cache(maxsize=1)
def has_maximum() -> bool:
    """Whether there is code for `llvm.maximum` on every machine: LLVM 15, of llvmlite 0.44, ends
    the process for it on x86.
    """
    return _llvm_version()[0] >= 18


@record
class Machine:
    """For what to generate code. `features` is canonical: sorted "+a,-b" text."""

    triple: str
    cpu: str
    features: str
    opt_level: int = 2

    @property
    def native_half(self) -> bool:
        """Whether the machine converts between float16 and float32 by itself."""
        architecture = self.triple.split("-")[0]
        if architecture in ("x86_64", "i686", "amd64"):
            return "+f16c" in self.features.split(",")
        return architecture in ("aarch64", "arm64")

    @property
    def is_this_computer(self) -> bool:
        """Whether it is, with its CPU and all its features."""
        here = host_machine()
        return (self.triple, self.cpu, self.features) == (here.triple, here.cpu, here.features)

    def check(self) -> None:
        """Raise CodegenError for a triple that this LLVM has no generator for, and for a CPU and
        features that it does not know.
        """
        if self.is_this_computer:
            return
        try:
            llvm().Target.from_triple(self.triple)
        except RuntimeError as error:
            raise CodegenError(
                f"no code generator for the triple {self.triple!r} in {producer()}: {error}"
            ) from None
        # LLVM would end the process for what it does not like.
        self.probed()

    def probed(self) -> str:
        """The assembly that tells what it has. Raises CodegenError where LLVM does not know it."""
        return assembly_of_probes(self.triple, self.cpu, self.features, producer())


def canonical_features(features: Iterable[str]) -> str:
    """Sorted "+a,-b" text; the last word about a feature counts."""
    state = {}
    for feature in features:
        text = feature.strip()
        if text:
            state[text.lstrip("+-")] = "-" if text.startswith("-") else "+"
    return ",".join([f"{state[name]}{name}" for name in sorted(state)])


@functools.lru_cache(maxsize=1)
def host_machine() -> Machine:
    """This computer. Raises CodegenError where there is no LLVM to compile with."""
    _llvm_version()
    here = native.host()
    return Machine(here.triple, here.cpu, here.features_text)


def machine_of(target: Any = None) -> Machine:
    """What a target means to LLVM. Without options it is this computer, with all its features."""
    target = Target("llvm") if target is None else Target(target)
    here = host_machine()
    triple = str(target.options.get("mtriple", here.triple))
    level = int(target.options.get("opt-level", _DEFAULT_OPT_LEVEL))
    if not 0 <= level <= 3:
        raise CodegenError(f"target {target}: opt-level is 0 to 3, got {level}")
    is_here = triple == here.triple
    cpu = target.mcpu or (here.cpu if is_here else "")
    if any(c in cpu + triple for c in '\0\n"\\'):
        raise CodegenError(f"target {target}: no such CPU or triple")
    features: list[str] = []
    if is_here and cpu in (here.cpu, "native"):
        cpu = here.cpu
        features = here.features.split(",")
    return Machine(triple, cpu, canonical_features([*features, *target.mattr]), level)


def has_symbol(name: str) -> bool:
    """Whether this process has a C function of that name."""
    return address_in_process(name) is not None or llvm().address_of_symbol(name) is not None


@record
class Compiled:
    """What became of a module; parts that were not asked for are empty."""

    object: bytes
    llvm: str
    asm: str


def compile_text(
    text: str,
    machine: Machine,
    emit: tuple[str, ...] = ("object",),
    straight: str = "",
    name: str = "a module",
) -> Compiled:
    """Object code (and, if asked for, optimised LLVM and assembly text) of LLVM assembly.

    emit      any of "object", "llvm", "asm"
    straight  a second module, linked with the first, that needs none of LLVM's passes
    name      what it is called in a warning
    """
    unknown = {*emit} - {"object", "llvm", "asm"}
    if unknown:
        raise CodegenError(f"cannot emit {', '.join(sorted(unknown))}; wanted object, llvm or asm")
    recipes = _recipes(machine.opt_level, text.count("\n"))
    if _stores_vectors(text):
        recipes = list(dict.fromkeys(recipe._replace(slp=False) for recipe in recipes))
        many = text.count("store <") >= _MANY_VECTORS
        if many and machine.opt_level == 2:
            lsr = _gains_by_strength_reduction(text)
            first = _VECTORS._replace(promotes=SUMS_IN_MEMORY in text)
            if _has_loops_of_scalars(text):
                first = _MIXED
            recipes = [first._replace(lsr=lsr), *recipes]
    return _compiled(text, machine, recipes, emit, straight, name)


def _recipes(level: int, lines: int) -> list[Recipe]:
    """How LLVM compiles a kernel of so many lines: the first that it survives counts."""
    every = Recipe(level, level > 1, level > 1, max(level, 1), lsr=level != 1)
    no_loops = every._replace(slp=False, loops=False, lsr=level == 0)
    simple = Recipe(1, False, False, 1, lsr=False)
    recipes = [every, every._replace(slp=False), no_loops, simple, _PLAIN]
    # Both vectorisers, and the code generator, take more than twice as long for twice the lines.
    if lines > _USUAL_LINES:
        recipes = recipes[2:]
    if lines > _MOST_LINES:
        recipes = [_PLAIN]
    return list(dict.fromkeys(r for r in recipes if (r.level or 0) <= level))


def _stores_vectors(text: str) -> bool:
    """Whether what a kernel stores is vectors already, but for scalars that have few neighbours in
    their basic blocks, or are only moved there, as in loops that pack: then SLP, which makes
    vectors of neighbouring scalars, takes up to two thirds of the time of LLVM's passes and finds
    nothing.

    Of 58 such kernels of four models, 53 became the same code without it, byte for byte, and the
    models run as fast; LLVM took 1.7 s instead of 2.6 for all of ResNet-50.
    """
    vectors = text.count("store <")
    computing = [b for b in text.split(":\n") if _COMPUTES.search(b)]
    scalars = max((b.count("  store ") - b.count("store <") for b in computing), default=0)
    return scalars * _VECTORS_PER_SCALAR <= vectors > 0


def _has_loops_of_scalars(text: str) -> bool:
    """Whether an innermost loop stores scalars alone, and few: LLVM may make it one of vectors."""
    return any(
        not _NOT_SCALARS.search(body) and 0 < len(_SCALAR_STORE.findall(body)) < _WRITTEN_OUT
        for body in _innermost_loops(text)
    )


def _gains_by_strength_reduction(text: str) -> bool:
    if len(_DIVISION.findall(text)) >= _MANY_DIVISIONS:
        return True
    longest = max(_innermost_loops(text), key=len, default="")
    few = _FEW_ITERATIONS.search(longest, max(len(longest) - 80, 0))
    return few is not None and longest.count("\n") in _SOME_LINES


def _innermost_loops(text: str) -> Iterator[str]:
    """What is from the beginning of each loop that has none inside to its last branch."""
    for part in text.split("\nloop")[1:]:
        body, back, _ = part.partition(f"label %loop{part[: part.index(':')]},")
        if back:
            yield body


def compile_glue(text: str, machine: Machine) -> bytes:
    """Object code of LLVM assembly that is straight code between calls, as the functions of a
    virtual machine are.

    LLVM's whole pipeline does little for them, and its code generator most of the rest. Measured on
    a program of one kernel, with a chain of a hundred and of 1.7 MB of text (12 layers of a
    transformer): milliseconds of passes + code generation, then nanoseconds a call.

        pipeline of level 1     17 + 15    19 + 27    1155 + 823      293    894
        these passes             3 + 14     5 + 27    1050 + 919      293    836
        the same, quickly        4 +  3     4 +  4    1000 +  84      312    873
        two of them, quickly     2 +  2     3 +  3      27 +  53      311    880
    """
    few = len(text) > _LARGE_GLUE
    recipe = Recipe(None, False, False, 0 if few else max(machine.opt_level, 1))
    return _compiled(text, machine, [recipe, _PLAIN], ("object",), "", "VM functions").object


def _compiled(
    text: str,
    machine: Machine,
    recipes: list[Recipe],
    emit: tuple[str, ...],
    straight: str,
    name: str,
) -> Compiled:
    machine.check()
    request = {
        "triple": machine.triple,
        "cpu": machine.cpu,
        "features": machine.features,
        "text": text,
        "straight": straight,
        "emit": emit,
        "verify": config.checks_enabled(),
    }
    seconds = PassContext.current().get("target.llvm_seconds")
    seconds *= max(1.0, text.count("\n") / _USUAL_LINES)
    code, llvm_text, assembly = compile_safely(request, recipes, name, seconds, llvm)
    return Compiled(code, llvm_text.decode(), assembly.decode())
