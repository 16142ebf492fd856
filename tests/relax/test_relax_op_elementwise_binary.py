"""Operators of two operands that broadcast."""

from __future__ import annotations

import numpy as np
import pytest
from op_table import (
    ALL,
    BITS,
    FLOATS,
    INTS,
    NUMBERS,
    SIGNED,
    UNSIGNED,
    Case,
    Sym,
    T,
    check,
    check_errors,
    check_gradients,
    legalized,
)

from relaxvm import relax
from relaxvm.base import VMError
from relaxvm.ir import FloatImm, Var, walk
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate, value_dtype
from relaxvm.runtime import VirtualMachine, array, cpu
from relaxvm.tir import PrimFunc

ARITHMETIC = ("add", "subtract", "multiply", "divide", "floor_divide", "floor_mod", "mod")
QUESTIONS = (
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
)


def named(name):
    return getattr(R, name)


SMALL = dict(low=-1, high=1)
CASES = [
    *(Case(named(f), T("n", 4), T(4), dtypes=NUMBERS) for f in ARITHMETIC),
    *(
        Case(named(f), T("n", 1, low=-2, high=2), T(4, low=-2, high=2), dtypes=ALL)
        for f in QUESTIONS
    ),
    *(Case(named(f), T("n", 4), T("n", 1), dtypes=ALL) for f in ("minimum", "maximum")),
    *(
        Case(named(f), T("n", 4), T(4), dtypes=BITS)
        for f in ("bitwise_and", "bitwise_or", "bitwise_xor")
    ),
    *(Case(named(f), T("n", 4), T(4), dtypes=INTS) for f in ("left_shift", "right_shift")),
    Case(R.logaddexp, T("n", 4), T(4)),
    Case(R.power, T("n", 4, low=0.2), T(4)),
    Case(R.power, T(4, 5, low=-3, high=3), T(5, low=-2, high=9), dtypes=SIGNED),
    Case(R.power, T(4, 5, low=0, high=7), T(5, low=0, high=9), dtypes=UNSIGNED),
]
VALUES = np.array([0.0, -0.0, 1.0, -1.5, 0.1, 7.0, np.inf, -np.inf, np.nan, 1e30])
SPECIAL = [
    Case(
        named(f),
        T(10, 1, data=VALUES.reshape(10, 1)),
        T(10, data=VALUES),
        grad=False,
        dtypes=FLOATS,
    )
    for f in (*ARITHMETIC, *QUESTIONS, "minimum", "maximum", "logaddexp", "power")
]
ENDS = [
    Case(
        named(f),
        T(4, 1, data=[[-128], [-1], [0], [127]]),
        T(4, data=[-128, -1, 0, 127]),
        dtypes=("int8",),
        grad=False,
    )
    for f in (*ARITHMETIC, *QUESTIONS, "power", "left_shift", "right_shift", "minimum", "maximum")
]
SHIFTS = [
    Case(
        f,
        T(3, 1, data=[[-5], [1], [127]]),
        T(6, data=[0, 1, 7, 8, 100, -1]),
        dtypes=("int8", "int64"),
    )
    for f in (R.left_shift, R.right_shift)
]
SCALARS = [
    Case(R.add, T("n", 4), 2, dtypes=NUMBERS),
    Case(R.subtract, 3, T("n", 4), dtypes=("float32", "int8", "uint8", "bfloat16")),
    Case(R.multiply, T("n", 4), -0.5),
    Case(R.greater, T("n", 4), 0, dtypes=("float32", "uint8")),
    Case(R.logical_and, T(4), True, dtypes=("bool",)),
    Case(R.power, T("n", 4), 2.0, dtypes=FLOATS),
    *(Case(R.power, T(12, special=True), e, grad=False) for e in (-1.0, 1.0, 2.0, 3.0, 0.5)),
    Case(R.power, T("n", 4), 3, dtypes=INTS),
    Case(R.power, T(4, low=1, high=3), -2, dtypes=SIGNED),
    Case(R.add, T(4), relax.const(3, "int8"), dtypes=("int8",)),
    Case(R.add, T(4), np.int8(3), dtypes=("int8",)),
    Case(R.multiply, T("n", 4), Sym("n"), dtypes=("int64",)),
    Case(R.multiply, T(3), Sym("m", lambda m: relax.PrimValue(m + 1)), dtypes=("int64",)),
    Case(R.add, Sym("n", relax.PrimValue), Sym("m", relax.PrimValue), dtypes=("int64",)),
    Case(R.less, Sym("n", relax.PrimValue), Sym("m", relax.PrimValue), dtypes=("int64",)),
    Case(R.add, T(4), relax.PrimValue(FloatImm("float32", 1.5)), dtypes=("float32",)),
]
SHAPES = [
    Case(R.add, T(), T()),
    Case(R.add, T(), T("n", 2)),
    Case(R.add, T(2, 1, 3), T(4, 1)),
    Case(R.add, T("n", 1, "m"), T("k", 1)),
    Case(R.add, T(0, 3), T(3)),
    Case(R.add, T(1, 3), T(0, 1)),
    Case(R.add, T("zero", 3), T(1)),
    # Which of these is 1 is known when the program runs.
    Case(R.add, T("n", 4), T("one", 4)),
    Case(R.add, T("one", 4), T("n", 4)),
    Case(R.add, T("n", "m"), T("m")),
    Case(R.add, T("n"), T("k"), sizes={"n": 3, "k": 3}),
    Case(R.add, T("n", 2), T(5, 2), sizes={"n": 5}),
    Case(R.add, T("one", "zero"), T("n", "one")),
    Case(R.subtract, T("n", 4, info=lambda d: relax.TensorStructInfo(None, d, ndim=2)), T(4)),
]


def test_every_function_means_what_numpy_says():
    check(CASES, dtypes=("float32", "int8", "uint8", "bool"))


def test_special_values():
    check(SPECIAL, dtypes=("float32",))


def test_ends_of_the_integers():
    check(ENDS, dtypes=("int8",))
    check(SHIFTS, dtypes=("int8",))


def test_scalars_and_shapes():
    check(SCALARS, dtypes=("float32", "int8", "int64", "bool"))
    check(SHAPES, dtypes=("float32",))


@pytest.mark.slow
def test_every_function_on_every_dtype():
    check([*CASES, *SPECIAL, *ENDS, *SHIFTS, *SCALARS, *SHAPES])


def test_gradients():
    away = [
        Case(named(f), T(3, 4), T(3, 4, low=1.2, high=2.9))
        for f in (*ARITHMETIC, "minimum", "maximum", "power")
        if f not in ("floor_divide", "power")
    ]
    check_gradients(
        [
            *away,
            Case(R.logaddexp, T(3, 4), T(3, 4)),
            Case(R.power, T(3, 4, low=0.3), T(3, 4)),
            Case(R.power, T(3, 4, low=0.3), 3.0),
            Case(R.multiply, T(3), 2.0),
        ]
    )


def test_a_constant_of_no_dimensions_is_written_into_the_kernel():
    mod = legalized(Case(R.add, T("n", 4), 2.0), "float32")
    kernels = [fn for fn in mod.functions.values() if isinstance(fn, PrimFunc)]
    assert [len(k.buffer_map) for k in kernels] == [2]
    assert any(isinstance(n, FloatImm) and n.value == 2.0 for n in walk(kernels[0]))


def test_scalar_operands_become_a_scalar():
    n = Var("n", "int64")
    assert R.add(relax.PrimValue(n), relax.PrimValue(1)).struct_info is relax.PrimStructInfo(
        "int64"
    )
    assert R.less(relax.PrimValue(n), relax.PrimValue(1)).struct_info is relax.PrimStructInfo(
        "bool"
    )


def test_shapes_that_do_not_broadcast_stop_the_program_before_a_kernel_runs():
    n, k = Var("n", "int64"), Var("k", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n, 2), "float32"))
    y = relax.Var("y", relax.TensorStructInfo((k, 2), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            out = builder.emit_output(R.add(x, y))
        builder.emit_func_output(out)
    vm = VirtualMachine(relax.build(builder.get()), cpu())
    ones = np.ones((4, 2), "float32")
    assert vm["main"](ones, ones[:1]).numpy().tolist() == (ones + 1).tolist()
    with pytest.raises(VMError, match=r"do not broadcast.*4.*3"):
        vm["main"](ones, ones[:3])


def test_unknown_parts_pass():
    known = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    rank = relax.Var("y", relax.TensorStructInfo(None, "float32", ndim=3))
    nothing = relax.Var("z", relax.TensorStructInfo(None, "void"))
    assert R.add(known, rank).struct_info is relax.TensorStructInfo(None, "float32", ndim=3)
    assert R.add(known, nothing).struct_info is relax.TensorStructInfo(None, "void")
    assert R.less(nothing, nothing).struct_info is relax.TensorStructInfo(None, "bool")
    shape = relax.Var("s", relax.ShapeStructInfo(ndim=2))
    a = relax.Var("a", relax.TensorStructInfo(shape, "float32"))
    assert R.add(a, a).struct_info is a.struct_info


def test_python_operators_build_the_calls_of_their_names():
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    made = {
        "add": x + x,
        "subtract": x - 1,
        "multiply": 2 * x,
        "divide": 1.0 / x,
        "floor_divide": x // 2,
        "mod": x % x,
        "power": x**2,
        "negative": -x,
        "abs": abs(x),
        "less": x < 0,
        "less_equal": x <= 0,
        "greater": x > 0,
        "greater_equal": x >= 0,
        "astype": x.astype("float16"),
    }
    for name, call in made.items():
        assert call.op.short == name
    assert (2 * x).args[1] is x
    assert (1 - x).args[1] is x
    assert x == x
    assert x != relax.Var("x", x.struct_info)


def test_mistakes():
    def var(dtype, *shape):
        return relax.Var("a", relax.TensorStructInfo(shape, dtype))

    f32, i8 = var("float32", 2, 3), var("int8", 2, 3)
    mistakes = [
        (
            lambda: R.add(f32, var("float32", 2)),
            r"dimension -1 is 3 in x1 and 2 in x2; wanted equal ones, or 1",
        ),
        (
            lambda: R.add(f32, i8),
            "the dtypes differ: x1 is float32, x2 is int8; astype one of them",
        ),
        (lambda: R.add(f32, relax.PrimValue(1)), "x1 is float32, x2 is int64"),
        (lambda: R.add(i8, 1.5), "the float 1.5 beside int8"),
        (lambda: R.add(i8, 300), "300 does not fit int8: its range is -128 to 127"),
        (lambda: R.add(var("uint8", 2), -1), "-1 does not fit uint8"),
        (lambda: R.logical_and(var("bool", 2), 1), "beside bool; write True or False"),
        (lambda: R.add(var("bool", 2), var("bool", 2)), "wanted a number's dtype .bool is none"),
        (lambda: R.bitwise_and(f32, f32), "x1: wanted an integer dtype or bool, got float32"),
        (lambda: R.left_shift(var("bool", 2), var("bool", 2)), "wanted an integer dtype, got bool"),
        (lambda: R.logaddexp(i8, i8), "wanted a floating dtype, got int8"),
        (lambda: R.add(f32, relax.ShapeExpr((2, 3))), r"x2: wanted a tensor, got R.Shape"),
        (lambda: R.add(f32, "x"), "x2: wanted a tensor"),
        (lambda: R.add(f32), "missing a required argument"),
        (lambda: f32 + object(), "wanted a relax expression, got object"),
    ]
    check_errors(mistakes)


MIXED = [
    ("add", "float32", "bool"),
    ("add", "bool", "float32"),
    ("add", "bfloat16", "bool"),
    ("multiply", "int8", "bool"),
    ("maximum", "bool", "int64"),
    ("floor_divide", "float16", "bool"),
    ("bitwise_and", "int32", "bool"),
    ("equal", "int64", "uint8"),
    ("less", "int8", "uint8"),
    ("less", "float32", "int32"),
    ("less", "bfloat16", "int32"),
    ("logical_and", "float16", "int32"),
]


@pytest.mark.parametrize(("name", "first", "second"), MIXED)
def test_operands_of_two_dtypes_are_computed_in_one_that_holds_both(name, first, second):
    rng = np.random.default_rng(3)
    variables, arrays = [], []
    for dtype in (first, second):
        variables.append(relax.Var("x", relax.TensorStructInfo((2, 3), dtype)))
        values = rng.integers(-3, 4, (2, 3))
        values = abs(values) if dtype.startswith("u") else values
        arrays.append((values > 0) if dtype == "bool" else values.astype(value_dtype(dtype)))
    call = getattr(R, name)(*variables)
    compares = name in QUESTIONS
    assert call.struct_info.dtype == ("bool" if compares else first)
    want = evaluate(call, dict(zip(variables, arrays)))
    both = np.promote_types(*(a.dtype for a in arrays))
    if not compares and name not in ("floor_divide",):
        function = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum}.get(
            name, np.bitwise_and
        )
        plain = function(*(a.astype(both) for a in arrays))
        np.testing.assert_array_equal(want, plain.astype(want.dtype))
    b = relax.BlockBuilder()
    with b.function("main", variables):
        b.emit_func_output(b.emit(call))
    given = [array(a, dtype=d) for a, d in zip(arrays, (first, second))]
    for mode in ("bytecode", "compiled"):
        with pytest.warns(UserWarning, match=f"{name}: x1 is {first} and x2 is {second}"):
            program = relax.build(b.get(), exec_mode=mode)
        got = VirtualMachine(program, cpu())["main"](*given)
        values = np.array(got.tolist(), want.dtype)
        np.testing.assert_array_equal(values, want)


def test_an_operand_of_unknown_dtype_makes_the_result_unknown():
    known, unknown = (
        relax.Var("x", relax.TensorStructInfo((2,), dtype)) for dtype in ("float32", "void")
    )
    for a, b in ((known, unknown), (unknown, known), (unknown, unknown)):
        assert R.add(a, b).struct_info is relax.TensorStructInfo((2,), "void")
        assert R.less(a, b).struct_info is relax.TensorStructInfo((2,), "bool")
