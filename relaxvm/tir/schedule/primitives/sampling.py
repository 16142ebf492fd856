"""Primitives that draw random numbers. What was drawn is kept in the trace as a decision."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from ....ir import IntImm, Var
from ...stmt import Block
from ..model.primitive import BLOCK, EXPR, LOOP, LOOP_OR_PLACE, list_of, primitive
from ..model.state import State, refuse
from .moving import places_for_compute_at

_MOST_FACTORS = 64


@primitive(gives=EXPR, random=True)
def sample_categorical(
    state: State,
    candidates: Sequence[int],
    probs: Sequence[float],
    decision: int | None = None,
    *,
    rng: random.Random,
) -> tuple[State, int, int]:
    """One of `candidates`, drawn with the probabilities `probs`.

    decision  the position to take instead of drawing
    """
    if not candidates or len(candidates) != len(probs):
        refuse(f"wanted one probability per candidate, got {len(candidates)} and {len(probs)}")
    if decision is None:
        if min(probs) < 0 or sum(probs) <= 0:
            refuse(f"probabilities are not negative, and not all 0; got {list(probs)}")
        decision = rng.choices(range(len(candidates)), [float(p) for p in probs])[0]
    if not 0 <= decision < len(candidates):
        refuse(f"the decision {decision} is no position in {len(candidates)} candidates")
    return state, int(candidates[decision]), int(decision)


def divisors(n: int) -> list[int]:
    """The divisors of a positive number."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


def _draw_tile(rng: random.Random, extent: int, n: int, largest: int) -> list[int]:
    """`n` factors with product `extent`, the last at most `largest`: prime factors dealt out."""
    if n == 1:
        return [extent]
    inner = rng.choice([d for d in divisors(extent) if d <= largest])
    left, factors = extent // inner, [1] * (n - 1)
    p = 2
    while left > 1 and factors:
        if p * p > left:
            p = left
        while left % p == 0:
            factors[rng.randrange(len(factors))] *= p
            left //= p
        p += 1
    return [*factors, inner]


@primitive(loop=LOOP, gives=list_of(EXPR), random=True)
def sample_perfect_tile(
    state: State,
    loop: Var,
    n: int,
    max_innermost_factor: int = 16,
    decision: Sequence[int] | None = None,
    *,
    rng: random.Random,
) -> tuple[State, list[int], list[int]]:
    """`n` factors whose product is the extent of a loop.

    max_innermost_factor  the last factor is at most this
    decision              the factors to take instead of drawing; the first is fitted to the extent
    """
    f = state.loop(loop)
    if not 1 <= n <= _MOST_FACTORS:
        refuse(f"wanted 1 to {_MOST_FACTORS} factors, got n={n}", f)
    if max_innermost_factor < 1:
        refuse(f"max_innermost_factor is at least 1, got {max_innermost_factor}", f)
    if not isinstance(f.extent, IntImm):
        refuse(f"the extent {f.extent} of loop {loop.name} is not constant", f)
    extent = max(f.extent.value, 1)
    if decision is not None:
        factors = [int(d) for d in decision]
        inner = math.prod(factors[1:])
        if len(factors) != n or min(factors) < 1 or extent % inner:
            # A decision made for another extent: keep of it what still divides.
            factors, left = [1] * n, extent
            for k in range(n - 1, 0, -1):
                want = int(decision[k]) if k < len(decision) else 1
                factors[k] = max(d for d in divisors(left) if d <= max(want, 1))
                left //= factors[k]
            inner = extent // left
        factors[0] = extent // inner
    else:
        factors = _draw_tile(rng, extent, n, max_innermost_factor)
    return state, factors, factors


@primitive(loop=LOOP, gives=list_of(EXPR), random=True)
def sample_partitioned_tile(
    state: State,
    loop: Var,
    n: int,
    partition_pos: int = 0,
    innerpart_factor: int = 1,
    decision: Sequence[int] | None = None,
    *,
    rng: random.Random,
) -> tuple[State, list[int], list[int]]:
    """`n` factors whose product is the extent of a loop, of which those from `partition_pos` on
    have a product that `innerpart_factor` divides. Any factors, where the extent is not a multiple
    of it.

    decision  the factors to take instead of drawing, fitted to the extent
    """
    f = state.loop(loop)
    if not 0 <= partition_pos <= n or innerpart_factor < 1:
        refuse(
            f"partition_pos is in 0..{n} and innerpart_factor at least 1, got {partition_pos} and "
            f"{innerpart_factor}",
            f,
        )
    if decision is not None or not isinstance(f.extent, IntImm) or n < 1:
        return sample_perfect_tile(state, loop, n, decision=decision, rng=rng)
    extent = max(f.extent.value, 1)
    factor = innerpart_factor if extent % innerpart_factor == 0 else 1
    outer, inner = partition_pos, n - partition_pos
    if inner == 0 and factor > 1:
        refuse(f"no factor is left for innerpart_factor {innerpart_factor}", f)
    left = extent // factor
    parts = divisors(left)
    whole = left if outer == 0 else 1 if inner == 0 else rng.choice(parts)
    first = _draw_tile(rng, left // whole, outer, left) if outer else []
    second = _draw_tile(rng, whole * factor, inner, extent) if inner else []
    return state, [*first, *second], [*first, *second]


@primitive(block=BLOCK, gives=LOOP_OR_PLACE, random=True)
def sample_compute_location(
    state: State, block: Block, decision: int | None = None, *, rng: random.Random
) -> tuple[State, Any, int]:
    """A loop at which `block` may be computed by `compute_at`.

    decision  the place to take: -1 the root, -2 inline, else the position in the list of loops.
              A place that is not possible becomes -1
    returns   a loop; for -1 and -2 what `compute_at` and `reverse_compute_at` take for one
    """
    places = places_for_compute_at(state, block)
    if decision is None:
        decision = rng.choice([-1, *range(len(places))])
    if decision >= len(places) or decision < -2:
        decision = -1
    if decision < 0:
        return state, ("root", "inline")[-decision - 1], decision
    return state, places[decision], decision
