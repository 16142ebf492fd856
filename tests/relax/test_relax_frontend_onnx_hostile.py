"""ONNX models that are damaged, by the thousand: errors of ours, and nothing else."""

import random
import subprocess
import sys

import numpy as np
import pytest

from relaxvm.base import InternalError, RelaxvmError
from relaxvm.relax.frontend.onnx import from_onnx

onnx = pytest.importorskip("onnx", reason="reading ONNX models needs the extra onnx")

from test_relax_frontend_onnx import B, F, I, graph, helper, model, node  # noqa: E402


def subjects():
    """Models to damage: convolutions, shapes from shapes, branches, loops, a recurrent layer."""
    weight = np.ones((1, 1, 3, 3), "float32")
    yield model(
        [
            node("Shape", "x", "s"),
            node("Reshape", "w s", "v"),
            node("Conv", "x k", "c", pads=[1, 1, 1, 1], strides=[1, 1]),
            node("BatchNormalization", "c one one one one", "n", epsilon=0.1),
            node("MaxPool", "n", "p", kernel_shape=[2, 2], ceil_mode=1),
            node("Transpose", "p", "t", perm=[0, 2, 3, 1]),
            node("Add", "c v", "y"),
            node("Gather", "t i", "g", axis=1),
        ],
        {"x": (F, ["n", 1, 4, 4])},
        ["y", "g"],
        {
            "w": np.ones((16,), "float32"),
            "k": weight,
            "one": np.ones(1, "float32"),
            "i": np.array([0, 1]),
        },
    )
    body = graph(
        [node("Add", "a a", "a_next"), node("ReduceSum", "a_next", "row", keepdims=0)],
        {"i": (I, []), "go": (B, []), "a": (F, None)},
        ["go", "a_next", "row"],
    )
    yield model(
        [
            node("Loop", "trips go_in x", "y rows", body=body),
            node(
                "If",
                "go_in",
                "z",
                then_branch=graph([node("Concat", "y y", "t", axis=0)], {}, ["t"]),
                else_branch=graph([node("Slice", "y a b", "e")], {}, ["e"]),
            ),
            node("Softmax", "z", "soft", axis=-1),
            node("TopK", "soft k", "top at", axis=0),
        ],
        {"trips": (I, []), "go_in": (B, []), "x": (F, ["n"])},
        ["rows", "top", "at"],
        {"a": np.array([0]), "b": np.array([1]), "k": np.array([1])},
    )
    rng = np.random.default_rng(0)
    yield model(
        [
            node("LSTM", "x w r", "y h", hidden_size=2, clip=1.0, activations=["Tanh"] * 3),
            node("Squeeze", "y axis", "q"),
            node("Split", "q", "l m", axis=2, num_outputs=2),
            node("Einsum", "l m", "z", equation="tbi,tbj->bij"),
            helper.make_node("Resize", ["z", "", "scales"], ["big"], mode="nearest"),
            node("Cast", "h", "d", to=11),
        ],
        {"x": (F, ["t", "b", 3])},
        ["big", "d"],
        {
            "w": rng.standard_normal((1, 8, 3)).astype("float32"),
            "r": rng.standard_normal((1, 8, 2)).astype("float32"),
            "axis": np.array([1]),
            "scales": np.float32([1, 2, 2]),
        },
    )


def damaged(data, rng):
    """The bytes of a model, damaged in one of several ways."""
    if rng.randrange(4) == 0:
        mutated = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            mutated[rng.randrange(len(mutated))] = rng.randrange(256)
        return bytes(mutated[: rng.randrange(len(mutated)) if rng.randrange(8) == 0 else None])
    proto = onnx.ModelProto.FromString(data)
    nodes = list(proto.graph.node)
    for n in list(nodes):
        for a in n.attribute:
            nodes += a.g.node
    names = [n for each in nodes for n in (*each.input, *each.output)]
    for _ in range(rng.randint(1, 3)):
        victim = rng.choice(nodes)
        kind = rng.randrange(7)
        if kind == 0 and victim.input:
            victim.input[rng.randrange(len(victim.input))] = rng.choice(names)
        elif kind == 1 and victim.input:
            del victim.input[rng.randrange(len(victim.input))]
        elif kind == 2:
            victim.op_type = rng.choice(nodes).op_type
        elif kind == 3 and victim.attribute:
            attribute = rng.choice(victim.attribute)
            attribute.i = rng.choice([-1, 0, 2, 7, 1 << 40, -(1 << 62)])
            attribute.ints[:] = [rng.choice([-3, 0, 1, 9, 1 << 33]) for _ in attribute.ints]
        elif kind == 4 and victim.attribute:
            del victim.attribute[rng.randrange(len(victim.attribute))]
        elif kind == 5:
            tensor = rng.choice(proto.graph.initializer)
            tensor.dims[:] = [rng.choice([0, 1, 3, 5, -1, 1 << 45]) for _ in tensor.dims]
        else:
            proto.graph.node.remove(rng.choice(proto.graph.node))
            if not proto.graph.node:
                break
    return proto.SerializeToString()


def import_damaged(count, seed):
    """What is wrong with how damaged models are refused: {what: how often}."""
    rng, faults = random.Random(seed), {}
    originals = [m.SerializeToString() for m in subjects()]
    for k in range(count):
        data = damaged(originals[k % len(originals)], rng)
        try:
            from_onnx(data)
        except InternalError as error:
            faults.setdefault(str(error)[:300], []).append(k)
        except RelaxvmError:
            pass
    return faults


def test_damaged_models_are_refused_with_errors_of_ours():
    assert import_damaged(250, 1) == {}


@pytest.mark.slow
def test_thousands_of_damaged_models_neither_crash_nor_take_memory():
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))\n"
        "from test_relax_frontend_onnx_hostile import import_damaged\n"
        "faults = import_damaged(5000, 2)\n"
        "assert not faults, faults\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=__file__.rpartition("/")[0], capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
