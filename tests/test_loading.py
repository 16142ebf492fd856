"""`relaxvm.load`: ONNX models and saved programs by one door."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxvm
from relaxvm.base import FrontendError, LoadError, RelaxvmError
from relaxvm.ir import walk
from relaxvm.ir.transform import module_pass
from relaxvm.relax import Constant
from relaxvm.runtime import Executable, NDArray

WEIGHT = np.arange(12, dtype="float32").reshape(4, 3)


def model(rows="n"):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 3])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], "product"),
        helper.make_node("Relu", ["xw"], ["y"]),
    ]
    weights = [numpy_helper.from_array(WEIGHT, "w")]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture
def paths(tmp_path):
    onnx.save(model(), tmp_path / "model.onnx")
    relaxvm.load(model()).export_library(tmp_path / "model.rvm")
    return tmp_path / "model.onnx", tmp_path / "model.rvm"


def test_whatever_it_is_the_result_is_an_executable_that_can_be_called(paths, tmp_path):
    x = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
    misnamed = tmp_path / "program.onnx"
    misnamed.write_bytes(paths[1].read_bytes())
    sources = [*paths, *map(str, paths), *(p.read_bytes() for p in paths), model(), misnamed]
    for source in sources:
        program = relaxvm.load(source)
        assert type(program) is Executable
        np.testing.assert_allclose(
            program["main"](x).numpy(), np.maximum(x @ WEIGHT, 0), rtol=1e-5, atol=1e-6
        )


def test_options_of_a_model_reach_the_import_and_the_build(paths):
    program = relaxvm.load(paths[0], "llvm", shape_dict={"x": [2, 4]}, exec_mode="bytecode")
    assert str(program.function("main").params[0]) == "Tensor((2, 4), float32)"
    with pytest.raises(LoadError, match="shape_dict: for models; this is a program"):
        relaxvm.load(paths[1], shape_dict={"x": [2, 4]})


def test_weights_are_mapped_from_the_file_unless_they_are_not_to_be(paths):
    for mmap in (True, False):
        program = relaxvm.load(paths[1], mmap=mmap)
        weights = [c for c in program.constants if type(c) is NDArray]
        assert weights
        assert all(w.array.flags.writeable is not mmap for w in weights)


def test_a_program_is_loaded_and_run_without_the_compiler(paths):
    code = (
        "import sys, numpy, relaxvm\n"
        f"y = relaxvm.load({str(paths[1])!r})['main'](numpy.ones((2, 4), 'float32'))\n"
        "assert y.shape == (2, 3)\n"
        "rooms = {m.split('.')[1] for m in sys.modules if m.startswith('relaxvm.')}\n"
        "assert rooms <= {'_aliases', 'base', 'runtime', 'loading'}, rooms\n"
        "assert 'onnx' not in sys.modules\n"
        "import os\n"
        "by_hand = sys.platform == 'linux' and os.uname().machine == 'x86_64'\n"
        "assert not by_hand or 'llvmlite.binding' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_neither_says_what_was_wanted(paths, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text.onnx").write_text("no model at all")
    (tmp_path / "cut.rvm").write_bytes(paths[1].read_bytes()[:-40])
    (tmp_path / "cut.onnx").write_bytes(paths[0].read_bytes()[:-7])
    with pytest.raises(FileNotFoundError, match=r"nowhere\.onnx"):
        relaxvm.load(tmp_path / "nowhere.onnx")
    with pytest.raises(LoadError, match="wanted a plain file"):
        relaxvm.load(tmp_path)
    for name in ("empty", "text.onnx", "cut.rvm", "cut.onnx"):
        with pytest.raises(RelaxvmError, match=name.replace(".", r"\.")):
            relaxvm.load(tmp_path / name)
    for wrong in (None, 5, [1], b"", b"\x87", b"\xff" * 200):
        with pytest.raises(RelaxvmError):
            relaxvm.load(wrong)
    with pytest.raises(FrontendError, match="wanted a path, bytes or a ModelProto"):
        relaxvm.load(5)


def test_a_program_can_be_pickled():
    program = relaxvm.load(model())
    again = pickle.loads(pickle.dumps(program))
    assert again.to_bytes() == program.to_bytes()
    assert copy.deepcopy(program).globals == program.globals


def test_modules_that_somebody_elses_pass_keeps_stay_as_they_are(tmp_path):
    """The build scales weights that nobody else has where they are."""
    size, kept = 128, []
    weight = np.random.default_rng(0).standard_normal((size, size, 2, 2)).astype("float32")
    ones = np.full(size, 2, "float32")
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, size, 2 - k, 2 - k])
        for k, n in enumerate("xy")
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", *["ones"] * 4], ["y"]),
    ]
    weights = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(ones, "ones")]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    before = (tmp_path / "m.onnx").read_bytes()

    @module_pass(opt_level=0, name="keep")
    def keep(mod, ctx):
        kept.append(mod)
        return mod

    for name in ("pipeline", "relax_pipeline"):
        options = {} if name == "pipeline" else {"cache": False}
        program = relaxvm.load(tmp_path / "m.onnx", **{name: keep}, **options)
        constants = [n.data for n in walk(kept.pop()["main"]) if type(n) is Constant]
        (w,) = [c.numpy() for c in constants if c.ndim == 4]
        assert (w == weight).all()
        value = np.ones((1, size, 2, 2), "float32")
        want = 2 * (weight.sum((1, 2, 3)) - 2) / np.sqrt(2 + 1e-5) + 2
        np.testing.assert_allclose(program["main"](value).numpy()[0, :, 0, 0], want, rtol=1e-3)
    assert (tmp_path / "m.onnx").read_bytes() == before
