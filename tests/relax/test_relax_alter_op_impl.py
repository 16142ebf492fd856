"""AlterOpImpl, OptimizeLayoutTransform: loop functions in other layouts, and what of it cancels."""

from __future__ import annotations

import random

import numpy as np
import pytest
from pass_cases import becomes, model, parse, same_results, stays

from relaxvm import relax, te, tir
from relaxvm.base import PassError
from relaxvm.ir import PassContext
from relaxvm.relax import op, transform
from relaxvm.relax.analysis import assert_well_formed

optimize = transform.OptimizeLayoutTransform()
any_padding = transform.OptimizeLayoutTransform(padding_is_read=False)


def add(*shape, name="relax.add"):
    """A loop function that adds two tensors."""
    x, y = (te.placeholder(shape, "float32", n) for n in "xy")
    fn = te.create_prim_func([x, y, te.compute(shape, lambda *i: x(*i) + y(*i))])
    return fn.without_attr("global_symbol").with_attr("operator_name", name)


def blocked(i):
    return i // 4, i % 4


def alter(fn, maps=(), name="relax.add", **separators):
    return transform.AlterOpImpl(
        op_impl_map={name: fn}, op_buffer_transforms={name: maps}, **separators
    )


def sums(size, count=1, name="relax.add"):
    """A module of additions, each of what the last one gave and `x`."""
    info = relax.TensorStructInfo((size,), "float32")
    builder = relax.BlockBuilder()
    x, y = (relax.Var(v, info) for v in "xy")
    gv = builder.add_func(add(size, name=name), "add")
    with builder.function("main", [x, y]):
        with builder.dataflow():
            total = y
            for _ in range(count):
                total = builder.emit(op.call_tir(gv, (x, total), info))
            total = builder.emit_output(total)
        builder.emit_func_output(total)
    return builder.finalize()


def names_of(mod):
    """The operators and loop functions that main calls, in order."""
    calls = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    return [
        c.args[0].name_hint if c.op.name == "relax.call_tir" else c.op.name.removeprefix("relax.")
        for c in calls
        if isinstance(c, relax.Call)
    ]


def arrays(*shapes):
    rng = np.random.default_rng(3)
    return [rng.standard_normal(s).astype("float32") for s in shapes]


def applied(run, mod):
    """What the pass makes of `mod`, which stays as it was."""
    before = dict(mod.functions)
    new = run(mod)
    assert dict(mod.functions) == before
    assert_well_formed(new)
    return new


# -- AlterOpImpl -----------------------------------------------------------------------------------


def test_inputs_and_results_are_moved():
    mod = sums(16)
    new = applied(alter(add(4, 4), [blocked] * 3), mod)
    moved = "layout_transform"
    assert names_of(new) == [moved, moved, "relax_add_replacement", moved]
    assert new["relax_add_replacement"].attrs["operator_name"] == "relax.add"
    assert new["relax_add_replacement"].get_attr("global_symbol") is None
    same_results(mod, new, *arrays(16, 16))


def test_functions_that_are_the_new_ones_already_stay():
    run = alter(add(4, 4), [blocked] * 3)
    new = run(sums(16))
    assert run(new) is new


def test_what_it_did_is_told():
    with PassContext() as ctx:
        alter(add(4, 4), [blocked] * 3)(sums(16))
    (told,) = ctx.report.of("AlterOpImpl")
    assert "replaced by relax_add_replacement" in told.text


def test_layouts_may_stay_for_some_or_all():
    mod = sums(16, 2)
    x, y = (te.placeholder((16,), "float32", n) for n in "xy")
    turned = te.create_prim_func([x, y, te.compute((16,), lambda i: y(i) + x(i))])
    for maps in ([], [None] * 3):
        new = applied(alter(turned, maps), mod)
        assert names_of(new) == ["relax_add_replacement"] * 2
        same_results(mod, new, *arrays(16, 16))

    x, y = te.placeholder((4, 4), "float32"), te.placeholder((16,), "float32")
    mixed = te.create_prim_func([x, y, te.compute((16,), lambda i: x(i // 4, i % 4) + y(i))])
    new = applied(alter(mixed, [blocked, None, None]), mod)
    same_results(mod, new, *arrays(16, 16))


def test_padding_is_cut_off_again():
    mod = sums(14, 2)
    new = applied(alter(add(4, 4), [blocked] * 3), mod)
    moved = "layout_transform"
    once = [moved, moved, "relax_add_replacement", moved, "remove_pad"]
    assert names_of(new) == once * 2
    assert [gv.name_hint for gv in new].count("remove_pad") == 1
    same_results(mod, new, *arrays(14, 14))


def test_each_dtype_and_rank_has_a_function_that_cuts_off():
    mod = sums(14)
    info = relax.TensorStructInfo((14,), "int32")
    ints = [te.placeholder(s, "int32", "x") for s in ((14,), (4, 4))]
    old, new = (te.create_prim_func([x, te.compute(x.shape, lambda *i, x=x: -x(*i))]) for x in ints)
    builder = relax.BlockBuilder(mod)
    gv = builder.add_func(
        old.without_attr("global_symbol").with_attr("operator_name", "neg"), "neg"
    )
    x = relax.Var("x", info)
    with builder.function("other", [x]):
        builder.emit_func_output(builder.emit(op.call_tir(gv, (x,), info)))
    run = transform.AlterOpImpl(
        op_impl_map={"relax.add": add(4, 4), "neg": new},
        op_buffer_transforms={"relax.add": [blocked] * 3, "neg": [blocked] * 2},
    )
    new = applied(run, builder.finalize())
    assert sum(gv.name_hint.startswith("remove_pad") for gv in new) == 2


def test_several_results():
    shapes = (16,), (4, 4)
    both = []
    for shape in shapes:
        x = te.placeholder(shape, "float32", "x")
        results = te.compute(shape, lambda *i, x=x: (x(*i) + 1.0, x(*i) * 2.0))
        fn = te.create_prim_func([x, *results]).without_attr("global_symbol")
        both.append(fn.with_attr("operator_name", "both"))
    infos = [relax.TensorStructInfo((16,), "float32")] * 2
    builder = relax.BlockBuilder()
    x = relax.Var("x", infos[0])
    gv = builder.add_func(both[0], "both")
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.call_tir(gv, (x,), infos)))
    mod = builder.finalize()
    for maps in ([blocked] * 3, [None, None, None]):
        fn = both[1] if maps[0] else both[0]
        same_results(mod, applied(alter(fn, maps, "both"), mod), *arrays(16))


def test_symbolic_sizes():
    n, m = (tir.Var(v, "int64") for v in "nm")
    mod = sums(n)
    new = applied(alter(add(m, 4), [blocked] * 3), mod)
    for size in (0, 1, 4, 7):
        same_results(mod, new, *arrays(size, size))


def test_axis_separators_become_attributes():
    split = tir.IndexMap.from_func_with_separators(
        lambda i: (i // 4, tir.IndexMap.AXIS_SEPARATOR, i % 4)
    )
    run = alter(
        add(4, 4), [split] * 3,
        op_buffer_axis_separators={"relax.add": [[1], [1], []]},
        op_buffer_input_axis_separators={"relax.add": [[], [], [1]]},
    )  # fmt: skip
    new = applied(run, sums(16))
    values = [b.value for b in new["main"].body.blocks[0].bindings]
    calls = [v for v in values if isinstance(v, relax.Call) and len(v.args) == 1]
    assert [c.attrs["axis_separators"] for c in calls] == [(1,), (1,), None]
    assert [c.attrs["input_axis_separators"] for c in calls] == [None, None, (1,)]


def test_other_functions_stay():
    mod = sums(16, name="relax.multiply")
    assert alter(add(4, 4), [blocked] * 3)(mod) is mod
    text = """
    @R.function
    def main(x: R.Tensor((16,), "float32")):
        with R.dataflow():
            lv = R.call_dps_packed("env.f", (x,), out_sinfo=R.Tensor((16,), "float32"))
            gv = R.add(lv, x)
            R.output(gv)
        return gv
    """
    stays(alter(add(4, 4), [blocked] * 3), text)


@pytest.mark.parametrize(
    ("fn", "maps", "message"),
    [
        (add(4, 4), [blocked] * 2, "2 maps for the 3 parameters"),
        (add(4, 4), [lambda i: (i // 4, i % 2)] * 3, "different elements"),
        (add(31), [lambda i: (i * 2,)] * 3, "between others"),
        (add(4, 4), [3] * 3, "got int"),
        (add(4, 4), [None] * 3, "does not fit"),
        (add(2, 8), [blocked] * 3, "does not fit"),
        (add(4, 4), [lambda i, j: (j, i)] * 3, "indices"),
        (3, [], "PrimFunc"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_the_place(fn, maps, message):
    mod = sums(16)
    before = dict(mod.functions)
    with pytest.raises(PassError, match=message) as error:
        alter(fn, maps)(mod)
    assert "relax.add" in str(error.value) + "".join(error.value.__notes__)
    assert dict(mod.functions) == before


def test_sizes_that_a_layout_does_not_divide_want_a_function_of_the_padded_ones():
    mod = sums(18)
    with pytest.raises(PassError, match=r"AlterOpImpl: relax\.add, called at lv: ") as error:
        alter(add(4, 4), [blocked] * 3)(mod)
    assert "wanted: (4, 4)" in str(error.value) and "(5, 4)" in str(error.value)
    assert "in function main" in error.value.__notes__
    same_results(mod, applied(alter(add(5, 4), [blocked] * 3), mod), *arrays(18, 18))


def test_a_function_with_other_parameters_is_an_error():
    x = te.placeholder((16,), "float32")
    fn = te.create_prim_func([x, te.compute((16,), lambda i: x(i))])
    with pytest.raises(PassError, match="2 parameters, the old one 3") as error:
        alter(fn)(sums(16))
    assert any("called at" in note for note in error.value.__notes__)


def test_unknown_shapes_stay_as_they_are():
    info = relax.TensorStructInfo(dtype="float32", ndim=1)
    builder = relax.BlockBuilder(sums(16))
    x = relax.Var("x", info)
    gv = builder.get().get_global_var("add")
    out = relax.TensorStructInfo((16,), "float32")
    with builder.function("other", [x]):
        builder.emit_func_output(builder.emit(op.call_tir(gv, (x, x), out)))
    mod = builder.finalize()
    with PassContext() as ctx:
        new = applied(alter(add(4, 4), [blocked] * 3), mod)
    assert new["other"] is mod["other"]
    assert any("not known" in d.text for d in ctx.report)


# -- OptimizeLayoutTransform -----------------------------------------------------------------------


def test_what_is_undone_at_once_is_not_done():
    becomes(
        optimize,
        """
        @R.function
        def main(x: R.Tensor((16,), "float32")):
            with R.dataflow():
                lv = R.layout_transform(x, index_map=lambda i: (i // 4, i % 4))
                lv1 = R.layout_transform(lv, index_map=lambda a, b: (a * 4 + b,))
                gv = R.exp(lv1)
                R.output(gv)
            return gv
        """,
        """
        @R.function
        def main(x: R.Tensor((16,), "float32")):
            with R.dataflow():
                gv = R.exp(x)
                R.output(gv)
            return gv
        """,
    )


def test_two_that_do_not_cancel_are_one():
    becomes(
        optimize,
        """
        @R.function
        def main(x: R.Tensor((8, 6), "float32")):
            with R.dataflow():
                lv = R.layout_transform(x, index_map=lambda i, j: (j, i))
                gv = R.layout_transform(lv, index_map=lambda a, b: (b // 4, a, b % 4))
                R.output(gv)
            return gv
        """,
        """
        @R.function
        def main(x: R.Tensor((8, 6), "float32")):
            with R.dataflow():
                gv = R.layout_transform(x, index_map=lambda i, j: (i // 4, j, i % 4))
                R.output(gv)
            return gv
        """,
    )


def test_altered_operators_pass_their_layout_on():
    mod = sums(16, 3)
    new = transform.OptimizeLayoutTransform()(alter(add(4, 4), [blocked] * 3)(mod))
    assert_well_formed(new)
    # x is moved three times: equal calls are for EliminateCommonSubexpr.
    assert names_of(new).count("layout_transform") == 5
    shared = transform.EliminateCommonSubexpr()(new)
    assert names_of(shared).count("layout_transform") == 3
    same_results(mod, shared, *arrays(16, 16))


def test_padding_that_may_be_read_is_put_back():
    mod = sums(14, 2)
    padded = alter(add(4, 4), [blocked] * 3)(mod)
    with PassContext() as ctx:
        assert names_of(optimize(padded)) == names_of(padded)
    assert any("padding may be read" in d.text for d in ctx.report)
    new = applied(any_padding, padded)
    assert names_of(new).count("remove_pad") == 1
    same_results(mod, new, *arrays(14, 14))


def test_padding_of_two_values_is_kept_apart():
    def run(first, second):
        def build(e, x):
            lv = e(op.layout_transform(x, lambda i: (i // 4, i % 4), pad_value=first))
            return op.layout_transform(lv, lambda a, b: (a // 3, a % 3, b), pad_value=second)

        mod = model(build, (14,), dtype="float32")
        same_results(mod, optimize(mod), *arrays(14))
        return names_of(optimize(mod)).count("layout_transform")

    assert run(1.0, 1.0) == 1
    assert run(1.0, 2.0) == 2
    assert run(0.0, -0.0) == 2
    assert run(float("nan"), float("nan")) == 1


def test_a_map_that_moves_nothing_goes():
    mod = model(lambda e, x: op.exp(e(op.layout_transform(x, lambda i, j: (i, j)))), (3, 4))
    assert names_of(optimize(mod)) == ["exp"]
    mod = model(lambda e, x: op.layout_transform(x, lambda i, j: (i, j)), (3, 4))
    assert names_of(optimize(mod)) == []
    (sizes,) = arrays((3, 4))
    same_results(mod, optimize(mod), sizes.astype("float64"))


def test_branches_do_not_see_each_other():
    text = """
    @R.function
    def main(x: R.Tensor((16,), "float32"), c: R.Tensor((), "bool")):
        a = R.layout_transform(x, index_map=lambda i: (i // 4, i % 4))
        if c:
            b = R.layout_transform(a, index_map=lambda a, b: (a * 4 + b,))
            r = R.exp(b)
        else:
            d = R.layout_transform(x, index_map=lambda i: (i // 2, i % 2))
            b = R.layout_transform(d, index_map=lambda a, b: (a * 2 + b,))
            r = R.negative(b)
        return r
    """
    mod = parse(text)
    new = optimize(mod)
    assert "layout_transform" not in new.script()
    for c in (True, False):
        same_results(mod, new, *arrays(16), np.array(c))


MAPS = {
    1: [lambda i: (i // 4, i % 4), lambda i: (i // 5, i % 5), lambda i: (i,)],
    2: [
        lambda a, b: (b, a),
        lambda a, b: (a // 2, b, a % 2),
        lambda a, b: (a, b // 3, b % 3),
        lambda a, b: (a, b),
    ],
    3: [lambda a, b, c: (c, a, b), lambda a, b, c: (b, c, a), lambda a, b, c: (a, c, b)],
}
JOINS = {2: lambda n: lambda a, b: (a * n + b,), 3: lambda n: lambda a, b, c: (a, b * n + c)}


@pytest.mark.parametrize("seed", range(40))
def test_random_chains_of_layouts_mean_the_same(seed):
    rng = random.Random(seed)

    def build(e, x):
        values = [x]
        for _ in range(rng.randint(2, 7)):
            value = rng.choice(values[-2:])
            rank, last = value.struct_info.ndim, int(value.struct_info.dims[-1])
            maps = [*MAPS[rank], *([JOINS[rank](last)] * 2 if rank in JOINS else [])]
            pad = rng.choice((0.0, 0.0, 1.5))
            values.append(e(op.layout_transform(value, rng.choice(maps), pad_value=pad)))
        return values[-2:]

    mod = model(build, rng.choice([(12,), (14,), (6, 4), (5, 3), (2, 3, 4)]), dtype="float32")
    shape = [int(d) for d in mod["main"].params[0].struct_info.dims]
    new = applied(optimize, mod)
    assert optimize(new) is new
    same_results(mod, new, *arrays(shape))


@pytest.mark.parametrize("seed", range(20))
def test_random_operators_in_random_layouts_mean_the_same(seed):
    rng = random.Random(seed)
    shape = rng.choice([(12,), (13,), (4, 6), (5, 7)])
    index_map = tir.IndexMap.from_func(rng.choice(MAPS[len(shape)]), index_dtype="int64")
    mapped = tuple(int(d) for d in index_map.map_shape(shape))
    info = relax.TensorStructInfo(shape, "float32")
    builder = relax.BlockBuilder()
    x, y = (relax.Var(v, info) for v in "xy")
    gv = builder.add_func(add(*shape), "add")
    with builder.function("main", [x, y]):
        with builder.dataflow():
            values = [x, y]
            for _ in range(rng.randint(1, 6)):
                a, b = (rng.choice(values[-3:]) for _ in range(2))
                call = op.call_tir(gv, (a, b), info) if rng.random() < 0.7 else op.exp(a)
                values.append(builder.emit(call))
            out = builder.emit_output(relax.Tuple(values[-2:]))
        builder.emit_func_output(out)
    mod = builder.finalize()
    altered = applied(alter(add(*mapped), [index_map] * 3), mod)
    for new in (altered, optimize(altered), any_padding(altered)):
        same_results(mod, new, *arrays(shape, shape))
