"""Writing over dead inputs, storages that branches share: what the plan does and that results
stay.
"""

import numpy as np
import pytest
from relax_vm_helpers import (
    Body,
    bindings_of,
    build_interpreted,
    call_tir,
    count_calls,
    elementwise,
    gv,
    lowered,
    module,
    tensor,
)

from relaxvm import relax
from relaxvm.ir import PassContext
from relaxvm.relax import Call, If, Tuple, Var
from relaxvm.relax.transform.inplace_kernels import overwritable_inputs, write_over
from relaxvm.runtime import VirtualMachine
from relaxvm.script import from_source
from relaxvm.tir import interpret
from relaxvm.tir.analysis import verify_well_formed

pytestmark = pytest.mark.vm_modes

F = gv("f")
HEADER = "from relaxvm.script import tir as T\n@T.prim_func\ndef f("
PAIR = 'A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):\n'


def prim(body, params=PAIR):
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return from_source(HEADER + params + lines)


SAFE = {
    "elementwise": """
for i, j in T.grid(4, 4):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] * A[vi, vj] + T.float32(1)
""",
    "no blocks": """
for i, j in T.grid(4, 4):
    B[i, j] = A[i, j] + T.float32(1)
""",
    "softmax reads first": """
m = T.alloc_buffer((4,), "float32")
for i, j in T.grid(4, 4):
    with T.block("m"):
        vi, vj = T.axis.remap("SR", [i, j])
        with T.init():
            m[vi] = T.float32(-100)
        m[vi] = T.max(m[vi], A[vi, vj])
for i, j in T.grid(4, 4):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = T.exp(A[vi, vj] - m[vi])
""",
}
UNSAFE = {
    "transpose": """
for i, j in T.grid(4, 4):
    B[i, j] = A[j, i]
""",
    "shifted": """
for i, j in T.grid(4, 4):
    B[i, j] = A[i, j] + A[0, j]
""",
    "stores twice to one element": """
for i, j, k in T.grid(4, 4, 2):
    B[i, j] = A[i, j] + T.float32(1)
""",
    "two stores": """
for i, j in T.grid(4, 4):
    B[i, j] = A[i, j]
for i, j in T.grid(4, 4):
    B[i, j] = A[i, j] + T.float32(1)
""",
    "reads its output": """
for i, j, k in T.grid(4, 4, 4):
    with T.block("B"):
        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
        with T.init():
            B[vi, vj] = T.float32(0)
        B[vi, vj] = B[vi, vj] + A[vi, vk]
""",
    "read after writing": """
m = T.alloc_buffer((4,), "float32")
for i, j in T.grid(4, 4):
    B[i, j] = A[i, j]
for i in range(4):
    m[i] = A[i, 0]
""",
    "read in a condition": """
for i, j in T.grid(4, 4):
    if A[0, 0] > T.float32(0):
        B[i, j] = A[i, j]
""",
    "read at an index": """
for i, j in T.grid(4, 4):
    B[i, j] = A[i, j] + A[T.cast(A[i, j], "int64") % 4, j]
""",
    "collapsed index": """
for i, j in T.grid(4, 4):
    B[i // 2, j] = A[i // 2, j] + T.float32(1)
""",
}


@pytest.mark.parametrize("name", SAFE)
def test_safe_kernels_compute_the_same_in_place(name):
    fn = prim(SAFE[name])
    assert overwritable_inputs(fn) == ((0, 1),)
    made = write_over(fn, 0, 1, "f_inplace")
    verify_well_formed(made)
    a = np.random.default_rng(0).random((4, 4), dtype="float32")
    b = np.zeros_like(a)
    interpret(fn, a, b)
    c = a.copy()
    interpret(made, c)
    np.testing.assert_array_equal(b, c)


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_kernels_are_left_alone(name):
    assert overwritable_inputs(prim(UNSAFE[name])) == ()


def test_other_dtype_or_shape_is_left_alone():
    body = "for i, j in T.grid(4, 4):\n    B[i, j] = T.cast(A[i, j], 'float64')"
    pair = 'A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float64")):\n'
    assert overwritable_inputs(prim(body, pair)) == ()
    body = "for i, j in T.grid(2, 4):\n    B[i, j] = A[i, j]"
    pair = 'A: T.Buffer((4, 4), "float32"), B: T.Buffer((2, 4), "float32")):\n'
    assert overwritable_inputs(prim(body, pair)) == ()


def names_called(mod):
    return [n for n in count_calls(mod["main"]) if n.startswith("f")]


def test_dead_input_is_overwritten_and_a_parameter_is_not():
    x, b = Var("x", tensor((4,))), Body()
    y = x
    for _ in range(3):
        y = b(call_tir(F, (y,), tensor((4,))))
    mod = module({"main": b.function([x], y), F: elementwise(lambda a: a * 2.0 + 1.0, 1)})
    low = lowered(mod)
    counts = count_calls(low["main"])
    assert (counts["f"], counts["f_inplace"]) == (2, 1)
    given = np.arange(4, dtype="float32")
    assert build_interpreted(mod)["main"](given).numpy().tolist() == [7, 15, 23, 31]
    assert given.tolist() == [0, 1, 2, 3]
    off = lowered(mod, config={"relax.StaticPlanBlockMemory.inplace": False})
    assert "f_inplace" not in count_calls(off["main"])


def test_input_that_is_read_later_is_kept():
    x, b = Var("x", tensor((4,))), Body()
    first = b(call_tir(F, (x,), tensor((4,))))
    second = b(call_tir(F, (first,), tensor((4,))))
    last = b(call_tir(gv("f2"), (first, second), tensor((4,))))
    functions = {
        "main": b.function([x], last),
        F: elementwise(lambda a: a + 1.0, 1),
        gv("f2"): elementwise(lambda a, c: a * c, 2),
    }
    mod = module(functions)
    assert names_called(lowered(mod)) == ["f", "f2"]
    assert build_interpreted(mod)["main"](np.zeros(4, "float32")).numpy().tolist() == [2] * 4


def test_one_tensor_as_two_arguments_is_kept():
    x, b = Var("x", tensor((4, 4))), Body()
    first = b(call_tir(F, (x,), tensor((4, 4))))
    second = b(call_tir(gv("f2"), (first, first), tensor((4, 4))))
    last = b(call_tir(F, (second,), tensor((4, 4))))
    both = prim(
        "for i, j in T.grid(4, 4):\n    C[i, j] = A[i, j] + B[j, i]",
        'A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32"), '
        'C: T.Buffer((4, 4), "float32")):\n',
    ).without_attr("global_symbol")
    assert overwritable_inputs(both) == ((0, 2),)
    functions = {
        "main": b.function([x], last),
        F: elementwise(lambda a: a + 1.0, 1, (4, 4)),
        gv("f2"): both,
    }
    mod = module(functions)
    given = np.arange(16, dtype="float32").reshape(4, 4)
    want = (given + 1) + (given + 1).T + 1
    np.testing.assert_array_equal(build_interpreted(mod)["main"](given).numpy(), want)
    assert "f2_inplace" not in count_calls(lowered(mod)["main"])


def test_tensor_with_a_second_name_is_kept():
    x, b = Var("x", tensor((4,))), Body()
    first = b(call_tir(F, (x,), tensor((4,))))
    pair = b(Tuple((first, x)))
    second = b(call_tir(F, (first,), tensor((4,))))
    mod = module(
        {"main": b.function([x], Tuple((pair, second))), F: elementwise(lambda a: a + 1.0, 1)}
    )
    (one, _), two = build_interpreted(mod)["main"](np.zeros(4, "float32"))
    assert (one.numpy().tolist(), two.numpy().tolist()) == ([1] * 4, [2] * 4)


def shape_of_branches(n_true, n_false):
    """A function whose branches allocate that many tensors that cannot be written in place."""
    x, c, b = Var("x", tensor((4,))), Var("c", tensor((), "bool")), Body()
    t, e = Body(), Body()
    results = []
    for branch, count in ((t, n_true), (e, n_false)):
        y = x
        for _ in range(count):
            y = branch(call_tir(gv("rev"), (y,), tensor((4,))))
        results.append(branch.seq(y))
    y = b(If(c, *results))
    z = b(call_tir(gv("rev"), (y,), tensor((4,))))
    last = b(call_tir(gv("rev"), (z,), tensor((4,))))
    reverse = prim(
        "for i in range(4):\n    B[i] = A[3 - i] + T.float32(1)",
        'A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):\n',
    ).without_attr("global_symbol")
    return module({"main": b.function([c, x], last), gv("rev"): reverse})


def test_storage_of_both_branches_is_allocated_once_before_them():
    mod = shape_of_branches(3, 3)
    storages = count_calls(lowered(mod)["main"])["relax.vm.alloc_storage"]
    # Two shared by the branches and `z`, one for each branch's result, one for the last.
    assert storages == 5
    vm = build_interpreted(mod)
    x = np.arange(4, dtype="float32")
    for cond in (True, False):
        got = vm["main"](np.array(cond), x).numpy()
        np.testing.assert_array_equal(got, x[::-1] + 5)


@pytest.mark.parametrize("counts", [(0, 3), (3, 0), (1, 4), (4, 2)])
def test_branches_of_any_length_compute_the_same(counts):
    mod = shape_of_branches(*counts)
    x = np.arange(4, dtype="float32")
    plain = {"disabled_pass": ["StaticPlanBlockMemory"]}
    for cond in (True, False):
        got = build_interpreted(mod)["main"](np.array(cond), x).numpy()
        want = build_interpreted(mod, context=plain)["main"](np.array(cond), x).numpy()
        np.testing.assert_array_equal(got, want)


def test_smaller_symbolic_size_takes_a_free_larger_storage():
    from relaxvm import tir

    n = tir.Var("n", "int64")
    x, b = Var("x", tensor((n,))), Body()
    wide = b(relax.call_dps_packed("env.f", (x,), tensor((n, 3))))
    mid = b(relax.call_dps_packed("env.f", (wide,), tensor((7,))))
    small = b(relax.call_dps_packed("env.f", (mid,), tensor((n, 2))))
    last = b(relax.call_dps_packed("env.f", (small,), tensor((n,))))
    low = lowered(module({"main": b.function([x], last)}))
    allocations = [
        v for v in bindings_of(low["main"])
        if isinstance(v.value, Call)
        and getattr(v.value.op, "name", "") == "relax.vm.alloc_storage"
    ]  # fmt: skip
    assert len(allocations) == 3


def test_native_kernels_in_place_give_the_same_results():
    mod = from_source(
        """
from relaxvm.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def f(a: T.handle, b: T.handle):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        n = T.int64()
        cls = Module
        a = R.call_tir(cls.f, (x,), out_sinfo=R.Tensor((n, 4), "float32"))
        b = R.call_tir(cls.f, (a,), out_sinfo=R.Tensor((n, 4), "float32"))
        c = R.call_tir(cls.f, (b,), out_sinfo=R.Tensor((n, 4), "float32"))
        return c
"""
    )
    with PassContext(disabled_pass=["FuseOps"]):  # or it is one kernel
        ex = relax.build(mod)
    assert "f_inplace" in ex.as_text()
    vm = VirtualMachine(ex)
    for n in (0, 1, 5, 33):
        x = np.random.default_rng(n).random((n, 4), dtype="float32")
        np.testing.assert_array_equal(vm["main"](x).numpy(), x * 8)
