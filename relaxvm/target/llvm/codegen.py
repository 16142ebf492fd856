"""The LLVM module of several loop functions: an inner kernel each, and a checking wrapper for
those that are called from outside.

The wrapper's interface is described in `runtime/kernel.py`. An inner kernel takes the bare data
pointers, the scalars, and the symbols as i64, and returns the number of an assertion that failed,
or 0. Those with wrappers can be called from other modules that are linked with this one: `hidden`
lets the call be direct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any

from ...base import CodegenError, DataType, NameSupply, add_note, callees_first, reachable, record
from ...base.llvm import Function, Value, constant
from ...ir import Call, GlobalVar, IRModule, PrimExpr, Var, is_const
from ...runtime import Failure, KernelInfo
from ...tir import Buffer, PrimFunc, decl_buffer
from ...tir.analysis import access_nodes
from .expr import ExprEmitter
from .flops import kernel_flops
from .machine import Machine
from .module import ModuleText
from .parallel import RET
from .signature import Parameter, Signature, signature_of
from .stmt import STACK_BYTES, THREADS, KernelEmitter, Memory
from .text import constant_size, mangle, scalar_type, storage_type
from .wrapper import emit_wrapper

MAX_CALL_DEPTH = 32


@record(frozen=False)
class Definition:
    """A function being generated.

    callees   the functions of the module that it calls
    failures  the numbers of the assertions that may fail in it
    threads   whether it takes a thread budget
    kinds     the LLVM types of its arguments
    """

    gv: GlobalVar
    fn: PrimFunc
    signature: Signature
    symbol: str
    ret: DataType | None
    callees: tuple[GlobalVar, ...]
    failures: set[int] = field(default_factory=set)
    threads: bool = False
    kinds: tuple[str, ...] = ()


@record
class InnerKernel:
    """How other modules call a kernel without its wrapper.

    failures  the numbers it returns for assertions that failed, in the order of the wrapper's own
    threads   whether it takes a thread budget
    """

    symbol: str
    signature: Signature
    failures: tuple[int, ...]
    threads: bool


class Generator(ModuleText):
    """A module of loop functions that may call each other, beside a module of their wrappers, which
    `infos` describe.
    """

    def __init__(self, machine: Machine, confined: bool, has_symbol: Callable[[str], bool]) -> None:
        super().__init__(machine, confined, has_symbol)
        self.functions: dict[GlobalVar, Definition] = {}
        self.infos: tuple[KernelInfo, ...] = ()
        # Apart, since they are straight code of which LLVM's passes make nothing better, at half
        # the cost of a small kernel.
        self.wrappers = ModuleText(machine, confined, has_symbol)

    def inner(self, gv: GlobalVar) -> InnerKernel:
        """The inner kernel of a function."""
        definition = self.functions[gv]
        failures = tuple(self.transitive_failures(definition))
        return InnerKernel(definition.symbol, definition.signature, failures, definition.threads)

    def callee(self, node: Call) -> Definition:
        """The function of the module that a call names."""
        assert isinstance(node.op, GlobalVar)
        return self.functions[node.op]

    def symbols_for(
        self, callee: Definition, node: Call, memory: Mapping[Any, Memory]
    ) -> dict[Var, PrimExpr]:
        """The values of the callee's symbols in a call, from the caller's buffers, as far as their
        `memory` is known. Raises CodegenError where that does not tell all.
        """
        symbols = callee.signature.symbols
        values: dict[Var, PrimExpr] = {}
        for param, arg in zip(callee.signature.params, node.args):
            theirs, ours = param.buffer and param.buffer.shape, memory.get(arg)
            if theirs and ours is not None and len(ours[0]) == len(theirs):
                for extent, known in zip(theirs, ours[0]):
                    if isinstance(extent, Var) and extent in symbols:
                        values.setdefault(extent, known)
        for symbol in symbols:
            if symbol not in values:
                raise CodegenError(
                    f"{node.op}: the value of symbol {symbol.name} cannot be told from this call"
                )
        return values

    def call_function(self, g: KernelEmitter, node: Call, parts: list[Value]) -> Value:
        """A call of another loop function of the module; leaves with its failure if it has one."""
        callee = self.callee(node)
        known = self.symbols_for(callee, node, g.memory)
        symbols = {symbol: g.wide_value(e) for symbol, e in known.items()}
        for param, arg in zip(callee.signature.params, node.args):
            if param.buffer is None or not self.confined:
                continue
            mine = g.memory.get(arg) if isinstance(arg, Var) else None
            if not _is_large_enough(mine, param.buffer):
                raise CodegenError(
                    f"{node.op}: that {param.name} is as large as declared cannot be proven"
                )
        passed = [*parts, *(symbols[symbol] for symbol in callee.signature.symbols)]
        ret, result = callee.ret, constant(None, "ptr")
        if ret is not None:
            result = g.text.alloca("i8", 16, 16)
            passed.append(result)
        if callee.threads:
            passed.append(g.threads)
            g.uses_threads = g.uses_threads or g.threads == THREADS
        code = g.text.call(callee.symbol, *passed)
        if self.transitive_failures(callee):
            g.fail_unless(g.text.op("icmp eq", code, 0), code)
        if ret is None:
            return code
        kept = g.text.load(storage_type(ret, self.native_half), result, ret.itemsize)
        return g.from_storage(ret, kept)

    def transitive_failures(self, function: Definition) -> list[int]:
        """The numbers of the assertions that may fail in it or in what it calls."""
        failures: set[int] = set()
        for gv in reachable([function.gv], lambda gv: self.functions[gv].callees):
            failures |= self.functions[gv].failures
        return sorted(failures)


# (generator, function, whether it is called from outside): makes its inner kernel, and says which
# kinds, failures and threads it has.
Define = Callable[[Generator, Definition, bool], None]


def _is_large_enough(mine: Memory | None, theirs: Buffer) -> bool:
    """Whether the caller's memory has all the bytes of the callee's buffer, both being constant."""
    if mine is None or theirs.strides:
        return False
    shape, dtype = mine
    have = constant_size(shape, dtype.itemsize)
    wanted = constant_size(theirs.shape, theirs.dtype.itemsize)
    return have is not None and wanted is not None and have >= wanted


def generate(
    mod: IRModule,
    exported: Iterable[GlobalVar],
    machine: Machine,
    *,
    confined: bool = False,
    has_symbol: Callable[[str], bool] = lambda name: True,
    symbols: Mapping[GlobalVar, str] | None = None,
    define: Define | None = None,
) -> Generator:
    """LLVM assembly for the lowered functions of `mod`, with wrappers for `exported`.

    symbols  what the symbols of functions are made of, where it is not their names
    define   what makes the inner kernels, if they are not to be LLVM assembly

    Raises CodegenError naming the function and the statement that has no code.
    """
    generator = Generator(machine, confined, has_symbol)
    nodes = {gv: _nodes(gv, fn) for gv, fn in mod.items()}
    calls = {gv: [n for n in own if isinstance(n, Call)] for gv, own in nodes.items()}
    called = {gv: _called(own) for gv, own in calls.items()}
    supply = NameSupply(joint=".")
    wanted = set(exported)
    for gv in _callees_first(mod, called):
        fn = mod[gv]
        assert isinstance(fn, PrimFunc)
        with _named(gv):
            signature = signature_of(fn, nodes[gv])
            ret = _result_dtype(fn, calls[gv])
            stem = mangle((symbols or {}).get(gv, gv.name_hint))[:400]
            symbol = supply.fresh(f"relaxvm_inner_{stem}")
            definition = Definition(gv, fn, signature, symbol, ret, called[gv])
            generator.functions[gv] = definition
            (define or _define)(generator, definition, gv in wanted)
    infos = []
    for gv in mod:
        if gv in wanted:
            with _named(gv):
                infos.append(_wrap(generator, generator.functions[gv]))
    generator.infos = tuple(infos)
    return generator


def _result_dtype(fn: PrimFunc, calls: list[Call]) -> DataType | None:
    """The dtype of what a function returns: as declared, else that of the first ``T.ret`` of
    something else than 0.
    """
    if fn.ret_type is not None:
        return None if fn.ret_type.dtype.kind == "void" else fn.ret_type.dtype
    for n in calls:
        if n.op is RET and not is_const(n.args[0], 0):
            return n.args[0].dtype
    return None


@contextmanager
def _named(gv: GlobalVar) -> Iterator[None]:
    """Adds the function's name to errors."""
    try:
        yield
    except CodegenError as error:
        raise CodegenError(f"{gv.name_hint}: {error}") from error.__cause__
    except BaseException as error:
        add_note(error, f"in function {gv.name_hint}")
        raise


def _nodes(gv: GlobalVar, fn: Any) -> list[Any]:
    if not isinstance(fn, PrimFunc):
        raise CodegenError(f"{gv.name_hint}: wanted a loop function, got {type(fn).__name__}")
    return access_nodes(fn)


def _called(calls: list[Call]) -> tuple[GlobalVar, ...]:
    return tuple(dict.fromkeys(n.op for n in calls if isinstance(n.op, GlobalVar)))


def _callees_first(
    mod: IRModule, called: Mapping[GlobalVar, Sequence[GlobalVar]]
) -> list[GlobalVar]:
    """The functions in an order in which callees stand before callers. Raises CodegenError for
    recursion.
    """
    for gv in mod:
        for each in called[gv]:
            if each not in mod or mod.get_global_var(each.name_hint) is not each:
                raise CodegenError(
                    f"{gv.name_hint}: calls {each.name_hint}, which is not in the module"
                )
    order: dict[GlobalVar, int] = {}
    for gv in callees_first(called, called):
        for callee in called[gv]:
            if callee not in order:
                raise CodegenError(
                    f"{callee.name_hint}: loop functions call each other in a circle"
                )
        order[gv] = 1 + max((order[c] for c in called[gv]), default=0)
        if order[gv] > MAX_CALL_DEPTH:
            raise CodegenError(f"{gv.name_hint}: calls nested deeper than {MAX_CALL_DEPTH}")
    return list(order)


def _define(generator: Generator, function: Definition, exported: bool) -> None:
    """Append an inner kernel."""
    linkage = "hidden" if exported else "internal"
    signature = function.signature
    text = Function(generator, function.symbol, "i32", "noinline nounwind", linkage)
    g = KernelEmitter(generator, text, function.fn, STACK_BYTES)
    g.symbol = function.symbol
    for i, param in enumerate(signature.params):
        if param.buffer is None:
            g.env[param.var] = text.param(f"a{i}", scalar_type(param.dtype))
            continue
        facts = f" align {param.dtype.itemsize}" + _dereferenceable(param)
        facts = (" noalias" if signature.noalias else "") + facts
        name = text.param(f"a{i}", "ptr", facts)
        g.pointers[name] = facts
        g.env[param.buffer.data] = g.env[param.var] = name
        if signature.noalias:
            g.apart |= {param.buffer.data, param.var}
            if "w" not in param.access:
                g.fixed |= {param.buffer.data, param.var}
        if not param.buffer.strides:
            g.memory[param.buffer.data] = g.memory[param.var] = (param.buffer.shape, param.dtype)
    for i, symbol in enumerate(signature.symbols):
        g.bind_symbol(symbol, text.param(f"s{i}", "i64"))
    for zero in signature.zeros:
        g.env[zero] = constant(0, scalar_type(zero.dtype))
    if function.ret is not None:
        g.ret = (text.param("ret", "ptr"), function.ret)
    g.run(function.fn.body)
    if g.uses_threads:
        function.threads = True
        text.param("threads", "i64")
    function.kinds = tuple(each.type for each in text.params)
    function.failures |= g.used_failures
    generator.add(text)


def _dereferenceable(param: Parameter) -> str:
    """That the memory of a constant shape is really there."""
    assert param.buffer is not None
    size = constant_size(param.buffer.shape, param.dtype.itemsize)
    if size is None or param.buffer.strides:
        return ""
    return f" dereferenceable({size})" if 0 < size < 1 << 62 else ""


def _wrap(generator: Generator, function: Definition) -> KernelInfo:
    """Append the wrapper of `function`; returns what it is."""
    signature = function.signature
    if function.ret is not None:
        place = decl_buffer((), function.ret, "return")
        result = Parameter("return", Var("return", "handle"), place, "ret")
        signature = replace(signature, params=(*signature.params, result))
    symbol = function.symbol.replace("relaxvm_inner_", "relaxvm_kernel_", 1)
    inner = generator.transitive_failures(function)
    # Checks, once per call: to optimise them takes LLVM longer than many a kernel, and saves 5 ns.
    wrappers = generator.wrappers
    text = Function(wrappers, symbol, "i32", "noinline nounwind optnone")
    text.param("args", "ptr")
    wrappers.declare(function.symbol, "hidden i32", function.kinds, "nounwind")
    failures: list[Failure] = emit_wrapper(
        ExprEmitter(wrappers, text), signature, function.symbol, inner, function.threads
    )
    messages = list(generator.failures)
    failures += [Failure("assert", message=messages[number - 1]) for number in inner]
    wrappers.add(text)
    return KernelInfo(
        function.gv.name_hint,
        symbol,
        signature.kernel_params(),
        tuple(failures),
        signature.noalias,
        kernel_flops(function.fn, signature),
    )
