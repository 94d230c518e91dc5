-- The threads to whose newest checkpoint a task has written an error or an interrupt. Whether that is over, Python decides.
-- A statement reads those of `threads` threads at most; a row without a namespace says where to go on.
-- The channel stands in each of the two, since only a literal lets the planner use the partial index of that channel.

-- fragment: written_to_the_newest
AND w.thread_id >= %(bottom)s AND w.thread_id <= (SELECT thread_id FROM last) AND w.checkpoint_id = (
    SELECT n.checkpoint_id FROM langgraph_checkpoint.checkpoints n
    WHERE n.thread_id = w.thread_id AND n.checkpoint_ns = w.checkpoint_ns AND NOT n.hidden
    ORDER BY n.checkpoint_id DESC LIMIT 1
)

-- fragment: page_of_marked
-- include: page_of_candidates
UNION ALL
SELECT thread_id, NULL, NULL, NULL, NULL, NULL, NULL FROM last WHERE number = %(threads)s

-- name: threads_failed
WITH last AS MATERIALIZED (
    SELECT max(thread_id) AS thread_id, count(*) AS number FROM (
        SELECT DISTINCT thread_id FROM langgraph_checkpoint.writes
        WHERE channel = '__error__' AND thread_id >= %(bottom)s AND thread_id < %(top)s
        ORDER BY thread_id LIMIT %(threads)s
    ) AS some_threads
), candidates AS MATERIALIZED (
    SELECT DISTINCT w.thread_id FROM langgraph_checkpoint.writes w
    WHERE w.channel = '__error__'
    -- include: written_to_the_newest
)
-- include: page_of_marked

-- name: threads_waiting
WITH last AS MATERIALIZED (
    SELECT max(thread_id) AS thread_id, count(*) AS number FROM (
        SELECT DISTINCT thread_id FROM langgraph_checkpoint.writes
        WHERE channel = '__interrupt__' AND thread_id >= %(bottom)s AND thread_id < %(top)s
        ORDER BY thread_id LIMIT %(threads)s
    ) AS some_threads
), candidates AS MATERIALIZED (
    SELECT DISTINCT w.thread_id FROM langgraph_checkpoint.writes w
    WHERE w.channel = '__interrupt__'
    -- include: written_to_the_newest
)
-- include: page_of_marked
