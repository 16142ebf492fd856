"""Sequences of a length that run time decides: what is known of them, what they are worth in both
ways to run, what they cost.
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

from relaxvm import relax, script, tir
from relaxvm.base import LoadError, StructInfoError, VMTypeError, VMValueError
from relaxvm.ir import assert_structural_equal
from relaxvm.relax import SequenceStructInfo, TensorStructInfo, TupleStructInfo, const
from relaxvm.relax import op as R
from relaxvm.relax.analysis import struct_info_base_check, struct_info_lca
from relaxvm.relax.interp import Evaluator
from relaxvm.runtime import (
    LIBRARY,
    SequenceInfo,
    TensorInfo,
    VirtualMachine,
    VMSequence,
    array,
    cpu,
    info_from_plain,
    info_to_plain,
    load_executable,
)
from relaxvm.script import ir as I
from relaxvm.script import relax as S

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from leak_check import growth

MODES = ["bytecode", "compiled"]
F32 = TensorStructInfo(None, "float32", None, 2)
ROWS = SequenceStructInfo(F32)


def tensor(*shape, dtype="float32"):
    return relax.Var("x", TensorStructInfo(shape, dtype))


@I.ir_module
class Collect:
    @S.function(private=True)
    def loop(
        i: S.Tensor((), "int64"),
        n: S.Tensor((), "int64"),
        rows: S.Sequence(S.Tensor("float32", ndim=2)),
        x: S.Tensor(("a", 4), "float32"),
    ) -> S.Sequence(S.Tensor("float32", ndim=2)):
        go = S.less(i, n)
        if go:
            row = S.add(x, S.astype(i, "float32"))
            more = S.sequence.insert(rows, row)
            following = S.add(i, S.const(1, "int64"))
            result = Collect.loop(following, n, more, x)
        else:
            result = rows
        return result

    @S.function
    def main(
        x: S.Tensor(("a", 4), "float32"),
        n: S.Tensor((), "int64"),
        rows: S.Sequence(S.Tensor("float32", ndim=2)),
    ):
        all_rows = Collect.loop(S.const(0, "int64"), n, rows, x)
        joined = S.sequence.concat(all_rows, S.zeros((0, 4), "float32"), axis=0)
        less = S.sequence.erase(all_rows)
        count = S.sequence.length(less)
        first = S.sequence.insert(less, x, S.const(0, "int64"))
        parts = S.sequence.split(x, S.const([1, 1], "int64"), axis=0)
        return (joined, S.sequence.at(first, S.const(-1, "int64")), count, first, parts)


@pytest.fixture(scope="module")
def programs():
    return {mode: relax.build(Collect, "llvm", exec_mode=mode) for mode in MODES}


def plain(value):
    """Nested lists of a result."""
    if isinstance(value, (list, tuple, VMSequence)):
        return [plain(v) for v in value]
    return np.asarray(getattr(value, "numpy", lambda: value)()).tolist()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("given", "n"), [(0, 3), (2, 0), (2, 2), (1, 0)])
def test_sequences_go_through_calls_branches_and_files(programs, mode, given, n):
    x = np.arange(8, dtype="float32").reshape(2, 4)
    args = x, np.array(n), [x * k for k in range(given)]
    wanted = Evaluator(Collect)("main", *args)
    program = load_executable(programs[mode].to_bytes(), trust="native")
    result = VirtualMachine(program, cpu(), exec_mode=mode)["main"](*args)
    assert plain(result) == plain(wanted)
    # Callers get lists, and give them.
    assert [type(v) for v in result[3:]] == [list, list]
    assert len(result[3]) == given + n


@pytest.mark.parametrize("mode", MODES)
def test_ten_thousand_insertions_share_their_memory_and_are_freed(programs, mode):
    vm = VirtualMachine(programs[mode], cpu(), exec_mode=mode)
    x, none = np.ones((1, 4), "float32"), np.array(10_000)
    assert vm["main"](x[[0, 0]], none, [])[0].shape == (20_000, 4)
    few = np.array(50)
    assert growth(lambda: vm["main"](x[[0, 0]], few, [])) < 2000


def test_an_insertion_at_the_end_copies_no_elements():
    short = VMSequence([array([1.0])])
    long = short.appended(array([2.0]))
    other = short.appended(array([3.0]))
    assert long._items is short._items
    assert [plain(s) for s in (short, long, other)] == [[[1]], [[1], [2]], [[1], [3]]]
    assert (long.dtype, long.ndim) == ("float32", 1)
    assert long.appended(array(1)).ndim == -1


@pytest.mark.parametrize("mode", MODES)
def test_a_wrong_argument_names_the_parameter(programs, mode):
    main = VirtualMachine(programs[mode], cpu(), exec_mode=mode)["main"]
    x, n = np.ones((2, 4), "float32"), np.array(1)
    for bad, text in (
        ([x.astype("float64")], "wanted dtype float32"),
        ([x, x[0]], "wanted 2 dimensions"),
        (x, "wanted Sequence.*got Tensor"),
        (3, "wanted Sequence.*got int 3"),
    ):
        with pytest.raises(VMTypeError, match=f"main: parameter rows.*{text}"):
            main(x, n, bad)


@pytest.mark.parametrize("mode", MODES)
def test_a_result_is_no_view_of_a_constant_of_the_program(mode):
    bb = relax.BlockBuilder()
    x = tensor(2)
    with bb.function("main", [x]):
        both = bb.emit(R.sequence.construct(relax.Tuple((const([1.0, 2.0]), x))))
        bb.emit_func_output(both)
    vm = VirtualMachine(relax.build(bb.get(), "llvm", exec_mode=mode), cpu(), exec_mode=mode)
    vm["main"](np.zeros(2, "float32"))[0].array[...] = 9
    assert plain(vm["main"](np.zeros(2, "float32"))) == [[1, 2], [0, 0]]


@pytest.mark.parametrize(
    ("name", "args", "error", "text"),
    [
        ("erase", [VMSequence()], VMValueError, "the sequence is empty"),
        ("at", [VMSequence([array(1)]), array(1)], VMValueError, "wanted -1 to 0 .* got 1"),
        ("at", [VMSequence(), array(0)], VMValueError, "is empty, and has no element 0"),
        ("at", [array(1), array(0)], VMTypeError, "wanted a sequence, got NDArray"),
        ("at", [(1,), array([0, 1])], VMTypeError, "wanted one integer"),
        ("at", [(1,), array(0.5)], VMTypeError, "wanted an int"),
        ("insert", [(array(1),), None], VMTypeError, "wanted an element, got None"),
        ("insert", [(array(1),), array(1.0)], VMTypeError, "wanted int64, as .* got float32"),
        ("insert", [(), array(1), array(2)], VMValueError, "wanted 0 to 0 .* got 2"),
        ("concat", [0, 0, VMSequence()], VMValueError, "at least one element"),
        ("concat", [0, 0, (array([[1]]), array([1]))], VMValueError, "element 1: wanted the shape"),
        ("concat", [3, 0, (array([1]),)], VMValueError, "axis: wanted -1 to 0, got 3"),
        ("concat", [0, 0, (3,)], VMTypeError, "wanted tensors, got int"),
        ("concat", [0], VMTypeError, "wanted axis, new_axis, got 1 values"),
        ("split", [0, 1, array([1, 2]), array([1, 2])], VMValueError, "with the sum 2"),
        ("split", [0, 1, array([1, 2]), array(0)], VMValueError, "wanted at least 1, got 0"),
    ],
)
def test_hostile_calls_are_refused(name, args, error, text):
    with pytest.raises(error, match=text):
        LIBRARY[f"vm.library.sequence.{name}"](*args)


# -- struct info -----------------------------------------------------------------------------------


def test_what_is_known_of_elements_leaves_sizes_that_are_no_numbers_out():
    info = TensorStructInfo((tir.Var("n", "int64"), 4), "float32")
    assert SequenceStructInfo(TupleStructInfo([info])).element.fields[0].ndim == 2
    assert SequenceStructInfo(TensorStructInfo((3, 4))).element.dims is not None


def test_a_tuple_of_elements_is_a_sequence_and_joins_are_sequences():
    row, other = TensorStructInfo((3, 4)), TensorStructInfo((3, 5))
    two, three = TupleStructInfo([row, row]), TupleStructInfo([row, row, other])
    assert ROWS.is_base_of(two)
    assert ROWS.is_base_of(TupleStructInfo([]))
    assert not ROWS.is_base_of(TupleStructInfo([TensorStructInfo((3,))]))
    assert struct_info_base_check(two, ROWS) == 1
    assert struct_info_base_check(row, ROWS) == 0
    assert struct_info_lca(SequenceStructInfo(row), three) is ROWS
    assert struct_info_lca(ROWS, row) is relax.ObjectStructInfo()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: R.sequence.at(tensor(3), const(0)), "x: wanted a sequence or a tuple"),
        (lambda: R.sequence.at(relax.Tuple(()), const(0)), "it is empty"),
        (lambda: R.sequence.at(relax.Var("s", ROWS), const(0.5)), "position: wanted an integer"),
        (
            lambda: R.sequence.insert(relax.Var("s", ROWS), tensor(2, dtype="int64")),
            "wanted elements of one dtype",
        ),
        (
            lambda: R.sequence.concat(relax.Var("s", ROWS), tensor(3), axis=0),
            "otherwise: wanted",
        ),
        (lambda: R.sequence.concat(relax.Var("s", ROWS), axis=2), "axis: wanted -2 to 1"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(make, text):
    with pytest.raises(StructInfoError, match=text):
        make()


def test_script_text_reads_back_equal():
    script_text = Collect.script()
    assert 'R.Sequence(R.Tensor(dtype="float32", ndim=2))' in script_text
    again = script.from_source(script_text)
    assert_structural_equal(again, Collect)


def test_descriptions_in_files_read_back_and_hostile_ones_are_refused():
    info = SequenceInfo(SequenceInfo(TensorInfo(None, 2)))
    assert info_from_plain(info_to_plain(info)) == info
    for bad in (["sequence"], ["sequence", 3], ["sequence", ["object"], 1]):
        with pytest.raises(LoadError):
            info_from_plain(bad)
    deep = ["object"]
    for _ in range(60):
        deep = ["sequence", deep]
    with pytest.raises(LoadError):
        info_from_plain(deep)
