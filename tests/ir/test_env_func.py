"""`ir.EnvFunc`: registered functions as values of IR."""

import pytest

import relaxvm as tvm
from relaxvm.ir import EnvFunc, load_json, save_json, structural_equal


@tvm.register_func("tests.env_func")
def _add_one(x):
    return x + 1


def test_it_is_saved_by_its_name_and_calls_what_is_registered():
    made = EnvFunc.get("tests.env_func")
    again = load_json(save_json(made))
    assert again.name == "tests.env_func" and structural_equal(made, again)
    assert again(10) == 11 and again.func(1) == 2


def test_a_name_that_nothing_is_registered_under_is_an_error():
    with pytest.raises(ValueError, match=r"tests\.nobody"):
        EnvFunc.get("tests.nobody")
    # Loading runs and needs nothing; the call does.
    with pytest.raises(ValueError, match=r"tests\.nobody"):
        load_json(save_json(EnvFunc("tests.nobody")))(1)


def test_a_module_of_a_class_has_its_name():
    @tvm.script.ir_module
    class Named:
        pass

    assert Named.__name__ == "Named"
    assert tvm.ir.IRModule.__name__ == "IRModule"
    assert not hasattr(tvm.IRModule(), "__name__")
