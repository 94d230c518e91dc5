-- Deleting and pruning: threads, runs, checkpoints.

-- name: delete_thread
-- differs: one statement for each table.
DELETE FROM checkpoints WHERE thread_id = :thread_id

-- name: delete_thread_writes
-- differs: a part of delete_thread in postgres/.
DELETE FROM writes WHERE thread_id = :thread_id

-- name: delete_thread_blobs
-- differs: as delete_thread_writes.
DELETE FROM blobs WHERE thread_id = :thread_id

-- name: delete_thread_labels
-- differs: as delete_thread_writes.
DELETE FROM labels WHERE thread_id = :thread_id

-- name: mark_superseded
-- The first statement of `prune`; the purge_ statements follow.
-- Everything is marked except what remains: the `keep` newest checkpoints of each namespace; those with a label; and,
-- for each subgraph with a memory of its own, the checkpoint that a run goes on from if it starts at a root checkpoint
-- with a label, or at one that remains besides the newest. The namespace of a subgraph call contains a colon before a
-- task id, unlike that of a subgraph with checkpointer=True. It is finished once the root checkpoint that started the
-- call does not remain: that one is deleted here, or it is older than the newest one and was deleted before. If it is
-- newer, it is still to be stored, and the call is not finished.
WITH heads AS MATERIALIZED (
    SELECT n.* FROM (
        SELECT checkpoint_ns, checkpoint_id, root_id,
            row_number() OVER (PARTITION BY checkpoint_ns ORDER BY checkpoint_id DESC) AS position
        FROM checkpoints WHERE thread_id = :thread_id AND NOT hidden
    ) AS n
    WHERE n.position <= :keep
), finished AS MATERIALIZED (
    SELECT h.checkpoint_ns FROM heads h
    WHERE h.position = 1 AND instr(h.checkpoint_ns, ':') > 0
    AND h.root_id NOT IN (SELECT r.checkpoint_id FROM heads r WHERE r.checkpoint_ns = '')
    AND h.root_id NOT IN (SELECT l.checkpoint_id FROM labels l WHERE l.thread_id = :thread_id AND l.checkpoint_ns = '')
    AND (h.root_id < (SELECT max(r.checkpoint_id) FROM heads r WHERE r.checkpoint_ns = '') OR EXISTS (
        SELECT 1 FROM checkpoints r
        WHERE r.thread_id = :thread_id AND r.checkpoint_ns = '' AND r.checkpoint_id = h.root_id
    ))
), run_starts AS MATERIALIZED (
    SELECT checkpoint_id FROM labels WHERE thread_id = :thread_id AND checkpoint_ns = ''
    UNION
    SELECT checkpoint_id FROM heads WHERE checkpoint_ns = '' AND position > 1
), retained AS MATERIALIZED (
    SELECT checkpoint_ns, checkpoint_id FROM heads WHERE checkpoint_ns NOT IN (SELECT f.checkpoint_ns FROM finished f)
    UNION
    SELECT checkpoint_ns, checkpoint_id FROM labels WHERE thread_id = :thread_id
    UNION
    SELECT h.checkpoint_ns, (
        SELECT c.checkpoint_id FROM checkpoints c
        WHERE c.thread_id = :thread_id AND c.checkpoint_ns = h.checkpoint_ns AND c.checkpoint_id < s.checkpoint_id
        AND NOT c.hidden
        ORDER BY c.checkpoint_id DESC LIMIT 1
    )
    FROM run_starts s CROSS JOIN heads h
    WHERE h.position = 1 AND h.checkpoint_ns <> '' AND instr(h.checkpoint_ns, ':') = 0
)
UPDATE checkpoints SET deleting = 1
WHERE thread_id = :thread_id
AND (hidden OR (checkpoint_ns, checkpoint_id) NOT IN (
    SELECT r.checkpoint_ns, r.checkpoint_id FROM retained r WHERE r.checkpoint_id IS NOT NULL
))

-- name: mark_idle
-- All of a thread, unless a run has gone on or a label was set since the thread was read.
UPDATE checkpoints SET deleting = 1
WHERE thread_id = :thread_id AND NOT EXISTS (
    SELECT 1 FROM checkpoints n WHERE n.thread_id = :thread_id AND n.checkpoint_id > :newest AND NOT n.hidden
)
AND NOT EXISTS (SELECT 1 FROM labels WHERE thread_id = :thread_id)

-- name: delete_idle_writes
-- Sent after the purge_ statements. Writes whose checkpoint was never stored are deleted with their thread, because
-- nothing would refer to them afterwards.
DELETE FROM writes WHERE thread_id = :thread_id
AND NOT EXISTS (SELECT 1 FROM checkpoints WHERE thread_id = :thread_id)

-- name: threads_of_runs
-- The threads in which the runs have stored something.
SELECT c.thread_id FROM json_each(:run_ids) AS r
CROSS JOIN checkpoints c ON c.run_id = r.value AND c.run_id IS NOT NULL AND +c.tenant = :tenant
UNION
SELECT w.thread_id FROM json_each(:run_ids) AS r
CROSS JOIN writes w ON w.run_id = r.value AND w.run_id IS NOT NULL AND +w.tenant = :tenant
ORDER BY 1

-- name: mark_runs
-- The checkpoints of the runs, with or without labels, and the hidden checkpoints of their namespaces, which may have
-- been retained only for these.
UPDATE checkpoints SET deleting = 1
WHERE thread_id = :thread_id AND (hidden OR run_id IN (SELECT value FROM json_each(:run_ids)))
AND checkpoint_ns IN (
    SELECT c.checkpoint_ns FROM checkpoints c
    WHERE c.thread_id = :thread_id AND c.run_id IN (SELECT value FROM json_each(:run_ids))
)

-- The purge_ statements hide or delete what is marked for deletion (`deleting`), in this order.

-- fragment: labelled
FROM labels l
CROSS JOIN checkpoints d ON d.thread_id = l.thread_id AND d.checkpoint_ns = l.checkpoint_ns
    AND d.checkpoint_id = l.checkpoint_id AND d.deleting
WHERE l.thread_id = :thread_id

-- name: purge_labels
-- The labels of checkpoints that will be deleted or hidden.
DELETE FROM labels WHERE thread_id = :thread_id AND name IN (
    SELECT l.name
    -- include: labelled
)

-- fragment: with_namespaces_of_deleted
WITH RECURSIVE namespaces AS MATERIALIZED (
    SELECT DISTINCT checkpoint_ns FROM checkpoints WHERE deleting AND thread_id = :thread_id
)

-- fragment: delta_channels
-- The names of the delta channels in each of the `namespaces`.
, delta AS MATERIALIZED (
    SELECT n.checkpoint_ns, (
        SELECT json_group_array(DISTINCT u.value)
        FROM checkpoints c CROSS JOIN json_each(c.delta_channels) AS u
        WHERE c.thread_id = :thread_id AND c.checkpoint_ns = n.checkpoint_ns
    ) AS channels
    FROM namespaces n
)

-- fragment: still_unseeded
-- The delta channels without a seed that have none in the checkpoint `c` either.
-- differs: lists have no operators here.
FROM json_each(n.unseeded)
WHERE value NOT IN (SELECT value FROM json_each(c.inline_channels))
AND value NOT IN (SELECT value FROM json_each(c.blob_channels))

-- fragment: needed_ancestors
-- What the `retained` checkpoints need, and these themselves. `needed` walks from each of them to its ancestors as long
-- as there is a delta channel without a seed (`unseeded`), or the parent holds sends of a checkpoint older than format
-- 4. That holds for ancestors as well, because a hidden checkpoint has to be complete, too.
, needed (checkpoint_ns, checkpoint_id, unseeded) AS (
    SELECT r.checkpoint_ns, r.checkpoint_id, r.channels FROM retained r WHERE r.channels <> '[]' OR r.format < 4
    UNION
    SELECT n.checkpoint_ns, c.parent_id, (
        SELECT json_group_array(value)
        -- include: still_unseeded
    )
    FROM needed n
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = n.checkpoint_ns
        AND c.checkpoint_id = n.checkpoint_id
    WHERE likelihood(n.checkpoint_id IS NOT NULL, 0.00001) AND c.parent_id IS NOT NULL AND (EXISTS (
        SELECT 1
        -- include: still_unseeded
    ) OR (c.format < 4 AND EXISTS (
        SELECT 1 FROM writes w
        WHERE w.thread_id = :thread_id AND w.checkpoint_ns = n.checkpoint_ns AND w.checkpoint_id = c.parent_id
        AND w.channel = '__pregel_tasks'
    )))
)

-- name: purge_hide_needed
-- What a remaining checkpoint needs is hidden instead. If the parent of a checkpoint that becomes hidden was missing
-- already, its id is removed: no prune has cut off the history there.
-- include: with_namespaces_of_deleted
-- include: delta_channels
, retained AS MATERIALIZED (
    SELECT x.checkpoint_ns, x.channels, c.checkpoint_id, c.format
    FROM delta x
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = x.checkpoint_ns AND NOT c.deleting
    WHERE likelihood(x.channels IS NOT NULL, 0.00001)
)
-- include: needed_ancestors
UPDATE checkpoints AS c SET deleting = 0, hidden = 1, parent_id = CASE
    WHEN c.hidden OR EXISTS (
        SELECT 1 FROM checkpoints p
        WHERE p.thread_id = :thread_id AND p.checkpoint_ns = c.checkpoint_ns AND p.checkpoint_id = c.parent_id
    ) THEN c.parent_id
END
WHERE deleting AND thread_id = :thread_id
AND (checkpoint_ns, checkpoint_id) IN (SELECT n.checkpoint_ns, n.checkpoint_id FROM needed n)

-- name: purge_writes
DELETE FROM writes WHERE (thread_id, checkpoint_ns, checkpoint_id) IN (
    SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints WHERE deleting AND thread_id = :thread_id
)

-- name: purge_parents
-- If the parent of a remaining checkpoint is deleted, its id is removed. A hidden checkpoint keeps that id, so that
-- select_delta_history can tell a deleted parent from one that never existed.
-- include: with_namespaces_of_deleted
UPDATE checkpoints SET parent_id = NULL WHERE rowid IN (
    SELECT c.rowid
    FROM namespaces n
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = n.checkpoint_ns
        AND NOT c.deleting AND NOT c.hidden
    CROSS JOIN checkpoints d ON d.thread_id = :thread_id AND d.checkpoint_ns = c.checkpoint_ns
        AND d.checkpoint_id = c.parent_id AND d.deleting
    WHERE likelihood(n.checkpoint_ns IS NOT NULL, 0.00001)
)

-- name: purge_blobs
-- The blobs that only deleted checkpoints refer to, and their chunks, except those that a remaining blob shares.
-- include: with_namespaces_of_deleted
, refs AS MATERIALIZED (
    SELECT DISTINCT c.checkpoint_ns, u.value AS channel, c.blob_versions ->> u.key AS version, c.deleting
    FROM namespaces n
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = n.checkpoint_ns
    CROSS JOIN json_each(c.blob_channels) AS u
    WHERE likelihood(n.checkpoint_ns IS NOT NULL, 0.00001)
), unused AS MATERIALIZED (
    SELECT checkpoint_ns, channel, version FROM refs WHERE deleting
    EXCEPT
    SELECT checkpoint_ns, channel, version FROM refs WHERE NOT deleting
), unused_chunks AS MATERIALIZED (
    SELECT r.checkpoint_ns, r.channel, n.value
    FROM unused r
    -- include: blob_of_reference
    CROSS JOIN json_each(b.chunks) AS n
    WHERE likelihood(r.channel IS NOT NULL, 0.00001)
    EXCEPT
    SELECT r.checkpoint_ns, r.channel, n.value
    FROM refs r
    -- include: blob_of_reference
    CROSS JOIN json_each(b.chunks) AS n
    WHERE likelihood(NOT r.deleting, 0.00001)
)
DELETE FROM blobs WHERE rowid IN (
    SELECT b.rowid
    FROM (SELECT * FROM unused UNION ALL SELECT * FROM unused_chunks) AS r
    -- include: blob_of_reference
    WHERE likelihood(r.channel IS NOT NULL, 0.00001)
)

-- name: purge_checkpoints
DELETE FROM checkpoints WHERE deleting AND thread_id = :thread_id

-- fragment: unless_needed_by_child
-- A remaining child is rebuilt from the write.
AND NOT EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = :thread_id AND c.checkpoint_ns = w.checkpoint_ns AND c.parent_id = w.checkpoint_id
    AND NOT c.deleting
    AND CASE w.channel
        WHEN '__pregel_tasks' THEN c.format < 4
        ELSE w.channel NOT IN (SELECT value FROM json_each(c.inline_channels))
        AND w.channel NOT IN (SELECT value FROM json_each(c.blob_channels))
        AND EXISTS (
            SELECT 1 FROM delta d CROSS JOIN json_each(d.channels) AS u
            WHERE d.checkpoint_ns = w.checkpoint_ns AND u.value = w.channel
        )
    END
)

-- name: delete_run_writes
-- Sent between the purge_ statements, once it is known what is hidden: what the runs wrote to checkpoints of other runs,
-- such as the answer to an interrupt. Writes of a hidden checkpoint, and those that a child is rebuilt from, remain for
-- good.
WITH namespaces AS MATERIALIZED (
    SELECT DISTINCT checkpoint_ns FROM writes
    WHERE thread_id = :thread_id AND run_id IN (SELECT value FROM json_each(:run_ids))
)
-- include: delta_channels
DELETE FROM writes AS w
WHERE w.thread_id = :thread_id AND w.run_id IN (SELECT value FROM json_each(:run_ids))
AND NOT EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = :thread_id AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
    AND c.hidden
)
-- include: unless_needed_by_child

-- Deleting one checkpoint, or everything after one. A mark_ statement marks what is to be deleted, and the hidden
-- checkpoints of these namespaces, which may have been retained only for that. It returns no row if the named
-- checkpoint (`target`) does not exist. The refuse_labelled statements return the labels that prevent the deletion and,
-- if there are any, take the marks back. delete_open_writes and delete_later_writes are sent between the purge_
-- statements, once it is known what is hidden.

-- name: mark_checkpoint
-- With a root checkpoint, the subgraph calls that it started are deleted. If it was the newest one, the tasks of the
-- checkpoint that becomes the newest run again. So the subgraph calls that these have started are deleted as well, and
-- what subgraphs with a memory have stored since. This does not hold if the deleted checkpoint is on another branch.
WITH target AS MATERIALIZED (
    SELECT t.checkpoint_id, t.parent_id, (
        SELECT max(n.checkpoint_id) FROM checkpoints n
        WHERE n.thread_id = :thread_id AND n.checkpoint_ns = :checkpoint_ns AND n.checkpoint_id <> :checkpoint_id
        AND NOT n.hidden
    ) AS other_id
    FROM checkpoints t
    WHERE t.thread_id = :thread_id AND t.checkpoint_ns = :checkpoint_ns AND t.checkpoint_id = :checkpoint_id
    AND NOT t.hidden
), rerun AS MATERIALIZED (
    SELECT coalesce(t.other_id, t.checkpoint_id) AS first_id FROM target t
    WHERE :checkpoint_ns = '' AND (
        t.other_id IS NULL
        OR (t.other_id < t.checkpoint_id AND (t.parent_id IS NULL OR t.parent_id = t.other_id))
    )
)
UPDATE checkpoints SET deleting = 1
WHERE thread_id = :thread_id AND EXISTS (SELECT 1 FROM target) AND (
    (checkpoint_ns = :checkpoint_ns AND (hidden OR checkpoint_id = :checkpoint_id))
    OR (:checkpoint_ns = '' AND instr(checkpoint_ns, ':') > 0 AND root_id = :checkpoint_id)
    OR (
        checkpoint_ns <> '' AND EXISTS (SELECT 1 FROM rerun)
        AND (hidden OR root_id >= (SELECT first_id FROM rerun))
    )
)
RETURNING checkpoint_id

-- name: mark_later
-- In all namespaces.
-- differs: the checkpoint itself is returned without a mark, because there may be nothing after it.
UPDATE checkpoints SET deleting = (checkpoint_ns, checkpoint_id) <> (:checkpoint_ns, :checkpoint_id)
WHERE thread_id = :thread_id AND (
    hidden OR checkpoint_id > :checkpoint_id OR (checkpoint_ns <> '' AND root_id >= :checkpoint_id)
    OR (checkpoint_ns = :checkpoint_ns AND checkpoint_id = :checkpoint_id)
) AND EXISTS (
    SELECT 1 FROM checkpoints t
    WHERE t.thread_id = :thread_id AND t.checkpoint_ns = :checkpoint_ns AND t.checkpoint_id = :checkpoint_id
    AND NOT t.hidden
)
RETURNING checkpoint_id

-- name: refuse_labelled
SELECT l.name
-- include: labelled
ORDER BY l.name

-- name: refuse_labelled_release
UPDATE checkpoints SET deleting = 0
WHERE thread_id = :thread_id AND deleting AND EXISTS (
    SELECT 1
    -- include: labelled
)

-- name: delete_open_writes
-- When a namespace loses its newest checkpoint, the writes of the checkpoint that becomes the newest belong to what is
-- deleted. LangGraph would take them for the outputs of tasks that have run already. So they are deleted, except those
-- that a remaining child is rebuilt from. If the deleted checkpoint is on another branch, the writes remain: their
-- tasks are still to go on.
WITH newest_deleted AS MATERIALIZED (
    SELECT checkpoint_ns, max(checkpoint_id) AS checkpoint_id
    FROM checkpoints WHERE thread_id = :thread_id AND deleting AND NOT hidden
    GROUP BY checkpoint_ns
), heads AS MATERIALIZED (
    SELECT x.checkpoint_ns, h.checkpoint_id
    FROM newest_deleted x
    CROSS JOIN checkpoints h ON h.thread_id = :thread_id AND h.checkpoint_ns = x.checkpoint_ns AND h.checkpoint_id = (
        SELECT c.checkpoint_id FROM checkpoints c
        WHERE c.thread_id = :thread_id AND c.checkpoint_ns = x.checkpoint_ns AND NOT c.deleting AND NOT c.hidden
        ORDER BY c.checkpoint_id DESC LIMIT 1
    )
    WHERE likelihood(h.checkpoint_id < x.checkpoint_id, 0.00001) AND EXISTS (
        SELECT 1 FROM checkpoints d
        WHERE d.thread_id = :thread_id AND d.checkpoint_ns = x.checkpoint_ns AND d.deleting
        AND (d.parent_id = h.checkpoint_id OR (d.parent_id IS NULL AND NOT d.hidden))
    )
), namespaces AS MATERIALIZED (
    SELECT checkpoint_ns FROM heads
)
-- include: delta_channels
DELETE FROM writes WHERE rowid IN (
    SELECT w.rowid FROM heads h
    CROSS JOIN writes w ON w.thread_id = :thread_id AND w.checkpoint_ns = h.checkpoint_ns
        AND w.checkpoint_id = h.checkpoint_id
    WHERE likelihood(h.checkpoint_id IS NOT NULL, 0.00001)
    -- include: unless_needed_by_child
)

-- name: delete_later_writes
-- Writes whose checkpoint was never stored.
DELETE FROM writes
WHERE thread_id = :thread_id AND +checkpoint_id > :checkpoint_id
AND EXISTS (
    SELECT 1 FROM checkpoints d WHERE d.thread_id = :thread_id AND d.deleting AND NOT d.hidden
)
AND NOT EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = writes.thread_id AND c.checkpoint_ns = writes.checkpoint_ns
    AND c.checkpoint_id = writes.checkpoint_id
)
