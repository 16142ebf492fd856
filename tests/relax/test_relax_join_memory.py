"""Parts of concatenations are computed where they lie in the whole."""

from __future__ import annotations

import random

import numpy as np
import pytest

from relaxvm import pipeline, relax, te, tir
from relaxvm.ir import PassContext
from relaxvm.relax import op, transform
from relaxvm.relax.transform.inplace_kernels import inputs_in_a_row
from relaxvm.runtime import VirtualMachine

COPIES_NOTHING, COPIES = "copies nothing", "copies its parts"
INPLACE = "relax.StaticPlanBlockMemory.inplace"


def kernel(shapes, formula, out):
    xs = [te.placeholder(s, "float32", f"x{k}") for k, s in enumerate(shapes)]
    y = te.compute(out, lambda *i: formula(xs, i), "y")
    return te.create_prim_func([*xs, y]).without_attr("global_symbol")


def turned(shape):
    """Reads from the last row to the first: no output can lie over the input."""
    return kernel(
        [shape],
        lambda x, i: x[0](i[0], shape[1] - 1 - i[1], *i[2:]) * 1.25 + 0.5,
        shape,
    )


def clipped(shape):
    """May write over its input."""
    return kernel([shape], lambda x, i: te.max(x[0](*i), tir.const(0.25, "float32")), shape)


def concat(shapes, axis):
    """The loop function that `R.concat` becomes."""
    builder = relax.BlockBuilder()
    xs = [relax.Var(f"x{k}", relax.TensorStructInfo(s, "float32")) for k, s in enumerate(shapes)]
    with builder.function("main", xs):
        builder.emit_func_output(builder.emit(op.concat(xs, axis)))
    mod = transform.LegalizeOps()(builder.finalize())
    (fn,) = (f for f in mod.functions.values() if isinstance(f, tir.PrimFunc))
    return fn.without_attr("global_symbol")


class Row:
    """A function that calls one kernel after the other on tensors of one batch."""

    def __init__(self, *shapes):
        self.builder = relax.BlockBuilder()
        self.args = [
            relax.Var(f"x{k}", relax.TensorStructInfo(s, "float32")) for k, s in enumerate(shapes)
        ]
        self.body = []

    def build(self, body):
        with self.builder.function("main", self.args):
            with self.builder.dataflow():
                result = self.builder.emit_output(body(self, *self.args))
            self.builder.emit_func_output(result)
        return self.builder.finalize()

    def __call__(self, fn, *inputs):
        gv = self.builder.add_func(fn, "k")
        shape = [int(d) for d in fn.buffers[-1].shape]
        call = op.call_tir(gv, inputs, relax.TensorStructInfo(shape, "float32"))
        return self.builder.emit(call)

    def turn(self, x):
        return self(turned([int(d) for d in x.struct_info.dims]), x)

    def clip(self, x):
        return self(clipped([int(d) for d in x.struct_info.dims]), x)

    def join(self, *xs, axis=1):
        return self(concat([[int(d) for d in x.struct_info.dims] for x in xs], axis), *xs)


def told(mod):
    """What is said of the concatenations of a module, sorted, and the module planned."""
    with PassContext(disabled_pass=["FuseOps"]) as ctx:
        planned = pipeline.run_stages(mod)
    said = [d.text for d in ctx.report.of("StaticPlanBlockMemory") if "copies" in d.text]
    return sorted(COPIES_NOTHING if COPIES_NOTHING in text else COPIES for text in said), planned


def agree(mod):
    """Both ways of running give, to the bit, what storages and copies of their own give."""
    rng = np.random.default_rng(0)
    shapes = [[int(d) for d in p.struct_info.dims] for p in mod["main"].params]
    args = [rng.standard_normal(s, "float32") for s in shapes]
    off = {"disabled_pass": ["FuseOps"]}
    with PassContext(**off, config={INPLACE: False}):
        wanted = VirtualMachine(relax.build(mod, "llvm"), exec_mode="bytecode")["main"](*args)
    with PassContext(**off):
        executable = relax.build(mod, "llvm")
    for mode in ("compiled", "bytecode"):
        got = VirtualMachine(executable, exec_mode=mode)["main"](*args)
        assert np.array_equal(got.numpy(), wanted.numpy())
    return executable.memory_plan()["main"].peak


def test_parts_are_computed_in_the_whole():
    def body(r, x, y):
        return r.turn(r.join(r.turn(x), r.turn(y)))

    mod = Row((1, 4, 16), (1, 8, 16)).build(body)
    said, planned = told(mod)
    assert said == [COPIES_NOTHING]
    text = planned["main"].script()
    assert text.count("R.vm.alloc_tensor(storage, R.prim_value(0)") == 2
    assert text.count("R.vm.alloc_tensor(storage, R.prim_value(256)") == 1
    assert "cls.k2(" not in text
    # The whole, and the result.
    assert agree(mod) == 2 * 12 * 16 * 4


def test_a_part_that_is_read_again_stays_readable():
    def body(r, x):
        a = r.turn(x)
        whole = r.join(a, r.turn(a))
        return r.join(r.turn(whole), r.turn(a))

    mod = Row((1, 4, 16)).build(body)
    assert told(mod)[0] == [COPIES, COPIES_NOTHING]
    agree(mod)


def test_what_is_written_over_while_the_other_is_read_is_copied():
    def part(r, x):
        a = r.turn(x)
        whole = r.join(a, r.turn(x))
        b = r.clip(a)  # over a
        return r.turn(r.join(r.turn(whole), b))

    def whole(r, x):
        a = r.turn(x)
        whole = r.join(a, r.turn(x))
        c = r.clip(whole)  # over the whole
        return r.turn(r.join(r.turn(c), r.turn(a)))

    for body in (part, whole):
        mod = Row((1, 4, 16)).build(body)
        assert told(mod)[0] == [COPIES, COPIES_NOTHING]
        agree(mod)


def test_the_whole_is_written_over_when_no_part_is_read():
    mod = Row((1, 4, 16)).build(
        lambda r, x: r.turn(r.clip(r.join(r.clip(r.turn(x)), r.clip(r.turn(x)))))
    )
    assert told(mod)[0] == [COPIES_NOTHING]
    assert agree(mod) == 2 * 8 * 16 * 4


def test_wholes_are_parts_of_others():
    def body(r, x):
        row = r.turn(x)
        for _ in range(12):
            row = r.join(row, r.turn(x))
        return r.turn(row)

    mod = Row((1, 4, 16)).build(body)
    assert told(mod)[0] == [COPIES_NOTHING] * 12
    assert agree(mod) == 2 * 13 * 4 * 16 * 4


@pytest.mark.parametrize(
    "body",
    [
        lambda r, x: r.turn(r.join(x, r.turn(x))),  # an argument
        lambda r, x: r.join(r.turn(x), r.turn(x)),  # a result
        lambda r, x: (lambda a: r.turn(r.join(a, a)))(r.turn(x)),
        lambda r, x: r.turn(r.join(r.turn(x), r.turn(x), axis=2)),  # not in the order of memory
    ],
)
def test_what_others_own_or_is_not_in_a_row_is_copied(body):
    mod = Row((1, 4, 16)).build(body)
    assert COPIES_NOTHING not in told(mod)[0]
    agree(mod)


def test_parts_that_would_not_be_aligned_are_copied():
    mod = Row((1, 4, 5), (1, 2, 5)).build(
        lambda r, x, y: r.turn(r.join(r.turn(x), r.turn(y), r.turn(y)))
    )
    assert told(mod)[0] == [COPIES]
    agree(mod)


@pytest.mark.parametrize(
    ("shapes", "axis", "order"),
    [
        ([(1, 4, 5), (1, 3, 5)], 1, (0, 1)),
        ([(4, 5), (3, 5), (1, 5), (2, 5)], 0, (0, 1, 2, 3)),
        ([(1, 1, 5), (1, 1, 5)], 1, (0, 1)),
        ([(5,), (0,), (3,)], 0, (0, 1, 2)),
        ([(2, 4, 5), (2, 3, 5)], 1, ()),
        ([(1, 4, 5), (1, 4, 6)], 2, ()),
    ],
)
def test_concatenations_along_the_first_long_axis_are_in_a_row(shapes, axis, order):
    assert inputs_in_a_row(concat(shapes, axis)) == order


def test_what_is_almost_a_concatenation_is_not():
    def halves(x, i, first=lambda x, i: x[0](*i), then=lambda x, i: x[1](i[0] - 4, i[1])):
        return tir.if_then_else(i[0] < 4, first(x, i), then(x, i))

    shapes = [(4, 4), (4, 4)]
    assert inputs_in_a_row(kernel(shapes, halves, (8, 4))) == (0, 1)
    for first, then in (
        (lambda x, i: x[0](*i) + 1.0, lambda x, i: x[1](i[0] - 4, i[1])),
        (lambda x, i: x[0](3 - i[0], i[1]), lambda x, i: x[1](i[0] - 4, i[1])),
        (lambda x, i: x[0](*i), lambda x, i: x[1](i[0] - 4, 3 - i[1])),
        (lambda x, i: x[0](*i), lambda x, i: x[0](i[0] - 4, i[1])),
        (lambda x, i: x[0](*i), lambda x, i: x[1](i[1], i[0] - 4)),
    ):
        changed = kernel(shapes, lambda x, i, a=first, b=then: halves(x, i, a, b), (8, 4))
        assert inputs_in_a_row(changed) == ()


@pytest.mark.parametrize("seed", range(12))
def test_random_rows_mean_the_same(seed):
    rng = random.Random(seed)

    def body(r, x, y):
        values = [x, y]
        for _ in range(rng.randint(6, 14)):
            some = [rng.choice(values[-4:]) for _ in range(rng.randint(2, 3))]
            values.append(rng.choice((r.turn, r.clip, r.clip))(some[0]))
            rows = sum(int(v.struct_info.dims[1]) for v in some)
            if rng.random() < 0.5 and rows < 64:
                values.append(r.join(*some))
        return r.turn(r.join(*values[-3:]))

    agree(Row((1, 4, 16), (1, 3, 16)).build(body))
