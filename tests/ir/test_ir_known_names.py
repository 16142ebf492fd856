"""Small things of the IR room that TVM's users reach for."""

import subprocess
import sys

import pytest

import relaxvm as tvm
from relaxvm import relax, tir
from relaxvm.base import PassError, TIRError
from relaxvm.ir.transform import ApplyPassToFunction, PrintIR, function_pass
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@I.ir_module
class Two:
    @R.function
    def second(x: R.Tensor((3,), "float32")):
        return x

    @R.function
    def first(x: R.Tensor((3,), "float32")):
        y = R.add(x, x)
        return y


@function_pass(opt_level=0)
def MarkFunctions(fn, mod, ctx):
    return fn.with_attr("tag", 1)


def tagged(mod):
    return [gv.name_hint for gv, fn in mod.items() if "tag" in fn.attrs]


def test_functions_items_are_sorted_by_name():
    assert [gv.name_hint for gv, _ in Two.functions_items()] == ["first", "second"]


def test_a_pass_can_be_applied_to_the_functions_whose_whole_name_matches():
    assert tagged(ApplyPassToFunction(MarkFunctions(), "sec.*")(Two)) == ["second"]
    assert tagged(ApplyPassToFunction(MarkFunctions(), ".*")(Two)) == ["second", "first"]
    assert ApplyPassToFunction(MarkFunctions(), "sec")(Two) is Two
    with pytest.raises(PassError, match="second, first"):
        ApplyPassToFunction(MarkFunctions(), "third", error_if_no_function_matches_regex=True)(Two)
    with pytest.raises(PassError, match=r"\(\["):
        ApplyPassToFunction(MarkFunctions(), "([")(Two)


def test_print_ir_prints_and_leaves_the_module_as_it_is(capsys):
    assert PrintIR("# here")(Two) is Two
    text = capsys.readouterr().out
    assert text.startswith("# here\n")
    tvm.ir.assert_structural_equal(tvm.script.from_source(text), Two)


def test_make_node_builds_a_node_from_fields_by_name():
    three = tvm.ir.make_node("ir.IntImm", dtype="int32", value=3, span=None)
    assert three is tir.IntImm("int32", 3)
    a, b = tir.Var("a", "int32"), tir.Var("b", "int32")
    assert tvm.ir.make_node("tir.Add", a=a, b=b) is tir.Add(a, b)
    info = tvm.ir.make_node("relax.PrimStructInfo", dtype="int64")
    assert info is relax.PrimStructInfo("int64")


@pytest.mark.parametrize(
    ("key", "fields", "message"),
    [
        ("ir.IntIm", {}, "did you mean ir.IntImm"),
        ("ir.IntImm", {"dtype": "int32", "number": 3}, "has no number; it has dtype, value"),
        ("ir.IntImm", {"dtype": "int32"}, "needs value"),
    ],
)
def test_make_node_says_what_is_wrong(key, fields, message):
    with pytest.raises(TIRError, match=message):
        tvm.ir.make_node(key, **fields)


def test_a_graph_function_hashes_as_its_copy_does_in_another_process():
    copied = tvm.ir.load_json(tvm.ir.save_json(Two))
    assert tvm.ir.structural_hash(copied) == tvm.ir.structural_hash(Two)
    code = (
        "import sys\nimport relaxvm as tvm\n"
        "print(tvm.ir.structural_hash(tvm.ir.load_json(sys.argv[1])))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code, tvm.ir.save_json(Two)], capture_output=True, text=True
    )
    assert other.stdout.strip() == str(tvm.ir.structural_hash(Two)), other.stderr


def test_stmt_list_flattens_sequences():
    one, two, three = (tir.Evaluate(tir.const(i, "int32")) for i in range(3))
    nested = tir.SeqStmt([one, tir.SeqStmt([two, three])])
    assert tir.stmt_list(nested) == [one, two, three]
    assert tir.stmt_list(one) == [one]


def test_struct_info_has_both_of_its_names():
    x = Two["first"].params[0]
    assert x.struct_info_ is x.struct_info
