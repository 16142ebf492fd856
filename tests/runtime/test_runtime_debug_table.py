"""Where instructions come from: in programs, files, listings and errors."""

import pathlib
import threading

import msgpack
import pytest

from relaxvm.base import UNKNOWN, LoadError, Span, VerifyError, VMValueError
from relaxvm.runtime import ExecBuilder, VirtualMachine, load
from relaxvm.runtime.debug_table import DebugTable, debug_table, source_text

GOLDEN = pathlib.Path(__file__).parent / "golden"
CONV, RELU = Span(name="ONNX node conv1 (Conv)"), Span(name="ONNX node relu1 (Relu)")
LINE = Span("model.py", 12, 5)


def program():
    b = ExecBuilder()
    with b.function("main", 1, ["x"]):
        b.source = Span.merge(CONV, RELU)
        b.emit_call("env.conv_relu", [b.r(0)], b.r(1))
        b.source = LINE
        b.emit_call("helper", [b.r(1)], b.r(2))
        b.source = UNKNOWN
        b.emit_ret(b.r(2))
    with b.function("helper", 1, ["x"]):
        b.source = CONV
        b.emit_call("env.other", [b.r(0)], b.r(1))
        b.source = UNKNOWN
        b.emit_ret(b.r(1))
    return b.get()


def raising(x):
    raise ValueError("mine")


def notes_of(ex, **functions):
    granted = {"env.conv_relu": lambda x: x, "env.other": lambda x: x, **functions}
    with pytest.raises(ValueError, match="mine") as caught:
        VirtualMachine(ex, functions=granted)["main"](1)
    return caught.value.__notes__


def test_an_instruction_knows_where_it_comes_from():
    ex = program()
    assert [p.name for p in ex.source_of("main", 0).parts] == [CONV.name, RELU.name]
    assert str(ex.source_of("main", 1)) == "model.py:12:5"
    assert ex.source_of("main", 2) is UNKNOWN
    assert str(ex.source_of("helper", 0)) == CONV.name


def test_asking_for_what_is_not_there_is_refused():
    with pytest.raises(VMValueError, match="no function 'other'"):
        program().source_of("other", 0)
    with pytest.raises(VMValueError, match="main has 3 instructions, wanted one of them, got 3"):
        program().source_of("main", 3)
    with pytest.raises(VMValueError, match="got -1"):
        program().source_of("main", -1)


def test_a_file_keeps_the_table_and_a_stripped_one_does_not():
    ex = program()
    loaded = load(ex.to_bytes())
    assert loaded.debug == ex.debug and loaded.as_text(sources=True) == ex.as_text(sources=True)
    stripped = load(ex.stripped().to_bytes())
    assert stripped.debug is None and stripped.source_of("main", 0) is UNKNOWN
    assert msgpack.unpackb(ex.stripped().to_bytes(sign=False))["version"] == 1
    assert "debug" not in msgpack.unpackb(ex.stripped().to_bytes(sign=False))
    assert stripped.as_text(sources=True) == ex.as_text()


def test_the_golden_file_with_a_table_still_loads():
    ex = load(GOLDEN / "executable_v5_debug.rvm")
    assert ex.to_bytes(sign=False) == program().to_bytes(sign=False)
    assert ex.to_bytes(sign=False) == (GOLDEN / "executable_v5_debug.rvm").read_bytes()


def test_the_listing_ends_lines_with_their_source_where_asked():
    ex = program()
    assert "ONNX" not in ex.as_text() and "#" not in ex.as_text().splitlines()[1]
    lines = ex.as_text(sources=True).splitlines()
    assert lines[1].endswith("  # ONNX node conv1 (Conv) + ONNX node relu1 (Relu)")
    assert lines[2].endswith("  # model.py:12:5") and "#" not in lines[3]
    assert "Debug table: 3 places, 5 bytes of instructions" in ex.stats()
    assert "Debug table" not in ex.stripped().stats()


@pytest.mark.parametrize("saved", [False, True])
def test_an_error_names_the_source_of_each_vm_frame(saved):
    ex = load(program().to_bytes()) if saved else program()
    assert notes_of(ex, **{"env.other": raising}) == [
        "  in VM function helper, instruction 0: call env.other in: %0 dst: %1\n"
        "    from ONNX node conv1 (Conv)",
        "  in VM function main, instruction 1: call helper in: %1 dst: %2\n    from model.py:12:5",
    ]
    (note,) = notes_of(ex, **{"env.conv_relu": raising})
    assert note.endswith("\n    from ONNX node conv1 (Conv) + ONNX node relu1 (Relu)")
    (note,) = notes_of(ex.stripped(), **{"env.conv_relu": raising})
    assert note == "  in VM function main, instruction 0: call env.conv_relu in: %0 dst: %1"


def test_threads_see_their_own_sources():
    ex, notes = program(), []

    def run(name, where):
        notes.append((where, "".join(notes_of(ex, **{name: raising}))))

    pairs = [("env.conv_relu", "relu1"), ("env.other", "model.py:12:5")]
    threads = [threading.Thread(target=run, args=pair) for pair in pairs * 8]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(notes) == 16 and all(where in text for where, text in notes)


def test_a_table_is_small_and_wide_enough_for_many_sources():
    spans = [Span(name=f"node{i}") for i in range(300)]
    table = debug_table({"few": spans[:200], "many": spans})
    assert [len(rows) for _, rows in table.functions] == [400, 600]
    assert all(str(table.source_of("many", i)) == f"node{i}" for i in range(300))
    assert [len(r) for _, r in debug_table({"few": spans[:200]}).functions] == [200]
    assert debug_table({"main": [UNKNOWN, Span()]}) is None
    assert debug_table({}) is None


def test_equal_places_are_kept_once():
    spans = [Span(name="a"), Span(name="a"), Span(parts=(Span(name="a"), Span(name="a")))]
    table = debug_table({"main": spans})
    assert table.places == ((0, 0, 0, "a"),) and table.sources == ((), (0,))


def test_a_long_source_is_shown_in_part():
    spans = [Span(name=f"node{i}") for i in range(20)]
    assert source_text(Span.merge(*spans)).endswith(" + node7 + 12 more")
    assert source_text(Span(name="a\nb" + "x" * 1000)) == "a b" + "x" * 197
    assert source_text(UNKNOWN) == ""


def damaged(change):
    document = msgpack.unpackb(program().to_bytes(sign=False))
    change(document["debug"])
    return msgpack.packb(document)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(files=[]), "a place is in no file"),
        (lambda d: d["places"].__setitem__(0, [0, -1, 0, ""]), "a place is in no file"),
        (lambda d: d["places"].__setitem__(0, [0, 1, 0]), "wanted a list of 4, got 3"),
        (lambda d: d.update(sources=[]), "the first source is the unknown one"),
        (lambda d: d["sources"].append([3]), "a source has no such place"),
        (lambda d: d["functions"].append(["main", b""]), "a function appears twice"),
        (lambda d: d["functions"].append(["other", b""]), "does not fit the function 'other'"),
        (lambda d: d["functions"].__setitem__(0, ["main", b"\0"]), "does not fit the function"),
        (
            lambda d: d["functions"].__setitem__(0, ["main", b"\0\0\7"]),
            "names a source that there is",
        ),
        (lambda d: d["functions"].__setitem__(0, ["main", 5]), "wanted bytes, got int"),
        (lambda d: d.pop("files"), "wanted the keys files, places, sources, functions"),
        (lambda d: d.update(more=1), "wanted the keys files, places, sources, functions"),
    ],
)
def test_a_damaged_table_is_refused(change, message):
    with pytest.raises((LoadError, VerifyError), match=message):
        load(damaged(change))


def test_a_table_in_a_file_of_an_older_version_is_refused():
    document = msgpack.unpackb(program().to_bytes(sign=False))
    with pytest.raises(LoadError, match="a debug table, which format version 4 does not have"):
        load(msgpack.packb({**document, "version": 4}))


def test_sources_of_two_bytes_that_are_cut_off_are_refused():
    places = tuple((0, 1, 0, f"n{i}") for i in range(300))
    with pytest.raises(ValueError, match="cut off"):
        DebugTable(("",), places, ((), *((i,) for i in range(300))), (("main", b"\0"),))
