"""Odd but legal script text, and nearly legal text: what is read prints as text that reads back
equal, what is not gives a ParseError with its line.
"""

from __future__ import annotations

import random

from relaxvm.base import ParseError
from relaxvm.ir import assert_structural_equal
from relaxvm.script import from_source

NAMES = [
    "x", "y", "é", "ñ_1", "Ω", "ſ", "名", "buffer",
    "metadata", "range", "float", "_", "__", "v", "cls", "main",
    "inner", "lv", "gv", "n_1", "A", "A_1",
    "Module", "self", "type", "match", "int64", "True_", "a" * 70,
]  # fmt: skip
NUMBERS = ["0", "-1", "3", "2147483647", "-2147483648", "1.5", "-0.0", "1e-45", "3.4e38", "True"]
REMARKS = [
    "1", "10 ** 30", "1 << 64", "-0.0", "float('inf')", "float('nan')",
    "'\\'\"\\n\\\\é'", "''", "None", "True", "[]", "()",
    "[1, [2, ('a',)]]",
    "{'a': {'b': [1, None]}}", "T.float32(0.1)", "T.int64(-1)", "T.bool(True)", "T.uint8(255)",
    "T.float16('nan')", "T.int32", "R.Object",
    "R.Tensor((3,), 'int8')", "R.Tuple(R.Shape, R.Prim('int64'))", "T.target('llvm')",
    "T.Range(0, 4)", "T.index_map(lambda i, j: (j % 4, i * 2 + 1))",
    "T.comm_reducer(lambda x, y: T.max(x, y), [T.float32('-inf')])", "I.vdevice('llvm', 1)",
    "I.dummy_global_info()", "R.const([1, 2], 'int8')", "f'{1 + 1:03}'",
    "[i * i for i in range(3)]", "{str(i): i for i in range(2)}", "dict(a=1)", "T.StringImm('s')",
]  # fmt: skip
UNARY = ["R.exp", "R.negative", "R.nn.relu", "R.abs", "R.emit"]
BINARY = ["R.add", "R.multiply", "R.maximum"]
SCALAR = [
    "{} + {}",
    "{} * {}",
    "T.max({}, {})",
    "{} // T.max({}, 1)",
    "T.Select({} < {}, 1, 2)",
    "({}, {})[0]",
]


def some(rng: random.Random, count: int) -> list[str]:
    return rng.sample(NAMES, count)


def remarks(rng: random.Random) -> str:
    keys = rng.sample(["a", "é", "", "b c", "tir.noalias", '"'], rng.randint(1, 3))
    return "{" + ", ".join(f"{key!r}: {rng.choice(REMARKS)}" for key in keys) + "}"


def scalar(rng: random.Random, leaves: list[str], depth: int = 2) -> str:
    if not depth or rng.random() < 0.3:
        return rng.choice([*leaves, "1", "7"])
    inner = [scalar(rng, leaves, depth - 1) for _ in range(2)]
    return f"({rng.choice(SCALAR).format(*inner)})"


def loop_function(rng: random.Random, name: str, decorator: str = "@T.prim_func") -> str:
    """A loop function over one buffer, with blocks, loops, conditions and remarks."""
    a, b, n, i, j, v, m = some(rng, 7)
    lines = [f"{decorator}", f"def {name}({a}: T.Buffer((8, 4), 'float32'), {n}: T.int32):"]
    if rng.random() < 0.5:
        lines.append(f"    T.func_attr({remarks(rng)})")
    lines.append(f"    {b} = T.alloc_buffer((8, 4), 'float32')")
    number = rng.choice(NUMBERS)
    body = [
        [f"    {m} = T.meta_var({scalar(rng, [n])})", f"    T.evaluate({m} + {m})"],
        [
            f"    for {i} in T.serial(8, annotations={remarks(rng)}):",
            f"        for {j} in T.vectorized(4):",
            f"            {b}[{i}, {j}] = {a}[{i}, {j}] + T.float32({number})",
        ],
        [
            f"    for {i}, {j} in T.grid(8, 4):",
            f"        with T.block({rng.choice(NAMES)!r}):",
            f"            {v}, {m} = T.axis.remap('{rng.choice(['SS', 'SR'])}', [{i}, {j}])",
            f"            T.where({i} < {rng.randint(1, 8)})",
            f"            T.block_attr({remarks(rng)})",
            f"            {b}[{v}, {m}] = {a}[{v}, {m}] * {b}[{v}, 0]",
        ],
        [
            f"    if {scalar(rng, [n])} < 3 and not {n} == 1:",
            f"        {a}[0, 0] = T.exp({a}[0, 1])",
            "    else:",
            f"        {a}[0, 0:4] = T.Broadcast(T.float32({number}), 4)",
        ],
        [f"    {v} = {scalar(rng, [n])}", f"    T.evaluate({v})"],
        [f"    with T.attr({rng.choice(REMARKS)}, 'k', {n}):", f"        {a}[0, 0] = T.float32(1)"],
        [f"    T.evaluate(T.call_extern('int32', {rng.choice(NAMES)!r}, {a}.data, {n}))"],
        [f"    while {a}[0, 0] < T.float32(1):", f"        {a}[0, 0] += T.float32(1)"],
        [
            f"    for {i} in range({rng.randint(0, 3)}, 8, {rng.choice([1, 2, 3, -1])}):",
            f"        if {a}[{i}, 0] < T.float32({number}):",
            f"            {rng.choice(['break', 'continue', 'T.break_loop()', 'return'])}",
            f"        {a}[{i}, 1] = {a}[{i}, 0]",
        ],
        [
            f"    for {i} in T.grid(8, 4):",
            f"        {b}[{i}] = {a}[{i}[0], {i}[1]]",
            f"    {m} = lambda {j}, {v}=2: {j} * {v}",
            f"    T.evaluate({m}({n}))",
            f"    T.attr(T.comm_reducer(lambda {i}, {j}: {i} + {j}, [T.int32(0)]), 'k', {n})",
            f"    T.evaluate({n})",
        ],
        [
            f"    {b}.vstore([0, T.Ramp(0, 1, 4)], {a}.vload([0, T.Ramp(0, 1, 4)]),",
            f"        predicate=T.Ramp(0, 1, 4) < T.Broadcast({n}, 4))",
        ],
        [f"    assert {n} < 4, {rng.choice(NAMES)!r}", f"    T.evaluate({n})"],
    ]
    for part in rng.sample(body, rng.randint(1, 4)):
        lines += part
    return "\n".join(lines) + "\n"


def struct_info(rng: random.Random, symbol: str, depth: int = 2) -> str:
    kinds = [
        f"R.Tensor(('{symbol}', 4), 'float32')",
        "R.Tensor((), 'bool')",
        "R.Tensor('int64', ndim=2)",
        "R.Tensor",
        "R.Object",
        f"R.Shape(('{symbol}', 3))",
        "R.Shape(ndim=2)",
        "R.Prim('int64')",
        f"R.Prim(value='{symbol}')",
    ]
    if depth and rng.random() < 0.4:
        parts = ", ".join(struct_info(rng, symbol, depth - 1) for _ in range(rng.randint(1, 2)))
        inner = rng.choice([symbol, f"{symbol}q"])
        result = struct_info(rng, inner, 0)
        return rng.choice(
            [
                f"R.Tuple({parts})",
                f"R.Callable((R.Tensor(('{inner}',)),), {result}, {rng.random() < 0.5})",
            ]
        )
    return rng.choice(kinds)


def graph_function(rng: random.Random, name: str, callee: str) -> str:
    """A graph function with bindings, branches, casts, inner functions, calls and remarks."""
    n, x, p, y, z, g, c, t = some(rng, 8)
    other = struct_info(rng, n)
    head = rng.choice(["@R.function", "@R.function(private=True)", "@R.function(pure=False)"])
    lines = [
        head,
        f"def {name}(",
        f"    {x}: R.Tensor(('{n}', 4), 'float32'), {p}: {other}, {c}: R.Tensor((), 'bool')):",
    ]
    if rng.random() < 0.4:
        lines.append(f"    R.func_attr({remarks(rng)})")
    if rng.random() < 0.5:
        lines.append(f"    {n} = T.int64()")
    results = [x, p]
    unary, binary = rng.choice(UNARY), rng.choice(BINARY)
    size = "4" if callee.startswith("Mod.") else f"'{n}k'"
    body = [
        ([f"    {y} = {binary}({x}, {unary}({x}))"], y),
        ([f"    {y} = ({x}, {p}, ({x}, R.const({rng.choice(NUMBERS)})))"], y),
        (
            [
                "    with R.dataflow():",
                f"        {y} = {unary}({x})",
                f"        {z} = {binary}({y}, R.const(2.5, 'float32'))",
                f"        R.output({z})",
            ],
            z,
        ),
        (
            [
                f"    if {c}:",
                f"        {y} = {unary}({x})",
                f"        {z} = {binary}({y}, {x})",
                "    else:",
                f"        {z} = {rng.choice([x, f'{binary}({x}, {x})'])}",
            ],
            z,
        ),
        ([f"    {y} = R.match_cast({p}, {struct_info(rng, n)})"], y),
        ([f"    {y} = R.match_cast({p}, {struct_info(rng, f'{n}w')})"], y),
        (
            [
                "    @R.function",
                # Symbols of an inner function that a call gives back become two when read again.
                f"    def {g}({t}: R.Tensor(({size},), 'int8')):",
                f"        {y} = R.add({t}, {t})",
                f"        return {rng.choice([t, y])}",
            ],
            g,
        ),
        ([f"    {y} = R.str({rng.choice(NAMES)!r})"], y),
        ([f"    {y} = R.prim_value({rng.choice(NUMBERS[:5])})"], y),
        ([f"    {y} = R.call_pure_packed({rng.choice(NAMES)!r}, {x}, sinfo_args={other})"], y),
        ([f"    {y} = R.shape([1, 2])"], y),
        ([f"    {y} = {callee}({x}, {p}, {c})"], y),
    ]
    for part, result in rng.sample(body, rng.randint(1, 3)):
        lines += part
        results.append(result)
    last = rng.choice([results[-1], results[-1], f"({results[-1]}, {x})", rng.choice(REMARKS[:3])])
    return "\n".join([*lines, f"    return {last}"]) + "\n"


def module(rng: random.Random) -> str:
    """A module of a few functions that refer to each other."""
    names = rng.sample(NAMES, rng.randint(1, 3))
    lines = ["@I.ir_module", "class Mod:"]
    if rng.random() < 0.5:
        lines.append(f"    I.module_attrs({remarks(rng)})")
    for name in names:
        if rng.random() < 0.6:
            text = graph_function(rng, name, f"Mod.{rng.choice(names)}")
        else:
            text = loop_function(rng, name)
        lines += [f"    {line}" for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def program(rng: random.Random) -> str:
    """Text of one function or module. Most are legal; where a name shadows another one needed,
    some are not.
    """
    kind = rng.randrange(3)
    if kind == 0:
        return loop_function(rng, rng.choice(NAMES))
    name = rng.choice(NAMES)
    return graph_function(rng, name, name) if kind == 1 else module(rng)


PIECES = [
    *NAMES, *NUMBERS, *REMARKS, "T", "R", "I", "(", ")", "[",
    "]", ",", ".", ":", "=", "**", "<<", "\n", "    ",
    "10 ** 40", "T.exp", "R.function", "I.ir_module",
    ".data", ".shape", ".__class__", "lambda: 1", "lambda i: ", "break", "continue", "R.Callable",
    "(", ")", "[", "]", "{", "}", ":", ",", ".", "=", "+", "-", "*", "**", "//", "%", "<<", "@",
    "not ", "if ", "for i in ", "lambda: ", "None", "True", "0", "-1", "1e400", "10**9", "''",
    '"n"', "T", "R", "I", "T.int64()", "A", "x", "n", "cls", "T.block()", "T.grid(4)", "...", "\n",
    "    ", "T.axis.spatial(4, 0)", "R.output", "R.Tensor", "\t", "é", "\0", "_", "__class__",
    "range(10)", "str", "[1] * 10", "return ", "with ", "f'{n}'",
]  # fmt: skip


SEEDS = [
    """
@I.ir_module
class Module:
    I.module_attrs({"a": 1})

    @T.prim_func
    def mm(a: T.handle, B: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        A = T.match_buffer(a, (n, 8), "float32")
        D = T.alloc_buffer((8, 8), "float32")
        for i, j, k in T.grid(8, 8, 8):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.where(i < 7)
                T.reads(A[vi, vk], B[vk, vj])
                T.writes(C[vi, vj])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] += A[vi, vk] * B[vk, vj]

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(ndim=2):
        n = T.int64()
        with R.dataflow():
            lv = R.call_tir(Module.mm, (x, x), out_sinfo=R.Tensor((n, 8), dtype="float32"))
            gv = R.call_dps_packed("env.f", (lv,), R.Tensor((n, 8), "float32"))
            R.output(gv)
        if c:
            y = R.match_cast(gv, R.Tensor((n, 8), "float32"))
        else:
            y = gv
        return y
""",
    """
@T.prim_func
def f(A: T.Buffer((16,), "float32"), n: T.int32) -> T.int32:
    p = T.allocate([16], "float32", "global")
    B = T.Buffer((16,), "float32", data=p)
    x: T.int32 = n * 2 + T.max(n, 3) // 2 % 5
    assert x < 16, "small"
    while A[0] < T.float32(3):
        A[0] = T.exp(A[0]) + T.Select(n < 3, A[1], T.float32(2))
    if n < 1 and not n == 3:
        A[0:4] = T.Broadcast(T.float32(1), 4)
    elif n > 2:
        B[x] = sum([A[i] for i in range(3)])
    else:
        T.evaluate(T.call_extern("int32", "g", A.data))
    return x
""",
]


def mutated(rng: random.Random, text: str) -> str:
    """`text` with a few pieces or lines put in, replaced, doubled, swapped or taken out."""
    for _ in range(rng.randint(1, 4)):
        lines = text.split("\n")
        i, j = (rng.randrange(len(lines)) for _ in range(2))
        way = rng.randrange(8)
        if way == 0:
            lines[i], lines[j] = lines[j], lines[i]
            text = "\n".join(lines)
        elif way == 1:
            text = "\n".join(lines[:i] + lines[i + 1 :])
        else:
            at, other = rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)
            end = min(len(text), at + rng.choice([0, 0, 1, 5, 12]))
            new = rng.choice([rng.choice(PIECES), rng.choice(PIECES), "", text[other : other + 30]])
            text = text[:at] + new + text[end:]
    return text


def make(rng: random.Random) -> dict:
    text = rng.choice(SEEDS) if rng.random() < 0.2 else program(rng)
    if rng.random() < 0.5:
        text = mutated(rng, text)
    return {"lines": text.split("\n")}


def check(case: dict) -> bool:
    text = "\n".join(case["lines"])
    try:
        made = from_source(text)
    except ParseError as error:
        if not (str(error) and error.lineno and error.offset):
            raise AssertionError(f"no place: {error}") from error
        return False
    printed = made.script(show_meta=True)
    try:
        assert_structural_equal(from_source(printed), made)
    except Exception as error:
        error.add_note(f"printed:\n{printed}")
        raise
    return True
