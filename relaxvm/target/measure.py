"""The rates of this computer, for the table in `rates.py`: `python -m relaxvm.target.measure`."""

from __future__ import annotations

from dataclasses import fields

from ..base import Rates
from ..runtime.machine_roof import machine_roof
from .cpu import cpu_model
from .llvm import host_machine


def measured_rates() -> Rates:
    """The rates of this computer, one thread, by code that does nothing but read or multiply; what
    threads cost, to wake and to hand lines on, is not measured. Takes a tenth of a second, and
    llvmlite.
    """
    cpu, roof = cpu_model("llvm"), machine_roof()
    hertz = roof.hertz
    products = roof.flops_per_second / (2 * roof.lanes * hertz)
    sizes = min(cpu.l2_bytes // 2, 1 << 18), min(cpu.l3_bytes // 2, 1 << 22), 1 << 26
    l2, l3, memory = (roof.bandwidth(size) / hertz for size in sizes)
    return Rates(
        hertz, l2, l3, memory, products=round(2 * products) / 2, latency=round(roof.latency)
    )


def main() -> None:
    rates = measured_rates()
    told = [f.name for f in fields(rates) if getattr(rates, f.name) != f.default]
    values = ", ".join(f"{name}={getattr(rates, name):.3g}" for name in told)
    print(f'"{host_machine().cpu}": Rates({values}),')


if __name__ == "__main__":
    main()
