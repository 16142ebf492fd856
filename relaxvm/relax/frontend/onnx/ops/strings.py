"""Text, onto `relax.op.strings`."""

from __future__ import annotations

from typing import Any

from ..registry import direct, onnx, op

direct({"StringConcat": op.strings.concat}, since=20)


@onnx("StringSplit", since=20)
def split(node: Any, x: Any, *, delimiter: Any, maxsplit: Any) -> Any:
    return list(node.emit(op.strings.split(x, delimiter or "", maxsplit)))


@onnx("RegexFullMatch", since=20)
def full_match(node: Any, x: Any, *, pattern: str) -> Any:
    return op.strings.full_match(x, pattern)


@onnx("StringNormalizer", since=10, ignores="locale")
def normalize(
    node: Any, x: Any, *, case_change_action: str, is_case_sensitive: int, stopwords: Any
) -> Any:
    case = case_change_action.lower()
    return op.strings.normalize(x, case, tuple(stopwords or ()), bool(is_case_sensitive))


@onnx("TfIdfVectorizer", since=9)
def tfidf(
    node: Any,
    x: Any,
    *,
    mode: str,
    min_gram_length: int,
    max_gram_length: int,
    max_skip_count: int,
    ngram_counts: Any,
    ngram_indexes: Any,
    pool_int64s: Any,
    pool_strings: Any,
    weights: Any,
) -> Any:
    return op.strings.tfidf(
        x,
        tuple(pool_strings or pool_int64s),
        tuple(ngram_counts),
        tuple(ngram_indexes),
        tuple(weights or ()),
        (min_gram_length, max_gram_length),
        max_skip_count,
        mode,
    )
