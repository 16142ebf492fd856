"""Words of the script languages that TVM's programs use: loops with steps, lambdas, macros, and
statements that stand without a name.
"""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm.base import ParseError
from relaxvm.ir import assert_structural_equal
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T
from relaxvm.tir.interp import interpret as run


def read_back(func):
    """`func`, after checking that it prints as text that reads back equal, also when saved."""
    assert_structural_equal(from_source(func.script()), func)
    assert_structural_equal(tvm.ir.load_json(tvm.ir.save_json(func)), func)
    return func


def outcome(func, *arrays):
    """What `func` leaves in copies of `arrays`, the same by the interpreter and compiled."""
    read_back(func)
    meant = [np.array(a) for a in arrays]
    run(func, *meant)
    compiled = [np.array(a) for a in arrays]
    tvm.build(func)(*compiled)
    for a, b in zip(meant, compiled):
        np.testing.assert_array_equal(a, b)
    return meant[-1]


def test_ranges_with_steps_are_python_s():
    @T.prim_func
    def f(A: T.Buffer((40,), "int32")):
        for i in range(1, 10, 3):
            A[i] = i
        for j in range(30, 19, -4):
            A[j] = 100 + j
        for k in T.serial(12, 12, step=5):
            A[k] = 7
        for k in T.vectorized(32, 40, step=2):
            A[k] = k

    wanted = np.zeros(40, "int32")
    for i in range(1, 10, 3):
        wanted[i] = i
    for j in range(30, 19, -4):
        wanted[j] = 100 + j
    wanted[32:40:2] = range(32, 40, 2)
    np.testing.assert_array_equal(outcome(f, np.zeros(40, "int32")), wanted)


def test_a_step_of_symbolic_bounds():
    @T.prim_func
    def f(n: T.int32, A: T.Buffer((20,), "int32")):
        for i in range(n, 17, 4):
            A[i] = 1

    read_back(f)
    for n in (0, 3, 16, 17, 18):
        got, compiled = np.zeros((2, 20), "int32")
        run(f, n, got)
        tvm.build(f)(n, compiled)
        wanted = np.zeros(20, "int32")
        wanted[n:17:4] = 1
        np.testing.assert_array_equal(got, wanted)
        np.testing.assert_array_equal(compiled, wanted)


@pytest.mark.parametrize("step", ["0", "n", "1.5", "True"])
def test_a_step_is_a_constant_number_other_than_zero(step):
    text = (
        "@T.prim_func\ndef f(n: T.int32, A: T.Buffer((20,), 'int32')):\n"
        f"    for i in range(0, 9, {step}):\n        A[i] = 1\n"
    )
    with pytest.raises(ParseError, match="step of a loop") as caught:
        from_source(text)
    assert caught.value.lineno == 3


def test_one_name_stands_for_all_loops_of_a_grid():
    @T.prim_func
    def f(A: T.Buffer((3, 4, 5), "int32")):
        for place in T.grid(3, 4, 5):
            A[place] = place[0] * 100 + place[1] * 10 + place[2]
        for i, *rest in T.grid(3, 2, 2):
            A[i, rest[0], rest[1]] = 7

    @T.prim_func
    def g(A: T.Buffer((3, 4, 5), "int32")):
        for i, j, k in T.grid(3, 4, 5):
            A[i, j, k] = i * 100 + j * 10 + k
        for i, j, k in T.grid(3, 2, 2):
            A[i, j, k] = 7

    assert_structural_equal(f.with_attr("global_symbol", "g"), g)
    outcome(f, np.zeros((3, 4, 5), "int32"))


def test_names_that_a_function_captures_may_be_declared_nonlocal():
    n, dtype = 8, "float32"

    @T.prim_func
    def f(A: T.Buffer((n,), dtype)):
        nonlocal n, dtype
        for i in range(n):
            A[i] = T.Cast(dtype, i)

    assert outcome(f, np.zeros(8, "float32"))[5] == 5
    with pytest.raises(ParseError, match="unknown name m"):
        from_source("@T.prim_func\ndef f(a: T.int32):\n    global m\n    T.evaluate(a)\n")


def test_let_realize_and_launch_thread_stand_without_a_name():
    @T.prim_func
    def f(A: T.Buffer((16,), "int32")):
        x = T.int32()
        y = T.int32()
        B = T.Buffer((4,), "int32")
        with T.LetStmt(3, var=x):
            A[0] = x
        T.LetStmt(4, var=y)
        with T.realize(B[0:4], "global"):
            with T.launch_thread("threadIdx.x", 4):
                B[1] = y
            A[1] = B[1]

    got = np.zeros(16, "int32")
    read_back(f)
    run(f, got)
    assert got[:2].tolist() == [3, 4]


def test_pointers_by_their_older_name():
    @T.prim_func
    def f(a: T.Ptr(T.int32), b: T.Ptr[T.float32], c: T.handle("int32")):
        A = T.decl_buffer((4,), "int32", data=a)
        A[0] = 1

    assert [p.type_annotation.element_type.dtype for p in f.params] == ["int32", "float32", "int32"]
    read_back(f)


def test_a_mask_of_vector_loads_and_stores_leaves_other_lanes_alone():
    @T.prim_func
    def f(A: T.Buffer((6,), "int32"), B: T.Buffer((8,), "int32")):
        B.vstore(
            [T.Ramp(0, 1, 8)],
            A.vload([T.Ramp(0, 1, 8)], predicate=T.Ramp(0, 1, 8) < T.Broadcast(6, 8)) + 1,
            predicate=T.Ramp(0, 1, 8) >= T.Broadcast(2, 8),
        )

    got = outcome(f, np.arange(6, dtype="int32") * 10, np.full(8, -1, "int32"))
    assert got.tolist() == [-1, -1, 21, 31, 41, 51, 1, 1]


def test_stores_by_call_take_a_mask():
    @T.prim_func
    def f(A: T.Buffer((8,), "int32")):
        T.buffer_store(A, T.Broadcast(5, 4), [T.Ramp(2, 1, 4)], T.Ramp(0, 1, 4) < 3)

    assert outcome(f, np.zeros(8, "int32")).tolist() == [0, 0, 5, 5, 5, 0, 0, 0]


def test_a_masked_store_takes_its_value_before_it_writes():
    @T.prim_func
    def f(A: T.Buffer((8,), "int32")):
        A.vstore([T.Ramp(1, 1, 4)], A.vload([T.Ramp(0, 1, 4)]), predicate=T.Ramp(0, 1, 4) != 2)

    assert outcome(f, np.arange(8, dtype="int32")).tolist() == [0, 0, 1, 3, 3, 5, 6, 7]


def test_a_mask_has_the_lanes_of_the_access():
    with pytest.raises(tvm.base.TIRError, match="wanted 4 bools"):
        T.Buffer((8,), "int32").vload([T.Ramp(0, 1, 4)], predicate=T.Ramp(0, 1, 8) < 4)


def test_fixed_point_products_round_half_up():
    rng = np.random.default_rng(3)
    x = rng.integers(-(2**31), 2**31, 500).astype("int32")
    y = rng.integers(2**30, 2**31, 500).astype("int32")

    @T.prim_func
    def f(
        x: T.Buffer((500,), "int32"),
        y: T.Buffer((500,), "int32"),
        out: T.Buffer((2, 500), "int32"),
    ):
        for i in range(500):
            out[0, i] = T.q_multiply_shift(x[i], y[i], 31, -3)
            out[1, i] = T.q_multiply_shift_per_axis(x[i] // 256, y[i], 2, 1, 31, True, False)

    got = outcome(f, x, y, np.zeros((2, 500), "int32"))
    exact = [(int(a) * int(b) + (1 << 33)) >> 34 for a, b in zip(x, y)]
    np.testing.assert_array_equal(got[0], exact)
    exact = [((int(a) // 256 << 2) * int(b) + (1 << 30)) >> 31 for a, b in zip(x, y)]
    np.testing.assert_array_equal(got[1], exact)


def test_intrinsics_of_llvm_by_number():
    @T.prim_func
    def f(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = T.call_llvm_pure_intrin(
                "float32", T.llvm_lookup_intrinsic_id("llvm.sqrt"), T.uint32(1), A[i]
            )

    read_back(f)
    got = np.array([1, 4, 9, 16], "float32")
    tvm.build(f)(got)
    assert got.tolist() == [1, 2, 3, 4]


# -- lambdas


def test_attributes_hold_maps_of_indices_and_reducers():
    @T.prim_func
    def f(A: T.Buffer((4,), "float32")):
        T.func_attr(
            {
                "layout": T.index_map(lambda i, j: (i // 4, j, i % 4)),
                "back": T.index_map(lambda i: i + 1, inverse_index_map=lambda j: j - 1),
                "cut": T.index_map(lambda i: (i // 4, "axis_separator", i % 4)),
                "k": 2,
            }
        )
        with T.attr(
            T.comm_reducer(
                lambda x0, x1, y0, y1: (x0 + y0, T.max(x1, y1)), [T.float32(0), T.float32(-1)]
            ),
            "reduce_scope",
            T.int32(0),
        ):
            A[0] = T.float32(1)
        with T.attr(T.comm_reducer(lambda x, y: x * y, [T.int32(1)]), "reduce_scope", T.int32(0)):
            A[1] = T.float32(1)

    text = f.script()
    assert '"layout": T.index_map(lambda i, j: (i // 4, j, i % 4))' in text
    assert '"back": T.index_map(lambda i: (i + 1,), inverse_index_map=lambda j: (j - 1,)' in text
    assert "\"cut\": T.index_map(lambda i: (i // 4, 'axis_separator', i % 4))" in text
    assert "T.comm_reducer(lambda x, y: x * y, [T.int32(1)])" in text
    read_back(f)


def test_a_layout_is_given_as_a_lambda():
    text = """
@R.function
def f(x: R.Tensor((8, 4), "float32")):
    return R.layout_transform(x, index_map=lambda i, *rest: (i // 4, *rest, i % 4))
"""
    f = from_source(text)
    assert [int(d) for d in f.ret_struct_info.shape] == [2, 4, 4]
    # Its indices are its own: the function does not declare them.
    assert "T.int64()" not in read_back(f).script()


def test_a_lambda_sees_the_names_around_it_and_keeps_python_s_rules_for_arguments():
    text = """
@T.prim_func
def f(A: T.Buffer((8,), "int32")):
    n: T.int32 = 3
    add = T.meta_var(lambda a, b=2, *, c=1: a * 100 + b * 10 + c + n)
    A[0] = add(1)
    A[1] = add(1, 3, c=4)
    A[2] = sorted([3, 1, 2], key=lambda v: -v)[0]
"""
    assert outcome(from_source(text), np.zeros(8, "int32")).tolist()[:3] == [124, 137, 3]
    with pytest.raises(ParseError, match="missing a required argument") as caught:
        from_source(text.replace("add(1)", "add()"))
    assert caught.value.lineno == 6


@pytest.mark.parametrize(
    "use",
    [
        "(lambda f: f(f))(lambda f: f(f))",
        "(lambda f: f(f, 40))(lambda f, n: f(f, n - 1) + f(f, n - 1) if n else 0)",
        "(lambda: 1 .__class__)()",
        "(lambda x: x.__globals__)(lambda: 1)",
        "(lambda x: x.__call__)(lambda: 1)",
        "(lambda x: x._evaluate)(lambda: 1)",
        "[(lambda x: x * 1000)([i] * 1000) for i in range(1000)]",
        "sum([v for v in range(9)], key=lambda: 1)",
        "f'{(lambda: 1):>99999999}'",
    ],
)
def test_lambdas_of_text_reach_and_build_no_more_than_text(use):
    with pytest.raises(ParseError) as caught:
        from_source(f"@T.prim_func\ndef f(A: T.Buffer((8,), 'int32')):\n    A[0] = {use}\n")
    assert caught.value.lineno == 3


def test_a_lambda_is_no_attribute():
    with pytest.raises(ParseError, match="wanted a number, text, IR"):
        from_source(
            "@T.prim_func\ndef f(a: T.int32):\n"
            "    T.func_attr({'a': lambda i: i})\n    T.evaluate(a)\n"
        )


# -- macros


def test_macros_take_defaults_and_any_number_of_arguments():
    @T.macro
    def fill(A, *values, start=0, **more):
        for k in T.meta_var(range(len(values))):
            A[start + k] = values[k]
        A[7] = more["last"]

    @T.macro
    def fill_two(A, first, *rest, start=1, last=9):
        A[start] = first
        A[start + 1] = rest[0] + rest[1]
        A[7] = last

    @T.prim_func
    def f(A: T.Buffer((8,), "int32")):
        fill_two(A, 1, 2, 3)
        fill_two(A, 4, 5, 6, start=3, last=A[1])

    assert outcome(f, np.zeros(8, "int32")).tolist() == [0, 1, 5, 4, 11, 0, 0, 1]


def test_macros_are_methods_too():
    class Tile:
        def __init__(self, size):
            self.size = size

        @T.macro
        def zero(self, A, at=0):
            for i in T.serial(self.size):
                A[at + i] = 0

        @staticmethod
        @T.macro
        def one(A, at):
            A[at] = 1

    two, three = Tile(2), Tile(3)

    @T.prim_func
    def f(A: T.Buffer((8,), "int32")):
        two.zero(A)
        three.zero(A, at=4)
        Tile.one(A, 7)

    assert outcome(f, np.full(8, 5, "int32")).tolist() == [0, 0, 5, 5, 0, 0, 0, 1]


def test_macros_of_the_graph_language_bind_in_place_and_give_a_value():
    @R.macro
    def scaled(x, factor: float = 2.0):
        y = R.multiply(x, R.const(factor, "float32"))
        return R.add(y, x)

    @R.function
    def f(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = scaled(x)
            z = scaled(y, factor=3.0)
            R.output(z)
        return z

    @R.function
    def g(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.multiply(x, R.const(2.0, "float32"))
            y = R.add(a, x)
            b = R.multiply(y, R.const(3.0, "float32"))
            z = R.add(b, y)
            R.output(z)
        return z

    assert_structural_equal(read_back(f).with_attr("global_symbol", "g"), g)


def test_a_macro_in_text_follows_the_rules_of_the_text():
    text = """
@R.macro
def m(x, *more):
    return R.add(x, more[0].{})

@R.function
def f(x: R.Tensor((4,), "float32")):
    return m(x, x)
"""
    with pytest.raises(ParseError, match="text cannot use|private|has no"):
        from_source(text.format("__class__"))
    with pytest.raises(ParseError, match="put in place too often"):
        from_source(text.replace("R.add(x, more[0].{})", "m(x, x)"))


# -- graph functions


def test_a_symbol_of_a_graph_function_is_declared_by_var():
    @R.function
    def f(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(dtype="float32", ndim=2)):
        n = T.Var("n", "int64")
        m = T.Var("m", "int64")
        z = R.match_cast(y, R.Tensor((n, m), "float32"))
        return z

    @R.function
    def g(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(dtype="float32", ndim=2)):
        n = T.int64()
        m = T.int64()
        z = R.match_cast(y, R.Tensor((n, m), "float32"))
        return z

    assert_structural_equal(read_back(f).with_attr("global_symbol", "g"), g)


def test_what_is_read_need_not_be_well_formed():
    text = """
@I.ir_module
class M:
    @T.prim_func
    def f(A: T.Buffer((4,), "int32")):
        n = T.int32()
        A[n] = 1
"""
    with pytest.raises(ParseError, match="not well formed"):
        from_source(text)
    assert "f" in from_source(text, check_well_formed=False)
    alone = "\n".join(line[4:] for line in text.split("\n")[3:])
    with pytest.raises(ParseError, match="not well formed"):
        from_source(alone)
    assert from_source(alone, {}, False).params
    assert I is not None


# -- leaving loops


def searched(A, out):
    """What the loops of `search` mean, in Python."""
    for r in range(len(out)):
        total = 0
        for c in range(1, 8):
            if A[r, c] < 0:
                continue
            if A[r, c] > 90:
                total += 1000
                break
            total += A[r, c]
            for k in range(5):
                if k == A[r, c]:
                    break
                total += 1
        out[r] = total


def test_break_and_continue_leave_the_loop_they_stand_in():
    @T.prim_func
    def search(A: T.Buffer((16, 8), "int32"), out: T.Buffer((16,), "int32")):
        for r in T.parallel(16):
            out[r] = 0
            for c in range(1, 8):
                if A[r, c] < 0:
                    continue
                if A[r, c] > 90:
                    out[r] += 1000
                    break
                out[r] += A[r, c]
                for k in range(5):
                    if k == A[r, c]:
                        T.break_loop()
                    out[r] += 1

    rng = np.random.default_rng(5)
    for _ in range(3):
        A = rng.integers(-20, 100, (16, 8)).astype("int32")
        A[A > 50] %= 7
        A[rng.random((16, 8)) < 0.1] = 95
        wanted = np.zeros(16, "int32")
        searched(A, wanted)
        np.testing.assert_array_equal(outcome(search, A, np.zeros(16, "int32")), wanted)


def test_a_while_that_is_left_does_not_look_at_its_condition_again():
    @T.prim_func
    def f(A: T.Buffer((4,), "int32"), at: T.Buffer((1,), "int32")):
        at[0] = 0
        while A[at[0]] >= 0:
            at[0] += 1
            if at[0] == 4:
                break
            if A[at[0] - 1] == 1:
                continue
            A[at[0] - 1] += 10

    for A in ([3, 1, 2, 0], [3, 1, -1, 0], [-1, 0, 0, 0]):
        values, at = np.array(A, "int32"), np.zeros(1, "int32")
        while values[at[0]] >= 0:
            at[0] += 1
            if at[0] == 4:
                break
            if values[at[0] - 1] == 1:
                continue
            values[at[0] - 1] += 10
        assert outcome(f, np.array(A, "int32"), np.zeros(1, "int32")) == at


def test_statements_after_a_jump_are_skipped_in_every_suite_around_it():
    @T.prim_func
    def f(A: T.Buffer((10,), "int32")):
        for i in range(0, 10, 2):
            x: T.int32 = i + 1
            with T.attr(0, "pragma", 1):
                if x > 2:
                    y: T.int32 = x * 2
                    if y == 14:
                        break
                        A[0] = 99
                    A[i] = y
                A[x] = 7
            A[i] += 1

    wanted = np.zeros(10, "int32")
    for i in range(0, 10, 2):
        x = i + 1
        if x > 2:
            if x * 2 == 14:
                break
            wanted[i] = x * 2
        wanted[x] = 7
        wanted[i] += 1
    np.testing.assert_array_equal(outcome(f, np.zeros(10, "int32")), wanted)


def test_continue_goes_on_in_loops_of_any_kind():
    @T.prim_func
    def f(A: T.Buffer((4, 8), "int32")):
        for i in T.parallel(4):
            for j in T.vectorized(8):
                if j == i:
                    continue
                A[i, j] = 1
        for i, j in T.grid(4, 8):
            if i > j:
                T.continue_loop()
            A[i, j] += 2

    wanted = (1 - np.eye(4, 8, dtype="int32")) + 2 * np.triu(np.ones((4, 8), "int32"))
    np.testing.assert_array_equal(outcome(f, np.zeros((4, 8), "int32")), wanted)


def test_a_function_returns_early():
    @T.prim_func
    def f(n: T.int32, A: T.Buffer((4,), "int32")):
        A[0] = 1
        if n < 0:
            return
        A[1] = 1

    @T.prim_func
    def g(n: T.int32) -> T.int32:
        for i in range(10):
            if i * i > n:
                return i
        return -1

    read_back(f)
    for n, wanted in ((-1, [1, 0, 0, 0]), (1, [1, 1, 0, 0])):
        meant, compiled = np.zeros((2, 4), "int32")
        run(f, n, meant)
        tvm.build(f)(n, compiled)
        assert meant.tolist() == compiled.tolist() == wanted
    assert [int(run(read_back(g), n)) for n in (0, 5, 99)] == [1, 3, -1]
    assert [int(tvm.build(g)(n)) for n in (0, 5, 99)] == [1, 3, -1]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("T.break_loop()", "break stands inside a loop"),
        ("for i in T.parallel(4):\n        break", "one serial loop"),
        ("for i, j in T.grid(4, 4):\n        break", "one serial loop"),
        ("for i in range(4):\n        with T.block('b'):\n            break", "leave a block"),
        (
            "for i in range(4):\n        with T.block('b'):\n            A[0] = 1\n        break",
            "around blocks",
        ),
    ],
)
def test_jumps_that_mean_nothing_are_refused(body, message):
    with pytest.raises(ParseError, match=message) as caught:
        from_source(f"@T.prim_func\ndef f(A: T.Buffer((8,), 'int32')):\n    {body}\n")
    assert caught.value.lineno >= 3


def test_a_module_names_packed_functions():
    @I.ir_module
    class Module:
        scale = R.ExternFunc("test.script_language.scale")

        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32")) -> R.Object:
            cls = Module
            y = cls.scale(x)
            return y

    @tvm.register_func("test.script_language.scale", override=True)
    def scale(x):
        return tvm.nd.array(x.numpy() * 3)

    read_back(Module)
    vm = tvm.relax.VirtualMachine(tvm.relax.build(Module, "llvm"), tvm.cpu())
    assert vm["main"](np.ones(2, "float32")).numpy().tolist() == [3, 3]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("T.realize(A[0:4])", "defined a second time"),
        ("T.realize(A[0:4], 'shared')", "declared in scope 'global'"),
        ("T.LetStmt(3, var=A)", "var is a variable, got Buffer"),
        ("T.LetStmt(3, var=n)", "defined a second time"),
        ("A.vstore([0], 3, predicate=True)", "wanted the access of a vector"),
        ("T.comm_reducer(lambda x: x, [T.int32(0)])", "combiner of 2 arguments, got 1"),
        ("T.comm_reducer(lambda x, y: T.float32(x), [T.int32(0)])", "one value for each"),
        ("T.index_map(3)", "wanted a Python function of indices"),
        ("for i in T.grid(2, 2):\n        T.evaluate(i)", "got tuple"),
    ],
)
def test_words_used_wrongly_are_refused_with_their_line(statement, message):
    with pytest.raises(ParseError, match=message) as caught:
        from_source(
            "@T.prim_func\ndef f(A: T.Buffer((8,), 'int32'), n: T.int32):\n"
            f"    {statement}\n    A[n] = 1\n"
        )
    assert caught.value.lineno in (3, 4)
