-- What the inspector draws and measures.

-- name: timeline
-- The newest checkpoints of a thread, in all namespaces and with hidden ones, each with a JSON array of the tasks that
-- wrote to it. The last element of a task is the sum of 1 if it failed, 2 if it asked a human, and 4 if it is done.
-- For the order, the newest checkpoint of each namespace is read, and those of the page.
-- differs: the next checkpoint is always taken from a queue with one of each namespace. likelihood() here and below:
-- with statistics, SQLite would otherwise read a complete table first, for a Bloom filter.
-- include: with_spaces
, queue (checkpoint_ns, checkpoint_id) AS (
    SELECT s.checkpoint_ns, (
        SELECT max(c.checkpoint_id) FROM checkpoints c
        WHERE c.thread_id = :thread_id AND c.checkpoint_ns = s.checkpoint_ns AND c.checkpoint_id < :before
    )
    FROM spaces s WHERE s.checkpoint_ns IS NOT NULL
    UNION ALL
    SELECT q.checkpoint_ns, (
        SELECT max(c.checkpoint_id) FROM checkpoints c
        WHERE c.thread_id = :thread_id AND c.checkpoint_ns = q.checkpoint_ns AND c.checkpoint_id < q.checkpoint_id
    )
    FROM queue q WHERE q.checkpoint_id IS NOT NULL
    ORDER BY 2 DESC, 1 DESC LIMIT :limit
), page AS MATERIALIZED (
    SELECT checkpoint_ns, checkpoint_id FROM queue WHERE checkpoint_id IS NOT NULL
)
SELECT
    c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.root_id, c.run_id, c.hidden, c.metadata_filter ->> 'source',
    c.metadata_filter ->> 'step', (
        SELECT json_group_array(json_array(t.task_id, t.task_path, t.what))
        FROM (
            SELECT
                w.task_id, max(w.task_path) AS task_path, max(w.channel = '__error__')
                + 2 * max(w.channel = '__interrupt__')
                + 4 * max(w.channel NOT IN ('__error__', '__scheduled__', '__interrupt__', '__resume__')) AS what
            FROM writes w
            WHERE w.thread_id = :thread_id AND w.checkpoint_ns = p.checkpoint_ns AND w.checkpoint_id = p.checkpoint_id
            GROUP BY w.task_id
        ) AS t
    )
FROM page p
CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = p.checkpoint_ns
    AND c.checkpoint_id = p.checkpoint_id
WHERE likelihood(p.checkpoint_id IS NOT NULL, 0.00001)

-- name: sizes_of_checkpoint
-- The lengths of everything that a checkpoint consists of, and of the values that its parent has: the rows of both,
-- their blobs, the chunks of the checkpoint's own blobs, and its writes.
WITH page AS MATERIALIZED (
    SELECT * FROM checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id IN (:checkpoint_id, (
        SELECT c.parent_id FROM checkpoints c
        WHERE c.thread_id = :thread_id AND c.checkpoint_ns = :checkpoint_ns AND c.checkpoint_id = :checkpoint_id
    ))
), found AS MATERIALIZED (
    SELECT p.checkpoint_id, b.channel, b.version, b.type, length(b.value) AS bytes, b.chunks
    FROM page p
    CROSS JOIN json_each(p.blob_channels) AS n
    CROSS JOIN blobs b ON b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns
        AND b.channel = n.value AND b.version = p.blob_versions ->> n.key
    WHERE likelihood(n.value IS NOT NULL, 0.00001)
)
SELECT
    'checkpoint' AS kind, checkpoint_id, run_id AS name, parent_id AS key, checkpoint_type AS type,
    length(checkpoint) AS bytes, length(metadata) AS number, hidden, inline_channels AS some, delta_channels AS more
FROM page
UNION ALL
SELECT 'value', checkpoint_id, channel, version, type, bytes, 0, 0, chunks, NULL FROM found
UNION ALL
SELECT 'chunk', NULL, b.channel, b.version, b.type, length(b.value), 0, 0, NULL, NULL
FROM (
    SELECT DISTINCT f.channel, n.value AS name FROM found f CROSS JOIN json_each(f.chunks) AS n
    WHERE f.checkpoint_id = :checkpoint_id
) AS r
CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = :checkpoint_ns
    AND b.channel = r.channel AND b.version = r.name
WHERE likelihood(r.name IS NOT NULL, 0.00001)
UNION ALL
SELECT 'write', task_id, channel, task_path, type, length(value), idx, 0, NULL, run_id
FROM writes
WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id = :checkpoint_id
