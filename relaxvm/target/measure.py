"""The rates of this computer, for the table in `rates.py`: `python -m relaxvm.target.measure`."""

from __future__ import annotations

from dataclasses import fields

from ..base import Rates
from ..runtime.machine_roof import machine_roof
from .cpu import cpu_model
from .llvm import host_machine

# Multiplications and additions in a cycle: what `cycles` of predictions count by.
_UNITS = 2
_BITS_OF_FLOAT = 32


def measured_rates() -> Rates:
    """The rates of this computer, one thread, by code that does nothing but read or multiply; what
    waking threads takes is not measured. Takes a tenth of a second, and llvmlite.
    """
    cpu, roof = cpu_model("llvm"), machine_roof()
    hertz = roof.flops_per_second / (2 * _UNITS * cpu.lanes(_BITS_OF_FLOAT))
    sizes = min(cpu.l2_bytes // 2, 1 << 18), min(cpu.l3_bytes // 2, 1 << 22), 1 << 26
    l2, l3, memory = (roof.bandwidth(size) / hertz for size in sizes)
    return Rates(hertz, l2, l3, memory)


def main() -> None:
    rates = measured_rates()
    values = ", ".join(f"{f.name}={getattr(rates, f.name):.3g}" for f in fields(rates)[:4])
    print(f'"{host_machine().cpu}": Rates({values}),')


if __name__ == "__main__":
    main()
