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
