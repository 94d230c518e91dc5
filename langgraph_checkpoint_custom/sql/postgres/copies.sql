-- Copies and forks of threads.

-- fragment: copied_columns
-- The columns of a checkpoint that its copy in another thread has as well.
checkpoint_ns, checkpoint_id, root_id, run_id, format, inline_channels, delta_channels, blob_channels, blob_versions,
checkpoint_type, checkpoint

-- fragment: filter_for_target
CASE WHEN metadata_filter ->> 'thread_id' = %(source_json)s
    THEN jsonb_set(metadata_filter, '{thread_id}', to_jsonb(%(target_json)s::text))
    ELSE metadata_filter
END

-- name: copy_thread
-- differs: one statement, so that everything is copied from one snapshot. Other transactions store writes in the target
-- without its lock. If such a write is not visible in the snapshot, has the key of a copied one and is not equal to it,
-- the statement fails with a division by zero and is tried again. The next snapshot has the write.
WITH own AS MATERIALIZED (
    SELECT t.checkpoint_id FROM langgraph_checkpoint.checkpoints t
    WHERE t.thread_id = %(target)s AND NOT EXISTS (
        SELECT FROM langgraph_checkpoint.checkpoints s
        WHERE s.thread_id = %(source)s AND s.checkpoint_ns = t.checkpoint_ns AND s.checkpoint_id = t.checkpoint_id
        AND s.parent_id IS NOT DISTINCT FROM t.parent_id AND s.hidden = t.hidden
    )
    UNION ALL
    SELECT t.checkpoint_id FROM langgraph_checkpoint.writes t
    WHERE t.thread_id = %(target)s AND NOT EXISTS (
        SELECT FROM langgraph_checkpoint.writes s
        WHERE s.thread_id = %(source)s AND s.checkpoint_ns = t.checkpoint_ns AND s.checkpoint_id = t.checkpoint_id
        AND s.task_id = t.task_id AND s.idx = t.idx AND s.type = t.type AND s.value = t.value
    )
    LIMIT 1
), checkpoints AS (
    INSERT INTO langgraph_checkpoint.checkpoints (
        -- include: copied_columns
        , thread_id, tenant, parent_id, hidden, metadata_type, metadata, metadata_filter
    )
    SELECT
        -- include: copied_columns
        , %(target)s, tenant, parent_id, hidden, metadata_type, metadata,
        -- include: filter_for_target
    FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(source)s AND NOT EXISTS (SELECT FROM own)
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING
), blobs AS (
    INSERT INTO langgraph_checkpoint.blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
    SELECT %(target)s, checkpoint_ns, channel, version, type, value, chunks
    FROM langgraph_checkpoint.blobs WHERE thread_id = %(source)s AND NOT EXISTS (SELECT FROM own)
    ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING
), writes AS (
    INSERT INTO langgraph_checkpoint.writes AS t (
        thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
    )
    SELECT %(target)s, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
    FROM langgraph_checkpoint.writes WHERE thread_id = %(source)s AND NOT EXISTS (SELECT FROM own)
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE SET idx = t.idx / 0
        WHERE t.type <> EXCLUDED.type OR t.value <> EXCLUDED.value
), labels AS (
    INSERT INTO langgraph_checkpoint.labels (thread_id, name, checkpoint_ns, checkpoint_id)
    SELECT %(target)s, name, checkpoint_ns, checkpoint_id
    FROM langgraph_checkpoint.labels WHERE thread_id = %(source)s AND NOT EXISTS (SELECT FROM own)
    ON CONFLICT (thread_id, name) DO NOTHING
)
SELECT checkpoint_id FROM own

-- A fork: a copy of one checkpoint of the root graph, with what it needs, from `thread_id` to the empty thread
-- `target`.

-- fragment: fork_point
-- The newest checkpoint of the root graph, or the last one of a run.
SELECT n.checkpoint_id FROM langgraph_checkpoint.checkpoints n
WHERE n.thread_id = %(thread_id)s AND n.checkpoint_ns = '' AND NOT n.hidden
AND (%(run_id)s::text IS NULL OR n.run_id = %(run_id)s)
ORDER BY n.checkpoint_id DESC LIMIT 1

-- name: select_fork_point
-- The checkpoint that is named, or fork_point; and the newest one of the target, if that has any.
SELECT 'point', checkpoint_id, metadata_type, metadata FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND checkpoint_ns = '' AND NOT hidden AND checkpoint_id = coalesce(%(checkpoint_id)s, (
    -- include: fork_point
))
UNION ALL
SELECT 'target', n.checkpoint_id, n.metadata_type, n.metadata
FROM (
    SELECT FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(target)s ORDER BY checkpoint_ns LIMIT 1
) AS t
LEFT JOIN (
    SELECT * FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(target)s AND checkpoint_ns = '' AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
) AS n ON true

-- What a fork copies, by the keys that `Branch` in `model/outline.py` has chosen.

-- name: fork_checkpoints
INSERT INTO langgraph_checkpoint.checkpoints (
    -- include: copied_columns
    , thread_id, tenant, parent_id, hidden, metadata_type, metadata, metadata_filter
)
SELECT
    -- include: copied_columns
    , %(target)s, tenant, parent_id, hidden, metadata_type, metadata,
    -- include: filter_for_target
FROM langgraph_checkpoint.checkpoints
-- include: of_checkpoints
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING

-- name: fork_metadata
-- The checkpoint that the fork starts from says where it comes from.
UPDATE langgraph_checkpoint.checkpoints SET metadata_type = %(metadata_type)s, metadata = %(metadata)b, metadata_filter = %(metadata_filter)s::jsonb
WHERE thread_id = %(target)s AND checkpoint_ns = '' AND checkpoint_id = %(checkpoint_id)s

-- name: fork_blobs
INSERT INTO langgraph_checkpoint.blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
SELECT %(target)s, checkpoint_ns, channel, version, type, value, chunks FROM langgraph_checkpoint.blobs
-- include: of_blobs
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: fork_writes
INSERT INTO langgraph_checkpoint.writes (
    thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
)
SELECT %(target)s, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
FROM langgraph_checkpoint.writes
-- include: of_checkpoints
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO NOTHING

-- name: fork_count
-- How many checkpoints the source has now. More than before mean that a run has gone on.
SELECT count(*) FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s
