-- What statements of several files include.

-- fragment: matches_filter
-- The metadata may match: the value of each condition's key fulfils it, or the projection does not have the value. See
-- `narrowing` in `model/filter.py`. jsonb_to_recordset is not immutable, as Citus requires.
AND (%(filter)s = '[]' OR NOT EXISTS (
    SELECT FROM (
        SELECT
            value ->> 'key' AS key, (value ->> 'among')::boolean AS among, value -> 'texts' AS texts,
            value ->> 'low' AS low, value ->> 'high' AS high,
            (value ->> 'least')::numeric AS least, (value ->> 'most')::numeric AS most
        FROM jsonb_array_elements(%(filter)s::jsonb)
    ) AS f
    WHERE CASE
        WHEN metadata_filter ->> f.key IS NULL AND metadata_filter ?| ARRAY[f.key, '*'] THEN true
        WHEN f.texts IS NOT NULL THEN f.among = f.texts ? coalesce(metadata_filter ->> f.key, '')
        WHEN f.low IS NOT NULL THEN position('\' IN metadata_filter ->> f.key) > 0
            OR (metadata_filter ->> f.key) COLLATE "C" BETWEEN f.low AND f.high
        WHEN metadata_filter ->> f.key ~ '^[-0-9]'
            THEN (metadata_filter ->> f.key)::numeric BETWEEN f.least AND f.most
    END IS NOT TRUE
))

-- fragment: blob_of_reference
-- Looks up a blob of the thread by the key in `r`.
-- SQLite needs no LATERAL for it.
CROSS JOIN LATERAL (
    SELECT b.type, b.value, b.chunks FROM langgraph_checkpoint.blobs b
    WHERE b.thread_id = %(thread_id)s AND b.checkpoint_ns = r.checkpoint_ns
    AND b.channel = r.channel AND b.version = r.version
    LIMIT 1
) AS b

-- fragment: with_spaces
-- The namespaces of a thread, from one to the next.
WITH RECURSIVE spaces (checkpoint_ns) AS (
    (
        SELECT checkpoint_ns FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s
        ORDER BY checkpoint_ns DESC LIMIT 1
    )
    UNION ALL
    SELECT n.checkpoint_ns
    FROM spaces s
    CROSS JOIN LATERAL (
        SELECT c.checkpoint_ns FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns < s.checkpoint_ns
        ORDER BY c.checkpoint_ns DESC LIMIT 1
    ) AS n
)

-- fragment: of_tenant
tenant = %(tenant)s

-- fragment: unless_held
-- Leaves out a row that another transaction has changed or deleted, and has not committed.
FOR UPDATE SKIP LOCKED

-- fragment: given_threads
unnest(%(thread_ids)s::text[]) AS given (value)

-- fragment: among_given
thread_id = ANY (%(thread_ids)s::text[])
