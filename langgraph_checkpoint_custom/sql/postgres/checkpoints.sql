-- Storing and reading checkpoints. Lists are arrays here, and JSON in sqlite/.

-- fragment: into_checkpoints
INSERT INTO langgraph_checkpoint.checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format,
    inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter, tenant
)

-- fragment: one_checkpoint
-- include: into_checkpoints
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %b, %s, %b, %s, %s)
-- include: replace_checkpoint

-- name: insert_checkpoint
-- A checkpoint that refers to no other rows. Parameters go by position.
-- include: one_checkpoint

-- fragment: arm_stored
-- differs: the first checkpoint of a thread and the row of the thread are one statement, of which several are a batch.
-- On SQLite, arm_thread follows. The row is looked up first, as there. A scalar subquery is never planned as a scan.
INSERT INTO langgraph_checkpoint.threads (thread_id, tenant) SELECT s.thread_id, s.tenant FROM stored s
WHERE (SELECT t.thread_id FROM langgraph_checkpoint.threads t WHERE t.thread_id = s.thread_id) IS NULL
ON CONFLICT (thread_id) DO NOTHING

-- name: insert_first_checkpoint
WITH stored AS (
    -- include: one_checkpoint
    RETURNING thread_id, tenant
)
-- include: arm_stored

-- name: insert_checkpoint_on_parent
-- insert_checkpoint for one whose parent has to exist and not to be hidden. A row says that it was stored. It is not if
-- a transaction holds the thread's lock alone. Otherwise the statement shares the lock, so that no deletion begins. One
-- that was committed since the statement began is seen because FOR SHARE reads the parent's row as it is now.
-- include: into_checkpoints
SELECT %s, %s, %s, %s, %s, %s, %s, %s::text[], %s::text[], %s::text[], %s::text[], %s, %b, %s, %b, %s::jsonb, %s
FROM (
    SELECT thread_id FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s AND NOT hidden
    FOR SHARE
) AS parent
WHERE pg_try_advisory_xact_lock_shared(hashtextextended(parent.thread_id, hashtextextended(%s, 0)))
-- include: replace_checkpoint
RETURNING true

-- fragment: many_checkpoints
-- The lists of each checkpoint are array literals.
-- include: into_checkpoints
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
-- include: replace_checkpoint

-- name: insert_checkpoints
-- insert_checkpoint for a batch.
-- include: many_checkpoints

-- name: insert_first_checkpoints
-- insert_first_checkpoint for a batch.
WITH stored AS (
    -- include: many_checkpoints
    RETURNING thread_id, tenant
)
-- include: arm_stored

-- fragment: with_problems
WITH refs AS MATERIALIZED (
    SELECT r.channel, r.version, r.required, stored.channel IS NOT NULL AS found
    FROM unnest(
        %(ref_channels)s::text[], %(ref_versions)s::text[], %(ref_begins)s::text[], %(ref_required)s::boolean[]
    ) AS r (channel, version, begins, required)
    LEFT JOIN LATERAL (
        SELECT b.channel FROM langgraph_checkpoint.blobs b
        WHERE b.thread_id = %(thread_id)s AND b.checkpoint_ns = %(checkpoint_ns)s
        AND b.channel = r.channel AND b.version = r.version
        AND (r.begins = '' OR starts_with(b.chunks, r.begins))
        LIMIT 1
    ) AS stored ON true
), problems AS MATERIALIZED (
    SELECT 'value' AS problem, channel AS name FROM refs WHERE required AND NOT found
    UNION ALL
    -- include: problems_without_blobs
)

-- fragment: into_blobs
INSERT INTO langgraph_checkpoint.blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks)

-- fragment: insert_blobs
-- include: into_blobs
SELECT %(thread_id)s, %(checkpoint_ns)s, n.channel, n.version, n.type, n.value, n.chunks
FROM unnest(
    %(channels)s::text[], %(versions)s::text[], %(types)s::text[], %(values)b::bytea[], %(chunks)s::text[]
) AS n (channel, version, type, value, chunks)

-- name: insert_checkpoint_with_blobs
-- insert_checkpoint_on_parent for one that stores blobs and refers only to those of its parent, which exist as long as
-- the parent's row names them. Without the thread's lock, the row must not be locked: in a caller's transaction it would
-- stay locked, and the deletion that holds the thread's lock would wait for it.
WITH locked AS MATERIALIZED (
    SELECT thread_id, checkpoint_ns, checkpoint_id, blob_channels, blob_versions FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s AND NOT hidden
    AND pg_try_advisory_xact_lock_shared(hashtextextended(thread_id, hashtextextended(%s, 0)))
    FOR SHARE
), refs AS MATERIALIZED (
    SELECT * FROM unnest(%s::text[], %s::text[], %s::text[]) AS r (channel, version, begins)
), parent AS MATERIALIZED (
    SELECT p.thread_id, p.checkpoint_ns, p.checkpoint_id FROM locked p
    WHERE NOT EXISTS (
        SELECT channel, version FROM refs
        EXCEPT SELECT * FROM unnest(p.blob_channels, p.blob_versions)
    )
    AND NOT EXISTS (
        SELECT FROM refs r WHERE r.begins <> '' AND (
            SELECT starts_with(b.chunks, r.begins) FROM langgraph_checkpoint.blobs b
            WHERE b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns
            AND b.channel = r.channel AND b.version = r.version
        ) IS NOT TRUE
    )
), stored_blobs AS (
    -- include: into_blobs
    SELECT p.thread_id, p.checkpoint_ns, n.channel, n.version, n.type, n.value, n.chunks
    FROM parent p CROSS JOIN unnest(%s::text[], %s::text[], %s::text[], %b::bytea[], %s::text[])
        AS n (channel, version, type, value, chunks)
    ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING
)
-- include: into_checkpoints
SELECT
    p.thread_id, p.checkpoint_ns, %s, p.checkpoint_id, %s, %s, %s,
    %s::text[], %s::text[], %s::text[], %s::text[], %s, %b, %s, %b, %s::jsonb, %s
FROM parent p
-- include: replace_checkpoint
RETURNING true

-- name: put_checkpoint
-- Finds the problems and, if there are none, stores the checkpoint and its blobs in one round trip. The transaction holds
-- or shares the thread's lock, so the rows that the checkpoint refers to are not deleted.
-- include: with_problems
, stored_blobs AS (
    -- include: insert_blobs
    WHERE NOT EXISTS (SELECT FROM problems)
    ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING
), stored_checkpoint AS (
    -- include: into_checkpoints
    SELECT
        %(thread_id)s, %(checkpoint_ns)s, %(checkpoint_id)s, %(parent_id)s, %(root_id)s, %(run_id)s, %(format)s,
        %(inline_channels)s::text[], %(delta_channels)s::text[],
        %(blob_channels)s::text[] || ARRAY(SELECT channel FROM refs WHERE found AND NOT required),
        %(blob_versions)s::text[] || ARRAY(SELECT version FROM refs WHERE found AND NOT required),
        %(checkpoint_type)s, %(checkpoint)b, %(metadata_type)s, %(metadata)b, %(metadata_filter)s::jsonb, %(tenant)s
    WHERE NOT EXISTS (SELECT FROM problems)
    -- include: replace_checkpoint
)
SELECT problem, name FROM problems

-- name: insert_writes
-- Many writes, of one call or of a batch, or some with a claim. Each column is an array.
INSERT INTO langgraph_checkpoint.writes AS w (
    thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, run_id, idx, channel, type, value
)
SELECT * FROM unnest(
    %(thread_ids)s::text[], %(namespaces)s::text[], %(checkpoint_ids)s::text[], %(task_ids)s::text[],
    %(task_paths)s::text[], %(run_ids)s::text[], %(idxs)s::integer[], %(channels)s::text[], %(types)s::text[],
    %(values)b::bytea[]
)
WHERE %(claim)s::text IS NULL OR EXISTS (
    SELECT FROM langgraph_checkpoint.claims WHERE thread_id = %(thread_id)s AND token = %(claim)s
)
-- include: on_existing_write

-- fragment: from_checkpoints
SELECT * FROM langgraph_checkpoint.checkpoints

-- fragment: with_page_of_thread
-- The rows between two ids in each of some namespaces.
WITH page AS MATERIALIZED (
    SELECT c.*
    FROM unnest(%(namespaces)s::text[], %(lows)s::text[], %(highs)s::text[]) AS r (checkpoint_ns, low, high)
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = %(thread_id)s AND c.checkpoint_ns = r.checkpoint_ns
        AND c.checkpoint_id BETWEEN r.low AND r.high AND NOT c.hidden
        -- include: matches_filter
        ORDER BY c.checkpoint_id DESC LIMIT %(limit)s
    ) AS c
    ORDER BY c.checkpoint_id DESC, c.checkpoint_ns DESC LIMIT %(limit)s
)

-- fragment: keys_of_thread
-- OFFSET 0: if statistics are wrong, a generic plan would otherwise find the ids in the index of all threads.
SELECT checkpoint_id, checkpoint_ns FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s OFFSET 0

-- name: select_matching_keys
-- The keys of a thread that match a filter. Reads all its rows, in the order of the table: after read_table_in_order, a
-- bitmap finds them. By index, each page of the table would be read once for each namespace in it.
SELECT checkpoint_id, checkpoint_ns FROM (
    SELECT checkpoint_id, checkpoint_ns, hidden, metadata_filter FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s OFFSET 0
) AS c
WHERE NOT hidden AND checkpoint_id >= %(floor)s AND (checkpoint_id, checkpoint_ns) < (%(before)s, %(ns_below)s)
-- include: matches_filter
ORDER BY checkpoint_id DESC, checkpoint_ns DESC LIMIT %(limit)s

-- fragment: settings_of_caller
-- What is kept, or else what is set: so it stays, also if a statement is sent twice.
FROM (
    SELECT
        coalesce(nullif(current_setting('langgraph_checkpoint_custom.indexscan', true), ''),
            current_setting('enable_indexscan')) AS indexscan,
        coalesce(nullif(current_setting('langgraph_checkpoint_custom.seqscan', true), ''),
            current_setting('enable_seqscan')) AS seqscan
    OFFSET 0
) AS own

-- name: read_table_in_order
-- SQLite has no such settings. The transaction may be the caller's and go on, so its own ones are kept meanwhile.
SELECT
    set_config('langgraph_checkpoint_custom.indexscan', indexscan, true),
    set_config('langgraph_checkpoint_custom.seqscan', seqscan, true),
    set_config('enable_indexscan', 'off', true),
    set_config('enable_seqscan', 'off', true)
-- include: settings_of_caller

-- name: read_as_before
-- Gives the transaction its settings back.
SELECT
    set_config('enable_indexscan', indexscan, true),
    set_config('enable_seqscan', seqscan, true),
    set_config('langgraph_checkpoint_custom.indexscan', '', true),
    set_config('langgraph_checkpoint_custom.seqscan', '', true)
-- include: settings_of_caller

-- name: rows_of_latest
-- differs: one statement reads the blobs and their chunks, too, so that there is one round trip.
-- include: columns_of_one
FROM (
    -- include: row_of_one
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
) AS p
-- include: rows_of_one

-- name: rows_of_exact
-- include: columns_of_one
FROM (
    -- include: row_of_one
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s
) AS p
-- include: rows_of_one

-- name: rows_of_each_latest
-- rows_of_latest for a batch.
WITH page AS MATERIALIZED (
    SELECT c.* FROM unnest(%(thread_ids)s::text[], %(namespaces)s::text[]) AS k (thread_id, checkpoint_ns)
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = k.thread_id AND c.checkpoint_ns = k.checkpoint_ns AND NOT c.hidden
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) AS c
)
-- include: rows_of_page

-- name: rows_of_each_exact
-- rows_of_exact for a batch.
WITH page AS MATERIALIZED (
    SELECT c.* FROM unnest(%(thread_ids)s::text[], %(namespaces)s::text[], %(checkpoint_ids)s::text[])
        AS k (thread_id, checkpoint_ns, checkpoint_id)
    CROSS JOIN LATERAL (
        SELECT * FROM langgraph_checkpoint.checkpoints c
        WHERE c.thread_id = k.thread_id AND c.checkpoint_ns = k.checkpoint_ns AND c.checkpoint_id = k.checkpoint_id
        LIMIT 1
    ) AS c
)
-- include: rows_of_page

-- fragment: thread_of_page
-- The thread of a row in `p`: in a statement about many threads, it is the row's.
p.thread_id

-- fragment: blob_of_page
-- Looks up a blob by the key in `p`.
CROSS JOIN LATERAL (
    SELECT b.type, b.value, b.chunks FROM langgraph_checkpoint.blobs b
    WHERE b.checkpoint_ns = p.checkpoint_ns AND b.channel = p.channel AND b.version = p.version AND b.thread_id =
        -- include: thread_of_page
    LIMIT 1
) AS b

-- fragment: heads_and_values
SELECT
    'checkpoint' AS kind, thread_id, checkpoint_ns, checkpoint_id, parent_id AS name, NULL AS key, NULL AS path,
    format AS idx, checkpoint_type AS type, checkpoint AS value, metadata_type AS type2, metadata AS value2,
    nullif(blob_channels, '{}') AS channels, blob_versions AS versions
FROM page
UNION ALL
SELECT
    'blob', thread_id, checkpoint_ns, NULL, channel, version, chunks, NULL, type, value, NULL, NULL, NULL, NULL
FROM found

-- fragment: row_of_one
SELECT
    thread_id, checkpoint_ns, checkpoint_id, parent_id, format, checkpoint_type, checkpoint, metadata_type, metadata,
    blob_channels, blob_versions
FROM langgraph_checkpoint.checkpoints

-- fragment: columns_of_one
SELECT
    o.kind, p.thread_id, p.checkpoint_ns, p.checkpoint_id, o.name, o.key, o.path, o.idx, o.type, o.value,
    CASE WHEN o.kind = 'checkpoint' THEN p.metadata_type END, CASE WHEN o.kind = 'checkpoint' THEN p.metadata END,
    CASE WHEN o.kind = 'checkpoint' THEN nullif(p.blob_channels, '{}') END,
    CASE WHEN o.kind = 'checkpoint' THEN p.blob_versions END

-- fragment: rows_of_one
-- The checkpoint comes first. For a small one, the server spends most of its time on starting the executor: for each
-- node of the plan, and for each of its columns. With those of rows_of_page, it has 1.2 times as much to do.
CROSS JOIN LATERAL (
    SELECT
        'checkpoint' AS kind, p.parent_id AS name, NULL AS key, NULL AS path, p.format AS idx,
        p.checkpoint_type AS type, p.checkpoint AS value
    UNION ALL
    SELECT 'blob', u.channel, f.version, f.chunks, NULL, f.type, f.value
    FROM unnest(p.blob_channels, p.blob_versions) AS u (channel, version)
    CROSS JOIN LATERAL (
        SELECT b.type, b.value, b.chunks FROM langgraph_checkpoint.blobs b
        WHERE b.checkpoint_ns = p.checkpoint_ns AND b.channel = u.channel AND b.version = u.version AND b.thread_id =
            -- include: thread_of_page
        LIMIT 1
    ) AS b
    CROSS JOIN LATERAL (
        SELECT u.version, b.chunks, b.type, b.value
        UNION ALL
        -- Equal chunks have one name, which may occur twice here. Removing duplicates costs more than the rest.
        SELECT n.name, NULL, c.type, c.value
        FROM json_array_elements_text(b.chunks::json) AS n (name)
        CROSS JOIN LATERAL (
            SELECT c.type, c.value FROM langgraph_checkpoint.blobs c
            WHERE c.checkpoint_ns = p.checkpoint_ns AND c.channel = u.channel AND c.version = n.name AND c.thread_id =
                -- include: thread_of_page
            LIMIT 1
        ) AS c
    ) AS f (version, chunks, type, value)
    UNION ALL
    SELECT 'write', w.channel, w.task_id, w.task_path, w.idx, w.type, w.value
    FROM langgraph_checkpoint.writes w
    WHERE w.checkpoint_ns = p.checkpoint_ns AND w.checkpoint_id = p.checkpoint_id AND w.thread_id =
        -- include: thread_of_page
    UNION ALL
    -- The pending sends of a checkpoint older than format 4 are writes of its parent. With NULL, no index is read.
    SELECT 'send', w.channel, w.task_id, w.task_path, w.idx, w.type, w.value
    FROM langgraph_checkpoint.writes w
    WHERE w.checkpoint_ns = p.checkpoint_ns AND w.checkpoint_id = CASE WHEN p.format < 4 THEN p.parent_id END
    AND w.channel = '__pregel_tasks' AND w.thread_id =
        -- include: thread_of_page
) AS o

-- fragment: rows_of_page
, found AS MATERIALIZED (
    SELECT p.*, b.*
    FROM (
        SELECT DISTINCT p.thread_id, p.checkpoint_ns, u.channel, u.version
        FROM page p CROSS JOIN LATERAL unnest(p.blob_channels, p.blob_versions) AS u (channel, version)
    ) AS p
    -- include: blob_of_page
)
, named AS NOT MATERIALIZED (
    SELECT DISTINCT f.thread_id, f.checkpoint_ns, f.channel, n.name AS version
    FROM found f CROSS JOIN LATERAL json_array_elements_text(f.chunks::json) AS n (name)
)
-- include: heads_and_values
UNION ALL
SELECT
    'blob', p.thread_id, p.checkpoint_ns, NULL, p.channel, p.version, NULL, NULL,
    b.type, b.value, NULL, NULL, NULL, NULL
FROM named p
-- include: blob_of_page
UNION ALL
SELECT
    'write', p.thread_id, p.checkpoint_ns, p.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value,
    NULL, NULL, NULL, NULL
FROM page p
CROSS JOIN LATERAL (
    SELECT * FROM langgraph_checkpoint.writes w
    WHERE w.checkpoint_ns = p.checkpoint_ns AND w.checkpoint_id = p.checkpoint_id AND w.thread_id =
        -- include: thread_of_page
    OFFSET 0
) AS w
UNION ALL
-- The pending sends of a checkpoint older than format 4 are writes of its parent.
SELECT
    'send', p.thread_id, p.checkpoint_ns, p.checkpoint_id, w.channel, w.task_id, w.task_path, w.idx, w.type, w.value,
    NULL, NULL, NULL, NULL
FROM page p
CROSS JOIN LATERAL (
    SELECT * FROM langgraph_checkpoint.writes w
    WHERE w.checkpoint_ns = p.checkpoint_ns AND w.checkpoint_id = p.parent_id AND w.channel = '__pregel_tasks'
    AND w.thread_id =
        -- include: thread_of_page
    OFFSET 0
) AS w
WHERE p.format < 4

-- fragment: records_of_page
-- The columns of a `CheckpointRecord`.
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_type, metadata FROM page
