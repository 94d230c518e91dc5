-- Claims of threads. A claim is taken by three statements, under the thread's lock.

-- name: claim_expire
-- The claim of another owner, if it has expired. It is not taken over by the next statement, because Citus does not
-- allow ON CONFLICT to ask for the time.
DELETE FROM langgraph_checkpoint.claims
WHERE thread_id = %(thread_id)s AND token <> %(claim)s AND expires_at <=
    -- include: now

-- name: claim_take
-- The same token may be sent again, after an answer was lost.
INSERT INTO langgraph_checkpoint.claims AS c (thread_id, token, owner, expires_at)
VALUES (
    %(thread_id)s, %(claim)s, %(owner)s,
    -- include: expiry
)
ON CONFLICT (thread_id) DO UPDATE SET expires_at = excluded.expires_at WHERE c.token = excluded.token

-- name: claim_holder
SELECT
    token, owner,
    -- include: expiry_in_seconds
FROM langgraph_checkpoint.claims WHERE thread_id = %(thread_id)s

-- name: select_lost_claim
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM langgraph_checkpoint.claims WHERE thread_id = %(thread_id)s AND token = %(claim)s
)

-- name: renew_claim
UPDATE langgraph_checkpoint.claims SET expires_at =
    -- include: expiry
WHERE thread_id = %(thread_id)s AND token = %(claim)s
RETURNING token

-- name: release_claim
DELETE FROM langgraph_checkpoint.claims WHERE thread_id = %(thread_id)s AND token = %(claim)s
RETURNING token
