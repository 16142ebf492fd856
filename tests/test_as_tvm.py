"""`relaxvm.as_tvm`: one set of modules under both names; programs run as Python would run them."""

import subprocess
import sys
import textwrap

import pytest


def python(*arguments, cwd=None, text=None):
    """The outcome of a fresh Python; `text` is a program given by -c."""
    command = [sys.executable, *arguments, *(["-c", textwrap.dedent(text)] if text else [])]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def printed(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def program(tmp_path):
    """Writes a program; gives its path."""

    def write(text, name="program.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return str(path)

    return write


def test_modules_are_the_same_objects_under_both_names():
    text = """
        import relaxvm.as_tvm, sys, pickle
        import tvm, tvm.relax.expr, tvm.s_tir.transform.simplify, tvm_ffi, tvm.ffi
        import relaxvm, relaxvm.tir.transform.simplify
        assert tvm is relaxvm and sys.modules["tvm.relax"] is relaxvm.relax
        assert sys.modules["tvm.s_tir.transform.simplify"] is sys.modules[
            "relaxvm.tir.transform.simplify"]
        assert tvm_ffi is tvm.ffi is relaxvm.ffi
        from tvm.relax import Var
        from tvm.relax.expr import Var as Same
        assert Var is Same is relaxvm.relax.Var
        copies = [(n, m.__name__) for n, m in sys.modules.items()
                  if n.startswith(("tvm", "relaxvm")) and sys.modules.get(m.__name__) is not m]
        assert not copies, copies
        error = pickle.loads(pickle.dumps(tvm.TVMError("x")))
        assert type(error) is tvm.error.TVMError
        print(tvm.__name__, tvm.__version__ == relaxvm.__version__)
    """
    assert printed(python(text=text)) == "relaxvm True\n"


def test_importing_by_tvm_path_binds_nothing_over_a_function_of_the_same_name():
    text = """
        import relaxvm.as_tvm, importlib, pkgutil, sys, types
        import relaxvm as r
        names = [m.name for m in pkgutil.walk_packages(r.__path__, "relaxvm.")
                 if not m.name.endswith(("__main__", "as_tvm"))]
        for name in names:
            importlib.import_module(name)
        packages = [sys.modules[n] for n in names if hasattr(sys.modules[n], "__path__")]
        def functions():
            return {(p.__name__, k): v for p in packages for k, v in vars(p).items()
                    if not isinstance(v, types.ModuleType)}
        before, specs = functions(), {n: sys.modules[n].__spec__.name for n in names}
        for name in names:
            importlib.import_module("tvm" + name[len("relaxvm"):])
        for alias in importlib.import_module("relaxvm._aliases").MODULES:
            importlib.import_module("tvm" + alias[len("relaxvm"):])
        after = functions()
        assert not [k for k in before if before[k] is not after.get(k)]
        assert all(specs[n] == n == sys.modules[n].__spec__.name for n in names)
        print(len(names) > 100)
    """
    assert printed(python(text=text)) == "True\n"


def test_importing_it_loads_nothing_heavy():
    text = """
        import relaxvm.as_tvm, sys
        print(sorted(m for m in sys.modules if m.startswith("relaxvm")))
        print({"numpy", "llvmlite", "msgpack", "inspect"} & set(sys.modules))
    """
    assert printed(python(text=text)) == (
        "['relaxvm', 'relaxvm._aliases', 'relaxvm.as_tvm']\nset()\n"
    )


@pytest.mark.parametrize("name", ["tvm", "tvm_ffi"])
def test_it_refuses_where_a_real_tvm_is_imported_already(name, program, tmp_path):
    program("", f"{name}/__init__.py")
    text = f"import {name}\nimport relaxvm.as_tvm"
    done = python(text=text, cwd=tmp_path)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith(f"ImportError: relaxvm.as_tvm: {name} is imported already, from ")
    assert str(tmp_path) in last


def test_without_it_tvm_is_not_answered():
    text = "import relaxvm.tir\nimport tvm"
    assert "No module named 'tvm'" in python(text=text).stderr


def test_a_tvm_that_is_installed_but_not_imported_gives_way(program, tmp_path):
    program("x = 1", "tvm/__init__.py")
    text = "import relaxvm.as_tvm, tvm, tvm.relax; print(tvm.__name__)"
    assert printed(python(text=text, cwd=tmp_path)) == "relaxvm\n"


def test_a_program_sees_its_arguments_its_folder_and_its_main(program, tmp_path):
    program("value = 7", "sub/beside.py")
    path = program(
        """
        import sys, pickle, __main__
        import tvm, beside
        class Mine: pass
        assert __name__ == "__main__" and __main__.Mine is Mine and __file__ == sys.argv[0]
        assert type(pickle.loads(pickle.dumps(Mine()))) is Mine
        print(sys.argv[1:], beside.value, __spec__, __doc__)
        """,
        "sub/program.py",
    )
    assert printed(python("-m", "relaxvm.as_tvm", path, "a", "-m", cwd=tmp_path)) == (
        "['a', '-m'] 7 None None\n"
    )


DECORATED = """
import inspect
import tvm
from tvm.script import tir as T

@T.prim_func
def copy(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = A[i]

def plain():
    return 1

print(inspect.getsource(plain).strip().endswith("return 1"), copy.span.line)
"""


def test_sources_of_decorated_functions_are_read_from_a_file_a_module_and_the_command_line(
    program, tmp_path
):
    path = program(DECORATED, "pkg/__main__.py")
    program("", "pkg/__init__.py")
    for arguments in ([path], ["-m", "pkg"]):
        assert printed(python("-m", "relaxvm.as_tvm", *arguments, cwd=tmp_path)) == "True 7\n"
    assert printed(python("-m", "relaxvm.as_tvm", "-c", DECORATED)) == "True 7\n"


def test_a_folder_is_run_with_what_stands_in_it(program, tmp_path):
    program("import tvm, beside; print(beside.value)", "folder/__main__.py")
    program("value = 7", "folder/beside.py")
    assert printed(python("-m", "relaxvm.as_tvm", "folder", cwd=tmp_path)) == "7\n"


def test_a_traceback_begins_in_the_users_program(program):
    path = program(
        """
        import tvm
        def work():
            return tvm.tir.const("x")
        work()
        """
    )
    done = python("-m", "relaxvm.as_tvm", path)
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{path}", line 5, in <module>'
    assert lines[2] == "    work()"
    assert "as_tvm" not in done.stderr and "runpy" not in done.stderr


def test_a_traceback_shows_the_lines_of_a_module_and_of_the_command_line(program, tmp_path):
    program("def work():\n    raise KeyError('k')\nwork()\n", "broken.py")
    for arguments, place in (
        (["-m", "broken"], f'  File "{tmp_path}/broken.py", line 3, in <module>'),
        (["-c", "import broken"], '  File "<relaxvm.as_tvm -c>", line 1, in <module>'),
    ):
        done = python("-m", "relaxvm.as_tvm", *arguments, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.splitlines()[1] == place
        assert "as_tvm.py" not in done.stderr and "runpy" not in done.stderr
        assert "    raise KeyError('k')" in done.stderr.splitlines()


def test_exit_codes_and_broken_programs_are_as_in_python(program):
    assert python("-m", "relaxvm.as_tvm", program("raise SystemExit(3)")).returncode == 3
    done = python("-m", "relaxvm.as_tvm", program("x = = 1"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].endswith('program.py", line 1')
    assert done.stderr.splitlines()[-1].startswith("SyntaxError")
    for arguments in (["no_such.py"], ["-m", "no_such_module"], []):
        done = python("-m", "relaxvm.as_tvm", *arguments)
        assert done.returncode == 2
        assert "no_such" in done.stderr or "usage" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_notebook_loads_and_unloads_it():
    text = """
        import importlib, sys
        extension = importlib.import_module("relaxvm.as_tvm")
        extension.load_ipython_extension(None)
        import tvm.relax
        extension.unload_ipython_extension(None)
        assert not [m for m in sys.modules if m.partition(".")[0] in ("tvm", "tvm_ffi")]
        try:
            import tvm
        except ModuleNotFoundError as error:
            print(error)
        extension.load_ipython_extension(None)
        import tvm.tir
        print(tvm.tir.__name__)
    """
    assert printed(python(text=text)) == "No module named 'tvm'\nrelaxvm.tir\n"


def test_names_of_ffi_work():
    text = """
        import relaxvm.as_tvm, tvm_ffi, tvm, numpy as np
        @tvm_ffi.register_global_func("env.twice", override=True)
        def twice(x): return x * 2
        assert tvm_ffi.get_global_func("env.twice")(4) == 8
        assert "env.twice" in tvm_ffi.registry.list_global_func_names()
        assert tvm_ffi.get_global_func("no.such", allow_missing=True) is None
        assert tuple(tvm_ffi.Array([1, 2])) == (1, 2) and tvm_ffi.Map({"a": 1})["a"] == 1
        assert tvm_ffi.Shape((2, 3)) == (2, 3) and tvm_ffi.String("a") == "a"
        assert tvm_ffi.dtype("float32") == "float32" and tvm_ffi.device("cpu", 0) == tvm.cpu(0)
        assert isinstance(tvm.nd.array(np.ones(3)), tvm_ffi.Tensor)
        assert isinstance(tvm_ffi.get_global_func("env.twice"), tvm_ffi.Function)
        print(tvm_ffi.convert([1, 2]))
    """
    assert printed(python(text=text)) == "(1, 2)\n"
