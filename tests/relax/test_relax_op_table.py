"""What holds for every operator: whole records, cases in the op table, script text, docs/ops.md."""

from __future__ import annotations

import ast
import inspect
import pathlib

import numpy as np
import pytest
from op_table import (
    FAMILIES,
    Case,
    Instance,
    Sym,
    T,
    cases_of,
    check,
    check_errors,
    check_gradients,
    module_of,
)

from relaxvm import relax
from relaxvm.base import StructInfoError
from relaxvm.ir import Var, assert_structural_equal
from relaxvm.relax import op as R
from relaxvm.relax.op import Missing, missing, op
from relaxvm.relax.op.__main__ import as_markdown, as_text, main, records, rule_for
from relaxvm.relax.op.infer import tensor
from relaxvm.relax.op.lower import elementwise, lower_by_meaning, te_lower
from relaxvm.relax.op.meaning import evaluate
from relaxvm.relax.op.names import ops
from relaxvm.script import from_source

HERE = pathlib.Path(__file__).parent
RULES = ("numpy", "lower", "grad", "layout")


def names(found):
    return ", ".join(sorted(r.short for r in found))


def computing():
    """Operators that become loops; call_tir_with_grad becomes a call_tir, and means what its loop
    function does. Of those on text and on sequences the meaning itself runs.
    """
    loops = [r for r in records() if callable(r.lower) and r.lower is not lower_by_meaning]
    others = "relax.call_tir_with_grad", "relax.sequence."
    return [r for r in loops if not r.name.startswith(others)]


# -- records ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_every_operator_has_the_rule_or_says_why_not(rule):
    silent = [
        r
        for r in records()
        if not (callable(found := rule_for(r, rule)) or isinstance(found, Missing))
    ]
    assert not silent, f"neither a {rule} rule nor missing('why'): {names(silent)}"


def test_every_reason_is_a_reason():
    for r in records():
        for rule in RULES:
            found = rule_for(r, rule)
            if isinstance(found, Missing):
                assert len(found.why.split()) >= 1, f"{r.short}: {rule}"
                assert found.why.strip() == found.why, f"{r.short}: {rule}"


def test_every_operator_that_computes_means_something_in_numpy():
    wrong = [r for r in computing() if not callable(r.numpy)]
    assert not wrong, names(wrong)


def test_every_meaning_takes_the_operators_parameters():
    for r in records():
        if not callable(r.numpy):
            continue
        try:
            signature = inspect.signature(r.numpy)
        except ValueError:
            continue  # a C function of numpy does not say
        # What is left out of a call is only what defaults to None.
        required = [p for p in r.params if p.form and not p.variadic and p.default is not None]
        attrs = {p.name: None for p in r.params if p.form is None}
        signature.bind(*required, **attrs)


def test_every_operator_is_where_script_looks_for_it():
    for r in records():
        found = R
        for part in r.short.split("."):
            found = getattr(found, part)
        assert found is r.function
        assert found.op is r


def test_every_operator_is_documented():
    for r in records():
        assert r.rule.__doc__, r.short
        assert r.function.__doc__, r.short


def test_families_do_not_import_one_another():
    """Rules reach other operators by name (`ops`), so that a family is one file to read."""
    root = pathlib.Path(R.__file__).parent
    shared = {
        "record",
        "infer",
        "lower",
        "families",
        "broadcast",
        "meaning",
        "names",
        "builtin",
        "call",
    }
    families = {r.rule.__module__ for r in records()} - {f"{R.__name__}.{s}" for s in shared}
    for path in root.glob("*.py"):
        if path.stem in ("__init__", "__main__"):
            continue
        for n in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(n, ast.ImportFrom)
                and n.level == 1
                and n.module
                and path.stem not in shared
            ):
                imported = f"{R.__name__}.{n.module}"
                if imported in families:
                    uses = {a.name for a in n.names}
                    made = {r.function.__name__ for r in records() if r.rule.__module__ == imported}
                    assert not uses & made, f"{path.name} imports {uses & made} from {n.module}"


# -- cases -----------------------------------------------------------------------------------------


def test_every_operator_that_computes_has_cases():
    covered = {c.op.op.name for f in FAMILIES for c in cases_of(f)}
    left = [r for r in computing() if r.name not in covered]
    assert not left, f"in no CASES of tests/relax/test_relax_op_*.py: {names(left)}"


@pytest.mark.parametrize("family", FAMILIES)
def test_script_text_of_every_case_reads_back_equal(family):
    group = [Instance(c, c.dtypes[0]) for c in cases_of(family) if not c.slow]
    seen = {}
    for one in group:
        seen.setdefault((one.call.op.name, len(one.call.args)), one)
    if seen:
        mod = module_of(list(seen.values()))
        assert_structural_equal(from_source(mod.script()), mod)


# -- the table itself: a wrong operator is found ---------------------------------------------------


def broken(
    name, *, numpy=np.sin, scalar=lambda v: v, infer=lambda x: x.struct_info, grad=missing("a test")
):
    short = f"test.{name}"

    def rule(x: relax.Expr):
        return infer(x)

    made = op(
        short,
        numpy=numpy,
        lower=te_lower(lambda x: elementwise(x, scalar)),
        grad=grad,
        layout=missing("a test"),
    )
    return made(rule)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"name": "wrong_kernel"}, r"LLVM: 4 of 4 elements"),
        (
            {"name": "wrong_shape", "numpy": lambda x: x[:1]},
            r"inferred: shape \(4,\), the meaning gives \(1,\)",
        ),
        (
            {"name": "wrong_rank", "numpy": lambda x: x.reshape(2, 2)},
            "inferred: 1 dimensions, the meaning gives 2",
        ),
    ],
)
def test_a_wrong_rule_is_found(rules, message):
    with pytest.raises(AssertionError, match=message):
        check([Case(broken(**rules), T(4, low=1, high=2), dtypes=("float32",))])


def test_a_wrong_dtype_is_found():
    bad = broken("wrong_dtype", numpy=lambda x: x.astype("float64"))
    with pytest.raises(StructInfoError, match="its meaning gives float64, wanted float32"):
        check([Case(bad, T(4), dtypes=("float32",))])


def test_a_wrong_gradient_is_found():
    bad = broken("wrong_grad", numpy=np.square, grad=lambda ops, call, y, gy: (gy * call.args[0],))
    with pytest.raises(AssertionError, match="finite differences say"):
        check_gradients([Case(bad, T(4, low=1, high=2), dtypes=("float64",))])


def test_a_missing_error_is_found():
    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        check_errors([(lambda: R.exp(x), "anything")])


# -- meanings of expressions -----------------------------------------------------------------------


def test_a_long_expression_is_evaluated_without_recursion():
    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    e = x
    for _ in range(5000):
        e = e + x
    assert evaluate(e, {x: np.ones(2, "float32")}).tolist() == [5001.0, 5001.0]


def test_shared_parts_are_evaluated_once():
    x = relax.Var("x", relax.TensorStructInfo((1,), "float64"))
    e = x
    for _ in range(60):
        e = e + e
    assert evaluate(e, {x: np.ones(1)})[0] == 2.0**60


def test_evaluation_says_what_it_lacks():
    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    n = Var("n", "int64")
    gv = relax.GlobalVar("f")
    check_errors([
        (lambda: evaluate(R.exp(x)), "no value is given for the variable x"),
        (lambda: evaluate(R.call_tir(gv, (x,), x.struct_info), {x: np.ones(2), gv: None}),
         "relax.call_tir has no meaning in numpy"),
    ])  # fmt: skip
    with pytest.raises(ValueError, match="n"):
        evaluate(R.zeros((n,), "int8"))
    assert evaluate(R.zeros((n,), "int8"), {}, {n: 2}).tolist() == [0, 0]


def test_every_operator_is_found_by_name():
    assert ops.exp is R.exp
    assert ops.inspect.tensor_ndim is R.inspect.tensor_ndim
    with pytest.raises(AttributeError, match="relax.nothing_of_this_name"):
        ops.nothing_of_this_name
    assert Sym("n").name == "n"
    assert tensor(relax.const([1.0]), "x").ndim == 1


# -- the printed table -----------------------------------------------------------------------------


def test_the_table_lists_every_operator():
    lines = as_text().splitlines()
    assert lines[0].split() == ["operator", "pure", "numpy", "lower", "grad", "layout", "decompose"]
    assert [line.split()[0] for line in lines[1:]] == [r.short for r in records()]
    row = next(line.split() for line in lines if line.split()[0] == "exp")
    assert row[1:6] == ["yes"] * 5


def test_markdown_says_why_a_rule_is_missing(tmp_path, capsys):
    path = tmp_path / "ops.md"
    assert main(["--markdown", str(path)]) == 0
    text = path.read_text()
    assert text == as_markdown()
    assert "| `exp(x)` | e to the power x. | yes | yes | yes | yes |" in text
    assert "integers have no gradient" in text
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("operator")


def test_docs_ops_md_is_up_to_date():
    path = HERE.parent.parent / "docs" / "ops.md"
    # The figures below are measured, by bench/accuracy.py.
    tables, _, accuracy = path.read_text(encoding="utf-8").partition("\n## Accuracy\n")
    assert "| `nn.gelu` |" in accuracy
    assert tables == as_markdown(), (
        "run python -m relaxvm.relax.op --markdown and review the difference"
    )
