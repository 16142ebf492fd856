"""Random programs of the graph language: loops, recursion, closures, arrays of unknown sizes."""

from __future__ import annotations

import random

import numpy as np

VEC = 'R.Tensor(dtype="float32", ndim=1)'
INT = 'R.Tensor((), "int64")'
BOOL = 'R.Tensor((), "bool")'
FUNCTION = f"R.Callable(({VEC},), {VEC})"
PAIR = f"R.Tuple({VEC}, {VEC})"


def _halves(x):
    x = np.asarray(x)
    return (x[: len(x) // 2].copy(), x[len(x) // 2 :].copy())


PACKED = {"test.language.halves": _halves}


class Writer:
    """Writes one random program; the same seed gives the same one."""

    def __init__(self, seed, size=6):
        self.rng = random.Random(seed)
        self.size = size
        self.lines = []
        self.indent = 1
        self.count = 0

    def program(self):
        self.lines = ["@I.ir_module", "class M:"]
        self._loop("loop", "loop")
        self._loop("ping", "pong")
        self._loop("pong", "ping")
        self._apply()
        self._function("main", ["x", "y"], ["i"], ["c"])
        return "\n".join(self.lines) + "\n"

    # -- functions --------------------------------------------------------------------------------

    def _loop(self, name, callee):
        """A function that calls itself or its partner, last of all or not."""
        shape = self.rng.choice([VEC, 'R.Tensor(("n",), "float32")'])
        self._line("@R.function")
        self._line(f"def {name}(i: {INT}, a: {shape}, b: {VEC}) -> {VEC}:")
        self.indent += 1
        scope = {"a": "vec", "b": "vec"}
        self._line('go = R.greater(i, R.const(0, "int64"))')
        self._line("if go:")
        self.indent += 1
        inner = dict(scope)
        self._statements(inner, 2, depth=2)
        self._line('j = R.subtract(i, R.const(1, "int64"))')
        args = [self._vec(inner), self._vec(inner)]
        self._line(f"again = M.{callee}(j, {', '.join(args)})")
        tail = self.rng.random() < 0.6
        self._line("r = again" if tail else f"r = R.clip(R.add(again, {args[0]}), -8, 8)")
        self.indent -= 1
        self._line("else:")
        self.indent += 1
        self._line(f"r = {self._expression(scope)}")
        self.indent -= 2
        self.lines.append(f"{'    ' * (self.indent + 1)}return r")

    def _apply(self):
        self._line("@R.function")
        self._line(f"def apply(f: {FUNCTION}, g: {FUNCTION}, a: {VEC}) -> {PAIR}:")
        self.lines += ["        t = (f, g)", "        h = t[0]", "        return (h(a), g(f(a)))"]

    def _function(self, name, vecs, ints, bools):
        params = [f'{v}: R.Tensor(("{v}n",), "float32")' for v in vecs]
        params += [f"{i}: {INT}" for i in ints] + [f"{c}: {BOOL}" for c in bools]
        self._line("@R.function")
        self._line(f"def {name}({', '.join(params)}):")
        self.indent += 1
        scope = {v: "vec" for v in vecs} | {i: "int" for i in ints} | {c: "bool" for c in bools}
        self._statements(scope, self.size)
        results = [self._vec(scope) for _ in range(2)]
        self._line(f"return ({results[0]}, (), ({results[1]},))")
        self.indent -= 1

    # -- statements -------------------------------------------------------------------------------

    def _line(self, text):
        self.lines.append("    " * self.indent + text)

    def _fresh(self):
        self.count += 1
        return f"v{self.count}"

    def _statements(self, scope, count, depth=0):
        for _ in range(count):
            kinds = [self._assign, self._assign, self._assign, self._cast]
            if depth < 2:
                kinds += [self._if, self._if, self._inner, self._inner, self._pair]
            if depth < 2 and "int" in scope.values():
                kinds += [self._call_loop, self._local_loop]
            if "fn" in scope.values():
                kinds += [self._call, self._higher]
            self.rng.choice(kinds)(scope, depth)

    def _assign(self, scope, depth):
        name = self._fresh()
        if self.rng.random() < 0.2:
            limit = self.rng.choice(["-3.0", "0.0", "2.0"])
            vec = self._vec(scope)
            self._line(f'{name} = R.greater(R.sum({vec}), R.const({limit}, "float32"))')
            scope[name] = "bool"
        else:
            self._line(f"{name} = {self._expression(scope)}")
            scope[name] = "vec"

    def _cast(self, scope, depth):
        name, symbol = self._fresh(), self._fresh()
        self._line(f"{symbol} = T.int64()")
        info = f'R.Tensor(({symbol},), "float32")'
        self._line(f"{name} = R.match_cast({self._vec(scope)}, {info})")
        scope[name] = "vec"

    def _if(self, scope, depth):
        name = self._fresh()
        kind = self.rng.choice(["vec", "vec", "pair", "fn"])
        if kind == "fn" and "fn" not in scope.values():
            kind = "vec"
        self._line(f"if {self._pick(scope, 'bool') or self._test(scope)}:")
        for word in ("else:", None):
            self.indent += 1
            inner = dict(scope)
            self._statements(inner, self.rng.randint(0, 2), depth + 1)
            value = {
                "vec": self._expression(inner),
                "pair": f"({self._vec(inner)}, {self._vec(inner)})",
                "fn": self._pick(inner, "fn"),
            }[kind]
            self._line(f"{name} = {value}")
            self.indent -= 1
            if word:
                self._line(word)
        if kind == "pair":
            item = self._fresh()
            self._line(f"{item} = {name}[{self.rng.randint(0, 1)}]")
            scope[item] = "vec"
        scope[name] = kind

    def _test(self, scope):
        name = self._fresh()
        self._line(f'{name} = R.greater(R.sum({self._vec(scope)}), R.const(0.0, "float32"))')
        scope[name] = "bool"
        return name

    def _inner(self, scope, depth):
        """A function inside the function; it captures what it uses."""
        name, param = self._fresh(), self._fresh()
        self._line("@R.function")
        self._line(f"def {name}({param}: {VEC}) -> {VEC}:")
        self.indent += 1
        inner = {**scope, param: "vec"}
        self._statements(inner, self.rng.randint(0, 2), depth + 1)
        self._line(f"return {self._expression(inner)}")
        self.indent -= 1
        scope[name] = "fn"

    def _local_loop(self, scope, depth):
        """A function inside the function that calls itself."""
        name, i, a = self._fresh(), self._fresh(), self._fresh()
        go, j, r, out = (self._fresh() for _ in range(4))
        self._line("@R.function")
        self._line(f"def {name}({i}: {INT}, {a}: {VEC}) -> {VEC}:")
        self.indent += 1
        self._line(f'{go} = R.greater({i}, R.const(0, "int64"))')
        inner = {k: v for k, v in scope.items() if v == "vec"} | {a: "vec"}
        self._line(f"if {go}:")
        self._line(f'    {j} = R.subtract({i}, R.const(1, "int64"))')
        self._line(f"    {r} = {name}({j}, {self._expression(inner)})")
        self._line("else:")
        self._line(f"    {r} = {self._expression(inner)}")
        self._line(f"return {r}")
        self.indent -= 1
        self._line(f"{out} = {name}({self._pick(scope, 'int')}, {self._vec(scope)})")
        scope[out] = "vec"

    def _call(self, scope, depth):
        name = self._fresh()
        self._line(f"{name} = {self._pick(scope, 'fn')}({self._vec(scope)})")
        scope[name] = "vec"

    def _higher(self, scope, depth):
        name, one, two = (self._fresh() for _ in range(3))
        functions = f"{self._pick(scope, 'fn')}, {self._pick(scope, 'fn')}"
        self._line(f"{name} = M.apply({functions}, {self._vec(scope)})")
        self._line(f"{one} = {name}[0]")
        self._line(f"{two} = {name}[1]")
        scope |= {one: "vec", two: "vec"}

    def _pair(self, scope, depth):
        name, one = self._fresh(), self._fresh()
        if self.rng.random() < 0.5:
            call = f'R.call_pure_packed("test.language.halves", {self._vec(scope)}'
            self._line(f"{name} = {call}, sinfo_args={PAIR})")
        else:
            self._line(f"{name} = ({self._vec(scope)}, {self._vec(scope)})")
        self._line(f"{one} = {name}[{self.rng.randint(0, 1)}]")
        scope |= {name: "pair", one: "vec"}

    def _call_loop(self, scope, depth):
        name = self._fresh()
        callee = self.rng.choice(["loop", "ping"])
        args = f"{self._pick(scope, 'int')}, {self._vec(scope)}, {self._vec(scope)}"
        self._line(f"{name} = M.{callee}({args})")
        scope[name] = "vec"

    # -- expressions ------------------------------------------------------------------------------

    def _pick(self, scope, kind):
        names = [n for n, k in scope.items() if k == kind]
        return self.rng.choice(names) if names else None

    def _vec(self, scope):
        return self._pick(scope, "vec")

    def _expression(self, scope):
        """An array of whole numbers of at most 8, so that every order of adding gives the same."""
        a, b = self._vec(scope), self._vec(scope)
        one = 'R.const(1.0, "float32")'
        return self.rng.choice(
            [
                f"R.clip(R.add({a}, {a}), -8, 8)",
                f"R.clip(R.add({a}, {b}), -8, 8)",
                f"R.clip(R.subtract({a}, {one}), -8, 8)",
                f"R.maximum({a}, R.negative({a}))",
                f"R.negative(R.clip(R.add({one}, {b}), -8, 8))",
                f"R.strided_slice(R.concat([{a}, {b}]), axes=[0], begin=[0], end=[5])",
                f"R.strided_slice({a}, axes=[0], begin=[1], end=[9])",
                f"R.flip({a}, axis=0)",
            ]
        )


def program(seed, size=6):
    """The text of one module, whose main takes (vector, vector, integer, bool)."""
    return Writer(seed, min(size, 8)).program()


def inputs(seed, mod=None):
    """Arguments for `main`: most are lists of one length, so that most sums exist."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    m = n if rng.random() < 0.6 else int(rng.integers(1, 4))
    x, y = (rng.integers(-4, 5, size).astype("float32") for size in (n, m))
    return x, y, np.array(rng.integers(0, 5)), np.array(bool(rng.random() < 0.5))
