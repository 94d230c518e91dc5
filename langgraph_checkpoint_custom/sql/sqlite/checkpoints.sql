-- Storing and reading checkpoints. Lists are JSON here, and arrays in postgres/. The tenant is a generated column.

-- fragment: into_checkpoints
INTO checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format,
    inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter
)

-- name: insert_checkpoint
-- A checkpoint that refers to no other rows. Parameters go by position.
INSERT
-- include: into_checkpoints
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
-- include: replace_checkpoint

-- name: insert_checkpoint_on_parent
-- insert_checkpoint for one whose parent has to exist and not to be hidden. A row says that it was stored. Without the
-- parent, the thread is NULL, which no row may have. With INSERT ... SELECT, SQLite would put the row into a temporary
-- table first, because the table that it reads is the one that it changes: a tenth of the time.
INSERT OR IGNORE
-- include: into_checkpoints
VALUES (
    (SELECT thread_id FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? AND NOT hidden),
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
)
-- include: replace_checkpoint
RETURNING true

-- name: insert_checkpoint_with_blobs
-- insert_checkpoint_on_parent for one that refers to blobs of its parent only, which exist as long as the parent's row
-- names them. If it was stored, put_blobs follows.
INSERT OR IGNORE
-- include: into_checkpoints
VALUES (
    (
        SELECT thread_id FROM checkpoints p
        WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? AND NOT hidden
        AND blob_channels = coalesce(?, blob_channels) AND blob_versions = coalesce(?, blob_versions)
        AND NOT EXISTS (
            SELECT 1 FROM json_each(?) AS r WHERE NOT EXISTS (
                SELECT 1 FROM blobs b
                WHERE b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns
                AND b.channel = r.value ->> 0 AND b.version = r.value ->> 1
                AND substr(b.chunks, 1, length(r.value ->> 3)) = r.value ->> 3
            )
        )
    ),
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
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

-- fragment: checkpoint_row
SELECT
    'checkpoint' AS kind, c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id AS name, NULL AS key, NULL AS path,
    c.format AS idx, c.checkpoint_type AS type, c.checkpoint AS value, c.metadata_type AS type2,
    c.metadata AS value2, nullif(c.blob_channels, '[]') AS channels, c.blob_versions AS versions

-- fragment: write_row
SELECT
    'write', w.thread_id, w.checkpoint_ns, w.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value,
    NULL, NULL, NULL, NULL

-- Parameters go by position.

-- name: rows_of_latest
-- differs: without blobs, chunks and sends, which few checkpoints have. Other statements read them, by key.
-- include: checkpoint_row
FROM checkpoints c WHERE rowid = (
    SELECT rowid FROM checkpoints
    WHERE thread_id = ? AND checkpoint_ns = ? AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
)
UNION ALL
-- include: write_row
FROM writes w WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = (
    SELECT checkpoint_id FROM checkpoints
    WHERE thread_id = ? AND checkpoint_ns = ? AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
)

-- name: rows_of_exact
-- include: checkpoint_row
FROM checkpoints c WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?
UNION ALL
-- include: write_row
FROM writes w WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?

-- fragment: from_checkpoints
-- A page has the keys: reading the documents and the metadata from their rows costs less than copying them.
SELECT rowid AS row, thread_id, checkpoint_ns, checkpoint_id FROM checkpoints

-- fragment: with_page_of_thread
-- The rows between two ids in each of some namespaces.
WITH page AS MATERIALIZED (
    SELECT c.rowid AS row, c.thread_id, c.checkpoint_ns, c.checkpoint_id
    FROM json_each(:namespaces) AS n
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = n.value
        AND c.checkpoint_id BETWEEN (:lows ->> n.key) AND (:highs ->> n.key)
    WHERE NOT c.hidden
    -- include: matches_filter
    ORDER BY c.checkpoint_id DESC, c.checkpoint_ns DESC LIMIT :limit
)

-- fragment: keys_of_thread
-- LIMIT: with statistics of few threads, SQLite would otherwise find the ids in the index of all threads.
SELECT checkpoint_id, checkpoint_ns FROM checkpoints WHERE thread_id = :thread_id LIMIT -1

-- name: select_matching_keys
-- The keys of a thread that match a filter. Reads all its rows, in the order of the table: by index, each page of the
-- table would be read once for each namespace in it.
WITH found AS MATERIALIZED (
    -- `+`: otherwise SQLite might read the table from its start, to spare the sort.
    SELECT rowid AS row FROM checkpoints WHERE thread_id = :thread_id ORDER BY +rowid
)
SELECT c.checkpoint_id, c.checkpoint_ns FROM found f CROSS JOIN checkpoints c ON c.rowid = f.row
WHERE NOT c.hidden AND c.checkpoint_id >= :floor AND (c.checkpoint_id, c.checkpoint_ns) < (:before, :ns_below)
-- include: matches_filter
ORDER BY c.checkpoint_id DESC, c.checkpoint_ns DESC LIMIT :limit

-- fragment: rows_of_page
-- differs: as rows_of_latest.
-- include: checkpoint_row
FROM page p CROSS JOIN checkpoints c ON c.rowid = p.row
UNION ALL
-- include: write_row
FROM page p
CROSS JOIN writes w ON w.thread_id = p.thread_id AND w.checkpoint_ns = p.checkpoint_ns
    AND w.checkpoint_id = p.checkpoint_id

-- name: select_sends_of
-- The pending sends of a checkpoint older than format 4 are writes of its parent.
SELECT
    'send', w.thread_id, w.checkpoint_ns, k.value ->> 2, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value,
    NULL, NULL, NULL, NULL
FROM json_each(?) AS k
CROSS JOIN writes w ON w.thread_id = k.value ->> 0 AND w.checkpoint_ns = k.value ->> 1
    AND w.checkpoint_id = k.value ->> 3 AND w.channel = '__pregel_tasks'

-- name: select_values_of
-- Blobs, given the lists of their channels and of their versions; or chunks of blobs, whose names are their versions.
-- Nothing if a list is damaged: whoever decodes the row raises an error that names it.
SELECT b.channel, b.version, b.chunks, b.type, b.value
FROM json_each(CASE WHEN json_valid(?) AND json_valid(?) THEN ? ELSE '[]' END) AS n
CROSS JOIN blobs b ON b.thread_id = ? AND b.checkpoint_ns = ? AND b.channel = n.value AND b.version = ? ->> n.key

-- fragment: records_of_page
-- The columns of a `CheckpointRecord`.
SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.run_id, c.metadata_type, c.metadata
FROM page p CROSS JOIN checkpoints c ON c.rowid = p.row
