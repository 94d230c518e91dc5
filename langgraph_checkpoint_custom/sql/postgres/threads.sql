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
