"""Every feature of the graph language's script."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm import relax, tir
from relaxvm.base import ParseError
from relaxvm.ir import GlobalVar, Op, assert_structural_equal
from relaxvm.relax import (
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    ExternFunc,
    FuncStructInfo,
    Function,
    If,
    MatchCast,
    ObjectStructInfo,
    PrimStructInfo,
    PrimValue,
    ShapeExpr,
    ShapeStructInfo,
    StringImm,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relaxvm.script import from_source
from relaxvm.script import relax as R

X = 'x: R.Tensor((4,), "float32")'
OUT = 'R.Tensor((4,), "float32")'


def text(lines, params=X, decorator="@R.function", extra=None, ret=""):
    """A graph function with the given body, from text."""
    lines = "\n    ".join(lines.split("\n"))
    return from_source(f"{decorator}\ndef main({params}){ret}:\n    {lines}", extra)


def bindings(function):
    """All bindings of the function's body."""
    return [b for block in function.body.blocks for b in block.bindings]


def params(declared):
    """The struct info of parameters declared as text."""
    return [v.struct_info for v in text("return x", params=f"x: R.Object, {declared}").params[1:]]


# -- struct info ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('R.Tensor((2, 3), "float32")', TensorStructInfo((2, 3), "float32")),
        ('R.Tensor([2, 3], dtype="int8")', TensorStructInfo((2, 3), "int8")),
        ('R.Tensor("float32")', TensorStructInfo(None, "float32")),
        ('R.Tensor(dtype="float32", ndim=2)', TensorStructInfo(None, "float32", None, 2)),
        ("R.Tensor(ndim=2)", TensorStructInfo(None, "void", None, 2)),
        ("R.Tensor((2, 3))", TensorStructInfo((2, 3), "void")),
        ("R.Tensor()", TensorStructInfo(None, "void")),
        ("R.Tensor", TensorStructInfo(None, "void")),
        ("R.Shape", ShapeStructInfo()),
        ("R.Shape((2, 3))", ShapeStructInfo((2, 3))),
        ("R.Shape(ndim=3)", ShapeStructInfo(None, 3)),
        ('R.Prim("int64")', PrimStructInfo("int64")),
        ("R.Prim(value=3)", PrimStructInfo(value=tir.IntImm("int32", 3))),
        ("R.Object", ObjectStructInfo()),
        ("R.Object()", ObjectStructInfo()),
        ("R.Tuple", TupleStructInfo(())),
        (
            "R.Tuple(R.Tensor, R.Shape)",
            TupleStructInfo((TensorStructInfo(None, "void"), ShapeStructInfo())),
        ),
        ("R.Tuple([R.Object])", TupleStructInfo((ObjectStructInfo(),))),
        ("R.Callable", FuncStructInfo.opaque_func()),
        (
            "R.Callable((R.Object, R.Shape), R.Tensor, False)",
            FuncStructInfo(
                (ObjectStructInfo(), ShapeStructInfo()), TensorStructInfo(None, "void"), False
            ),
        ),
    ],
)
def test_parameter_annotations(written, meant):
    assert params(f"p: {written}") == [meant]


def test_string_symbols_are_shared_over_the_signature():
    a, b, c = params('a: R.Tensor(("n * 2", 4)), b: R.Tensor(("n",)), c: R.Shape(["n", "m"])')
    (n,) = b.dims
    assert (n.name, n.dtype) == ("n", "int64")
    assert a.dims[0] is n * 2
    assert c.values[0] is n
    assert c.values[1].name == "m"


def test_symbols_of_the_return_annotation_are_those_of_the_parameters():
    f = text(
        "return x",
        params='x: R.Tensor(("n", 4), "float32")',
        ret=' -> R.Tensor(("n", 4), "float32")',
    )
    assert f.ret_struct_info is f.params[0].struct_info
    with pytest.raises(ParseError, match="unknown symbol 'k'"):
        text("return x", params='x: R.Tensor(("n", 4))', ret=' -> R.Tensor(("k", 4))')


def test_dimension_text_may_call_functions():
    a, b = params('a: R.Tensor(("n",)), b: R.Tensor(("T.max(n, 4)", "min(n, 3)"))')
    (n,) = a.dims
    assert b.dims == (tir.max(n, 4), tir.min(n, 3))


def test_bare_names_that_mean_the_makers_work():
    f = text("return x", params='x: Tensor((1, 784), "float32")', extra={"Tensor": R.Tensor})
    assert f.params[0].struct_info is TensorStructInfo((1, 784), "float32")


def test_symbols_declared_in_the_body_are_those_of_the_signature():
    f = text(
        "n = T.int64()\nm = T.int64()\ny = R.match_cast(x, R.Tensor((n, m)))\n"
        "return R.shape([n, m])",
        params='x: R.Tensor(("n", 4))',
    )
    shape = f.body.body
    assert shape.values[0] is f.params[0].struct_info.dims[0]
    assert shape.values[1].name == "m"


# -- calls ---------------------------------------------------------------------------------------

KERNEL = """
@I.ir_module
class M:
    @T.prim_func
    def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i]

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = {call}
        return y
"""


@pytest.mark.parametrize(
    "call",
    [
        'R.call_tir(cls.f, (x,), out_sinfo=R.Tensor((4,), "float32"))',
        'R.call_tir(cls.f, (x,), R.Tensor((4,), dtype="float32"))',
        'R.call_tir(f, (x,), (4,), dtype="float32")',
        'R.call_tir(M.f, x, (4,), dtype="float32")',
        'R.call_tir(f, [x], [R.Tensor((4,), "float32")])',
        'R.emit(R.call_tir(f, [x], R.Tensor((4,), "float32")))',
    ],
)
def test_call_tir_in_every_spelling(call):
    mod = from_source(KERNEL.format(call=call))
    (binding,) = bindings(mod["main"])
    made = binding.value
    assert made.op is Op.get("relax.call_tir")
    assert made.args[0] is mod.get_global_var("f")
    assert isinstance(made.args[1], Tuple)
    assert made.sinfo_args == (TensorStructInfo((4,), "float32"),)
    assert binding.var.struct_info is TensorStructInfo((4,), "float32")
    assert mod["main"].ret_struct_info is TensorStructInfo((4,), "float32")


@pytest.mark.parametrize(
    "call",
    [
        'R.call_tir("env.f", (x,), (4,), dtype="float32")',
        'R.call_tir("env.f", (x,), R.Tensor((4,), "float32"))',
        'R.call_tir(R.ExternFunc("env.f"), (x,), R.Tensor((4,), "float32"))',
        'R.call_dps_packed("env.f", (x,), out_sinfo=R.Tensor((4,), "float32"))',
        'R.call_dps_packed("env.f", x, R.Tensor((4,), "float32"))',
    ],
)
def test_a_string_callee_makes_it_call_dps_packed(call):
    f = text(f"y = {call}\nreturn y")
    made = bindings(f)[0].value
    assert made.op is Op.get("relax.call_dps_packed")
    assert isinstance(made.args[0], ExternFunc)
    assert made.args[0].global_symbol == "env.f"


def test_call_tir_inplace_and_tir_vars():
    out = 'out_sinfo=R.Tensor((4,), "float32")'
    call = f"R.call_tir_inplace(cls.f, (x, x), inplace_indices=[1], {out})"
    f = from_source(KERNEL.format(call=call))
    made = bindings(f["main"])[0].value
    assert made.attrs["inplace_indices"] == (1,)
    mod = from_source(
        "@I.ir_module\nclass M:\n"
        "    @T.prim_func\n    def f(a: T.handle, b: T.handle, k: T.int64):\n"
        "        n = T.int64()\n"
        "        A = T.match_buffer(a, (n,))\n        B = T.match_buffer(b, (n,))\n"
        "        for i in range(n):\n            B[i] = A[i]\n"
        "    @R.function\n    def main(x: R.Tensor(('n',), 'float32'), s: R.Shape(['k'])):\n"
        "        n, k = T.int64(), T.int64()\n"
        "        y = R.call_tir(cls.f, x, R.Tensor((n,), 'float32'), tir_vars=[k])\n"
        "        return y\n"
    )
    made = bindings(mod["main"])[0].value
    assert isinstance(made.args[2], ShapeExpr)


def test_packed_calls():
    f = text(
        'a = R.call_packed("env.f", x, R.prim_value(3), R.str("s"), sinfo_args=R.Tensor)\n'
        'b = R.call_pure_packed("env.g", a, sinfo_args=(R.Tensor((4,), "float32"),))\nreturn b',
        decorator="@R.function(pure=False)",
    )
    first, second = bindings(f)
    assert isinstance(first.value.op, ExternFunc)
    assert isinstance(first.value.args[1], PrimValue)
    assert isinstance(first.value.args[2], StringImm)
    assert first.value.sinfo_args == (TensorStructInfo(None, "void"),)
    assert second.value.op is Op.get("relax.call_pure_packed")
    assert not f.is_pure


def test_operators_of_relax_op_are_found_by_name():
    f = text(
        "s = R.shape_of(x)\nt = R.shape_to_tensor(s)\n"
        'u = R.memory.alloc_storage(R.shape([64]), 0, R.str("global"), R.dtype("float32"))\n'
        "return t"
    )
    names = [b.value.op.name for b in bindings(f)]
    assert names == ["relax.shape_of", "relax.shape_to_tensor", "relax.memory.alloc_storage"]
    with pytest.raises(ParseError, match="did you mean shape_of"):
        text("s = R.shapeof(x)\nreturn s")


def test_print_and_assert_are_bound_to_nothing_in_particular():
    f = text(
        'R.print(x, format="{}")\n_ = R.assert_op(R.const(True, "bool"), format="no")\nreturn x',
        decorator="@R.function(pure=False)",
    )
    assert [b.var.name_hint for b in bindings(f)] == ["_", "_"]


def test_values_inside_values_get_variables_of_their_own():
    f = text("return R.shape_to_tensor(R.shape_of(x))")
    first, second = bindings(f)
    assert first.value.op is Op.get("relax.shape_of")
    assert second.value.args == (first.var,)
    assert f.body.body is second.var


def test_fresh_names_avoid_those_of_the_function():
    f = text("gv = R.shape_of(x)\nreturn R.shape_to_tensor(gv)")
    assert [b.var.name_hint for b in bindings(f)] == ["gv", "gv1"]


# -- values --------------------------------------------------------------------------------------


def test_tuples_are_built_taken_apart_and_indexed():
    f = text("t = (x, R.shape([3]))\na = t[0]\nb, c = t\nreturn (a, R.tuple(b, c))")
    t, a, b, c = bindings(f)
    assert isinstance(t.value, Tuple)
    assert isinstance(a.value, TupleGetItem)
    assert (b.value.index, c.value.index) == (0, 1)
    assert isinstance(f.body.body, Tuple)
    assert isinstance(f.body.body.fields[1], Tuple)
    with pytest.raises(ParseError, match="no field 5"):
        text("t = (x, x)\na = t[5]\nreturn a")


def test_unpacking_a_call_binds_it_first():
    f = text('a, b = R.call_pure_packed("f", x, sinfo_args=R.Tuple(R.Object, R.Shape))\nreturn a')
    call, a, _ = bindings(f)
    assert a.value.tuple_value is call.var


def test_constants():
    f = text(
        'a = R.const(1.5, "float32")\nb = R.const([[1, 2], [3, 4]], "int64")\n'
        "c = R.const(T.float32(2))\n"
        "d = R.const(ARRAY)\ne = CONST\nreturn d",
        extra={"ARRAY": np.arange(3, dtype="int16"), "CONST": relax.const(7)},
    )
    values = [b.value for b in bindings(f)]
    assert all(isinstance(v, Constant) for v in values)
    assert [str(v.struct_info.dtype) for v in values] == [
        "float32",
        "int64",
        "float32",
        "int16",
        "int32",
    ]
    np.testing.assert_array_equal(values[1].data.numpy(), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(values[3].data.numpy(), [0, 1, 2])


def test_arrays_and_scalars_become_values():
    f = text(
        "n = T.int64()\na = R.prim_value(n * 2)\nb = 3\nreturn (a, b)", params='x: R.Tensor(("n",))'
    )
    a, b = bindings(f)
    assert a.value.value is f.params[0].struct_info.dims[0] * 2
    assert b.value.value is tir.IntImm("int64", 3)


# -- bindings ------------------------------------------------------------------------------------


def test_dataflow_outputs_are_variables_and_the_rest_is_not_visible():
    f = text(
        "with R.dataflow():\n    a = R.shape_of(x)\n    b = R.shape_to_tensor(a)\n"
        "    R.output(b)\nreturn b"
    )
    (block,) = f.body.blocks
    assert isinstance(block, DataflowBlock)
    a, b = (binding.var for binding in block.bindings)
    assert isinstance(a, DataflowVar)
    assert type(b) is Var
    with pytest.raises(
        ParseError, match=r"visible only inside its dataflow block; add it to R\.output"
    ):
        text("with R.dataflow():\n    a = R.shape_of(x)\n    b = x\n    R.output(b)\nreturn a")


def test_only_the_last_binding_of_an_output_name_is_the_output():
    f = text(
        "with R.dataflow():\n    y = R.shape_of(x)\n    y = R.shape_to_tensor(y)\n"
        "    R.output(y)\nreturn y"
    )
    first, second = bindings(f)
    assert isinstance(first.var, DataflowVar)
    assert type(second.var) is Var


def test_blocks_keep_their_order():
    f = text(
        "a = R.shape_of(x)\nwith R.dataflow():\n    b = R.shape_to_tensor(a)\n"
        "    R.output(b)\nc = R.shape_of(b)\nreturn c"
    )
    assert [type(b).__name__ for b in f.body.blocks] == [
        "BindingBlock",
        "DataflowBlock",
        "BindingBlock",
    ]


def test_coarser_annotations_are_used_and_finer_ones_are_casts():
    call = 'R.call_pure_packed("f", x, sinfo_args=R.Tensor("float32", ndim=1))'
    f = text(f"y: R.Tensor = {call}\nreturn y")
    assert bindings(f)[0].var.struct_info is TensorStructInfo(None, "void")
    f = text(f'y: R.Tensor((4,), "float32") = {call}\nreturn y')
    assert [type(b) for b in bindings(f)] == [VarBinding, MatchCast]
    assert bindings(f)[1].struct_info is f.ret_struct_info is TensorStructInfo((4,), "float32")
    with pytest.raises(ParseError, match="y is annotated"):
        text(f'y: R.Tensor((4,), "int8") = {call}\nreturn y')


def test_match_cast_binds_symbols():
    f = text('y = R.match_cast(x, R.Tensor(("n", "m"), "float32"))\nreturn y', params="x: R.Tensor")
    (binding,) = bindings(f)
    assert isinstance(binding, MatchCast)
    assert [d.name for d in binding.struct_info.dims] == ["n", "m"]
    same = text(
        "n, m = T.int64(), T.int64()\n"
        'y: R.Tensor((n, m), "float32") = R.match_cast(x, R.Tensor((n, m), "float32"))\nreturn y',
        params="x: R.Tensor",
    )
    assert_structural_equal(f, same)


def test_func_attr_and_names():
    f = text('R.func_attr({"num_input": 1, "relax.force_pure": True})\nreturn x')
    assert dict(f.attrs) == {"global_symbol": "main", "num_input": 1, "relax.force_pure": True}
    assert "global_symbol" not in text("return x", decorator="@R.function(private=True)").attrs


# -- control flow --------------------------------------------------------------------------------

COND = 'c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")'


def test_both_branches_of_an_if_bind_one_variable():
    f = text(
        "if c:\n    a = R.shape_of(x)\n    y = R.shape_to_tensor(a)\nelse:\n"
        "    y = R.shape_to_tensor(R.shape([4]))\nreturn y",
        params=COND,
    )
    (binding,) = bindings(f)
    assert isinstance(binding, VarBinding)
    assert isinstance(binding.value, If)
    assert binding.var.name_hint == "y"
    inner = binding.value.true_branch
    assert inner.body is inner.blocks[0].bindings[-1].var
    assert len(inner.blocks[0].bindings) == 2
    assert f.body.body is binding.var


def test_a_branch_may_give_a_name_as_it_is():
    f = text("if c:\n    y = x\nelse:\n    z = R.shape_of(x)\n    y = x\nreturn y", params=COND)
    (binding,) = bindings(f)
    assert binding.value.true_branch.body is f.params[1]
    assert binding.value.true_branch.blocks == ()
    assert binding.value.false_branch.body is f.params[1]


def test_nested_ifs_and_conditions_that_are_calls():
    f = text(
        'if R.call_pure_packed("p", x, sinfo_args=R.Tensor((), "bool")):\n'
        "    if c:\n        y = R.shape_of(x)\n    else:\n        y = R.shape([4])\n"
        "else:\n    y = R.shape([4])\nreturn y",
        params=COND,
    )
    call, outer = bindings(f)
    assert isinstance(call.value, Call)
    assert outer.value.cond is call.var
    inner = outer.value.true_branch
    assert isinstance(inner.blocks[0].bindings[0].value, If)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("if c:\n    y = x\nreturn y", "needs an else"),
        ("if c:\n    y = x\nelse:\n    z = x\nreturn y", "the first binds y, the second z"),
        ("if c:\n    return x\nelse:\n    return x", "return stands at the end"),
        (
            "with R.dataflow():\n    if c:\n        y = x\n    else:\n        y = x\n"
            "    R.output(y)\nreturn y",
            "not stand inside",
        ),
        ("y = x", "has no return"),
        ("return x\ny = x", "never reached"),
    ],
)
def test_ill_placed_control_flow(lines, message):
    with pytest.raises(ParseError, match=message):
        text(lines, params=COND)


# -- functions -----------------------------------------------------------------------------------


def test_functions_of_a_module_call_each_other_and_themselves():
    mod = from_source(
        "@I.ir_module\nclass M:\n"
        "    @R.function\n    def main(x: R.Tensor(('n',), 'float32')):\n"
        "        y = cls.helper(x)\n        return y\n"
        "    @R.function(private=True)\n    def helper(x: R.Tensor(('n',), 'float32')):\n"
        "        return x\n"
        "    @R.function\n    def again(x: R.Object) -> R.Object:\n        y = again(x)\n"
        "        return y\n"
    )
    main = mod["main"]
    call = bindings(main)[0].value
    assert call.op is mod.get_global_var("helper")
    # The helper's result is known although it is written later and not annotated.
    assert call.struct_info is main.params[0].struct_info
    assert bindings(mod["again"])[0].value.op is mod.get_global_var("again")
    assert isinstance(mod.get_global_var("main").struct_info, FuncStructInfo)


def test_mutual_recursion_without_annotations_gives_objects():
    mod = from_source(
        "@I.ir_module\nclass M:\n"
        "    @R.function\n    def a(x: R.Object):\n        return cls.b(x)\n"
        "    @R.function\n    def b(x: R.Object):\n        return cls.a(x)\n"
    )
    assert mod["a"].ret_struct_info is ObjectStructInfo()
    for name, other in (("a", "b"), ("b", "a")):
        assert bindings(mod[name])[0].value.op is mod.get_global_var(other)


def test_a_function_alone_may_call_itself():
    f = text("y = main(x)\nreturn y", params="x: R.Object", ret=" -> R.Object")
    assert isinstance(bindings(f)[0].value.op, GlobalVar)


def test_nested_functions_are_values():
    f = text(
        '@R.function\ndef inner(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):\n'
        "    return y\n"
        "z = inner(x)\nreturn z"
    )
    function, call = bindings(f)
    assert isinstance(function.value, Function)
    assert call.value.op is function.var
    assert "global_symbol" not in function.value.attrs
    assert call.var.struct_info is TensorStructInfo((4,), "float32")


def test_nested_functions_see_what_is_around_them():
    f = text(
        "@R.function\ndef inner(y: R.Object) -> R.Object:\n    return (x, y)\nz = inner(x)\n"
        "return z",
    )
    inner = bindings(f)[0].value
    assert inner.body.body.fields[0] is f.params[0]


def test_nested_functions_may_call_themselves():
    f = text(
        "@R.function\ndef inner(y: R.Object) -> R.Object:\n    z = inner(y)\n    return z\n"
        "z = inner(x)\nreturn z",
    )
    binding = bindings(f)[0]
    assert bindings(binding.value)[0].value.op is binding.var


def test_return_annotations_are_checked():
    with pytest.raises(ParseError, match="declared to return"):
        text("return x", ret=' -> R.Tensor((5,), "float32")')
    assert text("return x", ret=" -> R.Tensor").ret_struct_info is TensorStructInfo(None, "void")


def test_a_finer_return_annotation_is_a_cast():
    f = text("return x", params="x: R.Tensor", ret=' -> R.Tensor((5,), "float32")')
    (cast,) = bindings(f)
    assert isinstance(cast, MatchCast)
    assert f.ret_struct_info is cast.struct_info is TensorStructInfo((5,), "float32")
    assert_structural_equal(from_source(f.script()), f)


def test_callers_of_a_private_function_see_what_its_body_gives():
    module = from_source(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = Module.coarse(x)
        z = Module.public(x)
        return (y, z)

    @R.function(private=True)
    def coarse(x: R.Tensor(("n",), "float32")) -> R.Tensor("float32", ndim=1):
        return R.add(x, x)

    @R.function
    def public(x: R.Tensor(("n",), "float32")) -> R.Tensor("float32", ndim=1):
        return R.add(x, x)
"""
    )
    fine, coarse = module["main"].ret_struct_info.fields
    assert fine is TensorStructInfo((4,), "float32")
    assert coarse is TensorStructInfo(None, "float32", ndim=1)
    assert module["public"].ret_struct_info is coarse
    assert_structural_equal(from_source(module.script()), module)


# -- size ----------------------------------------------------------------------------------------


def test_long_functions_and_deep_values_do_not_recurse():
    lines = "\n".join(f"x{i + 1} = R.shape_to_tensor(s)" for i in range(2000))
    f = text(f"s = R.shape_of(x)\n{lines}\nreturn x2000")
    assert len(bindings(f)) == 2001
    chain = relax.op.shape_of(Var("y", TensorStructInfo((4,), "float32")))
    deep = relax.op.shape_to_tensor(chain)
    for _ in range(3000):
        deep = relax.op.shape_to_tensor(relax.op.shape_of(deep))
    g = text("return DEEP", extra={"DEEP": deep}, decorator="@R.function(check_well_formed=False)")
    assert len(bindings(g)) == 6002


# -- spans ---------------------------------------------------------------------------------------


def test_everything_made_points_into_the_file():
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.shape_to_tensor(R.shape_of(x))
        return y

    first, second = bindings(main)
    for span in (first.value.span, second.value.span, second.span, main.span):
        assert span.source == __file__
    line = second.span.source_line()
    assert line.strip() == "y = R.shape_to_tensor(R.shape_of(x))"
    assert line[first.value.span.column - 1 :].startswith("R.shape_of(x)")
    assert line[second.value.span.column - 1 : second.value.span.end_column - 1].endswith("of(x))")
