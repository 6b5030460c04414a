"""The names of PyFlink's DataStream API, row by row: a program finds them where it looks for them.

A name that would only wrap Java is not here. What they do is tested where they stand.
"""

from importlib import import_module

import pytest

DATASTREAM = {
    "StreamExecutionEnvironment": """
        get_execution_environment set_parallelism from_collection from_source execute
        get_parallelism set_max_parallelism get_max_parallelism set_runtime_mode get_config
        configure enable_checkpointing get_checkpoint_config execute_async add_python_file
        get_execution_plan set_buffer_timeout get_buffer_timeout disable_operator_chaining
        is_chaining_enabled is_chaining_of_operators_with_different_max_parallelism_enabled
        get_checkpoint_interval get_checkpointing_mode get_checkpointing_consistency_mode
        set_default_savepoint_directory get_default_savepoint_directory
        set_default_local_parallelism get_default_local_parallelism set_python_requirements
        add_python_archive set_python_executable register_cached_file register_slot_sharing_group
        enable_changelog_state_backend is_changelog_state_backend_enabled
        is_unaligned_checkpoints_enabled is_force_unaligned_checkpoints close
        set_state_backend get_state_backend set_restart_strategy get_restart_strategy
        add_source from_dataframe get_configuration""",
    "DataStream": """
        map flat_map filter key_by process assign_timestamps_and_watermarks add_sink sink_to print
        execute_and_collect union connect broadcast get_side_output window_all rebalance name uid
        set_parallelism get_type shuffle rescale forward partition_custom project get_name
        set_uid_hash set_max_parallelism force_non_parallel set_buffer_timeout start_new_chain
        disable_chaining slot_sharing_group set_description get_execution_environment
        get_execution_config join co_group to_dataframe cache""",
    "CachedDataStream": "invalidate map",
    "KeyedStream": """
        map flat_map filter reduce process window sum min max min_by max_by count_window
        interval_join key_by union connect print execute_and_collect""",
    "WindowedStream": """
        reduce aggregate process apply allowed_lateness side_output_late_data trigger evictor
        sum min max min_by max_by get_input_type get_execution_environment""",
    "AllWindowedStream": """
        reduce aggregate process apply allowed_lateness side_output_late_data trigger evictor
        sum min max get_input_type get_execution_environment""",
    "ConnectedStreams": "key_by map flat_map process",
    "BroadcastConnectedStream": "process",
    "BroadcastStream": "",
    "AsyncDataStream": """
        unordered_wait ordered_wait unordered_wait_with_retry ordered_wait_with_retry
        unordered_wait_batch ordered_wait_batch""",
    "DataStreamSink": """
        name uid set_parallelism set_uid_hash set_description disable_chaining
        slot_sharing_group""",
    "CloseableIterator": "__iter__ __next__ __enter__ __exit__ close next",
    "RuntimeExecutionMode": "STREAMING BATCH AUTOMATIC",
    "CheckpointingMode": "EXACTLY_ONCE AT_LEAST_ONCE",
    "ExternalizedCheckpointRetention": """
        DELETE_ON_CANCELLATION RETAIN_ON_CANCELLATION NO_EXTERNALIZED_CHECKPOINTS""",
    "TimeDomain": "EVENT_TIME PROCESSING_TIME",
    "SlotSharingGroup": """
        builder get_name get_cpu_cores get_task_heap_memory get_task_off_heap_memory
        get_managed_memory get_external_resources""",
    "MemorySize": """
        of_mebi_bytes get_bytes get_kibi_bytes get_mebi_bytes get_gibi_bytes get_tebi_bytes""",
    "CheckpointConfig": """
        DEFAULT_MODE DEFAULT_TIMEOUT DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS
        DEFAULT_MAX_CONCURRENT_CHECKPOINTS is_checkpointing_enabled get_checkpointing_mode
        set_checkpointing_mode get_checkpointing_consistency_mode
        set_checkpointing_consistency_mode get_checkpoint_interval set_checkpoint_interval
        get_checkpoint_timeout set_checkpoint_timeout get_min_pause_between_checkpoints
        set_min_pause_between_checkpoints get_max_concurrent_checkpoints
        set_max_concurrent_checkpoints get_tolerable_checkpoint_failure_number
        set_tolerable_checkpoint_failure_number is_fail_on_checkpointing_errors
        set_fail_on_checkpointing_errors get_externalized_checkpoint_retention
        set_externalized_checkpoint_retention is_externalized_checkpoints_enabled
        enable_unaligned_checkpoints disable_unaligned_checkpoints
        is_unaligned_checkpoints_enabled set_force_unaligned_checkpoints
        is_force_unaligned_checkpoints set_aligned_checkpoint_timeout
        get_aligned_checkpoint_timeout set_alignment_timeout get_alignment_timeout
        set_checkpoint_id_of_ignored_in_flight_data get_checkpoint_id_of_ignored_in_flight_data
        set_checkpoint_storage set_checkpoint_storage_dir get_checkpoint_storage""",
    "FileSystemCheckpointStorage": """
        get_checkpoint_path get_min_file_size_threshold get_write_buffer_size""",
    "JobManagerCheckpointStorage": "get_checkpoint_path get_max_state_size",
    "HashMapStateBackend": "",
    "EmbeddedRocksDBStateBackend": """
        set_db_storage_paths get_db_storage_paths is_incremental_checkpoints_enabled""",
}

FUNCTIONS = {
    "Function": "open close",
    "MapFunction": "map open close",
    "FlatMapFunction": "flat_map open close",
    "FilterFunction": "filter open close",
    "ReduceFunction": "reduce open close",
    "KeySelector": "get_key",
    "NullByteKeySelector": "get_key",
    "Partitioner": "partition",
    "AggregateFunction": "create_accumulator add get_result merge",
    "ProcessFunction": "process_element Context",
    "KeyedProcessFunction": "process_element on_timer Context OnTimerContext",
    "CoMapFunction": "map1 map2",
    "CoFlatMapFunction": "flat_map1 flat_map2",
    "CoProcessFunction": "process_element1 process_element2 Context",
    "KeyedCoProcessFunction": """
        process_element1 process_element2 on_timer Context OnTimerContext""",
    "BroadcastProcessFunction": """
        process_element process_broadcast_element Context ReadOnlyContext""",
    "KeyedBroadcastProcessFunction": """
        process_element process_broadcast_element on_timer Context ReadOnlyContext
        OnTimerContext""",
    "ProcessWindowFunction": "process clear Context __class_getitem__",
    "WindowFunction": "apply __class_getitem__",
    "AllWindowFunction": "apply",
    "ProcessAllWindowFunction": "process clear Context",
    "ProcessJoinFunction": "process_element",
    "AsyncFunction": "async_invoke timeout",
    "BatchAsyncFunction": "async_invoke_batch cost timeout",
    "AsyncRetryStrategy": "fixed_delay exponential_backoff no_restart",
    "AsyncRetryPredicate": "result_predicate exception_predicate",
    "RuntimeContext": """
        get_state get_list_state get_map_state get_reducing_state get_aggregating_state
        get_index_of_this_subtask get_number_of_parallel_subtasks get_metrics_group get_task_name
        get_task_name_with_subtasks get_max_number_of_parallel_subtasks get_attempt_number
        get_job_parameter""",
    "TimerService": """
        register_event_time_timer register_processing_time_timer current_watermark
        current_processing_time delete_event_time_timer delete_processing_time_timer""",
    "SourceFunction": "run cancel",
    "SinkFunction": "invoke open close",
}

STATE = {
    "ValueState": "value update clear",
    "ListState": "get add add_all update clear __iter__",
    "MapState": """
        get put put_all remove contains items keys values is_empty clear __getitem__ __setitem__
        __delitem__ __contains__ __iter__""",
    "ReducingState": "get add clear",
    "AggregatingState": "get add clear",
    "BroadcastState": "get put put_all remove contains items keys values is_empty",
    "ReadOnlyBroadcastState": "get contains items keys values is_empty",
    "ValueStateDescriptor": "enable_time_to_live",
    "ListStateDescriptor": "enable_time_to_live",
    "MapStateDescriptor": "enable_time_to_live",
    "ReducingStateDescriptor": "enable_time_to_live",
    "AggregatingStateDescriptor": "enable_time_to_live",
    "StateTtlConfig": """
        new_builder UpdateType StateVisibility get_ttl get_update_type get_state_visibility
        get_cleanup_strategies is_enabled""",
}

WINDOW = {
    "TumblingEventTimeWindows": "of",
    "SlidingEventTimeWindows": "of",
    "EventTimeSessionWindows": "with_gap with_dynamic_gap",
    "TumblingProcessingTimeWindows": "of",
    "SlidingProcessingTimeWindows": "of",
    "ProcessingTimeSessionWindows": "with_gap with_dynamic_gap",
    "DynamicEventTimeSessionWindows": "",
    "DynamicProcessingTimeSessionWindows": "",
    "SessionWindowTimeGapExtractor": "extract",
    "GlobalWindows": "create",
    "CountTumblingWindowAssigner": "of",
    "CountSlidingWindowAssigner": "",
    "WindowAssigner": "assign_windows get_default_trigger is_event_time",
    "MergingWindowAssigner": "merge_windows",
    "TimeWindow": "max_timestamp",
    "CountWindow": "max_timestamp",
    "GlobalWindow": "max_timestamp",
    "Trigger": """
        on_element on_processing_time on_event_time on_merge clear can_merge TriggerContext
        OnMergeContext""",
    "TriggerResult": "CONTINUE FIRE PURGE FIRE_AND_PURGE",
    "EventTimeTrigger": "create",
    "ProcessingTimeTrigger": "create",
    "CountTrigger": "of",
    "PurgingTrigger": "of",
    "ContinuousEventTimeTrigger": "of",
    "ContinuousProcessingTimeTrigger": "of",
    "NeverTrigger": "",
}

COMMON = {
    "Types": """
        STRING BYTE BOOLEAN SHORT INT LONG FLOAT DOUBLE CHAR BIG_INT BIG_DEC INSTANT SQL_DATE
        SQL_TIME SQL_TIMESTAMP ROW ROW_NAMED TUPLE PRIMITIVE_ARRAY BASIC_ARRAY OBJECT_ARRAY MAP
        LIST PICKLED_BYTE_ARRAY""",
    "Row": "as_dict set_row_kind get_row_kind of_kind set_field_names get_fields_by_names",
    "RowKind": "INSERT UPDATE_BEFORE UPDATE_AFTER DELETE",
    "Time": "milliseconds seconds minutes hours days to_milliseconds",
    "Duration": "of_millis of_seconds of_minutes of_hours of_days of_nanos",
    "Instant": "of_epoch_milli to_epoch_milli",
    "Configuration": """
        get_string set_string get_integer set_integer get_boolean set_boolean get_float set_float
        get_bytearray set_bytearray key_set add_all add_all_to_dict contains_key remove_config
        to_dict from_dict parse_list_value __hash__""",
    "ExecutionConfig": """
        PARALLELISM_DEFAULT PARALLELISM_UNKNOWN enable_object_reuse disable_object_reuse
        is_object_reuse_enabled set_auto_watermark_interval get_auto_watermark_interval
        set_latency_tracking_interval get_latency_tracking_interval get_parallelism
        set_parallelism get_max_parallelism set_max_parallelism get_task_cancellation_timeout
        set_task_cancellation_timeout enable_auto_generated_uids disable_auto_generated_uids
        has_auto_generated_uids_enabled get_global_job_parameters set_global_job_parameters""",
    "JobClient": """
        get_job_id get_job_status cancel get_job_execution_result trigger_savepoint
        stop_with_savepoint""",
    "JobExecutionResult": """
        get_job_id is_job_execution_result get_net_runtime get_accumulator_result
        get_all_accumulator_results""",
    "JobStatus": "RUNNING FINISHED is_globally_terminal_state is_terminal_state",
    "CompletableFuture": "done result exception cancel cancelled",
    "ConfigOptions": "key",
    "ConfigOption": "",
    "RestartStrategies": """
        no_restart fall_back_restart fixed_delay_restart failure_rate_restart
        exponential_delay_restart""",
    "WatermarkStrategy": """
        for_monotonous_timestamps for_bounded_out_of_orderness no_watermarks for_generator
        with_timestamp_assigner with_idleness with_watermark_alignment""",
    "SimpleStringSchema": "serialize deserialize",
    "Encoder": "simple_string_encoder",
}

METRICS = {
    "MetricGroup": "counter gauge meter distribution add_group",
    "Counter": "inc dec get_count",
    "Meter": "mark_event get_rate get_count",
    "Distribution": "update",
}

PLACES = {
    "headgate.datastream": DATASTREAM,
    "headgate.datastream.functions": FUNCTIONS,
    "headgate.datastream.state": STATE,
    "headgate.datastream.window": WINDOW,
    "headgate.common": COMMON,
    "headgate.metrics": METRICS,
}

MODULES = {
    "headgate.common.completable_future": "CompletableFuture",
    "headgate.common.config_options": "ConfigOption ConfigOptions",
    "headgate.common.configuration": "Configuration",
    "headgate.common.execution_config": "ExecutionConfig",
    "headgate.common.job_client": "JobClient",
    "headgate.common.job_execution_result": "JobExecutionResult",
    "headgate.common.job_status": "JobStatus",
    "headgate.common.restart_strategy": "RestartStrategies RestartStrategyConfiguration",
    "headgate.common.serialization": """
        ByteArraySchema DeserializationSchema Encoder RowFieldExtractorSchema
        SerializationSchema SimpleStringSchema""",
    "headgate.common.time": "Duration Instant Time",
    "headgate.common.constants": "MAX_LONG_VALUE MIN_LONG_VALUE",
    "headgate.common.job_id": "JobID",
    "headgate.common.serializer": "TypeSerializer",
    "headgate.common.typeinfo": """
        BasicArrayTypeInfo BasicType BasicTypeInfo DateTypeInfo ListTypeInfo MapTypeInfo
        ObjectArrayTypeInfo PickledBytesTypeInfo PrimitiveArrayTypeInfo RowTypeInfo
        SqlTimeTypeInfo TimeTypeInfo TimestampTypeInfo TupleTypeInfo TypeInformation Types""",
    "headgate.common.types": "Row RowKind",
    "headgate.common.watermark_strategy": "TimestampAssigner WatermarkStrategy",
    "headgate.datastream": """
        AggregateFunction AsyncFunction BroadcastProcessFunction CoFlatMapFunction CoMapFunction
        CoProcessFunction FilterFunction FlatMapFunction KeyedBroadcastProcessFunction
        KeyedCoProcessFunction KeyedProcessFunction KeySelector MapFunction OutputTag Partitioner
        ProcessAllWindowFunction ProcessFunction ProcessWindowFunction ReduceFunction
        RuntimeContext SinkFunction SourceFunction StateBackend TimerService Window
        WindowFunction""",
    "headgate.datastream.async_data_stream": "AsyncDataStream",
    "headgate.datastream.async_retry_predicates": "empty_result_predicate",
    "headgate.datastream.async_retry_strategies": "FixedDelayRetryStrategy",
    "headgate.datastream.checkpoint_config": "CheckpointConfig",
    "headgate.datastream.checkpoint_storage": """
        CheckpointStorage FileSystemCheckpointStorage JobManagerCheckpointStorage""",
    "headgate.datastream.checkpointing_mode": "CheckpointingMode",
    "headgate.datastream.connectors": "NumberSequenceSource FileSource FileSink",
    "headgate.datastream.connectors.base": "DeliveryGuarantee Sink Source",
    "headgate.datastream.connectors.file_system": """
        BucketAssigner FileSink FileSource FileSourceBuilder OutputFileConfig
        RollingPolicy StreamFormat""",
    "headgate.datastream.connectors.kafka": "DeliveryGuarantee KafkaSink KafkaSource",
    "headgate.datastream.connectors.number_seq": "NumberSequenceSource",
    "headgate.datastream.data_stream": """
        AllWindowedStream BroadcastConnectedStream BroadcastStream CachedDataStream
        CloseableIterator
        ConnectedStreams DataStream DataStreamSink KeyedStream WindowedStream""",
    "headgate.datastream.execution_mode": "RuntimeExecutionMode",
    "headgate.datastream.externalized_checkpoint_retention": "ExternalizedCheckpointRetention",
    "headgate.datastream.formats.csv": """
        CsvRowDeserializationSchema CsvRowSerializationSchema""",
    "headgate.datastream.formats.json": """
        JsonRowDeserializationSchema JsonRowSerializationSchema""",
    "headgate.datastream.formats.parquet": "ParquetBulkWriters ParquetColumnarRowInputFormat",
    "headgate.datastream.output_tag": "OutputTag",
    "headgate.datastream.slot_sharing_group": "MemorySize SlotSharingGroup",
    "headgate.datastream.state_backend": """
        EmbeddedRocksDBStateBackend HashMapStateBackend PredefinedOptions StateBackend""",
    "headgate.datastream.stream_execution_environment": "StreamExecutionEnvironment",
    "headgate.datastream.time_domain": "TimeDomain",
    "headgate.datastream.timerservice": "TimerService",
    "headgate.metrics.metricbase": "Counter Distribution Meter Metric MetricGroup",
}


@pytest.mark.parametrize(
    ("place", "name"), [(place, name) for place, table in PLACES.items() for name in table]
)
def test_class_has_the_names_that_programs_use(place: str, name: str) -> None:
    kind = getattr(import_module(place), name)
    missing = [part for part in PLACES[place][name].split() if not hasattr(kind, part)]
    assert not missing


@pytest.mark.parametrize("module", MODULES)
def test_module_has_the_names_that_programs_import(module: str) -> None:
    found = import_module(module)
    assert not [name for name in MODULES[module].split() if not hasattr(found, name)]
