"""Passes and the context they run under.

A pass takes a module and returns a new one that shares what it did not touch. The decorators turn
a function into a pass:

    @function_pass(opt_level=1)
    def DropNothing(fn, mod, ctx, *, verbose=False):
        return fn

    DropNothing()(mod)                  # or DropNothing(mod): run it
    DropNothing(verbose=True)(mod)      # options are the parameters after ctx

and so they do with a class that has `transform_module`, `transform_function`,
`transform_dataflowblock` or `transform_prim_func`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base import PassError, did_you_mean, in_function, in_pass
from .module import BaseFunc, IRModule
from .node import Node
from .pass_context import NUMERICS as NUMERICS
from .pass_context import PassContext as PassContext
from .pass_context import PassInfo as PassInfo
from .pass_context import after_each_pass as after_each_pass
from .pass_context import load_passes, mended
from .pass_context import register_config as register_config
from .walk import transform as rebuild

# -- passes ----------------------------------------------------------------------------------------

_PASSES: dict[str, Pass] = {}


def registered_passes() -> Mapping[str, Pass]:
    """All passes made by the decorators at module level, by name, with their default options."""
    return _PASSES


class Pass:
    """A transformation of modules.

    `p(mod)` runs it under the current context. `p(option=...)`, or `p()`, gives a pass with these
    options.
    """

    def __init__(
        self,
        info: PassInfo,
        run: Callable[..., IRModule],
        parameters: Mapping[str, inspect.Parameter] | None = None,
        options: Mapping[str, Any] | None = None,
        doc: str | None = None,
    ) -> None:
        self.info = info
        self._run = run
        self._parameters = parameters or {}
        self.options = dict(options or {})
        self.__doc__ = doc
        self.__name__ = info.name

    @property
    def pass_info(self) -> PassInfo:
        """The same as `info`, as TVM's instruments call it."""
        return self.info

    def __call__(self, *args: Any, **options: Any) -> Any:
        if args and isinstance(args[0], IRModule):
            if len(args) > 1 or options:
                raise PassError(
                    f"{self.info.name}: options go first, as in {self.info.name}(...)(mod)"
                )
            return run_pass(self, args[0])
        if args and isinstance(args[0], BaseFunc):
            raise PassError(
                f"{self.info.name}: wanted an IRModule, got a {type(args[0]).__name__}; "
                "IRModule.from_expr(function) makes one"
            )
        return self.configured(*args, **options)

    def configured(self, *args: Any, **options: Any) -> Pass:
        """This pass with options set."""
        names = list(self._parameters)
        if len(args) > len(names):
            raise PassError(
                f"{self.info.name} takes {len(names)} options ({', '.join(names) or 'none'}), "
                f"got {len(args)}; to run it, give it an IRModule"
            )
        bound = dict(zip(names, args))
        for name, value in options.items():
            if name not in self._parameters:
                raise PassError(
                    f"{self.info.name} has no option {name!r}; it has: "
                    f"{', '.join(names) or 'none'}{did_you_mean(name, names)}"
                )
            if name in bound:
                raise PassError(f"{self.info.name}: option {name!r} given twice")
            bound[name] = value
        return Pass(self.info, self._run, self._parameters, {**self.options, **bound}, self.__doc__)

    def at_level(self, opt_level: int) -> Pass:
        """This pass, for a `Sequential` that runs it from another level on than its own."""
        info = self.info.at_level(opt_level)
        return Pass(info, self._run, self._parameters, self.options, self.__doc__)

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Run without instruments or level checks."""
        missing = []
        for name, p in self._parameters.items():
            if p.default is inspect.Parameter.empty and name not in self.options:
                missing.append(name)
        if missing:
            raise PassError(
                f"{self.info.name} needs {', '.join(missing)}: {self.info.name}(...)(mod)"
            )
        return self._run(mod, ctx, **self.options)

    def __repr__(self) -> str:
        options = ", ".join(f"{k}={v!r}" for k, v in self.options.items())
        return f"{self.info.name}{{{options}}}" if options else self.info.name


def run_pass(p: Pass, mod: IRModule) -> IRModule:
    """Run `p` on `mod` under the current context, with its instruments."""
    ctx = PassContext.current()
    for instrument in ctx.instruments:
        should_run = getattr(instrument, "should_run", None)
        if should_run is not None and not should_run(mod, p.info):
            return mod
    if ctx.instruments:
        ctx._each("enter_pass", p)
        ctx._each("run_before_pass", mod, p.info)
    result = in_pass(p.info.name, p.run, mod, ctx)
    if not isinstance(result, IRModule):
        raise PassError(
            f"pass {p.info.name} returned {type(result).__name__}; a pass returns an IRModule"
        )
    if result is not mod and not isinstance(p, Sequential):
        result = mended(mod, result)
    if ctx.instruments:
        ctx._each("run_after_pass", result, p.info)
    return result


class Sequential(Pass):
    """Passes one after the other; each runs only if the context enables it, after the passes it
    requires.
    """

    def __init__(
        self,
        passes: Sequence[Pass] = (),
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] = (),
        traceable: bool = False,
    ) -> None:
        for each in passes:
            if not isinstance(each, Pass):
                raise PassError(f"Sequential: wanted passes, got {type(each).__name__}: {each!r}")
        self.passes = tuple(passes)
        super().__init__(PassInfo(opt_level, name, required, traceable), self._run_all)

    def _run_all(self, mod: IRModule, ctx: PassContext) -> IRModule:
        for each in self.passes:
            if not ctx.pass_enabled(each.info):
                continue
            for name in each.info.required:
                mod = run_pass(_registered(name), mod)
            mod = run_pass(each, mod)
        return mod

    def __repr__(self) -> str:
        return f"Sequential({self.info.name}: {', '.join(map(repr, self.passes))})"


def _registered(name: str) -> Pass:
    if name not in _PASSES:
        load_passes()
    if name not in _PASSES:
        raise PassError(f"no pass is named {name!r}")
    return _PASSES[name]


# -- decorators ------------------------------------------------------------------------------------


class PassDecorator:
    """Makes a pass of a function, or of a class that has the method `method`.

    name     under which the decorator is known
    subject  parameters that stand before the options: of a module pass ``mod, ctx``
    lift     makes a function of modules of such a function
    """

    def __init__(
        self,
        name: str,
        subject: int,
        method: str,
        lift: Callable[[Callable[..., Any]], Callable[..., IRModule]],
        doc: str,
    ) -> None:
        self.__name__, self.__doc__ = name, doc
        self._subject, self._method, self._lift = subject, method, lift

    def __call__(
        self,
        pass_func: Callable[..., Any] | None = None,
        opt_level: int | None = None,
        name: str | None = None,
        required: Sequence[str] = (),
        traceable: bool = False,
        numerics: str = "exact",
        obeys_numerics: bool = False,
    ) -> Callable[[Callable[..., Any]], Pass]:
        """The pass made of `pass_func`, or, without it, what makes one of what it decorates."""
        if opt_level is None:
            raise PassError(f"{self.__name__} needs opt_level=")

        def make(f: Any) -> Any:
            info = PassInfo(
                opt_level, name or f.__name__, required, traceable, numerics, obeys_numerics
            )
            if inspect.isclass(f):
                return _pass_class(f, info, self._method, self._lift)
            if not callable(f):
                raise PassError(f"{self.__name__} decorates a function or a class, got {f!r}")
            parameters = dict(list(inspect.signature(f).parameters.items())[self._subject :])
            result = Pass(info, self._lift(f), parameters, doc=f.__doc__)
            result.__module__ = f.__module__
            if "<locals>" not in f.__qualname__:
                _PASSES.setdefault(info.name, result)
            return result

        return make if pass_func is None else make(pass_func)


def _pass_class(cls: type, info: PassInfo, method: str, lift: Any) -> type:
    if not hasattr(cls, method):
        raise PassError(f"pass class {cls.__name__} needs a method {method}")

    class PyPass(cls, Pass):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            cls.__init__(self, *args, **kwargs)  # type: ignore[misc]
            Pass.__init__(self, info, lift(getattr(self, method)), doc=cls.__doc__)

        def __call__(self, mod: IRModule) -> IRModule:
            return run_pass(self, mod)

    PyPass.__name__ = cls.__name__
    PyPass.__qualname__ = cls.__qualname__
    PyPass.__module__ = cls.__module__
    PyPass.__doc__ = cls.__doc__
    return PyPass


def _lift_module(f: Callable[..., Any]) -> Callable[..., IRModule]:
    return f


def _lift_functions(key: str) -> Callable[[Callable[..., Any]], Callable[..., IRModule]]:
    def lift(f: Callable[..., Any]) -> Callable[..., IRModule]:
        def run(mod: IRModule, ctx: PassContext, **options: Any) -> IRModule:
            changed: dict[Any, BaseFunc | None] = {}
            for gv, fn in mod.items():
                if type(fn)._type_key != key:
                    continue
                with in_function(gv):
                    new = f(fn, mod, ctx, **options)
                if new is not fn:
                    if new is not None and not isinstance(new, BaseFunc):
                        raise PassError(
                            f"a pass on functions returns a function, got {type(new).__name__} "
                            f"for {gv.name_hint}"
                        )
                    changed[gv] = new
            if not changed:
                return mod
            result = mod.clone(functions={})
            for gv, fn in mod.items():
                new = changed.get(gv, fn)
                if new is not None:
                    result[gv] = new
            return result

        return run

    return lift


_RELAX, _TIR, _BLOCK = "relax.Function", "tir.PrimFunc", "relax.DataflowBlock"


def _lift_blocks(f: Callable[..., Any]) -> Callable[..., IRModule]:
    def on_function(fn: BaseFunc, mod: IRModule, ctx: PassContext, **options: Any) -> BaseFunc:
        def on_node(n: Node) -> Node | None:
            if type(n)._type_key == _BLOCK:
                block: Node = f(n, mod, ctx, **options)
                return block
            return None

        return rebuild(fn, on_node)

    return _lift_functions(_RELAX)(on_function)


module_pass = PassDecorator(
    "module_pass",
    2,
    "transform_module",
    _lift_module,
    "Make a pass of ``f(mod, ctx, options...)`` or of a class with `transform_module`.",
)
function_pass = PassDecorator(
    "function_pass",
    3,
    "transform_function",
    _lift_functions(_RELAX),
    """Make a pass over graph functions of ``f(fn, mod, ctx, options...) -> Function`` (None removes
    the function) or of a class with `transform_function`.
    """,
)
dataflowblock_pass = PassDecorator(
    "dataflowblock_pass",
    3,
    "transform_dataflowblock",
    _lift_blocks,
    """Make a pass over dataflow blocks of ``f(block, mod, ctx, options...) -> DataflowBlock`` or of
    a class with `transform_dataflowblock`.
    """,
)
prim_func_pass = PassDecorator(
    "prim_func_pass",
    3,
    "transform_function",
    _lift_functions(_TIR),
    """Make a pass over loop functions of ``f(fn, mod, ctx, options...) -> PrimFunc`` (None removes
    the function) or of a class with `transform_function`.
    """,
)


# -- passes that any program may want --------------------------------------------------------------


def _print_ir(
    mod: IRModule, ctx: PassContext, header: str = "", show_meta_data: bool = False
) -> IRModule:
    """Print the module, after `header`, and leave it as it is."""
    text = mod.script(show_meta=True) if show_meta_data else str(mod)
    print(f"{header}\n{text}".lstrip("\n"))
    return mod


def _apply_pass_to_function(
    mod: IRModule,
    ctx: PassContext,
    transform: Pass,
    func_name_regex: str,
    error_if_no_function_matches_regex: bool = False,
) -> IRModule:
    """Run `transform`, and keep what it did to functions whose whole name matches, and new ones."""
    try:
        pattern = re.compile(func_name_regex)
    except re.error as error:
        raise PassError(f"ApplyPassToFunction: {func_name_regex!r}: {error}") from None
    kept = {gv: fn for gv, fn in mod.items() if not pattern.fullmatch(gv.name_hint)}
    if len(kept) == len(mod):
        if error_if_no_function_matches_regex:
            names = ", ".join(gv.name_hint for gv in mod) or "none"
            raise PassError(
                f"ApplyPassToFunction: no function matches {func_name_regex!r}; there are: {names}"
            )
        return mod
    changed = transform(mod)
    if all(changed.get(gv) is fn for gv, fn in kept.items()):
        return changed
    result = changed.clone()
    result.update(kept)
    return result


PrintIR: Any = module_pass(_print_ir, opt_level=0, name="PrintIR")
ApplyPassToFunction: Any = module_pass(
    _apply_pass_to_function, opt_level=0, name="ApplyPassToFunction"
)
