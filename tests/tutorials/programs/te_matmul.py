"""How to optimise a matrix product on CPU: a baseline from a formula, then blocking,
vectorisation, loop permutation, packing, a write cache, and parallel loops; each is the same
function.
"""

import numpy as np
import tvm
from tvm import te

M = K = N = 128
dtype = "float32"
target = tvm.target.Target("llvm")
dev = tvm.device(target.kind.name, 0)
assert dev == tvm.device("cpu", 0)

a = tvm.nd.array(np.random.rand(M, K).astype(dtype), dev)
b = tvm.nd.array(np.random.rand(K, N).astype(dtype), dev)
answer = np.dot(a.numpy(), b.numpy())

k = te.reduce_axis((0, K), "k")
A = te.placeholder((M, K), name="A")
B = te.placeholder((K, N), name="B")
C = te.compute((M, N), lambda m, n: te.sum(A[m, k] * B[k, n], axis=k), name="C")
func = te.create_prim_func([A, B, C])
func = func.with_attr("global_symbol", "mmult")
log = []


def evaluate_operation(sch, optimization, wanted=answer):
    func = tvm.build(sch.mod, target=target)
    c = tvm.nd.array(np.zeros((M, N), dtype=dtype), dev)
    func(a, b, c)
    tvm.testing.assert_allclose(c.numpy(), wanted, rtol=1e-5)
    evaluator = func.time_evaluator(func.entry_name, dev, number=1)
    log.append((optimization, evaluator(a, b, c).mean))


sch = tvm.tir.Schedule(func)
evaluate_operation(sch, "none")

# blocking: a tile of 32 by 32 stays in the cache
bn = 32


def blocked(func):
    sch = tvm.tir.Schedule(func)
    block = sch.get_block("C")
    m, n, k = sch.get_loops(block)
    mo, mi = sch.split(m, factors=[None, bn])
    no, ni = sch.split(n, factors=[None, bn])
    ko, ki = sch.split(k, factors=[None, 4])
    return sch, block, (mo, no, ko, ki, mi, ni)


sch, block, loops = blocked(func)
sch.reorder(*loops)
evaluate_operation(sch, "blocking")

# vectorisation of the innermost columns
sch, block, loops = blocked(func)
sch.reorder(*loops)
sch.vectorize(loops[-1])
evaluate_operation(sch, "vectorization")

# loop permutation: rows of A one after another
sch, block, (mo, no, ko, ki, mi, ni) = blocked(func)
sch.reorder(mo, no, ko, mi, ki, ni)
sch.vectorize(ni)
evaluate_operation(sch, "loop permutation")

# array packing: B in panels of 32 columns
packedB = te.compute(
    (N // bn, K, bn), lambda bigN, k, littleN: B[k, bigN * bn + littleN], name="packedB"
)
k = te.reduce_axis((0, K), "k")
C = te.compute(
    (M, N),
    lambda m, n: te.sum(A[m, k] * packedB[n // bn, k, tvm.tir.indexmod(n, bn)], axis=k),
    name="C",
)
packed_func = te.create_prim_func([A, B, C]).with_attr("global_symbol", "mmult")


def packed():
    sch, block, (mo, no, ko, ki, mi, ni) = blocked(packed_func)
    sch.reorder(mo, no, ko, mi, ki, ni)
    bigN, _, littleN = sch.get_loops(sch.get_block("packedB"))
    sch.vectorize(littleN)
    sch.parallel(bigN)
    return sch, block, (mo, no, ko, mi, ki, ni)


sch, block, (mo, no, ko, mi, ki, ni) = packed()
sch.vectorize(ni)
evaluate_operation(sch, "array packing")

# a cache for the tile that is written
sch, block, (mo, no, ko, mi, ki, ni) = packed()
CC = sch.cache_write(block, 0, "global")
sch.reverse_compute_at(CC, no)
sch.unroll(ki)
sch.vectorize(ni)
init = sch.decompose_reduction(block, ko)
sch.vectorize(sch.get_loops(init)[-1])
sch.vectorize(sch.get_loops(CC)[-1])
evaluate_operation(sch, "block caching")

# the same, and rows of tiles in parallel
sch.parallel(mo)
evaluate_operation(sch, "parallelization")
assert "T.parallel" in sch.mod.script()
assert "T.vectorized" in sch.mod.script()
print("Operator".rjust(20), "Timing > 0", "Performance")
for result in log:
    print(result[0].rjust(20), result[1] > 0)

# lowering shows loops and flat buffers; the library shows its instructions
lowered = tvm.lower(sch.mod)
assert "T.block" not in lowered["main"].script()
assert "define" in tvm.build(sch.mod, target).get_source("ll")

# a formula with symbols: one function for every size
n = te.var("n")
A = te.placeholder((n,), name="A")
B = te.placeholder((n,), name="B")
C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
fadd = tvm.build(te.create_prim_func([A, B, C]), target=target)
for size in (1, 7, 1024):
    a = tvm.nd.array(np.random.uniform(size=size).astype("float32"), dev)
    b = tvm.nd.array(np.random.uniform(size=size).astype("float32"), dev)
    c = tvm.nd.array(np.zeros(size, dtype="float32"), dev)
    fadd(a, b, c)
    tvm.testing.assert_allclose(c.numpy(), a.numpy() + b.numpy())
