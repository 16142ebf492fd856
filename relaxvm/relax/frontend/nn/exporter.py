"""From a `Module` and a spec to an `IRModule`.

Each method becomes a graph function: its inputs, then the states of the effects, then the
parameters; it gives the result, or (result, states) where there are effects.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from ....base import FrontendError, RelaxvmError, VerifyError, add_note
from ....ir import IntImm, IRModule, substitute, walk
from ....ir import Var as TirVar
from ...analysis import assert_well_formed
from ...block_builder import BlockBuilder
from ...expr import Tuple as RelaxTuple
from ...expr import TupleGetItem, Var
from ...struct_info import (
    ObjectStructInfo,
    ShapeStructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from . import spec as _spec
from .effects import IOEffect
from .extern import ExternModule
from .op.call import io_effect
from .tensor import Tensor, dims_of_spec, symbol_of, unwrap_nested
from .tree import Effect, Parameter, Tree, find, module_paths

_current: contextvars.ContextVar[Exporter | None] = contextvars.ContextVar(
    "relaxvm_nn_exporter", default=None
)


def add_extern(mod: ExternModule) -> None:
    """Add an external module to the model that is being exported."""
    Exporter.current().add_external_module(mod)


class Exporter:
    """Writes the functions of one export.

    debug  whether methods may print: they then take and give an `IOEffect`
    """

    def __init__(self, debug: bool = False) -> None:
        self.builder = BlockBuilder()
        self.io_effect = IOEffect() if debug else None
        self.extern_mods: list[ExternModule] = []

    @staticmethod
    def current() -> Exporter:
        """The exporter at work in this thread. Raises FrontendError if there is none."""
        exporter = _current.get()
        if exporter is None:
            raise FrontendError(
                "no module is being exported; this is for methods that export_tvm(spec) or "
                "jit(spec) runs"
            )
        return exporter

    def add_external_module(self, mod: ExternModule) -> None:
        """Add an external module. Raises FrontendError if one of its functions is there already."""
        if mod in self.extern_mods:
            return
        known = {name for each in self.extern_mods for name in each.symbols}
        twice = sorted(known & set(mod.symbols))
        if twice:
            raise FrontendError(f"add_extern: {', '.join(twice)}: there already")
        self.extern_mods.append(mod)

    def build(
        self, spec: _spec.ModuleSpec
    ) -> tuple[IRModule, list[tuple[str, Parameter]], list[ExternModule]]:
        """The module's functions, its parameters by name, and the external modules it uses."""
        module = spec.module
        if not isinstance(module, Tree):
            raise FrontendError(f"export: wanted a Module, got {type(module).__name__}")
        params = list(module.named_parameters())
        effects = self._effects(module)
        # The module is left as it was, also if a method fails halfway.
        before = [(param, param._expr) for _, param in params]
        states = [(effect, dict(vars(effect))) for _, effect in effects]
        with self._at_work(module):
            try:
                if effects:
                    self._initialize(effects)
                for name, method in zip(spec.method_names, spec.method_specs):
                    try:
                        _Method(self, name, method, params, effects).emit()
                    except RelaxvmError as error:
                        add_note(error, f"while exporting {type(module).__name__}.{name}")
                        raise
            finally:
                for param, expr in before:
                    param._expr = expr
                for effect, state in states:
                    vars(effect).update(state)
        mod = self.builder.finalize()
        assert_well_formed(mod)
        return mod, params, self.extern_mods

    def _effects(self, module: Tree) -> list[tuple[str, Effect]]:
        effects: list[tuple[str, Effect]] = []
        if self.io_effect is not None:
            effects.append(("", self.io_effect))
        for name, effect in find(module, "", lambda item: isinstance(item, Effect)):
            if not any(effect is known for _, known in effects):
                effects.append((name, effect))
        return effects

    @contextlib.contextmanager
    def _at_work(self, module: Tree) -> Iterator[None]:
        if _current.get() is not None:
            raise FrontendError("a module is being exported already; exports cannot be nested")
        paths = {id(each): name for name, each in reversed(list(module.named_modules()))}
        variables: list[tuple[Any, Any]] = [
            (_current, self),
            (module_paths, paths),
            (io_effect, self.io_effect),
        ]
        tokens = [(variable, variable.set(value)) for variable, value in variables]
        try:
            yield
        finally:
            for variable, token in tokens:
                variable.reset(token)

    def _initialize(self, effects: list[tuple[str, Effect]]) -> None:
        builder = self.builder
        with builder.function("_initialize_effect", []):
            with builder.dataflow():
                states: list[Var] = []
                for name, effect in effects:
                    states.extend(effect.emit_init(name, builder))
                output = builder.emit_output(builder.emit(RelaxTuple(states)))
            builder.emit_func_output(output)


class _Method:
    """One method on its way to a function."""

    def __init__(
        self,
        exporter: Exporter,
        name: str,
        spec: _spec.MethodSpec,
        params: list[tuple[str, Parameter]],
        effects: list[tuple[str, Effect]],
    ) -> None:
        self.builder = exporter.builder
        self.name = name
        self.spec = spec
        self.params = params
        self.effects = effects
        self.symbols: dict[str, TirVar] = {}

    def emit(self) -> None:
        """Write the function."""
        spec, builder = self.spec, self.builder
        param_vars = self._parameter_vars()
        self._same_symbols(spec.arg_specs)
        inputs = [self._input(s, n) for n, s in zip(spec.arg_names, spec.arg_specs)]
        states = [effect.create(name) for name, effect in self.effects]
        effect_vars = [v for each in states for v in each]
        taken = [
            *inputs,
            *self._passed("packed_effects", effect_vars, spec.effect_mode),
            *self._passed("packed_params", param_vars, spec.param_mode),
        ]
        self._no_name_twice(taken)
        count = len(inputs) + self._count_of(effect_vars, spec.effect_mode)
        with builder.function(self.name, taken, attrs={"num_input": count}):
            with builder.dataflow():
                self._bind_parameters(param_vars, taken[-1] if taken else None)
                position = len(inputs)
                self._bind_effects(states, taken[position] if position < len(taken) else None)
                args = [self._argument(s, v) for s, v in zip(spec.arg_specs, inputs)]
                result = spec.method(**dict(zip(spec.arg_names, args)))
                output = builder.emit_output(self._result(result))
            self._end(output)

    def _end(self, output: Any) -> None:
        try:
            self.builder.emit_func_output(output)
        except VerifyError as error:
            if self.spec.param_mode != "none":
                add_note(
                    error,
                    "a parameter of the model? They are found in attributes of modules, "
                    "ModuleList, ModuleDict, ParameterList and ParameterDict, not in plain lists",
                )
                raise
            raise FrontendError(
                f"{error}; parameters cannot be used where param_mode is 'none'"
            ) from None

    # -- symbols ----------------------------------------------------------------------------------

    def _same_symbols(self, specs: list[Any]) -> None:
        """Symbols given as variables count under their names too."""
        todo = list(specs)
        while todo:
            each = todo.pop(0)
            if isinstance(each, _spec.Tuple):
                todo[:0] = list(each.elements)
            elif isinstance(each, _spec.Tensor):
                for dim in each.shape:
                    if isinstance(dim, TirVar):
                        self.symbols.setdefault(dim.name, dim)

    def _dims(self, shape: list[Any], what: str) -> list[Any]:
        """Dimensions in which one name is one symbol."""
        dims = dims_of_spec(shape, what, self.symbols)
        own_dims = []
        for dim in dims:
            if not isinstance(dim, int):
                mine = {v: self._symbol(v) for v in walk(dim) if isinstance(v, TirVar)}
                dim = substitute(dim, mine)
            own_dims.append(dim)
        return own_dims

    def _symbol(self, var: TirVar) -> TirVar:
        return self.symbols.setdefault(var.name, var)

    # -- parameters of the function ---------------------------------------------------------------

    def _parameter_vars(self) -> list[Var]:
        variables = []
        for name, param in self.params:
            dims = self._dims(param.shape, f"parameter {name}")
            variables.append(Var(name, TensorStructInfo(dims, param.dtype)))
        return variables

    def _input(self, spec: Any, name: str) -> Var:
        if isinstance(spec, _spec.Int):
            return Var(name, ShapeStructInfo([symbol_of(name, self.symbols)]))
        if isinstance(spec, _spec.Tensor):
            dims = self._dims(spec.shape, f"argument {name}")
            return Var(name, TensorStructInfo(dims, spec.dtype))
        if isinstance(spec, _spec.Object):
            return Var(name, ObjectStructInfo())
        assert isinstance(spec, _spec.Tuple)
        fields = [self._input(s, f"{name}_{i}").struct_info for i, s in enumerate(spec.elements)]
        return Var(name, TupleStructInfo(tuple(fields)))

    def _passed(self, packed: str, mine: list[Var], mode: str) -> list[Var]:
        if mode == "none" or (not mine and packed == "packed_effects"):
            return []
        if mode == "plain":
            return mine
        return [Var(packed, TupleStructInfo(tuple(v.struct_info for v in mine)))]

    @staticmethod
    def _count_of(mine: list[Var], mode: str) -> int:
        return {"plain": len(mine), "packed": min(1, len(mine)), "none": 0}[mode]

    def _no_name_twice(self, taken: list[Var]) -> None:
        seen: set[str] = set()
        for var in taken:
            if var.name_hint in seen:
                raise FrontendError(
                    f"{self.name}: two parameters of the function are called {var.name_hint!r}: "
                    "an argument of the method, and a parameter or effect of the module; "
                    "rename one"
                )
            seen.add(var.name_hint)

    # -- inside the function ----------------------------------------------------------------------

    def _bind_parameters(self, mine: list[Var], last: Var | None) -> None:
        for i, ((name, param), var) in enumerate(zip(self.params, mine)):
            if self.spec.param_mode == "packed" and last is not None:
                var = self.builder.emit(TupleGetItem(last, i), name)
            param._expr = var

    def _bind_effects(self, states: list[list[Var]], packed: Var | None) -> None:
        mode, index = self.spec.effect_mode, 0
        if mode == "none":
            return
        for (_, effect), mine in zip(self.effects, states):
            if mode == "packed" and packed is not None:
                mine = [
                    self.builder.emit(TupleGetItem(packed, index + i), v.name_hint)
                    for i, v in enumerate(mine)
                ]
                index += len(mine)
            effect.set_state(mine)

    def _argument(self, spec: Any, var: Any) -> Any:
        """What the method gets for an argument."""
        if isinstance(spec, _spec.Int):
            symbol = var.struct_info.values[0]
            return symbol.value if isinstance(symbol, IntImm) else symbol
        if isinstance(spec, _spec.Tensor):
            return Tensor(_expr=var)
        if isinstance(spec, _spec.Object):
            return spec.object_type(_expr=var, _name=var.name_hint)
        fields = [
            self._argument(s, self.builder.emit(TupleGetItem(var, i), f"{spec.name}_{i}"))
            for i, s in enumerate(spec.elements)
        ]
        return type(spec.elements)(fields)

    def _result(self, result: Any) -> Any:
        value = _as_tuple(unwrap_nested(result, f"the result of {self.name}"))
        if not self.effects or self.spec.effect_mode == "none":
            return value
        left: list[Var] = []
        for _, effect in self.effects:
            left.extend(effect.finalize())
        return RelaxTuple([value, RelaxTuple(left)])


def _as_tuple(value: Any) -> Any:
    return RelaxTuple([_as_tuple(v) for v in value]) if isinstance(value, tuple) else value
