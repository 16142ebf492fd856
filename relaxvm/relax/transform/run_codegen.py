"""RunCodegen: functions for external code generators become what these make of them.

    before:  gv = cls.fused_matmul_numpy(x, w)        # {"Codegen": "numpy"}
    after:   gv = R.call_dps_packed("env.numpy.matmul", (x, w), out_sinfo=...)

The code generator "numpy" is the function registered as ``relax.ext.numpy``. It is called with all
its functions, its options and {constant: name}, and gives for each function one of

    "env.f"      the name of a packed function, which is given the arguments and then the results to
                 fill (`R.call_dps_packed`); who runs the program registers it
    a callable   the same, registered here under a name of its own: for this process
    a PrimFunc   a loop function, called by `R.call_tir`
    a Function   a graph function to stand in its place
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base import UNKNOWN, PassError, add_note, in_function, reachable
from ...ir import GlobalVar, IRModule, PassContext, structural_digest, walk
from ...ir.transform import module_pass
from ...runtime import get_global_func, register_apart
from ...tir import PrimFunc
from ..derive import is_base_of, where
from ..expr import Binding, Call, Constant, Function
from ..flow import bindings_of
from ..normal_form import Normalizer, names_in
from ..op import call_dps_packed, call_tir
from ..rewriter import Dropper
from ..struct_info import FuncStructInfo, TensorStructInfo, TupleStructInfo


@module_pass(opt_level=0, numerics="approximate")
def RunCodegen(
    mod: IRModule,
    ctx: PassContext,
    *,
    target_options: Mapping[str, Mapping[str, Any]] | None = None,
    entry_functions: Sequence[Any] | None = None,
) -> IRModule:
    """Hand functions with the attribute ``Codegen`` to the code generators of that name.

    target_options   {code generator: its options}
    entry_functions  functions whose calls count (default: all)
    Raises PassError where a code generator is missing, or gives what cannot stand for a function.
    """
    entries = _entries(mod, entry_functions)
    functions: dict[str, dict[GlobalVar, Function]] = {}
    for gv in entries:
        fn = mod[gv]
        if isinstance(fn, Function) and fn.get_attr("Codegen"):
            functions.setdefault(str(fn.get_attr("Codegen")), {})[gv] = fn
    if not functions:
        return mod
    result = mod.clone()
    callees: dict[str, Any] = {}
    for generator, own in functions.items():
        answers = _answers(generator, own, dict((target_options or {}).get(generator, {})))
        for (gv, fn), answer in zip(own.items(), answers):
            with in_function(gv):
                _put(result, gv, fn, _checked(answer, generator, gv, fn), callees)
    for gv, caller in result.items():
        if isinstance(caller, Function):
            with in_function(gv):
                result[gv] = _with_calls(caller, callees)
    for name, callee in callees.items():
        if isinstance(callee, str):
            del result[name]
    return result


def _entries(mod: IRModule, names: Sequence[Any] | None) -> list[GlobalVar]:
    """The functions that are reached from those named."""
    if names is None:
        return list(mod)

    def called(gv: GlobalVar) -> list[GlobalVar]:
        return [mod.get_global_var(n.name_hint) for n in walk(mod[gv]) if isinstance(n, GlobalVar)]

    first = [mod.get_global_var(getattr(n, "name_hint", n)) for n in names]
    return list(reachable(first, called))


def _answers(generator: str, own: Mapping[GlobalVar, Function], options: Any) -> Sequence[Any]:
    """What the code generator makes of its functions, one for each."""
    shown = ", ".join(gv.name_hint for gv in own)
    generate = get_global_func(f"relax.ext.{generator}", allow_missing=True)
    if generate is None:
        raise PassError(
            f"RunCodegen: no code generator {generator!r} for {shown}; register it as "
            f"'relax.ext.{generator}', or import the module that does"
        )
    constants: dict[Constant, str] = {}
    for fn in own.values():
        for n in walk(fn):
            if isinstance(n, Constant) and n not in constants:
                constants[n] = f"{generator}_const_{len(constants)}"
    try:
        answers = generate(list(own.values()), options, constants)
    except Exception as error:
        add_note(error, f"in the code generator {generator!r}, for {shown}")
        raise
    if not isinstance(answers, (list, tuple)) or len(answers) != len(own):
        got = len(answers) if isinstance(answers, (list, tuple)) else type(answers).__name__
        raise PassError(
            f"RunCodegen: the code generator {generator!r} gives a list, one for each of {shown}; "
            f"got {got}"
        )
    return answers


def _checked(answer: Any, generator: str, gv: GlobalVar, fn: Function) -> Any:
    """`answer`, if it may stand for `fn`."""
    if isinstance(answer, Function):
        wanted, got = fn.struct_info, answer.struct_info
        if not isinstance(wanted, FuncStructInfo) or not is_base_of(wanted, got):
            raise PassError(
                f"RunCodegen: the code generator {generator!r} gave a function of another "
                f"signature for {gv.name_hint}\n  wanted: {wanted}\n  got:    {got}"
            )
        return answer
    if isinstance(answer, str) and answer:
        return answer
    if isinstance(answer, PrimFunc):
        return answer
    if callable(answer):
        digest = structural_digest(fn).hex()[:12]
        return register_apart(f"{generator}.{gv.name_hint}.{digest}", answer)
    raise PassError(
        f"RunCodegen: the code generator {generator!r} gave {type(answer).__name__} for "
        f"{gv.name_hint}; wanted the name of a packed function, a callable, a PrimFunc or a "
        "Function"
    )


def _put(
    result: IRModule, gv: GlobalVar, fn: Function, answer: Any, callees: dict[str, Any]
) -> None:
    """Put `answer` in the place of `fn`; `callees` says how it is called then."""
    if isinstance(answer, Function):
        result[gv] = Normalizer(names_in(answer)).function(answer.without_attr("Codegen"))
        return
    info = fn.ret_struct_info
    fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
    known = [isinstance(f, TensorStructInfo) and f.dims is not None for f in fields]
    if not fields or not all(known):
        raise PassError(
            f"RunCodegen: {gv.name_hint} gives {info}; only tensors of known shape can be "
            "allocated before the call, so its code generator has to give a Function"
        )
    if isinstance(answer, PrimFunc):
        result[gv] = callees[gv.name_hint] = answer.with_attr("global_symbol", gv.name_hint)
    else:
        callees[gv.name_hint] = answer


def _with_calls(caller: Function, callees: Mapping[str, Any]) -> Function:
    """`caller` with the functions that changed called as what they are now."""
    changes: dict[int, Any] = {}
    calls: set[int] = set()
    for b in bindings_of(caller):
        call = b.value
        if isinstance(call, Call) and isinstance(call.op, GlobalVar):
            if call.op.name_hint in callees:
                calls.add(id(call))
                changes[id(b.var)] = b.replace(value=_call(call, call.op, callees, b))
    for n in walk(caller):
        for each in n.args if isinstance(n, Call) and id(n) in calls else n._children_:
            if isinstance(each, GlobalVar) and each.name_hint in callees:
                place = where(getattr(n, "span", UNKNOWN))
                raise PassError(
                    f"RunCodegen: {each.name_hint} is used as a value{place}; what is made of it "
                    "can only be called"
                )
    return Dropper(changes).rewrite(caller) if changes else caller


def _call(call: Call, gv: GlobalVar, callees: Mapping[str, Any], b: Binding) -> Call:
    callee, info = callees[gv.name_hint], call.struct_info
    infos = list(info.fields) if isinstance(info, TupleStructInfo) else info
    try:
        if isinstance(callee, PrimFunc):
            return call_tir(gv, call.args, out_sinfo=infos)
        return call_dps_packed(callee, call.args, out_sinfo=infos)
    except Exception as error:
        add_note(error, f"for {gv.name_hint}, called at {b.var.name_hint}{where(b.span)}")
        raise
