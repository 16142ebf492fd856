"""RunCodegen, and the code generator "numpy": what patterns match is done by others."""

import contextlib

import numpy as np
import pytest
from pass_cases import parse

import relaxvm as tvm
import relaxvm.relax.backend.numpy_blas as blas
from relaxvm import relax, te
from relaxvm.base import PassError, RelaxvmError
from relaxvm.ir import PassContext, structural_equal
from relaxvm.relax import backend, transform
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.dpl import is_op, wildcard
from relaxvm.runtime import register_func, remove_global_func

EXP = is_op("relax.exp")(wildcard())
TEXT = """
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        with R.dataflow():
            a = R.sin(x)
            b = R.exp(a)
            R.output(b)
        return b
"""
X = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)


@contextlib.contextmanager
def generator(generate, name="test"):
    """The code generator `name` while entered."""
    register_func(f"relax.ext.{name}", generate)
    try:
        yield
    finally:
        remove_global_func(f"relax.ext.{name}")


def outlined(text=TEXT, name="test"):
    return transform.FuseOpsByPattern([(f"{name}.exp", EXP)], annotate_codegen=True)(parse(text))


def generated(answer, mod=None, **options):
    with generator(lambda functions, options, names: [answer(f) for f in functions]):
        new = transform.RunCodegen(**options)(outlined() if mod is None else mod)
    assert_well_formed(new)
    return new


def run(mod, *args):
    return relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())["main"](*args).numpy()


def doubled(x, out):
    np.multiply(x.numpy(), 2, out=out.numpy())


def test_a_callable_is_registered_and_called_with_the_destination_last():
    new = generated(lambda fn: doubled)
    assert [gv.name_hint for gv in new] == ["main"]
    assert "R.call_dps_packed" in new["main"].script()
    np.testing.assert_allclose(run(new, X), np.sin(X) * 2, rtol=1e-6)


def test_another_callable_does_not_replace_that_of_what_was_built_before():
    def tripled(x, out):
        np.multiply(x.numpy(), 3, out=out.numpy())

    first, second, again = (generated(lambda fn, f=f: f) for f in (doubled, tripled, doubled))
    np.testing.assert_allclose(run(first, X), np.sin(X) * 2, rtol=1e-6)
    np.testing.assert_allclose(run(second, X), np.sin(X) * 3, rtol=1e-6)
    assert structural_equal(first, again)


def test_a_name_is_called():
    register_func("env.test_doubled", doubled, override=True)
    new = generated(lambda fn: "env.test_doubled")
    assert 'R.call_dps_packed("env.test_doubled", (a,)' in new["main"].script()
    np.testing.assert_allclose(run(new, X), np.sin(X) * 2, rtol=1e-6)


def test_a_loop_function_is_called_by_call_tir():
    def negate(fn):
        n = te.var("n", "int64")
        a = te.placeholder((n, 4), "float32", "A")
        return te.create_prim_func([a, te.compute((n, 4), lambda i, j: -a[i, j], name="B")])

    new = generated(negate)
    assert "R.call_tir" in new["main"].script()
    np.testing.assert_allclose(run(new, X), -np.sin(X), rtol=1e-6)


def test_a_graph_function_stands_in_its_place():
    def cosine(fn):
        x = relax.Var("x", fn.params[0].struct_info)
        return relax.Function([x], relax.op.cos(x)).with_attr(
            "global_symbol", fn.attrs["global_symbol"]
        )

    new = generated(cosine)
    assert not new["fused_relax_exp_test"].get_attr("Codegen")
    np.testing.assert_allclose(run(new, X), np.cos(np.sin(X)), rtol=1e-6)


def test_options_and_constants_are_handed_over():
    seen = []
    text = TEXT.replace("R.exp(a)", 'R.add(a, R.const(3.0, "float32"))')
    rule = ("test.add", is_op("relax.add")(wildcard(), wildcard()))
    mod = transform.FuseOpsByPattern([rule], annotate_codegen=True)(parse(text))

    def generate(functions, options, names):
        seen.append((len(functions), options, {float(c.data.numpy()): n for c, n in names.items()}))
        return [doubled]

    with generator(generate):
        transform.RunCodegen(target_options={"test": {"level": 3}})(mod)
    assert seen == [(1, {"level": 3}, {3.0: "test_const_0"})]


def test_only_what_entry_functions_reach_is_generated():
    text = TEXT + TEXT.replace("def main", "def other").replace("R.exp(a)", "R.exp(x)")
    mod = outlined(text.replace("R.sin(x)", "R.cos(x)"))
    assert len(mod) >= 3
    untouched = transform.RunCodegen(entry_functions=[])(mod)
    assert untouched is mod
    new = generated(lambda fn: doubled, mod, entry_functions=["main"])
    assert "call_dps_packed" in new["main"].script()


@pytest.mark.parametrize(
    ("generate", "message"),
    [
        (lambda f, o, n: None, "one for each of fused_relax_exp_test"),
        (lambda f, o, n: [], "got 0"),
        (lambda f, o, n: [None], "gave NoneType for fused_relax_exp_test"),
        (lambda f, o, n: [3.0], "gave float"),
        (
            lambda f, o, n: [relax.Function([], relax.const(1.0))],
            "another signature for fused_relax_exp_test",
        ),
        (
            lambda f, o, n: [te.create_prim_func([te.placeholder((3, 5), "int8", "A")])],
            "called at b|fused",
        ),
    ],
)
def test_what_cannot_stand_for_a_function_is_an_error(generate, message):
    mod = outlined()
    text = mod.script()
    with generator(generate), pytest.raises(RelaxvmError, match=message) as caught:
        transform.RunCodegen()(mod)
    notes = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert "RunCodegen" in notes and "fused_relax_exp_test" in notes
    assert mod.script() == text


def test_a_missing_or_failing_generator_is_named():
    with pytest.raises(PassError, match=r"relax\.ext\.test"):
        transform.RunCodegen()(outlined())
    with generator(lambda f, o, n: 1 / 0), pytest.raises(ZeroDivisionError) as caught:
        transform.RunCodegen()(outlined())
    assert "code generator 'test'" in "\n".join(caught.value.__notes__)


def test_modules_without_such_functions_are_left_alone():
    mod = parse(TEXT)
    assert transform.RunCodegen()(mod) is mod


# -- numpy ----------------------------------------------------------------------------------------

MLP = """
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 6), "float32"),
             b: R.Tensor((6,), "float32"), v: R.Tensor((6, 4), "float32"),
             u: R.Tensor((4, 4), "float64")):
        n = T.int64()
        with R.dataflow():
            h = R.matmul(x, w)
            hb = R.add(h, b)
            r = R.nn.relu(hb)
            y = R.matmul(r, v)
            z = R.nn.relu(y)
            s = R.exp(z)
            t = R.astype(s, "float64")
            q = R.matmul(t, u)
            R.output(q)
        return q
"""


@pytest.mark.parametrize("bind", [False, True])
def test_products_are_done_by_numpy(bind):
    mod = parse(MLP)
    with PassContext(opt_level=2):
        parted = blas.partition_for_numpy(mod, bind)
        new = transform.RunCodegen()(parted)
    assert_well_formed(new)
    text = new.script()
    for name in ("matmul_bias_relu", "matmul_relu", "matmul"):
        assert f'"env.numpy.{name}"' in text
    assert "R.matmul" not in text
    # What follows one another is one function; exp stands between.
    assert len([gv for gv in parted if parted[gv].get_attr("Codegen")]) == 2
    rng = np.random.default_rng(0)
    shapes = ((8, 6), (6,), (6, 4))
    weights = [rng.standard_normal(s).astype("float32") / 4 for s in shapes]
    u = rng.standard_normal((4, 4))
    for rows in (0, 1, 5):
        x = rng.standard_normal((rows, 8)).astype("float32")
        np.testing.assert_allclose(run(new, x, *weights, u), run(mod, x, *weights, u), rtol=1e-5)


def test_numpy_leaves_what_it_cannot_write_in_place():
    mod = parse(
        """
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4, 4), "float32"),
                 i: R.Tensor((4, 4), "int32"), b: R.Tensor((3, 4, 4), "float32")):
            with R.dataflow():
                a = R.matmul(x, w)
                c = R.matmul(i, i)
                d = R.matmul(w, w)
                e = R.add(d, b)
                f = (a, c, e)
                R.output(f)
            return f
        """
    )
    parted = blas.partition_for_numpy(mod)
    composites = [fn for _, fn in parted.items() if fn.get_attr("Codegen")]
    (only,) = composites
    assert [p.name_hint for p in only.params] == ["w"]


# -- the registry ---------------------------------------------------------------------------------


def test_patterns_are_found_by_name_the_last_first():
    one, two = (("registry_test.one", EXP), ("registry_test.two", EXP))
    backend.register_patterns([one, two])
    names = [p.name for p in backend.get_patterns_with_prefix("registry_test")]
    assert names == ["registry_test.two", "registry_test.one"]
    assert backend.get_pattern("registry_test.one").pattern is EXP
    assert backend.get_pattern("registry_test.none") is None
    other = is_op("relax.sin")(wildcard())
    backend.register_patterns([("registry_test.one", other)])
    assert backend.get_pattern("registry_test.one").pattern is other
    with pytest.raises(PassError):
        backend.register_patterns([("registry_test.three", 3)])


def test_patterns_of_code_generators():
    p = backend.patterns
    f32 = relax.TensorStructInfo((1, 8, 8, 8), "float32")
    x, w = relax.Var("x", f32), relax.Var("w", f32)
    conv = relax.op.nn.relu(relax.op.add(relax.op.nn.conv2d(x, w), x))
    pattern, parts = p.make_conv2d_pattern(True, "relax.nn.relu")
    found = pattern.extract_matched_expr(conv)
    assert found[parts["input"]] is x and found[parts["weight"]] is w and found[parts["bias"]] is x
    pattern, parts = p.make_matmul_pattern(transposed_rhs=True)
    assert pattern.match(relax.op.matmul(x, relax.op.permute_dims(w)))
    assert not pattern.match(relax.op.matmul(x, w))
    pattern, parts = p.make_residual_block_pattern(
        p.make_conv2d_pattern(), activation="relax.nn.relu"
    )
    for block in (
        relax.op.add(x, relax.op.nn.conv2d(x, w)),
        relax.op.add(relax.op.nn.conv2d(x, w), x),
    ):
        found = pattern.extract_matched_expr(relax.op.nn.relu(block))
        assert found[parts["residual"]] is x
    pattern, parts = p.make_attention_pattern()
    assert pattern.match(relax.op.nn.attention(x, x, x))
    assert p.make_attention_pattern(True)[0].match(relax.op.nn.attention(x, x, x, x))
    g = relax.Var("g", relax.TensorStructInfo((8,), "float32"))
    assert p.make_layer_norm_pattern()[0].match(relax.op.nn.layer_norm(x, g, g, axes=[-1]))
    assert p.make_rms_norm_pattern()[0].match(relax.op.nn.rms_norm(x, g, axes=[-1]))
