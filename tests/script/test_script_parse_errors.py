"""Mistakes in script text: what is said, and where."""

from __future__ import annotations

import re

import pytest

from relaxvm.base import DiagnosticError, ParseError, StructInfoError, TIRError
from relaxvm.script import from_source
from relaxvm.script import tir as T

TIR = '@T.prim_func\ndef f(A: T.Buffer((16,), "float32"), n: T.int32, a: T.handle):\n    '
RELAX = '@R.function\ndef f(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):\n    '


def failure(lines, head=TIR):
    """The error that text gives."""
    with pytest.raises(ParseError) as caught:
        from_source(head + "\n    ".join(lines.split("\n")))
    return caught.value


@pytest.mark.parametrize(
    ("lines", "message", "at"),
    [
        # unknown and unsupported
        ("A[0] = B[0]", "unknown name B", "B"),
        ("A[0] = T.expp(n)", "T has no expp; did you mean exp", "T.expp"),
        ("A[0] = A.shap", "A (a Buffer) has no shap; did you mean shape", "A.shap"),
        ("try:\n    pass\nexcept E:\n    pass", "try is not in the language", "try"),
        ("class B: pass", "a class inside a function is not in the language", "class"),
        ("del A", "del is not in the language", "del A"),
        ("global nothing", "unknown name nothing", "global nothing"),
        ("import os", "import is not in the language", "import os"),
        ("A[0] = lambda i: i", "got Lambda", "A[0] = lambda i: i"),
        ("A[0] = (y := n)", "an assignment inside an expression", "y := n"),
        ("break", "break stands inside a loop", "break"),
        ("raise ValueError", "raise", "raise ValueError"),
        ("def g(): pass", "use T.macro", "def"),
        ("async def g(): pass", "async def", "async"),
        ("x = yield n", "yield", "yield n"),
        # names and stores
        ("x = n + 1\nx = n + 2", "x is bound already", "x"),
        (
            "x = n + 1\nfor i in range(4):\n    x = x + 1",
            "does not change once it is bound",
            "x = x + 1",
        ),
        ("x = n + 1\nx += 1", "does not change once it is bound", "x += 1"),
        ("m = n\nm.x = 1", "on the left", "m.x"),
        ("x = y = n", "one target at a time", "x = y = n"),
        ("x, y = n", "wanted 2 values, got one Var", "x, y"),
        ("x, y = n, n, n", "wanted 2 values for these names, got 3", "x, y"),
        ("A[0, 1] = T.float32(1)", "buffer A has 1 dimensions, got 2 indices", "A[0, 1]"),
        ("A[T.float32(0)] = T.float32(1)", "wanted an integer", "A[T.float32(0)]"),
        ("A[0] = A", "needs indices here", None),
        ("A[0] = None", "wanted a scalar expression", None),
        ("n[0] = 1", "wanted a buffer to store into, got Var", "n[0]"),
        ("x: T.int32 = A[0]", "x is declared int32, the value is float32", None),
        ("x: T.int32", "x needs a value", "x: T.int32"),
        # dtypes
        ("A[0] = T.hypot(n, n)", "hypot takes floating arguments, got int32", "T.hypot(n, n)"),
        ("A[0] = A[0] / n & 1", "bitwise_and takes integer arguments", None),
        ("A[0] = n / 2", "/ on int32 is ambiguous", "n / 2"),
        ("x = T.int8(300)", "300 does not fit int8", "T.int8(300)"),
        ("if n:\n    pass", "wanted a bool condition, got int32", "n"),
        ("while n:\n    pass", "wanted a bool condition", "n"),
        ("if A[0] < 1 and n:\n    pass", "wanted a bool condition", "A[0] < 1 and n"),
        ('assert n, "m"', "wanted a bool condition", "n"),
        ("assert n > 0, 3", "the message: wanted a string", None),
        (
            "A[0:4] = T.Broadcast(T.float32(1), 3)",
            "4 elements of buffer A are stored, the value has 3",
            "A[0:4]",
        ),
        ("A[0:n] = T.float32(1)", "constant length", None),
        # loops
        ("for i in A:\n    pass", "wanted range(...)", "A"),
        (
            "for i in range(4, 8, 2, 1):\n    pass",
            "range(begin, end) or with a step",
            "range(4, 8, 2, 1)",
        ),
        ("for i, j, k in T.grid(4, 4):\n    pass", "2 loops need 2 variables, got 3", "i, j, k"),
        ("for i, i in T.grid(4, 4):\n    pass", "appears twice", "i, i"),
        (
            "for i in range(A[0]):\n    pass",
            "bounds of a loop are integers, got float32",
            "range(A[0])",
        ),
        ("for i in T.serial():\n    pass", "TypeError", "T.serial()"),
        ("for i in T.thread_binding(4):\n    pass", "thread", "T.thread_binding(4)"),
        ("for A[0] in range(4):\n    pass", "a loop variable is a name", "A[0]"),
        ("for i in range(4):\n    pass\nelse:\n    pass", "else after for", "pass"),
        # blocks
        ('with T.block("b"):\n    vi = T.axis.spatial(4)', "needs the value", "vi"),
        ('with T.block("b"):\n    vi = T.axis.spatial((1, 2, 3), 0)', "got 3 values", "vi"),
        (
            'for i in range(4):\n    with T.block("b"):\n        vi = T.axis.remap("SS", [i])',
            "2 kinds in 'SS' for 1 loops",
            None,
        ),
        (
            'for i in range(4):\n    with T.block("b"):\n        vi = T.axis.remap("X", [i])',
            "got 'X'",
            None,
        ),
        (
            'with T.block("b"):\n    vi = T.axis.remap("S", [n])',
            "variables of enclosing loops",
            None,
        ),
        (
            'for i in range(4):\n    with T.block("b"):\n        vi, vj = T.axis.remap("S", [i])',
            "wanted 2 values for these names, got 1",
            "vi, vj",
        ),
        ("vi = T.axis.spatial(4, 0)", "stands directly inside a block", "vi"),
        ("T.reads(A[0])", "stands directly inside a block", "T.reads(A[0])"),
        (
            'with T.block("b"):\n    T.reads(A[0])\n    T.reads(A[0])',
            "given twice",
            "T.reads(A[0])",
        ),
        ('with T.block("b"):\n    T.reads(n)', "wanted a buffer region", "T.reads(n)"),
        ("with T.init():\n    pass", "stands directly inside a block", "T.init()"),
        ("with T.block(3):\n    pass", "wanted a string, got int", "T.block(3)"),
        ("with n:\n    pass", "means nothing here", "n"),
        ('with T.block("b") as x:\n    pass', "drop `as ...`", "x"),
        ('with T.allocate([4], "int32"):\n    pass', "wanted a name", None),
        # misplaced descriptions
        ("x = T.block()", "T.block does not stand here", "x"),
        ("T.alloc_buffer((4,))", "T.alloc_buffer does not stand here", "T.alloc_buffer((4,))"),
        (
            "B = T.alloc_buffer((4,), bytes=3)",
            "unexpected keyword argument 'bytes'; a buffer is described by shape, dtype, data",
            "T.alloc_buffer((4,), bytes=3)",
        ),
        ("T.meta_var(n)", "must be assigned to a name", "T.meta_var(n)"),
        ("for i in range(4):\n    B = T.alloc_buffer((4,))", "inside a block", "B"),
        (
            "for i in range(4):\n    T.func_attr({})",
            "at the top of the function",
            "T.func_attr({})",
        ),
        ("T.func_attr({1: 2})", "wanted a string, got int", None),
        ("B = T.match_buffer(n, (4,))", "parameter n is int32, not T.handle", "B"),
        ("B = T.match_buffer(a, (4,))\nC = T.match_buffer(a, (4,))", "is matched already", "C"),
        ("B = T.match_buffer(3, (4,))", "wanted a parameter or a region", None),
        ("B = T.match_buffer(a)", "needs a shape", None),
        ("T.evaluate(A)", "needs indices", "T.evaluate(A)"),
        ("n(3)", "Var cannot be called", "n(3)"),
        ("T.exp(A[0], x=1)", "TypeError", None),
        ("T.exp(*A)", "cannot be iterated", "*A"),
        ("x = list(A)", "cannot be iterated", "list(A)"),
    ],
)
def test_mistakes_in_loop_functions(lines, message, at):
    error = failure(lines)
    assert message in str(error)
    assert isinstance(error, DiagnosticError)
    assert error.filename.startswith("<script ")
    line = (TIR + "\n    ".join(lines.split("\n"))).split("\n")[error.lineno - 1]
    assert error.text == line
    if at is not None:
        assert line[error.offset - 1 :].startswith(at.split("\n")[0])
        if error.end_lineno == error.lineno and " " not in at:
            assert line[error.offset - 1 : error.end_offset - 1].startswith(at)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("y = {1: 2} - [3]\nreturn y", "unsupported operand"),
        ("y = x[0]\nreturn y", "a tensor cannot be indexed"),
        ("y = R.call_tir(x, x, R.Tensor((4,), 'float32'))\nreturn y", "call_tir"),
        ("y = R.call_dps_packed('f', x)\nreturn y", "out_sinfo"),
        ("y = R.shape_of(R.shape([3]))\nreturn y", "wanted a tensor"),
        ("y = R.shape_of()\nreturn y", "shape_of"),
        ("y = R.Tensor\nreturn y", "struct info is no value"),
        ("y = R.dataflow()\nreturn y", "R.dataflow does not stand here"),
        ("y = x\nR.output(y)\nreturn y", "end of a dataflow block"),
        (
            "with R.dataflow():\n    y = R.shape_of(x)\n    R.output(z)\nreturn y",
            "z is not bound in this dataflow block",
        ),
        ("with R.dataflow():\n    y = x\n    R.output(x[0])\nreturn y", "variables of this block"),
        ("with R.dataflow() as d:\n    y = x\nreturn y", "wanted `with R.dataflow():`"),
        ("with x:\n    y = x\nreturn y", "wanted R.dataflow()"),
        ("for i in range(4):\n    y = x\nreturn y", "for is not in the language of R"),
        ("while c:\n    y = x\nreturn y", "while is not in the language of R"),
        ("x += x\nreturn x", "an augmented assignment is not in the language of R"),
        ("y: T.int32 = x\nreturn y", "R.Prim"),
        ("y: 3 = x\nreturn y", "wanted struct info"),
        ("a, b = x\nreturn a", "wanted a tuple of 2 values"),
        ("a, b = (x, x, x)\nreturn a", "wanted 2 values for these names, got 3"),
        ("y = R.match_cast(x, 3)\nreturn y", "wanted struct info"),
        ("y = R.call_packed('f', x, sinfo_args=3)\nreturn y", "sinfo_args"),
        ("def g(): pass\nreturn x", "decorated with @R.function"),
        ("y = c.foo\nreturn y", "c (a Var) has no foo"),
        ("T.evaluate(0)\nreturn x", "T.evaluate does not stand here"),
        ("y = R.Tensor(('q',))\nreturn x", "unknown symbol 'q'"),
        ("y = R.Tensor(('1 +',))\nreturn x", "in '1 +'"),
        ("n = T.int64()\nn = T.int32()\nreturn x", "symbol n is int64 already"),
        ("return", "return needs a value"),
        ("y = None\nreturn y", "gives no value"),
        ("R.func_attr(3)\nreturn x", "wanted a dict"),
    ],
)
def test_mistakes_in_graph_functions(lines, message):
    assert message in str(failure(lines, RELAX))


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("@T.prim_func\ndef f(x): pass", "needs an annotation"),
        ("@T.prim_func\ndef f(*x): pass", "no * or **"),
        ("@T.prim_func\ndef f(x: T.int32 = 3): pass", "no default"),
        ("@T.prim_func\ndef f(*, x: T.int32): pass", "keyword-only"),
        ("@T.prim_func\ndef f(x: 3): pass", "wanted T.Buffer"),
        ("@T.prim_func\ndef f(x: T.Buffer): pass", "needs a shape"),
        ("@T.prim_func\ndef f(x: T.Buffer((4,), 'float33')): pass", "unknown dtype"),
        ("@T.prim_func\ndef f(x: T.int32) -> 3: pass", "wanted a scalar type"),
        ("@T.prim_func\ndef f(x: T.int32, x: T.int32): pass", "twice"),
        ("@R.function\ndef f(x): return x", "needs an annotation"),
        ("@R.function\ndef f(x: T.int32): return x", 'R.Prim("int32")'),
        ("@R.function\ndef f(x: T.Buffer((4,))): return x", "use R.Tensor"),
        ("@R.function\ndef f(x: R.Tensor((-1,))): return x", "not negative"),
        ("@R.function\ndef f(x: R.Tensor((4,), ndim=2)): return x", "ndim=2"),
        ("@R.function\ndef f(n: R.Tensor(('n',))): return n", "name of a symbol"),
        ("@R.function\ndef f(x: R.Tensor((4,), vdevice='llvm')): return x", "module_global_infos"),
    ],
)
def test_mistakes_in_signatures(signature, message):
    with pytest.raises(ParseError, match=re.escape(message)):
        from_source(signature)


def test_the_message_names_place_and_shows_the_line_with_a_caret():
    error = failure("A[0] = T.hypot(n, n)")
    place, line, caret = str(error).split("\n")
    assert (
        place.startswith(f"{error.filename}:3:12: tir.hypot takes floating")
        or ":3:12: hypot takes" in place
    )
    assert line == "        A[0] = T.hypot(n, n)"
    assert caret == " " * 15 + "^" * 13


def test_the_cause_is_kept():
    assert isinstance(failure("A[0] = T.hypot(n, n)").__cause__, TIRError)
    error = failure("y = R.shape_of(R.shape([3]))\nreturn y", RELAX)
    assert isinstance(error.__cause__, StructInfoError)


def test_mistakes_in_python_files_point_into_them():
    with pytest.raises(SyntaxError) as caught:

        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            A[0] = missing_name

    assert caught.value.filename == __file__
    assert caught.value.text.strip() == "A[0] = missing_name"


def test_python_syntax_errors_keep_their_place():
    with pytest.raises(ParseError, match=r"<script .*>:3:") as caught:
        from_source("@T.prim_func\ndef f(n: T.int32):\n    x = = 3\n")
    assert caught.value.lineno == 3
    with pytest.raises(ParseError, match="null bytes"):
        from_source("\0")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('T.block_attr({"a": 1})\n            T.block_attr({"a": 2})', "'a' has a value already"),
        ('T.block_attr({"a": 1, "b": 2, "a": 3})', "the key 'a' stands twice in one dict"),
        ("vi = T.axis.spatial(16, i)", "vi is a variable already"),
        (
            "M = T.match_buffer(A[vi], ())\n            M = T.match_buffer(B[vi], ())",
            "M is a buffer",
        ),
        ("A = T.alloc_buffer((4,))\n            A = T.alloc_buffer((4,))", "A is a buffer already"),
    ],
)
def test_nothing_takes_over_an_axis_a_buffer_or_an_attribute(body, message):
    text = f"""
@T.prim_func
def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            {body}
            B[vi] = A[vi]
"""
    with pytest.raises(ParseError, match=message):
        from_source(text)


def test_nothing_takes_over_an_attribute_of_a_graph_function():
    text = """
@R.function
def f(x: R.Tensor((2,), "float32")):
    R.func_attr({"a": 1})
    R.func_attr({"b": 1, "a": 2})
    return x
"""
    with pytest.raises(ParseError, match="R.func_attr: 'a' has a value already"):
        from_source(text)
