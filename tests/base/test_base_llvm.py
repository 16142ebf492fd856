"""The typed builder of LLVM IR: what it builds runs, and what does not fit is refused where it is
emitted.
"""

import ctypes
import struct

import llvmlite.binding as llvmlite
import pytest

from relaxvm.base import CodegenError, llvm

llvmlite.initialize_native_target()
llvmlite.initialize_native_asmprinter()
_keep = []


def run(module, name, kind, *args):
    """Compile the module and call a function of it, whose ctypes type is `kind`."""
    parsed = llvmlite.parse_assembly(module.text(), llvmlite.create_context())
    parsed.verify()
    machine = llvmlite.Target.from_default_triple().create_target_machine()
    engine = llvmlite.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    _keep.append(engine)
    return kind(engine.get_function_address(name))(*args)


def define(signature):
    f = llvm.Module().define(signature, "f")
    return f, f.params


I64 = ctypes.c_int64
INT2 = ctypes.CFUNCTYPE(I64, I64, I64)


def test_a_conditional_value():
    f, (a, b) = define("i64(i64, i64)")
    f.ret(f.either(f.op("icmp sgt", a, b), lambda: f.op("mul", a, 3), lambda: 7))
    assert run(f.module, "f", INT2, 5, 4) == 15
    assert run(f.module, "f", INT2, 4, 4) == 7


def test_loops_and_memory():
    f, (n, limit) = define("i64(i64, i64)")
    total = f.alloca("i64")
    f.store(0, total, of="i64")
    with f.for_(n) as i:
        with f.if_(f.op("icmp uge", i, limit)) as otherwise:
            f.store(f.op("add", f.load("i64", total), 1000), total)
            otherwise()
            f.store(f.op("add", f.load("i64", total), i), total)
    with f.while_(lambda: f.op("icmp sgt", f.load("i64", total), 2500)):
        f.store(f.op("sub", f.load("i64", total), 1), total)
    f.ret(f.load("i64", total))
    assert run(f.module, "f", INT2, 0, 9) == 0
    assert run(f.module, "f", INT2, 6, 4) == 2006
    assert run(f.module, "f", INT2, 9, 4) == 2500


def test_memory_of_a_size_that_the_run_knows_and_what_a_function_begins_with():
    f, (n, start) = define("i64(i64, i64)")
    total = llvm.value("%total", "ptr")
    numbers = f.alloca("i64", 8, n)
    with f.for_(n) as i:
        f.store(f.op("mul", i, i), f.element("i64", numbers, i))
    with f.for_(n) as i:
        square = f.load("i64", f.element("i64", numbers, i))
        f.forget_memory()
        f.store(f.op("add", f.load("i64", total), square), total)
    f.ret(f.load("i64", total))
    f.alloca("i64", 8, 1, total)
    with f.into(f.allocas, "entry"):
        f.store(start, total)
    assert run(f.module, "f", INT2, 5, 100) == 130
    assert run(f.module, "f", INT2, 0, 100) == 100


def test_early_returns_and_switches():
    f, (a, b) = define("i64(i64, i64)")
    with f.if_(f.op("icmp eq", a, b)):
        f.ret(-1)
    one, other = f.label("one"), f.label("other")
    f.switch(a, other, {1: one, -2: one})
    f.start(one)
    f.ret(b)
    f.start(other)
    f.ret(0)
    assert [run(f.module, "f", INT2, a, 5) for a in (5, 1, -2, 3)] == [-1, 5, 5, 0]


def test_vectors_masks_and_intrinsics():
    f, (place, _) = define("void(ptr, i64)")
    x = f.load("<8 x float>", place, 4)
    low = f.op("fcmp olt", x, 0.0)
    assert low.type == "<8 x i1>"
    x = f.select(low, f.op("fadd contract", x, 0.5), f.intrinsic("llvm.sqrt", x, flags="nsz"))
    odd = f.shuffle(x, None, range(1, 8, 2))
    even = f.joined([f.lane(x, i) for i in range(0, 8, 2)])
    f.store(f.shuffle(odd, even, range(8)), place, 4)
    f.ret()
    data = (ctypes.c_float * 8)(-1, 4, -2, 9, -3, 16, -4, 25)
    run(f.module, "f", ctypes.CFUNCTYPE(None, ctypes.c_void_p, I64), ctypes.addressof(data), 0)
    assert list(data) == [2, 3, 4, 5, -0.5, -1.5, -2.5, -3.5]


def test_calls_by_name_and_by_address_and_atomics():
    m = llvm.Module()
    counter = m.variable("counter", "i64", "40", 8)
    g = m.define("i64(i64)", "g", linkage="internal")
    g.ret(g.change("add", counter, g.params[0], "monotonic"))
    f = m.define("i64(i64, i64)", "f")
    f.call("g", 2)
    f.call(llvm.value("@g", "ptr"), 3, of="i64(i64)")
    old, same = f.exchange("i64", counter, 45, 9, "seq_cst seq_cst")
    now = f.load("i64", counter, order="acquire")
    f.ret(f.select(same, f.op("add", old, now), 0))
    assert run(m, "f", INT2, 0, 0) == 54


def test_casts():
    f, (a, b) = define("i64(i64, i64)")
    narrow = f.cast("trunc", a, "i8")
    real = f.cast("sitofp", narrow, "double")
    assert f.cast("bitcast", b, "i64") is b
    bits = f.cast("bitcast", f.op("fmul", real, f.cast("uitofp", b, "double")), "i64")
    f.ret(bits)
    assert struct.pack("q", run(f.module, "f", INT2, 0x1FF, 5)) == struct.pack("d", -5.0)


def test_what_gives_the_same_is_written_once_in_a_block():
    f, (a, b) = define("i64(i64, i64)")
    cell = f.slot("i64", 5)
    total = f.op("add", f.op("mul", a, b), f.op("mul", a, b))
    assert f.op("mul", a, b) is f.op("mul", a, b)
    assert f.op("mul nsw", a, b) != f.op("mul", a, b)
    assert f.at(cell, 8) is f.at(cell, 8)
    before = f.load("i64", cell)
    f.store(total, cell)
    after = f.load("i64", cell)
    lines: list[str] = []
    with f.into(lines, ""):
        f.start("apart")
        apart = f.op("mul", a, b)
        f.ret(apart)
    assert f.op("add", total, 0) is f.op("add", total, 0)
    with f.if_(f.op("icmp eq", a, b)):
        assert f.op("mul", a, b) not in (apart, f.op("sub", a, b))
        f.jump("apart")
    f.ret(f.op("add", before, after))
    f.lines += lines
    assert sum(" = mul i64" in line for line in f.lines) == 3
    assert run(f.module, "f", INT2, 3, 4) == 29
    assert run(f.module, "f", INT2, 4, 4) == 16


def test_what_a_loop_does_not_change_is_computed_before_it():
    f, (a, b) = define("i64(i64, i64)")
    total = f.slot("i64", 0)
    with f.for_(3, guard="", hoists=True) as i:
        by_i = f.op("mul", i, a)
        with f.for_(b, hoists=True) as j:
            fixed, mine = f.op("mul", a, 7), f.op("add", by_i, 1)
            with f.if_(f.op("icmp ne", j, 1)):
                each = f.op("add", f.op("mul", i, a), f.op("mul", a, 7))
                here = f.op("sub", each, j)
                f.store(f.op("add", f.load("i64", total), f.op("add", here, mine)), total)
            assert [v.depth for v in (fixed, by_i, mine, each, here)] == [0, 1, 1, 1, 2]
            assert f.varies(here)
            assert not f.varies(mine)
    f.ret(f.load("i64", total))
    text = "\n".join(f.lines)
    assert text.index(f"{fixed} = ") < text.index("loop") < text.index(f"{mine} = ")
    assert text.index(f"{each} = ") < text.rindex("\nloop") < text.index(f"{here} = ")
    assert text.count(" = mul i64") == 3  # i * a: where it is first, and before the inner loop
    for n in (0, 1, 5):
        want = sum(2 * (i * 4) + 1 + 28 - j for i in range(3) for j in range(n) if j != 1)
        assert run(f.module, "f", INT2, 4, n) == want


def test_loads_are_written_once_until_their_memory_may_change():
    f, (a, b) = define("i64(i64, i64)")
    one, two = f.slot("i64", 5), f.slot("i64", 6)

    def loads():
        return [f.load("i64", each, memory=each) for each in (one, two)]

    first = loads()
    f.store(a, two, memory=two)
    again = loads()
    assert again[0] is first[0]
    assert again[1] is not first[1]
    for changes in (
        lambda: f.store(b, one),
        lambda: f.change("add", one, 1, "monotonic", "i64"),
        f.forget_memory,
        lambda: f.jump("next") or f.start("next"),
    ):
        changes()
        before, again = again, loads()
        assert not {id(each) for each in before} & {id(each) for each in again}
        assert again == loads()
    f.extern("i64", "llvm.smax.i64", a, b)
    assert again == loads()
    f.ret(f.op("add", f.op("mul", again[0], 100), f.op("add", first[1], again[1])))
    assert run(f.module, "f", INT2, 3, 20) == 2109


def test_a_load_is_hoisted_where_it_surely_runs():
    f, (a, n) = define("i64(ptr, i64)")
    depths = []

    def load(i):
        place = f.element("i64", a, i)
        depths.append(f.load("i64", place, is_fixed=True).depth)

    with f.for_(4, guard="", hoists=True) as i:
        load(0)
        load(i)
        with f.for_(2, guard="", hoists=True):
            load(i)
            load(1)
            with f.if_(f.op("icmp ne", i, 2)):
                load(2)
        load(3)
        with f.for_(n, hoists=True):
            load(4)
        load(5)
    f.ret(0)
    #                  always the same, by i; those again; maybe; after a loop; maybe none
    assert depths == [0, 1, 1, 0, 2, 0, 2, 1]


def test_metadata_is_shared_and_distinct():
    f, (a, b) = define("i64(i64, i64)")
    m = f.module
    loop = m.metadata(m.metadata('!"llvm.loop.vectorize.enable", i1 false'), distinct=True)
    assert loop != m.metadata(m.metadata('!"llvm.loop.vectorize.enable", i1 false'), distinct=True)
    with f.for_(a, note=lambda: f", !llvm.loop {loop}"):
        pass
    rare, usual = f.label("rare"), f.label("usual")
    f.branch(f.op("icmp eq", a, b), rare, usual, weights=(1, 1000))
    f.start(rare)
    scope = m.metadata(m.metadata(f"{m.metadata('', True)}", True))
    assert m.metadata(scope) == m.metadata(scope)
    f.ret(a)
    f.start(usual)
    f.ret(b)
    text = m.text()
    assert f"!llvm.loop {loop}\n" in text
    assert '!"branch_weights", i32 1, i32 1000' in text
    assert run(m, "f", INT2, 3, 4) == 4


def test_constants():
    assert llvm.constant(-0.0, "float") == "0x8000000000000000"
    assert llvm.constant(0.0, "float") == "0x0000000000000000"
    assert llvm.constant(True, "<4 x i1>") == "<i1 true, i1 true, i1 true, i1 true>"
    assert llvm.constant(0, "<4 x i32>") == "zeroinitializer"
    assert llvm.constant(255, "i8") == "255"
    assert llvm.constant(None, "ptr") == "null"


@pytest.mark.parametrize(
    ("misuse", "told"),
    [
        (lambda f, a, p, v: f.op("add", a, f.cast("trunc", a, "i32")), r"wanted i64, got i32 %v1"),
        (lambda f, a, p, v: f.op("add", a, 1 << 64), r"wanted i64, got int 184467"),
        (lambda f, a, p, v: f.op("add", a, 0.5), r"wanted i64, got float 0.5"),
        (lambda f, a, p, v: f.op("add", a, True), r"wanted i64, got bool True"),
        (lambda f, a, p, v: f.op("add", a, "%p0"), r"wanted i64, got str '%p0'"),
        (lambda f, a, p, v: f.op("fadd", a, a), r"fadd in f: wanted floats, got i64"),
        (lambda f, a, p, v: f.op("and", v, v), r"and in f: wanted integers, got <8 x float>"),
        (lambda f, a, p, v: f.op("plus", a, a), r"no instruction 'plus'"),
        (lambda f, a, p, v: f.op("add", 1, 2), r"wanted a value, got int 1"),
        (lambda f, a, p, v: f.op("fadd", v, f.shuffle(v, None, [0, 1])), r"got <2 x float>"),
        (lambda f, a, p, v: f.select(a, a, a), r"select in f: wanted i1, got i64 %p0"),
        (lambda f, a, p, v: f.select(f.op("fcmp oeq", v, v), a, a), r"wanted i1, got <8 x i1>"),
        (lambda f, a, p, v: f.cast("zext", a, "i32"), r"zext to i32 in f"),
        (lambda f, a, p, v: f.cast("fptosi", v, "<4 x i32>"), r"fptosi to <4 x i32>"),
        (lambda f, a, p, v: f.cast("bitcast", v, "i64"), r"bitcast to i64"),
        (lambda f, a, p, v: f.lane(v, 8), r"lane 8"),
        (lambda f, a, p, v: f.lane(a, 0), r"lane 0"),
        (lambda f, a, p, v: f.with_lane(v, 1, a), r"wanted float, got i64"),
        (lambda f, a, p, v: f.shuffle(v, None, [16]), r"shuffle by \[16\]"),
        (lambda f, a, p, v: f.load("i64", a), r"load in f: wanted ptr, got i64 %p0"),
        (lambda f, a, p, v: f.store(5, p), r"wanted a value with a type, got int 5"),
        (lambda f, a, p, v: f.store(p, p, of="i64"), r"store in f: wanted i64, got ptr %p1"),
        (lambda f, a, p, v: f.element("i64", p, p), r"wanted i64, got ptr"),
        (lambda f, a, p, v: f.call("f", a), r"wanted 3 arguments \(i64, ptr, <8 x float>\), got 1"),
        (lambda f, a, p, v: f.call("f", p, p, v), r"@f in f: wanted i64, got ptr %p1"),
        (lambda f, a, p, v: f.call("g", a), r"call in f: g is not declared"),
        (lambda f, a, p, v: f.call(a, of="void()"), r"call in f: wanted ptr, got i64"),
        (lambda f, a, p, v: f.branch(a, "yes", "no"), r"branch in f: wanted i1, got i64 %p0"),
        (lambda f, a, p, v: f.ret(a), r"ret in f: wanted i32, got i64 %p0"),
        (lambda f, a, p, v: f.ret(), r"ret in f: wanted i32, got"),
        (lambda f, a, p, v: f.phi("i64", (p, "start")), r"phi in f: wanted i64, got ptr"),
        (lambda f, a, p, v: f.start("next"), r"block next begins in start, not ended yet"),
        (lambda f, a, p, v: (f.ret(0), f.op("add", a, a)), r"no block is open for 'add i64"),
        (lambda f, a, p, v: (f.ret(0), f.ret(0)), r"no block is open for 'ret i32 0'"),
        (lambda f, a, p, v: f.field(a, 0), r"field 0"),
        (lambda f, a, p, v: f.splat(a, 257), r"a vector of 257 lanes"),
        (lambda f, a, p, v: f.exchange("i32", p, 0, a, "seq_cst seq_cst"), r"wanted i32, got i64"),
        (lambda f, a, p, v: [f.op("add", a, k) for k in range(101)], r"more than 100 LLVM"),
        (
            lambda f, a, p, v: f.module.declare("h", "i32", ()) or f.module.declare("h", "i64", ()),
            r"h is used with two signatures",
        ),
    ],
)
def test_what_does_not_fit_is_refused(misuse, told):
    module = llvm.Module()
    f = module.define("i32(i64, ptr)", "f", budget=100)
    vector = f.param("v", "<8 x float>")
    with pytest.raises(CodegenError, match=told):
        misuse(f, *f.params[:2], vector)
