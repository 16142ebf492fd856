"""`CpuModel`: what schedules need to know about a CPU. Plain data; `target` makes it."""

from __future__ import annotations

from .record import record


@record
class Rates:
    """How fast a core is, for predictions of what plans cost.

    hertz           cycles in a second
    l2, l3, memory  bytes that it reads in a cycle from where they are; those of memory are shared
    fork_seconds    what it takes to wake another thread that waits, and to wait for its end
    products        of its widest vectors that it multiplies and adds in a cycle; of narrower ones 2
                    at least
    latency         cycles until a sum takes the next product
    handed          bytes that it writes in a cycle where another core has read what stood there
    """

    hertz: float = 3e9
    l2: float = 24.0
    l3: float = 10.0
    memory: float = 5.0
    fork_seconds: float = 2e-6
    products: float = 2.0
    latency: float = 4.0
    handed: float = 2.0


@record
class CpuModel:
    """One kind of CPU.

    vector_bits       width of its vector registers; 64 if it has none
    vector_registers  how many of them code can name
    fma               whether it multiplies and adds in one instruction
    features          other abilities, by LLVM's names, such as "avx512vnni"
    l1_bytes ...      data caches; l1 and l2 of one core, l3 of all
    line_bytes        of the caches
    cores             how many a kernel may use
    rates             how fast it is, for predictions

    The defaults are those of a modest CPU, right for code that must run anywhere.
    """

    architecture: str = "generic"
    vector_bits: int = 128
    vector_registers: int = 16
    fma: bool = False
    features: frozenset[str] = frozenset()
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    l3_bytes: int = 8 << 20
    line_bytes: int = 64
    cores: int = 1
    rates: Rates = Rates()

    def lanes(self, bits: int) -> int:
        """How many elements of `bits` one register holds; at least 1."""
        return max(1, self.vector_bits // max(bits, 8))

    def has(self, *features: str) -> bool:
        """Whether it has all of these."""
        return self.features.issuperset(features)
