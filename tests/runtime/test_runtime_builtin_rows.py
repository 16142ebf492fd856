"""Rows that somebody adds to the table of builtins."""

import pytest

from relaxvm.base import VMValueError
from relaxvm.runtime import TABLE, Builtin, register_builtin, rows_replaced
from relaxvm.runtime.registry import get_global_func, remove_global_func

NAME = "vm.builtin.test_row"


@pytest.fixture
def row():
    register_builtin(NAME, Builtin(lambda x: x, "any", pure=True, aliases=True))
    yield TABLE[NAME]
    del TABLE[NAME]
    remove_global_func(NAME)


def test_a_row_is_a_global_function_too(row):
    assert get_global_func(NAME)(3) == 3


def test_a_row_more_is_told(row):
    assert rows_replaced()


def test_as_shipped_nothing_is_replaced():
    assert not rows_replaced()


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("env.f", "any", "wanted a name such as vm.builtin"),
        (NAME, "any number", "got number"),
        (NAME, "any (any imm dims)*", "got dims"),
    ],
)
def test_a_row_that_says_nothing_is_refused(name, args, message):
    with pytest.raises(VMValueError, match=message):
        register_builtin(name, Builtin(lambda *a: None, args))
    assert name not in TABLE
