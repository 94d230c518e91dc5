-- Lists of threads and runs.

-- fragment: page_of_candidates
SELECT * FROM (
    SELECT h.thread_id, h.checkpoint_ns, h.checkpoint_id, h.parent_id, h.run_id, h.metadata_type, h.metadata
    FROM candidates r
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = r.thread_id AND NOT c.hidden
        AND c.checkpoint_ns = (SELECT min(n.checkpoint_ns) FROM langgraph_checkpoint.checkpoints n WHERE n.thread_id = r.thread_id)
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) AS h
    WHERE (h.checkpoint_id, h.thread_id) < (%(before)s, %(thread_below)s)
    -- include: matches_filter
    ORDER BY h.checkpoint_id DESC, h.thread_id DESC LIMIT %(limit)s
) AS page

-- name: threads_searched
-- The candidates are the threads that an index finds by a metadata key of any of their checkpoints.
WITH candidates AS MATERIALIZED (
    SELECT DISTINCT thread_id FROM langgraph_checkpoint.searched_key
    WHERE tenant = %(tenant)s AND shown = ANY (%(shown)s::text[]) AND NOT hidden
)
-- include: page_of_candidates

-- name: select_runs
-- The runs of the root graph, each with what the row of its last checkpoint says.
-- differs: a plain join may be planned as a scan of the complete table.
SELECT r.run_id, r.first_id, r.last_id, r.checkpoints, c.format, c.inline_channels, c.blob_channels
FROM (
    SELECT run_id, min(checkpoint_id) AS first_id, max(checkpoint_id) AS last_id, count(*) AS checkpoints
    FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = '' AND NOT hidden
    GROUP BY run_id
) AS r
CROSS JOIN LATERAL (
    SELECT * FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = '' AND c.checkpoint_id = r.last_id
    LIMIT 1
) AS c

-- name: select_visit
-- The columns of a sweep's `_Visit`. One row, or none without a checkpoint; of at most `limit` namespaces.
-- differs: LATERAL with LIMIT reads the rows of keys by index, with any statistics.
-- include: with_spaces
, visited AS MATERIALIZED (
    SELECT checkpoint_ns FROM spaces LIMIT %(limit)s
), heads AS MATERIALIZED (
    SELECT h.*
    FROM visited s
    CROSS JOIN LATERAL (
        SELECT c.checkpoint_ns, c.checkpoint_id, c.checkpoint_type, c.checkpoint, c.metadata_type, c.metadata
        FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = s.checkpoint_ns
        AND (NOT c.hidden OR %(even_hidden)s)
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) AS h
)
SELECT
    n.checkpoint_ns, n.checkpoint_id, n.checkpoint_type, n.checkpoint,
    f.checkpoint_ns, f.checkpoint_id, f.metadata_type, f.metadata,
    t.due_at, t.ttl_seconds, t.strategy,
    (SELECT max(name) FROM langgraph_checkpoint.labels WHERE thread_id = %(thread_id)s),
    (SELECT count(*) FROM visited),
    -- include: newest_roots
FROM (SELECT * FROM heads ORDER BY checkpoint_id DESC, checkpoint_ns DESC LIMIT 1) AS n
CROSS JOIN (SELECT * FROM heads ORDER BY checkpoint_ns LIMIT 1) AS f
LEFT JOIN LATERAL (
    SELECT due_at, ttl_seconds, strategy FROM langgraph_checkpoint.threads WHERE thread_id = %(thread_id)s LIMIT 1
) AS t ON true
