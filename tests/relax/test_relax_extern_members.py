"""Packed functions as members of a module."""

import numpy as np
import pytest
from relax_vm_helpers import value

from relaxvm import cpu, nd, register_func, relax
from relaxvm.base import ParseError
from relaxvm.ir import load_json, save_json, structural_equal
from relaxvm.pipeline import FUSED_TO_PLANNED, GRAPH_TO_LEGAL, LEGAL_TO_FUSED
from relaxvm.relax.analysis import check_well_formed
from relaxvm.runtime import VirtualMachine
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@register_func("tests.extern_triple")
def triple(x):
    return nd.array(x.numpy() * 3)


@register_func("tests.extern_into")
def into(x, out):
    out.copyfrom(x.numpy() + 1)


VEC = relax.TensorStructInfo((2,), "float32")


@I.ir_module
class Module:
    triple = R.ExternFunc("tests.extern_triple")
    into = R.ExternFunc("tests.extern_into")

    @R.function
    def helper(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = Module
        return R.call_dps_packed(cls.into, (x,), out_sinfo=R.Tensor((2,), "float32"))

    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = Module
        y = cls.triple(x, sinfo_args=R.Tensor((2,), "float32"))
        z = R.call_pure_packed(cls.triple, y, sinfo_args=R.Tensor((2,), "float32"))
        return R.add(cls.helper(z), y)


def run(mod, mode="bytecode"):
    vm = VirtualMachine(relax.build(mod, "llvm"), cpu(), exec_mode=mode)
    return value(vm["main"](np.array([1, 2], "float32"))).tolist()


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_a_member_is_called_by_its_registered_name(mode):
    assert isinstance(Module["triple"], relax.ExternFunc)
    assert [gv.name_hint for gv in Module] == ["triple", "into", "helper", "main"]
    assert run(Module, mode) == [13, 25]


def test_a_module_with_members_prints_reads_back_and_saves():
    text = Module.script()
    assert 'triple = R.ExternFunc("tests.extern_triple")' in text
    assert "cls.triple(x" in text
    again = from_source(text)
    assert structural_equal(again, Module, True) and again.script() == text
    check_well_formed(again)
    assert structural_equal(load_json(save_json(Module)), Module, True)


def test_a_member_added_to_a_module_is_one():
    builder = relax.BlockBuilder()
    x = relax.Var("x", VEC)
    gv = builder.add_func(relax.ExternFunc("tests.extern_triple"), "triple")
    with builder.function("main", [x], pure=False):
        y = builder.match_cast(builder.emit(relax.Call(gv, [x])), VEC)
        builder.emit_func_output(y)
    mod = builder.get()
    assert structural_equal(from_source(mod.script()), mod, True)
    assert run(mod) == [3, 6]
    # Replacing a member changes what is called.
    mod["triple"] = relax.ExternFunc("tests.extern_double")
    register_func("tests.extern_double", lambda x: nd.array(x.numpy() * 2), override=True)
    assert run(mod) == [2, 4]


def test_every_pass_of_a_build_takes_a_module_with_members():
    mod = Module
    for stages in (GRAPH_TO_LEGAL, LEGAL_TO_FUSED, FUSED_TO_PLANNED):
        mod = stages(mod)
        assert isinstance(mod["triple"], relax.ExternFunc)
    assert relax.get_pipeline("default")(Module)["triple"] is Module["triple"]


def test_a_member_of_known_result_prints_with_it():
    text = (
        "@I.ir_module\nclass Module:\n"
        '    f = R.ExternFunc("tests.extern_triple", R.Callable(None, R.Tensor((2,)), True))\n'
        "    @R.function\n    def main(x: R.Tensor((2,))):\n        return Module.f(x)\n"
    )
    mod = from_source(text)
    assert mod["main"].ret_struct_info == relax.TensorStructInfo((2,), "void")
    assert structural_equal(from_source(mod.script()), mod, True)


def test_two_members_of_one_name_are_refused():
    one = '    f = R.ExternFunc("env.f")\n'
    func = "    @R.function\n    def f(x: R.Tensor((2,))):\n        return x\n"
    for body in (one + one, one + func, func + one):
        with pytest.raises(ParseError, match="has a function f already"):
            from_source(f"@I.ir_module\nclass M:\n{body}")
