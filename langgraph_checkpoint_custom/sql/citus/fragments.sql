-- What statements of several files include.

-- fragment: matches_filter
-- differs: no OFFSET, which Citus refuses in a subquery that refers to other columns.
AND (%(filter)s = '[]' OR NOT EXISTS (
    SELECT FROM jsonb_to_recordset(%(filter)s::jsonb) AS f (
        key text, among boolean, texts jsonb, low text, high text, least numeric, most numeric
    )
    WHERE CASE
        WHEN
            -- include: value_is_unknown
            THEN true
        WHEN f.texts IS NOT NULL THEN f.among = f.texts ? coalesce(metadata_filter ->> f.key, '')
        WHEN f.low IS NOT NULL THEN position('\' IN metadata_filter ->> f.key) > 0
            OR (metadata_filter ->> f.key) COLLATE "C" BETWEEN f.low AND f.high
        WHEN metadata_filter ->> f.key ~ '^[-0-9]'
            THEN (metadata_filter ->> f.key)::numeric BETWEEN f.least AND f.most
    END IS NOT TRUE
))
