"""Relay's passes: those of the graph language by Relay's names and levels."""

from ...base import submodules as _submodules
from .infer_type import InferType as InferType

__getattr__ = _submodules(__name__)
