"""Passes of users that return broken modules, and the page that shows what each pass changed."""

import html

import pytest

from relaxvm import relax
from relaxvm.base import PassError, VerifyError
from relaxvm.ir import PassContext
from relaxvm.ir.instrument import HTMLDiff
from relaxvm.ir.transform import Sequential, function_pass, module_pass
from relaxvm.relax import BindingBlock, SeqExpr, Var, VarBinding
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.add(x, x)
        z = R.multiply(y, R.const(3.0))
        return z


@function_pass(opt_level=0)
def Harmless(fn, mod, ctx):
    return fn.with_attr("seen", True)


@function_pass(opt_level=0)
def Breaks(fn, mod, ctx):
    """Uses a variable that nothing binds."""
    lost = Var("lost", fn.params[0].struct_info)
    y = Var("y", lost.struct_info)
    return fn.replace(body=SeqExpr((BindingBlock((VarBinding(y, lost),)),), y))


def test_a_pass_that_breaks_a_module_is_named_with_function_and_binding():
    text = Model.script()
    with pytest.raises(VerifyError, match="in main, variable y: lost is not bound") as caught:
        relax.build(Model, "llvm", pipeline=Sequential([Harmless(), Breaks(), Harmless()]))
    assert "found after pass Breaks" in caught.value.__notes__
    assert Model.script() == text


def test_a_pass_alone_is_named_too():
    with pytest.raises(VerifyError) as caught:
        relax.build(Model, "llvm", pipeline=Breaks)
    assert "found after pass Breaks" in caught.value.__notes__


def test_a_pass_that_returns_no_module_is_named():
    @module_pass(opt_level=0)
    def Nothing(mod, ctx):
        return None

    with pytest.raises(PassError, match="pass Nothing returned NoneType"):
        relax.build(Model, "llvm", pipeline=Nothing)


def test_a_page_shows_what_each_pass_changed_from_graph_to_loops(tmp_path):
    page = tmp_path / "new" / "passes.html"
    with PassContext(instruments=[HTMLDiff(page)]):
        relax.build(Model, "llvm")
    text = page.read_text()
    for name in ("LegalizeOps", "CallTIRRewrite", "LowerOpaqueBlock", "graph_to_legal"):
        assert f"{name}" in text
    assert "http" not in text and "<script" not in text
    shown = html.unescape(text)
    assert '-        y: R.Tensor((4,), dtype="float32") = R.add(x, x)' in shown
    assert text.count("<details") == text.count("</details>") > 5


def test_names_and_text_are_escaped_and_a_failing_pass_is_shown(tmp_path):
    @module_pass(opt_level=0, name="<b>&")
    def odd(mod, ctx):
        return Harmless(mod)

    @module_pass(opt_level=0)
    def Fails(mod, ctx):
        raise PassError("no")

    page = tmp_path / "p.html"
    with pytest.raises(PassError), PassContext(instruments=[HTMLDiff(page)]):
        Sequential([odd(), Fails()])(Model)
    text = page.read_text()
    assert "&lt;b&gt;&amp;" in text and "<b>" not in text
    assert "Fails failed" in text
