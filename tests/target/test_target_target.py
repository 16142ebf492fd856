"""`Target`: parsing, printing, options, the current one."""

from __future__ import annotations

import threading

import pytest

from relaxvm.base import CodegenError, LinkError, PassError
from relaxvm.ir import load_json, save_json
from relaxvm.target import Target, cpu_model
from relaxvm.target.llvm import host_machine, machine, machine_of


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
    assert target.mtriple == target.model == target.device_name == ""
    assert target.libs == ()
    other = Target("llvm -mtriple=aarch64-linux-gnu -libs=a,b -model=m -device=d")
    assert other.mtriple == "aarch64-linux-gnu"
    assert (other.libs, other.model, other.device_name) == (("a", "b"), "m", "d")


def test_a_host_is_kept_and_printed():
    target = Target("llvm -mtriple=aarch64-linux-gnu").with_host("llvm -mcpu=haswell")
    assert target.host is Target("llvm -mcpu=haswell")
    assert Target(str(target)) is target
    assert Target({"kind": "llvm", "host": "llvm"}).host is Target("llvm")
    assert Target("llvm -mtriple=aarch64-linux-gnu", "llvm -mcpu=haswell") is target
    assert Target("llvm -mtriple=aarch64-linux-gnu", host="llvm -mcpu=haswell") is target


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
        ({"kind": "llvm", "mattr": {"a": 1}}, "list of words"),
        ("llvm -num-cores=0", "at least 1"),
        ("llvm -num-cores=-1", "at least 1"),
        ("llvm -num-cores=99999999999999999999", "at most 65536"),
        ("llvm -num-cores=1e3", "is a number"),
        ({"kind": "llvm", "num-cores": True}, "is a number"),
        ({"kind": "llvm", "num-cores": 1.5}, "is a number"),
        ({"kind": "llvm", "num-cores": float("inf")}, "is a number"),
        ({"kind": "llvm", "num-cores": float("nan")}, "is a number"),
        ({"kind": "llvm", "num-cores": [1]}, "is a number"),
        ("llvm -vector-width=3", "at least 64"),
        ("llvm -vector-width=96", "power of two"),
        ("llvm -vector-width=100000", "at most 2048"),
        ("llvm -num-vector-registers=1000000", "at most 1024"),
        ("llvm -l1-cache-bytes=1", "at least 1024"),
        ("llvm -mattr=+avx512f,-avx512f", r"both \+avx512f and -avx512f"),
        ("llvm -mattr=+,-", "names no feature"),
        ("llvm -mcpu=a -mcpu=b", "given twice"),
        ("llvm --", "has no value"),
        ('{"kind":"llvm","mcpu":"haswell"', "not JSON"),
        ('{"kind":' * 100_000, "not JSON"),
        ('{"kind":7}', 'no "kind"'),
        ("[1]", "unknown kind"),
        ("llvm -mcpu=" + "x" * 100_000, "at most 65536"),
        ({"kind": "llvm", "host": 7}, "wanted text"),
        ({"kind": "llvm", 1: 2}, "options are named by text"),
        ({"kind": "llvm", "model": "a\x00"}, "model is text"),
        ({"kind": "llvm", "mcpu": "\ud800"}, "mcpu is text"),
        ({"kind": "llvm", "mattr": ["+\ud800"]}, "list of words"),
        ("llvm -foo=1", r"unknown option 'foo'; known: device, keys"),
        ("llvm -num-core=1", r"unknown option 'num-core'; did you mean num-cores\?; known"),
        ({"kind": "llvm", "host": {"kind": "llvm", "host": "llvm"}}, "has a host of its own"),
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


def test_a_host_within_a_host_within_a_host_is_refused():
    nested = {"kind": "llvm"}
    for _ in range(5000):
        nested = {"kind": "llvm", "host": nested}
    with pytest.raises(PassError, match="nested too deeply"):
        Target(nested)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("llvm -mtriple=foo-bar-baz", "No available targets"),
        ("llvm -mtriple=''", "No available targets"),
        ("llvm -mcpu=nonsense -mtriple=x86_64-linux-gnu", "no processor 'nonsense'"),
        ("llvm -mcpu=cortex-a72 -mtriple=x86_64-linux-gnu", "no processor 'cortex-a72'"),
        ("llvm -mtriple=riscv64-linux-gnu -mcpu=haswell", "no processor 'haswell'"),
        ("llvm -mtriple=aarch64-linux-gnu -mattr=+nonsense", "no feature 'nonsense'"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=help", "'help' names no CPU"),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64 -mattr=-64bit", "64-bit code"),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64 -mattr=-sse2", "LLVM has no code"),
        ("llvm -mtriple=riscv64-linux-gnu -mattr=+zfinx,+f", "incompatible"),
        ("llvm -mtriple=nvptx64-nvidia-cuda", "LLVM has no code"),
    ],
)
def test_what_llvm_would_end_the_process_for_is_an_error(target, message):
    with pytest.raises(CodegenError, match=message):
        machine_of(target).check()
    with pytest.raises(CodegenError, match=message):
        cpu_model(target)


def test_an_llvm_that_is_missing_damaged_or_too_old_is_told(monkeypatch):
    """llvmlite raises OSError where its library cannot be loaded."""

    def raising(error):
        def raises():
            raise error

        return raises

    host_machine.cache_clear()
    machine.llvm.cache_clear()
    no_library = raising(OSError("no llvmlite"))
    try:
        for version, prepare in (
            (raising(LinkError("not there")), raising(ImportError("no llvmlite"))),
            (raising(ImportError("damaged")), raising(ImportError("no llvmlite"))),
            (no_library, no_library),
            (lambda: (14, 0, 6), no_library),
        ):
            monkeypatch.setattr(machine.native, "llvm_version", version)
            monkeypatch.setattr(machine.passes, "prepare", prepare)
            with pytest.raises(CodegenError, match="needs llvmlite: no llvmlite; pip install"):
                machine_of("llvm")
    finally:
        monkeypatch.undo()
        assert machine_of() == host_machine()
