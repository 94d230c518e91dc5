-- The statements for SQLite 3.40 and later.
--
-- A write is a transaction that holds the one write lock from its start, so no statement here locks rows. Lists are
-- JSON.
--
-- Plans are the same with statistics (ANALYZE) and without. CROSS JOIN keeps the order of the tables, a unary plus
-- keeps a column from choosing an index, and likelihood(…, 0.00001) says that a WITH has few rows. With statistics,
-- SQLite would otherwise assume a million rows and first read all of the table that is joined to it, for a Bloom
-- filter: test_sqlite_reads_by_index in tests/plans/test_plans.py shows it.

-- name: schema_state
-- One row: whether the schema exists, whether the table of migrations does, a table named as one of ours, and the layout.
SELECT
    true,
    EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'langgraph_checkpoint_migrations'),
    (
        SELECT name FROM sqlite_schema WHERE type = 'table' AND lower(name) IN (
            'checkpoints', 'blobs', 'writes', 'labels', 'threads', 'sweeps', 'claims', 'moves'
        )
        ORDER BY 1 LIMIT 1
    ),
    NULL

-- name: schema_create_table
CREATE TABLE langgraph_checkpoint_migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    oldest INTEGER NOT NULL
) STRICT

-- name: searchable_indexes
-- A row for each of the indexes that exists: its name, and whether this role can use it.
SELECT name, true FROM sqlite_schema WHERE type = 'index' AND name IN (SELECT value FROM json_each(:names))

-- fragment: searchable_value
coalesce(
    json_extract(metadata_filter, '$."searchable key"'),
    CASE
        WHEN json_type(metadata_filter, '$."searchable key"') IS NULL
            AND json_type(metadata_filter, '$."*"') IS NULL THEN 'null'
        ELSE '?'
    END
)
