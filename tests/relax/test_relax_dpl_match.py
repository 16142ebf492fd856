"""What patterns match, one value at a time."""

import pytest
from pass_cases import parse

from relaxvm import relax, tir
from relaxvm.base import PatternError, RelaxvmError
from relaxvm.relax.analysis import get_var2val
from relaxvm.relax.dpl import (
    CallPattern,
    ExternFuncPattern,
    FunctionPattern,
    is_call_dps_packed,
    is_call_packed,
    is_call_tir,
    is_const,
    is_dfv,
    is_expr,
    is_gv,
    is_op,
    is_shape,
    is_tuple,
    is_tuple_get_item,
    is_var,
    make_fused_bias_activation_pattern,
    wildcard,
)
from relaxvm.relax.dpl import has_attr as with_attr
from relaxvm.relax.dpl import has_dtype as of_dtype

F32 = relax.TensorStructInfo((2, 3), "float32")
x, y = relax.Var("x", F32), relax.DataflowVar("y", F32)
g = relax.GlobalVar("gemm1")


def add(a, b):
    return relax.op.add(a, b)


def test_leaves():
    assert wildcard().match(x) and wildcard().match(g)
    assert is_var().match(x) and is_var("x").match(x) and is_var().match(y)
    assert not is_var("z").match(x) and not is_var().match(g)
    assert is_dfv().match(y) and not is_dfv().match(x)
    assert is_gv("gemm").match(g) and is_gv().match(g)
    assert not is_gv("conv").match(g) and not is_gv().match(x)
    assert is_const().match(relax.const([1.0])) and not is_const().match(x)
    assert is_expr(x).match(x) and not is_expr(x).match(relax.Var("x", F32))
    assert is_expr(relax.const([1.0])).match(relax.const([1.0]))
    assert not is_expr(relax.const([1.0])).match(relax.const([2.0]))
    assert ExternFuncPattern("f").match(relax.ExternFunc("f"))
    assert not ExternFuncPattern("f").match(relax.ExternFunc("g"))


def test_shapes_are_compared_by_proof():
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    v = relax.Var("v", relax.TensorStructInfo((n, m, n + m), "float32"))
    assert wildcard().has_shape([n, m, m + n]).match(v)
    assert not wildcard().has_shape([m, n, n + m]).match(v)
    assert not wildcard().has_shape([n, m]).match(v)
    assert not wildcard().has_shape([2, 3]).match(relax.Var("u", relax.TensorStructInfo(ndim=2)))
    assert is_shape([n, m + n]).match(relax.ShapeExpr([n, n + m]))
    assert not is_shape([n, n * m]).match(relax.ShapeExpr([n, n + m]))
    assert is_shape([32, 4])[0] == 32 and len(is_shape([32, 4])) == 2


def test_dtypes_struct_info_and_attributes():
    assert of_dtype("float32").match(x) and not of_dtype("float16").match(x)
    assert wildcard().has_struct_info(relax.TensorStructInfo(ndim=2)).match(x)
    assert not wildcard().has_struct_info(relax.TensorStructInfo(ndim=3)).match(x)
    assert not wildcard().has_struct_info(F32).match(relax.Var("u", relax.TensorStructInfo(ndim=2)))
    s = relax.op.sum(x, axis=[1], keepdims=True)
    p = is_op("relax.sum")(wildcard())
    assert p.has_attr({"axis": [1], "keepdims": True}).match(s)
    assert with_attr({"keepdims": tir.IntImm("int64", 1)}).match(s)
    assert not p.has_attr({"axis": [0]}).match(s)
    assert not p.has_attr({"axes": [1]}).match(s)
    fn = relax.Function([x], x).with_attr("Codegen", "c")
    assert wildcard().has_attr({"Codegen": "c"}).match(fn)
    assert not wildcard().has_attr({"Codegen": "d"}).match(fn)
    assert is_op("relax.add").has_attr({"FPurity": True}).match(relax.op.add(x, x).op)


def test_one_symbol_of_struct_info_is_one_size():
    n = tir.Var("n", "int64")
    square = relax.TensorStructInfo((n, n), "float32")
    wide = relax.TensorStructInfo((n, 3), "float32")
    assert not wildcard().has_struct_info(square).match(x)
    assert wildcard().has_struct_info(wide).match(x)
    p = is_op("relax.add")(wildcard().has_struct_info(wide), wildcard().has_struct_info(wide))
    other = relax.Var("o", relax.TensorStructInfo((1, 3), "float32"))
    assert p.match(add(x, x)) and not p.match(add(x, other))


def test_calls():
    a, b = wildcard(), wildcard()
    p = is_op("relax.subtract")(a, b)
    assert isinstance(p, CallPattern)
    found = p.extract_matched_expr(relax.op.subtract(x, y))
    assert (found[a], found[b]) == (x, y) and found[p].op.name == "relax.subtract"
    assert not p.match(add(x, y)) and p.extract_matched_expr(add(x, y)) is None
    assert not is_op("relax.subtract")(a).match(relax.op.subtract(x, y))
    first = CallPattern(is_op("relax.subtract"), [a], varg_default_wildcard=True)
    assert first.match(relax.op.subtract(x, y))
    assert wildcard()(a, b).match(relax.op.subtract(x, y))


def test_add_and_multiply_match_either_way_around_and_others_do_not():
    const = relax.const([1.0, 2.0, 3.0])
    for op in (relax.op.add, relax.op.multiply):
        p = is_op(op(x, x).op.name)(is_const(), wildcard())
        assert p.match(op(const, x)) and p.match(op(x, const))
    assert not is_op("relax.subtract")(is_const(), wildcard()).match(relax.op.subtract(x, const))
    # As they stand comes first.
    a, b = wildcard(), wildcard()
    found = is_op("relax.add")(a, b).extract_matched_expr(add(x, y))
    assert (found[a], found[b]) == (x, y)


def test_one_object_stands_for_one_value():
    a = wildcard()
    p = is_op("relax.subtract")(a, a)
    assert p.match(relax.op.subtract(x, x)) and not p.match(relax.op.subtract(x, y))
    u, v = (relax.Var(n, F32) for n in "uv")
    e = relax.op.exp(x)
    assert p.match(relax.op.subtract(u, v), {u: e, v: u})
    assert not p.match(relax.op.subtract(u, v), {u: e, v: relax.op.exp(x)})
    assert p.match(relax.op.subtract(relax.const([1.0]), relax.const([1.0])))
    assert not p.match(relax.op.subtract(relax.const([1.0]), relax.const([2.0])))
    assert is_op("relax.subtract")(a, a.dup()).match(relax.op.subtract(x, y))


def test_choices_are_taken_back_where_they_do_not_fit_the_rest():
    a, b = wildcard(), wildcard()
    inner = is_op("relax.add")(a, b)
    p = is_op("relax.subtract")(inner, a)
    found = p.extract_matched_expr(relax.op.subtract(add(x, y), y))
    assert found[a] is y and found[b] is x
    either = is_op("relax.exp")(a) | wildcard()
    q = is_op("relax.subtract")(either, a)
    assert q.match(relax.op.subtract(relax.op.exp(x), y))
    assert a in q.extract_matched_expr(relax.op.subtract(relax.op.exp(x), y))


def test_and_or_not():
    p = wildcard().has_shape((2, 3)) & of_dtype("float32")
    assert p.match(x) and not p.match(relax.const([1.0]))
    assert (is_const() | is_var()).match(x) and not (is_const() | is_gv()).match(x)
    assert (~is_const()).match(x) and not (~is_var()).match(x)
    assert (~~is_var()).match(x)
    a = wildcard()
    found = is_op("relax.add")(~is_op("relax.exp")(a), a).extract_matched_expr(add(x, y))
    assert found[a] is y


def test_tuples():
    t = relax.Tuple([x, relax.const([1.0])])
    p = is_tuple([wildcard(), is_const()])
    assert p.match(t) and not p.match(relax.Tuple([relax.const([1.0]), x]))
    assert not p.match(relax.Tuple([])) and is_tuple([]).match(relax.Tuple([]))
    u = is_tuple([is_const(), is_var()], unordered=True)
    assert u.match(t) and u.match(relax.Tuple([relax.const([1.0]), x]))
    assert not u.match(relax.Tuple([x, x]))
    s = relax.op.split(x, 3, axis=1)
    assert is_tuple_get_item(is_op("relax.split")(wildcard()), 1).match(relax.TupleGetItem(s, 1))
    assert not is_tuple_get_item(wildcard(), 0).match(relax.TupleGetItem(s, 1))
    assert is_tuple_get_item(wildcard()).match(relax.TupleGetItem(s, 1))
    assert p[-1].index == 1 and p[None].index is None and len(p) == 2
    with pytest.raises(IndexError):
        p[2]


def test_functions():
    a, b = wildcard(), wildcard()
    p = FunctionPattern([a, b], is_op("relax.add")(a, b))
    u, v = (relax.Var(n, F32) for n in "uv")
    assert p.match(relax.Function([u, v], add(u, v)))
    assert not p.match(relax.Function([u, v], relax.op.subtract(u, v)))
    assert not p.match(relax.Function([u], add(u, u)))
    r = relax.Var("r", F32)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(r, add(u, v))])], r)
    assert p.match(relax.Function([u, v], body))


MODULE = """
    @T.prim_func(private=True)
    def gemm(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]

    @R.function
    def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        cls = Module
        with R.dataflow():
            a = R.call_tir(cls.gemm, (x,), out_sinfo=R.Tensor((4, 4), "float32"))
            b = R.call_dps_packed("relu", (a, w), out_sinfo=R.Tensor((4, 4), "float32"))
            c = R.call_pure_packed("f", b, sinfo_args=R.Tensor((4, 4), "float32"))
            d = R.add(c, w)
            e = R.nn.relu(d)
            R.output(e)
        return e
"""


def test_calls_of_kernels_and_packed_functions():
    fn = parse(MODULE)["main"]
    values = get_var2val(fn)
    a, b, c, d, e = (each.var for each in fn.body.blocks[0].bindings)
    kernel = is_call_tir("gemm")
    assert kernel.match(values[a]) and not is_call_tir("conv").match(values[a])
    assert is_call_tir("gemm", [is_var("x")]).match(values[a])
    assert is_call_dps_packed("relu", [kernel, is_var("w")]).match(values[b], values)
    assert not is_call_dps_packed("relu", [kernel, kernel]).match(values[b], values)
    assert is_call_dps_packed("relu").match(b, values)
    assert not is_call_dps_packed("relu", [kernel, wildcard()]).match(values[b])
    assert make_fused_bias_activation_pattern("relax.add", activation="relax.nn.relu").match(
        e, values
    )
    f = relax.Call(relax.ExternFunc("f"), (x, y), sinfo_args=[F32])
    assert is_call_packed("f").match(f) and is_call_packed("f", [is_var("x"), is_var()]).match(f)
    assert not is_call_packed("f", [is_var()]).match(f) and not is_call_packed("g").match(f)


def test_all_matches_of_a_function_from_top_to_bottom():
    fn = parse(MODULE)["main"]
    p = wildcard()
    chain = is_op("relax.nn.relu")(is_op("relax.add")(p, wildcard()))
    (found,) = chain.matches_all(fn)
    assert found[p].op.name == "relax.call_pure_packed"
    assert len(is_op("relax.add")(wildcard(), wildcard()).matches_all(fn.body.blocks[0])) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: is_op("relax.add")(x, x),
        lambda: is_op("relax.add")(1.0),
        lambda: is_tuple(wildcard()),
        lambda: is_tuple([x]),
        lambda: wildcard() | x,
        lambda: wildcard() & None,
        lambda: wildcard().has_shape(3),
        lambda: is_shape("ab"),
        lambda: wildcard().has_struct_info("float32"),
        lambda: wildcard().has_attr([1]),
        lambda: is_expr(3),
        lambda: is_var(3),
        lambda: FunctionPattern(wildcard(), wildcard()),
        lambda: is_op("relax.no_such_thing"),
        lambda: of_dtype("float31"),
        lambda: wildcard().used_by(3),
        lambda: is_const().match(x, {x: y, y: x}),
        lambda: wildcard().matches_all(3),
    ],
)
def test_malformed_patterns_are_typed_errors(make):
    with pytest.raises((RelaxvmError, TypeError)) as caught:
        make()
    assert isinstance(caught.value, RelaxvmError)


def test_patterns_are_immutable_and_print_short():
    p = is_op("relax.add")(wildcard(), wildcard())
    with pytest.raises(AttributeError):
        p.args = ()
    assert len(repr(p)) < 120


def test_deep_patterns_and_values_need_no_stack():
    p, v = wildcard(), x
    for _ in range(5_000):
        p, v = is_op("relax.exp")(p), relax.op.exp(v)
    assert p.match(v) and p.dup().match(v) and not is_op("relax.exp")(p).match(v)
    q = is_const()
    for _ in range(5_000):
        q = ~(q | is_gv())
    assert not q.match(x) and (~q).match(x)
    assert len(repr(q)) < 200


def test_a_pattern_of_too_many_alternatives_is_refused_not_waited_for():
    fields = [relax.const([float(i)]) for i in range(14)]
    p = is_tuple([wildcard() for _ in range(13)] + [is_gv()], unordered=True)
    with pytest.raises(PatternError, match="alternatives"):
        p.match(relax.Tuple(fields))
