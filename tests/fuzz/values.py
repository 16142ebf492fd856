"""Values that no caller should give. To operators and programs that run: a result that can be shown
or an error of this package that is also the builtin that fits. To other public functions: an answer
or some exception; never the end of the process, a hang or an InternalError.
"""

from __future__ import annotations

import functools
import inspect
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np

import relaxvm as tvm
from relaxvm import relax, runtime, te, tir
from relaxvm.base import InternalError, RelaxvmError
from relaxvm.relax import op as R
from relaxvm.script import from_source

PROGRAM = """
@I.ir_module
class Module:
    @T.prim_func
    def kernel(a: T.handle, b: T.Buffer((4,), "int8"), k: T.int32):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        for i in range(n):
            with T.block("A"):
                vi = T.axis.spatial(n, i)
                A[vi, 0] = A[vi, 1] + T.Cast("float32", b[0] + T.Cast("int8", k))

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), i: R.Tensor((), "bool"), s: R.Shape(["n"]),
             p: R.Prim("int64"), t: R.Tuple(R.Tensor((3,), "int64"), R.Object)):
        return (R.add(x, x), t)
"""
ROOMS: dict[str, Any] = {
    "op": R, "nn": R.nn, "image": R.image, "relax": relax, "tir": tir, "te": te,
    "runtime": runtime, "tvm": tvm, "analysis": relax.analysis, "tir_analysis": tir.analysis,
    "transform": relax.transform, "tir_transform": tir.transform,
}  # fmt: skip
# What writes files, changes the process, or runs what it is given.
OUTSIDE = re.compile(
    "load|save|write|export|dump|register|set_|clear|exec|open|profile|time|bench|show|print|enter|"
    "override|Pool|get_global_func|from_|main|run|interpret|Instrument|derive|visitor|mutator|walk|"
    "visit|as_tvm|remove_global|list_global"
)


@functools.cache
def functions() -> dict[str, Callable[..., Any]]:
    """Public functions and classes by room and name, methods of what the programs are run with."""
    found = {}
    for room, module in ROOMS.items():
        for name in dir(module):
            value = None if name.startswith("_") else getattr(module, name, None)
            ours = (getattr(value, "__module__", None) or "").startswith("relaxvm")
            if callable(value) and ours and not OUTSIDE.search(name):
                found[f"{room}.{name}"] = value
    mod = from_source(PROGRAM)
    for mode in ("compiled", "bytecode"):
        vm = runtime.VirtualMachine(relax.build(mod, "llvm"), exec_mode=mode)
        found[f"{mode}.main"] = vm["main"]
        for name in ("set_input", "invoke_stateful", "get_outputs", "explain"):
            found[f"{mode}.{name}"] = getattr(vm, name)
    found["kernel"] = tvm.build(mod["kernel"], "llvm")["kernel"]
    return found


@functools.cache
def pool() -> dict[str, Any]:
    """Odd values, and samples of every kind that functions take, by name."""
    n, f = tir.Var("n", "int64"), tir.Var("f", "float32")
    endless: list = []
    endless.append(endless)
    deep: Any = 1
    for _ in range(3000):
        deep = [deep]
    mod = from_source(PROGRAM)
    x = np.arange(8, dtype="float32").reshape(2, 4)
    plain = [
        None, True, -1, 0, 1, 3, 2**31, 2**63, -(2**63), 2**200, 1.5, -0.0, float("nan"),
        float("inf"), 1j, "", "float32", "int64", "nothing", "main", "x" * 10_000, "a\0b", "\ud800",
        b"", b"\xff", [], [1, 2], [[]], [-1], (), (0, 1), (1, (2,)), {}, {"a": 1}, {1: 2}, {3}, len,
        dict, range(4), slice(None), Ellipsis,
    ]  # fmt: skip
    named = {
        "object": object(), "endless": endless, "deep": deep, "lambda": lambda *a: a[0],
        "raises": lambda *a: 1 // 0, "x": x, "x.T": x.T, "gaps": np.arange(16.0)[::2],
        "empty": np.zeros((0, 4), "int64"), "scalar": np.array(3), "np.int8": np.int8(3),
        "np.nan": np.float64("nan"), "objects": np.array([None, {}], object),
        "texts": np.array(["a", "b"]), "times": np.array(["2026-11-22"], "datetime64[D]"),
        "record": np.zeros(2, [("a", "i4")]), "swapped": x.astype(">f4"),
        "huge": np.broadcast_to(np.float32(0), (1 << 14, 4)), "ndarray": runtime.array(x),
        "ndarray_int": runtime.array(np.arange(3)), "shape": runtime.ShapeTuple([2, 4]),
        "dtype": tvm.DataType("int32"), "vector": tvm.DataType("float32x4"),
        "target": tvm.target.Target("llvm"), "device": tvm.cpu(),
        "n": n, "f": f, "IntImm": tir.IntImm("int64", 3), "FloatImm": tir.FloatImm("float32", 1.5),
        "n+1": n + 1, "n<1": n < 1, "StringImm": tir.StringImm("s"), "Range": tvm.ir.Range(0, 4),
        "IterVar": tir.IterVar(tvm.ir.Range(0, 4), tir.Var("v", "int64")),
        "Buffer": tir.decl_buffer((n, 4), "float32", "B"), "handle": tir.Var("h", "handle"),
        "PrimFunc": mod["kernel"], "Function": mod["main"], "IRModule": mod,
        "GlobalVar": mod.get_global_var("main"), "Op": tvm.ir.Op.get("relax.add"),
        "te": te.placeholder((4, 4), "float32"), "axis": te.reduce_axis((0, 4)),
        "f32": _var((2, 4), "float32"), "f32n": _var((n, 4), "float32"), "i64": _var((4,), "int64"),
        "bool": _var((), "bool"), "f16": _var((2, 3, 4, 4), "float16"), "i8": _var((4, 4), "int8"),
        "unknown": relax.Var("u", relax.TensorStructInfo(None, "float32", ndim=2)),
        "any": relax.Var("o", relax.ObjectStructInfo()),
        "shape_var": relax.Var("s", relax.ShapeStructInfo([n, 4])),
        "prim_var": relax.Var("p", relax.PrimStructInfo("int64")),
        "tuple": relax.Tuple([_var((2, 4), "float32"), _var((2, 4), "float32")]),
        "const": relax.const(x), "const_int": relax.const([0, 1], "int64"),
        "ShapeExpr": relax.ShapeExpr([n, 4]), "PrimValue": relax.PrimValue(n),
        "DataTypeImm": relax.DataTypeImm("float32"), "ExternFunc": relax.ExternFunc("env.f"),
        "sinfo": relax.TensorStructInfo((n, 4), "float32"), "object_info": relax.ObjectStructInfo(),
        "block": tir.Evaluate(0), "f32s": [_var((2, 4), "float32")] * 2, "vars": [n, n],
    }  # fmt: skip
    return {**{f"{value!r:.40}": value for value in plain}, **named}


def _var(shape: tuple, dtype: str) -> relax.Var:
    return relax.Var("x", relax.TensorStructInfo(shape, dtype))


# Mostly what functions of that room take, so that more than the first check is reached.
LIKELY = {
    "op": "f32 f32n i64 bool f16 i8 unknown tuple const const_int 0 1 -1 None (0, 1) f32s".split(),
    "tir": "n f IntImm FloatImm n+1 n<1 Buffer block 0 1 3 'float32' 'int64' handle".split(),
    "compiled": "x scalar empty shape 3 ndarray ndarray_int (0, 1) True 'main'".split(),
}
LIKELY |= {"nn": LIKELY["op"], "image": LIKELY["op"], "relax": LIKELY["op"], "te": LIKELY["tir"]}
RUNS = ("compiled", "bytecode", "kernel")
LIKELY |= {"bytecode": LIKELY["compiled"], "kernel": LIKELY["compiled"]}


def make(rng: random.Random) -> dict:
    path = rng.choice(list(functions()))
    names = list(pool())
    likely = [n for n in LIKELY.get(path.split(".")[0], ()) if n in pool()] or names
    value = lambda: rng.choice(likely if rng.random() < 0.6 else names)  # noqa: E731
    positional, keywords = 0, []
    try:
        for p in inspect.signature(functions()[path]).parameters.values():
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                positional += p.default is p.empty
            if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is not p.empty:
                keywords.append(p.name)
    except (TypeError, ValueError):
        pass
    if rng.random() < 0.15 or not positional:
        positional = rng.randint(0, 6)
    chosen = rng.sample(keywords, min(len(keywords), rng.choice([0, 0, 1, 2])))
    return {
        "path": path,
        "args": [value() for _ in range(positional)],
        "keywords": [[key, value()] for key in chosen],
    }


def is_typed(path: str) -> bool:
    """Whether every error of that function is one of this package."""
    function = functions()[path]
    return path.split(".")[0] in RUNS or isinstance(getattr(function, "op", None), tvm.ir.Op)


def check(case: dict) -> bool:
    path, values = case["path"], pool()
    args = [values[name] for name in case["args"]]
    keywords = {key: values[name] for key, name in case["keywords"]}
    try:
        with np.errstate(all="ignore"):
            str(functions()[path](*args, **keywords))
    except (InternalError, SystemError):
        raise
    except RelaxvmError as error:
        str(error)
        return False
    except Exception as error:
        # Python's own, of a wrong number of arguments; what the caller's function raises.
        theirs = error.__traceback__.tb_next is None or "raises" in str(case)
        if is_typed(path) and not theirs:
            raise
        return False
    return True
