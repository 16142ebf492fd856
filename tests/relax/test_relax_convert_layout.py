"""ConvertLayout: what is wanted, how the rest follows, and that nothing else changes."""

from __future__ import annotations

import random

import layout_sweep
import numpy as np
import pytest
from fuzz import graph_programs
from op_table import FAMILIES, cases_of, instances

import relaxvm as tvm
from relaxvm import relax
from relaxvm.base import PassError
from relaxvm.ir import IRModule, Op, PassContext, assert_structural_equal
from relaxvm.meaning import assert_same_meaning
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.known_ops import is_op
from relaxvm.relax.op import missing, op
from relaxvm.relax.op.infer import tensor
from relaxvm.relax.transform import ConvertLayout, DeadCodeElimination, FoldConstant, Normalize
from relaxvm.relax.transform.layout_rules import Layouts, Order
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.testing import CheckMeaning

NHWC = {"relax.nn.conv2d": ["NHWC", "OHWI"]}
BLOCKED = {"relax.nn.conv2d": ["NCHW4c", "OIHW4i4o"]}
CONV = "R.nn.conv2d({}, {}, padding=(1, 1, 1, 1))"


def function(body, params="x: R.Tensor((2, 4, 6, 6), 'float32')", more="", result="y", **decl):
    """A module whose `main` has this body, one dataflow block."""
    lines = "\n".join(f"            {line}" for line in body.strip().splitlines())
    return from_source(f"""
@I.ir_module
class Module:
    @R.function
    def main({params}, w: R.Tensor((8, 4, 3, 3), "float32")):
        with R.dataflow():
{lines}
            R.output({result})
        return {result}
{more}
""")


def arrays(mod, name="main", n=2):
    rng = np.random.default_rng(0)
    made = []
    for p in mod[name].params:
        dims = [getattr(d, "value", n) for d in p.struct_info.dims]
        made.append(rng.standard_normal(dims).astype(str(p.struct_info.dtype)))
    return made


def converted(mod, desired=NHWC, n=2, **options):
    """What the pass makes of `mod`, well formed and of the same meaning; and what it tells."""
    before = mod.script()
    with PassContext() as ctx:
        new = ConvertLayout(desired, **options)(mod)
    assert_well_formed(new)
    assert mod.script() == before
    assert_same_meaning(mod, new, arrays(mod, n=n), "main", "reassociates")
    return new, str(ctx.report)


def count(mod, name):
    return mod.script().count(f"R.{name}(")


# -- before and after -----------------------------------------------------------------------------


def test_convolutions_are_laid_out_and_what_reads_them_follows():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 4, 6, 6), "float32"),
            w: R.Tensor((8, 4, 3, 3), "float32"),
            b: R.Tensor((8, 1, 1), "float32"),
        ):
            with R.dataflow():
                a = R.nn.conv2d(x, w)
                c = R.add(a, b)
                d = R.nn.relu(c)
                e = R.nn.max_pool2d(d, (2, 2), strides=(2, 2))
                y = R.nn.softmax(e, axis=1)
                R.output(y)
            return y

    @I.ir_module
    class After:
        @R.function
        def main(
            x: R.Tensor((2, 4, 6, 6), "float32"),
            w: R.Tensor((8, 4, 3, 3), "float32"),
            b: R.Tensor((8, 1, 1), "float32"),
        ):
            with R.dataflow():
                x1 = R.permute_dims(x, (0, 2, 3, 1))
                w1 = R.permute_dims(w, (0, 2, 3, 1))
                a = R.nn.conv2d(x1, w1, data_layout="NHWC", kernel_layout="OHWI", out_layout="NHWC")
                b1 = R.reshape(b, (1, 1, 1, 8))
                c = R.add(a, b1)
                d = R.nn.relu(c)
                e = R.nn.max_pool2d(d, (2, 2), strides=(2, 2), layout="NHWC", out_layout="NHWC")
                y1 = R.nn.softmax(e, axis=3)
                y = R.permute_dims(y1, (0, 3, 1, 2))
                R.output(y)
            return y

    new, told = converted(Before)
    assert_structural_equal(new, After)
    assert "conv2d at" in told and "laid out as NHWC, OHWI, NHWC" in told
    assert ConvertLayout(NHWC)(new) is new


def test_blocks_are_made_where_sizes_divide():
    mod = function(f"a = {CONV.format('x', 'w')}\ny = R.nn.relu(a)")
    new, told = converted(mod, BLOCKED)
    text = new.script()
    assert "R.Tensor((2, 1, 6, 6, 4)" in text and "R.Tensor((2, 2, 6, 6, 4)" in text
    assert count(new, "layout_transform") == 3 and count(new, "permute_dims") == 0
    new, told = converted(mod, {"nn.conv2d": ["NCHW8c", "OIHW8i8o"]})
    assert 'data_layout="NCHW", kernel_layout="OIHW8o", out_layout="NCHW8c"' in new.script()
    assert "data_layout does not divide into NCHW8c" in told
    new, told = converted(mod, {"nn.conv2d": ["NCHW3c", "OIHW3i3o"]})
    assert new is mod


def test_a_weight_that_is_constant_is_laid_out_while_compiling():
    weight = np.random.default_rng(1).standard_normal((8, 4, 3, 3)).astype("float32")
    mod = function(f"a = {CONV.format('x', 'w')}\ny = R.add(a, R.const([[[1.0]]] * 8))")
    mod = relax.transform.BindParams("main", {"w": weight})(mod)
    for desired in (NHWC, BLOCKED):
        new, _ = converted(mod, desired)
        moves = count(new, "permute_dims") + count(new, "layout_transform")
        assert moves == 2 and count(new, "reshape") == 0
        assert count(FoldConstant()(new), "permute_dims") == count(new, "permute_dims")


def test_transpositions_that_users_wrote_meet_those_of_the_pass():
    body = f"""
x1 = R.permute_dims(x, (0, 3, 1, 2))
a = {CONV.format("x1", "w")}
b = R.nn.relu(a)
y = R.permute_dims(b, (0, 2, 3, 1))
"""
    new, _ = converted(function(body, "x: R.Tensor((2, 6, 6, 4), 'float32')"))
    assert count(new, "permute_dims") == 1  # that of the weight


def test_residual_sums_concatenations_and_reductions_stay_in_the_layout():
    body = f"""
a = {CONV.format("x", "w")}
v = R.reshape(w, (4, 8, 3, 3))
b = {CONV.format("a", "v")}
c = {CONV.format("b", "w")}
d = R.add(a, c)
e = R.concat((d, a), axis=1)
f = R.nn.pad(e, (0, 0, 0, 0, 1, 1, 1, 1))
g = R.strided_slice(f, axes=[2], begin=[1], end=[7])
h = R.split(g, 2, axis=1)
i = h[1]
y = R.mean(i, axis=(2, 3))
"""
    for desired in (NHWC, BLOCKED):
        new, told = converted(function(body), desired)
        assert "as they were written" not in told
        # The image and both weights.
        assert count(new, "permute_dims") + count(new, "layout_transform") <= 4


def test_a_value_is_laid_out_once_for_all_who_read_it():
    body = f"""
a = {CONV.format("x", "w")}
b = {CONV.format("x", "w")}
c = R.add(a, b)
d = R.reshape(c, (2, 288))
e = R.reshape(c, (576,))
f = R.sum(e)
y = R.add(d, f)
"""
    new, told = converted(function(body))
    assert count(new, "permute_dims") == 3
    assert "reshape at" in told and "it takes elements in row-major order" in told


def test_other_ranks_and_transposed_convolutions():
    mod = from_source("""
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor((2, 4, 7), "float32"), w: R.Tensor((4, 2, 3), "float32"),
        u: R.Tensor((2, 4, 3, 4, 5), "float32"), v: R.Tensor((8, 4, 1, 2, 2), "float32"),
    ):
        with R.dataflow():
            a = R.nn.conv1d_transpose(x, w, strides=2)
            b = R.nn.gelu(a)
            c = R.nn.conv3d(u, v, strides=(1, 2, 1))
            d = R.nn.avg_pool3d(c, (1, 2, 2))
            R.output(b, d)
        return (b, d)
""")
    new, _ = converted(
        mod,
        {"relax.nn.conv1d_transpose": ["NWC", "WOI"], "relax.nn.conv3d": ["NDHWC", "DHWIO"]},
    )
    text = new.script()
    assert 'data_layout="NWC", kernel_layout="WOI"' in text and 'layout="NDHWC"' in text
    new, _ = converted(mod, {"relax.nn.conv3d": ["NCDHW2c", "OIDHW2i4o", "NCDHW4c"]})
    assert 'out_layout="NCDHW4c"' in new.script()


# -- structure ------------------------------------------------------------------------------------


def test_branches_give_their_results_in_one_layout():
    mod = from_source("""
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor((2, 4, 6, 6), "float32"), w: R.Tensor((4, 4, 1, 1), "float32"),
    ):
        t = R.sum(x)
        c = R.greater(t, R.const(0.0))
        a = R.nn.conv2d(x, w)
        if c:
            p = R.nn.conv2d(a, w)
            q = R.nn.relu(p)
            b = q
        else:
            r = R.negative(x)
            b = r
        d = R.nn.conv2d(b, w)
        return d
""")
    new, _ = converted(mod)
    # The image, the weight, what the other branch computes, and the result.
    assert count(new, "permute_dims") == 4
    assert "(2, 6, 6, 4)" in new.script()


def test_private_functions_take_and_give_what_is_laid_out():
    mod = from_source("""
@I.ir_module
class Module:
    @R.function(private=True)
    def block(x: R.Tensor((2, 4, 6, 6), "float32"), w: R.Tensor((4, 4, 1, 1), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, w)
            y = R.nn.relu(a)
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor((2, 4, 6, 6), "float32"), w: R.Tensor((4, 4, 1, 1), "float32")):
        cls = Module
        with R.dataflow():
            a = cls.block(x, w)
            b = cls.block(a, w)
            y = R.exp(b)
            R.output(y)
        return y
""")
    new, _ = converted(mod)
    # The image and the result; the weight has one element along the axes that move.
    assert count(new, "permute_dims") == 2 and count(new, "reshape") == 1
    assert "R.permute_dims" not in new["block"].script()


@pytest.mark.parametrize("place", ["argument", "result"])
def test_private_functions_keep_their_signatures_where_a_call_cannot_follow(place):
    name = {"argument": "z", "result": "a"}[place]
    written = f'_ = R.call_packed("test.writes", {name}, sinfo_args=R.Tuple())'
    mod = from_source(f"""
@I.ir_module
class Module:
    @R.function(private=True)
    def block(x: R.Tensor((2, 4, 6, 6), "float32"), w: R.Tensor((4, 4, 1, 1), "float32")):
        a = R.nn.conv2d(x, w)
        return a

    @R.function(pure=False)
    def main(x: R.Tensor((2, 4, 6, 6), "float32"), w: R.Tensor((4, 4, 1, 1), "float32")):
        z = R.exp(x)
        a = Module.block(z, w)
        {written}
        y = R.nn.relu(a)
        return y
""")
    with PassContext():
        new = ConvertLayout(NHWC)(mod)
    assert_well_formed(new)
    assert 'data_layout="NHWC"' in new["block"].script()
    assert str(new["block"].ret_struct_info) == str(mod["block"].ret_struct_info)
    assert_structural_equal(new["main"], mod["main"])


def test_tuples_that_are_laid_out_are_read_after_their_block():
    for body in ("t = (a, x)", "t = R.split(a, 2, axis=1)"):
        mod = from_source(f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4, 6, 6), "float32"), w: R.Tensor((8, 4, 3, 3), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, w)
            {body}
            R.output(t)
        with R.dataflow():
            b = t[0]
            c = R.nn.relu(b)
            R.output(c)
        d = t[1]
        e = R.exp(d)
        return (c, e)
""")
        for desired in (NHWC, BLOCKED):
            converted(mod, desired)


def test_values_whose_sizes_their_variables_do_not_tell_stay():
    mod = from_source("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4, 6, 6), "float32"), w: R.Tensor((8, 4, 3, 3), "float32")):
        a: R.Tensor(ndim=4, dtype="float32") = R.nn.conv2d(x, w)
        b = R.nn.conv2d(x, w)
        c: R.Tensor(ndim=4, dtype="float32") = b
        d: R.Tensor(ndim=4, dtype="float32") = R.nn.relu(b)
        t = (b, b)
        e: R.Tensor(ndim=4, dtype="float32") = t[0]
        y = R.exp(a)
        return (y, c, d, e)
""")
    for desired in (NHWC, BLOCKED):
        new, told = converted(mod, desired)
        assert "are not known" in told and count(new, "nn.conv2d") == 2


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (3, 0, 2, 1), (2, 1)])
def test_weights_of_several_axes_follow_the_axes_that_they_belong_to(axes):
    shape = (4,) * len(axes)
    params = f'x: R.Tensor((4, 4, 4, 4), "float32"), g: R.Tensor({shape}, "float32")'
    for norm in ("layer_norm(a, g, g", "rms_norm(a, g"):
        body = f"v = R.strided_slice(w, [0], [0], [4])\na = {CONV.format('x', 'v')}"
        mod = function(f"{body}\ny = R.nn.{norm}, axes={list(axes)})", params)
        for desired in (NHWC, BLOCKED, {"relax.nn.conv2d": ["HWCN", "HWIO"]}):
            converted(mod, desired)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_private_functions_of_symbolic_sizes_give_what_is_laid_out(n):
    mod = from_source("""
@I.ir_module
class Module:
    @R.function(private=True)
    def inner(x: R.Tensor(("n", 4, "h", "h"), "float32"), w: R.Tensor((4, 4, 3, 3), "float32")):
        a = R.nn.conv2d(x, w, padding=(1, 1, 1, 1))
        return a

    @R.function(private=True)
    def outer(x: R.Tensor(("n", 4, "h", "h"), "float32"), w: R.Tensor((4, 4, 3, 3), "float32")):
        a = Module.inner(x, w)
        b = Module.inner(a, w)
        return (b, x)

    @R.function
    def main(x: R.Tensor(("n", 4, "h", "h"), "float32"), w: R.Tensor((4, 4, 3, 3), "float32")):
        y = Module.outer(x, w)
        return y
""")
    new, _ = converted(mod, n=n)
    assert "match_cast" not in new.script()


def test_functions_that_call_themselves_keep_their_signatures():
    mod = from_source("""
@I.ir_module
class Module:
    @R.function(private=True)
    def loop(x: R.Tensor((1, 4, 2, 2), "float32"), w: R.Tensor((4, 4, 1, 1), "float32"),
             n: R.Tensor((), "int64")) -> R.Tensor((1, 4, 2, 2), "float32"):
        c = R.less(n, R.const(1, "int64"))
        if c:
            r = x
        else:
            a = R.nn.conv2d(x, w)
            m = R.subtract(n, R.const(1, "int64"))
            r = Module.loop(a, w, m)
        return r

    @R.function
    def main(x: R.Tensor((1, 4, 2, 2), "float32"), w: R.Tensor((4, 4, 1, 1), "float32")):
        y = Module.loop(x, w, R.const(2, "int64"))
        return y
""")
    new, _ = converted(mod)
    assert [p.struct_info for p in new["loop"].params] == [
        p.struct_info for p in mod["loop"].params
    ]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_batch_and_image_of_symbolic_sizes(n):
    mod = from_source("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4, "h", 6), "float32"), w: R.Tensor((8, 4, 3, 3), "float32")):
        n, h, m = T.int64(), T.int64(), T.int64()
        with R.dataflow():
            a = R.nn.conv2d(x, w, padding=(1, 1, 1, 1))
            b = R.match_cast(a, R.Tensor((n, 8, m, 6), "float32"))
            c = R.nn.relu(b)
            t = (c, a)
            d = t[0]
            e = t[1]
            y = R.add(d, e)
            R.output(y, t)
        return (y, t)
""")
    for desired in (NHWC, BLOCKED):
        with PassContext():
            new = ConvertLayout(desired)(mod)
        assert_well_formed(new)
        assert_same_meaning(mod, new, arrays(mod, n=n), "main")


def test_a_channel_count_that_is_a_symbol_is_not_cut_into_blocks():
    mod = from_source("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, "c", 6, 6), "float32"), w: R.Tensor((8, "c", 3, 3), "float32")):
        with R.dataflow():
            y = R.nn.conv2d(x, w)
            R.output(y)
        return y
""")
    new, told = converted(mod, {"nn.conv2d": ["NCHW4c", "OIHW4i4o"]})
    assert 'data_layout="NCHW", kernel_layout="OIHW4o", out_layout="NCHW4c"' in new.script()
    assert "data_layout does not divide into NCHW4c" in told


def test_what_may_be_written_into_stays():
    mod = from_source("""
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor((2, 4, 6, 6), "float32"), w: R.Tensor((4, 4, 1, 1), "float32")):
        a = R.nn.conv2d(x, w)
        _ = R.call_packed("test.writes", a, sinfo_args=R.Tuple())
        y = R.nn.relu(a)
        return y
""")
    with PassContext() as ctx:
        new = ConvertLayout(NHWC)(mod)
    assert new is mod and "it may be written into" in str(ctx.report)


# -- what is wanted -------------------------------------------------------------------------------


def test_a_callback_says_what_each_call_wants():
    mod = function(f"a = {CONV.format('x', 'w')}\nv = R.reshape(w, (4, 8, 3, 3))\n"
                   f"y = {CONV.format('a', 'v')}")  # fmt: skip
    seen = []

    def choose(call):
        seen.append(call)
        wide = call.op.name == "relax.nn.conv2d" and call.struct_info.shape[1] == 8
        return {"relax.nn.conv2d": ["NHWC", "default"]} if wide else {}

    new, _ = converted(mod, {}, layout_cb=choose)
    text = new.script()
    assert 'data_layout="NHWC", kernel_layout="OIHW"' in text and len(seen) >= 3
    # The other follows it.
    assert text.count('data_layout="NHWC"') == 2
    untouched, _ = converted(mod, {}, layout_cb=lambda call: None)
    assert untouched is mod


def test_default_keeps_what_is_written():
    mod = function(f"y = {CONV.format('x', 'w')}")
    new, _ = converted(mod, {"relax.nn.conv2d": ["default", "OHWI"]})
    assert 'data_layout="NCHW", kernel_layout="OHWI", out_layout="NCHW"' in new.script()
    assert converted(mod, {"relax.nn.conv2d": "default"})[0] is mod


@pytest.mark.parametrize(
    ("desired", "text"),
    [
        ({"relax.nn.conv2d": ["NHWX"]}, r"nn\.conv2d: data_layout: wanted the axes NCHW in some"),
        ({"relax.nn.conv2d": ["NHWC", "NHWC"]}, "wanted the axes OIHW .* usual ones are .*OHWI"),
        ({"relax.nn.conv2d": ["NCDHW"]}, "wanted the axes NCHW"),
        ({"relax.nn.conv2d": ["NHCW4q"]}, "block without its axis"),
        ({"relax.nn.conv2d": [3]}, "wanted a layout such as NCHW, got 3"),
        ({"relax.nn.conv2d": ["NHWC"] * 4}, "wanted 1 to 3 layouts .data_layout, kernel_layout"),
        ({"relax.nn.conv2d": []}, "wanted 1 to 3 layouts"),
        ({"relax.nn.relu": ["NHWC"]}, "relax.nn.relu has no layout"),
        ({"relax.nn.conv2": ["NHWC"]}, "is no operator.*did you mean relax.nn.conv2d"),
        (["NHWC"], "wanted a dict from operators to lists of layouts, got list"),
    ],
)
def test_what_cannot_be_wanted_is_an_error(desired, text):
    mod = function(f"y = {CONV.format('x', 'w')}")
    with pytest.raises(PassError, match=text):
        ConvertLayout(desired)(mod)
    if isinstance(desired, dict):
        with pytest.raises(PassError, match=text):
            ConvertLayout({}, lambda call: desired)(mod)


def test_exact_numerics_keep_the_order_of_sums():
    mod = function(f"a = {CONV.format('x', 'w')}\ny = R.sum(a, axis=(1, 2))")
    with PassContext(config={"numerics": "exact"}) as ctx:
        new = ConvertLayout(NHWC)(mod)
    assert "R.sum(" in new.script() and "axis=[1, 2]" in new.script()
    assert "a sum would have another order" in str(ctx.report)
    assert "axis=[3, 1]" in converted(mod)[0].script()


# -- every operator -------------------------------------------------------------------------------


def sweep(one, layouts, only=None):
    mod = layout_sweep.module_of(one, only)
    new = ConvertLayout(layout_sweep.desired(layouts))(mod)
    assert_well_formed(new)
    with np.errstate(all="ignore"):
        assert_same_meaning(mod, new, one.arrays, "main", "reassociates")
    return new


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.slow
def test_every_operator_follows_or_gets_what_was_written(family):
    for one in instances(cases_of(family), in_turn=True):
        if one.call.op.pure:
            for layouts in layout_sweep.LAYOUTS:
                sweep(one, layouts)
                sweep(one, layouts, only=0)


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_mean_the_same_wherever_values_are_laid_out(seed):
    rng = random.Random(seed)
    mod = Normalize()(from_source(graph_programs.program(seed, 16)))
    moved = mod.clone()
    for gv, fn in mod.items():
        if isinstance(fn, relax.Function):
            moved[gv] = layout_sweep.Mover(rng).rewrite(fn)
    for layouts in layout_sweep.LAYOUTS:
        run = ConvertLayout(layout_sweep.desired(layouts))
        assert_well_formed(run(moved))
        with PassContext(instruments=[CheckMeaning()]):
            run(moved)


def test_a_long_row_of_layers_is_laid_out_twice():
    x = relax.Var("x", R.Tensor((1, 4, 2, 2), "float32"))
    w = relax.Var("w", R.Tensor((4, 4, 2, 2), "float32"))
    last, bindings = x, []
    for k in range(2_000):
        value = relax.op.nn.conv2d(last, w, padding=(1, 1, 0, 0)) if k % 50 == 0 else (
            relax.op.nn.relu(last) if k % 2 else relax.op.add(last, x)
        )  # fmt: skip
        last = relax.DataflowVar("y", value.struct_info)
        bindings.append(relax.VarBinding(last, value))
    out = relax.Var("out", last.struct_info)
    block = relax.DataflowBlock([*bindings, relax.VarBinding(out, last)])
    fn = relax.Function([x, w], relax.SeqExpr([block], out))
    new = ConvertLayout(NHWC)(IRModule({"main": fn.with_attr("global_symbol", "main")}))
    values = [b.value for b in new["main"].body.blocks[0].bindings]
    assert sum(is_op(v, Op.get("relax.permute_dims")) for v in values) == 3


def test_an_operator_of_ones_own_brings_its_rule():
    def rule(call, orders):
        if not isinstance(orders[0], Order):
            return "it is not laid out"
        return Layouts((orders[0],), orders[0], {"axis": orders[0].position(call.attrs["axis"])})

    def make(name, layout):
        @op(name, numpy=lambda data, axis: np.flip(data, axis), lower=missing("a test"),
            grad=missing("a test"), layout=layout)  # fmt: skip
        def reverse(data: relax.Expr, axis: int = 1) -> relax.StructInfo:
            """Backwards."""
            return tensor(data, "data")

        return reverse

    for layout, text in ((rule, "axis=3"), (None, "does not say how")):
        reverse = make(f"test.backwards{layout is None}", layout)
        x = relax.Var("x", R.Tensor((1, 4, 2, 2), "float32"))
        w = relax.Var("w", R.Tensor((4, 4, 1, 1), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x, w]):
            with builder.dataflow():
                laid_out = builder.emit(relax.op.nn.conv2d(x, w))
                output = builder.emit_output(reverse(laid_out))
            builder.emit_func_output(output)
        new, told = converted(builder.get())
        assert text in new.script() + told


@pytest.mark.slow
def test_builds_with_and_without_the_pass_agree():
    body = f"""
a = {CONV.format("x", "w")}
b = R.nn.relu(a)
c = R.nn.avg_pool2d(b, (2, 2), strides=(2, 2))
y = R.mean(c, axis=(2, 3), keepdims=True)
"""
    mod = function(body)
    args = arrays(mod)
    want = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())["main"](*args).numpy()
    for desired in (NHWC, BLOCKED):
        new = DeadCodeElimination()(ConvertLayout(desired)(mod))
        got = relax.VirtualMachine(relax.build(new, "llvm"), tvm.cpu())["main"](*args).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
