-- Deleting and pruning: threads, runs, checkpoints. `model/outline.py` decides what is deleted; the statements here
-- read what it decides by, and change rows by their keys. A row that is stored meanwhile, without the thread's lock, has
-- none of these keys.

-- name: select_outline
-- The cells of each `OutlineRow`.
SELECT checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden,
    -- include: lists_as_json
FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s LIMIT %(limit)s

-- name: select_sends
-- The checkpoints whose writes have sends.
SELECT DISTINCT checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.writes
WHERE thread_id = %(thread_id)s AND channel = '__pregel_tasks'

-- name: select_written
-- The checkpoints to which the runs wrote.
SELECT DISTINCT checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.writes
WHERE thread_id = %(thread_id)s AND
-- include: by_runs

-- name: hide_checkpoints
UPDATE langgraph_checkpoint.checkpoints SET hidden = true
-- include: of_checkpoints

-- name: cut_parents
UPDATE langgraph_checkpoint.checkpoints SET parent_id = NULL
-- include: of_checkpoints

-- name: delete_checkpoints
DELETE FROM langgraph_checkpoint.checkpoints
-- include: of_checkpoints

-- name: delete_blobs
DELETE FROM langgraph_checkpoint.blobs
-- include: of_blobs

-- name: delete_writes
DELETE FROM langgraph_checkpoint.writes
-- include: of_checkpoints

-- name: delete_writes_but
-- The writes to a checkpoint, of these runs or of all, except those to the channels in `kept`.
DELETE FROM langgraph_checkpoint.writes
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s AND
-- include: not_kept
AND
-- include: by_runs

-- name: delete_early_writes
-- Writes after an id whose checkpoint does not exist.
DELETE FROM langgraph_checkpoint.writes AS w
WHERE w.thread_id = %(thread_id)s AND w.checkpoint_id > %(checkpoint_id)s AND NOT EXISTS (
    SELECT 1 FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
)
