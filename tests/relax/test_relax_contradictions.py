"""Sizes that cannot be equal, whatever the symbols are, are refused where the call is written;
those that may be are left to the program.
"""

import pytest

from relaxvm import relax, tir
from relaxvm.base import ParseError, StructInfoError
from relaxvm.relax import BlockBuilder, TensorStructInfo, Var
from relaxvm.script import from_source
from relaxvm.script import relax as R

n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
op, nn, image = R, R.nn, R.image


def t(*shape, dtype="float32"):
    return Var("x", TensorStructInfo(shape, dtype))


def i(*shape):
    return t(*shape, dtype="int64")


# What is refused, and beside it what may be.
PAIRS = {
    "add": lambda d: op.add(t(2 * n, 3), t(d(2 * n + 2, m), 3)),
    "where": lambda d: op.where(t(2 * n, dtype="bool"), t(d(2 * n + 2, m)), t(2 * n)),
    "concat": lambda d: op.concat([t(3, d(n + 2, m)), t(3, n)], axis=0),
    "stack": lambda d: op.stack([t(3, d(n + 2, m)), t(3, n)]),
    "reshape": lambda d: op.reshape(t(n, 4), (d(n + 1, m), 4)),
    "reshape_rest": lambda d: op.reshape(t(d(4 * n + 2, m)), (-1, 4)),
    "squeeze": lambda d: op.squeeze(t(3, d(2 * n, n)), axis=1),
    "broadcast_to": lambda d: op.broadcast_to(t(2 * n), (d(2 * n + 2, m),)),
    "collapse_sum_to": lambda d: op.collapse_sum_to(t(2 * n), (d(2 * n + 2, m),)),
    "matmul": lambda d: op.matmul(t(3, n), t(d(n + 1, m), 2)),
    "einsum": lambda d: op.einsum((t(3, n), t(d(n + 1, m), 2)), "ij,jk->ik"),
    "conv2d_groups": lambda d: nn.conv2d(t(1, 6, 4, 4), t(d(6 * n + 4, n), 1, 1, 1), groups=6),
    "conv2d_channels": lambda d: nn.conv2d(t(1, n, 4, 4), t(2, d(n + 1, m), 1, 1)),
    "conv1d_transpose": lambda d: nn.conv1d_transpose(t(1, d(4 * n + 2, 4), 9), t(4, 1, 3)),
    "conv2d_transpose_groups": lambda d: nn.conv2d_transpose(
        t(1, d(4 * n + 2, n), 4, 4), t(d(4 * n + 2, n), 1, 1, 1), groups=4
    ),
    "group_norm": lambda d: nn.group_norm(
        t(1, d(4 * n + 2, n), 3), t(d(4 * n + 2, n)), t(d(4 * n + 2, n)), 4, 1, [2]
    ),
    "batch_norm": lambda d: nn.batch_norm(t(1, n, 3), t(d(n + 1, m)), t(n), t(n), t(n), axis=1),
    "layer_norm": lambda d: nn.layer_norm(t(3, n), t(d(n + 1, m)), t(n), axes=-1),
    "pixel_shuffle": lambda d: nn.pixel_shuffle(t(1, d(4 * n + 2, n), 2, 2), 2),
    "depth_to_space": lambda d: nn.depth_to_space(t(1, d(4 * n + 2, n), 2, 2), 2),
    "space_to_depth": lambda d: nn.space_to_depth(t(1, 1, d(4 * n + 1, n), 2), 2),
    "blocked_layout": lambda d: nn.conv2d(
        t(1, 4, 5, 5), t(d(4 * n + 2, n), 4, 1, 1), out_layout="NCHW4c"
    ),
    "nll_loss": lambda d: nn.nll_loss(t(n, 3), i(d(n + 1, m)), reduction="none"),
    "attention": lambda d: nn.attention(t(1, 2, 3, 4), t(1, n, 3, 4), t(1, d(n + 1, m), 3, 4)),
    "gather_elements": lambda d: op.gather_elements(t(n, 3), i(d(n + 1, m), 3), axis=1),
    "gather_nd": lambda d: op.gather_nd(t(n, 3), i(d(n + 1, m), 1), batch_dims=1),
    "scatter_elements": lambda d: op.scatter_elements(t(n, 3), i(n, 3), t(d(n + 1, m), 3)),
    "scatter_nd": lambda d: op.scatter_nd(t(n, 3), i(m, 1), t(d(m + 1, n), 3)),
    "index_put": lambda d: op.index_put(t(9, 3), (i(2 * n),), t(d(2 * n + 2, m), 3)),
    "slice_scatter": lambda d: op.slice_scatter(t(9, n), t(2, d(n + 1, m)), 0, 2, 1, axis=0),
    "searchsorted": lambda d: op.searchsorted(t(n, 9), t(d(n + 1, m), 2)),
    "reverse_sequence": lambda d: op.reverse_sequence(
        t(n, 5), i(d(n + 1, m)), seq_axis=1, batch_axis=0
    ),
    "grid_sample": lambda d: image.grid_sample(t(n, 1, 2, 2), t(d(n + 1, m), 2, 2, 2)),
    "grid_sample_pairs": lambda d: image.grid_sample(t(1, 1, 2, 2), t(1, 2, 2, d(2 * n + 1, m))),
    "quantize": lambda d: op.quantize(
        t(n, 3), t(d(n + 1, m)), t(d(n + 1, m), dtype="int8"), axis=0
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_sizes_that_never_fit_are_refused_and_those_that_may_are_not(name):
    with pytest.raises(StructInfoError):
        PAIRS[name](lambda never, may: never)
    assert PAIRS[name](lambda never, may: may).struct_info is not None


CASTS = {
    "one cast": "R.match_cast((a, b), R.Tuple(R.Tensor((N, K)), R.Tensor((K,))))",
    "two casts": 'R.match_cast(b, R.Tensor((K,), "float32"))',
    "through another symbol": 'R.match_cast(b, R.Tensor((M,), "float32"))',
}


@pytest.mark.parametrize("name", CASTS)
@pytest.mark.parametrize(("size", "fits"), [(16, True), (32, False)])
def test_a_cast_of_known_sizes_that_says_two_things_of_a_symbol_is_refused(name, size, fits):
    first = "" if name == "one cast" else 'p = R.match_cast(a, R.Tensor((N, K), "float32"))'
    if name == "through another symbol":
        first += "\n        o = R.match_cast(R.shape([K]), R.Shape((M,)))"
    text = f"""
@I.ir_module
class Module:
    @R.function
    def main(a: R.Tensor((32, 16), "float32"), b: R.Tensor(({size},), "float32")):
        N = T.int64()
        K = T.int64()
        M = T.int64()
        {first}
        q = {CASTS[name]}
        return q
"""
    if fits:
        assert relax.analysis.well_formed(from_source(text))
        return
    with pytest.raises(ParseError, match="can never be that"):
        from_source(text)


def test_the_builder_says_what_a_symbol_was_found_to_be():
    a, b = t(32, 16), t(32)
    bb = BlockBuilder()
    with bb.function("main", [a, b]):
        bb.match_cast(a, TensorStructInfo((n, m), "float32"))
        with pytest.raises(StructInfoError, match=r"wanted: R.Tensor\(\(m,\).*, where m = 16"):
            bb.match_cast(b, TensorStructInfo((m,), "float32"))
        bb.emit_func_output(a)


def test_a_symbol_may_be_two_things_in_two_branches():
    text = """
@R.function
def main(c: R.Tensor((), "bool"), a: R.Tensor((32,), "float32"), b: R.Tensor((16,), "float32")):
    N = T.int64()
    if c:
        x = R.match_cast(a, R.Tensor((N,), "float32"))
        y = R.sum(R.add(x, x))
    else:
        z = R.match_cast(b, R.Tensor((N,), "float32"))
        y = R.sum(z)
    return y
"""
    assert relax.analysis.well_formed(from_source(text))


def test_a_larger_axis_is_not_broadcast_to_a_smaller_one():
    a = tir.Var("a", "int64")
    x = relax.Var("x", relax.TensorStructInfo((a + 2,), "float32"))
    with pytest.raises(StructInfoError, match="does not broadcast"):
        relax.op.broadcast_to(x, (a,))
    # It may be 1 here.
    y = relax.Var("y", relax.TensorStructInfo((a,), "float32"))
    assert relax.op.broadcast_to(y, (a + 2,)).struct_info.ndim == 1
