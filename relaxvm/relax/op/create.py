"""Operators that make tensors: full, zeros, ones, arange, eye, tril, triu, hamming_window."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ... import tir
from ...base import UNKNOWN, DataType, Span, StructInfoError
from ...base import dtype as as_dtype
from ...ir.expr import (
    EQ,
    LE,
    LT,
    Add,
    Div,
    FloatImm,
    IntImm,
    Mul,
    PrimExpr,
    Select,
    Sub,
    Var,
    as_expr,
    cast,
    const,
)
from ...te import compute
from ..derive import simplify_expr
from ..expr import Call, PrimValue, const as constant
from ..struct_info import (
    Expr,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
)
