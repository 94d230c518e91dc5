-- Export and import, row by row.

-- name: import_checkpoints
INSERT INTO checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden, inline_channels,
    delta_channels, blob_channels, blob_versions, checkpoint_type, checkpoint, metadata_type, metadata,
    metadata_filter
)
VALUES (
    :thread_id, :checkpoint_ns, :checkpoint_id, :parent_id, :root_id, :run_id, :format, :hidden,
    :inline_channels, :delta_channels, :blob_channels, :blob_versions, :checkpoint_type, :checkpoint,
    :metadata_type, :metadata, :metadata_filter
)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING
