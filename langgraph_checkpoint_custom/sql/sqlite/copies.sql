-- Copies and forks of threads.

-- fragment: copied_columns
-- The columns of a checkpoint that its copy in another thread has as well.
checkpoint_ns, checkpoint_id, root_id, run_id, format, inline_channels, delta_channels, blob_channels, blob_versions,
checkpoint_type, checkpoint

-- fragment: filter_for_target
CASE WHEN metadata_filter ->> '$.thread_id' = :source_json
    THEN json_set(metadata_filter, '$.thread_id', :target_json)
    ELSE metadata_filter
END

-- name: copy_thread
-- differs: only checks whether the target has checkpoints or writes of its own.
SELECT t.checkpoint_id FROM checkpoints t
WHERE t.thread_id = :target AND NOT EXISTS (
    SELECT 1 FROM checkpoints s
    WHERE s.thread_id = :source AND s.checkpoint_ns = t.checkpoint_ns AND s.checkpoint_id = t.checkpoint_id
    AND s.parent_id IS t.parent_id AND s.hidden = t.hidden
)
UNION ALL
SELECT t.checkpoint_id FROM writes t
WHERE t.thread_id = :target AND NOT EXISTS (
    SELECT 1 FROM writes s
    WHERE s.thread_id = :source AND s.checkpoint_ns = t.checkpoint_ns AND s.checkpoint_id = t.checkpoint_id
    AND s.task_id = t.task_id AND s.idx = t.idx AND s.type = t.type AND s.value = t.value
)
LIMIT 1

-- name: copy_thread_checkpoints
-- differs: a part of copy_thread in postgres/. No condition is needed: if the target has rows of its own, the
-- operation raises and the transaction is rolled back.
INSERT INTO checkpoints (
    -- include: copied_columns
    , thread_id, parent_id, hidden, metadata_type, metadata, metadata_filter
)
SELECT
    -- include: copied_columns
    , :target, parent_id, hidden, metadata_type, metadata,
    -- include: filter_for_target
FROM checkpoints WHERE thread_id = :source
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING

-- name: copy_thread_blobs
-- differs: as copy_thread_checkpoints.
INSERT INTO blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
SELECT :target, checkpoint_ns, channel, version, type, value, chunks FROM blobs WHERE thread_id = :source
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: copy_thread_writes
-- differs: as copy_thread_checkpoints.
INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value)
SELECT :target, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
FROM writes WHERE thread_id = :source
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO NOTHING

-- name: copy_thread_labels
-- differs: as copy_thread_checkpoints.
INSERT INTO labels (thread_id, name, checkpoint_ns, checkpoint_id)
SELECT :target, name, checkpoint_ns, checkpoint_id FROM labels WHERE thread_id = :source
ON CONFLICT (thread_id, name) DO NOTHING

-- A fork: a copy of one checkpoint of the root graph, with what it needs, from `thread_id` to the empty thread
-- `target`.

-- fragment: fork_point
-- The newest checkpoint of the root graph, or the last one of a run.
SELECT n.checkpoint_id FROM checkpoints n
WHERE n.thread_id = :thread_id AND n.checkpoint_ns = '' AND NOT n.hidden
AND (:run_id IS NULL OR +n.run_id = :run_id)
ORDER BY n.checkpoint_id DESC LIMIT 1

-- name: select_fork_point
-- The checkpoint that is named, or fork_point; and the newest one of the target, if that has any.
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

-- name: fork_thread
-- What may be needed is copied as hidden and marked for deletion (`deleting`), and the purge_ statements that follow
-- retain what is needed. If the checkpoint is the newest one, its superstep is open: its writes and the subgraph calls
-- that it started belong to it. Otherwise they belong to what came after it. For each subgraph with a memory of its
-- own, the checkpoint that a run from here goes on from is copied.
-- differs: only finds what prevents the fork. If nothing does, the store_fork_ statements are sent.
SELECT 'exists' WHERE EXISTS (SELECT 1 FROM checkpoints WHERE thread_id = :target)
UNION ALL
SELECT 'missing' WHERE NOT EXISTS (
    SELECT 1 FROM checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = '' AND checkpoint_id = :checkpoint_id AND NOT hidden
    AND (:named OR checkpoint_id = (  -- It is still the one that is meant.
        -- include: fork_point
    ))
)

-- fragment: superstep_is_open
-- differs: a part of fork_thread in postgres/.
NOT EXISTS (
    SELECT 1 FROM checkpoints n
    WHERE n.thread_id = :thread_id AND n.checkpoint_ns = '' AND n.checkpoint_id > :checkpoint_id AND NOT n.hidden
)

-- name: store_fork_checkpoints
-- differs: as superstep_is_open.
INSERT INTO checkpoints (
    -- include: copied_columns
    , thread_id, hidden, deleting, parent_id, metadata_type, metadata, metadata_filter
)
WITH RECURSIVE point AS MATERIALIZED (
    SELECT checkpoint_id, format,
        -- include: superstep_is_open
        AS is_open
    FROM checkpoints WHERE thread_id = :thread_id AND checkpoint_ns = '' AND checkpoint_id = :checkpoint_id
), subgraphs AS MATERIALIZED (
    SELECT DISTINCT checkpoint_ns FROM checkpoints WHERE thread_id = :thread_id AND checkpoint_ns <> ''
), heads AS MATERIALIZED (
    SELECT '' AS checkpoint_ns, checkpoint_id, format FROM point
    UNION ALL
    SELECT s.checkpoint_ns, h.checkpoint_id, h.format
    FROM point p
    CROSS JOIN subgraphs s
    CROSS JOIN checkpoints h ON h.thread_id = :thread_id AND h.checkpoint_ns = s.checkpoint_ns AND h.checkpoint_id = (
        SELECT c.checkpoint_id FROM checkpoints c
        WHERE c.thread_id = :thread_id AND c.checkpoint_ns = s.checkpoint_ns AND NOT c.hidden
        AND (p.is_open OR c.checkpoint_id < :checkpoint_id)
        ORDER BY c.checkpoint_id DESC LIMIT 1
    )
    WHERE likelihood(instr(s.checkpoint_ns, ':') = 0 OR (p.is_open AND h.root_id = :checkpoint_id), 0.00001)
), namespaces AS MATERIALIZED (
    SELECT checkpoint_ns FROM heads
)
-- include: delta_channels
, retained AS MATERIALIZED (
    SELECT heads.*, delta.channels FROM heads CROSS JOIN delta USING (checkpoint_ns)
    WHERE likelihood(heads.checkpoint_id IS NOT NULL, 0.00001)
)
-- include: needed_ancestors
, copied AS MATERIALIZED (
    SELECT checkpoint_ns, checkpoint_id, min(is_past) AS is_past
    FROM (
        SELECT checkpoint_ns, checkpoint_id, false AS is_past FROM retained
        UNION ALL
        SELECT checkpoint_ns, checkpoint_id, true FROM needed
    )
    GROUP BY checkpoint_ns, checkpoint_id
)
SELECT
    -- include: copied_columns
    , :target, is_past, is_past,
    CASE
        WHEN hidden OR EXISTS (
            SELECT 1 FROM checkpoints o
            WHERE o.thread_id = :thread_id AND o.checkpoint_ns = k.checkpoint_ns AND o.checkpoint_id = k.parent_id
            AND (is_past OR (o.checkpoint_ns, o.checkpoint_id) IN (
                SELECT a.checkpoint_ns, a.checkpoint_id FROM copied a
            ))
        ) THEN parent_id
    END,
    iif(is_point, :metadata_type, metadata_type),
    iif(is_point, :metadata, metadata),
    CASE WHEN is_point THEN :metadata_filter ELSE
        -- include: filter_for_target
    END
FROM (
    SELECT c.*, k.is_past, c.checkpoint_ns = '' AND NOT k.is_past AS is_point
    FROM copied k
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = k.checkpoint_ns
        AND c.checkpoint_id = k.checkpoint_id
    WHERE likelihood(k.checkpoint_id IS NOT NULL, 0.00001)
) AS k
WHERE true
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING

-- name: store_fork_blobs
-- differs: as superstep_is_open.
INSERT INTO blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
SELECT :target, b.checkpoint_ns, b.channel, b.version, b.type, b.value, b.chunks
FROM (
    SELECT DISTINCT t.checkpoint_ns, n.value AS channel, t.blob_versions ->> n.key AS version
    FROM checkpoints t CROSS JOIN json_each(t.blob_channels) AS n
    WHERE t.thread_id = :target
) AS r
-- include: blob_of_reference
WHERE true
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: store_fork_chunks
-- differs: as superstep_is_open.
INSERT INTO blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
SELECT :target, b.checkpoint_ns, b.channel, b.version, b.type, b.value, b.chunks
FROM (
    SELECT DISTINCT t.checkpoint_ns, t.channel, n.value AS version
    FROM blobs t CROSS JOIN json_each(t.chunks) AS n
    WHERE t.thread_id = :target
) AS r
-- include: blob_of_reference
WHERE true
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: store_fork_writes
-- differs: as superstep_is_open.
INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value)
SELECT :target, w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx, w.task_path, w.run_id, w.channel, w.type, w.value
FROM checkpoints t
CROSS JOIN writes w ON w.thread_id = :thread_id AND w.checkpoint_ns = t.checkpoint_ns
    AND w.checkpoint_id = t.checkpoint_id
WHERE t.thread_id = :target AND (t.deleting OR
    -- include: superstep_is_open
)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO NOTHING
