from __future__ import annotations

import random
import subprocess
import sys
import types

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_fixture import section

from relaxvm.base import LoadError, VMTypeError, VMValueError
from relaxvm.runtime import ndarray as nd
from relaxvm.runtime import registry, trust
from relaxvm.runtime.device import cpu
from relaxvm.runtime.kernel import KernelSection
from relaxvm.runtime.module import Module


@pytest.fixture(autouse=True)
def _own_key(tmp_path, monkeypatch):
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(trust, "_keys", {})


@pytest.fixture
def compiler(monkeypatch):
    module = types.ModuleType("relaxvm.target")
    module.calls = 0

    def rebuild_kernels(portable, names):
        module.calls += 1
        return section()

    module.rebuild_kernels = rebuild_kernels
    monkeypatch.setitem(sys.modules, "relaxvm.target", module)
    return module


def whole(**options):
    made = section()
    return Module(KernelSection(made.infos, b"portable", made.native), **options)


def only(name):
    made = section()
    infos = tuple(info for info in made.infos if info.name == name)
    return Module(KernelSection(infos, b"portable", made.native))


def test_a_kernel_is_called_by_name():
    rt = whole()
    out = np.zeros(3, "float32")
    assert rt["add"](np.float32([1, 2, 3]), np.float32([1, 1, 1]), out) is None
    assert out.tolist() == [2, 3, 4]
    assert rt.get_function("mul").name == "mul"
    assert rt.implements_function("mul")
    assert not rt.implements_function("nope")


def test_a_single_kernel_is_the_entry():
    rt = only("add")
    assert rt.entry_name == "add"
    out = np.zeros(1, "float32")
    rt(np.float32([1]), np.float32([2]), out)
    assert out.tolist() == [3]
    rt["__tvm_main__"](np.float32([1]), np.float32([4]), out)
    assert out.tolist() == [5]
    assert rt.entry_func is rt["add"]


def test_of_several_kernels_the_entry_must_be_named():
    rt = whole()
    assert rt.entry_name is None
    with pytest.raises(VMValueError, match=r"no single entry.*there are: add, mul"):
        rt(1)
    assert whole(entry_name="fails").entry_func.name == "fails"
    with pytest.raises(VMValueError, match=r"'adds'; did you mean add"):
        whole(entry_name="adds")


def test_an_unknown_kernel_lists_those_that_exist():
    rt = whole()
    with pytest.raises(VMValueError, match=r"'ad'; did you mean add.*\?; there are: add, mul"):
        rt["ad"]
    with pytest.raises(VMValueError, match="__tvm_main__"):
        rt["__tvm_main__"]
    with pytest.raises(VMValueError):
        rt.get_function(3)


def test_linking_happens_once_on_first_use():
    rt = whole()
    assert "not linked yet" in repr(rt)
    assert rt["add"] is rt["add"]
    assert rt.linked.source == "native"
    assert repr(rt) == (
        "<Module of 7 kernels (add, mul, addi, echo, fails, describe, copy_bf16), native>"
    )


def test_sources_are_given_by_format():
    rt = whole(sources={"llvm": "define ...", "asm": "mov ..."})
    assert rt.get_source() == rt.get_source("llvm") == "define ..."
    assert rt.get_source("asm") == "mov ..."
    with pytest.raises(VMValueError, match="no source 'c'; there are: llvm, asm"):
        rt.get_source("c")
    with pytest.raises(VMValueError, match="there are: none"):
        whole().get_source()


def test_the_evaluator_measures_a_kernel():
    rt = whole()
    x = np.ones(4, "float32")
    out = np.zeros(4, "float32")
    result = rt.time_evaluator("add", cpu(0), number=3, repeat=2)(x, nd.array(x), out)
    assert len(result.results) == 2
    assert result.min >= 0
    assert out.tolist() == [2, 2, 2, 2]
    strided = np.zeros((4, 2), "float32")
    rt.time_evaluator("add", number=1)(x, x, strided[:, 0])
    assert strided[:, 0].tolist() == [2, 2, 2, 2]
    values = [True, 1, 1, 1, 1, 1, np.float32(1), 1.0, 1.0, nd.empty((9,), "int64")]
    assert rt.time_evaluator("echo", number=1)(*values).mean >= 0


def test_the_evaluator_checks_its_arguments_and_options():
    rt = whole()
    with pytest.raises(VMTypeError, match="wanted 3 arguments, got 0"):
        rt.time_evaluator("add")()
    with pytest.raises(VMValueError, match="number"):
        rt.time_evaluator("add", number=0)
    with pytest.raises(VMValueError, match="there are: add"):
        rt.time_evaluator("nope")
    with pytest.raises(VMValueError, match="assertion failed"):
        rt.time_evaluator("fails")()


def test_a_registered_function_can_prepare_each_repeat(monkeypatch):
    monkeypatch.setattr(registry, "_functions", {})
    seen = []
    registry.register_func("flush", lambda *args: seen.append(len(args)))
    x = np.ones(4, "float32")
    evaluate = whole().time_evaluator("add", number=1, repeat=3, f_preproc="flush")
    evaluate(x, x, np.zeros(4, "float32"))
    assert seen == [3, 3, 3]
    with pytest.raises(VMValueError, match="flash"):
        whole().time_evaluator("add", f_preproc="flash")


# Files


def test_a_file_of_this_machine_runs_its_own_code(tmp_path, compiler):
    path = tmp_path / "k.rvm"
    whole(entry_name="add", producer="a test").export_library(path)
    rt = Module.load(str(path))
    assert rt.trusted
    out = np.zeros(2, "float32")
    rt(np.float32([1, 2]), np.float32([3, 4]), out)
    assert out.tolist() == [4, 6]
    assert rt.linked.source == "native"
    assert compiler.calls == 0
    assert (rt.entry_name, rt.producer, rt.section) == ("add", "a test", whole().section)
    assert [p.name for p in tmp_path.iterdir() if p.name != "cache"] == ["k.rvm"]


def test_equal_modules_give_equal_bytes():
    assert whole().to_bytes() == whole().to_bytes()


def test_a_file_of_another_machine_is_rebuilt(compiler, tmp_path, monkeypatch):
    data = whole().to_bytes()
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "other"))
    rt = Module.from_bytes(data)
    assert not rt.trusted
    assert rt.linked.source == "rebuilt"
    assert compiler.calls == 1


def test_saving_foreign_code_again_does_not_make_it_ours(compiler, tmp_path, monkeypatch):
    data = whole().to_bytes()
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "other"))
    again = Module.from_bytes(data).to_bytes()
    assert not Module.from_bytes(again).trusted
    assert Module.from_bytes(again, trust="native").trusted


def test_the_caller_may_decide_about_trust(compiler, tmp_path, monkeypatch):
    data = whole().to_bytes()
    assert Module.from_bytes(data, trust="portable").linked.source == "rebuilt"
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "other"))
    assert Module.from_bytes(data, trust="native").linked.source == "native"
    with pytest.raises(VMValueError, match="'native' or 'portable'"):
        Module.from_bytes(data, trust="maybe")


def test_a_changed_byte_is_never_trusted():
    data = whole().to_bytes()
    rng = random.Random(5)
    for _ in range(300):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            made = Module.from_bytes(bytes(changed))
        except LoadError:
            continue
        assert not made.trusted


@pytest.mark.parametrize("data", [b"", b"x", b"\x80", b"\xc0", msgpack.packb({"magic": "other"})])
def test_other_bytes_are_refused(data):
    with pytest.raises(LoadError):
        Module.from_bytes(data)


def test_every_cut_is_refused():
    data = whole().to_bytes()
    for size in [*range(0, 200), *range(200, len(data), 97), len(data) - 1]:
        with pytest.raises(LoadError):
            Module.from_bytes(data[:size])
    with pytest.raises(LoadError):
        Module.from_bytes(data + b"\0")


def rewritten(**changes):
    plain = {**msgpack.unpackb(whole().to_bytes()), **changes}
    plain["signature"] = plain.pop("signature")
    return msgpack.packb({k: v for k, v in plain.items() if v is not ...})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 4}, "wanted a format up to 3, got 4"),
        ({"format": 3}, "wanted the keys .*params"),
        ({"format": True}, "format|bool"),
        ({"entry": "nope"}, "entry 'nope'"),
        ({"entry": 3}, "entry cannot be a int"),
        ({"producer": ...}, "wanted the keys"),
        ({"more": 1}, "wanted the keys"),
        ({"kernels": []}, "kernels cannot be a list"),
        ({"signature": b"short"}, "signature"),
        ({"signature": None}, "signature cannot be"),
        ({"magic": "relaxvm.kernel"}, "magic"),
    ],
)
def test_a_field_that_is_not_as_written_is_refused(changes, message):
    with pytest.raises(LoadError, match=message):
        Module.from_bytes(rewritten(**changes))


def test_what_is_no_bytes_is_refused(tmp_path):
    with pytest.raises(VMTypeError, match="got int"):
        Module.from_bytes(5)
    with pytest.raises(OSError, match="nowhere"):
        Module.load(tmp_path / "nowhere")
    (tmp_path / "bad").write_bytes(b"junk")
    with pytest.raises(LoadError, match="bad: not"):
        Module.load(tmp_path / "bad")


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_refused_or_read(data):
    with pytest.raises(LoadError):
        Module.from_bytes(data)


def test_the_runtime_alone_needs_no_compiler_and_llvm_only_to_link():
    code = """
import sys
import relaxvm.runtime.module, relaxvm.runtime.native
rooms = ("ir", "arith", "tir", "te", "relax", "script", "target", "meta_schedule")
heavy = [m for m in sys.modules if m.split(".")[0] == "llvmlite"
         or (m.startswith("relaxvm.") and m.split(".")[1] in rooms)]
print(heavy)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
