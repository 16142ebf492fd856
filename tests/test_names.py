"""The names that TVM's users know, module by module: those that exist here, and those that do not,
each with its reason.

The lists are of the names that TVM's own public Python sources use. Operators (`relax.op`, `R.nn`)
have a table of their own, in tests/relax.
"""

import importlib

import pytest

import relaxvm as tvm

# Module (or class, or "" for the package) -> names.
PRESENT = {
    "script.ir": """
        ir_module module_global_infos module_attrs vdevice Range dummy_global_info
    """,
    "script.tir": """
        prim_func Buffer grid block handle match_buffer float32 func_attr reads int64 writes
        init alloc_buffer int32 serial evaluate max if_then_else thread_binding block_attr
        decl_buffer min where Cast cast bool allocate attr Select launch_thread vectorized
        parallel float16 call_extern exp target reinterpret ret unroll env_thread uint32
        broadcast uint8 assume floordiv floormod int8 meta_var min_value sqrt LetStmt uint64
        Broadcast Div address_of call_llvm_pure_intrin floor rsqrt shift_left Ramp Var
        allocate_const ceildiv float64 likely ramp shift_right sigmoid uint16 Call bitwise_and
        ceil cos erf log2 round tvm_access_ptr FloorMod LT Let Mul Range bitwise_or buffer
        call_pure_extern int16 iter_var log max_value pow ptr sin tanh truncmod uint8x4 Add And
        Assert EQ FloatImm FloorDiv GE GT LE Max Min Mod NE Or Shuffle StringImm Sub abs acos
        acosh asin asinh atan atan2 atanh bfloat16 boolean buffer_store call_llvm_intrin clz
        copysign exp10 exp2 fabs fmod hypot int32x16 int32x32 int8x4 int8x64 isnan log1p macro
        nextafter popcount sinh tan truncdiv undef
    """,
    "script.tir.axis": "remap spatial reduce S R opaque scan",
    "script.relax": """
        Tensor function Tuple dataflow add output const call_tir shape func_attr prim_value
        Shape matmul multiply Object Prim permute_dims match_cast reshape call_dps_packed
        call_packed concat call_pure_packed tuple split strided_slice print divide dtype
        subtract take astype call_tir_inplace expand_dims zeros full str Callable arange
        assert_op ones squeeze sum broadcast_to exp null_value sin tanh ExternFunc argmax cos
        einsum equal flip full_like layout_transform max maximum mean min minimum repeat sqrt
        tensor_to_shape tile to_vdevice variance where ShapeExpr abs argsort clip cumsum
        dynamic_strided_slice floor less log negative not_equal prod scatter_elements sigmoid
        topk triu zeros_like TupleGetItem acos acosh argmin asin asinh atan atanh ceil cosh
        cumprod emit erf floor_divide gather_elements greater greater_equal invoke_pure_closure
        less_equal make_closure median ones_like power round rsqrt shape_of shape_to_tensor sign
        sinh square std tan tril unique bitwise_and bitwise_not bitwise_or bitwise_xor bucketize
        call_builtin_with_ctx call_inplace_packed collapse_sum_like collapse_sum_to ewise_fma
        flatten floor_mod hint_on_device index_put isinf isnan logical_not mod scatter_nd
        slice_scatter sort trunc dequantize hamming_window invoke_closure isfinite left_shift
        logical_and meshgrid multinomial_from_uniform nonzero one_hot outer quantize right_shift
        size stack wrap_param
    """,
    "script": "ir_module from_source ir tir",
    "script.relax.memory": """
        alloc_storage alloc_tensor kill_storage kill_tensor view ensure_zero_offset
    """,
    "script.relax.vm": "alloc_storage alloc_tensor kill_object call_tir_dyn",
    "script.relax.builtin": "alloc_tensor stop_lift_params",
    "tir": """
        Var PrimFunc const decl_buffer IntImm Evaluate ScheduleError all For floordiv
        BufferStore Select floormod truncdiv LetStmt BufferLoad Cast FloatImm IfThenElse LE Let
        StringImm truncmod Add Block call_extern EQ LT Ramp SeqStmt SizeVar build if_then_else
        And AttrStmt Broadcast Call GE Min call_intrin max Div GT Max Mod NE Not Or Sub any
        Allocate Buffer FloorDiv FloorMod IterVar Mul call_llvm_intrin AllocateConst
        BufferRegion call_llvm_pure_intrin min AssertStmt BlockRealize MatchBufferRegion
        PrimExpr Shuffle While address_of atan div isnan log DeclBuffer acos acosh asin asinh
        assume atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor call_pure_extern ceil
        clz copysign cosh erf exp exp10 floor hypot indexdiv indexmod infinity ldexp likely
        log10 log1p log2 max_value min_value nearbyint nextafter pow reinterpret ret round
        shift_left shift_right sinh stmt_list trunc tvm_access_ptr undef vectorcombine
        vectorhigh vectorlow Schedule schedule ScheduleState StmtSRef IndexMap TensorIntrin
    """,
    "tir.schedule": """
        Schedule ScheduleError BlockRV LoopRV ExprRV Trace Instruction StmtSRef ScheduleState
        TensorIntrin IndexMap
    """,
    "tir.Schedule": """
        mod state trace func_working_on work_on copy seed fork_seed show get get_sref remove_rv
        get_block get_sblock get_loops get_child_blocks get_producers get_consumers
        get_output_blocks sample_categorical sample_perfect_tile sample_compute_location split fuse
        reorder reorder_block_iter_var add_unit_loop loop_partition merge parallel vectorize unroll
        bind annotate unannotate compute_inline reverse_compute_inline compute_at
        reverse_compute_at cache_read cache_write cache_inplace reindex reindex_cache_read
        reindex_cache_write decompose_reduction rfactor decompose_padding pad_einsum blockize
        tensorize transform_layout transform_block_layout set_scope storage_align
        set_axis_separator unsafe_set_dtype enter_postproc
    """,
    "tir.stmt_functor": """
        post_order_visit ir_transform pre_order_visit renew_defs substitute
    """,
    "tir.analysis": """
        verify_well_formed OOBChecker assert_pure_function calculate_allocated_bytes
        detect_buffer_access_lca estimate_tir_flops expr_deep_equal get_block_access_region
        get_block_read_write_region is_pure_function verify_ssa
    """,
    "tir.transform": """
        Simplify LowerOpaqueBlock Apply RemoveNoOp ConvertBlocksToOpaque BindTarget
        CompactBufferAllocation FlattenBuffer HoistIfThenElse LowerInitBlock LowerIntrin
        LowerMatchBuffer PlanAndUpdateBufferAllocationLocation UnrollLoop prim_func_pass
        ConvertForLoopsToSerial Filter VectorizeLoop
    """,
    "tir.expr": "Broadcast EQ FloatImm GE GT IntImm LE LT Ramp",
    "tir.stmt": "Block BlockRealize BufferStore For SeqStmt",
    "tir.function": "PrimFunc",
    "tir.buffer": "Buffer decl_buffer",
    "tir.ForKind": "SERIAL UNROLLED PARALLEL VECTORIZED THREAD_BINDING",
    "tir.IterVar": "DataPar ThreadIndex CommReduce Opaque Ordered",
    "te": """
        var placeholder create_prim_func compute size_var reduce_axis max sum floordiv
        thread_axis floormod min comm_reducer const min_value div PlaceholderOp all ceil exp
        if_then_else power round sigmoid sqrt tag_scope truncdiv truncmod
    """,
    "te.tensor": "Tensor",
    "ir": """
        assert_structural_equal VDevice structural_equal Range load_json save_json IRModule
        PrimType GlobalVar make_node PointerType structural_hash Op Array DictAttrs
        DummyGlobalInfo PrimExpr
    """,
    "ir.base": """
        assert_structural_equal get_first_structural_mismatch save_json
    """,
    "ir.expr": "Range",
    "ir.module": "IRModule",
    "ir.op": "Op",
    "ir.Op": "get",
    "ir.op.Op": "get",
    "ir.Range": "from_min_extent",
    "ir.IRModule": "from_expr",
    "ir.module.IRModule": "from_expr",
    "ir.transform": "Sequential ApplyPassToFunction",
    "ir.instrument": "PrintAfterAll PrintBeforeAll",
    "ir.transform.PassContext": "current",
    "ir.container": "Map",
    "container": "Array",
    "relax.frontend": "nn",
    "relax.frontend.nn": """
        Module Tensor Linear Parameter ModuleDict ModuleList add subtract Effect KVCache Mutator
        relu reshape silu
    """,
    "relax.frontend.nn.op": """
        matmul silu concat debug_func permute_dims relu add arange argsort astype broadcast_to
        chunk conv2d divide empty equal exp extern floor full gelu get_timestep_embedding greater
        greater_equal group_norm interpolate less less_equal log max maximum min minimum
        multinomial_from_uniform multiply negative not_equal pad prelu print_ relu6
        renormalize_top_p_top_k_prob repeat reshape rms_norm sample_top_p_top_k_from_sorted_prob
        scaled_dot_product_attention sigmoid softmax softplus sort split sqrt square squeeze
        subtract sum take tanh tensor_expr_op tensor_ir_inplace_op tensor_ir_op topk triu unsqueeze
        zeros wrap_nested
    """,
    "relax.frontend.nn.modules": """
        Linear ReLU Attention Conv1D Conv2D Conv3D ConvTranspose1D Embedding GELU GroupNorm
        Identity KVCache LayerNorm Module RMSNorm SiLU TimestepEmbedding Timesteps IOEffect
    """,
    "relax.frontend.nn.spec": "Tensor Int Tuple Object MethodSpec ModuleSpec",
    "relax.frontend.nn.Tensor": "from_scalar from_const placeholder",
    "relax.frontend.nn.core": "Tensor Module Parameter Effect Object ModuleList ModuleDict",
    "runtime": """
        tensor convert empty ShapeTuple Tensor load_module Device Executable DataType Module
        String from_dlpack PackedFunc
    """,
    "runtime.container": "ShapeTuple",
    "runtime.module": "BenchmarkResult",
    "relax": """
        Var BlockBuilder Call TensorStructInfo Function VirtualMachine ShapeStructInfo
        StructInfo FuncStructInfo const TupleStructInfo ShapeExpr Tuple PrimStructInfo
        TupleGetItem DataflowVar SeqExpr ObjectStructInfo VarBinding BindingBlock DataflowBlock
        GlobalVar PrimValue build MatchCast ExternFunc If call_dps_packed get_shape_of Expr
        call_tir Constant DataTypeImm ExecBuilder PyExprMutator StringImm extern PyExprVisitor
        call_tir_inplace get_pipeline
    """,
    "relax.expr": """
        Call Var DataflowVar BindingBlock Constant DataTypeImm DataflowBlock Expr ExternFunc
        Function GlobalVar If MatchCast PrimValue SeqExpr ShapeExpr StringImm Tuple TupleGetItem
        VarBinding
    """,
    "relax.struct_info": "TensorStructInfo TupleStructInfo",
    "relax.expr_functor": "mutator visitor PyExprVisitor",
    "relax.transform": """
        LegalizeOps BindParams DeadCodeElimination DecomposeOpsForInference LowerRuntimeBuiltin
        Normalize CallTIRRewrite KillAfterLastUse LowerAllocTensor RemovePurityChecking
        ToNonDataflow AttachGlobalSymbol BindSymbolicVars ComputePrimValue
        DecomposeOpsForTraining LambdaLift StaticPlanBlockMemory VMBuiltinLower VMShapeLower
        CanonicalizeBindings EliminateCommonSubexpr ExpandTupleArguments FoldConstant
        InlinePrivateFunctions RemoveUnusedOutputs RemoveUnusedParameters ToMixedPrecision
    """,
    "relax.analysis": """
        well_formed name_to_binding BaseCheckResult all_global_vars all_vars bound_vars
        computable_at_compile_time contains_impure_call definable_tir_vars_in_struct_info
        defined_symbolic_vars derive_call_ret_struct_info detect_recursion erase_to_well_defined
        free_symbolic_vars free_vars get_var2val post_order_visit remove_all_unused
        struct_info_base_check struct_info_lca tir_vars_in_struct_info udchain used_vars
        estimate_memory_usage
    """,
    "relax.op.vm": "alloc_tensor kill_object",
    "relax.op.builtin": "alloc_tensor stop_lift_params",
    "relax.vm_build": "_vmcodegen _vmlink",
    "relax.pipeline": """
        dataflow_lower_passes finalize_passes get_default_pipeline legalize_passes
        library_dispatch_passes
    """,
    "relax.FuncStructInfo": "opaque_func",
    "relax.BlockBuilder": "current",
    "relax.VMInstrumentReturnKind": "SKIP_RUN",
    "transform": "PassContext Sequential PrintIR",
    "arith": "Analyzer ConstIntBound IterMark IterSplitExpr IterSumExpr detect_iter_map",
    "arith.analyzer": "Analyzer",
    "testing": "assert_allclose parameter parameters",
    "error": "TVMError DiagnosticError InternalError",
    "base": "TVMError",
    "target": "Target",
    "": """
        TVMError compile IRModule cpu register_global_func device get_global_func DataType
    """,
    "IRModule": "from_expr",
    "driver": "build",
}

# What else tutorials use, though TVM's own sources do not.
PRESENT_TOO = {
    "": """
        build register_func nd ndarray ir tir te relax runtime script target arith transform
        instrument testing error driver container tirx s_tir
    """,
    "nd": "array empty NDArray cpu from_dlpack",
    "nd.NDArray": "numpy asnumpy copyto copyfrom shape dtype device to_dlpack",
    "runtime": """
        NDArray VirtualMachine array enabled register_func register_global_func get_global_func
        remove_global_func list_global_func_names
    """,
    "instrument": """
        PassInstrument pass_instrument PassTimingInstrument PrintBeforeAll PrintAfterAll
    """,
    "ir.transform": """
        Pass PassInfo PassContext module_pass function_pass dataflowblock_pass prim_func_pass
    """,
    "ir.IRModule": """
        functions functions_items update_func update get_global_var get_global_vars attrs script
        show with_attr get_attr astext
    """,
    "relax": "Executable VMInstrumentReturnKind call_packed call_pure_packed const vm vm_build",
    "relax.BlockBuilder": """
        function dataflow emit emit_te call_te emit_output match_cast emit_func_output normalize
        lookup_binding add_func update_func get finalize get_unique_name
    """,
    "relax.VirtualMachine": """
        invoke_closure save_function set_input invoke_stateful get_outputs set_instrument
        time_evaluator module
    """,
    "relax.Executable": "as_text as_python stats export_library mod jit",
    "script.tir": "sblock sblock_attr sblock_alloc_buffer",
    "tir": "ScheduleError",
}

# (module, why, names)
ABSENT = [
    (
        "script.tir",
        "only meaningful on a GPU",
        """tvm_fill_fragment tvm_load_matrix_sync tvm_store_matrix_sync tvm_mma_sync
        tvm_thread_allreduce tvm_storage_sync tvm_warp_activemask tvm_warp_shuffle
        tvm_warp_shuffle_up tvm_warp_shuffle_down comm_reducer""",
    ),
    (
        "script.tir",
        "TVM's packed calling convention inside kernels; kernels here call no Python",
        """tvm_stack_make_array tvm_stack_make_shape tvm_stack_alloca tvm_struct_get tvm_struct_set
        tvm_tuple call_packed call_cpacked call_packed_lowered tvm_call_packed tvm_call_cpacked
        tvm_call_packed_lowered anylist_getitem anylist_setitem_call_packed
        tvm_throw_last_error isnullptr TVMBackendAllocWorkspace TVMBackendFreeWorkspace""",
    ),
    ("script.tir", "scalable vectors: no such target yet", "vscale get_active_lane_mask"),
    ("script.tir", "later, with quantised operators", "q_multiply_shift q_multiply_shift_per_axis"),
    ("script.tir", "later, with schedules", "index_map ignore_loop_partition const_range"),
    (
        "script.tir",
        "profiling hooks of one accelerator",
        "start_profile_intrinsic end_profile_intrinsic",
    ),
    ("script.tir", "spellings of the IR builder, which comes later", "If Then While realize"),
    ("script.tir", "loops have no early exit yet", "break_loop continue_loop"),
    (
        "script.tir",
        "internals of TVM's parser and LLVM tables",
        "type_annotation llvm_lookup_intrinsic_id",
    ),
    (
        "script.relax",
        "spellings of the IR builder, which comes later",
        """arg emit_with_sinfo emit_match_cast emit_var_binding func_name func_ret_value
        func_ret_struct_info""",
    ),
    ("script.relax", "distributed execution is not planned", "DTensor device_mesh"),
    ("script.relax", "later, with patterns and building blocks", "rewriter call_py_func"),
    (
        "tir",
        "later, with schedules",
        """BlockDependenceInfo Layout BijectiveLayout layout bijective_layout BufferRealize""",
    ),
    (
        "tir",
        "only meaningful on a GPU",
        """create_barriers dp4a mma_fill mma_store ptx_arrive_barrier
        ptx_arrive_barrier_expect_tx ptx_commit_group ptx_cp_async ptx_cp_async_barrier
        ptx_cp_async_bulk ptx_init_barrier_thread_count ptx_ldmatrix ptx_mma ptx_mma_sp
        ptx_wait_barrier ptx_wait_group tvm_bmma_sync tvm_fill_fragment tvm_load_matrix_sync
        tvm_mma_sync tvm_store_matrix_sync tvm_thread_allreduce""",
    ),
    (
        "tir",
        "TVM's packed calling convention inside kernels; kernels here call no Python",
        """call_packed isnullptr lookup_param trace tvm_struct_get tvm_struct_set tvm_tuple
        tvm_throw_last_error TVMBackendAllocWorkspace TVMBackendFreeWorkspace call_tir""",
    ),
    ("tir", "reductions outside `te` are blocks with an init", "Reduce"),
    (
        "tir",
        "use `ir.Visitor`, `ir.rewrite` or `tir.stmt_functor`",
        "PyStmtExprVisitor PyStmtExprMutator",
    ),
    ("tir", "scalable vectors: no such target yet", "vscale"),
    ("tir.expr", "helpers of TVM's operator overloading", "ExprOp EqualOp"),
    ("tir.expr", "a part of `te`", "ProducerLoad"),
    (
        "tir.transform",
        "only meaningful on a GPU",
        """DefaultGPUSchedule AnnotateDeviceRegions LowerDeviceKernelLaunch UnifyThreadBinding
        DecorateDeviceScope InjectVirtualThread LiftThreadBinding LowerCrossThreadReduction
        LowerThreadAllreduce ManifestSharedMemoryLocalStage SplitHostDevice ThreadSync""",
    ),
    (
        "tir.transform",
        "TVM's packed calling convention; entry points are generated by `target`",
        """LowerTVMBuiltin MakePackedAPI MakeUnpackedAPI AnnotateEntryFunc CombineContextCall
        InstrumentProfileIntrinsics ExtractPrimFuncConstants""",
    ),
    (
        "tir.transform",
        "code generation does this for every kernel",
        "BF16ComputeLegalize BF16StorageLegalize PointerValueTypeRewrite",
    ),
    ("tir.transform", "no 8-bit floats", "FP8ComputeLegalize FP8StorageLegalize"),
    (
        "tir.transform",
        "later, with schedules",
        """NarrowDataType StorageRewrite CanonicalizeLoop CommonSubexprElimTIR
        ConvertSSA ForceNarrowIndexToInt32 HoistExpression
        InjectDoubleBuffer InjectRollingBuffer InjectSoftwarePipeline
        ReduceBranchingThroughOvercompute RemoveAssume RemoveStoreUndef
        RemoveWeightLayoutRewriteBlock RenormalizeSplitPattern RewriteUnsafeSelect
        UseAssumeToReduceBranches AnnotateIrregularLoop InlinePrivateFunctions""",
    ),
    (
        "te",
        "calls of outside functions are `call_dps_packed` in the graph",
        "extern extern_primfunc",
    ),
    ("te", "recurrences are loops of a prim_func", "scan ScanOp"),
    ("te", "later, with layouts", "AXIS_SEPARATOR"),
    ("ir", "an operator's rules stand in its own record (`relax.op`)", "register_op_attr"),
    ("ir", "struct info is the one word for static knowledge", "TupleType FuncType"),
    ("ir", "functions of the environment are found by name: `get_global_func`", "EnvFunc"),
    ("ir.expr", "`from relaxvm.ir import GlobalVar`: functions come after scalars", "GlobalVar"),
    ("runtime", "executables are files of their own", "system_lib load_static_library"),
    (
        "relax",
        "struct info is the one word for static knowledge",
        "ShapeType TensorType FuncType ObjectType TupleType PackedFuncType",
    ),
    ("relax", "later, with building blocks", "BasePyModule"),
    ("relax.expr", "nodes are immutable", "_update_struct_info"),
    (
        "relax.transform",
        "later, with fusion and graph rewriting",
        """FuseTIR MergeCompositeFunctions AnnotateTIROpPattern
        FuseOpsByPattern LiftTransformParams AdjustMatmulOrder BundleModelParams
        CombineParallelMatmul ConvertToDataflow DataflowUseInplaceCalls
        ExpandMatmulOfSum FastMathTransform FoldBatchnormToConv2D FuseOps
        FuseTransposeMatmul LazyGetInput LazySetOutput
        LazyTransformParams NormalizeGlobalVar PatternCheckContext RemoveRedundantReshape
        ReorderPermuteDimsAfterConcat
        ReorderTakeAfterMatmul RewriteDataflowReshape SpecializePrimFuncBasedOnCallSite
        TopologicalSort UpdateParamStructInfo""",
    ),
    (
        "relax.transform",
        "later, with layouts and mixed precision",
        """AlterOpImpl AttachAttrLayoutFreeBuffers ConvertLayout OptimizeLayoutTransform
        SplitLayoutRewritePreproc""",
    ),
    ("relax.transform", "later, with tuning", "MetaScheduleApplyDatabase MetaScheduleTuneIRMod"),
    ("relax.transform", "no outside code generators yet", "RunCodegen AllocateWorkspace"),
    ("relax.transform", "there is one device", "RealizeVDevice UpdateVDevice"),
    (
        "relax.analysis",
        "later, with fusion and layouts",
        """has_reshape_pattern suggest_layout_transforms
        collect_non_negative_expressions""",
    ),
    ("relax.analysis", "struct info is the one word for static knowledge", "get_static_type"),
    (
        "arith",
        "later, with schedules",
        """IntervalSet IterMapExpr ProofStrength deduce_bound
        detect_clip_bound detect_common_subexpr detect_linear_equation
        estimate_region_lower_bound estimate_region_strict_bound estimate_region_upper_bound
        inverse_affine_iter_map iter_map_simplify normalize_iter_map_to_expr
        normalize_to_iter_sum solve_linear_equations solve_linear_inequalities
        subspace_divide""",
    ),
    (
        "arith.ConstIntBound",
        "integers wrap: what is not known is bounded by the dtype",
        "NEG_INF POS_INF",
    ),
    ("error", "later, with the frontends", "OpNotImplemented"),
    ("base", "there is no C++ library", "_LIB"),
    (
        "relax.frontend.nn",
        "there is no C++ compiler, and no GPU, to build them for",
        "SourceModule ObjectModule llm",
    ),
    ("relax.frontend.nn.op", "one machine", "ccl_allreduce ccl_broadcast_from_worker0"),
    ("relax", "later: patterns, outside libraries", "dpl backend"),
    ("script", "later", "ir_builder"),
    ("", "later: tuning, operator inventory, Relay's spelling", "meta_schedule topi relay"),
]

MODULES = """
    script script.ir script.relax script.tir script.parser script.parser.ir script.parser.relax
    script.parser.tir ir ir.base ir.container ir.expr ir.instrument ir.module ir.op ir.transform
    relax relax.analysis relax.block_builder relax.expr relax.expr_functor relax.frontend
    relax.frontend.nn relax.frontend.nn.core relax.frontend.nn.modules relax.frontend.nn.op
    relax.frontend.nn.spec relax.frontend.nn.visitor relax.op relax.pipeline
    relax.struct_info relax.transform relax.transform.transform relax.vm relax.vm_build tir
    tir.analysis tir.buffer tir.expr tir.function tir.op tir.schedule tir.schedule.schedule
    tir.schedule.trace tir.stmt tir.stmt_functor tir.transform s_tir.schedule
    tir.transform.transform tirx s_tir te te.tensor arith arith.analyzer target testing error base
    runtime runtime.container runtime.module runtime.ndarray runtime.vm runtime.relax_vm nd
    transform instrument container driver
"""


def look_up(path):
    """The module or class at `path`, first by attributes as ``tvm.tir.function`` is written."""
    found = tvm
    for part in filter(None, path.split(".")):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("table", [PRESENT, PRESENT_TOO], ids=["used by tvm", "used in tutorials"])
def test_known_names_exist(table):
    missing = [
        f"{path}.{name}"
        for path, names in table.items()
        for name in names.split()
        if not hasattr(look_up(path), name)
    ]
    assert not missing


def test_names_that_are_absent_are_known_to_be_absent():
    there_now = [
        f"{path}.{name}"
        for path, why, names in ABSENT
        for name in names.split()
        if hasattr(look_up(path), name)
    ]
    assert not there_now, "move these to PRESENT"
    assert all(why for _, why, _ in ABSENT)


def test_no_name_is_both_present_and_absent():
    present = {(path, name) for path, names in PRESENT.items() for name in names.split()}
    absent = {(path, name) for path, _, names in ABSENT for name in names.split()}
    assert not present & absent


@pytest.mark.parametrize("path", MODULES.split())
def test_module_paths_are_imported_and_are_attributes(path):
    module = importlib.import_module(f"relaxvm.{path}")
    if not path.endswith("transform.transform"):
        assert look_up(path) is module


def test_a_wrong_name_is_an_attribute_error_that_says_so():
    for path in ("", "ir", "tir", "relax", "runtime", "script"):
        with pytest.raises(AttributeError, match="no_such_name"):
            look_up(path).no_such_name
