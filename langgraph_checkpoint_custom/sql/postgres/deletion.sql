-- Deleting and pruning: threads, runs, checkpoints.

-- name: delete_thread
-- differs: one statement, so that it deletes the rows of one snapshot. A transaction that stores single rows takes no
-- lock; what it stores concurrently is complete, and either remains in all tables or is deleted from all.
WITH writes AS (
    DELETE FROM langgraph_checkpoint.writes WHERE thread_id = %(thread_id)s
), blobs AS (
    DELETE FROM langgraph_checkpoint.blobs WHERE thread_id = %(thread_id)s
), labels AS (
    DELETE FROM langgraph_checkpoint.labels WHERE thread_id = %(thread_id)s
)
DELETE FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s

-- fragment: finished_calls
-- differs: a part of mark_superseded in sqlite/.
-- The namespaces of finished subgraph calls. Such a namespace contains a colon before a task id, unlike that of a
-- subgraph with checkpointer=True. It is finished once the root checkpoint that started the call does not remain: that
-- one is deleted here, or it is older than the newest one and was deleted before. If it is newer, it is still to be
-- stored, and the call is not finished.
, finished AS MATERIALIZED (
    SELECT h.checkpoint_ns FROM heads h
    WHERE h.position = 1 AND strpos(h.checkpoint_ns, ':') > 0
    AND h.root_id NOT IN (SELECT r.checkpoint_id FROM heads r WHERE r.checkpoint_ns = '')
    AND h.root_id NOT IN (
        SELECT l.checkpoint_id FROM langgraph_checkpoint.labels l
        WHERE l.thread_id = %(thread_id)s AND l.checkpoint_ns = ''
    )
    AND (h.root_id < (SELECT max(r.checkpoint_id) FROM heads r WHERE r.checkpoint_ns = '') OR EXISTS (
        SELECT FROM langgraph_checkpoint.checkpoints r
        WHERE r.thread_id = %(thread_id)s AND r.checkpoint_ns = '' AND r.checkpoint_id = h.root_id
    ))
)

-- name: delete_all_but_newest
-- Everything but the newest checkpoint of each namespace is deleted, if nothing else has to remain: nothing in the
-- thread is hidden, labelled or rebuilt from writes (`deletable`). A row says that this was done. Writes may be stored
-- before their checkpoint, so only writes with a checkpoint are deleted. IS TRUE keeps the planner from comparing each
-- write with each checkpoint, which it would do as long as it believes that the tables are small.
-- differs: only here. For 30 checkpoints it takes a quarter of the time of marking and purging, for 1,000 a tenth. On
-- SQLite, marking and purging takes 0.6 ms more for 30, and a fifth more for 1,000.
WITH deletable AS MATERIALIZED (
    SELECT true WHERE NOT EXISTS (SELECT FROM langgraph_checkpoint.labels l WHERE l.thread_id = %(thread_id)s)
    AND NOT EXISTS (
        SELECT FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND (c.hidden OR c.format < 4 OR c.delta_channels <> '{}')
    )
), heads AS MATERIALIZED (
    SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.root_id, c.blob_channels, c.blob_versions, 1 AS position
    FROM deletable
    CROSS JOIN LATERAL (
        SELECT checkpoint_ns, max(checkpoint_id) AS newest FROM langgraph_checkpoint.checkpoints
        WHERE thread_id = %(thread_id)s GROUP BY checkpoint_ns
    ) AS n
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = n.checkpoint_ns AND c.checkpoint_id = n.newest
        LIMIT 1
    ) AS c
)
-- include: finished_calls
, retained AS MATERIALIZED (
    SELECT h.* FROM heads h WHERE h.checkpoint_ns NOT IN (SELECT f.checkpoint_ns FROM finished f)
), retained_values AS MATERIALIZED (
    SELECT r.*, b.chunks
    FROM (
        SELECT k.checkpoint_ns, u.channel, u.version
        FROM retained k CROSS JOIN LATERAL unnest(k.blob_channels, k.blob_versions) AS u (channel, version)
    ) AS r
    -- include: blob_of_reference
), retained_blobs AS MATERIALIZED (
    SELECT checkpoint_ns, channel, version FROM retained_values
    UNION ALL
    SELECT checkpoint_ns, channel, n.name
    FROM retained_values CROSS JOIN LATERAL json_array_elements_text(chunks::json) AS n (name)
), deleted AS (
    DELETE FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND EXISTS (SELECT FROM deletable)
    AND (c.checkpoint_ns, c.checkpoint_id) NOT IN (SELECT r.checkpoint_ns, r.checkpoint_id FROM retained r)
    RETURNING c.checkpoint_ns, c.checkpoint_id
), children AS (
    UPDATE langgraph_checkpoint.checkpoints c SET parent_id = NULL FROM retained r
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = r.checkpoint_ns AND c.checkpoint_id = r.checkpoint_id
    AND (r.checkpoint_ns, r.parent_id) IN (SELECT d.checkpoint_ns, d.checkpoint_id FROM deleted d)
), blobs AS (
    DELETE FROM langgraph_checkpoint.blobs b
    WHERE b.thread_id = %(thread_id)s AND EXISTS (SELECT FROM deletable)
    AND (b.checkpoint_ns, b.channel, b.version) NOT IN (SELECT r.* FROM retained_blobs r)
), writes AS (
    DELETE FROM langgraph_checkpoint.writes w
    WHERE w.thread_id = %(thread_id)s
    AND ((w.checkpoint_ns, w.checkpoint_id) IN (SELECT d.checkpoint_ns, d.checkpoint_id FROM deleted d)) IS TRUE
)
SELECT * FROM deletable

-- name: mark_superseded
-- The first statement of `prune`; the purge_ statements follow.
-- Everything is marked except what remains: the `keep` newest checkpoints of each namespace; those with a label; and,
-- for each subgraph with a memory of its own, the checkpoint that a run goes on from if it starts at a root checkpoint
-- with a label, or at one that remains besides the newest.
WITH heads AS MATERIALIZED (
    SELECT n.* FROM (
        SELECT checkpoint_ns, checkpoint_id, root_id,
            row_number() OVER (PARTITION BY checkpoint_ns ORDER BY checkpoint_id DESC) AS position
        FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s AND NOT hidden
    ) AS n
    WHERE n.position <= %(keep)s
)
-- include: finished_calls
, run_starts AS MATERIALIZED (
    SELECT l.checkpoint_id FROM langgraph_checkpoint.labels l
    WHERE l.thread_id = %(thread_id)s AND l.checkpoint_ns = ''
    UNION
    SELECT r.checkpoint_id FROM heads r WHERE r.checkpoint_ns = '' AND r.position > 1
), retained AS MATERIALIZED (
    SELECT h.checkpoint_ns, h.checkpoint_id FROM heads h
    WHERE h.checkpoint_ns NOT IN (SELECT f.checkpoint_ns FROM finished f)
    UNION
    SELECT l.checkpoint_ns, l.checkpoint_id FROM langgraph_checkpoint.labels l WHERE l.thread_id = %(thread_id)s
    UNION
    SELECT h.checkpoint_ns, m.checkpoint_id
    FROM run_starts s
    CROSS JOIN heads h
    CROSS JOIN LATERAL (
        SELECT c.checkpoint_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = h.checkpoint_ns AND c.checkpoint_id < s.checkpoint_id
        AND NOT c.hidden
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) AS m
    WHERE h.position = 1 AND h.checkpoint_ns <> '' AND strpos(h.checkpoint_ns, ':') = 0
)
UPDATE langgraph_checkpoint.checkpoints c SET deleting = true
WHERE c.thread_id = %(thread_id)s AND (c.hidden OR (c.checkpoint_ns, c.checkpoint_id) NOT IN (
    SELECT r.checkpoint_ns, r.checkpoint_id FROM retained r
))

-- name: mark_idle
-- All of a thread, unless a run has gone on or a label was set since the thread was read.
UPDATE langgraph_checkpoint.checkpoints SET deleting = true
WHERE thread_id = %(thread_id)s AND %(newest)s >= (
    SELECT max(n.checkpoint_id) FROM langgraph_checkpoint.checkpoints n
    WHERE n.thread_id = %(thread_id)s AND NOT n.hidden
)
AND NOT EXISTS (SELECT FROM langgraph_checkpoint.labels WHERE thread_id = %(thread_id)s)

-- name: delete_idle_writes
-- Sent after the purge_ statements. Writes whose checkpoint was never stored are deleted with their thread, because
-- nothing would refer to them afterwards.
DELETE FROM langgraph_checkpoint.writes WHERE thread_id = %(thread_id)s
AND NOT EXISTS (SELECT FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s)

-- name: threads_of_runs
-- The threads in which the runs have stored something.
SELECT thread_id FROM langgraph_checkpoint.checkpoints
WHERE run_id = ANY (%(run_ids)s::text[]) AND tenant = %(tenant)s
UNION
SELECT thread_id FROM langgraph_checkpoint.writes
WHERE run_id = ANY (%(run_ids)s::text[]) AND langgraph_checkpoint.tenant_of(thread_id) = %(tenant)s
ORDER BY 1

-- name: mark_runs
-- The checkpoints of the runs, with or without labels, and the hidden checkpoints of their namespaces, which may have
-- been retained only for these.
WITH namespaces AS MATERIALIZED (
    SELECT DISTINCT checkpoint_ns FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND run_id = ANY (%(run_ids)s::text[])
)
UPDATE langgraph_checkpoint.checkpoints SET deleting = true
WHERE thread_id = %(thread_id)s AND (hidden OR run_id = ANY (%(run_ids)s::text[]))
AND checkpoint_ns IN (SELECT checkpoint_ns FROM namespaces)

-- The purge_ statements hide or delete what is marked for deletion (`deleting`), in this order. Each one sees what was
-- committed while the one before waited. Each names its thread; otherwise it would read the index entries of all rows
-- that were marked since the last VACUUM. The index on `deleting` is for finding marked rows. The planner, which
-- estimates that there are none, would also search it for each of many rows. So those are compared with a list, or with
-- `deleting::integer`, for which it cannot use the index.

-- fragment: labelled
FROM langgraph_checkpoint.labels l
JOIN langgraph_checkpoint.checkpoints d ON d.thread_id = l.thread_id AND d.checkpoint_ns = l.checkpoint_ns
    AND d.checkpoint_id = l.checkpoint_id AND d.deleting
WHERE l.thread_id = %(thread_id)s

-- name: purge_labels
-- The labels of checkpoints that will be deleted or hidden.
DELETE FROM langgraph_checkpoint.labels WHERE thread_id = %(thread_id)s AND name IN (
    SELECT l.name
    -- include: labelled
)

-- fragment: with_namespaces_of_deleted
WITH RECURSIVE namespaces AS MATERIALIZED (
    SELECT DISTINCT checkpoint_ns FROM langgraph_checkpoint.checkpoints WHERE deleting AND thread_id = %(thread_id)s
)

-- fragment: delta_channels
-- The names of the delta channels in each of the `namespaces`.
, delta AS MATERIALIZED (
    SELECT n.checkpoint_ns, c.channels
    FROM namespaces n
    CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(DISTINCT u.channel), '{}') AS channels
        FROM langgraph_checkpoint.checkpoints c CROSS JOIN LATERAL unnest(c.delta_channels) AS u (channel)
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = n.checkpoint_ns
    ) AS c
)

-- fragment: needed_ancestors
-- What the `retained` checkpoints need, and these themselves. `needed` walks from each of them to its ancestors as long
-- as there is a delta channel without a seed (`unseeded`), or the parent holds sends of a checkpoint older than format
-- 4. That holds for ancestors as well, because a hidden checkpoint has to be complete, too.
, needed (checkpoint_ns, checkpoint_id, unseeded) AS (
    SELECT r.checkpoint_ns, r.checkpoint_id, r.channels FROM retained r WHERE r.channels <> '{}' OR r.format < 4
    UNION
    SELECT n.checkpoint_ns, c.parent_id, ARRAY(SELECT u FROM unnest(n.unseeded) AS u WHERE u <> ALL (c.populated))
    FROM needed n
    CROSS JOIN LATERAL (
        SELECT c.parent_id, c.format, c.inline_channels || c.blob_channels AS populated
        FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = n.checkpoint_ns AND c.checkpoint_id = n.checkpoint_id
        OFFSET 0
    ) AS c
    WHERE c.parent_id IS NOT NULL AND (NOT n.unseeded <@ c.populated OR (c.format < 4 AND EXISTS (
        SELECT FROM langgraph_checkpoint.writes w
        WHERE w.thread_id = %(thread_id)s AND w.checkpoint_ns = n.checkpoint_ns AND w.checkpoint_id = c.parent_id
        AND w.channel = '__pregel_tasks'
        OFFSET 0
    )))
)

-- name: purge_hide_needed
-- What a remaining checkpoint needs is hidden instead. If the parent of a checkpoint that becomes hidden was missing
-- already, its id is removed: no prune has cut off the history there.
-- include: with_namespaces_of_deleted
-- include: delta_channels
, retained AS MATERIALIZED (
    SELECT d.checkpoint_ns, d.channels, c.checkpoint_id, c.format
    FROM delta d
    CROSS JOIN LATERAL (
        SELECT c.checkpoint_id, c.format FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = d.checkpoint_ns AND NOT c.deleting
        OFFSET 0
    ) AS c
)
-- include: needed_ancestors
UPDATE langgraph_checkpoint.checkpoints c SET deleting = false, hidden = true, parent_id = CASE
    WHEN c.hidden OR EXISTS (
        SELECT FROM langgraph_checkpoint.checkpoints p
        WHERE p.thread_id = %(thread_id)s AND p.checkpoint_ns = c.checkpoint_ns AND p.checkpoint_id = c.parent_id
        OFFSET 0
    ) THEN c.parent_id
END
FROM unnest(ARRAY(SELECT checkpoint_ns FROM needed), ARRAY(SELECT checkpoint_id FROM needed))
    AS n (checkpoint_ns, checkpoint_id)
WHERE c.deleting::integer = 1
AND c.thread_id = %(thread_id)s AND c.checkpoint_ns = n.checkpoint_ns AND c.checkpoint_id = n.checkpoint_id

-- name: purge_writes
WITH deleted AS MATERIALIZED (
    SELECT checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.checkpoints
    WHERE deleting AND thread_id = %(thread_id)s
)
DELETE FROM langgraph_checkpoint.writes w USING deleted d
WHERE w.thread_id = %(thread_id)s AND w.checkpoint_ns = d.checkpoint_ns AND w.checkpoint_id = d.checkpoint_id

-- name: purge_parents
-- If the parent of a remaining checkpoint is deleted, its id is removed. A hidden checkpoint keeps that id, so that
-- select_delta_history can tell a deleted parent from one that never existed.
-- include: with_namespaces_of_deleted
, children AS MATERIALIZED (
    SELECT n.checkpoint_ns, c.checkpoint_id
    FROM namespaces n
    CROSS JOIN LATERAL (
        SELECT c.checkpoint_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = n.checkpoint_ns AND NOT c.deleting AND NOT c.hidden
        AND (
            SELECT d.deleting FROM langgraph_checkpoint.checkpoints d
            WHERE d.thread_id = %(thread_id)s AND d.checkpoint_ns = c.checkpoint_ns AND d.checkpoint_id = c.parent_id
        )
        OFFSET 0
    ) AS c
)
UPDATE langgraph_checkpoint.checkpoints c SET parent_id = NULL FROM children o
WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = o.checkpoint_ns AND c.checkpoint_id = o.checkpoint_id

-- name: purge_blobs
-- The blobs that only deleted checkpoints refer to, and their chunks, except those that a remaining blob shares.
-- `purged` is a list of its own, because a DELETE that joins a UNION ALL misses rows: if another transaction has
-- changed a row in the meantime, PostgreSQL looks for the changed row in that list again, and with an index scan it
-- finds none.
-- include: with_namespaces_of_deleted
, refs AS MATERIALIZED (
    SELECT DISTINCT n.checkpoint_ns, c.channel, c.version, c.deleting
    FROM namespaces n
    CROSS JOIN LATERAL (
        SELECT u.channel, u.version, c.deleting
        FROM langgraph_checkpoint.checkpoints c
        CROSS JOIN LATERAL unnest(c.blob_channels, c.blob_versions) AS u (channel, version)
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = n.checkpoint_ns
        OFFSET 0
    ) AS c
), unused AS MATERIALIZED (
    SELECT checkpoint_ns, channel, version FROM refs WHERE deleting
    EXCEPT
    SELECT checkpoint_ns, channel, version FROM refs WHERE NOT deleting
), unused_chunks AS MATERIALIZED (
    SELECT r.checkpoint_ns, r.channel, n.name COLLATE "C"
    FROM unused r
    -- include: blob_of_reference
    CROSS JOIN LATERAL json_array_elements_text(b.chunks::json) AS n (name)
    EXCEPT
    SELECT r.checkpoint_ns, r.channel, n.name COLLATE "C"
    FROM refs r
    -- include: blob_of_reference
    CROSS JOIN LATERAL json_array_elements_text(b.chunks::json) AS n (name)
    WHERE NOT r.deleting
), purged AS MATERIALIZED (
    SELECT * FROM unused
    UNION ALL
    SELECT * FROM unused_chunks
)
DELETE FROM langgraph_checkpoint.blobs b USING purged u
WHERE b.thread_id = %(thread_id)s AND b.checkpoint_ns = u.checkpoint_ns AND b.channel = u.channel
AND b.version = u.version

-- name: purge_checkpoints
DELETE FROM langgraph_checkpoint.checkpoints WHERE deleting AND thread_id = %(thread_id)s

-- fragment: unless_needed_by_child
-- A remaining child is rebuilt from the write.
AND NOT EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = w.checkpoint_ns AND c.parent_id = w.checkpoint_id
    AND NOT c.deleting
    AND CASE
        WHEN w.channel = '__pregel_tasks' THEN c.format < 4
        ELSE w.channel <> ALL (c.inline_channels || c.blob_channels) AND EXISTS (
            SELECT FROM delta d WHERE d.checkpoint_ns = w.checkpoint_ns AND w.channel = ANY (d.channels)
        )
    END
    OFFSET 0
)

-- name: delete_run_writes
-- Sent between the purge_ statements, once it is known what is hidden: what the runs wrote to checkpoints of other runs,
-- such as the answer to an interrupt. Writes of a hidden checkpoint, and those that a child is rebuilt from, remain for
-- good.
WITH namespaces AS MATERIALIZED (
    SELECT DISTINCT checkpoint_ns FROM langgraph_checkpoint.writes
    WHERE thread_id = %(thread_id)s AND run_id = ANY (%(run_ids)s::text[])
)
-- include: delta_channels
DELETE FROM langgraph_checkpoint.writes w
WHERE w.thread_id = %(thread_id)s AND w.run_id = ANY (%(run_ids)s::text[])
AND NOT EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
    AND c.hidden
    OFFSET 0
)
-- include: unless_needed_by_child

-- Deleting one checkpoint, or everything after one. A mark_ statement marks what is to be deleted, and the hidden
-- checkpoints of these namespaces, which may have been retained only for that. It returns no row if the named
-- checkpoint (`target`) does not exist. A checkpoint that is stored in the thread after that, without its lock, is not
-- looked at. The refuse_labelled statements return the labels that prevent the deletion and, if there are any, take the
-- marks back. delete_open_writes and delete_later_writes are sent between the purge_ statements, once it is known what
-- is hidden.

-- fragment: mark_and_note
-- Marks what is in `marked`, and notes the newest remaining checkpoint of each namespace for delete_open_writes.
-- differs: on SQLite nothing can be stored in between, so delete_open_writes looks for it.
, updated AS (
    UPDATE langgraph_checkpoint.checkpoints c SET deleting = true FROM marked m
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = m.checkpoint_ns AND c.checkpoint_id = m.checkpoint_id
), heads AS (
    SELECT c.checkpoint_ns, max(c.checkpoint_id) AS checkpoint_id
    FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND NOT c.hidden AND c.checkpoint_ns IN (SELECT m.checkpoint_ns FROM marked m)
    AND (c.checkpoint_ns, c.checkpoint_id) NOT IN (SELECT m.checkpoint_ns, m.checkpoint_id FROM marked m)
    GROUP BY c.checkpoint_ns
), noted AS MATERIALIZED (
    SELECT set_config(
        'langgraph_checkpoint_custom.heads', coalesce(json_object_agg(checkpoint_ns, checkpoint_id)::text, ''), true
    ) FROM heads
)
SELECT t.checkpoint_id FROM target t CROSS JOIN noted

-- name: mark_checkpoint
-- With a root checkpoint, the subgraph calls that it started are deleted. If it was the newest one, the tasks of the
-- checkpoint that becomes the newest run again. So the subgraph calls that these have started are deleted as well, and
-- what subgraphs with a memory have stored since. This does not hold if the deleted checkpoint is on another branch.
WITH target AS MATERIALIZED (
    SELECT t.checkpoint_id, t.parent_id, (
        SELECT max(n.checkpoint_id) FROM langgraph_checkpoint.checkpoints n
        WHERE n.thread_id = %(thread_id)s AND n.checkpoint_ns = %(checkpoint_ns)s
        AND n.checkpoint_id <> %(checkpoint_id)s AND NOT n.hidden
    ) AS other_id
    FROM langgraph_checkpoint.checkpoints t
    WHERE t.thread_id = %(thread_id)s AND t.checkpoint_ns = %(checkpoint_ns)s
    AND t.checkpoint_id = %(checkpoint_id)s AND NOT t.hidden
), rerun AS MATERIALIZED (
    SELECT coalesce(t.other_id, t.checkpoint_id) AS first_id FROM target t
    WHERE %(checkpoint_ns)s = '' AND (
        t.other_id IS NULL
        OR (t.other_id < t.checkpoint_id AND (t.parent_id IS NULL OR t.parent_id = t.other_id))
    )
), marked AS MATERIALIZED (
    SELECT c.checkpoint_ns, c.checkpoint_id
    FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND EXISTS (SELECT FROM target) AND (
        (c.checkpoint_ns = %(checkpoint_ns)s AND (c.hidden OR c.checkpoint_id = %(checkpoint_id)s))
        OR (%(checkpoint_ns)s = '' AND strpos(c.checkpoint_ns, ':') > 0 AND c.root_id = %(checkpoint_id)s)
        OR (
            c.checkpoint_ns <> '' AND EXISTS (SELECT FROM rerun)
            AND (c.hidden OR c.root_id >= (SELECT first_id FROM rerun))
        )
    )
)
-- include: mark_and_note

-- name: mark_later
-- In all namespaces.
WITH target AS MATERIALIZED (
    SELECT t.checkpoint_id FROM langgraph_checkpoint.checkpoints t
    WHERE t.thread_id = %(thread_id)s AND t.checkpoint_ns = %(checkpoint_ns)s
    AND t.checkpoint_id = %(checkpoint_id)s AND NOT t.hidden
), marked AS MATERIALIZED (
    SELECT c.checkpoint_ns, c.checkpoint_id
    FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND EXISTS (SELECT FROM target) AND (
        c.hidden OR c.checkpoint_id > %(checkpoint_id)s
        OR (c.checkpoint_ns <> '' AND c.root_id >= %(checkpoint_id)s)
    )
)
-- include: mark_and_note

-- name: refuse_labelled
SELECT l.name
-- include: labelled
ORDER BY l.name

-- name: refuse_labelled_release
UPDATE langgraph_checkpoint.checkpoints SET deleting = false
WHERE thread_id = %(thread_id)s AND deleting AND EXISTS (
    SELECT
    -- include: labelled
)

-- fragment: noted_heads
-- differs: as mark_and_note.
current_setting('langgraph_checkpoint_custom.heads', true)

-- name: delete_open_writes
-- When a namespace loses its newest checkpoint, the writes of the checkpoint that becomes the newest belong to what is
-- deleted. LangGraph would take them for the outputs of tasks that have run already. So they are deleted, except those
-- that a remaining child is rebuilt from. If the deleted checkpoint is on another branch, the writes remain: their
-- tasks are still to go on.
-- differs: the mark_ statement has noted which checkpoint becomes the newest, because a newer one may have been stored
-- since.
WITH newest_deleted AS MATERIALIZED (
    SELECT checkpoint_ns, max(checkpoint_id) AS checkpoint_id
    FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s AND deleting AND NOT hidden
    GROUP BY checkpoint_ns
), heads AS MATERIALIZED (
    SELECT x.checkpoint_ns, h.checkpoint_id
    FROM newest_deleted x
    JOIN json_each_text(coalesce(nullif(
        -- include: noted_heads
    , ''), '{}')::json) AS h (checkpoint_ns, checkpoint_id) ON h.checkpoint_ns = x.checkpoint_ns
    WHERE h.checkpoint_id < x.checkpoint_id AND EXISTS (
        SELECT FROM langgraph_checkpoint.checkpoints d
        WHERE d.thread_id = %(thread_id)s AND d.checkpoint_ns = x.checkpoint_ns AND d.deleting
        AND (d.parent_id = h.checkpoint_id OR (d.parent_id IS NULL AND NOT d.hidden))
    )
), namespaces AS MATERIALIZED (
    SELECT checkpoint_ns FROM heads
)
-- include: delta_channels
DELETE FROM langgraph_checkpoint.writes w USING heads h
WHERE w.thread_id = %(thread_id)s AND w.checkpoint_ns = h.checkpoint_ns AND w.checkpoint_id = h.checkpoint_id
-- include: unless_needed_by_child

-- name: delete_later_writes
-- Writes whose checkpoint was never stored.
DELETE FROM langgraph_checkpoint.writes w
WHERE w.thread_id = %(thread_id)s AND w.checkpoint_id > %(checkpoint_id)s
AND EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints d WHERE d.thread_id = %(thread_id)s AND d.deleting AND NOT d.hidden
)
AND NOT EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
    OFFSET 0
)
