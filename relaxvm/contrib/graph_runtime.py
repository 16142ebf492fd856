"""The name of `graph_executor` before TVM 0.8."""

from __future__ import annotations

import warnings
from typing import Any

from ..runtime import GraphModule as GraphModule
from ..runtime import create_graph


def create(graph_json_str: str, libmod: Any, device: Any) -> GraphModule:
    """See `graph_executor.create`."""
    warnings.warn(
        "contrib.graph_runtime: write contrib.graph_executor", DeprecationWarning, stacklevel=2
    )
    return create_graph(graph_json_str, libmod, device)
