"""The Python in README.md and docs/ runs, and prints what the text block after it says."""

import pathlib
import re
import subprocess
import sys

import pytest

from relaxvm import relay
from relaxvm.ir.transform import Pass
from relaxvm.target.c import find_compiler

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [
    "README.md",
    "docs/add_a_builtin.md",
    "docs/add_an_env_function.md",
    "docs/add_a_pass.md",
    "docs/add_a_schedule_rule.md",
    "docs/add_a_target.md",
    "docs/add_an_operator.md",
    "docs/bring_your_own_codegen.md",
    "docs/frontend_nn.md",
    "docs/graph_language.md",
    "docs/graph_passes.md",
    "docs/onnx.md",
    "docs/patterns.md",
    "docs/quantisation.md",
    "docs/relay.md",
    "docs/schedules.md",
    "docs/targets.md",
    "docs/tuning.md",
    *(["docs/c_target.md"] if find_compiler() else []),
]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
_MARK = "---- block"


def _words(line):
    """The arguments of a command, which is not to measure for long."""
    words = line.split()[1:]
    return [*words, "--seconds", "0.05"] if words[0] == "bench" else words


def blocks_of(text):
    """(Python, what it prints or None) for every block of Python in a page; commands in blocks of
    sh are run as well, and must end well.
    """
    found = []
    for language, body in _BLOCK.findall(text):
        if language == "sh":
            lines = [line.partition("#")[0] for line in body.splitlines()]
            lines = [line for line in lines if line.startswith("relaxvm ")]
            found.append(("".join(f"assert main({_words(line)}) == 0\n" for line in lines), None))
        elif language == "python":
            found.append((body, None))
        elif language == "text" and found:
            assert found[-1][1] is None, "one text block after a block of Python"
            found[-1] = (found[-1][0], body)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_a_page_run_and_print_what_they_say(page, tmp_path):
    blocks = blocks_of((ROOT / page).read_text(encoding="utf-8"))
    assert blocks
    program = tmp_path / "page.py"
    program.write_text(
        "from relaxvm.cli import main\n"
        + "".join(f"print({_MARK!r})\n{code}\n" for code, _ in blocks)
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(f"{_MARK}\n")[1:]
    for (code, wanted), got in zip(blocks, printed, strict=True):
        assert wanted is None or got == wanted, f"after\n{code}"


def test_a_page_in_chinese_has_the_blocks_and_tables_of_the_page_in_english():
    for path in (ROOT / "docs").glob("*.zh.md"):
        english = path.with_name(path.name.replace(".zh.md", ".md")).read_text(encoding="utf-8")
        chinese = path.read_text(encoding="utf-8")
        assert _BLOCK.findall(chinese) == _BLOCK.findall(english)
        assert chinese.count("\n|") == english.count("\n|")
        assert chinese.count("\n#") == english.count("\n#")


@pytest.mark.parametrize("page", ["docs/relay.md", "docs/relay.zh.md"])
def test_pages_on_relay_list_its_passes_by_their_levels(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| (.*) \|$", text, re.M)
    listed = {name: int(level) for level, row in rows for name in re.findall(r"`(\w+)`", row)}
    passes = [p for p in vars(relay.transform).values() if isinstance(p, Pass)]
    assert listed == {p.info.name: p.info.opt_level for p in passes}


@pytest.mark.parametrize("page", sorted(p.name for p in (ROOT / "docs").glob("*.md")))
def test_paths_named_in_the_guides_exist(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for path in re.findall(r"`((?:relaxvm|tests|examples|bench|docs)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path


def test_links_of_the_readme_lead_somewhere():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([\w/]+\.md)\)", text)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
