"""Kernels in which little is allowed, by name: most primitives must refuse most of them."""

KERNELS = {}

# A buffer under a second name.
KERNELS["alias_view"] = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    V = T.decl_buffer((8,), "float32", data=A.data)
    for i in range(8):
        with T.block("P"):
            vi = T.axis.spatial(8, i)
            A[vi] = B[vi] * T.float32(2)
    for i in range(8):
        with T.block("Q"):
            vi = T.axis.spatial(8, i)
            B[vi] = V[7 - vi] + T.float32(1)
"""

# A view by match_buffer, with strides and an offset.
KERNELS["match_view"] = """
@T.prim_func
def main(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
    C = T.alloc_buffer((8, 4), "float32")
    for i in range(8):
        with T.block("P"):
            vi = T.axis.spatial(8, i)
            T.reads(A[vi, 0:4])
            T.writes(C[vi, 0:4])
            V = T.match_buffer(C[vi, 0:4], (1, 4), "float32", strides=[4, 1], elem_offset=vi * 4)
            for j in range(4):
                with T.block("Pi"):
                    vj = T.axis.spatial(4, j)
                    V[0, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(8, 4):
        with T.block("Q"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[7 - vi, vj] + T.float32(1)
"""

# A loop whose range is read from a buffer.
KERNELS["data_bound"] = """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), I: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        for k in range(I[i]):
            with T.block("P"):
                vi = T.axis.spatial(8, i)
                vk = T.axis.reduce(8, k)
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]
"""

# As before, and the buffer is written in the same loop.
KERNELS["data_bound_change"] = """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), I: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("S"):
            vi = T.axis.spatial(8, i)
            I[vi] = T.min(I[vi], 3)
        for k in range(I[i]):
            with T.block("P"):
                vi = T.axis.spatial(8, i)
                vk = T.axis.reduce(8, k)
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]
"""

# Statements outside of blocks.
KERNELS["bare_statements"] = """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for i in range(8):
        for j in range(8):
            B[i, j] = A[i, j]
        for j in range(8):
            with T.block("P"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = B[vi, 7 - vj]
"""

# Strides.
KERNELS["strided"] = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (8, 4), "float32", strides=[4, 1])
    B = T.match_buffer(b, (8, 4), "float32")
    C = T.alloc_buffer((8, 4), "float32", strides=[6, 1])
    for i, j in T.grid(8, 4):
        with T.block("P"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(8, 4):
        with T.block("Q"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, 3 - vj]
"""

# One block, two buffers.
KERNELS["two_out"] = """
@T.prim_func
def main(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
    C = T.alloc_buffer((8, 4), "float32")
    D = T.alloc_buffer((8, 4), "float32")
    for i, j in T.grid(8, 4):
        with T.block("P"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.float32(2)
            D[vi, vj] = C[vi, vj] + T.float32(1)
    for i, j in T.grid(8, 4):
        with T.block("Q"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[7 - vi, vj] - D[vi, 3 - vj]
"""

# A reduction of two values.
KERNELS["argmax"] = """
@T.prim_func
def main(A: T.Buffer((6, 8), "float32"), V: T.Buffer((6,), "float32"), X: T.Buffer((6,), "int32")):
    for i, k in T.grid(6, 8):
        with T.block("P"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                X[vi] = -1
                V[vi] = T.float32(-1000)
            v_x: T.int32 = T.Select(V[vi] >= A[vi, vk], X[vi], vk)
            v_v: T.float32 = T.Select(V[vi] >= A[vi, vk], V[vi], A[vi, vk])
            X[vi] = v_x
            V[vi] = v_v
"""

# An init that reads what a later block in the loop writes.
KERNELS["init_swap"] = """
@T.prim_func
def main(
    A: T.Buffer((6, 8), "float32"),
    B: T.Buffer((6,), "float32"),
    C: T.Buffer((6,), "float32"),
):
    for i, k in T.grid(6, 8):
        with T.block("P"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = C[vi]
            B[vi] = B[vi] + A[vi, vk]
        with T.block("Q"):
            vi = T.axis.spatial(6, i)
            vk = T.axis.spatial(8, k)
            T.where(k == 7)
            C[vi] = B[vi]
"""

# A reduce axis that starts with its last value.
KERNELS["late_reduce"] = """
@T.prim_func
def main(A: T.Buffer((6, 8), "float32"), B: T.Buffer((6,), "float32")):
    for i, k in T.grid(6, 8):
        with T.block("P"):
            vi = T.axis.spatial(6, i)
            vk = T.axis.reduce(8, 7 - k)
            with T.init():
                B[vi] = T.float32(5)
            B[vi] = B[vi] + A[vi, vk]
"""

# A reduction that is run twice.
KERNELS["twice_reduce"] = """
@T.prim_func
def main(A: T.Buffer((6, 8), "float32"), B: T.Buffer((6,), "float32")):
    for t, i, k in T.grid(2, 6, 8):
        with T.block("P"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(5)
            B[vi] = B[vi] + A[vi, vk]
"""

# A reduction that never runs its init.
KERNELS["half_reduce"] = """
@T.prim_func
def main(A: T.Buffer((6, 8), "float32"), B: T.Buffer((6,), "float32")):
    for i, k in T.grid(6, 4):
        with T.block("P"):
            vi = T.axis.spatial(6, i)
            vk = T.axis.reduce(8, k + 4)
            with T.init():
                B[vi] = T.float32(5)
            B[vi] = B[vi] + A[vi, vk]
"""

# A block without axes that uses the loop itself; an opaque axis.
KERNELS["opaque_block"] = """
@T.prim_func
def main(A: T.Buffer((6,), "float32"), B: T.Buffer((6,), "float32")):
    for i in range(6):
        with T.block("P"):
            vi = T.axis.opaque(6, i)
            B[0] = B[0] + A[vi]
    for i in range(6):
        with T.block("Q"):
            A[i] = B[0]
"""

# Blocks without axes.
KERNELS["no_axes"] = """
@T.prim_func
def main(A: T.Buffer((6, 4), "float32"), B: T.Buffer((6, 4), "float32")):
    C = T.alloc_buffer((6, 4), "float32")
    for i in range(6):
        with T.block("P"):
            T.reads(A[i, 0:4])
            T.writes(C[i, 0:4])
            for j in range(4):
                C[i, j] = A[i, j]
    for i in range(6):
        with T.block("Q"):
            T.reads(C[i, 0:4])
            T.writes(B[i, 0:4])
            for j in range(4):
                B[i, j] = C[5 - i, j]
"""

# Declared regions that are wrong.
KERNELS["lying_regions"] = """
@T.prim_func
def main(A: T.Buffer((6, 4), "float32"), B: T.Buffer((6, 4), "float32")):
    C = T.alloc_buffer((6, 4), "float32")
    for i, j in T.grid(6, 4):
        with T.block("P"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads()
            T.writes(C[0, 0])
            C[vi, vj] = A[vi, vj]
    for i, j in T.grid(6, 4):
        with T.block("Q"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(C[vi, vj])
            T.writes(B[vi, vj])
            B[vi, vj] = C[5 - vi, 3 - vj]
"""

# 64-bit indices.
KERNELS["int64"] = """
@T.prim_func
def main(
    A: T.Buffer((T.int64(6), T.int64(4)), "float32"),
    B: T.Buffer((T.int64(6), T.int64(4)), "float32"),
):
    C = T.alloc_buffer((T.int64(6), T.int64(4)), "float32")
    for i, j in T.grid(T.int64(6), T.int64(4)):
        with T.block("P"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(T.int64(6), T.int64(4)):
        with T.block("Q"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[T.int64(5) - vi, vj]
"""

# Iterations that go on with the one before.
KERNELS["scan"] = """
@T.prim_func
def main(A: T.Buffer((6, 4), "float32"), B: T.Buffer((6, 4), "float32")):
    for j in range(4):
        with T.block("I"):
            vj = T.axis.spatial(4, j)
            B[0, vj] = A[0, vj]
    for i, j in T.grid(5, 4):
        with T.block("P"):
            vi = T.axis.spatial((1, 6), i + 1)
            vj = T.axis.spatial(4, j)
            B[vi, vj] = B[vi - 1, vj] + A[vi, vj]
"""

# A block that writes every second element of what another wrote.
KERNELS["partial"] = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    C = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("Z"):
            vi = T.axis.spatial(8, i)
            C[vi] = T.float32(7)
    for i in range(4):
        with T.block("P"):
            vi = T.axis.spatial(4, i)
            C[vi * 2] = A[vi * 2] * T.float32(2)
    for i in range(8):
        with T.block("Q"):
            vi = T.axis.spatial(8, i)
            B[vi] = C[vi] + T.float32(1)
"""

# An update in place that reads its neighbour.
KERNELS["shift_inplace"] = """
@T.prim_func
def main(A: T.Buffer((9,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("P"):
            vi = T.axis.spatial(8, i)
            A[vi] = A[vi + 1] * T.float32(2)
    for i in range(8):
        with T.block("Q"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi + 1]
"""

# Triangular loops, whose blocks have domains that change with a loop.
KERNELS["triangle"] = """
@T.prim_func
def main(A: T.Buffer((9, 9), "float32"), B: T.Buffer((9, 9), "float32")):
    for i in range(2, 9):
        for j in range(i, 9):
            with T.block("P"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for j in range(i, 9):
            with T.block("Q"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = B[vi, vj] + B[vi - 1, vj]
"""

# A division that padding would make one by zero.
KERNELS["division"] = """
@T.prim_func
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((6,), "int32"), C: T.Buffer((6,), "int32")):
    for i in range(6):
        with T.block("P"):
            vi = T.axis.spatial(6, i)
            C[vi] = T.floordiv(A[vi], B[vi])
"""

# A block under a condition.
KERNELS["if_block"] = """
@T.prim_func
def main(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
    C = T.alloc_buffer((8, 4), "float32")
    for i, j in T.grid(8, 4):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.float32(1)
    for i in range(8):
        if A[i, 0] > T.float32(3):
            for j in range(4):
                with T.block("P"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(8, 4):
        with T.block("Q"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj] + T.float32(1)
"""

# A reduction under a condition.
KERNELS["if_reduce"] = """
@T.prim_func
def main(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        if A[i, 0] > T.float32(3):
            for j in range(4):
                with T.block("P"):
                    vi, vj = T.axis.remap("SR", [i, j])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vj]
"""

# An axis bound to what is read.
KERNELS["bind_load"] = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), I: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
    C = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("P"):
            vi = T.axis.spatial(8, i)
            C[vi] = A[vi]
    for i in range(8):
        with T.block("Q"):
            vi = T.axis.spatial(8, i)
            vx = T.axis.spatial(6, I[i])
            B[vi] = C[vx] + A[vi]
"""

# As before, and what is read is written in the same loop.
KERNELS["bind_load_change"] = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), I: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("S"):
            vi = T.axis.spatial(8, i)
            I[vi] = T.min(I[vi], 3)
        with T.block("Q"):
            vi = T.axis.spatial(8, i)
            vx = T.axis.spatial(6, I[i])
            B[vi] = A[vx] + A[vi]
"""

# A predicate that reads a buffer.
KERNELS["pred_load"] = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), I: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("S"):
            vi = T.axis.spatial(8, i)
            I[vi] = T.min(I[vi], 3)
    for i in range(8):
        with T.block("Q"):
            vi = T.axis.spatial(8, i)
            T.where(I[i] < 3)
            B[vi] = A[vi] + A[7 - vi]
"""

# Loops that are parallel and vectorized already.
KERNELS["parallel_already"] = """
@T.prim_func
def main(A: T.Buffer((8, 6), "float32"), B: T.Buffer((8, 6), "float32")):
    C = T.alloc_buffer((8, 6), "float32")
    for i in T.parallel(8):
        for j in range(6):
            with T.block("P"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * T.float32(2)
        for j in T.vectorized(6):
            with T.block("Q"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = C[vi, 5 - vj] + A[vi, vj]
"""

# Lets, and a block that overwrites its own input.
KERNELS["overwritten_input"] = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    C = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("P"):
            vi = T.axis.spatial(8, i)
            t: T.float32 = A[vi] * T.float32(2)
            C[vi] = t + t
    for i in range(8):
        with T.block("Q"):
            vi = T.axis.spatial(8, i)
            t: T.float32 = C[7 - vi]
            C[vi] = t
            B[vi] = t + C[vi]
"""

# Blocks three deep.
KERNELS["three_deep"] = """
@T.prim_func
def main(A: T.Buffer((6, 4), "float32"), B: T.Buffer((6, 4), "float32")):
    for i in range(6):
        with T.block("outer"):
            vo = T.axis.spatial(6, i)
            for t in range(1):
                with T.block("mid"):
                    vt = T.axis.spatial(1, t)
                    vm = T.axis.spatial(6, vo)
                    C = T.alloc_buffer((6, 4), "float32")
                    D = T.alloc_buffer((6, 4), "float32")
                    for j in range(4):
                        with T.block("P"):
                            vi = T.axis.spatial(6, vm)
                            vj = T.axis.spatial(4, j)
                            C[vi, vj] = A[vi, vj] * T.float32(2)
                    for j in range(4):
                        with T.block("P2"):
                            vi = T.axis.spatial(6, vm)
                            vj = T.axis.spatial(4, j)
                            D[vi, vj] = C[vi, vj] * T.float32(2)
                    for j in range(4):
                        with T.block("Q"):
                            vi = T.axis.spatial(6, vm)
                            vj = T.axis.spatial(4, j)
                            B[vi, vj] = C[vi, vj]+D[vi,vj]
"""
