-- Lists of threads, runs and interrupts.

-- Threads, without values. A thread's newest checkpoint is that of its first namespace, which is the root graph's if
-- there is one. Each statement has candidates, which are threads, and a page of the newest checkpoints of those that
-- match. If there may be more candidates, there is a row without a namespace, which says where to go on.

-- name: threads_newest
-- The candidates are the threads of the `reach` newest checkpoints.
WITH recent AS MATERIALIZED (
    SELECT thread_id, checkpoint_id FROM langgraph_checkpoint.checkpoints
    WHERE
    -- include: of_tenant
    AND checkpoint_id <= %(before)s AND NOT hidden
    AND (checkpoint_id, thread_id) < (%(before)s, %(thread_below)s)
    ORDER BY checkpoint_id DESC, thread_id DESC LIMIT %(reach)s
), candidates AS MATERIALIZED (
    SELECT DISTINCT thread_id FROM recent
)
-- include: page_of_candidates
UNION ALL
SELECT * FROM (
    SELECT thread_id, NULL, checkpoint_id, NULL, NULL, NULL, CAST(NULL AS bytea) FROM recent
    ORDER BY checkpoint_id DESC, thread_id DESC LIMIT 1 OFFSET %(reach)s - 1
) AS last

-- fragment: candidates_by_id
-- Steps from thread to thread by id, `threads` times at most.
WITH RECURSIVE candidates (thread_id, number) AS MATERIALIZED (
    SELECT min(thread_id), 1 FROM langgraph_checkpoint.checkpoints WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
    UNION ALL
    SELECT (
        SELECT min(c.thread_id) FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id > r.thread_id AND c.thread_id < %(top)s
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

-- name: newest_of_thread
SELECT n.checkpoint_ns, n.checkpoint_id FROM langgraph_checkpoint.checkpoints n
WHERE n.thread_id = %(thread_id)s AND n.checkpoint_ns = (
    SELECT min(checkpoint_ns) FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s
) AND NOT n.hidden
ORDER BY n.checkpoint_id DESC LIMIT 1

-- name: select_interrupting
-- The threads of a range that have a stored interrupt.
SELECT DISTINCT thread_id FROM langgraph_checkpoint.writes
WHERE channel = '__interrupt__' AND thread_id >= %(bottom)s AND thread_id < %(top)s
ORDER BY thread_id LIMIT %(limit)s

-- name: select_asking
-- The newest checkpoint of the root graph, if it has a stored interrupt.
SELECT DISTINCT checkpoint_id FROM langgraph_checkpoint.writes
WHERE thread_id = %(thread_id)s AND checkpoint_ns = '' AND channel = '__interrupt__' AND checkpoint_id = (
    SELECT checkpoint_id FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = '' AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
)

-- name: select_questions
-- The writes to a checkpoint. Only interrupts and answers come with their values.
SELECT
    checkpoint_id, channel, task_id, task_path, idx, type,
    CASE WHEN channel IN ('__interrupt__', '__resume__') THEN value END
FROM langgraph_checkpoint.writes
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s
