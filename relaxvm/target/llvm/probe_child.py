"""Run as a program by `probe.py`: compiles a text for a machine, and prints the assembly.

LLVM ends the process for a CPU or a feature that contradicts the triple, so this is done in one
that nobody will miss. It imports nothing of relaxvm.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Read a request from stdin, write assembly to stdout; complaints of LLVM go to stderr."""
    given = json.load(sys.stdin)
    sys.path[:] = given["path"]
    import llvmlite.binding as llvm

    for prepare in ("initialize_all_targets", "initialize_all_asmprinters"):
        getattr(llvm, prepare)()
    try:
        target = llvm.Target.from_triple(given["triple"])
        machine = target.create_target_machine(
            cpu=given["cpu"],
            features=given["features"],
            opt=1,
            reloc="pic",
            codemodel="default",
        )
        module = llvm.parse_assembly(given["text"])
        machine.emit_object(module)
        print(machine.emit_assembly(module))
    except RuntimeError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
