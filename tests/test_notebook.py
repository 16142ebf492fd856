"""What a notebook shows: scripts in colour, a table of tuning that changes."""

import sys
import types

import pytest

import relaxvm
from relaxvm.base import notebook
from relaxvm.meta_schedule.progress import Progress
from relaxvm.meta_schedule.tasks import Task
from relaxvm.script import tir as T


@T.prim_func
def copy(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            v = T.axis.spatial(4, i)
            B[v] = A[v]


@pytest.fixture
def shown(monkeypatch):
    """What is displayed, as IPython's `display` is called: {display_id: [data]}, in a kernel."""
    places = {}

    def display(data, *, raw, display_id, update):
        assert raw and update == (display_id in places)
        places.setdefault(display_id, []).append(data)

    shell = types.SimpleNamespace(kernel=object())
    ipython, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython, module.display = lambda: shell, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    yield places
    shell.kernel = None
    assert not notebook.is_notebook()


def test_show_displays_the_script(shown, capsys, monkeypatch):
    relaxvm.IRModule({"main": copy}).show()
    copy.show(style="dark")
    pages = [data for (data,) in shown.values()]
    assert len(pages) == 2 and not capsys.readouterr().out
    assert all('class="highlight"' in data["text/html"] for data in pages)
    assert pages[1]["text/plain"] == copy.script()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    copy.show()
    assert "<pre>" in [*shown.values()][-1][0]["text/html"]


def test_progress_is_one_table_that_changes(shown, capsys):
    task = Task("a<b", copy, 1.0, default_seconds=2e-6, best_seconds=1e-6, trials=3)
    with Progress(seconds=10) as tell:
        tell("task", task, "")
        task.state = "tuned"
        tell("final", task, "")
    ((first, *_, last),) = shown.values()
    assert "waiting" in first["text/html"] and "tuned" in last["text/html"]
    assert "a&lt;b" in last["text/html"] and "a<b" in last["text/plain"]
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_text(capsys):
    assert not notebook.is_notebook()
    copy.show()
    assert capsys.readouterr().out.strip() == copy.script().strip()
