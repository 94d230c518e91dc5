-- Storing and reading checkpoints, their values and writes.

-- fragment: replace_checkpoint
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO UPDATE SET
    parent_id = excluded.parent_id, root_id = excluded.root_id, run_id = excluded.run_id,
    format = excluded.format, hidden = false, inline_channels = excluded.inline_channels,
    delta_channels = excluded.delta_channels, blob_channels = excluded.blob_channels,
    blob_versions = excluded.blob_versions, checkpoint_type = excluded.checkpoint_type,
    checkpoint = excluded.checkpoint, metadata_type = excluded.metadata_type, metadata = excluded.metadata,
    metadata_filter = excluded.metadata_filter

-- fragment: problems_without_blobs
-- Why a checkpoint cannot be stored, apart from missing blobs. A checkpoint without a parent begins a namespace, or its
-- parent was deleted with all others.
SELECT 'claim' AS problem, NULL AS name WHERE CAST(%(claim)s AS text) IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM langgraph_checkpoint.claims WHERE thread_id = %(thread_id)s AND token = %(claim)s
)
UNION ALL
SELECT 'parent', NULL WHERE %(needs_parent)s AND NOT EXISTS (
    SELECT 1 FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(parent_id)s
) AND (
    SELECT checkpoint_id FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id <> %(checkpoint_id)s
    ORDER BY checkpoint_id DESC LIMIT 1
) IS NOT NULL
UNION ALL
SELECT 'hidden parent', NULL FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(parent_id)s
AND hidden AND %(needs_whole_parent)s
UNION ALL
SELECT 'newer', newest.checkpoint_id FROM (
    SELECT checkpoint_id FROM langgraph_checkpoint.checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id <> %(checkpoint_id)s
    AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
) AS newest
WHERE %(only_newest)s AND coalesce(newest.checkpoint_id <> %(parent_id)s, true)

-- fragment: on_existing_write
-- Of regular writes with one key the first one remains, of special ones (`idx` < 0) the last.
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE
SET task_path = excluded.task_path, channel = excluded.channel, type = excluded.type, value = excluded.value,
    run_id = CASE WHEN w.type = excluded.type AND w.value = excluded.value THEN w.run_id ELSE excluded.run_id END
WHERE excluded.idx < 0

-- name: insert_few_writes
-- Parameters go by position.
INSERT INTO langgraph_checkpoint.writes AS w (
    thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, run_id, idx, channel, type, value
)
VALUES
    -- repeat
    (%s, %s, %s, %s, %s, %s, %s, %s, %s, %b)
-- include: on_existing_write

-- name: select_blobs_of
SELECT blob_channels, blob_versions FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s

-- name: select_newest_id
-- include: newest_of_namespace

-- A read is a page of checkpoints and, of these, the checkpoints themselves, their blobs, chunks, writes and sends.

-- fragment: with_page_of_namespace
WITH page AS MATERIALIZED (
    -- include: from_checkpoints
    WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s
    AND checkpoint_id >= %(floor)s AND checkpoint_id < %(before)s AND NOT hidden
    -- include: matches_filter
    ORDER BY checkpoint_id DESC LIMIT %(limit)s
)

-- name: page_unfiltered
-- page_of_namespace without a filter. Parameters go by position.
WITH page AS MATERIALIZED (
    -- include: from_checkpoints
    WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id >= %s AND checkpoint_id < %s AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT %s
)
-- include: rows_of_page

-- fragment: with_page_of_store
WITH page AS MATERIALIZED (
    -- include: from_checkpoints
    WHERE
    -- include: of_tenant
    AND checkpoint_id >= %(floor)s AND checkpoint_id <= %(before)s AND (NOT hidden OR %(with_hidden)s)
    AND (thread_id < %(kinds)s OR thread_id >= %(above_kinds)s)
    AND (checkpoint_id, thread_id, checkpoint_ns) < (%(before)s, %(thread_below)s, %(ns_below)s)
    -- include: matches_filter
    ORDER BY checkpoint_id DESC, thread_id DESC, checkpoint_ns DESC LIMIT %(limit)s
)

-- name: page_of_namespace
-- include: with_page_of_namespace
-- include: rows_of_page

-- name: page_of_thread
-- include: with_page_of_thread
-- include: rows_of_page

-- name: page_of_store
-- include: with_page_of_store
-- include: rows_of_page

-- name: records_of_namespace
-- include: with_page_of_namespace
-- include: records_of_page

-- name: records_of_thread
-- include: with_page_of_thread
-- include: records_of_page

-- name: records_of_store
-- include: with_page_of_store
-- include: records_of_page

-- What a page is made of, where that is not in the order of an index. The statements about keys read the index only.

-- name: select_keys
SELECT checkpoint_id, checkpoint_ns FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s
ORDER BY checkpoint_ns, checkpoint_id LIMIT %(limit)s

-- name: select_namespaces
-- include: with_spaces
SELECT checkpoint_ns FROM spaces WHERE checkpoint_ns IS NOT NULL LIMIT %(limit)s

-- name: newest_keys_of_namespace
SELECT checkpoint_id, checkpoint_ns FROM langgraph_checkpoint.checkpoints
WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s
AND checkpoint_id >= %(floor)s AND checkpoint_id < %(before)s
ORDER BY checkpoint_id DESC LIMIT %(limit)s

-- name: newest_keys_of_thread
-- Reads all keys of the thread.
SELECT checkpoint_id, checkpoint_ns FROM (
    -- include: keys_of_thread
) AS k
WHERE checkpoint_id >= %(floor)s AND (checkpoint_id, checkpoint_ns) < (%(before)s, %(ns_below)s)
ORDER BY checkpoint_id DESC, checkpoint_ns DESC LIMIT %(limit)s

-- name: select_id_below
SELECT checkpoint_id FROM langgraph_checkpoint.checkpoints
WHERE tenant = %(tenant)s AND checkpoint_id < %(before)s
ORDER BY checkpoint_id DESC LIMIT 1 OFFSET %(reach)s
