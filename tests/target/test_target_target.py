"""`Target`: parsing, printing, options, the current one."""

from __future__ import annotations

import threading

import pytest

from relaxvm.base import CodegenError, PassError
from relaxvm.ir import load_json, save_json
from relaxvm.target import Target
from relaxvm.target.llvm import host_machine, machine_of


@pytest.mark.parametrize(
    "text",
    [
        "llvm",
        "llvm -mcpu=haswell",
        "llvm -mtriple=aarch64-linux-gnu -mattr=+neon,-sve -num-cores=4",
        "llvm -keys=cpu,arm_cpu",
        "llvm -model='a b c'",
    ],
)
def test_text_parses_back_to_the_identical_target(text):
    target = Target(text)
    assert Target(str(target)) is target
    assert Target(target.export()) is target
    assert load_json(save_json(target)) is target


def test_the_forms_of_a_target_agree():
    wanted = Target("llvm -mcpu=haswell -num-cores=4")
    assert Target({"kind": "llvm", "mcpu": "haswell", "num-cores": 4}) is wanted
    assert Target('{"kind": "llvm", "mcpu": "haswell", "num-cores": 4}') is wanted
    assert Target("llvm -num-cores 4 --mcpu haswell") is wanted
    assert Target(wanted) is wanted
    assert Target("native") is Target("llvm")


def test_attributes_are_readable():
    target = Target("llvm -mcpu=haswell -mattr=+avx2,-fma -num-cores=4")
    assert target.kind.name == "llvm"
    assert target.kind == "llvm"
    assert target.mcpu == "haswell"
    assert target.mattr == ("+avx2", "-fma")
    assert target.attrs["num-cores"] == 4
    assert target.attrs["mcpu"] == "haswell"


def test_a_host_is_kept_and_printed():
    target = Target("llvm -mtriple=aarch64-linux-gnu").with_host("llvm -mcpu=haswell")
    assert target.host is Target("llvm -mcpu=haswell")
    assert Target(str(target)) is target
    assert Target({"kind": "llvm", "host": "llvm"}).host is Target("llvm")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("lvm", "did you mean llvm"),
        ("cuda", "unknown kind"),
        ("llvm -mcpuu=x", "did you mean mcpu"),
        ("llvm haswell", "is no option"),
        ("llvm -mcpu", "has no value"),
        ("", "empty"),
        ("llvm -num-cores=many", "is a number"),
        ("llvm -mcpu='x", "quotation"),
        ("{not json", "not JSON"),
        ({"mcpu": "x"}, 'no "kind"'),
        (7, "wanted text"),
        ({"kind": "llvm", "mattr": [1]}, "list of words"),
    ],
)
def test_what_is_no_target_is_refused_by_name(given, message):
    with pytest.raises(PassError, match=message):
        Target(given)


def test_the_current_target_is_the_innermost_one_of_the_thread():
    outer, inner = Target("llvm"), Target("llvm -mcpu=haswell")
    assert Target.current() is None
    with pytest.raises(PassError):
        Target.current(allow_none=False)
    seen = []
    with outer:
        with inner:
            assert Target.current() is inner
            thread = threading.Thread(target=lambda: seen.append(Target.current()))
            thread.start()
            thread.join()
        assert Target.current() is outer
    assert Target.current() is None
    assert seen == [None]


def test_the_default_machine_is_this_one():
    assert machine_of() == host_machine()
    assert machine_of("native") == host_machine()
    generic = machine_of("llvm -mcpu=x86-64")
    assert generic.cpu == "x86-64"
    assert generic.features == ""


def test_a_strange_machine_is_refused():
    with pytest.raises(CodegenError, match="opt-level"):
        machine_of("llvm -opt-level=9")
    with pytest.raises(CodegenError, match="no such CPU"):
        machine_of(Target({"kind": "llvm", "mcpu": 'a"b'}))
