-- Sizes and verification.
--
-- The doctor_ statements read a page from all servers first. What the page refers to and does not find is the page
-- EXCEPT what a join by thread finds.

-- fragment: with_sizes
-- differs: joins with the ranges, and no lateral subquery.
WITH sizes AS (
    SELECT c.thread_id, c.checkpoint_ns, NULL AS channel, CASE WHEN hidden THEN 'hidden' ELSE 'checkpoint' END AS kind,
        c.checkpoint_id, octet_length(c.checkpoint) + octet_length(c.metadata) AS bytes
    FROM unnest(%(bottoms)s::text[], %(tops)s::text[]) AS r (bottom, top)
    JOIN langgraph_checkpoint.checkpoints c ON c.thread_id >= r.bottom COLLATE "C" AND c.thread_id < r.top COLLATE "C"
    UNION ALL
    SELECT b.thread_id, b.checkpoint_ns, b.channel,
        CASE WHEN starts_with(b.version, '#/') THEN 'chunk' ELSE 'value' END,
        NULL, octet_length(b.value)
    FROM unnest(%(bottoms)s::text[], %(tops)s::text[]) AS r (bottom, top)
    JOIN langgraph_checkpoint.blobs b ON b.thread_id >= r.bottom COLLATE "C" AND b.thread_id < r.top COLLATE "C"
    UNION ALL
    SELECT w.thread_id, w.checkpoint_ns, w.channel, 'write', NULL, octet_length(w.value)
    FROM unnest(%(bottoms)s::text[], %(tops)s::text[]) AS r (bottom, top)
    JOIN langgraph_checkpoint.writes w ON w.thread_id >= r.bottom COLLATE "C" AND w.thread_id < r.top COLLATE "C"
)

-- name: doctor_checkpoints
-- differs: EXCEPT, and not NOT EXISTS.
-- include: with_page_of_checkpoints
, named AS MATERIALIZED (
    SELECT p.thread_id, p.checkpoint_ns, p.checkpoint_id, u.channel, u.version
    FROM page p CROSS JOIN LATERAL unnest(p.blob_channels, p.blob_versions) AS u (channel, version)
)
SELECT 'missing value', o.*, NULL::bigint FROM (
    SELECT * FROM named
    EXCEPT
    SELECT n.* FROM named n
    JOIN langgraph_checkpoint.blobs b ON b.thread_id = n.thread_id AND b.checkpoint_ns = n.checkpoint_ns
        AND b.channel = n.channel AND b.version = n.version
) AS o
UNION ALL
SELECT 'deleted parent', o.*, NULL, NULL FROM (
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id FROM page WHERE parent_id IS NOT NULL AND NOT hidden
    EXCEPT
    SELECT p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.parent_id FROM page p
    JOIN langgraph_checkpoint.checkpoints c ON c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns
        AND c.checkpoint_id = p.parent_id
) AS o
UNION ALL
SELECT 'id before its parent', thread_id, checkpoint_ns, checkpoint_id, parent_id, NULL, NULL
FROM page WHERE parent_id > checkpoint_id
-- include: end_of_checkpoints

-- name: doctor_blobs
-- differs: as doctor_checkpoints.
-- include: with_page_of_blobs
, chunks AS MATERIALIZED (
    SELECT p.thread_id, p.checkpoint_ns, p.channel, p.version, u.name COLLATE "C" AS name
    FROM page p CROSS JOIN LATERAL jsonb_array_elements_text(p.chunks::jsonb) AS u (name)
)
SELECT
    CASE WHEN starts_with(unused.version, '#/') THEN 'unused chunk' ELSE 'unused value' END, unused.*, NULL::text,
    NULL::bigint
FROM (
    SELECT thread_id, checkpoint_ns, channel, version FROM page
    EXCEPT
    (
        SELECT c.thread_id, c.checkpoint_ns, u.channel, u.version
        FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM page) AS p
        JOIN langgraph_checkpoint.checkpoints c ON c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns
        CROSS JOIN LATERAL unnest(c.blob_channels, c.blob_versions) AS u (channel, version)
        UNION ALL
        SELECT b.thread_id, b.checkpoint_ns, b.channel, u.name COLLATE "C"
        FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM page) AS p
        JOIN langgraph_checkpoint.blobs b ON b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns
        CROSS JOIN LATERAL jsonb_array_elements_text(b.chunks::jsonb) AS u (name)
    )
) AS unused
UNION ALL
SELECT 'missing chunk', o.*, NULL FROM (
    SELECT * FROM chunks
    EXCEPT
    SELECT p.* FROM chunks p
    JOIN langgraph_checkpoint.blobs b ON b.thread_id = p.thread_id AND b.checkpoint_ns = p.checkpoint_ns
        AND b.channel = p.channel AND b.version = p.name
) AS o
-- include: end_of_blobs

-- name: doctor_writes
-- differs: as doctor_checkpoints.
-- include: with_page_of_writes
, there AS MATERIALIZED (
    SELECT DISTINCT c.thread_id FROM langgraph_checkpoint.checkpoints c
    JOIN (SELECT DISTINCT thread_id FROM page) AS p ON p.thread_id = c.thread_id
)
SELECT 'write without a checkpoint', thread_id, checkpoint_ns, checkpoint_id, task_id, NULL::text, idx::bigint
FROM page WHERE thread_id NOT IN (SELECT thread_id FROM there)
-- include: end_of_writes

-- name: doctor_labels
-- differs: as doctor_checkpoints.
-- include: with_page_of_labels
SELECT 'dangling label', o.*, NULL::text, NULL::bigint FROM (
    SELECT thread_id, checkpoint_ns, checkpoint_id, name FROM page
    EXCEPT
    SELECT p.thread_id, p.checkpoint_ns, p.checkpoint_id, p.name FROM page p
    JOIN langgraph_checkpoint.checkpoints c ON c.thread_id = p.thread_id AND c.checkpoint_ns = p.checkpoint_ns
        AND c.checkpoint_id = p.checkpoint_id
) AS o
-- include: end_of_labels
