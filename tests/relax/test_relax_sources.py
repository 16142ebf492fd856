"""Nothing forgets where it comes from: through every pass, to the instructions of whole models."""

import importlib
import pathlib
import random
import re

import pytest
from fuzz import graph_programs, passes
from fuzz.layer_models import layer_model
from onnx import TensorProto, helper

from relaxvm import relax
from relaxvm.base import UNKNOWN, Span, TVMError
from relaxvm.ir import assert_structural_equal
from relaxvm.ir.transform import function_pass, module_pass
from relaxvm.relax import BlockBuilder, op
from relaxvm.relax.expr import source_of
from relaxvm.relax.expr_functor import PyExprMutator, mutator
from relaxvm.relax.flow import bindings_of
from relaxvm.relax.frontend.onnx import from_onnx
from relaxvm.relax.rewriter import BindingRewriter, Dropper
from relaxvm.relax.substitute import substitute_graph
from relaxvm.runtime import TABLE, bytecode
from relaxvm.script import from_source

BENCH = pathlib.Path(__file__).parents[2] / "bench"
ROW = relax.TensorStructInfo((4,), "float32")


def span(name):
    return Span(name=name)


def named(call, name):
    return call.replace(span=span(name))


def module(write):
    """main(x, y) of the calls that `write(bb, x, y)` emits; it gives the result."""
    bb = BlockBuilder()
    x, y = relax.Var("x", ROW), relax.Var("y", ROW)
    with bb.function("main", [x, y]):
        with bb.dataflow():
            result = bb.emit_output(write(bb, x, y))
        bb.emit_func_output(result)
    return bb.get()


def sources(mod):
    """(operator, where it comes from) of the calls of main, in order."""
    return [
        (b.value.op.name.rpartition(".")[2], str(source_of(b)))
        for b in bindings_of(mod["main"])
        if isinstance(b.value, relax.Call)
    ]


def a_pass(change):
    """A pass that replaces bindings of main as ``change(bindings)`` says."""

    @function_pass(opt_level=0, name="Change")
    def change_bindings(fn, mod, ctx):
        changes = change(list(bindings_of(fn)))
        return Dropper({id(var): new for var, new in changes.items()}).rewrite(fn)

    return change_bindings


def product_and_sum(bb, x, y):
    product = bb.emit(named(op.multiply(x, y), "product"))
    return named(op.add(product, x), "sum")


def test_a_rewrite_that_makes_one_call_of_two_has_the_sources_of_both():
    def fused(bindings):
        product, total = bindings[:2]
        call = op.ewise_fma(*product.value.args, total.value.args[1])
        return {product.var: None, total.var: relax.VarBinding(total.var, call)}

    before = module(product_and_sum)
    after = a_pass(fused)(before)
    assert sources(after) == [("ewise_fma", "sum + product")]
    assert sources(before) == [("multiply", "product"), ("add", "sum")]


def test_what_a_pass_says_itself_is_kept_and_not_said_twice():
    def fused(bindings):
        product, total = bindings[:2]
        both = Span.merge(product.value.span, total.value.span)
        call = op.ewise_fma(*product.value.args, total.value.args[1], span=both)
        return {product.var: None, total.var: relax.VarBinding(total.var, call)}

    assert sources(a_pass(fused)(module(product_and_sum))) == [("ewise_fma", "product + sum")]


def test_what_is_put_before_a_call_comes_from_where_that_comes_from():
    def with_copies(bindings):
        total = bindings[1]
        copy = relax.DataflowVar("copy", ROW)
        made = relax.VarBinding(copy, op.negative(op.negative(total.value.args[1]).args[0]))
        call = op.add(total.value.args[0], copy)
        return {total.var: [made, relax.VarBinding(total.var, call)]}

    assert sources(a_pass(with_copies)(module(product_and_sum))) == [
        ("multiply", "product"),
        ("negative", "sum"),
        ("add", "sum"),
    ]


def test_a_call_that_serves_two_comes_from_both():
    def write(bb, x, y):
        a = bb.emit(named(op.exp(x), "first"))
        b = bb.emit(named(op.log(x), "second"))
        return named(op.add(a, b), "sum")

    def shared(bindings):
        a, b = bindings[:2]
        common = relax.DataflowVar("common", ROW)
        return {
            a.var: [
                relax.VarBinding(common, op.negative(a.value.args[0])),
                relax.VarBinding(a.var, op.exp(common)),
            ],
            b.var: relax.VarBinding(b.var, op.log(common)),
        }

    # Where one binding becomes several, they come from it.
    after = a_pass(shared)(module(write))
    assert sources(after)[0] == ("negative", "first")

    @module_pass(opt_level=0, name="Anew")
    def anew(mod, ctx):
        fn = mod["main"]
        changes = shared(list(bindings_of(fn)))
        block = fn.body.blocks[0]
        new = [
            each
            for b in block.bindings
            for each in (lambda n: n if isinstance(n, list) else [n])(changes.get(b.var, b))
        ]
        body = fn.body.replace(blocks=(block.replace(bindings=tuple(new)), *fn.body.blocks[1:]))
        result = mod.clone()
        result["main"] = fn.replace(body=body)
        return result

    assert [s for _, s in sources(anew(module(write)))][:3] == ["second + first", "first", "second"]


def test_of_two_equal_calls_the_one_that_stays_has_both_sources():
    def write(bb, x, y):
        a = bb.emit(named(op.exp(x), "first"))
        b = bb.emit(named(op.exp(x), "second"))
        return named(op.add(a, b), "sum")

    after = relax.transform.EliminateCommonSubexpr()(module(write))
    assert sources(after) == [("exp", "first + second"), ("add", "sum")]


def test_what_is_dead_or_cancelled_burdens_nobody():
    def write(bb, x, y):
        root = bb.emit(named(op.exp(x), "root"))
        bb.emit(named(op.log(root), "dead"))
        twice = bb.emit(named(op.negative(bb.emit(named(op.negative(root), "one"))), "two"))
        return named(op.tanh(twice), "end")

    passes = relax.transform.SimplifyExpr(), relax.transform.DeadCodeElimination()
    after = relax.transform.Sequential(passes)(module(write))
    assert sources(after) == [("exp", "root"), ("tanh", "end")]


def test_renamed_variables_keep_their_sources():
    after = relax.transform.ToNonDataflow()(module(product_and_sum))
    assert sources(after) == [("multiply", "product"), ("add", "sum")]


def test_a_mutator_of_a_user_loses_nothing():
    @mutator
    class MultiplyAdd(PyExprMutator):
        def visit_call_(self, call):
            call = self.visit_expr_post_order(call)
            if call.op.name != "relax.add":
                return call
            product = self.lookup_binding(call.args[0])
            return op.ewise_fma(*product.args, call.args[1])

    @module_pass(opt_level=0)
    def Fuse(mod, ctx):
        return MultiplyAdd(mod).transform()

    both = relax.transform.Sequential([Fuse(), relax.transform.DeadCodeElimination()])
    ((name, source),) = sources(both(module(product_and_sum)))
    assert name == "ewise_fma" and "sum" in source


def test_a_kit_gives_each_binding_the_source_of_what_it_stands_for():
    class Twice(BindingRewriter):
        def binding(self, b):
            var = relax.DataflowVar("more", ROW)
            effect = relax.VarBinding(var, op.negative(b.var))
            return [b, effect]

    mod = module(product_and_sum)
    fn = mod["main"]
    block = fn.body.blocks[0]
    inner = fn.replace(body=fn.body.replace(blocks=(block,)))
    got = [str(source_of(b)) for b in bindings_of(Twice().rewrite(inner))]
    assert got == ["product", "product", "sum", "sum", *got[4:]]


def test_the_module_given_stays_as_it_was_and_the_meaning_too():
    def again(bindings):
        total = bindings[1]
        return {total.var: relax.VarBinding(total.var, op.add(*total.value.args))}

    before = module(product_and_sum)
    kept = before["main"]
    after = a_pass(again)(before)
    assert before["main"] is kept and sources(after) == sources(before)
    assert_structural_equal(after, before)


def test_a_module_without_sources_gets_none():
    bb = BlockBuilder()
    x = relax.Var("x", ROW)
    value = op.exp(x)
    var = relax.Var("y", ROW)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(var, value)])], var)
    bb.add_func(relax.Function([x], body, ROW), "main")

    def renamed(bindings):
        return {var: relax.VarBinding(var, op.log(bindings[0].value.args[0]))}

    after = a_pass(renamed)(bb.get())
    assert [source_of(b) for b in bindings_of(after["main"])] == [UNKNOWN]
    assert relax.build(after, exec_mode="bytecode").debug is None


def test_branches_and_inner_values_are_looked_at_too():
    text = """
from relaxvm.script import ir as I, relax as R
@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        if c:
            a = R.exp(x)
            b = R.add(a, x)
        else:
            b = R.negative(x)
        return b
"""
    mod = from_source(text)
    exp = next(b for b in bindings_of(mod["main"]) if str(b.var.name_hint) == "a")

    def changed(bindings):
        return {exp.var: relax.VarBinding(exp.var, op.log(exp.value.args[0]))}

    after = a_pass(changed)(mod)
    new = next(b for b in bindings_of(after["main"]) if b.var is exp.var)
    assert source_of(new).line == exp.value.span.line == 8


def test_a_span_holds_each_place_once_and_not_without_bounds():
    many = [span(f"n{i}") for i in range(100)]
    assert len(Span.merge(*many, *many).parts) == 64
    both = Span.merge(many[0], many[1])
    assert Span.merge(both, span("n0"), UNKNOWN) is both
    assert Span.merge(UNKNOWN, UNKNOWN) is UNKNOWN


def test_ten_thousand_bindings_are_rewritten_in_seconds():
    count = 10_000
    bb = BlockBuilder()
    x = relax.Var("x", ROW)
    with bb.function("main", [x]):
        value = x
        with bb.dataflow():
            for i in range(count):
                value = bb.emit(named(op.exp(value), f"n{i}"))
            result = bb.emit_output(value)
        bb.emit_func_output(result)
    mod = bb.get()

    @function_pass(opt_level=0, name="Rename")
    def rename(fn, mod, ctx):
        fresh = {b.var: type(b.var)(b.var.name_hint, ROW) for b in bindings_of(fn)}
        return substitute_graph(fn, fresh)

    @function_pass(opt_level=0, name="Half")
    def half(fn, mod, ctx):
        bindings = list(bindings_of(fn))[:count]
        changes = {id(b.var): None for b in bindings[::2]}
        read = {bindings[0].var: x}
        for a, b in zip(bindings[::2], bindings[1::2]):
            new = op.tanh(read.get(a.value.args[0], a.value.args[0]))
            changes[id(b.var)] = relax.VarBinding(b.var, new)
        return Dropper(changes).rewrite(fn)

    got = sources(half(rename(mod)))
    assert got[7] == ("tanh", "n15 + n14") and len(got) == count // 2


# -- every pass, whole models ----------------------------------------------------------------------


def silent(mod):
    return [
        f"{gv.name_hint}: {b.var.name_hint}"
        for gv, fn in mod.items()
        if isinstance(fn, relax.Function)
        for b in bindings_of(fn)
        if isinstance(b.value, relax.Call) and source_of(b) is UNKNOWN
    ]


@pytest.mark.parametrize("count", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_no_pass_forgets_where_a_call_comes_from(count):
    changed = dict.fromkeys(passes.EVERY, 0)
    for seed in range(count):
        rng = random.Random(seed)
        for mod in (from_source(graph_programs.program(seed, 12)), layer_model(rng)):
            if silent(mod):
                continue
            for name, each in passes.EVERY.items():
                try:
                    new = each(mod)
                except TVMError:
                    continue
                assert silent(new) == [], name
                changed[name] += new is not mod
    assert sum(map(bool, changed.values())) > len(changed) // 3


SLOW = ("resnet50_int8", "bert_base_dynamic", "gpt2_decode", "llama_decode", "mobilenet_v2", "unet")


@pytest.fixture(scope="module")
def models():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield importlib.import_module("models")


@pytest.mark.parametrize(
    "name",
    ["digits_convnet", "lstm_tagger", *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)],
)
def test_every_call_of_a_model_names_its_nodes(models, name):
    mod = from_onnx(models.model(name, "small"))
    program = relax.build(mod, exec_mode="bytecode")
    nameless = set()
    for info in program.vm_functions:
        for pc, each in enumerate(program.instructions(info)):
            if isinstance(each, bytecode.Call) and program.source_of(info.name, pc) is UNKNOWN:
                nameless.add(program.functions[each.func].name)
    # Checks of the inputs and the tuple of the results come from no node.
    checks = {"check_tensor_info", "match_shape", "make_tuple", "alloc_shape_heap"}
    assert {n.removeprefix("vm.builtin.") for n in nameless} <= checks
    assert nameless <= TABLE.keys()
    # What is missing was computed while building, or has cancelled.
    wanted = {part.name for b in bindings_of(mod["main"]) for part in _parts(source_of(b))}
    told = {place[3] for place in program.debug.places}
    gone = {re.sub(r".*\((\w+)\)$", r"\1", each) for each in wanted - told}
    assert gone <= {"Shape", "Concat", "Transpose", "Reshape", "Cast", "Mul", "Min", "Sub", ""}


def _parts(each):
    return each.parts or (each,)


def test_the_source_of_a_script_is_a_line(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("""
from relaxvm.script import ir as I, relax as R
@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        with R.dataflow():
            y = R.exp(x)
            z = R.add(y, y)
            R.output(z)
        return z
""")
    space = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    program = relax.build(space["Model"], exec_mode="bytecode")
    text = program.as_text(sources=True)
    assert re.search(r"call  fused_exp_add .*# .*model\.py:8:\d+ \+ .*model\.py:9:\d+", text), text


def test_saved_ir_keeps_unknown_sources_unknown():
    from relaxvm.ir import load_json, save_json

    mod = load_json(save_json(module(product_and_sum), spans=False))
    assert {source_of(b) for b in bindings_of(mod["main"])} == {UNKNOWN}


def test_an_onnx_node_of_several_calls_is_named_once():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])
    node = helper.make_node("Mish", ["x"], ["y"], "mish1")
    graph = helper.make_graph([node], "g", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    program = relax.build(from_onnx(proto), exec_mode="bytecode")
    assert [place[3] for place in program.debug.places] == ["ONNX node mish1 (Mish)"]
