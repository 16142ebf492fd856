"""Random programs of kernels, tuples, branches, calls and closures against a plain evaluation
with numpy.
"""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relax_vm_helpers import (
    Body,
    build_interpreted,
    call_tir,
    elementwise,
    gv,
    module,
    tensor,
)
from vm_modes import MODES

from relaxvm import relax, tir
from relaxvm.ir import PassContext
from relaxvm.relax import (
    Call,
    Constant,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)

KERNELS = {
    "add": (2, lambda a, b: a + b),
    "sub": (2, lambda a, b: a - b),
    "neg": (1, lambda a: a * -1.0),
    "half": (1, lambda a: a * 0.5),
}
CONDITIONS = 3
DISABLED = ("StaticPlanBlockMemory", "KillAfterLastUse", "DeadCodeElimination", "ComputePrimValue")


class Generator:
    """Makes one program from a random number generator."""

    def __init__(self, seed, symbolic):
        self.rng = random.Random(seed)
        self.symbolic = symbolic
        self.budget = self.rng.randint(5, 60)
        self.functions = {}

    def shape(self, n):
        return (n, 2) if self.symbolic else (3, 2)

    def program(self):
        callee = self.function("helper", n_params=2, depth=1)
        self.functions["helper"] = (GlobalVar("helper", callee.struct_info), callee)
        main = self.function("main", n_params=self.rng.randint(1, 3), depth=0)
        kernels = {
            gv(name): elementwise(f, n, ("k", 2) if self.symbolic else (3, 2))
            for name, (n, f) in KERNELS.items()
        }
        return module({"main": main, self.functions["helper"][0]: callee, **kernels})

    def function(self, name, n_params, depth):
        n = tir.Var("n", "int64")
        info = tensor(self.shape(n))
        params = [Var(f"x{i}", info) for i in range(n_params)]
        conds = [Var(f"c{i}", tensor((), "bool")) for i in range(CONDITIONS)] if depth == 0 else []
        body = Body()
        values = self.steps(body, list(params), conds, info, depth)
        result = self.result(values)
        return body.function(
            [*conds, *params], result, name="main" if name == "main" else None, is_pure=False
        )

    def tensors(self, values):
        return [v for v in values if isinstance(v.struct_info, TensorStructInfo)]

    def result(self, values):
        rng = self.rng
        if rng.random() < 0.4:
            return Tuple([self.recent(values) for _ in range(rng.randint(1, 3))])
        return values[-1]

    def recent(self, values):
        """Mostly one of the last few, so that little of the program is dead."""
        return self.rng.choice(values[-3:] if self.rng.random() < 0.8 else values)

    def steps(self, body, values, conds, info, depth):
        rng = self.rng
        for _ in range(rng.randint(1, 30 if depth == 0 else 6)):
            self.budget -= 1
            if self.budget < 0:
                break
            tensors = self.tensors(values)
            kind = rng.choice("kkkkkkkkkkkddtgifplc" if depth < 3 else "kkkkkdtgp")
            if kind == "k":
                name = rng.choice(list(KERNELS))
                args = [self.recent(tensors) for _ in range(KERNELS[name][0])]
                values.append(body(call_tir(gv(name), args, info)))
            elif kind == "t":
                values.append(body(Tuple([rng.choice(values) for _ in range(rng.randint(1, 3))])))
            elif kind == "g":
                tuples = [v for v in values if isinstance(v.struct_info, TupleStructInfo)]
                if tuples:
                    chosen = rng.choice(tuples)
                    index = rng.randrange(len(chosen.struct_info.fields))
                    values.append(body(TupleGetItem(chosen, index)))
            elif kind == "i" and conds:
                branches = []
                for _ in range(2):
                    inner = Body()
                    inside = self.steps(inner, list(values), conds, info, depth + 1)
                    branches.append(inner.seq(self.recent(self.tensors(inside))))
                values.append(body(If(rng.choice(conds), *branches)))
            elif kind == "f" and "helper" in self.functions:
                helper, fn = self.functions["helper"]
                args = [rng.choice(tensors) for _ in fn.params]
                values.append(body(Call(helper, args)))
            elif kind == "p":
                call = Call(ExternFunc("t.keep"), (rng.choice(tensors),), sinfo_args=(info,))
                values.append(body(call))
            elif kind == "d":
                values.append(
                    body(relax.call_dps_packed("t.square", (self.recent(tensors),), info))
                )
            elif kind == "c" and not self.symbolic:
                values.append(body(Constant(np.full((3, 2), rng.randint(-3, 3), "float32"))))
            elif kind == "l":
                y, inner = Var("y", info), Body()
                inside = self.steps(inner, [*values, y], [], info, 3)
                r = inner(call_tir(gv("add"), (y, rng.choice(self.tensors(inside))), info))
                f = body(Function([y], inner.seq(r), is_pure=False), "f")
                values.append(body(Call(f, (rng.choice(tensors),))))
        return values


def evaluate(fn, args, functions):
    """The meaning of a graph function, directly on numpy arrays."""
    env = dict(zip(fn.params, args))

    def leaf(e):
        if isinstance(e, Tuple):
            return tuple(map(leaf, e.fields))
        if isinstance(e, Constant):
            return e.data.numpy()
        return env[e]

    def seq(s):
        for block in s.blocks:
            for b in block.bindings:
                env[b.var] = expr(b.value)
        return leaf(s.body)

    def expr(e):
        if isinstance(e, If):
            return seq(e.true_branch if leaf(e.cond) else e.false_branch)
        if isinstance(e, TupleGetItem):
            return leaf(e.tuple_value)[e.index]
        if isinstance(e, Function):
            return lambda *given: evaluate_closure(e, given)
        if not isinstance(e, Call):
            return leaf(e)
        if isinstance(e.op, ExternFunc):
            return leaf(e.args[0])
        if isinstance(e.op, GlobalVar):
            return evaluate(functions[e.op.name_hint], list(map(leaf, e.args)), functions)
        if isinstance(e.op, Var):
            return env[e.op](*map(leaf, e.args))
        callee, given = e.args[0], leaf(e.args[1])
        if isinstance(callee, ExternFunc):
            return given[0] * given[0]
        return KERNELS[callee.name_hint][1](*given).astype("float32")

    def evaluate_closure(f, given):
        env.update(zip(f.params, given))
        return seq(f.body)

    return seq(fn.body)


def flat(x):
    if isinstance(x, tuple):
        return [leaf for item in x for leaf in flat(item)]
    return [np.asarray(x.numpy()) if hasattr(x, "numpy") else np.asarray(x)]


def square(x, out):
    with np.errstate(all="ignore"):
        np.multiply(x._array, x._array, out=out._array)


def machines(mod, context, native):
    """(VM, what its externs kept) for each way to run `mod`: interpreted, or with native kernels in
    both modes of the VM.
    """
    ex = None
    for mode in MODES if native else (None,):
        kept = []

        def keep(x, kept=kept):
            kept.append((x, x.numpy().copy()))
            return x

        outside = {"t.keep": keep, "t.square": square}
        if native:
            with PassContext(**context):
                ex = ex or relax.build(mod, "llvm")
            yield relax.VirtualMachine(ex, functions=outside, exec_mode=mode), kept
        else:
            yield build_interpreted(mod, outside, context), kept


def check(seed, symbolic, native=False):
    mod = Generator(seed, symbolic).program()
    rng = random.Random(seed + 1)
    context = {"disabled_pass": [name for name in DISABLED if rng.random() < 0.3]}
    vms = list(machines(mod, context, native))
    functions = {g.name_hint: f for g, f in mod.items()}
    main = mod["main"]
    earlier = []
    for _ in range(3):
        rows = rng.randint(0, 4) if symbolic else 3
        conds = [np.array(rng.random() < 0.5) for _ in range(CONDITIONS)]
        arrays = [
            np.array(
                [[rng.randint(-4, 4) for _ in range(2)] for _ in range(rows)], "float32"
            ).reshape(rows, 2)
            for _ in main.params[CONDITIONS:]
        ]
        before = [a.copy() for a in arrays]
        with np.errstate(all="ignore"):
            want = flat(evaluate(main, [*conds, *arrays], functions))
        for vm, _ in vms:
            earlier.append((flat(vm["main"](*conds, *arrays)), want))
        for a, b in zip(arrays, before):
            assert np.array_equal(a, b)
        for results, wanted in earlier:
            assert len(results) == len(wanted)
            for g, w in zip(results, wanted):
                assert np.array_equal(g, w, equal_nan=True)
        if native:
            # Both modes: bit for bit, signs of zeros and the bits of NaNs included.
            (first, _), (second, _) = earlier[-2:]
            assert [g.tobytes() for g in first] == [g.tobytes() for g in second]
    for _, kept in vms:
        assert len(kept) == len(vms[0][1])
        for x, then in kept:
            assert np.array_equal(x.numpy(), then, equal_nan=True)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), symbolic=st.booleans())
def test_random_programs_compute_what_they_say(seed, symbolic):
    check(seed, symbolic)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32), symbolic=st.booleans())
def test_random_programs_with_native_kernels_in_both_modes(seed, symbolic):
    check(seed, symbolic, native=True)


@pytest.mark.slow
@settings(max_examples=150)
@given(seed=st.integers(0, 2**32), symbolic=st.booleans())
def test_many_random_programs_in_both_modes(seed, symbolic):
    check(seed, symbolic, native=True)


@pytest.mark.slow
@settings(max_examples=1500)
@given(seed=st.integers(0, 2**32), symbolic=st.booleans())
def test_many_random_programs_compute_what_they_say(seed, symbolic):
    check(seed, symbolic)
