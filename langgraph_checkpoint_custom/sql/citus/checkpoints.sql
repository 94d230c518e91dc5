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
-- differs: as put_checkpoint.

-- name: put_checkpoint
-- differs: only finds the problems, and which blobs that may be missing are not. If there are none, put_blobs and
-- insert_checkpoint follow in the same transaction.
-- include: put_problems
SELECT what, channel FROM problems
UNION ALL
SELECT 'optional', channel FROM refs WHERE found AND NOT required

-- name: put_blobs
-- differs: as put_checkpoint.
INSERT INTO langgraph_checkpoint.blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)
VALUES
    -- repeat
    (%(thread_id)s, %(checkpoint_ns)s, %(channel0)s, %(version0)s, %(type0)s, %(value0)b, %(chunks0)s)
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: insert_writes
-- differs: insert_few_writes stores all writes, and select_lost_claim follows.

-- name: page_latest
-- differs: as blob_of_page.
WITH page AS MATERIALIZED (
    SELECT * FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
)
-- include: blobs_of_one
-- include: rows_of_page

-- name: page_exact
-- differs: as blob_of_page.
WITH page AS MATERIALIZED (
    SELECT * FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s
)
-- include: blobs_of_one
-- include: rows_of_page

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
