-- What the inspector draws and measures.

-- name: timeline
-- The newest checkpoints of a thread, in all namespaces and with hidden ones, each with a JSON array of the tasks that
-- wrote to it. The last element of a task is the sum of 1 if it failed, 2 if it asked a human, and 4 if it is done.
-- For the order, the newest checkpoint of each namespace is read, and those of the page.
-- differs: the next checkpoint is always taken from a queue with one of each namespace. likelihood():
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

-- name: sizes_of_blobs
SELECT b.channel, b.version, b.type, length(b.value), b.chunks
FROM json_each(:channels) AS k
CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = :checkpoint_ns AND b.channel = k.value
    AND b.version = :versions ->> k.key
