-- What the inspector lists.

-- name: threads_with_label
-- Reads the labels of all threads: there are few, and no index finds them by name.
SELECT thread_id FROM langgraph_checkpoint.labels
WHERE thread_id >= %(bottom)s AND thread_id < %(top)s AND thread_id > %(thread_id)s AND name = %(name)s
ORDER BY thread_id LIMIT %(limit)s

-- name: label_names
SELECT DISTINCT name FROM langgraph_checkpoint.labels
WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
ORDER BY name LIMIT %(limit)s
