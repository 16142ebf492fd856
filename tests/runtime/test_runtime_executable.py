"""Executables as files: what is written comes back, and only that is accepted."""

from __future__ import annotations

import ctypes
import hashlib
import hmac
import io
import os
import pathlib
import stat
import sys
import weakref

import msgpack
import numpy as np
import pytest
from golden_program import EXTERNS, golden_program
from kernel_fixture import section

from relaxvm.base import (
    DataType,
    LoadError,
    RelaxvmError,
    VerifyError,
    VMTypeError,
    VMValueError,
    config,
)
from relaxvm.runtime import (
    ExecBuilder,
    Executable,
    KernelSection,
    Module,
    NDArray,
    ShapeTuple,
    VirtualMachine,
    array,
    builtin,
    cpu_budget,
    fileformat,
    from_numpy,
    gaps,
    info_from_plain,
    info_to_plain,
    load,
    load_executable,
    load_module,
    reader,
    requirements,
    result_memory,
)
from relaxvm.runtime import verify as verify_module
from relaxvm.runtime.fileformat import FORMAT_VERSION
from relaxvm.runtime.reader import Decoder
from relaxvm.runtime.sinfo import TensorInfo
from relaxvm.runtime.storage import Pages, aligned_empty

GOLDEN = pathlib.Path(__file__).parent / "golden"


def with_kernels() -> Executable:
    b = ExecBuilder()
    b.add_kernels(section())
    with b.function("main", num_inputs=3, param_names=["x", "y", "out"]):
        b.emit_call("add", [b.r(0), b.r(1), b.r(2)])
        b.emit_ret(b.r(2))
    return b.get()


def edited(change, ex=None, **options) -> bytes:
    """The file of the golden program after `change` has edited it as a decoded document."""
    data = (golden_program() if ex is None else ex).to_bytes(sign=False)
    document = msgpack.unpackb(data, strict_map_key=True)
    change(document)
    return msgpack.packb(document, **options)


def same_value(a, b) -> bool:
    if type(a) is NDArray:
        same = a.dtype is b.dtype and a.shape == b.shape
        return same and a.array.tobytes() == b.array.tobytes()
    return type(a) is type(b) and a == b


def test_a_file_gives_back_everything(tmp_path):
    ex = golden_program()
    path = tmp_path / "golden.rvm"
    ex.export_library(path)
    for loaded in (load(path), load(str(path)), load(ex.to_bytes()), load_executable(path)):
        assert loaded.functions == ex.functions
        assert loaded.code == ex.code
        assert loaded.provenance == ex.provenance
        assert len(loaded.constants) == len(ex.constants)
        assert all(map(same_value, ex.constants, loaded.constants))
        assert loaded.to_bytes() == ex.to_bytes()
        assert loaded.as_text() == ex.as_text()


def test_equal_programs_give_equal_bytes():
    assert golden_program().to_bytes() == golden_program().to_bytes()
    assert golden_program().to_bytes(sign=False) == golden_program().save_to_bytes(sign=False)


def test_the_golden_file_of_format_1_still_loads_and_runs():
    ex = load(GOLDEN / "executable_v1.rvm")
    vm = VirtualMachine(ex, functions=EXTERNS)
    x = np.arange(12, dtype="float32").reshape(3, 4)
    np.testing.assert_array_equal(vm["main"](x).numpy(), x * np.arange(4) * 1.5)
    assert vm["countdown"](50) == 0
    fresh = golden_program()
    assert all(map(same_value, fresh.constants, ex.constants))
    assert ex.to_bytes(sign=False) == (GOLDEN / "executable_v1.rvm").read_bytes()
    assert fresh.as_text() == ex.as_text()


def test_the_file_is_plain_msgpack():
    document = msgpack.unpackb(golden_program().to_bytes(sign=False), strict_map_key=True)
    assert list(document) == [
        "magic",
        "version",
        "provenance",
        "functions",
        "constants",
        "code",
        "kernels",
    ]
    assert document["magic"] == "relaxvm.executable"


def test_tensor_data_is_aligned_in_the_file_and_in_memory(tmp_path):
    b = ExecBuilder()
    tensors = [np.arange(n, dtype="float64") + n for n in (1, 3, 8, 100, 0)]
    with b.function("main", num_inputs=0):
        b.emit_call("vm.builtin.make_tuple", tensors, b.r(0))
        b.emit_ret(b.r(0))
    data = b.get().to_bytes()
    for tensor in tensors[:-1]:
        assert data.index(tensor.tobytes()) % 64 == 0
    path = tmp_path / "aligned.rvm"
    path.write_bytes(data)
    for loaded in (load(data), load(path), load(path, mmap=True)):
        for constant, tensor in zip(loaded.constants, tensors):
            np.testing.assert_array_equal(constant.numpy(), tensor)
            assert constant.array.ctypes.data % 64 == 0 or not tensor.size


def test_mapped_constants_are_read_only_and_others_are_not(tmp_path):
    path = tmp_path / "golden.rvm"
    golden_program().export_library(path)
    mapped, copied = load(path, mmap=True), load(path)
    for loaded, writeable in ((mapped, False), (copied, True)):
        tensors = [value for value in loaded.constants if type(value) is NDArray and value.size]
        assert tensors
        assert all(value.array.flags.writeable is writeable for value in tensors)
    vm = VirtualMachine(mapped, functions=EXTERNS)
    x = np.ones((2, 4), "float32")
    np.testing.assert_array_equal(vm["main"](x).numpy(), x * np.arange(4) * 1.5)


def test_constants_of_odd_layouts_are_stored_by_value():
    b = ExecBuilder()
    grid = np.arange(12, dtype="int32").reshape(3, 4)
    values = [grid.T, grid[::-2], np.array(7.5), grid.astype(">i4"), np.float16(2).reshape(1)]
    with b.function("main", num_inputs=0):
        b.emit_call("vm.builtin.make_tuple", values, b.r(0))
        b.emit_ret(b.r(0))
    loaded = load(b.get().to_bytes())
    for constant, value in zip(loaded.constants, values):
        np.testing.assert_array_equal(constant.numpy(), value)
        assert constant.shape == value.shape


# Trust


def test_native_code_is_used_from_files_this_machine_signed(tmp_path):
    path = tmp_path / "kernels.rvm"
    with_kernels().export_library(path)
    loaded = load(path)
    assert loaded.trusted
    vm = VirtualMachine(loaded)
    assert vm.kernel_source == "native"
    out = array(np.zeros(3, "float32"))
    vm["main"](np.ones(3, "float32"), np.ones(3, "float32"), out)
    np.testing.assert_array_equal(out.numpy(), [2, 2, 2])


def test_native_code_of_others_is_not_used_unasked():
    unsigned = with_kernels().to_bytes(sign=False)
    assert not load(unsigned).trusted
    assert load(unsigned, trust="native").trusted
    signed = with_kernels().to_bytes()
    assert load(signed).trusted
    assert not load(signed, trust="portable").trusted
    # The fixture has no portable form, so that rebuilding cannot happen silently.
    with pytest.raises(LoadError, match="no portable form"):
        VirtualMachine(unsigned)
    assert VirtualMachine(unsigned, trust="native").kernel_source == "native"
    with pytest.raises(LoadError, match="no portable form"):
        VirtualMachine(with_kernels(), trust="portable")


def test_every_signed_byte_counts():
    data = with_kernels().to_bytes()
    code = msgpack.unpackb(data)["kernels"]["native"][0]["object"]
    at = data.index(code) + len(code) // 2
    for position in (at, data.index(b"float32"), len(data) - 1):
        changed = bytearray(data)
        changed[position] ^= 1
        try:
            assert not load(bytes(changed)).trusted
        except RelaxvmError:
            continue


def with_a_tensor():
    """A program with kernels, and a tensor beside them that a signature need not read."""
    program = with_kernels()
    weight = array(np.arange(40, dtype="float32"))
    constants = [*program.constants, weight]
    return Executable(program.functions, constants, program.code, program.kernels), weight


def test_a_signature_vouches_for_the_code_and_not_for_the_weights():
    """What a file's machine code may do does not depend on them, and large ones stay unread."""
    program, weight = with_a_tensor()
    data = program.to_bytes()
    begin = data.index(weight.numpy().tobytes())
    for position, trusted in ((begin, True), (begin + 100, True), (begin - 70, False)):
        changed = bytearray(data)
        changed[position] ^= 1
        try:
            assert load(bytes(changed)).trusted is trusted
        except RelaxvmError:
            assert not trusted


def test_files_with_older_signatures_are_read_as_those_of_somebody_else():
    program, _ = with_a_tensor()
    data = program.to_bytes()
    key = (config.cache_dir() / "trust.key").read_bytes()
    signed = data[: -len(msgpack.packb("signature") + msgpack.packb(bytes(32)))]
    signature = hmac.new(key, hashlib.sha256(signed).digest(), hashlib.sha256).digest()
    old = load(signed + msgpack.packb("signature") + msgpack.packb(signature))
    assert not old.trusted


def verified_in(monkeypatch):
    """The programs that are verified from now on, as they were read."""
    programs, verify = [], verify_module._verify_table

    def seen(program, kernels):
        programs.append(program)
        return verify(program, kernels)

    monkeypatch.setattr(verify_module, "_verify_table", seen)
    return programs


def test_what_was_verified_before_it_was_signed_is_not_verified_again(monkeypatch, tmp_path):
    data = with_a_tensor()[0].to_bytes()
    programs = verified_in(monkeypatch)
    program = load(data)
    assert program.verified
    assert not programs
    # Of whom vouches for the code alone, of strangers, and of those who call other builtins.
    for again in (lambda: load(data, trust="native"), lambda: load(data[:-32] + bytes(32))):
        again()
        assert len(programs) == 1
        programs.clear()
    monkeypatch.setitem(builtin.TABLE, "vm.builtin.mine", builtin.builtin_named("copy"))
    assert load(data).trusted
    assert len(programs) == 1
    here = with_a_tensor()[0].to_bytes()
    monkeypatch.delitem(builtin.TABLE, "vm.builtin.mine")
    assert here != data
    programs.clear()
    assert load(here).trusted
    assert len(programs) == 1


def test_what_would_not_be_accepted_is_not_signed():
    program, _ = with_a_tensor()
    program.verify()
    program.code = program.code[:-8]
    with pytest.raises(VerifyError, match="the functions cover"):
        program.to_bytes()


def test_signatures_of_programs_that_were_not_verified_are_still_accepted(monkeypatch):
    program, _ = with_a_tensor()
    monkeypatch.setattr(fileformat, "_VERIFIED", fileformat._SIGNED)
    data = program.to_bytes()
    monkeypatch.undo()
    programs = verified_in(monkeypatch)
    assert load(data).trusted
    assert len(programs) == 1


def test_a_file_nobody_vouched_for_stays_unsigned_when_saved_again():
    foreign = load(with_kernels().to_bytes(sign=False))
    assert not load(foreign.to_bytes()).trusted
    assert load(load(foreign.to_bytes(), trust="native").to_bytes()).trusted


def test_without_a_key_nothing_is_vouched_for(monkeypatch, tmp_path):
    signed = with_kernels().to_bytes()
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "other"))
    assert not load(signed).trusted
    (tmp_path / "blocked").write_text("not a folder")
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "blocked"))
    unsigned = with_kernels().to_bytes()
    assert unsigned == with_kernels().to_bytes(sign=False)


def test_an_unknown_trust_is_refused():
    with pytest.raises(VMValueError, match="wanted None, 'native' or 'portable'"):
        load(golden_program().to_bytes(), trust="yes")
    with pytest.raises(VMValueError, match="trust"):
        VirtualMachine(golden_program(), trust="yes", functions=EXTERNS)


# Strictness


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a relaxvm executable"),
        (b"\x7fELF" + bytes(100), "not a relaxvm executable"),
        (b"PK\x03\x04", "not a relaxvm executable"),
        (msgpack.packb({"magic": "other"}), "magic word"),
        (msgpack.packb({"magic": "relaxvm.executable"}), "wanted 7 entries"),
        (msgpack.packb([1, 2]), "wanted a map"),
    ],
)
def test_foreign_bytes_are_refused(data, message):
    with pytest.raises(LoadError, match=message):
        load(data)


def test_a_newer_format_is_refused_by_its_number():
    def change(document):
        document["version"] = 6

    with pytest.raises(LoadError, match="format version 6, this relaxvm reads up to 5"):
        load(edited(change))


def constant_edit(value):
    def change(document):
        document["constants"][0] = value

    return change


def function_edit(**fields):
    def change(document):
        document["functions"][0].update(fields)

    return change


def top_edit(**fields):
    def change(document):
        document.update(fields)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("code"), "wanted 7 entries"),
        (lambda d: d.update(extra=1), "wanted the key 'signature' last"),
        (lambda d: d.update(signature=b"short"), "signature is not 32 bytes"),
        (lambda d: d.update(signature=1), "signature is not 32 bytes"),
        (top_edit(version=True), "version: wanted a number"),
        (top_edit(version=0), "version: wanted a number"),
        (top_edit(version="1"), "version: wanted a number"),
        (top_edit(provenance={}), "Provenance: wanted the keys"),
        (top_edit(provenance=None), "Provenance: wanted a map"),
        (lambda d: d["provenance"].update(passes=[1]), "passes: wanted str, got int"),
        (lambda d: d["provenance"].update(target=1), "target: wanted str, got int"),
        (top_edit(functions={}), "functions: wanted a list"),
        (top_edit(functions=[1]), "function: wanted a map"),
        (top_edit(functions=[{"kind": 1, "name": "f"}]), "kind cannot be a int"),
        (top_edit(constants={}), "constants: wanted a list"),
        (top_edit(code="text"), "code: wanted bytes"),
        (top_edit(code=b"123"), "cover 107 words of code, there are 0.375"),
        (top_edit(kernels=[]), "KernelSection: wanted a map"),
        (function_edit(unknown=1), "function: wanted the keys"),
        (function_edit(start=0.0), "start cannot be a float"),
        (function_edit(start=False), "start cannot be a bool"),
        (function_edit(registers=1 << 63), "registers"),
        (function_edit(params=[["x"]]), "a parameter is a list of name and struct info"),
        (function_edit(ret=["tensor"]), "'tensor' with 0 fields"),
        (function_edit(ret=["other", 1]), "is not known"),
        (function_edit(ret=[]), "begins with its kind"),
        (function_edit(ret=["tensor", "float33", 1, None]), "unknown dtype"),
        (function_edit(ret=["tensor", "uint1", 1, None]), "canonical dtype"),
        (function_edit(ret=["tensor", None, 99, None]), "wanted -1 to 32 dimensions"),
        (function_edit(ret=["tensor", None, 1, [["+"]]]), "wants 2 operands"),
        (function_edit(ret=["shape", True, None]), "ShapeInfo: ndim: wanted int, got bool"),
        (constant_edit(1), "begins with its kind"),
        (constant_edit(["int", True]), "int: wanted int, got bool"),
        (constant_edit(["int", 1 << 63]), "does not fit 64 bits"),
        (constant_edit(["float", 1]), "float: wanted float, got int"),
        (constant_edit(["text", b"bytes"]), "constant|text"),
        (constant_edit(["shape", [1.0]]), "shape: wanted int, got float"),
        (constant_edit(["other", 1]), "is not known"),
        (constant_edit(["int", 1, 2]), "wanted 2 fields"),
        (constant_edit(["dim", ["oops"]]), "unknown operator"),
        (constant_edit(["tensor", "float32", [2]]), "dtype, shape and data"),
        (constant_edit(["tensor", "float32", [2], bytes(7)]), "wants 8 bytes, got 7"),
        (constant_edit(["tensor", "float32", [2], bytes(8 + 64)]), "wants 8 bytes, got 72"),
        (constant_edit(["tensor", "float32", [2], b"\1" + bytes(8)]), "are not zero"),
        (constant_edit(["tensor", "float32", [-2], b""]), "sizes are ints of at least 0"),
        (constant_edit(["tensor", "float32", [1 << 47, 1 << 47, 0], b""]), "too large"),
        (constant_edit(["tensor", "float32", [1 << 47, 1 << 47], b""]), "wants"),
        (constant_edit(["tensor", "float32", [1] * 33, bytes(4)]), "at most 32"),
        (constant_edit(["tensor", "handle", [1], bytes(8)]), "handle"),
        (constant_edit(["tensor", "bool", [1], b"\2"]), "other than 0 and 1"),
        (constant_edit(["tensor", "float32", [1], "text"]), "wanted binary data"),
    ],
)
def test_documents_that_are_almost_right_are_refused(change, message):
    with pytest.raises((LoadError, VerifyError), match=message):
        load(edited(change))


def nested(depth: int) -> object:
    info: object = ["object"]
    for _ in range(depth):
        info = ["tuple", [info]]
    return info


def test_nesting_is_bounded():
    load(edited(function_edit(ret=nested(10))))
    with pytest.raises(LoadError, match="nested more than"):
        load(edited(function_edit(ret=nested(20))))
    with pytest.raises(LoadError, match="nested more than"):
        load(edited(function_edit(ret=nested(500))))
    with pytest.raises(LoadError, match="nested more than"):
        Decoder(memoryview(b"\x91" * 1_000_000)).value()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xc1", "type 0xc1 is not used"),
        (b"\xd4\x05a", "type 0xd4 is not used"),
        (b"\xd6\xff\0\0\0\0", "type 0xd6 is not used"),
        (b"\xc7\x01\x05a", "type 0xc7 is not used"),
        (b"\x82\xa1a\1\xa1a\2", "key 'a' appears twice"),
        (b"\x81\1\2", "wanted a text as key, got int"),
        (b"\x81\xc4\1a\2", "wanted a text as key, got bytes"),
        (b"\xdd\xff\xff\xff\xff", "goes past the end"),
        (b"\xdf\x7f\xff\xff\xff" + bytes(100), "goes past the end"),
        (b"\xdb\xff\xff\xff\xff", "goes past the end"),
        (b"\xc6\0\0\1\0", "goes past the end"),
        (b"\xcb\0", "ends in the middle"),
        (b"\xda\0", "ends in the middle"),
        (b"\x93\1\2", "goes past the end"),
        (b"\xa2\xff\xfe", "not UTF-8"),
    ],
)
def test_msgpack_beyond_what_is_used_is_refused(data, message):
    with pytest.raises(LoadError, match=message):
        Decoder(memoryview(data)).value()


def test_the_decoder_agrees_with_msgpack():
    values = [
        None,
        [True, False, 0, 127, 128, 255, 256, 65535, 65536, 1 << 32, (1 << 64) - 1],
        [-1, -32, -33, -128, -129, -32769, -(1 << 31), -(1 << 63)],
        {"a": 1.5, "é" * 40: "x" * 300, "b": {"c": [], "d": {}}, "long": "y" * 70000},
        [b"", b"x" * 10, b"y" * 300, b"z" * 70000],
        list(range(40)),
        {str(i): i for i in range(70000)},
    ]
    for value in values:
        decoder = Decoder(memoryview(msgpack.packb(value)))
        assert decoder.value() == value
        decoder.end()
    assert Decoder(memoryview(msgpack.packb(1.5, use_single_float=True))).value() == 1.5


def test_bytes_left_over_are_refused():
    with pytest.raises(LoadError, match="1 bytes are left over"):
        load(golden_program().to_bytes() + b"\0")


def test_every_truncation_is_refused():
    data = golden_program().to_bytes()
    for size in range(0, len(data), 7):
        with pytest.raises(LoadError):
            load(data[:size])


# Files


def test_writing_is_atomic_and_leaves_no_drafts(tmp_path, monkeypatch):
    path = tmp_path / "ex.rvm"
    golden_program().export_library(path)
    before = path.read_bytes()
    large = ExecBuilder()
    with large.function("main", num_inputs=0):
        large.emit_ret(large.imm(1))
    broken = large.get()
    broken.constants = (object(),)
    with pytest.raises(KeyError):
        broken.export_library(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["ex.rvm"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes")
def test_the_file_gets_the_mode_that_the_umask_gives(tmp_path):
    path = tmp_path / "ex.rvm"
    former = os.umask(0o027)
    try:
        golden_program().export_library(path)
    finally:
        os.umask(former)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_missing_files_and_wrong_sources_are_named(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.rvm")
    with pytest.raises(VMTypeError, match="wanted a path or bytes, got BytesIO"):
        load(io.BytesIO())
    (tmp_path / "empty.rvm").write_bytes(b"")
    for mmap in (False, True):
        with pytest.raises(LoadError, match=r"empty\.rvm"):
            load(tmp_path / "empty.rvm", mmap=mmap)


def test_options_of_tvm_are_taken_and_others_refused(tmp_path):
    golden_program().export_library(tmp_path / "a.rvm", fcompile=None, workspace_dir="x")
    with pytest.raises(VMValueError, match="unknown options nonsense"):
        golden_program().export_library(tmp_path / "a.rvm", nonsense=1)


def test_load_module_tells_executables_from_kernel_libraries(tmp_path):
    golden_program().export_library(tmp_path / "a.rvm")
    Module(section(), entry_name="add").export_library(tmp_path / "b.rvm")
    assert type(load_module(tmp_path / "a.rvm")) is Executable
    assert type(load_module(str(tmp_path / "b.rvm"))) is Module
    (tmp_path / "c.rvm").write_bytes(b"neither")
    with pytest.raises(LoadError, match=r"c\.rvm"):
        load_module(tmp_path / "c.rvm")


# Looking inside


def test_needs_are_listed_without_linking(tmp_path):
    wanted = ("golden.minus_one", "golden.scale")
    ex = golden_program()
    path = tmp_path / "a.rvm"
    ex.export_library(path)
    assert ex.needs() == requirements(ex) == requirements(path) == wanted
    assert requirements(ex.to_bytes()) == wanted


def test_the_listing_resolves_names_and_constants():
    text = golden_program().as_text()
    assert "main(x: Tensor((n, 4), float32)) -> Tensor((n, 4), float32):  # 5 registers" in text
    assert "call  golden.scale                 in: %0, c[5]=tensor(float32, (4,)), c[6]=1.5" in text
    assert "c[2]=dim($0 * 16)" in text
    assert "if    %0  else: +4" in text


def test_python_like_text_shows_branches():
    b = ExecBuilder()
    with b.function("main", num_inputs=2, param_names=["cond", "x"]):
        otherwise, after = b.label(), b.label()
        b.emit_if(b.r(0), otherwise)
        b.emit_call("env.f", [b.r(1)], b.r(2))
        b.emit_goto(after)
        b.place(otherwise)
        b.emit_call("env.g", [b.r(1), np.zeros(2, "int8")], b.r(2))
        b.place(after)
        b.emit_call("vm.builtin.kill_object", [b.r(1)])
        b.emit_ret(b.r(2))
    assert b.get().as_python() == (
        "const_0: tensor(int8, (2,))\n\n\n"
        "def main(cond, x):\n"
        "    if cond:\n"
        "        r2 = env.f(x)\n"
        "    else:\n"
        "        r2 = env.g(x, const_0)\n"
        "    del x\n"
        "    return r2\n"
    )


def test_python_like_text_shows_loops_as_jumps():
    b = ExecBuilder()
    with b.function("main", num_inputs=1, param_names=["n"]):
        top, end = b.label(), b.label()
        b.place(top)
        b.emit_if(b.r(0), end)
        b.emit_call("env.less", [b.r(0)], b.r(0))
        b.emit_goto(top)
        b.place(end)
        b.emit_ret(b.r(0))
    assert b.get().as_python() == (
        "def main(n):\n  L0:\n    if n:\n        n = env.less(n)\n        goto L0\n    return n\n"
    )


def test_stats_count_everything():
    text = with_kernels().stats()
    assert "Globals (#1): [main]" in text
    assert "Kernels (#1): [add]" in text
    assert "Instructions (#2): call 1, ret 1" in text
    assert "Native code: " in text
    text = golden_program().stats()
    assert "Packed functions (#2): [golden.scale, golden.minus_one]" in text
    assert "tensor 4" in text


def test_struct_infos_round_trip_as_plain_data():
    for info in golden_program().functions[0].params + golden_program().constants[:1]:
        if isinstance(info, (NDArray, str, ShapeTuple)):
            continue
        assert info_from_plain(info_to_plain(info)) == info


def test_what_is_stored_with_its_kind_is_not_read_without():
    info = TensorInfo(DataType("float32"), 2)
    assert TensorInfo.from_plain(info.to_plain()) == info
    with pytest.raises(LoadError, match="TensorInfo: wanted a list that begins with 'tensor'"):
        TensorInfo.from_plain(info.to_plain()[1:])


def test_the_executable_runs_by_itself_as_a_module():
    ex = with_kernels()
    out = array(np.zeros(2, "float32"))
    ex["main"](np.ones(2, "float32"), np.ones(2, "float32"), out)
    assert ex.mod is ex.mod
    assert ex.mod.implements_function("main")
    assert ex.jit() is ex
    np.testing.assert_array_equal(out.numpy(), [2, 2])
    assert "1 functions (main), 7 kernels" in repr(ex)


def test_files_of_all_sections_can_be_made_without_kernels():
    empty = KernelSection((), b"", ())
    b = ExecBuilder()
    b.add_kernels(empty)
    with b.function("main", num_inputs=0):
        b.emit_ret(b.imm(3))
    assert VirtualMachine(load(b.get().to_bytes()))["main"]() == 3


def test_constants_with_gaps_are_copied_one_by_one(monkeypatch):
    """Each goes when its copy is there, and so its place in memory may be that of another."""
    b, bases = ExecBuilder(), []
    for k in range(3):
        base = np.full((600, 500), k, "float32")
        bases.append(weakref.ref(base))
        with b.function(f"f{k}", 0):
            b.emit_ret(b.convert_constant(from_numpy(base.T)))
        del base
    left, copy = [], gaps.aligned_copy

    def seen(array, **into):
        left.append(sum(base() is not None for base in bases))
        return copy(array, **into)

    monkeypatch.setattr(gaps, "aligned_copy", seen)
    monkeypatch.setattr(cpu_budget, "usable_cores", lambda: 1)
    vm = VirtualMachine(b.get())
    assert left == [3, 2, 1]
    for k in range(3):
        got = vm[f"f{k}"]().numpy()
        assert got.shape == (500, 600)
        assert got.flags.c_contiguous
        assert (got == k).all()
    for k in range(3, 6):
        with b.function(f"f{k}", 0):
            b.emit_ret(b.convert_constant(from_numpy(np.full((600, 500), k, "float32").T)))
    vm = VirtualMachine(b.get())
    assert [float(vm[f"f{k}"]().numpy().max()) for k in range(6)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("shared", [1, 1 << 25])
@pytest.mark.parametrize("cores", [1, 3])
def test_constants_with_gaps_may_be_copied_while_others_do_something(monkeypatch, cores, shared):
    monkeypatch.setattr(cpu_budget, "usable_cores", lambda: cores)
    monkeypatch.setattr(gaps, "_SHARED_BYTES", shared)
    b = ExecBuilder()
    for k in range(5):
        with b.function(f"f{k}", 0):
            b.emit_ret(b.convert_constant(from_numpy(np.full((60, 50), k, "float32").T)))
    ex = b.get(wait=False)
    b.finish()
    b.finish()
    vm = VirtualMachine(ex)
    assert [float(vm[f"f{k}"]().numpy().max()) for k in range(5)] == [0, 1, 2, 3, 4]

    def fails(*given, **named):
        raise MemoryError("none left")

    with b.function("f5", 0):
        b.emit_ret(b.convert_constant(from_numpy(np.full((60, 50), 9, "float32").T)))
    monkeypatch.setattr(gaps, "aligned_copy", fails)
    b.get(wait=False)
    with pytest.raises(MemoryError, match="none left"):
        b.finish()


@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize(
    "held",
    [
        lambda constant: None,
        lambda constant: constant,
        lambda constant: constant.array,
        lambda constant: constant.array[3:],
        lambda constant: memoryview(constant.array),
        lambda constant: constant.array.base,
        weakref.ref,
        lambda constant: weakref.ref(constant.array),
    ],
)
def test_a_copy_gets_the_memory_of_the_weight_before_if_nobody_holds_that(monkeypatch, held, pages):
    monkeypatch.setattr(gaps, "usable_cores", lambda: 1)
    monkeypatch.setattr(cpu_budget, "usable_cores", lambda: 1)
    b, kept, places = ExecBuilder(), [], []
    for k in range(4):
        array = aligned_empty((40, 128), np.dtype("float32"))
        if pages:
            memory = np.ndarray((array.nbytes,), np.uint8, Pages(-1, array.nbytes))
            array = memory.view("float32").reshape(40, 128)
        array[...] = k
        places.append(array.ctypes.data)
        weight = from_numpy(array.reshape(40, 4, 32).transpose(1, 0, 2))
        # A part of another's memory, and what has gaps itself, are nobody's to give.
        part = from_numpy(np.full((50, 128), k + 10, "float32").T[:, 4:])
        kept.append(held(weight))
        with b.function(f"f{k}", 0):
            b.emit_ret(b.convert_constant(weight))
        with b.function(f"part{k}", 0):
            b.emit_ret(b.convert_constant(part))
        del array, weight, part
        memory = None
    ex = b.get(wait=False)
    kept = [each() if type(each) is weakref.ref else each for each in kept]
    b.finish()
    vm = VirtualMachine(ex)
    for k in range(4):
        assert vm[f"f{k}"]().numpy().shape == (4, 40, 32)
        assert (vm[f"f{k}"]().numpy() == k).all()
        assert (vm[f"part{k}"]().numpy() == k + 10).all()
        if kept[k] is not None:
            still = ctypes.string_at(places[k], 40 * 128 * 4)
            assert (np.frombuffer(still, "float32") == k).all()
    weights = [c.array for c in ex.constants if c.shape == (4, 40, 32)]
    used_again = [a.ctypes.data in places for a in weights]
    assert used_again == [False, *[kept[0] is None] * 3]


def test_where_counts_tell_nothing_no_memory_is_used_again(monkeypatch):
    monkeypatch.setattr(result_memory, "COUNTS_TELL", False)
    monkeypatch.setattr(gaps, "usable_cores", lambda: 1)
    b, places = ExecBuilder(), []
    for k in range(3):
        array = aligned_empty((40, 128), np.dtype("float32"))
        array[...] = k
        places.append(array.ctypes.data)
        with b.function(f"f{k}", 0):
            b.emit_ret(b.convert_constant(from_numpy(array.reshape(40, 4, 32).swapaxes(0, 1))))
        del array
    constants = b.get(wait=False).constants
    assert not {c.array.ctypes.data for c in constants}.intersection(places)
    b.finish()
    assert [float(c.array.max()) for c in constants] == [0, 1, 2]


def test_what_this_user_signed_is_read_by_msgpack_and_gives_the_same(monkeypatch):
    """Of a stranger's file every value is looked at; a signature with an edit inside is none."""
    data = with_a_tensor()[0].to_bytes()
    counted, head = [], Decoder._head

    def counting(self):
        counted.append(self.position)
        return head(self)

    monkeypatch.setattr(Decoder, "_head", counting)
    ours = load(data)
    signed = len(counted)
    # As long as the signature, so that all stands where it stood.
    strangers = load(data[:-32] + bytes(32), trust="native")
    assert len(counted) - signed > 2 * signed
    assert ours.trusted
    assert ours.to_bytes() == strangers.to_bytes() == data
    place = data.index(b"version") + 7
    assert data[place] <= FORMAT_VERSION
    with pytest.raises(LoadError, match="format version 99"):
        load(data[:place] + bytes([99]) + data[place + 1 :])


@pytest.mark.parametrize(
    "damage", [b"\xc1", b"\xd4\x01\x00", b"\xdd\xff\xff\xff\xff", b"\x91" * 3000]
)
def test_what_cannot_be_skipped_is_not_vouched_for(damage):
    """What msgpack cannot go past is refused by the reader that tells why."""
    whole = with_a_tensor()[0].to_bytes()
    tail = len(fileformat._BEFORE_SIGNATURE) + 32
    begin = whole.index(b"provenance") + len("provenance")
    for data in (whole[:begin] + damage + whole[begin:], whole[:begin] + damage + whole[-tail:]):
        assert not fileformat._vouched(memoryview(data))
        with pytest.raises(LoadError):
            load(data)


def test_weights_are_not_read_to_know_who_signed(monkeypatch):
    program = with_kernels()
    constants = [*program.constants, array(np.zeros(1 << 20, "float32"))]
    data = Executable(program.functions, constants, program.code, program.kernels).to_bytes()
    touched, read = [], reader._Rest.read

    def seen(self, size):
        part = read(self, size)
        touched.append(len(part))
        return part

    monkeypatch.setattr(reader._Rest, "read", seen)
    assert load(data).trusted
    assert 0 < sum(touched) < len(data) // 8
