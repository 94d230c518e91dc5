-- Claims of threads.

-- name: claim_expire
-- differs: ON CONFLICT may not ask for the time, so a claim that has expired is deleted before another one is stored.
DELETE FROM langgraph_checkpoint.claims
WHERE thread_id = %(thread_id)s AND token <> %(claim)s AND expires_at <= statement_timestamp()

-- name: claim_take
-- differs: as claim_expire.
INSERT INTO langgraph_checkpoint.claims AS c (thread_id, token, owner, expires_at)
VALUES (
    %(thread_id)s, %(claim)s, %(owner)s, statement_timestamp() + make_interval(secs => %(ttl_seconds)s)
)
ON CONFLICT (thread_id) DO UPDATE
SET token = EXCLUDED.token, owner = EXCLUDED.owner, expires_at = EXCLUDED.expires_at
WHERE c.token = EXCLUDED.token

-- name: renew_claim
-- differs: as claim_expire; the same holds for an UPDATE.
UPDATE langgraph_checkpoint.claims
SET expires_at = statement_timestamp() + make_interval(secs => %(ttl_seconds)s)
WHERE thread_id = %(thread_id)s AND token = %(claim)s
RETURNING token

-- name: claim_sweep
-- differs: it would delete on all servers whenever a thread is claimed. docs/scaling.md has the statement to run now
-- and then.
