"""ReuseDonatedParams: results are computed in the memory of parameters that calls use up."""

from __future__ import annotations

import numpy as np
import pytest
from pass_cases import parse, stays

from relaxvm import relax
from relaxvm.base import PassError
from relaxvm.ir import PassContext, assert_structural_equal
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.transform import LegalizeOps, ReuseDonatedParams
from relaxvm.runtime import VirtualMachine
from relaxvm.testing import CheckMeaning

CACHE = 'cache: R.Tensor(("n", 2), "float32")'
SCATTER = "R.scatter_nd(cache, place, row)"
SCATTERED = f'{CACHE}, place: R.Tensor((1, 1), "int64"), row: R.Tensor((1, 2), "float32")'
GROWING = f'{CACHE}, row: R.Tensor(("m", 2), "float32")'
KERNEL = """
@T.prim_func(private=True)
def set_first(var_a: T.handle, b: T.Buffer((T.int64(2),), "float32"), var_c: T.handle):
    T.func_attr({"tir.noalias": True})
    n = T.int64()
    a = T.match_buffer(var_a, (n, T.int64(2)), "float32")
    c = T.match_buffer(var_c, (n, T.int64(2)), "float32")
    for i, j in T.grid(n, T.int64(2)):
        c[i, j] = a[i, j]
    for j in range(T.int64(2)):
        c[T.int64(0), j] = b[j]
"""
INPLACE = """
@T.prim_func(private=True)
def set_first_inplace(var_a: T.handle, b: T.Buffer((T.int64(2),), "float32")):
    T.func_attr({"tir.noalias": True})
    n = T.int64()
    a = T.match_buffer(var_a, (n, T.int64(2)), "float32")
    T.evaluate(0)
    for j in range(T.int64(2)):
        a[T.int64(0), j] = b[j]
"""


def function(params, *lines, result="c", attrs='{"donate": ["cache"]}'):
    body = "".join(f"        {line}\n" for line in lines)
    return f"""
@R.function
def main({params}):
    R.func_attr({attrs})
    with R.dataflow():
{body}        R.output({result})
    return {result}
"""


def set_first(name="set_first", op="call_tir", source="cache", more=""):
    out = f'out_sinfo=R.Tensor((n, 2), "float32"){more}'
    return f"c = R.{op}(cls.{name}, ({source}, b), {out})"


def legal(text):
    return LegalizeOps()(parse(text))


def reused(mod):
    """How many results of a module's main are computed in donated memory."""
    with PassContext() as context:
        made = ReuseDonatedParams()(mod)
    assert_well_formed(made)
    decisions = context.report.of("ReuseDonatedParams")
    return made, sum(" donated memory" in d.text and "not used" not in d.text for d in decisions)


def test_a_kernel_that_copies_first_leaves_the_copy_out():
    params = f'{CACHE}, b: R.Tensor((2,), "float32")'
    n = "n = T.int64()"
    before = parse(KERNEL + function(params, set_first()).replace("    with", f"    {n}\n    with"))
    inplace = set_first("set_first_inplace", "call_tir_inplace", more=", inplace_indices=[0]")
    after = function(params, inplace).replace("    with", f"    {n}\n    with")
    functions = dict(before.functions)
    made = ReuseDonatedParams()(before)
    assert dict(before.functions) == functions
    assert_structural_equal(made, parse(KERNEL + INPLACE + after))


def test_scatter_and_concat_of_donated_parameters_use_their_memory():
    _, count = reused(legal(function(SCATTERED, f"c = {SCATTER}")))
    assert count == 1
    made, count = reused(legal(function(GROWING, "c = R.concat([cache, row], axis=0)")))
    assert count == 1
    assert "vm.builtin.grow" in made.script()


@pytest.mark.parametrize(
    ("params", "lines"),
    [
        (SCATTERED, [f"a = {SCATTER}", "c = (a, cache)"]),
        (GROWING, ["a = R.concat([cache, row], axis=0)", "c = (a, cache)"]),
        (GROWING, ["b = (cache, row)", "a = R.concat([cache, row], axis=0)", "c = (a, b)"]),
        (GROWING, ["c = R.concat([cache, cache], axis=0)"]),
        (GROWING, ["c = R.concat([row, cache], axis=0)"]),
        (GROWING, ["c = R.concat([cache, row, row], axis=0)"]),
        (
            'cache: R.Tensor((3, "n"), "float32"), row: R.Tensor((3, 1), "float32")',
            ["c = R.concat([cache, row], axis=1)"],
        ),
        (CACHE, ["c = R.concat([cache, R.multiply(cache, cache)], axis=0)"]),
        (CACHE, ["c = R.permute_dims(cache)"]),
    ],
)
def test_memory_that_is_read_again_or_laid_out_in_another_way_is_left_alone(params, lines):
    mod = legal(function(params, *lines))
    assert ReuseDonatedParams()(mod) is mod


def test_without_donated_parameters_nothing_changes():
    stays(ReuseDonatedParams(), function(SCATTERED, f"c = {SCATTER}", attrs="{}"))


def test_fields_of_donated_tuples_are_used_each_by_itself():
    pair = 'cache: R.Tuple(R.Tensor(("n", 2), "float32"), R.Tuple(R.Tensor(("n", 2), "float32")))'
    row = 'row: R.Tensor((1, 2), "float32")'
    fields = ["x = cache[0]", "t = cache[1]", "y = t[0]"]
    grown = [f"{name} = R.concat([{v}, row], axis=0)" for name, v in (("a", "x"), ("b", "y"))]
    assert reused(legal(function(f"{pair}, {row}", *fields, *grown, "c = (a, b)")))[1] == 2
    assert reused(legal(function(f"{pair}, {row}", *fields, *grown, "c = (a, y)")))[1] == 1
    assert reused(legal(function(f"{pair}, {row}", *fields, *grown, "c = (a, b, t)")))[1] == 1
    assert reused(legal(function(f"{pair}, {row}", *fields, *grown, "c = (a, b, cache)")))[1] == 0
    again = ["z = cache[0]", "c = (a, b, z)"]
    assert reused(legal(function(f"{pair}, {row}", *fields, *grown, *again)))[1] == 0


def test_what_was_fused_with_a_concatenation_stands_in_the_kernel_that_appends():
    text = function(GROWING, "d = R.exp(row)", "c = R.concat([cache, d], axis=0)")
    executable = relax.build(parse(text), "llvm")
    ours = relax.build(parse(text.replace('{"donate": ["cache"]}', "{}")), "llvm")
    cache, row = np.ones((3, 2), "float32"), np.arange(4, dtype="float32").reshape(2, 2)
    same(VirtualMachine(executable)["main"](cache, row), VirtualMachine(ours)["main"](cache, row))


def test_functions_that_others_call_do_not_write_over_what_they_are_given():
    text = function(SCATTERED, f"c = {SCATTER}").replace("main", "step") + function(
        SCATTERED, "a = cls.step(cache, place, row)", "c = (a, cache)", attrs="{}"
    )
    mod = legal(text)
    assert ReuseDonatedParams()(mod) is mod
    vm = VirtualMachine(relax.build(parse(text), "llvm"))
    cache, row = np.zeros((3, 2), "float32"), np.ones((1, 2), "float32")
    written, old = vm["main"](cache, np.array([[1]]), row)
    assert written.numpy().sum() == 2 and old.numpy().sum() == 0


def test_functions_that_others_call_as_packed_ones_do_not_write_over_what_they_are_given():
    call = 'R.call_pure_packed("step", cache, place, row, sinfo_args=R.Tensor((3, 2), "float32"))'
    text = function(SCATTERED, f"c = {SCATTER}").replace("main", "step") + function(
        SCATTERED, f"a = {call}", "c = (a, cache)", attrs="{}"
    )
    vm = VirtualMachine(relax.build(parse(text), "llvm"))
    cache, row = np.zeros((3, 2), "float32"), np.ones((1, 2), "float32")
    written, old = vm["main"](cache, np.array([[1]]), row)
    assert written.numpy().sum() == 2 and old.numpy().sum() == 0


SHORTER = """
@T.prim_func(private=True)
def first(var_a: T.handle, var_b: T.handle, var_c: T.handle):
    T.func_attr({"tir.noalias": True})
    m = T.int64()
    a = T.match_buffer(var_a, (T.int64(8), T.int64(2)), "float32")
    b = T.match_buffer(var_b, (m, T.int64(2)), "float32")
    c = T.match_buffer(var_c, (m, T.int64(2)), "float32")
    for i, j in T.grid(m, T.int64(2)):
        with T.block("c"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, vj] = T.if_then_else(vi < T.int64(8), a[vi, vj], b[vi, vj])
@R.function
def main(cache: R.Tensor((8, 2), "float32"), row: R.Tensor(("m", 2), "float32")):
    R.func_attr({"donate": ["cache"]})
    m = T.int64()
    with R.dataflow():
        c = R.call_tir(cls.first, (cache, row), out_sinfo=R.Tensor((m, 2), "float32"))
        R.output(c)
    return c
"""


def test_a_choice_that_is_shorter_than_the_input_is_no_appending():
    main = VirtualMachine(relax.build(parse(SHORTER), "llvm"))["main"]
    cache = np.arange(16, dtype="float32").reshape(8, 2)
    for rows in (0, 1, 8, 11):
        row = np.full((rows, 2), -1, "float32")
        wanted = np.concatenate([cache, row])[:rows]
        assert np.array_equal(main(cache, row).numpy(), wanted)


SUMMED = """
@T.prim_func(private=True)
def summed(var_a: T.handle, var_c: T.handle):
    T.func_attr({"tir.noalias": True})
    n = T.int64()
    a = T.match_buffer(var_a, (n, T.int64(2)), "float32")
    c = T.match_buffer(var_c, (n + T.int64(1), T.int64(2)), "float32")
    s = T.alloc_buffer((T.int64(2),), "float32")
    for j, i in T.grid(T.int64(2), n):
        with T.block("s"):
            vj, vi = T.axis.remap("SR", [j, i])
            with T.init():
                s[vj] = T.float32(0)
            s[vj] = s[vj] + a[vi, vj]
    for i, j in T.grid(n + T.int64(1), T.int64(2)):
        with T.block("c"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, vj] = T.if_then_else(vi < n, a[vi, vj], s[vj])
@R.function
def main(cache: R.Tensor(("n", 2), "float32")):
    R.func_attr({"donate": ["cache"]})
    n = T.int64()
    with R.dataflow():
        c = R.call_tir(cls.summed, (cache,), out_sinfo=R.Tensor((n + 1, 2), "float32"))
        R.output(c)
    return c
"""


def test_a_kernel_that_reads_the_input_in_an_earlier_stage_is_no_appending():
    main = VirtualMachine(relax.build(parse(SUMMED), "llvm"))["main"]
    cache = np.arange(8, dtype="float32").reshape(4, 2)
    assert np.array_equal(main(cache).numpy(), np.vstack([cache, cache.sum(0)]))


def test_one_branch_may_use_the_memory_that_the_other_reads_before_it_ends():
    text = f"""
@R.function
def main({GROWING}, which: R.Tensor((), "bool")):
    R.func_attr({{"donate": ["cache"]}})
    n = T.int64()
    m = T.int64()
    if which:
        c: R.Tensor((n + m, 2), "float32") = R.concat([cache, row], axis=0)
    else:
        c: R.Tensor((n + m, 2), "float32") = R.concat([row, cache], axis=0)
    return c
"""
    vm = VirtualMachine(relax.build(parse(text), "llvm"))
    cache, row = np.zeros((3, 2), "float32"), np.ones((1, 2), "float32")
    same(vm["main"](cache, row, np.array(True)), np.concatenate([cache, row]))
    same(vm["main"](cache, row, np.array(False)), np.concatenate([row, cache]))


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ('{"donate": ["cash"]}', "main: donate wants names of its parameters, which are cache, "),
        ('{"donate": "cash"}', "got 'cash'"),
        ('{"donate": ["k"]}', "the parameter k holds no tensor"),
        ('{"donate": [1]}', "got '1'"),
    ],
)
def test_what_is_no_parameter_with_tensors_is_named(attrs, message):
    text = function(f"{CACHE}, k: R.Prim('int64')", "c = R.exp(cache)", attrs=attrs)
    with pytest.raises(PassError, match=message):
        relax.build(parse(text), "llvm")


def test_build_donates_parameters_by_name_and_says_which_it_does_not_know():
    mod = parse(function(SCATTERED, f"c = {SCATTER}", attrs="{}"))
    executable = relax.build(mod, "llvm", donate=["cache"])
    assert executable.function("main").donated == (0,)
    assert mod["main"].get_attr("donate") is None
    with pytest.raises(PassError, match="donate: no function has a parameter named cash"):
        relax.build(mod, "llvm", donate=["cache", "cash"])
    for given in ({"cache"}, 1):
        with pytest.raises(PassError, match="donate wants a list of names of parameters, got"):
            relax.build(mod, "llvm", donate=given)


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("more", [0, 1, 3])
def test_any_number_of_rows_grows_by_any_number(rows, more):
    text = function(GROWING, "c = R.concat([cache, row], axis=0)")
    executable = relax.build(parse(text), "llvm")
    cache, row = np.ones((rows, 2), "float32"), np.full((more, 2), 7, "float32")
    for mode in ("compiled", "bytecode"):
        main = VirtualMachine(executable, exec_mode=mode)["main"]
        grown = main(main(cache, row), row)
        same(grown, np.concatenate([cache, row, row]))


def test_the_pass_keeps_what_random_functions_mean():
    """Operators over two donated and two other parameters, in a random order."""
    rng = np.random.default_rng(7)
    shape = 'R.Tensor(("n", 2), "float32")'
    params = f'a: {shape}, b: {shape}, x: {shape}, place: R.Tensor((1, 1), "int64")'
    params += ', row: R.Tensor((1, 2), "float32")'
    donating = ['{"donate": ["a", "b"]}', "{}"]
    used = 0
    for _ in range(8):
        names, lines = ["a", "b", "x"], []
        for k in range(5):
            one, two = rng.choice(names, 2)
            kind = rng.integers(4)
            lines.append(
                f"v{k} = "
                + (
                    f"R.scatter_nd({one}, place, row)",
                    f"R.add({one}, {two})",
                    f"R.slice_scatter({one}, row, R.prim_value(0), R.prim_value(1), "
                    "R.prim_value(1), axis=0)",
                    f"R.multiply({one}, {one})",
                )[kind]
            )
            names.append(f"v{k}")
        picked = rng.choice(names[3:], 2, replace=False)
        lines.append(f"c = ({picked[0]}, {picked[1]}, R.concat([v4, {rng.choice(names)}], axis=0))")
        mods = [parse(function(params, *lines, attrs=attrs)) for attrs in donating]
        with PassContext(instruments=[CheckMeaning()]):
            _, count = reused(LegalizeOps()(mods[0]))
        used += count
        made, wanted = (VirtualMachine(relax.build(m, "llvm"))["main"] for m in mods)
        for n in (1, 4):
            given = [rng.standard_normal((n, 2), "float32") for _ in range(3)]
            given += [np.array([[0]]), rng.standard_normal((1, 2), "float32")]
            copies = [g.copy() for g in given]
            for got, want in zip(made(*given), wanted(*copies)):
                same(got, want.numpy())
            assert all(map(np.array_equal, given, copies))
    assert used


def test_many_bindings_and_fields_take_linear_time():
    count = 1_500
    field = 'R.Tensor(("n", 2), "float32")'
    params = f'cache: R.Tuple({", ".join([field] * count)}), row: R.Tensor((1, 2), "float32")'
    lines = [f"x{k} = cache[{k}]" for k in range(count)]
    lines += [f"y{k} = R.concat([x{k}, row], axis=0)" for k in range(count)]
    mod = legal(function(params, *lines, f"c = ({', '.join(f'y{k}' for k in range(count))})"))
    assert reused(mod)[1] == count


def same(got, want):
    want = want if isinstance(want, np.ndarray) else want.numpy()
    assert got.shape == want.shape
    assert np.array_equal(got.numpy(), want)
