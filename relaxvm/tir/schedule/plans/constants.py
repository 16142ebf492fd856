"""Layouts in which kernels want their constant inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....base import record
from ...index_map import IndexMap
from ...stmt import Buffer


@record
class ConstantLayout:
    """How a rule would have an input if that were known when the kernel is built.

    index_map  from the indices of the input to those in the wanted layout, a bijection
    pack       an array of the input -> the same elements in that layout
    """

    buffer: Buffer
    index_map: IndexMap
    pack: Callable[[np.ndarray], np.ndarray]
