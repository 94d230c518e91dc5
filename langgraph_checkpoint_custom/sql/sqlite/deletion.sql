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

-- fragment: heads_newest
-- differs: a part of delete_all_but_newest in postgres/.
WITH plain AS MATERIALIZED (
    SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM labels WHERE thread_id = :thread_id)
    AND NOT EXISTS (
        SELECT 1 FROM checkpoints WHERE thread_id = :thread_id AND (hidden OR format < 4 OR delta_channels <> '[]')
    )
), heads AS MATERIALIZED (
    SELECT c.rowid AS place, c.checkpoint_ns, c.checkpoint_id, c.root_id, c.blob_channels, c.blob_versions
    FROM plain
    CROSS JOIN (
        SELECT checkpoint_ns, max(checkpoint_id) AS newest FROM checkpoints
        WHERE thread_id = :thread_id GROUP BY checkpoint_ns
    ) AS n
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = n.checkpoint_ns
        AND c.checkpoint_id = n.newest
), staying AS MATERIALIZED (
    SELECT h.* FROM heads h
    WHERE instr(h.checkpoint_ns, ':') = 0
    OR h.root_id IS NULL
    OR h.root_id = (SELECT r.checkpoint_id FROM heads r WHERE r.checkpoint_ns = '')
    OR NOT (
        coalesce(h.root_id < (SELECT r.checkpoint_id FROM heads r WHERE r.checkpoint_ns = ''), false)
        OR EXISTS (
            SELECT 1 FROM checkpoints r
            WHERE r.thread_id = :thread_id AND r.checkpoint_ns = '' AND r.checkpoint_id = h.root_id
        )
    )
)

-- name: delete_all_but_newest_writes
-- differs: a part of delete_all_but_newest in postgres/, as are the other statements whose names begin like this.
-- include: heads_newest
DELETE FROM writes AS w
WHERE w.thread_id = :thread_id AND EXISTS (SELECT 1 FROM plain)
AND (w.checkpoint_ns, w.checkpoint_id) NOT IN (SELECT s.checkpoint_ns, s.checkpoint_id FROM staying s)
AND EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = :thread_id AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
)

-- name: delete_all_but_newest_blobs
-- differs: as delete_all_but_newest_writes.
-- include: heads_newest
, named AS MATERIALIZED (
    SELECT b.rowid AS place, b.checkpoint_ns, b.channel, b.chunks
    FROM staying s
    CROSS JOIN json_each(s.blob_channels) AS n
    CROSS JOIN json_each(s.blob_versions) AS v ON v.key = n.key
    CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = s.checkpoint_ns AND b.channel = n.value
        AND b.version = v.value
    WHERE likelihood(s.place IS NOT NULL, 0.00001)
)
DELETE FROM blobs
WHERE thread_id = :thread_id AND EXISTS (SELECT 1 FROM plain)
AND rowid NOT IN (
    SELECT n.place FROM named n
    UNION ALL
    SELECT b.rowid FROM named n
    CROSS JOIN json_each(n.chunks) AS p
    CROSS JOIN blobs b ON b.thread_id = :thread_id AND b.checkpoint_ns = n.checkpoint_ns AND b.channel = n.channel
        AND b.version = p.value
    WHERE likelihood(n.place IS NOT NULL, 0.00001)
)

-- name: delete_all_but_newest_parents
-- differs: as delete_all_but_newest_writes.
-- include: heads_newest
UPDATE checkpoints AS c SET parent_id = NULL
WHERE c.rowid IN (SELECT s.place FROM staying s)
AND EXISTS (
    SELECT 1 FROM checkpoints p
    WHERE p.thread_id = :thread_id AND p.checkpoint_ns = c.checkpoint_ns AND p.checkpoint_id = c.parent_id
)

-- name: delete_all_but_newest_checkpoints
-- differs: as delete_all_but_newest_writes.
-- include: heads_newest
DELETE FROM checkpoints
WHERE thread_id = :thread_id AND EXISTS (SELECT 1 FROM plain) AND rowid NOT IN (SELECT s.place FROM staying s)

-- name: delete_all_but_newest
-- Everything but the newest checkpoint of each namespace is deleted, if nothing else has to remain: nothing in the
-- thread is hidden, labelled or rebuilt from writes. A row says that this was done. mark_superseded explains which
-- namespaces are finished. For 30 checkpoints, or 1,000 with large values, this takes a third of the time of marking
-- and purging; for 1,000 with small values, a ninth. Writes may be stored before their checkpoint, so only writes with
-- a checkpoint are deleted.
-- differs: the last of several statements. `plain` has the same rows before and after the deletion.
-- include: heads_newest
SELECT 1 FROM plain

-- name: mark_superseded
-- Everything is marked except what remains: the `keep` newest checkpoints of each namespace; those with a label; and,
-- for each subgraph with a memory of its own, the checkpoint that a run goes on from if it starts at a root checkpoint
-- with a label, or at one that remains besides the newest. The namespace of a subgraph call contains a colon before a
-- task id, unlike that of a subgraph with checkpointer=True. It is finished once the root checkpoint that started the
-- call does not remain: that one is marked here, or it is older than the newest one and was deleted before. If it is
-- newer, it is still to be stored, and the call is not finished.
WITH heads AS MATERIALIZED (
    SELECT n.* FROM (
        SELECT checkpoint_ns, checkpoint_id, root_id,
            row_number() OVER (PARTITION BY checkpoint_ns ORDER BY checkpoint_id DESC) AS place
        FROM checkpoints WHERE thread_id = :thread_id AND NOT hidden
    ) AS n
    WHERE n.place <= :keep
), finished AS MATERIALIZED (
    SELECT h.checkpoint_ns FROM heads h
    WHERE h.place = 1 AND instr(h.checkpoint_ns, ':') > 0
    AND h.root_id NOT IN (SELECT r.checkpoint_id FROM heads r WHERE r.checkpoint_ns = '')
    AND h.root_id NOT IN (SELECT l.checkpoint_id FROM labels l WHERE l.thread_id = :thread_id AND l.checkpoint_ns = '')
    AND (h.root_id < (SELECT max(r.checkpoint_id) FROM heads r WHERE r.checkpoint_ns = '') OR EXISTS (
        SELECT 1 FROM checkpoints r
        WHERE r.thread_id = :thread_id AND r.checkpoint_ns = '' AND r.checkpoint_id = h.root_id
    ))
), points AS MATERIALIZED (
    SELECT checkpoint_id FROM labels WHERE thread_id = :thread_id AND checkpoint_ns = ''
    UNION
    SELECT checkpoint_id FROM heads WHERE checkpoint_ns = '' AND place > 1
), kept AS MATERIALIZED (
    SELECT checkpoint_ns, checkpoint_id FROM heads WHERE checkpoint_ns NOT IN (SELECT f.checkpoint_ns FROM finished f)
    UNION
    SELECT checkpoint_ns, checkpoint_id FROM labels WHERE thread_id = :thread_id
    UNION
    SELECT h.checkpoint_ns, (
        SELECT c.checkpoint_id FROM checkpoints c
        WHERE c.thread_id = :thread_id AND c.checkpoint_ns = h.checkpoint_ns AND c.checkpoint_id < p.checkpoint_id
        AND NOT c.hidden
        ORDER BY c.checkpoint_id DESC LIMIT 1
    )
    FROM points p CROSS JOIN heads h
    WHERE h.place = 1 AND h.checkpoint_ns <> '' AND instr(h.checkpoint_ns, ':') = 0
)
UPDATE checkpoints SET deleting = 1
WHERE thread_id = :thread_id
AND (hidden OR (checkpoint_ns, checkpoint_id) NOT IN (
    SELECT k.checkpoint_ns, k.checkpoint_id FROM kept k WHERE k.checkpoint_id IS NOT NULL
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

-- name: purge_labels
-- The labels of checkpoints that will be deleted or hidden.
DELETE FROM labels WHERE rowid IN (
    SELECT l.rowid FROM (SELECT DISTINCT thread_id FROM checkpoints WHERE deleting) AS p
    CROSS JOIN labels l ON l.thread_id = p.thread_id
    CROSS JOIN checkpoints d ON d.thread_id = l.thread_id AND d.checkpoint_ns = l.checkpoint_ns
        AND d.checkpoint_id = l.checkpoint_id AND d.deleting
    WHERE likelihood(p.thread_id IS NOT NULL, 0.00001)
)

-- name: purge_spare_needed
-- What a remaining checkpoint needs is hidden instead. `needed` walks from each remaining checkpoint to its ancestors,
-- with the delta channels whose seed was not found yet. `spared` adds the parents that hold the sends of checkpoints
-- older than format 4, because a hidden checkpoint has to be complete, too. If the parent of a checkpoint that becomes
-- hidden was missing already, its id is removed: no prune has cut off the history there.
WITH RECURSIVE places AS MATERIALIZED (
    SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints WHERE deleting
), staying AS MATERIALIZED (
    SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.format, c.inline_channels, c.blob_channels
    FROM places p
    CROSS JOIN checkpoints c ON c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns AND NOT c.deleting
    WHERE likelihood(p.thread_id IS NOT NULL, 0.00001)
), delta AS MATERIALIZED (
    SELECT p.thread_id, p.checkpoint_ns, json_group_array(DISTINCT u.value) AS channels
    FROM places p
    CROSS JOIN checkpoints c ON c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns
    CROSS JOIN json_each(c.delta_channels) AS u
    GROUP BY p.thread_id, p.checkpoint_ns
), needed (thread_id, checkpoint_ns, checkpoint_id, open) AS (
    SELECT s.thread_id, s.checkpoint_ns, s.parent_id, (
        SELECT json_group_array(value) FROM (SELECT value FROM json_each(x.channels) ORDER BY 1)
        WHERE value NOT IN (SELECT value FROM json_each(s.inline_channels))
        AND value NOT IN (SELECT value FROM json_each(s.blob_channels))
    )
    FROM delta x
    CROSS JOIN checkpoints s ON s.thread_id = x.thread_id AND s.checkpoint_ns = x.checkpoint_ns AND NOT s.deleting
    WHERE likelihood(x.channels <> '[]', 0.00001) AND s.parent_id IS NOT NULL
    UNION
    SELECT n.thread_id, n.checkpoint_ns, c.parent_id, (
        SELECT json_group_array(value) FROM json_each(n.open)
        WHERE value NOT IN (SELECT value FROM json_each(c.inline_channels))
        AND value NOT IN (SELECT value FROM json_each(c.blob_channels))
    )
    FROM needed n
    CROSS JOIN checkpoints c ON c.thread_id = n.thread_id AND c.checkpoint_ns = n.checkpoint_ns
        AND c.checkpoint_id = n.checkpoint_id
    WHERE likelihood(n.open <> '[]', 0.00001) AND c.parent_id IS NOT NULL
), spared (thread_id, checkpoint_ns, checkpoint_id) AS (
    SELECT * FROM (
        SELECT thread_id, checkpoint_ns, checkpoint_id FROM needed WHERE open <> '[]'
        UNION
        SELECT s.thread_id, s.checkpoint_ns, s.parent_id FROM staying s
        WHERE s.format < 4 AND EXISTS (
            SELECT 1 FROM writes w
            WHERE w.thread_id = s.thread_id AND w.checkpoint_ns = s.checkpoint_ns AND w.checkpoint_id = s.parent_id
            AND w.channel = '__pregel_tasks'
        )
    )
    UNION
    SELECT k.thread_id, k.checkpoint_ns, c.parent_id FROM spared k
    CROSS JOIN checkpoints c ON c.thread_id = k.thread_id AND c.checkpoint_ns = k.checkpoint_ns
        AND c.checkpoint_id = k.checkpoint_id AND c.format < 4
    WHERE likelihood(k.checkpoint_id IS NOT NULL, 0.00001) AND EXISTS (
        SELECT 1 FROM writes w
        WHERE w.thread_id = k.thread_id AND w.checkpoint_ns = k.checkpoint_ns AND w.checkpoint_id = c.parent_id
        AND w.channel = '__pregel_tasks'
    )
)
UPDATE checkpoints AS c SET deleting = 0, hidden = 1, parent_id = CASE
    WHEN c.hidden OR EXISTS (
        SELECT 1 FROM checkpoints p
        WHERE p.thread_id = c.thread_id AND p.checkpoint_ns = c.checkpoint_ns AND p.checkpoint_id = c.parent_id
    ) THEN c.parent_id
END
WHERE deleting AND (thread_id, checkpoint_ns, checkpoint_id) IN (SELECT * FROM spared)

-- name: purge_writes
DELETE FROM writes WHERE (thread_id, checkpoint_ns, checkpoint_id) IN (
    SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints WHERE deleting
)

-- name: purge_parents
-- If the parent of a remaining checkpoint is deleted, its id is removed. A hidden checkpoint keeps that id, so that
-- select_delta_history can tell a deleted parent from one that never existed.
UPDATE checkpoints SET parent_id = NULL WHERE (thread_id, checkpoint_ns, checkpoint_id) IN (
    SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id
    FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints WHERE deleting) AS p
    CROSS JOIN checkpoints c ON c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns
        AND NOT c.deleting AND NOT c.hidden
    CROSS JOIN checkpoints d ON d.thread_id = c.thread_id AND d.checkpoint_ns = c.checkpoint_ns
        AND d.checkpoint_id = c.parent_id AND d.deleting
    WHERE likelihood(p.thread_id IS NOT NULL, 0.00001)
)

-- name: purge_chunks
-- The chunks of deleted blobs, except those that a remaining blob shares.
DELETE FROM blobs WHERE rowid IN (SELECT b.rowid FROM (
    WITH going AS MATERIALIZED (
        SELECT b.thread_id, b.checkpoint_ns, b.channel, n.value AS name
        FROM (
            SELECT DISTINCT d.thread_id, d.checkpoint_ns, n.value AS channel, v.value AS version
            FROM checkpoints d, json_each(d.blob_channels) AS n, json_each(d.blob_versions) AS v
            WHERE d.deleting AND v.key = n.key
        ) AS r
        CROSS JOIN blobs b ON b.thread_id = r.thread_id AND b.checkpoint_ns = r.checkpoint_ns
            AND b.channel = r.channel AND b.version = r.version
        CROSS JOIN json_each(b.chunks) AS n
    )
    SELECT thread_id, checkpoint_ns, channel, name FROM going
    EXCEPT
    SELECT b.thread_id, b.checkpoint_ns, b.channel, p.value
    FROM (
        SELECT DISTINCT c.thread_id, c.checkpoint_ns, n.value AS channel, v.value AS version
        FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM going) AS g
        CROSS JOIN checkpoints c ON c.thread_id = g.thread_id AND c.checkpoint_ns = g.checkpoint_ns AND NOT c.deleting
        CROSS JOIN json_each(c.blob_channels) AS n
        CROSS JOIN json_each(c.blob_versions) AS v ON v.key = n.key
        WHERE likelihood(g.thread_id IS NOT NULL, 0.00001)
    ) AS s
    CROSS JOIN blobs b ON b.thread_id = s.thread_id AND b.checkpoint_ns = s.checkpoint_ns AND b.channel = s.channel
        AND b.version = s.version
    CROSS JOIN json_each(b.chunks) AS p
) AS g
CROSS JOIN blobs b ON b.thread_id = g.thread_id AND b.checkpoint_ns = g.checkpoint_ns AND b.channel = g.channel
    AND b.version = g.name
)

-- name: purge_blobs
DELETE FROM blobs WHERE rowid IN (SELECT b.rowid FROM (
    SELECT d.thread_id, d.checkpoint_ns, n.value AS channel, v.value AS version
    FROM checkpoints d, json_each(d.blob_channels) AS n, json_each(d.blob_versions) AS v
    WHERE d.deleting AND v.key = n.key
    EXCEPT
    SELECT c.thread_id, c.checkpoint_ns, n.value, v.value
    FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints WHERE deleting) AS p
    CROSS JOIN checkpoints c ON c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns AND NOT c.deleting
    CROSS JOIN json_each(c.blob_channels) AS n
    CROSS JOIN json_each(c.blob_versions) AS v ON v.key = n.key
    WHERE likelihood(p.thread_id IS NOT NULL, 0.00001)
) AS g
CROSS JOIN blobs b ON b.thread_id = g.thread_id AND b.checkpoint_ns = g.checkpoint_ns AND b.channel = g.channel
    AND b.version = g.version
)

-- name: purge_checkpoints
DELETE FROM checkpoints WHERE deleting

-- name: delete_run_writes
-- Sent after the purge_ statements: what the runs wrote to checkpoints of other runs, such as the answer to an
-- interrupt. Writes of a hidden checkpoint, and those that a child is rebuilt from, remain for good.
WITH delta AS MATERIALIZED (
    SELECT DISTINCT p.checkpoint_ns, u.value AS channel
    FROM (
        SELECT DISTINCT o.checkpoint_ns FROM writes o
        WHERE o.thread_id = :thread_id AND o.run_id IN (SELECT value FROM json_each(:run_ids))
    ) AS p
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = p.checkpoint_ns
    CROSS JOIN json_each(c.delta_channels) AS u
    WHERE likelihood(p.checkpoint_ns IS NOT NULL, 0.00001)
)
DELETE FROM writes AS w
WHERE w.thread_id = :thread_id AND w.run_id IN (SELECT value FROM json_each(:run_ids))
AND NOT EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
    AND c.hidden
)
AND NOT EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns AND c.parent_id = w.checkpoint_id
    AND CASE w.channel
        WHEN '__pregel_tasks' THEN c.format < 4
        ELSE w.channel NOT IN (SELECT value FROM json_each(c.inline_channels))
        AND w.channel NOT IN (SELECT value FROM json_each(c.blob_channels))
        AND (w.checkpoint_ns, w.channel) IN (SELECT checkpoint_ns, channel FROM delta)
    END
)

-- Deleting one checkpoint, or everything after one. A mark_ statement marks what is to be deleted, and the hidden
-- checkpoints of these namespaces, which may have been retained only for that. It returns no row if the named
-- checkpoint does not exist. A checkpoint that is stored in the thread after that, without its lock, is not looked at.
-- The refuse_labelled statements return the labels that prevent the deletion and, if there are any, take the marks
-- back. delete_open_writes and delete_later_writes are sent between the purge_ statements, once it is known what is
-- spared.

-- name: mark_checkpoint
-- With a root checkpoint, the subgraph calls that it started are deleted. If it was the newest one, the tasks of the
-- checkpoint that becomes the newest run again. So the subgraph calls that these have started are deleted as well, and
-- what subgraphs with a memory have stored since. This does not hold if the deleted checkpoint is on another branch.
WITH gone AS MATERIALIZED (
    SELECT t.parent_id, (
        SELECT max(n.checkpoint_id) FROM checkpoints n
        WHERE n.thread_id = :thread_id AND n.checkpoint_ns = :checkpoint_ns AND n.checkpoint_id <> :checkpoint_id
        AND NOT n.hidden
    ) AS other_id
    FROM checkpoints t
    WHERE t.thread_id = :thread_id AND t.checkpoint_ns = :checkpoint_ns AND t.checkpoint_id = :checkpoint_id
    AND NOT t.hidden
), again AS MATERIALIZED (
    SELECT coalesce(g.other_id, :checkpoint_id) AS first_id FROM gone g
    WHERE :checkpoint_ns = '' AND (
        g.other_id IS NULL
        OR (g.other_id < :checkpoint_id AND (g.parent_id IS NULL OR g.parent_id = g.other_id))
    )
)
UPDATE checkpoints SET deleting = 1
WHERE thread_id = :thread_id AND EXISTS (SELECT 1 FROM gone) AND (
    (checkpoint_ns = :checkpoint_ns AND (hidden OR checkpoint_id = :checkpoint_id))
    OR (:checkpoint_ns = '' AND instr(checkpoint_ns, ':') > 0 AND root_id = :checkpoint_id)
    OR (
        checkpoint_ns <> '' AND EXISTS (SELECT 1 FROM again)
        AND (hidden OR root_id >= (SELECT first_id FROM again))
    )
)
RETURNING checkpoint_id

-- name: mark_later
-- In all namespaces. The checkpoint itself is returned without a mark, because there may be nothing after it.
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
SELECT l.name FROM labels l
CROSS JOIN checkpoints d ON d.thread_id = l.thread_id AND d.checkpoint_ns = l.checkpoint_ns
    AND d.checkpoint_id = l.checkpoint_id AND d.deleting
WHERE l.thread_id = :thread_id
ORDER BY l.name

-- name: refuse_labelled_release
UPDATE checkpoints SET deleting = 0
WHERE thread_id = :thread_id AND deleting AND EXISTS (
    SELECT 1 FROM labels l
    CROSS JOIN checkpoints d ON d.thread_id = l.thread_id AND d.checkpoint_ns = l.checkpoint_ns
        AND d.checkpoint_id = l.checkpoint_id AND d.deleting
    WHERE l.thread_id = :thread_id
)

-- name: delete_open_writes
-- When a namespace loses its newest checkpoint, the writes of the checkpoint that becomes the newest belong to what is
-- deleted. LangGraph would take them for the outputs of tasks that have run already. So they are deleted, except those
-- that a remaining child is rebuilt from. If the deleted checkpoint is on another branch, the writes remain: their
-- tasks are still to go on.
WITH lost AS MATERIALIZED (
    SELECT checkpoint_ns, max(checkpoint_id) AS checkpoint_id
    FROM checkpoints WHERE thread_id = :thread_id AND deleting AND NOT hidden
    GROUP BY checkpoint_ns
), heads AS MATERIALIZED (
    SELECT x.checkpoint_ns, h.checkpoint_id
    FROM lost x
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
), delta AS MATERIALIZED (
    SELECT DISTINCT h.checkpoint_ns, u.value AS channel
    FROM heads h
    CROSS JOIN checkpoints c ON c.thread_id = :thread_id AND c.checkpoint_ns = h.checkpoint_ns
    CROSS JOIN json_each(c.delta_channels) AS u
    WHERE likelihood(h.checkpoint_id IS NOT NULL, 0.00001)
)
DELETE FROM writes WHERE rowid IN (
    SELECT w.rowid FROM heads h
    CROSS JOIN writes w ON w.thread_id = :thread_id AND w.checkpoint_ns = h.checkpoint_ns
        AND w.checkpoint_id = h.checkpoint_id
    WHERE likelihood(h.checkpoint_id IS NOT NULL, 0.00001) AND NOT EXISTS (
        SELECT 1 FROM checkpoints c
        WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns AND c.parent_id = w.checkpoint_id
        AND NOT c.deleting
        AND CASE w.channel
            WHEN '__pregel_tasks' THEN c.format < 4
            ELSE w.channel NOT IN (SELECT value FROM json_each(c.inline_channels))
            AND w.channel NOT IN (SELECT value FROM json_each(c.blob_channels))
            AND (w.checkpoint_ns, w.channel) IN (SELECT checkpoint_ns, channel FROM delta)
        END
    )
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
