-- Copies and forks of threads, from `thread_id` to `target`. `model/outline.py` decides what is copied. Rows are copied by
-- their keys, while the lock of the source is shared, so that nothing of it is deleted.

-- fragment: copied_columns
-- The columns of a checkpoint that its copy in another thread has as well.
checkpoint_ns, checkpoint_id, root_id, run_id, format, inline_channels, delta_channels, blob_channels, blob_versions,
checkpoint_type, checkpoint

-- fragment: filter_for_target
CASE WHEN metadata_filter ->> '$.thread_id' = :source_json
    THEN json_set(metadata_filter, '$.thread_id', :target_json)
    ELSE metadata_filter
END

-- name: select_own
-- What a copy is decided by, with the outline: the id of a checkpoint of the target that the source does not have, or has
-- in another form; or to which somebody wrote what the source does not have.
SELECT t.checkpoint_id FROM checkpoints t
WHERE t.thread_id = :target AND NOT EXISTS (
    SELECT 1 FROM checkpoints s
    WHERE s.thread_id = :thread_id AND s.checkpoint_ns = t.checkpoint_ns AND s.checkpoint_id = t.checkpoint_id
    AND s.parent_id IS t.parent_id AND s.hidden = t.hidden
)
UNION ALL
SELECT t.checkpoint_id FROM writes t
WHERE t.thread_id = :target AND NOT EXISTS (
    SELECT 1 FROM writes s
    WHERE s.thread_id = :thread_id AND s.checkpoint_ns = t.checkpoint_ns AND s.checkpoint_id = t.checkpoint_id
    AND s.task_id = t.task_id AND s.idx = t.idx AND s.type = t.type AND s.value = t.value
)
LIMIT 1

-- fragment: fork_point
-- The newest checkpoint of the root graph, or the last one of a run.
SELECT n.checkpoint_id FROM checkpoints n
WHERE n.thread_id = :thread_id AND n.checkpoint_ns = '' AND NOT n.hidden
AND (:run_id IS NULL OR +n.run_id = :run_id)
ORDER BY n.checkpoint_id DESC LIMIT 1

-- name: select_fork_point
-- What a fork is decided by, with the outline: the checkpoint that is named, or fork_point; and the newest one of the
-- target, if that has any.
SELECT 'point', checkpoint_id, metadata_type, metadata FROM checkpoints
WHERE thread_id = :thread_id AND checkpoint_ns = '' AND NOT hidden AND checkpoint_id = coalesce(:checkpoint_id, (
    -- include: fork_point
))
UNION ALL
SELECT 'target', n.checkpoint_id, n.metadata_type, n.metadata
FROM (SELECT 1 FROM checkpoints WHERE thread_id = :target ORDER BY checkpoint_ns LIMIT 1) AS t
LEFT JOIN (
    SELECT * FROM checkpoints
    WHERE thread_id = :target AND checkpoint_ns = '' AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
) AS n

-- name: copy_checkpoints
INSERT INTO checkpoints (
    -- include: copied_columns
    , thread_id, parent_id, hidden, metadata_type, metadata, metadata_filter
)
SELECT
    -- include: copied_columns
    , :target, parent_id, hidden, metadata_type, metadata,
    -- include: filter_for_target
FROM checkpoints
-- include: of_checkpoints
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING

-- name: copy_blobs
INSERT INTO blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
SELECT :target, checkpoint_ns, channel, version, type, value, chunks FROM blobs
-- include: of_blobs
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: copy_writes
-- differs: as cut_from_deleted in postgres/.
INSERT INTO writes (
    thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
)
SELECT :target, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
FROM writes
-- include: of_checkpoints
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO NOTHING

-- name: copy_labels
INSERT INTO labels (thread_id, name, checkpoint_ns, checkpoint_id)
SELECT :target, name, checkpoint_ns, checkpoint_id FROM labels WHERE thread_id = :thread_id
ON CONFLICT (thread_id, name) DO NOTHING

-- name: mark_fork
-- The checkpoint that a fork starts from says where it comes from.
UPDATE checkpoints SET metadata_type = :metadata_type, metadata = :metadata, metadata_filter = :metadata_filter
WHERE thread_id = :target AND checkpoint_ns = '' AND checkpoint_id = :checkpoint_id

-- name: count_checkpoints
-- More checkpoints than the outline has mean that a run has gone on.
SELECT count(*) FROM checkpoints WHERE thread_id = :thread_id
