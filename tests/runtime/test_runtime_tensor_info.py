"""vm.builtin.broadcast_shape and vm.builtin.tensor_property."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from relaxvm.base import VMTypeError, VMValueError
from relaxvm.runtime import ShapeTuple, array
from relaxvm.runtime.builtin import TABLE
from relaxvm.runtime.tensor_info import broadcast_shape, tensor_property


def test_broadcast_shape_is_numpys():
    shapes = [(), (1,), (3,), (0,), (2, 3), (2, 1), (1, 1, 3), (4, 2, 3), (1, 0)]
    for group in itertools.product(shapes, repeat=2):
        try:
            want = np.broadcast_shapes(*group)
        except ValueError:
            with pytest.raises(VMValueError, match="do not broadcast: dimension -[12] is"):
                broadcast_shape(*group)
            continue
        got = broadcast_shape(*group)
        assert got == want
        assert type(got) is ShapeTuple
    assert broadcast_shape((2, 1), (3,), (5, 1, 1)) == (5, 2, 3)


def test_properties_of_a_tensor():
    x = array(np.zeros((2, 3), "float16"))
    assert [
        tensor_property(x, name) for name in ("ndim", "dtype_code", "dtype_bits", "dtype_lanes")
    ] == [2, 2, 16, 1]
    assert [tensor_property(x, "shape", i) for i in (0, 1)] == [2, 3]
    assert [tensor_property(x, "stride", i) for i in (0, 1)] == [3, 1]
    assert tensor_property(x, "byte_offset") == tensor_property(x, "elem_offset") == 0
    assert tensor_property(array(np.zeros(2, bool)), "dtype_bits") == 1
    assert tensor_property(array([1.0], dtype="bfloat16"), "dtype_code") == 4


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: broadcast_shape(3), VMTypeError, "wanted a shape, got"),
        (lambda: broadcast_shape((1, "x")), VMTypeError, "wanted a shape, got"),
        (lambda: tensor_property((1, 2), "ndim"), VMTypeError, "wanted a tensor, got"),
        (lambda: tensor_property(array([1.0]), "colour"), VMValueError, "no property 'colour'"),
        (lambda: tensor_property(array([1.0]), ["ndim"]), VMValueError, "no property"),
        (
            lambda: tensor_property(array([1.0]), "shape", 1),
            VMValueError,
            "wanted an axis of 0 to 0, got 1",
        ),
        (
            lambda: tensor_property(array([1.0]), "shape", -1),
            VMValueError,
            "wanted an axis of 0 to 0",
        ),
        (
            lambda: tensor_property(array(1.0), "stride", 0),
            VMValueError,
            "no dimensions has no axis 0",
        ),
        (lambda: tensor_property(array([1.0]), "shape"), VMTypeError, "axis: wanted an int"),
    ],
)
def test_mistakes(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_both_are_builtins_of_the_machine():
    assert TABLE["vm.builtin.broadcast_shape"].function is broadcast_shape
    assert TABLE["vm.builtin.tensor_property"].function is tensor_property
