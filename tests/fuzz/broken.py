"""Cases that break promises, for the tests of the runner."""

import os
import time

WAYS = {
    "abort": os.abort,
    "hang": lambda: time.sleep(1000),
    "raise": lambda: int("x"),
    "memory": lambda: bytearray(1 << 40),
    "wrong": lambda: _wrong(),
}


def _wrong():
    raise AssertionError("another result")


def make(rng):
    words = ["fine" for _ in range(2)]
    words.insert(rng.randrange(3), rng.choice(("fine", "fine", "fine", *WAYS)))
    return {"words": words, "number": rng.random()}


def check(case):
    for word in case["words"]:
        WAYS.get(word, int)()
    return True
