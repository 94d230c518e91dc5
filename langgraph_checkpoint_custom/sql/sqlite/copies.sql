-- Copies and forks of threads.

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
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden,
    inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter
)
SELECT
    :target, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden,
    inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata,
    CASE WHEN metadata_filter ->> '$.thread_id' = :source_json
        THEN json_set(metadata_filter, '$.thread_id', :target_json) ELSE metadata_filter END
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

-- A fork: a copy of one checkpoint of the root graph, with what it needs, to an empty thread.

-- name: select_fork_point
-- The checkpoint that is named, or the last one of a run, or the newest one; and the newest one of the target, if that
-- has any.
SELECT 'point', checkpoint_id, metadata_type, metadata FROM checkpoints
WHERE thread_id = :source AND checkpoint_ns = '' AND NOT hidden AND checkpoint_id = coalesce(:checkpoint_id, (
    SELECT n.checkpoint_id FROM checkpoints n
    WHERE n.thread_id = :source AND n.checkpoint_ns = '' AND NOT n.hidden
    AND (:run_id IS NULL OR +n.run_id = :run_id)
    ORDER BY n.checkpoint_id DESC LIMIT 1
))
UNION ALL
SELECT 'target', n.checkpoint_id, n.metadata_type, n.metadata
FROM (SELECT 1 FROM checkpoints WHERE thread_id = :target ORDER BY checkpoint_ns LIMIT 1) AS there
LEFT JOIN (
    SELECT * FROM checkpoints
    WHERE thread_id = :target AND checkpoint_ns = '' AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
) AS n

-- name: fork_thread
-- differs: only finds what prevents the fork. If nothing does, the store_fork_ statements are sent.
SELECT 'exists' WHERE EXISTS (SELECT 1 FROM checkpoints WHERE thread_id = :target)
UNION ALL
SELECT 'gone' WHERE NOT EXISTS (
    SELECT 1 FROM checkpoints
    WHERE thread_id = :source AND checkpoint_ns = '' AND checkpoint_id = :checkpoint_id AND NOT hidden
    AND (:named OR checkpoint_id = (  -- It is still the one that is meant.
        SELECT n.checkpoint_id FROM checkpoints n
        WHERE n.thread_id = :source AND n.checkpoint_ns = '' AND NOT n.hidden
        AND (:run_id IS NULL OR n.run_id = :run_id)
        ORDER BY n.checkpoint_id DESC LIMIT 1
    ))
)

-- name: store_fork_checkpoints
-- differs: a part of fork_thread in postgres/. What may be needed is copied as hidden and marked for deletion
-- (`deleting`), and the purge_ statements that follow spare what is needed. If the checkpoint is the newest one, its
-- superstep is open: its writes and the subgraph calls that it started belong to it. Otherwise they belong to what came
-- after it. For each subgraph with a memory of its own, the checkpoint that a run from here goes on from is copied.
INSERT INTO checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden, deleting,
    inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter
)
WITH RECURSIVE point AS MATERIALIZED (
    SELECT NOT EXISTS (
        SELECT 1 FROM checkpoints n
        WHERE n.thread_id = :source AND n.checkpoint_ns = '' AND n.checkpoint_id > :checkpoint_id AND NOT n.hidden
    ) AS is_open
), spaces AS MATERIALIZED (
    SELECT DISTINCT checkpoint_ns FROM checkpoints WHERE thread_id = :source AND checkpoint_ns <> ''
), kept AS MATERIALIZED (
    SELECT '' AS checkpoint_ns, :checkpoint_id AS checkpoint_id
    UNION ALL
    SELECT s.checkpoint_ns, h.checkpoint_id
    FROM point p
    CROSS JOIN spaces s
    CROSS JOIN checkpoints h ON h.thread_id = :source AND h.checkpoint_ns = s.checkpoint_ns AND h.checkpoint_id = (
        SELECT c.checkpoint_id FROM checkpoints c
        WHERE c.thread_id = :source AND c.checkpoint_ns = s.checkpoint_ns AND NOT c.hidden
        AND (p.is_open OR c.checkpoint_id < :checkpoint_id)
        ORDER BY c.checkpoint_id DESC LIMIT 1
    )
    WHERE likelihood(instr(s.checkpoint_ns, ':') = 0 OR (p.is_open AND h.root_id = :checkpoint_id), 0.00001)
), delta AS MATERIALIZED (
    SELECT k.checkpoint_ns, json_group_array(DISTINCT u.value) AS channels
    FROM kept k
    CROSS JOIN checkpoints c ON c.thread_id = :source AND c.checkpoint_ns = k.checkpoint_ns
    CROSS JOIN json_each(c.delta_channels) AS u
    WHERE likelihood(k.checkpoint_id IS NOT NULL, 0.00001)
    GROUP BY k.checkpoint_ns
), needed (checkpoint_ns, checkpoint_id, open) AS (
    SELECT k.checkpoint_ns, k.checkpoint_id, (SELECT json_group_array(value) FROM (
        SELECT value FROM json_each(x.channels) ORDER BY 1
    ))
    FROM kept k CROSS JOIN delta x ON x.checkpoint_ns = k.checkpoint_ns
    UNION
    SELECT n.checkpoint_ns, c.parent_id, (
        SELECT json_group_array(value) FROM json_each(n.open)
        WHERE value NOT IN (SELECT value FROM json_each(c.inline_channels))
        AND value NOT IN (SELECT value FROM json_each(c.blob_channels))
    )
    FROM needed n
    CROSS JOIN checkpoints c ON c.thread_id = :source AND c.checkpoint_ns = n.checkpoint_ns
        AND c.checkpoint_id = n.checkpoint_id
    WHERE likelihood(n.open <> '[]', 0.00001) AND c.parent_id IS NOT NULL
), lineage (checkpoint_ns, checkpoint_id) AS (
    SELECT * FROM (
        SELECT checkpoint_ns, checkpoint_id FROM kept
        UNION
        SELECT checkpoint_ns, checkpoint_id FROM needed WHERE open <> '[]'
    )
    UNION
    SELECT k.checkpoint_ns, c.parent_id
    FROM lineage k
    CROSS JOIN checkpoints c ON c.thread_id = :source AND c.checkpoint_ns = k.checkpoint_ns
        AND c.checkpoint_id = k.checkpoint_id AND c.format < 4
    WHERE likelihood(k.checkpoint_id IS NOT NULL, 0.00001) AND EXISTS (
        SELECT 1 FROM writes w
        WHERE w.thread_id = :source AND w.checkpoint_ns = k.checkpoint_ns AND w.checkpoint_id = c.parent_id
        AND w.channel = '__pregel_tasks'
    )
), picked AS MATERIALIZED (
    SELECT checkpoint_ns, checkpoint_id, (checkpoint_ns, checkpoint_id) NOT IN (SELECT * FROM kept) AS is_past
    FROM lineage
)
SELECT
    :target, r.checkpoint_ns, r.checkpoint_id, CASE
        WHEN r.hidden OR EXISTS (
            SELECT 1 FROM checkpoints o
            WHERE o.thread_id = :source AND o.checkpoint_ns = r.checkpoint_ns AND o.checkpoint_id = r.parent_id
            AND (
                k.is_past
                OR (o.checkpoint_ns, o.checkpoint_id) IN (SELECT a.checkpoint_ns, a.checkpoint_id FROM picked a)
            )
        ) THEN r.parent_id
    END, r.root_id, r.run_id, r.format, k.is_past, k.is_past,
    r.inline_channels, r.delta_channels, r.blob_channels, r.blob_versions, r.checkpoint_type, r.checkpoint,
    CASE WHEN r.checkpoint_ns = '' AND NOT k.is_past THEN :metadata_type ELSE r.metadata_type END,
    CASE WHEN r.checkpoint_ns = '' AND NOT k.is_past THEN :metadata ELSE r.metadata END,
    CASE
        WHEN r.checkpoint_ns = '' AND NOT k.is_past THEN :metadata_filter
        WHEN r.metadata_filter ->> '$.thread_id' = :source_json
        THEN json_set(r.metadata_filter, '$.thread_id', :target_json)
        ELSE r.metadata_filter
    END
FROM picked k
CROSS JOIN checkpoints r ON r.thread_id = :source AND r.checkpoint_ns = k.checkpoint_ns
    AND r.checkpoint_id = k.checkpoint_id
WHERE likelihood(k.checkpoint_id IS NOT NULL, 0.00001)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING

-- name: store_fork_blobs
-- differs: as store_fork_checkpoints.
INSERT INTO blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
SELECT :target, b.checkpoint_ns, b.channel, b.version, b.type, b.value, b.chunks
FROM (
    SELECT DISTINCT t.checkpoint_ns, n.value AS channel, t.blob_versions ->> n.key AS version
    FROM checkpoints t CROSS JOIN json_each(t.blob_channels) AS n
    WHERE t.thread_id = :target
) AS r
CROSS JOIN blobs b ON b.thread_id = :source AND b.checkpoint_ns = r.checkpoint_ns
    AND b.channel = r.channel AND b.version = r.version
WHERE true
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: store_fork_chunks
-- differs: as store_fork_checkpoints.
INSERT INTO blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
SELECT :target, b.checkpoint_ns, b.channel, b.version, b.type, b.value, b.chunks
FROM (
    SELECT DISTINCT t.checkpoint_ns, t.channel, n.value AS name
    FROM blobs t CROSS JOIN json_each(t.chunks) AS n
    WHERE t.thread_id = :target
) AS r
CROSS JOIN blobs b ON b.thread_id = :source AND b.checkpoint_ns = r.checkpoint_ns
    AND b.channel = r.channel AND b.version = r.name
WHERE true
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: store_fork_writes
-- differs: as store_fork_checkpoints.
INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value)
SELECT :target, w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx, w.task_path, w.run_id, w.channel, w.type, w.value
FROM checkpoints t
CROSS JOIN writes w ON w.thread_id = :source AND w.checkpoint_ns = t.checkpoint_ns AND w.checkpoint_id = t.checkpoint_id
WHERE t.thread_id = :target AND (t.deleting OR NOT EXISTS (
    SELECT 1 FROM checkpoints n
    WHERE n.thread_id = :source AND n.checkpoint_ns = '' AND n.checkpoint_id > :checkpoint_id AND NOT n.hidden
))
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO NOTHING
