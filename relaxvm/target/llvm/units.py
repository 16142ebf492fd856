"""Loop functions in units: what is compiled together, kept on disk together, and shared.

A unit is a loop function, or several that call each other. It becomes an object of its own, under
symbols that follow from what it computes; so equal kernels are compiled once, whatever their names,
and the object is the same in every program. Its key is made of the functions as they come in,
before they are scheduled and lowered: a unit that is on disk costs neither passes nor LLVM.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass, replace
from typing import Any

import msgpack

from ... import __version__
from ...base import Decision, InternalError, components, config, record, tell
from ...base.config import checks_enabled
from ...ir import GlobalVar, IRModule, PassContext, load_msgpack, save_msgpack
from ...ir.transform import Pass, Sequential, registered_passes
from ...runtime import KernelInfo, Plain, rows_replaced
from ...tir import PrimFunc
from ...tir.analysis import called_functions, verify_well_formed
from ...tir.schedule import builtins_replaced
from ...tir.schedule.plans import DefaultSchedule
from ...tir.transform import WRITES_OUT, lower_module
from .codegen import Generator, InnerKernel, generate
from .dot_units import vector_units
from .fingerprint import fingerprint
from .flops import note_flops
from .machine import Machine, compile_text, has_symbol, host_machine, producer
from .signature import signature_of

_NUMBERED = re.compile(r"_?\d+$")


@record
class Settings:
    """What units are compiled for, and how.

    confined  whether nothing may reach outside of the arguments (code from files)
    schedule  the pass that schedules functions; None: they stay as they are
    context   the PassContext of the build
    """

    machine: Machine
    confined: bool = False
    schedule: Pass | None = None
    context: PassContext = field(default_factory=PassContext.current)

    def key(self) -> str | None:
        """Text that is the same where everything that matters is the same; None where that cannot
        be told or need not be, and nothing is taken from the disk.
        """
        sources = fingerprint() if config.cache_enabled() else None
        context = self.context
        # Instruments watch the passes run, and may skip some; what a user's own passes do may be
        # another thing tomorrow.
        own = context.instruments or context.get("tir.add_lower_pass")
        if sources is None or own or builtins_replaced() or rows_replaced():
            return None
        return repr(
            (
                (__version__, sources, producer(), self.confined),
                _plain(self.machine),
                None if self.schedule is None else _pass_plain(self.schedule),
                (context.opt_level, context.required_pass, context.disabled_pass),
                sorted(context.config.items()),
            )
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """For workers: passes are known there by name, and instruments stay here."""
        context, schedule = self.context, self.schedule
        named = None if schedule is None else (schedule.info.name, schedule.options)
        chosen = (context.opt_level, context.required_pass, context.disabled_pass, None)
        return _settings, (self.machine, self.confined, named, (*chosen, context.config))


def _settings(machine: Machine, confined: bool, named: Any, context: tuple[Any, ...]) -> Settings:
    schedule = None if named is None else registered_passes()[named[0]].configured(**named[1])
    return Settings(machine, confined, schedule, PassContext(*context))


def _plain(record: Any) -> list[Any]:
    """The fields of a dataclass. Sets are sorted: their order is another in each process."""
    values = ((f.name, getattr(record, f.name)) for f in fields(record))
    return [(k, sorted(v) if isinstance(v, frozenset) else v) for k, v in values]


def _pass_plain(schedule: Pass) -> list[Any]:
    options = sorted(schedule.options.items())
    return [schedule.info.name, [(k, _plain(v) if is_dataclass(v) else v) for k, v in options]]


@record
class Unit:
    """Functions that are compiled together.

    functions  named as the user knows them
    names      under which each exported one is called
    stem       what its symbols are called after; the name of a single function in `document`
    document   the functions in bytes, without what differs between equal ones
    """

    functions: IRModule
    names: dict[GlobalVar, tuple[str, ...]]
    stem: str
    document: bytes

    @property
    def tag(self) -> str:
        """Tells its symbols from those of others."""
        return hashlib.sha256(self.stem.encode() + b"\0" + self.document).hexdigest()[:16]

    @property
    def called(self) -> set[str]:
        """All names of its kernels."""
        return {name for names in self.names.values() for name in names}

    def inside(self, gv: GlobalVar) -> str:
        """What a function is called in the compiled unit."""
        return self.stem if len(self.functions) == 1 else gv.name_hint

    def key(self, settings: str) -> bytes:
        """Of the cache's entry."""
        return f"unit {settings} {self.stem}\0".encode() + self.document


def split(mod: IRModule) -> list[Unit]:
    """The units of a module of loop functions, in its order; equal functions share one."""
    units: list[Unit | bytes] = []
    alone: dict[bytes, list[GlobalVar]] = {}
    for group in _groups(mod):
        if len(group) == 1 and not called_functions(_loop_function(mod, group[0])):
            document = save_msgpack(IRModule({"kernel": _nameless(mod[group[0]])}), spans=False)
            if document not in alone:
                units.append(document)
            alone.setdefault(document, []).append(group[0])
            continue
        functions = IRModule({gv: mod[gv] for gv in group})
        document = save_msgpack(functions, spans=False)
        units.append(Unit(functions, _own_names(functions), group[0].name_hint, document))
    return [_single(mod, m, alone[m]) if isinstance(m, bytes) else m for m in units]


def unit_of(stem: str, document: bytes) -> Unit:
    """The unit with this document, in another process."""
    functions = load_msgpack(document)
    if len(functions) == 1:
        (fn,) = functions.functions.values()
        functions = IRModule({stem: fn})
    return Unit(functions, _own_names(functions), stem, document)


def _own_names(functions: IRModule) -> dict[GlobalVar, tuple[str, ...]]:
    return {gv: (gv.name_hint,) for gv in exported_functions(functions)}


def _single(mod: IRModule, document: bytes, gvs: Sequence[GlobalVar]) -> Unit:
    first = gvs[0]
    functions = IRModule({first: mod[first]})
    exported = exported_functions(functions)
    names = {first: tuple(gv.name_hint for gv in gvs)} if exported else {}
    # "add", "add1" and "add_2" are numbered for their module only.
    stem = _NUMBERED.sub("", first.name_hint) or "kernel"
    return Unit(functions, names, stem, document)


def _nameless(fn: Any) -> PrimFunc:
    """The function without its own name. Only whether it is public matters to the code."""
    assert isinstance(fn, PrimFunc)
    if fn.get_attr("global_symbol") is None:
        return fn
    return fn.with_attr("global_symbol", "kernel")


def _loop_function(mod: IRModule, gv: GlobalVar) -> PrimFunc:
    fn = mod[gv]
    assert isinstance(fn, PrimFunc)
    return fn


def _groups(mod: IRModule) -> list[list[GlobalVar]]:
    """The functions of `mod`, those together that are connected by calls."""
    beside: dict[GlobalVar, list[GlobalVar]] = {gv: [] for gv in mod}
    for gv in mod:
        for callee in called_functions(_loop_function(mod, gv)):
            # What is called but missing is the code generator's to refuse.
            if callee in beside:
                beside[gv].append(callee)
                beside[callee].append(gv)
    position = {gv: i for i, gv in enumerate(mod)}
    return sorted(
        (sorted(group, key=position.__getitem__) for group in components(mod, beside)),
        key=lambda group: position[group[0]],
    )


def exported_functions(mod: IRModule) -> list[GlobalVar]:
    """Every function but the private ones that return a value: only other loop functions can use
    those.
    """
    exported = []
    for gv, fn in mod.items():
        assert isinstance(fn, PrimFunc)
        private = fn.get_attr("global_symbol") is None
        returns = fn.ret_type is not None and fn.ret_type.dtype.kind != "void"
        if not (private and returns):
            exported.append(gv)
    return exported


# -- compiling -------------------------------------------------------------------------------------


@record
class CompiledUnit(Plain, form="list"):
    """What becomes of a unit; it does not know under which names its kernels are called.

    object    b"" if nothing of it can be called
    portable  the scheduled functions, from which any machine can compile it again
    infos     the wrappers, in the order of `Unit.names`
    inner     of each: symbol, failures, threads (see `codegen.InnerKernel`)
    externs   C functions by name, and whether the process that runs it has them
    decisions  what passes told: pass, function, whether something was done, text
    """

    object: bytes
    portable: bytes
    infos: tuple[KernelInfo, ...]
    inner: tuple[tuple[str, tuple[int, ...], bool], ...]
    externs: tuple[tuple[str, bool], ...] = ()
    decisions: tuple[tuple[str, str, bool, str], ...] = ()

    def to_bytes(self) -> bytes:
        """As the cache keeps it."""
        packed: bytes = msgpack.packb(self.to_plain(), use_bin_type=True)
        return packed

    @classmethod
    def from_bytes(cls, data: bytes) -> CompiledUnit:
        """The inverse. The cache vouches for `data`."""
        return cls.from_plain(msgpack.unpackb(data))

    def tell(self, unit: Unit) -> None:
        """Tell the decisions again, with the names that the functions have here."""
        here = {unit.inside(gv): names for gv, names in unit.names.items()}
        for pass_name, function, done, text in self.decisions:
            for name in here.get(function, (function,)):
                tell([Decision(pass_name, name, done, "{}", (text,))])

    def runs_here(self) -> bool:
        """Whether this process has the C functions that the one that compiled it had."""
        return all(has_symbol(name) is present for name, present in self.externs)

    def kernels(self, unit: Unit) -> Iterator[tuple[KernelInfo, InnerKernel]]:
        """Its kernels under all their names."""
        for (gv, names), info, (symbol, failures, threads) in zip(
            unit.names.items(), self.infos, self.inner
        ):
            fn = unit.functions[gv]
            assert isinstance(fn, PrimFunc)
            own = signature_of(fn, [])
            params = tuple(replace(p, access=i.access) for p, i in zip(own.params, info.params))
            signature = replace(own, params=params, noalias=info.noalias)
            lowered = info.params[:-1] if info.returns else info.params
            if signature.kernel_params() != lowered:
                raise InternalError(f"{gv.name_hint}: passes changed what the function takes")
            for name in names:
                yield (
                    replace(info, name=name),
                    InnerKernel(symbol, signature, failures, threads),
                )


@record
class GeneratedUnit:
    """A unit of which only LLVM's part is left to do.

    text, straight  as `compile_text` takes them; None: nothing of it can be called
    result          the compiled unit, without its object
    """

    name: str
    text: str | None
    straight: str
    machine: Machine
    result: CompiledUnit

    def compiled(self) -> CompiledUnit:
        """Raises CodegenError for what LLVM has no code for."""
        if self.text is None:
            return self.result
        code = compile_text(self.text, self.machine, straight=self.straight, name=self.name)
        return replace(self.result, object=code.object)


def compile_unit(unit: Unit, settings: Settings) -> CompiledUnit:
    """`generate_unit`, then optimise and emit."""
    return generate_unit(unit, settings).compiled()


def generate_unit(unit: Unit, settings: Settings) -> GeneratedUnit:
    """Schedule, lower, generate.

    Raises VerifyError for functions that are not well formed, CodegenError for what there is no
    code for.
    """
    with settings.context.again() as context:
        scheduled, lowered = prepare(unit.functions, settings)
    inside = {gv.name_hint: unit.inside(gv) for gv in unit.functions}
    told = [
        (d.pass_name, inside.get(d.function, d.function), d.done, d.text) for d in context.report
    ]
    generated = finish_unit(unit, settings, scheduled, lowered)
    return replace(generated, result=replace(generated.result, decisions=tuple(told)))


def prepare(mod: IRModule, settings: Settings) -> tuple[IRModule, IRModule]:
    """`mod` scheduled and lowered as a whole."""
    scheduled = _scheduled(mod, settings.schedule)
    return scheduled, _lowered(scheduled, settings.machine)


def finish_unit(
    unit: Unit, settings: Settings, scheduled: IRModule, lowered: IRModule
) -> GeneratedUnit:
    """The rest of `generate_unit`, where more than its functions may be lowered."""
    portable = _portable(unit, scheduled)
    if not unit.names:
        return GeneratedUnit("", None, "", settings.machine, CompiledUnit(b"", portable, (), ()))
    mine = IRModule({gv: lowered[gv] for gv in unit.functions})
    stems = {gv: f"{unit.inside(gv)}_{unit.tag}" for gv in unit.functions}
    externs: dict[str, bool] = {}
    generated = _generated(mine, list(unit.names), settings, stems, externs)
    inner = [generated.inner(gv) for gv in unit.names]
    result = CompiledUnit(
        b"",
        portable,
        tuple(replace(i, name=unit.inside(gv)) for gv, i in zip(unit.names, generated.infos)),
        tuple((k.symbol, k.failures, k.threads) for k in inner),
        tuple(externs.items()),
    )
    name = next(iter(unit.names.values()))[0]
    texts = generated.text(), generated.wrappers.text()
    return GeneratedUnit(name, *texts, settings.machine, result)


def generate_module(mod: IRModule, settings: Settings) -> Generator:
    """All of `mod` as one LLVM module, to be read."""
    with settings.context.again():
        _, lowered = prepare(mod, settings)
    return _generated(lowered, exported_functions(mod), settings, {}, {})


def _portable(unit: Unit, scheduled: IRModule) -> bytes:
    if len(unit.functions) == 1:
        (gv,) = unit.functions
        return save_msgpack(IRModule({unit.stem: _nameless(scheduled[gv])}), spans=False)
    return save_msgpack(IRModule({gv: scheduled[gv] for gv in unit.functions}), spans=False)


def _scheduled(mod: IRModule, schedule: Pass | None) -> IRModule:
    verify_well_formed(mod)
    if schedule is None:
        return mod
    scheduled: IRModule = Sequential((schedule,), name="schedule")(mod)
    if checks_enabled() or schedule.info is not DefaultSchedule.info:
        verify_well_formed(scheduled)
    return note_flops(mod, scheduled)


def _lowered(mod: IRModule, machine: Machine) -> IRModule:
    told: dict[str, Any] = {WRITES_OUT: True}
    units = vector_units(machine)
    if units is not None:
        told |= {"tir.vector_bits": units[0], **({"tir.fma": True} if units[1] else {})}
    return lower_module(mod.clone(functions={gv: fn.with_attr(told) for gv, fn in mod.items()}))


def _generated(
    lowered: IRModule,
    exported: Sequence[GlobalVar],
    settings: Settings,
    symbols: Mapping[GlobalVar, str],
    externs: dict[str, bool],
) -> Generator:
    """The LLVM text; `externs` gets what was asked about this process."""
    machine = settings.machine
    local = machine.triple == host_machine().triple

    def present(name: str) -> bool:
        # Nobody knows what a process on another machine has.
        return not local or externs.setdefault(name, has_symbol(name))

    return generate(
        lowered,
        exported,
        machine,
        confined=settings.confined,
        has_symbol=present,
        symbols=symbols,
    )
