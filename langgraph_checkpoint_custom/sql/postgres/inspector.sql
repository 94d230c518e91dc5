-- What the inspector draws and measures.

-- name: timeline
-- The newest checkpoints of a thread, in all namespaces and with hidden ones, each with a JSON array of the tasks that
-- wrote to it. The last element of a task is the sum of 1 if it failed, 2 if it asked a human, and 4 if it is done.
-- For the order, the newest checkpoints of each namespace are read, as many as the page may have.
-- include: with_spaces
, page AS MATERIALIZED (
    SELECT s.checkpoint_ns, c.checkpoint_id
    FROM spaces s
    CROSS JOIN LATERAL (
        SELECT c.checkpoint_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = s.checkpoint_ns AND c.checkpoint_id < %(before)s
        ORDER BY c.checkpoint_id DESC LIMIT %(limit)s
    ) AS c
    ORDER BY c.checkpoint_id DESC, s.checkpoint_ns DESC LIMIT %(limit)s
)
SELECT
    c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.root_id, c.run_id, c.hidden, c.metadata_filter ->> 'source',
    c.metadata_filter ->> 'step', t.tasks
FROM page p
CROSS JOIN LATERAL (
    SELECT * FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = p.checkpoint_ns AND c.checkpoint_id = p.checkpoint_id
    OFFSET 0
) AS c
CROSS JOIN LATERAL (
    SELECT json_agg(json_build_array(t.task_id, t.task_path, t.what))::text AS tasks
    FROM (
        SELECT
            w.task_id, max(w.task_path) AS task_path, max((w.channel = '__error__')::integer)
            + 2 * max((w.channel = '__interrupt__')::integer)
            + 4 * max((w.channel NOT IN ('__error__', '__scheduled__', '__interrupt__', '__resume__'))::integer) AS what
        FROM langgraph_checkpoint.writes w
        WHERE w.thread_id = %(thread_id)s AND w.checkpoint_ns = p.checkpoint_ns AND w.checkpoint_id = p.checkpoint_id
        GROUP BY w.task_id
    ) AS t
) AS t

-- name: sizes_of_checkpoint
-- The lengths of everything that a checkpoint consists of, and of the values that its parent has: the rows of both,
-- their blobs, the chunks of the checkpoint's own blobs, and its writes.
WITH page AS MATERIALIZED (
    SELECT * FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id IN (%(checkpoint_id)s, (
        SELECT c.parent_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = %(checkpoint_ns)s
        AND c.checkpoint_id = %(checkpoint_id)s
    ))
), found AS MATERIALIZED (
    SELECT p.checkpoint_id, u.channel, u.version, b.type, b.bytes, b.chunks
    FROM page p
    CROSS JOIN LATERAL unnest(p.blob_channels, p.blob_versions) AS u (channel, version)
    CROSS JOIN LATERAL (
        SELECT b.type, octet_length(b.value) AS bytes, b.chunks FROM langgraph_checkpoint.blobs b
        WHERE b.thread_id = %(thread_id)s AND b.checkpoint_ns = %(checkpoint_ns)s
        AND b.channel = u.channel AND b.version = u.version
        LIMIT 1
    ) AS b
)
SELECT
    'checkpoint' AS kind, checkpoint_id, run_id AS name, parent_id AS key, checkpoint_type AS type,
    octet_length(checkpoint) AS bytes, octet_length(metadata) AS number, hidden::integer AS hidden,
    array_to_json(inline_channels)::text AS some, array_to_json(delta_channels)::text AS more
FROM page
UNION ALL
SELECT 'value', checkpoint_id, channel, version, type, bytes, 0, 0, chunks, NULL FROM found
UNION ALL
SELECT 'chunk', NULL, r.channel, r.name, b.type, b.bytes, 0, 0, NULL, NULL
FROM (
    SELECT DISTINCT f.channel, n.name
    FROM found f CROSS JOIN LATERAL json_array_elements_text(f.chunks::json) AS n (name)
    WHERE f.checkpoint_id = %(checkpoint_id)s
) AS r
CROSS JOIN LATERAL (
    SELECT b.type, octet_length(b.value) AS bytes FROM langgraph_checkpoint.blobs b
    WHERE b.thread_id = %(thread_id)s AND b.checkpoint_ns = %(checkpoint_ns)s
    AND b.channel = r.channel AND b.version = r.name COLLATE "C"
    LIMIT 1
) AS b
UNION ALL
SELECT 'write', task_id, channel, task_path, type, octet_length(value), idx, 0, NULL, run_id
FROM langgraph_checkpoint.writes
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s
