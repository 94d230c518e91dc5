-- What differs if Citus distributes the tables over several servers. A block replaces the one of the same name in
-- common/ or postgres/, or adds one.
--
-- Citus sends a statement to one server if each table in it is restricted to one thread by a parameter. Such a
-- statement may be anything. Of a statement about many threads, each server runs what it can run alone: joins have to
-- be by thread, and no lateral subquery may have a LIMIT. A statement that stores may neither read from other threads
-- nor depend on a query, except for INSERT ... SELECT.

-- name: searchable_make_view
-- No row-level security: Citus refuses policies that contain a query.
CREATE OR REPLACE VIEW langgraph_checkpoint.searched_key AS
SELECT
    thread_id, checkpoint_ns, checkpoint_id, hidden, tenant,
    -- include: searchable_value
    AS shown
FROM langgraph_checkpoint.checkpoints
