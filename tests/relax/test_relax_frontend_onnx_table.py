"""The table of ONNX operators: what it says, and that docs/onnx.md has it as it is now."""

import pathlib

import onnx
import pytest
from onnx import helper

from relaxvm.relax.frontend.onnx import table
from relaxvm.relax.frontend.onnx.model import canonical_domain
from relaxvm.relax.frontend.onnx.registry import translations

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "onnx.md"


def test_the_page_has_the_table_as_it_is_now():
    text = PAGE.read_text(encoding="utf-8")
    if f"As of onnx {onnx.__version__}." not in text:
        pytest.skip("the page lists the operators of another version of onnx")
    remedy = "python -m relaxvm.relax.frontend.onnx.table --markdown docs/onnx.md"
    assert table.written_into(text) == text, remedy


def test_every_translation_and_every_schema_has_a_row():
    rows = {(r.domain, r.name): r for r in table.operators()}
    for entry in translations():
        row = rows[entry.domain, entry.name]
        assert entry.since in row.versions or any(v <= entry.since for v in row.versions)
    for schema in onnx.defs.get_all_schemas():
        assert (canonical_domain(schema.domain), schema.name) in rows
    assert rows["", "Conv"].how == "translated"
    assert {r.how for r in rows.values()} <= {"translated", "function", "missing"}


def test_operators_of_a_model_include_those_of_branches_and_functions():
    branch = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["b"])], "branch", [], [onnx.ValueInfoProto(name="b")]
    )
    nodes = [
        helper.make_node("Own", ["x"], ["a"], domain="own"),
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
        helper.make_node("Strange", ["y"], ["z"]),
    ]
    graph = helper.make_graph(nodes, "g", [], [onnx.ValueInfoProto(name="z")])
    own = helper.make_function(
        "own", "Own", ["x"], ["a"], [helper.make_node("Log", ["x"], ["a"])],
        [helper.make_opsetid("", 18)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[own])
    rows = {r.name: (r.how, r.nodes) for r in table.operators_of(model)}
    assert rows == {
        "Own": ("local function", 1),
        "If": ("translated", 1),
        "Exp": ("translated", 2),
        "Log": ("translated", 1),
        "Strange": ("missing", 1),
    }
