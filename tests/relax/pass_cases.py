"""Shared by the tests of graph passes: modules as text before and after, and what a module
computes.
"""

from __future__ import annotations

import textwrap

import numpy as np
from relax_vm_helpers import build_interpreted, value

from relaxvm import relax, tir
from relaxvm.ir import assert_structural_equal
from relaxvm.relax import op
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.interp import Evaluator
from relaxvm.relax.transform import LegalizeOps
from relaxvm.script import from_source

HEAD = """
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
"""


def parse(text):
    """The module whose functions are `text`."""
    mod = from_source(HEAD + textwrap.indent(textwrap.dedent(text), "    "))
    assert_well_formed(mod)
    return mod


def becomes(run, before, after):
    """Check that the pass turns the module `before` into `after`, and leaves that alone."""
    mod = run(parse(before))
    assert_well_formed(mod)
    assert_structural_equal(mod, parse(after))
    assert run(mod) is mod
    return mod


def stays(run, text):
    """Check that the pass gives back the very module."""
    mod = parse(text)
    assert run(mod) is mod
    return mod


def model(build, *shapes, dtype="float64"):
    """A module whose main is ``build(emit, *parameters)``, one expression or a list of them."""
    params = [relax.Var(f"x{i}", relax.TensorStructInfo(s, dtype)) for i, s in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = build(builder.emit, *params)
            out = builder.emit_output(relax.Tuple(out) if isinstance(out, list) else out)
        builder.emit_func_output(out)
    return builder.get()


def means_the_same(mod, new, *args, **sizes):
    """Check that main means the same in both modules, but for rounding: of these arguments, or of
    random ones, whose symbolic sizes are `sizes`.
    """
    assert_well_formed(new)
    rng = np.random.default_rng(0)
    dims = [
        [getattr(d, "value", 0) or sizes.get(str(d), 0) for d in p.struct_info.dims]
        for p in mod["main"].params[len(args) :]
    ]
    args = [*args, *map(rng.standard_normal, dims)]
    left, right = (flat(Evaluator(m)("main", *args)) for m in (mod, new))
    for a, b in zip(left, right, strict=True):
        largest = np.abs(np.nan_to_num(a)).max(initial=1)
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9 * largest)


def results(mod, *args, disabled=(), functions=None):
    """What main gives, kernels interpreted."""
    vm = build_interpreted(mod, functions, {"disabled_pass": list(disabled)})
    return value(vm["main"](*[a.copy() if isinstance(a, np.ndarray) else a for a in args]))


def same_results(a, b, *args, functions=None):
    """Check that both modules give the same bits."""
    left, right = results(a, *args, functions=functions), results(b, *args, functions=functions)
    for x, y in zip(flat(left), flat(right), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        assert np.array_equal(x, y, equal_nan=x.dtype.kind == "f")


def flat(x):
    """The arrays in a result."""
    return [leaf for item in x for leaf in flat(item)] if isinstance(x, tuple) else [np.asarray(x)]


def random_model(rng):
    """Random operators of every kind of kernel, legalised, on x and y of [n, 6], w of [6, 6]; and
    n, a symbol or an int.
    """
    n = tir.Var("n", "int64") if rng.random() < 0.6 else rng.choice((1, 3))
    wide = relax.TensorStructInfo((n, 6), "float32")
    bb = relax.BlockBuilder()
    x, y = relax.Var("x", wide), relax.Var("y", wide)
    w = relax.Var("w", relax.TensorStructInfo((6, 6), "float32"))
    steps = [
        lambda a, b: op.add(a, b),
        lambda a, b: op.multiply(a, op.sigmoid(b)),
        lambda a, b: op.nn.softmax(a),
        lambda a, b: op.subtract(a, op.mean(b, axis=1, keepdims=True)),
        lambda a, b: op.matmul(a, w),
        lambda a, b: op.permute_dims(op.permute_dims(a)),
        lambda a, b: op.reshape(op.reshape(a, (n, 2, 3)), (n, 6)),
        lambda a, b: op.strided_slice(op.concat([a, b], axis=1), [1], [3], [9]),
        lambda a, b: op.take(a, relax.const([5, 4, 3, 2, 1, 0], "int64"), axis=1),
        lambda a, b: op.cumsum(a, axis=1),
        lambda a, b: op.where(op.greater(a, b), a, op.negative(b)),
        lambda a, b: op.maximum(a, relax.const(0.25, "float32")),
        lambda a, b: op.full_like(a, relax.const(0.5, "float32")),
    ]
    with bb.function("main", [x, y, w]):
        with bb.dataflow():
            values = [x, y]
            for _ in range(rng.randint(2, 7)):
                if rng.random() < 0.15:
                    t = bb.emit(op.split(rng.choice(values), 2, axis=1))
                    values.append(bb.emit(op.concat([t[1], t[0]], axis=1)))
                else:
                    a, b = (rng.choice(values[-3:]) for _ in range(2))
                    values.append(bb.emit(bb.normalize(rng.choice(steps)(a, b))))
            out = bb.emit_output(relax.Tuple(values[-2:]))
        bb.emit_func_output(out)
    return LegalizeOps()(bb.finalize()), n
