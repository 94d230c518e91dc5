-- Reencryption, sizes, verification and repair.

-- The stored_ statements read a page of the rows after a key. The renew_stored_ statements replace the bytes of one row,
-- unless another transaction has changed them.

-- name: stored_checkpoints
SELECT thread_id, checkpoint_ns, checkpoint_id, checkpoint_type, checkpoint, metadata_type, metadata,
    CAST(metadata_filter AS text)
FROM checkpoints
WHERE (thread_id, checkpoint_ns, checkpoint_id) > (:thread_id, :checkpoint_ns, :checkpoint_id) AND thread_id < :top
ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT :limit

-- name: stored_blobs
SELECT thread_id, checkpoint_ns, channel, version, type, value, chunks FROM blobs
WHERE (thread_id, checkpoint_ns, channel, version) > (:thread_id, :checkpoint_ns, :channel, :version)
AND thread_id < :top
ORDER BY thread_id, checkpoint_ns, channel, version LIMIT :limit

-- name: stored_writes
SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value FROM writes
WHERE (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
    > (:thread_id, :checkpoint_ns, :checkpoint_id, :task_id, :idx)
AND thread_id < :top
ORDER BY thread_id, checkpoint_ns, checkpoint_id, task_id, idx LIMIT :limit

-- name: renew_stored_checkpoint
UPDATE checkpoints
SET checkpoint_type = :type1, checkpoint = :value1, metadata_type = :type2, metadata = :value2,
    metadata_filter = :metadata_filter
WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id = :checkpoint_id
AND checkpoint = :old1 AND metadata = :old2

-- name: renew_stored_blob
UPDATE blobs SET type = :type1, value = :value1
WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND channel = :channel AND version = :version
AND value = :old1

-- name: renew_stored_write
UPDATE writes SET type = :type1, value = :value1
WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id = :checkpoint_id
AND task_id = :task_id AND idx = :idx AND value = :old1

-- The catalog_ statements read what the database has, one line for each thing. The lines are those of `shipped.txt` in
-- the migrations if nothing was changed.

-- name: catalog_lines
WITH ours AS MATERIALIZED (
    SELECT name, strict FROM pragma_table_list
    WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
)
SELECT 'table ' || name || CASE WHEN strict THEN ', strict' ELSE '' END AS line FROM ours
UNION ALL
SELECT 'column ' || o.name || '.' || c.name || ' ' || c.type
    || CASE WHEN c."notnull" THEN ' not null' ELSE '' END
    || CASE WHEN c.hidden IN (2, 3) THEN ' generated' ELSE '' END
    || coalesce(' default ' || c.dflt_value, '')
FROM ours o CROSS JOIN pragma_table_xinfo(o.name) AS c
UNION ALL
SELECT 'index ' || CASE i.origin WHEN 'c' THEN s.sql ELSE i.origin || ' of ' || o.name || ' (' || (
    SELECT group_concat(k.name, ', ') FROM (SELECT name FROM pragma_index_info(i.name) ORDER BY seqno) AS k
) || ')' END
FROM ours o CROSS JOIN pragma_index_list(o.name) AS i LEFT JOIN sqlite_schema s ON s.type = 'index' AND s.name = i.name
WHERE substr(i.name, 1, 11) <> 'searchable_'
UNION ALL
SELECT type || ' ' || CASE type WHEN 'view' THEN replace(replace(sql, char(10), ' '), '    ', '') ELSE name END
FROM sqlite_schema WHERE type IN ('view', 'trigger')
ORDER BY 1

-- A page of threads is a range of thread ids. `sizes` and the doctor_ statements read the rows of a range.

-- name: thread_at
-- The thread of the checkpoint that comes after a number of others in a range, which is where a page ends.
SELECT thread_id FROM checkpoints WHERE thread_id >= :bottom AND thread_id < :top
ORDER BY thread_id LIMIT 1 OFFSET :rows

-- name: sizes
-- The number of rows and bytes of each kind and channel, in each namespace of each thread. Of each table, at most
-- `most` rows are counted. Values are not read, only their lengths.
SELECT thread_id, checkpoint_ns, kind, channel, count(*), sum(bytes), min(checkpoint_id), max(checkpoint_id)
FROM (
    SELECT * FROM (
        SELECT thread_id, checkpoint_ns, CASE WHEN hidden THEN 'hidden' ELSE 'checkpoint' END AS kind, NULL AS channel,
            length(checkpoint) + length(metadata) AS bytes, checkpoint_id
        FROM checkpoints WHERE thread_id >= :bottom AND thread_id < :top
        ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT :most
    ) AS of_checkpoints
    UNION ALL
    SELECT * FROM (
        SELECT thread_id, checkpoint_ns, CASE WHEN substr(version, 1, 2) = '#/' THEN 'chunk' ELSE 'value' END, channel,
            length(value), NULL
        FROM blobs WHERE thread_id >= :bottom AND thread_id < :top
        ORDER BY thread_id, checkpoint_ns, channel, version LIMIT :most
    ) AS of_blobs
    UNION ALL
    SELECT * FROM (
        SELECT thread_id, checkpoint_ns, 'write', channel, length(value), NULL
        FROM writes WHERE thread_id >= :bottom AND thread_id < :top
        ORDER BY thread_id, checkpoint_ns, checkpoint_id, task_id, idx LIMIT :most
    ) AS of_writes
) AS counted
GROUP BY thread_id, checkpoint_ns, kind, channel

-- name: doctor_checkpoints
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, hidden, blob_channels, blob_versions
FROM checkpoints WHERE thread_id >= :bottom AND thread_id < :top

-- name: doctor_blobs
SELECT thread_id, checkpoint_ns, channel, version, chunks
FROM blobs WHERE thread_id >= :bottom AND thread_id < :top

-- name: doctor_labels
SELECT thread_id, checkpoint_ns, checkpoint_id, name
FROM labels WHERE thread_id >= :bottom AND thread_id < :top

-- name: doctor_writes
-- The writes of threads without a checkpoint.
SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx
FROM writes w WHERE thread_id >= :bottom AND thread_id < :top
AND (SELECT min(c.checkpoint_ns) FROM checkpoints c WHERE c.thread_id = w.thread_id) IS NULL

-- name: doctor_bloat
-- differs: pages with data, and free pages, which VACUUM removes from the file.
SELECT 'file', p.page_count - f.freelist_count, f.freelist_count
FROM pragma_page_count AS p CROSS JOIN pragma_freelist_count AS f
