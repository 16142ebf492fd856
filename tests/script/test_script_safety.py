"""What text from strangers can reach: everything there is, gone through from the names it sees."""

from __future__ import annotations

import itertools
import sys
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, tir
from relaxvm.base import ParseError, RelaxvmError
from relaxvm.relax import op as operators
from relaxvm.script import _NAMES, from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T
from relaxvm.script.reader import VALUES
from relaxvm.script.reader.guards import SAFE_BUILTINS, Guard, is_value
from relaxvm.script.reader.outer import MISSING

# -- what Python does while text is read

WATCHED = (
    "open", "exec", "compile", "import", "os.", "subprocess.", "socket.", "shutil.", "marshal.",
    "pickle.", "ctypes.dl", "ctypes.call_function", "sys._getframe", "sys.set",
)  # fmt: skip
_events: list[str] | None = None


def _hook(event, args):
    if _events is not None and event.startswith(WATCHED):
        _events.append(f"{event} {args!r}"[:200])


sys.addaudithook(_hook)


def watched(work):
    """What `work` gives, and what Python did outside itself meanwhile. Parsing a syntax tree is
    "compile" without a code object: that of a text is left out.
    """
    global _events
    _events = []
    try:
        return work(), [e for e in _events if not e.startswith("compile")]
    finally:
        _events = None


# -- everything that is reachable

n = tir.Var("n", "int64")
A = tir.decl_buffer((n, 4), "float32", "A")
x = relax.Var("x", relax.TensorStructInfo((n, 4), "float32"))
SAMPLES = [
    n,
    A,
    x,
    n + 1,
    A[n, 0],
    3,
    0.5,
    "float32",
    "llvm",
    [n, 4],
    (x, x),
    {"a": 1},
    x.struct_info,
    T.float32,
    R.Tensor((4,), "float32"),
    relax.const(np.ones((2, 3), "float32")),
    tir.IterVar(tvm.ir.Range.from_min_extent(0, 4), n, "spatial"),
    tvm.nd.array(np.zeros(3, "float32")),
    tvm.ir.Map({"a": 1}),
    I.vdevice("llvm"),
    T.block("b"),
    T.target("llvm"),
    relax.PrimValue(3),
    relax.ShapeExpr((n, 4)),
    relax.FuncStructInfo((x.struct_info,), x.struct_info),
    tvm.ir.GlobalVar("f"),
    b"bytes",
    None,
    range(4),
]


def names_of(value):
    return sorted({*dir(value), *(vars(value) if isinstance(value, ModuleType) else ())})


def reachable():
    """What text reaches from the names it sees and from values of every kind, by attributes: path
    to value.
    """
    found = {}
    stack = [(name, value) for name, value in {**SAFE_BUILTINS, **_NAMES}.items()]
    stack += [(f"<{type(value).__name__}>", value) for value in SAMPLES]
    seen = {}
    while stack:
        path, value = stack.pop()
        if id(value) in seen or (path.count(".") > 4):
            continue
        seen[id(value)] = value
        found[path] = value
        for name in names_of(value):
            try:
                attribute = Guard(10_000).attribute(value, name)
            except (RelaxvmError, AttributeError):
                continue
            if attribute is not MISSING:
                stack.append((f"{path}.{name}", attribute))
    return found


REACHABLE = reachable()
CALLABLE = (FunctionType, MethodType, BuiltinFunctionType, type)


def test_text_reaches_values_of_the_table_functions_of_the_languages_and_nothing_else():
    homes = ("relaxvm.script.", "relaxvm.tir.", "relaxvm.ir.expr", "relaxvm.relax.")
    for path, value in REACHABLE.items():
        if isinstance(value, (ModuleType, SimpleNamespace)):
            name = getattr(value, "__name__", "relaxvm.script.")
            assert name.startswith(("relaxvm.script.", "relaxvm.relax.op.")), path
        elif isinstance(value, (MethodType, BuiltinFunctionType)) and path not in SAFE_BUILTINS:
            owner, name = value.__self__, path.rpartition(".")[2]
            nearest = next(kind for kind in type(owner).__mro__ if kind in VALUES)
            assert name in VALUES[nearest].split(), path
        elif isinstance(value, CALLABLE):
            module = getattr(value, "__module__", "") or ""
            assert path in SAFE_BUILTINS or module.startswith((*homes, "functools")), path
        else:
            assert is_value(value), path


def test_of_the_graph_language_text_reaches_operators_only():
    written = {*R.__all__, "call_packed", "linear", "masked_fill"}
    for path, value in REACHABLE.items():
        room, _, name = path.partition(".")
        if room == "R" and isinstance(value, FunctionType) and name not in written:
            assert isinstance(value.op, tvm.ir.Op), path
    families = [name for name in dir(R) if isinstance(getattr(R, name), ModuleType)]
    assert families and "te_gradient" in names_of(operators.grad)
    assert not any(path.endswith("register_te_gradient") for path in REACHABLE)


def check_calls(pairs):
    """Call everything reachable with samples of every kind, and with pairs of the first `pairs`."""
    arguments = [(), *itertools.product(SAMPLES), *itertools.product(SAMPLES[:pairs], repeat=2)]
    given = set()

    def work():
        for path, func in REACHABLE.items():
            if not callable(func) or getattr(func, "script_language", None) is not None:
                continue
            for args in arguments:
                try:
                    made = Guard(100_000).call(func, list(args), {})
                except Exception:
                    continue
                assert is_value(made), (path, args)
                given.add(type(made))

    work()  # what is imported when it is first needed, is imported
    _, events = watched(work)
    assert not events
    assert {relax.Call, tir.Buffer, relax.Constant, tir.IterVar, tir.PrimFunc} - given == {
        tir.PrimFunc
    }


def test_every_call_gives_a_value_of_the_table_and_touches_nothing_outside():
    check_calls(3)


@pytest.mark.slow
def test_calls_with_all_pairs_of_arguments_touch_nothing_outside():
    check_calls(len(SAMPLES))


# -- attempts

WHERE = {
    "tir": (
        "@T.prim_func\ndef f(A: T.Buffer((4,), 'int32'), n: T.int32):\n    A[0] = {}\n",
        3,
    ),
    "relax": (
        "@R.function\ndef f(x: R.Tensor(('n',), 'int32'), A: R.Tensor((4,), 'int32')):\n"
        "    y = R.add(x, {})\n    return y\n",
        3,
    ),
    "attribute": (
        "@I.ir_module\nclass M:\n    I.module_attrs({{'a': {}}})\n    @R.function\n"
        "    def f(x: R.Tensor((4,), 'int32')):\n        return x\n",
        3,
    ),
}
CONST = 'R.const([112, 114], "uint8")'
ATTEMPTS = [
    f"{CONST}.data.numpy().tofile(PATH)",
    f"{CONST}.data",
    f"{CONST}.data.numpy().dump(PATH)",
    f"{CONST}.data.numpy().ctypes.data",
    f"{CONST}.data.numpy().fill(7)",
    f"{CONST}.show()",
    f"{CONST}.script()",
    f"{CONST}.replace(data=1)",
    f"{CONST}.span.source",
    "metadata.get.__self__",
    "R.exp.op.numpy(1)",
    "R.exp.__wrapped__",
    "R.exp.op",
    "R.grad.register_te_gradient('a')",
    "R.nn.numpy",
    "R.nn.np",
    "R.op",
    "T.exp.__globals__['__builtins__']",
    "T.Buffer.__call__.__globals__",
    "T.int32.dtype.__class__",
    "T.int32.dtype.format('a')",
    "T.axis.remap.__globals__",
    "T.Var.__init__",
    "T.IterVar.mro()",
    "T.Var.replace",
    "T.macro(T.exp)",
    "T.prim_func(T.exp)",
    "R.function(R.exp)",
    "R.function()",
    "I.ir_module(I.Range)",
    "I.sys.modules",
    "tvm.script.ir.sys",
    "tvm.script.parser",
    "tvm.__dict__",
    "R.emit_te(T.target, 'llvm')",
    "R.emit_te(R.function, 1)",
    "R.emit_te(print, 1)",
    "sorted([1, 2], key=T.target)",
    "max([1, 2], key=T.exp)",
    "max([n, 1], key=str)",
    "str(T.exp)",
    "f'{T.exp}'",
    "f'{T}'",
    "f'{1!r:{T.exp}}'",
    "'{0.__class__}'.format(1)",
    "'%s' % T.exp",
    "''.join(['a'])",
    "'a'.encode()",
    "(1).to_bytes(3, 'big')",
    "int.from_bytes(b'1', 'big')",
    "str.mro()",
    "dict.fromkeys([1])",
    "[].append(1)",
    "{}.update({1: 2})",
    "{'a': T}['a'].sys",
    "[T.exp for i in range(2)]",
    "(T, 1)[0].sys",
    "[T][0]",
    "list[int]",
    "T.Var | None",
    "T | R",
    "range(3).start.real",
    "(lambda: 1)()",
    "(y := 1)",
    "A.__class__",
    "A.replace(name='b')",
    "T.target('llvm').kind",
    "T.target('llvm').__enter__()",
    "T.target('llvm').export()",
    "T.call_extern",
    "R.call_packed",
    "open(PATH, 'w')",
    "__import__('os')",
    "__builtins__",
    "breakpoint()",
    "globals()",
    "type(1)",
    "getattr(1, 'real')",
    "I.vdevice(T)",
    "T.block('a').name",
    "T.grid(4).loops",
]


@pytest.mark.parametrize("place", WHERE)
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_text_that_reaches_out_is_refused_with_its_line_and_does_nothing(attempt, place, tmp_path):
    path = tmp_path / "written"
    text, line = WHERE[place]
    text = text.format(attempt.replace("PATH", repr(str(path))))

    def parse():
        with pytest.raises(ParseError) as caught:
            from_source(text)
        return caught.value

    error, events = watched(parse)
    assert error.lineno == line
    assert not path.exists() and not events


@pytest.mark.parametrize(
    "head",
    [
        "from tvm.script.tir import sys",
        "from tvm.script.tir import records",
        "from tvm.script.tir import decorate_function as d",
        "from tvm.script.relax import op",
        "from tvm.script.relax.op import nn",
        "from tvm.script.relax import nn as os, sys",
        "import os",
        "import os.path as T",
        "import T",
        "from T.axis import remap",
        "from . import x",
        "from tvm.script.ir import __builtins__",
    ],
)
def test_an_import_of_text_brings_in_what_the_languages_offer_only(head):
    body = "@T.prim_func\ndef f(n: T.int32):\n    T.evaluate(n)\n"
    with pytest.raises(ParseError) as caught:
        from_source(f"{head}\n{body}")
    assert caught.value.lineno == 1


def test_an_import_may_name_what_the_languages_offer():
    text = "from tvm.script.tir import exp as e\n@T.prim_func\ndef f(A: T.Buffer((4,))):\n"
    made = from_source(f"{text}    A[0] = e(A[1])\n")
    assert made.body.value.op.name == "tir.exp"
