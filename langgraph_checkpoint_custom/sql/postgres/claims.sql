-- Claims of threads.

-- name: select_lost_claim
SELECT 1 WHERE NOT EXISTS (
    SELECT FROM langgraph_checkpoint.claims WHERE thread_id = %(thread_id)s AND token = %(claim)s
)

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
