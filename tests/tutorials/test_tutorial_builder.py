"""Programs made with the builder instead of text: te, emit_te, dataflow blocks."""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, te, tir
from relaxvm.script import relax as R


def te_matmul(A: te.Tensor, B: te.Tensor) -> te.Tensor:
    assert A.shape[1] == B.shape[0]
    n, m = A.shape[0], B.shape[1]
    k = te.reduce_axis((0, A.shape[1]), name="k")
    return te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="matmul")


def te_relu(A: te.Tensor) -> te.Tensor:
    return te.compute(A.shape, lambda *i: tir.max(A(*i), 0.0), name="relu")


def build_model():
    A = relax.Var("A", relax.TensorStructInfo((16, 32), "float32"))
    B = relax.Var("B", R.Tensor((32, 8), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [A, B]):
        with bb.dataflow():
            C = bb.emit_te(te_matmul, A, B)
            D = bb.emit_te(te_relu, C)
            out = bb.emit_output(D)
        bb.emit_func_output(out)
    return bb.get()


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return (
        rng.standard_normal((16, 32)).astype("float32"),
        rng.standard_normal((32, 8)).astype("float32"),
    )


def test_emit_te_adds_a_loop_function_and_a_call_of_it():
    mod = build_model()
    names = {gv.name_hint for gv in mod.get_global_vars()}
    assert names == {"main", "te_matmul", "te_relu"}
    assert relax.analysis.well_formed(mod)
    body = mod["main"].body
    assert isinstance(body.blocks[0], relax.DataflowBlock)
    assert body.blocks[0].bindings[0].value.op == tvm.ir.Op.get("relax.call_tir")


def test_the_built_module_runs(arrays):
    a, b = arrays
    vm = relax.VirtualMachine(relax.build(build_model(), "llvm"), tvm.cpu())
    out = vm["main"](tvm.nd.array(a), tvm.nd.array(b))
    np.testing.assert_allclose(out.numpy(), np.maximum(a @ b, 0), rtol=1e-4, atol=1e-5)


def test_the_built_module_reads_back_from_its_script():
    mod = build_model()
    tvm.ir.assert_structural_equal(tvm.script.from_source(mod.script()), mod)


def test_symbolic_sizes_flow_through_emit_te(arrays):
    n = tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo([n, 32], "float32"))
    w = relax.const(arrays[1])
    bb = relax.BlockBuilder()
    with bb.function("main"):
        with bb.dataflow():
            lv = bb.emit_te(te_matmul, x, w)
            assert lv.struct_info.shape[0] is n
            gv = bb.emit_output(bb.emit_te(te_relu, lv, primfunc_name_hint="relu"))
        bb.emit_func_output(gv, params=[x])
    vm = relax.VirtualMachine(tvm.compile(bb.get(), "llvm"), tvm.cpu())
    for rows in (0, 1, 16):
        a = arrays[0][:rows]
        np.testing.assert_allclose(
            vm["main"](a).numpy(), np.maximum(a @ arrays[1], 0), rtol=1e-4, atol=1e-5
        )


def test_a_loop_function_is_added_and_called_by_its_global_var():
    A = te.placeholder((4,), "float32", name="A")
    B = te.compute((4,), lambda i: A[i] * 3.0, name="B")
    bb = relax.BlockBuilder()
    gv = bb.add_func(te.create_prim_func([A, B]), "triple")
    x = relax.Var("x", R.Tensor([4], "float32"))
    with bb.function("main", [x]):
        y = bb.emit(relax.call_tir(gv, x, R.Tensor((4,), "float32")))
        z = bb.emit(relax.op.call_tir(gv, [y], relax.TensorStructInfo((4,), "float32")))
        bb.emit_func_output(relax.Tuple([y, z]))
    vm = relax.VirtualMachine(relax.build(bb.finalize(), "llvm"), tvm.cpu())
    y, z = vm["main"](tvm.nd.array(np.ones(4, "float32")))
    np.testing.assert_array_equal(y.numpy(), np.full(4, 3, "float32"))
    np.testing.assert_array_equal(z.numpy(), np.full(4, 9, "float32"))


def test_operators_take_dunder_spelling_and_run():
    x = relax.Var("x", R.Tensor((3,), "float32"))
    y = relax.Var("y", R.Tensor((3,), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x, y]):
        with bb.dataflow():
            lv = bb.emit(relax.op.add(x, y))
            lv = bb.emit(lv * relax.const(2, "float32"))
            gv = bb.emit_output(relax.op.exp(lv))
        bb.emit_func_output(gv)
    vm = relax.VirtualMachine(relax.build(bb.get(), "llvm"), tvm.cpu())
    a, b = np.float32([0, 1, 2]), np.float32([1, -1, -2])
    np.testing.assert_allclose(vm["main"](a, b).numpy(), np.exp((a + b) * 2), rtol=1e-5)


def test_match_cast_names_a_size_known_only_when_running():
    n = tir.Var("n", "int64")
    x = relax.Var("x", R.Tensor(ndim=1, dtype="float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        y = bb.match_cast(x, R.Tensor((n,), "float32"))
        with bb.dataflow():
            z = bb.emit_output(bb.emit_te(te_relu, y))
        bb.emit_func_output(relax.Tuple([z, relax.ShapeExpr([n * 2])]))
    vm = relax.VirtualMachine(relax.build(bb.get(), "llvm"), tvm.cpu())
    z, shape = vm["main"](np.float32([-1, 2, -3]))
    np.testing.assert_array_equal(z.numpy(), np.float32([0, 2, 0]))
    assert tuple(shape) == (6,)


def test_builder_scopes_name_what_is_missing():
    bb = relax.BlockBuilder()
    with pytest.raises(tvm.TVMError, match="function"):
        bb.emit(relax.const(1.0))
    assert relax.BlockBuilder.current() is None
