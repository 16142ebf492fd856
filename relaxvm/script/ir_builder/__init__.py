"""`IRBuilder`: functions and modules written by Python code, frame by frame, with the names of `I`,
`R` and `T`.

    with IRBuilder() as ib:
        with T.prim_func():
            T.func_name("double")
            A = T.arg("A", T.Buffer((16,), "float32"))
            with T.grid(16) as i:
                with T.block("b"):
                    vi = T.axis.spatial(16, i)
                    T.buffer_store(A, A[vi] * 2.0, [vi])
    func = ib.get()

What the names describe goes at once to the writer that the parser of script text uses too
(`reader.TIRParser`), or to `relax.BlockBuilder`. Mistakes are errors that show the caller's line.
"""

from ...base import submodules as _submodules
from .. import ir as ir
from .. import relax as relax
from .. import tir as tir
from .base import IRBuilder as IRBuilder
from .base import IRBuilderFrame as IRBuilderFrame

__getattr__ = _submodules(__name__, files="ir relax tir")
