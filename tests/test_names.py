"""The names that TVM's users know (tests/names.txt), by their TVM paths: each exists, or stands in
the package's table of absent names with its reason; none does both.
"""

import importlib
import pathlib
import re
import types

import pytest

import relaxvm
from relaxvm import _absent, _aliases

HERE = pathlib.Path(__file__).parent


def read_names(text):
    """{TVM's module or class: its names} of a file like tests/names.txt."""
    names, path = {}, None
    for line in text.splitlines():
        if line.startswith(" "):
            words = (re.sub(r"\(\d+\)$", "", word) for word in line.split())
            names[path] = [*names.get(path, ()), *words]
        elif line and not line.startswith("#"):
            path = line.rstrip(":")
    return names


NAMES = read_names((HERE / "names.txt").read_text(encoding="utf-8"))
# Modules whose capital names are classes; elsewhere they may be functions, as passes are.
CLASSES = {f"tvm.{m}" for m in "ir relax relax.expr tir tir.stmt tir.expr tir.function".split()}
# What can not be called.
VALUES = {"tvm.te.AXIS_SEPARATOR"}
MODULES = """
    script script.ir script.relax script.tir script.parser script.parser.ir script.parser.relax
    script.parser.tir script.ir_builder script.ir_builder.base script.ir_builder.ir
    script.ir_builder.relax script.ir_builder.tir ir ir.base ir.container ir.expr ir.instrument
    ir.module ir.op ir.transform relax relax.analysis relax.binding_rewrite relax.block_builder
    relax.expr relax.expr_functor relax.frontend relax.frontend.nn relax.frontend.nn.core
    relax.frontend.nn.modules relax.frontend.nn.op relax.frontend.nn.spec relax.frontend.nn.visitor
    relax.op relax.pipeline relax.struct_info relax.transform relax.transform.transform relax.utils
    relax.vm relax.vm_build tir tir.analysis tir.buffer tir.expr tir.function tir.functor
    tir.ir_builder tir.op tir.schedule tir.schedule.schedule tir.schedule.trace tir.stmt
    tir.stmt_functor tir.transform s_tir.schedule s_tir.transform tirx.schedule.schedule
    tir.transform.transform tirx s_tir te te.tensor arith arith.analyzer target target.target
    testing error base ffi runtime runtime.container runtime.device runtime.module runtime.ndarray
    runtime.vm runtime.relax_vm nd transform instrument container driver
"""


def look_up(path):
    """What stands at a TVM path: a module, or what a class has."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        parent, _, name = path.rpartition(".")
        if not parent:
            raise
        return getattr(look_up(parent), name)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("path", sorted(NAMES))
def test_each_name_exists_or_has_a_reason(path, tvm):
    missing, both = [], []
    for name in NAMES[path]:
        try:
            value = look_up(f"{path}.{name}")
        except (ImportError, AttributeError):
            value = None
        known = _absent.reason(f"{path}.{name}")
        if value is None and known is None:
            missing.append(name)
        if value is not None and known is not None:
            both.append(name)
    assert not missing, "neither there nor in relaxvm/_absent.py"
    assert not both, "there now: remove them from relaxvm/_absent.py"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("path", sorted(NAMES))
def test_each_name_is_of_its_kind(path, tvm):
    """Nodes are classes; whatever else a module has can be called, or is a module."""
    there = [n for n in NAMES[path] if _absent.reason(f"{path}.{n}") is None]
    if not there or not isinstance(look_up(path), types.ModuleType):
        return
    classes = [n for n in there if path in CLASSES and n[0].isupper()]
    assert not [n for n in classes if not isinstance(look_up(f"{path}.{n}"), type)]
    # Intrinsics are known by their names, which are text.
    plain = [n for n in there if f"{path}.{n}" not in VALUES and not n.endswith("_INTRIN")]
    kinds = [look_up(f"{path}.{n}") for n in plain]
    assert not [
        n for n, v in zip(plain, kinds) if not (callable(v) or isinstance(v, types.ModuleType))
    ]


def test_no_absent_name_exists(tvm):
    there = []
    for modules in _absent.ABSENT.values():
        for path, names in modules.items():
            for name in names.split():
                full = ".".join(part for part in ("tvm", path, name) if part and part != "*")
                try:
                    look_up(full)
                except (ImportError, AttributeError):
                    continue
                there.append(full)
    assert not there, "remove them from relaxvm/_absent.py"


def test_no_name_has_two_reasons():
    entries = [
        _aliases.real_name(f"tvm.{path}.{name}")
        for modules in _absent.ABSENT.values()
        for path, names in modules.items()
        for name in names.split()
    ]
    assert len(entries) == len(set(entries))


def test_errors_of_absent_names_give_the_reason_and_the_page(tvm):
    """By attribute and by `from ... import`; what a class does not have, Python itself says."""
    for why, modules in _absent.ABSENT.items():
        for path, names in modules.items():
            for name in names.split():
                if name == "*":
                    path, _, name = path.rpartition(".")
                full = f"tvm.{path}".rstrip(".")
                try:
                    module = look_up(full)
                except (ImportError, AttributeError):
                    # A part of what is absent itself.
                    assert _absent.reason(full) is not None
                    continue
                if not isinstance(module, types.ModuleType) or name.startswith("_"):
                    continue
                for error, text in (
                    (AttributeError, f"import {full} as m; m.{name}"),
                    (ImportError, f"from {full} import {name}"),
                ):
                    with pytest.raises(error) as caught:
                        exec(text, {})
                    said = str(caught.value)
                    assert name in said and why in said and _absent.PAGE in said


@pytest.mark.parametrize("path", MODULES.split())
def test_module_paths_are_imported_and_are_attributes(path, tvm):
    module = importlib.import_module(f"tvm.{path}")
    assert module is importlib.import_module(f"relaxvm.{path}")
    assert module.__name__.startswith("relaxvm.")
    if path not in ("relax.transform.transform", "tir.transform.transform", "runtime.device"):
        found = relaxvm
        for part in path.split("."):
            found = getattr(found, part)
        assert found is module


@pytest.mark.parametrize("path", ["", "ir", "tir", "relax", "runtime", "script", "te", "relax.op"])
def test_a_wrong_name_is_an_error_with_the_nearest_one(path, tvm):
    module = look_up(f"tvm.{path}".rstrip("."))
    with pytest.raises(AttributeError, match=r"no_such_name'.*docs/tvm_names\.md"):
        _ = module.no_such_name
    right = next(n for n in module.__all__ if n[0].isalpha() and len(n) > 4)
    wrong = right[:-1] + "_" + right[-1]
    with pytest.raises(AttributeError, match=f"the nearest name is {right!r}"):
        getattr(module, wrong)
    with pytest.raises(ImportError, match=f"{wrong}.*the nearest name is {right!r}"):
        exec(f"from {module.__name__} import {wrong}", {})


def test_a_wrong_module_is_an_error_with_the_nearest_one(tvm):
    with pytest.raises(ModuleNotFoundError, match=r"tvm\.relax\.transfrom'.*'transform'") as caught:
        importlib.import_module("tvm.relax.transfrom")
    assert caught.value.name == "tvm.relax.transfrom"
    with pytest.raises(ModuleNotFoundError, match="comes with the importer"):
        importlib.import_module("tvm.relax.frontend.torch")


def test_the_page_is_up_to_date():
    page = HERE.parent / _absent.PAGE
    assert page.read_text(encoding="utf-8") == _absent.as_markdown(), (
        "run python -m relaxvm._absent --markdown and review the difference"
    )
