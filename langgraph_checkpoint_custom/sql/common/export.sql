-- Export and import, row by row.

-- name: select_checkpoint_ids
SELECT c.checkpoint_ns, c.checkpoint_id, count(w.idx), count(w.idx) FILTER (WHERE w.idx < 0)
FROM langgraph_checkpoint.checkpoints c
LEFT JOIN langgraph_checkpoint.writes w
    ON w.thread_id = %(thread_id)s AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id
WHERE c.thread_id = %(thread_id)s
GROUP BY c.checkpoint_ns, c.checkpoint_id

-- What was moved from or to another store.

-- name: select_move
SELECT checkpoints FROM langgraph_checkpoint.moves WHERE store = %(store)s AND thread_id = %(thread_id)s

-- name: select_moves
SELECT thread_id FROM langgraph_checkpoint.moves
WHERE store = %(store)s AND thread_id >= %(bottom)s AND thread_id < %(top)s
ORDER BY thread_id LIMIT %(limit)s

-- name: store_move
INSERT INTO langgraph_checkpoint.moves (store, thread_id, checkpoints)
VALUES (%(store)s, %(thread_id)s, %(checkpoints)b)
ON CONFLICT (store, thread_id) DO UPDATE SET checkpoints = excluded.checkpoints

-- name: forget_moves
DELETE FROM langgraph_checkpoint.moves
WHERE store = %(store)s AND thread_id >= %(bottom)s AND thread_id < %(top)s

-- name: select_document
SELECT checkpoint_type, checkpoint FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s

-- The rows as they are stored. The export_ statements read a page of the rows of a thread, the stored_ statements a page
-- of those of all threads: the columns of the key, and then the others, as in `operations/rows.py`. The import_ statements
-- store such a row, unless a row with its key exists.

-- fragment: all_of_checkpoints
SELECT
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden,
    inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata, CAST(metadata_filter AS text)
FROM langgraph_checkpoint.checkpoints

-- fragment: all_of_blobs
SELECT thread_id, checkpoint_ns, channel, version, type, value, chunks FROM langgraph_checkpoint.blobs

-- fragment: all_of_writes
SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
FROM langgraph_checkpoint.writes

-- name: export_checkpoints
-- include: all_of_checkpoints
WHERE thread_id = %(thread_id)s AND (checkpoint_ns, checkpoint_id) > (%(checkpoint_ns)s, %(checkpoint_id)s)
ORDER BY checkpoint_ns, checkpoint_id LIMIT %(limit)s

-- name: export_blobs
-- include: all_of_blobs
WHERE thread_id = %(thread_id)s AND (checkpoint_ns, channel, version) > (%(checkpoint_ns)s, %(channel)s, %(version)s)
ORDER BY checkpoint_ns, channel, version LIMIT %(limit)s

-- name: export_writes
-- include: all_of_writes
WHERE thread_id = %(thread_id)s
AND (checkpoint_ns, checkpoint_id, task_id, idx) > (%(checkpoint_ns)s, %(checkpoint_id)s, %(task_id)s, %(idx)s)
ORDER BY checkpoint_ns, checkpoint_id, task_id, idx LIMIT %(limit)s

-- name: export_labels
SELECT thread_id, name, checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.labels
WHERE thread_id = %(thread_id)s AND name > %(name)s ORDER BY name LIMIT %(limit)s

-- name: stored_checkpoints
-- include: all_of_checkpoints
WHERE (thread_id, checkpoint_ns, checkpoint_id) > (%(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s)
AND thread_id < %(top)s
ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT %(limit)s

-- name: stored_blobs
-- include: all_of_blobs
WHERE (thread_id, checkpoint_ns, channel, version) > (%(thread_id)s, %(checkpoint_ns)s, %(channel)s, %(version)s)
AND thread_id < %(top)s
ORDER BY thread_id, checkpoint_ns, channel, version LIMIT %(limit)s

-- name: stored_writes
-- include: all_of_writes
WHERE (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
    > (%(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s, %(task_id)s, %(idx)s)
AND thread_id < %(top)s
ORDER BY thread_id, checkpoint_ns, checkpoint_id, task_id, idx LIMIT %(limit)s

-- name: stored_labels
SELECT thread_id, name, checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.labels
WHERE (thread_id, name) > (%(thread_id)s, %(name)s) AND thread_id < %(top)s
ORDER BY thread_id, name LIMIT %(limit)s

-- name: import_blobs
INSERT INTO langgraph_checkpoint.blobs (
    thread_id, checkpoint_ns, channel, version, type, value, chunks
)
VALUES (
    %(thread_id)s, %(checkpoint_ns)s, %(channel)s, %(version)s, %(type)s, %(value)b, %(chunks)s
)
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: import_writes
INSERT INTO langgraph_checkpoint.writes (
    thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
)
VALUES (
    %(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s, %(task_id)s, %(idx)s, %(task_path)s, %(run_id)s,
    %(channel)s, %(type)s, %(value)b
)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO NOTHING

-- name: import_labels
INSERT INTO langgraph_checkpoint.labels (thread_id, name, checkpoint_ns, checkpoint_id)
VALUES (%(thread_id)s, %(name)s, %(checkpoint_ns)s, %(checkpoint_id)s)
ON CONFLICT (thread_id, name) DO NOTHING
