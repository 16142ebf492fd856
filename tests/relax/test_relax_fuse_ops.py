"""FuseOps: which kernels become one function, what that looks like, and what stays apart."""

import random

import numpy as np
import pytest
from pass_cases import becomes, model, parse, same_results, stays

from relaxvm import relax, te
from relaxvm.ir import GlobalVar, PassContext, walk
from relaxvm.relax import op, transform
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.tir import Block, PrimFunc

run = transform.FuseOps()
ROW = 'R.Tensor((2, 4), "float32")'


def lowered(text):
    return transform.LegalizeOps()(parse(text))


def fused(text, run=run):
    """The names of the functions called by main, in order, after fusion."""
    mod = run(lowered(text))
    assert_well_formed(mod)
    assert run(mod) is mod
    return called(mod)


def called(mod):
    names = []
    for block in mod["main"].body.blocks:
        for b in block.bindings:
            if isinstance(b.value, relax.Call):
                callee = b.value.op
                callee = callee if hasattr(callee, "name_hint") else b.value.args[0]
                names.append(callee.name_hint)
    return names


KERNELS = """
@T.prim_func(private=True)
def add(x: T.Buffer((2, 4), "float32"), y: T.Buffer((2, 4), "float32"),
        z: T.Buffer((2, 4), "float32")):
    for i, j in T.grid(2, 4):
        with T.block("z"):
            vi, vj = T.axis.remap("SS", [i, j])
            z[vi, vj] = x[vi, vj] + y[vi, vj]

@T.prim_func(private=True)
def twice(x: T.Buffer((2, 4), "float32"), y: T.Buffer((2, 4), "float32")):
    for i, j in T.grid(2, 4):
        with T.block("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, vj] * T.float32(2)
"""


def test_kernels_of_users_become_a_private_function_of_their_calls():
    becomes(
        run,
        KERNELS
        + """
@R.function
def main(x: R.Tensor((2, 4), "float32"), y: R.Tensor((2, 4), "float32")):
    cls = Module
    with R.dataflow():
        a = R.call_tir(cls.add, (x, y), out_sinfo=R.Tensor((2, 4), "float32"))
        b = R.call_tir(cls.twice, (a,), out_sinfo=R.Tensor((2, 4), "float32"))
        R.output(b)
    return b
""",
        KERNELS
        + """
@R.function(private=True)
def fused_add_twice(x: R.Tensor((2, 4), "float32"), y: R.Tensor((2, 4), "float32")):
    R.func_attr({"Primitive": True})
    cls = Module
    with R.dataflow():
        a = R.call_tir(cls.add, (x, y), out_sinfo=R.Tensor((2, 4), "float32"))
        b = R.call_tir(cls.twice, (a,), out_sinfo=R.Tensor((2, 4), "float32"))
        R.output(b)
    return b

@R.function
def main(x: R.Tensor((2, 4), "float32"), y: R.Tensor((2, 4), "float32")):
    cls = Module
    with R.dataflow():
        b = cls.fused_add_twice(x, y)
        R.output(b)
    return b
""",
    )


def test_several_results_are_a_tuple():
    mod = becomes(
        run,
        KERNELS
        + """
@R.function
def main(x: R.Tensor((2, 4), "float32")):
    cls = Module
    with R.dataflow():
        a = R.call_tir(cls.twice, (x,), out_sinfo=R.Tensor((2, 4), "float32"))
        b = R.call_tir(cls.twice, (a,), out_sinfo=R.Tensor((2, 4), "float32"))
        R.output(a, b)
    return (a, b)
""",
        KERNELS
        + """
@R.function(private=True)
def fused_twice(x: R.Tensor((2, 4), "float32")):
    R.func_attr({"Primitive": True})
    cls = Module
    with R.dataflow():
        a = R.call_tir(cls.twice, (x,), out_sinfo=R.Tensor((2, 4), "float32"))
        b = R.call_tir(cls.twice, (a,), out_sinfo=R.Tensor((2, 4), "float32"))
        R.output(a, b)
    return (a, b)

@R.function
def main(x: R.Tensor((2, 4), "float32")):
    cls = Module
    with R.dataflow():
        fused = cls.fused_twice(x)
        a = fused[0]
        b = fused[1]
        R.output(a, b)
    return (a, b)
""",
    )
    x = np.arange(8, dtype="float32").reshape(2, 4)
    same_results(mod, transform.DefuseOps()(mod), x)


def main(body, params=f"x: {ROW}, y: {ROW}"):
    lines = "\n            ".join(body)
    return f"""
    @R.function
    def main({params}):
        with R.dataflow():
            {lines}
            R.output(r)
        return r
    """


GROUPS = {
    "a row of elementwise operators": (
        ["a = R.add(x, y)", "b = R.exp(a)", "r = R.nn.relu(b)"],
        ["fused_add_exp_relu"],
    ),
    "two ways that meet again": (
        ["a = R.sigmoid(x)", "b = R.exp(a)", "c = R.tanh(a)", "r = R.add(b, c)"],
        ["fused_sigmoid_exp_tanh_add"],
    ),
    "a product and what follows": (
        ["a = R.matmul(x, R.permute_dims(y))", "b = R.add(a, a)", "r = R.nn.gelu(b)"],
        ["permute_dims", "fused_matmul_add_gelu"],
    ),
    "of two products each takes what follows it alone, the later their sum": (
        [
            "z = R.permute_dims(y)",
            "a = R.matmul(x, z)",
            "b = R.matmul(y, z)",
            "c = R.exp(a)",
            "r = R.add(c, b)",
        ],
        ["permute_dims", "fused_matmul_exp", "fused_matmul_add"],
    ),
    "a softmax with scale and mask": (
        ["a = R.multiply(x, R.const(0.5))", "b = R.add(a, y)", "r = R.nn.softmax(b)"],
        ["fused_multiply_add_softmax"],
    ),
    "a reduction of what is computed": (
        ["a = R.exp(x)", "b = R.multiply(a, y)", "r = R.sum(b, axis=1)"],
        ["fused_exp_multiply_sum"],
    ),
    "not what is read again and again": (
        ["a = R.exp(R.permute_dims(x))", "r = R.matmul(y, a)"],
        ["fused_permute_dims_exp", "matmul"],
    ),
    "not a small one that would be computed for each row": (
        ["s = R.sum(x, axis=0)", "a = R.exp(s)", "r = R.add(y, a)"],
        ["fused_sum_exp", "add"],
    ),
    "a unit axis more of an argument is a view of it": (
        ["a = R.exp(x)", "b = R.reshape(y, (1, 4))", "r = R.add(a, b)"],
        ["reshape", "fused_exp_add"],
        f'x: {ROW}, y: R.Tensor((4,), "float32")',
    ),
    "a unit axis more of what stands between": (
        ["a = R.exp(x)", "b = R.expand_dims(a, 1)", "r = R.add(b, y)"],
        ["fused_exp_expand_dims_add"],
        f'x: {ROW}, y: R.Tensor((4,), "float32")',
    ),
    "not through what is opaque": (
        ["a = R.exp(x)", "b = R.cumsum(a, axis=0)", "c = R.exp(b)", "r = R.add(a, c)"],
        ["exp", "cumsum", "fused_exp_add"],
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups(name):
    body, names, *params = GROUPS[name]
    assert fused(main(body, *params)) == names


def test_what_is_fused_is_told():
    with PassContext() as ctx:
        run(lowered(main(["a = R.exp(x)", "b = R.tanh(a)", "r = R.cumsum(b, axis=0)"])))
    assert ":10 fused with tanh at :11" in str(ctx.report)


def test_a_value_that_is_read_before_the_last_member_keeps_them_apart():
    body = ["a = R.exp(x)", "b = R.cumsum(a, axis=0)", "c = R.tanh(a)", "r = (b, c)"]
    assert fused(main(body)) == ["exp", "cumsum", "tanh"]
    body = ["a = R.exp(x)", "c = R.tanh(a)", "b = R.cumsum(a, axis=0)", "r = (b, c)"]
    assert fused(main(body)) == ["fused_exp_tanh", "cumsum"]


def test_levels_and_the_most_kernels():
    text = main(["a = R.exp(x)", "b = R.tanh(a)", "r = (a, b)"])
    assert fused(text) == ["fused_exp_tanh"]
    assert fused(text, transform.FuseOps(fuse_opt_level=1)) == ["exp", "tanh"]
    assert fused(text, transform.FuseOps(fuse_opt_level=0)) == ["exp", "tanh"]
    text = main([f"v{i + 1} = R.exp(v{i})" for i in range(5)] + ["r = R.exp(v5)"], f"v0: {ROW}")
    assert fused(text) == ["fused_exp"]
    with PassContext(config={"relax.FuseOps.max_depth": 3}):
        assert fused(text) == ["fused_exp", "fused_exp"]
    with PassContext(config={"relax": {"FuseOps.max_depth": 1}}):
        assert fused(text) == ["exp"] * 6


def test_equal_groups_are_one_function():
    params = f'x: {ROW}, w: R.Tensor((4, 4), "float32")'
    body = []
    for i in range(3):
        body += [f"a{i} = R.matmul({f'r{i - 1}' if i else 'x'}, w)", f"r{i} = R.nn.relu(a{i})"]
    body.append("r = R.nn.softmax(r2)")
    mod = run(lowered(main(body, params)))
    assert called(mod) == ["fused_matmul_relu"] * 3 + ["softmax"]


def test_symbols_that_no_tensor_shows_are_handed_over():
    params = 'x: R.Tensor(("n * 2",), "float32"), s: R.Shape(["n"])'
    body = [
        "a = R.exp(x)",
        "b = R.reshape(a, (n, 2))",
        "c = R.split(x, 2)",
        "r = R.add(c[0], c[0])",
    ]
    mod = run(lowered(main([*body[2:]], params).replace("with", "n = T.int64()\n        with", 1)))
    assert_well_formed(mod)
    callee = next(fn for gv, fn in mod.items() if gv.name_hint.startswith("fused"))
    assert isinstance(callee.params[-1].struct_info, relax.ShapeStructInfo)
    for n in (0, 1, 5):
        x = np.arange(2 * n, dtype="float32")
        same_results(mod, transform.DefuseOps()(mod), x, (n,))


def test_what_is_written_later_is_read_in_time():
    stays(
        run,
        KERNELS
        + """
@T.prim_func(private=True)
def clear(x: T.Buffer((2, 4), "float32")):
    for i, j in T.grid(2, 4):
        with T.block("x"):
            vi, vj = T.axis.remap("SS", [i, j])
            x[vi, vj] = T.float32(0)

@R.function
def main(x: R.Tensor((2, 4), "float32"), y: R.Tensor((2, 4), "float32")):
    cls = Module
    a = R.call_tir(cls.twice, (x,), out_sinfo=R.Tensor((2, 4), "float32"))
    b = R.call_tir_inplace(cls.clear, (x,), inplace_indices=[0],
                           out_sinfo=R.Tensor((2, 4), "float32"))
    c = R.call_tir(cls.add, (a, b), out_sinfo=R.Tensor((2, 4), "float32"))
    return c
""",
    )


def test_kernels_with_a_schedule_or_stated_to_be_opaque_stay_apart():
    text = (
        KERNELS
        + """
@R.function
def main(x: R.Tensor((2, 4), "float32"), y: R.Tensor((2, 4), "float32")):
    cls = Module
    with R.dataflow():
        a = R.call_tir(cls.add, (x, y), out_sinfo=R.Tensor((2, 4), "float32"))
        b = R.call_tir(cls.twice, (a,), out_sinfo=R.Tensor((2, 4), "float32"))
        R.output(b)
    return b
"""
    )
    for old, new in (
        ("):\n    for", '):\n    T.func_attr({"op_pattern": 8})\n    for'),
        ("):\n    for", '):\n    T.func_attr({"tir.is_scheduled": True})\n    for'),
        ('with T.block("y"):', 'with T.block("y"):\n            T.block_attr({"pragma": 1})'),
    ):
        at = text.index(old, text.index("def twice"))
        stays(run, text[:at] + new + text[at + len(old) :])


def test_symbols_of_a_kernels_own_signature_are_no_arguments():
    # A GlobalVar may know the signature of its kernel, in symbols of the kernel's own.
    n, m = te.var("n", "int64"), te.var("m", "int64")
    a = te.placeholder((n,), "float32", "A")
    kernel = te.create_prim_func([a, te.compute((n,), lambda i: -a[i], name="B")])
    own, info = (relax.TensorStructInfo((s,), "float32") for s in (n, m))
    b = relax.BlockBuilder()
    b.add_func(kernel.without_attr("global_symbol"), "negate")
    gv = relax.GlobalVar("negate", relax.FuncStructInfo([own], own))
    x = relax.Var("x", info)
    with b.function("main", [x]):
        with b.dataflow():
            once = b.emit(relax.call_tir(gv, [x], info))
            out = b.emit_output(relax.call_tir(gv, [once], info))
        b.emit_func_output(out)
    fused = transform.FuseOps()(transform.AnnotateTIROpPattern()(b.get()))
    (group,) = (fn for _, fn in fused.items() if fn.get_attr("Primitive"))
    assert len(group.params) == 1


# -- results that nobody reads ---------------------------------------------------------------------


def kernels(mod):
    """{name: (its blocks, its parameters)} of the fused module."""
    fused = transform.FuseTIR()(transform.FuseOps()(transform.LegalizeOps()(mod)))
    assert_well_formed(fused)
    return fused, {
        gv.name_hint: ([n.name_hint for n in walk(fn) if isinstance(n, Block)][1:], len(fn.params))
        for gv, fn in fused.items()
        if isinstance(fn, PrimFunc)
    }


def normalised(e, x, *weights):
    return e(op.nn.batch_norm(x, *weights, axis=1))


def test_statistics_that_nobody_reads_are_not_computed():
    shapes = [(2, 8, 3, 3)] + [(8,)] * 4
    alone = model(lambda e, *args: e(normalised(e, *args)[0]), *shapes, dtype="float32")
    fused, found = kernels(alone)
    ((blocks, params),) = found.values()
    assert not {"new_mean", "new_var"} & {*blocks} and "normalised" in blocks
    assert params == 4  # of which one is the result: the running statistics are not read, either
    rng = np.random.default_rng(0)
    args = [rng.uniform(0.5, 1, s).astype("float32") for s in shapes]
    same_results(alone, fused, *args)
    with_relu = model(
        lambda e, *args: op.nn.relu(e(normalised(e, *args)[0])), *shapes, dtype="float32"
    )
    fused, found = kernels(with_relu)
    ((blocks, params),) = found.values()
    assert not {"new_mean", "new_var"} & {*blocks} and params == 4
    same_results(with_relu, fused, *args)


def test_kernels_whose_results_are_all_read_or_come_together_stay():
    shapes = [(2, 8, 3, 3)] + [(8,)] * 4
    mod = transform.LegalizeOps()(model(normalised, *shapes, dtype="float32"))
    assert transform.FuseOps()(mod) is mod

    def build(e, *args):
        t = normalised(e, *args)
        return [e(t[k]) for k in range(3)]

    mod = model(build, *shapes, dtype="float32")
    mod = transform.LegalizeOps()(mod)
    assert transform.FuseOps()(mod) is mod


@pytest.mark.parametrize("seed", range(20))
def test_random_fields_of_random_tuples_are_what_they_were(seed):
    rng = random.Random(seed)

    def build(e, x, *weights):
        values = [x]
        for _ in range(rng.randint(1, 3)):
            value = rng.choice(values)
            if rng.random() < 0.5:
                t, fields = e(op.split(value, 4, axis=1)), 4
            else:
                t, fields = normalised(e, value, *weights), 3
            read = [e(t[k]) for k in rng.sample(range(fields), rng.randint(1, fields))]
            wide = [v for v in read if v.struct_info.ndim == 4 and int(v.struct_info.dims[1]) == 8]
            values += wide
            values += [e(op.exp(v)) for v in read if rng.random() < 0.5 and v in wide]
            ends.extend(read)
        return [*values[1:], *ends]

    ends = []
    shapes = [(2, 8, 3, 3)] + [(8,)] * 4
    mod = model(build, *shapes, dtype="float32")
    args = [np.random.default_rng(seed).uniform(0.5, 1, s).astype("float32") for s in shapes]
    same_results(mod, kernels(mod)[0], *args)


# -- groups that read the same ---------------------------------------------------------------------


def siblings(*results, shape=(256, 64)):
    """The names of what main calls, where it gives all of these of `x` and `y`."""
    mod = model(lambda e, x, y: [e(r(e, x, y)) for r in results], shape, shape, dtype="float32")
    fused = transform.FuseOps()(transform.LegalizeOps()(mod))
    assert_well_formed(fused)

    args = [np.random.default_rng(k).standard_normal(shape).astype("float32") for k in range(2)]
    same_results(mod, transform.FuseTIR()(fused), *args)
    return called(fused)


def test_elementwise_operators_of_one_large_tensor_are_one_kernel():
    exp, tanh = (lambda e, x, y: op.exp(x)), (lambda e, x, y: op.tanh(x))
    assert siblings(exp, tanh) == ["fused_exp_tanh"]
    assert siblings(exp, tanh, lambda e, x, y: op.add(x, y)) == ["fused_exp_tanh_add"]
    assert siblings(exp, tanh, shape=(4, 4)) == ["exp", "tanh"]
    assert siblings(exp, lambda e, x, y: op.tanh(y)) == ["exp", "tanh"]
    assert siblings(exp, lambda e, x, y: op.sum(x, axis=0)) == ["exp", "sum"]


def test_what_is_read_in_between_keeps_them_apart():
    def sums(e, x, y):
        return op.multiply(x, e(op.sum(e(op.cumsum(e(op.exp(x)), axis=0)), axis=0)))

    names = siblings(lambda e, x, y: op.tanh(x), sums)
    assert sorted(names) == sorted(["fused_tanh_exp", "cumsum", "sum", "multiply"])

    def chain(e, x, y):
        return op.subtract(x, e(op.cumsum(e(op.exp(x)), axis=0)))

    assert siblings(chain) == ["exp", "cumsum", "subtract"]


@pytest.mark.parametrize("seed", range(12))
def test_random_siblings_are_what_they_were(seed):
    rng = random.Random(seed)
    steps = [
        lambda e, a, b: op.exp(a),
        lambda e, a, b: op.add(a, b),
        lambda e, a, b: op.multiply(a, a),
        lambda e, a, b: op.cumsum(a, axis=1),
        lambda e, a, b: op.subtract(a, relax.const(0.5, "float32")),
    ]

    def build(e, x, y):
        values = [x, y]
        for _ in range(rng.randint(3, 9)):
            values.append(e(rng.choice(steps)(e, rng.choice(values), rng.choice(values[-3:]))))
        return values[2:]

    shape = rng.choice([(130, 70), (512, 33), (1, 9000)])
    mod = model(build, shape, shape, dtype="float32")
    args = [np.random.default_rng(k).uniform(0, 0.1, shape).astype("float32") for k in range(2)]
    same_results(mod, kernels(mod)[0], *args)


def test_groups_of_the_same_calls_are_one_function_and_others_are_not():
    """Whatever they are called with: one value twice is another function, and so is what returns
    more.
    """
    b, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((4, 4), "float32"))

    def apart(value):
        return b.emit(op.cumsum(value, 0))

    with b.function("main", [x]):
        with b.dataflow():
            y = x
            for k in range(3):
                weight = relax.const(np.full((4, 4), k, "float32"))
                y = apart(b.emit(op.exp(b.emit(op.add(y, weight)))))
            y = apart(b.emit(op.exp(b.emit(op.add(weight, y)))))
            y = apart(b.emit(op.exp(b.emit(op.add(y, y)))))
            total = b.emit(op.add(y, weight))
            y, z = (b.emit_output(apart(v)) for v in (b.emit(op.exp(total)), total))
        b.emit_func_output(relax.Tuple([y, z]))
    legal = transform.LegalizeOps()(b.get())
    mod = transform.FuseOps()(legal)
    called = [
        (n.op.name_hint, len(n.args))
        for n in walk(mod["main"])
        if isinstance(n, relax.Call) and isinstance(n.op, GlobalVar)
    ]
    assert called == [*[("fused_add_exp", 2)] * 4, ("fused_add_exp1", 1), ("fused_add_exp2", 2)]
    x = np.random.default_rng(0).standard_normal((4, 4)).astype("float32")
    same_results(legal, mod, x)
