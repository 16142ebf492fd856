"""AllocateWorkspace: callers hand external kernels the memory that they need while they run."""

from __future__ import annotations

import numpy as np
import pytest
from pass_cases import becomes, parse, same_results, stays

from relaxvm.base import PassError
from relaxvm.relax.transform import AllocateWorkspace

V = 'R.Tensor((4,), "float32")'
BYTES = 'R.Tensor((64,), "uint8")'


def external(name, size, workspace=False):
    taken = f", workspace: {BYTES}" if workspace else ""
    handed = ", workspace" if workspace else ""
    return f"""
@R.function
def {name}(x: {V}{taken}):
    R.func_attr({{"Codegen": "lib"}})
    @R.function
    def local(y: {V}{taken.replace("workspace", "inner")}):
        R.func_attr({{"Composite": "lib.exp", "WorkspaceSize": {size}}})
        with R.dataflow():
            z = R.exp(y)
            R.output(z)
        return z
    gv = local(x{handed})
    return gv
"""


def main(workspace=False):
    first = (
        """
    workspace_main = R.builtin.alloc_tensor(
        R.shape([64]), R.dtype("uint8"), R.prim_value(0), R.str("global")
    )
"""
        if workspace
        else "\n"
    )
    handed = ", workspace_main" if workspace else ""
    return f"""
@R.function
def main(x: {V}):
    cls = Module{first}    with R.dataflow():
        a = cls.one(x{handed})
        b = cls.two(a{handed})
        R.output(b)
    return b
"""


def run(mod):
    if len(mod["one"].params) == 2:
        return mod
    return AllocateWorkspace()(mod)


def test_the_largest_workspace_serves_all_calls():
    before = external("one", 64) + external("two", 16) + main()
    made = becomes(run, before, external("one", 64, True) + external("two", 16, True) + main(True))
    same_results(parse(before), made, np.arange(4, dtype="float32") / 7)


def test_without_external_functions_nothing_is_done():
    stays(AllocateWorkspace(), external("one", 0) + external("two", 0) + main())


def test_a_size_that_is_no_number_of_bytes_is_an_error():
    with pytest.raises(PassError, match='two: the attribute "WorkspaceSize" .* got -1'):
        AllocateWorkspace()(parse(external("one", 64) + external("two", -1) + main()))
