-- Retention: at which threads a sweep looks. Times are in seconds since 1970; `due_at` 0 means at the next sweep.

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

-- fragment: without_a_row
-- NOT EXISTS would be a join, for which the planner may read all of `threads` for each page: test_plans shows it.
AND (SELECT 1 FROM langgraph_checkpoint.threads AS t WHERE t.thread_id = candidates.thread_id) IS NULL

-- name: arm_threads
-- Inserts the rows of up to `threads` threads of a range, and looks them up first, as arm_thread does.
-- include: candidates_by_id
INSERT INTO langgraph_checkpoint.threads (thread_id, tenant, due_at)
SELECT thread_id, %(tenant)s, CAST(%(due_at)s AS double precision) FROM candidates
WHERE thread_id IS NOT NULL
-- include: without_a_row
ON CONFLICT (thread_id) DO NOTHING

-- A sweep changes the rows of many threads in one transaction. If it waited for one that a caller's transaction holds,
-- all others would wait for the sweep.

-- name: hasten_free
-- Makes a thread due that has a row, after those that are due already, unless the row is held.
UPDATE langgraph_checkpoint.threads SET due_at = %(due_at)s
WHERE thread_id = %(thread_id)s AND due_at > %(due_at)s AND thread_id IN (
    SELECT h.thread_id FROM langgraph_checkpoint.threads AS h WHERE h.thread_id = %(thread_id)s
    -- include: unless_held
)

-- name: select_later
-- The thread, if it is due later: hasten_free has left it.
SELECT thread_id FROM langgraph_checkpoint.threads WHERE thread_id = %(thread_id)s AND due_at > %(due_at)s

-- name: hasten_held
-- hasten_free for one thread, which may wait.
UPDATE langgraph_checkpoint.threads SET due_at = %(due_at)s WHERE thread_id = %(thread_id)s AND due_at > %(due_at)s

-- name: thread_ids
-- The threads that arm_threads reaches.
-- include: candidates_by_id
SELECT thread_id FROM candidates WHERE thread_id IS NOT NULL

-- name: hasten_thread
-- Makes a thread due, also one without a row.
INSERT INTO langgraph_checkpoint.threads AS t (thread_id, tenant, due_at)
SELECT thread_id, %(tenant)s, CAST(%(due_at)s AS double precision) FROM
-- include: the_thread
WHERE true
ON CONFLICT (thread_id) DO UPDATE SET due_at = excluded.due_at WHERE t.due_at > excluded.due_at

-- name: set_ttl
-- A row says that the thread exists.
INSERT INTO langgraph_checkpoint.threads (thread_id, tenant, ttl_seconds, strategy)
SELECT thread_id, %(tenant)s, CAST(%(ttl_seconds)s AS double precision), %(strategy)s FROM
-- include: the_thread
WHERE true
ON CONFLICT (thread_id) DO UPDATE
SET due_at = 0, ttl_seconds = excluded.ttl_seconds, strategy = excluded.strategy
RETURNING thread_id

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

-- name: select_arming
-- When a thread is due, and what set_ttl has said.
SELECT due_at, ttl_seconds, strategy FROM langgraph_checkpoint.threads WHERE thread_id = %(thread_id)s

-- name: select_metadata
SELECT metadata_type, metadata FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s

-- name: rearm_thread
-- Unless somebody has changed the row since it was read.
INSERT INTO langgraph_checkpoint.threads AS t (thread_id, tenant, due_at)
VALUES (%(thread_id)s, %(tenant)s, %(due_at)s)
ON CONFLICT (thread_id) DO UPDATE SET due_at = excluded.due_at WHERE t.due_at = %(seen)s

-- name: begin_visit
-- The time of the visit, instead of that since when the thread is due: what makes it due again meanwhile is seen.
-- A thread whose row is held stays due.
UPDATE langgraph_checkpoint.threads SET due_at = %(begun)s
WHERE thread_id = %(thread_id)s AND due_at < %(begun)s AND thread_id IN (
    SELECT h.thread_id FROM langgraph_checkpoint.threads AS h WHERE h.thread_id = %(thread_id)s
    -- include: unless_held
)

-- name: rearm_kept
-- rearm_thread without the thread's lock. A thread that was deleted meanwhile has no row, and gets none. One whose row
-- is held stays due.
UPDATE langgraph_checkpoint.threads SET due_at = %(due_at)s
WHERE thread_id = %(thread_id)s AND due_at = %(begun)s AND thread_id IN (
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
