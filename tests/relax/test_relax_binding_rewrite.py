"""`DataflowBlockRewrite`: bindings of one block added, removed and renamed by hand."""

import pytest

from relaxvm import relax
from relaxvm.base import TVMError, VerifyError
from relaxvm.ir import assert_structural_equal
from relaxvm.relax.analysis import name_to_binding, well_formed
from relaxvm.relax.binding_rewrite import DataflowBlockRewrite
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@I.ir_module
class Diamond:
    @R.function
    def main(x: R.Tensor((32, 32), "float32")) -> R.Tensor((32, 32), "float32"):
        with R.dataflow():
            lv0 = R.exp(x)
            lv1 = R.sin(x)
            lv2 = R.add(x, lv0)
            lv3 = R.multiply(lv0, lv0)
            lv4 = R.add(lv2, lv3)
            R.output(lv4)
        return lv4


@I.ir_module
class Unused:
    @R.function
    def main(x: R.Tensor((32, 32), "float32")) -> R.Tensor:
        with R.dataflow():
            lv0 = x
            unused0 = R.call_dps_packed("f", x, R.Tensor((32, 32), "float32"))
            unused1 = R.add(unused0, lv0)
            R.output(lv0)
        return lv0


def rewrite_of(mod):
    fn = mod["main"]
    names = {name: found[0].var for name, found in name_to_binding(fn).items()}
    return DataflowBlockRewrite(fn.body.blocks[0], fn), fn, names


def test_added_bindings_stand_at_the_end_and_the_old_function_stays():
    rwt, fn, names = rewrite_of(Diamond)
    assert rwt.mutated_root_fn() is fn
    rwt.add(name="tmp", expr=R.cos(names["lv1"]), is_dfvar=True)
    rwt.add(fn.params[0])
    new = rwt.mutated_root_fn()
    assert new is not fn and new.body.blocks[0] is rwt.mutated_dfb()
    first, second = rwt.mutated_dfb().bindings[-2:]
    assert isinstance(first.var, relax.DataflowVar) and first.var.name_hint == "tmp"
    assert not isinstance(second.var, relax.DataflowVar)
    assert len(fn.body.blocks[0].bindings) == 5
    assert well_formed(new)
    mod = rwt.mutate_irmodule(Diamond)
    assert mod["main"] is new and Diamond["main"] is fn


def test_uses_are_replaced_and_the_binding_is_then_unused():
    rwt, _, names = rewrite_of(Diamond)
    with pytest.raises(TVMError, match="lv0 is used"):
        rwt.remove_unused(names["lv0"])
    rwt.replace_all_uses(names["lv0"], names["lv1"])
    assert "lv0" in name_to_binding(rwt.mutated_root_fn())
    rwt.remove_unused(names["lv0"])

    @R.function
    def main(x: R.Tensor((32, 32), "float32")) -> R.Tensor((32, 32), "float32"):
        with R.dataflow():
            lv1 = R.sin(x)
            lv2 = R.add(x, lv1)
            lv3 = R.multiply(lv1, lv1)
            lv4 = R.add(lv2, lv3)
            R.output(lv4)
        return lv4

    assert_structural_equal(rwt.mutated_root_fn(), main)


def test_uses_of_a_parameter_and_of_an_output_are_replaced():
    rwt, fn, names = rewrite_of(Diamond)
    rwt.replace_all_uses(names["lv4"], fn.params[0])
    rwt.remove_all_unused()
    assert rwt.mutated_root_fn().body.body is fn.params[0]
    rwt, fn, names = rewrite_of(Diamond)
    rwt.replace_all_uses(fn.params[0], fn.params[0].replace(name_hint="y"))
    assert [p.name_hint for p in rwt.mutated_root_fn().params] == ["x"]


def test_unused_bindings_go_one_by_one_or_all_at_once():
    @R.function
    def main(x: R.Tensor((32, 32), "float32")) -> R.Tensor:
        with R.dataflow():
            lv0 = x
            R.output(lv0)
        return lv0

    one_by_one, _, names = rewrite_of(Unused)
    with pytest.raises(VerifyError, match="unused0 is used"):
        one_by_one.remove_unused(names["unused0"])
    one_by_one.remove_unused(names["unused1"])
    one_by_one.remove_unused(names["unused0"])
    assert_structural_equal(one_by_one.mutated_root_fn(), main)
    at_once, _, _ = rewrite_of(Unused)
    at_once.remove_all_unused()
    assert_structural_equal(at_once.mutated_root_fn(), main)
    at_once.add(relax.const(1.0), "more")
    assert "more" in name_to_binding(at_once.mutated_root_fn())


@pytest.mark.parametrize("all_at_once", [False, True])
def test_an_empty_block_leaves_no_trace(all_at_once):
    @I.ir_module
    class Dead:
        @R.function
        def main(x: R.Tensor((32, 32), "float32")):
            with R.dataflow():
                lv0 = x
                R.output(lv0)
            return x

    rwt, fn, names = rewrite_of(Dead)
    if all_at_once:
        rwt.remove_all_unused()
        with pytest.raises(VerifyError, match="nothing is left of the block"):
            rwt.add(relax.const(1.0))
    else:
        rwt.remove_unused(names["lv0"])
    assert rwt.mutated_root_fn().body.blocks == ()
    assert rwt.mutated_dfb().bindings == ()
    if not all_at_once:
        rwt.add(fn.params[0], "again")
        assert "again" in name_to_binding(rwt.mutated_root_fn())


def test_mistakes_say_what_is_wrong():
    rwt, fn, names = rewrite_of(Diamond)
    stranger = relax.Var("whatever", R.Tensor((32, 32), "float32"))
    with pytest.raises(TVMError, match="does not bind whatever"):
        rwt.remove_unused(stranger)
    rwt.remove_unused(stranger, allow_undef=True)
    assert rwt.mutated_root_fn() is fn
    with pytest.raises(VerifyError, match="the function does not bind whatever"):
        rwt.replace_all_uses(stranger, names["lv0"])
    with pytest.raises(VerifyError, match=r"cannot stand for lv0\n  wanted: .*32, 32"):
        rwt.replace_all_uses(names["lv0"], relax.Var("y", R.Tensor((3,), "float32")))
    with pytest.raises(VerifyError, match="used outside the block, where lv2 is not visible"):
        rwt.replace_all_uses(names["lv4"], names["lv2"])
    with pytest.raises(VerifyError, match="lv0 is bound already"):
        rwt.add_binding(relax.VarBinding(names["lv0"], relax.const(1.0)))
    with pytest.raises(VerifyError, match="no part of the function"):
        DataflowBlockRewrite(Unused["main"].body.blocks[0], fn)
    with pytest.raises(VerifyError, match="the module does not have the function"):
        rwt.mutate_irmodule(Unused)
