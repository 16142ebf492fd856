"""Kernels as units: equal ones shared, found on disk, compiled by processes, kept in files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace

import msgpack
import numpy as np
import pytest

import relaxvm
from relaxvm import runtime, te
from relaxvm.base import (
    CodegenError,
    CpuModel,
    LoadError,
    ScheduleError,
    VerifyError,
    VMTypeError,
)
from relaxvm.ir import IRModule, PassContext, save_msgpack
from relaxvm.runtime import Module
from relaxvm.script import from_source
from relaxvm.target import compile_kernels, rebuild_kernels
from relaxvm.target.llvm import Machine, build, fingerprint, units
from relaxvm.target.llvm.portable import unpack_portable
from relaxvm.tir.schedule import TensorIntrin
from relaxvm.tir.schedule.plans import DefaultSchedule
from relaxvm.tir.schedule.primitives import intrin

MACHINE = Machine("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma")
CPU = CpuModel("x86_64", 256, 16, True, frozenset({"avx2", "fma"}))


def scaled(factor, a="A", b="B", size=8):
    """b[i] = a[i] * factor"""
    given = te.placeholder((size,), "float32", a)
    made = te.compute((size,), lambda i: given[i] * te.const(factor, "float32"), b)
    return te.create_prim_func([given, made])


def many(count):
    return IRModule({f"scale{i}": scaled(float(i)) for i in range(count)})


@pytest.fixture
def compiled(monkeypatch):
    """The names of the units compiled, in order."""
    names = []
    original = build.compile_units

    def compile_units(missing, settings):
        names.extend(next(iter(unit.functions)).name_hint for unit in missing)
        return original(missing, settings)

    monkeypatch.setattr(build, "compile_units", compile_units)
    return names


def run(section, name, factor, size=8):
    x, y = np.arange(size, dtype="float32"), np.zeros(size, "float32")
    Module(section)[name](x, y)
    assert np.array_equal(y, x * np.float32(factor))


# -- equal kernels ---------------------------------------------------------------------------------


def test_equal_kernels_are_compiled_once_and_called_by_all_their_names(compiled):
    mod = IRModule({"one": scaled(2.0), "two": scaled(3.0), "three": scaled(2.0)})
    section = compile_kernels(mod).section
    assert compiled == ["one", "two"] or compiled == []
    assert section.names == ("one", "two", "three")
    one, two, three = section.infos
    assert one.symbol == three.symbol != two.symbol
    assert len(section.native[0].objects) == 2
    for name, factor in (("one", 2), ("two", 3), ("three", 2)):
        run(section, name, factor)
    again = rebuild_kernels(section.portable, section.names)
    for name, factor in (("one", 2), ("two", 3), ("three", 2)):
        run(again, name, factor)


def test_kernels_with_other_parameter_names_are_not_shared():
    section = compile_kernels(IRModule({"f": scaled(2.0), "g": scaled(2.0, a="X")})).section
    assert [info.params[0].name for info in section.infos] == ["A", "X"]
    f, g = section.infos
    assert f.symbol != g.symbol
    with pytest.raises(VMTypeError, match="g.*X"):
        Module(section)["g"](np.zeros(8, "int32"), np.zeros(8, "float32"))


def test_the_symbol_says_name_and_content_whatever_number_the_name_has():
    first = compile_kernels(IRModule({"scale": scaled(2.0)})).section.infos[0]
    other = compile_kernels(IRModule({"scale_7": scaled(2.0)})).section.infos[0]
    assert re.fullmatch("relaxvm_kernel_scale_[0-9a-f]{16}", first.symbol)
    assert other.symbol == first.symbol
    assert other.name == "scale_7"


CALLS = """
from relaxvm.script import ir as I, tir as T
@I.ir_module
class M:
    @T.prim_func(private=True)
    def square(x: T.float32) -> T.float32:
        return x * x
    @T.prim_func
    def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            B[i] = M.square(A[i])
    @T.prim_func
    def other(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            B[i] = M.square(A[i]) + T.float32(1)
    @T.prim_func
    def alone(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            B[i] = A[i]
"""


def test_functions_that_call_each_other_are_one_unit():
    mod = from_source(CALLS)
    parts = units.split(mod)
    assert [[gv.name_hint for gv in u.functions] for u in parts] == [
        ["square", "main", "other"],
        ["alone"],
    ]
    section = compile_kernels(mod).section
    x = np.arange(8, dtype="float32")
    for made in (section, rebuild_kernels(section.portable, section.names)):
        assert len(made.native[0].objects) == 2
        for name, expected in (("main", x * x), ("other", x * x + 1), ("alone", x)):
            y = np.zeros(8, "float32")
            Module(made)[name](x, y)
            assert np.array_equal(y, expected)


# -- the cache -------------------------------------------------------------------------------------


def test_what_is_on_disk_is_not_scheduled_lowered_or_compiled(cache, monkeypatch, compiled):
    first = compile_kernels(many(3), schedule=DefaultSchedule(cpu=CPU)).section
    assert compiled == ["scale0", "scale1", "scale2"]

    def never(*args, **options):
        raise AssertionError("called")

    for name in ("lower_module", "verify_well_formed", "generate", "compile_text"):
        monkeypatch.setattr(units, name, never)
    second = compile_kernels(many(3), schedule=DefaultSchedule(cpu=CPU)).section
    assert second == first
    assert compiled == ["scale0", "scale1", "scale2"]
    run(second, "scale2", 2)


def test_a_kernel_is_found_again_in_another_module(cache, compiled):
    compile_kernels(many(2))
    section = compile_kernels(IRModule({"scale_9": scaled(1.0), "new": scaled(7.0)})).section
    assert compiled == ["scale0", "scale1", "new"]
    run(section, "scale_9", 1)


SETTINGS = units.Settings(MACHINE, False, DefaultSchedule(cpu=CPU), PassContext())


@pytest.mark.parametrize(
    "other",
    [
        replace(SETTINGS, machine=replace(MACHINE, triple="aarch64-unknown-linux-gnu")),
        replace(SETTINGS, machine=replace(MACHINE, cpu="znver3")),
        replace(SETTINGS, machine=replace(MACHINE, features="+avx2")),
        replace(SETTINGS, machine=replace(MACHINE, opt_level=1)),
        replace(SETTINGS, confined=True),
        replace(SETTINGS, schedule=None),
        replace(SETTINGS, schedule=DefaultSchedule(cpu=replace(CPU, l2_bytes=1))),
        replace(SETTINGS, schedule=DefaultSchedule(cpu=replace(CPU, cores=7))),
        replace(SETTINGS, schedule=DefaultSchedule(cpu=replace(CPU, features=frozenset({"avx2"})))),
        replace(SETTINGS, context=PassContext(opt_level=3)),
        replace(SETTINGS, context=PassContext(disabled_pass=["DefaultSchedule"])),
        replace(SETTINGS, context=PassContext(required_pass=["DefaultSchedule"])),
        replace(SETTINGS, context=PassContext(config={"numerics": "exact"})),
    ],
)
def test_everything_that_matters_is_in_the_key(cache, other):
    assert SETTINGS.key() is not None
    assert other.key() != SETTINGS.key()


@pytest.mark.parametrize("name", ["__version__", "fingerprint", "producer"])
def test_who_compiles_is_in_the_key(cache, monkeypatch, name):
    before = SETTINGS.key()
    monkeypatch.setattr(units, name, "0.0" if name == "__version__" else lambda: "another")
    assert SETTINGS.key() != before


@pytest.mark.parametrize(
    "fn", [scaled(3.0), scaled(2.0, size=9), scaled(2.0, b="C"), scaled(2.0).with_attr("x", 1)]
)
def test_the_function_and_its_names_are_in_the_key(fn):
    (one,), (other,) = units.split(IRModule({"f": scaled(2.0)})), units.split(IRModule({"f": fn}))
    assert one.key("") != other.key("")
    assert one.tag != other.tag


def test_attributes_written_alike_are_told_apart():
    values = [1, 1.0, True, "1", 0.0, -0.0, None, "", (), (1,), (1.0,), (True,), ((1,),), {"a": 1}]
    parts = units.split(
        IRModule({f"f{i}": scaled(2.0).with_attr("x", v) for i, v in enumerate(values)})
    )
    assert len({unit.key("") for unit in parts}) == len(values)


@pytest.mark.parametrize("name", ["a b", "a\nb", 'a"b', "a@b", "../..", "\u00e9", "x" * 5000])
def test_any_text_is_a_name(cache, name):
    for _ in range(2):
        run(compile_kernels(IRModule({name: scaled(2.0)})).section, name, 2)


@pytest.mark.parametrize("name", ["a\0b", "\udc80"])
def test_names_that_are_no_text_are_refused(name):
    with pytest.raises(VerifyError, match="NUL|half a character"):
        compile_kernels(IRModule({name: scaled(2.0)}))


@pytest.mark.slow
def test_the_key_is_the_same_in_every_process():
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_target_units as t\n"
        "t.units.fingerprint = lambda: 'these'\n"
        "print(repr(t.SETTINGS.key()), t.units.split(t.many(2))[1].tag)"
    )
    folder = os.path.dirname(__file__)
    root = os.path.dirname(os.path.dirname(relaxvm.__file__))
    told = [
        subprocess.run(
            [sys.executable, "-c", program, folder],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1] != b""


def test_sources_that_change_are_another_compiler_and_while_it_runs_no_known_one(tmp_path):
    (tmp_path / "tir").mkdir()
    file = tmp_path / "tir" / "a.py"
    file.write_text("x = 1")
    os.utime(file, (1000, 1000))
    before = fingerprint._digest(tmp_path, 2000.0)
    assert before is not None
    assert fingerprint._digest(tmp_path, 2000.0) == before
    # The same size and the same time: some installers give every file the same one.
    file.write_text("x = 2")
    os.utime(file, (1000, 1000))
    assert fingerprint._digest(tmp_path, 2000.0) not in (before, None)
    os.utime(file, (3000, 3000))
    assert fingerprint._digest(tmp_path, 2000.0) is None
    # Beyond tomorrow: dated by somebody, and still the same compiler.
    file.write_text("x = 1")
    os.utime(file, (1e10, 1e10))
    assert fingerprint._digest(tmp_path, 2000.0) == before


def test_a_compiler_without_sources_has_no_fingerprint_but_that_of_its_bytecode(tmp_path):
    assert fingerprint._digest(tmp_path, 2000.0) is None
    (tmp_path / "tir" / "__pycache__").mkdir(parents=True)
    (tmp_path / "tir" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"beside a source")
    assert fingerprint._digest(tmp_path, 2000.0) is None
    file = tmp_path / "tir" / "a.pyc"
    file.write_bytes(b"instead of one")
    os.utime(file, (1000, 1000))
    assert fingerprint._digest(tmp_path, 2000.0) is not None


@pytest.mark.parametrize("asked_for", [True, False])
def test_a_built_in_intrinsic_that_somebody_replaced_is_another_compiler(
    cache, monkeypatch, asked_for
):
    name, make = next(iter(intrin._MAKERS.items()))
    made = TensorIntrin(*make())
    monkeypatch.setattr(intrin, "_REGISTERED", {})
    monkeypatch.setattr(intrin, "_BUILTIN", {})
    if asked_for:
        assert TensorIntrin.get(name) is TensorIntrin.get(name)
    with pytest.raises(ScheduleError, match="registered already"):
        TensorIntrin.register(name, made.desc, made.impl)
    assert SETTINGS.key() is not None
    TensorIntrin.register(name, made.desc, made.impl, override=True)
    assert SETTINGS.key() is None


def test_without_a_fingerprint_nothing_is_taken_or_kept(cache, monkeypatch, compiled):
    monkeypatch.setattr(units, "fingerprint", lambda: None)
    compile_kernels(many(1))
    compile_kernels(many(1))
    assert compiled == ["scale0", "scale0"]


def test_the_cache_can_be_turned_off(cache, monkeypatch, compiled):
    monkeypatch.setenv("RELAXVM_CACHE", "0")
    compile_kernels(many(1))
    compile_kernels(many(1))
    assert compiled == ["scale0", "scale0"]


@pytest.mark.parametrize("how", ["garbage", "cut", "empty"])
def test_damaged_entries_are_compiled_again(cache, compiled, how):
    first = compile_kernels(many(2)).section
    files = sorted((cache / "objects").iterdir())
    assert len(files) == 2
    for file in files:
        whole = file.read_bytes()
        file.write_bytes({"garbage": b"\xff" * len(whole), "cut": whole[:-9], "empty": b""}[how])
    second = compile_kernels(many(2)).section
    assert compiled == ["scale0", "scale1"] * 2
    assert second.native[0].objects == first.native[0].objects
    compile_kernels(many(2))
    assert len(compiled) == 4


def test_instruments_see_every_pass_whatever_is_on_disk(cache, compiled):
    compile_kernels(many(3), schedule=DefaultSchedule(cpu=CPU))

    class Watch:
        def __init__(self):
            self.seen = []

        def run_before_pass(self, mod, info):
            self.seen.append((info.name, len(mod)))

    watch = Watch()
    with PassContext(instruments=[watch]):
        section = compile_kernels(many(3), schedule=DefaultSchedule(cpu=CPU)).section
    assert ("DefaultSchedule", 3) in watch.seen
    assert len([name for name, _ in watch.seen if name.endswith("LowerIntrin")]) == 1
    run(section, "scale2", 2)


def test_code_for_functions_that_this_process_lacks_is_not_taken(cache, monkeypatch, compiled):
    mod = from_source("""
from relaxvm.script import ir as I, tir as T
@I.ir_module
class M:
    @T.prim_func
    def main(A: T.Buffer((1,), "float64")):
        A[0] = T.call_extern("float64", "cbrt", A[0])
""")
    section = compile_kernels(mod).section
    x = np.array([8.0])
    Module(section)["main"](x)
    assert x[0] == pytest.approx(2.0)
    compile_kernels(mod)
    assert compiled == ["main"]
    monkeypatch.setattr(units, "has_symbol", lambda name: False)
    with pytest.raises(CodegenError, match="cbrt"):
        compile_kernels(mod)


def test_functions_of_this_process_are_known_before_llvm_has_linked_anything():
    code = "from relaxvm.target.llvm.units import has_symbol as h; print(h('cbrt'), h('_handle'))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "False"]


def test_the_texts_are_made_from_what_was_built(cache):
    for _ in range(2):
        made = compile_kernels(IRModule({"mm": scaled(2.0)}), schedule=DefaultSchedule(cpu=CPU))
        assert "relaxvm_kernel_mm" in made.sources["ll"]
        assert "relaxvm_kernel_mm" in made.sources["asm"]


# -- files -----------------------------------------------------------------------------------------


def test_a_library_of_several_objects_survives_its_file():
    made = Module(compile_kernels(many(2)).section)
    data = made.to_bytes()
    assert msgpack.unpackb(data)["format"] == 2
    for trust in ("native", "portable"):
        run(Module.from_bytes(data, trust).section, "scale1", 1)
    older = msgpack.packb({**msgpack.unpackb(data), "format": 1})
    with pytest.raises(LoadError, match="several objects"):
        Module.from_bytes(older, "native")
    single = Module(compile_kernels(many(1)).section).to_bytes()
    assert msgpack.unpackb(single)["format"] == 1


def _damaged(change):
    section = compile_kernels(many(2)).section.to_plain()
    change(section["native"][0])
    return section


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda code: code.update(more=[]), "more are left out"),
        (lambda code: code.update(more=b"x"), "more: wanted a list, got bytes"),
        (lambda code: code.update(more=[3]), "more: wanted bytes, got int"),
        (lambda code: code.update(more=[b""]), "object file"),
        (lambda code: code.update(more=[code["more"][0][:-1]]), "damaged"),
        (lambda code: code.update(more=code["more"] * 2), "damaged"),
        (lambda code: code.pop("more"), "damaged"),
    ],
)
def test_further_objects_are_checked(change, message):
    with pytest.raises(LoadError, match=message):
        runtime.KernelSection.from_plain(_damaged(change))


def _packed(**changes):
    document = save_msgpack(IRModule({"f": scaled(2.0)}))
    pair = save_msgpack(from_source(CALLS))
    plain = {
        "relaxvm_kernels": 1,
        "units": [document, pair],
        "kernels": [["a", 0, "f"], ["b", 0, "f"], ["main", 1, "main"]],
    }
    return msgpack.packb({**plain, **changes})


def test_portable_kernels_are_found_by_all_their_names():
    mod = unpack_portable(_packed())
    assert sorted(gv.name_hint for gv in mod) == ["a", "alone", "b", "main", "other", "square"]


@pytest.mark.parametrize(
    "changes",
    [
        {"relaxvm_kernels": 2},
        {"units": 3},
        {"units": [3]},
        {"units": [b""]},
        {"units": [b"\xc1"]},
        {"units": [save_msgpack(scaled(2.0))]},
        {"kernels": 3},
        {"kernels": [3]},
        {"kernels": [["a", 2, "f"]]},
        {"kernels": [["a", -1, "f"]]},
        {"kernels": [["a", True, "f"]]},
        {"kernels": [["a", 0, "g"]]},
        {"kernels": [["a", 0, "f"], ["a", 0, "f"]]},
        {"kernels": [["main", 0, "f"]]},
        {"kernels": [["main", 1, "other"]]},
        {"kernels": [["a", 0, "f", 1]]},
    ],
)
def test_hostile_portable_kernels_are_refused(changes):
    with pytest.raises(LoadError):
        rebuild_kernels(_packed(**changes), ("main",))


def test_a_portable_form_cut_anywhere_is_refused():
    whole = _packed()
    for size in range(1, len(whole), 37):
        with pytest.raises(LoadError):
            rebuild_kernels(whole[:size], ("a",))
