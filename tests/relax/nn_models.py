"""Models written with `relax.frontend.nn` that tests and benchmarks share, and how they are run."""

import importlib.util
import pathlib
import sys

import numpy as np

from relaxvm.relax.frontend import nn

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "transformer_kv_cache.py"


def example():
    """The module of examples/transformer_kv_cache.py."""
    name = "transformer_kv_cache"
    if name not in sys.modules:
        found = importlib.util.spec_from_file_location(name, EXAMPLE)
        sys.modules[name] = importlib.util.module_from_spec(found)
        found.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def transformer(layers=12, dim=768, heads=12, kv_heads=4, vocab=32000, **options):
    """(IRModule, {name: Parameter}) of a decoder-only transformer with a KV cache: the functions
    `prefill` (of any number of tokens) and `decode`. The parameters have no values.
    """
    made = example()
    config = made.Config(vocab, layers, dim, heads, kv_heads, dim * 8 // 3, **options)
    return made.Transformer(config).export(made.SPEC)


def fill(module, seed=0):
    """`module` with random values for its parameters; gives them by name, as numpy arrays."""
    rng = np.random.default_rng(seed)
    values = {}
    for name, param in module.named_parameters():
        values[name] = (rng.standard_normal(param.shape) * 0.5).astype(param.dtype)
        param.data = values[name]
    return values


def model_of(forward):
    """A module without parameters whose `forward` is the function."""

    class Model(nn.Module):
        def __init__(self):
            self.forward = forward

    return Model()


def spec_of(**arrays):
    """{"forward": specs with the shapes and dtypes of the arrays}"""
    return {"forward": {n: nn.spec.Tensor(a.shape, str(a.dtype)) for n, a in arrays.items()}}


def run(forward, **arrays):
    """What `forward` gives for the arrays, built and run."""
    return model_of(forward).jit(spec_of(**arrays))(**arrays)
