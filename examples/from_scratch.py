"""One small program through every stage of relaxvm, each called by hand and shown.

    python examples/from_scratch.py

What `relax.build` does in one call (`relaxvm/pipeline.py`) is done here step by step: a value goes
in, a value comes out and is printed. At the end, the program is run in both ways and compared with
numpy and with the meaning of its loops. docs/architecture.md lists the files that a reader of this
walk has to open.
"""

from __future__ import annotations

import numpy as np

from relaxvm import cpu, pipeline, tir
from relaxvm.ir import IRModule
from relaxvm.relax.vm_build import assemble, reachable_kernels
from relaxvm.relax.vm_codegen import emit_functions
from relaxvm.runtime import Executable, VirtualMachine
from relaxvm.script import from_source
from relaxvm.target import Target, compile_kernels, compile_program, cpu_model
from relaxvm.target.llvm import generate_llvm
from relaxvm.tir.schedule.plans import DefaultSchedule, WidenIndices
from relaxvm.tir.transform import LOWER_TIR

TEXT = """
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 16), "float32")
    ) -> R.Tensor(("n", 16), "float32"):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            R.output(z)
        return z
"""


def show(stage: str, text: str, lines: int = 24) -> None:
    """Print what a stage made, its beginning if it is long."""
    shown = text.strip("\n").splitlines()
    print(f"\n==== {stage} ====")
    print("\n".join(shown[:lines]))
    if len(shown) > lines:
        print(f"... {len(shown) - lines} more lines")


def graph_to_planned(mod: IRModule) -> IRModule:
    """Graph passes: from operators to calls of loop functions on memory that is planned."""
    for passes in (pipeline.GRAPH_TO_LEGAL, pipeline.LEGAL_TO_FUSED, pipeline.FUSED_TO_PLANNED):
        mod = passes(mod)
        show(f"after {passes.info.name}", mod["main"].script())
    pipeline.verify_stage(mod, "PLANNED")
    return mod


def loops_to_code(loops: IRModule, target: Target) -> None:
    """What `compile_kernels` does to one loop function, if it is not on disk: schedule, lower,
    LLVM's language. (It also makes the machine code.)
    """
    one = IRModule({"kernel": loops["fused_matmul_relu"]})
    show("the loop function that legalisation and fusion made", one["kernel"].script())
    scheduled = DefaultSchedule(cpu=cpu_model(target))(WidenIndices()(one))
    show("scheduled: tiles, vectors, threads", scheduled["kernel"].script(), lines=40)
    lowered = scheduled
    for loop_pass in LOWER_TIR:
        lowered = loop_pass(lowered)
    show("lowered: no blocks, flat memory", lowered["kernel"].script(), lines=40)
    show("as LLVM's text", generate_llvm(scheduled, target))


def compile_by_hand(mod: IRModule, target: Target) -> Executable:
    """From stage PLANNED to an executable: bytecode, kernels, the program that holds both, and
    machine code for the program's own functions.
    """
    bytecode = emit_functions(mod)
    schedule = DefaultSchedule(cpu=cpu_model(target))
    kernels = compile_kernels(WidenIndices()(reachable_kernels(mod)), target, schedule)
    program = assemble(bytecode, kernels.section, target)  # verified here
    show("bytecode", program.as_text())
    return compile_program(program, kernels)


def main() -> None:
    mod = from_source(TEXT)
    show("read from text; every value has a shape and a dtype", mod.script())
    target = Target("llvm")
    planned = graph_to_planned(mod)
    loops_to_code(reachable_kernels(planned), target)
    executable = compile_by_hand(planned, target)
    document = executable.to_bytes()
    print(f"\n==== one file of {len(document):,} bytes ====")

    x, w = np.random.default_rng(0).standard_normal((2, 8, 16), dtype="float32")
    x = np.ascontiguousarray(x[:5, :8])
    wanted = np.maximum(x @ w, 0)
    by_hand = {
        mode: VirtualMachine(executable, cpu(), exec_mode=mode)["main"](x, w).numpy()
        for mode in ("bytecode", "compiled")
    }
    in_one_call = VirtualMachine(pipeline.build(mod, target), cpu())["main"](x, w).numpy()
    interpreted = np.empty((5, 16), "float32")
    tir.interpret(planned["fused_matmul_relu"], x, w, interpreted)

    def verdict(result: np.ndarray, exactly: np.ndarray | None = None) -> str:
        right = np.allclose(result, wanted, atol=1e-5)
        if exactly is not None:
            right &= np.array_equal(result, exactly)
        return "yes" if right else "NO"

    print("interpreted loops agree with numpy:", verdict(interpreted))
    print("interpreted bytecode agrees with numpy:", verdict(by_hand["bytecode"]))
    print("compiled, it gives the same bits:", verdict(by_hand["compiled"], by_hand["bytecode"]))
    print("relax.build gives the same bits:", verdict(in_one_call, by_hand["bytecode"]))


if __name__ == "__main__":
    main()
