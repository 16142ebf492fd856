"""How object code becomes kernels, and when it must not."""

from __future__ import annotations

import gc
import struct
import sys
import types
import weakref

import numpy as np
import pytest
from kernel_fixture import compile_ir, linked, section

from relaxvm.base import InternalError, LinkError, LoadError
from relaxvm.runtime import ndarray as nd
from relaxvm.runtime import trampoline, trust
from relaxvm.runtime.kernel import Failure, KernelInfo, KernelSection, NativeCode
from relaxvm.runtime.native import fits, host, link


def vectors(n=4, dtype="float32"):
    return [nd.array(np.arange(n), dtype=dtype) for _ in range(3)]


def test_features_of_the_host_are_canonical_text():
    here = host()
    assert here.features_text.split(",") == sorted(here.features_text.split(","))
    assert host() is here


def code(**changes):
    made = section().native[0]
    fields = {
        name: getattr(made, name) for name in ("triple", "cpu", "features", "object", "producer")
    }
    return NativeCode(**{**fields, **changes})


def test_code_fits_if_machine_and_features_do():
    here = host()
    arch, rest = here.triple.split("-", 1)
    assert fits(code())
    assert fits(code(features="", cpu="generic"))
    assert fits(code(features="", cpu=here.cpu))
    assert fits(code(features="-avx512f", cpu=here.cpu))
    assert not fits(code(features="", cpu="some-other-cpu"))
    assert not fits(code(features=here.features_text + ",+imaginary"))
    assert not fits(code(triple=f"imaginary-{rest}"))
    assert not fits(code(triple=f"{arch}-unknown-haiku"))
    if arch == "x86_64" and "linux" in rest:
        assert fits(code(triple="amd64-pc-linux-gnu"))
        assert not fits(code(triple="x86_64-apple-macosx14.0"))
        assert not fits(code(triple="x86_64-pc-windows-msvc"))


def with_native(*variants, portable=b"portable"):
    return KernelSection(section().infos, portable, variants)


@pytest.fixture
def compiler(monkeypatch):
    """A stand-in for the compiler behind the one door; counts its calls."""
    module = types.ModuleType("relaxvm.target")
    module.calls = []

    def rebuild_kernels(portable, names):
        module.calls.append((portable, names))
        return module.gives

    module.gives = section()
    module.rebuild_kernels = rebuild_kernels
    monkeypatch.setitem(sys.modules, "relaxvm.target", module)
    return module


def test_trusted_code_that_fits_is_used(compiler):
    kernels = link(with_native(code()), trust=True)
    assert (kernels.source, kernels.reason) == ("native", "")
    assert compiler.calls == []
    assert kernels.seconds > 0
    assert set(kernels) == set(section().names)
    assert len(kernels) == 7


def test_code_that_nobody_vouches_for_is_rebuilt(compiler):
    kernels = link(with_native(code(object=b"never looked at")), trust=False)
    assert kernels.source == "rebuilt"
    assert "not vouched for" in kernels.reason
    assert compiler.calls == [(b"portable", section().names)]
    x, y, out = vectors()
    kernels["add"](x, y, out)
    assert out.tolist() == [0, 2, 4, 6]


def test_code_for_another_machine_is_rebuilt(compiler):
    other = code(triple="imaginary-unknown-linux-gnu", cpu="gadget")
    kernels = link(with_native(other), trust=True)
    assert kernels.source == "rebuilt"
    assert "imaginary-unknown-linux-gnu/gadget" in kernels.reason
    assert link(with_native(), trust=True).source == "rebuilt"


def test_the_best_variant_is_chosen(compiler):
    broken = code(features="", cpu="generic", object=b"not this one")
    assert link(with_native(broken, code()), trust=True).source == "native"
    assert link(with_native(code(), broken), trust=True).source == "native"


def test_a_file_without_portable_form_cannot_be_rebuilt(compiler):
    with pytest.raises(LoadError, match="no portable form"):
        link(with_native(code(), portable=b""), trust=False)


def test_a_missing_compiler_is_a_link_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "relaxvm.target", None)
    with pytest.raises(LinkError, match=r"needs the compiler"):
        link(with_native(), trust=False)


def test_a_portable_form_with_other_kernels_is_refused(compiler):
    compiler.gives = KernelSection(section().infos[:2], b"", section().native)
    with pytest.raises(LoadError, match="does not give the kernels"):
        link(with_native(), trust=False)
    infos = list(section().infos)
    infos[0] = KernelInfo("add", "add", infos[0].params[:2], (), True)
    compiler.gives = KernelSection(tuple(infos), b"", section().native)
    with pytest.raises(LoadError, match=r"kernel add: the file says"):
        link(with_native(), trust=False)


def test_a_compiler_that_builds_for_elsewhere_is_at_fault(compiler):
    elsewhere = code(triple="imaginary-unknown-linux-gnu")
    compiler.gives = KernelSection(section().infos, b"", (elsewhere,))
    with pytest.raises(InternalError, match="do not fit"):
        link(with_native(), trust=False)


def test_no_kernels_link_to_nothing():
    kernels = link(KernelSection((), b"", ()), trust=False)
    assert dict(kernels) == {}


def elf(**changes):
    """The object of the fixture with 16-bit header fields changed, by offset."""
    data = bytearray(section().native[0].object)
    for key, value in changes.items():
        struct.pack_into("<H", data, int(key[1:]), value)
    return bytes(data)


@pytest.mark.parametrize("cut", [1, 3, 10, 63, 64, 200, 0.5, 0.9, -1])
def test_cut_object_code_is_a_load_error(cut):
    whole = section().native[0].object
    size = int(len(whole) * cut) if isinstance(cut, float) else cut
    with pytest.raises(LoadError, match="native code for"):
        link(with_native(code(object=whole[:size])), trust=True)


@pytest.mark.parametrize(
    "data",
    [b"garbage", b"garbage" * 100, bytes(1000), b"\x7fELF" + bytes(500), b"\xcf\xfa\xed\xfe" * 50,
     b"MZ" + bytes(400), elf(_16=2), elf(_18=1), elf(_58=0), elf(_60=0), elf(_60=60000),
     elf(_62=60000), elf(_40=65535)],
    ids=lambda d: d[:8].hex() + str(len(d)),
)  # fmt: skip
def test_other_bytes_than_an_object_are_a_load_error(data):
    with pytest.raises(LoadError, match="native code for"):
        link(with_native(code(object=data)), trust=True)


def test_a_symbol_that_is_not_there_is_a_load_error():
    infos = (KernelInfo("gone", "gone", (), (), True),)
    with pytest.raises(LoadError, match="LLVM cannot link"):
        link(KernelSection(infos, b"", (code(),)), trust=True)


def test_code_that_needs_an_unknown_function_is_a_load_error():
    text = (
        "declare i32 @relaxvm_no_such_function(ptr)\n"
        "define i32 @f(ptr %args) {\n  %r = call i32 @relaxvm_no_such_function(ptr %args)\n"
        "  ret i32 %r\n}\n"
    )
    infos = (KernelInfo("f", "f", (), (), True),)
    with pytest.raises(LoadError, match="LLVM cannot link"):
        link(KernelSection(infos, b"", (compile_ir(text),)), trust=True)


def test_code_may_call_the_c_library():
    text = (
        "declare double @cos(double)\ndefine i32 @f(ptr %args) {\n"
        "  %r = call double @cos(double 0.0)\n  %i = fptosi double %r to i32\n  ret i32 %i\n}\n"
    )
    info = KernelInfo("f", "f", (), (Failure("assert", message="one"),), True)
    kernels = link(KernelSection((info,), b"", (compile_ir(text),)), trust=True)
    assert kernels["f"].call() == 1


def test_the_cached_entry_is_used_only_if_signed(tmp_path, monkeypatch):
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(trust, "_keys", {})
    made = []
    real = trampoline.compile_ir
    monkeypatch.setattr(trampoline, "compile_ir", lambda *args: made.append(1) or real(*args))
    first = trampoline.object_code(trampoline.layout.entry_ir)
    assert trampoline.object_code(trampoline.layout.entry_ir) == first
    assert len(made) == 1
    (path,) = (tmp_path / "entries").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert trampoline.object_code(trampoline.layout.entry_ir) == first
    assert len(made) == 2
    assert path.read_bytes() == content
    path.write_bytes(b"")
    assert trampoline.object_code(trampoline.layout.entry_ir) == first
    assert list(path.parent.iterdir()) == [path]


def test_without_a_cache_folder_the_entry_is_compiled(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "file" / "x"))
    monkeypatch.setattr(trust, "_keys", {})
    assert trampoline.object_code(trampoline.layout.entry_ir)[:4] in (
        b"\x7fELF",
        b"\xcf\xfa\xed\xfe",
    )


def test_code_is_released_with_its_last_function():
    kernels = linked()
    gone = weakref.ref(kernels["add"]._owner)
    call = kernels["add"].call
    del kernels
    gc.collect()
    assert gone() is not None
    del call
    gc.collect()
    assert gone() is None
