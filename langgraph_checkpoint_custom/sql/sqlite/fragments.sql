-- What statements of several files include.

-- fragment: matches_filter
-- The metadata may match: each key of the filter has the value that is asked for, or one that the projection does not
-- have.
AND (:filter = '{}' OR NOT EXISTS (
    SELECT 1 FROM json_each(:filter) AS f LEFT JOIN json_each(metadata_filter) AS m ON m.key = f.key
    WHERE f.value <> CASE
        WHEN m.key IS NOT NULL THEN coalesce(m.value, f.value)
        WHEN EXISTS (SELECT 1 FROM json_each(metadata_filter) AS o WHERE o.key = '*') THEN f.value
        ELSE 'null'
    END
))

-- fragment: newest_of_namespace
SELECT n.checkpoint_id FROM checkpoints n
WHERE n.thread_id = :thread_id AND n.checkpoint_ns = :checkpoint_ns AND NOT n.hidden
ORDER BY n.checkpoint_id DESC LIMIT 1

-- fragment: blob_of_reference
-- Looks up a blob of the thread by the key in `r`.
CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = r.checkpoint_ns
    AND b.channel = r.channel AND b.version = r.version
