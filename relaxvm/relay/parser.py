"""Reads Relay's text form: what `mod.astext()` writes, and what TVM did.

    mod = relay.parse('''
    #[version = "0.0.5"]
    def @main(%x: Tensor[(1, 10), float32]) {
      %0 = add(%x, 1f);
      multiply(%0, %0)
    }
    ''')

A text is a program from anyone: it names operators of Relay and of `relax.op`, and nothing else;
whatever is wrong with it is a `ParseError` with its line and column. Nothing recurses as deep as
the text nests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from ..base import (
    NamedTuple,
    ParseError,
    RelaxvmError,
    Span,
    Steps,
    StructInfoError,
    run_steps,
)
from ..base import dtype as as_dtype
from ..ir import (
    RELAY,
    DummyGlobalInfo,
    GlobalVar,
    IRModule,
    Max,
    Min,
    Op,
    PrimExpr,
    VDevice,
    post_order,
    substitute,
    walk,
)
from ..ir import Var as Symbol
from ..ir import const as prim_const
from ..relax import (
    BindingBlock,
    Call,
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
    VarBinding,
    const,
)
from .metadata import Metadata
from .spelling import UNTYPED, Said, is_typed, let_span
from .text import called, operator
from .transform import InferType
from .words import Kind, Text, Token

T = TypeVar("T")
# What constructors and rules raise for what somebody wrote.
_WRONG = (
    *(RelaxvmError, TypeError, ValueError, ArithmeticError, LookupError),
    *(AttributeError, AssertionError, RecursionError, MemoryError),
)
_NUMBER = re.compile(r"([\d.]+(?:[eE][+-]?\d+)?)(.*)")
_KINDS = {"i": "int", "u": "uint", "f": "float"}
_END = "the end of the text"
_DEEPEST_LIST = 100


def parse(source: str, source_name: str = "from_string", *_: Any) -> IRModule:
    """The module that a text is. An expression alone is the function ``main``.

    Types are inferred if every parameter has one; else `InferType` may do it later. Raises
    ParseError.
    """
    parser = _Parser(source, source_name)
    return parser.safely(parser.module)


def parse_expr(source: str, source_name: str = "from_string") -> Expr:
    """The expression or function that a text is. Raises ParseError."""
    parser = _Parser(source, source_name)
    return parser.safely(parser.only_expression)


fromtext = parse


# -- the grammar -----------------------------------------------------------------------------------


class _Head(NamedTuple):
    """What stands before the body of a function."""

    params: list[Var]
    attrs: dict[str, Any]
    result: StructInfo | None
    undo: list[tuple[dict[Any, Any], Any, Any]]

    @property
    def info(self) -> FuncStructInfo | None:
        """The signature, if all of it is said."""
        infos = [p.struct_info for p in self.params]
        if self.result is None or any(isinstance(i, ObjectStructInfo) for i in infos):
            return None
        return FuncStructInfo(tuple(infos), self.result)


# Infix operators: how tight they bind, and Relay's name.
_INFIX = {
    "==": (1, "equal"),
    "!=": (1, "not_equal"),
    "<": (2, "less"),
    ">": (2, "greater"),
    "<=": (2, "less_equal"),
    ">=": (2, "greater_equal"),
    "+": (3, "add"),
    "-": (3, "subtract"),
    "*": (4, "multiply"),
    "/": (4, "divide"),
}
_SUMS = {"+": 3, "-": 3, "*": 4}
_UNKNOWN_SIZE: Any = object()


class _Parser:
    """One text. What may nest is a generator, see `base.steps`."""

    def __init__(self, text: str, name: str) -> None:
        if not isinstance(text, str):
            raise ParseError(f"wanted Relay's text, got {type(text).__name__}")
        self.source = Text(text, name)
        self.tokens = self.source.tokens
        self.next = 0
        self.metadata: Metadata | None = None
        self.globals: dict[str, GlobalVar] = {}
        self.locals: dict[str, Any] = {}
        self.symbols: dict[str, Symbol] = {}
        # Values by number: variables and tuples; bindings where their scope is closed.
        self.graph: dict[str, Any] = {}
        self.numbered_here: list[Any] = []
        self.again: dict[Any, Expr] = {}
        self.closed: dict[int, VarBinding] = {}
        self.closed_lets: set[int] = set()
        self.free: list[Var] = []

    # -- words -------------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self.tokens[self.next]

    def after(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.next + ahead, len(self.tokens) - 1)]

    def take(self) -> Token:
        token = self.tokens[self.next]
        if token.kind is not Kind.END:
            self.next += 1
        return token

    def at(self, text: str) -> bool:
        token = self.tokens[self.next]
        return token.text == text and token.kind in (Kind.SIGN, Kind.WORD)

    def taken(self, text: str) -> bool:
        """Whether `text` came, which is passed over."""
        came = self.at(text)
        self.next += came
        return came

    def want(self, text: str) -> Token:
        return self.take() if self.at(text) else self.fail(f"wanted {text!r}")

    def kind(self, kind: Kind, what: str) -> Token:
        return self.take() if self.token.kind is kind else self.fail(f"wanted {what}")

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        token = self.token if token is None else token
        got = repr(token.text) if token.kind is not Kind.END else _END
        message = f"{message}, got {got}" if message.startswith("wanted") else message
        raise self.source.error(token.start, message, max(1, len(token.text)))

    def built(self, token: Token, build: Callable[..., T], *args: Any) -> T:
        """What ``build(*args)`` gives; what is wrong with it is an error at `token`."""
        try:
            return build(*args)
        except _WRONG as error:
            if isinstance(error, ParseError) and error.lineno:
                raise
            self.fail(str(error) or type(error).__name__, token)

    def safely(self, read: Callable[[], T]) -> T:
        """What `read` gives; what is wrong with it is an error at the word that comes."""
        try:
            return read()
        except _WRONG as error:
            if isinstance(error, ParseError) and error.lineno:
                raise
            self.fail(str(error) or type(error).__name__)

    def span(self, token: Token) -> Span:
        return Span(self.source.name, *self.source.place(token.start))

    def set(self, table: dict[Any, Any], key: Any, value: Any, undo: list[Any]) -> None:
        undo.append((table, key, table.get(key)))
        table[key] = value

    def restore(self, undo: list[Any]) -> None:
        for table, key, value in reversed(undo):
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value

    # -- modules -----------------------------------------------------------------------------------

    def module(self) -> IRModule:
        mod = IRModule()
        first = []
        while self.token.text in _OF_MODULES and self.after().text == "{":
            first.append((_OF_MODULES[self.take().text], self.next))
            self.skip_braces()
        heads = list(self.definitions())
        end = self.next
        for put, self.next in first:
            token = self.token
            items = run_steps(self.constant(0))
            mod = self.built(token, put, mod, items)
        self.graph = {}
        known = True
        for name, head, body, token in heads:
            self.next = body
            self.graph = {}
            fn = run_steps(self.function_body(head, token))
            mod[self.globals[name]] = fn
            known = known and all(is_typed(p) for p in fn.params)
        self.next = end
        if self.token.kind is not Kind.END:
            expr = run_steps(self.whole_expression())
            fn = expr if isinstance(expr, Function) else Function(self.free, expr, span=RELAY)
            mod["main"] = fn
            known = known and all(is_typed(p) for p in fn.params)
        if not known:
            return mod
        return self.built(self.tokens[0], lambda: InferType()(mod))

    def only_expression(self) -> Expr:
        expr: Expr = run_steps(self.whole_expression())
        return expr

    def whole_expression(self) -> Steps:
        expr = yield self.sequence()
        if self.token.kind is not Kind.END:
            self.fail("wanted the end of the text")
        return expr

    def definitions(self) -> Any:
        """Signatures first: functions call each other."""
        while self.token.text in ("def", "type", "extern"):
            if not self.taken("def"):
                self.fail(f"{self.token.text}: data types of one's own are not supported here")
            token = self.kind(Kind.GLOBAL, "the name of a function")
            name = token.text[1:]
            if name in self.globals:
                self.fail(f"there are two functions {token.text}", token)
            head = run_steps(self.head())
            self.restore(head.undo)
            self.globals[name] = GlobalVar(name, head.info)
            yield name, head, self.next, token
            self.skip_braces()

    def skip_braces(self) -> None:
        depth = 0
        while True:
            token = self.take()
            depth += (token.text == "{") - (token.text == "}")
            if token.kind is Kind.END:
                self.fail("wanted '}'", token)
            if not depth:
                return

    # -- functions ---------------------------------------------------------------------------------

    def head(self) -> Steps:
        """Parameters, attributes and the type of the result. What it declares is known until
        `undo` is undone.
        """
        if self.at("["):
            self.fail("type parameters are not supported: write the types out")
        undo: list[Any] = []
        params: list[Var] = []
        attrs: dict[str, Any] = {}
        self.want("(")
        while not self.at(")"):
            if self.token.kind is Kind.LOCAL:
                token = self.take()
                info: Any = UNTYPED
                if self.taken(":"):
                    info = yield self.type(undo)
                var = Var(token.text[1:], info, self.span(token))
                if any(p.name_hint == var.name_hint for p in params):
                    self.fail(f"there are two parameters {token.text}", token)
                params.append(var)
                self.set(self.locals, token.text, var, undo)
            else:
                yield self.attribute(attrs)
            if not self.taken(","):
                break
        self.want(")")
        result = None
        if self.taken("->"):
            result = yield self.type(None)
        return _Head(params, attrs, result, undo)

    def function_body(self, head: _Head, token: Token) -> Steps:
        """The function whose head was read; the body comes."""
        again: list[Any] = []
        for var in head.params:
            self.set(self.locals, f"%{var.name_hint}", var, again)
            for symbol in _symbols(var.struct_info):
                self.set(self.symbols, symbol.name, symbol, again)
        body = yield self.block()
        self.restore(again)
        attrs = dict(head.attrs)
        pure = attrs.pop("is_pure", True)
        result = head.result if is_typed(body) else None
        if result is not None and not _may_be(result, body.struct_info):
            self.fail(f"the result is said to be {result}, it is {body.struct_info}", token)
        span = Span(RELAY.source, name=RELAY.name)
        return self.built(token, Function, head.params, body, result, bool(pure), attrs, span)

    def function(self) -> Steps:
        token = self.want("fn")
        head = yield self.head()
        mark = len(self.numbered_here)
        fn = yield self.function_body(head, token)
        self.restore(self.numbered_here[mark:])
        del self.numbered_here[mark:]
        self.restore(head.undo)
        return fn

    # -- bodies ------------------------------------------------------------------------------------

    def block(self) -> Steps:
        self.want("{")
        value = yield self.sequence()
        self.want("}")
        return value

    def sequence(self) -> Steps:
        """Statements and the value behind them."""
        undo: list[Any] = []
        bindings: list[Any] = []
        numbers: list[tuple[str, VarBinding]] = []
        while True:
            token = self.token
            if self.taken("let"):
                yield self.let(bindings, undo)
            elif token.kind is Kind.GRAPH and self.after().text == "=":
                yield self.numbered(bindings, numbers)
            elif self.taken("free_var"):
                yield self.free_variable()
            else:
                break
            self.want(";")
        value = yield self.expression()
        self.restore(undo)
        # What has a number may be used behind the scope that it stands in: it is computed again.
        for name, binding in numbers:
            self.graph[name] = binding
            self.closed[id(binding.var)] = binding
        named = {id(binding.var) for _, binding in numbers}
        self.closed_lets.update(id(b.var) for b in bindings if id(b.var) not in named)
        return SeqExpr((BindingBlock(bindings),), value) if bindings else value

    def numbered(self, bindings: list[Any], numbers: list[tuple[str, VarBinding]]) -> Steps:
        token = self.take()
        self.want("=")
        value = yield self.expression()
        binding = VarBinding(Var("gv", value.struct_info, self.span(token)), value)
        numbers.append((token.text, binding))
        if isinstance(value, Tuple):
            # As normal form has them, where they are used.
            self.set(self.graph, token.text, value, self.numbered_here)
        else:
            bindings.append(binding)
            self.set(self.graph, token.text, binding.var, self.numbered_here)
        return None

    def let(self, bindings: list[Any], undo: list[Any]) -> Steps:
        token = self.kind(Kind.LOCAL, "a variable")
        info: Any = None
        symbols: list[Any] = []
        if self.taken(":"):
            info = yield self.type(symbols)
        self.want("=")
        name = token.text[1:]
        span = self.span(token)
        if info is not None and self.at("match_cast"):
            self.take()
            self.want("(")
            value = yield self.expression()
            self.want(")")
            var = Var(name, info, span)
            bindings.append(MatchCast(var, value, info))
            undo += symbols
        else:
            self.restore(symbols)
            declared: Any = info
            if self.at("fn"):
                # It may call itself by the name.
                if declared is None:
                    declared = yield self.signature_ahead()
                var = Var(name, declared or UNTYPED, span)
                self.set(self.locals, token.text, var, undo)
                value = yield self.expression()
            else:
                value = yield self.expression()
                if is_typed(value):
                    if declared is not None and not _may_be(declared, value.struct_info):
                        self.fail(f"it is said to be {declared}, it is {value.struct_info}", token)
                    declared = value.struct_info
                var = Var(name, declared or UNTYPED, span)
            bindings.append(VarBinding(var, value, let_span(span)))
        self.set(self.locals, token.text, var, undo)
        return None

    def signature_ahead(self) -> Steps:
        """The signature of the function that comes, if it says it."""
        here = self.next
        self.take()
        head = yield self.head()
        self.restore(head.undo)
        self.next = here
        return head.info

    def free_variable(self) -> Steps:
        token = self.kind(Kind.LOCAL, "a variable")
        info: Any = UNTYPED
        if self.taken(":"):
            info = yield self.type([])
        var = Var(token.text[1:], info, self.span(token))
        self.free.append(var)
        self.locals[token.text] = var
        return None

    # -- expressions -------------------------------------------------------------------------------

    def expression(self) -> Steps:
        """Infix operators, by how tight they bind."""
        values: list[Any] = []
        signs: list[Token] = []

        def join(least: int) -> None:
            while signs and _INFIX[signs[-1].text][0] >= least:
                sign, right, left = signs.pop(), values.pop(), values.pop()
                name = _INFIX[sign.text][1]
                values.append(self.built(sign, called, name, [left, right], {}))

        while True:
            value = yield self.postfix()
            values.append(value)
            if self.token.kind is not Kind.SIGN or self.token.text not in _INFIX:
                break
            join(_INFIX[self.token.text][0])
            signs.append(self.take())
        join(0)
        return values[0]

    def postfix(self) -> Steps:
        token = self.token
        callee = token.kind is Kind.WORD and self.after().text == "(" and token.text not in _WORDS
        if callee:
            self.take()
            value = yield self.operator_call(token)
        else:
            value = yield self.primary()
        while True:
            token = self.token
            if token.kind is Kind.FIELD:
                self.take()
                index = int(token.text[1:7])
                value = self.built(token, TupleGetItem, value, index)
            elif self.at("("):
                args, attrs = yield self.arguments()
                infos = attrs.pop("sinfo_args", ())
                value = self.built(token, Call, value, args, attrs, infos)
                value = value.replace(span=self.span(token))
            else:
                return value

    def operator_call(self, token: Token) -> Steps:
        name = token.text
        if name in ("relax.prim", "relax.shape"):
            sizes = yield self.sizes()
            if name == "relax.shape":
                return self.built(token, lambda: ShapeExpr([_as_size(s) for s in sizes]))
            return self.built(token, lambda: PrimValue(*sizes))
        args, attrs = yield self.arguments()
        special = _SPECIAL.get(name)
        if special is not None:
            return self.built(token, lambda: special(*args, **attrs))
        known = operator(name) is not None or (name.startswith("relax.") and _is_operator(name))
        if not known:
            self.fail(f"there is no operator {name}", token)
        if "sinfo_args" in attrs and not name.startswith("relax."):
            self.fail(f"{name} takes no sinfo_args", token)
        value: Any = self.built(token, called, name, args, attrs)
        if not isinstance(value, Call) or any(value is a for a in args):
            return value
        place = (self.source.name, *self.source.place(token.start))
        span = value.span
        return value.replace(
            span=span.put(*place) if isinstance(span, Said) else Span(*place, name=name)
        )

    def sizes(self) -> Steps:
        """What `relax.shape` and `relax.prim` hold: numbers alone have the dtype they say."""
        self.want("(")
        sizes = []
        while not self.at(")"):
            token = self.token
            negative = self.at("-")
            alone = self.after(1 + negative).text in (",", ")")
            if alone and self.after(negative).kind is Kind.NUMBER:
                self.next += negative
                value, dtype = self.scalar(self.take(), -1 if negative else 1)
                dtype = "int64" if dtype == "int32" else dtype
                sizes.append(self.built(token, prim_const, value, dtype))
            elif token.text in ("True", "False"):
                sizes.append(prim_const(self.take().text == "True", "bool"))
            else:
                size = yield self.size()
                sizes.append(size)
            if not self.taken(","):
                break
        self.want(")")
        return sizes

    def arguments(self) -> Steps:
        args: list[Any] = []
        attrs: dict[str, Any] = {}
        self.want("(")
        while not self.at(")"):
            if self.token.kind in (Kind.WORD, Kind.STRING) and self.after().text == "=":
                yield self.attribute(attrs)
            else:
                arg = yield self.expression()
                args.append(arg)
            if not self.taken(","):
                break
        self.want(")")
        return args, attrs

    def primary(self) -> Steps:
        token = self.token
        rule = _BY_KIND.get(token.kind)
        if rule is not None:
            self.take()
            return rule(self, token)
        if self.at("("):
            value = yield self.parenthesised()
        elif self.at("if"):
            value = yield self.branches()
        elif self.at("fn"):
            value = yield self.function()
        elif self.at("-"):
            self.take()
            value = self.number(self.kind(Kind.NUMBER, "a number"), -1)
        elif token.text in ("True", "False"):
            value = const(self.take().text == "True")
        elif self.at("meta"):
            value = self.meta()
            if not isinstance(value, Expr):
                self.fail("wanted a constant", token)
        else:
            self.fail("wanted an expression")
        return value

    def parenthesised(self) -> Steps:
        """A tuple, or what stands in parentheses; statements may, as TVM writes a `let` there."""
        token = self.want("(")
        if self.taken(")"):
            return Tuple(())
        first = yield self.sequence()
        if self.taken(")"):
            return first
        fields = [first]
        while self.taken(","):
            if self.at(")"):
                break
            field = yield self.expression()
            fields.append(field)
        self.want(")")
        return self.built(token, _tuple, fields)

    def branches(self) -> Steps:
        """``if (c) { ... } else if (d) { ... } else { ... }``"""
        token = self.want("if")
        self.want("(")
        cond = yield self.expression()
        self.want(")")
        first = yield self.block()
        self.want("else")
        second = yield (self.branches() if self.at("if") else self.block())
        return self.built(token, If, cond, first, second)

    # -- leaves ------------------------------------------------------------------------------------

    def numbered_value(self, token: Token) -> Any:
        value = self.graph.get(token.text)
        if value is None:
            self.fail(f"there is no value {token.text} before this", token)
        if isinstance(value, VarBinding):
            # Its scope is closed: it is computed here too, and so is what it reads there.
            value = self.graph[token.text] = self.computed_again(value, token)
        return value

    def computed_again(self, binding: VarBinding, token: Token) -> Expr:
        """What `binding` computes, without variables of scopes that are closed."""

        def reads(b: VarBinding) -> list[VarBinding]:
            inner = walk(b.value)
            if any(id(n) in self.closed_lets for n in inner):
                self.fail(f"{token.text} reads a variable whose scope is closed", token)
            return [self.closed[id(n)] for n in inner if id(n) in self.closed]

        for b in post_order(binding, lambda b: () if b.var in self.again else reads(b)):
            if b.var not in self.again:
                self.again[b.var] = substitute(b.value, self.again)
        return self.again[binding.var]

    def local(self, token: Token) -> Any:
        """A variable; what follows the last dots may be fields."""
        name, fields = token.text, []
        while name not in self.locals:
            name, dot, field = name.rpartition(".")
            if not dot or not field.isdecimal():
                self.fail(f"there is no variable {token.text}", token)
            fields.append(int(field[:6]))
        value = self.locals[name]
        for index in reversed(fields):
            value = self.built(token, TupleGetItem, value, index)
        return value

    def global_var(self, token: Token) -> Any:
        gv = self.globals.get(token.text[1:])
        if gv is None:
            self.fail(f"there is no function {token.text}", token)
        return gv

    def number(self, token: Token, sign: int = 1) -> Any:
        value, dtype = self.scalar(token, sign)
        return self.built(token, lambda: const(np.asarray(value, dtype), dtype))

    def scalar(self, token: Token, sign: int = 1) -> tuple[Any, str]:
        """A number and its dtype."""
        match = _NUMBER.fullmatch(token.text)
        assert match is not None
        digits, suffix = match.groups()
        whole = digits.isdecimal()
        if suffix == "bf16":
            dtype = "bfloat16"
        elif suffix:
            dtype = _KINDS[suffix[0]] + (suffix[1:] or "32")
        else:
            dtype = "int32" if whole else "float32"
        if not whole and "float" not in dtype:
            self.fail(f"{token.text} is no integer", token)
        self.built(token, as_dtype, dtype)
        number = float if "float" in dtype else int
        return self.built(token, lambda: sign * number(digits)), dtype

    def string(self, token: Token) -> str:
        return str(self.built(token, ast.literal_eval, token.text))

    def meta(self) -> Any:
        """``meta[relay.Constant][0]``"""
        token = self.want("meta")
        self.want("[")
        key = self.kind(Kind.WORD, "what kind of thing it is").text
        self.want("]")
        self.want("[")
        index = self.scalar(self.kind(Kind.NUMBER, "a number"))[0]
        self.want("]")
        if self.source.meta is None:
            self.fail(f"meta[{key}][{index}]: the text has no metadata section", token)
        if self.metadata is None:
            start, end = self.source.meta
            section = self.source.text[end:]
            place = Token(Kind.METADATA, "#[metadata]", start)
            self.metadata = self.built(place, Metadata, section)
        return self.built(token, self.metadata.value, key, index)

    # -- attributes --------------------------------------------------------------------------------

    def attribute(self, attrs: dict[str, Any]) -> Steps:
        token = self.take()
        if token.kind not in (Kind.WORD, Kind.STRING):
            self.fail("wanted the name of an attribute", token)
        name = self.string(token) if token.kind is Kind.STRING else token.text
        self.want("=")
        if name in attrs:
            self.fail(f"{name} is given twice", token)
        if name == "sinfo_args":
            attrs[name] = yield self.types()
        else:
            attrs[name] = yield self.constant(0)
        return None

    def types(self) -> Steps:
        self.want("[")
        infos = []
        while not self.at("]"):
            info = yield self.type(None)
            infos.append(UNTYPED if info is None else info)
            if not self.taken(","):
                break
        self.want("]")
        return tuple(infos)

    def constant(self, depth: int) -> Steps:
        """The value of an attribute."""
        token = self.token
        if depth > _DEEPEST_LIST:
            self.fail(f"lists nest deeper than {_DEEPEST_LIST}")
        if self.taken("["):
            values = []
            while not self.at("]"):
                value = yield self.constant(depth + 1)
                values.append(value)
                if not self.taken(","):
                    break
            self.want("]")
            return values
        if self.taken("{"):
            items: dict[str, Any] = {}
            while not self.at("}"):
                key = self.take()
                if key.kind not in (Kind.WORD, Kind.STRING):
                    self.fail("wanted a name", key)
                name = self.string(key) if key.kind is Kind.STRING else key.text
                self.want("=")
                items[name] = yield self.constant(depth + 1)
                if not self.taken(","):
                    break
            self.want("}")
            return items
        if token.kind is Kind.STRING:
            return self.string(self.take())
        if token.text in _CONSTANTS:
            return _CONSTANTS[self.take().text]
        if self.at("meta"):
            return self.meta()
        if token.kind is Kind.GLOBAL:
            return self.global_var(self.take())
        value = yield self.size()
        return value

    # -- types -------------------------------------------------------------------------------------

    def type(self, undo: list[Any] | None) -> Steps:
        """A type; None if it says less than can be found out.

        undo  where new symbols are noted, which it may bind; None: it reads those there are
        """
        token = self.token
        if self.taken("("):
            fields = []
            while not self.at(")"):
                field = yield self.type(undo)
                fields.append(field)
                if not self.taken(","):
                    break
            self.want(")")
            if None in fields:
                return None
            return self.built(token, TupleStructInfo, tuple(fields))
        if self.taken("?"):
            return None
        if token.kind is not Kind.WORD:
            self.fail("wanted a type")
        self.take()
        if token.text == "fn":
            info = yield self.function_type(token)
            return info
        form = _TYPES.get(token.text)
        if form is not None and self.at("["):
            info = yield form(self, token, undo)
            return info
        if token.text == "Object":
            return UNTYPED
        return self.built(token, lambda: TensorStructInfo((), as_dtype(token.text)))

    def function_type(self, token: Token) -> Steps:
        if not self.at("("):
            return FuncStructInfo.opaque_func()
        self.want("(")
        params = []
        mark: list[Any] = []
        while not self.at(")"):
            param = yield self.type(mark)
            params.append(UNTYPED if param is None else param)
            if not self.taken(","):
                break
        self.want(")")
        self.want("->")
        result = yield self.type(None)
        self.restore(mark)
        result = UNTYPED if result is None else result
        return self.built(token, FuncStructInfo, tuple(params), result)

    def tensor_type(self, token: Token, undo: list[Any] | None) -> Steps:
        self.want("[")
        ndim, dims = yield self.dims(undo)
        self.want(",")
        dtype = "void" if self.taken("?") else self.kind(Kind.WORD, "a dtype").text
        self.want("]")
        if dims is None and ndim is None:
            return None
        return self.built(
            token,
            lambda: TensorStructInfo(dims, as_dtype(dtype), ndim=-1 if ndim is None else ndim),
        )

    def shape_type(self, token: Token, undo: list[Any] | None) -> Steps:
        self.want("[")
        ndim, dims = yield self.dims(undo)
        self.want("]")
        if dims is None and ndim is None:
            return None
        sizes = None if dims is None else dims.values
        return self.built(token, ShapeStructInfo, sizes, -1 if ndim is None else ndim)

    def prim_type(self, token: Token, undo: list[Any] | None) -> Steps:
        self.want("[")
        if self.token.kind is Kind.STRING:
            dtype = self.string(self.take())
            self.want("]")
            return self.built(token, lambda: PrimStructInfo(as_dtype(dtype)))
        value = yield self.size(undo)
        self.want("]")
        return self.built(token, lambda: PrimStructInfo(value=_as_size(value)))

    def dims(self, undo: list[Any] | None) -> Steps:
        """``(2, n, ?)`` or ``ndim=3``: the number of axes, the sizes."""
        if self.taken("ndim"):
            self.want("=")
            sign = -1 if self.taken("-") else 1
            return self.scalar(self.kind(Kind.NUMBER, "a number"), sign)[0], None
        token = self.want("(")
        dims: list[Any] = []
        while not self.at(")"):
            size = yield self.size(undo)
            dims.append(size)
            if not self.taken(","):
                break
        self.want(")")
        if _UNKNOWN_SIZE not in dims:
            return None, self.built(token, lambda: ShapeExpr([_as_size(d) for d in dims]))
        if undo is None:
            return None, None
        dims = [Symbol("any", "int64") if d is _UNKNOWN_SIZE else d for d in dims]
        return None, self.built(token, lambda: ShapeExpr([_as_size(d) for d in dims]))

    def size(self, undo: list[Any] | None = None) -> Steps:
        """A size or another number: ``(n + 1) * 2``, ``1.5f``, ``?``."""
        values: list[Any] = []
        signs: list[Token] = []

        def join(least: int) -> None:
            while signs and _SUMS[signs[-1].text] >= least:
                sign, right, left = signs.pop(), values.pop(), values.pop()
                values.append(self.built(sign, _compute, sign.text, left, right))

        while True:
            value = yield self.size_atom(undo)
            values.append(value)
            if self.token.kind is not Kind.SIGN or self.token.text not in _SUMS:
                break
            join(_SUMS[self.token.text])
            signs.append(self.take())
        join(0)
        return values[0]

    def size_atom(self, undo: list[Any] | None) -> Steps:
        token = self.take()
        if token.kind is Kind.NUMBER:
            return self.scalar(token)[0]
        if token.text == "-" and self.token.kind is Kind.NUMBER:
            return self.scalar(self.take(), -1)[0]
        if token.text == "?":
            return _UNKNOWN_SIZE
        if token.text == "(":
            value = yield self.size(undo)
            self.want(")")
            return value
        if token.kind is not Kind.WORD:
            self.fail("wanted a number or the name of a size", token)
        if token.text in _OF_SIZES and self.taken("("):
            left = yield self.size(undo)
            self.want(",")
            right = yield self.size(undo)
            self.want(")")
            return self.built(token, _compute, token.text, left, right)
        known = self.symbols.get(token.text)
        if known is None:
            if undo is None:
                self.fail(f"there is no size {token.text}", token)
            known = Symbol(token.text, "int64")
            self.set(self.symbols, token.text, known, undo)
        return known


def _symbols(info: StructInfo) -> Sequence[Symbol]:
    sizes = [d for n in walk(info) for d in getattr(n, "values", None) or ()]
    return [n for d in sizes for n in walk(d) if isinstance(n, Symbol)]


def _may_be(declared: StructInfo, info: StructInfo) -> bool:
    return declared.is_base_of(info) or info.is_base_of(declared)


def _tuple(fields: list[Any]) -> Tuple:
    whole = Tuple(fields)
    if not isinstance(whole.struct_info, TupleStructInfo):
        raise StructInfoError("it is no tuple")
    return whole


def _compute(sign: str, left: Any, right: Any) -> Any:
    if _UNKNOWN_SIZE in (left, right):
        return _UNKNOWN_SIZE
    return _OF_SIZES[sign](left, right)


def _as_size(value: Any) -> Any:
    if isinstance(value, float):
        raise StructInfoError(f"wanted a size, got {value}")
    return value


def _is_operator(name: str) -> bool:
    try:
        Op.get(name)
    except RelaxvmError:
        return False
    return True


def _with_global_infos(mod: IRModule, items: dict[str, list[Any]]) -> IRModule:
    for name, infos in items.items():
        mod.update_global_info(
            name, [DummyGlobalInfo() if i is None else VDevice.from_name(i) for i in infos]
        )
    return mod


# What may stand before the functions of a module.
_OF_MODULES: dict[str, Callable[[IRModule, Any], IRModule]] = {
    "attributes": IRModule.with_attrs,
    "global_infos": _with_global_infos,
}


def _least(left: Any, right: Any, builtin: Any, of_sizes: Any) -> Any:
    if isinstance(left, PrimExpr) or isinstance(right, PrimExpr):
        sides = [s if isinstance(s, PrimExpr) else prim_const(s, "int64") for s in (left, right)]
        return of_sizes(*sides)
    return builtin(left, right)


_OF_SIZES: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "min": lambda a, b: _least(a, b, min, Min),
    "max": lambda a, b: _least(a, b, max, Max),
}
_CONSTANTS = {"True": True, "False": False, "None": None}
_WORDS = {"if", "fn", "let", "meta", "True", "False"}
_BY_KIND: dict[Kind, Callable[[_Parser, Token], Any]] = {
    Kind.GRAPH: _Parser.numbered_value,
    Kind.LOCAL: _Parser.local,
    Kind.GLOBAL: _Parser.global_var,
    Kind.NUMBER: _Parser.number,
    Kind.STRING: lambda p, t: StringImm(p.string(t)),
}
_TYPES: dict[str, Callable[..., Steps]] = {
    "Tensor": _Parser.tensor_type,
    "Shape": _Parser.shape_type,
    "Prim": _Parser.prim_type,
}
_SPECIAL: dict[str, Callable[..., Any]] = {
    "relax.extern": lambda name: ExternFunc(name.value),
    "relax.dtype": lambda name: DataTypeImm(name.value),
}
