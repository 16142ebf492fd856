"""The command `relaxvm`, as users call it: what it prints and writes, and its exit codes."""

import importlib
import io
import json
import os
import pathlib
import re
import runpy
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from relaxvm import __version__ as relaxvm_version
from relaxvm import cli, ir
from relaxvm.cli import bench, check, console, models
from relaxvm.meta_schedule.database import JSONDatabase, TuningRecord, Workload
from relaxvm.pipeline import _planned, reachable_kernels
from relaxvm.runtime import VirtualMachine, cpu, load
from relaxvm.target.llvm import build as units
from relaxvm.tir import Schedule

# Images of 8x8 points that the model "digits" was not trained on, in numbers from 0 to g (16).
DIGITS = (
    "003ea10002ecfe1006d03e8005c00b8004e00c7001e43g30008ccc00002fa300",
    "000ad000000dg500000gg400003gg700007gg900009gga0000agge0000157f80",
    "00bgf30005gcbd0003d15f000000cb000001g700000af00000cggb1000dd8dg8",
    "02aeb10007f8g4000116f100000f9000001gf91000016f8002846f7002dgf900",
    "003f300000eg100008g608500ce05g800cfegd0001beg500004fa000004g5000",
    "00fdcc2004ggc60000g4000000b70000007e0000000e6000045e800001fg4000",
    "00970000009b000000f4000002g1000005g8e90005gf89a003g207b0007egc10",
    "005gc200004bga000000eb000024ee2000dgga40003ae000000f5000006b0000",
    "01fe200006e0032002g32d3000bef900007gb00000fde00002f4g30001fgc100",
    "002adc3000bd8g7000c99g80006ade5000000c8008100f2004e94g00002cge00",
)
WEIGHT = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)


PRODUCT = """
from relaxvm.script import ir as I, relax as R
@I.ir_module
class Product:
    @R.function
    def main(x: R.Tensor((8, 16), "float32"), w: R.Tensor((16, 32), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            R.output(y)
        return y
"""


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
    result = result_of(relaxvm, "profile", tmp_path / "p.rvm", *options)
    assert result["calls_ns"] > 0


def test_compile_writes_a_file_for_each_of_several_targets(relaxvm, tmp_path):
    options = ["--target", "native,aarch64-linux-gnu"]
    facts = result_of(relaxvm, "compile", "m.onnx", "-o", tmp_path / "p.rvm", *options)
    files = {target: tmp_path / f"p.{target}.rvm" for target in options[1].split(",")}
    assert list(facts["files"]) == [str(f) for f in files.values()]
    there = files["aarch64-linux-gnu"]
    assert load(there).kernels.native[0].triple.startswith("aarch64")
    # Of the program for another machine one for this is made, where the compiler is.
    result_of(relaxvm, "compile", there, "-o", tmp_path / "here.rvm")
    (code,) = load(tmp_path / "here.rvm").kernels.native
    assert code.triple == load(files["native"]).kernels.native[0].triple
    assert VirtualMachine(load(tmp_path / "here.rvm"), cpu()).kernel_source == "native"


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


def test_outputs_of_a_model_have_its_names(relaxvm, tmp_path):
    code, out, err = relaxvm("run", "m.onnx", "--output", tmp_path / "y.npz")
    assert code == 0, err
    assert list(np.load(tmp_path / "y.npz")) == ["y"]
    assert "random: x" in err
    assert "n = 1" in err


def test_an_image_becomes_an_input(relaxvm, folder, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="reads images where pillow is installed")
    rows = [[int(digit, 17) for digit in DIGITS[7][i : i + 8]] for i in range(0, 64, 8)]
    pixels = np.array(rows, "uint8").repeat(3, 0).repeat(3, 1)
    image.fromarray((pixels * 15.9375).astype("uint8")).convert("RGB").save(tmp_path / "7.png")
    options = ["--input", f"images=@{tmp_path}/7.png", "--output", tmp_path / "p.npy"]
    assert relaxvm("run", "digits", *options)[0] == 0
    assert np.load(tmp_path / "p.npy").argmax() == 7
    for wrong in ("x.npy", "m.onnx"):
        assert relaxvm("run", "digits", "--input", f"images=@{wrong}")[0] == 1
    assert relaxvm("run", "m.rvm", "--input", f"x=@{tmp_path}/7.png")[0] == 1


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


def test_bench_warns_where_the_machine_is_noisy(relaxvm, monkeypatch):
    options = ["bench", "m.rvm", "--seconds", "0.02"]
    monkeypatch.setattr(bench, "_load", lambda: 1e3)
    assert "the machine is noisy" in relaxvm(*options)[2]
    monkeypatch.setattr(bench, "_load", lambda: 0.0)
    monkeypatch.setattr(bench, "_figures", lambda times, requests: dict.fromkeys(
        ("best_ms", "p50_ms", "p90_ms", "p99_ms", "per_second"), 1.0))  # fmt: skip
    assert "noisy" not in relaxvm(*options)[2]


def test_bench_leaves_out_who_cannot_run_the_model(relaxvm, monkeypatch):
    def broken(path, values, threads):
        raise NotImplementedError("no such operator")

    monkeypatch.setitem(bench.PEERS, "openvino", broken)
    options = ["--beside", "openvino", "--threads", "1,2", "--seconds", "0.02"]
    result = result_of(relaxvm, "bench", "m.onnx", *options)
    assert result["left_out"] == {"openvino": "NotImplementedError: no such operator"}
    assert [set(r["runs"]) for r in result["results"]] == [{"relaxvm"}] * 2


@pytest.mark.parametrize("other", ["openvino", "torch"])
def test_bench_beside_others(relaxvm, other):
    try:
        importlib.import_module("onnx2torch" if other == "torch" else other)
    except Exception as error:
        code, _, err = relaxvm("bench", "digits", "--beside", other)
        assert code == 1
        assert f"--beside {other}: " in err
        pytest.skip(f"measures {other} where it is installed: {error}")
    result = result_of(relaxvm, "bench", "digits", "--beside", other, "--seconds", "0.02")
    assert result["results"][0]["runs"][other]["p50_ms"] > 0


def test_the_model_that_comes_with_relaxvm_reads_digits(relaxvm, tmp_path, monkeypatch):
    images = np.array([[int(c, 17) for c in digit] for digit in DIGITS], "float32") / 16
    np.save(tmp_path / "images.npy", images.reshape(10, 1, 8, 8))
    options = ["--input", f"images=@{tmp_path}/images.npy", "--output", tmp_path / "y.npy"]
    assert relaxvm("run", "digits", *options)[0] == 0
    assert np.load(tmp_path / "y.npy").argmax(1).tolist() == list(range(10))
    assert [r["name"] for r in result_of(relaxvm, "ops", "digits")][0] == "Add"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").write_bytes(b"")
    assert relaxvm("run", "digits")[0] == 1


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


def test_a_program_from_a_file_names_its_nodes_unless_they_were_left_out(relaxvm, tmp_path):
    assert result_of(relaxvm, "profile", "m.rvm", "--runs", "1", "--input", "x=zeros")["nodes"]
    whole = result_of(relaxvm, "inspect", "m.rvm", "--code")
    assert whole["kernels"][0]["nodes"] == ["product (MatMul)", "middle (Relu)", "last (Exp)"]
    assert "  # ONNX node product (MatMul) + ONNX node middle" in whole["code"]
    path = tmp_path / "stripped.rvm"
    result_of(relaxvm, "compile", "m.onnx", "-o", path, "--strip-debug")
    stripped = result_of(relaxvm, "inspect", path, "--code")
    assert stripped["kernels"][0]["nodes"] == []
    assert "ONNX" not in stripped["code"]


def test_streams_may_be_closed(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert cli.main(["ops"]) == 0 and cli.main(["run", "no_such.onnx"]) == 1
    sys.stdout.close()
    sys.stderr.close()


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
    wrong = {f"{file}:Thrice": "the file has: Twice", f"{file}:I": "got module",
             str(file): "which module of it?"}  # fmt: skip
    for i, text in enumerate(("import no_such_package", "def f(:", "raise SystemExit(3)")):
        (tmp_path / f"wrong{i}.py").write_text(f"\n{text}\n")
        wrong[f"{tmp_path}/wrong{i}.py:M"] = f'wrong{i}.py", line 2'
    for name, message in wrong.items():
        code, _, err = relaxvm("inspect", name)
        assert code == 1
        assert message in err
        assert "runpy" not in err


def test_records_of_a_tuner_are_used_but_for_exact_numerics(relaxvm, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PRODUCT)
    mod = runpy.run_path(str(file))["Product"]
    (kernel,) = reachable_kernels(_planned(mod, "default")[0]).functions.values()
    schedule = Schedule(kernel)
    schedule.parallel(schedule.get_loops(schedule.get_block("matmul"))[0])
    database = JSONDatabase(work_dir=tmp_path / "tuned")
    database.commit_tuning_record(TuningRecord(schedule.trace, Workload(kernel), [1.0], "llvm"))
    for records in (tmp_path / "tuned", tmp_path / "tuned" / "database_tuning_record.json"):
        options = ["--decisions", "--records", records]
        for numerics, used in (("approximate", True), ("exact", False)):
            result = result_of(
                relaxvm, "inspect", f"{file}:Product", *options, "--numerics", numerics
            )
            assert ("as it was tuned" in str(result["decisions"])) is used


# -- right and wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize("against", ["reference", "onnxruntime"])
def test_check_says_that_right_answers_are_right(relaxvm, against):
    if against == "onnxruntime":
        pytest.importorskip("onnxruntime", reason="compares with it where it is installed")
    result = result_of(relaxvm, "check", "m.onnx", "--against", against, "--size", "n=5")
    assert result["right"]
    assert result["outputs"][0]["shape"] == "5x3"
    assert result_of(relaxvm, "check", "m.rvm", "--original", "m.onnx")["right"]


def test_check_finds_a_wrong_kernel_and_writes_a_repro(relaxvm, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ir.Op.get("relax.nn.relu"), "lower", ir.Op.get("relax.nn.silu").lower)
    folder = tmp_path / "repro"
    result = result_of(relaxvm, "check", "m.onnx", "--size", "n=3", "--repro", folder, code=2)
    assert not result["right"]
    assert result["first_difference"]["node"] == "middle"
    assert result["first_difference"]["nodes"] == 1
    assert {p.name for p in folder.iterdir()} == {"inputs.npz", "model.onnx", "repro.py"}
    runpy.run_path(str(folder / "repro.py"))
    shown = capsys.readouterr().out
    assert shown.startswith("z (3, 3) greatest error 0.")
    _, out, _ = relaxvm("check", "m.onnx", "--repro", folder)
    assert "first node that differs, with every value an output: middle (Relu)" in out


def test_check_finds_a_difference_that_only_nodes_together_show(relaxvm, monkeypatch, tmp_path):
    judge = check._JUDGES["reference"]

    def wrong(proto, path, feeds):
        together = {"product", "middle"} <= {node.name for node in proto.graph.node}
        right = judge(proto, path, feeds)
        return [v + 1 for v in right] if together and len(right) == 1 else right

    monkeypatch.setitem(check._JUDGES, "reference", wrong)
    options = ["--repro", tmp_path / "repro", "--opt-level", 3]
    difference = result_of(relaxvm, "check", "m.onnx", *options, code=2)["first_difference"]
    assert difference["node"] == "middle"
    assert difference["nodes"] == 2
    assert "'opt_level': 3" in (tmp_path / "repro" / "repro.py").read_text()
    nodes = onnx.load(tmp_path / "repro" / "model.onnx").graph.node
    assert [node.name for node in nodes] == ["product", "middle"]


def test_check_reads_what_lies_beside_a_model(relaxvm, tmp_path):
    onnx.save(model(), tmp_path / "m.onnx", save_as_external_data=True, location="m.data",
              size_threshold=0)  # fmt: skip
    for against in ("reference", "onnxruntime"):
        assert result_of(relaxvm, "check", tmp_path / "m.onnx", "--against", against)["right"]


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
    "run m.rvm --size m=1": "no input has a symbol 'm'; there are: n",
    "run m.rvm --shape x=2x5": "--shape x: [2, 5] does not fit Tensor((n, 4), float32)",
    "run m.rvm --shape y=2x4": "--shape: there is no input 'y'",
    "run m.onnx --shape y=2x4": "--shape: no input 'y'; there are: x",
    "compile m.onnx -o m.onnx": "this is the model; wanted another name",
    "compile m.onnx -o p.rvm --target x86-64-v3,pdp11": "pdp11",
    "inspect m.rvm --html nowhere/p.html": "--html nowhere/p.html: wanted a file in a folder",
    "profile m.rvm --trace nowhere/p.json": "--trace nowhere/p.json: wanted a file in a folder",
    "profile m.rvm --runs 0": "--runs, --top: wanted counts",
    "bench m.rvm --weights nowhere": "nowhere",
    "run m.rvm --size n=999999999999999": "is not made up",
    "run m.rvm --output out.txt": "wanted a name in .npz or .npy",
    "run m.rvm --output nowhere/out.npz": "--output nowhere/out.npz: wanted a file in a folder",
    "run m.rvm --weights x.npy": "parameters",
    "run m.rvm --target native": "built already: --target",
    "run m.rvm --threads 0": "num_threads",
    "run m.onnx --shape x=1xx-3": "--shape: wanted",
    "run m.onnx --shape 1x3": "--shape: wanted",
    "run m.onnx --shape x=2x5": "MatMul",
    "compile m.onnx": "required: -o",
    "compile m.onnx -o nowhere/p.rvm": "--output nowhere/p.rvm: wanted a file in a folder",
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


# -- terminals -------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


ROWS = [("fused_conv2d_add_relu_with_a_long_name", "encoder/layer.0/query [bold]MatMul", 0.5)]


@pytest.mark.parametrize("wide", [30, 60, 200])
def test_tables_keep_numbers_whole_in_terminals_of_any_width(monkeypatch, wide):
    pytest.importorskip("rich", reason="draws tables where it is installed")
    monkeypatch.setenv("COLUMNS", str(wide))
    monkeypatch.setattr(sys, "stdout", Terminal())
    console.Console().table(("kernel", "node", "milliseconds"), ROWS, "times", left=2)
    lines = sys.stdout.getvalue().splitlines()
    assert "times" in lines[0]
    assert any("milliseconds" in line for line in lines)
    assert any("0.500" in line for line in lines)
    if wide != 30:  # where there is no room for a table the terminal breaks lines
        assert max(len(re.sub(r"\x1b\[\d*m", "", line)) for line in lines) <= wide
    if wide != 60:
        assert "[bold]MatMul" in sys.stdout.getvalue()


def test_without_rich_and_in_pipes_tables_are_plain(monkeypatch, capsys):
    console.Console().table(("kernel", "node", "ms"), ROWS, left=2)
    plain = capsys.readouterr().out
    assert plain.splitlines()[1] == "  ".join(map(str, ROWS[0][:2])) + "  0.500"
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(sys, "stderr", Terminal())
    told = console.Console()
    told.table(("kernel", "node", "ms"), ROWS, left=2)
    with told.stage("a stage"):
        pass
    told.warn("take care")
    assert sys.stdout.getvalue() == plain
    assert sys.stderr.getvalue().splitlines()[0].startswith("a stage  ")
    assert sys.stderr.getvalue().endswith("warning: take care\n")


def test_shells_complete_commands_and_options():
    pytest.importorskip("argcomplete", reason="completes where it is installed")
    line = "relaxvm bench m.onnx --bes"
    settings = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)),
                "_ARGCOMPLETE_STDOUT_FILENAME": "/dev/stdout", "IFS": "\n"}  # fmt: skip
    done = in_process(env={**os.environ, **settings})
    assert done.stdout.strip() == "--beside"


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


def test_an_interrupt_ends_without_a_traceback_or_half_a_file(folder, tmp_path):
    command = [sys.executable, "-m", "relaxvm", "bench", str(folder / "m.rvm"), "--seconds", "60"]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as process:
        while not process.stderr.readline().startswith("random"):
            pass
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in err


def test_help_shows_examples_and_a_closed_pipe_is_no_error(capsys):
    for command in ("bench", "check", "compile", "inspect", "ops", "profile", "run", None):
        options = [word for word in (command, "-h") if word]
        with pytest.raises(SystemExit) as stop:
            cli.entry.parser().parse_args(options)
        assert stop.value.code == 0
        assert (
            f"\n  relaxvm {command or 'bench'} "
            in capsys.readouterr().out.partition("examples:")[2]
        )
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"relaxvm {relaxvm_version}\n"
    done = subprocess.run(
        f"{sys.executable} -m relaxvm ops | head -1", shell=True, capture_output=True, text=True
    )
    assert done.stdout.startswith("operator")
    assert "Traceback" not in done.stderr
