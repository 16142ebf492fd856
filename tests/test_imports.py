"""The house's one-way streets, read from the source with `ast`, and what an import really loads."""

import ast
import importlib
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent / "relaxvm"
# room -> rooms it may import from
ALLOWED = {
    "base": set(),
    "runtime": {"base"},
    "contrib": {"base", "runtime"},
    "ir": {"base"},
    "arith": {"base", "ir"},
    "tir": {"base", "ir", "arith", "runtime"},
    "te": {"base", "ir", "arith", "tir"},
    "target": {"base", "ir", "arith", "tir", "runtime"},
    "meta_schedule": {"base", "runtime", "ir", "tir", "te", "target"},
    "relax": {"base", "ir", "arith", "tir", "te", "target", "runtime", "meta_schedule"},
    "topi": {"base", "ir", "arith", "tir", "te", "relax"},
    "script": {"base", "ir", "arith", "tir", "te", "target", "relax", "runtime"},
    "quantize": {"base", "ir", "relax", "runtime"},
    "relay": {"base", "ir", "arith", "tir", "te", "target", "relax", "runtime", "topi", "quantize"},
}
# Where the house's list of passes is run, and who sees it: `relax.build` and `relay.build`; and
# what runs models to quantise them.
_SEE_IT = (
    *("relax/vm_build.py", "relay/build_module.py", "relay/vm.py"),
    *("quantize/costs.py", "quantize/observed.py"),
)
SEES_TOP_LEVEL = {file: {"pipeline"} for file in _SEE_IT}
# Imports from a room's file where the room's face does not have the name: each with the reason.
PAST_THE_FACE = {
    "relaxvm.relax.op.families": "what operators are made of, for the same functions of tensors",
    "relaxvm.relax.op.lower": "what operators are made of, for the same functions of tensors",
    "relaxvm.relax.op.nn.layout": "what operators are made of, for the same functions of tensors",
    "relaxvm.relax.op.record": "what operators are made of, for the same functions of tensors",
}
# What text from strangers may name, and functions that are made by lambdas. Elsewhere a public name
# is one without `_`.
LISTS_ITS_NAMES = {
    "__init__.py",
    "script/ir.py",
    "script/relax.py",
    "script/tir.py",
    "topi/__init__.py",
    "topi/image.py",
    "topi/nn.py",
    "topi/utils.py",
}
HEAVY = {
    *("llvmlite", "ml_dtypes", "pygments", "pytest", "torch", "onnx", "onnxruntime", "rich"),
    *("argcomplete", "PIL", "openvino", "onnx2torch", "sympy", "sklearn", "ray"),
    "IPython",
}


def room_of(path: pathlib.Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else ""


def imported_modules(path: pathlib.Path, tree: ast.AST):
    """(absolute module name, node, whether inside a function) for every import in a file."""
    package = ["relaxvm", *path.relative_to(ROOT).parts[:-1]]
    functions = [
        n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    inner = {id(n) for f in functions for n in ast.walk(f)}
    for n in ast.walk(tree):
        if isinstance(n, ast.Import):
            for alias in n.names:
                yield alias.name, n, id(n) in inner
        elif isinstance(n, ast.ImportFrom):
            base = package[: len(package) - n.level + 1] if n.level else []
            module = ".".join([*base, *([n.module] if n.module else [])])
            yield module, n, id(n) in inner
            if n.level and n.module is None:
                for alias in n.names:
                    yield f"{module}.{alias.name}", n, id(n) in inner


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    room = room_of(path)
    if room not in ALLOWED:
        return
    tree = ast.parse(path.read_text())
    for module, n, _ in imported_modules(path, tree):
        parts = module.split(".")
        if parts[0] == "relaxvm" and len(parts) > 1 and (ROOT / parts[1]).is_dir():
            assert parts[1] == room or parts[1] in ALLOWED[room], (
                f"{path}:{n.lineno}: {room} imports {module}"
            )
        elif parts[0] == "relaxvm" and len(parts) > 1 and (ROOT / f"{parts[1]}.py").is_file():
            seen = SEES_TOP_LEVEL.get(str(path.relative_to(ROOT)), set())
            assert parts[1] in seen, f"{path}:{n.lineno}: {room} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_inside_functions_are_of_optional_heavy_libraries(path):
    tree = ast.parse(path.read_text())
    for module, n, inside in imported_modules(path, tree):
        if inside:
            assert module.split(".")[0] in HEAVY, f"{path}:{n.lineno}: hidden import of {module}"


PACKAGES = [path.parent for path in FILES if path.name == "__init__.py"]


def module_of(path: pathlib.Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def names_imported(path: pathlib.Path):
    """(absolute module, name, name here, node) of every ``from ... import`` in a file."""
    package = ["relaxvm", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield module, alias.name, alias.asname, node


def test_rooms_are_imported_through_their_faces():
    """A name that another room's face has is imported from there; its files are imported from only
    if the face names them.
    """
    faces = {module_of(p): importlib.import_module(module_of(p)).__all__ for p in PACKAGES}
    for path in FILES:
        if path.name != "__main__.py":
            importlib.import_module(module_of(path))
    used = set()
    for path in FILES:
        room = room_of(path)
        for module, name, _, node in names_imported(path):
            other = ".".join(module.split(".")[:2])
            if room not in ALLOWED or other == f"relaxvm.{room}" or other not in faces:
                continue
            face = module
            while face not in faces:
                face = face.rpartition(".")[0]
            if face == module:
                assert name == "*" or name in faces[face] or f"{face}.{name}" in faces, (
                    f"{path}:{node.lineno}: {name} is not on the face of {face}"
                )
                continue
            file = module.removeprefix(f"{face}.")
            here, there = (getattr(sys.modules[m], name, None) for m in (face, module))
            assert here is not there or here is None, (
                f"{path}:{node.lineno}: import {name} from {face}"
            )
            if file not in faces[face]:
                assert module in PAST_THE_FACE, f"{path}:{node.lineno}: {module} is not on a face"
                used.add(module)
    assert used == PAST_THE_FACE.keys()


def test_no_file_imports_a_private_name_of_another():
    for path in FILES:
        for module, name, _, node in names_imported(path):
            if module.startswith("relaxvm") and name.startswith("_") and name != "__version__":
                file = ROOT.parent.joinpath(*module.split("."), f"{name}.py")
                assert file.is_file(), f"{path}:{node.lineno}: {name} is private to {module}"


@pytest.mark.parametrize("package", PACKAGES[1:], ids=module_of)
def test_a_face_says_once_what_is_on_it(package):
    """As type checkers read it: ``from .file import name as name``; ``*`` takes all that a file
    makes.
    """
    for _, name, here, node in names_imported(package / "__init__.py"):
        if module_of(package) not in ("relaxvm", "relaxvm.topi") and name != "*":
            assert here is not None and (here == name or here.startswith("_")), (
                f"{package}/__init__.py:{node.lineno}: import {name} as {name}, or as _{name}"
            )


def test_a_star_in_a_face_takes_what_its_reader_sees():
    """What a type checker takes from the file, its own public names, is what Python takes."""
    for package in PACKAGES:
        for module, name, _, _ in names_imported(package / "__init__.py"):
            file = ROOT.parent.joinpath(*module.split(".")).with_suffix(".py")
            if name == "*" and file.is_file():
                own: set[str] = set()
                for node in ast.parse(file.read_text()).body:
                    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                        own.add(node.name)
                    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                        own |= {n.id for t in targets for n in ast.walk(t) if hasattr(n, "id")}
                public = {n for n in own if not n.startswith("_")}
                assert public == {*importlib.import_module(module).__all__}, module


def test_only_catalogues_list_their_names():
    lists = {str(p.relative_to(ROOT)) for p in FILES if "\n__all__" in p.read_text()}
    assert lists == LISTS_ITS_NAMES


def test_star_imports_give_the_face_and_nothing_else():
    code = "import importlib, types\n"
    modules = [*(module_of(p) for p in PACKAGES if p != ROOT), "relaxvm.tir.op"]
    code += f"for name in {modules}:\n"
    code += (
        "    room, scope = importlib.import_module(name), {}\n"
        "    exec(f'from {name} import *', scope)\n"
        "    assert scope.keys() - {'__builtins__'} == {*room.__all__}, name\n"
        "    for each in ('np', 'Any', 'typing', 'dataclass', 'annotations', 'importlib'):\n"
        "        if (name, each) != ('relaxvm.relay', 'Any'):  # a size that is not known\n"
        "            assert each not in scope, (name, each)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_only_config_reads_environment_variables():
    for path in FILES:
        if path.name != "config.py":
            text = path.read_text()
            assert "environ" not in text and "getenv" not in text, path


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_relaxvm_loads_nothing_heavy():
    loaded = loaded_after("import relaxvm")
    assert not loaded & {"numpy", "llvmlite", "msgpack", "inspect", "typing_extensions"}
    assert {m for m in loaded if m.startswith("relaxvm")} == {"relaxvm", "relaxvm._aliases"}


def test_import_runtime_loads_no_compiler_room():
    loaded = loaded_after("import relaxvm.runtime")
    rooms = {m.split(".")[1] for m in loaded if m.startswith("relaxvm.") and m.count(".")}
    assert rooms <= {"_aliases", "base", "runtime"}
    assert "llvmlite" not in loaded


def test_arrays_are_made_without_numpys_masked_ones():
    loaded = loaded_after("import numpy, relaxvm.runtime as r\nr.array(numpy.float32(1))")
    assert "numpy.ma" not in loaded


def test_import_runtime_leaves_out_what_running_a_program_does_not_need():
    rare = {"exec_builder", "explain", "machine_roof", "memory_plan", "memory_trace", "profile"}
    loaded = loaded_after("import relaxvm.runtime; relaxvm.runtime.VirtualMachine")
    assert not loaded & {f"relaxvm.runtime.{name}" for name in [*rare, "timing"]}
    later = loaded_after(
        "import relaxvm.runtime as r; r.ExecBuilder, r.ProfileReport, r.MemoryPlan"
    )
    assert {f"relaxvm.runtime.{name}" for name in rare - {"explain"}} <= later


def test_files_of_the_runtime_import_each_other_without_circles():
    # Imports that are put off (`Deferred`) count: they stand under TYPE_CHECKING.
    seen = {}
    for path in (ROOT / "runtime").glob("*.py"):
        names = (m for m, _, _ in imported_modules(path, ast.parse(path.read_text())))
        parts = [n.split(".") for n in names if n.startswith("relaxvm.runtime.")]
        seen[path.stem] = {p[2] for p in parts}
    waiting = {name: sees & seen.keys() for name, sees in seen.items()}
    while True:
        ready = {name for name, sees in waiting.items() if not sees}
        if not ready:
            break
        waiting = {n: sees - ready for n, sees in waiting.items() if n not in ready}
    assert not waiting


def test_every_public_name_of_the_package_exists():
    code = "import relaxvm\nfor name in relaxvm.__all__: getattr(relaxvm, name)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_module_aliases_are_the_real_modules():
    code = (
        "import importlib, relaxvm._aliases as a\n"
        "for alias, real in a.MODULES.items():\n"
        "    x, y = importlib.import_module(alias), importlib.import_module(real)\n"
        "    assert x is y and y.__spec__.name == real, (alias, y.__spec__)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_of_every_room_exist():
    code = (
        "import importlib\n"
        f"for room in {sorted(ALLOWED)}:\n"
        "    m = importlib.import_module('relaxvm.' + room)\n"
        "    assert m.__doc__, room\n"
        "    for name in m.__all__: getattr(m, name)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
