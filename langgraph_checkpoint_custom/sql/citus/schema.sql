-- What differs if Citus distributes the tables over several servers. A block replaces the one of the same name in
-- postgres/, or adds one. Each says why.
--
-- Citus sends a statement to one server if each table in it is restricted to one thread by a parameter. Such a
-- statement may be anything. Of a statement about many threads, each server runs what it can run alone: joins have to
-- be by thread, and no lateral subquery may have a LIMIT. A statement that stores may neither read from other threads
-- nor depend on a query, except for INSERT ... SELECT.

-- name: schema_extension
-- differs: asked before setup distributes tables.
SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'citus'

-- name: schema_compiling
-- differs: as schema_extension. The driver turns JIT off only where the client is connected.
SELECT nodename, nodeport FROM run_command_on_workers('SHOW jit') WHERE result <> 'off'

-- name: schema_in_order
-- differs: one table after the other. Citus refuses to share a table after it has used several connections.
SELECT set_config('citus.multi_shard_modify_mode', 'sequential', true)

-- name: schema_share
-- differs: every server has a copy of the table of migrations, so that a saver can connect to any of them.
SELECT create_reference_table($$langgraph_checkpoint.langgraph_checkpoint_migrations$$)

-- name: schema_distribute
-- differs: rows go to servers by their thread.
SELECT create_distributed_table($$langgraph_checkpoint.checkpoints$$, 'thread_id', colocate_with => 'none')

-- name: schema_distribute_blobs
-- differs: all rows of a thread are on one server.
SELECT create_distributed_table(
    $$langgraph_checkpoint.blobs$$, 'thread_id', colocate_with => $$langgraph_checkpoint.checkpoints$$
)

-- name: schema_distribute_writes
-- differs: as schema_distribute_blobs.
SELECT create_distributed_table(
    $$langgraph_checkpoint.writes$$, 'thread_id', colocate_with => $$langgraph_checkpoint.checkpoints$$
)

-- name: schema_distribute_labels
-- differs: as schema_distribute_blobs.
SELECT create_distributed_table(
    $$langgraph_checkpoint.labels$$, 'thread_id', colocate_with => $$langgraph_checkpoint.checkpoints$$
)

-- name: schema_distribute_claims
-- differs: as schema_distribute_blobs.
SELECT create_distributed_table(
    $$langgraph_checkpoint.claims$$, 'thread_id', colocate_with => $$langgraph_checkpoint.checkpoints$$
)

-- name: searchable_make_view
-- differs: no row-level security.
CREATE OR REPLACE VIEW langgraph_checkpoint.searched_key AS
SELECT
    thread_id, checkpoint_ns, checkpoint_id, hidden, tenant,
    -- include: searchable_value
    AS shown
FROM langgraph_checkpoint.checkpoints
