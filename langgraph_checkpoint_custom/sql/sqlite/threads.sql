-- Lists of threads and runs.

-- fragment: page_of_candidates
SELECT * FROM (
    SELECT h.thread_id, h.checkpoint_ns, h.checkpoint_id, h.parent_id, h.run_id, h.metadata_type, h.metadata
    FROM candidates r
    CROSS JOIN checkpoints h ON h.rowid = (
        SELECT n.rowid FROM checkpoints n
        WHERE n.thread_id = r.thread_id AND NOT n.hidden AND n.checkpoint_ns = (
            SELECT min(s.checkpoint_ns) FROM checkpoints s WHERE s.thread_id = r.thread_id
        )
        ORDER BY n.checkpoint_id DESC LIMIT 1
    )
    WHERE likelihood(r.thread_id IS NOT NULL, 0.00001)
    AND (h.checkpoint_id, h.thread_id) < (:before, :thread_below)
    -- include: matches_filter
    ORDER BY h.checkpoint_id DESC, h.thread_id DESC LIMIT :limit
) AS page

-- name: threads_searched
-- The candidates are the threads that an index finds by a metadata key of any of their checkpoints.
-- differs: INDEXED BY. With statistics, SQLite would otherwise read the complete table, because the index begins with
-- the tenant, which is the same in most rows.
WITH candidates AS MATERIALIZED (
    SELECT DISTINCT thread_id FROM checkpoints INDEXED BY searchable_key
    WHERE tenant = :tenant AND
    -- include: searchable_value
    IN (SELECT value FROM json_each(:shown)) AND NOT hidden
)
-- include: page_of_candidates

-- name: select_runs
-- The runs of the root graph, each with what the row of its last checkpoint says.
SELECT r.run_id, r.first_id, r.last_id, r.checkpoints, c.format, c.inline_channels, c.blob_channels
FROM (
    SELECT run_id, min(checkpoint_id) AS first_id, max(checkpoint_id) AS last_id, count(*) AS checkpoints
    FROM checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = '' AND NOT hidden
    GROUP BY run_id
) AS r
CROSS JOIN checkpoints c
WHERE c.thread_id = :thread_id AND c.checkpoint_ns = '' AND c.checkpoint_id = r.last_id
