"""Passes in any order, then a build without any of its optional ones, at any level: after every
single one, down to planned memory, a module means what it meant (`CheckMeaning`).

The modules are those of `fuzz.graphs` in integers, random models in floats of a symbolic batch
(nothing, one and several; NaN and infinities too), layers that rewrites look for, and the ten
graphs of `bench/graphs.py`.
"""

from __future__ import annotations

import random

import ten_graphs
from pass_cases import random_model

from fuzz import graph_programs
from fuzz.graphs import OPTIONAL, PASSES, Outside
from fuzz.layer_models import layer_model
from relaxvm.ir import PassContext
from relaxvm.pipeline import run_stages
from relaxvm.relax import transform
from relaxvm.relax.transform import Normalize
from relaxvm.script import from_source
from relaxvm.testing import CheckMeaning

# Interpreted in seconds; the others take minutes.
QUICK = ("gpt2_decode", "llama_decode", "lstm")


# What has something to do where layers are still operators.
REWRITES = {
    p.info.name: p
    for p in (
        transform.AdjustMatmulOrder(),
        transform.BackwardFoldScaleAxis(),
        transform.CombineParallelBatchMatmul(),
        transform.CombineParallelConv2D(),
        transform.CombineParallelDense(2),
        transform.DecomposeOpsForInference(),
        transform.DivToMul(),
        transform.ExpandMatmulOfSum(),
        transform.FastMath(),
        transform.FlattenAtrousConv(),
        transform.FoldExplicitPadding(),
        transform.ForwardFoldScaleAxis(),
        transform.FuseAttention(),
        transform.FuseTransposeMatmul(),
        transform.RemoveRedundantReshape(),
        transform.ReorderPermuteDimsAfterConcat(),
        transform.ReorderTakeAfterMatmul(),
        transform.ToGraphNormalForm(),
    )
}
REWRITES["ConvertLayout(blocked)"] = transform.ConvertLayout(
    {"relax.nn.conv2d": ["NCHW2c", "OIHW2i2o"]}
)
EVERY = {**PASSES, **REWRITES}


def make(rng: random.Random) -> dict:
    kind = rng.choice(("program", "model", "layers", "layers", "graph"))
    text = graph_programs.program(rng.getrandbits(40), rng.choice((4, 8, 16)))
    return {
        "kind": kind,
        "lines": text.splitlines() if kind == "program" else [],
        "graph": rng.choice(QUICK),
        "seed": rng.getrandbits(30),
        "passes": rng.choices(list(EVERY if kind == "layers" else PASSES), k=rng.randint(0, 5)),
        "level": rng.randrange(5),
        "disabled": [n for n in OPTIONAL if rng.random() < 0.3],
    }


def module(case: dict) -> tuple:
    """The module, and the arguments of main; None: they are made."""
    if case["kind"] == "graph":
        return ten_graphs.small(case["graph"])[:2]
    if case["kind"] == "layers":
        return layer_model(random.Random(case["seed"])), None
    if case["kind"] == "model":
        return random_model(random.Random(case["seed"]))[0], None
    mod = from_source("\n".join(case["lines"]) + "\n")
    return mod, graph_programs.inputs(case["seed"], mod)


def check(case: dict) -> bool:
    mod, inputs = module(case)
    watch = CheckMeaning(inputs, functions=Outside().functions())
    options = {"opt_level": case["level"], "disabled_pass": case["disabled"]}
    with PassContext(**options, instruments=[watch]):
        for name in case["passes"]:
            mod = EVERY[name](mod)
        run_stages(Normalize()(mod))
    return bool(watch.checked)
