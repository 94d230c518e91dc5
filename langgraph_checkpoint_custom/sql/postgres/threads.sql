-- Lists of threads, runs, labels and interrupts.

-- Threads, without values. A thread's newest checkpoint is that of its first namespace, which is the root graph's if
-- there is one. Each statement has candidates, which are threads, and a page of the newest checkpoints of those that
-- match. If there may be more candidates, there is a row without a namespace, which says where to go on.

-- fragment: page_of_candidates
SELECT * FROM (
    SELECT h.thread_id, h.checkpoint_ns, h.checkpoint_id, h.parent_id, h.run_id, h.metadata_type, h.metadata
    FROM candidates r
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = r.thread_id AND NOT c.hidden
        AND c.checkpoint_ns = (SELECT min(n.checkpoint_ns) FROM langgraph_checkpoint.checkpoints n WHERE n.thread_id = r.thread_id)
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) AS h
    WHERE (h.checkpoint_id, h.thread_id) < (%(before)s, %(thread_below)s)
    -- include: matches_filter
    ORDER BY h.checkpoint_id DESC, h.thread_id DESC LIMIT %(limit)s
) AS page

-- name: threads_newest
-- The candidates are the threads of the `reach` newest checkpoints.
WITH recent AS MATERIALIZED (
    SELECT thread_id, checkpoint_id FROM langgraph_checkpoint.checkpoints
    WHERE tenant = %(tenant)s AND checkpoint_id <= %(before)s AND NOT hidden
    AND (checkpoint_id, thread_id) < (%(before)s, %(thread_below)s)
    ORDER BY checkpoint_id DESC, thread_id DESC LIMIT %(reach)s
), candidates AS MATERIALIZED (
    SELECT DISTINCT thread_id FROM recent
)
-- include: page_of_candidates
UNION ALL
SELECT * FROM (
    SELECT thread_id, NULL, checkpoint_id, NULL, NULL, NULL, NULL::bytea FROM recent
    ORDER BY checkpoint_id DESC, thread_id DESC LIMIT 1 OFFSET %(reach)s - 1
) AS last

-- fragment: candidates_by_id
-- Steps from thread to thread by id, `threads` times at most.
WITH RECURSIVE candidates (thread_id, number) AS MATERIALIZED (
    SELECT min(thread_id), 1 FROM langgraph_checkpoint.checkpoints WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
    UNION ALL
    SELECT (
        SELECT min(c.thread_id) FROM langgraph_checkpoint.checkpoints c WHERE c.thread_id > r.thread_id AND c.thread_id < %(top)s
    ), r.number + 1
    FROM candidates r WHERE r.thread_id IS NOT NULL AND r.number < %(threads)s
)

-- name: threads_by_id
-- include: candidates_by_id
-- include: page_of_candidates
UNION ALL
SELECT thread_id, NULL, NULL, NULL, NULL, NULL, NULL FROM candidates WHERE number = %(threads)s AND thread_id IS NOT NULL

-- name: threads_counted
-- The number of threads, and the last one.
-- include: candidates_by_id
SELECT count(thread_id), max(thread_id) FROM candidates

-- name: threads_searched
-- The candidates are the threads that an index finds by a metadata key of any of their checkpoints.
WITH candidates AS MATERIALIZED (
    SELECT DISTINCT thread_id FROM langgraph_checkpoint.searched_key
    WHERE tenant = %(tenant)s AND shown = ANY (%(shown)s::text[]) AND NOT hidden
)
-- include: page_of_candidates

-- name: thread_exists
SELECT 1 FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s ORDER BY checkpoint_ns LIMIT 1

-- name: select_runs
-- The runs of the root graph, each with what the row of its last checkpoint says.
-- differs: a plain join may be planned as a scan of the complete table.
SELECT r.run_id, r.first_id, r.last_id, r.checkpoints, c.format, c.inline_channels, c.blob_channels
FROM (
    SELECT run_id, min(checkpoint_id) AS first_id, max(checkpoint_id) AS last_id, count(*) AS checkpoints
    FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = '' AND NOT hidden
    GROUP BY run_id
) AS r
CROSS JOIN LATERAL (
    SELECT * FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = '' AND c.checkpoint_id = r.last_id
    LIMIT 1
) AS c

-- name: select_interrupts
-- Steps from thread to thread among those with a stored interrupt, `limit` threads in each range; `more` says where to
-- go on. For each thread: the newest checkpoint of the root graph, if it has an interrupt, and its writes. Only
-- interrupts come with their values.
WITH RECURSIVE found (thread_id, top, number) AS (
    SELECT n.thread_id, r.top COLLATE "C", 1
    FROM unnest(%(bottoms)s::text[], %(tops)s::text[]) AS r (bottom, top)
    CROSS JOIN LATERAL (
        SELECT w.thread_id FROM langgraph_checkpoint.writes w
        WHERE w.channel = '__interrupt__'
        AND w.thread_id >= r.bottom COLLATE "C" AND w.thread_id < r.top COLLATE "C"
        ORDER BY w.thread_id LIMIT 1
    ) AS n
    UNION ALL
    SELECT n.thread_id, f.top, f.number + 1
    FROM found f
    CROSS JOIN LATERAL (
        SELECT w.thread_id FROM langgraph_checkpoint.writes w
        WHERE w.channel = '__interrupt__' AND w.thread_id > f.thread_id AND w.thread_id < f.top
        ORDER BY w.thread_id LIMIT 1
    ) AS n
    WHERE f.number < %(limit)s
), heads AS MATERIALIZED (
    SELECT f.thread_id, c.checkpoint_id, c.checkpoint_type, c.checkpoint
    FROM found f
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = f.thread_id AND c.checkpoint_ns = '' AND NOT c.hidden
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) AS c
    WHERE EXISTS (
        SELECT FROM langgraph_checkpoint.writes w
        WHERE w.thread_id = f.thread_id AND w.checkpoint_ns = '' AND w.checkpoint_id = c.checkpoint_id
        AND w.channel || '' = '__interrupt__'
        OFFSET 0
    )
)
SELECT
    'checkpoint' AS kind, thread_id, checkpoint_id, NULL AS channel, NULL AS task_id, NULL AS task_path,
    NULL::integer AS idx, checkpoint_type AS type, checkpoint AS value
FROM heads
UNION ALL
SELECT
    'write', h.thread_id, h.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type,
    CASE w.channel WHEN '__interrupt__' THEN w.value END
FROM heads h
CROSS JOIN LATERAL (
    SELECT * FROM langgraph_checkpoint.writes w
    WHERE w.thread_id = h.thread_id AND w.checkpoint_ns = '' AND w.checkpoint_id = h.checkpoint_id
    OFFSET 0
) AS w
UNION ALL
SELECT 'more', thread_id, top, NULL, NULL, NULL, NULL, NULL, NULL FROM found WHERE number = %(limit)s
