"""FuseTIR: a group of kernels as one does what the kernels did, one after the other."""

from __future__ import annotations

import random

import numpy as np
import pytest
from pass_cases import parse, random_model, results, same_results, stays

from relaxvm import relax, te, tir
from relaxvm.base import VMValueError
from relaxvm.ir import (
    GlobalVar,
    IRModule,
    PassContext,
    assert_structural_equal,
    structural_equal,
    walk,
)
from relaxvm.relax import op
from relaxvm.relax.analysis import assert_well_formed, tir_vars_in_struct_info
from relaxvm.relax.analysis import definable_tir_vars_in_struct_info as defined
from relaxvm.relax.substitute import copy_with_new_vars, substitute_graph
from relaxvm.relax.transform import FuseTIR, LegalizeOps
from relaxvm.tir import FORMULA, Block, PrimFunc
from relaxvm.tir.analysis import verify_well_formed

F32 = "float32"

KERNELS = """
@T.prim_func(private=True)
def add(a: T.handle, b: T.handle, c: T.handle):
    T.func_attr({"tir.noalias": True})
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    C = T.match_buffer(c, (n,), "float32")
    for i in range(n):
        with T.block("add"):
            v = T.axis.spatial(n, i)
            C[v] = A[v] + B[v]

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
def both(a: T.handle, b: T.handle, c: T.handle):
    T.func_attr({"tir.noalias": True})
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    C = T.match_buffer(c, (n,), "float32")
    for i in range(n):
        with T.block("both"):
            v = T.axis.spatial(n, i)
            B[v] = A[v] + T.float32(1)
            C[v] = A[v] + T.float32(2)

@T.prim_func(private=True)
def iota(c: T.handle, n: T.int64):
    T.func_attr({"tir.noalias": True})
    C = T.match_buffer(c, (n * T.int64(2),), "float32")
    for i in range(n * T.int64(2)):
        with T.block("iota"):
            v = T.axis.spatial(n * T.int64(2), i)
            C[v] = T.Cast("float32", v + n)

@T.prim_func(private=True)
def plain(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = A[i] - T.float32(3)
"""
KERNELS = {text.split("(")[1].split()[-1]: f"\n{text}\n" for text in KERNELS.split("\n\n")}
VEC = 'R.Tensor(("n",), "float32")'
INNER = 'R.Tensor((n,), "float32")'


def group(params, body, result, name="fused"):
    lines = "".join(f"        {line}\n" for line in body)
    return f"""
@R.function(private=True)
def {name}({params}):
    R.func_attr({{"Primitive": 1}})
    n = T.int64()
    cls = Module
    with R.dataflow():
{lines}        R.output({result})
    return {result}
"""


def model(params, body, result, *groups):
    lines = "".join(f"        {line}\n" for line in body)
    used = "".join(k for name, k in KERNELS.items() if f"cls.{name}," in "".join((*body, *groups)))
    return (
        used
        + "".join(groups)
        + f"""
@R.function
def main({params}):
    n = T.int64()
    cls = Module
    with R.dataflow():
{lines}        R.output({result})
    return {result}
"""
    )


def fused(mod):
    """`mod` after the pass, checked, and the module left as it was."""
    before = dict(mod.functions)
    made = FuseTIR()(mod)
    assert dict(mod.functions) == before
    assert_well_formed(made)
    for fn in made.functions.values():
        if isinstance(fn, PrimFunc):
            verify_well_formed(fn)
            names = [n.name_hint for n in walk(fn) if isinstance(n, Block)]
            assert len(set(names)) == len(names)
    return made


def groups_left(mod):
    return [n for n, f in named(mod).items() if isinstance(f, relax.Function) and n != "main"]


def named(mod):
    return {gv.name_hint: fn for gv, fn in mod.items()}


X = np.array([1, -2, 3, 4], F32)
Y = np.array([5, 6, -7, 8], F32)
TWO = f"x: {VEC}, y: {VEC}"
ADDED = f"R.call_tir(cls.add, (x, y), out_sinfo={INNER})"


def check(text, *args, left=()):
    mod = parse(text)
    made = fused(mod)
    assert sorted(groups_left(made)) == sorted(left)
    same_results(mod, made, *args)
    return made


def test_a_group_becomes_one_kernel_with_its_intermediates_inside():
    text = model(
        TWO,
        ["gv = cls.fused(x, y)"],
        "gv",
        group(
            TWO,
            [f"a = {ADDED}", f"b = R.call_tir(cls.add, (a, a), out_sinfo={INNER})"],
            "b",
        ),
    )
    made = check(text, X, Y)
    assert_structural_equal(
        made,
        parse(f"""
@T.prim_func(private=True)
def fused(x: T.handle, y: T.handle, b: T.handle):
    T.func_attr({{"tir.noalias": True}})
    n = T.int64()
    X = T.match_buffer(x, (n,), "float32")
    Y = T.match_buffer(y, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    A = T.alloc_buffer((n,), "float32")
    for i in range(n):
        with T.block("add"):
            v = T.axis.spatial(n, i)
            A[v] = X[v] + Y[v]
    for i in range(n):
        with T.block("add_1"):
            v = T.axis.spatial(n, i)
            B[v] = A[v] + A[v]

@R.function
def main({TWO}):
    n = T.int64()
    cls = Module
    with R.dataflow():
        gv = R.call_tir(cls.fused, (x, y), out_sinfo={INNER})
        R.output(gv)
    return gv
"""),
    )
    assert FuseTIR()(made) is made


def test_a_module_without_groups_is_the_same_module():
    mod = parse(model(TWO, [f"gv = {ADDED}"], "gv"))
    assert FuseTIR()(mod) is mod


def test_several_results_one_of_which_is_read_inside():
    both = f"t = R.call_tir(cls.both, (a,), out_sinfo=[{INNER}, {INNER}])"
    text = model(
        TWO,
        ["t = cls.fused(x, y)", "u = t[0]", "v = t[1]", "gv = (v, u)"],
        "gv",
        group(TWO, [f"a = {ADDED}", both, "b = t[1]", "r = (a, b)"], "r"),
    )
    made = check(text, X, Y)
    assert len(named(made)["fused"].params) == 4


def test_results_that_are_arguments_or_stand_twice_and_nested_tuples():
    text = model(
        f"x: {VEC}, p: R.Tuple({VEC}, R.Tuple({INNER}))",
        ["t = cls.fused(x, p)", "u = t[1]", "gv = (t, u)"],
        "gv",
        group(
            f"x: {VEC}, p: R.Tuple({VEC}, R.Tuple({INNER}))",
            [
                "q = p[1]",
                "y = q[0]",
                f"a = {ADDED}",
                "z = p[0]",
                "r = (a, (x, z), a, q)",
            ],
            "r",
        ),
    )
    check(text, X, (Y, (X,)))


def test_a_group_that_computes_nothing_is_what_it_returns():
    text = model(TWO, ["gv = cls.fused(x, y)"], "gv", group(TWO, ["r = (y, x)"], "r"))
    made = check(text, X, Y)
    assert "fused" not in named(made)


def test_one_argument_for_two_parameters():
    text = model(f"x: {VEC}", ["gv = cls.fused(x, x)"], "gv", group(TWO, [f"a = {ADDED}"], "a"))
    check(text, X)


def test_a_kernel_in_place_of_an_intermediate_and_of_an_argument():
    twice = "b = R.call_tir_inplace(cls.double, (a,), inplace_indices=[0], out_sinfo={})"
    inside = group(TWO, [f"a = {ADDED}", twice.format(INNER)], "b")
    made = check(model(TWO, ["gv = cls.fused(x, y)"], "gv", inside), X, Y)
    assert len(named(made)["fused"].params) == 3
    over = group(
        f"a: {VEC}, y: {VEC}",
        [twice.format(INNER), f"c = R.call_tir(cls.add, (b, y), out_sinfo={INNER})"],
        "c",
    )
    first = f"a = {ADDED}"
    made = check(model(TWO, [first, "gv = cls.fused(a, y)"], "gv", over), X, Y)
    (call,) = (n for n in walk(named(made)["main"]) if isinstance(n, relax.Call) and n.attrs)
    assert call.op.name == "relax.call_tir_inplace"
    assert tuple(call.attrs["inplace_indices"]) == (-1, 0)
    # The argument is seen twice: as one kernel, it would be written while it is read.
    check(model(TWO, [first, "gv = cls.fused(a, a)"], "gv", over), X, Y, left=["fused"])


def test_an_intermediate_before_and_after_it_was_written_over_is_one_memory():
    text = model(
        TWO,
        ["gv = cls.fused(x, y)"],
        "gv",
        group(
            TWO,
            [
                f"a = {ADDED}",
                f"c = R.call_tir(cls.add, (a, x), out_sinfo={INNER})",
                f"b = R.call_tir_inplace(cls.double, (a,), inplace_indices=[0], out_sinfo={INNER})",
                "r = (b, c)",
            ],
            "r",
        ),
    )
    check(text, X, Y)


def test_sizes_that_no_buffer_has_become_scalars():
    text = model(
        f"x: {VEC}",
        ["gv = cls.fused(x, R.shape([n]))"],
        "gv",
        """
@R.function(private=True)
def fused(x: R.Tensor(("n*2",), "float32"), s: R.Shape(["n"])):
    R.func_attr({"Primitive": 1})
    n = T.int64()
    cls = Module
    with R.dataflow():
        a = R.call_tir(cls.iota, (), out_sinfo=R.Tensor((n * 2,), "float32"), tir_vars=s)
        b = R.call_tir(cls.add, (a, x), out_sinfo=R.Tensor((n * 2,), "float32"))
        R.output(b)
    return b
""",
    ).replace(f"def main(x: {VEC}", 'def main(x: R.Tensor(("n*2",), "float32"), m: R.Shape(["n"])')
    mod = parse(text)
    made = fused(mod)
    assert groups_left(made) == []
    for n in (0, 1, 3):
        same_results(mod, made, np.ones(2 * n, F32), (n,))


def test_constants_inside_come_from_the_caller():
    add = 'R.call_tir(cls.add, (x, R.const([1.0, 2, 3, 4], "float32")), out_sinfo={})'
    fixed = 'R.Tensor((4,), "float32")'
    text = model(
        f"x: {fixed}",
        ["gv = cls.fused(x)"],
        "gv",
        group(f"x: {fixed}", ["a = " + add.format(fixed)], "a"),
    )
    made = check(text, X)
    assert len(named(made)["fused"].params) == 3


def test_loops_without_blocks_get_one_that_says_what_it_touches():
    fixed = 'R.Tensor((4,), "float32")'
    text = model(
        f"x: {fixed}",
        ["gv = cls.fused(x)"],
        "gv",
        group(
            f"x: {fixed}",
            [
                f"a = R.call_tir(cls.plain, (x,), out_sinfo={fixed})",
                f"b = R.call_tir(cls.add, (a, x), out_sinfo={fixed})",
            ],
            "b",
        ),
    )
    kernel = named(check(text, X))["fused"]
    sch = tir.Schedule(kernel)
    block = sch.get(sch.get_block("plain"))
    assert [r.buffer.name for r in block.reads] == ["x"]
    assert [r.buffer.name for r in block.writes] == ["a"]


def test_sizes_that_only_a_call_checks_keep_the_group():
    text = model(
        'x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")',
        ["gv = cls.fused(x, y)"],
        "gv",
        group(
            'x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")', [f"a = {ADDED}"], "a"
        ),
    )
    made = check(text, X, Y, left=["fused"])
    with pytest.raises(VMValueError):
        results(made, X, Y[:2])
    with PassContext() as context:
        FuseTIR()(parse(text))
    (told,) = context.report
    assert str(told).endswith("fused stays a function: add wants the size n, which may not be m")


def test_an_intermediate_of_negative_size_is_the_error_it_was():
    fixed = 'R.Tensor((n - 3,), "float32")'
    text = (
        model(
            f"x: {VEC}",
            ["gv = cls.fused(x)"],
            "gv",
            group(
                f"x: {VEC}",
                [
                    f"a = R.call_tir(cls.some, (x,), out_sinfo={fixed})",
                    'b = R.call_tir(cls.total, (a,), out_sinfo=R.Tensor((), "float32"))',
                ],
                "b",
            ),
        )
        + """
@T.prim_func(private=True)
def some(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n - T.int64(3),), "float32")
    for i in range(n - T.int64(3)):
        with T.block("some"):
            v = T.axis.spatial(n - T.int64(3), i)
            B[v] = A[v]

@T.prim_func(private=True)
def total(a: T.handle, B: T.Buffer((), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B[()] = T.float32(0)
    for i in range(n):
        B[()] = B[()] + A[i]
"""
    )
    made = check(text, X, left=["fused"])
    with pytest.raises(VMValueError):
        results(made, X[:2])


def test_a_kernel_that_returns_early_or_takes_a_pointer_keeps_the_group():
    fixed = 'R.Tensor((4,), "float32")'
    for kernel in (
        """
@T.prim_func(private=True)
def odd(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    B[0] = A[1]
    if A[0] > T.float32(0):
        T.evaluate(T.ret(0))
    B[0] = A[0]
""",
        """
@T.prim_func(private=True)
def odd(A: T.Buffer((4,), "float32"), b: T.handle):
    B = T.match_buffer(b, (4,), "float32", strides=(2,))
    B[0] = A[0]
""",
    ):
        text = kernel + model(
            f"x: {fixed}",
            ["gv = cls.fused(x)"],
            "gv",
            group(f"x: {fixed}", [f"a = R.call_tir(cls.odd, (x,), out_sinfo={fixed})"], "a"),
        )
        stays(FuseTIR(), text)


def test_equal_groups_share_a_kernel_and_others_of_one_name_stay():
    one = [f"a = {ADDED}", f"b = R.call_tir(cls.add, (a, x), out_sinfo={INNER})"]
    text = model(
        TWO,
        ["u = cls.fused(x, y)", "gv = cls.again(u, y)"],
        "gv",
        group(TWO, one, "b"),
        group(TWO, one, "b", name="again"),
    )
    made = check(text, X, Y)
    assert sorted(named(made)) == ["fused", "main"]


def test_a_public_group_stays_callable():
    text = model(TWO, ["gv = cls.fused(x, y)"], "gv", group(TWO, [f"a = {ADDED}"], "a")).replace(
        "@R.function(private=True)", "@R.function"
    )
    made = fused(parse(text))
    assert sorted(named(made)) == ["add", "fused", "fused1", "main"]
    same_results(parse(text), made, X, Y)


def test_a_group_that_is_a_value_stays():
    text = model(TWO, ["gv = cls.fused(x, y)"], "gv", group(TWO, [f"a = {ADDED}"], "a"))
    mod = parse(
        text
        + f"""
@R.function
def other(x: {VEC}):
    cls = Module
    f = R.make_closure(cls.fused, (x,))
    return f
"""
    )
    assert FuseTIR()(mod) is mod


def test_a_group_that_was_folded_to_a_constant_is_that_constant():
    before = """
        @R.function(private=True)
        def group():
            R.func_attr({"Primitive": True})
            return R.const(9, "int64")

        @R.function
        def main(x: R.Tensor((), "int64")):
            y = Module.group()
            return (x, y)
        """
    after = """
        @R.function
        def main(x: R.Tensor((), "int64")):
            y: R.Tensor((), "int64") = R.const(9, "int64")
            return (x, y)
        """
    assert_structural_equal(FuseTIR()(parse(before)), parse(after))


def test_attributes_of_the_group_and_spans_of_its_parts_stay():
    mod = parse(
        model(TWO, ["gv = cls.fused(x, y)"], "gv", group(TWO, [f"a = {ADDED}"], "a")).replace(
            '{"Primitive": 1}', '{"Primitive": 1, "op_pattern": 4}'
        )
    )
    made = fused(mod)
    assert dict(named(made)["fused"].attrs) == {"op_pattern": 4, "tir.noalias": True}
    (call,) = (n for n in walk(named(made)["main"]) if isinstance(n, relax.Call))
    inner = [n for n in walk(named(mod)["fused"]) if isinstance(n, relax.Call)]
    outer = [n for n in walk(named(mod)["main"]) if isinstance(n, relax.Call)]
    assert set(call.span.parts) == {c.span for c in (*inner, *outer)}


def test_a_formula_of_several_steps_is_the_same_function():
    """What schedules see: operators fused by the pass, and one formula of the same steps."""
    bb = relax.BlockBuilder()
    infos = [relax.TensorStructInfo(s, F32) for s in ((1, 8, 6, 6), (4, 8, 3, 3), (1, 4, 1, 1))]
    x, w, b = (relax.Var(n, i) for n, i in zip("xwb", infos))
    with bb.function("main", [x, w, b]):
        with bb.dataflow():
            y = bb.emit(op.nn.conv2d(x, w, padding=1))
            y = bb.emit(op.add(y, b))
            out = bb.emit_output(op.nn.relu(y))
        bb.emit_func_output(out)
    mod = LegalizeOps()(bb.finalize())
    made = FuseTIR()(grouped(mod, lambda k: False))
    (kernel,) = (f for f in made.functions.values() if isinstance(f, PrimFunc))
    assert kernel.span is FORMULA

    def whole(x, w, b):
        from relaxvm import topi

        return topi.nn.relu(topi.add(topi.nn.conv2d(x, w, 1, 1, 1), b))

    tensors = [te.placeholder(i.dims, F32) for i in infos]
    wanted = te.create_prim_func([*tensors, whole(*tensors)], "int64")
    assert structural_equal(kernel, wanted.without_attr("global_symbol"))


# -- random groups ---------------------------------------------------------------------------------


def grouped(mod, cut):
    """`mod`, its main's bindings outlined in runs; `cut(k)` says whether one begins at the k-th."""
    gv = mod.get_global_var("main")
    main = mod[gv]
    (block,) = main.body.blocks
    runs = [[]]
    for k, b in enumerate(block.bindings):
        if k and cut(k):
            runs.append([])
        runs[-1].append(b)
    needed = {n for n in walk(main.body.body) if isinstance(n, relax.Var)}
    made = mod.clone()
    bindings = []
    for number in reversed(range(len(runs))):
        run = runs[number]
        inner = {b.var for b in run}
        reads = dict.fromkeys(
            n for b in run for n in walk(b.value) if isinstance(n, relax.Var) and n not in inner
        )
        results = [b.var for b in run if b.var in needed]
        needed |= set(reads)
        known = {v for r in reads for v in defined(r.struct_info)}
        used = dict.fromkeys(
            v
            for var in (*reads, *inner)
            for v in tir_vars_in_struct_info(var.struct_info)
            if v not in known
        )
        params = [relax.Var(r.name_hint, r.struct_info) for r in reads]
        args = list(reads)
        if used:
            params.append(relax.Var("s", relax.ShapeStructInfo(list(used))))
            args.append(relax.ShapeExpr(list(used)))
        result = results[0] if len(results) == 1 else relax.Tuple(results)
        out = relax.Var("r", result.struct_info)
        body = [*run, relax.VarBinding(out, result)]
        seq = relax.SeqExpr([relax.DataflowBlock(body)], out)
        seq = substitute_graph(seq, dict(zip(reads, params)))
        fn = copy_with_new_vars(relax.Function(params, seq, attrs={"Primitive": 1}))
        callee = GlobalVar(f"fused{number}", fn.struct_info)
        made[callee] = fn
        call = relax.Call(callee, args)
        if len(results) == 1:
            new = [relax.VarBinding(results[0], call)]
        else:
            t = relax.DataflowVar("t", call.struct_info)
            new = [relax.VarBinding(t, call)]
            new += [relax.VarBinding(v, relax.TupleGetItem(t, i)) for i, v in enumerate(results)]
        bindings = new + bindings
    made[gv] = main.replace(body=main.body.replace(blocks=(relax.DataflowBlock(bindings),)))
    made = IRModule(made.functions)
    assert_well_formed(made)
    return made


def check_random(seed):
    rng = random.Random(seed)
    mod, n = random_model(rng)
    outlined = grouped(mod, lambda k: rng.random() < 0.3)
    made = fused(outlined)
    assert groups_left(made) == [], seed
    numbers = np.random.default_rng(seed)
    for rows in (0, 1, 4) if isinstance(n, tir.Var) else (n,):
        args = [numbers.standard_normal(s).astype(F32) for s in ((rows, 6), (rows, 6), (6, 6))]
        same_results(mod, made, *args)


@pytest.mark.parametrize("seed", range(6))
def test_random_groups_give_the_same_bits(seed):
    check_random(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 250))
def test_many_random_groups_give_the_same_bits(seed):
    check_random(seed)


@pytest.mark.slow
def test_ten_thousand_kernels_in_one_group_and_in_many():
    check_row(10_000, 10_000)
    check_row(10_000, 50)


def test_a_thousand_kernels_in_one_group():
    check_row(1_000, 1_000)


def check_row(count, size):
    x = relax.Var("x", relax.TensorStructInfo((4,), F32))
    kernel = te_add(4)
    last, bindings = x, []
    callee = GlobalVar("add")
    for k in range(count):
        call = relax.call_tir(callee, (last, x), x.struct_info)
        last = (relax.Var if k == count - 1 else relax.DataflowVar)(f"v{k}", x.struct_info)
        bindings.append(relax.VarBinding(last, call))
    main = relax.Function([x], relax.SeqExpr([relax.DataflowBlock(bindings)], last))
    mod = IRModule({callee: kernel, "main": main.with_attr("global_symbol", "main")})
    made = FuseTIR()(grouped(mod, lambda k: k % size == 0))
    # The first group of several is given its first argument once.
    assert len(made) == (2 if size == count else 3)


def te_add(n):
    a, b = (te.placeholder((n,), F32) for _ in range(2))
    out = te.compute((n,), lambda i: a[i] + b[i], name="add")
    return te.create_prim_func([a, b, out], "int64").without_attr("global_symbol")


def test_kernels_are_told_with_the_parameters_that_are_constants_in_all_calls():
    """Those of groups, and those that are in none; nobody is told where nobody listens."""
    weight, other = (relax.const(np.full((4, 4), k, F32)) for k in (1, 2))
    b, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((4, 4), F32))
    with b.function("main", [x]):
        with b.dataflow():
            y = x
            for right in (weight, other):
                y = b.emit(op.nn.relu(b.emit(op.matmul(y, right))))
            y = b.emit(op.add(b.emit(op.matmul(b.emit(op.cumsum(y, 0)), weight)), other))
            y = b.emit_output(b.emit(op.cumsum(y, 0)))
        b.emit_func_output(y)
    mod = relax.transform.FuseOps()(LegalizeOps()(b.get()))
    told = {}
    with relax.transform.kernels_told(
        lambda name, fn, constants: told.update({name: (fn, constants)})
    ):
        fused = FuseTIR()(mod)
    assert {name: constants for name, (_, constants) in told.items()} == {
        "cumsum": (),
        "fused_matmul_relu": (1,),
        "fused_matmul_add": (1, 2),
    }
    assert all(fused[name] is fn for name, (fn, _) in told.items())
    FuseTIR()(mod)
    assert len(told) == 3


def test_a_parameter_that_is_a_constant_in_some_calls_only_is_told_as_none():
    weight = relax.const(np.ones((4, 4), F32))
    b, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((4, 4), F32))
    with b.function("main", [x]):
        with b.dataflow():
            y = x
            for right in (weight, x):
                y = b.emit(op.nn.relu(b.emit(op.matmul(y, right))))
            y = b.emit_output(y)
        b.emit_func_output(y)
    told = []
    with relax.transform.kernels_told(lambda *kernel: told.append(kernel)):
        FuseTIR()(relax.transform.FuseOps()(LegalizeOps()(b.get())))
    assert [(name, constants) for name, _, constants in told] == [("fused_matmul_relu", ())]
