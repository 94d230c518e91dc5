-- The statements for PostgreSQL 14 and later. sqlite.sql has the same names in the same order.
--
-- Every statement of the hot path names one thread. Rows are looked up by key in LATERAL subqueries that the planner
-- cannot turn into a join over a complete thread, because of OFFSET 0 or LIMIT 1; the same holds in NOT EXISTS. The
-- planner's estimates are worst for the threads that matter. To find out whether there is any row for the first columns
-- of a key, a statement uses max(), min() or ORDER BY and LIMIT. With EXISTS alone, the planner would expect many such
-- rows and read the table from its start.
--
-- insert_writes unnests its arrays in the SELECT list, because PostgreSQL first writes the rows of a function in FROM
-- to a store of their own. `tenant` is an ordinary column that the client fills, because the expression of a generated
-- column is planned again with each statement. Both together took 20 of the 125 µs of a small put.

-- name: schema_lock
SELECT pg_advisory_xact_lock(hashtextextended('langgraph_checkpoint_migrations ' || %(schema)s, 0))

-- name: schema_state
SELECT
    EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %(schema)s),
    EXISTS (
        SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = %(schema)s AND c.relname = 'langgraph_checkpoint_migrations'
    ),
    (
        SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = %(schema)s AND c.relname IN ('checkpoints', 'blobs', 'writes') ORDER BY 1 LIMIT 1
    )

-- name: schema_numbers
SELECT number FROM langgraph_checkpoint.langgraph_checkpoint_migrations

-- name: schema_partitions
-- differs: SQLite has no partitions.
SELECT count(*)::integer
FROM pg_catalog.pg_inherits i
JOIN pg_catalog.pg_class c ON c.oid = i.inhparent
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = 'checkpoints'

-- name: schema_create
-- differs: SQLite has no schemas to create.
CREATE SCHEMA langgraph_checkpoint

-- name: schema_create_table
CREATE TABLE langgraph_checkpoint.langgraph_checkpoint_migrations (number integer PRIMARY KEY, name text NOT NULL)

-- name: schema_applied
INSERT INTO langgraph_checkpoint.langgraph_checkpoint_migrations (number, name) VALUES (%(number)s, %(name)s)

-- The searchable_ blocks create, find and drop the indexes of searchable metadata keys; see sql/searchable.py.

-- name: searchable_lock
-- differs: SQLite has one writer at a time. CREATE INDEX CONCURRENTLY takes this lock as well.
LOCK TABLE langgraph_checkpoint.checkpoints IN SHARE UPDATE EXCLUSIVE MODE

-- name: searchable_there
-- A row for each of the indexes that exists: its name, whether it is valid, whether this role can use it.
-- differs: CREATE INDEX CONCURRENTLY releases its lock before it commits the transaction that marks the index as valid.
-- A transaction that has waited for the lock may still see the row from before. The xmax of that row is the other
-- transaction, which is still in progress; such an index counts as valid.
SELECT
    i.relname::text,
    x.indisvalid OR age(x.xmax) <= age(pg_snapshot_xmax(s)::xid) OR x.xmax IN (SELECT pg_snapshot_xip(s)::xid),
    coalesce(has_table_privilege(v.oid, 'SELECT'), false)
FROM pg_catalog.pg_class i
JOIN pg_catalog.pg_namespace n ON n.oid = i.relnamespace
JOIN pg_catalog.pg_index x ON x.indexrelid = i.oid
LEFT JOIN pg_catalog.pg_class v ON v.relnamespace = n.oid AND v.relkind = 'v'
    AND v.relname = 'searched_' || substr(i.relname, 12)
CROSS JOIN pg_current_snapshot() AS s
WHERE n.nspname = %(schema)s AND i.relname = ANY(%(names)s::name[])

-- name: searchable_drop
-- differs: SQLite has no invalid indexes, which a CREATE INDEX CONCURRENTLY that failed leaves.
DROP INDEX langgraph_checkpoint.searchable_key

-- name: searchable_make
CREATE INDEX IF NOT EXISTS searchable_key ON langgraph_checkpoint.checkpoints (
    tenant,
    coalesce(
        metadata_filter ->> 'searchable key',
        CASE WHEN metadata_filter ?| '{"searchable key",*}' THEN '?' ELSE 'null' END
    ),
    checkpoint_id
)

-- name: searchable_make_view
-- differs: SQLite has no row-level security. Under row-level security, PostgreSQL uses an index only for conditions
-- that are leakproof: text = text is, an expression on JSON is not. The view contains the expression and the tenant's
-- condition, and belongs to the owner of the tables.
CREATE OR REPLACE VIEW langgraph_checkpoint.searched_key WITH (security_barrier) AS
SELECT
    thread_id, checkpoint_ns, checkpoint_id, hidden, tenant,
    coalesce(
        metadata_filter ->> 'searchable key',
        CASE WHEN metadata_filter ?| '{"searchable key",*}' THEN '?' ELSE 'null' END
    ) AS shown
FROM langgraph_checkpoint.checkpoints
WHERE tenant = (SELECT langgraph_checkpoint.current_tenant()) AND tenant = langgraph_checkpoint.tenant_of(thread_id)

-- name: enter_tenant
-- differs: SQLite has no row-level security. The policies of the tables read this setting. It ends with the
-- transaction.
SELECT set_config('langgraph_checkpoint_custom.tenant', %(tenant)s, true)

-- name: leave_tenant
-- differs: as enter_tenant. The transaction may be the caller's and go on, so the setting is taken back.
SELECT set_config('langgraph_checkpoint_custom.tenant', '', true)

-- name: hides_tenants
-- differs: SQLite has no row-level security. Whether the policies of the tables apply to this role.
SELECT row_security_active(c.oid)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = 'checkpoints'

-- The lock of a thread, which the transaction holds until its end. A transaction that deletes in a thread, makes it
-- from another one, or changes who may write to it holds the lock alone. A transaction that stores rows which refer to
-- other rows shares it. The lock is taken by a statement of its own, so that the next statement sees everything that
-- was committed before. docs/architecture.md has the lock of each operation. The key of the lock contains the schema.
-- The statement names a table with rows of the thread, so that the lock is taken where these rows are.

-- name: lock_thread
-- differs: SQLite has one writer at a time.
SELECT pg_advisory_xact_lock(hashtextextended(%(thread_id)s, hashtextextended(%(schema)s, 0)))
FROM (SELECT count(*) FROM langgraph_checkpoint.claims WHERE thread_id = %(thread_id)s) AS here

-- name: share_thread
-- differs: as lock_thread.
SELECT pg_advisory_xact_lock_shared(hashtextextended(%(thread_id)s, hashtextextended(%(schema)s, 0)))
FROM (SELECT count(*) FROM langgraph_checkpoint.claims WHERE thread_id = %(thread_id)s) AS here

-- name: limit_waiting
-- differs: SQLite has no statements for a batch of calls. A call that stores a row again waits if that row is being
-- deleted. After this time the statement fails and each call is sent alone, so the other calls of the batch wait no
-- longer. Deleting a thread of 1,000 checkpoints takes 15 ms.
SELECT set_config('lock_timeout', '100ms', true)

-- name: insert_checkpoint
-- A checkpoint that refers to no other rows.
-- differs: one that exists is stored again by put_checkpoint, which may wait for a transaction that deletes it.
INSERT INTO langgraph_checkpoint.checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format,
    inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter, tenant
)
VALUES (
    %(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s, %(parent_id)s, %(root_id)s, %(run_id)s, %(format)s,
    %(inline_channels)s, %(delta_channels)s, '{}', '{}',
    %(checkpoint_type)s, %(checkpoint)b, %(metadata_type)s, %(metadata)b, %(metadata_filter)s, %(tenant)s
)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING
RETURNING true

-- name: insert_checkpoints
-- differs: insert_checkpoint for a batch. The lists of each checkpoint are array literals. The rows are the keys of
-- those that were stored.
INSERT INTO langgraph_checkpoint.checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format,
    inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter, tenant
)
SELECT
    m.thread_id, m.checkpoint_ns, m.checkpoint_id, m.parent_id, m.root_id, m.run_id, m.format,
    m.inline_channels::text[], m.delta_channels::text[], '{}', '{}',
    m.checkpoint_type, m.checkpoint, m.metadata_type, m.metadata, m.metadata_filter::jsonb, %(tenant)s
FROM unnest(
    %(thread_ids)s::text[], %(namespaces)s::text[], %(checkpoint_ids)s::text[], %(parent_ids)s::text[],
    %(root_ids)s::text[], %(run_ids)s::text[], %(formats)s::integer[],
    %(inline_channels)s::text[], %(delta_channels)s::text[],
    %(checkpoint_types)s::text[], %(checkpoints)b::bytea[], %(metadata_types)s::text[], %(metadata)b::bytea[],
    %(metadata_filters)s::text[]
) AS m (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, inline_channels, delta_channels,
    checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter
)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING
RETURNING thread_id, checkpoint_ns, checkpoint_id

-- name: put_checkpoint
-- differs: one statement finds the problems and, if there are none, stores the checkpoint and its blobs; on SQLite,
-- put_gone, put_blobs and insert_checkpoint do. The transaction holds or shares the thread's lock, so the rows that the
-- checkpoint refers to are not deleted.
WITH kept AS MATERIALIZED (
    SELECT k.channel, k.version, k.required, held.channel IS NOT NULL AS found
    FROM unnest(
        %(kept_channels)s::text[], %(kept_versions)s::text[], %(kept_begins)s::text[], %(kept_required)s::boolean[]
    ) AS k (channel, version, begins, required)
    LEFT JOIN LATERAL (
        SELECT b.channel FROM langgraph_checkpoint.blobs b
        WHERE b.thread_id = %(thread_id)s AND b.checkpoint_ns = %(checkpoint_ns)s
        AND b.channel = k.channel AND b.version = k.version
        AND (k.begins = '' OR starts_with(b.parts, k.begins))
        LIMIT 1
    ) AS held ON true
), parent AS MATERIALIZED (
    SELECT hidden FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(parent_id)s
), gone AS MATERIALIZED (
    SELECT 'value' AS what, channel FROM kept WHERE required AND NOT found
    UNION ALL
    SELECT 'claim', NULL WHERE %(claim)s::text IS NOT NULL AND NOT EXISTS (
        SELECT FROM langgraph_checkpoint.claims WHERE thread_id = %(thread_id)s AND token = %(claim)s
    )
    UNION ALL
    SELECT 'parent', NULL WHERE %(needs_parent)s AND NOT EXISTS (SELECT FROM parent) AND (
        SELECT max(checkpoint_id) FROM langgraph_checkpoint.checkpoints
        WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s
        AND checkpoint_id <> %(checkpoint_id)s
    ) IS NOT NULL
    UNION ALL
    SELECT 'hidden parent', NULL FROM parent WHERE hidden AND %(needs_whole_parent)s
    UNION ALL
    SELECT 'newer', newest.checkpoint_id FROM (
        SELECT checkpoint_id FROM langgraph_checkpoint.checkpoints
        WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s
        AND checkpoint_id <> %(checkpoint_id)s AND NOT hidden
        ORDER BY checkpoint_id DESC LIMIT 1
    ) AS newest
    WHERE %(only_newest)s AND newest.checkpoint_id IS DISTINCT FROM %(parent_id)s
), stored_blobs AS (
    INSERT INTO langgraph_checkpoint.blobs (thread_id, checkpoint_ns, channel, version, type, value, parts)
    SELECT %(thread_id)s, %(checkpoint_ns)s, n.channel, n.version, n.type, n.value, n.parts
    FROM unnest(
        %(channels)s::text[], %(versions)s::text[], %(types)s::text[], %(values)b::bytea[], %(parts)s::text[]
    ) AS n (channel, version, type, value, parts)
    WHERE NOT EXISTS (SELECT FROM gone)
    ON CONFLICT (thread_id, checkpoint_ns, channel, version)
    DO UPDATE SET type = EXCLUDED.type, value = EXCLUDED.value, parts = EXCLUDED.parts
), stored AS (
    INSERT INTO langgraph_checkpoint.checkpoints (
        thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format,
        inline_channels, delta_channels, blob_channels, blob_versions,
        checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter, tenant
    )
    SELECT
        %(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s, %(parent_id)s, %(root_id)s, %(run_id)s, %(format)s,
        %(inline_channels)s::text[], %(delta_channels)s::text[],
        %(blob_channels)s::text[] || ARRAY(SELECT channel FROM kept WHERE found AND NOT required),
        %(blob_versions)s::text[] || ARRAY(SELECT version FROM kept WHERE found AND NOT required),
        %(checkpoint_type)s, %(checkpoint)b, %(metadata_type)s, %(metadata)b, %(metadata_filter)s::jsonb, %(tenant)s
    WHERE NOT EXISTS (SELECT FROM gone)
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO UPDATE SET
        parent_id = EXCLUDED.parent_id, root_id = EXCLUDED.root_id, run_id = EXCLUDED.run_id,
        format = EXCLUDED.format, hidden = false, inline_channels = EXCLUDED.inline_channels,
        delta_channels = EXCLUDED.delta_channels, blob_channels = EXCLUDED.blob_channels,
        blob_versions = EXCLUDED.blob_versions, checkpoint_type = EXCLUDED.checkpoint_type,
        checkpoint = EXCLUDED.checkpoint, metadata_type = EXCLUDED.metadata_type, metadata = EXCLUDED.metadata,
        metadata_filter = EXCLUDED.metadata_filter
)
SELECT what, channel FROM gone

-- name: insert_few_writes
-- differs: insert_writes for a few writes without a claim. The row of VALUES is repeated for each write, so there are
-- no arrays to parse.
INSERT INTO langgraph_checkpoint.writes AS w (
    thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, run_id, idx, channel, type, value
)
VALUES
    (
        %(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s, %(task_id)s, %(task_path)s, %(run_id)s,
        %(idx)s, %(channel)s, %(type)s, %(value)b
    )
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE
SET task_path = EXCLUDED.task_path, channel = EXCLUDED.channel, type = EXCLUDED.type, value = EXCLUDED.value,
    run_id = CASE WHEN w.type = EXCLUDED.type AND w.value = EXCLUDED.value THEN w.run_id ELSE EXCLUDED.run_id END
WHERE EXCLUDED.idx < 0

-- name: insert_writes
INSERT INTO langgraph_checkpoint.writes AS w (
    thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
)
SELECT
    %(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s, %(task_id)s, unnest(%(idxs)s::integer[]), %(task_path)s,
    %(run_id)s, unnest(%(channels)s::text[]), unnest(%(types)s::text[]), unnest(%(values)b::bytea[])
WHERE %(claim)s::text IS NULL OR EXISTS (
    SELECT FROM langgraph_checkpoint.claims WHERE thread_id = %(thread_id)s AND token = %(claim)s
)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE
SET task_path = EXCLUDED.task_path, channel = EXCLUDED.channel, type = EXCLUDED.type, value = EXCLUDED.value,
    run_id = CASE WHEN w.type = EXCLUDED.type AND w.value = EXCLUDED.value THEN w.run_id ELSE EXCLUDED.run_id END
WHERE EXCLUDED.idx < 0

-- name: insert_writes_of_many
-- differs: insert_writes for a batch of calls without claims.
INSERT INTO langgraph_checkpoint.writes AS w (
    thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
)
SELECT * FROM unnest(
    %(thread_ids)s::text[], %(namespaces)s::text[], %(checkpoint_ids)s::text[], %(task_ids)s::text[],
    %(idxs)s::integer[], %(task_paths)s::text[], %(run_ids)s::text[], %(channels)s::text[], %(types)s::text[],
    %(values)b::bytea[]
)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE
SET task_path = EXCLUDED.task_path, channel = EXCLUDED.channel, type = EXCLUDED.type, value = EXCLUDED.value,
    run_id = CASE WHEN w.type = EXCLUDED.type AND w.value = EXCLUDED.value THEN w.run_id ELSE EXCLUDED.run_id END
WHERE EXCLUDED.idx < 0

-- name: select_lost_claim
SELECT 1 WHERE NOT EXISTS (
    SELECT FROM langgraph_checkpoint.claims WHERE thread_id = %(thread_id)s AND token = %(claim)s
)

-- name: select_newest_id
SELECT checkpoint_id FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND NOT hidden
ORDER BY checkpoint_id DESC LIMIT 1

-- Each page_ block starts a statement; the rows_ blocks end it, joined by UNION ALL. Between them, blobs_of_one finds
-- the blobs of one checkpoint, where no blob can occur twice, and blobs_of_page those of several.

-- name: page_latest
WITH page AS MATERIALIZED (
    SELECT * FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
)

-- name: page_exact
WITH page AS MATERIALIZED (
    SELECT * FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s
)

-- name: page_of_latest
-- differs: page_latest for a batch.
WITH page AS MATERIALIZED (
    SELECT c.* FROM unnest(%(thread_ids)s::text[], %(namespaces)s::text[]) AS k (thread_id, checkpoint_ns)
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = k.thread_id AND c.checkpoint_ns = k.checkpoint_ns AND NOT c.hidden
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) AS c
)

-- name: page_of_exact
-- differs: page_exact for a batch.
WITH page AS MATERIALIZED (
    SELECT c.* FROM unnest(%(thread_ids)s::text[], %(namespaces)s::text[], %(checkpoint_ids)s::text[])
        AS k (thread_id, checkpoint_ns, checkpoint_id)
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = k.thread_id AND c.checkpoint_ns = k.checkpoint_ns AND c.checkpoint_id = k.checkpoint_id
        LIMIT 1
    ) AS c
)

-- name: page_of_namespace
WITH page AS MATERIALIZED (
    SELECT * FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s
    AND checkpoint_id >= %(floor)s AND checkpoint_id < %(before)s AND NOT hidden
    AND (%(filter)s = '{}' OR NOT EXISTS (
        SELECT FROM jsonb_each_text(%(filter)s::jsonb) AS f
        WHERE f.value <> CASE
            WHEN metadata_filter ? f.key THEN coalesce(metadata_filter ->> f.key, f.value)
            WHEN metadata_filter ? '*' THEN f.value
            ELSE 'null'
        END
        OFFSET 0
    ))
    ORDER BY checkpoint_id DESC LIMIT %(limit)s
)

-- name: page_of_thread
-- Only the rows of the thread are read and sorted. The index over the newest checkpoints of all threads is not used.
-- differs: OFFSET 0 does that.
WITH page AS MATERIALIZED (
    SELECT * FROM (
        SELECT * FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s OFFSET 0
    ) AS t
    WHERE checkpoint_id >= %(floor)s AND NOT hidden
    AND (checkpoint_id, thread_id, checkpoint_ns) < (%(before)s, %(thread_below)s, %(ns_below)s)
    AND (%(filter)s = '{}' OR NOT EXISTS (
        SELECT FROM jsonb_each_text(%(filter)s::jsonb) AS f
        WHERE f.value <> CASE
            WHEN metadata_filter ? f.key THEN coalesce(metadata_filter ->> f.key, f.value)
            WHEN metadata_filter ? '*' THEN f.value
            ELSE 'null'
        END
        OFFSET 0
    ))
    ORDER BY checkpoint_id DESC, checkpoint_ns DESC LIMIT %(limit)s
)

-- name: page_of_store
WITH page AS MATERIALIZED (
    SELECT * FROM langgraph_checkpoint.checkpoints
    WHERE tenant = %(tenant)s AND checkpoint_id >= %(floor)s AND checkpoint_id <= %(before)s AND NOT hidden
    AND (thread_id < %(kinds)s OR thread_id >= %(above_kinds)s)
    AND (checkpoint_id, thread_id, checkpoint_ns) < (%(before)s, %(thread_below)s, %(ns_below)s)
    AND (%(filter)s = '{}' OR NOT EXISTS (
        SELECT FROM jsonb_each_text(%(filter)s::jsonb) AS f
        WHERE f.value <> CASE
            WHEN metadata_filter ? f.key THEN coalesce(metadata_filter ->> f.key, f.value)
            WHEN metadata_filter ? '*' THEN f.value
            ELSE 'null'
        END
        OFFSET 0
    ))
    ORDER BY checkpoint_id DESC, thread_id DESC, checkpoint_ns DESC LIMIT %(limit)s
)

-- name: rows_checkpoint
SELECT
    'checkpoint' AS kind, thread_id, checkpoint_ns, checkpoint_id, parent_id AS name, NULL AS key, NULL AS path,
    NULL::integer AS idx, checkpoint_type AS type, checkpoint AS value, metadata_type AS type2, metadata AS value2,
    nullif(blob_channels, '{}') AS channels, blob_versions AS versions
FROM page

-- name: blobs_of_one
, found AS MATERIALIZED (
    SELECT p.thread_id, p.checkpoint_ns, u.channel, u.version, b.type, b.value, b.parts
    FROM page p
    CROSS JOIN LATERAL unnest(p.blob_channels, p.blob_versions) AS u (channel, version)
    CROSS JOIN LATERAL (
        SELECT b.type, b.value, b.parts FROM langgraph_checkpoint.blobs b
        WHERE b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns
        AND b.channel = u.channel AND b.version = u.version
        LIMIT 1
    ) AS b
)
-- Equal chunks of a value have one name, which may occur twice here. Removing duplicates costs more than the rest.
, named AS NOT MATERIALIZED (
    SELECT f.thread_id, f.checkpoint_ns, f.channel, n.name
    FROM found f CROSS JOIN LATERAL json_array_elements_text(f.parts::json) AS n (name)
)

-- name: blobs_of_page
, found AS MATERIALIZED (
    SELECT r.thread_id, r.checkpoint_ns, r.channel, r.version, b.type, b.value, b.parts
    FROM (
        SELECT DISTINCT p.thread_id, p.checkpoint_ns, u.channel, u.version
        FROM page p CROSS JOIN LATERAL unnest(p.blob_channels, p.blob_versions) AS u (channel, version)
    ) AS r
    CROSS JOIN LATERAL (
        SELECT b.type, b.value, b.parts FROM langgraph_checkpoint.blobs b
        WHERE b.thread_id = r.thread_id AND b.checkpoint_ns = r.checkpoint_ns
        AND b.channel = r.channel AND b.version = r.version
        LIMIT 1
    ) AS b
)
, named AS NOT MATERIALIZED (
    SELECT DISTINCT f.thread_id, f.checkpoint_ns, f.channel, n.name
    FROM found f CROSS JOIN LATERAL json_array_elements_text(f.parts::json) AS n (name)
)

-- name: rows_blobs
SELECT
    'blob', thread_id, checkpoint_ns, NULL, channel, version, parts, NULL, type, value, NULL, NULL, NULL, NULL
FROM found

-- name: rows_chunks
SELECT
    'blob', f.thread_id, f.checkpoint_ns, NULL, f.channel, f.name, NULL, NULL, b.type, b.value, NULL, NULL, NULL, NULL
FROM named f
CROSS JOIN LATERAL (
    SELECT b.type, b.value FROM langgraph_checkpoint.blobs b
    WHERE b.thread_id = f.thread_id AND b.checkpoint_ns = f.checkpoint_ns
    AND b.channel = f.channel AND b.version = f.name
    LIMIT 1
) AS b

-- name: rows_writes
SELECT
    'write', p.thread_id, p.checkpoint_ns, p.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value,
    NULL, NULL, NULL, NULL
FROM page p
CROSS JOIN LATERAL (
    SELECT * FROM langgraph_checkpoint.writes w
    WHERE w.thread_id = p.thread_id AND w.checkpoint_ns = p.checkpoint_ns AND w.checkpoint_id = p.checkpoint_id
    OFFSET 0
) AS w

-- name: rows_sends
-- The pending sends of a checkpoint older than format 4 are writes of its parent.
SELECT
    'send', p.thread_id, p.checkpoint_ns, p.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value,
    NULL, NULL, NULL, NULL
FROM page p
CROSS JOIN LATERAL (
    SELECT * FROM langgraph_checkpoint.writes w
    WHERE w.thread_id = p.thread_id AND w.checkpoint_ns = p.checkpoint_ns AND w.checkpoint_id = p.parent_id
    AND w.channel = '__pregel_tasks'
    OFFSET 0
) AS w
WHERE p.format < 4

-- name: select_places
SELECT c.checkpoint_ns, c.checkpoint_id, (
    SELECT count(*) FROM langgraph_checkpoint.writes w
    WHERE w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id
)
FROM langgraph_checkpoint.checkpoints c WHERE c.thread_id = %(thread_id)s

-- name: select_kept_places
-- What a sweep reads first: the namespace and id of each checkpoint that is not hidden, and whether it has a label.
SELECT c.checkpoint_ns, c.checkpoint_id, EXISTS (
    SELECT 1 FROM langgraph_checkpoint.labels l
    WHERE l.thread_id = %(thread_id)s AND l.checkpoint_ns = c.checkpoint_ns AND l.checkpoint_id = c.checkpoint_id
)
FROM langgraph_checkpoint.checkpoints c WHERE c.thread_id = %(thread_id)s AND NOT c.hidden

-- name: select_document
SELECT checkpoint_type, checkpoint FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s

-- name: select_next_thread
SELECT thread_id FROM langgraph_checkpoint.checkpoints
WHERE thread_id > %(after)s AND thread_id >= %(bottom)s AND thread_id < %(top)s
ORDER BY thread_id LIMIT 1

-- The export_ blocks read a page of the rows of a thread: the columns of the key, and then the others. The import_
-- blocks store such a row, unless a row with its key exists.

-- name: export_checkpoints
SELECT
    checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden, inline_channels,
    delta_channels, blob_channels, blob_versions, checkpoint_type, checkpoint, metadata_type, metadata,
    metadata_filter::text
FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND (checkpoint_ns, checkpoint_id) > (%(checkpoint_ns)s, %(checkpoint_id)s)
ORDER BY checkpoint_ns, checkpoint_id LIMIT %(limit)s

-- name: export_blobs
SELECT
    checkpoint_ns, channel, version, type, value, parts
FROM langgraph_checkpoint.blobs
WHERE thread_id = %(thread_id)s AND (checkpoint_ns, channel, version) > (%(checkpoint_ns)s, %(channel)s, %(version)s)
ORDER BY checkpoint_ns, channel, version LIMIT %(limit)s

-- name: export_writes
SELECT
    checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
FROM langgraph_checkpoint.writes
WHERE thread_id = %(thread_id)s AND (checkpoint_ns, checkpoint_id, task_id, idx) > (%(checkpoint_ns)s, %(checkpoint_id)s, %(task_id)s, %(idx)s)
ORDER BY checkpoint_ns, checkpoint_id, task_id, idx LIMIT %(limit)s

-- name: export_labels
SELECT name, checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.labels
WHERE thread_id = %(thread_id)s AND name > %(name)s ORDER BY name LIMIT %(limit)s

-- name: import_checkpoints
INSERT INTO langgraph_checkpoint.checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden, inline_channels,
    delta_channels, blob_channels, blob_versions, checkpoint_type, checkpoint, metadata_type, metadata,
    metadata_filter, tenant
)
VALUES (
    %(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s, %(parent_id)s, %(root_id)s, %(run_id)s, %(format)s,
    %(hidden)s, %(inline_channels)s::text[], %(delta_channels)s::text[], %(blob_channels)s::text[],
    %(blob_versions)s::text[], %(checkpoint_type)s, %(checkpoint)b, %(metadata_type)s, %(metadata)b,
    %(metadata_filter)s::jsonb, %(tenant)s
)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING

-- name: import_blobs
INSERT INTO langgraph_checkpoint.blobs (
    thread_id, checkpoint_ns, channel, version, type, value, parts
)
VALUES (
    %(thread_id)s, %(checkpoint_ns)s, %(channel)s, %(version)s, %(type)s, %(value)b, %(parts)s
)
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING

-- name: import_writes
INSERT INTO langgraph_checkpoint.writes (
    thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
)
VALUES (
    %(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s, %(task_id)s, %(idx)s, %(task_path)s, %(run_id)s,
    %(channel)s, %(type)s, %(value)b
)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO NOTHING

-- name: import_labels
INSERT INTO langgraph_checkpoint.labels (thread_id, name, checkpoint_ns, checkpoint_id)
VALUES (%(thread_id)s, %(name)s, %(checkpoint_ns)s, %(checkpoint_id)s)
ON CONFLICT (thread_id, name) DO NOTHING

-- delta_runs starts a statement. delta_ancestors ends it to read what a checkpoint is rebuilt from, delta_values to
-- read the values as well.

-- name: delta_runs
-- One row for each id range: checkpoints that follow one another both by id and by parent, from `top` down to `bottom`.
-- A range ends where the parent is not the next lower id, or where a channel that is still `open`, without a seed, has
-- its seed; `left_open` are the channels that are open after that. A parent chain that loops repeats a row in the end,
-- and UNION drops it. `replayed` are the delta channels of a hidden checkpoint; they are read because its parent may be
-- deleted.
-- differs: lead() makes a parent chain cost one scan for each range, and not one lookup for each parent. `start` is
-- separate from `target`. A policy is checked before a condition that contains a query, and in a generic plan that
-- would read all rows of the thread.
WITH RECURSIVE start AS MATERIALIZED (
    SELECT coalesce(%(checkpoint_id)s, (
        SELECT checkpoint_id FROM langgraph_checkpoint.checkpoints
        WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND NOT hidden
        ORDER BY checkpoint_id DESC LIMIT 1
    )) AS checkpoint_id
), target AS MATERIALIZED (
    SELECT c.checkpoint_id, c.parent_id, CASE WHEN c.hidden THEN c.delta_channels END AS replayed,
        c.inline_channels || c.blob_channels AS populated
    FROM start s
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = %(checkpoint_ns)s
        AND c.checkpoint_id = s.checkpoint_id
        OFFSET 0
    ) AS c
), walk (top, bottom, parent_id, replayed, open, left_open) AS (
    SELECT NULL COLLATE "C", checkpoint_id, parent_id, replayed, %(asked)s::text[] COLLATE "C",
        %(asked)s::text[] COLLATE "C"
    FROM target
    UNION
    SELECT child.parent_id, r.checkpoint_id, r.parent_id, r.replayed, child.left_open, CASE
        WHEN r.populated && child.left_open THEN ARRAY(
            SELECT o FROM unnest(child.left_open) AS o WHERE o <> ALL (r.populated)
        )
        ELSE child.left_open END
    FROM walk child
    CROSS JOIN LATERAL (
        SELECT c.checkpoint_id, c.parent_id, CASE WHEN c.hidden THEN c.delta_channels END AS replayed,
            c.inline_channels || c.blob_channels AS populated
        FROM (
            SELECT c.checkpoint_id, c.parent_id, c.hidden, c.delta_channels, c.inline_channels, c.blob_channels,
                lead(c.checkpoint_id) OVER (ORDER BY c.checkpoint_id DESC) AS below
            FROM langgraph_checkpoint.checkpoints c
            WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = %(checkpoint_ns)s
            AND c.checkpoint_id <= child.parent_id
            ORDER BY c.checkpoint_id DESC
        ) AS c
        WHERE c.below IS NULL OR c.parent_id IS DISTINCT FROM c.below
        OR c.inline_channels && child.left_open OR c.blob_channels && child.left_open
        LIMIT 1
    ) AS r
    WHERE child.left_open <> '{}' AND EXISTS (
        SELECT FROM langgraph_checkpoint.checkpoints p
        WHERE p.thread_id = %(thread_id)s AND p.checkpoint_ns = %(checkpoint_ns)s AND p.checkpoint_id = child.parent_id
        OFFSET 0
    )
), runs AS MATERIALIZED (
    SELECT * FROM walk WHERE top IS NOT NULL
)

-- name: delta_ancestors
SELECT
    'target' AS kind, NULL AS thread_id, NULL AS checkpoint_ns, checkpoint_id, parent_id AS name, NULL AS key,
    NULL AS path, NULL::integer AS idx, NULL AS type, NULL::bytea AS value, NULL AS type2, NULL::bytea AS value2,
    populated AS channels, replayed AS versions
FROM target
UNION ALL
SELECT
    'run', NULL, NULL, bottom, parent_id, top, NULL, cardinality(open), NULL, NULL, NULL, NULL,
    ARRAY(SELECT o FROM unnest(open) AS o WHERE o <> ALL (left_open)), replayed
FROM runs

-- name: delta_values
-- The columns that would be empty are left out, because there may be many thousands of writes. Some writes may have no
-- checkpoint; its id is not in `line` then.
, seeds AS MATERIALIZED (
    SELECT r.bottom, b.channel, b.version, b.type, b.value, b.parts
    FROM runs r
    CROSS JOIN LATERAL (
        SELECT u.channel, u.version FROM langgraph_checkpoint.checkpoints c
        CROSS JOIN LATERAL unnest(c.blob_channels, c.blob_versions) AS u (channel, version)
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = %(checkpoint_ns)s AND c.checkpoint_id = r.bottom
        AND u.channel = ANY (r.open)
        OFFSET 0
    ) AS u
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.blobs b
        WHERE b.thread_id = %(thread_id)s AND b.checkpoint_ns = %(checkpoint_ns)s
        AND b.channel = u.channel AND b.version = u.version
        LIMIT 1
    ) AS b
    WHERE r.open <> r.left_open
)
SELECT
    'target' AS kind, checkpoint_id, parent_id AS name, NULL AS key, NULL AS path, NULL::integer AS idx, NULL AS type,
    NULL::bytea AS value, populated AS channels, replayed AS versions
FROM target
UNION ALL
SELECT
    'run', r.bottom, r.parent_id, r.top, NULL, cardinality(r.open), c.checkpoint_type, c.checkpoint,
    ARRAY(SELECT o FROM unnest(r.open) AS o WHERE o <> ALL (r.left_open)), r.replayed
FROM runs r
LEFT JOIN LATERAL (
    SELECT c.checkpoint_type, c.checkpoint FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = %(checkpoint_ns)s AND c.checkpoint_id = r.bottom
    AND c.inline_channels && r.open
    OFFSET 0
) AS c ON r.open <> r.left_open
UNION ALL
SELECT
    'line', r.bottom, NULL, r.top, NULL, NULL, NULL, NULL, ARRAY(
        SELECT c.checkpoint_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = %(checkpoint_ns)s
        AND c.checkpoint_id BETWEEN r.bottom AND r.top
    ), NULL
FROM runs r
UNION ALL
SELECT
    'blob', bottom, channel, version, parts, NULL, type, value, NULL, NULL
FROM seeds
UNION ALL
SELECT
    'part', NULL, s.channel, n.name, NULL, NULL, b.type, b.value, NULL, NULL
FROM seeds s
CROSS JOIN LATERAL json_array_elements_text(s.parts::json) AS n (name)
CROSS JOIN LATERAL (
    SELECT b.type, b.value FROM langgraph_checkpoint.blobs b
    WHERE b.thread_id = %(thread_id)s AND b.checkpoint_ns = %(checkpoint_ns)s
    AND b.channel = s.channel AND b.version = n.name
    LIMIT 1
) AS b
UNION ALL
SELECT
    NULL, w.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value, NULL, NULL
FROM runs r
CROSS JOIN LATERAL (
    SELECT * FROM langgraph_checkpoint.writes w
    WHERE w.thread_id = %(thread_id)s AND w.checkpoint_ns = %(checkpoint_ns)s
    AND w.checkpoint_id BETWEEN r.bottom AND r.top AND w.channel = ANY (r.open)
    OFFSET 0
) AS w

-- name: delete_thread
-- differs: one statement, so that it deletes the rows of one snapshot. A transaction that stores single rows takes no
-- lock; what it stores concurrently is complete, and either remains in all tables or is deleted from all.
WITH writes AS (
    DELETE FROM langgraph_checkpoint.writes WHERE thread_id = %(thread_id)s
), blobs AS (
    DELETE FROM langgraph_checkpoint.blobs WHERE thread_id = %(thread_id)s
), labels AS (
    DELETE FROM langgraph_checkpoint.labels WHERE thread_id = %(thread_id)s
)
DELETE FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s

-- name: delete_all_but_newest
-- Everything but the newest checkpoint of each namespace is deleted, if nothing else has to remain: nothing in the
-- thread is hidden, labelled or rebuilt from writes. A row says that this was done. mark_superseded explains which
-- namespaces are finished. For 30 checkpoints, or 1,000 with large values, this takes a third of the time of marking
-- and purging; for 1,000 with small values, a ninth. Writes may be stored before their checkpoint, so only writes with
-- a checkpoint are deleted.
-- differs: one statement.
WITH plain AS MATERIALIZED (
    SELECT true WHERE NOT EXISTS (SELECT FROM langgraph_checkpoint.labels l WHERE l.thread_id = %(thread_id)s)
    AND NOT EXISTS (
        SELECT FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND (c.hidden OR c.format < 4 OR c.delta_channels <> '{}')
    )
), heads AS MATERIALIZED (
    SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.root_id, c.blob_channels, c.blob_versions
    FROM plain
    CROSS JOIN LATERAL (
        SELECT checkpoint_ns, max(checkpoint_id) AS newest FROM langgraph_checkpoint.checkpoints
        WHERE thread_id = %(thread_id)s GROUP BY checkpoint_ns
    ) AS n
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = n.checkpoint_ns AND c.checkpoint_id = n.newest
        LIMIT 1
    ) AS c
), staying AS MATERIALIZED (
    SELECT h.* FROM heads h
    WHERE strpos(h.checkpoint_ns, ':') = 0
    OR h.root_id IS NULL
    OR h.root_id = (SELECT r.checkpoint_id FROM heads r WHERE r.checkpoint_ns = '')
    OR NOT (
        coalesce(h.root_id < (SELECT r.checkpoint_id FROM heads r WHERE r.checkpoint_ns = ''), false)
        OR EXISTS (
            SELECT FROM langgraph_checkpoint.checkpoints r
            WHERE r.thread_id = %(thread_id)s AND r.checkpoint_ns = '' AND r.checkpoint_id = h.root_id
        )
    )
), named AS MATERIALIZED (
    SELECT s.checkpoint_ns, u.channel, u.version, b.parts
    FROM staying s
    CROSS JOIN LATERAL unnest(s.blob_channels, s.blob_versions) AS u (channel, version)
    CROSS JOIN LATERAL (
        SELECT b.parts FROM langgraph_checkpoint.blobs b
        WHERE b.thread_id = %(thread_id)s AND b.checkpoint_ns = s.checkpoint_ns
        AND b.channel = u.channel AND b.version = u.version
        LIMIT 1
    ) AS b
), kept AS MATERIALIZED (
    SELECT n.checkpoint_ns, n.channel, n.version FROM named n
    UNION ALL
    SELECT n.checkpoint_ns, n.channel, p.name FROM named n CROSS JOIN LATERAL json_array_elements_text(n.parts::json) AS p (name)
), gone AS (
    DELETE FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND EXISTS (SELECT FROM plain)
    AND (c.checkpoint_ns, c.checkpoint_id) NOT IN (SELECT s.checkpoint_ns, s.checkpoint_id FROM staying s)
    RETURNING c.checkpoint_ns, c.checkpoint_id
), orphans AS (
    UPDATE langgraph_checkpoint.checkpoints c SET parent_id = NULL FROM staying s
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = s.checkpoint_ns AND c.checkpoint_id = s.checkpoint_id
    AND (s.checkpoint_ns, s.parent_id) IN (SELECT g.checkpoint_ns, g.checkpoint_id FROM gone g)
), blobs AS (
    DELETE FROM langgraph_checkpoint.blobs b
    WHERE b.thread_id = %(thread_id)s AND EXISTS (SELECT FROM plain)
    AND (b.checkpoint_ns, b.channel, b.version) NOT IN (SELECT k.checkpoint_ns, k.channel, k.version FROM kept k)
), writes AS (
    DELETE FROM langgraph_checkpoint.writes w
    WHERE w.thread_id = %(thread_id)s
    AND (w.checkpoint_ns, w.checkpoint_id) IN (SELECT g.checkpoint_ns, g.checkpoint_id FROM gone g)
)
SELECT * FROM plain

-- name: mark_superseded
-- Everything is marked except what remains: the `keep` newest checkpoints of each namespace; those with a label; and,
-- for each subgraph with a memory of its own, the checkpoint that a run goes on from if it starts at a root checkpoint
-- with a label, or at one that remains besides the newest. The namespace of a subgraph call contains a colon before a
-- task id, unlike that of a subgraph with checkpointer=True. It is finished once the root checkpoint that started the
-- call does not remain: that one is marked here, or it is older than the newest one and was deleted before. If it is
-- newer, it is still to be stored, and the call is not finished.
WITH heads AS MATERIALIZED (
    SELECT n.* FROM (
        SELECT checkpoint_ns, checkpoint_id, root_id,
            row_number() OVER (PARTITION BY checkpoint_ns ORDER BY checkpoint_id DESC) AS place
        FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s AND NOT hidden
    ) AS n
    WHERE n.place <= %(keep)s
), finished AS MATERIALIZED (
    SELECT h.checkpoint_ns FROM heads h
    WHERE h.place = 1 AND strpos(h.checkpoint_ns, ':') > 0
    AND h.root_id NOT IN (SELECT r.checkpoint_id FROM heads r WHERE r.checkpoint_ns = '')
    AND h.root_id NOT IN (
        SELECT l.checkpoint_id FROM langgraph_checkpoint.labels l
        WHERE l.thread_id = %(thread_id)s AND l.checkpoint_ns = ''
    )
    AND (h.root_id < (SELECT max(r.checkpoint_id) FROM heads r WHERE r.checkpoint_ns = '') OR EXISTS (
        SELECT FROM langgraph_checkpoint.checkpoints r
        WHERE r.thread_id = %(thread_id)s AND r.checkpoint_ns = '' AND r.checkpoint_id = h.root_id
    ))
), kept AS MATERIALIZED (
    SELECT h.checkpoint_ns, h.checkpoint_id FROM heads h
    WHERE h.checkpoint_ns NOT IN (SELECT f.checkpoint_ns FROM finished f)
    UNION
    SELECT l.checkpoint_ns, l.checkpoint_id FROM langgraph_checkpoint.labels l WHERE l.thread_id = %(thread_id)s
    UNION
    SELECT h.checkpoint_ns, m.checkpoint_id
    FROM (
        SELECT l.checkpoint_id FROM langgraph_checkpoint.labels l
        WHERE l.thread_id = %(thread_id)s AND l.checkpoint_ns = ''
        UNION
        SELECT r.checkpoint_id FROM heads r WHERE r.checkpoint_ns = '' AND r.place > 1
    ) AS l
    CROSS JOIN heads h
    CROSS JOIN LATERAL (
        SELECT c.checkpoint_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = h.checkpoint_ns AND c.checkpoint_id < l.checkpoint_id
        AND NOT c.hidden
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) AS m
    WHERE h.place = 1 AND h.checkpoint_ns <> '' AND strpos(h.checkpoint_ns, ':') = 0
)
UPDATE langgraph_checkpoint.checkpoints c SET doomed = true
WHERE c.thread_id = %(thread_id)s AND (c.hidden OR (c.checkpoint_ns, c.checkpoint_id) NOT IN (
    SELECT k.checkpoint_ns, k.checkpoint_id FROM kept k
))

-- name: mark_idle
-- All of a thread, unless a run has gone on or a label was set since the thread was read.
UPDATE langgraph_checkpoint.checkpoints SET doomed = true
WHERE thread_id = %(thread_id)s AND %(newest)s >= (
    SELECT max(n.checkpoint_id) FROM langgraph_checkpoint.checkpoints n
    WHERE n.thread_id = %(thread_id)s AND NOT n.hidden
)
AND NOT EXISTS (SELECT FROM langgraph_checkpoint.labels WHERE thread_id = %(thread_id)s)

-- name: delete_idle_writes
-- Sent after the purge_ blocks. Writes whose checkpoint was never stored are deleted with their thread, because nothing
-- would refer to them afterwards.
DELETE FROM langgraph_checkpoint.writes WHERE thread_id = %(thread_id)s
AND NOT EXISTS (SELECT FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s)

-- name: threads_of_runs
-- The threads in which the runs have stored something.
SELECT thread_id FROM langgraph_checkpoint.checkpoints
WHERE run_id = ANY (%(run_ids)s::text[]) AND tenant = %(tenant)s
UNION
SELECT thread_id FROM langgraph_checkpoint.writes
WHERE run_id = ANY (%(run_ids)s::text[]) AND langgraph_checkpoint.tenant_of(thread_id) = %(tenant)s
ORDER BY 1

-- name: mark_runs
-- The checkpoints of the runs, with or without labels, and the hidden checkpoints of their namespaces, which may have
-- been retained only for these.
WITH places AS MATERIALIZED (
    SELECT DISTINCT checkpoint_ns FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND run_id = ANY (%(run_ids)s::text[])
)
UPDATE langgraph_checkpoint.checkpoints SET doomed = true
WHERE thread_id = %(thread_id)s AND (hidden OR run_id = ANY (%(run_ids)s::text[]))
AND checkpoint_ns IN (SELECT checkpoint_ns FROM places)

-- The purge_ blocks hide or delete what is marked for deletion (`doomed`), in this order. Each one sees what was
-- committed while the one before waited. Each names its thread; otherwise it would read the index entries of all rows
-- that were marked since the last VACUUM. The index on `doomed` is for finding marked rows. The planner, which
-- estimates that there are none, would also search it for each of many rows. So those are compared with a list, or with
-- `doomed::integer`, for which it cannot use the index.

-- name: purge_labels
-- The labels of checkpoints that will be deleted or hidden.
DELETE FROM langgraph_checkpoint.labels l USING langgraph_checkpoint.checkpoints d
WHERE d.doomed AND d.thread_id = %(thread_id)s
AND l.thread_id = d.thread_id AND l.checkpoint_ns = d.checkpoint_ns AND l.checkpoint_id = d.checkpoint_id

-- name: purge_spare_needed
-- What a remaining checkpoint needs is hidden instead. `needed` walks from each remaining checkpoint to its ancestors,
-- with the delta channels whose seed was not found yet. `spared` adds the parents that hold the sends of checkpoints
-- older than format 4, because a hidden checkpoint has to be complete, too. If the parent of a checkpoint that becomes
-- hidden was missing already, its id is removed: no prune has cut off the history there.
WITH RECURSIVE places AS MATERIALIZED (
    SELECT DISTINCT thread_id, checkpoint_ns FROM langgraph_checkpoint.checkpoints
    WHERE doomed AND thread_id = %(thread_id)s
), staying AS MATERIALIZED (
    SELECT s.* FROM places p
    CROSS JOIN LATERAL (
        SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.format,
            c.inline_channels || c.blob_channels AS populated
        FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns AND NOT c.doomed
        OFFSET 0
    ) AS s
), delta AS MATERIALIZED (
    SELECT p.thread_id, p.checkpoint_ns, c.channels
    FROM places p
    CROSS JOIN LATERAL (
        SELECT array_agg(DISTINCT u.channel) AS channels
        FROM langgraph_checkpoint.checkpoints c CROSS JOIN LATERAL unnest(c.delta_channels) AS u (channel)
        WHERE c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns
    ) AS c
    WHERE c.channels IS NOT NULL
), needed (thread_id, checkpoint_ns, checkpoint_id, open) AS (
    SELECT s.thread_id, s.checkpoint_ns, s.parent_id,
        ARRAY(SELECT u FROM unnest(d.channels) AS u WHERE u <> ALL (s.populated) ORDER BY u)
    FROM staying s
    JOIN delta d ON d.thread_id = s.thread_id AND d.checkpoint_ns = s.checkpoint_ns
    WHERE s.parent_id IS NOT NULL AND NOT d.channels <@ s.populated
    UNION
    SELECT n.thread_id, n.checkpoint_ns, p.parent_id,
        ARRAY(SELECT u FROM unnest(n.open) AS u WHERE u <> ALL (p.populated) ORDER BY u)
    FROM needed n
    CROSS JOIN LATERAL (
        SELECT c.parent_id, c.inline_channels || c.blob_channels AS populated
        FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = n.thread_id AND c.checkpoint_ns = n.checkpoint_ns AND c.checkpoint_id = n.checkpoint_id
        OFFSET 0
    ) AS p
    WHERE p.parent_id IS NOT NULL AND NOT n.open <@ p.populated
), spared (thread_id, checkpoint_ns, checkpoint_id) AS (
    SELECT k.thread_id, k.checkpoint_ns, k.spared_id FROM (
        SELECT thread_id, checkpoint_ns, checkpoint_id AS spared_id FROM needed
        UNION
        SELECT s.thread_id, s.checkpoint_ns, s.parent_id FROM staying s
        WHERE s.format < 4 AND EXISTS (
            SELECT FROM langgraph_checkpoint.writes w
            WHERE w.thread_id = s.thread_id AND w.checkpoint_ns = s.checkpoint_ns AND w.checkpoint_id = s.parent_id
            AND w.channel = '__pregel_tasks'
            OFFSET 0
        )
    ) AS k
    UNION
    SELECT k.thread_id, k.checkpoint_ns, p.parent_id FROM spared k
    CROSS JOIN LATERAL (
        SELECT c.parent_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = k.thread_id AND c.checkpoint_ns = k.checkpoint_ns AND c.checkpoint_id = k.checkpoint_id
        AND c.format < 4
        OFFSET 0
    ) AS p
    WHERE EXISTS (
        SELECT FROM langgraph_checkpoint.writes w
        WHERE w.thread_id = k.thread_id AND w.checkpoint_ns = k.checkpoint_ns AND w.checkpoint_id = p.parent_id
        AND w.channel = '__pregel_tasks'
        OFFSET 0
    )
)
UPDATE langgraph_checkpoint.checkpoints c SET doomed = false, hidden = true, parent_id = CASE
    WHEN c.hidden OR EXISTS (
        SELECT FROM langgraph_checkpoint.checkpoints p
        WHERE p.thread_id = c.thread_id AND p.checkpoint_ns = c.checkpoint_ns AND p.checkpoint_id = c.parent_id
        OFFSET 0
    ) THEN c.parent_id
END
FROM unnest(
    ARRAY(SELECT thread_id FROM spared), ARRAY(SELECT checkpoint_ns FROM spared), ARRAY(SELECT checkpoint_id FROM spared)
) AS s (thread_id, checkpoint_ns, checkpoint_id)
WHERE c.doomed::integer = 1
AND c.thread_id = s.thread_id AND c.checkpoint_ns = s.checkpoint_ns AND c.checkpoint_id = s.checkpoint_id

-- name: purge_writes
WITH doomed AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.checkpoints
    WHERE doomed AND thread_id = %(thread_id)s
)
DELETE FROM langgraph_checkpoint.writes w USING doomed d
WHERE w.thread_id = d.thread_id AND w.checkpoint_ns = d.checkpoint_ns AND w.checkpoint_id = d.checkpoint_id

-- name: purge_parents
-- If the parent of a remaining checkpoint is deleted, its id is removed. A hidden checkpoint keeps that id, so that
-- select_delta_history can tell a deleted parent from one that never existed.
WITH children AS MATERIALIZED (
    SELECT s.* FROM (
        SELECT DISTINCT thread_id, checkpoint_ns FROM langgraph_checkpoint.checkpoints
        WHERE doomed AND thread_id = %(thread_id)s
    ) AS p
    CROSS JOIN LATERAL (
        SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns AND NOT c.doomed AND NOT c.hidden
        AND (
            SELECT d.doomed FROM langgraph_checkpoint.checkpoints d
            WHERE d.thread_id = c.thread_id AND d.checkpoint_ns = c.checkpoint_ns AND d.checkpoint_id = c.parent_id
        )
        OFFSET 0
    ) AS s
)
UPDATE langgraph_checkpoint.checkpoints c SET parent_id = NULL FROM children o
WHERE c.thread_id = o.thread_id AND c.checkpoint_ns = o.checkpoint_ns AND c.checkpoint_id = o.checkpoint_id

-- name: purge_chunks
-- The chunks of deleted blobs, except those that a remaining blob shares.
WITH doomed AS MATERIALIZED (
    SELECT DISTINCT d.thread_id, d.checkpoint_ns, u.channel, u.version
    FROM langgraph_checkpoint.checkpoints d
    CROSS JOIN LATERAL unnest(d.blob_channels, d.blob_versions) AS u (channel, version)
    WHERE d.doomed AND d.thread_id = %(thread_id)s
), going AS MATERIALIZED (
    SELECT d.thread_id, d.checkpoint_ns, d.channel, n.name
    FROM doomed d
    CROSS JOIN LATERAL (
        SELECT b.parts FROM langgraph_checkpoint.blobs b
        WHERE b.thread_id = d.thread_id AND b.checkpoint_ns = d.checkpoint_ns
        AND b.channel = d.channel AND b.version = d.version
        LIMIT 1
    ) AS b
    CROSS JOIN LATERAL json_array_elements_text(b.parts::json) AS n (name)
), staying AS MATERIALIZED (
    SELECT DISTINCT g.thread_id, g.checkpoint_ns, u.channel, u.version
    FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM going) AS g
    CROSS JOIN LATERAL (
        SELECT c.blob_channels, c.blob_versions FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = g.thread_id AND c.checkpoint_ns = g.checkpoint_ns AND NOT c.doomed
        OFFSET 0
    ) AS c
    CROSS JOIN LATERAL unnest(c.blob_channels, c.blob_versions) AS u (channel, version)
), unshared AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, channel, name FROM going
    EXCEPT
    SELECT s.thread_id, s.checkpoint_ns, s.channel, n.name
    FROM staying s
    CROSS JOIN LATERAL (
        SELECT b.parts FROM langgraph_checkpoint.blobs b
        WHERE b.thread_id = s.thread_id AND b.checkpoint_ns = s.checkpoint_ns
        AND b.channel = s.channel AND b.version = s.version
        LIMIT 1
    ) AS b
    CROSS JOIN LATERAL json_array_elements_text(b.parts::json) AS n (name)
)
DELETE FROM langgraph_checkpoint.blobs b USING unshared u
WHERE b.thread_id = u.thread_id AND b.checkpoint_ns = u.checkpoint_ns AND b.channel = u.channel AND b.version = u.name

-- name: purge_blobs
WITH places AS MATERIALIZED (
    SELECT DISTINCT thread_id, checkpoint_ns FROM langgraph_checkpoint.checkpoints
    WHERE doomed AND thread_id = %(thread_id)s
), unnamed AS MATERIALIZED (
    SELECT d.thread_id, d.checkpoint_ns, u.channel, u.version
    FROM langgraph_checkpoint.checkpoints d
    CROSS JOIN LATERAL unnest(d.blob_channels, d.blob_versions) AS u (channel, version)
    WHERE d.doomed AND d.thread_id = %(thread_id)s
    EXCEPT
    SELECT s.thread_id, s.checkpoint_ns, s.channel, s.version
    FROM places p
    CROSS JOIN LATERAL (
        SELECT c.thread_id, c.checkpoint_ns, u.channel, u.version
        FROM langgraph_checkpoint.checkpoints c
        CROSS JOIN LATERAL unnest(c.blob_channels, c.blob_versions) AS u (channel, version)
        WHERE c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns AND NOT c.doomed
        OFFSET 0
    ) AS s
)
DELETE FROM langgraph_checkpoint.blobs b USING unnamed u
WHERE b.thread_id = u.thread_id AND b.checkpoint_ns = u.checkpoint_ns AND b.channel = u.channel AND b.version = u.version

-- name: purge_checkpoints
DELETE FROM langgraph_checkpoint.checkpoints
WHERE doomed AND thread_id = %(thread_id)s

-- name: delete_run_writes
-- Sent after the purge_ blocks: what the runs wrote to checkpoints of other runs, such as the answer to an interrupt.
-- Writes of a hidden checkpoint, and those that a child is rebuilt from, remain for good.
WITH delta AS MATERIALIZED (
    SELECT DISTINCT p.checkpoint_ns, c.channel
    FROM (
        SELECT DISTINCT checkpoint_ns FROM langgraph_checkpoint.writes
        WHERE thread_id = %(thread_id)s AND run_id = ANY (%(run_ids)s::text[])
    ) AS p
    CROSS JOIN LATERAL (
        SELECT u.channel
        FROM langgraph_checkpoint.checkpoints c CROSS JOIN LATERAL unnest(c.delta_channels) AS u (channel)
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = p.checkpoint_ns
        OFFSET 0
    ) AS c
)
DELETE FROM langgraph_checkpoint.writes w
WHERE w.thread_id = %(thread_id)s AND w.run_id = ANY (%(run_ids)s::text[])
AND NOT EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
    AND c.hidden
    OFFSET 0
)
AND NOT EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = w.checkpoint_ns AND c.parent_id = w.checkpoint_id
    AND CASE w.channel
        WHEN '__pregel_tasks' THEN c.format < 4
        ELSE w.channel <> ALL (c.inline_channels || c.blob_channels)
        AND (w.checkpoint_ns, w.channel) IN (SELECT d.checkpoint_ns, d.channel FROM delta d)
    END
    OFFSET 0
)

-- name: copy_thread
-- differs: one statement, so that everything is copied from one snapshot. Other transactions store writes in the target
-- without its lock. If such a write is not visible in the snapshot, has the key of a copied one and is not equal to it,
-- the statement fails with a division by zero and is tried again. The next snapshot has the write.
WITH own AS MATERIALIZED (
    SELECT t.checkpoint_id FROM langgraph_checkpoint.checkpoints t
    WHERE t.thread_id = %(target)s AND NOT EXISTS (
        SELECT FROM langgraph_checkpoint.checkpoints s
        WHERE s.thread_id = %(source)s AND s.checkpoint_ns = t.checkpoint_ns AND s.checkpoint_id = t.checkpoint_id
        AND s.parent_id IS NOT DISTINCT FROM t.parent_id AND s.hidden = t.hidden
    )
    UNION ALL
    SELECT t.checkpoint_id FROM langgraph_checkpoint.writes t
    WHERE t.thread_id = %(target)s AND NOT EXISTS (
        SELECT FROM langgraph_checkpoint.writes s
        WHERE s.thread_id = %(source)s AND s.checkpoint_ns = t.checkpoint_ns AND s.checkpoint_id = t.checkpoint_id
        AND s.task_id = t.task_id AND s.idx = t.idx AND s.type = t.type AND s.value = t.value
    )
    LIMIT 1
), checkpoints AS (
    INSERT INTO langgraph_checkpoint.checkpoints (
        thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden,
        inline_channels, delta_channels, blob_channels, blob_versions,
        checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter, tenant
    )
    SELECT
        %(target)s, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden,
        inline_channels, delta_channels, blob_channels, blob_versions,
        checkpoint_type, checkpoint, metadata_type, metadata,
        CASE WHEN metadata_filter ->> 'thread_id' = %(source_json)s
            THEN jsonb_set(metadata_filter, '{thread_id}', to_jsonb(%(target_json)s::text))
            ELSE metadata_filter END,
        tenant
    FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(source)s AND NOT EXISTS (SELECT FROM own)
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO NOTHING
), blobs AS (
    INSERT INTO langgraph_checkpoint.blobs (thread_id, checkpoint_ns, channel, version, type, value, parts)
    SELECT %(target)s, checkpoint_ns, channel, version, type, value, parts
    FROM langgraph_checkpoint.blobs WHERE thread_id = %(source)s AND NOT EXISTS (SELECT FROM own)
    ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING
), writes AS (
    INSERT INTO langgraph_checkpoint.writes AS t (
        thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
    )
    SELECT %(target)s, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
    FROM langgraph_checkpoint.writes WHERE thread_id = %(source)s AND NOT EXISTS (SELECT FROM own)
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE SET idx = t.idx / 0
        WHERE t.type <> EXCLUDED.type OR t.value <> EXCLUDED.value
), labels AS (
    INSERT INTO langgraph_checkpoint.labels (thread_id, name, checkpoint_ns, checkpoint_id)
    SELECT %(target)s, name, checkpoint_ns, checkpoint_id
    FROM langgraph_checkpoint.labels WHERE thread_id = %(source)s AND NOT EXISTS (SELECT FROM own)
    ON CONFLICT (thread_id, name) DO NOTHING
)
SELECT checkpoint_id FROM own

-- name: claim_sweep
-- Claims that expired more than a day ago and were not taken over.
DELETE FROM langgraph_checkpoint.claims WHERE thread_id IN (
    SELECT thread_id FROM langgraph_checkpoint.claims
    WHERE expires_at < clock_timestamp() - interval '1 day' ORDER BY thread_id LIMIT 100 FOR UPDATE SKIP LOCKED
)

-- name: claim_take
-- A claim that has expired is taken over. The same token may be sent again, after an answer was lost.
INSERT INTO langgraph_checkpoint.claims AS c (thread_id, token, owner, expires_at)
VALUES (
    %(thread_id)s, %(claim)s, %(owner)s, clock_timestamp() + make_interval(secs => %(ttl_seconds)s)
)
ON CONFLICT (thread_id) DO UPDATE
SET token = EXCLUDED.token, owner = EXCLUDED.owner, expires_at = EXCLUDED.expires_at
WHERE c.expires_at <= clock_timestamp() OR c.token = EXCLUDED.token

-- name: claim_holder
SELECT token, owner, extract(epoch FROM expires_at)::float8 FROM langgraph_checkpoint.claims
WHERE thread_id = %(thread_id)s

-- name: renew_claim
UPDATE langgraph_checkpoint.claims SET expires_at = clock_timestamp() + make_interval(secs => %(ttl_seconds)s)
WHERE thread_id = %(thread_id)s AND token = %(claim)s
RETURNING token

-- name: release_claim
DELETE FROM langgraph_checkpoint.claims WHERE thread_id = %(thread_id)s AND token = %(claim)s
RETURNING token

-- The stored_ blocks read a page of the rows of a tenant. The renew_stored_ blocks replace the bytes of one row, unless
-- another transaction has changed them. schema.sql explains texteq() at the policies.

-- name: stored_checkpoints
SELECT thread_id, checkpoint_ns, checkpoint_id, checkpoint_type, checkpoint, metadata_type, metadata,
    metadata_filter::text
FROM langgraph_checkpoint.checkpoints
WHERE (thread_id, checkpoint_ns, checkpoint_id) > (%(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s)
AND texteq(tenant, %(tenant)s)
ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT %(limit)s

-- name: stored_blobs
SELECT thread_id, checkpoint_ns, channel, version, type, value, parts FROM langgraph_checkpoint.blobs
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

-- Threads and their runs, without values. A thread's newest checkpoint is that of its first namespace, which is the
-- root graph's if there is one.

-- name: threads_newest
-- Walks down from the newest checkpoint of all threads and skips those that are not the newest of their thread. It
-- reads `reach` checkpoints at most. The order of the inner query is kept; with one order for both, many more rows
-- would be read for the last few of a page.
SELECT c.* FROM (
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata
    FROM langgraph_checkpoint.checkpoints
    WHERE tenant = %(tenant)s AND checkpoint_id <= %(before)s AND NOT hidden
    AND (checkpoint_id, thread_id) < (%(before)s, %(thread_below)s)
    ORDER BY checkpoint_id DESC, thread_id DESC
    LIMIT %(reach)s
) AS c
WHERE c.checkpoint_id = (
    SELECT max(n.checkpoint_id) FROM langgraph_checkpoint.checkpoints n
    WHERE n.thread_id = c.thread_id AND n.checkpoint_ns = c.checkpoint_ns AND NOT n.hidden
)
AND c.checkpoint_ns = (
    SELECT min(n.checkpoint_ns) FROM langgraph_checkpoint.checkpoints n WHERE n.thread_id = c.thread_id
)
LIMIT %(limit)s

-- A statement starts with thread_heads, or with a _candidates block and candidate_heads. It ends with heads_page,
-- heads_count or recent_page. Heads are the newest checkpoints of the threads that match.

-- name: thread_heads
-- Steps from thread to thread by id, in ranges that contain no other tenant's threads.
WITH RECURSIVE found (thread_id, top) AS (
    SELECT n.thread_id, r.top COLLATE "C"
    FROM unnest(%(bottoms)s::text[], %(tops)s::text[]) AS r (bottom, top)
    CROSS JOIN LATERAL (
        SELECT c.thread_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id >= r.bottom COLLATE "C" AND c.thread_id < r.top COLLATE "C"
        ORDER BY c.thread_id LIMIT 1
    ) AS n
    UNION ALL
    SELECT n.thread_id, f.top
    FROM found f
    CROSS JOIN LATERAL (
        SELECT c.thread_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id > f.thread_id AND c.thread_id < f.top
        ORDER BY c.thread_id LIMIT 1
    ) AS n
), heads AS MATERIALIZED (
    SELECT h.* FROM found f
    CROSS JOIN LATERAL (
        SELECT
            c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.run_id, c.metadata_type, c.metadata,
            c.metadata_filter
        FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = f.thread_id AND NOT c.hidden AND c.checkpoint_ns = (
            SELECT n.checkpoint_ns FROM langgraph_checkpoint.checkpoints n WHERE n.thread_id = f.thread_id
            ORDER BY n.checkpoint_ns LIMIT 1
        )
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) AS h
    WHERE %(filter)s = '{}' OR NOT EXISTS (
        SELECT FROM jsonb_each_text(%(filter)s::jsonb) AS f
        WHERE f.value <> CASE
            WHEN h.metadata_filter ? f.key THEN coalesce(h.metadata_filter ->> f.key, f.value)
            WHEN h.metadata_filter ? '*' THEN f.value
            ELSE 'null'
        END
        OFFSET 0
    )
)

-- name: recent_candidates
-- The newest checkpoints. If many threads match a filter, enough of them are found here, and not all threads have to be
-- read. Only the newest checkpoint of each namespace is a candidate, in the order of the page. So a busy thread takes a
-- thirtieth of the time that as many other threads take.
WITH recent AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.checkpoints
    WHERE tenant = %(tenant)s AND checkpoint_id <= %(before)s AND NOT hidden
    AND (checkpoint_id, thread_id) < (%(before)s, %(thread_below)s)
    ORDER BY checkpoint_id DESC, thread_id DESC LIMIT %(reach)s
), candidates AS (
    SELECT thread_id, checkpoint_ns, max(checkpoint_id) AS checkpoint_id FROM recent
    GROUP BY thread_id, checkpoint_ns
    ORDER BY 3 DESC, thread_id DESC LIMIT %(reach)s
)

-- name: searched_candidates
-- The checkpoints that an index finds by a metadata key. Only the newest one of each namespace can be a thread's
-- newest.
WITH candidates AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, max(checkpoint_id) AS checkpoint_id FROM langgraph_checkpoint.searched_key
    WHERE tenant = %(tenant)s AND shown IN (%(shown)s, '?') AND NOT hidden
    GROUP BY thread_id, checkpoint_ns
)

-- name: candidate_heads
-- In the order of the candidates, and no more than are asked for. If this were materialized, all candidates would be
-- read before the page begins.
, heads AS NOT MATERIALIZED (
    SELECT h.* FROM candidates r
    CROSS JOIN LATERAL (
        SELECT
            c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.run_id, c.metadata_type, c.metadata,
            c.metadata_filter
        FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = r.thread_id AND c.checkpoint_ns = r.checkpoint_ns AND c.checkpoint_id = r.checkpoint_id
        LIMIT 1
    ) AS h
    WHERE r.checkpoint_id = (
        SELECT max(n.checkpoint_id) FROM langgraph_checkpoint.checkpoints n
        WHERE n.thread_id = r.thread_id AND n.checkpoint_ns = r.checkpoint_ns AND NOT n.hidden
    )
    AND r.checkpoint_ns = (
        SELECT min(n.checkpoint_ns) FROM langgraph_checkpoint.checkpoints n WHERE n.thread_id = r.thread_id
    )
    AND NOT EXISTS (
        SELECT FROM jsonb_each_text(%(filter)s::jsonb) AS f
        WHERE f.value <> CASE
            WHEN h.metadata_filter ? f.key THEN coalesce(h.metadata_filter ->> f.key, f.value)
            WHEN h.metadata_filter ? '*' THEN f.value
            ELSE 'null'
        END
        OFFSET 0
    )
)

-- name: heads_page
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata FROM heads
WHERE (checkpoint_id, thread_id) < (%(before)s, %(thread_below)s)
ORDER BY checkpoint_id DESC, thread_id DESC LIMIT %(limit)s

-- name: recent_page
-- In the order of the candidates. If there may be more checkpoints, an additional row has only NULLs.
SELECT * FROM (
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata FROM heads LIMIT %(limit)s
) AS page
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM recent HAVING count(*) = %(reach)s

-- name: heads_count
-- The number of heads that certainly match, and a row for each head for which only the metadata itself decides.
, sure AS MATERIALIZED (
    SELECT heads.*, NOT EXISTS (
        SELECT FROM jsonb_object_keys(%(filter)s::jsonb) AS f (key) WHERE heads.metadata_filter ->> f.key IS NULL
    ) AS is_sure
    FROM heads
)
SELECT count(*), NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea FROM sure WHERE is_sure
UNION ALL
SELECT NULL, thread_id, checkpoint_ns, checkpoint_id, metadata_type, metadata FROM sure WHERE NOT is_sure

-- name: thread_exists
SELECT 1 FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s ORDER BY checkpoint_ns LIMIT 1

-- name: select_runs
-- The checkpoints of the root graph, by run. For the last checkpoint of each run: whether its parent holds sends for
-- it, and the channels with a value, which show what is left to do. For channels of two kinds, the value decides; it
-- may be part of the document. A value in chunks is not empty.
WITH runs AS MATERIALIZED (
    SELECT run_id, min(checkpoint_id) AS first_id, max(checkpoint_id) AS last_id, count(*) AS checkpoints
    FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = '' AND NOT hidden
    GROUP BY run_id
), last AS MATERIALIZED (
    SELECT r.run_id, r.first_id, r.last_id, r.checkpoints, c.inline_channels, c.blob_channels, c.blob_versions,
        c.checkpoint_type, c.checkpoint,
        c.format < 4 AND EXISTS (
            SELECT FROM langgraph_checkpoint.writes w
            WHERE w.thread_id = %(thread_id)s AND w.checkpoint_ns = '' AND w.checkpoint_id = c.parent_id
            AND w.channel = '__pregel_tasks'
            OFFSET 0
        ) AS sends
    FROM runs r
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = '' AND c.checkpoint_id = r.last_id
        LIMIT 1
    ) AS c
)
SELECT
    last_id, run_id, first_id, checkpoints, sends, inline_channels, blob_channels,
    NULL AS channel, NULL AS version, NULL AS type, NULL::bytea AS value, NULL AS parts
FROM last
UNION ALL
SELECT l.last_id, NULL, NULL, NULL, NULL, NULL, NULL, u.channel, u.version, b.type, b.value, b.parts
FROM last l
CROSS JOIN LATERAL unnest(l.blob_channels, l.blob_versions) AS u (channel, version)
CROSS JOIN LATERAL (
    SELECT b.type, CASE WHEN b.parts IS NULL THEN b.value END AS value, b.parts FROM langgraph_checkpoint.blobs b
    WHERE b.thread_id = %(thread_id)s AND b.checkpoint_ns = '' AND b.channel = u.channel AND b.version = u.version
    LIMIT 1
) AS b
WHERE u.channel = '__pregel_tasks' OR starts_with(u.channel, 'join:')
UNION ALL
SELECT l.last_id, NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, l.checkpoint_type, l.checkpoint, NULL
FROM last l
WHERE EXISTS (
    SELECT FROM unnest(l.inline_channels) AS u (channel)
    WHERE u.channel = '__pregel_tasks' OR starts_with(u.channel, 'join:')
)

-- name: rows_record
-- Ends a statement that a page_ block starts: the columns of a checkpoint's record.
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata FROM page

-- Labels.

-- name: label_checkpoint
-- A row with the checkpoint that has the name, which may be another one, and with the id of the one that was to get it;
-- no row if that does not exist. The update changes nothing. On PostgreSQL, it waits for a transaction that deletes the
-- label; after that, the name is free.
INSERT INTO langgraph_checkpoint.labels (thread_id, name, checkpoint_ns, checkpoint_id)
SELECT c.thread_id, %(name)s, c.checkpoint_ns, c.checkpoint_id FROM langgraph_checkpoint.checkpoints c
WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = %(checkpoint_ns)s AND NOT c.hidden
AND c.checkpoint_id = coalesce(%(checkpoint_id)s, (
    SELECT n.checkpoint_id FROM langgraph_checkpoint.checkpoints n
    WHERE n.thread_id = %(thread_id)s AND n.checkpoint_ns = %(checkpoint_ns)s AND NOT n.hidden
    ORDER BY n.checkpoint_id DESC LIMIT 1
))
ON CONFLICT (thread_id, name) DO UPDATE SET name = excluded.name
RETURNING checkpoint_ns, checkpoint_id, coalesce(%(checkpoint_id)s, (
    SELECT n.checkpoint_id FROM langgraph_checkpoint.checkpoints n
    WHERE n.thread_id = %(thread_id)s AND n.checkpoint_ns = %(checkpoint_ns)s AND NOT n.hidden
    ORDER BY n.checkpoint_id DESC LIMIT 1
))

-- name: delete_label
DELETE FROM langgraph_checkpoint.labels WHERE thread_id = %(thread_id)s AND name = %(name)s
RETURNING name

-- name: select_labels
SELECT name, checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.labels
WHERE thread_id = %(thread_id)s ORDER BY name

-- Deleting one checkpoint, or everything after one. A mark_ block marks what is to be deleted, and the hidden
-- checkpoints of these namespaces, which may have been retained only for that. It returns no row if the named
-- checkpoint does not exist. A checkpoint that is stored in the thread after that, without its lock, is not looked at.
-- The refuse_labelled blocks return the labels that prevent the deletion and, if there are any, take the marks back.
-- delete_open_writes and delete_later_writes are sent between the purge_ blocks, once it is known what is spared.

-- name: mark_checkpoint
-- With a root checkpoint, the subgraph calls that it started are deleted. If it was the newest one, the tasks of the
-- checkpoint that becomes the newest run again. So the subgraph calls that these have started are deleted as well, and
-- what subgraphs with a memory have stored since. This does not hold if the deleted checkpoint is on another branch.
-- differs: notes the newest remaining checkpoint of each namespace, for delete_open_writes.
WITH gone AS MATERIALIZED (
    SELECT t.parent_id, (
        SELECT max(n.checkpoint_id) FROM langgraph_checkpoint.checkpoints n
        WHERE n.thread_id = %(thread_id)s AND n.checkpoint_ns = %(checkpoint_ns)s
        AND n.checkpoint_id <> %(checkpoint_id)s AND NOT n.hidden
    ) AS other_id
    FROM langgraph_checkpoint.checkpoints t
    WHERE t.thread_id = %(thread_id)s AND t.checkpoint_ns = %(checkpoint_ns)s
    AND t.checkpoint_id = %(checkpoint_id)s AND NOT t.hidden
), again AS MATERIALIZED (
    SELECT coalesce(g.other_id, %(checkpoint_id)s) AS first_id FROM gone g
    WHERE %(checkpoint_ns)s = '' AND (
        g.other_id IS NULL
        OR (g.other_id < %(checkpoint_id)s AND (g.parent_id IS NULL OR g.parent_id = g.other_id))
    )
), victims AS MATERIALIZED (
    SELECT c.checkpoint_ns, c.checkpoint_id
    FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND EXISTS (SELECT FROM gone) AND (
        (c.checkpoint_ns = %(checkpoint_ns)s AND (c.hidden OR c.checkpoint_id = %(checkpoint_id)s))
        OR (%(checkpoint_ns)s = '' AND strpos(c.checkpoint_ns, ':') > 0 AND c.root_id = %(checkpoint_id)s)
        OR (
            c.checkpoint_ns <> '' AND EXISTS (SELECT FROM again)
            AND (c.hidden OR c.root_id >= (SELECT first_id FROM again))
        )
    )
), touched AS (
    UPDATE langgraph_checkpoint.checkpoints c SET doomed = true FROM victims v
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = v.checkpoint_ns AND c.checkpoint_id = v.checkpoint_id
    RETURNING c.checkpoint_id
), heads AS (
    SELECT c.checkpoint_ns, max(c.checkpoint_id) AS checkpoint_id
    FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND NOT c.hidden AND c.checkpoint_ns IN (SELECT checkpoint_ns FROM victims)
    AND NOT EXISTS (
        SELECT FROM victims v WHERE v.checkpoint_ns = c.checkpoint_ns AND v.checkpoint_id = c.checkpoint_id
    )
    GROUP BY c.checkpoint_ns
), noted AS MATERIALIZED (
    SELECT set_config(
        'langgraph_checkpoint_custom.heads', coalesce(json_object_agg(checkpoint_ns, checkpoint_id)::text, ''), true
    ) FROM heads
)
SELECT t.checkpoint_id FROM touched t CROSS JOIN noted

-- name: mark_later
-- In all namespaces. The checkpoint itself is returned without a mark, because there may be nothing after it.
-- differs: notes the newest remaining checkpoint of each namespace, for delete_open_writes.
WITH touched AS (
    UPDATE langgraph_checkpoint.checkpoints c
    SET doomed = (c.checkpoint_ns, c.checkpoint_id) <> (%(checkpoint_ns)s, %(checkpoint_id)s)
    WHERE c.thread_id = %(thread_id)s AND (
        c.hidden OR c.checkpoint_id > %(checkpoint_id)s
        OR (c.checkpoint_ns <> '' AND coalesce(c.root_id >= %(checkpoint_id)s, false))
        OR (c.checkpoint_ns = %(checkpoint_ns)s AND c.checkpoint_id = %(checkpoint_id)s)
    ) AND EXISTS (
        SELECT FROM langgraph_checkpoint.checkpoints t
        WHERE t.thread_id = %(thread_id)s AND t.checkpoint_ns = %(checkpoint_ns)s
        AND t.checkpoint_id = %(checkpoint_id)s AND NOT t.hidden
    )
    RETURNING c.checkpoint_id
), heads AS (
    SELECT c.checkpoint_ns, max(c.checkpoint_id) AS checkpoint_id
    FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = %(thread_id)s AND NOT c.hidden AND c.checkpoint_id <= %(checkpoint_id)s
    AND (c.checkpoint_ns = '' OR NOT coalesce(c.root_id >= %(checkpoint_id)s, false))
    GROUP BY c.checkpoint_ns
), noted AS MATERIALIZED (
    SELECT set_config(
        'langgraph_checkpoint_custom.heads', coalesce(json_object_agg(checkpoint_ns, checkpoint_id)::text, ''), true
    ) FROM heads
)
SELECT t.checkpoint_id FROM touched t CROSS JOIN noted

-- name: refuse_labelled
SELECT l.name FROM langgraph_checkpoint.labels l
JOIN langgraph_checkpoint.checkpoints d ON d.thread_id = l.thread_id AND d.checkpoint_ns = l.checkpoint_ns
    AND d.checkpoint_id = l.checkpoint_id AND d.doomed
WHERE l.thread_id = %(thread_id)s
ORDER BY l.name

-- name: refuse_labelled_release
UPDATE langgraph_checkpoint.checkpoints SET doomed = false
WHERE thread_id = %(thread_id)s AND doomed AND EXISTS (
    SELECT FROM langgraph_checkpoint.labels l
    JOIN langgraph_checkpoint.checkpoints d ON d.thread_id = l.thread_id AND d.checkpoint_ns = l.checkpoint_ns
        AND d.checkpoint_id = l.checkpoint_id AND d.doomed
    WHERE l.thread_id = %(thread_id)s
)

-- name: delete_open_writes
-- When a namespace loses its newest checkpoint, the writes of the checkpoint that becomes the newest belong to what is
-- deleted. LangGraph would take them for the outputs of tasks that have run already. So they are deleted, except those
-- that a remaining child is rebuilt from. If the deleted checkpoint is on another branch, the writes remain: their
-- tasks are still to go on.
-- differs: the mark_ statement has noted which checkpoint becomes the newest, because a newer one may have been stored
-- since.
WITH lost AS MATERIALIZED (
    SELECT checkpoint_ns, max(checkpoint_id) AS checkpoint_id
    FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s AND doomed AND NOT hidden
    GROUP BY checkpoint_ns
), heads AS MATERIALIZED (
    SELECT x.checkpoint_ns, h.checkpoint_id
    FROM lost x
    JOIN json_each_text(
        coalesce(nullif(current_setting('langgraph_checkpoint_custom.heads', true), ''), '{}')::json
    ) AS h (checkpoint_ns, checkpoint_id) ON h.checkpoint_ns = x.checkpoint_ns
    WHERE h.checkpoint_id < x.checkpoint_id AND EXISTS (
        SELECT FROM langgraph_checkpoint.checkpoints d
        WHERE d.thread_id = %(thread_id)s AND d.checkpoint_ns = x.checkpoint_ns AND d.doomed
        AND (d.parent_id = h.checkpoint_id OR (d.parent_id IS NULL AND NOT d.hidden))
    )
), delta AS MATERIALIZED (
    SELECT DISTINCT h.checkpoint_ns, c.channel
    FROM heads h
    CROSS JOIN LATERAL (
        SELECT u.channel
        FROM langgraph_checkpoint.checkpoints c CROSS JOIN LATERAL unnest(c.delta_channels) AS u (channel)
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = h.checkpoint_ns
        OFFSET 0
    ) AS c
)
DELETE FROM langgraph_checkpoint.writes w USING heads h
WHERE w.thread_id = %(thread_id)s AND w.checkpoint_ns = h.checkpoint_ns AND w.checkpoint_id = h.checkpoint_id
AND NOT EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns AND c.parent_id = w.checkpoint_id
    AND NOT c.doomed
    AND CASE w.channel
        WHEN '__pregel_tasks' THEN c.format < 4
        ELSE w.channel <> ALL (c.inline_channels || c.blob_channels)
        AND (w.checkpoint_ns, w.channel) IN (SELECT d.checkpoint_ns, d.channel FROM delta d)
    END
    OFFSET 0
)

-- name: delete_later_writes
-- Writes whose checkpoint was never stored.
DELETE FROM langgraph_checkpoint.writes w
WHERE w.thread_id = %(thread_id)s AND w.checkpoint_id > %(checkpoint_id)s
AND EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints d WHERE d.thread_id = %(thread_id)s AND d.doomed AND NOT d.hidden
)
AND NOT EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
    OFFSET 0
)

-- A fork: a copy of one checkpoint of the root graph, with what it needs, to an empty thread.

-- name: select_fork_point
-- The checkpoint that is named, or the last one of a run, or the newest one; and the newest one of the target, if that
-- has any.
SELECT 'point', checkpoint_id, metadata_type, metadata FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(source)s AND checkpoint_ns = '' AND NOT hidden AND checkpoint_id = coalesce(%(checkpoint_id)s, (
    SELECT n.checkpoint_id FROM langgraph_checkpoint.checkpoints n
    WHERE n.thread_id = %(source)s AND n.checkpoint_ns = '' AND NOT n.hidden
    AND (%(run_id)s::text IS NULL OR n.run_id = %(run_id)s)
    ORDER BY n.checkpoint_id DESC LIMIT 1
))
UNION ALL
SELECT 'target', n.checkpoint_id, n.metadata_type, n.metadata
FROM (
    SELECT FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(target)s ORDER BY checkpoint_ns LIMIT 1
) AS there
LEFT JOIN (
    SELECT * FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(target)s AND checkpoint_ns = '' AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
) AS n ON true

-- name: fork_thread
-- differs: one statement, so that everything is copied from one snapshot. What may be needed is copied as hidden and
-- marked for deletion (`doomed`), and the purge_ blocks that follow spare what is needed. If the checkpoint is the
-- newest one, its superstep is open: its writes and the subgraph calls that it started belong to it. Otherwise they
-- belong to what came after it. For each subgraph with a memory of its own, the checkpoint that a run from here goes on
-- from is copied.
WITH RECURSIVE own AS MATERIALIZED (
    SELECT 'exists' AS reason FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(target)s ORDER BY checkpoint_ns LIMIT 1
), point AS MATERIALIZED (
    SELECT p.checkpoint_id, p.checkpoint_id = (
        SELECT max(n.checkpoint_id) FROM langgraph_checkpoint.checkpoints n
        WHERE n.thread_id = %(source)s AND n.checkpoint_ns = '' AND NOT n.hidden
    ) AS is_open
    FROM langgraph_checkpoint.checkpoints p
    WHERE p.thread_id = %(source)s AND p.checkpoint_ns = '' AND p.checkpoint_id = %(checkpoint_id)s AND NOT p.hidden
    AND NOT EXISTS (SELECT FROM own)
    AND (%(named)s OR p.checkpoint_id = (  -- It is still the one that is meant.
        SELECT n.checkpoint_id FROM langgraph_checkpoint.checkpoints n
        WHERE n.thread_id = %(source)s AND n.checkpoint_ns = '' AND NOT n.hidden
        AND (%(run_id)s::text IS NULL OR n.run_id = %(run_id)s)
        ORDER BY n.checkpoint_id DESC LIMIT 1
    ))
), spaces AS MATERIALIZED (
    SELECT DISTINCT checkpoint_ns FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(source)s AND checkpoint_ns <> ''
), kept AS MATERIALIZED (
    SELECT '' COLLATE "C" AS checkpoint_ns, p.checkpoint_id FROM point p
    UNION ALL
    SELECT s.checkpoint_ns, h.checkpoint_id
    FROM point p
    CROSS JOIN spaces s
    CROSS JOIN LATERAL (
        SELECT c.checkpoint_id, c.root_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(source)s AND c.checkpoint_ns = s.checkpoint_ns AND NOT c.hidden
        AND (p.is_open OR c.checkpoint_id < p.checkpoint_id)
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) AS h
    WHERE strpos(s.checkpoint_ns, ':') = 0 OR (p.is_open AND h.root_id = p.checkpoint_id)
), delta AS MATERIALIZED (
    SELECT k.checkpoint_ns, c.channels
    FROM kept k
    CROSS JOIN LATERAL (
        SELECT array_agg(DISTINCT u.channel) AS channels
        FROM langgraph_checkpoint.checkpoints c CROSS JOIN LATERAL unnest(c.delta_channels) AS u (channel)
        WHERE c.thread_id = %(source)s AND c.checkpoint_ns = k.checkpoint_ns
    ) AS c
    WHERE c.channels IS NOT NULL
), needed (checkpoint_ns, checkpoint_id, open) AS (
    SELECT k.checkpoint_ns, k.checkpoint_id, d.channels FROM kept k JOIN delta d ON d.checkpoint_ns = k.checkpoint_ns
    UNION
    SELECT n.checkpoint_ns, p.parent_id, ARRAY(SELECT u FROM unnest(n.open) AS u WHERE u <> ALL (p.populated) ORDER BY u)
    FROM needed n
    CROSS JOIN LATERAL (
        SELECT c.parent_id, c.inline_channels || c.blob_channels AS populated
        FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(source)s AND c.checkpoint_ns = n.checkpoint_ns AND c.checkpoint_id = n.checkpoint_id
        OFFSET 0
    ) AS p
    WHERE p.parent_id IS NOT NULL AND NOT n.open <@ p.populated
), lineage (checkpoint_ns, checkpoint_id) AS (
    SELECT a.checkpoint_ns, a.checkpoint_id FROM (
        SELECT k.checkpoint_ns, k.checkpoint_id FROM kept k
        UNION
        SELECT n.checkpoint_ns, n.checkpoint_id FROM needed n
    ) AS a
    UNION
    SELECT l.checkpoint_ns, p.parent_id
    FROM lineage l
    CROSS JOIN LATERAL (
        SELECT c.parent_id FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(source)s AND c.checkpoint_ns = l.checkpoint_ns AND c.checkpoint_id = l.checkpoint_id
        AND c.format < 4
        OFFSET 0
    ) AS p
    WHERE EXISTS (
        SELECT FROM langgraph_checkpoint.writes w
        WHERE w.thread_id = %(source)s AND w.checkpoint_ns = l.checkpoint_ns AND w.checkpoint_id = p.parent_id
        AND w.channel = '__pregel_tasks'
        OFFSET 0
    )
), picked AS MATERIALIZED (
    SELECT l.checkpoint_ns, l.checkpoint_id, NOT EXISTS (
        SELECT FROM kept k WHERE k.checkpoint_ns = l.checkpoint_ns AND k.checkpoint_id = l.checkpoint_id
    ) AS is_past
    FROM lineage l
), rows AS MATERIALIZED (
    SELECT c.*, k.is_past
    FROM picked k
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(source)s AND c.checkpoint_ns = k.checkpoint_ns AND c.checkpoint_id = k.checkpoint_id
        LIMIT 1
    ) AS c
), checkpoints AS (
    INSERT INTO langgraph_checkpoint.checkpoints (
        thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden, doomed,
        inline_channels, delta_channels, blob_channels, blob_versions,
        checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter, tenant
    )
    SELECT
        %(target)s, r.checkpoint_ns, r.checkpoint_id, CASE
            WHEN r.hidden OR EXISTS (
                SELECT FROM rows o WHERE o.checkpoint_ns = r.checkpoint_ns AND o.checkpoint_id = r.parent_id
            ) OR (r.is_past AND EXISTS (
                SELECT FROM langgraph_checkpoint.checkpoints o
                WHERE o.thread_id = %(source)s AND o.checkpoint_ns = r.checkpoint_ns AND o.checkpoint_id = r.parent_id
            )) THEN r.parent_id
        END, r.root_id, r.run_id, r.format, r.is_past, r.is_past,
        r.inline_channels, r.delta_channels, r.blob_channels, r.blob_versions, r.checkpoint_type, r.checkpoint,
        CASE WHEN r.checkpoint_ns = '' AND NOT r.is_past THEN %(metadata_type)s ELSE r.metadata_type END,
        CASE WHEN r.checkpoint_ns = '' AND NOT r.is_past THEN %(metadata)b ELSE r.metadata END,
        CASE
            WHEN r.checkpoint_ns = '' AND NOT r.is_past THEN %(metadata_filter)s::jsonb
            WHEN r.metadata_filter ->> 'thread_id' = %(source_json)s
            THEN jsonb_set(r.metadata_filter, '{thread_id}', to_jsonb(%(target_json)s::text))
            ELSE r.metadata_filter
        END,
        %(tenant)s
    FROM rows r
), named AS MATERIALIZED (
    SELECT DISTINCT r.checkpoint_ns, u.channel, u.version
    FROM rows r CROSS JOIN LATERAL unnest(r.blob_channels, r.blob_versions) AS u (channel, version)
), whole AS MATERIALIZED (
    SELECT n.checkpoint_ns, n.channel, n.version, b.type, b.value, b.parts
    FROM named n
    CROSS JOIN LATERAL (
        SELECT b.type, b.value, b.parts FROM langgraph_checkpoint.blobs b
        WHERE b.thread_id = %(source)s AND b.checkpoint_ns = n.checkpoint_ns
        AND b.channel = n.channel AND b.version = n.version
        LIMIT 1
    ) AS b
), blobs AS (
    INSERT INTO langgraph_checkpoint.blobs (thread_id, checkpoint_ns, channel, version, type, value, parts)
    SELECT %(target)s, w.checkpoint_ns, w.channel, w.version, w.type, w.value, w.parts FROM whole w
    UNION ALL
    SELECT %(target)s, p.checkpoint_ns, p.channel, p.name, b.type, b.value, NULL
    FROM (
        SELECT DISTINCT w.checkpoint_ns, w.channel, n.name
        FROM whole w CROSS JOIN LATERAL json_array_elements_text(w.parts::json) AS n (name)
    ) AS p
    CROSS JOIN LATERAL (
        SELECT b.type, b.value FROM langgraph_checkpoint.blobs b
        WHERE b.thread_id = %(source)s AND b.checkpoint_ns = p.checkpoint_ns
        AND b.channel = p.channel AND b.version = p.name
        LIMIT 1
    ) AS b
    ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING
), writes AS (
    INSERT INTO langgraph_checkpoint.writes (
        thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value
    )
    SELECT %(target)s, w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx, w.task_path, w.run_id, w.channel, w.type,
        w.value
    FROM rows k
    CROSS JOIN point p
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.writes w
        WHERE w.thread_id = %(source)s AND w.checkpoint_ns = k.checkpoint_ns AND w.checkpoint_id = k.checkpoint_id
        OFFSET 0
    ) AS w
    WHERE k.is_past OR p.is_open
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO NOTHING
)
SELECT reason FROM own
UNION ALL
SELECT 'gone' WHERE NOT EXISTS (SELECT FROM point) AND NOT EXISTS (SELECT FROM own)

-- name: select_interrupts
-- Steps from thread to thread among those with a stored interrupt, `limit` threads in each range; `more` says where to
-- go on. For each thread: the newest checkpoint of the root graph, if it has an interrupt, and its writes. Only
-- interrupts come with their values.
WITH RECURSIVE found (thread_id, top, number) AS (
    SELECT n.thread_id, r.top COLLATE "C", 1
    FROM unnest(%(bottoms)s::text[], %(tops)s::text[]) AS r (bottom, top)
    CROSS JOIN LATERAL (
        SELECT w.thread_id FROM langgraph_checkpoint.writes w
        WHERE w.channel = '__interrupt__'
        AND w.thread_id >= r.bottom COLLATE "C" AND w.thread_id < r.top COLLATE "C"
        ORDER BY w.thread_id LIMIT 1
    ) AS n
    UNION ALL
    SELECT n.thread_id, f.top, f.number + 1
    FROM found f
    CROSS JOIN LATERAL (
        SELECT w.thread_id FROM langgraph_checkpoint.writes w
        WHERE w.channel = '__interrupt__' AND w.thread_id > f.thread_id AND w.thread_id < f.top
        ORDER BY w.thread_id LIMIT 1
    ) AS n
    WHERE f.number < %(limit)s
), heads AS MATERIALIZED (
    SELECT f.thread_id, c.checkpoint_id, c.checkpoint_type, c.checkpoint
    FROM found f
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = f.thread_id AND c.checkpoint_ns = '' AND NOT c.hidden
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) AS c
    WHERE EXISTS (
        SELECT FROM langgraph_checkpoint.writes w
        WHERE w.thread_id = f.thread_id AND w.checkpoint_ns = '' AND w.checkpoint_id = c.checkpoint_id
        AND w.channel || '' = '__interrupt__'
        OFFSET 0
    )
)
SELECT
    'checkpoint' AS kind, thread_id, checkpoint_id, NULL AS channel, NULL AS task_id, NULL AS task_path,
    NULL::integer AS idx, checkpoint_type AS type, checkpoint AS value
FROM heads
UNION ALL
SELECT
    'write', h.thread_id, h.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type,
    CASE w.channel WHEN '__interrupt__' THEN w.value END
FROM heads h
CROSS JOIN LATERAL (
    SELECT * FROM langgraph_checkpoint.writes w
    WHERE w.thread_id = h.thread_id AND w.checkpoint_ns = '' AND w.checkpoint_id = h.checkpoint_id
    OFFSET 0
) AS w
UNION ALL
SELECT 'more', thread_id, top, NULL, NULL, NULL, NULL, NULL, NULL FROM found WHERE number = %(limit)s

-- name: select_write_places
SELECT task_path, task_id, idx FROM langgraph_checkpoint.writes
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s

-- The catalog_ blocks read what the database has, one line for each thing. The lines are those of `shipped.txt` in the
-- migrations if nothing was changed. The schema's name is left out.

-- name: catalog_lines
WITH ours AS MATERIALIZED (
    SELECT c.oid, c.relname, c.relrowsecurity
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relkind IN ('r', 'p') AND NOT c.relispartition
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
    SELECT 'index ' || replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ') || CASE WHEN i.indisvalid THEN '' ELSE ' (not valid)' END
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
)
SELECT replace(line, quote_ident(%(schema)s) || '.', '') FROM lines ORDER BY 1

-- name: catalog_privileges
-- differs: SQLite has no privileges except those of the file.
SELECT c.relname::text, p.name, has_table_privilege(c.oid, p.name)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) AS p (name)
WHERE n.nspname = %(schema)s AND c.relkind IN ('r', 'p') AND NOT c.relispartition
UNION ALL
SELECT n.nspname::text, 'USAGE', has_schema_privilege(n.oid, 'USAGE')
FROM pg_catalog.pg_namespace n WHERE n.nspname = %(schema)s

-- The sizes_ blocks count rows and bytes. They do not read values, only their lengths.

-- name: sizes_of_threads
SELECT t.thread_id, c.visible, c.hidden, w.rows, b.rows, c.bytes + w.bytes + b.bytes
FROM unnest(%(thread_ids)s::text[]) AS t (thread_id)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE NOT k.hidden) AS visible, count(*) FILTER (WHERE k.hidden) AS hidden,
        coalesce(sum(octet_length(k.checkpoint) + octet_length(k.metadata)), 0)::bigint AS bytes
    FROM langgraph_checkpoint.checkpoints k WHERE k.thread_id = t.thread_id COLLATE "C"
) AS c
CROSS JOIN LATERAL (
    SELECT count(*) AS rows, coalesce(sum(octet_length(k.value)), 0)::bigint AS bytes
    FROM langgraph_checkpoint.writes k WHERE k.thread_id = t.thread_id COLLATE "C"
) AS w
CROSS JOIN LATERAL (
    SELECT count(*) AS rows, coalesce(sum(octet_length(k.value)), 0)::bigint AS bytes
    FROM langgraph_checkpoint.blobs k WHERE k.thread_id = t.thread_id COLLATE "C"
) AS b

-- name: sizes_of_namespaces
SELECT p.checkpoint_ns, sum(p.checkpoints)::bigint, sum(p.rows)::bigint, sum(p.bytes)::bigint, min(p.first), max(p.last)
FROM (
    SELECT checkpoint_ns, count(*) FILTER (WHERE NOT hidden) AS checkpoints, count(*) AS rows,
        sum(octet_length(checkpoint) + octet_length(metadata)) AS bytes,
        min(checkpoint_id) AS first, max(checkpoint_id) AS last
    FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s GROUP BY checkpoint_ns
    UNION ALL
    SELECT checkpoint_ns, 0, count(*), sum(octet_length(value)), NULL, NULL
    FROM langgraph_checkpoint.blobs WHERE thread_id = %(thread_id)s GROUP BY checkpoint_ns
    UNION ALL
    SELECT checkpoint_ns, 0, count(*), sum(octet_length(value)), NULL, NULL
    FROM langgraph_checkpoint.writes WHERE thread_id = %(thread_id)s GROUP BY checkpoint_ns
) AS p
GROUP BY p.checkpoint_ns ORDER BY 4 DESC, 1 LIMIT %(limit)s

-- name: sizes_of_channels
SELECT p.checkpoint_ns, p.channel, sum(p.versions)::bigint, sum(p.parts)::bigint, sum(p.writes)::bigint, sum(p.bytes)::bigint
FROM (
    SELECT checkpoint_ns, channel, count(*) FILTER (WHERE NOT starts_with(version, '#/')) AS versions,
        count(*) FILTER (WHERE starts_with(version, '#/')) AS parts, 0 AS writes, sum(octet_length(value)) AS bytes
    FROM langgraph_checkpoint.blobs WHERE thread_id = %(thread_id)s GROUP BY checkpoint_ns, channel
    UNION ALL
    SELECT checkpoint_ns, channel, 0, 0, count(*), sum(octet_length(value))
    FROM langgraph_checkpoint.writes WHERE thread_id = %(thread_id)s GROUP BY checkpoint_ns, channel
) AS p
GROUP BY p.checkpoint_ns, p.channel ORDER BY 6 DESC, 1, 2 LIMIT %(limit)s

-- name: sizes_of_tables
SELECT 'checkpoints', count(*), coalesce(sum(octet_length(checkpoint) + octet_length(metadata)), 0)::bigint
FROM langgraph_checkpoint.checkpoints WHERE tenant = %(tenant)s
UNION ALL
SELECT 'blobs', count(*), coalesce(sum(octet_length(value)), 0)::bigint
FROM langgraph_checkpoint.blobs WHERE langgraph_checkpoint.tenant_of(thread_id) = %(tenant)s
UNION ALL
SELECT 'writes', count(*), coalesce(sum(octet_length(value)), 0)::bigint
FROM langgraph_checkpoint.writes WHERE langgraph_checkpoint.tenant_of(thread_id) = %(tenant)s

-- name: sizes_of_largest
SELECT p.thread_id, sum(p.checkpoints)::bigint, sum(p.rows)::bigint, sum(p.bytes)::bigint, min(p.first), max(p.last)
FROM (
    SELECT thread_id, count(*) FILTER (WHERE NOT hidden) AS checkpoints, count(*) AS rows,
        sum(octet_length(checkpoint) + octet_length(metadata)) AS bytes,
        min(checkpoint_id) AS first, max(checkpoint_id) AS last
    FROM langgraph_checkpoint.checkpoints WHERE tenant = %(tenant)s GROUP BY thread_id
    UNION ALL
    SELECT thread_id, 0, count(*), sum(octet_length(value)), NULL, NULL
    FROM langgraph_checkpoint.blobs WHERE langgraph_checkpoint.tenant_of(thread_id) = %(tenant)s GROUP BY thread_id
    UNION ALL
    SELECT thread_id, 0, count(*), sum(octet_length(value)), NULL, NULL
    FROM langgraph_checkpoint.writes WHERE langgraph_checkpoint.tenant_of(thread_id) = %(tenant)s GROUP BY thread_id
) AS p
GROUP BY p.thread_id ORDER BY 4 DESC, 1 LIMIT %(limit)s

-- name: sizes_of_all_channels
SELECT p.channel, sum(p.versions)::bigint, sum(p.parts)::bigint, sum(p.writes)::bigint, sum(p.bytes)::bigint
FROM (
    SELECT channel, count(*) FILTER (WHERE NOT starts_with(version, '#/')) AS versions,
        count(*) FILTER (WHERE starts_with(version, '#/')) AS parts, 0 AS writes, sum(octet_length(value)) AS bytes
    FROM langgraph_checkpoint.blobs WHERE langgraph_checkpoint.tenant_of(thread_id) = %(tenant)s GROUP BY channel
    UNION ALL
    SELECT channel, 0, 0, count(*), sum(octet_length(value))
    FROM langgraph_checkpoint.writes WHERE langgraph_checkpoint.tenant_of(thread_id) = %(tenant)s GROUP BY channel
) AS p
GROUP BY p.channel ORDER BY 5 DESC, 1 LIMIT %(limit)s

-- Each doctor_ block checks a page of one table. It returns a row for each problem, and a row `end` with the key of the
-- page's last row and the number of its rows.

-- name: doctor_checkpoints
WITH page AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, hidden, doomed, blob_channels, blob_versions
    FROM langgraph_checkpoint.checkpoints
    WHERE (thread_id, checkpoint_ns, checkpoint_id) > (%(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s)
    AND texteq(tenant, %(tenant)s)
    ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT %(limit)s
)
SELECT 'value gone', p.thread_id, p.checkpoint_ns, p.checkpoint_id, u.channel, u.version, NULL::bigint
FROM page p CROSS JOIN LATERAL unnest(p.blob_channels, p.blob_versions) AS u (channel, version)
WHERE NOT EXISTS (
    SELECT FROM langgraph_checkpoint.blobs b
    WHERE b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns AND b.channel = u.channel
    AND b.version = u.version
    OFFSET 0
)
UNION ALL
SELECT 'parent gone', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.parent_id, NULL, NULL
FROM page p
WHERE p.parent_id IS NOT NULL AND NOT p.hidden AND NOT EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns AND c.checkpoint_id = p.parent_id
    OFFSET 0
)
UNION ALL
SELECT 'id before its parent', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.parent_id, NULL, NULL
FROM page p WHERE p.parent_id > p.checkpoint_id
UNION ALL
SELECT 'half deleted', p.thread_id, p.checkpoint_ns, p.checkpoint_id, NULL, NULL, NULL FROM page p WHERE p.doomed
UNION ALL
(
    SELECT 'end', thread_id, checkpoint_ns, checkpoint_id, NULL, NULL, (SELECT count(*) FROM page)
    FROM page ORDER BY thread_id DESC, checkpoint_ns DESC, checkpoint_id DESC LIMIT 1
)

-- name: doctor_blobs
WITH page AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, channel, version, parts FROM langgraph_checkpoint.blobs
    WHERE (thread_id, checkpoint_ns, channel, version) > (%(thread_id)s, %(checkpoint_ns)s, %(channel)s, %(version)s)
    AND texteq(langgraph_checkpoint.tenant_of(thread_id), %(tenant)s)
    ORDER BY thread_id, checkpoint_ns, channel, version LIMIT %(limit)s
), named AS MATERIALIZED (
    SELECT DISTINCT n.* FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM page) AS p
    CROSS JOIN LATERAL (
        SELECT c.thread_id, c.checkpoint_ns, u.channel, u.version
        FROM langgraph_checkpoint.checkpoints c
        CROSS JOIN LATERAL unnest(c.blob_channels, c.blob_versions) AS u (channel, version)
        WHERE c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns
        OFFSET 0
    ) AS n
), named_parts AS MATERIALIZED (
    SELECT DISTINCT n.* FROM (
        SELECT DISTINCT thread_id, checkpoint_ns, channel FROM page WHERE starts_with(version, '#/')
    ) AS p
    CROSS JOIN LATERAL (
        SELECT b.thread_id, b.checkpoint_ns, b.channel, u.name COLLATE "C" AS version
        FROM langgraph_checkpoint.blobs b CROSS JOIN LATERAL jsonb_array_elements_text(b.parts::jsonb) AS u (name)
        WHERE b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns AND b.channel = p.channel
        OFFSET 0
    ) AS n
)
SELECT 'value of nobody', o.*, NULL::bigint FROM (
    SELECT thread_id, checkpoint_ns, channel, version, NULL::text FROM page WHERE NOT starts_with(version, '#/')
    EXCEPT
    SELECT thread_id, checkpoint_ns, channel, version, NULL FROM named
) AS o
UNION ALL
SELECT 'part of nobody', o.*, NULL FROM (
    SELECT thread_id, checkpoint_ns, channel, version, NULL::text FROM page WHERE starts_with(version, '#/')
    EXCEPT
    SELECT thread_id, checkpoint_ns, channel, version, NULL FROM named_parts
) AS o
UNION ALL
SELECT 'part gone', p.thread_id, p.checkpoint_ns, p.channel, p.version, u.name, NULL
FROM page p CROSS JOIN LATERAL jsonb_array_elements_text(p.parts::jsonb) AS u (name)
WHERE NOT EXISTS (
    SELECT FROM langgraph_checkpoint.blobs b
    WHERE b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns AND b.channel = p.channel
    AND b.version = u.name COLLATE "C"
    OFFSET 0
)
UNION ALL
(
    SELECT 'end', thread_id, checkpoint_ns, channel, version, NULL, (SELECT count(*) FROM page)
    FROM page ORDER BY thread_id DESC, checkpoint_ns DESC, channel DESC, version DESC LIMIT 1
)

-- name: doctor_writes
WITH page AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx FROM langgraph_checkpoint.writes
    WHERE (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
        > (%(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s, %(task_id)s, %(idx)s)
    AND texteq(langgraph_checkpoint.tenant_of(thread_id), %(tenant)s)
    ORDER BY thread_id, checkpoint_ns, checkpoint_id, task_id, idx LIMIT %(limit)s
)
SELECT 'write without a thread', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.task_id, NULL::text, p.idx::bigint
FROM page p
WHERE (SELECT min(c.checkpoint_ns) FROM langgraph_checkpoint.checkpoints c WHERE c.thread_id = p.thread_id) IS NULL
UNION ALL
(
    SELECT 'end', thread_id, checkpoint_ns, checkpoint_id, task_id, idx::text, (SELECT count(*) FROM page)
    FROM page ORDER BY thread_id DESC, checkpoint_ns DESC, checkpoint_id DESC, task_id DESC, page.idx DESC LIMIT 1
)

-- name: doctor_labels
WITH page AS MATERIALIZED (
    SELECT thread_id, name, checkpoint_ns, checkpoint_id FROM langgraph_checkpoint.labels
    WHERE (thread_id, name) > (%(thread_id)s, %(name)s) AND texteq(langgraph_checkpoint.tenant_of(thread_id), %(tenant)s)
    ORDER BY thread_id, name LIMIT %(limit)s
)
SELECT 'label of nothing', p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.name, NULL::text, NULL::bigint
FROM page p
WHERE NOT EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints c
    WHERE c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns AND c.checkpoint_id = p.checkpoint_id
    OFFSET 0
)
UNION ALL
(
    SELECT 'end', thread_id, name, NULL, NULL, NULL, (SELECT count(*) FROM page)
    FROM page ORDER BY thread_id DESC, name DESC LIMIT 1
)

-- name: doctor_bloat
-- differs: live rows, and dead rows, whose space VACUUM makes available again.
SELECT relname::text, n_live_tup, n_dead_tup FROM pg_catalog.pg_stat_all_tables
WHERE schemaname = %(schema)s ORDER BY 1

-- The repair_ blocks delete unused rows of a thread, in this order: values, chunks, labels.

-- name: repair_values
DELETE FROM langgraph_checkpoint.blobs b USING jsonb_array_elements(%(keys)s::jsonb) AS k (key)
WHERE b.thread_id = %(thread_id)s AND b.checkpoint_ns = (k.key ->> 0) COLLATE "C"
AND b.channel = (k.key ->> 1) COLLATE "C" AND b.version = (k.key ->> 2) COLLATE "C"
AND NOT starts_with(b.version, '#/')
AND NOT EXISTS (
    SELECT FROM langgraph_checkpoint.checkpoints c
    CROSS JOIN LATERAL unnest(c.blob_channels, c.blob_versions) AS u (channel, version)
    WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = b.checkpoint_ns
    AND u.channel = b.channel AND u.version = b.version
)
RETURNING b.version

-- name: repair_chunks
DELETE FROM langgraph_checkpoint.blobs b USING jsonb_array_elements(%(keys)s::jsonb) AS k (key)
WHERE b.thread_id = %(thread_id)s AND b.checkpoint_ns = (k.key ->> 0) COLLATE "C"
AND b.channel = (k.key ->> 1) COLLATE "C" AND b.version = (k.key ->> 2) COLLATE "C"
AND starts_with(b.version, '#/')
AND NOT EXISTS (
    SELECT FROM langgraph_checkpoint.blobs o
    CROSS JOIN LATERAL jsonb_array_elements_text(o.parts::jsonb) AS u (name)
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
