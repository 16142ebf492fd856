"""Odd but legal script text, and nearly legal text: `program(rng)`, `mutated(rng, text)`."""

from __future__ import annotations

import random

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


def graph_function(rng: random.Random, name: str, callee: str | None = None) -> str:
    """A graph function with bindings, branches, casts, inner functions and remarks."""
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
                f"    def {g}({t}: R.Tensor(('{n}k',), 'int8')):",
                f"        {y} = R.add({t}, {t})",
                f"        return {rng.choice([t, y])}",
            ],
            g,
        ),
        ([f"    {y} = R.str({rng.choice(NAMES)!r})"], y),
        ([f"    {y} = R.prim_value({rng.choice(NUMBERS[:5])})"], y),
        ([f"    {y} = R.call_pure_packed({rng.choice(NAMES)!r}, {x}, sinfo_args={other})"], y),
        ([f"    {y} = R.shape([1, 2])"], y),
    ]
    if callee is not None:
        body.append(([f"    {y} = Mod.{callee}({x}, {p}, {c})"], y))
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
        is_graph = rng.random() < 0.6
        text = (
            graph_function(rng, name, rng.choice(names)) if is_graph else loop_function(rng, name)
        )
        lines += [f"    {line}" for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def program(rng: random.Random) -> str:
    """Text of one function or module. Most are legal; where a name shadows another one needed,
    some are not.
    """
    kind = rng.randrange(3)
    if kind == 0:
        return loop_function(rng, rng.choice(NAMES))
    return graph_function(rng, rng.choice(NAMES)) if kind == 1 else module(rng)


TOKENS = [
    *NAMES, *NUMBERS, *REMARKS, "T", "R", "I", "(", ")", "[",
    "]", ",", ".", ":", "=", "**", "<<", "\n", "    ",
    "10 ** 40", "T.exp", "R.function", "I.ir_module",
    ".data", ".shape", ".__class__", "lambda: 1", "lambda i: ", "break", "continue", "R.Callable",
]  # fmt: skip


def mutated(rng: random.Random, text: str) -> str:
    """`text` with a few pieces put in, replaced, doubled or taken out."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice([0, 0, 1, 5, 12]))
        new = rng.choice([rng.choice(TOKENS), "", text[end : end + 30]])
        text = text[:at] + new + text[end:]
    return text
