"""Functions as values, and tuples of anything, in every place a value can stand."""

import functools

import numpy as np
import pytest
from relax_vm_helpers import value

from relaxvm import cpu, relax
from relaxvm.base import DiagnosticError, VMTypeError, VMValueError
from relaxvm.runtime import VirtualMachine, VMClosure
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T


def f32(*values):
    return np.array(values, "float32")


@functools.cache
def built(mod):
    return relax.build(mod, "llvm")


def machine(mod, mode="bytecode", **options):
    return VirtualMachine(built(mod), cpu(), exec_mode=mode, **options)


both = pytest.mark.parametrize("mode", ["bytecode", "compiled"])


@I.ir_module
class Functions:
    @R.function
    def twice(
        g: R.Callable((R.Tensor(("n",), "float32"),), R.Tensor(("n",), "float32")),
        x: R.Tensor(("n",), "float32"),
    ) -> R.Tensor(("n",), "float32"):
        return g(g(x))

    @R.function
    def inc(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return R.add(x, R.const(1.0, "float32"))

    @R.function
    def adder(x: R.Tensor(("n",), "float32")):
        n = T.int64()

        @R.function
        def inner(y: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            return R.add(x, y)

        return inner

    @R.function
    def captures(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
        n = T.int64()

        @R.function
        def one(y: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            return R.add(x, y)

        @R.function
        def two(y: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            return one(one(y))

        t = ((one, two), (x, ()))
        if c:
            g = t[0][0]
        else:
            g = t[0][1]
        return (g(x), g, t[1])

    @R.function
    def sizes(x: R.Tensor(("n", "m"), "float32")):
        n = T.int64()
        m = T.int64()

        @R.function
        def inner(k: R.Prim("int64")) -> R.Shape([n, m, n * m]):
            return R.shape([n, m, n * m])

        return inner

    @R.function
    def local_loop(x: R.Tensor(("n",), "float32"), k: R.Tensor((), "int64")):
        n = T.int64()

        @R.function
        def go(i: R.Tensor((), "int64"), y: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            more = R.greater(i, R.const(0, "int64"))
            if more:
                r = go(R.subtract(i, R.const(1, "int64")), R.add(x, y))
            else:
                r = y
            return r

        return (go(k, x), go)

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        a = Functions.twice(Functions.inc, x)
        h = Functions.adder(x)
        return (a, h(a), Functions.twice(h, x), Functions.inc, h)


@both
def test_functions_are_passed_returned_and_called(mode):
    vm = machine(Functions, mode)
    a, b, c, inc, h = vm["main"](f32(0, 1))
    assert [value(v).tolist() for v in (a, b, c)] == [[2, 3], [2, 4], [0, 3]]
    assert type(h) is VMClosure
    assert value(inc(f32(1, 2, 3))).tolist() == [2, 3, 4]
    assert value(h(f32(10, 10))).tolist() == [10, 11]
    assert value(vm["twice"](h, f32(1, 1))).tolist() == [1, 3]
    assert value(vm["twice"](lambda x: x.numpy() * 3, f32(1, 2))).tolist() == [9, 18]


@both
def test_closures_capture_values_symbols_and_other_closures(mode):
    vm = machine(Functions, mode)
    for condition, times in ((True, 1), (False, 2)):
        got, g, (x, nothing) = vm["captures"](f32(1, 2), np.array(condition))
        assert value(got).tolist() == [1 + times, 2 + 2 * times]
        assert value(g(f32(0, 0))).tolist() == [times, 2 * times]
        assert value(x).tolist() == [1, 2] and nothing == ()
    assert tuple(vm["sizes"](np.zeros((2, 3), "float32"))(0)) == (2, 3, 6)


@both
def test_a_local_function_calls_itself_as_a_loop(mode):
    vm = machine(Functions, mode, max_depth=4)
    got, go = vm["local_loop"](f32(1, 2), np.array(200))
    assert value(got).tolist() == [201, 402]
    assert value(go(np.array(3), f32(0, 0))).tolist() == [3, 6]


@both
def test_a_closure_given_the_wrong_thing_says_so(mode):
    vm = machine(Functions, mode)
    h = vm["adder"](f32(1, 2))
    with pytest.raises(VMValueError, match="wanted n = 3 .*got 2|wanted n = 2 .*got 3"):
        h(f32(1, 2, 3))
    with pytest.raises(VMTypeError, match="takes 1 arguments, got 2"):
        h(f32(1, 2), f32(1, 2))
    with pytest.raises(VMTypeError, match="wanted a function, got int 3"):
        vm["twice"](3, f32(1, 2))


@both
def test_results_of_unknown_functions_are_checked_against_the_declared_signature(mode):
    vm = machine(Functions, mode)
    wrong = [
        (lambda x: x.numpy()[:1], VMValueError, r"result of g: .*wanted n = 2 .*got 1"),
        (lambda x: x.numpy().astype("int8"), VMTypeError, "result of g: .*wanted dtype float32"),
        (lambda x: (x, x), VMTypeError, "result of g: .*wanted a tensor, got a tuple of 2"),
        (lambda x: None, VMTypeError, "result of g: .*wanted a tensor, got None"),
    ]
    for function, error, message in wrong:
        with pytest.raises(error, match=message):
            vm["twice"](function, f32(1, 2))


@both
def test_a_closure_of_the_wrong_size_is_found_when_it_is_called(mode):
    @I.ir_module
    class M:
        @R.function
        def main(
            f: R.Callable((R.Tensor(("n",), "float32"),), R.Tensor(("n",), "float32")),
            x: R.Tensor(("m",), "float32"),
        ) -> R.Tensor(("m",), "float32"):
            return f(x)

    vm, other = machine(M, mode), machine(Functions, mode)
    assert value(vm["main"](other["adder"](f32(1, 2)), f32(3, 3))).tolist() == [4, 5]
    with pytest.raises(VMValueError, match="wanted n = "):
        vm["main"](other["adder"](f32(1, 2)), f32(3, 3, 3))


def test_calling_what_is_no_function_is_refused_when_the_program_is_read():
    with pytest.raises(DiagnosticError, match="is called, but is no function"):

        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            y = R.add(x, x)
            return y(x)


def test_a_known_signature_is_checked_when_the_program_is_read():
    with pytest.raises(DiagnosticError, match="wanted 1 arguments, got 2"):

        @R.function
        def main(
            f: R.Callable((R.Tensor((2,), "float32"),), R.Tensor((2,), "float32")),
            x: R.Tensor((2,), "float32"),
        ):
            return f(x, x)


@I.ir_module
class Tuples:
    @R.function
    def nest(
        t: R.Tuple(
            R.Tuple(), R.Tuple(R.Tensor(("m",), "float32"), R.Tuple(R.Tensor(("n",), "float32")))
        ),
    ):
        a = t[1][1][0]
        return ((), (a, (t[1][0],)), t)

    @R.function
    def branch(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")):
        if c:
            p = ((x, R.concat([x, x])), ())
        else:
            q = R.add(x, x)
            p = ((q, q), ())
        k = T.int64()
        w = R.match_cast(p[0][1], R.Tensor((k,), "float32"))
        return (R.add(w, w), p)

    @R.function
    def give(x: R.Tensor(("n",), "float32")):
        pair = (x, (R.add(x, x), ()))

        @R.function
        def inner(
            t: R.Tuple(R.Tensor(dtype="float32", ndim=1), R.Tuple()),
        ) -> R.Tuple(R.Tensor(dtype="float32", ndim=1), R.Tensor(dtype="float32", ndim=1)):
            return (t[0], pair[1][0])

        return inner((R.concat([x, x]), ()))


@both
def test_tuples_nest_everywhere(mode):
    vm = machine(Tuples, mode)
    nothing, (a, (b,)), t = vm["nest"](((), (f32(3), (f32(1, 2),))))
    assert nothing == () and value(a).tolist() == [1, 2] and value(b).tolist() == [3]
    assert t[0] == () and value(t[1][1][0]).tolist() == [1, 2]
    for condition, wanted in ((True, [2, 4, 2, 4]), (False, [4, 8])):
        w, ((one, two), empty) = vm["branch"](np.array(condition), f32(1, 2))
        assert value(w).tolist() == wanted and empty == ()
        assert value(one).tolist() == ([1, 2] if condition else [2, 4])
        assert len(value(two)) == len(wanted)
    one, two = vm["give"](f32(1, 2))
    assert value(one).tolist() == [1, 2, 1, 2] and value(two).tolist() == [2, 4]


@both
@pytest.mark.parametrize(
    "wrong", [(), ((),), ((), (f32(3), f32(1))), (1, (f32(3), (f32(1),))), [[], [f32(3), 5]]]
)
def test_tuples_of_the_wrong_form_are_refused(mode, wrong):
    with pytest.raises(VMTypeError, match="wanted (a tuple|Tuple|a tensor|Tensor)"):
        machine(Tuples, mode)["nest"](wrong)


@both
def test_branches_of_different_shapes_dtypes_and_ranks_join(mode):
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool"), d: R.Tensor((), "bool")):
            n = T.int64()
            if c:
                if d:
                    y = R.concat([x, x])
                else:
                    y = R.strided_slice(x, axes=[0], begin=[0], end=[1])
                z = R.exp(R.subtract(y, y))
            else:
                if d:
                    z = R.reshape(x, (n, 1))
                else:
                    z = R.astype(x, "int32")
            return z

    assert M["main"].ret_struct_info is relax.TensorStructInfo(None, "", None, -1)
    vm = machine(M, mode)
    wanted = {
        (True, True): [1, 1, 1, 1],
        (True, False): [1],
        (False, True): [[5], [6]],
        (False, False): [5, 6],
    }
    for (c, d), result in wanted.items():
        got = vm["main"](f32(5, 6), np.array(c), np.array(d))
        assert value(got).tolist() == result
        assert str(got.dtype) == ("int32" if not (c or d) else "float32")
