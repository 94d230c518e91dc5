-- Labels.

-- name: label_checkpoint
-- The update changes nothing. On PostgreSQL, it waits for a transaction that deletes the label; after that, the name is
-- free. A row has the checkpoint with the name, which may be another one; no row if the one that was to get it does not
-- exist.
INSERT INTO langgraph_checkpoint.labels (thread_id, name, checkpoint_ns, checkpoint_id)
SELECT c.thread_id, %(name)s, c.checkpoint_ns, c.checkpoint_id FROM langgraph_checkpoint.checkpoints c
WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = %(checkpoint_ns)s AND NOT c.hidden
AND c.checkpoint_id = coalesce(%(checkpoint_id)s, (
    -- include: newest_of_namespace
))
ON CONFLICT (thread_id, name) DO UPDATE SET name = excluded.name
RETURNING checkpoint_ns, checkpoint_id

-- name: move_labels
UPDATE langgraph_checkpoint.labels SET checkpoint_id = %(new_id)s
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s

-- name: delete_label
DELETE FROM langgraph_checkpoint.labels WHERE thread_id = %(thread_id)s AND name = %(name)s
RETURNING name

-- name: select_labels
SELECT name, checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.labels
WHERE thread_id = %(thread_id)s ORDER BY name
