-- Setting up the tables.

-- name: schema_numbers
SELECT number, oldest FROM langgraph_checkpoint.langgraph_checkpoint_migrations

-- name: schema_applied
INSERT INTO langgraph_checkpoint.langgraph_checkpoint_migrations (number, name, oldest)
VALUES (%(number)s, %(name)s, %(oldest)s)

-- The searchable_ statements create, find and drop the indexes of searchable metadata keys; see sql/files.py.

-- name: searchable_make
CREATE INDEX IF NOT EXISTS searchable_key ON langgraph_checkpoint.checkpoints (
    tenant,
    -- include: searchable_value
    , checkpoint_id
)
