-- Copies and forks of threads, from `thread_id` to `target`. A copy has all rows. Those of a fork are copied by their keys,
-- as `model/outline.py` decides. The lock of the source is shared meanwhile, so that nothing of it is deleted.

-- name: select_not_in_source
-- A checkpoint of the target that the source does not have or has in another form, or to which somebody wrote what the
-- source does not have. IS NOT TRUE: as in copy_writes.
SELECT t.checkpoint_id FROM langgraph_checkpoint.checkpoints t
WHERE t.thread_id = %(target)s AND EXISTS (
    SELECT 1 FROM langgraph_checkpoint.checkpoints s
    WHERE s.thread_id = %(thread_id)s AND s.checkpoint_ns = t.checkpoint_ns AND s.checkpoint_id = t.checkpoint_id
    AND coalesce(s.parent_id, '') = coalesce(t.parent_id, '') AND s.hidden = t.hidden
) IS NOT TRUE
UNION ALL
SELECT t.checkpoint_id FROM langgraph_checkpoint.writes t
WHERE t.thread_id = %(target)s AND EXISTS (
    SELECT 1 FROM langgraph_checkpoint.writes s
    WHERE s.thread_id = %(thread_id)s AND s.checkpoint_ns = t.checkpoint_ns AND s.checkpoint_id = t.checkpoint_id
    AND s.task_id = t.task_id AND s.idx = t.idx AND s.type = t.type AND s.value = t.value
) IS NOT TRUE
LIMIT 1

-- fragment: copied_checkpoints
INSERT INTO langgraph_checkpoint.checkpoints (
    -- include: copied_columns
    , thread_id, parent_id, hidden, metadata_type, metadata, metadata_filter
)
SELECT
    -- include: copied_columns
    , %(target)s, parent_id, hidden OR %(hidden)s, metadata_type, metadata,
    -- include: filter_for_target
FROM langgraph_checkpoint.checkpoints

-- name: copy_checkpoints
-- include: copied_checkpoints
WHERE thread_id = %(thread_id)s
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING

-- name: fork_checkpoints
-- include: copied_checkpoints
-- include: of_checkpoints
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING

-- fragment: copied_blobs
INSERT INTO langgraph_checkpoint.blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
SELECT %(target)s, checkpoint_ns, channel, version, type, value, chunks FROM langgraph_checkpoint.blobs

-- name: copy_blobs
-- include: copied_blobs
WHERE thread_id = %(thread_id)s
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: fork_blobs
-- include: copied_blobs
-- include: of_blobs
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- fragment: copied_writes
INSERT INTO langgraph_checkpoint.writes AS t (
    thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
)
SELECT %(target)s, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
FROM langgraph_checkpoint.writes w

-- fragment: unless_stored_since
-- On PostgreSQL, others may store writes in the target meanwhile, without its lock. They count as stored after the copy:
-- then one with the key of a copied write replaces that if it is a special one (idx < 0), and is ignored otherwise.
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE
    SET task_path = EXCLUDED.task_path, run_id = EXCLUDED.run_id, channel = EXCLUDED.channel, type = EXCLUDED.type,
        value = EXCLUDED.value
    WHERE t.idx >= 0 AND (t.type, t.value) <> (EXCLUDED.type, EXCLUDED.value)

-- name: copy_writes
-- But those whose checkpoint was never stored. IS TRUE keeps PostgreSQL from joining: without statistics, it would compare
-- each write with each checkpoint.
-- include: copied_writes
WHERE thread_id = %(thread_id)s AND EXISTS (
    SELECT 1 FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
) IS TRUE
-- include: unless_stored_since

-- name: fork_writes
-- include: copied_writes
-- include: of_checkpoints
-- include: unless_stored_since

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
-- More checkpoints than before mean that a run has gone on.
SELECT count(*) FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s
