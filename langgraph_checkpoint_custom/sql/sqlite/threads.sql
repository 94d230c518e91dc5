-- Lists of threads, runs, labels and interrupts.

-- Threads and their runs, without values. A thread's newest checkpoint is that of its first namespace, which is the
-- root graph's if there is one.

-- fragment: newest_of_thread
-- Whether the checkpoint `r` is the newest one of its thread.
r.checkpoint_id = (
    SELECT max(n.checkpoint_id) FROM checkpoints n
    WHERE n.thread_id = r.thread_id AND n.checkpoint_ns = r.checkpoint_ns AND NOT n.hidden
)
AND r.checkpoint_ns = (SELECT min(n.checkpoint_ns) FROM checkpoints n WHERE n.thread_id = r.thread_id)

-- name: threads_newest
-- Walks down from the newest checkpoint of all threads and skips those that are not the newest of their thread. It
-- reads `reach` checkpoints at most. The order of the inner query is kept; with one order for both, many more rows
-- would be read for the last few of a page.
SELECT r.* FROM (
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata FROM checkpoints
    WHERE tenant = :tenant AND checkpoint_id <= :before AND NOT hidden
    AND (checkpoint_id, thread_id) < (:before, :thread_below)
    ORDER BY checkpoint_id DESC, thread_id DESC
    LIMIT :reach
) AS r
WHERE
    -- include: newest_of_thread
LIMIT :limit

-- Heads are the newest checkpoints of the threads that match. thread_heads finds them among all threads,
-- candidate_heads among the candidates of a statement.

-- fragment: thread_heads
-- Steps from thread to thread by id, in ranges that contain no other tenant's threads.
WITH RECURSIVE found (thread_id, top) AS (
    SELECT (
        SELECT c.thread_id FROM checkpoints c
        WHERE c.thread_id >= r.value AND c.thread_id < :tops ->> r.key ORDER BY c.thread_id LIMIT 1
    ), :tops ->> r.key
    FROM json_each(:bottoms) AS r
    UNION ALL
    SELECT (
        SELECT c.thread_id FROM checkpoints c
        WHERE c.thread_id > f.thread_id AND c.thread_id < f.top ORDER BY c.thread_id LIMIT 1
    ), f.top
    FROM found f WHERE f.thread_id IS NOT NULL
), heads AS MATERIALIZED (
    SELECT
        h.thread_id, h.checkpoint_ns, h.checkpoint_id, h.parent_id, h.run_id, h.metadata_type, h.metadata,
        h.metadata_filter
    FROM found f
    CROSS JOIN checkpoints h ON h.thread_id = f.thread_id AND h.checkpoint_ns = (
        SELECT n.checkpoint_ns FROM checkpoints n WHERE n.thread_id = f.thread_id ORDER BY n.checkpoint_ns LIMIT 1
    ) AND h.checkpoint_id = (
        SELECT n.checkpoint_id FROM checkpoints n
        WHERE n.thread_id = f.thread_id AND n.checkpoint_ns = h.checkpoint_ns AND NOT n.hidden
        ORDER BY n.checkpoint_id DESC LIMIT 1
    )
    WHERE likelihood(f.thread_id IS NOT NULL, 0.00001)
    -- include: matches_filter
)

-- fragment: searched_candidates
-- The checkpoints that an index finds by a metadata key. Only the newest one of each namespace can be a thread's
-- newest.
-- differs: INDEXED BY. With statistics, SQLite would otherwise read the complete table, because the index begins with
-- the tenant, which is the same in most rows.
WITH candidates AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, max(checkpoint_id) AS checkpoint_id FROM checkpoints INDEXED BY searchable_key
    WHERE tenant = :tenant AND
    -- include: searchable_value
    IN (SELECT value FROM json_each(:shown)) AND NOT hidden
    GROUP BY thread_id, checkpoint_ns
)

-- fragment: candidate_heads
-- In the order of the candidates, and no more than are asked for. If this were materialized, all candidates would be
-- read before the page begins.
, heads AS NOT MATERIALIZED (
    SELECT
        h.thread_id, h.checkpoint_ns, h.checkpoint_id, h.parent_id, h.run_id, h.metadata_type, h.metadata,
        h.metadata_filter
    FROM candidates r
    CROSS JOIN checkpoints h ON h.thread_id = r.thread_id AND h.checkpoint_ns = r.checkpoint_ns
        AND h.checkpoint_id = r.checkpoint_id
    WHERE
    -- include: newest_of_thread
    -- include: matches_filter
)

-- fragment: heads_page
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata FROM heads
WHERE (checkpoint_id, thread_id) < (:before, :thread_below)
ORDER BY checkpoint_id DESC, thread_id DESC LIMIT :limit

-- fragment: heads_count
-- The number of heads that match for certain, and a row for each head for which only the metadata itself decides.
, decided AS MATERIALIZED (
    SELECT *, NOT EXISTS (
        SELECT 1 FROM json_each(:filter) AS f LEFT JOIN json_each(metadata_filter) AS m ON m.key = f.value ->> 'key'
        WHERE
        -- include: value_is_unknown
    ) AS is_decided
    FROM heads
)
SELECT count(*), NULL, NULL, NULL, NULL, NULL FROM decided WHERE is_decided
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
-- differs: the second LIMIT removes nothing. Without it, SQLite may ignore the order of the subquery.
WITH recent AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints
    WHERE tenant = :tenant AND checkpoint_id <= :before AND NOT hidden
    AND (checkpoint_id, thread_id) < (:before, :thread_below)
    ORDER BY checkpoint_id DESC, thread_id DESC LIMIT :reach
), candidates AS (
    SELECT thread_id, checkpoint_ns, max(checkpoint_id) AS checkpoint_id FROM recent
    GROUP BY thread_id, checkpoint_ns
    ORDER BY 3 DESC, thread_id DESC LIMIT :reach
)
-- include: candidate_heads
-- In the order of the candidates. If there may be more checkpoints, an additional row has only NULLs.
SELECT * FROM (
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata FROM heads LIMIT :limit
)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE (SELECT count(*) FROM recent) = :reach

-- name: threads_searched
-- include: searched_candidates
-- include: candidate_heads
-- include: heads_page

-- name: threads_searched_counted
-- include: searched_candidates
-- include: candidate_heads
-- include: heads_count

-- name: thread_exists
SELECT 1 FROM checkpoints WHERE thread_id = :thread_id ORDER BY checkpoint_ns LIMIT 1

-- name: select_runs
-- The checkpoints of the root graph, by run. For the last checkpoint of each run: whether its parent holds sends for
-- it, and the channels with a value, which show what is left to do. For channels of two kinds, the value decides; it
-- may be part of the document. A value in chunks is not empty.
WITH runs AS MATERIALIZED (
    SELECT run_id, min(checkpoint_id) AS first_id, max(checkpoint_id) AS last_id, count(*) AS checkpoints
    FROM checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = '' AND NOT hidden
    GROUP BY run_id
)
SELECT
    r.last_id, r.run_id, r.first_id, r.checkpoints, c.format < 4 AND EXISTS (
        SELECT 1 FROM writes w
        WHERE w.thread_id = :thread_id AND w.checkpoint_ns = '' AND w.checkpoint_id = c.parent_id
        AND w.channel = '__pregel_tasks'
    ), c.inline_channels, c.blob_channels, NULL AS channel, NULL AS version, NULL AS type, NULL AS value, NULL AS chunks
FROM runs r
CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = '' AND c.checkpoint_id = r.last_id
WHERE likelihood(r.last_id IS NOT NULL, 0.00001)
UNION ALL
SELECT
    r.last_id, NULL, NULL, NULL, NULL, NULL, NULL, n.value, b.version, b.type,
    CASE WHEN b.chunks IS NULL THEN b.value END, b.chunks
FROM runs r
CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = '' AND c.checkpoint_id = r.last_id
CROSS JOIN json_each(c.blob_channels) AS n ON n.value = '__pregel_tasks' OR substr(n.value, 1, 5) = 'join:'
CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = '' AND b.channel = n.value
    AND b.version = c.blob_versions ->> n.key
WHERE likelihood(r.last_id IS NOT NULL, 0.00001)
UNION ALL
SELECT r.last_id, NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, c.checkpoint_type, c.checkpoint, NULL
FROM runs r
CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = '' AND c.checkpoint_id = r.last_id
WHERE likelihood(r.last_id IS NOT NULL, 0.00001) AND EXISTS (
    SELECT 1 FROM json_each(c.inline_channels) AS n WHERE n.value = '__pregel_tasks' OR substr(n.value, 1, 5) = 'join:'
)

-- name: select_interrupts
-- Steps from thread to thread among those with a stored interrupt, `limit` threads in each range; `more` says where to
-- go on. For each thread: the newest checkpoint of the root graph, if it has an interrupt, and its writes. Only
-- interrupts come with their values.
WITH RECURSIVE found (thread_id, top, number) AS (
    SELECT (
        SELECT w.thread_id FROM writes w
        WHERE w.channel = '__interrupt__' AND w.thread_id >= r.value AND w.thread_id < :tops ->> r.key
        ORDER BY w.thread_id LIMIT 1
    ), :tops ->> r.key, 1
    FROM json_each(:bottoms) AS r
    UNION ALL
    SELECT (
        SELECT w.thread_id FROM writes w
        WHERE w.channel = '__interrupt__' AND w.thread_id > f.thread_id AND w.thread_id < f.top
        ORDER BY w.thread_id LIMIT 1
    ), f.top, f.number + 1
    FROM found f WHERE f.thread_id IS NOT NULL AND f.number < :limit
), heads AS MATERIALIZED (
    SELECT c.thread_id, c.checkpoint_id, c.checkpoint_type, c.checkpoint
    FROM found f
    CROSS JOIN checkpoints c ON c.thread_id = f.thread_id AND c.checkpoint_ns = '' AND c.checkpoint_id = (
        SELECT n.checkpoint_id FROM checkpoints n
        WHERE n.thread_id = f.thread_id AND n.checkpoint_ns = '' AND NOT n.hidden
        ORDER BY n.checkpoint_id DESC LIMIT 1
    )
    WHERE likelihood(f.thread_id IS NOT NULL, 0.00001) AND EXISTS (
        SELECT 1 FROM writes w
        WHERE w.thread_id = c.thread_id AND w.checkpoint_ns = '' AND w.checkpoint_id = c.checkpoint_id
        AND +w.channel = '__interrupt__'
    )
)
SELECT
    'checkpoint' AS kind, thread_id, checkpoint_id, NULL AS channel, NULL AS task_id, NULL AS task_path, NULL AS idx,
    checkpoint_type AS type, checkpoint AS value
FROM heads
UNION ALL
SELECT
    'write', w.thread_id, w.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type,
    CASE w.channel WHEN '__interrupt__' THEN w.value END
FROM heads h
CROSS JOIN writes w ON w.thread_id = h.thread_id AND w.checkpoint_ns = '' AND w.checkpoint_id = h.checkpoint_id
WHERE likelihood(h.checkpoint_id IS NOT NULL, 0.00001)
UNION ALL
SELECT 'more', thread_id, top, NULL, NULL, NULL, NULL, NULL, NULL
FROM found WHERE number = :limit AND thread_id IS NOT NULL
