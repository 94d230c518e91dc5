-- Reencryption, sizes, verification and repair.

-- The stored_ statements read a page of the rows after a key. The renew_stored_ statements replace the bytes of one row,
-- unless another transaction has changed them.

-- name: stored_checkpoints
SELECT thread_id, checkpoint_ns, checkpoint_id, checkpoint_type, checkpoint, metadata_type, metadata,
    CAST(metadata_filter AS text)
FROM langgraph_checkpoint.checkpoints
WHERE (thread_id, checkpoint_ns, checkpoint_id) > (%(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s) AND thread_id < %(top)s
ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT %(limit)s

-- name: stored_blobs
SELECT thread_id, checkpoint_ns, channel, version, type, value, chunks FROM langgraph_checkpoint.blobs
WHERE (thread_id, checkpoint_ns, channel, version) > (%(thread_id)s, %(checkpoint_ns)s, %(channel)s, %(version)s)
AND thread_id < %(top)s
ORDER BY thread_id, checkpoint_ns, channel, version LIMIT %(limit)s

-- name: stored_writes
SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value FROM langgraph_checkpoint.writes
WHERE (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
    > (%(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s, %(task_id)s, %(idx)s)
AND thread_id < %(top)s
ORDER BY thread_id, checkpoint_ns, checkpoint_id, task_id, idx LIMIT %(limit)s

-- name: renew_stored_checkpoint
UPDATE langgraph_checkpoint.checkpoints
SET checkpoint_type = %(type1)s, checkpoint = %(value1)s, metadata_type = %(type2)s, metadata = %(value2)s,
    metadata_filter = %(metadata_filter)s
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s
AND checkpoint = %(old1)s AND metadata = %(old2)s

-- name: renew_stored_blob
UPDATE langgraph_checkpoint.blobs SET type = %(type1)s, value = %(value1)s
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND channel = %(channel)s AND version = %(version)s
AND value = %(old1)s

-- name: renew_stored_write
UPDATE langgraph_checkpoint.writes SET type = %(type1)s, value = %(value1)s
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s
AND task_id = %(task_id)s AND idx = %(idx)s AND value = %(old1)s

-- The catalog_ statements read what the database has, one line for each thing. The lines are those of `shipped.txt` in
-- the migrations if nothing was changed. The schema's name is left out.

-- name: catalog_lines
WITH ours AS MATERIALIZED (
    SELECT c.oid, c.relname, c.relrowsecurity
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relkind = 'r'
), lines (line) AS (
    SELECT 'table ' || relname || CASE WHEN relrowsecurity THEN ', row-level security' ELSE '' END FROM ours
    UNION ALL
    SELECT 'column ' || o.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
        || CASE WHEN a.attcollation <> t.typcollation THEN ' collate ' || k.collname ELSE '' END
        || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
        || CASE WHEN a.attgenerated = 's' THEN ' generated' ELSE '' END
        || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
        || CASE WHEN a.attstorage <> t.typstorage THEN ' storage ' || a.attstorage::text ELSE '' END
    FROM ours o
    JOIN pg_catalog.pg_attribute a ON a.attrelid = o.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_catalog.pg_collation k ON k.oid = a.attcollation
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    UNION ALL
    SELECT 'index ' || replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ')
        || CASE WHEN i.indisvalid THEN '' ELSE ' (not valid)' END
    FROM ours o JOIN pg_catalog.pg_index i ON i.indrelid = o.oid
    JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid AND NOT starts_with(x.relname, 'searchable_')
    UNION ALL
    SELECT 'policy ' || p.polname || ' on ' || o.relname || ' for ' || p.polcmd::text
        || ' using ' || regexp_replace(coalesce(pg_get_expr(p.polqual, p.polrelid), 'true'), '\s+', ' ', 'g')
        || coalesce(' check ' || regexp_replace(pg_get_expr(p.polwithcheck, p.polrelid), '\s+', ' ', 'g'), '')
    FROM ours o JOIN pg_catalog.pg_policy p ON p.polrelid = o.oid
    UNION ALL
    SELECT 'function ' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')'
        || replace(rtrim(regexp_replace(substring(pg_get_functiondef(p.oid) FROM '\s+RETURNS.*'), '\s+', ' ', 'g')), E'\x1f', '\x1f')
    FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = %(schema)s
    UNION ALL
    -- Before version 16, PostgreSQL qualifies each column.
    SELECT 'view ' || c.relname || coalesce(' (' || array_to_string(c.reloptions, ', ') || ')', '')
        || regexp_replace(regexp_replace(pg_get_viewdef(c.oid), '\m(checkpoints|seen)\.', '', 'g'), '\s+', ' ', 'g')
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relkind = 'v' AND NOT starts_with(c.relname, 'searched_')
)
SELECT replace(line, quote_ident(%(schema)s) || '.', '') FROM lines ORDER BY 1

-- name: catalog_privileges
-- differs: SQLite has no privileges except those of the file.
SELECT c.relname::text, p.name, has_table_privilege(c.oid, p.name)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) AS p (name)
WHERE n.nspname = %(schema)s AND c.relkind = 'r'
UNION ALL
SELECT n.nspname::text, 'USAGE', has_schema_privilege(n.oid, 'USAGE')
FROM pg_catalog.pg_namespace n WHERE n.nspname = %(schema)s

-- A page of threads is a range of thread ids. `sizes` and the doctor_ statements read the rows of a range.

-- name: thread_at
-- The thread of the checkpoint that comes after a number of others in a range, which is where a page ends.
SELECT thread_id FROM langgraph_checkpoint.checkpoints WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
ORDER BY thread_id LIMIT 1 OFFSET %(rows)s

-- name: sizes
-- The number of rows and bytes of each kind and channel, in each namespace of each thread. Of each table, at most
-- `most` rows are counted. Values are not read, only their lengths.
SELECT thread_id, checkpoint_ns, kind, channel, count(*), sum(bytes), min(checkpoint_id), max(checkpoint_id)
FROM (
    SELECT * FROM (
        SELECT thread_id, checkpoint_ns, CASE WHEN hidden THEN 'hidden' ELSE 'checkpoint' END AS kind, NULL AS channel,
            length(checkpoint) + length(metadata) AS bytes, checkpoint_id
        FROM langgraph_checkpoint.checkpoints WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
        ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT %(most)s
    ) AS of_checkpoints
    UNION ALL
    SELECT * FROM (
        SELECT thread_id, checkpoint_ns, CASE WHEN substr(version, 1, 2) = '#/' THEN 'chunk' ELSE 'value' END, channel,
            length(value), NULL
        FROM langgraph_checkpoint.blobs WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
        ORDER BY thread_id, checkpoint_ns, channel, version LIMIT %(most)s
    ) AS of_blobs
    UNION ALL
    SELECT * FROM (
        SELECT thread_id, checkpoint_ns, 'write', channel, length(value), NULL
        FROM langgraph_checkpoint.writes WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
        ORDER BY thread_id, checkpoint_ns, checkpoint_id, task_id, idx LIMIT %(most)s
    ) AS of_writes
) AS counted
GROUP BY thread_id, checkpoint_ns, kind, channel

-- name: doctor_checkpoints
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, hidden, blob_channels, blob_versions
FROM langgraph_checkpoint.checkpoints WHERE thread_id >= %(bottom)s AND thread_id < %(top)s

-- name: doctor_blobs
SELECT thread_id, checkpoint_ns, channel, version, chunks
FROM langgraph_checkpoint.blobs WHERE thread_id >= %(bottom)s AND thread_id < %(top)s

-- name: doctor_labels
SELECT thread_id, checkpoint_ns, checkpoint_id, name
FROM langgraph_checkpoint.labels WHERE thread_id >= %(bottom)s AND thread_id < %(top)s

-- name: doctor_writes
-- The writes of threads without a checkpoint.
SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx
FROM langgraph_checkpoint.writes w WHERE thread_id >= %(bottom)s AND thread_id < %(top)s
AND (SELECT min(c.checkpoint_ns) FROM langgraph_checkpoint.checkpoints c WHERE c.thread_id = w.thread_id) IS NULL

-- name: doctor_bloat
-- differs: live rows, and dead rows, whose space VACUUM makes available again.
SELECT relname::text, n_live_tup, n_dead_tup FROM pg_catalog.pg_stat_all_tables
WHERE schemaname = %(schema)s ORDER BY 1
