-- Retention: at which threads a sweep looks. Times are in seconds since 1970; a `due_at` of at most 0 means at the next
-- sweep.

-- fragment: the_thread
-- The thread, if it has a checkpoint.
(
    SELECT thread_id FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s ORDER BY checkpoint_ns LIMIT 1
) AS found

-- name: arm_thread
-- Inserts the row of a thread, with its first checkpoint, unless that was not stored, for example for a lost claim. The
-- row is looked up first: on PostgreSQL, ON CONFLICT alone would wait for a transaction that deletes or changes it. If
-- that deletes it, the thread gets a row by arm_threads.
INSERT INTO langgraph_checkpoint.threads (thread_id, tenant)
SELECT thread_id, %(tenant)s FROM
-- include: the_thread
WHERE NOT EXISTS (SELECT 1 FROM langgraph_checkpoint.threads WHERE thread_id = %(thread_id)s)
ON CONFLICT (thread_id) DO NOTHING

-- Changes the rows of a page of threads in three statements. If a sweep waited for a row that a caller's transaction
-- holds, all other threads of the page would wait for the sweep. So it leaves that row, and goes on to wait for it alone.

-- fragment: without_a_row
-- NOT EXISTS would be a join, for which the planner may read all of `threads` for each page: test_plans shows it.
WHERE (SELECT 1 FROM langgraph_checkpoint.threads AS t WHERE t.thread_id = given.value) IS NULL

-- name: arm_threads
-- Inserts the rows of the threads that have none, and looks them up first, as arm_thread does. A row of a thread that
-- was deleted meanwhile goes with the next visit.
INSERT INTO langgraph_checkpoint.threads (thread_id, tenant, due_at)
SELECT given.value, %(tenant)s, CAST(%(due_at)s AS double precision) FROM
-- include: given_threads
-- include: without_a_row
ON CONFLICT (thread_id) DO NOTHING

-- name: hasten_threads
-- Makes threads due, after those that are due already, except for rows that are held.
UPDATE langgraph_checkpoint.threads SET due_at = %(due_at)s
WHERE
-- include: among_given
AND thread_id IN (
    SELECT h.thread_id FROM langgraph_checkpoint.threads AS h
    WHERE
    -- include: among_given
    AND h.due_at > %(due_at)s
    -- include: unless_held
)

-- name: select_later
-- The threads that are due later: hasten_threads has left them.
SELECT thread_id FROM langgraph_checkpoint.threads
WHERE
-- include: among_given
AND due_at > %(due_at)s

-- name: thread_ids
-- The threads of a range.
-- include: candidates_by_id
SELECT thread_id FROM candidates WHERE thread_id IS NOT NULL

-- fragment: sooner
-- Due at the next sweep. The value is always a new one, by which a sweep sees that the thread is due for another reason
-- than it was when the visit began.
due_at = -1 - abs(t.due_at)

-- name: hasten_thread
-- Makes a thread due, also one without a row. It may wait for the row.
INSERT INTO langgraph_checkpoint.threads AS t (thread_id, tenant)
SELECT thread_id, %(tenant)s FROM
-- include: the_thread
WHERE true
ON CONFLICT (thread_id) DO UPDATE SET
-- include: sooner

-- name: set_ttl
-- A row says that the thread exists.
INSERT INTO langgraph_checkpoint.threads AS t (thread_id, tenant, ttl_seconds, strategy)
SELECT thread_id, %(tenant)s, CAST(%(ttl_seconds)s AS double precision), %(strategy)s FROM
-- include: the_thread
WHERE true
ON CONFLICT (thread_id) DO UPDATE
SET ttl_seconds = excluded.ttl_seconds, strategy = excluded.strategy,
-- include: sooner
RETURNING thread_id

-- fragment: newest_roots
-- The number of the newest root checkpoints, `counted` at most; NULL if there are none, or one of these is hidden.
(
    SELECT CASE WHEN count(*) FILTER (WHERE hidden) = 0 THEN nullif(count(*), 0) END FROM (
        SELECT hidden FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s AND checkpoint_ns = ''
        ORDER BY checkpoint_id DESC LIMIT %(counted)s
    ) AS newest
)

-- name: select_due
SELECT thread_id, due_at FROM langgraph_checkpoint.threads
WHERE
-- include: of_tenant
AND due_at <= %(now)s AND (due_at, thread_id) > (%(due_after)s, %(thread_id)s)
ORDER BY due_at, thread_id LIMIT %(limit)s

-- name: select_grown
-- The checkpoints from an id on.
SELECT checkpoint_id, thread_id FROM langgraph_checkpoint.checkpoints
WHERE
-- include: of_tenant
AND checkpoint_id >= %(bottom)s AND checkpoint_id < %(top)s
AND (checkpoint_id, thread_id) > (%(bottom)s, %(thread_id)s)
ORDER BY checkpoint_id, thread_id LIMIT %(limit)s

-- name: select_metadata
SELECT metadata_type, metadata FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s

-- name: rearm_thread
-- Says when to visit a thread again, unless its row is another one than that which was read, if one was, or is held. Then
-- it stays due. A thread that was deleted meanwhile has no row, and gets none.
UPDATE langgraph_checkpoint.threads SET due_at = %(due_at)s
WHERE thread_id = %(thread_id)s AND due_at = coalesce(%(seen)s, due_at) AND thread_id IN (
    SELECT h.thread_id FROM langgraph_checkpoint.threads AS h WHERE h.thread_id = %(thread_id)s
    -- include: unless_held
)

-- name: drop_thread
-- The row of a thread whose checkpoints are deleted, with its time to live. On PostgreSQL, arm_thread follows, for a
-- checkpoint that was stored meanwhile. A thread that begins anew later gets a row by arm_threads.
DELETE FROM langgraph_checkpoint.threads WHERE thread_id = %(thread_id)s

-- name: select_sweep
-- What the sweeps of a tenant have done.
SELECT policy, armed_at, started_at, finished_at FROM langgraph_checkpoint.sweeps WHERE tenant = %(tenant)s

-- name: begin_policy
INSERT INTO langgraph_checkpoint.sweeps (tenant, policy) VALUES (%(tenant)s, %(policy)s)
ON CONFLICT (tenant) DO UPDATE SET policy = excluded.policy, armed_at = 0, started_at = 0

-- name: note_sweep
-- A row says that the sweeps still have this policy.
UPDATE langgraph_checkpoint.sweeps
SET armed_at = %(armed_at)s, started_at = %(started_at)s, finished_at = coalesce(%(finished_at)s, finished_at)
WHERE tenant = %(tenant)s AND policy = %(policy)s
RETURNING policy

-- name: count_due
-- How many threads were due between two times, up to a number, and since when.
SELECT count(*), min(due_at) FROM (
    SELECT due_at FROM langgraph_checkpoint.threads
    WHERE tenant = %(tenant)s AND due_at > %(above)s AND due_at < %(below)s
    ORDER BY due_at LIMIT %(limit)s
) AS due
