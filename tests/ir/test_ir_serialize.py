"""Saving IR as JSON and msgpack and loading it back; hostile input."""

import copy
import json
import pickle
import random

import msgpack
import pytest

from relaxvm.base import LoadError, RelaxvmError, Span
from relaxvm.ir import (
    Broadcast,
    Call,
    FloatImm,
    IntImm,
    IRModule,
    Let,
    Ramp,
    Select,
    Shuffle,
    Var,
    assert_structural_equal,
    const,
    load_json,
    load_msgpack,
    save_json,
    save_msgpack,
    structural_equal,
    structural_hash,
    walk,
)
from relaxvm.script import from_source
from relaxvm.tir.stmt import (
    AssertStmt,
    Block,
    BlockRealize,
    BufferStore,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    While,
    decl_buffer,
    seq,
)

ROUND = [(save_json, load_json), (save_msgpack, load_msgpack)]


def rich_program():
    n, i, v, t = Var("n", "int64"), Var("i", "int64"), Var("v", "int64"), Var("t", "float32")
    a = decl_buffer((n, 4), "float32", "A")
    store = LetStmt(
        t,
        Select(v < 3, a[v, 0], FloatImm("float32", float("nan"))),
        seq(
            BufferStore(a, Call("float32", "tir.exp", [t]), [v, 1], Span("f.py", 3, 1, 3, 9)),
            IfThenElse(v == 2, BufferStore(a, FloatImm("float32", -0.0), [v, 2])),
            While(a[v, 0] < 0.0, BufferStore(a, a[v, 0] + float("inf"), [v, 0])),
            AssertStmt(v >= 0, "negative", BufferStore(a, 1.0, [v, 3])),
        ),
    )
    block = Block(
        [IterVar((0, n), v)],
        [a[v, 0:4]],
        [a[v, 0:4]],
        "B",
        store,
        annotations={"k": [1, "s", 2.5, None, {"n": n}]},
    )
    body = For(i, 0, n, "parallel", BlockRealize([i], i < n, block))
    return PrimFunc([a], body, attrs={"global_symbol": "f", "tir.noalias": True})


@pytest.mark.parametrize(("save", "load"), ROUND)
def test_a_module_comes_back_structurally_equal(save, load):
    mod = IRModule({"f": rich_program()}, attrs={"version": 3})
    back = load(save(mod))
    assert_structural_equal(mod, back)
    assert structural_hash(mod) == structural_hash(back)
    assert back.attrs["version"] == 3


@pytest.mark.parametrize(("save", "load"), ROUND)
def test_expressions_and_sharing_come_back(save, load):
    x = Var("x")
    y = Var("y")
    e = x
    for _ in range(100):
        e = e + e
    e = Let(y, e, y * 2)
    back = load(save(e))
    assert_structural_equal(e, back, map_free_vars=True)
    assert sum(1 for _ in walk(back)) == sum(1 for _ in walk(e))
    v = Shuffle([Ramp(x, 2, 4), Broadcast(const(1), 4)], [0, 7])
    assert_structural_equal(v, load(save(v)), map_free_vars=True)


@pytest.mark.parametrize(("save", "load"), ROUND)
def test_spans_are_kept_unless_left_out(save, load):
    f = rich_program()

    def spans(root):
        return [str(n.span) for n in walk(root) if getattr(n, "span", None) and n.span.source]

    assert spans(load(save(f))) == spans(f) != []
    assert spans(load(save(f, spans=False))) == []


def test_saving_is_deterministic():
    f = rich_program()
    assert save_msgpack(f) == save_msgpack(f)


def test_long_programs_are_saved_without_recursion():
    a = decl_buffer((1,), "int32")
    e = a[0]
    for i in range(5000):
        e = e + Var(f"x{i}")
    f = PrimFunc(
        [a], seq(*[BufferStore(a, const(i), [0]) for i in range(5000)], BufferStore(a, e, [0]))
    )
    assert_structural_equal(f, load_msgpack(save_msgpack(f)), map_free_vars=True)


def test_what_cannot_be_saved_is_named():
    with pytest.raises(RelaxvmError, match="cannot save a object"):
        save_json(rich_program().with_attr("bad", object()))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        '{"relaxvm_ir": 2, "nodes": [], "root": null}',
        '{"relaxvm_ir": true, "nodes": [], "root": null}',
        '{"relaxvm_ir": 1, "nodes": {}, "root": null}',
        '{"relaxvm_ir": 1, "nodes": [["os.system", "x"]], "root": ["n", 0]}',
        '{"relaxvm_ir": 1, "nodes": [["ir.Add", ["n", 0], ["n", 0]]], "root": ["n", 0]}',
        '{"relaxvm_ir": 1, "nodes": [["ir.Add", 1, 2]], "root": ["n", 0]}',
        '{"relaxvm_ir": 1, "nodes": [["ir.IntImm", ["t", "int8"], 1000]], "root": ["n", 0]}',
        '{"relaxvm_ir": 1, "nodes": [["ir.IntImm", ["t", "int8"]]], "root": ["n", 0]}',
        '{"relaxvm_ir": 1, "nodes": [["ir.Var", 3, ["t", "int8"], null]], "root": ["n", 0]}',
        '{"relaxvm_ir": 1, "nodes": [], "root": ["n", -1]}',
        '{"relaxvm_ir": 1, "nodes": [], "root": ["__init__"]}',
        '{"relaxvm_ir": 1, "nodes": [], "root": ["f", "nope"]}',
        '{"relaxvm_ir": 1, "nodes": [], "root": ["o", "tir.nope"]}',
        '{"relaxvm_ir": 1, "nodes": [], "root": ["x", "pickle", "gASV"]}',
        '{"relaxvm_ir": 1, "nodes": [], "root": ["m", [["l"], 1]]}',
        "[" * 100000,
    ],
)
def test_hostile_json_is_a_load_error(text):
    with pytest.raises(LoadError):
        load_json(text)


def test_deep_values_are_refused():
    value = ["l"]
    for _ in range(100):
        value = ["l", value]
    with pytest.raises(LoadError, match="deep"):
        load_json(json.dumps({"relaxvm_ir": 1, "nodes": [], "root": value}))


def test_mutated_msgpack_gives_ir_or_a_load_error():
    data = save_msgpack(IRModule({"f": rich_program()}))
    rng = random.Random(7)
    loaded = 0
    for _ in range(1500):
        mutated = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(mutated))
            kind = rng.randrange(3)
            if kind == 0:
                mutated[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                del mutated[at : at + rng.randint(1, 20)]
            else:
                mutated[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))
            if not mutated:
                break
        try:
            load_msgpack(bytes(mutated))
            loaded += 1
        except LoadError:
            pass
    assert loaded < 1500


def test_mutated_documents_give_ir_or_a_load_error():
    document = msgpack.unpackb(save_msgpack(IRModule({"f": rich_program()})))
    rng = random.Random(11)
    pieces = [
        None,
        True,
        -1,
        0,
        2**70,
        "",
        "ir.Add",
        ["n", 0],
        ["l"],
        ["t", "int8"],
        {},
        ["m"],
        1.5,
    ]

    def mutate(value):
        if isinstance(value, list) and value and rng.random() < 0.9:
            copy = list(value)
            i = rng.randrange(len(copy))
            copy[i] = mutate(copy[i])
            return copy
        return rng.choice(pieces)

    for _ in range(1500):
        changed = dict(document)
        changed["nodes"] = mutate(document["nodes"])
        try:
            load_json(json.dumps(changed, default=lambda b: b.hex()))
        except LoadError:
            pass


def test_ir_travels_through_pickle():
    mod = from_source(PICKLED)
    back = pickle.loads(pickle.dumps(mod))
    assert structural_equal(back, mod)
    fn = next(iter(mod.functions.values()))
    assert structural_equal(pickle.loads(pickle.dumps(fn)), fn)
    assert copy.deepcopy(fn) is fn
    one = IntImm("int64", 7)
    assert pickle.loads(pickle.dumps(one)) is one
    deep = sum_of(20_000)
    assert structural_equal(pickle.loads(pickle.dumps(deep)), deep, map_free_vars=True)


def sum_of(count):
    e = Var("x", "int64")
    for _ in range(count):
        e = e * 3 + 1
    return e


PICKLED = """
@I.ir_module
class Module:
    @T.prim_func
    def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            B[i] = A[i] + T.float32(1)
"""
