"""What a plan is predicted to cost: one function of what it demands and what the CPU can.

Predictions rank plans, and choose some; they are no times. Work and the answers of the caches
overlap, as they do in cores that run ahead, so the longer of the two counts, and a part of the
other.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ....base import CpuModel, NamedTuple, Rates

_A_CYCLE = 2  # narrow vectors multiplied at least, or numbers loaded
# What is not hidden behind the longer of work and memory.
_SHOWS = 0.2
_LATE = 0.05


COMMON = Rates()
"""What tiles are chosen by: code for a CPU is the same, whatever is measured on it."""


def rates_of(cpu: CpuModel, lanes: int, bits: int) -> Rates:
    """The rates of a CPU where vectors have so many lanes of so many bits."""
    share, wide = cpu.lanes(bits) / max(1, lanes), cpu.rates.products
    return replace(cpu.rates, products=min(max(_A_CYCLE, wide), wide * max(1.0, share)))


def step_cycles(
    products: float, vectors: float, numbers: float, rates: Rates, streams: int = 0
) -> float:
    """Cycles of a step that adds so many vectors of products, each to a sum of its own, and loads
    so many vectors and numbers, of which `streams` are far from each other. Vectors are loaded as
    fast as they are multiplied.
    """
    loads = vectors / rates.products + numbers / _A_CYCLE
    # Where a cycle has one product, the loop is done meanwhile.
    loop = (0.25 + streams / 20) * (min(rates.products, _A_CYCLE) - 1)
    return max(products / rates.products, loads, rates.latency) + loop


class Demand(NamedTuple):
    """What a plan asks of a CPU.

    cycles   of arithmetic and loads from the first cache, what is computed in vain among them
    traffic  (bytes read or written in all, bytes of memory that these are parts of): the smallest
             cache that holds the latter answers
    parts    how many parts of equal size threads can share; 1: none
    vain     of the cycles, the part whose results are thrown away
    alone    cycles, beside those, of one thread before the others can begin
    handed   bytes that it writes meanwhile, and others read
    """

    cycles: float
    traffic: tuple[tuple[float, float], ...] = ()
    parts: int = 1
    vain: float = 0.0
    alone: float = 0.0
    handed: float = 0.0


class Cost(NamedTuple):
    """seconds  of one call, on all cores the CPU model has
    cycles      of arithmetic, of all threads together
    traffic     bytes from the second cache, the third, and memory
    threads     how many cores are at work
    vain        the part of the cycles whose results are thrown away
    """

    seconds: float
    cycles: float
    traffic: tuple[float, float, float]
    threads: int
    vain: float

    def __str__(self) -> str:
        levels = ", ".join(
            f"{size / 1e3:.0f} kB from {name}"
            for name, size in zip(("L2", "L3", "memory"), self.traffic)
            if size >= 1e3
        )
        parts = [f"{self.seconds * 1e6:.1f} us", f"{self.cycles:.0f} cycles", levels]
        if self.threads > 1:
            parts.append(f"{self.threads} threads")
        if self.vain >= 0.005:
            parts.append(f"{self.vain:.0%} in vain")
        return ", ".join(p for p in parts if p)


def predict(demand: Demand, cpu: CpuModel) -> Cost:
    """The cost of a plan on a CPU."""
    limits = (cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes, math.inf)
    levels = [0.0, 0.0, 0.0, 0.0]
    for amount, whole in demand.traffic:
        levels[next(k for k, size in enumerate(limits) if whole <= size)] += amount
    rates = cpu.rates
    waits = sum(
        amount / rate for amount, rate in zip(levels[1:], (rates.l2, rates.l3, rates.memory))
    )
    longer, shorter = max(demand.cycles, waits), min(demand.cycles, waits)
    threads = max(1, min(cpu.cores, demand.parts))
    # No two threads end at once: at last some wait for a part of a part.
    share = (-(-demand.parts // threads) + _LATE * (threads > 1)) / demand.parts
    # Threads share what memory gives.
    cycles = max((longer + _SHOWS * shorter) * share, levels[3] / rates.memory) + demand.alone
    if threads > 1:
        # Each line is taken from the core that read it in the last call.
        cycles += demand.handed / rates.handed + rates.fork_seconds * rates.hertz
    total = demand.cycles + demand.alone
    return Cost(
        cycles / rates.hertz, total, (levels[1], levels[2], levels[3]), threads, demand.vain
    )
