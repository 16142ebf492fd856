"""IRBuilder: the same modules as in text, made by Python calls: loop functions with blocks, graph
functions, both in one module; and the older `tir.ir_builder` for loops without blocks.
"""

import numpy as np
import tvm
from tvm import relax, te, tir
from tvm.script import tir as T
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import ir as I_b
from tvm.script.ir_builder import relax as R_b
from tvm.script.ir_builder import tir as T_b

# --- a loop function with a block
with IRBuilder() as ib:
    with T_b.prim_func():
        T_b.func_name("scale")
        T_b.func_attr({"tir.noalias": T_b.bool(True)})
        A = T_b.arg("A", T_b.Buffer((16, 16), "float32"))
        B = T_b.arg("B", T_b.Buffer((16, 16), "float32"))
        with T_b.grid(16, 16) as (i, j):
            ib.name("i", i)
            ib.name("j", j)
            with T_b.block("scale"):
                vi = T_b.axis.spatial(16, i)
                vj = T_b.axis.spatial(16, j)
                T_b.reads(A[vi, vj])
                T_b.writes(B[vi, vj])
                T_b.buffer_store(B, A[vi, vj] * T_b.float32(2), [vi, vj])
scale = ib.get()


@T.prim_func
def written(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    T.func_attr({"global_symbol": "scale", "tir.noalias": T.bool(True)})
    for i, j in T.grid(16, 16):
        with T.block("scale"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi, vj])
            T.writes(B[vi, vj])
            B[vi, vj] = A[vi, vj] * T.float32(2)


tvm.ir.assert_structural_equal(scale.body, written.body, map_free_vars=True)
x = np.random.rand(16, 16).astype("float32")
out = tvm.nd.empty((16, 16))
tvm.build(scale, "llvm")(tvm.nd.array(x), out)
np.testing.assert_allclose(out.numpy(), 2 * x)

# --- a reduction, symbols, a loop that is parallel, a branch
with IRBuilder() as ib:
    with T_b.prim_func():
        T_b.func_name("rows")
        n = T_b.int32()
        a = T_b.arg("a", T_b.handle())
        s = T_b.arg("s", T_b.handle())
        A = T_b.match_buffer(a, (n, 8), "float32")
        S = T_b.match_buffer(s, (n,), "float32")
        with T_b.parallel(0, n) as i:
            with T_b.serial(0, 8) as k:
                with T_b.block("S"):
                    vi = T_b.axis.spatial(n, i)
                    vk = T_b.axis.reduce(8, k)
                    with T_b.init():
                        T_b.buffer_store(S, T_b.float32(0), [vi])
                    with T_b.If(A[vi, vk] > T_b.float32(0.5)):
                        with T_b.Then():
                            T_b.buffer_store(S, S[vi] + A[vi, vk], [vi])
rows = ib.get()
x = np.random.rand(5, 8).astype("float32")
out = tvm.nd.empty((5,))
tvm.build(rows, "llvm")["rows"](tvm.nd.array(x), out)
np.testing.assert_allclose(out.numpy(), np.where(x > 0.5, x, 0).sum(1), rtol=1e-5)

# --- a graph function
with IRBuilder() as ib:
    with R_b.function():
        R_b.func_name("foo")
        R_b.func_attr({"Primitive": True})
        x = R_b.arg("x", relax.TensorStructInfo((128, 128), "float32"))
        R_b.func_ret_struct_info(relax.TensorStructInfo(dtype="float32", ndim=2))
        y = R_b.emit(R_b.add(x, x))
        ib.name("y", y)
        out = R_b.emit(R_b.multiply(y, x))
        IRBuilder.name("out", out)
        R_b.func_ret_value(out)
func = ib.get()
print(
    func.params[0].name_hint,
    [b.var.name_hint for b in func.body.blocks[0].bindings],
    func.ret_struct_info,
)

# --- a module of both
with IRBuilder() as ib:
    with I_b.ir_module():
        with T_b.prim_func():
            T_b.func_name("tir_func")
            T_b.func_attr({"tir.noalias": True})
            A = T_b.arg("A", T_b.Buffer((4,), "float32"))
            B = T_b.arg("B", T_b.Buffer((4,), "float32"))
            with T_b.serial(0, 4) as i:
                with T_b.block("B"):
                    vi = T_b.axis.spatial(4, i)
                    T_b.buffer_store(B, T_b.exp(A[vi]), [vi])
        tir_func = I_b.decl_function("other", scale)
        I_b.def_function("other", scale)
        with R_b.function():
            R_b.func_name("main")
            x = R_b.arg("x", relax.TensorStructInfo((4,), "float32"))
            with R_b.dataflow() as df:
                lv = R_b.emit(R_b.add(x, R_b.const(1.0, "float32")))
                gv = R_b.emit(R_b.multiply(lv, lv))
                R_b.output(gv)
            (gv,) = df.output_vars
            R_b.func_ret_value(gv)
mod = ib.get()
print(sorted(gv.name_hint for gv in mod.get_global_vars()), type(mod) is tvm.IRModule)
vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
np.testing.assert_allclose(
    vm["main"](tvm.nd.array(np.arange(4, dtype="float32"))).numpy(), (np.arange(4) + 1) ** 2
)

# --- the older builder: loops, scopes and lets as statements of Python
n = te.size_var("n")
ib = tvm.tir.ir_builder.create()
A = ib.pointer("float32", name="A")
tmod = tvm.tir.truncmod
with ib.for_range(0, n, name="i") as i:
    with ib.if_scope(tmod(i, 2) == 0):
        A[i] = A[i] + 1
    with ib.else_scope():
        A[0] = A[i] + 2
body = ib.get()
print(isinstance(body, tir.For), isinstance(body.body, tir.IfThenElse), body.extent is n)


def collatz_ref(n):
    a = n
    i = 0
    while a > 1:
        a = a // 2 if a % 2 == 0 else 3 * a + 1
        i += 1
    return i


def collatz(ib, n, C):
    i = ib.allocate("int32", (1,), name="i", scope="local")
    a = ib.allocate("int32", (1,), name="a", scope="local")
    i[0] = 0
    a[0] = n
    with ib.while_loop(a[0] > 1):
        with ib.if_scope(tmod(a[0], 2) == 0):
            a[0] = tvm.tir.truncdiv(a[0], 2)
        with ib.else_scope():
            a[0] = 3 * a[0] + 1
        i[0] = i[0] + 1
    C[n] = i[0]


Cbuf = tir.decl_buffer((30,), "int32", name="C")
ib = tir.ir_builder.create()
C = ib.buffer_ptr(Cbuf)
with ib.for_range(0, 30, name="i", kind="parallel") as i:
    collatz(ib, i, C)
func = tir.PrimFunc([Cbuf], ib.get()).with_attr("global_symbol", "main")
out = tvm.nd.array(np.zeros(30, "int32"))
tvm.build(func, "llvm")(out)
np.testing.assert_equal(out.numpy(), [collatz_ref(i) for i in range(30)])
