-- Reencryption, sizes, verification and repair.

-- The stored_ statements read a page of the rows of a tenant. The renew_stored_ statements replace the bytes of one
-- row, unless another transaction has changed them. schema.sql explains texteq() at the policies.

-- name: stored_checkpoints
SELECT thread_id, checkpoint_ns, checkpoint_id, checkpoint_type, checkpoint, metadata_type, metadata,
    metadata_filter::text
FROM langgraph_checkpoint.checkpoints
WHERE (thread_id, checkpoint_ns, checkpoint_id) > (%(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s)
AND texteq(tenant, %(tenant)s)
ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT %(limit)s

-- name: stored_blobs
SELECT thread_id, checkpoint_ns, channel, version, type, value, chunks FROM langgraph_checkpoint.blobs
WHERE (thread_id, checkpoint_ns, channel, version) > (%(thread_id)s, %(checkpoint_ns)s, %(channel)s, %(version)s)
AND texteq(langgraph_checkpoint.tenant_of(thread_id), %(tenant)s)
ORDER BY thread_id, checkpoint_ns, channel, version LIMIT %(limit)s

-- name: stored_writes
SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value FROM langgraph_checkpoint.writes
WHERE (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
    > (%(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s, %(task_id)s, %(idx)s)
AND texteq(langgraph_checkpoint.tenant_of(thread_id), %(tenant)s)
ORDER BY thread_id, checkpoint_ns, checkpoint_id, task_id, idx LIMIT %(limit)s

-- name: renew_stored_checkpoint
UPDATE langgraph_checkpoint.checkpoints
SET checkpoint_type = %(checkpoint_type)s, checkpoint = %(checkpoint)b, metadata_type = %(metadata_type)s,
    metadata = %(metadata)b, metadata_filter = %(metadata_filter)s::jsonb
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s
AND checkpoint = %(old_checkpoint)b AND metadata = %(old_metadata)b

-- name: renew_stored_blob
UPDATE langgraph_checkpoint.blobs SET type = %(type)s, value = %(value)b
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND channel = %(channel)s
AND version = %(version)s AND value = %(old_value)b

-- name: renew_stored_write
UPDATE langgraph_checkpoint.writes SET type = %(type)s, value = %(value)b
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s
AND task_id = %(task_id)s AND idx = %(idx)s AND value = %(old_value)b

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

-- The sizes_ statements count rows and bytes. They do not read values, only their lengths.

-- fragment: with_sizes
-- A row for each row of the threads in these ranges.
WITH sizes AS (
    SELECT s.* FROM unnest(%(bottoms)s::text[], %(tops)s::text[]) AS r (bottom, top)
    CROSS JOIN LATERAL (
        SELECT thread_id, checkpoint_ns, NULL AS channel, CASE WHEN hidden THEN 'hidden' ELSE 'checkpoint' END AS kind,
            checkpoint_id, octet_length(checkpoint) + octet_length(metadata) AS bytes
        FROM langgraph_checkpoint.checkpoints
        WHERE thread_id >= r.bottom COLLATE "C" AND thread_id < r.top COLLATE "C"
        UNION ALL
        SELECT thread_id, checkpoint_ns, channel, CASE WHEN starts_with(version, '#/') THEN 'chunk' ELSE 'value' END,
            NULL, octet_length(value)
        FROM langgraph_checkpoint.blobs
        WHERE thread_id >= r.bottom COLLATE "C" AND thread_id < r.top COLLATE "C"
        UNION ALL
        SELECT thread_id, checkpoint_ns, channel, 'write', NULL, octet_length(value)
        FROM langgraph_checkpoint.writes
        WHERE thread_id >= r.bottom COLLATE "C" AND thread_id < r.top COLLATE "C"
    ) AS s
)

-- name: sizes_of_threads
-- include: with_sizes
SELECT thread_id, count(*) FILTER (WHERE kind = 'checkpoint'), count(*) FILTER (WHERE kind = 'hidden'),
    count(*) FILTER (WHERE kind = 'write'), count(*) FILTER (WHERE kind IN ('value', 'chunk')), sum(bytes)::bigint
FROM sizes GROUP BY thread_id

-- name: sizes_up_to
-- The sizes of a thread, of which at most `most` rows of each table are counted.
WITH sizes AS (
    (
        SELECT CASE WHEN hidden THEN 'hidden' ELSE 'checkpoint' END AS kind,
            octet_length(checkpoint) + octet_length(metadata) AS bytes
        FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s
        ORDER BY checkpoint_ns, checkpoint_id LIMIT %(most)s
    )
    UNION ALL
    (
        SELECT 'write', octet_length(value) FROM langgraph_checkpoint.writes WHERE thread_id = %(thread_id)s
        ORDER BY checkpoint_ns, checkpoint_id LIMIT %(most)s
    )
    UNION ALL
    (
        SELECT 'blob', octet_length(value) FROM langgraph_checkpoint.blobs WHERE thread_id = %(thread_id)s
        ORDER BY checkpoint_ns, channel, version LIMIT %(most)s
    )
)
SELECT count(*) FILTER (WHERE kind = 'checkpoint'), count(*) FILTER (WHERE kind = 'hidden'),
    count(*) FILTER (WHERE kind = 'write'), count(*) FILTER (WHERE kind = 'blob'), coalesce(sum(bytes), 0)
FROM sizes

-- name: sizes_of_tables
-- include: with_sizes
SELECT CASE WHEN kind IN ('checkpoint', 'hidden') THEN 'checkpoints' WHEN kind = 'write' THEN 'writes' ELSE 'blobs' END,
    count(*), sum(bytes)::bigint
FROM sizes GROUP BY 1

-- name: sizes_of_namespaces
-- The namespaces of a thread, or with `merged` whole threads.
-- include: with_sizes
SELECT CASE WHEN %(merged)s THEN thread_id ELSE checkpoint_ns END,
    count(*) FILTER (WHERE kind = 'checkpoint'), count(*),
    sum(bytes)::bigint, min(checkpoint_id), max(checkpoint_id)
FROM sizes GROUP BY 1 ORDER BY 4 DESC, 1 LIMIT %(limit)s

-- name: sizes_of_channels
-- The channels of a thread, or with `merged` those of all threads and namespaces.
-- include: with_sizes
SELECT CASE WHEN NOT %(merged)s THEN checkpoint_ns END, channel, count(*) FILTER (WHERE kind = 'value'),
    count(*) FILTER (WHERE kind = 'chunk'), count(*) FILTER (WHERE kind = 'write'), sum(bytes)::bigint
FROM sizes WHERE channel IS NOT NULL GROUP BY 1, 2 ORDER BY 6 DESC, 1, 2 LIMIT %(limit)s

-- Each doctor_ statement checks a page of one table. It returns a row for each problem, and a row `end` with the key of
-- the page's last row and the number of its rows.

-- fragment: with_page_of_checkpoints
-- differs: a fragment because citus/ includes it, too.
WITH page AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, hidden, blob_channels, blob_versions
    FROM langgraph_checkpoint.checkpoints
    WHERE (thread_id, checkpoint_ns, checkpoint_id) > (%(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s)
    AND texteq(tenant, %(tenant)s)
    ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT %(limit)s
)

-- fragment: end_of_checkpoints
-- differs: a fragment because citus/ includes it, too.
UNION ALL
(
    SELECT 'end', thread_id, checkpoint_ns, checkpoint_id, NULL, NULL, (SELECT count(*) FROM page)
    FROM page ORDER BY thread_id DESC, checkpoint_ns DESC, checkpoint_id DESC LIMIT 1
)

-- name: doctor_checkpoints
-- include: with_page_of_checkpoints
SELECT 'missing value', p.thread_id, p.checkpoint_ns, p.checkpoint_id, u.channel, u.version, NULL::bigint
FROM page p CROSS JOIN LATERAL unnest(p.blob_channels, p.blob_versions) AS u (channel, version)
WHERE NOT EXISTS (
    SELECT FROM langgraph_checkpoint.blobs b
    WHERE b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns AND b.channel = u.channel
    AND b.version = u.version
    OFFSET 0
)
UNION ALL
SELECT 'deleted parent', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.parent_id, NULL, NULL
FROM page p
WHERE p.parent_id IS NOT NULL AND NOT p.hidden AND NOT EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns AND c.checkpoint_id = p.parent_id
    OFFSET 0
)
UNION ALL
SELECT 'id before its parent', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.parent_id, NULL, NULL
FROM page p WHERE p.parent_id > p.checkpoint_id
-- include: end_of_checkpoints

-- fragment: with_page_of_blobs
-- differs: a fragment because citus/ includes it, too.
WITH page AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, channel, version, chunks FROM langgraph_checkpoint.blobs
    WHERE (thread_id, checkpoint_ns, channel, version) > (%(thread_id)s, %(checkpoint_ns)s, %(channel)s, %(version)s)
    AND texteq(langgraph_checkpoint.tenant_of(thread_id), %(tenant)s)
    ORDER BY thread_id, checkpoint_ns, channel, version LIMIT %(limit)s
)

-- fragment: end_of_blobs
-- differs: a fragment because citus/ includes it, too.
UNION ALL
(
    SELECT 'end', thread_id, checkpoint_ns, channel, version, NULL, (SELECT count(*) FROM page)
    FROM page ORDER BY thread_id DESC, checkpoint_ns DESC, channel DESC, version DESC LIMIT 1
)

-- name: doctor_blobs
-- include: with_page_of_blobs
SELECT
    CASE WHEN starts_with(unused.version, '#/') THEN 'unused chunk' ELSE 'unused value' END, unused.*, NULL::text,
    NULL::bigint
FROM (
    SELECT thread_id, checkpoint_ns, channel, version FROM page
    EXCEPT
    SELECT r.*
    FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM page) AS p
    CROSS JOIN LATERAL (
        SELECT c.thread_id, c.checkpoint_ns, u.channel, u.version
        FROM langgraph_checkpoint.checkpoints c
        CROSS JOIN LATERAL unnest(c.blob_channels, c.blob_versions) AS u (channel, version)
        WHERE c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns
        UNION ALL
        SELECT b.thread_id, b.checkpoint_ns, b.channel, u.name COLLATE "C"
        FROM langgraph_checkpoint.blobs b CROSS JOIN LATERAL jsonb_array_elements_text(b.chunks::jsonb) AS u (name)
        WHERE b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns
        OFFSET 0
    ) AS r
) AS unused
UNION ALL
SELECT 'missing chunk', p.thread_id, p.checkpoint_ns, p.channel, p.version, u.name, NULL
FROM page p CROSS JOIN LATERAL jsonb_array_elements_text(p.chunks::jsonb) AS u (name)
WHERE NOT EXISTS (
    SELECT FROM langgraph_checkpoint.blobs b
    WHERE b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns AND b.channel = p.channel
    AND b.version = u.name COLLATE "C"
    OFFSET 0
)
-- include: end_of_blobs

-- fragment: with_page_of_writes
-- differs: a fragment because citus/ includes it, too.
WITH page AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx FROM langgraph_checkpoint.writes
    WHERE (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
        > (%(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s, %(task_id)s, %(idx)s)
    AND texteq(langgraph_checkpoint.tenant_of(thread_id), %(tenant)s)
    ORDER BY thread_id, checkpoint_ns, checkpoint_id, task_id, idx LIMIT %(limit)s
)

-- fragment: end_of_writes
-- differs: a fragment because citus/ includes it, too.
UNION ALL
(
    SELECT 'end', thread_id, checkpoint_ns, checkpoint_id, task_id, idx::text, (SELECT count(*) FROM page)
    FROM page ORDER BY thread_id DESC, checkpoint_ns DESC, checkpoint_id DESC, task_id DESC, page.idx DESC LIMIT 1
)

-- name: doctor_writes
-- include: with_page_of_writes
SELECT 'write without a checkpoint', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.task_id, NULL::text, p.idx::bigint
FROM page p
WHERE (SELECT min(c.checkpoint_ns) FROM langgraph_checkpoint.checkpoints c WHERE c.thread_id = p.thread_id) IS NULL
-- include: end_of_writes

-- fragment: with_page_of_labels
-- differs: a fragment because citus/ includes it, too.
WITH page AS MATERIALIZED (
    SELECT thread_id, name, checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.labels
    WHERE (thread_id, name) > (%(thread_id)s, %(name)s)
    AND texteq(langgraph_checkpoint.tenant_of(thread_id), %(tenant)s)
    ORDER BY thread_id, name LIMIT %(limit)s
)

-- fragment: end_of_labels
-- differs: a fragment because citus/ includes it, too.
UNION ALL
(
    SELECT 'end', thread_id, name, NULL, NULL, NULL, (SELECT count(*) FROM page)
    FROM page ORDER BY thread_id DESC, name DESC LIMIT 1
)

-- name: doctor_labels
-- include: with_page_of_labels
SELECT 'dangling label', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.name, NULL::text, NULL::bigint
FROM page p
WHERE NOT EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns AND c.checkpoint_id = p.checkpoint_id
    OFFSET 0
)
-- include: end_of_labels

-- name: doctor_bloat
-- differs: live rows, and dead rows, whose space VACUUM makes available again.
SELECT relname::text, n_live_tup, n_dead_tup FROM pg_catalog.pg_stat_all_tables
WHERE schemaname = %(schema)s ORDER BY 1

-- The repair_ statements delete rows of a thread that are still unused.

-- name: repair_blobs
-- A value that no checkpoint refers to, or a chunk that no value refers to.
DELETE FROM langgraph_checkpoint.blobs b USING jsonb_array_elements(%(keys)s::jsonb) AS k (key)
WHERE b.thread_id = %(thread_id)s AND b.checkpoint_ns = (k.key ->> 0) COLLATE "C"
AND b.channel = (k.key ->> 1) COLLATE "C" AND b.version = (k.key ->> 2) COLLATE "C"
AND NOT EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints c
    CROSS JOIN LATERAL unnest(c.blob_channels, c.blob_versions) AS u (channel, version)
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = b.checkpoint_ns
    AND u.channel = b.channel AND u.version = b.version
)
AND NOT EXISTS (
    SELECT FROM langgraph_checkpoint.blobs o
    CROSS JOIN LATERAL jsonb_array_elements_text(o.chunks::jsonb) AS u (name)
    WHERE o.thread_id = %(thread_id)s AND o.checkpoint_ns = b.checkpoint_ns AND o.channel = b.channel
    AND u.name COLLATE "C" = b.version
)
RETURNING b.version

-- name: repair_labels
DELETE FROM langgraph_checkpoint.labels l USING jsonb_array_elements_text(%(labels)s::jsonb) AS k (name)
WHERE l.thread_id = %(thread_id)s AND l.name = k.name COLLATE "C"
AND NOT EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = l.checkpoint_ns AND c.checkpoint_id = l.checkpoint_id
)
RETURNING l.name
