"""The names of TVM that do not exist here, each with its reason, in one table; the errors that say
so; and docs/tvm_names.md, which ``python -m relaxvm._absent --markdown`` writes.

A name that comes to exist leaves the table: a test holds that. Read only when a name is not there.
"""

from __future__ import annotations

import difflib
import functools
import opcode
import os
import pathlib
import pkgutil
import sys
from collections.abc import Sequence
from types import FrameType

from ._aliases import MODULES, real_name

PAGE = "docs/tvm_names.md"

# Reason -> TVM's module (or class, or "" for the package) -> its names; "*" stands for the module
# itself and all below it.
ABSENT: dict[str, dict[str, str]] = {
    "an annotation of `te` schedules; `tir.transform.CompactBufferAllocation` shrinks buffers": {
        "tir.transform": "InjectRollingBuffer"
    },
    "boosting is scikit-learn's": {"meta_schedule.cost_model.xgb_model": "*"},
    "candidates run, on random arguments, in a process without functions of the user's": {
        "meta_schedule.runner.local_runner": "default_alloc_argument",
        "meta_schedule.utils": "get_global_func_with_default_on_worker",
    },
    "models are tuned as Relax: `meta_schedule.relax_integration`, or `relaxvm.tune`": {
        "meta_schedule": "is_meta_schedule_enabled relay_integration",
    },
    "a helper of TVM's own tests": {"meta_schedule": "testing", "tir.schedule": "testing"},
    "comes with the importer": {
        "relax.frontend.common": "*",
        "relax.frontend.torch": "*",
    },
    "machine code is linked in the process; `export_library` asks the system's linker": {
        "contrib": "cc clang ndk tar"
    },
    "nothing here reads from a network": {"contrib": "download"},
    "only meaningful on a GPU; code is made for CPUs here": {
        "": "cuda rocm opencl metal vulkan webgpu",
        "contrib": "cublas cudnn cutlass hipblas nvcc rocblas rocm thrust",
        "relax.backend": "DispatchSampling",
        "dlight": "*",
        "meta_schedule.schedule_rule": "MultiLevelTilingTensorCore",
        "relax.frontend.nn": "llm",
        "tir.tensor_intrin": "cuda metal rocm",
        "runtime": "cuda rocm opencl metal vulkan webgpu",
        "script.tir": """
            tvm_fill_fragment tvm_load_matrix_sync tvm_store_matrix_sync tvm_mma_sync
            tvm_thread_allreduce tvm_storage_sync tvm_warp_activemask tvm_warp_shuffle
            tvm_warp_shuffle_up tvm_warp_shuffle_down
        """,
        "tir": """
            create_barriers dp4a mma_fill mma_store ptx_arrive_barrier
            ptx_arrive_barrier_expect_tx ptx_commit_group ptx_cp_async ptx_cp_async_barrier
            ptx_cp_async_bulk ptx_init_barrier_thread_count ptx_ldmatrix ptx_mma ptx_mma_sp
            ptx_wait_barrier ptx_wait_group tvm_bmma_sync tvm_fill_fragment tvm_load_matrix_sync
            tvm_mma_sync tvm_store_matrix_sync tvm_thread_allreduce
        """,
        "tir.transform": """
            DefaultGPUSchedule AnnotateDeviceRegions LowerDeviceKernelLaunch DecorateDeviceScope
            LiftThreadBinding LowerThreadAllreduce ManifestSharedMemoryLocalStage SplitHostDevice
        """,
    },
    "hides the time that copies to another memory take; a CPU has none of these, and runs ahead": {
        "tir.transform": "InjectDoubleBuffer InjectSoftwarePipeline",
    },
    "`tir.transform.Simplify` always gives this form": {"tir.transform": "RenormalizeSplitPattern"},
    "a mark for TVM's later passes; those here look for `break` and `continue` themselves": {
        "tir.transform": "AnnotateIrregularLoop",
    },
    "kernels run without Python, on many threads; a graph function calls a registered function by "
    "`R.call_packed` or `R.call_dps_packed`": {
        "script.tir": """
            call_packed call_cpacked call_packed_lowered tvm_call_packed tvm_call_cpacked
            tvm_call_packed_lowered
        """,
        "tir": "call_packed",
    },
    "its size is known only when it runs, which no formula says; `relax.op` has it": {
        "topi": "unique dynamic_strided_slice",
    },
    "no operator of graphs is it, and the functions here are made of those": {
        "topi.image": "resize1d resize3d crop_and_resize",
    },
    "labels of `te` schedules": {"topi": "tag"},
    "a part of TVM's packed calling convention; `target` makes the entries of kernels": {
        "script.tir": """
            tvm_stack_make_array tvm_stack_make_shape tvm_stack_alloca tvm_struct_get tvm_struct_set
            tvm_tuple anylist_getitem anylist_setitem_call_packed
            tvm_throw_last_error isnullptr TVMBackendAllocWorkspace TVMBackendFreeWorkspace
        """,
        "tir": """
            isnullptr lookup_param trace tvm_struct_get tvm_struct_set tvm_tuple
            tvm_throw_last_error TVMBackendAllocWorkspace TVMBackendFreeWorkspace
        """,
        "tir.transform": """
            MakeUnpackedAPI AnnotateEntryFunc CombineContextCall ExtractPrimFuncConstants
        """,
    },
    "the code generator does this for every kernel": {
        "tir.transform": """
            BF16ComputeLegalize BF16StorageLegalize FP8ComputeLegalize FP8StorageLegalize
            PointerValueTypeRewrite
        """,
    },
    "profiling hooks of one accelerator; `vm.profile` measures here": {
        "script.tir": "start_profile_intrinsic end_profile_intrinsic",
        "tir.transform": "InstrumentProfileIntrinsics",
    },
    "scalable vectors: no target here has them": {
        "script.tir": "vscale get_active_lane_mask",
        "tir": "vscale",
    },
    "models are written with `relax.frontend.nn`": {"relax.testing": "*"},
    "everything runs on one machine": {
        "relax.distributed": "*",
        "relax.frontend.nn.op": "ccl_allreduce ccl_broadcast_from_worker0",
        "relax.op": "ccl",
        "rpc": "*",
        "script.relax": "DTensor device_mesh ccl",
        "script.relax.dist": "*",
    },
    "an internal of TVM's parser, printer or evaluator; `script.from_source` and `.script()` are "
    "the ways in and out": {
        "ir.diagnostics": "*",
        "script.core": "*",
        "script.printer.doc": "*",
        "script.printer.doc_printer": "*",
        "script.relax.entry": "*",
        "script.relax.ir": "*",
    },
    "a helper of TVM's operator overloading; the nodes' common class is `tir.PrimExpr`": {
        "tir.expr": "ExprOp EqualOp",
    },
    "bookkeeping of TVM's schedules; a schedule has `get_producers` and `get_consumers`": {
        "tir": "BlockDependenceInfo",
        "tir.schedule.state": "CachedFlags",
    },
    "`tir.DeclBuffer` and `tir.Allocate` say here what lowering has made of a buffer": {
        "tir": "BufferRealize",
    },
    "a graph function calls a loop function by `relax.call_tir`; inside loops call it directly": {
        "script.tir": "call_tir",
        "tir": "call_tir",
    },
    "a loop whose length is a constant is written T.unroll or T.serial": {
        "script.tir": "const_range",
    },
    "a misspelling of T.evaluate in one of TVM's tests": {"script.tir": "evalute"},
    "nodes are immutable and take their struct info when they are built": {
        "relax.expr": "_update_struct_info",
    },
    "Python functions are registered, and called by `R.call_pure_packed` or `R.call_dps_packed`": {
        "relax": "BasePyModule",
        "script.relax": "call_py_func",
    },
    "executables are files of their own: `Executable.export_library` and `runtime.load_module`": {
        "runtime": "system_lib load_static_library",
    },
    "there is no C++ library to load": {
        "base": "_LIB",
        "relax.frontend.nn": "SourceModule ObjectModule",
    },
    "types of the graph language have no variables, and no data types of the user's own": {
        "relay": """
            Clause Constructor GlobalTypeVar IncompleteType Match PatternConstructor PatternTuple
            PatternVar PatternWildcard TypeCall TypeConstraint TypeData TypeRelation TypeVar adt
            prelude
        """,
        "relay.analysis": "unmatched_cases",
    },
    "values never change; a function that calls itself carries its state": {
        "relay": "RefCreate RefRead RefType RefWrite",
    },
    "random numbers come from `relax.op.random`": {
        "relay": "random threefry_generate threefry_split",
    },
    "no operator of graphs computes it": {
        "relay": "dft matrix_set_diag sparse_fill_empty_rows sparse_reshape stft",
        "relay.image": "crop_and_resize dilation2d",
        "relay.nn": """
            bitserial_conv2d bitserial_dense correlation deformable_conv2d sparse_add sparse_dense
            sparse_transpose
        """,
        "relay.vision": """
            get_valid_counts multibox_prior multibox_transform_loc non_max_suppression proposal
            roi_pool yolo_reorg
        """,
    },
    "gradients are written with plain operators: `relay.transform.FirstOrderGradient`": {
        "relay.nn": "avg_pool2d_grad max_pool2d_grad",
    },
    "a region for another compiler is a function here, which passes mark as a whole": {
        "relay.annotation": "compiler_begin compiler_end",
    },
    "`relax.analysis.graph_calls` says which functions call which": {
        "relay.analysis": "CallGraph",
    },
    "layers are found when they are calibrated: `relay.quantize.calibrate`, then `realize`": {
        "relay.quantize": "annotate partition",
    },
    "loops are scheduled by `tir.Schedule` over `te.create_prim_func`": {
        "te": "create_schedule",
        "topi": "arm_cpu cuda generic generic_topi hexagon x86",
        "autotvm": "LocalBuilder LocalRunner callback measure_option task template tuner",
        "auto_scheduler": "*",
    },
}


def _plain(path: str) -> str:
    return f"relaxvm.{path}" if path else "relaxvm"


@functools.cache
def _reasons() -> dict[str, str]:
    """{real path of a name, or of a module that is absent: reason}."""
    return {
        real_name(_plain(path if name == "*" else f"{path}.{name}".lstrip("."))): why
        for why, modules in ABSENT.items()
        for path, names in modules.items()
        for name in names.split()
    }


def reason(path: str) -> str | None:
    """Why `path` ("tvm.te.extern", or below a module that is absent) does not exist, if that is
    known.
    """
    path = real_name(path)
    while path:
        if path in _reasons():
            return _reasons()[path]
        path = path.rpartition(".")[0]
    return None


def _explained(wrong: str, module: str, name: str) -> str:
    why = reason(f"{module}.{name}")
    room = sys.modules[module]
    known = [*dir(room), *getattr(room, "__all__", ())]
    known += [n for _, n, _ in pkgutil.iter_modules(getattr(sys.modules[module], "__path__", ()))]
    known += [a.rpartition(".")[2] for a in MODULES if a.rpartition(".")[0] == module]
    near = difflib.get_close_matches(name, [n for n in known if not n.startswith("_")], 1, 0.7)
    if why is not None:
        wrong += f": {why}"
    if near:
        wrong += f"; the nearest name is {near[0]!r}"
    return f"{wrong} (see {PAGE})"


class NoSuchNameError(AttributeError):
    """A name that a module does not have.

    Its text is made when it is shown: `hasattr` asks often and shows nothing.
    """

    def __init__(self, module: str, name: str) -> None:
        super().__init__(module, name)

    def __str__(self) -> str:
        module, name = self.args
        return _explained(f"module {module!r} has no attribute {name!r}", module, name)


def no_such_name(module: str, name: str) -> AttributeError | ImportError:
    """The error for ``module.name``; for ``from module import name`` an ImportError, as Python
    would drop an AttributeError's text.
    """
    if _imports_from(sys._getframe(1)):
        wrong = f"cannot import name {name!r} from {module!r}"
        return ImportError(_explained(wrong, module, name), name=module)
    return NoSuchNameError(module, name)


_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_IMPORT_FROM = opcode.opmap["IMPORT_FROM"]


def _imports_from(frame: FrameType | None) -> bool:
    """Whether the first frame outside this package is at ``from ... import``."""
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM


def no_such_module(path: str) -> ModuleNotFoundError:
    """The error for ``import path``, `path` being an alias of a module that does not exist."""
    parent, _, name = real_name(path).rpartition(".")
    while parent not in sys.modules:
        parent, _, name = parent.rpartition(".")
    return ModuleNotFoundError(_explained(f"No module named {path!r}", parent, name), name=path)


_HEAD = """# TVM's names that do not exist here

`import relaxvm as tvm`, or `import relaxvm.as_tvm` before `import tvm`, gives the names that
programs written for TVM (0.23 and older, classic spelling) use. These do not exist, for the reasons
given. A star stands for the module and everything below it.

This page is written by `python -m relaxvm._absent --markdown` from the table that the errors use.
"""


def as_markdown() -> str:
    """The text of docs/tvm_names.md."""
    lines = [_HEAD]
    for why, modules in ABSENT.items():
        lines.append(f"## {why[0].upper()}{why[1:]}\n")
        for path, names in sorted(modules.items()):
            where = f"tvm.{path}" if path else "tvm"
            if names == "*":
                lines.append(f"- `{where}.*`")
            else:
                lines.append(f"- `{where}`: {', '.join(f'`{n}`' for n in sorted(names.split()))}")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main(argv: Sequence[str]) -> int:
    """Print the page, or write it with --markdown."""
    if list(argv) == ["--markdown"]:
        pathlib.Path(PAGE).write_text(as_markdown(), encoding="utf-8")
    else:
        sys.stdout.write(as_markdown())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
