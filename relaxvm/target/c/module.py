"""One C file of loop functions that may call each other: helpers, constants and functions, in a
stable order.

A function takes the bare data pointers, the scalars, and the symbols of shapes as int64_t, and
returns the number of an assertion that failed, or 0: the interface that wrappers and compiled
graph functions know from LLVM's kernels (`llvm/codegen.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arith import ConstIntBound
from ...base import CodegenError, DataType, NameSupply, run_steps
from ...ir import Call, GlobalVar, IRModule, Var, call_intrinsic
from ...tir.transform import lower_intrinsics
from ..llvm.codegen import Definition, Generator
from ..llvm.signature import Parameter
from ..llvm.stmt import constant_bytes
from ..llvm.text import scalar_type
from .expr import ExprEmitter, Pointer
from .helpers import Helpers
from .stmt import KernelEmitter
from .text import (
    ATOM,
    UNARY,
    Code,
    all_used,
    comment,
    constant,
    identifier,
    storage_type,
    value_type,
)

MAX_CONSTANT_ELEMENTS = 1 << 20
_PER_LINE = 8
_PRELUDE = """\
/* Loop functions in C99. Each returns 0, or the number of an assertion that failed. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
"""
# What the code uses of them.
_HINTS = {
    "RELAXVM_PARALLEL": """
#if defined(_OPENMP)
#define RELAXVM_PARALLEL _Pragma("omp parallel for")
#else
#define RELAXVM_PARALLEL
#endif
""",
    # Loops written out whose inner ones do not become vectors are worse than loops.
    "RELAXVM_VECTOR": """
/* For compilers with -fopenmp-simd. */
#if defined(RELAXVM_SIMD)
#define RELAXVM_VECTOR _Pragma("omp simd")
#else
#define RELAXVM_VECTOR
#endif
""",
    "RELAXVM_REDUCE": """
/* A loop whose results are added up, or compared, in any order. */
#define RELAXVM_REDUCE_PRAGMA(text) _Pragma(#text)
#if defined(RELAXVM_SIMD)
#define RELAXVM_REDUCE(by, ...) RELAXVM_REDUCE_PRAGMA(omp simd reduction(by : __VA_ARGS__))
#else
#define RELAXVM_REDUCE(by, ...)
#endif
""",
    "RELAXVM_UNROLL": """
#define RELAXVM_PRAGMA(text) _Pragma(#text)
#if defined(RELAXVM_SIMD) && defined(__clang__)
#define RELAXVM_UNROLL(count) RELAXVM_PRAGMA(unroll count)
#elif defined(RELAXVM_SIMD) && defined(__GNUC__)
#define RELAXVM_UNROLL(count) RELAXVM_PRAGMA(GCC unroll count)
#else
#define RELAXVM_UNROLL(count)
#endif
""",
}


class ModuleText:
    """Collects the parts of one file.

    externs          C functions from elsewhere that it calls
    functions_named  names that no variable may have
    prototypes       of its functions, by their symbols
    """

    def __init__(self) -> None:
        self.helpers = Helpers()
        self.externs: set[str] = set()
        self.functions_named: set[str] = set()
        self.prototypes: dict[str, str] = {}
        self._declared: dict[str, str] = {}
        self._constants: dict[tuple[str, Any], tuple[str, str]] = {}
        self._elements = 0
        self._functions: list[str] = []
        self._generator: Generator | None = None

    def failure(self, message: str) -> int:
        """The number of the assertion `message`."""
        assert self._generator is not None
        return self._generator.failure(message)

    def formula(self, name: str) -> str:
        """The helper that computes the function `name` of floats, as `tir/math.py` writes it."""
        full = f"relaxvm_{name}f"
        if not self.helpers.has(full):
            x = Var("x", "float32")
            written = lower_intrinsics(call_intrinsic(name, x), formulas=True)
            g = ExprEmitter(self, branches=False)
            g.env[x] = Code(g.name("x"))
            g.forget(written)
            result = run_steps(g.value(written))
            lines = "\n".join([*g.lines, f"    return {result.text};"])
            self.helpers.define(full, f"float {full}(float x)\n{{\n{lines}\n}}")
        return full

    def declare(self, name: str, result: str, types: Sequence[str]) -> None:
        """Declare a C function. Raises CodegenError if it is used with two signatures."""
        line = f"extern {result} {name}({', '.join(types) or 'void'});"
        former = self._declared.setdefault(name, line)
        self.functions_named.add(name)
        if former != line:
            raise CodegenError(
                f"extern {name} is used with two signatures: {former!r} and {line!r}"
            )

    def constant(self, name: str, dtype: DataType, data: Any) -> str:
        """The name of a constant array, shared among equal ones."""
        image = constant_bytes(dtype, data)
        key = (str(dtype), image)
        if key in self._constants:
            return self._constants[key][0]
        self._elements += len(data)
        if self._elements > MAX_CONSTANT_ELEMENTS:
            raise CodegenError(
                f"more than {MAX_CONSTANT_ELEMENTS} constants in C; pass them as arguments"
            )
        stem = identifier(name, "table")
        full, number = f"{stem}_data", 1
        while full in self.functions_named:
            full, number = f"{stem}_data_{number}", number + 1
        self.functions_named.add(full)
        kind = dtype.element
        if kind.is_float and kind.bits >= 32:
            shown = [constant(float(v), kind).text for v in np.frombuffer(image, str(kind))]
        else:
            bits = DataType(f"uint{max(kind.bits, 8)}") if not kind.is_int else kind
            shown = [constant(int(v), bits).text for v in np.frombuffer(image, str(bits))]
        rows = [shown[i : i + _PER_LINE] for i in range(0, len(shown), _PER_LINE)] or [["0"]]
        listed = ",\n    ".join(", ".join(row) for row in rows)
        head = f"static const {storage_type(dtype)} {full}[{max(1, len(shown))}]"
        self._constants[key] = full, f"{head} = {{\n    {listed},\n}};"
        return full

    def constants(self) -> list[str]:
        """The definitions of the constant arrays."""
        return [text for _, text in self._constants.values()]

    def add(self, generator: Generator, definition: Definition, exported: bool) -> None:
        """Append a function; tells the generator how it is called and how it may fail."""
        self._generator = generator
        g = KernelEmitter(self, definition.fn)
        signature, params, kinds = definition.signature, [], []
        first: list[str] = []
        for param in signature.params:
            if param.buffer is None:
                kinds.append(scalar_type(param.dtype))
                params.append(_scalar(g, param, first))
                continue
            kinds.append("ptr")
            params.append(_tensor(g, param, signature.noalias))
        shapes = [e for p in signature.params if p.buffer is not None for e in p.buffer.shape]
        for symbol in signature.symbols:
            kinds.append("i64")
            top = signature.tops.get(symbol, int(symbol.dtype.max_value))
            params.append(_integer(g, symbol, first))
            if symbol in shapes:
                g.analyzer.update(symbol, ConstIntBound(0, top), override=True)
        for zero in signature.zeros:
            g.env[zero] = Code("0", ATOM, 0)
        if definition.ret is not None:
            kinds.append("ptr")
            params.append((f"{storage_type(definition.ret)} *", g.name("returned")))
            g.ret = definition.ret
        body = g.run(definition.fn.body)
        listed = ", ".join(f"{of}{name}" for of, name in params) or "void"
        linkage = "" if exported else "static "
        head = f"{linkage}int32_t {definition.symbol}({listed})"
        told = [definition.gv.name_hint, *map(str, signature.kernel_params())]
        said = "\n *   ".join(comment(line) for line in told)
        lines = "\n".join(all_used([*first, *body], [name for _, name in params]))
        self._functions.append(f"/* {said}\n */\n{head}\n{{\n{lines}\n}}")
        if exported:
            self.prototypes[definition.symbol] = f"{head};"
        definition.kinds = tuple(kinds)
        definition.failures |= g.used_failures

    def text(self) -> str:
        """The file."""
        functions = "\n\n".join(self._functions)
        parts = [
            _PRELUDE + "".join(text for hint, text in _HINTS.items() if hint in functions),
            "\n".join(self._declared.values()),
            self.helpers.text(),
            "\n\n".join(self.constants()),
            functions,
        ]
        return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"

    def call_function(self, g: ExprEmitter, node: Call, parts: list[Code]) -> Code:
        """A call of another loop function of the module; leaves with its failure if it has one."""
        generator = self._generator
        assert generator is not None
        callee = generator.callee(node)
        arguments = []
        for param, arg, code in zip(callee.signature.params, node.args, parts):
            if param.buffer is not None:
                arguments.append(f"({storage_type(param.dtype)} *){code.within(UNARY)}")
            else:
                arguments.append(g.to_storage(arg.dtype, code) if arg.dtype.is_bool else code.text)
        memory = g.memory if isinstance(g, KernelEmitter) else {}
        known = generator.symbols_for(callee, node, memory)
        symbols = {symbol: run_steps(g.value(e)).text for symbol, e in known.items()}
        arguments += [symbols[symbol] for symbol in callee.signature.symbols]
        result = ""
        if callee.ret is not None:
            result = g.temporary()
            g.emit(f"{storage_type(callee.ret)} {result} = 0;")
            arguments.append(f"&{result}")
        call = f"{callee.symbol}({', '.join(arguments)})"
        if generator.transitive_failures(callee):
            failed = g.temporary()
            g.emit(f"const int32_t {failed} = {call};")
            g.fail_unless(Code(f"({failed} == 0)"), failed)
        else:
            g.emit(f"(void){call};")
        return g.from_storage(callee.ret, result) if callee.ret is not None else Code("0", ATOM, 0)


def _scalar(g: KernelEmitter, param: Parameter, first: list[str]) -> tuple[str, str]:
    if not param.dtype.is_bool:
        name = g.name(param.name)
        g.env[param.var] = Code(name)
        return f"{value_type(param.dtype)} ", name
    # Of a truth value that LLVM passes, only the lowest bit is said.
    byte, name = g.name(f"{param.name}_byte"), g.name(param.name)
    first.append(f"    const bool {name} = ({byte} & 1U) != 0;")
    g.env[param.var] = Code(name)
    return "uint8_t ", byte


def _integer(g: KernelEmitter, symbol: Var, first: list[str]) -> tuple[str, str]:
    if symbol.dtype.bits == 64 and symbol.dtype.is_signed:
        name = g.name(symbol.name, "n")
        g.env[symbol] = Code(name)
        return "int64_t ", name
    wide, name, kind = g.name(f"{symbol.name}_wide"), g.name(symbol.name), value_type(symbol.dtype)
    first.append(f"    const {kind} {name} = ({kind}){wide};")
    g.env[symbol] = Code(name)
    return "int64_t ", wide


def _tensor(g: KernelEmitter, param: Parameter, noalias: bool) -> tuple[str, str]:
    buffer = param.buffer
    assert buffer is not None
    name, kind = g.name(param.name, "buffer"), storage_type(buffer.dtype)
    g.pointers[buffer.data] = g.pointers[param.var] = Pointer(name, kind)
    if not buffer.strides:
        g.memory[buffer.data] = g.memory[param.var] = (buffer.shape, buffer.dtype)
    reads = "const " if param.access in ("r", "g") else ""
    return f"{reads}{kind} *{'restrict ' if noalias else ''}", name


def unique_names(mod: IRModule) -> dict[GlobalVar, str]:
    """A C identifier for each function of a module."""
    supply = NameSupply(joint="_")
    return {gv: supply.fresh(identifier(gv.name_hint, "kernel")) for gv in mod}
