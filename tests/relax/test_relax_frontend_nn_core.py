"""nn's modules, parameters and tensors by themselves: trees, values, dtypes, what is refused."""

import numpy as np
import pytest
from nn_models import fill, model_of

from relaxvm import nd, relax, tir
from relaxvm.base import FrontendError, RelaxvmError, StructInfoError
from relaxvm.relax.frontend import nn


class Inner(nn.Module):
    def __init__(self):
        self.scale = nn.Parameter((4,))
        self.linear = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return self.linear(x) * self.scale


class Model(nn.Module):
    def __init__(self):
        self.layers = nn.ModuleList([Inner(), nn.ModuleList([Inner()])])
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2)})
        self.extra = nn.ParameterList([nn.Parameter((1,)), nn.Parameter((2,), "int32")])
        self.more = nn.ParameterDict({"k": nn.Parameter((3,))})
        self.width = 4

    def forward(self, x):
        return self.heads["a"](self.layers(x))


NAMES = [
    "layers.0.scale",
    "layers.0.linear.weight",
    "layers.1.0.scale",
    "layers.1.0.linear.weight",
    "heads.a.weight",
    "heads.a.bias",
    "extra.0",
    "extra.1",
    "more.k",
]


def test_parameters_are_named_by_their_path_in_the_order_of_assignment():
    model = Model()
    assert [name for name, _ in model.named_parameters()] == NAMES
    assert list(model.state_dict()) == NAMES
    assert list(model.state_dict(prefix="m.")) == [f"m.{name}" for name in NAMES]
    assert [p.shape for p in model.parameters()][:2] == [[4], [4, 4]]
    modules = [name for name, _ in model.named_modules()]
    assert modules[:4] == ["", "layers", "layers.0", "layers.0.linear"]


def test_a_shared_parameter_comes_once_but_has_all_its_names_in_the_state():
    model = nn.Module()
    model.a = nn.Linear(3, 3, bias=False)
    model.b = nn.Linear(3, 3, bias=False)
    model.b.weight = model.a.weight
    assert [name for name, _ in model.named_parameters()] == ["a.weight"]
    assert list(model.state_dict()) == ["a.weight", "b.weight"]
    value = np.ones((3, 3), "float32")
    assert model.load_state_dict({"b.weight": value}) == ([], [])
    np.testing.assert_array_equal(model.a.weight.data.numpy(), value)


def test_a_module_that_contains_itself_is_refused():
    parent = nn.Module()
    parent.child = nn.Module()
    parent.child.parent = parent
    with pytest.raises(FrontendError, match="contains itself"):
        list(parent.named_parameters())


def test_values_are_taken_without_a_copy():
    param = nn.Parameter((2, 3))
    assert param.data is None
    for value in (np.ones((2, 3), "float32"), nd.array(np.ones((2, 3), "float32"))):
        param.data = value
        assert np.shares_memory(param.data.numpy(), np.asarray(value))
    param.data = None
    assert param.data is None


def test_values_come_from_torch_too():
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(4, 2)
    mine = nn.Linear(4, 2)
    mine.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(mine.weight.data.numpy(), layer.weight.detach().numpy())
    mine.bias.data = layer.bias  # still requires a gradient
    np.testing.assert_array_equal(mine.bias.data.numpy(), layer.bias.detach().numpy())


def test_a_value_that_does_not_fit_names_the_parameter():
    linear = nn.Linear(4, 2)
    cases = (
        (np.zeros((4, 2), "float32"), r"parameter weight: wanted shape \(2, 4\), got \(4, 2\)"),
        (np.zeros((2, 4), "float64"), "parameter weight: wanted dtype float32, got float64"),
        (np.zeros((2, 4, 1), "float32"), "wanted shape"),
        ([[1.0]], "parameter weight: wanted an array"),
        ("text", "parameter weight"),
    )
    for value, message in cases:
        with pytest.raises(FrontendError, match=message):
            linear.weight.data = value
        assert linear.weight.data is None


def test_a_state_that_does_not_fit_names_the_path_and_changes_nothing():
    model = Model()
    good = {name: np.zeros(p.shape, p.dtype) for name, p in model.named_parameters()}
    bad = {**good, "more.k": np.zeros((4,), "float32")}
    with pytest.raises(FrontendError, match="parameter more.k: wanted shape"):
        model.load_state_dict(bad)
    assert all(p.data is None for p in model.parameters())
    partial = {**good, "stranger": good["extra.0"]}
    del partial["extra.0"], partial["heads.a.bias"]
    with pytest.raises(FrontendError, match="missing: heads.a.bias, extra.0; unexpected: stranger"):
        model.load_state_dict(partial)
    assert model.load_state_dict(partial, strict=False) == (
        ["heads.a.bias", "extra.0"],
        ["stranger"],
    )
    other = Model()
    with pytest.raises(FrontendError, match="heads.a.bias in the given state has no value"):
        other.load_state_dict(model.state_dict())
    model.load_state_dict(good)
    other.load_state_dict(model.state_dict())
    assert all(p.data is not None for p in other.parameters())


def test_to_changes_dtypes_before_there_are_values():
    model = Model()
    model.to("float16")
    assert {str(p.dtype) for p in model.parameters()} == {"float16"}
    linear = nn.Linear(4, 2, out_dtype="float32")
    linear.to("float16")
    assert (linear.weight.dtype, linear.bias.dtype) == ("float16", "float32")
    cache = nn.KVCache(4, [2])
    cache.to("float16")
    assert cache.dtype == "float16"
    fill(linear)
    linear.to("float16")  # it is that already
    with pytest.raises(FrontendError, match="weight: it has a value of float16"):
        linear.to("float32")


def test_the_default_dtype_can_be_set():
    nn.set_default_dtype("float16")
    try:
        assert nn.Parameter((1,)).dtype == "float16"
        assert nn.get_default_dtype() == "float16"
    finally:
        nn.set_default_dtype("float32")
    assert nn.Parameter((1,)).dtype == "float32"
    with pytest.raises(RelaxvmError):
        nn.set_default_dtype("floaty")


@pytest.mark.parametrize(
    ("make", "message", "note"),
    [
        (lambda: nn.Linear(-1, 2), "Linear.weight: .* not negative, got -1", "making Linear"),
        (lambda: nn.Linear(4, 2, dtype="f"), "Linear.weight: .*f", "making Linear"),
        (lambda: nn.Linear("in features", 2), "Linear.weight: .*identifier", "making Linear"),
        (lambda: nn.Conv2D(3, 4, (1, 2, 3)), "kernel_size: wanted one number or 2", "Conv2D"),
        (lambda: nn.Conv1D(3, 4, 3, groups=2), "3 channels are no multiple of 2", "Conv1D"),
        (lambda: nn.Conv1D(3, 4, 3, groups=0), "groups: wanted at least 1", "Conv1D"),
        (lambda: nn.GroupNorm(3, 4), "4 channels are no multiple of 3", "GroupNorm"),
        (lambda: nn.KVCache(4, ["n"]), "row of known shape", ""),
        (lambda: nn.KVCache(-4, [2]), "not negative", ""),
        (lambda: nn.MultiLinear(4, []), "out_features", "MultiLinear"),
        (lambda: nn.ModuleList([nn.Parameter((1,))]), "wanted a Module, got Parameter", "List"),
        (lambda: nn.ParameterDict({1: nn.Parameter((1,))}), "wanted a name, got int", ""),
        (lambda: nn.Parameter(4), "wanted a sequence of dimensions, got int", ""),
        (lambda: nn.Parameter([1.5]), "dimension 0: wanted an int", ""),
        (lambda: nn.Parameter([True]), "dimension 0: wanted an int", ""),
    ],
)
def test_a_wrong_constructor_says_which_attribute_of_which_module(make, message, note):
    class Outer(nn.Module):
        def __init__(self):
            self.part = make()

    with pytest.raises(RelaxvmError, match=message) as caught:
        Outer()
    notes = "\n".join(caught.value.__notes__)
    assert note in notes
    assert notes.endswith("while making Outer")


def test_containers_behave_like_lists_and_dictionaries():
    a, b, c = nn.ReLU(), nn.SiLU(), nn.GELU()
    items = nn.ModuleList([a, b])
    items.append(c)
    items.extend([a])
    assert (len(items), list(items), items[1], items[-1]) == (4, [a, b, c, a], b, a)
    assert list(items[1:3]) == [b, c]
    items[0] = c
    assert items[0] is c
    named = nn.ModuleDict({"a": a})
    named["b"] = b
    named.update({"c": c})
    assert (list(named), list(named.keys()), list(named.values())) == (
        ["a", "b", "c"],
        ["a", "b", "c"],
        [a, b, c],
    )
    assert "b" in named
    assert named.pop("b") is b
    assert named.get("b") is None
    del named["c"]
    assert list(named.items()) == [("a", a)]
    named.clear()
    assert len(named) == 0


def test_an_empty_list_is_still_there_when_asked_for():
    model = nn.Module()
    model.layers = nn.ModuleList()
    assert bool(model.layers)
    assert "layers" in dict(model.named_modules())


def test_operators_outside_of_an_export_say_where_they_belong():
    x = nn.Tensor.placeholder((2, 3), "float32")
    with pytest.raises(FrontendError, match="inside `forward`"):
        x + x
    with pytest.raises(FrontendError, match="add_extern|being exported"):
        nn.add_extern(nn.ExternModule({}))
    with pytest.raises(FrontendError, match="no method `forward`"):
        nn.Module()(x)


def test_a_tensor_shows_its_shape_and_dtype():
    n = tir.Var("n", "int64")
    x = nn.Tensor.placeholder((n, 4), "float16", "x")
    assert (x.shape, x.ndim, x.dtype) == ([n, 4], 2, "float16")
    assert repr(nn.Tensor.placeholder((2, "m"), "float32")) == 'Tensor([2, m], "float32")'
    assert nn.Tensor.from_scalar(2, "int8").dtype == "int8"
    assert nn.Tensor.from_const(np.zeros((2, 1))).shape == [2, 1]
    with pytest.raises(FrontendError, match="may be symbolic"):
        len(x)
    with pytest.raises(FrontendError, match="cannot be iterated"):
        list(x)
    for info in (relax.TensorStructInfo(None, "float32", ndim=2), relax.ShapeStructInfo([n])):
        with pytest.raises(StructInfoError, match="Tensor: wanted"):
            nn.Tensor.from_struct_info(info)


def test_numbers_take_the_dtype_of_the_tensor_and_never_lose_anything():
    def forward(x, i):
        assert (x + 1).dtype == (2.5 * x).dtype == (1 - x).dtype == "float16"
        assert (i + 1).dtype == (2.0 * i).dtype == "int32"
        with pytest.raises(FrontendError, match=r"the number 0.5 has no int32"):
            i * 0.5
        with pytest.raises(FrontendError, match="wanted a Tensor or a number, got str"):
            x + "1"
        with pytest.raises(FrontendError, match="got ndarray"):
            nn.op.add(x, np.ones(3))
        return x

    specs = {"x": nn.spec.Tensor([3], "float16"), "i": nn.spec.Tensor([3], "int32")}
    model_of(forward).export_tvm({"forward": specs})


def test_a_model_prints_as_a_tree():
    text = repr(Model())
    assert "(layers): ModuleList(" in text
    assert '(scale): Parameter((4,), "float32", without a value)' in text


@pytest.mark.parametrize("state", [5, [("a", 1)], {1: np.ones(4, "float32")}])
def test_a_state_that_is_no_mapping_of_names_is_refused(state):
    with pytest.raises(FrontendError, match=r"load_state_dict: wanted \{name: array\}, got"):
        nn.Linear(4, 4).load_state_dict(state)


def test_the_truth_of_a_comparison_is_refused_and_a_bias_that_is_there_is_true():
    class Decides(nn.Module):
        def forward(self, x):
            return x if x > 0 else -x

    spec = {"forward": {"x": nn.spec.Tensor(["n"], "float32")}}
    with pytest.raises(FrontendError, match=r"the truth of a Tensor is not known .* nn\.op\.where"):
        Decides().export_tvm(spec)
    assert nn.Linear(4, 4).bias
