"""Ten graphs of every kind, built as users build them."""

import functools
import gc
import weakref

import numpy as np
import pytest
from ten_graphs import NAMES, bound, check_meaning, flat, graph, small

from relaxvm import pipeline, relax
from relaxvm.ir import walk
from relaxvm.relax.frontend import nn
from relaxvm.runtime import VirtualMachine, cpu


@functools.cache
def built(name):
    return relax.build(small(name)[0], "llvm")


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_gives_what_its_operators_mean_in_both_ways_of_running(name):
    _, inputs, _ = small(name)
    compiled, interpreted = (
        VirtualMachine(built(name), cpu(), exec_mode=mode)["main"](*inputs)
        for mode in ("compiled", "bytecode")
    )
    check_meaning(name, compiled)
    for a, b in zip(flat(compiled), flat(interpreted)):
        np.testing.assert_array_equal(a, b)


def test_weights_given_when_a_graph_is_built_are_those_bound_before():
    mod, params, inputs = graph("inception")
    executable = relax.build(mod, "llvm", params=params)
    check_meaning("inception", VirtualMachine(executable, cpu())["main"](*inputs))


def test_a_cache_of_any_length_decodes_with_one_build():
    _, (token, place, cache), _ = small("gpt2_decode")
    main = VirtualMachine(built("gpt2_decode"), cpu())["main"]
    logits, longer = main(token, place, cache)
    again, longest = main(token, place + 1, longer)
    assert longest[0].shape[1] == cache[0].shape[1] + 2
    np.testing.assert_array_equal(longest[3].numpy()[:, :-1], longer[3].numpy())
    assert not np.array_equal(again.numpy(), logits.numpy())


def test_a_convolution_that_one_rule_has_split_is_passed_over_by_the_next():
    class Model(nn.Module):
        def __init__(self):
            self.conv = nn.Conv2D(8, 8, 3, 1, 1)

        def main(self, x):
            return nn.op.relu(self.conv(x))

    mod, params = Model().export({"main": {"x": nn.spec.Tensor([1, 8, 8, 8], "float32")}})
    weights = {name: np.ones(p.shape, "float32") for name, p in params.items()}
    main = VirtualMachine(relax.build(mod, "llvm", params=weights), cpu())["main"]
    assert main(np.ones((1, 8, 8, 8), "float32")).numpy().max() == 8 * 9 + 1


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_a_build_holds_weights_that_are_packed(name, monkeypatch):
    """Nor does a circle of objects, in which they would stay until the collector runs."""
    held = [bound(name)[0]]
    constants = [
        weakref.ref(e)
        for fn in held[0].functions.values()
        for e in walk(fn)
        if isinstance(e, relax.Constant) and e.data.ndim
    ]
    assemble, left = pipeline.assemble, []

    def seen(*args, **kwargs):
        left.append(sum(c() is not None for c in constants))
        return assemble(*args, **kwargs)

    monkeypatch.setattr(pipeline, "assemble", seen)
    gc.disable()
    try:
        pipeline.build_held(held, "llvm")
    finally:
        gc.enable()
    assert constants
    assert left == [0]
    assert held == []
