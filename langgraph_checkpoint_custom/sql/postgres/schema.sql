-- The statements for PostgreSQL 15 and later.
--
-- Every statement of the hot path names one thread. Rows are looked up by key in LATERAL subqueries that the planner
-- cannot turn into a join over a complete thread, because of OFFSET 0 or LIMIT 1, or EXISTS IS TRUE. The
-- planner's estimates are worst for the threads that matter. To find out whether there is any row for the first columns
-- of a key, a statement uses max(), min() or ORDER BY and LIMIT. With EXISTS alone, the planner would expect many such
-- rows and read the table from its start. tests/plans/test_plans.py shows these plans.
--
-- `tenant` is an ordinary column that the client fills, because the expression of a generated column is planned again
-- with each statement.

-- name: schema_lock
SELECT pg_advisory_xact_lock(hashtextextended('langgraph_checkpoint_migrations ' || %(schema)s, 0))

-- name: schema_state
-- One row: whether the schema exists, whether the table of migrations does, a table named as one of ours, and the layout.
SELECT
    EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %(schema)s),
    EXISTS (
        SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = %(schema)s AND c.relname = 'langgraph_checkpoint_migrations'
    ),
    (
        SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = %(schema)s AND c.relname IN (
            'checkpoints', 'blobs', 'writes', 'labels', 'threads', 'sweeps', 'claims', 'moves'
        )
        ORDER BY 1 LIMIT 1
    ),
    -- Citus gives each table that it distributes this trigger, on all servers.
    (
        SELECT 'citus' FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_catalog.pg_trigger t ON t.tgrelid = c.oid JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
        WHERE n.nspname = %(schema)s AND c.relname = 'checkpoints' AND p.proname = 'citus_truncate_trigger'
    )

-- name: schema_create
-- SQLite has no schemas to create.
CREATE SCHEMA langgraph_checkpoint

-- name: schema_create_table
CREATE TABLE langgraph_checkpoint.langgraph_checkpoint_migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    oldest integer NOT NULL
)

-- name: searchable_lock
-- SQLite has one writer at a time. CREATE INDEX CONCURRENTLY takes this lock as well.
LOCK TABLE langgraph_checkpoint.checkpoints IN SHARE UPDATE EXCLUSIVE MODE

-- name: searchable_indexes
-- A row for each of the indexes that exists: its name, and whether it is valid and this role can use it.
SELECT i.relname::text, x.indisvalid AND coalesce(has_table_privilege(v.oid, 'SELECT'), false)
FROM pg_catalog.pg_class i
JOIN pg_catalog.pg_namespace n ON n.oid = i.relnamespace
JOIN pg_catalog.pg_index x ON x.indexrelid = i.oid
LEFT JOIN pg_catalog.pg_class v ON v.relnamespace = n.oid AND v.relkind = 'v'
    AND v.relname = 'searched_' || substr(i.relname, 12)
WHERE n.nspname = %(schema)s AND i.relname = ANY(%(names)s::name[])

-- fragment: searchable_value
coalesce(
    metadata_filter ->> 'searchable key',
    CASE WHEN metadata_filter ?| '{"searchable key",*}' THEN '?' ELSE 'null' END
)

-- name: searchable_drop
-- SQLite has no invalid indexes, which a CREATE INDEX CONCURRENTLY that failed leaves.
DROP INDEX IF EXISTS langgraph_checkpoint.searchable_key

-- name: searchable_make_view
-- SQLite has no row-level security. Under row-level security, PostgreSQL uses an index only for conditions
-- that are leakproof: text = text is, an expression on JSON is not. The view contains the expression and the tenant's
-- condition, and belongs to the owner of the tables.
CREATE OR REPLACE VIEW langgraph_checkpoint.searched_key WITH (security_barrier) AS
SELECT
    thread_id, checkpoint_ns, checkpoint_id, hidden, tenant,
    -- include: searchable_value
    AS shown
FROM langgraph_checkpoint.checkpoints
WHERE tenant = (SELECT langgraph_checkpoint.current_tenant()) AND tenant = langgraph_checkpoint.tenant_of(thread_id)

-- The schema_ statements below distribute new tables over the servers of a Citus cluster.

-- name: schema_extension
SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'citus'

-- name: schema_compiling
-- The driver turns JIT off only where the client is connected.
SELECT nodename, nodeport FROM run_command_on_workers('SHOW jit') WHERE result <> 'off'

-- name: schema_distribute
-- One table after the other: Citus refuses to share a table after it has used several connections. Every server has a
-- copy of the tables of migrations and of sweeps, so that a saver can connect to any of them. All rows of a thread are
-- on one server.
SELECT
    set_config('citus.multi_shard_modify_mode', 'sequential', true),
    create_reference_table($$langgraph_checkpoint.langgraph_checkpoint_migrations$$),
    create_distributed_table($$langgraph_checkpoint.checkpoints$$, 'thread_id', colocate_with => 'none'),
    create_distributed_table(
        $$langgraph_checkpoint.blobs$$, 'thread_id', colocate_with => $$langgraph_checkpoint.checkpoints$$
    ),
    create_distributed_table(
        $$langgraph_checkpoint.writes$$, 'thread_id', colocate_with => $$langgraph_checkpoint.checkpoints$$
    ),
    create_distributed_table(
        $$langgraph_checkpoint.labels$$, 'thread_id', colocate_with => $$langgraph_checkpoint.checkpoints$$
    ),
    create_distributed_table(
        $$langgraph_checkpoint.claims$$, 'thread_id', colocate_with => $$langgraph_checkpoint.checkpoints$$
    ),
    create_distributed_table(
        $$langgraph_checkpoint.moves$$, 'thread_id', colocate_with => $$langgraph_checkpoint.checkpoints$$
    ),
    create_distributed_table(
        $$langgraph_checkpoint.threads$$, 'thread_id', colocate_with => $$langgraph_checkpoint.checkpoints$$
    ),
    create_reference_table($$langgraph_checkpoint.sweeps$$)
