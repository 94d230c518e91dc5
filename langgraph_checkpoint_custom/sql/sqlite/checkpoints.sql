-- Storing and reading checkpoints, their values and writes.

-- name: insert_checkpoint
-- A checkpoint that refers to no other rows.
-- differs: one that exists is replaced, so there is no row to say that it was stored. Parameters go by position.
INSERT INTO checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format,
    inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO UPDATE SET
    parent_id = excluded.parent_id, root_id = excluded.root_id, run_id = excluded.run_id,
    format = excluded.format, hidden = 0, inline_channels = excluded.inline_channels,
    delta_channels = excluded.delta_channels, blob_channels = excluded.blob_channels,
    blob_versions = excluded.blob_versions, checkpoint_type = excluded.checkpoint_type,
    checkpoint = excluded.checkpoint, metadata_type = excluded.metadata_type, metadata = excluded.metadata,
    metadata_filter = excluded.metadata_filter

-- name: put_gone
-- differs: the problems that put_checkpoint in postgres/ finds. 'optional' are the blobs that may be missing and are
-- not.
SELECT CASE WHEN k.value ->> 2 THEN 'value' ELSE 'optional' END, k.value ->> 0 FROM json_each(:kept) AS k
WHERE (k.value ->> 2) <> EXISTS (
    SELECT 1 FROM blobs b
    WHERE b.thread_id = :thread_id AND b.checkpoint_ns = :checkpoint_ns
    AND b.channel = k.value ->> 0 AND b.version = k.value ->> 1
    AND (k.value ->> 3 = '' OR substr(b.parts, 1, length(k.value ->> 3)) = k.value ->> 3)
)
UNION ALL
SELECT 'parent', NULL WHERE :needs_parent AND NOT EXISTS (
    SELECT 1 FROM checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id = :parent_id
) AND EXISTS (
    SELECT 1 FROM checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id <> :checkpoint_id
)
UNION ALL
SELECT 'hidden parent', NULL FROM checkpoints
WHERE :needs_whole_parent AND thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id = :parent_id
AND hidden
UNION ALL
SELECT 'newer', newest.checkpoint_id FROM (
    SELECT checkpoint_id FROM checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id <> :checkpoint_id AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
) AS newest
WHERE :only_newest AND newest.checkpoint_id IS NOT :parent_id
UNION ALL
SELECT 'claim', NULL WHERE :claim IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM claims WHERE thread_id = :thread_id AND token = :claim
)

-- name: put_blobs
-- differs: sent before insert_checkpoint if put_gone has found no problem; a part of put_checkpoint in postgres/.
INSERT INTO blobs (thread_id, checkpoint_ns, channel, version, type, value, parts) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (thread_id, checkpoint_ns, channel, version)
DO UPDATE SET type = excluded.type, value = excluded.value, parts = excluded.parts

-- name: insert_writes
-- differs: the row of VALUES is repeated for each write, and parameters go by position. So each of 50 writes takes 3
-- µs; as a statement of its own, with named parameters, it takes 7.
INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, run_id, idx, channel, type, value)
SELECT ?, ?, ?, ?, ?, ?, column1, column2, column3, column4 FROM (VALUES (?, ?, ?, ?)) AS rows
WHERE true
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE
SET task_path = excluded.task_path, channel = excluded.channel, type = excluded.type, value = excluded.value,
    run_id = CASE
        WHEN writes.type = excluded.type AND writes.value = excluded.value THEN writes.run_id ELSE excluded.run_id
    END
WHERE excluded.idx < 0

-- name: select_newest_id
SELECT checkpoint_id FROM checkpoints
WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND NOT hidden
ORDER BY checkpoint_id DESC LIMIT 1

-- name: select_latest
-- differs: a checkpoint that refers to no other rows, in 6 µs, where the statement that page_latest starts takes 9. Any
-- other checkpoint has the kind 'more'. Parameters go by position, one for each placeholder: Python 3.14 accepts no
-- tuple for ?1.
SELECT * FROM (
    SELECT
        CASE WHEN blob_channels = '[]' AND (format > 3 OR parent_id IS NULL) THEN 'checkpoint' ELSE 'more' END, thread_id, checkpoint_ns,
        checkpoint_id, parent_id, NULL, NULL, NULL, checkpoint_type, checkpoint, metadata_type, metadata, NULL, NULL
    FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
)
UNION ALL
SELECT
    'write', thread_id, checkpoint_ns, checkpoint_id, channel, task_id, task_path, idx, type, value,
    NULL, NULL, NULL, NULL
FROM writes WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = (
    SELECT checkpoint_id FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
)

-- name: select_exact
-- differs: as select_latest. It finds a hidden checkpoint, too.
SELECT
    CASE WHEN blob_channels = '[]' AND (format > 3 OR parent_id IS NULL) THEN 'checkpoint' ELSE 'more' END, thread_id, checkpoint_ns,
    checkpoint_id, parent_id, NULL, NULL, NULL, checkpoint_type, checkpoint, metadata_type, metadata, NULL, NULL
FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?
UNION ALL
SELECT
    'write', thread_id, checkpoint_ns, checkpoint_id, channel, task_id, task_path, idx, type, value,
    NULL, NULL, NULL, NULL
FROM writes WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?

-- Each page_ block starts a statement; the rows_ blocks end it, joined by UNION ALL. Between them, blobs_of_one finds
-- the blobs of one checkpoint, where no blob can occur twice, and blobs_of_page those of several.

-- name: page_latest
WITH page AS MATERIALIZED (
    SELECT * FROM checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
)

-- name: page_exact
-- differs: not materialized, because looking the row up again costs less than storing it.
WITH page AS NOT MATERIALIZED (
    SELECT * FROM checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id = :checkpoint_id
)

-- name: page_of_namespace
WITH page AS MATERIALIZED (
    SELECT * FROM checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns
    AND checkpoint_id >= :floor AND checkpoint_id < :before AND NOT hidden
    AND (:filter = '{}' OR NOT EXISTS (
        SELECT 1 FROM json_each(:filter) AS f LEFT JOIN json_each(metadata_filter) AS m ON m.key = f.key
        WHERE f.value <> CASE
            WHEN m.key IS NOT NULL THEN coalesce(m.value, f.value)
            WHEN EXISTS (SELECT 1 FROM json_each(metadata_filter) AS o WHERE o.key = '*') THEN f.value
            ELSE 'null'
        END
    ))
    ORDER BY checkpoint_id DESC LIMIT :limit
)

-- name: page_of_thread
-- Only the rows of the thread are read and sorted. The index over the newest checkpoints of all threads is not used.
-- differs: the unary plus does that.
WITH page AS MATERIALIZED (
    SELECT * FROM checkpoints
    WHERE thread_id = :thread_id AND +checkpoint_id >= :floor AND NOT hidden
    AND (+checkpoint_id, thread_id, checkpoint_ns) < (:before, :thread_below, :ns_below)
    AND (:filter = '{}' OR NOT EXISTS (
        SELECT 1 FROM json_each(:filter) AS f LEFT JOIN json_each(metadata_filter) AS m ON m.key = f.key
        WHERE f.value <> CASE
            WHEN m.key IS NOT NULL THEN coalesce(m.value, f.value)
            WHEN EXISTS (SELECT 1 FROM json_each(metadata_filter) AS o WHERE o.key = '*') THEN f.value
            ELSE 'null'
        END
    ))
    ORDER BY +checkpoint_id DESC, checkpoint_ns DESC LIMIT :limit
)

-- name: page_of_store
WITH page AS MATERIALIZED (
    SELECT * FROM checkpoints
    WHERE tenant = :tenant AND checkpoint_id >= :floor AND checkpoint_id <= :before AND NOT hidden
    AND (thread_id < :kinds OR thread_id >= :above_kinds)
    AND (checkpoint_id, thread_id, checkpoint_ns) < (:before, :thread_below, :ns_below)
    AND (:filter = '{}' OR NOT EXISTS (
        SELECT 1 FROM json_each(:filter) AS f LEFT JOIN json_each(metadata_filter) AS m ON m.key = f.key
        WHERE f.value <> CASE
            WHEN m.key IS NOT NULL THEN coalesce(m.value, f.value)
            WHEN EXISTS (SELECT 1 FROM json_each(metadata_filter) AS o WHERE o.key = '*') THEN f.value
            ELSE 'null'
        END
    ))
    ORDER BY checkpoint_id DESC, thread_id DESC, checkpoint_ns DESC LIMIT :limit
)

-- name: rows_checkpoint
SELECT
    'checkpoint' AS kind, thread_id, checkpoint_ns, checkpoint_id, parent_id AS name, NULL AS key, NULL AS path,
    NULL AS idx, checkpoint_type AS type, checkpoint AS value, metadata_type AS type2, metadata AS value2,
    nullif(blob_channels, '[]') AS channels, blob_versions AS versions
FROM page

-- name: blobs_of_one
, found AS NOT MATERIALIZED (
    SELECT b.*
    FROM page p CROSS JOIN json_each(p.blob_channels) AS c
    CROSS JOIN blobs b ON b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns
        AND b.channel = c.value AND b.version = p.blob_versions ->> c.key
)
-- Equal chunks of a value have one name, which may occur twice here. Removing duplicates costs more than the rest.
, named AS NOT MATERIALIZED (
    SELECT f.thread_id, f.checkpoint_ns, f.channel, n.value AS name
    FROM found f CROSS JOIN json_each(f.parts) AS n
)

-- name: blobs_of_page
, found AS NOT MATERIALIZED (
    SELECT b.* FROM (
        SELECT DISTINCT p.thread_id, p.checkpoint_ns, c.value AS channel, p.blob_versions ->> c.key AS version
        FROM page p CROSS JOIN json_each(p.blob_channels) AS c
    ) AS r
    CROSS JOIN blobs b ON b.thread_id = r.thread_id AND b.checkpoint_ns = r.checkpoint_ns
        AND b.channel = r.channel AND b.version = r.version
)
, named AS NOT MATERIALIZED (
    SELECT DISTINCT f.thread_id, f.checkpoint_ns, f.channel, n.value AS name
    FROM found f CROSS JOIN json_each(f.parts) AS n
)

-- name: rows_blobs
SELECT
    'blob', thread_id, checkpoint_ns, NULL, channel, version, parts, NULL, type, value, NULL, NULL, NULL, NULL
FROM found

-- name: rows_chunks
SELECT
    'blob', b.thread_id, b.checkpoint_ns, NULL, b.channel, b.version, NULL, NULL, b.type, b.value, NULL, NULL, NULL, NULL
FROM named f
CROSS JOIN blobs b ON b.thread_id = f.thread_id AND b.checkpoint_ns = f.checkpoint_ns
    AND b.channel = f.channel AND b.version = f.name

-- name: rows_writes
SELECT
    'write', w.thread_id, w.checkpoint_ns, w.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value,
    NULL, NULL, NULL, NULL
FROM page p
CROSS JOIN writes w ON w.thread_id = p.thread_id AND w.checkpoint_ns = p.checkpoint_ns
    AND w.checkpoint_id = p.checkpoint_id

-- name: rows_sends
-- The pending sends of a checkpoint older than format 4 are writes of its parent.
-- differs: likelihood() says that almost no checkpoint is that old. With statistics, SQLite would otherwise read all
-- writes first, for a Bloom filter.
SELECT
    'send', w.thread_id, w.checkpoint_ns, p.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value,
    NULL, NULL, NULL, NULL
FROM page p
CROSS JOIN writes w ON w.thread_id = p.thread_id AND w.checkpoint_ns = p.checkpoint_ns
    AND w.checkpoint_id = p.parent_id AND w.channel = '__pregel_tasks'
WHERE likelihood(p.format < 4, 0.00001)
