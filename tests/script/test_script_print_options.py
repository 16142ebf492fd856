"""What the printer underlines, annotates, numbers and leaves out."""

from __future__ import annotations

import pytest

import relaxvm as tvm
from relaxvm.ir import (
    AccessPath,
    assert_structural_equal,
    get_first_structural_mismatch,
)
from relaxvm.script import from_source
from relaxvm.script import tir as T

TEXT = """@T.prim_func
def f(A: T.Buffer((16,), "float32"), n: T.int64):
    for i in range(16):
        A[i] = A[i] + T.float32(1)
    if n == T.int64(3):
        A[0] = A[1] + A[1]"""


def body(text):
    """A printed text without its header."""
    return text.split("\n\n", 1)[1]


def test_a_node_is_underlined_over_all_its_lines():
    f = from_source(TEXT)
    assert body(f.script(obj_to_underline=[f.body.seq[0]])) == TEXT.replace(
        "T.float32(1)", "T.float32(1)\n        " + "^" * 26
    ).replace("range(16):", "range(16):\n    " + "^" * 19)


def test_a_path_is_underlined_only_where_it_leads():
    f = from_source(TEXT)
    root = AccessPath.root()
    last = root.attr("body").attr("seq").array_item(1).attr("then_case").attr("value")
    for path, column in ((last.attr("a"), 15), (last.attr("b"), 22)):
        line = f"        A[0] = A[1] + A[1]\n{' ' * column}^^^^"
        assert f.script(path_to_underline=[path]).endswith(line)
        number = path.attr("indices").array_item(0)
        line = f"        A[0] = A[1] + A[1]\n{' ' * (column + 2)}^"
        assert f.script(path_to_underline=number).endswith(line)
    assert f.script(path_to_underline=[root.attr("no").array_item(7)]) == f.script()


def test_both_sides_of_a_mismatch_are_shown_where_they_differ():
    f, g = from_source(TEXT), from_source(TEXT.replace("A[1] + A[1]", "A[1] + A[2]"))
    left, right = get_first_structural_mismatch(f, g)
    assert left == right and str(left).startswith("<root>.body.seq[1].then_case.value.b")
    assert f.script(path_to_underline=[left]).endswith("A[1] + A[1]\n" + " " * 24 + "^")
    assert g.script(path_to_underline=[right]).endswith("A[1] + A[2]\n" + " " * 24 + "^")
    assert get_first_structural_mismatch(f, f) is None


MODULE = """
@I.ir_module
class M:
    @T.prim_func
    def k(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                A[vi] = T.float32(1)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.add(x, x)
            z = R.nn.softmax(y, axis=0)
            w = R.multiply(z, x)
            R.output(w)
        return w
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "under"),
    [
        ("multiply(z, x)", "multiply(z, z)", "R.multiply(z, z)", "z"),
        ("multiply(z, x)", "divide(z, x)", "R.divide(z, x)", "R.divide"),
        ("axis=0", "axis=-1", "R.nn.softmax(y, axis=-1)", "R.nn.softmax(y, axis=-1)"),
        ("T.float32(1)", "T.float32(2)", "A[vi] = T.float32(2)", "T.float32(2)"),
        ("A: T.Buffer((4,)", "A: T.Buffer((5,)", "def k(A: T.Buffer((5,)", "5"),
    ],
)
def test_differences_of_modules_are_shown_or_what_they_are_a_part_of(old, new, line, under):
    module = from_source(MODULE.replace(old, new))
    _, path = get_first_structural_mismatch(from_source(MODULE), module)
    lines = module.script(path_to_underline=[path]).split("\n")
    at = next(i for i, text in enumerate(lines) if line in text)
    signs = lines[at + 1]
    assert set(signs) == {" ", "^"} and signs.count("^") == len(under)
    begin = signs.index("^")
    assert lines[at][begin : begin + len(under)] == under
    assert sum("^" in text for text in lines) == 1


def test_lines_far_from_what_is_underlined_are_counted():
    f = from_source(TEXT)
    text = f.script(obj_to_underline=[f.body.seq[1].then_case], num_context_lines=1)
    assert text == (
        "(... 6 lines skipped ...)\n    if n == T.int64(3):\n"
        "        A[0] = A[1] + A[1]\n        ^^^^^^^^^^^^^^^^^^"
    )
    assert f.script(num_context_lines=1) == f.script()


def test_lines_are_numbered_beside_underlines():
    f = from_source(TEXT)
    lines = f.script(obj_to_underline=[f.body.seq[0].body], print_line_numbers=True).split("\n")
    assert lines[:3] == ["1 # from relaxvm.script import tir as T", "2", "3 @T.prim_func"]
    assert lines[6] == " " * 10 + "^" * 26
    assert lines[7].startswith("7     if")


def test_annotated_nodes_and_places_are_comments_that_the_reader_skips():
    f = from_source(TEXT)
    path = AccessPath.root().attr("body").attr("seq").array_item(1)
    text = f.script(obj_to_annotate={f.body.seq[0]: "a loop"}, path_to_annotate={path: "a branch"})
    assert "range(16):  # a loop" in text
    assert "T.int64(3):  # a branch" in text
    assert_structural_equal(from_source(text), f)


def test_functions_of_a_module_are_underlined_too():
    f = from_source(TEXT)
    g = f.with_attr("global_symbol", "g")
    text = tvm.IRModule({"f": f, "g": g}).script(obj_to_underline=[g], num_context_lines=0)
    assert text.startswith("(... ") and "def g" in text and "def f" not in text
    r = from_source(
        "@R.function\ndef r(x: R.Tensor((2,), 'int8')):\n    y = R.add(x, x)\n    return y"
    )
    binding = r.body.blocks[0].bindings[0]
    assert "R.add(x, x)\n    ^^^^^" in r.script(obj_to_underline=[binding])


def test_numbers_and_buffers_of_usual_dtypes_are_written_short_if_asked():
    f = from_source(TEXT)
    text = f.script(int_dtype="int64", float_dtype="float32", buffer_dtype="float32", name="g")
    assert "def g(A: T.Buffer((T.int32(16),)), n: T.int64)" in text
    assert "if n == 3:" in text and "A[i] + 1.0" in text
    wide = from_source(TEXT.replace("range(16)", "range(T.int64(16))"))
    text = wide.script(buffer_dtype="float32")
    assert_structural_equal(from_source(text), wide)


def test_prefixes_other_than_usual_read_back():
    f = from_source(TEXT)
    text = f.script(tir_prefix="X", syntax_sugar=False, indent_spaces=2)
    assert "@X.prim_func" in text
    assert_structural_equal(from_source(text, {"X": T}), f)


def test_options_are_taken_in_tvm_s_other_way():
    f = from_source(
        "@R.function\ndef f(x: R.Tensor((2,), 'int8')):\n    y = R.add(x, x)\n    return y"
    )
    short = f.script(extra_config={"relax.show_all_struct_info": False})
    assert short == f.script(show_all_struct_info=False) and "y = R.add" in short
    with pytest.raises(tvm.base.TIRError, match="extra_config"):
        f.script(extra_config={"no": 1})


def test_the_variables_of_an_expression_are_shown_if_asked():
    f = from_source(TEXT)
    text = f.body.seq[1].script(verbose_expr=True)
    assert text.split("\n")[:2] == ["n = T.int64()", 'A = T.Buffer((16,), "float32")']
    n = tvm.tir.Var("n", "int64")
    assert (n + 1).script(verbose_expr=True) == "n = T.int64()\nn + T.int64(1)"


@pytest.mark.parametrize("step", ["attr", "array_item", "map_item"])
def test_paths_are_equal_if_their_steps_are(step):
    make = getattr(AccessPath.root().attr("a"), step)
    key = 1 if step == "array_item" else "k"
    assert make(key) == make(key) and hash(make(key)) == hash(make(key))
    assert make(key) != AccessPath.root().attr("a")
    assert AccessPath.root().attr("a").is_prefix_of(make(key))
    assert not make(key).is_prefix_of(AccessPath.root().attr("a"))
    assert make(key) != {"attr": AccessPath.root().attr("a").map_item}.get(
        step, AccessPath.root().attr("a").attr
    )(key)


def test_paths_are_shown_as_they_would_be_written():
    path = AccessPath.root().attr("functions").map_item("f").array_item(2)
    assert repr(path) == "<root>.functions['f'][2]"
    assert tvm.ffi.AccessPath is AccessPath and tvm.ffi.access_path.AccessPath is AccessPath
