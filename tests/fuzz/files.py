"""Files that nobody should give: damaged executables, portable kernels and entries of the cache,
random bytecode. They are refused by a typed error, or load, can be shown and saved, and run.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import random
import tempfile

import msgpack
import numpy as np
from golden_program import golden_program
from kernel_fixture import section

import relaxvm as tvm
from fuzz import random_bytecode, words
from relaxvm import relax
from relaxvm.base import LoadError, RelaxvmError, VerifyError
from relaxvm.runtime import ExecBuilder, Executable, VirtualMachine, load
from relaxvm.script import from_source
from relaxvm.target import compile_prim_funcs, rebuild_kernels

WAYS = ("file",) * 40 + ("portable",) * 10 + ("words",) * 24 + ("modes", "cache")
LINE = 16
"""Bytes per line of a case; what is taken out when it is made smaller."""
MODULE = """
@I.ir_module
class Module:
    @T.prim_func
    def kernel(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32"), n: T.int32):
        T.func_attr({"tir.noalias": True})
        C = T.alloc_buffer((4, 8), "float16")
        for i, j in T.grid(4, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                with T.init():
                    C[vi, vj] = T.float16(0)
                C[vi, vj] = T.Cast("float16", A[vi, vj] * T.float32(2)) + C[vi, vj]
        for i in T.vectorized(8):
            B[0, i] = T.if_then_else(i < n, A[0, i] / 3.0, A[1, i] * 5.0)
        if n > 3:
            B[1, n % 8] = T.exp(A[1, 0])
        assert n < 100, "small"
        B[3, 7] = T.Cast("float32", C[2, 2])

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 3), "float32")):
        y = R.nn.softmax(R.matmul(x, w))
        return (y, R.sum(y, axis=0))
"""


def _with_kernels() -> bytes:
    b = ExecBuilder()
    b.add_kernels(section())
    with b.function("main", 3):
        b.emit_call("add", [b.r(0), b.r(1), b.r(2)])
        b.emit_ret(b.r(2))
    return b.get().to_bytes()


@functools.cache
def seeds(portable: bool = False) -> list[bytes]:
    """Good files."""
    mod = from_source(MODULE)
    if portable:
        kernels = tvm.IRModule({"main": mod["kernel"]})
        return [compile_prim_funcs(kernels).portable]
    built = relax.build(tvm.IRModule({"main": mod["main"]}), "llvm")
    golden = golden_program()
    return [golden.to_bytes(), golden.to_bytes(sign=False), _with_kernels(), built.to_bytes()]


def make(rng: random.Random) -> dict:
    way = rng.choice(WAYS)
    if way == "modes":
        return {"way": way, "seed": rng.getrandbits(30)}
    if way == "words":
        return {"way": way, "seed": rng.getrandbits(30), **words.make(rng)}
    if way == "cache":
        return {"way": way, "seed": rng.getrandbits(30)}
    good = seeds(way == "portable")
    data = rng.choice(good)
    for _ in range(rng.choice([1, 1, 1, 2])):
        data = mutated(rng, data, good)
    lines = [data[k : k + LINE].hex() for k in range(0, len(data), LINE)]
    return {"way": way, "lines": lines}


# -- damage ----------------------------------------------------------------------------------------


def mutated(rng: random.Random, good: bytes, others: list[bytes]) -> bytes:
    data, kind = bytearray(good), rng.randrange(8)
    if not data or kind == 5:
        return rng.randbytes(rng.randrange(200))
    at = rng.randrange(len(data))
    if kind == 0:
        return bytes(data[:at])
    if kind == 1:
        for _ in range(rng.choice([1, 1, 2, 8])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 2:
        for _ in range(rng.choice([1, 4])):
            value = rng.choice([0, 0x7F, 0x80, 0xC1, 0xDD, 0xDF, 0xFF, rng.randrange(256)])
            data[rng.randrange(len(data))] = value
    elif kind == 3:
        other = rng.choice(others)
        b = rng.randrange(len(other))
        data[at:at] = other[b : b + rng.randrange(200)]
    elif kind == 4:
        del data[at : at + rng.randrange(1, 40)]
    else:
        with contextlib.suppress(ValueError, TypeError, OverflowError, msgpack.UnpackException):
            document = msgpack.unpackb(good, strict_map_key=False)
            for _ in range(rng.choice([1, 1, 2])):
                document = edited(rng, document)
            return msgpack.packb(document)
    return bytes(data)


def edited(rng: random.Random, value):
    """The document with one value somewhere inside replaced, removed, repeated or renamed."""
    path, node = [], value
    while isinstance(node, (dict, list)) and node and (not path or rng.random() < 0.8):
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        path.append((node, key))
        node = node[key]
    if not path:
        return value
    parent, key = path[-1]
    action = rng.randrange(4)
    if action == 0:
        del parent[key]
    elif action == 1 and isinstance(parent, list):
        parent.insert(key, node)
    elif action == 1:
        parent[f"{key}x"] = node
    else:
        parent[key] = _replacement(rng, node)
    return value


def _replacement(rng: random.Random, node):
    if isinstance(node, bytes) and rng.random() < 0.8 and node:
        changed = bytearray(node)
        at = rng.randrange(len(changed) // 8 + 1) * 8
        changed[at : at + 8] = rng.choice(words.ODD).to_bytes(8, "little", signed=True)
        return bytes(changed)
    if isinstance(node, int) and rng.random() < 0.7:
        return rng.choice([node + 1, node - 1, *words.ODD])
    return rng.choice([None, True, 0, -1, 1.5, "", "x", b"", [], {}, ["object"], [[]], "float32"])


# -- what is promised ------------------------------------------------------------------------------


def check(case: dict) -> bool:
    return globals()[f"check_{case['way']}"](case)


def _data(case: dict) -> bytes:
    return bytes.fromhex("".join(case["lines"]))


def check_file(case: dict) -> bool:
    try:
        ex = load(_data(case))
    except (LoadError, VerifyError):
        return False
    assert ex.verified
    ex.as_text(), ex.as_python(), ex.stats(), ex.needs()
    assert load(ex.to_bytes(sign=False)).as_text() == ex.as_text(), "saved and loaded it differs"
    return True


def check_portable(case: dict) -> bool:
    try:
        rebuild_kernels(_data(case), ("main",))
    except RelaxvmError:
        return False
    return True


def check_words(case: dict) -> bool:
    rng = random.Random(case["seed"])
    ex = words.executable(case)
    try:
        ex.verify()
    except VerifyError:
        return False
    words.run(rng, load(ex.to_bytes(sign=False)))
    return True


def check_modes(case: dict) -> bool:
    """Programs that verify, mostly senseless, do the same in both ways of running them."""
    ex = random_bytecode.random_program(case["seed"], 8)
    machines = random_bytecode.machines(ex)
    for info in ex.vm_functions:
        rng = random.Random(case["seed"])
        for _ in range(5):
            args = random_bytecode.random_arguments(rng, info.params)
            got, want = (random_bytecode.outcome(vm[info.name], args) for vm in machines)
            assert got == want, f"{info.name}{args}: {got} and {want}\n{ex.as_text()}"
    return True


def check_cache(case: dict) -> bool:
    """Whatever is in the cache's folder, what is built is right."""
    rng = random.Random(case["seed"])
    mod = tvm.IRModule({"main": from_source(MODULE)["main"]})
    x, w = np.ones((2, 4), "float32"), np.eye(4, 3, dtype="float32")
    former = os.environ.get("RELAXVM_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="relaxvm-fuzz-") as folder:
        os.environ["RELAXVM_CACHE_DIR"] = folder
        try:
            wanted = _results(relax.build(mod, "llvm"), x, w)
            files = [p for p in sorted(pathlib.Path(folder).rglob("*")) if p.is_file()]
            contents = [p.read_bytes() for p in files]
            for path, data in zip(files, contents):
                if rng.random() < 0.7:
                    path.chmod(0o600)
                    path.write_bytes(mutated(rng, data, contents))
            got = _results(relax.build(mod, "llvm"), x, w)
        finally:
            del os.environ["RELAXVM_CACHE_DIR"]
            if former is not None:
                os.environ["RELAXVM_CACHE_DIR"] = former
    assert got == wanted, "another result"
    return len(files) > 0


def _results(ex: Executable, *args) -> list:
    return [r.numpy().tolist() for r in VirtualMachine(ex)["main"](*args)]
