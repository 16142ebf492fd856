"""Relay's text form: what is printed is what TVM prints, and reads back as the same."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, relay
from relaxvm.base import ParseError
from relaxvm.relay.spelling import CALLS
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T
from tests.relay.random_graphs import random_graph

TYPES = {
    "x": "Tensor[(2, 3, 4), float32]",
    "i": "Tensor[(1, 4, 8, 6), float32]",
    "k": "Tensor[(6, 4, 3, 3), float32]",
    "m": "Tensor[(5, 4), float32]",
    "a": "Tensor[(3, 5), float32]",
    "b": "Tensor[(2, 5, 4), float32]",
    "v": "Tensor[(3), float32]",
    "c": "Tensor[(4), float32]",
    "n": "Tensor[(2, 3, 4), int32]",
    "l": "Tensor[(4, 6, 3, 3), float32]",
    "g": "Tensor[(1, 5, 5, 2), float32]",
    "o": "Tensor[(2), int32]",
    "q": "Tensor[(2, 3, 4), bool]",
    "t": "(Tensor[(3), float32], Tensor[(3), float32])",
}
# A call as it is printed.
CALLS_AS_PRINTED = """
add(%x, %x)
add(%x, 1.5f)
abs(%x)
cast(%x, dtype="int8")
clip(%x, a_min=0f, a_max=6f)
sum(%x)
sum(%x, axis=[1])
mean(%x, axis=[0, 2], keepdims=True)
max(%x, axis=[-1])
min(%x, axis=[0])
prod(%x, axis=[2])
logsumexp(%x, axis=[1])
variance(%x, axis=[1])
argmax(%x, axis=[1])
argmin(%x, axis=[-1], keepdims=True)
expand_dims(%x, axis=1)
expand_dims(%x, axis=1, num_newaxis=2)
squeeze(%i)
squeeze(%i, axis=[0])
transpose(%x, axes=None)
transpose(%x, axes=[2, 0, 1])
reshape(%x, newshape=[6, 4])
nn.batch_flatten(%x)
concatenate(%t)
concatenate(%t, axis=-1)
stack(%t)
stack(%t, axis=1)
split(%x, indices_or_sections=3, axis=1)
split(%x, indices_or_sections=[1, 3], axis=2)
strided_slice(%x, begin=[0, 1], end=[2, 3], strides=[1, 1], axes=None)
strided_slice(%x, begin=[1], end=[3], strides=[1], axes=[1])
take(%x, %n)
take(%x, %n, axis=1, mode="wrap")
where(%q, %x, %x)
repeat(%x, repeats=2, axis=1)
tile(%x, reps=[2, 1])
reverse(%x, axis=1)
broadcast_to(%v, shape=[2, 3])
gather(%x, %n, axis=1)
gather_nd(%x, %n)
cumsum(%x, axis=1)
full(1f, shape=[2, 2], dtype="float32")
zeros(shape=[2, 2], dtype="float32")
annotation.on_device(%x, device="cpu:1")
device_copy(%x, src_device=None, dst_device="cpu:1")
ones(shape=[], dtype="int8")
full_like(%x, 1f)
zeros_like(%x)
scatter_elements(%x, %n, %x)
reverse_sequence(%x, %o)
nn.relu(%x)
nn.leaky_relu(%x, alpha=0.01f)
nn.leaky_relu(%x)
nn.prelu(%x, %v)
nn.softmax(%x)
nn.softmax(%x, axis=1)
nn.log_softmax(%x)
nn.bias_add(%x, %v)
nn.bias_add(%x, %c, axis=-1)
nn.adaptive_avg_pool2d(%i, output_size=[1, 1])
image.resize2d(%i, size=[16, 12], roi=[0f, 0f, 0f, 0f], rounding_method="")
reshape(%x, newshape=[2, 12])
nn.dropout(%x)
nn.dropout(%x, rate=0.1f)
nn.dense(%c, %m, units=5)
nn.dense(%x, %m, units=5)
nn.dense(%x, %m, units=5, out_dtype="float64")
nn.matmul(%a, %m, units=None)
nn.matmul(%m, %m, units=None, transpose_a=True)
nn.batch_matmul(%x, %b, transpose_b=True)
nn.batch_matmul(%x, %x, transpose_a=True)
nn.conv2d(%i, %k, padding=[1, 1, 1, 1], channels=6, kernel_size=[3, 3])
nn.conv2d(%i, %k, strides=[2, 2], padding=[0, 0, 0, 0], channels=6, kernel_size=[3, 3])
nn.conv2d_transpose(%i, %l, padding=[0, 0, 0, 0], channels=6, kernel_size=[3, 3])
nn.max_pool2d(%i, pool_size=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0])
nn.avg_pool2d(%i, pool_size=[2, 2], padding=[0, 0, 0, 0], count_include_pad=True)
nn.global_avg_pool2d(%i)
nn.global_max_pool2d(%i)
nn.adaptive_avg_pool2d(%i, output_size=[2, 3])
nn.batch_norm(%x, %v, %v, %v, %v)
nn.batch_norm(%x, %c, %c, %c, %c, axis=2, epsilon=0.001f, scale=False)
nn.layer_norm(%x, %c, %c)
nn.instance_norm(%i, %c, %c)
nn.group_norm(%i, %c, %c, num_groups=2)
nn.pad(%x, 0f, pad_width=[[0, 0], [1, 1], [0, 2]])
nn.upsampling(%i, scale_h=2f, scale_w=2f)
nn.depth_to_space(%i, block_size=2)
nn.space_to_depth(%i, block_size=2)
image.resize2d(%i, size=[5, 5], roi=[0f, 0f, 0f, 0f], rounding_method="")
image.grid_sample(%i, %g)
relax.nn.gelu(%x)
"""


PARAMS = ", ".join(f"%{name}: {kind}" for name, kind in TYPES.items())
CALLS_AS_PRINTED = CALLS_AS_PRINTED.strip().splitlines()


def body(mod):
    """What `main` is printed as, without types."""
    text = mod["main"].astext(annotate=lambda e: "")
    return text.split("{\n", 1)[1].rsplit("\n}", 1)[0].strip()


def returns(text, mod=None):
    """Reading what a module is printed as gives the module, and prints the same."""
    mod = relay.parse(text) if mod is None else mod
    printed = mod.astext()
    again = relay.parse(printed)
    tvm.ir.assert_structural_equal(again, mod)
    assert again.astext() == printed
    return mod


@pytest.mark.parametrize("call", CALLS_AS_PRINTED)
def test_a_call_is_printed_as_it_is_read(call):
    assert body(returns(f"def @main({PARAMS}) {{ {call} }}")) == call


def test_operators_of_tensors_alone_are_printed_by_their_names():
    counted = 0
    for name, function in CALLS.items():
        op = relay.text.operator(name)
        kinds = op.signature.parameters.values()
        if any(p.default is not p.empty or p.kind is p.VAR_POSITIONAL for p in kinds):
            continue
        names = [f"%x{i}" for i in range(len(kinds))]
        for dtype in ("float32", "int32", "bool"):
            operands = [relay.var(name[1:], shape=(2, 3), dtype=dtype) for name in names]
            try:
                made = function(*operands)
            except TypeError:
                continue
            if getattr(made, "args", ()) == tuple(operands) and made.op.name == f"relax.{name}":
                text = made.astext(annotate=lambda e: "")
                assert text.splitlines()[-1] == f"{name}({', '.join(names)})"
                counted += 1
    assert counted > 60


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_return(seed):
    graph = random_graph(seed)
    mod = returns(None, relay.transform.InferType()(graph.mod))
    # So does what has no types in its text yet.
    tvm.ir.assert_structural_equal(relay.parse(graph.mod.astext()), mod)


@pytest.mark.parametrize("seed", range(40, 60))
def test_random_graphs_without_types_return(seed):
    mod = random_graph(seed, untyped=True).mod
    again = relay.parse(mod.astext())
    infer = relay.transform.InferType()
    tvm.ir.assert_structural_equal(infer(again), infer(mod))


def test_what_is_printed():
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(16, 3, 3, 3))
    y = relay.nn.conv2d(x, w, padding=(1, 1), channels=16, kernel_size=(3, 3))
    y = relay.nn.batch_norm(y, *[relay.const(np.ones(16, "float32"))] * 4)[0]
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.add(y, relay.const(1.0))))
    head = "def @main(%x: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(16, 3, 3, 3), float32])"
    norm = ", ".join(["meta[relay.Constant][0]"] * 4)
    assert str(mod) == (
        f"{head} {{\n"
        "  %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);\n"
        f"  %1 = nn.batch_norm(%0, {norm});\n"
        "  %2 = %1.0;\n"
        "  add(%2, 1f)\n"
        "}\n"
    )
    mod = relay.transform.InferType()(mod)
    image, vector = "Tensor[(1, 16, 8, 8), float32]", "Tensor[(16), float32]"
    norm = ", ".join([f"meta[relay.Constant][0] /* ty={vector} */"] * 4)
    assert str(mod) == (
        f"{head} -> {image} {{\n"
        "  %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3])"
        f" /* ty={image} */;\n"
        f"  %1 = nn.batch_norm(%0, {norm}) /* ty=({image}, {vector}, {vector}) */;\n"
        f"  %2 = %1.0 /* ty={image} */;\n"
        f"  add(%2, 1f /* ty=float32 */) /* ty={image} */\n"
        "}\n"
    )


TEXTS = {
    "sizes": """
        def @main(%x: Tensor[(?, 4), float32], %y: Tensor[(n, 4), float32]) {
          let %a: Tensor[(n, 4), float32] = match_cast(%x);
          %0 = add(%a, %y);
          reshape(%0, newshape=[(n * 2), min(2, floordiv(8, 4))])
        }""",
    "recursion": """
        def @fact(%n: int32) -> int32 {
          %0 = less(%n, 2);
          if (%0) { 1 } else { %1 = subtract(%n, 1); %2 = @fact(%1); multiply(%2, %n) }
        }
        def @main(%x: int32) -> int32 { @fact(%x) }""",
    "a function that calls itself": """
        def @main(%x: int32) {
          let %f = fn (%n: int32) -> int32 {
            if (%n == 0) { 0 } else { %f(%n - 1) + %n * 2 }
          };
          %f(%x)
        }""",
    "a primitive function": """
        #[version = "0.0.5"]
        def @main(%x: Tensor[(1, 16), float32] /* ty=Tensor[(1, 16), float32] */, hash="ab",
                  relay.reshape_only=1) -> Tensor[(1, 16), float32] {
          %1 = fn (%p0: Tensor[(1, 16), float32], Primitive=1) -> Tensor[(1, 16), float32] {
            %0 = add(%p0, 1f /* ty=float32 */) /* ty=Tensor[(1, 16), float32] */;
            exp(%0) /* ty=Tensor[(1, 16), float32] */
          } /* ty=fn (Tensor[(1, 16), float32]) -> Tensor[(1, 16), float32] */;
          %1(%x) // the end
        }""",
    "a number used behind its branch": """
        def @main(%c: bool, %x: Tensor[(2), float32]) {
          %4 = if (%c) { %0 = exp(%x); %1 = tanh(%0); %2 = (%1, %0); concatenate(%2) } else {
            concatenate(%2)
          };
          (%4, %1, %2.1)
        }""",
    "tuples": """
        def @main(%x: (Tensor[(2), float32], (int32,)), %x.y: Tensor[(2), float32]) {
          (%x.1.0, %x.0 + %x.y, (), (%x.0,), (%x,).0)
        }""",
    "numbers": """
        def @main() { (-1, 2i64, 3u8, -4i16, 0.1f, -0f, 1e-05f64, 0.5f16, 1e30, True, False) }""",
    "attributes": """
        def @main(%x: Tensor[(2), float32], Inline=1, Compiler="ccompiler", list=[1, "a\\"b", [2f]],
                  map={a=1, "b c"=None}, bool=True) { nn.relu(%x) }""",
    "operators of relax": """
        def @main(%x: Tensor[(n), float32]) {
          %0 = relax.nn.gelu(%x);
          %1 = relax.call_dps_packed(relax.extern("f"), (%0, relax.prim(n + 1), relax.prim(2f)),
                                     sinfo_args=[Tensor[(n), float32]]);
          %2 = relax.shape(n, 2);
          %4 = relax.to_vdevice(%1, dst_vdevice="llvm:1:other");
          %3 = relax.astype(%4, dtype="float64");
          (%2, %3, relax.dtype("int8"), "text")
        }""",
    "other types": """
        def @main(%x: Tensor[ndim=2, float32], %y: Tensor[ndim=-1, ?], %s: Shape[(n, 2)],
                  %p: Prim[n], %q: Prim["int64"], %f: fn (int32) -> Tensor[(?), int8]) { %x }""",
    "nothing": "",
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_return(name):
    returns(TEXTS[name])


def test_branches_that_read_what_the_other_computes():
    mod = relay.parse(TEXTS["a number used behind its branch"])
    x = np.array([1, 2], "float32")
    for taken in (True, False):
        joined, one, two = relax.interp.Evaluator(mod)("main", np.array(taken), x)
        np.testing.assert_allclose(joined, np.concatenate([np.tanh(np.exp(x)), np.exp(x)]), 1e-6)
        np.testing.assert_allclose(one, np.tanh(np.exp(x)), 1e-6)
        np.testing.assert_allclose(two, np.exp(x), 1e-6)


def test_what_one_function_numbers_no_other_reads():
    with pytest.raises(ParseError, match="there is no value %0 before this"):
        relay.parse("def @f(%x: int32) { %0 = %x + 1; %0 } def @main() { %0 }")
    with pytest.raises(ParseError, match="there is no value %0 before this"):
        relay.parse("def @main() { %1 = fn (%x: int32) { %0 = %x + 1; %0 }; %0 }")
    with pytest.raises(ParseError, match="%0 reads a variable whose scope is closed"):
        relay.parse("def @main() { if (True) { let %a = 1; %0 = %a + 1; %0 } else { %0 } }")


def test_missing_types_are_found_later():
    mod = relay.parse(
        "def @main(%x: Tensor[(2, 3), float32], %w) { nn.relu(nn.dense(%x, %w, units=4)) }"
    )
    assert "%w) {" in str(mod)
    mod = relay.transform.InferType()(mod)
    assert "%w: Tensor[(4, 3), float32]) -> Tensor[(2, 4), float32] {" in str(mod)


def test_expressions_are_read_alone():
    made = relay.parse_expr("free_var %x: Tensor[(2), float32]; add(%x, 1f)")
    assert made.astext().splitlines()[1] == "free_var %x: Tensor[(2), float32];"
    assert isinstance(relay.parse_expr("fn (%x: int32) { %x }"), relax.Function)
    assert "def @main() -> int32" in str(relay.fromtext("1 + 2"))


def test_constants_return_to_the_bit():
    arrays = [
        np.array([0.0, -0.0, np.nan, np.inf, 1e-45], "float32"),
        np.array(np.nan, "float64"),
        np.array([[True], [False]]),
        np.zeros((0, 3), "int8"),
        np.arange(6, dtype="uint16").reshape(2, 3),
        np.array([1.5, 2], "float16"),
    ]
    value = relay.Tuple([relay.const(a, str(a.dtype)) for a in arrays])
    again = relay.parse_expr(value.astext())
    for a, b in zip(arrays, again.fields, strict=True):
        assert (b.data.dtype, b.data.shape) == (str(a.dtype), a.shape)
        assert b.data.numpy().tobytes() == a.tobytes()


def test_the_metadata_of_tvm_is_read():
    """As TVM writes it: types and spans are nodes too, and it may hold what is not asked for."""
    array = "P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAQAAAAIgAQACAAAAAAAAAAgAAAAAAAAAAACAPwAAAEA="
    text = f"""#[version = "0.0.5"]
def @main(%x: Tensor[(2), float32], s=meta[runtime.String][0], m=meta[Map][0]) {{
  add(%x, meta[relay.Constant][0] /* ty=Tensor[(2), float32] */)
}}

#[metadata]
{{"root": 1, "nodes": [
  {{"type_key": ""}},
  {{"type_key": "Map", "keys": ["Map", "relay.Constant", "runtime.String"], "data": [2, 3, 4]}},
  {{"type_key": "Array", "data": [8]}}, {{"type_key": "Array", "data": [5]}},
  {{"type_key": "Array", "data": [7]}},
  {{"type_key": "relay.Constant",
    "attrs": {{"_checked_type_": "6", "data": "0", "span": "0", "virtual_device_": "0"}}}},
  {{"type_key": "relay.TensorType", "attrs": {{"dtype": "float32", "shape": "0", "span": "0"}}}},
  {{"type_key": "runtime.String", "repr_str": "here"}},
  {{"type_key": "Map", "keys": ["a"], "data": [9]}},
  {{"type_key": "IntImm", "attrs": {{"dtype": "int32", "value": "3", "span": "0"}}}}],
 "b64ndarrays": ["{array}"], "attrs": {{"tvm_version": "0.9.0"}}}}"""
    mod = relay.parse(text)
    assert mod["main"].attrs["s"] == "here"
    assert dict(mod["main"].attrs["m"]) == {"a": 3}
    (got,) = (n for n in tvm.ir.walk(mod["main"]) if isinstance(n, relay.Constant))
    assert got.data.numpy().tolist() == [1, 2]


WRONG = {
    "there is no operator nn.dens": "def @main(%x: int32) { nn.dens(%x) }",
    "there is no operator relax.nothing": "def @main(%x: int32) { relax.nothing(%x) }",
    "there is no variable %y": "def @main(%x: int32) { add(%x, %y) }",
    "there is no value %0 before this": "def @main(%x: int32) { add(%x, %0) }",
    "there is no function @g": "def @main(%x: int32) { @g(%x) }",
    "there is no size n": "def @main(%x: int32) -> Tensor[(n), int32] { %x }",
    "3 operands are more": "def @main(%x: int32) { add(%x, 1, 3) }",
    "axs": "def @main(%x: Tensor[(2), float32]) { sum(%x, axs=1) }",
    "axis is given twice": "def @main(%x: Tensor[(2), int32]) { sum(%x, axis=1, axis=1) }",
    "wanted '\\)', got '\\{'": "def @main(%x: int32 { %x }",
    "wanted '\\}', got the end of the text": "def @main(%x: int32) { %x",
    "the result is said to be": "def @main(%x: int32) -> int8 { %x }",
    "it is said to be": "def @main(%x: int32) { let %y: int8 = %x; %y }",
    "no metadata section": "def @main() { meta[relay.Constant][0] }",
    "no JSON as TVM writes": "def @main() { meta[relay.Constant][0] }\n#[metadata]\n[1]",
    "cannot be read": 'def @main() { meta[relay.Constant][0] }\n#[metadata]\n{"root": 0, '
    '"nodes": [{"type_key": "Map", "keys": [], "data": []}]}',
    "no word begins with": "def @main() { & }",
    "wanted an expression": "def @main() { }",
    "there are two functions @f": "def @f() { 1 } def @f() { 1 }",
    "there are two parameters %x": "def @f(%x: int32, %x: int32) { 1 }",
    "type parameters": "def @f[A](%x: A) { %x }",
    "data types of one's own": "type List[A] { Nil }",
    "unknown dtype|dtype": "def @f(%x: List) { %x }",
    "dense: units": "def @f(%x: Tensor[(2, 3), int32]) { nn.dense(%x, %x, units=3) }",
    "num_newaxis: wanted at most": "expand_dims(1, axis=0, num_newaxis=9999)",
    "nested more than 100 deep": "(" * 200 + "1" + ",)" * 200,
    "lists nest deeper": "zeros(shape=" + "[" * 200 + "]" * 200 + ")",
    "is no integer": "1.5i32",
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_has_a_place(message):
    with pytest.raises(ParseError, match=message) as caught:
        relay.parse("\n" + WRONG[message], "model.rly")
    error = caught.value
    assert (error.filename, str(error).startswith("model.rly:")) == ("model.rly", True)
    assert error.lineno >= 2 or "metadata" in WRONG[message] or error.offset >= 1


def test_an_error_shows_the_line_and_a_caret():
    with pytest.raises(ParseError) as caught:
        relay.parse("def @main(%x: int32) {\n  add(%x, %y)\n}")
    assert str(caught.value) == (
        "from_string:2:11: there is no variable %y\n      add(%x, %y)\n              ^^"
    )


def mutations(rng, count):
    """Texts with words or characters changed, dropped, doubled, swapped or from elsewhere."""
    samples = [*TEXTS.values(), *WRONG.values()]
    samples += [f"def @main({PARAMS}) {{ {call} }}" for call in CALLS_AS_PRINTED]
    samples += [random_graph(seed).mod.astext() for seed in range(5)]
    words = sorted({w for s in samples for w in s.split()})
    for _ in range(count):
        text = samples[rng.integers(len(samples))]
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(text) + 1))
            end = at + int(rng.integers(1, 8))
            word = words[rng.integers(len(words))]
            text = [
                text[:at] + text[end:],
                text[:at] + text[at:end] * 2 + text[end:],
                text[:at] + word + text[end:],
                text[:at] + " " + word + " " + text[at:],
                text[:at] + chr(rng.integers(32, 127)) + text[at + 1 :],
                text[:at],
            ][rng.integers(6)]
        yield text


def module_or_place(text):
    try:
        return relay.parse(text)
    except ParseError as error:
        return error.lineno, error.offset


@pytest.mark.parametrize("count", [400, pytest.param(5000, marks=pytest.mark.slow)])
def test_changed_texts_are_modules_or_errors_with_a_place(count):
    for text in mutations(np.random.default_rng(count), count):
        mod = module_or_place(text)
        if isinstance(mod, tvm.IRModule):
            assert isinstance(module_or_place(mod.astext()), tvm.IRModule), text
        else:
            assert min(mod) >= 1, text


DEEP = 3000


@pytest.mark.parametrize(
    "text",
    [
        "add(" * DEEP + "%x" + ", %x)" * DEEP,
        "(" * DEEP + "%x" + ")" * DEEP,
        "if (%c) {" * DEEP + "%x" + "} else { %x }" * DEEP,
        "%x" + " + %x * %x" * DEEP,
        "".join(f"let %a{i} = exp(%x); " for i in range(DEEP)) + "%x",
        "".join(f"%{i} = exp(%x); " for i in range(DEEP)) + "%x",
    ],
    ids=["calls", "parentheses", "branches", "sums", "lets", "numbers"],
)
def test_texts_may_be_deep(text):
    mod = relay.parse(f"def @main(%c: bool, %x: Tensor[(2), float32]) {{ {text} }}")
    tvm.ir.assert_structural_equal(relay.parse(mod.astext()), mod)


def test_functions_nest_as_deep_as_their_types_may():
    deep = "fn (%x: int32) {" * 5000 + "%x" + "}" * 5000
    with pytest.raises(ParseError, match="nested more than 100 deep"):
        relay.parse(deep)


def test_who_prints_which_text():
    x = relay.var("x", shape=(2,))
    written = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    assert str(written).startswith("def @main(%x: Tensor[(2), float32]) {\n  exp(%x)\n}")
    assert str(written["main"]).startswith("fn (%x: Tensor[(2), float32]) {")
    assert "R.exp(x)" in written.script()
    for through in (relay.transform.InferType(), relax.transform.FoldConstant()):
        assert str(through(written)).startswith("def @main(")
    assert str(relay.parse(written.astext())).startswith("def @main(")

    @I.ir_module
    class Script:
        @T.prim_func
        def loop(a: T.Buffer((2,), "float32"), b: T.Buffer((2,), "float32")):
            for i in range(2):
                b[i] = a[i]

        @R.function
        def main(x: R.Tensor((2,), "float32")):
            return R.exp(x)

    assert str(Script) == Script.script()
    text = Script.astext()
    assert "/* @loop is no graph function:" in text
    assert 'def @main(%x: Tensor[(2), float32], global_symbol="main")' in text
    assert list(relay.parse(text).get_global_vars())[0].name_hint == "main"


def main_after(text, *passes):
    """What is printed as `main` of a text after passes, without types; it returns too."""
    mod = relay.parse(text)
    for each in passes:
        mod = each(mod)
    returns(None, mod)
    return mod["main"].astext(annotate=lambda e: "").splitlines()[1:]


def test_values_that_passes_name_have_numbers():
    text = "def @main(%x: Tensor[(4), float32]) { exp(add(%x, 1f)) }"
    assert main_after(text, relay.transform.FuseOps(2)) == [
        "fn (%x: Tensor[(4), float32]) -> Tensor[(4), float32] {",
        "  %1 = fn (%p0: Tensor[(4), float32], Primitive=1) -> Tensor[(4), float32] {",
        "    %0 = add(%p0, 1f);",
        "    exp(%0)",
        "  };",
        "  %1(%x)",
        "}",
    ]


def test_lets_stay_lets_until_graph_normal_form():
    text = "def @main(%x: Tensor[(4), float32]) { let %y = tanh(%x); add(exp(%y), %y) }"
    kind = "Tensor[(4), float32]"
    assert main_after(text, relay.transform.DeadCodeElimination())[1:-1] == [
        f"  let %y: {kind} = tanh(%x);",
        "  %0 = exp(%y);",
        "  add(%0, %y)",
    ]
    anf, gnf = relay.transform.ToANormalForm(), relay.transform.ToGraphNormalForm()
    assert main_after(text, anf)[1:-1] == [
        f"  let %y: {kind} = tanh(%x);",
        f"  let %x1: {kind} = exp(%y);",
        f"  let %x2: {kind} = add(%x1, %y);",
        "  %x2",
    ]
    assert main_after(text, anf, gnf, relay.transform.InferType())[1:-1] == [
        "  %0 = tanh(%x);",
        "  %1 = exp(%0);",
        "  add(%1, %0)",
    ]


def test_the_parts_of_an_operator_are_printed_as_what_they_are():
    """Unless the program said so: a bias may as well be added in two steps."""
    text = "def @main(%x: Tensor[(2, 3, 4), float32], %b: Tensor[(3), float32]) {"
    parts = "%0 = expand_dims(%b, axis=1); add(%x, %0) }"
    assert body(returns(text + parts)).splitlines()[-1].strip() == "add(%x, %0)"
    assert body(returns(text + "nn.bias_add(%x, %b) }")) == "nn.bias_add(%x, %b)"


def test_names_that_repeat_are_told_apart():
    x, y = (relay.var("x", shape=(2,)) for _ in range(2))
    odd, field = relay.var("a b%", shape=(2,)), relay.var("w.0", shape=(2,))
    text = relay.Function([x, y, odd, field], x + y + odd + field).astext()
    assert "%x: " in text
    assert "%x1: " in text
    assert "%a_b_: " in text
    assert "%w_0: " in text
    returns(None, relay.transform.InferType()(relay.parse(text)))


def test_what_is_left_out():
    mod = relay.parse("def @main(%x: Tensor[(2), float32]) { %x }")
    mod["main"] = relay.Function(
        mod["main"].params, relay.add(mod["main"].params[0], relay.const([1.0, 2.0]))
    )
    assert "#[metadata]" in mod.astext()
    short = mod.astext(show_meta_data=False)
    assert short.startswith('#[version = "0.0.5"]\n')
    assert "#[metadata]" not in short
    assert "astext(show_meta_data=True)" in short
    assert "meta" not in mod.astext(False, annotate=lambda e: " /* seen */").split("{")[0]
    assert "/* seen */" in mod.astext(False, annotate=lambda e: " /* seen */")


def test_places_are_shown_where_asked():
    mod = relay.parse("def @main(%x: Tensor[(2), float32]) {\n  nn.relu(%x)\n}", "model.rly")
    assert "span=model.rly:2:3" in mod.astext(spans=True)
    assert "span" not in mod.astext()


def test_a_name_of_another_module_is_found():
    mod = tvm.parser.fromtext("def @main(%x: int32) { %x }")
    assert tvm.parser.parse(mod.astext()).astext() == mod.astext()
    assert isinstance(tvm.parser.parse_expr("1"), relay.Constant)
