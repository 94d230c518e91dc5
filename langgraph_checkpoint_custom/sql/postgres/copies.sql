-- Copies and forks of threads.

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
        thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden,
        inline_channels, delta_channels, blob_channels, blob_versions,
        checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter, tenant
    )
    SELECT
        %(target)s, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden,
        inline_channels, delta_channels, blob_channels, blob_versions,
        checkpoint_type, checkpoint, metadata_type, metadata,
        CASE WHEN metadata_filter ->> 'thread_id' = %(source_json)s
            THEN jsonb_set(metadata_filter, '{thread_id}', to_jsonb(%(target_json)s::text))
            ELSE metadata_filter END,
        tenant
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

-- A fork: a copy of one checkpoint of the root graph, with what it needs, to an empty thread.

-- name: select_fork_point
-- The checkpoint that is named, or the last one of a run, or the newest one; and the newest one of the target, if that
-- has any.
SELECT 'point', checkpoint_id, metadata_type, metadata FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(source)s AND checkpoint_ns = '' AND NOT hidden AND checkpoint_id = coalesce(%(checkpoint_id)s, (
    SELECT n.checkpoint_id FROM langgraph_checkpoint.checkpoints n
    WHERE n.thread_id = %(source)s AND n.checkpoint_ns = '' AND NOT n.hidden
    AND (%(run_id)s::text IS NULL OR n.run_id = %(run_id)s)
    ORDER BY n.checkpoint_id DESC LIMIT 1
))
UNION ALL
SELECT 'target', n.checkpoint_id, n.metadata_type, n.metadata
FROM (
    SELECT FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(target)s ORDER BY checkpoint_ns LIMIT 1
) AS there
LEFT JOIN (
    SELECT * FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(target)s AND checkpoint_ns = '' AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
) AS n ON true

-- name: fork_thread
-- differs: one statement, so that everything is copied from one snapshot. What may be needed is copied as hidden and
-- marked for deletion (`deleting`), and the purge_ statements that follow spare what is needed. If the checkpoint is
-- the newest one, its superstep is open: its writes and the subgraph calls that it started belong to it. Otherwise they
-- belong to what came after it. For each subgraph with a memory of its own, the checkpoint that a run from here goes on
-- from is copied.
WITH RECURSIVE own AS MATERIALIZED (
    SELECT 'exists' AS reason FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(target)s ORDER BY checkpoint_ns LIMIT 1
), point AS MATERIALIZED (
    SELECT p.checkpoint_id, p.checkpoint_id = (
        SELECT max(n.checkpoint_id) FROM langgraph_checkpoint.checkpoints n
        WHERE n.thread_id = %(source)s AND n.checkpoint_ns = '' AND NOT n.hidden
    ) AS is_open
    FROM langgraph_checkpoint.checkpoints p
    WHERE p.thread_id = %(source)s AND p.checkpoint_ns = '' AND p.checkpoint_id = %(checkpoint_id)s AND NOT p.hidden
    AND NOT EXISTS (SELECT FROM own)
    AND (%(named)s OR p.checkpoint_id = (  -- It is still the one that is meant.
        SELECT n.checkpoint_id FROM langgraph_checkpoint.checkpoints n
        WHERE n.thread_id = %(source)s AND n.checkpoint_ns = '' AND NOT n.hidden
        AND (%(run_id)s::text IS NULL OR n.run_id = %(run_id)s)
        ORDER BY n.checkpoint_id DESC LIMIT 1
    ))
), spaces AS MATERIALIZED (
    SELECT DISTINCT checkpoint_ns FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(source)s AND checkpoint_ns <> ''
), kept AS MATERIALIZED (
    SELECT '' COLLATE "C" AS checkpoint_ns, p.checkpoint_id FROM point p
    UNION ALL
    SELECT s.checkpoint_ns, h.checkpoint_id
    FROM point p
    CROSS JOIN spaces s
    CROSS JOIN LATERAL (
        SELECT c.checkpoint_id, c.root_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(source)s AND c.checkpoint_ns = s.checkpoint_ns AND NOT c.hidden
        AND (p.is_open OR c.checkpoint_id < p.checkpoint_id)
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) AS h
    WHERE strpos(s.checkpoint_ns, ':') = 0 OR (p.is_open AND h.root_id = p.checkpoint_id)
), delta AS MATERIALIZED (
    SELECT k.checkpoint_ns, c.channels
    FROM kept k
    CROSS JOIN LATERAL (
        SELECT array_agg(DISTINCT u.channel) AS channels
        FROM langgraph_checkpoint.checkpoints c CROSS JOIN LATERAL unnest(c.delta_channels) AS u (channel)
        WHERE c.thread_id = %(source)s AND c.checkpoint_ns = k.checkpoint_ns
    ) AS c
    WHERE c.channels IS NOT NULL
), needed (checkpoint_ns, checkpoint_id, open) AS (
    SELECT k.checkpoint_ns, k.checkpoint_id, d.channels FROM kept k JOIN delta d ON d.checkpoint_ns = k.checkpoint_ns
    UNION
    SELECT n.checkpoint_ns, p.parent_id, ARRAY(SELECT u FROM unnest(n.open) AS u WHERE u <> ALL (p.populated) ORDER BY u)
    FROM needed n
    CROSS JOIN LATERAL (
        SELECT c.parent_id, c.inline_channels || c.blob_channels AS populated
        FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(source)s AND c.checkpoint_ns = n.checkpoint_ns AND c.checkpoint_id = n.checkpoint_id
        OFFSET 0
    ) AS p
    WHERE p.parent_id IS NOT NULL AND NOT n.open <@ p.populated
), lineage (checkpoint_ns, checkpoint_id) AS (
    SELECT a.checkpoint_ns, a.checkpoint_id FROM (
        SELECT k.checkpoint_ns, k.checkpoint_id FROM kept k
        UNION
        SELECT n.checkpoint_ns, n.checkpoint_id FROM needed n
    ) AS a
    UNION
    SELECT l.checkpoint_ns, p.parent_id
    FROM lineage l
    CROSS JOIN LATERAL (
        SELECT c.parent_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(source)s AND c.checkpoint_ns = l.checkpoint_ns AND c.checkpoint_id = l.checkpoint_id
        AND c.format < 4
        OFFSET 0
    ) AS p
    WHERE EXISTS (
        SELECT FROM langgraph_checkpoint.writes w
        WHERE w.thread_id = %(source)s AND w.checkpoint_ns = l.checkpoint_ns AND w.checkpoint_id = p.parent_id
        AND w.channel = '__pregel_tasks'
        OFFSET 0
    )
), picked AS MATERIALIZED (
    SELECT l.checkpoint_ns, l.checkpoint_id, NOT EXISTS (
        SELECT FROM kept k WHERE k.checkpoint_ns = l.checkpoint_ns AND k.checkpoint_id = l.checkpoint_id
    ) AS is_past
    FROM lineage l
), rows AS MATERIALIZED (
    SELECT c.*, k.is_past
    FROM picked k
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(source)s AND c.checkpoint_ns = k.checkpoint_ns AND c.checkpoint_id = k.checkpoint_id
        LIMIT 1
    ) AS c
), checkpoints AS (
    INSERT INTO langgraph_checkpoint.checkpoints (
        thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden, deleting,
        inline_channels, delta_channels, blob_channels, blob_versions,
        checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter, tenant
    )
    SELECT
        %(target)s, r.checkpoint_ns, r.checkpoint_id, CASE
            WHEN r.hidden OR EXISTS (
                SELECT FROM rows o WHERE o.checkpoint_ns = r.checkpoint_ns AND o.checkpoint_id = r.parent_id
            ) OR (r.is_past AND EXISTS (
                SELECT FROM langgraph_checkpoint.checkpoints o
                WHERE o.thread_id = %(source)s AND o.checkpoint_ns = r.checkpoint_ns AND o.checkpoint_id = r.parent_id
            )) THEN r.parent_id
        END, r.root_id, r.run_id, r.format, r.is_past, r.is_past,
        r.inline_channels, r.delta_channels, r.blob_channels, r.blob_versions, r.checkpoint_type, r.checkpoint,
        CASE WHEN r.checkpoint_ns = '' AND NOT r.is_past THEN %(metadata_type)s ELSE r.metadata_type END,
        CASE WHEN r.checkpoint_ns = '' AND NOT r.is_past THEN %(metadata)b ELSE r.metadata END,
        CASE
            WHEN r.checkpoint_ns = '' AND NOT r.is_past THEN %(metadata_filter)s::jsonb
            WHEN r.metadata_filter ->> 'thread_id' = %(source_json)s
            THEN jsonb_set(r.metadata_filter, '{thread_id}', to_jsonb(%(target_json)s::text))
            ELSE r.metadata_filter
        END,
        %(tenant)s
    FROM rows r
), named AS MATERIALIZED (
    SELECT DISTINCT r.checkpoint_ns, u.channel, u.version
    FROM rows r CROSS JOIN LATERAL unnest(r.blob_channels, r.blob_versions) AS u (channel, version)
), whole AS MATERIALIZED (
    SELECT n.checkpoint_ns, n.channel, n.version, b.type, b.value, b.chunks
    FROM named n
    CROSS JOIN LATERAL (
        SELECT b.type, b.value, b.chunks FROM langgraph_checkpoint.blobs b
        WHERE b.thread_id = %(source)s AND b.checkpoint_ns = n.checkpoint_ns
        AND b.channel = n.channel AND b.version = n.version
        LIMIT 1
    ) AS b
), blobs AS (
    INSERT INTO langgraph_checkpoint.blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
    SELECT %(target)s, w.checkpoint_ns, w.channel, w.version, w.type, w.value, w.chunks FROM whole w
    UNION ALL
    SELECT %(target)s, p.checkpoint_ns, p.channel, p.name, b.type, b.value, NULL
    FROM (
        SELECT DISTINCT w.checkpoint_ns, w.channel, n.name
        FROM whole w CROSS JOIN LATERAL json_array_elements_text(w.chunks::json) AS n (name)
    ) AS p
    CROSS JOIN LATERAL (
        SELECT b.type, b.value FROM langgraph_checkpoint.blobs b
        WHERE b.thread_id = %(source)s AND b.checkpoint_ns = p.checkpoint_ns
        AND b.channel = p.channel AND b.version = p.name
        LIMIT 1
    ) AS b
    ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING
), writes AS (
    INSERT INTO langgraph_checkpoint.writes (
        thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
    )
    SELECT %(target)s, w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx, w.task_path, w.run_id, w.channel, w.type,
        w.value
    FROM rows k
    CROSS JOIN point p
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.writes w
        WHERE w.thread_id = %(source)s AND w.checkpoint_ns = k.checkpoint_ns AND w.checkpoint_id = k.checkpoint_id
        OFFSET 0
    ) AS w
    WHERE k.is_past OR p.is_open
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO NOTHING
)
SELECT reason FROM own
UNION ALL
SELECT 'gone' WHERE NOT EXISTS (SELECT FROM point) AND NOT EXISTS (SELECT FROM own)
