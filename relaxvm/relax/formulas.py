"""What calls of operators compute, as formulas (`te`) of tensors: operators infer and check as in a
graph, and their legalisation is taken through a builder that keeps te functions as they are and
loop functions as `te.extern_primfunc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..base import TIRError
from ..ir import INT64, BaseFunc, Cast, IntImm, PrimExpr, cast
from ..ir import Var as TirVar
from ..ir.walk import transform
from ..te import Tensor, compute, extern, placeholder
from ..tir import Buffer, PrimFunc, const, decl_buffer
from .expr import Call, Constant, GlobalVar, PrimValue, Tuple, TupleGetItem, Var
from .op.record import Op
from .shape_facts import ShapeFacts
from .struct_info import Expr, ShapeExpr, TensorStructInfo, TupleStructInfo


class Formulas:
    """The builder that legalisations see, as far as they need one: calls become tensors."""

    def __init__(self) -> None:
        self.tensors: dict[Var, Tensor] = {}
        self.functions: dict[GlobalVar, PrimFunc] = {}
        self.legalised: dict[Any, Any] = {}
        self.legalising: Call | None = None
        self.facts = ShapeFacts()
        # What the user gave, with dimensions and symbols in int64 as graphs have them; and back.
        self.wide: dict[Any, Any] = {}
        self.back: dict[Any, Any] = {}

    # -- arguments and results --

    def argument(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.variable(self.widened(value))
        if isinstance(value, PrimExpr):
            return self.scalar(value)
        if isinstance(value, (list, tuple)):
            return type(value)([self.argument(v) for v in value])
        return value

    def widened(self, tensor: Tensor) -> Tensor:
        dims = [self.scalar(d) for d in tensor.shape]
        if all(a is b for a, b in zip(dims, tensor.shape)):
            # Itself: what it was made of is no part of the new formulas.
            self.back[tensor] = tensor
            return tensor
        if tensor not in self.wide:
            self.wide[tensor] = wide = placeholder(dims, tensor.dtype, tensor.name)
            self.back[wide] = tensor
        wider: Tensor = self.wide[tensor]
        return wider

    def scalar(self, value: PrimExpr) -> PrimExpr:
        """An integer expression in int64, another as it is."""
        if not value.dtype.is_int or (value.dtype is INT64 and isinstance(value, (IntImm, TirVar))):
            return value
        return transform(value, self.wider)

    def wider(self, n: Any) -> Any:
        if isinstance(n, IntImm) and n.dtype.kind == "int" and n.dtype.bits < 64:
            return IntImm(INT64, n.value)
        if isinstance(n, TirVar) and n.dtype.kind == "int" and n.dtype.bits < 64:
            if n not in self.wide:
                self.wide[n] = wide = type(n)(n.name, INT64)
                self.back[wide] = cast(INT64, n)
            return self.wide[n]
        return n.value if isinstance(n, Cast) and n.dtype is n.value.dtype else None

    def variable(self, tensor: Tensor) -> Var:
        name = tensor.op.name
        var = Var(name, TensorStructInfo(tensor.shape, tensor.dtype))
        self.tensors[var] = tensor
        return var

    def result(self, graph: Any) -> Any:
        if isinstance(graph, (list, tuple)):
            graph = Tuple(tuple(graph))
        value = self.value(graph)
        memo: dict[int, Any] = {}
        return self.given_back(value, memo) if isinstance(value, Expr) else value

    def given_back(self, value: Expr, memo: dict[int, Any]) -> Any:
        if isinstance(value, Tuple):
            return [self.given_back(f, memo) for f in value.fields]
        if isinstance(value, PrimValue):
            return transform(value.value, None, pre=self.back.get, memo=memo)
        if isinstance(value, ShapeExpr):
            return [transform(v, None, pre=self.back.get, memo=memo) for v in value.values]
        tensor = self.tensor(value)
        if tensor in self.back:
            # A result is never an argument itself, of which a loop function can have but one.
            tensor = compute(tensor.shape, tensor, "identity")
        return transform(tensor, None, pre=self.back.get, memo=memo)

    def tensor(self, value: Expr) -> Tensor:
        if isinstance(value, Constant) and len(value.data.shape) == 0:
            number = const(value.data.item(), value.data.dtype)
            return compute((), lambda: number, "constant")
        if value not in self.tensors:
            raise TIRError(
                f"a formula is of te tensors, scalar expressions and numbers, got "
                f"{type(value).__name__} of {value.struct_info}; arrays come by a te.placeholder"
            )
        return self.tensors[value]

    # -- what legalisations ask for --

    def emit(self, value: Any, name: str = "") -> Expr:
        return self.value(value)

    def match_cast(self, value: Any, info: Any, name: str = "", span: Any = None) -> Expr:
        pairs = zip(getattr(value.struct_info, "values", None) or (), info.values or ())
        raise self.doubt(", ".join(f"{a} = {b}" for a, b in pairs))

    def doubt(self, what: str) -> TIRError:
        op = self.legalising.op if self.legalising is not None else None
        name = op.short if isinstance(op, Op) else "this"
        return TIRError(
            f"{name} needs {what}, which is not known when formulas are written: use the same "
            f"symbol in the shapes, or relax.op in a graph, which checks it when the program runs"
        )

    def shape_facts(self) -> Iterator[ShapeFacts]:
        yield self.facts

    def add_func(self, func: BaseFunc, name: str) -> GlobalVar:
        assert isinstance(func, PrimFunc)
        gv = GlobalVar(name)
        self.functions[gv] = func
        return gv

    def formulas(self, fn: Callable[..., Any], args: Any, attrs: dict[str, Any]) -> Expr:
        """What the te function gives, as a graph value."""
        tensor = fn(*map(self.plain, args), **{k: self.plain(v) for k, v in attrs.items()})
        if isinstance(tensor, (list, tuple)):
            return Tuple(tuple(map(self.variable, tensor)))
        call = self.legalising
        if call is not None and len(call.args) == 2 and tensor.op.name == "compute":
            # As TVM names the blocks of operators of two operands: T_add.
            assert isinstance(call.op, Op)
            tensor = tensor.op.replace(name=f"T_{call.op.short}").output(0)
        return self.variable(tensor)

    def plain(self, value: Any) -> Any:
        """An argument as te functions take it."""
        if isinstance(value, (Var, Constant)):
            return self.tensor(value)
        if isinstance(value, PrimValue):
            return value.value
        if isinstance(value, ShapeExpr):
            return list(value.values)
        if isinstance(value, Tuple):
            return [self.plain(f) for f in value.fields]
        if isinstance(value, TupleGetItem):
            return self.plain(self.value(value))
        if isinstance(value, (list, tuple)):
            return type(value)([self.plain(v) for v in value])
        return value

    # -- values --

    def value(self, e: Any) -> Any:
        """A graph expression as variables, scalars, shapes, and tuples of them."""
        if isinstance(e, Tuple):
            return Tuple(tuple(map(self.value, e.fields)))
        if isinstance(e, TupleGetItem):
            return self.value(e.tuple_value).fields[e.index]
        if not isinstance(e, Call):
            return e
        assert isinstance(e.op, Op)
        if e.op.name == "relax.call_tir":
            return self.call_tir(e)
        call = Call(e.op, tuple(map(self.value, e.args)), e.attrs, e.sinfo_args, None, e.span)
        lower = e.op.lower
        if e.op.name == "relax.call_pure_packed":
            raise self.doubt("sizes that are equal or 1")
        if not callable(lower):
            raise TIRError(f"{e.op.short}: no formula says what it does: use relax.op in a graph")
        self.legalising = call
        call = e.op.checked(self, call)
        lowered = lower(self, call)
        if lowered is None or lowered is call:
            raise TIRError(f"{e.op.short}: the shape of its result is not known")
        return self.value(lowered)

    def call_tir(self, call: Call) -> Expr:
        gv, inputs, *symbols = call.args
        assert isinstance(gv, GlobalVar)
        func = self.functions[gv]
        fields = self.value(inputs).fields
        tensors = [self.tensor(f) for f in fields if not isinstance(f, PrimValue)]
        info = call.struct_info
        infos: Any = info.fields if isinstance(info, TupleStructInfo) else (info,)
        shapes = iter([*((t.shape, t.dtype) for t in tensors), *((i.dims, i.dtype) for i in infos)])
        scalars = iter(
            [f.value for f in fields if isinstance(f, PrimValue)]
            + [v for s in symbols if isinstance(s, ShapeExpr) for v in s.values]
        )
        fixed: dict[Any, Any] = {}
        for param in func.params:
            old = func.buffer_map.get(param)
            fixed[param] = next(scalars) if old is None else decl_buffer(*next(shapes), old.name)
        buffers = [b for b in fixed.values() if isinstance(b, Buffer)]
        outputs = extern(
            [b.shape for b in buffers[len(tensors) :]],
            tensors,
            lambda *_: func.specialize(fixed).body,
            gv.name_hint,
            in_buffers=buffers[: len(tensors)],
            out_buffers=buffers[len(tensors) :],
        )
        values = tuple(map(self.variable, outputs if isinstance(outputs, list) else [outputs]))
        return Tuple(values) if isinstance(info, TupleStructInfo) else values[0]
