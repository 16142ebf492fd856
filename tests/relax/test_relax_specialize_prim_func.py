"""SpecializePrimFuncBasedOnCallSite: loop functions say in which memory tensors are."""

from __future__ import annotations

from pass_cases import parse

from relaxvm.ir import IRModule
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.transform import SpecializePrimFuncBasedOnCallSite
from relaxvm.tir import PrimFunc

KERNEL = """
I.module_global_infos({"vdevice": [I.vdevice("llvm", 0, "global"), I.vdevice("llvm", 0, "fast")]})

@T.prim_func(private=True)
def exp(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("exp"):
            v = T.axis.spatial(4, i)
            B[v] = T.exp(A[v])
"""


def main(*scopes):
    """x0 -> x1 -> ..., each in the memory of this number."""
    infos = [f'R.Tensor((4,), "float32", "vdevice:{k}")' for k in scopes]
    lines = "".join(
        f"        x{k} = R.call_tir(cls.exp, (x{k - 1},), out_sinfo={info})\n"
        for k, info in enumerate(infos)
        if k
    )
    return f"""
@R.function
def main(x0: {infos[0]}):
    cls = Module
    with R.dataflow():
{lines}        R.output(x{len(infos) - 1})
    return x{len(infos) - 1}
"""


def scopes(mod):
    return {
        gv.name_hint: [b.scope() for b in fn.buffers]
        for gv, fn in mod.items()
        if isinstance(fn, PrimFunc)
    }


def run(text):
    mod = parse(text)
    before = dict(mod.functions)
    made = SpecializePrimFuncBasedOnCallSite()(mod)
    assert isinstance(made, IRModule)
    assert dict(mod.functions) == before
    assert_well_formed(made)
    assert SpecializePrimFuncBasedOnCallSite()(made) is made
    return mod, made


def test_buffers_have_the_scope_of_the_callers_tensors():
    _, made = run(KERNEL + main(1, 0))
    assert scopes(made) == {"exp": ["fast", "global"]}
    assert 'scope="fast"' in made.script()


def test_several_kinds_of_callers_are_several_functions():
    _, made = run(KERNEL + main(1, 1, 0, 0))
    assert scopes(made) == {
        "exp": ["global", "global"],
        "exp_1": ["fast", "fast"],
        "exp_2": ["fast", "global"],
    }
    text = made["main"].script()
    assert [text.count(f"{name},") for name in ("exp_1", "exp_2")] == [1, 1]


def test_where_nothing_is_said_or_new_the_module_is_the_same():
    mod, made = run(KERNEL + main(0, 0))
    assert made is mod


def test_a_public_function_stays_as_it_is():
    _, made = run((KERNEL + main(1, 1)).replace("@T.prim_func(private=True)", "@T.prim_func"))
    assert scopes(made) == {"exp": ["global", "global"], "exp_1": ["fast", "fast"]}
