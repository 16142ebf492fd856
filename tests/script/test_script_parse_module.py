"""Where script text comes from, what it can see, and modules as a whole."""

from __future__ import annotations

import linecache
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import relaxvm.script
from relaxvm import relax, tir
from relaxvm.base import ParseError
from relaxvm.ir import DummyGlobalInfo, IRModule, VDevice, assert_structural_equal
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T
from relaxvm.tir import BufferLoad

GLOBAL_WIDTH = 8


def twice(value):
    return value + value


# -- capture -------------------------------------------------------------------------------------


def test_names_of_enclosing_functions_and_modules_are_seen():
    rows, dtype, shape = 4, "float32", (4, GLOBAL_WIDTH)

    def scaled(value):
        return value * T.float32(rows)

    @T.prim_func
    def f(A: T.Buffer(shape, dtype)):
        for i, j in T.grid(rows, GLOBAL_WIDTH):
            A[i, j] = scaled(twice(A[i, j]))

    assert [int(d) for d in f.buffers[0].shape] == [4, 8]
    a = np.ones((4, 8), "float32")
    tir.interpret(f, a)
    np.testing.assert_array_equal(a, 8.0)


def test_closure_variables_of_functions_inside_a_class_are_seen():
    def build(count):
        factor = count * 2

        @I.ir_module
        class Module:
            @T.prim_func
            def f(A: T.Buffer((16,), "int32")):
                for i in range(factor):
                    A[i] = factor

            @R.function
            def main(x: R.Tensor((4,), "float32")):
                return R.prim_value(factor)

        return Module

    for count in (2, 3):
        module = build(count)
        assert int(module["f"].body.extent) == count * 2
        assert int(module["main"].body.body.value) == count * 2


def test_captured_lambdas_arrays_and_constants():
    weights = np.arange(4, dtype="float32")
    one = relax.const(1.0)
    pick = lambda i: i + 1  # noqa: E731

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        w = R.const(weights)
        c = one
        s = R.shape([pick(3), GLOBAL_WIDTH])
        return (w, c, s)

    w, c, s = (b.value for b in main.body.blocks[0].bindings)
    np.testing.assert_array_equal(w.data.numpy(), weights)
    assert c is one
    assert [int(d) for d in s.values] == [4, 8]


def test_functions_from_outside_the_module_are_refused_with_advice():
    @T.prim_func
    def outside(A: T.Buffer((4,), "float32")):
        A[0] = T.float32(1)

    with pytest.raises(ParseError, match=r"outside is a function from outside.*BlockBuilder"):

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = R.call_tir(outside, (x,), R.Tensor((4,), "float32"))
            return y


def test_script_names_hide_python_names():
    i = 100

    @T.prim_func
    def f(A: T.Buffer((4,), "int32")):
        for i in range(4):
            A[i] = i
        A[0] = i

    assert int(f.body.seq[1].value) == i


# -- sources -------------------------------------------------------------------------------------


def test_two_classes_of_one_name_in_one_file_are_told_apart():
    @I.ir_module
    class Same:
        @T.prim_func
        def f(A: T.Buffer((4,), "int32")):
            A[0] = 1

    first = Same

    @I.ir_module
    class Same:
        @T.prim_func
        def f(A: T.Buffer((4,), "int32")):
            A[0] = 2

    assert [int(m["f"].body.value) for m in (first, Same)] == [1, 2]


def test_decorators_of_every_spelling():
    @relaxvm.script.ir_module
    class A:
        @T.prim_func(private=True, check_well_formed=True)
        def f(A: T.Buffer((4,), "int32")):
            A[0] = 1

    @I.ir_module(check_well_formed=True)
    class B:
        @T.prim_func(private=True)
        def f(A: T.Buffer((4,), "int32")):
            A[0] = 1

    assert isinstance(A, IRModule)
    assert_structural_equal(A, B)


def test_a_function_decorated_in_a_plain_class_is_parsed_at_once():
    class Holder:
        @T.prim_func
        def f(A: T.Buffer((4,), "int32")):
            A[0] = 1

    assert isinstance(Holder.f, tir.PrimFunc)


def test_text_registered_in_linecache_has_a_source():
    text = textwrap.dedent(
        """
        from relaxvm.script import tir as T

        @T.prim_func
        def f(A: T.Buffer((4,), "int32")):
            A[0] = K
        """
    )
    linecache.cache["<cell 1>"] = (len(text), None, text.splitlines(keepends=True), "<cell 1>")
    scope = {"K": 5, "__name__": "cell"}
    exec(compile(text, "<cell 1>", "exec"), scope)
    assert int(scope["f"].body.value) == 5
    assert scope["f"].body.span.source == "<cell 1>"
    del linecache.cache["<cell 1>"]


def test_no_source_is_said_clearly():
    scope = {}
    code = "from relaxvm.script import tir as T\n@T.prim_func\ndef f(n: T.int32):\n    pass\n"
    with pytest.raises(ParseError, match=r"wanted the source text of function f.*from_source"):
        exec(compile(code, "<nowhere>", "exec"), scope)
    done = subprocess.run(
        [sys.executable, "-c", "from relaxvm.script import ir as I\n@I.ir_module\nclass A: pass"],
        capture_output=True,
        text=True,
        check=False,
    )
    # From Python 3.13 on, the text after -c can be read.
    assert done.returncode == 0 or "wanted the source text of class A" in done.stderr


def test_spans_count_characters():
    f = from_source('@T.prim_func\ndef f(Ä: T.Buffer((4,), "int32")):\n    Ä[0] = 1; Ä[1] = 2\n')
    assert [s.span.column for s in f.body.seq] == [5, 15]


# -- text ----------------------------------------------------------------------------------------

MODULE = """
# from tvm.script import ir as I
import tvm
from tvm.script import ir as I, tir as T, relax as R
from tvm.script.parser import tir as TT

@tvm.script.ir_module
class Module:
    I.module_attrs({"version": 3, "list": [1, "a"]})
    I.module_global_infos(
        {"vdevice": [I.vdevice("llvm", 0), I.vdevice("cuda")], "dummy": [I.dummy_global_info()]}
    )

    @TT.prim_func(private=True)
    def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i]

    @R.function
    def main(
        x: R.Tensor((4,), "float32", "llvm:0"), y: R.Tensor((4,), "float32", vdevice="cuda")
    ) -> R.Object:
        z = R.call_tir(Module.f, (x,), out_sinfo=R.Tensor((4,), "float32"))
        return z
"""


def test_modules_from_text():
    mod = from_source(MODULE)
    assert [gv.name_hint for gv in mod] == ["f", "main"]
    assert dict(mod.attrs) == {"version": 3, "list": (1, "a")}
    llvm, cuda = mod.global_infos["vdevice"]
    assert isinstance(llvm, VDevice)
    assert isinstance(mod.global_infos["dummy"][0], DummyGlobalInfo)
    x, y = mod["main"].params
    assert x.struct_info.vdevice is llvm
    assert y.struct_info.vdevice is cuda
    assert "global_symbol" not in mod["f"].attrs
    assert mod["main"].attrs["global_symbol"] == "main"


def test_from_source_takes_extra_names_and_indented_text():
    f = from_source(
        """
        @T.prim_func
        def f(A: T.Buffer((N,), "int32")):
            A[0] = g(N)
        """,
        {"N": 4, "g": lambda n: n + 1},
    )
    assert int(f.body.value) == 5
    assert from_source(f) is f


def test_from_source_takes_python_classes_and_functions():
    class Module:
        @T.prim_func
        def f(A: T.Buffer((4,), "int32")):
            A[0] = 1

    # The function was parsed on its own already; the class is parsed from its text.
    assert isinstance(from_source(Module), IRModule)
    assert relaxvm.script.parse is from_source


def test_printed_modules_read_back():
    mod = from_source(MODULE)
    assert_structural_equal(from_source(mod.script()), mod)


def test_large_constants_come_back_from_their_metadata():
    data = np.arange(100, dtype="float32")

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        w = R.const(data)
        return w

    text = main.script(show_meta=True)
    again = from_source(text)
    np.testing.assert_array_equal(again.body.blocks[0].bindings[0].value.data.numpy(), data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "defines 0"),
        ("x = 1", "wanted a class or a function"),
        ("@T.prim_func\ndef f(n: T.int32):\n    pass\n" * 2, "defines 2"),
        ("def f(): pass", "neither @T.prim_func nor @R.function"),
        ("class A: pass", "not decorated with @I.ir_module"),
        ("import os\n@T.prim_func\ndef f(n: T.int32): pass", "cannot import os"),
        ("from tvm.script import nothing", "cannot import tvm.script.nothing"),
        ("@I.ir_module\nclass A(B): pass", "no bases"),
        ("@I.ir_module\nclass A:\n    x = 1", "a module class holds"),
        ("@I.ir_module\nclass A:\n    def f(self): pass", "neither"),
        (
            "@I.ir_module\nclass A:\n" + "    @T.prim_func\n    def f(n: T.int32): pass\n" * 2,
            "already",
        ),
        ("@I.ir_module(fast=True)\nclass A: pass", "no option fast"),
        ("@T.prim_func(privat=True)\ndef f(n: T.int32): pass", "did you mean private"),
        ("@T.prim_func(True)\ndef f(n: T.int32): pass", "options by name"),
    ],
)
def test_texts_that_are_no_program(text, message):
    with pytest.raises(ParseError, match=message):
        from_source(text)


def test_ill_formed_functions_are_refused_where_the_rule_is_broken():
    with pytest.raises(ParseError, match="not well formed") as caught:
        from_source(
            "@I.ir_module\nclass M:\n"
            "    @R.function\n    def main(x: R.Tensor((4,), 'float32')):\n"
            "        y = R.call_packed('f', x, sinfo_args=R.Object)\n        return y\n"
        )
    assert caught.value.lineno == 5
    assert caught.value.__cause__ is not None
    kept = from_source(
        "@I.ir_module(check_well_formed=False)\nclass M:\n"
        "    @R.function\n    def main(x: R.Tensor((4,), 'float32')):\n"
        "        y = R.call_packed('f', x, sinfo_args=R.Object)\n        return y\n"
    )
    assert kept["main"].is_pure


def test_loads_keep_the_buffer_of_the_parameter():
    f = from_source(
        "@T.prim_func\ndef f(A: T.Buffer((4,), 'int32'), B: T.Buffer((4,), 'int32')):\n"
        "    A[0] = B[1]\n"
    )
    assert f.body.value is BufferLoad(f.buffers[1], (1,))
