-- Storing and reading checkpoints, their values and writes.

-- name: insert_checkpoints
-- differs: as limit_waiting.

-- name: insert_writes_of_many
-- differs: as limit_waiting.

-- name: page_of_latest
-- differs: as limit_waiting.

-- name: page_of_exact
-- differs: as limit_waiting.

-- name: insert_checkpoint_on_parent
-- differs: an INSERT that depends on a query is planned with each call. select_parent and insert_checkpoint are not.

-- name: put_checkpoint
-- differs: as insert_checkpoint_on_parent. The next statements find the problems. If there are none, put_blobs and
-- insert_checkpoint follow in the same transaction.

-- name: select_parent
-- differs: as put_checkpoint.
SELECT hidden FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(parent_id)s

-- name: select_other
-- differs: as put_checkpoint.
SELECT checkpoint_id FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id <> %(checkpoint_id)s
ORDER BY checkpoint_id DESC LIMIT 1

-- name: select_newest_other
-- differs: as put_checkpoint.
SELECT checkpoint_id FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id <> %(checkpoint_id)s
AND NOT hidden
ORDER BY checkpoint_id DESC LIMIT 1

-- name: select_blob_keys
-- differs: as put_checkpoint. The beginning of `chunks` shows whether a value can share chunks with this one.
SELECT channel, version, left(chunks, %(length)s::integer) FROM langgraph_checkpoint.blobs
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s
AND channel = ANY (%(channels)s::text[]) AND version = ANY (%(versions)s::text[])

-- name: put_blobs
-- differs: as put_checkpoint.
INSERT INTO langgraph_checkpoint.blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
VALUES
    -- repeat
    (%(thread_id)s, %(checkpoint_ns)s, %(channel0)s, %(version0)s, %(type0)s, %(value0)b, %(chunks0)s)
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: insert_writes
-- differs: as put_checkpoint. insert_few_writes stores all writes, after select_lost_claim.

-- The next statements read one checkpoint: its writes, then itself, then its blobs. page_latest and page_exact do that
-- in one statement, which takes many times longer to plan than to run.

-- fragment: write_columns
-- differs: the part of rows_of_page that is the row of a write.
'write', thread_id, checkpoint_ns, checkpoint_id, channel, task_id, task_path, idx, type, value,
NULL, NULL::bytea, NULL,
NULL

-- name: select_writes
-- differs: a part of page_exact.
SELECT
    -- include: write_columns
FROM langgraph_checkpoint.writes
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s

-- name: last_writes
-- differs: a part of page_latest. The writes of the newest checkpoint that has any; normally that is the newest one, or
-- its parent.
SELECT
    -- include: write_columns
FROM langgraph_checkpoint.writes
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s
ORDER BY checkpoint_id DESC FETCH FIRST ROW WITH TIES

-- fragment: head_columns
-- differs: the part of rows_of_page that is the row of a checkpoint, and its format.
'checkpoint', thread_id, checkpoint_ns, checkpoint_id, parent_id, NULL, NULL, NULL::integer,
checkpoint_type, checkpoint,
metadata_type, metadata, nullif(blob_channels, '{}'), blob_versions, format

-- name: head_latest
-- differs: a part of page_latest.
SELECT
    -- include: head_columns
FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND NOT hidden
ORDER BY checkpoint_id DESC LIMIT 1

-- name: head_exact
-- differs: a part of page_exact.
SELECT
    -- include: head_columns
FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s

-- name: select_blobs
-- differs: a part of page_latest and page_exact. Those of one of these channels with one of these versions.
SELECT
    'blob', thread_id, checkpoint_ns, NULL, channel, version, chunks, NULL::integer, type, value, NULL, NULL::bytea,
    NULL, NULL
FROM langgraph_checkpoint.blobs
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s
AND channel = ANY (%(channels)s::text[]) AND version = ANY (%(versions)s::text[])

-- fragment: blob_of_page
-- differs: each table is restricted to the thread by the parameter.
CROSS JOIN LATERAL (
    SELECT b.type, b.value, b.chunks FROM langgraph_checkpoint.blobs b
    WHERE b.thread_id = %(thread_id)s AND b.checkpoint_ns = r.checkpoint_ns
    AND b.channel = r.channel AND b.version = r.version
    LIMIT 1
) AS b

-- fragment: rows_of_page
-- differs: as blob_of_page.
-- include: heads_and_values
UNION ALL
SELECT
    'blob', r.thread_id, r.checkpoint_ns, NULL, r.channel, r.version, NULL, NULL,
    b.type, b.value, NULL, NULL, NULL, NULL
FROM named r
-- include: blob_of_page
UNION ALL
SELECT
    'write', p.thread_id, p.checkpoint_ns, p.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value,
    NULL, NULL, NULL, NULL
FROM page p
CROSS JOIN LATERAL (
    SELECT * FROM langgraph_checkpoint.writes w
    WHERE w.thread_id = %(thread_id)s AND w.checkpoint_ns = p.checkpoint_ns AND w.checkpoint_id = p.checkpoint_id
    OFFSET 0
) AS w
UNION ALL
SELECT
    'send', p.thread_id, p.checkpoint_ns, p.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value,
    NULL, NULL, NULL, NULL
FROM page p
CROSS JOIN LATERAL (
    SELECT * FROM langgraph_checkpoint.writes w
    WHERE w.thread_id = %(thread_id)s AND w.checkpoint_ns = p.checkpoint_ns AND w.checkpoint_id = p.parent_id
    AND w.channel = '__pregel_tasks'
    OFFSET 0
) AS w
WHERE p.format < 4

-- name: page_of_store
-- differs: the page is read from all servers first. Then all servers look up the rows of these checkpoints, by joins
-- without LIMIT.
-- include: with_page_of_store
, found AS MATERIALIZED (
    SELECT b.thread_id, b.checkpoint_ns, b.channel, b.version, b.type, b.value, b.chunks
    FROM (
        SELECT DISTINCT p.thread_id, p.checkpoint_ns, u.channel, u.version
        FROM page p CROSS JOIN LATERAL unnest(p.blob_channels, p.blob_versions) AS u (channel, version)
    ) AS r
    JOIN langgraph_checkpoint.blobs b ON b.thread_id = r.thread_id AND b.checkpoint_ns = r.checkpoint_ns
        AND b.channel = r.channel AND b.version = r.version
)
-- include: heads_and_values
UNION ALL
SELECT
    'blob', b.thread_id, b.checkpoint_ns, NULL, b.channel, b.version, NULL, NULL, b.type, b.value, NULL, NULL, NULL,
    NULL
FROM (
    SELECT DISTINCT f.thread_id, f.checkpoint_ns, f.channel, n.name
    FROM found f CROSS JOIN LATERAL json_array_elements_text(f.chunks::json) AS n (name)
) AS r
JOIN langgraph_checkpoint.blobs b ON b.thread_id = r.thread_id AND b.checkpoint_ns = r.checkpoint_ns
    AND b.channel = r.channel AND b.version = r.name
UNION ALL
SELECT
    'write', w.thread_id, w.checkpoint_ns, w.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value,
    NULL, NULL, NULL, NULL
FROM page p
JOIN langgraph_checkpoint.writes w ON w.thread_id = p.thread_id AND w.checkpoint_ns = p.checkpoint_ns
    AND w.checkpoint_id = p.checkpoint_id
UNION ALL
SELECT
    'send', w.thread_id, w.checkpoint_ns, p.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value,
    NULL, NULL, NULL, NULL
FROM page p
JOIN langgraph_checkpoint.writes w ON w.thread_id = p.thread_id AND w.checkpoint_ns = p.checkpoint_ns
    AND w.checkpoint_id = p.parent_id
WHERE p.format < 4 AND w.channel = '__pregel_tasks'
