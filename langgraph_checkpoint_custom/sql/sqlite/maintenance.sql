-- Reencryption, sizes, verification and repair.

-- The stored_ statements read a page of the rows of a tenant. The renew_stored_ statements replace the bytes of one
-- row, unless another transaction has changed them.

-- name: stored_checkpoints
SELECT thread_id, checkpoint_ns, checkpoint_id, checkpoint_type, checkpoint, metadata_type, metadata,
    metadata_filter
FROM checkpoints
WHERE (thread_id, checkpoint_ns, checkpoint_id) > (:thread_id, :checkpoint_ns, :checkpoint_id)
AND +tenant = :tenant
ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT :limit

-- name: stored_blobs
SELECT thread_id, checkpoint_ns, channel, version, type, value, chunks FROM blobs
WHERE (thread_id, checkpoint_ns, channel, version) > (:thread_id, :checkpoint_ns, :channel, :version)
AND tenant = :tenant
ORDER BY thread_id, checkpoint_ns, channel, version LIMIT :limit

-- name: stored_writes
SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value FROM writes
WHERE (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
    > (:thread_id, :checkpoint_ns, :checkpoint_id, :task_id, :idx)
AND tenant = :tenant
ORDER BY thread_id, checkpoint_ns, checkpoint_id, task_id, idx LIMIT :limit

-- name: renew_stored_checkpoint
UPDATE checkpoints
SET checkpoint_type = :checkpoint_type, checkpoint = :checkpoint, metadata_type = :metadata_type,
    metadata = :metadata, metadata_filter = :metadata_filter
WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id = :checkpoint_id
AND checkpoint = :old_checkpoint AND metadata = :old_metadata

-- name: renew_stored_blob
UPDATE blobs SET type = :type, value = :value
WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND channel = :channel
AND version = :version AND value = :old_value

-- name: renew_stored_write
UPDATE writes SET type = :type, value = :value
WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id = :checkpoint_id
AND task_id = :task_id AND idx = :idx AND value = :old_value

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

-- The sizes_ statements count rows and bytes. They do not read values, only their lengths.

-- fragment: with_sizes
-- A row for each row of the threads in these ranges.
WITH sizes AS (
    SELECT thread_id, checkpoint_ns, NULL AS channel, CASE WHEN hidden THEN 'hidden' ELSE 'checkpoint' END AS kind,
        checkpoint_id, length(checkpoint) + length(metadata) AS bytes
    FROM json_each(:bottoms) AS r CROSS JOIN checkpoints k ON k.thread_id >= r.value AND k.thread_id < :tops ->> r.key
    UNION ALL
    SELECT thread_id, checkpoint_ns, channel, CASE WHEN substr(version, 1, 2) = '#/' THEN 'chunk' ELSE 'value' END,
        NULL, length(k.value)
    FROM json_each(:bottoms) AS r CROSS JOIN blobs k ON k.thread_id >= r.value AND k.thread_id < :tops ->> r.key
    UNION ALL
    SELECT thread_id, checkpoint_ns, channel, 'write', NULL, length(k.value)
    FROM json_each(:bottoms) AS r CROSS JOIN writes k ON k.thread_id >= r.value AND k.thread_id < :tops ->> r.key
)

-- name: sizes_of_threads
-- include: with_sizes
SELECT thread_id, count(*) FILTER (WHERE kind = 'checkpoint'), count(*) FILTER (WHERE kind = 'hidden'),
    count(*) FILTER (WHERE kind = 'write'), count(*) FILTER (WHERE kind IN ('value', 'chunk')), sum(bytes)
FROM sizes GROUP BY thread_id

-- name: sizes_up_to
-- The sizes of a thread, of which at most `most` rows of each table are counted.
WITH sizes AS (
    SELECT * FROM (
        SELECT CASE WHEN hidden THEN 'hidden' ELSE 'checkpoint' END AS kind,
            length(checkpoint) + length(metadata) AS bytes
        FROM checkpoints WHERE thread_id = :thread_id ORDER BY checkpoint_ns, checkpoint_id LIMIT :most
    )
    UNION ALL
    SELECT * FROM (
        SELECT 'write', length(value) FROM writes WHERE thread_id = :thread_id
        ORDER BY checkpoint_ns, checkpoint_id LIMIT :most
    )
    UNION ALL
    SELECT * FROM (
        SELECT 'blob', length(value) FROM blobs WHERE thread_id = :thread_id
        ORDER BY checkpoint_ns, channel, version LIMIT :most
    )
)
SELECT count(*) FILTER (WHERE kind = 'checkpoint'), count(*) FILTER (WHERE kind = 'hidden'),
    count(*) FILTER (WHERE kind = 'write'), count(*) FILTER (WHERE kind = 'blob'), coalesce(sum(bytes), 0)
FROM sizes

-- name: sizes_of_tables
-- include: with_sizes
SELECT CASE WHEN kind IN ('checkpoint', 'hidden') THEN 'checkpoints' WHEN kind = 'write' THEN 'writes' ELSE 'blobs' END,
    count(*), sum(bytes)
FROM sizes GROUP BY 1

-- name: sizes_of_namespaces
-- The namespaces of a thread, or with `merged` whole threads.
-- include: with_sizes
SELECT CASE WHEN :merged THEN thread_id ELSE checkpoint_ns END, count(*) FILTER (WHERE kind = 'checkpoint'), count(*),
    sum(bytes), min(checkpoint_id), max(checkpoint_id)
FROM sizes GROUP BY 1 ORDER BY 4 DESC, 1 LIMIT :limit

-- name: sizes_of_channels
-- The channels of a thread, or with `merged` those of all threads and namespaces.
-- include: with_sizes
SELECT CASE WHEN NOT :merged THEN checkpoint_ns END, channel, count(*) FILTER (WHERE kind = 'value'),
    count(*) FILTER (WHERE kind = 'chunk'), count(*) FILTER (WHERE kind = 'write'), sum(bytes)
FROM sizes WHERE channel IS NOT NULL GROUP BY 1, 2 ORDER BY 6 DESC, 1, 2 LIMIT :limit

-- Each doctor_ statement checks a page of one table. It returns a row for each problem, and a row `end` with the key of
-- the page's last row and the number of its rows.

-- name: doctor_checkpoints
WITH page AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, hidden, blob_channels, blob_versions
    FROM checkpoints
    WHERE (thread_id, checkpoint_ns, checkpoint_id) > (:thread_id, :checkpoint_ns, :checkpoint_id)
    AND +tenant = :tenant
    ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT :limit
)
SELECT 'missing value', p.thread_id, p.checkpoint_ns, p.checkpoint_id, u.value, p.blob_versions ->> u.key, NULL
FROM page p CROSS JOIN json_each(p.blob_channels) AS u
WHERE NOT EXISTS (
    SELECT 1 FROM blobs b
    WHERE b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns AND b.channel = u.value
    AND b.version = p.blob_versions ->> u.key
)
UNION ALL
SELECT 'deleted parent', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.parent_id, NULL, NULL
FROM page p
WHERE p.parent_id IS NOT NULL AND NOT p.hidden AND NOT EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns AND c.checkpoint_id = p.parent_id
)
UNION ALL
SELECT 'id before its parent', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.parent_id, NULL, NULL
FROM page p WHERE p.parent_id > p.checkpoint_id
UNION ALL
SELECT * FROM (
    SELECT 'end', thread_id, checkpoint_ns, checkpoint_id, NULL, NULL, (SELECT count(*) FROM page)
    FROM page ORDER BY thread_id DESC, checkpoint_ns DESC, checkpoint_id DESC LIMIT 1
)

-- name: doctor_blobs
WITH page AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, channel, version, chunks FROM blobs
    WHERE (thread_id, checkpoint_ns, channel, version) > (:thread_id, :checkpoint_ns, :channel, :version)
    AND tenant = :tenant
    ORDER BY thread_id, checkpoint_ns, channel, version LIMIT :limit
)
SELECT
    CASE WHEN substr(unused.version, 1, 2) = '#/' THEN 'unused chunk' ELSE 'unused value' END, unused.*, NULL, NULL
FROM (
    SELECT thread_id, checkpoint_ns, channel, version FROM page
    EXCEPT
    SELECT c.thread_id, c.checkpoint_ns, u.value, c.blob_versions ->> u.key
    FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM page) AS p
    CROSS JOIN checkpoints c ON c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns
    CROSS JOIN json_each(c.blob_channels) AS u
    WHERE likelihood(p.thread_id IS NOT NULL, 0.00001)
    EXCEPT
    SELECT b.thread_id, b.checkpoint_ns, b.channel, u.value
    FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM page) AS p
    CROSS JOIN blobs b ON b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns
    CROSS JOIN json_each(b.chunks) AS u
    WHERE likelihood(p.thread_id IS NOT NULL, 0.00001)
) AS unused
UNION ALL
SELECT 'missing chunk', p.thread_id, p.checkpoint_ns, p.channel, p.version, n.value, NULL
FROM page p CROSS JOIN json_each(p.chunks) AS n
WHERE NOT EXISTS (
    SELECT 1 FROM blobs b
    WHERE b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns
    AND b.channel = p.channel AND b.version = n.value
)
UNION ALL
SELECT * FROM (
    SELECT 'end', thread_id, checkpoint_ns, channel, version, NULL, (SELECT count(*) FROM page)
    FROM page ORDER BY thread_id DESC, checkpoint_ns DESC, channel DESC, version DESC LIMIT 1
)

-- name: doctor_writes
WITH page AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx FROM writes
    WHERE (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
        > (:thread_id, :checkpoint_ns, :checkpoint_id, :task_id, :idx)
    AND tenant = :tenant
    ORDER BY thread_id, checkpoint_ns, checkpoint_id, task_id, idx LIMIT :limit
)
SELECT 'write without a checkpoint', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.task_id, NULL, p.idx
FROM page p
WHERE (SELECT min(c.checkpoint_ns) FROM checkpoints c WHERE c.thread_id = p.thread_id) IS NULL
UNION ALL
SELECT * FROM (
    SELECT 'end', thread_id, checkpoint_ns, checkpoint_id, task_id, idx, (SELECT count(*) FROM page)
    FROM page ORDER BY thread_id DESC, checkpoint_ns DESC, checkpoint_id DESC, task_id DESC, idx DESC LIMIT 1
)

-- name: doctor_labels
WITH page AS MATERIALIZED (
    SELECT thread_id, name, checkpoint_ns, checkpoint_id FROM labels
    WHERE (thread_id, name) > (:thread_id, :name)
    AND CASE WHEN unicode(thread_id) = 31 THEN substr(thread_id, 2, instr(substr(thread_id, 2), char(31)) - 1) ELSE '' END
        = :tenant
    ORDER BY thread_id, name LIMIT :limit
)
SELECT 'dangling label', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.name, NULL, NULL
FROM page p
WHERE NOT EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns AND c.checkpoint_id = p.checkpoint_id
)
UNION ALL
SELECT * FROM (
    SELECT 'end', thread_id, name, NULL, NULL, NULL, (SELECT count(*) FROM page)
    FROM page ORDER BY thread_id DESC, name DESC LIMIT 1
)

-- name: doctor_bloat
-- differs: pages with data, and free pages, which VACUUM removes from the file.
SELECT 'file', p.page_count - f.freelist_count, f.freelist_count
FROM pragma_page_count AS p CROSS JOIN pragma_freelist_count AS f

-- The repair_ statements delete rows of a thread that are still unused.

-- name: repair_blobs
-- A value that no checkpoint refers to, or a chunk that no value refers to.
DELETE FROM blobs WHERE rowid IN (
    SELECT b.rowid FROM json_each(:keys) AS k
    CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = k.value ->> 0
        AND b.channel = k.value ->> 1 AND b.version = k.value ->> 2
    WHERE NOT EXISTS (
        SELECT 1 FROM checkpoints c CROSS JOIN json_each(c.blob_channels) AS u
        WHERE c.thread_id = :thread_id AND c.checkpoint_ns = b.checkpoint_ns
        AND u.value = b.channel AND c.blob_versions ->> u.key = b.version
    ) AND NOT EXISTS (
        SELECT 1 FROM blobs o CROSS JOIN json_each(o.chunks) AS u
        WHERE o.thread_id = :thread_id AND o.checkpoint_ns = b.checkpoint_ns AND o.channel = b.channel
        AND u.value = b.version
    )
)
RETURNING version

-- name: repair_labels
DELETE FROM labels WHERE (thread_id, name) IN (
    SELECT l.thread_id, l.name FROM json_each(:labels) AS k
    CROSS JOIN labels l ON l.thread_id = :thread_id AND l.name = k.value
    WHERE NOT EXISTS (
        SELECT 1 FROM checkpoints c
        WHERE c.thread_id = l.thread_id AND c.checkpoint_ns = l.checkpoint_ns AND c.checkpoint_id = l.checkpoint_id
    )
)
RETURNING name
