-- What the inspector lists.

-- name: threads_with_label
-- Reads the labels of all threads: there are few, and no index finds them by name.
SELECT thread_id FROM langgraph_checkpoint.labels
WHERE thread_id >= %(bottom)s AND thread_id < %(top)s AND thread_id > %(thread_id)s AND name = %(name)s
ORDER BY thread_id LIMIT %(limit)s

-- name: label_names
-- Of the first `reach` labels only: it is asked while somebody types.
SELECT DISTINCT name FROM (
    SELECT name FROM langgraph_checkpoint.labels
    WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
    ORDER BY thread_id LIMIT %(reach)s
) AS first_ones
ORDER BY name LIMIT %(limit)s

-- The lengths of what a checkpoint consists of. Values are not read.

-- name: sizes_of_checkpoint
-- A checkpoint and its parent, with the values that these name.
SELECT checkpoint_id, parent_id, run_id, checkpoint_type, length(checkpoint), length(metadata), hidden,
    -- include: lists_as_json
FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id IN (%(checkpoint_id)s, (
    SELECT c.parent_id FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = %(checkpoint_ns)s AND c.checkpoint_id = %(checkpoint_id)s
))

-- name: sizes_of_writes
SELECT task_id, task_path, idx, channel, type, length(value), run_id FROM langgraph_checkpoint.writes
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s
