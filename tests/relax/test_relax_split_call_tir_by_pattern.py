"""SplitCallTIRByPattern: what a library computes of a loop function."""

from __future__ import annotations

import random

import numpy as np
import pytest
from pass_cases import becomes, parse, same_results, stays

from relaxvm import te, tir
from relaxvm.base import PassError
from relaxvm.ir import PassContext
from relaxvm.relax import transform
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.script import from_source


def function(text):
    return from_source("# from relaxvm.script import tir as T\n" + text)


GEMM = function("""
@T.prim_func
def gemm(a: T.handle, b: T.handle, c: T.handle):
    m, n, k = T.int64(), T.int64(), T.int64()
    A = T.match_buffer(a, (m, k), "float32")
    B = T.match_buffer(b, (k, n), "float32")
    C = T.match_buffer(c, (m, n), "float32")
    for i, j, l in T.grid(m, n, k):
        with T.block("gemm"):
            vi, vj, vl = T.axis.remap("SSR", [i, j, l])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vl] * B[vl, vj]
""")
SCALE = function("""
@T.prim_func
def scale(a: T.handle, c: T.handle, alpha: T.float32, beta: T.float32):
    m, n = T.int64(), T.int64()
    A = T.match_buffer(a, (m, n), "float32")
    C = T.match_buffer(c, (m, n), "float32")
    for i, j in T.grid(m, n):
        with T.block("scale"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = alpha * A[vi, vj] + beta
""")
KERNEL = """
@T.prim_func(private=True)
def f(x: T.handle, w: T.handle, y: T.handle):
    X = T.match_buffer(x, (3, 4), "float32")
    W = T.match_buffer(w, (4, 5), "float32")
    Y = T.match_buffer(y, (3, 5), "float32")
    G = T.alloc_buffer((3, 5), "float32")
    for i, j, k in T.grid(3, 5, 4):
        with T.block("product"):
            a, b, c = T.axis.remap("SSR", [i, j, k])
            with T.init():
                G[a, b] = T.float32(0)
            G[a, b] = G[a, b] + X[a, c] * W[c, b]
    for i, j in T.grid(3, 5):
        with T.block("relu"):
            a, b = T.axis.remap("SS", [i, j])
            Y[a, b] = T.max(G[a, b], X[a, 0])
"""
CALL = """
@R.function
def main(x: R.Tensor((3, 4), "float32"), w: R.Tensor((4, 5), "float32")):
    cls = Module
    with R.dataflow():
        gv = R.call_tir(cls.f, (x, w), out_sinfo=R.Tensor((3, 5), "float32"))
        R.output(gv)
    return gv
"""


def gemm(a, b, out):
    """The product by the very loops of the pattern, to the bit."""
    sums = np.zeros(out.shape, "float32")
    for k in range(a.shape[1]):
        sums += a.numpy()[:, k : k + 1] * b.numpy()[k]
    np.copyto(getattr(out, "array", out), sums)


FUNCTIONS = {"env.gemm": gemm}


def first_gemm(matches):
    inputs = matches[0].matched_buffers[:2]
    return "env.gemm", 1, inputs


def splitter(fcodegen=first_gemm, patterns=(GEMM,)):
    return transform.SplitCallTIRByPattern(patterns=patterns, fcodegen=fcodegen)


def arrays(*shapes):
    rng = np.random.default_rng(7)
    return [rng.standard_normal(s).astype("float32") for s in shapes]


def same(mod, new, *shapes):
    assert_well_formed(new)
    same_results(mod, new, *arrays(*shapes), functions=FUNCTIONS)


def test_a_library_computes_the_product_and_loops_the_rest():
    mod = becomes(
        splitter(),
        KERNEL + CALL,
        """
        @T.prim_func(private=True)
        def unfused_epilogue(
            G: T.Buffer((3, 5), "float32"),
            X: T.Buffer((3, 4), "float32"),
            Y: T.Buffer((3, 5), "float32"),
        ):
            for i, j in T.grid(3, 5):
                with T.block("relu"):
                    a, b = T.axis.remap("SS", [i, j])
                    Y[a, b] = T.max(G[a, b], X[a, 0])

        @R.function
        def main(x: R.Tensor((3, 4), "float32"), w: R.Tensor((4, 5), "float32")):
            cls = Module
            with R.dataflow():
                lv = R.call_dps_packed(
                    "env.gemm", (x, w), out_sinfo=R.Tensor((3, 5), "float32")
                )
                gv = R.call_tir(
                    cls.unfused_epilogue, (lv, x), out_sinfo=R.Tensor((3, 5), "float32")
                )
                R.output(gv)
            return gv
        """,
    )
    same(parse(KERNEL + CALL), mod, (3, 4), (4, 5))


def test_what_it_found_is_given_to_the_code_generator():
    seen = []

    def fcodegen(matches):
        seen.append(matches)
        return first_gemm(matches)

    with PassContext() as ctx:
        splitter(fcodegen)(parse(KERNEL + CALL))
    ((match,),) = seen
    assert match.pattern is GEMM and match.symbol_values == ()
    assert [b.name for b in match.matched_buffers] == ["X", "W", "G"]
    assert "left to env.gemm" in ctx.report.of("SplitCallTIRByPattern")[0].text


def test_a_library_may_be_a_callable_or_a_loop_function():
    x, w = te.placeholder((3, 4), "float32"), te.placeholder((4, 5), "float32")
    k = te.reduce_axis((0, 4))
    product = te.compute((3, 5), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k))
    mod = parse(KERNEL + CALL)
    for library in (gemm, te.create_prim_func([x, w, product])):
        new = splitter(lambda m, library=library: (library, 1, m[0].matched_buffers[:2]))(mod)
        assert new is not mod
        same(mod, new, (3, 4), (4, 5))


def test_all_of_a_function_may_be_the_librarys():
    text = KERNEL[: KERNEL.index("    for i, j in T.grid")].replace("G[", "Y[")
    mod = parse(text + CALL)
    new = splitter()(mod)
    assert [gv.name_hint for gv in new] == ["main"]
    same(mod, new, (3, 4), (4, 5))


def test_sizes_may_be_symbols():
    text = (KERNEL + CALL).replace("(3, ", "(n, ").replace("Tensor((n, 4)", 'Tensor(("n", 4)')
    text = text.replace("    X =", "    n = T.int64()\n    X =")
    text = text.replace("    cls =", "    n = T.int64()\n    cls =")
    mod = parse(text)
    new = splitter()(mod)
    assert new is not mod
    for n in (0, 1, 7):
        same(mod, new, (n, 4), (4, 5))


def nests(*formulas):
    """A function of `X` of so many loop nests; each formula is of ``{}``, what the last gave."""
    text, last = "", "X[a, b]"
    for k, formula in enumerate(formulas):
        out = "Y" if k == len(formulas) - 1 else f"B{k}"
        alloc = "" if out == "Y" else f'    {out} = T.alloc_buffer((4, 6), "float32")\n'
        text = f"""{alloc}{text}
    for i, j in T.grid(4, 6):
        with T.block("b{k}"):
            a, b = T.axis.remap("SS", [i, j])
            {out}[a, b] = {formula.format(last)}
"""
        last = f"{out}[a, b]"
    return f"""
@T.prim_func(private=True)
def f(X: T.Buffer((4, 6), "float32"), Y: T.Buffer((4, 6), "float32")):
{text}

@R.function
def main(x: R.Tensor((4, 6), "float32")):
    cls = Module
    gv = R.call_tir(cls.f, (x,), out_sinfo=R.Tensor((4, 6), "float32"))
    return gv
"""  # fmt: skip


@pytest.mark.parametrize(
    ("formula", "symbols"),
    [
        ("T.float32(2) * {} + T.float32(3)", [2, 3]),
        ("T.float32(3) + {} * T.float32(2)", [2, 3]),
        ("{} * T.float32(2)", [2, 0]),
        ("{} + T.float32(3)", [1, 3]),
        ("{}", [1, 0]),
        ("{0} * {0}", None),
        ("T.exp({})", None),
        ("{} + T.float32(3) + T.float32(1)", None),
    ],
)
def test_free_symbols_stand_for_numbers_or_for_nothing(formula, symbols):
    seen = []
    splitter(lambda m: seen.append(m) or ("", 0, ()), [SCALE])(parse(nests(formula)))
    found = [[float(v.value) for v in m.symbol_values] for matches in seen for m in matches]
    assert found == ([] if symbols is None else [symbols])


def scaled(matches):
    """A library for a row of scalings, as a callable."""
    factors = [[np.float32(v.value) for v in m.symbol_values] for m in matches]

    def run(x, out):
        value = x.numpy()
        for alpha, beta in factors:
            value = alpha * value + beta
        np.copyto(getattr(out, "array", out), value)

    return run, len(matches), matches[0].matched_buffers[:1]


@pytest.mark.parametrize("seed", range(25))
def test_random_rows_of_nests_mean_the_same(seed):
    rng = random.Random(seed)
    formulas = [
        rng.choice(
            ["T.float32(2) * {} + T.float32(3)", "{} * T.float32(0.5)", "{} - X[a, b]", "T.exp({})",
             "{} + T.float32(-1)"]
        )
        for _ in range(rng.randint(1, 5))
    ]  # fmt: skip
    mod = parse(nests(*formulas))
    new = splitter(scaled, [GEMM, SCALE])(mod)
    assert (new is mod) is ("T.exp" in formulas[0] or "X[" in formulas[0])
    same(mod, new, (4, 6))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("X[a, c] * W[c, b]", "X[a, c] * W[3 - c, b]"),
        ("G[a, b] = T.float32(0)", "G[a, b] = T.float32(1)"),
        ("X[a, c] * W[c, b]", "X[a, c] - W[c, b]"),
        ('remap("SSR"', 'remap("SRS"'),
        ("for i, j, k in T.grid(3, 5, 4):", "for j, i, k in T.grid(5, 3, 4):"),
        ("(3, 5, 4):", "(3, 5, 3):"),
        ("            a, b, c = ", "            T.where(k < 3)\n            a, b, c = "),
    ],
)
def test_what_is_not_the_pattern_stays(old, new):
    text = (KERNEL + CALL).replace(old, new)
    assert text != KERNEL + CALL
    with PassContext() as ctx:
        stays(splitter(), text)
    assert not ctx.report.of("SplitCallTIRByPattern")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (KERNEL.replace("Y[a, b] = T", "G[a, b] = T").replace('"relu"', '"x"'), "written again"),
        (KERNEL.replace("        with T.block(\"relu\")", "        G[0, 0] = T.float32(0)\n"
                        "        with T.block(\"relu\")"), "written again"),
    ],
)  # fmt: skip
def test_what_cannot_be_split_stays_and_says_why(text, why):
    with PassContext() as ctx:
        stays(splitter(), text + CALL)
    assert any(why in d.text for d in ctx.report), [d.text for d in ctx.report]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "got None"),
        (("env.gemm", 2, ()), "computes 2 of 1"),
        (("env.gemm", True, ()), "computes True"),
        (("int f() { return 0; }", 1, ()), "no name"),
        ((3, 1, ()), "got int"),
        (("env.gemm", 1, ("X",)), "no input of f"),
    ],
)
def test_answers_that_cannot_be_called_are_errors(answer, message):
    with pytest.raises(PassError, match=message):
        splitter(lambda matches: answer)(parse(KERNEL + CALL))


def test_a_fault_in_the_code_generator_names_the_function():
    def fcodegen(matches):
        raise ZeroDivisionError("no")

    with pytest.raises(ZeroDivisionError) as error:
        splitter(fcodegen)(parse(KERNEL + CALL))
    assert any("fcodegen, for f" in note for note in error.value.__notes__)


def test_patterns_are_loop_functions_of_one_nest():
    with pytest.raises(PassError, match="got str"):
        splitter(patterns=["gemm"])(parse(KERNEL + CALL))
    with pytest.raises(PassError, match="one loop nest"):
        splitter(patterns=[function(KERNEL)])(parse(KERNEL + CALL))


def test_a_pattern_that_fits_in_countless_ways_ends():
    x = te.placeholder((4, 6), "float32")
    symbols = [tir.Var(f"s{k}", "float32") for k in range(60)]

    def total(i, j):
        value = x(i, j)
        for s in symbols:
            value = s + value
        return value

    fn = te.create_prim_func([x, te.compute((4, 6), total), *symbols])
    stays(splitter(patterns=[fn]), nests("X[a, b] - {}"))
