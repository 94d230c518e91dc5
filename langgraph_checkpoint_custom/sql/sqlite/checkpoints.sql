-- Storing and reading checkpoints. Lists are JSON here, and arrays in postgres/. The tenant is a generated column.

-- fragment: into_checkpoints
INSERT INTO checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format,
    inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter
)

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
-- If there are none, put_blobs and insert_checkpoint follow in the same transaction. 'optional' are the blobs that may
-- be missing and are not.
SELECT CASE WHEN r.value ->> 2 THEN 'value' ELSE 'optional' END, r.value ->> 0 FROM json_each(:refs) AS r
WHERE (r.value ->> 2) <> EXISTS (
    SELECT 1 FROM blobs b
    WHERE b.thread_id = :thread_id AND b.checkpoint_ns = :checkpoint_ns
    AND b.channel = r.value ->> 0 AND b.version = r.value ->> 1
    AND (r.value ->> 3 = '' OR substr(b.chunks, 1, length(r.value ->> 3)) = r.value ->> 3)
)
UNION ALL
-- include: problems_without_blobs

-- name: put_blobs
INSERT INTO blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- What `get_tuple` sends first: a checkpoint and its writes. `idx` says whether it has blobs or sends of its parent;
-- then `page_latest` or `page_exact` reads everything. PostgreSQL always sends one of these, which here take twice as
-- long. Parameters go by position.

-- fragment: read_checkpoint
-- Without the columns that are known or empty: they take a fifth of the time.
SELECT
    checkpoint_id, parent_id AS name, NULL AS key, NULL AS path,
    blob_channels <> '[]' OR (format < 4 AND EXISTS (
        SELECT 1 FROM writes w
        WHERE w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.parent_id
        AND w.channel = '__pregel_tasks'
    )) AS idx,
    checkpoint_type AS type, checkpoint AS value, metadata_type AS type2, metadata AS value2
FROM checkpoints c

-- fragment: read_writes
SELECT NULL, channel, task_id, task_path, idx, type, value, NULL, NULL
FROM writes

-- name: read_latest
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
-- include: read_checkpoint
WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?
UNION ALL
-- include: read_writes
WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?

-- fragment: from_checkpoints
-- A page has the keys: reading the documents and the metadata from their rows costs less than copying them.
SELECT rowid AS row, thread_id, checkpoint_ns, checkpoint_id, parent_id, format, blob_channels, blob_versions
FROM checkpoints

-- fragment: with_page_of_thread
-- The rows between two ids in each of some namespaces.
WITH page AS MATERIALIZED (
    SELECT
        c.rowid AS row, c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.format, c.blob_channels,
        c.blob_versions
    FROM json_each(:namespaces) AS n
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = n.value
        AND c.checkpoint_id BETWEEN (:lows ->> n.key) AND (:highs ->> n.key)
    WHERE NOT c.hidden
    -- include: matches_filter
    ORDER BY c.checkpoint_id DESC, c.checkpoint_ns DESC LIMIT :limit
)

-- fragment: keys_of_thread
SELECT checkpoint_id, checkpoint_ns FROM checkpoints WHERE thread_id = :thread_id

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
-- The pending sends of a checkpoint older than format 4 are writes of its parent. likelihood() says that almost no
-- checkpoint is that old. With statistics, SQLite would otherwise read all writes first, for a Bloom filter.
SELECT
    'send', w.thread_id, w.checkpoint_ns, p.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value,
    NULL, NULL, NULL, NULL
FROM page p
CROSS JOIN writes w ON w.thread_id = p.thread_id AND w.checkpoint_ns = p.checkpoint_ns
    AND w.checkpoint_id = p.parent_id AND w.channel = '__pregel_tasks'
WHERE likelihood(p.format < 4, 0.00001)

-- fragment: records_of_page
-- The columns of a `CheckpointRecord`.
SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.run_id, c.metadata_type, c.metadata
FROM page p CROSS JOIN checkpoints c ON c.rowid = p.row
