"""What a lowered loop function wants from its caller: parameters, symbols, dimensions as postfix
programs, accesses.
"""

from __future__ import annotations

from typing import Any

from ...base import CodegenError, DataType, NameSupply, record
from ...ir import Call, Cast, FloatImm, IntImm, PrimExpr, Var, is_const, post_order
from ...runtime import KernelParam
from ...runtime.dims import MAX_LENGTH, Dim
from ...tir import Buffer, PrimFunc, dim_operator
from ...tir.analysis import access_nodes, buffer_accesses, gathered_data
from ...tir.transform import size_bounds


@record
class Parameter:
    """One parameter: a scalar variable, or a buffer. `name` is unique in the function."""

    name: str
    var: Var
    buffer: Buffer | None
    access: str

    @property
    def dtype(self) -> DataType:
        """Of the scalar or of the buffer's elements."""
        return self.var.dtype if self.buffer is None else self.buffer.dtype


@record
class Signature:
    """Parameters in order, then the symbols that their shapes and strides bind, in order of first
    appearance.

    zeros  variables that are 0: the element offsets of buffers, whose data pointers are of their
    first elements
    tops   the greatest value a symbol may have: code relies on it
    """

    params: tuple[Parameter, ...]
    symbols: tuple[Var, ...]
    zeros: tuple[Var, ...]
    noalias: bool
    names: dict[Var, str]
    tops: dict[Var, int]

    def kernel_params(self) -> tuple[KernelParam, ...]:
        """The parameters as the runtime knows them."""
        params = []
        for param in self.params:
            if param.buffer is None:
                params.append(KernelParam(param.name, "scalar", param.dtype))
                continue
            shape, strides = (
                tuple(dim_of(e, self.names) for e in dims)
                for dims in (param.buffer.shape, param.buffer.strides)
            )
            params.append(
                KernelParam(param.name, "tensor", param.dtype, shape, strides or None, param.access)
            )
        return tuple(params)


def signature_of(fn: PrimFunc, nodes: list[Any] | None = None) -> Signature:
    """The signature of a function. Raises CodegenError for parameters that a kernel cannot take.

    nodes  its `access_nodes`, if they are at hand; [] where it does not matter what is written
    """
    nodes = access_nodes(fn) if nodes is None else nodes
    used, gathered = buffer_accesses(fn, nodes), gathered_data(fn, nodes)
    params: list[Parameter] = []
    names: dict[Var, str] = {}
    supply = NameSupply(joint="_")
    for var in fn.params:
        buffer = fn.buffer_map.get(var)
        name = supply.fresh(_plain((buffer.name if buffer is not None else var.name) or "arg"))
        if buffer is None:
            if var.dtype.kind in ("handle", "void") or var.dtype.lanes != 1:
                raise CodegenError(
                    f"parameter {var.name} is a bare {var.dtype}; give it a buffer "
                    f"with T.match_buffer"
                )
            names[var] = name
            params.append(Parameter(name, var, None, "r"))
            continue
        if buffer.dtype.lanes != 1:
            raise CodegenError(f"parameter {name}: a tensor of {buffer.dtype} cannot be passed")
        access = used.get(buffer, "r")
        if access == "r" and buffer.data in gathered:
            access = "g"
        params.append(Parameter(name, var, buffer, access))
    symbols: list[Var] = []
    zeros: list[Var] = []
    for param in params:
        for e in (*param.buffer.shape, *param.buffer.strides) if param.buffer else ():
            if isinstance(e, Var) and e not in names:
                if e.dtype.lanes != 1 or not e.dtype.is_int:
                    raise CodegenError(f"symbol {e.name} has dtype {e.dtype}; wanted an integer")
                names[e] = supply.fresh(_plain(e.name or "n"))
                symbols.append(e)
    for param in params:
        if param.buffer is None:
            continue
        offset = param.buffer.elem_offset
        if isinstance(offset, Var) and offset not in names:
            zeros.append(offset)
        elif not is_const(offset, 0):
            raise CodegenError(
                f"parameter {param.name}: its element offset must be 0 or a fresh variable; "
                "pass a view whose first element is meant"
            )
    noalias = bool(fn.get_attr("tir.noalias", False))
    return Signature(tuple(params), tuple(symbols), tuple(zeros), noalias, names, size_bounds(fn))


def _plain(name: str) -> str:
    return name[:200].replace("\0", "_")


def dim_of(root: PrimExpr, names: dict[Var, str]) -> Dim:
    """A dimension as an int or a postfix program over named symbols. Raises CodegenError for what
    has no such form.
    """
    if isinstance(root, IntImm):
        return root.value
    programs: dict[int, tuple[int | float | str, ...]] = {}
    for e in post_order(root, _operands):
        own: int | float | str | None
        if isinstance(e, Var):
            if e not in names:
                raise CodegenError(
                    f"symbol {e.name} stands only inside expressions; some dimension "
                    f"must be {e.name} itself"
                )
            own = f"${names[e]}"
        else:
            own = e.value if isinstance(e, (IntImm, FloatImm)) else dim_operator(e)
        if own is None and not isinstance(e, Cast):
            raise CodegenError(f"a dimension cannot be computed by {type(e).__name__}: {e!r}")
        program = [item for operand in _operands(e) for item in programs[id(operand)]]
        programs[id(e)] = (*program, own) if own is not None else (*program,)
        if len(program) >= MAX_LENGTH:
            raise CodegenError("a dimension is too long an expression")
    return programs[id(root)]


def _operands(e: Any) -> tuple[Any, ...]:
    return e.args if isinstance(e, Call) else tuple(e._children_)
