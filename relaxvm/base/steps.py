"""Recursion without the stack: rules are generators that `yield` the generator whose answer they
need.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

Steps = Generator[Any, Any, Any]


def run_steps(first: Steps) -> Any:
    """What `first` returns. Nesting of generators may be as deep as memory allows."""
    stack = [first]
    answer: Any = None
    while stack:
        try:
            request = stack[-1].send(answer)
        except StopIteration as done:
            stack.pop()
            answer = done.value
        else:
            stack.append(request)
            answer = None
    return answer
