"""Names that TVM has renamed: each gives the present thing, and one warning that names it."""

import importlib
import sys
import warnings

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relay
from relaxvm._deprecated import _ADAPTED, _MOVED, _RENAMED
from relaxvm.ir import structural_equal

ROWS = [(m, old, now) for m, names in _RENAMED.items() for old, now in names.items()]
X = relay.var("x", shape=(1, 3, 4, 4))


def warned(action):
    """What `action` gives, the one warning and the file that it points at."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = action()
    (one,) = caught
    assert one.category is DeprecationWarning
    assert one.filename == __file__
    return value, str(one.message)


def module_of(path):
    return importlib.import_module(f"relaxvm.{path}" if path else "relaxvm")


@pytest.mark.parametrize(("module", "old", "now"), ROWS, ids=lambda v: str(v))
def test_an_older_name_gives_the_present_thing_and_one_warning(module, old, now):
    home = module_of(module)
    value, message = warned(lambda: getattr(home, old))
    assert message.endswith(f": write {now}")
    place, _, name = now.rpartition(".")
    present = getattr(module_of(place), name)
    assert value is present or f"{module}.{old}" in _ADAPTED


def test_imports_of_older_names_warn_once():
    def act():
        from relaxvm.relay import Module

        return Module

    value, message = warned(act)
    assert value is tvm.IRModule
    assert message == "relay.Module: write IRModule"


@pytest.mark.parametrize("path", _MOVED)
def test_imports_of_moved_modules_warn_once(path, monkeypatch):
    monkeypatch.delitem(sys.modules, path, raising=False)

    def act():
        return importlib.import_module(path)

    with pytest.warns(DeprecationWarning, match=_MOVED[path]):
        module = act()
    assert module is importlib.import_module(f"relaxvm.{_MOVED[path]}")


def test_older_contexts_are_contexts():
    with pytest.warns(DeprecationWarning, match="PassContext"), relay.build_config(opt_level=3):
        assert tvm.transform.PassContext.current().opt_level == 3


def test_older_operators_mean_what_they_did():
    old, _ = warned(lambda: relay.image.resize(X, (8, 8), method="BILINEAR"))
    assert structural_equal(old, relay.image.resize2d(X, (8, 8)), True)
    i = relay.const(np.zeros((1, 3, 4, 4), "int64"))
    old, _ = warned(lambda: relay.scatter_add(X, i, X, axis=1))
    assert structural_equal(old, relay.scatter_elements(X, i, X, 1, "add"), True)
    resize, _ = warned(lambda: relay.op.image.resize)
    with pytest.raises(ValueError, match=r"method: wanted one of .*, got 'area'"):
        resize(X, (8, 8), method="area")


def test_passes_of_the_first_relay_take_expressions():
    x = relay.var("x", shape=(2,))
    fn = relay.Function([x], relay.add(relay.const([1.0, 2.0]), relay.const([3.0, 4.0])))
    folded, message = warned(lambda: relay.ir_pass.fold_constant(fn))
    assert message.endswith("write relay.transform.FoldConstant()(module)")
    assert structural_equal(folded, relay.testing.run_opt_pass(fn, relay.transform.FoldConstant()))
    typed, _ = warned(lambda: relay.ir_pass.infer_type(relay.add(x, x)))
    assert typed.struct_info == x.struct_info
    assert warned(lambda: relay.ir_pass.free_vars)[0](relay.add(x, x)) == [x]
    with pytest.raises(AttributeError, match="no attribute 'fold_constants'"):
        _ = relay.ir_pass.fold_constants
