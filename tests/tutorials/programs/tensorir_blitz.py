"""A blitz course to TensorIR: modules, functions, buffers, loop nests, blocks, iteration domains;
creation from text and from formulas; schedules; a build.
"""

import numpy as np
import tvm
from tvm import te
from tvm.ir.module import IRModule
from tvm.script import tir as T


@tvm.script.ir_module
class MyModule:
    @T.prim_func
    def main(a: T.handle, b: T.handle):
        # We exchange data between functions by handles, which are similar to pointers.
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        A = T.match_buffer(a, (8,), dtype="float32")
        B = T.match_buffer(b, (8,), dtype="float32")
        for i in range(8):
            # A block is an abstraction for computation.
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] + 1.0


ir_module = MyModule
print(type(ir_module) is IRModule)
print(ir_module.script())

A = te.placeholder((8,), dtype="float32", name="A")
B = te.compute((8,), lambda *i: A(*i) + 1.0, name="B")
func = te.create_prim_func([A, B])
ir_module_from_te = IRModule({"main": func})
tvm.ir.assert_structural_equal(ir_module_from_te, ir_module)

mod = tvm.build(ir_module, target="llvm")
print(type(mod).__name__)
a = tvm.nd.array(np.arange(8).astype("float32"))
b = tvm.nd.array(np.zeros((8,)).astype("float32"))
mod(a, b)
print(a)
print(b)

sch = tvm.tir.Schedule(ir_module)
print(type(sch))
block_b = sch.get_block("B")
(i,) = sch.get_loops(block_b)
i_0, i_1, i_2 = sch.split(i, factors=[2, 2, 2])
print([sch.get(loop).loop_var.name for loop in (i_0, i_1, i_2)])
sch.reorder(i_0, i_2, i_1)
print([sch.get(loop).loop_var.name for loop in sch.get_loops(block_b)])
sch.parallel(i_0)
sch.vectorize(i_1)
lib = tvm.build(sch.mod, target="llvm")
b = tvm.nd.array(np.zeros((8,), "float32"))
lib["main"](a, b)
np.testing.assert_allclose(b.numpy(), np.arange(8) + 1)

# what a function is made of
main = ir_module["main"]
assert isinstance(main, tvm.tir.PrimFunc)
print(main.params, [(p.name, main.buffer_map[p].shape) for p in main.params])
root = main.body.block
loop = root.body
realize = loop.body
block = realize.block
assert isinstance(loop, tvm.tir.For)
assert isinstance(realize, tvm.tir.BlockRealize)
print(loop.loop_var, loop.min, loop.extent, loop.kind == tvm.tir.ForKind.SERIAL)
print(
    block.name_hint, block.iter_vars[0].iter_type == tvm.tir.IterVar.DataPar, realize.iter_values[0]
)
print(block.reads, block.writes)
store = block.body
assert isinstance(store, tvm.tir.BufferStore)
assert isinstance(store.value, tvm.tir.Add)
assert isinstance(store.value.a, tvm.tir.BufferLoad)
assert isinstance(store.value.b, tvm.tir.FloatImm)
found = []
tvm.tir.stmt_functor.post_order_visit(main.body, lambda node: found.append(type(node).__name__))
print(sorted(set(found)))

# primitives one after another: fuse, compute_at, cache, rfactor, inline
M = 32


@T.prim_func
def two_steps(a: T.handle, c: T.handle, s: T.handle) -> None:
    A = T.match_buffer(a, (M, M))
    C = T.match_buffer(c, (M, M))
    S = T.match_buffer(s, (M,))
    B = T.alloc_buffer((M, M))
    for i, j in T.grid(M, M):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi, vj])
            T.writes(B[vi, vj])
            B[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(M, M):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.block_attr({"schedule_rule": "mine"})
            C[vi, vj] = T.exp(B[vi, vj] - T.float32(1))
    for i, j in T.grid(M, M):
        with T.block("S"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                S[vi] = 0.0
            S[vi] = S[vi] + C[vi, vj]


x = np.random.rand(M, M).astype("float32")
want = np.exp(2 * x - 1)


def run(func_or_mod):
    c, s = tvm.nd.empty((M, M)), tvm.nd.empty((M,))
    tvm.build(func_or_mod, target="llvm")(tvm.nd.array(x), c, s)
    np.testing.assert_allclose(c.numpy(), want, rtol=1e-5)
    np.testing.assert_allclose(s.numpy(), want.sum(1), rtol=1e-5)


run(two_steps)
sch = tvm.tir.Schedule(two_steps, debug_mask="all")
b, c, s = (sch.get_block(name) for name in "BCS")
assert sch.get(c).annotations["schedule_rule"] == "mine"
i, j = sch.get_loops(c)
fused = sch.fuse(i, j)
i, j = sch.split(fused, [None, 16])
sch.compute_at(b, i)
run(sch.mod)
sch.compute_inline(b)
run(sch.mod)
_, k = sch.get_loops(s)
_, k1 = sch.split(k, [None, 4])
rf = sch.rfactor(k1, factor_axis=0)
run(sch.mod)
read = sch.cache_read(sch.get_block("C"), 0, "global")
sch.set_scope(sch.get_block("C"), 0, "global")
sch.unroll(sch.get_loops(read)[-1])
run(sch.mod["main"].with_attr("global_symbol", "main"))
print([sch.get(x).name_hint for x in sch.get_child_blocks(sch.get_block("root"))])
