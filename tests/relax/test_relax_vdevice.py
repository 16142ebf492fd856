"""Virtual devices: annotations, their inference, the passes that spread and change them, programs
that run.
"""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax
from relaxvm.ir import VDevice, assert_structural_equal, load_json, save_json, structural_equal
from relaxvm.relax import TensorStructInfo
from relaxvm.relax.analysis import struct_info_base_check, struct_info_lca, well_formed
from relaxvm.relax.transform import RealizeVDevice, UpdateVDevice
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

LLVM, OTHER, CUDA = VDevice("llvm"), VDevice("llvm", 1), VDevice("cuda -arch=sm_80")
TEXT = """
@I.ir_module
class Module:
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda -arch=sm_80"),
                                       I.vdevice("llvm", 1)]})

    @R.function
"""


def module(function):
    """A module of the three devices and one function given as text."""
    return from_source(TEXT + "\n".join(f"    {line}" for line in function.strip().splitlines()))


def realized(before, after):
    """RealizeVDevice makes `after` of `before`, which stays what it is; both are well formed."""
    before, untouched, after = module(before), module(before), module(after)
    assert_structural_equal(RealizeVDevice()(before), after)
    assert_structural_equal(before, untouched)
    for each in (before, after):
        assert well_formed(each)
        assert_structural_equal(from_source(each.script()), each)
        assert_structural_equal(load_json(save_json(each)), each)
    assert RealizeVDevice()(after) is after


# -- the node ------------------------------------------------------------------------------------


def test_devices_are_equal_if_written_the_same_however_given():
    assert VDevice("cuda -arch=sm_80") is VDevice({"kind": "cuda", "arch": "sm_80"}, 0, "global")
    assert VDevice(tvm.target.Target("llvm")) is LLVM
    assert LLVM is not OTHER and LLVM is not VDevice("llvm", 0, "shared")
    assert CUDA.kind == "cuda" and VDevice().kind == ""
    assert load_json(save_json(CUDA)) is CUDA


@pytest.mark.parametrize(
    "bad", [(3,), ("",), ("llvm", -1), ("llvm", "a"), ("llvm", True), ("llvm", 0, 7)]
)
def test_what_is_no_device_is_refused(bad):
    with pytest.raises(tvm.TVMError, match="vdevice: wanted"):
        VDevice(*bad)


def test_struct_info_takes_a_device_or_its_name():
    assert TensorStructInfo((2,), "float32", "llvm:1") is TensorStructInfo((2,), "float32", OTHER)
    assert R.Tensor((2,), "float32", vdevice="llvm").vdevice is LLVM
    assert R.Tensor((2,)) != R.Tensor((2,), vdevice="llvm")
    with pytest.raises(tvm.TVMError, match="vdevice"):
        TensorStructInfo((2,), "float32", 7)


def test_order_and_join_of_struct_info_on_devices():
    plain, here, there, nowhere = (
        TensorStructInfo((2,), "float32", d) for d in (None, LLVM, OTHER, VDevice())
    )
    checks = [(plain, here, 3), (here, plain, 1), (here, there, 0), (here, nowhere, 1)]
    checks += [(nowhere, here, 3), (here, here, 3)]
    for base, info, wanted in checks:
        assert struct_info_base_check(base, info) == wanted, (base, info)
    assert struct_info_lca(here, here) is here
    assert struct_info_lca(here, there) is plain
    assert struct_info_lca(here, plain) is plain


# -- inference -----------------------------------------------------------------------------------


def on(device, shape=(4, 4), dtype="float32", name="x"):
    return relax.Var(name, TensorStructInfo(shape, dtype, device))


def test_elementwise_operators_refuse_operands_on_two_devices():
    a, b, free = on(LLVM), on(CUDA, name="b"), on(None)
    for op in (relax.op.add, relax.op.less, relax.op.power, relax.op.logical_and):
        dtype = "bool" if op is relax.op.logical_and else "float32"
        x, y, z = (on(v.struct_info.vdevice, dtype=dtype) for v in (a, b, free))
        with pytest.raises(
            tvm.TVMError,
            match="the devices differ",
        ) as caught:
            op(x, y)
        assert "R.to_vdevice" in str(caught.value)
        assert op(x, z).struct_info.vdevice is LLVM
        assert op(z, y).struct_info.vdevice is CUDA
        assert op(z, z).struct_info.vdevice is None
    assert relax.op.add(a, relax.op.to_vdevice(b, LLVM)).struct_info.vdevice is LLVM
    assert relax.op.add(a, on(VDevice())).struct_info.vdevice is LLVM


def test_other_operators_of_several_tensors_give_a_known_device_only_if_all_agree():
    a, b, free = on(LLVM), on(CUDA, name="b"), on(None)
    for op in (
        relax.op.matmul,
        lambda x, y: relax.op.concat((x, y)),
        lambda x, y: relax.op.stack((x, y)),
        lambda x, y: relax.op.einsum((x, y), "ij,jk->ik"),
    ):
        assert op(a, a).struct_info.vdevice is LLVM
        assert op(a, free).struct_info.vdevice is LLVM
        assert op(free, b).struct_info.vdevice is CUDA
        assert op(a, b).struct_info.vdevice is None


def test_emit_te_gives_results_where_its_arguments_are():
    bb = relax.BlockBuilder()
    x = on(OTHER)
    with bb.function("main", [x]):
        y = bb.emit_te(lambda a: tvm.te.compute(a.shape, lambda *i: a(*i) + 1.0), x)
        assert y.struct_info.vdevice is OTHER
        bb.emit_func_output(y)


def test_to_vdevice_takes_a_device_and_gives_its_argument_there():
    assert relax.op.to_vdevice(on(LLVM), CUDA).struct_info.vdevice is CUDA
    for wrong in (7, "llvm:0", None):
        with pytest.raises(tvm.TVMError, match="dst_vdevice: wanted VDevice"):
            relax.op.to_vdevice(on(LLVM), wrong)
    with pytest.raises(tvm.TVMError, match="wanted a tensor"):
        relax.op.to_vdevice(relax.ShapeExpr([1]), CUDA)


@pytest.mark.parametrize("hint", [tvm.cpu(1), "cpu:1", "llvm:1", OTHER])
def test_hints_name_a_device_of_the_machine_in_several_ways(hint):
    call = relax.op.hint_on_device(on(None), hint)
    assert call.attrs["dst_vdevice"] == "cpu:1" and call.struct_info is on(None).struct_info


def test_a_hint_that_names_no_device_is_refused():
    for wrong in ("cpu:x", None, 1.5):
        with pytest.raises(tvm.TVMError, match="hint_on_device"):
            relax.op.hint_on_device(on(None), wrong)


# -- text ----------------------------------------------------------------------------------------


def test_names_of_devices_count_those_of_a_kind_or_all():
    mod = module(
        """
def main(a: R.Tensor((4,), "float32", "llvm:1"), b: R.Tensor((4,), "float32", "vdevice:1"),
         c: R.Tensor((4,), "float32", vdevice="cuda:0:global")):
    d = R.to_vdevice(b, "llvm:1")
    e = R.to_vdevice(c, dst_vdevice="vdevice:2")
    return (a, d, e)
"""
    )
    assert [p.struct_info.vdevice for p in mod["main"].params] == [OTHER, CUDA, CUDA]
    assert [f.vdevice for f in mod["main"].ret_struct_info.fields] == [OTHER] * 3
    assert_structural_equal(from_source(mod.script()), mod)
    assert_structural_equal(load_json(save_json(mod)), mod)


@pytest.mark.parametrize("name", ["llvm:2", "vdevice:3", "metal", "llvm:0:shared", "a:b:c:d"])
def test_a_name_that_the_module_does_not_declare_is_an_error_with_its_line(name):
    with pytest.raises(tvm.error.DiagnosticError, match="vdevice") as caught:
        module(f"def main(a: R.Tensor((4,), 'float32')):\n    return R.to_vdevice(a, {name!r})")
    assert caught.value.lineno == 9


def test_modules_with_other_devices_are_not_equal():
    text = "def main(a: R.Tensor((4,), 'float32', 'llvm:{}')):\n    return a"
    assert not structural_equal(module(text.format(0)), module(text.format(1)))


def test_a_declared_device_is_no_cast():
    """It is where the value is to be, and nothing that the program could check."""
    mod = module(
        """
def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32", "llvm:1"):
    y: R.Tensor((4,), "float32", "llvm:1") = R.negative(x)
    z = R.negative(x)
    return z
"""
    )
    bindings = [b for block in mod["main"].body.blocks for b in block.bindings]
    assert [type(b) for b in bindings] == [relax.VarBinding] * 2
    assert mod["main"].ret_struct_info.vdevice is OTHER
    with pytest.raises(tvm.TVMError, match="declared to return"):
        module(
            'def main(x: R.Tensor((4,), "float32", "llvm:0")) -> R.Tensor((4,), "float32", '
            '"llvm:1"):\n    return x'
        )


# -- RealizeVDevice ------------------------------------------------------------------------------


def test_devices_spread_from_an_annotated_binding_through_names_and_dataflow_blocks():
    realized(
        """
def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    with R.dataflow():
        a = x
        b = a
        c: R.Tensor((4,), "float32", "llvm:1") = R.add(b, x)
        d = R.multiply(c, y)
        R.output(d)
    return d
""",
        """
def main(x: R.Tensor((4,), "float32", "llvm:1"), y: R.Tensor((4,), "float32", "llvm:1")
         ) -> R.Tensor((4,), "float32", "llvm:1"):
    with R.dataflow():
        a = x
        b = a
        c = R.add(b, x)
        d = R.multiply(c, y)
        R.output(d)
    return d
""",
    )


def test_devices_spread_from_what_a_function_is_declared_to_return():
    realized(
        """
def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")
         ) -> R.Tuple(R.Tensor((4,), "float32", "cuda"), R.Tensor((4,), "float32")):
    a = R.negative(x)
    b = R.negative(y)
    t = (a, b)
    return t
""",
        """
def main(x: R.Tensor((4,), "float32", "cuda"), y: R.Tensor((4,), "float32", "cuda")
         ) -> R.Tuple(R.Tensor((4,), "float32", "cuda"), R.Tensor((4,), "float32", "cuda")):
    a = R.negative(x)
    b = R.negative(y)
    t = (a, b)
    return t
""",
    )


def test_a_move_separates_what_is_before_it_from_what_follows():
    realized(
        """
def main(x: R.Tensor((4,), "float32"), z: R.Tensor((4,), "float32")
         ) -> R.Tensor((4,), "float32", "cuda"):
    a: R.Tensor((4,), "float32", "llvm") = R.negative(x)
    b = R.to_vdevice(a, "cuda")
    c = R.add(z, z)
    d = R.multiply(b, c)
    return d
""",
        """
def main(x: R.Tensor((4,), "float32", "llvm"), z: R.Tensor((4,), "float32", "cuda")
         ) -> R.Tensor((4,), "float32", "cuda"):
    a = R.negative(x)
    b = R.to_vdevice(a, "cuda")
    c = R.add(z, z)
    d = R.multiply(b, c)
    return d
""",
    )


def test_hints_become_moves_only_where_something_is_elsewhere():
    realized(
        """
def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32"), z: R.Tensor((4,), "float32")
         ) -> R.Tensor((4,), "float32"):
    a = R.hint_on_device(y, R.cpu())
    b = R.add(x, a)
    c = R.hint_on_device(b, "cuda")
    d = R.add(c, c)
    e = R.hint_on_device(z, "cuda")
    f = R.multiply(d, e)
    return f
""",
        """
def main(x: R.Tensor((4,), "float32", "llvm"), y: R.Tensor((4,), "float32", "llvm"),
         z: R.Tensor((4,), "float32", "cuda")) -> R.Tensor((4,), "float32", "cuda"):
    a = y
    b = R.add(x, a)
    c = R.to_vdevice(b, "cuda")
    d = R.add(c, c)
    e = z
    f = R.multiply(d, e)
    return f
""",
    )


def test_devices_spread_through_branches_and_calls_of_packed_functions():
    realized(
        """
def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):
    if c:
        a = R.negative(x)
        r = a
    else:
        r = x
    s = R.call_pure_packed("f", r, sinfo_args=R.Tensor((4,), "float32"))
    t: R.Tensor((4,), "float32", "llvm:1") = R.abs(s)
    return t
""",
        """
def main(x: R.Tensor((4,), "float32", "llvm:1"), c: R.Tensor((), "bool")
         ) -> R.Tensor((4,), "float32", "llvm:1"):
    if c:
        a = R.negative(x)
        r = a
    else:
        r = x
    s = R.call_pure_packed("f", r, sinfo_args=R.Tensor((4,), "float32", "llvm:1"))
    t = R.abs(s)
    return t
""",
    )


def test_a_module_without_devices_is_left_alone():
    mod = from_source("@R.function\ndef main(x: R.Tensor((4,), 'float32')):\n    return R.abs(x)")
    mod = tvm.IRModule({"main": mod})
    assert RealizeVDevice()(mod) is mod


def test_a_hint_at_a_device_that_is_not_declared_is_an_error():
    mod = module("def main(x: R.Tensor((4,), 'float32')):\n    return R.hint_on_device(x, 'cpu:7')")
    with pytest.raises(ValueError, match="cpu:7.*does not declare.*it has: I.vdevice"):
        RealizeVDevice()(mod)


# -- UpdateVDevice -------------------------------------------------------------------------------


def test_update_replaces_a_declared_device_everywhere():
    text = """
def main(a: R.Tensor((4,), "float32", "{0}"), b: R.Tensor((4,), "float32", "llvm:0")
         ) -> R.Tensor((4,), "float32", "{0}"):
    c: R.Tensor((4,), "float32", "{0}") = R.to_vdevice(b, "{0}")
    d = R.add(a, c)
    return d
"""
    before = module(text.format("cuda:0"))
    after = UpdateVDevice(VDevice("metal", 2), 1)(before)
    assert before["main"].params[0].struct_info.vdevice is CUDA
    assert after.global_infos["vdevice"][1] is VDevice("metal", 2)
    wanted = (TEXT + text.replace("\n", "\n    ").format("metal:0")).replace(
        'I.vdevice("cuda -arch=sm_80")', 'I.vdevice("metal", 2)'
    )
    assert_structural_equal(after, from_source(wanted))
    assert well_formed(after)


@pytest.mark.parametrize("args", [(LLVM, 3), (LLVM, -1), ("llvm", 0), (LLVM, "0")])
def test_update_of_what_is_not_there_is_an_error(args):
    mod = module("def main(x: R.Tensor((4,), 'float32')):\n    return x")
    with pytest.raises(tvm.TVMError, match="UpdateVDevice"):
        UpdateVDevice(*args)(mod)


# -- running -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
@pytest.mark.parametrize("realize", [False, True])
def test_devices_of_the_host_are_one_memory(mode, realize):
    """All annotations hold at once, and the VM takes several of them."""

    @I.ir_module
    class Module:
        I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("llvm", 1)]})

        @T.prim_func
        def twice(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("b"):
                    vi = T.axis.remap("S", [i])
                    b[vi] = a[vi] * T.float32(2)

        @R.function
        def main(x: R.Tensor(("n", 4), "float32", "llvm:0"), y: R.Tensor((4,), "float32")):
            cls = Module
            a = R.to_vdevice(x, "llvm:1")
            b = R.hint_on_device(y, tvm.cpu(1))
            c = R.call_tir(cls.twice, (b,), out_sinfo=R.Tensor((4,), "float32", "llvm:1"))
            d = R.add(R.nn.softmax(a), c)
            return (d, a)

    mod = RealizeVDevice()(Module) if realize else Module
    vm = relax.VirtualMachine(
        relax.build(mod, "llvm", exec_mode=mode), [tvm.cpu(0), tvm.cpu(1)], exec_mode=mode
    )
    rng = np.random.default_rng(0)
    x, y = rng.random((3, 4), "float32"), rng.random(4, "float32")
    d, a = vm["main"](x, y)
    e = np.exp(x - x.max(-1, keepdims=True))
    np.testing.assert_allclose(d.numpy(), e / e.sum(-1, keepdims=True) + y * 2, rtol=1e-5)
    np.testing.assert_array_equal(a.numpy(), x)


@pytest.mark.parametrize(
    "body",
    [
        "def main(x: R.Tensor((4,), 'float32', 'cuda')):\n    return R.add(x, x)",
        "def main(x: R.Tensor((4,), 'float32')):\n    return R.to_vdevice(x, 'cuda')",
        "def main(x: R.Tensor((4,), 'float32')) -> R.Tensor((4,), 'float32', 'cuda'):\n"
        "    return R.add(x, x)",
        "def main(x: R.Tensor((4,), 'float32')):\n"
        "    y: R.Tensor((4,), 'float32', 'cuda') = R.add(x, x)\n    return y",
    ],
)
def test_a_build_for_a_device_that_is_no_cpu_is_refused(body):
    with pytest.raises(tvm.TVMError, match="cuda.*code is made for CPUs"):
        relax.build(module(body), "llvm")


CALLER = """
def inner(a: R.Tensor((4,), "float32"{0})) -> R.Tensor((4,), "float32"{0}):
    b: R.Tensor((4,), "float32", "{1}") = R.abs(a)
    return b
@R.function
def main(x: R.Tensor((4,), "float32"{0})) -> R.Tensor((4,), "float32"{0}):
    y = Module.inner(x)
    z: R.Tensor((4,), "float32", "{1}") = R.negative(y)
    return z
"""


def test_functions_that_call_each_other_change_together():
    mod = RealizeVDevice()(module(CALLER.format("", "cuda:0")))
    assert_structural_equal(mod, module(CALLER.format(', "cuda:0"', "cuda:0")))
    moved = UpdateVDevice(VDevice("llvm", 5), 1)(mod)
    assert well_formed(moved)
    (call, _) = moved["main"].body.blocks[0].bindings
    assert call.value.op is moved.get_global_var("inner")
    assert call.value.op.struct_info is moved["inner"].struct_info
    assert call.value.struct_info.vdevice is VDevice("llvm", 5)
    x = np.array([1, -2, 3, -4], "float32")
    got = relax.VirtualMachine(relax.build(moved), tvm.cpu())["main"](x)
    np.testing.assert_array_equal(got.numpy(), -abs(x))
