from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from relaxvm.base import VMTypeError, VMValueError
from relaxvm.runtime import registry
from relaxvm.runtime.registry import (
    PackedFunc,
    get_global_func,
    list_global_func_names,
    register_func,
    register_global_func,
    remove_global_func,
)


@pytest.fixture(autouse=True)
def _own_names(monkeypatch):
    monkeypatch.setattr(registry, "_functions", {})


def test_a_decorator_with_a_name_registers_and_returns_the_function():
    @register_func("env.f")
    def f(x):
        return x + 1

    assert f(1) == 2
    assert get_global_func("env.f") is f
    assert isinstance(f, PackedFunc)


def test_a_bare_decorator_uses_the_functions_own_name():
    @register_func
    def my_add(a, b):
        return a + b

    assert get_global_func("my_add")(1, 2) == 3


def test_a_call_with_a_function_registers_it():
    register_global_func("env.g", len)
    assert get_global_func("env.g") is len
    assert list_global_func_names() == ["env.g"]


def test_a_taken_name_needs_override():
    register_func("env.f", len)
    with pytest.raises(ValueError, match=r"'env\.f'.*override=True"):
        register_func("env.f", max)
    assert get_global_func("env.f") is len
    register_func("env.f", max, override=True)
    assert get_global_func("env.f") is max

    @register_func("env.f", override=True)
    def f():
        return 1

    assert get_global_func("env.f") is f


def test_a_missing_name_is_an_error_that_names_the_nearest():
    register_func("env.relu", len)
    with pytest.raises(VMValueError, match=r"'env\.rellu'; did you mean env\.relu\?"):
        get_global_func("env.rellu")
    assert get_global_func("env.rellu", allow_missing=True) is None


def test_a_removed_name_is_gone():
    register_func("env.f", len)
    remove_global_func("env.f")
    assert list_global_func_names() == []
    with pytest.raises(VMValueError, match=r"env\.f"):
        remove_global_func("env.f")


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_an_unusable_name_is_refused(name):
    with pytest.raises(VMValueError, match="wanted a name"):
        register_func(name, len)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(VMTypeError, match="wanted a callable, got int"):
        register_func("env.f", 3)
    with pytest.raises(VMTypeError, match="wanted a name, got int"):
        register_func(3)
    with pytest.raises(VMTypeError, match="wanted a name"):
        register_func(len, max)


def test_a_callable_without_a_name_needs_one():
    class Plain:
        def __call__(self):
            return 7

    with pytest.raises(VMTypeError, match="no __name__"):
        register_func(Plain())
    assert register_func("env.plain", Plain())() == 7


def test_of_many_threads_exactly_one_registers_a_name():
    wins, barrier = [], threading.Barrier(8)

    def attempt(i):
        barrier.wait()
        try:
            register_func("env.race", lambda: i)
            wins.append(i)
        except VMValueError:
            pass

    threads = [threading.Thread(target=attempt, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1
    assert get_global_func("env.race")() == wins[0]


def test_builtins_are_global_functions():
    """Asked in a process of its own: the tests here have an empty registry."""
    program = (
        "import numpy as np, relaxvm as tvm\n"
        "get = tvm.get_global_func\n"
        "x = tvm.nd.array(np.arange(6, dtype='float32'))\n"
        "shape = get('vm.builtin.shape_of')(x)\n"
        "assert tuple(shape) == (6,) and type(shape) is tvm.runtime.ShapeTuple\n"
        "assert get('vm.builtin.reshape')(x, (2, 3)).shape == (2, 3)\n"
        "assert get('vm.builtin.copy')(x).tolist() == x.tolist()\n"
        "pair = get('vm.builtin.make_tuple')(x, x)\n"
        "assert get('vm.builtin.tuple_getitem')(pair, 1) is x\n"
        "cache = get('vm.builtin.attention_kv_cache_create')(x.view((1, 6)), (4, 6), 0)\n"
        "assert cache is not None\n"
        "from relaxvm.runtime import TABLE\n"
        "assert TABLE.keys() <= set(tvm.runtime.list_global_func_names())\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
