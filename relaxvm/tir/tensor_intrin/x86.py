"""Dot products by the names that x86's have in TVM: 16 sums of 4 products."""

VNNI_DOT_16x4_INTRIN = "dot_16x4_vnni"
AVX512_DOT_16x4_INTRIN = "dot_16x4_avx512"
