-- What statements of several files include.

-- fragment: matches_filter
-- differs: no OFFSET, which Citus refuses in a subquery that refers to other columns.
AND (%(filter)s = '{}' OR NOT EXISTS (
    SELECT FROM jsonb_each_text(%(filter)s::jsonb) AS f
    WHERE f.value <> CASE
        WHEN metadata_filter ? f.key THEN coalesce(metadata_filter ->> f.key, f.value)
        WHEN metadata_filter ? '*' THEN f.value
        ELSE 'null'
    END
))
