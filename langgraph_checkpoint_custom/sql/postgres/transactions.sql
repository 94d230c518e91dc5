-- What a transaction begins and ends with: tenants and locks.

-- name: enter_tenant
-- SQLite has no row-level security. The policies of the tables read this setting. It ends with the transaction, which
-- may be the caller's and go on: so the caller's own tenant is kept meanwhile.
SELECT
    set_config('langgraph_checkpoint_custom.callers_tenant', tenant, true),
    set_config('langgraph_checkpoint_custom.tenant', %(tenant)s, true)
FROM (SELECT coalesce(current_setting('langgraph_checkpoint_custom.tenant', true), '') AS tenant OFFSET 0) AS caller

-- name: leave_tenant
-- As enter_tenant. Gives the transaction its tenant back.
SELECT set_config(
    'langgraph_checkpoint_custom.tenant', current_setting('langgraph_checkpoint_custom.callers_tenant'), true
)

-- name: hides_tenants
-- SQLite has no row-level security. Whether the policies of the tables apply to this role.
SELECT row_security_active(c.oid)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = 'checkpoints'

-- The lock of a thread, which the transaction holds until its end. A transaction that deletes in a thread, makes it
-- from another one, or changes who may write to it holds the lock alone. A transaction that stores rows which refer to
-- other rows shares it. The lock is taken by a statement of its own, so that the next statement sees everything that
-- was committed before. docs/architecture.md has the lock of each operation. The key of the lock contains the schema.
-- The statement names a table with rows of the thread, so that the lock is taken where these rows are. count(*) makes
-- one row of none.

-- name: lock_thread
-- SQLite has one writer at a time.
SELECT count(*), pg_advisory_xact_lock(hashtextextended(%(thread_id)s, hashtextextended(%(schema)s, 0)))
FROM langgraph_checkpoint.claims WHERE thread_id = %(thread_id)s

-- name: share_thread
-- As lock_thread.
SELECT count(*), pg_advisory_xact_lock_shared(hashtextextended(%(thread_id)s, hashtextextended(%(schema)s, 0)))
FROM langgraph_checkpoint.claims WHERE thread_id = %(thread_id)s

-- name: try_lock_thread
-- As lock_thread, but without waiting: a row says that another transaction has the lock.
SELECT 1 WHERE NOT pg_try_advisory_xact_lock(hashtextextended(%(thread_id)s, hashtextextended(%(schema)s, 0)))

-- name: limit_waiting
-- SQLite has one writer at a time. A call that stores a row again waits if that row is being deleted. After this time the
-- statement fails and each call is sent alone, so the others of the batch wait no longer. Deleting a thread of 1,000
-- checkpoints takes 15 ms.
SELECT set_config('lock_timeout', '100ms', true)
