-- The history of a `DeltaChannel`.

-- name: select_delta_history
-- postgres/history.sql has the rows.
-- The next lower id is looked up, because lead() would read the thread to its end. A channel is searched for
-- in the text of a list before the list is parsed, which takes longer.
WITH RECURSIVE target AS MATERIALIZED (
    SELECT checkpoint_id, parent_id, CASE WHEN hidden THEN delta_channels END AS replayed, (
        SELECT json_group_array(value)
        FROM (SELECT value FROM json_each(inline_channels) UNION ALL SELECT value FROM json_each(blob_channels))
    ) AS populated
    FROM checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns
    AND checkpoint_id = coalesce(:checkpoint_id, (
        -- include: newest_of_namespace
    ))
), quoted AS MATERIALIZED (
    SELECT json_quote(value) AS channel FROM json_each(:asked)
), walk (top, bottom, parent_id, replayed, unseeded, unseeded_after) AS (
    SELECT NULL, checkpoint_id, parent_id, replayed, :asked, :asked FROM target
    UNION
    SELECT
        child.parent_id, c.checkpoint_id, c.parent_id,
        CASE WHEN c.hidden THEN c.delta_channels END, child.unseeded_after,
        (
            SELECT json_group_array(value) FROM json_each(child.unseeded_after)
            WHERE value NOT IN (SELECT value FROM json_each(c.inline_channels))
            AND value NOT IN (SELECT value FROM json_each(c.blob_channels))
        )
    FROM walk child
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = :checkpoint_ns
        AND c.checkpoint_id = (
            SELECT e.checkpoint_id FROM checkpoints e
            WHERE e.thread_id = :thread_id AND e.checkpoint_ns = :checkpoint_ns AND e.checkpoint_id <= child.parent_id
            AND (
                e.parent_id IS NULL
                OR e.parent_id IS NOT (
                    SELECT n.checkpoint_id FROM checkpoints n
                    WHERE n.thread_id = :thread_id AND n.checkpoint_ns = :checkpoint_ns
                    AND n.checkpoint_id < e.checkpoint_id
                    ORDER BY n.checkpoint_id DESC LIMIT 1
                )
                OR EXISTS (
                    SELECT 1 FROM quoted q
                    WHERE (instr(e.inline_channels, q.channel) OR instr(e.blob_channels, q.channel))
                    AND instr(child.unseeded_after, q.channel)
                )
            )
            ORDER BY e.checkpoint_id DESC LIMIT 1
        )
    WHERE likelihood(child.unseeded_after <> '[]', 0.00001) AND EXISTS (
        SELECT 1 FROM checkpoints p
        WHERE p.thread_id = :thread_id AND p.checkpoint_ns = :checkpoint_ns AND p.checkpoint_id = child.parent_id
    )
), ranges AS MATERIALIZED (
    SELECT * FROM walk WHERE top IS NOT NULL
), seeds AS NOT MATERIALIZED (
    SELECT r.bottom, b.*
    FROM ranges r
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = :checkpoint_ns
        AND c.checkpoint_id = r.bottom
    CROSS JOIN json_each(c.blob_channels) AS n ON n.value IN (SELECT value FROM json_each(r.unseeded))
    CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = :checkpoint_ns AND b.channel = n.value
        AND b.version = (SELECT v.value FROM json_each(c.blob_versions) AS v WHERE v.key = n.key)
    WHERE likelihood(r.unseeded <> r.unseeded_after, 0.00001)
)
SELECT
    'target' AS kind, checkpoint_id, parent_id AS name, NULL AS key, NULL AS path, NULL AS idx, NULL AS type,
    NULL AS value, populated AS channels, replayed AS versions
FROM target
UNION ALL
SELECT
    'range', r.bottom, r.parent_id, r.top, NULL, NULL, c.checkpoint_type, c.checkpoint, (
        SELECT json_group_array(value) FROM json_each(r.unseeded)
        WHERE value NOT IN (SELECT value FROM json_each(r.unseeded_after))
    ), r.replayed
FROM ranges r
LEFT JOIN checkpoints c ON r.unseeded <> r.unseeded_after
    AND c.thread_id = :thread_id AND c.checkpoint_ns = :checkpoint_ns
    AND c.checkpoint_id = r.bottom
    AND EXISTS (
        SELECT 1 FROM json_each(c.inline_channels) AS i WHERE i.value IN (SELECT value FROM json_each(r.unseeded))
    )
UNION ALL
SELECT
    'ids', r.bottom, NULL, r.top, NULL, NULL, NULL, NULL, (
        SELECT json_group_array(c.checkpoint_id) FROM checkpoints c
        WHERE c.thread_id = :thread_id AND c.checkpoint_ns = :checkpoint_ns
        AND c.checkpoint_id BETWEEN r.bottom AND r.top
    ), NULL
FROM ranges r
UNION ALL
SELECT
    'blob', bottom, channel, version, chunks, NULL, type, value, NULL, NULL
FROM seeds
UNION ALL
SELECT
    'chunk', NULL, b.channel, b.version, NULL, NULL, b.type, b.value, NULL, NULL
FROM seeds s
CROSS JOIN json_each(s.chunks) AS n
CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = :checkpoint_ns AND b.channel = s.channel
    AND b.version = n.value
UNION ALL
SELECT
    NULL, w.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value, NULL, NULL
FROM ranges r
CROSS JOIN writes w ON w.thread_id = :thread_id AND w.checkpoint_ns = :checkpoint_ns
    AND w.checkpoint_id BETWEEN r.bottom AND r.top
WHERE likelihood(r.top IS NOT NULL, 0.00001)
AND w.channel IN (SELECT value FROM json_each(:asked))
AND (r.unseeded = :asked OR instr(r.unseeded, json_quote(w.channel)))
