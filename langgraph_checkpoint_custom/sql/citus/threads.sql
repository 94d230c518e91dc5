-- Lists of threads.
--
-- Each server finds the newest checkpoints of its threads, by joins and groups by thread.

-- fragment: candidates_by_id
-- differs: it cannot go from thread to thread. So it reads index entries of all checkpoints of these threads.
WITH candidates AS MATERIALIZED (
    SELECT thread_id, row_number() OVER (ORDER BY thread_id) AS number FROM (
        SELECT DISTINCT thread_id FROM langgraph_checkpoint.checkpoints WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
        ORDER BY thread_id LIMIT %(threads)s
    ) AS t
)

-- fragment: page_of_candidates
-- differs: joins by thread. Of the candidates, it reads index entries of all checkpoints.
, tops AS MATERIALIZED (
    SELECT c.thread_id, c.checkpoint_ns, max(c.checkpoint_id) AS checkpoint_id
    FROM langgraph_checkpoint.checkpoints c JOIN candidates r ON r.thread_id = c.thread_id
    WHERE NOT c.hidden GROUP BY c.thread_id, c.checkpoint_ns
), firsts AS MATERIALIZED (
    SELECT t.* FROM tops t
    JOIN (SELECT thread_id, min(checkpoint_ns) AS checkpoint_ns FROM tops GROUP BY thread_id) AS f
        USING (thread_id, checkpoint_ns)
    WHERE (t.checkpoint_id, t.thread_id) < (%(before)s, %(thread_below)s)
)
SELECT * FROM (
    SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.run_id, c.metadata_type, c.metadata
    FROM firsts f
    JOIN langgraph_checkpoint.checkpoints c ON c.thread_id = f.thread_id AND c.checkpoint_ns = f.checkpoint_ns
        AND c.checkpoint_id = f.checkpoint_id
    WHERE true
    -- include: matches_filter
    ORDER BY c.checkpoint_id DESC, c.thread_id DESC LIMIT %(limit)s
) AS page

-- fragment: written_to_the_newest
-- differs: a query of a limit may not refer to the row outside. So the candidates have such a write to any checkpoint.
AND w.thread_id >= %(bottom)s AND w.thread_id <= (SELECT thread_id FROM last)

-- fragment: unless_held
-- differs: a subquery of a statement that stores may lock no rows. So a sweep waits for a row that is held.

-- fragment: without_a_row
-- differs: ON CONFLICT alone, since a sweep waits for a row that is held here anyway.
