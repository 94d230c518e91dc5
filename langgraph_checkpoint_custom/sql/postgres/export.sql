-- Export and import, row by row.

-- name: import_checkpoints
INSERT INTO langgraph_checkpoint.checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden, inline_channels,
    delta_channels, blob_channels, blob_versions, checkpoint_type, checkpoint, metadata_type, metadata,
    metadata_filter, tenant
)
VALUES (
    %(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s, %(parent_id)s, %(root_id)s, %(run_id)s, %(format)s,
    %(hidden)s, %(inline_channels)s::text[], %(delta_channels)s::text[], %(blob_channels)s::text[],
    %(blob_versions)s::text[], %(checkpoint_type)s, %(checkpoint)b, %(metadata_type)s, %(metadata)b,
    %(metadata_filter)s::jsonb, %(tenant)s
)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING
