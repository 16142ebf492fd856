"""Operators: records, conversion of arguments, inference, errors."""

from __future__ import annotations

from typing import Annotated, Literal, NewType, TypeVar

import numpy as np
import pytest
from op_table import check_errors

from relaxvm import relax
from relaxvm.base import StructInfoError, VerifyError
from relaxvm.ir import GlobalVar, Op, Var, assert_structural_equal
from relaxvm.relax import op as R
from relaxvm.relax.op.record import Op as GraphOp

n, m = Var("n", "int64"), Var("m", "int64")
Object, Prim, Shape = relax.ObjectStructInfo, relax.PrimStructInfo, relax.ShapeStructInfo
Tensor, Tuple, Func = relax.TensorStructInfo, relax.TupleStructInfo, relax.FuncStructInfo
x = relax.Var("x", Tensor((n, 4)))
y = relax.Var("y", Tensor((4, m)))
gv = GlobalVar("kernel")
OUT = Tensor((n, 4))


def graph_ops():
    named = [name for name in Op.list_op_names() if not name.startswith("relax.test.")]
    return [Op.get(name) for name in named if isinstance(Op.get(name), GraphOp)]


def test_every_record_is_complete():
    assert len(graph_ops()) >= 25
    for record in graph_ops():
        assert record.name.startswith("relax.")
        assert record.rule.__doc__, record.name
        assert record.numpy is not None, record.name
        assert record.lower is not None, record.name
        assert record.function.op is record


def test_script_path_of_every_operator_leads_to_its_function():
    for record in graph_ops():
        found = R
        for part in record.short.split("."):
            found = getattr(found, part)
        assert found is record.function


# -- call_tir in all its spellings ----------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda: relax.call_tir(gv, (x,), OUT),
        lambda: relax.call_tir(gv, [x], out_sinfo=OUT),
        lambda: relax.call_tir(gv, x, [OUT]),
        lambda: relax.call_tir(gv, relax.Tuple((x,)), (OUT,)),
        lambda: relax.call_tir(gv, (x,), (n, 4), dtype="float32"),
        lambda: relax.call_tir(gv, (x,), [n, 4], dtype="float32"),
        lambda: relax.call_tir(gv, (x,), relax.ShapeExpr((n, 4)), dtype="float32"),
        lambda: relax.call_tir(gv, (x,), [(n, 4)], dtype=["float32"]),
    ],
)
def test_call_tir_spellings_mean_the_same(call):
    made = call()
    assert made.op is Op.get("relax.call_tir")
    assert made.args[0] is gv
    assert [f for f in made.args[1].fields] == [x]
    assert made.sinfo_args == (OUT,)
    assert made.struct_info is OUT


@pytest.mark.parametrize("callee", ["env.f", relax.extern("env.f")])
def test_a_name_as_callee_makes_it_call_dps_packed(callee):
    made = relax.call_tir(callee, x, (n, 4), dtype="float32")
    assert made.op is Op.get("relax.call_dps_packed")
    assert made.args[0].global_symbol == "env.f"
    assert made.struct_info is OUT


def test_the_dtype_of_a_packed_functions_output_may_be_unknown_until_it_is_allocated():
    call = relax.call_dps_packed("f", x, Tensor((n, 4), "void"))
    assert call.struct_info is Tensor((n, 4), "void")
    b = relax.BlockBuilder()
    with b.function("main", [x]):
        b.emit_func_output(b.emit(call))
    with pytest.raises(VerifyError, match="known shape and dtype to be allocated"):
        relax.build(b.get())


@pytest.mark.parametrize("dtype", ["void", "", None])
def test_no_dtype_is_the_inputs_dtype(dtype):
    half, weight = (relax.Var("x", Tensor((k, 2, 4, 4), "float16")) for k in (1, 2))
    row = relax.Var("x", Tensor((4, 4), "float16"))
    for call in (
        R.nn.conv2d(half, weight, out_dtype=dtype),
        R.nn.conv2d_transpose(half, weight, out_dtype=dtype),
        R.image.resize2d(half, (2, 2), out_dtype=dtype),
        R.matmul(row, row, out_dtype=dtype),
        R.cumsum(row, 0, dtype=dtype),
        R.zeros_like(row, dtype=dtype),
        R.full_like(row, relax.const(1.0, "float16"), dtype=dtype),
        R.eye_like(row, dtype=dtype),
    ):
        assert call.struct_info.dtype == "float16"
        assert all(v is None for k, v in call.attrs.items() if "dtype" in k)


def test_what_is_left_of_a_reshape_may_stand_in_a_shape():
    z = relax.Var("z", Tensor((n, 6)))
    assert R.reshape(z, relax.ShapeExpr((-1, 3))).struct_info is Tensor((n * 2, 3))
    assert R.reshape(z, relax.ShapeExpr((2, -1))).struct_info.ndim == 2
    for build in (
        lambda: R.broadcast_to(z, relax.ShapeExpr((-1, 6))),
        lambda: R.zeros(relax.ShapeExpr((-1, 6)), "float32"),
        lambda: Tensor(relax.ShapeExpr((-1,))),
        lambda: relax.ShapeExpr((-1,)).struct_info,
        lambda: relax.ShapeExpr((-2,)),
    ):
        with pytest.raises(StructInfoError, match="a dimension is not negative"):
            build()


def test_a_shape_that_is_not_known_is_no_part_of_struct_info():
    unknown = relax.Var("u", Tensor(None, ndim=2))
    assert R.reshape(z := relax.Var("z", Tensor((4,))), R.shape_of(unknown)).struct_info is Tensor(
        None, ndim=2
    )
    held = relax.Var("s", Shape(ndim=2))
    assert R.reshape(z, held).struct_info is Tensor(held)


def test_several_outputs_are_a_tuple():
    two = Tuple((OUT, Tensor((m,), "int32")))
    assert relax.call_tir(gv, x, [OUT, Tensor((m,), "int32")]).struct_info is two
    assert relax.call_tir(gv, x, two).struct_info is two
    assert relax.call_tir(gv, x, [(n, 4), (m,)], dtype=["float32", "int32"]).struct_info is two


def test_a_tuple_variable_as_arguments_is_taken_apart():
    t = relax.Var("t", Tuple((x.struct_info, y.struct_info)))
    fields = relax.call_tir(gv, t, OUT).args[1].fields
    assert [f.index for f in fields] == [0, 1]


def test_tir_vars_become_a_shape():
    assert relax.call_tir(gv, x, OUT, tir_vars=[n, m]).args[2] is relax.ShapeExpr((n, m))
    assert relax.call_tir(gv, x, OUT, tir_vars=relax.ShapeExpr((n,))).args[2] is relax.ShapeExpr(
        (n,)
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: relax.call_tir(gv, x), "the result is missing"),
        (lambda: relax.call_tir(gv, x, (1, 2)), "needs dtype="),
        (lambda: relax.call_tir(gv, x, OUT, dtype="float32"), "dtype= goes with a shape"),
        (lambda: relax.call_tir(gv, x, Shape((n,))), "wanted R.Tensor"),
        (lambda: relax.call_tir(gv, x, Object()), "wanted a tensor or a tuple of tensors"),
        (lambda: relax.call_tir(gv, x, Tensor(None, ndim=2)), "known shape"),
        (lambda: relax.call_tir(gv, x, Tensor((n,), "void")), "known shape and dtype"),
        (lambda: relax.call_dps_packed("f", x, Tensor(None, ndim=1)), "known shape and dtype"),
        (lambda: relax.call_tir(gv, x, "float32"), "out_sinfo"),
        (lambda: relax.call_tir(gv, x, [(1,), (2,)], dtype=["int8"]), "2 shapes but 1 dtypes"),
        (lambda: relax.call_tir(x, x, OUT), "GlobalVar of a loop function"),
        (lambda: relax.call_tir(gv, (x, relax.Tuple((x,))), OUT), "argument 1 is a tensor"),
        (lambda: relax.call_tir("env.f", x, OUT, tir_vars=[n]), "takes no tir_vars"),
        (lambda: relax.call_tir(gv, x, OUT, tir_vars=["n"]), "tir_vars"),
        (lambda: relax.call_tir(gv, object(), OUT), "args"),
        (lambda: relax.call_dps_packed(gv, x, OUT), "name of a packed function"),
        (lambda: relax.call_tir_inplace(gv, x, [0, 1], OUT), "one per output"),
        (lambda: relax.call_tir_inplace(gv, x, [-1], OUT), "at least one"),
        (lambda: relax.call_tir_inplace(gv, x, [3], OUT), "argument number below 1"),
        (lambda: relax.call_tir_inplace(gv, (x, y), [0, 0], [OUT, OUT]), "twice"),
        (lambda: relax.call_tir_inplace(gv, x, [0], Tensor((n, 5))), "cannot hold"),
        (lambda: relax.call_packed("env.f", x, sinfo_args=3), "sinfo_args"),
        (lambda: relax.call_pure_packed(relax.const(1), x), "wanted a function"),
    ],
)
def test_calls_that_cannot_work_say_why(call, message):
    with pytest.raises(StructInfoError, match=message):
        call()


def test_call_tir_inplace_keeps_its_indices():
    made = relax.call_tir_inplace(gv, (x, y), 0, OUT)
    assert made.attrs["inplace_indices"] == (0,)
    assert made.struct_info is OUT


def test_call_packed_is_a_call_of_the_extern():
    made = relax.call_packed("env.f", x, 3, "s", sinfo_args=OUT)
    assert made.op.global_symbol == "env.f"
    assert [type(a).__name__ for a in made.args] == ["Var", "PrimValue", "StringImm"]
    assert made.struct_info is OUT
    pure = relax.call_pure_packed("env.f", x, sinfo_args=[OUT])
    assert pure.args[0].global_symbol == "env.f"
    assert pure.struct_info is OUT


def test_call_pure_packed_of_a_graph_function_uses_its_signature():
    f = GlobalVar("f", Func([Tensor((n, 4))], Tensor((n,)), False))
    assert relax.call_pure_packed(f, x).struct_info is Tensor((n,))


# -- shapes and values ----------------------------------------------------------------------------


def test_shape_operators():
    assert R.shape_of(x).struct_info is Shape((n, 4))
    assert R.shape_of(relax.Var("z", Tensor(None, ndim=3))).struct_info is Shape(ndim=3)
    assert R.shape_to_tensor(relax.ShapeExpr((n, 4))).struct_info is Tensor((2,), "int64")
    assert R.tensor_to_shape(relax.const(np.array([1, 2, 3]))).struct_info is Shape(ndim=3)
    assert R.tensor_to_shape(relax.Var("z", Tensor((n,), "int64"))).struct_info is Shape()


def test_numpy_meanings_of_shape_operators():
    assert R.shape_of.op.numpy(np.zeros((2, 3))) == (2, 3)
    assert R.tensor_to_shape.op.numpy(np.array([2, 3])) == (2, 3)
    assert R.shape_to_tensor.op.numpy((2, 3)).dtype == "int64"


ids = relax.Var("ids", Tensor((3,), "int64"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: R.shape_of(relax.ShapeExpr((n,))), r"shape_of: wanted a tensor(.|\n)*x: R.Shape"),
        (lambda: R.tensor_to_shape(x), "one dimension"),
        (lambda: R.tensor_to_shape(relax.Var("z", Tensor((3,), "float32"))), "int64"),
        (lambda: R.shape_to_tensor(x), "wanted a shape"),
        (lambda: R.assert_op(x), "bool scalar"),
        (lambda: R.assert_op(relax.PrimValue(3)), "bool"),
        (lambda: R.assert_op(relax.const(True), format=x), "string constant"),
        (lambda: R.shape_of(x, 3), "too many positional"),
        (lambda: R.shape_of(x, axis=3), "unexpected keyword"),
        (lambda: R.shape_of(), "missing a required argument"),
        (
            lambda: relax.Call("relax.shape_of", [x], {"axis": 1}),
            "wanted attributes none; got axis",
        ),
        (lambda: relax.Call("relax.shape_of", [x, x]), "wanted 1 arguments, got 2"),
        (
            lambda: relax.Call("relax.grad.adaptive_avg_pool1d_backward", [ids, ids], {"axis": 1}),
            "wanted attributes output_size, layout, out_layout; got axis",
        ),
        (lambda: R.grad.nll_loss_backward(), r"it is .*\(output_grad: 'Expr', predictions: 'Expr'"),
        (lambda: R.builtin.alloc_tensor(x, "float32"), "wanted a shape"),
        (lambda: R.builtin.alloc_tensor((n,), x), "wanted a dtype constant"),
        (lambda: R.memory.kill_tensor(relax.ShapeExpr((n,))), "wanted a tensor"),
        (lambda: R.memory.view(relax.const(np.zeros(4, "int8")), (8,)), "at most 4 bytes"),
        (lambda: R.vm.call_tir_dyn(gv, x), "tuple"),
        (lambda: R.make_closure(x, (x,)), "GlobalVar"),
    ],
)
def test_misuse_names_operator_wanted_and_got(call, message):
    with pytest.raises(StructInfoError, match=message):
        call()


def test_assert_and_print_keep_format_first():
    made = R.assert_op(relax.const(True), [x], format="bad {}")
    assert [type(a).__name__ for a in made.args] == ["Constant", "StringImm", "Var"]
    assert made.struct_info is Tuple(())
    assert R.print(x, format="{}").args[0].value == "{}"


def test_allocations_infer_the_tensor():
    made = R.builtin.alloc_tensor((n, 4), "float16", 0)
    assert made.struct_info is Tensor((n, 4), "float16")
    assert [type(a).__name__ for a in made.args] == [
        "ShapeExpr",
        "DataTypeImm",
        "PrimValue",
        "StringImm",
    ]
    storage = R.memory.alloc_storage((64,), 0, "global", "uint8")
    assert storage.struct_info is Object()
    s = relax.Var("s", Object())
    assert R.memory.alloc_tensor(s, 0, (n, 4), "float16").struct_info is Tensor((n, 4), "float16")
    assert len(R.vm.alloc_tensor(s, 0, (n, 4), "float16").args) == 4
    assert R.memory.view(x, (4, n)).struct_info is Tensor((4, n))


def test_purity_of_operators():
    impure = {r.short for r in graph_ops() if not r.pure}
    assert {"print", "assert_op", "invoke_closure", "vm.call_tir_dyn", "vm.kill_object"} <= impure
    assert (
        not {"call_tir", "call_dps_packed", "call_pure_packed", "shape_of", "null_value"} & impure
    )


def test_closures():
    made = R.invoke_closure(relax.Var("f", Object()), (x,), sinfo_args=OUT)
    assert made.struct_info is OUT
    assert R.make_closure(gv, (x,)).struct_info is Object()


# -- the decorator --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scaled():
    @R.op("test.scaled", numpy=lambda x, factor=1.0: x * factor, lower=R.missing("a test"))
    def scaled(
        x: relax.Expr,
        shape: R.record.Shape | None = None,
        *,
        factor: float = 1.0,
        axes: tuple[int, ...] = (),
        dtype: relax.expr.DataType | None = None,
        keep: bool = False,
    ) -> relax.StructInfo:
        """A test operator."""
        info = x.struct_info
        if not isinstance(info, Tensor):
            raise StructInfoError(f"wanted a tensor, got {info}")
        return info

    return scaled


def test_decorated_operator_converts_arguments_and_attributes(scaled):
    call = scaled(x, (n, 2), factor=2, axes=[0, 1], dtype="int8")
    assert call.args == (x, relax.ShapeExpr((n, 2)))
    assert call.attrs == {"factor": 2.0, "axes": (0, 1), "dtype": "int8", "keep": False}
    assert type(call.attrs["factor"]) is float
    assert scaled(x).args == (x,)
    assert [p.form is None for p in scaled.op.params] == [False, False, True, True, True, True]
    assert scaled.__doc__ == "A test operator."


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"factor": "a"}, "attribute factor: wanted float, got str"),
        ({"keep": 3}, "attribute keep: wanted bool"),
        ({"axes": 3}, "attribute axes: wanted tuple"),
        ({"nothing": 3}, "unexpected keyword"),
    ],
)
def test_wrong_attributes_are_named(scaled, attrs, message):
    with pytest.raises(StructInfoError, match=message):
        scaled(x, **attrs)


Value = relax.Expr
Sized = TypeVar("Sized", bound=relax.Expr)
Axis = NewType("Axis", int)
Factor = Annotated[float, "of what is left"]
Mode = Literal["left", "right"]


def test_what_a_parameter_is_follows_from_its_type_and_not_from_its_words(monkeypatch):
    monkeypatch.setattr(Op, "_table", dict(Op._table))

    @R.op("test.spelled", numpy=None, lower=R.missing("a test"))
    def spelled(
        x: Value,
        like: Sized | None = None,
        axis: Axis = 0,
        factor: Factor = 1.0,
        mode: Mode = "left",
    ) -> relax.StructInfo:
        return x.struct_info

    call = spelled(x, x, axis=np.int64(1), factor=2, mode="right")
    assert call.args == (x, x)
    assert call.attrs == {"axis": 1, "factor": 2.0, "mode": "right"}
    check_errors(
        [
            (lambda: spelled(x, axis=True), "attribute axis: wanted int, got True"),
            (lambda: spelled(x, factor="a"), "attribute factor: wanted float, got str"),
            (lambda: spelled(x, mode=3), "attribute mode: wanted str, got int"),
        ]
    )


def test_an_annotation_that_is_no_type_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(Op, "_table", dict(Op._table))

    @R.op("test.misspelled", numpy=None, lower=R.missing("a test"))
    def misspelled(x: relax.Expr, axis: Axes = 0) -> relax.StructInfo:
        return x.struct_info

    @R.op("test.unspelled", numpy=None, lower=R.missing("a test"))
    def unspelled(x: relax.Expr, axis=0) -> relax.StructInfo:
        return x.struct_info

    with pytest.raises(TypeError, match="test.misspelled: an annotation names no type: .*'Axes'"):
        misspelled(x)
    with pytest.raises(TypeError, match="test.unspelled: parameter axis needs an annotation"):
        unspelled(x)


def test_rule_errors_show_operands(scaled):
    with pytest.raises(StructInfoError, match=r"test.scaled: wanted a tensor(.|\n)*x: R.Shape"):
        scaled(relax.ShapeExpr((n,)))


# -- numbers that numpy computed -------------------------------------------------------------------


def test_numpy_scalars_and_arrays_are_numbers_where_numbers_are_wanted():
    x = relax.Var("x", Tensor((2, 6), "float32"))
    image = relax.Var("image", Tensor((1, 2, 6, 6), "float32"))
    two, array = np.int64(2), np.array
    same = [
        (R.clip(x, np.float32(-0.5), array(2)), R.clip(x, -0.5, 2)),
        (R.zeros((two, np.int32(3)), "int8"), R.zeros((2, 3), "int8")),
        (R.zeros(array([2, 3]), "int8"), R.zeros((2, 3), "int8")),
        (R.reshape(x, (np.int64(-1), np.prod([2, 2]))), R.reshape(x, (-1, 4))),
        (R.arange(np.int32(5)), R.arange(5)),
        (R.eye(two, k=np.int8(1)), R.eye(2, k=1)),
        (R.tril(x, array(1)), R.tril(x, 1)),
        (R.sum(x, axis=array([0, 1])), R.sum(x, axis=(0, 1))),
        (R.sum(x, axis=np.int16(-1), keepdims=np.bool_(True)), R.sum(x, axis=-1, keepdims=True)),
        (R.strided_slice(x, array([1]), [two], array(5)), R.strided_slice(x, [1], [2], [5])),
        (R.nn.max_pool2d(image, array([2, 2]), array(2)), R.nn.max_pool2d(image, (2, 2), 2)),
        (R.nn.leakyrelu(x, array(0.5)), R.nn.leakyrelu(x, 0.5)),
    ]
    for got, want in same:
        assert_structural_equal(got, want)


def test_what_no_number_or_tensor_is_made_of_is_refused_by_name():
    x = relax.Var("x", Tensor((2, 6), "float32"))
    check_errors(
        [
            (lambda: R.exp(np.float32), "^exp: argument x: .*elements of dtype object"),
            (lambda: R.exp(np.array([object()])), "^exp: argument x: .*elements of dtype object"),
            (lambda: R.add(x, 10**400), "^add: the integer is beyond the range of floats"),
            (lambda: R.add(2**63, 1), "^add: 9223372036854775808 does not fit int64"),
            (lambda: R.clip(None, 0, 1), "^clip: argument x: wanted a relax expression, got None"),
            (lambda: R.clip(x, 10**400, 1), "^clip: min: the integer is beyond the range"),
            (
                lambda: R.nn.leakyrelu(x, 10**400),
                "^nn.leakyrelu: attribute alpha: the integer is beyond the range of floats",
            ),
            (lambda: R.strided_slice(x, [2**70], [0], [1]), "^strided_slice: axes: .*fit int64"),
            (lambda: R.strided_slice(x, [[1]], [0], [1]), "^strided_slice: axes: wanted a scalar"),
            (lambda: R.matmul(x, x, out_dtype="x"), "^matmul: out_dtype: unknown dtype 'x'"),
            (lambda: R.layout_transform(x, divmod), "^layout_transform: index_map: calling"),
            (lambda: R.layout_transform(x, int), "^layout_transform: index_map: wanted a Python"),
        ]
    )


def test_add_takes_an_integer_that_only_floats_hold():
    x = relax.Var("x", Tensor((2,), "float32"))
    assert R.add(x, 2**70).args[1].data.numpy() == np.float32(2**70)
