"""Random graphs in Relay's spelling mean what numpy means."""

from __future__ import annotations

import pytest
from random_graphs import assert_close, random_graph, run

from relaxvm import relay


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_mean_what_numpy_means(seed):
    graph = random_graph(seed)
    assert_close(run(graph.mod, graph.arguments), graph.expected)
    typed = relay.transform.InferType()(graph.mod)
    assert_close(run(typed, graph.arguments), graph.expected)
