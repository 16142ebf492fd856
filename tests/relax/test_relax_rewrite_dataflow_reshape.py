"""RewriteDataflowReshape: kernels that only reshape become views where nobody can tell."""

from __future__ import annotations

import random

import numpy as np
import pytest
from pass_cases import becomes, parse, random_model, same_results, stays

import relaxvm
from relaxvm import relax, tir
from relaxvm.ir import PassContext, walk
from relaxvm.relax.transform import RewriteDataflowReshape
from relaxvm.runtime import VirtualMachine

pytestmark = pytest.mark.vm_modes

RESHAPE = """
@T.prim_func(private=True)
def flat(a: T.handle, b: T.handle):
    T.func_attr({"tir.noalias": True})
    n = T.int64()
    A = T.match_buffer(a, (n, 4), "float32")
    B = T.match_buffer(b, (n * T.int64(4),), "float32")
    for i in range(n * T.int64(4)):
        with T.block("flat"):
            v = T.axis.spatial(n * T.int64(4), i)
            B[v] = A[v // T.int64(4), v % T.int64(4)]

@T.prim_func(private=True)
def exp(a: T.handle, b: T.handle):
    T.func_attr({"tir.noalias": True})
    n = T.int64()
    A = T.match_buffer(a, (n, 4), "float32")
    B = T.match_buffer(b, (n, 4), "float32")
    for i, j in T.grid(n, T.int64(4)):
        with T.block("exp"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = T.exp(A[v, w])

@T.prim_func(private=True)
def double(a: T.handle):
    T.func_attr({"tir.noalias": True})
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    for i in range(n):
        with T.block("double"):
            v = T.axis.spatial(n, i)
            A[v] = A[v] * T.float32(2)

@T.prim_func(private=True)
def total(a: T.handle, B: T.Buffer((), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    for i in range(n):
        with T.block("total"):
            v = T.axis.reduce(n, i)
            with T.init():
                B[()] = T.float32(0)
            B[()] = B[()] + A[v]
"""
KERNELS = {text.split("(")[1].split()[-1]: f"\n{text}\n" for text in RESHAPE.split("\n\n")}
MATRIX = 'R.Tensor(("n", 4), "float32")'
FLAT = "R.call_tir(cls.flat, ({},), out_sinfo=R.Tensor((n * 4,), 'float32'))"
EXP = "R.call_tir(cls.exp, ({},), out_sinfo=R.Tensor((n, 4), 'float32'))"
TOTAL = "R.call_tir(cls.total, ({},), out_sinfo=R.Tensor((), 'float32'))"
VIEW = "R.reshape({}, R.shape([n * 4]))"
X = np.arange(12, dtype="float32").reshape(3, 4) / 7


def main(*lines, result="c", params=f"x: {MATRIX}"):
    body = "".join(f"        {line}\n" for line in lines)
    used = "".join(text for name, text in KERNELS.items() if f"cls.{name}" in body)
    return (
        used
        + f"""
@R.function
def main({params}):
    n = T.int64()
    cls = Module
    with R.dataflow():
{body}        R.output({result})
    return {result}
"""
    )


def views(mod):
    return sum(
        isinstance(n, relax.Call) and getattr(n.op, "name", "") == "relax.reshape"
        for n in walk(mod["main"])
    )


def run(before):
    return RewriteDataflowReshape()(before)


def test_a_reshape_between_kernels_is_a_view():
    made = becomes(
        run,
        main(f"a = {EXP}".format("x"), f"b = {FLAT}".format("a"), f"c = {TOTAL}".format("b")),
        main(f"a = {EXP}".format("x"), f"b = {VIEW}".format("a"), f"c = {TOTAL}".format("b"))
        + KERNELS["flat"],
    )
    same_results(
        made,
        parse(
            main(f"a = {EXP}".format("x"), f"b = {FLAT}".format("a"), f"c = {TOTAL}".format("b"))
        ),
        X,
    )


def test_a_view_of_an_argument_that_stays_inside():
    mod = parse(main(f"b = {FLAT}".format("x"), f"c = {TOTAL}".format("b")))
    assert views(run(mod)) == 1
    for rows in (1, 3):
        same_results(mod, run(mod), X[:rows])


def test_a_result_is_a_view_of_what_only_it_gives_out():
    mod = parse(main(f"a = {EXP}".format("x"), f"c = {FLAT}".format("a")))
    assert views(run(mod)) == 1
    same_results(mod, run(mod), X)
    executable = relaxvm.compile(mod, "llvm")
    for mode in ("compiled", "bytecode"):
        vm = VirtualMachine(executable, exec_mode=mode)
        first, second = vm["main"](X), vm["main"](X + 1)
        np.testing.assert_allclose(first.numpy(), np.exp(X).reshape(-1), rtol=1e-6)
        assert not np.shares_memory(first.numpy(), second.numpy())
        out = np.empty(12, "float32")
        vm["main"](X, out=out)
        assert np.array_equal(out, first.numpy())


@pytest.mark.parametrize(
    "lines",
    [
        # An argument is not given back under another name.
        (f"c = {FLAT}".format("x"),),
        # Two results do not share memory.
        (f"a = {EXP}".format("x"), f"b = {FLAT}".format("a"), "c = (a, b)"),
        # What is written over is a copy.
        (
            f"a = {EXP}".format("x"),
            f"b = {FLAT}".format("a"),
            "d = R.call_tir_inplace(cls.double, (b,), inplace_indices=[0], "
            "out_sinfo=R.Tensor((n * 4,), 'float32'))",
            "c = (d, a)",
        ),
    ],
)
def test_what_could_be_told_apart_stays_a_kernel(lines):
    mod = stays(run, main(*lines))
    same_results(mod, mod, X)
    with PassContext() as context:
        run(mod)
    assert any(" copies: " in str(told) for told in context.report)


def test_of_two_results_that_share_memory_one_is_a_copy():
    mod = parse(
        main(
            f"a = {EXP}".format("x"),
            f"b = {FLAT}".format("a"),
            f"d = {FLAT}".format("a"),
            "c = (b, d)",
        )
    )
    assert views(run(mod)) == 1
    same_results(mod, run(mod), X)


def test_a_chain_of_reshapes_is_one_memory_and_the_plan_knows():
    lines = [f"a0 = {EXP}".format("x")]
    for k in range(6):
        lines += [
            f"b{k} = {FLAT}".format(f"a{k}"),
            f"m{k} = R.call_tir(cls.back, (b{k},), out_sinfo=R.Tensor((n, 4), 'float32'))",
            f"a{k + 1} = {EXP}".format(f"m{k}"),
        ]
    back = (
        KERNELS["flat"]
        .replace("def flat(a: T.handle, b", "def back(b: T.handle, a")
        .replace(
            "B[v] = A[v // T.int64(4), v % T.int64(4)]", "A[v // T.int64(4), v % T.int64(4)] = B[v]"
        )
    )
    mod = parse(back + main(*lines, result="a6"))
    assert views(run(mod)) == 12
    same_results(mod, run(mod), np.clip(X, 0, 0.1))


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_give_the_same_bits(seed):
    rng = random.Random(seed)
    mod, n = random_model(rng)
    numbers = np.random.default_rng(seed)
    for rows in (0, 1, 4) if isinstance(n, tir.Var) else (n,):
        args = [numbers.standard_normal(s).astype("float32") for s in ((rows, 6),) * 2 + ((6, 6),)]
        same_results(mod, run(mod), *args)


def test_a_kernel_whose_sizes_may_not_fit_is_called():
    text = main(
        "b = R.call_tir(cls.flat, (x,), out_sinfo=R.Tensor((m,), 'float32'))",
        result="b",
        params=f'x: {MATRIX}, s: R.Shape(["m"])',
    ).replace("    cls =", "    m = T.int64()\n    cls =")
    stays(run, text)


def test_the_default_build_copies_no_reshape():
    class Model(relax.frontend.nn.Module):
        def forward(self, x):
            heads = relax.frontend.nn.op.reshape(x + 1, (2, 3, 2))
            heads = relax.frontend.nn.op.permute_dims(heads, (1, 0, 2))
            return relax.frontend.nn.op.reshape(heads, (3, 4)) * 2

    spec = {"forward": {"x": relax.frontend.nn.spec.Tensor([6, 2], "float32")}}
    mod, _ = Model().export_tvm(spec)
    executable = relaxvm.compile(mod, "llvm")
    assert "vm.builtin.reshape" in executable.as_text()
    assert " reshape" not in executable.as_text().replace("vm.builtin.reshape", "")
    x = np.arange(12, dtype="float32").reshape(6, 2)
    wanted = (x + 1).reshape(2, 3, 2).transpose(1, 0, 2).reshape(3, 4) * 2
    for mode in ("compiled", "bytecode"):
        vm = VirtualMachine(executable, exec_mode=mode)
        assert np.array_equal(vm["forward"](x).numpy(), wanted)
