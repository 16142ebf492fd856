"""Values of graph functions: struct info, operators, and values inside values, each bound to a
variable.
"""

from __future__ import annotations

import ast
import re
from functools import partial
from types import ModuleType
from typing import Any

from ...base import UNKNOWN, NameSupply, ParseError, Span, StructInfoError
from ...ir import GlobalVar, Node, Op, PrimExpr, VDevice
from ...ir import Var as TirVar
from ...relax import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    FuncStructInfo,
    Function,
    MatchCast,
    ObjectStructInfo,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
    as_relax,
    is_leaf,
)
from ...relax.analysis import (
    BaseCheckResult,
    declared_check,
    definable_tir_vars_in_struct_info,
    loop_result,
)
from ...relax.normal_form import Normalizer, Scope
from ...tir import Buffer, PrimFunc
from . import records as rec
from .evaluate import Evaluator
from .guards import Guard, is_value, offered
from .outer import MISSING, Outer
from .proxies import DTypeFunction, Macro
from .source import Source
from .statements import FunctionParser, ModuleNames
from .struct_info import Maker, Symbols, as_struct_info, dimension_text

_TO_VDEVICE = Op.get("relax.to_vdevice")
_PACKED = (Op.get("relax.call_dps_packed"), Op.get("relax.call_inplace_packed"))


class FunctionSymbols(Symbols):
    """Strings in the struct info of a function: its symbols, and expressions over all names it
    sees.

    defines    unknown names become symbols of the function
    collects   the first look at a signature: expressions are not evaluated yet
    """

    def __init__(self, parser: RelaxValues, defines: bool = False, collects: bool = False) -> None:
        super().__init__()
        self._parser = parser
        self._defines = defines
        self._collects = collects

    def symbol(self, name: str) -> Any:
        parser = self._parser
        known = parser.find_symbol(name)
        if known is not MISSING:
            return known if parser.guard is None else parser.guard.used(known)
        if self._collects or self._defines or parser.in_callable():
            symbol = TirVar(name, parser.declared.get(name, "int64"))
            parser.define(name, symbol)
            return symbol
        raise StructInfoError(
            f"unknown symbol {name!r}: it stands in no parameter; define it with {name} = T.int64()"
        )

    def evaluate(self, text: str) -> Any:
        if self._collects:
            return 1
        parser = self._parser
        try:
            source, expression = dimension_text(text)
            outer, guard = parser.outer, parser.guard
            if guard is None:
                # The string may have come from anywhere, also to the user's own Python.
                outer, guard = _OnlyValues(*outer.layers), Guard(len(text))
            inner = Evaluator(source, outer, guard)
            inner.scopes = parser.scopes
            return inner.eval(expression)
        except ParseError as error:
            raise StructInfoError(f"in {text!r}: {error.msg}") from None

    def vdevice(self, value: Any) -> Any:
        infos = self._parser.module.global_infos if self._parser.module is not None else {}
        if not isinstance(value, str):
            return super().vdevice(value)
        named = VDevice.from_name(value)
        kind, index = named.kind, named.vdevice_id
        declared = [v for v in infos.get("vdevice", ()) if isinstance(v, VDevice)]
        same = declared if kind == "vdevice" else [v for v in declared if v.kind == kind]
        if value.count(":") == 2:
            same = [v for v in same if v.memory_scope == named.memory_scope]
        if index >= len(same):
            raise StructInfoError(
                f"vdevice {value!r}: the module declares {len(same)} of kind {kind!r}; "
                'declare it with I.module_global_infos({"vdevice": [I.vdevice(...)]})'
            )
        return same[index]


class _OnlyValues(Outer):
    """Of the names around a script only those of plain data, IR and the script languages."""

    __slots__ = ()

    def lookup(self, name: str) -> Any:
        value = super().lookup(name)
        is_room = isinstance(value, ModuleType) and offered(value, "max")
        return value if is_value(value) or is_room or name in ("min", "max") else MISSING


def declared_symbols(function: ast.AST) -> dict[str, str]:
    """The names that are bound by ``n = T.int64()`` or ``n = T.Var("n", "int64")`` in a function,
    and the dtypes.
    """
    symbols: dict[str, str] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        func = node.value.func
        if not isinstance(func, ast.Attribute):
            continue
        dtype: Any = func.attr
        if dtype in ("Var", "SizeVar"):
            options = [*node.value.args[1:], *(k.value for k in node.value.keywords)]
            dtype = getattr(options[-1], "value", None) if options else "int32"
        elif node.value.args or node.value.keywords:
            continue
        if not isinstance(dtype, str) or not _SCALAR_DTYPE.fullmatch(dtype):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name):
                symbols[target.id] = dtype
    return symbols


_SCALAR_DTYPE = re.compile("bool|u?int(8|16|32|64)|float(32|64)|bfloat16|float16")


class Body:
    """Bindings being collected into blocks.

    outputs  in a dataflow block: name -> number of the statement that binds the output
    symbols  those that casts in it bind, by identity
    """

    def __init__(self) -> None:
        self.blocks: list[BindingBlock] = []
        self.bindings: list[Binding] = []
        self.outputs: dict[str, int] | None = None
        self.symbols: set[int] = set()
        self.at = 0

    def flush(self, dataflow: bool, span: Any) -> None:
        if self.bindings or dataflow:
            kind = DataflowBlock if dataflow else BindingBlock
            self.blocks.append(kind(tuple(self.bindings), span))
        self.bindings = []


class RelaxValues(FunctionParser):
    """The state of one graph function being parsed, its struct info, and the values it binds."""

    language = "R"

    def __init__(
        self,
        source: Source,
        outer: Outer,
        guard: Guard | None,
        node: ast.FunctionDef,
        module: ModuleNames | None,
    ) -> None:
        super().__init__(source, outer, guard, node, module)
        self.params: list[Var] = []
        self.ret: StructInfo | None = None
        # Whether callers have been told `ret` already, so that it stays as it is.
        self.keeps_ret = False
        # What stands for a function that stands alone, in it.
        self.itself: GlobalVar | None = None
        self.pure = True
        self.private = False
        self.attrs: dict[str, Any] = {}
        self.bodies: list[Body] = []
        self.symbols: Symbols = FunctionSymbols(self)
        # Names that no part of the text has; functions inside this one share them.
        self.names = NameSupply(lambda: _names_in(self.node))
        self._declared: dict[str, str] | None = None
        # The function this one stands in.
        self._around: RelaxValues | None = None
        # The struct info being built, and all that stands inside R.Callable(...).
        self._making: ast.AST | None = None
        self._in_callables: set[ast.AST] | None = None

    # -- struct info

    def struct_info(self, node: ast.expr) -> StructInfo:
        """The struct info written at `node`."""
        value = self.eval(node)
        if value is None and self.node.returns is node:
            return TupleStructInfo(())
        if isinstance(value, DTypeFunction):
            self.fail(node, f'a scalar value is annotated R.Prim("{value.dtype}")')
        if isinstance(value, Buffer):
            self.fail(node, "a graph function takes tensors: use R.Tensor(...)")
        try:
            return as_struct_info(value)
        except StructInfoError as error:
            raise self.wrap(node, error) from error

    def find_symbol(self, name: str) -> Any:
        """What a string in struct info names: a symbol of the function, or one that Python code
        around it made. A Python number of that name is something else.
        """
        value = self.find(name)
        if value is MISSING or isinstance(value, (GlobalVar, ModuleNames)):
            outer = MISSING if name in self.declared else self.outer.lookup(name)
            return outer if isinstance(outer, PrimExpr) else MISSING
        return value

    def in_callable(self) -> bool:
        """Whether the struct info being built stands inside ``R.Callable(...)``, which binds the
        symbols of its parameters itself.
        """
        if self._in_callables is None:
            self._in_callables = set()
            for node in ast.walk(self.node):
                if isinstance(node, ast.Call) and called_name(node) == "Callable":
                    self._in_callables.update(ast.walk(node))
        return self._making in self._in_callables

    def is_bound_symbol(self, symbol: TirVar) -> bool:
        """Whether a parameter or a cast before this place binds `symbol`."""
        if any(id(symbol) in body.symbols for body in self.bodies):
            return True
        infos = (param.struct_info for param in self.params)
        if any(v is symbol for info in infos for v in definable_tir_vars_in_struct_info(info)):
            return True
        return self._around is not None and self._around.is_bound_symbol(symbol)

    @property
    def declared(self) -> dict[str, str]:
        """The names that the function declares as symbols (``n = T.int64()``), and their dtypes."""
        if self._declared is None:
            self._declared = declared_symbols(self.node)
        return self._declared

    # -- expressions

    def call(self, node: ast.Call, func: Any, args: list[Any], keywords: dict[str, Any]) -> Any:
        """A call of an operator, of a function of the graph language, or of Python."""
        if isinstance(func, Maker):
            self._making = node
            build = partial(func.build, self.symbols)
            if self.guard is None:
                return build(*args, **keywords)
            return self.guard.call(build, args, keywords)
        if isinstance(func, Macro):
            return self.expand(node, func, args, keywords)
        args = [_widest(a) for a in args]
        keywords = {k: _widest(v) for k, v in keywords.items()}
        if isinstance(func, GlobalVar):
            infos = keywords.pop("sinfo_args", ())
            if keywords:
                self.fail(node, f"{func.name_hint} takes its arguments by position")
            infos = infos if isinstance(infos, (tuple, list)) else (infos,)
            declared = tuple(as_struct_info(info) for info in infos)
            dtypes = self.module.return_dtypes if self.module is not None else {}
            gives = None
            if not declared and func.name_hint in dtypes:
                gives = loop_result(dtypes[func.name_hint])
            return Call(func, tuple(args), None, declared, gives, self.span(node))
        if isinstance(func, (PrimFunc, Function)):
            self.fail(node, _FROM_OUTSIDE.format(func.get_attr("global_symbol", "the function")))
        for value in (*args, *keywords.values()):
            if isinstance(value, (PrimFunc, Function)):
                name = value.get_attr("global_symbol", "the function")
                self.fail(node, _FROM_OUTSIDE.format(name))
        if getattr(func, "op", None) in _PACKED and args and isinstance(args[0], GlobalVar):
            # The module's name of a packed function.
            externs = self.module.externs if self.module is not None else {}
            args[0] = externs.get(args[0].name_hint, args[0])
        if getattr(func, "op", None) is _TO_VDEVICE:
            args[1:] = map(self.symbols.vdevice, args[1:])
            keywords = {
                k: self.symbols.vdevice(v) if k == "dst_vdevice" else v for k, v in keywords.items()
            }
        result = super().call(node, func, args, keywords)
        if isinstance(result, rec.EmitTe):
            result = self._emit_te(node, result)
        if isinstance(result, Call) and not result.span.source:
            result = result.replace(span=self.span(node))
        return result

    def _emit_te(self, node: ast.Call, spec: rec.EmitTe) -> Call:
        if self.module is None:
            self.fail(node, "R.emit_te adds a loop function to its module: write it in a class")
        if isinstance(spec.func, (Node, type)):
            what = getattr(spec.func, "name_hint", type(spec.func).__name__)
            self.fail(
                node,
                f"R.emit_te: wanted a Python function over te.Tensors, got {what}; "
                "a loop function of the module is called with R.call_tir",
            )
        return self.module.builder().call_te(spec.func, *spec.args, **spec.keywords)

    def subscript(self, node: ast.Subscript, value: Any, index: Any) -> Any:
        """A field of a tuple; otherwise what Python says."""
        if isinstance(value, Expr) and not isinstance(value, Tuple):
            if not isinstance(index, int) or isinstance(index, bool):
                self.fail(node, "a field of a tuple is taken by a constant number, as in t[0]")
            info = value.struct_info
            if isinstance(info, TupleStructInfo) and -len(info.fields) <= index < 0:
                index += len(info.fields)
            if hasattr(value, "values"):
                return value.values[index]
            if isinstance(info, TensorStructInfo):
                self.fail(node, "a tensor cannot be indexed here; use an operator such as R.take")
            return TupleGetItem(value, index, span=self.span(node))
        return super().subscript(node, value, index)

    def value(self, node: ast.AST, value: Any) -> Expr:
        """`value` as an expression of the graph language. Raises ParseError if it is none."""
        if isinstance(value, rec.Record):
            self.misplaced(node, value)
        if isinstance(value, (PrimFunc, Function)) and not isinstance(node, ast.FunctionDef):
            name = value.get_attr("global_symbol", "the function")
            self.fail(node, _FROM_OUTSIDE.format(name))
        if isinstance(value, (Maker, StructInfo)):
            self.fail(node, "struct info is no value; use it as an annotation or in R.match_cast")
        if value is None:
            self.fail(node, "this gives no value")
        try:
            return as_relax(value)
        except StructInfoError as error:
            raise self.wrap(node, error) from error

    def flat(self, root: Any, node: ast.AST) -> Any:
        """`root` with every value inside it bound to a fresh variable, so that its own parts are
        leaves.
        """
        return _Flattening(self, node).value(root)

    # -- bindings

    def _variable(self, name: str, info: StructInfo, node: ast.AST) -> Var:
        if self.guard is not None and isinstance(info, (TupleStructInfo, FuncStructInfo)):
            # Each binding is annotated with all of it.
            self.guard.used(info)
        body = self.bodies[-1]
        inner = body.outputs is not None and body.outputs.get(name) != body.at
        kind = DataflowVar if inner else Var
        return kind(name, info, self.span(node))

    def emit(
        self, name: str, value: Any, node: ast.AST, annotation: StructInfo | None = None
    ) -> Var:
        """Bind `value`, already flat, to a new variable called `name`."""
        info = value.struct_info
        if isinstance(value, GlobalVar) and info is None:
            info = ObjectStructInfo()
        if annotation is not None:
            sure = declared_check(annotation, info)
            if sure is BaseCheckResult.FAIL_L0:
                self.fail(node, f"{name} is annotated\n  {annotation}\nbut its value is\n  {info}")
            if sure is not BaseCheckResult.PASS:
                # More than can be inferred: checked when the program runs.
                return self.cast(name, value, annotation, node)
            info = annotation
        var = self._variable(name, info, node)
        self.bodies[-1].bindings.append(VarBinding(var, value, self.span(node)))
        return var

    def cast(
        self,
        name: str,
        value: Any,
        info: StructInfo,
        node: ast.AST,
        annotation: StructInfo | None = None,
    ) -> Var:
        """Bind `value`, already flat and checked when the program runs to be of `info`, to a new
        variable called `name`.
        """
        if not is_leaf(value):
            prefix = "gv" if self.bodies[-1].outputs is None else "lv"
            value = self.emit(self.names.fresh(prefix), value, node)
        var = self._variable(name, info if annotation is None else annotation, node)
        self.bodies[-1].bindings.append(MatchCast(var, value, info, self.span(node)))
        self.bodies[-1].symbols.update(map(id, definable_tir_vars_in_struct_info(info)))
        return var


_FROM_OUTSIDE = (
    "{} is a function from outside the module; define it in the same class and use its name, "
    "or add it with BlockBuilder.add_func"
)


def called_name(node: ast.Call) -> str:
    """The last part of the name that `node` calls, or ""."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _widest(value: Any) -> Any:
    """Bare makers among arguments as the struct info they mean."""
    if isinstance(value, Maker):
        return value()
    if isinstance(value, (list, tuple)) and any(isinstance(v, Maker) for v in value):
        return type(value)(_widest(v) for v in value)
    return value


class _Flattening(Normalizer):
    """Normal form whose bindings go where the reader is."""

    def __init__(self, reader: Any, node: ast.AST) -> None:
        super().__init__(NameSupply())
        self.reader, self.node = reader, node
        self.scopes.append(Scope())

    def bind(
        self, value: Expr, hint: str = "", *, as_output: bool = False, span: Span = UNKNOWN
    ) -> Var:
        reader = self.reader
        prefix = "gv" if reader.bodies[-1].outputs is None else "lv"
        var: Var = reader.emit(reader.names.fresh(prefix), value, self.node)
        return var


def _names_in(node: ast.AST) -> set[str]:
    names = set()
    for n in ast.walk(node):
        if isinstance(n, ast.Name):
            names.add(n.id)
        elif isinstance(n, ast.arg):
            names.add(n.arg)
        elif isinstance(n, ast.FunctionDef):
            names.add(n.name)
    return names
