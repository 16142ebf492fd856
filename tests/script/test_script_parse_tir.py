"""Every feature of the loop language's script, parsed and compared with nodes built by hand."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm import tir
from relaxvm.base import ParseError
from relaxvm.ir import (
    Add,
    Call,
    IntImm,
    Map,
    Op,
    PointerType,
    PrimType,
    Range,
    assert_structural_equal,
)
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import tir as T
from relaxvm.tir import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferLoad,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Var,
    While,
    decl_buffer,
)


def body_of(func):
    """The body under the implicit root block, if there is one."""
    assert isinstance(func, PrimFunc)
    body = func.body
    if isinstance(body, BlockRealize) and body.block.name_hint == "root":
        return body.block.body
    return body


def text(lines, params='A: T.Buffer((16,), "float32"), n: T.int32', decorator="@T.prim_func"):
    """A loop function with the given body, from text."""
    return from_source(f"{decorator}\ndef f({params}):\n    " + "\n    ".join(lines.split("\n")))


def one(lines, **options):
    """The single statement of such a function."""
    return body_of(text(lines, **options))


def value(expression, **options):
    """The expression as stored into A[0]."""
    stmt = one(f"A[0] = {expression}", **options)
    assert isinstance(stmt, BufferStore)
    return stmt.value


# -- signatures ----------------------------------------------------------------------------------


def test_buffer_parameter_gives_a_handle_mapped_to_a_named_buffer():
    f = text("pass")
    (a, n) = f.params
    assert (a.dtype, n.dtype, n.name) == ("handle", "int32", "n")
    buffer = f.buffer_map[a]
    assert (buffer.name, buffer.data.name, buffer.dtype) == ("A", "A", "float32")
    assert buffer.shape == (IntImm("int32", 16),)
    assert f.attrs["global_symbol"] == "f"


def test_older_buffer_spelling_means_the_same():
    a = text(
        "A[0] = T.float32(1)", params='A: T.Buffer[(1, 784), "float32"]'.replace("1, 784", "16,")
    )
    b = text("A[0] = T.float32(1)", params='A: T.Buffer((16,), "float32")')
    assert_structural_equal(a, b)
    assert text("pass", params='A: T.Buffer[16, "int8"]').buffers[0].dtype == "int8"
    assert text("pass", params="A: T.Buffer[(2, 3)]").buffers[0].ndim == 2


def test_parameter_shapes_may_use_earlier_parameters():
    f = text("pass", params='n: T.int64, A: T.Buffer((n, n * 2), "float16")')
    n, a = f.params
    assert f.buffer_map[a].shape == (n, n * 2)


def test_match_buffer_binds_symbols_strides_and_offset():
    f = text(
        "n = T.int64()\ns = T.int64()\n"
        'A = T.match_buffer(a, (n, 4), "float16", strides=(s, 1), elem_offset=0, align=128, '
        "offset_factor=8)\n"
        "A[0, 0] = T.float16(1)",
        params="a: T.handle",
    )
    buffer = f.buffers[0]
    n = buffer.shape[0]
    assert isinstance(n, Var)
    assert (n.name, n.dtype) == ("n", "int64")
    assert buffer.strides[0].name == "s"
    assert (buffer.data_alignment, buffer.offset_factor) == (128, 8)
    assert buffer.name == "A"


def test_string_strides_and_missing_offset_make_variables():
    f = text(
        'A = T.match_buffer(a, (4, 4), strides=("s0", "s1"), offset_factor=1)',
        params="a: T.handle",
    )
    assert [s.name for s in f.buffers[0].strides] == ["s0", "s1"]
    assert isinstance(f.buffers[0].elem_offset, Var)


def test_typed_pointer_parameters_and_size_variables():
    f = text(
        "pass",
        params='p: T.handle("float32", "shared"), n: T.int64(is_size_var=True), x: T.float32',
    )
    p, n, x = f.params
    assert p.type_annotation is PointerType(PrimType("float32"), "shared")
    assert isinstance(n, tir.SizeVar)
    assert x.dtype == "float32"


def test_private_functions_have_no_global_symbol():
    f = text("pass", decorator="@T.prim_func(private=True)")
    assert "global_symbol" not in f.attrs


def test_func_attr_keeps_what_is_written():
    f = text('T.func_attr({"global_symbol": "main", "tir.noalias": T.bool(True), "k": [1, 2]})')
    assert dict(f.attrs) == {"global_symbol": "main", "tir.noalias": True, "k": (1, 2)}


def test_return_type_and_return_value():
    f = from_source("@T.prim_func\ndef f(n: T.int32) -> T.int32:\n    return n + 1")
    assert f.ret_type is PrimType("int32")
    assert isinstance(f.body, Evaluate)
    assert f.body.value.op is Op.get("tir.ret")
    g = from_source("@T.prim_func\ndef f(n: T.int32) -> T.int32:\n    T.ret(n + 1)")
    assert_structural_equal(f, g)


def test_docstring_and_pass_are_nothing():
    assert_structural_equal(
        text('"""Words."""\nA[0] = T.float32(1)'), text("pass\nA[0] = T.float32(1)")
    )


# -- loops ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("range(4)", ForKind.SERIAL),
        ("T.serial(4)", ForKind.SERIAL),
        ("T.serial(0, 4)", ForKind.SERIAL),
        ("T.parallel(4)", ForKind.PARALLEL),
        ("T.vectorized(4)", ForKind.VECTORIZED),
        ("T.unroll(4)", ForKind.UNROLLED),
        ('T.thread_binding(4, thread="threadIdx.x")', ForKind.THREAD_BINDING),
        ('T.thread_binding(0, 4, thread="threadIdx.x")', ForKind.THREAD_BINDING),
    ],
)
def test_loop_kinds(written, kind):
    loop = one(f"for i in {written}:\n    A[i] = T.float32(1)")
    assert isinstance(loop, For)
    assert loop.kind == kind
    assert (int(loop.min), int(loop.extent)) == (0, 4)
    assert loop.loop_var.name == "i"
    assert (loop.thread_binding is None) == (kind != ForKind.THREAD_BINDING)


def test_loops_from_a_beginning_have_the_difference_as_extent():
    loop = one("for i in T.serial(3, 10):\n    A[i] = T.float32(1)")
    assert (int(loop.min), int(loop.extent)) == (3, 7)
    loop = one("for i in range(n, n + 4):\n    A[i] = T.float32(1)")
    assert loop.extent is IntImm("int32", 4)


def test_loop_annotations():
    loop = one('for i in T.serial(4, annotations={"pragma": 1}):\n    A[i] = T.float32(1)')
    assert dict(loop.annotations) == {"pragma": 1}


def test_grid_nests_loops_in_order():
    loop = one("for i, j in T.grid(2, (1, 4)):\n    A[i * 4 + j] = T.float32(1)")
    assert (loop.loop_var.name, loop.body.loop_var.name) == ("i", "j")
    assert (int(loop.body.min), int(loop.body.extent)) == (1, 3)


def test_loop_variable_takes_the_dtype_of_its_bounds():
    loop = one(
        "for i in range(m):\n    A[i] = T.float32(1)", params="A: T.Buffer((16,)), m: T.int64"
    )
    assert loop.loop_var.dtype == "int64"
    assert loop.min is IntImm("int64", 0)


def test_while_and_conditionals():
    stmt = one(
        "while A[0] < T.float32(3):\n    A[0] = A[0] + T.float32(1)",
    )
    assert isinstance(stmt, While)
    stmt = one(
        "if n < 1:\n    A[0] = T.float32(0)\nelif n < 2:\n    A[1] = T.float32(0)\nelse:\n"
        "    A[2] = T.float32(0)"
    )
    assert isinstance(stmt, IfThenElse)
    assert isinstance(stmt.else_case, IfThenElse)
    assert isinstance(stmt.else_case.else_case, BufferStore)


def test_conditions_known_while_parsing_keep_one_side():
    f = from_source(
        "@T.prim_func\ndef f(A: T.Buffer((4,))):\n"
        "    if FLAG:\n        A[0] = T.float32(1)\n    else:\n        A[0] = T.float32(2)\n"
        "    if not FLAG:\n        A[1] = T.float32(1)",
        {"FLAG": True},
    )
    assert isinstance(f.body, BufferStore)
    assert f.body.value.value == 1


def test_static_and_dynamic_arms_mix():
    f = from_source(
        "@T.prim_func\ndef f(A: T.Buffer((4,)), n: T.int32):\n"
        "    if n < 1:\n        A[0] = T.float32(1)\n    elif FLAG:\n        A[0] = T.float32(2)\n"
        "    else:\n        A[0] = T.float32(3)",
        {"FLAG": True},
    )
    assert f.body.else_case.value.value == 2


# -- blocks --------------------------------------------------------------------------------------


def matmul_text(n=16):
    return f"""
@T.prim_func
def mm(
    A: T.Buffer(({n}, {n}), "float32"),
    B: T.Buffer(({n}, {n}), "float32"),
    C: T.Buffer(({n}, {n}), "float32"),
):
    for i, j, k in T.grid({n}, {n}, {n}):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def matmul_nodes(n=16):
    a, b, c = (decl_buffer((n, n), "float32", name) for name in "ABC")
    loops = [Var(name, "int32") for name in "ijk"]
    kinds = ("spatial", "spatial", "reduce")
    axes = [
        IterVar(Range.from_min_extent(0, n), Var(f"v{v.name}", "int32"), k)
        for v, k in zip(loops, kinds)
    ]
    vi, vj, vk = (iv.var for iv in axes)

    def at(buffer, *indices):
        return BufferRegion(buffer, tuple(Range.from_min_extent(i, 1) for i in indices))

    block = Block(
        axes,
        (at(a, vi, vk), at(b, vk, vj)),
        (at(c, vi, vj),),
        "C",
        BufferStore(
            c, BufferLoad(c, (vi, vj)) + BufferLoad(a, (vi, vk)) * BufferLoad(b, (vk, vj)), (vi, vj)
        ),
        BufferStore(c, T.float32(0), (vi, vj)),
    )
    body = BlockRealize(loops, T.bool(True), block)
    for v in reversed(loops):
        body = For(v, 0, n, "serial", body)
    root = BlockRealize((), T.bool(True), Block((), (), (), "root", body))
    return PrimFunc((a, b, c), root, None, None, {"global_symbol": "mm"})


def test_matmul_is_the_function_built_by_hand():
    assert_structural_equal(from_source(matmul_text()), matmul_nodes())


def test_parsed_matmul_computes_a_product():
    f = from_source(matmul_text(8))
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 8, 8)).astype("float32")
    c = np.zeros((8, 8), "float32")
    tir.interpret(f, a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


def test_axes_one_by_one():
    f = text(
        "for i, j, k, l in T.grid(4, 4, 4, 4):\n"
        '    with T.block("b"):\n'
        "        a = T.axis.spatial(4, i)\n"
        "        b = T.axis.S((1, 5), j + 1)\n"
        "        c = T.axis.reduce(4, k)\n"
        "        d = T.axis.R(4, 0)\n"
        "        e = T.axis.scan(4, l)\n"
        "        o = T.axis.opaque(4, l)\n"
        "        A[a] = T.float32(1)"
    )
    realize = f.body.block.body.body.body.body.body
    kinds = [iv.iter_type for iv in realize.block.iter_vars]
    assert kinds == ["spatial", "spatial", "reduce", "reduce", "ordered", "opaque"]
    dom = realize.block.iter_vars[1].dom
    assert (int(dom.min), int(dom.extent)) == (1, 4)
    assert [iv.var.name for iv in realize.block.iter_vars] == list("abcdeo")


def test_axes_of_int64_loops_are_int64():
    f = text(
        "m = T.int64()\nB = T.match_buffer(b, (m,))\n"
        'for i in range(m):\n    with T.block("b"):\n        vi = T.axis.spatial(m, i)\n'
        "        B[vi] = T.float32(1)",
        params="b: T.handle",
    )
    realize = f.body.block.body.body
    assert realize.block.iter_vars[0].var.dtype == "int64"
    f = text(
        'for i in range(T.int64(8)):\n    with T.block("b"):\n'
        "        vi = T.axis.spatial(8, i)\n        A[vi] = T.float32(1)"
    )
    iv = f.body.block.body.body.block.iter_vars[0]
    assert (iv.var.dtype, iv.dom.extent.dtype) == ("int64", "int64")


def test_remap_takes_the_domains_of_the_loops():
    f = text(
        'for i in range(2, 6):\n    with T.block("b"):\n        vi = T.axis.remap("S", [i])\n'
        "        A[vi] = T.float32(1)"
    )
    dom = f.body.block.body.body.block.iter_vars[0].dom
    assert (int(dom.min), int(dom.extent)) == (2, 4)


def test_declared_regions_predicate_and_annotations():
    f = text(
        "for i in range(16):\n"
        '    with T.block("b"):\n'
        '        vi = T.axis.remap("S", [i])\n'
        "        T.where(i < n)\n"
        "        T.reads(A[0:4])\n"
        "        T.writes([A[vi], A])\n"
        '        T.block_attr({"k": 1})\n'
        "        A[vi] = A[vi] + T.float32(1)"
    )
    realize = f.body.block.body.body
    block = realize.block
    assert realize.predicate is (f.body.block.body.loop_var < f.params[1])
    assert [int(r.extent) for r in block.reads[0].region] == [4]
    assert [int(w.region[0].extent) for w in block.writes] == [1, 16]
    assert dict(block.annotations) == {"k": 1}


def test_missing_regions_are_found_and_empty_ones_are_kept():
    f = text(
        'for i in range(4):\n    with T.block("b"):\n        vi = T.axis.remap("S", [i])\n'
        "        T.reads()\n        A[vi] = A[vi + 1]"
    )
    block = f.body.block.body.body.block
    assert block.reads == ()
    assert len(block.writes) == 1
    assert block.writes[0].region[0].min is block.iter_vars[0].var


def test_alloc_buffer_at_the_top_belongs_to_the_root_block():
    f = text('B = T.alloc_buffer((4,), "int32", scope="global")\nB[0] = 1')
    assert f.body.block.name_hint == "root"
    (b,) = f.body.block.alloc_buffers
    assert (b.name, b.data.name, b.scope()) == ("B", "B", "global")
    assert_structural_equal(f, text('B = T.sblock_alloc_buffer((4,), "int32")\nB[0] = 1'))


def test_root_block_is_added_exactly_where_it_is_needed():
    plain = text("A[0] = T.float32(1)")
    assert isinstance(plain.body, BufferStore)
    written = text('with T.block("root"):\n    T.reads()\n    T.writes()\n    A[0] = T.float32(1)')
    assert written.body.block.name_hint == "root"
    assert isinstance(written.body.block.body, BufferStore)
    axes = text('with T.block("b"):\n    vi = T.axis.spatial(1, 0)\n    A[vi] = T.float32(1)')
    assert axes.body.block.name_hint == "root"
    assert axes.body.block.body.block.name_hint == "b"


def test_sblock_is_block():
    assert_structural_equal(
        text('with T.sblock("b"):\n    vi = T.axis.spatial(1, 0)\n    A[vi] = T.float32(1)'),
        text('with T.block("b"):\n    vi = T.axis.spatial(1, 0)\n    A[vi] = T.float32(1)'),
    )


def test_match_buffer_of_a_region_in_a_block():
    f = text(
        "for i in range(4):\n"
        '    with T.block("b"):\n'
        "        vi = T.axis.spatial(4, i)\n"
        "        T.reads()\n        T.writes(A[vi * 4:vi * 4 + 4])\n"
        "        B = T.match_buffer(A[vi * 4:vi * 4 + 4], (4,), offset_factor=1)\n"
        "        B[0] = T.float32(1)"
    )
    (match,) = f.body.block.body.body.block.match_buffers
    assert match.buffer.name == "B"
    assert [int(r.extent) for r in match.source.region] == [4]
    assert match.buffer.dtype == "float32"


# -- other statements ----------------------------------------------------------------------------


def test_plain_assignment_is_a_let():
    stmt = one("x = A[0] + T.float32(1)\nA[1] = x\nA[2] = x")
    assert isinstance(stmt, LetStmt)
    assert (stmt.var.name, stmt.var.dtype) == ("x", "float32")
    assert isinstance(stmt.body, SeqStmt)
    same = one("x: T.float32 = A[0] + T.float32(1)\nA[1] = x\nA[2] = x")
    assert_structural_equal(stmt, same, map_free_vars=True)
    with_form = one("with T.LetStmt(A[0] + T.float32(1)) as x:\n    A[1] = x\n    A[2] = x")
    assert_structural_equal(stmt, with_form, map_free_vars=True)
    assert isinstance(one("x = T.LetStmt(A[0])\nA[1] = x"), LetStmt)


def test_annotated_numbers_take_the_declared_dtype():
    stmt = one("x: T.int64 = 3\nT.evaluate(x)")
    assert stmt.value is IntImm("int64", 3)


def test_meta_var_stands_for_the_expression():
    stmt = one("x = T.meta_var(n + 1)\nA[x] = T.float32(1)")
    assert isinstance(stmt, BufferStore)
    assert isinstance(stmt.indices[0], Add)


def test_tuples_are_unpacked():
    f = text("x, y = n + 1, n + 2\nA[x] = T.float32(1)\nA[y] = T.float32(2)")
    assert isinstance(f.body, LetStmt)
    assert isinstance(f.body.body, LetStmt)
    assert f.body.body.var.name == "y"


def test_assert_in_both_spellings():
    stmt = one('assert n > 0, "n is positive"\nA[0] = T.float32(1)')
    assert isinstance(stmt, AssertStmt)
    assert stmt.message.value == "n is positive"
    same = one('with T.Assert(n > 0, "n is positive"):\n    A[0] = T.float32(1)')
    assert_structural_equal(stmt, same, map_free_vars=True)
    bare = one('T.Assert(n > 0, "n is positive")\nA[0] = T.float32(1)')
    assert_structural_equal(stmt, bare, map_free_vars=True)


def test_attr_in_both_spellings():
    stmt = one('T.attr(n, "key", 1)\nA[0] = T.float32(1)')
    assert isinstance(stmt, AttrStmt)
    assert (stmt.attr_key, int(stmt.value)) == ("key", 1)
    same = one('with T.attr(n, "key", 1):\n    A[0] = T.float32(1)')
    assert_structural_equal(stmt, same, map_free_vars=True)


def test_allocate_as_statement_and_with():
    stmt = one(
        'p = T.allocate([16], "float32", "global")\nB = T.Buffer((16,), "float32", data=p)\n'
        "B[0] = T.float32(1)"
    )
    assert isinstance(stmt, Allocate)
    assert stmt.buffer_var.type_annotation is PointerType(PrimType("float32"))
    assert stmt.body.buffer.data is stmt.buffer_var
    assert stmt.body.buffer.name == "B"
    same = one(
        'with T.allocate([16], "float32", "global") as p:\n'
        '    B = T.Buffer((16,), "float32", data=p)\n    B[0] = T.float32(1)'
    )
    assert_structural_equal(stmt, same, map_free_vars=True)


def test_allocated_pointers_can_be_indexed():
    stmt = one('p = T.allocate([16], "float32", "local")\np[3] = p[2] + T.float32(1)')
    store = stmt.body
    assert isinstance(store, BufferStore)
    assert store.buffer.data is stmt.buffer_var
    assert store.buffer.scope() == "local"


def test_a_view_of_a_parameter_called_buffer_shares_its_memory():
    f = text(
        "B = T.Buffer((4,), data=buffer.data)\nC = buffer\nB[0] = C[1]",
        params="buffer: T.Buffer((16,))",
    )
    assert f.body.buffer.data is f.buffers[0].data
    assert f.body.value.buffer is f.buffers[0]
    assert f.buffers[0].data.name == "buffer"


def test_allocate_const_and_decl_buffer():
    stmt = one(
        'p = T.allocate_const([1, 2, 3], "int32", [3])\nB = T.decl_buffer((3,), "int32", data=p)\n'
        'A[0] = T.Cast("float32", B[0])'
    )
    assert isinstance(stmt, AllocateConst)
    assert stmt.data == (1, 2, 3)
    assert isinstance(stmt.body, DeclBuffer)
    alone = one('with T.decl_buffer((3,), "int32") as B:\n    B[0] = 1')
    assert isinstance(alone, Allocate)
    assert isinstance(alone.body, DeclBuffer)
    assert alone.body.buffer.data is alone.buffer_var


def test_launch_thread():
    stmt = one('with T.launch_thread("threadIdx.x", 32) as tx:\n    A[tx % 16] = T.float32(1)')
    assert isinstance(stmt, AttrStmt)
    assert (stmt.attr_key, stmt.node.thread_tag) == ("thread_extent", "threadIdx.x")
    other = one(
        'tx = T.env_thread("threadIdx.x")\nwith T.launch_thread(tx, 32):\n'
        "    A[tx % 16] = T.float32(1)"
    )
    assert other.node.thread_tag == "threadIdx.x"


def test_augmented_assignment_loads_and_stores():
    assert_structural_equal(
        text("A[n] += T.float32(2)"), text("A[n] = A[n] + T.float32(2)"), map_free_vars=True
    )


def test_evaluate_and_bare_calls():
    stmt = one('T.call_extern("int32", "f", A.data, n)')
    assert isinstance(stmt, Evaluate)
    assert isinstance(one("T.evaluate(0)"), Evaluate)


def test_buffer_store_by_name():
    assert_structural_equal(
        text("T.buffer_store(A, T.float32(1), [n])"), text("A[n] = T.float32(1)")
    )


def test_statements_after_a_scoped_one_are_under_it():
    stmt = one(
        "A[0] = T.float32(0)\nx = n + 1\nA[x] = T.float32(1)\ny = n + 2\nA[y] = T.float32(2)"
    )
    first, let = stmt.seq
    assert isinstance(first, BufferStore)
    store, inner = let.body.seq
    assert isinstance(store, BufferStore)
    assert isinstance(inner, LetStmt)


def test_calls_of_other_loop_functions():
    mod = from_source(
        "@I.ir_module\nclass M:\n"
        "    @T.prim_func\n    def g(x: T.int32) -> T.int32:\n        return x + 1\n"
        "    @T.prim_func\n    def f(A: T.Buffer((4,), 'int32')):\n"
        "        A[0] = M.g(A[1])\n        A[2] = cls.g(3)\n        A[3] = g(4)\n"
    )
    stores = mod["f"].body.seq
    assert all(s.value.op is mod.get_global_var("g") for s in stores)
    assert stores[0].value.dtype == "int32"


# -- expressions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("n + 1", lambda n: n + 1),
        ("1 - n * 2", lambda n: 1 - n * 2),
        ("n // 3 % 2", lambda n: n // 3 % 2),
        ("-n", lambda n: -n),
        ("n << 2 | 1", lambda n: n << 2 | 1),
        ("~n & n ^ 3", lambda n: ~n & n ^ 3),
        ("T.min(n, 3)", lambda n: tir.Min(n, 3)),
        ("T.max(n, 3)", lambda n: tir.Max(n, 3)),
        ("T.floordiv(n, 3)", lambda n: n // 3),
        ("T.floormod(n, 3)", lambda n: n % 3),
        ("T.truncdiv(n, 3)", lambda n: tir.truncdiv(n, 3)),
        ("T.truncmod(n, 3)", lambda n: tir.truncmod(n, 3)),
        ("T.ceildiv(n, 3)", lambda n: tir.ceildiv(n, 3)),
        ("T.Select(n < 3, n, 4)", lambda n: tir.Select(n < 3, n, 4)),
        ("T.if_then_else(n < 3, n, 4)", lambda n: tir.if_then_else(n < 3, n, 4)),
        ("n if n < 3 else 4", lambda n: tir.if_then_else(n < 3, n, 4)),
        ("T.Cast('int32', n < 3 and n > 1)", lambda n: tir.Cast("int32", tir.And(n < 3, n > 1))),
        (
            "T.Cast('int32', n < 3 or not n > 1)",
            lambda n: tir.Cast("int32", tir.Or(n < 3, tir.Not(n > 1))),
        ),
        ("T.Cast('int32', 1 < n < 3)", lambda n: tir.Cast("int32", tir.And(n > 1, n < 3))),
        ("T.Cast('int32', n == 3)", lambda n: tir.Cast("int32", tir.EQ(n, 3))),
        ("T.Cast('int32', n != n)", lambda n: tir.Cast("int32", tir.NE(n, n))),
        (
            "T.Cast('int32', T.And(n < 3, n != 1))",
            lambda n: tir.Cast("int32", tir.And(n < 3, tir.NE(n, 1))),
        ),
        ("T.Add(n, 0)", lambda n: tir.Add(n, 0)),
        ("T.popcount(n)", lambda n: tir.popcount(n)),
        ("T.shift_left(n, 2)", lambda n: tir.shift_left(n, 2)),
        ("T.int32(3)", lambda n: tir.IntImm("int32", 3)),
        ("T.max_value('int32')", lambda n: tir.max_value("int32")),
        ("T.min_value('int32')", lambda n: tir.min_value("int32")),
        ("T.cast(n < 3, 'int32')", lambda n: tir.Cast("int32", n < 3)),
        ("T.cast('int32', n < 3)", lambda n: tir.Cast("int32", n < 3)),
        ("T.Call('int32', 'tir.popcount', [n])", lambda n: tir.popcount(n)),
        (
            "T.reinterpret('int32', T.Cast('float32', n))",
            lambda n: tir.reinterpret("int32", tir.Cast("float32", n)),
        ),
        ("sum([n, n, 1])", lambda n: 0 + n + n + 1),
        ("len((1, 2, 3)) + int('4')", lambda n: tir.IntImm("int32", 7)),
        ("[n * i for i in range(4) if i % 2][1]", lambda n: n * 3),
        ("{'a': n}['a']", lambda n: n),
        ("(lambda_ := 3) if False else n", None),
    ],
)
def test_integer_expressions(written, meant):
    if meant is None:
        with pytest.raises(ParseError, match="language"):
            value(
                f"({written.replace('if False else n', '+ n')})",
                params='A: T.Buffer((16,), "int32"), n: T.int32',
            )
        return
    f = text(f"A[0] = {written}", params='A: T.Buffer((16,), "int32"), n: T.int32')
    assert f.body.value is meant(f.params[1])


@pytest.mark.parametrize(
    "name",
    "exp exp2 exp10 log log2 log10 log1p sqrt rsqrt tanh sigmoid erf sin cos tan asin acos atan "
    "sinh cosh asinh acosh atanh fabs abs floor ceil round nearbyint trunc".split(),
)
def test_float_intrinsics(name):
    f = text(f"A[0] = T.{name}(A[1])")
    assert f.body.value is getattr(tir, name)(BufferLoad(f.buffers[0], (1,)))


def test_float_constants():
    assert value("T.float32(0.1)").value == np.float32(0.1)
    assert value('T.float32("inf")').value == float("inf")
    assert np.isnan(value('T.float32("nan")').value)
    assert value("T.infinity('float32')").value == float("inf")
    assert value("1.5").dtype == "float32"
    assert value("T.bfloat16(1)", params="A: T.Buffer((1,), 'bfloat16')").dtype == "bfloat16"


def test_vectors():
    params = 'A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")'
    f = text("A[0:4] = B[4:8] * T.float32x4(2)", params=params)
    store = f.body
    assert store.value.dtype == "float32x4"
    assert isinstance(store.indices[0], tir.Ramp)
    same = text(
        "A[T.Ramp(0, 1, 4)] = B[T.ramp(4, 1, 4)] * T.Broadcast(T.float32(2), 4)", params=params
    )
    assert_structural_equal(f, same)
    step = text("A[0:16:4] = T.Broadcast(T.float32(2), 4)", params=params)
    assert int(step.body.indices[0].stride) == 4
    shuffle = text("A[0] = T.Shuffle([B[0:4]], [2])", params=params)
    assert isinstance(shuffle.body.value, tir.Shuffle)
    scalar = text("A[0:4] = T.float32(2)", params=params)
    assert isinstance(scalar.body.value, tir.Broadcast)


def test_let_expressions():
    f = text("x = T.int32()\nA[0] = T.Cast('float32', T.Let(x + 1, where={x: n}))")
    let = f.body.value.value
    assert isinstance(let, tir.Let)
    assert let.var.name == "x"
    assert let.value is f.params[1]


def test_stores_convert_where_nothing_is_lost():
    assert value("T.float16(1) + A[0]").dtype == "float32"
    assert value("n").dtype == "float32"
    assert value("1").value == 1.0
    with pytest.raises(ParseError, match="cast it"):
        text("A[0] = T.float32(1.5) + n", params="A: T.Buffer((1,), 'int32'), n: T.int32")


def test_zero_dimensional_buffers():
    f = text("A[()] = T.float32(1)", params="A: T.Buffer((), 'float32')")
    assert f.body.indices == ()


def test_buffer_properties_can_be_read():
    f = text(
        "A[0] = T.Cast('float32', A.shape[0] + B.shape[0])",
        params="n: T.int64, A: T.Buffer((16,)), B: T.Buffer((n,))",
    )
    assert f.body.value.value is 16 + f.params[0]


# -- macros --------------------------------------------------------------------------------------

STEP = 3


@T.macro
def add_step(buffer, index):
    buffer[index] = buffer[index] + T.float32(STEP)


@T.macro(hygienic=False)
def set_outer(index):
    A[index] = T.float32(STEP)


def test_macros_are_put_in_place():
    @T.prim_func
    def f(A: T.Buffer((4,), "float32")):
        add_step(A, 1)
        add_step(A, index=2)
        set_outer(3)

    @T.prim_func
    def g(A: T.Buffer((4,), "float32")):
        A[1] = A[1] + T.float32(3)
        A[2] = A[2] + T.float32(3)
        A[3] = T.float32(3)

    assert_structural_equal(f.without_attr("global_symbol"), g.without_attr("global_symbol"))


def test_macros_that_call_themselves_are_refused():
    with pytest.raises(ParseError, match="call itself"):
        from_source(
            "@T.macro\ndef m(A):\n    m(A)\n    m(A)\n"
            "@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    m(A)\n"
        )


# -- size ----------------------------------------------------------------------------------------


def test_long_bodies_sums_and_chains_do_not_recurse():
    lines = "\n".join(f"A[{i % 16}] = T.float32({i})" for i in range(3000))
    assert len(text(lines).body.seq) == 3000
    lets = "\n".join(f"x{i} = n + {i + 1}" for i in range(2000))
    assert isinstance(text(lets + "\nA[0] = T.float32(1)").body, LetStmt)
    total = value(" + ".join(["n"] * 5000), params='A: T.Buffer((16,), "int32"), n: T.int32')
    assert isinstance(total, Add)
    arms = "".join(f"elif n < {i}:\n    A[0] = T.float32({i})\n" for i in range(1, 1500))
    stmt = one(f"if n < 0:\n    A[1] = T.float32(1)\n{arms}".rstrip("\n"))
    assert isinstance(stmt, IfThenElse)


# -- names outside a parse ------------------------------------------------------------------------


def test_names_work_outside_script_text():
    assert T.float32(1).dtype == "float32"
    assert T.int64(3) is IntImm("int64", 3)
    assert T.Buffer((2, 3), "int8").shape == (2, 3)
    x = T.Var("x", "float32")
    assert T.exp(x) is tir.exp(x)
    assert isinstance(T.float32x4(x), tir.Broadcast)
    assert I.Range(2, 5).extent == 3
    assert T.int32().name == ""
    with pytest.raises(AttributeError):
        T.no_such_name
    assert set(T.__all__) <= set(dir(T))
    assert isinstance(Call("float32", "tir.exp", [x]), Call)
    assert Map() == {}
