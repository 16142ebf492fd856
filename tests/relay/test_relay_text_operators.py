"""Every operator of Relay is printed by its name and reads back as the same."""

from __future__ import annotations

import re

import pytest

import relaxvm as tvm
from relaxvm import relax, relay
from relaxvm.base import ParseError
from relaxvm.relay.spelling import CALLS
from tests.relay.test_relay_text import CALLS_AS_PRINTED, body, returns

TYPES = {
    "aff": "Tensor[(1, 2, 3), float32]",
    "ai": "(Tensor[(2, 3, 4), float32], Tensor[(5), int32], Tensor[(5), int32])",
    "b8": "Tensor[(2, 5, 4), int8]",
    "bs": "Tensor[(8, 3, 2, 1), float32]",
    "bx": "Tensor[(1, 6, 4), float32]",
    "c": "Tensor[(4), float32]",
    "d": "Tensor[(1, 4, 4, 4, 4), float32]",
    "dk": "Tensor[(6, 4, 2, 2, 2), float32]",
    "dl": "Tensor[(4, 6, 2, 2, 2), float32]",
    "e": "(Tensor[(3, 5), float32], Tensor[(5, 4), float32])",
    "f": "Tensor[(6), float32]",
    "f5": "Tensor[(5), float32]",
    "g": "Tensor[(1, 5, 5, 2), float32]",
    "g8": "Tensor[(1, 4, 8, 6), int8]",
    "i": "Tensor[(1, 4, 8, 6), float32]",
    "i8": "Tensor[(2, 4), int8]",
    "ids": "Tensor[(4), int32]",
    "ii": "Tensor[(1, 2), int32]",
    "ix": "Tensor[(2, 5), int32]",
    "k8": "Tensor[(6, 4, 3, 3), int8]",
    "l8": "Tensor[(4, 6, 3, 3), int8]",
    "lo": "Tensor[(2, 3), float32]",
    "mm": "(Tensor[(2), float32], Tensor[(3), float32])",
    "n": "Tensor[(2, 3, 4), int32]",
    "n32": "Tensor[(2, 3, 4), int32]",
    "o": "Tensor[(2), int32]",
    "p": "Tensor[(6), int32]",
    "q": "Tensor[(2, 3, 4), bool]",
    "rois": "Tensor[(3, 5), float32]",
    "s": "float32",
    "sc": "Tensor[(1, 2, 6), float32]",
    "ss": "Tensor[(4, 6), float32]",
    "t8": "(Tensor[(3), int8], Tensor[(3), int8])",
    "ts": "(float32, float32)",
    "tz": "(int32, int32)",
    "v": "Tensor[(3), float32]",
    "v3": "Tensor[(3), int32]",
    "w8": "Tensor[(5, 4), int8]",
    "x": "Tensor[(2, 3, 4), float32]",
    "x2": "Tensor[(2, 3, 2), float32]",
    "x8": "Tensor[(2, 3, 4), int8]",
    "y": "Tensor[(1, 4, 8), float32]",
    "yk": "Tensor[(6, 4, 3), float32]",
    "yl": "Tensor[(4, 6, 3), float32]",
    "z": "int32",
}
# Calls as they are printed; others stand in `CALLS_AS_PRINTED`.
PRINTED = """
nn.lrn(%i)
nn.lrn(%i, size=3, alpha=0.001f)
nn.l2_normalize(%x, eps=1e-05f, axis=[1])
std(%x, axis=[1])
variance(%x, axis=[1], unbiased=True)
all(%q, axis=[1])
any(%q, axis=[0], keepdims=True)
arange(0, 10, 1, dtype="int32")
arange(0f, 10f, 1f)
arange(start=0, stop=5)
einsum(%e, equation="ij,jk->ik")
sort(%x)
sort(%x, axis=1, is_ascend=False)
argsort(%x, axis=1)
topk(%x, k=2)
topk(%x, k=2, ret_type="values")
scatter_nd(%ss, %ix, %f5)
scatter_nd(%ss, %ix, %f5, mode="add")
shape_of(%x)
ndarray_size(%x)
image.grid_sample(%i, %g, layout="NHWC")
image.grid_sample(%i, %g)
image.resize1d(%y, size=[5])
image.resize3d(%d, size=[3, 3, 3])
image.affine_grid(%aff, target_shape=[4, 5])
vision.roi_align(%i, %rois, pooled_size=[2, 2], spatial_scale=1f)
vision.all_class_non_max_suppression(%bx, %sc, max_output_boxes_per_class=2, iou_threshold=0.5f)
nn.adaptive_avg_pool1d(%y, output_size=[2])
nn.adaptive_avg_pool3d(%d, output_size=[2, 2, 2])
nn.adaptive_max_pool1d(%y, output_size=[2])
nn.adaptive_max_pool2d(%i, output_size=[2, 2])
nn.adaptive_max_pool3d(%d, output_size=[2, 2, 2])
nn.avg_pool1d(%y, pool_size=[2], padding=[0, 0])
nn.avg_pool3d(%d, pool_size=[2, 2, 2], padding=[0, 0, 0, 0, 0, 0])
nn.max_pool1d(%y, pool_size=[2], padding=[0, 0])
nn.max_pool3d(%d, pool_size=[2, 2, 2], padding=[0, 0, 0, 0, 0, 0])
nn.global_avg_pool1d(%y)
nn.global_avg_pool3d(%d)
nn.global_max_pool1d(%y)
nn.global_max_pool3d(%d)
nn.conv1d(%y, %yk, padding=[1, 1], channels=6, kernel_size=[3])
nn.conv3d(%d, %dk, padding=[0, 0, 0, 0, 0, 0], channels=6, kernel_size=[2, 2, 2])
nn.conv1d_transpose(%y, %yl, padding=[0, 0], channels=6, kernel_size=[3])
nn.conv3d_transpose(%d, %dl, padding=[0, 0, 0, 0, 0, 0], channels=6, kernel_size=[2, 2, 2])
nn.batch_to_space_nd(%bs, block_shape=[2, 2], crops=[[0, 0], [0, 1]])
nn.space_to_batch_nd(%i, block_shape=[2, 2], paddings=[[0, 0], [0, 0]])
nn.dilate(%x, strides=[1, 2, 3])
nn.fifo_buffer(%x, %x, axis=1)
nn.mirror_pad(%x, pad_width=[[0, 0], [1, 1], [0, 0]])
nn.nll_loss(%lo, %o, %v)
nn.cross_entropy(%lo, %lo)
nn.cross_entropy_with_logits(%lo, %lo)
nn.upsampling3d(%d, scale_d=2f, scale_h=2f, scale_w=2f)
nn.upsampling(%i, scale_h=2f, scale_w=2f, method="bilinear")
meshgrid(%mm)
adv_index(%ai)
argwhere(%q)
collapse_sum_like(%x, %c)
collapse_sum_to(%x, shape=[4])
cumprod(%x, axis=1)
cumsum(%x, axis=1, dtype="float64", exclusive=True)
fixed_point_multiply(%n, multiplier=1073741824, shift=1)
invert_permutation(%p)
layout_transform(%i, src_layout="NCHW", dst_layout="NHWC")
layout_transform(%i, src_layout="NCHW", dst_layout="NCHW2c")
one_hot(%o, 1f, 0f, depth=4, axis=-1, dtype="float32")
reinterpret(%x, dtype="int32")
reverse_reshape(%x, newshape=[6, -1])
searchsorted(%f, %f)
segment_sum(%ss, %ids, num_segments=3)
sequence_mask(%lo, %v3, mask_value=-1f)
sliding_window(%x, axis=1, window_shape=[2, 2], strides=[1, 1])
sparse_to_dense(%o, %o, 0, output_shape=[5])
sparse_to_dense(%o, %o, output_shape=[5])
strided_set(%x, %x2, begin=[0, 0, 0], end=[2, 3, 2])
trilu(%x, 0, upper=False)
trunc_divide(%x, %x)
trunc_mod(%n, %n)
unravel_index(%o, shape=[3, 4])
take(%x, %n, axis=1)
gather_nd(%x, %ii, batch_dims=1)
qnn.quantize(%x, %s, %z, out_dtype="int8")
qnn.dequantize(%x8, %s, %z)
qnn.requantize(%n32, %s, %z, %s, %z, out_dtype="int8")
qnn.dense(%i8, %w8, %z, %z, %s, %s, units=5, out_dtype="int32")
qnn.batch_matmul(%x8, %b8, %z, %z, %s, %s, out_dtype="int32")
qnn.conv2d(%g8, %k8, %z, %z, %s, %s, kernel_size=[3, 3], padding=[1, 1, 1, 1], out_dtype="int32")
qnn.conv2d_transpose(%g8, %l8, %z, %z, %s, %s, padding=[0, 0, 0, 0], out_dtype="int32")
qnn.add(%x8, %x8, %s, %z, %s, %z, %s, %z)
qnn.subtract(%x8, %x8, %s, %z, %s, %z, %s, %z)
qnn.mul(%x8, %x8, %s, %z, %s, %z, %s, %z)
qnn.concatenate(%t8, %ts, %tz, %s, %z)
qnn.avg_pool2d(%g8, %s, %z, %s, %z, pool_size=[2, 2])
qnn.softmax(%x8, %s, %z, %s, %z)
qnn.leaky_relu(%x8, %s, %z, %s, %z, alpha=0.1f)
qnn.abs(%x8, %s, %z, %s, %z)
qnn.erf(%x8, %s, %z, %s, %z)
qnn.exp(%x8, %s, %z, %s, %z)
qnn.hardswish(%x8, %s, %z, %s, %z)
qnn.log(%x8, %s, %z, %s, %z)
qnn.rsqrt(%x8, %s, %z, %s, %z)
qnn.sigmoid(%x8, %s, %z, %s, %z)
qnn.sqrt(%x8, %s, %z, %s, %z)
qnn.tanh(%x8, %s, %z, %s, %z)
nn.mirror_pad(%x, pad_width=[[0, 0], [1, 1], [0, 2]], mode="REFLECT")
trilu(%x, -1)
""".strip().splitlines()

# What is printed by its parts, or by the operator that it is: why.
AS_PARTS = {
    "annotation.checkpoint": "as a value it is its operand",
    "annotation.stop_fusion": "as a value it is its operand",
    "copy": "as a value it is its operand",
    "broadcast_to_like": "broadcast_to: of the second operand nothing but its shape is used",
    "cast_like": "cast: of the second operand nothing but its dtype is used",
    "reshape_like": "reshape: of the second operand nothing but its shape is used",
    "slice_like": "strided_slice: of the second operand nothing but its shape is used",
    "mean_std": "a tuple of mean and std",
    "mean_variance": "a tuple of mean and variance",
    "unique": "a tuple of four results or five",
}


def text_of(call):
    """A function of what `call` reads."""
    names = sorted(set(re.findall(r"%(\w+)", call)))
    return f"def @main({', '.join(f'%{n}: {TYPES[n]}' for n in names)}) {{ {call} }}"


@pytest.mark.parametrize("call", PRINTED)
def test_a_call_is_printed_as_it_is_read(call):
    assert body(returns(text_of(call))) == call


def test_every_operator_of_several_is_among_them():
    named = {call.partition("(")[0] for call in (*PRINTED, *CALLS_AS_PRINTED)}
    for name in CALLS.keys() - named - AS_PARTS.keys():
        kinds = relay.text.operator(name).signature.parameters.values()
        # Those of tensors alone are tried in tests/relay/test_relay_text.py.
        assert all(p.default is p.empty for p in kinds), name


MATRIX = "def @main(%x: Tensor[(2, 3), float32]) "


def test_what_others_read_too_is_printed_itself():
    assert body(returns(MATRIX + "{ std(%x, axis=[1]) }")) == "std(%x, axis=[1])"
    mod = relay.parse(MATRIX + "{ nn.l2_normalize(%x, eps=1f, axis=[1]) }")
    main = mod["main"]
    (block,) = main.body.blocks
    square = block.bindings[0].var
    both = main.replace(
        body=main.body.replace(body=relay.Tuple([main.body.body, square])), ret_struct_info=None
    )
    mod["main"] = relax.Function(main.params, both.body)
    assert "l2_normalize" not in body(returns(None, relay.transform.InferType()(mod)))


def test_what_passes_changed_is_printed_as_it_is():
    mod = relay.parse(MATRIX + "{ std(multiply(%x, %x), axis=[1]) }")
    assert "std(%0, axis=[1])" in str(relay.transform.FoldConstant()(mod))
    fused = relay.transform.FuseOps(0)(mod)
    assert "variance(%p01, axis=[1])" in str(returns(None, fused))
    assert "std(" not in str(fused)


def test_parts_outside_of_a_branch_stay_there():
    text = """
        def @main(%c: bool, %x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32]) {
          %0 = transpose(%w, axes=None);
          if (%c) { nn.matmul(%x, %0, units=None) } else { zeros(shape=[2, 4], dtype="float32") }
        }"""
    assert "nn.dense" not in str(returns(text))


def test_what_stands_before_the_functions_returns():
    mod = relay.parse("def @f(%x: int32) { %x } def @main(%x: int32) { @f(%x) }")
    mod = mod.with_attrs(
        {
            "a": 1,
            "b c": [1, 2.5, "x", None, True],
            "map": {"k": "v"},
            "constant": relay.const([1.0, 2.0]),
            "entry": mod.get_global_var("f"),
        }
    )
    devices = [tvm.ir.VDevice("llvm"), tvm.ir.VDevice("cuda -arch=sm_80", 1, "shared.dyn")]
    mod.update_global_info("vdevice", devices)
    mod.update_global_info("dummy", [tvm.ir.DummyGlobalInfo()])
    returns(None, mod)
    text = mod.astext()
    assert 'global_infos {vdevice=["llvm:0:global", "cuda -arch=sm_80:1:shared.dyn"]' in text
    assert relay.parse(text).global_infos["vdevice"] == tuple(devices)
    assert relay.parse("attributes {a=1}").get_attr("a") == 1
    with pytest.raises(ParseError, match="there is no function @g"):
        relay.parse("attributes {a=@g}")
    with pytest.raises(ParseError, match="wanted a name such as"):
        relay.parse('global_infos {vdevice=["x:y"]}')
