"""Chapter 4: stochastic schedules. Decisions are sampled, a trace records them, traces are shown,
changed and replayed, and a search by hand keeps the fastest.
"""

import numpy as np
import tvm
from tvm.script import tir as T


@tvm.script.ir_module
class MyModule:
    @T.prim_func
    def main(
        A: T.Buffer((64, 64), "float32"),
        B: T.Buffer((64, 64), "float32"),
        C: T.Buffer((64, 64), "float32"),
    ):
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        for i, j, k in T.grid(64, 64, 64):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = 0.0
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


dtype = "float32"
a_np = np.random.rand(64, 64).astype(dtype)
b_np = np.random.rand(64, 64).astype(dtype)
a_nd, b_nd = tvm.nd.array(a_np), tvm.nd.array(b_np)
c_nd = tvm.nd.empty((64, 64), dtype="float32")


def check(mod):
    lib = tvm.build(mod, target="llvm")
    lib["main"](a_nd, b_nd, c_nd)
    np.testing.assert_allclose(c_nd.numpy(), a_np @ b_np, rtol=1e-4)
    return lib.time_evaluator("main", tvm.cpu(), number=1)(a_nd, b_nd, c_nd).mean


def schedule_mm(sch: tvm.tir.Schedule, jfactor=4):
    block_C = sch.get_block("C", "main")
    i, j, k = sch.get_loops(block=block_C)
    j_0, j_1 = sch.split(loop=j, factors=[None, jfactor])
    sch.reorder(i, j_0, k, j_1)
    sch.decompose_reduction(block_C, k)
    return sch


sch = schedule_mm(tvm.tir.Schedule(MyModule))
check(sch.mod)
print(sch.trace)


def stochastic_schedule_mm(sch: tvm.tir.Schedule):
    block_C = sch.get_block("C", "main")
    i, j, k = sch.get_loops(block=block_C)
    j_factors = sch.sample_perfect_tile(loop=j, n=2)
    j_0, j_1 = sch.split(loop=j, factors=j_factors)
    sch.reorder(i, j_0, k, j_1)
    sch.decompose_reduction(block_C, k)
    return sch


sch = tvm.tir.Schedule(MyModule, seed=7)
block_C = sch.get_block("C", "main")
i, j, k = sch.get_loops(block=block_C)
j_factors = sch.sample_perfect_tile(loop=j, n=2)
print(type(j_factors[0]).__name__, int(sch.get(j_factors[0])) * int(sch.get(j_factors[1])))
unroll = sch.sample_categorical(candidates=[0, 16, 64], probs=[0.25, 0.5, 0.25])
assert int(sch.get(unroll)) in (0, 16, 64)
assert len(sch.trace.decisions) == 2


def random_search(mod: tvm.IRModule, num_trials=5):
    best_result = None
    best_sch = None
    for i in range(num_trials):
        sch = stochastic_schedule_mm(tvm.tir.Schedule(mod, seed=i))
        result = check(sch.mod)
        if best_result is None or result < best_result:
            best_result = result
            best_sch = sch
    return best_sch


sch = random_search(MyModule)

# --- the trace is data: other decisions, JSON, and replay on a fresh module
(inst, decision), *rest = sch.trace.decisions.items()
print(inst.kind.name, len(decision), not rest)
moved = sch.trace.with_decision(inst, [16, 4], remove_postproc=True)
again = tvm.tir.Schedule(MyModule)
moved.apply_to_schedule(again, remove_postproc=False)
assert [int(again.get(loop).extent) for loop in again.get_loops("C_update")] == [64, 16, 64, 4]
check(again.mod)

copy = tvm.tir.Schedule(MyModule)
tvm.tir.schedule.Trace.apply_json_to_schedule(moved.as_json(), copy)
tvm.ir.assert_structural_equal(copy.mod, again.mod)
simpler = moved.simplified(remove_postproc=True)
assert len(simpler.insts) <= len(moved.insts)

# --- a multi-level structure with annotations for the code generator
sch = tvm.tir.Schedule(MyModule, debug_mask="all", seed=1)
block = sch.get_block("C", "main")
i, j, k = sch.get_loops(block)
i_tiles = sch.split(i, sch.sample_perfect_tile(i, n=3, max_innermost_factor=16))
j_tiles = sch.split(j, sch.sample_perfect_tile(j, n=3, max_innermost_factor=16))
k_tiles = sch.split(k, sch.sample_perfect_tile(k, n=2))
sch.reorder(
    i_tiles[0], j_tiles[0], i_tiles[1], j_tiles[1], k_tiles[0], i_tiles[2], k_tiles[1], j_tiles[2]
)
cache = sch.cache_write(block, 0, "global")
sch.reverse_compute_at(cache, j_tiles[0])
fused = sch.fuse(i_tiles[0], j_tiles[0])
sch.parallel(fused)
sch.annotate(k_tiles[0], "pragma_auto_unroll_max_step", 16)
sch.annotate(k_tiles[0], "pragma_unroll_explicit", 1)
sch.vectorize(j_tiles[2])
check(sch.mod)
try:
    sch.parallel(k_tiles[0])
except tvm.tir.ScheduleError as error:
    print("ScheduleError:", "reduc" in str(error))
