-- Copies of threads, whose rows may move from one server to another. One statement cannot do that and compare
-- the threads as well, so there is one for each table, as in sqlite/. A read snapshot of all of them would begin before
-- the locks are held. So each statement sees what was committed before it, nothing of the source is deleted meanwhile,
-- and what refers to a checkpoint is copied if the checkpoint was. OFFSET 0 keeps the two threads apart.

-- name: copy_thread
-- differs: only checks whether the target has checkpoints or writes of its own. If it has not, the next ones are sent.
SELECT o.checkpoint_id FROM (
    SELECT checkpoint_ns, checkpoint_id, parent_id, hidden FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(target)s
    EXCEPT
    SELECT checkpoint_ns, checkpoint_id, parent_id, hidden FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s
) AS o
UNION ALL
SELECT o.checkpoint_id FROM (
    SELECT checkpoint_ns, checkpoint_id, task_id, idx, type, value FROM langgraph_checkpoint.writes
    WHERE thread_id = %(target)s
    EXCEPT
    SELECT checkpoint_ns, checkpoint_id, task_id, idx, type, value FROM langgraph_checkpoint.writes
    WHERE thread_id = %(thread_id)s
) AS o
LIMIT 1

-- name: copy_thread_checkpoints
-- differs: as copy_thread.
INSERT INTO langgraph_checkpoint.checkpoints (
    -- include: copied_columns
    , thread_id, tenant, parent_id, hidden, metadata_type, metadata, metadata_filter
)
SELECT
    -- include: copied_columns
    , %(target)s, tenant, parent_id, hidden, metadata_type, metadata,
    -- include: filter_for_target
FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING

-- name: copy_named_blobs
-- differs: as copy_thread.
INSERT INTO langgraph_checkpoint.blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
SELECT %(target)s, b.checkpoint_ns, b.channel, b.version, b.type, b.value, b.chunks
FROM (
    SELECT DISTINCT t.checkpoint_ns, u.channel, u.version
    FROM langgraph_checkpoint.checkpoints t
    CROSS JOIN LATERAL unnest(t.blob_channels, t.blob_versions) AS u (channel, version)
    WHERE t.thread_id = %(target)s
    OFFSET 0
) AS r
JOIN langgraph_checkpoint.blobs b ON b.thread_id = %(thread_id)s AND b.checkpoint_ns = r.checkpoint_ns
    AND b.channel = r.channel AND b.version = r.version
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: copy_named_chunks
-- differs: as copy_thread.
INSERT INTO langgraph_checkpoint.blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
SELECT %(target)s, b.checkpoint_ns, b.channel, b.version, b.type, b.value, b.chunks
FROM (
    SELECT DISTINCT t.checkpoint_ns, t.channel, n.name
    FROM langgraph_checkpoint.blobs t CROSS JOIN LATERAL json_array_elements_text(t.chunks::json) AS n (name)
    WHERE t.thread_id = %(target)s
    OFFSET 0
) AS r
JOIN langgraph_checkpoint.blobs b ON b.thread_id = %(thread_id)s AND b.checkpoint_ns = r.checkpoint_ns
    AND b.channel = r.channel AND b.version = r.name
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: copy_thread_writes
-- differs: as copy_thread. A write without a checkpoint is copied, too.
INSERT INTO langgraph_checkpoint.writes AS t (
    thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
)
SELECT %(target)s, w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx, w.task_path, w.run_id, w.channel, w.type, w.value
FROM (
    SELECT w.*, c.checkpoint_id IS NULL AS is_early
    FROM langgraph_checkpoint.writes w
    LEFT JOIN langgraph_checkpoint.checkpoints c ON c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns
        AND c.checkpoint_id = w.checkpoint_id
    WHERE w.thread_id = %(thread_id)s
    OFFSET 0
) AS w
LEFT JOIN (
    SELECT c.checkpoint_ns, c.checkpoint_id FROM langgraph_checkpoint.checkpoints c WHERE c.thread_id = %(target)s
    OFFSET 0
) AS o ON o.checkpoint_ns = w.checkpoint_ns AND o.checkpoint_id = w.checkpoint_id
WHERE w.is_early OR o.checkpoint_id IS NOT NULL
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE SET idx = t.idx / 0
    WHERE t.type <> EXCLUDED.type OR t.value <> EXCLUDED.value

-- name: copy_thread_labels
-- differs: as copy_thread.
INSERT INTO langgraph_checkpoint.labels (thread_id, name, checkpoint_ns, checkpoint_id)
SELECT %(target)s, l.name, l.checkpoint_ns, l.checkpoint_id
FROM langgraph_checkpoint.labels l
JOIN (
    SELECT c.checkpoint_ns, c.checkpoint_id FROM langgraph_checkpoint.checkpoints c WHERE c.thread_id = %(target)s
    OFFSET 0
) AS o ON o.checkpoint_ns = l.checkpoint_ns AND o.checkpoint_id = l.checkpoint_id
WHERE l.thread_id = %(thread_id)s
ON CONFLICT (thread_id, name) DO NOTHING

-- name: select_fork_point
-- differs: the two threads are looked up by statements of their own, whose rows are put together.
SELECT * FROM (
    SELECT 'point', checkpoint_id, metadata_type, metadata FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = '' AND NOT hidden
    AND checkpoint_id = coalesce(%(checkpoint_id)s, (
        -- include: fork_point
    ))
    LIMIT 1
) AS p
UNION ALL
SELECT * FROM (
    SELECT 'target', n.checkpoint_id, n.metadata_type, n.metadata
    FROM (
        SELECT 1 FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(target)s ORDER BY checkpoint_ns LIMIT 1
    ) AS t
    LEFT JOIN (
        SELECT * FROM langgraph_checkpoint.checkpoints
        WHERE thread_id = %(target)s AND checkpoint_ns = '' AND NOT hidden
        ORDER BY checkpoint_id DESC LIMIT 1
    ) AS n ON true
    LIMIT 1
) AS t
