"""Relay's operators of tensors that are written with several of the graph language, and their
arguments' names: each against numpy, of typed and of untyped operands.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from test_relay_spelling import value

from relaxvm import relay
from relaxvm.base import StructInfoError
from relaxvm.relay.spelling import CALLS

RNG = np.random.default_rng(1)
X = RNG.standard_normal((2, 3, 4)).astype("float32")
IMAGE = RNG.standard_normal((1, 4, 6, 5)).astype("float32")
IDS = np.array([2, 0, 1, 2], "int32")
ROWS = RNG.standard_normal((4, 3)).astype("float32")


def c(array, dtype=None):
    return relay.const(np.asarray(array), dtype)


def put(x, place, values):
    x = x.copy()
    x[place] = values
    return x


def added(shape, places, values):
    out = np.zeros(shape, "float32")
    np.add.at(out, places, values)
    return out


def windows(x, axis, shape, strides):
    made = np.lib.stride_tricks.sliding_window_view(x, shape, tuple(range(axis, x.ndim)))
    steps = (slice(None),) * axis + tuple(slice(None, None, s) for s in strides)
    return made[steps]


def blocks(x):
    """A batch of 2 by 3 blocks of images [n, h, w, c]."""
    n, h, w, ch = x.shape
    return x.reshape(n, h // 2, 2, w // 3, 3, ch).transpose(2, 4, 0, 1, 3, 5).reshape(-1, 3, 2, ch)


BLOCKS = RNG.standard_normal((1, 6, 6, 2)).astype("float32")
CASES = {
    "strided_slice past the end": (
        [X],
        lambda x: relay.strided_slice(x, [0, -2], [99, 2**31 - 1], [1, 1]),
        lambda x: x[:, -2:],
    ),
    "strided_slice backwards": (
        [X],
        lambda x: relay.strided_slice(x, [3], [0], [-2], axes=[2]),
        lambda x: x[:, :, 3:0:-2],
    ),
    "strided_slice of expressions": (
        [X, np.array([0, 1, 0], "int64")],
        lambda x, b: relay.strided_slice(x, b, c([2, 3, 4], "int64")),
        lambda x, b: x[0:2, 1:3, 0:4],
    ),
    "reshape to an expression": (
        [X, np.array([4, 6], "int32")],
        lambda x, s: relay.reshape(x, s),
        lambda x, s: x.reshape(4, 6),
    ),
    "broadcast_to an expression": (
        [ROWS, np.array([2, 4, 3], "int64")],
        lambda x, s: relay.broadcast_to(x, s),
        lambda x, s: np.broadcast_to(x, (2, 4, 3)),
    ),
    "broadcast_to a constant": (
        [ROWS],
        lambda x: relay.broadcast_to(x, c([2, 4, 3])),
        lambda x: np.broadcast_to(x, (2, 4, 3)),
    ),
    "zeros of an expression": (
        [np.array([2, 3], "int64")],
        lambda s: relay.zeros(s, "float32"),
        lambda s: np.zeros((2, 3), "float32"),
    ),
    "full of an expression": (
        [np.array([2, 3], "int64")],
        lambda s: relay.full(c(7.0, "float32"), s, "float32"),
        lambda s: np.full((2, 3), 7, "float32"),
    ),
    "strided_set": (
        [X, np.ones((1, 2, 4), "float32")],
        lambda x, v: relay.strided_set(x, v, [1, 0], [2, 3], [1, 2]),
        lambda x, v: put(x, (slice(1, 2), slice(0, 3, 2)), v),
    ),
    "shape_of": ([X], relay.shape_of, lambda x: np.array(x.shape, "int32")),
    "ndarray_size": (
        [X],
        lambda x: relay.ndarray_size(x, "int64"),
        lambda x: np.array(24, "int64"),
    ),
    "scatter_nd": (
        [X, ROWS[:, 0]],
        lambda x, v: relay.scatter_nd(
            x, c([[0, 1, 1, 0], [0, 2, 1, 2], [0, 1, 2, 3]]), v, mode="add"
        ),
        lambda x, v: x + added(x.shape, ([0, 1, 1, 0], [0, 2, 1, 2], [0, 1, 2, 3]), v),
    ),
    "gather_nd": (
        [X],
        lambda x: relay.gather_nd(x, c([[0, 1], [2, 0]])),
        lambda x: x[[0, 1], [2, 0]],
    ),
    "sparse_to_dense": (
        [ROWS[:, 0]],
        lambda v: relay.sparse_to_dense(c([[0, 1], [2, 0], [1, 1], [2, 2]]), [3, 3], v, 9.0),
        lambda v: put(np.full((3, 3), 9, "float32"), ([0, 2, 1, 2], [1, 0, 1, 2]), v),
    ),
    "segment_sum": (
        [ROWS],
        lambda x: relay.segment_sum(x, c(IDS), num_segments=4),
        lambda x: added((4, 3), (IDS,), x),
    ),
    "segment_sum of constant ids": (
        [ROWS],
        lambda x: relay.segment_sum(x, c(IDS)),
        lambda x: added((3, 3), (IDS,), x),
    ),
    "reverse_reshape": (
        [X],
        lambda x: relay.reverse_reshape(x, (-1, 0)),
        lambda x: x.reshape(6, 4),
    ),
    "sliding_window": (
        [IMAGE],
        lambda x: relay.sliding_window(x, 2, [3, 2], [2, 1]),
        lambda x: windows(x, 2, (3, 2), (2, 1)),
    ),
    "sequence_mask": (
        [X, np.array([1, 0, 2], "int32")],
        lambda x, n: relay.sequence_mask(x, n, mask_value=-1.0),
        lambda x, n: np.where(np.arange(2)[:, None, None] < n[None, :, None], x, -1),
    ),
    "sequence_mask of axis 1": (
        [X, np.array([1, 2], "int32")],
        lambda x, n: relay.sequence_mask(x, n, axis=1),
        lambda x, n: np.where(np.arange(3)[None, :, None] < n[:, None, None], x, 0),
    ),
    "unravel_index": (
        [np.array([0, 7, 11], "int32")],
        lambda i: relay.unravel_index(i, c([3, 4])),
        lambda i: np.stack(np.unravel_index(i, (3, 4))).astype("int32"),
    ),
    "meshgrid": (
        [ROWS[0], ROWS[1]],
        lambda a, b: relay.meshgrid([a, b], "xy"),
        lambda a, b: tuple(np.meshgrid(a, b)),
    ),
    "adv_index": (
        [X],
        lambda x: relay.adv_index([x, c([0, 1]), c([2, 0])]),
        lambda x: x[[0, 1], [2, 0]],
    ),
    "trilu": ([X], lambda x: relay.trilu(x, 1), lambda x: np.triu(x, 1)),
    "trilu below": ([X], lambda x: relay.trilu(x, 0, upper=False), np.tril),
    "invert_permutation": (
        [np.array([2, 0, 3, 1], "int32")],
        relay.invert_permutation,
        lambda p: np.argsort(p).astype("int32"),
    ),
    "argwhere": (
        [X],
        lambda x: relay.argwhere(relay.greater(x, c(0.0, "float32"))),
        lambda x: np.argwhere(x > 0).astype("int32"),
    ),
    "reinterpret": ([X], lambda x: relay.reinterpret(x, "int32"), lambda x: x.view("int32")),
    "fixed_point_multiply": (
        [np.array([100, -100, 7, -7], "int32")],
        lambda x: relay.fixed_point_multiply(x, 1 << 30, 0),
        lambda x: np.floor(x * 0.5 + 0.5).astype("int32"),
    ),
    "fixed_point_multiply to the left": (
        [np.array([100, -7], "int32")],
        lambda x: relay.fixed_point_multiply(x, 3, 33),
        lambda x: x * 12,
    ),
    "mean_variance": (
        [X],
        lambda x: relay.mean_variance(x, axis=1).astuple(),
        lambda x: (x.mean(1), x.var(1)),
    ),
    "mean_std": (
        [X],
        lambda x: relay.mean_std(x, axis=1, exclude=True, keepdims=True)[1],
        lambda x: x.std((0, 2), keepdims=True),
    ),
    "sort": ([X], lambda x: relay.sort(x, axis=1, is_ascend=False), lambda x: -np.sort(-x, 1)),
    "argsort": (
        [X],
        lambda x: relay.argsort(x, axis=0, dtype="int64"),
        lambda x: np.argsort(x, 0),
    ),
    "topk": (
        [X],
        lambda x: relay.topk(x, k=2)[0],
        lambda x: -np.sort(-x, -1)[..., :2],
    ),
    "topk of a constant": (
        [X],
        lambda x: relay.topk(x, c(1), axis=1, ret_type="indices", is_ascend=True),
        lambda x: x.argmin(1)[:, None].astype("int32"),
    ),
    "searchsorted": (
        [np.sort(ROWS[0]), ROWS[1]],
        lambda s, v: relay.searchsorted(s, v, right=True),
        lambda s, v: np.searchsorted(s, v, "right").astype("int32"),
    ),
    "unique": (
        [np.array([3, 1, 3, 2, 1], "int32")],
        lambda x: relay.unique(x, return_counts=True).astuple(),
        lambda x: (
            np.array([1, 2, 3], "int32"),
            np.array([1, 3, 0], "int32"),
            np.array([2, 0, 2, 1, 0], "int32"),
            np.array([3], "int32"),
            np.array([2, 1, 2], "int32"),
        ),
    ),
    "trunc_divide": (
        [np.array([7, -7, 6], "int32")],
        lambda x: relay.trunc_divide(x, c(2, "int32")),
        lambda x: np.trunc(x / 2).astype("int32"),
    ),
    "trunc_divide of floats": (
        [X],
        lambda x: relay.trunc_divide(x, c(0.3, "float32")),
        lambda x: np.trunc(x / np.float32(0.3)),
    ),
    "trunc_mod": (
        [np.array([7, -7, 6], "int32")],
        lambda x: relay.trunc_mod(x, c(4, "int32")),
        lambda x: np.fmod(x, 4).astype("int32"),
    ),
    "arange": (
        [X],
        lambda x: relay.arange(c(1), c(7), c(2), dtype="int32"),
        lambda x: np.arange(1, 7, 2, "int32"),
    ),
    "one_hot": (
        [IDS],
        lambda i: relay.one_hot(i, c(2.0, "float32"), c(0.5, "float32"), 3, -1, "float32"),
        lambda i: np.where(np.eye(3)[i] > 0, 2, 0.5).astype("float32"),
    ),
    "collapse_sum_to": (
        [X],
        lambda x: relay.collapse_sum_to(x, (3, 1)),
        lambda x: x.sum(2).sum(0)[:, None],
    ),
    "einsum": (
        [X],
        lambda x: relay.einsum((x, x), "abc,abd->acd"),
        lambda x: np.einsum("abc,abd->acd", x, x),
    ),
    "dilate": (
        [ROWS],
        lambda x: relay.nn.dilate(x, [2, 3], 5.0),
        lambda x: put(
            np.full((7, 7), 5, "float32"), (slice(None, None, 2), slice(None, None, 3)), x
        ),
    ),
    "mirror_pad": (
        [ROWS],
        lambda x: relay.nn.mirror_pad(x, ((1, 2), (0, 1)), "REFLECT"),
        lambda x: np.pad(x, ((1, 2), (0, 1)), "reflect"),
    ),
    "space_to_batch_nd": (
        [BLOCKS[:, 1:5, :5]],
        lambda x: relay.nn.space_to_batch_nd(x, [2, 3], [[1, 1], [0, 1]], 2.0),
        lambda x: blocks(
            np.pad(x, ((0, 0), (1, 1), (0, 1), (0, 0)), constant_values=np.float32(2))
        ),
    ),
    "batch_to_space_nd": (
        [blocks(BLOCKS)],
        lambda x: relay.nn.batch_to_space_nd(x, [2, 3], [[1, 0], [0, 2]]),
        lambda x: BLOCKS[:, 1:, :-2],
    ),
    "fifo_buffer": (
        [X[:, :1], X],
        lambda x, b: relay.nn.fifo_buffer(x, b, axis=1),
        lambda x, b: np.concatenate([b, x], 1)[:, 1:],
    ),
    "cross_entropy": (
        [np.abs(ROWS) + 1, np.abs(ROWS)],
        lambda p, t: relay.nn.cross_entropy(p, t),
        lambda p, t: -(np.log(p) * t).sum() / 4,
    ),
    "take of a batch": (
        [X, np.array([[0, 9, -4], [2, 1, 0]])],
        lambda x, i: relay.take(x, i, axis=2, batch_dims=1),
        lambda x, i: np.stack([x[k][:, np.clip(i[k], 0, 3)] for k in range(2)]),
    ),
    "take of a batch, round about": (
        [X, np.array([[[0, 9], [2, -1], [7, 3]]] * 2)],
        lambda x, i: relay.take(x, i, axis=-1, batch_dims=-1, mode="wrap"),
        lambda x, i: np.take_along_axis(x, i % 4, 2),
    ),
    "variance about another mean": (
        [X, X[:, :1]],
        lambda x, m: relay.variance(x, axis=1, with_mean=m),
        lambda x, m: ((x - m) ** 2).mean(1),
    ),
    "argmax along two axes": (
        [X],
        lambda x: relay.argmax(x, axis=(-1, 0), keepdims=True),
        lambda x: x.swapaxes(0, 1).reshape(3, 8).argmax(1).astype("int32").reshape(1, 3, 1),
    ),
    "argsort to floats": (
        [ROWS],
        lambda x: relay.argsort(x, axis=0, is_ascend=False, dtype="float32"),
        lambda x: np.argsort(-x, 0, kind="stable").astype("float32"),
    ),
    "one_hot of values": (
        [IDS, np.float32(3), np.float32(-1)],
        lambda i, on, off: relay.one_hot(i, on, off, 3, -1, "float32"),
        lambda i, on, off: np.where(i[:, None] == np.arange(3), on, off),
    ),
    "where of integers": (
        [IDS, ROWS[:, 0], ROWS[:, 1]],
        relay.where,
        lambda c, x, y: np.where(c != 0, x, y),
    ),
    "round": (
        [np.array([0.5, 1.5, 2.5, -0.5, -2.5, 0.49999997, 8388609, -np.inf], "float32")],
        relay.round,
        lambda x: np.array([1, 2, 3, -1, -3, 0, 8388609, -np.inf], "float32"),
    ),
    "round of integers": ([IDS], relay.round, lambda x: x),
    "trilu above the diagonal": (
        [ROWS],
        lambda x: relay.trilu(x, c(1, "int32")),
        lambda x: np.triu(x, 1),
    ),
    "pad with a value": (
        [ROWS, np.float32(2.5)],
        lambda x, v: relay.nn.pad(x, ((0, 1), (2, 0)), v),
        lambda x, v: np.pad(x, ((0, 1), (2, 0)), constant_values=v),
    ),
    "mirror_pad beside the ends": (
        [X],
        lambda x: relay.nn.mirror_pad(x, ((0, 0), (3, 1), (0, 2))),
        lambda x: np.pad(x, ((0, 0), (3, 1), (0, 2)), "symmetric"),
    ),
    "depth_to_space by columns": (
        [IMAGE],
        lambda x: relay.nn.depth_to_space(x, 2, mode="CDR"),
        lambda x: x.reshape(1, 2, 2, 6, 5).transpose(0, 3, 1, 4, 2).reshape(1, 1, 12, 10),
    ),
    "a depthwise convolution with two results of each channel": (
        [IMAGE.transpose(0, 2, 3, 1), np.arange(8, dtype="float32").reshape(1, 1, 4, 2)],
        lambda x, w: relay.nn.conv2d(
            x, w, groups=4, channels=8, data_layout="NHWC", kernel_layout="HWOI"
        ),
        lambda x, w: (x[..., None] * w).reshape(1, 6, 5, 8),
    ),
    "upsampling by lines": (
        [ROWS.reshape(1, 1, 4, 3)],
        lambda x: relay.nn.upsampling(x, 1, 2, method="bilinear"),
        lambda x: np.stack([x, (x + np.append(x[..., 1:], x[..., -1:], -1)) / 2], -1).reshape(
            1, 1, 4, 6
        ),
    ),
    "upsampling by one": ([IMAGE], relay.nn.upsampling, lambda x: x),
    "upsampling3d": (
        [IMAGE[None]],
        lambda x: relay.nn.upsampling3d(x, 1, 2, 3),
        lambda x: x.repeat(2, 3).repeat(3, 4),
    ),
    "resize1d": (
        [ROWS[None]],
        lambda x: relay.image.resize1d(
            x, 5, coordinate_transformation_mode="align_corners", layout="NWC"
        ),
        lambda x: np.stack(
            [np.interp(np.linspace(0, 3, 5), np.arange(4), x[0, :, k]) for k in range(3)], -1
        )[None].astype("float32"),
    ),
    "resize3d": (
        [IMAGE[None]],
        lambda x: relay.image.resize3d(
            x,
            (8, 3, 5),
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
        ),
        lambda x: x.repeat(2, 2)[:, :, :, ::2],
    ),
    "affine_grid": (
        [np.array([[[1, 0, 0.5], [0, 2, 0]]], "float32")],
        lambda m: relay.image.affine_grid(m, (2, 3)),
        lambda m: np.array([[[[-0.5, 0.5, 1.5]] * 2, [[-2.0] * 3, [2.0] * 3]]], "float32"),
    ),
    "marks": (
        [X],
        lambda x: relay.annotation.on_device(
            relay.annotation.stop_fusion(relay.annotation.checkpoint(x)), "cpu"
        ),
        lambda x: x,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_mean_what_numpy_means(name):
    arrays, build, means = CASES[name]
    got, wanted = value(build, *arrays), means(*arrays)
    got, wanted = (v if isinstance(v, tuple) else (v,) for v in (got, wanted))
    for a, b in zip(got, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


# What programs write: the names of arguments as Relay has them, with the defaults.
SIGNATURES = """
    abs(data) add(lhs,rhs)
    argmax(data,axis=None,keepdims=False,exclude=False,select_last_index=False)
    argsort(data,axis=-1,is_ascend=True,dtype='int32') broadcast_to(data,shape)
    cast(data,dtype) arange(start,stop=None,step=None,dtype='float32') clip(a,a_min,a_max)
    concatenate(data,axis) cumsum(data,axis=None,dtype=None,exclusive=None)
    einsum(data,equation) exp(data) expand_dims(data,axis,num_newaxis=1)
    full(fill_value,shape=(),dtype='') gather(data,axis,indices)
    gather_nd(data,indices,batch_dims=0,index_rank=None)
    layout_transform(data,src_layout,dst_layout)
    mean(data,axis=None,keepdims=False,exclude=False) meshgrid(data,indexing='ij')
    negative(data) one_hot(indices,on_value,off_value,depth,axis,dtype)
    repeat(data,repeats,axis) reshape(data,newshape,allowzero=False)
    reverse_sequence(data,seq_lengths,seq_axis=1,batch_axis=0)
    scatter_elements(data,indices,updates,axis=0,reduction='update')
    shape_of(data,dtype='int32') scatter_nd(data,indices,updates,mode='update')
    split(data,indices_or_sections,axis=0)
    sequence_mask(data,valid_length,mask_value=0,axis=0) squeeze(data,axis=None)
    stack(data,axis) strided_slice(data,begin,end,strides=None,axes=None,slice_mode='end')
    tile(data,reps) take(data,indices,axis=None,batch_dims=0,mode='clip')
    transpose(data,axes=None)
    topk(data,k=1,axis=-1,ret_type='both',is_ascend=False,dtype='int32') where(condition,x,y)
    nn.dense(data,weight,units=None,out_dtype='') nn.bias_add(data,bias,axis=1)
    nn.batch_matmul(tensor_a,tensor_b,out_dtype='',transpose_a=False,transpose_b=True)
    nn.pad(data,pad_width,pad_value=0,pad_mode='constant') nn.prelu(data,alpha,axis=1)
    nn.softmax(data,axis=-1) nn.dropout(data,rate=0.5) nn.leaky_relu(data,alpha=0.01)
    nn.upsampling(data,scale_h=1,scale_w=1,layout='NCHW',method='nearest_neighbor',align_corners=False)
"""


def test_arguments_are_called_as_in_relay():
    for text in SIGNATURES.split():
        name, _, wanted = text.partition("(")
        parameters = inspect.signature(CALLS[name]).parameters.values()
        got = [str(p.replace(annotation=p.empty)) for p in parameters]
        assert f"{','.join(got)})" == wanted, name


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: relay.segment_sum(x, relay.var("i", shape=(2,), dtype="int32")), "num_segments"),
        (lambda x: relay.sliding_window(x, 1, [2], [1]), "wanted 2 sizes"),
        (lambda x: relay.unravel_index(x, x), "constant"),
        (lambda x: relay.reverse_reshape(x, (0, 0, 0, 0)), "other axes"),
        (
            lambda x: relay.strided_slice(x, relay.shape_of(x), [1], axes=[0]),
            "go without axes",
        ),
        (
            lambda x: relay.strided_set(relay.var("y", shape=(relay.Any(),)), x, [0], [1]),
            "sizes that are known",
        ),
    ],
)
def test_what_does_not_fit_is_an_error_that_says_so(build, message):
    with pytest.raises(StructInfoError, match=message):
        build(relay.var("x", shape=(2, 3, 4)))
