-- Lists of threads, labels and interrupts.
--
-- Each server finds the newest checkpoints of its threads, by joins and groups by thread.

-- fragment: candidates_by_id
-- differs: it cannot go from thread to thread. So it reads index entries of all checkpoints of these threads.
WITH candidates AS MATERIALIZED (
    SELECT thread_id, row_number() OVER (ORDER BY thread_id) AS number FROM (
        SELECT DISTINCT thread_id FROM langgraph_checkpoint.checkpoints WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
        ORDER BY thread_id LIMIT %(threads)s
    ) AS t
)

-- fragment: page_of_candidates
-- differs: joins by thread. Of the candidates, it reads index entries of all checkpoints.
, tops AS MATERIALIZED (
    SELECT c.thread_id, c.checkpoint_ns, max(c.checkpoint_id) AS checkpoint_id
    FROM langgraph_checkpoint.checkpoints c JOIN candidates r ON r.thread_id = c.thread_id
    WHERE NOT c.hidden GROUP BY c.thread_id, c.checkpoint_ns
), firsts AS MATERIALIZED (
    SELECT t.* FROM tops t
    JOIN (SELECT thread_id, min(checkpoint_ns) AS checkpoint_ns FROM tops GROUP BY thread_id) AS f
        USING (thread_id, checkpoint_ns)
    WHERE (t.checkpoint_id, t.thread_id) < (%(before)s, %(thread_below)s)
)
SELECT * FROM (
    SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.run_id, c.metadata_type, c.metadata
    FROM firsts f
    JOIN langgraph_checkpoint.checkpoints c ON c.thread_id = f.thread_id AND c.checkpoint_ns = f.checkpoint_ns
        AND c.checkpoint_id = f.checkpoint_id
    WHERE true
    -- include: matches_filter
    ORDER BY c.checkpoint_id DESC, c.thread_id DESC LIMIT %(limit)s
) AS page

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
