-- What statements of several files include.

-- fragment: matches_filter
-- The metadata may match: each key of the filter has the value that is asked for, or one that the projection does not
-- have.
AND (%(filter)s = '{}' OR NOT EXISTS (
    SELECT FROM jsonb_each_text(%(filter)s::jsonb) AS f
    WHERE f.value <> CASE
        WHEN metadata_filter ? f.key THEN coalesce(metadata_filter ->> f.key, f.value)
        WHEN metadata_filter ? '*' THEN f.value
        ELSE 'null'
    END
    OFFSET 0
))

-- fragment: newest_of_namespace
SELECT n.checkpoint_id FROM langgraph_checkpoint.checkpoints n
WHERE n.thread_id = %(thread_id)s AND n.checkpoint_ns = %(checkpoint_ns)s AND NOT n.hidden
ORDER BY n.checkpoint_id DESC LIMIT 1

-- fragment: blob_of_reference
-- Looks up a blob of the thread by the key in `r`.
CROSS JOIN LATERAL (
    SELECT b.type, b.value, b.chunks FROM langgraph_checkpoint.blobs b
    WHERE b.thread_id = %(thread_id)s AND b.checkpoint_ns = r.checkpoint_ns
    AND b.channel = r.channel AND b.version = r.version
    LIMIT 1
) AS b
