"""Strings: arrays of text at the boundary, in programs, in files, and the operators on them."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm import relax, tir
from relaxvm.base import (
    DataType,
    DTypeError,
    LoadError,
    StructInfoError,
    TIRError,
    VMTypeError,
    VMValueError,
)
from relaxvm.relax import op as R
from relaxvm.relax.interp import Evaluator
from relaxvm.relax.op.meaning import convert
from relaxvm.runtime import (
    LIBRARY,
    VirtualMachine,
    array,
    as_ndarray,
    cpu,
    empty,
    load_executable,
    operator_text,
)
from relaxvm.runtime.constants import constant_from_plain, constant_key, constant_to_plain

MODES = ["bytecode", "compiled"]
WORDS = np.array([["a", "bé", "c\0"], ["d", "", "a"]], object)


def module(build, **params):
    """A module whose `main` gives what `build` makes of parameters {name: (shape, dtype)}."""
    symbols = {n: tir.Var(n, "int64") for n in "nk"}
    infos = {
        n: relax.TensorStructInfo([symbols.get(each, each) for each in s], d)
        for n, (s, d) in params.items()
    }
    variables = [relax.Var(n, info) for n, info in infos.items()]
    bb = relax.BlockBuilder()
    with bb.function("main", variables):
        with bb.dataflow():
            out = bb.emit_output(build(*variables))
        bb.emit_func_output(out)
    return bb.get()


def check(mod, *args):
    """The module's answer, which is the same in every way to run it, from a file too."""
    wanted = Evaluator(mod)("main", *args)
    fields = wanted if isinstance(wanted, tuple) else (wanted,)
    for mode in MODES:
        program = relax.build(mod, "llvm", exec_mode=mode)
        for each in (program, load_executable(program.to_bytes(), trust="native")):
            got = VirtualMachine(each, cpu(), exec_mode=mode)["main"](*args)
            for g, w in zip(got if isinstance(got, tuple) else (got,), fields):
                assert (g.dtype == "string") == (w.dtype == object)
                np.testing.assert_array_equal(g.numpy(), w, strict=True)
    return wanted


# -- arrays ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [WORDS, WORDS.astype("U"), WORDS.tolist()])
def test_text_of_any_kind_becomes_an_array_of_strings(source):
    strings = array(source)
    assert (strings.dtype, strings.shape) == ("string", (2, 3))
    assert strings.tolist()[0][1] == "bé"


def test_an_array_of_strings_is_a_copy_that_its_source_cannot_change():
    source = WORDS.copy()
    strings = as_ndarray(source)
    source[0, 0] = 3
    assert strings.numpy()[0, 0] == "a"


@pytest.mark.parametrize("source", [["a", 1], [None], [b"a"], [["a"]]])
def test_objects_that_are_no_text_are_refused(source):
    values = np.empty(len(source), object)
    values[:] = source
    with pytest.raises(VMTypeError, match="or strings, got elements of dtype object"):
        as_ndarray(values)


def test_half_of_a_surrogate_pair_is_refused():
    with pytest.raises(VMValueError, match="no Unicode"):
        array(["a\ud800"])


def test_new_strings_are_empty_and_dlpack_has_no_such_type():
    assert empty((2,), "string").tolist() == ["", ""]
    with pytest.raises(BufferError):
        np.from_dlpack(array(["a"]))
    with pytest.raises(DTypeError, match="DLPack"):
        assert array(["a"]).dtype.type_code


def test_conversions_between_numbers_and_strings_round_trip():
    numbers = np.array([0.1, -1e-20, np.inf, -np.inf, np.nan], "float32")
    text = convert(numbers, DataType("string"))
    assert text.tolist() == ["0.1", "-1e-20", "INF", "-INF", "NaN"]
    np.testing.assert_array_equal(convert(text, DataType("float32")), numbers, strict=True)
    whole = convert(np.array(["-5", "1e3", "9223372036854775807"], object), DataType("int64"))
    assert whole.tolist() == [-5, 1000, 2**63 - 1]
    with pytest.raises(VMValueError, match="wanted a number, got 'x' at element 1"):
        convert(np.array(["1", "x"], object), DataType("int32"))


# -- constants -------------------------------------------------------------------------------------


def test_constants_of_strings_are_saved_with_the_program():
    mod = module(lambda x: R.equal(x, relax.Constant(array(WORDS))), x=(("n", 3), "string"))
    assert check(mod, WORDS).all()
    assert check(relax.transform.FoldConstant()(mod), WORDS[:1]).shape == (2, 3)


def test_saved_modules_keep_strings():
    from relaxvm.ir import load_json, save_json, structural_equal

    mod = module(lambda x: R.equal(x, relax.Constant(array(WORDS))), x=((2, 3), "string"))
    assert structural_equal(load_json(save_json(mod)), mod)
    other = module(lambda x: R.equal(x, relax.Constant(array(WORDS[::-1]))), x=((2, 3), "string"))
    assert not structural_equal(other, mod)


def test_equal_strings_share_an_entry_and_different_ones_do_not():
    assert constant_key(array(["ab"])) == constant_key(array(["a" + "b"]))
    assert constant_key(array(["ab"])) != constant_key(array(["ab", ""]))


@pytest.mark.parametrize(
    "plain",
    [
        [2],
        [[2], ["a"]],
        [[-1, -1], ["a"]],
        [["1"], ["a"]],
        [[1], [b"a"]],
        [[1], "a"],
        [[1] * 99, ["a"]],
    ],
    ids=str,
)
def test_damaged_constants_of_strings_are_refused(plain):
    assert constant_to_plain(array(["a"])) == ["strings", [1], ["a"]]
    with pytest.raises(LoadError):
        constant_from_plain(["strings", *plain], lambda data: data)


# -- operators that move and compare ---------------------------------------------------------------

MOVES = {
    "take": lambda x: R.take(x, relax.const(np.array([1, 1, 0])), axis=0),
    "concat": lambda x: R.concat([x, x], axis=0),
    "reshape": lambda x: R.reshape(x, (-1,)),
    "equal": lambda x: R.equal(x, R.take(x, relax.const(0), axis=0)),
    "not_equal": lambda x: R.not_equal(x, x),
    "where": lambda x: R.where(relax.const(np.array([True, False, True])), x, R.flip(x, axis=1)),
    "unique": lambda x: R.unique(x, True, True, True, True),
    "strided_slice": lambda x: R.strided_slice(x, [1], [0], [2]),
    "split": lambda x: R.split(x, 3, axis=1),
    "permute_dims": lambda x: R.permute_dims(x),
    "expand_dims": lambda x: R.squeeze(R.expand_dims(x, 0), 0),
    "broadcast_to": lambda x: R.broadcast_to(R.strided_slice(x, [1], [0], [1]), (2, 4)),
    "tile": lambda x: R.tile(x, (2, 1)),
    "gather_nd": lambda x: R.gather_nd(x, relax.const(np.array([[1, 0], [0, 1]]))),
    "gather_elements": lambda x: R.gather_elements(x, relax.const(np.array([[1, 0, 1]])), 0),
    "scatter_elements": lambda x: R.scatter_elements(
        x, relax.const(np.array([[1, 0, 1]])), R.strided_slice(x, [0], [0], [1])
    ),
    "nonzero": lambda x: R.nonzero(R.equal(x, relax.Constant(array("a")))),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("rows", ["n", 2])
def test_strings_are_moved_and_compared_like_numbers(name, rows):
    if rows == "n" and name == "broadcast_to":
        rows = 2
    check(module(MOVES[name], x=((rows, 3), "string")), WORDS)


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_a_program_on_strings_takes_every_length(rows):
    mod = module(lambda x: R.concat([x, R.flip(x, 0)], axis=0), x=(("n",), "string"))
    assert check(mod, np.array(list("abcd")[:rows], object)).shape == (2 * rows,)


def test_numbers_where_strings_are_wanted_are_refused():
    vm = VirtualMachine(relax.build(module(R.flatten, x=(("n",), "string")), "llvm"), cpu())
    with pytest.raises(VMTypeError, match="string"):
        vm["main"](np.zeros(3, "int64"))
    with pytest.raises(VMTypeError, match="or strings, got elements of dtype object"):
        vm["main"](np.array([1, 2], object))


def test_what_computes_refuses_strings():
    x = relax.Var("x", relax.TensorStructInfo((3,), "string"))
    for call in (lambda: R.add(x, x), lambda: R.exp(x), lambda: R.less(x, x), lambda: R.sum(x)):
        with pytest.raises(StructInfoError, match="string"):
            call()


def test_strings_in_loops_have_no_machine_code():
    x = tir.decl_buffer((3,), "string")
    with pytest.raises((TypeError, ValueError, TIRError)):
        tir.BufferLoad(x, [0]) + 1


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("{}", ()),
        ("[" * 100_000, ()),
        (operator_text("relax.nothing", {}, "string"), ()),
        (operator_text("relax.call_tir", {}, "string"), ()),
        (operator_text("relax.reshape", {}, "string"), (array(["a"]),)),
        (operator_text("relax.reshape", {}, "string"), (array(["a"]), (5,))),
        (operator_text("relax.flip", {"axis": 3}, "string"), (array(["a"]),)),
        (operator_text("relax.flip", {"axis": 0}, "int99"), (array(["a"]),)),
    ],
)
def test_hostile_calls_of_operators_are_errors(text, args):
    with pytest.raises((VMValueError, VMTypeError)):
        LIBRARY["vm.library.operator"](text, *args)


# -- operators on text -----------------------------------------------------------------------------


def test_concat_broadcasts():
    mod = module(R.strings.concat, x=(("n", 3), "string"), y=((3,), "string"))
    assert check(mod, WORDS, WORDS[0]).tolist() == [["aa", "bébé", "c\0c\0"], ["da", "bé", "ac\0"]]


def test_split_pads_with_empty_texts_and_counts():
    mod = module(lambda x: R.strings.split(x, ","), x=(("n",), "string"))
    parts, counts = check(mod, np.array(["a,b", "", ",,"], object))
    assert parts.tolist() == [["a", "b", ""], ["", "", ""], ["", "", ""]]
    assert counts.tolist() == [2, 1, 3]
    assert check(mod, np.empty(0, object))[0].shape == (0, 0)


def test_split_at_white_space_stops_at_maxsplit():
    mod = module(lambda x: R.strings.split(x, "", 1), x=(("n",), "string"))
    assert check(mod, np.array([" a  b c ", " "], object))[0].tolist() == [["a", "b c "], ["", ""]]


def test_normalize_drops_stopwords_and_leaves_one_empty_text_of_nothing():
    drop = {"case": "upper", "stopwords": ("A", "b")}
    mod = module(lambda x: R.strings.normalize(x, **drop), x=(("n",), "string"))
    assert check(mod, np.array(["a", "x", "B", "é"], object)).tolist() == ["X", "É"]
    assert check(mod, np.array(["a"], object)).tolist() == [""]
    mod = module(
        lambda x: R.strings.normalize(x, **drop, case_sensitive=True), x=((1, 3), "string")
    )
    assert check(mod, np.array([["a", "A", "b"]], object)).tolist() == [["A"]]


def test_full_match_wants_the_whole_text():
    mod = module(lambda x: R.strings.full_match(x, "a+"), x=(("n",), "string"))
    assert check(mod, np.array(["aa", "aab", ""], object)).tolist() == [True, False, False]
    x = relax.Var("x", relax.TensorStructInfo((3,), "string"))
    with pytest.raises(StructInfoError, match="no regular expression"):
        R.strings.full_match(x, "(")


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_tfidf_counts_ngrams_with_every_skip(mode):
    pool = {"pool": (2, 3, 2, 3, 3, 2), "ngram_counts": (0, 2), "ngram_indexes": (1, 0, 3, 2)}
    more = {"weights": (1.0, 2.0, 3.0, 4.0), "lengths": (1, 2), "max_skip": 1, "mode": mode}
    mod = module(lambda x: R.strings.tfidf(x, **pool, **more), x=(("n", "k"), "int64"))
    counts = np.array([[2, 1, 1, 1], [0, 1, 0, 0]], "float32")
    weights = np.array([2, 1, 4, 3], "float32")
    wanted = {"TF": counts, "IDF": (counts > 0) * weights, "TFIDF": counts * weights}[mode]
    got = check(mod, np.array([[2, 3, 3], [1, 2, 1]]))
    if mode != "TF":
        got = np.where(got == 0, 0, got)
    np.testing.assert_array_equal(got[1], wanted[1])
    assert got[0, 1] == wanted[0, 1] and got[0, 0] == wanted[0, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"ngram_counts": (0, 3)},
        {"ngram_counts": ()},
        {"ngram_indexes": (0,)},
        {"ngram_indexes": (0, 1, 2, -1)},
        {"weights": (1.0,)},
        {"lengths": (0, 1)},
        {"lengths": (2, 1)},
    ],
)
def test_tfidf_refuses_pools_that_do_not_fit(change):
    x = relax.Var("x", relax.TensorStructInfo((3,), "string"))
    pool = {"pool": tuple("aaabba"), "ngram_counts": (0, 2), "ngram_indexes": (0, 1, 2, 3)}
    assert R.strings.tfidf(x, **pool).struct_info.shape[0].value == 4
    with pytest.raises(StructInfoError):
        R.strings.tfidf(x, **{**pool, **change})


def test_text_is_found_in_sorted_text():
    mod = module(
        lambda keys, x: R.searchsorted(keys, x), keys=(("k",), "string"), x=(("n", 3), "string")
    )
    assert check(mod, np.array(["a", "b", "d"], object), WORDS).tolist() == [[0, 2, 2], [2, 0, 0]]
