"""Rows that somebody adds to the table of builtins."""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax
from relaxvm.base import VMValueError
from relaxvm.runtime import (
    TABLE,
    Builtin,
    Builtins,
    Effect,
    ExecBuilder,
    register_builtin,
    rows_replaced,
)
from relaxvm.runtime.builtin import wrong_field
from relaxvm.runtime.ops import Op, OpKind
from relaxvm.runtime.registry import get_global_func, remove_global_func
from relaxvm.runtime.resolve import mark_tail_calls

NAME = "vm.builtin.test_row"
X_INFO = relax.TensorStructInfo((3,), "float32")
X = np.arange(3, dtype="float32")


@pytest.fixture
def registered():
    def add(row):
        register_builtin(NAME, row)
        return TABLE[NAME]

    yield add
    del TABLE[NAME]
    remove_global_func(NAME)


@pytest.fixture
def row(registered):
    return registered(Builtin(lambda x: x, "any", pure=True, aliases=True))


def program(*operands, info=None):
    """main(x: float32[3]) calls the row on `x` and `operands`, which gives `info`."""
    info = X_INFO if info is None else info
    bb = relax.BlockBuilder()
    x = relax.Var("x", X_INFO)
    with bb.function("main", [x], pure=False):
        call = relax.Call(relax.ExternFunc(NAME), (x, *operands), sinfo_args=(info,))
        bb.emit_func_output(bb.emit(call))
    return relax.build(bb.get(), "llvm")


def test_a_row_is_a_global_function_too(row):
    assert get_global_func(NAME)(3) == 3


def test_a_row_more_is_told(row):
    assert rows_replaced()


def test_as_shipped_nothing_is_replaced():
    assert not rows_replaced()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"args": "any number"}, "got number"),
        ({"args": "any (any imm dims)*"}, "got dims"),
        ({"args": 3}, "args: wanted str, got int"),
        ({"args": "any= any"}, "optional ones last"),
        ({"args": "any (any"}, "optional ones last"),
        ({"args": "any) any"}, r"got any\)"),
        ({"args": "(any)* any"}, r"got any\)\*"),
        ({"function": None}, "function: wanted a function, got NoneType"),
        ({"native": "mov"}, "native: wanted a function, got str"),
        ({"bind": 1}, "bind: wanted a function, got int"),
        ({"pure": 1}, "pure: wanted bool, got int"),
        ({"raises": None}, "raises: wanted bool, got NoneType"),
        ({"effect": "COPY"}, "effect: wanted Effect, got str"),
        ({"dynamic": True}, "dynamic: wanted int, got bool"),
        ({"dynamic": 2}, "dynamic: 2 of 1 arguments"),
        ({"dynamic": -1}, "dynamic: -1 of 1 arguments"),
        ({"effect": Effect.PLACE}, "PLACE is of arguments 'any any any dtype', got 'any'"),
        ({"effect": Effect.PLACE, "args": "any any any any"}, "PLACE is of arguments"),
        ({"effect": Effect.COPY, "args": ""}, "COPY is of arguments 'any'"),
    ],
)
def test_a_row_of_which_a_field_is_wrong_is_refused(fields, message):
    row = Builtin(**({"function": lambda *a: None, "args": "any"} | fields))
    with pytest.raises(VMValueError, match=message):
        register_builtin(NAME, row)
    assert NAME not in TABLE


@pytest.mark.parametrize("name", ["env.f", "", None, 3])
def test_a_row_has_a_name_of_the_table_and_is_a_row(name):
    with pytest.raises(VMValueError, match="wanted a name such as vm.builtin"):
        register_builtin(name, Builtin(lambda x: x, "any"))
    with pytest.raises(VMValueError, match="wanted a Builtin, got function"):
        register_builtin(NAME, lambda x: x)
    assert name not in TABLE and NAME not in TABLE


def test_the_rows_of_the_house_are_right_themselves():
    assert {name: wrong_field(row) for name, row in TABLE.items() if wrong_field(row)} == {}


def test_a_row_alone_makes_a_builtin_of_every_mode(registered):
    """Function, arguments, machine code and memory of a builtin are said in one place."""
    python, native = [], []

    def rank(x):
        python.append(x)
        return len(x.shape)

    def emit(body):
        from relaxvm.target.llvm.vm_values import Integer

        native.append(body.pc)
        body.set(Integer(value=len(body.tensor(0, None, 1).dims)))

    registered(Builtin(rank, "any", pure=True, native=emit))
    ex = program(info=relax.PrimStructInfo("int64"))
    assert "test_row" in ex.as_python()
    assert native
    vm = tvm.relax.VirtualMachine(ex, tvm.cpu(), exec_mode="compiled")
    assert vm["main"](X) == 1
    assert not python
    assert tvm.relax.VirtualMachine(ex, tvm.cpu(), exec_mode="bytecode")["main"](X) == 1
    assert len(python) == 1


@pytest.mark.parametrize(
    ("effect", "peak"), [(Effect.COPY, 12), (Effect.SAME, 0), (Effect.UNKNOWN, 0)]
)
def test_the_memory_of_a_call_is_its_rows(registered, effect, peak):
    registered(Builtin(lambda x: x, "any", pure=True, aliases=True, effect=effect))
    assert program().memory_plan()["main"].peak == peak


def test_a_row_in_place_of_ours_has_no_machine_code_of_ours():
    name, ours = "vm.builtin.shape_of", TABLE["vm.builtin.shape_of"]
    bb = relax.BlockBuilder()
    x = relax.Var("x", X_INFO)
    with bb.function("main", [x], pure=False):
        info = relax.ShapeStructInfo(ndim=1)
        bb.emit_func_output(bb.emit(relax.Call(relax.ExternFunc(name), (x,), sinfo_args=(info,))))
    register_builtin(name, Builtin(lambda x: tvm.runtime.ShapeTuple((7,)), "any", pure=True))
    try:
        for mode in ("bytecode", "compiled"):
            vm = relax.VirtualMachine(relax.build(bb.get(), "llvm"), tvm.cpu(), exec_mode=mode)
            assert vm["main"](X) == (7,)
    finally:
        TABLE[name] = ours
        remove_global_func(name)
        tvm.register_func(name, ours.function, override=True)


@pytest.mark.parametrize(
    ("row", "storages"),
    [
        (Builtin(lambda x: None, "any"), 2),
        (Builtin(lambda x: x, "any", pure=True, aliases=True), 2),
        (Builtin(lambda x: None, "any", aliases=True), 3),
        (Builtin(lambda x: None, "any", calls=True), 3),
        (Builtin(lambda account, x: x, "any", pure=True, aliases=True, account=True), 3),
    ],
    ids=["reads", "views", "keeps", "calls", "grows"],
)
def test_memory_is_planned_by_what_a_row_keeps(registered, row, storages):
    """Two tensors share memory where the builtin that reads the first keeps nothing of it."""
    registered(row)
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((256,), "float32"))
    with bb.function("main", [x], pure=False):
        y = bb.emit_te(lambda a: tvm.te.compute((256,), lambda i: a[i] + 1), x)
        bb.emit(relax.Call(relax.ExternFunc(NAME), (y,), sinfo_args=(relax.ObjectStructInfo(),)))
        z = bb.emit_te(lambda a: tvm.te.compute((256,), lambda i: a[255 - i] * 2), x)
        bb.emit(relax.Call(relax.ExternFunc(NAME), (z,), sinfo_args=(relax.ObjectStructInfo(),)))
        w = bb.emit_te(lambda a: tvm.te.compute((256,), lambda i: a[255 - i] * 3), z)
        bb.emit_func_output(w)
    listing = relax.build(bb.get(), "llvm").as_text()
    assert listing.count("vm.builtin.alloc_storage") == storages


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_what_leaves_behind_pure_builtins_sees_the_arguments_as_they_were(exec_mode):
    """A loop that overwrites a parameter, and then meets what machine code leaves to others."""
    ib = ExecBuilder()
    r = ib.r
    with ib.function("main", num_inputs=3):
        ib.emit_call(Builtins.TUPLE_GETITEM, [r(0), 0], dst=r(3))
        ib.emit_call(Builtins.MOVE, [r(1)], dst=r(0))
        ib.emit_call(Builtins.TUPLE_GETITEM, [r(0), 1], dst=r(4))
        ib.emit_call(Builtins.MAKE_TUPLE, [r(3), r(4)], dst=r(5))
        ib.emit_if(r(2), 2)
        ib.emit_goto(-5)
        ib.emit_ret(r(5))
    vm = relax.VirtualMachine(ib.get(), tvm.cpu(), exec_mode=exec_mode)
    assert vm["main"]((1, 2), tvm.runtime.ShapeTuple((3, 4)), False) == (1, 4)


@pytest.mark.parametrize("raises", [False, True])
def test_a_row_that_may_refuse_its_argument_is_no_move(raises):
    """The frame of a caller waits for what may still happen to the value of its call."""
    row = Builtin(lambda x: x, "any", aliases=True, effect=Effect.SAME, raises=raises)
    ops = [
        Op(OpKind.FUNCTION, symbol="f", dst=1, args=(0,)),
        Op(OpKind.BUILTIN, dst=2, args=(1,), builtin=row),
        Op(OpKind.RET, args=(2,)),
    ]
    mark_tail_calls(ops, "f", {"f": 0, "": 1})
    assert ops[0].tail == (not raises)
