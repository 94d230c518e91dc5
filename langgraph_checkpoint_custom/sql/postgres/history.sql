-- The history of a `DeltaChannel`.

-- name: select_delta_history
-- What a checkpoint is rebuilt from: id ranges, the seeds at their ends, and writes. The rows have few columns, because
-- there may be many thousands of writes. Some writes may have no checkpoint; its id is not in `ids` then. `ranges` has
-- a row for each id range: checkpoints that follow one another both by id and by parent, from `top` down to `bottom`. A
-- range ends where the parent is not the next lower id, or where a channel that is still `unseeded`, without a seed,
-- has its seed; `unseeded_after` are the channels that have none after that. A parent chain that loops repeats a row in
-- the end, and UNION drops it. `replayed` are the delta channels of a hidden checkpoint; they are read because its
-- parent may be deleted.
-- lead() makes a parent chain cost one scan for each range, and not one lookup for each parent. Without OFFSET 0, all
-- checkpoints or writes of the thread would be read for a join ("delta history" in tests/plans/test_plans.py shows it).
-- `start` is separate from `target`. A policy is checked before a condition that contains a query, and in a generic
-- plan that would read all rows of the thread.
WITH RECURSIVE start AS MATERIALIZED (
    SELECT coalesce(%(checkpoint_id)s, (
        -- include: newest_of_namespace
    )) AS checkpoint_id
), target AS MATERIALIZED (
    SELECT c.checkpoint_id, c.parent_id, CASE WHEN c.hidden THEN c.delta_channels END AS replayed,
        c.inline_channels || c.blob_channels AS populated
    FROM start s
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = %(checkpoint_ns)s
        AND c.checkpoint_id = s.checkpoint_id
        OFFSET 0
    ) AS c
), walk (top, bottom, parent_id, replayed, unseeded, unseeded_after) AS (
    SELECT NULL COLLATE "C", checkpoint_id, parent_id, replayed, %(asked)s::text[] COLLATE "C",
        %(asked)s::text[] COLLATE "C"
    FROM target
    UNION
    SELECT child.parent_id, r.checkpoint_id, r.parent_id, r.replayed, child.unseeded_after, CASE
        WHEN r.populated && child.unseeded_after THEN ARRAY(
            SELECT o FROM unnest(child.unseeded_after) AS o WHERE o <> ALL (r.populated)
        )
        ELSE child.unseeded_after END
    FROM walk child
    CROSS JOIN LATERAL (
        SELECT c.checkpoint_id, c.parent_id, CASE WHEN c.hidden THEN c.delta_channels END AS replayed,
            c.inline_channels || c.blob_channels AS populated
        FROM (
            SELECT c.checkpoint_id, c.parent_id, c.hidden, c.delta_channels, c.inline_channels, c.blob_channels,
                lead(c.checkpoint_id) OVER (ORDER BY c.checkpoint_id DESC) AS below
            FROM langgraph_checkpoint.checkpoints c
            WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = %(checkpoint_ns)s
            AND c.checkpoint_id <= child.parent_id
            ORDER BY c.checkpoint_id DESC
        ) AS c
        WHERE c.below IS NULL OR c.parent_id IS DISTINCT FROM c.below
        OR c.inline_channels && child.unseeded_after OR c.blob_channels && child.unseeded_after
        LIMIT 1
    ) AS r
    WHERE child.unseeded_after <> '{}' AND EXISTS (
        SELECT FROM langgraph_checkpoint.checkpoints p
        WHERE p.thread_id = %(thread_id)s AND p.checkpoint_ns = %(checkpoint_ns)s AND p.checkpoint_id = child.parent_id
        OFFSET 0
    )
), ranges AS MATERIALIZED (
    SELECT * FROM walk WHERE top IS NOT NULL
), seeds AS MATERIALIZED (
    SELECT i.bottom, r.*, b.*
    FROM ranges i
    CROSS JOIN LATERAL (
        SELECT c.checkpoint_ns, u.channel, u.version FROM langgraph_checkpoint.checkpoints c
        CROSS JOIN LATERAL unnest(c.blob_channels, c.blob_versions) AS u (channel, version)
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = %(checkpoint_ns)s AND c.checkpoint_id = i.bottom
        AND u.channel = ANY (i.unseeded)
        OFFSET 0
    ) AS r
    -- include: blob_of_reference
    WHERE i.unseeded <> i.unseeded_after
)
SELECT
    'target' AS kind, checkpoint_id, parent_id AS name, NULL AS key, NULL AS path, NULL::integer AS idx, NULL AS type,
    NULL::bytea AS value, populated AS channels, replayed AS versions
FROM target
UNION ALL
SELECT
    'range', r.bottom, r.parent_id, r.top, NULL, NULL, c.checkpoint_type, c.checkpoint,
    ARRAY(SELECT o FROM unnest(r.unseeded) AS o WHERE o <> ALL (r.unseeded_after)), r.replayed
FROM ranges r
LEFT JOIN LATERAL (
    SELECT c.checkpoint_type, c.checkpoint FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = %(checkpoint_ns)s AND c.checkpoint_id = r.bottom
    AND c.inline_channels && r.unseeded
    OFFSET 0
) AS c ON r.unseeded <> r.unseeded_after
UNION ALL
SELECT
    'ids', r.bottom, NULL, r.top, NULL, NULL, NULL, NULL, ARRAY(
        SELECT c.checkpoint_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = %(checkpoint_ns)s
        AND c.checkpoint_id BETWEEN r.bottom AND r.top
    ), NULL
FROM ranges r
UNION ALL
SELECT
    'blob', bottom, channel, version, chunks, NULL, type, value, NULL, NULL
FROM seeds
UNION ALL
SELECT
    'chunk', NULL, r.channel, r.version, NULL, NULL, b.type, b.value, NULL, NULL
FROM (
    SELECT s.checkpoint_ns, s.channel, n.name AS version
    FROM seeds s CROSS JOIN LATERAL json_array_elements_text(s.chunks::json) AS n (name)
) AS r
-- include: blob_of_reference
UNION ALL
SELECT
    NULL, w.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value, NULL, NULL
FROM ranges r
CROSS JOIN LATERAL (
    SELECT * FROM langgraph_checkpoint.writes w
    WHERE w.thread_id = %(thread_id)s AND w.checkpoint_ns = %(checkpoint_ns)s
    AND w.checkpoint_id BETWEEN r.bottom AND r.top AND w.channel = ANY (r.unseeded)
    OFFSET 0
) AS w
