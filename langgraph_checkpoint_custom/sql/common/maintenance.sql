-- Reencryption, sizes and verification.

-- The renew_stored_ statements replace the bytes of one row, unless another transaction has changed them.

-- name: renew_stored_checkpoint
UPDATE langgraph_checkpoint.checkpoints
SET checkpoint_type = %(checkpoint_type)s, checkpoint = %(checkpoint)s, metadata_type = %(metadata_type)s,
    metadata = %(metadata)s, metadata_filter = %(metadata_filter)s
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s
AND checkpoint = %(old_checkpoint)s AND metadata = %(old_metadata)s

-- name: renew_stored_blob
UPDATE langgraph_checkpoint.blobs SET type = %(type)s, value = %(value)s
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND channel = %(channel)s AND version = %(version)s
AND value = %(old_value)s

-- name: renew_stored_write
UPDATE langgraph_checkpoint.writes SET type = %(type)s, value = %(value)s
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s
AND task_id = %(task_id)s AND idx = %(idx)s AND value = %(old_value)s

-- A page of threads is a range of thread ids. `sizes` and the doctor_ statements read the rows of a range.

-- name: thread_at
-- The thread of the checkpoint that comes after a number of others in a range, which is where a page ends.
SELECT thread_id FROM langgraph_checkpoint.checkpoints WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
ORDER BY thread_id LIMIT 1 OFFSET %(rows)s

-- name: sizes
-- The number of rows and bytes of each kind and channel, in each namespace of each thread. Of each table, at most
-- `most` rows are counted. Values are not read, only their lengths.
SELECT thread_id, checkpoint_ns, kind, channel, count(*), sum(bytes), min(checkpoint_id), max(checkpoint_id)
FROM (
    SELECT * FROM (
        SELECT thread_id, checkpoint_ns, CASE WHEN hidden THEN 'hidden' ELSE 'checkpoint' END AS kind, NULL AS channel,
            length(checkpoint) + length(metadata) AS bytes, checkpoint_id
        FROM langgraph_checkpoint.checkpoints WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
        ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT %(most)s
    ) AS of_checkpoints
    UNION ALL
    SELECT * FROM (
        SELECT thread_id, checkpoint_ns, CASE WHEN substr(version, 1, 2) = '#/' THEN 'chunk' ELSE 'value' END, channel,
            length(value), NULL
        FROM langgraph_checkpoint.blobs WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
        ORDER BY thread_id, checkpoint_ns, channel, version LIMIT %(most)s
    ) AS of_blobs
    UNION ALL
    SELECT * FROM (
        SELECT thread_id, checkpoint_ns, 'write', channel, length(value), NULL
        FROM langgraph_checkpoint.writes WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
        ORDER BY thread_id, checkpoint_ns, checkpoint_id, task_id, idx LIMIT %(most)s
    ) AS of_writes
) AS counted
GROUP BY thread_id, checkpoint_ns, kind, channel

-- name: doctor_checkpoints
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, hidden, blob_channels, blob_versions
FROM langgraph_checkpoint.checkpoints WHERE thread_id >= %(bottom)s AND thread_id < %(top)s

-- name: doctor_blobs
SELECT thread_id, checkpoint_ns, channel, version, chunks
FROM langgraph_checkpoint.blobs WHERE thread_id >= %(bottom)s AND thread_id < %(top)s

-- name: doctor_labels
SELECT thread_id, checkpoint_ns, checkpoint_id, name
FROM langgraph_checkpoint.labels WHERE thread_id >= %(bottom)s AND thread_id < %(top)s

-- name: doctor_writes
-- The checkpoints to which there are writes.
SELECT DISTINCT thread_id, checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.writes
WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
