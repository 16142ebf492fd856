"""Texts in the form that TVM's releases printed are read: what is in them that we do not print."""

from __future__ import annotations

import pytest

import relaxvm as tvm
from relaxvm import relay

IMAGE, VECTOR = "Tensor[(1, 8, 6, 6), float32]", "Tensor[(8), float32]"
TEXTS = {
    "constants after a fold": """
        def @main(%x: Tensor[(1, 4, 6, 6), float32], %weight: Tensor[(8, 4, 3, 3), float32])
            -> Tensor[(1, 8, 4, 4), float32] {
          %0 = nn.conv2d(%x, %weight, padding=[0, 0, 0, 0]) /* ty=Tensor[(1, 8, 4, 4), float32] */;
          %1 = add(%0, 2f /* ty=float32 */ /* ty=float32 */) /* ty=Tensor[(1, 8, 4, 4), float32] */;
          %2 = multiply(%1, %1) /* ty=Tensor[(1, 8, 4, 4), float32] */;
          %3 = multiply(%1, %1) /* ty=Tensor[(1, 8, 4, 4), float32] */;
          add(%2, %3) /* ty=Tensor[(1, 8, 4, 4), float32] */
        }
        // meta data omitted. you can use show_meta_data=True to include meta data
        """,
    "a residual unit, fields without types": f"""
        #[version = "0.0.5"]
        def @main(%data: {IMAGE}, %bn_gamma: {VECTOR}, %bn_beta: {VECTOR}, %bn_mean: {VECTOR},
                  %bn_var: {VECTOR}, %conv_weight: Tensor[(8, 8, 3, 3), float32]) -> {IMAGE} {{
          %0 = nn.batch_norm(%data, %bn_gamma, %bn_beta, %bn_mean, %bn_var, epsilon=2e-05f)
               /* ty=({IMAGE}, {VECTOR}, {VECTOR}) */;
          %1 = %0.0;
          %2 = nn.relu(%1) /* ty={IMAGE} */;
          %3 = nn.conv2d(%2, %conv_weight, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3])
               /* ty={IMAGE} */;
          add(%3, %data) /* ty={IMAGE} */
        }}""",
    "A-normal form with integers": """
        fn (%x: Tensor[(5, 8, 4, 4), int32], %bias: Tensor[(8), int32])
            -> Tensor[(5, 8, 4, 4), int32] {
          let %x1: int32 = 1 /* ty=int32 */;
          let %x2: Tensor[(8), int32] = multiply(%bias, %x1) /* ty=Tensor[(8), int32] */;
          let %x3: Tensor[(8, 1, 1), int32] =
              expand_dims(%x2, axis=1, num_newaxis=2) /* ty=Tensor[(8, 1, 1), int32] */;
          let %x4: Tensor[(5, 8, 4, 4), int32] = add(%x, %x3) /* ty=Tensor[(5, 8, 4, 4), int32] */;
          %x4
        }""",
    "names of other frameworks": """
        def @main(%tf_bert/layer_._0/attention/self/Gather/resource: Tensor[(3, 4), float32],
                  %model.layers.0.weight: Tensor[(4), float32], %input.1: Tensor[(3, 4), float32],
                  %Placeholder:0: Tensor[(3, 4), float32]) {
          %0 = add(%tf_bert/layer_._0/attention/self/Gather/resource, %model.layers.0.weight);
          %1 = subtract(%0, %input.1);
          add(%1, %Placeholder:0)
        }""",
    "spans": """
        def @main(%x: Tensor[(2, 4), float32] /* ty=Tensor[(2, 4), float32] span=model:4:13 */)
            -> Tensor[(2, 4), float32] {
          nn.softmax(%x) /* ty=Tensor[(2, 4), float32] span=model/head:0:0 */
        } /* ty=fn (Tensor[(2, 4), float32]) -> Tensor[(2, 4), float32] span=from_string:4:3 */""",
    "fused functions with hashes": """
        def @main(%x: Tensor[(10), float32] /* ty=Tensor[(10), float32] */,
                  hash="92f1bb1cb6f3dbf2", executor="graph") -> Tensor[(10), float32] {
          %2 = fn (%p0: Tensor[(10), float32] /* ty=Tensor[(10), float32] */, Primitive=1,
                   hash="d75cd3a1a1a8d4ae") -> Tensor[(10), float32] {
            %0 = add(%p0, 1f /* ty=float32 */) /* ty=Tensor[(10), float32] */;
            %1 = exp(%0) /* ty=Tensor[(10), float32] */;
            log(%1) /* ty=Tensor[(10), float32] */
          } /* ty=fn (Tensor[(10), float32]) -> Tensor[(10), float32] */;
          %2(%x) /* ty=Tensor[(10), float32] */
        } /* ty=fn (Tensor[(10), float32]) -> Tensor[(10), float32] */""",
    "partitioned for another compiler": """
        def @tvmgen_default_lib_main_0(%lib_0_i0: Tensor[(10, 10), float32], Inline=1,
            Compiler="lib", global_symbol="tvmgen_default_lib_main_0", Primitive=1)
            -> Tensor[(10, 10), float32] {
          exp(%lib_0_i0) /* ty=Tensor[(10, 10), float32] */
        }

        def @main(%x: Tensor[(10, 10), float32]) -> Tensor[(10, 10), float32] {
          %0 = @tvmgen_default_lib_main_0(%x) /* ty=Tensor[(10, 10), float32] */;
          subtract(%0, %x) /* ty=Tensor[(10, 10), float32] */
        }""",
    "a composite": """
        def @main(%a: Tensor[(10, 10), float32], %b: Tensor[(10, 10), float32]) {
          %1 = fn (%FunctionVar_0_0: Tensor[(10, 10), float32],
                   %FunctionVar_0_1: Tensor[(10, 10), float32], Composite="add_relu",
                   PartitionedFromPattern="add_nn.relu_") -> Tensor[(10, 10), float32] {
            %0 = add(%FunctionVar_0_0, %FunctionVar_0_1) /* ty=Tensor[(10, 10), float32] */;
            nn.relu(%0) /* ty=Tensor[(10, 10), float32] */
          };
          %1(%a, %b) /* ty=Tensor[(10, 10), float32] */
        }""",
    "a quantised convolution": """
        def @main(%data: Tensor[(1, 4, 6, 6), uint8], %kernel: Tensor[(8, 4, 3, 3), int8],
                  %bias: Tensor[(8), int32]) {
          %0 = qnn.conv2d(%data, %kernel, 128 /* ty=int32 */, 0 /* ty=int32 */,
                          0.05f /* ty=float32 */, 0.02f /* ty=float32 */, padding=[1, 1, 1, 1],
                          channels=8, kernel_size=[3, 3], out_dtype="int32");
          %1 = nn.bias_add(%0, %bias) /* ty=Tensor[(1, 8, 6, 6), int32] */;
          %2 = qnn.requantize(%1, 0.001f, 0, 0.1f, 0, axis=1, out_dtype="int8");
          %3 = clip(%2, a_min=0f, a_max=127f) /* ty=Tensor[(1, 8, 6, 6), int8] */;
          qnn.dequantize(%3, 0.1f /* ty=float32 */, 0 /* ty=int32 */)
        }""",
    "fake quantisation": """
        def @main(%x: Tensor[(1, 3, 4, 4), int8]) {
          %0 = qnn.dequantize(%x, 2f, 114);
          %1 = nn.avg_pool2d(%0, pool_size=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0]);
          qnn.quantize(%1, 2f, 114, out_dtype="int8")
        }""",
    "a network of parts": """
        def @main(%data: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(16, 3, 8, 8), float32],
                  %fc: Tensor[(10, 16), float32], %fcb: Tensor[(10), float32]) {
          %0 = nn.conv2d(%data, %w, strides=[2, 2], padding=[3, 3, 3, 3], channels=16,
                         kernel_size=[8, 8]);
          %1 = nn.lrn(%0, size=3, alpha=0.0001f);
          %2 = nn.max_pool2d(%1, pool_size=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0]);
          %3 = nn.global_avg_pool2d(%2);
          %4 = nn.batch_flatten(%3);
          %5 = nn.dense(%4, %fc, units=10);
          %6 = nn.bias_add(%5, %fcb, axis=-1);
          nn.softmax(%6)
        }""",
    "split and its fields": """
        def @main(%x: Tensor[(1, 12), float32]) {
          %0 = split(%x, indices_or_sections=4, axis=1);
          %1 = %0.0;
          %2 = sigmoid(%1) /* ty=Tensor[(1, 3), float32] */;
          %3 = %0.2;
          %4 = tanh(%3) /* ty=Tensor[(1, 3), float32] */;
          %5 = multiply(%2, %4);
          %6 = (%5, %2, %0.3);
          concatenate(%6, axis=1)
        }""",
    "a branch": """
        def @main(%cond: bool, %x: Tensor[(2), float32]) {
          if (%cond) {
            add(%x, 1f) /* ty=Tensor[(2), float32] */
          } else {
            let %y = tanh(%x);
            multiply(%y, 2f) /* ty=Tensor[(2), float32] */
          }
        }""",
    "a loop": """
        def @main(%n: int32) -> int32 {
          let %while_loop = fn (%i: int32, %sum: int32) -> (int32, int32) {
            %0 = less(%i, %n) /* ty=bool */;
            if (%0) {
              %1 = add(%i, 1) /* ty=int32 */;
              %2 = add(%sum, %i) /* ty=int32 */;
              %while_loop(%1, %2) /* ty=(int32, int32) */
            } else {
              (%i, %sum)
            }
          };
          %3 = %while_loop(0 /* ty=int32 */, 0 /* ty=int32 */) /* ty=(int32, int32) */;
          %3.1
        }""",
    "a closure that is given": """
        def @apply(%f: fn (int32) -> int32, %x: int32) -> int32 { %f(%x) }
        def @main(%x: int32) -> int32 {
          %1 = fn (%y: int32) -> int32 { add(%y, %x) };
          @apply(%1, %x)
        }""",
    "sizes that are not known": """
        def @main(%x: Tensor[(?, 4), float32], %y: Tensor[(?, 4), float32]) {
          %0 = (%x, %y);
          %1 = concatenate(%0) /* ty=Tensor[(?, 4), float32] */;
          nn.relu(%1) /* ty=Tensor[(?, 4), float32] */
        }""",
    "numbers of all kinds": """
        def @main(%x: Tensor[(3), float64], %h: Tensor[(3), float16], %u: Tensor[(3), uint8]) {
          %0 = add(%x, 1e-12f64 /* ty=float64 */);
          %1 = multiply(%h, 0.5f16 /* ty=float16 */);
          %2 = right_shift(%u, 2u8 /* ty=uint8 */);
          %3 = cast(%2, dtype="int64");
          %4 = add(%3, -4i64);
          (%0, %1, %2, %4, True /* ty=bool */)
        }""",
    "shapes and slices": """
        def @main(%x: Tensor[(2, 3, 4), float32]) {
          %0 = reshape(%x, newshape=[-1, 0, 4]) /* ty=Tensor[(2, 3, 4), float32] */;
          %1 = reshape(%0, newshape=[0, -3]);
          %2 = strided_slice(%1, begin=[0, 0], end=[2, 6], strides=[1, 2], axes=None);
          %3 = transpose(%2, axes=[1, 0]);
          %4 = squeeze(%3, axis=[]);
          layout_transform(%x, src_layout="NCW", dst_layout="NWC")
        }""",
    "operands that are attributes too": """
        def @main() {
          %0 = arange(0f, 10f, 2f, start=meta[relay.Constant][0], stop=meta[relay.Constant][0],
                      step=meta[relay.Constant][0], dtype="float32");
          %1 = full(1f /* ty=float32 */, shape=[5], dtype="float32");
          add(%0, %1)
        }
        #[metadata]
        {"root": 1, "nodes": [{"type_key": ""},
          {"type_key": "Map", "keys": ["relay.Constant"], "data": [2]},
          {"type_key": "Array", "data": [3]},
          {"type_key": "relay.Constant",
           "attrs": {"_checked_type_": "0", "data": "0", "span": "0"}}],
         "b64ndarrays": [
          "P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAQAAAAIgAQACAAAAAAAAAAgAAAAAAAAAAACAPwAAAEA="],
         "attrs": {"tvm_version": "0.8.0"}}""",
    "parameters without types": """
        def @main(%x, %y) {
          %0 = add(%x, %y);
          nn.relu(%0)
        }""",
    "a program of one's own": """
        // As written by hand.
        def @main(%x: Tensor[(2, 2), float32], %y: Tensor[(2, 2), float32]) {
          /* infix */ let %z = %x * %y + 1.0 - %x / 2.0;
          %z < 3.0 == True
        }""",
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_tvm_printed_is_read(name):
    mod = relay.parse(TEXTS[name])
    assert mod.get_global_vars()
    again = relay.parse(mod.astext())
    assert again.astext() == mod.astext()
    tvm.ir.assert_structural_equal(again, mod)
