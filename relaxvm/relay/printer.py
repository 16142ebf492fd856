"""Relay's text form of modules, functions and expressions.

    def @main(%x: Tensor[(1, 10), float32]) -> Tensor[(1, 10), float32] {
      %0 = add(%x, 1f /* ty=float32 */) /* ty=Tensor[(1, 10), float32] */;
      multiply(%0, %0) /* ty=Tensor[(1, 10), float32] */
    }

What is printed is the normal form: a variable that a `let` bound (or a cast, or a function that
calls itself by it) is one again, any other is a value with a number. Types stand in comments once a
function is in normal form, as `InferType` gives it. What Relay has no word for is a call of an
operator by its whole name, ``relax.``; loop functions stand in comments, as script text.
`relay.parse` reads everything but these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..base import NameSupply, Steps, run_steps
from ..ir import (
    Add,
    DummyGlobalInfo,
    FloatImm,
    FloorDiv,
    FloorMod,
    GlobalVar,
    IntImm,
    IRModule,
    Max,
    Min,
    Mul,
    Op,
    PrimExpr,
    Sub,
    VDevice,
    post_order,
    walk,
)
from ..ir import Var as Symbol
from ..relax import (
    Binding,
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    FuncStructInfo,
    Function,
    If,
    MatchCast,
    ObjectStructInfo,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from ..relax.normal_form import Normalizer, names_in
from ..tir import IndexMap
from .metadata import KEY, metadata_text
from .spelling import is_let
from .text import Spelling, spelled_as

VERSION = '#[version = "0.0.5"]'
_LEFT_OUT = "/* Constants are left out: astext(show_meta_data=True) writes them. */"
Annotate = Callable[[Any], str]


def astext(
    what: Any, show_meta_data: bool = True, annotate: Annotate | None = None, spans: bool = False
) -> str:
    """A module, a function or an expression as Relay's text, which `relay.parse` reads.

    show_meta_data  whether constants follow the text
    annotate        what stands behind a value (with its space and its comment marks) instead of
                    its type
    spans           whether it is said where values come from
    """
    printer = _Printer(annotate, spans)
    printer.top(what)
    lines = [VERSION, *printer.lines]
    if printer.constants:
        shown = ["#[metadata]", metadata_text(printer.constants)] if show_meta_data else [_LEFT_OUT]
        lines += ["", *shown]
    return "\n".join(lines) + "\n"


def pretty_print(what: Any) -> str:
    """The text that ``print(mod)`` shows: without version and constants."""
    printer = _Printer(None, False)
    printer.top(what)
    return "\n".join(printer.lines) + "\n"


# The names that normal form gives to values without one.
_UNNAMED = re.compile(r"(gv|lv)[\d_]*")
_UNSAID = re.compile(r"[^\w./]")
_LAST_NUMBER = re.compile(r"[./](?=\d*$)")
_DEEPEST_INDENT = 40
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class _Printer:
    """Lines of text, and the names in them."""

    def __init__(self, annotate: Annotate | None, spans: bool) -> None:
        self.annotate, self.spans = annotate, spans
        self.lines: list[str] = []
        self.depth = 0
        self.typed = True
        self.taken: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.free: list[Var] = []
        self.numbers = 0
        self.constants: list[Constant] = []
        self.constant_numbers: dict[int, int] = {}
        self.symbols: dict[int, str] = {}
        self.symbol_names = NameSupply()
        # By identity: how often something stands somewhere.
        self.uses: dict[int, int] = {}
        self.spelled: dict[int, Spelling | None] = {}
        self.absorbed: set[int] = set()
        # Keeps alive whose identity is a key above.
        self.kept: list[Any] = []

    # -- modules, functions, expressions -----------------------------------------------------------

    def top(self, what: Any) -> None:
        if isinstance(what, IRModule):
            for name, items in (("attributes", what.attrs), ("global_infos", what.global_infos)):
                if items:
                    self.lines.append(f"{name} {self.attribute(items)}")
            for gv, fn in what.items():
                if self.lines:
                    self.lines.append("")
                self.definition(gv, fn)
        elif isinstance(what, Function):
            self.whole(what, "fn ")
        elif isinstance(what, Expr):
            self.expression(what)
        else:
            self.lines += what.script().splitlines()

    def definition(self, gv: GlobalVar, fn: Any) -> None:
        if isinstance(fn, Function):
            self.whole(fn, f"def @{gv.name_hint}")
            return
        text = fn.script().replace("*/", "* /") if hasattr(fn, "script") else repr(fn)
        self.lines += [f"/* @{gv.name_hint} is no graph function:", *text.splitlines(), "*/"]

    def whole(self, fn: Function, head: str) -> None:
        normal = Normalizer(names_in(fn)).function(fn)
        self.typed = normal is fn
        self.study(normal)
        run_steps(self.function(normal, lambda: head, ""))

    def expression(self, value: Expr) -> None:
        """With the variables that it does not bind as ``free_var``."""
        seq = Normalizer(names_in(value)).seq(SeqExpr((), value))
        self.study(seq)
        run_steps(self.sequence(seq))
        declared = [f"free_var {self.declared(var)};" for var in self.free]
        self.lines[:0] = declared

    def study(self, root: Any) -> None:
        """What computes what, and which operands are part of what a call is called."""
        self.kept.append(root)
        bodies: list[list[Binding]] = []
        for n in walk(root):
            if isinstance(n, SeqExpr):
                bodies.append([b for block in n.blocks for b in block.bindings])
            for child in () if isinstance(n, Function) else n._children_:
                if isinstance(child, Expr):
                    self.uses[id(child)] = self.uses.get(id(child), 0) + 1
        for bindings in bodies:
            # Those of the same body: elsewhere it may be computed again, or not at all.
            inner = _computing({id(b.var): b.value for b in bindings if self.is_value(b)})
            for b in reversed(bindings):
                if type(b.value) is Call and id(b.var) not in self.absorbed:
                    spelling = spelled_as(b.value, inner, self.reads)
                    self.spelled[id(b.value)] = spelling
                    self.absorbed.update(id(v) for v in (spelling.absorbed if spelling else ()))

    def reads(self, operand: Expr) -> int:
        """How often an operand is read: wherever it stands but where it is bound."""
        return self.uses.get(id(operand), 0) - isinstance(operand, Var)

    def function(self, fn: Function, head: Callable[[], str], end: str) -> Steps:
        for param in fn.params:
            self.names[id(param)] = self.named(param.name_hint)
        line = self.reserve()
        yield self.body(fn.body)
        params = [self.declared(p, fn) for p in fn.params]
        params += [f"{_key(k)}={self.attribute(v)}" for k, v in fn.attrs.items()]
        params += [] if fn.is_pure else ["is_pure=False"]
        # Relay's types do not say where a tensor is: the body does.
        placed = any(isinstance(n, VDevice) for n in walk(fn.ret_struct_info))
        result = self.type(fn.ret_struct_info, fn) if self.typed and not placed else ""
        arrow = f"-> {result} " if result else ""
        self.lines[line] = f"{self.pad()}{head()}({', '.join(params)}) {arrow}{{"
        self.line("}" + end)

    def declared(self, var: Var, fn: Function | None = None) -> str:
        """A variable and its type."""
        text = self.type(var.struct_info, fn)
        return f"{self.names[id(var)]}: {text}" if text else self.names[id(var)]

    def body(self, seq: SeqExpr) -> Steps:
        self.depth += 1
        yield self.sequence(seq)
        self.depth -= 1

    def sequence(self, seq: SeqExpr) -> Steps:
        bindings = [
            b for block in seq.blocks for b in block.bindings if id(b.var) not in self.absorbed
        ]
        last = bindings[-1] if bindings else None
        for b in bindings:
            if b is last and b.var is seq.body and self.is_value(b) and self.uses[id(b.var)] == 2:
                yield self.value(b.value, lambda: "", "")
                return
            yield self.binding(b)
        yield self.value(seq.body, lambda: "", "")

    def is_value(self, b: Binding) -> bool:
        """Whether a binding only says that a value has a number."""
        return not (isinstance(b, MatchCast) or is_let(b) or _names_itself(b))

    def binding(self, b: Binding) -> Steps:
        var = b.var
        if self.is_value(b):

            def head() -> str:
                self.names[id(var)] = f"%{self.number()}"
                return f"{self.names[id(var)]} = "

        else:
            # As TVM calls what only its passes named.
            hint = "x" if _UNNAMED.fullmatch(var.name_hint) else var.name_hint
            self.names[id(var)] = self.named(hint)

            def head() -> str:
                kind = self.type(var.struct_info, comment=not isinstance(b, MatchCast))
                return f"let {self.names[id(var)]}{': ' * bool(kind)}{kind} = "

        if isinstance(b, MatchCast):
            self.line(f"{head()}match_cast({self.leaf(b.value)});")
            return
        yield self.value(b.value, head, ";")

    def value(self, value: Any, head: Callable[[], str], end: str) -> Steps:
        """The lines of a value; `head` comes before it, `end` after it."""
        if isinstance(value, If):
            condition, line = self.leaf(value.cond), self.reserve()
            yield self.body(value.true_branch)
            self.line("} else {")
            yield self.body(value.false_branch)
            self.lines[line] = f"{self.pad()}{head()}if ({condition}) {{"
            self.line("}" + end)
        elif isinstance(value, Function):
            yield self.function(value, lambda: f"{head()}fn ", end)
        else:
            text = self.flat(value)
            self.line(f"{head()}{text}{end}")

    # -- lines -------------------------------------------------------------------------------------

    def pad(self) -> str:
        # Text would grow with the square of the depth.
        return "  " * min(self.depth, _DEEPEST_INDENT)

    def line(self, text: str) -> None:
        self.lines.append(self.pad() + text)

    def reserve(self) -> int:
        """A line that is written once it is known what follows it."""
        self.lines.append("")
        return len(self.lines) - 1

    def number(self) -> int:
        self.numbers += 1
        return self.numbers - 1

    def named(self, hint: str) -> str:
        """A name for a variable: its own, with a number where another has it."""
        hint = _LAST_NUMBER.sub("_", _UNSAID.sub("_", hint).strip("./"))
        hint = hint if hint[:1].isalpha() or hint[:1] == "_" else f"v{hint}"
        name = hint
        while name in self.taken:
            self.taken[hint] += 1
            name = f"{hint}{self.taken[hint]}"
        self.taken[name] = 0
        return f"%{name}"

    # -- values ------------------------------------------------------------------------------------

    def flat(self, value: Any) -> str:
        """A value without bodies."""
        if type(value) is Call:
            return self.call(value) + self.remark(value)
        if type(value) is Tuple:
            return self.tuple(value) + self.remark(value)
        if type(value) is TupleGetItem:
            return f"{self.operand(value.tuple_value)}.{value.index}" + self.remark(value)
        return self.leaf(value)

    def call(self, call: Call) -> str:
        spelling = self.spelled.get(id(call))
        if spelling is not None:
            words = [self.operand(a) for a in spelling.args]
            words += [f"{_key(k)}={self.attribute(v)}" for k, v in spelling.attrs.items()]
            return f"{spelling.name}({', '.join(words)})"
        words = [self.operand(a) for a in call.args]
        words += [f"{_key(k)}={self.attribute(v)}" for k, v in call.attrs.items()]
        if call.sinfo_args:
            infos = ", ".join(self.type(i) or "Object" for i in call.sinfo_args)
            words.append(f"sinfo_args=[{infos}]")
        return f"{self.operand(call.op)}({', '.join(words)})"

    def operand(self, value: Any) -> str:
        """A leaf; a tuple has a line and a number of its own."""
        if type(value) is not Tuple:
            return self.leaf(value)
        text = self.tuple(value) + self.remark(value)
        name = f"%{self.number()}"
        self.line(f"{name} = {text};")
        return name

    def tuple(self, value: Tuple) -> str:
        fields = [self.operand(f) for f in value.fields]
        return f"({', '.join(fields)}{',' * (len(fields) == 1)})"

    def leaf(self, value: Any) -> str:
        show = _LEAVES.get(type(value))
        if show is not None:
            return show(self, value)
        if isinstance(value, Var):
            name = self.names.get(id(value))
            if name is None:
                name = self.names[id(value)] = self.named(value.name_hint)
                self.free.append(value)
            return name
        if isinstance(value, Op):
            return value.name
        return self.tuple(value) if type(value) is Tuple else self.flat(value)

    def constant(self, value: Constant) -> str:
        text = _scalar(value.data) if value.data.ndim == 0 else None
        if text is None:
            number = self.constant_numbers.setdefault(id(value), len(self.constants))
            if number == len(self.constants):
                self.constants.append(value)
            text = f"meta[{KEY}][{number}]"
        return text + self.remark(value)

    def remark(self, value: Any) -> str:
        """What is said of a value in a comment."""
        if self.annotate is not None:
            return self.annotate(value)
        kind = self.type(value.struct_info, comment=True) if self.typed else ""
        parts = [f"ty={kind}"] if kind else []
        if self.spans and (value.span.source or value.span.parts):
            parts.append(f"span={value.span}")
        return f" /* {' '.join(parts)} */".replace("*/ ", "") if parts else ""

    def attribute(self, value: Any) -> str:
        """A compile-time constant. Attributes nest as deep as Python's own lists do."""
        if value is None or isinstance(value, bool):
            return str(value)
        if isinstance(value, (int, IntImm)):
            return str(getattr(value, "value", value))
        if isinstance(value, (float, FloatImm)):
            return _number(repr(float(getattr(value, "value", value)))) + "f"
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(map(self.attribute, value))}]"
        if isinstance(value, Mapping):
            items = [f"{_key(k)}={self.attribute(v)}" for k, v in value.items()]
            return f"{{{', '.join(items)}}}"
        if isinstance(value, PrimExpr):
            return self.size(value)
        if isinstance(value, VDevice):
            return _quoted(f"{value.target}:{value.vdevice_id}:{value.memory_scope}")
        if isinstance(value, DummyGlobalInfo):
            return "None"
        if isinstance(value, IndexMap):
            return _quoted(value.text())
        return self.leaf(value) if isinstance(value, (Expr, GlobalVar)) else _quoted(str(value))

    # -- types -------------------------------------------------------------------------------------

    def type(self, info: StructInfo, fn: Function | None = None, comment: bool = False) -> str:
        """A type; "" if nothing is known. Types nest no deeper than struct info may.

        fn       the function whose parameters bind its symbols
        comment  whether nobody reads it back: sizes without a name are ?
        """
        if isinstance(info, TensorStructInfo):
            dtype = "?" if str(info.dtype) == "void" else str(info.dtype)
            if info.ndim < 0 or (info.ndim and info.dims is None):
                return f"Tensor[ndim={info.ndim}, {dtype}]"
            if not info.ndim and dtype != "?":
                return dtype
            dims = [self.size(d, fn, comment) for d in info.dims or ()]
            return f"Tensor[({', '.join(dims)}), {dtype}]"
        if isinstance(info, TupleStructInfo):
            fields = [self.type(f, fn, comment) or "Object" for f in info.fields]
            return f"({', '.join(fields)}{',' * (len(fields) == 1)})"
        if isinstance(info, FuncStructInfo):
            if info.params is None:
                return "fn"
            params = [self.type(p, fn, comment) or "Object" for p in info.params]
            result = self.type(info.ret, fn, comment) or "Object"
            return f"fn ({', '.join(params)}) -> {result}"
        if isinstance(info, ShapeStructInfo):
            if info.values is None:
                return f"Shape[ndim={info.ndim}]"
            return f"Shape[({', '.join(self.size(d, fn, comment) for d in info.values)})]"
        if isinstance(info, PrimStructInfo):
            if info.value is None:
                return f"Prim[{_quoted(str(info.dtype))}]"
            return f"Prim[{self.size(info.value, fn, comment)}]"
        return "" if isinstance(info, ObjectStructInfo) else str(info)

    def size(self, size: PrimExpr, fn: Function | None = None, comment: bool = False) -> str:
        """A size: a number, a symbol, or what is computed of them; ? if nothing names it."""
        texts: dict[int, str] = {}
        for n in post_order(size):
            if isinstance(n, IntImm):
                texts[id(n)] = str(n.value)
            elif isinstance(n, Symbol):
                texts[id(n)] = self.symbol(n, fn, comment)
            else:
                form = _SIZES.get(type(n))
                parts = [texts.get(id(c), "?") for c in n._children_]
                known = form is not None and "?" not in parts
                texts[id(n)] = form.format(*parts) if known and form else "?"
        return texts[id(size)]

    def symbol(self, symbol: Symbol, fn: Function | None, comment: bool) -> str:
        name = self.symbols.get(id(symbol))
        if name is None:
            if symbol.name == "any" and (comment or (fn and _stands_once(symbol, fn))):
                return "?"
            name = self.symbols[id(symbol)] = self.symbol_names.fresh(symbol.name)
            self.kept.append(symbol)
        return name


def _computing(values: Mapping[int, Expr]) -> Callable[[Any], Any]:
    return lambda operand: values.get(id(operand))


def _stands_once(symbol: Symbol, fn: Function) -> bool:
    """Whether no second size of the parameters is `symbol`."""
    infos = [p.struct_info for p in fn.params]
    sizes = [d for i in infos for n in walk(i) for d in getattr(n, "values", None) or ()]
    return sum(n is symbol for d in sizes for n in walk(d)) <= 1


def _names_itself(b: Binding) -> bool:
    """Whether a function calls itself by the variable that it is bound to."""
    return isinstance(b.value, Function) and any(n is b.var for n in walk(b.value))


_SIZES: dict[type, str] = {
    Add: "({} + {})",
    Sub: "({} - {})",
    Mul: "({} * {})",
    FloorDiv: "floordiv({}, {})",
    FloorMod: "floormod({}, {})",
    Min: "min({}, {})",
    Max: "max({}, {})",
}

_LEAVES: dict[type, Callable[[_Printer, Any], str]] = {
    Constant: _Printer.constant,
    GlobalVar: lambda p, v: f"@{v.name_hint}",
    ExternFunc: lambda p, v: f"relax.extern({_quoted(v.global_symbol)})",
    PrimValue: lambda p, v: f"relax.prim({_prim(p, v.value)})",
    StringImm: lambda p, v: _quoted(v.value),
    DataTypeImm: lambda p, v: f"relax.dtype({_quoted(str(v.value))})",
    ShapeExpr: lambda p, v: f"relax.shape({', '.join(p.size(d) for d in v.values)})",
}


def _prim(p: _Printer, value: PrimExpr) -> str:
    if isinstance(value, (IntImm, FloatImm)):
        text = _scalar(np.asarray(value.value, str(value.dtype)), "int64")
        return "?" if text is None else text
    return p.size(value)


def _scalar(data: Any, usual: str = "int32") -> str | None:
    """A number with the suffix of its dtype; None if no text says it."""
    value, dtype = data.item() if isinstance(data, np.ndarray) else data.numpy().item(), data.dtype
    dtype = str(dtype)
    if dtype == "bool":
        return str(bool(value))
    kind = re.fullmatch(r"(int|uint|float)(8|16|32|64)", dtype)
    if kind is None or value != value or value in (np.inf, -np.inf):
        return None
    text = _number(str(np.dtype(dtype).type(value)))
    if dtype in (usual, "float32"):
        return text + "f" * (dtype == "float32")
    return f"{text}{kind[1][0]}{kind[2]}"


def _number(text: str) -> str:
    return text.removesuffix(".0")


def _key(key: Any) -> str:
    return str(key) if _PLAIN_KEY.fullmatch(str(key)) else _quoted(str(key))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'
