"""Random modules for the tests of graph passes: repeated and dead code, names for names, constants,
tuples, branches, private functions that take and give more than is needed, local functions, casts
to new symbols, kernels, packed functions that write their result or keep what they are given.

A program is text, so that a failing one can be read. All numbers are int64: results are exact.
"""

from __future__ import annotations

import random

import numpy as np

from relaxvm.ir import IntImm

HEAD = """
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
"""
BINARY = ("add", "subtract", "multiply", "maximum")


class Writer:
    """Writes one module; the same seed gives the same one."""

    def __init__(self, seed, size=12):
        self.rng = random.Random(seed)
        self.size = size
        self.lines = []
        self.indent = 1
        self.count = 0
        self.private = []
        self.symbolic = self.rng.random() < 0.6
        self.dim = '("n",)' if self.symbolic else "(3,)"
        self.vec = f'R.Tensor({self.dim}, "int64")'
        self.inner = f'R.Tensor({"(n,)" if self.symbolic else "(3,)"}, "int64")'

    def kernel(self, name, inputs, value):
        """A loop function over vectors of any size."""
        handles, buffers = ["a", "b", "o"][-inputs - 1 :], ["A", "B", "O"][-inputs - 1 :]
        self.line("@T.prim_func")
        self.line(f"def {name}({', '.join(f'{h}: T.handle' for h in handles)}):")
        self.line("n = T.int64()", 1)
        for h, b in zip(handles, buffers):
            self.line(f'{b} = T.match_buffer({h}, (n,), "int64")', 1)
        self.line("for i in range(n):", 1)
        self.line(f"O[i] = {value}", 2)

    def program(self):
        self.kernel("k_sub", 2, "A[i] - B[i]")
        self.kernel("k_neg", 1, "B[i] * T.int64(-1)")
        for i in range(self.rng.randint(0, 3)):
            self.private_function(f"p{i}")
        self.line("@R.function(pure=False)")
        self.line(f'def main(c: R.Tensor((), "bool"), x: {self.vec}, y: {self.vec}):')
        scope = Scope(["x", "y"], ["c"])
        self.body(scope, self.size, effects=True)
        result = self.rng.sample(scope.vecs, k=min(2, len(scope.vecs)))
        result += scope.tuples[-1:]
        self.line(f"return ({', '.join(result)},)", 1)
        return HEAD + "\n".join(self.lines) + "\n"

    # -- functions --------------------------------------------------------------------------------

    def private_function(self, name):
        rng = self.rng
        kinds = [rng.choice("vvt") for _ in range(rng.randint(1, 3))]
        pair = f"R.Tuple({self.vec}, {self.vec})"
        params = [f"{'a' if k == 'v' else 't'}{i}" for i, k in enumerate(kinds)]
        types = [self.vec if k == "v" else pair for k in kinds]
        declared = ", ".join(f"{p}: {t}" for p, t in zip(params, types))
        self.line("@R.function(private=True)")
        self.line(f'def {name}(c: R.Tensor((), "bool"), {declared}):')
        used = [p for p in params if rng.random() < 0.6] or params[:1]
        vecs = [p for p in used if p[0] == "a"]
        tuples = [p for p in used if p[0] == "t"]
        scope = Scope(vecs, ["c"], tuples)
        if not vecs:
            self.line(f"first = {tuples[0]}[0]", 1)
            scope.vecs.append("first")
        self.body(scope, rng.randint(1, 5))
        outputs = rng.randint(1, 3)
        given = [rng.choice(scope.vecs) for _ in range(outputs)]
        if outputs == 1:
            self.line(f"return {given[0]}", 1)
        else:
            self.line(f"return ({', '.join(given)})", 1)
        self.private.append((name, kinds, outputs))

    def body(self, scope, count, effects=False):
        self.indent += 1
        if self.symbolic:
            self.line("n = T.int64()")
        self.statements(scope, count, effects=effects)
        self.indent -= 1

    def statements(self, scope, count, depth=0, flow=False, effects=False):
        for _ in range(count):
            kinds = "bbbbbrrkktggunns"
            kinds += "" if flow else "icccllmd" if depth < 2 else "c"
            kinds += "pq" if effects else ""
            getattr(self, f"write_{self.rng.choice(kinds)}")(scope, depth)

    # -- statements -------------------------------------------------------------------------------

    def write_b(self, s, depth):
        # Few operators on recent values: what was computed is often computed again.
        op = self.rng.choice(BINARY)
        self.bind_vec(s, f"R.{op}({self.recent(s)}, {self.recent(s)})")

    def write_u(self, s, depth):
        if s.scalars:
            self.bind_vec(s, f"R.add({self.recent(s)}, {self.rng.choice(s.scalars)})")

    def write_r(self, s, depth):
        if self.rng.random() < 0.3 and s.tuples:
            s.tuples.append(self.bind(self.rng.choice(s.tuples)))
        else:
            self.bind_vec(s, self.recent(s))

    def write_k(self, s, depth):
        known = [*s.scalars, 'R.const(2, "int64")', 'R.const(-3, "int64")']
        a, b = self.rng.choice(known), self.rng.choice(known)
        s.scalars.append(self.bind(f"R.{self.rng.choice(BINARY)}({a}, {b})"))

    def write_t(self, s, depth):
        s.tuples.append(self.bind(f"({self.recent(s)}, {self.recent(s)})"))

    def write_g(self, s, depth):
        if s.tuples:
            t = self.rng.choice(s.tuples)
            i = self.rng.randrange(2)
            if self.rng.random() < 0.2:
                a, b = self.bind(f"{t}[0]"), self.bind(f"{t}[1]")
                s.vecs += [a, b]
                s.tuples.append(self.bind(f"({a}, {b})"))
            else:
                self.bind_vec(s, f"{t}[{i}]")

    def write_m(self, s, depth):
        if not self.symbolic:
            return
        self.count += 1
        self.line(f"m{self.count} = T.int64()")
        source, name = self.recent(s), f"v{self.count}"
        self.line(f'{name} = R.match_cast({source}, R.Tensor((m{self.count},), "int64"))')
        again = self.fresh()
        self.line(f"{again} = R.match_cast({name}, {self.inner})")
        s.vecs.append(again)

    def write_n(self, s, depth):
        name, inputs = self.rng.choice((("k_sub", 2), ("k_neg", 1)))
        given = ", ".join(self.recent(s) for _ in range(inputs))
        self.bind_vec(s, f"R.call_tir(Module.{name}, ({given},), {self.inner})")

    def write_s(self, s, depth):
        self.bind_vec(s, f'R.call_dps_packed("test.square", ({self.recent(s)},), {self.inner})')

    def write_q(self, s, depth):
        self.bind_vec(s, f'R.call_packed("test.keep", {self.recent(s)}, sinfo_args={self.inner})')

    def write_p(self, s, depth):
        self.line(f"R.print({self.recent(s)})")

    def write_i(self, s, depth):
        result = self.fresh()
        self.line(f"if {self.rng.choice(s.bools)}:")
        for word in ("", "else:"):
            if word:
                self.line(word)
            self.indent += 1
            inner = s.copy()
            self.statements(inner, self.rng.randint(1, 4), depth + 1)
            self.line(f"{result} = {self.recent(inner)}")
            self.indent -= 1
        s.vecs.append(self.bind(f"R.match_cast({result}, {self.inner})"))

    def write_d(self, s, depth):
        self.line("with R.dataflow():")
        self.indent += 1
        inner = s.copy()
        self.statements(inner, self.rng.randint(2, 6), depth, flow=True)
        new = [v for v in inner.vecs if v not in s.vecs]
        pairs = [t for t in inner.tuples if t not in s.tuples]
        if not new:
            self.bind_vec(inner, f"R.add({s.vecs[0]}, {s.vecs[0]})")
            new = inner.vecs[-1:]
        vecs = self.rng.sample(new, k=min(len(new), self.rng.randint(1, 2)))
        pairs = pairs[-1:]
        self.line(f"R.output({', '.join(vecs + pairs)})")
        self.indent -= 1
        s.vecs += vecs
        s.tuples += pairs

    def write_c(self, s, depth):
        if not self.private:
            return
        name, kinds, outputs = self.rng.choice(self.private)
        args = [self.rng.choice(s.bools)]
        for kind in kinds:
            if kind == "v":
                args.append(self.recent(s))
            elif s.tuples and self.rng.random() < 0.5:
                args.append(self.rng.choice(s.tuples))
            else:
                args.append(f"({self.recent(s)}, {self.recent(s)})")
        made = self.bind(f"Module.{name}({', '.join(args)})")
        if outputs == 1:
            s.vecs.append(made)
            return
        if outputs == 2 and self.rng.random() < 0.2:
            s.tuples.append(made)
        for i in range(outputs):
            if self.rng.random() < 0.5:
                self.bind_vec(s, f"{made}[{i}]")

    def write_l(self, s, depth):
        self.count += 1
        f = f"f{self.count}"
        self.line("@R.function")
        self.line(f"def {f}(w: {self.inner}) -> {self.inner}:")
        self.indent += 1
        inner = s.copy()
        inner.vecs.append("w")
        self.statements(inner, self.rng.randint(1, 3), 2)
        self.line(f"return {self.recent(inner)}")
        self.indent -= 1
        for _ in range(self.rng.randint(1, 2)):
            g = f
            if self.rng.random() < 0.3:
                g = self.bind(f)
            self.bind_vec(s, f"{g}({self.recent(s)})")

    # -- text -------------------------------------------------------------------------------------

    def recent(self, s):
        return self.rng.choice(s.vecs[-4:] if self.rng.random() < 0.7 else s.vecs)

    def fresh(self):
        self.count += 1
        return f"v{self.count}"

    def bind(self, value):
        name = self.fresh()
        self.line(f"{name} = {value}")
        return name

    def bind_vec(self, s, value):
        s.vecs.append(self.bind(value))

    def line(self, text, more=0):
        self.lines.append("    " * (self.indent + more) + text)


class Scope:
    """The names that may be used, by kind."""

    def __init__(self, vecs, bools, tuples=(), scalars=()):
        self.vecs, self.bools = list(vecs), list(bools)
        self.tuples, self.scalars = list(tuples), list(scalars)

    def copy(self):
        return Scope(self.vecs, self.bools, self.tuples, self.scalars)


def program(seed, size=12):
    """The text of one module, whose main takes (bool, vector, vector)."""
    return Writer(seed, size).program()


def inputs(seed, mod):
    """Arguments for main; its size if that is constant, else any."""
    rng = np.random.default_rng(seed)
    (dim,) = mod["main"].params[1].struct_info.dims
    size = int(dim) if isinstance(dim, IntImm) else int(rng.choice((0, 1, 3, 3, 8)))
    c = np.array(bool(rng.integers(2)))
    return c, *rng.integers(-5, 5, (2, size))
