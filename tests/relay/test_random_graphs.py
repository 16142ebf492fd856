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


@pytest.mark.parametrize("seed", range(40))
def test_types_of_weights_follow_from_operators(seed):
    graph = random_graph(seed, untyped=True)
    typed = relay.transform.InferType()(graph.mod)
    for p in typed["main"].params:
        if p.name_hint in graph.weights:
            assert p.struct_info.dims == graph.weights[p.name_hint].shape
    assert "relay." not in typed.script()
    assert_close(run(typed, graph.arguments), graph.expected)
