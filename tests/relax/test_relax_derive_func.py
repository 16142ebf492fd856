"""Opaque functions of which a registered function finds what each call gives."""

import json

import numpy as np
import pytest
from relax_vm_helpers import value

from relaxvm import cpu, register_func, relax
from relaxvm.base import DiagnosticError, LoadError, ParseError, StructInfoError, VMValueError
from relaxvm.ir import load_json, save_json, structural_equal
from relaxvm.relax import FuncStructInfo
from relaxvm.runtime import VirtualMachine
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@register_func("tests.derive_rows")
def rows(call, ctx):
    """As the first argument, with one column."""
    assert isinstance(ctx, relax.BlockBuilder) and isinstance(call, relax.Call)
    info = call.args[0].struct_info
    return relax.TensorStructInfo((info.dims[0], 1), info.dtype)


register_func("tests.derive_nothing", lambda call, ctx: 3)
register_func("tests.derive_badly", lambda call, ctx: call.args[7])


@I.ir_module
class Module:
    @R.function(pure=False)
    def main(
        f: R.Callable(derive_func="tests.derive_rows"),
        x: R.Tensor(("n", 4), "float32"),
    ):
        y = f(x)
        z = R.add(y, y)
        return z


def named(name):
    return FuncStructInfo.opaque_func(derive_func=name)


def test_the_registered_function_says_what_a_call_gives():
    f, x = Module["main"].params
    y = Module["main"].body.blocks[0].bindings[0].var
    assert str(y.struct_info) == 'R.Tensor((n, 1), dtype="float32")'
    assert y.struct_info.dims[0] is x.struct_info.dims[0]
    assert f.struct_info.derive_func.name == "tests.derive_rows" and not f.struct_info.purity
    assert Module["main"].ret_struct_info == y.struct_info
    call = relax.Call(relax.Var("g", named("tests.derive_rows")), [x])
    assert call.struct_info == y.struct_info
    builder = relax.BlockBuilder()
    again = relax.analysis.derive_call_ret_struct_info(f.struct_info, call, builder)
    assert again == y.struct_info


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_a_program_with_one_runs(mode):
    vm = VirtualMachine(relax.build(Module, "llvm"), cpu(), exec_mode=mode)
    x = np.arange(8, dtype="float32").reshape(2, 4)

    def total(a):
        return np.asarray(a.numpy().sum(axis=1, keepdims=True))

    assert value(vm["main"](total, x)).tolist() == [[12], [44]]
    # What it says is checked: the result decides the sizes of what is computed from it.
    with pytest.raises(VMValueError, match="wanted"):
        vm["main"](lambda a: np.zeros((3, 5), "float32"), x)


def test_it_prints_reads_back_saves_and_compares_by_its_name():
    text = Module.script()
    assert 'R.Callable(derive_func="tests.derive_rows", purity=False)' in text
    again = from_source(text, extra_vars={"rows": rows})
    assert structural_equal(again, Module, True) and again.script() == text
    assert structural_equal(load_json(save_json(Module)), Module)
    pure = R.Callable(derive_func="tests.derive_rows", purity=True)
    assert pure.purity and pure != named("tests.derive_rows")
    assert named("a") == named("a") != named("b")
    assert named("a") != FuncStructInfo.opaque_func()


def test_text_runs_no_registered_function_that_it_was_not_given():
    hidden = (
        "@I.ir_module\nclass Module:\n"
        '    f = R.ExternFunc("env.f", R.Callable(derive_func="tests.derive_rows"))\n'
        "    @R.function(pure=False)\n    def main(x: R.Tensor((2,))):\n        return f(x)\n"
    )
    loops = (
        '@T.prim_func\ndef f():\n    T.attr(R.Callable(derive_func="tests.derive_rows"), "k", 0)\n'
        "    T.evaluate(0)\n"
    )
    for text in (Module.script(), hidden, loops):
        with pytest.raises(ParseError, match=r"derive_func='tests\.derive_rows'.* extra_vars"):
            from_source(text)
    unknown = hidden.replace("derive_rows", "derive_nobody")
    with pytest.raises(ParseError, match="nothing is registered"):
        from_source(unknown)


def test_joins_and_checks_know_whether_the_name_is_the_same():
    a, b, opaque = named("a"), named("b"), FuncStructInfo.opaque_func()
    check = relax.analysis.struct_info_base_check
    join = relax.analysis.struct_info_lca
    assert check(a, a) == check(opaque, a) == relax.BaseCheckResult.PASS
    assert check(a, b) == check(a, opaque) == relax.BaseCheckResult.FAIL_L2
    assert join(a, a) is a and join(a, b) == join(a, opaque) == opaque
    assert relax.analysis.erase_to_well_defined(a) is a


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tests.derive_nobody", "nothing is registered under 'tests.derive_nobody'"),
        ("tests.derive_nothing", "wanted struct info, got int"),
        ("tests.derive_badly", "failed: IndexError"),
    ],
)
def test_what_goes_wrong_in_it_is_a_typed_error_with_the_line(name, message):
    with pytest.raises(StructInfoError, match=message):
        relax.Call(relax.Var("f", named(name)), [relax.PrimValue(1)])
    with pytest.raises(DiagnosticError, match=message) as error:

        @R.function(pure=False)
        def main(f: R.Callable(derive_func=name), x: R.Tensor((2,), "float32")):
            return f(x)

    assert "return f(x)" in str(error.value)


def test_it_stands_for_params_and_ret_and_is_a_name():
    tensor = relax.TensorStructInfo((2,))
    with pytest.raises(StructInfoError, match="params and ret cannot be given"):
        R.Callable((tensor,), derive_func="tests.derive_rows")
    with pytest.raises(StructInfoError, match="params and ret cannot be given"):
        FuncStructInfo.opaque_func(ret=tensor, derive_func="tests.derive_rows")
    with pytest.raises(StructInfoError, match="name of a registered function"):
        FuncStructInfo.opaque_func(derive_func=3)
    with pytest.raises(StructInfoError, match="wanted a call"):
        relax.analysis.derive_call_ret_struct_info(named("tests.derive_rows"), [tensor])


def test_signatures_saved_before_there_was_one_load():
    saved = json.loads(save_json(FuncStructInfo.opaque_func()))
    (row,) = (row for row in saved["nodes"] if "Func" in row[0])
    assert row.pop() is None
    assert load_json(json.dumps(saved)) == FuncStructInfo.opaque_func()
    for wrong in (row[:1], [*row, None, None]):
        saved["nodes"][-1] = wrong
        with pytest.raises(LoadError, match="has 4 fields"):
            load_json(json.dumps(saved))
