-- Lists of threads, labels and interrupts.
--
-- Each server finds the heads of its threads, by joins and groups by thread. Where a page is searched for among the
-- newest checkpoints, these are read from all servers first.

-- fragment: within_ranges
-- differs: a part of thread_heads in postgres/.
(c.thread_id >= (%(bottoms)s::text[])[1] AND c.thread_id < (%(tops)s::text[])[1])
OR (c.thread_id >= (%(bottoms)s::text[])[2] AND c.thread_id < (%(tops)s::text[])[2])

-- fragment: thread_heads
-- differs: it cannot go from thread to thread. So it reads index entries of all checkpoints.
WITH heads AS NOT MATERIALIZED (
    SELECT
        c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.run_id, c.metadata_type, c.metadata,
        c.metadata_filter
    FROM (
        SELECT c.thread_id, min(c.checkpoint_ns) AS checkpoint_ns FROM langgraph_checkpoint.checkpoints c
        WHERE NOT c.hidden AND (
            -- include: within_ranges
        )
        GROUP BY c.thread_id
    ) AS f
    JOIN (
        SELECT c.thread_id, c.checkpoint_ns, max(c.checkpoint_id) AS checkpoint_id
        FROM langgraph_checkpoint.checkpoints c
        WHERE NOT c.hidden AND (
            -- include: within_ranges
        )
        GROUP BY c.thread_id, c.checkpoint_ns
    ) AS n ON n.thread_id = f.thread_id AND n.checkpoint_ns = f.checkpoint_ns
    JOIN langgraph_checkpoint.checkpoints c ON c.thread_id = n.thread_id AND c.checkpoint_ns = n.checkpoint_ns
        AND c.checkpoint_id = n.checkpoint_id
    WHERE true
    -- include: matches_filter
)

-- fragment: tops
-- differs: as candidate_heads. The newest checkpoint of each namespace of these threads.
, tops AS MATERIALIZED (
    SELECT c.thread_id, c.checkpoint_ns, max(c.checkpoint_id) AS checkpoint_id
    FROM langgraph_checkpoint.checkpoints c JOIN (SELECT DISTINCT thread_id FROM candidates) AS r USING (thread_id)
    WHERE NOT c.hidden GROUP BY c.thread_id, c.checkpoint_ns
)

-- fragment: candidate_heads
-- differs: joins by thread. Of the threads with candidates, it reads index entries of all checkpoints.
-- include: tops
, firsts AS MATERIALIZED (
    SELECT t.* FROM tops t
    JOIN (SELECT thread_id, min(checkpoint_ns) AS checkpoint_ns FROM tops GROUP BY thread_id) AS f
        USING (thread_id, checkpoint_ns)
    JOIN candidates r USING (thread_id, checkpoint_ns, checkpoint_id)
), heads AS NOT MATERIALIZED (
    SELECT
        c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.run_id, c.metadata_type, c.metadata,
        c.metadata_filter
    FROM firsts f
    JOIN langgraph_checkpoint.checkpoints c ON c.thread_id = f.thread_id AND c.checkpoint_ns = f.checkpoint_ns
        AND c.checkpoint_id = f.checkpoint_id
    WHERE true
    -- include: matches_filter
)

-- name: threads_newest
-- differs: as threads_recent.
WITH candidates AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.checkpoints
    WHERE tenant = %(tenant)s AND checkpoint_id <= %(before)s AND NOT hidden
    AND (checkpoint_id, thread_id) < (%(before)s, %(thread_below)s)
    ORDER BY checkpoint_id DESC, thread_id DESC
    LIMIT %(reach)s
)
-- include: tops
, firsts AS MATERIALIZED (
    SELECT t.* FROM tops t
    JOIN (SELECT thread_id, min(checkpoint_ns) AS checkpoint_ns FROM tops GROUP BY thread_id) AS f
        USING (thread_id, checkpoint_ns)
    JOIN candidates r USING (thread_id, checkpoint_ns, checkpoint_id)
    ORDER BY t.checkpoint_id DESC, t.thread_id DESC LIMIT %(limit)s
)
SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.run_id, c.metadata_type, c.metadata
FROM firsts f
JOIN langgraph_checkpoint.checkpoints c ON c.thread_id = f.thread_id AND c.checkpoint_ns = f.checkpoint_ns
    AND c.checkpoint_id = f.checkpoint_id
ORDER BY c.checkpoint_id DESC, c.thread_id DESC

-- name: threads_recent
-- differs: the order of the candidates is lost in joins.
WITH recent AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.checkpoints
    WHERE tenant = %(tenant)s AND checkpoint_id <= %(before)s AND NOT hidden
    AND (checkpoint_id, thread_id) < (%(before)s, %(thread_below)s)
    ORDER BY checkpoint_id DESC, thread_id DESC LIMIT %(reach)s
), candidates AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, max(checkpoint_id) AS checkpoint_id FROM recent GROUP BY thread_id, checkpoint_ns
)
-- include: candidate_heads
, page AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata FROM heads
    ORDER BY checkpoint_id DESC, thread_id DESC LIMIT %(limit)s
)
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata FROM (
    SELECT 0 AS last, * FROM page
    UNION ALL
    SELECT 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM recent HAVING count(*) = %(reach)s
) AS found
ORDER BY last, checkpoint_id DESC, thread_id DESC

-- fragment: heads_count
-- differs: not MATERIALIZED, so that each server counts its own heads.
, decided AS NOT MATERIALIZED (
    SELECT heads.*, NOT EXISTS (
        SELECT FROM jsonb_to_recordset(%(filter)s::jsonb) AS f (key text) WHERE
        -- include: value_is_unknown
    ) AS is_decided
    FROM heads
)
SELECT * FROM (
    SELECT count(*), NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea FROM decided WHERE is_decided
) AS counted
UNION ALL
SELECT NULL, thread_id, checkpoint_ns, checkpoint_id, metadata_type, metadata FROM decided WHERE NOT is_decided

-- name: threads_with_label
-- differs: a join, and no lateral subquery.
SELECT l.thread_id
FROM unnest(%(bottoms)s::text[], %(tops)s::text[]) AS r (bottom, top)
JOIN langgraph_checkpoint.labels l ON l.thread_id >= r.bottom COLLATE "C" AND l.thread_id < r.top COLLATE "C"
WHERE l.name = %(name)s AND l.thread_id > %(thread_id)s
ORDER BY l.thread_id LIMIT %(limit)s

-- name: select_interrupts
-- differs: as thread_heads, but it reads the index of interrupts only.
WITH found AS MATERIALIZED (
    SELECT thread_id, top, row_number() OVER (PARTITION BY top ORDER BY thread_id) AS number FROM (
        SELECT * FROM (
            SELECT DISTINCT w.thread_id, (%(tops)s::text[])[1] AS top FROM langgraph_checkpoint.writes w
            WHERE w.channel = '__interrupt__'
            AND w.thread_id >= (%(bottoms)s::text[])[1] AND w.thread_id < (%(tops)s::text[])[1]
            ORDER BY w.thread_id LIMIT %(limit)s
        ) AS first_range
        UNION ALL
        SELECT * FROM (
            SELECT DISTINCT w.thread_id, (%(tops)s::text[])[2] AS top FROM langgraph_checkpoint.writes w
            WHERE w.channel = '__interrupt__'
            AND w.thread_id >= (%(bottoms)s::text[])[2] AND w.thread_id < (%(tops)s::text[])[2]
            ORDER BY w.thread_id LIMIT %(limit)s
        ) AS second_range
    ) AS t
), newest AS MATERIALIZED (
    SELECT c.thread_id, max(c.checkpoint_id) AS checkpoint_id
    FROM langgraph_checkpoint.checkpoints c JOIN found f ON f.thread_id = c.thread_id
    WHERE c.checkpoint_ns = '' AND NOT c.hidden GROUP BY c.thread_id
), written AS MATERIALIZED (
    SELECT w.thread_id, w.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type,
        CASE WHEN w.channel = '__interrupt__' THEN w.value END AS value
    FROM langgraph_checkpoint.writes w
    JOIN newest n ON n.thread_id = w.thread_id AND n.checkpoint_id = w.checkpoint_id
    WHERE w.checkpoint_ns = ''
), asking AS MATERIALIZED (
    SELECT DISTINCT thread_id, checkpoint_id FROM written WHERE channel = '__interrupt__'
)
SELECT
    'checkpoint' AS kind, c.thread_id, c.checkpoint_id, NULL AS channel, NULL AS task_id, NULL AS task_path,
    NULL::integer AS idx, c.checkpoint_type AS type, c.checkpoint AS value
FROM asking a
JOIN langgraph_checkpoint.checkpoints c ON c.thread_id = a.thread_id AND c.checkpoint_id = a.checkpoint_id
WHERE c.checkpoint_ns = ''
UNION ALL
SELECT 'write', w.* FROM written w JOIN asking USING (thread_id, checkpoint_id)
UNION ALL
SELECT 'more', thread_id, top, NULL, NULL, NULL, NULL, NULL, NULL FROM found WHERE number = %(limit)s
