"""Object code in memory: placed by hand where that is known to be right, else by LLVM."""

import ctypes
import random
import struct
import sys

import pytest
from kernel_fixture import parse_ir, section

from relaxvm.runtime import linking
from relaxvm.runtime.linking import LinkedCode, machine_name, started_llvm

BY_HAND = sys.platform == "linux" and machine_name() == "x86_64"

# Data that is written, constants, a function of another object, of the process, of the caller.
FIRST = """
@count = global i64 5
@zeros = internal global [9 x i64] zeroinitializer, align 64
@table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
@functions = constant [2 x ptr] [ptr @twice, ptr @first]
declare i64 @twice(i64)
declare i64 @labs(i64)
declare i64 @given(i64)
define i64 @first(i64 %x) {
  %n = load i64, ptr @count
  %more = add i64 %n, %x
  store i64 %more, ptr @count
  %z = getelementptr [9 x i64], ptr @zeros, i64 0, i64 %x
  store i64 %more, ptr %z
  %p = getelementptr [4 x i64], ptr @table, i64 0, i64 %x
  %constant = load i64, ptr %p
  %negative = sub i64 %n, %constant
  %absolute = call i64 @labs(i64 %negative)
  %f = load ptr, ptr @functions
  %twice = call i64 %f(i64 %absolute)
  %result = call i64 @given(i64 %twice)
  ret i64 %result
}
"""
SECOND = """
@count = external global i64
define i64 @twice(i64 %x) {
  %n = load i64, ptr @count
  %double = mul i64 %x, 2
  %sum = add i64 %double, %n
  ret i64 %sum
}
"""


def compiled(text):
    llvm = started_llvm()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(reloc="pic", codemodel="small")
    module = parse_ir(llvm, text)
    module.triple = target.triple
    return machine.emit_object(module)


GIVEN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x + 1000)
IMPORTS = {"given": lambda: ctypes.cast(GIVEN, ctypes.c_void_p).value}


@pytest.mark.parametrize("by_hand", [True, False])
def test_both_ways_give_the_same_code(by_hand, monkeypatch):
    if not by_hand:
        monkeypatch.setattr(linking, "_PAGE", 1)  # of no machine
    code = LinkedCode([compiled(FIRST), compiled(SECOND)], ["first", "twice"], IMPORTS)
    assert type(code._memory[()]) is (linking._Pages if by_hand and BY_HAND else linking._Engine)
    first, twice = (
        ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.addresses[n])
        for n in ("first", "twice")
    )
    assert twice(4) == 13
    assert first(2) == 2 * abs(5 - 30) + 7 + 1000
    assert first(3) == 2 * abs(7 - 40) + 10 + 1000


@pytest.mark.skipif(not BY_HAND, reason="LLVM links here")
def test_where_code_stands_in_a_line_does_not_follow_from_what_is_before_it():
    for objects in ([FIRST, SECOND], [SECOND, FIRST]):
        code = LinkedCode([*map(compiled, objects)], ["first", "twice"], IMPORTS)
        assert {address % 64 for address in code.addresses.values()} == {0}


def test_what_cannot_be_linked_is_an_error():
    alone = compiled(SECOND)
    for objects, symbols in (
        ([alone], ["twice"]),
        ([compiled(FIRST), alone], ["nothing"]),
        ([compiled(FIRST), alone, alone], ["first"]),
    ):
        with pytest.raises(RuntimeError):
            LinkedCode(objects, symbols, IMPORTS)


@pytest.mark.skipif(not BY_HAND, reason="LLVM links here")
def test_damaged_objects_are_left_to_others():
    """Nothing of a damaged object runs here: it is only laid out."""
    source, whole = random.Random(1), section().native[0].object
    (table,) = struct.unpack_from("<Q", whole, 40)
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(source.randrange(1, 4)):
            begin = source.choice([0, table])
            data[source.randrange(begin, len(data))] = source.choice([0, 1, 127, 255])
        try:
            linking._Pages([bytes(data)], {})
        except (linking._UnknownError, LookupError, ValueError, OverflowError, struct.error):
            pass
