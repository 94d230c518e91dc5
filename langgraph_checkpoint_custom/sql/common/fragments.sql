-- What statements of several files include.

-- fragment: newest_of_namespace
SELECT n.checkpoint_id FROM langgraph_checkpoint.checkpoints n
WHERE n.thread_id = %(thread_id)s AND n.checkpoint_ns = %(checkpoint_ns)s AND NOT n.hidden
ORDER BY n.checkpoint_id DESC LIMIT 1
