"""Structural equality and hash of any IR: bound variables may be renamed, everything else must be
the same.

Names of variables, buffers and blocks, spans and the order of attributes do not matter, nor do the
bits of a NaN; a list is a tuple. Functions of modules are matched by name.
"""

from __future__ import annotations

from typing import Any

from ..base import RelaxvmError, blake2b
from .access_path import AccessPath
from .expr import PrimExpr, Var
from .leaf import leaf_codec
from .module import GlobalVar, IRModule
from .node import Map, Node, freeze, type_key, value_key
from .op import Op

# _SIGNATURE: the parameters of a function type, whose symbols are bound for it alone.
_USE, _DEFINE, _REBIND, _SIGNATURE = 0, 1, 2, 3
_NEW_SCOPE = object()
_END_OF_SIGNATURE = object()
# Variables and buffers: compared through the renaming, their own name does not count.
_NAME_FIELDS = {"name", "name_hint"}


class StructuralMismatch(RelaxvmError, ValueError, AssertionError):
    """Two pieces of IR differ; the message says where first."""


def _is_variable(n: Any) -> bool:
    return isinstance(n, Var) or type(n)._type_key in _VARIABLES


_VARIABLES = {"relax.Var", "relax.DataflowVar"}
_BUFFER = "tir.Buffer"


def _compared_fields(cls: type[Node]) -> tuple[str, ...]:
    fields = cls._order_ or cls._fields
    return tuple(f for f in fields if f != "span")


def _is_signature(cls: type[Node]) -> bool:
    return cls._interned and cls._defs_ == ("params",)


def _binding_mode(cls: type[Node], bound: Any) -> int:
    """How a field that binds is read."""
    if isinstance(bound, Var):
        return _REBIND
    return _SIGNATURE if _is_signature(cls) else _DEFINE


def _inner_mode(n: Node, mode: int) -> int:
    """How the fields of `n` that do not bind are read."""
    if mode == _REBIND:
        return _USE
    # Symbols are bound where they stand alone.
    return _DEFINE if mode == _SIGNATURE and isinstance(n, PrimExpr) else mode


class _Signatures:
    """What is bound for the signatures that are being read, innermost last: it is forgotten, and
    what was bound before is known again, when they end.
    """

    def __init__(self) -> None:
        self._bound: list[set[Any]] = []
        self._former: list[list[tuple[dict[Any, Any], Any, Any]]] = []

    def begin(self) -> None:
        self._bound.append(set())
        self._former.append([])

    def end(self) -> None:
        self._bound.pop()
        for table, key, former in reversed(self._former.pop()):
            if former is None:
                table.pop(key, None)
            else:
                table[key] = former

    def is_new(self, symbol: Any) -> bool:
        """Whether the innermost signature meets `symbol` for the first time."""
        new = symbol not in self._bound[-1]
        self._bound[-1].add(symbol)
        return new

    def count(self) -> int:
        """How many symbols all of them have met."""
        return sum(map(len, self._bound))

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """``table[key] = value``, for the innermost signature alone; None takes the key away."""
        if self._former:
            self._former[-1].append((table, key, table.get(key)))
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value


class _Comparison:
    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.left: dict[Any, Any] = {}  # by identity of nodes: nodes hash by identity
        self.right: dict[Any, Any] = {}
        self.renamed = False
        self.equal_pairs: set[tuple[int, int]] = set()
        self.signatures = _Signatures()
        self.stack: list[tuple[Any, Any, int, AccessPath]] = []

    def run(self, a: Any, b: Any) -> tuple[AccessPath, Any, Any] | None:
        """None if equal, else the place and the two values that differ there."""
        self.stack.append((freeze(a), freeze(b), _USE, AccessPath.root()))
        while self.stack:
            x, y, mode, path = self.stack.pop()
            if x is _NEW_SCOPE:
                self.left.clear()
                self.right.clear()
                self.equal_pairs.clear()
                self.renamed = False
            elif x is _END_OF_SIGNATURE:
                self.signatures.end()
                self.equal_pairs.clear()
            elif not self.step(x, y, mode, path):
                return path, x, y
        return None

    def step(self, a: Any, b: Any, mode: int, path: AccessPath) -> bool:
        if isinstance(a, Node) and isinstance(b, Node):
            return self.nodes(a, b, mode, path)
        if type(a) is tuple and type(b) is tuple:
            if len(a) != len(b):
                return False
            for i in range(len(a) - 1, -1, -1):
                self.stack.append((a[i], b[i], mode, path.array_item(i)))
            return True
        if isinstance(a, Map) and isinstance(b, Map):
            return self.maps(a, b, mode, path)
        if isinstance(a, IRModule) and isinstance(b, IRModule):
            return self.modules(a, b, path)
        codec = leaf_codec(type(a))
        if codec is not None:
            return type(a) is type(b) and codec.equal(a, b)
        if isinstance(a, (Node, tuple, Map)) or isinstance(b, (Node, tuple, Map)):
            return False
        return bool(value_key(a) == value_key(b)) or (_is_nan(a) and _is_nan(b))

    def nodes(self, a: Node, b: Node, mode: int, path: AccessPath) -> bool:
        if type(a) is not type(b):
            return False
        if _is_variable(a):
            return self.variables(a, b, mode, path)
        if isinstance(a, Op):
            return a is b
        if isinstance(a, GlobalVar):
            return isinstance(b, GlobalVar) and a.name_hint == b.name_hint
        cls = type(a)
        key = cls._type_key
        if a is b and mode == _USE and not self.renamed:
            return True
        if key == _BUFFER:
            if a in self.left or b in self.right:
                return self.left.get(a) is b and self.right.get(b) is a
            self.left[a], self.right[b] = b, a
            self.renamed = self.renamed or a is not b
        pair = (id(a), id(b))
        if mode == _USE and cls._interned:
            if pair in self.equal_pairs:
                return True
            self.equal_pairs.add(pair)
        if _is_signature(cls):
            self.signatures.begin()
            self.stack.append((_END_OF_SIGNATURE, _END_OF_SIGNATURE, _USE, path))
        for field in reversed(_compared_fields(cls)):
            if key == _BUFFER and field in _NAME_FIELDS:
                continue
            x, y = getattr(a, field), getattr(b, field)
            inner = _inner_mode(a, mode)
            if field in cls._defs_ and (mode == _DEFINE or key != _BUFFER):
                inner = _binding_mode(cls, x)
            self.stack.append((x, y, inner, path.attr(field)))
        return True

    def variables(self, a: Any, b: Any, mode: int, path: AccessPath) -> bool:
        put = self.signatures.put
        if mode == _SIGNATURE and isinstance(a, Var):
            mode = _REBIND if self.signatures.is_new(a) else _USE
        if a in self.left or b in self.right:
            if self.left.get(a) is b and self.right.get(b) is a:
                return True
            if mode != _REBIND:
                return False
            # The same variable may be bound again in a later scope.
            old_b, old_a = self.left.get(a), self.right.get(b)
            put(self.right, old_b, None)
            put(self.left, old_a, None)
            self.equal_pairs.clear()
        elif mode == _USE and not self.map_free_vars:
            return a is b
        put(self.left, a, b)
        put(self.right, b, a)
        self.renamed = self.renamed or a is not b
        if isinstance(a, Var):
            return a.dtype is b.dtype and a.storage_scope == b.storage_scope
        self.stack.append((a.struct_info, b.struct_info, _DEFINE, path.attr("struct_info")))
        return True

    def maps(self, a: Map, b: Map, mode: int, path: AccessPath) -> bool:
        if len(a) != len(b):
            return False
        todo, theirs = [], dict(b.items())
        for key, value in a.items():
            other = self.left.get(key, key) if isinstance(key, Node) else key
            if other not in b:
                return False
            shown = key if isinstance(key, str) else getattr(key, "name", "?")
            todo.append((value, theirs[other], mode, path.map_item(shown)))
        self.stack.extend(reversed(todo))
        return True

    def modules(self, a: IRModule, b: IRModule, path: AccessPath) -> bool:
        theirs = {gv.name_hint: f for gv, f in b.items()}
        if {gv.name_hint for gv in a} != set(theirs):
            return False
        self.stack.append((a.global_infos, b.global_infos, _USE, path.attr("global_infos")))
        self.stack.append((a.attrs, b.attrs, _USE, path.attr("attrs")))
        for gv, function in reversed(a.items()):
            place = path.attr("functions").map_item(gv.name_hint)
            self.stack.append((function, theirs[gv.name_hint], _USE, place))
            # Functions may share a buffer or a variable object without sharing its renaming.
            self.stack.append((_NEW_SCOPE, _NEW_SCOPE, _USE, place))
        return True


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Whether two modules, functions or nodes are the same up to names of bound variables.

    map_free_vars  also let free variables be renamed, consistently
    """
    return _Comparison(map_free_vars).run(lhs, rhs) is None


def get_first_structural_mismatch(
    lhs: Any, rhs: Any, map_free_vars: bool = False
) -> tuple[AccessPath, AccessPath] | None:
    """None if both are equal, else where they differ first, on the left and on the right."""
    mismatch = _Comparison(map_free_vars).run(lhs, rhs)
    return None if mismatch is None else (mismatch[0], mismatch[0])


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raise a ValueError (and AssertionError) that says the first path at which the two differ."""
    mismatch = _Comparison(map_free_vars).run(lhs, rhs)
    if mismatch is not None:
        path, a, b = mismatch
        place = str(path).removeprefix("<root>") or "the root"
        raise StructuralMismatch(
            f"the two differ, first at {place}:\n  left:  {_describe(a)}\n  right: {_describe(b)}"
        )


def _describe(value: Any) -> str:
    if isinstance(value, IRModule):
        return f"a module of {', '.join(gv.name_hint for gv in value)}"
    if isinstance(value, tuple):
        return f"{len(value)} items"
    if isinstance(value, Map):
        return f"keys {', '.join(str(k) for k in value)}"
    if isinstance(value, Node):
        text = " ".join(str(value).split())
        shown = text if len(text) <= 120 else text[:117] + "..."
        return f"{type(value).__name__}: {shown}"
    return repr(value)


# -- hash ------------------------------------------------------------------------------------------


def structural_hash(value: Any, map_free_vars: bool = False) -> int:
    """A 64-bit hash, the same for structurally equal values, in every process."""
    return int.from_bytes(structural_digest(value, map_free_vars)[:8], "little")


def structural_digest(value: Any, map_free_vars: bool = False) -> bytes:
    """32 bytes that are the same exactly for structurally equal values (up to collisions of
    BLAKE2).
    """
    return _Hasher(map_free_vars).run(value)


class _Hasher:
    """Feeds the structure to one hash in the order in which `_Comparison` visits it.

    Interned expressions are hashed bottom-up and remembered, since they are shared graphs.
    """

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.numbers: dict[Any, int] = {}
        self.next_number = 0
        self.signatures = _Signatures()
        self.digests: dict[int, tuple[Any, bytes]] = {}
        self.outer_digests: list[dict[int, tuple[Any, bytes]]] = []
        self.out = blake2b(digest_size=32)
        self.stack: list[tuple[Any, int]] = []

    def run(self, value: Any) -> bytes:
        self.stack.append((freeze(value), _USE))
        while self.stack:
            self.step(*self.stack.pop())
        return self.out.digest()

    def put(self, text: str) -> None:
        self.out.update(text.encode())
        self.out.update(b"\0")

    def bind(self, n: Any) -> None:
        if n in self.numbers:
            self.digests.clear()  # bound again in a later scope
        self.signatures.put(self.numbers, n, self.next_number)
        self.next_number += 1

    def begin_signature(self) -> None:
        """Read a function type: what is pushed from here on, and no more."""
        self.signatures.begin()
        self.outer_digests.append(self.digests)
        self.digests = {}
        self.stack.append((_END_OF_SIGNATURE, _USE))

    def step(self, value: Any, mode: int) -> None:
        if value is _NEW_SCOPE:
            self.numbers.clear()
            self.digests.clear()
            self.next_number = 0
        elif value is _END_OF_SIGNATURE:
            self.signatures.end()
            self.digests = self.outer_digests.pop()
        elif isinstance(value, Node):
            self.node(value, mode)
        elif type(value) is tuple:
            self.put(f"tuple {len(value)}")
            self.stack.extend((item, mode) for item in reversed(value))
        elif isinstance(value, Map):
            self.map(value, mode)
        elif isinstance(value, IRModule):
            self.put(f"module {len(value)}")
            self.stack.append((value.global_infos, _USE))
            self.stack.append((value.attrs, _USE))
            for gv, function in sorted(value.items(), key=lambda kv: kv[0].name_hint, reverse=True):
                self.stack.append((function, _USE))
                self.stack.append((_NEW_SCOPE, _USE))
                self.stack.append((gv.name_hint, _USE))
        else:
            codec = leaf_codec(type(value))
            if codec is not None:
                self.put(f"leaf {codec.tag}")
                self.out.update(codec.digest(value))
            else:
                self.put(_plain_text(value))

    def map(self, value: Map, mode: int) -> None:
        self.put(f"map {len(value)}")
        keyed = [
            (f"#{self.numbers.get(k, -1):08d}" if isinstance(k, Node) else str(k), v)
            for k, v in value.items()
        ]
        for key, item in sorted(keyed, key=lambda kv: kv[0], reverse=True):
            self.stack.append((item, mode))
            self.stack.append((key, _USE))

    def variable(self, n: Any) -> str:
        number = self.numbers.get(n)
        if number is not None:
            return f"var {number}"
        if self.map_free_vars:
            self.bind(n)
            return f"var {self.numbers[n]}"
        return f"free {_kind_of(n)}"

    def node(self, n: Node, mode: int) -> None:
        cls = type(n)
        key = cls._type_key
        if _is_variable(n):
            if mode == _SIGNATURE and isinstance(n, Var) and self.signatures.is_new(n):
                # The same numbers wherever the function type stands.
                self.signatures.put(self.numbers, n, -self.signatures.count())
                self.digests = {}
                self.put(f"define {_kind_of(n)}")
            elif mode == _REBIND or (mode == _DEFINE and n not in self.numbers):
                self.bind(n)
                self.put(f"define {_kind_of(n)}")
                if not isinstance(n, Var):
                    self.stack.append((n.struct_info, _DEFINE))  # type: ignore[attr-defined]
            else:
                self.put(self.variable(n))
            return
        if isinstance(n, Op):
            self.put(f"op {n.name}")
            return
        if isinstance(n, GlobalVar):
            self.put(f"global {n.name_hint}")
            return
        if key == _BUFFER:
            if n in self.numbers:
                self.put(f"buffer {self.numbers[n]}")
                return
            self.bind(n)
        elif cls._interned and mode == _USE:
            self.out.update(self.digest_of(n))
            return
        self.put(key)
        if _is_signature(cls):
            self.begin_signature()
        for field in reversed(_compared_fields(cls)):
            if key == _BUFFER and field in _NAME_FIELDS:
                continue
            x = getattr(n, field)
            inner = _inner_mode(n, mode)
            if field in cls._defs_ and (mode == _DEFINE or key != _BUFFER):
                inner = _binding_mode(cls, x)
            self.stack.append((x, inner))

    def digest_of(self, root: Node) -> bytes:
        """The digest of an interned expression, children first."""
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            n, ready = stack.pop()
            if id(n) in self.digests:
                continue
            if not ready:
                if type(n)._interned and not type(n)._defs_:
                    stack.append((n, True))
                    stack.extend((c, False) for c in reversed(n._children_))
                    continue
            self.digests[id(n)] = (n, self.one_digest(n))
        return self.digests[id(root)][1]

    def one_digest(self, n: Node) -> bytes:
        cls = type(n)
        inner = _Hasher(self.map_free_vars)
        inner.numbers, inner.digests, inner.next_number = (
            self.numbers,
            self.digests,
            self.next_number,
        )
        inner.signatures = self.signatures
        if not cls._interned or cls._defs_:
            if cls._interned:
                # A binder inside an expression (Let, a function type): hashed as a stream with its
                # own scope.
                inner.put(type_key(cls))
                if _is_signature(cls):
                    inner.begin_signature()
                for field in reversed(_compared_fields(cls)):
                    x = getattr(n, field)
                    mode = _binding_mode(cls, x) if field in cls._defs_ else _USE
                    inner.stack.append((x, mode))
                while inner.stack:
                    inner.step(*inner.stack.pop())
            else:
                inner.run(n)
            self.next_number = inner.next_number
            return inner.out.digest()
        inner.put(cls._type_key)
        for field in _compared_fields(cls):
            self._feed(inner, getattr(n, field))
        return inner.out.digest()

    def _feed(self, inner: _Hasher, value: Any) -> None:
        if isinstance(value, Node):
            inner.out.update(self.digests[id(value)][1])
        elif type(value) is tuple:
            inner.put(f"tuple {len(value)}")
            for item in value:
                self._feed(inner, item)
        else:
            inner.put(_plain_text(value))


def _kind_of(n: Any) -> str:
    # Variables of the graph language have struct info; their `dtype` is an expression.
    return f"{n.dtype} {n.storage_scope}" if isinstance(n, Var) else ""


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _plain_text(value: Any) -> str:
    key = value_key(value)
    name = type(value).__name__
    if isinstance(value, int) and not isinstance(value, bool):
        return f"int {int(value)}"
    if isinstance(value, float):
        return "float nan" if _is_nan(value) else f"float {key[1].hex()}"
    return f"{name} {value!s}"
