"""The backward pass of image.resize2d."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ir import GT, PrimExpr, cast, const
from ....tir import Buffer, IfThenElse, Stmt, seq
from ....tir import all as all_of
from ...expr import Call
from ...rules import LowerBuilder, Ops
from ...struct_info import Expr, StructInfo
from ..faces import prepared
from ..image import plan_of, resize_layout, resize_settings
from ..infer import FLOAT, known_sizes, same_dtype, tensor
from ..loops import Names, call_sums, for_each, load, store
from ..nn.layout import Layout
from ..record import op
from ..resizing import Along, axis_taps
from ..sampling import NUMPY, TE, f64
from ..sizes import want_equal


def _numpy(output_grad: Any, data: Any, **attrs: Any) -> np.ndarray:
    """Along each axis resizing is a product with a matrix, and so is its gradient."""
    lay = resize_layout(attrs["layout"])
    g = lay.to_plain(np.asarray(output_grad), "NCHW").astype("float64")
    shape = lay.to_plain(np.asarray(data), "NCHW").shape
    matrices = []
    for n, way in zip(shape[2:], plan_of(lay, g.shape[2:], attrs)):
        m = way.out
        matrix, places = np.zeros((m, n)), np.arange(m, dtype="float64")
        taps, inside = axis_taps(places, np.float64(n), np.float64(m), way, attrs, NUMPY)
        for place, weight, _ in taps if n else ():
            taken = np.broadcast_to(place, places.shape).astype("int64")
            share = np.ones(m) if weight is None else weight
            share = share if inside is None else np.where(inside, share, 0)
            np.add.at(matrix, (np.arange(m), taken), share)
        matrices.append(matrix)
    grad = matrices[0].T @ (g @ matrices[1])
    return lay.from_plain(grad.reshape(shape), "NCHW").astype(np.asarray(data).dtype)


def _lower(builder: LowerBuilder, call: Call) -> Expr:
    g, data = call.args
    attrs = dict(call.attrs)
    lay = resize_layout(attrs["layout"])

    def add(g: Buffer, x: Buffer, *, out: list[Buffer]) -> Stmt:
        (total,) = out
        have, sizes = lay.sizes(x.shape), lay.sizes(g.shape)
        rows, columns = plan_of(lay, [sizes[a] for a in "HW"], attrs)

        def row(n: PrimExpr, c: PrimExpr, i: PrimExpr) -> Stmt:
            names = Names()
            of_row = _taps(names, i, have["H"], rows, attrs)

            def place(j: PrimExpr) -> Stmt:
                inner = Names("u")
                of_column = _taps(inner, j, have["W"], columns, attrs)
                grad = cast(total.dtype, load(g, *lay.index({"N": n, "C": c, "H": i, "W": j})))
                return inner.within(_add(lay, total, (n, c), grad, of_row, of_column))

            return names.within(for_each([sizes["W"]], place, "j"))

        # A symbolic size may turn out 0: there is no pixel to add to then.
        some = all_of(*(GT(have[a], const(0, have[a].dtype)) for a in "HW"))
        return IfThenElse(some, for_each([sizes[a] for a in "NCH"], row, "p"))

    return call_sums(builder, call, add, g, data)


def _taps(
    names: Names, i: PrimExpr, size: PrimExpr, way: Along, attrs: Any
) -> tuple[list[tuple[PrimExpr, Any]], Any]:
    """The pixels of an output place along one axis with their weights, and whether it is inside."""
    taps, inside = axis_taps(f64(i), f64(size), f64(way.out), way, attrs, TE)
    named = [
        (names.of(cast("int64", place)), None if weight is None else names.of(weight))
        for place, weight, _ in taps
    ]
    return named, None if inside is None else names.of(inside)


def _add(
    lay: Layout, total: Buffer, place: tuple[PrimExpr, PrimExpr], grad: PrimExpr, rows: Any,
    columns: Any,
) -> Stmt:  # fmt: skip
    (ys, in_y), (xs, in_x) = rows, columns
    steps = []
    for y, wy in ys:
        for x, wx in xs:
            to = lay.index({"N": place[0], "C": place[1], "H": y, "W": x})
            share = grad if wy is None else grad * cast(total.dtype, wy * wx)
            steps.append(store(total, load(total, *to) + share, *to))
    steps_of = seq(*steps)
    return steps_of if in_y is None else IfThenElse(all_of(in_y, in_x), steps_of)


def _grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, None]:
    """The backward pass is linear in the gradient it is given; `data` says only the shape."""
    attrs = dict(call.attrs)
    sizes = resize_layout(attrs["layout"]).sizes(known_sizes(call.args[0], "output_grad"))
    size = [sizes[a] for a in "HW"]
    return ops.image.resize2d(gy, size, **attrs), None


@prepared(resize_settings)
@op("grad.resize2d_backward", _numpy, _lower, _grad)
def resize2d_backward(
    output_grad: Expr,
    data: Expr,
    roi: Any = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
) -> StructInfo:
    """The gradient of image.resize2d with respect to `data`, given that of its result. Attributes
    are as there; what is extrapolated gives nothing.
    """
    values = {"roi": roi}
    resize_settings(values, method, coordinate_transformation_mode, rounding_method)
    lay = resize_layout(layout)
    x, g = (
        tensor(data, "data", FLOAT, lay.ndim),
        tensor(output_grad, "output_grad", FLOAT, lay.ndim),
    )
    same_dtype((g, x), ("output_grad", "data"))
    of_g, of_x = lay.sizes(g.dims), lay.sizes(x.dims)
    for axis, what in (("N", "samples"), ("C", "channels")):
        text = "output_grad: wanted {b} {what}, as data has; got {a}"
        want_equal(of_g[axis], of_x[axis], text, what=what)
    return x
