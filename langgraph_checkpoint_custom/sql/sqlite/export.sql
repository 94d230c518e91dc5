-- Export and import, row by row.

-- name: select_checkpoint_ids
SELECT c.checkpoint_ns, c.checkpoint_id, (
    SELECT count(*) FROM writes w
    WHERE w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id
)
FROM checkpoints c WHERE c.thread_id = :thread_id

-- name: select_visible_checkpoints
-- What a sweep reads first: the namespace and id of each checkpoint that is not hidden, and whether it has a label.
SELECT c.checkpoint_ns, c.checkpoint_id, EXISTS (
    SELECT 1 FROM labels l
    WHERE l.thread_id = :thread_id AND l.checkpoint_ns = c.checkpoint_ns AND l.checkpoint_id = c.checkpoint_id
)
FROM checkpoints c WHERE c.thread_id = :thread_id AND NOT c.hidden

-- name: select_document
SELECT checkpoint_type, checkpoint FROM checkpoints
WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id = :checkpoint_id

-- name: select_next_thread
SELECT thread_id FROM checkpoints
WHERE thread_id > :after AND thread_id >= :bottom AND thread_id < :top
ORDER BY thread_id LIMIT 1

-- The export_ statements read a page of the rows of a thread: the columns of the key, and then the others. The import_
-- statements store such a row, unless a row with its key exists.

-- name: export_checkpoints
SELECT
    checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden, inline_channels,
    delta_channels, blob_channels, blob_versions, checkpoint_type, checkpoint, metadata_type, metadata,
    metadata_filter
FROM checkpoints
WHERE thread_id = :thread_id AND (checkpoint_ns, checkpoint_id) > (:checkpoint_ns, :checkpoint_id)
ORDER BY checkpoint_ns, checkpoint_id LIMIT :limit

-- name: export_blobs
SELECT
    checkpoint_ns, channel, version, type, value, chunks
FROM blobs
WHERE thread_id = :thread_id AND (checkpoint_ns, channel, version) > (:checkpoint_ns, :channel, :version)
ORDER BY checkpoint_ns, channel, version LIMIT :limit

-- name: export_writes
SELECT
    checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
FROM writes
WHERE thread_id = :thread_id
AND (checkpoint_ns, checkpoint_id, task_id, idx) > (:checkpoint_ns, :checkpoint_id, :task_id, :idx)
ORDER BY checkpoint_ns, checkpoint_id, task_id, idx LIMIT :limit

-- name: export_labels
SELECT name, checkpoint_ns, checkpoint_id FROM labels
WHERE thread_id = :thread_id AND name > :name ORDER BY name LIMIT :limit

-- name: import_checkpoints
INSERT INTO checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden, inline_channels,
    delta_channels, blob_channels, blob_versions, checkpoint_type, checkpoint, metadata_type, metadata,
    metadata_filter
)
VALUES (
    :thread_id, :checkpoint_ns, :checkpoint_id, :parent_id, :root_id, :run_id, :format, :hidden,
    :inline_channels, :delta_channels, :blob_channels, :blob_versions, :checkpoint_type, :checkpoint,
    :metadata_type, :metadata, :metadata_filter
)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING

-- name: import_blobs
INSERT INTO blobs (
    thread_id, checkpoint_ns, channel, version, type, value, chunks
)
VALUES (
    :thread_id, :checkpoint_ns, :channel, :version, :type, :value, :chunks
)
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: import_writes
INSERT INTO writes (
    thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
)
VALUES (
    :thread_id, :checkpoint_ns, :checkpoint_id, :task_id, :idx, :task_path, :run_id, :channel, :type, :value
)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO NOTHING

-- name: import_labels
INSERT INTO labels (thread_id, name, checkpoint_ns, checkpoint_id)
VALUES (:thread_id, :name, :checkpoint_ns, :checkpoint_id)
ON CONFLICT (thread_id, name) DO NOTHING
