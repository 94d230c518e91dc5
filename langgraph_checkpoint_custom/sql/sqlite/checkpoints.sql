-- Storing and reading checkpoints, their values and writes.

-- fragment: into_checkpoints
INSERT INTO checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format,
    inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter
)

-- fragment: replace_checkpoint
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO UPDATE SET
    parent_id = excluded.parent_id, root_id = excluded.root_id, run_id = excluded.run_id,
    format = excluded.format, hidden = 0, inline_channels = excluded.inline_channels,
    delta_channels = excluded.delta_channels, blob_channels = excluded.blob_channels,
    blob_versions = excluded.blob_versions, checkpoint_type = excluded.checkpoint_type,
    checkpoint = excluded.checkpoint, metadata_type = excluded.metadata_type, metadata = excluded.metadata,
    metadata_filter = excluded.metadata_filter

-- name: insert_checkpoint
-- A checkpoint that refers to no other rows. Parameters go by position.
-- include: into_checkpoints
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
-- include: replace_checkpoint

-- name: insert_checkpoint_on_parent
-- insert_checkpoint for one whose parent has to exist and not to be hidden. A row says that it was stored.
-- include: into_checkpoints
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
WHERE EXISTS (
    SELECT 1 FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? AND NOT hidden
)
-- include: replace_checkpoint
RETURNING true

-- name: put_problems
-- differs: the problems that put_checkpoint in postgres/ finds. 'optional' are the blobs that may be missing and are
-- not.
SELECT CASE WHEN r.value ->> 2 THEN 'value' ELSE 'optional' END, r.value ->> 0 FROM json_each(:refs) AS r
WHERE (r.value ->> 2) <> EXISTS (
    SELECT 1 FROM blobs b
    WHERE b.thread_id = :thread_id AND b.checkpoint_ns = :checkpoint_ns
    AND b.channel = r.value ->> 0 AND b.version = r.value ->> 1
    AND (r.value ->> 3 = '' OR substr(b.chunks, 1, length(r.value ->> 3)) = r.value ->> 3)
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
-- differs: sent before insert_checkpoint if put_problems has found no problem; a part of put_checkpoint in postgres/.
INSERT INTO blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: insert_writes
-- differs: a row of VALUES for each write, and parameters go by position. So each of 50 writes takes 3 µs; as a
-- statement of its own, with named parameters, it takes 7.
INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, run_id, idx, channel, type, value)
SELECT ?, ?, ?, ?, ?, ?, column1, column2, column3, column4 FROM (
    VALUES
    -- repeat
    (?, ?, ?, ?)
) AS rows
WHERE true
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE
SET task_path = excluded.task_path, channel = excluded.channel, type = excluded.type, value = excluded.value,
    run_id = CASE
        WHEN writes.type = excluded.type AND writes.value = excluded.value THEN writes.run_id ELSE excluded.run_id
    END
WHERE excluded.idx < 0

-- name: select_blobs_of
SELECT blob_channels, blob_versions FROM checkpoints
WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id = :checkpoint_id

-- name: select_newest_id
-- include: newest_of_namespace

-- What `get_tuple` sends first: a checkpoint and its writes. `idx` says whether it has blobs or sends of its parent;
-- then `page_latest` or `page_exact` reads everything. Parameters go by position.

-- fragment: read_checkpoint
-- differs: PostgreSQL always sends page_latest or page_exact. Here these take twice as long as this.
SELECT
    'checkpoint' AS kind, thread_id, checkpoint_ns, checkpoint_id, parent_id AS name, NULL AS key, NULL AS path,
    blob_channels <> '[]' OR (format < 4 AND EXISTS (
        SELECT 1 FROM writes w
        WHERE w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.parent_id
        AND w.channel = '__pregel_tasks'
    )) AS idx,
    checkpoint_type AS type, checkpoint AS value, metadata_type AS type2, metadata AS value2,
    NULL AS channels, NULL AS versions
FROM checkpoints c

-- fragment: read_writes
-- differs: as read_checkpoint.
SELECT
    'write', thread_id, checkpoint_ns, checkpoint_id, channel, task_id, task_path, idx, type, value,
    NULL, NULL, NULL, NULL
FROM writes

-- name: read_latest
-- differs: as read_checkpoint.
SELECT * FROM (
    -- include: read_checkpoint
    WHERE thread_id = ? AND checkpoint_ns = ? AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
)
UNION ALL
-- include: read_writes
WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = (
    SELECT checkpoint_id FROM checkpoints
    WHERE thread_id = ? AND checkpoint_ns = ? AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
)

-- name: read_exact
-- differs: as read_checkpoint.
-- include: read_checkpoint
WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?
UNION ALL
-- include: read_writes
WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?

-- A read is a page of checkpoints and, of these, the checkpoints themselves, their blobs, chunks, writes and sends.
-- blobs_of_one finds the blobs of one checkpoint, where no blob can occur twice, and blobs_of_page those of several.

-- fragment: blobs_of_one
, found AS NOT MATERIALIZED (
    SELECT b.*
    FROM page p CROSS JOIN json_each(p.blob_channels) AS c
    CROSS JOIN blobs b ON b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns
        AND b.channel = c.value AND b.version = p.blob_versions ->> c.key
)
-- Equal chunks of a value have one name, which may occur twice here. Removing duplicates costs more than the rest.
, named AS NOT MATERIALIZED (
    SELECT f.thread_id, f.checkpoint_ns, f.channel, n.value AS name
    FROM found f CROSS JOIN json_each(f.chunks) AS n
)

-- fragment: blobs_of_page
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
    FROM found f CROSS JOIN json_each(f.chunks) AS n
)

-- fragment: keys_of_checkpoints
-- differs: not the documents and the metadata: reading these from their rows costs less than copying them.
SELECT rowid AS row, thread_id, checkpoint_ns, checkpoint_id, parent_id, format, blob_channels, blob_versions
FROM checkpoints

-- fragment: rows_of_page
SELECT
    'checkpoint' AS kind, c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id AS name, NULL AS key, NULL AS path,
    NULL AS idx, c.checkpoint_type AS type, c.checkpoint AS value, c.metadata_type AS type2, c.metadata AS value2,
    nullif(c.blob_channels, '[]') AS channels, c.blob_versions AS versions
FROM page p CROSS JOIN checkpoints c ON c.rowid = p.row
UNION ALL
SELECT
    'blob', thread_id, checkpoint_ns, NULL, channel, version, chunks, NULL, type, value, NULL, NULL, NULL, NULL
FROM found
UNION ALL
SELECT
    'blob', b.thread_id, b.checkpoint_ns, NULL, b.channel, b.version, NULL, NULL,
    b.type, b.value, NULL, NULL, NULL, NULL
FROM named f
CROSS JOIN blobs b ON b.thread_id = f.thread_id AND b.checkpoint_ns = f.checkpoint_ns
    AND b.channel = f.channel AND b.version = f.name
UNION ALL
SELECT
    'write', w.thread_id, w.checkpoint_ns, w.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value,
    NULL, NULL, NULL, NULL
FROM page p
CROSS JOIN writes w ON w.thread_id = p.thread_id AND w.checkpoint_ns = p.checkpoint_ns
    AND w.checkpoint_id = p.checkpoint_id
UNION ALL
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

-- name: page_latest
WITH page AS MATERIALIZED (
    -- include: keys_of_checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
)
-- include: blobs_of_one
-- include: rows_of_page

-- name: page_exact
-- differs: not materialized, because looking the row up again costs less than storing it.
WITH page AS NOT MATERIALIZED (
    -- include: keys_of_checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id = :checkpoint_id
)
-- include: blobs_of_one
-- include: rows_of_page

-- fragment: with_page_of_namespace
WITH page AS MATERIALIZED (
    -- include: keys_of_checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns
    AND checkpoint_id >= :floor AND checkpoint_id < :before AND NOT hidden
    -- include: matches_filter
    ORDER BY checkpoint_id DESC LIMIT :limit
)

-- fragment: with_page_of_thread
-- Only the rows of the thread are read and sorted. The index over the newest checkpoints of all threads is not used.
-- differs: the unary plus does that.
WITH page AS MATERIALIZED (
    -- include: keys_of_checkpoints
    WHERE thread_id = :thread_id AND +checkpoint_id >= :floor AND NOT hidden
    AND (+checkpoint_id, thread_id, checkpoint_ns) < (:before, :thread_below, :ns_below)
    -- include: matches_filter
    ORDER BY +checkpoint_id DESC, checkpoint_ns DESC LIMIT :limit
)

-- fragment: with_page_of_store
WITH page AS MATERIALIZED (
    -- include: keys_of_checkpoints
    WHERE tenant = :tenant AND checkpoint_id >= :floor AND checkpoint_id <= :before AND NOT hidden
    AND (thread_id < :kinds OR thread_id >= :above_kinds)
    AND (checkpoint_id, thread_id, checkpoint_ns) < (:before, :thread_below, :ns_below)
    -- include: matches_filter
    ORDER BY checkpoint_id DESC, thread_id DESC, checkpoint_ns DESC LIMIT :limit
)

-- name: page_of_namespace
-- include: with_page_of_namespace
-- include: blobs_of_page
-- include: rows_of_page

-- name: page_of_thread
-- include: with_page_of_thread
-- include: blobs_of_page
-- include: rows_of_page

-- name: page_of_store
-- include: with_page_of_store
-- include: blobs_of_page
-- include: rows_of_page

-- fragment: records_of_page
-- The columns of a `CheckpointRecord`.
SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.run_id, c.metadata_type, c.metadata
FROM page p CROSS JOIN checkpoints c ON c.rowid = p.row

-- name: records_of_namespace
-- include: with_page_of_namespace
-- include: records_of_page

-- name: records_of_thread
-- include: with_page_of_thread
-- include: records_of_page

-- name: records_of_store
-- include: with_page_of_store
-- include: records_of_page
