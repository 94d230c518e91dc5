-- Verification.

-- `catalog_lines` reads what the database has, one line for each thing. The lines are those of `shipped.txt` in
-- the migrations if nothing was changed.

-- name: catalog_lines
WITH ours AS MATERIALIZED (
    SELECT name, strict FROM pragma_table_list
    WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
)
SELECT 'table ' || name || CASE WHEN strict THEN ', strict' ELSE '' END AS line FROM ours
UNION ALL
SELECT 'column ' || o.name || '.' || c.name || ' ' || c.type
    || CASE WHEN c."notnull" THEN ' not null' ELSE '' END
    || CASE WHEN c.hidden IN (2, 3) THEN ' generated' ELSE '' END
    || coalesce(' default ' || c.dflt_value, '')
FROM ours o CROSS JOIN pragma_table_xinfo(o.name) AS c
UNION ALL
SELECT 'index ' || CASE i.origin WHEN 'c' THEN s.sql ELSE i.origin || ' of ' || o.name || ' (' || (
    SELECT group_concat(k.name, ', ') FROM (SELECT name FROM pragma_index_info(i.name) ORDER BY seqno) AS k
) || ')' END
FROM ours o CROSS JOIN pragma_index_list(o.name) AS i LEFT JOIN sqlite_schema s ON s.type = 'index' AND s.name = i.name
WHERE substr(i.name, 1, 11) <> 'searchable_'
UNION ALL
SELECT type || ' ' || CASE type WHEN 'view' THEN replace(replace(sql, char(10), ' '), '    ', '') ELSE name END
FROM sqlite_schema WHERE type IN ('view', 'trigger')
ORDER BY 1

-- name: free_pages
-- How many pages a file has, and how many of these are free; no row if it cannot give them back in steps.
-- PostgreSQL has autovacuum.
SELECT p.page_count, f.freelist_count
FROM pragma_page_count AS p CROSS JOIN pragma_freelist_count AS f CROSS JOIN pragma_auto_vacuum AS a
WHERE a.auto_vacuum = 2

-- name: give_back_page
-- As free_pages. More than one page would need a step for each, and sqlite3 of Python 3.11 makes only the first.
PRAGMA incremental_vacuum(1)
