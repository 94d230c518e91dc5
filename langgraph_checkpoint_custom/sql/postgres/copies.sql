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

-- fragment: fork_copied
-- The checkpoints that a fork of `point` copies.
-- differs: a fragment because citus/ includes it, too.
, subgraphs AS MATERIALIZED (
    SELECT DISTINCT checkpoint_ns FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns <> ''
), heads AS MATERIALIZED (
    SELECT '' COLLATE "C" AS checkpoint_ns, p.checkpoint_id, p.format FROM point p
    UNION ALL
    SELECT s.checkpoint_ns, h.checkpoint_id, h.format
    FROM point p
    CROSS JOIN subgraphs s
    CROSS JOIN LATERAL (
        SELECT c.checkpoint_id, c.format, c.root_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = s.checkpoint_ns AND NOT c.hidden
        AND (p.is_open OR c.checkpoint_id < p.checkpoint_id)
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) AS h
    WHERE strpos(s.checkpoint_ns, ':') = 0 OR (p.is_open AND h.root_id = p.checkpoint_id)
), namespaces AS MATERIALIZED (
    SELECT checkpoint_ns FROM heads
)
-- include: delta_channels
, retained AS MATERIALIZED (
    SELECT h.*, d.channels FROM heads h JOIN delta d ON d.checkpoint_ns = h.checkpoint_ns
)
-- include: needed_ancestors
, copied AS MATERIALIZED (
    SELECT c.*, k.is_past, c.checkpoint_ns = '' AND NOT k.is_past AS is_point
    FROM (
        SELECT checkpoint_ns, checkpoint_id, bool_and(is_past) AS is_past
        FROM (
            SELECT checkpoint_ns, checkpoint_id, false AS is_past FROM retained
            UNION ALL
            SELECT checkpoint_ns, checkpoint_id, true FROM needed
        ) AS k
        GROUP BY checkpoint_ns, checkpoint_id
    ) AS k
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = k.checkpoint_ns AND c.checkpoint_id = k.checkpoint_id
        LIMIT 1
    ) AS c
)

-- fragment: fork_rows
-- They become rows of the target.
-- differs: a fragment because citus/ includes it, too.
SELECT
    -- include: copied_columns
    , %(target)s, tenant, is_past, is_past,
    CASE
        WHEN hidden OR EXISTS (
            SELECT 1 FROM copied o WHERE o.checkpoint_ns = k.checkpoint_ns AND o.checkpoint_id = k.parent_id
        ) OR (is_past AND EXISTS (
            SELECT 1 FROM langgraph_checkpoint.checkpoints o
            WHERE o.thread_id = %(thread_id)s AND o.checkpoint_ns = k.checkpoint_ns
            AND o.checkpoint_id = k.parent_id
        )) THEN parent_id
    END,
    CASE WHEN is_point THEN %(metadata_type)s ELSE metadata_type END,
    CASE WHEN is_point THEN %(metadata)b ELSE metadata END,
    CASE WHEN is_point THEN %(metadata_filter)s::jsonb ELSE
        -- include: filter_for_target
    END
FROM copied k

-- name: fork_thread
-- What may be needed is copied as hidden and marked for deletion (`deleting`), and the purge_ statements that follow
-- retain what is needed. If the checkpoint is the newest one, its superstep is open: its writes and the subgraph calls
-- that it started belong to it. Otherwise they belong to what came after it. For each subgraph with a memory of its
-- own, the checkpoint that a run from here goes on from is copied.
-- differs: one statement, so that everything is copied from one snapshot.
WITH RECURSIVE own AS MATERIALIZED (
    SELECT 'exists' AS reason FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(target)s ORDER BY checkpoint_ns LIMIT 1
), point AS MATERIALIZED (
    SELECT p.checkpoint_id, p.format, p.checkpoint_id = (
        SELECT max(n.checkpoint_id) FROM langgraph_checkpoint.checkpoints n
        WHERE n.thread_id = %(thread_id)s AND n.checkpoint_ns = '' AND NOT n.hidden
    ) AS is_open
    FROM langgraph_checkpoint.checkpoints p
    WHERE p.thread_id = %(thread_id)s AND p.checkpoint_ns = '' AND p.checkpoint_id = %(checkpoint_id)s AND NOT p.hidden
    AND NOT EXISTS (SELECT FROM own)
    AND (%(named)s OR p.checkpoint_id = (  -- It is still the one that is meant.
        -- include: fork_point
    ))
)
-- include: fork_copied
, checkpoints AS (
    INSERT INTO langgraph_checkpoint.checkpoints (
        -- include: copied_columns
        , thread_id, tenant, hidden, deleting, parent_id, metadata_type, metadata, metadata_filter
    )
    -- include: fork_rows
), refs AS MATERIALIZED (
    SELECT DISTINCT k.checkpoint_ns, u.channel, u.version
    FROM copied k CROSS JOIN LATERAL unnest(k.blob_channels, k.blob_versions) AS u (channel, version)
), found AS MATERIALIZED (
    SELECT r.checkpoint_ns, r.channel, r.version, b.type, b.value, b.chunks
    FROM refs r
    -- include: blob_of_reference
), chunk_refs AS MATERIALIZED (
    SELECT DISTINCT v.checkpoint_ns, v.channel, n.name AS version
    FROM found v CROSS JOIN LATERAL json_array_elements_text(v.chunks::json) AS n (name)
), blobs AS (
    INSERT INTO langgraph_checkpoint.blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
    SELECT %(target)s, v.* FROM found v
    UNION ALL
    SELECT %(target)s, r.*, b.*
    FROM chunk_refs r
    -- include: blob_of_reference
    ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING
), writes AS (
    INSERT INTO langgraph_checkpoint.writes (
        thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
    )
    SELECT %(target)s, w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx, w.task_path, w.run_id, w.channel, w.type,
        w.value
    FROM copied k
    CROSS JOIN point p
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.writes w
        WHERE w.thread_id = %(thread_id)s AND w.checkpoint_ns = k.checkpoint_ns AND w.checkpoint_id = k.checkpoint_id
        OFFSET 0
    ) AS w
    WHERE k.is_past OR p.is_open
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO NOTHING
)
SELECT reason FROM own
UNION ALL
SELECT 'missing' WHERE NOT EXISTS (SELECT FROM point) AND NOT EXISTS (SELECT FROM own)
