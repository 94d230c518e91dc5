-- What statements of several files include.

-- fragment: matches_filter
-- The metadata may match: the value of each condition's key fulfils it, or the projection does not have the value. See
-- `narrowing` in `model/filter.py`. The conditions and all their texts are read once. SQLite looks up a text in these by
-- an index, and would compare a pair with each.
AND (:filter = '[]' OR NOT EXISTS (
    WITH f AS MATERIALIZED (
        SELECT
            key AS number, value ->> 'key' AS key, value ->> 'among' AS among, value ->> 'low' AS low,
            value ->> 'high' AS high, value ->> 'least' AS least, value ->> 'most' AS most
        FROM json_each(:filter)
    )
    SELECT 1 FROM f LEFT JOIN json_each(metadata_filter) AS m ON m.key = f.key
    WHERE CASE
        WHEN m.value IS NULL
            AND (m.key IS NOT NULL OR EXISTS (SELECT 1 FROM json_each(metadata_filter) AS o WHERE o.key = '*')) THEN true
        WHEN f.among IS NOT NULL THEN f.among = (f.number || ':' || coalesce(m.value, '') IN (
            SELECT c.key || ':' || t.value FROM json_each(:filter) AS c CROSS JOIN json_each(c.value, '$.texts') AS t
        ))
        WHEN f.low IS NOT NULL THEN instr(m.value, '\') > 0 OR m.value BETWEEN f.low AND f.high
        WHEN m.value GLOB '[-0-9]*' THEN CAST(m.value AS REAL) BETWEEN f.least AND f.most
    END IS NOT TRUE
))

-- fragment: with_spaces
-- The namespaces of a thread, from one to the next.
WITH RECURSIVE spaces (checkpoint_ns) AS (
    SELECT max(checkpoint_ns) FROM checkpoints WHERE thread_id = :thread_id
    UNION ALL
    SELECT (
        SELECT max(c.checkpoint_ns) FROM checkpoints c
        WHERE c.thread_id = :thread_id AND c.checkpoint_ns < s.checkpoint_ns
    )
    FROM spaces s WHERE s.checkpoint_ns IS NOT NULL
)

-- fragment: of_tenant
-- differs: unlikely(). If samples (SQLITE_ENABLE_STAT4) say that all rows have one tenant, SQLite 3.51 would otherwise
-- search for every tenant, and read and sort all rows up to an id: test_lists_on_sqlite shows it.
unlikely(tenant = :tenant)

-- fragment: unless_held
-- differs: SQLite has one writer at a time.

-- fragment: given_threads
json_each(:thread_ids) AS given

-- fragment: among_given
thread_id IN (SELECT value FROM json_each(:thread_ids))
