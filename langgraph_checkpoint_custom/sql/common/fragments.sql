-- What statements of several files include.

-- fragment: newest_of_namespace
SELECT n.checkpoint_id FROM langgraph_checkpoint.checkpoints n
WHERE n.thread_id = %(thread_id)s AND n.checkpoint_ns = %(checkpoint_ns)s AND NOT n.hidden
ORDER BY n.checkpoint_id DESC LIMIT 1

-- fragment: target_newest
-- The newest visible root checkpoint of a thread; one row of nulls if it has other checkpoints only, no row if none.
FROM (
    SELECT 1 FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(target)s ORDER BY checkpoint_ns LIMIT 1
) AS t
LEFT JOIN (
    SELECT * FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(target)s AND checkpoint_ns = '' AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
) AS n ON true
