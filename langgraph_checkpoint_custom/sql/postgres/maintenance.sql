-- Verification.

-- `catalog_lines` reads what the database has, one line for each thing. The lines are those of `shipped.txt` in
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
