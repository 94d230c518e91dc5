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

-- name: sizes_of_blobs
-- differs: the keys are arrays.
SELECT r.channel, r.version, b.type, length(b.value), b.chunks
FROM (
    SELECT %(checkpoint_ns)s AS checkpoint_ns, k.channel, k.version COLLATE "C" AS version
    FROM unnest(%(channels)s::text[], %(versions)s::text[]) AS k (channel, version)
) AS r
-- include: blob_of_reference
