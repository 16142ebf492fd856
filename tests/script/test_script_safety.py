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
    homes = (*homes, "relaxvm.runtime.device")
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
    "(lambda: open)()",
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


# -- how much


def doubling(start, step, end, head="@T.prim_func\ndef f(A: T.Buffer((4,), 'int32'), n: T.int32):"):
    """Text in which each of many lines means twice as much as the one before."""
    steps = [f"    x{i + 1} = {step.format(x=f'x{i}')}" for i in range(200)]
    return "\n".join([head, f"    x0 = {start}", *steps, f"    {end}"]) + "\n"


GRAPH = "@R.function\ndef f(x0: R.Tensor((4,), 'int32')):"


@pytest.mark.parametrize(
    "text",
    [
        doubling("T.meta_var(n)", "T.meta_var({x} * {x})", "A[0] = x200"),
        doubling("T.meta_var(n)", "T.meta_var([{x} * {x}][0])", "A[0] = x200"),
        doubling("T.meta_var([1])", "T.meta_var([{x}, {x}])", "T.func_attr({'a': x200})"),
        doubling("T.meta_var([1])", "T.meta_var({x} + {x})", "T.func_attr({'a': x200})"),
        doubling("T.meta_var((1,))", "T.meta_var(({x},))", "T.evaluate(len({x200}))"),
        doubling("'a'", "{x} + {x}", "T.evaluate(1)"),
        doubling("'a'", "f'{{{x}}}{{{x}}}'", "T.evaluate(1)"),
        doubling(
            "T.alloc_buffer((n,))",
            "T.alloc_buffer(({x}.shape[0] * {x}.shape[0],))",
            "T.evaluate(1)",
        ),
        doubling("x0", "({x}, {x})", "return x200", GRAPH),
        doubling("T.meta_var(R.tuple(x0))", "T.meta_var(R.tuple({x}, {x}))", "return x200", GRAPH),
        doubling(
            "T.meta_var(R.Object)",
            "T.meta_var(R.Tuple({x}, {x}))",
            "return R.match_cast(x0, x200)",
            GRAPH,
        ),
        f"{GRAPH}\n    return R.const([[0] * 1000] * 100000)\n",
        f"{GRAPH}\n    return R.const([range(10 ** 9)])\n",
        f"{GRAPH}\n    return R.prim_value(round(1, -10 ** 9))\n",
        f"{GRAPH}\n    return R.prim_value(len(sum([[1]] * 100000, [])))\n",
        f"{GRAPH}\n    return R.str(str([[0] * 1000] * 100000))\n",
        f"{GRAPH}\n" + "    y = T.meta_var([0] * 900000)\n" * 3 + "    return x0\n",
    ],
    ids=range(17),
)
def test_what_a_text_builds_is_in_proportion_to_its_length(text):
    with pytest.raises(ParseError, match="too many|too deeply|too much|no value|sum adds|sequence"):
        from_source(text)


# -- what the caller gives, and the caller's own Python


TEXT = "@R.function\ndef f(x: R.Tensor((4,), 'float32')):\n    return R.add(x, {})\n"


def test_functions_that_the_caller_gives_may_be_called_and_give_values_only():
    made = from_source(TEXT.format("g(w)"), {"g": R.const, "w": np.ones(4, "float32")})
    assert isinstance(made, relax.Function)
    for gives in (object(), open, sys, [sys], {"a": (len,)}):
        with pytest.raises(ParseError, match="no value") as caught:
            from_source(TEXT.format("g()"), {"g": lambda gives=gives: gives})
        assert caught.value.lineno == 3


@pytest.mark.parametrize(
    "use",
    ["w.tofile('/nowhere')", "np.load('a')", "np.pi", "c.a", "w.ctypes", "w.__class__", "m['k'].w"],
)
def test_attributes_of_what_the_caller_gives_cannot_be_read(use):
    class Config:
        a = 1

    given = {"w": np.ones(4), "np": np, "c": Config(), "m": {"k": Config()}}
    with pytest.raises(ParseError, match="text cannot use|has no|private|no value"):
        from_source(TEXT.format(use), given)


def test_values_of_the_callers_own_python_are_the_callers(tmp_path):
    array = np.ones(4, "float32")
    path = tmp_path / "written"

    @R.function
    def f(x: R.Tensor((4,), "float32")):
        y = R.add(x, R.const(array.astype("float32").reshape(4)))
        z = R.call_pure_packed(str(array.tofile(path)), y, sinfo_args=R.Object)
        return z

    assert path.exists() and isinstance(f, relax.Function)


def test_a_string_in_the_callers_own_python_is_read_as_a_strangers(tmp_path):
    path = tmp_path / "written"
    k = 4
    assert k and path
    for size, message in [("open(path, 'w')", "unknown name open"), ("path.parent", "unknown")]:
        with pytest.raises(ParseError, match=message):

            @R.function
            def f(x: R.Tensor((size,), "float32")):
                return x

    @R.function
    def g(x: R.Tensor(("n * k",), "float32"), y: R.Tensor(("n",), "float32")):
        return x

    assert g.params[0].struct_info.ndim == 1 and not path.exists()


def test_a_macro_does_what_those_may_do_who_wrote_it():
    config = {"scale": np.float32(2)}

    @T.macro
    def scaled(A, i):
        A[i] = A[i] * T.float32(config["scale"].item())

    text = "@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    scaled(A, {})\n"
    assert from_source(text.format("1"), {"scaled": scaled}).script().count("2")
    with pytest.raises(ParseError, match="text cannot use"):
        from_source(text.format("scaled.node"), {"scaled": scaled})
    within = (
        "@T.macro\ndef m(A):\n    A[0] = T.exp.__globals__\n\n"
        "@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    m(A)\n"
    )
    with pytest.raises(ParseError, match="private") as caught:
        from_source(within)
    assert caught.value.lineno == 3
