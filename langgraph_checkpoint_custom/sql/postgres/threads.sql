-- Lists of threads, runs, labels and interrupts.

-- Threads and their runs, without values. A thread's newest checkpoint is that of its first namespace, which is the
-- root graph's if there is one.

-- fragment: newest_of_thread
-- Whether the checkpoint `r` is the newest one of its thread.
r.checkpoint_id = (
    SELECT max(n.checkpoint_id) FROM langgraph_checkpoint.checkpoints n
    WHERE n.thread_id = r.thread_id AND n.checkpoint_ns = r.checkpoint_ns AND NOT n.hidden
)
AND r.checkpoint_ns = (
    SELECT min(n.checkpoint_ns) FROM langgraph_checkpoint.checkpoints n WHERE n.thread_id = r.thread_id
)

-- name: threads_newest
-- Walks down from the newest checkpoint of all threads and skips those that are not the newest of their thread. It
-- reads `reach` checkpoints at most. The order of the inner query is kept; with one order for both, many more rows
-- would be read for the last few of a page.
SELECT r.* FROM (
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata
    FROM langgraph_checkpoint.checkpoints
    WHERE tenant = %(tenant)s AND checkpoint_id <= %(before)s AND NOT hidden
    AND (checkpoint_id, thread_id) < (%(before)s, %(thread_below)s)
    ORDER BY checkpoint_id DESC, thread_id DESC
    LIMIT %(reach)s
) AS r
WHERE
    -- include: newest_of_thread
LIMIT %(limit)s

-- Heads are the newest checkpoints of the threads that match. thread_heads finds them among all threads,
-- candidate_heads among the candidates of a statement.

-- fragment: thread_heads
-- Steps from thread to thread by id, in ranges that contain no other tenant's threads.
WITH RECURSIVE found (thread_id, top) AS (
    SELECT n.thread_id, r.top COLLATE "C"
    FROM unnest(%(bottoms)s::text[], %(tops)s::text[]) AS r (bottom, top)
    CROSS JOIN LATERAL (
        SELECT c.thread_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id >= r.bottom COLLATE "C" AND c.thread_id < r.top COLLATE "C"
        ORDER BY c.thread_id LIMIT 1
    ) AS n
    UNION ALL
    SELECT n.thread_id, f.top
    FROM found f
    CROSS JOIN LATERAL (
        SELECT c.thread_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id > f.thread_id AND c.thread_id < f.top
        ORDER BY c.thread_id LIMIT 1
    ) AS n
), heads AS MATERIALIZED (
    SELECT h.* FROM found f
    CROSS JOIN LATERAL (
        SELECT
            c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.run_id, c.metadata_type, c.metadata,
            c.metadata_filter
        FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = f.thread_id AND NOT c.hidden AND c.checkpoint_ns = (
            SELECT n.checkpoint_ns FROM langgraph_checkpoint.checkpoints n WHERE n.thread_id = f.thread_id
            ORDER BY n.checkpoint_ns LIMIT 1
        )
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) AS h
    WHERE true
    -- include: matches_filter
)

-- fragment: searched_candidates
-- The checkpoints that an index finds by a metadata key. Only the newest one of each namespace can be a thread's
-- newest.
WITH candidates AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, max(checkpoint_id) AS checkpoint_id FROM langgraph_checkpoint.searched_key
    WHERE tenant = %(tenant)s AND shown = ANY (%(shown)s::text[]) AND NOT hidden
    GROUP BY thread_id, checkpoint_ns
)

-- fragment: candidate_heads
-- In the order of the candidates, and no more than are asked for. If this were materialized, all candidates would be
-- read before the page begins.
, heads AS NOT MATERIALIZED (
    SELECT h.* FROM candidates r
    CROSS JOIN LATERAL (
        SELECT
            c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.run_id, c.metadata_type, c.metadata,
            c.metadata_filter
        FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = r.thread_id AND c.checkpoint_ns = r.checkpoint_ns AND c.checkpoint_id = r.checkpoint_id
        LIMIT 1
    ) AS h
    WHERE
    -- include: newest_of_thread
    -- include: matches_filter
)

-- fragment: heads_page
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata FROM heads
WHERE (checkpoint_id, thread_id) < (%(before)s, %(thread_below)s)
ORDER BY checkpoint_id DESC, thread_id DESC LIMIT %(limit)s

-- fragment: heads_count
-- The number of heads that match for certain, and a row for each head for which only the metadata itself decides.
, decided AS MATERIALIZED (
    SELECT heads.*, NOT EXISTS (
        SELECT FROM jsonb_to_recordset(%(filter)s::jsonb) AS f (key text) WHERE
        -- include: value_is_unknown
    ) AS is_decided
    FROM heads
)
SELECT count(*), NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea FROM decided WHERE is_decided
UNION ALL
SELECT NULL, thread_id, checkpoint_ns, checkpoint_id, metadata_type, metadata FROM decided WHERE NOT is_decided

-- name: threads_matching
-- include: thread_heads
-- include: heads_page

-- name: threads_counted
-- include: thread_heads
-- include: heads_count

-- name: threads_recent
-- The newest checkpoints. If many threads match a filter, enough of them are found here, and not all threads have to be
-- read. Only the newest checkpoint of each namespace is a candidate, in the order of the page. So a busy thread takes a
-- thirtieth of the time that as many other threads take.
WITH recent AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.checkpoints
    WHERE tenant = %(tenant)s AND checkpoint_id <= %(before)s AND NOT hidden
    AND (checkpoint_id, thread_id) < (%(before)s, %(thread_below)s)
    ORDER BY checkpoint_id DESC, thread_id DESC LIMIT %(reach)s
), candidates AS (
    SELECT thread_id, checkpoint_ns, max(checkpoint_id) AS checkpoint_id FROM recent
    GROUP BY thread_id, checkpoint_ns
    ORDER BY 3 DESC, thread_id DESC LIMIT %(reach)s
)
-- include: candidate_heads
-- In the order of the candidates. If there may be more checkpoints, an additional row has only NULLs.
SELECT * FROM (
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata
    FROM heads LIMIT %(limit)s
) AS page
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM recent HAVING count(*) = %(reach)s

-- name: threads_searched
-- include: searched_candidates
-- include: candidate_heads
-- include: heads_page

-- name: threads_searched_counted
-- include: searched_candidates
-- include: candidate_heads
-- include: heads_count

-- name: thread_exists
SELECT 1 FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s ORDER BY checkpoint_ns LIMIT 1

-- name: select_runs
-- The checkpoints of the root graph, by run. For the last checkpoint of each run: whether its parent holds sends for
-- it, and the channels with a value, which show what is left to do. For channels of two kinds, the value decides; it
-- may be part of the document. A value in chunks is not empty.
WITH runs AS MATERIALIZED (
    SELECT run_id, min(checkpoint_id) AS first_id, max(checkpoint_id) AS last_id, count(*) AS checkpoints
    FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = '' AND NOT hidden
    GROUP BY run_id
), last AS MATERIALIZED (
    SELECT r.run_id, r.first_id, r.last_id, r.checkpoints, c.inline_channels, c.blob_channels, c.blob_versions,
        c.checkpoint_type, c.checkpoint,
        c.format < 4 AND EXISTS (
            SELECT FROM langgraph_checkpoint.writes w
            WHERE w.thread_id = %(thread_id)s AND w.checkpoint_ns = '' AND w.checkpoint_id = c.parent_id
            AND w.channel = '__pregel_tasks'
            OFFSET 0
        ) AS sends
    FROM runs r
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = '' AND c.checkpoint_id = r.last_id
        LIMIT 1
    ) AS c
)
SELECT
    last_id, run_id, first_id, checkpoints, sends, inline_channels, blob_channels,
    NULL AS channel, NULL AS version, NULL AS type, NULL::bytea AS value, NULL AS chunks
FROM last
UNION ALL
SELECT r.last_id, NULL, NULL, NULL, NULL, NULL, NULL, r.channel, r.version, b.type,
    CASE WHEN b.chunks IS NULL THEN b.value END, b.chunks
FROM (
    SELECT l.last_id, '' AS checkpoint_ns, u.channel, u.version
    FROM last l CROSS JOIN LATERAL unnest(l.blob_channels, l.blob_versions) AS u (channel, version)
    WHERE u.channel = '__pregel_tasks' OR starts_with(u.channel, 'join:')
) AS r
-- include: blob_of_reference
UNION ALL
SELECT l.last_id, NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, l.checkpoint_type, l.checkpoint, NULL
FROM last l
WHERE EXISTS (
    SELECT FROM unnest(l.inline_channels) AS u (channel)
    WHERE u.channel = '__pregel_tasks' OR starts_with(u.channel, 'join:')
)

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
