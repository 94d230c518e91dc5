-- Copies and forks of threads: fragments of the statements in common/copies.sql.

-- fragment: copied_columns
-- The columns of a checkpoint that its copy in another thread has as well.
checkpoint_ns, checkpoint_id, root_id, run_id, format, inline_channels, delta_channels, blob_channels, blob_versions,
checkpoint_type, checkpoint

-- fragment: filter_for_target
CASE WHEN metadata_filter ->> '$.thread_id' = :source_json
    THEN json_set(metadata_filter, '$.thread_id', :target_json)
    ELSE metadata_filter
END
