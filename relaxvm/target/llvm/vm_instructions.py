"""One instruction of a VM function: natively where that is known, else by calling the Python
function that the interpreter would call, else by leaving for the interpreter.
"""

from __future__ import annotations

from typing import Any

from ...base import llvm
from ...runtime import INTERPRETER, PYTHON, TensorInfo
from ...runtime.ops import OpKind
from .vm_body import Body
from .vm_builtins import EMITTERS, condition
from .vm_emit import BASE, CTX, DEPTH, OUT, SLOTS
from .vm_kernels import call_kernel
from .vm_values import Heap, Memory, Obj, Size, Tensor, TupleOf, Value

STACK_BYTES = 16384
"""How deep compiled functions may be inside each other on the C stack; deeper calls are the
interpreter's, which needs no stack for them.
"""
ROUNDS = 1024
"""A power of two: so many times round a loop, other threads and signals get their turn."""


def emit_instruction(body: Body) -> None:
    """Emit the instruction at `body.pc`."""
    op = body.ops[body.pc]
    if op.kind == OpKind.BUILTIN:
        assert op.builtin is not None
        emit = op.builtin.native or EMITTERS.get(op.builtin, _python_builtin)
        emit(body)
    elif op.kind == OpKind.KERNEL:
        function = body.unit.kernels.get(op.symbol)
        if function is None:
            body.leave("the kernel is not compiled here")
        call_kernel(body, function, body.unit.kernel_infos.get(op.symbol))
    elif op.kind == OpKind.EXTERN:
        _extern(body)
    elif op.kind == OpKind.FUNCTION:
        _function(body)
    elif op.kind == OpKind.INVOKE:
        _invoke(body)
    elif op.kind == OpKind.KILL:
        if body.pc not in body.plan.skipped:
            body.kill(op.args[0])
    elif op.kind == OpKind.GOTO:
        if op.target <= body.pc:
            _breathe(body)
        body.text.jump(f"b{op.target}")
    elif op.kind == OpKind.IF:
        chosen = condition(body, 0)
        if op.target <= body.pc:
            _breathe(body)
        body.text.branch(chosen, f"b{body.pc + 1}", f"b{op.target}")
    else:
        _return(body)


def _breathe(body: Body) -> None:
    """Before a jump back: now and then let other threads run, and see whether a signal has come."""
    text = body.text
    slot = text.slot("i64", 0)
    rounds = text.op("add", text.load("i64", slot), 1)
    text.store(rounds, slot)
    part = text.op("and", rounds, ROUNDS - 1)
    stop, go = text.label("breathe"), text.label("go")
    text.branch(text.op("icmp eq", part, 0), stop, go)
    with body.aside(stop):
        state = body.call("PyEval_SaveThread")
        body.call("PyEval_RestoreThread", state)
        failed = body.call("PyErr_CheckSignals")
        body.fail_if(text.op("icmp ne", failed, 0))
        text.jump(go)
    text.start(go)


def _objects(body: Body, reason: str = "a function is given a storage or shape heap") -> list[Any]:
    """The arguments as objects. Leaves, for `reason`, where one cannot be."""
    places = range(len(body.ops[body.pc].args))
    if any(isinstance(body.operand(k), (Heap, Memory)) for k in places):
        body.leave(reason)
    return [body.boxed_operand(k) for k in places]


def _python_builtin(body: Body) -> None:
    body.steps[body.pc] = (PYTHON, "a builtin without native code")
    objects = _objects(body, "it looks into a storage or the shape heap")
    result = body.python(body.word(f"op:{body.index}:{body.pc}"), objects)
    body.set(Obj(result), [result])


def _extern(body: Body) -> None:
    op = body.ops[body.pc]
    body.steps[body.pc] = (PYTHON, "a Python function")
    objects = _objects(body)
    result = body.python(body.word(f"op:{body.index}:{body.pc}"), objects)
    if 0 <= op.dst < body.registers:
        result = body.text.call("relaxvm_vm_adopt", CTX, result)
        body.fail_if_null(result)
        body.set(Obj(result), [result])
        return
    # Nobody looks at the result.
    body.drop(result)


def _function(body: Body) -> None:
    """A call of another VM function, with objects as arguments."""
    op, text, unit = body.ops[body.pc], body.text, body.unit
    callee = unit.numbers[op.symbol]
    if op.tail and unit.reaches(callee, body.index):
        body.leave("a tail call that may come back takes no stack in the interpreter")
    objects = _objects(body)
    if callee in unit.failed:
        body.steps[body.pc] = (INTERPRETER, f"{op.symbol} is not compiled")
        if op.tail:
            body.leave(f"{op.symbol} is not compiled")
        result = _interpreted(body, objects)
        body.set(Obj(result), [result])
        return
    if not unit.reaches(callee, callee) and not unit.reaches(callee, body.index):
        # No recursion: as deep as the program is, at most.
        result = _direct(body, callee, objects, op.tail)
    else:
        here = text.cast("ptrtoint", SLOTS, "i64")
        used = text.op("sub", BASE, here)
        deep_stack = text.op("icmp sgt", used, STACK_BYTES)
        deep = text.op("icmp sge", DEPTH, body.word("max_depth", "i64"))
        either = text.op("or", deep_stack, deep)
        result = text.either(
            either,
            lambda: _interpreted(body, objects),
            lambda: _direct(body, callee, objects, False),
        )
    body.set(Obj(result), [result])


def _direct(body: Body, callee: int, objects: list[llvm.Value], tail: bool) -> llvm.Value:
    text = body.text
    depth = DEPTH if tail else text.op("add", DEPTH, 1)
    result = text.call(body.unit.body_symbol(callee), CTX, depth, BASE, None, *objects)
    if not tail:
        body.fail_if_null(result)
        return result
    # The caller of a tail call is not named in errors: its frame is the callee's.
    body.exits.append((None, text.block))
    body.go_if(text.op("icmp eq", result, None), "exit")
    return result


def _interpreted(body: Body, objects: list[llvm.Value]) -> llvm.Value:
    """Let the interpreter run the callee. It is told how deep this is."""
    depth, linked = _depth(body), body.word(f"op:{body.index}:{body.pc}")
    return body.python(body.word("call:interpret"), [depth, linked, *objects])


def _depth(body: Body) -> llvm.Value:
    depth = body.call("PyLong_FromLongLong", DEPTH)
    body.fail_if_null(depth)
    body.keep(depth)
    return depth


def _invoke(body: Body) -> None:
    op = body.ops[body.pc]
    if op.tail:
        body.leave("a tail call of a closure takes no stack in the interpreter")
    body.steps[body.pc] = (PYTHON, "a closure")
    objects = [body.boxed_operand(k) for k in range(2)]
    result = body.python(body.word("call:invoke"), [_depth(body), *objects])
    body.set(Obj(result), [result])


def _is_own(value: Value) -> bool:
    """Whether a result surely shares no memory with the program's constants."""
    if isinstance(value, TupleOf):
        return all(item is not None and _is_own(item) for item in value.items)
    if isinstance(value, Tensor):
        return value.region.kind == "fresh"
    return not isinstance(value, Obj)


def _return(body: Body) -> None:
    text = body.text
    value = body.operand(0)
    if isinstance(value, (Heap, Memory)):
        body.leave("a storage or shape heap is returned")
    body.fresh = body.fresh and _is_own(value)
    place = body.ops[body.pc].args[0]
    if isinstance(value, Tensor) and value.region.result and value.box is None:
        use = value.region.result
        assert isinstance(body.info.ret, TensorInfo)
        info = body.info.ret.shape
        for axis, size in enumerate(value.dims):
            if info is None or type(info[axis]) is not int:
                same = _same(body, use, axis, size)
                use = text.op("and", use, same)
        with text.if_(use):
            out = body.field(OUT, 24)
            body.count(out)
            body.exits.append((out, text.block))
            text.jump("exit")
    result = body.boxed(value, place if place < body.registers else None)
    body.count(result)
    body.exits.append((result, text.block))
    text.jump("exit")


def _same(body: Body, use: llvm.Value, axis: int, size: Size) -> llvm.Value:
    """i1: whether the caller's memory has that size along `axis`; false where there is none."""
    text = body.text

    def equal() -> llvm.Value:
        theirs = body.field(body.field(OUT, 32), 8 * axis, "i64")
        return text.op("icmp eq", theirs, size)

    return text.either(use, equal, lambda: False)
