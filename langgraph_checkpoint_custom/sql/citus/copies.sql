-- Copies and forks of threads, whose rows may move from one server to another.

-- name: select_not_in_source
-- differs: the rows of each thread are read by a statement of its own, and then compared.
SELECT o.checkpoint_id FROM (
    SELECT checkpoint_ns, checkpoint_id, parent_id, hidden FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(target)s
    EXCEPT
    SELECT checkpoint_ns, checkpoint_id, parent_id, hidden FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s
) AS o
UNION ALL
SELECT o.checkpoint_id FROM (
    SELECT checkpoint_ns, checkpoint_id, task_id, idx, type, value FROM langgraph_checkpoint.writes
    WHERE thread_id = %(target)s
    EXCEPT
    SELECT checkpoint_ns, checkpoint_id, task_id, idx, type, value FROM langgraph_checkpoint.writes
    WHERE thread_id = %(thread_id)s
) AS o
LIMIT 1
