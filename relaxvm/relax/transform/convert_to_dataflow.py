"""ConvertToDataflow: what has no effects goes into dataflow blocks.

    a = R.add(x, y)                            with R.dataflow():
    b = R.exp(a)                                   a = R.add(x, y)
    c = R.print(b, format="{}")                    b = R.exp(a)
    return b                                       R.output(b)
                                               c = R.print(b, format="{}")
                                               return b

Dataflow blocks that are there already stay as they are.
"""

from __future__ import annotations

import itertools

from ...base import PassError
from ...ir import IRModule, Node, PassContext
from ...ir.transform import function_pass
from ...ir.walk import transform
from ..analysis.purity import is_pure_call
from ..expr import Binding, BindingBlock, Call, DataflowBlock, Function, If, SeqExpr, Var
from ..struct_info import StructInfo
from .canonicalize_bindings import local_variables


@function_pass(opt_level=0)
def ConvertToDataflow(
    fn: Function, mod: IRModule, ctx: PassContext, *, min_size: int = 2
) -> Function:
    """Make dataflow blocks of bindings that follow one another and have no effects.

    min_size  the fewest bindings that are made a block
    """
    if not isinstance(min_size, int) or min_size < 1:
        raise PassError(f"ConvertToDataflow: min_size is a positive int, got {min_size!r}")
    return as_dataflow(fn, mod, min_size)


def as_dataflow(fn: Function, mod: IRModule, min_size: int = 1) -> Function:
    """`fn` with dataflow blocks of at least `min_size` bindings without effects."""

    def is_dataflow(b: Binding) -> bool:
        value = b.value
        return not isinstance(value, If) and (
            not isinstance(value, Call) or is_pure_call(value, mod)
        )

    def split(block: BindingBlock) -> list[BindingBlock]:
        if isinstance(block, DataflowBlock):
            return [block]
        runs: list[BindingBlock] = []
        plain: list[Binding] = []
        for dataflow, group in itertools.groupby(block.bindings, is_dataflow):
            bindings = tuple(group)
            if not dataflow or len(bindings) < min_size:
                plain += bindings
                continue
            if plain:
                runs.append(BindingBlock(plain, block.span))
                plain = []
            runs.append(DataflowBlock(bindings, block.span))
        if not runs:
            return [block]
        return [*runs, BindingBlock(plain, block.span)] if plain else runs

    def post(n: Node) -> Node | None:
        if not isinstance(n, SeqExpr):
            return None
        blocks = [part for block in n.blocks for part in split(block)]
        same = all(a is b for a, b in zip(blocks, n.blocks))
        return None if same else n.replace(blocks=tuple(blocks))

    changed = transform(fn, post, without=(Var, StructInfo, Call))
    return fn if changed is fn else local_variables(changed)
