-- The statements for SQLite 3.38 and later. postgres.sql has the same names in the same order.
--
-- A write is a transaction that holds the one write lock from its start, so no statement here locks rows. Lists are
-- JSON.
--
-- Plans are the same with statistics (ANALYZE) and without. CROSS JOIN keeps the order of the tables, a unary plus
-- keeps a column from choosing an index, and likelihood(…, 0.00001) says that a WITH has few rows. With statistics,
-- SQLite would otherwise assume a million rows and first read all of the table that is joined to it, for a Bloom
-- filter: 68 ms instead of 1.5.

-- name: schema_lock
-- differs: the transaction holds the write lock from its start.
SELECT 1

-- name: schema_state
SELECT
    true,
    EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'langgraph_checkpoint_migrations'),
    (
        SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ('checkpoints', 'blobs', 'writes')
        ORDER BY 1 LIMIT 1
    )

-- name: schema_numbers
SELECT number FROM langgraph_checkpoint_migrations

-- name: schema_create_table
CREATE TABLE langgraph_checkpoint_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT

-- name: schema_applied
INSERT INTO langgraph_checkpoint_migrations (number, name) VALUES (:number, :name)

-- The searchable_ blocks create, find and drop the indexes of searchable metadata keys; see sql/searchable.py.

-- name: searchable_there
-- A row for each of the indexes that exists: its name, whether it is valid, whether this role can use it.
SELECT name, true, true FROM sqlite_schema WHERE type = 'index' AND name IN (SELECT value FROM json_each(:names))

-- name: searchable_make
CREATE INDEX IF NOT EXISTS searchable_key ON checkpoints (
    tenant,
    coalesce(
        json_extract(metadata_filter, '$."searchable key"'),
        CASE
            WHEN json_type(metadata_filter, '$."searchable key"') IS NULL
                AND json_type(metadata_filter, '$."*"') IS NULL THEN 'null'
            ELSE '?'
        END
    ),
    checkpoint_id
)

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
-- differs: the problems that put_checkpoint in postgres.sql finds. 'optional' are the blobs that may be missing and are
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
-- differs: sent before insert_checkpoint if put_gone has found no problem; a part of put_checkpoint in postgres.sql.
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

-- name: select_lost_claim
SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM claims WHERE thread_id = :thread_id AND token = :claim)

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

-- name: select_places
SELECT c.checkpoint_ns, c.checkpoint_id, (
    SELECT count(*) FROM writes w
    WHERE w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id
)
FROM checkpoints c WHERE c.thread_id = :thread_id

-- name: select_kept_places
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

-- The export_ blocks read a page of the rows of a thread: the columns of the key, and then the others. The import_
-- blocks store such a row, unless a row with its key exists.

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
    checkpoint_ns, channel, version, type, value, parts
FROM blobs
WHERE thread_id = :thread_id AND (checkpoint_ns, channel, version) > (:checkpoint_ns, :channel, :version)
ORDER BY checkpoint_ns, channel, version LIMIT :limit

-- name: export_writes
SELECT
    checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
FROM writes
WHERE thread_id = :thread_id AND (checkpoint_ns, checkpoint_id, task_id, idx) > (:checkpoint_ns, :checkpoint_id, :task_id, :idx)
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
    thread_id, checkpoint_ns, channel, version, type, value, parts
)
VALUES (
    :thread_id, :checkpoint_ns, :channel, :version, :type, :value, :parts
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

-- delta_runs starts a statement. delta_ancestors ends it to read what a checkpoint is rebuilt from, delta_values to
-- read the values as well.

-- name: delta_runs
-- One row for each id range: checkpoints that follow one another both by id and by parent, from `top` down to `bottom`.
-- A range ends where the parent is not the next lower id, or where a channel that is still `open`, without a seed, has
-- its seed; `left_open` are the channels that are open after that. A parent chain that loops repeats a row in the end,
-- and UNION drops it. `replayed` are the delta channels of a hidden checkpoint; they are read because its parent may be
-- deleted.
-- differs: the next lower id is looked up, because lead() would read the thread to its end. A channel is searched for
-- in the text of a list before the list is parsed, which takes longer.
WITH RECURSIVE target AS MATERIALIZED (
    SELECT checkpoint_id, parent_id, CASE WHEN hidden THEN delta_channels END AS replayed, (
        SELECT json_group_array(value)
        FROM (SELECT value FROM json_each(inline_channels) UNION ALL SELECT value FROM json_each(blob_channels))
    ) AS populated
    FROM checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns
    AND checkpoint_id = coalesce(:checkpoint_id, (
        SELECT checkpoint_id FROM checkpoints
        WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND NOT hidden
        ORDER BY checkpoint_id DESC LIMIT 1
    ))
), quoted AS MATERIALIZED (
    SELECT json_quote(value) AS channel FROM json_each(:asked)
), walk (top, bottom, parent_id, replayed, open, left_open) AS (
    SELECT NULL, checkpoint_id, parent_id, replayed, :asked, :asked FROM target
    UNION
    SELECT
        child.parent_id, c.checkpoint_id, c.parent_id, CASE WHEN c.hidden THEN c.delta_channels END, child.left_open,
        (
            SELECT json_group_array(value) FROM json_each(child.left_open)
            WHERE value NOT IN (SELECT value FROM json_each(c.inline_channels))
            AND value NOT IN (SELECT value FROM json_each(c.blob_channels))
        )
    FROM walk child
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = :checkpoint_ns
        AND c.checkpoint_id = (
            SELECT e.checkpoint_id FROM checkpoints e
            WHERE e.thread_id = :thread_id AND e.checkpoint_ns = :checkpoint_ns AND e.checkpoint_id <= child.parent_id
            AND (
                e.parent_id IS NULL
                OR e.parent_id IS NOT (
                    SELECT n.checkpoint_id FROM checkpoints n
                    WHERE n.thread_id = :thread_id AND n.checkpoint_ns = :checkpoint_ns
                    AND n.checkpoint_id < e.checkpoint_id
                    ORDER BY n.checkpoint_id DESC LIMIT 1
                )
                OR EXISTS (
                    SELECT 1 FROM quoted q
                    WHERE (instr(e.inline_channels, q.channel) OR instr(e.blob_channels, q.channel))
                    AND instr(child.left_open, q.channel)
                )
            )
            ORDER BY e.checkpoint_id DESC LIMIT 1
        )
    WHERE likelihood(child.left_open <> '[]', 0.00001) AND EXISTS (
        SELECT 1 FROM checkpoints p
        WHERE p.thread_id = :thread_id AND p.checkpoint_ns = :checkpoint_ns AND p.checkpoint_id = child.parent_id
    )
), runs AS MATERIALIZED (
    SELECT * FROM walk WHERE top IS NOT NULL
)

-- name: delta_ancestors
SELECT
    'target' AS kind, NULL AS thread_id, NULL AS checkpoint_ns, checkpoint_id, parent_id AS name, NULL AS key,
    NULL AS path, NULL AS idx, NULL AS type, NULL AS value, NULL AS type2, NULL AS value2,
    populated AS channels, replayed AS versions
FROM target
UNION ALL
SELECT
    'run', NULL, NULL, bottom, parent_id, top, NULL, json_array_length(open), NULL, NULL, NULL, NULL, (
        SELECT json_group_array(value) FROM json_each(open) WHERE value NOT IN (SELECT value FROM json_each(left_open))
    ), replayed
FROM runs

-- name: delta_values
-- The columns that would be empty are left out, because there may be many thousands of writes. Some writes may have no
-- checkpoint; its id is not in `line` then.
, seeds AS NOT MATERIALIZED (
    SELECT r.bottom, b.*
    FROM runs r
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = :checkpoint_ns
        AND c.checkpoint_id = r.bottom
    CROSS JOIN json_each(c.blob_channels) AS n ON n.value IN (SELECT value FROM json_each(r.open))
    CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = :checkpoint_ns AND b.channel = n.value
        AND b.version = (SELECT v.value FROM json_each(c.blob_versions) AS v WHERE v.key = n.key)
    WHERE likelihood(r.open <> r.left_open, 0.00001)
)
SELECT
    'target' AS kind, checkpoint_id, parent_id AS name, NULL AS key, NULL AS path, NULL AS idx, NULL AS type,
    NULL AS value, populated AS channels, replayed AS versions
FROM target
UNION ALL
SELECT
    'run', r.bottom, r.parent_id, r.top, NULL, json_array_length(r.open), c.checkpoint_type, c.checkpoint, (
        SELECT json_group_array(value) FROM json_each(r.open)
        WHERE value NOT IN (SELECT value FROM json_each(r.left_open))
    ), r.replayed
FROM runs r
LEFT JOIN checkpoints c ON r.open <> r.left_open AND c.thread_id = :thread_id AND c.checkpoint_ns = :checkpoint_ns
    AND c.checkpoint_id = r.bottom
    AND EXISTS (
        SELECT 1 FROM json_each(c.inline_channels) AS i WHERE i.value IN (SELECT value FROM json_each(r.open))
    )
UNION ALL
SELECT
    'line', r.bottom, NULL, r.top, NULL, NULL, NULL, NULL, (
        SELECT json_group_array(c.checkpoint_id) FROM checkpoints c
        WHERE c.thread_id = :thread_id AND c.checkpoint_ns = :checkpoint_ns
        AND c.checkpoint_id BETWEEN r.bottom AND r.top
    ), NULL
FROM runs r
UNION ALL
SELECT
    'blob', bottom, channel, version, parts, NULL, type, value, NULL, NULL
FROM seeds
UNION ALL
SELECT
    'part', NULL, b.channel, b.version, NULL, NULL, b.type, b.value, NULL, NULL
FROM seeds s
CROSS JOIN json_each(s.parts) AS n
CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = :checkpoint_ns AND b.channel = s.channel
    AND b.version = n.value
UNION ALL
SELECT
    NULL, w.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value, NULL, NULL
FROM runs r
CROSS JOIN writes w ON w.thread_id = :thread_id AND w.checkpoint_ns = :checkpoint_ns
    AND w.checkpoint_id BETWEEN r.bottom AND r.top
WHERE likelihood(r.top IS NOT NULL, 0.00001)
AND w.channel IN (SELECT value FROM json_each(:asked)) AND (r.open = :asked OR instr(r.open, json_quote(w.channel)))

-- name: delete_thread
-- differs: one statement for each table.
DELETE FROM checkpoints WHERE thread_id = :thread_id

-- name: delete_thread_writes
-- differs: a part of delete_thread in postgres.sql.
DELETE FROM writes WHERE thread_id = :thread_id

-- name: delete_thread_blobs
-- differs: as delete_thread_writes.
DELETE FROM blobs WHERE thread_id = :thread_id

-- name: delete_thread_labels
-- differs: as delete_thread_writes.
DELETE FROM labels WHERE thread_id = :thread_id

-- name: heads_newest
-- differs: the start of each delete_all_but_newest statement; delete_all_but_newest in postgres.sql contains it.
WITH plain AS MATERIALIZED (
    SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM labels WHERE thread_id = :thread_id)
    AND NOT EXISTS (
        SELECT 1 FROM checkpoints WHERE thread_id = :thread_id AND (hidden OR format < 4 OR delta_channels <> '[]')
    )
), heads AS MATERIALIZED (
    SELECT c.rowid AS place, c.checkpoint_ns, c.checkpoint_id, c.root_id, c.blob_channels, c.blob_versions
    FROM plain
    CROSS JOIN (
        SELECT checkpoint_ns, max(checkpoint_id) AS newest FROM checkpoints
        WHERE thread_id = :thread_id GROUP BY checkpoint_ns
    ) AS n
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = n.checkpoint_ns
        AND c.checkpoint_id = n.newest
), staying AS MATERIALIZED (
    SELECT h.* FROM heads h
    WHERE instr(h.checkpoint_ns, ':') = 0
    OR h.root_id IS NULL
    OR h.root_id = (SELECT r.checkpoint_id FROM heads r WHERE r.checkpoint_ns = '')
    OR NOT (
        coalesce(h.root_id < (SELECT r.checkpoint_id FROM heads r WHERE r.checkpoint_ns = ''), false)
        OR EXISTS (
            SELECT 1 FROM checkpoints r
            WHERE r.thread_id = :thread_id AND r.checkpoint_ns = '' AND r.checkpoint_id = h.root_id
        )
    )
)

-- name: delete_all_but_newest_writes
-- differs: a part of delete_all_but_newest in postgres.sql, as are the other blocks whose names begin like this.
DELETE FROM writes AS w
WHERE w.thread_id = :thread_id AND EXISTS (SELECT 1 FROM plain)
AND (w.checkpoint_ns, w.checkpoint_id) NOT IN (SELECT s.checkpoint_ns, s.checkpoint_id FROM staying s)
AND EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = :thread_id AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
)

-- name: delete_all_but_newest_blobs
-- differs: as delete_all_but_newest_writes.
, named AS MATERIALIZED (
    SELECT b.rowid AS place, b.checkpoint_ns, b.channel, b.parts
    FROM staying s
    CROSS JOIN json_each(s.blob_channels) AS n
    CROSS JOIN json_each(s.blob_versions) AS v ON v.key = n.key
    CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = s.checkpoint_ns AND b.channel = n.value
        AND b.version = v.value
    WHERE likelihood(s.place IS NOT NULL, 0.00001)
)
DELETE FROM blobs
WHERE thread_id = :thread_id AND EXISTS (SELECT 1 FROM plain)
AND rowid NOT IN (
    SELECT n.place FROM named n
    UNION ALL
    SELECT b.rowid FROM named n
    CROSS JOIN json_each(n.parts) AS p
    CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = n.checkpoint_ns AND b.channel = n.channel
        AND b.version = p.value
    WHERE likelihood(n.place IS NOT NULL, 0.00001)
)

-- name: delete_all_but_newest_parents
-- differs: as delete_all_but_newest_writes.
UPDATE checkpoints AS c SET parent_id = NULL
WHERE c.rowid IN (SELECT s.place FROM staying s)
AND EXISTS (
    SELECT 1 FROM checkpoints p
    WHERE p.thread_id = :thread_id AND p.checkpoint_ns = c.checkpoint_ns AND p.checkpoint_id = c.parent_id
)

-- name: delete_all_but_newest_checkpoints
-- differs: as delete_all_but_newest_writes.
DELETE FROM checkpoints
WHERE thread_id = :thread_id AND EXISTS (SELECT 1 FROM plain) AND rowid NOT IN (SELECT s.place FROM staying s)

-- name: delete_all_but_newest
-- Everything but the newest checkpoint of each namespace is deleted, if nothing else has to remain: nothing in the
-- thread is hidden, labelled or rebuilt from writes. A row says that this was done. mark_superseded explains which
-- namespaces are finished. For 30 checkpoints, or 1,000 with large values, this takes a third of the time of marking
-- and purging; for 1,000 with small values, a ninth. Writes may be stored before their checkpoint, so only writes with
-- a checkpoint are deleted.
-- differs: the last of several statements. `plain` has the same rows before and after the deletion.
SELECT 1 FROM plain

-- name: mark_superseded
-- Everything is marked except what remains: the `keep` newest checkpoints of each namespace; those with a label; and,
-- for each subgraph with a memory of its own, the checkpoint that a run goes on from if it starts at a root checkpoint
-- with a label, or at one that remains besides the newest. The namespace of a subgraph call contains a colon before a
-- task id, unlike that of a subgraph with checkpointer=True. It is finished once the root checkpoint that started the
-- call does not remain: that one is marked here, or it is older than the newest one and was deleted before. If it is
-- newer, it is still to be stored, and the call is not finished.
WITH heads AS MATERIALIZED (
    SELECT n.* FROM (
        SELECT checkpoint_ns, checkpoint_id, root_id,
            row_number() OVER (PARTITION BY checkpoint_ns ORDER BY checkpoint_id DESC) AS place
        FROM checkpoints WHERE thread_id = :thread_id AND NOT hidden
    ) AS n
    WHERE n.place <= :keep
), finished AS MATERIALIZED (
    SELECT h.checkpoint_ns FROM heads h
    WHERE h.place = 1 AND instr(h.checkpoint_ns, ':') > 0
    AND h.root_id NOT IN (SELECT r.checkpoint_id FROM heads r WHERE r.checkpoint_ns = '')
    AND h.root_id NOT IN (SELECT l.checkpoint_id FROM labels l WHERE l.thread_id = :thread_id AND l.checkpoint_ns = '')
    AND (h.root_id < (SELECT max(r.checkpoint_id) FROM heads r WHERE r.checkpoint_ns = '') OR EXISTS (
        SELECT 1 FROM checkpoints r
        WHERE r.thread_id = :thread_id AND r.checkpoint_ns = '' AND r.checkpoint_id = h.root_id
    ))
), points AS MATERIALIZED (
    SELECT checkpoint_id FROM labels WHERE thread_id = :thread_id AND checkpoint_ns = ''
    UNION
    SELECT checkpoint_id FROM heads WHERE checkpoint_ns = '' AND place > 1
), kept AS MATERIALIZED (
    SELECT checkpoint_ns, checkpoint_id FROM heads WHERE checkpoint_ns NOT IN (SELECT f.checkpoint_ns FROM finished f)
    UNION
    SELECT checkpoint_ns, checkpoint_id FROM labels WHERE thread_id = :thread_id
    UNION
    SELECT h.checkpoint_ns, (
        SELECT c.checkpoint_id FROM checkpoints c
        WHERE c.thread_id = :thread_id AND c.checkpoint_ns = h.checkpoint_ns AND c.checkpoint_id < p.checkpoint_id
        AND NOT c.hidden
        ORDER BY c.checkpoint_id DESC LIMIT 1
    )
    FROM points p CROSS JOIN heads h
    WHERE h.place = 1 AND h.checkpoint_ns <> '' AND instr(h.checkpoint_ns, ':') = 0
)
UPDATE checkpoints SET doomed = 1
WHERE thread_id = :thread_id
AND (hidden OR (checkpoint_ns, checkpoint_id) NOT IN (
    SELECT k.checkpoint_ns, k.checkpoint_id FROM kept k WHERE k.checkpoint_id IS NOT NULL
))

-- name: mark_idle
-- All of a thread, unless a run has gone on or a label was set since the thread was read.
UPDATE checkpoints SET doomed = 1
WHERE thread_id = :thread_id AND NOT EXISTS (
    SELECT 1 FROM checkpoints n WHERE n.thread_id = :thread_id AND n.checkpoint_id > :newest AND NOT n.hidden
)
AND NOT EXISTS (SELECT 1 FROM labels WHERE thread_id = :thread_id)

-- name: delete_idle_writes
-- Sent after the purge_ blocks. Writes whose checkpoint was never stored are deleted with their thread, because nothing
-- would refer to them afterwards.
DELETE FROM writes WHERE thread_id = :thread_id
AND NOT EXISTS (SELECT 1 FROM checkpoints WHERE thread_id = :thread_id)

-- name: threads_of_runs
-- The threads in which the runs have stored something.
SELECT c.thread_id FROM json_each(:run_ids) AS r
CROSS JOIN checkpoints c ON c.run_id = r.value AND c.run_id IS NOT NULL AND +c.tenant = :tenant
UNION
SELECT w.thread_id FROM json_each(:run_ids) AS r
CROSS JOIN writes w ON w.run_id = r.value AND w.run_id IS NOT NULL AND +w.tenant = :tenant
ORDER BY 1

-- name: mark_runs
-- The checkpoints of the runs, with or without labels, and the hidden checkpoints of their namespaces, which may have
-- been retained only for these.
UPDATE checkpoints SET doomed = 1
WHERE thread_id = :thread_id AND (hidden OR run_id IN (SELECT value FROM json_each(:run_ids)))
AND checkpoint_ns IN (
    SELECT c.checkpoint_ns FROM checkpoints c
    WHERE c.thread_id = :thread_id AND c.run_id IN (SELECT value FROM json_each(:run_ids))
)

-- The purge_ blocks hide or delete what is marked for deletion (`doomed`), in this order.

-- name: purge_labels
-- The labels of checkpoints that will be deleted or hidden.
DELETE FROM labels WHERE rowid IN (
    SELECT l.rowid FROM (SELECT DISTINCT thread_id FROM checkpoints WHERE doomed) AS p
    CROSS JOIN labels l ON l.thread_id = p.thread_id
    CROSS JOIN checkpoints d ON d.thread_id = l.thread_id AND d.checkpoint_ns = l.checkpoint_ns
        AND d.checkpoint_id = l.checkpoint_id AND d.doomed
    WHERE likelihood(p.thread_id IS NOT NULL, 0.00001)
)

-- name: purge_spare_needed
-- What a remaining checkpoint needs is hidden instead. `needed` walks from each remaining checkpoint to its ancestors,
-- with the delta channels whose seed was not found yet. `spared` adds the parents that hold the sends of checkpoints
-- older than format 4, because a hidden checkpoint has to be complete, too. If the parent of a checkpoint that becomes
-- hidden was missing already, its id is removed: no prune has cut off the history there.
WITH RECURSIVE places AS MATERIALIZED (
    SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints WHERE doomed
), staying AS MATERIALIZED (
    SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.format, c.inline_channels, c.blob_channels
    FROM places p
    CROSS JOIN checkpoints c ON c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns AND NOT c.doomed
    WHERE likelihood(p.thread_id IS NOT NULL, 0.00001)
), delta AS MATERIALIZED (
    SELECT p.thread_id, p.checkpoint_ns, json_group_array(DISTINCT u.value) AS channels
    FROM places p
    CROSS JOIN checkpoints c ON c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns
    CROSS JOIN json_each(c.delta_channels) AS u
    GROUP BY p.thread_id, p.checkpoint_ns
), needed (thread_id, checkpoint_ns, checkpoint_id, open) AS (
    SELECT s.thread_id, s.checkpoint_ns, s.parent_id, (
        SELECT json_group_array(value) FROM (SELECT value FROM json_each(x.channels) ORDER BY 1)
        WHERE value NOT IN (SELECT value FROM json_each(s.inline_channels))
        AND value NOT IN (SELECT value FROM json_each(s.blob_channels))
    )
    FROM delta x
    CROSS JOIN checkpoints s ON s.thread_id = x.thread_id AND s.checkpoint_ns = x.checkpoint_ns AND NOT s.doomed
    WHERE likelihood(x.channels <> '[]', 0.00001) AND s.parent_id IS NOT NULL
    UNION
    SELECT n.thread_id, n.checkpoint_ns, c.parent_id, (
        SELECT json_group_array(value) FROM json_each(n.open)
        WHERE value NOT IN (SELECT value FROM json_each(c.inline_channels))
        AND value NOT IN (SELECT value FROM json_each(c.blob_channels))
    )
    FROM needed n
    CROSS JOIN checkpoints c ON c.thread_id = n.thread_id AND c.checkpoint_ns = n.checkpoint_ns
        AND c.checkpoint_id = n.checkpoint_id
    WHERE likelihood(n.open <> '[]', 0.00001) AND c.parent_id IS NOT NULL
), spared (thread_id, checkpoint_ns, checkpoint_id) AS (
    SELECT * FROM (
        SELECT thread_id, checkpoint_ns, checkpoint_id FROM needed WHERE open <> '[]'
        UNION
        SELECT s.thread_id, s.checkpoint_ns, s.parent_id FROM staying s
        WHERE s.format < 4 AND EXISTS (
            SELECT 1 FROM writes w
            WHERE w.thread_id = s.thread_id AND w.checkpoint_ns = s.checkpoint_ns AND w.checkpoint_id = s.parent_id
            AND w.channel = '__pregel_tasks'
        )
    )
    UNION
    SELECT k.thread_id, k.checkpoint_ns, c.parent_id FROM spared k
    CROSS JOIN checkpoints c ON c.thread_id = k.thread_id AND c.checkpoint_ns = k.checkpoint_ns
        AND c.checkpoint_id = k.checkpoint_id AND c.format < 4
    WHERE likelihood(k.checkpoint_id IS NOT NULL, 0.00001) AND EXISTS (
        SELECT 1 FROM writes w
        WHERE w.thread_id = k.thread_id AND w.checkpoint_ns = k.checkpoint_ns AND w.checkpoint_id = c.parent_id
        AND w.channel = '__pregel_tasks'
    )
)
UPDATE checkpoints AS c SET doomed = 0, hidden = 1, parent_id = CASE
    WHEN c.hidden OR EXISTS (
        SELECT 1 FROM checkpoints p
        WHERE p.thread_id = c.thread_id AND p.checkpoint_ns = c.checkpoint_ns AND p.checkpoint_id = c.parent_id
    ) THEN c.parent_id
END
WHERE doomed AND (thread_id, checkpoint_ns, checkpoint_id) IN (SELECT * FROM spared)

-- name: purge_writes
DELETE FROM writes WHERE (thread_id, checkpoint_ns, checkpoint_id) IN (
    SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints WHERE doomed
)

-- name: purge_parents
-- If the parent of a remaining checkpoint is deleted, its id is removed. A hidden checkpoint keeps that id, so that
-- select_delta_history can tell a deleted parent from one that never existed.
UPDATE checkpoints SET parent_id = NULL WHERE (thread_id, checkpoint_ns, checkpoint_id) IN (
    SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id
    FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints WHERE doomed) AS p
    CROSS JOIN checkpoints c ON c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns
        AND NOT c.doomed AND NOT c.hidden
    CROSS JOIN checkpoints d ON d.thread_id = c.thread_id AND d.checkpoint_ns = c.checkpoint_ns
        AND d.checkpoint_id = c.parent_id AND d.doomed
    WHERE likelihood(p.thread_id IS NOT NULL, 0.00001)
)

-- name: purge_chunks
-- The chunks of deleted blobs, except those that a remaining blob shares.
DELETE FROM blobs WHERE rowid IN (SELECT b.rowid FROM (
    WITH going AS MATERIALIZED (
        SELECT b.thread_id, b.checkpoint_ns, b.channel, n.value AS name
        FROM (
            SELECT DISTINCT d.thread_id, d.checkpoint_ns, n.value AS channel, v.value AS version
            FROM checkpoints d, json_each(d.blob_channels) AS n, json_each(d.blob_versions) AS v
            WHERE d.doomed AND v.key = n.key
        ) AS r
        CROSS JOIN blobs b ON b.thread_id = r.thread_id AND b.checkpoint_ns = r.checkpoint_ns
            AND b.channel = r.channel AND b.version = r.version
        CROSS JOIN json_each(b.parts) AS n
    )
    SELECT thread_id, checkpoint_ns, channel, name FROM going
    EXCEPT
    SELECT b.thread_id, b.checkpoint_ns, b.channel, p.value
    FROM (
        SELECT DISTINCT c.thread_id, c.checkpoint_ns, n.value AS channel, v.value AS version
        FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM going) AS g
        CROSS JOIN checkpoints c ON c.thread_id = g.thread_id AND c.checkpoint_ns = g.checkpoint_ns AND NOT c.doomed
        CROSS JOIN json_each(c.blob_channels) AS n
        CROSS JOIN json_each(c.blob_versions) AS v ON v.key = n.key
        WHERE likelihood(g.thread_id IS NOT NULL, 0.00001)
    ) AS s
    CROSS JOIN blobs b ON b.thread_id = s.thread_id AND b.checkpoint_ns = s.checkpoint_ns AND b.channel = s.channel
        AND b.version = s.version
    CROSS JOIN json_each(b.parts) AS p
) AS g
CROSS JOIN blobs b ON b.thread_id = g.thread_id AND b.checkpoint_ns = g.checkpoint_ns AND b.channel = g.channel
    AND b.version = g.name
)

-- name: purge_blobs
DELETE FROM blobs WHERE rowid IN (SELECT b.rowid FROM (
    SELECT d.thread_id, d.checkpoint_ns, n.value AS channel, v.value AS version
    FROM checkpoints d, json_each(d.blob_channels) AS n, json_each(d.blob_versions) AS v
    WHERE d.doomed AND v.key = n.key
    EXCEPT
    SELECT c.thread_id, c.checkpoint_ns, n.value, v.value
    FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints WHERE doomed) AS p
    CROSS JOIN checkpoints c ON c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns AND NOT c.doomed
    CROSS JOIN json_each(c.blob_channels) AS n
    CROSS JOIN json_each(c.blob_versions) AS v ON v.key = n.key
    WHERE likelihood(p.thread_id IS NOT NULL, 0.00001)
) AS g
CROSS JOIN blobs b ON b.thread_id = g.thread_id AND b.checkpoint_ns = g.checkpoint_ns AND b.channel = g.channel
    AND b.version = g.version
)

-- name: purge_checkpoints
DELETE FROM checkpoints WHERE doomed

-- name: delete_run_writes
-- Sent after the purge_ blocks: what the runs wrote to checkpoints of other runs, such as the answer to an interrupt.
-- Writes of a hidden checkpoint, and those that a child is rebuilt from, remain for good.
WITH delta AS MATERIALIZED (
    SELECT DISTINCT p.checkpoint_ns, u.value AS channel
    FROM (
        SELECT DISTINCT o.checkpoint_ns FROM writes o
        WHERE o.thread_id = :thread_id AND o.run_id IN (SELECT value FROM json_each(:run_ids))
    ) AS p
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = p.checkpoint_ns
    CROSS JOIN json_each(c.delta_channels) AS u
    WHERE likelihood(p.checkpoint_ns IS NOT NULL, 0.00001)
)
DELETE FROM writes AS w
WHERE w.thread_id = :thread_id AND w.run_id IN (SELECT value FROM json_each(:run_ids))
AND NOT EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
    AND c.hidden
)
AND NOT EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns AND c.parent_id = w.checkpoint_id
    AND CASE w.channel
        WHEN '__pregel_tasks' THEN c.format < 4
        ELSE w.channel NOT IN (SELECT value FROM json_each(c.inline_channels))
        AND w.channel NOT IN (SELECT value FROM json_each(c.blob_channels))
        AND (w.checkpoint_ns, w.channel) IN (SELECT checkpoint_ns, channel FROM delta)
    END
)

-- name: copy_thread
-- differs: only checks whether the target has checkpoints or writes of its own.
SELECT t.checkpoint_id FROM checkpoints t
WHERE t.thread_id = :target AND NOT EXISTS (
    SELECT 1 FROM checkpoints s
    WHERE s.thread_id = :source AND s.checkpoint_ns = t.checkpoint_ns AND s.checkpoint_id = t.checkpoint_id
    AND s.parent_id IS t.parent_id AND s.hidden = t.hidden
)
UNION ALL
SELECT t.checkpoint_id FROM writes t
WHERE t.thread_id = :target AND NOT EXISTS (
    SELECT 1 FROM writes s
    WHERE s.thread_id = :source AND s.checkpoint_ns = t.checkpoint_ns AND s.checkpoint_id = t.checkpoint_id
    AND s.task_id = t.task_id AND s.idx = t.idx AND s.type = t.type AND s.value = t.value
)
LIMIT 1

-- name: copy_thread_checkpoints
-- differs: a part of copy_thread in postgres.sql. No condition is needed: if the target has rows of its own, the
-- operation raises and the transaction is rolled back.
INSERT INTO checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden,
    inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter
)
SELECT
    :target, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden,
    inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata,
    CASE WHEN metadata_filter ->> '$.thread_id' = :source_json
        THEN json_set(metadata_filter, '$.thread_id', :target_json) ELSE metadata_filter END
FROM checkpoints WHERE thread_id = :source
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING

-- name: copy_thread_blobs
-- differs: as copy_thread_checkpoints.
INSERT INTO blobs (thread_id, checkpoint_ns, channel, version, type, value, parts)
SELECT :target, checkpoint_ns, channel, version, type, value, parts FROM blobs WHERE thread_id = :source
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: copy_thread_writes
-- differs: as copy_thread_checkpoints.
INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value)
SELECT :target, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
FROM writes WHERE thread_id = :source
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO NOTHING

-- name: copy_thread_labels
-- differs: as copy_thread_checkpoints.
INSERT INTO labels (thread_id, name, checkpoint_ns, checkpoint_id)
SELECT :target, name, checkpoint_ns, checkpoint_id FROM labels WHERE thread_id = :source
ON CONFLICT (thread_id, name) DO NOTHING

-- name: claim_sweep
-- Claims that expired more than a day ago and were not taken over.
DELETE FROM claims WHERE thread_id IN (
    SELECT thread_id FROM claims
    WHERE expires_at < (julianday('now') - 2440588.5) * 86400.0 ORDER BY thread_id LIMIT 100
)

-- name: claim_take
-- A claim that has expired is taken over. The same token may be sent again, after an answer was lost.
INSERT INTO claims AS c (thread_id, token, owner, expires_at)
VALUES (
    :thread_id, :claim, :owner, (julianday('now') - 2440587.5) * 86400.0 + :ttl_seconds
)
ON CONFLICT (thread_id) DO UPDATE
SET token = excluded.token, owner = excluded.owner, expires_at = excluded.expires_at
WHERE c.expires_at <= (julianday('now') - 2440587.5) * 86400.0 OR c.token = excluded.token

-- name: claim_holder
SELECT token, owner, expires_at FROM claims
WHERE thread_id = :thread_id

-- name: renew_claim
UPDATE claims SET expires_at = (julianday('now') - 2440587.5) * 86400.0 + :ttl_seconds
WHERE thread_id = :thread_id AND token = :claim
RETURNING token

-- name: release_claim
DELETE FROM claims WHERE thread_id = :thread_id AND token = :claim
RETURNING token

-- The stored_ blocks read a page of the rows of a tenant. The renew_stored_ blocks replace the bytes of one row, unless
-- another transaction has changed them.

-- name: stored_checkpoints
SELECT thread_id, checkpoint_ns, checkpoint_id, checkpoint_type, checkpoint, metadata_type, metadata,
    metadata_filter
FROM checkpoints
WHERE (thread_id, checkpoint_ns, checkpoint_id) > (:thread_id, :checkpoint_ns, :checkpoint_id)
AND +tenant = :tenant
ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT :limit

-- name: stored_blobs
SELECT thread_id, checkpoint_ns, channel, version, type, value, parts FROM blobs
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

-- Threads and their runs, without values. A thread's newest checkpoint is that of its first namespace, which is the
-- root graph's if there is one.

-- name: threads_newest
-- Walks down from the newest checkpoint of all threads and skips those that are not the newest of their thread. It
-- reads `reach` checkpoints at most. The order of the inner query is kept; with one order for both, many more rows
-- would be read for the last few of a page.
SELECT r.* FROM (
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata FROM checkpoints
    WHERE tenant = :tenant AND checkpoint_id <= :before AND NOT hidden
    AND (checkpoint_id, thread_id) < (:before, :thread_below)
    ORDER BY checkpoint_id DESC, thread_id DESC
    LIMIT :reach
) AS r
WHERE r.checkpoint_id = (
    SELECT max(n.checkpoint_id) FROM checkpoints n
    WHERE n.thread_id = r.thread_id AND n.checkpoint_ns = r.checkpoint_ns AND NOT n.hidden
)
AND r.checkpoint_ns = (SELECT min(n.checkpoint_ns) FROM checkpoints n WHERE n.thread_id = r.thread_id)
LIMIT :limit

-- A statement starts with thread_heads, or with a _candidates block and candidate_heads. It ends with heads_page,
-- heads_count or recent_page. Heads are the newest checkpoints of the threads that match.

-- name: thread_heads
-- Steps from thread to thread by id, in ranges that contain no other tenant's threads.
WITH RECURSIVE found (thread_id, top) AS (
    SELECT (
        SELECT c.thread_id FROM checkpoints c
        WHERE c.thread_id >= r.value AND c.thread_id < :tops ->> r.key ORDER BY c.thread_id LIMIT 1
    ), :tops ->> r.key
    FROM json_each(:bottoms) AS r
    UNION ALL
    SELECT (
        SELECT c.thread_id FROM checkpoints c
        WHERE c.thread_id > f.thread_id AND c.thread_id < f.top ORDER BY c.thread_id LIMIT 1
    ), f.top
    FROM found f WHERE f.thread_id IS NOT NULL
), heads AS MATERIALIZED (
    SELECT
        h.thread_id, h.checkpoint_ns, h.checkpoint_id, h.parent_id, h.run_id, h.metadata_type, h.metadata,
        h.metadata_filter
    FROM found f
    CROSS JOIN checkpoints h ON h.thread_id = f.thread_id AND h.checkpoint_ns = (
        SELECT n.checkpoint_ns FROM checkpoints n WHERE n.thread_id = f.thread_id ORDER BY n.checkpoint_ns LIMIT 1
    ) AND h.checkpoint_id = (
        SELECT n.checkpoint_id FROM checkpoints n
        WHERE n.thread_id = f.thread_id AND n.checkpoint_ns = h.checkpoint_ns AND NOT n.hidden
        ORDER BY n.checkpoint_id DESC LIMIT 1
    )
    WHERE likelihood(f.thread_id IS NOT NULL, 0.00001) AND (:filter = '{}' OR NOT EXISTS (
        SELECT 1 FROM json_each(:filter) AS f LEFT JOIN json_each(h.metadata_filter) AS m ON m.key = f.key
        WHERE f.value <> CASE
            WHEN m.key IS NOT NULL THEN coalesce(m.value, f.value)
            WHEN EXISTS (SELECT 1 FROM json_each(h.metadata_filter) AS o WHERE o.key = '*') THEN f.value
            ELSE 'null'
        END
    ))
)

-- name: recent_candidates
-- The newest checkpoints. If many threads match a filter, enough of them are found here, and not all threads have to be
-- read. Only the newest checkpoint of each namespace is a candidate, in the order of the page. So a busy thread takes a
-- thirtieth of the time that as many other threads take.
-- differs: the second LIMIT removes nothing. Without it, SQLite may ignore the order of the subquery.
WITH recent AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints
    WHERE tenant = :tenant AND checkpoint_id <= :before AND NOT hidden
    AND (checkpoint_id, thread_id) < (:before, :thread_below)
    ORDER BY checkpoint_id DESC, thread_id DESC LIMIT :reach
), candidates AS (
    SELECT thread_id, checkpoint_ns, max(checkpoint_id) AS checkpoint_id FROM recent
    GROUP BY thread_id, checkpoint_ns
    ORDER BY 3 DESC, thread_id DESC LIMIT :reach
)

-- name: searched_candidates
-- The checkpoints that an index finds by a metadata key. Only the newest one of each namespace can be a thread's
-- newest.
-- differs: INDEXED BY. With statistics, SQLite would otherwise read the complete table, because the index begins with
-- the tenant, which is the same in most rows.
WITH candidates AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, max(checkpoint_id) AS checkpoint_id FROM checkpoints INDEXED BY searchable_key
    WHERE tenant = :tenant AND coalesce(
        json_extract(metadata_filter, '$."searchable key"'),
        CASE
            WHEN json_type(metadata_filter, '$."searchable key"') IS NULL
                AND json_type(metadata_filter, '$."*"') IS NULL THEN 'null'
            ELSE '?'
        END
    ) IN (:shown, '?') AND NOT hidden
    GROUP BY thread_id, checkpoint_ns
)

-- name: candidate_heads
-- In the order of the candidates, and no more than are asked for. If this were materialized, all candidates would be
-- read before the page begins.
, heads AS NOT MATERIALIZED (
    SELECT
        h.thread_id, h.checkpoint_ns, h.checkpoint_id, h.parent_id, h.run_id, h.metadata_type, h.metadata,
        h.metadata_filter
    FROM candidates r
    CROSS JOIN checkpoints h ON h.thread_id = r.thread_id AND h.checkpoint_ns = r.checkpoint_ns
        AND h.checkpoint_id = r.checkpoint_id
    WHERE r.checkpoint_id = (
        SELECT max(n.checkpoint_id) FROM checkpoints n
        WHERE n.thread_id = r.thread_id AND n.checkpoint_ns = r.checkpoint_ns AND NOT n.hidden
    )
    AND r.checkpoint_ns = (SELECT min(n.checkpoint_ns) FROM checkpoints n WHERE n.thread_id = r.thread_id)
    AND NOT EXISTS (
        SELECT 1 FROM json_each(:filter) AS f LEFT JOIN json_each(h.metadata_filter) AS m ON m.key = f.key
        WHERE f.value <> CASE
            WHEN m.key IS NOT NULL THEN coalesce(m.value, f.value)
            WHEN EXISTS (SELECT 1 FROM json_each(h.metadata_filter) AS o WHERE o.key = '*') THEN f.value
            ELSE 'null'
        END
    )
)

-- name: heads_page
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata FROM heads
WHERE (checkpoint_id, thread_id) < (:before, :thread_below)
ORDER BY checkpoint_id DESC, thread_id DESC LIMIT :limit

-- name: recent_page
-- In the order of the candidates. If there may be more checkpoints, an additional row has only NULLs.
SELECT * FROM (
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata FROM heads LIMIT :limit
)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE (SELECT count(*) FROM recent) = :reach

-- name: heads_count
-- The number of heads that certainly match, and a row for each head for which only the metadata itself decides.
, sure AS MATERIALIZED (
    SELECT *, NOT EXISTS (
        SELECT 1 FROM json_each(:filter) AS f LEFT JOIN json_each(heads.metadata_filter) AS m ON m.key = f.key
        WHERE m.value IS NULL
    ) AS is_sure
    FROM heads
)
SELECT count(*), NULL, NULL, NULL, NULL, NULL FROM sure WHERE is_sure
UNION ALL
SELECT NULL, thread_id, checkpoint_ns, checkpoint_id, metadata_type, metadata FROM sure WHERE NOT is_sure

-- name: thread_exists
SELECT 1 FROM checkpoints WHERE thread_id = :thread_id ORDER BY checkpoint_ns LIMIT 1

-- name: select_runs
-- The checkpoints of the root graph, by run. For the last checkpoint of each run: whether its parent holds sends for
-- it, and the channels with a value, which show what is left to do. For channels of two kinds, the value decides; it
-- may be part of the document. A value in chunks is not empty.
WITH runs AS MATERIALIZED (
    SELECT run_id, min(checkpoint_id) AS first_id, max(checkpoint_id) AS last_id, count(*) AS checkpoints
    FROM checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = '' AND NOT hidden
    GROUP BY run_id
)
SELECT
    r.last_id, r.run_id, r.first_id, r.checkpoints, c.format < 4 AND EXISTS (
        SELECT 1 FROM writes w
        WHERE w.thread_id = :thread_id AND w.checkpoint_ns = '' AND w.checkpoint_id = c.parent_id
        AND w.channel = '__pregel_tasks'
    ), c.inline_channels, c.blob_channels, NULL AS channel, NULL AS version, NULL AS type, NULL AS value, NULL AS parts
FROM runs r
CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = '' AND c.checkpoint_id = r.last_id
WHERE likelihood(r.last_id IS NOT NULL, 0.00001)
UNION ALL
SELECT
    r.last_id, NULL, NULL, NULL, NULL, NULL, NULL, n.value, b.version, b.type,
    CASE WHEN b.parts IS NULL THEN b.value END, b.parts
FROM runs r
CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = '' AND c.checkpoint_id = r.last_id
CROSS JOIN json_each(c.blob_channels) AS n ON n.value = '__pregel_tasks' OR substr(n.value, 1, 5) = 'join:'
CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = '' AND b.channel = n.value
    AND b.version = c.blob_versions ->> n.key
WHERE likelihood(r.last_id IS NOT NULL, 0.00001)
UNION ALL
SELECT r.last_id, NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, c.checkpoint_type, c.checkpoint, NULL
FROM runs r
CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = '' AND c.checkpoint_id = r.last_id
WHERE likelihood(r.last_id IS NOT NULL, 0.00001) AND EXISTS (
    SELECT 1 FROM json_each(c.inline_channels) AS n WHERE n.value = '__pregel_tasks' OR substr(n.value, 1, 5) = 'join:'
)

-- name: rows_record
-- Ends a statement that a page_ block starts: the columns of a checkpoint's record.
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata FROM page

-- Labels.

-- name: label_checkpoint
-- A row with the checkpoint that has the name, which may be another one, and with the id of the one that was to get it;
-- no row if that does not exist. The update changes nothing. On PostgreSQL, it waits for a transaction that deletes the
-- label; after that, the name is free.
INSERT INTO labels (thread_id, name, checkpoint_ns, checkpoint_id)
SELECT c.thread_id, :name, c.checkpoint_ns, c.checkpoint_id FROM checkpoints c
WHERE c.thread_id = :thread_id AND c.checkpoint_ns = :checkpoint_ns AND NOT c.hidden
AND c.checkpoint_id = coalesce(:checkpoint_id, (
    SELECT n.checkpoint_id FROM checkpoints n
    WHERE n.thread_id = :thread_id AND n.checkpoint_ns = :checkpoint_ns AND NOT n.hidden
    ORDER BY n.checkpoint_id DESC LIMIT 1
))
ON CONFLICT (thread_id, name) DO UPDATE SET name = excluded.name
RETURNING checkpoint_ns, checkpoint_id, coalesce(:checkpoint_id, (
    SELECT n.checkpoint_id FROM checkpoints n
    WHERE n.thread_id = :thread_id AND n.checkpoint_ns = :checkpoint_ns AND NOT n.hidden
    ORDER BY n.checkpoint_id DESC LIMIT 1
))

-- name: delete_label
DELETE FROM labels WHERE thread_id = :thread_id AND name = :name
RETURNING name

-- name: select_labels
SELECT name, checkpoint_ns, checkpoint_id FROM labels
WHERE thread_id = :thread_id ORDER BY name

-- Deleting one checkpoint, or everything after one. A mark_ block marks what is to be deleted, and the hidden
-- checkpoints of these namespaces, which may have been retained only for that. It returns no row if the named
-- checkpoint does not exist. A checkpoint that is stored in the thread after that, without its lock, is not looked at.
-- The refuse_labelled blocks return the labels that prevent the deletion and, if there are any, take the marks back.
-- delete_open_writes and delete_later_writes are sent between the purge_ blocks, once it is known what is spared.

-- name: mark_checkpoint
-- With a root checkpoint, the subgraph calls that it started are deleted. If it was the newest one, the tasks of the
-- checkpoint that becomes the newest run again. So the subgraph calls that these have started are deleted as well, and
-- what subgraphs with a memory have stored since. This does not hold if the deleted checkpoint is on another branch.
WITH gone AS MATERIALIZED (
    SELECT t.parent_id, (
        SELECT max(n.checkpoint_id) FROM checkpoints n
        WHERE n.thread_id = :thread_id AND n.checkpoint_ns = :checkpoint_ns AND n.checkpoint_id <> :checkpoint_id
        AND NOT n.hidden
    ) AS other_id
    FROM checkpoints t
    WHERE t.thread_id = :thread_id AND t.checkpoint_ns = :checkpoint_ns AND t.checkpoint_id = :checkpoint_id
    AND NOT t.hidden
), again AS MATERIALIZED (
    SELECT coalesce(g.other_id, :checkpoint_id) AS first_id FROM gone g
    WHERE :checkpoint_ns = '' AND (
        g.other_id IS NULL
        OR (g.other_id < :checkpoint_id AND (g.parent_id IS NULL OR g.parent_id = g.other_id))
    )
)
UPDATE checkpoints SET doomed = 1
WHERE thread_id = :thread_id AND EXISTS (SELECT 1 FROM gone) AND (
    (checkpoint_ns = :checkpoint_ns AND (hidden OR checkpoint_id = :checkpoint_id))
    OR (:checkpoint_ns = '' AND instr(checkpoint_ns, ':') > 0 AND root_id = :checkpoint_id)
    OR (
        checkpoint_ns <> '' AND EXISTS (SELECT 1 FROM again)
        AND (hidden OR root_id >= (SELECT first_id FROM again))
    )
)
RETURNING checkpoint_id

-- name: mark_later
-- In all namespaces. The checkpoint itself is returned without a mark, because there may be nothing after it.
UPDATE checkpoints SET doomed = (checkpoint_ns, checkpoint_id) <> (:checkpoint_ns, :checkpoint_id)
WHERE thread_id = :thread_id AND (
    hidden OR checkpoint_id > :checkpoint_id OR (checkpoint_ns <> '' AND root_id >= :checkpoint_id)
    OR (checkpoint_ns = :checkpoint_ns AND checkpoint_id = :checkpoint_id)
) AND EXISTS (
    SELECT 1 FROM checkpoints t
    WHERE t.thread_id = :thread_id AND t.checkpoint_ns = :checkpoint_ns AND t.checkpoint_id = :checkpoint_id
    AND NOT t.hidden
)
RETURNING checkpoint_id

-- name: refuse_labelled
SELECT l.name FROM labels l
CROSS JOIN checkpoints d ON d.thread_id = l.thread_id AND d.checkpoint_ns = l.checkpoint_ns
    AND d.checkpoint_id = l.checkpoint_id AND d.doomed
WHERE l.thread_id = :thread_id
ORDER BY l.name

-- name: refuse_labelled_release
UPDATE checkpoints SET doomed = 0
WHERE thread_id = :thread_id AND doomed AND EXISTS (
    SELECT 1 FROM labels l
    CROSS JOIN checkpoints d ON d.thread_id = l.thread_id AND d.checkpoint_ns = l.checkpoint_ns
        AND d.checkpoint_id = l.checkpoint_id AND d.doomed
    WHERE l.thread_id = :thread_id
)

-- name: delete_open_writes
-- When a namespace loses its newest checkpoint, the writes of the checkpoint that becomes the newest belong to what is
-- deleted. LangGraph would take them for the outputs of tasks that have run already. So they are deleted, except those
-- that a remaining child is rebuilt from. If the deleted checkpoint is on another branch, the writes remain: their
-- tasks are still to go on.
WITH lost AS MATERIALIZED (
    SELECT checkpoint_ns, max(checkpoint_id) AS checkpoint_id
    FROM checkpoints WHERE thread_id = :thread_id AND doomed AND NOT hidden
    GROUP BY checkpoint_ns
), heads AS MATERIALIZED (
    SELECT x.checkpoint_ns, h.checkpoint_id
    FROM lost x
    CROSS JOIN checkpoints h ON h.thread_id = :thread_id AND h.checkpoint_ns = x.checkpoint_ns AND h.checkpoint_id = (
        SELECT c.checkpoint_id FROM checkpoints c
        WHERE c.thread_id = :thread_id AND c.checkpoint_ns = x.checkpoint_ns AND NOT c.doomed AND NOT c.hidden
        ORDER BY c.checkpoint_id DESC LIMIT 1
    )
    WHERE likelihood(h.checkpoint_id < x.checkpoint_id, 0.00001) AND EXISTS (
        SELECT 1 FROM checkpoints d
        WHERE d.thread_id = :thread_id AND d.checkpoint_ns = x.checkpoint_ns AND d.doomed
        AND (d.parent_id = h.checkpoint_id OR (d.parent_id IS NULL AND NOT d.hidden))
    )
), delta AS MATERIALIZED (
    SELECT DISTINCT h.checkpoint_ns, u.value AS channel
    FROM heads h
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = h.checkpoint_ns
    CROSS JOIN json_each(c.delta_channels) AS u
    WHERE likelihood(h.checkpoint_id IS NOT NULL, 0.00001)
)
DELETE FROM writes WHERE rowid IN (
    SELECT w.rowid FROM heads h
    CROSS JOIN writes w ON w.thread_id = :thread_id AND w.checkpoint_ns = h.checkpoint_ns
        AND w.checkpoint_id = h.checkpoint_id
    WHERE likelihood(h.checkpoint_id IS NOT NULL, 0.00001) AND NOT EXISTS (
        SELECT 1 FROM checkpoints c
        WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns AND c.parent_id = w.checkpoint_id
        AND NOT c.doomed
        AND CASE w.channel
            WHEN '__pregel_tasks' THEN c.format < 4
            ELSE w.channel NOT IN (SELECT value FROM json_each(c.inline_channels))
            AND w.channel NOT IN (SELECT value FROM json_each(c.blob_channels))
            AND (w.checkpoint_ns, w.channel) IN (SELECT checkpoint_ns, channel FROM delta)
        END
    )
)

-- name: delete_later_writes
-- Writes whose checkpoint was never stored.
DELETE FROM writes
WHERE thread_id = :thread_id AND +checkpoint_id > :checkpoint_id
AND EXISTS (
    SELECT 1 FROM checkpoints d WHERE d.thread_id = :thread_id AND d.doomed AND NOT d.hidden
)
AND NOT EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = writes.thread_id AND c.checkpoint_ns = writes.checkpoint_ns
    AND c.checkpoint_id = writes.checkpoint_id
)

-- A fork: a copy of one checkpoint of the root graph, with what it needs, to an empty thread.

-- name: select_fork_point
-- The checkpoint that is named, or the last one of a run, or the newest one; and the newest one of the target, if that
-- has any.
SELECT 'point', checkpoint_id, metadata_type, metadata FROM checkpoints
WHERE thread_id = :source AND checkpoint_ns = '' AND NOT hidden AND checkpoint_id = coalesce(:checkpoint_id, (
    SELECT n.checkpoint_id FROM checkpoints n
    WHERE n.thread_id = :source AND n.checkpoint_ns = '' AND NOT n.hidden
    AND (:run_id IS NULL OR +n.run_id = :run_id)
    ORDER BY n.checkpoint_id DESC LIMIT 1
))
UNION ALL
SELECT 'target', n.checkpoint_id, n.metadata_type, n.metadata
FROM (SELECT 1 FROM checkpoints WHERE thread_id = :target ORDER BY checkpoint_ns LIMIT 1) AS there
LEFT JOIN (
    SELECT * FROM checkpoints
    WHERE thread_id = :target AND checkpoint_ns = '' AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
) AS n

-- name: fork_thread
-- differs: only finds what prevents the fork. If nothing does, the store_fork_ blocks are sent.
SELECT 'exists' WHERE EXISTS (SELECT 1 FROM checkpoints WHERE thread_id = :target)
UNION ALL
SELECT 'gone' WHERE NOT EXISTS (
    SELECT 1 FROM checkpoints
    WHERE thread_id = :source AND checkpoint_ns = '' AND checkpoint_id = :checkpoint_id AND NOT hidden
    AND (:named OR checkpoint_id = (  -- It is still the one that is meant.
        SELECT n.checkpoint_id FROM checkpoints n
        WHERE n.thread_id = :source AND n.checkpoint_ns = '' AND NOT n.hidden
        AND (:run_id IS NULL OR n.run_id = :run_id)
        ORDER BY n.checkpoint_id DESC LIMIT 1
    ))
)

-- name: store_fork_checkpoints
-- differs: a part of fork_thread in postgres.sql. What may be needed is copied as hidden and marked for deletion
-- (`doomed`), and the purge_ blocks that follow spare what is needed. If the checkpoint is the newest one, its
-- superstep is open: its writes and the subgraph calls that it started belong to it. Otherwise they belong to what came
-- after it. For each subgraph with a memory of its own, the checkpoint that a run from here goes on from is copied.
INSERT INTO checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden, doomed,
    inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter
)
WITH RECURSIVE point AS MATERIALIZED (
    SELECT NOT EXISTS (
        SELECT 1 FROM checkpoints n
        WHERE n.thread_id = :source AND n.checkpoint_ns = '' AND n.checkpoint_id > :checkpoint_id AND NOT n.hidden
    ) AS is_open
), spaces AS MATERIALIZED (
    SELECT DISTINCT checkpoint_ns FROM checkpoints WHERE thread_id = :source AND checkpoint_ns <> ''
), kept AS MATERIALIZED (
    SELECT '' AS checkpoint_ns, :checkpoint_id AS checkpoint_id
    UNION ALL
    SELECT s.checkpoint_ns, h.checkpoint_id
    FROM point p
    CROSS JOIN spaces s
    CROSS JOIN checkpoints h ON h.thread_id = :source AND h.checkpoint_ns = s.checkpoint_ns AND h.checkpoint_id = (
        SELECT c.checkpoint_id FROM checkpoints c
        WHERE c.thread_id = :source AND c.checkpoint_ns = s.checkpoint_ns AND NOT c.hidden
        AND (p.is_open OR c.checkpoint_id < :checkpoint_id)
        ORDER BY c.checkpoint_id DESC LIMIT 1
    )
    WHERE likelihood(instr(s.checkpoint_ns, ':') = 0 OR (p.is_open AND h.root_id = :checkpoint_id), 0.00001)
), delta AS MATERIALIZED (
    SELECT k.checkpoint_ns, json_group_array(DISTINCT u.value) AS channels
    FROM kept k
    CROSS JOIN checkpoints c ON c.thread_id = :source AND c.checkpoint_ns = k.checkpoint_ns
    CROSS JOIN json_each(c.delta_channels) AS u
    WHERE likelihood(k.checkpoint_id IS NOT NULL, 0.00001)
    GROUP BY k.checkpoint_ns
), needed (checkpoint_ns, checkpoint_id, open) AS (
    SELECT k.checkpoint_ns, k.checkpoint_id, (SELECT json_group_array(value) FROM (
        SELECT value FROM json_each(x.channels) ORDER BY 1
    ))
    FROM kept k CROSS JOIN delta x ON x.checkpoint_ns = k.checkpoint_ns
    UNION
    SELECT n.checkpoint_ns, c.parent_id, (
        SELECT json_group_array(value) FROM json_each(n.open)
        WHERE value NOT IN (SELECT value FROM json_each(c.inline_channels))
        AND value NOT IN (SELECT value FROM json_each(c.blob_channels))
    )
    FROM needed n
    CROSS JOIN checkpoints c ON c.thread_id = :source AND c.checkpoint_ns = n.checkpoint_ns
        AND c.checkpoint_id = n.checkpoint_id
    WHERE likelihood(n.open <> '[]', 0.00001) AND c.parent_id IS NOT NULL
), lineage (checkpoint_ns, checkpoint_id) AS (
    SELECT * FROM (
        SELECT checkpoint_ns, checkpoint_id FROM kept
        UNION
        SELECT checkpoint_ns, checkpoint_id FROM needed WHERE open <> '[]'
    )
    UNION
    SELECT k.checkpoint_ns, c.parent_id
    FROM lineage k
    CROSS JOIN checkpoints c ON c.thread_id = :source AND c.checkpoint_ns = k.checkpoint_ns
        AND c.checkpoint_id = k.checkpoint_id AND c.format < 4
    WHERE likelihood(k.checkpoint_id IS NOT NULL, 0.00001) AND EXISTS (
        SELECT 1 FROM writes w
        WHERE w.thread_id = :source AND w.checkpoint_ns = k.checkpoint_ns AND w.checkpoint_id = c.parent_id
        AND w.channel = '__pregel_tasks'
    )
), picked AS MATERIALIZED (
    SELECT checkpoint_ns, checkpoint_id, (checkpoint_ns, checkpoint_id) NOT IN (SELECT * FROM kept) AS is_past
    FROM lineage
)
SELECT
    :target, r.checkpoint_ns, r.checkpoint_id, CASE
        WHEN r.hidden OR EXISTS (
            SELECT 1 FROM checkpoints o
            WHERE o.thread_id = :source AND o.checkpoint_ns = r.checkpoint_ns AND o.checkpoint_id = r.parent_id
            AND (
                k.is_past
                OR (o.checkpoint_ns, o.checkpoint_id) IN (SELECT a.checkpoint_ns, a.checkpoint_id FROM picked a)
            )
        ) THEN r.parent_id
    END, r.root_id, r.run_id, r.format, k.is_past, k.is_past,
    r.inline_channels, r.delta_channels, r.blob_channels, r.blob_versions, r.checkpoint_type, r.checkpoint,
    CASE WHEN r.checkpoint_ns = '' AND NOT k.is_past THEN :metadata_type ELSE r.metadata_type END,
    CASE WHEN r.checkpoint_ns = '' AND NOT k.is_past THEN :metadata ELSE r.metadata END,
    CASE
        WHEN r.checkpoint_ns = '' AND NOT k.is_past THEN :metadata_filter
        WHEN r.metadata_filter ->> '$.thread_id' = :source_json
        THEN json_set(r.metadata_filter, '$.thread_id', :target_json)
        ELSE r.metadata_filter
    END
FROM picked k
CROSS JOIN checkpoints r ON r.thread_id = :source AND r.checkpoint_ns = k.checkpoint_ns
    AND r.checkpoint_id = k.checkpoint_id
WHERE likelihood(k.checkpoint_id IS NOT NULL, 0.00001)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING

-- name: store_fork_blobs
-- differs: as store_fork_checkpoints.
INSERT INTO blobs (thread_id, checkpoint_ns, channel, version, type, value, parts)
SELECT :target, b.checkpoint_ns, b.channel, b.version, b.type, b.value, b.parts
FROM (
    SELECT DISTINCT t.checkpoint_ns, n.value AS channel, t.blob_versions ->> n.key AS version
    FROM checkpoints t CROSS JOIN json_each(t.blob_channels) AS n
    WHERE t.thread_id = :target
) AS r
CROSS JOIN blobs b ON b.thread_id = :source AND b.checkpoint_ns = r.checkpoint_ns
    AND b.channel = r.channel AND b.version = r.version
WHERE true
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: store_fork_parts
-- differs: as store_fork_checkpoints.
INSERT INTO blobs (thread_id, checkpoint_ns, channel, version, type, value, parts)
SELECT :target, b.checkpoint_ns, b.channel, b.version, b.type, b.value, b.parts
FROM (
    SELECT DISTINCT t.checkpoint_ns, t.channel, n.value AS name
    FROM blobs t CROSS JOIN json_each(t.parts) AS n
    WHERE t.thread_id = :target
) AS r
CROSS JOIN blobs b ON b.thread_id = :source AND b.checkpoint_ns = r.checkpoint_ns
    AND b.channel = r.channel AND b.version = r.name
WHERE true
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: store_fork_writes
-- differs: as store_fork_checkpoints.
INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value)
SELECT :target, w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx, w.task_path, w.run_id, w.channel, w.type, w.value
FROM checkpoints t
CROSS JOIN writes w ON w.thread_id = :source AND w.checkpoint_ns = t.checkpoint_ns AND w.checkpoint_id = t.checkpoint_id
WHERE t.thread_id = :target AND (t.doomed OR NOT EXISTS (
    SELECT 1 FROM checkpoints n
    WHERE n.thread_id = :source AND n.checkpoint_ns = '' AND n.checkpoint_id > :checkpoint_id AND NOT n.hidden
))
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO NOTHING

-- name: select_interrupts
-- Steps from thread to thread among those with a stored interrupt, `limit` threads in each range; `more` says where to
-- go on. For each thread: the newest checkpoint of the root graph, if it has an interrupt, and its writes. Only
-- interrupts come with their values.
WITH RECURSIVE found (thread_id, top, number) AS (
    SELECT (
        SELECT w.thread_id FROM writes w
        WHERE w.channel = '__interrupt__' AND w.thread_id >= r.value AND w.thread_id < :tops ->> r.key
        ORDER BY w.thread_id LIMIT 1
    ), :tops ->> r.key, 1
    FROM json_each(:bottoms) AS r
    UNION ALL
    SELECT (
        SELECT w.thread_id FROM writes w
        WHERE w.channel = '__interrupt__' AND w.thread_id > f.thread_id AND w.thread_id < f.top
        ORDER BY w.thread_id LIMIT 1
    ), f.top, f.number + 1
    FROM found f WHERE f.thread_id IS NOT NULL AND f.number < :limit
), heads AS MATERIALIZED (
    SELECT c.thread_id, c.checkpoint_id, c.checkpoint_type, c.checkpoint
    FROM found f
    CROSS JOIN checkpoints c ON c.thread_id = f.thread_id AND c.checkpoint_ns = '' AND c.checkpoint_id = (
        SELECT n.checkpoint_id FROM checkpoints n
        WHERE n.thread_id = f.thread_id AND n.checkpoint_ns = '' AND NOT n.hidden
        ORDER BY n.checkpoint_id DESC LIMIT 1
    )
    WHERE likelihood(f.thread_id IS NOT NULL, 0.00001) AND EXISTS (
        SELECT 1 FROM writes w
        WHERE w.thread_id = c.thread_id AND w.checkpoint_ns = '' AND w.checkpoint_id = c.checkpoint_id
        AND +w.channel = '__interrupt__'
    )
)
SELECT
    'checkpoint' AS kind, thread_id, checkpoint_id, NULL AS channel, NULL AS task_id, NULL AS task_path, NULL AS idx,
    checkpoint_type AS type, checkpoint AS value
FROM heads
UNION ALL
SELECT
    'write', w.thread_id, w.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type,
    CASE w.channel WHEN '__interrupt__' THEN w.value END
FROM heads h
CROSS JOIN writes w ON w.thread_id = h.thread_id AND w.checkpoint_ns = '' AND w.checkpoint_id = h.checkpoint_id
WHERE likelihood(h.checkpoint_id IS NOT NULL, 0.00001)
UNION ALL
SELECT 'more', thread_id, top, NULL, NULL, NULL, NULL, NULL, NULL
FROM found WHERE number = :limit AND thread_id IS NOT NULL

-- name: select_write_places
SELECT task_path, task_id, idx FROM writes
WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id = :checkpoint_id

-- The catalog_ blocks read what the database has, one line for each thing. The lines are those of `shipped.txt` in the
-- migrations if nothing was changed.

-- name: catalog_lines
WITH ours AS MATERIALIZED (
    SELECT name, strict FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
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
SELECT type || ' ' || name FROM sqlite_schema WHERE type IN ('view', 'trigger')
ORDER BY 1

-- The sizes_ blocks count rows and bytes. They do not read values, only their lengths.

-- name: sizes_of_threads
SELECT t.value,
    (SELECT count(*) FROM checkpoints k WHERE k.thread_id = t.value AND NOT k.hidden),
    (SELECT count(*) FROM checkpoints k WHERE k.thread_id = t.value AND k.hidden),
    (SELECT count(*) FROM writes k WHERE k.thread_id = t.value),
    (SELECT count(*) FROM blobs k WHERE k.thread_id = t.value),
    (SELECT coalesce(sum(length(k.checkpoint) + length(k.metadata)), 0) FROM checkpoints k WHERE k.thread_id = t.value)
    + (SELECT coalesce(sum(length(k.value)), 0) FROM writes k WHERE k.thread_id = t.value)
    + (SELECT coalesce(sum(length(k.value)), 0) FROM blobs k WHERE k.thread_id = t.value)
FROM json_each(:thread_ids) AS t

-- name: sizes_of_namespaces
SELECT p.checkpoint_ns, sum(p.checkpoints), sum(p.rows), sum(p.bytes), min(p.first), max(p.last)
FROM (
    SELECT checkpoint_ns, count(*) FILTER (WHERE NOT hidden) AS checkpoints, count(*) AS rows,
        sum(length(checkpoint) + length(metadata)) AS bytes,
        min(checkpoint_id) AS first, max(checkpoint_id) AS last
    FROM checkpoints WHERE thread_id = :thread_id GROUP BY checkpoint_ns
    UNION ALL
    SELECT checkpoint_ns, 0, count(*), sum(length(value)), NULL, NULL
    FROM blobs WHERE thread_id = :thread_id GROUP BY checkpoint_ns
    UNION ALL
    SELECT checkpoint_ns, 0, count(*), sum(length(value)), NULL, NULL
    FROM writes WHERE thread_id = :thread_id GROUP BY checkpoint_ns
) AS p
GROUP BY p.checkpoint_ns ORDER BY 4 DESC, 1 LIMIT :limit

-- name: sizes_of_channels
SELECT p.checkpoint_ns, p.channel, sum(p.versions), sum(p.parts), sum(p.writes), sum(p.bytes)
FROM (
    SELECT checkpoint_ns, channel, count(*) FILTER (WHERE substr(version, 1, 2) <> '#/') AS versions,
        count(*) FILTER (WHERE substr(version, 1, 2) = '#/') AS parts, 0 AS writes, sum(length(value)) AS bytes
    FROM blobs WHERE thread_id = :thread_id GROUP BY checkpoint_ns, channel
    UNION ALL
    SELECT checkpoint_ns, channel, 0, 0, count(*), sum(length(value))
    FROM writes WHERE thread_id = :thread_id GROUP BY checkpoint_ns, channel
) AS p
GROUP BY p.checkpoint_ns, p.channel ORDER BY 6 DESC, 1, 2 LIMIT :limit

-- name: sizes_of_tables
SELECT 'checkpoints', count(*), coalesce(sum(length(checkpoint) + length(metadata)), 0)
FROM checkpoints WHERE tenant = :tenant
UNION ALL
SELECT 'blobs', count(*), coalesce(sum(length(value)), 0)
FROM blobs WHERE tenant = :tenant
UNION ALL
SELECT 'writes', count(*), coalesce(sum(length(value)), 0)
FROM writes WHERE tenant = :tenant

-- name: sizes_of_largest
SELECT p.thread_id, sum(p.checkpoints), sum(p.rows), sum(p.bytes), min(p.first), max(p.last)
FROM (
    SELECT thread_id, count(*) FILTER (WHERE NOT hidden) AS checkpoints, count(*) AS rows,
        sum(length(checkpoint) + length(metadata)) AS bytes,
        min(checkpoint_id) AS first, max(checkpoint_id) AS last
    FROM checkpoints WHERE tenant = :tenant GROUP BY thread_id
    UNION ALL
    SELECT thread_id, 0, count(*), sum(length(value)), NULL, NULL
    FROM blobs WHERE tenant = :tenant GROUP BY thread_id
    UNION ALL
    SELECT thread_id, 0, count(*), sum(length(value)), NULL, NULL
    FROM writes WHERE tenant = :tenant GROUP BY thread_id
) AS p
GROUP BY p.thread_id ORDER BY 4 DESC, 1 LIMIT :limit

-- name: sizes_of_all_channels
SELECT p.channel, sum(p.versions), sum(p.parts), sum(p.writes), sum(p.bytes)
FROM (
    SELECT channel, count(*) FILTER (WHERE substr(version, 1, 2) <> '#/') AS versions,
        count(*) FILTER (WHERE substr(version, 1, 2) = '#/') AS parts, 0 AS writes, sum(length(value)) AS bytes
    FROM blobs WHERE tenant = :tenant GROUP BY channel
    UNION ALL
    SELECT channel, 0, 0, count(*), sum(length(value))
    FROM writes WHERE tenant = :tenant GROUP BY channel
) AS p
GROUP BY p.channel ORDER BY 5 DESC, 1 LIMIT :limit

-- Each doctor_ block checks a page of one table. It returns a row for each problem, and a row `end` with the key of the
-- page's last row and the number of its rows.

-- name: doctor_checkpoints
WITH page AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, hidden, doomed, blob_channels, blob_versions
    FROM checkpoints
    WHERE (thread_id, checkpoint_ns, checkpoint_id) > (:thread_id, :checkpoint_ns, :checkpoint_id)
    AND +tenant = :tenant
    ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT :limit
)
SELECT 'value gone', p.thread_id, p.checkpoint_ns, p.checkpoint_id, n.value, v.value, NULL
FROM page p CROSS JOIN json_each(p.blob_channels) AS n CROSS JOIN json_each(p.blob_versions) AS v ON v.key = n.key
WHERE NOT EXISTS (
    SELECT 1 FROM blobs b
    WHERE b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns AND b.channel = n.value AND b.version = v.value
)
UNION ALL
SELECT 'parent gone', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.parent_id, NULL, NULL
FROM page p
WHERE p.parent_id IS NOT NULL AND NOT p.hidden AND NOT EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns AND c.checkpoint_id = p.parent_id
)
UNION ALL
SELECT 'id before its parent', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.parent_id, NULL, NULL
FROM page p WHERE p.parent_id > p.checkpoint_id
UNION ALL
SELECT 'half deleted', p.thread_id, p.checkpoint_ns, p.checkpoint_id, NULL, NULL, NULL FROM page p WHERE p.doomed
UNION ALL
SELECT * FROM (
    SELECT 'end', thread_id, checkpoint_ns, checkpoint_id, NULL, NULL, (SELECT count(*) FROM page)
    FROM page ORDER BY thread_id DESC, checkpoint_ns DESC, checkpoint_id DESC LIMIT 1
)

-- name: doctor_blobs
WITH page AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, channel, version, parts FROM blobs
    WHERE (thread_id, checkpoint_ns, channel, version) > (:thread_id, :checkpoint_ns, :channel, :version)
    AND tenant = :tenant
    ORDER BY thread_id, checkpoint_ns, channel, version LIMIT :limit
)
SELECT 'value of nobody', lost.*, NULL, NULL FROM (
    SELECT thread_id, checkpoint_ns, channel, version FROM page WHERE substr(version, 1, 2) <> '#/'
    EXCEPT
    SELECT c.thread_id, c.checkpoint_ns, n.value, v.value
    FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM page) AS p
    CROSS JOIN checkpoints c ON c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns
    CROSS JOIN json_each(c.blob_channels) AS n CROSS JOIN json_each(c.blob_versions) AS v ON v.key = n.key
    WHERE likelihood(p.thread_id IS NOT NULL, 0.00001)
) AS lost
UNION ALL
SELECT 'part of nobody', lost.*, NULL, NULL FROM (
    SELECT thread_id, checkpoint_ns, channel, version FROM page WHERE substr(version, 1, 2) = '#/'
    EXCEPT
    SELECT b.thread_id, b.checkpoint_ns, b.channel, n.value
    FROM (SELECT DISTINCT thread_id, checkpoint_ns, channel FROM page WHERE substr(version, 1, 2) = '#/') AS p
    CROSS JOIN blobs b ON b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns AND b.channel = p.channel
    CROSS JOIN json_each(b.parts) AS n
    WHERE likelihood(p.thread_id IS NOT NULL, 0.00001)
) AS lost
UNION ALL
SELECT 'part gone', p.thread_id, p.checkpoint_ns, p.channel, p.version, n.value, NULL
FROM page p CROSS JOIN json_each(p.parts) AS n
WHERE NOT EXISTS (
    SELECT 1 FROM blobs b
    WHERE b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns AND b.channel = p.channel AND b.version = n.value
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
SELECT 'write without a thread', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.task_id, NULL, p.idx
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
SELECT 'label of nothing', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.name, NULL, NULL
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

-- The repair_ blocks delete unused rows of a thread, in this order: values, chunks, labels.

-- name: repair_values
DELETE FROM blobs WHERE rowid IN (
    SELECT b.rowid FROM json_each(:keys) AS k
    CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = k.value ->> 0
        AND b.channel = k.value ->> 1 AND b.version = k.value ->> 2
    WHERE substr(b.version, 1, 2) <> '#/' AND NOT EXISTS (
        SELECT 1 FROM checkpoints c
        CROSS JOIN json_each(c.blob_channels) AS n CROSS JOIN json_each(c.blob_versions) AS v ON v.key = n.key
        WHERE c.thread_id = b.thread_id AND c.checkpoint_ns = b.checkpoint_ns AND n.value = b.channel AND v.value = b.version
    )
)
RETURNING version

-- name: repair_chunks
DELETE FROM blobs WHERE rowid IN (
    SELECT b.rowid FROM json_each(:keys) AS k
    CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = k.value ->> 0
        AND b.channel = k.value ->> 1 AND b.version = k.value ->> 2
    WHERE substr(b.version, 1, 2) = '#/' AND NOT EXISTS (
        SELECT 1 FROM blobs o CROSS JOIN json_each(o.parts) AS n
        WHERE o.thread_id = b.thread_id AND o.checkpoint_ns = b.checkpoint_ns AND o.channel = b.channel
        AND n.value = b.version
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
