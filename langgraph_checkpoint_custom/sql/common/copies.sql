-- Copies and forks of threads, from `thread_id` to `target`. `model/outline.py` decides what is copied. Rows are copied by
-- their keys, while the lock of the source is shared, so that nothing of it is deleted.

-- name: select_not_in_source
-- What a copy is decided by, with the outlines of both threads: a checkpoint of the target to which somebody wrote what the
-- source does not have.
SELECT t.checkpoint_id FROM langgraph_checkpoint.writes t
WHERE t.thread_id = %(target)s AND NOT EXISTS (
    SELECT 1 FROM langgraph_checkpoint.writes s
    WHERE s.thread_id = %(thread_id)s AND s.checkpoint_ns = t.checkpoint_ns AND s.checkpoint_id = t.checkpoint_id
    AND s.task_id = t.task_id AND s.idx = t.idx AND s.type = t.type AND s.value = t.value
)
LIMIT 1

-- name: copy_checkpoints
INSERT INTO langgraph_checkpoint.checkpoints (
    -- include: copied_columns
    , thread_id, parent_id, hidden, metadata_type, metadata, metadata_filter
)
SELECT
    -- include: copied_columns
    , %(target)s, parent_id, hidden OR %(hidden)s, metadata_type, metadata,
    -- include: filter_for_target
FROM langgraph_checkpoint.checkpoints
-- include: of_checkpoints
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING

-- name: copy_blobs
INSERT INTO langgraph_checkpoint.blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
SELECT %(target)s, checkpoint_ns, channel, version, type, value, chunks FROM langgraph_checkpoint.blobs
-- include: of_blobs
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: copy_writes
-- On PostgreSQL, others may store writes in the target meanwhile, without its lock. They count as stored after the copy:
-- then one with the key of a copied write replaces that if it is a special one (idx < 0), and is ignored otherwise.
INSERT INTO langgraph_checkpoint.writes AS t (
    thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
)
SELECT %(target)s, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
FROM langgraph_checkpoint.writes
-- include: of_checkpoints
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE
    SET task_path = EXCLUDED.task_path, run_id = EXCLUDED.run_id, channel = EXCLUDED.channel, type = EXCLUDED.type,
        value = EXCLUDED.value
    WHERE t.idx >= 0 AND (t.type, t.value) <> (EXCLUDED.type, EXCLUDED.value)

-- name: copy_labels
INSERT INTO langgraph_checkpoint.labels (thread_id, name, checkpoint_ns, checkpoint_id)
SELECT %(target)s, name, checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.labels WHERE thread_id = %(thread_id)s
ON CONFLICT (thread_id, name) DO NOTHING

-- name: mark_fork
-- The checkpoint that a fork starts from says where it comes from.
UPDATE langgraph_checkpoint.checkpoints
SET metadata_type = %(metadata_type)s, metadata = %(metadata)b, metadata_filter = %(metadata_filter)s
WHERE thread_id = %(thread_id)s AND checkpoint_ns = '' AND checkpoint_id = %(checkpoint_id)s

-- name: count_checkpoints
-- More checkpoints than the outline has mean that a run has gone on.
SELECT count(*) FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s
