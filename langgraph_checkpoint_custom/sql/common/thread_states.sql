-- The threads to whose newest checkpoint a task has written an error or an interrupt. Whether that is over, Python decides.

-- fragment: written_to_the_newest
AND w.thread_id >= %(bottom)s AND w.thread_id < %(top)s AND w.checkpoint_id = (
    SELECT n.checkpoint_id FROM langgraph_checkpoint.checkpoints n
    WHERE n.thread_id = w.thread_id AND n.checkpoint_ns = w.checkpoint_ns AND NOT n.hidden
    ORDER BY n.checkpoint_id DESC LIMIT 1
)

-- name: threads_failed
WITH candidates AS MATERIALIZED (
    SELECT DISTINCT w.thread_id FROM langgraph_checkpoint.writes w
    WHERE w.channel = '__error__'
    -- include: written_to_the_newest
)
-- include: page_of_candidates

-- name: threads_waiting
WITH candidates AS MATERIALIZED (
    SELECT DISTINCT w.thread_id FROM langgraph_checkpoint.writes w
    WHERE w.channel = '__interrupt__'
    -- include: written_to_the_newest
)
-- include: page_of_candidates
