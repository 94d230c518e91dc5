-- Deleting and pruning: what differs from common/deletion.sql.

-- name: delete_thread
-- differs: one statement for each table. Nothing was stored since the checkpoints were counted.
DELETE FROM checkpoints WHERE thread_id = :thread_id

-- name: delete_thread_writes
-- differs: a part of delete_thread in postgres/.
DELETE FROM writes WHERE thread_id = :thread_id

-- name: delete_thread_blobs
-- differs: as delete_thread_writes.
DELETE FROM blobs WHERE thread_id = :thread_id

-- name: delete_thread_labels
-- differs: as delete_thread_writes.
DELETE FROM labels WHERE thread_id = :thread_id

-- name: threads_of_runs
-- The threads in which the runs have stored something. With statistics of few runs, SQLite 3.53 would read the tables.
SELECT c.thread_id FROM json_each(:run_ids) AS r
CROSS JOIN checkpoints c INDEXED BY checkpoints_of_run
ON c.run_id = r.value AND c.run_id IS NOT NULL AND c.tenant = :tenant
UNION
SELECT w.thread_id FROM json_each(:run_ids) AS r
CROSS JOIN writes w INDEXED BY writes_of_run ON w.run_id = r.value AND w.run_id IS NOT NULL AND w.tenant = :tenant
ORDER BY 1

-- fragment: lists_as_json
inline_channels, delta_channels, blob_channels, blob_versions

-- fragment: by_runs
(:run_ids IS NULL OR +run_id IN (SELECT value FROM json_each(:run_ids)))

-- fragment: not_kept
channel NOT IN (SELECT value FROM json_each(:kept))

-- The row of a key. A statement that includes one of these is sent once for each key.

-- fragment: of_checkpoints
WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id = :checkpoint_id

-- fragment: of_blobs
WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND channel = :channel AND version = :version

-- name: select_chunks
-- The namespaces, channels and names of the chunks of blobs.
SELECT DISTINCT b.checkpoint_ns, b.channel, n.value
FROM json_each(:keys) AS k
CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = k.value ->> 0 AND b.channel = k.value ->> 1
    AND b.version = k.value ->> 2
CROSS JOIN json_each(b.chunks) AS n
