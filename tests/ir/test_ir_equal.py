"""Structural equality and hash."""

import struct
import subprocess
import sys

import numpy as np
import pytest

from relaxvm import nd, relax, tir
from relaxvm.base import DataType, to_numpy_dtype
from relaxvm.ir import (
    FloatImm,
    IRModule,
    Let,
    Map,
    PointerType,
    PrimType,
    Var,
    assert_structural_equal,
    const,
    get_first_structural_mismatch,
    structural_equal,
    structural_hash,
    substitute,
)
from relaxvm.relax.struct_info import FuncStructInfo, TensorStructInfo
from relaxvm.script import from_source
from relaxvm.tir.stmt import (
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
    decl_buffer,
    seq,
)


def program(n="n", i="i", buffer="A", step=1.0, loops=1):
    n, i = Var(n, "int64"), Var(i, "int64")
    a = decl_buffer((n, 4), "float32", buffer)
    loop = For(i, 0, n, "serial", BufferStore(a, a[i, 0] + step, [i, 1]))
    return PrimFunc([a], seq(*[loop] * loops), attrs={"global_symbol": "f"})


def same(a, b, **options):
    equal = structural_equal(a, b, **options)
    if equal:
        assert structural_hash(a, **options) == structural_hash(b, **options)
    return equal


def test_bound_names_do_not_matter():
    assert same(program(), program("m", "j", "B"))
    assert same(IRModule.from_expr(program()), IRModule.from_expr(program("m")))


def test_constants_matter_and_the_path_is_named():
    with pytest.raises(ValueError, match=r"\.body\.body\.value\.b\.value"):
        assert_structural_equal(program(), program(step=2.0))
    path, other = get_first_structural_mismatch(program(), program(step=2.0))
    assert path == other and str(path).endswith(".body.body.value.b.value")
    assert path.objects(program())[-1] == 1.0
    assert get_first_structural_mismatch(program(), program("q")) is None


def test_a_loop_variable_bound_twice_equals_two_variables():
    once = program(loops=2)
    i, j = Var("i", "int64"), Var("j", "int64")
    a = once.buffers[0]
    n = a.shape[0]

    def loop(v):
        return For(v, 0, n, "serial", BufferStore(a, a[v, 0] + 1.0, [v, 1]))

    twice = once.replace(body=SeqStmt((loop(i), loop(j))))
    assert same(once, twice)


def test_renaming_is_one_to_one():
    x, y, z = Var("x"), Var("y"), Var("z")
    f = PrimFunc([x, y], LetStmt(z, x + y, BufferStore(decl_buffer((1,), "int32"), z, [0])))
    a, b = Var("a"), Var("b")
    g = PrimFunc([a, b], substitute(f.body, {x: a, y: a}))
    h = PrimFunc([a, b], substitute(f.body, {x: a, y: b}))
    assert not same(f, g)
    assert structural_equal(f, h, map_free_vars=True)


def test_free_variables_are_themselves_unless_mapped():
    x, y = Var("x"), Var("y")
    assert not same(x + 1, y + 1)
    assert same(x + 1, y + 1, map_free_vars=True)
    assert not same(x + x, x + y, map_free_vars=True)
    assert not same(Var("x") + 1, Var("x", "int64") + 1, map_free_vars=True)


def test_let_binds_inside_an_expression():
    x, y = Var("x"), Var("y")
    n = Var("n")
    assert same(Let(x, n + 1, x * x), Let(y, n + 1, y * y))
    assert not same(Let(x, n + 1, x * x), Let(y, n + 2, y * y))


def test_buffer_parameters_match_by_position():
    a, b = decl_buffer((4,), name="a"), decl_buffer((4,), name="b")
    f = PrimFunc([a, b], BufferStore(b, a[0], [0]))
    g = PrimFunc([b, a], BufferStore(b, a[0], [0]))
    assert not same(f, g)


def test_symbols_of_struct_info_are_free_except_in_functions():
    n, m = Var("n", "int64"), Var("m", "int64")
    t, u = TensorStructInfo((n, 2)), TensorStructInfo((m, 2))
    assert not same(t, u)
    assert same(t, u, map_free_vars=True)
    assert same(FuncStructInfo((t,), t), FuncStructInfo((u,), u))
    assert not same(FuncStructInfo((t,), t), FuncStructInfo((u,), t))


def test_a_signature_binds_its_symbols_for_itself():
    n, m, k = (Var(name, "int64") for name in "nmk")

    def takes(*sizes):
        infos = [TensorStructInfo((size,), "float32") for size in sizes]
        return FuncStructInfo(infos, TensorStructInfo((sizes[0],), "float32"))

    def pair(first, second):
        return (first, second)

    # One symbol for two signatures, or one for each.
    assert same(pair(takes(n), takes(n)), pair(takes(m), takes(k)))
    assert same(takes(n, n), takes(m, m)) and not same(takes(n, n), takes(m, k))
    assert not same(takes(n, m), takes(m, m))
    # A symbol from outside, where it does not stand alone, stays the one it is.
    inner = FuncStructInfo((takes(n),), TensorStructInfo((m,), "float32"))
    assert not same(inner, FuncStructInfo((takes(m),), TensorStructInfo((n,), "float32")))
    assert same(inner, FuncStructInfo((takes(k),), TensorStructInfo((m,), "float32")))
    nested = FuncStructInfo((takes(n), TensorStructInfo((n,), "float32")), takes(n))
    other = FuncStructInfo((takes(m), TensorStructInfo((k,), "float32")), takes(n))
    assert same(nested, other)


def test_function_types_that_calls_give_back_are_read_as_they_were():
    mod = from_source("""
# from relaxvm.script import ir as I, relax as R, tir as T
@I.ir_module
class Mod:
    @R.function
    def f(p: R.Callable((R.Tensor(("q",)),), R.Tensor(("q",)))):
        return p

    @R.function
    def main(x: R.Tensor(("n", 4)), g: R.Callable((R.Tensor(("q",)),), R.Tensor(("q",)))):
        y = Mod.f(g)
        z = Mod.f(y)
        return (x, z)
""")
    assert same(from_source(mod.script()), mod)


def test_blocks_bind_their_iteration_variables():
    a = decl_buffer((4,), "int32")

    def f(name):
        v, i = Var("v" + name), Var(name)
        block = Block([IterVar((0, 4), v)], [], [a[v : v + 1]], "b", BufferStore(a, v, [v]))
        return PrimFunc([a], For(i, 0, 4, "serial", BlockRealize([i], True, block)))

    assert same(f("i"), f("j"))


def test_attribute_order_does_not_matter():
    f = program()
    a = f.with_attr({"x": 1, "y": (1, 2.0, "s")})
    b = f.with_attr({"y": (1, 2.0, "s")}).with_attr("x", 1)
    assert same(a, b)
    assert not same(a, f)
    assert not same(f.with_attr("x", 1), f.with_attr("x", True))


def test_shared_expressions_cost_linear_time():
    def tower(v):
        e = v
        for _ in range(200):
            e = e * e + 1
        return PrimFunc([v], BufferStore(decl_buffer((1,), "int32"), e, [0]))

    assert structural_equal(tower(Var("x")), tower(Var("y")), map_free_vars=True)
    h = [structural_hash(tower(Var(n)), map_free_vars=True) for n in "xy"]
    assert h[0] == h[1]


def test_long_sequences_do_not_recurse():
    a = decl_buffer((1,), "int32")
    f = PrimFunc([a], SeqStmt(tuple(BufferStore(a, const(i), [0]) for i in range(20000))))
    assert same(f, f)


def test_hashes_are_the_same_in_every_process():
    code = (
        "from relaxvm.ir import *\nfrom relaxvm.tir.stmt import *\n"
        "a = decl_buffer((4,), 'float32')\ni = Var('i')\n"
        "f = PrimFunc([a], For(i, 0, 4, 'serial', BufferStore(a, a[i] * 2.5, [i])),"
        " attrs={'z': 1, 'global_symbol': 'f'})\nprint(structural_hash(f))"
    )
    runs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        for _ in range(2)
    }
    assert len(runs) == 1


def test_modules_differ_by_functions_and_attributes():
    a = IRModule({"f": program()})
    assert not same(a, IRModule({"g": program()}))
    assert not same(a, a.with_attr("k", 1))
    two = IRModule({"f": program(), "g": program()})
    assert same(two, IRModule({"g": program(), "f": program()}))
    assert structural_hash(two) != structural_hash(a)


def test_functions_of_a_module_may_share_a_buffer():
    a = decl_buffer((1,), "int32")
    f = PrimFunc([a], BufferStore(a, 1, [0]))
    g = PrimFunc([a], BufferStore(a, 2, [0]))
    b, c = decl_buffer((1,), "int32"), decl_buffer((1,), "int32")
    other = IRModule(
        {
            "f": PrimFunc([b], BufferStore(b, 1, [0])),
            "g": PrimFunc([c], BufferStore(c, 2, [0])),
        }
    )
    assert same(IRModule({"f": f, "g": g}), other)


def scratch(scope="", block="copy"):
    """A function of one block that works in memory of `scope`."""
    a, s = decl_buffer((4,), "float32", "A"), decl_buffer((4,), "float32", "S", scope=scope)
    region = tir.BufferRegion.full_region(a)
    body = BufferStore(s, a[0], [0])
    inner = Block([], [region], [], block, body, None, [s])
    return PrimFunc([a], BlockRealize([], True, inner))


def test_storage_scopes_matter():
    assert same(scratch(), scratch("global"))
    assert not same(scratch("local"), scratch())
    assert structural_hash(scratch("local")) != structural_hash(scratch("global"))
    path, *_ = get_first_structural_mismatch(scratch("shared"), scratch("local"))
    assert "alloc_buffers" in str(path)
    low, high = (
        tir.Allocate(Var("p", PointerType(PrimType("int8"), scope)), "int8", [4], True, Evaluate(0))
        for scope in ("local", "global")
    )
    assert not same(low, high)
    assert structural_hash(low) != structural_hash(high)


def test_names_of_blocks_do_not_matter():
    assert same(scratch(block="one"), scratch(block="other"))


def test_nans_are_equal_whatever_their_bits():
    bits = (0x7FF8000000000000, 0xFFF8000000000001)
    one, other = (FloatImm("float64", struct.unpack("<d", struct.pack("<Q", b))[0]) for b in bits)
    assert one is not other
    assert same(one, other)
    assert same(Evaluate(-one), Evaluate(-other))
    assert not same(const(0.0), const(-0.0))


def test_a_list_is_a_tuple_and_a_dict_a_map():
    assert same([const(1), [const(2)]], (const(1), (const(2),)))
    assert same({"a": [1, 2]}, Map(a=(1, 2)))
    assert not same([1, 2], [2, 1])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "float8_e4m3fn"])
def test_the_bits_of_a_nan_in_an_array_do_not_matter(dtype):
    """Two NaNs of other bits, a number and -0.0."""
    width = DataType(dtype).itemsize
    quiet, other = {
        "float16": (0x7E00, 0xFE01),
        "float32": (0x7FC00000, 0xFFC00001),
        "float64": (0x7FF8 << 48, (0xFFF8 << 48) + 1),
        "bfloat16": (0x7FC0, 0xFFC1),
        "float8_e4m3fn": (0x7F, 0xFF),
    }[dtype]

    def constant(*bits):
        values = np.array(bits, f"u{width}").view(to_numpy_dtype(dtype))
        return relax.Constant(nd.array(values, dtype=dtype))

    sign = 1 << (8 * width - 1)
    a, b = constant(quiet, 1, sign), constant(other, 1, sign)
    assert structural_equal(a, b) and structural_hash(a) == structural_hash(b)
    for c in (constant(quiet, 1, 0), constant(1, quiet, sign), constant(0, 1, sign)):
        assert not structural_equal(a, c) and structural_hash(a) != structural_hash(c)
