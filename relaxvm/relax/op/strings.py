"""Operators on text: joined, split, normalised, matched, counted in n-grams.

Their meaning in numpy is what runs (`lower_by_meaning`); what only moves and compares elements
(take, concat, where, equal, ...) takes strings as it takes numbers.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from ...base import StructInfoError
from ...ir import const
from ..struct_info import Expr, StructInfo, TensorStructInfo, TupleStructInfo
from .broadcast import broadcast_info
from .infer import INTEGER, tensor
from .lower import lower_by_meaning
from .record import missing, op
from .sizes import want_equal

_TEXT = frozenset({"string"})
_NO_FLOATS = missing("strings have no gradient")
_BY_ELEMENT = missing("strings are in no layout")


def _filled(shape: tuple[int, ...], values: list[Any], dtype: Any = object) -> np.ndarray:
    """An array of `values` in row-major order."""
    result = np.empty(len(values), dtype)
    result[:] = values
    return result.reshape(shape)


# -- concat ----------------------------------------------------------------------------------------


@op("strings.concat", np.add, lower_by_meaning, _NO_FLOATS, _BY_ELEMENT)
def concat(x1: Expr, x2: Expr) -> StructInfo:
    """Every text of `x1` with that of `x2` behind it; both broadcast."""
    return broadcast_info((x1, x2), ("x1", "x2"), _TEXT)


# -- split -----------------------------------------------------------------------------------------


def _split_numpy(x: np.ndarray, *, delimiter: str, maxsplit: int | None) -> Any:
    most = -1 if maxsplit is None else maxsplit
    parts = [text.split(delimiter or None, most) for text in x.reshape(-1)]
    width = max(map(len, parts), default=0)
    padded = [p for row in parts for p in (*row, *[""] * (width - len(row)))]
    counts = _filled(x.shape, [len(row) for row in parts], "int64")
    return _filled((*x.shape, width), padded), counts


@op("strings.split", _split_numpy, lower_by_meaning, _NO_FLOATS, _BY_ELEMENT)
def split(x: Expr, delimiter: str = "", maxsplit: int | None = None) -> StructInfo:
    """The parts of every text, along a new last axis, "" behind the last of them, and how many
    there are: (parts [..., most parts], int64 counts of the shape of `x`).

    delimiter  what stands between parts; empty: white space, of which none stands in a part
    maxsplit   how often a text is split at most, from the left; None: as often as it can be
    """
    info = tensor(x, "x", _TEXT)
    if maxsplit is not None and maxsplit < 0:
        raise StructInfoError(f"maxsplit: wanted at least 0, got {maxsplit}")
    rank = info.ndim + 1 if info.ndim >= 0 else -1
    parts = TensorStructInfo(None, "string", info.vdevice, rank)
    return TupleStructInfo((parts, info.replace(dtype="int64")))


# -- normalize -------------------------------------------------------------------------------------

_CASES: dict[str, Callable[[str], str]] = {"none": str, "lower": str.lower, "upper": str.upper}


def _normalize_numpy(
    x: np.ndarray, *, case: str, stopwords: tuple[str, ...], case_sensitive: bool
) -> np.ndarray:
    same: Callable[[str], str] = str if case_sensitive else str.lower
    dropped = set(map(same, stopwords))
    kept = [_CASES[case](text) for text in x.reshape(-1) if same(text) not in dropped]
    kept = kept or [""]
    return _filled((*x.shape[:-1], len(kept)), kept)


@op("strings.normalize", _normalize_numpy, lower_by_meaning, _NO_FLOATS, _BY_ELEMENT)
def normalize(
    x: Expr,
    case: Literal["none", "lower", "upper"] = "none",
    stopwords: tuple[str, ...] = (),
    case_sensitive: bool = False,
) -> StructInfo:
    """The texts of a row, `x` [count] or [1, count], without those that are `stopwords`, in upper
    or lower case. Where nothing is left, the one text "" is.

    case_sensitive  whether a stopword is one in its own case only
    """
    info = tensor(x, "x", _TEXT)
    if info.ndim not in (-1, 1, 2):
        raise StructInfoError(f"x: wanted 1 or 2 dimensions, got {info.ndim}")
    if info.ndim == 2:
        want_equal(info.dims[0], const(1, "int64"), "x: wanted one row, got {a}")
    return TensorStructInfo(None, "string", info.vdevice, info.ndim)


# -- full_match ------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise StructInfoError(f"pattern: {text!r} is no regular expression: {error}") from error


@op(
    "strings.full_match",
    lambda x, *, pattern: _filled(
        x.shape, [_pattern(pattern).fullmatch(t) is not None for t in x.reshape(-1)], bool
    ),
    lower_by_meaning,
    _NO_FLOATS,
    _BY_ELEMENT,
)
def full_match(x: Expr, pattern: str) -> StructInfo:
    """Whether the regular expression `pattern` (as Python has them) matches the whole of a text:
    a bool for each.
    """
    _pattern(pattern)
    return tensor(x, "x", _TEXT).replace(dtype="bool")


# -- tfidf -----------------------------------------------------------------------------------------


def _tfidf_numpy(
    x: np.ndarray,
    *,
    pool: tuple[Any, ...],
    ngram_counts: tuple[int, ...],
    ngram_indexes: tuple[int, ...],
    weights: tuple[float, ...],
    lengths: tuple[int, int],
    max_skip: int,
    mode: str,
) -> np.ndarray:
    columns = _columns(pool, ngram_counts, ngram_indexes)
    rows = x.reshape(-1, x.shape[-1]).tolist()
    counts = np.zeros((len(rows), max(ngram_indexes) + 1), "float32")
    for row, count in zip(rows, counts):
        for n in range(lengths[0], lengths[1] + 1):
            # There is one way only to skip between the elements of a single one.
            for step in range(1, 2 + (max_skip if n > 1 else 0)):
                span = (n - 1) * step + 1
                for start in range(len(row) - span + 1):
                    column = columns.get(tuple(row[start : start + span : step]))
                    if column is not None:
                        count[column] += 1
    scale = np.ones(counts.shape[1], "float32")
    scale[list(ngram_indexes)] = weights or 1.0
    present = counts > 0 if mode == "IDF" else counts
    scaled = present if mode == "TF" else present * scale
    return scaled.astype("float32").reshape(*x.shape[:-1], counts.shape[1])


@functools.lru_cache(maxsize=8)
def _columns(
    pool: tuple[Any, ...], starts: tuple[int, ...], indexes: tuple[int, ...]
) -> dict[tuple[Any, ...], int]:
    """n-gram -> column of the result."""
    grams = []
    for n, (start, end) in enumerate(zip(starts, (*starts[1:], len(pool))), 1):
        grams += [pool[i : i + n] for i in range(start, end, n)]
    return dict(zip(grams, indexes))


@op("strings.tfidf", _tfidf_numpy, lower_by_meaning, _NO_FLOATS, _BY_ELEMENT)
def tfidf(
    x: Expr,
    pool: tuple[str, ...] | tuple[int, ...],
    ngram_counts: tuple[int, ...],
    ngram_indexes: tuple[int, ...],
    weights: tuple[float, ...] = (),
    lengths: tuple[int, int] = (1, 1),
    max_skip: int = 0,
    mode: Literal["TF", "IDF", "TFIDF"] = "TF",
) -> StructInfo:
    """How often each n-gram of a pool stands in every row of `x`, [count] or [rows, count] of
    strings or integers: float32 [rows, columns].

    pool           the elements of all n-grams, first those of one element, then of two, ...
    ngram_counts   where in the pool the n-grams of one element begin, those of two, ...
    ngram_indexes  the column of each n-gram
    weights        of each n-gram (none: 1)
    lengths        the least and the greatest length of n-grams that are looked for
    max_skip       how many elements may be left out between neighbours of an n-gram, as many
                   everywhere
    mode           "TF": counts; "IDF": the weights of those that there are; "TFIDF": counts times
                   weights
    """
    info = tensor(x, "x", _TEXT | INTEGER)
    if info.ndim not in (-1, 1, 2):
        raise StructInfoError(f"x: wanted 1 or 2 dimensions, got {info.ndim}")
    starts = (*ngram_counts, len(pool))
    sizes = [end - start for start, end in itertools.pairwise(starts)]
    if not ngram_counts or starts[0] != 0 or any(s < 0 or s % n for n, s in enumerate(sizes, 1)):
        raise StructInfoError(
            f"ngram_counts: {ngram_counts} do not divide a pool of {len(pool)} into n-grams of 1, "
            "2, ... elements"
        )
    count = sum(s // n for n, s in enumerate(sizes, 1))
    for name, each in (("ngram_indexes", ngram_indexes), ("weights", weights or ngram_indexes)):
        if len(each) != count:
            raise StructInfoError(f"{name}: wanted {count}, one per n-gram, got {len(each)}")
    if min(ngram_indexes, default=-1) < 0 or not 1 <= lengths[0] <= lengths[1] or max_skip < 0:
        raise StructInfoError(
            f"wanted columns of at least 0, lengths of at least 1 and skips of at least 0, got "
            f"{ngram_indexes}, {lengths} and {max_skip}"
        )
    return TensorStructInfo((*info.dims[:-1], const(max(ngram_indexes) + 1, "int64")), "float32")
