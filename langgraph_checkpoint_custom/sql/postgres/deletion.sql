-- Deleting and pruning: what differs from common/deletion.sql.

-- name: delete_thread
-- With the row of the thread. If a number of checkpoints is given, with hidden ones, only a thread that still has that
-- number: a row says that it has another one.
-- differs: one statement, so that it deletes the rows of one snapshot. A transaction that stores single rows takes no
-- lock; what it stores concurrently is complete, and either remains in all tables or is deleted from all.
WITH counted AS MATERIALIZED (
    SELECT %(checkpoints)s::bigint IS NULL OR %(checkpoints)s::bigint = (
        SELECT count(*) FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s
    ) AS holds
), arming AS (
    DELETE FROM langgraph_checkpoint.threads WHERE thread_id = %(thread_id)s AND (SELECT holds FROM counted)
), labels AS (
    DELETE FROM langgraph_checkpoint.labels WHERE thread_id = %(thread_id)s AND (SELECT holds FROM counted)
), blobs AS (
    DELETE FROM langgraph_checkpoint.blobs WHERE thread_id = %(thread_id)s AND (SELECT holds FROM counted)
), writes AS (
    DELETE FROM langgraph_checkpoint.writes WHERE thread_id = %(thread_id)s AND (SELECT holds FROM counted)
), checkpoints AS (
    DELETE FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s AND (SELECT holds FROM counted)
)
SELECT 1 FROM counted WHERE NOT holds

-- name: threads_of_runs
-- The threads in which the runs have stored something.
SELECT thread_id FROM langgraph_checkpoint.checkpoints
WHERE run_id = ANY (%(run_ids)s::text[]) AND tenant = %(tenant)s
UNION
SELECT thread_id FROM langgraph_checkpoint.writes
WHERE run_id = ANY (%(run_ids)s::text[]) AND langgraph_checkpoint.tenant_of(thread_id) = %(tenant)s
ORDER BY 1

-- fragment: lists_as_json
-- differs: the lists are arrays. As JSON texts, as in sqlite/, most are never decoded.
array_to_json(inline_channels)::text, array_to_json(delta_channels)::text,
array_to_json(blob_channels)::text, array_to_json(blob_versions)::text

-- fragment: by_runs
-- By one of these runs, or by any if there is no list.
(%(run_ids)s::text[] IS NULL OR run_id = ANY (%(run_ids)s::text[]))

-- fragment: not_kept
channel <> ALL (%(kept)s::text[])

-- The rows of many keys. The keys of a statement are sorted, and the rows between the first and the last of them are
-- read once, in the order of the index, and looked up in a hash table of the keys. IS TRUE keeps the planner from joining
-- the two: PostgreSQL 15 would compare each row with each key if it believes that the thread is short.

-- fragment: of_checkpoints
WHERE thread_id = %(thread_id)s
AND (checkpoint_ns, checkpoint_id) >= ((%(namespaces)s::text[])[1], (%(checkpoint_ids)s::text[])[1])
AND (checkpoint_ns, checkpoint_id) <= ((%(namespaces)s::text[])[%(count)s], (%(checkpoint_ids)s::text[])[%(count)s])
AND ((checkpoint_ns, checkpoint_id) IN (
    SELECT * FROM unnest(%(namespaces)s::text[], %(checkpoint_ids)s::text[])
)) IS TRUE

-- fragment: of_blobs
WHERE thread_id = %(thread_id)s
AND (checkpoint_ns, channel, version)
    >= ((%(namespaces)s::text[])[1], (%(channels)s::text[])[1], (%(versions)s::text[])[1])
AND (checkpoint_ns, channel, version)
    <= ((%(namespaces)s::text[])[%(count)s], (%(channels)s::text[])[%(count)s], (%(versions)s::text[])[%(count)s])
AND ((checkpoint_ns, channel, version) IN (
    SELECT * FROM unnest(%(namespaces)s::text[], %(channels)s::text[], %(versions)s::text[])
)) IS TRUE

-- name: select_chunks
-- The namespaces, channels and names of the chunks of blobs.
SELECT DISTINCT b.checkpoint_ns, b.channel, n.name
FROM (
    SELECT * FROM langgraph_checkpoint.blobs
    -- include: of_blobs
) AS b
CROSS JOIN LATERAL json_array_elements_text(b.chunks::json) AS n (name)

-- name: cut_from_deleted
-- Children of deleted checkpoints that were stored since the thread was read. A parent_id that is NULL would be compared
-- with each key.
-- differs: on SQLite nothing can be stored in between.
UPDATE langgraph_checkpoint.checkpoints SET parent_id = NULL
WHERE thread_id = %(thread_id)s AND NOT hidden AND parent_id IS NOT NULL AND ((checkpoint_ns, parent_id) IN (
    SELECT * FROM unnest(%(namespaces)s::text[], %(checkpoint_ids)s::text[])
)) IS TRUE
