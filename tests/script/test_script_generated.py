"""Odd but legal text prints as text that reads back equal; near text gives that or an error with
its line.
"""

from __future__ import annotations

import random

import pytest
from fuzz.script_generator import mutated, program

from relaxvm.base import ParseError
from relaxvm.ir import assert_structural_equal
from relaxvm.script import from_source

SEED = 11


def outcome(text):
    """The error of `text`, or None: it was read, printed and read back equal."""
    try:
        made = from_source(text)
    except ParseError as error:
        return error
    printed = made.script(show_meta=True)
    try:
        assert_structural_equal(from_source(printed), made)
    except Exception as error:
        error.add_note(f"text:\n{text}\nprinted:\n{printed}")
        raise
    return None


def check(seed, count):
    refused = []
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        text = program(rng)
        near = mutated(rng, text)
        errors = {text: outcome(text), near: outcome(near)}
        for each, error in errors.items():
            assert error is None or (error.lineno and error.offset), (each, str(error))
        refused += [] if errors[text] is None else [errors[text]]
    return refused


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_generated_texts_print_as_text_that_reads_back_equal():
    refused = check(SEED, 150)
    assert len(refused) < 75, refused[:3]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_many_generated_texts_print_as_text_that_reads_back_equal():
    check(SEED + 1, 5000)
