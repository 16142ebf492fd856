"""AttachAttrLayoutFreeBuffers, SplitLayoutRewritePreproc, tir's RemoveWeightLayoutRewriteBlock:
weights that kernels would rather read in another layout.
"""

from __future__ import annotations

import numpy as np
import pytest
from pass_cases import becomes, parse, same_results, stays

from relaxvm.base import VerifyError
from relaxvm.ir import IRModule, PassContext
from relaxvm.relax import transform
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.runtime import array
from relaxvm.script import from_source
from relaxvm.tir import interpret
from relaxvm.tir.transform import RemoveWeightLayoutRewriteBlock

attach = transform.AttachAttrLayoutFreeBuffers()
split = transform.SplitLayoutRewritePreproc()
remove = RemoveWeightLayoutRewriteBlock()


def arrays(*shapes):
    rng = np.random.default_rng(5)
    return [rng.standard_normal(s).astype("float32") for s in shapes]


# -- AttachAttrLayoutFreeBuffers -------------------------------------------------------------------

SUM = """
@T.prim_func(private=True)
def f(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32"), z: T.Buffer((4,), "float32")):
    {attr}
    for i in range(4):
        with T.block("b"):
            v = T.axis.spatial(4, i)
            z[v] = x[v] - y[v]
"""


def sum_of(places=None, name="f"):
    attr = "" if places is None else f'T.func_attr({{"layout_free_buffers": {places}}})'
    return SUM.format(attr=attr).replace("def f(", f"def {name}(")


def main(*calls):
    """x and y are inputs, v and w weights; each call is of a function and two of them."""
    lines = "".join(
        f'        r{k} = R.call_tir(cls.{c}, out_sinfo=R.Tensor((4,), "float32"))\n'
        for k, c in enumerate(calls)
    )
    results = ", ".join(f"r{k}" for k in range(len(calls)))
    t = 'R.Tensor((4,), "float32")'
    return f"""
@R.function
def main(x: {t}, y: {t}, v: {t}, w: {t}):
    R.func_attr({{"num_input": 2}})
    cls = Module
    with R.dataflow():
{lines}        R.output({results})
    return ({results},)
"""


def test_weights_are_marked():
    becomes(attach, sum_of() + main("f, (x, w)"), sum_of([1]) + main("f, (x, w)"))
    becomes(attach, sum_of() + main("f, (v, w)"), sum_of([0, 1]) + main("f, (v, w)"))
    constant = 'f, (R.const([1, 2, 3, 4], "float32"), y)'
    becomes(attach, sum_of() + main(constant), sum_of([0]) + main(constant))


def test_a_function_with_weights_in_different_places_becomes_several():
    mod = parse(sum_of() + main("f, (x, v)", "f, (y, w)", "f, (v, x)", "f, (x, y)"))
    new = attach(mod)
    assert_well_formed(new)
    marks = {
        gv.name_hint: fn.get_attr("layout_free_buffers")
        for gv, fn in new.items()
        if gv.name_hint != "main"
    }
    assert marks == {"f": None, "f_1": [1], "f_2": [0]}
    assert attach(new) is new
    same_results(mod, new, *arrays(*[(4,)] * 4))


def test_what_has_no_weights_stays():
    stays(attach, sum_of() + main("f, (x, y)"))
    stays(attach, sum_of([1]) + main("f, (x, w)"))


def test_a_public_function_stays_beside_the_marked_one():
    public = sum_of().replace("(private=True)", "")
    new = attach(parse(public + main("f, (x, w)")))
    assert new["f"].get_attr("layout_free_buffers") is None
    assert new["f_1"].get_attr("layout_free_buffers") == [1]


def test_a_wrong_num_input_is_an_error():
    text = (sum_of() + main("f, (x, w)")).replace('"num_input": 2', '"num_input": 9')
    with pytest.raises(VerifyError, match="num_input"):
        attach(parse(text))


# -- SplitLayoutRewritePreproc ---------------------------------------------------------------------

GEMM = """
@T.prim_func(private=True)
def gemm(
    A: T.Buffer((3, 8), "float32"),
    W: T.Buffer((8, 6), "float32"),
    C: T.Buffer((3, 6), "float32"),
):
    W2 = T.alloc_buffer((3, 8, 2), "float32")
    for i, j in T.grid(8, 6):
        with T.block("rewrite"):
            a, b = T.axis.remap("SS", [i, j])
            {mark}
            W2[b // 2, a, b % 2] = W[a, b]
    for i, j, k in T.grid(3, 6, 8):
        with T.block("gemm"):
            a, b, c = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[a, b] = T.float32(0)
            C[a, b] = C[a, b] + A[a, c] * W2[b // 2, c, b % 2]
""".replace("{mark}", 'T.block_attr({"meta_schedule.layout_rewrite_preproc": 1})')
CALL = """
@R.function
def main(x: R.Tensor((3, 8), "float32"), w: R.Tensor((8, 6), "float32")):
    cls = Module
    with R.dataflow():
        gv = R.call_tir(cls.gemm, (x, w), out_sinfo=R.Tensor((3, 6), "float32"))
        R.output(gv)
    return gv
"""


def test_what_rearranges_a_weight_is_a_kernel_of_its_own():
    mod = becomes(
        split,
        GEMM + CALL,
        """
        @T.prim_func(private=True)
        def gemm_weight_prepack(
            W: T.Buffer((8, 6), "float32"), W2: T.Buffer((3, 8, 2), "float32")
        ):
            for i, j in T.grid(8, 6):
                with T.block("rewrite"):
                    a, b = T.axis.remap("SS", [i, j])
                    W2[b // 2, a, b % 2] = W[a, b]

        @T.prim_func(private=True)
        def gemm_prepacked(
            A: T.Buffer((3, 8), "float32"),
            W2: T.Buffer((3, 8, 2), "float32"),
            C: T.Buffer((3, 6), "float32"),
        ):
            for i, j, k in T.grid(3, 6, 8):
                with T.block("gemm"):
                    a, b, c = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        C[a, b] = T.float32(0)
                    C[a, b] = C[a, b] + A[a, c] * W2[b // 2, c, b % 2]

        @R.function
        def main(x: R.Tensor((3, 8), "float32"), w: R.Tensor((8, 6), "float32")):
            cls = Module
            with R.dataflow():
                lv = R.call_tir(
                    cls.gemm_weight_prepack, (w,), out_sinfo=R.Tensor((3, 8, 2), "float32")
                )
                gv = R.call_tir(
                    cls.gemm_prepacked, (x, lv), out_sinfo=R.Tensor((3, 6), "float32")
                )
                R.output(gv)
            return gv
        """,
    )
    same_results(parse(GEMM + CALL), mod, *arrays((3, 8), (8, 6)))


def test_a_public_function_stays_and_its_parts_get_names_after_it():
    text = (GEMM + CALL).replace("(private=True)", "")
    new = split(parse(text))
    assert [gv.name_hint for gv in new] == ["gemm", "main", "gemm_weight_prepack", "gemm_prepacked"]
    assert new["gemm_prepacked"].attrs["global_symbol"] == "gemm_prepacked"
    with PassContext() as ctx:
        assert split(parse(text)) is not None
    assert ctx.report.of("SplitLayoutRewritePreproc")


SYMBOLIC = """
@T.prim_func(private=True)
def f(a: T.handle, w: T.handle, v: T.handle, c: T.handle, s: T.int64):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n,), "float32")
    W = T.match_buffer(w, (m,), "float32")
    V = T.match_buffer(v, (m,), "float32")
    C = T.match_buffer(c, (n,), "float32")
    W2 = T.alloc_buffer((m, 2), "float32")
    V2 = T.alloc_buffer((m + 1,), "float32")
    for i, j in T.grid(m, 2):
        with T.block("first"):
            a, b = T.axis.remap("SS", [i, j])
            T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
            W2[a, b] = W[a] * T.float32(2)
    for i in range(m + 1):
        with T.block("second"):
            a = T.axis.spatial(m + 1, i)
            T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
            V2[a] = V[(a + s) % m]
    for i in range(n):
        with T.block("sum"):
            a = T.axis.spatial(n, i)
            C[a] = A[a] + W2[a % m, 1] * V2[a % m + 1] - W[a % m]
"""
SYMBOLIC_CALL = """
@R.function
def main(
    x: R.Tensor(("n",), "float32"), w: R.Tensor(("m",), "float32"), v: R.Tensor(("m",), "float32")
):
    n, m = T.int64(), T.int64()
    cls = Module
    with R.dataflow():
        gv = R.call_tir(
            cls.f, (x, w, v), out_sinfo=R.Tensor((n,), "float32"), tir_vars=R.shape([m + 3])
        )
        R.output(gv)
    return gv
"""


def test_several_weights_of_unknown_sizes_one_of_which_is_read_on():
    mod = parse(SYMBOLIC + SYMBOLIC_CALL)
    new = split(mod)
    assert_well_formed(new)
    assert sorted(gv.name_hint for gv in new) == ["f_prepacked", "f_weight_prepack", "main"]
    for n, m in ((0, 1), (1, 1), (5, 3), (3, 5)):
        same_results(mod, new, *arrays((n,), (m,), (m,)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("W2[b // 2, a, b % 2] = W[a, b]", "W2[b // 2, a, b % 2] = A[0, 0] + C[0, 0]"),
        ("= C[a, b] + A", "= C[a, b] + W2[0, 0, 0] + A"),
        ("for i, j, k in", "W2[0, 0, 0] = T.float32(0)\n    for i, j, k in"),
        ("C[a, b] = T.float32(0)", "C[a, b] = T.float32(0); W2[0, 0, 0] = T.float32(1)"),
        ('"rewrite"):', '"rewrite"):\n            X = T.alloc_buffer((1,), "float32")'),
        ("preproc\": 1", "preproc\": 0"),
    ],
)  # fmt: skip
def test_what_is_split_means_the_same_and_the_rest_stays(old, new):
    text = (GEMM + CALL).replace(old, new)
    assert text != GEMM + CALL
    mod = parse(text)
    after = split(mod)
    assert (after is mod) == ("W2[0, 0, 0] + A" not in new)
    if after is not mod:  # one that stays reads memory before it is written
        same_results(mod, after, *arrays((3, 8), (8, 6)))


def test_a_loop_that_holds_more_than_marked_blocks_stays():
    text = """
    @T.prim_func(private=True)
    def f(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,), "float32")
        for i in range(4):
            with T.block("rewrite"):
                v = T.axis.spatial(4, i)
                T.block_attr({"meta_schedule.layout_rewrite_preproc": 1})
                B[v] = A[v]
            with T.block("rest"):
                v = T.axis.spatial(4, i)
                C[v] = B[v]

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Module
        gv = R.call_tir(cls.f, (x,), out_sinfo=R.Tensor((4,), "float32"))
        return gv
    """
    with PassContext() as ctx:
        stays(split, text)
    assert any("holds marked blocks and others" in d.text for d in ctx.report)


def test_a_module_without_calls_of_it_stays():
    stays(split, GEMM)


# -- RemoveWeightLayoutRewriteBlock ----------------------------------------------------------------


def function(text):
    return from_source("# from relaxvm.script import tir as T\n" + text)


def test_a_parameter_comes_in_its_new_layout():
    before = function(GEMM)
    mod = IRModule({"main": before})
    after = remove(mod)["main"]
    assert [list(map(int, b.shape)) for b in after.buffers] == [[3, 8], [3, 8, 2], [3, 6]]
    assert mod["main"] is before
    again = IRModule({"main": after})
    assert remove(again) is again
    x, w = arrays((3, 8), (8, 6))
    packed = np.ascontiguousarray(w.reshape(8, 3, 2).transpose(1, 0, 2))
    wanted, got = np.zeros((2, 3, 6), "float32")
    interpret(before, x, w, wanted)
    interpret(after, x, packed, got)
    assert np.array_equal(wanted, got)


CONSTANT = """
@T.prim_func
def f(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    w = T.allocate_const([1, 2, 3, 4], "float32", [4])
    W = T.decl_buffer((4,), "float32", data=w)
    W2 = T.alloc_buffer((2, 3), "float32")
    for i in range(4):
        with T.block("rewrite"):
            v = T.axis.spatial(4, i)
            T.block_attr({"meta_schedule.layout_rewrite_preproc": 1})
            W2[v % 2, v // 2] = W[v]
    for i in range(4):
        with T.block("sum"):
            v = T.axis.spatial(4, i)
            C[v] = A[v] + W2[v % 2, v // 2]
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "float16"])
def test_a_constant_is_rearranged(dtype):
    before = function(CONSTANT.replace("float32", dtype))
    after = remove(IRModule({"main": before}))["main"]
    assert "alloc_buffer" not in after.script()
    x = array(np.arange(4), dtype=dtype)
    results = [array(np.zeros(4), dtype=dtype) for _ in range(2)]
    for fn, out in zip((before, after), results):
        interpret(fn, x, out)
    assert np.array_equal(*(r.numpy() for r in results))


def test_contents_may_be_left_to_chance():
    skip = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)
    after = skip(IRModule({"main": function(CONSTANT)}))["main"]
    interpret(after, *arrays((4,), (4,)))


@pytest.mark.parametrize(
    ("text", "old", "new", "why"),
    [
        (GEMM, "= W[a, b]", "= W[a, b] + T.float32(1)", "more than copy"),
        (GEMM, "= W[a, b]", "= A[a % 3, b]", "used elsewhere"),
        (GEMM, "A[a, c] * W2", "W[c, b] * W2", "used elsewhere"),
        (GEMM, "= T.float32(0)", "= T.float32(0); W2[0, 0, 0] = T.float32(0)", "written"),
        (GEMM, "W2[b // 2, a, b % 2] = ", "C[a % 3, b] = ", "written elsewhere"),
        (CONSTANT, "A[v] + W2", "W[v] + W2", "used elsewhere"),
        (SYMBOLIC, "W[a] * T.float32(2)", "W[a]", None),
    ],
)  # fmt: skip
def test_what_cannot_be_removed_stays(text, old, new, why):
    fn = function(text.replace(old, new))
    mod = IRModule({"main": fn})
    with PassContext() as ctx:
        assert remove(mod) is mod
    if why is not None:
        assert any(why in d.text for d in ctx.report), [d.text for d in ctx.report]


def test_a_size_that_only_the_old_layout_tells_stays():
    fn = function("""
@T.prim_func
def f(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    C = T.match_buffer(c, (4,), "float32")
    B = T.alloc_buffer(((n + 3) // 4, 4), "float32")
    for i in range(n):
        with T.block("rewrite"):
            v = T.axis.spatial(n, i)
            T.block_attr({"meta_schedule.layout_rewrite_preproc": 1})
            B[v // 4, v % 4] = A[v]
    for i in range(4):
        with T.block("rest"):
            v = T.axis.spatial(4, i)
            C[v] = B[0, v]
""")
    mod = IRModule({"main": fn})
    assert remove(mod) is mod
