"""ONNX models as graph functions: shapes that stay symbolic, control flow, errors, files."""

import os
import random

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import FrontendError, InternalError, OpNotImplemented, RelaxvmError
from relaxvm.relax.frontend import detach_params
from relaxvm.relax.frontend.onnx import NeedsConstant, from_onnx
from relaxvm.relax.frontend.onnx import graph as graph_file
from relaxvm.relax.frontend.onnx.model import Model
from relaxvm.relax.frontend.onnx.registry import find, translations
from relaxvm.relax.interp import Evaluator
from relaxvm.runtime import VirtualMachine, cpu

onnx = pytest.importorskip("onnx", reason="reading ONNX models needs the extra onnx")
helper = onnx.helper
F, I, B = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def model(nodes, inputs, outputs, weights=(), opset=21, functions=(), domains=()):
    """A model; inputs are {name: (element type, shape)}, outputs names, weights {name: array}."""
    infos = [helper.make_tensor_value_info(n, *t) for n, t in inputs.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        infos,
        [onnx.ValueInfoProto(name=o) for o in outputs],
        [onnx.numpy_helper.from_array(a, n) for n, a in dict(weights).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions)


def node(op_type, inputs, outputs, **attrs):
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attrs)


def run(mod, *args):
    return Evaluator(mod)("main", *args)


def operators(mod):
    """The names of the operators that reach the output of `main`."""
    live = relax.transform.DeadCodeElimination()(mod)["main"]
    return [
        b.value.op.name.removeprefix("relax.")
        for block in live.body.blocks
        for b in block.bindings
        if isinstance(b.value, relax.Call) and hasattr(b.value.op, "name")
    ]


def int64(*values):
    return np.array(values, "int64")


# -- shapes ----------------------------------------------------------------------------------------


def test_shapes_computed_from_shapes_stay_symbolic():
    m = model(
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n"),
            node("Gather", "s one", "len"),
            node("Unsqueeze", "n axis", "n1"),
            node("Mul", "len two", "len2"),
            node("Unsqueeze", "len2 axis", "len21"),
            node("Concat", "n1 len21 minus", "target", axis=0),
            node("Reshape", "x target", "y"),
        ],
        {"x": (F, ["batch", "len", 8])},
        ["y"],
        {
            "zero": np.int64(0),
            "one": np.int64(1),
            "two": np.int64(2),
            "axis": int64(0),
            "minus": int64(-1),
        },
    )
    mod = from_onnx(m)
    assert operators(mod) == ["reshape"]
    info = mod["main"].ret_struct_info
    assert [str(d) for d in info.shape.values] == ["batch", "len * T.int64(2)", "T.int64(4)"]
    x = np.arange(48, dtype="float32").reshape(2, 3, 8)
    assert np.array_equal(run(mod, x), x.reshape(2, 6, 4))


def test_a_shape_sliced_and_divided_stays_symbolic():
    m = model(
        [
            node("Shape", "x", "s"),
            node("Slice", "s one two", "last"),
            node("Div", "last two", "half"),
            node("Concat", "half half", "shape", axis=0),
            node("ConstantOfShape", "shape", "y"),
        ],
        {"x": (F, ["n", "m"])},
        ["y"],
        {"one": int64(1), "two": int64(2)},
    )
    mod = from_onnx(m)
    assert operators(mod) == ["full"]
    assert run(mod, np.zeros((3, 9), "float32")).shape == (4, 4)


@pytest.mark.parametrize("shape", [(3, 2), (-1, 2), (0, 3), (6, 1)])
def test_a_shape_known_only_at_run_time_makes_fresh_symbols(shape):
    m = model(
        [node("Reshape", "x shape", "y"), node("Relu", "y", "z")],
        {"x": (F, ["n", 3]), "shape": (I, [2])},
        ["z"],
    )
    x = np.arange(6, dtype="float32").reshape(2, 3)
    wanted = x.reshape(2 if shape[0] == 0 else shape[0], shape[1])
    assert np.array_equal(run(from_onnx(m), x, int64(*shape)), wanted)


def test_what_depends_on_data_goes_on_with_a_symbol():
    m = model(
        [node("NonZero", "x", "i"), node("Transpose", "i", "j"), node("Shape", "j", "s")],
        {"x": (F, ["n"])},
        ["j", "s"],
    )
    rows, sizes = run(from_onnx(m), np.array([0, 1, 0, 2], "float32"))
    assert rows.tolist() == [[1], [3]]
    assert sizes.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("op_type", "inputs", "dims"),
    [
        ("NonZero", {"x": (F, ["n", 3])}, (2, None)),
        ("NonMaxSuppression", {"x": (F, [1, "n", 4]), "scores": (F, [1, 2, "n"])}, (None, 3)),
        ("Unique", {"x": (F, ["n", 3])}, (None, 3)),
    ],
)
def test_what_does_not_depend_on_data_is_known_of_a_size_that_data_decides(op_type, inputs, dims):
    attrs = {"axis": 0} if op_type == "Unique" else {}
    m = model([node(op_type, " ".join(inputs), "y", **attrs)], inputs, ["y"])
    shape = from_onnx(m)["main"].body.body.struct_info.shape
    assert tuple(getattr(d, "value", None) for d in shape.values) == dims


def test_elements_chosen_by_a_mask_are_read_and_written():
    m = model(
        [
            node("NonZero", "mask", "i"),
            node("Transpose", "i", "j"),
            node("GatherND", "x j", "y"),
            node("Neg", "y", "z"),
            node("ScatterND", "x j z", "w"),
        ],
        {"x": (F, ["n", 2]), "mask": (B, ["n", 2])},
        ["y", "w"],
    )
    x, mask = np.arange(6, dtype="float32").reshape(3, 2), np.eye(3, 2, dtype=bool)
    chosen, written = run(from_onnx(m), x, mask)
    assert np.array_equal(chosen, x[mask])
    assert np.array_equal(written, np.where(mask, -x, x))


def test_an_expanded_size_of_one_keeps_the_data():
    m = model(
        [node("Shape", "y", "s"), node("Expand", "x s", "z")],
        {"x": (F, [3, 1]), "y": (F, ["n", "m"])},
        ["z"],
    )
    mod = from_onnx(m)
    x = np.ones((3, 1), "float32")
    assert run(mod, x, np.zeros((1, 4), "float32")).shape == (3, 4)
    assert run(mod, x, np.zeros((3, 1), "float32")).shape == (3, 1)


def test_shape_dict_says_other_dimensions():
    m = model([node("Relu", "x", "y")], {"x": (F, ["n", 3])}, ["y"])
    info = from_onnx(m, shape_dict={"x": ["k", 5]})["main"].params[0].struct_info
    assert str(info.shape.values[0]) == "k"
    assert info.shape.values[1].value == 5


def test_an_input_that_must_be_known_is_asked_for_by_name():
    m = model(
        [node("Add", "axes one", "a"), node("ReduceSum", "x a", "y")],
        {"x": (F, [2, 3]), "axes": (I, [1])},
        ["y"],
        {"one": int64(1)},
    )
    with pytest.raises(NeedsConstant, match="'axes'") as error:
        from_onnx(m)
    assert error.value.inputs == ("axes",)
    mod = from_onnx(m, constants={"axes": int64(0)})
    assert [p.name_hint for p in mod["main"].params] == ["x"]
    assert run(mod, np.ones((2, 3), "float32")).tolist() == [[3], [3]]


# -- the function ----------------------------------------------------------------------------------


def test_weights_are_constants_or_parameters():
    w = np.full((3,), 2, "float32")
    m = model([node("Mul", "x w", "y")], {"x": (F, ["n", 3])}, ["y"], {"w": w})
    x = np.ones((2, 3), "float32")
    assert np.array_equal(run(from_onnx(m), x), x * 2)
    kept = from_onnx(m, keep_params_in_input=True)
    assert kept["main"].attrs["num_input"] == 1
    bare, params = detach_params(kept)
    assert np.array_equal(params["main"][0].numpy(), w)
    assert np.array_equal(run(bare, x, w), x * 2)


def test_names_that_clash_after_sanitising_stay_apart():
    m = model([node("Sub", "a.b a/b", "y")], {"a.b": (F, [1]), "a/b": (F, [1])}, ["y"])
    mod = from_onnx(m)
    assert [p.name_hint for p in mod["main"].params] == ["a_b", "a_b_1"]
    assert run(mod, np.float32([3]), np.float32([1])).tolist() == [2]


def test_a_model_local_function_is_inlined_with_its_attributes():
    inner = node("LeakyRelu", "a", "b")
    inner.attribute.append(
        onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    )
    function = helper.make_function(
        "local", "Leak", ["a"], ["b"], [inner], [helper.make_opsetid("", 21)], ["slope"]
    )
    m = model(
        [helper.make_node("Leak", ["x"], ["y"], domain="local", slope=0.5)],
        {"x": (F, [2])},
        ["y"],
        functions=[function],
        domains=["local"],
    )
    assert run(from_onnx(m), np.float32([-2, 2])).tolist() == [-1, 2]


def test_a_function_that_calls_itself_is_refused():
    call = helper.make_node("Again", ["a"], ["b"], domain="local")
    opsets = [helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "Again", ["a"], ["b"], [call], opsets)
    m = model(
        [helper.make_node("Again", ["x"], ["y"], domain="local")],
        {"x": (F, [2])},
        ["y"],
        functions=[function],
        domains=["local"],
    )
    with pytest.raises(FrontendError, match="calls itself"):
        from_onnx(m)


def test_an_operator_without_translation_is_what_its_schema_expands_to():
    assert not any(t.name == "MeanVarianceNormalization" for t in translations())
    m = model([node("MeanVarianceNormalization", "x", "y")], {"x": (F, [2, 3, 2, 2])}, ["y"])
    x = np.random.default_rng(0).standard_normal((2, 3, 2, 2)).astype("float32")
    centred = x - x.mean((0, 2, 3), keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean((0, 2, 3), keepdims=True))
    np.testing.assert_allclose(run(from_onnx(m), x), wanted, rtol=1e-4, atol=1e-5)


# -- control flow ----------------------------------------------------------------------------------


def graph(nodes, inputs, outputs):
    infos = [helper.make_tensor_value_info(n, *t) for n, t in inputs.items()]
    return helper.make_graph(nodes, "inner", infos, [onnx.ValueInfoProto(name=o) for o in outputs])


def test_branches_see_what_is_around_them():
    m = model(
        [
            node(
                "If",
                "c",
                "y",
                then_branch=graph([node("Add", "x x", "t")], {}, ["t"]),
                else_branch=graph([node("Neg", "x", "e")], {}, ["e"]),
            )
        ],
        {"c": (B, []), "x": (F, ["n"])},
        ["y"],
    )
    mod = from_onnx(m)
    x = np.float32([1, 2])
    assert run(mod, np.array(True), x).tolist() == [2, 4]
    assert run(mod, np.array(False), x).tolist() == [-1, -2]


def loop_model(body_nodes, trips=None):
    body = graph(
        body_nodes,
        {"i": (I, []), "go": (B, []), "a": (F, None)},
        ["go_on", "a_next", "row"],
    )
    weights = {"limit": np.float32(100), "one": np.float32(1)}
    return model(
        [node("Loop", "trips go_in x", "y rows", body=body)],
        {"trips": (I, []), "go_in": (B, []), "x": (F, ["n"])},
        ["y", "rows"],
        weights,
    )


def test_a_loop_ends_by_its_count_or_its_condition():
    m = loop_model(
        [
            node("Add", "a a", "a_next"),
            node("ReduceMax", "a_next", "most", keepdims=0),
            node("Less", "most limit", "go_on"),
            node("Identity", "a_next", "row"),
        ]
    )
    mod = from_onnx(m)
    x = np.float32([1, 3])
    for trips, count in ((0, 0), (2, 2), (50, 6)):
        y, rows = run(mod, np.int64(trips), np.array(True), x)
        assert y.tolist() == (x * 2**count).tolist()
        assert rows.shape == (count, 2)
    assert run(mod, np.int64(9), np.array(False), x)[0].tolist() == [1, 3]


def test_what_a_loop_carries_may_grow():
    m = loop_model(
        [
            node("Concat", "a a", "a_next", axis=0),
            node("Identity", "go", "go_on"),
            node("ReduceSum", "a_next", "row", keepdims=0),
        ]
    )
    y, rows = run(from_onnx(m), np.int64(3), np.array(True), np.float32([1]))
    assert y.tolist() == [1] * 8
    assert rows.tolist() == [2, 4, 8]


def test_a_loop_is_built_and_runs_in_the_machine():
    m = loop_model(
        [
            node("Add", "a one", "a_next"),
            node("Identity", "go", "go_on"),
            node("Identity", "a_next", "row"),
        ]
    )
    vm = relax.VirtualMachine(relax.build(from_onnx(m), "llvm"))
    y, rows = vm["main"](np.array(3, "int64"), np.array(True), np.float32([0, 10]))
    assert y.numpy().tolist() == [3, 13]
    assert rows.numpy().tolist() == [[1, 11], [2, 12], [3, 13]]


def loop_node(trips, begin, outputs, body):
    return helper.make_node("Loop", [trips, "", begin], outputs.split(), body=body)


def test_rows_of_a_loop_that_runs_to_its_end_are_written_to_their_places():
    """Loops in loops, two results of the same kind; programs may run again."""
    inner = graph(
        [
            node("Cast", "j", "jf", to=F),
            node("Add", "b one", "b_next"),
            node("Mul", "b jf", "row2"),
        ],
        {"j": (I, []), "go2": (B, []), "b": (F, None)},
        ["go2", "b_next", "row2"],
    )
    body = graph(
        [
            loop_node("three", "a", "a_next rows2", inner),
            node("Neg", "a_next", "row"),
            node("Identity", "a", "a_before"),
        ],
        {"i": (I, []), "go": (B, []), "a": (F, None)},
        ["go", "a_next", "rows2", "row", "a_before"],
    )
    m = model(
        [loop_node("trips", "x", "y all most again", body)],
        {"trips": (I, []), "x": (F, ["n"])},
        ["y", "all", "most", "again"],
        {"one": np.float32(1), "three": np.int64(3)},
    )
    mod = from_onnx(m)
    assert sum(gv.name_hint.startswith("put_row") for gv in mod.functions) >= 2
    x = np.float32([1, 10])

    def wanted(trips):
        a, every, rows, before = x, [], [], []
        for _ in range(trips):
            before.append(a)
            every.append([(a + j) * j for j in range(3)])
            a = a + 3
            rows.append(-a)
        return a, *(np.array(v, "float32") for v in (every, rows, before))

    executable = relax.build(mod, "llvm")
    for mode in ("compiled", "bytecode"):
        vm = relax.VirtualMachine(executable, exec_mode=mode)
        for trips in (4, 0, -2, 2):
            for got in (vm["main"](np.int64(trips), x), run(mod, np.int64(trips), x)):
                for a, b in zip(got, wanted(trips)):
                    assert np.array_equal(np.asarray(a).reshape(-1), b.reshape(-1)), (mode, trips)


def test_an_older_scan_stops_each_row_of_the_batch_at_its_length():
    body = graph(
        [node("Add", "s e", "s_next"), node("Identity", "s_next", "row")],
        {"s": (F, None), "e": (F, None)},
        ["s_next", "row"],
    )
    m = model(
        [node("Scan", "len s0 x", "y rows", body=body, num_scan_inputs=1, directions=[0])],
        {"len": (I, ["b"]), "s0": (F, ["b", 2]), "x": (F, ["b", "t", 2])},
        ["y", "rows"],
        opset=8,
    )
    x = np.arange(12, dtype="float32").reshape(2, 3, 2)
    y, rows = run(from_onnx(m), int64(3, 1), np.zeros((2, 2), "float32"), x)
    assert y.tolist() == [x[0].sum(0).tolist(), x[1, 0].tolist()]
    assert rows.tolist() == [x[0].cumsum(0).tolist(), [x[1, 0].tolist(), [0, 0], [0, 0]]]


def test_gradients_are_of_weights_and_of_values_between():
    gradient = helper.make_node(
        "Gradient", ["w", "h", "b"], ["dw", "dh"], domain="ai.onnx.preview.training", xs=["w", "h"],
        zs=["b"], y="y",
    )  # fmt: skip
    twice = helper.make_node(
        "Gradient", ["h"], ["second"], domain="ai.onnx.preview.training", xs=["h"], y="dh"
    )
    m = model(
        [node("Exp", "x", "h"), node("Mul", "h w", "v"), node("Mul", "v h", "u"),
         node("Add", "u b", "y"), gradient, twice],
        {"x": (F, [3]), "b": (F, [1])},
        ["y", "dw", "dh", "second"],
        {"w": np.float32([1, 2, 3])},
    )  # fmt: skip
    m.opset_import.append(helper.make_opsetid("ai.onnx.preview.training", 1))
    x, b, w = np.float32([0, 0.5, 1]), np.float32([7]), np.float32([1, 2, 3])
    y, dw, dh, second = run(from_onnx(m), x, b)
    h = np.exp(x)
    for got, wanted in ((y, h * w * h + b), (dw, h * h), (dh, 2 * h * w), (second, 2 * w)):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


# -- what cannot be imported -----------------------------------------------------------------------


def test_operators_that_are_absent_are_told_all_at_once():
    m = model(
        [node("Dat", "x", "a"), node("Dat", "x", "b"), node("Frob", "a", "c")],
        {"x": (F, [2, 2])},
        ["b", "c"],
    )
    with pytest.raises(OpNotImplemented) as error:
        from_onnx(m)
    assert "Dat, 2 times" in str(error.value)
    assert "Frob, 1 times" in str(error.value)
    assert "ONNX node a (Dat)" in str(error.value)


def random_nodes(*nodes, **attrs):
    outputs = [f"y{k}" for k in range(len(nodes))]
    made = [helper.make_node(n, [], [o], shape=[4], **attrs) for n, o in zip(nodes, outputs)]
    return run(from_onnx(model(made, {}, outputs)))


def test_random_nodes_differ_unless_their_seeds_say_otherwise():
    a, b = random_nodes("RandomUniform", "RandomUniform")
    assert (a != b).all()
    a, b = random_nodes("RandomNormal", "RandomNormal", seed=3.0)
    assert (a == b).all()
    assert (random_nodes("RandomNormal", "RandomNormal", seed=4.0)[0] != a).all()


def test_multinomial_picks_by_probability():
    m = model([node("Multinomial", "x", "y", sample_size=50, dtype=I)], {"x": (F, ["n", 3])}, ["y"])
    y = run(from_onnx(m), np.log(np.float32([[1e-9, 1, 1], [1, 1e-9, 1e-9]])))
    assert y.dtype == np.int64
    assert set(y[0]) == {1, 2}
    assert set(y[1]) == {0}


def test_a_fallback_runs_what_has_no_translation_by_the_reference(monkeypatch):
    m = model(
        [
            node("Relu", "x", "a"),
            node("Det", "a", "b"),
            node("Det", "x", "c"),
            node("Neg", "b", "y"),
        ],
        {"x": (F, ["n", 2, 2])},
        ["y", "c"],
    )
    real = graph_file.find
    monkeypatch.setattr(graph_file, "find", lambda d, n, v: None if n == "Det" else real(d, n, v))
    with pytest.raises(OpNotImplemented, match='pass fallback="reference"'):
        from_onnx(m)
    with pytest.warns(UserWarning, match=r"no translation: Det \(2 times\)"):
        mod = from_onnx(m, fallback="reference")
    x = np.random.default_rng(0).standard_normal((3, 2, 2)).astype("float32")
    wanted = -np.linalg.det(np.maximum(x, 0)), np.linalg.det(x)
    executable = relax.build(mod, "llvm")
    for mode in ("compiled", "bytecode"):
        got = relax.VirtualMachine(executable, exec_mode=mode)["main"](x)
        for g, w in zip(got, wanted):
            np.testing.assert_allclose(g.numpy(), w, rtol=1e-5, atol=1e-6)
    with pytest.raises(FrontendError, match="fallback: wanted None or 'reference'"):
        from_onnx(m, fallback="onnxruntime")


def test_a_fault_of_a_translation_is_not_called_one_of_the_model(monkeypatch):
    def broken(node, x, *, perm):
        return {}["nothing"]

    entry = find("", "Transpose", 21)._replace(function=broken)
    monkeypatch.setattr(graph_file, "find", lambda *key: entry)
    right, wrong = (
        model([node("Transpose", "x", "y", perm=perm)], {"x": (F, [2, 3])}, ["y"])
        for perm in ([1, 0], [0, 5])
    )
    with pytest.raises(InternalError, match=r"(?s)translation failed: KeyError.*fault in relaxvm"):
        from_onnx(right)
    with pytest.raises(FrontendError, match="do not fit"):
        from_onnx(wrong)


def notes(error):
    return "\n".join(getattr(error.value, "__notes__", ()))


def test_errors_name_the_node():
    m = model([node("MatMul", "x x", "y", name="layer/3")], {"x": (F, [2, 3])}, ["y"])
    with pytest.raises(RelaxvmError) as error:
        from_onnx(m)
    assert "ONNX node layer/3 (MatMul)" in notes(error)


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (node("Relu", "nothing", "y"), "made by no node before it"),
        (node("Relu", "y", "y"), "made by no node before it"),
        (node("LeakyRelu", "x", "y", alpha=2), "wanted FLOAT, got INT"),
        (node("Relu", "x", "y", slope=2.0), "Relu has none"),
        (node("Relu", "x x", "y"), "inputs"),
        (node("Cast", "x", "y"), "attribute to: it is missing"),
    ],
)
def test_a_broken_node_is_refused(broken, text):
    m = model([broken], {"x": (F, [2])}, ["y"])
    with pytest.raises(RelaxvmError, match=text):
        from_onnx(m)


@pytest.mark.parametrize("data", [b"", b"\x08", b"not a model", bytes(range(256))])
def test_bytes_that_are_no_model_are_refused(data):
    with pytest.raises(FrontendError):
        from_onnx(data)


def test_mutated_models_import_or_raise_our_errors():
    m = model(
        [
            node("Shape", "x", "s"),
            node("Reshape", "w s", "v"),
            node("Conv", "x k", "c", pads=[1, 1, 1, 1]),
            node("Add", "c v", "y"),
        ],
        {"x": (F, [1, 1, 4, 4])},
        ["y"],
        {"w": np.ones((16,), "float32"), "k": np.ones((1, 1, 3, 3), "float32")},
    )
    data, rng = m.SerializeToString(), random.Random(7)
    for _ in range(300):
        mutated = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            mutated[rng.randrange(len(mutated))] = rng.randrange(256)
        try:
            from_onnx(bytes(mutated))
        except RelaxvmError:
            pass


# -- files -----------------------------------------------------------------------------------------


def with_large_weights():
    """A model with weights of many kinds, read apart from the rest of a file."""
    rng, kinds = np.random.default_rng(0), "float32 float64 float16 int8 uint16 int64 bool"
    weights = {
        kind: rng.integers(0, 2 if kind == "bool" else 99, (73, 83)).astype(kind)
        for kind in kinds.split()
    }
    weights |= {"small": np.ones(3, "float32"), "none": np.ones((0, 5000), "float32")}
    m = model([node("Identity", w, f"{w}_out") for w in weights], {}, [], weights)
    m.graph.output.extend(onnx.ValueInfoProto(name=f"{w}_out") for w in weights)
    int4 = helper.make_tensor("int4", onnx.TensorProto.INT4, [9001], rng.integers(-8, 8, 9001))
    m.graph.initializer.append(int4)
    m.graph.node.append(node("Cast", "int4", "int4_out", to=onnx.TensorProto.INT8))
    m.graph.output.append(onnx.ValueInfoProto(name="int4_out"))
    weights["int4"] = onnx.numpy_helper.to_array(int4).astype("int8")
    return m, weights


@pytest.mark.parametrize("kind", ["path", "bytes", "message"])
def test_weights_of_files_bytes_and_messages_are_the_same(tmp_path, kind):
    m, weights = with_large_weights()
    data = m.SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)
    source = {"path": tmp_path / "m.onnx", "bytes": data, "message": m}[kind]
    results = run(from_onnx(source))
    for result, (name, values) in zip(results, weights.items(), strict=True):
        assert result.dtype == values.dtype, name
        np.testing.assert_array_equal(result, values, name)
    assert Model(source).complete() == m


def test_a_weight_of_another_size_in_a_file_is_refused_by_name(tmp_path):
    m, _ = with_large_weights()
    m.graph.initializer[0].raw_data += b"\0\0"
    onnx.save(m, tmp_path / "m.onnx")
    with pytest.raises(FrontendError, match=r"tensor float32: wanted float32 of shape \[73, 83\]"):
        from_onnx(tmp_path / "m.onnx")


def test_a_file_cut_anywhere_is_damaged_and_two_graphs_are_merged(tmp_path):
    m, _ = with_large_weights()
    data, path = m.SerializeToString(), tmp_path / "m.onnx"
    for size in range(0, len(data) - 1, 1009):
        path.write_bytes(data[:size])
        with pytest.raises(FrontendError):
            Model(path)
    twice = onnx.ModelProto(graph=m.graph).SerializeToString()
    path.write_bytes(data + twice)
    whole = onnx.ModelProto()
    whole.ParseFromString(data + twice)
    assert Model(path).complete() == whole
    assert len(whole.graph.initializer) == 2 * len(m.graph.initializer)


def external(tmp_path, location, values, **more):
    tensor = onnx.TensorProto(name="w", data_type=F, dims=values.shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=str(value))
    m = model([node("Add", "x w", "y")], {"x": (F, [4])}, ["y"])
    m.graph.initializer.append(tensor)
    path = tmp_path / "model" / "m.onnx"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(m.SerializeToString())
    return path


def test_external_tensors_are_mapped_from_the_models_folder(tmp_path):
    w = np.arange(4, dtype="float32")
    path = external(tmp_path, "data/w.bin", w, offset=8, length=16)
    (path.parent / "data").mkdir()
    (path.parent / "data" / "w.bin").write_bytes(b"\0" * 8 + w.tobytes())
    assert run(from_onnx(path), np.ones(4, "float32")).tolist() == [1, 2, 3, 4]
    with pytest.raises(FrontendError, match="did not come from a path"):
        from_onnx(path.read_bytes())


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/hostname", "a/../../w.bin", "", "link.bin", "hard.bin", "."]
)
def test_external_tensors_elsewhere_are_refused(tmp_path, location):
    w = np.arange(4, dtype="float32")
    path = external(tmp_path, location, w)
    (tmp_path / "w.bin").write_bytes(w.tobytes())
    (path.parent / "link.bin").symlink_to(tmp_path / "w.bin")
    os.link(tmp_path / "w.bin", path.parent / "hard.bin")
    with pytest.raises(FrontendError, match="refused"):
        from_onnx(path)


def test_an_external_tensor_that_is_too_short_is_refused(tmp_path):
    path = external(tmp_path, "w.bin", np.zeros(4, "float32"))
    (path.parent / "w.bin").write_bytes(b"\0" * 12)
    with pytest.raises(FrontendError, match="tensor w: wanted 16 bytes"):
        from_onnx(path)


# -- the table -------------------------------------------------------------------------------------


def test_translations_cover_every_version_of_their_operator_and_every_attribute():
    """What a translation neither takes nor ignores would be refused when a model has it."""
    lacking = []
    names = {t.name for t in translations() if not t.domain}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain or schema.name not in names:
            continue
        entry = find("", schema.name, schema.since_version)
        title = f"{schema.name}-{schema.since_version}"
        if entry is None:
            if not (schema.has_function or schema.has_context_dependent_function):
                lacking.append(title)
            continue
        more = set(schema.attributes) - entry.attributes - entry.ignores
        lacking += [f"{title}: {name}" for name in sorted(more)]
        if entry.most_inputs < schema.max_input < 1 << 20:
            lacking.append(f"{title}: {schema.max_input} inputs")
    assert lacking == []


# -- element types ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1"])
def test_packed_weights_beside_the_model_are_unpacked(tmp_path, kind):
    number = getattr(onnx.TensorProto, kind)
    theirs = helper.tensor_dtype_to_np_dtype(number)
    values = np.arange(15).astype("float32").astype(theirs).reshape(3, 5)
    made = model([node("Cast", "w", "y", to=F)], {}, ["y"], {"w": values}, opset=25)
    whole = run(from_onnx(made))
    onnx.save(
        made, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    assert (tmp_path / "w.bin").stat().st_size == (8 if "4" in kind[-3:] or "4" in kind else 4)
    np.testing.assert_array_equal(run(from_onnx(tmp_path / "m.onnx")), values.astype("float32"))
    np.testing.assert_array_equal(whole, values.astype("float32"))


@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "FLOAT8E5M2"])
def test_floats_of_8_bits_are_quantised_along_an_axis_and_saturate_if_told_to(kind):
    number = getattr(onnx.TensorProto, kind)
    zero = np.zeros(2).astype(helper.tensor_dtype_to_np_dtype(number))
    scale = np.array([1, 4], "float32")
    for saturate in (0, 1):
        nodes = [
            node("QuantizeLinear", "x s z", "q", axis=0, saturate=saturate),
            node("DequantizeLinear", "q s z", "y", axis=0),
        ]
        made = model(nodes, {"x": (F, ["n", 3])}, ["y"], {"s": scale, "z": zero})
        x = np.array([[1, 2, 1e9], [8, 24, -1e9]], "float32")
        y = run(from_onnx(made, shape_dict={"x": (2, 3)}), x)
        np.testing.assert_array_equal(y[:, :2], x[:, :2])
        assert np.isfinite(y[:, 2]).all() == bool(saturate)


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_casts_to_powers_of_two_are_those_of_onnx(mode, saturate):
    x = np.array([0, 1e-40, 1.0, 1.4, 1.5, 3.1, 3e38, 1.8e38, np.inf, np.nan, -3.0], "float32")
    to = onnx.TensorProto.FLOAT8E8M0
    made = model(
        [node("Cast", "x", "y", to=to, round_mode=mode, saturate=saturate)],
        {"x": (F, ["n"])},
        ["y"],
        opset=25,
    )
    want = onnx.numpy_helper.to_float8e8m0(x, bool(saturate), mode).astype("float32")
    np.testing.assert_array_equal(run(from_onnx(made), x), want)


def test_strings_pass_through_a_model():
    S = onnx.TensorProto.STRING
    nodes = [
        node("Where", "c x w", "a"),
        node("Concat", "a x", "b", axis=0),
        node("Unique", "b", "y", sorted=1),
        node("Cast", "k", "t", to=S),
        node("StringConcat", "a t", "z"),
    ]
    inputs = {"x": (S, ["n"]), "c": (B, ["n"]), "k": (I, [])}
    mod = from_onnx(model(nodes, inputs, ["y", "z"], {"w": np.array(["é"], object)}))
    x = np.array(["b", "a", "b"], object)
    y, z = run(mod, x, np.array([True, False, True]), np.array(7))
    assert y.tolist() == ["a", "b", "é"] and z.tolist() == ["b7", "é7", "b7"]


# -- counts, axes, widths and steps that are known when the program runs ---------------------------

X = np.random.default_rng(0).normal(size=(4, 5)).astype("float32")
AT_RUN_TIME = {
    "TopK": ("x k", {"k": int64(2)}, {"axis": 0}),
    "TopK of none": ("x k", {"k": int64(0)}, {"axis": 0}),
    "TopK of the least": ("x k", {"k": int64(3)}, {"largest": 0}),
    "Tile": ("x r", {"r": int64(2, 3)}, {}),
    "Tile none": ("x r", {"r": int64(0, 1)}, {}),
    "Trilu upper": ("x k", {"k": np.array(1)}, {"upper": 1}),
    "Trilu": ("x k", {"k": np.array(-2)}, {"upper": 0}),
    "Trilu of nothing": ("x k", {"k": np.array(-9)}, {"upper": 0}),
    "CumSum": ("x a", {"a": np.array(-1)}, {}),
    "CumSum down": ("x a", {"a": np.array(0)}, {"exclusive": 1, "reverse": 1}),
    "OneHot": ("i d v", {"i": int64(1, -1, 9), "d": np.array(4), "v": int64(3, 7)}, {"axis": 0}),
    "OneHot of nothing": ("i d v", {"i": int64(1), "d": np.array(0), "v": int64(3, 7)}, {}),
    "Split": ("x s", {"s": int64(3, 1)}, {}),
    "Split with nothing": ("x s", {"s": int64(4, 0)}, {}),
    "Slice": (
        "x b e a s",
        {"b": int64(-1, 1), "e": int64(-9, 9), "a": int64(1, 0), "s": int64(-2, 3)},
        {},
    ),
    "Slice a step": ("x b e a s", {"b": int64(0), "e": int64(9), "a": int64(1), "s": int64(2)}, {}),
    **{
        f"Pad {mode}": ("x p", {"p": int64(2, 1, 3, 4)}, {"mode": mode})
        for mode in ("constant", "reflect", "edge", "wrap")
    },
    "Pad by less": ("x p v", {"p": int64(-1, 2, 2, -3), "v": np.float32(7)}, {}),
    "Range": ("a b c", {"a": np.float32(5), "b": np.float32(-2), "c": np.float32(-1.5)}, {}),
}


def at_run_time(name):
    """A model that gets everything when it runs, what it is given, and what it gives."""
    names, given, attrs = AT_RUN_TIME[name]
    data = {"x": X, **given} if "x" in names.split() else given
    op_type = name.split()[0]
    outputs = ["y", "z"] if op_type in ("TopK", "Split") else ["y"]
    inputs = {
        n: (helper.np_dtype_to_tensor_dtype(a.dtype), [f"{n}{i}" for i in range(a.ndim)])
        for n, a in data.items()
    }
    for n, a in given.items():
        if n not in "i":  # how many counts there are is known
            inputs[n] = (inputs[n][0], a.shape)
    made = model([node(op_type, names, " ".join(outputs), **attrs)], inputs, outputs)
    return made, data


@pytest.mark.parametrize("name", AT_RUN_TIME)
def test_what_is_known_when_it_runs_needs_no_constants(name):
    from onnx.reference import ReferenceEvaluator

    made, data = at_run_time(name)
    got = run(from_onnx(made), *data.values())
    got = got if isinstance(got, tuple) else (got,)
    if name == "Pad by less":  # the reference pads by numpy, which cannot
        wanted = [run(from_onnx(made, constants={n: data[n] for n in "pv"}), X)]
    else:
        wanted = ReferenceEvaluator(made).run(None, data)
    for g, w in zip(got, wanted):
        np.testing.assert_array_equal(g, w)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
@pytest.mark.parametrize("name", AT_RUN_TIME)
def test_what_is_known_when_it_runs_is_built(name, mode):
    made, data = at_run_time(name)
    mod = from_onnx(made)
    vm = VirtualMachine(relax.build(mod, "llvm", exec_mode=mode), cpu(), exec_mode=mode)
    got, wanted = vm["main"](*data.values()), run(mod, *data.values())
    if not isinstance(wanted, tuple):
        got, wanted = (got,), (wanted,)
    for g, w in zip(got, wanted):
        np.testing.assert_array_equal(g.numpy(), w)
