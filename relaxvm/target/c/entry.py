"""The library around the kernels, for programs in C that know nothing of relaxvm: a header, an
entry for each kernel that checks its arguments, and a Makefile.

An entry takes a pointer to a DLTensor for each tensor, numbers for scalars, and at last a place for
the value that the kernel returns, if it does. It gives 0, or a number that `relaxvm_message` puts
into words: what is wrong with which argument, or the kernel's assertion that failed.
"""

from __future__ import annotations

from ...base import NameSupply, run_steps
from ...ir import IntImm, PrimExpr, Var, is_const
from ...tir.transform import lower_intrinsics
from ..llvm.codegen import Definition, Generator
from ..llvm.signature import Parameter
from .expr import ExprEmitter
from .module import ModuleText
from .text import ATOM, SUM, Code, comment, identifier, storage_type, string, value_type

_HEADER = """\
/* Kernels and how to call them. An entry returns 0, or a number for relaxvm_message. */
#ifndef RELAXVM_KERNELS_H
#define RELAXVM_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DLPACK_DLPACK_H_
/* As in dlpack.h, which counts if it is included before. */
typedef struct {
    int32_t device_type; /* 1: CPU */
    int32_t device_id;
} DLDevice;
typedef struct {
    uint8_t code; /* 0 int, 1 unsigned, 2 float, 4 bfloat, 6 bool */
    uint8_t bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: the last axis is dense, then the one before, ... */
    uint64_t byte_offset;
} DLTensor;
#endif

/* What a number other than 0 means. */
const char *relaxvm_message(int32_t code);
"""
ENDING = """
#ifdef __cplusplus
}
#endif

#endif
"""
_ENTRIES = """\
/* Entries of the kernels: they check their arguments, as kernels do not. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels.h"
"""
_CHECKS = """\
static inline char *data_of(const DLTensor *tensor)
{
    return (char *)tensor->data + tensor->byte_offset;
}

static inline bool is_of_type(const DLTensor *tensor, int code, int bits)
{
    const DLDataType type = tensor->dtype;
    return type.code == code && type.bits == bits && type.lanes == 1;
}

static inline bool is_empty(const DLTensor *tensor)
{
    for (int32_t axis = 0; axis < tensor->ndim; ++axis) {
        if (tensor->shape[axis] == 0) {
            return true;
        }
    }
    return false;
}

static inline bool has_place(const DLTensor *tensor, int64_t align)
{
    if (is_empty(tensor)) {
        return true;
    }
    return tensor->data != NULL && (uintptr_t)data_of(tensor) % (uintptr_t)align == 0;
}

static inline bool is_dense(const DLTensor *tensor)
{
    int64_t wanted = 1;
    if (tensor->strides == NULL || is_empty(tensor)) {
        return true;
    }
    for (int32_t axis = tensor->ndim - 1; axis >= 0; --axis) {
        if (tensor->shape[axis] != 1 && tensor->strides[axis] != wanted) {
            return false;
        }
        wanted *= tensor->shape[axis];
    }
    return true;
}

static inline int64_t stride_of(const DLTensor *tensor, int32_t axis)
{
    int64_t stride = 1;
    if (tensor->strides != NULL) {
        return tensor->strides[axis];
    }
    for (int32_t later = tensor->ndim - 1; later > axis; --later) {
        stride *= tensor->shape[later];
    }
    return stride;
}

static inline void find_range(const DLTensor *tensor, int64_t size, uintptr_t range[2])
{
    int64_t before = 0, behind = size;
    for (int32_t axis = 0; axis < tensor->ndim; ++axis) {
        const int64_t reach = (tensor->shape[axis] - 1) * stride_of(tensor, axis) * size;
        before += reach < 0 ? reach : 0;
        behind += reach > 0 ? reach : 0;
    }
    range[0] = (uintptr_t)data_of(tensor) + (uintptr_t)before;
    range[1] = (uintptr_t)data_of(tensor) + (uintptr_t)behind;
}

static inline bool overlap(const DLTensor *a, int64_t size_a, const DLTensor *b, int64_t size_b)
{
    uintptr_t one[2], other[2];
    if (is_empty(a) || is_empty(b)) {
        return false;
    }
    find_range(a, size_a, one);
    find_range(b, size_b, other);
    return one[0] < other[1] && other[0] < one[1];
}
"""
_MAKEFILE = """\
# make             libkernels.a
# make shared      libkernels.so
# make CFLAGS="-O3 -march=native -fopenmp -DRELAXVM_SIMD"   for this computer, on all its cores
# Compilers that know neither -fopenmp-simd nor -fopenmp: make CFLAGS=-O2
CC ?= cc
CFLAGS ?= -O2 -fopenmp-simd -DRELAXVM_SIMD
NEEDED = -std=c99 -ffp-contract=off -fno-math-errno -fno-trapping-math -fPIC
OBJECTS = {objects}

libkernels.a: $(OBJECTS)
\t$(AR) rcs $@ $(OBJECTS)

shared: libkernels.so

libkernels.so: $(OBJECTS)
\t$(CC) $(CFLAGS) -shared -o $@ $(OBJECTS) -lm

%.o: %.c kernels.h
\t$(CC) $(CFLAGS) $(NEEDED) -c -o $@ $<

clean:
\trm -f $(OBJECTS) libkernels.a libkernels.so

.PHONY: shared clean
"""


def write_library(text: ModuleText, generator: Generator) -> tuple[dict[str, str], dict[str, str]]:
    """(the files of a library of kernels, by name; what the entry of each kernel is called)."""
    entries = _Entries(text, generator)
    header = [_HEADER, *(f"{each}\n" for each in entries.prototypes)]
    files = {
        "kernels.c": text.text(),
        "kernels.h": "\n".join(header) + ENDING,
        "entries.c": entries.text(),
        "Makefile": _MAKEFILE.replace("{objects}", "kernels.o entries.o"),
    }
    return files, entries.names


class _Entries:
    """The entries of all kernels, and the messages of all numbers."""

    def __init__(self, text: ModuleText, generator: Generator) -> None:
        self.inner = text.prototypes
        self.messages = list(generator.failures)
        self.prototypes: list[str] = []
        self.functions: list[str] = []
        self.names: dict[str, str] = {}
        self.module = ModuleText()
        supply = NameSupply(joint="_")
        supply.reserve("relaxvm_message")
        for symbol in self.inner:
            supply.reserve(symbol)
        exported = {info.name for info in generator.infos}
        for gv, definition in generator.functions.items():
            if gv.name_hint in exported:
                name = supply.fresh(f"relaxvm_{identifier(gv.name_hint, 'kernel')}")
                self.names[gv.name_hint] = name
                self.functions.append(_Entry(self, name, definition).text())

    def text(self) -> str:
        listed = "".join(f"\n    {string(message)}," for message in self.messages)
        names = f'static const char *const messages[] = {{\n    "",{listed}\n}};'
        lookup = (
            "const char *relaxvm_message(int32_t code)\n{\n"
            f'    return code > 0 && code <= {len(self.messages)} ? messages[code] : "";\n}}'
        )
        helpers = self.module.helpers.text()
        parts = [_ENTRIES, *self.inner.values(), names, lookup, _CHECKS, helpers, *self.functions]
        return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


class _Entry:
    """One entry."""

    def __init__(self, entries: _Entries, name: str, definition: Definition) -> None:
        self.entries, self.name, self.definition = entries, name, definition
        self.g = ExprEmitter(entries.module)
        self.kernel = definition.gv.name_hint
        self.names: list[str] = []

    def text(self) -> str:
        """Its definition; its prototype is noted."""
        g, signature, ret = self.g, self.definition.signature, self.definition.ret
        params = []
        for param in signature.params:
            name = g.name(param.name)
            self.names.append(name)
            kind = "const DLTensor *" if param.buffer is not None else f"{value_type(param.dtype)} "
            params.append(kind + name)
            if param.buffer is None:
                g.env[param.var] = Code(name)
        for zero in signature.zeros:
            g.env[zero] = Code("0", ATOM, 0)
        if ret is not None:
            params.append(f"{storage_type(ret)} *{g.name('returned')}")
        head = f"int32_t {self.name}({', '.join(params) or 'void'})"
        told = comment(f"{self.kernel}({', '.join(map(str, signature.kernel_params()))})")
        self.entries.prototypes.append(f"/* {told} */\n{head};")
        tensors = [
            (n, p, p.buffer) for n, p in zip(self.names, signature.params) if p.buffer is not None
        ]
        for name, param, buffer in tensors:
            self._kind(name, param, len(buffer.shape))
        self._shapes()
        for name, param, _ in tensors:
            self._layout(name, param)
        if signature.noalias:
            self._overlaps()
        arguments = [
            n if p.buffer is None else f"({storage_type(p.dtype)} *)(void *)data_of({n})"
            for n, p in zip(self.names, signature.params)
        ]
        for symbol in signature.symbols:
            arguments.append(f"(int64_t){g.env[symbol].text}")
        if ret is not None:
            arguments.append("returned")
        g.emit(f"return {self.definition.symbol}({', '.join(arguments)});")
        lines = "\n".join(g.lines)
        return f"{head}\n{{\n{lines}\n}}"

    def _check(self, bad: str, message: str) -> None:
        """Leave with `message` where `bad` holds."""
        self.entries.messages.append(f"{self.kernel}: {message}")
        self.g.open(f"if ({bad}) {{")
        self.g.emit(f"return {len(self.entries.messages)};")
        self.g.close()

    def _kind(self, name: str, param: Parameter, ndim: int) -> None:
        dtype, what = param.dtype, f"argument {param.name}"
        shape = f" || {name}->shape == NULL" if ndim else ""
        self._check(
            f"{name} == NULL || {name}->ndim != {ndim}{shape}",
            f"{what}: wanted a tensor of {ndim} dimensions",
        )
        bits = max(dtype.bits, 8)
        self._check(
            f"!is_of_type({name}, {int(dtype.type_code)}, {bits})", f"{what}: wanted {dtype}"
        )

    def _shapes(self) -> None:
        """Symbols are bound where they stand alone first; everything else is compared."""
        g, signature = self.g, self.definition.signature
        pending: list[tuple[str, Parameter, int, PrimExpr, bool]] = []
        for strides in (False, True):
            for name, param in zip(self.names, signature.params):
                if param.buffer is None:
                    continue
                dims = param.buffer.strides if strides else param.buffer.shape
                for axis, e in enumerate(dims):
                    if isinstance(e, Var) and e not in g.env:
                        self._bind(e, name, param, axis, strides)
                    else:
                        pending.append((name, param, axis, e, strides))
        for name, param, axis, e, strides in pending:
            g.forget()
            wanted = run_steps(g.value(lower_intrinsics(e)))
            if strides:
                alone = f"!is_empty({name}) && {name}->shape[{axis}] != 1"
                bad = f"{alone} && stride_of({name}, {axis}) != {wanted.within(SUM)}"
                what = f"the stride of axis {axis} is not {self._said(e)}"
            else:
                bad = f"{name}->shape[{axis}] != {wanted.within(SUM)}"
                what = f"dimension {axis} is not {self._said(e)}"
            self._check(bad, f"argument {param.name}: {what}")

    def _said(self, e: PrimExpr) -> str:
        return str(e.value) if isinstance(e, IntImm) else "as the other arguments want it"

    def _bind(self, symbol: Var, name: str, param: Parameter, axis: int, strides: bool) -> None:
        g, signature = self.g, self.definition.signature
        value = f"stride_of({name}, {axis})" if strides else f"{name}->shape[{axis}]"
        top = signature.tops.get(symbol, int(symbol.dtype.max_value))
        where = f"argument {param.name}: {'the stride of axis' if strides else 'dimension'} {axis}"
        if not strides:
            self._check(f"{value} < 0", f"{where} is negative")
        if top < (1 << 63) - 1:
            self._check(f"{value} > {top}", f"{where} is greater than {top}")
        kind = value_type(symbol.dtype)
        code = g.name(symbol.name, "n")
        g.emit(f"const {kind} {code} = {'' if kind == 'int64_t' else f'({kind})'}{value};")
        g.env[symbol] = Code(code)

    def _layout(self, name: str, param: Parameter) -> None:
        size, what = param.dtype.itemsize, f"argument {param.name}"
        self._check(f"!has_place({name}, {size})", f"{what}: no data, or not aligned to {size}")
        assert param.buffer is not None
        if not param.buffer.strides and param.buffer.shape:
            self._check(f"!is_dense({name})", f"{what}: wanted a dense tensor, without gaps")

    def _overlaps(self) -> None:
        params = self.definition.signature.params
        pairs = list(zip(self.names, params))
        tensors = [(n, p) for n, p in pairs if p.buffer is not None and not _is_empty(p)]
        for i, (name, param) in enumerate(tensors):
            if "w" not in param.access:
                continue
            for other, its in tensors:
                if other == name or ("w" in its.access and other in dict(tensors[:i])):
                    continue
                size, its_size = param.dtype.itemsize, its.dtype.itemsize
                self._check(
                    f"overlap({name}, {size}, {other}, {its_size})",
                    f"argument {param.name} is written and overlaps argument {its.name}",
                )


def _is_empty(param: Parameter) -> bool:
    assert param.buffer is not None
    return any(is_const(e, 0) for e in param.buffer.shape)
