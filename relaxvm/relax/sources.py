"""Where bindings come from, and how they keep it through passes.

A pass need not think of it: what it says itself (``span=call.span``, `Span.merge` where it makes
one call of several) is kept, and after each pass `carry_sources` compares the functions before and
after. A new value that says nothing comes from where its variable came from, else from where what
reads it comes from. What came from a node that nothing names any more now belongs to what took its
place: to the value that is read instead of it, or to its reader, if that was rewritten.

    c = conv2d(x, w)  # conv1                 y = conv2d_bias(x, w, b)  # conv1 + add1
    y = add(c, b)     # add1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..base import UNKNOWN, Span
from ..ir import IRModule
from ..ir.transform import after_each_pass
from .expr import LEAF_TYPES, Binding, Call, Function, If, MatchCast, source_of
from .flow import BIND, RESULT, Event, bindings_of, events, leaves, vars_in
from .rewriter import Dropper

_MOST_READERS = 8
_MOST_REACHED = 64


@after_each_pass
def carry_sources(before: IRModule, after: IRModule) -> IRModule:
    """`after`, which a pass made of `before`, with what it has lost of where bindings come from."""
    changed = {}
    named: set[int] = set()
    for gv, fn in after.items():
        old = before.get(gv.name_hint)
        if not isinstance(fn, Function) or not isinstance(old, Function) or old is fn:
            continue
        # What moved to another function is not lost.
        named = named or _named(after)
        carried = _carried(old, fn, named)
        if carried is not fn:
            changed[gv] = carried
    if changed:
        after = after.clone()
        after.update(changed)
    return after


def _named(mod: IRModule) -> set[int]:
    """Identities of the places that bindings of `mod` name."""
    functions = (fn for _, fn in mod.items() if isinstance(fn, Function))
    spans = [source_of(b) for fn in functions for b in bindings_of(fn)]
    return {id(part) for span in spans for part in span.parts or (span,)}


def _carried(before: Function, after: Function, named: set[int]) -> Function:
    old = {b.var: b for b in bindings_of(before)}
    kept = set(map(id, old.values()))
    bound: dict[Any, Binding] = {}
    silent: set[Any] = set()
    for b in bindings_of(after):
        bound[b.var] = b
        if id(b) not in kept and type(b.value) is not Function and source_of(b) is UNKNOWN:
            silent.add(b.var)
    gone = {var: b for var, b in old.items() if var not in bound}
    sources: dict[Any, Span] = {}
    for var in silent & old.keys():
        sources[var] = source_of(old[var])
    if any(_is_lost(source_of(b), named) for b in gone.values()):
        for var, span in _Moved(before, after, gone, bound).places(named):
            known = sources[var] if var in sources else source_of(bound[var])
            sources[var] = Span.merge(known, span)
    if not silent <= sources.keys():
        _by_readers(after, silent, sources)
    changes = {
        id(var): _with_source(bound[var], span)
        for var, span in sources.items()
        if span is not UNKNOWN and type(bound[var].value) not in (If, Function)
    }
    return Dropper(changes).rewrite(after) if changes else after


def _is_lost(span: Span, named: set[int]) -> bool:
    return span is not UNKNOWN and not named.issuperset(map(id, span.parts or (span,)))


def _with_source(b: Binding, span: Span) -> Binding:
    value: Any = b.value
    if isinstance(b, MatchCast) or type(value) in LEAF_TYPES or not hasattr(value, "span"):
        return b.replace(span=span)
    return b.replace(value=value.replace(span=span))


class _Moved:
    """Where what bindings that are gone stood for is computed now.

    gone   variables that a pass did away with -> their bindings, in order
    bound  the variables there are -> their bindings
    """

    def __init__(
        self,
        before: Function,
        after: Function,
        gone: Mapping[Any, Binding],
        bound: Mapping[Any, Binding],
    ) -> None:
        self.results = before.body.body, after.body.body
        self.gone = gone
        self.bound = bound
        self.readers: dict[Any, list[Event]] = {}
        for e in events(before, inner=True):
            for var in set(e.reads()) & gone.keys():
                self.readers.setdefault(var, []).append(e)
        # Variables that stay -> what a variable that is gone was computed of.
        self.reached: dict[Any, set[Any]] = {}

    def places(self, named: set[int]) -> Iterator[tuple[Any, Span]]:
        """(variable that stays, what its value comes from as well)"""
        pending: dict[Any, Span] = {}
        for var, b in self.gone.items():
            reads = set(vars_in(b.value))
            reads.update(*(self.reached[v] for v in reads & self.reached.keys()))
            self.reached[var] = reads if len(reads) <= _MOST_REACHED else set()
            span = pending.pop(var, UNKNOWN)
            if _is_lost(source_of(b), named):
                span = Span.merge(span, source_of(b))
            if span is UNKNOWN:
                continue
            for e in self.readers.get(var, ()):
                if e.kind is BIND and e.node.var in self.gone:
                    pending[e.node.var] = Span.merge(pending.get(e.node.var, UNKNOWN), span)
                else:
                    yield from ((each, span) for each in self._instead(var, e))

    def _instead(self, var: Any, reader: Event) -> Iterator[Any]:
        """What is read where `reader` read `var`; `reader` itself if it was rewritten."""
        if reader.kind is BIND:
            old, new = reader.value, self.bound[reader.node.var].value
            if not self._differs_in_reads_alone(old, new):
                yield reader.node.var
                return
        elif reader.kind is RESULT and reader.owner is None:
            old, new = self.results
        else:
            return
        for a, b in zip(leaves(old), leaves(new)):
            # What it was computed of itself does not compute it.
            if a is var and b in self.bound and b not in self.reached[var]:
                yield b

    def _differs_in_reads_alone(self, old: Any, new: Any) -> bool:
        """Whether two values do the same with other variables instead of those that are gone."""
        pair = leaves(old), leaves(new)
        return (
            type(old) is type(new)
            and len(pair[0]) == len(pair[1])
            and (type(old) is not Call or old.attrs is new.attrs)
            and all(a is b or a in self.gone for a, b in zip(*pair))
        )


def _by_readers(after: Function, silent: set[Any], sources: dict[Any, Span]) -> None:
    """Enter where what is still silent comes from: as what reads it, else as what it reads."""
    row = [e for e in events(after, inner=True) if e.value is not None]
    readers: dict[Any, Span] = {}
    for e in reversed(row):
        b = e.owner if e.kind is RESULT else e.node
        if b is None:
            continue
        if e.kind is BIND and b.var in silent and b.var not in sources and b.var in readers:
            # What serves everything, such as the heap of shapes, comes from nowhere.
            few = len(readers[b.var].parts) <= _MOST_READERS
            sources[b.var] = readers[b.var] if few else UNKNOWN
        span = sources[b.var] if b.var in sources else source_of(b)
        if span is not UNKNOWN:
            for var in e.reads():
                if var in silent and var not in sources:
                    readers[var] = Span.merge(readers.get(var, UNKNOWN), span)
    own: dict[Any, Span] = {}
    for e in row:
        if e.kind is not BIND:
            continue
        var = e.node.var
        own[var] = source_of(e.node)
        if var in silent and var not in sources:
            spans = (own.get(read, UNKNOWN) for read in e.reads())
            sources[var] = own[var] = next((s for s in spans if s is not UNKNOWN), UNKNOWN)
