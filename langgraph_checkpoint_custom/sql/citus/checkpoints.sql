-- Storing and reading checkpoints.

-- fragment: thread_of_page
-- The parameter, so that the statement goes to one server.
%(thread_id)s

-- name: put_problems
-- put_checkpoint in two parts: Citus has no statement that inserts into two tables. If there are no problems, put_blobs
-- and insert_checkpoint follow in the same transaction. 'optional' are the blobs that may be missing and are not.
-- include: with_problems
SELECT problem, name FROM problems
UNION ALL
SELECT 'optional', channel FROM refs WHERE found AND NOT required

-- name: put_blobs
-- include: insert_blobs
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: read_by_one_connection
-- For one statement, Citus may open more connections to a server, each with a read snapshot of its own.
SELECT set_config('citus.max_adaptive_executor_pool_size', '1', true)

-- name: page_of_store
-- The page is read from all servers first. Then all servers look up the rows of these checkpoints, by joins without
-- LIMIT, which Citus refuses in a subquery that refers to other tables.
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
