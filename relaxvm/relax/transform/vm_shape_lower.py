"""Symbolic shapes become work on a shape heap; struct info that is only declared is checked.

    before:  def main(x: R.Tensor((n, 64), "float32")):
                 lv = R.vm.alloc_tensor(storage, R.prim_value(0), R.shape([n, 10]), …)
    after:   def main(x: R.Tensor((n, 64), "float32")):
                 shape_heap = R.call_packed("vm.builtin.alloc_shape_heap", R.prim_value(1))
                 R.call_packed("vm.builtin.check_tensor_info", x, 2, R.dtype("float32"), "…")
                 R.call_packed("vm.builtin.match_shape", x, shape_heap, "…", 1, 0, 0, 64)
                 shape = R.call_packed("vm.builtin.make_shape", shape_heap, 1, 0, 0, 10)
                 lv = R.vm.alloc_tensor(storage, R.prim_value(0), shape, …)

Each symbol that is used has a slot of the heap. The first place that shows it alone (a dimension,
a `Prim` or `Shape` parameter, a `match_cast`) stores it, every other place compares. A computed
dimension such as ``2 * n`` gets a slot of its own, filled by `vm.builtin.shape_expr` as soon as
its symbols are known, so the order of parameters does not matter; a symbol that no place shows
alone is an error. Checked are the parameters, `match_cast`s, and the results of packed functions
and closures, of which only a declaration is known. Values of symbols that are no integers stay in
the variables that brought them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import CodegenError, VerifyError
from ...ir import FloatImm, IntImm, IRModule, Op, PassContext, PrimExpr, post_order, walk
from ...ir import Var as PrimVar
from ...ir.transform import function_pass
from ...runtime import Builtins, MakeCode, MatchCode
from ..expr import (
    Binding,
    Call,
    DataTypeImm,
    ExternFunc,
    Function,
    MatchCast,
    PrimValue,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..flow import BIND, events, is_symbolic, leaves, name_of
from ..known_ops import (
    CALL_INPLACE_PACKED,
    CALL_PURE_PACKED,
    INVOKE_CLOSURE,
    INVOKE_PURE_CLOSURE,
    OBJECT,
    VOID,
    builtin,
    builtin_of,
    discard,
)
from ..rewriter import RememberingRewriter
from ..struct_info import (
    Expr,
    FuncStructInfo,
    PrimStructInfo,
    SequenceStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ..vm_info import Names, bare_symbol, combine, expand_lets, runtime_info


@function_pass(opt_level=0)
def VMShapeLower(
    fn: Function, mod: IRModule, ctx: PassContext, *, emit_err_ctx: bool = True
) -> Function:
    """Lower symbolic shapes to the shape heap and insert run-time checks.

    emit_err_ctx  whether the checks say what is checked, and what was declared; if not, only in
                  which function, and the executable is smaller
    """
    name = _name_of(fn, mod)
    return fn if _is_lowered(fn, name) else _Lowering(name, emit_err_ctx).rewrite(fn)


def _is_lowered(fn: Function, name: str) -> bool:
    """Whether this pass put its checks of the parameters there, and nothing symbolic is left."""
    first = next((b for block in fn.body.blocks for b in block.bindings), None)
    if first is None or not fn.params:
        return False
    if builtin_of(getattr(first.value, "op", None)) in _HEAPS:
        first = fn.body.blocks[0].bindings[min(1, len(fn.body.blocks[0].bindings) - 1)]
    texts = (a.value for a in getattr(first.value, "args", ()) if isinstance(a, StringImm))
    if not any(t == name or t.startswith(f"{name}: parameter ") for t in texts):
        return False
    return not any(is_symbolic(e.value) for e in events(fn) if isinstance(e.value, Call))


_HEAPS = (Builtins.ALLOC_SHAPE_HEAP, Builtins.NULL_VALUE)


def _name_of(fn: Function, mod: IRModule) -> str:
    name = fn.get_attr("global_symbol")
    if name is None:
        name = next((gv.name_hint for gv, f in mod.items() if f is fn), "function")
    return str(name)


_LONGEST_PROGRAM = 64


class _Lowering(RememberingRewriter):
    """State: which expressions have a slot, and which slots (and made shapes) are filled at
    this point.
    """

    def __init__(self, name: str, says_what: bool = True) -> None:
        super().__init__()
        self.name = name
        self.says_what = says_what
        self.names = Names()
        self.heap = Var("shape_heap", OBJECT)
        self.slots: dict[PrimExpr, int] = {}
        self.known: dict[PrimExpr, bool] = {}
        self.brought: dict[PrimExpr, Expr] = {}
        self.made: dict[Any, Var] = {}
        self.first: list[Binding] = []
        self.heap_used = False

    # -- the walk ---------------------------------------------------------------------------------

    def begin(self, fn: Function) -> None:
        self.shown = _appearances(fn)
        wanted = [
            (
                p,
                p.struct_info,
                f"{self.name}: parameter {p.name_hint}: {self._text(p.struct_info)}",
                OBJECT,
            )
            for p in fn.params
        ]
        self._check(wanted, self.first, define=True)

    def prologue(self, fn: Function) -> Sequence[Binding]:
        if not self.heap_used:
            return self.first
        if self.slots:
            heap = builtin(Builtins.ALLOC_SHAPE_HEAP, (PrimValue(len(self.slots)),))
        else:
            heap = builtin(Builtins.NULL_VALUE, ())
        return [VarBinding(self.heap, heap), *self.first]

    def enter(self, fn: Function | None) -> None:
        if fn is not None:
            raise VerifyError(
                f"{self.name}: VMShapeLower works on functions without inner functions; "
                "run LambdaLift first"
            )
        super().enter(fn)

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        out: list[Binding] = []
        value = b.value
        if isinstance(b, MatchCast):
            operand = self.operand(value, out)
            of = f" of {self._text(value.struct_info)}" if isinstance(value, ShapeExpr) else ""
            text = f"{self.name}: match_cast {b.var.name_hint}{of}: {self._text(b.struct_info)}"
            self._check([(operand, b.struct_info, text, operand.struct_info)], out, define=True)
            return [*out, b.replace(value=operand)]
        if isinstance(value, Call):
            args = tuple([self.operand(a, out) for a in value.args])
            checked = _size_check(value)
            if checked is not None:
                args = (*args[:2], self._context(f"{self.name}: {checked.value}"), *args[3:])
            if any(a is not c for a, c in zip(args, value.args)):
                # An operator's result may now be described by the variable that holds its shape.
                info = None if isinstance(value.op, Op) else value.struct_info
                value = Call(value.op, args, value.attrs, value.sinfo_args, info, value.span)
        elif isinstance(value, (Tuple, ShapeExpr, PrimValue)):
            value = self._bound_value(value, out)
        if value is not b.value:
            out.append(b.replace(value=value))
        elif out:
            out.append(b)
        if isinstance(value, Call) and _is_only_declared(value) and b.var.struct_info is not VOID:
            checks: list[Binding] = []
            text = f"{self.name}: result of {name_of(value.op)}: {self._text(b.var.struct_info)}"
            self._check([(b.var, b.var.struct_info, text, OBJECT)], checks, define=False)
            if checks:
                return [*(out or (b,)), *checks]
        return out or None

    def operand(self, value: Expr, out: list[Binding]) -> Expr:
        if isinstance(value, Tuple):
            fields = tuple([self.operand(f, out) for f in value.fields])
            same = all(a is c for a, c in zip(fields, value.fields))
            return value if same else value.replace(fields=fields)
        if not isinstance(value, (ShapeExpr, PrimValue)) or _is_constant(value):
            return value
        key = value if isinstance(value, ShapeExpr) else value.value
        known = self.made.get(key)
        if known is not None:
            return known
        value_var = self._bound_value(value, out)
        if isinstance(value_var, Var):
            return value_var
        name = "shape" if isinstance(value, ShapeExpr) else "prim"
        var = Var(name, value.struct_info)
        self.remember(self.made, key, var)
        out.append(VarBinding(var, value_var))
        return var

    def _bound_value(self, value: Any, out: list[Binding]) -> Expr:
        """`value`, which is bound to a variable or about to be, as something the machine can
        make.
        """
        if isinstance(value, Tuple):
            return self.operand(value, out)
        if _is_constant(value):
            return value
        if isinstance(value, PrimValue):
            if value.value.dtype.is_float or _is_off_heap(value.value):
                return self._brought(value.value)
            pairs = [(MakeCode.LOAD_SHAPE, self._slot(value.value, out))]
            row = Builtins.MAKE_PRIM_VALUE
            if value.value.dtype.is_bool:
                # The heap holds integers.
                number = Var("number", OBJECT)
                out.append(VarBinding(number, builtin(row, self._heap_and(*pairs))))
                return builtin(Builtins.READ_IF_COND, (number,), value.struct_info)
        else:
            pairs, row = [], Builtins.MAKE_SHAPE
            for dim in value.values:
                if isinstance(dim, IntImm):
                    pairs.append((MakeCode.USE_IMM, int(dim)))
                else:
                    pairs.append((MakeCode.LOAD_SHAPE, self._slot(dim, out)))
        return builtin(row, self._heap_and(*pairs), value.struct_info)

    def _heap_and(self, *pairs: tuple[int, int]) -> list[Expr]:
        self.heap_used = True
        return [self.heap, *(PrimValue(int(n)) for pair in pairs for n in pair)]

    # -- slots ------------------------------------------------------------------------------------

    def _slot_number(self, expr: PrimExpr) -> int:
        return self.slots.setdefault(expr, len(self.slots))

    def _slot(self, expr: PrimExpr, out: list[Binding]) -> int:
        """The slot that holds `expr`, filled by bindings appended to `out` if it is not yet."""
        symbol = bare_symbol(expr)
        expr = expr if symbol is None else symbol
        if expr in self.known:
            return self._slot_number(expr)
        if isinstance(expr, PrimVar):
            raise VerifyError(
                f"{self.name}: symbol {expr.name} has no value here: no parameter or match_cast "
                f"before this place shows it alone, as a dimension R.Tensor(({expr.name},)) or a "
                f"R.Prim(value={expr.name})"
            )
        if isinstance(expr, IntImm):
            return self._compute(expr, (int(expr),), out)
        expr = expand_lets(expr)
        order = post_order(expr)
        uses: dict[int, int] = {}
        for n in order:
            for child in n._children_:
                uses[id(child)] = uses.get(id(child), 0) + 1
        programs: dict[int, tuple[Any, ...]] = {}
        for n in order:
            if not isinstance(n, PrimExpr):
                continue
            if n in self.known or isinstance(n, PrimVar):
                programs[id(n)] = (f"${self._slot(n, out)}",)
                continue
            operands = [programs[id(c)] for c in n._children_ if id(c) in programs]
            try:
                program = combine(n, operands)
            except CodegenError as error:
                raise CodegenError(f"{self.name}: {error}") from None
            shared = uses.get(id(n), 0) > 1 and len(program) > 1
            if n is not expr and (shared or len(program) > _LONGEST_PROGRAM):
                program = (f"${self._compute(n, program, out)}",)
            programs[id(n)] = program
        return self._compute(expr, programs[id(expr)], out)

    def _compute(self, expr: PrimExpr, program: tuple[Any, ...], out: list[Binding]) -> int:
        slot = self._slot_number(expr)
        items = [StringImm(i) if isinstance(i, str) else PrimValue(i) for i in program]
        self.heap_used = True
        call = builtin(Builtins.SHAPE_EXPR, (self.heap, PrimValue(slot), Tuple(items)), VOID)
        out.append(discard(call))
        self.remember(self.known, expr, True)
        return slot

    def _brought(self, expr: PrimExpr) -> Expr:
        """The variable that holds the value of a symbol that is no integer."""
        slot = self.brought.get(expr)
        if slot is not None:
            return slot
        if isinstance(expr, PrimVar):
            raise VerifyError(
                f"{self.name}: symbol {expr.name} has no value here: no parameter or match_cast "
                f"before this place is a R.Prim(value={expr.name})"
            )
        raise CodegenError(
            f"{self.name}: a scalar of dtype {expr.dtype} is not computed by the shape heap; "
            "run ComputeFloatScalars, which makes a loop function for it"
        )

    # -- checks -----------------------------------------------------------------------------------

    def _context(self, text: str) -> StringImm:
        """What a check begins its message with."""
        return StringImm(text if self.says_what else self.name)

    def _text(self, info: StructInfo) -> str:
        return str(runtime_info(info, self.names))

    def _check(
        self,
        wanted: Sequence[tuple[Expr, StructInfo, str, StructInfo]],
        out: list[Binding],
        define: bool,
    ) -> None:
        """Append checks that values are what is wanted: (value, wanted, text for messages, what is
        proven).

        Kinds come first, then dimensions; what needs symbols bound by a later value waits for it.
        Symbols first met are bound if `define`.
        """
        matches: list[_Match] = []
        stack = list(reversed(wanted))
        while stack:
            value, info, text, proven = stack.pop()
            if isinstance(info, TupleStructInfo):
                if not _needs_checks(info):
                    n_fields = PrimValue(len(info.fields))
                    out.append(
                        discard(
                            builtin(
                                Builtins.CHECK_TUPLE_INFO,
                                (value, n_fields, self._context(text)),
                                VOID,
                            )
                        )
                    )
                    continue
                self._check_tuple(value, info, text, stack, out)
                continue
            self._check_kind(value, info, text, proven, out)
            dims = _dims(info)
            if dims is not None:
                matches.append(_Match(value, info, dims, text))
        for m in matches:
            self._match(m, out, define)
        for m in matches:
            if m.waiting:
                self._match_waiting(m, out, define)

    def _check_tuple(
        self, value: Expr, info: TupleStructInfo, text: str, stack: list[Any], out: list[Binding]
    ) -> None:
        if not isinstance(value, Tuple):
            n_fields = PrimValue(len(info.fields))
            out.append(
                discard(
                    builtin(Builtins.CHECK_TUPLE_INFO, (value, n_fields, self._context(text)), VOID)
                )
            )
        for index in range(len(info.fields) - 1, -1, -1):
            field = info.fields[index]
            if not isinstance(field, TupleStructInfo) and not _needs_checks(field):
                continue
            if isinstance(value, Tuple):
                item: Expr = value.fields[index]
            else:
                known = value.struct_info
                shown = known.fields[index] if isinstance(known, TupleStructInfo) else OBJECT
                item = Var("field", shown)
                out.append(VarBinding(item, TupleGetItem(value, index, shown)))
            stack.append((item, field, f"{text}, field {index}: {self._text(field)}", OBJECT))

    def _check_kind(
        self, value: Expr, info: StructInfo, text: str, proven: StructInfo, out: list[Binding]
    ) -> None:
        context = self._context(text)
        if isinstance(info, TensorStructInfo):
            if isinstance(proven, TensorStructInfo) and _same_kind(info, proven):
                return
            dtype = DataTypeImm(info.dtype)
            call = builtin(
                Builtins.CHECK_TENSOR_INFO, (value, PrimValue(info.ndim), dtype, context), VOID
            )
        elif isinstance(info, ShapeStructInfo):
            if isinstance(proven, ShapeStructInfo) and info.ndim in (-1, proven.ndim):
                return
            call = builtin(Builtins.CHECK_SHAPE_INFO, (value, PrimValue(info.ndim), context), VOID)
        elif isinstance(info, PrimStructInfo):
            if isinstance(proven, PrimStructInfo) and proven.dtype is info.dtype:
                return
            call = builtin(
                Builtins.CHECK_PRIM_VALUE_INFO, (value, DataTypeImm(info.dtype), context), VOID
            )
        elif isinstance(info, SequenceStructInfo):
            if isinstance(proven, SequenceStructInfo) and proven.element is info.element:
                return
            element: Any = info.element
            if not isinstance(element, TensorStructInfo):
                element = TensorStructInfo(None, "void", None, -1)
            kind = PrimValue(element.ndim), DataTypeImm(element.dtype)
            call = builtin(Builtins.CHECK_SEQUENCE_INFO, (value, *kind, context), VOID)
        elif isinstance(info, FuncStructInfo):
            if isinstance(proven, FuncStructInfo):
                return
            call = builtin(Builtins.CHECK_FUNC_INFO, (value, context), VOID)
        else:
            return
        out.append(discard(call))

    def _match(self, m: _Match, out: list[Binding], define: bool) -> None:
        codes: list[tuple[int, int]] = []
        for dim in m.dims:
            symbol = bare_symbol(dim)
            if dim.dtype.is_float or _is_off_heap(dim):
                if isinstance(dim, PrimVar) and define and dim not in self.brought:
                    self.remember(self.brought, dim, m.value)
                codes.append((MatchCode.NO_OP, 0))
            elif isinstance(dim, IntImm):
                codes.append((MatchCode.ASSERT_EQUAL_TO_IMM, int(dim)))
            elif symbol is not None and symbol not in self.known:
                if define and self.shown.get(symbol, 0) > 1:
                    codes.append((MatchCode.STORE_TO_HEAP, self._slot_number(symbol)))
                    self.remember(self.known, symbol, True)
                else:
                    codes.append((MatchCode.NO_OP, 0))
            elif symbol is not None:
                codes.append((MatchCode.ASSERT_EQUAL_TO_LOAD, self._slot_number(symbol)))
            else:
                codes.append((MatchCode.NO_OP, 0))
                m.waiting = True
        self._emit_match(m, codes, out)

    def _match_waiting(self, m: _Match, out: list[Binding], define: bool) -> None:
        """Compare the computed dimensions, now that all symbols that can be known are."""
        codes: list[tuple[int, int]] = []
        for dim in m.dims:
            if isinstance(dim, IntImm) or bare_symbol(dim) is not None or dim.dtype.is_float:
                # Floats are not compared.
                codes.append((MatchCode.NO_OP, 0))
                continue
            unknown = [v for v in walk(dim) if isinstance(v, PrimVar) and v not in self.known]
            if unknown and not define:
                codes.append((MatchCode.NO_OP, 0))
                continue
            if unknown:
                names = ", ".join(dict.fromkeys(v.name for v in unknown))
                raise VerifyError(
                    f"{m.text}: cannot derive {names}: it appears only inside expressions; show it "
                    f"alone somewhere, as a dimension of another parameter or as a R.Prim parameter"
                )
            codes.append((MatchCode.ASSERT_EQUAL_TO_LOAD, self._slot(dim, out)))
        self._emit_match(m, codes, out)

    def _emit_match(self, m: _Match, codes: list[tuple[int, int]], out: list[Binding]) -> None:
        if all(code == MatchCode.NO_OP for code, _ in codes):
            return
        heap, *pairs = self._heap_and(*codes)
        is_number = isinstance(m.info, PrimStructInfo)
        row = Builtins.MATCH_PRIM_VALUE if is_number else Builtins.MATCH_SHAPE
        out.append(discard(builtin(row, (m.value, heap, self._context(m.text), *pairs), VOID)))


def _size_check(call: Call) -> StringImm | None:
    """What a check by CallTIRRewrite, which does not know the function's name, says; None for
    another call.
    """
    args = call.args
    known = builtin_of(call.op) is Builtins.MATCH_SHAPE
    if not known or len(args) < 3 or not isinstance(args[0], ShapeExpr):
        return None
    return args[2] if isinstance(args[2], StringImm) else None


class _Match:
    """Dimensions to compare: of what, and where that stands."""

    __slots__ = ("dims", "info", "text", "value", "waiting")

    def __init__(
        self, value: Expr, info: StructInfo, dims: tuple[PrimExpr, ...], text: str
    ) -> None:
        self.value = value
        self.info = info
        self.dims = dims
        self.text = text
        self.waiting = False


def _dims(info: StructInfo) -> tuple[PrimExpr, ...] | None:
    if isinstance(info, TensorStructInfo):
        return info.dims
    if isinstance(info, ShapeStructInfo):
        return info.values
    if isinstance(info, PrimStructInfo) and info.value is not None:
        return (info.value,)
    return None


def _same_kind(info: TensorStructInfo, proven: TensorStructInfo) -> bool:
    return info.ndim in (-1, proven.ndim) and (info.dtype is proven.dtype or info.dtype.bits == 0)


def _needs_checks(info: StructInfo) -> bool:
    kinds = TensorStructInfo, ShapeStructInfo, PrimStructInfo, FuncStructInfo, SequenceStructInfo
    return any(isinstance(n, kinds) for n in walk(info))


def _is_off_heap(expr: PrimExpr) -> bool:
    """Whether `expr` is a symbol whose value the shape heap does not hold."""
    return isinstance(expr, PrimVar) and not expr.dtype.is_int


def _is_constant(value: Expr) -> bool:
    if isinstance(value, ShapeExpr):
        return all(isinstance(d, IntImm) for d in value.values)
    return isinstance(value, PrimValue) and isinstance(value.value, (IntImm, FloatImm))


def _is_only_declared(value: Expr) -> bool:
    """Whether nothing but a declaration says what a call returns."""
    if not isinstance(value, Call):
        return False
    if isinstance(value.op, ExternFunc):
        own = builtin_of(value.op) not in (None, Builtins.INVOKE_CLOSURE)
        return not own and not value.attrs.get("dps")
    return isinstance(value.op, Var) or value.op in _DECLARED


_DECLARED = (INVOKE_CLOSURE, INVOKE_PURE_CLOSURE, CALL_PURE_PACKED, CALL_INPLACE_PACKED)


_SCALARS = (ShapeExpr, PrimValue)


def _appearances(fn: Function) -> dict[PrimVar, int]:
    """How often each symbol is written in parameters, match_casts, declared results, shapes and
    scalars.
    """
    roots: list[Any] = [p.struct_info for p in fn.params]
    for e in events(fn):
        if e.value is None:
            continue
        if e.kind is BIND:
            if isinstance(e.node, MatchCast):
                roots.append(e.node.struct_info)
            if _is_only_declared(e.value):
                roots.append(e.node.var.struct_info)
        roots += [n for n in leaves(e.value) if type(n) in _SCALARS]
    counts: dict[PrimVar, int] = {}
    for root in roots:
        for dim in _written_in(root):
            for v in walk(dim):
                if isinstance(v, PrimVar):
                    counts[v] = counts.get(v, 0) + 1
    return counts


def _written_in(root: Any) -> list[PrimExpr]:
    if isinstance(root, ShapeExpr):
        return list(root.values)
    if isinstance(root, PrimValue):
        return [root.value]
    if isinstance(root, TupleStructInfo):
        return [dim for field in root.fields for dim in _written_in(field)]
    return list(_dims(root) or ())
