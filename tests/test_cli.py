"""The command `relaxvm`, as users call it: what it prints and writes, and its exit codes."""

import html.parser
import json
import pathlib
import runpy
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from relaxvm import cli
from relaxvm.cli import check, models
from relaxvm.runtime import load
from relaxvm.target.llvm import build as units

WEIGHT = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)


def model(middle="Relu", rows="n"):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 3])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], "product"),
        helper.make_node(middle, ["xw"], ["z"], "middle"),
        helper.make_node("Exp", ["z"], ["y"], "last"),
    ]
    weights = [numpy_helper.from_array(WEIGHT, "w")]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def answer(x):
    return np.exp(np.maximum(x @ WEIGHT, 0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """m.onnx, m.rvm made of it, and x.npy."""
    path = tmp_path_factory.mktemp("models")
    onnx.save(model(), path / "m.onnx")
    np.save(path / "x.npy", np.arange(8, dtype="float32").reshape(2, 4) / 8)
    assert cli.main(["compile", str(path / "m.onnx"), "-o", str(path / "m.rvm")]) == 0
    return path


@pytest.fixture
def relaxvm(folder, capsys, monkeypatch):
    """Runs the command in that folder: (exit code, output, errors)."""
    monkeypatch.chdir(folder)

    def run(*arguments):
        code = cli.main(list(map(str, arguments)))
        return code, *capsys.readouterr()

    return run


def result_of(relaxvm, *arguments, code=0):
    got, out, err = relaxvm(*arguments, "--json")
    assert got == code, err
    return json.loads(out)


# -- each command ----------------------------------------------------------------------------------


def test_compile_writes_a_program_and_tells_what_is_in_it(relaxvm, folder, tmp_path):
    code, out, err = relaxvm("compile", "m.onnx", "-o", tmp_path / "p.rvm", "--opt-level", 3)
    assert code == 0
    assert "kernels and functions compiled" in err
    assert "main(x: Tensor((n, 4), float32))" in out
    x = np.load(folder / "x.npy")
    np.testing.assert_allclose(load(tmp_path / "p.rvm")["main"](x).numpy(), answer(x), rtol=1e-5)


def test_a_model_that_was_built_before_comes_from_the_cache(relaxvm, tmp_path, monkeypatch):
    result_of(relaxvm, "compile", "m.onnx", "-o", tmp_path / "p.rvm")
    compiled = []
    monkeypatch.setattr(units, "compile_units", lambda missing, _: compiled.extend(missing) or [])
    facts = result_of(relaxvm, "compile", "m.onnx", "-o", tmp_path / "q.rvm")
    assert "kernels and functions compiled" in facts["stages"]
    assert result_of(relaxvm, "inspect", "m.onnx")["kernels"][0]["nodes"]
    assert compiled == []


def test_compile_takes_target_shape_and_numerics(relaxvm, tmp_path):
    options = ["--target", "x86-64-v3", "--shape", "x=5x4", "--numerics", "exact"]
    facts = result_of(relaxvm, "compile", "m.onnx", "-o", tmp_path / "p.rvm", *options)
    assert facts["signature"] == "main(x: Tensor((5, 4), float32)) -> Tensor((5, 3), float32)"
    program = load(tmp_path / "p.rvm")
    assert program.kernels.native[0].cpu == "x86-64-v3"
    result_of(
        relaxvm, "compile", "m.onnx", "-o", tmp_path / "a.rvm", "--target", "aarch64-linux-gnu"
    )
    assert load(tmp_path / "a.rvm").kernels.native[0].triple.startswith("aarch64")


def test_weights_may_lie_in_a_file_of_their_own(relaxvm, folder, tmp_path):
    result_of(relaxvm, "compile", "m.onnx", "-o", tmp_path / "p.rvm", "--weights", "separate")
    options = ["--weights", tmp_path / "p.params", "--input", "x=@x.npy"]
    relaxvm("run", tmp_path / "p.rvm", *options, "--output", tmp_path / "y.npy")
    x = np.load(folder / "x.npy")
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), answer(x), rtol=1e-5)


def test_compile_writes_the_kernels_as_c_as_well(relaxvm, tmp_path):
    facts = result_of(relaxvm, "compile", "m.onnx", "-o", tmp_path / "p.rvm", "--c-source")
    assert {pathlib.Path(f).name for f in facts["files"]} >= {"p.rvm", "kernels.c", "Makefile"}


def test_run_takes_inputs_of_many_kinds(relaxvm, folder, tmp_path):
    x = np.load(folder / "x.npy")
    np.savez(tmp_path / "in.npz", x=x)
    (tmp_path / "x.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    kinds = {
        "@x.npy": x,
        f"@{tmp_path}/in.npz": x,
        f"@{tmp_path}/x.pb": x,
        "[[1, 2, 3, 4]]": np.array([[1, 2, 3, 4]], "float32"),
        "zeros": np.zeros((3, 4), "float32"),
        "ones": np.ones((3, 4), "float32"),
    }
    for text, value in kinds.items():
        out = tmp_path / "out.npz"
        code, _, err = relaxvm(
            "run", "m.rvm", "--input", f"x={text}", "--size", "n=3", "--output", out
        )
        assert code == 0, err
        np.testing.assert_allclose(np.load(out)["output_0"], answer(value), rtol=1e-5)


def test_random_inputs_follow_the_seed(relaxvm):
    outputs = [
        result_of(relaxvm, "run", "m.rvm", "--size", "n=3", "--seed", seed)["outputs"]["output_0"]
        for seed in (1, 1, 2)
    ]
    assert outputs[0] == outputs[1] != outputs[2]
    assert outputs[0]["shape"] == [3, 3]


def test_bench_runs_in_turns_and_counts(relaxvm):
    pytest.importorskip("onnxruntime", reason="measures it where it is installed")
    options = ["--beside", "onnxruntime", "--seconds", "0.05", "--threads", "1,2"]
    result = result_of(relaxvm, "bench", "m.onnx", "--shape", "x=2x4", *options)
    assert [r["threads"] for r in result["results"]] == [1, 2]
    for each in result["results"]:
        assert set(each["runs"]) == {"relaxvm", "onnxruntime"}
        for run in each["runs"].values():
            assert 0 < run["best_ms"] <= run["p50_ms"] <= run["p90_ms"] <= run["p99_ms"]


def test_bench_of_several_requests_at_a_time(relaxvm):
    options = ["--hint", "throughput", "--requests", "3", "--seconds", "0.05"]
    result = result_of(relaxvm, "bench", "m.rvm", *options)["results"][0]
    assert result["requests"] == 3
    assert result["runs"]["relaxvm"]["per_second"] > 0


def test_inspect_shows_functions_kernels_nodes_and_memory(relaxvm):
    result = result_of(relaxvm, "inspect", "m.onnx", "--decisions", "--code")
    assert result["kernels"][0]["nodes"] == ["product (MatMul)", "middle (Relu)", "last (Exp)"]
    assert result["functions"][0]["mode"] == "compiled"
    assert result["storages"][0]["size"] == "12 * n"
    assert "FuseOps" in result["passes"]
    code, out, _ = relaxvm("inspect", "m.rvm")
    assert code == 0
    assert "relaxvm 0" in out
    _, out, _ = relaxvm("inspect", "m.onnx", "--ir", "fused")
    assert "T.prim_func" in out


def test_profile_tells_kernels_and_nodes_and_writes_a_trace(relaxvm, tmp_path):
    trace = tmp_path / "trace.json"
    result = result_of(relaxvm, "profile", "m.onnx", "--runs", "1", "--trace", trace)
    assert [r["nodes"] for r in result["nodes"]] == [
        "product (MatMul) + middle (Relu) + last (Exp)"
    ]
    assert json.loads(trace.read_text())["traceEvents"]
    code, out, _ = relaxvm("profile", "m.onnx", "--runs", "1")
    assert code == 0
    assert "product (MatMul) + middle (Relu)" in out


class Page(html.parser.HTMLParser):
    """Tags that are open, anchors, links to them, and texts."""

    def __init__(self):
        super().__init__()
        self.open, self.anchors, self.links, self.text, self.shapes = [], [], [], "", 0

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.anchors += [named["id"]] if "id" in named else []
        self.links += [named["href"]] if "href" in named else []
        self.shapes += tag == "rect"
        assert "src" not in named
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_a_page_leads_from_nodes_to_instructions_kernels_and_machine_code(relaxvm, tmp_path):
    for command in ("inspect", "profile"):
        path = tmp_path / f"{command}.html"
        code, _, err = relaxvm(command, "m.onnx", "--shape", "x=2x4", "--html", path)
        assert code == 0, err
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        assert page.open == []
        assert len(page.anchors) == len(set(page.anchors))
        assert page.links
        assert {link.removeprefix("#") for link in page.links} <= set(page.anchors)
        assert page.shapes > 0
        for text in ("product (MatMul) + middle (Relu) + last (Exp)", "T.prim_func", "define ",
                     "relaxvm_inner_", "FuseOps:", "24 bytes"):  # fmt: skip
            assert text in page.text, text
        assert (" us" in page.text) is (command == "profile")
    code, _, err = relaxvm("inspect", "m.rvm", "--html", tmp_path / "program.html")
    assert code == 0, err
    assert relaxvm("inspect", "m.rvm", "--html", tmp_path / "no" / "p.html")[0] == 1


def test_ops_lists_what_is_imported(relaxvm):
    rows = {(r["domain"], r["name"]): r for r in result_of(relaxvm, "ops")}
    assert rows["", "Softmax"]["how"] == "translated"
    assert rows["", "Softmax"]["versions"] == [1, 11, 13]
    code, out, _ = relaxvm("ops", "conv")
    assert code == 0
    assert "dilations" in out
    assert [r["name"] for r in result_of(relaxvm, "ops", "m.onnx")] == ["Exp", "MatMul", "Relu"]


def test_a_module_in_python_is_a_model(relaxvm, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(
        "from relaxvm.script import ir as I, relax as R\n"
        "@I.ir_module\n"
        "class Twice:\n"
        "    @R.function\n"
        "    def main(x: R.Tensor(('n', 2), 'float32')):\n"
        "        return R.add(x, x)\n"
    )
    result_of(relaxvm, "compile", f"{file}:Twice", "-o", tmp_path / "p.rvm", "--shape", "x=3x2")
    assert load(tmp_path / "p.rvm")["main"](np.ones((3, 2), "float32")).numpy()[0, 0] == 2
    assert result_of(relaxvm, "check", f"{file}:Twice", "--size", "n=4")["right"]
    for wrong, message in ((f"{file}:Thrice", "the file has: Twice"), (f"{file}:I", "got module")):
        code, _, err = relaxvm("inspect", wrong)
        assert code == 1
        assert message in err


# -- right and wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize("against", ["reference", "onnxruntime"])
def test_check_says_that_right_answers_are_right(relaxvm, against):
    if against == "onnxruntime":
        pytest.importorskip("onnxruntime", reason="compares with it where it is installed")
    result = result_of(relaxvm, "check", "m.onnx", "--against", against, "--size", "n=5")
    assert result["right"]
    assert result["outputs"][0]["shape"] == "5x3"
    assert result_of(relaxvm, "check", "m.rvm", "--original", "m.onnx")["right"]


@pytest.mark.parametrize("only_in_whole_programs", [False, True])
def test_check_finds_the_first_node_that_differs(
    relaxvm, monkeypatch, tmp_path, only_in_whole_programs
):
    """The judge is made to see a difference behind the node "middle"."""
    judge = check._JUDGES["reference"]

    def wrong(proto, path, feeds):
        if only_in_whole_programs and len(proto.graph.output) > 1:
            return judge(proto, path, feeds)
        names = [o.name for o in proto.graph.output]
        return [
            value + 1 if name in ("z", "y") else value
            for name, value in zip(names, judge(proto, path, feeds))
        ]

    monkeypatch.setitem(check._JUDGES, "reference", wrong)
    folder = tmp_path / "repro"
    result = result_of(relaxvm, "check", "m.onnx", "--repro", folder, code=2)
    assert not result["right"]
    assert result["first_difference"]["node"] == "middle"
    assert {p.name for p in folder.iterdir()} == {"inputs.npz", "model.onnx", "repro.py"}
    runpy.run_path(str(folder / "repro.py"))


def test_differences_are_relative_to_the_scale_and_nans_must_agree():
    ones, nan = np.ones(3, "float32"), np.array([1, np.nan, np.inf])
    assert check._difference(ones * 100, ones * 101) == (1.0, 0.01)
    assert check._difference(nan, nan) == (0.0, 0.0)
    for wrong in (ones, np.array([1, np.nan, 2]), np.array([1, np.nan, -np.inf]), nan[:2]):
        assert check._difference(nan, wrong)[1] == np.inf
    assert check._difference(ones, np.array([1, np.nan, 1]))[1] == np.inf
    assert check._difference(np.array(["a"]), np.array(["b"]))[1] == np.inf


def test_an_operator_that_is_missing_has_an_exit_code_of_its_own(relaxvm, tmp_path):
    onnx.save(model("NoSuchOperator"), tmp_path / "odd.onnx")
    for command in (["compile", "-o", tmp_path / "p.rvm"], ["run"], ["check"], ["inspect"]):
        code, _, err = relaxvm(command[0], tmp_path / "odd.onnx", *command[1:])
        assert code == 3
        assert "NoSuchOperator" in err
        assert "middle" in err
    rows = result_of(relaxvm, "ops", tmp_path / "odd.onnx", code=3)
    assert [r["name"] for r in rows if r["how"] == "missing"] == ["NoSuchOperator"]
    assert not (tmp_path / "p.rvm").exists()


# -- mistakes --------------------------------------------------------------------------------------

MISTAKES = {
    "run nowhere.onnx": "nowhere.onnx",
    "run .": "wanted a plain file",
    "run cut.rvm": "cut.rvm",
    "run cut.onnx": "cut.onnx",
    "run empty": "empty",
    "run x.npy": "x.npy",
    "run program.py:": "program.py:",
    "run m.rvm --input": "expected one argument",
    "run m.rvm --input y=zeros": "there is no input 'y'",
    "run m.rvm --input x": "wanted NAME=VALUE",
    "run m.rvm --input x=@nowhere.npy": "nowhere.npy",
    "run m.rvm --input x=@m.onnx": "wanted .npy",
    "run m.rvm --input x=@broken.npy": "broken.npy: wanted an array",
    "run m.rvm --input x=@broken.pb": "broken.pb: wanted a TensorProto",
    "run m.rvm --input x=[[1,2]]": "wanted",
    "run m.rvm --input x=[[1,2],[3]]": "--input x",
    "run m.rvm --input x=maybe": "wanted @FILE, random, zeros, ones or a value in JSON",
    "run m.rvm --size n=-1": "wanted SYMBOL=N",
    "run m.rvm --size n=999999999999999": "is not made up",
    "run m.rvm --output out.txt": "wanted a name in .npz or .npy",
    "run m.rvm --output nowhere/out.npz": "nowhere/out.npz",
    "run m.rvm --weights x.npy": "parameters",
    "run m.rvm --target native": "built already: --target",
    "run m.rvm --threads 0": "num_threads",
    "run m.onnx --shape x=1xx-3": "--shape: wanted",
    "run m.onnx --shape 1x3": "--shape: wanted",
    "run m.onnx --shape x=2x5": "MatMul",
    "compile m.onnx": "required: -o",
    "compile m.onnx -o nowhere/p.rvm": "wanted a file in a folder that is there",
    "compile m.onnx -o .": "wanted a file",
    "compile m.onnx -o p.rvm --target pdp11": "pdp11",
    "compile m.onnx -o p.rvm --opt-level 9": "invalid choice",
    "compile m.onnx -o p.rvm --records nowhere": "nowhere",
    "compile m.rvm -o p.rvm --weights separate": "for ONNX models",
    "bench m.rvm --beside onnxruntime": "m.rvm is none",
    "bench m.onnx --beside abacus": "got 'abacus'",
    "bench m.onnx --threads 0": "wanted numbers such as 1,2",
    "bench m.onnx --seconds nan": "--seconds: wanted a time",
    "bench m.onnx --requests 0": "--requests: wanted",
    "check m.rvm": "--original model.onnx",
    "check m.onnx --tolerance nan": "--tolerance: wanted a number",
    "inspect m.rvm --ir fused": "a program, built already",
    "ops NoSuch": "no operator 'NoSuch'",
    "dance": "invalid choice",
    "": "required: command",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_are_told_in_a_line_and_leave_nothing_behind(relaxvm, folder, line):
    (folder / "cut.rvm").write_bytes((folder / "m.rvm").read_bytes()[:-60])
    (folder / "cut.onnx").write_bytes((folder / "m.onnx").read_bytes()[:-9])
    for name in ("empty", "broken.npy"):
        (folder / name).write_bytes(b"")
    (folder / "broken.pb").write_bytes(b"\xff\xff\xff")
    before = sorted(folder.iterdir())
    code, out, err = relaxvm(*line.split())
    assert code == 1, out + err
    assert MISTAKES[line] in err
    assert "Traceback" not in err
    assert sorted(folder.iterdir()) == before


def test_an_error_for_machines_is_json_too(relaxvm):
    error = result_of(relaxvm, "run", "nowhere.onnx", code=1)
    assert error["kind"] == "FileNotFoundError"
    assert "nowhere.onnx" in error["error"]


def test_shapes_are_written_with_numbers_and_symbols():
    assert models.shapes_of(["x=1x3x224", "ids=batch,128", "a=b=2", "s="]) == {
        "x": (1, 3, 224),
        "ids": ("batch", 128),
        "a=b": (2,),
        "s": (),
    }


# -- in a process of its own -----------------------------------------------------------------------


def in_process(*arguments, **options):
    command = [sys.executable, "-m", "relaxvm", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_a_program_is_run_without_loading_the_compiler(folder):
    code = (
        "import sys\n"
        "from relaxvm.cli import main\n"
        f"assert main(['run', {str(folder / 'm.rvm')!r}]) == 0\n"
        "rooms = {m.split('.')[1] for m in sys.modules if m.startswith('relaxvm.')}\n"
        "assert rooms <= {'_aliases', 'base', 'runtime', 'loading', 'cli'}, rooms\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_full_disk_leaves_no_half_written_file(folder, tmp_path):
    resource = pytest.importorskip("resource", reason="limits the size of files, as on POSIX")

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    done = in_process("compile", folder / "m.onnx", "-o", tmp_path / "p.rvm",
                      preexec_fn=small_files)  # fmt: skip
    assert done.returncode == 1
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_help_shows_examples_and_a_closed_pipe_is_no_error(folder):
    done = in_process("bench", "-h")
    assert done.returncode == 0
    assert "relaxvm bench model.onnx --beside onnxruntime" in done.stdout
    done = subprocess.run(
        f"{sys.executable} -m relaxvm ops | head -1", shell=True, capture_output=True, text=True
    )
    assert done.stdout.startswith("operator")
    assert "Traceback" not in done.stderr
