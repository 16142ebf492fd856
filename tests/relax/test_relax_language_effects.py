"""Effects keep their order: prints, asserts and impure calls; what purity tracking allows."""

import numpy as np
import pytest
from relax_vm_helpers import count_calls, lowered

from relaxvm import cpu, relax
from relaxvm.base import DiagnosticError
from relaxvm.ir import IRModule, PassContext
from relaxvm.relax.transform import RemovePurityChecking
from relaxvm.runtime import VirtualMachine, VMAssertionError
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

both = pytest.mark.parametrize("mode", ["bytecode", "compiled"])


def f32(*values):
    return np.array(values, "float32")


@I.ir_module
class Noisy:
    @R.function(pure=False)
    def shout(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        _ = R.call_packed("say", R.str("shout"), sinfo_args=R.Object)
        return R.add(x, x)

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool"), k: R.Prim(value="i")):
        i = T.int64()
        _ = R.print(x, format="x is {}")
        _1 = R.call_packed("say", R.str("one"), sinfo_args=R.Object)
        _2 = R.assert_op(c, [x], format="x was {}")
        with R.dataflow():
            unused = R.exp(x)
            y = R.multiply(x, R.const(3.0, "float32"))
            R.output(y)
        _3 = R.print(R.prim_value(i * 2), format="i doubled is {}")
        z = Noisy.shout(y)
        if c:
            _4 = R.call_packed("say", R.str("branch"), sinfo_args=R.Object)
            w = R.add(z, x)
        else:
            w = z
        _5 = R.call_packed("say", R.str("last"), sinfo_args=R.Object)
        _6 = R.print(format="done")
        return w


@both
@pytest.mark.parametrize("level", [0, 2, 4])
def test_effects_happen_in_the_order_they_are_written(mode, level, capsys):
    with PassContext(opt_level=level):
        ex = relax.build(Noisy, "llvm")
    vm = VirtualMachine(ex, cpu(), functions={"say": print}, exec_mode=mode)
    got = vm["main"](f32(1, 2), np.array(True), 21)
    assert got.numpy().tolist() == [7, 14]
    wanted = ["x is [1. 2.]", "one", "i doubled is 42", "shout", "branch", "last", "done"]
    assert capsys.readouterr().out.splitlines() == wanted
    with pytest.raises(VMAssertionError, match=r"x was \[1\. 2\.\]"):
        vm["main"](f32(1, 2), np.array(False), 21)
    assert capsys.readouterr().out.splitlines() == ["x is [1. 2.]", "one"]


def test_an_impure_call_in_a_dataflow_block_is_refused_by_name_and_line():
    with pytest.raises(DiagnosticError, match=r"env\.noisy may have effects(?s:.)*y = R\.call"):

        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                y = R.call_packed("env.noisy", x, sinfo_args=R.Tensor((4,), "float32"))
                R.output(y)
            return y


def test_an_impure_call_in_a_pure_function_is_refused():
    with pytest.raises(DiagnosticError, match="pure function main"):

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = R.call_packed("env.noisy", x, sinfo_args=R.Tensor((4,), "float32"))
            return y


def test_the_signature_of_a_function_says_whether_it_has_effects():
    assert not Noisy["main"].struct_info.purity and not Noisy["shout"].is_pure

    @R.function
    def quiet(x: R.Tensor((4,), "float32")):
        return x

    assert quiet.struct_info.purity
    with pytest.raises(DiagnosticError, match="shout may have effects"):

        @I.ir_module
        class M:
            @R.function(pure=False)
            def shout(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                _ = R.print(x)
                return x

            @R.function
            def main(x: R.Tensor((4,), "float32")):
                return M.shout(x)


def test_force_pure_accepts_effects_that_the_user_answers_for(capsys):
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        R.func_attr({"relax.force_pure": True})
        _ = R.print(x, format="seen {}")
        return x

    vm = VirtualMachine(relax.build(main, "llvm"), cpu())
    vm["main"](f32(1, 2))
    assert capsys.readouterr().out == "seen [1. 2.]\n"


def test_a_direct_call_of_a_loop_function_gives_its_return_type():
    @I.ir_module
    class M:
        @T.prim_func
        def add_one(a: T.Buffer((2,), "float32")):
            for i in range(2):
                with T.block("b"):
                    v = T.axis.spatial(2, i)
                    a[v] = a[v] + 1.0

        @T.prim_func(private=True)
        def twice(n: T.int64) -> T.int64:
            T.ret(n * 2)

        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32"), n: R.Prim("int64")):
            a = M.add_one(x)
            return M.twice(n)

        @R.function
        def pure(n: R.Prim("int64")):
            with R.dataflow():
                m = M.twice(n)
                R.output(m)
            return m

    called = [b.value for b in M["main"].body.blocks[0].bindings]
    assert [c.struct_info for c in called] == [R.Tuple(()), R.Prim("int64")]
    assert M["main"].ret_struct_info == R.Prim("int64")
    assert relax.analysis.well_formed(M)
    assert [relax.analysis.is_pure_call(c, M) for c in called] == [False, True]
    b = relax.BlockBuilder(M)
    with b.function("other", [n := relax.Var("n", R.Prim("int64"))]):
        got = b.emit(M.get_global_var("twice")(n))
        assert got.struct_info == R.Prim("int64")
        b.emit_func_output(got)


def test_a_closure_with_effects_is_called_each_time():
    @I.ir_module
    class M:
        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32")):
            @R.function(pure=False)
            def inner(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                _ = R.call_packed("say", y, sinfo_args=R.Object)
                return R.add(x, y)

            a = inner(x)
            b = inner(a)
            unused = inner(b)
            return b

    for mode in ("bytecode", "compiled"):
        seen = []
        vm = VirtualMachine(
            relax.build(M, "llvm"), cpu(), functions={"say": seen.append}, exec_mode=mode
        )
        assert vm["main"](f32(1, 2)).numpy().tolist() == [3, 6]
        assert [s.numpy().tolist() for s in seen] == [[1, 2], [2, 4], [3, 6]]


def test_remove_purity_checking_leaves_plain_calls():
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        a = R.call_pure_packed("f", x, sinfo_args=R.Tensor((2,), "float32"))
        b = R.call_inplace_packed("g", a, inplace_indices=0, sinfo_args=R.Tensor((2,), "float32"))
        return b

    mod = IRModule.from_expr(main)
    plain = RemovePurityChecking()(mod)["main"]
    assert plain.attrs["relax.force_pure"]
    assert count_calls(plain) == {"f": 1, "g": 1}
    assert RemovePurityChecking()(RemovePurityChecking()(mod))["main"] is not None
    assert count_calls(lowered(mod)["main"])["f"] == 1
