"""What text of graph functions adds to its module, devices and targets named in text."""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, te
from relaxvm.base import ParseError
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T


def te_add(a, by=1):
    return te.compute(a.shape, lambda *i: a(*i) + by, name="add")


@I.ir_module
class Emits:
    @R.function
    def name(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return x

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        cls = Emits
        w = cls.name(x)
        with R.dataflow():
            y = R.emit_te(te_add, w, by=2)
            z = R.emit_te(te_add, R.multiply(y, y), by=3, primfunc_name_hint="name")
            out = R.emit_te(te_add, z, by=3)
            R.output(out)
        return out


def test_emit_te_adds_loop_functions_under_names_of_their_own():
    names = [gv.name_hint for gv in Emits.get_global_vars()]
    assert names == ["name", "main", "te_add", "name1"]
    assert all("global_symbol" not in Emits[n].attrs for n in names[2:])


def test_emit_te_runs():
    vm = relax.VirtualMachine(relax.build(Emits, "llvm"), tvm.cpu())
    np.testing.assert_array_equal(vm["main"](np.float32([0, 1])).numpy(), np.float32([10, 15]))


def test_what_emit_te_adds_is_printed_and_read_back():
    tvm.ir.assert_structural_equal(from_source(Emits.script()), Emits)


def test_a_function_called_name_is_reached_through_cls():
    callee = Emits["main"].body.blocks[0].bindings[0].value.op
    assert callee.name_hint == "name"


TEXT = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        return R.emit_te({func}, x)
"""


@pytest.mark.parametrize(
    ("func", "message"),
    [
        ("3", "wanted a function"),
        ("print", "unknown name"),
        ("wrong", "KeyError"),
        ("no", "te"),
        ("main", "R.call_tir"),
    ],
)
def test_a_bad_function_for_emit_te_is_an_error_at_its_place(func, message):
    def wrong(x):
        raise KeyError("inside")

    with pytest.raises(ParseError, match=message) as caught:
        from_source(TEXT.format(func=func), {"wrong": wrong, "no": lambda x: 7})
    assert caught.value.lineno == 6


def test_emit_te_outside_a_module_is_refused():
    text = TEXT.replace("@I.ir_module\nclass M:\n", "if True:\n").replace("if True:\n", "")
    text = "\n".join(line[4:] for line in text.splitlines())
    with pytest.raises(ParseError, match="in a class"):
        from_source(text.format(func="f"), {"f": te_add})


def test_a_device_may_be_named_in_the_annotations_of_a_class():
    @I.ir_module
    class Module:
        I.module_global_infos({"vdevice": [I.vdevice("llvm")]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0")):
            return x

    (declared,) = Module.global_infos["vdevice"]
    assert Module["main"].params[0].struct_info.vdevice is declared
    tvm.ir.assert_structural_equal(from_source(Module.script()), Module)


@pytest.mark.parametrize("name", ["", ":", "llvm:x", "llvm:0:global:more", 7])
def test_a_device_name_that_is_none_is_refused(name):
    with pytest.raises(tvm.TVMError, match="vdevice"):
        R.Tensor((4,), "float32", name)


def test_targets_in_attributes_are_printed_and_read_back():
    @T.prim_func
    def f(A: T.Buffer((4,), "float32")):
        T.func_attr({"target": T.target({"kind": "llvm", "mcpu": "haswell", "num-cores": 4})})
        A[0] = T.exp(A[0])

    assert f.attrs["target"] == tvm.target.Target("llvm -mcpu=haswell -num-cores=4")
    tvm.ir.assert_structural_equal(from_source(f.script()), f)
    hosted = f.with_attr("target", tvm.target.Target("llvm", host="llvm -mcpu=haswell"))
    tvm.ir.assert_structural_equal(from_source(hosted.script()), hosted)


def test_an_unknown_target_is_an_error_at_its_place():
    text = "@T.prim_func\ndef f(A: T.Buffer((4,))):\n    T.func_attr({'target': T.target('none')})"
    with pytest.raises(ParseError, match="unknown kind 'none'") as caught:
        from_source(text)
    assert caught.value.lineno == 3
