"""Users' own walks over graph functions, and the helpers that come with them."""

import pytest

import relaxvm as tvm
from relaxvm import ir, relax, te, tir
from relaxvm.base import StructInfoError, VerifyError
from relaxvm.ir import assert_structural_equal
from relaxvm.relax import ExprFunctor, PyExprMutator, PyExprVisitor
from relaxvm.relax.analysis import get_static_type
from relaxvm.relax.utils import (
    args_converter,
    convert_to_expr,
    copy_with_new_vars,
    gen_call_tir_inputs,
)
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@I.ir_module
class Branches:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            lv = R.exp(x)
            t = (lv, x)
            gv = t[0]
            R.output(gv)
        if c:
            y = R.add(gv, R.const(1.0))
        else:
            y = R.call_dps_packed("f", gv, R.Tensor(("n", 4), "float32"))
        return y


def test_a_functor_computes_whatever_its_methods_give():
    class Depth(ExprFunctor):
        def visit_call_(self, call):
            return 1 + max(map(self.visit_expr, call.args), default=0)

        def visit_var_(self, var):
            return 0

        def visit_tuple_(self, value):
            return max(map(self.visit_expr, value.fields))

    x = relax.Var("x", R.Tensor((4,), "float32"))
    assert Depth().visit_expr(relax.Tuple([R.exp(R.add(x, R.sin(x))), x])) == 3
    with pytest.raises(VerifyError, match="Depth has no method visit_constant_"):
        Depth().visit_expr(R.add(x, relax.const(1.0)))
    with pytest.raises(VerifyError, match="int is no expression"):
        Depth().visit_expr(3)


@pytest.mark.parametrize("mark", [relax.expr_functor.visitor, lambda cls: cls])
def test_a_visitor_with_and_without_the_mark(mark):
    @mark
    class Log(PyExprVisitor):
        def __init__(self):
            super().__init__()
            self.seen = []

        def visit_call_(self, call):
            super().visit_call_(call)
            self.seen.append(call.op.name)

        def visit_var_def_(self, var):
            self.seen.append(var.name_hint)

        def visit_dataflow_var_def_(self, var):
            self.seen.append(f"inner {var.name_hint}")

        def visit_extern_func_(self, func):
            self.seen.append(func.global_symbol)

    log = Log()
    log.visit_expr(Branches["main"])
    assert log.seen == [
        "c", "x", "relax.exp", "inner lv", "inner t", "gv", "relax.add", "y", "f",
        "relax.call_dps_packed", "y", "y",
    ]  # fmt: skip


@pytest.mark.parametrize("mark", [relax.expr_functor.mutator, lambda cls: cls])
def test_a_mutator_with_and_without_the_mark(mark):
    @mark
    class Sines(PyExprMutator):
        def visit_call_(self, call):
            call = self.visit_expr_post_order(call)
            if call.op != ir.Op.get("relax.exp"):
                return call
            return R.sin(self.builder_.emit(R.negative(call.args[0])))

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            z = R.exp(R.add(y, y))
            R.output(z)
        return z

    @R.function
    def expected(x: R.Tensor((4,), "float32")):
        R.func_attr({"global_symbol": "main"})
        with R.dataflow():
            a = R.negative(x)
            y = R.sin(a)
            s = R.add(y, y)
            b = R.negative(s)
            z = R.sin(b)
            R.output(z)
        return z

    got = Sines(ir.IRModule({"main": main})).transform()["main"]
    assert_structural_equal(
        got.without_attr("global_symbol"), expected.without_attr("global_symbol")
    )


def test_a_mutator_remaps_variables_by_identity_and_struct_info():
    class Halves(PyExprMutator):
        def visit_function_(self, fn):
            new = relax.Var("half", R.Tensor(("m", 4), "float16"))
            self.set_var_remap(fn.params[0].vid, new)
            assert self.get_var_remap(fn.params[0]) is new
            with self.builder_.nested_function([new]):
                body = self.builder_.finish_nested(self.visit_expr(fn.body))
            return relax.Function([new], body)

        def visit_var_binding_(self, binding):
            super().visit_var_binding_(binding)
            bound = self.get_var_remap(binding.var)
            assert self.lookup_binding(bound).op.name == "relax.exp"

    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        y = R.exp(x)
        return y

    got = Halves().visit_expr(main)
    assert str(got.ret_struct_info) == 'R.Tensor((m, 4), dtype="float16")'
    y = got.body.blocks[0].bindings[0].var
    mutator = Halves()
    assert mutator.with_struct_info(y, y.struct_info).struct_info is y.struct_info


# -- static types


def test_static_types_are_struct_info_without_sizes():
    n = tir.Var("n", "int64")
    cases = {
        R.Tensor((n, 4), "float16"): relax.TensorType(2, "float16"),
        R.Tensor(): relax.TensorType(-1, ""),
        R.Shape((n, 4)): relax.ShapeType(2),
        R.Shape(): relax.ShapeType(),
        R.Prim(value=n): ir.PrimType("int64"),
        R.Object(): relax.ObjectType(),
        R.Tuple(R.Object(), R.Prim("bool")): ir.TupleType(
            [relax.ObjectType(), ir.PrimType("bool")]
        ),
        relax.FuncStructInfo.opaque_func(): relax.PackedFuncType(),
        R.Callable((R.Tensor((n,)),), R.Shape((n,))): relax.FuncType(
            [relax.TensorType(1, None)], relax.ShapeType(1)
        ),
    }
    for info, kind in cases.items():
        assert get_static_type(info) is kind
        assert relax.Var("x", info).checked_type == kind == relax.Var("y", info).checked_type
        assert isinstance(kind, ir.Type)
    assert relax.TensorType(2, "float32") == relax.TensorType(2) != relax.TensorType(3)
    with pytest.raises(StructInfoError, match="wanted struct info, got int"):
        get_static_type(3)


# -- relax.utils


def test_values_become_expressions():
    x = relax.Var("x", R.Tensor((4,), "float32"))
    assert convert_to_expr(x) is x
    assert isinstance(convert_to_expr(tir.Var("n", "int64")), relax.PrimValue)
    assert str(convert_to_expr(3).value.dtype) == "int64"
    assert convert_to_expr("text").value == "text"
    assert len(convert_to_expr([x, (x, 1)]).fields) == 2
    with pytest.raises(TypeError, match="may mean two things"):
        convert_to_expr(tir.StringImm("text"))
    with pytest.raises(TypeError, match="wanted a relax expression"):
        convert_to_expr(object())


def test_arguments_are_converted_before_the_function_sees_them():
    @args_converter.to_expr("a", "rest")
    @args_converter.to_list_expr("b")
    def named(a, b, c=None, *rest):
        return a, b, c, rest

    a, b, c, rest = named(1, (2, "x"), 3, 4, 5)
    assert isinstance(a, relax.PrimValue) and isinstance(b, list) and c == 3
    assert [type(each) for each in b] == [relax.PrimValue, relax.StringImm]
    assert all(isinstance(each, relax.PrimValue) for each in rest)

    @args_converter.auto
    def annotated(
        a: relax.Expr, b: list[relax.Expr], c: relax.Expr | None = None, d: int = 1
    ) -> tuple:
        return a, b, c, d

    a, b, c, d = annotated(1, [2], d=4)
    assert isinstance(a, relax.PrimValue) and isinstance(b[0], relax.PrimValue)
    assert c is None and d == 4
    assert isinstance(annotated(1, [], "c")[2], relax.StringImm)
    assert annotated.__name__ == "annotated"
    with pytest.raises(TypeError, match="wanted a list of values, got int"):
        annotated(1, 2)
    with pytest.raises(StructInfoError, match="named has no argument z"):
        args_converter.to_expr("z")(named)


def test_a_copy_has_variables_of_its_own():
    copy = copy_with_new_vars(Branches["main"])
    assert_structural_equal(copy, Branches["main"])
    theirs = {id(v) for v in relax.analysis.all_vars(Branches["main"])}
    assert not theirs & {id(v) for v in relax.analysis.all_vars(copy)}


def test_the_inputs_of_call_tir():
    n = tir.Var("n", "int64")
    x = relax.Var("x", R.Tensor((n, 4), "float32"))
    func, args, info, symbols = gen_call_tir_inputs(
        lambda a, k: te.compute((a.shape[0], 4), lambda i, j: a[i, j] * k, name="scaled"),
        x, 2.0, primfunc_attrs={"remark": 1},
    )  # fmt: skip
    assert isinstance(func, tir.PrimFunc) and func.attrs["remark"] == 1
    assert args == [x] and symbols is None
    assert str(info) == 'R.Tensor((n, 4), dtype="float32")'
    b = relax.BlockBuilder()
    with b.function("main", [x]):
        gv = b.add_func(func, "scaled")
        b.emit_func_output(b.emit(relax.call_tir(gv, args, info, symbols)))
    vm = relax.VirtualMachine(tvm.compile(b.get()), tvm.cpu())
    assert vm["main"](tvm.nd.array([[1.0, 2.0, 3.0, 4.0]])).numpy().tolist() == [[2, 4, 6, 8]]


@I.ir_module
class TwoBlocks:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv = R.exp(x)
            lv1 = R.nn.relu(lv)
            gv = R.negative(lv1)
            R.output(gv)
        y = R.add(gv, gv)
        return y


@relax.expr_functor.mutator
class WithoutRelu(PyExprMutator):
    def visit_call_(self, call):
        call = super().visit_call_(call)
        before = self.lookup_binding(call.args[0])
        if call.op.name == "relax.nn.relu" and before.op.name == "relax.exp":
            return call.args[0]
        return call


def test_a_block_is_visited_alone_and_in_a_pass_over_blocks():
    @relax.transform.dataflowblock_pass(opt_level=0)
    class Pass:
        def transform_dataflowblock(self, block, mod, ctx):
            return WithoutRelu(mod).visit_binding_block(block)

    wanted = WithoutRelu().visit_expr(TwoBlocks["main"])
    assert "relu" not in wanted.script() and "R.output(gv)" in wanted.script()
    assert_structural_equal(Pass()(TwoBlocks)["main"], wanted)
    plain = TwoBlocks["main"].body.blocks[1]
    assert WithoutRelu().visit_binding_block(plain) is plain


def test_a_method_for_blocks_gives_the_block_that_stands_there():
    class Doubled(PyExprMutator):
        def visit_dataflow_block_(self, block):
            self.builder_._begin_dataflow_block()
            for binding in block.bindings[:-1]:
                self.visit_binding(binding)
            last = block.bindings[-1]
            value = self.builder_.emit(self.visit_expr(last.value))
            self.set_var_remap(last.var, self.builder_.emit_output(relax.op.add(value, value)))
            return self.builder_._end_block()

    class Dropped(PyExprMutator):
        def visit_binding_block_(self, block):
            super().visit_binding_block_(block)
            for binding in block.bindings:
                self.set_var_remap(binding.var, binding.value.args[0])
            return relax.BindingBlock([])

    both = Dropped().visit_expr(Doubled().visit_expr(TwoBlocks["main"]))
    assert relax.analysis.well_formed(tvm.IRModule({"main": both}))
    (block,) = both.body.blocks
    assert [b.value.op.name for b in block.bindings][-2:] == ["relax.negative", "relax.add"]
    assert both.body.body is block.bindings[-1].var
