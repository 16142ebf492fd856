"""Random kernels in which little is allowed: partial, guarded, overlapping and repeated writes;
reads of neighbours, by way of an index, in place; reductions without a start or with a strange one;
triangles and tails, predicates, bindings that are no loops, nested blocks, symbolic sizes.

`hostility` says how much of it there is, from 0 to 1.
"""

from __future__ import annotations

import random

HEAD = """@T.prim_func
def main(a: T.handle, b: T.handle, o: T.handle, ii: T.handle):
    {symbol}
    A = T.match_buffer(a, ({n}, {m}), "float32")
    B = T.match_buffer(b, ({n}, {m}), "float32")
    O = T.match_buffer(o, ({n}, {m}), "float32")
    I = T.match_buffer(ii, ({n},), "int32")
"""


class Writer:
    """One random kernel: `text`, and the sizes `n` to try it with."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.hostility = rng.choice([0.1, 0.3, 0.6, 1.0])
        symbolic = rng.random() < 0.2
        self.rows = 0 if rng.random() < 0.04 else rng.choice([1, 2, 3, 4, 5, 6, 8])
        self.columns = rng.choice([1, 2, 3, 4, 6])
        self.n, self.m = "n" if symbolic else str(self.rows), str(self.columns)
        self.sizes = [3, 1, 4] if symbolic else [self.rows]
        self.temporaries = ["T0", "T1", "T2"][: rng.randint(1, 3)]
        self.written: set[str] = set()
        self.names = iter("PQRSUVWXYZ")
        self.lines: list[str] = []
        count = rng.randint(2, 4)
        while len(self.blocks) < count:
            self.nest()
        symbol = "n = T.int32()" if symbolic else "# sizes are constant"
        head = HEAD.format(symbol=symbol, n=self.n, m=self.m)
        for t in self.temporaries:
            head += f'    {t} = T.alloc_buffer(({self.n}, {self.m}), "float32")\n'
        self.text = head + "\n".join(self.lines) + "\n"

    @property
    def blocks(self) -> list[str]:
        return [line for line in self.lines if "with T.block(" in line]

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def chance(self, p: float) -> bool:
        """Whether something strange happens."""
        return self.rng.random() < p * self.hostility

    # -- expressions -------------------------------------------------------------------------------

    def index(self, var: str, extent: str, write: bool) -> str:
        """An index in ``0 .. extent`` from a variable in it."""
        if not self.chance(0.35 if write else 0.6):
            return var
        ways = [
            f"{extent} - 1 - {var}",
            f"({var} + 1) % {extent}",
            f"T.max({var} - 1, 0)",
            f"{var} // 2",
            f"{var} - {var} % 2",
            "0" if write else f"{extent} - 1",
        ]
        if not write:
            ways.append(f"T.min({var} + 1, {extent} - 1)")
        if extent == self.n:
            ways.append(f"I[{var}]")
        return self.rng.choice(ways)

    def source(self) -> str:
        made = [t for t in self.temporaries if t in self.written]
        if made and not self.chance(0.6):
            return self.rng.choice(made)
        return self.rng.choice(["A", "A", "B", *made, *(["O"] if "O" in self.written else [])])

    def load(self, i: str, j: str) -> str:
        return f"{self.source()}[{self.index(i, self.n, False)}, {self.index(j, self.m, False)}]"

    def value(self, i: str, j: str) -> str:
        a, b = self.load(i, j), self.load(i, j)
        inside = f"{j} >= {self.rng.randint(0, 1)} and {i} < {self.n} - 1"
        return self.rng.choice(
            [
                a,
                f"{a} + {b}",
                f"{a} + {b}",
                f"T.max({a}, {b})",
                f"{a} * T.float32(2) - T.float32(1)",
                f'T.if_then_else({inside}, {a}, T.float32(0), dtype="float32")',
                f"T.Select({j} > 0, {a}, {b})",
            ]
        )

    # -- blocks ------------------------------------------------------------------------------------

    def block(self, depth: int, i: str, j: str, reduce: bool, plain: bool = False) -> None:
        name = next(self.names)
        vi, vj, vk = f"v{name}i", f"v{name}j", f"v{name}k"
        self.put(depth, f'with T.block("{name}"):')
        depth += 1
        if not plain and not reduce and self.chance(0.25):
            i = self.rng.choice([f"{self.n} - 1 - {i}", f"{i} // 2", f"{i} * {i} % {self.n}", "0"])
        kind = self.rng.choice(["opaque", "scan", "reduce"]) if self.chance(0.06) else "spatial"
        self.put(depth, f"{vi} = T.axis.{kind}({self.n}, {i})")
        self.put(depth, f"{vj} = T.axis.spatial({self.m}, {j})")
        if reduce:
            kind = "spatial" if self.chance(0.07) else "reduce"
            self.put(depth, f"{vk} = T.axis.{kind}({self.m}, k)")
        if not plain and self.chance(0.15):
            self.put(depth, f"T.where(i + j < {self.rng.randint(1, 6)})")
        target, place = self.target(vi, vj)
        if reduce:
            self.reduction(depth, target, place, (vi, vj, vk))
        else:
            self.stores(depth, target, place, vi, vj)
        self.written.add(target)

    def target(self, vi: str, vj: str) -> tuple[str, str]:
        fresh = [t for t in self.temporaries if t not in self.written]
        if fresh and not self.chance(0.7):
            target = self.rng.choice(fresh)
        else:
            target = self.rng.choice([*self.temporaries, *self.temporaries, "O", "O", "B"])
        return target, f"{target}[{self.index(vi, self.n, True)}, {self.index(vj, self.m, True)}]"

    def stores(self, depth: int, target: str, place: str, vi: str, vj: str) -> None:
        value = self.value(vi, vj)
        known = target in self.written or target not in self.temporaries
        if known and self.chance(0.35):
            value = f"{place} + {value}"
        if known and self.chance(0.15):
            guard = self.rng.choice([f"A[{vi}, {vj}] > T.float32(0)", f"{vi} + {vj} < 3"])
            self.put(depth, f"if {guard}:")
            depth += 1
        self.put(depth, f"{place} = {value}")
        if self.chance(0.1):
            more = f"O[{self.index(vi, self.n, True)}, {self.index(vj, self.m, True)}]"
            self.put(depth, f"{more} = {self.value(vi, vj)}")
            self.written.add("O")

    def reduction(self, depth: int, target: str, place: str, axes: tuple[str, str, str]) -> None:
        vi, vj, vk = axes
        term = f"{self.source()}[{self.index(vi, self.n, False)}, {self.index(vk, self.m, False)}]"
        if self.rng.random() < 0.3:
            term += f" * {self.load(vi, vj)}"
        if (target in self.temporaries and target not in self.written) or not self.chance(0.3):
            start = "T.float32(0)"
            if self.chance(0.3):
                start = self.rng.choice([f"A[{vi}, {vj}]", "T.float32(-5)"])
            self.put(depth, "with T.init():")
            self.put(depth + 1, f"{place} = {start}")
        updates = [f"{place} + {term}"] * 4 + [f"T.max({place}, {term})", f"T.min({term}, {place})"]
        if self.chance(0.3):
            updates = [f"T.float32(0.5) * {place} + {term}", f"{term} - {place}", term]
        self.put(depth, f"{place} = {self.rng.choice(updates)}")

    # -- loops -------------------------------------------------------------------------------------

    def nest(self) -> None:
        way = self.rng.random()
        if way < 0.4:
            self.plain_nest()
        elif way < 0.7:
            extents = {"i": self.n, "j": self.m, "k": self.m}
            for depth, x in enumerate(self.rng.choice(["ijk", "ijk", "ikj", "kij", "jik"])):
                self.put(depth + 1, f"for {x} in range({extents[x]}):")
            self.block(4, "i", "j", True)
        elif way < 0.85:
            self.put(1, f"for i in range({self.n}):")
            for _ in range(2):
                self.put(2, f"for j in range({self.m}):")
                reduce = self.rng.random() < 0.5
                if reduce:
                    self.put(3, f"for k in range({self.m}):")
                self.block(4 if reduce else 3, "i", "j", reduce)
        elif way < 0.93:
            f = self.rng.choice([2, 3, 4])
            tiles = f"({self.n} + {f - 1}) // {f}"
            self.put(1, f"for i0, i1, j in T.grid({tiles}, {f}, {self.m}):")
            self.block(2, f"i0 * {f} + i1", "j", False, plain=True)
            last = max(k for k, line in enumerate(self.lines) if "T.axis." in line)
            where = f"T.where(i0 * {f} + i1 < {self.n})"
            self.lines.insert(last + 1, "    " * 3 + where)
        else:
            name = next(self.names)
            self.put(1, f"for i in range({self.n}):")
            self.put(2, f'with T.block("{name}"):')
            self.put(3, f"v{name} = T.axis.spatial({self.n}, i)")
            self.put(3, f"for j in range({self.m}):")
            self.block(4, f"v{name}", "j", False, plain=True)

    def plain_nest(self) -> None:
        rows, columns = f"range({self.n})", f"range({self.m})"
        if self.chance(0.15):
            columns = self.rng.choice(
                [f"range(T.min(i + 1, {self.m}))", f"range({self.columns - 1}, {self.m})"]
            )
        elif self.chance(0.1):
            columns = f"T.unroll({self.m})"
        self.put(1, f"for i in {rows}:")
        self.put(2, f"for j in {columns}:")
        self.block(3, "i", "j", False)
