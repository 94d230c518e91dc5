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

-- name: select_visit
-- The columns of a sweep's `_Visit`. One row, or none without a checkpoint; of at most `limit` namespaces.
-- include: with_spaces
, visited AS MATERIALIZED (
    SELECT checkpoint_ns FROM spaces WHERE checkpoint_ns IS NOT NULL LIMIT :limit
), heads AS MATERIALIZED (
    SELECT c.rowid AS row, c.checkpoint_ns, c.checkpoint_id
    FROM visited s
    CROSS JOIN checkpoints c ON c.rowid = (
        SELECT rowid FROM checkpoints
        WHERE thread_id = :thread_id AND checkpoint_ns = s.checkpoint_ns AND (NOT hidden OR :even_hidden)
        ORDER BY checkpoint_id DESC LIMIT 1
    )
)
SELECT
    n.checkpoint_ns, n.checkpoint_id, n.checkpoint_type, n.checkpoint,
    f.checkpoint_ns, f.checkpoint_id, f.metadata_type, f.metadata,
    t.due_at, t.ttl_seconds, t.strategy,
    (SELECT max(name) FROM labels WHERE thread_id = :thread_id),
    (SELECT count(*) FROM visited),
    -- include: newest_roots
FROM (SELECT row FROM heads ORDER BY checkpoint_id DESC, checkpoint_ns DESC LIMIT 1) AS newest
CROSS JOIN checkpoints n ON n.rowid = newest.row
CROSS JOIN (SELECT row FROM heads ORDER BY checkpoint_ns LIMIT 1) AS first
CROSS JOIN checkpoints f ON f.rowid = first.row
LEFT JOIN threads t ON t.thread_id = :thread_id
