"""Every operator that is promised: by name, with TVM's parameters, in text and in Python."""

from __future__ import annotations

import inspect
import re

import pytest

from relaxvm import relax
from relaxvm.base import VerifyError
from relaxvm.relax import op as R
from relaxvm.relax.op.__main__ import records
from relaxvm.script import relax as script_relax

NAMES = """
    abs acos acosh asin asinh atan atanh bitwise_not ceil clip cos cosh erf exp floor isfinite isinf
    isnan log logical_not negative round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc
    log2 log10 log1p expm1
    add subtract multiply divide floor_divide mod floor_mod power minimum maximum logaddexp
    left_shift right_shift bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor
    equal not_equal less less_equal greater greater_equal
    where ewise_fma
    full full_like zeros zeros_like ones ones_like arange eye eye_like tril triu hamming_window
    astype wrap_param
    take strided_slice dynamic_strided_slice index_tensor gather_elements gather_nd
    scatter_elements scatter_nd index_put slice_scatter meshgrid one_hot
    broadcast_to concat expand_dims flatten layout_transform permute_dims repeat reshape
    reverse_sequence roll split squeeze stack tile flip collapse_sum_to collapse_sum_like unique
    nonzero bucketize
    matmul linear einsum outer dot
    sum mean prod max min std variance logsumexp cumsum cumprod median argmax argmin
    sort argsort topk searchsorted
    multinomial_from_uniform random.uniform random.normal
    nn.conv1d nn.conv2d nn.conv3d nn.conv1d_transpose nn.conv2d_transpose
    nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d
    nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d
    nn.relu nn.relu6 nn.leakyrelu nn.prelu nn.elu nn.selu nn.celu nn.gelu nn.gelu_tanh nn.silu
    nn.softplus nn.mish nn.hardswish nn.hardsigmoid nn.softmax nn.log_softmax nn.layer_norm
    nn.rms_norm nn.group_norm nn.instance_norm nn.batch_norm nn.dropout nn.attention
    nn.attention_var_len nn.cross_entropy_with_logits nn.nll_loss nn.pad nn.pixel_shuffle
    nn.depth_to_space nn.space_to_depth
    image.resize2d image.grid_sample vision.non_max_suppression vision.roi_align
    quantize dequantize requantize matmul_integer conv2d_integer qlinear_matmul qlinear_conv2d
    grad.nll_loss_backward grad.max_pool2d_backward grad.avg_pool2d_backward grad.take_backward
    grad.cumprod_backward grad.no_grad grad.start_checkpoint grad.end_checkpoint grad.te_gradient
    shape_of tensor_to_shape shape_to_tensor size inspect.tensor_ndim inspect.tensor_shape_i
    inspect.tensor_stride_i inspect.tensor_dtype_code inspect.tensor_dtype_bits
    inspect.tensor_dtype_lanes inspect.tensor_byte_offset inspect.tensor_elem_offset
    assert_op print call_builtin_with_ctx invoke_closure invoke_pure_closure make_closure
    to_vdevice hint_on_device null_value call_tir call_tir_inplace call_dps_packed
    call_pure_packed call_inplace_packed call_tir_with_grad
    memory.alloc_storage memory.alloc_tensor memory.kill_storage memory.kill_tensor memory.view
    memory.ensure_zero_offset builtin.alloc_tensor builtin.stop_lift_params
    vm.alloc_storage vm.alloc_tensor vm.kill_object vm.call_tir_dyn
""".split()

# Parameters in TVM's order, with TVM's defaults.
SIGNATURES = """
    arange(start, end=None, step=1, dtype=None)
    argmax(x, axis=None, keepdims=False)
    argmin(x, axis=None, keepdims=False)
    argsort(data, axis=-1, descending=False, dtype='int32')
    astype(x, dtype)
    broadcast_to(x, shape)
    bucketize(input_tensor, boundaries, out_int32=False, right=False)
    clip(x, min, max)
    collapse_sum_like(data, collapse_target)
    collapse_sum_to(data, shape)
    concat(tensors, axis=0)
    cumprod(data, axis=None, dtype=None, exclusive=False)
    cumsum(data, axis=None, dtype=None, exclusive=False)
    dynamic_strided_slice(x, begin, end, strides)
    einsum(operands, subscripts)
    ewise_fma(x1, x2, x3)
    expand_dims(x, axis)
    eye(n, m=None, k=0, dtype='float32')
    flatten(x)
    flip(data, axis)
    full(shape, fill_value, dtype=None)
    full_like(x, fill_value, dtype=None)
    gather_elements(data, indices, axis=0)
    gather_nd(data, indices, batch_dims=0)
    index_put(data, indices, values, accumulate=False)
    index_tensor(data, indices)
    layout_transform(x, index_map, pad_value=None, axis_separators=None, input_axis_separators=None)
    linear(data, weight, bias=None, out_dtype=None)
    matmul(x1, x2, out_dtype=None)
    max(x, axis=None, keepdims=False)
    mean(x, axis=None, keepdims=False)
    median(x, axis=None, keepdims=False)
    meshgrid(tensors, indexing='ij')
    min(x, axis=None, keepdims=False)
    multinomial_from_uniform(prob, uniform_sample, sample_indices=None, dtype='int64')
    nonzero(x)
    one_hot(indices, on_value, off_value, depth, axis=-1)
    ones(shape, dtype)
    ones_like(x, dtype=None)
    outer(x1, x2)
    permute_dims(x, axes=None)
    prod(x, axis=None, keepdims=False)
    repeat(data, repeats, axis=None)
    reshape(x, shape)
    scatter_elements(data, indices, updates, axis=0, reduction='update')
    scatter_nd(data, indices, updates, reduction='update')
    slice_scatter(input_tensor, src, start, end, step=1, axis=0)
    sort(x, axis=-1, descending=False)
    split(x, indices_or_sections, axis=0)
    squeeze(x, axis=None)
    stack(tensors, axis=0)
    std(x, axis=None, keepdims=False)
    strided_slice(x, axes, begin, end, strides=None, assume_inbound=False)
    sum(x, axis=None, keepdims=False)
    take(x, indices, axis=None, mode='fast')
    tile(data, repeats)
    topk(data, k=1, axis=-1, ret_type='both', largest=True, dtype='int32')
    tril(x, k=0)
    triu(x, k=0)
    unique(x, sorted=True, return_index=False, return_inverse=False, return_counts=False, axis=None)
    variance(x, axis=None, keepdims=False)
    where(condition, x1, x2)
    zeros(shape, dtype)
    zeros_like(x, dtype=None)
    call_tir_with_grad(gvar, args, out_sinfo, te_grad_name, te_grad_kwargs=None,
        tir_vars=None, dtype=None)
    grad.avg_pool2d_backward(output_grad, data, pool_size=1, strides=1, padding=0, dilation=1,
        ceil_mode=False, count_include_pad=False, layout='NCHW', out_layout=None)
    grad.max_pool2d_backward(output_grad, data, pool_size=1, strides=1, padding=0, dilation=1,
        ceil_mode=False, count_include_pad=False, layout='NCHW', out_layout=None)
    grad.nll_loss_backward(output_grad, predictions, targets, weights=None, reduction='mean',
        ignore_index=-100)
    grad.take_backward(output_grad, x, indices, axis=None)
    image.grid_sample(data, grid, method='bilinear', layout='NCHW', padding_mode='zeros',
        align_corners=False, in_pixels=False)
    image.resize2d(data, size, roi=None, layout='NCHW', method='linear',
        coordinate_transformation_mode='half_pixel', rounding_method='round',
        cubic_alpha='-0.75', cubic_exclude=0, extrapolation_value='0.0', out_dtype=None)
    memory.alloc_storage(size, virtual_device_index, storage_scope, dtype)
    memory.alloc_tensor(storage, offset, shape, dtype, runtime_device_ind=None)
    nn.adaptive_avg_pool2d(data, output_size=None, layout='NCHW', out_layout=None)
    nn.attention(query, key, value, bias=None, scale=None, causal_mask=None, window_size=None)
    nn.attention_var_len(queries, keys, values, seqstart_q, max_seqlen_q, seqstart_k=None,
        max_seqlen_k=None, scale=None, causal_mask=None, window_size=None)
    nn.avg_pool2d(data, pool_size=1, strides=1, padding=0, dilation=1, ceil_mode=False,
        count_include_pad=False, layout='NCHW', out_layout=None)
    nn.batch_norm(data, gamma, beta, moving_mean, moving_var, axis, epsilon='1e-05',
        center=True, scale=True, momentum='0.1', training=True)
    nn.conv1d(data, weight, strides=1, padding=0, dilation=1, groups=1, data_layout='NCW',
        kernel_layout='OIW', out_layout=None, out_dtype=None)
    nn.conv1d_transpose(data, weight, strides=1, padding=0, output_padding=0, dilation=1,
        groups=1, data_layout='NCW', kernel_layout='IOW', out_layout=None, out_dtype=None)
    nn.conv2d(data, weight, strides=1, padding=0, dilation=1, groups=1, data_layout='NCHW',
        kernel_layout='OIHW', out_layout=None, out_dtype=None)
    nn.conv2d_transpose(data, weight, strides=1, padding=0, output_padding=0, dilation=1,
        groups=1, data_layout='NCHW', kernel_layout='IOHW', out_layout=None, out_dtype=None)
    nn.conv3d(data, weight, strides=1, padding=0, dilation=1, groups=1, data_layout='NCDHW',
        kernel_layout='OIDHW', out_layout=None, out_dtype=None)
    nn.cross_entropy_with_logits(predictions, labels)
    nn.group_norm(data, gamma, beta, num_groups, channel_axis, axes, epsilon='1e-05',
        center=True, scale=True)
    nn.instance_norm(data, gamma, beta, channel_axis, axes, epsilon='1e-05', center=True,
        scale=True)
    nn.layer_norm(data, gamma, beta, axes=-1, epsilon='1e-05', center=True, scale=True)
    nn.leakyrelu(data, alpha='0.01')
    nn.max_pool2d(data, pool_size=1, strides=1, padding=0, dilation=1, ceil_mode=False,
        count_include_pad=False, layout='NCHW', out_layout=None)
    nn.nll_loss(predictions, targets, weights=None, reduction='mean', ignore_index=-100)
    nn.pad(data, pad_width, pad_mode='constant', pad_value='0.0')
    nn.pixel_shuffle(data, upscale_factor)
    nn.prelu(data, alpha, axis=1)
    nn.rms_norm(data, weight, axes=-1, epsilon='1e-05')
    nn.softmax(data, axis=-1)
    nn.softplus(data, beta='1.0', threshold='20.0')
    quantize(data, scale, zero_point, axis=-1, out_dtype='int8')
    dequantize(data, scale, zero_point, axis=-1, out_dtype='float32')
    vision.all_class_non_max_suppression(boxes, scores, max_output_boxes_per_class,
        iou_threshold, score_threshold, output_format='onnx')
    vision.roi_align(data, rois, pooled_size, spatial_scale, sample_ratio=-1, aligned=False,
        layout='NCHW', mode='avg')
    vm.alloc_storage(shape, runtime_device_index, dtype, storage_scope='global')
    vm.alloc_tensor(storage, offset, shape, dtype, runtime_device_ind=None)
"""

# What is a call of other operators has no record of its own.
WRITTEN_WITH_OTHERS = {"linear"}


def found(root, name):
    for part in name.split("."):
        root = getattr(root, part)
    return root


@pytest.mark.parametrize("name", NAMES)
def test_a_promised_operator_is_in_python_and_in_text(name):
    made = found(R, name)
    assert callable(made)
    assert made.__doc__ and made.__doc__.strip()
    assert found(script_relax, name) is made
    assert found(relax.op, name) is made


def test_every_promised_operator_has_a_record():
    by_name = {r.short for r in records()}
    silent = [n for n in NAMES if n not in by_name and n not in WRITTEN_WITH_OTHERS]
    assert not silent


@pytest.mark.parametrize("line", re.findall(r"\S.*?\)$", SIGNATURES, re.MULTILINE | re.DOTALL))
def test_parameters_are_those_of_tvm(line):
    name, _, rest = " ".join(line.split()).partition("(")
    parts = []
    for p in inspect.signature(found(R, name)).parameters.values():
        if p.name not in ("span", "sinfo_args"):
            default = (
                p.default if isinstance(p.default, (bool, int, type(None))) else str(p.default)
            )
            parts.append(p.name if p.default is p.empty else f"{p.name}={default!r}")
    assert f"{', '.join(parts)})" == rest


def test_an_operator_on_a_tensor_of_unknown_rank_says_what_to_write():
    x = relax.Var("x", relax.TensorStructInfo(None, "float32"))
    y = relax.Var("y", relax.TensorStructInfo(None, "void", ndim=2))
    known = relax.Var("z", relax.TensorStructInfo((2, 2), "float32"))
    for params, call, message in (
        ((x,), R.exp(x), r"relax.exp: the rank of x is not known, .*R.match_cast\(x, R.Tensor"),
        ((y,), R.abs(y), r"relax.abs: the dtype of y is not known, .*R.match_cast\(y"),
        ((known, x), R.concat([known, x]), r"relax.concat: the rank of x is not known"),
    ):
        builder = relax.BlockBuilder()
        with builder.function("main", params):
            builder.emit_func_output(builder.emit(call))
        with pytest.raises(VerifyError, match=message):
            relax.build(builder.get())


def test_names_that_stand_for_other_operators():
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    mask = relax.Var("m", relax.TensorStructInfo((2, 3), "bool"))
    made = R.masked_fill(x, mask, 0.5)
    assert made.op.short == "where"
    assert made.args[0] is mask and made.args[2] is x
    assert made.args[1].data.numpy().tolist() == 0.5
    assert script_relax.masked_fill is R.masked_fill
    assert R.log_add_exp is R.logaddexp
